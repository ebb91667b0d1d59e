"""The bootstrap: groups drawn with replacement, and the percentiles of what they give.

Every bootstrap of this package draws here, so a seed means the same everywhere. What is drawn is a
whole group (a value, a trajectory, a patient), and the numbers depend on the seed and on how many
groups there are alone, not on how many draws are held at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats, Ints
from dprl._core.compiled import compiled

ROOM = 1 << 24
"""Counts held at a time, unless `AT_LEAST` draws need more."""
AT_ONCE = 1 << 14
"""Groups chosen at a time: in larger arrays most of the time goes into getting new memory."""
AT_LEAST = 8
"""Draws held at a time, however many groups there are: users take several in one go."""


def _picks(
    rng: np.random.Generator, n: int, draws: int, kind: type[np.integer[Any]] = np.int64
) -> NDArray[Any]:
    """For each draw n of n groups, with replacement, (draws, n); the same whatever the kind."""
    return rng.integers(n, size=(draws, n), dtype=kind)


def picks(n: int, draws: int, seed: int, strata: Sequence[Ints] | None = None) -> Ints:
    """The groups of each draw, int64 (draws, n).

    Args:
        n: Groups there are.
        draws: How many resamples.
        seed: Seed of the random numbers.
        strata: Numbers of the groups of each stratum; groups are replaced by groups of their own
            stratum. By default they are all of one.
    """
    rng = np.random.default_rng(seed)
    if strata is None:
        return _picks(rng, n, draws)
    chosen = np.empty((draws, n), np.int64)
    for members in strata:
        chosen[:, members] = members[_picks(rng, len(members), draws)]
    return chosen


@compiled
def _tally(chosen: NDArray[Any], counts: NDArray[Any]) -> None:  # pragma: no cover - compiled
    """Add to counts (some, n) how often each group was chosen (some, k)."""
    for row in range(len(chosen)):
        for group in chosen[row]:
            counts[row, group] += 1


def counts(
    n: int,
    draws: int,
    seed: int,
    after: int = 0,
    *,
    kind: type[Any] = np.float64,
    together: int = AT_LEAST,
) -> Iterator[NDArray[Any]]:
    """How often each group is drawn, (some, n) at a time; `draws` rows in all.

    The next rows are drawn on a thread of their own while these are being used, and then take
    their place: copy what is needed for longer than until the next rows are asked for.

    Args:
        n: Groups there are.
        draws: How many resamples.
        seed: Seed of the random numbers.
        after: How many first rows are left out, as another process has them: the rows that follow
            do not depend on it.
        kind: Type of the counts. In 16 bits they take the least time; that a group is drawn 65,536
            times or more in one draw has a probability below 1e-280,000.
        together: How many draws are held at a time at least; more are a multiple of it.
    """
    rng = np.random.default_rng(seed)
    picked = np.uint32 if n < 2**32 else np.int64
    for _ in range(after):
        _picks(rng, n, 1, picked)
    at_once = max(1, ROOM // n // together) * together
    rooms = [np.empty((min(at_once, draws), n), kind) for _ in range(1 + (draws > at_once))]
    some_rows = max(1, AT_ONCE // n)

    def block(begin: int) -> NDArray[Any]:
        some: NDArray[Any] = rooms[begin // at_once % 2][: draws - begin]
        some[:] = 0
        for first in range(0, len(some), some_rows):
            rows = some[first : first + some_rows]
            for of_row in range(0, n, AT_ONCE):
                size = (len(rows), min(AT_ONCE, n - of_row))
                _tally(rng.integers(n, size=size, dtype=picked), rows)
        return some

    if draws <= at_once:
        yield block(0)
        return
    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(block, 0)
        for begin in range(at_once, draws, at_once):
            now, coming = coming.result(), ahead.submit(block, begin)
            yield now
        yield coming.result()


def percentiles(draws: Floats, level: float) -> tuple[float, float]:
    """The ends of the middle `level` of what was drawn (draws,)."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
