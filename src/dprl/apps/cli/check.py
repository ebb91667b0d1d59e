"""`dprl check`: what is wrong or odd about a log."""

from __future__ import annotations

from dprl.apps.cli._app import command
from dprl.apps.cli.console import progress, show
from dprl.apps.cli.options import Json, LogOptions

__all__ = ["check"]


@command
def check(files: list[str], /, log: LogOptions, *, json: Json = False) -> int:
    """Say what is wrong, odd or worth knowing about a log. Changes nothing.

    Example: `dprl check 'logs/*.parquet' --episode stay --time hour --state s --action a
    --reward r`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
    """
    import dprl

    with progress() as tell:
        report = dprl.check(files, **log.options(), progress=tell)
    show(report.to_dict() if json else str(report), json)
    return 0 if report.ok else 1
