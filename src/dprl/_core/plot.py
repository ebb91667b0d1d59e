"""Figures in one plain style: readable in print, in grey, and by colour-blind readers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from dprl._core.disk import replacing
from dprl._core.optional import needed
from dprl.errors import PackageError, ParameterError

PALETTE = {
    "DPRL contrast": "#0072b2",
    "DPRL paper": "#56b4e9",
    "DPRL gate": "#e69f00",
    "SPIBB": "#d55e00",
    "Soft-SPIBB": "#8c564b",
    "PQI": "#009e73",
    "CQL": "#cc79a7",
    "BC": "#777777",
    "RL": "#000000",
    "Confident": "#b30021",
}
MARKERS = "osD^vPX*"
DASHES = ("-", "--", "-.", ":")


def _pyplot() -> Any:
    needed("matplotlib", "a figure", "dprl[plot]").use("Agg")
    return needed("matplotlib.pyplot", "a figure", "dprl[plot]")


def ready() -> None:
    """Refuse now if figures cannot be drawn later (matplotlib is missing)."""
    _pyplot()


def lacking() -> str:
    """Why figures cannot be drawn here and what to install; '' where they can."""
    try:
        ready()
    except PackageError as error:
        return f"{error.what} {error.do}"
    return ""


def box(corner: tuple[float, float], width: float, height: float, colour: str) -> Any:
    """A box with round corners and this colour inside, for `axis.add_patch`."""
    patches = needed("matplotlib.patches", "a figure", "dprl[plot]")
    return patches.FancyBboxPatch(
        corner, width, height, facecolor=colour, zorder=2, edgecolor="#333333", linewidth=1,
        boxstyle="round,pad=0,rounding_size=.08",
    )  # fmt: skip


@contextlib.contextmanager
def look() -> Iterator[None]:
    """The common style, for everything drawn inside the `with` block."""
    with _pyplot().rc_context(
        {
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#e5e5e5",
            "axes.axisbelow": True,
            "axes.titlesize": 10,
            "axes.titlelocation": "left",
            "legend.frameon": False,
            "svg.hashsalt": "dprl",
        }
    ):
        yield


def grid(rows: int, columns: int, width: float = 4.0, height: float = 3.2) -> tuple[Any, Any]:
    """A figure of rows x columns panels, and its axes as a 2-d array."""
    plt = _pyplot()
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    plt.close(figure)
    return figure, axes


def style(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A line style for each method: colour by family, dash and marker within a family."""
    seen: dict[str, int] = {}
    styles = {}
    for name in names:
        family = next((f for f in PALETTE if name.startswith(f)), name.split(",")[0])
        place = seen.get(family, 0)
        seen[family] = place + 1
        styles[name] = {
            "color": PALETTE.get(family, "#999999"),
            "linestyle": DASHES[place % len(DASHES)],
            "marker": MARKERS[place % len(MARKERS)],
            "markersize": 4,
            "linewidth": 1.4,
        }
    return styles


def blank(width: float, height: float) -> Any:
    """A figure without panels, in inches, to be divided into parts."""
    plt = _pyplot()
    figure = plt.figure(figsize=(width, height), layout="constrained")
    plt.close(figure)
    return figure


def curve(
    axis: Any,
    x: ArrayLike,
    y: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    label: str,
    look: Mapping[str, Any],
) -> None:
    """A line with a band from low to high."""
    axis.plot(x, y, label=label, **look)
    axis.fill_between(x, low, high, color=look["color"], alpha=0.12, linewidth=0)


def reference(axis: Any, value: float, label: str) -> None:
    """A horizontal line at a value to compare with, with its name at the right end."""
    axis.axhline(value, color="#333333", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axis.annotate(
        label, (1, value), xycoords=("axes fraction", "data"), ha="right", va="bottom",
        fontsize=7.5, bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5},
    )  # fmt: skip


def save(figure: Any, path: Path) -> None:
    """Write a figure as .png, .svg or .pdf, by its name; equal figures give equal bytes."""
    kind = path.suffix[1:].lower()
    if kind not in ("png", "svg", "pdf"):
        raise ParameterError(
            f"a figure cannot be written as {path.name!r}.", do="Name it .png, .svg or .pdf."
        )
    undated = {"png": None, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    with replacing(path) as part:
        figure.savefig(part, format=kind, dpi=150, metadata=undated)
