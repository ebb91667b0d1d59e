"""Estimates: unbiased by enumeration of a small world, and against slow code."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from small_world import DEFERRING, MIXED, columns, small_world, target, trajectories

from dprl.evaluation.bootstrap import Bootstrap
from dprl.evaluation.estimators import ESTIMATORS, RETURN, _weigh, importance_weights


def expected(mdp, pi, speaks, *, wrong_behavior=False, Q=None):
    """The exact expectation of every estimate: all trajectories, each with its probability."""
    chances, paths = zip(*trajectories(mdp), strict=True)
    starts, s, a, r = columns(paths)
    b = mdp.behavior if not wrong_behavior else np.full_like(mdp.behavior, 0.5)
    ratio = np.where(speaks[s], pi[s, a] / b[s, a], 1.0)
    Q = np.zeros_like(mdp.R) if Q is None else Q
    V = np.where(speaks[s], (pi * Q).sum(axis=1)[s], Q[s, a])
    w = importance_weights(
        starts, np.arange(len(paths), dtype=np.int32), r, mdp.gamma, ratio, speaks[s], Q[s, a], V
    )
    return by_name(Bootstrap(w).estimates(np.array([chances])))


def by_name(estimates, row=0):
    """Name → number, in one draw."""
    return {name: estimates.of(name)[row] for name in estimates.names}


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_is_pdis_and_dr_are_unbiased(gamma):
    mdp = small_world(gamma)
    junk = np.random.default_rng(0).normal(size=mdp.R.shape)
    for pi, speaks in (target(mdp, DEFERRING), (MIXED, np.ones(3, bool))):
        truth = mdp.value(pi)
        found = expected(mdp, pi, speaks, Q=junk)
        for name in ("IS", "PDIS", "DR"):
            assert found[name] == pytest.approx(truth, abs=1e-12), name
        # with probabilities for counts a weighted estimate is its limit, which is right as well
        for name in ("WIS", "WPDIS", "WDR"):
            assert found[name] == pytest.approx(truth, abs=1e-12), name
        assert found[RETURN] == pytest.approx(mdp.value(), abs=1e-12)
        assert abs(found["DM"] - truth) > 0.01  # the model is junk, and shows


def test_dr_is_right_with_either_part_right():
    mdp = small_world()
    for pi, speaks in (target(mdp, DEFERRING), (MIXED, np.ones(3, bool))):
        Q = mdp.action_values(mdp.state_values(pi))
        found = expected(mdp, pi, speaks, wrong_behavior=True, Q=Q)
        assert found["DR"] == pytest.approx(mdp.value(pi), abs=1e-12)
        assert found["DM"] == pytest.approx(mdp.value(pi), abs=1e-12)
        assert abs(found["IS"] - mdp.value(pi)) > 0.01
        both_wrong = expected(mdp, pi, speaks, wrong_behavior=True)
        assert abs(both_wrong["DR"] - mdp.value(pi)) > 0.01


# -- against slow code -------------------------------------------------------------------------


def slowly(paths, ratios, speaks, Q, V, gamma, counts):
    """The seven estimates as they are printed, term by term."""
    n, longest = sum(counts), max(map(len, paths))
    w = [np.cumprod(x) for x in ratios]

    def at(e, t):
        return 1.0 if t < 0 else w[e][min(t, len(paths[e]) - 1)]

    def total(t):
        return sum(c * at(e, t) for e, c in enumerate(counts))

    out = dict.fromkeys((*ESTIMATORS, RETURN), 0.0)
    for e, c in enumerate(counts):
        G = sum(gamma**t * r for t, r in enumerate(paths[e]))
        out[RETURN] += c * G / n
        out["IS"] += c * w[e][-1] * G / n
        out["WIS"] += c * w[e][-1] * G / total(longest)
        first = next((t for t, s in enumerate(speaks[e]) if s), None)
        out["DM"] += c / n * sum(gamma**t * r for t, r in enumerate(paths[e][:first]))
        if first is not None:
            out["DM"] += c / n * gamma**first * V[e][first]
        for t, r in enumerate(paths[e]):
            q, v = Q[e][t], V[e][t] if speaks[e][t] else Q[e][t]
            out["PDIS"] += c / n * gamma**t * at(e, t) * r
            out["WPDIS"] += c * gamma**t * at(e, t) * r / total(t)
            out["DR"] += c / n * gamma**t * (at(e, t) * (r - q) + at(e, t - 1) * v)
            now, before = at(e, t) / total(t), at(e, t - 1) / total(t - 1)
            out["WDR"] += c * gamma**t * (now * (r - q) + before * v)
    return out


def random_problem(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, int(rng.integers(2, 30)))
    starts = np.concatenate(([0], np.cumsum(lengths)))
    N = starts[-1]
    speaks = rng.random(N) < 0.4
    ratio = np.where(speaks, rng.choice([0.0, 0.5, 2.0, 1.3], N, p=[0.1, 0.3, 0.3, 0.3]), 1.0)
    Q = rng.normal(size=N)
    V = np.where(speaks, rng.normal(size=N), Q)
    group = np.sort(rng.integers(0, max(1, len(lengths) // 2), len(lengths)))
    group = np.unique(group, return_inverse=True)[1].astype(np.int32)
    gamma = float(rng.choice([0.5, 0.95, 1.0]))
    return starts, group, rng.normal(size=N), gamma, ratio, speaks, Q, V


@pytest.mark.parametrize("seed", range(12))
def test_estimates_against_their_definitions(seed):
    problem = random_problem(seed)
    starts, group, reward, gamma, ratio, speaks, Q, V = problem
    weighted = importance_weights(*problem)
    rng = np.random.default_rng(seed)
    counts = np.stack([np.ones(group.max() + 1), rng.integers(0, 3, group.max() + 1)])
    counts[1, 0] = 1

    def cut(x):
        return [x[a:b] for a, b in itertools.pairwise(starts)]

    estimates = Bootstrap(weighted).estimates(counts)
    for row, c in enumerate(counts):
        slow = slowly(*map(cut, (reward, ratio, speaks, Q, V)), gamma, c[group].tolist())
        assert by_name(estimates, row) == pytest.approx(slow, rel=1e-10, abs=1e-12)


def test_kernels_are_their_python_source():
    problem = random_problem(5)
    starts, _, reward, gamma, ratio, speaks, Q, V = problem
    fast = importance_weights(*problem)
    w, alone = np.empty_like(reward), np.zeros((len(fast.alone), len(starts) - 1))
    _weigh.py_func(starts, reward, gamma, ratio, speaks, Q, V, w, *alone)
    assert np.allclose(w, fast.w)
    assert np.allclose(alone, list(fast.alone.values()))


def test_finished_trajectories_keep_their_share():
    """One short follower, one long: dropping the finished one would double the long one's tail."""
    starts = np.array([0, 1, 4])
    reward, ratio = np.array([1.0, 0.0, 0.0, 3.0]), np.array([2.0, 2.0, 1.0, 1.0])
    speaks, zero = ratio > 1, np.zeros(4)
    w = importance_weights(
        starts, np.arange(2, dtype=np.int32), reward, 1.0, ratio, speaks, zero, zero
    )
    found = by_name(Bootstrap(w).estimates())
    assert found["WPDIS"] == pytest.approx((1 + 3) / 2)
    assert found["PDIS"] == pytest.approx((2 + 6) / 2)


def test_huge_weights_stay_numbers():
    N = 400
    starts = np.array([0, N, 2 * N])
    ratio = np.full(2 * N, 1e3)
    speaks, x = np.ones(2 * N, bool), np.ones(2 * N)
    w = importance_weights(starts, np.arange(2, dtype=np.int32), x, 0.9, ratio, speaks, x, x)
    assert np.isfinite(Bootstrap(w).estimates().numbers).all()
