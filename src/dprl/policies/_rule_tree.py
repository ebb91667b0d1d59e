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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dprl._core.html.catalogue import Words, speak
from dprl.policies._rule import Condition

if TYPE_CHECKING:
    from dprl.policies.rules import RulePolicy

__all__ = ["Picture", "TreeNode", "picture_of", "tree_of"]

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


def picture_of(policy: RulePolicy, t: Words | None = None) -> Picture | None:
    """The tree of a policy, ready to be drawn; None where its rules are no tree.

    Args:
        policy: The policy.
        t: The words of a language. Default None: English.
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
            boxes.append({"column": column, "row": row, **_leaf(policy, node.rule, suggested, t)})
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
    return Picture(deepest + 1, rows, tuple(boxes), tuple(edges), _spoken(policy, root, t))


def _asked(policy: RulePolicy, question: Condition, t: Words) -> str:
    return f"{t.part(question.words)}?"


def _leaf(policy: RulePolicy, r: int, suggested: Sequence[Any], t: Words) -> dict[str, Any]:
    """What the box of a leaf says."""
    rule = None if r < 0 else policy.rules[r]
    if rule is None or rule.silent:
        words = (
            t.plain("DEFER") if rule is None else t.plain("{n}. DEFER (not approved)", n=str(r + 1))
        )
        return {"lines": _wrapped(words), "words": words, "colour": -1}
    words = t.plain("{n}. {suggested}", n=str(r + 1), suggested=str(rule.suggested))
    lines = _wrapped(words, LINES - 1)
    advantage, low, high = (rule.facts.get(name) for name in ("advantage", "low", "high"))
    if advantage is not None:
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


def _spoken(policy: RulePolicy, node: TreeNode, t: Words) -> str:
    """The tree below a node in words."""
    if node.question is None or node.yes is None or node.no is None:
        return str(_leaf(policy, node.rule, [r.suggested for r in policy.rules], t)["words"])
    yes, no = (_spoken(policy, side, t) for side in (node.yes, node.no))
    return t.plain(
        "{question} Yes: {yes}; no: {no}", question=_asked(policy, node.question, t), yes=yes, no=no
    )
