"""Outcomes that were not seen are completed without bias, so that any learner and judge takes them.

Of some rows the outcome Y is unknown: nobody measured it (``missing={"cd4_96": "weights"}``), or
the patient was censored before the horizon (`dprl.logs.survival`). Leaving such rows out compares
those who stayed. Instead every row gets a number Y* whose mean, given state x and action a, is that
of Y. Where R says whether Y was measured, π(x, a) is the chance of that and m(x, a) the mean of Y,

    Y* = m(x, a) + R (Y - m(x, a)) / π(x, a),      E[Y* | x, a] = E[Y | x, a]

if π or m is right (augmented inverse-probability weights: Robins, Rotnitzky & Zhao 1994; as a
transformation of outcomes: Rubin & van der Laan 2007). Errors of π and m enter only as their
product, so that intervals which take Y* as it is hold for large samples. A single Y* may lie
outside of what Y can be; means of many do not, but for chance. What is assumed, and said: given
state and action, whether Y was seen has nothing to do with Y.

**Models** are cross-fitted by group: those of a group come from the other folds. Two candidates are
tried, one that is linear in features, their squares and their products with the action, and boosted
trees; the one that tells held-out rows better is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from scipy import sparse

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.optional import single_thread
from dprl._core.table import many
from dprl.errors import LogError
from dprl.logs.censoring import SMALL, STEPS, folds_of, indicators, of_features
from dprl.logs.checking.findings import Finding
from dprl.logs.log import Log
from dprl.logs.source import unseen_words

Family = Literal["hazard", "chance", "mean"]
SMALLEST: Final = 0.02
"""The smallest chance to be seen that a weight is made of."""
CELL: Final = 10
"""Rows from which on an action (in a state) must have been measured: `LEAST` times, and 10 %."""
LEAST: Final = 5
"""The fewest outcomes that stand for others of the same action (and state)."""
FEW_ROWS: Final = 10
"""As many rows, or 1 % if that is more, may have a chance below `SMALL` to be measured."""
ENOUGH: Final = 60
"""Events, or rows of the rarer kind, from which on boosted trees are tried."""
MANY: Final = 0.05
"""With a larger share of outcomes unseen, a warning is given."""
MOST: Final = 50
"""Labels of a column that are compared at most."""
COLUMNS: Final = 200
"""Columns up to which features are multiplied by actions."""
OWN: Final = 300
"""Rows of an action from which on such products count in full: few make no model of their own."""

# --- Two candidates of a model, and the one that tells held-out rows better


@dataclass(frozen=True)
class Inputs:
    """What models know of rows: one sparse table for linear ones, one with gaps for trees.

    Attributes:
        linear: (n, p), features in units of their spread, squares, actions, and their products.
        trees: (n, q), the features as they are, and the action; None where states are labels.
    """

    linear: sparse.csr_array
    trees: Floats | None

    @classmethod
    def of(cls, log: Log) -> Inputs:
        """What is known of every row of a log when its action is chosen, and the action."""
        step = np.arange(log.n_steps) - np.repeat(log.starts[:-1], log.lengths)
        parts: list[Any] = [indicators(log.action)]
        if step.any():
            parts.append(indicators(np.minimum(step, STEPS)))
        if log.features is None:
            state = log.codes().astype(np.int64)
            parts += [indicators(state), indicators(state * log.n_actions + log.action)]
            return cls(sparse.csr_array(sparse.hstack(parts, format="csr")), None)
        own = sparse.csr_array(sparse.hstack(of_features(log), format="csr"))
        parts.append(own)
        if own.shape[1] * log.n_actions <= COLUMNS:
            rows = np.bincount(log.action, minlength=log.n_actions)
            for a in np.flatnonzero(rows):
                if a != np.argmax(rows):  # of which the others differ
                    mine = (log.action == a) * min(1.0, rows[a] / OWN)
                    parts.append(own.multiply(mine[:, None]))
        linear = sparse.csr_array(sparse.hstack(parts, format="csr"))
        return cls(linear, np.column_stack([log.features, log.action, step]))

    def at(self, rows: Ints | Bools) -> Inputs:
        """Those of some rows."""
        return Inputs(self.linear[rows], None if self.trees is None else self.trees[rows])

    def beside(self, codes: Ints) -> Inputs:
        """With one more thing that is known, a small whole number, such as a part of the time."""
        ones = sparse.csr_array(
            (np.ones(len(codes)), (np.arange(len(codes)), codes)),
            shape=(len(codes), int(codes.max(initial=0)) + 1),
        )
        trees = None if self.trees is None else np.column_stack([self.trees, codes])
        return Inputs(sparse.csr_array(sparse.hstack([self.linear, ones], format="csr")), trees)


def _linear(family: Family, x: Inputs, y: Floats, w: Floats) -> Callable[[Inputs], Floats]:
    from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

    if family == "chance":
        model: Any = LogisticRegression(C=1.0, max_iter=500).fit(x.linear, y)
        return lambda ask: np.asarray(model.predict_proba(ask.linear)[:, 1], np.float64)
    if family == "mean":
        model = Ridge(alpha=1.0).fit(x.linear, y)
        low, high = y.min(), y.max()
        return lambda ask: np.clip(model.predict(ask.linear), low, high)
    model = PoissonRegressor(alpha=1 / w.sum(), max_iter=300)
    model.fit(x.linear, y / w, sample_weight=w)
    return lambda ask: np.asarray(model.predict(ask.linear), np.float64)


def _trees(family: Family, x: Inputs, y: Floats, w: Floats) -> Callable[[Inputs], Floats]:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    how: dict[str, Any] = {
        "max_iter": 60, "learning_rate": 0.08, "max_leaf_nodes": 8, "min_samples_leaf": 30,
        "early_stopping": False, "random_state": 0,
    }  # fmt: skip
    if family == "chance":
        model: Any = HistGradientBoostingClassifier(**how).fit(x.trees, y)
        return lambda ask: np.asarray(model.predict_proba(ask.trees)[:, 1], np.float64)
    if family == "mean":
        model = HistGradientBoostingRegressor(**how).fit(x.trees, y)
    else:
        model = HistGradientBoostingRegressor(loss="poisson", **how)
        model.fit(x.trees, y / w, sample_weight=w)
    return lambda ask: np.asarray(model.predict(ask.trees), np.float64)


def _loss(family: Family, y: Floats, w: Floats, p: Floats) -> float:
    """How badly predictions tell what is held out."""
    if family == "mean":
        return float(((y - p) ** 2).mean())
    if family == "chance":
        p = np.clip(p, 1e-6, 1 - 1e-6)
        return float(-(y * np.log(p) + (1 - y) * np.log(1 - p)).mean())
    return float((w * p - y * np.log(np.maximum(p, 1e-12))).mean())


def cross_fitted(
    family: Family, x: Inputs, y: Floats, fold: Ints, ask: Inputs, weight: Floats | None = None
) -> list[Floats]:
    """For every fold, what a model of the other folds says of the rows in `ask`.

    Args:
        family: "chance" (y is 0 or 1), "mean", or "hazard" (y counts events in a time `weight`).
        x: What is known of the rows that are learned from.
        y: (n,), what came.
        fold: (n,), the fold of each row, from 0.
        ask: What is known of the rows that are asked about.
        weight: (n,), the time at risk, above 0. Default None: 1.
    """
    folds = range(int(fold.max(initial=0)) + 1)
    w = np.ones(len(y)) if weight is None else weight
    if family == "hazard":
        w = w * (y.sum() / w.sum() if y.any() else 1.0)  # hazards are about 1
    rare = float(min(y.sum(), (len(y) - y.sum()) if family == "chance" else np.inf))
    fits = [_linear]
    if x.trees is not None and (len(y) if family == "mean" else rare) >= ENOUGH and len(folds) > 1:
        fits.append(_trees)

    def learned(fit: Any, others: Bools) -> Callable[[Inputs], Floats]:
        own = y[others]
        if not len(own) or own.min() == own.max():
            same = float(own[0]) if len(own) else 0.0
            return lambda rows: np.full(len(rows.linear.indptr) - 1, same)
        answer: Callable[[Inputs], Floats] = fit(family, x.at(others), own, w[others])
        return answer

    with single_thread(None):
        if len(fits) > 1:
            held = fold == 0
            losses = [
                _loss(family, y[held], w[held], learned(fit, ~held)(x.at(held))) for fit in fits
            ]
            fits = [fits[int(np.argmin(losses))]]
        every = np.ones(len(y), bool)
        return [learned(fits[0], fold != k if len(folds) > 1 else every)(ask) for k in folds]


# --- Outcomes that nobody measured

SEEN: Final = "measured"
"""The column of a log (`Log.more`) that has rewards as they were measured, NaN where not."""


def completed(log: Log) -> Log:
    """The log in which rewards that were not measured are completed.

    Args:
        log: A log whose missing rewards are 0, and whose column `SEEN` is NaN there.
    """
    seen = ~np.isnan(log.more[SEEN])
    if seen.all():
        return replace(log, more={k: v for k, v in log.more.items() if k != SEEN})
    if not seen.any() or len(log.groups) < 2:
        raise LogError(
            "the reward is missing on every row, or there is one group alone: nothing tells what "
            "was not measured.",
            do="Read more groups.",
        )
    fold = folds_of(log)
    might = np.ones(log.n_steps, bool)
    last = np.zeros(log.n_steps, bool)
    last[log.starts[1:] - 1] = True
    if not (~seen & ~last).any():  # outcomes stand at the end, and what is before them is known
        might = last
    _refuse_unmeasured(log, might, seen)
    x = Inputs.of(log)
    known, pi = seen & might, np.ones(log.n_steps)
    chances = cross_fitted("chance", x.at(might), seen[might].astype(float), fold[might], x)
    for k, chance in enumerate(chances):
        pi[(fold == k) & might] = chance[(fold == k) & might]
    hardly = might & (pi < SMALL)
    if hardly.sum() > max(FEW_ROWS, might.sum() / 100):
        _refuse(log, hardly, might, seen, f"with a chance below {SMALL:g} as predicted")
    weight = np.where(seen, 1 / np.maximum(pi, SMALLEST), 0.0)
    means = cross_fitted("mean", x.at(known), log.reward[known], fold[known], x)
    reward = log.reward.copy()
    for k, mean in enumerate(means):
        own = ((fold == k) if k < len(means) - 1 else (fold >= k)) & might
        reward[own] = mean[own] + weight[own] * (reward[own] - mean[own])
    facts = {"rows": int((~seen).sum()), **_apart(log, might, seen, weight)}
    return replace(log, reward=reward, columns={**log.columns, "unseen": facts})


def unseen_in(log: Log) -> int:
    """How many outcomes of a completed log, or of a part of one, were not seen."""
    if SEEN in log.more:
        return int(np.isnan(log.more[SEEN]).sum())
    first = log.starts[:-1]
    early = log.more["duration"][first] < float(log.columns["horizon"])
    return int((early & (log.more["status"][first] == 0)).sum())


def _refuse_unmeasured(log: Log, might: Bools, seen: Bools) -> None:
    """Refuse an action, or an action in a state, whose outcome (hardly) anybody measured."""
    cells = [log.action.astype(np.int64)]
    if log.features is None:
        cells.append(log.codes().astype(np.int64) * log.n_actions + log.action)
    for cell in cells:
        n = np.bincount(cell[might])
        got = np.bincount(cell[might & seen], minlength=len(n))
        bad = np.flatnonzero((n >= CELL) & (got < np.minimum(n, np.maximum(LEAST, n / 10))))
        if len(bad):
            rows = might & (cell == bad[np.argmin(got[bad] / n[bad])])
            state = f" in state {log.states[log.codes()[rows][0]]!r}" if cell is cells[-1] and (
                log.features is None
            ) else ""  # fmt: skip
            _refuse(log, rows, might, seen, f"with {log.actions[log.action[rows][0]]!r}{state}")


def _refuse(log: Log, rows: Bools, might: Bools, seen: Bools, whose: str) -> None:
    """Raise the error that hardly any outcome of some rows was measured."""
    row = int(np.argmax(rows))
    episode = log.episodes[int(np.searchsorted(log.starts, row, "right")) - 1]
    raise LogError(
        f"the outcome was measured on {int(seen[rows].sum()):,} of {many(int(rows.sum()), 'row')} "
        f"{whose}: nothing tells what came of {log.actions[log.action[row]]!r} there.",
        f"episode {episode!r}; of all, {int(seen[might].sum()):,} of {int(might.sum()):,} measured",
        "Leave that action, or who is in that state, out of the table, or take an outcome that was "
        "measured there.",
    )


def _apart(log: Log, might: Bools, seen: Bools, weight: Floats) -> dict[str, Any]:
    """The column in which those measured differ most from all, before and after weighting."""
    found = [("", 0.0, 0.0)]
    levels, w = log.levels or (None,) * len(log.feature_names), weight[might]
    columns = list(zip(log.feature_names, levels, np.transpose(log.features), strict=True)) if (
        log.features is not None
    ) else [(str(log.columns.get("state", "state")), log.states, log.codes())]  # fmt: skip
    for name, labels, column in columns:
        values = column[might]
        for code, label in enumerate((labels or ("",))[:MOST]):
            x = (values == code) * 1.0 if labels else np.where(np.isnan(values), 0.0, values)
            middle, spread = x.mean(), float(x.std()) or 1.0
            before = float((x[seen[might]].mean() - middle) / spread)
            after = float((np.average(x, weights=w) - middle) / spread)
            found.append((f"{name}={label}" if labels else name, before, after))
    column, before, after = max(found, key=lambda one: abs(one[1]))
    return {"column": column, "before": before, "after": after} if column else {}


def weights_finding(log: Log) -> Finding | None:
    """How many outcomes were not measured, by action, and what is done about it."""
    if SEEN not in log.more:
        return None
    gone, n = np.isnan(log.more[SEEN]), np.bincount(log.action, minlength=log.n_actions)
    by_arm = np.bincount(log.action[gone], minlength=log.n_actions)
    facts = log.columns.get("unseen", {})
    apart = (
        ""
        if "column" not in facts
        else (
            f" Those measured differ from all most in {facts['column']!r}: by "
            f"{facts['before']:+.2f} standard deviations, and by "
            f"{facts['after']:+.2f} once weighted."
        )
    )
    return Finding(
        "warning" if gone.mean() > MANY else "note",
        "unmeasured",
        f"the outcome was not measured on {many(int(gone.sum()), 'row')} of {log.n_steps:,}: "
        f"{by_action(log, by_arm, n)}.{apart}",
        do=unseen_words(log.columns),
    )


def by_action(log: Log, part: Ints, whole: Ints) -> str:
    """Counts by action as words: "zidovudine 50 of 532 (9.4%)"."""
    words = [
        f"{label} {int(part[a]):,} of {int(whole[a]):,} ({part[a] / whole[a]:.1%})"
        for a, label in enumerate(log.actions)
        if whole[a]
    ]
    return ", ".join(words[:12]) + (f" and {len(words) - 12} more" if len(words) > 12 else "")
