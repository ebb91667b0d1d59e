"""One question, asked for many places: what happened within radius r of this place?

The answer is the same `Evidence` that a log with discrete states gives, with one "state" per query:
the ball around it. `visits="first"` counts trajectories (what the theory counts), `"all"` counts
every neighbour (lower variance, no certificate). A query that is itself part of the log should
leave out its own trajectory: otherwise a point would count as evidence for itself.

Answers do not depend on the method, the number of threads or the other queries, to the last bit:
one rule in float64 decides what is a neighbour, and sums are sums of integers.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, Ints, frozen
from dprl._core.checks import Visits, check_choice, check_radius, check_threads, check_visits
from dprl._core.cluster import Cluster, Kept
from dprl._core.compiled import compiled
from dprl._core.exact import COUNT, Window, digits_of, window_of
from dprl.errors import LogError, ParameterError
from dprl.evidence.counts import FIRST, Evidence
from dprl.evidence.neighbors.device import DeviceCargo, Index, enough_memory, open_device
from dprl.evidence.neighbors.metric import LARGEST, Asked, FittedMetric, Sketch, ask
from dprl.evidence.neighbors.tree import (
    QUERIES,
    Blocks,
    Boxes,
    Cargo,
    add_all,
    add_first,
    add_up_boxes,
    fill_blocks,
    grow,
    leaf_of,
    list_rows,
    no_boxes,
)
from dprl.logs.encoding.features import columns_in, plain_features
from dprl.logs.log import Label, Log
from dprl.logs.returns import returns

if TYPE_CHECKING:
    from dprl.logs.censoring import Near

# --- Points: every step of a log as a place, an action, a return and a trajectory


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

    z: Floats
    action: NDArray[np.int32]
    G: Floats
    episode: Ints
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


Method: TypeAlias = Literal["auto", "tree", "brute"]

WORTH_A_PILOT = 1024
"""With fewer queries than this, a pilot that finds the faster method costs more than it saves."""

WORTH_A_DEVICE = 1024
"""With fewer queries than this, the tree answers before a device has begun."""

PILOT, RUN = 64, 8
"""Number of queries in the pilot, and how many of them are neighbours in the order."""

MOST = 12
"""The most words for the digits of a sum of returns; ordinary returns need three or four."""

BITMAPS = 1 << 24
"""Bits of all bitmaps of one thread together, so that they stay in its cache."""


@dataclass(eq=False)
class Engine:
    """Finds the neighbours of any place within any radius; made by `Engine.build`.

    Attributes:
        points: The steps of a log and where they happened.
        actions: The action labels.
        method: "tree" or "brute"; "auto" until a pilot has chosen one of them.
        sketch: The rotated coordinates in which is searched.
        blocks: The points, in the memory layout the scan needs.
        boxes: The tree over the points; empty for brute force.
        device: The torch device that answers many queries at once; None for the processor alone.
        shared: What lies on the device; engines over the same points share it.

    Example:
        >>> from dprl.evidence.neighbors import Engine, Points
        >>> points = Points(
        ...     z=[[0.0], [1.0], [3.0]], action=[0, 1, 0], G=[1.0, 2.0, 4.0], episode=[0, 0, 1]
        ... )
        >>> Engine.build(points).count([[0.5]], radius=1.0)
        array([2])
    """

    points: Points
    actions: tuple[Label, ...]
    method: Method
    sketch: Sketch = field(repr=False)
    blocks: Blocks = field(repr=False)
    boxes: Boxes = field(repr=False)
    device: str | None = None
    shared: dict[str, Index] = field(default_factory=dict, repr=False)

    @classmethod
    def build(
        cls,
        points: Points,
        n_actions: int | None = None,
        method: Method = "auto",
        device: str | None = None,
    ) -> Engine:
        """Prepare to answer questions about `points`.

        Args:
            points: The steps of a log and where they happened.
            n_actions: The number of actions. Default None: as many as there are labels, or as were
                taken.
            method: "tree", "brute" (compare with every point), or "auto" (the default): a short
                pilot with the first large batch of queries decides. The answers are the same.
            device: The torch device that answers `evidence` and `count` for 1,024 queries or more:
                "cuda", "cuda:N", or "cpu" (torch on the processor, for tests). Lists of neighbours
                and few queries stay with the tree. The answers are the same. Default None: no
                torch.

        Returns:
            The engine.

        Raises:
            ParameterError: If `method` is not one of the three, `n_actions` is too small, or there
                is no such device.
            PackageError: If a device is asked for and torch is not installed.

        Example:
            >>> from dprl.evidence.neighbors import Engine, Points
            >>> points = Points(
            ...     z=[[0.0], [1.0], [3.0]], action=[0, 1, 0], G=[1.0, 2.0, 4.0], episode=[0, 0, 1]
            ... )
            >>> Engine.build(points, method="brute").method
            'brute'
        """
        check_choice("method", method, ("auto", "tree", "brute"))
        seen = int(points.action.max()) + 1
        n_actions = n_actions or len(points.actions) or seen
        if n_actions < seen:
            raise ParameterError(f"n_actions is {n_actions}, and action {seen - 1} was taken.")
        if device is not None:
            open_device(device)
        named = len(points.actions) == n_actions
        actions = points.actions if named else tuple(range(n_actions))
        sketch = Sketch.of(points.z)
        w = sketch.transform(points.z)
        if method == "brute":
            blocks = brute_blocks(points.z, w)
            return cls(points, actions, method, sketch, blocks, no_boxes(), device)
        return cls(points, actions, method, sketch, *grow(points.z, w), device)

    def with_values(self, G: Floats) -> Engine:
        """The same points with other returns; the search structure is reused.

        Args:
            G: float64 (N,), the new returns.

        Returns:
            A new engine.

        Example:
            >>> from dprl.evidence.neighbors import Engine, Points
            >>> points = Points(
            ...     z=[[0.0], [1.0], [3.0]], action=[0, 1, 0], G=[1.0, 2.0, 4.0], episode=[0, 0, 1]
            ... )
            >>> engine = Engine.build(points).with_values([0.0, 10.0, 0.0])
            >>> engine.evidence([[0.5]], radius=1.0, visits="all").state.mean
            array([5.])
        """
        return replace(Engine.like(self), points=replace(self.points, G=G))

    @classmethod
    def like(cls, engine: Engine, **more: Any) -> Self:
        """An engine of this class over the same points, with the search structure of another.

        Args:
            engine: The other one.
            **more: What engines of this class have besides.

        Returns:
            The engine; the structure is shared, not copied.

        Example:
            >>> points = Points(z=[[0.0], [1.0]], action=[0, 1], G=[1.0, 2.0], episode=[0, 1])
            >>> engine = Engine.build(points)
            >>> Engine.like(engine).blocks is engine.blocks
            True
        """
        own = {part.name: getattr(engine, part.name) for part in fields(Engine)}
        return cls(**own, **more)

    @property
    def nbytes(self) -> int:
        """Memory used in addition to that of the points, in bytes."""
        parts: list[NDArray[Any]] = [*self.blocks[1:], *self.boxes]
        for name in ("_cargo_all", "_cargo_first"):
            if name in self.__dict__:
                cargo = self.__dict__[name]
                parts += [cargo.amount, cargo.slot, cargo.total, cargo.extent]
                parts += [] if cargo.action is self.points.action else [cargo.action]
        return sum(part.nbytes for part in parts)

    def evidence(
        self,
        queries: NDArray[Any],
        radius: float,
        *,
        visits: Visits = "first",
        leave_out: NDArray[Any] | None = None,
        threads: int | None = None,
    ) -> Evidence:
        """What happened within `radius` of every query; each query is one "state" of the evidence.

        Args:
            queries: float64 (Q, d), in the coordinates of the points.
            radius: Radius of the closed ball, at least 0, in the same coordinates.
            visits: "first" (the default) counts the first neighbour of each trajectory (and the
                first one for each of its further actions); "all" counts every neighbour and carries
                no certificate.
            leave_out: int (Q,), the episode that is left out for each query; -1 for none. Default
                None: nothing is left out.
            threads: Number of threads. Default None: one per core. The answer does not depend on
                it.

        Returns:
            Evidence with Q states.

        Raises:
            ParameterError: If queries, radius, `visits`, `leave_out` or `threads` are not
                allowed.

        Example:
            >>> from dprl.evidence.neighbors import Engine, Points
            >>> points = Points(
            ...     z=[[0.0], [1.0], [3.0]], action=[0, 1, 0], G=[1.0, 2.0, 4.0], episode=[0, 0, 1]
            ... )
            >>> evidence = Engine.build(points).evidence([[0.5], [3.0]], radius=1.0)
            >>> evidence.state.n.tolist(), evidence.pair.n.tolist()
            ([1, 1], [[1, 1], [1, 0]])
        """
        check_visits(visits)
        asked = ask(self.sketch, self._check(queries), check_radius(radius))
        own, Q = self._own(leave_out, len(asked.z)), len(asked.z)
        words = np.zeros((2, Q, len(self.actions), self._window.width), np.int64)
        span = np.full((Q, 2), np.nan)
        if self.device is not None and Q >= WORTH_A_DEVICE:
            check_threads(threads)
            none = np.full(Q, -1) if leave_out is None else leave_out
            with enough_memory(self.device):
                self._on_device.add(asked, visits == "first", none, words, span)
        else:
            boxes, order = self._choose(asked, visits)
            _spread(
                lambda part: self._add(asked, part, boxes, own, visits, words, span), order, threads
            )
        return self._evidence(words, span, visits)

    def _evidence(self, words: Ints, span: Floats, visits: Visits) -> Evidence:
        """What was added up for each query, words (2, Q, A, W) and span (Q, 2), as evidence."""
        words.setflags(write=False)
        window, shape = self._window, words.shape[:3]
        return Evidence(
            words, np.full(shape, window.top, np.int16), np.full(shape, window.bottom, np.int16),
            span, tuple(range(len(span))), self.actions, self.points.gamma, visits,
            self.points.n_episodes, window.sums,
        )  # fmt: skip

    def count(self, queries: NDArray[Any], radius: float, threads: int | None = None) -> Ints:
        """How many points lie within `radius` of every query.

        Args:
            queries: float64 (Q, d), in the coordinates of the points.
            radius: Radius of the closed ball, at least 0.
            threads: Number of threads. Default None: one per core.

        Returns:
            int64 (Q,).

        Example:
            >>> from dprl.evidence.neighbors import Engine, Points
            >>> points = Points(
            ...     z=[[0.0], [1.0], [3.0]], action=[0, 1, 0], G=[1.0, 2.0, 4.0], episode=[0, 0, 1]
            ... )
            >>> Engine.build(points).count([[0.5], [9.0]], radius=1.0).tolist()
            [2, 0]
        """
        evidence = self.evidence(queries, radius, visits="all", threads=threads)
        return np.asarray(evidence.words[FIRST, ..., COUNT].sum(axis=1))

    def neighbors(
        self, queries: NDArray[Any], radius: float, threads: int | None = None
    ) -> tuple[Ints, NDArray[np.int32]]:
        """The rows of the points within `radius` of every query.

        Args:
            queries: float64 (Q, d), in the coordinates of the points.
            radius: Radius of the closed ball, at least 0.
            threads: Number of threads. Default None: one per core.

        Returns:
            indptr, int64 (Q + 1,), and rows, int32. The neighbours of query q are
            rows[indptr[q] : indptr[q + 1]], ascending.

        Example:
            >>> from dprl.evidence.neighbors import Engine, Points
            >>> points = Points(
            ...     z=[[0.0], [1.0], [3.0]], action=[0, 1, 0], G=[1.0, 2.0, 4.0], episode=[0, 0, 1]
            ... )
            >>> indptr, rows = Engine.build(points).neighbors([[0.5], [3.0]], radius=1.0)
            >>> indptr.tolist(), rows.tolist()
            ([0, 2, 3], [0, 1, 2])
        """
        asked = ask(self.sketch, self._check(queries), check_radius(radius))
        cargo, Q = self._cargo_first, len(asked.z)
        boxes, order = self._choose(asked, "first")

        def part(order: Ints) -> tuple[Ints, NDArray[np.int32]]:
            count = np.zeros(len(order), np.int64)
            rows = list_rows(self.blocks, boxes, cargo, asked, order, self._block(), count)
            return count, rows

        results = _spread(part, order, threads)
        count = np.concatenate([c for c, _ in results]) if results else np.zeros(0, np.int64)
        rows = np.concatenate([r for _, r in results]) if results else np.zeros(0, np.int32)
        indptr, begin = np.zeros(Q + 1, np.int64), np.zeros(Q, np.int64)
        indptr[1 + order] = count
        np.cumsum(indptr, out=indptr)
        begin[order] = np.cumsum(count) - count  # where each query's rows lie now
        source = np.repeat(begin - indptr[:-1], np.diff(indptr)) + np.arange(len(rows))
        return indptr, rows[source]

    def nearest_rows(self, query: NDArray[Any], radius: float, k: int) -> Ints:
        """The rows of the k points that are nearest to one query.

        Args:
            query: float64 (d,), in the coordinates of the points.
            radius: Points farther away than this are not considered.
            k: The most rows to return.

        Returns:
            int64, at most k rows, nearest first.

        Example:
            >>> from dprl.evidence.neighbors import Engine, Points
            >>> points = Points(
            ...     z=[[0.0], [1.0], [3.0]], action=[0, 1, 0], G=[1.0, 2.0, 4.0], episode=[0, 0, 1]
            ... )
            >>> Engine.build(points).nearest_rows([0.8], radius=5.0, k=2).tolist()
            [1, 0]
        """
        q = self._check(np.atleast_2d(query))[0]
        rows = self.neighbors(q[None], radius)[1].astype(np.int64)
        distance = np.zeros(len(rows))
        for i in range(len(q)):
            distance += (self.points.z[rows, i] - q[i]) ** 2
        return np.asarray(rows[np.argsort(distance, kind="stable")[:k]])

    @functools.cached_property
    def _window(self) -> Window:
        """One window that holds the returns of all points: a ball may hold any of them."""
        return window_of(self.points.G, MOST)

    @functools.cached_property
    def _cargo_all(self) -> Cargo:
        """The returns as digits, in the order of the blocks, with the sums of every box."""
        N, row = len(self.points), self.blocks.row[: len(self.points)]
        cargo, slot = self._cargo_first, np.empty(N, np.int32)
        slot[row] = np.arange(N, dtype=np.int32)
        action, amount, value = cargo.action[row], cargo.amount[row], cargo.value[row]
        F, fan = self.boxes.slots.shape[:2]
        total = np.zeros((F, fan, len(self.actions), self._window.width), np.int64)
        extent = np.zeros((F, fan, 2))
        if F:
            add_up_boxes(self.boxes, action, amount, value, total, extent)
        return Cargo(action, amount, value, cargo.episode, slot, total, extent)

    @functools.cached_property
    def _cargo_first(self) -> Cargo:
        """The returns as digits, in the order of the points."""
        G = np.ascontiguousarray(self.points.G)
        amount = digits_of(G, self._window)
        total, slot = np.zeros((0, 0, 0, 0), np.int64), np.zeros(0, np.int32)
        none = np.zeros((0, 0, 0))
        return Cargo(self.points.action, amount, G, self.points.episode, slot, total, none)

    @functools.cached_property
    def _on_device(self) -> DeviceCargo:
        """The points on the device, with their actions, returns and trajectories."""
        cargo, points = self._cargo_first, self.points
        if "index" not in self.shared:
            self.shared["index"] = Index.of(points.z, self.sketch, self.device)
        return DeviceCargo.of(
            self.shared["index"], points.action, cargo.amount, cargo.value, points.episode,
            len(self.actions),
        )  # fmt: skip

    def _check(self, queries: NDArray[Any]) -> Floats:
        """The queries as float64 (Q, d)."""
        z = np.ascontiguousarray(queries, np.float64)
        d = self.points.z.shape[1]
        if z.ndim != 2 or z.shape[1] != d:
            raise ParameterError(f"queries need {d} coordinates in columns; got shape {z.shape}.")
        if not np.isfinite(z).all() or np.abs(z).max(initial=0) > LARGEST:
            bad = np.flatnonzero(~(np.abs(z) <= LARGEST).all(axis=1))
            raise ParameterError(
                f"{len(bad):,} of {len(z):,} queries have a coordinate that is not a finite "
                "number within 1e18.",
                f"query {bad[0]}: {z[bad[0]]}",
            )
        return z

    def _own(self, leave_out: NDArray[Any] | None, n: int) -> Ints:
        """int64 (Q, 2): the rows of the trajectory each query leaves out, as first and last + 1."""
        if leave_out is None:
            return np.zeros((n, 2), np.int64)
        episode = np.asarray(leave_out)
        if episode.shape != (n,) or episode.dtype.kind not in "iu":
            raise ParameterError(
                f"leave_out needs one episode number per query, {n:,} in all; "
                f"got shape {episode.shape} of {episode.dtype}."
            )
        ends = [np.searchsorted(self.points.episode, episode, side) for side in ("left", "right")]
        return np.stack(ends, axis=1).astype(np.int64)

    def _block(self) -> int:
        """The number of queries that are handled at a time."""
        return max(1, min(QUERIES, BITMAPS // len(self.points)))

    def _choose(self, asked: Asked, visits: Visits) -> tuple[Boxes, Ints]:
        """The tree (empty where comparing with every point is faster), and an order of the queries.

        Queries that end up in the same leaf follow each other.
        """
        Q, leaf = len(asked.z), np.zeros(len(asked.z), np.int64)
        if len(self.boxes.size):
            leaf_of(self.boxes, asked.w, leaf)
        order = np.argsort(leaf, kind="stable")
        if self.method == "auto" and Q >= WORTH_A_PILOT:
            begin = np.linspace(0, Q - RUN, PILOT // RUN).astype(int)
            sample = order[(begin[:, None] + np.arange(RUN)).ravel()]
            spent: dict[Method, float] = {
                "tree": self._time(asked, sample, self.boxes, visits),
                "brute": self._time(asked, sample, no_boxes(), visits),
            }
            self.method = min(spent, key=lambda m: spent[m])
        return no_boxes() if self.method == "brute" else self.boxes, order

    def _time(self, asked: Asked, order: Ints, boxes: Boxes, visits: Visits) -> float:
        """Seconds these queries take on this thread: the better of two runs."""
        few = Asked(frozen(asked.z[order]), asked.w[order], asked.p[order], asked.slack[order],
                    asked.skip[order], asked.whole[order], asked.radius)  # fmt: skip
        n, spent = len(order), math.inf
        own, order = np.zeros((n, 2), np.int64), np.arange(n)
        words = np.zeros((2, n, len(self.actions), self._window.width), np.int64)
        span = np.full((n, 2), np.nan)
        for _ in range(2):
            begin = time.thread_time()
            self._add(few, order, boxes, own, visits, words, span)
            spent = min(spent, time.thread_time() - begin)
        return spent

    def _add(
        self,
        asked: Asked,
        order: Ints,
        boxes: Boxes,
        own: Ints,
        visits: Visits,
        words: Ints,
        span: Floats,
    ) -> None:
        """Add the evidence of the queries `order` to words (2, Q, A, W) and span (Q, 2)."""
        if visits == "all":
            add_all(self.blocks, boxes, self._cargo_all, asked, order, own, words[FIRST], span)
        else:
            cargo = self._cargo_first
            add_first(self.blocks, boxes, cargo, asked, order, own, self._block(), words, span)


def _spread(function: Any, order: Ints, threads: int | None) -> list[Any]:
    """`function` applied to consecutive parts of `order` on several threads; results in order."""
    threads = check_threads(threads) or os.cpu_count() or 1
    if threads == 1 or len(order) < QUERIES:
        return [function(order)] if len(order) else []
    n = max(1, min(4 * threads, len(order) // QUERIES))
    edges = np.linspace(0, len(order), n + 1).astype(int)
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda i: function(order[edges[i] : edges[i + 1]]), range(n)))


# -- blocked brute force: every block is compared, in log order ------------------------------------
#
# It is for few points, or points without structure, where a tree would open nearly every leaf
# anyway. The blocks, their filter and the rule are those of the tree, so the answers are the same
# bits.


def brute_blocks(z: Floats, w: Floats) -> Blocks:
    """Blocks of the points (N, d) in their own order; w (N, D) are their search coordinates."""
    return fill_blocks(z, w, np.arange(len(z), dtype=np.int32))[0]


# --- Engines that remember their answers, and engines on a cluster
#
# Settings that differ only in n_min ask about the same places and the same radius. A question is
# identified by its content, so it does not matter which object asks again. Answers for another
# radius are dropped, and all of them after `forget`.

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

    def rows_near(log: Log, features: Floats, own: NDArray[Any]) -> tuple[Ints, Ints]:
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
# queries. Trajectories are whole in a part, so counting by trajectory stays exact; all parts keep
# the digits of one window, so sums of digits are those of one engine, to the last bit.

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


# --- Nets: few centres such that every point lies within a radius of one of them; and core points
#
# A *core point* has at least n_min trajectories that took one action within r of it (the cores of
# DBSCAN, counted by trajectory); a *core pair* is a row whose own action is such an action. The
# paper's M(r, n_min) covers pairs of state and action, and pairs with different actions are
# infinitely far apart: so M is the number of centres of a greedy r-net over the core pairs of
# each action, added up. Each row in turn becomes a centre unless an earlier centre is within r.
# Two centres are farther apart than r, but their balls may overlap, so M may exceed N / n_min
# (points on a line, five in each ball: every third point is a centre).
#
# The paper proposes the volume that DBSCAN finds as an estimate of M: the volume of all balls
# around core pairs, in balls. `core_volume` estimates it: of points drawn in the balls at random,
# a point that lies in k of them counts 1/k.

CENTRES = 1_024


@compiled
def _cover(
    candidates: Ints,
    indptr: Ints,
    rows: NDArray[np.int32],
    wanted: Bools,
    centre: Ints,
) -> None:  # pragma: no cover - compiled
    """Each candidate in turn becomes a centre unless covered; it then covers its neighbours."""
    for i in range(len(candidates)):
        if centre[candidates[i]] >= 0:
            continue
        for p in range(indptr[i], indptr[i + 1]):
            if wanted[rows[p]] and centre[rows[p]] < 0:
                centre[rows[p]] = candidates[i]


def greedy_net(engine: Engine, radius: float, wanted: Bools | None = None) -> Ints:
    """The centre of every wanted row, int64 (N,): a row within `radius` of it; -1 if not wanted.

    Rows are taken in their order, so the net does not depend on chunks or threads.
    """
    N = len(engine.points)
    if wanted is None:
        wanted = np.ones(N, bool)
    centre = np.full(N, -1, np.int64)
    after = 0
    while True:
        left = np.flatnonzero(wanted[after:] & (centre[after:] < 0))[:CENTRES] + after
        if not len(left):
            return centre
        indptr, rows = engine.neighbors(engine.points.z[left], radius)
        _cover(left, indptr, rows, wanted, centre)
        after = int(left[-1]) + 1


def core_points(engine: Engine, radius: float, n_min: float) -> Bools:
    """bool (N,): rows with at least n_min trajectories of one action within `radius`."""
    evidence = engine.evidence(engine.points.z, radius, visits="first")
    return np.asarray((evidence.n_pair >= n_min).any(axis=1))


def core_pairs(engine: Engine, radius: float, n_min: float) -> Bools:
    """bool (N,): rows with at least n_min trajectories of their own action within `radius`."""
    evidence = engine.evidence(engine.points.z, radius, visits="first")
    return np.asarray(evidence.n_pair[np.arange(len(engine.points)), engine.points.action] >= n_min)


def net_size(engine: Engine, radius: float, n_min: float) -> int:
    """M(r, n_min): centres of greedy r-nets over the core pairs, one net for each action."""
    core, action = core_pairs(engine, radius, n_min), engine.points.action
    nets = [greedy_net(engine, radius, core & (action == a)) for a in np.unique(action[core])]
    return sum(len(np.unique(centre[centre >= 0])) for centre in nets)


def core_volume(
    engine: Engine, radius: float, n_min: float, *, draws: int = 2_000, seed: int = 0
) -> float:
    """The volume of the balls around core pairs, in balls, the actions added up; an estimate.

    Args:
        engine: The points of a log.
        radius: r, in the metric of the points; above 0.
        n_min: Trajectories of its action that a core pair needs within `radius`.
        draws: How many random points are looked at for each action. Default 2,000.
        seed: Seed of these points. Default 0.
    """
    core, action = core_pairs(engine, radius, n_min), engine.points.action
    rng, z, total = np.random.default_rng(seed), engine.points.z, 0.0
    for a in np.unique(action[core]):
        own = core & (action == a)
        centre = z[rng.choice(np.flatnonzero(own), draws)]
        way = rng.normal(size=centre.shape)
        way *= (rng.random(draws) ** (1 / z.shape[1]) / np.linalg.norm(way, axis=1))[:, None]
        indptr, rows = engine.neighbors(centre + radius * way, radius)
        inside = np.concatenate(([0], np.cumsum(own[rows])))
        total += int(own.sum()) * float((1 / np.maximum(np.diff(inside[indptr]), 1)).mean())
    return total


@compiled
def _nearest(
    z: Floats,
    queries: Floats,
    indptr: Ints,
    rows: NDArray[np.int32],
    nearest: Ints,
) -> None:  # pragma: no cover - compiled
    """The nearest of each query's rows, the first of equals; -1 where a query has no rows."""
    for q in range(len(queries)):
        best = np.inf
        nearest[q] = -1
        for p in range(indptr[q], indptr[q + 1]):
            distance = 0.0
            for i in range(z.shape[1]):
                distance += (z[rows[p], i] - queries[q, i]) * (z[rows[p], i] - queries[q, i])
            if distance < best:
                best = distance
                nearest[q] = rows[p]


def nearest_centres(centres: Engine, queries: Floats, radius: float) -> Ints:
    """The nearest centre of each query within `radius`, int64 (Q,); -1 if all are farther."""
    nearest = np.empty(len(queries), np.int64)
    for start in range(0, len(queries), CENTRES * 16):
        chunk = slice(start, start + CENTRES * 16)
        indptr, rows = centres.neighbors(queries[chunk], radius)
        _nearest(centres.points.z, queries[chunk], indptr, rows, nearest[chunk])
    return nearest
