r"""Scores of actions at every step, and what they say about a region (for `dprl.Rules`).

With b̂ the probabilities of usual practice and e_t the credit, both from other groups
(`dprl.evidence`), the score of action a at step t is

    ψ_a = (1{a_t = a} - b̂_a) / (b̂_a (1 - b̂_a)) · e_t

Its mean over a region is what doing a there brings over doing otherwise; the mean of
(1 - b̂_a) ψ_a is what it brings over usual practice, which does a now and then already. Where b̂_a or
1 - b̂_a is below `OVERLAP` there is nothing to compare: the score is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.max_t import cluster_parts
from dprl.evidence.credit import credit
from dprl.evidence.nuisances import OVERLAP
from dprl.logs.log import Log
from dprl.policies._rule import Condition

__all__ = ["Proposal", "Scores", "first_actions", "shares"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Proposal: TypeAlias = tuple[tuple[Condition, ...], int]
"""A region and the code of the action that is suggested there."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Some steps of a log with the scores of all actions.

    Attributes:
        log: The log; its states are features.
        rows: int64 (n,), the steps, in increasing order.
        b: float64 (n, A), probabilities of usual practice at these steps.
        psi: float64 (n, A), the scores.
        group: int64 (n,), the group of each step.
        e: float64 (n,), the credit of what was done.
        V: float64 (n,), values of usual practice.
    """

    log: Log
    rows: Ints
    b: Floats
    psi: Floats
    group: Ints
    e: Floats
    V: Floats

    @classmethod
    def of(cls, log: Log, V: Floats, b: Floats, gamma: float, lam: float) -> Scores:
        """The scores of all steps of a log.

        Args:
            log: The log, with N rows and A actions, without cut episodes.
            V: float64 (N,), values of usual practice, from other groups.
            b: float64 (N, A), probabilities of usual practice, from other groups.
            gamma: Discount in (0, 1].
            lam: λ of the credit, in [0, 1].
        """
        e = credit(log, gamma, lam, V)
        taken = np.zeros(b.shape)
        taken[np.arange(log.n_steps), log.action] = 1.0
        group = _group(log)
        fine = (b >= OVERLAP) & (b <= 1 - OVERLAP)
        psi = np.where(fine, (taken - b) / np.where(fine, b * (1 - b), 1.0) * e[:, None], 0.0)
        return cls(log, np.arange(log.n_steps), b, psi, group, e, np.asarray(V, np.float64))

    @property
    def X(self) -> Floats:
        """float64 (n, d), the features of the steps."""
        return np.asarray(self.log.features)[self.rows]

    @property
    def took(self) -> NDArray[np.int32]:
        """int32 (n,), the actions that were taken."""
        return np.asarray(self.log.action[self.rows])

    def of_groups(self, chosen: Bools) -> Scores:
        """The same of the steps of some groups; `chosen` is bool (G,)."""
        return self.at(np.flatnonzero(chosen[self.group]))

    def at(self, places: Ints) -> Scores:
        """The same at some of its steps, by their place among them."""
        return replace(
            self, rows=self.rows[places], b=self.b[places], psi=self.psi[places],
            group=self.group[places], e=self.e[places], V=self.V[places],
        )  # fmt: skip

    def inside(self, conditions: tuple[Condition, ...]) -> Scores:
        """The same of the steps in a region."""
        features, names = np.asarray(self.log.features), self.log.feature_names
        at = np.ones(len(self.rows), bool)
        for c in conditions:
            f = names.index(c.feature)
            at &= c.holds(features[self.rows, f], self.log.levels[f] if self.log.levels else None)
        return self.at(np.flatnonzero(at))

    def groups_with(self, a: int) -> tuple[int, int]:
        """How many groups took an action at these steps, and how many did otherwise."""
        took = self.took == a
        return _different(self.group[took]), _different(self.group[~took])

    def contrast(self, a: int) -> tuple[float, Floats]:
        """What doing a brings over doing otherwise here, and what each group adds to its error."""
        return cluster_parts(self.psi[:, a], self.group, len(self.log.groups))

    def gains(self, a: int) -> Floats:
        """float64 (n,), what doing a brings over usual practice; its mean is what counts."""
        return np.asarray((1 - self.b[:, a]) * self.psi[:, a])

    def balance(self, a: int) -> tuple[str, float]:
        """What differs most between takers of a and others, and by how much.

        The difference of their means, weighted by 1 / b̂ of what they did, in standard deviations of
        the feature at all these steps.
        """
        took = self.took == a
        b = np.clip(self.b[:, a], OVERLAP, 1 - OVERLAP)
        weight = np.where(took, 1 / b, 1 / (1 - b))
        worst, name = 0.0, ""
        for feature, x in self._columns():
            measured = ~np.isnan(x)
            sides = [measured & took, measured & ~took]
            spread = float(x[measured].std()) if measured.any() else 0.0
            if not spread or not all(side.any() for side in sides):
                continue
            one, other = (float(np.average(x[s], weights=weight[s])) for s in sides)
            if abs(one - other) / spread > worst:
                worst, name = abs(one - other) / spread, feature
        return name, worst

    def _columns(self) -> Iterator[tuple[str, Floats]]:
        """Columns to compare: numbers; a label of a category is one of 0 and 1, as is missing."""
        X, categories = self.X, self.log.categories
        for f, feature in enumerate(self.log.feature_names):
            gone = np.isnan(X[:, f])
            if gone.any():
                yield f"{feature} missing", gone.astype(np.float64)
            if feature not in categories:
                yield feature, X[:, f]
                continue
            for code, label in enumerate(categories[feature]):
                yield f"{feature} {label}", np.where(gone, np.nan, X[:, f] == code)

    def overlap(self, a: int) -> float:
        """The share of these steps at which a and its alternatives are likely enough to compare."""
        b = self.b[:, a]
        return float(((b >= OVERLAP) & (b <= 1 - OVERLAP)).mean()) if len(b) else 0.0


def _different(group: Ints) -> int:
    """How many groups there are among these."""
    return int((np.bincount(group) > 0).sum())


def _group(log: Log) -> Ints:
    """int64 (N,), the group of each step."""
    return np.repeat(log.group, log.lengths).astype(np.int64)


def _most_first(log: Log, rows: Ints) -> list[tuple[int, int]]:
    """(action, how many of these steps took it), most first."""
    counts = np.bincount(log.action[rows], minlength=len(log.actions))
    return [(int(a), int(counts[a])) for a in np.argsort(-counts, kind="stable") if counts[a]]


def shares(log: Log, rows: Ints) -> list[list[Any]]:
    """[action, share of these steps that took it], most first."""
    return [[log.actions[a], n / len(rows)] for a, n in _most_first(log, rows)]


def first_actions(log: Log, rows: Ints) -> list[list[Any]]:
    """[action, groups that took it at their first of these steps], most first."""
    first = rows[np.unique(_group(log)[rows], return_index=True)[1]]
    return [[log.actions[a], n] for a, n in _most_first(log, first)]
