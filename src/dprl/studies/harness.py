"""Running an experiment: tasks in processes, resumable, with the same rows for any worker count.

An experiment has settings (data), `run(setting)` → rows, a summary and a figure. The rows of each
task go to a file of its own, named by the content of the task, as soon as they exist. So a run that
was killed continues where it was (with the same code; with other code it starts again). At the end
all rows are put together in the order of the settings.

    OUT/rows.parquet      every row, with settings and seeds
    OUT/summary.csv, .md  the table
    OUT/figure.png, .svg  the picture
    OUT/settings.json     what was asked for, and the versions that answered
"""

from __future__ import annotations

import functools
import hashlib
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dprl._core import plot
from dprl._core.checks import check_seed, check_whole
from dprl._core.disk import check_target, replacing
from dprl._core.table import Table
from dprl._core.version import __version__
from dprl.logs._files import Progress
from dprl.logs._parquet import Row, Rows, read_rows, write_rows

__all__ = ["Experiment", "Result", "Row", "Rows", "Setting", "reproduce"]

Setting: TypeAlias = dict[str, Any]


def _whole(table: Table) -> Table:
    return table


@dataclass(frozen=True)
class Experiment:
    """An experiment that `dprl reproduce NAME` runs.

    Attributes:
        name: Its name on the command line.
        question: The question it answers, in one sentence.
        settings: (quick, seed) → the tasks; each is data that JSON can carry, with its seeds.
        run: A task → its rows; the rows depend on the task alone.
        summary: Rows → the table that people read.
        figure: Rows → a matplotlib figure.
        brief: Summary → a table that fits on a screen. Default: the summary itself.
    """

    name: str
    question: str
    settings: Callable[[bool, int], Sequence[Setting]]
    run: Callable[[Setting], list[Row]]
    summary: Callable[[Rows], Table]
    figure: Callable[[Rows], Any]
    brief: Callable[[Table], Table] = _whole


@dataclass(frozen=True)
class Result:
    """Where an experiment's files are, and its table."""

    name: str
    folder: Path
    rows: int
    summary: Table
    files: tuple[Path, ...]


RESULTS = (
    "rows.parquet", "summary.csv", "summary.md", "settings.json", "figure.png", "figure.svg",
)  # fmt: skip
"""The files that an experiment writes into its folder."""


@functools.cache
def _code() -> str:
    """A digest of this package's source: a run is not continued with other code."""
    home = Path(__file__).parent.parent
    total = hashlib.sha256()
    for path in sorted(home.rglob("*.py")):
        total.update(path.relative_to(home).as_posix().encode())
        total.update(path.read_bytes())
    return total.hexdigest()


def _task_name(experiment: Experiment, setting: Setting) -> str:
    """A name that changes with anything that could change the rows."""
    words = json.dumps([experiment.name, _code(), np.__version__, setting], sort_keys=True)
    return hashlib.sha256(words.encode()).hexdigest()[:24]


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


def _work(experiment: Experiment, setting: Setting, path: Path) -> None:
    """Run one task, in a worker process."""
    write_rows(experiment.run(setting), path)


def reproduce(
    experiment: Experiment,
    folder: Path,
    *,
    quick: bool = False,
    seed: int = 0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run the missing tasks of an experiment, then write its rows, table and figure.

    Args:
        experiment: The experiment.
        folder: Folder for its files; tasks that were finished there before are not run again.
        quick: Whether to run a small version, which takes about a minute.
        seed: Seed of everything random.
        workers: Number of processes. Default: the number of cores. The rows do not depend on it.
        progress: Called with the name of the stage and the share of it that is done.
    """
    if workers is not None:
        check_whole("workers", workers, 1)
    check_seed(seed)
    check_target(*(folder / name for name in RESULTS))
    plot.ready()  # checked before hours of work, not after
    settings = list(experiment.settings(quick, seed))
    parts = folder / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    files = [parts / f"{_task_name(experiment, s)}.parquet" for s in settings]
    todo = [(s, f) for s, f in zip(settings, files, strict=True) if not _readable(f)]
    say = progress or (lambda stage, share: None)
    say(experiment.name, 1 - len(todo) / len(settings))
    _run_all(experiment, todo, workers or os.cpu_count() or 1, len(settings), say)

    rows = read_rows(files)
    table = experiment.summary(rows)
    written = _write(experiment, folder, settings, rows, table, {"quick": quick, "seed": seed})
    return Result(experiment.name, folder, len(next(iter(rows.values()))), table, written)


def _go_with_parent() -> None:
    """End this worker at once when its parent is killed; else it would wait for work for ever.

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
    say: Progress,
) -> None:
    done = total - len(todo)
    if workers == 1 or len(todo) <= 1:
        for setting, path in todo:
            _work(experiment, setting, path)
            done += 1
            say(experiment.name, done / total)
        return
    # Fresh processes: a fork would inherit the threads and locks of this one.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(
        min(workers, len(todo)), mp_context=context, initializer=_go_with_parent
    ) as pool:
        jobs = [pool.submit(_work, experiment, setting, path) for setting, path in todo]
        try:
            for job in as_completed(jobs):
                job.result()
                done += 1
                say(experiment.name, done / total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            # Running tasks may take minutes; their files are complete or absent: no need to wait.
            for worker in set(multiprocessing.active_children()) - others:
                worker.kill()
            raise


def _write(
    experiment: Experiment,
    folder: Path,
    settings: Sequence[Setting],
    rows: Rows,
    table: Table,
    asked: Mapping[str, Any],
) -> tuple[Path, ...]:
    paths = tuple(folder / name for name in RESULTS)
    columns = list(rows)
    write_rows(
        [dict(zip(columns, row, strict=True)) for row in zip(*rows.values(), strict=True)], paths[0]
    )
    _write_text(paths[1], _csv(table))
    _write_text(paths[2], table.to_markdown())
    facts = {"experiment": experiment.name, "question": experiment.question, **asked,
             "dprl": __version__, "code": _code(), "numpy": np.__version__,
             "tasks": settings}  # fmt: skip
    _write_text(paths[3], json.dumps(facts, indent=1) + "\n")
    with plot.look():
        figure = experiment.figure(rows)
        for path in paths[4:]:
            plot.save(figure, path)
    return paths


def _write_text(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def _csv(table: Table) -> str:
    import csv
    import io

    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(zip(*table.columns.values(), strict=True))
    return stream.getvalue()
