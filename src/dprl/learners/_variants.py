"""A learner with other settings: one of dprl's, or one of your own.

A learner is anything with `fit(log)` that returns a policy. To try several settings, it must be

* a dataclass with a field for each setting, which `dataclasses.replace` fills; or
* an object with a method `with_settings(**settings)` that returns a learner with these settings,
  and does not change the object itself.

A learner that can share work between settings also has `fit_each(log, settings)`, which yields a
policy for each of them. Where it cannot share them all, `SHARED` names those that it can; settings
that differ in others are fitted apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from dprl._core.words import api, argument, worded
from dprl.errors import DprlError, ParameterError
from dprl.logs.log import Log

__all__ = ["fitted", "grid_of", "variant"]

NEEDS = (
    "A learner has fit(log), and is a dataclass with the fields {names}, or has a method "
    "with_settings({names}) that returns such a learner."
)


JUDGED_BY = ("gamma", "cut")
"""Settings that say what a policy is judged by: they must be the same for all."""


def grid_of(
    learner: Any,
    n_min: Sequence[float] | None,
    radius: Sequence[float] | None,
    params: Mapping[str, Sequence[Any]] | None = None,
) -> list[dict[str, Any]]:
    """Every setting, grouped by `params`, then by radius; the learner's checks are run on each."""
    if params is not None and not isinstance(params, Mapping):
        raise ParameterError(
            f"params must be a dict of names and lists; got {params!r}.",
            do='params={"risk": [0.01, 0.05]}',
        )
    grid: dict[str, Sequence[Any]] = dict(params or {})
    for name, given in (("radius", radius), ("n_min", n_min)):
        if given is not None and name in grid:
            raise ParameterError(f"{name} is given twice: by itself and in params.")
        values = grid.pop(name, None) if given is None else given
        if values is not None:
            grid[name] = values
    if not grid:
        raise ParameterError(
            "there is nothing to vary.",
            do=worded(
                'Say {n_min}=[10, 20, 50], or params={{"risk": [...]}}.', n_min=argument("n_min")
            ),
        )
    for name in JUDGED_BY:
        if name in grid:
            raise ParameterError(
                f"{name} cannot be varied: it says what a policy is judged by, and all settings "
                "must be judged alike.",
                f"{name}: {grid[name]!r}",
                f"Make one sweep per {name}.",
            )
    _check_learner(learner, list(grid))
    for name, values in grid.items():
        if isinstance(values, str) or not hasattr(values, "__len__") or not len(values):
            raise ParameterError(f"{name} must be a list of values to try; got {values!r}.")
        grid[name] = [value.item() if hasattr(value, "item") else value for value in values]
        for value in grid[name]:
            if not isinstance(value, int | float | str | None):
                raise ParameterError(
                    f"{name} can be varied over numbers, words, True, False and None; got a "
                    f"{type(value).__name__}.",
                    do=worded(
                        "Sweep each such setting alone: {command}(learner with it, ...).",
                        command=api("dprl.sweep"),
                    ),
                )
        if len(set(grid[name])) != len(grid[name]):
            raise ParameterError(f"{name} lists a value twice: {list(grid[name])!r}.")
    together = getattr(learner, "SHARED", ())
    grid = dict(sorted(grid.items(), key=lambda item: item[0] in together))
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
            has = f"Its settings are {', '.join(sorted(field_names))}." if field_names else needs
            raise ParameterError(f"{kind} has no {name} to vary.", do=has)


def variant(learner: Any, setting: Mapping[str, Any]) -> Any:
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


def fitted(learner: Any, train: Log, settings: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """The policy of every setting, from shared evidence if the learner can share it."""
    if hasattr(learner, "fit_each"):
        names = getattr(learner, "SHARED", None)
        parts = [_divided(setting, names) for setting in settings]
        for apart, some in itertools.groupby(parts, key=lambda part: part[0]):
            learner_set = variant(learner, apart) if apart else learner
            yield from learner_set.fit_each(train, [together for _, together in some])
    else:
        for setting in settings:
            yield variant(learner, setting).fit(train)


def _divided(
    setting: Mapping[str, Any], names: Sequence[str] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings that must be fitted apart, and those of these names; all, if there are none."""
    together = {k: v for k, v in setting.items() if names is None or k in names}
    return {k: v for k, v in setting.items() if k not in together}, together


def _words(setting: Mapping[str, Any]) -> str:
    """The settings as text, for messages."""
    return ", ".join(f"{name} = {value!r}" for name, value in setting.items())
