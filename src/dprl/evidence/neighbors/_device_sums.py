"""Counts and exact sums of the neighbours that a torch device finds.

All sums are sums of integers, so their order does not matter: the words are those of the engine.

For `visits="first"` every pair of query and point becomes one number: the query, then the position
of the point when the log is sorted by trajectory, action and time. In ascending order, the pairs of
one query, trajectory and action stand together, the earliest first; only that one counts. Among the
actions of a trajectory the earliest step is its first neighbour, the others are those of further
actions. Few numbers are sorted. Where they are many, they are marked in a table with one byte for
each query and point instead, and read back, which puts them in order as well.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.evidence.neighbors._device import Index, Tensor, full_precision
from dprl.evidence.neighbors._rotation import Asked

__all__ = ["DeviceCargo"]

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
    values: NDArray[np.float64]
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
        digits: NDArray[np.int64],
        value: NDArray[np.float64],
        episode: NDArray[np.int64],
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
        words: NDArray[np.int64],
        span: NDArray[np.float64],
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

    def __init__(
        self, cargo: DeviceCargo, asked: Asked, chosen: NDArray[np.int64], own: NDArray[np.int64]
    ) -> None:
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
