"""The tree behind rules: questions, and leaves that suggest something or defer.

Rules that a tree proposed still hold its questions: two rules of one tree part at some question,
which one answers with yes ("at most 62") and the other with no ("above 62"). So the tree is rebuilt
from the conditions. At each node a question is taken that all rules below it answer; where there is
none, the rules are no tree (they may overlap, say), and they are shown as a list. A side to which
no rule leads defers. A value that answers a question neither way (missing, infinite, a label that
is not known) leads to DEFER, and is not drawn.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dprl._core import plot
from dprl._core.html.catalogue import Words, speak
from dprl._core.words import say, sentences
from dprl.policies.rules.rule import Condition
from dprl.policies.rules.text import rule_parts, shown

if TYPE_CHECKING:
    from dprl.policies.rules.policy import RulePolicy


OPPOSITE: dict[str, Any] = {
    "above": "at most", "not in": "in", "known": "missing",
}  # fmt: skip
"""Kinds of conditions that answer no, and the question that they answer."""
LETTERS, LINES = 24, 3
"""Largest number of characters in a line of a box, and of lines; longer text is cut and marked."""


@dataclass(frozen=True)
class TreeNode:
    """A question with both sides, or a leaf.

    Attributes:
        question: What is asked; None in a leaf.
        yes: The node where the answer is yes; None in a leaf.
        no: The node where the answer is no; None in a leaf.
        rule: The number of the rule of a leaf, from 0; -1 where no rule holds, or at a question.
    """

    question: Condition | None = None
    yes: TreeNode | None = None
    no: TreeNode | None = None
    rule: int = -1


def tree_of(policy: RulePolicy) -> TreeNode | None:
    """The tree that the rules of a policy are the leaves of; None where they are no tree."""
    return _node([(r, rule.conditions) for r, rule in enumerate(policy.rules)])


def _node(rules: Sequence[tuple[int, tuple[Condition, ...]]]) -> TreeNode | None:
    """The tree of some rules, each with the conditions that are not asked yet."""
    if not rules:
        return TreeNode()
    if any(not left for _, left in rules):
        return TreeNode(rule=rules[0][0]) if len(rules) == 1 else None
    for question in dict.fromkeys(_question(c) for c in rules[0][1]):
        sides: dict[bool, list[tuple[int, tuple[Condition, ...]]]] = {True: [], False: []}
        for r, left in rules:
            answers = [c for c in left if _question(c) == question]
            if not answers:
                break
            rest = tuple(c for c in left if _question(c) != question)
            sides[answers[0].kind not in OPPOSITE].append((r, rest))
        else:
            yes, no = _node(sides[True]), _node(sides[False])
            if yes is not None and no is not None:
                feature, kind, value, labels = question
                day = any(c.day for c in rules[0][1] if c.feature == feature)
                asked = Condition(feature, kind, math.nan if value is None else value, labels, day)
                return TreeNode(asked, yes, no)
    return None


def _question(condition: Condition) -> tuple[str, Any, float | None, tuple[str, ...]]:
    """The question that a condition answers, with yes or no: feature, kind, number and labels."""
    kind = OPPOSITE.get(condition.kind, condition.kind)
    value = None if math.isnan(condition.value) else condition.value
    return condition.feature, kind, value, condition.labels


@dataclass(frozen=True)
class Picture:
    """A tree as boxes and lines, from left to right; each leaf has a row of its own.

    Attributes:
        columns: Number of columns: questions on the longest way, and the leaf.
        rows: Number of leaves.
        boxes: For each node its "column" and "row" (rows may be halves), "lines" of text, "words"
            (all of the text), and "colour": the place of the action among the suggested ones; -1
            for DEFER, None for a question.
        edges: (column and row of the question, column and row of its side, whether that is the side
            of yes, the word for it).
        words: The tree in words, for those who do not see it.
    """

    columns: int
    rows: int
    boxes: tuple[dict[str, Any], ...]
    edges: tuple[tuple[float, float, float, float, bool, str], ...]
    words: str


def picture_of(policy: RulePolicy, t: Words | None = None, numbers: bool = True) -> Picture | None:
    """The tree of a policy, ready to be drawn; None where its rules are no tree.

    Args:
        policy: The policy.
        t: The words of a language. Default None: English.
        numbers: Whether leaves say what their suggestion brought over doing otherwise.
    """
    t = t or speak("en")
    root = tree_of(policy)
    if root is None:
        return None
    suggested = list(dict.fromkeys(r.suggested for r in policy.rules if not r.silent))
    boxes: list[dict[str, Any]] = []
    edges: list[tuple[float, float, float, float, bool, str]] = []
    rows, deepest = 0, 0

    def place(node: TreeNode, column: int) -> float:
        nonlocal rows, deepest
        deepest = max(deepest, column)
        if node.question is None or node.yes is None or node.no is None:
            row = float(rows)
            rows += 1
            leaf = _leaf(policy, node.rule, suggested, t, numbers)
            boxes.append({"column": column, "row": row, **leaf})
            return row
        ends = [place(side, column + 1) for side in (node.yes, node.no)]
        row = sum(ends) / 2
        edges.extend(
            (column, row, column + 1, end, is_yes, t.plain("yes") if is_yes else t.plain("no"))
            for end, is_yes in zip(ends, (True, False), strict=True)
        )
        words = _asked(policy, node.question, t)
        boxes.append(
            {"column": column, "row": row, "lines": _wrapped(words), "words": words, "colour": None}
        )
        return row

    place(root, 0)
    words = _spoken(policy, root, t, numbers)
    return Picture(deepest + 1, rows, tuple(boxes), tuple(edges), words)


def _asked(policy: RulePolicy, question: Condition, t: Words) -> str:
    return f"{t.part(policy.terms.called.said(question.words))}?"


def _leaf(
    policy: RulePolicy, r: int, suggested: Sequence[Any], t: Words, numbers: bool
) -> dict[str, Any]:
    """What the box of a leaf says."""
    rule = None if r < 0 else policy.rules[r]
    if rule is None or rule.silent:
        words = (
            t.plain("DEFER") if rule is None else t.plain("{n}. DEFER (not approved)", n=str(r + 1))
        )
        return {"lines": _wrapped(words), "words": words, "colour": -1}
    words = t.plain(
        "{n}. {suggested}", n=str(r + 1), suggested=str(policy.terms.called.act(rule.suggested))
    )
    lines = _wrapped(words, LINES - 1)
    facts = shown(policy, rule)
    advantage, low, high = (facts.get(name) for name in ("advantage", "low", "high"))
    if advantage is not None and numbers:
        ends = ""
        if low is not None and high is not None:
            low, high = t.write(low, "+.2g"), t.write(high, "+.2g")
            ends = f" ({t.plain('{low} to {high}', low=low, high=high)})"
        lines = (*lines, f"{t.write(advantage, '+.2g')}{ends}")
        words = t.plain(
            "{leaf}: {advantage} over doing otherwise",
            leaf=words,
            advantage=t.write(advantage, "+.3g"),
        )
    return {"lines": lines, "words": words, "colour": suggested.index(rule.suggested)}


def _wrapped(text: str, most: int = LINES) -> tuple[str, ...]:
    lines = textwrap.wrap(text, LETTERS, max_lines=most, placeholder="…")
    return tuple(lines) or ("…",)


def _spoken(policy: RulePolicy, node: TreeNode, t: Words, numbers: bool) -> str:
    """The tree below a node in words."""
    if node.question is None or node.yes is None or node.no is None:
        suggested = [r.suggested for r in policy.rules]
        return str(_leaf(policy, node.rule, suggested, t, numbers)["words"])
    yes, no = (_spoken(policy, side, t, numbers) for side in (node.yes, node.no))
    return t.plain(
        "{question} Yes: {yes}; no: {no}", question=_asked(policy, node.question, t), yes=yes, no=no
    )


# -- the picture of a policy made of rules: their tree, or a band of text each ---------------------
#
# Rules that do not come from a tree have a band of text each, and what it brought beside it.

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
        measured = [
            _draw_rule(axis, r, rule, shown(policy, rule)) for r, rule in enumerate(policy.rules)
        ]
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


def _draw_rule(axis: Any, r: int, rule: Any, facts: Mapping[str, Any]) -> bool:
    """Draw what a rule brought; False where that is not on record."""
    advantage, low, high = (facts.get(name) for name in ("advantage", "low", "high"))
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
