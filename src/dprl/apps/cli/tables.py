"""Commands about a table: `init`, `build`, `check`, `split`."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from cyclopts import Parameter

from dprl._core.checks import Cut
from dprl._core.disk import check_target, refuse_overwrite, replacing
from dprl._core.table import first_few, form, many
from dprl.apps.cli.console import (
    caution,
    command,
    complain,
    in_options,
    printed,
    progress,
    show,
    told,
    warned,
)
from dprl.apps.cli.options import (
    SETTINGS,
    Better,
    Dates,
    Decimal,
    Details,
    FilesOfLog,
    Flag,
    Json,
    Labels,
    Letters,
    LogOptions,
    MaybeWhole,
    Partitions,
    ScanOptions,
    Seed,
    check_folder,
    fits_features,
)
from dprl.errors import ParameterError
from dprl.logs.outcome import Outcome, sounds_like_harm
from dprl.logs.roles import ROLES

if TYPE_CHECKING:
    from dprl.logs.proposal import Proposal


# --- `dprl build`: from events and a spec to a log of decisions


@command
def build(
    spec: Path,
    files: list[str] | None = None,
    /,
    *,
    out: Path | None = None,
    explain: tuple[str, str] | None = None,
    memory: str = "3GB",
    threads: MaybeWhole = None,
    temp: Path | None = None,
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
        out: The log, a .parquet file.
        explain: SUBJECT TIME: write nothing; print the rows of the data that made the state, the
            action and the reward of the subject's last decision up to that time.
        memory: Memory limit; the rest goes to disk.
        threads: Number of threads; the result does not depend on it.
        temp: A folder with room for temporary files.
    """
    from dprl.logs import events

    if out is not None and explain is not None:
        raise ParameterError(
            "dprl build takes --out or --explain, not both.", do="Build first, then look."
        )
    if explain is not None:
        with progress() as tell:
            rows = events.explain(files or None, spec, *explain, memory=memory, progress=tell)
        return told({"decision": rows.caption, "rows": rows.to_dicts()}, rows, json)
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
    return told(built.to_dict(), f"{built}\n\nSaved as {out}.{_next(built, out)}", json)


def _next(built: Any, out: Path) -> str:
    """The command that looks at the log."""
    roles = built.columns
    if len(roles["state"]) < 2:  # one column would be taken for labels
        return ""
    words = [f"--{part} {roles[part]}" for part in ("episode", "group", "time", "action", "reward")]
    words += ["--ended ended", *(f"--state '{name}'" for name in roles["state"])]
    words += [f"--events '{word}'" for word in roles.get("events", ())]
    return f" Next:\n  dprl check {out} {' '.join(words)}"


# --- `dprl init`: proposes which column of a table is what, and writes dprl.toml

ASKED = ("episode", "action", "reward", "state")
SHOWN = 12
"""Columns that a question or an error names at most."""
Name = Annotated[str | None, Parameter(help="Take this column, whatever is proposed.")]
Names = Annotated[
    list[str] | None,
    Parameter(help="Take this column; repeat it for several."),
]


@command
def init(
    files: FilesOfLog,
    *,
    episode: Name = None,
    time: Name = None,
    state: Names = None,
    action: Names = None,
    reward: Name = None,
    group: Name = None,
    ended: Name = None,
    propensity: Name = None,
    better: Better = None,
    decimal: Decimal = None,
    encoding: Letters = None,
    dates: Dates = None,
    labels: Labels = None,
    force: Flag = False,
    json: Json = False,
) -> int:
    """Look at a table, propose which column is what, and write dprl.toml.

    What is learned hangs on the action and the reward: they are proposed by their names alone.
    Where no name says it, you are asked; without a terminal the command says what to name.
    Afterwards `dprl check` and `dprl fit` work in this folder without options.

    Example: `dprl init visits.csv`

    Example: `dprl init visits.csv --action drug --reward score`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
        force: Replace a dprl.toml that exists.
    """
    target = Path(SETTINGS)
    if target.exists() and not force:
        raise ParameterError(
            f"{SETTINGS} exists here.", str(target.resolve().parent), "Say --force to replace it."
        )
    check_target(target)
    options = {"decimal": decimal, "encoding": encoding, "dates": dates, "labels": labels}
    written = {name: value for name, value in options.items() if value is not None}
    given: dict[str, Any] = {
        "episode": episode, "time": time, "state": state, "action": action, "reward": reward,
        "group": group, "ended": ended, "propensity": propensity,
    }  # fmt: skip
    Outcome(better=cast("Any", better or ""))  # refused before anybody is asked
    proposal = proposed(files, given, written, ask=not json)
    text = _toml(files, proposal, written, better)
    cautions = _cautions(proposal)
    with replacing(target) as part:
        part.write_text(text, encoding="utf-8")
    facts = {
        "columns": proposal.columns, "reasons": proposal.reasons, "left_out": proposal.left_out,
        "candidates": proposal.candidates, "rows": proposal.rows, "settings": SETTINGS,
        "warnings": cautions,
    }  # fmt: skip
    words = (
        f"{text}\nSaved as {SETTINGS}. It is a proposal from {proposal.rows:,} rows: read it, mend "
        "it. Then: dprl check, dprl fit"
    )
    return told(facts, words, json, cautions)


def proposed(
    files: list[str], given: dict[str, Any], written: dict[str, Any], ask: bool
) -> Proposal:
    """Which column of a table is what: as given, else as proposed, else as a person says.

    Args:
        files: CSV or Parquet files, or patterns.
        given: Role → column, or several; what is empty is proposed.
        written: How the table is written, as `dprl.read` takes it.
        ask: Whether to ask on the terminal, if there is one, what no name says.
    """
    from dprl.logs.proposal import look, propose
    from dprl.logs.reading.text import Text

    with progress() as tell:
        tell("looking at the first rows", 0.0)
        table = look(files, text=Text(**written))
    given = {role: _one(value) for role, value in given.items() if value}
    _check_names(given, [c.name for c in table.columns])
    proposal = propose(table, given)
    commas = [c for c in table.columns if c.comma and "decimal" not in written]
    if commas:
        what = (
            f"{len(commas)} {form(commas, 'column of text is', 'columns of text are')} numbers "
            f"if a comma is the decimal mark: {first_few((repr(c.name) for c in commas), SHOWN)}."
        )
        where = f"{commas[0].name} = {commas[0].comma!r}"
        do = "Then say --decimal , and if they are labels --decimal ."
        if proposal.open:
            raise ParameterError(what, where, do)
        complain(f"{what} {do}")
    while proposal.open and ask and sys.stdin.isatty():
        role = next(role for role in ASKED if role in proposal.open)
        given[role] = _ask(role, proposal.open[role], [c.name for c in table.columns])
        proposal = propose(table, given)
    if proposal.open:
        _refuse(proposal)
    return proposal


def _one(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _check_names(given: dict[str, Any], columns: list[str]) -> None:
    for role, value in given.items():
        for name in [value] if isinstance(value, str) else value:
            if name not in columns:
                raise ParameterError(
                    f"--{role}: there is no column {name!r}.",
                    f"columns are {_listed(columns)}",
                    "Name one of them.",
                )


def _listed(columns: list[str]) -> str:
    return first_few(map(repr, columns), SHOWN)


def _meaning(role: str) -> str:
    return next(one.help for one in ROLES if one.name == role) + ROW_EACH * (role == "episode")


ROW_EACH = (
    " If each row is a patient of its own and no column names them, add one that numbers the rows "
    "(1, 2, 3, ...) and name that."
)
"""What to do with a table of one decision each that has no name for its rows."""


def _ask(role: str, candidates: list[str], columns: list[str]) -> Any:
    """Ask on the terminal which column has a role; again until the answer is one."""
    complain(f"\nWhich column is the {role}? {_meaning(role)}")
    for number, name in enumerate(candidates[:SHOWN], 1):
        complain(f"  {number}  {name}")
    while True:
        sys.stderr.write(f"{role} (a number or a name; Ctrl-C to stop): ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
        if not answer:  # the terminal is gone
            raise KeyboardInterrupt
        word = answer.strip()
        if word in columns:
            return word
        if word.isdecimal() and 1 <= int(word) <= min(len(candidates), SHOWN):
            return candidates[int(word) - 1]
        complain(f"There is no column {word!r}.")


def _refuse(proposal: Proposal) -> None:
    role = next(role for role in ASKED if role in proposal.open)
    candidates = proposal.open[role]
    could = f"could be {_listed(candidates)}" if candidates else "no column could be it"
    raise ParameterError(
        f"no name says which column is the {' or the '.join(proposal.open)}.",
        f"{role}: {could}",
        " ".join(f"--{one} COLUMN" for one in proposal.open)
        + f": say it. {_meaning(role)}"
        + (" A time and a status: --survival TIME,STATUS --horizon T." * (role == "reward")),
    )


def _toml(files: list[str], proposal: Proposal, written: dict[str, Any], better: str | None) -> str:
    """The settings with the reasons as comments."""
    lines = [
        "# Which column is what, as proposed by dprl init. Read it and mend it: every command that",
        "# is started in this folder takes it from here.",
        "[log]",
        f"files = {toml(files)}",
    ]
    for role in ROLES:
        if role.name in proposal.columns:
            value = toml(proposal.columns[role.name])
            lines.append(f"{role.name} = {value}  # {_line(proposal.reasons[role.name])}")
        if others := proposal.candidates.get(role.name):
            also = "also " if role.name in proposal.columns else ""
            lines.append(f"# {role.name} could {also}be: {first_few(map(_word, others), SHOWN)}")
    lines += [f"{name} = {toml(value)}" for name, value in written.items()]
    if proposal.zeros:
        word = f"{proposal.columns['reward']}=zero"
        lines.append(f"missing = {toml([word])}  # an outcome on the last row; before it 0")
    lines += [f"# left out: {_word(name)}: {why}" for name, why in proposal.left_out.items()]
    if proposal.single and "propensity" not in proposal.columns:
        lines.append('# if the action was given by lot, as in a trial: design = "randomised"')
    features = isinstance(proposal.columns["state"], list)
    gamma, why = 0.99, "what comes a step later counts 0.99 of it now"
    if proposal.single:
        gamma, why = 1.0, "one decision each"
    elif proposal.outcome:
        gamma, why = 1.0, "one outcome at the end of short episodes: it counts whole, early or late"
    told = "as you said"
    if better is None and sounds_like_harm(str(proposal.columns["reward"])):
        better, told = "lower", "by its name less of it is better; mend it if that is wrong"
    if better is not None:
        lines += ["", "[outcome]", f"better = {toml(better)}  # {told}"]
    lines += ["", "[fit]", f"gamma = {gamma}  # {why}"]
    if features:
        lines.append(
            'learner = "rules"  # sentences over features, certified on half of the groups'
        )
    else:
        lines.append("n-min = 20  # episodes an action needs before it may be suggested")
    return "\n".join(lines) + "\n"


def _cautions(proposal: Proposal) -> list[str]:
    """What a user must look at before anything is learned."""
    state = proposal.columns["state"]
    kept = [state] if isinstance(state, str) else state
    return [
        f"{name!r} tells the action on {share:.1%} of rows: most likely what was given, not why. "
        + (
            "It is in the state as you said; nothing can be compared there."
            if name in kept
            else "It is left out of the state; leave it out of what is compared too (also)."
        )
        for name, share in proposal.fixing.items()
    ]


def toml(value: Any) -> str:
    """A value as TOML writes it: text, a number, a truth value, or several of them.

    Args:
        value: The value.
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else _word(value)


def _line(words: str) -> str:
    """Words for a comment: on one line, and without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in words)


def _word(value: Any) -> str:
    """A TOML string: JSON's is one, but for the letter DEL."""
    from json import dumps

    return dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


# --- `dprl split`: some patients or episodes to learn from, the rest to judge by


@command
def split(
    files: FilesOfLog,
    *,
    by: str,
    out: Path,
    fraction: float = 0.5,
    seed: Seed = 0,
    group: str | None = None,
    partitions: Partitions = False,
    encoding: Letters = None,
    json: Json = False,
) -> int:
    """Split a table by whole patients or episodes: some to learn from, the rest to judge by.

    Writes train and test, CSV or Parquet as the table is, with every column as it came. CSV is
    written with commas between cells, in the encoding it was read in. The same values and seed
    give the same sides, whatever the order of the rows. Where a group is named, also in the table
    [log] of dprl.toml, a split that divides one is refused.

    Example: `dprl split visits.csv --by patient --out parts`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
        by: Column whose rows stay together: patient or episode.
        out: A folder for train and test.
        fraction: Share of the patients or episodes to learn from.
        group: Column, such as patient, that --by must not divide.
    """
    from dprl.logs.reading.tables import split_table

    with progress() as tell, warned() as cautions:
        sides = split_table(
            files,
            by,
            out,
            fraction=fraction,
            seed=seed,
            group=group,
            partitions=partitions,
            encoding=encoding or "utf-8",
            progress=tell,
        )
    lines = [
        f"{side:<5}  {sides[side]['kept']:,} of {by!r}, {many(sides[side]['rows'], 'row')}: "
        f"{sides[side]['file']}"
        for side in ("train", "test")
    ]
    return told({**sides, "warnings": cautions}, "\n".join(lines), json, cautions)


# --- `dprl check`: what is wrong or odd about a log


@command
def check(
    files: FilesOfLog,
    log: LogOptions,
    memory: ScanOptions | None = None,
    *,
    markov: Flag = False,
    gamma: float | None = None,
    lags: MaybeWhole = None,
    cut: Cut | None = None,
    figure: Path | None = None,
    details: Details = False,
    json: Json = False,
) -> int:
    """Say what is wrong, odd or worth knowing about a log. Changes nothing.

    Example: `dprl check 'logs/*.parquet' --episode stay --time hour --state s --action a
    --reward r`

    A log larger than memory, in Parquet files:
    `dprl check 'logs/*.parquet' --out-of-core --memory-limit 2GB ...`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
        markov: Also ask whether the state is enough: given state and action, do the steps before
            still tell what comes next? Needs --gamma; states are labels.
        gamma: With --markov: discount per step, in (0, 1].
        lags: With --markov: how many steps back to look; by default 2.
        cut: With --markov: how to treat cut episodes (not ipcw); by default as ended.
        figure: Figure of a time to event by action: .png, .svg or .pdf; its data beside it as
            .parquet.
    """
    import dprl
    from dprl._core import plot
    from dprl._core.checks import check_gamma, check_whole

    asked: dict[str, Any] = {"gamma": gamma, "lags": lags, "cut": cut}
    given = {name: value for name, value in asked.items() if value is not None}
    if given and not markov:
        first = next(iter(given))
        raise ParameterError(
            f"{', '.join(f'--{name}' for name in given)}: only for the check of the state.",
            f"--{first} {given[first]}",
            f"Say --markov too, or leave out what is for it (in {SETTINGS} too).",
        )
    if markov and memory is not None and memory.out_of_core:
        raise ParameterError(
            "--markov needs the log in memory.", do="Leave --out-of-core out, or --markov."
        )
    if markov and gamma is None:
        raise ParameterError(
            "--markov needs --gamma: what comes next is weighed as a policy would weigh it.",
            do="Say the discount that you learn with: --gamma 0.99",
        )
    if gamma is not None:
        check_gamma(gamma)
    if lags is not None:
        check_whole("--lags", lags, 1)
    if figure is not None:
        check_folder(figure)
        plot.ready()
        for path in (figure, figure.with_suffix(".parquet")):
            refuse_overwrite(path, *files)
    past: Any = None
    cautions: list[str] = []
    memory = memory or ScanOptions()
    features = fits_features()
    plain = len(log.state) == len(log.action) == 1 and not log.action_bins and not features
    parts = memory.in_parts(files, able=plain and not markov, learns=False)
    with progress() as tell, contextlib.ExitStack() as stack:
        if parts:
            report = stack.enter_context(memory.checked(files, log.options(), tell))
        else:
            report = dprl.check(files, **log.options(features, compare=True), progress=tell)
        if markov and report.log is not None and report.ok:
            tell("looking at the past (the first run compiles for some seconds)", 0.0)
            with warned() as cautions:
                past = dprl.markov_check(report.log, **given)
        if figure is not None and isinstance(report.log, dprl.Log):
            dprl.figures.curves(report.log).save(figure)
    report = replace(report, findings=tuple(map(_in_options, report.findings)))
    if json:
        facts = report.to_dict()
        if markov:
            facts["markov"] = None if past is None else past.to_dict()
            facts["warnings"] = cautions
        show(facts, as_json=True)
        return 0 if report.ok else 1
    caution(cautions)
    show(printed(report, details), as_json=False)
    if markov:
        words = past or "The state was not checked: the log has errors. Mend them first."
        show(f"\n{words}", as_json=False)
    return 0 if report.ok else 1


def _in_options(finding: Any) -> Any:
    """A finding, worded for the command line."""
    return replace(finding, what=in_options(finding.what), do=in_options(finding.do))
