"""Reading a policy file, whatever kind of policy it holds."""

from __future__ import annotations

import os
from typing import TypeAlias

from dprl import archive
from dprl.cell_policy import CellPolicy
from dprl.errors import PolicyError
from dprl.feature_policy import NetworkPolicy
from dprl.neighbor_policy import NeighborPolicy
from dprl.policy import Policy
from dprl.stochastic import StochasticPolicy

__all__ = ["deferring", "load"]


Loaded: TypeAlias = Policy | CellPolicy | StochasticPolicy | NeighborPolicy | NetworkPolicy
KINDS = {kind.KIND: kind for kind in (
    Policy, CellPolicy, StochasticPolicy, NeighborPolicy, NetworkPolicy,
)}  # fmt: skip


def load(path: str | os.PathLike[str]) -> Loaded:
    """Read a policy file. Runs no code from it; anything odd is a PolicyError."""
    kind, words, arrays = archive.unpack(path)
    home = KINDS.get(kind, Policy)  # which refuses a kind it does not know
    return home._from_parts(path, kind, words, arrays)


def deferring(path: str | os.PathLike[str]) -> Policy | NeighborPolicy:
    """A policy of DPRL's from a file; the rivals' have no changes to list."""
    fitted = load(path)
    if not isinstance(fitted, Policy | NeighborPolicy):
        raise PolicyError(
            f"{os.fspath(path)!r} holds a policy of "
            f"{fitted.parameters.get('learner', 'another kind')}.",
            do="Only DPRL's policies defer, explain and list changes.",
        )
    return fitted
