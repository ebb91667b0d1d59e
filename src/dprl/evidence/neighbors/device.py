"""Which points lie in the balls around many queries, found by matrix products on a torch device.

The same rule decides as everywhere (see `dprl.evidence.neighbors.tree`), so the pairs are
those of the engine. The points lie in chunks of near ones. A query skips the chunks whose box is
out of reach. For the others, one float32 matrix product finds which pairs are surely inside, which
are surely outside, and which are in doubt; for those in doubt the rule decides in float64.

**The filter and its error.** Let w be search coordinates (`dprl.evidence.neighbors.metric`), c
the centre of a chunk, σ a power of two (so that numbers stay within the range of float32),
X = σ(w_x - c), Y = σ(w_q - c), x = fl32(X), y = fl32(Y), u = 2^-24, η = 2^-126. The product gives

    g = fl32(x·y + h),   h = fl32(-||x||²/2),   and   ||x - y||² = ||y||² - 2 (x·y - ||x||²/2).

1. *Conversion.* w - c is rounded once in float64 and once more to float32; what is smaller than η
   may become 0. So ||x - X|| <= u (1 + 2^-28) ||X|| + η sqrt(D), the same for Y, and the distance
   of x and y is σ times that of w_x and w_q to within E₁ := 2u (ρ + ||Y||) + 4η D, ρ the largest
   ||x|| of the chunk: twice what is needed.
2. *The sum.* g is a sum of K = D + 1 products, in any order and any grouping, fused or not: its
   error is at most K u / (1 - K u) times the sum of |products|, which is at most ρ ||y|| + |h|.
   h is off by u ρ²/2, and ||Y||²/2, which stands for ||y||²/2, by u ||Y||². What is lost below η
   is at most η K (1 + ρ + ||y||). We allow
   B := 2 (D + 3) u (ρ ||Y|| + ρ²/2) + 2u ||Y||² + 4η K (1 + ρ + ||Y||): again twice what is
   needed. The thresholds are computed in float64 from ||Y||² and T² below; B also gets 2^-48 of
   both, which is more than the D + 8 roundings there (D is below 2^12 where a matrix R fits).
3. *The rule.* Its float64 sum of d squares is right to a factor 1 ± (d + 2) 2^-53, r·r to 2^-53,
   and search coordinates keep distances to κ and E₀ (see there). So with κ' := κ + (d + 8) 2^-52,

       T_in := σ (r (1 - 2κ') - E₀) - E₁,    T_out := σ (r (1 + 2κ') + E₀) + E₁,

   ||x - y|| <= T_in means that the rule says inside, ||x - y|| > T_out that it says outside.
   Squares of less than 1e-140 would leave the range of float64: for smaller radii nothing is
   surely inside, and outside is judged with 1e-140.

Hence  g >= (||Y||² - T_in²)/2 + B  is surely inside,  g < (||Y||² - T_out²)/2 - B  surely outside;
the two thresholds are rounded to float32 away from each other. A query so far from a chunk that
σ ||w_q - c|| > 2^40 asks the rule about all of the chunk.

This needs products in full float32: reduced precision (TF32, bfloat16) is switched off while a
search runs, and a product whose answer would show it is checked each time.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats, Ints
from dprl._core.optional import needed
from dprl.errors import DprlError, ParameterError
from dprl.evidence.neighbors.metric import EPS, Asked, Sketch, padded

Tensor: TypeAlias = Any

CHUNK = 1 << 14
"""The most points in a chunk."""
FEWEST = 64
"""A search in few points still has about this many chunks, but none below 256 points."""
BYTES_PER_PAIR = 128
"""Working memory that one pair of query and point may take while it is handled."""
ROOM_CPU, ROOM_CUDA = 1 << 28, 1 << 35
"""Bytes of working memory: on a processor; on an accelerator, if a quarter of the free is more."""
ONE_SEARCH = threading.Lock()
"""One search at a time: the precision of products is a setting of the whole process."""
U, ETA = 2.0**-24, 2.0**-126
SMALL, FAR, LARGE = 1e-140, 2.0**40, 2.0**60
"""Radii below SMALL are judged with care; FAR and LARGE bound what float32 products see."""


def open_device(device: Any) -> tuple[Any, Any]:
    """torch, and the device of this name.

    Raises:
        PackageError: If torch is not installed.
        ParameterError: If there is no such device, or it is neither a processor nor CUDA.
    """
    torch = needed("torch", f"device={device!r}", "dprl[deep]")
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ParameterError(
            f"device must be 'cpu', 'cuda' or 'cuda:N'; got {device!r}.",
            str(error).splitlines()[0],
        ) from error
    if place.type not in ("cpu", "cuda"):
        raise ParameterError(
            f"device must be 'cpu', 'cuda' or 'cuda:N'; got {device!r}.",
            do="Exact answers need float64, which other devices do not have.",
        )
    count = torch.cuda.device_count() if place.type == "cuda" else 1
    if (place.index or 0) >= count:
        raise ParameterError(
            f"device {device!r} is not there; torch {torch.__version__} sees {count} CUDA devices.",
            do="Leave out device, or install a torch that is built for CUDA and its driver.",
        )
    return torch, place


@contextlib.contextmanager
def enough_memory(device: Any) -> Iterator[None]:
    """Says what to do where the memory of a device is not enough.

    Raises:
        DprlError: If torch runs out of the memory of the device.
    """
    torch, place = open_device(device)
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise DprlError(
            f"the memory of {place} is not enough for these points or queries.",
            str(error).splitlines()[0],
            "Leave out device, ask fewer queries at a time, or free memory that others hold there.",
        ) from error


@contextlib.contextmanager
def full_precision(torch: Any, device: Any) -> Iterator[None]:
    """float32 products without shortcuts; refuses to go on if they are still taken.

    Raises:
        DprlError: If a product of this device still loses digits of float32.
    """
    homes = [torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)]
    homes = [home for home in homes if hasattr(home, "fp32_precision")]
    with ONE_SEARCH:
        before = [home.fp32_precision for home in homes]
        older = "" if homes else torch.get_float32_matmul_precision()
        try:
            for home in homes:
                home.fp32_precision = "ieee"
            if older:
                torch.set_float32_matmul_precision("highest")
            one = torch.full((256, 64), 0.0, dtype=torch.float32, device=device)
            two = torch.full((64, 256), 1 + 2.0**-11, dtype=torch.float32, device=device)
            one[:, 5] = 1 + 2.0**-12
            if not bool(((one @ two) == 1 + 2.0**-11 + 2.0**-12 + 2.0**-23).all()):
                raise DprlError(
                    f"matrix products of {device} are not in full float32: counts could be wrong.",
                    do="Leave out device, or switch off what reduces the precision of torch.",
                )
            yield
        finally:
            for home, precision in zip(homes, before, strict=True):
                home.fp32_precision = precision
            if older:
                torch.set_float32_matmul_precision(older)


@dataclass(frozen=True, eq=False)
class Index:
    """N points on a device, in C chunks of near ones; made by `Index.of`.

    Attributes:
        device: The device.
        sketch: The search coordinates.
        row: int64 (N,), the row of the log in every place of the order of the chunks.
        z: float64 (N, d), the points in that order, for the rule.
        x: float32 (N, K), x and h of the filter (above), in that order; K is D + 1 rounded up.
        edges: The first place of every chunk, and N.
        centre: float64 (C, D), the centre c of every chunk.
        reach: float64 (C,), ρ of every chunk.
        low: float64 (C, D), the smallest search coordinates in every chunk.
        high: float64 (C, D), the largest ones.
        sigma: The power of two σ.
        room: Bytes of working memory that a search may use.
    """

    device: Any
    sketch: Sketch
    row: Tensor
    z: Tensor
    x: Tensor
    edges: tuple[int, ...]
    centre: Tensor
    reach: Tensor
    low: Tensor
    high: Tensor
    sigma: float
    room: int

    @classmethod
    def of(cls, z: Floats, sketch: Sketch, device: Any) -> Index:
        """The points z (N, d) on a device."""
        torch, place = open_device(device)
        points = _send(torch, z, place)
        w = torch.zeros((len(z), len(sketch.mean)), dtype=torch.float64, device=place)
        mean, R = _send(torch, sketch.mean, place), _send(torch, sketch.R, place)
        for i in range(0, len(z), 1 << 20):  # no second copy of all points
            w[i : i + (1 << 20)] = (points[i : i + (1 << 20)] - mean) @ R
        size = min(CHUNK, max(256, -(-len(z) // FEWEST)))
        parts = _arrange(torch, w, size)
        edges = tuple(int(e) for e in np.cumsum([0, *map(len, parts)]))
        sigma = _power(sketch.reach)
        D, C = w.shape[1], len(parts)
        x = torch.zeros((len(z), padded(D + 1)), dtype=torch.float32, device=place)
        boxes = [torch.empty((C, D), dtype=torch.float64, device=place) for _ in range(3)]
        low, high, centre = boxes
        reach = torch.zeros(C, dtype=torch.float64, device=place)
        for c, part in enumerate(parts):
            here = w[part]
            low[c], high[c] = here.amin(dim=0), here.amax(dim=0)
            centre[c] = low[c] + 0.5 * (high[c] - low[c])
            near = ((here - centre[c]) * sigma).to(torch.float32)
            square = near.to(torch.float64).square().sum(dim=1)
            reach[c] = square.max().sqrt()
            x[edges[c] : edges[c + 1], :D] = near
            x[edges[c] : edges[c + 1], D] = (-0.5 * square).to(torch.float32)
        row = torch.cat(parts)
        room = ROOM_CPU
        if place.type == "cuda":
            room = min(ROOM_CUDA, torch.cuda.mem_get_info(place)[0] // 4)
        return cls(place, sketch, row, points[row], x, edges, centre, reach, low, high,
                   sigma, room)  # fmt: skip

    def __len__(self) -> int:
        return len(self.row)

    @property
    def torch(self) -> Any:
        """The package; it is not kept, because modules cannot be pickled."""
        return needed("torch", f"device={self.device!r}", "dprl[deep]")

    @property
    def most_pairs(self) -> int:
        """The number of pairs that may be handled at a time."""
        return max(1024, self.room // BYTES_PER_PAIR)

    def ordered(self, asked: Asked) -> Ints:
        """int64 (Q,): an order of the queries in which those near the same chunk stand together."""
        torch, nearest = self.torch, [np.zeros(0, np.int64)]
        step = max(1, self.most_pairs // len(self.reach))
        for i in range(0, len(asked.w), step):
            square = self._to_boxes(self._place(asked.w[i : i + step]))
            nearest.append(torch.argmin(square, dim=1).cpu().numpy())
        return np.argsort(np.concatenate(nearest), kind="stable")

    def pairs(self, asked: Asked, chosen: Ints) -> Iterator[tuple[Tensor, Tensor]]:
        """The neighbours of the queries `chosen`, in parts.

        Yields:
            Two int64 tensors of one length: the number of a query in `chosen`, and the place of a
            point in the order of the chunks.
        """
        torch, radius = self.torch, asked.radius
        w, z = self._place(asked.w[chosen]), _send(torch, asked.z[chosen], self.device)
        slack = _send(torch, asked.slack[chosen], self.device)
        step = max(1, self.most_pairs // len(self.reach))
        parts = [self.thresholds(w[i : i + step], slack[i : i + step], radius)
                 for i in range(0, len(w), step)]  # fmt: skip
        asks, inside, outside = (
            torch.cat(part).T.contiguous() for part in zip(*parts, strict=True)
        )
        for c, n in enumerate(asks.sum(dim=1).tolist()):
            if n:
                queries = torch.nonzero(asks[c]).squeeze(1)
                step = max(1, self.most_pairs // (self.edges[c + 1] - self.edges[c]))
                for i in range(0, n, step):
                    some = queries[i : i + step]
                    yield self._in_chunk(
                        c, some, w[some], z, inside[c][some], outside[c][some], radius
                    )

    def _in_chunk(
        self, c: int, queries: Tensor, w: Tensor, z: Tensor, inside: Tensor, outside: Tensor,
        radius: float,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The neighbours in chunk c of these queries, as in `pairs`."""
        torch = self.torch
        first, last = self.edges[c], self.edges[c + 1]
        g = self.products(c, w, outside)
        near = torch.nonzero((g >= outside[:, None]).view(-1)).squeeze(1)
        one = torch.div(near, last - first, rounding_mode="floor")
        place = near - one * (last - first) + first
        doubt = torch.nonzero(g.view(-1)[near] < inside[one]).squeeze(1)
        del g
        query = queries[one]
        if len(doubt):
            keep = torch.ones(len(near), dtype=torch.bool, device=self.device)
            keep[doubt] = self.within(place[doubt], z, query[doubt], radius)
            query, place = query[keep], place[keep]
        return query, place

    def products(self, c: int, w: Tensor, outside: Tensor) -> Tensor:
        """float32 (n, size of the chunk): g of queries w (n, D) and every point of chunk c.

        outside (n,): their second threshold at this chunk; -inf where the query is too far.
        """
        torch, D = self.torch, w.shape[1]
        y = torch.zeros((len(w), self.x.shape[1]), dtype=torch.float32, device=self.device)
        y[:, :D] = torch.where(
            torch.isinf(outside)[:, None], 0.0, (w - self.centre[c]) * self.sigma
        )
        y[:, D] = 1.0
        return y @ self.x[self.edges[c] : self.edges[c + 1]].T

    def thresholds(self, w: Tensor, slack: Tensor, radius: float) -> tuple[Tensor, Tensor, Tensor]:
        """Queries w (n, D) and chunks: what g says.

        Returns:
            bool (n, C), whether the query must look into the chunk; float32 (n, C), g at or above
            this is surely inside; float32 (n, C), g below this is surely outside, and -inf where
            the query is too far to use g.
        """
        torch, sigma, D = self.torch, self.sigma, w.shape[1]
        kappa = self.sketch.kappa + (D + 8) * EPS
        widest = (max(radius, SMALL) * (1 + 2 * kappa) + slack) * (1 + (D + 8) * EPS)
        asks = self._to_boxes(w) <= widest[:, None].square()
        square = torch.zeros_like(asks, dtype=torch.float64)
        for axis in range(D):
            square += ((w[:, axis, None] - self.centre[:, axis]) * sigma).square()
        far = ~(square <= FAR * FAR)
        square[far] = 0.0
        length, rho = square.sqrt(), self.reach
        E = 2 * U * (rho + length) + 4 * ETA * D + sigma * slack[:, None]
        surely = radius * (1 - 2 * kappa) if radius > SMALL else 0.0
        T_in = torch.clamp(sigma * surely - E, 0.0, LARGE)
        T_out = torch.clamp(sigma * (max(radius, SMALL) * (1 + 2 * kappa)) + E, 0.0, LARGE)
        B = 2 * (D + 3) * U * (rho * length + 0.5 * rho * rho) + 2 * U * square
        B += 4 * ETA * (D + 1) * (1 + rho + length) + 2.0**-48 * (square + T_out.square())
        inside = 0.5 * (square - T_in.square()) + B
        outside = 0.5 * (square - T_out.square()) - B
        inside = torch.where(far | (T_in <= 0), math.inf, inside).to(torch.float32)
        outside = torch.where(far, -math.inf, outside).to(torch.float32)
        top = torch.full_like(inside, math.inf)
        return asks, torch.nextafter(inside, top), torch.nextafter(outside, -top)

    def within(self, place: Tensor, z: Tensor, query: Tensor, radius: float) -> Tensor:
        """The rule, for pairs of a place in the order of the chunks and a query z[query].

        Product and sum are separate operations, one dimension after the other: nothing is fused.
        """
        torch, limit = self.torch, radius * radius
        step = max(1, self.room // (32 * z.shape[1]))
        out = torch.empty(len(place), dtype=torch.bool, device=self.device)
        for i in range(0, len(place), step):
            t = self.z[place[i : i + step]] - z[query[i : i + step]]
            t = t * t
            total = t[:, 0].clone()
            for axis in range(1, z.shape[1]):
                total += t[:, axis]
            out[i : i + step] = total <= limit
        return out

    def _place(self, w: Floats) -> Tensor:
        """Search coordinates of queries on the device, without the padding."""
        return _send(self.torch, w[:, : len(self.sketch.mean)], self.device)

    def _to_boxes(self, w: Tensor) -> Tensor:
        """float64 (n, C): the squared distance of queries w (n, D) from the boxes of the chunks."""
        torch = self.torch
        total = torch.zeros((len(w), len(self.reach)), dtype=torch.float64, device=self.device)
        for axis in range(w.shape[1]):
            at = w[:, axis, None]
            t = torch.maximum(self.low[:, axis] - at, at - self.high[:, axis])
            total += torch.clamp(t, min=0.0).square()
        return total


def _send(torch: Any, array: NDArray[Any], device: Any) -> Tensor:
    """A copy of an array on a device."""
    return torch.tensor(np.ascontiguousarray(array), device=device)


def _power(reach: float) -> float:
    """The power of two that brings lengths up to `reach` near to 1; 1 for no length."""
    if reach <= 0:
        return 1.0
    return math.ldexp(1.0, -min(max(math.frexp(reach)[1], -900), 900))


def _arrange(torch: Any, w: Tensor, size: int) -> list[Tensor]:
    """The rows of points w (N, D) in parts of near ones, at most `size` in each.

    A part that is too large is cut at its median, where it is widest.
    """
    parts, left = [], [torch.arange(len(w), device=w.device)]
    while left:
        rows = left.pop()
        if len(rows) <= size:
            parts.append(torch.sort(rows).values)
            continue
        here = w[rows]
        axis = int(here.var(dim=0).argmax())
        order = torch.argsort(here[:, axis])
        half = -(-len(rows) // size) // 2 * size
        left += [rows[order[half:]], rows[order[:half]]]
    return parts


# -- counts and exact sums of the neighbours that a torch device finds -----------------------------
#
# All sums are sums of integers, so their order does not matter: the words are those of the
# engine.
#
# For `visits="first"` every pair of query and point becomes one number: the query, then the
# position of the point when the log is sorted by trajectory, action and time. In ascending order,
# the pairs of one query, trajectory and action stand together, the earliest first; only that one
# counts. Among the actions of a trajectory the earliest step is its first neighbour, the others
# are those of further actions. Few numbers are sorted. Where they are many, they are marked in a
# table with one byte for each query and point instead, and read back, which puts them in order as
# well.

BATCH = 8192
"""The most queries that are answered together."""
LONGEST = (1 << 31) - 1
"""The most bytes of a table that torch can read back at a time."""


@dataclass(frozen=True, eq=False)
class DeviceCargo:
    """The data that belong to the points, on the device of an index; made by `DeviceCargo.of`.

    Two orders: *places* are those of the chunks of the index; *positions* are those of the log,
    sorted by trajectory, action and time.

    Attributes:
        index: The points.
        n_actions: The number of actions A.
        values: float64 (V,), the returns without repetitions, ascending; on the host.
        action: int64 (N,) by place, the actions.
        amount: int64 (N, W) by place, 1 and then the digits of the return and of its square.
        episode: int64 (N,) by place, the trajectory.
        level: int32 (N,) by place, where the return is in `values`.
        position: int64 (N,) by place, the position of the same point.
        place: int64 (N,) by position, the place of the same point.
        row: int32 (N,) by position, the row of the log.
        visit: int32 (N,) by position, the number of the trajectory.
        group: int32 (N,) by position, the number of the trajectory and action.
    """

    index: Index
    n_actions: int
    values: Floats
    action: Tensor
    amount: Tensor
    episode: Tensor
    level: Tensor
    position: Tensor
    place: Tensor
    row: Tensor
    visit: Tensor
    group: Tensor

    @classmethod
    def of(
        cls,
        index: Index,
        action: NDArray[np.int32],
        digits: Ints,
        value: Floats,
        episode: Ints,
        n_actions: int,
    ) -> DeviceCargo:
        """Actions, digits of returns (N, W - 1), returns and trajectories, by row of the log."""
        torch, n = index.torch, len(action)
        row_of = index.row.cpu().numpy()  # by place

        def send(column: NDArray[Any], dtype: Any = np.int64) -> Tensor:
            return torch.tensor(np.ascontiguousarray(column, dtype), device=index.device)

        amount = torch.ones((n, 1 + digits.shape[1]), dtype=torch.int64, device=index.device)
        amount[:, 1:] = send(digits)[index.row]
        values, level = np.unique(value, return_inverse=True)
        rows = np.lexsort((np.arange(n), action, episode))  # by position
        place_of, position_of = np.empty(n, np.int64), np.empty(n, np.int64)  # by row
        place_of[row_of], position_of[rows] = np.arange(n), np.arange(n)
        visit = np.cumsum(np.diff(episode[rows], prepend=episode[rows[:1]]) != 0)
        other = np.diff(action[rows], prepend=action[rows[:1]]) != 0
        group = np.cumsum(other | (np.diff(visit, prepend=0) != 0))
        return cls(
            index, n_actions, values, send(action[row_of]), amount, send(episode[row_of]),
            send(level[row_of], np.int32), send(position_of[row_of]), send(place_of[rows]),
            send(rows, np.int32), send(visit, np.int32), send(group, np.int32),
        )  # fmt: skip

    def add(
        self,
        asked: Asked,
        first: bool,
        leave_out: NDArray[Any],
        words: Ints,
        span: Floats,
    ) -> None:
        """Add what happened around every query, as the engine counts it.

        Args:
            asked: The queries.
            first: Whether the first neighbours of each trajectory count, or all neighbours.
            leave_out: int (Q,), the trajectory each query leaves out; negative for none.
            words: int64 (2, Q, A, W), zeros, which receive the words of the first neighbours and
                those of the further actions.
            span: float64 (Q, 2), NaN, which receives the smallest and the largest return of the
                first neighbours.
        """
        index, own = self.index, np.asarray(leave_out).astype(np.int64)
        size = max(1, min(BATCH, index.most_pairs // len(index.reach)))
        if first:
            size = max(1, min(size, index.room // len(index)))
        with full_precision(index.torch, index.device):
            order = index.ordered(asked)
            for begin in range(0, len(order), size):
                chosen = order[begin : begin + size]
                batch = _Batch(self, asked, chosen, own[chosen])
                if first:
                    batch.add_first()
                else:
                    batch.add_all()
                shape = (2, len(chosen), *words.shape[2:])
                words[:, chosen] = batch.words.cpu().numpy().reshape(shape)
                low, high = batch.low.cpu().numpy(), batch.high.cpu().numpy()
                some = high >= 0
                span[chosen[some], 0] = self.values[low[some]]
                span[chosen[some], 1] = self.values[high[some]]


class _Batch:
    """The sums of some queries while they grow."""

    def __init__(self, cargo: DeviceCargo, asked: Asked, chosen: Ints, own: Ints) -> None:
        torch, device = cargo.index.torch, cargo.index.device
        self.cargo, self.torch, n = cargo, torch, len(chosen)
        self.n_queries, self.pairs = n, cargo.index.pairs(asked, chosen)
        self.own = torch.tensor(own, device=device) if (own >= 0).any() else None
        shape = (2 * n * cargo.n_actions, cargo.amount.shape[1])
        self.words = torch.zeros(shape, dtype=torch.int64, device=device)
        self.low = torch.full((n,), len(cargo.values), dtype=torch.int32, device=device)
        self.high = torch.full((n,), -1, dtype=torch.int32, device=device)

    def _not_own(self, query: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """The pairs without those of the trajectory that a query leaves out."""
        if self.own is None:
            return query, place
        counts = self.cargo.episode[place] != self.own[query]
        return query[counts], place[counts]

    def _widen(self, query: Tensor, place: Tensor) -> None:
        """Let the spans of queries hold the returns at these places."""
        level = self.cargo.level[place]
        for end, wider, reduce in (
            (self.low, level < self.low[query], "amin"),
            (self.high, level > self.high[query], "amax"),
        ):
            some = self.torch.nonzero(wider).squeeze(1)  # soon very few
            end.scatter_reduce_(0, query[some], level[some], reduce)

    def _add(self, query: Tensor, place: Tensor, later: Tensor | int) -> None:
        """Add places to the words of queries: as first neighbours, or others if `later` is 1."""
        cargo = self.cargo
        step = max(1, cargo.index.room // (16 * cargo.amount.shape[1]))
        cell = (later * self.n_queries + query) * cargo.n_actions + cargo.action[place]
        for i in range(0, len(place), step):
            self.words.index_add_(0, cell[i : i + step], cargo.amount[place[i : i + step]])

    def add_all(self) -> None:
        """Add every neighbour."""
        for query, place in self.pairs:
            self._widen(query, place)  # as in the engine, also by what is left out
            self._add(*self._not_own(query, place), 0)

    def add_first(self) -> None:
        """Add the first neighbours of every trajectory."""
        cargo, torch, N = self.cargo, self.torch, len(self.cargo.index)
        keys, n, table = [cargo.position[:0]], 0, None
        pairs_of = torch.zeros(self.n_queries, dtype=torch.int64, device=cargo.index.device)
        for query, place in itertools.starmap(self._not_own, self.pairs):
            pairs_of += torch.bincount(query, minlength=self.n_queries)
            keys.append(query * N + cargo.position[place])
            n += len(place)
            if table is None and n > cargo.index.most_pairs:
                table = torch.zeros(self.n_queries * N, dtype=torch.bool, device=cargo.index.device)
            if table is not None:
                for key in keys:
                    table[key] = True
                keys = []
        if table is None:
            self._add_sorted(torch.sort(torch.cat(keys)).values)
            return
        table = table.view(self.n_queries, N)
        begin, n = 0, 0
        for q, count in enumerate([*pairs_of.tolist(), -1]):
            too_many = n + count > cargo.index.most_pairs or (q + 1 - begin) * N > LONGEST
            if q > begin and (count < 0 or too_many):
                marked = torch.nonzero(table[begin:q].view(-1)).squeeze(1)
                self._add_sorted(marked + begin * N)
                begin, n = q, 0
            n += count

    def _add_sorted(self, key: Tensor) -> None:
        """Add what counts of the pairs key = query · N + position, ascending, of whole queries."""
        cargo, torch, N = self.cargo, self.torch, len(self.cargo.index)
        query = torch.div(key, N, rounding_mode="floor")
        position = key - query * N
        other = _changes(torch, query)
        counts = torch.nonzero(other | _changes(torch, cargo.group[position])).squeeze(1)
        begins = (other | _changes(torch, cargo.visit[position]))[counts]
        query, position = query[counts], position[counts]
        visit, row = torch.cumsum(begins, dim=0) - 1, cargo.row[position]
        earliest = torch.full((int(begins.sum()),), N, dtype=torch.int32, device=row.device)
        earliest.scatter_reduce_(0, visit, row, "amin")
        later, place = row != earliest[visit], cargo.place[position]
        self._add(query, place, later.to(torch.int64))
        self._widen(query[~later], place[~later])


def _changes(torch: Any, column: Tensor) -> Tensor:
    """bool (n,): whether an entry differs from the one before it; the first one does."""
    out = torch.ones(len(column), dtype=torch.bool, device=column.device)
    out[1:] = column[1:] != column[:-1]
    return out
