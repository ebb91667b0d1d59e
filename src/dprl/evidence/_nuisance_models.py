"""The models of what people do and of what follows, and how they are asked.

What people do (probabilities of actions), three models of different kinds, since none fits every
log; `dprl.evidence._stack` weighs them by how well they foretell groups that they have not seen:

* *logistic*: multinomial logistic regression on each feature as a line and as a piecewise linear
  spline (knots at quantiles), features standardised;
* *extra trees* (Geurts, Ernst, Wehenkel 2006), leaves of at least 10 rows;
* *boosting*: gradient boosting over histograms, small trees.

What follows (values): extra trees on the returns.

A missing number is replaced by the median of the training rows, and a column is added that says
that it was missing. (Boosting could take it as it is, but fails on a column that is missing on
all training rows.) Models that users bring get the features as they are.

Actions: a model gives no probability to an action that its training rows do not have. Every
probability is raised to at least `FLOOR`, actions that were not available get 0, and the row is
divided by its sum. Suggestions need a probability of .02, so this decides none; it bounds what one
surprising action adds to a log-loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl.errors import ParameterError
from dprl.evidence._cross_fit import Fit

__all__ = [
    "FLOOR",
    "Floats",
    "Model",
    "predicted",
    "probabilities",
    "usual_behavior_models",
    "usual_value_model",
]

Floats: TypeAlias = NDArray[np.float64]

MOST_ROWS = 20_000
"""Training rows of one fit, in whole groups: ten times the rows take ten times as long."""
MOST_ROWS_TREES = 8_000
"""Training rows of one fit of our forests and of our boosting, which take longest."""
FLOOR = 1e-3
"""The least probability of an available action, before rows are divided by their sums."""
LEAF = 10
"""Least number of rows in a leaf: a leaf of one row would say 0 or 1."""


@dataclass(frozen=True, eq=False)
class Model:
    """A model, before it is fitted.

    Attributes:
        name: What it is called in tables and messages.
        estimator: A classifier or regressor with the methods of scikit-learn.
        most: The number of rows that it is fitted on at most.
    """

    name: str
    estimator: Any
    most: int = MOST_ROWS


def _prepared(missing: bool, *steps: Any) -> Any:
    """A pipeline that fills in missing numbers where there are any, and standardises."""
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fill = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    return make_pipeline(*([fill] if missing else []), StandardScaler(), *steps)


def usual_behavior_models(missing: bool) -> list[Model]:
    """The three models of what people do, by name.

    Args:
        missing: Whether features have missing numbers.
    """
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import FeatureUnion
    from sklearn.preprocessing import SplineTransformer

    splines = SplineTransformer(4, degree=1, knots="quantile", include_bias=False)
    logistic = _prepared(
        missing,
        FeatureUnion([("line", "passthrough"), ("splines", splines)]),
        LogisticRegression(C=0.3, tol=1e-3, max_iter=200),
    )
    trees = _prepared(missing, ExtraTreesClassifier(50, min_samples_leaf=LEAF, max_features=1 / 3))
    boosting = _prepared(
        missing,
        HistGradientBoostingClassifier(
            max_iter=30, learning_rate=0.2, max_leaf_nodes=6, max_bins=63, early_stopping=False
        ),
    )
    return [
        Model("logistic", logistic),
        Model("extra trees", trees, MOST_ROWS_TREES),
        Model("boosting", boosting, MOST_ROWS_TREES),
    ]


def usual_value_model(missing: bool) -> Model:
    """The model of what follows: extra trees on the returns.

    Args:
        missing: Whether features have missing numbers.
    """
    from sklearn.ensemble import ExtraTreesRegressor

    trees = ExtraTreesRegressor(40, min_samples_leaf=LEAF, max_features=0.5)
    return Model("value_model", _prepared(missing, trees), MOST_ROWS_TREES)


def _fresh(model: Any, seed: int) -> Any:
    """An unfitted copy, whose random numbers are decided by `seed` where it left them open."""
    from sklearn.base import clone

    copy = clone(model)
    open_seeds = [
        name
        for name, value in copy.get_params(deep=True).items()
        if name.rpartition("__")[2] == "random_state" and value is None
    ]
    return copy.set_params(**dict.fromkeys(open_seeds, seed))


def _failed(name: str, error: Exception) -> ParameterError:
    first = str(error).strip().partition("\n")[0]
    return ParameterError(
        f"the model {name!r} could not be fitted and asked.",
        f"{type(error).__name__}: {first}",
        "Pass a model that takes these features (a pipeline that fills in missing numbers, say).",
    )


def probabilities(model: Model, x: Floats, action: NDArray[Any], A: int, fit: Fit) -> Floats:
    """Probabilities of the A actions at the held-out rows, (rows, A), before `FLOOR`.

    Args:
        model: The classifier; it is copied, not changed.
        x: float64 (N, d), the features of all rows.
        action: (N,), codes of the actions.
        A: The number of actions.
        fit: Which rows to fit on, and which to answer for.
    """
    train = fit.train(model.most)
    seen = np.unique(action[train])
    out = np.zeros((len(fit.held), A))
    if len(seen) == 1:
        out[:, seen[0]] = 1.0
        return out
    try:
        copy = _fresh(model.estimator, fit.seed)
        copy.fit(x[train], action[train])
        answers = np.asarray(copy.predict_proba(x[fit.held]), np.float64)
        out[:, np.asarray(copy.classes_, np.int64)] = answers
    except Exception as error:  # whatever a model brought by a user raises
        raise _failed(model.name, error) from error
    bad = ~((out >= 0).all(axis=1) & (np.abs(out.sum(axis=1) - 1) <= 1e-3))
    if bad.any():
        raise ParameterError(
            f"the model {model.name!r} gives no probabilities (at least 0, with sum 1) on "
            f"{int(bad.sum()):,} of {len(bad):,} rows.",
            f"{out[np.argmax(bad)].tolist()}",
            "Pass a classifier with predict_proba, or leave the choice to the default models.",
        )
    return out


def predicted(model: Model, x: Floats, y: Floats, fit: Fit) -> Floats:
    """What a regressor says at the held-out rows, (rows,).

    Args:
        model: The regressor; it is copied, not changed.
        x: float64 (N, d), the features of all rows.
        y: float64 (N,), the targets.
        fit: Which rows to fit on, and which to answer for.
    """
    train = fit.train(model.most)
    try:
        copy = _fresh(model.estimator, fit.seed)
        copy.fit(x[train], y[train])
        out = np.asarray(copy.predict(x[fit.held]), np.float64).reshape(len(fit.held))
    except Exception as error:  # whatever a model brought by a user raises
        raise _failed(model.name, error) from error
    if not np.isfinite(out).all():
        raise ParameterError(
            f"value_model says no finite number at {int((~np.isfinite(out)).sum()):,} of "
            f"{len(out):,} rows.",
            do="Pass a regressor whose answers are finite, or leave the choice to the default.",
        )
    return out
