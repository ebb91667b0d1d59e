"""The command that runs experiments: `dprl reproduce`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dprl.apps.cli._app import command
from dprl.apps.cli.console import complain, progress, show
from dprl.apps.cli.options import Cluster, Json, MaybeWhole, Whole
from dprl.errors import PackageError
from dprl.studies import paper

if TYPE_CHECKING:
    from dprl.studies.harness import Experiment, Result

__all__ = ["reproduce"]


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
                quick=quick, seed=seed, folder=_folder(out, name, quick), progress=tell,
            )  # fmt: skip
    results: list[Result] = []
    for name, one in chosen.items():
        with unless_missing(name):
            result = _run(one, out, quick, seed, workers, cluster)
            results.append(result)
            if not json:
                lines = [f"{one.name}: {one.question}", "", str(one.brief(result.summary)), ""]
                lines += [f"{result.rows:,} rows, table and figure in {result.folder}", ""]
                show("\n".join(lines), as_json=False)
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


def _folder(out: Path, name: str, quick: bool) -> Path:
    return out / (name + ("-quick" if quick else ""))


def _run(
    experiment: Experiment,
    out: Path,
    quick: bool,
    seed: int,
    workers: int | None,
    cluster: str | None,
) -> Result:
    """One experiment, and the review report if one goes with it."""
    from dprl.studies.harness import reproduce as run

    name = experiment.name
    with progress() as tell:
        result = run(
            experiment, _folder(out, name, quick),
            quick=quick, seed=seed, workers=workers, cluster=cluster, progress=tell,
        )  # fmt: skip
        title = paper.entry(name).review
        if title:
            from dprl.apps._report import report as write_report

            tell("review report", 0.0)
            policy, test = paper.reviewed(name, result.folder, seed)
            write_report(
                policy, test, result.folder / "review.html", values=not quick, seed=seed,
                title=title, progress=tell,
            )  # fmt: skip
    return result
