"""Counts and exact sums of the neighbours that a torch device finds.

All sums are sums of integers, so their order does not matter: the words are those of the engine.

For `visits="first"` every pair of query and point becomes one number: the query, then the place of
the point when the log is sorted by trajectory, action and time. Sorted, the pairs of one query,
trajectory and action stand together, the earliest first; only that one counts. Among the actions
of a trajectory the earliest step is its first neighbour, the others are those of further actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.evidence.neighbors._device import Index, Tensor, full_precision
from dprl.evidence.neighbors._rotation import Asked

__all__ = ["DeviceCargo"]

BATCH = 8192
"""The most queries that are answered together."""


@dataclass(frozen=True, eq=False)
class DeviceCargo:
    """The data that belong to the points, on the device of an index; made by `DeviceCargo.of`.

    Attributes:
        index: The points.
        n_actions: The number of actions A.
        action: int64 (N,), the actions, in the order of the log.
        amount: int64 (N, W), 1 and then the digits of the return and of its square; same order.
        episode: int64 (N,), the trajectory; same order.
        level: int64 (N,), the position of the return among all `values`; same order.
        values: float64 (V,), the returns without repetitions, ascending; on the host.
        sorted_rows: int64 (N,), the rows of the log sorted by trajectory, action and time.
        position: int64 (N,), where each row of the log is in `sorted_rows`.
    """

    index: Index
    n_actions: int
    action: Tensor
    amount: Tensor
    episode: Tensor
    level: Tensor
    values: NDArray[np.float64]
    sorted_rows: Tensor
    position: Tensor

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
        """Actions, digits of returns (N, W - 1), returns and trajectories of the points."""
        torch = index.torch

        def send(column: NDArray[Any]) -> Tensor:
            return torch.tensor(np.ascontiguousarray(column, np.int64), device=index.device)

        amount = torch.ones(
            (len(digits), 1 + digits.shape[1]), dtype=torch.int64, device=index.device
        )
        amount[:, 1:] = send(digits)
        values, level = np.unique(value, return_inverse=True)
        rows = np.lexsort((np.arange(len(action)), action, episode))
        position = np.empty(len(rows), np.int64)
        position[rows] = np.arange(len(rows))
        return cls(index, n_actions, send(action), amount, send(episode), send(level), values,
                   send(rows), send(position))  # fmt: skip

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
        index, Q = self.index, len(asked.z)
        own = np.asarray(leave_out).astype(np.int64)
        with full_precision(index.torch, index.device):
            order, begin, size = index.ordered(asked), 0, BATCH
            while begin < Q:
                chosen = order[begin : begin + size]
                batch = _Batch(self, asked, chosen, own[chosen])
                if not (batch.add_first() if first else batch.add_all()):
                    size = len(chosen) // 2  # too many pairs to sort at once
                    continue
                shape = (2, len(chosen), *words.shape[2:])
                words[:, chosen] = batch.words.cpu().numpy().reshape(shape)
                low, high = batch.low.cpu().numpy(), batch.high.cpu().numpy()
                some = high >= 0
                span[chosen[some], 0] = self.values[low[some]]
                span[chosen[some], 1] = self.values[high[some]]
                begin += len(chosen)
                if batch.n_pairs < index.most_pairs // 4:
                    size = min(2 * size, BATCH)


class _Batch:
    """The sums of some queries while they grow."""

    def __init__(
        self, cargo: DeviceCargo, asked: Asked, chosen: NDArray[np.int64], own: NDArray[np.int64]
    ) -> None:
        torch, device = cargo.index.torch, cargo.index.device
        self.cargo, self.asked, self.chosen, self.torch = cargo, asked, chosen, torch
        self.own = torch.tensor(own, device=device)
        n, self.n_pairs = len(chosen), 0
        shape = (2 * n * cargo.n_actions, cargo.amount.shape[1])
        self.words = torch.zeros(shape, dtype=torch.int64, device=device)
        self.low = torch.full((n,), len(cargo.values), dtype=torch.int64, device=device)
        self.high = torch.full((n,), -1, dtype=torch.int64, device=device)

    def _widen(self, query: Tensor, row: Tensor) -> None:
        """Let the spans of queries hold the returns of rows."""
        level = self.cargo.level[row]
        self.low.scatter_reduce_(0, query, level, "amin")
        self.high.scatter_reduce_(0, query, level, "amax")

    def _add(self, query: Tensor, row: Tensor, later: Tensor | int) -> None:
        """Add rows to the words of queries: as first neighbours, or as others if `later` is 1."""
        cargo = self.cargo
        step = max(1, cargo.index.room // (16 * cargo.amount.shape[1]))
        cell = (later * len(self.chosen) + query) * cargo.n_actions + cargo.action[row]
        for i in range(0, len(row), step):
            self.words.index_add_(0, cell[i : i + step], cargo.amount[row[i : i + step]])

    def add_all(self) -> bool:
        """Add every neighbour; returns whether that was possible."""
        cargo = self.cargo
        for query, place in cargo.index.pairs(self.asked, self.chosen):
            row = cargo.index.row[place]
            self._widen(query, row)  # as in the engine, also by what is left out
            counts = cargo.episode[row] != self.own[query]
            self._add(query[counts], row[counts], 0)
            self.n_pairs = max(self.n_pairs, len(query))
        return True

    def add_first(self) -> bool:
        """Add the first neighbours; returns whether the pairs were few enough to be sorted."""
        cargo, torch, n = self.cargo, self.torch, len(self.cargo.position)
        keys = [self.own[:0]]
        for query, place in cargo.index.pairs(self.asked, self.chosen):
            row = cargo.index.row[place]
            counts = cargo.episode[row] != self.own[query]
            keys.append((query * n + cargo.position[row])[counts])
            self.n_pairs += len(keys[-1])
            if self.n_pairs > cargo.index.most_pairs and len(self.chosen) > 1:
                return False
        key = torch.sort(torch.cat(keys)).values
        del keys
        query = torch.div(key, n, rounding_mode="floor")
        row = cargo.sorted_rows[key - query * n]
        del key
        new = _changes(torch, query) | _changes(torch, cargo.episode[row])
        counts = new | _changes(torch, cargo.action[row])
        query, row, new = query[counts], row[counts], new[counts]
        visit = torch.cumsum(new, dim=0) - 1
        earliest = torch.full((int(new.sum()),), n, dtype=torch.int64, device=row.device)
        earliest.scatter_reduce_(0, visit, row, "amin")
        later = row != earliest[visit]
        self._add(query, row, later.to(torch.int64))
        self._widen(query[~later], row[~later])
        return True


def _changes(torch: Any, column: Tensor) -> Tensor:
    """bool (n,): whether an entry differs from the one before it; the first one does."""
    out = torch.ones(len(column), dtype=torch.bool, device=column.device)
    out[1:] = column[1:] != column[:-1]
    return out
