"""What a log holds, as a file can hold it: labels that would change in a CSV file are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dprl.errors import LogError
from dprl.logs._categories import row_labels
from dprl.logs._columns import MISSING_WORDS, tidy_labels
from dprl.logs.log import Label, Log

__all__ = ["further", "refuse_missing_words", "survives_csv"]


def further(log: Log, kind: str) -> dict[str, Any]:
    """The columns in `also`, as they are written to a file of this kind."""
    assert log.also is not None
    columns: dict[str, Any] = {}
    for j, (name, labels) in enumerate(zip(log.also.names, log.also.levels, strict=True)):
        if labels is None:
            columns[name] = log.also.values[j]
            continue
        if kind == ".csv":
            refuse_missing_words(labels)
        columns[name] = row_labels(labels, log.also.numbers(j))
    return columns


def survives_csv(labels: Sequence[Label]) -> None:
    """Refuse labels that would come back from a CSV file as other labels: CSV has no types."""
    words = [str(label) for label in labels]
    back = tidy_labels(words)
    refuse_missing_words(labels)
    for label, word in zip(labels, words, strict=True):
        if type(back[word]) is not type(label):
            raise _lost_in_csv(label)


def refuse_missing_words(labels: Sequence[Label]) -> None:
    """Refuse labels that a CSV file takes for a missing value."""
    for label in labels:
        if str(label) in MISSING_WORDS:
            raise _lost_in_csv(label)


def _lost_in_csv(label: Label) -> LogError:
    return LogError(
        f"the label {label!r} would not come back from a CSV file as it is.",
        do="Write a .parquet file: it keeps types.",
    )
