r"""The representation: sixteen numbers for what is on the screen.

    (picture - mean picture) / deviation → the convolutions of a Q-network → dense 512, rectified
        → dense 16·|A| → layer norm → tanh:   φ(s, a) in (-1, 1)^16,   φ(s) = mean over a of φ(s, a)

Centring and scaling decide whether an encoder learns at all. What it is trained for, the paper does
not say; offered are

    return             φ(s, a) → G, the return that followed                       (squared error)
    return+dynamics    the same, and φ(s, a) → φ(s')           (+ squared error to a fixed target)
    inverse+cloning    φ(s), φ(s') → a, and φ(s) → a                          (two cross entropies)

with G standardised, φ(s) as above, each head affine (the inverse one with 64 rectified units
between). `dprl.studies.atari.compare_objectives` measures whose neighbours agree in value.
Objectives that see returns must not share games with the learners: fit on some games, learn from
the others.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_whole
from dprl.errors import ParameterError, PlanError, PolicyError
from dprl.logs._files import Progress
from dprl.logs.returns import returns
from dprl.studies.atari.collecting import Collection, Frames
from dprl.studies.atari.games import optional
from dprl.studies.atari.networks import (
    CHUNK,
    Arrays,
    convolved,
    dense,
    digest_of,
    first_weights,
    on_torch,
    read_arrays,
    shapes,
    write_arrays,
)

__all__ = ["OBJECTIVES", "Encoder", "encode"]

SIZE, HIDDEN = 16, 64
OBJECTIVES = ("return", "return+dynamics", "inverse+cloning")


def embedded(torch: Any, w: Mapping[str, Any], seen: Any, n_actions: int) -> Any:
    """φ (k, A, 16) of pictures (k, 4, 84, 84) in 0..255."""
    x = (seen.float() - w["mean"]) / w["deviation"]
    x = torch.relu(dense(torch, w, "e1", convolved(torch, w, x)))
    x = dense(torch, w, "e2", x)
    x = torch.nn.functional.layer_norm(x, x.shape[1:], w["norm.weight"], w["norm.bias"])
    return torch.tanh(x).reshape(-1, n_actions, SIZE)


@dataclass(frozen=True, eq=False)
class Encoder:
    """Pictures → points; immutable.

    Attributes:
        weights: float32 arrays by name.
        about: Objective, settings, last losses.
    """

    weights: Mapping[str, NDArray[np.float32]]
    about: Mapping[str, Any]

    def __post_init__(self) -> None:
        A = len(np.asarray(self.weights.get("norm.bias", ()))) // SIZE
        wanted = {**shapes({"e1": 512, "e2": SIZE * A}), "mean": (84, 84), "deviation": ()}
        for name, shape in wanted.items():
            found = self.weights.get(name)
            if found is None or np.shape(found) != shape or not A or not np.isfinite(found).all():
                raise PolicyError(f"this is no encoder: {name!r} is missing or not {shape}.")

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.weights["norm.bias"]) // SIZE

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Encoder:
        """Read an encoder."""
        return cls(*read_arrays(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it, whole or not at all."""
        write_arrays(path, dict(self.weights), self.about)

    def digest(self) -> str:
        """SHA-256 of the weights."""
        return digest_of(self.weights)

    @functools.cached_property
    def _ready(self) -> tuple[Any, dict[str, Any]]:
        return on_torch(self.weights)

    def pairs(self, seen: NDArray[np.uint8]) -> NDArray[np.float64]:
        """φ(s, a), float64 (k, A, 16), of pictures (k, 4, 84, 84)."""
        torch, w = self._ready
        found = np.empty((len(seen), self.n_actions, SIZE))
        with torch.no_grad():
            for i in range(0, len(seen), CHUNK):
                x = torch.from_numpy(np.ascontiguousarray(seen[i : i + CHUNK]))
                found[i : i + CHUNK] = embedded(torch, w, x, self.n_actions).numpy()
        return found

    def states(self, seen: NDArray[np.uint8]) -> NDArray[np.float64]:
        """φ(s), float64 (k, 16): what neighbours are sought in."""
        return np.asarray(self.pairs(seen).mean(axis=1))

    def points(self, frames: Frames, progress: Progress | None = None) -> NDArray[np.float64]:
        """φ(s) of every sample, float64 (N, 16)."""
        found = np.empty((len(frames), SIZE))
        for i in range(0, len(frames), CHUNK):
            some = np.arange(i, min(i + CHUNK, len(frames)))
            found[some] = self.states(frames.stacks(some))
            if progress is not None:
                progress("encoding", (i + len(some)) / len(frames))
        return found


def encode(
    collection: Collection,
    frames: Frames,
    *,
    objective: str = "inverse+cloning",
    games: NDArray[np.bool_] | None = None,
    gamma: float = 0.99,
    epochs: int = 5,
    batch: int = 128,
    learning_rate: float = 3e-4,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Encoder:
    """Fit the representation.

    Args:
        collection: What was done, and what came of it.
        frames: Its pictures.
        objective: One of `OBJECTIVES`.
        games: bool (number of games,), which to learn from; all by default.
        gamma: Discount of the returns.
        epochs: As many samples as so many passes, drawn with replacement.
        batch: Samples a step.
        learning_rate: Learning rate of Adam.
        seed: Seed of the first weights and the batches.
        device: "cpu" or "cuda".
        progress: Called with the stage's name and the share of it that is done.
    """
    if objective not in OBJECTIVES:
        raise ParameterError(
            f"there is no objective {objective!r}.", do=f"Objectives: {', '.join(OBJECTIVES)}."
        )
    epochs, batch = check_whole("epochs", epochs, 1), check_whole("batch", batch, 1)
    torch = optional("torch", "torch")
    torch.set_num_threads(1)
    A, rng = int(collection.about["n_actions"]), np.random.default_rng(seed)
    keep = np.ones(len(frames), bool) if games is None else games[collection.games]
    rows = np.flatnonzero(keep)
    G = returns(collection.log(np.zeros((len(frames), 1))), gamma)
    G = (G - G[rows].mean()) / max(float(G[rows].std()), 1e-6)
    action = collection.column("action").astype(np.int64)
    fixed = _scaling(frames, rows, rng)
    first = {**first_weights(rng, {"e1": 512, "e2": SIZE * A}), **_heads(rng, A)}
    first["norm.weight"] = np.ones(SIZE * A, np.float32)
    first["norm.bias"] = np.zeros(SIZE * A, np.float32)
    w = {k: torch.tensor(v, device=device, requires_grad=True) for k, v in first.items()}
    still = {k: torch.tensor(v, device=device) for k, v in fixed.items()}
    adam = torch.optim.Adam(list(w.values()), lr=learning_rate)
    steps, losses = max(1, epochs * len(rows) // batch), []
    for step in range(steps):
        i = rng.choice(rows, batch)
        pictures = [  # channels last: a third faster on processors
            torch.from_numpy(frames.stacks(i, k)).to(device, memory_format=torch.channels_last)
            for k in (0, 1)
        ]
        rest = [torch.from_numpy(x).to(device) for x in (action[i], G[i].astype(np.float32))]
        loss = _loss(torch, {**w, **still}, objective, A, *pictures, *rest)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()))
        if progress is not None:
            progress(f"fitting {objective}", (step + 1) / steps)
    if not np.isfinite(losses).all():
        raise PlanError(
            f"the encoder's loss was not finite after {steps:,} steps.",
            do="Use a smaller learning_rate.",
        )
    few = max(1, min(20, steps // 4))
    kept = {k: v.detach().cpu().numpy().copy() for k, v in w.items() if not k.startswith("head")}
    about = {
        "objective": objective, "gamma": gamma, "epochs": epochs, "batch": batch, "seed": seed,
        "learning_rate": learning_rate, "samples": len(rows), "game": collection.about["game"],
        "first_loss": float(np.mean(losses[:few])), "last_loss": float(np.mean(losses[-few:])),
    }  # fmt: skip
    return Encoder({**kept, **fixed}, about)


def _scaling(frames: Frames, rows: NDArray[np.int64], rng: np.random.Generator) -> Arrays:
    """The mean picture, (84, 84), and the deviation from it, of up to 4,000 samples."""
    some = rng.choice(rows, min(len(rows), 4_000), replace=False)
    pictures = frames.pixels[frames.copy[some], frames.step[some]].astype(np.float32)
    mean = pictures.mean(axis=0)
    return {"mean": mean, "deviation": np.float32(max(1.0, float((pictures - mean).std())))}


def _heads(rng: np.random.Generator, A: int) -> Arrays:
    """What the objectives put on top; thrown away afterwards."""
    sizes = {
        "return": (1, SIZE), "next": (SIZE, SIZE), "clone": (A, SIZE),
        "pair": (HIDDEN, 2 * SIZE), "inverse": (A, HIDDEN),
    }  # fmt: skip
    found: Arrays = {}
    for name, (out, inputs) in sizes.items():
        bound = 1 / np.sqrt(inputs)
        found[f"head-{name}.weight"] = rng.uniform(-bound, bound, (out, inputs)).astype(np.float32)
        found[f"head-{name}.bias"] = np.zeros(out, np.float32)
    return found


def _loss(
    torch: Any, w: Mapping[str, Any], objective: str, A: int, seen: Any, ahead: Any, a: Any, G: Any
) -> Any:
    f = torch.nn.functional
    here = embedded(torch, w, seen, A)
    if objective == "inverse+cloning":
        both = torch.cat([here.mean(1), embedded(torch, w, ahead, A).mean(1)], dim=1)
        inverse = dense(torch, w, "head-inverse", torch.relu(dense(torch, w, "head-pair", both)))
        clone = dense(torch, w, "head-clone", here.mean(1))
        return f.cross_entropy(inverse, a) + f.cross_entropy(clone, a)
    taken = here[torch.arange(len(a), device=a.device), a]
    loss = f.mse_loss(dense(torch, w, "head-return", taken)[:, 0], G)
    if objective == "return+dynamics":
        with torch.no_grad():
            there = embedded(torch, w, ahead, A).mean(1)
        loss = loss + f.mse_loss(dense(torch, w, "head-next", taken), there)
    return loss
