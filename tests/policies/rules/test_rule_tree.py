"""The tree behind rules: rebuilt from their conditions, and never made up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dprl
from dprl.policies.rules.rule import Condition, Rule
from dprl.policies.rules.tree import picture_of, tree_of

NAMES, ACTIONS = ("pressure", "lactate", "ward"), ("fluids", "wait", "pressors")
LEVELS = (None, None, ("HDU", "ICU", "ward"))
ON_WARD = Condition("ward", "in", labels=("ward",)), Condition("ward", "not in", labels=("ward",))
LOW, HIGH = (Condition("pressure", kind, 62.0) for kind in ("at most", "above"))


def made(rules):
    return dprl.RulePolicy(
        states=(), actions=ACTIONS, parameters={}, provenance={}, feature_names=NAMES,
        rules=tuple(rules), levels=LEVELS,
    )  # fmt: skip


def answer(policy, node, row):
    """What the tree says in a state; a value that answers neither way defers."""
    while node.question is not None:
        x = dict(zip(NAMES, row, strict=True))[node.question.feature]
        missing = x is None or x != x
        if node.question.kind == "missing":
            node = node.yes if missing else node.no
        elif missing:
            return dprl.DEFER
        elif node.question.kind == "at most":
            node = node.yes if x <= node.question.value else node.no
        else:
            node = node.yes if x in node.question.labels else node.no
    rule = None if node.rule < 0 else policy.rules[node.rule]
    return dprl.DEFER if rule is None or rule.silent else rule.suggested


@st.composite
def leaves(draw, path=(), depth=3):
    """Rules in some of the leaves of a tree, in any order of their conditions."""
    if depth and draw(st.booleans()):
        kind = draw(st.sampled_from(["number", "labels", "missing"]))
        asked = {c.feature for c in path}
        if kind == "labels" and "ward" not in asked:
            sides = ON_WARD
        elif kind == "missing" and not asked & {"lactate"}:
            sides = Condition("lactate", "missing"), Condition("lactate", "known")
        else:
            cut = draw(st.floats(0, 100))
            sides = tuple(Condition("pressure", kind, cut) for kind in ("at most", "above"))
        both = []
        for side in sides:
            both += draw(leaves((*path, side), depth - 1))
        return both
    if not draw(st.booleans()):
        return []
    try:
        return [Rule(path, draw(st.sampled_from(ACTIONS)), silent=draw(st.booleans()))]
    except dprl.PolicyError:  # no state is there
        return []


ROWS = st.tuples(
    st.one_of(st.just(np.nan), st.floats(-10, 110)),
    st.sampled_from([np.nan, 1.0]),
    st.sampled_from([None, "HDU", "ICU", "ward"]),
)


@given(leaves(), st.lists(ROWS, min_size=1, max_size=20), st.randoms())
def test_the_tree_says_what_the_rules_say(rules, rows, random):
    random.shuffle(rules)
    try:
        policy = made(rules)
    except dprl.PolicyError:  # two empty conditions say the same
        return
    tree = tree_of(policy)
    assert tree is not None
    states = [dict(zip(NAMES, row, strict=True)) for row in rows]
    assert [answer(policy, tree, row) for row in rows] == [policy.act(s) for s in states]
    picture = picture_of(policy)
    assert len(picture.boxes) == 2 * picture.rows - 1
    assert len(picture.edges) == len(picture.boxes) - 1


def test_rules_that_overlap_are_no_tree():
    lactate = Condition("lactate", "above", 2.0)
    assert tree_of(made([Rule((LOW,), "fluids"), Rule((lactate,), "wait")])) is None
    assert tree_of(made([Rule((LOW,), "fluids"), Rule((), "wait")])) is None


def test_a_picture_marks_what_defers():
    facts = {"advantage": 0.5, "low": 0.25, "high": 0.75}
    rules = [Rule((LOW, ON_WARD[0]), "fluids", facts), Rule((HIGH,), "wait", facts, silent=True)]
    boxes = {box["words"]: box for box in picture_of(made(rules)).boxes}
    assert boxes["pressure at most 62?"]["colour"] is None
    assert boxes["DEFER"]["colour"] == boxes["2. DEFER (not approved)"]["colour"] == -1
    leaf = boxes["1. fluids: +0.5 over doing otherwise"]
    assert leaf["colour"] == 0
    assert leaf["lines"] == ("1. fluids", "+0.5 (+0.25 to +0.75)")
    assert picture_of(made(rules)).words.startswith("pressure at most 62? Yes: ward is ward? Yes: ")


def test_long_words_are_cut_and_kept_whole_beside():
    name = "a_feature_with_a_name_that_never_ends " * 6
    policy = dprl.RulePolicy(
        states=(), actions=ACTIONS, parameters={}, provenance={}, feature_names=(name,),
        rules=(Rule((Condition(name, "above", 1.0),), "fluids"),),
    )  # fmt: skip
    (question,) = [b for b in picture_of(policy).boxes if b["colour"] is None]
    assert len(question["lines"]) <= 3
    assert max(map(len, question["lines"])) <= 24
    assert name in question["words"]


def test_draw_draws_the_tree():
    pytest.importorskip("matplotlib")
    odd = dprl.RulePolicy(
        states=(), actions=("$x_{", "b"), parameters={}, provenance={}, feature_names=("$y_{",),
        rules=(Rule((Condition("$y_{", "above", 1.0),), "$x_{"),),
    )  # fmt: skip
    axis = odd.draw()
    axis.figure.canvas.draw()
    texts = [text.get_text() for text in axis.texts]
    assert {"$y_{ at most 1?", "1. $x_{", "DEFER"} <= set(texts)
    assert odd.draw(axis) is axis
