"""Intervals of a difference: against a slow reading, and against what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

import dprl
from conftest import to_log
from dprl._core.inference import contrast, contrast_of, newcombe, welch
from dprl_studies.paper import contrasts
from helpers.judging import by_moments

SIDE = st.one_of(
    st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=12),
    st.lists(st.sampled_from([-2.0, 3.5]), min_size=1, max_size=12),
    st.lists(st.floats(-100, 100), min_size=1, max_size=12),
)


def close(ends, wanted, size):
    for end, value in zip(ends, wanted, strict=True):
        if value is None:
            assert math.isnan(end)
        else:
            assert end == pytest.approx(value, rel=1e-6, abs=1e-7 * size)


@given(SIDE, SIDE)
def test_it_is_what_a_slow_reading_says(x, y):
    size = max(map(abs, [*x, *y, 1e-300]))
    every = np.array([*x, *y])
    place = (every - every.min()) / (np.ptp(every) or 1)
    near = (np.minimum(place, 1 - place) < 1e-6) & (every != every.min()) & (every != every.max())
    if near.any() or (np.ptp([*x, *y]) < 1e-5 * size and np.ptp([*x, *y])):
        return  # as good as two values, or the slow reading has no digits left
    both = np.array(x), np.array(y)
    close(by_moments(*both), reference.contrast(x, y), size)
    close(contrast_of(*both), reference.near(x, y), size)


@given(SIDE, SIDE, st.floats(-250, 250).map(lambda e: 10.0**e))
def test_it_scales_and_turns_with_the_returns(x, y, scale):
    x, y = np.round(x, 3), np.round(y, 3)
    if (np.abs(np.concatenate([x, y])) * scale > 1e300).any():
        return
    one, two = contrast_of(x, y), contrast_of(scale * x, scale * y)
    np.testing.assert_allclose(two, scale * np.array(one), rtol=1e-6, atol=1e-6 * scale)
    turned = contrast_of(y, x)
    np.testing.assert_allclose(turned, [-one[1], -one[0]], rtol=1e-9, atol=1e-12)


def test_ten_of_ten_is_not_sure():
    """10 of 10 against 370 of 500: luck is not shown as certain, nor first in the list."""
    x, y = np.ones(10), np.repeat([1.0, 0.0], [370, 130])
    low, high = contrast_of(x, y)
    assert low < 0 < high
    plain = welch(10, 1.0, 0.0, 500, 0.74, float(np.std(y, ddof=1)))
    assert plain[0] > 0.2  # what was printed before
    lucky = [[("lucky", "new", 1.0)]] * 10 + [[("lucky", "old", v)] for v in y]
    solid = [[("solid", "new", float(i % 10 < 8))] for i in range(300)]
    solid += [[("solid", "old", float(i % 10 < 6))] for i in range(900)]
    policy = dprl.DPRLDiscrete(n_min=10, gamma=1.0).fit(to_log([*lucky, *solid]))
    rows = list(policy.changes())
    assert [row["state"] for row in rows] == ["solid", "lucky"]
    assert rows[1]["advantage"] > rows[0]["advantage"]
    assert rows[1]["low"] < 0 < rows[0]["low"]


SKEWED = {
    "lognormal": (lambda rng, n: -rng.lognormal(0.0, 1.0, n), 0.9),
    "rare": (lambda rng, n: (rng.random(n) < 0.03) * -(1 + rng.random(n)), 1.0),
    "normal": (lambda rng, n: rng.normal(size=n), 0.9),
}


@pytest.mark.parametrize("name", SKEWED)
@pytest.mark.parametrize("n", [15, 150])
def test_a_range_does_not_make_it_several_times_too_wide(name, n):
    """A tail makes the range long: the interval is nearer to the spread, and holds the truth."""
    draw, most = SKEWED[name]
    rng, held, widths = np.random.default_rng(n), 0, []
    for _ in range(300):
        x, y = draw(rng, n), draw(rng, 600)
        low, high = contrast_of(x, y)
        before = by_moments(x, y)
        held += bool(low <= 0 <= high)  # no interval holds nothing
        widths.append((high - low) / (before[1] - before[0]))
    assert held >= 0.93 * 300
    assert np.median(widths) <= (most if n == 15 else 1.0)


def test_known_values():
    """Newcombe's own example, 56 of 70 against 48 of 80 (method 11)."""
    low, high = newcombe(70, 56 / 70, 80, 48 / 80)
    assert (low, high) == pytest.approx((0.0428, 0.3422), abs=5e-5)


def test_where_there_is_none():
    assert all(map(math.isnan, contrast_of(np.ones(5), np.ones(9))))  # all equal
    assert all(map(math.isnan, contrast_of(np.ones(0), np.ones(9))))
    assert all(map(math.isnan, contrast_of(np.array([2.0]), np.array([0.0, 1.0, 3.0]))))
    no_range = contrast([5, 5], [1.0, 1.0], [0.5, 0.0], 9, 0.0, 1.0, np.nan, np.nan)
    np.testing.assert_allclose(no_range[0][0], welch(5, 1.0, 0.5, 9, 0.0, 1.0)[0])
    assert np.isnan(no_range[0][1])  # no spread seen, no range known


@pytest.mark.parametrize(
    "setting",
    [s for s in contrasts.settings(False, 7) if s["others"] != contrasts.OTHERS[3]],
    ids=lambda s: f"{s['returns']}-{s['others']}-{s['n']}",
)
def test_coverage_in_every_cell(setting):
    ours, plain = contrasts.run({**setting, "draws": 4_000})
    assert ours["coverage"] >= contrasts.WANTED
    if setting["returns"] == "success .99" and setting["others"] == "500":
        assert plain["coverage"] < 0.6  # what a t interval promises here
