"""Figures in one plain style: readable in print, in grey, and by colour-blind readers."""

from __future__ import annotations

import base64
import contextlib
import html
import io
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from dprl._core.disk import replacing
from dprl._core.optional import needed
from dprl.errors import PackageError, ParameterError

BLUE, GREEN, GREY = "#0072b2", "#009e73", "#777777"
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
    """A line style for each method: colour by family, dash and marker within a family.

    Families that the palette does not know have the colours that are left, and grey after that.
    """
    families = {n: next((f for f in PALETTE if n.startswith(f)), n.split(",")[0]) for n in names}
    left = [c for f, c in PALETTE.items() if f not in families.values()]
    new = [f for f in dict.fromkeys(families.values()) if f not in PALETTE]
    colors = PALETTE | dict(zip(new, left, strict=False))
    seen: dict[str, int] = {}
    styles = {}
    for name, family in families.items():
        place = seen.get(family, 0)
        seen[family] = place + 1
        styles[name] = {
            "color": colors.get(family, "#999999"),
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


def caption(figure: Any, words: str) -> None:
    """Small text below all panels; a second call adds to it."""
    text = " ".join(f"{figure.get_supxlabel()} {words}".split())
    figure.supxlabel(textwrap.fill(text, int(15 * figure.get_figwidth())), fontsize=8)


def reference(axis: Any, value: float, label: str) -> None:
    """A horizontal line at a value to compare with, with its name at the right end."""
    axis.axhline(value, color="#333333", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axis.annotate(
        label, (1, value), xycoords=("axes fraction", "data"), ha="right", va="bottom",
        fontsize=7.5, bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5},
    )  # fmt: skip


def forest(
    rows: Sequence[Mapping[str, Any]],
    label: str,
    kinds: Mapping[str, str],
    falls: bool = False,
    left: int = 0,
) -> Any:
    """A forest plot: a line for each row, with its interval.

    Args:
        rows: Each with "words", "kind", "advantage", "low", "high" and "proved" (a bound, or None).
        label: What is drawn, under the axis.
        kinds: Kind → its words; rows of the first one are drawn full, the others hollow.
        falls: Whether less is better. Default False.
        left: How many rows are left out. Default 0.
    """
    figure, axes = grid(1, 1, width=6.6, height=max(1.6, 0.9 + 0.34 * len(rows)))
    axis = axes[0, 0]
    looks = {
        kind: {"mfc": "white" if i else BLUE, "marker": "s" if i else "o"}
        for i, kind in enumerate(kinds)
    }
    for y, row in enumerate(rows):
        ends = [[row["advantage"] - row["low"]], [row["high"] - row["advantage"]]]
        axis.errorbar(
            row["advantage"], -y, xerr=[[abs(end[0])] for end in ends], color=BLUE, capsize=3,
            ms=5, ls="none", **looks[row["kind"]],
        )  # fmt: skip
        if row["proved"] is not None:
            axis.plot(row["proved"], -y, "<" if falls else ">", color=GREEN, ms=6, mec="white")
    axis.axvline(0, color="#333333", lw=1)
    axis.set_yticks([-y for y in range(len(rows))], [row["words"] for row in rows])
    axis.set(xlabel=label, ylim=(-len(rows) + 0.4, 0.6))
    axis.grid(visible=False, axis="y")
    for kind, words in kinds.items():
        if any(row["kind"] == kind for row in rows):
            axis.plot([], [], color=BLUE, lw=1.5, label=words, **looks[kind])
    if any(row["proved"] is not None for row in rows):
        axis.plot([], [], ">", color=GREEN, label="proved: more than this")
    if rows:
        figure.legend(loc="outside upper left", ncols=3, fontsize=8)
    if left:
        axis.text(1, 0, f"{left:,} more", transform=axis.transAxes, ha="right", va="bottom",
                  fontsize=8, color=GREY)  # fmt: skip
    return figure


def embedded(draw: Callable[[], Any], words: str) -> str:
    """A figure as an image in HTML; '' where figures cannot be drawn here.

    Args:
        draw: Draws it.
        words: What it shows, for those who do not see it.
    """
    try:
        with look():
            figure, svg = draw(), io.BytesIO()
            figure.savefig(svg, format="svg", metadata={"Date": None})
    except PackageError:
        return ""
    data = base64.b64encode(svg.getvalue()).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{html.escape(words, quote=True)}">'


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
