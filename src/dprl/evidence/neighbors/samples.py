"""Points: every step of a log as a place, an action, a return and the trajectory it is part of."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.errors import LogError
from dprl.evidence.neighbors.metric import LARGEST, FittedMetric
from dprl.logs.log import Label, Log
from dprl.logs.returns import returns

__all__ = ["Points"]


@dataclass(frozen=True, eq=False)
class Points:
    """What happened, and where; in log order (rows sorted by episode, then time).

    Attributes:
        z: float64 (N, d), coordinates in which distance is Euclidean.
        action: int32 (N,).
        G: float64 (N,), the return to go.
        episode: int64 (N,), numbers >= 0 that never fall from row to row.
        gamma: The discount of the returns.
        actions: The action labels; empty where actions are mere numbers.
    """

    z: NDArray[np.float64]
    action: NDArray[np.int32]
    G: NDArray[np.float64]
    episode: NDArray[np.int64]
    gamma: float = 1.0
    actions: tuple[Label, ...] = ()

    def __post_init__(self) -> None:
        for name, dtype in (
            ("z", np.float64), ("action", np.int32), ("G", np.float64), ("episode", np.int64),
        ):  # fmt: skip
            column: NDArray[Any] = np.ascontiguousarray(getattr(self, name), dtype).view()
            column.setflags(write=False)
            object.__setattr__(self, name, column)

        def refuse(what: str) -> None:
            raise LogError(f"points cannot be made of these columns: {what}.")

        if self.z.ndim != 2 or not self.z.size:
            refuse(f"there must be a row and a coordinate, z has shape {self.z.shape}")
        if len(self.z) >= 1 << 31:
            refuse(f"{len(self.z):,} rows are more than 2^31")
        for name in ("action", "G", "episode"):
            if getattr(self, name).shape != (len(self.z),):
                refuse(f"'{name}' has shape {getattr(self, name).shape}, z {len(self.z):,} rows")
        if not np.isfinite(self.z).all() or np.abs(self.z).max() > LARGEST:
            refuse("coordinates must be finite and within 1e18")
        if not np.isfinite(self.G).all():
            refuse("'G' holds a value that is not finite")
        if self.action.min() < 0 or (self.actions and self.action.max() >= len(self.actions)):
            refuse("'action' has codes outside the labels")
        if self.episode[0] < 0 or np.any(np.diff(self.episode) < 0):
            refuse("rows must be sorted by episode, numbered from 0")

    @classmethod
    def of(cls, log: Log, metric: FittedMetric, gamma: float) -> Points:
        """The steps of a gathered log; where it has groups, a group is what counts as one."""
        if log.features is None:
            raise LogError(f"this log's states are {log.n_states} labels, not numeric features.")
        if log.feature_names != metric.names:
            raise LogError(
                "this log has other features than the metric was fitted to.",
                f"{', '.join(log.feature_names[:4])} and not {', '.join(metric.names[:4])}",
            )
        return cls(
            metric.transform(log.features), log.action, returns(log, gamma),
            np.repeat(log.group, log.lengths), float(gamma), log.actions,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.z)

    @functools.cached_property
    def n_episodes(self) -> int:
        """Number of trajectories."""
        return 1 + int(np.count_nonzero(np.diff(self.episode)))
