"""`dprl monitor`: does what was certified still hold, while new episodes come in?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite
from dprl.apps.cli._app import command
from dprl.apps.cli.console import caution, progress, show, warned
from dprl.apps.cli.log_columns import columns_for
from dprl.apps.cli.options import Json, OtherColumns

__all__ = ["monitor"]


@command
def monitor(
    policy: str,
    files: Annotated[list[str] | None, Parameter(negative="")] = None,
    /,
    columns: OtherColumns | None = None,
    *,
    record: Annotated[
        Path | None,
        Parameter(
            help="File of the monitor; by default the policy's name with .monitor at its end."
        ),
    ] = None,
    delta: Annotated[
        float | None,
        Parameter(
            help="How often each kind of statement may be false; by default that of the "
            "certificate. It cannot be changed later."
        ),
    ] = None,
    figure: Annotated[
        Path | None, Parameter(help="Figure of the evidence over time: .png, .svg or .pdf.")
    ] = None,
    strict: Annotated[
        bool,
        Parameter(help="End with exit code 3 if a promise is contradicted.", negative=""),
    ] = False,
    json: Json = False,
) -> int:
    """Add new episodes to a certified policy, and say how its claims stand.

    It says *still certified*, *more is certified now*, or *what was promised is contradicted*, and
    where practice has changed. Look as often as you like: the claims hold at any time. Groups that
    were added before are left out. Without files it shows how things stand.

    Example: `dprl monitor policy.dprl week-12.parquet --figure evidence.png`

    Args:
        policy: A policy file that `dprl gate` wrote.
        files: CSV or Parquet files with new episodes, or patterns in quotes.
        columns: Columns of the log, where their names differ from those of the policy.
    """
    import dprl
    from dprl.policies._load import deferring, read_like

    place = Path(f"{policy}.monitor") if record is None else record
    for path in (place, figure, figure and figure.with_suffix(".parquet")):
        refuse_overwrite(path, policy, *(files or ()))
    fitted = deferring(policy)
    named = columns_for(fitted, columns, "monitor")
    with progress() as tell, warned() as cautions:
        watching = dprl.Monitor(fitted, place, delta=delta)
        if files:
            data = read_like(fitted, files, tell, **named)
            tell("weighing the evidence", 0.0)
            looked = watching.add(data)
        else:
            looked = watching.look()
        if figure is not None:
            watching.plot(figure)
    broken = looked.status.endswith("contradicted")
    if json:
        facts = {**looked.to_dict(), "record": str(place), "warnings": list(cautions)}
        show(facts, as_json=True)
    else:
        caution(cautions)
        show(f"{looked}\n\nKept in {place}." if files else str(looked), as_json=False)
    return 3 if strict and broken else 0
