"""The figure that most experiments share: CVaR and mean against the number of episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dprl._core import plot
from dprl._core.table import Table

__all__ = ["against_n", "draw"]


def draw(axis: Any, table: Table, problem: str, column: str, names: Sequence[str]) -> None:
    """Draw one panel: a column of the summary against n, one line per contestant.

    Args:
        axis: The matplotlib axis to draw on; the number n of episodes is on a log scale.
        table: A summary that `dprl_studies.paper.contest.summarise` made.
        problem: The problem whose rows are drawn.
        column: "mean" or "cvar"; the standard errors of the same column are drawn as bands. A
            dashed line shows the value of usual practice.
        names: Labels of the contestants to draw, in the order of the legend.

    Example:
        >>> from dprl_studies.paper.contest import summarise
        >>> import numpy as np
        >>> rows = {"problem": np.array(["forest"] * 2), "n": np.array([50, 50]),
        ...         "contestant": np.array(["BC", "BC"]), "value": np.array([0.4, 0.5]),
        ...         "behavior": np.array([0.5, 0.5])}
        >>> figure, axes = plot.grid(1, 1)
        >>> draw(axes[0, 0], summarise(rows, "Forest"), "forest", "mean", ["BC"])
        >>> axes[0, 0].get_xlabel()
        'episodes in the log'
    """
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
    """A locator that places no ticks."""
    from matplotlib.ticker import NullLocator

    return NullLocator()


def against_n(table: Table, title: str) -> Any:
    """A figure of two panels for one problem, CVaR 5 % and mean, with a legend beside them.

    Args:
        table: A summary of one problem that `dprl_studies.paper.contest.summarise` made.
        title: Name of the problem, for the titles of the panels.

    Returns:
        The matplotlib figure.

    Example:
        >>> from dprl_studies.paper.contest import summarise
        >>> import numpy as np
        >>> rows = {"problem": np.array(["forest"] * 2), "n": np.array([50, 50]),
        ...         "contestant": np.array(["BC", "BC"]), "value": np.array([0.4, 0.5]),
        ...         "behavior": np.array([0.5, 0.5])}
        >>> figure = against_n(summarise(rows, "Forest"), "Forest")
        >>> [axis.get_title() for axis in figure.axes]
        ['Forest: CVaR 5 % of the value', 'Forest: mean value']
    """
    problem = table["problem"][0]
    names = list(dict.fromkeys(table["contestant"]))
    figure, axes = plot.grid(1, 2, width=4.4, height=3.8)
    for axis, column, quantity in zip(
        axes[0], ("cvar", "mean"), ("CVaR 5 % of the value", "mean value"), strict=True
    ):
        draw(axis, table, problem, column, names)
        axis.set_title(f"{title}: {quantity}")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center", fontsize=7.5)
    return figure
