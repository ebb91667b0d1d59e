"""Run an experiment: many tasks in several processes, which can be interrupted and continued.

An experiment is a list of settings (one per task), a function that turns a setting into rows, a
summary of all rows and a figure. The rows are the same for any number of processes, on this machine
or on a cluster.

When a task is finished, its rows are written to a file of their own, whose name is a digest of the
task and of the code. So an interrupted run continues with the tasks that are missing; after a
change of the code it starts again from the beginning. At the end all rows are joined in the order
of the settings. Files in the folder OUT of an experiment:

    OUT/rows.parquet      all rows, with their settings and seeds, and a digest of the code
    OUT/summary.csv, .md  the table
    OUT/figure.png, .svg  the figure, where matplotlib is installed
    OUT/settings.json     the settings, the versions of dprl and numpy, and the whole digest
    OUT/page.md           the page of the docs, if the experiment has one
    OUT/parts/            the rows of each task
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dprl._core import __version__, plot
from dprl._core.checks import check_number, check_seed, check_whole
from dprl._core.cluster import connect, source_digest
from dprl._core.disk import check_target, replacing, together
from dprl._core.table import Table
from dprl.errors import ParameterError
from dprl.logs.reading.files import Progress
from dprl.logs.reading.tables import Row, Rows, read_rows, write_rows

__all__ = [
    "Experiment",
    "Result",
    "Row",
    "Rows",
    "Setting",
    "by",
    "plain_page",
    "reproduce",
    "table_of",
]

Setting: TypeAlias = dict[str, Any]
"""One task of an experiment: values that JSON can carry, by name."""


def _whole(table: Table) -> Table:
    """The default of `Experiment.brief`: the summary as it is.

    Args:
        table: The summary of an experiment.

    Returns:
        The same table.

    Example:
        >>> _whole(Table({"n": [1, 2]}))["n"]
        [1, 2]
    """
    return table


@dataclass(frozen=True)
class Experiment:
    """An experiment that `dprl reproduce NAME` runs.

    Attributes:
        name: Its name on the command line.
        question: The question it answers, in one sentence.
        settings: A function (quick, seed) → settings, one per task. Each is a dict of values that
            JSON can carry, and holds the seeds of its task.
        run: A function setting → rows of this task. The rows must depend on the setting alone.
        summary: A function rows → the table that people read.
        figure: A function rows → a matplotlib figure.
        brief: A function summary → a table that fits on a screen. Default: the summary itself.
        page: A function (rows, settings.json) → a page of the docs. Default None: there is none.

    Example:
        >>> from dprl_studies.paper import experiment
        >>> experiment("forest").question
        'Who finds the better first choice, and who is misled on the way?'
        >>> experiment("forest").settings(True, 0)[0]
        {'n': 50, 'seed': 0, 'first': 0, 'last': 10}
    """

    name: str
    question: str
    settings: Callable[[bool, int], Sequence[Setting]]
    run: Callable[[Setting], list[Row]]
    summary: Callable[[Rows], Table]
    figure: Callable[[Rows], Any]
    brief: Callable[[Table], Table] = _whole
    page: Callable[[Rows, dict[str, Any]], str] | None = None


@dataclass(frozen=True)
class Result:
    """The table of an experiment that was run, and the files that were written.

    Attributes:
        name: Name of the experiment.
        folder: Folder that holds its files.
        rows: Number of rows of all tasks together.
        summary: The table that people read.
        files: Paths of the files written: rows, summary, settings and figure.
        note: What was left out, and why; '' where nothing was. Default ''.

    Example:
        >>> folder = Path("results")
        >>> result = Result("forest", folder, 300, Table({"n": [50]}), (folder / "rows.parquet",))
        >>> result.rows
        300
    """

    name: str
    folder: Path
    rows: int
    summary: Table
    files: tuple[Path, ...]
    note: str = ""


def by(rows: Rows, *names: str) -> Iterator[tuple[tuple[Any, ...], Rows]]:
    """The rows of each combination of values of some columns, in the order of their first rows.

    Args:
        rows: Rows as columns.
        *names: The columns to group by.

    Yields:
        The values, and the rows that have them.

    Example:
        >>> rows = {"n": np.array([5, 9, 5]), "value": np.array([0.1, 0.2, 0.3])}
        >>> [(key, part["value"].tolist()) for key, part in by(rows, "n")]
        [((5,), [0.1, 0.3]), ((9,), [0.2])]
    """
    keys = list(zip(*(rows[name].tolist() for name in names), strict=True))
    place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    group = np.array([place[key] for key in keys])
    for key, i in place.items():
        yield key, {name: column[group == i] for name, column in rows.items()}


def table_of(lines: Sequence[Row], caption: str = "", note: str = "") -> Table:
    """A table of lines that all have the same names.

    Args:
        lines: One dict per row of the table; at least one.
        caption: What the table shows. Default: nothing is said.
        note: What its columns mean. Default: nothing is said.

    Returns:
        The table.

    Example:
        >>> table_of([{"n": 5, "mean": 0.2}, {"n": 9, "mean": 0.2}])["n"]
        [5, 9]
    """
    return Table({name: [line[name] for line in lines] for name in lines[0]}, caption, note)


RESULTS = (
    "rows.parquet", "summary.csv", "summary.md", "settings.json", "figure.png", "figure.svg",
)  # fmt: skip
"""The files that an experiment writes into its folder."""


PAGE = "page.md"
"""The page of the docs, of experiments that have one."""


def plain_page(
    summary: Callable[[Rows], Table], brief: Callable[[Table], Table] = _whole
) -> Callable[[Rows, Mapping[str, Any]], str]:
    """A page of the docs that is the brief table, and what it is made of.

    Args:
        summary: As of the experiment.
        brief: As of the experiment. Default: the summary as it is.

    Returns:
        A function (rows, settings.json) → Markdown.

    Example:
        >>> page = plain_page(lambda rows: Table({"n": [5]}))
        >>> facts = {"experiment": "coins", "dprl": "1.0", "code": "0123456789abcdef0", "seed": 7}
        >>> page({}, facts).splitlines()[0]
        'Made by `dprl reproduce coins` from its rows; dprl 1.0, code `0123456789abcdef`, seed 7.'
    """

    def page(rows: Rows, facts: Mapping[str, Any]) -> str:
        return (
            f"Made by `dprl reproduce {facts['experiment']}` from its rows; dprl {facts['dprl']}, "
            f"code `{facts['code'][:16]}`, seed {facts['seed']}.\n\n"
            f"{brief(summary(rows)).to_markdown()}"
        )

    return page


def _task_name(experiment: Experiment, setting: Setting) -> str:
    """A digest of all that could change the rows of a task: setting, code, version of numpy."""
    text = json.dumps([experiment.name, source_digest(), np.__version__, setting], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _readable(path: Path) -> bool:
    """Whether the file of a task's rows exists and is complete."""
    import duckdb

    if not path.exists():
        return False
    try:
        read_rows([path])
    except duckdb.Error:
        return False
    return True


def _work(run: Callable[[Setting], list[Row]], setting: Setting, path: Path) -> None:
    """Run one task and write its rows to this path; called in a worker process.

    A worker is sent no more than `run`: the page and the settings of an experiment may be closures.
    """
    write_rows(run(setting), path)


def reproduce(
    experiment: Experiment,
    folder: Path,
    *,
    quick: bool = False,
    seed: int = 0,
    workers: int | None = None,
    cluster: Any = None,
    minutes: float | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run the missing tasks of an experiment, then write its rows, table and figure.

    Args:
        experiment: The experiment.
        folder: Folder for its files; tasks that were finished there before are not run again.
        quick: Whether to run a small version, which takes about a minute. Default False.
        seed: Seed of everything random, a whole number from 0. Default 0.
        workers: Number of processes, at least 1; the rows do not depend on it. Default None: the
            number of cores.
        cluster: Where to run the tasks instead: a `distributed.Client`, the address of a Dask
            scheduler, "local" or "local:2"; the rows do not depend on it. Default None: processes
            of this machine.
        minutes: No task is begun after this time, in minutes; the files then hold what is
            finished, and a later run continues. At least one task is run. Default None: all are.
        progress: Called with the name of the experiment and the share of its tasks that is done.
            Default None.

    Returns:
        The table, and the files that were written.

    Raises:
        ParameterError: `workers`, `minutes` or `seed` is outside its range, or `minutes` is given
            with a cluster.
        PackageError: `cluster` is given and Dask is not installed. Without matplotlib there is no
            figure, and the result says so.
        ClusterError: The cluster cannot do the work.

    Example:
        >>> import matplotlib.figure
        >>> coins = Experiment(
        ...     name="coins", question="How often does a fair coin show heads?",
        ...     settings=lambda quick, seed: [{"tosses": 100, "seed": seed}],
        ...     run=lambda s: [{"heads": int(np.random.default_rng(s["seed"]).binomial(100, 0.5))}],
        ...     summary=lambda rows: Table({"heads": rows["heads"].tolist()}),
        ...     figure=lambda rows: matplotlib.figure.Figure(),
        ... )
        >>> result = reproduce(coins, Path("coins"), workers=1)
        >>> result.rows, result.summary["heads"]
        (1, [51])
    """
    if workers is not None:
        check_whole("workers", workers, 1)
    if workers is not None and cluster is not None:
        raise ParameterError(
            "workers are processes of this machine, and cluster names other ones.",
            f"workers={workers}, cluster={cluster!r}",
            "Say one of them; local:2 is a cluster of two processes here.",
        )
    if minutes is not None:
        check_number("minutes", minutes, "(0, inf)")
        if cluster is not None:
            raise ParameterError(
                "a cluster is given all tasks at once, so it cannot stop after some minutes.",
                f"minutes={minutes:g}, cluster={cluster!r}",
                "Leave one of them out.",
            )
    check_seed(seed)
    check_target(*(folder / name for name in RESULTS))
    undrawn = plot.lacking()
    settings = list(experiment.settings(quick, seed))
    parts = folder / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    files = [parts / f"{_task_name(experiment, s)}.parquet" for s in settings]
    todo = [(s, f) for s, f in zip(settings, files, strict=True) if not _readable(f)]
    report = progress or (lambda stage, share: None)
    report(experiment.name, 1 - len(todo) / len(settings))
    if cluster is None:
        until = math.inf if minutes is None else time.monotonic() + 60 * minutes
        _run_all(experiment, todo, workers or os.cpu_count() or 1, len(settings), report, until)
    elif todo:
        _run_there(experiment, todo, cluster, len(settings), report)

    done = [i for i, file in enumerate(files) if minutes is None or file.exists()]
    settings, files = [settings[i] for i in done], [files[i] for i in done]
    rows = read_rows(files)
    table = experiment.summary(rows)
    written = _write(experiment, folder, settings, rows, table, {"quick": quick, "seed": seed},
                     figures=not undrawn)  # fmt: skip
    return Result(experiment.name, folder, len(next(iter(rows.values()))), table, written, undrawn)


def _go_with_parent() -> None:
    """Make this worker process end when its parent is killed; else it would wait for ever.

    Ctrl-C reaches all processes of a terminal: the workers ignore it, and the parent ends them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None  # this runs in workers only

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_all(
    experiment: Experiment,
    todo: list[tuple[Setting, Path]],
    workers: int,
    total: int,
    report: Progress,
    until: float,
) -> None:
    """Run the tasks that are missing, in this process or in `workers` new ones.

    `todo` holds the setting and the file of each missing task; `total` is the number of all tasks,
    of which `report` is told the share that is done. No task but the first is begun after `until`,
    in seconds of the monotonic clock.
    """
    done = total - len(todo)
    if workers == 1 or len(todo) <= 1:
        for i, (setting, path) in enumerate(todo):
            if i and time.monotonic() >= until:
                return
            _work(experiment.run, setting, path)
            done += 1
            report(experiment.name, done / total)
        return
    # Fresh processes: a fork would inherit the threads and locks of this one.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(
        min(workers, len(todo)), mp_context=context, initializer=_go_with_parent
    ) as pool:
        jobs = [pool.submit(_work, experiment.run, setting, path) for setting, path in todo]
        try:
            for job in as_completed(jobs):
                if job.cancelled():
                    continue
                job.result()
                done += 1
                report(experiment.name, done / total)
                if time.monotonic() >= until:
                    for waiting in jobs:
                        waiting.cancel()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            # Running tasks may take minutes; their files are complete or absent: no need to wait.
            for worker in set(multiprocessing.active_children()) - others:
                worker.kill()
            raise


def _rows(setting: Setting, run: Callable[[Setting], list[Row]]) -> list[Row]:
    """The rows of one task; called on a worker of a cluster."""
    return run(setting)


def _run_there(
    experiment: Experiment,
    todo: list[tuple[Setting, Path]],
    cluster: Any,
    total: int,
    report: Progress,
) -> None:
    """Run the tasks that are missing on a cluster; their rows come back and are written here."""
    done = total - len(todo)
    names = [f"{experiment.name} with {setting}" for setting, _ in todo]
    tasks = [setting for setting, _ in todo]
    with connect(cluster) as there:
        for i, rows in there.map(_rows, tasks, (experiment.run,), names):
            write_rows(rows, todo[i][1])
            done += 1
            report(experiment.name, done / total)


@together()
def _write(
    experiment: Experiment,
    folder: Path,
    settings: Sequence[Setting],
    rows: Rows,
    table: Table,
    asked: Mapping[str, Any],
    figures: bool,
) -> tuple[Path, ...]:
    """Write all files of an experiment; `asked` goes to settings.json. Returns the paths."""
    paths = tuple(folder / name for name in RESULTS)
    columns, code = list(rows), source_digest()
    write_rows(
        [
            dict(zip(columns, row, strict=True)) | {"code": code[:16]}
            for row in zip(*rows.values(), strict=True)
        ],
        paths[0],
    )
    _write_text(paths[1], _csv(table))
    _write_text(paths[2], table.to_markdown())
    facts = {"experiment": experiment.name, "question": experiment.question, **asked,
             "dprl": __version__, "code": code, "numpy": np.__version__,
             "tasks": settings}  # fmt: skip
    _write_text(paths[3], json.dumps(facts, indent=1) + "\n")
    if figures:
        with plot.look():
            figure = experiment.figure(rows)
            if "seed" not in figure.get_supxlabel():
                quick = " A quick look." if asked["quick"] else ""
                plot.caption(figure, f"Seed {asked['seed']}.{quick}")
            for path in paths[4:]:
                plot.save(figure, path)
    else:
        for path in paths[4:]:  # an older one would be of other rows
            path.unlink(missing_ok=True)
        paths = paths[:4]
    if experiment.page is not None:
        paths = (*paths, folder / PAGE)
        _write_text(paths[-1], experiment.page(rows, facts))
    return paths


def _write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8; the old file stays until the new one is complete."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def _csv(table: Table) -> str:
    """The table as comma-separated text, with a line of column names."""
    import csv
    import io

    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(zip(*table.columns.values(), strict=True))
    return stream.getvalue()
