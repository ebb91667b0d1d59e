"""The Atari study on a stand-in for the emulator: what is logged, learned and judged."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

import dprl
from bars import Bars
from dprl.errors import LogError, ParameterError, PolicyError
from dprl.log import CUT, TERMINAL
from dprl.neighbors.metric import Metric

if find_spec("torch") is None:
    pytest.skip("torch is not installed (dprl[atari])", allow_module_level=True)

import torch

from dprl.atari import (
    DQN,
    Collection,
    Encoder,
    Mixture,
    MostFrequent,
    QNetwork,
    choose_radius,
    collect,
    compare_objectives,
    encode,
    play,
    train_dqn,
)
from dprl.atari import dqn as dqn_module
from dprl.atari.collecting import mixed
from dprl.atari.controls import never_speaks
from dprl.atari.encoding import OBJECTIVES, SIZE
from dprl.atari.games import COPIES, ROOM, first_seed
from dprl.atari.memory import Memory
from dprl.atari.networks import first_weights, q_values, shapes, write_arrays
from dprl.atari.objectives import agreement, parts_of_games
from dprl.atari.playing import Judge, Represented, silent

EXPERT, MEDIUM = QNetwork.random(3, 1), QNetwork.random(3, 2)


class Stop(Exception):  # noqa: N818
    pass


def stop_at(share):
    def tell(stage, done):
        if done >= share:
            raise Stop

    return tell


@pytest.fixture(scope="module")
def played():
    return collect("bars", EXPERT, MEDIUM, samples=300, seed=4, copies=4, make=Bars)


@pytest.fixture(scope="module")
def frames(played):
    return played.frames(Bars)


# -- networks -------------------------------------------------------------------------------------


def slow_values(weights, seen):
    """Q of one picture by loops over places: an implementation of its own."""
    x = seen.astype(np.float64) / 255
    sizes = []
    for name, stride in (("c1", 4), ("c2", 2), ("c3", 1)):
        w, b = weights[f"{name}.weight"].astype(float), weights[f"{name}.bias"].astype(float)
        side = w.shape[2]
        m = (x.shape[1] - side) // stride + 1
        y = np.empty((len(w), m, m))
        for i in range(m):
            for j in range(m):
                patch = x[:, i * stride : i * stride + side, j * stride : j * stride + side]
                y[:, i, j] = np.tensordot(w, patch, 3) + b
        x = np.maximum(y, 0)
        sizes.append(x.size)
    assert sizes == [12800, 5184, 3136]
    x = x.ravel()
    for name in ("f1", "f2", "f3", "f4"):
        x = weights[f"{name}.weight"].astype(float) @ x + weights[f"{name}.bias"]
        x = x if name == "f4" else np.maximum(x, 0)
    return x


def test_q_values_against_loops():
    seen = np.random.default_rng(0).integers(0, 256, (2, 4, 84, 84)).astype(np.uint8)
    found = EXPERT.values(seen)
    for i in range(2):
        np.testing.assert_allclose(found[i], slow_values(EXPERT.weights, seen[i]), atol=1e-5)
    assert EXPERT.actions(seen).tolist() == found.argmax(axis=1).tolist()


def test_networks_are_kept_and_16_bits_are_read(tmp_path):
    EXPERT.save(tmp_path / "n.npz")
    again = QNetwork.load(tmp_path / "n.npz")
    assert again.digest() == EXPERT.digest()
    assert again.about["untrained"] is True
    half = {k: v.astype(np.float16) for k, v in EXPERT.weights.items()}
    write_arrays(tmp_path / "h.npz", half, {"step": 7})
    read = QNetwork.load(tmp_path / "h.npz")
    assert read.about == {"step": 7}
    assert all(v.dtype == np.float32 for v in read.weights.values())
    np.testing.assert_array_equal(read.weights["c1.bias"], half["c1.bias"].astype(np.float32))


def test_what_is_no_network_is_refused(tmp_path):
    with pytest.raises(PolicyError, match="no file"):
        QNetwork.load(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(PolicyError, match="cannot be read"):
        QNetwork.load(tmp_path / "text.npz")
    np.savez(tmp_path / "object.npz", a=np.array([print], object))
    with pytest.raises(PolicyError, match="cannot be read"):
        QNetwork.load(tmp_path / "object.npz")
    for change in ({"f1.weight": np.zeros((2, 2))}, {"f4.bias": np.full(3, np.nan)}):
        write_arrays(tmp_path / "w.npz", {**EXPERT.weights, **change}, {})
        with pytest.raises(PolicyError, match="no Q-network"):
            QNetwork.load(tmp_path / "w.npz")


# -- collecting -----------------------------------------------------------------------------------


def test_who_acts():
    seen = np.random.default_rng(0).integers(0, 256, (40, 4, 84, 84), np.uint8)
    u = np.r_[0.0, 0.499, 0.5, np.random.default_rng(1).random(37)]
    each = np.where(u < 0.5, EXPERT.actions(seen), MEDIUM.actions(seen))
    assert (EXPERT.actions(seen) != MEDIUM.actions(seen)).any()
    assert mixed(EXPERT, MEDIUM, seen, u).tolist() == each.tolist()
    for nobody in (np.zeros(40), np.ones(40)):  # one of the two is not asked at all
        one = EXPERT if nobody[0] < 0.5 else MEDIUM
        assert mixed(EXPERT, MEDIUM, seen, nobody).tolist() == one.actions(seen).tolist()


def test_a_collection_holds_what_was_played(played):
    assert 300 <= played.samples < 304
    assert played.began.any()
    assert played.action.shape == played.reward.shape == (len(played.action), 4)
    env = Bars(n=4)
    seen = env.reset(first_seed("collect", 4))
    expert, medium = 0, 0
    for t, action in enumerate(played.action):
        e, m = EXPERT.actions(seen), MEDIUM.actions(seen)
        assert ((action == e) | (action == m)).all()
        expert += int(((action == e) & (e != m)).sum())
        medium += int(((action == m) & (e != m)).sum())
        seen, reward, ended, _, began = env.step(action)
        assert (played.reward[t] == reward).all()
        assert (played.ended[t] == ended).all()
        assert (played.began[t] == began).all()
    assert expert + medium > 50
    assert 0.35 < expert / (expert + medium) < 0.65


def test_a_seed_gives_the_same_collection(played):
    again = collect("bars", EXPERT, MEDIUM, samples=300, seed=4, copies=4, make=Bars)
    other = collect("bars", EXPERT, MEDIUM, samples=300, seed=5, copies=4, make=Bars)
    for name in ("action", "reward", "ended", "began"):
        assert np.array_equal(getattr(again, name), getattr(played, name))
    assert not np.array_equal(other.reward[:50], played.reward[:50])


def test_resuming_equals_not_having_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("dprl.atari.collecting.SAVED", 40)
    asked = {"samples": 200, "seed": 3, "copies": 2, "make": Bars}
    whole = tmp_path / "whole.npz"
    collect("bars", EXPERT, MEDIUM, path=whole, **asked)
    part = tmp_path / "part.npz"
    with pytest.raises(Stop):
        collect("bars", EXPERT, MEDIUM, path=part, progress=stop_at(0.6), **asked)
    kept = Collection.load(part)
    assert 40 <= kept.samples < 130
    assert not kept.complete
    collect("bars", EXPERT, MEDIUM, path=part, **asked)
    a, b = Collection.load(whole), Collection.load(part)
    assert a.about == b.about
    for name in ("action", "reward", "ended", "cut", "began"):
        assert np.array_equal(getattr(a, name), getattr(b, name))
        assert getattr(a, name).dtype == getattr(b, name).dtype
    before = part.stat().st_mtime_ns
    collect("bars", EXPERT, MEDIUM, path=part, **asked)
    assert part.stat().st_mtime_ns == before
    for change in ({"seed": 4}, {"samples": 201}, {"copies": 3}):
        with pytest.raises(LogError, match="another question"):
            collect("bars", EXPERT, MEDIUM, path=part, **{**asked, **change})
    with pytest.raises(LogError, match="another question"):
        collect("bars", MEDIUM, MEDIUM, path=part, **asked)
    with pytest.raises(ParameterError, match="a network has 4 actions, bars 3"):
        collect("bars", QNetwork.random(4, 0), MEDIUM, **asked)


def test_replay_compares_what_comes_of_actions(played):
    wrong = played.reward.copy()
    wrong[30, 1] += 1
    with pytest.raises(LogError, match="went another way") as caught:
        replace(played, reward=wrong).frames(Bars)
    assert "step 30, copy 1: reward" in str(caught.value)


def test_frames_are_what_was_seen(played, frames):
    seen = np.stack(list(played.replay(Bars)))  # (T + 1, n, 4, 84, 84)
    copy, step = played.rows
    assert len(frames) == played.samples
    rows = np.arange(len(frames))
    np.testing.assert_array_equal(frames.stacks(rows), seen[step, copy])
    np.testing.assert_array_equal(frames.stacks(rows, ahead=1), seen[step + 1, copy])


def test_trajectories_end_with_lives_and_count_by_game(played):
    features = np.arange(played.samples, dtype=float)[:, None]
    log = played.log(features)
    # The same by walking through each copy.
    trajectories, row, game = [], 0, -1
    for copy in range(4):
        game, now = game + 1, []
        for t in range(len(played.action)):
            if played.began[t, copy]:
                assert not now  # a game ends with a life
                game += 1
                continue
            now.append((row, played.action[t, copy], played.reward[t, copy]))
            row += 1
            if played.ended[t, copy]:
                trajectories.append((game, TERMINAL, now))
                now = []
        if now:
            trajectories.append((game, CUT, now))
    assert log.n_episodes == len(trajectories)
    for e, (game, ended, steps) in enumerate(trajectories):
        rows = slice(*log.starts[e : e + 2])
        assert log.features[rows, 0].tolist() == [s[0] for s in steps]
        assert log.action[rows].tolist() == [s[1] for s in steps]
        assert log.reward[rows].tolist() == [np.sign(s[2]) for s in steps]
        assert (log.groups[log.group[e]], log.ended[e]) == (game, ended)
    whole = [e for e in range(log.n_episodes) if log.ended[e] == TERMINAL]
    assert len(whole) > len(log.groups)  # more lives than games
    assert set(played.log(features, clip=False).reward) == {2.0, -0.5}
    some = np.zeros(int(played.games.max()) + 1, bool)
    some[2:5] = True
    part = played.log(features, some)
    assert part.groups == (2, 3, 4)
    assert part.n_steps == some[played.games].sum()
    with pytest.raises(ParameterError, match="states are given"):
        played.log(features[1:])


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
    with pytest.raises(ParameterError, match="seed must lie in"):
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
        with pytest.raises(ParameterError, match="must lie in"):
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


@pytest.mark.parametrize("neighbors", ["all", "first"])
def test_silence_is_known_beforehand(neighbors):
    """n points of one action around an empty middle: the middle hears all, each point too few."""
    n, r = 6, 1.0
    angle = 2 * np.pi * np.arange(n) / n
    x = 0.99 * r * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    log = dprl.from_arrays(
        episode=np.arange(n), state=x, action=np.zeros(n, int), reward=np.zeros(n),
        ended=np.ones(n, bool), actions=(0, 1),
    )  # fmt: skip
    fit = dprl.DPRLContinuous(
        n_min=n, radius=r, gamma=1.0, metric=Metric(scale="none"), neighbors=neighbors,
        contrast=False,
    )  # fmt: skip
    speaks = fit.fit(log)
    assert speaks.at(np.zeros((1, 2))).choice[0] == 0
    assert speaks.training.choice.max() == -1  # no training point knows
    assert not never_speaks(speaks)
    assert never_speaks(replace(fit, n_min=n + 1).fit(log))
    assert never_speaks(replace(fit, radius=0.1).fit(log))


@pytest.mark.parametrize("neighbors", ["all", "first"])
def test_control_counts_and_ignores_returns(neighbors):
    log = small_log()
    policy = MostFrequent(n_min=4, radius=0.4, neighbors=neighbors).fit(log)
    x = np.random.default_rng(1).normal(size=(60, SIZE)) / 12
    expected = []
    for q in x:
        near = np.sqrt(((log.features - q) ** 2).sum(axis=1)) <= 0.4
        episode = np.repeat(np.arange(log.n_episodes), log.lengths)
        n = [
            near[log.action == a].sum() if neighbors == "all"
            else len(set(episode[near & (log.action == a)])) for a in range(3)
        ]  # fmt: skip
        expected.append(int(np.argmax(n)) if max(n) >= 4 else -1)
    assert policy.choices(x).tolist() == expected
    assert {-1, 0, 1, 2} >= set(expected)
    assert len(set(expected)) > 1
    other = replace(log, reward=-5 * log.reward)
    blind = MostFrequent(n_min=4, radius=0.4, neighbors=neighbors).fit(other)
    assert blind.choices(x).tolist() == expected


# -- the representation ---------------------------------------------------------------------------


def test_shape_of_the_representation():
    rng, A = np.random.default_rng(0), 3
    weights = first_weights(rng, {"e1": 512, "e2": SIZE * A})
    weights |= {"norm.weight": np.ones(48, np.float32), "norm.bias": np.zeros(48, np.float32)}
    mean = rng.uniform(0, 255, (84, 84)).astype(np.float32)
    encoder = Encoder({**weights, "mean": mean, "deviation": np.float32(7)}, {})
    seen = rng.integers(0, 256, (5, 4, 84, 84)).astype(np.uint8)
    pairs = encoder.pairs(seen)
    assert pairs.shape == (5, A, SIZE)
    flat = np.arctanh(pairs.reshape(5, -1))
    np.testing.assert_allclose(flat.mean(axis=1), 0, atol=1e-3)
    np.testing.assert_allclose(flat.var(axis=1), 1, atol=1e-2)
    np.testing.assert_array_equal(encoder.states(seen), pairs.mean(axis=1))
    # Centred and scaled: the mean picture is seen as nothing at all.
    plain = Encoder({**weights, "mean": 0 * mean, "deviation": np.float32(1)}, {})
    still = np.broadcast_to(np.round(mean).astype(np.uint8), (1, 4, 84, 84))
    same = Encoder({**weights, "mean": np.round(mean), "deviation": np.float32(7)}, {})
    dark = np.zeros((1, 4, 84, 84), np.uint8)
    np.testing.assert_allclose(same.pairs(still), plain.pairs(dark), atol=1e-5)
    with pytest.raises(PolicyError, match="no encoder"):
        Encoder({**weights, "mean": mean[:3], "deviation": np.float32(1)}, {})


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_objectives_learn_and_repeat(played, frames, objective, tmp_path):
    part = parts_of_games(int(played.games.max()) + 1, (0.5, 0.5), 0)[0]
    asked = {"objective": objective, "games": part, "epochs": 3, "batch": 32, "seed": 1}
    one = encode(played, frames, **asked)
    assert one.about["samples"] == part[played.games].sum()
    assert one.about["last_loss"] < one.about["first_loss"]
    two = encode(played, frames, **asked)
    assert one.digest() == two.digest()
    one.save(tmp_path / "e.npz")
    assert Encoder.load(tmp_path / "e.npz").digest() == one.digest()
    assert np.abs(one.points(frames)).max() < 1
    assert not any(k.startswith("head") for k in one.weights)


def test_games_left_out_teach_nothing(played, frames):
    """Other pictures and rewards in games that are left out: the same encoder."""
    keep = parts_of_games(int(played.games.max()) + 1, (0.5, 0.5), 0)[0]
    reward, pixels = played.reward.copy(), frames.pixels.copy()
    copy, step = played.rows
    out = ~keep[played.games]
    reward[step[out], copy[out]] *= -3
    pixels[copy[out], step[out]] = 255 - pixels[copy[out], step[out]]
    changed = replace(played, reward=reward)
    asked = {"objective": "return+dynamics", "games": keep, "epochs": 1, "batch": 16}
    # The picture after a life's last step belongs to its own game: nothing of others is seen.
    assert (
        encode(played, frames, **asked).digest()
        == encode(changed, replace(frames, pixels=pixels), **asked).digest()
    )


def test_bad_settings_of_an_encoder(played, frames):
    with pytest.raises(ParameterError, match="there is no objective 'reward'"):
        encode(played, frames, objective="reward")
    with pytest.raises(ParameterError, match="epochs must be at least 1"):
        encode(played, frames, epochs=0)


def test_agreement_knows_good_neighbours_from_bad():
    rng = np.random.default_rng(0)

    def log(x, reward):
        n = len(x)
        return dprl.from_arrays(
            episode=np.arange(n) // 2, time=np.arange(n) % 2, state=x, action=np.arange(n) % 2,
            reward=reward, ended=np.ones(n, bool), actions=(0, 1),
        )  # fmt: skip

    x, y = rng.uniform(size=(2, 800, 2))
    good = agreement(log(x, x[:, 0]), log(y, y[:, 0]), k=5, gamma=1e-9)
    assert min(good[n] for n in ("state", "pair", "nearest")) > 0.9
    noise = agreement(log(x, rng.uniform(size=800)), log(y, rng.uniform(size=800)), k=5, gamma=1e-9)
    assert noise["nearest"] == pytest.approx(-1 / 5, abs=0.1)
    assert -0.1 < noise["state"] < 0.02  # about 30 neighbours
    assert noise["pair"] < noise["state"]
    none = agreement(log(x, 0 * x[:, 0]), log(y, 0 * y[:, 0]), k=5, gamma=1e-9)
    assert np.isnan([none["state"], none["pair"]]).all()  # no return, nothing to agree about
    one = agreement(log(x, x[:, 0]), log(y, y[:, 0]), k=800, gamma=1e-9)
    assert one["nearest"] == pytest.approx(0, abs=1e-9)  # everybody is a neighbour: the mean


def test_agreement_by_hand():
    """Two clusters of six voters; asked are one in each and one far from both."""

    def log(x, action, G):
        n = len(x)
        return dprl.from_arrays(
            episode=np.arange(n), state=np.array(x, float)[:, None], action=action, reward=G,
            ended=np.ones(n, bool), actions=(0, 1),
        )  # fmt: skip

    x = [0.0] * 6 + [10.0] * 6 + [5000.0] * 40  # many far away: the median reach is 0
    G = [1, 2, 3, 4, 5, 9, *[10] * 6, *[6] * 40]
    voting = log(x, [0] * 5 + [1] + [1] * 46, G)
    found = agreement(voting, log([0.0, 10.0, 777.0], [0, 1, 0], [5, 8, 3]), k=1, gamma=0.5)
    usual = np.mean(G)
    assert found["radius"] == 0
    assert found["states_with_5"] == pytest.approx(2 / 3)
    wrong, spread = (5 - 4) ** 2 + (8 - 10) ** 2, (5 - usual) ** 2 + (8 - usual) ** 2
    assert found["state"] == pytest.approx(1 - wrong / spread)
    first, second = 3, np.mean(G[5:])  # means of the returns of either action
    wrong, spread = (5 - 3) ** 2 + (8 - 10) ** 2, (5 - first) ** 2 + (8 - second) ** 2
    assert found["pair"] == pytest.approx(1 - wrong / spread)
    assert found["neighbors"] == 6


def test_comparison_of_objectives(played, frames):
    table = compare_objectives(played, frames, epochs=1, batch=32, k=3)
    assert table["objective"] == list(OBJECTIVES)
    assert all(r > 0 for r in table["radius"])
    assert all(v <= 1 for v in table["state"])


def test_parts_cover_all_games_once():
    for n in (3, 4, 10, 41):
        parts = parts_of_games(n, (1 / 3, 1 / 3, 1 / 3), 7)
        assert (np.sum(parts, axis=0) == 1).all()
        assert all(p.any() for p in parts)
    with pytest.raises(LogError, match="2 games cannot be split in 3"):
        parts_of_games(2, (1 / 3, 1 / 3, 1 / 3), 0)


# -- DQN ------------------------------------------------------------------------------------------

TINY = DQN(copies=2, batch=8, every=2, memory=60, patience=10, renewed=8, explored=60, round=40)


def test_training_resumed_equals_training_in_one_go(tmp_path):
    asked = {"steps": 120, "medium_steps": 40, "seed": 1, "settings": TINY, "make": Bars}
    whole = train_dqn("bars", tmp_path / "whole", **asked)
    with pytest.raises(Stop):
        train_dqn("bars", tmp_path / "part", progress=stop_at(0.8), **asked)
    assert (tmp_path / "part" / "bars_medium.npz").exists()
    assert not (tmp_path / "part" / "bars_expert.npz").exists()
    part = train_dqn("bars", tmp_path / "part", **asked)
    first = QNetwork(first_weights(dqn_module.chance("train", 1, 1 << 31), {
        "f1": 512, "f2": 64, "f3": 16, "f4": 3}), {})  # fmt: skip
    assert [n.digest() for n in part] == [n.digest() for n in whole]
    assert len({n.digest() for n in (*whole, first)}) == 3  # it did learn something
    assert whole[1].about["step"] == 120
    with pytest.raises(PolicyError, match="training of another network"):
        train_dqn("bars", tmp_path / "part", **{**asked, "seed": 2})
    assert len(list((tmp_path / "part" / "bars_training").iterdir())) == 3  # 30 slots, 21 a round


def test_a_network_that_was_not_kept_is_not_given(tmp_path):
    """Asked for a medium of another step, or for fewer steps than are done: no other is given."""
    asked = {"seed": 1, "settings": TINY, "make": Bars}
    medium, _ = train_dqn("bars", tmp_path, steps=80, medium_steps=40, **asked)
    again, expert = train_dqn("bars", tmp_path, steps=120, medium_steps=30, **asked)
    assert again.digest() == medium.digest()  # 30 is rounded up to a whole round: the same
    assert (again.about["step"], expert.about["step"]) == (40, 120)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(PolicyError, match="holds no network of step 80") as caught:
        train_dqn("bars", tmp_path, steps=160, medium_steps=80, **asked)
    assert "bars_medium.npz: step 40" in str(caught.value)
    with pytest.raises(PolicyError, match=r"bars_expert\.npz: step 120"):
        train_dqn("bars", tmp_path, steps=80, medium_steps=40, **asked)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    (tmp_path / "bars_medium.npz").unlink()
    with pytest.raises(PolicyError, match=r"bars_medium\.npz: missing"):
        train_dqn("bars", tmp_path, steps=160, medium_steps=40, **asked)


def remembered(memory, rounds, per_round, rng, folder=None):
    """Play Bars into a memory; what each picture led to."""
    env, true = Bars(n=memory.n), {}
    for number in range(rounds):
        seen = env.reset(number)
        memory.begin(seen)
        for _ in range(per_round):
            action = rng.integers(0, 3, memory.n)
            moment = env.step(action)
            for i in np.flatnonzero(~moment.began):
                true[seen[i].tobytes()] = (
                    action[i], np.sign(moment.reward[i]), moment.ended[i], moment.seen[i],
                )  # fmt: skip
            memory.add(action, moment.reward, moment.ended, moment.began, moment.seen)
            seen = moment.seen
        if folder is not None:
            memory.save(folder)
            memory.tidy(folder)
    return true


def test_memory_gives_back_what_was_seen():
    """Pictures drawn from a ring that has gone round, against the pictures themselves."""
    memory, rng = Memory(20, 2), np.random.default_rng(0)
    true = remembered(memory, 2, 35, rng)
    for pictures, action, reward, ended in zip(*memory.draw(rng, 200), strict=True):
        known = true[pictures[:4].numpy().tobytes()]
        assert (int(action), float(reward), bool(ended)) == known[:3]
        assert np.array_equal(pictures[1:].numpy(), known[3])


@pytest.mark.parametrize("per_round", [3, 6, 19, 45])
def test_memory_on_disk_is_the_memory(tmp_path, per_round):
    """Rounds shorter and longer than the ring; each is written once, and kept while it is held."""
    memory = Memory(20, 2)
    remembered(memory, 7, per_round, np.random.default_rng(1), tmp_path)
    again = Memory(20, 2)
    again.load(tmp_path, memory.count)
    held = len(list(tmp_path.iterdir()))
    assert held <= 1 + -(-20 // (per_round + 1))
    drawn = [m.draw(np.random.default_rng(3), 100) for m in (memory, again)]
    for mine, its in zip(*drawn, strict=True):
        assert bool((mine == its).all())
    # A round that was written while what says so was not: it is there again, word for word.
    (tmp_path / f"memory-{memory.count:012}.npz").write_bytes(b"not whole")
    Memory(20, 2).load(tmp_path, memory.count)
    sorted(tmp_path.glob("memory-*"))[held - 1].unlink()
    with pytest.raises(PolicyError, match="lacks a part"):
        Memory(20, 2).load(tmp_path, memory.count)


def test_one_update_is_the_huber_loss():
    trainer = dqn_module.Trainer(TINY, 3, 0, "cpu")
    remembered(trainer.memory, 1, 25, np.random.default_rng(0))
    drawn = trainer.memory.draw(np.random.default_rng(5), TINY.batch)
    seen, action, reward, ended = (x.numpy() for x in drawn)
    net = QNetwork(trainer.weights(), {})
    error = net.values(seen[:, :4])[np.arange(8), action] - (
        reward + 0.99 * (1 - ended) * net.values(seen[:, 1:]).max(axis=1)
    )
    huber = np.where(np.abs(error) < 1, error**2 / 2, np.abs(error) - 0.5).mean()
    trainer.learn(np.random.default_rng(5), 1)
    assert trainer.loss() == pytest.approx(huber, abs=1e-5)
    assert trainer.adam.param_groups[0]["eps"] == 1.5e-5
    assert trainer.adam.param_groups[0]["lr"] == 1e-4


def test_updates_together_are_updates_one_by_one():
    """Against torch's own Adam on the same drawn transitions, over two renewals of the target."""
    torch = pytest.importorskip("torch")
    trainer = dqn_module.Trainer(TINY, 3, 0, "cpu")
    remembered(trainer.memory, 1, 25, np.random.default_rng(0))
    w = {k: torch.tensor(v, requires_grad=True) for k, v in trainer.weights().items()}
    adam, rng = torch.optim.Adam(list(w.values()), lr=1e-4, eps=1.5e-5), np.random.default_rng(9)
    trainer.learn(np.random.default_rng(9), 19)
    for first, k in ((0, 8), (8, 8), (16, 3)):
        target = {name: v.detach().clone() for name, v in w.items()}
        seen, action, reward, ended = trainer.memory.draw(rng, k * TINY.batch)
        for i in range(0, k * TINY.batch, TINY.batch):
            x = seen[i : i + TINY.batch].float() / 255
            with torch.no_grad():
                ahead = q_values(torch, target, x[:, 1:]).max(1).values
            y = reward[i : i + 8] + 0.99 * (1 - ended[i : i + 8]) * ahead
            q = q_values(torch, w, x[:, :4])[torch.arange(8), action[i : i + 8]]
            adam.zero_grad()
            torch.nn.functional.huber_loss(q, y).backward()
            torch.nn.utils.clip_grad_norm_(list(w.values()), 10.0)
            adam.step()
        assert first + k <= 19
    for name, value in trainer.weights().items():
        np.testing.assert_allclose(value, w[name].detach().numpy(), atol=2e-6)
    assert trainer.updates == 19


def test_bad_settings_of_the_trainer(tmp_path):
    for bad, words in (
        ({"batch": 0}, "batch must be"), ({"round": 100, "copies": 16}, "multiple of copies"),
        ({"memory": 10}, "memory must hold"),
    ):  # fmt: skip
        with pytest.raises(ParameterError, match=words):
            DQN(**bad)
    with pytest.raises(ParameterError, match="medium_steps"):
        train_dqn("bars", tmp_path, steps=10, medium_steps=20, make=Bars)


def test_shapes_named_once():
    assert {k: tuple(v.shape) for k, v in EXPERT.weights.items()} == shapes(
        {"f1": 512, "f2": 64, "f3": 16, "f4": 3}
    )


def test_nothing_heavy_before_it_is_needed():
    code = "import dprl.atari, sys; print([m for m in ('torch', 'ale_py', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert torch.get_num_threads() == 1
