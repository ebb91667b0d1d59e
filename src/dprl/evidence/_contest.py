"""Several models of what people do on the same folds; in large logs only the good ones on all.

Where the first fold holds at least `ENOUGH` rows, all models answer for it, and those to which the
mixture of that fold gives a weight below `SMALL` go no further: they would hardly be heard, and
most of the time goes into fitting them. In smaller logs every model answers for every fold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.evidence._cross_fit import Fit, gathered, in_threads
from dprl.evidence._nuisance_models import Floats, Model, probabilities
from dprl.evidence._stack import floored, stack_weights

__all__ = ["Answers", "contest"]

ENOUGH = 2_500
"""Held-out rows of a fold from which on a weight is told well enough to drop a model by it."""
SMALL = 0.1
"""The weight in the mixture below which a model goes no further."""


@dataclass(frozen=True, eq=False)
class Answers:
    """What a model says of actions at rows of groups that it has not seen.

    Attributes:
        name: The name of the model.
        rows: int64 (n,), the rows it answers for: all N of the log, or those of the first fold.
        b: float64 (n, A), its probabilities.
        last: Whether it answers for all rows, so that it may be mixed.
    """

    name: str
    rows: NDArray[np.int64]
    b: Floats
    last: bool


def contest(
    models: Sequence[Model], x: Floats, action: NDArray[Any], A: int, fits: Sequence[Fit],
    menu: NDArray[np.bool_] | None, *, beside: Sequence[Callable[[], Floats]] = (),
    threads: int | None = None,
) -> tuple[list[Answers], list[Floats]]:  # fmt: skip
    """The answers of all models, cross-fitted, and the results of other work done meanwhile.

    Args:
        models: The models of what people do.
        x: float64 (N, d), the features of all rows.
        action: (N,), codes of the actions.
        A: The number of actions.
        fits: The rounds of fitting.
        menu: bool (N, A), the actions that were available; None for all.
        beside: Other work, done on the same threads. Default: none.
        threads: How many fits run at a time; the answer does not depend on it. Default None: as
            many as there are cores.

    Returns:
        One entry per model, in order, and one per piece of other work.
    """
    race = len(models) > 1 and len(fits[0].held) >= ENOUGH
    now, later = (fits[:1], fits[1:]) if race else (fits, [])

    def tasks(some: Sequence[Model], rounds: Sequence[Fit]) -> list[Callable[[], Floats]]:
        return [
            partial(probabilities, model, x, action, A, fit) for model in some for fit in rounds
        ]

    spent: dict[int, float] = {}

    def timed(place: int, task: Callable[[], Floats]) -> Floats:
        begun = time.perf_counter()
        result = task()
        spent[place] = time.perf_counter() - begun
        return result

    first_round: list[Callable[[], Floats]] = [
        partial(timed, i // len(now), task) for i, task in enumerate(tasks(models, now))
    ]
    results = in_threads([*first_round, *beside], threads)
    first, done = results[: len(models) * len(now)], results[len(models) * len(now) :]
    answers = {m: first[m * len(now) : (m + 1) * len(now)] for m in range(len(models))}
    going_on = list(range(len(models)))
    if race:
        held = fits[0].held
        offered = None if menu is None else menu[held]
        taken = [floored(a, offered)[np.arange(len(held)), action[held]] for a in first]
        weights = stack_weights(np.column_stack(taken))
        going_on = [m for m in going_on if weights[m] >= SMALL or weights[m] == weights.max()]
        longest_first = sorted(going_on, key=lambda m: -spent[m])  # no core waits for the last one
        more = in_threads(tasks([models[m] for m in longest_first], later), threads)
        for place, m in enumerate(longest_first):
            answers[m] += more[place * len(later) : (place + 1) * len(later)]
    every = np.arange(len(x))
    contested = []
    for m, model in enumerate(models):
        last = m in going_on
        b = gathered(fits, answers[m]) if last else answers[m][0]
        rows = every if last else fits[0].held
        offered = None if menu is None else menu[rows]
        contested.append(Answers(model.name, rows, floored(b, offered), last))
    return contested, done
