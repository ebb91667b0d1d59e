"""Design: what a log knows of a trial: the chances of all arms, and what they are compared with.

In a trial the chance of every arm is known beforehand, the same for all or for all of a stratum. A
log records the chance of the arm that was *given* (`Log.propensity`). The chances of the others
follow where, overall or within one column, each arm has one and the same chance and these add up to
1: then nothing is left to estimate. `all_chances` finds the first such column, of as few strata as
possible: none, the state, the number of the step, then columns of labels or of few numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import numpy as np

from dprl._core.arrays import Floats, Ints, doubles
from dprl._core.table import first_few
from dprl._core.words import option, worded
from dprl.errors import BalanceWarning, LogError, ParameterError
from dprl.logs.censoring import outside

if TYPE_CHECKING:
    from dprl.logs.log import Label, Log

KEPT: Final = ("design", "versus")
"""What is declared of a design, as arguments are called and as columns of a log keep it."""
RANDOMISED: Final = "randomised"
EQUAL: Final = 1e-6
"""Chances that differ by less are one, written differently."""
FAR: Final = 5.0
"""Standard deviations between shares and declared chances, beyond which they do not fit."""
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
                worded("{design=} must be 'randomised'; got {got}.", got=repr(self.kind)),
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
            return _code(self.versus, actions, "versus")
        named = [a for a, label in enumerate(actions) if str(label).strip().casefold() in CONTROLS]
        return named[0] if len(named) == 1 else None


def _code(arm: str, actions: tuple[Label, ...], argument: str) -> int:
    """The code of an arm by its label."""
    for a, label in enumerate(actions):
        if str(label) == arm:
            return a
    raise ParameterError(
        worded("{named} names no arm of this log.", named=option(argument, arm)),
        f"arms are {first_few(map(repr, actions), 8)}",
        "Name one of them.",
        argument=argument,
    )


# --- The chances of all arms


def all_chances(log: Log) -> Floats | None:
    """float64 (N, A), the chance of every action at every row; None where the log does not tell.

    Args:
        log: The log.
    """
    if log.propensity is None or not log.n_steps or np.isnan(log.propensity).any():
        return None
    columns = log.columns.get("chances")
    if columns:
        arms = [columns.get(str(label)) for label in log.actions]
        if all(arms) and _known_names(log).issuperset(arms):
            table = np.column_stack([_values(log, str(name), "chances") for name in arms])
            return np.asarray(table / table.sum(axis=1, keepdims=True))
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
    codes = (
        np.zeros(log.n_steps, np.int64) if not strata else _codes(_values(log, strata, "strata"))
    )
    A = log.n_actions
    n = np.bincount(codes * A + log.action, minlength=(int(codes.max(initial=0)) + 1) * A)
    table = n.reshape(-1, A)
    share = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    return doubles(share[codes, log.action])


def _values(log: Log, name: str, argument: str) -> Floats:
    """float64 (N,), a column by its name: numbers, or codes of labels."""
    if log.state is not None and log.columns.get("state", "state") == name:
        return doubles(log.state)
    if name in log.feature_names:
        return doubles(np.asarray(log.features)[:, log.feature_names.index(name)])
    if log.also is not None and name in log.also.names:
        return log.also.numbers(log.also.names.index(name))
    raise LogError(
        worded("{named}: this log has no such column.", named=option(argument, name)),
        f"columns are {first_few([*log.feature_names, *(log.also.names if log.also else ())], 8)}",
        "Name a column of the state, or one that is read beside it (also).",
    )


def _known_names(log: Log) -> set[str]:
    """The columns that `_values` finds."""
    return {*log.feature_names, *(log.also.names if log.also else ())}


def _labels(log: Log, name: str) -> list[str]:
    """The labels of a column, one per row; whole numbers without a point."""
    values = _values(log, name, "strata")
    if log.state is not None and log.columns.get("state", "state") == name:
        levels: Sequence[Any] | None = log.states
    elif name in log.feature_names:
        levels = (log.levels or (None,) * len(log.feature_names))[log.feature_names.index(name)]
    else:
        assert log.also is not None  # it has been found there
        levels = log.also.levels[log.also.names.index(name)]
    if levels is None:
        return [f"{value:g}" for value in values.tolist()]
    return [str(levels[int(code)]) for code in values]


# --- What was declared when a log is read


def designed(
    log: Log, design: Design, chances: Mapping[str, Any] | Sequence[str] | None, strata: str
) -> Log:
    """The log with its declared design, and the chance of what was given at every row.

    Args:
        log: The log as it was read.
        design: What was declared of the design.
        chances: Arm → its chance, or the column that holds it, or stratum → chance; or the same as
            words ("drug=0.25"). None: as recorded, or, of a trial, shares.
        strata: The column of strata; "" for none.
    """
    if chances is None and not design.declared and not strata:
        return log
    if design.versus:
        design.reference(log.actions)  # refused early
    columns: dict[str, Any] = {**log.columns, **design.declared}
    p = log.propensity
    if chances is not None:
        if p is not None:
            raise ParameterError(
                "the chance of what was given is on record, and chances were given too.",
                worded("{propensity}", propensity=option("propensity", columns["propensity"])),
                "Leave one of them out.",
                argument="chances",
            )
        arms = _by_arm(chances, log)
        table = np.column_stack([_of_arm(log, arms[a], strata) for a in range(log.n_actions)])
        _check_table(log, table)
        p = table[np.arange(log.n_steps), log.action]
        named = {str(log.actions[a]): v for a, v in arms.items() if isinstance(v, str)}
        columns |= {"chances": named} if named else {}
        _check_shares(log, table)
    elif design.kind == RANDOMISED and p is None:
        p = shared_chances(log, strata)
    elif strata:
        raise ParameterError(
            "strata tell the chances of a trial from its shares; here they are on record.",
            worded("{strata}", strata=option("strata", strata)),
            worded("Leave strata out, or say {design}.", design=option("design", RANDOMISED)),
            argument="strata",
        )
    return replace(log, propensity=p, columns=columns)


def _by_arm(chances: Mapping[str, Any] | Sequence[str], log: Log) -> dict[int, Any]:
    """Code of every arm → its chance, column, or chance by stratum."""
    if not isinstance(chances, Mapping):
        words = [chances] if isinstance(chances, str) else chances
        pairs = [str(one).rpartition("=") for one in words]
        chances = {arm: _number(value) for arm, sign, value in pairs if sign}
        if len(chances) < len(words):
            raise ParameterError(
                f"chances are ARM=NUMBER or ARM=COLUMN; got {first_few(map(repr, words), 4)}.",
                do="For example: 'drug=0.25 placebo=0.75'",
                argument="chances",
            )
    arms = {_code(str(arm), log.actions, "chances"): value for arm, value in chances.items()}
    missing = [label for a, label in enumerate(log.actions) if a not in arms]
    if missing:
        raise ParameterError(
            f"chances name {len(arms)} of {log.n_actions} arms.",
            f"no chance of {first_few(map(repr, missing), 4)}",
            "Give the chance of every arm; they add up to 1.",
            argument="chances",
        )
    return arms


def _number(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word


def _of_arm(log: Log, given: Any, strata: str) -> Floats:
    """float64 (N,), the chance of one arm at every row."""
    if isinstance(given, str):
        return _values(log, given, "chances")
    if not isinstance(given, Mapping):
        return np.full(log.n_steps, float(given))
    if not strata:
        raise ParameterError(
            "chances by stratum need the column of strata.",
            repr(dict(given)),
            worded("Name it: {strata='site'}."),
            argument="strata",
        )
    labels = _labels(log, strata)
    known = {str(label): float(value) for label, value in given.items()}
    lacking = sorted({*labels} - {*known})
    if lacking:
        raise ParameterError(
            f"{len(lacking)} strata of {strata!r} have no chances.",
            first_few(map(repr, lacking), 4),
            "Give the chance of every arm in every stratum.",
            argument="chances",
        )
    return np.array([known[label] for label in labels])


def _check_table(log: Log, table: Floats) -> None:
    """Refuse chances that do not add up to 1, or that deny what was done."""
    with np.errstate(invalid="ignore"):
        bad = ~(
            (table >= 0).all(axis=1) & (np.abs(table.sum(axis=1) - 1) <= EQUAL * table.shape[1])
        )
    if bad.any():
        row = int(bad.argmax())
        raise LogError(
            f"chances of arms do not add up to 1 on {int(bad.sum()):,} of {log.n_steps:,} rows.",
            f"row {row}: {table[row].tolist()}, sum {table[row].sum():.6g}",
            "Give the chance of every arm, at least 0 each.",
        )
    never = table[np.arange(log.n_steps), log.action] <= 0
    if never.any():
        label = log.actions[log.action[int(never.argmax())]]
        raise LogError(
            f"{int(never.sum()):,} of {log.n_steps:,} rows took an arm whose chance is 0.",
            f"arm {label!r}",
            "Mend the chances, or the arms.",
        )


def _check_shares(log: Log, table: Floats) -> None:
    """Warn where an arm was given far more or less often than its chance says."""
    for a, label in enumerate(log.actions):
        p = table[:, a]
        taken, expected = int((log.action == a).sum()), float(p.sum())
        spread = float(np.sqrt((p * (1 - p)).sum()))
        if abs(taken - expected) > FAR * max(spread, 1e-9):
            warnings.warn(
                worded(
                    "{arm} was given on {taken:.1%} of rows, and the chances say {expected:.1%}: "
                    "are these the chances with which it was given?",
                    arm=repr(label), taken=taken / log.n_steps, expected=expected / log.n_steps,
                ),
                BalanceWarning, stacklevel=outside(),
            )  # fmt: skip
            return
