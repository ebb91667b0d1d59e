r"""Q-networks, which play a game, and their files.

    4x84x84 → conv 32 of 8x8, stride 4 → 64 of 4x4, stride 2 → 64 of 3x3   (12800, 5184, 3136)
            → dense 512 → 64 → 16 → |A|

Every layer but the last is followed by a rectifier; pixels are divided by 255. A file is an npz
with the weights and biases of the layers c1..c3 and f1..f4, in 16 or 32 bits, and a JSON text
`meta`. No code in a file is ever run.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Ints, Singles
from dprl._core.disk import replacing
from dprl.errors import PolicyError
from dprl_studies.atari.games import optional

CONVOLUTIONS = {"c1": (32, 4, 8, 4), "c2": (64, 32, 4, 2), "c3": (64, 64, 3, 1)}
"""Convolution → number of filters, channels in, side of a filter, stride."""

FLAT = 3136
"""Number of outputs of the convolutions."""

HEAD = {"f1": 512, "f2": 64, "f3": 16}
"""Dense layer → its size; the last layer, f4, has one output per action."""

CHUNK = 256
"""Largest number of pictures that go through a network at once."""

Arrays = dict[str, NDArray[Any]]
"""Arrays by name."""


def shapes(sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shape of every weight and bias.

    Args:
        sizes: Name of a dense layer → its number of outputs, in their order after the convolutions.

    Returns:
        Name of a weight or bias → its shape.

    Example:
        >>> shapes({"f1": 512})["f1.weight"]
        (512, 3136)
    """
    shape_of: dict[str, tuple[int, ...]] = {}
    for name, (filters, channels, side, _) in CONVOLUTIONS.items():
        shape_of[f"{name}.weight"] = (filters, channels, side, side)
        shape_of[f"{name}.bias"] = (filters,)
    inputs = FLAT
    for name, size in sizes.items():
        shape_of[f"{name}.weight"], shape_of[f"{name}.bias"] = (size, inputs), (size,)
        inputs = size
    return shape_of


def first_weights(rng: np.random.Generator, sizes: Mapping[str, int]) -> Arrays:
    """Random weights and biases, uniform within ±1/√(number of inputs of the layer).

    Args:
        rng: The random generator.
        sizes: Name of a dense layer → its number of outputs, in their order after the convolutions.

    Returns:
        Name of a weight or bias → float32 array.

    Example:
        >>> first_weights(np.random.default_rng(0), {"f1": 512})["f1.bias"].shape
        (512,)
    """
    all_shapes, weights = shapes(sizes), {}
    for name, shape in all_shapes.items():
        inputs = np.prod(all_shapes[name.split(".")[0] + ".weight"][1:])
        weights[name] = (rng.uniform(-1, 1, shape) / np.sqrt(inputs)).astype(np.float32)
    return weights


def convolved(torch: Any, w: Mapping[str, Any], x: Any) -> Any:
    """Apply the convolutions.

    Args:
        torch: The module torch.
        w: Weights and biases by name, as tensors.
        x: Tensor (k, 4, 84, 84), the pictures.

    Returns:
        Tensor (k, 3136).

    Example:
        >>> torch, w = QNetwork.random(3, seed=0).ready  # doctest: +SKIP
        >>> convolved(torch, w, torch.zeros((2, 4, 84, 84))).shape  # doctest: +SKIP
        torch.Size([2, 3136])
    """
    for name, (_, _, _, stride) in CONVOLUTIONS.items():
        x = torch.relu(
            torch.nn.functional.conv2d(x, w[f"{name}.weight"], w[f"{name}.bias"], stride)
        )
    return x.flatten(1)


def dense(torch: Any, w: Mapping[str, Any], name: str, x: Any) -> Any:
    """Apply one affine layer.

    Args:
        torch: The module torch.
        w: Weights and biases by name, as tensors.
        name: Name of the layer.
        x: Tensor (k, inputs).

    Returns:
        Tensor (k, outputs).

    Example:
        >>> torch, w = QNetwork.random(3, seed=0).ready  # doctest: +SKIP
        >>> dense(torch, w, "f4", torch.zeros((2, 16))).shape  # doctest: +SKIP
        torch.Size([2, 3])
    """
    return torch.nn.functional.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])


def q_values(torch: Any, w: Mapping[str, Any], x: Any) -> Any:
    """The action values Q, tensor (k, A), of pictures x, tensor (k, 4, 84, 84) in [0, 1]."""
    x = convolved(torch, w, x)
    for name in HEAD:
        x = torch.relu(dense(torch, w, name, x))
    return dense(torch, w, "f4", x)


@dataclass(frozen=True, eq=False)
class Network:
    """What the networks of the study share: weights, facts about them, and files of both.

    Attributes:
        weights: Name of a weight or bias → float32 array.
        about: Facts about the network by name.
    """

    weights: Mapping[str, Singles]
    about: Mapping[str, Any]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a network from a file.

        Args:
            path: An npz file that `save` wrote; 16-bit weights become 32-bit ones.

        Returns:
            The network.

        Raises:
            PolicyError: There is no such file, or it holds no network of this kind.

        Example:
            >>> QNetwork.random(3, seed=0).save("pong_expert.npz")
            >>> QNetwork.load("pong_expert.npz").n_actions
            3
        """
        arrays, about = read_arrays(path)
        return cls({k: v.astype(np.float32) for k, v in arrays.items()}, about)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network to a file; an old file is replaced only when the new one is complete.

        Args:
            path: The npz file.

        Example:
            >>> QNetwork.random(3, seed=0).save("pong_expert.npz")
        """
        write_arrays(path, dict(self.weights), self.about)

    def digest(self) -> str:
        """The SHA-256 of the weights; their order does not matter.

        Returns:
            64 hexadecimal digits.

        Example:
            >>> one, other = QNetwork.random(3, seed=0), QNetwork.random(3, seed=1)
            >>> one.digest() == other.digest()
            False
        """
        total = hashlib.sha256()
        for name in sorted(self.weights):
            total.update(name.encode() + np.ascontiguousarray(self.weights[name]).tobytes())
        return total.hexdigest()

    @functools.cached_property
    def ready(self) -> tuple[Any, dict[str, Any]]:
        """The module torch, set to one thread, and the weights as tensors; made once."""
        torch = optional("torch", "torch")
        torch.set_num_threads(1)
        return torch, {k: torch.tensor(np.asarray(v)) for k, v in self.weights.items()}

    def through(
        self, seen: NDArray[np.uint8], out: NDArray[Any], run: Callable[[Any], Any]
    ) -> NDArray[Any]:
        """What `run` makes of pictures, which are given to it in chunks.

        Args:
            seen: uint8 (k, 4, 84, 84), the pictures.
            out: An array (k, ...), to be filled.
            run: A function: a tensor of some pictures → a tensor with a row for each of them.

        Returns:
            `out`.

        Example:
            >>> network, seen = QNetwork.random(3, seed=0), np.ones((2, 4, 84, 84), np.uint8)
            >>> network.through(seen, np.zeros(2), lambda x: x[:, 0, 0, 0])  # doctest: +SKIP
            array([1., 1.])
        """
        torch, _ = self.ready
        with torch.no_grad():
            for i in range(0, len(seen), CHUNK):
                x = torch.from_numpy(np.ascontiguousarray(seen[i : i + CHUNK]))
                out[i : i + CHUNK] = run(x).numpy()
        return out


@dataclass(frozen=True, eq=False)
class QNetwork(Network):
    """A network that plays one game by taking the action with the highest value; immutable.

    Attributes:
        weights: Name of a weight or bias → float32 array.
        about: Facts about the network by name, such as its game and the steps of its training.

    Raises:
        PolicyError: A weight is missing, has the wrong shape or is not finite.

    Example:
        >>> network = QNetwork.random(6, seed=0, game="pong")
        >>> network.n_actions, network.about["game"]
        (6, 'pong')
    """

    def __post_init__(self) -> None:
        last = np.asarray(self.weights.get("f4.bias", np.zeros(0)))
        wanted = shapes({**HEAD, "f4": last.size})
        for name, shape in wanted.items():
            weight = self.weights.get(name)
            if weight is None or weight.shape != shape or not last.size:
                have = "missing" if weight is None else f"of shape {weight.shape}"
                raise PolicyError(f"this is no Q-network: {name} is {have}, wanted {shape}.")
            if not np.isfinite(weight).all():
                raise PolicyError(
                    f"this is no Q-network: {name} holds a number that is not finite."
                )

    @property
    def n_actions(self) -> int:
        """Number of actions."""
        return len(self.weights["f4.bias"])

    @classmethod
    def random(cls, n_actions: int, seed: int, **about: Any) -> QNetwork:
        """A network with random weights, which has learned nothing.

        Args:
            n_actions: Number of actions.
            seed: Seed of the weights.
            **about: Facts about the network, such as game="pong".

        Returns:
            The network; its facts say that it is untrained.

        Example:
            >>> QNetwork.random(3, seed=0).about
            {'untrained': True}
        """
        rng = np.random.default_rng(seed)
        return cls(first_weights(rng, {**HEAD, "f4": n_actions}), {"untrained": True, **about})

    def values(self, seen: NDArray[np.uint8]) -> Singles:
        """The action values Q; needs torch.

        Args:
            seen: uint8 (k, 4, 84, 84), the pictures.

        Returns:
            float32 (k, A), the value of each action at each picture.

        Example:
            >>> network = QNetwork.random(3, seed=0)
            >>> network.values(np.zeros((2, 4, 84, 84), np.uint8)).shape  # doctest: +SKIP
            (2, 3)
        """
        torch, w = self.ready
        Q = np.empty((len(seen), self.n_actions), np.float32)
        return self.through(seen, Q, lambda x: q_values(torch, w, x.float() / 255))

    def actions(self, seen: NDArray[np.uint8]) -> Ints:
        """The action with the highest value; needs torch.

        Args:
            seen: uint8 (k, 4, 84, 84), the pictures.

        Returns:
            int64 (k,), the action at each picture; the lowest among equals.

        Example:
            >>> network = QNetwork.random(3, seed=0)
            >>> network.actions(np.zeros((2, 4, 84, 84), np.uint8))  # doctest: +SKIP
            array([1, 1])
        """
        return np.asarray(self.values(seen).argmax(axis=1))


def write_arrays(
    path: str | os.PathLike[str],
    arrays: Arrays,
    about: Mapping[str, Any],
    *,
    packed: bool = False,
) -> None:
    """Write arrays and facts about them to an npz file.

    An old file is replaced only when the new one is complete.

    Args:
        path: The npz file.
        arrays: The arrays by name; no name may be "meta".
        about: Facts by name, values that JSON can carry.
        packed: Whether to compress. Default False.

    Example:
        >>> write_arrays("numbers.npz", {"x": np.arange(3)}, {"unit": "mm"})
        >>> arrays, about = read_arrays("numbers.npz")
        >>> arrays["x"].tolist(), about
        ([0, 1, 2], {'unit': 'mm'})
    """
    text = np.array(json.dumps(dict(about), sort_keys=True))
    save: Any = np.savez_compressed if packed else np.savez
    with replacing(path) as part, part.open("wb") as stream:
        save(stream, meta=text, **arrays)


def read_arrays(path: str | os.PathLike[str]) -> tuple[Arrays, dict[str, Any]]:
    """Read a file that `write_arrays` wrote.

    Args:
        path: The npz file.

    Returns:
        The arrays by name, and the facts about them.

    Raises:
        PolicyError: There is no such file, or it is no npz of plain arrays.

    Example:
        >>> write_arrays("numbers.npz", {"x": np.arange(3)}, {"unit": "mm"})
        >>> read_arrays("numbers.npz")[1]
        {'unit': 'mm'}
    """
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
