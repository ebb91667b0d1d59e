"""Regions: few, true, apart, told by few ranges, and always the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dprl.errors import PolicyError
from dprl.planning.tree import best_tree
from dprl.policies.regions import (
    DEPTH,
    FEATURES,
    LEAST,
    REGIONS,
    SEARCHED,
    TRUE,
    Range,
    Region,
    _Grid,
    group,
    read_layers,
)

NAMES = ("x", "y", "z")


def cloud(seed, n=400, whole=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(scale=3.0, size=(n, 3))
    return np.round(x) if whole else x


def changes_of(x, seed):
    """Some changes: a box, a stripe, and a few steps anywhere."""
    rng = np.random.default_rng(seed)
    box = (np.abs(x[:, 0]) < 2) & (x[:, 1] > 0.5)
    made = [("a", "b") if inside else None for inside in box]
    for i in np.flatnonzero(x[:, 2] > 4):
        made[i] = ("c", "b")
    for i in rng.choice(len(x), 7, replace=False):
        made[i] = ("a", "c")
    return made


@pytest.mark.slow
@given(st.integers(0, 200), st.booleans())
def test_regions_are_few_true_and_apart(seed, whole):
    x = cloud(seed, whole=whole)
    made = changes_of(x, seed)
    groups = group(x, NAMES, made)
    assert len(groups) <= REGIONS
    held = np.array([g.region.holds(x, NAMES) for g in groups]).reshape(len(groups), len(x))
    assert (held.sum(axis=0) <= 1).all()  # no step is in two of them
    changed = sum(c is not None for c in made)
    for g, inside in zip(groups, held, strict=True):
        mine = np.array([c == (g.region.usual, g.region.suggested) for c in made])
        assert g.inside.tolist() == np.flatnonzero(inside).tolist()
        assert g.rows.tolist() == np.flatnonzero(inside & mine).tolist()
        assert g.purity == (inside & mine).sum() / inside.sum() >= TRUE
        assert len(g.rows) >= min(LEAST, mine.sum())
        assert len(g.region.ranges) <= FEATURES + 1
        assert all(r.low < r.high for r in g.region.ranges)
    # The box is there, and it is told, whatever lies about: most changed steps are in a region.
    assert sum(len(g.rows) for g in groups) > changed / 2


@pytest.mark.parametrize("seed", range(4))
def test_changes_without_a_pattern_are_in_no_region(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(6000, 12))
    made = [("a", "b") if u < 0.3 else ("b", "c") if u < 0.4 else None for u in rng.random(6000)]
    assert group(x, [f"x{j}" for j in range(12)], made) == []


def test_a_region_that_is_half_true_is_none():
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 10, size=(5000, 3))
    inside, coin = x[:, 1] >= 6, rng.random(5000)
    for share, count in ((0.55, 0), (0.8, 1)):
        made = [("a", "b") if b and u < share else None for b, u in zip(inside, coin, strict=True)]
        groups = group(x, NAMES, made)
        assert len(groups) == count
        for g in groups:
            assert g.purity == pytest.approx(share, abs=0.03)
            assert {r.feature for r in g.region.ranges} == {"y"}


@pytest.mark.slow
def test_a_place_among_many_features_is_told_by_its_own():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(12_000, 29))
    box = (x[:, 3] > 1) & (x[:, 17] < 0)
    other = (x[:, 3] < -1) & (x[:, 20] > 0.5)
    made = [("a", "b") if i else ("c", "d") if j else None for i, j in zip(box, other, strict=True)]
    groups = group(x, [f"x{j}" for j in range(29)], made)
    assert sum(len(g.rows) for g in groups) > 0.95 * (box.sum() + other.sum())
    assert len(groups) <= 4
    assert all(g.purity > 0.95 for g in groups)
    for g in groups:
        features = {"x3", "x17"} if g.region.suggested == "b" else {"x3", "x20"}
        assert features <= {r.feature for r in g.region.ranges}


def test_the_work_does_not_grow_with_the_log(monkeypatch):
    """However long the log and however many its changes: few trees, each over so many steps."""
    fitted = []

    def counting(bins, psi, took, **settings):
        fitted.append((len(took), psi.shape[1], settings["depth"]))
        return best_tree(bins, psi, took, **settings)

    monkeypatch.setattr("dprl.planning.tree.best_tree", counting)
    rng = np.random.default_rng(2)
    x = rng.normal(size=(30_000, 10))
    made = [("a", k) if k < 40 else None for k in rng.integers(0, 60, 30_000).tolist()]
    group(x, [f"x{j}" for j in range(10)], made)
    assert len(fitted) <= 3 * (1 + 2**DEPTH)
    assert max(steps for steps, _, _ in fitted) <= SEARCHED
    assert max(kinds for _, kinds, _ in fitted) <= REGIONS


@pytest.mark.slow
@settings(max_examples=12)
@given(st.integers(0, 50))
def test_the_order_of_the_steps_leaves_no_trace(seed):
    x = cloud(seed)
    made = changes_of(x, seed)
    order = np.random.default_rng(seed).permutation(len(x))
    one, two = group(x, NAMES, made), group(x[order], NAMES, [made[i] for i in order])
    assert {(g.region, g.purity, len(g.rows)) for g in one} == {
        (g.region, g.purity, len(g.rows)) for g in two
    }


def test_a_box_is_told_by_its_own_edges():
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 10, size=(4000, 3))
    box = (x[:, 0] >= 2) & (x[:, 0] < 5) & (x[:, 2] >= 7)
    (g,) = group(x, NAMES, [("a", "b") if b else None for b in box])
    assert g.purity > 0.95
    ends = {r.feature: (r.low, r.high) for r in g.region.ranges}
    assert set(ends) == {"x", "z"}
    np.testing.assert_allclose(ends["x"], (2, 5), atol=0.05)
    assert ends["z"][0] == pytest.approx(7, abs=0.05)


def test_two_places_of_one_change_become_two_regions():
    rng = np.random.default_rng(4)
    x = rng.uniform(0, 10, size=(3000, 1))
    both = (x[:, 0] < 2) | (x[:, 0] >= 8)
    found = group(x, ["x"], [("a", "b") if b else None for b in both])
    ends = sorted((g.region.ranges[0].low, g.region.ranges[0].high) for g in found)
    assert len(ends) == 2
    np.testing.assert_allclose(ends, [(0, 2), (8, 10)], atol=0.05)
    assert all(g.purity == 1 for g in found)


def test_edges_finer_than_the_round_numbers_stay_apart(monkeypatch):
    monkeypatch.setattr("dprl.policies.regions._Grid.of", lambda column: _Grid(-1, False))  # tens
    rng = np.random.default_rng(6)
    near = np.concatenate([rng.uniform(1, 1.5, 40), rng.uniform(3, 3.5, 40)])
    others = rng.uniform(2, 2.5, 200)
    x = np.concatenate([near, others])[:, None]
    found = group(x, ["x"], [("a", "b")] * 80 + [None] * len(others))
    held = np.array([g.region.holds(x, ["x"]) for g in found])
    assert len(found) > 1
    assert (held.sum(axis=0)[:80] == 1).all()
    assert held.sum(axis=0).max() == 1


def test_a_few_steps_far_out_do_not_make_the_edges_coarse():
    rng = np.random.default_rng(6)
    near = np.concatenate([rng.uniform(1, 1.5, 40), rng.uniform(3, 3.5, 40)])
    others = np.concatenate([rng.uniform(2, 2.5, 200), [-1000.1, 1000.1]])
    x = np.concatenate([near, others])[:, None]
    found = group(x, ["x"], [("a", "b")] * 80 + [None] * len(others))
    assert [g.purity for g in found] == [1, 1]


def test_whole_numbers_get_whole_edges():
    x = np.array([[v, w] for v in range(10) for w in range(10)] * 3, float)
    made = [("a", "b") if v == 3 and w >= 2 else None for v, w in x]
    (g,) = group(x, ["v", "w"], made)
    assert {r[0]: r[1:] for r in g.region.ranges} == {"v": (3.0, 4.0), "w": (2.0, 10.0)}


def test_a_rare_change_is_told_where_all_of_it_is_in_one_place():
    x = np.array([[v, w] for v in range(10) for w in range(10)], float)
    alone = [("a", "b") if v == 9 and w >= 4 else None for v, w in x]
    (g,) = group(x, ["v", "w"], alone)
    assert len(g.rows) == 6 < LEAST
    two = [("a", "b") if v == 3 and w in (2, 7) else None for v, w in x]
    assert group(x, ["v", "w"], two) == []


def test_features_that_may_not_be_used_are_not():
    x = cloud(1)
    made = [("a", "b") if v > 1 else None for v in x[:, 0]]
    found = group(x, NAMES, made, usable=[1, 2])
    assert {r.feature for g in found for r in g.region.ranges} <= {"y", "z"}


def test_a_change_everywhere_needs_no_range():
    (g,) = group(cloud(2), NAMES, [("a", "b")] * 400)
    assert g.region.ranges == ()
    assert g.purity == 1


def test_edges_are_half_open():
    region = Region("a", "b", (Range("y", 1.0, 2.0),))
    x = np.array([[0, 1.0], [0, 2.0], [0, np.nextafter(2.0, 0)], [0, np.nan]])
    assert region.holds(x, ("x", "y")).tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    "given",
    [
        "x", 3, [3], [[3]], [[{"usual": "a", "suggested": "b"}]],
        [[{"usual": "a", "suggested": "nobody", "ranges": []}]],
        [[{"usual": ["a"], "suggested": "b", "ranges": []}]],
        [[{"usual": "a", "suggested": "b", "ranges": [["x", 1.0, 1.0]]}]],
        [[{"usual": "a", "suggested": "b", "ranges": [["x", float("nan"), 1.0]]}]],
        [[{"usual": "a", "suggested": "b", "ranges": [["no", 0.0, 1.0]]}]],
        [[{"usual": "a", "suggested": "b", "ranges": [["x", 0, 1], ["x", 0, 1]]}]],
        [[{"usual": "a", "suggested": "b", "ranges": [["x", 0]]}]],
    ],
)  # fmt: skip
def test_odd_regions_are_refused(given):
    with pytest.raises(PolicyError):
        read_layers(given, ["x"], ["a", "b"])
