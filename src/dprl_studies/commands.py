"""The commands of the studies: `dprl reproduce` for experiments, `dprl icu` for MIMIC tables.

The command line of dprl finds this module by its name and imports it last; the commands register
themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from dprl._core.disk import check_target
from dprl.apps.cli.console import command, complain, progress, show, told
from dprl.apps.cli.options import Cluster, Json, MaybeWhole, Whole
from dprl.errors import PackageError
from dprl_studies import paper

if TYPE_CHECKING:
    from dprl_studies.harness import Experiment, Result


def _listed() -> str:
    """The table of experiments, for --help."""
    lines = [
        f"- **{name}**: {listed.shows}" + f" Needs {listed.needs}." * bool(listed.needs)
        for name, listed in paper.EXPERIMENTS.items()
    ]
    return "\n".join(
        ["Experiments to run:\n", *lines, f"- **{paper.ALL}**: Those that need no further option."]
    )


@command
def reproduce(
    names: Annotated[list[str], Parameter(help=_listed())],
    /,
    *,
    quick: Annotated[
        bool, Parameter(help="A small version, in about a minute.", negative="")
    ] = False,
    out: Annotated[Path, Parameter(help="A folder; each experiment gets one inside it.")] = Path(
        "out"
    ),
    tables: Annotated[
        Path | None,
        Parameter(help="For hypotension, and more for rules: a folder of MIMIC tables."),
    ] = None,
    trials: Annotated[
        Path | None, Parameter(help="More for rules: the International Stroke Trial (Parquet).")
    ] = None,
    games: Annotated[
        list[str] | None,
        Parameter(
            help="For atari: the games to run; by default the paper's five.",
            consume_multiple=True,
            negative="",
        ),
    ] = None,
    experts: Annotated[
        Path | None, Parameter(help="For atari: a folder of trained networks.")
    ] = None,
    logs: Annotated[MaybeWhole, Parameter(help="Logs of each cell, if not all.")] = None,
    worlds: Annotated[
        list[str] | None,
        Parameter(
            help="For claims: parts of the names of worlds; by default all.",
            consume_multiple=True,
            negative="",
        ),
    ] = None,
    claims: Annotated[
        list[str] | None,
        Parameter(
            help="For claims: families of claims (rules, confident, gate, intervals, monitor).",
            consume_multiple=True,
            negative="",
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        Parameter(help="Begin no task after this time; a later run continues."),
    ] = None,
    seed: Annotated[Whole, Parameter(help="Seed of everything random.")] = 0,
    workers: Annotated[
        MaybeWhole, Parameter(help="Number of processes; by default one per core.")
    ] = None,
    cluster: Cluster = None,
    json: Json = False,
) -> int:
    """Run the paper's experiments: rows, a table and a figure each.

    A run that was stopped (Ctrl-C) continues where it was; the rows do not depend on the number of
    workers. If one of several experiments needs a package that is not installed, it is skipped: the
    others run, the skipped ones are listed at the end, and the exit code is 1.

    Example: `dprl reproduce forest risky-arms --quick`
    """
    wanted = list(dict.fromkeys([*(paper.names() if paper.ALL in names else ()), *names]))
    wanted = [name for name in wanted if name != paper.ALL]
    apart = [name for name in wanted if paper.entry(name).needs]
    apart.sort(key=list(paper.EXPERIMENTS).index)
    skipped: dict[str, PackageError] = {}

    @contextlib.contextmanager
    def unless_missing(name: str) -> Iterator[None]:
        """Continue without an experiment whose package is missing, where it is one of several."""
        try:
            yield
        except PackageError as error:
            if len(wanted) == 1:
                raise
            skipped[name] = error

    chosen: dict[str, Experiment] = {}
    # All are made before the first runs: one that lacks its folder is refused before hours of work.
    for name in [*(name for name in wanted if name not in apart), *apart]:
        with unless_missing(name), progress() as tell:
            chosen[name] = paper.experiment(
                name, tables=tables, trials=trials, games=games or (), experts=experts,
                logs=logs, worlds=worlds or (), claims=claims or (), quick=quick, seed=seed,
                folder=_folder(out, name, quick), progress=tell,
            )  # fmt: skip
    results: list[Result] = []
    for name, one in chosen.items():
        with unless_missing(name):
            result = _run(one, out, quick, seed, workers, cluster, minutes)
            results.append(result)
            if not json:
                what = " and table" if result.note else ", table and figure"
                lines = [f"{one.name}: {one.question}", "", str(one.brief(result.summary)), ""]
                lines += [f"{result.rows:,} rows{what} in {result.folder}", ""]
                show("\n".join(lines), as_json=False)
            if result.note:
                complain(f"{one.name} has no figure: {result.note}")
    if json:
        facts: list[dict[str, Any]] = [
            {"name": r.name, "folder": str(r.folder), "rows": r.rows,
             "summary": r.summary.to_dicts()}
            for r in results
        ]  # fmt: skip
        facts += [
            {"name": name, "skipped": {"what": e.what, "where": e.where, "do": e.do}}
            for name, e in skipped.items()
        ]
        show(facts, as_json=True)
    if skipped:
        complain(f"{len(skipped)} of {len(wanted)} experiments were skipped:")
    for name, error in skipped.items():
        complain(f"{name}: {error}")
    return 1 if skipped else 0


@command
def bench(
    *,
    learner: Annotated[
        str,
        Parameter(help="A learner of your own, module:Class; its class takes gamma, or nothing."),
    ] = "",
    suite: Annotated[
        Literal["quick", "full"], Parameter(help="quick: a few minutes; full: within two hours.")
    ] = "quick",
    rivals: Annotated[
        list[str] | None,
        Parameter(help="Only these rivals.", consume_multiple=True, negative=""),
    ] = None,
    hindsight: Annotated[
        bool, Parameter(help="Run other settings of the rivals too.", negative="")
    ] = False,
    check: Annotated[
        bool, Parameter(help="The problems and logs that are kept for checking.", negative="")
    ] = False,
    verify: Annotated[
        Path | None,
        Parameter(help="Rather run a sample of the rows of this file (Parquet) again."),
    ] = None,
    out: Annotated[Path, Parameter(help="A folder; the suite gets one inside it.")] = Path("out"),
    seed: Annotated[Whole, Parameter(help="Seed of problems and logs.")] = 0,
    minutes: Annotated[
        float | None, Parameter(help="Begin no task after this time; a later run continues.")
    ] = None,
    workers: Annotated[
        MaybeWhole, Parameter(help="Number of processes; by default one per core.")
    ] = None,
    cluster: Cluster = None,
    json: Json = False,
) -> int:
    """Compare learners on a suite of problems whose true values are known.

    Writes rows, a table, a figure and a page. A run that was stopped continues where it was; the
    values in the rows do not depend on the number of workers.

    Example: `dprl bench --learner my_package.best:BestMean --suite quick`
    """
    from dprl_studies import bench as suite_of

    if verify is not None:
        wrong = suite_of.verify(verify, seed=seed)
        show(
            {"wrong": wrong} if json else "\n".join(wrong) or "The sample is as the file says.",
            json,
        )
        return 1 if wrong else 0
    one = suite_of.experiment(learner, check=check, hindsight=hindsight, names=rivals)
    result = _run(one, out, suite == "quick", seed, workers, cluster, minutes)
    facts = {
        "folder": str(result.folder),
        "rows": result.rows,
        "summary": result.summary.to_dicts(),
    }
    text = (
        f"{one.question}\n\n{one.brief(result.summary)}\n\n{result.rows:,} rows in {result.folder}"
    )
    return told(facts, text, json)


def _folder(out: Path, name: str, quick: bool) -> Path:
    return out / (name + ("-quick" if quick else ""))


def _run(
    experiment: Experiment,
    out: Path,
    quick: bool,
    seed: int,
    workers: int | None,
    cluster: str | None,
    minutes: float | None,
) -> Result:
    """One experiment, and the review report if one goes with it."""
    from dprl_studies.harness import reproduce as run

    name = experiment.name
    with progress() as tell:
        result = run(
            experiment, _folder(out, name, quick),
            quick=quick, seed=seed, workers=workers, cluster=cluster, minutes=minutes,
            progress=tell,
        )  # fmt: skip
        title = paper.entry(name).review if name in paper.EXPERIMENTS else ""
        if title:
            from dprl.apps.reports._report import report as write_report

            tell("review report", 0.0)
            policy, test = paper.reviewed(name, result.folder, seed)
            write_report(
                policy, test, result.folder / "review.html", values=not quick, seed=seed,
                title=title, progress=tell,
            )  # fmt: skip
    return result


group = App(
    name="icu",
    help="""Hypotension in intensive care: from MIMIC tables to logs.

    dprl icu build mimic-iv --out stays.parquet
    dprl icu split stays.parquet --out splits --seed 0

Without access to MIMIC: `dprl icu simulate --out tables` makes tables of the same layout.
""",
)
command(group)

Threads = Annotated[
    MaybeWhole, Parameter(help="Number of threads; the result does not depend on it.")
]
Temp = Annotated[Path | None, Parameter(help="A folder with room for temporary files.")]


@group.command
def build(
    folder: Path,
    /,
    *,
    out: Annotated[Path, Parameter(help="The table of decisions, a .parquet file.")] = Path(
        "stays.parquet"
    ),
    memory: Annotated[str, Parameter(help="Memory limit; the rest goes to disk.")] = "4GB",
    threads: Threads = None,
    temp: Temp = None,
    items: Annotated[
        Path | None, Parameter(help="A CSV file of item codes in place of MIMIC's.")
    ] = None,
    horizon: Annotated[Whole, Parameter(help="Hours of each stay that are used.")] = 72,
    low_map: Annotated[float, Parameter(help="A mean pressure below this is low, mmHg.")] = 65.0,
    low_n: Annotated[
        Whole, Parameter(help="Low pressures that a stay must have to be included.")
    ] = 7,
    json: Json = False,
) -> int:
    """Build the hypotension cohort: one hourly treatment decision per row.

    Prints the flow of counts and the data dictionary, and writes both beside the table. Values
    never charted stay missing: `dprl icu split` fills them from the training patients.

    Example: `dprl icu build physionet/mimic-iv --out stays.parquet --memory 8GB`

    Args:
        folder: MIMIC-IV (with icu/ and hosp/) or MIMIC-III tables: .csv.gz, .csv or .parquet.
    """
    from dprl_studies import icu

    rules = icu.Cohort(horizon=horizon, low_map=low_map, low_n=low_n)
    with progress() as tell:
        built = icu.build(
            folder, out, cohort=rules, items=items, memory=memory, threads=threads, temp=temp,
            progress=tell,
        )  # fmt: skip
    text = f"{built}\n\n{icu.dictionary()}\n\nSaved as {out}."
    return told(built.to_dict(), text, json)


@group.command
def split(
    stays: Path,
    /,
    *,
    out: Annotated[Path, Parameter(help="A folder for train, valid and test.")],
    seed: Annotated[Whole, Parameter(help="Seed of the split.")] = 0,
    shares: Annotated[
        tuple[float, float, float],
        Parameter(help="Shares of the patients: training, validation, test."),
    ] = (0.25, 0.25, 0.5),
    edges: Annotated[
        Literal["published", "terciles"],
        Parameter(help="Vasopressor levels: the published edges, or terciles in training."),
    ] = "published",
    reward: Annotated[
        Literal["published", "shortfall"],
        Parameter(help="published: 0 to 1; shortfall: the same minus 1."),
    ] = "published",
    bolus_cost: Annotated[
        float, Parameter(help="Subtracted from the reward per level of bolus, such as 0.05.")
    ] = 0.0,
    vasopressor_cost: Annotated[
        float, Parameter(help="Subtracted per level of vasopressor and hour, such as 0.03.")
    ] = 0.0,
    json: Json = False,
) -> int:
    """Split by patient and fill what is missing from the training patients alone.

    Writes train.parquet, valid.parquet and test.parquet, logs for `dprl check` and `dprl fit`;
    preparation.json with the medians and edges; and dprl.toml with column names and weights: run
    `dprl fit train.parquet` in that folder.

    Example: `dprl icu split stays.parquet --out splits --seed 0`

    Args:
        stays: A table that `dprl icu build` wrote.
    """
    from dprl_studies import icu
    from dprl_studies.icu.preparation import WRITTEN, write_splits

    check_target(*(out / name for name in WRITTEN))
    costs = icu.Costs(bolus_cost, vasopressor_cost)
    data = icu.prepare(
        icu.read_stays(stays), seed=seed, shares=shares, edges=edges, reward=reward,
        costs=None if costs == icu.Costs(0, 0) else costs,
    )  # fmt: skip
    facts = write_splits(data, out, seed=seed, shares=shares)
    lines = [f"{name:<5}  {getattr(data, name)!r}" for name in ("train", "valid", "test")]
    lines += [f"note: {note}" for note in data.preparation.notes]
    return told(facts, "\n".join([*lines, "", f"Saved in {out}."]), json)


@group.command
def simulate(
    *,
    out: Annotated[Path, Parameter(help="A folder; it gets icu/ and hosp/.")],
    stays: Annotated[Whole, Parameter(help="Number of stays, of about as many patients.")] = 2000,
    seed: Annotated[Whole, Parameter(help="Seed of everything random.")] = 0,
    json: Json = False,
) -> int:
    """Write tables in the layout of MIMIC-IV, of invented patients whose best treatment is known.

    Example: `dprl icu simulate --stays 2000 --out tables --seed 0`
    """
    from dprl_studies.icu.simulation import simulate as run

    with progress() as tell:
        made = run(out, stays=stays, seed=seed, progress=tell)
    lines = [f"{name}: {rows:,} rows" for name, rows in made["tables"].items()]
    lines += ["", f"Saved in {out}. Next: dprl icu build {out} --out stays.parquet"]
    return told(made, "\n".join(lines), json)
