"""Worlds in which leaving cut episodes out certifies harm, and every honest treatment does not.

`fast` wins at once or fails after a long while; `safe` wins more often. Observation stops at every
step with the same chance, whatever happens. Not being cut then selects short episodes, and short
ones with `fast` are those that won. In the second world a group's second episode is not like its
first.

Where the treatment of cut episodes is broken, harm is certified in every log. One log in 20, or 5 in
100, is allowed: harm in 30 % of logs, or in 13 %, is found 99 times in a hundred.
"""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import dprl
from dprl.logs.log import CUT, TERMINAL, Log

pytestmark = pytest.mark.filterwarnings("ignore::dprl.CutWarning")  # of small chances, at times

DELTA = 0.05
UNIT = {"delta": DELTA, "value_range": (0.0, 1.0)}
LEARNER = {"n_min": 20, "gamma": 1.0}
ORDINARY, MANY = 20, 100


def fast_and_slow(seed, *, n=1_200, watched=0, features=False):
    """A log of the first world; nobody is cut in the first `watched` steps.

    At the start `fast` is worth .5 and `safe` .6; both are taken half of the time.
    """
    rng = np.random.default_rng(seed)
    fast = rng.random(n) < 0.5
    won = rng.random(n) < np.where(fast, 0.5, 0.6)
    length = np.where(fast, np.where(won, 1, 15), 2)
    seen = np.minimum(length, watched + rng.geometric(0.12, n))
    starts = np.concatenate(([0], np.cumsum(seen)))
    step = np.arange(starts[-1]) - np.repeat(starts[:-1], seen)
    reward = np.zeros(starts[-1])
    reward[starts[1:] - 1] = won & (seen == length)
    first = step == 0
    chosen = np.where(first, np.repeat(np.where(fast, 0, 1), seen), 2)
    state = {"state": (~first).astype(np.int32), "states": ("start", "waiting")}
    if features:
        x = np.column_stack((~first, np.repeat(rng.normal(size=n), seen))).astype(float)
        state = {"features": x, "feature_names": ("waiting", "noise")}
    return Log(
        starts=starts, action=chosen, reward=reward, actions=("fast", "safe", "wait"),
        ended=np.where(seen == length, TERMINAL, CUT), **state,
    )  # fmt: skip


def two_episodes(seed, *, n=1_200):
    """A log of the second world: `new` harms in a first episode (.4, else .6), helps in a second.

    A first episode is cut with chance .6, whatever its length and its outcome.
    """
    rng = np.random.default_rng(seed)
    took = rng.random(2 * n) < 0.5
    second = np.tile([False, True], n)
    chance = np.where(second, np.where(took, 0.95, 0.1), np.where(took, 0.4, 0.6))
    cut = ~second & (rng.random(2 * n) < 0.6)
    return Log(
        starts=np.arange(2 * n + 1), action=took.astype(np.int32), actions=("new", "usual")[::-1],
        reward=((rng.random(2 * n) < chance) & ~cut).astype(float), state=np.zeros(2 * n, np.int32),
        states=("ill",), group=np.repeat(np.arange(n), 2), groups=tuple(range(n)),
        ended=np.where(cut, CUT, TERMINAL),
    )  # fmt: skip


def without_cut(log):
    """The log as it was once read with cut="drop": cut episodes out, and nothing else."""
    return log.take(np.flatnonzero(log.ended != CUT))


def harmful(policy, action):
    return policy.certificate is not None and action in policy.certificate.issued.values()


def count(logs, world):
    return sum(bool(world(seed)) for seed in range(logs))


few_and_many = pytest.mark.parametrize(
    "logs", [ORDINARY, pytest.param(MANY, marks=pytest.mark.slow)], ids="{} logs".format
)


@pytest.mark.slow
def test_leaving_cut_episodes_out_certifies_harm_every_time():
    learner, logs = dprl.DPRLDiscrete(**LEARNER), 10

    def world(seed):
        return harmful(dprl.gate(learner, without_cut(fast_and_slow(seed)), **UNIT), "fast")

    assert count(logs, world) == logs
    with pytest.raises(dprl.LogError, match="the longer an episode, the likelier it was cut"):
        dprl.gate(dprl.DPRLDiscrete(**LEARNER, cut="drop"), fast_and_slow(0), **UNIT)


@pytest.mark.slow
@few_and_many
def test_a_window_certifies_no_harm(logs):
    """All are watched for three steps, in which the outcome of most is seen."""
    learner = dprl.DPRLDiscrete(**LEARNER)

    def world(seed):
        log = fast_and_slow(seed, watched=3)
        if seed < 5:  # so it is the window that helps
            assert harmful(dprl.gate(learner, without_cut(log), **UNIT), "fast")
        return harmful(dprl.gate(learner, log.followed(3), **UNIT), "fast")

    assert count(logs, world) <= DELTA * logs


@pytest.mark.parametrize("logs", [8, pytest.param(MANY, marks=pytest.mark.slow)])
def test_weights_show_no_harm_as_an_improvement(logs):
    """`evaluate` on held-out episodes, with `fast` for everybody: its lower end is not above 0."""

    def always_fast(states):
        return ["fast" if s == "start" else "wait" for s in states]

    policy, above, right = dprl.CallablePolicy(always_fast, actions=("fast", "safe", "wait")), 0, 0
    for seed in range(logs):
        log = fast_and_slow(seed)
        result = dprl.evaluate(policy, log, gamma=1.0, cut="ipcw", draws=200, values=False)
        if seed < 5:
            wrong = dprl.evaluate(policy, without_cut(log), gamma=1.0, draws=200, values=False)
            assert wrong["WIS"]["difference_low"] > 0
        above += result["WIS"]["difference_low"] > 0
        right += result["WIS"]["difference_low"] <= -0.05 <= result["WIS"]["difference_high"]
    assert above <= DELTA * logs
    assert right >= (0.88 * logs if logs == MANY else logs - 3)


@pytest.mark.parametrize("logs", [10, pytest.param(MANY, marks=pytest.mark.slow)])
def test_weights_suggest_no_harm(logs):
    """The learner's own choice, which is no claim: wrong at times, but not always."""
    weighted = dprl.DPRLDiscrete(**LEARNER, plan=False, cut="ipcw")

    def world(seed):
        return weighted.fit(fast_and_slow(seed)).act(["start"]) == ["fast"]

    assert count(logs, world) <= 0.1 * logs


@pytest.mark.parametrize("logs", [1, pytest.param(ORDINARY, marks=pytest.mark.slow)])
def test_rules_with_weights_certify_no_harm(logs):
    quick = {
        "behavior_models": [("logistic", LogisticRegression())],
        "value_model": LinearRegression(),
    }
    rules = {"gamma": 1.0, "splits": 1, "depth": 1, "lam": 1.0, "delta": DELTA}

    def suggests_fast(learner, log):
        return any(rule.suggested == "fast" for rule in learner.fit(log, **quick).rules)

    weighted, dropped = dprl.Rules(**rules, cut="ipcw"), dprl.Rules(**rules)
    worlds = [fast_and_slow(seed, features=True) for seed in range(logs)]
    assert sum(suggests_fast(dropped, without_cut(log)) for log in worlds[:2]) == min(logs, 2)
    assert sum(suggests_fast(weighted, log) for log in worlds) <= DELTA * logs
    policy = weighted.fit(worlds[0], **quick)
    assert any("inverse-probability-of-censoring weights" in words for words in policy.conditions)


@few_and_many
def test_a_second_episode_does_not_stand_for_the_first(logs):
    learner = dprl.DPRLDiscrete(**LEARNER)
    declared = dprl.DPRLDiscrete(**LEARNER, cut="drop-unrelated")

    def world(seed):
        log = two_episodes(seed)
        assert seed >= 5 or harmful(dprl.gate(learner, without_cut(log), **UNIT), "new")
        return harmful(dprl.gate(declared, log, **UNIT), "new")

    assert count(logs, world) <= DELTA * logs
    proved = dprl.gate(declared, two_episodes(0), **UNIT).certificate
    assert any(
        "cut episodes were left out, with all later ones of their groups: whether an episode was "
        "cut depends neither on its length nor on its outcome (declared by the user)" in words
        for words in proved.assumptions
    )
