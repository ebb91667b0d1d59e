"""Networks and logs of the Atari study, on a stand-in for the emulator."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from bars import EXPERT, MEDIUM, Bars, Stop, stop_at

from dprl.errors import LogError, ParameterError, PolicyError
from dprl.logs.log import CUT, TERMINAL

if find_spec("torch") is None:
    pytest.skip("torch is not installed (dprl[atari])", allow_module_level=True)

import torch

from dprl_studies.atari import (
    Collection,
    QNetwork,
    collect,
)
from dprl_studies.atari.collecting import mixed
from dprl_studies.atari.games import first_seed
from dprl_studies.atari.networks import shapes, write_arrays

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
    monkeypatch.setattr("dprl_studies.atari.collecting.SAVED", 40)
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


def test_shapes_named_once():
    assert {k: tuple(v.shape) for k, v in EXPERT.weights.items()} == shapes(
        {"f1": 512, "f2": 64, "f3": 16, "f4": 3}
    )


def test_nothing_heavy_before_it_is_needed():
    code = "import dprl_studies.atari, sys; print([m for m in ('torch', 'ale_py', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"action": np.zeros((3, 4))}, "'action' is float64"),
        ({"action": np.zeros((3, 5), np.int8)}, "'action' is int8 of shape"),
        ({"reward": np.zeros((3, 4), bool)}, "'reward' is bool"),
        ({"copies": "four"}, "'copies' is 'four', no whole number"),
        ({"seed": 0.5}, "'seed' is 0.5"),
    ],
)
def test_what_is_no_collection_is_refused(tmp_path, change, words):
    arrays = {n: np.zeros((3, 4), bool) for n in ("ended", "cut", "began")}
    arrays |= {"action": np.zeros((3, 4), np.int8), "reward": np.zeros((3, 4), np.float32)}
    about = {"game": "bars", "seed": 0, "copies": 4, "samples": 12, "n_actions": 3}
    write_arrays(tmp_path / "c.npz", arrays, about)
    assert Collection.load(tmp_path / "c.npz").samples == 12
    arrays |= {k: v for k, v in change.items() if k in arrays}
    write_arrays(tmp_path / "c.npz", arrays, {k: change.get(k, v) for k, v in about.items()})
    with pytest.raises(LogError, match=words):
        Collection.load(tmp_path / "c.npz")
