"""A file of states in, the same file with a suggestion on every row out."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from dprl.cell_policy import CellPolicy
from dprl.disk import replacing
from dprl.errors import LogError
from dprl.files import TableFile
from dprl.neighbor_policy import NeighborPolicy
from dprl.policy import DEFER, Policy

__all__ = ["Answered", "answer"]


class Answered:
    """States read, answered, and ready to be written in the order they came."""

    def __init__(
        self, table: TableFile, states: list[Any], answers: list[Any], unknown: int
    ) -> None:
        self.table, self.states, self.answers, self.unknown = table, states, answers, unknown

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
                self.table.write_with(name, words, part, Path(out).suffix.lower())
            return
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / "answers.csv"
            self.table.write_with(name, words, part, ".csv")
            with part.open(encoding="utf-8", newline="") as stream:
                shutil.copyfileobj(stream, sys.stdout)


def answer(
    policy: Policy | NeighborPolicy, source: str, column: str | None, added: str
) -> Answered:
    """Answer every row of a CSV or Parquet file, or of CSV on standard input ('-').

    `column` holds the states (by default the one the policy was fitted on); `added` is what the
    column of answers will be called.
    """
    if column is None:
        named = policy.provenance.get("columns", {}).get("state")
        column = named if isinstance(named, str) else None
    if source != "-":
        return _answer(policy, TableFile(source), column, added)
    handle, name = tempfile.mkstemp(suffix=".csv")
    try:
        with os.fdopen(handle, "wb") as stream:
            shutil.copyfileobj(sys.stdin.buffer, stream)
        return _answer(policy, TableFile(name), column, added)
    finally:
        os.unlink(name)


def _answer(
    policy: Policy | NeighborPolicy, table: TableFile, column: str | None, added: str
) -> Answered:
    if added in (*table.types, "state"):
        raise LogError(
            f"the table has a column {added!r} already.", do="Choose another with --column."
        )
    if isinstance(policy, NeighborPolicy | CellPolicy):
        names, x = policy.feature_names, table.features(policy.feature_names)
        rows = [dict(zip(names, row, strict=True)) for row in x.tolist()]
        return Answered(table, rows, policy.act(x), 0)
    if column is None or (column not in table.types and len(table.types) == 1):
        if len(table.types) != 1:
            raise LogError(
                f"which of the {len(table.types)} columns holds the states is not said.",
                ", ".join(map(repr, table.types)),
                "Name it with --state.",
            )
        column = next(iter(table.types))
    text = bool(policy.states) and isinstance(policy.states[0], str)
    states, known = table.states(column, text), set(policy.states)
    return Answered(table, states, policy.act(states), sum(s not in known for s in states))
