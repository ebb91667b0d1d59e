"""A learner with other settings: one of dprl's, or one of your own.

A learner is anything with `fit(log)` that returns a policy. To try several settings, it must be

* a dataclass with a field for each setting, which `dataclasses.replace` fills; or
* an object with a method `with_settings(**settings)` that returns a learner with these settings,
  and does not change the object itself.

A learner that can share work between settings also has `fit_each(log, settings)`, which yields a
policy for each of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from dprl.errors import DprlError, ParameterError
from dprl.logs.log import Log

__all__ = ["fitted", "grid_of", "variant"]

NEEDS = (
    "A learner has fit(log), and is a dataclass with the fields {names}, or has a method "
    "with_settings({names}) that returns such a learner."
)


def grid_of(
    learner: Any, n_min: Sequence[float], radius: Sequence[float] | None
) -> list[dict[str, float]]:
    """Every setting, grouped by radius; the learner's own checks are run on each of them."""
    grid: dict[str, Sequence[float]] = {"n_min": n_min}
    if radius is not None:
        grid = {"radius": radius, **grid}
    _check_learner(learner, list(grid))
    for name, values in grid.items():
        if isinstance(values, str) or not hasattr(values, "__len__") or not len(values):
            raise ParameterError(f"{name} must be a list of values to try; got {values!r}.")
        if len(set(values)) != len(values):
            raise ParameterError(f"{name} lists a value twice: {list(values)!r}.")
    settings = [dict(zip(grid, place, strict=True)) for place in itertools.product(*grid.values())]
    for setting in settings:
        variant(learner, setting)
    return settings


def _check_learner(learner: Any, names: Sequence[str]) -> None:
    """Refuse an object that cannot be fitted, or that does not have these settings."""
    if isinstance(learner, type):
        raise ParameterError(
            f"{learner.__name__} is a class, not a learner.",
            do=f"Make one and pass that: {learner.__name__}(...).",
        )
    kind, needs = type(learner).__name__, NEEDS.format(names=", ".join(names))
    if not callable(getattr(learner, "fit", None)):
        raise ParameterError(f"{kind} has no {names[-1]} to vary: it is no learner.", do=needs)
    if hasattr(learner, "with_settings"):
        return
    field_names = {field.name for field in fields(learner)} if is_dataclass(learner) else set()
    for name in names:
        if name not in field_names:
            raise ParameterError(f"{kind} has no {name} to vary.", do=needs)


def variant(learner: Any, setting: Mapping[str, float]) -> Any:
    """The learner with these settings; everything else about it stays the same."""
    try:
        if hasattr(learner, "with_settings"):
            learner_set = learner.with_settings(**setting)
        else:
            learner_set = replace(learner, **setting)
    except DprlError:
        raise
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"{type(learner).__name__} cannot be given {_words(setting)}.",
            f"{type(error).__name__}: {error}",
            NEEDS.format(names=", ".join(setting)),
        ) from error
    if not callable(getattr(learner_set, "fit", None)):
        raise ParameterError(
            f"with_settings of {type(learner).__name__} returned a {type(learner_set).__name__}, "
            "which has no fit.",
            _words(setting),
            "It must return a learner: an object with fit(log).",
        )
    return learner_set


def fitted(learner: Any, train: Log, settings: Sequence[Mapping[str, float]]) -> Iterator[Any]:
    """The policy of every setting, from shared evidence if the learner can share it."""
    if hasattr(learner, "fit_each"):
        yield from learner.fit_each(train, settings)
    else:
        for setting in settings:
            yield variant(learner, setting).fit(train)


def _words(setting: Mapping[str, float]) -> str:
    """The settings as text, for messages."""
    return ", ".join(f"{name} = {value!r}" for name, value in setting.items())
