"""A policy's suggestions for a file of states, and the file written again with one on every row."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from dprl._core.disk import replacing
from dprl._core.table import harmless
from dprl.errors import LogError
from dprl.logs._dates import on_day
from dprl.logs._table_file import TableFile
from dprl.logs._text import Text
from dprl.policies._decisions import DEFER
from dprl.policies._protocol import Policy

__all__ = ["Answered", "answer"]


class Answered:
    """States with their answers, ready to be written in the order they came.

    `guessed` names the only column of the file, where it was taken for the states although it has
    another name.
    """

    def __init__(
        self, table: TableFile, states: list[Any], answers: list[Any], unknown: int, guessed: str
    ) -> None:
        self.table, self.states, self.answers, self.unknown = table, states, answers, unknown
        self.guessed = guessed

    def counts(self) -> dict[str, int]:
        """Rows, rows deferred, and rows whose state the policy never saw."""
        deferred = sum(a is DEFER for a in self.answers)
        return {"rows": len(self.answers), "deferred": deferred, "unknown": self.unknown}

    def write(self, out: str | None, name: str, defer: str) -> None:
        """Write the input's columns and one more; to standard output where `out` is None."""
        words = [defer if a is DEFER else str(a) for a in self.answers]
        if out is not None:
            if not Path(out).parent.is_dir():
                raise LogError(f"the folder of {out!r} does not exist.", do="Make it first.")
            with replacing(out) as part:
                self.table.write_with(name, words, part, Path(out).suffix.lower(), guard=True)
            return
        with tempfile.TemporaryDirectory(dir=self.table.room) as folder:
            part = Path(folder) / "answers.csv"
            self.table.write_with(name, words, part, ".csv")
            with part.open(encoding="utf-8", newline="") as stream:
                if sys.stdout.isatty():  # a pipe gets every cell as it was
                    sys.stdout.writelines(map(harmless, stream))
                else:
                    shutil.copyfileobj(stream, sys.stdout)


def answer(
    policy: Policy,
    source: str,
    column: str | None,
    added: str,
    partitions: bool = False,
    decimal: str = ".",
    encoding: str = "utf-8",
    out: str | None = None,
) -> Answered:
    """Answer every row of a CSV or Parquet file, or of CSV on standard input ('-').

    `column` names the column of states (by default the one that the policy was fitted on); `added`
    is the name of the new column of answers. With `partitions`, folders named NAME=VALUE are read
    as columns too. `decimal` and `encoding` say how a CSV file is written; dates are written as in
    the log that the policy was fitted to. The answers can be written to the folder of `out`.
    """
    text = Text(decimal, encoding, policy.provenance.get("columns", {}).get("dates", "iso"))
    folder_out = None if out is None else Path(out).parent
    if source != "-":
        table = TableFile(source, partitions=partitions, text=text, out=folder_out)
        return _answer(policy, table, column, added)
    with tempfile.TemporaryDirectory() as folder:
        name = Path(folder) / "standard input.csv"  # the name used in messages
        with name.open("wb") as stream:
            shutil.copyfileobj(sys.stdin.buffer, stream)
        table = TableFile(str(name), text=text, out=folder_out)
        return _answer(policy, table, column, added)


def _answer(policy: Policy, table: TableFile, column: str | None, added: str) -> Answered:
    if added.lower() in {"state", *(name.lower() for name in table.types)}:
        raise LogError(
            f"the table has a column {added!r} already.", do="Choose another with --column."
        )
    names = policy.space.feature_names
    encoding = getattr(policy.space, "encoding", None)
    levels = getattr(policy.space, "levels", None)
    kinds = [*(levels or ()), *(() if encoding is None else encoding.levels)]
    table.read_gaps({*policy.space.states, *(label for own in kinds for label in own or ())})
    if encoding is not None and column is None:
        columns = table.mixed_features(list(encoding.columns), encoding.levels, encoding.days)
        shown = columns | {
            name: [None if day is None else on_day(day) for day in columns[name]]
            for name in encoding.days
        }
        rows = [dict(zip(shown, row, strict=True)) for row in zip(*shown.values(), strict=True)]
        labels = set(policy.space.states)
        unknown = 0 if names else len(rows) - sum(s in labels for s in encoding.states(rows))
        return Answered(table, rows, policy.act(columns) if rows else [], unknown, "")
    if names:
        if column is not None:
            raise LogError(
                f"a state of this policy is {len(names)} features, not {column!r}.",
                do="Leave --state out: the table's columns are found by the features' names.",
            )
        if levels is not None:  # which has an answer where a feature is missing
            columns = table.mixed_features(names, levels)
            rows = [
                dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)
            ]
            return Answered(table, rows, policy.act(columns), 0, "")
        x = table.features(names)
        rows = [dict(zip(names, row, strict=True)) for row in x.tolist()]
        return Answered(table, rows, policy.act(x), 0, "")
    guessed = ""
    if column is None:
        named = policy.provenance.get("columns", {}).get("state")
        column = named if isinstance(named, str) else None
        if column not in table.types and len(table.types) == 1:
            column = guessed = next(iter(table.types))
    if column is None:
        raise LogError(
            f"which of the {len(table.types)} columns holds the states is not said.",
            ", ".join(map(repr, table.types)),
            "Name it with --state.",
        )
    policy_states = policy.space.states
    states = table.states(column, type(policy_states[0]) if policy_states else int)
    answers = policy.act(states)
    unknown = int((policy.space.codes(states) < 0).sum())  # type: ignore[union-attr]
    return Answered(table, states, answers, unknown, guessed)
