r"""DQN: how experts and medium players are made.

    minimise Huber( Q(s,a) - r - γ (1 - ended) max Q⁻(s', ·) )      r the sign of the reward

Adam (1e-4, eps 1.5e-5), batches of 128, γ = .99, one update every 4 steps, Q⁻ copied every 10,000
updates, gradients clipped at norm 10; at random with a probability that falls from 1 to .01 over
the first million steps. A lost life is an end.

Training goes in rounds. A round begins new games (its seed follows from the seed and its number)
and ends with everything written down: weights, Adam's moments, the memory of what was seen. So a
run that was stopped goes on with its last whole round, and ends with the same weights as one that
was not (on one machine). The memory takes 7 kB a step on disk: 7 GB at a million.

`GAME_medium.npz` is the network at `medium_steps`, `GAME_expert.npz` at the end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.atari.games import COPIES, Games, Make, Playable, chance, first_seed, optional
from dprl.atari.networks import (
    HEAD,
    Arrays,
    QNetwork,
    first_weights,
    q_values,
    read_arrays,
    write_arrays,
)
from dprl.errors import ParameterError, PlanError, PolicyError
from dprl.files import Progress

__all__ = ["DQN", "train_dqn"]

STACK = 4
ADAM = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True, kw_only=True)
class DQN:
    """Settings of the trainer.

    Attributes:
        copies: Games side by side.
        batch: Steps an update.
        every: Steps between updates.
        learning_rate: Of Adam.
        adam_eps: Of Adam.
        gamma: Discount.
        renewed: Updates between copies of Q into its target.
        memory: Steps kept.
        patience: Steps before the first update.
        explored: Steps over which the share of random actions falls.
        least: That share afterwards.
        round: Steps between two writings.
    """

    copies: int = 16
    batch: int = 128
    every: int = 4
    learning_rate: float = 1e-4
    adam_eps: float = 1.5e-5
    gamma: float = 0.99
    renewed: int = 10_000
    memory: int = 1_000_000
    patience: int = 50_000
    explored: int = 1_000_000
    least: float = 0.01
    round: int = 250_000

    def __post_init__(self) -> None:
        for name in ("copies", "batch", "every", "renewed", "memory", "round"):
            if getattr(self, name) < 1:
                raise ParameterError(f"{name} must be at least 1; got {getattr(self, name)!r}.")
        if self.round % self.copies or self.round < 8 * self.copies:
            raise ParameterError(
                f"round must be a multiple of copies, 8 of them at least; got {self.round:,} and "
                f"{self.copies}."
            )
        if self.copies >= COPIES:
            raise ParameterError(f"copies must be below {COPIES}; got {self.copies!r}.")
        if self.memory < 8 * self.copies:
            raise ParameterError(f"memory must hold 8 steps of each copy; got {self.memory:,}.")


class Memory:
    """The last steps of n copies, a ring; each picture is kept once."""

    def __init__(self, length: int, n: int) -> None:
        self.length, self.n, self.count = length, n, 0
        self.pixels = np.zeros((length, n, 84, 84), np.uint8)
        self.age = np.zeros((length, n), np.int32)
        self.action = np.zeros((length, n), np.int8)
        self.reward = np.zeros((length, n), np.float32)
        self.ended = np.zeros((length, n), bool)
        self.whole = np.zeros((length, n), bool)  # what it led to is in the next slot

    def begin(self, seen: NDArray[np.uint8]) -> None:
        """New games: nothing leads from the last slot to this one."""
        self._put(seen, np.ones(self.n, bool))

    def add(self, action: Any, reward: Any, ended: Any, began: Any, seen: Any) -> None:
        """What was done in the last slot, and what it led to."""
        here = (self.count - 1) % self.length
        self.action[here], self.reward[here] = action, np.sign(reward)
        self.ended[here], self.whole[here] = ended, ~began
        self._put(seen, began)

    def _put(self, seen: NDArray[np.uint8], new: NDArray[np.bool_]) -> None:
        here, before = self.count % self.length, (self.count - 1) % self.length
        self.pixels[here] = seen[:, -1]
        self.age[here] = np.where(new, 0, self.age[before] + 1)
        self.whole[here] = False
        self.count += 1

    def draw(self, rng: np.random.Generator, k: int) -> tuple[NDArray[Any], ...]:
        """k transitions: pictures, action, reward, ended, pictures after it."""
        low, slots, copies = max(0, self.count - self.length + STACK), [], []
        need = k
        while need:  # begun games and the newest slot are no transitions
            t = rng.integers(low, self.count, 2 * need)
            i = rng.integers(0, self.n, 2 * need)
            ok = np.flatnonzero(self.whole[t % self.length, i])[:need]
            slots.append(t[ok])
            copies.append(i[ok])
            need -= len(ok)
        t, i = np.concatenate(slots), np.concatenate(copies)
        here = t % self.length
        return (
            self._stacks(t, i), self.action[here, i].astype(np.int64), self.reward[here, i],
            self.ended[here, i].astype(np.float32), self._stacks(t + 1, i),
        )  # fmt: skip

    def _stacks(self, t: NDArray[np.int64], i: NDArray[np.int64]) -> NDArray[np.uint8]:
        found = np.zeros((len(t), STACK, 84, 84), np.uint8)
        age = self.age[t % self.length, i]
        for back in range(STACK):
            there = age >= back
            found[there, STACK - 1 - back] = self.pixels[(t[there] - back) % self.length, i[there]]
        return found

    def arrays(self) -> Arrays:
        """All of it, as arrays."""
        names = ("pixels", "age", "action", "reward", "ended", "whole")
        return {name: getattr(self, name) for name in names}


class Trainer:
    """Weights on their way."""

    def __init__(self, settings: DQN, n_actions: int, seed: int, device: str) -> None:
        self.torch, self.settings, self.device = optional("torch", "torch"), settings, device
        self.torch.set_num_threads(1)
        rng = chance("train", seed, 1 << 31)
        self._begin(first_weights(rng, {**HEAD, "f4": n_actions}))
        self.target = self._copy()
        self.updates, self.step = 0, 0
        length = max(8, settings.memory // settings.copies)
        self.memory = Memory(length, settings.copies)

    def _begin(self, weights: Mapping[str, NDArray[Any]]) -> None:
        torch, s = self.torch, self.settings
        self.w = {
            k: torch.tensor(v, device=self.device, requires_grad=True) for k, v in weights.items()
        }
        self.adam = torch.optim.Adam(list(self.w.values()), lr=s.learning_rate, eps=s.adam_eps)

    def _copy(self) -> dict[str, Any]:
        return {k: v.detach().clone() for k, v in self.w.items()}

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """The network as it is."""
        return {k: v.detach().cpu().numpy().copy() for k, v in self.w.items()}

    def best(self, seen: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Greedy actions."""
        with self.torch.no_grad():
            x = self.torch.from_numpy(seen).to(self.device).float() / 255
            return np.asarray(q_values(self.torch, self.w, x).argmax(1).cpu().numpy())

    def update(self, rng: np.random.Generator) -> float:
        """One step of Adam; the loss."""
        torch, s = self.torch, self.settings
        if self.updates % s.renewed == 0:
            self.target = self._copy()
        drawn = [torch.from_numpy(x).to(self.device) for x in self.memory.draw(rng, s.batch)]
        seen, action, reward, ended, after = drawn
        with torch.no_grad():
            ahead = q_values(torch, self.target, after.float() / 255).max(1).values
            y = reward + s.gamma * (1 - ended) * ahead
        q = q_values(torch, self.w, seen.float() / 255).gather(1, action[:, None])[:, 0]
        loss = torch.nn.functional.smooth_l1_loss(q, y)
        self.adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.w.values()), 10.0)
        self.adam.step()
        self.updates += 1
        return float(loss.detach())

    # -- kept on disk ------------------------------------------------------------------------

    def save(self, folder: Path, about: Mapping[str, Any]) -> None:
        """A whole round; the last file written says that the others are whole."""
        arrays: Arrays = {f"w.{k}": v for k, v in self.weights().items()}
        arrays |= {f"target.{k}": v.cpu().numpy() for k, v in self.target.items()}
        for name, parameter in self.w.items():
            for part, value in self.adam.state.get(parameter, {}).items():
                if part in ADAM:
                    arrays[f"{part}.{name}"] = value.detach().cpu().numpy()
        write_arrays(folder / f"memory-{self.step}.npz", self.memory.arrays(), {})
        facts = {"updates": self.updates, "step": self.step, "count": self.memory.count}
        write_arrays(folder / "state.npz", arrays, {**about, **facts})
        for old in folder.glob("memory-*.npz"):
            if old.name != f"memory-{self.step}.npz":
                old.unlink()

    def load(self, folder: Path, about: Mapping[str, Any]) -> None:
        """The last whole round."""
        arrays, facts = read_arrays(folder / "state.npz")
        for name, value in about.items():
            if facts.get(name) != value:
                raise PolicyError(
                    f"{str(folder)!r} holds the training of another network.",
                    f"{name} {facts.get(name)!r}, now {value!r}",
                    "Name another folder, or remove this one.",
                )
        self._begin({k[2:]: v for k, v in arrays.items() if k.startswith("w.")})
        for name, parameter in self.w.items():
            state = {p: arrays[f"{p}.{name}"] for p in ADAM if f"{p}.{name}" in arrays}
            if state:
                self.adam.state[parameter] = {
                    p: self.torch.tensor(v, device="cpu" if p == "step" else self.device)
                    for p, v in state.items()
                }
        self.target = {
            k[7:]: self.torch.tensor(v, device=self.device)
            for k, v in arrays.items() if k.startswith("target.")
        }  # fmt: skip
        self.updates, self.step = facts["updates"], facts["step"]
        kept, _ = read_arrays(folder / f"memory-{self.step}.npz")
        for name, value in kept.items():
            getattr(self.memory, name)[:] = value
        self.memory.count = facts["count"]


def train_dqn(
    game: str,
    folder: Path,
    *,
    steps: int = 10_000_000,
    medium_steps: int = 1_000_000,
    seed: int = 0,
    settings: DQN | None = None,
    device: str = "cpu",
    make: Make = Games,
    progress: Progress | None = None,
) -> tuple[QNetwork, QNetwork]:
    """Train a network; the medium and the final one.

    Args:
        game: Its name.
        folder: Where networks and what is needed to go on are kept.
        steps: Decisions, rounded up to whole rounds.
        medium_steps: When the medium network is taken, likewise.
        seed: Of everything random.
        settings: Of the trainer.
        device: "cpu" or "cuda".
        make: What plays.
        progress: Called with the stage's name and the share of it that is done.
    """
    s = settings or DQN()
    if not 1 <= medium_steps <= steps:
        raise ParameterError(f"medium_steps must lie in 1..{steps}; got {medium_steps!r}.")
    kept = folder / f"{game}_training"
    kept.mkdir(parents=True, exist_ok=True)
    games = make(game, s.copies)
    about = {"game": game, "seed": seed, "settings": _words(s), "n_actions": games.n_actions}
    say = progress or (lambda stage, share: None)
    try:
        trainer = Trainer(s, games.n_actions, seed, device)
        if (kept / "state.npz").exists():
            trainer.load(kept, about)
        paths = {name: folder / f"{game}_{name}.npz" for name in ("medium", "expert")}
        while trainer.step < steps:
            _round(trainer, games, seed, lambda share: say(f"training on {game}", share), steps)
            if trainer.step >= medium_steps > trainer.step - s.round:
                _network(trainer, game).save(paths["medium"])
            if trainer.step >= steps:
                _network(trainer, game).save(paths["expert"])
            trainer.save(kept, about)
    finally:
        games.close()
    return QNetwork.load(paths["medium"]), QNetwork.load(paths["expert"])


def _words(s: DQN) -> str:
    return hashlib.sha256(json.dumps(asdict(s), sort_keys=True).encode()).hexdigest()[:16]


def _network(trainer: Trainer, game: str) -> QNetwork:
    return QNetwork(trainer.weights(), {"game": game, "step": trainer.step})


def _round(trainer: Trainer, games: Playable, seed: int, say: Any, steps: int) -> None:
    """New games, `round` steps of them, and the updates that belong to these."""
    s, number = trainer.settings, trainer.step // trainer.settings.round
    rng = chance("train", seed, number)
    first = first_seed("train", seed)
    # Rounds follow each other within the seeds this part of the study owns.
    seen = games.reset(first + (number * s.copies) % (COPIES - s.copies))
    memory = trainer.memory
    memory.begin(seen)
    for _ in range(s.round // s.copies):
        share = max(s.least, 1 - (1 - s.least) * trainer.step / max(1, s.explored))
        action = trainer.best(seen)
        at_random = rng.random(s.copies) < share
        action = np.where(at_random, rng.integers(0, games.n_actions, s.copies), action)
        moment = games.step(action)
        memory.add(action, moment.reward, moment.ended, moment.began, moment.seen)
        seen, before = moment.seen, trainer.step
        trainer.step += s.copies
        if trainer.step > s.patience and memory.whole.any():
            for _ in range(trainer.step // s.every - before // s.every):
                loss = trainer.update(rng)
                if not np.isfinite(loss):
                    raise PlanError(f"the loss was not finite at step {trainer.step:,}.")
        say(trainer.step / steps)
