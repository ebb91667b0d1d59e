"""Design: what a log knows of a trial: the chances of all arms, and what they are compared with.

In a trial the chance of every arm is known beforehand, the same for all or for all of a stratum. A
log records the chance of the arm that was *given* (`Log.propensity`). The chances of the others
follow where, overall or within one column, each arm has one and the same chance and these add up to
1: then nothing is left to estimate. `all_chances` finds the first such column, of as few strata as
possible: none, the state, the number of the step, then columns of labels or of few numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import numpy as np

from dprl._core.arrays import Floats, Ints, doubles
from dprl._core.table import first_few
from dprl._core.words import option, worded
from dprl.errors import LogError, ParameterError

if TYPE_CHECKING:
    from dprl.logs.log import Label, Log

KEPT: Final = ("design", "versus")
"""What is declared of a design, as arguments are called and as columns of a log keep it."""
RANDOMISED: Final = "randomised"
EQUAL: Final = 1e-6
"""Chances that differ by less are one, written differently."""
FEW: Final = 20
"""Columns of numbers with at most so many values may be strata."""
CONTROLS: Final = frozenset({
    "placebo", "control", "controls", "sham", "usual care", "standard care", "standard of care",
    "no treatment", "untreated", "none",
})  # fmt: skip
"""Names of arms that are what the others are compared with."""


@dataclass(frozen=True)
class Design:
    """How actions were given, as far as somebody declared it.

    Attributes:
        kind: "randomised", or "" where nobody said it.
        versus: The arm that the others are compared with; "" for usual practice, or for the arm
            whose name says that it is a control.

    Example:
        >>> Design("randomised", "placebo").declared
        {'design': 'randomised', 'versus': 'placebo'}
    """

    kind: Literal["", "randomised"] = ""
    versus: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ("", RANDOMISED):
            raise ParameterError(
                worded("{design} must be 'randomised'; got {got}.", design=option("design"),
                       got=repr(self.kind)),
                do="Leave it out where actions were not given by lot.",
                argument="design",
            )  # fmt: skip

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Design:
        """The design that is declared with the columns of a log."""
        return cls(cast("Any", columns.get("design") or ""), str(columns.get("versus") or ""))

    @property
    def declared(self) -> dict[str, str]:
        """What was declared, as columns keep it; empty where nothing was."""
        both = {"design": self.kind, "versus": self.versus}
        return {what: value for what, value in both.items() if value}

    def reference(self, actions: tuple[Label, ...]) -> int | None:
        """The code of the arm that others are compared with; None for usual practice.

        Args:
            actions: The labels of the arms.

        Raises:
            ParameterError: There is no such arm.
        """
        if self.versus:
            return _code(self.versus, actions)
        named = [a for a, label in enumerate(actions) if str(label).strip().casefold() in CONTROLS]
        return named[0] if len(named) == 1 else None


def _code(versus: str, actions: tuple[Label, ...]) -> int:
    """The code of an arm by its label."""
    for a, label in enumerate(actions):
        if str(label) == str(versus):
            return a
    raise ParameterError(
        worded("{versus} names no arm of this log.", versus=option("versus", versus)),
        f"arms are {first_few(map(repr, actions), 8)}",
        "Name one of them; leave it out to compare with usual practice.",
        argument="versus",
    )


# --- The chances of all arms


def all_chances(log: Log) -> Floats | None:
    """float64 (N, A), the chance of every action at every row; None where the log does not tell.

    Args:
        log: The log.
    """
    if log.propensity is None or not log.n_steps or np.isnan(log.propensity).any():
        return None
    action, A = log.action.astype(np.int64), log.n_actions
    for strata in _strata(log):
        k = int(strata.max()) + 1
        low, high = np.full(k * A, np.inf), np.full(k * A, -np.inf)
        np.minimum.at(low, strata * A + action, log.propensity)
        np.maximum.at(high, strata * A + action, log.propensity)
        seen = np.isfinite(low)
        if (high[seen] - low[seen] > EQUAL).any():
            continue
        table = np.where(seen, high, 0.0).reshape(k, A)
        total = table.sum(axis=1)
        if (np.abs(total - 1) <= EQUAL * A).all():
            return np.asarray((table / total[:, None])[strata])
    return None


def _strata(log: Log) -> Iterator[Ints]:
    """int64 (N,), codes from 0: one stratum, then the labels of one column each."""
    yield np.zeros(log.n_steps, np.int64)
    if log.state is not None:
        yield _codes(log.state)
    if log.lengths.max(initial=1) > 1:
        yield np.arange(log.n_steps) - np.repeat(log.starts[:-1], log.lengths)
    for column, labels in _columns(log):
        if labels or len(np.unique(column[:1_000])) <= FEW:
            codes = _codes(column)
            if labels or int(codes.max()) < FEW:
                yield codes


def _columns(log: Log) -> Iterator[tuple[Floats, bool]]:
    """The further columns (N,), and whether they hold labels."""
    if log.features is not None:
        levels = log.levels or (None,) * len(log.feature_names)
        yield from ((x, own is not None) for x, own in zip(log.features.T, levels, strict=True))
    if log.also is not None:
        for j, own in enumerate(log.also.levels):
            yield log.also.numbers(j), own is not None


def _codes(column: Any) -> Ints:
    return np.asarray(np.unique(column, return_inverse=True)[1].reshape(-1), np.int64)


def shared_chances(log: Log, strata: str = "") -> Floats:
    """float64 (N,), the share of its stratum that was given what a row was given.

    For a trial whose chances nobody wrote down: they are the same for all of a stratum, so the
    shares tell them.

    Args:
        log: The log.
        strata: The column of strata: in the state, or beside it. Default "": all are one.

    Raises:
        LogError: There is no such column.
    """
    codes = np.zeros(log.n_steps, np.int64) if not strata else _named(log, strata)
    A = log.n_actions
    n = np.bincount(codes * A + log.action, minlength=(int(codes.max(initial=0)) + 1) * A)
    table = n.reshape(-1, A)
    share = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    return doubles(share[codes, log.action])


def _named(log: Log, name: str) -> Ints:
    """Codes of a column by its name."""
    if log.state is not None and log.columns.get("state", "state") == name:
        return _codes(log.state)
    if name in log.feature_names:
        return _codes(np.asarray(log.features)[:, log.feature_names.index(name)])
    if log.also is not None and name in log.also.names:
        return _codes(log.also.numbers(log.also.names.index(name)))
    raise LogError(
        worded("{strata}: this log has no such column.", strata=option("strata", name)),
        f"columns are {first_few([*log.feature_names, *(log.also.names if log.also else ())], 8)}",
        "Name a column of the state, or one that is read beside it (also).",
    )
