"""Judging policies, the radius and the control, on a stand-in for the emulator."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from bars import EXPERT, MEDIUM, Bars

import dprl
from dprl.errors import LogError, ParameterError
from dprl.evidence.neighbors.metric import Metric

if find_spec("torch") is None:
    pytest.skip("torch is not installed (dprl[atari])", allow_module_level=True)


from dprl_studies.atari import (
    DQN,
    Mixture,
    MostFrequent,
    choose_radius,
    collect,
    encode,
    play,
    train_dqn,
)
from dprl_studies.atari.encoding import SIZE, never_speaks
from dprl_studies.atari.games import COPIES, ROOM, first_seed
from dprl_studies.atari.playing import Judge, Represented, silent

# -- judging --------------------------------------------------------------------------------------

MIXTURE = Mixture(EXPERT, MEDIUM)


def test_seeds_never_meet():
    """Games for logs, for judging and for training: no seed of one is a seed of another."""
    ranges = [
        range(first_seed(part, seed), first_seed(part, seed) + COPIES)
        for part in ("collect", "judge", "train")
        for seed in (0, 1, 77, ROOM // COPIES - 1)
    ]
    for i, a in enumerate(ranges):
        assert a[-1] < 1 << 31
        for b in ranges[:i]:
            assert a[-1] < b[0] or b[-1] < a[0]
    with pytest.raises(ParameterError, match="seed must be a whole number"):
        first_seed("judge", ROOM // COPIES)


def test_no_judged_game_was_logged_or_trained_on(tmp_path, monkeypatch):
    monkeypatch.setattr(Bars, "resets", [])
    collect("bars", EXPERT, MEDIUM, samples=20, seed=6, copies=2, make=Bars)
    logged = {s for r in Bars.resets for s in r}
    tiny = DQN(copies=2, batch=2, memory=64, patience=10**9, round=16)
    train_dqn("bars", tmp_path, steps=64, medium_steps=16, seed=6, settings=tiny, make=Bars)
    before = {s for r in Bars.resets for s in r}
    assert len(before) == len(logged) + 8  # each round has seeds of its own
    Bars.resets.clear()
    play(silent, MIXTURE, "bars", episodes=5, seed=6, make=Bars)
    judged = {s for r in Bars.resets for s in r}
    assert len(judged) == 5
    assert not judged & before


def test_a_game_counts_whole_over_its_lives():
    found = play(lambda seen, u: np.zeros(len(seen), int), MIXTURE, "bars", episodes=6, seed=1,
                 epsilon=0.0, make=Bars)  # fmt: skip
    env = Bars(n=6)
    env.reset(first_seed("judge", 1))
    score, steps, over, lives = np.zeros(6), np.zeros(6, int), np.zeros(6, bool), np.zeros(6, int)
    while not over.all():
        _, reward, ended, _, began = env.step(np.zeros(6, int))
        over |= began
        score += np.where(over, 0, reward)
        steps += ~over
        lives += ended & ~over
    assert lives.tolist() == [2] * 6
    assert found.score.tolist() == score.tolist()
    assert found.steps.tolist() == steps.tolist()
    assert found.deferred.tolist() == [0] * 6
    assert not found.cut.any()


def small_log(n=400, seed=0):
    rng = np.random.default_rng(seed)
    x, action = rng.normal(size=(n, SIZE)) / 9, rng.integers(0, 3, n)
    return dprl.from_arrays(
        episode=np.arange(n) // 4, time=np.arange(n) % 4, state=x, action=action,
        reward=(action == 1) * 1.0, ended=np.ones(n, bool), actions=(0, 1, 2),
    )  # fmt: skip


@pytest.fixture(scope="module")
def encoder(played, frames):
    return encode(played, frames, epochs=1, batch=32, seed=0)


def test_what_defers_is_played_by_the_mixture(encoder):
    learner = dprl.DPRLContinuous(n_min=1e6, radius=9.0, gamma=0.99, metric=Metric(scale="none"))
    mute = Represented(learner.fit(small_log()), encoder)
    asked = {"episodes": 5, "seed": 2, "make": Bars}
    usual = play(silent, MIXTURE, "bars", **asked)
    found = play(mute, MIXTURE, "bars", **asked)
    assert found.score.tolist() == usual.score.tolist()
    assert found.deferred.tolist() == found.steps.tolist() == usual.steps.tolist()

    talker = Represented(replace(learner, n_min=5, contrast=False).fit(small_log()), encoder)
    spoken = play(talker, MIXTURE, "bars", **asked)
    always = play(lambda seen, u: np.ones(len(seen), int), MIXTURE, "bars", **asked)
    assert spoken.deferred.tolist() == [0] * 5
    assert spoken.score.tolist() == always.score.tolist()


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_games_played_before_are_not_played_again(encoder, epsilon):
    """One judge for many policies gives what each gets alone, with fewer steps."""
    stepped = []

    class Counting(Bars):
        def step(self, actions, on=None):
            stepped.append(self.n if on is None else len(on))
            return super().step(actions, on)

    learner = dprl.DPRLContinuous(
        n_min=5, radius=0.2, gamma=0.99, metric=Metric(scale="none"), contrast=False
    )
    x = np.concatenate([encoder.states(Bars(n=9).reset(s)) for s in range(30)])
    rng = np.random.default_rng(3)
    log = dprl.from_arrays(
        episode=np.arange(len(x)), state=x, action=rng.integers(0, 3, len(x)),
        reward=rng.normal(size=len(x)), ended=np.ones(len(x), bool), actions=(0, 1, 2),
    )  # fmt: skip
    policies = [
        replace(learner, n_min=n, radius=r).fit(log)
        for r in (0.3, 0.05, 0.3) for n in (5, 10, 20, 10**6)
    ]  # fmt: skip
    policies += [MostFrequent(n_min=5, radius=0.3).fit(log)]
    asked = {"episodes": 12, "seed": 2, "epsilon": epsilon, "make": Counting}
    players = [silent, *(Represented(p, encoder) for p in policies)]
    alone = [play(p, MIXTURE, "bars", **asked) for p in players]
    cost, spoke = sum(stepped), [int((a.steps - a.deferred).sum()) for a in alone]
    assert len(set(spoke)) > 3
    stepped.clear()
    with Judge(MIXTURE, "bars", encoder=encoder, **asked) as judge:
        for player, wanted in zip(players, alone, strict=True):
            found = judge.track(player).played()
            for name in ("score", "steps", "deferred", "cut"):
                assert getattr(found, name).tolist() == getattr(wanted, name).tolist()
    assert sum(stepped) < 0.7 * cost


def test_states_of_another_encoder_are_not_remembered(played, frames, encoder):
    """A judge asks players about remembered states only if these are states of their encoder."""
    other = encode(played, frames, epochs=1, batch=32, seed=9)
    middle = np.median(encoder.points(frames)[:, 0])

    class Side:
        def choices(self, x):
            return np.where(x[:, 0] < middle, 0, 1)

    asked = {"episodes": 6, "seed": 2, "make": Bars}
    alone, first = (
        play(Represented(Side(), e), MIXTURE, "bars", **asked) for e in (other, encoder)
    )
    assert alone.score.tolist() != first.score.tolist()
    for judges in (encoder, None):
        with Judge(MIXTURE, "bars", encoder=judges, **asked) as judge:
            judge.track(Represented(Side(), encoder))
            found = judge.track(Represented(Side(), other)).played()
            assert found.score.tolist() == alone.score.tolist()
            assert len(judge.tracks) == (judges is not None)


def test_some_deferred_some_not(monkeypatch):
    """Only deferred copies are played by the mixture, with that copy's own chance."""
    asked = []

    class Watched(Mixture):
        def actions(self, seen, u):
            asked.append((len(seen), u.copy()))
            return np.full(len(seen), 2)

    acted = []

    class Watching(Bars):
        def step(self, actions, on=None):
            acted.append(np.array(actions))
            return super().step(actions, on)

    def odd(seen, u):
        return np.where(np.arange(len(seen)) % 2 == 1, -1, 0)

    found = play(odd, Watched(EXPERT, MEDIUM), "bars", episodes=4, epsilon=0.0, make=Watching)
    assert asked[0][0] == 2
    assert acted[0].tolist() == [0, 2, 0, 2]
    assert 0 < found.deferred.sum() < found.steps.sum()


def test_chance_of_an_evaluation():
    everything = play(silent, MIXTURE, "bars", episodes=40, epsilon=1.0, make=Bars)
    again = play(silent, MIXTURE, "bars", episodes=40, epsilon=1.0, make=Bars)
    assert everything.score.tolist() == again.score.tolist()
    right = (everything.score + 0.5 * everything.steps).sum() / 2.5
    assert abs(right / everything.steps.sum() - 1 / 3) < 0.1

    class Half:
        def probabilities(self, x):
            return np.tile([0.25, 0.0, 0.75], (len(x), 1))

    class Nothing:
        def states(self, seen):
            return np.zeros((len(seen), 1))

    u = np.array([0.0, 0.249, 0.251, 0.999])
    player = Represented(Half(), Nothing())
    assert player(np.zeros((4, 4, 84, 84), np.uint8), u).tolist() == [0, 0, 2, 2]
    for bad in ({"episodes": 0}, {"epsilon": 1.5}):
        with pytest.raises(ParameterError, match="must be a"):
            play(silent, MIXTURE, "bars", make=Bars, **bad)


# -- radius and control ---------------------------------------------------------------------------


def test_radius_by_hand():
    log = dprl.from_arrays(
        episode=[0, 0, 0, 1, 1], time=[0, 1, 2, 0, 1], state=np.array([[0, 0], [3, 4], [3, 5], [90, 0],
        [92, 0.0]]), action=[0, 1, 0, 1, 0], reward=np.zeros(5), ended=np.ones(5, bool),
    )  # fmt: skip
    # To the nearest state of the other episode.
    apart = [90, np.hypot(87, 4), np.hypot(87, 5), np.hypot(87, 4), np.hypot(89, 4)]
    assert choose_radius(log, 1) == pytest.approx(np.median(apart))
    with pytest.raises(ParameterError, match="enough"):
        choose_radius(log, 0)
    with pytest.raises(LogError, match="no state has 4 states of other games"):
        choose_radius(log, 4)


def test_half_of_the_states_have_enough_neighbours():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(300, 2))
    log = dprl.from_arrays(
        episode=np.arange(300) // 30, time=np.arange(300) % 30, state=x, action=np.arange(300) % 2,
        reward=np.zeros(300), ended=np.ones(300, bool),
    )  # fmt: skip
    apart = np.sqrt(((x[:, None] - x[None]) ** 2).sum(axis=2))
    apart[np.arange(300)[:, None] // 30 == np.arange(300) // 30] = np.inf
    assert choose_radius(log, 20) == pytest.approx(np.median(np.sort(apart, axis=1)[:, 19]))


@pytest.mark.parametrize("visits", ["all", "first"])
def test_silence_is_known_beforehand(visits):
    """n points of one action around an empty middle: the middle hears all, each point too few."""
    n, r = 6, 1.0
    angle = 2 * np.pi * np.arange(n) / n
    x = 0.99 * r * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    log = dprl.from_arrays(
        episode=np.arange(n), state=x, action=np.zeros(n, int), reward=np.zeros(n),
        ended=np.ones(n, bool), actions=(0, 1),
    )  # fmt: skip
    fit = dprl.DPRLContinuous(
        n_min=n, radius=r, gamma=1.0, metric=Metric(scale="none"), visits=visits,
        contrast=False,
    )  # fmt: skip
    speaks = fit.fit(log)
    assert speaks.at(np.zeros((1, 2))).choice[0] == 0
    assert speaks.training.choice.max() == -1  # no training point knows
    assert not never_speaks(speaks)
    assert never_speaks(replace(fit, n_min=n + 1).fit(log))
    assert never_speaks(replace(fit, radius=0.1).fit(log))


@pytest.mark.parametrize("visits", ["all", "first"])
def test_control_counts_and_ignores_returns(visits):
    log = small_log()
    policy = MostFrequent(n_min=4, radius=0.4, visits=visits).fit(log)
    x = np.random.default_rng(1).normal(size=(60, SIZE)) / 12
    expected = []
    for q in x:
        near = np.sqrt(((log.features - q) ** 2).sum(axis=1)) <= 0.4
        episode = np.repeat(np.arange(log.n_episodes), log.lengths)
        n = [
            near[log.action == a].sum() if visits == "all"
            else len(set(episode[near & (log.action == a)])) for a in range(3)
        ]  # fmt: skip
        expected.append(int(np.argmax(n)) if max(n) >= 4 else -1)
    assert policy.choices(x).tolist() == expected
    assert {-1, 0, 1, 2} >= set(expected)
    assert len(set(expected)) > 1
    other = replace(log, reward=-5 * log.reward)
    blind = MostFrequent(n_min=4, radius=0.4, visits=visits).fit(other)
    assert blind.choices(x).tolist() == expected
