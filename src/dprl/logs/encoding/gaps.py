"""Gaps: what is done about missing values, column by column, and where they are.

Five words say what to do: "error" refuses them (features may have gaps, which `dprl.Rules` gives a
side of their own), "drop-episodes" leaves such episodes out, "median" fills a number by the median
of the training log, and "flag" fills it too and adds a column of 0 and 1, "lactate missing". A
category that is flagged gets one label more, "missing". "zero" is for the reward alone: a missing
one is 0 (`dprl.logs.checking.rows`). So is "weights": a missing one is completed, from who was
measured (`dprl.logs.unseen`).

Words are declared when a log is read (`log.columns["missing"]`). Medians are of the training log
alone: they are taken when a learner encodes its log (`dprl.logs.encoding.encoder`), and a policy
keeps them for every later row.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from dprl._core.arrays import Bools, Floats
from dprl._core.words import either, worded
from dprl.errors import LogError, ParameterError
from dprl.logs.log import Log
from dprl.logs.roles import NAMES

Word: TypeAlias = Literal["error", "drop-episodes", "flag", "median", "weights", "zero"]
Missing: TypeAlias = Word | Mapping[str, Word]
WORDS = ("error", "drop-episodes", "flag", "median", "weights", "zero")
OF_REWARD = {"zero": "0.", "weights": "weighted for."}
"""Words for the reward alone, and what they make of one that is missing."""
GONE = "missing"
"""The label of a value that is missing, where it is flagged."""


@dataclass(frozen=True)
class Fill:
    """What stands for the missing values of one column.

    Attributes:
        how: "flag" or "median".
        value: The median of the training log; None for a category.
        share: The share of rows of the training log on which the column was missing.
    """

    how: Literal["flag", "median"]
    value: float | None
    share: float

    def to_dict(self) -> dict[str, Any]:
        """As values that JSON can carry."""
        return {"how": self.how, "value": self.value, "share": self.share}

    @property
    def marks(self) -> bool:
        """Whether a number gets a column that says where it was missing."""
        return self.how == "flag" and self.value is not None and self.share > 0


def is_gone(value: Any) -> bool:
    """Whether a value stands for a gap: None, NaN, NaT, pandas' NA and the empty text."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, str):
        return value == ""
    return isinstance(value, float | np.floating | np.datetime64) and bool(value != value)


# -- what was declared ---------------------------------------------------------------------------


def missing_words(missing: Any, names: Mapping[str, Any]) -> dict[str, Word]:
    """What to do about gaps, by column; columns without an entry refuse them.

    Args:
        missing: One word; or a mapping from columns, or patterns of them, to words. A column's own
            name counts more than a pattern, and a pattern more than one that comes later.
        names: Part → name of the source's column; for features and some actions → a list.

    Raises:
        ParameterError: If it is no such word, or a column that cannot be filled is to be.
    """
    part_of = {
        name: part
        for part, own in names.items()
        if part in NAMES
        for name in (own if isinstance(own, list) else [own])
        if isinstance(name, str)
    }
    given = {"*": missing} if isinstance(missing, str) else missing
    if not isinstance(given, Mapping):
        raise _no_word(missing)
    parts = names.get("parts") or ()  # what a sum is made of is missing where the sum is
    given = {names["reward"] if one in parts and one not in part_of else one: word
             for one, word in given.items()}  # fmt: skip
    for column, word in given.items():
        if word not in WORDS:
            raise _no_word(word)
        pattern = isinstance(column, str) and any(ch in column for ch in "*?[")
        if (
            column not in part_of
            and column != "*"
            and not (pattern and fnmatch.filter(part_of, column))
        ):
            near = difflib.get_close_matches(str(column), part_of, n=1)
            raise ParameterError(
                f"missing says what to do about {column!r}, which is no column of this log.",
                f"its columns: {', '.join(list(part_of)[:12])}",
                f"Did you mean {near[0]!r}?" if near else "Name a column of the log.",
            )
        if column in part_of and part_of[column] != "state" and word in ("flag", "median"):
            raise ParameterError(
                f"{column!r} is the log's {part_of[column]}, which cannot be filled: {word!r} is "
                "for columns of the state.",
                f"missing {column}={word}",
                worded(
                    "Say {choice}, or mend the log.",
                    choice=either(
                        f'missing={{"{column}": "drop-episodes"}}',
                        f"--missing {column}=drop-episodes",
                    ),
                ),
            )
        if column in part_of and part_of[column] != "reward" and word in OF_REWARD:
            raise ParameterError(
                f"{column!r} is the log's {part_of[column]}, and only a missing reward can be "
                + OF_REWARD[word],
                f"missing {column}={word}",
                f"Say {word} for the column of the reward, and another word for this one.",
            )
    words: dict[str, Word] = {}
    for column, part in part_of.items():
        patterns = [p for p in given if fnmatch.fnmatchcase(column, p)]
        asked: Any = given.get(column) or (given[patterns[0]] if patterns else "error")
        if asked in ("flag", "median") and part != "state":
            asked = "error"
        if asked in OF_REWARD and part != "reward":
            asked = "error"
        if asked != "error":
            words[column] = asked
    return words


def _no_word(word: Any) -> ParameterError:
    return ParameterError(
        f"missing must be one of {', '.join(map(repr, WORDS))}, or a mapping from columns to these "
        f"words; got {word!r}.",
        do=worded(
            "{missing='flag'}, or {choice}.",
            choice=either(
                'missing={"*": "median", "ward": "flag"}', "--missing median --missing ward=flag"
            ),
        ),
    )


def refuse_medians(words: Mapping[str, str], labels: list[str]) -> None:
    """Refuse "median" for columns of labels: most labels have no order, so nothing is in between.

    Args:
        words: What to do about gaps, by column.
        labels: The columns of the state that hold labels, truth values among them.
    """
    wrong = [name for name in labels if words.get(name) == "median"]
    if wrong:
        raise LogError(
            f"{wrong[0]!r} holds labels, which have no median.",
            f"columns of labels: {', '.join(map(repr, labels[:8]))}",
            worded(
                "Give missing ones a label of their own: {choice}.",
                choice=either(
                    f'missing={{"*": "median", "{wrong[0]}": "flag"}}',
                    f"--missing median --missing {wrong[0]}=flag",
                ),
            ),
        )


def label_taken(name: str, gaps: int, where: str) -> LogError:
    """The error that a column of states has the label that stands for its gaps already."""
    return LogError(
        f"{name!r} has a label {GONE!r} and {gaps:,} gaps, which would get the same label.",
        where,
        "Rename the label, or leave its cells empty.",
    )


def whole_numbers(name: str, gaps: int, where: str) -> LogError:
    """The error that a column of states holds whole numbers, and its gaps would be text."""
    return LogError(
        f"{name!r} holds whole numbers, and its {gaps:,} gaps would get a label that is text.",
        where,
        worded(
            "Say that its numbers are labels: {choice}.",
            choice=either(
                f"state=[{name!r}], categorical=[{name!r}]", f"--state {name} --categorical {name}"
            ),
        ),
    )


# -- fitted to a log -----------------------------------------------------------------------------


def median(values: Floats) -> float:
    """The value in the middle; of an even number the mean of the two in the middle.

    It is exact, and does not depend on the order of the values.

    Args:
        values: float64 (k,), k >= 1, none missing.
    """
    middle = len(values) // 2
    ordered = np.partition(values, [middle - 1, middle] if middle else [middle])
    high = float(ordered[middle])
    if len(values) % 2:
        return high + 0.0  # never -0.0
    low = float(ordered[middle - 1])
    total = low + high
    return (total / 2 if np.isfinite(total) else low / 2 + high / 2) + 0.0


def fitted_fills(log: Log) -> dict[str, Fill]:
    """What fills the gaps of each feature that is flagged or filled, from this log alone.

    Raises:
        LogError: If a number is missing on every row, so that it has no median.
    """
    words: Mapping[str, str] = log.columns.get("missing", {})
    fills: dict[str, Fill] = {}
    if log.features is None:
        return fills
    levels = log.levels or (None,) * len(log.feature_names)
    for j, (name, own) in enumerate(zip(log.feature_names, levels, strict=True)):
        how = words.get(name)
        if how not in ("flag", "median"):
            continue
        word: Literal["flag", "median"] = "flag" if how == "flag" else "median"
        column = log.features[:, j]
        share = float(log.missing[j]) / log.n_steps if log.n_steps else 0.0
        if own is not None:
            refuse_medians(words, [name])
            fills[name] = Fill(word, None, share)
            continue
        present = column[~np.isnan(column)]
        if not len(present):
            raise LogError(
                f"the feature {name!r} is missing on all {log.n_steps:,} rows of the training log, "
                "so it has no median.",
                do="Leave it out of the state.",
            )
        fills[name] = Fill(word, median(present), share)
    return fills


# -- where gaps are ------------------------------------------------------------------------------


def gap_counts(log: Log) -> dict[str, Any] | None:
    """On how many rows each column of the state is missing, by the action taken; None if nowhere.

    Returns:
        "rows" (of the log), "actions" (label, number of rows) and "columns" (name → number of rows
        on which it is missing, per action).
    """
    kept = log.columns.get("gaps")
    if isinstance(kept, Mapping):  # of the log before its gaps were filled
        return dict(kept) if kept.get("rows") == log.n_steps else None
    columns: dict[str, list[int]] = {}

    def add(name: str, rows: Bools) -> None:
        columns[name] = np.bincount(log.action[rows], minlength=log.n_actions).tolist()

    if log.features is not None:
        for j in np.flatnonzero(log.missing).tolist():
            add(log.feature_names[j], np.isnan(log.features[:, j]))
    elif isinstance(log.columns.get("state"), str) and GONE in log.states:
        name = log.columns["state"]
        if log.columns.get("missing", {}).get(name) == "flag":
            add(name, log.codes() == log.states.index(GONE))
    if not columns:
        return None
    taken = np.bincount(log.action, minlength=log.n_actions).tolist()
    return {
        "rows": log.n_steps,
        "actions": [[label, n] for label, n in zip(log.actions, taken, strict=True)],
        "columns": columns,
    }


def gap_shares(counts: Mapping[str, Any]) -> list[tuple[str, float, list[float | None]]]:
    """Each column of `gap_counts`, the most often missing first: its share, and that by action.

    The share of an action that was never taken is None.
    """
    taken = [n for _, n in counts["actions"]]
    shares = [
        (
            name,
            sum(gone) / counts["rows"],
            [g / n if n else None for g, n in zip(gone, taken, strict=True)],
        )
        for name, gone in counts["columns"].items()
    ]
    return sorted(shares, key=lambda share: -share[1])
