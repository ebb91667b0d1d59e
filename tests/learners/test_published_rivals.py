"""The rivals against slow rewrites of the steps as their papers describe them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from dprl.learners.baselines import SPIBB, SoftSPIBB, soft_spibb, spibb
from dprl.planning.finite_mdp import FiniteMDP
from dprl.planning.model import Model

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


def ours(kernel, Q, pi_b, e, epsilon, *stop):
    return kernel(Q[None], pi_b[None], e[None], epsilon, *stop)[0]


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
