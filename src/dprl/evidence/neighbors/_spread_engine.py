"""Neighbours on a cluster: each worker holds some trajectories, builds its own tree, and answers.

A query is asked of every part, and the answers are added up, block of queries by block of queries.
Trajectories are whole in a part, so counting by trajectory stays exact; all parts keep the digits
of one window, so sums of digits are those of one engine, to the last bit.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Visits, check_radius, check_visits
from dprl._core.cluster import Cluster, Kept
from dprl._core.exact import Window
from dprl.evidence._evidence import Evidence
from dprl.evidence.neighbors.engine import Engine
from dprl.evidence.neighbors.samples import Points

__all__ = ["SpreadEngine"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
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
        parts = (own.points, own.actions, own.method, own.sketch, own.blocks, own.boxes, own.device)
        return _WindowedEngine(*parts, window=self.window)

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
        return cls(
            points, engine.actions, engine.method, engine.sketch, engine.blocks, engine.boxes,
            engine.device, engine.shared, cluster, cluster.keep(parts),
        )  # fmt: skip

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
        words.setflags(write=False)
        shape = (2, Q, A)
        return Evidence(
            words, np.full(shape, window.top, np.int16), np.full(shape, window.bottom, np.int16),
            span, tuple(range(Q)), self.actions, self.points.gamma, visits,
            self.points.n_episodes, window.sums,
        )  # fmt: skip
