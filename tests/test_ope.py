"""Off-policy evaluation: against enumeration, against slow code, and on what goes wrong."""

from __future__ import annotations

import dataclasses
import itertools
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import dprl
from conftest import random_episodes, to_log
from dprl.behavior import folds_of
from dprl.envs.mdp import FiniteMDP
from dprl.errors import CutWarning, LogError, ParameterError, PolicyError
from dprl.estimators import ESTIMATORS, _resample, _weigh, weigh
from dprl.fqe import evaluate_q, tables
from dprl.spoken import Spoken, spoken
from dprl.stochastic import StochasticPolicy
from test_gate_cells import LEARNER, UNIT, ward

GAMMA = 0.9


# -- a small world, all of whose trajectories can be written down ------------------------------


def small_world(gamma=GAMMA):
    """Three states, two actions, at most four steps (the last state always ends)."""
    rng = np.random.default_rng(3)
    S, A = 3, 2
    P = np.zeros((S, A, S))
    P[0, 0] = [0.0, 0.5, 0.3]
    P[0, 1] = [0.0, 0.2, 0.6]
    P[1, 0] = [0.0, 0.0, 0.7]
    P[1, 1] = [0.0, 0.0, 0.4]
    R = np.round(rng.normal(size=(S, A)), 2)
    behavior = np.array([[0.7, 0.3], [0.4, 0.6], [0.8, 0.2]])
    return FiniteMDP(
        "small", (0, 1, 2), ("a", "b"), sparse.csr_array(P.reshape(S * A, S)), R, R,
        np.array([0.6, 0.3, 0.1]), behavior, gamma,
    )  # fmt: skip


def trajectories(mdp):
    """Every trajectory of the behaviour: (probability, [(s, a, r)])."""
    P = mdp.P.toarray().reshape(*mdp.R.shape, -1)
    found = []

    def go(s, chance, path):
        for a in range(mdp.R.shape[1]):
            p, now = chance * mdp.behavior[s, a], [*path, (s, a, mdp.R[s, a])]
            ends = 1 - P[s, a].sum()
            if ends > 1e-12:
                found.append((p * ends, now))
            for s2 in np.flatnonzero(P[s, a]):
                go(int(s2), p * P[s, a, s2], now)

    for s in np.flatnonzero(mdp.start):
        go(int(s), mdp.start[s], [])
    assert abs(sum(p for p, _ in found) - 1) < 1e-12
    return found


def columns(paths):
    starts = np.concatenate(([0], np.cumsum([len(p) for p in paths])))
    s, a, r = (np.array(x) for x in zip(*itertools.chain.from_iterable(paths), strict=True))
    return starts, s, a, r.astype(float)


DEFERRING = np.array([1, -1, 0])  # b in state 0, silent in state 1, a in state 2
MIXED = np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])


def target(mdp, choice):
    """π with the behaviour where it defers, and where it speaks."""
    pi = mdp.behavior.copy()
    speaks = choice >= 0
    pi[speaks] = np.eye(2)[choice[speaks]]
    return pi, speaks


def expected(mdp, pi, speaks, *, wrong_behavior=False, Q=None):
    """The exact expectation of every estimate: all trajectories, each with its probability."""
    chances, paths = zip(*trajectories(mdp), strict=True)
    starts, s, a, r = columns(paths)
    b = mdp.behavior if not wrong_behavior else np.full_like(mdp.behavior, 0.5)
    ratio = np.where(speaks[s], pi[s, a] / b[s, a], 1.0)
    Q = np.zeros_like(mdp.R) if Q is None else Q
    V = np.where(speaks[s], (pi * Q).sum(axis=1)[s], Q[s, a])
    w = weigh(
        starts, np.arange(len(paths), dtype=np.int32), r, mdp.gamma, ratio, speaks[s], Q[s, a], V
    )
    return dict(zip((*ESTIMATORS, "behavior"), w.estimates(np.array([chances]))[0], strict=True))


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
        assert found["behavior"] == pytest.approx(mdp.value(), abs=1e-12)
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

    out = dict.fromkeys((*ESTIMATORS, "behavior"), 0.0)
    for e, c in enumerate(counts):
        G = sum(gamma**t * r for t, r in enumerate(paths[e]))
        out["behavior"] += c * G / n
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
    weighted = weigh(*problem)
    rng = np.random.default_rng(seed)
    counts = np.stack([np.ones(group.max() + 1), rng.integers(0, 3, group.max() + 1)])
    counts[1, 0] = 1

    def cut(x):
        return [x[a:b] for a, b in itertools.pairwise(starts)]

    for row, c in zip(weighted.estimates(counts), counts, strict=True):
        slow = slowly(*map(cut, (reward, ratio, speaks, Q, V)), gamma, c[group].tolist())
        assert row == pytest.approx(list(slow.values()), rel=1e-10, abs=1e-12)


def test_kernels_are_their_python_source():
    problem = random_problem(5)
    starts, group, reward, gamma, ratio, speaks, Q, V = problem
    fast = weigh(*problem)
    w, single = np.empty_like(reward), np.zeros_like(fast.single)
    _weigh.py_func(starts, reward, gamma, ratio, speaks, Q, V, w, single)
    assert np.allclose(w, fast.w)
    assert np.allclose(single, fast.single)
    out = np.empty((1, 8))
    counts = np.ones((1, fast.n_groups))
    _resample.py_func(starts, group, reward, gamma, Q, V, w, single, counts, out)
    assert out == pytest.approx(fast.estimates(), nan_ok=True)


def test_finished_trajectories_keep_their_share():
    """One short follower, one long: dropping the finished one would double the long one's tail."""
    starts = np.array([0, 1, 4])
    reward, ratio = np.array([1.0, 0.0, 0.0, 3.0]), np.array([2.0, 2.0, 1.0, 1.0])
    speaks, zero = ratio > 1, np.zeros(4)
    w = weigh(starts, np.arange(2, dtype=np.int32), reward, 1.0, ratio, speaks, zero, zero)
    found = dict(zip(ESTIMATORS, w.estimates()[0], strict=False))
    assert found["WPDIS"] == pytest.approx((1 + 3) / 2)
    assert found["PDIS"] == pytest.approx((2 + 6) / 2)


def test_huge_weights_stay_numbers():
    N = 400
    starts = np.array([0, N, 2 * N])
    ratio = np.full(2 * N, 1e3)
    speaks, x = np.ones(2 * N, bool), np.ones(2 * N)
    w = weigh(starts, np.arange(2, dtype=np.int32), x, 0.9, ratio, speaks, x, x)
    assert np.isfinite(w.estimates()).all()


# -- a policy that changes nothing --------------------------------------------------------------


@given(st.integers(0, 10_000), st.sampled_from([0.8, 0.99, 1.0]))
def test_nothing_changed_is_the_sample_mean_exactly(seed, gamma):
    log = to_log(random_episodes(seed))
    silent = dprl.DPRLDiscrete(n_min=np.inf, gamma=gamma).fit(log)
    found = dprl.evaluate(silent, log, draws=20, allow_seen=True)
    G = [
        sum(gamma**t * r for t, r in enumerate(log.reward[a:b]))
        for a, b in itertools.pairwise(log.starts)
    ]
    assert found.behavior["value"] == pytest.approx(np.mean(G), rel=1e-12, abs=1e-12)
    for row in found.rows.values():
        assert row["value"] == found.behavior["value"]  # to the last bit
        assert (row["value_low"], row["value_high"]) == tuple(
            found.behavior[k] for k in ("low", "high")
        )
        assert row["difference"] == row["difference_low"] == row["difference_high"] == 0.0
    assert found.facts["spoken"] == 0
    assert found.facts["ess"] == pytest.approx(len(log.groups))
    assert "speaks nowhere" in found.warnings[-1]


def test_the_behaviour_itself_given_exactly():
    """π = π_b, given: every ratio is 1, and IS to WPDIS are the sample mean."""
    mdp = small_world()
    log = mdp.sample(200, seed=1)
    same = StochasticPolicy(
        states=log.states, actions=log.actions, parameters={}, provenance={}, pi=mdp.behavior
    )
    found = dprl.evaluate(same, log, gamma=GAMMA, behavior=mdp.behavior, draws=10)
    for name in ("IS", "WIS", "PDIS", "WPDIS"):
        assert found[name]["value"] == pytest.approx(found.behavior["value"], abs=1e-12)


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
        if not said.speaks[row]:
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
    said = Spoken(pi, speaks, None, log.codes().astype(np.int64), log.actions)
    found = tables(log, said, 0.9, np.ones(log.n_steps, bool))
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
    said = Spoken(np.where(speaks[:, None], pi, 0), speaks, None, log.codes().astype(np.int64),
                  log.actions)  # fmt: skip
    found = evaluate_q(log, said, GAMMA)
    Q = mdp.action_values(mdp.state_values(pi))
    assert np.abs(found.Q - Q[log.codes(), log.action]).max() < 0.03


def test_fqe_does_not_hear_the_step_itself():
    """Values of a fold come from the other folds: change its rewards, and they stay."""
    mdp = small_world()
    log = mdp.sample(50, seed=0)
    said = spoken(dprl.DPRLDiscrete(n_min=2, gamma=GAMMA, contrast=False).fit(log), log)
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


# -- where it matters ---------------------------------------------------------------------------


def rare_crisis():
    """Nearly everybody stays well; one in twenty has a crisis, where usual practice is poor."""
    P = np.zeros((2, 2, 2))
    P[0, :, 1] = 0.05
    R = np.zeros((2, 2))
    R[0] = 1.0
    R[1] = [0.0, 1.0]
    return FiniteMDP(
        "crisis", ("well", "crisis"), ("old", "new"), sparse.csr_array(P.reshape(4, 2)), R, R,
        np.array([1.0, 0.0]), np.array([[1.0, 0.0], [0.8, 0.2]]), 1.0,
    )  # fmt: skip


def test_the_usual_ess_lies_and_ours_does_not():
    mdp = rare_crisis()
    train, log = mdp.sample(4_000, seed=0), mdp.sample(1_000, seed=1)
    policy = dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(train)
    assert policy.act(["crisis"]) == ["new"]
    found = dprl.evaluate(policy, log, draws=100)
    crises = (log.codes() == 1).sum()
    followers = ((log.codes() == 1) & (log.action == 1)).sum()
    assert found.facts["reached"] == crises
    assert found.facts["followers"] == followers
    assert found.facts["ess"] > 500
    assert found.facts["ess_change"] == pytest.approx(followers, rel=0.2)  # weights nearly equal
    assert 2 <= found.facts["ess_change"] < 20
    assert any("where it matters" in line for line in found.warnings)


def test_confirmations_are_no_changes(care):
    mdp, _, log = care
    policy = dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(mdp.sample(1_000, seed=1))
    assert policy.summary()["confirmations"] > 0
    kind = dict(zip(policy.states, policy.kind, strict=True))
    said = dict(zip(policy.states, policy.act(policy.states), strict=True))
    reached = followers = 0
    for a, b in itertools.pairwise(log.starts):
        steps = [(log.states[s], log.actions[c])
                 for s, c in zip(log.state[a:b], log.action[a:b], strict=True)]  # fmt: skip
        changes = [(s, c) for s, c in steps if kind[s] == 2]
        reached += bool(changes)
        followers += bool(changes) and all(said[s] == c for s, c in changes)
    found = dprl.evaluate(policy, log, draws=10, values=False)
    assert (found.facts["reached"], found.facts["followers"]) == (reached, followers)
    assert found.facts["spoken"] > found.facts["changed"]


def test_nobody_followed():
    episodes = [[("s", "old", 1.0)]] * 30
    log = to_log(episodes)
    policy = dprl.CallablePolicy(lambda s: ["new"] * len(s), actions=("old", "new"))
    found = dprl.evaluate(policy, log, gamma=1, draws=50)
    assert found.facts["followers"] == 0
    assert any("nobody followed" in line for line in found.warnings)
    assert found["IS"]["value"] == 0
    assert np.isnan(found["WIS"]["value"])
    assert np.isnan(found["WPDIS"]["difference_low"])
    assert found.facts["guessed"] == 1
    assert any("guess its value" in line for line in found.warnings)
    assert json.loads(found.to_json())["estimates"][1]["value"] is None


def test_groups_are_what_is_counted():
    mdp = small_world()
    log = mdp.sample(60, seed=0)
    policy = dprl.DPRLDiscrete(n_min=5, gamma=GAMMA, contrast=False).fit(mdp.sample(500, seed=1))
    alone = dprl.evaluate(policy, log, draws=50, values=False)
    twice = dprl.Log(
        starts=np.concatenate([log.starts, log.starts[-1] + log.starts[1:]]),
        action=np.tile(log.action, 2), reward=np.tile(log.reward, 2), state=np.tile(log.state, 2),
        states=log.states, actions=log.actions, group=np.tile(np.arange(60), 2),
        groups=tuple(range(60)),
    )  # fmt: skip
    both = dprl.evaluate(
        policy, twice, draws=50, values=False, behavior=dprl.Behavior.fit(log).table[
            np.tile(dprl.Behavior.fit(log).row, 2)
        ],
    )  # fmt: skip
    for name in ("reached", "followers"):
        assert both.facts[name] == alone.facts[name]
    assert both.facts["ess"] == pytest.approx(alone.facts["ess"])
    assert both.unit == "groups"
    for name in ("IS", "WIS", "PDIS", "WPDIS"):
        for key, value in alone[name].items():
            assert both[name][key] == pytest.approx(value, abs=1e-12), (name, key)


# -- the table ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def care():
    mdp = dprl.envs.care_pathway()
    policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(mdp.sample(1_000, seed=1))
    return mdp, policy, mdp.sample(1_000, seed=2)


def test_estimates_lie_near_the_truth(care):
    mdp, policy, log = care
    found = dprl.evaluate(policy, log)
    gain = mdp.value(policy) - mdp.value()
    for name in ESTIMATORS:
        row = found[name]
        assert abs(row["difference"] - gain) < 0.05, name
        if name != "DM":
            assert row["difference_low"] < row["difference"] < row["difference_high"]
    assert np.isnan(found["DM"]["value_low"])  # resampling trajectories cannot show its error
    assert not found.warnings
    given = dprl.evaluate(policy, log, behavior=mdp.behavior)
    assert given["WIS"]["value"] == pytest.approx(found["WIS"]["value"], abs=0.02)
    assert given.facts["behavior"] == "given"


def test_same_seed_same_bytes(care):
    _, policy, log = care
    one, two = (dprl.evaluate(policy, log, seed=3, draws=200).to_json() for _ in range(2))
    assert one == two
    assert dprl.evaluate(policy, log, seed=4, draws=200).to_json() != one


def test_the_order_of_episodes_leaves_no_trace_in_the_estimates(care):
    _, policy, log = care
    found = dprl.evaluate(policy, log, draws=10, behavior=dprl.envs.care_pathway().behavior)
    order = np.random.default_rng(0).permutation(log.n_episodes)
    parts = [np.arange(log.starts[e], log.starts[e + 1]) for e in order]
    rows = np.concatenate(parts)
    moved = dprl.Log(
        starts=np.concatenate(([0], np.cumsum([len(p) for p in parts]))), action=log.action[rows],
        reward=log.reward[rows], state=log.state[rows], states=log.states, actions=log.actions,
        ended=log.ended[order],
    )  # fmt: skip
    again = dprl.evaluate(policy, moved, draws=10, behavior=dprl.envs.care_pathway().behavior)
    for name in ("IS", "WIS", "PDIS", "WPDIS"):
        assert again[name]["value"] == pytest.approx(found[name]["value"], rel=1e-12)


def test_what_an_evaluation_prints(care):
    _, policy, log = care
    found = dprl.evaluate(policy, log, draws=50)
    text = str(found)
    assert text.startswith("1,000 episodes, 4,781 steps; usual practice gets 0.848")
    assert "where it matters" in text
    assert "<table" in found._repr_html_()
    assert found.to_frame().shape == (7, 8)
    assert list(found.to_frame()["estimator"]) == list(ESTIMATORS)
    data = json.loads(found.to_json())
    assert data["estimates"][5]["difference"] == found["DR"]["difference"]
    assert data["settings"]["log"] == log.digest()
    quick = dprl.evaluate(policy, log, draws=50, values=False)
    assert np.isnan(quick["DR"]["value"])
    assert quick["WIS"] == found["WIS"]


def test_progress_is_told(care):
    _, policy, log = care
    told = []
    dprl.evaluate(policy, log, draws=20, progress=lambda *x: told.append(x))
    assert ("bootstrap", 1.0) in told
    assert any(stage == "values" for stage, _ in told)


# -- other policies -----------------------------------------------------------------------------


def test_rivals_and_labels_in_another_order(care):
    mdp, _, log = care
    rival = dprl.baselines.SPIBB(n_min=20, gamma=1.0).fit(mdp.sample(1_000, seed=3))
    found = dprl.evaluate(rival, log, draws=20)
    order, cols = [3, 1, 0, 2, 7, 5, 4, 6], [2, 0, 3, 1]
    moved = StochasticPolicy(
        states=tuple(rival.states[i] for i in order), actions=tuple(rival.actions[i] for i in cols),
        parameters=rival.parameters, provenance=rival.provenance, pi=rival.pi[np.ix_(order, cols)],
    )  # fmt: skip
    again = dprl.evaluate(moved, log, draws=20)
    for name in ESTIMATORS:
        assert again[name]["value"] == pytest.approx(found[name]["value"], rel=1e-9)
    assert found.facts["spoken"] == 1


def test_a_policy_without_gamma_must_be_told(care):
    mdp, _, log = care
    clone = dprl.baselines.BC().fit(mdp.sample(500, seed=3))
    with pytest.raises(ParameterError, match="knows no gamma"):
        dprl.evaluate(clone, log)
    found = dprl.evaluate(clone, log, gamma=1, draws=20)
    assert found["WIS"]["value"] == pytest.approx(found.behavior["value"], abs=0.05)
    assert found.facts["reached"] == 0


def test_states_never_seen_are_deferred_and_said(care):
    _, policy, _ = care
    log = to_log([[("fever", "watch", 0.0), ("elsewhere", "watch", 1.0)]] * 10)
    found = dprl.evaluate(policy, log, draws=20)
    assert found.facts["spoken"] == 0.5
    assert any("50.0 % of steps are in states the policy never saw" in w for w in found.warnings)


def test_features():
    world = dprl.envs.PointMass()
    train, log = world.sample(300, seed=1), world.sample(300, seed=2)
    learner = dprl.DPRLContinuous(
        n_min=10, radius=0.06, gamma=0.97, metric=dprl.Metric(scale="none"), cut="terminal"
    )
    policy = learner.fit(train)
    found = dprl.evaluate(policy, log, draws=200)
    here = policy.at(log.features)
    assert found.facts["spoken"] == pytest.approx((here.choice >= 0).mean())
    gain = world.value(policy)[0] - world.value()[0]
    assert found["DR"]["difference_low"] - 0.1 < gain < found["DR"]["difference_high"] + 0.1
    assert found.facts["misplaced"] < 0.08
    again = dprl.evaluate(policy, log, draws=200)
    assert again.to_json() == found.to_json()
    other = dprl.Log(
        starts=log.starts, action=log.action, reward=log.reward, actions=log.actions,
        features=log.features[:, ::-1].copy(), feature_names=("y", "x"), ended=log.ended,
    )  # fmt: skip
    swapped = dprl.evaluate(policy, other, draws=20, values=False)
    assert swapped.facts["reached"] == found.facts["reached"]
    renamed = dprl.Log(
        starts=log.starts, action=log.action, reward=log.reward, actions=log.actions,
        features=log.features, feature_names=("x", "z"),
    )  # fmt: skip
    with pytest.raises(PolicyError, match="needs the feature 'y'"):
        dprl.evaluate(policy, renamed)


def test_features_where_trees_know_everything():
    """With few distinct points, trees grown to the end are tables."""
    mdp = small_world()
    log = mdp.sample(400, seed=1)
    features = dprl.Log(
        starts=log.starts, action=log.action, reward=log.reward, actions=log.actions,
        features=log.codes()[:, None].astype(float), feature_names=("s",),
    )  # fmt: skip
    pi, speaks = target(mdp, DEFERRING)
    pi = np.where(speaks[:, None], pi, 0.0)
    code = log.codes().astype(np.int64)
    by_table = evaluate_q(log, Spoken(pi, speaks, None, code, log.actions), GAMMA, folds=4)
    rows = Spoken(pi[code], speaks[code], None, np.arange(log.n_steps), log.actions)
    by_trees = evaluate_q(features, rows, GAMMA, folds=4, trees=3)
    assert np.abs(by_trees.Q - by_table.Q).max() < 1e-6
    assert np.abs(by_trees.V - by_table.V).max() < 1e-6


# -- anything with predict ----------------------------------------------------------------------


def test_a_scikit_learn_classifier():
    import pandas as pd
    from sklearn.tree import DecisionTreeClassifier

    world = dprl.envs.PointMass()
    log = world.sample(100, seed=2)
    x = pd.DataFrame(log.features[:, ::-1], columns=["y", "x"])
    model = DecisionTreeClassifier(max_depth=3, random_state=0)
    model.fit(x, [log.actions[a] for a in log.action])
    policy = dprl.CallablePolicy(model, actions=log.actions)
    assert policy.feature_names == ("y", "x")
    assert (
        policy.act({"x": 0.3, "y": 0.9}) == model.predict(pd.DataFrame({"y": [0.9], "x": [0.3]}))[0]
    )
    found = dprl.evaluate(policy, log, gamma=0.97, cut="terminal", draws=20, values=False)
    assert found.facts["spoken"] == 1
    named = np.mean(model.predict(x) == np.array(log.actions)[log.action])
    assert found.facts["suggested_done"] == pytest.approx(named)


class Pair:
    """As stable-baselines3: predict gives (actions, state)."""

    def predict(self, x):
        return (x[:, :1] > 0.5).astype(np.int64), None


class Exploring:
    """As stable-baselines3's PPO: it draws its actions unless told not to."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def predict(self, x, state=None, deterministic=False):
        best = (x[:, 0] > 0.5).astype(np.int64)
        return (best if deterministic else self.rng.integers(0, 2, len(x))), state


def test_models_that_explore_are_told_not_to():
    x = np.random.default_rng(1).random((300, 2))
    policy = dprl.CallablePolicy(Exploring(), actions=("a", "b"), answers="codes")
    assert policy.choice(x).tolist() == (x[:, 0] > 0.5).astype(int).tolist()
    drawn = dprl.CallablePolicy(
        lambda states: Exploring.predict(model, states)[0], actions=("a", "b"), answers="codes"
    )
    model = Exploring()
    with pytest.raises(PolicyError, match="differently each time"):
        drawn.choice(x)


def test_codes_pairs_and_functions():
    world = dprl.envs.PointMass()
    log = world.sample(50, seed=2)
    policy = dprl.CallablePolicy(
        Pair(), actions=log.actions, answers="codes", parameters={"gamma": 0.97}
    )
    assert policy.choice(np.array([[0.6, 0], [0.1, 0]])).tolist() == [1, 0]
    dprl.evaluate(policy, log, cut="terminal", draws=10, values=False)

    def rule(states):
        return [None if s in ("stable", "going home") else "fluids" for s in states]

    mdp = dprl.envs.care_pathway()
    careful = dprl.CallablePolicy(rule, actions=mdp.actions)
    assert careful.act(["stable", "worse"]) == [dprl.DEFER, "fluids"]
    assert careful.act("worse") == "fluids"
    log = mdp.sample(200, seed=0)
    found = dprl.evaluate(careful, log, gamma=1, draws=10)
    silent = np.isin(log.codes(), [mdp.states.index(s) for s in ("stable", "going home")])
    assert found.facts["spoken"] == pytest.approx(1 - silent.mean())
    assert mdp.value(careful) == pytest.approx(mdp.value(target_of(mdp, careful)))


def target_of(mdp, policy):
    answers = policy.act(list(mdp.states))
    return np.array([
        mdp.behavior[i] if a is dprl.DEFER else np.eye(len(mdp.actions))[mdp.actions.index(a)]
        for i, a in enumerate(answers)
    ])  # fmt: skip


def test_predictions_that_are_no_actions():
    bad = [
        (lambda s: [7] * len(s), "labels", "predicted 7, which is no action"),
        (lambda s: [True] * len(s), "labels", "predicted True"),
        (lambda s: [2] * len(s), "codes", "no code from 0 to 1"),
        (lambda s: [0.5] * len(s), "codes", "predicted 0.5"),
        (lambda s: [0], "codes", "predicted .1,. for 3 states"),
        (lambda s: np.zeros((len(s), 2)), "codes", "one action a state"),
    ]
    for model, answers, words in bad:
        policy = dprl.CallablePolicy(model, actions=(0, 1), answers=answers)
        with pytest.raises(PolicyError, match=words):
            policy.act([1, 2, 3])
    with pytest.raises(PolicyError, match="no predict"):
        dprl.CallablePolicy(3, actions=(0, 1))
    with pytest.raises(PolicyError, match="different labels"):
        dprl.CallablePolicy(len, actions=())
    with pytest.raises(PolicyError, match="'labels' or 'codes'"):
        dprl.CallablePolicy(len, actions=(1,), answers="both")


# -- what is refused ----------------------------------------------------------------------------


def test_the_training_log_is_refused(care):
    mdp, policy, _ = care
    train = mdp.sample(1_000, seed=1)
    with pytest.raises(PolicyError, match="the log the policy was learned from"):
        dprl.evaluate(policy, train)
    found = dprl.evaluate(policy, train, allow_seen=True, draws=10)
    assert "flatters" in found.warnings[0]


@pytest.mark.parametrize("record", [{"sample": [3]}, {"sample": ["zz"] * 9}, {"sweep": 5}])
def test_a_damaged_record_is_refused(care, record):
    _, policy, log = care
    odd = dataclasses.replace(policy, provenance={**policy.provenance, **record})
    with pytest.raises(PolicyError, match="record of the logs"):
        dprl.evaluate(odd, log, draws=10)


def test_bad_settings(care):
    _, policy, log = care
    for name, value in [
        ("level", 1.0), ("level", "x"), ("draws", 0), ("draws", 1.5), ("seed", -1), ("clip", 2),
        ("gamma", 0), ("gamma", 1.1), ("cut", "now"),
    ]:  # fmt: skip
        with pytest.raises(ParameterError, match=name):
            dprl.evaluate(policy, log, **{name: value})
    with pytest.raises(ParameterError, match="another log"):
        dprl.evaluate(policy, log, behavior=dprl.Behavior.fit(log.take(range(50))))
    with pytest.raises(PolicyError, match="no policy of dprl's"):
        dprl.evaluate(object(), log, gamma=1)
    numbers = to_log([[("fever", 1, 0.0)]] * 3)
    with pytest.raises(PolicyError, match="actions are text, the log's numbers"):
        dprl.evaluate(policy, numbers)
    with pytest.raises(PolicyError, match="no action in common"):
        dprl.evaluate(policy, to_log([[("fever", "sing", 0.0)]] * 3))
    with pytest.raises(PolicyError, match="states are text"):
        dprl.evaluate(policy, to_log([[(3, "watch", 0.0)]] * 3))
    with pytest.raises(PolicyError, match="labels, the log's are features"):
        dprl.evaluate(policy, dprl.from_arrays(
            episode=[0, 1], state=np.zeros((2, 2)), action=["watch"] * 2, reward=[0.0, 0.0]
        ))  # fmt: skip
    with pytest.raises(LogError, match="no episodes"):
        dprl.evaluate(policy, log.take([]))


def test_cut_episodes():
    rooms = dprl.envs.rooms()
    log = rooms.sample(60, seed=1)
    short = dprl.Log(
        starts=log.starts, action=log.action, reward=log.reward, actions=log.actions,
        state=log.state, states=log.states, ended=np.where(np.arange(60) < 20, 2, 1),
    )  # fmt: skip
    other = rooms.sample(60, seed=2)
    policy = dprl.DPRLDiscrete(n_min=10, gamma=0.99).fit(other)
    with pytest.warns(CutWarning, match="20 of 60 episodes"):
        dprl.evaluate(policy, short, draws=10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dropped = dprl.evaluate(policy, short, cut="drop", draws=10, behavior=rooms.behavior)
        same = dprl.evaluate(policy, short.take(range(20, 60)), draws=10, behavior=rooms.behavior)
        assert dropped.to_dict()["estimates"] == same.to_dict()["estimates"]
        boot = dprl.evaluate(policy, short, cut="bootstrap", draws=10, behavior=rooms.behavior)
    assert boot.facts["steps"] == log.n_steps - 20
    own = dprl.DPRLDiscrete(n_min=10, gamma=0.99, cut="drop").fit(other)
    again = dprl.evaluate(own, short, draws=10, behavior=rooms.behavior)
    assert again.to_dict()["estimates"] == dropped.to_dict()["estimates"]


def test_values_that_do_not_exist_are_left_out():
    """At gamma = 1 a plan may circle for ever in what was seen; the rest is still estimated."""
    path = [("x", "go", 1.0), ("y", "back", 1.0), ("x", "go", 1.0), ("y", "out", 0.0)]
    log = to_log([path] * 20)
    policy = dprl.CallablePolicy(
        lambda s: ["go" if x == "x" else "back" for x in s], actions=("back", "go", "out")
    )
    found = dprl.evaluate(policy, log, gamma=1, draws=10)
    assert np.isnan(found["DR"]["value"])
    assert any("DM, DR and WDR are left out" in w for w in found.warnings)


def test_cells_are_evaluated_as_the_labels_they_are():
    policy, log = dprl.gate(LEARNER, ward(1_500, 0), **UNIT), ward(700, 5)
    over = dprl.Policy(**{f.name: getattr(policy, f.name) for f in dataclasses.fields(dprl.Policy)})
    cells = policy.cells_of(log.features)
    labelled = dataclasses.replace(
        log,
        features=None,
        feature_names=(),
        states=tuple(range(4)),
        state=np.where(cells < 0, 3, cells),
    )
    chance = np.tile([0.6, 0.4], (log.n_steps, 1))
    one, two = (
        dprl.evaluate(p, x, behavior=chance, values=False)
        for p, x in ((policy, log), (over, labelled))
    )
    assert one.facts["followers"] == sum(
        said == log.actions[a] for said, a in zip(policy.act(log.features), log.action, strict=True)
    )
    for name in ("IS", "WIS", "PDIS", "WPDIS"):
        assert one[name] == two[name]


# -- what was once silent ------------------------------------------------------------------------


def test_a_group_that_went_against_once_is_no_follower():
    """Each patient: one stay that followed, one that did not."""
    train = to_log([[("s", "a", 0.0)]] * 30 + [[("s", "b", 1.0)]] * 20)
    policy = dprl.DPRLDiscrete(n_min=15, gamma=1.0).fit(train)
    rows = [[("s", "b" if i % 2 else "a", 1.0)] for i in range(40)]
    log = replace(to_log(rows), group=np.arange(40, dtype=np.int32) // 2, groups=tuple(range(20)))
    facts = dprl.evaluate(policy, log, draws=10).facts
    assert (facts["reached"], facts["followers"]) == (20, 0)


def test_values_reach_to_the_end_of_long_episodes():
    """70 steps of reward 1 for the suggestion: fewer backups than steps would cut values off."""
    n, T = 24, 70
    took = np.repeat(np.arange(n) % 2, T)
    log = dprl.from_arrays(
        episode=np.repeat(np.arange(n), T), state=np.tile(np.arange(T, dtype=float), n)[:, None],
        feature_names=["t"], action=np.where(took == 1, "b", "a"), reward=took.astype(float),
    )  # fmt: skip
    always = dprl.CallablePolicy(lambda x: ["b"] * len(x), actions=("a", "b"))
    found = dprl.evaluate(always, log, gamma=1.0, draws=10)
    assert found["DM"]["value"] == pytest.approx(T, rel=0.02)


def test_what_was_not_on_offer_is_said():
    train = to_log([[("s", "a", 0.0)]] * 30 + [[("s", "b", 1.0)]] * 20)
    policy = dprl.DPRLDiscrete(n_min=15, gamma=1.0).fit(train)
    log = dprl.from_arrays(
        episode=np.arange(40), state=["s"] * 40, action=["a", "b"] * 20, reward=[0.0, 1.0] * 20,
        available=[["a"], ["a", "b"]] * 20,
    )  # fmt: skip
    found = dprl.evaluate(policy, log, draws=10)
    assert found.facts["not_offered"] == 0.5
    assert any("was not on offer" in line for line in found.warnings)


def test_bootstrapped_tails_are_said_to_be_usual_practice():
    rows = [[("s", "b", 1.0), ("s", "b", 1.0)]] * 20 + [[("s", "a", 0.0)]] * 30
    policy = dprl.DPRLDiscrete(n_min=15, gamma=0.9).fit(to_log(rows))
    cut = to_log([[("s", "a", 0.5), ("s", "b", 1.0)]] * 40, cut=[i % 4 == 0 for i in range(40)])
    found = dprl.evaluate(policy, cut, cut="bootstrap", draws=10)
    assert any("is put at usual practice" in line for line in found.warnings)
