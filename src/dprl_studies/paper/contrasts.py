"""The contrasts experiment: how often the interval beside a suggestion contains the truth.

Two samples of returns are drawn whose true means are known: n episodes that followed the
suggestion, and others that did not. A 95 % interval for the difference of the means should contain
the true difference in 95 of 100 draws, even if n is small or the returns are extreme. For
comparison there is Welch's t interval, which relies on the standard deviations of the samples. In
`own tail` only episodes that followed the suggestion can have rare large returns, and few samples
contain one: no interval computed from the sample alone can allow for that, and the table shows how
much coverage is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from dprl._core import plot
from dprl._core.arrays import Floats
from dprl._core.inference import LEVEL, contrast, welch
from dprl._core.table import Table
from dprl.logs.reading.tables import Row, Rows
from dprl_studies.harness import Experiment, Setting, by, table_of

Draw: TypeAlias = Callable[[np.random.Generator, tuple[int, int]], Floats]
"""A function (random generator, shape) → returns of this shape."""

SIZES, DRAWS, WANTED = (5, 10, 20, 50), 10_000, 0.93


def _success(p: float) -> Draw:
    """Returns that are 1 with probability p, else 0."""
    return lambda rng, size: (rng.random(size) < p).astype(np.float64)


def _later(rng: np.random.Generator, size: tuple[int, int]) -> Floats:
    """Success with probability .9 after a geometric number of steps, discounted by .95 per step."""
    return np.asarray((rng.random(size) < 0.9) * 0.95 ** rng.geometric(0.2, size))


RETURNS: dict[str, tuple[Draw, float]] = {
    "success .5": (_success(0.5), 0.5),
    "success .9": (_success(0.9), 0.9),
    "success .99": (_success(0.99), 0.99),
    "discounted success .9": (_later, 0.9 * 0.2 * 0.95 / (1 - 0.8 * 0.95)),
    "exponential": (lambda rng, size: rng.exponential(1.0, size), 1.0),
    "minus exponential": (lambda rng, size: -rng.exponential(1.0, size), -1.0),
    "lognormal": (lambda rng, size: rng.lognormal(0.0, 1.0, size), float(np.exp(0.5))),
    "normal": (lambda rng, size: rng.normal(size=size), 0.0),
}
"""Name of a distribution of returns → how it is drawn, and its mean."""

OTHERS = ("as many", "500", "500, success .5", "500, own tail")
"""The other sample: as many as n or 500, from the same distribution unless another is named."""


def settings(quick: bool, seed: int) -> Sequence[Setting]:
    """One task per distribution of returns, kind of other sample and size n."""
    cases = [(name, others) for name in RETURNS for others in OTHERS[:2]]
    cases += [(name, OTHERS[2]) for name in RETURNS if name.startswith("success")]
    cases += [(name, OTHERS[3]) for name in ("exponential", "lognormal")]
    return [
        {"returns": name, "others": others, "n": n, "draws": 1_000 if quick else DRAWS,
         "seed": 10_000 * seed + 100 * i + n}
        for i, (name, others) in enumerate(cases)
        for n in SIZES
    ]  # fmt: skip


def run(setting: Setting) -> list[Row]:
    """Two rows: coverage and median width of our interval and of Welch's, over all draws."""
    rng = np.random.default_rng(setting["seed"])
    draw, mean = RETURNS[setting["returns"]]
    n, draws, others = setting["n"], setting["draws"], setting["others"]
    x, truth = draw(rng, (draws, n)), 0.0
    if others == OTHERS[2]:
        y, truth = _success(0.5)(rng, (draws, 500)), mean - 0.5
    elif others == OTHERS[3]:
        y = mean + 0.05 * rng.normal(size=(draws, 500))
    else:
        y = draw(rng, (draws, n if others == OTHERS[0] else 500))
    facts = [(v.shape[1], v.mean(axis=1), v.std(axis=1, ddof=1)) for v in (x, y)]
    low = np.minimum(x.min(axis=1), y.min(axis=1))
    high = np.maximum(x.max(axis=1), y.max(axis=1))
    rows = []
    for name, ends in (
        ("ours", contrast(*facts[0], *facts[1], low, high)),
        ("Welch", welch(*facts[0], *facts[1])),
    ):
        exists = np.isfinite(ends[0])
        wrong = (ends[0] > truth) | (truth > ends[1])  # no interval says nothing wrong
        rows.append(
            {
                "returns": setting["returns"], "others": others, "n": n, "interval": name,
                "draws": draws, "exists": float(exists.mean()),
                "coverage": float(1 - wrong.mean()),
                "width": float(np.median((ends[1] - ends[0])[exists])),
            }
        )  # fmt: skip
    return rows


def summary(rows: Rows) -> Table:
    """One row per task: coverage of both intervals, and the ratio of their widths."""
    lines = []
    for (returns, others, n), part in by(rows, "returns", "others", "n"):
        ours, welch_s = (int(np.flatnonzero(part["interval"] == k)[0]) for k in ("ours", "Welch"))
        width = part["width"][welch_s]
        lines.append({
            "returns": returns, "others": others, "n": n, "coverage": float(part["coverage"][ours]),
            "exists": float(part["exists"][ours]), "welch": float(part["coverage"][welch_s]),
            "wider": float(part["width"][ours] / width) if width > 0 else np.nan,
        })  # fmt: skip
    return table_of(
        lines,
        f"Share of draws in which the {100 * LEVEL:g} % interval of a difference holds the truth",
        "coverage: share of draws in which no interval that leaves the truth out is shown; "
        "exists: share that have an interval (there is none where all returns are equal); welch: "
        "coverage of Welch's t interval; wider: ratio of the median widths.",
    )


def brief(table: Table) -> Table:
    """Coverage only: one row per distribution of returns, one column per size and interval."""
    cells = {(r["returns"], r["others"], r["n"]): r for r in table}
    lines = [
        {
            "returns": returns, "others": others,
            **{f"n = {n}": cells[returns, others, n]["coverage"] for n in SIZES},
            **{f"Welch {n}": cells[returns, others, n]["welch"] for n in SIZES},
        }
        for returns, others in dict.fromkeys((a, b) for a, b, _ in cells)
    ]  # fmt: skip
    return table_of(lines, table.caption, table.note)


def figure(rows: Rows) -> Any:
    """One panel per kind of other sample: coverage against n, one line per distribution."""
    table = summary(rows)
    figure, axes = plot.grid(2, len(OTHERS), width=2.8, height=2.7)
    colors = dict(zip(RETURNS, list(plot.PALETTE.values())[: len(RETURNS)], strict=True))
    for (i, j), axis in np.ndenumerate(axes):
        column, others = ("coverage", "welch")[i], OTHERS[j]
        for name, color in colors.items():
            line = [r for r in table if r["returns"] == name and r["others"] == others]
            if line:
                x, y = [r["n"] for r in line], [r[column] for r in line]
                axis.plot(x, y, "o-", ms=3, color=color, label=name)
        axis.axhline(LEVEL, color="#333333", lw=1, ls=(0, (4, 3)), zorder=1)
        axis.set(xscale="log", ylim=(0.27, 1.02))
        axis.set_xticks(SIZES, [str(n) for n in SIZES], minor=False)
        axis.set_xticks([], minor=True)
        axis.set_title(f"{('ours', 'Welch')[i]}, others: {others}", fontsize=9)
    for axis in axes[1]:
        axis.set_xlabel("n that took it")
    for axis in axes[:, 0]:
        axis.set_ylabel("coverage")
    draws = sorted(set(rows["draws"].tolist()))
    plot.caption(
        figure,
        f"Share of draws whose {100 * LEVEL:g} % interval (dashed line) holds the truth, "
        f"{' to '.join(f'{d:,}' for d in draws)} draws a point.",
    )
    handles = {
        label: handle
        for axis in axes.flat
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(handles.values()), list(handles), loc="outside right center", fontsize=8)
    return figure


EXPERIMENT = Experiment(
    "contrasts", "How often does the interval beside a suggestion hold the truth?",
    settings, run, summary, figure, brief,
)  # fmt: skip
