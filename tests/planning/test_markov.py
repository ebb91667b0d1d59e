"""Is the state enough? The p-values by hand, their size and power, and what is left out."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest

import dprl
from conftest import to_log
from dprl.envs.hard import delayed_harm
from dprl.planning import markov
from dprl.planning import markov as _past
from dprl.planning import markov as _shuffles

WELL = {"x": [3.0, 2.5, 2.0, 0.5], "y": [0.0, 1.0, 0.5]}
ILL = {"x": [1.0, 1.0, 0.0], "y": [0.0, 0.0]}


def two_cells(*, repeat=1):
    """Episodes that take x or y at first, and then z in one of two states."""
    return [
        [("first", action, 0.0), *[(state, "z", reward)] * repeat]
        for state, outcomes in (("well", WELL), ("ill", ILL))
        for action, rewards in outcomes.items()
        for reward in rewards
    ]


def statistic(values, sizes):
    """T of one cell: the first sizes[0] values are of one category, and so on."""
    values = np.asarray(values)
    parts = np.split(values, np.cumsum(sizes)[:-1])
    between = sum(len(p) * (p.mean() - values.mean()) ** 2 for p in parts)
    return between / values.var(ddof=1)


def by_enumeration():
    cells = [([*c["x"], *c["y"]], [len(c["x"]), len(c["y"])]) for c in (WELL, ILL)]
    observed = sum(statistic(values, sizes) for values, sizes in cells)
    each = [
        [statistic(order, sizes) for order in itertools.permutations(values)]
        for values, sizes in cells
    ]
    total = np.add.outer(*map(np.array, each))
    return observed, float((total >= observed - 1e-9).mean())


def named(result, past, outcome="what comes"):
    (one,) = (c for c in result.comparisons if (c.past, c.outcome) == (past, outcome))
    return one


def test_p_value_is_that_of_all_orders():
    observed, exact = by_enumeration()
    result = dprl.markov_check(to_log(two_cells()), 1.0, lags=1, permutations=19_999)
    one = named(result, "action 1 before")
    assert one.p == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000))
    assert (one.cells, one.visits, result.cells, result.visits) == (2, 12, 2, 12)
    assert one.adjusted == one.p  # nothing else could be compared
    assert one.share == pytest.approx((observed - 2) / (10 - 2))
    assert {c.past for c in result.comparisons if math.isnan(c.p)} == {
        "state 1 before", "reward 1 before", "step number",
    }  # fmt: skip


def test_every_order_of_a_cell_is_equally_likely():
    x = np.arange(4.0)[None].repeat(2, axis=0)
    seen: dict[tuple[float, ...], int] = {}
    for b in range(12_000):
        y = x.copy()
        with np.errstate(over="ignore"):
            word = np.uint64(_shuffles._mixed(_shuffles.STEP * np.uint64(b + 1)))
        _shuffles._shuffle(y, word)
        assert (y[0] == y[1]).all()
        seen[tuple(y[0])] = seen.get(tuple(y[0]), 0) + 1
    assert len(seen) == 24
    assert sum((n - 500) ** 2 / 500 for n in seen.values()) < 53  # chi-squared, 23 df: 1 in 3,000


def test_threads_do_not_matter_but_the_seed_does(monkeypatch):
    log = dprl.envs.rooms().sample(40, seed=0)
    one = dprl.markov_check(log, 0.99, permutations=499)
    monkeypatch.setattr(markov, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(markov.os, "cpu_count", lambda: 7)
    assert dprl.markov_check(log, 0.99, permutations=499) == one
    assert dprl.markov_check(log, 0.99, permutations=499, seed=1) != one


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dprl.CutWarning")
@pytest.mark.parametrize(
    ("name", "episodes", "gamma"),
    [("care_pathway", 60, 1.0), ("rooms", 25, 0.99), ("risky_arms", 100, 0.99)],
)
def test_markov_logs_are_seldom_rejected(name, episodes, gamma):
    world = getattr(dprl.envs, name)()
    results = [
        dprl.markov_check(world.sample(episodes, seed=1000 + s), gamma, permutations=499, seed=s)
        for s in range(200)
    ]
    assert sum(not r.ok for r in results) <= 18  # binomial (200, .05): more once in 100
    p = np.array([c.p for r in results for c in r.comparisons if not math.isnan(c.p)])
    if name == "risky_arms":  # each second state has one past: nothing to compare
        assert not len(p)
        assert "Nothing could be compared" in str(results[0])
    else:
        assert np.mean(p <= 0.1) < 0.13


def test_a_harm_that_comes_later_than_anybody_looks_back_is_found():
    world = delayed_harm()  # three days later; two steps back are looked at
    result = dprl.markov_check(world.sample(600, seed=50_000), 1.0)
    first = result.findings[0]
    assert (first.past, first.outcome) == ("action 2 before", "what comes later")
    assert "tells what comes later: mean -" in first.sentence


def test_what_comes_later_adds_up_the_surprises_of_the_model():
    log = dprl.envs.random_mdp(3).sample(40, seed=50_000)
    mdp = dprl.planning.estimate(log, 0.9).mdp
    V = mdp.state_values()
    Q, code = mdp.action_values(V), log.codes()
    y, reward, later = markov._outcomes(log, 0.9, mdp)
    assert np.array_equal(reward, log.reward)
    for first, end in zip(log.starts[:-1], log.starts[1:], strict=True):
        for t in range(first, end):
            after = V[code[t + 1]] if t + 1 < end else 0.0
            assert y[t] == pytest.approx(log.reward[t] + 0.9 * after)
            surprises = [y[k] - Q[code[k], log.action[k]] for k in range(t + 1, end)]
            discounts = 0.9 ** np.arange(1, len(surprises) + 1)
            assert later[t] == pytest.approx(float(discounts @ surprises), abs=1e-12)


@pytest.mark.parametrize("delay", [1, 2])
def test_a_delayed_harm_is_found_and_named(delay):
    world = dprl.envs.delayed(delay=delay)
    for seed in range(15):
        result = dprl.markov_check(world.sample(200, seed=seed), 1.0, permutations=299)
        assert not result.ok
        assert result.findings[0].past == f"action {delay} before"
        assert result.findings[0].share > 0.4
    assert f"the action {'one step' if delay == 1 else 'two steps'} before tells" in str(result)
    assert "DPRLDiscrete" in str(result)


def test_the_sentence_gives_the_means_of_the_cell():
    episodes = [
        [("a", "wait" if i % 3 else "drug", 0.0), ("b", "go", 1.0 * (i % 3 > 0) + (i % 5) / 100)]
        for i in range(60)
    ]
    result = dprl.markov_check(to_log(episodes), 1.0, lags=1)
    one = result.findings[0]
    assert (one.past, one.state, one.action) == ("action 1 before", "b", "go")
    assert one.sentence == (
        "In 'b' with 'go', the action one step before tells what comes: "
        "mean 0.02 after 'drug' (20 groups), mean 1.02 after 'wait' (40 groups)."
    )


def test_only_the_first_visit_of_a_group_counts():
    once = dprl.markov_check(to_log(two_cells()), 1.0, lags=1, permutations=499)
    twice = dprl.markov_check(to_log(two_cells(repeat=2)), 1.0, lags=1, permutations=499)
    assert named(once, "action 1 before").visits == named(twice, "action 1 before").visits == 12
    log = to_log(two_cells() * 2)
    half = log.n_episodes // 2
    grouped = replace(
        log, group=np.tile(np.arange(half), 2), groups=tuple(f"g{i}" for i in range(half))
    )
    result = dprl.markov_check(grouped, 1.0, lags=1, permutations=499)
    assert (result.groups, result.visits) == (half, 12)
    assert named(result, "action 1 before").p == named(once, "action 1 before").p


def test_the_last_visit_of_a_cut_episode_is_left_out():
    episodes = two_cells()
    cut = [i == 0 for i in range(len(episodes))]
    for how in ("terminal", "bootstrap", "drop"):
        result = dprl.markov_check(to_log(episodes, cut), 1.0, lags=1, permutations=499, cut=how)
        assert (result.visits, result.unknown) == (11, 1)
    assert "The last visits of 1 cut episode have no known outcome" in str(result)
    with pytest.warns(dprl.CutWarning):
        dprl.markov_check(to_log(episodes, cut), 1.0, lags=1, permutations=499)


def test_lags_stop_at_the_beginning_of_an_episode():
    log = to_log([[("a", "x", 1.0), ("b", "y", 2.0)], [("c", "x", 3.0), ("d", "y", 4.0)]])
    past = {c.name: c for c in _past.candidates(log, np.arange(4), 1)}
    words = [past["state 1 before"].words[k] for k in past["state 1 before"].code]
    none = "none (the episode had not begun)"
    assert words == [none, "'a'", none, "'c'"]


def test_bins_are_few_and_keep_rare_values_apart():
    rng = np.random.default_rng(0)
    code, words = _past.bins(rng.normal(size=1000))
    assert np.bincount(code).tolist() == [200] * 5
    assert len(words) == 5
    rare = np.zeros(100)
    rare[:6] = np.arange(1, 7)
    for values in (rare, -rare):
        assert np.bincount(_past.bins(values)[0]).min() == 6
    assert _past.bins(np.array([2.0, 1.0, 2.0]))[1] == ("1", "2")


def test_the_reward_alone_is_an_outcome_where_it_says_something_else():
    rng = np.random.default_rng(0)
    episodes = []
    for _ in range(200):
        first, other = rng.integers(2), rng.integers(2)
        episodes.append([
            ("s", "xy"[first], 0.0),
            ("m", "z", float(first) + 0.1 * rng.random()),
            ("good" if other else "bad", "z", 5.0 * other),
        ])  # fmt: skip
    result = dprl.markov_check(to_log(episodes), 1.0, lags=1)
    assert named(result, "action 1 before", "the reward").adjusted <= 0.05
    assert named(result, "action 1 before", "the reward").share > 0.9
    assert named(result, "action 1 before").share < 0.2


@pytest.mark.parametrize(
    "episodes",
    [
        [[("s", "a", 1.0)]],
        [[("s", "a", float(i))] for i in range(5)],
        [[("s", "a", 1.0)] * 3 for _ in range(5)],
        [[("s", "a", 0.1 + i)] * (1 + i) for i in range(4)],
    ],
)
def test_logs_with_little_in_them_say_so(episodes):
    result = dprl.markov_check(to_log(episodes), 1.0)
    assert result.ok
    assert (result.cells, result.visits) == (0, 0)
    assert "Nothing could be compared" in str(result)
    assert all(math.isnan(c.p) for c in result.comparisons)


def test_values_that_differ_by_rounding_are_equal():
    episodes = [
        [("s", "xy"[i % 2], 0.0), ("m", "z", 0.0), (f"end {i % 3}", "z", 0.1 + 1e-16 * (i % 3))]
        for i in range(30)
    ]
    assert dprl.markov_check(to_log(episodes), 1.0).cells == 0


def test_what_was_available_does_not_matter():
    log = to_log(two_cells())
    offered = replace(log, available=np.zeros(log.n_steps), menus=np.ones((1, log.n_actions), bool))
    assert dprl.markov_check(offered, 1.0) == dprl.markov_check(log, 1.0)


def test_large_logs_take_fewer_permutations_and_say_so(monkeypatch):
    log = dprl.envs.delayed().sample(50, seed=0)
    monkeypatch.setattr(markov, "MOST_SHUFFLED", 1_000)
    result = dprl.markov_check(log, 1.0)
    assert (result.permutations, result.asked) == (199, 999)
    assert "999 were asked for" in str(result)
    assert dprl.markov_check(log, 1.0, level=0.01).permutations == 799
    assert not result.ok


def test_too_few_permutations_are_refused():
    log = dprl.envs.delayed().sample(50, seed=0)
    with pytest.raises(dprl.ParameterError, match=r"30 permutations find nothing at level 0\.05"):
        dprl.markov_check(log, 1.0, permutations=30)
    assert dprl.markov_check(log, 1.0, permutations=159).findings


def test_bad_input_is_refused():
    log = dprl.envs.delayed().sample(5, seed=0)
    for name, value in (
        ("lags", 0), ("permutations", 0), ("seed", -1), ("level", 1.0), ("cut", "cut"),
    ):  # fmt: skip
        with pytest.raises(dprl.ParameterError, match=f"{name} must be"):
            dprl.markov_check(log, 1.0, **{name: value})
    with pytest.raises(dprl.ParameterError, match="gamma must be"):
        dprl.markov_check(log, 1.5)
    with pytest.raises(dprl.ParameterError, match="a log is needed"):
        dprl.markov_check([1], 1.0)
    features = dprl.from_arrays(
        episode=[1, 1], state=np.zeros((2, 2)), action=["a", "b"], reward=[0.0, 1.0]
    )
    with pytest.raises(dprl.LogError, match="2 numeric features, not labels") as caught:
        dprl.markov_check(features, 1.0)
    assert len(str(caught.value).splitlines()) == 3


def test_the_result_is_json_and_a_table():
    result = dprl.markov_check(dprl.envs.delayed().sample(50, seed=0), 1.0)
    data = json.loads(result.to_json())
    assert data == result.to_dict()
    assert data["ok"] is False
    assert data["comparisons"][-1]["p"] is None
    assert len(result.table()) == len(result.comparisons)


def test_holm_by_hand():
    assert markov._holm(np.array([0.04, 0.01, 0.03])) == pytest.approx([0.06, 0.03, 0.06])
    assert markov._holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]


def test_a_curtailed_check_finds_the_same_with_fewer_shuffles():
    fewer = 0
    for seed in range(50_000, 50_030):
        world = dprl.envs.delayed() if seed % 3 else dprl.envs.care_pathway()
        log = world.sample(12, seed=seed)
        full, short = (
            dprl.markov_check(log, 1.0, permutations=799, level=0.2, curtailed=how)
            for how in (False, True)
        )
        assert full.ok == short.ok
        if not full.ok:
            assert short == full
        assert full.lines[0] == short.lines[0]
        fewer += short.permutations < full.permutations == 799
        assert short.permutations == 799 or short.ok
    assert 5 <= fewer < 30
