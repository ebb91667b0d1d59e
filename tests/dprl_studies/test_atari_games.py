"""The emulator keeps to the protocol: lives, new games, seeds, however many."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("ale_py", reason="ale-py is not installed (dprl[atari])")
pytest.importorskip("torch", reason="torch is not installed (dprl[atari])")

from dprl.errors import ParameterError
from dprl_studies.atari import GAMES, Collection, Games, Mixture, QNetwork, collect, play
from dprl_studies.atari.playing import silent

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


def rolled(n, steps=150, game="qbert", games=None):
    games = games or Games(game, n)
    games.reset(11)
    found = []
    for t in range(steps):
        action = np.random.default_rng([5, t]).integers(0, games.n_actions, 8)[:n]
        m = games.step(action)
        found.append([m.seen.sum(axis=(1, 2, 3), dtype=np.int64), m.reward, m.ended, m.began])
    games.close()
    return np.array(found)


def test_copies_do_not_matter_nor_what_was_played_before():
    four = rolled(4)
    np.testing.assert_array_equal(four[:, :, :2], rolled(2))
    games = Games("qbert", 4)
    games.reset(99)
    for t in range(700):  # into other games
        games.step(np.full(4, t % 6), np.array([0, 2]) if t % 3 else None)
    np.testing.assert_array_equal(four, rolled(4, games=games))


def test_some_copies_wait():
    """Copies that are left out stand still, and go on as if nothing had been."""
    both, some = Games("pong", 3), Games("pong", 3)
    both.reset(5)
    some.reset(5)
    for t in range(40):
        a = np.full(3, t % 6)
        full = both.step(a)
        part = some.step(a, np.array([0, 2]))
        np.testing.assert_array_equal(full.seen[[0, 2]], part.seen[[0, 2]])
        np.testing.assert_array_equal(full.reward[[0, 2]], part.reward[[0, 2]])
    both.reset(5)
    for t in range(10):
        full, late = both.step(np.full(3, t % 6)), some.step(np.full(3, t % 6), np.array([1]))
        np.testing.assert_array_equal(full.seen[1], late.seen[1])
    both.close()
    some.close()


def test_a_lost_life_does_not_restart_the_game():
    found = rolled(2, steps=600)
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
    """The frames are the ones networks saw."""
    expert, medium = QNetwork.random(6, 3), QNetwork.random(6, 4)
    played = collect(
        "qbert", expert, medium, samples=500, seed=1, path=tmp_path / "c.npz", copies=2
    )
    again = Collection.load(tmp_path / "c.npz")
    frames = again.frames()
    rows = np.arange(len(frames))
    seen = frames.stacks(rows)
    chosen = played.column("action")
    assert ((chosen == expert.actions(seen)) | (chosen == medium.actions(seen))).mean() > 0.99
    log = played.log(np.zeros((len(frames), 1)))
    assert log.n_episodes > len(log.groups)
    assert (tmp_path / "c.npz").stat().st_size < 20_000
