"""The picture of a policy made of rules: their tree, or a band of text each.

Rules that do not come from a tree have a band of text each, and what it brought beside it.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from dprl._core import plot
from dprl._core.words import say, sentences
from dprl.policies._rule_tree import Picture, picture_of
from dprl.policies._rule_words import rule_parts

if TYPE_CHECKING:
    from dprl.policies.rules import RulePolicy

__all__ = ["draw_rules"]

WIDTH = 46
"""Characters in a line of a rule's words."""
INK, SILENT, DARK_BAND = "#0072b2", "#999999", "#f4f4f4"
LEAVES = ("#cfe6f7", "#fbe0b8", "#cdebdd", "#f6d5e6", "#fdf3b5", "#e0d8f3")
"""Colours of leaves, one for each suggested action; black text can be read on all of them."""
DEFERS = "#dddddd"
TREE = sentences(
    say("What each suggestion brought over doing otherwise."),
    say("A value that is missing answers only whether it is missing; else: DEFER."),
)
ACROSS, DOWN, BOX = 2.4, 0.85, (2.0, 0.66)
"""Inches from column to column, from row to row, and of a box."""


def draw_rules(policy: RulePolicy, axis: Any) -> Any:
    """Draw the rules on `axis`, or on the axis of a new figure; returns the axis."""
    tree = picture_of(policy) if policy.rules else None
    return _draw_bands(policy, axis) if tree is None else _draw_tree(tree, axis)


def _draw_tree(tree: Picture, axis: Any) -> Any:
    """Draw questions and leaves from left to right."""
    with plot.look():
        width, height = ACROSS * tree.columns, DOWN * tree.rows
        if axis is None:
            axis = plot.grid(1, 1, width=max(width, 3.0), height=height + 0.6)[1][0, 0]
        wide, high = BOX
        for column, row, to_column, to_row, up, word in tree.edges:
            ends = [ACROSS * column + wide, ACROSS * to_column], [DOWN * row, DOWN * to_row]
            axis.plot(*ends, color="#333333", linewidth=1, zorder=1)
            axis.annotate(
                word, (ends[0][1], ends[1][1]), xytext=(-3, 3 if up else -3), ha="right",
                va="bottom" if up else "top", textcoords="offset points", fontsize=8,
            )  # fmt: skip
        for box in tree.boxes:
            colour, left, middle = box["colour"], ACROSS * box["column"], DOWN * box["row"]
            fill = "white" if colour is None else DEFERS
            if colour is not None and colour >= 0:
                fill = LEAVES[colour % len(LEAVES)]
            axis.add_patch(plot.box((left, middle - high / 2), wide, high, fill))
            axis.text(
                left + wide / 2, middle, "\n".join(box["lines"]), ha="center", va="center",
                fontsize=8, zorder=3, color="black", parse_math=False,
            )  # fmt: skip
        axis.set_xlim(-0.05, ACROSS * (tree.columns - 1) + wide + 0.05)
        axis.set_ylim(DOWN * (tree.rows - 0.5), -DOWN / 2)
        axis.set_axis_off()
        axis.set_title(TREE, loc="left", fontsize=8)
        return axis


def _draw_bands(policy: RulePolicy, axis: Any) -> Any:
    """Draw a band of text for each rule, and what it brought beside it."""
    words = [_lines(*rule_parts(policy, r)) for r in range(len(policy.rules))]
    words.append("Elsewhere: DEFER")
    with plot.look():
        if axis is None:
            height = 0.7 + 0.2 * sum(text.count("\n") + 2.5 for text in words)
            axis = plot.grid(1, 1, width=7.5, height=height)[1][0, 0]
        for r in range(0, len(words), 2):
            axis.axhspan(r - 0.5, r + 0.5, color=DARK_BAND, zorder=0, linewidth=0)
        measured = [_draw_rule(axis, r, rule) for r, rule in enumerate(policy.rules)]
        axis.set_yticks(range(len(words)), words, ha="left")
        axis.tick_params(axis="y", length=0, pad=8 + 5.2 * max(map(_longest, words)))
        silent = [*(rule.silent for rule in policy.rules), False]
        for label, is_silent in zip(axis.get_yticklabels(), silent, strict=True):
            label.set(color=SILENT if is_silent else "black", parse_math=False)
        axis.set_ylim(len(words) - 0.5, -0.5)
        axis.grid(visible=False, axis="y")
        if any(measured):
            axis.axvline(0, color="#333333", linewidth=1, zorder=1)
            axis.set_xlabel(
                say("What it brought over doing otherwise\n(each end: all rules at once)")
            )
        else:
            axis.set_xticks([])
            axis.set_xlim(0, 1)
        return axis


def _draw_rule(axis: Any, r: int, rule: Any) -> bool:
    """Draw what a rule brought; False where that is not on record."""
    advantage, low, high = (rule.facts.get(name) for name in ("advantage", "low", "high"))
    if advantage is None:
        return False
    color = SILENT if rule.silent else INK
    if low is not None and high is not None:
        axis.plot([low, high], [r, r], color=color, linewidth=2, solid_capstyle="butt")
    elif low is not None or high is not None:
        end = low if high is None else high
        axis.annotate(
            "", xy=(2 * advantage - end, r), xytext=(end, r),
            arrowprops={"arrowstyle": "->", "color": color, "linewidth": 1.5},
        )  # fmt: skip
    axis.plot([advantage], [r], marker="o", color=color, linestyle="none")
    return True


def _lines(where: str, suggestion: str) -> str:
    """A rule in lines: where it holds, then what it says."""
    parts = [*textwrap.wrap(f"{where}:", WIDTH), *textwrap.wrap(f"→ {suggestion}", WIDTH)]
    return "\n".join([parts[0], *(f"    {part}" for part in parts[1:])])


def _longest(text: str) -> int:
    return max(map(len, text.split("\n")))
