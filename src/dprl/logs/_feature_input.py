"""States of numeric features, however they are handed over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.errors import PolicyError

__all__ = ["columns_in", "features_of"]


def columns_in(have: Sequence[str], names: Sequence[str]) -> list[int]:
    """Where the features a policy needs stand among those a log has."""
    missing = [name for name in names if name not in have]
    if missing:
        raise PolicyError(
            f"the policy needs the feature {missing[0]!r}, which the log does not have.",
            do=f"The log has {', '.join(have)}.",
        )
    return [have.index(name) for name in names]


def features_of(states: Any, names: Sequence[str]) -> tuple[NDArray[np.float64], bool]:
    """States as an array (k, d), and whether it was a single one.

    Args:
        states: (k, d) numbers in the order of `names`, or a table with these columns, or one state
            as a sequence or a mapping.
        names: The d features.
    """
    known = f"Features: {', '.join(names)}."
    if isinstance(states, Mapping) or hasattr(states, "columns"):
        columns = list(states) if isinstance(states, Mapping) else list(states.columns)
        missing = [name for name in names if name not in columns]
        if missing:
            given = f"given: {', '.join(map(str, columns[:8]))}"
            raise PolicyError(f"a state needs the feature {missing[0]!r}.", given, known)
        parts = [np.asarray(states[name]) for name in names]
        single = parts[0].ndim == 0
        states = np.column_stack([np.atleast_1d(p) for p in parts])
        given_as = states
    else:
        given_as, single = states, None
    try:
        array = np.asarray(given_as)
        if array.dtype.kind == "c":
            raise TypeError
        x = np.asarray(array, np.float64)
    except (TypeError, ValueError) as error:
        raise PolicyError("states must be numbers.", do=known) from error
    return np.atleast_2d(x), x.ndim == 1 if single is None else single
