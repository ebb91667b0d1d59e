"""The columns of a log: whether they agree with each other, and a form that equal logs share."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dprl.errors import LogError

if TYPE_CHECKING:
    from dprl.logs.log import Log

__all__ = ["canonical", "canonical_ends", "canonical_features", "rising", "validate"]

CUT = 2
"""The code of a cut, as in `dprl.logs.log`; competing events have the codes above."""


def rising(labels: Sequence[Any]) -> bool:
    """Whether labels are of one kind, sorted, and none is there twice: without a set of them."""
    if set(map(type, labels)) not in ({int}, {str}):
        return False
    return all(map(operator.lt, labels, itertools.islice(labels, 1, None)))


def canonical(
    codes: NDArray[np.int32], labels: Sequence[Any]
) -> tuple[NDArray[np.int32], list[Any]]:
    """The same column coded by the sorted labels that occur: unused labels do not matter."""
    used = np.flatnonzero(np.bincount(codes, minlength=len(labels))).tolist()
    order = used if rising(labels) else sorted(used, key=lambda i: labels[i])
    table = np.zeros(len(labels), np.int32)
    table[order] = np.arange(len(order), dtype=np.int32)
    return table[codes], [labels[i] for i in order]


def canonical_ends(
    ended: NDArray[np.uint8], events: Sequence[str]
) -> tuple[NDArray[np.uint8], list[str]]:
    """How episodes ended, with competing events coded by the sorted names that occur."""
    at = ended > CUT
    if not at.any():
        return ended, []
    codes, names = canonical((ended[at] - CUT - 1).astype(np.int32), events)
    result = ended.copy()
    result[at] = codes + CUT + 1
    return result, names


def canonical_features(
    features: NDArray[np.float64], levels: Sequence[tuple[str, ...] | None]
) -> tuple[NDArray[np.float64], list[Any]]:
    """The same features coded by the sorted labels that occur: unused labels do not matter."""
    matrix, used = features.copy(), [None] * len(levels)
    for j, labels in enumerate(levels):
        if labels is not None:
            at = ~np.isnan(features[:, j])
            codes, used[j] = canonical(features[at, j].astype(np.int32), labels)  # type: ignore[call-overload]
            matrix[at, j] = codes
    return matrix, used


def validate(log: Log) -> None:
    """Refuse a log that contradicts itself, so that other code can trust every Log."""
    n, starts = len(log.action), log.starts

    def refuse(what: str) -> None:
        raise LogError(f"a log cannot be made of these columns: {what}.")

    if starts.ndim != 1 or not len(starts) or starts[0] != 0 or starts[-1] != n:
        refuse("`starts` must run from 0 to the number of rows")
    if np.any(np.diff(starts) < 1):
        refuse("every episode needs at least one row")
    if (log.state is None) == (log.features is None):
        refuse("states are either labels or features")
    if log.offset is not None and (log.time is None or log.time.dtype.kind != "M"):
        refuse("`offset` needs times that are dates")
    from dprl.logs.log import BY_ROW

    for name, column in [*((name, getattr(log, name)) for name in BY_ROW), *log.more.items()]:
        if column is not None and len(column) != n:
            refuse(f"'{name}' has {len(column):,} rows, 'action' {n:,}")
    for name in ("episodes", "group", "ended"):
        if len(getattr(log, name)) != len(starts) - 1:
            refuse(f"'{name}' must have one entry per episode")
    if not all(isinstance(name, str) for name in log.events) or len(set(log.events)) < len(
        log.events
    ):
        refuse("'events' must be names, each once")
    if len(log.ended) and log.ended.max() > CUT + len(log.events):
        refuse(f"'ended' has codes outside 0..{CUT + len(log.events)}")
    if log.features is not None and log.features.shape[1:] != (len(log.feature_names),):
        refuse(f"{len(log.feature_names)} feature names for an array of {log.features.shape}")
    if (log.available is None) != (log.menus is None):
        refuse("`available` and `menus` come together")
    sizes = [("action", len(log.actions)), ("group", len(log.groups))]
    if log.state is not None:
        sizes.append(("state", len(log.states)))
    if log.menus is not None:
        sizes.append(("available", len(log.menus)))
        if log.menus.shape[1:] != (len(log.actions),):
            refuse("`menus` needs one column per action")
    for name, size in sizes:
        column = getattr(log, name)
        if len(column) and not 0 <= column.min() <= column.max() < size:
            refuse(f"'{name}' has codes outside 0..{size - 1}")
    for name in ("states", "actions", "episodes", "groups", "feature_names"):
        labels = getattr(log, name)
        if name == "groups" and labels is log.episodes:
            continue
        if not rising(labels) and len(set(labels)) != len(labels):
            refuse(f"'{name}' repeats a label")
    if n and not (np.isfinite(log.reward.min()) and np.isfinite(log.reward.max())):
        refuse("'reward' holds a value that is not finite")
    if log.features is not None and np.isinf(log.features).any():
        refuse("'features' hold a value that is infinite")
    if log.propensity is not None:
        p = log.propensity[~np.isnan(log.propensity)]
        if log.propensity.ndim != 1 or not ((p > 0) & (p <= 1)).all():
            refuse("'propensity' holds a value that is not above 0 and at most 1")
    if log.levels:
        _validate_levels(log, refuse)


def _validate_levels(log: Log, refuse: Callable[[str], None]) -> None:
    """Refuse categories whose codes have no label."""
    assert log.features is not None
    if len(log.levels) != len(log.feature_names):
        refuse(f"{len(log.levels)} levels for {len(log.feature_names)} features")
    for name, labels, column in zip(log.feature_names, log.levels, log.features.T, strict=True):
        if labels is None:
            continue
        if not all(isinstance(label, str) for label in labels) or list(labels) != sorted(
            set(labels)
        ):
            refuse(f"the levels of {name!r} are not sorted labels of text, each once")
        codes = column[~np.isnan(column)]
        if len(codes) and not (
            (codes == np.rint(codes)).all() and codes.min() >= 0 and codes.max() < len(labels)
        ):
            refuse(f"{name!r} has codes outside 0..{len(labels) - 1}")
