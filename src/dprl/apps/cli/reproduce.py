"""The command that runs experiments: `dprl reproduce`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dprl.apps.cli._app import command
from dprl.apps.cli.console import complain, progress, show
from dprl.apps.cli.options import Json, Whole
from dprl.errors import PackageError

if TYPE_CHECKING:
    from dprl.studies.harness import Experiment, Result

__all__ = ["reproduce"]


@command
def reproduce(
    names: list[str],
    /,
    *,
    quick: Annotated[
        bool, Parameter(help="A small version, in about a minute.", negative="")
    ] = False,
    out: Annotated[Path, Parameter(help="A folder; each experiment gets one inside it.")] = Path(
        "out"
    ),
    tables: Annotated[
        Path | None, Parameter(help="For hypotension: a folder of MIMIC tables.")
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
        Whole | None, Parameter(help="Number of processes; by default one per core.")
    ] = None,
    json: Json = False,
) -> int:
    """Run the paper's experiments: rows, a table and a figure each.

    A run that was stopped (Ctrl-C) continues where it was; the rows do not depend on the number of
    workers. If one of several experiments needs a package that is not installed, it is skipped: the
    others run, the skipped ones are listed at the end, and the exit code is 1.

    Example: `dprl reproduce forest risky-arms --quick`

    Args:
        names: forest, risky-arms, gridworld, behavior, bounds, coverage, icu-sepsis, intervals,
            contrasts, or all; or hypotension, which needs --tables, or atari, which needs --experts
            unless --quick.
    """
    from dprl.studies.paper import NAMES, experiment

    wanted = list(dict.fromkeys([*(NAMES if "all" in names else ()), *names]))
    wanted = [name for name in wanted if name != "all"]
    apart = [name for name in ("hypotension", "atari") if name in wanted]
    chosen = {name: experiment(name) for name in wanted if name not in apart}
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

    for name in apart:  # check the folders before hours of work
        place = out / (name + ("-quick" if quick else ""))
        with unless_missing(name), progress() as tell:
            if name == "hypotension":
                from dprl.studies.paper.hypotension import on_tables

                chosen[name] = on_tables(tables, place, progress=tell)
            else:
                from dprl.studies.paper.atari import on_games

                chosen[name] = on_games(
                    games or (), experts, place, quick=quick, seed=seed, progress=tell
                )
    results: list[Result] = []
    for name, one in chosen.items():
        with unless_missing(name):
            result = _run(one, out, quick, seed, workers)
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


def _run(experiment: Experiment, out: Path, quick: bool, seed: int, workers: int | None) -> Result:
    """One experiment, and the review report that goes with hypotension."""
    from dprl.studies.harness import reproduce as run

    with progress() as tell:
        result = run(
            experiment, out / (experiment.name + ("-quick" if quick else "")),
            quick=quick, seed=seed, workers=workers, progress=tell,
        )  # fmt: skip
        if experiment.name == "hypotension":
            from dprl.apps._report import report as write_report
            from dprl.studies.paper.hypotension import reviewed

            tell("review report", 0.0)
            policy, test = reviewed(result.folder, seed)
            write_report(
                policy, test, result.folder / "review.html", values=not quick, seed=seed,
                title="Hypotension in intensive care: what would change", progress=tell,
            )  # fmt: skip
    return result
