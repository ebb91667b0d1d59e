"""Draws in the place of the inverse: never too sure, whatever they are solved to."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy import sparse

import dprl
from dprl._core import linear as blocks
from dprl._core.linear import solve_above
from dprl.errors import PlanError
from dprl.evidence.counts import count
from dprl.planning import advantages
from dprl.planning.advantages import Noise, over_usual
from dprl.planning.model import count_transitions
from dprl.planning.sure_iteration import PlanModel

GAMMA = 0.95


def model(log, *, dense=1, gamma=GAMMA, **settings):
    groups = count(log, gamma)[0].pair.n
    return PlanModel(count_transitions(log), groups, gamma, groups >= 3, dense=dense, **settings)


def walk(S=40, A=3, episodes=400, seed=0):
    """Trajectories among S states, ten steps each; action 2 pays more in even states."""
    rng = np.random.default_rng(seed)
    following, state = rng.integers(S, size=(S, A, 3)), rng.integers(S, size=episodes)
    states, actions, rewards = [], [], []
    for _ in range(10):
        action = rng.integers(A, size=episodes)
        states.append(state)
        actions.append(action)
        rewards.append(((action == 2) & (state % 2 == 0)) + rng.standard_normal(episodes))
        state = following[state, action, rng.integers(3, size=episodes)]
    return dprl.from_arrays(
        episode=np.repeat(np.arange(episodes), 10), state=np.stack(states, 1).ravel(),
        action=np.stack(actions, 1).ravel(), reward=np.stack(rewards, 1).ravel(),
    )  # fmt: skip


def matrix(n=300, loss=0.1, seed=0):
    rng = np.random.default_rng(seed)
    some = np.where(rng.random((n, n)) < 0.03, rng.random((n, n)), 0.0)
    A = sparse.csr_array(some + np.eye(n))
    rows = np.repeat(np.arange(n), np.diff(A.indptr))
    A.data *= (1 - loss) / np.asarray(A.sum(axis=1))[rows]
    return A


def in_columns(X):
    return X.transpose(1, 0, 2).reshape(X.shape[1], -1).astype(float)


@pytest.mark.parametrize("tolerance", [0.5, 1e-2, 1e-4, 1e-12])
@pytest.mark.parametrize("loss", [0.1, 1e-4])
@pytest.mark.parametrize("warm", [False, True])
def test_what_a_solution_lacks_is_bounded_row_by_row(tolerance, loss, warm):
    A, rng = matrix(loss=loss), np.random.default_rng(1)
    size = 10.0 ** rng.uniform(-3, 0, 300)
    B = (rng.standard_normal((2, 300, 8)) * size[:, None]).astype(np.float32)
    start = rng.standard_normal((2, 300, 8)).astype(np.float32) if warm else None
    X, left = blocks.solve_blocks(A, B, start, tolerance)
    exact = np.linalg.solve(np.eye(300) - A.toarray(), in_columns(B))
    off = np.sqrt(((in_columns(X) - exact) ** 2).mean(axis=1))
    bound = solve_above(A, left)
    assert (off <= bound).all()
    if tolerance <= 1e-2:
        goal = tolerance * np.sqrt((in_columns(B) ** 2).sum(axis=0).max() / 300)
        assert np.sqrt((left**2).mean()) <= 1.1 * goal + 3e-6 * np.abs(exact).max()


@pytest.mark.parametrize("loss", [0.5, 1e-3, 1e-6])
def test_solve_above_is_above(loss):
    A = matrix(loss=loss)
    b = 10.0 ** np.random.default_rng(2).uniform(-6, 2, 300)
    exact = np.linalg.solve(np.eye(300) - A.toarray(), b)
    x = solve_above(A, b)
    assert (x >= exact * (1 - 1e-9)).all()
    assert x.mean() <= 1.2 * exact.mean()
    assert not solve_above(A, np.zeros(300)).any()


def test_bits_do_not_depend_on_threads(monkeypatch):
    log = walk()
    made = []
    for cores in (1, 2, 3, 8):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        made.append(model(log).usual.drawn)
    for other in made[1:]:
        assert (other.z == made[0].z).all()
        assert (other.missing == made[0].missing).all()


def drawn_exactly(here):
    """Standard errors from the same draws, solved by a dense inverse."""
    noise, table = here.drawn.noise, here.table
    P = table.P().toarray() * here.gamma
    usual = (table.b * here.Q).sum(axis=1, keepdims=True)
    of_b = (table.b * (here.Q - usual) ** 2).sum(axis=1) / np.maximum(table.visits, 1)
    of_b[here.choice >= 0] = 0.0
    own = np.sqrt(here.e).ravel()[:, None] * in_columns(noise.pair)
    u = (here.pi.ravel()[:, None] * own).reshape(*here.pi.shape, -1).sum(axis=1)
    u += np.sqrt(of_b)[:, None] * in_columns(noise.state)
    z = np.linalg.solve(np.eye(len(u)) - here.A.toarray(), u)
    draws = own + P @ z - np.repeat(z, here.pi.shape[1], axis=0)
    return np.sqrt((draws**2).mean(axis=1) / noise.shrink).reshape(here.pi.shape)


@pytest.mark.parametrize("coarse", [0.02, 0.5, 1e-5])
def test_a_coarse_solution_only_makes_errors_larger(coarse, monkeypatch):
    monkeypatch.setattr(advantages, "COARSE", coarse)
    log = walk()
    workshop = model(log)
    first = np.where(workshop.eligible.any(axis=1), workshop.eligible.argmax(axis=1), -1)
    for here in (workshop.usual, workshop.evaluate(first, workshop.usual)):
        seen = here.table.n > 0
        se, solved = here.errors(np.where(seen, 0.0, np.inf), skip=False)
        assert solved == seen.sum()
        exact = drawn_exactly(here)
        assert (se >= exact * (1 - 1e-6))[seen].all()
        if coarse <= 0.02:
            varies = seen & (exact > 0)
            assert np.median(se[varies] / exact[varies]) <= 1 + 3 * coarse + 1e-3


def test_errors_by_draws_are_those_of_the_inverse_but_never_smaller():
    log = walk()
    sketched, inverted = model(log), model(log, dense=10_000)
    choice = np.where(sketched.eligible.any(axis=1), sketched.eligible.argmax(axis=1), -1)
    for one, two in (
        (sketched.usual, inverted.usual),
        (sketched.evaluate(choice, sketched.usual), inverted.evaluate(choice)),
    ):
        (a, se), (b, exact) = over_usual(one), over_usual(two)
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
        assert (np.isnan(se) == np.isnan(exact)).all()
        seen = exact > 0
        ratio = se[seen] / exact[seen]
        assert ratio.min() >= 1 - 1e-9
        assert 1.2 < np.median(ratio) < 1.7


def test_leaving_out_pairs_that_cannot_pass_changes_nothing():
    log = walk()
    one, two = (model(log, skip=skip).iterate(0.25) for skip in (True, False))
    assert (one[0].choice == two[0].choice).all()
    assert one[2] < two[2]


def test_errors_are_held_while_policies_change_and_hold_at_the_end(monkeypatch):
    doubt, drawn, of = 0.5, [], advantages.Drawn.of
    monkeypatch.setattr(advantages.Drawn, "of", lambda *a: drawn.append(1) or of(*a))
    made = model(walk(S=120, episodes=2_000))
    drawn.clear()
    settled, rounds, _, _ = made.iterate(doubt)
    assert 0 < len(drawn) < rounds  # not as many draws as policies
    anew, bars = made.evaluate(settled.choice), made.kappa(doubt)
    at = np.flatnonzero(settled.choice >= 0)
    bars[at, settled.choice[at]] = np.inf
    se, _ = anew.errors(bars, skip=False)
    with np.errstate(invalid="ignore"):
        low = anew.delta - bars * se
    assert np.nanmax(low) < 1e-3  # nothing is surely better; draws are solved to a few digits


@pytest.mark.parametrize("unit", [2.0**-400, 2.0**-60, 2.0**60, 2.0**400])
def test_the_unit_of_rewards_does_not_matter(unit):
    log = walk()
    other = dprl.Log(
        starts=log.starts, state=log.state, action=log.action, reward=log.reward * unit,
        states=log.states, actions=log.actions, ended=log.ended,
    )  # fmt: skip
    exact = [model(part, dense=10_000).iterate(0.25)[0].choice for part in (log, other)]
    assert (exact[0] == exact[1]).all()
    one, two = model(log).iterate(0.25)[0], model(other).iterate(0.25)[0]
    assert (one.choice == two.choice).all()
    assert (one.choice >= 0).any()
    np.testing.assert_array_equal(over_usual(one)[1] * unit, over_usual(two)[1])


def test_double_precision_where_single_precision_is_not_enough(monkeypatch):
    log = walk()
    plain = model(log).usual
    monkeypatch.setattr(advantages, "FINEST", 1.0)
    fine = model(log).usual
    se = {}
    for name, here in (("plain", plain), ("fine", fine)):
        se[name] = here.errors(np.where(here.table.n > 0, 0.0, np.inf), skip=False)[0]
    seen = plain.table.n > 0
    exact = drawn_exactly(fine)
    assert (se["fine"] >= exact * (1 - 1e-7))[seen].all()
    assert (se["fine"] <= se["plain"] * (1 + 1e-6))[seen].all()
    np.testing.assert_allclose(se["fine"][seen], exact[seen], rtol=1e-4)


def test_nothing_varies():
    log = dprl.from_arrays(
        episode=np.repeat(np.arange(20), 2), state=[0, 1] * 20, action=[0, 0] * 10 + [1, 0] * 10,
        reward=np.zeros(40),
    )  # fmt: skip
    here = model(log).usual
    se, _ = here.errors(np.zeros(here.pi.shape), skip=False)
    assert not np.nan_to_num(se).any()


def test_a_model_that_never_ends_is_refused_without_discount():
    """Its values are 0, since rewards cancel, but their errors have no size."""
    log = dprl.from_arrays(
        episode=np.repeat(np.arange(6), 3), state=[0, 1, 0] * 6, action=[0, 1, 0] * 6,
        reward=np.tile([1.0, -1.0, 0.0, -1.0, 1.0, 0.0], 3), ended=[False] * 18,
    )  # fmt: skip
    table = count_transitions(log)
    groups = table.n
    with pytest.raises(PlanError, match="nothing ever"):
        PlanModel(table, groups, 1.0, groups > 0, dense=1)


def test_models_of_the_same_states_share_their_draws():
    log = dprl.envs.rooms().sample(20, seed=0)
    first = model(log)
    second = model(log, noise=first.noise)
    assert second.noise is first.noise
    assert (second.usual.drawn.z == first.usual.drawn.z).all()


def test_draws_are_rounded_up_to_whole_blocks():
    noise = Noise.draw(3, 2, draws=40)
    assert noise.pair.shape == (2, 6, blocks.WIDTH)
    assert noise.state.shape == (2, 3, blocks.WIDTH)
    assert 0 < noise.shrink < 1


def test_cells_are_those_of_a_dictionary():
    rng = np.random.default_rng(3)
    log = dprl.Log(
        starts=np.arange(0, 601, 6), state=rng.integers(5, size=600), action=rng.integers(3, size=600),
        reward=rng.integers(4, size=600).astype(float), states=range(6), actions=range(3),
        ended=np.where(np.arange(100) % 3, 1, 2),
    )  # fmt: skip
    cells = {}
    for t in range(600):
        last = t % 6 == 5
        if not (last and log.ended[t // 6] == 2):
            after = 6 if last else int(log.state[t + 1])
            key = (int(log.state[t]), int(log.action[t]), after)
            cells.setdefault(key, []).append(log.reward[t])
    table, keys = count_transitions(log), sorted(cells)
    assert table.next.tolist() == [key[2] for key in keys]
    assert table.count.tolist() == [len(cells[key]) for key in keys]
    np.testing.assert_allclose(table.mean, [np.mean(cells[key]) for key in keys])
    np.testing.assert_allclose(
        table.spread, [np.var(cells[key]) * len(cells[key]) for key in keys], atol=1e-12
    )
    assert table.lowest.tolist() == [min(cells[key]) for key in keys]
    assert table.highest.tolist() == [max(cells[key]) for key in keys]
    pairs = [key[0] * 3 + key[1] for key in keys]
    assert table.first.tolist() == np.searchsorted(pairs, np.arange(19)).tolist()
    assert table.n.sum() == table.count.sum()
