"""Functions of a log with its cut episodes treated, as statistics (see `dprl.logs.source`).

`OfTreated` puts the values of chunks together by a merge that is exact. What must stay in the order
of the log, because it is added up in that order, or drawn for one group after another, is gathered
with `columns_in_order`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut
from dprl.logs.log import Log
from dprl.logs.source import Chunk, Source

__all__ = ["OfTreated", "columns_in_order", "in_order"]

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class OfTreated(Generic[T]):
    """A function of the treated log of every chunk, gathered; values are put together by `join`.

    Attributes:
        make: Called with the log of a chunk and with `given`; an importable function.
        given: Further arguments of `make`.
        join: Called with two values; exact, whatever the order; an importable function.
        cut: What is done with cut episodes. Default None: there are none.
        gamma: Discount per step. Default 1.
    """

    make: Callable[..., T]
    given: tuple[Any, ...]
    join: Callable[[T, T], T]
    cut: Cut | None = None
    gamma: float = 1.0

    def of(self, chunk: Chunk) -> T | None:
        """The value for one chunk."""
        log = chunk.treated(self.cut, self.gamma)
        return None if log is None else self.make(log, *self.given)

    def merge(self, one: T, other: T) -> T:
        """The value for two chunks together."""
        return self.join(one, other)


@dataclass(frozen=True, eq=False)
class _ByChunk(Generic[T]):
    """First group of a chunk → what a function makes of the chunk and its treated log."""

    make: Callable[..., T]
    given: tuple[Any, ...]
    cut: Cut | None
    gamma: float

    def of(self, chunk: Chunk) -> dict[int, T] | None:
        log = chunk.treated(self.cut, self.gamma)
        return None if log is None else {chunk.first_group: self.make(chunk, log, *self.given)}

    def merge(self, one: dict[int, T], other: dict[int, T]) -> dict[int, T]:
        return one | other


def in_order(
    source: Source | Log,
    make: Callable[..., T],
    *given: Any,
    cut: Cut | None = None,
    gamma: float = 1.0,
) -> list[T]:
    """What a function makes of every chunk, in the order of the log.

    Args:
        source: The log, wherever its rows are.
        make: Called with a chunk, its treated and gathered log, and `given`; an importable
            function.
        *given: Further arguments of `make`.
        cut: What is done with cut episodes. Default None: there are none.
        gamma: Discount per step. Default 1.
    """
    by_chunk = source.reduce(_ByChunk(make, given, cut, gamma))
    return [by_chunk[first] for first in sorted(by_chunk)]


def columns_in_order(
    source: Source | Log,
    make: Callable[..., tuple[NDArray[Any], ...]],
    *given: Any,
    cut: Cut | None = None,
    gamma: float = 1.0,
) -> tuple[NDArray[Any], ...]:
    """The columns that a function makes of every chunk, put end to end in the order of the log.

    Arguments are those of `in_order`; `make` returns arrays, as many for every chunk.
    """
    parts = in_order(source, make, *given, cut=cut, gamma=gamma)
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
