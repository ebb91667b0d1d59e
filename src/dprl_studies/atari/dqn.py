"""DQN: the training of the networks that play as expert and as medium player.

Each update is one step of Adam on the mean loss of a batch of transitions:

    minimise Huber( Q(s,a) - r - γ (1 - ended) max Q⁻(s', ·) )

r is the sign of the reward. By default Adam has the learning rate 1e-4 and ε = 1.5e-5, a batch has
128 transitions, γ is .99, and there is one update per 4 steps. The target network Q⁻ is a copy of Q
that is renewed every 10,000 updates. Gradients are clipped at norm 10. The probability of a random
action falls from 1 to .01 over the first million steps. The loss of a life counts as an end.

Training goes in rounds. A round begins new games, whose seed follows from the seed of the training
and the number of the round. At its end everything is written to disk: the weights, the moments of
Adam and the replay memory. So a training that was stopped continues after its last complete round,
and on the same machine it ends with the same weights as one that was not stopped. The replay memory
takes 7 kB per step on disk, 7 GB for a million steps; each step is written once.

While the games take a step, the network learns from the steps before it.

`GAME_medium.npz` is the network after `medium_steps` steps, `GAME_expert.npz` the one at the end.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Ints, Singles
from dprl._core.checks import check_whole
from dprl.errors import ParameterError, PlanError, PolicyError
from dprl.logs.reading.files import Progress
from dprl_studies.atari.games import COPIES, Games, Make, Playable, chance, first_seed, optional
from dprl_studies.atari.networks import (
    HEAD,
    Arrays,
    QNetwork,
    first_weights,
    q_values,
    read_arrays,
    write_arrays,
)

# --- The replay memory of a network in training: the last steps of n copies of a game, in a ring
#
# Each frame is kept once, on the device that learns. Actions, rewards and the age of the game are
# in the main memory, where transitions are drawn. A transition is five frames in a row: the first
# four are the picture before the action, the last four the picture after it.
#
# On disk each round of training is one file. It is written once and removed when the ring holds
# none of its steps any more.

STACK, SIDE = 4, 84
FACTS = ("age", "action", "reward", "ended", "whole")
"""What is kept of a step beside its frame."""


class Memory:
    """The last steps of n copies of a game (needs torch).

    Args:
        length: Number of steps kept of each copy.
        n: Number of copies.
        device: Where the frames are: "cpu" (default) or "cuda".

    Example:
        >>> memory = Memory(100, 2)  # doctest: +SKIP
        >>> memory.begin(np.zeros((2, 4, 84, 84), np.uint8))  # doctest: +SKIP
        >>> memory.count  # doctest: +SKIP
        1
    """

    def __init__(self, length: int, n: int, device: str = "cpu") -> None:
        self.torch, self.device = optional("torch", "torch"), device
        self.length, self.n, self.count = length, n, 0
        self.written = 0
        self.pixels = self.torch.zeros(
            (length, n, SIDE, SIDE), dtype=self.torch.uint8, device=device
        )
        self.age = np.zeros((length, n), np.int32)
        self.action = np.zeros((length, n), np.int64)
        self.reward = np.zeros((length, n), np.float32)
        self.ended = np.zeros((length, n), np.float32)
        self.whole = np.zeros((length, n), bool)  # what it led to is in the next slot

    def begin(self, seen: NDArray[np.uint8]) -> None:
        """Add the first pictures of new games; no transition leads to them.

        Args:
            seen: uint8 (n, 4, 84, 84), the first picture of each copy.
        """
        self._put(seen, np.ones(self.n, bool))

    def add(self, action: Any, reward: Any, ended: Any, began: Any, seen: Any) -> None:
        """Add one step of each copy.

        Args:
            action: Whole numbers (n,), the actions taken.
            reward: Numbers (n,), the rewards; their signs are kept.
            ended: bool (n,), whether a life or the game ended.
            began: bool (n,), whether a new game began instead: then it is no transition.
            seen: uint8 (n, 4, 84, 84), the pictures after the step.
        """
        here = (self.count - 1) % self.length
        self.action[here], self.reward[here] = action, np.sign(reward)
        self.ended[here], self.whole[here] = ended, ~began
        self._put(seen, began)

    def _put(self, seen: NDArray[np.uint8], new: Bools) -> None:
        """Write the newest frames to the next slot; `new` marks copies in which a game began."""
        here, before = self.count % self.length, (self.count - 1) % self.length
        self.pixels[here] = self._tensor(seen[:, -1])
        self.age[here] = np.where(new, 0, self.age[before] + 1)
        self.whole[here] = False
        self.count += 1

    def _tensor(self, values: NDArray[Any]) -> Any:
        """The values as a tensor on the device."""
        return self.torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def draw(self, rng: np.random.Generator, k: int) -> tuple[Any, Any, Any, Any]:
        """Draw transitions at random, with replacement.

        Args:
            rng: The random generator.
            k: Number of transitions.

        Returns:
            Tensors: frames (k, 5, 84, 84), actions (k,), signs of rewards (k,), and 1 where a life
            or game ended, else 0 (k,).
        """
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
        back = np.arange(STACK - 1, -2, -1)  # 3 pictures ago .. the next one
        at = (t[:, None] - back) % self.length * self.n + i[:, None]
        in_game = self.age[here, i][:, None] >= back  # before a game began all is black
        flat = self.pixels.view(self.length * self.n, -1)
        pictures = flat[self._tensor(at.ravel())].view(k, STACK + 1, SIDE, SIDE)
        pictures *= self._tensor(in_game[:, :, None, None])
        return (
            pictures, self._tensor(self.action[here, i]), self._tensor(self.reward[here, i]),
            self._tensor(self.ended[here, i]),
        )  # fmt: skip

    # -- kept on disk ------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write the steps since the last call to a new file in the folder."""
        first = max(self.written, self.count - self.length)
        at = np.arange(first, self.count) % self.length
        arrays = {name: getattr(self, name)[at] for name in FACTS}
        pixels = self.pixels[self._tensor(at)].cpu().numpy()
        write_arrays(folder / f"memory-{first:012}.npz", {**arrays, "pixels": pixels}, {})
        self.written = self.count

    def tidy(self, folder: Path) -> None:
        """Remove the files whose steps the ring no longer holds."""
        files = sorted(folder.glob("memory-*.npz"))
        for path, after in itertools.pairwise(files):
            if _first(after) <= self.count - self.length:
                path.unlink()

    def load(self, folder: Path, count: int) -> None:
        """Read the state of the ring after `count` steps from the files in the folder.

        Args:
            folder: Folder of the files that `save` wrote.
            count: Number of steps of each copy that had been added.

        Raises:
            PolicyError: A file is missing.
        """
        files = [path for path in sorted(folder.glob("memory-*.npz")) if _first(path) < count]
        reached = max(0, count - self.length)
        for path in files:
            if _first(path) > reached:  # a file is gone
                break
            arrays, _ = read_arrays(path)
            n = min(len(arrays["age"]), count - _first(path))
            at = np.arange(_first(path), _first(path) + n) % self.length
            for name in FACTS:
                getattr(self, name)[at] = arrays[name][:n]
            self.pixels[self._tensor(at)] = self._tensor(arrays["pixels"][:n])
            reached = max(reached, _first(path) + n)
        if reached < count:
            raise PolicyError(
                f"{str(folder)!r} lacks a part of what was seen in training.",
                f"steps from {reached * self.n:,} on",
                "Train anew in another folder.",
            )
        self.count = self.written = count


def _first(path: Path) -> int:
    """The number of the first step in a file, from its name."""
    return int(path.stem.split("-")[1])


# --- DQN: the training of the networks that play as expert and as medium player

ADAM = ("exp_avg", "exp_avg_sq", "step")
"""What Adam keeps of each weight, by torch's names: two moments and the number of updates."""


@dataclass(frozen=True, kw_only=True)
class DQN:
    """Settings of the training. A step is one decision of one copy of the game.

    Attributes:
        copies: Number of copies of the game that are played at the same time, from 1 to 4,095.
            Default 16.
        batch: Number of transitions per update. Default 128.
        every: Number of steps per update. Default 4.
        learning_rate: Learning rate of Adam. Default 1e-4.
        adam_eps: The ε of Adam. Default 1.5e-5.
        gamma: Discount per step. Default 0.99.
        renewed: Number of updates after which the target network becomes a copy of the network.
            Default 10,000.
        memory: Number of steps in the replay memory, of all copies together; at least 8 per copy.
            Default 1,000,000.
        patience: Number of steps before the first update. Default 50,000.
        explored: Number of steps over which the probability of a random action falls from 1 to
            `least`, in a straight line. Default 1,000,000.
        least: Probability of a random action after that. Default 0.01.
        round: Number of steps after which everything is written to disk; a multiple of `copies`, at
            least 8 per copy. Default 250,000.

    Raises:
        ParameterError: `copies`, `batch`, `every`, `renewed`, `memory` or `round` is not a whole
            number in its range.

    Example:
        >>> settings = DQN(copies=8, round=80_000)
        >>> settings.gamma, settings.batch
        (0.99, 128)
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
    """A network in training: its weights, the target network, Adam and the replay memory.

    Args:
        settings: The settings.
        n_actions: Number of actions of the game.
        seed: Seed of the first weights.
        device: "cpu" or "cuda".
    """

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
        """The tensor x in the fastest memory layout: channels last on a GPU, if it has 4 axes."""
        if self.device == "cpu" or x.ndim < 4:
            return x
        return x.contiguous(memory_format=self.torch.channels_last)

    def _ready(self) -> Any:
        """A function (pictures, actions, targets) that does one update.

        At least one update of zeros is done here, since torch makes Adam's moments at the first
        one; the caller sets weights and moments again afterwards. On a GPU the update is recorded
        as a graph and replayed, since starting its hundred small kernels one by one takes longer
        than running them.
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
        """Do one step of Adam, and add the loss to the sum `lost`.

        Args:
            x: Tensor (batch, 4, 84, 84), the pictures, in [0, 1].
            action: Tensor (batch,), the actions taken.
            y: Tensor (batch,), the values that Q(s, a) shall have.
        """
        torch = self.torch
        q = q_values(torch, self.w, x).gather(1, action[:, None])[:, 0]
        loss = torch.nn.functional.smooth_l1_loss(q, y)
        self.adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.w.values()), 10.0)
        self.adam.step()
        self.lost += loss.detach()

    def _copy(self) -> dict[str, Any]:
        """A copy of the weights, as tensors by name."""
        return {k: v.detach().clone() for k, v in self.w.items()}

    def weights(self) -> dict[str, Singles]:
        """A copy of the present weights: name → float32 array."""
        return {k: v.detach().cpu().numpy().copy() for k, v in self.w.items()}

    def best(self, seen: NDArray[np.uint8]) -> Ints:
        """The actions with the highest values, int64 (k,), at pictures uint8 (k, 4, 84, 84)."""
        with self.torch.no_grad():
            x = self._arranged(self.torch.from_numpy(seen).to(self.device).float() / 255)
            return np.asarray(q_values(self.torch, self.w, x).argmax(1).cpu().numpy())

    def loss(self) -> float:
        """The mean loss of the updates of the last call of `learn`; waits until they are done."""
        return float(self.lost)

    def learn(self, rng: np.random.Generator, updates: int) -> None:
        """Do so many updates, with transitions that `rng` draws from the replay memory."""
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

    # -- saved on disk -----------------------------------------------------------------------

    def _place(self, part: str, name: str) -> Any:
        """The tensor of one weight: in the network ("w"), the target ("target") or Adam."""
        whole = {"w": self.w, "target": self.target}.get(part)
        return self.adam.state[self.w[name]][part] if whole is None else whole[name]

    def _set(self, part: str, values: Mapping[str, NDArray[Any]]) -> None:
        """Overwrite the values of a part, "w", "target" or one of `ADAM`, in its own tensors."""
        with self.torch.no_grad():
            for name, value in values.items():
                self._place(part, name).copy_(self.torch.from_numpy(np.asarray(value)))

    def save(self, folder: Path, about: Mapping[str, Any]) -> None:
        """Write everything at the end of a round.

        The file state.npz is written after the files of the memory, so where it is, they are
        complete.

        Args:
            folder: The folder to write to.
            about: Facts about the training by name, which `load` compares.
        """
        arrays: Arrays = {
            f"{part}.{k}": self._place(part, k).detach().cpu().numpy()
            for part in ("w", "target", *ADAM) for k in self.w
        }  # fmt: skip
        self.memory.save(folder)
        facts = {"updates": self.updates, "step": self.step, "count": self.memory.count}
        write_arrays(folder / "state.npz", arrays, {**about, **facts})
        self.memory.tidy(folder)

    def load(self, folder: Path, about: Mapping[str, Any]) -> None:
        """Continue after the last complete round.

        Args:
            folder: A folder that `save` wrote.
            about: Facts about this training by name; those in the folder must be equal.

        Raises:
            PolicyError: The folder holds another training, or its files are not complete.
        """
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
    """Train a network to play a game; keep a medium network on the way, and the final one.

    A training that was stopped is continued if the same game, seed and settings are given. Needs
    torch, and ale-py unless `make` is given.

    Args:
        game: Name of the game.
        folder: Folder for the two networks (GAME_medium.npz, GAME_expert.npz) and, in its folder
            GAME_training, for what is needed to continue. Made if it does not exist.
        steps: Number of decisions, of all copies together, rounded up to whole rounds. Default
            10,000,000.
        medium_steps: Number of decisions after which the medium network is saved, from 1 to
            `steps`, rounded up likewise. Default 1,000,000.
        seed: Seed of the first weights, the games and the actions, from 0 to 131,071. Default 0.
        settings: Settings of the training. Default None: `DQN()`.
        device: Where the network learns: "cpu" (default) or "cuda".
        make: Function (game, copies) → the games to play in. Default: `Games`, the emulator.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The medium network and the final one, the expert.

    Raises:
        ParameterError: There is no such game, or `medium_steps` or `seed` is outside its range.
        PolicyError: The folder holds another training, a state that is not complete, or a training
            that has passed the steps asked for and saved no network there.
        PlanError: The loss is not finite.
        PackageError: torch or ale-py is not installed.

    Example:
        >>> tiny = DQN(copies=2, batch=8, memory=64, patience=10, round=16)
        >>> medium, expert = train_dqn(
        ...     "pong", Path("networks"), steps=32, medium_steps=16, settings=tiny
        ... )  # doctest: +SKIP
        >>> medium.about["step"], expert.about["step"]  # doctest: +SKIP
        (16, 32)
    """
    s = settings or DQN()
    check_whole("medium_steps", medium_steps, 1, steps)
    first_seed("train", seed)  # refuses a wrong seed before anything is made
    state_folder = folder / f"{game}_training"
    state_folder.mkdir(parents=True, exist_ok=True)
    games = make(game, s.copies)
    about = {
        "game": game, "seed": seed, "settings": _digest_of_settings(s),
        "n_actions": games.n_actions,
    }  # fmt: skip
    report = progress or (lambda stage, share: None)
    try:
        trainer = Trainer(s, games.n_actions, seed, device)
        paths = {name: folder / f"{game}_{name}.npz" for name in ("medium", "expert")}
        if (state_folder / "state.npz").exists():
            trainer.load(state_folder, about)
            _refuse_past_networks(trainer, paths, {"medium": medium_steps, "expert": steps})
        while trainer.step < steps:
            _round(trainer, games, seed, lambda share: report(f"training on {game}", share), steps)
            if trainer.step >= medium_steps > trainer.step - s.round:
                _network(trainer, game).save(paths["medium"])
            if trainer.step >= steps:
                _network(trainer, game).save(paths["expert"])
            trainer.save(state_folder, about)
    finally:
        games.close()
    return QNetwork.load(paths["medium"]), QNetwork.load(paths["expert"])


def _refuse_past_networks(
    trainer: Trainer, paths: Mapping[str, Path], wanted: Mapping[str, int]
) -> None:
    """Refuse if a network asked for belongs to a past round and was not saved then.

    Args:
        trainer: The training that is continued.
        paths: Name of a network → its file.
        wanted: Name of a network → the number of steps asked for.

    Raises:
        PolicyError: Such a network is not in its file; training cannot go back to it.
    """
    for name, steps in wanted.items():
        due = -(-steps // trainer.settings.round) * trainer.settings.round
        if trainer.step < due:
            continue
        saved_step = QNetwork.load(paths[name]).about.get("step") if paths[name].exists() else None
        if saved_step != due:
            have = "missing" if saved_step is None else f"step {saved_step:,}"
            raise PolicyError(
                f"the training is at step {trainer.step:,} and holds no network of step {due:,}.",
                f"{paths[name].name}: {have}",
                "Ask for the steps it was kept at, or train anew in another folder.",
            )


def _digest_of_settings(s: DQN) -> str:
    """The first 16 hexadecimal digits of a SHA-256 of the settings."""
    return hashlib.sha256(json.dumps(asdict(s), sort_keys=True).encode()).hexdigest()[:16]


def _network(trainer: Trainer, game: str) -> QNetwork:
    """The network as it is now, with its game and step as facts."""
    return QNetwork(trainer.weights(), {"game": game, "step": trainer.step})


def _round(trainer: Trainer, games: Playable, seed: int, report: Any, steps: int) -> None:
    """Begin new games, play one round of steps, and do the updates that belong to them.

    Args:
        trainer: The network in training.
        games: The games to play in.
        seed: Seed of the training.
        report: Called with the share of all steps that is done.
        steps: Number of steps of the whole training.

    Raises:
        PlanError: The loss is not finite.
    """
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
        report(trainer.step / steps)
