"""The emulator keeps to the protocol: lives, new games, seeds, whatever the threads."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("ale_py", reason="ale-py is not installed (dprl[atari])")
pytest.importorskip("torch", reason="torch is not installed (dprl[atari])")

from dprl.atari import GAMES, Collection, Games, Mixture, QNetwork, collect, play
from dprl.atari.playing import silent
from dprl.errors import ParameterError

ACTIONS = {"qbert": 6, "pong": 6, "freeway": 3, "bowling": 6, "amidar": 10}


def test_games_of_the_paper():
    assert set(GAMES) == set(ACTIONS)
    for game in GAMES:
        games = Games(game, 2)
        seen = games.reset(3)
        assert (seen.shape, seen.dtype, games.n_actions) == (
            (2, 4, 84, 84),
            np.uint8,
            ACTIONS[game],
        )
        assert not seen[:, :3].any()  # nothing was before
        assert seen[:, 3].any() or game == "amidar"
        after = games.step(np.zeros(2))
        np.testing.assert_array_equal(after.seen[:, 2], seen[:, 3])
        games.close()
    with pytest.raises(ParameterError, match="there is no game 'pongo'"):
        Games("pongo", 1)


def rolled(n, threads, steps=150, game="qbert"):
    games = Games(game, n, threads=threads)
    games.reset(11)
    found = []
    for t in range(steps):
        action = np.random.default_rng([5, t]).integers(0, games.n_actions, 8)[:n]
        m = games.step(action)
        found.append([m.seen.sum(axis=(1, 2, 3), dtype=np.int64), m.reward, m.ended, m.began])
    games.close()
    return np.array(found)


def test_copies_and_threads_do_not_matter():
    four = rolled(4, 1)
    np.testing.assert_array_equal(four, rolled(4, 3))
    np.testing.assert_array_equal(four[:, :, :2], rolled(2, 1))


def test_a_lost_life_does_not_restart_the_game():
    found = rolled(2, 1, steps=600)
    ended, began = found[:, 2].astype(bool), found[:, 3].astype(bool)
    for i in range(2):
        ends, begins = np.flatnonzero(ended[:, i]), np.flatnonzero(began[:, i])
        assert len(ends) > len(begins) >= 1  # lives end more often than games
        assert set(begins - 1) <= set(ends)  # a game begins after an end
        gone = np.searchsorted(ends, begins[0])
        assert gone == 4  # qbert has four lives
    assert not (ended & began).any()


def test_a_game_too_long_is_cut():
    network = QNetwork.random(6, 0)
    found = play(
        silent, Mixture(network, network), "pong", episodes=2,
        make=lambda game, n: Games(game, n, longest=400),
    )  # fmt: skip
    assert found.cut.all()
    assert (found.steps <= 100).all()
    assert (found.steps > 85).all()


def test_collected_and_played_again(tmp_path):
    """Other threads, another process' worth of state: the frames are the ones networks saw."""
    expert, medium = QNetwork.random(6, 3), QNetwork.random(6, 4)
    played = collect(
        "qbert", expert, medium, samples=500, seed=1, path=tmp_path / "c.npz", copies=2
    )
    again = Collection.load(tmp_path / "c.npz")
    frames = again.frames(lambda game, n: Games(game, n, threads=2))
    rows = np.arange(len(frames))
    seen = frames.stacks(rows)
    chosen = played.column("action")
    assert ((chosen == expert.actions(seen)) | (chosen == medium.actions(seen))).mean() > 0.99
    log = played.log(np.zeros((len(frames), 1)))
    assert log.n_episodes > len(log.groups)
    assert (tmp_path / "c.npz").stat().st_size < 20_000
