"""The representation and what it is trained for, on a stand-in for the emulator."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

import dprl
from dprl.errors import LogError, ParameterError, PolicyError

if find_spec("torch") is None:
    pytest.skip("torch is not installed (dprl[atari])", allow_module_level=True)


from dprl_studies.atari import (
    Encoder,
    compare_objectives,
    encode,
)
from dprl_studies.atari.encoding import OBJECTIVES, SIZE, agreement, parts_of_games
from dprl_studies.atari.networks import first_weights


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
    whole = {**weights, "mean": mean, "deviation": np.float32(1)}
    for name, wrong in (
        ("norm.weight", None), ("norm.weight", np.ones(16, np.float32)),
        ("norm.weight", np.full(48, np.nan, np.float32)),
        ("norm.bias", np.full(48, np.nan, np.float32)),
        ("norm.bias", np.zeros(49, np.float32)),
    ):  # fmt: skip
        broken = {k: v for k, v in {**whole, name: wrong}.items() if v is not None}
        with pytest.raises(PolicyError, match=f"no encoder: '{name}'"):
            Encoder(broken, {})


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
    with pytest.raises(ParameterError, match="epochs must be a whole number, at least 1"):
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
