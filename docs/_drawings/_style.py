"""Colours and small helpers that the drawings share; safe for colour-blind readers."""

BLUE, ORANGE, GREEN, PURPLE, GREY, LIGHT = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#777777", "#d5d9de",
)  # fmt: skip


def box(axis, x, y, width, height, words, colour="#ffffff", size=9, bold=False):
    """A box with round corners whose lower left corner is (x, y), and words in its middle."""
    from matplotlib.patches import FancyBboxPatch

    axis.add_patch(
        FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=.12",
                       facecolor=colour, edgecolor="#333333", linewidth=1, zorder=2)
    )  # fmt: skip
    axis.text(x + width / 2, y + height / 2, words, ha="center", va="center", fontsize=size,
              zorder=3, linespacing=1.35, weight="bold" if bold else "normal")  # fmt: skip


def arrow(axis, start, end, words="", aside=(0.08, 0)):
    """An arrow from one place to another, with words beside its middle."""
    axis.annotate(
        "", end, start, zorder=1, arrowprops={"arrowstyle": "-|>", "color": "#333333", "lw": 1.1}
    )
    if words:
        x, y = (start[0] + end[0]) / 2 + aside[0], (start[1] + end[1]) / 2 + aside[1]
        axis.text(x, y, words, fontsize=8.5, va="center", color="#333333")


def bare(axis, width, height):
    """An axis without frame, ticks and grid, as large as (width, height)."""
    axis.set(xlim=(0, width), ylim=(0, height))
    axis.set_axis_off()
