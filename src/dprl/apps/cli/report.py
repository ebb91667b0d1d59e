"""`dprl report`: one page on a policy, for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite
from dprl.apps.cli._app import command
from dprl.apps.cli.console import caution, progress, show, warned
from dprl.apps.cli.log_columns import columns_for
from dprl.apps.cli.options import By, Draws, Json, OtherColumns, Seed, Values, Whole

__all__ = ["report"]


@command
def report(
    policy: str,
    files: list[str],
    /,
    columns: OtherColumns | None = None,
    *,
    out: Annotated[Path, Parameter(help="File for the report.")] = Path("review.html"),
    title: Annotated[
        str, Parameter(help="Heading of the report.")
    ] = "What this policy would change",
    cases: Annotated[
        Whole, Parameter(help="Past cases shown on each side of a change, with labels.")
    ] = 0,
    draws: Draws = 2_000,
    seed: Seed = 0,
    values: Values = True,
    by: By = None,
    json: Json = False,
) -> int:
    """Write a report on a policy for people: one self-contained HTML file that can be printed.

    It says what would change, what held-out episodes say about it, where the policy defers and why,
    how sure that is, what nobody can know from a log, and where the policy comes from.

    Example: `dprl report policy.dprl held-out.parquet --out review.html`

    Args:
        policy: A policy file.
        files: CSV or Parquet files, best of episodes that the policy was not learned from.
        columns: Columns of the log, where their names differ from those of the policy.
    """
    import dprl
    from dprl.evaluation._subgroups import columns_by
    from dprl.policies._load import deferring, read_like

    refuse_overwrite(out, policy, *files)
    fitted = deferring(policy)
    named = columns_for(fitted, columns, "report")
    with progress() as tell, warned() as cautions:
        data = read_like(fitted, files, tell, **named)
        written = dprl.report(
            fitted, data, out, title=title, cases=cases, values=values, draws=draws, seed=seed,
            by=columns_by(by, data), progress=tell,
        )  # fmt: skip
    if not json:
        caution(cautions)
    show({**written.to_dict(), "warnings": cautions} if json else str(written), json)
    return 0
