"""Reading a policy file, whatever kind of policy it holds."""

from __future__ import annotations

import os

from dprl import archive
from dprl.policy import Policy
from dprl.stochastic import StochasticPolicy

__all__ = ["load"]


def load(path: str | os.PathLike[str]) -> Policy | StochasticPolicy:
    """Read a policy file. Runs no code from it; anything odd is a PolicyError."""
    kind, words, arrays = archive.unpack(path)
    home = StochasticPolicy if kind == StochasticPolicy.KIND else Policy
    return home._from_parts(path, kind, words, arrays)
