"""The experiments of the paper and our own, each with its settings, table and figure.

The name of an experiment comes in; an `Experiment` goes out, which `dprl_studies.harness` runs. The
problems are those of `dprl.envs`, whose true values are known. The studies of intensive care
(`hypotension`) and of Atari games (`atari`) need tables or games from the user: their functions
`on_tables` and `on_games` make the experiment, and `all` leaves them out.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dprl.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dprl.logs.log import Log
    from dprl.policies.protocol import DeferringPolicy
    from dprl_studies.harness import Experiment, Setting

__all__ = ["ALL", "EXPERIMENTS", "Entry", "entry", "experiment", "names", "reviewed"]


@dataclass(frozen=True)
class Entry:
    """What the table of experiments says about one of them.

    Attributes:
        module: The module of this package that defines it.
        shows: What it shows, in one line.
        needs: The option without which it cannot run, in words; `all` leaves such experiments out.
            Default: none.
        maker: What the module calls the experiment, or the function that makes it. Default:
            `EXPERIMENT`.
        options: The arguments of that function.
        review: Title of the review report that goes with the results. Default: there is none.

    Example:
        >>> Entry("forest", "The better first choice, where counts by state spread thin.").needs
        ''
    """

    module: str
    shows: str
    needs: str = ""
    maker: str = "EXPERIMENT"
    options: tuple[str, ...] = ()
    review: str = ""


EXPERIMENTS = {
    "forest": Entry(
        "contests", "The better first choice, where counts by state spread thin.", maker="FOREST",
    ),
    "risky-arms": Entry(
        "contests", "Who is fooled by arms that only look good by luck.", maker="RISKY_ARMS",
    ),
    "gridworld": Entry("gridworld", "Who finds the cells where an expert is careless."),
    "bounds": Entry("bounds", "Which of the published guarantees says anything at all."),
    "coverage": Entry("coverage", "How often certificates hold, and what they are worth."),
    "power": Entry("power", "Who proves an improvement, and from how many episodes on."),
    "icu-sepsis": Entry(
        "contests", "Who beats an expert nearly as good as the data allow.", maker="ICU_SEPSIS",
    ),
    "intervals": Entry("intervals", "How often the intervals of an evaluation hold the truth."),
    "contrasts": Entry("contrasts", "How often the interval beside a suggestion holds the truth."),
    "random-mdps": Entry(
        "contests", "Who improves on an expert in problems nobody chose.", maker="RANDOM_MDPS",
    ),
    "claims": Entry(
        "claims", "How often each claim is false, in worlds made to punish it.",
        maker="on_worlds", options=("logs", "worlds", "claims"),
    ),
    "confident": Entry("confident", "How often the confident learner's bound holds."),
    "rules": Entry(
        "rules", "How often rules are false, what they bring, and where they fail.",
        maker="on_data", options=("tables", "trials"),
    ),
    "hypotension": Entry(
        "hypotension", "What changes in intensive care, and whether for the better.",
        needs="--tables", maker="on_tables", options=("tables", "folder", "progress"),
        review="Hypotension in intensive care: what would change",
    ),
    "wards": Entry("wards", "How far estimates are from the truth in simulated intensive care."),
    "atari": Entry(
        "atari", "Who plays better than the mixture that played the logged games.",
        needs="--experts, unless --quick", maker="on_games",
        options=("games", "experts", "folder", "quick", "seed", "progress"),
    ),
}  # fmt: skip
"""Experiment → its entry. The command line's help, its error message and `all` are made of this."""

ALL = "all"
"""The word for all experiments that need nothing more."""


def names() -> list[str]:
    """The experiments that `all` stands for.

    Returns:
        Their names, in the order of the table.

    Example:
        >>> names()[:2]
        ['forest', 'risky-arms']
    """
    return [name for name, listed in EXPERIMENTS.items() if not listed.needs]


def entry(name: str) -> Entry:
    """What the table says about an experiment.

    Args:
        name: A name in `EXPERIMENTS`, such as "forest".

    Returns:
        Its entry.

    Raises:
        ParameterError: There is no experiment of this name.

    Example:
        >>> entry("bounds").shows
        'Which of the published guarantees says anything at all.'
    """
    if name not in EXPERIMENTS:
        raise ParameterError(
            f"there is no experiment {name!r}.",
            do=f"Experiments: {', '.join(EXPERIMENTS)}, {ALL}.",
        )
    return EXPERIMENTS[name]


def experiment(name: str, **options: Any) -> Experiment:
    """The experiment of this name.

    Args:
        name: A name in `EXPERIMENTS`.
        **options: What functions that make experiments take, such as a folder of tables; each gets
            those of its entry.

    Returns:
        The experiment, ready for `dprl_studies.harness.reproduce`.

    Raises:
        ParameterError: There is no experiment of this name.

    Example:
        >>> experiment("bounds").question
        'Which of the published guarantees says anything at all?'
        >>> len(experiment("bounds").settings(False, 0))  # number of tasks
        18
    """
    listed = entry(name)
    module = importlib.import_module(f"{__name__}.{listed.module}")
    made: Any = getattr(module, listed.maker)
    if callable(made):
        made = made(**{key: options[key] for key in listed.options if key in options})
    one: Experiment = made
    logs = options.get("logs")
    if logs is None or "logs" in listed.options:
        return one
    return replace(one, settings=lambda quick, seed: first_logs(one.settings(quick, seed), logs))


def first_logs(tasks: Sequence[Setting], logs: int) -> list[Setting]:
    """The tasks of the first logs of each cell; tasks that are no blocks of logs stay.

    Args:
        tasks: The settings of an experiment.
        logs: Logs of each cell.

    Returns:
        The settings that are left, the last block of a cell cut where it must be.

    Example:
        >>> tasks = experiment("forest").settings(False, 0)
        >>> [(t["first"], t["last"]) for t in first_logs(tasks, 30) if t["n"] == 50]
        [(0, 25), (25, 30)]
    """
    begins: dict[str, int] = {}
    left = []
    for task in tasks:
        if "first" not in task:
            left.append(task)
            continue
        cell = str({key: value for key, value in task.items() if key not in ("first", "last")})
        end = begins.setdefault(cell, task["first"]) + logs
        if task["first"] < end:
            left.append({**task, "last": min(task["last"], end)})
    return left


def reviewed(name: str, folder: Path, seed: int) -> tuple[DeferringPolicy, Log]:
    """The policy and the held-out log of an experiment's review report.

    Args:
        name: An experiment whose entry has a `review`.
        folder: The folder of its results.
        seed: The seed it ran with.

    Returns:
        The policy that the report is about, and the log it is checked against.

    Example:
        >>> reviewed("hypotension", folder, seed=0)  # doctest: +SKIP
        (<Policy: ...>, Log: ...)
    """
    module = importlib.import_module(f"{__name__}.{entry(name).module}")
    policy, held_out = module.reviewed(folder, seed)
    return policy, held_out
