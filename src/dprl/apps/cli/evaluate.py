"""`dprl evaluate`: what held-out episodes say a policy is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dprl._core.checks import Cut
from dprl.apps.cli._app import command
from dprl.apps.cli.console import caution, progress, show, warned
from dprl.apps.cli.log_columns import columns_for
from dprl.apps.cli.options import (
    TREATMENTS,
    By,
    Cluster,
    Draws,
    Json,
    Level,
    OtherColumns,
    Seed,
    Values,
)
from dprl.apps.cli.out_of_core import ScanOptions
from dprl.errors import ParameterError

if TYPE_CHECKING:
    from dprl.logs._files import Progress
    from dprl.logs.log import Log

__all__ = ["both_ends", "evaluate", "read_held_out", "show_judged"]


def read_held_out(
    policy: Any, files: list[str], memory: ScanOptions | None, tell: Progress, **named: Any
) -> Log:
    """The log that a policy is judged by: read at once, or in parts, which take less memory.

    Args:
        policy: The policy.
        files: The files of the log.
        memory: How much memory may be used, and whether the log is read in parts.
        tell: Called with the name of the stage and the share of it that is done.
        named: Columns where their names differ from those of the policy.
    """
    from dprl.policies._load import read_like, reading_like
    from dprl.policies.held_out import rows_of

    memory = memory or ScanOptions()
    columns = policy.provenance.get("columns", {})
    able = not (policy.space.feature_names or columns.get("encoding") or columns.get("action_bins"))
    if memory.out_of_core and not able:
        raise ParameterError(
            "a log in parts has one column of state labels and one of actions, and this policy's "
            "states or actions are made of several columns or of numbers.",
            do="Leave --out-of-core out.",
        )
    if not memory.in_parts(files, able=able):
        return read_like(policy, files, tell, **named)
    with memory.scanned(files, reading_like(policy, files, **named), tell) as parts:
        return rows_of(parts)


def both_ends(lowest: float | None, highest: float | None) -> tuple[float, float] | None:
    """The range of returns that two options state; None where neither is given."""
    if lowest is None and highest is None:
        return None
    if lowest is None or highest is None:
        raise ParameterError("--lowest and --highest come together.", do="Give both, or neither.")
    return lowest, highest


def show_judged(policy: Any, result: Any, cautions: list[str], json: bool) -> int:
    """Show how a policy was judged, and what was warned of on the way; the exit code."""
    if json:
        facts = result.to_dict()
        show({**facts, "warnings": [*cautions, *facts["warnings"]]}, as_json=True)
        return 0
    caution(cautions)
    show(f"{policy!r}\n{result}", as_json=False)
    return 0


@command
def evaluate(
    policy: str,
    files: list[str],
    /,
    columns: OtherColumns | None = None,
    memory: ScanOptions | None = None,
    *,
    gamma: Annotated[
        float | None, Parameter(help="Discount per step; by default the policy's own.")
    ] = None,
    cut: Annotated[
        Cut | None,
        Parameter(
            help=f"How to treat cut episodes: {TREATMENTS}; drop is refused. By default as in the "
            "policy's training."
        ),
    ] = None,
    level: Level = 0.95,
    draws: Draws = 2_000,
    seed: Seed = 0,
    values: Values = True,
    by: By = None,
    lowest: Annotated[
        float | None, Parameter(help="The lowest return there can be; estimates below are marked.")
    ] = None,
    highest: Annotated[
        float | None, Parameter(help="The highest return; give both or neither.")
    ] = None,
    allow_seen: Annotated[
        bool, Parameter(help="Evaluate even on a log the policy was made from.", negative="")
    ] = False,
    cluster: Cluster = None,
    json: Json = False,
) -> int:
    """Estimate from held-out episodes what a policy is worth, beside usual practice.

    Example: `dprl evaluate policy.dprl held-out.parquet`

    A log that is too large to be read at once, in Parquet files:
    `dprl evaluate policy.dprl 'held-out/*.parquet' --out-of-core --memory-limit 4GB`

    Args:
        policy: A policy file.
        files: CSV or Parquet files the policy was not learned from, or patterns in quotes.
        columns: Columns of the log, where their names differ from those of the policy.
    """
    import dprl
    from dprl.evaluation._subgroups import columns_by

    value_range = both_ends(lowest, highest)
    fitted = dprl.load(policy)
    named = columns_for(fitted, columns, "evaluate")
    with progress() as tell, warned() as cautions:
        data = read_held_out(fitted, files, memory, tell, **named)
        evaluation = dprl.evaluate(
            fitted, data, gamma=gamma, cut=cut, level=level, draws=draws, seed=seed, values=values,
            by=columns_by(by, data),
            allow_seen=allow_seen, cluster=cluster, progress=tell,
            value_range=value_range,
        )  # fmt: skip
    return show_judged(fitted, evaluation, cautions, json)
