"""The rivals against linear programmes, exhaustive search and slow rewrites of their papers."""

from __future__ import annotations

import itertools
import json
import time
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog, minimize
from scipy.special import logsumexp, softmax

import dprl
from conftest import random_episodes, to_log
from dprl.learners.baselines import (
    BC,
    CQL,
    LCB,
    PQI,
    RL,
    SPIBB,
    Mode,
    SoftSPIBB,
    cql,
    soft_spibb,
    spibb,
)
from dprl.planning.finite_mdp import FiniteMDP
from dprl.planning.iteration import best_choices
from dprl.planning.model import Model, estimate

LEARNERS = {
    "rl": lambda gamma: RL(gamma=gamma),
    "spibb": lambda gamma: SPIBB(n_min=3, gamma=gamma),
    "spibb-leq": lambda gamma: SPIBB(n_min=3, gamma=gamma, variant="leq"),
    "soft": lambda gamma: SoftSPIBB(epsilon=0.7, gamma=gamma),
    "soft-exact": lambda gamma: SoftSPIBB(epsilon=0.7, gamma=gamma, step="exact"),
    "soft-published": lambda gamma: SoftSPIBB(epsilon=0.7, gamma=gamma, step="published"),
    "pqi": lambda gamma: PQI(b=0.02, gamma=gamma, r_min=-1.0 if gamma < 1 else 0.0),
    "cql": lambda gamma: CQL(alpha=0.2, gamma=gamma),
    "lcb": lambda gamma: LCB(gamma=gamma, c=0.3),
}
every_learner = pytest.mark.parametrize("name", LEARNERS)


def problem(seed, gamma=0.9, most=5, zeros=0.4):
    """A random MDP with ends, and what twenty-odd episodes in it say."""
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(2, most + 1)), int(rng.integers(2, most))
    P = rng.dirichlet(np.ones(S + 1), S * A)[:, :S]
    P[rng.random(P.shape) < zeros] = 0
    R = rng.normal(size=(S, A))
    truth = FiniteMDP(
        "random", tuple(range(S)), tuple(range(A)), sparse.csr_array(P), R - 1, R + 1,
        np.full(S, 1 / S), rng.dirichlet(np.ones(A), S), gamma,
    )  # fmt: skip
    return truth, estimate(truth.sample(int(rng.integers(5, 40)), seed=seed), gamma, "terminal")


def dense(mdp):
    """P as (S, A, S)."""
    return mdp.P.toarray().reshape(*mdp.R.shape, -1)


def best_by_linear_programme(mdp, pi_b, free, variant):
    """max ∑ d R over discounted occupancies from a uniform start, bound to the behaviour."""
    S, A = mdp.R.shape
    flow = np.repeat(np.eye(S), A, axis=1) - mdp.gamma * mdp.P.toarray().T
    bound = []
    for s, a in zip(*np.nonzero(~free), strict=True):
        row = np.zeros((S, A))
        row[s] = -pi_b[s, a]
        row[s, a] += 1
        bound.append(row.ravel())
    equal, start = [flow], [np.full(S, 1 / S)]
    limits = {}
    if bound and variant == "b":
        equal.append(np.array(bound))
        start.append(np.zeros(len(bound)))
    elif bound:
        limits = {"A_ub": np.array(bound), "b_ub": np.zeros(len(bound))}
    answer = linprog(
        -mdp.R.ravel(), A_eq=np.concatenate(equal), b_eq=np.concatenate(start), **limits
    )
    assert answer.status == 0
    return -answer.fun


# -- SPIBB -----------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["b", "leq"])
@pytest.mark.parametrize("known", [False, True])
def test_spibb_is_the_best_of_its_constraint_set(variant, known):
    moved = 0
    for seed in range(45):
        truth, model = problem(seed, gamma=[0.5, 0.9, 0.99][seed % 3])
        n_min = int(np.random.default_rng(seed).integers(1, 7))
        given = truth.behavior if known else None
        pi = SPIBB(n_min=n_min, gamma=truth.gamma, variant=variant, behavior=given).plan(model)
        pi_b = truth.behavior if known else model.mdp.behavior
        free = model.n >= n_min
        off = (pi - pi_b)[~free]
        assert (np.abs(off) < 1e-12).all() if variant == "b" else (off < 1e-12).all()
        assert pi.sum(axis=1) == pytest.approx(1)
        assert (pi >= 0).all()
        best = best_by_linear_programme(model.mdp, pi_b, free, variant)
        assert model.mdp.state_values(pi).mean() == pytest.approx(best, abs=1e-7)
        moved += not np.allclose(pi, pi_b)
    assert moved > 22


@pytest.mark.parametrize("variant", ["b", "leq"])
def test_spibb_with_n_min_one_is_greedy_and_without_any_free_pair_the_behaviour(variant):
    for seed in range(30):
        truth, model = problem(seed)
        free = SPIBB(n_min=1, gamma=0.9, variant=variant).plan(model)
        greedy = RL(gamma=0.9).plan(model)
        assert model.mdp.state_values(free) == pytest.approx(model.mdp.state_values(greedy))
        bound = SPIBB(n_min=np.inf, gamma=0.9, variant=variant)
        assert np.array_equal(bound.plan(model), model.mdp.behavior)
        bound = SPIBB(n_min=10**9, gamma=0.9, variant=variant, behavior=truth.behavior)
        assert np.array_equal(bound.plan(model), truth.behavior)


def test_spibb_keeps_the_known_mass_of_pairs_never_seen():
    """They are worth 0: "b" must keep them, "leq" drops them for what is worth more."""
    log = to_log([[("s", "x", 1.0)], [("s", "y", 2.0)], [("t", "z", 0.0)]])
    pi_b = np.array([[0.2, 0.3, 0.5], [0.2, 0.3, 0.5]])
    keep = SPIBB(n_min=1, gamma=0.9, behavior=pi_b).fit(log)
    assert keep.pi[0] == pytest.approx([0, 0.5, 0.5])
    drop = SPIBB(n_min=1, gamma=0.9, behavior=pi_b, variant="leq").fit(log)
    assert drop.pi[0] == pytest.approx([0, 1, 0])
    assert keep.pi[1] == pytest.approx(pi_b[1])  # z is worth 0, as are x and y, never seen there


def test_spibb_counts_reach_n_min():
    """As in the paper a pair is free from n_min visits on (the authors' code asks for one more)."""
    log = to_log([[("s", "x", 0.0)]] * 6 + [[("s", "y", 1.0)]] * 3)
    assert SPIBB(n_min=3, gamma=0.9).fit(log).pi[0] == pytest.approx([0, 1])
    assert SPIBB(n_min=4, gamma=0.9).fit(log).pi[0] == pytest.approx([2 / 3, 1 / 3])
    assert SPIBB(n_min=4, gamma=0.9, variant="leq").fit(log).pi[0] == pytest.approx([2 / 3, 1 / 3])
    log = to_log([[("s", "x", 1.0)]] * 6 + [[("s", "y", 0.0)]] * 3)
    assert SPIBB(n_min=4, gamma=0.9).fit(log).pi[0] == pytest.approx([2 / 3, 1 / 3])
    assert SPIBB(n_min=4, gamma=0.9, variant="leq").fit(log).pi[0] == pytest.approx([1, 0])


def test_spibb_without_a_free_action_is_the_behaviour_to_the_bit():
    rng = np.random.default_rng(0)
    pi_b, Q = rng.dirichlet(np.ones(5), 100), rng.normal(size=(100, 5))
    none = np.zeros(Q.shape, bool)
    assert np.array_equal(spibb._cap(pi_b, none)(Q), pi_b)
    assert np.array_equal(spibb.keep_rare(Q, none, pi_b, 0.0), pi_b)


# -- Soft-SPIBB ------------------------------------------------------------------------------


def one_state(seed):
    """Q, π_b, e (1, A) and ε: with ties, pairs never seen, actions never taken."""
    rng = np.random.default_rng(seed)
    A = int(rng.integers(1, 8))
    Q = rng.normal(size=(1, A)) if seed % 2 else rng.integers(-2, 3, (1, A)).astype(float)
    pi_b = rng.dirichlet(np.full(A, 0.5), 1)
    with np.errstate(divide="ignore"):
        e = np.sqrt(6 / rng.integers(0, 6, (1, A)))
    if seed % 7 == 0:
        e[:] = rng.random()
    return Q, pi_b, e, float(rng.choice([0, 0.05, 0.3, 1, 5, 100]))


def gain_by_linear_programme(Q, pi_b, e, epsilon):
    A, seen = Q.size, np.isfinite(e[0])
    cost = np.tile(np.where(seen, e[0], 0), 2)
    up = [(0, None if known else 0) for known in seen]
    down = [(0, p if known else 0) for known, p in zip(seen, pi_b[0], strict=True)]
    answer = linprog(
        np.concatenate([-Q[0], Q[0]]), A_ub=[cost], b_ub=[epsilon],
        A_eq=[np.repeat([1.0, -1.0], A)], b_eq=[0], bounds=up + down,
    )  # fmt: skip
    return -answer.fun


def approximate(Q, pi_b, e, epsilon):
    return soft_spibb._approximate(Q, 0 * Q, pi_b, e, e, epsilon, 2.0, True)


def exact_step(Q, pi_b, e, epsilon):
    return soft_spibb._exact(Q, pi_b, e, e, epsilon)


@pytest.mark.parametrize("states", [120, pytest.param(500, marks=pytest.mark.slow)])
def test_soft_steps_against_a_linear_programme(states):
    between = 0
    for seed in range(states):
        Q, pi_b, e, epsilon = one_state(seed)
        gains = []
        for step in (approximate, exact_step):
            pi = step(Q, pi_b, e, epsilon)
            change = np.abs(pi - pi_b)[0]
            seen = np.isfinite(e[0])
            assert pi.sum() == pytest.approx(1, abs=1e-12)
            assert (pi >= 0).all()
            assert not change[~seen].any()
            assert (change[seen] * e[0, seen]).sum() <= epsilon + 1e-9
            gains.append(((pi - pi_b) * Q).sum())
        assert gains[1] == pytest.approx(gain_by_linear_programme(Q, pi_b, e, epsilon), abs=1e-9)
        assert -1e-12 <= gains[0] <= gains[1] + 1e-12
        between += gains[0] < gains[1] - 1e-6
    assert between > states / 25


def test_soft_steps_compiled_and_not(monkeypatch):
    rows = [one_state(seed) for seed in range(60)]
    fast = [f(*row) for row in rows for f in (approximate, exact_step)]
    slow = [approximate, exact_step]
    monkeypatch.setattr(soft_spibb, "_approximate", soft_spibb._approximate.py_func)
    monkeypatch.setattr(soft_spibb, "_exact", soft_spibb._exact.py_func)
    monkeypatch.setattr(soft_spibb, "_next_offer", soft_spibb._next_offer.py_func)
    with np.errstate(invalid="ignore"):
        again = [f(*row) for row in rows for f in slow]
    for a, b in zip(fast, again, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_soft_spibb_lies_between_the_behaviour_and_the_exact_step():
    """Of the exact step nothing better is permitted in any state; of neither is anything worse."""
    moved = 0
    for seed in range(60):
        truth, model = problem(seed)
        e = soft_spibb.doubt(model, 0.1)
        for known, epsilon in itertools.product([False, True], [0.5, 2.0]):
            given = truth.behavior if known else None
            pi_b = truth.behavior if known else model.mdp.behavior
            values = [model.mdp.state_values(pi_b)]
            for step in ("approximate", "exact"):
                learner = SoftSPIBB(
                    epsilon=epsilon, delta=0.1, gamma=0.9, step=step, behavior=given
                )
                pi = learner.plan(model)
                change = np.abs(pi - pi_b)
                assert not change[~model.seen].any()
                assert (np.where(model.seen, e, 0) * change).sum(axis=1).max() <= epsilon + 1e-9
                values.append(model.mdp.state_values(pi))
                moved += bool(change.any())
            assert (values[1] >= values[0] - 1e-9).all()
            assert (values[2] >= values[1] - 1e-9).all()
            Q = model.mdp.action_values(values[2])
            again = exact_step(Q, pi_b, e, epsilon)
            assert ((again - pi) * Q).sum(axis=1).max() <= 1e-9  # a fixed point of the best step
    assert moved > 100


@pytest.mark.parametrize("step", ["approximate", "exact"])
def test_soft_spibb_without_a_budget_is_the_behaviour_and_with_a_large_one_greedy(step):
    for seed in range(20):
        _, model = problem(seed)
        pi = SoftSPIBB(epsilon=0, gamma=0.9, step=step).plan(model)
        assert np.array_equal(pi, model.mdp.behavior)
    pi = SoftSPIBB(epsilon=1e6, gamma=0.9, step="exact").plan(model)
    greedy = RL(gamma=0.9).plan(model)
    assert model.mdp.state_values(pi) == pytest.approx(model.mdp.state_values(greedy))


def test_doubt_is_the_papers():
    _, model = problem(0)
    e = soft_spibb.doubt(model, 0.1)
    n = model.n.max()
    s, a = np.argwhere(model.n == n)[0]
    assert e[s, a] == pytest.approx(np.sqrt(2 * np.log(2 * model.n.size / 0.1) / n))
    assert np.isinf(e[model.n == 0]).all()


# -- LCB and the usual action ------------------------------------------------------------------


@pytest.mark.thin(1)
@pytest.mark.parametrize("c", [0.0, 0.05, 0.3, 2.0])
@pytest.mark.parametrize("gamma", [0.6, 0.9])
def test_lcb_is_the_fixed_point_of_pessimistic_value_iteration(gamma, c):
    gave_up = 0
    for seed in range(12):
        _, model = problem(seed, gamma=gamma, zeros=0.0)
        mdp, n = model.mdp, model.n
        V = mdp.state_values()[model.visited]
        scale, floor = max(np.ptp(V), abs(V).max()), min(0.0, V.min())
        penalty = c * scale * np.sqrt(np.log(2 * n.size / 0.05) / (2 * np.maximum(n, 1)))
        V = np.full(len(n), floor)
        for _ in range(3_000):  # rising: it begins with the least there can be
            ahead = gamma * (mdp.P @ V).reshape(n.shape)
            Q = np.where(n > 0, mdp.R - penalty + ahead, -np.inf)
            V = np.maximum(Q.max(axis=1), floor)
        pi = LCB(gamma=gamma, c=c).plan(model)
        for s in np.flatnonzero(model.visited):
            (a,) = np.flatnonzero(pi[s])
            if Q[s].max() > floor + 1e-9:
                assert Q[s, a] == pytest.approx(Q[s].max(), abs=1e-7)
            else:
                gave_up += 1
                assert a == n[s].argmax()
    assert gave_up > 0 or c < 2


def test_lcb_without_a_penalty_is_greedy_and_with_a_large_one_does_the_usual():
    log = dprl.envs.risky_arms().sample(1_000, seed=3)
    model = estimate(log, 1.0)
    assert np.array_equal(LCB(gamma=1.0, c=0.0).plan(model), RL(gamma=1.0).plan(model))
    assert np.array_equal(LCB(gamma=1.0, c=1e6).plan(model), Mode().plan(model))


def test_the_usual_action_is_the_first_of_equals():
    log = to_log([[("s", "b", 0.0)], [("s", "a", 0.0)], [("t", "b", 1.0)], [("t", "b", 1.0)]])
    assert Mode().fit(log).act(["s", "t"]) == ["a", "b"]


# -- PQI -------------------------------------------------------------------------------------


def pessimistic_values(model, b, gamma, floor):
    """Value iteration written out, slowly."""
    P, R, n = dense(model.mdp), model.mdp.R, model.n
    S, A = n.shape
    supported = [[a for a in range(A) if n[s, a] / n.sum() >= b] for s in range(S)]
    V = [0.0] * S
    for _ in range(2_000):
        Q = [[R[s, a] + gamma * sum(P[s, a] * V) for a in range(A)] for s in range(S)]
        new = [max(Q[s][a] for a in supported[s]) if supported[s] else floor for s in range(S)]
        if max(abs(x - y) for x, y in zip(new, V, strict=True)) < 1e-13:
            break
        V = new
    return np.array(V), np.array(Q), supported


@pytest.mark.parametrize("seed", range(30))
def test_pqi_against_value_iteration(seed):
    _, model = problem(seed, gamma=0.8)
    share = float(np.random.default_rng(seed).choice([0.01, 0.05, 0.15]))
    learner = PQI(b=share, gamma=0.8, r_min=-3.0)
    V, Q, supported = pessimistic_values(model, share, 0.8, -15.0)
    pi = learner.plan(model)
    for s, actions in enumerate(supported):
        if actions:
            best = max(actions, key=lambda a: Q[s, a])
            assert pi[s].tolist() == np.eye(len(pi[s]))[best].tolist()
        else:
            assert pi[s] == pytest.approx(1 / len(pi[s]))
    exact = best_choices(model.mdp, model.n / model.n.sum() >= share, learner.floor)[1]
    assert exact == pytest.approx(V, abs=1e-9)


def pessimistic_value_of(model, choice, floor):
    """V of a supported policy: R + γ P V where it chooses, the floor where it cannot (None)."""
    S = len(choice)
    M, b = np.eye(S), np.full(S, floor)
    for s, a in enumerate(choice):
        if a is not None:
            M[s] -= model.mdp.gamma * dense(model.mdp)[s, a]
            b[s] = model.mdp.R[s, a]
    return np.linalg.solve(M, b)


@pytest.mark.parametrize("seed", range(20))
def test_pqi_against_every_supported_policy(seed):
    _, model = problem(seed, most=4)
    share = 0.08
    supported = model.n / model.n.sum() >= share
    options = [np.flatnonzero(row).tolist() or [None] for row in supported]
    floor = -2.0 / (1 - 0.9)
    best = np.max([pessimistic_value_of(model, c, floor) for c in itertools.product(*options)], 0)
    pi = PQI(b=share, gamma=0.9, r_min=-2.0).plan(model)
    choice = [int(p.argmax()) if ok.any() else None for p, ok in zip(pi, supported, strict=True)]
    assert pessimistic_value_of(model, choice, floor) == pytest.approx(best, abs=1e-9)


def test_pqi_fears_what_is_rare():
    """y leads to r, where no single action has a share of .1; the floor there decides."""
    episodes = [[("s", "x", 0.5)]] * 60
    episodes += [[("s", "y", 0.6), ("r", f"z{k}", 1.0)] for k in range(20)]
    log = to_log(episodes)
    assert PQI(b=0.1, gamma=0.9, r_min=0.0).fit(log).act("s") == "y"
    assert PQI(b=0.1, gamma=0.9, r_min=-1.0).fit(log).act("s") == "x"  # .6 - .9 · 10 < .5
    assert PQI(b=0.01, gamma=0.9, r_min=-1.0).fit(log).act("s") == "y"  # 1 of 100 is enough
    assert PQI(b=0.3, gamma=0.9, r_min=0.0).fit(log).act("s") == "x"
    rare = PQI(b=0.1, gamma=0.9).fit(log)
    assert rare.probabilities(["r"]) == pytest.approx(1 / 22)


def test_the_floor_of_pqi():
    assert PQI(b=0.1, gamma=0.9, r_min=-2.0).floor == pytest.approx(-20)
    assert PQI(b=0.1, gamma=0.9).floor == 0
    assert PQI(b=0.1, gamma=1.0, r_min=3.0).floor == 0


# -- CQL -------------------------------------------------------------------------------------


def objective(Q, y, pi_b, alpha):
    return (pi_b * (Q - y) ** 2).sum() / 2 + alpha * (logsumexp(Q) - pi_b @ Q)


def gradient(Q, y, pi_b, alpha):
    return pi_b * (Q - y) + alpha * (softmax(Q) - pi_b)


@pytest.mark.parametrize("alpha", [1e-6, 0.01, 0.1, 1.0, 10.0, 300.0])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_one_state_of_cql_is_the_minimiser(alpha, scale):
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 8, 40)
    first = np.concatenate(([0], np.cumsum(sizes)))[:-1]
    y = rng.normal(size=sizes.sum()) * scale
    pi_b = np.concatenate([rng.dirichlet(np.full(k, 0.7)) + 1e-5 for k in sizes])
    pi_b /= np.repeat(np.add.reduceat(pi_b, first), sizes)
    Q, p = cql.conservative(y, pi_b, alpha, first)
    for k, size in zip(first, sizes, strict=True):
        one = slice(k, k + size)
        assert np.abs(gradient(Q[one], y[one], pi_b[one], alpha)).max() < 1e-10 * max(1, alpha)
        assert p[one] == pytest.approx(softmax(Q[one]), abs=1e-9)
        if alpha >= 0.01 and scale <= 1:
            found = minimize(
                objective, y[one], jac=gradient, args=(y[one], pi_b[one], alpha), method="BFGS"
            )
            assert objective(Q[one], y[one], pi_b[one], alpha) <= found.fun + 1e-10


def test_cql_weights_are_the_derivative():
    """J against differences: where the best value of a state gets its weight from."""
    rng = np.random.default_rng(1)
    y, pi_b, first = rng.normal(size=5), rng.dirichlet(np.ones(5)), np.array([0])
    Q, p = cql.conservative(y, pi_b, 0.3, first)
    J = cql._jacobian(Q, p, pi_b, 0.3, first)
    for a in range(5):
        up, down = y.copy(), y.copy()
        up[a] += 1e-5
        down[a] -= 1e-5
        slope = np.max(cql.conservative(up, pi_b, 0.3, first)[0])
        slope -= np.max(cql.conservative(down, pi_b, 0.3, first)[0])
        assert J[a] == pytest.approx(slope / 2e-5, abs=1e-7)
    assert J.sum() == pytest.approx(1)


@pytest.mark.parametrize("alpha", [0.001, 0.1, 2.0])
@pytest.mark.parametrize("gamma", [0.9, 0.999])
def test_cql_is_a_fixed_point(alpha, gamma):
    for seed in range(25):
        _, model = problem(seed, gamma=gamma)
        Q = cql.conservative_values(model, alpha)
        assert np.isneginf(Q[~model.seen]).all()
        V = np.where(model.visited, Q.max(axis=1), 0)
        y = model.mdp.action_values(V)
        for s in np.flatnonzero(model.visited):
            on = model.seen[s]
            slope = gradient(Q[s, on], y[s, on], model.mdp.behavior[s, on], alpha)
            assert np.abs(slope).max() < 1e-9 * max(1, np.abs(V).max())
        pi = CQL(alpha=alpha, gamma=gamma).plan(model)
        assert np.array_equal(pi.argmax(axis=1)[model.visited], Q.argmax(axis=1)[model.visited])


def test_cql_settles_by_sweeps_too(monkeypatch):
    for seed in range(10):
        _, model = problem(seed)
        Q = cql.conservative_values(model, 0.2)
        monkeypatch.setattr(cql, "NEWTON", 0)
        swept = cql.conservative_values(model, 0.2)
        monkeypatch.undo()
        assert swept[model.seen] == pytest.approx(Q[model.seen], abs=1e-8)


def test_cql_without_its_term_is_rl():
    for seed in range(40):
        _, model = problem(seed)
        greedy = RL(gamma=0.9).plan(model)
        assert np.array_equal(CQL(alpha=0, gamma=0.9).plan(model), greedy)
        assert np.array_equal(CQL(alpha=1e-9, gamma=0.9).plan(model), greedy)


def test_a_larger_alpha_is_more_conservative():
    """The gap between soft maximum and behaviour shrinks; a lucky rare action loses its charm."""
    for seed in range(20):
        _, model = problem(seed)
        gaps = []
        for alpha in (0.01, 0.1, 1.0, 10.0):
            y = model.mdp.R[0, model.seen[0]]
            pi_b = model.mdp.behavior[0, model.seen[0]]
            if not len(y):
                continue
            Q, _ = cql.conservative(y, pi_b, alpha, np.array([0]))
            gaps.append(logsumexp(Q) - pi_b @ Q)
        assert (np.diff(gaps) <= 1e-12).all()
    log = to_log([[("s", "usual", 0.5)]] * 99 + [[("s", "lucky", 1.0)]])
    choice = [CQL(alpha=a, gamma=0.9).fit(log).act("s") for a in (0, 0.001, 0.1, 1.0)]
    assert choice == ["lucky", "lucky", "usual", "usual"]


# -- RL, BC ----------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.5, 0.99])
@pytest.mark.parametrize("seed", range(20))
def test_rl_against_every_policy_of_seen_actions(seed, gamma):
    _, model = problem(seed, gamma=gamma, most=4)
    options = [np.flatnonzero(row).tolist() or [0] for row in model.seen]
    eye = np.eye(model.n.shape[1])
    best = np.max([model.mdp.state_values(eye[list(c)]) for c in itertools.product(*options)], 0)
    pi = RL(gamma=gamma).plan(model)
    assert not pi[model.visited][~model.seen[model.visited]].any()
    assert model.mdp.state_values(pi)[model.visited] == pytest.approx(best[model.visited], abs=1e-9)


def test_rl_takes_the_lowest_of_equals():
    log = to_log([[("s", a, 1.0)] for a in "zyx"] + [[("s", "w", 0.5)]])
    assert RL(gamma=0.9).fit(log).pi[0].tolist() == [0, 1, 0, 0]


def test_bc_counts():
    episodes = random_episodes(3)
    policy = BC().fit(to_log(episodes))
    for s, a in itertools.product(policy.states, policy.actions):
        taken = [x[1] for e in episodes for x in e if x[0] == s]
        share = policy.pi[policy.states.index(s), policy.actions.index(a)]
        assert share == pytest.approx(taken.count(a) / len(taken))


# -- all of them -----------------------------------------------------------------------------


@every_learner
def test_states_never_visited_are_uniform(name):
    log = dprl.envs.rooms().sample(1, seed=0)
    learner = LEARNERS[name](0.99)
    policy = learner.fit(log)
    never = np.setdiff1d(np.arange(100), log.codes())
    assert len(never) > 20
    assert (policy.pi[never] == 0.25).all()
    assert (policy.probabilities(["no such state"]) == 0.25).all()
    assert np.array_equal(policy.pi, learner.plan(estimate(log, 0.99)))


@every_learner
def test_policies_are_kept_in_files(name, tmp_path):
    log = to_log(random_episodes(5))
    policy = LEARNERS[name](0.9).fit(log)
    policy.save(tmp_path / "rival.dprl")
    again = dprl.load(tmp_path / "rival.dprl")
    assert isinstance(again, dprl.StochasticPolicy)
    assert np.array_equal(again.pi, policy.pi)
    assert again.parameters == policy.parameters
    assert json.loads(json.dumps(dict(policy.parameters))) == dict(policy.parameters)
    assert policy.parameters["learner"] == type(LEARNERS[name](0.9)).__name__
    assert policy.parameters["gamma"] == 0.9


def test_a_behaviour_that_was_given_is_recorded_as_such():
    log = to_log([[("s", "x", 1.0)], [("s", "y", 2.0)]])
    half = np.full((1, 2), 0.5)
    for learner in (
        SPIBB(n_min=np.inf, gamma=1.0, behavior=half),
        SoftSPIBB(epsilon=1, gamma=1.0, behavior=half),
    ):
        assert learner.fit(log).parameters["behavior"] == "given"
    assert SPIBB(n_min=np.inf, gamma=1.0).fit(log).parameters["n_min"] is None


@every_learner
def test_relabelling_actions_relabels_the_policy(name):
    for seed in range(8):
        episodes = random_episodes(seed)
        labels = sorted({a for e in episodes for _, a, _ in e})
        other = dict(zip(labels, [f"b{i:02}" for i in range(len(labels))][::-1], strict=True))
        relabelled = [[(s, other[a], r) for s, a, r in e] for e in episodes]
        learner = LEARNERS[name](0.9)
        one, two = learner.fit(to_log(episodes)), learner.fit(to_log(relabelled))
        columns = [two.actions.index(other[a]) for a in one.actions]
        assert two.pi[:, columns] == pytest.approx(one.pi, abs=1e-9)


@every_learner
def test_cut_episodes_are_spoken_of(name):
    log = to_log([[("s", "x", 1.0)] * 3, [("s", "y", 1.0)]], [True, False])
    with pytest.warns(dprl.CutWarning):
        LEARNERS[name](0.9).fit(log)
    learner = replace(LEARNERS[name](0.9), cut="drop")
    assert learner.fit(log).parameters["cut"] == "drop"


@every_learner
def test_a_model_of_another_discount_is_refused(name):
    model = estimate(to_log([[("s", "x", 1.0)]]), 0.5)
    with pytest.raises(dprl.ParameterError, match=r"estimated with gamma = 0\.5"):
        LEARNERS[name](0.9).plan(model)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RL(gamma=0), "gamma must be a number in"),
        (lambda: RL(gamma=0.9, cut="no"), "cut must be"),
        (lambda: SPIBB(n_min=0, gamma=0.9), "n_min must be"),
        (lambda: SPIBB(n_min=1, gamma=1.1), "gamma must be a number in"),
        (lambda: SPIBB(n_min=1, gamma=0.9, variant="c"), "variant must be 'b' or 'leq'; got 'c'"),
        (lambda: SPIBB(n_min=1, gamma=0.9, cut="no"), "cut must be"),
        (lambda: SoftSPIBB(epsilon=-1, gamma=0.9), "epsilon must be a number in"),
        (lambda: SoftSPIBB(epsilon=np.inf, gamma=0.9), "epsilon must be a number in"),
        (lambda: SoftSPIBB(epsilon="1", gamma=0.9), "epsilon must be a number in .*; got '1'"),
        (lambda: SoftSPIBB(epsilon=1, gamma=0.9, delta=0.0), "delta must be a number in"),
        (lambda: SoftSPIBB(epsilon=1, gamma=0.9, delta=1.01), "delta must be a number in"),
        (lambda: SoftSPIBB(epsilon=1, gamma=0.9, step="both"), "step must be"),
        (lambda: SoftSPIBB(epsilon=1, gamma=True), "gamma must be a number in"),
        (lambda: LCB(gamma=0.9, c=-1.0), "c must be a number in"),
        (lambda: LCB(gamma=0.9, delta=0.0), "delta must be a number in"),
        (lambda: PQI(b=0, gamma=0.9), r"b must be a number in \(0, 1\]; got 0"),
        (lambda: PQI(b=np.nan, gamma=0.9), "b must be a number in"),
        (lambda: PQI(b=True, gamma=0.9), "b must be a number in"),
        (lambda: PQI(b=0.1, gamma=0.9, r_min=-np.inf), "r_min must be a number in"),
        (lambda: PQI(b=0.1, gamma=1.0, r_min=-0.5), "floor is minus infinity"),
        (lambda: CQL(alpha=-0.1, gamma=0.9), "alpha must be a number in"),
        (lambda: CQL(alpha=np.nan, gamma=0.9), "alpha must be a number in"),
        (lambda: CQL(alpha=0.1, gamma=0.9, cut="no"), "cut must be"),
    ],
)  # fmt: skip
def test_refusals(make, words):
    with pytest.raises(dprl.ParameterError, match=words):
        make()


@pytest.mark.parametrize(
    "behavior", [np.ones((1, 2)), np.full((2, 1), 0.5), np.array([[1.5, -0.5]])]
)
def test_a_behaviour_of_another_shape_is_refused(behavior):
    log = to_log([[("s", "x", 1.0)], [("s", "y", 2.0)]])
    for learner in (
        SPIBB(n_min=1, gamma=0.9, behavior=behavior),
        SoftSPIBB(epsilon=1, gamma=0.9, behavior=behavior),
    ):
        with pytest.raises(dprl.ParameterError, match="behavior must be"):
            learner.fit(log)


# -- without discount ------------------------------------------------------------------------


@every_learner
def test_without_discount_a_loop_of_no_profit_is_left(name):
    """Staying is as good as what comes after; the lowest of equals would stay for ever."""
    episodes = [[("s", "again", 0.0)] * 4 + [("s", "stop", 1.0)]] * 5
    pi = LEARNERS[name](1.0).fit(to_log(episodes)).pi
    if name in {"rl", "pqi"}:
        assert pi.tolist() == [[0, 1]]
    elif name != "cql":
        assert pi[0, 1] > 0


def test_without_discount_a_loop_that_sums_to_nothing_is_left_too():
    """s pays 1 to go to t, t asks it back; under the behaviour staying and leaving are equal."""
    episodes = [[("s", "a", 1.0), ("t", "z", -1.0)], [("t", "a", -1.0), ("s", "z", 0.0)]]
    model = estimate(to_log(episodes), 1.0)
    pi = RL(gamma=1.0).plan(model)
    assert model.mdp.state_values(pi) == pytest.approx([0, -1])


def test_without_discount_circling_alone_is_worth_nothing():
    """Ways out too rare to be supported: PQI stays, and what leads there is worth nothing."""
    loop = [("s", "on", 0.0), ("t", "on", 0.0)] * 20
    log = to_log([[*loop, ("s", "out", 1.0)], [("u", "in", 0.0), *loop, ("t", "out", 1.0)]] * 3)
    learner = PQI(b=0.1, gamma=1.0)
    model = estimate(log, 1.0)
    assert best_choices(model.mdp, model.n / model.n.sum() >= 0.1)[1].tolist() == [0, 0, 0]
    assert learner.plan(model)[:2].tolist() == [[0, 1, 0], [0, 1, 0]]
    earning = replace(log, reward=np.ones(log.n_steps))
    with pytest.raises(dprl.PlanError, match="nothing ever ends"):
        learner.fit(earning)


def test_without_discount_cql_may_have_no_values_and_says_so():
    """Two ways of staying, one usual: the term pays for the usual one, again and again."""
    episodes = [[("s", "a", 0.0)] * 8 + [("s", "b", 0.0), ("s", "stop", 1.0)]] * 5
    with pytest.raises(dprl.PlanError, match="With gamma = 1 there may be none"):
        CQL(alpha=0.1, gamma=1.0).fit(to_log(episodes))


@pytest.mark.parametrize("seed", range(20))
def test_without_discount_rl_is_the_best_that_ends(seed):
    """Rewards of the last step only, as in many records of care."""
    truth, _ = problem(seed, gamma=1.0, most=4)
    log = truth.sample(30, seed=seed)
    reward = np.zeros(log.n_steps)
    reward[log.starts[1:] - 1] = np.random.default_rng(seed).random(log.n_episodes)
    model = estimate(replace(log, reward=reward), 1.0, "terminal")
    options = [np.flatnonzero(row).tolist() or [0] for row in model.seen]
    eye = np.eye(model.n.shape[1])
    best = np.max([model.mdp.state_values(eye[list(c)]) for c in itertools.product(*options)], 0)
    for learner in (RL(gamma=1.0), SPIBB(n_min=1, gamma=1.0), PQI(b=1e-9, gamma=1.0)):
        assert model.mdp.state_values(learner.plan(model)) == pytest.approx(best, abs=1e-9)


# -- size ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.99, 1.0])
@every_learner
def test_seven_hundred_states_take_seconds(name, gamma):
    """716 states, 25 actions, 20,000 episodes: the size of ICU-Sepsis."""
    rng = np.random.default_rng(0)
    S, A, k = 716, 25, 30
    P = sparse.csr_array(
        (
            rng.dirichlet(np.full(k, 0.3), S * A).ravel() * 0.9,
            (np.repeat(np.arange(S * A), k), rng.integers(S, size=S * A * k)),
        ),
        shape=(S * A, S),
    )
    none = np.zeros((S, A))
    truth = FiniteMDP(
        "icu size", tuple(range(S)), tuple(range(A)), P, none, none, np.full(S, 1 / S),
        rng.dirichlet(np.full(A, 0.3), S), gamma,
    )  # fmt: skip
    log = truth.sample(20_000, seed=0)
    reward = np.zeros(log.n_steps)
    reward[log.starts[1:] - 1] = rng.random(log.n_episodes) < 0.8
    log = replace(log, reward=reward)
    learner = LEARNERS[name](gamma)
    learner.fit(log.take(np.arange(2_000)))  # compiles
    began = time.process_time()
    policy = learner.fit(log)
    assert time.process_time() - began < 120  # about one on an idle machine
    assert policy.pi.sum(axis=1) == pytest.approx(1)
    tracemalloc.start()
    learner.fit(log)
    assert tracemalloc.get_traced_memory()[1] < 1e9
    tracemalloc.stop()


@pytest.mark.slow
@every_learner
def test_a_grid_takes_milliseconds(name):
    model = estimate(dprl.envs.rooms().sample(100, seed=0), 0.99)
    learner = LEARNERS[name](0.99)
    learner.plan(model)
    times = []
    for _ in range(20):
        began = time.process_time()
        learner.plan(model)
        times.append(time.process_time() - began)
    assert min(times) < 1  # a few milliseconds on an idle machine


def test_models_may_be_made_by_hand():
    """`plan` needs no log: a Model is enough."""
    mdp = dprl.envs.forest()
    model = Model(mdp, np.full(mdp.R.shape, 50))
    pi = RL(gamma=mdp.gamma).plan(model)
    assert mdp.value(pi) == pytest.approx(mdp.start @ mdp.optimal[0])
