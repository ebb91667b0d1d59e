"""The experiments of the paper and our own, each with its settings, table and figure.

The name of an experiment comes in; an `Experiment` goes out, which `dprl.studies.harness` runs. The
problems are those of `dprl.envs`, whose true values are known. The studies of intensive care
(`hypotension`) and of Atari games (`atari`) need tables or games from the user, so they are not in
`NAMES`: their functions `on_tables` and `on_games` make the experiment.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from dprl.errors import ParameterError

if TYPE_CHECKING:
    from dprl.studies.harness import Experiment

__all__ = ["NAMES", "experiment"]

NAMES = {
    "forest": "forest",
    "risky-arms": "risky_arms",
    "gridworld": "gridworld",
    "behavior": "behavior",
    "bounds": "bounds",
    "coverage": "coverage",
    "icu-sepsis": "icu_sepsis",
    "intervals": "intervals",
    "contrasts": "contrasts",
}
"""Name of an experiment → name of its module in this package."""


def experiment(name: str) -> Experiment:
    """The experiment of this name.

    Args:
        name: One of `NAMES`, such as "forest".

    Returns:
        The experiment, ready for `dprl.studies.harness.reproduce`.

    Raises:
        ParameterError: There is no experiment of this name.

    Example:
        >>> experiment("bounds").question
        'Which of the published guarantees says anything at all?'
        >>> len(experiment("bounds").settings(False, 0))  # number of tasks
        12
    """
    if name not in NAMES:
        raise ParameterError(
            f"there is no experiment {name!r}.", do=f"Experiments: {', '.join(NAMES)}, all."
        )
    module = importlib.import_module(f"dprl.studies.paper.{NAMES[name]}")
    chosen: Experiment = module.EXPERIMENT
    return chosen
