"""Training, and what is seen in it, on a stand-in for the emulator."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from bars import Bars, Stop, stop_at

from dprl.errors import ParameterError, PolicyError

if find_spec("torch") is None:
    pytest.skip("torch is not installed (dprl[atari])", allow_module_level=True)


from dprl_studies.atari import (
    DQN,
    QNetwork,
    train_dqn,
)
from dprl_studies.atari import dqn as dqn_module
from dprl_studies.atari.dqn import Memory
from dprl_studies.atari.networks import first_weights, q_values, read_arrays, write_arrays

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


@pytest.mark.parametrize("seed", [-1, 1.5, 1 << 17])
def test_a_wrong_seed_is_refused_before_anything_is_made(tmp_path, seed):
    with pytest.raises(ParameterError, match="seed must be a whole number"):
        train_dqn("bars", tmp_path / "new", steps=40, medium_steps=40, seed=seed, settings=TINY,
                  make=Bars)  # fmt: skip
    assert not (tmp_path / "new").exists()


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
    for gone in sorted(tmp_path.glob("memory-*"))[:held]:
        kept = gone.read_bytes()
        gone.unlink()
        with pytest.raises(PolicyError, match="lacks a part"):
            Memory(20, 2).load(tmp_path, memory.count)
        gone.write_bytes(kept)


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


@pytest.mark.parametrize(
    "gone", ["w.f1.bias", "exp_avg.c1.weight", "step.f4.bias", "target.c2.bias"]
)
def test_half_a_state_is_refused(tmp_path, gone):
    asked = {"steps": 80, "medium_steps": 40, "seed": 1, "settings": TINY, "make": Bars}
    with pytest.raises(Stop):
        train_dqn("bars", tmp_path, progress=stop_at(0.8), **asked)
    state = tmp_path / "bars_training" / "state.npz"
    arrays, about = read_arrays(state)
    write_arrays(state, {k: v for k, v in arrays.items() if k != gone}, about)
    with pytest.raises(PolicyError, match="does not hold a whole state"):
        train_dqn("bars", tmp_path, **asked)
    wrong = {**arrays, gone: np.zeros((2, 2), np.float32)}
    write_arrays(state, wrong, about)
    with pytest.raises(PolicyError, match="does not hold a whole state"):
        train_dqn("bars", tmp_path, **asked)
