"""The fast path against an independent slow one, on random logs.

What goes wrong in one log of twenty is met by 60 logs 95 times in 100.
"""

from __future__ import annotations

import numpy as np
import pytest
import reference
from semi import semi_of

import dprl
from conftest import random_episodes, to_log
from dprl.evidence.counts import count, evidence
from dprl.evidence.decision_points import allowed

GAMMAS = (0.5, 0.9, 0.99)


def case(seed):
    dyadic = seed % 2 == 0
    gamma = 0.5 if dyadic else GAMMAS[seed % 3]
    return random_episodes(seed, dyadic), gamma, 1 + seed % 4, seed % 3 != 0


@pytest.mark.parametrize("visits", ["first", "all"])
@pytest.mark.parametrize("seed", range(40))
def test_evidence(seed, visits):
    episodes, gamma, _, _ = case(seed)
    log = to_log(episodes)
    fast, slow = evidence(log, gamma, visits=visits), reference.evidence(episodes, gamma, visits)
    state, pair, took, others = fast.state, fast.pair, fast.took, fast.others
    for i, s in enumerate(log.states):
        assert state.n[i] == slow.n_state[s]
        assert state.mean[i] == pytest.approx(slow.V[s], abs=1e-12)
        for j, a in enumerate(log.actions):
            assert pair.n[i, j] == slow.n_pair.get((s, a), 0)
            assert took.n[i, j] == slow.m.get((s, a), 0)
            assert others.n[i, j] == len(slow.y[s, a])
            for group, values in (
                (pair, slow.q.get((s, a), [])),
                (took, slow.x[s, a]),
                (others, slow.y[s, a]),
            ):
                if values:
                    assert group.mean[i, j] == pytest.approx(np.mean(values), abs=1e-12)
                else:
                    assert np.isnan(group.mean[i, j])
                if len(values) > 1:
                    variance = np.var(values, ddof=1)
                    assert group.sd[i, j] ** 2 == pytest.approx(variance, abs=1e-11, rel=1e-9)
                else:
                    assert np.isnan(group.sd[i, j])


@pytest.mark.parametrize("seed", range(60))
def test_allowed_pairs(seed):
    episodes, gamma, n_min, contrast = case(seed)
    log = to_log(episodes)
    fast = allowed(evidence(log, gamma), n_min, contrast=contrast)
    slow = reference.allowed(reference.evidence(episodes, gamma), n_min, contrast)
    found = {
        s: [a for j, a in enumerate(log.actions) if fast[i, j]]
        for i, s in enumerate(log.states)
        if fast[i].any()
    }
    assert found == slow


@pytest.mark.parametrize("visits", ["first", "all"])
@pytest.mark.parametrize("seed", range(40))
def test_semi_mdp(seed, visits):
    episodes, gamma, n_min, contrast = case(seed)
    log = to_log(episodes)
    known, occurrences = count(log, gamma, visits=visits, threads=1 + seed % 3)
    semi = semi_of(log, known, occurrences, allowed(known, n_min, contrast=contrast))
    slow = reference.allowed(reference.evidence(episodes, gamma, visits), n_min, contrast)
    R, D = reference.semi_mdp(episodes, gamma, slow, visits)
    assert [log.states[p] for p in semi.points] == sorted(slow)
    matrix = semi.D.toarray()
    row = 0
    for p, s in enumerate(sorted(slow)):
        assert semi.first[p] == row
        for a in slow[s]:
            assert log.actions[semi.action[row]] == a
            assert semi.R[row] == pytest.approx(R[s, a], abs=1e-11)
            expected = [D[s, a].get(t, 0.0) for t in sorted(slow)]
            assert matrix[row] == pytest.approx(expected, abs=1e-13)
            row += 1
    assert row == len(semi.R) == semi.first[-1]


@pytest.mark.thin(60)
@pytest.mark.parametrize("rule", ["text", "printed"])
@pytest.mark.parametrize("seed", range(60))
def test_semi_mdp_of_first_visits(seed, rule):
    episodes, gamma, n_min, contrast = case(seed)
    log = to_log(episodes)
    known, occurrences = count(log, gamma, threads=1 + seed % 3)
    semi = semi_of(log, known, occurrences, allowed(known, n_min, contrast=contrast), rule)
    slow = reference.allowed(reference.evidence(episodes, gamma), n_min, contrast)
    R, D, n = reference.semi_mdp_of_first_visits(episodes, gamma, slow, int(rule == "printed"))
    pairs = [(s, a) for s in sorted(slow) for a in slow[s]]
    assert semi.n.tolist() == [n[pair] for pair in pairs]
    assert semi.R.tolist() == pytest.approx([R[pair] for pair in pairs], abs=1e-11)
    expected = [[D[pair].get(t, 0.0) for t in sorted(slow)] for pair in pairs]
    assert semi.D.toarray().ravel() == pytest.approx(np.ravel(expected), abs=1e-13)
    assert not semi.R[semi.n == 0].any()
    assert (semi.n <= known.n_pair[semi.points.repeat(np.diff(semi.first)), semi.action]).all()


@pytest.mark.thin(40)
@pytest.mark.parametrize("visits", ["first", "all"])
@pytest.mark.parametrize("seed", range(40))
def test_semi_mdp_with_endings_pooled(seed, visits):
    episodes, gamma, n_min, contrast = case(seed)
    log = to_log(episodes)
    known, occurrences = count(log, gamma, visits=visits, threads=1 + seed % 3)
    pairs = allowed(known, n_min, contrast=contrast)
    semi = semi_of(log, known, occurrences, pairs, "pooled")
    slow = reference.allowed(reference.evidence(episodes, gamma, visits), n_min, contrast)
    R, D = reference.pooled_semi_mdp(episodes, gamma, slow, visits)
    rows = [(s, a) for s in sorted(slow) for a in slow[s]]
    assert semi.R.tolist() == pytest.approx([R[pair] for pair in rows], abs=1e-10)
    expected = [[D[pair].get(t, 0.0) for t in sorted(slow)] for pair in rows]
    assert semi.D.toarray().ravel() == pytest.approx(np.ravel(expected), abs=1e-12)


@pytest.mark.thin(90)
@pytest.mark.parametrize("rule", ["text", "printed"])
@pytest.mark.parametrize("seed", range(60))
def test_whole_fit_of_other_readings(seed, rule):
    episodes, gamma, n_min, contrast = case(seed)
    log = to_log(episodes)
    learner = dprl.DPRLDiscrete(n_min=n_min, gamma=gamma, contrast=contrast, segments=rule)
    policy = learner.fit(log)
    choice, _ = reference.fit(episodes, n_min, gamma, contrast, segments=rule)
    answers = dict(zip(log.states, policy.act(log.states), strict=True))
    assert {s: a for s, a in answers.items() if a is not dprl.DEFER} == choice
    assert (policy.planned[policy.allowed] == policy.Q[policy.allowed]).all()
    assert policy.parameters["segments"] == rule


@pytest.mark.parametrize("options", [{}, {"segments": "end"}, {"plan": False}], ids=str)
@pytest.mark.parametrize("seed", range(60))
def test_whole_fit(seed, options):
    episodes, gamma, n_min, contrast = case(seed)
    log = to_log(episodes)
    policy = dprl.DPRLDiscrete(n_min=n_min, gamma=gamma, contrast=contrast, **options).fit(log)
    choice, V = reference.fit(episodes, n_min, gamma, contrast, **options)
    answers = dict(zip(log.states, policy.act(log.states), strict=True))
    assert {s: a for s, a in answers.items() if a is not dprl.DEFER} == choice
    for s, a in choice.items():
        i, j = log.states.index(s), log.actions.index(a)
        assert policy.planned[i, j] == pytest.approx(V[s], abs=1e-9)


@pytest.mark.parametrize("gamma", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("treatment", ["drop", "bootstrap", "terminal"])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.filterwarnings("ignore::dprl.CutWarning")
def test_cut_episodes(seed, treatment, gamma):
    from dprl.logs.censoring import treat_cut
    from dprl.logs.returns import returns

    episodes = random_episodes(seed)
    cut = (np.random.default_rng(seed).random(len(episodes)) < 0.4).tolist()
    log = to_log(episodes, cut)
    slow = reference.treat_cut(episodes, cut, gamma, treatment)
    if not slow:
        with pytest.raises(dprl.LogError, match="none is left"):
            treat_cut(log, gamma, treatment)
        return
    settled = treat_cut(log, gamma, treatment)
    assert settled.n_episodes == len(slow)
    assert not len(settled.cut_episodes)
    G = returns(settled, gamma)
    for e, episode in enumerate(slow):
        rows = slice(settled.starts[e], settled.starts[e + 1])
        assert [settled.states[s] for s in settled.codes()[rows]] == [s for s, _, _ in episode]
        assert G[rows] == pytest.approx(
            reference.returns([r for _, _, r in episode], gamma), abs=1e-9
        )


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("seed", range(20))
def test_groups_count_once(seed, threads):
    """A patient with several stays is one witness: the first visit over all of them counts."""
    episodes = random_episodes(seed)
    rng = np.random.default_rng(seed)
    group = rng.integers(0, max(1, len(episodes) // 3), len(episodes)).tolist()
    rows = [(e, t, *row) for e, episode in enumerate(episodes) for t, row in enumerate(episode)]
    log = dprl.from_arrays(
        episode=[r[0] for r in rows], time=[r[1] for r in rows], state=[r[2] for r in rows],
        action=[r[3] for r in rows], reward=[r[4] for r in rows],
        group=[f"g{group[r[0]]:03d}" for r in rows],
    )  # fmt: skip
    fast = evidence(log, 0.9, threads=threads)
    came, V, Q, m = set(), {}, {}, {}
    for e, episode in enumerate(episodes):
        G = reference.returns([r for _, _, r in episode], 0.9)
        for (s, a, _), g in zip(episode, G, strict=True):
            if (group[e], s) not in came:
                came.add((group[e], s))
                V.setdefault(s, []).append(g)
                m[s, a] = m.get((s, a), 0) + 1
            if (group[e], s, a) not in came:
                came.add((group[e], s, a))
                Q.setdefault((s, a), []).append(g)
    for i, s in enumerate(log.states):
        assert fast.state.n[i] == len(V[s])
        assert fast.state.mean[i] == pytest.approx(np.mean(V[s]), abs=1e-12)
        for j, a in enumerate(log.actions):
            assert fast.pair.n[i, j] == len(Q.get((s, a), []))
            assert fast.took.n[i, j] == m.get((s, a), 0)
    policy = dprl.DPRLDiscrete(n_min=2, gamma=0.9).fit(log)
    assert np.array_equal(policy.n, fast.pair.n)


def test_groups_count_once_among_neighbours():
    rng = np.random.default_rng(0)
    n = 60
    log = dprl.from_arrays(
        episode=range(n), state=rng.normal(size=(n, 1)) * 0.1, action=rng.integers(2, size=n),
        reward=rng.normal(size=n), group=[f"p{i % 2}" for i in range(n)],
    )  # fmt: skip
    policy = dprl.DPRLContinuous(n_min=3, radius=5.0, gamma=1.0).fit(log)
    assert policy.act([[0.0]]) == [dprl.DEFER]
    assert policy.at([[0.0]]).n.max() == 2
    assert policy.training.n.max() == 1  # a patient's other stays are left out too
