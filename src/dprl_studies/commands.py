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
from dprl.apps.cli.options import Cluster, Flag, Json, MaybeWhole, Whole
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
    quick: Flag = False,
    out: Path = Path("out"),
    tables: Path | None = None,
    trials: Path | None = None,
    games: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    experts: Path | None = None,
    logs: MaybeWhole = None,
    worlds: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    claims: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    minutes: float | None = None,
    seed: Whole = 0,
    workers: MaybeWhole = None,
    cluster: Cluster = None,
    json: Json = False,
) -> int:
    """Run the paper's experiments: rows, a table and a figure each.

    A run that was stopped (Ctrl-C) continues where it was; the rows do not depend on the number of
    workers. If one of several experiments needs a package that is not installed, it is skipped: the
    others run, the skipped ones are listed at the end, and the exit code is 1.

    Example: `dprl reproduce forest risky-arms --quick`

    Args:
        quick: A small version, in about a minute.
        out: A folder; each experiment gets one inside it.
        tables: For hypotension, and more for rules: a folder of MIMIC tables.
        trials: More for rules: the International Stroke Trial (Parquet).
        games: For atari: the games to run; by default the paper's five.
        experts: For atari: a folder of trained networks.
        logs: Logs of each cell, if not all.
        worlds: For claims: parts of the names of worlds; by default all.
        claims: For claims: families of claims (rules, confident, gate, intervals, monitor).
        minutes: Begin no task after this time; a later run continues.
        seed: Seed of everything random.
        workers: Number of processes; by default one per core.
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
    learner: str = "",
    suite: Literal["quick", "full"] = "quick",
    rivals: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    hindsight: Flag = False,
    check: Flag = False,
    verify: Path | None = None,
    out: Path = Path("out"),
    seed: Whole = 0,
    minutes: float | None = None,
    workers: MaybeWhole = None,
    cluster: Cluster = None,
    json: Json = False,
) -> int:
    """Compare learners on a suite of problems whose true values are known.

    Writes rows, a table, a figure and a page. A run that was stopped continues where it was; the
    values in the rows do not depend on the number of workers.

    Example: `dprl bench --learner my_package.best:BestMean --suite quick`

    Args:
        learner: A learner of your own, module:Class; its class takes gamma, or nothing.
        suite: quick: a few minutes; full: within two hours.
        rivals: Only these rivals.
        hindsight: Run other settings of the rivals too.
        check: The problems and logs that are kept for checking.
        verify: Rather run a sample of the rows of this file (Parquet) again.
        out: A folder; the suite gets one inside it.
        seed: Seed of problems and logs.
        minutes: Begin no task after this time; a later run continues.
        workers: Number of processes; by default one per core.
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
    out: Path = Path("stays.parquet"),
    memory: str = "4GB",
    threads: Threads = None,
    temp: Temp = None,
    items: Path | None = None,
    horizon: Whole = 72,
    low_map: float = 65.0,
    low_n: Whole = 7,
    json: Json = False,
) -> int:
    """Build the hypotension cohort: one hourly treatment decision per row.

    Prints the flow of counts and the data dictionary, and writes both beside the table. Values
    never charted stay missing: `dprl icu split` fills them from the training patients.

    Example: `dprl icu build physionet/mimic-iv --out stays.parquet --memory 8GB`

    Args:
        folder: MIMIC-IV (with icu/ and hosp/) or MIMIC-III tables: .csv.gz, .csv or .parquet.
        out: The table of decisions, a .parquet file.
        memory: Memory limit; the rest goes to disk.
        items: A CSV file of item codes in place of MIMIC's.
        horizon: Hours of each stay that are used.
        low_map: A mean pressure below this is low, mmHg.
        low_n: Low pressures that a stay must have to be included.
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
    out: Path,
    seed: Whole = 0,
    shares: tuple[float, float, float] = (0.25, 0.25, 0.5),
    edges: Literal["published", "terciles"] = "published",
    reward: Literal["published", "shortfall"] = "published",
    bolus_cost: float = 0.0,
    vasopressor_cost: float = 0.0,
    json: Json = False,
) -> int:
    """Split by patient and fill what is missing from the training patients alone.

    Writes train.parquet, valid.parquet and test.parquet, logs for `dprl check` and `dprl fit`;
    preparation.json with the medians and edges; and dprl.toml with column names and weights: run
    `dprl fit train.parquet` in that folder.

    Example: `dprl icu split stays.parquet --out splits --seed 0`

    Args:
        stays: A table that `dprl icu build` wrote.
        out: A folder for train, valid and test.
        seed: Seed of the split.
        shares: Shares of the patients: training, validation, test.
        edges: Vasopressor levels: the published edges, or terciles in training.
        reward: published: 0 to 1; shortfall: the same minus 1.
        bolus_cost: Subtracted from the reward per level of bolus, such as 0.05.
        vasopressor_cost: Subtracted per level of vasopressor and hour, such as 0.03.
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
    out: Path,
    stays: Whole = 2000,
    seed: Whole = 0,
    json: Json = False,
) -> int:
    """Write tables in the layout of MIMIC-IV, of invented patients whose best treatment is known.

    Example: `dprl icu simulate --stays 2000 --out tables --seed 0`

    Args:
        out: A folder; it gets icu/ and hosp/.
        stays: Number of stays, of about as many patients.
        seed: Seed of everything random.
    """
    from dprl_studies.icu.simulation import simulate as run

    with progress() as tell:
        made = run(out, stays=stays, seed=seed, progress=tell)
    lines = [f"{name}: {rows:,} rows" for name, rows in made["tables"].items()]
    lines += ["", f"Saved in {out}. Next: dprl icu build {out} --out stays.parquet"]
    return told(made, "\n".join(lines), json)
