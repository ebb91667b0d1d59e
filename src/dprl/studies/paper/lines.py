"""The figure most experiments share: CVaR and mean against the number of episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dprl._core import plot
from dprl._core.table import Table

__all__ = ["against_n", "draw"]


def draw(axis: Any, table: Table, problem: str, column: str, names: Sequence[str]) -> None:
    """One panel: `column` of the summary against n, a line a contestant, behaviour as a line."""
    rows = [row for row in table if row["problem"] == problem]
    looks = plot.style(names)
    for name in names:
        mine = sorted((row for row in rows if row["contestant"] == name), key=lambda r: r["n"])
        if mine:
            x, y = [r["n"] for r in mine], [r[column] for r in mine]
            plot.curve(axis, x, y, [r[f"{column}_se"] for r in mine], name, looks[name])
    plot.reference(axis, rows[0]["behavior"], "behaviour")
    axis.set_xscale("log")
    ticks = sorted({row["n"] for row in rows})
    axis.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axis.xaxis.set_minor_locator(_none())
    axis.set_xlabel("episodes in the log")


def _none() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def against_n(table: Table, title: str) -> Any:
    """Two panels for one problem, CVaR 5 % and mean, with a legend beside them."""
    problem = table["problem"][0]
    names = list(dict.fromkeys(table["contestant"]))
    figure, axes = plot.grid(1, 2, width=4.4, height=3.8)
    for axis, column, words in zip(
        axes[0], ("cvar", "mean"), ("CVaR 5 % of the value", "mean value"), strict=True
    ):
        draw(axis, table, problem, column, names)
        axis.set_title(f"{title}: {words}")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center", fontsize=7.5)
    return figure
