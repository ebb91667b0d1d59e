"""What a worker of a cluster does: read a part, apply a job to it, merge results.

A worker works on one part at a time, whatever its number of threads: a part is as large as a
process may hold, and a job uses several threads by itself. What a job warns about travels back with
its result, so that it is shown where the user is.
"""

from __future__ import annotations

import pickle
import platform
import threading
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dprl._core.source import source_digest
from dprl._core.version import __version__
from dprl.errors import ClusterError, DprlError, LogError

__all__ = ["Answer", "Stamp", "apply", "call", "join", "stamp", "unpack"]

_ONE_AT_A_TIME = threading.Lock()

Stamp = tuple[tuple[str, str], ...]
"""The versions that decide about the bits of a result, by name."""


@dataclass(frozen=True)
class Answer:
    """A result and the warnings that came with it, each once.

    Attributes:
        result: What the job returned.
        warned: Category and text of each warning, in the order of the parts.
        size: Bytes of the result: Dask asks for it to spread work and to watch its memory.
    """

    result: Any
    warned: tuple[tuple[type[Warning], str], ...] = ()
    size: int = 0

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.size


def _answer(result: Any, warned: Iterable[tuple[type[Warning], str]]) -> Answer:
    """An answer with its size; arrays are not copied to measure them."""
    outside: list[int] = []
    inside = pickle.dumps(result, 5, buffer_callback=lambda b: outside.append(b.raw().nbytes))
    return Answer(result, tuple(dict.fromkeys(warned)), len(inside) + sum(outside))


def stamp() -> Stamp:
    """The versions of this process that decide about the bits of a result."""
    import duckdb
    import numba
    import scipy

    return (
        ("dprl", __version__),
        ("source of dprl", source_digest()[:16]),
        ("numpy", np.__version__),
        ("scipy", scipy.__version__),
        ("numba", numba.__version__),
        ("duckdb", duckdb.__version__),
    )


def _check(expected: Stamp) -> None:
    """Refuse to work with other code than the process that asks: the answer could be another."""
    own = dict(stamp())
    for name, version in expected:
        if own.get(name) != version:
            raise ClusterError(
                f"a worker has {name} {own.get(name)}, and this process has {version}: results "
                "could differ.",
                f"the worker on {platform.node()}",
                "Install the same versions on all workers, and start them again.",
            )


def unpack(packed: bytes) -> Any:
    """What was pickled for the workers."""
    return pickle.loads(packed)


def _read(source: Any, name: str) -> Any:
    """The log of a part; what cannot be read is named."""
    try:
        return source.read()
    except DprlError as error:
        where = f"{name}: {error.where}" if error.where else name
        raise type(error)(error.what, where, error.do) from error
    except MemoryError:
        raise
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise LogError(
            f"{name} cannot be read.",
            f"{type(error).__name__}: {first}",
            "Is the file whole, and do all workers see the same files under the same paths?",
        ) from error


def _alone(function: Callable[[], Any]) -> Answer:
    """The result of a function and what it warned about; other threads of this worker wait."""
    with _ONE_AT_A_TIME, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function()
    return _answer(result, ((w.category, str(w.message)) for w in caught))


def apply(
    expected: Stamp, source: Any, name: str, job: Callable[..., Any], shared: tuple[Any, ...]
) -> Answer:
    """A job applied to the log of one part.

    Args:
        expected: The versions of the process that asks.
        source: Where the part comes from, pickled or as it is.
        name: The part in words, for errors.
        job: Called with the log of the part and the shared values.
        shared: Values that every call gets.
    """
    _check(expected)

    def work() -> Any:
        return job(_read(unpack(source) if isinstance(source, bytes) else source, name), *shared)

    return _alone(work)


def call(expected: Stamp, function: Callable[..., Any], task: bytes, shared: Any) -> Answer:
    """A function applied to one task of many."""
    _check(expected)
    return _alone(lambda: function(unpack(task), *shared))


def join(merge: Callable[[Any, Any], Any], *answers: Answer) -> Answer:
    """Some answers merged, in their order; a result of None has nothing to add."""
    total = None
    for answer in answers:
        if answer.result is not None:
            total = answer.result if total is None else merge(total, answer.result)
    return _answer(total, (w for answer in answers for w in answer.warned))
