"""Counts of (s, a, s') and moments of rewards: against a loop, in any order, with cut episodes."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from slow_confident import Slow, log_of, random_visits

import dprl
from conftest import to_log
from dprl.planning.model import count_transitions


def cells(table):
    """(s, a, s') → (count, mean, spread, lowest, highest), S for END."""
    S, A = table.n.shape
    pair = np.repeat(np.arange(S * A), np.diff(table.first))
    parts = (table.count, table.mean, table.spread, table.lowest, table.highest)
    return {
        (int(k) // A, int(k) % A, int(following)): tuple(float(part[j]) for part in parts)
        for j, (k, following) in enumerate(zip(pair, table.next, strict=True))
    }


def same(one, other):
    """Whether two tables are equal, bit for bit."""
    return all(
        np.array_equal(getattr(one, field.name), getattr(other, field.name))
        for field in fields(one)
    )


@pytest.mark.parametrize("seed", range(12))
def test_cells_and_model_equal_those_of_a_loop(seed):
    visits = random_visits(seed)
    slow, table = Slow(*visits, 1.0), count_transitions(log_of(*visits))
    expected = {}
    for s in range(slow.S):
        for a in range(slow.A):
            for r, following in slow.seen[s][a]:
                expected.setdefault((s, a, following), []).append(r)
    counted = cells(table)
    assert counted.keys() == expected.keys()
    for key, rewards in expected.items():
        r = np.array(rewards)
        moments = (len(r), r.mean(), ((r - r.mean()) ** 2).sum(), r.min(), r.max())
        assert counted[key] == pytest.approx(moments, rel=1e-12, abs=1e-12)
    assert np.array_equal(table.n, slow.n)
    assert np.array_equal(table.visits, slow.visits)
    assert np.allclose(table.b, slow.b, rtol=1e-15)
    assert np.allclose(table.R(), slow.R.ravel(), rtol=0, atol=1e-12)
    assert np.allclose(table.P().toarray(), slow.P.reshape(-1, slow.S), rtol=0, atol=1e-12)
    assert np.array_equal(table.start, np.rint(slow.start * slow.episodes))


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_episodes_and_the_names_of_groups_do_not_matter(seed):
    episodes, groups, S, A = random_visits(3 * seed)
    table = count_transitions(log_of(episodes, groups, S, A))
    order = np.random.default_rng(seed).permutation(len(episodes))
    turned = count_transitions(
        log_of([episodes[e] for e in order], [-groups[e] for e in order], S, A)
    )
    assert same(table, turned)


def test_rows_in_any_order_give_the_same_bits():
    episodes, _, _, _ = random_visits(5)
    rows = [(e, t, *row) for e, episode in enumerate(episodes) for t, row in enumerate(episode)]
    tables = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(rows)) if seed else range(len(rows))
        e, t, s, a, r = map(list, zip(*(rows[i] for i in order), strict=True))
        log = dprl.from_arrays(episode=e, time=t, state=s, action=a, reward=r)
        tables.append(count_transitions(log))
    assert same(tables[0], tables[1])
    assert same(tables[0], tables[2])


def test_of_a_cut_episode_the_step_into_the_last_state_counts_and_the_last_row_does_not():
    ended = [("s", "a", 1.0), ("t", "b", 2.0)]
    stopped = [("s", "a", 5.0), ("t", "a", 100.0)]
    log = to_log([ended, stopped], cut=[False, True])
    table = count_transitions(log)
    # states s, t are 0, 1; actions a, b are 0, 1; END is 2
    counted = cells(table)
    assert counted.keys() == {(0, 0, 1), (1, 1, 2)}
    assert counted[0, 0, 1] == pytest.approx((2, 3.0, 8.0, 1.0, 5.0))
    assert counted[1, 1, 2] == (1, 2.0, 0.0, 2.0, 2.0)
    assert table.start.tolist() == [2, 0]


def test_steps_into_a_state_of_which_nothing_is_known_do_not_count_either():
    ended = [("s", "a", 1.0)]
    stopped = [("s", "a", 7.0), ("t", "a", 7.0), ("u", "a", 7.0), ("v", "a", 7.0)]
    table = count_transitions(to_log([ended, stopped], cut=[False, True]))
    # v is known only as a last state; so u leads nowhere known, and t, and the second visit of s
    assert cells(table) == {(0, 0, 4): (1, 1.0, 0.0, 1.0, 1.0)}
    both = [("v", "b", 3.0)]
    table = count_transitions(to_log([ended, stopped, both], cut=[False, True, False]))
    assert table.n.tolist() == [[2, 0], [1, 0], [1, 0], [0, 1]]


def test_a_log_without_any_known_outcome_and_one_of_features_are_refused():
    with pytest.raises(dprl.LogError, match="no step of the log has a known outcome") as caught:
        count_transitions(to_log([[("s", "a", 1.0)]] * 3, cut=[True] * 3))
    assert caught.value.do
    log = dprl.from_arrays(episode=[1, 2], state=[[0.5, 1], [1, 2]], action=[0, 1], reward=[0, 1])
    with pytest.raises(dprl.LogError):
        count_transitions(log)


def test_rewards_of_very_different_size_keep_their_spread():
    episodes = [[("s", "a", r)] for r in (1e15, 1e15 + 1, 1e15 + 2)]
    table = count_transitions(to_log(episodes))
    assert cells(table)[0, 0, 1] == (3, 1e15 + 1, 2.0, 1e15, 1e15 + 2)
