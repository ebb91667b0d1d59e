"""Remembering: an engine that keeps its answers and gives them again to the same question.

Settings that differ only in n_min ask about the same places and the same radius. A question is
identified by its content, so it does not matter which object asks again. Answers for another radius
are dropped, and all of them after `forget`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Visits
from dprl.evidence._evidence import Evidence
from dprl.evidence.neighbors.engine import Engine

__all__ = ["Remembering"]


@dataclass(eq=False)
class Remembering(Engine):
    """An engine that keeps its answers in memory; made by `Remembering.of`."""

    _answers: dict[Any, Evidence] | None = field(default_factory=dict, repr=False)
    _radius: float = -1.0

    @classmethod
    def of(cls, engine: Engine) -> Self:
        """The same engine, with a memory of answers."""
        return cls(
            engine.points, engine.actions, engine.method, engine.sketch, engine.blocks,
            engine.boxes, engine.device, engine.shared,
        )  # fmt: skip

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
