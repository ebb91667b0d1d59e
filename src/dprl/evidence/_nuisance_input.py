"""What `fit_nuisances` is given, checked: nothing is fitted before all of it is in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import either, worded
from dprl.errors import LogError, ParameterError
from dprl.evidence._nuisance_models import NUISANCES, Floats, Inputs, Model
from dprl.evidence.credit import check_settled
from dprl.logs._feature_input import refuse_categories
from dprl.logs.log import Log, check_log

__all__ = [
    "check_features", "check_folds", "check_models", "check_propensity", "check_regressor",
    "columns_of", "inputs", "menu_of",
]  # fmt: skip


def _place(log: Log, row: int) -> str:
    """Where a row is, for messages."""
    episode = int(np.searchsorted(log.starts, row, "right")) - 1
    return f"episode {log.episodes[episode]!r}, step {row - int(log.starts[episode])}"


def check_features(log: Log, categories: bool = False) -> None:
    """Refuse a log without features, with cut episodes, or in which only one action was taken.

    Categories are refused too unless `categories` says that they are welcome.
    """
    check_log(log)
    if log.features is None:
        raise LogError(
            f"this log's states are {log.n_states:,} labels, not numeric features.",
            f"states {', '.join(map(repr, log.states[:4]))}",
            worded(
                "Models of features need numbers: pass {choice} when reading.",
                choice=either("state=['age', 'pressure', …]", "--state age --state pressure"),
            ),
        )
    if not categories:
        refuse_categories(log)
    check_settled(log)
    taken = np.unique(log.action)
    if len(taken) < 2:
        raise LogError(
            f"only one action was ever taken, on all {log.n_steps:,} rows.",
            f"action {log.actions[taken[0]]!r}",
            "There is nothing to compare it with; read a log in which people decided differently.",
        )
    menu = menu_of(log)
    if menu is not None and not menu[np.arange(log.n_steps), log.action].all():
        row = int(np.argmin(menu[np.arange(log.n_steps), log.action]))
        raise LogError(
            "an action was taken that was not available.",
            f"{_place(log, row)}, action {log.actions[log.action[row]]!r}",
            "Mend the available column, or leave it out.",
        )


def check_folds(log: Log, folds: int, otherwise: str = "") -> int:
    """The number of groups of a log: at least one for each fold; `otherwise` is more advice."""
    G = len(log.groups)
    if folds > G:
        raise LogError(
            f"{folds} folds need at least {folds} groups; got {G:,}.",
            do=f"Read more groups (or episodes), or lower folds (at least 2).{otherwise}",
        )
    return G


def check_models(
    models: Sequence[tuple[str, Any]] | None, usual: list[Model], columns: Inputs
) -> list[Model]:
    """The models of what people do: those given, or else the `usual` ones."""
    if models is None:
        return usual
    wanted = "behavior_models must be pairs of a name and a classifier with fit and predict_proba"
    do = "For example [('logistic', LogisticRegression())]; each name once."
    usual_ones = {model.name: model for model in usual}
    try:
        if len(models) and all(isinstance(n, str) and n in usual_ones for n in models):
            return [usual_ones[str(name)] for name in dict.fromkeys(models)]
        pairs = [(name, model) for name, model in models]
    except (TypeError, ValueError):
        raise ParameterError(f"{wanted}; got {models!r}.", do=do) from None
    if not pairs:
        raise ParameterError(f"{wanted}; got none.", do=do)
    for i, (name, model) in enumerate(pairs):
        if not isinstance(name, str) or not _can(model, "fit", "predict_proba"):
            raise ParameterError(f"{wanted}; got {name!r}, {model!r}.", f"entry {i}", do)
        if name in [other for other, _ in pairs[:i]]:
            raise ParameterError(f"two of behavior_models have the name {name!r}.", do=do)
    return [Model(name, columns.of_user(model)) for name, model in pairs]


def check_regressor(model: Any, usual: Model, columns: Inputs) -> Model:
    """The model of what follows: the one given, or else the `usual` one."""
    if model is None:
        return usual
    if isinstance(model, str) and model in NUISANCES and NUISANCES[model].of == "values":
        return NUISANCES[model].model(columns)
    if not _can(model, "fit", "predict"):
        raise ParameterError(
            f"value_model must be a regressor with fit and predict; got {model!r}.",
            do="For example sklearn.ensemble.ExtraTreesRegressor(min_samples_leaf=10).",
        )
    return Model("value_model", columns.of_user(model))


def _can(model: Any, *methods: str) -> bool:
    """Whether it is an object (not a class) that has these methods and can be copied."""
    wanted = (*methods, "get_params", "set_params")
    return not isinstance(model, type) and all(callable(getattr(model, m, None)) for m in wanted)


def check_propensity(log: Log, propensity: Any) -> Floats:
    """Known probabilities, a copy (N, A): rows add up to 1, above 0 where the action was taken."""
    shape = (log.n_steps, log.n_actions)
    try:
        b = np.array(propensity, np.float64)
    except (TypeError, ValueError):
        b = np.empty(0)
    if b.shape != shape:
        raise ParameterError(
            f"propensity must be probabilities of shape {shape}; got {np.shape(propensity)}.",
            do="One row per row of the log, one column per action, in the order of log.actions.",
        )
    bad = ~((b >= 0).all(axis=1) & (np.abs(b.sum(axis=1) - 1) <= 1e-9))
    if bad.any():
        row = int(np.argmax(bad))
        raise ParameterError(
            f"propensity is no distribution over actions on {int(bad.sum()):,} of "
            f"{log.n_steps:,} rows: probabilities are at least 0 and add up to 1.",
            f"{_place(log, row)}: {b[row].tolist()}, sum {b[row].sum():.9g}",
            "Mend these rows; where only digits were lost, divide each row by its sum.",
        )
    never = b[np.arange(len(b)), log.action] <= 0
    if never.any():
        row = int(np.argmax(never))
        raise ParameterError(
            f"{int(never.sum()):,} of {log.n_steps:,} rows took an action whose propensity is 0.",
            f"{_place(log, row)}, action {log.actions[log.action[row]]!r}",
            "Known probabilities must allow what was done; or let them be estimated.",
        )
    return b


def inputs(log: Log, step: bool, marks: NDArray[np.bool_] | None = None) -> Floats:
    """The features of the models (N, d), then the number of the step if wanted, then `marks`."""
    parts = [np.asarray(log.features)]
    if step:
        parts.append(np.arange(log.n_steps) - np.repeat(log.starts[:-1], log.lengths))
    if marks is not None:
        parts.append(marks)
    return parts[0] if len(parts) == 1 else np.column_stack(parts).astype(np.float64)


def columns_of(log: Log, step: bool, marked: bool = False) -> Inputs:
    """What the columns of `inputs` are; `marked`: whether marks are the last of them."""
    labels = tuple(0 if own is None else len(own) for own in log.levels)
    numbers = tuple(0 for _ in log.feature_names)
    missing = bool(log.missing.any())
    return Inputs(missing, (labels or numbers) + (0,) * (step + marked))


def menu_of(log: Log) -> NDArray[np.bool_] | None:
    """The actions that were available at each row, bool (N, A); None where the log has no menus."""
    if log.available is None or log.menus is None:
        return None
    return np.asarray(log.menus[log.available])
