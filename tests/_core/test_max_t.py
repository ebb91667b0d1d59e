"""Several means at once: levels, steps down, ends."""

from __future__ import annotations

import numpy as np
import pytest

from dprl._core.inference import cluster_parts, max_t


def data(seed, groups=60, K=4, shift=0.0):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), 5)
    common = rng.normal(size=groups)[group]
    values = rng.normal(size=(len(group), K)) + common[:, None] + shift
    parts = [cluster_parts(values[:, k], group, groups) for k in range(K)]
    return np.array([m for m, _ in parts]), np.stack([p for _, p in parts], axis=1)


def test_the_error_is_by_groups():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(50), 4)
    values = rng.normal(size=50)[group]
    mean, parts = cluster_parts(values, group, 50)
    assert mean == pytest.approx(values.mean())
    assert np.sqrt((parts**2).sum()) == pytest.approx(values[::4].std(ddof=1) / np.sqrt(50))


def test_adjusted_p_values_step_down_and_never_decrease():
    mean, parts = data(1, shift=np.array([0.5, 0.3, 0.0, -0.2]))
    test = max_t(mean, parts, level=0.05)
    order = np.argsort(-test.t)
    assert (np.diff(test.p[order]) >= 0).all()
    alone = [max_t(mean[[k]], parts[:, [k]], level=0.05).p[0] for k in range(4)]
    assert (test.p >= np.array(alone) - 1e-12).all()
    assert test.p[order[-1]] == pytest.approx(max(alone[order[-1]], test.p[order[-2]]), abs=0.02)


def test_one_false_claim_in_twenty():
    rejected = sum(
        (max_t(*data(seed), level=0.05, draws=499).p <= 0.05).any() for seed in range(400)
    )
    assert 6 <= rejected <= 36  # 20 expected; four standard errors


def test_lower_ends_agree_with_the_test():
    mean, parts = data(2, shift=np.array([0.8, 0.0, 0.0, 0.0]))
    test = max_t(mean, parts, level=0.05)
    assert ((test.low > 0) <= (test.p <= 0.05)).all()
    assert (test.low < test.mean).all()
    assert (test.high > test.mean).all()


def test_a_mean_that_does_not_vary_claims_nothing():
    mean, parts = data(3)
    parts[:, 1] = 0.0
    test = max_t(mean, parts, level=0.05)
    assert test.p[1] == 1.0
    assert test.low[1] == -np.inf


def test_the_seed_decides_everything():
    mean, parts = data(4)
    one, two = (max_t(mean, parts, level=0.05, seed=7) for _ in range(2))
    assert (one.p == two.p).all()


def test_draws_in_parts_are_the_same_draws(monkeypatch):
    mean, parts = data(3)
    whole = max_t(mean, parts, level=0.05, draws=499)
    monkeypatch.setattr("dprl._core.inference.SOME", 100)
    some = max_t(mean, parts, level=0.05, draws=499)
    assert whole.p.tolist() == some.p.tolist()
    np.testing.assert_allclose(whole.low, some.low, rtol=1e-12)


@pytest.mark.parametrize("groups", [20, 50])
def test_with_few_groups_p_values_have_the_tails_of_students_t(groups):
    """Signs alone have lighter tails: at t = 3 and 50 groups half of what they should be."""
    from scipy.stats import t as student

    rng = np.random.default_rng(5)
    p = []
    for draw in range(40):
        values = rng.normal(size=groups)
        values += 3 * values.std(ddof=1) / np.sqrt(groups) - values.mean()
        mean, parts = cluster_parts(values, np.arange(groups), groups)
        p.append(max_t(np.array([mean]), parts[:, None], level=0.05, seed=draw).p[0])
    assert 0.9 <= np.mean(p) / student.sf(3, groups - 1) <= 1.4
