"""The gate: e-values against their definition, claims against exact values, and every refusal."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import dprl
from conftest import random_episodes, to_log
from dprl import envs
from dprl.apps.contest import log_seed
from dprl.certificate.eprocesses import advantages, visits_of
from dprl.certificate.evalues import (
    BINS,
    COARSE,
    FRACTIONS,
    GRID,
    binned,
    differences,
    histograms,
    hoeffding_difference,
    kl_difference,
    kl_lower,
    kl_upper,
    means,
)
from dprl.certificate.gain import certified_gain, legs_of, meetings, nats_of_sets, partings
from dprl.evidence.counts import Counts, count_source
from dprl.evidence.decision_points import allowed
from dprl.evidence.excursions import excursions
from dprl.evidence.neighbors.engine import Engine, Points, net_size
from dprl.logs.censoring import treat_cut
from dprl.logs.returns import first_visits
from dprl.logs.source import as_source
from dprl.planning.finite_mdp import FiniteMDP
from dprl.policies.certificate import down

UNIT = {"value_range": (0.0, 1.0)}


# -- e-values against their definition --------------------------------------------------------


def slow_e(x, y, d, steps):
    """E(d) read off its definition, with x and 1-y rounded down to 1/400."""
    x = np.floor(np.asarray(x) * 400 + 1e-12) / 400
    w = np.floor((1 - np.asarray(y)) * 400 + 1e-12) / 400
    step = math.log(0.95 / 0.01) / 11
    least = math.inf
    for i in range(steps):
        u, m = min((i + 1) / steps + d, 1.0), i / steps
        if u < -1e-12 or (abs(u) < 1e-12 and (x > 0).any()):
            continue
        shift = 0
        if len(x) and len(y):
            shift = round(math.log(len(x) / len(y) * (1 - m) / max(m, 1 / steps)) / step)
        X = [1.0 if abs(u) < 1e-12 else np.prod(1 + f * (x / u - 1)) for f in FRACTIONS]
        Y = [np.prod(1 + f * (w / (1 - m) - 1)) for f in FRACTIONS]
        both = [X[j] * Y[min(max(j + shift, 0), 11)] for j in range(12)]
        least = min(least, (np.mean(X) * np.mean(Y) + np.mean(both)) / 2)
    return least


def one_pair(x, y):
    """Histograms of one state: action 0 took values x, action 1 values y."""
    pair = np.concatenate((np.zeros(len(x), np.int64), np.ones(len(y), np.int64)))
    values = np.concatenate((x, y)).astype(float)
    return binned(pair, values, (0.0, 1.0), 1.0, (0,), (0, 1), len(values))


returns = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.3333, 0.5, 0.7525, 0.99, 1.0]), max_size=9)


@pytest.mark.slow
@given(returns, returns)
def test_e_value_against_its_definition(x, y):
    found = differences(one_pair(x, y), [0], 0.5)
    slow = slow_e(x, y, 0.0, GRID)
    if math.exp(found.log_e[0]) >= 2:
        assert math.exp(found.log_e[0]) == pytest.approx(slow, rel=1e-9)
    else:  # the coarse grid's answer stands; it may only be smaller
        assert math.exp(found.log_e[0]) <= slow * (1 + 1e-9)
        assert slow < 2 or found.log_e[0] == pytest.approx(math.log(slow))


@given(returns, returns, st.sampled_from([0.4, 0.1, 0.01]))
def test_lower_bound_is_the_largest_difference_refuted(x, y, alpha):
    found = differences(one_pair(x, y), [0], alpha)
    low = float(found.low[0])
    steps = GRID if found.log_e[0] >= -math.log(alpha) else COARSE
    if low > -1:
        assert slow_e(x, y, low, steps) >= 1 / alpha - 1e-9
    if steps == GRID or low < 0:
        assert slow_e(x, y, low + 1 / steps, steps) < 1 / alpha + 1e-9


@pytest.mark.parametrize("p", [0.0, 0.05, 0.3, 0.5, 0.77, 1.0])
@pytest.mark.parametrize("gap", [0.0, 0.2])
def test_an_e_value_has_mean_at_most_one(p, gap):
    """All outcomes of coins x ~ p, y ~ p + gap >= p: "no benefit" holds, so the mean is <= 1."""
    q, total = min(1.0, p + gap), 0.0
    for x in itertools.product((0, 1), repeat=3):
        for y in itertools.product((0, 1), repeat=3):
            chance = math.prod(p if v else 1 - p for v in x) * math.prod(
                q if v else 1 - q for v in y
            )
            if chance:
                log_e = differences(one_pair(x, y), [0], 0.99).log_e[0]
                total += chance * math.exp(log_e)
    assert total <= 1 + 1e-9


def test_rounding_is_down_for_either_role():
    """A return on the grid stays; one between two grid points goes down as x, up as y."""
    found = binned(np.zeros(3, np.int64), np.array([0.5, 0.5011, 1.0]), (0, 1), 1.0, (0,), (0,), 3)
    assert (found.keys % BINS).tolist() == [400, 401, 800]
    exact, between = one_pair([0.5] * 30, [0.25] * 30), one_pair([0.5011] * 30, [0.2489] * 30)
    assert differences(exact, [0], 0.01).log_e == pytest.approx(
        differences(between, [0], 0.01).log_e
    )


def test_overwhelming_evidence_does_not_overflow():
    found = differences(one_pair([1.0] * 100_000, [0.0] * 100_000), [0, 1], 1e-9)
    assert found.log_e[0] > 50_000
    assert found.low[0] > 0.99
    assert found.low[1] == -1.0
    assert np.isfinite(found.log_e).all()


def test_nothing_known_is_no_evidence():
    found = differences(one_pair([], []), [0, 1], 0.05)
    assert np.exp(found.log_e) == pytest.approx([1.0, 1.0])
    assert found.low.tolist() == [-1.0, -1.0]


@given(st.integers(0, 10_000))
def test_histograms_of_parts_add_up(seed):
    log = to_log(random_episodes(seed))
    if log.n_episodes < 2:
        return
    span = (-40.0, 40.0)
    whole = histograms(log, 0.9, span)
    one, other = (histograms(part, 0.9, span) for part in log.split(0.5, seed=seed))
    both = one.merge(other)
    assert both.keys.tolist() == whole.keys.tolist()
    assert both.counts.tolist() == whole.counts.tolist()
    assert both.n_groups == whole.n_groups
    known = dprl.evidence.counts.evidence(log, 0.9)
    counted = np.bincount(whole.keys // BINS, whole.counts, minlength=known.took.n.size)
    assert counted.tolist() == known.took.n.ravel().tolist()


def test_first_visits_go_by_group():
    rows = [[("a", "x", 0.0), ("b", "x", 1.0), ("a", "y", 0.0)], [("a", "x", 1.0)]]
    assert first_visits(to_log(rows)).tolist() == [True, True, False, True]
    grouped = replace(to_log(rows), group=np.zeros(2, np.int32), groups=("p",))
    assert first_visits(grouped).tolist() == [True, True, False, False]


def test_returns_outside_the_range_are_refused():
    with pytest.raises(dprl.LogError, match=r"1 of 3 returns lie outside value_range \(0, 1\)"):
        histograms(to_log([[("a", "x", 1.0)], [("a", "x", 2.5)], [("b", "y", 0.0)]]), 1.0, (0, 1))


# -- bounds that look at means alone ------------------------------------------------------------


def test_chernoff_by_hand():
    """All failures: kl(0, q) = -ln(1-q), so q = 1 - exp(-nats/n)."""
    assert kl_upper(0.0, 10, 3.0) == pytest.approx(1 - math.exp(-0.3))
    assert kl_lower(1.0, 10, 3.0) == pytest.approx(math.exp(-0.3))
    assert kl_lower(0.0, 10, 3.0) == 0.0
    assert kl_upper(0.5, 0, 3.0) == pytest.approx(1.0)


@given(st.floats(0, 1), st.integers(1, 1000), st.floats(0.1, 30))
def test_chernoff_solves_its_equation(p, n, nats):
    q = float(kl_lower(p, n, nats))
    assert 0 <= q <= p
    if 1e-9 < q < p - 1e-9:
        kl = p * math.log(p / q) + ((1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0)
        assert n * kl == pytest.approx(nats, rel=1e-5)


def test_differences_by_hand():
    assert hoeffding_difference(0.8, 50, 0.5, 100, 0.05) == pytest.approx(
        0.3 - math.sqrt(0.03 * math.log(20) / 2)
    )
    nats = math.log(40)
    assert kl_difference(0.8, 50, 0.5, 100, 0.05) == pytest.approx(
        float(kl_lower(0.8, 50, nats)) - float(kl_upper(0.5, 100, nats))
    )


def test_a_mean_alone():
    values = [0.9] * 60
    low = means(values, 0.05, (0.0, 1.0))
    assert 0.8 < low < 0.9
    assert means([10 * v - 5 for v in values], 0.05, (-5.0, 5.0)) == pytest.approx(10 * low - 5)
    with pytest.raises(dprl.ParameterError):
        means([2.0], 0.05, (0.0, 1.0))


# -- what changes are worth together ------------------------------------------------------------


def random_mdp(seed):
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(2, 7)), int(rng.integers(2, 4))
    P = rng.dirichlet(np.ones(S), S * A) * rng.uniform(0.3, 0.95, (S * A, 1))
    reward = rng.uniform(0, 1, (S, A))
    return FiniteMDP(
        "random", tuple(range(S)), tuple("abc"[:A]), sparse.csr_array(P), reward, reward,
        rng.dirichlet(np.ones(S)), rng.dirichlet(np.ones(A), S), float(rng.uniform(0.5, 1.0)),
    )  # fmt: skip


@given(st.integers(0, 10_000))
def test_partings_never_overstate_the_gain(seed):
    """∑ u(s) (E x - E y) <= ρ(π) - ρ(b) exactly, for any policy made of improvements."""
    mdp = random_mdp(seed)
    S, A = mdp.behavior.shape
    V = mdp.state_values()
    Q = mdp.action_values(V)
    rng = np.random.default_rng(seed)
    choice = np.where(rng.random(S) < 0.6, Q.argmax(axis=1), -1)
    speaks = np.flatnonzero(choice >= 0)
    pi = mdp.behavior.copy()
    pi[speaks] = np.eye(A)[choice[speaks]]
    # u: the behaviour's discounted visits before parting, times the chance of parting there
    stay = mdp.behavior.copy()
    for s in speaks:
        stay[s] = np.where(np.arange(A) == choice[s], stay[s], 0.0)
    M = np.einsum("sa,sat->st", stay, mdp.P.toarray().reshape(S, A, S))
    visits = np.linalg.solve(np.eye(S) - mdp.gamma * M.T, mdp.start)
    p = mdp.behavior[speaks, choice[speaks]]
    gap = Q[speaks, choice[speaks]] - V[speaks]  # = (1 - p)(E x - E y)
    bound = float((visits[speaks] * gap).sum())
    assert bound >= -1e-9
    assert bound <= mdp.value(pi) - mdp.value() + 1e-9
    # and the log says so: u(s) is the mean of γ^σ 1{part at s}
    log = mdp.sample(4_000, seed=seed)
    where, weight = partings(log, choice.astype(np.int32), mdp.gamma)
    u = np.bincount(where[where >= 0], weight[where >= 0], minlength=S)[speaks] / 4_000
    assert u == pytest.approx(visits[speaks] * (1 - p), abs=0.06)


def test_partings_by_hand():
    """Episodes part at the first step where the policy speaks and something else was done."""
    log = to_log([
        [(0, "a", 0.0), (1, "b", 0.0), (2, "b", 0.0)],  # agrees in 1, parts in 2
        [(1, "a", 0.0), (2, "b", 0.0)],  # parts at once
        [(0, "a", 0.0), (1, "b", 0.0)],  # never parts
    ])  # fmt: skip
    where, weight = partings(log, np.array([-1, 1, 0], np.int32), 0.5)
    assert where.tolist() == [2, 1, -1]
    assert weight.tolist() == [0.25, 1.0, 0.0]
    nats = nats_of_sets(3, 2, 2, 0.05)
    assert nats == pytest.approx(math.log(4) + math.log(3) + 2 * math.log(4) + math.log(20))
    lower = np.array([0.0, 0.3, 0.2])
    q = [float(kl_lower(v, 3, nats)) for v in (1 / 3, 1.25 / 3, 0.25 / 3)]
    gain = certified_gain(log, np.array([-1, 1, 0], np.int32), lower, 0.5, nats)
    assert gain == pytest.approx(max(0.1 * q[0] + 0.2 * q[1], 0.3 * q[0] + 0.2 * q[2]))


def test_the_first_episode_of_a_group_speaks_for_it():
    log = to_log([[(0, "a", 0.0)], [(0, "b", 0.0)], [(0, "b", 0.0)]])
    grouped = replace(log, group=np.array([0, 0, 1], np.int32), groups=("p", "q"))
    choice, lower = np.array([0], np.int32), np.array([1.0])
    expected = float(kl_lower(0.5, 2, 1.0))  # p's first did what is suggested, q's did not
    assert certified_gain(grouped, choice, lower, 1.0, 1.0) == pytest.approx(expected)


def test_a_bound_for_states_the_data_chose_must_pay_for_the_choice():
    """The busiest of 200 equal states: a bound for it alone fails, one for all sets holds."""
    failed = {"alone": 0, "all sets": 0}
    for seed in range(60):
        counts = np.bincount(np.random.default_rng(seed).integers(200, size=2_000), minlength=200)
        busiest = counts.max() / 2_000
        for name, nats in (("alone", -math.log(0.05)), ("all sets", nats_of_sets(200, 1, 2, 0.05))):
            failed[name] += kl_lower(busiest, 2_000, nats) > 1 / 200
    assert failed["alone"] > 20
    assert failed["all sets"] <= 3


# -- the gate -------------------------------------------------------------------------------------


def bandit(n, means_, seed, share=0.3):
    """One state: action b (share) and a; coins with these means."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        b = rng.random() < share
        rows.append([("s", "b" if b else "a", float(rng.random() < means_[b]))])
    return to_log(rows)


LEARNER = dprl.DPRLDiscrete(n_min=10, gamma=1.0)
IN_SAMPLE = {"mode": "in-sample", "states": ["s"]}
ON_GRID = {"mode": "in-sample", "states": envs.small_grid().states}
MODES = pytest.mark.parametrize("how", [{}, IN_SAMPLE])


@MODES
def test_a_large_effect_is_certified(how):
    gated = dprl.gate(LEARNER, bandit(600, (0.3, 0.8), 0), **UNIT, **how)
    certificate = gated.certificate
    assert gated.act("s") == "b"
    assert certificate.issued == {"s": "b"}
    assert not certificate.vacuous
    row = certificate.rows[0]
    assert 0 < row["low"] < 0.5
    assert 0 < row["advantage_low"] < row["low"]
    assert row["log10_e"] > math.log10(20)
    assert 0 < certificate.gain < 0.35  # the truth: .7 · .5
    assert "95 %" in certificate.claim
    assert certificate.bounds["Theorem 1, as published"] is None  # γ = 1: nothing is claimed


@MODES
def test_no_effect_is_not_certified(how):
    gated = dprl.gate(LEARNER, bandit(600, (0.5, 0.5), 1), **UNIT, **how)
    assert gated.act("s") is dprl.DEFER
    assert gated.certificate.vacuous
    assert gated.certificate.claim.startswith("VACUOUS")
    assert gated.certificate.gain is None
    assert "is not certified to be better" in gated.explain("s").reason or (
        "No action" in gated.explain("s").reason
    )


@pytest.mark.slow
def test_a_gated_policy_is_a_part_of_the_ungated_one():
    mdp = envs.small_grid()
    learner = dprl.DPRLDiscrete(n_min=20, gamma=0.95, cut="terminal")
    for seed in range(2):
        log = mdp.sample(500, seed=seed)
        policy = learner.fit(log)
        for how in ({}, ON_GRID):
            gated = dprl.gate(policy, log, **UNIT, **how)
            assert not (gated.allowed & ~policy.allowed).any()
            assert gated.digest() == dprl.gate(learner, log, **UNIT, **how).digest()


@pytest.mark.slow
def test_asking_for_more_certifies_less():
    log = envs.small_grid().sample(2_000, seed=0)
    learner = dprl.DPRLDiscrete(n_min=20, gamma=0.95, cut="terminal")
    how = {**UNIT, **ON_GRID}
    base = dprl.gate(learner, log, **how)
    assert base.allowed.any()
    for stricter in ({"delta": 1e-6}, {"margin": 0.05}, {"value_range": (-2.0, 3.0)}):
        gated = dprl.gate(learner, log, **{**how, **stricter})
        assert not (gated.allowed & ~base.allowed).any()
        assert gated.allowed.sum() < base.allowed.sum()
    margin = dprl.gate(learner, log, **how, margin=0.05)
    assert all(row["advantage_low"] > 0.05 for row in margin.certificate.rows)
    longer = dprl.gate(learner, log, **how, horizon=2_000)
    assert longer.digest() == replace(base, certificate=longer.certificate).digest()
    assert longer.certificate.tested == (2 * 36 * 4,)  # to be taken, or avoided


def test_labels_and_their_order_do_not_matter():
    log = bandit(600, (0.3, 0.8), 0)
    renamed = replace(log, actions=("z", "y"), states=("t",))
    gated = dprl.gate(LEARNER, renamed, **UNIT)
    assert gated.certificate.issued == {"t": "y"}
    assert gated.certificate.gain == dprl.gate(LEARNER, log, **UNIT).certificate.gain


def test_a_split_of_ones_own():
    log = bandit(600, (0.3, 0.8), 0)
    half = np.arange(600) < 300
    gated = dprl.gate(LEARNER, log, split=half, **UNIT)
    assert gated.certificate.issued == {"s": "b"}
    other = dprl.gate(LEARNER, log, split=~half, **UNIT)
    assert other.certificate.rows == gated.certificate.rows  # the swap takes both ways


def test_a_million_votes_of_one_patient_are_one():
    """A hundred copies of each episode under one group must certify no more than one copy."""
    log = bandit(40, (0.3, 0.8), 3)
    rows = np.repeat(np.arange(40), 100)
    many = dprl.from_arrays(
        episode=np.arange(4_000), group=rows, state=["s"] * 4_000,
        action=[log.actions[log.action[i]] for i in rows], reward=log.reward[rows],
    )  # fmt: skip
    how = {**UNIT, **IN_SAMPLE}
    learner = dprl.DPRLDiscrete(n_min=5, gamma=1.0)
    one, copies = dprl.gate(learner, log, **how), dprl.gate(learner, many, **how)
    assert [dict(r) for r in copies.certificate.rows] == [dict(r) for r in one.certificate.rows]


@pytest.mark.parametrize("logs", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_claims_hold_over_many_logs(logs):
    """Small grid, 500 episodes: no claim is violated, and something is certified."""
    mdp = envs.small_grid()
    V = mdp.state_values()
    A = mdp.action_values(V) - V[:, None]
    learner = dprl.DPRLDiscrete(n_min=20, gamma=0.95, cut="terminal")
    gains, harm = [], 0
    for seed in range(logs):
        log = mdp.sample(500, seed=1_000 + seed)
        for how in ({}, ON_GRID):
            gated = dprl.gate(learner, log, **UNIT, **how)
            speaks = np.flatnonzero(gated.choice >= 0)
            assert (A[speaks, gated.choice[speaks]] >= 0).all()
            gains.append(gated.certificate.gain or 0.0)
            assert gains[-1] <= mdp.value(gated) - mdp.value() + 1e-12
        ungated = dprl.DPRLDiscrete(
            n_min=20, gamma=0.95, contrast=False, cut="terminal"
        ).fit(log)  # fmt: skip
        speaks = np.flatnonzero(ungated.choice >= 0)
        harm += bool((A[speaks, ungated.choice[speaks]] < 0).any())
    assert np.mean(gains) > 0.003
    assert harm >= 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3])
def test_the_level_by_hand(seed):
    """Everything a certificate says, computed again from the half that certifies."""
    log = envs.small_grid().sample(2_000, seed=seed)
    log = replace(log, ended=np.ones(log.n_episodes, np.uint8))
    learner = dprl.DPRLDiscrete(n_min=20, gamma=0.95)
    half = np.arange(2_000) % 2 == 0
    gated = dprl.gate(learner, log, split=half, delta=0.1, **UNIT)
    parts = log.take(np.flatnonzero(half)), log.take(np.flatnonzero(~half))
    tested, proposals = [], []
    low, advantage = np.full((36, 4), -np.inf), np.full((36, 4), -np.inf)
    for one, other in (parts, parts[::-1]):
        values = excursions(one, 0.95)
        wanted = allowed(dprl.evidence.counts.evidence(one, 0.95), 10)
        with np.errstate(invalid="ignore"):
            wanted &= values.Q - values.V[:, None] > 1.645 * values.se
        K = int(wanted.sum())
        tested.append(K)
        proposals.append(wanted)
        seen, theirs = (visits_of(part, 0.95, (0, 1), markov=True) for part in (other, one))
        nats, of_p = -math.log(0.7 * 0.05 / K), -math.log(0.1 * 0.05 / K / 2)
        found = advantages(seen, np.flatnonzero(wanted), nats, of_p, learned_from=theirs)
        passed = found.log_e >= nats
        s, a = found.pairs[passed] // 4, found.pairs[passed] % 4
        low[s, a] = np.maximum(low[s, a], found.low[passed] / (1 - found.p_low[passed]))
        advantage[s, a] = np.maximum(advantage[s, a], found.low[passed])
    assert min(tested) > 1
    assert gated.certificate.tested == tuple(tested)
    certified = np.isfinite(low) & learner.fit(log).allowed
    assert not (gated.allowed & ~certified).any()
    for row in gated.certificate.rows:
        at = gated.states.index(row["state"]), gated.actions.index(row["suggested"])
        assert row["low"] == low[at]
        assert row["advantage_low"] <= advantage[at] + 1e-12
        assert row["advantage_low"] <= row["low"]
    advantage[~certified] = -np.inf
    gains = {}
    for (one, other), wanted in zip((parts, parts[::-1]), proposals, strict=True):
        source = as_source(one)
        T = learner.choose(source, count_source(source, Counts(0.95)), wanted)[0]
        at = np.flatnonzero(T >= 0)
        bounds = meetings(*(legs_of(part, T, 0.95) for part in (one, other)), 0.2 * 0.1 / 2)
        inside, gain = bounds.best_part(advantage[at, T[at]])
        gains[gain] = {log.states[s]: log.actions[T[s]] for s in at[inside]}
    assert gated.certificate.gain == max(gains) > 0
    assert gated.certificate.issued == gains[max(gains)]  # policy and claim are one
    passed = [log.states[s] for s in np.flatnonzero(certified.any(axis=1))]
    silent = [state for state in passed if state not in gated.certificate.issued]
    assert all(f"{state}: " in " ".join(gated.certificate.notes) for state in silent[:3])
    # what certifies has no say in what is proposed
    moved = replace(log, reward=np.where(np.repeat(half, log.lengths), log.reward, 0.0))
    assert dprl.gate(learner, moved, split=half, **UNIT).certificate.tested[0] == tested[0]


def test_in_sample_level_by_hand():
    log = bandit(600, (0.3, 0.8), 0)
    how = {**UNIT, **IN_SAMPLE}
    (row,) = dprl.gate(LEARNER, log, **how).certificate.rows
    found = advantages(
        visits_of(log, 1.0, (0, 1), markov=True), [1], -math.log(0.7 * 0.05 / 2) - 1e-12,
        -math.log(0.1 * 0.05 / 2 / 2),
    )  # fmt: skip
    assert row["advantage_low"] == found.low[0]
    assert row["low"] == found.low[0] / (1 - found.p_low[0])
    many = dprl.gate(LEARNER, log, **UNIT, mode="in-sample", states=["s", "t", "u"]).certificate
    assert many.tested == (6,)  # states that were declared count, whether they occur or not
    assert many.rows[0]["low"] < row["low"]
    assert row["n"] + row["others"] == 600
    few = dprl.gate(replace(LEARNER, n_min=175), log, **how, horizon=1)
    assert few.certificate.tested == (2,)  # min(1 · 2, 600 · 1 / 175 = 3)
    assert dprl.gate(replace(LEARNER, n_min=400), log, **how, horizon=1).certificate.tested == (1,)


def test_what_was_not_always_on_offer_is_not_issued():
    log = bandit(600, (0.3, 0.8), 0)
    offered = [["a"] if log.action[i] == 0 and i % 50 == 0 else ["a", "b"] for i in range(600)]
    menu = dprl.from_arrays(
        episode=np.arange(600), state=["s"] * 600, action=[log.actions[a] for a in log.action],
        reward=log.reward, available=offered,
    )  # fmt: skip
    for how in ({}, IN_SAMPLE):
        assert dprl.gate(LEARNER, log, **UNIT, **how).act("s") == "b"
        assert dprl.gate(LEARNER, menu, **UNIT, **how).act("s") is dprl.DEFER


def test_a_groups_visits_come_in_time_order():
    """Stays "10" (earlier) and "9" (later) of one patient: the first visit is that of "10"."""
    log = dprl.from_arrays(
        episode=["10", "9"], group=["p", "p"], time=[1, 2], state=["s", "s"], action=["a", "b"],
        reward=[0.0, 1.0],
    )  # fmt: skip
    assert log.episodes == ("10", "9")
    swapped = dprl.from_arrays(
        episode=["10", "9"], group=["p", "p"], time=[2, 1], state=["s", "s"], action=["b", "a"],
        reward=[1.0, 0.0],
    )  # fmt: skip
    for one in (log, swapped):
        known = dprl.evidence.counts.evidence(one, 1.0)
        assert known.took.n.tolist() == [[1, 0]]
        assert histograms(one, 1.0, (0, 1)).keys.tolist() == [0]
    said = dprl.gate(LEARNER, replace(
        bandit(40, (0.3, 0.8), 0), group=np.arange(40, dtype=np.int32) // 2,
        groups=tuple(range(20)),
    ), **UNIT).certificate.assumptions  # fmt: skip
    assert any("in the order they happened (by time, then by label)" in line for line in said)


def test_a_group_that_comes_again_because_of_what_happened():
    """Patients return (and then always do otherwise) only if they did as suggested at first."""
    rng = np.random.default_rng(0)
    rows, group = [], []
    for g in range(800):
        b = rng.random() < 0.5
        rows.append([("s", "b" if b else "a", float(rng.random() < (0.9 if b else 0.3)))])
        group.append(g)
        for _ in range(3 if b else 0):
            rows.append([("s", "a", 0.0)])
            group.append(g)
    log = replace(to_log(rows), group=np.array(group, np.int32), groups=tuple(range(800)))
    gated = dprl.gate(LEARNER, log, **IN_SAMPLE, **UNIT)
    assert gated.act("s") == "b"
    assert gated.certificate.gain < 0.5 * 0.6  # the truth for first episodes


def test_a_policy_gated_on_another_log_has_seen_both():
    one, two, three = (bandit(400, (0.3, 0.8), seed) for seed in (0, 1, 2))
    gated = dprl.gate(LEARNER.fit(one), two, **UNIT)
    for log in (one, two):
        with pytest.raises(dprl.PolicyError, match="this is the log the policy was learned from"):
            dprl.evaluate(gated, log, draws=10)
    assert dprl.evaluate(gated, three, draws=10).facts["episodes"] == 400


def test_how_a_certificate_is_worded():
    log = bandit(2_000, (0.1, 0.9), 0)
    margin = dprl.gate(LEARNER, log, margin=0.2, **UNIT).certificate
    assert "by more than 0.2 each, so the policy as a whole is no worse" in margin.claim
    sure = dprl.gate(LEARNER, log, delta=1e-8, **UNIT).certificate.claim
    assert "probability at least 1 - 1e-08" in sure
    assert "at least 99.99 %" in dprl.gate(LEARNER, log, delta=1e-4, **UNIT).certificate.claim
    assert [down(v) for v in (0.06992, 0.0015099, -0.06992, 0.00012349, 0.0)] == [
        0.069, 0.001, -0.07, 0.0001234, 0.0,
    ]  # fmt: skip
    shown = margin.table()["low"][0]
    assert shown <= margin.rows[0]["low"] < shown + 0.001
    assert any("all of the past that matters" in line for line in margin.assumptions)
    assert margin.notes == ("Groups were split in two with seed 0.",)


def test_certificates_travel_with_the_policy(tmp_path):
    gated = dprl.gate(LEARNER, bandit(600, (0.3, 0.8), 0), **UNIT)
    gated.save(tmp_path / "gated.dprl")
    again = dprl.load(tmp_path / "gated.dprl")
    assert again.digest() == gated.digest()
    assert again.certificate.details() == gated.certificate.details()
    assert again.certificate.to_dict() == gated.certificate.to_dict()
    text = gated.certificate.details()
    for word in ("It rests on:", "vacuous", "The trivial bound", "known beforehand"):
        assert word in text
    with pytest.raises(dprl.PolicyError, match="about other suggestions"):
        replace(gated, choice=np.array([-1], np.int32))
    with pytest.raises(dprl.PolicyError, match="certificate"):
        dprl.Certificate.from_dict({"mode": "swap-split"})
    facts = gated.certificate.to_dict()
    row = facts["rows"][0]
    for forged in (
        {"gain": True}, {"gain": 1e308}, {"gain": math.nan}, {"gain": -1}, {"margin": -1},
        {"assumptions": []}, {"assumptions": "none"}, {"groups": "many"}, {"rows": [row, row]},
        {"rows": [{**row, "n": -5}]}, {"rows": [{**row, "low": "high"}]}, {"rows": [1]},
        {"rows": [{**row, "state": ["s"]}]}, {"cells": {"radius": "x"}}, {"cells": "none"},
        {"cells": {"radius": 1, "centres": 1, "sensitivity": [1]}}, {"delta": 0}, {"bounds": 3},
        {"value_range": [1, 0]}, {"mode": "hope"}, {"log": 3}, {"tested": ["x"]},
    ):  # fmt: skip
        with pytest.raises(dprl.PolicyError, match="certificate"):
            dprl.Certificate.from_dict({**facts, **forged})
    assert dprl.Certificate.from_dict(facts) == gated.certificate
    for other in ({"log": "0" * 64}, {"gamma": 0.5}):
        with pytest.raises(dprl.PolicyError, match="about another log"):
            replace(gated, certificate=replace(gated.certificate, **other))


@pytest.mark.slow
def test_a_restricted_certificate():
    log = envs.small_grid().sample(4_000, seed=0)
    learner = dprl.DPRLDiscrete(n_min=20, gamma=0.95, cut="terminal")
    gated = dprl.gate(learner, log, **UNIT)
    certificate = gated.certificate
    state = certificate.rows[0]["state"]
    fewer = certificate.restricted([state])
    assert list(fewer.issued) == [state]
    assert fewer.gain == 0.0
    assert dict(fewer.bounds) == {}  # those were about all of them
    assert "Restated for 1 of" in fewer.notes[-1]
    assert certificate.restricted(certificate.issued) is certificate
    assert certificate.restricted([]).vacuous
    choice = np.where(np.array(gated.states) == state, gated.choice, -1).astype(np.int32)
    kept = replace(gated, choice=choice, certificate=fewer)
    assert kept.certificate.issued == {state: certificate.issued[state]}


# -- refusals ---------------------------------------------------------------------------------------


def test_refusals():
    log = bandit(60, (0.3, 0.8), 0)
    with pytest.raises(dprl.ParameterError, match="needs value_range"):
        dprl.gate(LEARNER, log)
    for bad in ((1, 0), (0,), "ab", (0, math.inf), (0, math.nan)):
        with pytest.raises(dprl.ParameterError, match="value_range must be"):
            dprl.gate(LEARNER, log, value_range=bad)
    with pytest.raises(dprl.LogError, match="outside value_range"):
        dprl.gate(LEARNER, log, value_range=(0, 0.5))
    for bad in ({"delta": 0}, {"delta": 1.0}, {"margin": -1}, {"mode": "hope"}, {"horizon": 0}):
        with pytest.raises(dprl.ParameterError, match=f"{next(iter(bad))} must"):
            dprl.gate(LEARNER, log, **{**UNIT, **bad})
    with pytest.raises(dprl.ParameterError, match="name the states"):
        dprl.gate(LEARNER, log, mode="in-sample", **UNIT)
    grid = envs.small_grid().sample(50, seed=0)
    learner = dprl.DPRLDiscrete(n_min=20, gamma=0.95, cut="terminal")
    with pytest.raises(dprl.ParameterError, match="more than horizon"):
        dprl.gate(learner, grid, **ON_GRID, horizon=5, **UNIT)
    with pytest.raises(dprl.ParameterError, match="has no discount"):
        dprl.gate(dprl.learners.baselines.BC().fit(log), log, **UNIT)
    with pytest.raises(dprl.ParameterError, match="more than horizon"):
        dprl.gate(learner, grid, horizon=5, **UNIT)
    with pytest.raises(dprl.ParameterError, match="has no split"):
        dprl.gate(
            LEARNER, log, **IN_SAMPLE, split=[True] * 60, **UNIT
        )  # fmt: skip
    with pytest.raises(dprl.ParameterError, match="seed must"):
        dprl.gate(LEARNER, log, seed=-1, **UNIT)
    elsewhere = replace(log, states=("S",))
    with pytest.raises(dprl.LogError, match="no states in common"):
        dprl.gate(LEARNER.fit(log), elsewhere, **UNIT)
    assert dprl.gate(LEARNER, log, delta=np.float32(0.1), margin=np.int64(0), **UNIT)
    with pytest.raises(dprl.LogError, match="1 group cannot"):
        dprl.gate(LEARNER, bandit(1, (0.3, 0.8), 0), **UNIT)


def test_counting_visits_is_refused():
    log = bandit(60, (0.3, 0.8), 0)
    with pytest.raises(dprl.ParameterError, match="counting every visit"):
        dprl.gate(dprl.DPRLDiscrete(n_min=5, gamma=1.0, visits="all"), log, **UNIT)
    learner = dprl.DPRLContinuous(n_min=5, gamma=1.0, radius=1, visits="all")
    with pytest.raises(dprl.ParameterError, match="counting every visit"):
        dprl.gate(learner, log, **UNIT)


def test_cut_episodes_need_a_treatment():
    log = bandit(200, (0.3, 0.8), 0)
    cut = replace(log, ended=np.where(np.arange(200) < 20, 2, 1).astype(np.uint8))
    with pytest.raises(dprl.LogError, match="20 of 200 episodes were cut, and no treatment"):
        dprl.gate(LEARNER, cut, **UNIT)
    with pytest.raises(dprl.LogError, match="not independent"):
        dprl.gate(replace(LEARNER, cut="bootstrap"), cut, **UNIT)
    with pytest.raises(dprl.LogError, match="weights are estimates"):
        dprl.gate(replace(LEARNER, cut="ipcw", plan=False), cut, **UNIT)
    with pytest.raises(dprl.LogError, match="20 of 200 episodes were cut and would be left out"):
        dprl.gate(replace(LEARNER, cut="drop"), cut, **UNIT)
    policy = replace(LEARNER, cut="drop").fit(cut)
    with pytest.raises(dprl.LogError, match="cut='drop-unrelated'"):
        dprl.gate(policy, cut, **UNIT)
    said = dprl.gate(replace(LEARNER, cut="drop-unrelated"), cut, **UNIT).certificate
    words = (
        "20 cut episodes were left out: whether an episode was cut depends neither on its length "
        "nor on its outcome (declared by the user)."
    )
    assert words in said.assumptions
    said = dprl.gate(replace(LEARNER, cut="terminal"), cut, **UNIT).certificate
    assert any("20 cut episodes count as ended" in line for line in said.assumptions)


def test_groups_must_not_straddle_the_split():
    log = bandit(40, (0.3, 0.8), 0)
    grouped = replace(log, group=np.arange(40, dtype=np.int32) // 2, groups=tuple(range(20)))
    with pytest.raises(dprl.ParameterError, match="1 of 20 groups straddle the split"):
        dprl.gate(LEARNER, grouped, split=np.arange(40) < 21, **UNIT)
    for bad in ([1] * 40, [True] * 39):
        with pytest.raises(dprl.ParameterError, match="split needs true or false"):
            dprl.gate(LEARNER, grouped, split=bad, **UNIT)
    with pytest.raises(dprl.ParameterError, match="on one side"):
        dprl.gate(LEARNER, grouped, split=[True] * 40, **UNIT)
    said = dprl.gate(LEARNER, grouped, **UNIT).certificate
    assert said.groups == 20
    assert said.assumptions[0].startswith("Groups are independent")


# -- why the published statements needed repair ------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_counterexample_theorem_2_lacks_a_factor(seed):
    """What a ball hides is lost at every step, and the theorem counts it once.

    Two places in one ball. Most episodes begin in "high", and all go on in "low" for 59 steps. In
    "high" the drug pays .095 and usual care -.095, in "low" -.205 and .205: values differ by .3
    within the ball. The drug is only ever given in "high", so that is what the ball says of it, and
    DPRL-C gives it everywhere: .41 less at every step, 3.66 in all. The theorem promises at most
    2.82. What follows the first step adds no place, action or trajectory, so the log has one more.
    """
    n, n_min, H, gamma, eps_r = 27_000, 5_000, 60, 0.9, 0.3
    rng = np.random.default_rng(seed)
    high = rng.random(n) < 0.8
    place, gave = np.zeros((n, 2)), np.zeros((n, 2), int)
    place[:, 0], gave[:, 0] = high, high & (rng.random(n) < 0.25)
    pays = np.array([[0.205, -0.205], [-0.095, 0.095]])

    def first(episodes):
        at, a = place[:episodes], gave[:episodes]
        return dprl.from_arrays(
            episode=np.repeat(np.arange(episodes), 2), time=np.tile(np.arange(2), episodes),
            state=at.reshape(-1, 1), feature_names=["place"],
            action=np.array(["usual", "drug"])[a.ravel()], reward=pays[at.astype(int), a].ravel(),
        )  # fmt: skip

    learner = dprl.DPRLContinuous(
        n_min=n_min, radius=1.0, gamma=gamma, plan=False, contrast=False,
        metric=dprl.Metric(scale="none"),
    )  # fmt: skip
    assert learner.fit(first(n)).act([[0.0], [1.0]]) == ["drug", "drug"]
    part = first(540)
    M = net_size(Engine.build(Points.of(part, learner.metric.fit(part), gamma), 2), 1.0, 80)
    assert M == 2  # pairs: one centre for each action
    at_high = 0.25 * 0.095 - 0.75 * 0.095  # usual care gives it to a quarter of "high"
    begin = 0.8 * (0.095 - at_high) + 0.2 * (-0.205 - 0.205)
    truth = begin - 0.41 * (gamma - gamma**H) / (1 - gamma)
    given = {"gamma": gamma, "v_min": -10.0, "v_max": 10.0, "delta": 0.05}
    printed = dprl.certificate.dprl_theorem_2(M, n_min, eps_r, **given)
    repaired = printed.value - 3 * eps_r * (1 / (1 - gamma) - 1)  # the factor alone
    sound = dprl.certificate.sound_theorem_2(M, n_min, eps_r, H, **given)
    assert [round(x, 2) for x in (truth, printed.value, repaired)] == [-3.65, -2.82, -10.92]
    assert sound.value < repaired < truth < printed.value


def test_counterexample_every_visit():
    """A loop walked 30 times with one outcome: by visit a coin of .3 passes for certain success."""
    false_alarms = {"visit": 0, "trajectory": 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x, y = rng.random(2) < 0.3, rng.random(60) < 0.5
        for name, values in (("visit", np.repeat(x, 30)), ("trajectory", x)):
            false_alarms[name] += differences(one_pair(values, y), [0], 0.05).log_e[0] > math.log(
                20
            )
    assert false_alarms["visit"] / 60 > 0.05  # it promised at most .05
    assert false_alarms["trajectory"] == 0


def test_counterexample_truncation():
    """'wait' pays 1 now and costs 3 later; looked at too early it is certified, and harmful."""
    rng = np.random.default_rng(0)
    full, early = [], []
    for _ in range(400):
        if rng.random() < 0.4:
            full.append([("s", "wait", 1.0), ("t", "go", 0.0), ("u", "go", -3.0)])
            early.append(full[-1][:2])
        else:
            full.append([("s", "treat", 0.5)])
            early.append(full[-1])
    ask = {"value_range": (-3.0, 1.0)}
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0, cut="terminal")
    cut = to_log(early, cut=[len(e) == 2 for e in early])
    with pytest.raises(dprl.LogError, match="no treatment is stated"):
        dprl.gate(replace(learner, cut=None), cut, **ask)
    misled = dprl.gate(learner, cut, **ask)
    assert misled.act("s") == "wait"
    assert any("until the cut" in line for line in misled.certificate.assumptions)
    assert dprl.gate(learner, to_log(full), **ask).act("s") == "treat"


def test_counterexample_the_markov_property():
    """'rush' pays a little each time, and at the first visit it spoils what comes at the end.

    The way back to the state shows the little, and never the harm: what follows the last visit
    depends on what was done at the first. First visits see the whole return; the gate asks, and
    counts those.
    """
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(400):
        rush = rng.random(10) < 0.2
        steps = [("s", "rush" if r else "care", 0.1 * r) for r in rush]
        steps[-1] = (*steps[-1][:2], steps[-1][2] + (0.0 if rush[0] else 0.8))
        rows.append(steps)
    log, ask = to_log(rows), {"value_range": (0.0, 1.8)}
    asked, plain = (dprl.gate(LEARNER, log, markov=claimed, **ask) for claimed in (True, False))
    assert asked.act("s") == plain.act("s") != "rush"
    assert asked.certificate.visits == "first"
    assert not dprl.markov_check(log, 1.0, lags=9, permutations=1_679).ok


def test_without_the_markov_property_less_is_claimed():
    log = bandit(600, (0.3, 0.8), 0)
    claim = dprl.gate(LEARNER, log, markov=False, **UNIT).certificate
    assert (claim.visits, claim.markov, claim.gain) == ("first", False, None)
    assert "at a trajectory's first visit of the state" in claim.claim
    assert "as a whole" not in claim.claim
    assert any("The Markov property is not claimed" in line for line in claim.assumptions)
    assert claim.comparison()["bound"] == ["Theorem 1, as published", "Theorem 1, sound"]
    full = dprl.gate(LEARNER, log, **UNIT).certificate
    assert (full.visits, full.markov) == ("all", True)
    assert any(line.startswith("Markov: it also holds all") for line in full.assumptions)
    facts = full.to_dict()
    for name in ("visits", "markov"):
        del facts[name]  # as in files from before: first visits, and the whole claim
    before = dprl.Certificate.from_dict(facts)
    assert (before.visits, before.markov, before.claim) == ("first", True, full.claim)
    for forged in ({"visits": "some"}, {"markov": 1}, {"markov": False}):
        with pytest.raises(dprl.PolicyError, match="certificate"):
            dprl.Certificate.from_dict({**full.to_dict(), **forged})


def test_states_are_declared_by_name():
    log = bandit(600, (0.3, 0.8), 0)
    for bad in ("s", [], 3, [["s"]], [1.5]):
        with pytest.raises(dprl.ParameterError, match="states must be a list of state labels"):
            dprl.gate(LEARNER, log, mode="in-sample", states=bad, **UNIT)
    with pytest.raises(dprl.ParameterError, match="1 of 3 states are named more than once"):
        dprl.gate(LEARNER, log, mode="in-sample", states=["s", "t", "s"], **UNIT)
    with pytest.raises(dprl.LogError, match="none of the 2 declared states is a state of the log"):
        dprl.gate(LEARNER, log, mode="in-sample", states=["S", 0], **UNIT)
    with pytest.raises(dprl.ParameterError, match="takes no list of states"):
        dprl.gate(LEARNER, log, states=["s"], **UNIT)
    two = replace(log, states=("s", "other"), state=np.arange(600) % 2)
    gated = dprl.gate(LEARNER, two, mode="in-sample", states=["s", "never"], **UNIT)
    assert set(gated.certificate.issued) == {"s"}
    notes = " ".join(gated.certificate.notes)
    assert "1 of 2 declared states do not occur in this log" in notes
    assert "1 of 2 states of this log were not declared" in notes
    assert any("The list of 2 states" in line for line in gated.certificate.assumptions)
    one = dprl.gate(LEARNER, bandit(1, (0.3, 0.8), 0), **IN_SAMPLE, **UNIT)
    assert one.certificate.vacuous  # one group: nothing to split, nothing certified


def test_what_nobody_took_at_a_first_visit_is_not_issued_and_nothing_breaks():
    """In r1c0 of this log all go down at first; going right is proved by later visits alone."""
    world = dprl.envs.small_grid()
    log = treat_cut(world.sample(50, seed=log_seed(33, 50, 2)), world.gamma, "terminal")
    learner = dprl.DPRLDiscrete(n_min=10, gamma=world.gamma)
    gated = dprl.gate(learner, log, value_range=(0.0, 1.0))
    assert gated.act("r1c0") is dprl.DEFER
    assert gated.certificate.rows == ()
