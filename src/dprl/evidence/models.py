"""The models of what people do and of what follows, and how they are asked.

What people do (probabilities of actions), three models of different kinds, since none fits every
log; `dprl.evidence.models` weighs them by how well they foretell groups that they have not seen:

* *logistic*: multinomial logistic regression on each feature as a line and as a piecewise linear
  spline (knots at quantiles), features standardised;
* *extra trees* (Geurts, Ernst, Wehenkel 2006), leaves of at least 10 rows;
* *boosting*: gradient boosting over histograms, small trees.

What follows (values): extra trees on the returns.

**Another model** is one `Nuisance`, given to `register`: a name, what it foretells and a function
that makes it. One of what people do is fitted and weighed with the others in every log over
features; one of what follows is used where it is asked for by name (`value_model="name"`).

A missing number is replaced by the median of the training rows, and a column is added that says
that it was missing. (Boosting could take it as it is, but fails on a column that is missing on
all training rows.) Models that users bring get numbers as they are.

A category becomes a column of 0 and 1 for each of its labels, and one that says that it is missing,
for the logistic regression and for models that users bring. Our trees take the codes of the labels
(-1 where missing): they can cut any label out by two cuts.

Actions: a model gives no probability to an action that its training rows do not have. Every
probability is raised to at least `FLOOR`, actions that were not available get 0, and the row is
divided by its sum. Suggestions need a probability of .02, so this decides none; it bounds what one
surprising action adds to a log-loss.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats, Ints
from dprl._core.compiled import compiled
from dprl._core.optional import single_thread
from dprl.errors import ParameterError

# --- Which groups a model is fitted on, and which rows it answers for: never its own groups
#
# Groups are dealt into K folds. Rows of fold k get models fitted on the other folds. A model that
# is
# fitted on at most so many rows gets a random part of these groups, in whole groups.
#
# Fits run on several threads of ours, each fit on one thread: then sums are added up in one
# order,
# and the answer does not depend on how many threads there are.

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


# --- The models of what people do and of what follows, and how they are asked

MOST_ROWS = 20_000
"""Training rows of one fit, in whole groups: ten times the rows take ten times as long."""
MOST_ROWS_TREES = 8_000
"""Training rows of one fit of our forests."""
FLOOR = 1e-3
"""The least probability of an available action, before rows are divided by their sums."""
FEW = 6
"""With fewer inputs than this the trees of the model of values try all of them at every split.

Half of three is one, and a random cut of one feature that leaves too few rows on a side ends the
branch, so values are drawn to the middle: a linear value of standard deviation 3 was foretold with
.8 from 600 rows.
"""
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


@dataclass(frozen=True)
class Inputs:
    """What the columns are that a model gets.

    Attributes:
        missing: Whether some number is missing somewhere.
        labels: For each column, how many labels it has where it is a category; 0 for a number.
    """

    missing: bool
    labels: tuple[int, ...] = ()

    def prepared(self, model: Any, *, expand: Any = None) -> Any:
        """A pipeline: missing numbers filled in where there are any, standardised; then the model.

        Args:
            model: The last step.
            expand: What numbers go through besides; categories become columns of 0 and 1 then, and
                stay codes without it. Default None.
        """
        from sklearn.compose import ColumnTransformer
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        fill = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
        steps = [*([fill] if self.missing else []), StandardScaler(), *([expand] if expand else [])]
        if not any(self.labels):
            return make_pipeline(*steps, model)
        codes = SimpleImputer(strategy="constant", fill_value=-1.0, keep_empty_features=True)
        both = ColumnTransformer([
            ("numbers", make_pipeline(*steps), self._places(False)),
            ("labels", self._one_hot() if expand else codes, self._places(True)),
        ])  # fmt: skip
        return make_pipeline(both, model)

    def of_user(self, model: Any) -> Any:
        """A model that a user brings: categories become columns of 0 and 1 after the numbers."""
        from sklearn.compose import ColumnTransformer
        from sklearn.pipeline import make_pipeline

        if not any(self.labels):
            return model
        both = ColumnTransformer([
            ("numbers", "passthrough", self._places(False)),
            ("labels", self._one_hot(), self._places(True)),
        ], sparse_threshold=0.0)  # fmt: skip
        return make_pipeline(both, model)

    def _places(self, labels: bool) -> list[int]:
        return [j for j, size in enumerate(self.labels) if bool(size) == labels]

    def _one_hot(self) -> Any:
        """A column for each label, and one for "missing"."""
        from sklearn.preprocessing import OneHotEncoder

        categories = [
            np.append(np.arange(size, dtype=float), np.nan) for size in self.labels if size
        ]
        return OneHotEncoder(categories=categories, handle_unknown="ignore")


@dataclass(frozen=True)
class Nuisance:
    """A kind of model that is fitted to every log over features.

    Attributes:
        name: What it is called in tables and messages, and as an argument.
        of: What it foretells: "actions" (a classifier; all of them are mixed) or "values" (a
            regressor; the first is used unless another one is asked for by name).
        make: From what the columns are to an unfitted model with the methods of scikit-learn.
        most: The number of rows that it is fitted on at most.
    """

    name: str
    of: Literal["actions", "values"]
    make: Callable[[Inputs], Any]
    most: int = MOST_ROWS

    def model(self, inputs: Inputs) -> Model:
        """The model for these columns, before it is fitted."""
        return Model(self.name, self.make(inputs), self.most)


NUISANCES: dict[str, Nuisance] = {}
"""Name → model, in the order in which tables show them."""


def register(nuisance: Nuisance) -> Nuisance:
    """Add a model to those that are fitted; a name is taken once."""
    if nuisance.name in NUISANCES:
        raise ParameterError(f"there is a model {nuisance.name!r} already.")
    NUISANCES[nuisance.name] = nuisance
    return nuisance


def usual_behavior_models(inputs: Inputs) -> list[Model]:
    """The models of what people do: all that are registered.

    Args:
        inputs: What the columns are.
    """
    return [one.model(inputs) for one in NUISANCES.values() if one.of == "actions"]


def usual_value_model(inputs: Inputs) -> Model:
    """The model of what follows: the first that is registered.

    Args:
        inputs: What the columns are.
    """
    return next(one for one in NUISANCES.values() if one.of == "values").model(inputs)


def _logistic(inputs: Inputs) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import FeatureUnion
    from sklearn.preprocessing import SplineTransformer

    splines = SplineTransformer(4, degree=1, knots="quantile", include_bias=False)
    return inputs.prepared(
        LogisticRegression(C=0.3, tol=1e-3, max_iter=200),
        expand=FeatureUnion([("line", "passthrough"), ("splines", splines)]),
    )


def _extra_trees(inputs: Inputs) -> Any:
    from sklearn.ensemble import ExtraTreesClassifier

    return inputs.prepared(ExtraTreesClassifier(50, min_samples_leaf=LEAF, max_features=1 / 3))


def _boosting(inputs: Inputs) -> Any:
    """Penalised for large steps: with many actions, some of them rare, it runs away otherwise.

    16 actions in intensive care were foretold with a held-out log-loss of 1.07 nats a row, and of
    1.31 without; in worlds of 1,800 rows and four actions it gained up to .04.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    return inputs.prepared(
        HistGradientBoostingClassifier(
            max_bins=63, early_stopping=False, max_iter=20, learning_rate=0.15, max_leaf_nodes=8,
            l2_regularization=5.0,
        )
    )  # fmt: skip


def _value_trees(inputs: Inputs) -> Any:
    from sklearn.ensemble import ExtraTreesRegressor

    tried = 0.5 if len(inputs.labels) >= FEW else 1.0
    return inputs.prepared(ExtraTreesRegressor(40, min_samples_leaf=LEAF, max_features=tried))


register(Nuisance("logistic", "actions", _logistic))
register(Nuisance("extra trees", "actions", _extra_trees, MOST_ROWS_TREES))
register(Nuisance("boosting", "actions", _boosting))
register(Nuisance("value_model", "values", _value_trees, MOST_ROWS_TREES))


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


# --- Several models of what people do, weighed by how well they foretell rows they have not seen
#
# With p_m(t) the probability that model m gave to the action taken at row t, held out, the
# weights
# minimise the held-out log-loss of the mixture,
#
#     w = argmin over the simplex of   L(w) = - 1/N ∑_t ln ∑_m w_m p_m(t)
#
# which is convex. The update w_m ← w_m · mean_t p_m(t) / ∑_k w_k p_k(t)
# (expectation-maximisation)
# never raises L, and L(w) - min L <= max_m mean_t p_m(t) / mix(t) - 1: it stops when that is
# below
# `CLOSE`. Nothing is random.
#
# Calibration of probabilities b (N, A): each action at each row is a case; the cases are put into
# ten
# equal bins of b. Of the cases given about p, did a share p happen? The misplaced probability is
#
#     ∑_bins | times it happened - ∑ b | / (2 N)              (0 perfect, 1 all wrong)

CLOSE = 1e-5
"""How far the log-loss of the weights may be above the smallest, in nats per row."""
ROUNDS = 5_000
"""Updates of the weights at most."""
BINS = 10


def floored(b: Floats, menu: NDArray[np.bool_] | None = None) -> Floats:
    """Every probability at least `FLOOR`, 0 where not available; rows divided by their sums.

    Args:
        b: float64 (N, A).
        menu: bool (N, A), the actions that were available. Default None: all.
    """
    raised = np.maximum(b, FLOOR)
    if menu is not None:
        raised = np.where(menu, raised, 0.0)
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def stack_weights(taken: Floats) -> Floats:
    """Weights (M,) from 0 that add up to 1, with the smallest held-out log-loss.

    Args:
        taken: float64 (N, M), the probability that each model gave to the action taken; above 0.
    """
    weights = np.full(taken.shape[1], 1 / taken.shape[1])
    ratio = np.empty(taken.shape[1])
    taken = np.ascontiguousarray(taken)
    for _ in range(ROUNDS):
        _ratios(taken, weights, ratio)
        if ratio.max() - 1 <= CLOSE:
            break
        weights = weights * ratio
        weights /= weights.sum()
    return weights


@compiled
def _ratios(taken: Floats, weights: Floats, ratio: Floats) -> None:  # pragma: no cover - compiled
    """Fill ratio (M,): the mean over rows of what each model gave over what the mixture gave."""
    N, M = taken.shape
    ratio[:] = 0.0
    for t in range(N):
        mixed = taken[t, 0] * weights[0]
        for m in range(1, M):
            mixed += taken[t, m] * weights[m]
        for m in range(M):
            ratio[m] += taken[t, m] / mixed
    ratio /= N


def log_loss(b: Floats, action: NDArray[Any]) -> float:
    """Mean of -ln of the probability of the action taken, in nats per row; smaller is better."""
    return float(-np.log(b[np.arange(len(b)), action]).mean())


def misplaced(b: Floats, action: NDArray[Any]) -> float:
    """Calibration error of probabilities b (N, A): 0 is perfect, 1 is all wrong."""
    place = np.minimum((b * BINS).astype(np.int64), BINS - 1)
    expected = np.bincount(place.ravel(), weights=b.ravel(), minlength=BINS)
    happened = np.bincount(place[np.arange(len(b)), action], minlength=BINS)
    return float(np.abs(happened - expected).sum() / (2 * len(b)))
