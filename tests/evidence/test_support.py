"""Regions in which hardly anybody was given an action."""

from __future__ import annotations

import numpy as np
import pytest

from dprl.evidence.support import GONE, NUMBER, Side, columns, hardly, inside, without


def found(log_x, taken, sums=True, levels=()):
    Z, of = columns(log_x, levels)
    own = [j for j, (_, what) in enumerate(of) if what == NUMBER and sums]
    return Z, of, without(Z, np.array(own, np.int64), taken, float(taken.mean()), 0)


BORDERS = {
    "a feature": lambda x: x[:, 0] > 1.4,
    "a corner": lambda x: (x[:, 0] > 0.6) & (x[:, 1] > 0.6),
    "a sum": lambda x: x[:, 0] + x[:, 1] + x[:, 2] > 2.6,
    "two of six": lambda x: x[:, 1] - 0.5 * x[:, 4] > 1.65,
}


@pytest.mark.parametrize("slope", [0.0, 1.2])
@pytest.mark.parametrize("border", BORDERS)
def test_an_empty_region_is_found_whatever_its_border(border, slope):
    """Also where few are treated elsewhere, because treatment goes with one feature."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1_000, 6))
    empty = BORDERS[border](x)
    taken = rng.random(1_000) < np.where(empty, 0.005, 1 / (1 + np.exp(-slope * x[:, 5])))
    _, _, regions = found(x, taken)
    new = rng.normal(size=(20_000, 6))
    here, bare = BORDERS[border](new), np.zeros(20_000, bool)
    for region in regions:
        bare |= inside(region, new)
    assert (bare & here).sum() > 0.75 * here.sum()
    assert slope or (bare & ~here).mean() < 0.05
    first = inside(regions[0], new)  # it surprises most
    assert (first & here).sum() > 0.6 * max(first.sum(), here.sum())


def test_where_many_are_treated_nothing_is_empty():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2_000, 4))
    for chance in (0.5, 0.25):
        assert found(x, rng.random(2_000) < chance)[2] == []
    Z, _, regions = found(x, rng.random(2_000) < 1 / (1 + np.exp(-x[:, 0] / 2)))
    assert sum(inside(region, Z).mean() for region in regions) < 0.03  # tails that few took


def test_nobody_at_all_is_everywhere():
    x = np.random.default_rng(0).normal(size=(50, 2))
    assert found(x, np.zeros(50, bool))[2] == [()]
    assert not hardly(0, 5, 0.5)  # too few to tell
    assert hardly(0, 40, 0.5)
    assert not hardly(6, 40, 0.5)


def test_gaps_and_labels_are_columns():
    x = np.array([[1.0, 0.0], [np.nan, 1.0], [3.0, np.nan]])
    Z, of = columns(x, (None, ("a", "b")))
    assert of == [(0, NUMBER), (0, GONE), (1, 0), (1, 1), (1, GONE)]
    assert Z.tolist() == [[1, 0, 1, 0, 0], [2, 1, 0, 1, 0], [3, 0, 0, 0, 1]]
    ward = np.random.default_rng(1).integers(0, 3, 600).astype(float)
    taken = np.random.default_rng(2).random(600) < np.where(ward == 1, 0.0, 0.5)
    Z, of, regions = found(ward[:, None], taken, levels=(("x", "y", "z"),))
    assert [of[side.terms[0][0]] for (side,) in regions] == [(0, 1)]
    assert regions[0][0].above


def test_a_side_is_one_or_the_other():
    Z = np.array([[1.0, 2.0], [3.0, -1.0]])
    side = Side(((0, 1.0), (1, 0.5)), 2.0, True)
    assert side.of(Z).tolist() == [2.0, 2.5]
    assert side.holds(Z).tolist() == [False, True]
    assert Side(side.terms, 2.0, False).holds(Z).tolist() == [True, False]
