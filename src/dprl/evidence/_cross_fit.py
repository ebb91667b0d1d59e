"""Which groups a model is fitted on, and which rows it answers for: never its own groups.

Groups are dealt into K folds. Rows of fold k get models fitted on the other folds. A model that is
fitted on at most so many rows gets a random part of these groups, in whole groups.

Fits run on several threads of ours, each fit on one thread: then sums are added up in one order,
and the answer does not depend on how many threads there are.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.blas import single_thread

__all__ = ["Fit", "gathered", "in_threads", "plan_fits"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Fit:
    """One round of fitting.

    Attributes:
        held: int64, the rows that models answer for.
        order: int64, the groups to train on, in random order; none has rows in `held`.
        group: int64 (N,), the group of each row of the log.
        seed: Seed of the models.
    """

    held: Ints
    order: Ints
    group: Ints
    seed: int

    def train(self, most: float = np.inf) -> Ints:
        """int64, the rows to train on: as many groups as fit into `most` rows, at least one."""
        sizes = np.bincount(self.group, minlength=int(self.order.max()) + 1)[self.order]
        fitting = np.cumsum(sizes) <= most
        fitting[0] = True
        return np.flatnonzero(np.isin(self.group, self.order[fitting]))


def plan_fits(group: Ints, groups: int, folds: int, seed: int) -> list[Fit]:
    """All rounds of fitting: every row is held out in exactly one of them.

    Args:
        group: int64 (N,), the group of each row.
        groups: G, the number of groups, at least `folds`.
        folds: K, the number of folds.
        seed: Seed of the folds, of the order of the groups, and of the models.
    """
    random = np.random.default_rng(seed)
    fold = np.empty(groups, np.int64)
    fold[random.permutation(groups)] = np.arange(groups) % folds
    fits = []
    for k in range(folds):
        order = random.permutation(np.flatnonzero(fold != k))
        model_seed = int(random.integers(1 << 31))
        fits.append(Fit(np.flatnonzero(fold[group] == k), order, group, model_seed))
    return fits


def gathered(fits: Sequence[Fit], answers: Sequence[Floats]) -> Floats:
    """The answers of all fits, (N, …), in the order of the log."""
    out = np.empty((sum(map(len, answers)), *answers[0].shape[1:]))
    for fit, rows in zip(fits, answers, strict=True):
        out[fit.held] = rows
    return out


def _nothing(*_: Any, **__: Any) -> None:
    """What is done with a warning while models are fitted."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Libraries on one thread, no warnings, and filters of warnings as they were afterwards.

    scikit-learn copies, empties and restores the process's filters in every thread it is called
    from, so now and then one thread empties those of another. Here they may all be lost: the only
    filter is a copy that ignores everything, and without it nothing is shown either.
    """
    with warnings.catch_warnings(), single_thread(None):
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        warnings.showwarning = _nothing
        yield


def in_threads(tasks: Sequence[Callable[[], T]], threads: int | None = None) -> list[T]:
    """The results of all tasks, in order; every library works on one thread in each of them.

    Args:
        tasks: What is to be done.
        threads: How many at a time. Default None: as many as there are cores.
    """
    workers = min(threads or os.cpu_count() or 1, len(tasks))

    def alone(task: Callable[[], T]) -> T:
        # the number of OpenMP's threads belongs to the thread that sets it
        with single_thread("openmp"):
            return task()

    with _quiet():
        if workers <= 1:
            return [alone(task) for task in tasks]
        pool = ThreadPoolExecutor(workers)
        try:
            return list(pool.map(alone, tasks))
        finally:
            pool.shutdown(cancel_futures=True)
