"""The rivals against slow rewrites of the steps as their papers describe them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from dprl import envs
from dprl.baselines import DUIPI, HCPI, MBIE, MOPO, RL, RaMDP, RMin, RobustMDP
from dprl.errors import ParameterError
from dprl.learners.baselines import SPIBB, SoftSPIBB, robust, soft_spibb, spibb
from dprl.planning.finite_mdp import FiniteMDP
from dprl.planning.model import Model, estimate

COUNTS = st.integers(0, 40)


def random_model(seed, gamma=0.9):
    """A dense random MDP with ends, its counts and a behaviour that is known."""
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(3, 8)), int(rng.integers(2, 6))
    P = rng.dirichlet(np.ones(S + 1), S * A)[:, :S]
    R = rng.normal(size=(S, A))
    behavior = rng.dirichlet(np.ones(A), S)
    mdp = FiniteMDP(
        "random", tuple(range(S)), tuple(range(A)), sparse.csr_array(P), R, R,
        np.full(S, 1 / S), behavior, gamma,
    )  # fmt: skip
    return Model(mdp, rng.integers(0, 40, (S, A)))


def approximate(Q, pi_b, e, epsilon):
    """Approx-Soft-SPIBB in one state, as in the paper; also what it took from the budget."""
    pi, budget = list(pi_b), epsilon
    for worse in sorted(range(len(Q)), key=lambda a: Q[a]):
        to_give = min(pi[worse], budget / (2 * e[worse]))
        by_ratio = sorted(range(len(Q)), key=lambda a: (-(Q[a] - Q[worse]) / e[a], a != worse))
        for better in by_ratio[: by_ratio.index(worse)]:
            moved = min(to_give, budget / (2 * e[better]))
            if moved > 0:
                to_give -= moved
                pi[worse] -= moved
                pi[better] += moved
                budget -= moved * (e[worse] + e[better])
    return np.array(pi), epsilon - budget


def exact(Q, pi_b, e, epsilon):
    """Exact-Soft-SPIBB in one state: its linear programme over (π, |π - π_b|)."""
    A, seen = len(Q), np.isfinite(e)
    eye = np.eye(A)
    rows = [np.concatenate([np.zeros(A), np.where(seen, e, 0.0)])]
    limits = [epsilon]
    for sign in (1, -1):
        rows += list(np.hstack([sign * eye, -eye]))
        limits += list(sign * pi_b)
    mass = [(0, None) if known else (p, p) for known, p in zip(seen, pi_b, strict=True)]
    answer = linprog(
        np.concatenate([-Q, np.zeros(A)]), A_ub=rows, b_ub=limits,
        A_eq=[np.concatenate([np.ones(A), np.zeros(A)])], b_eq=[1],
        bounds=mass + [(0, None)] * A, method="highs-ds",
    )  # fmt: skip
    assert answer.status == 0
    return answer.x[:A]


def keep(Q, pi_b, free):
    """Π_b in one state: the mass on free actions goes to the best of them."""
    pi = [0.0 if is_free else p for p, is_free in zip(pi_b, free, strict=True)]
    if free.any():
        best = max((a for a in range(len(Q)) if free[a]), key=lambda a: Q[a])
        pi[best] = 1 - sum(pi)
    return np.array(pi)


def cap(Q, pi_b, free):
    """Π_≤b in one state: the best action first, bootstrapped ones up to π_b, until all is given."""
    pi, given_out = np.zeros(len(Q)), 0.0
    for a in sorted(range(len(Q)), key=lambda a: -Q[a]):
        pi[a] = 1 - given_out if free[a] else min(pi_b[a], 1 - given_out)
        given_out += pi[a]
    return pi


def policy_iteration(model, pi_b, step):
    """The authors' loop: evaluate, improve every state unless that is worse there."""
    mdp = model.mdp
    P, R = mdp.P.toarray(), mdp.R
    pi = pi_b
    for _ in range(200):
        to_pairs = (P[:, :, None] * pi[None]).reshape(R.size, R.size)
        Q = np.linalg.solve(np.eye(R.size) - mdp.gamma * to_pairs, R.ravel()).reshape(R.shape)
        new = np.array([step(s, Q[s]) for s in range(len(R))])
        worse = (new * Q).sum(axis=1) < (pi * Q).sum(axis=1)
        new[worse] = pi[worse]
        if np.abs(new - pi).max() < 1e-13:
            return new
        pi = new
    raise AssertionError("the slow loop did not settle")


def one_state(seed):
    """Q, π_b, e (A,) and ε of a state in general position, with pairs never seen."""
    rng = np.random.default_rng(seed)
    A = int(rng.integers(2, 8))
    counts = rng.integers(0 if seed % 3 == 0 else 1, 50, A)
    with np.errstate(divide="ignore"):
        e = np.sqrt(2 * np.log(2 * 50 * A) / counts)
    return rng.normal(size=A), rng.dirichlet(np.ones(A)), e, float(rng.choice([0.1, 0.5, 1, 2]))


def ours(kernel, Q, pi_b, e, epsilon, *stop, lower=False, Qb=None):
    giving = (np.zeros_like(e) if lower else e)[None]
    if kernel is soft_spibb._exact:
        return kernel(Q[None], pi_b[None], giving, e[None], epsilon)[0]
    Qb = np.zeros_like(Q) if Qb is None else Qb
    if kernel is soft_spibb._programme:
        return kernel(Q[None], Qb[None], pi_b[None], giving, e[None], epsilon)[0]
    half = 1.0 if lower else 2.0
    return kernel(Q[None], Qb[None], pi_b[None], giving, e[None], epsilon, half, *stop)[0]


def test_the_approximate_step_is_the_published_one():
    """To the letter with step="published"; with "approximate" wherever it keeps to its budget."""
    over = 0
    for seed in range(2_000):
        row = one_state(seed)
        published, spent = approximate(*row)
        letter = ours(soft_spibb._approximate, *row, False)
        np.testing.assert_allclose(letter, published, rtol=0, atol=1e-12)
        kept = ours(soft_spibb._approximate, *row, True)
        if spent <= row[-1] * (1 + 1e-12):
            np.testing.assert_allclose(kept, published, rtol=0, atol=1e-12)
        else:
            over += 1
    assert 50 < over < 500


def test_the_published_step_may_leave_its_own_constraint_and_ours_does_not():
    """The example of the docstring, by hand: ε = .8, the paper's step costs .9."""
    Q, e = np.array([0.0, 10.0, 1.0]), np.array([1.0, 2.0, 0.5])
    pi_b = np.array([0.9, 0.05, 0.05])
    letter = ours(soft_spibb._approximate, Q, pi_b, e, 0.8, False)
    assert letter == pytest.approx([0.5, 0.25, 0.25])
    assert (e * np.abs(letter - pi_b)).sum() == pytest.approx(0.9)
    kept = ours(soft_spibb._approximate, Q, pi_b, e, 0.8, True)
    assert kept == pytest.approx([0.7 - 0.2 / 1.5, 0.25, 0.05 + 0.2 / 1.5])
    assert (e * np.abs(kept - pi_b)).sum() == pytest.approx(0.8)


def test_the_exact_step_is_the_published_one():
    for seed in range(400):
        row = one_state(seed)
        np.testing.assert_allclose(ours(soft_spibb._exact, *row), exact(*row), rtol=0, atol=1e-12)


def test_the_steps_of_spibb_are_the_published_ones():
    for seed in range(500):
        Q, pi_b, e, _ = one_state(seed)
        free = e < np.median(e[np.isfinite(e)])
        steps = (
            (spibb.keep_rare(Q[None], free[None], pi_b[None], 0.0), keep),
            (spibb._cap(pi_b[None], free[None])(Q[None]), cap),
        )
        for (fast,), slow in steps:
            np.testing.assert_allclose(fast, slow(Q, pi_b, free), rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("step", ["published", "exact"])
def test_soft_spibb_is_the_published_rival(step, epsilon):
    """Known behaviour and δ = 1, as in the authors' experiments: the same policy to 1e-12."""
    moved = 0
    for seed in range(30):
        model = random_model(seed)
        pi_b = np.random.default_rng(seed + 1).dirichlet(np.ones(model.n.shape[1]), len(model.n))
        with np.errstate(divide="ignore"):
            e = np.sqrt(2 * np.log(2 * model.n.size) / model.n)

        def slow(s, Q, pi_b=pi_b, e=e):
            row = (Q, pi_b[s], e[s], epsilon)
            return exact(*row) if step == "exact" else approximate(*row)[0]

        learner = SoftSPIBB(epsilon=epsilon, delta=1, gamma=0.9, step=step, behavior=pi_b)
        pi = learner.plan(model)
        np.testing.assert_allclose(pi, policy_iteration(model, pi_b, slow), rtol=0, atol=1e-12)
        moved += bool(np.abs(pi - pi_b).max() > 1e-3)
    assert moved > 20


@pytest.mark.parametrize("variant", ["b", "leq"])
def test_spibb_is_the_published_rival(variant):
    for seed in range(60):
        model = random_model(seed)
        pi_b = np.random.default_rng(seed + 1).dirichlet(np.ones(model.n.shape[1]), len(model.n))
        free = model.n >= 15

        def slow(s, Q, pi_b=pi_b, free=free):
            return (keep if variant == "b" else cap)(Q, pi_b[s], free[s])

        pi = SPIBB(n_min=15, gamma=0.9, variant=variant, behavior=pi_b).plan(model)
        np.testing.assert_allclose(pi, policy_iteration(model, pi_b, slow), rtol=0, atol=1e-12)


@given(
    st.lists(st.tuples(st.floats(-5, 5), COUNTS, COUNTS), min_size=1, max_size=7),
    st.floats(0, 10),
    st.sampled_from(["approximate", "exact"]),
)
def test_soft_steps_stay_within_the_budget(actions, epsilon, step):
    """∑ e |π - π_b| <= ε in every state, ties, unseen pairs and untaken actions included."""
    Q = np.array([value for value, _, _ in actions])
    counts = np.array([count for _, count, _ in actions])
    weights = np.array([weight for _, _, weight in actions], float)
    pi_b = weights / weights.sum() if weights.any() else np.full(len(Q), 1 / len(Q))
    with np.errstate(divide="ignore"):
        e = np.sqrt(2 * np.log(2 * len(Q) / 0.05) / counts)
    row = (Q, pi_b, e, epsilon)
    if step == "exact":
        pi = ours(soft_spibb._exact, *row)
    else:
        pi = ours(soft_spibb._approximate, *row, True)
    change, seen = np.abs(pi - pi_b), counts > 0
    assert not change[~seen].any()
    assert (change[seen] * e[seen]).sum() <= epsilon * (1 + 1e-12) + 1e-12
    assert pi.sum() == pytest.approx(1, abs=1e-12)
    assert (pi >= 0).all()
    assert ((pi - pi_b) * Q).sum() >= -1e-12


# -- Scholl et al. 2022 ----------------------------------------------------------------------------


def lower_or_advantageous(Q, pi_b, e, epsilon, lower, Qb):
    """The exact steps in one state, as linear programmes over π and what it gains and loses."""
    A, seen = len(Q), np.isfinite(e)
    eye, zero = np.eye(A), np.zeros((A, A))
    finite = np.where(seen, e, 0.0)
    rows = [np.concatenate([np.zeros(A), finite, 0 * finite if lower else finite])]
    limits = [epsilon]
    rows += [*np.hstack([eye, -eye, zero]), *np.hstack([-eye, zero, -eye])]
    limits += [*pi_b, *-pi_b]
    if Qb is not None:
        rows.append(np.concatenate([-Qb, np.zeros(2 * A)]))
        limits.append(-Qb @ pi_b)
    mass = [(0, None) if known else (p, p) for known, p in zip(seen, pi_b, strict=True)]
    answer = linprog(
        np.concatenate([-Q, np.zeros(2 * A)]), A_ub=rows, b_ub=limits,
        A_eq=[np.concatenate([np.ones(A), np.zeros(2 * A)])], b_eq=[1.0],
        bounds=mass + [(0, None)] * (2 * A),
    )  # fmt: skip
    assert answer.status == 0
    return -answer.fun


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("advantageous", [False, True])
def test_lower_and_advantageous_steps(lower, advantageous):
    """The exact one against its programme; the approximate one within the constraints, and close."""
    share = []
    for seed in range(60):
        Q, pi_b, e, epsilon = one_state(seed)
        Qb = np.random.default_rng(seed + 10_000).normal(size=len(Q)) if advantageous else None
        kernel = soft_spibb._programme if advantageous else soft_spibb._exact
        best = ours(kernel, Q, pi_b, e, epsilon, lower=lower, Qb=Qb)
        near = ours(soft_spibb._approximate, Q, pi_b, e, epsilon, True, lower=lower, Qb=Qb)
        top = lower_or_advantageous(Q, pi_b, e, epsilon, lower, Qb)
        assert best @ Q == pytest.approx(top, abs=1e-7)
        for pi in (best, near):
            change, seen = pi - pi_b, np.isfinite(e)
            paid = np.maximum(change, 0) if lower else np.abs(change)
            assert not change[~seen].any()
            assert (paid[seen] * e[seen]).sum() <= epsilon + 1e-7
            assert pi.sum() == pytest.approx(1, abs=1e-9)
            assert Qb is None or change @ Qb >= -1e-7
        gain = (best - pi_b) @ Q
        assert -1e-9 <= (near - pi_b) @ Q <= gain + 1e-7
        share.append((near - pi_b) @ Q / gain if gain > 1e-6 else 1.0)
    assert np.mean(share) > (0.8 if advantageous else 0.9)


def test_variants_of_soft_spibb_are_found_in_the_model():
    model = random_model(3)
    values = {}
    for step, limit, advantageous in itertools.product(
        ("exact", "approximate"), ("both", "raised"), (False, True)
    ):
        learner = SoftSPIBB(
            epsilon=1.0, gamma=0.9, step=step, limit=limit, advantageous=advantageous
        )
        pi = learner.plan(model)
        values[step, limit, advantageous] = float(model.mdp.start @ model.mdp.state_values(pi))
        if advantageous:
            Qb = model.mdp.action_values(model.mdp.state_values())
            change = np.where(model.seen, Qb, 0) * (pi - model.mdp.behavior)
            assert change.sum(axis=1).min() >= -1e-7
    usual = model.mdp.value()
    assert all(value >= usual - 1e-9 for value in values.values())
    assert values["exact", "raised", False] >= values["exact", "both", False] - 1e-9
    assert values["exact", "both", True] <= values["exact", "both", False] + 1e-9


# -- penalties and worst cases ---------------------------------------------------------------------


def policies(model):
    """Every deterministic policy among seen pairs, as choices (S,)."""
    options = [np.flatnonzero(row) if row.any() else [0] for row in model.seen]
    return map(np.array, itertools.product(*options))


def small_model(seed):
    """Three states and two or three actions, so that every policy can be tried."""
    rng = np.random.default_rng(seed)
    A = int(rng.integers(2, 4))
    P = rng.dirichlet(np.ones(4), 3 * A)[:, :3]
    R = rng.normal(size=(3, A))
    n = rng.integers(0, 12, (3, A))
    n[:, 0] += 1
    b = n / n.sum(axis=1, keepdims=True)
    P[n.ravel() == 0], R[n == 0] = 0.0, 0.0
    mdp = FiniteMDP("small", (0, 1, 2), tuple(range(A)), sparse.csr_array(P), R, R,
                    np.full(3, 1 / 3), b, 0.9)  # fmt: skip
    return Model(mdp, n)


def value_of(P, R, choice, gamma=0.9):
    """V of a deterministic policy, by solving its equations."""
    S, A = R.shape
    rows = P.reshape(S, A, S)[np.arange(S), choice]
    return np.linalg.solve(np.eye(S) - gamma * rows, R[np.arange(S), choice])


@pytest.mark.parametrize("seed", range(12))
def test_penalties_against_all_policies(seed):
    model = small_model(seed)
    P = model.mdp.P.toarray()
    mopo = MOPO(gamma=0.9, lam=0.3)
    V = model.mdp.state_values()
    scale = max(np.ptp(V), np.abs(V).max())
    for learner, penalty in (
        (RaMDP(gamma=0.9, kappa=0.7), 0.7 / np.sqrt(np.maximum(model.n, 1))),
        (mopo, 0.3 * scale * mopo.disagreement(model)),
    ):
        pi = learner.plan(model)
        mine = value_of(P, model.mdp.R - penalty, pi.argmax(axis=1))
        every = [value_of(P, model.mdp.R - penalty, choice) for choice in policies(model)]
        assert (mine >= np.max(every, axis=0) - 1e-9).all()
        assert model.seen[np.arange(3), pi.argmax(axis=1)].all()
    assert np.array_equal(RaMDP(gamma=0.9, kappa=0.0).plan(model), RL(gamma=0.9).plan(model))


def test_models_disagree_less_where_more_was_seen():
    model = small_model(1)
    many = Model(model.mdp, 400 * model.n)
    few, sure = (MOPO(gamma=0.9, models=40).disagreement(m)[model.seen] for m in (model, many))
    assert (sure < few / 3).all()
    assert few.max() <= 2
    # the mean L1 error of a posterior falls with the root of the count, up to a constant
    assert np.allclose(sure * np.sqrt(many.n[model.seen]), 2.2, atol=1.6)


@pytest.mark.parametrize("seed", range(8))
def test_r_min_against_all_policies_that_may_give_up(seed):
    model, n_min, floor = small_model(seed), 4, -1.5 / (1 - 0.9)
    P, A = model.mdp.P.toarray().reshape(3, -1, 3), model.n.shape[1]
    P = np.concatenate((P, np.zeros((3, 1, 3))), axis=1)  # giving up is one more action
    R = np.column_stack((model.mdp.R, np.full(3, floor)))
    known = np.column_stack((model.n >= n_min, np.ones(3, bool)))
    every = [
        value_of(P.reshape(-1, 3), R, np.array(choice))
        for choice in itertools.product(*[np.flatnonzero(row) for row in known])
    ]
    best = np.max(every, axis=0)
    pi = RMin(n_min=n_min, gamma=0.9, r_min=-1.5).plan(model)
    choice = np.where((pi.max(axis=1) == 1) & known[np.arange(3), pi.argmax(axis=1)],
                      pi.argmax(axis=1), A)  # fmt: skip
    assert np.allclose(value_of(P.reshape(-1, 3), R, choice), best, atol=1e-9)
    with pytest.raises(ParameterError, match="gamma = 1"):
        RMin(n_min=4, gamma=1.0, r_min=-1.0)


def worst(p, V, e):
    """min P·V over distributions within e of p in L1; p and V end with END."""
    k = len(p)
    eye = np.eye(k)
    answer = linprog(
        np.concatenate([V, np.zeros(k)]),
        A_ub=[np.concatenate([np.zeros(k), np.ones(k)]), *np.hstack([eye, -eye]),
              *np.hstack([-eye, -eye])],
        b_ub=[e, *p, *-p], A_eq=[np.concatenate([np.ones(k), np.zeros(k)])], b_eq=[1.0],
    )  # fmt: skip
    return answer.fun


@pytest.mark.parametrize("learner", [RobustMDP, MBIE])
@pytest.mark.parametrize(
    ("c", "seeds"),
    [(0.3, 1), *(pytest.param(c, 4, marks=pytest.mark.slow) for c in (0.0, 0.05, 1.0))],
)
def test_the_robust_plan_is_a_fixed_point_of_worst_distributions(learner, c, seeds):
    for seed in range(seeds):
        model = small_model(seed)
        pi = learner(gamma=0.9, delta=0.2, c=c).plan(model)
        P = np.column_stack((model.mdp.P.toarray(), 1 - model.mdp.P.sum(axis=1)))
        n, R, pairs = np.maximum(model.n, 1), model.mdp.R, model.n.size
        e = c * np.sqrt(2 * (np.log(pairs / 0.2) + 3 * np.log(2)) / n)
        if learner is MBIE:  # Strehl and Littman, Eq. 1 and 2, with δ/2 for rewards, (S + 1) ends
            level = 0.2 / (2 * pairs)
            R = R - c * np.ptp(R[model.seen]) * np.sqrt(np.log(2 / level) / (2 * n))
            e = c * np.sqrt(2 * (np.log(2**4 - 2) - np.log(level)) / n)
        V = np.zeros(4)
        for _ in range(150):
            q = R + 0.9 * np.array([
                [worst(P[s * model.n.shape[1] + a], V, min(e[s, a], 2)) if model.seen[s, a] else 0
                 for a in range(model.n.shape[1])] for s in range(3)
            ])  # fmt: skip
            new = np.append(np.where(model.seen, q, -np.inf).max(axis=1), 0.0)
            if np.abs(new - V).max() < 1e-5:
                break
            V = new
        gap = np.where(model.seen, q, -np.inf).max(axis=1) - q[np.arange(3), pi.argmax(axis=1)]
        assert (gap <= 1e-3).all()
        if c == 0:
            assert np.array_equal(pi, RL(gamma=0.9).plan(model))


def test_mbie_fears_rewards_that_were_seen_once_by_as_much_as_they_can_differ():
    """One state whose actions end it: 1.1 seen 4 times against 1.0 seen 100 times, by hand."""
    R, n = np.array([[1.0, 1.1]]), np.array([[100, 4]])
    mdp = FiniteMDP("one", ("s",), ("a", "b"), sparse.csr_array((2, 1)), R, R, np.ones(1),
                    n / n.sum(), 0.9)  # fmt: skip
    # b is better by .1 as long as  c span (sqrt(x/8) - sqrt(x/200)) < .1,  x = ln(2·4/.05)
    edge = 0.1 / (np.sqrt(np.log(160) / 8) - np.sqrt(np.log(160) / 200))
    for span, best in ((0.99 * edge, 1), (1.01 * edge, 0)):
        assert MBIE(gamma=0.9, span=span).plan(Model(mdp, n)).argmax() == best
    with pytest.raises(ParameterError, match="span"):
        MBIE(gamma=0.9, span=-1.0)


def test_duipi_in_closed_form_and_as_planned_for_without_doubt():
    """One state, two actions that end with rewards known: no variance but that of the ending."""
    for bayesian in (False, True):
        model = random_model(5)
        calm = DUIPI(gamma=0.9, xi=0.0, bayesian=bayesian, alpha=1e-9).plan(model)
        assert np.array_equal(calm.argmax(axis=1), RL(gamma=0.9).plan(model).argmax(axis=1))
    R, n = np.array([[1.0, 1.1]]), np.array([[100, 4]])
    mdp = FiniteMDP("one", ("s",), ("a", "b"), sparse.csr_array((2, 1)), R, R, np.ones(1),
                    n / n.sum(), 0.9)  # fmt: skip
    model = Model(mdp, n)
    # Dirichlet over {s, END}: var P = a (a0 - a) / (a0² (a0 + 1)), times (R + γ V)² and R²
    P, spread = DUIPI(gamma=0.9, bayesian=True, alpha=1.0)._chances(model)
    assert P.tolist() == pytest.approx(np.array([[1 / 102, 101 / 102], [1 / 6, 5 / 6]]))
    assert spread[1] == pytest.approx([5 / (36 * 7), 5 / (36 * 7)])
    assert DUIPI(gamma=0.9, bayesian=True, alpha=1.0, xi=0.0).plan(model).argmax() == 1
    assert DUIPI(gamma=0.9, bayesian=True, alpha=1.0, xi=1.0).plan(model).argmax() == 0


def test_duipi_refuses_what_its_table_cannot_hold(monkeypatch):
    monkeypatch.setattr(robust, "DENSE", 10)
    with pytest.raises(ParameterError, match="too many for DUIPI"):
        DUIPI(gamma=0.9).plan(random_model(5))


def test_hcpi_is_its_definition_and_falls_back_to_practice():
    from scipy.stats import t as student

    world = envs.care_pathway()
    log = world.sample(4_000, seed=0)
    learner = HCPI(gamma=1.0, behavior=world.behavior)
    X = np.random.default_rng(0).exponential(size=30)
    low = X.mean() - student.ppf(0.95, 29) * X.std(ddof=1) / np.sqrt(30)
    assert learner._low(X, 30, 1.0) == pytest.approx(low)
    sure = HCPI(gamma=1.0, bound="concentration", value_range=(0, 1), delta=0.1)
    Y = np.minimum(X, 2.0)
    by_hand = Y.mean() - 14 * np.log(20) / 87 - np.sqrt(2 * np.log(20) * Y.var(ddof=1) / 30)
    assert sure._low(X, 30, 2.0) == pytest.approx(by_hand)
    assert world.value(learner.fit(log)) >= world.value()
    usual = estimate(log, 1.0).mdp.behavior
    assert np.array_equal(sure.fit(log).pi, usual)  # its bound asks for more episodes than these
    with pytest.raises(ParameterError, match="value_range"):
        HCPI(gamma=1.0, bound="concentration")


def test_the_concentration_bound_of_hcpi_holds():
    learner = HCPI(gamma=1.0, bound="concentration", value_range=(0, 1), delta=0.2)
    rng = np.random.default_rng(1)
    wrong = sum(
        learner._low(rng.choice([0.0, 8.0], 60, p=[0.9, 0.1]), 60, c=8.0) > 0.8 for _ in range(400)
    )
    assert wrong <= 0.2 * 400
