"""The figure of a sweep: what each setting gains, how often it defers, on how many it rests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dprl._core import plot
from dprl.evaluation._result import ENOUGH, FEW_BLIND
from dprl.evaluation._sweep_rules import setting_words, value_words

if TYPE_CHECKING:
    from dprl.evaluation._sweep import Sweep

__all__ = ["figure_of"]

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#777777")


def figure_of(swept: Sweep) -> Any:
    """Three panels; the x axis is one setting, with one line for each combination of the others."""
    tried = {name: list(dict.fromkeys(row[name] for row in swept.rows)) for name in swept.varied}
    x_name = max(reversed(swept.varied), key=lambda name: len(tried[name]))
    others = [name for name in swept.varied if name != x_name]
    ticks = _in_order(tried[x_name])
    figure, axes = plot.grid(1, 3, width=3.6, height=3.2)
    lines = list(dict.fromkeys(tuple(row[name] for name in others) for row in swept.rows))
    for k, line in enumerate(lines):
        rows = [r for r in swept.rows if tuple(r[name] for name in others) == line]
        rows.sort(key=lambda r: ticks.index(r[x_name]))
        x = np.array([ticks.index(r[x_name]) for r in rows])
        aside = x + 0.12 * (k - (len(lines) - 1) / 2)
        y, low, high = (
            np.array([r[key] for r in rows], float)
            for key in ("difference", "difference_low", "difference_high")
        )
        look = {"color": COLORS[k % len(COLORS)], "marker": plot.MARKERS[k % 8], "ms": 4, "lw": 1.2}
        label = setting_words(rows[0], others) or None
        axes[0, 0].errorbar(
            aside, y, yerr=np.abs([y - low, high - y]), capsize=2, label=label, **look
        )
        few = np.array([r["reached"] > 0 and r["ess_differs"] < ENOUGH for r in rows])
        hollow = {**look, "mfc": "white", "lw": 0, "zorder": 3}
        axes[0, 0].plot(aside[few], y[few], **hollow)
        for place, height, row in zip(aside, y, rows, strict=True):
            if row["unsupported"] > FEW_BLIND:  # above BLIND there is no interval either
                axes[0, 0].annotate(
                    f"{100 * row['unsupported']:.0f} % unsupported", (place, height), (0, 6),
                    textcoords="offset points", ha="center", fontsize=7, color=look["color"],
                )  # fmt: skip
        axes[0, 1].plot(x, [100 * r["deferred"] for r in rows], **look)
        reached = np.array([r["reached"] > 0 for r in rows])
        axes[0, 2].plot(x[reached], [r["ess_differs"] for r in rows if r["reached"]], **look)
    for axis in axes[0]:
        axis.set_xticks(range(len(ticks)), [value_words(t) for t in ticks])
        axis.set_xlabel(x_name)
    plot.reference(axes[0, 0], 0.0, "usual practice")
    plot.reference(axes[0, 2], ENOUGH, f"{ENOUGH}: less is too few")
    axes[0, 0].set_title(f"difference to usual practice ({swept.estimator})")
    axes[0, 0].set_ylabel(f"hollow: rests on fewer than {ENOUGH}")
    axes[0, 1].set_title("steps deferred, %")
    axes[0, 1].set_ylim(-3, 103)
    axes[0, 2].set_title("effective sample size where it matters")
    axes[0, 2].set_ylim(bottom=0)
    if len(lines) > 1:
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center")
    return figure


def _in_order(values: list[Any]) -> list[Any]:
    """Numbers from the smallest to the largest; words, and what is mixed, as they were given."""
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return sorted(values) if numbers else values
