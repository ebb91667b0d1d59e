"""`dprl act`: a policy's suggestion beside every state of a table."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite
from dprl._core.plural import many
from dprl.apps.cli._app import command
from dprl.apps.cli.console import complain, show
from dprl.apps.cli.log_columns import columns_for
from dprl.apps.cli.options import Json, Partitions
from dprl.apps.cli.reading import Decimal, Letters

__all__ = ["act"]


@command
def act(
    policy: str,
    states: Annotated[str, Parameter(allow_leading_hyphen=True)] = "-",
    /,
    *,
    state: Annotated[
        str | None, Parameter(help="Column of states; by default as in the log.")
    ] = None,
    out: Annotated[
        str | None, Parameter(help="A .csv or .parquet file; default: standard output.")
    ] = None,
    column: Annotated[str, Parameter(help="Name of the column that is added.")] = "suggested",
    defer: Annotated[str, Parameter(help="What to write for DEFER; '' for nothing.")] = "DEFER",
    partitions: Partitions = False,
    decimal: Decimal = None,
    encoding: Letters = None,
    json: Json = False,
) -> int:
    """Write a policy's suggestion beside every state of a table.

    Example: `echo stage-3 | (echo stage; cat) | dprl act policy.dprl`

    Args:
        policy: A policy file.
        states: A CSV or Parquet file with a column of states; '-' reads CSV with a header from
            standard input.
    """
    from dprl.apps.cli.suggestions import answer
    from dprl.policies._decisions import DEFER
    from dprl.policies._load import deferring

    refuse_overwrite(out, policy, states)
    fitted = deferring(policy)
    encoded = getattr(fitted.space, "encoding", None) is not None
    if state is None and not fitted.space.feature_names and not encoded:
        columns = columns_for(fitted, None, "act")["state"]
        state = columns[0] if isinstance(columns, list) and len(columns) == 1 else columns
    answered = answer(
        fitted, states, state, column, partitions, decimal or ".", encoding or "utf-8", out
    )
    counts = answered.counts()
    if answered.guessed:
        complain(f"the only column, {answered.guessed!r}, is taken for the states.")
    if out is not None:
        answered.write(out, column, defer)
    if json:
        rows = [
            {"state": s, column: None if a is DEFER else a}
            for s, a in zip(answered.states, answered.answers, strict=True)
        ]
        show({**counts, "rows_out": rows} if out is None else {**counts, "out": out}, as_json=True)
        return 0
    if out is None:
        answered.write(None, column, defer)
    if counts["unknown"]:
        complain(
            f"{counts['unknown']:,} of {counts['rows']:,} rows hold a state the policy never saw: "
            "deferred."
        )
    if out is not None:
        complain(f"{many(counts['rows'], 'row')}, {counts['deferred']:,} deferred. Saved as {out}.")
    return 0
