"""Points: every step of a log as a place, an action, a return and a trajectory."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.errors import LogError
from dprl.evidence.neighbors.metric import LARGEST, FittedMetric
from dprl.logs.encoding.features import plain_features
from dprl.logs.log import Label, Log
from dprl.logs.returns import returns


@dataclass(frozen=True, eq=False)
class Points:
    """The N steps of a log and where they happened, in log order (sorted by episode, then time).

    Attributes:
        z: float64 (N, d), coordinates in which distance is Euclidean.
        action: int32 (N,), the action of each step.
        G: float64 (N,), the return to go, in the unit of the rewards.
        episode: int64 (N,), the trajectory each step belongs to: numbers >= 0 that never decrease
            from row to row.
        gamma: The discount of the returns. Default 1.
        actions: The action labels; empty (the default) if actions are only numbers.

    Raises:
        LogError: If the columns contradict each other, or a number is not finite.

    Example:
        >>> from dprl.evidence.neighbors import Engine, Points
        >>> points = Points(
        ...     z=[[0.0], [1.0], [3.0]], action=[0, 1, 0], G=[1.0, 2.0, 4.0], episode=[0, 0, 1]
        ... )
        >>> len(points), points.n_episodes
        (3, 2)
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
        """The steps of a log; if the log has groups, a group counts as one trajectory.

        Args:
            log: A gathered log (see `Log.gathered`) whose states are features.
            metric: The metric, fitted to the features of the log.
            gamma: Discount in (0, 1].

        Returns:
            The points.

        Raises:
            LogError: If states are labels, or the metric was fitted to other features.

        Example:
            >>> import dprl
            >>> from dprl.envs import PointMass
            >>> from dprl.evidence.neighbors import Points
            >>> log = PointMass().sample(10, seed=0)
            >>> len(Points.of(log, dprl.Metric().fit(log), gamma=0.97)) == log.n_steps
            True
        """
        if log.features is None:
            raise LogError(f"this log's states are {log.n_states} labels, not numeric features.")
        if log.feature_names != metric.names:
            raise LogError(
                "this log has other features than the metric was fitted to.",
                f"{', '.join(log.feature_names[:4])} and not {', '.join(metric.names[:4])}",
            )
        return cls(
            metric.transform(plain_features(log)), log.action, returns(log, gamma),
            np.repeat(log.group, log.lengths), float(gamma), log.actions,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.z)

    @functools.cached_property
    def n_episodes(self) -> int:
        """Number of trajectories."""
        return 1 + int(np.count_nonzero(np.diff(self.episode)))
