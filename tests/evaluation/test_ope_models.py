"""What evaluation learns from a log: fitted Q, and the behaviour."""

from __future__ import annotations

import numpy as np
import pytest
from small_world import DEFERRING, GAMMA, small_world, target

import dprl
from conftest import random_episodes, to_log
from dprl.errors import LogError, ParameterError
from dprl.evaluation.values import Values, evaluate_q, label_values
from dprl.evidence.behavior import folds_of
from dprl.policies.held_out import PolicyAtSteps, acts

# -- fitted Q -----------------------------------------------------------------------------------


def dense_q(log, said, gamma):
    """The equations of the module's docstring, solved densely over seen pairs."""
    A = len(said.actions)
    s, a = log.codes(), log.action
    pairs = sorted(set(zip(s.tolist(), a.tolist(), strict=True)))
    place = {p: i for i, p in enumerate(pairs)}
    M, b, n = np.zeros((len(pairs),) * 2), np.zeros(len(pairs)), np.zeros(len(pairs))
    ends = set((log.starts[1:] - 1).tolist())
    for i in range(log.n_steps):
        p = place[s[i], a[i]]
        n[p] += 1
        b[p] += log.reward[i]
        if i in ends:
            continue
        row = said.row[i + 1]
        if not said.acts[row]:
            M[p, place[s[i + 1], a[i + 1]]] += 1
            continue
        for act in range(A):
            to = (s[i + 1], act)
            M[p, place.get(to, place[s[i + 1], a[i + 1]])] += said.pi[row, act]
    return pairs, np.linalg.solve(np.eye(len(pairs)) - gamma * M / n[:, None], b / n)


@pytest.mark.parametrize("seed", range(8))
def test_fqe_against_a_linear_solve(seed):
    log = to_log(random_episodes(seed))
    rng = np.random.default_rng(seed)
    S, A = log.n_states, log.n_actions
    speaks = rng.random(S) < 0.5
    pi = np.where(speaks[:, None], rng.dirichlet(np.ones(A), S), 0.0)
    if seed % 2:
        pi = np.where(speaks[:, None], np.eye(A)[rng.integers(0, A, S)], 0.0)
    said = PolicyAtSteps(pi, speaks, None, log.codes().astype(np.int64), log.actions)
    N = log.n_steps
    found = Values(np.full(N, np.nan), np.full(N, np.nan), np.zeros(N, bool))
    learned = label_values(log, said, 0.9, np.ones(N, bool))
    learned.at(log, said, np.arange(N), found.Q, found.V, found.guessed)
    pairs, Q = dense_q(log, said, 0.9)
    table = dict(zip(pairs, Q, strict=True))
    usual = {s: np.mean([table[s, a] for t, a in zip(log.codes(), log.action, strict=True) if t == s])
             for s in range(S) if (log.codes() == s).any()}  # fmt: skip
    for i in range(log.n_steps):
        s, a = int(log.codes()[i]), int(log.action[i])
        assert found.Q[i] == pytest.approx(table[s, a], abs=1e-9)
        v = table[s, a]
        if speaks[s]:
            v = sum(pi[s, b] * table.get((s, b), usual[s]) for b in range(A))
            assert found.guessed[i] == any(pi[s, b] > 0 and (s, b) not in table for b in range(A))
        assert found.V[i] == pytest.approx(v, abs=1e-9)


def test_fqe_finds_the_truth_in_a_large_log():
    mdp = small_world()
    log = mdp.sample(60_000, seed=0)
    pi, speaks = target(mdp, DEFERRING)
    said = PolicyAtSteps(np.where(speaks[:, None], pi, 0), speaks, None, log.codes().astype(np.int64),
                  log.actions)  # fmt: skip
    found = evaluate_q(log, said, GAMMA)
    Q = mdp.action_values(mdp.state_values(pi))
    assert np.abs(found.Q - Q[log.codes(), log.action]).max() < 0.03


def test_fqe_does_not_hear_the_step_itself():
    """Values of a fold come from the other folds: change its rewards, and they stay."""
    mdp = small_world()
    log = mdp.sample(50, seed=0)
    said = acts(dprl.DPRLDiscrete(n_min=2, gamma=GAMMA, contrast=False).fit(log), log)
    fold = np.repeat(folds_of(log, 5, 0), log.lengths)
    before = evaluate_q(log, said, GAMMA)
    other = dprl.Log(
        starts=log.starts, action=log.action, reward=log.reward + 10.0 * (fold == 2),
        actions=log.actions, state=log.state, states=log.states,
    )  # fmt: skip
    after = evaluate_q(other, said, GAMMA)
    assert (before.Q[fold == 2] == after.Q[fold == 2]).all()
    assert (before.Q[fold == 1] != after.Q[fold == 1]).any()


# -- behaviour ----------------------------------------------------------------------------------


def test_behaviour_by_counts_against_its_definition():
    log = to_log(random_episodes(4))
    known = dprl.Behavior.fit(log, folds=3, seed=1)
    fold = np.repeat(folds_of(log, 3, 1), log.lengths)
    s, a, A = log.codes(), log.action, log.n_actions
    for i in range(log.n_steps):
        others = (fold != fold[i]) & (s == s[i])
        n = np.bincount(a[others], minlength=A)
        assert known.table[known.row[i]] == pytest.approx((n + 1 / A) / (n.sum() + 1))
    assert known.took() == pytest.approx(known.table[known.row, a])


def test_folds_never_tear_a_group_apart():
    frame = {
        "episode": list(range(40)),
        "state": [0] * 40,
        "action": [0] * 40,
        "reward": [0.0] * 40,
    }
    log = dprl.from_arrays(**frame, group=[i // 4 for i in range(40)])
    fold = folds_of(log, 5, 0)
    for g in range(10):
        assert len(set(fold[log.group == g].tolist())) == 1
    assert np.bincount(fold).tolist() == [8] * 5
    with pytest.raises(LogError, match="1 group cannot be cross-fitted"):
        folds_of(log.take([0]), 5, 0)
    with pytest.raises(ParameterError, match="folds"):
        folds_of(log, 1, 0)


def test_calibration_tells_a_good_behaviour_from_a_bad_one():
    mdp = small_world()
    log = mdp.sample(5_000, seed=0)
    good, bad = dprl.Behavior.fit(log), dprl.Behavior.given(log, 1 - mdp.behavior)
    true = dprl.Behavior.given(log, mdp.behavior)
    assert true.misplaced < 0.02
    assert good.misplaced < 0.02
    assert bad.misplaced > 0.3
    assert true.log_loss < bad.log_loss
    table = true.calibration()
    assert sum(table["happened"]) == log.n_steps
    assert sum(table["times"]) == log.n_steps * 2
    per_step = dprl.Behavior.given(log, mdp.behavior[log.codes()])
    assert per_step.misplaced == pytest.approx(true.misplaced)
    assert (per_step.took() == true.took()).all()


def test_a_behaviour_that_contradicts_the_log_is_refused():
    log = small_world().sample(20, seed=0)
    never = np.eye(2)[[0, 0, 0]]
    with pytest.raises(LogError, match="took an action that the behaviour given never takes"):
        dprl.Behavior.given(log, never)
    for bad in (np.ones((3, 2)), np.full((2, 2), 0.5), np.full(3, 1.0)):
        with pytest.raises(ParameterError, match="distributions of shape"):
            dprl.Behavior.given(log, bad)
