"""What an unrecorded cause could do to a mean, against linear programs and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from dprl._core.inference import (
    GAMMAS,
    MOST,
    breakdown,
    breakdown_of_moments,
    gamma_words,
    lowest_mean,
    threshold,
    worst_case,
)


@pytest.mark.parametrize("gamma", [1.0, 1.3, 2.0, 7.0])
def test_the_lowest_mean_is_the_optimum_of_the_linear_program(gamma):
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=41), rng.random(41)
    share = weight / weight.sum()
    program = linprog(x * share, A_eq=[share], b_eq=[1], bounds=[(1 / gamma, gamma)] * 41)
    assert lowest_mean(x, gamma, weight) == pytest.approx(program.fun, abs=1e-9)


def test_every_threshold_gives_a_lower_bound_and_the_quantile_the_best():
    x = np.random.default_rng(1).exponential(size=500)
    for gamma in (1.2, 3.0):
        bounds = [worst_case(x, theta, gamma).mean() for theta in np.linspace(-1, 5, 61)]
        assert max(bounds) <= lowest_mean(x, gamma) + 1e-12
        share = (x <= threshold(x, gamma)).mean()
        assert share == pytest.approx(1 / (1 + gamma), abs=0.01)


def test_the_worst_case_is_the_formula_and_moves_one_way():
    x, theta = np.linspace(-1, 2, 31), 0.4
    for g in (1.5, 4.0):
        formula = x / g + (1 - 1 / g) * (theta - (1 + g) * np.maximum(theta - x, 0))
        np.testing.assert_allclose(worst_case(x, theta, g), formula, atol=1e-12)
        assert (np.diff(worst_case(x, theta, g)) > 0).all()
        assert (worst_case(x, theta, g) <= worst_case(x, theta, 1.1) + 1e-12).all()
    assert (worst_case(x, theta, 1.0) == x).all()


@pytest.mark.parametrize(("takers", "others"), [(0.6, 0.5), (0.9, 0.8), (0.2, 0.1)])
def test_two_valued_outcomes_have_the_closed_form(takers, others):
    x = np.repeat([1.0, 0.0], [int(1000 * takers), 1000 - int(1000 * takers)])
    closed = max(takers / others, (1 - others) / (1 - takers))
    assert breakdown(x, others) == pytest.approx(closed, rel=1e-6)
    sd = x.std(ddof=1)
    assert breakdown_of_moments(takers, sd, others, 0, 1) == pytest.approx(closed, rel=1e-9)
    moved = breakdown_of_moments(5 * takers - 2, 5 * sd, 5 * others - 2, -2, 3)
    assert moved == pytest.approx(closed, rel=1e-9)


def test_moments_never_say_more_than_the_outcomes_do():
    rng = np.random.default_rng(2)
    for shape in (rng.normal, rng.exponential, rng.uniform):
        x = shape(size=300)
        for usual in x.mean() - np.array([0.05, 0.3, 1.0]) * x.std():
            least = breakdown_of_moments(x.mean(), x.std(ddof=1), usual, x.min(), x.max())
            assert 1 < least <= breakdown(x, usual) + 1e-9


def test_what_is_not_better_has_gamma_one_and_what_is_unknown_none():
    assert breakdown([0.0, 1.0], 0.5) == 1
    assert breakdown([2.0, 3.0], 1.0) == MOST
    assert breakdown([], 1.0) == 1
    result = breakdown_of_moments([0.4, 1.0, np.nan, 1.0], [0.1, 0, 0.1, np.nan],
                                  [0.5, 0.5, 0.5, np.nan], 0, 1)  # fmt: skip
    np.testing.assert_array_equal(result, [1, MOST, np.nan, np.nan])
    unknown_range = breakdown_of_moments(1.0, 0.5, 0.8, np.nan, np.nan)
    assert unknown_range == pytest.approx(np.exp(2 * np.arcsinh(0.2)))


def test_gammas_are_fixed_and_words_round_down():
    assert GAMMAS[0] == 1
    assert GAMMAS[-1] == MOST
    assert (np.diff(GAMMAS) > 0).all()
    assert (GAMMAS[1:] / GAMMAS[:-1] <= 1.0200001).all()
    assert gamma_words(1.2899) == "1.28"
    assert gamma_words(MOST) == "20 or more"
