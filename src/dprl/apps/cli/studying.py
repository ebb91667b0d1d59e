"""`dprl study`, the whole job in one command, and `dprl demo`, the same on invented patients."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite, replacing
from dprl._core.table import first_few, form, many
from dprl.apps.cli.console import (
    caution,
    command,
    complain,
    in_options,
    progress,
    show,
    warned,
)
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
from dprl.apps.cli.tables import SHOWN, proposed, toml
from dprl.errors import ParameterError
from dprl.logs.roles import ROLES

TOLD = 3
"""Cautions that are printed; all of them are in --json."""


@command
def study(
    files: FilesOfLog,
    log: ProposedColumns | None = None,
    *,
    out: Path,
    gamma: float | None = None,
    delta: float = 0.05,
    share: float = 0.6,
    n_min: Whole = 20,
    cut: CUT = None,
    by: By = None,
    lang: str = "en",
    title: str | None = None,
    date: str | None = None,
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
        out: Folder for the page, the policy and the rows.
        gamma: Discount per step, in (0, 1]. By default 1 where there is one decision or one outcome
            at the end, else 0.99.
        delta: The chance that what is claimed is false.
        share: Share of the groups that learns; the others judge.
        n_min: Groups that must have taken a suggestion, and that must not.
        lang: Language of the page: "en" or "de".
        title: Heading of the page.
        date: Date printed on the page, as 2026-01-31. By default today.
    """
    from dprl.apps.study import Study

    settings: dict[str, Any] = {
        "gamma": gamma, "delta": delta, "share": share, "n_min": n_min, "cut": cut, "by": by,
        "draws": draws, "seed": seed, "title": title, "date": _day(date), "lang": lang,
    }  # fmt: skip
    result, cautions = _studied(files, out, log or ProposedColumns(), settings, ask=not json)
    if not isinstance(result, Study):
        caution(cautions)
        show(result.to_dict() if json else result, json)
        return 1
    if json:
        show({**result.to_dict(), "warnings": cautions}, as_json=True)
        return 0
    show("\n".join(in_options(line) for line in result.answer()), as_json=False)
    if cautions:
        caution(cautions[:TOLD])
        if len(cautions) > TOLD:
            complain(f"(and {len(cautions) - TOLD} more: --json)")
    return 0


def _studied(
    files: list[str], out: Path, columns: ProposedColumns, settings: dict[str, Any], ask: bool
) -> tuple[Any, list[str]]:
    """The study of some files and what to be wary of; the report on their rows if they are bad."""
    import dprl
    from dprl._core.html.catalogue import speak
    from dprl.apps.study import POLICY, REPORT, ROWS

    for name in (SETTINGS, REPORT, POLICY, ROWS):
        refuse_overwrite(out / name, *files)
    if out.resolve() == Path.cwd() and Path(SETTINGS).exists():
        raise ParameterError(
            f"the study would replace {SETTINGS} of this folder.", do="Name another folder: --out"
        )
    speak(settings.get("lang", "en"))  # what is refused is refused before a long log is read
    features = _completed(files, columns, ask)
    with progress() as tell, warned() as cautions:
        tell("checking the table", 0.0)
        checked = dprl.check(files, **columns.options(features), progress=tell)
    if not checked.ok or not isinstance(checked.log, dprl.Log):
        return checked, cautions
    cautions += [f.what for f in checked.findings if f.level == "warning"]
    with progress() as tell:
        result = dprl.study(checked.log, out, **settings, progress=tell)
    day = settings["date"]
    kept = {**settings, "gamma": result.facts["gamma"], "date": None if day is None else str(day)}
    with replacing(out / SETTINGS) as part:
        part.write_text(_settings(files, out, columns, kept), encoding="utf-8")
    return result, list(dict.fromkeys([*cautions, *result.warnings]))


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


def _is_sum(files: list[str], columns: ProposedColumns, written: dict[str, Any]) -> bool:
    """Whether the reward is a sum of columns; "cost (EUR)" may be the name of one."""
    from dprl.logs.reading.files import Files
    from dprl.logs.reading.sums import is_sum
    from dprl.logs.reading.text import Text

    if not columns.reward or not is_sum(columns.reward):
        return False
    return columns.reward not in Files(files, None, text=Text(**written)).types


def _fractional(files: list[str], column: str, written: dict[str, Any]) -> bool:
    """Whether a column begins with numbers that are no labels, since they have a fraction."""
    from dprl.logs.proposal import SAMPLE
    from dprl.logs.reading.files import Files
    from dprl.logs.reading.frames import quoted
    from dprl.logs.reading.text import Text

    table = Files(files, None, text=Text(**written))
    if column not in table.types:
        return False
    rows = f"SELECT {table.double(quoted(column))} AS x FROM ({table.scan}) LIMIT {SAMPLE}"
    found = table.run(f"SELECT bool_or(x <> floor(x)) FROM ({rows})", table.values)
    return bool(found.fetchall()[0][0])


def _outcomes(columns: ProposedColumns, total: bool) -> dict[str, Any]:
    """The columns of what came of decisions, as far as they were named, which are in no state."""
    from dprl.logs.reading.sums import costs_of, part_columns, weights_of
    from dprl.logs.survival import Survival

    asked = Survival.declared(columns.survival, columns.horizon, columns.target)
    timed = {} if asked is None else {"reward": asked.duration, "ended": asked.status}
    names: dict[str, Any] = {"guard": columns.guard or (), "costs": costs_of(columns.costs)}
    if columns.reward and total:
        names["parts"] = weights_of(columns.reward)
    beside = part_columns(names)
    return {**timed, **({"parts": beside} if beside else {})}


def _completed(files: list[str], columns: ProposedColumns, ask: bool) -> bool:
    """Fill in the columns that were not named; whether the states are features."""
    written = {
        name: getattr(columns, name) for name in ("decimal", "encoding", "dates", "labels")
        if getattr(columns, name)
    }  # fmt: skip
    total = _is_sum(files, columns, written)
    given = {role.name: getattr(columns, role.name) for role in ROLES}
    given |= _outcomes(columns, total)
    if columns.reward and not columns.outcome and not total:
        columns.outcome = columns.reward  # what it is called, until somebody says more
    if all(given[role.name] for role in ROLES if role.required):
        state = given["state"]
        return len(state) > 1 or _fractional(files, state[0], written)
    proposal = proposed(files, given, written, ask)
    assumed = []
    for role in ROLES:
        value = proposal.columns.get(role.name)
        if value is None or given.get(role.name):
            continue
        several = [value] if isinstance(value, str) and role.several else value
        setattr(columns, role.name, several)
        assumed.append(f"{role.name} = {', '.join(several) if role.several else value}")
    if proposal.zeros and not columns.missing:
        columns.missing = [f"{proposal.columns['reward']}=zero"]
    if not columns.outcome and isinstance(columns.reward, str) and not total:
        columns.outcome = columns.reward  # what it is called, until somebody says more
    if assumed:
        complain(f"assumed: {'; '.join(assumed)}. All of it is in {SETTINGS} of the folder.")
    if isinstance(columns.state, list) and len(columns.state) > 1 and not given["state"]:
        complain("Is one of these known only after the decision? Then name the others: --state")
    if proposal.left_out:
        complain(f"left out: {first_few(proposal.left_out, SHOWN)} (why: dprl init)")
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


# --- `dprl demo`: a study of data that the package makes itself, and the truth beside it

PATIENTS, SEED = 2_000, 0
NO_BROWSER = "\n   No browser could be started here: open the file yourself."
COLUMNS = {
    "episode": "patient", "time": "day", "state": "situation", "action": "treatment",
    "reward": "outcome", "ended": "ended",
}  # fmt: skip


@command
def demo(
    *,
    folder: Path | None = None,
    show_report: Annotated[bool, Parameter(name="--open", negative="")] = False,
    json: Json = False,
) -> int:
    """Show the whole job on invented patients: a log, its study, and the truth beside it.

    Args:
        folder: Folder for the log and the study; by default a new temporary folder.
        show_report: Also open the page in a browser.
    """
    import tempfile

    where = Path(tempfile.mkdtemp(prefix="dprl-demo-")) if folder is None else folder
    where.mkdir(parents=True, exist_ok=True)
    with progress() as tell:
        tell("warming up (the first run compiles for some seconds)", 0.0)
    lines: list[str] = []
    result = _shown_on(where, lines.append)
    if show_report:
        opened = _opened(Path(result["report"]))
        lines.append("\n4. The page was opened." if opened else NO_BROWSER)
    show(result if json else "\n".join(lines), json)
    return 0


def _opened(page: Path) -> bool:
    """Whether a browser could be asked to show a page."""
    import webbrowser

    try:
        return webbrowser.open(page.resolve().as_uri())
    except webbrowser.Error:
        return False


def _shown_on(folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Draw a log, study it, and compare with the truth; everything as plain values.

    Writes visits.parquet and the folder of the study.
    """
    from dprl.apps.study import POLICY, REPORT
    from dprl.envs.care import care_pathway
    from dprl.logs._io import write

    pathway, file, out = care_pathway(), folder / "visits.parquet", folder / "study"
    log = replace(pathway.sample(PATIENTS, seed=SEED), columns=COLUMNS)
    write(log, file)
    say(f"1. A log: {PATIENTS:,} invented patients, {log.n_steps:,} treatment decisions → {file}\n")
    columns = ProposedColumns(
        **{**COLUMNS, "state": ["situation"], "action": ["treatment"]},
        outcome="share who go home", better="higher",
    )  # fmt: skip
    result, _ = _studied([str(file)], out, columns, {"date": None}, ask=False)
    say("2. Its study: dprl study visits.parquet --out study")
    say("".join(f"   {line}\n" for line in result.answer()))
    now, new = pathway.value(), pathway.value(result.policy)
    best = float(pathway.start @ pathway.optimal[0])
    say(
        "3. The truth (this world is invented, so it is known exactly). Of 100 patients go home:\n"
        f"   today {100 * now:.1f} · with {form(result.changes, 'this', 'these')} "
        f"{many(result.changes, 'change')} {100 * new:.1f} · at the very best {100 * best:.1f}"
    )
    return {
        "log": str(file),
        "policy": str(out / POLICY),
        "report": str(out / REPORT),
        **result.policy.summary(),
        "answer": result.answer(),
        "changed": result.policy.changes().to_dicts(),
        "value_behavior": now,
        "value_policy": new,
        "value_best": best,
    }
