"""`dprl build`: from events and a spec to a log of decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dprl._core.disk import check_target
from dprl.apps.cli._app import command
from dprl.apps.cli.console import progress, show
from dprl.apps.cli.options import Json, MaybeWhole
from dprl.errors import ParameterError

__all__ = ["build"]


@command
def build(
    spec: Path,
    files: list[str] | None = None,
    /,
    *,
    out: Annotated[Path | None, Parameter(help="The log, a .parquet file.")] = None,
    explain: Annotated[
        tuple[str, str] | None,
        Parameter(
            help="SUBJECT TIME: write nothing; print the rows of the data that made the state, "
            "the action and the reward of the subject's last decision up to that time.",
            negative="",
        ),
    ] = None,
    memory: Annotated[str, Parameter(help="Memory limit; the rest goes to disk.")] = "3GB",
    threads: Annotated[
        MaybeWhole, Parameter(help="Number of threads; the result does not depend on it.")
    ] = None,
    temp: Annotated[Path | None, Parameter(help="A folder with room for temporary files.")] = None,
    json: Json = False,
) -> int:
    """Make a log of decisions from a table of events, as a spec in TOML says.

    Prints the flow of counts and what is missing, and writes them beside the log with the
    dictionary: LOG.flow.md, LOG.missing.md, LOG.dictionary.md. A spec in which a state could see
    what comes after its decision is refused, with the line.

    Example: `dprl build spec.toml --out log.parquet`

    Args:
        spec: The spec, a TOML file.
        files: Files of events (CSV or Parquet), or patterns in quotes; for OMOP a folder or a
            DuckDB file. By default those that the spec names.
    """
    from dprl.logs import events

    if out is not None and explain is not None:
        raise ParameterError(
            "dprl build takes --out or --explain, not both.", do="Build first, then look."
        )
    if explain is not None:
        with progress() as tell:
            rows = events.explain(files or None, spec, *explain, memory=memory, progress=tell)
        show({"decision": rows.caption, "rows": rows.to_dicts()} if json else rows, json)
        return 0
    if out is None:
        raise ParameterError(
            "dprl build needs a file to write.",
            do="Write --out log.parquet to build, or --explain SUBJECT TIME to look.",
        )
    check_target(out)
    with progress() as tell:
        built = events.build(
            files or None, spec, out, memory=memory, threads=threads, temp=temp, progress=tell
        )
    show(built.to_dict() if json else f"{built}\n\nSaved as {out}.{_next(built, out)}", json)
    return 0


def _next(built: Any, out: Path) -> str:
    """The command that looks at the log."""
    roles = built.columns
    if len(roles["state"]) < 2:  # one column would be taken for labels
        return ""
    words = [f"--{part} {roles[part]}" for part in ("episode", "group", "time", "action", "reward")]
    words += ["--ended ended", *(f"--state '{name}'" for name in roles["state"])]
    words += [f"--events '{word}'" for word in roles.get("events", ())]
    return f" Next:\n  dprl check {out} {' '.join(words)}"
