"""Laws that hold for every log, tried on many."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from semi import semi_of

import dprl
from conftest import to_log
from dprl.evidence.counts import count, evidence
from dprl.evidence.decision_points import allowed
from dprl.logs.returns import returns, span

ROW = st.tuples(
    st.integers(0, 5),
    st.integers(0, 3),
    st.floats(-100, 100, allow_nan=False, width=32),
)
EPISODES = st.lists(st.lists(ROW, min_size=1, max_size=10), min_size=2, max_size=30)
GAMMA = st.sampled_from([0.3, 0.9, 0.99, 1.0])


def same(a, b):
    return all(
        np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True)
        for name in (
            "choice",
            "allowed",
            "n",
            "m",
            "Q",
            "V",
            "planned",
            "took_sd",
            "lowest",
            "highest",
        )
    )


def try_fit(learner, log):
    """The policy, or None where gamma = 1 leaves no way to an end."""
    try:
        return learner.fit(log)
    except dprl.PlanError:
        return None


ANY = st.one_of(
    st.floats(-1e300, 1e300, allow_nan=False),
    st.builds(lambda m, e: m * 10.0**e, st.floats(-9, 9), st.integers(-300, 299)),
    st.sampled_from([0.0, 1.0, -1.0, 0.1, 1e17, -1e17, 1e8]),
)
"""Rewards of any size a float can have."""
WILD = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), ANY), min_size=1, max_size=4),
    min_size=2,
    max_size=12,
)


def any_log(episodes):
    """A log of rewards of any size: what is read from people is refused beyond 1e100."""
    log = to_log([[(s, a, 0.0) for s, a, _ in e] for e in episodes])
    return replace(log, reward=np.array([r for e in episodes for _, _, r in e]))


def same_evidence(a, b):
    words = np.array_equal(a.words, b.words)
    return words and all(
        np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True)
        for name in ("top", "bottom", "span")
    )


@given(st.one_of(EPISODES, WILD), GAMMA, st.data())
def test_merge_of_parts_is_the_whole_to_the_last_bit(episodes, gamma, data):
    log = any_log(episodes)
    side = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(episodes),
                                       max_size=len(episodes))))  # fmt: skip
    parts = [
        evidence(log.take(np.flatnonzero(side == k)), gamma) for k in range(3) if (side == k).any()
    ]
    order = data.draw(st.permutations(parts))
    total = order[0]
    for part in order[1:]:
        total = total.merge(part)
    whole = evidence(log, gamma)
    assert same_evidence(whole, total)
    assert total.n_episodes == whole.n_episodes


def deviation(values):
    """The sample deviation of fractions, as a float of any size."""
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / (len(values) - 1)
    if not variance:
        return 0.0
    half = (variance.numerator.bit_length() - variance.denominator.bit_length()) // 2
    return math.ldexp(math.sqrt(variance / Fraction(4) ** half), half)


@pytest.mark.filterwarnings("ignore::dprl.PrecisionWarning")
@given(WILD, st.sampled_from([0.5, 1.0]))
def test_moments_are_those_of_fractions_whatever_the_size(episodes, gamma):
    """Each mean and deviation is right, or NaN where digits were lost; never 0 by mistake."""
    log = any_log(episodes)
    G = returns(log, gamma)
    known = evidence(log, gamma)
    groups = {}
    for e in range(log.n_episodes):
        seen = set()
        for t in range(log.starts[e], log.starts[e + 1]):
            s, a = int(log.codes()[t]), int(log.action[t])
            if s not in seen:
                groups.setdefault(("state", s), []).append(t)
                for b in range(log.n_actions):
                    groups.setdefault(("took" if a == b else "others", s, b), []).append(t)
            if (s, a) not in seen:
                groups.setdefault(("pair", s, a), []).append(t)
            seen |= {s, (s, a)}
    for (name, *place), rows in groups.items():
        moments, values = getattr(known, name), [Fraction(float(G[t])) for t in rows]
        assert moments.n[*place] == len(rows)
        mean, sd = moments.mean[*place], moments.sd[*place]
        ratio = max(map(abs, values)) / min([abs(v) for v in values if v], default=1)
        if ratio < 2**40:
            assert not np.isnan(mean)
        if not np.isnan(mean):
            assert mean == pytest.approx(float(sum(values) / len(rows)), rel=1e-11, abs=0)
        if len(rows) > 1 and not np.isnan(sd):
            assert sd == pytest.approx(deviation(values), rel=1e-8, abs=0)
        assert np.isnan(mean) or len(rows) == 1 or not np.isnan(sd)


def test_one_huge_return_changes_nothing_elsewhere():
    rng = np.random.default_rng(0)
    usual = [[(i % 4, int(rng.random() < 0.3), float(rng.random() < 0.4))] for i in range(4000)]
    learner = dprl.DPRLDiscrete(n_min=20, gamma=0.99)
    wanted = list(learner.fit(to_log([*usual, [(9, 0, 1.0)]])).changes())
    assert wanted
    assert wanted[0]["low"] < 0 < wanted[0]["high"]
    for size in (1e8, 1e17, -1e17, 1e99, 1e300, 1e-300):
        policy = learner.fit(any_log([*usual, [(9, 0, size)]]))
        assert list(policy.changes()) == wanted
        assert policy.V[list(policy.states).index(9)] == size


def test_lost_digits_are_said():
    log = any_log([[(0, 0, 1e300)], [(0, 0, -1e300)], [(0, 0, 1.0)], [(1, 0, 2.0)]])
    with pytest.warns(dprl.PrecisionWarning, match=r"1 of 2 states .* \(first: 0\)"):
        mean = evidence(log, 1.0).state.mean
    assert np.isnan(mean[0])
    assert mean[1] == 2.0


def test_returns_beyond_what_a_float_holds_are_refused():
    log = any_log([[(0, 0, 1.0)], [(0, 0, 1e308), (0, 1, 1e308), (1, 0, 1.0)]])
    for what in (evidence, returns):
        with pytest.raises(dprl.LogError, match="not a finite number") as error:
            what(log, 1.0)
        assert error.value.where == "episode 1, from its row 1 on"


@given(EPISODES, GAMMA, st.integers(1, 6), st.booleans())
def test_raising_n_min_never_adds_a_pair(episodes, gamma, n_min, contrast):
    known = evidence(to_log(episodes), gamma)
    before = allowed(known, n_min, contrast=contrast)
    after = allowed(known, n_min + 1, contrast=contrast)
    assert not (after & ~before).any()
    assert not (allowed(known, n_min) & ~allowed(known, n_min, contrast=False)).any()


@given(EPISODES, GAMMA)
def test_infinite_n_min_is_the_behaviour(episodes, gamma):
    log = to_log(episodes)
    policy = dprl.DPRLDiscrete(n_min=math.inf, gamma=gamma).fit(log)
    assert all(answer is dprl.DEFER for answer in policy.act(log.states))
    behavior = np.random.default_rng(0).dirichlet(np.ones(log.n_actions), log.n_states)
    assert np.array_equal(policy.probabilities(behavior=behavior), behavior)
    assert policy.summary()["steps_deferred"] == 1.0


@given(EPISODES, GAMMA, st.integers(1, 3), st.randoms(use_true_random=False))
def test_relabelling_relabels_the_answer(episodes, gamma, n_min, random):
    # Rewards that are never alike, so that no tie is left to the order of labels.
    rng = np.random.default_rng(random.randint(0, 2**31))
    episodes = [[(s, a, float(rng.normal())) for s, a, _ in e] for e in episodes]
    states, actions = list(range(6)), list(range(4))
    random.shuffle(states)
    random.shuffle(actions)
    learner = dprl.DPRLDiscrete(n_min=n_min, gamma=gamma)
    one = try_fit(learner, to_log(episodes))
    renamed = [[(states[s], f"x{actions[a]}", r) for s, a, r in e] for e in episodes]
    two = try_fit(learner, to_log(renamed))
    assert (one is None) == (two is None)
    if one is None or two is None:
        return
    for s in one.states:
        answer = one.act(s)
        wanted = dprl.DEFER if answer is dprl.DEFER else f"x{actions[answer]}"
        assert two.act(states[s]) == wanted
    assert one.summary() == two.summary()


@given(EPISODES, GAMMA, st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter_with_a_time(episodes, gamma, random):
    rows = [(e, t, *row) for e, episode in enumerate(episodes) for t, row in enumerate(episode)]
    shuffled = rows[:]
    random.shuffle(shuffled)

    def log(rows):
        names = ("episode", "time", "state", "action", "reward")
        return dprl.from_arrays(**dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))

    one, two = log(rows), log(shuffled)
    assert one.digest() == two.digest()
    assert np.array_equal(evidence(one, gamma).words, evidence(two, gamma).words)


@given(EPISODES, st.sampled_from([0.3, 0.9]), st.integers(1, 3))
def test_threads_do_not_matter(episodes, gamma, n_min):
    log = to_log(episodes)
    results = []
    for threads in (1, 2, 5):
        known, occurrences = count(log, gamma, threads=threads)
        semi = semi_of(log, known, occurrences, allowed(known, n_min))
        results.append((known.words, semi.R, semi.D.toarray()))
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


@given(EPISODES, GAMMA, st.integers(1, 3))
def test_same_log_same_bytes(episodes, gamma, n_min):
    learner = dprl.DPRLDiscrete(n_min=n_min, gamma=gamma)
    one, two = try_fit(learner, to_log(episodes)), try_fit(learner, to_log(episodes))
    if one is None or two is None:
        assert one is two
        return
    assert same(one, two)
    assert one.digest() == two.digest()


@given(EPISODES, st.sampled_from([0.3, 0.9, 0.99]), st.integers(1, 3))
def test_planning_never_loses_to_one_step(episodes, gamma, n_min):
    from dprl.planning.iteration import evaluate, policy_iteration

    log = to_log(episodes)
    known, occurrences = count(log, gamma)
    pairs = allowed(known, n_min)
    semi = semi_of(log, known, occurrences, pairs)
    Q = known.pair.mean[pairs]
    plan = policy_iteration(semi, Q)
    greedy = [
        range(a, b)[int(np.argmax(Q[a:b]))]
        for a, b in zip(semi.first[:-1], semi.first[1:], strict=True)
    ]
    size = max(1.0, *map(abs, span(log, gamma)))
    assert (evaluate(semi, np.array(greedy, np.int64)) - 1e-8 * size <= plan.V).all()


@given(
    EPISODES,
    st.sampled_from([0.3, 0.9]),
    st.integers(1, 3),
    st.one_of(
        st.sampled_from([2.0, 0.25, 1024, 1e-9, 1e-90, 1e90, 3.0, 1 / 3]),
        st.floats(-290, 290).map(lambda e: 10.0**e),
    ),
    st.booleans(),
)
def test_scaling_rewards_changes_nothing_but_the_units(episodes, gamma, n_min, scale, whole):
    if whole:  # so that many returns are equal on paper
        episodes = [[(s, a, float(round(r) % 3)) for s, a, r in e] for e in episodes]
    one = dprl.DPRLDiscrete(n_min=n_min, gamma=gamma).fit(to_log(episodes))
    bigger = [[(s, a, scale * r) for s, a, r in e] for e in episodes]
    two = dprl.DPRLDiscrete(n_min=n_min, gamma=gamma).fit(any_log(bigger))
    power = math.frexp(scale)[0] == 0.5 and 1e-200 < scale < 1e200
    tiny = max(abs(r) for e in episodes for _, _, r in e) * scale < 1e-280
    for name in ("Q", "V", "took_mean", "others_mean", "took_sd", "lowest", "highest"):
        a, b = getattr(one, name) * scale, getattr(two, name)
        if power:
            assert np.array_equal(a, b, equal_nan=True)
        elif not tiny:
            size = np.nanmax(np.abs(np.stack([one.lowest, one.highest]))) * scale
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12 * size)
    if not tiny:
        assert np.array_equal(one.allowed, two.allowed)
        assert np.array_equal(one.choice, two.choice)


@pytest.mark.parametrize("length", [1, 100_000])
def test_returns_of_long_episodes_stay_finite(length):
    log = dprl.from_arrays(
        episode=[0] * length, state=[0] * length, action=[0] * length, reward=np.ones(length)
    )
    G = returns(log, 0.99)
    assert G[0] == pytest.approx((1 - 0.99**length) / 0.01, rel=1e-12)
    assert G[-1] == 1.0


@given(EPISODES)
def test_equal_returns_are_a_tie_everywhere(episodes):
    """All returns equal: every action is as good as usual practice, exactly."""
    tied = [[(s, a, 0.0) for s, a, _ in e[:-1]] + [(*e[-1][:2], 0.1)] for e in episodes]
    known = evidence(to_log(tied), 1.0)
    assert np.array_equal(allowed(known, 1, contrast=False), known.pair.n >= 1)
    assert known.not_worse(0.0)[known.pair.n > 0].all()


def test_ties_hold_for_returns_of_any_size():
    """Means of many equal returns: no tolerance could save a float sum at this size."""
    reward = 0.1 * 3**40
    episodes = [[(0, i % 3, reward)] for i in range(1000)]
    known = evidence(to_log(episodes), 0.9)
    assert allowed(known, 10).all()
    assert (known.took.sd == 0).all()
