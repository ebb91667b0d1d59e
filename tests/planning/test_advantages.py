"""Advantages in a model and their errors: against a slow oracle, derivatives, spread and draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from slow_confident import Slow, log_of, random_visits
from small_world import small_world

from dprl import envs
from dprl._core.linear import solve_left, solve_many
from dprl.errors import PlanError
from dprl.planning.advantages import _inverse, moves, over_usual, own_part, policy_matrix
from dprl.planning.model import count_transitions
from dprl.planning.sure_iteration import PlanModel

GAMMAS = (1.0, 0.9)


def workshop(visits, gamma, **options):
    """The model of `random_visits`, fast and slow."""
    slow = Slow(*visits, gamma)
    table = count_transitions(log_of(*visits))
    return PlanModel(table, slow.m, gamma, slow.m >= 2, **options), slow


def ending_choices(model, slow, rng, many=4):
    """Random policies over pairs that were seen, all of which have a value."""
    for _ in range(many):
        choice = np.full(slow.S, -1)
        for s in np.flatnonzero(slow.visits):
            if rng.random() < 0.5:
                choice[s] = rng.choice(np.flatnonzero(slow.n[s]))
        try:
            yield choice, model.evaluate(choice)
        except PlanError:
            assert slow.gamma == 1


def close(one, other, scale=1.0):
    return np.allclose(one, other, rtol=1e-9, atol=1e-9 * scale, equal_nan=True)


# -- against the oracle ----------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("seed", range(25))
def test_values_variances_and_errors_equal_those_of_the_oracle(seed, gamma):
    model, slow = workshop(random_visits(seed), gamma)
    rng = np.random.default_rng(seed)
    for choice, here in ending_choices(model, slow, rng):
        expected = slow.evaluate(choice)
        scale = max(np.abs(expected.Q).max(), 1.0)
        for name in ("pi", "V", "Q", "delta"):
            assert close(getattr(here, name), getattr(expected, name), scale), name
        for name in ("e", "v", "prior"):
            assert close(getattr(here, name), getattr(expected, name), scale**2), name
        se, solved = here.errors(np.where(slow.n > 0, 0.0, np.inf), skip=False)
        by_formula = np.full(se.shape, np.nan)
        for s, a in np.argwhere(slow.n > 0):
            by_formula[s, a] = np.sqrt(max(expected.variance(s, a), 0.0))
        assert solved == (slow.n > 0).sum()
        assert np.array_equal(np.isnan(se), np.isnan(by_formula))
        # Δ of the chosen action is 0 and so is its error: a root of rounding
        assert close(se**2, by_formula**2, scale**2)
        chosen = np.flatnonzero(choice >= 0)
        assert np.abs(here.delta[chosen, choice[chosen]]).max(initial=0) <= 1e-9 * scale
        assert se[chosen, choice[chosen]].max(initial=0) <= 1e-6 * scale


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("seed", range(15))
def test_what_a_pair_brings_over_usual_practice_equals_the_oracle(seed, gamma):
    model, slow = workshop(random_visits(seed), gamma)
    for choice, here in ending_choices(model, slow, np.random.default_rng(seed)):
        expected = slow.evaluate(choice)
        advantage, se = over_usual(here)
        scale = max(np.abs(expected.Q).max(), 1.0)
        assert close(advantage, expected.over_usual()[0], scale)
        assert close(se, expected.over_usual()[1], scale)
        # where the policy defers, this is Δ
        silent = (choice < 0)[:, None] & (slow.n > 0)
        assert close(advantage[silent], here.delta[silent], scale)


# -- the delta method itself -----------------------------------------------------------------------


def delta_of(counts, sums, choice, gamma):
    """Δ (S, A) of counts (S, A, S + 1), fractions too, and sums of rewards in each cell."""
    n = counts.sum(axis=2)
    P, R = counts[:, :, :-1] / n[:, :, None], sums.sum(axis=2) / n
    pi = policy_matrix(n / n.sum(axis=1, keepdims=True), choice)
    V = np.linalg.solve(
        np.eye(len(n)) - gamma * np.einsum("sa,sat->st", pi, P), (pi * R).sum(axis=1)
    )
    return R + gamma * P @ V - V[:, None]


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("choice", [[-1, -1, -1], [1, -1, -1], [-1, 0, 1], [0, 1, 0]])
def test_weights_are_the_derivatives_of_the_advantage(choice, gamma):
    choice = np.array(choice)
    world = small_world(gamma)
    table = count_transitions(world.sample(400, seed=7))
    model = PlanModel(table, table.n, gamma, table.n > 0)
    here = model.evaluate(choice)
    S, A = table.n.shape
    counts, sums = np.zeros((S, A, S + 1)), np.zeros((S, A, S + 1))
    pair = np.repeat(np.arange(S * A), np.diff(table.first))
    counts.reshape(S * A, -1)[pair, table.next] = table.count
    sums.reshape(S * A, -1)[pair, table.next] = table.count * table.mean
    assert np.allclose(delta_of(counts, sums, choice, gamma), here.delta, atol=1e-12)
    V = np.append(here.V, 0.0)
    usual = (table.b * here.Q).sum(axis=1)
    P = table.P().toarray().reshape(S, A, S)
    w = gamma * P @ here.M - here.M[:, None, :]
    variance = np.zeros((S, A))
    for s, a in np.ndindex(S, A):
        weight = w * here.pi[s, a]  # of the error of the mean target of (s, a), in every Δ
        weight = weight[:, :, s].copy()
        weight[s, a] += 1
        variance += weight**2 * here.e[s, a]
        step = 1e-4 * counts[s, a].sum()
        for following in np.flatnonzero(counts[s, a]):
            by_reward, by_count = [], []
            for sign in (1, -1):
                more = sums.copy()
                more[s, a, following] += sign * step
                by_reward.append(delta_of(counts, more, choice, gamma))
                seen, more = counts.copy(), sums.copy()
                seen[s, a, following] += sign * step
                more[s, a, following] *= seen[s, a, following] / counts[s, a, following]
                by_count.append(delta_of(seen, more, choice, gamma))
            slope = (by_reward[0] - by_reward[1]) / (2 * step)
            assert np.allclose(slope, weight / counts[s, a].sum(), rtol=1e-6, atol=1e-9)
            y = sums[s, a, following] / counts[s, a, following] + gamma * V[following]
            expected = weight * (y - here.Q[s, a]) / counts[s, a].sum()
            if choice[s] < 0:
                expected = expected + w[:, :, s] * (here.Q[s, a] - usual[s]) / table.visits[s]
            slope = (by_count[0] - by_count[1]) / (2 * step)
            assert np.allclose(slope, expected, rtol=1e-4, atol=1e-7)
    of_b = (table.b * (here.Q - usual[:, None]) ** 2).sum(axis=1) / table.visits
    variance += w**2 @ np.where(choice < 0, of_b, 0.0)
    se, _ = here.errors(np.zeros((S, A)), skip=False)
    assert np.allclose(se**2, variance, rtol=1e-9, atol=1e-12)


def test_standard_errors_equal_the_spread_over_many_logs():
    world, choice, deltas, errors, brings, doubts = small_world(1.0), [1, -1, -1], [], [], [], []
    for seed in range(250):
        table = count_transitions(world.sample(6_000, seed=300_000 + seed))
        model = PlanModel(table, table.n, 1.0, table.n > 0)
        here = model.evaluate(np.array(choice))
        deltas.append(here.delta)
        errors.append(here.errors(np.zeros(table.n.shape), skip=False)[0])
        advantage, se = over_usual(here)
        brings.append(advantage)
        doubts.append(se)
    spread, se = np.std(deltas, axis=0), np.mean(errors, axis=0)
    free = np.ones(spread.shape, bool)
    free[0, 1] = False  # the chosen action: 0 without error
    assert np.allclose(se[free] / spread[free], 1, atol=0.15)
    assert spread[0, 1] < 1e-9
    assert np.allclose(np.mean(doubts, axis=0) / np.std(brings, axis=0), 1, atol=0.15)


# -- pairs that cannot pass, and inverses ----------------------------------------------------------

positive = st.floats(0, 1e6)


@given(e=positive, rest=positive, pi=st.floats(0, 1), c=st.floats(-1e3, 1e3))
def test_the_own_part_is_a_lower_bound_whatever_c_is(e, rest, pi, c):
    v = rest + pi**2 * e
    own = c**2 * rest + (1 + c * pi) ** 2 * e
    assert own_part(e, v, pi) <= own * (1 + 1e-9) + 1e-12 * (e + rest)


def test_the_own_part_is_the_least_there_is():
    for e, rest, pi in ((1.0, 2.0, 0.3), (0.5, 0.1, 0.9), (2.0, 0.0, 0.5), (1.0, 1.0, 0.0)):
        c = np.linspace(-20, 20, 400_001)
        least = (c**2 * rest + (1 + c * pi) ** 2 * e).min()
        assert own_part(e, rest + pi**2 * e, pi) == pytest.approx(least, abs=1e-6)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_pairs_that_are_left_out_are_below_and_the_others_have_the_same_error(gamma):
    left_out = 0
    for seed in range(40):
        model, slow = workshop(random_visits(seed), gamma)
        kappa = np.random.default_rng(seed).exponential(1.5, slow.n.shape)
        kappa[slow.n == 0] = np.inf
        here = model.usual
        every, _ = here.errors(kappa, skip=False)
        some, _ = here.errors(kappa, skip=True)
        solved = ~np.isnan(some)
        assert np.array_equal(every[solved], some[solved])
        skipped = ~solved & np.isfinite(kappa)
        assert (here.delta[skipped] - kappa[skipped] * every[skipped] <= 1e-12).all()
        left_out += skipped.sum()
    assert left_out > 100


@pytest.mark.parametrize("gamma", GAMMAS)
def test_an_inverse_that_is_updated_equals_one_that_is_computed(gamma):
    table = count_transitions(envs.forest().sample(40, seed=0))
    P, rng, updates = table.P(), np.random.default_rng(0), 0
    model = PlanModel(table, table.n, gamma, table.n > 0)
    before, S = model.usual, len(table.n)
    for _ in range(12):
        choice = before.choice.copy()
        for s in rng.choice(np.flatnonzero(table.visits), 3, replace=False):
            choice[s] = rng.choice(np.flatnonzero(table.n[s])) if rng.random() < 0.8 else -1
        A = moves(P, policy_matrix(table.b, choice), gamma)
        try:
            here = model.evaluate(choice, before)
        except PlanError:
            assert gamma == 1
            continue
        anew = np.linalg.inv(np.eye(S) - A.toarray())
        assert np.allclose(_inverse(A, before), anew, rtol=1e-9, atol=1e-9 * np.abs(anew).max())
        fresh = model.evaluate(choice)
        assert np.allclose(here.V, fresh.V, rtol=1e-10, atol=1e-12)
        updates += 1
        before = here
    assert updates >= 6
    assert S // 8 >= 3  # so that it was updated


# -- draws instead of the inverse ------------------------------------------------------------------


def drawn_and_exact(log, gamma, choice=None, seed=0):
    table = count_transitions(log)
    shops = [
        PlanModel(table, table.n, gamma, table.n > 1, seed=seed, dense=dense)
        for dense in (0, 10**9)
    ]
    kappa = np.where(table.n > 0, 0.0, np.inf)
    for model in shops:
        here = model.usual if choice is None else model.evaluate(choice)
        yield here, here.errors(kappa, skip=False)[0], over_usual(here)


PROBLEMS = {
    "rooms": lambda: (envs.rooms().sample(10, seed=1), 0.99),
    "forest": lambda: (envs.forest().sample(50, seed=1), 0.99),
    "care": lambda: (envs.care_pathway().sample(200, seed=1), 1.0),
    "arms": lambda: (envs.risky_arms().sample(200, seed=1), 1.0),
}


@pytest.mark.parametrize("speaks", [False, True])
@pytest.mark.parametrize("name", PROBLEMS)
def test_errors_from_draws_are_never_understated_and_not_much_too_large(name, speaks):
    log, gamma = PROBLEMS[name]()
    choice = None
    if speaks:
        table = count_transitions(log)
        model = PlanModel(table, table.n, gamma, table.n > 2)
        choice = model.iterate(0.5)[0].choice
        assert (choice >= 0).any()
    (drawn, se, usual), (exact, true_se, true_usual) = drawn_and_exact(log, gamma, choice)
    assert drawn.M is None
    assert exact.M is not None
    assert np.allclose(drawn.V, exact.V, rtol=1e-9, atol=1e-11)
    free = true_se > 1e-6  # but for chosen actions, whose Δ is 0
    ratio = se[free] / true_se[free]
    assert ratio.min() >= 1
    # draws may be coarse by about a fiftieth of the error of the equation at a state, and pay for it
    coarse = 0.1 * np.sqrt(drawn.v)[:, None] * np.ones_like(se)
    assert (se[free] <= 1.75 * true_se[free] + coarse[free]).all()
    assert 1.25 < np.median(ratio) < 1.55
    assert np.allclose(usual[0], true_usual[0], atol=1e-9, equal_nan=True)
    seen = true_usual[1] > 1e-9
    assert (usual[1][seen] / true_usual[1][seen]).min() >= 1
    assert (usual[1][seen] <= 1.75 * true_usual[1][seen] + coarse[seen]).all()


def test_the_seed_decides_the_draws():
    log, gamma = PROBLEMS["care"]()
    runs = [next(drawn_and_exact(log, gamma, seed=seed))[1] for seed in (0, 0, 1)]
    assert np.array_equal(runs[0], runs[1], equal_nan=True)
    assert not np.array_equal(runs[0], runs[2], equal_nan=True)


def random_system(seed, n=60):
    """A sparse matrix >= 0 whose rows sum to less than 1."""
    rng = np.random.default_rng(seed)
    A = rng.random((n, n)) * (rng.random((n, n)) < 0.1)
    A *= rng.uniform(0.3, 0.99, (n, 1)) / np.maximum(A.sum(axis=1, keepdims=True), 1e-9)
    return sparse.csr_array(A), rng


@pytest.mark.parametrize("seed", range(6))
def test_solving_for_many_columns_and_from_the_left_equals_dense_solutions(seed):
    A, rng = random_system(seed)
    n = A.shape[0]
    dense = np.linalg.inv(np.eye(n) - A.toarray())
    B = rng.normal(size=(n, 7)) * 10.0 ** rng.integers(-6, 7, 7)
    B[:, 3] = 0.0
    X = solve_many(A, B)
    size = np.abs(dense @ B).max(axis=0) + 1e-300
    assert (np.abs(X - dense @ B).max(axis=0) <= 1e-6 * size).all()
    assert (X[:, 3] == 0).all()
    residual = np.linalg.norm(B + A @ X - X, axis=0)
    assert (residual <= 1.01e-6 * np.linalg.norm(B, axis=0)).all()
    assert np.array_equal(solve_many(A, B[:, 2:5]), X[:, 2:5])  # columns do not mix
    begun = solve_many(A, B, start=X + 1e-3 * rng.normal(size=X.shape) * size)
    assert (np.abs(begun - X).max(axis=0) <= 1e-6 * size + 1e-250).all()
    left = solve_left(A, B[:, 0])
    assert np.allclose(left, B[:, 0] @ dense, rtol=1e-10, atol=1e-12 * np.abs(left).max())
    assert np.allclose(left - left @ A.toarray(), B[:, 0], atol=1e-12 * np.abs(left).max())


def test_systems_near_the_edge_are_solved_too():
    n = 300  # a long chain that hardly loses anything: values grow along it
    A = sparse.csr_array(sparse.diags_array(np.full(n - 1, 0.9999), offsets=1))
    B = np.ones((n, 2)) * [1.0, -3.0]
    dense = np.linalg.solve(np.eye(n) - A.toarray(), B)
    assert np.allclose(solve_many(A, B), dense, rtol=1e-5)
    left = np.linalg.solve((np.eye(n) - A.toarray()).T, B[:, 0])
    assert np.allclose(solve_left(A, B[:, 0]), left, rtol=1e-9)
