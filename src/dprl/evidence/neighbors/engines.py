"""Remembering: an engine that keeps its answers and gives them again to the same question.

Settings that differ only in n_min ask about the same places and the same radius. A question is
identified by its content, so it does not matter which object asks again. Answers for another radius
are dropped, and all of them after `forget`.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats, Ints
from dprl._core.checks import Visits, check_radius, check_visits
from dprl._core.cluster import Cluster, Kept
from dprl._core.exact import Window
from dprl.evidence.counts import Evidence
from dprl.evidence.neighbors.engine import Engine, Points
from dprl.evidence.neighbors.metric import FittedMetric
from dprl.logs.encoding.features import columns_in, plain_features
from dprl.logs.log import Log

if TYPE_CHECKING:
    from dprl.logs.censoring import Near


# --- The rows near the last place of a cut episode, for its bootstrap (see `dprl.logs.censoring`)

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


# --- Neighbours on a cluster: each worker holds some trajectories, builds its own tree, and
# answers
#
# A query is asked of every part, and the answers are added up, block of queries by block of
# queries.
# Trajectories are whole in a part, so counting by trajectory stays exact; all parts keep the
# digits
# of one window, so sums of digits are those of one engine, to the last bit.

Sums: TypeAlias = tuple[Ints, Floats]
"""The words (2, Q, A, W) and the span (Q, 2) of some queries."""

WORDS = 1 << 22
"""Words of the answer to one block of queries, 32 MB: what a worker sends at a time."""
WORTH_ASKING = 256
"""Fewer queries than this are answered in this process: sending them takes longer."""


@dataclass(eq=False)
class _WindowedEngine(Engine):
    """An engine whose sums keep the digits of a given window."""

    window: Window | None = None

    @functools.cached_property
    def _window(self) -> Window:
        assert self.window is not None  # given when it is made
        return self.window


@dataclass(eq=False)
class PointsPart:
    """Some whole trajectories of a set of points, and the engine over them.

    Attributes:
        points: The points; episodes have the numbers they have in the whole set.
        n_actions: The number of actions of the whole set.
        window: The window of the whole set.
        device: The torch device of the worker that answers many queries; None for its processor.
    """

    points: Points
    n_actions: int
    window: Window
    device: str | None = None

    @functools.cached_property
    def engine(self) -> Engine:
        """The engine over these points, built when it is first asked."""
        own = Engine.build(self.points, self.n_actions, device=self.device)
        return _WindowedEngine.like(own, window=self.window)

    def read(self) -> Engine:
        """What a job is applied to."""
        return self.engine

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "engine"}  # built again elsewhere


def _answer(engine: Engine, queries: Floats, radius: float, visits: Visits, own: Any) -> Sums:
    """What one part says about a block of queries."""
    evidence = engine.evidence(queries, radius, visits=visits, leave_out=own)
    return np.asarray(evidence.words), evidence.span


def _add(one: Sums, other: Sums) -> Sums:
    """What two parts say together; exact, as words are whole numbers."""
    span = np.stack(
        [np.fmin(one[1][:, 0], other[1][:, 0]), np.fmax(one[1][:, 1], other[1][:, 1])], axis=1
    )
    return one[0] + other[0], span


@dataclass(eq=False)
class SpreadEngine(Engine):
    """An engine that asks a cluster where there is much to ask; made by `SpreadEngine.of`."""

    cluster: Cluster | None = field(default=None, repr=False)
    parts: tuple[Kept, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, engine: Engine, cluster: Cluster) -> Self:
        """The same engine; its points are sent to the workers, one part each, and kept there."""
        points = engine.points
        first = np.flatnonzero(np.diff(points.episode, prepend=points.episode[0] - 1))
        targets = np.linspace(0, len(points), cluster.workers() + 1)[1:-1]
        edges = sorted({0, len(points), *first[np.searchsorted(first, targets) - 1].tolist()})
        parts = [
            PointsPart(
                replace(
                    points,
                    **{k: getattr(points, k)[a:b] for k in ("z", "action", "G", "episode")},
                ),
                len(engine.actions),
                engine._window,
                engine.device,
            )
            for a, b in itertools.pairwise(edges)
        ]
        return cls.like(engine, cluster=cluster, parts=cluster.keep(parts))

    def evidence(
        self,
        queries: NDArray[Any],
        radius: float,
        *,
        visits: Visits = "first",
        leave_out: NDArray[Any] | None = None,
        threads: int | None = None,
    ) -> Evidence:
        """As `Engine.evidence`, with the same words."""
        if self.cluster is None or len(queries) < WORTH_ASKING:
            return super().evidence(
                queries, radius, visits=visits, leave_out=leave_out, threads=threads
            )
        check_visits(visits)
        z, radius = self._check(queries), check_radius(radius)
        self._own(leave_out, len(z))  # refused here, not on a worker
        window, Q, A = self._window, len(z), len(self.actions)
        words = np.empty((2, Q, A, window.width), np.int64)
        span = np.empty((Q, 2))
        block = max(1, WORDS // (2 * A * window.width))
        for i in range(0, Q, block):
            some = slice(i, i + block)
            own = None if leave_out is None else np.asarray(leave_out)[some]
            words[:, some], span[some] = self.cluster.reduce(
                self.parts, _answer, _add, (z[some], radius, visits, own)
            )
        return self._evidence(words, span, visits)


# --- Remembering: an engine that keeps its answers and gives them again to the same question


@dataclass(eq=False)
class Remembering(Engine):
    """An engine that keeps its answers in memory; made by `Remembering.like`."""

    _answers: dict[Any, Evidence] | None = field(default_factory=dict, repr=False)
    _radius: float = -1.0

    def forget(self) -> None:
        """Drop all answers, and keep none from now on."""
        self._answers = None

    def evidence(
        self,
        queries: NDArray[Any],
        radius: float,
        *,
        visits: Visits = "first",
        leave_out: NDArray[Any] | None = None,
        threads: int | None = None,
    ) -> Evidence:
        """As `Engine.evidence`, but each question is searched only once."""
        asked: dict[str, Any] = {"visits": visits, "leave_out": leave_out}
        if self._answers is None:
            return super().evidence(queries, radius, threads=threads, **asked)
        if radius != self._radius:
            self._answers, self._radius = {}, radius
        key = (visits, _digest(queries), b"" if leave_out is None else _digest(leave_out))
        if key not in self._answers:
            self._answers[key] = super().evidence(queries, radius, threads=threads, **asked)
        return self._answers[key]


def _digest(array: NDArray[Any]) -> bytes:
    """A hash of the content and shape of an array."""
    array = np.ascontiguousarray(array)
    return hashlib.blake2b(array.data, person=str(array.shape).encode()[:16]).digest()
