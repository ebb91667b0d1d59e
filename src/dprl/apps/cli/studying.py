"""`dprl study`: the whole job in one command."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite, replacing
from dprl.apps.cli.console import caution, command, complain, progress, show, warned
from dprl.apps.cli.learning import CUT
from dprl.apps.cli.options import (
    SETTINGS,
    By,
    Draws,
    FilesOfLog,
    Json,
    ProposedColumns,
    Seed,
    Whole,
)
from dprl.apps.cli.tables import proposed, toml
from dprl.errors import ParameterError
from dprl.logs.roles import ROLES

TOLD = 3
"""Cautions that are printed; all of them are in --json."""


@command
def study(
    files: FilesOfLog,
    log: ProposedColumns | None = None,
    *,
    out: Annotated[Path, Parameter(help="Folder for the page, the policy and the rows.")],
    gamma: Annotated[
        float | None,
        Parameter(
            help="Discount per step, in (0, 1]. By default 1 where there is one decision or one "
            "outcome at the end, else 0.99."
        ),
    ] = None,
    delta: Annotated[float, Parameter(help="The chance that what is claimed is false.")] = 0.05,
    share: Annotated[
        float, Parameter(help="Share of the groups that learns; the others judge.")
    ] = 0.6,
    n_min: Annotated[
        Whole, Parameter(help="Groups that must have taken a suggestion, and that must not.")
    ] = 20,
    cut: CUT = None,
    by: By = None,
    title: Annotated[str | None, Parameter(help="Heading of the page.")] = None,
    date: Annotated[
        str | None, Parameter(help="Date printed on the page, as 2026-01-31. By default today.")
    ] = None,
    draws: Draws = 2_000,
    seed: Seed = 0,
    json: Json = False,
) -> int:
    """Do the whole job: look, check, divide, learn, certify, judge, doubt, and write it down.

    Columns that are not named are proposed, as `dprl init` does; what was assumed is in dprl.toml
    of the folder. One part of the groups learns and certifies, the other judges. The folder holds
    report.html, policy.dprl, rows.parquet (every number that is shown) and dprl.toml: in that
    folder `dprl study --out again` gives the same. Ends with 0 also where nothing is sure.

    Example: `dprl study visits.csv --out study`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
    """
    import dprl

    columns = log or ProposedColumns()
    day = _day(date)
    for name in (SETTINGS, "report.html", "policy.dprl", "rows.parquet"):
        refuse_overwrite(out / name, *files)
    if out.resolve() == Path.cwd() and Path(SETTINGS).exists():
        raise ParameterError(
            f"the study would replace {SETTINGS} of this folder.", do="Name another folder: --out"
        )
    features = _completed(files, columns, ask=not json)
    asked = columns.options(features)
    with progress() as tell, warned() as cautions:
        tell("checking the table", 0.0)
        checked = dprl.check(files, **asked, progress=tell)
    if not checked.ok or not isinstance(checked.log, dprl.Log):
        caution(cautions)
        show(checked.to_dict() if json else checked, json)
        return 1
    cautions += [f.what for f in checked.findings if f.level == "warning"]
    settings: dict[str, Any] = {
        "gamma": gamma, "delta": delta, "share": share, "n_min": n_min, "cut": cut, "by": by,
        "draws": draws, "seed": seed, "title": title, "date": day,
    }  # fmt: skip
    with progress() as tell:
        result = dprl.study(checked.log, out, **settings, progress=tell)
    settings |= {"gamma": result.facts["gamma"], "date": None if day is None else str(day)}
    with replacing(out / SETTINGS) as part:
        part.write_text(_settings(files, out, columns, settings), encoding="utf-8")
    cautions += [*result.warnings]
    if json:
        show({**result.to_dict(), "warnings": list(dict.fromkeys(cautions))}, as_json=True)
        return 0
    show("\n".join(result.answer()), as_json=False)
    if cautions:
        told = list(dict.fromkeys(cautions))
        caution(told[:TOLD])
        if len(told) > TOLD:
            complain(f"(and {len(told) - TOLD} more: --json)")
    return 0


def _day(date: str | None) -> datetime.date | None:
    """A date as it is written on the command line."""
    if date is None:
        return None
    try:
        return datetime.date.fromisoformat(date)
    except ValueError:
        raise ParameterError(
            f"{date!r} is no date.", do="Write it as year-month-day: --date 2026-01-31"
        ) from None


def _completed(files: list[str], columns: ProposedColumns, ask: bool) -> bool:
    """Fill in the columns that were not named; whether the states are features."""
    given = {role.name: getattr(columns, role.name) for role in ROLES}
    if all(given[role.name] for role in ROLES if role.required):
        return len(given["state"]) > 1
    written = {
        name: getattr(columns, name) for name in ("decimal", "encoding", "dates", "labels")
        if getattr(columns, name)
    }  # fmt: skip
    proposal = proposed(files, given, written, ask)
    assumed = []
    for role in ROLES:
        value = proposal.columns.get(role.name)
        if value is None or given[role.name]:
            continue
        several = [value] if isinstance(value, str) and role.several else value
        setattr(columns, role.name, several)
        named = value if isinstance(value, str) else f"{len(value)} columns"
        assumed.append(f"{role.name} = {named}")
    if proposal.zeros and not columns.missing:
        columns.missing = [f"{proposal.columns['reward']}=zero"]
    if assumed:
        complain(f"assumed: {', '.join(assumed)}; all of it is in {SETTINGS} of the folder.")
    return isinstance(proposal.columns["state"], list)


def _settings(
    files: list[str], out: Path, columns: ProposedColumns, settings: dict[str, Any]
) -> str:
    """dprl.toml of the folder: all that the study was asked for, and what it assumed."""
    near = [os.path.relpath(file, out) for file in files]
    lines = ["# What this study was asked for. In this folder `dprl study --out again` repeats it.",
             "[log]", f"files = {toml(near)}"]  # fmt: skip
    lines += [f"{name} = {toml(value)}" for name, value in vars(columns).items() if value]
    lines += ["", "[study]"]
    lines += [f"{name} = {toml(value)}" for name, value in settings.items() if value is not None]
    return "\n".join(lines) + "\n"
