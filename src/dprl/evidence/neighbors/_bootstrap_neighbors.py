"""The rows near the last place of a cut episode, for its bootstrap (see `dprl.logs._censoring`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dprl.evidence.neighbors.engine import Engine
from dprl.evidence.neighbors.metric import FittedMetric
from dprl.evidence.neighbors.samples import Points
from dprl.logs._feature_input import columns_in, plain_features
from dprl.logs.log import Log

if TYPE_CHECKING:
    from dprl.logs._censoring import Near

__all__ = ["near"]

CHUNK = 2_048
"""The number of places whose neighbours are in memory at a time."""


def near(metric: FittedMetric, radius: float, *, first: bool) -> Near:
    """A function that finds the rows near the places where episodes were cut.

    Args:
        metric: The metric, fitted to the log.
        radius: The largest distance of a row.
        first: Whether only the first neighbour of every other trajectory counts, or all of them.
    """

    def rows_near(
        log: Log, features: NDArray[np.float64], own: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        take = columns_in(log.feature_names, metric.names)  # the log may have more, in any order
        x = plain_features(log, metric.names)
        plain = replace(log, features=x, feature_names=metric.names, levels=())
        points = Points.of(plain, metric, 1.0)
        engine = Engine.build(points, log.n_actions)
        z = metric.transform(features[:, take])
        places, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for begin in range(0, len(z), CHUNK):
            chunk = slice(begin, begin + CHUNK)
            indptr, row = engine.neighbors(z[chunk], radius)
            place = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
            group = points.episode[row]
            counts = group != own[chunk][place]
            if first:  # rows are ascending, and those of a group are next to each other
                counts[1:] &= (place[1:] != place[:-1]) | (group[1:] != group[:-1])
            places.append(begin + place[counts])
            rows.append(row[counts].astype(np.int64))
        return np.concatenate(places), np.concatenate(rows)

    return rows_near
