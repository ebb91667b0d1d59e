"""Exact planning: small systems by hand, large ones by their residual, and what cannot be solved."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import dprl
from conftest import to_log
from dprl._core import linear
from dprl._core.linear import leaks, solve
from dprl.planning.finite_mdp import FiniteMDP
from dprl.planning.iteration import evaluate, look_ahead, policy_iteration
from dprl.planning.model import estimate
from dprl.planning.semi_mdp import SemiMDP, pool_ends


def semi_mdp(seed, points=4, most=3, gamma=0.95):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, most + 1, points)
    rows = int(counts.sum())
    D = rng.dirichlet(np.ones(points + 1), rows)[:, :points] * gamma
    D[rng.random(D.shape) < 0.4] = 0
    return SemiMDP(
        points=np.arange(points),
        labels=tuple(range(points)),
        first=np.concatenate(([0], np.cumsum(counts))),
        action=np.concatenate([np.arange(c) for c in counts]),
        R=rng.normal(size=rows),
        D=sparse.csr_array(D),
        n=np.full(rows, 10),
    )


@pytest.mark.parametrize("seed", range(50))
def test_no_deterministic_policy_does_better(seed):
    semi = semi_mdp(seed)
    plan = policy_iteration(semi, np.zeros(len(semi.R)))
    choices = [range(a, b) for a, b in itertools.pairwise(semi.first)]
    best = np.max([evaluate(semi, np.array(rows)) for rows in itertools.product(*choices)], axis=0)
    assert pytest.approx(best, abs=1e-9) == plan.V
    assert plan.q == pytest.approx(look_ahead(semi, plan.V))
    assert plan.q[plan.rows] == pytest.approx(plan.V, abs=1e-9)


def test_ties_keep_the_first_action():
    semi = SemiMDP(
        points=np.array([0]), labels=(0,), first=np.array([0, 3]), action=np.arange(3),
        R=np.array([1.0, 1.0, 1.0 + 1e-12]), D=sparse.csr_array((3, 1)), n=np.ones(3, np.int64),
    )  # fmt: skip
    assert policy_iteration(semi, np.array([0.5, 0.5, 0.5])).rows.tolist() == [0]
    assert policy_iteration(semi, np.array([0.1, 0.5, 0.5])).rows.tolist() == [1]


@pytest.mark.parametrize("n", [2, 40])
def test_an_action_that_always_ended_keeps_that(n):
    """Two of two may be luck, but nothing says where it would go on to; 40 of 40 are no luck."""

    def semi(R, D, n):
        return SemiMDP(
            points=np.array([0]), labels=(0,), first=np.array([0, 2]), action=np.arange(2),
            R=np.array(R), D=sparse.csr_array(D), n=np.array(n),
        )  # fmt: skip

    pooled = pool_ends(
        semi([1.0, 3.0], [[0.5], [0.0]], [n, n]), semi([0, 0], [[1], [0]], [n // 2, 0])
    )
    assert pooled.R[1] == 3.0
    assert pooled.D.toarray()[1] == 0.0
    share = 10 / 14 if n == 2 else 0.5  # the other one: pooled with k = 12 where both may be luck
    assert pooled.D.toarray()[0] == pytest.approx(1 - share)


def test_nothing_to_plan():
    semi = SemiMDP(
        points=np.zeros(0, np.int64), labels=(), first=np.zeros(1, np.int64), action=np.zeros(0, np.int64),
        R=np.zeros(0), D=sparse.csr_array((0, 0)), n=np.zeros(0, np.int64),
    )  # fmt: skip
    assert not len(policy_iteration(semi, np.zeros(0)).rows)


@pytest.mark.parametrize("gamma", [0.9, 0.999])
def test_large_systems_are_solved_to_rounding(gamma):
    rng = np.random.default_rng(0)
    n, per = 6_000, 8
    A = sparse.csr_array(
        (
            np.full(n * per, gamma / per),
            (np.repeat(np.arange(n), per), rng.integers(n, size=n * per)),
        ),
        shape=(n, n),
    )
    b = rng.normal(size=n)
    x = solve(A, b)
    assert np.abs(b + A @ x - x).max() <= 1e-13 * np.abs(x).max()
    assert np.array_equal(x, solve(A, b))


def test_a_system_nothing_leaves_has_no_solution():
    A = sparse.csr_array(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.0, 0.0]]))
    assert leaks(A).tolist() == [False, False, True]
    with pytest.raises(dprl.PlanError, match="not defined for 2 of 3 states: nothing ever ends"):
        solve(A, np.ones(3))
    assert not len(solve(sparse.csr_array((0, 0)), np.zeros(0)))


def test_circling_that_earns_nothing_is_worth_nothing():
    """0 and 1 circle, 2 may fall in with them, 3 ends, 4 reaches 3."""
    A = np.zeros((5, 5))
    A[0, 1] = A[1, 0] = 1
    A[2, 0] = A[2, 3] = 0.5
    A[4, 3] = 1
    x = solve(sparse.csr_array(A), np.array([0.0, 0.0, 1.0, 2.0, 4.0]))
    assert x == pytest.approx([0, 0, 2, 2, 6], abs=1e-12)
    assert solve(sparse.csr_array(A[:2, :2]), np.zeros(2)).tolist() == [0, 0]
    with pytest.raises(dprl.PlanError, match="not defined for 2 of 5 states"):
        solve(sparse.csr_array(A), np.array([1e-300, 0.0, 1.0, 2.0, 4.0]))


def test_without_discount_a_circling_start_is_led_to_an_end():
    """Only first occurrences count, so argmax Q may circle although every trajectory ended."""
    episodes = [
        [("s", "again", 0.0), ("s", "again", 0.0), ("s", "stop", 1.0)],
        [("s", "stop", 0.5)],
    ] * 5
    policy = dprl.DPRLDiscrete(n_min=2, gamma=1.0, contrast=False).fit(to_log(episodes))
    assert policy.act("s") == "stop"
    assert policy.planned[0, 1] == pytest.approx(0.75)


def test_without_discount_and_without_an_end_it_says_so():
    episodes = [
        [("s", "on", 0.0), ("t", "on", 0.0), ("s", "x", 1.0)],
        [("t", "on", 0.0), ("s", "on", 0.0), ("t", "y", 1.0)],
        [("s", "z", 0.0)],
        [("t", "z", 0.0)],
    ] * 2
    learner = dprl.DPRLDiscrete(n_min=4, gamma=1.0, contrast=False)
    policy = learner.fit(to_log(episodes))
    assert policy.act(["s", "t"]) == [dprl.DEFER, dprl.DEFER]
    assert not policy.allowed.any()
    assert policy.provenance["circles"] == 2
    assert "In 2 states the policy defers because, without discount" in str(policy)
    one_step = dprl.DPRLDiscrete(n_min=4, gamma=1.0, contrast=False, plan=False)
    assert one_step.fit(to_log(episodes)).act(["s", "t"]) == ["on", "on"]
    # going round at a profit has no value either; elsewhere there is a plan all the same
    pays = [[("s", "on", 1.0), ("s", "on", 1.0), ("s", "off", 0.0)]] * 4
    other = [[("u", "a", 1.0)]] * 4 + [[("u", "b", 0.0)]] * 4
    policy = learner.fit(to_log(pays + other))
    assert policy.act(["s", "u"]) == [dprl.DEFER, "a"]
    assert policy.provenance["circles"] == 1
    assert "circles" not in learner.fit(to_log(other)).provenance


def test_plans_of_many_states():
    """More decision points than a direct solver would like."""
    rng = np.random.default_rng(1)
    n, S = 4_000, 3_000
    log = dprl.from_arrays(
        episode=np.repeat(np.arange(n), 30), time=np.tile(np.arange(30), n),
        state=rng.integers(S, size=30 * n), action=rng.integers(2, size=30 * n),
        reward=rng.normal(size=30 * n),
    )  # fmt: skip
    policy = dprl.DPRLDiscrete(n_min=5, gamma=0.95).fit(log)
    assert policy.summary()["decision_points"] > 2_500
    chosen = policy.planned[np.arange(S), policy.choice]
    best = np.nanmax(np.where(policy.allowed, policy.planned, -np.inf), axis=1)
    speaks = policy.choice >= 0
    assert np.abs(chosen - best)[speaks].max() <= 1e-9


def test_values_that_are_zero_but_for_rounding_do_not_keep_it_going():
    """On `soft` some decision points lead nowhere: worth 0, and 3e-31 by rounding from afar."""
    world = dprl.envs.soft()
    for seed in range(12):
        log = world.sample(25, seed=seed)
        for contrast in (True, False):
            learner = dprl.DPRLDiscrete(
                n_min=1, gamma=world.gamma, contrast=contrast, cut="terminal"
            )
            assert learner.fit(log).summary()["decision_points"] > 0


def two_islands(huge, gamma):
    """State 0 is worth much whatever is done; in state 1 the second action is a little better."""
    reward = np.array([[huge, huge], [1.0, 1.0 + 1e-6]])
    return FiniteMDP(
        name="islands", states=(0, 1), actions=(0, 1), P=sparse.csr_array((4, 2)), low=reward,
        high=reward, start=np.array([0.5, 0.5]), behavior=np.full((2, 2), 0.5), gamma=gamma,
    )  # fmt: skip


@pytest.mark.parametrize("gamma", [0.9, 1.0])
@pytest.mark.parametrize("huge", [1.0, 1e9, 1e15])
def test_a_huge_value_hides_no_improvement_elsewhere(huge, gamma):
    V, best = two_islands(huge, gamma).optimal
    assert best.tolist() == [0, 1]
    assert pytest.approx([huge, 1.0 + 1e-6], rel=1e-12) == V


def test_policy_iteration_is_written_once():
    src = Path(dprl.__file__).parent
    loops = [
        p.name for p in src.rglob("*.py") if "policy iteration did not settle" in p.read_text()
    ]
    assert loops == ["iteration.py"]


def test_the_model_of_a_large_log_is_made_of_probabilities():
    n = 130_001
    log = dprl.from_arrays(
        episode=np.repeat(np.arange(n), 2), state=np.tile([0, 1], n), action=np.zeros(2 * n),
        reward=np.ones(2 * n),
    )  # fmt: skip
    model = estimate(log, 1.0)
    assert model.mdp.P.toarray().tolist() == [[0.0, 1.0], [0.0, 0.0]]


def test_lu_is_asked_only_where_a_few_steps_of_iteration_do_not_settle(monkeypatch):
    n, rng, asked = 300, np.random.default_rng(0), []
    direct = linear._direct
    monkeypatch.setattr(linear, "_direct", lambda *a: asked.append(1) or direct(*a))
    chain = sparse.csr_array(sparse.diags([np.full(n - 1, 0.999)], [1]))
    mixed = np.zeros((n, n))
    for row in mixed:
        row[rng.choice(n, 5, replace=False)] = 0.95 / 5
    b = rng.random(n)
    for A, times in ((chain, 1), (sparse.csr_array(mixed), 0)):
        x = linear.solve(A, b, quick=True)
        assert len(asked) == times
        asked.clear()
        assert np.allclose(x, np.linalg.solve(np.eye(n) - A.toarray(), b), rtol=1e-11)
