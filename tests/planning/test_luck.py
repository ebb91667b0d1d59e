"""How many changes luck alone would make, and which survive: against slow code, on noise, on truth."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest

import dprl
from conftest import random_episodes, to_log
from dprl.envs import care_pathway, forest
from dprl.evidence.counts import Counts, count_source
from dprl.evidence.decision_points import allowed, best_choice, enough
from dprl.logs.source import as_source
from dprl.planning import luck as luck_module
from dprl.planning.luck import chance_at_most, deal_actions, luck_of, survivors


def noise(seed, states=150, episodes=1_000, steps=10, outcome="normal"):
    """A log in which no action matters: states and actions are drawn, and so are the rewards."""
    random = np.random.default_rng([4, seed])
    n, p = episodes * steps, [0.6, 0.25, 0.15]
    action, reward = random.choice(3, n, p=p), np.zeros((episodes, steps))
    if outcome == "normal":
        reward = random.normal(size=n)
    elif outcome == "rare":
        reward = (random.random(n) < 0.005) * 1.0
    elif outcome == "skewed":
        reward = np.exp(2 * random.normal(size=n))
    else:  # one outcome for all states of an episode, and episodes that prefer an action
        reward[:, -1] = random.normal(size=episodes)
        prefers = random.random((episodes, steps)) < 0.7
        own = random.choice(3, episodes, p=p)[:, None]
        action = np.where(prefers, own, action.reshape(episodes, steps)).ravel()
    return dprl.from_arrays(
        episode=np.repeat(np.arange(episodes), steps), state=random.integers(0, states, n),
        action=action, reward=np.ravel(reward),
    )  # fmt: skip


def facts_of(log, n_min=10, plan=True, gamma=0.99):
    learner = dprl.DPRLDiscrete(n_min=n_min, gamma=gamma, plan=plan, cut="terminal")
    return learner.fit(log).provenance["luck"]


# -- against slow code -----------------------------------------------------------------------------


def slow_luck(episodes, gamma, n_min, draws, seed):
    """The changes by best Q̂ after each of some shuffles within states, by lists and loops."""
    first, later = defaultdict(list), defaultdict(list)
    for episode in episodes:
        G, returns = 0.0, []
        for _, _, r in reversed(episode):
            G = r + gamma * G
            returns.append(G)
        been, done = set(), set()
        for (s, a, _), value in zip(episode, reversed(returns), strict=True):
            if s not in been:
                first[s].append((a, value))
            elif (s, a) not in done:
                later[s].append((a, value))
            been.add(s)
            done.add((s, a))
    random, numbers = np.random.default_rng(seed), []
    for _ in range(draws):
        changes = 0
        for s, visits in first.items():
            V = np.mean([g for _, g in visits])
            m = defaultdict(int)
            for a, _ in visits:
                m[a] += 1
            sums = defaultdict(list)
            for part in (visits, later[s]):
                values = [g for _, g in part]
                random.shuffle(values)
                for (a, _), g in zip(part, values, strict=True):
                    sums[a].append(g)
            size = math.sqrt(np.mean([g * g for _, g in visits]))
            best = None
            for a in sorted(sums):
                Q = np.mean(sums[a])
                ok = len(sums[a]) >= n_min and len(visits) - m[a] >= n_min
                if ok and V - 1e-9 * size <= Q and (best is None or best[0] + 1e-12 * abs(Q) < Q):
                    best = (Q, a)
            most = max(m.values())
            usual = [a for a in m if m[a] == most]
            divided = 2 * most < sum(m.values())
            changes += best is not None and (divided or usual != [best[1]])
        numbers.append(changes)
    return numbers


@pytest.mark.parametrize("seed", [0, 3, 5, 8, 11])
def test_expected_by_luck_is_what_a_slow_implementation_expects(seed, monkeypatch):
    monkeypatch.setattr(luck_module, "DRAWS", (3, 2_000))
    monkeypatch.setattr(luck_module, "SHUFFLED", 10**8)
    episodes = random_episodes(seed)
    fast = facts_of(to_log(episodes), n_min=2, plan=False, gamma=0.9)
    slow = slow_luck(episodes, 0.9, 2, 2_000, seed)
    error = math.hypot(np.std(slow), 1e-9) * math.sqrt(2 / 2_000)
    assert abs(fast["expected"] - np.mean(slow)) <= 5 * error + 1e-9


def one_state(x, took, draws):
    begin, chance = np.array([0, len(x), len(x)]), np.ones(1)
    label = np.asarray(took, np.int32)
    chance_at_most(
        begin, np.array(x, float), label, np.ones(1, np.int32), np.uint64(7), 0, draws, chance
    )
    return chance[0]


def exact(x, took):
    """P(a random division does as well), by listing all of them."""
    x, m = np.asarray(x, float), int(np.sum(took))
    aim = x[np.asarray(took, bool)].sum() - 1e-9
    sums = [x[list(c)].sum() for c in itertools.combinations(range(len(x)), m)]
    return np.mean(np.array(sums) >= aim)


@pytest.mark.parametrize("seed", range(30))
def test_the_chance_is_never_below_the_exact_one(seed):
    random = np.random.default_rng(seed)
    n, m = int(random.integers(6, 15)), int(random.integers(1, 5))
    took = random.permutation(np.arange(n) < m)
    kinds = [random.normal(size=n), random.random(n) < 0.3, np.exp(3 * random.normal(size=n))]
    x = np.asarray(kinds[seed % 3], float) + took * random.choice([0, 1, 3])
    x /= max(np.abs(x).max(), 1e-9)
    truth, bound = exact(x, took), one_state(x, took, 0)
    assert truth <= bound * (1 + 1e-9)
    assert bound <= max(40 * truth, 1e-12) or bound == 1
    if bound < 1:
        near = one_state(x, took, 999)
        assert abs(near - truth) < 5 * (truth / math.sqrt(20) + math.sqrt(truth / 999)) + 2 / 999
    several = [exact(x, row) <= one_state(x, row, 0) * (1 + 1e-9)
               for row in [random.permutation(took) for _ in range(5)]]  # fmt: skip
    assert all(several)


def test_a_clean_separation_has_its_exact_chance():
    x, took = np.concatenate([np.ones(10), np.zeros(90)]), np.arange(100) < 10
    assert one_state(x, took, 0) == pytest.approx(1 / math.comb(100, 10), rel=1e-3)
    assert one_state(1 - x, took, 999) == 1
    assert one_state(np.ones(100), took, 999) == 1


def test_rare_outcomes_do_not_look_like_discoveries():
    """3 of 10 where 1 in 100 is usual: a t test with one variance says 1e-20, and 1e-4 is true."""
    x, took = np.zeros(1_000), np.arange(1_000) < 10
    x[[0, 1, 2, *range(500, 507)]] = 1
    truth = sum(
        math.comb(10, k) * math.comb(990, 10 - k) for k in range(3, 11)
    ) / math.comb(1_000, 10)  # fmt: skip
    assert truth <= one_state(x, took, 0) < 20 * truth


@pytest.mark.parametrize("seed", range(5))
def test_step_up_rule(seed):
    p = np.random.default_rng(seed).random(12) ** 3
    m = len(p)
    k = max((i for i in range(1, m + 1) if np.sum(p <= 0.1 * i / m) >= i), default=0)
    assert survivors(p, 0.1).tolist() == (p <= 0.1 * k / m).tolist()
    assert not survivors(np.ones(3), 0.1).any()
    assert survivors(np.empty(0), 0.1).shape == (0,)


def test_shuffled_actions_stay_in_their_part():
    begin = np.array([0, 5, 9, 9, 12])
    label = np.array([0, 0, 1, 2, 2, 0, 1, 1, 1, 3, 4, 5], np.int32)
    dealt = [label.copy() for _ in range(200)]
    for draw, one in enumerate(dealt):
        deal_actions(begin, one, np.uint64(3), 0, draw)
        for low, high in itertools.pairwise(begin):
            assert sorted(one[low:high]) == sorted(label[low:high])
    share = np.mean([one[0] == 1 for one in dealt])
    assert 0.1 < share < 0.3  # 1 of 5


# -- where no action matters -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("plan", [False, True])
@pytest.mark.parametrize("outcome", ["normal", "rare", "skewed", "shared"])
def test_on_noise_luck_explains_all_and_nothing_survives(outcome, plan):
    facts = [facts_of(noise(seed, outcome=outcome), plan=plan) for seed in range(20)]
    changes, expected = (np.mean([f[k] for f in facts]) for k in ("changes", "expected"))
    assert changes > 40
    error = np.std([f["changes"] for f in facts], ddof=1) / math.sqrt(len(facts))
    assert abs(expected - changes) <= 3 * error + 0.03 * changes
    assert np.mean([f["survive"] == 0 for f in facts]) >= 0.9


# -- where some do ---------------------------------------------------------------------------------


def test_what_is_true_survives():
    luck = [facts_of(care_pathway().sample(2_000, seed=seed), 50, gamma=1.0) for seed in range(10)]
    assert [f["survive"] for f in luck].count(2) >= 9
    assert all(f["survive"] <= f["changes"] for f in luck)


def test_in_the_forest_only_the_first_decision_survives():
    """Inside chains all actions are alike: changes there are luck, the one at s0 is not."""
    log = forest().sample(2_000, seed=0)
    learner = dprl.DPRLDiscrete(n_min=20, gamma=0.99)
    policy = learner.fit(log)
    assert policy.provenance["luck"]["changes"] > 1
    assert policy.provenance["luck"]["survive"] == 1
    source = as_source(log)
    summed = count_source(source, Counts(0.99))
    silent = policy.choice.copy()
    silent[policy.states.index("s0")] = -1
    counted = enough(summed.evidence, 20)
    assert luck_of(source, summed, counted, silent, plan=True)["survive"] == 0


# -- the same every time, soon enough --------------------------------------------------------------


def test_the_same_log_gives_the_same_numbers_on_any_number_of_threads(monkeypatch):
    log = noise(1)
    one = dprl.DPRLDiscrete(n_min=10, gamma=0.99).fit(log)
    monkeypatch.setattr("dprl._core.compiled.WORTH_A_THREAD", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    two = dprl.DPRLDiscrete(n_min=10, gamma=0.99).fit(log)
    assert one.provenance["luck"] == two.provenance["luck"]
    assert one.digest() == two.digest()


@pytest.mark.parametrize("scale", [1e-200, 7.0, 1e90])
def test_the_unit_of_rewards_does_not_matter(scale):
    log = noise(2)
    scaled = dprl.from_arrays(
        episode=np.repeat(np.arange(log.n_episodes), log.lengths), state=log.codes(),
        action=log.action, reward=log.reward * scale,
    )  # fmt: skip
    assert facts_of(scaled, plan=False) == facts_of(log, plan=False)


def test_it_costs_less_than_the_rest_of_the_fit(monkeypatch):
    """Counted, not timed: two of the five passes, and few shuffles where there are many returns."""
    log = noise(0, states=300, episodes=10_000)
    source = as_source(log)
    summed = count_source(source, Counts(0.99))
    evidence = summed.evidence
    pairs, counted = allowed(evidence, 10), enough(evidence, 10)
    choice = best_choice(evidence.pair.mean, pairs)
    passes, plans = [], []
    reduce, more = type(source).reduce, luck_module._more_by_plan
    monkeypatch.setattr(type(source), "reduce", lambda *given: passes.append(1) or reduce(*given))
    monkeypatch.setattr(
        luck_module, "_more_by_plan", lambda *given: plans.append(1) or more(*given)
    )
    facts = luck_of(source, summed, counted, choice, plan=True)
    assert (len(passes), len(plans), facts["draws"]) == (2, 1, 5)
    dprl.DPRLDiscrete(n_min=10, gamma=0.99).fit(log)
    assert len(passes) == 2 + 5


def test_where_it_is_not_counted_it_says_why(monkeypatch):
    policy = dprl.DPRLDiscrete(n_min=2, gamma=0.9, visits="all").fit(noise(0, episodes=50))
    assert "was not counted: visits of one episode depend on each other." in str(policy)
    monkeypatch.setattr(luck_module, "LARGEST", 100)
    policy = dprl.DPRLDiscrete(n_min=2, gamma=0.9).fit(noise(0, episodes=50))
    assert "returns are too many to shuffle." in str(policy)
    nothing = dprl.DPRLDiscrete(n_min=math.inf, gamma=0.9).fit(noise(0, episodes=50))
    assert nothing.provenance["luck"]["expected"] == 0
    assert nothing.luck is None
