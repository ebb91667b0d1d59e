"""The paper's experiments and ours: settings as data, one command a figure."""

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
"""Experiment → module."""


def experiment(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in NAMES:
        raise ParameterError(
            f"there is no experiment {name!r}.", do=f"Experiments: {', '.join(NAMES)}, all."
        )
    found: Experiment = importlib.import_module(f"dprl.studies.paper.{NAMES[name]}").EXPERIMENT
    return found
