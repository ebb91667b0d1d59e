"""How hot loops run: compiled once, cached on disk, without the interpreter's lock, in parts.

Kernels work on flat arrays and add integers wherever the order of a sum could matter, so threads
and chunks cannot change a result. `kernel.py_func` is the same function, not compiled; with
NUMBA_DISABLE_JIT=1 in the environment every kernel is that function, so that a debugger and a
measurement of coverage see its lines.

Every kernel is listed in `KERNELS` as it is made, so that the tests can compare each of them with
its Python source and none is forgotten.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.cgutils import true_bit
from numba.extending import intrinsic, overload

from dprl._core.arrays import Ints

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

WORTH_A_THREAD = 200_000
"""With fewer rows than this, a second thread costs more time than it saves."""


KERNELS: dict[str, Any] = {}
"""Every kernel made so far, by its module and name."""


def _kernel(function: F, **options: Any) -> F:
    """Compile `function` on first call, and list it.

    Where machine code cannot be kept (a read-only installation and no home folder that could hold
    it, a full disk), it is compiled anew by every process, which is said once.
    """
    name = f"{function.__module__}.{function.__qualname__}"
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        KERNELS[name] = _interpreted(function)
        return cast(F, KERNELS[name])
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        kernel = numba.njit(cache=True, **options)(function)
    except RuntimeError as error:  # numba finds no folder that it can write to
        if "cache" not in str(error):
            raise
        _say_uncached(str(error))
        kernel = numba.njit(**options)(function)
    else:
        _let_fail(kernel)
    KERNELS[name] = kernel
    return cast(F, kernel)


def _interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself where nothing is compiled, with arithmetic as machine code does it.

    Numbers wrap and divisions by 0 give inf or nan, in silence, as `error_model="numpy"` says.
    """

    @functools.wraps(function)
    def kernel(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args)

    kernel.py_func = function  # type: ignore[attr-defined]
    return kernel


def _let_fail(kernel: Any) -> None:
    """Let a kernel run where its machine code cannot be read from or written to the disk."""
    cache = kernel._cache

    def forgiving(work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def tried(*args: Any) -> Any:
            try:
                return work(*args)
            except OSError as error:
                _say_uncached(str(error))
                return None

        return tried

    for name in ("load_overload", "save_overload"):
        setattr(cache, name, forgiving(getattr(cache, name)))


def _say_uncached(why: str = "") -> None:
    """Say, once, that the next process will be as slow to start as this one."""
    if _SAID:
        return
    _SAID.append(why)
    logging.getLogger("dprl").warning(
        "dprl: compiled code cannot be kept (%s); every start takes some seconds more. "
        "Set NUMBA_CACHE_DIR to a folder that can be written to.",
        why.splitlines()[0][:160] if why else "no folder can be written to",
    )


_SAID: list[str] = []
"""Why compiled code is not kept, once that was said."""


def compiled(function: F) -> F:
    """Compile `function` on its first call, and keep the machine code for the next process."""
    return _kernel(function)


def fused(function: F) -> F:
    """`compiled`, but sums may be fused or reordered: for filters whose error bound allows it."""
    return _kernel(function, fastmath={"contract", "reassoc"})


def bit(word: np.uint64) -> int:
    """The position of the lowest set bit of a word; one machine instruction where compiled."""
    return (int(word) & -int(word)).bit_length() - 1


@intrinsic
def _count_trailing(context: Any, word: Any) -> Any:
    def write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.cttz(values[0], true_bit)

    return numba.types.int64(numba.types.uint64), write


@overload(bit)
def _bit(word: Any) -> Any:
    def lowest_set(word: Any) -> Any:  # pragma: no cover - compiled
        return _count_trailing(word)  # type: ignore[call-arg]

    return lowest_set


def parts(starts: Ints, threads: int | None = None) -> list[tuple[int, int]]:
    """Ranges of episodes with about equal numbers of rows, one range per thread.

    Args:
        starts: int64 (E + 1,), the first row of each episode, and the number of rows.
        threads: The number of ranges. Default None: one per core, fewer for small logs.
    """
    rows, episodes = int(starts[-1]), len(starts) - 1
    if threads is None:
        worthwhile = rows // WORTH_A_THREAD
        threads = min(os.cpu_count() or 1, worthwhile) if worthwhile > 1 else 1
    if threads == 1:  # as for every single state: it must cost nothing
        return [(0, episodes)]
    targets = np.linspace(0, rows, threads + 1)[1:-1]
    edges = sorted({0, episodes, *(int(e) for e in np.searchsorted(starts, targets))})
    if episodes == 0:
        return [(0, 0)]
    return list(itertools.pairwise(edges))


def in_parts(function: Callable[[int, int], T], ranges: list[tuple[int, int]]) -> list[T]:
    """`function(first, last)` for every range, each on its own thread; results in order."""
    if len(ranges) == 1:
        return [function(*ranges[0])]
    with ThreadPoolExecutor(len(ranges)) as pool:
        return list(pool.map(lambda r: function(*r), ranges))
