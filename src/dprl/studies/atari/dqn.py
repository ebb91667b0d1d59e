r"""DQN: how experts and medium players are made.

    minimise Huber( Q(s,a) - r - γ (1 - ended) max Q⁻(s', ·) )      r the sign of the reward

Adam (1e-4, eps 1.5e-5), batches of 128, γ = .99, one update every 4 steps, Q⁻ copied every 10,000
updates, gradients clipped at norm 10; at random with a probability that falls from 1 to .01 over
the first million steps. A lost life is an end.

Training goes in rounds. A round begins new games (its seed follows from the seed and its number)
and ends with everything written down: weights, Adam's moments, what was seen. So a run that was
stopped goes on with its last whole round, and ends with the same weights as one that was not (on
one machine). What was seen takes 7 kB a step on disk, 7 GB at a million; each step is written once.

While the games take a step, the network learns from the steps before it.

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

from dprl._core.checks import check_whole
from dprl.errors import ParameterError, PlanError, PolicyError
from dprl.logs._files import Progress
from dprl.studies.atari.games import COPIES, Games, Make, Playable, chance, first_seed, optional
from dprl.studies.atari.memory import SIDE, STACK, Memory
from dprl.studies.atari.networks import (
    HEAD,
    Arrays,
    QNetwork,
    first_weights,
    q_values,
    read_arrays,
    write_arrays,
)

__all__ = ["DQN", "train_dqn"]

ADAM = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True, kw_only=True)
class DQN:
    """Settings of the trainer.

    Attributes:
        copies: Games side by side.
        batch: Steps an update.
        every: Steps between updates.
        learning_rate: Learning rate of Adam.
        adam_eps: The ε of Adam.
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
            check_whole(name, getattr(self, name), 1)
        if self.round % self.copies or self.round < 8 * self.copies:
            raise ParameterError(
                f"round must be a multiple of copies, 8 of them at least; got {self.round:,} and "
                f"{self.copies}."
            )
        check_whole("copies", self.copies, 1, COPIES - 1)
        if self.memory < 8 * self.copies:
            raise ParameterError(f"memory must hold 8 steps of each copy; got {self.memory:,}.")


class Trainer:
    """Weights on their way."""

    def __init__(self, settings: DQN, n_actions: int, seed: int, device: str) -> None:
        self.torch, self.settings, self.device = optional("torch", "torch"), settings, device
        self.torch.set_num_threads(1)
        weights = first_weights(chance("train", seed, 1 << 31), {**HEAD, "f4": n_actions})
        self.w = {
            k: self._arranged(self.torch.tensor(v, device=device)).requires_grad_()
            for k, v in weights.items()
        }
        on_gpu = {"fused": True, "capturable": True} if device != "cpu" else {}
        if on_gpu:
            self.torch.backends.cuda.matmul.allow_tf32 = True
        self.adam = self.torch.optim.Adam(
            list(self.w.values()), lr=settings.learning_rate, eps=settings.adam_eps, **on_gpu
        )
        self.lost = self.torch.zeros((), device=device)
        self.target: dict[str, Any] = {}
        self.fit = self._ready()
        self._set("w", weights)
        for part in ADAM:
            self._set(part, {k: np.zeros((), np.float32) for k in weights})
        self.target = self._copy()
        self.updates, self.step = 0, 0
        self.memory = Memory(max(8, settings.memory // settings.copies), settings.copies, device)

    def _arranged(self, x: Any) -> Any:
        """As a GPU's convolutions like their pictures and weights: channels last."""
        if self.device == "cpu" or x.ndim < 4:
            return x
        return x.contiguous(memory_format=self.torch.channels_last)

    def _ready(self) -> Any:
        """What does one update, having done one: Adam's moments exist after it.

        On a GPU the update is recorded and played back; launching its hundred small kernels one by
        one takes longer than running them.
        """
        torch, b = self.torch, self.settings.batch
        x = self._arranged(torch.zeros((b, STACK, SIDE, SIDE), device=self.device))
        action = torch.zeros(b, dtype=torch.int64, device=self.device)
        y = torch.zeros(b, device=self.device)
        if self.device == "cpu":
            self._descend(x, action, y)
            return self._descend
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):
                self._descend(x, action, y)
        torch.cuda.current_stream().wait_stream(beside)
        record = torch.cuda.CUDAGraph()
        with torch.cuda.graph(record):
            self._descend(x, action, y)

        def replay(*given: Any) -> None:
            for place, value in zip((x, action, y), given, strict=True):
                place.copy_(value)
            record.replay()

        return replay

    def _descend(self, x: Any, action: Any, y: Any) -> None:
        """One step of Adam; the loss is added to what was lost."""
        torch = self.torch
        q = q_values(torch, self.w, x).gather(1, action[:, None])[:, 0]
        loss = torch.nn.functional.smooth_l1_loss(q, y)
        self.adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.w.values()), 10.0)
        self.adam.step()
        self.lost += loss.detach()

    def _copy(self) -> dict[str, Any]:
        return {k: v.detach().clone() for k, v in self.w.items()}

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """The network as it is."""
        return {k: v.detach().cpu().numpy().copy() for k, v in self.w.items()}

    def best(self, seen: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Greedy actions."""
        with self.torch.no_grad():
            x = self._arranged(self.torch.from_numpy(seen).to(self.device).float() / 255)
            return np.asarray(q_values(self.torch, self.w, x).argmax(1).cpu().numpy())

    def loss(self) -> float:
        """The mean loss of the last updates together; waits for them."""
        return float(self.lost)

    def learn(self, rng: np.random.Generator, updates: int) -> None:
        """Steps of Adam."""
        s, left = self.settings, updates
        self.lost.zero_()
        while left:
            if self.updates % s.renewed == 0:
                self.target = self._copy()
            k = min(left, s.renewed - self.updates % s.renewed)  # the target is the same for these
            seen, action, reward, ended = self.memory.draw(rng, k * s.batch)
            x = seen.float() / 255
            with self.torch.no_grad():
                ahead = q_values(self.torch, self.target, self._arranged(x[:, 1:])).max(1).values
                y = reward + s.gamma * (1 - ended) * ahead
            for i in range(0, k * s.batch, s.batch):
                some = slice(i, i + s.batch)
                self.fit(x[some, :STACK], action[some], y[some])
            self.updates += k
            left -= k
        self.lost /= max(1, updates)

    # -- kept on disk ------------------------------------------------------------------------

    def _place(self, part: str, name: str) -> Any:
        whole = {"w": self.w, "target": self.target}.get(part)
        return self.adam.state[self.w[name]][part] if whole is None else whole[name]

    def _set(self, part: str, values: Mapping[str, NDArray[Any]]) -> None:
        """Overwrite weights, the target's or Adam's moments, where they lie."""
        with self.torch.no_grad():
            for name, value in values.items():
                self._place(part, name).copy_(self.torch.from_numpy(np.asarray(value)))

    def save(self, folder: Path, about: Mapping[str, Any]) -> None:
        """A whole round; the last file written says that the others are whole."""
        arrays: Arrays = {
            f"{part}.{k}": self._place(part, k).detach().cpu().numpy()
            for part in ("w", "target", *ADAM) for k in self.w
        }  # fmt: skip
        self.memory.save(folder)
        facts = {"updates": self.updates, "step": self.step, "count": self.memory.count}
        write_arrays(folder / "state.npz", arrays, {**about, **facts})
        self.memory.tidy(folder)

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
        try:
            for part in ("w", "target", *ADAM):
                self._set(part, {k: arrays[f"{part}.{k}"] for k in self.w})
            self.updates, self.step = int(facts["updates"]), int(facts["step"])
            self.memory.load(folder, int(facts["count"]))
        except (KeyError, ValueError, TypeError, RuntimeError, IndexError) as error:
            raise PolicyError(
                f"{str(folder)!r} does not hold a whole state of a training.", str(error)[:200],
                "Train anew in another folder.",
            ) from error  # fmt: skip


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
        game: Name of the game.
        folder: Folder for the networks and for what is needed to continue.
        steps: Number of decisions, rounded up to whole rounds.
        medium_steps: Number of decisions after which the medium network is kept, likewise rounded.
        seed: Seed of everything random.
        settings: Settings of the trainer.
        device: "cpu" or "cuda".
        make: What plays.
        progress: Called with the stage's name and the share of it that is done.
    """
    s = settings or DQN()
    check_whole("medium_steps", medium_steps, 1, steps)
    kept = folder / f"{game}_training"
    kept.mkdir(parents=True, exist_ok=True)
    games = make(game, s.copies)
    about = {"game": game, "seed": seed, "settings": _words(s), "n_actions": games.n_actions}
    say = progress or (lambda stage, share: None)
    try:
        trainer = Trainer(s, games.n_actions, seed, device)
        paths = {name: folder / f"{game}_{name}.npz" for name in ("medium", "expert")}
        if (kept / "state.npz").exists():
            trainer.load(kept, about)
            _not_passed(trainer, paths, {"medium": medium_steps, "expert": steps})
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


def _not_passed(trainer: Trainer, paths: Mapping[str, Path], wanted: Mapping[str, int]) -> None:
    """Refuse a network of a round that is over and was not kept: there is no way back to it."""
    for name, steps in wanted.items():
        due = -(-steps // trainer.settings.round) * trainer.settings.round
        if trainer.step < due:
            continue
        kept = QNetwork.load(paths[name]).about.get("step") if paths[name].exists() else None
        if kept != due:
            raise PolicyError(
                f"the training is at step {trainer.step:,} and holds no network of step {due:,}.",
                f"{paths[name].name}: " + ("missing" if kept is None else f"step {kept:,}"),
                "Ask for the steps it was kept at, or train anew in another folder.",
            )


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
        games.send(action)  # while the games go on, learn
        before, trainer.step = trainer.step, trainer.step + s.copies
        if trainer.step > s.patience and memory.whole.any():
            trainer.learn(rng, trainer.step // s.every - before // s.every)
        moment = games.receive()
        memory.add(action, moment.reward, moment.ended, moment.began, moment.seen)
        seen = moment.seen
        if not np.isfinite(trainer.loss()):
            raise PlanError(f"the loss was not finite at step {trainer.step:,}.")
        say(trainer.step / steps)
