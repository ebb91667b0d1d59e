"""Commands for sites that share no rows: `evidence` and `merge`."""

from __future__ import annotations

import csv
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Literal

from cyclopts import App

from dprl._core.disk import refuse_overwrite
from dprl._core.table import many
from dprl.apps.cli.console import command, complain, progress, show, told, warned
from dprl.apps.cli.options import FilesOfLog, Flag, Json, LogOptions, MaybeLogOptions, MaybeWhole
from dprl.errors import EvidenceError, ParameterError

# --- `dprl merge`: what several sites counted, together


@command
def merge(
    files: list[str],
    /,
    *,
    out: Path | None = None,
    json: Json = False,
) -> int:
    """Put together what several sites counted with one schema. The order does not matter.

    Example: `dprl merge north.evidence south.evidence --out all.evidence`

    Or through a pipe: `dprl merge north.evidence south.evidence | dprl fit - --no-plan --n-min 20`

    Args:
        files: Evidence files, one per site.
        out: Where to save it; by default it goes to standard output, for a pipe.
    """
    import dprl
    from dprl.planning.sites import load_counts

    refuse_overwrite(out, *files)
    folders = [file for file in files if Path(file).is_dir()]
    if folders:
        raise ParameterError(
            "a folder of evidence has small cells in it, and is not for others.",
            folders[0],
            f"Make a file of it first: dprl evidence {folders[0]} --site NAME --out FILE",
        )
    if out is None and (json or sys.stdout.isatty()):
        raise ParameterError(
            "--out is missing: evidence is not text for a screen.",
            do="Say --out all.evidence, or send it through a pipe: | dprl fit - ...",
        )
    merged = dprl.merge_evidence(*(load_counts(file) for file in files))
    if out is None:
        complain(repr(merged))
        sys.stdout.buffer.write(merged.to_bytes())
        sys.stdout.flush()
        return 0
    merged.save(out)
    first = merged.evidence if isinstance(merged, dprl.SitePlan) else merged
    facts = {"evidence": str(out), "groups": first.groups,
             "sites": [dict(site) for site in first.sites]}  # fmt: skip
    return told(facts, f"{merged.explain()}\n\nSaved as {out}.", json)


# --- `dprl evidence --sql` and `--rows`: the query for a warehouse, and what came of it


def print_query(schema: Path | None, log: MaybeLogOptions, given: dict[str, Any]) -> int:
    """Print the query that counts a table.

    Args:
        schema: The schema file.
        log: Which column is what.
        given: Table, decimals, precision and dialect, None where they were not given.
    """
    import dprl
    from dprl.evidence import sql_query

    if schema is None or given["table"] is None:
        gone = "--schema" if schema is None else "--table"
        raise ParameterError(
            f"{gone} is missing: a query needs --schema, --table and the columns.",
            do="Say the schema that all sites agreed on, and the table as after FROM.",
        )
    options = log.options()
    if options["time"] is None:
        raise ParameterError(
            "--time is missing: the rows of a table in a database have no order.",
            do="Name the column that orders the rows of an episode.",
        )
    unused = [name for name in ("available", "ended", "propensity", "events", "follow_up")
              if options.get(name)]  # fmt: skip
    if unused:
        raise ParameterError(
            f"--{unused[0].replace('_', '-')} is not for the query, which takes every episode as "
            "ended.",
            do="Leave it out, or count with dprl evidence where the rows are.",
        )
    changed = [name for name in ("labels", "action_bins") if options.get(name)]
    if changed:
        raise ParameterError(
            f"--{changed[0].replace('_', '-')} is not for the query, which takes labels as they "
            "are in the table.",
            do="Leave it out, and change the labels in the table itself.",
        )
    if not isinstance(options["state"], str):
        raise ParameterError(
            f"the query counts labelled states, and {len(options['state'])} columns are named.",
            do="Name one column with --state.",
        )
    names = ("episode", "time", "state", "action", "reward", "group")
    settings = {name: value for name, value in given.items() if value is not None}
    columns = {name: options[name] for name in names}
    show(sql_query(dprl.SiteSchema.load(schema), **columns, **settings).rstrip(), as_json=False)
    return 0


def count_rows(
    rows: Path, schema: Path | None, out: Path | None, k: int | None, site: str, json: bool
) -> int:
    """Make an evidence file of the query's result.

    Args:
        rows: A CSV file with a header: the result of the query.
        schema: The schema file.
        out: The evidence file.
        k: The fewest groups; None: as many as usual.
        site: A name for the site.
        json: Whether to print for machines.
    """
    import dprl
    from dprl.evidence import from_query

    if schema is None or out is None:
        gone = "--schema" if schema is None else "--out"
        raise ParameterError(
            f"{gone} is missing: the result of a query needs --schema and --out.",
            do="Say the schema that the query was made with, and where to save the evidence.",
        )
    refuse_overwrite(out, str(rows), str(schema))
    agreed = dprl.SiteSchema.load(schema)
    try:
        with rows.open(encoding="utf-8-sig", newline="") as stream:
            read = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise EvidenceError(
            f"no rows can be read from {str(rows)!r}.", str(error)[:80],
            "Save the result of the query as CSV, with a header.",
        ) from error  # fmt: skip
    counted = from_query(read, agreed, site=site, **({} if k is None else {"k": k}))
    return _saved(counted, out, json)


def _saved(counted: Any, out: Path, json: bool) -> int:
    """Save what can be given away, and say what is in it."""
    counted.save(out)
    facts = {"evidence": str(out), "digest": counted.digest(), **counted.sites[0]}
    return told(facts, f"{counted.explain()}\n\nSaved as {out}.", json)


# --- `dprl evidence`: what a site counts of its log, for others to add up; no rows leave it


evidence = App(name="evidence", help_format="markdown", suppress_keyboard_interrupt=False)


@evidence.default
def count_log(
    files: list[str] | None = None,
    /,
    *,
    log: MaybeLogOptions | None = None,
    schema: Path | None = None,
    out: Path | None = None,
    k: MaybeWhole = None,
    site: str = "",
    make_schema: Path | None = None,
    states: Path | None = None,
    actions: Path | None = None,
    gamma: float | None = None,
    lowest: float | None = None,
    highest: float | None = None,
    cut: Literal["drop", "drop-unrelated", "terminal"] | None = None,
    points: Path | None = None,
    n_min: MaybeWhole = None,
    contrast: bool = True,
    sql: Flag = False,
    table: str | None = None,
    decimals: MaybeWhole = None,
    precision: MaybeWhole = None,
    dialect: Literal["standard", "duckdb", "postgres", "spark", "bigquery", "snowflake"]
    | None = None,
    rows: Path | None = None,
    explain: Flag = False,
    json: Json = False,
) -> int:
    """Count what a log says, over labels that were fixed beforehand, for sites that share no rows.

    All sites count with one schema. Their files are put together with `dprl merge`, and
    `dprl fit` takes the result.

    Example: `dprl evidence visits.csv --make-schema schema.json --gamma 0.99 --lowest 0
    --highest 1 ...`

    Then, at every site: `dprl evidence visits.csv --schema schema.json --out north.evidence ...`

    What would leave the site: `dprl evidence north.evidence --explain`

    Every day a little: `dprl evidence add day-2026-11-16.parquet --folder counted ...`, and
    `dprl fit counted --no-plan` in place of a log; `dprl evidence counted --out north.evidence`
    makes a file of the folder that can be given away.

    In a warehouse: `dprl evidence --sql --schema schema.json --table visits --dialect postgres ...`
    prints the query, and `dprl evidence --rows result.csv --schema schema.json --out
    north.evidence` takes its result.

    For a plan over several decisions, count again between the points of all sites:
    `dprl evidence visits.csv --points all.evidence --n-min 20 --out north.plan ...`

    Args:
        files: CSV or Parquet files of a log; a folder of evidence; with --explain evidence files.
        log: Which column is what.
        schema: The schema that all sites agreed on, a JSON file.
        out: Where to save what was counted, such as north.evidence.
        k: Nothing of fewer groups is given away about a state; by default 10.
        site: A name for the site.
        make_schema: Write a schema to this file: with the labels of a log, and no count of it, or
            with --states and --actions.
        states: With --make-schema: a file with one state per line, as numbers where all are.
        actions: With --make-schema: a file with one action per line.
        gamma: With --make-schema: discount per step, in (0, 1].
        lowest: With --make-schema: the lowest return there can be, for a certificate.
        highest: With --make-schema: the highest return there can be.
        cut: With --make-schema: how to treat cut episodes; by default as ended.
        points: Count a second time, for a plan: what lies between the decision points of this file,
            which all sites' first counts were merged to. The log, --k and --site must be those of
            the first count.
        n_min: With --points: episodes an action needs, as the learner will have it.
        contrast: With --points: also require n-min episodes that did otherwise.
        sql: Print the query that counts a table in a warehouse, in whole numbers; needs --schema,
            --table and the columns.
        table: With --sql: the table, as it is written after FROM.
        decimals: With --sql: how many decimals rewards have; by default 0.
        precision: With --sql: how many decimals of gamma^k are kept; by default 12.
        dialect: With --sql: how types are called and names quoted; by default standard.
        rows: A CSV file with the result of that query, in place of a log; needs --schema and --out.
        explain: Say what is in evidence files, line by line.
    """
    given = list(files or [])
    if explain:
        return _explain(given, json)
    of_schema = {"states": states, "actions": actions, "gamma": gamma, "lowest": lowest,
                 "highest": highest, "cut": cut}  # fmt: skip
    if make_schema is not None:
        return _make_schema(given, log or MaybeLogOptions(), make_schema, of_schema, json)
    odd = [name for name, value in of_schema.items() if value is not None]
    if odd:
        raise ParameterError(
            f"--{odd[0]} is part of a schema, which is fixed before anybody counts.",
            f"--{odd[0]} {of_schema[odd[0]]}",
            "Say --make-schema FILE to write one; to count, leave it out.",
        )
    of_query = {"table": table, "decimals": decimals, "precision": precision, "dialect": dialect}
    if sql:
        return print_query(schema, log or MaybeLogOptions(), of_query)
    if rows is not None:
        return count_rows(rows, schema, out, k, site, json)
    odd = [name for name, value in of_query.items() if value is not None]
    if odd:
        raise ParameterError(
            f"--{odd[0]} is for a query.", f"--{odd[0]} {of_query[odd[0]]}",
            "Say --sql too, or leave it out.",
        )  # fmt: skip
    if points is not None:
        return _count_again(given, log or MaybeLogOptions(), points, n_min, contrast, out, k, site,
                            json)  # fmt: skip
    if len(given) == 1 and out is not None and Path(given[0]).is_dir():
        from dprl.evidence import EvidenceFolder

        kept = EvidenceFolder.open(given[0])
        return _saved(kept.evidence(site=site, **({} if k is None else {"k": k})), out, json)
    if schema is None or out is None or not given:
        gone = "--schema" if schema is None else "--out" if out is None else "a log"
        raise ParameterError(
            f"{gone} is missing: to count, a log, --schema and --out are needed.",
            do="Write a schema first with --make-schema, or look into a file with --explain.",
        )
    return _count(given, log or MaybeLogOptions(), schema, out, k, site, json)


@evidence.command
def add(
    files: FilesOfLog,
    /,
    *,
    log: LogOptions,
    folder: Path = Path("counted"),
    schema: Path | None = None,
    keep_rows: Flag = False,
    reopen: Flag = False,
    json: Json = False,
) -> int:
    """Count a day's log and keep what was counted in a folder, beside the days before.

    Nothing that was counted is read again. Groups (patients; episodes without --group) that were
    counted before are refused, or reopened.

    Example: `dprl evidence add day-2026-11-16.parquet --folder counted --schema schema.json ...`

    Then: `dprl fit counted --n-min 20 --no-plan --out policy.dprl`

    Args:
        files: CSV or Parquet files of the day's log.
        log: Which column is what.
        folder: Where evidence is kept. It is yours alone: small cells are in it.
        schema: The first time: the schema to count with, of `dprl evidence --make-schema`.
        keep_rows: The first time: keep the rows too, so that groups that come again can be
            reopened.
        reopen: Take out what groups that come again contributed, and count their rows of all days
            together; needs a folder with rows.
    """
    import dprl
    from dprl.evidence import EvidenceFolder

    new = not folder.exists()
    if new and schema is None:
        raise ParameterError(
            f"there is no folder of evidence {str(folder)!r} yet: --schema is missing.",
            do="Say the schema to count with (dprl evidence --make-schema makes one), or the "
            "right --folder.",
        )
    if not new and (schema is not None or keep_rows):
        given = "--schema" if schema is not None else "--keep-rows"
        raise ParameterError(
            f"{given} is for a new folder, and {str(folder)!r} is there.",
            do="Leave it out: a folder keeps what it began with.",
        )
    with progress() as tell, warned() as cautions:
        data = dprl.read(files, **log.options(features=False), progress=tell)
        tell("counting (the first run compiles for some seconds)", 0.0)
        kept = (
            EvidenceFolder.open(folder)
            if schema is None
            else EvidenceFolder.create(folder, dprl.SiteSchema.load(schema), keep_rows=keep_rows)
        )
        try:
            reopened = kept.add(data, name=Path(files[0]).name, reopen=reopen)
        except BaseException:
            if new:
                shutil.rmtree(folder)
            raise
        total = kept.evidence(k=1)
    facts = {"folder": str(folder), "days": kept.days, "reopened": reopened,
             "groups": total.groups, "episodes": total.facts.n_episodes,
             "warnings": cautions}  # fmt: skip
    again = f", of which {reopened:,} were counted before and are put together" * bool(reopened)
    words = (
        f"{data!r}\nAdded {len(data.groups):,} groups{again}. {folder}: {total.groups:,} groups, "
        f"{total.facts.n_episodes:,} episodes, added on {many(kept.days, 'occasion')}."
    )
    return told(facts, words, json, cautions)


def _explain(files: list[str], json: bool) -> int:
    import dprl
    from dprl.planning.sites import load_counts

    if not files:
        raise ParameterError("--explain needs an evidence file.", do="Name one.")
    parts: list[Any] = [load_counts(file) for file in files]
    first = [part.evidence if isinstance(part, dprl.SitePlan) else part for part in parts]
    facts = [
        {"file": file, "sites": [dict(site) for site in one.sites], "words": part.explain()}
        for file, part, one in zip(files, parts, first, strict=True)
    ]
    return told(facts, "\n\n".join(str(fact["words"]) for fact in facts), json)


def _make_schema(
    files: list[str], log: MaybeLogOptions, out: Path, given: dict[str, Any], json: bool
) -> int:
    import dprl

    refuse_overwrite(out, *files, *(str(given[n]) for n in ("states", "actions") if given[n]))
    if given["gamma"] is None:
        raise ParameterError("a schema needs --gamma.", do="Say the discount: --gamma 0.99")
    ends = (given["lowest"], given["highest"])
    if (ends[0] is None) != (ends[1] is None):
        raise ParameterError(
            "--lowest and --highest come together.",
            do="State both from what rewards can be, or neither.",
        )
    settings: dict[str, Any] = {"gamma": given["gamma"], "cut": given["cut"],
                "value_range": None if ends[0] is None else ends}  # fmt: skip
    named = [given[name] for name in ("states", "actions")]
    cautions: list[str] = []
    if files and not any(named):
        with progress() as tell, warned() as cautions:
            made = dprl.SiteSchema.of(
                dprl.read(files, **log.options(), progress=tell), **settings
            )  # fmt: skip
    elif all(named) and not files:
        labels: dict[str, Any] = {name: _labels(given[name]) for name in ("states", "actions")}
        made = dprl.SiteSchema(**labels, **settings, follow_up=log.follow_up)
    else:
        raise ParameterError(
            "a schema is made of a log, or of --states and --actions.",
            do="Name one of the two.",
        )
    made.save(out)
    facts = {"schema": str(out), "digest": made.digest(), "states": len(made.states),
             "actions": len(made.actions), "warnings": cautions}  # fmt: skip
    words = f"{made!r}\nSaved as {out}. Read its labels before you pass it on."
    return told(facts, words, json, cautions)


def _labels(path: Path) -> list[Any]:
    """The labels in a file, one per line; numbers where all of them are whole numbers."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        raise ParameterError(
            f"no labels can be read from {str(path)!r}.", do="Give a text file, one per line."
        ) from None
    labels = [line.strip() for line in lines if line.strip()]
    whole = all(re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", label) for label in labels)
    return [int(label) for label in labels] if whole else labels


def _count(
    files: list[str], log: MaybeLogOptions, schema: Path, out: Path, k: int | None, site: str,
    json: bool,
) -> int:  # fmt: skip
    import dprl

    refuse_overwrite(out, *files, str(schema))
    agreed = dprl.SiteSchema.load(schema)
    with progress() as tell, warned() as cautions:
        data = _read(files, log, agreed, tell)
        counted = dprl.site_evidence(data, agreed, site=site, **({} if k is None else {"k": k}))
        counted.save(out)
    facts = {"evidence": str(out), "digest": counted.digest(), **counted.sites[0],
             "warnings": cautions}  # fmt: skip
    return told(facts, f"{data!r}\n{counted.explain()}\n\nSaved as {out}.", json, cautions)


def _read(files: list[str], log: MaybeLogOptions, schema: Any, tell: Any) -> Any:
    """The log of a site, followed as the schema says where nobody says otherwise."""
    import dprl

    options = log.options()
    options["follow_up"] = options["follow_up"] or schema.follow_up
    data = dprl.read(files, **options, progress=tell)
    tell("counting (the first run compiles for some seconds)", 0.0)
    return data


def _count_again(
    files: list[str], log: MaybeLogOptions, points: Path, n_min: int | None, contrast: bool,
    out: Path | None, k: int | None, site: str, json: bool,
) -> int:  # fmt: skip
    import dprl

    if n_min is None or out is None or not files:
        gone = "--n-min" if n_min is None else "--out" if out is None else "a log"
        raise ParameterError(
            f"{gone} is missing: to count for a plan, a log, --points, --n-min and --out are "
            "needed.",
            do="Say them, with the --k and --site of the first count.",
        )
    refuse_overwrite(out, *files, str(points))
    first = dprl.SiteEvidence.load(points)
    with progress() as tell, warned() as cautions:
        data = _read(files, log, first.schema, tell)
        plan = dprl.site_plan(data, first, n_min=n_min, contrast=contrast, site=site,
                              **({} if k is None else {"k": k}))  # fmt: skip
        plan.save(out)
    facts = {"evidence": str(out), "sites": len(plan.parts), "hidden": plan.hidden,
             "warnings": cautions}  # fmt: skip
    words = f"{data!r}\n{plan.explain().split(chr(10) * 2)[0]}\n\nSaved as {out}."
    return told(facts, words, json, cautions)


command(evidence)
