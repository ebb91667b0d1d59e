"""Advantages from the way back to the same state: against a loop over visits, and over many logs."""

from __future__ import annotations

import numpy as np
import pytest
from slow_confident import log_of, random_visits

import dprl
from conftest import to_log
from dprl.evidence.excursions import excursions


def ways_back(episodes, gamma):
    """(s, a) → R and D of every visit."""
    visits = {}
    for episode in episodes:
        for t, (s, a, _) in enumerate(episode):
            R, D = 0.0, 0.0
            for k, (next_state, _, r) in enumerate(episode[t:]):
                if k and next_state == s:
                    D = gamma**k
                    break
                R += gamma**k * r
            visits.setdefault((s, a), []).append((R, D))
    return {pair: np.array(rows) for pair, rows in visits.items()}


def slowly(visits, s):
    """V(s), and a → (Q, standard error of Q - V), from the visits of s."""
    here = {a: rows for (state, a), rows in visits.items() if state == s}
    every = np.concatenate(list(here.values()))
    n = len(every)
    R, D = every.mean(axis=0)
    V = R / (1 - D)
    prior = ((every[:, 0] + every[:, 1] * V - V) ** 2).sum() / max(n - 1, 1)
    p = {a: len(rows) / n for a, rows in here.items()}
    Q = {a: rows[:, 0].mean() + rows[:, 1].mean() * V for a, rows in here.items()}
    e = {}
    for a, rows in here.items():
        Z = rows[:, 0] + rows[:, 1] * V
        e[a] = (((Z - Z.mean()) ** 2).sum() + 2 * prior) / (len(Z) + 1) / len(Z)
    of_b = sum(p[o] * (Q[o] - V) ** 2 for o in here) / n
    answer = {}
    for a, rows in here.items():
        c = (rows[:, 1].mean() - 1) / (1 - D)
        others = sum(p[o] ** 2 * e[o] for o in here if o != a)
        variance = (1 + c * p[a]) ** 2 * e[a] + c**2 * others + c**2 * of_b
        answer[a] = Q[a], np.sqrt(variance)
    return V, answer


@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("seed", range(15))
def test_values_and_errors_equal_those_of_a_loop_over_visits(seed, gamma):
    episodes, groups, S, A = random_visits(seed)
    values = excursions(log_of(episodes, groups, S, A), gamma)
    visits = ways_back(episodes, gamma)
    for s in range(S):
        if not any(state == s for state, _ in visits):
            assert values.V[s] == 0
            assert np.isnan(values.se[s]).all()
            continue
        V, answer = slowly(visits, s)
        scale = max(abs(V), 1.0)
        assert values.V[s] == pytest.approx(V, abs=1e-9 * scale)
        for a in range(A):
            assert values.n[s, a] == len(visits.get((s, a), []))
            if a in answer:
                assert values.Q[s, a] == pytest.approx(answer[a][0], abs=1e-9 * scale)
                assert values.se[s, a] == pytest.approx(answer[a][1], abs=1e-9 * scale)
            else:
                assert values.Q[s, a] == 0
                assert np.isnan(values.se[s, a])


def test_a_log_that_can_be_done_by_hand():
    # s a 1 → t a 10 → s b 2 (end);  s b 4 (end), γ = .5
    log = to_log([[("s", "a", 1.0), ("t", "a", 10.0), ("s", "b", 2.0)], [("s", "b", 4.0)]])
    values = excursions(log, 0.5)
    # visits of s: (R, D) = (6, .25), (2, 0), (4, 0): R̄ = 4, D̄ = 1/12
    V = 4 / (11 / 12)
    assert pytest.approx([V, 11.0]) == values.V  # t: 10 + .5 · 2
    assert values.Q[0] == pytest.approx([6 + 0.25 * V, 3.0])
    assert values.n.tolist() == [[1, 2], [1, 0]]


def test_the_value_of_usual_practice_is_the_mean_of_its_actions():
    for seed in range(10):
        values = excursions(log_of(*random_visits(seed)), 0.9)
        visits = values.n.sum(axis=1)
        seen = visits > 0
        mean = (values.n * values.Q).sum(axis=1)[seen] / visits[seen]
        assert np.allclose(mean, values.V[seen], rtol=1e-9, atol=1e-9)


def test_standard_errors_equal_the_spread_over_many_logs():
    chances, pays, brings, errors = (0.5, 0.3), (0.0, 0.4), [], []
    rng = np.random.default_rng(300_000)
    for _ in range(250):
        rows, episode = [], 0
        while episode < 300:
            a = int(rng.random() < 0.4)
            rows.append((episode, a, pays[a] + rng.normal()))
            episode += rng.random() > chances[a]
        number, action, reward = map(list, zip(*rows, strict=True))
        log = dprl.from_arrays(
            episode=number, state=["s"] * len(rows), action=action, reward=reward
        )
        values = excursions(log, 1.0)
        brings.append(values.Q[0] - values.V[0])
        errors.append(values.se[0])
    assert np.allclose(np.mean(errors, axis=0) / np.std(brings, axis=0), 1, atol=0.15)
    # the truth: V = E[r] / P(end)
    V = 0.16 / (0.6 * 0.5 + 0.4 * 0.7)
    truth = np.array([0.5 * V - V, 0.4 + 0.3 * V - V])
    assert np.allclose(np.mean(brings, axis=0), truth, atol=4 * np.mean(errors) / np.sqrt(250))
