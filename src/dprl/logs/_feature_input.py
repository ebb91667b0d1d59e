"""States of numeric features, in whatever form they are passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.errors import PolicyError

__all__ = ["columns_in", "features_of"]


def columns_in(have: Sequence[str], names: Sequence[str]) -> list[int]:
    """Positions of the features a policy needs among those a log has."""
    missing = [name for name in names if name not in have]
    if missing:
        raise PolicyError(
            f"the policy needs the feature {missing[0]!r}, which the log does not have.",
            do=f"The log has {', '.join(have)}.",
        )
    return [have.index(name) for name in names]


def features_of(states: Any, names: Sequence[str]) -> tuple[NDArray[np.float64], bool]:
    """States as an array (k, d), and whether a single state was passed.

    Args:
        states: (k, d) numbers in the order of `names`, or a table with these columns, or one state
            as a sequence or a mapping.
        names: The names of the d features.
    """
    feature_list = f"Features: {', '.join(names)}."
    if isinstance(states, Mapping) or hasattr(states, "columns"):
        columns = list(states) if isinstance(states, Mapping) else list(states.columns)
        missing = [name for name in names if name not in columns]
        if missing:
            given = f"given: {', '.join(map(str, columns[:8]))}"
            raise PolicyError(f"a state needs the feature {missing[0]!r}.", given, feature_list)
        columns_given = [np.asarray(states[name]) for name in names]
        single = columns_given[0].ndim == 0
        states = np.column_stack([np.atleast_1d(p) for p in columns_given])
        given_as = states
    else:
        given_as, single = states, None
    try:
        array = np.asarray(given_as)
        if array.dtype.kind == "c":
            raise TypeError
        numbers = np.asarray(array, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise PolicyError("states must be numbers.", do=feature_list) from error
    return np.atleast_2d(numbers), numbers.ndim == 1 if single is None else single
