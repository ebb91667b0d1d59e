"""The models of what people do and of what follows, and how they are asked.

Both are foretold by models of the same five shapes, since none fits every log, and weighed by how
well they foretell groups that they have not seen:

* *logistic* / *ridge*: on each feature as a line, features standardised;
* *products*: besides, squares and products of two features. Treatment that depends on a product or
  an exclusive or of two features is invisible to lines, and a claim is false then in log after log;
* *splines*: lines, and piecewise linear splines with knots at quantiles, for waves and bands;
* *functions*: lines, and the few functions of one or two features that tell most of what lines
  leave open, searched one after the other: steps, corners, products, waves
  (`dprl.evidence.score_test`);
* *boosting*: gradient boosting over histograms, small trees, on features and products of two: one
  cut of a product is an exclusive or.

What people do is mixed by held-out log-loss (`stack_weights`), what follows by held-out squares
with weights from 0 (`blended`). Both have the same shapes because what a claim gets wrong is the
product of what both get wrong. Forests are not among them: smooth and biased to the middle, they
earned no weight beside these and took most of the time.

**Another model** is one `Nuisance`, given to `register`: a name, what it foretells and a function
that makes it. It is fitted and weighed with the others in every log over features, or alone where
it is asked for by name (`behavior_models=["name"]`, `value_model="name"`).

A missing number is replaced by the median of the training rows, and a column is added that says
that it was missing. Models that users bring get numbers as they are.

A category becomes a column of 0 and 1 for each of its labels, and one that says that it is missing,
for linear models and for models that users bring. Our trees take the codes of the labels (-1 where
missing): they can cut any label out by two cuts. Products are of all of these columns.

Many features have many products: those are kept that go most with what is foretold (`Columns`).

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
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats, Ints
from dprl._core.compiled import compiled
from dprl._core.optional import single_thread
from dprl.errors import ParameterError
from dprl.evidence.score_test import pursued, values_of

# --- Which groups a model is fitted on, and which rows it answers for: never its own groups
#
# Groups are dealt into K folds. Rows of fold k get models fitted on the other folds. A model that
# is fitted on at most so many rows gets a random part of these groups, in whole groups.
#
# Fits run on several threads of ours, each fit on one thread: then sums are added up in one order,
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

    def halved(self) -> Fit:
        """The same with half of the groups to train on."""
        return replace(self, order=self.order[: max(len(self.order) // 2, 1)])


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
MOST_ROWS_PAIRS = 8_000
"""Training rows of one fit of a model of many products."""
FLOOR = 1e-3
"""The least probability of an available action, before rows are divided by their sums."""
FAR = 4.0
"""Standard deviations at which numbers are cut off in linear models: a product may be far out."""
PAIRS = 400
"""The most products of a linear model."""
PAIRS_TREES = 60
"""The most products that trees get."""
SCREENED = 2_000
"""Rows on which products and functions are chosen."""


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
        plain: How many more columns there are, after these: numbers that are never missing, from
            which neither splines nor products are made. Default 0.
    """

    missing: bool
    labels: tuple[int, ...] = ()
    plain: int = 0

    def prepared(
        self, model: Any, *, knots: int = 0, pairs: int = 0, squares: bool = False,
        codes: bool = True, found: int = 0,
    ) -> Any:  # fmt: skip
        """A model over columns without gaps: see `Columns`.

        Args:
            model: The model.
            knots: Knots of each number's spline, fewer where there are many numbers. Default 0.
            pairs: The most products of two columns. Default 0.
            squares: Whether squares of numbers are among the products. Default False.
            codes: Whether categories stay codes, for trees; else they become columns of 0 and 1,
                and all columns are standardised. Default True.
            found: The most functions that are searched. Default 0.
        """
        return Widened(model, self, knots, pairs, squares, codes, found)

    def of_user(self, model: Any) -> Any:
        """A model that a user brings: categories become columns of 0 and 1 after the numbers."""
        from sklearn.compose import ColumnTransformer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder

        if not any(self.labels):
            return model
        categories = [
            np.append(np.arange(size, dtype=float), np.nan) for size in self.labels if size
        ]
        one_hot = OneHotEncoder(categories=categories, handle_unknown="ignore")
        both = ColumnTransformer([
            ("numbers", "passthrough", [*self.places(False), *self.plain_places]),
            ("labels", one_hot, self.places(True)),
        ], sparse_threshold=0.0)  # fmt: skip
        return make_pipeline(both, model)

    def places(self, labels: bool) -> list[int]:
        """The columns that are categories, or those that are numbers."""
        return [j for j, size in enumerate(self.labels) if bool(size) == labels]

    @property
    def plain_places(self) -> list[int]:
        """The columns of which nothing else is made."""
        return list(range(len(self.labels), len(self.labels) + self.plain))


class Columns:
    """What a model is given in place of the features; all of it is learned from training rows.

    Numbers are filled in by their medians and standardised, a column of 0 and 1 says where one was
    missing, and categories are columns of 0 and 1 (or codes). Then hinges max(0, z - knot) of
    numbers, and products of two of these columns (without hinges). Where there are more products
    than `pairs`, those with the largest correlations with what is foretold are kept. Last,
    functions that tell most of what is foretold (`dprl.evidence.score_test.pursued`).

    Args:
        inputs: What the columns of `x` are.
        x: float64 (n, d), the training rows.
        targets: float64 (n, k), what is foretold; only products are chosen by it.
        knots: Knots of each number's spline, 4 at least; fewer where there are many numbers.
        pairs: The most products.
        squares: Whether squares of numbers are among them.
        codes: Whether categories stay codes, and columns are not standardised and cut off.
        found: The most functions that are searched.
    """

    def __init__(
        self, inputs: Inputs, x: Floats, targets: Floats, knots: int = 0, pairs: int = 0,
        squares: bool = False, codes: bool = False, found: int = 0,
    ) -> None:  # fmt: skip
        self.numbers, self.plain, self.codes = inputs.places(False), inputs.plain_places, codes
        self.labels = [(j, inputs.labels[j]) for j in inputs.places(True)]
        own = x[:, self.numbers]
        self.marked: list[int] = []
        if inputs.missing:
            self.marked = np.flatnonzero(np.isnan(own).any(axis=0)).tolist()
        known = np.where(np.isnan(own).all(axis=0), 0.0, own)
        self.middle = np.nanmedian(known, axis=0) if known.size else np.zeros(known.shape[1])
        filled = np.where(np.isnan(own), self.middle, own)
        self.center, self.scale = filled.mean(axis=0), _spread(filled)
        base, z = self.parts(x)
        self.knots: list[Floats] = [np.empty(0)] * z.shape[1]
        if knots:
            each = int(np.clip(200 // max(z.shape[1], 1), 4, knots))
            inner = np.linspace(0, 1, each + 2)[1:-1]
            self.knots = [_inner(np.quantile(column, inner), column) for column in z.T]
        rows = np.unique(np.linspace(0, len(x) - 1, min(len(x), SCREENED)).astype(np.int64))
        self.first, self.second = _chosen(base[rows], z.shape[1], targets[rows], pairs, squares)
        self.found = pursued(base[rows], z.shape[1], targets[rows], found) if found else []
        self.middles, self.spreads = np.zeros(1), np.ones(1)
        if not codes:
            wide = self._wide(x)
            self.middles, self.spreads = wide.mean(axis=0), _spread(wide)

    def __call__(self, x: Floats) -> Floats:
        """float64 (n, columns), of any rows."""
        return np.asarray((self._wide(x) - self.middles) / self.spreads)

    def parts(self, x: Floats) -> tuple[Floats, Floats]:
        """All columns of which products are made, numbers first; and the numbers alone."""
        own = x[:, self.numbers]
        z = (np.where(np.isnan(own), self.middle, own) - self.center) / self.scale
        if not self.codes:
            z = np.clip(z, -FAR, FAR)
        marks = [np.isnan(own[:, [j]]).astype(np.float64) for j in self.marked]
        hot = [
            np.column_stack([x[:, [j]] == np.arange(size), np.isnan(x[:, j])])
            for j, size in self.labels
        ]
        return np.column_stack([z, *marks, *(h.astype(np.float64) for h in hot)]), z

    def _wide(self, x: Floats) -> Floats:
        base, z = self.parts(x)
        parts = [base]
        if self.codes and self.labels:
            plain = z.shape[1] + len(self.marked)
            codes = x[:, [j for j, _ in self.labels]]
            parts = [base[:, :plain], np.where(np.isnan(codes), -1.0, codes)]
        parts += [np.maximum(z[:, [j]] - own, 0) for j, own in enumerate(self.knots) if len(own)]
        products = base[:, self.first] * base[:, self.second]
        return np.column_stack([*parts, products, values_of(self.found, base), x[:, self.plain]])


def _spread(x: Floats) -> Floats:
    """Standard deviations of columns; 1 where a column is constant."""
    spread = x.std(axis=0)
    return np.where(spread > 1e-9, spread, 1.0)


def _inner(knots: Floats, column: Floats) -> Floats:
    """The different knots that have values on both sides."""
    return np.unique(knots[(knots > column.min()) & (knots < column.max())])


def _chosen(
    base: Floats, numbers: int, targets: Floats, most: int, squares: bool
) -> tuple[Ints, Ints]:
    """The columns of the products to be made; none of them constant in the training rows."""
    first, second = np.triu_indices(base.shape[1], 0 if squares else 1)
    fine = (first != second) | (first < numbers)
    first, second = first[fine], second[fine]
    if not most or not len(first):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    aim = targets - targets.mean(axis=0)
    worth = np.zeros(len(first))
    for at in range(0, len(first), 500):
        product = base[:, first[at : at + 500]] * base[:, second[at : at + 500]]
        product -= product.mean(axis=0)
        squared = (product**2).sum(axis=0)
        said = ((product.T @ aim) ** 2).sum(axis=1)
        worth[at : at + 500] = np.where(squared > 1e-9, said / np.maximum(squared, 1e-9), -1.0)
    best = np.argsort(-worth, kind="stable")[:most]
    best = np.sort(best[worth[best] >= 0])
    return first[best], second[best]


class Widened:
    """A model over the columns that `Columns` makes; it has the methods of scikit-learn.

    Attributes:
        model: The model over these columns.
        inputs: What the columns are that it is given.
        knots: As in `Columns`.
        pairs: As in `Columns`.
        squares: As in `Columns`.
        codes: As in `Columns`.
        found: As in `Columns`.
    """

    def __init__(
        self, model: Any, inputs: Inputs, knots: int, pairs: int, squares: bool, codes: bool,
        found: int,
    ) -> None:  # fmt: skip
        self.model, self.inputs, self.knots, self.found = model, inputs, knots, found
        self.pairs, self.squares, self.codes = pairs, squares, codes

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What it was made of."""
        names = ("model", "inputs", "knots", "pairs", "squares", "codes", "found")
        own = {name: getattr(self, name) for name in names}
        inner = self.model.get_params(deep=True) if deep else {}
        return own | {f"model__{name}": value for name, value in inner.items()}

    def set_params(self, **values: Any) -> Widened:
        """Change what the model was made of."""
        self.model.set_params(
            **{name.removeprefix("model__"): value for name, value in values.items()}
        )
        return self

    def fit(self, x: Floats, y: NDArray[Any]) -> Widened:
        """Learn the columns and the model."""
        targets = y[:, None] if y.dtype.kind == "f" else (y[:, None] == np.unique(y))
        self._columns = Columns(
            self.inputs, x, targets.astype(np.float64), self.knots, self.pairs, self.squares,
            self.codes, self.found,
        )  # fmt: skip
        self.model.fit(self._columns(x), y)
        return self

    def predict(self, x: Floats) -> Floats:
        """What the model foretells."""
        return np.asarray(self.model.predict(self._columns(x)))

    def predict_proba(self, x: Floats) -> Floats:
        """Probabilities of `classes_`."""
        return np.asarray(self.model.predict_proba(self._columns(x)))

    @property
    def classes_(self) -> NDArray[Any]:
        """The actions that it has seen."""
        return np.asarray(self.model.classes_)


class Ridge:
    """Linear regression whose shrinkage is chosen by generalised cross-validation."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Nothing: it has no settings."""
        return {}

    def set_params(self) -> Ridge:
        """Nothing to set."""
        return self

    def fit(self, x: Floats, y: Floats) -> Ridge:
        """Find the shrinkage and the slopes."""
        self._at, self._mean = x.mean(axis=0), float(y.mean())
        x, y = x - self._at, y - self._mean
        values, vectors = np.linalg.eigh(x.T @ x)
        values, along = np.maximum(values, 0.0), vectors.T @ (x.T @ y)
        fine = values > 1e-9 * max(float(values.max(initial=0.0)), 1e-300)
        values, along, vectors = values[fine], along[fine], vectors[:, fine]
        least, self._slopes = np.inf, np.zeros(x.shape[1])
        for shrinkage in len(y) * 10.0 ** np.arange(-4.0, 1.1, 0.5):
            weight = along / (values + shrinkage)
            left = float(y @ y) - 2 * float(weight @ along) + float(weight**2 @ values)
            loss = left / (1 - float((values / (values + shrinkage)).sum()) / len(y)) ** 2
            if loss < least:
                least, self._slopes = loss, vectors @ weight
        return self

    def predict(self, x: Floats) -> Floats:
        """What it foretells."""
        return np.asarray(self._mean + (x - self._at) @ self._slopes)


@dataclass(frozen=True)
class Nuisance:
    """A kind of model that is fitted to every log over features.

    Attributes:
        name: What it is called in tables and messages, and as an argument.
        of: What it foretells: "actions" (a classifier) or "values" (a regressor); all of a kind are
            weighed against each other.
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


def usual_value_models(inputs: Inputs) -> list[Model]:
    """The models of what follows: all that are registered.

    Args:
        inputs: What the columns are.
    """
    return [one.model(inputs) for one in NUISANCES.values() if one.of == "values"]


SHAPES: dict[str, dict[str, Any]] = {
    "lines": {"codes": False},
    "products": {"pairs": PAIRS, "squares": True, "codes": False},
    "splines": {"knots": 16, "codes": False},
    "functions": {"found": 12, "codes": False},
    "boosting": {"pairs": PAIRS_TREES},
}
"""Shape → the columns that its models get."""


def _classifier(shape: str, inputs: Inputs) -> Any:
    """Boosting is penalised for large steps: with many rare actions it runs away otherwise."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    linear = LogisticRegression(C=0.1, tol=1e-3, max_iter=200)
    model = HistGradientBoostingClassifier(**BOOSTED) if shape == "boosting" else linear
    return inputs.prepared(model, **SHAPES[shape])


def _regressor(shape: str, inputs: Inputs) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(**BOOSTED) if shape == "boosting" else Ridge()
    return inputs.prepared(model, **SHAPES[shape])


BOOSTED = {
    "max_bins": 255, "early_stopping": False, "max_iter": 25, "learning_rate": 0.1,
    "max_leaf_nodes": 8, "l2_regularization": 5.0, "min_samples_leaf": 10,
}  # fmt: skip
"""Few steps and many bins: more steps learn noise, and fewer bins blur where practice changes."""
CLOSER = BOOSTED | {"max_iter": 100, "max_leaf_nodes": 16}
"""More and larger steps: more of the shape of what is foretold, and more noise."""


def closer_values(inputs: Inputs) -> Model:
    """A model of values that is for tests of what people do: less shrunk than is best.

    Args:
        inputs: What the columns are.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(**CLOSER)
    return Model("closer", inputs.prepared(model, **SHAPES["boosting"]))


for _shape, _behavior, _value in (
    ("lines", "logistic", "ridge"),
    ("products", "products", "ridge on products"),
    ("splines", "splines", "ridge on splines"),
    ("functions", "functions", "ridge on functions"),
    ("boosting", "boosting", "boosted values"),
):
    _most = MOST_ROWS_PAIRS if _shape in ("products", "functions") else MOST_ROWS
    register(Nuisance(_behavior, "actions", partial(_classifier, _shape), _most))
    register(Nuisance(_value, "values", partial(_regressor, _shape), _most))


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


def blended(
    models: Sequence[Model], x: Floats, y: Floats, fits: Sequence[Fit], threads: int | None = None
) -> Floats:
    """What several regressors say at held-out rows, weighed, (N,); one alone is as it is.

    The weights are from 0 and minimise held-out squares; they need not add up to 1, so what all
    models shrink is stretched again. Folds go in pairs: the weights of a fold come from the rows of
    its partner, and from models that have seen neither of the two, so nothing at a row comes from
    its own group. (With two folds there are no such models; weights see all rows then.)

    Args:
        models: The regressors; they are copied, not changed.
        x: float64 (N, d), the features of all rows.
        y: float64 (N,), the targets.
        fits: The rounds of fitting.
        threads: How many fits run at a time; the answer does not depend on it. Default None: as
            many as there are cores.
    """
    results = in_threads(value_tasks(models, x, y, fits), threads)
    return weighed_values(models, y, fits, results)


def value_tasks(
    models: Sequence[Model], x: Floats, y: Floats, fits: Sequence[Fit]
) -> list[Callable[[], Floats]]:
    """What is to be done before `weighed_values`; see `blended`."""
    rounds = [*fits, *_pairs(models, fits)]
    return [partial(predicted, model, x, y, fit) for model in models for fit in rounds]


def weighed_values(
    models: Sequence[Model], y: Floats, fits: Sequence[Fit], results: Sequence[Floats]
) -> Floats:
    """The results of `value_tasks`, weighed as `blended` says."""
    K, pairs = len(fits), _pairs(models, fits)
    each = K + len(pairs)
    places = range(0, len(results), each)
    said = np.column_stack([gathered(fits, results[at : at + K]) for at in places])
    if len(models) == 1:
        return said[:, 0]
    from scipy.optimize import nnls

    if not pairs:
        mean = float(y.mean())
        return np.asarray(mean + (said - mean) @ nnls(said - mean, y - mean)[0])
    out = np.empty(len(y))
    for k, fit in enumerate(fits):
        pair = pairs[min(k // 2, len(pairs) - 1)]
        beside = np.column_stack([results[at + K + min(k // 2, len(pairs) - 1)] for at in places])
        partner = ~np.isin(pair.held, fit.held)
        rows = pair.held[partner]
        mean = float(y[rows].mean())
        weights = nnls(beside[partner] - mean, y[rows] - mean)[0]
        out[fit.held] = mean + (said[fit.held] - mean) @ weights
    return out


def _pairs(models: Sequence[Model], fits: Sequence[Fit]) -> list[Fit]:
    """Rounds without two folds each, from which weights come; none for one model or two folds."""
    if len(models) < 2 or len(fits) < 3:
        return []
    firsts = [*range(0, len(fits) - 1, 2), *([len(fits) - 2] if len(fits) % 2 else [])]
    return [
        Fit(
            np.concatenate((fits[k].held, fits[k + 1].held)),
            fits[k].order[np.isin(fits[k].order, fits[k + 1].order)],
            fits[k].group,
            fits[k].seed,
        )
        for k in firsts
    ]


# --- Several models of what people do, weighed by how well they foretell rows they have not seen
#
# With p_m(t) the probability that model m gave to the action taken at row t, held out, the weights
# minimise the held-out log-loss of the mixture,
#
#     w = argmin over the simplex of   L(w) = - 1/N ∑_t ln ∑_m w_m p_m(t)
#
# which is convex. The update w_m ← w_m · mean_t p_m(t) / ∑_k w_k p_k(t) (expectation-maximisation)
# never raises L, and L(w) - min L <= max_m mean_t p_m(t) / mix(t) - 1: it stops when that is below
# `CLOSE`. Nothing is random.
#
# Calibration of probabilities b (N, A): each action at each row is a case; the cases are put into
# ten equal bins of b. Of the cases given about p, did a share p happen? The misplaced probability
# is
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
    _update(np.ascontiguousarray(taken), weights)
    return weights


@compiled
def _update(taken: Floats, weights: Floats) -> None:  # pragma: no cover - compiled
    """Multiply weights (M,) by the mean over rows of what each model gave over what all gave."""
    N, M = taken.shape
    ratio = np.empty(M)
    for _ in range(ROUNDS):
        ratio[:] = 0.0
        for t in range(N):
            mixed = taken[t, 0] * weights[0]
            for m in range(1, M):
                mixed += taken[t, m] * weights[m]
            for m in range(M):
                ratio[m] += taken[t, m] / mixed
        ratio /= N
        if ratio.max() - 1 <= CLOSE:
            break
        weights *= ratio
        weights /= weights.sum()


def sharpened(b: Floats, action: NDArray[Any]) -> Floats:
    """Probabilities b^τ over their sums, with the τ from 1 to 4 of the least held-out log-loss.

    Every model is drawn to the middle, and so is their mixture; one number draws it back.

    Args:
        b: float64 (N, A), held-out probabilities; 0 stays 0.
        action: (N,), the actions taken.
    """
    logs = np.log(np.maximum(b, 1e-300))
    rows, tau = np.arange(len(b)), 1.0
    for _ in range(50):
        raised = b**tau
        raised /= raised.sum(axis=1, keepdims=True)
        mean = (raised * logs).sum(axis=1)
        slope = float((logs[rows, action] - mean).sum())
        bend = float(((raised * logs**2).sum(axis=1) - mean**2).sum())
        if not bend > 1e-9:
            return b
        new = float(np.clip(tau + slope / bend, 1.0, min(2 * tau, 4.0)))
        if abs(new - tau) < 1e-6:
            break
        tau = new
    raised = b**tau
    return b if tau == 1 else np.asarray(raised / raised.sum(axis=1, keepdims=True))


def log_loss(b: Floats, action: NDArray[Any]) -> float:
    """Mean of -ln of the probability of the action taken, in nats per row; smaller is better."""
    return float(-np.log(b[np.arange(len(b)), action]).mean())


def misplaced(b: Floats, action: NDArray[Any]) -> float:
    """Calibration error of probabilities b (N, A): 0 is perfect, 1 is all wrong."""
    place = np.minimum((b * BINS).astype(np.int64), BINS - 1)
    expected = np.bincount(place.ravel(), weights=b.ravel(), minlength=BINS)
    happened = np.bincount(place[np.arange(len(b)), action], minlength=BINS)
    return float(np.abs(happened - expected).sum() / (2 * max(len(b), 1)))
