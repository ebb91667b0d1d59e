"""`dprl sensitivity`: what is left of a policy's gain if an unrecorded cause moved treatment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite
from dprl.apps.cli._app import command
from dprl.apps.cli.console import progress, warned
from dprl.apps.cli.evaluate import both_ends, read_held_out, show_judged
from dprl.apps.cli.log_columns import columns_for
from dprl.apps.cli.options import Draws, Json, Level, OtherColumns, Seed
from dprl.apps.cli.out_of_core import ScanOptions
from dprl.errors import ParameterError

__all__ = ["sensitivity"]


@command
def sensitivity(
    policy: str,
    files: list[str],
    /,
    columns: OtherColumns | None = None,
    memory: ScanOptions | None = None,
    *,
    gamma: Annotated[
        list[float] | None,
        Parameter(
            help="Γ, strengths of an unrecorded cause, each from 1 to 20; by default 1 1.5 2 3.",
            consume_multiple=True,
            negative="",
        ),
    ] = None,
    discount: Annotated[
        float | None, Parameter(help="Discount per step; by default the policy's own.")
    ] = None,
    cut: Annotated[
        Literal["drop-unrelated", "bootstrap", "terminal"] | None,
        Parameter(help="How to treat cut episodes; by default as in the policy's training."),
    ] = None,
    level: Level = 0.95,
    draws: Draws = 1_000,
    seed: Seed = 0,
    lowest: Annotated[float | None, Parameter(help="The lowest return there can be.")] = None,
    highest: Annotated[
        float | None, Parameter(help="The highest return; give both or neither.")
    ] = None,
    yardstick: Annotated[
        bool, Parameter(help="Measure what hiding each recorded column would be.")
    ] = True,
    figure: Annotated[
        Path | None,
        Parameter(help="Figure of the bounds: .png, .svg or .pdf; its data beside it as .parquet."),
    ] = None,
    allow_seen: Annotated[
        bool, Parameter(help="Go on even with a log the policy was made from.", negative="")
    ] = False,
    json: Json = False,
) -> int:
    """Bound what a policy is worth if an unrecorded cause moved who got what.

    Γ is the factor by which that cause may move the odds of an action, the state being equal;
    Γ = 1 is none. Γ* is the strength at which nothing may be left of the gain. The yardstick says
    what hiding each recorded column would be, for comparison.

    Example: `dprl sensitivity policy.dprl held-out.parquet --gamma 1 1.5 2`

    Args:
        policy: A policy file.
        files: CSV or Parquet files the policy was not learned from, or patterns in quotes.
        columns: Columns of the log, where their names differ from those of the policy.
    """
    import dprl
    from dprl._core import plot
    from dprl.evaluation._sensitivity import STRENGTHS

    value_range = both_ends(lowest, highest)
    if figure is not None:
        if not figure.parent.is_dir():
            raise ParameterError(
                f"the folder of {str(figure)!r} does not exist.", do="Make it first."
            )
        plot.ready()
        for path in (figure, figure.with_suffix(".parquet")):
            refuse_overwrite(path, policy, *files)
    fitted = dprl.load(policy)
    named = columns_for(fitted, columns, "sensitivity")
    with progress() as tell, warned() as cautions:
        data = read_held_out(fitted, files, memory, tell, **named)
        result = dprl.sensitivity(
            fitted, data, gamma=gamma or STRENGTHS, discount=discount, cut=cut, level=level,
            draws=draws, seed=seed, allow_seen=allow_seen, yardstick=yardstick, progress=tell,
            value_range=value_range,
        )  # fmt: skip
        if figure is not None:
            result.plot(figure)
    return show_judged(fitted, result, cautions, json)
