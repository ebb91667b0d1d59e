r"""Q-networks: what plays, and how it is kept.

    4x84x84 → conv 32 of 8x8, stride 4 → 64 of 4x4, stride 2 → 64 of 3x3   (12800, 5184, 3136)
            → dense 512 → 64 → 16 → |A|,  rectified but for the last; pixels are divided by 255

A file is an npz of c1..c3 and f1..f4, weight and bias, in 16 or 32 bits, and a JSON text `meta`.
Nothing in it is executed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.disk import replacing
from dprl.errors import PolicyError
from dprl.studies.atari.games import optional

__all__ = ["QNetwork", "convolved", "dense", "digest_of", "first_weights", "on_torch",
           "read_arrays", "write_arrays"]  # fmt: skip

CONVOLUTIONS = {"c1": (32, 4, 8, 4), "c2": (64, 32, 4, 2), "c3": (64, 64, 3, 1)}
"""Layer → filters, channels in, side, stride."""

FLAT = 3136
HEAD = {"f1": 512, "f2": 64, "f3": 16}
CHUNK = 256
"""Pictures looked at together, at most."""

Arrays = dict[str, NDArray[Any]]


def shapes(sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shape of every weight of the convolutions and of dense layers of these sizes."""
    found: dict[str, tuple[int, ...]] = {}
    for name, (filters, channels, side, _) in CONVOLUTIONS.items():
        found[f"{name}.weight"], found[f"{name}.bias"] = (filters, channels, side, side), (filters,)
    inputs = FLAT
    for name, size in sizes.items():
        found[f"{name}.weight"], found[f"{name}.bias"] = (size, inputs), (size,)
        inputs = size
    return found


def first_weights(rng: np.random.Generator, sizes: Mapping[str, int]) -> Arrays:
    """Weights and biases, uniform within 1/√(inputs)."""
    all_shapes, found = shapes(sizes), {}
    for name, shape in all_shapes.items():
        inputs = np.prod(all_shapes[name.split(".")[0] + ".weight"][1:])
        found[name] = (rng.uniform(-1, 1, shape) / np.sqrt(inputs)).astype(np.float32)
    return found


def convolved(torch: Any, w: Mapping[str, Any], x: Any) -> Any:
    """What the convolutions make of pictures x (k, 4, 84, 84): (k, 3136)."""
    for name, (_, _, _, stride) in CONVOLUTIONS.items():
        x = torch.relu(
            torch.nn.functional.conv2d(x, w[f"{name}.weight"], w[f"{name}.bias"], stride)
        )
    return x.flatten(1)


def dense(torch: Any, w: Mapping[str, Any], name: str, x: Any) -> Any:
    """One affine layer."""
    return torch.nn.functional.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])


def q_values(torch: Any, w: Mapping[str, Any], x: Any) -> Any:
    """Q (k, A) of pictures x (k, 4, 84, 84) in [0, 1]."""
    x = convolved(torch, w, x)
    for name in HEAD:
        x = torch.relu(dense(torch, w, name, x))
    return dense(torch, w, "f4", x)


@dataclass(frozen=True, eq=False)
class QNetwork:
    """A network that plays one game greedily; immutable.

    Attributes:
        weights: float32 arrays by name.
        about: What is known of it: game, steps it was trained for, scores.
    """

    weights: Mapping[str, NDArray[np.float32]]
    about: Mapping[str, Any]

    def __post_init__(self) -> None:
        last = np.asarray(self.weights.get("f4.bias", np.zeros(0)))
        wanted = shapes({**HEAD, "f4": last.size})
        for name, shape in wanted.items():
            found = self.weights.get(name)
            if found is None or found.shape != shape or not last.size:
                have = "missing" if found is None else f"of shape {found.shape}"
                raise PolicyError(f"this is no Q-network: {name} is {have}, wanted {shape}.")
            if not np.isfinite(found).all():
                raise PolicyError(
                    f"this is no Q-network: {name} holds a number that is not finite."
                )

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self.weights["f4.bias"])

    @classmethod
    def random(cls, n_actions: int, seed: int, **about: Any) -> QNetwork:
        """A network that has learned nothing."""
        rng = np.random.default_rng(seed)
        return cls(first_weights(rng, {**HEAD, "f4": n_actions}), {"untrained": True, **about})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> QNetwork:
        """Read a network; 16-bit weights are taken as 32-bit ones."""
        arrays, about = read_arrays(path)
        return cls({k: v.astype(np.float32) for k, v in arrays.items()}, about)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it, whole or not at all."""
        write_arrays(path, dict(self.weights), dict(self.about))

    def digest(self) -> str:
        """SHA-256 of the weights."""
        return digest_of(self.weights)

    @functools.cached_property
    def _ready(self) -> tuple[Any, dict[str, Any]]:
        return on_torch(self.weights)

    def values(self, seen: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Q, float32 (k, A), of pictures (k, 4, 84, 84)."""
        torch, w = self._ready
        found = np.empty((len(seen), self.n_actions), np.float32)
        with torch.no_grad():
            for i in range(0, len(seen), CHUNK):
                x = torch.from_numpy(np.ascontiguousarray(seen[i : i + CHUNK])).float() / 255
                found[i : i + CHUNK] = q_values(torch, w, x).numpy()
        return found

    def actions(self, seen: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The best action for each picture, the first of equals."""
        return np.asarray(self.values(seen).argmax(axis=1))


def write_arrays(
    path: str | os.PathLike[str],
    arrays: Arrays,
    about: Mapping[str, Any],
    *,
    packed: bool = False,
) -> None:
    """Arrays and a JSON text in one npz, whole or not at all; packed where that helps."""
    text = np.array(json.dumps(dict(about), sort_keys=True))
    save: Any = np.savez_compressed if packed else np.savez
    with replacing(path) as part, part.open("wb") as stream:
        save(stream, meta=text, **arrays)


def digest_of(weights: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of named weights."""
    total = hashlib.sha256()
    for name in sorted(weights):
        total.update(name.encode() + np.ascontiguousarray(weights[name]).tobytes())
    return total.hexdigest()


def on_torch(weights: Mapping[str, NDArray[Any]]) -> tuple[Any, dict[str, Any]]:
    """torch, kept to one thread, and the weights as its tensors."""
    torch = optional("torch", "torch")
    torch.set_num_threads(1)
    return torch, {k: torch.tensor(np.asarray(v)) for k, v in weights.items()}


def read_arrays(path: str | os.PathLike[str]) -> tuple[Arrays, dict[str, Any]]:
    """What `write_arrays` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(str(arrays.pop("meta"))) if "meta" in arrays else {}
    except FileNotFoundError:
        raise PolicyError(f"there is no file {os.fspath(path)!r}.") from None
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, AttributeError) as error:
        raise PolicyError(
            f"{os.fspath(path)!r} cannot be read as an npz of plain arrays.", str(error)
        ) from error
    if not isinstance(about, dict):
        raise PolicyError(f"{os.fspath(path)!r} says nothing of itself that is understood.")
    return arrays, about
