"""The policy that is served, and how a new one takes its place.

A new file is read, checked and warmed while the old policy goes on answering; then the two are
exchanged in one step. A request is answered by one policy from its beginning to its end, and every
answer names the digest of the policy that gave it. A file that cannot be taken over changes
nothing: the old policy stays, and the reason is recorded.
"""

from __future__ import annotations

import bisect
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.apps.serve.answers import Answers
from dprl.apps.serve.approval import review_of
from dprl.apps.serve.openapi import description
from dprl.errors import PolicyError
from dprl.policies._load import deferring
from dprl.policies._protocol import DeferringPolicy

__all__ = ["Served", "successor"]

FEW = 16
"""Up to so many states are counted one by one, which is faster than by arrays."""


@dataclass(frozen=True, eq=False)
class Served:
    """A policy as it is served.

    Attributes:
        answers: Its answers.
        document: Its OpenAPI description.
        edges: Edges of the parts of each feature's training values; () where not on record.
        shares: Feature → share of each part in training.
    """

    answers: Answers
    document: dict[str, Any]
    edges: tuple[list[float], ...]
    shares: Mapping[str, list[float]]

    @classmethod
    def of(cls, policy: DeferringPolicy, cases: bool, token: bool, cds: bool = False) -> Served:
        """A policy made ready; `warm` is still to come."""
        answers = Answers(policy, cases)
        edges, shares = _training_parts(answers)
        return cls(answers, description(policy, token, cds), edges, shares)

    @property
    def digest(self) -> str:
        """Digest of the policy."""
        return self.answers.digest

    @property
    def review(self) -> dict[str, Any] | None:
        """The review that the policy comes from; None where nobody reviewed it."""
        return review_of(self.answers.policy)

    def parts(
        self, x: NDArray[np.float64] | None, answers: list[dict[str, Any]]
    ) -> list[tuple[str, int, int]]:
        """(feature, part, count) of the states that were answered within the training ranges."""
        if x is None or not self.edges:
            return []
        inside = x[[bool(a["in_range"]) for a in answers]]
        counted: list[tuple[str, int, int]] = []
        for name, edges, values in zip(self.answers.features, self.edges, inside.T, strict=True):
            if len(values) <= FEW:
                counted += [(name, bisect.bisect_left(edges, v) + 1, 1) for v in values.tolist()]
            else:
                counts = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)
                counted += [(name, part, n) for part, n in enumerate(counts.tolist(), 1) if n]
        return counted


def _training_parts(answers: Answers) -> tuple[tuple[list[float], ...], dict[str, list[float]]]:
    """The parts of each feature's training values, if the policy has them on record."""
    given = answers.policy.provenance.get("quantiles")
    names = answers.features
    if not isinstance(given, list) or len(given) != len(names):
        return (), {}
    try:
        edges = tuple([float(v) for v in part["edges"]] for part in given)
        shares = [[float(v) for v in part["shares"]] for part in given]
    except (KeyError, TypeError, ValueError):
        return (), {}
    if any(
        len(own) != len(ends) + 1 or any(b <= a for a, b in itertools.pairwise(ends))
        for own, ends in zip(shares, edges, strict=True)
    ):
        return (), {}
    return edges, dict(zip(names, shares, strict=True))


def successor(
    path: str | os.PathLike[str], now: Served, *, token: bool, cds: bool = False
) -> Served | None:
    """The policy that the file holds now, ready to take over; None where it is the same policy.

    Raises:
        PolicyError: The file holds no policy that can be served, or one that takes other states.
    """
    policy = deferring(Path(path))
    if policy.digest() == now.digest:
        return None
    new = Served.of(policy, now.answers.cases, token, cds)
    asked, offered = _states(now.answers), _states(new.answers)
    if asked != offered:
        raise PolicyError(
            "the new policy takes other states than the one that is served.",
            f"{_short(asked)} now, {_short(offered)} in the file",
            "Those who ask would be refused: start another server for it.",
        )
    new.answers.warm()
    return new


def _states(answers: Answers) -> tuple[str, ...]:
    """What a state is made of, as far as whoever asks must know it."""
    if answers.columns or answers.features:
        return tuple(answers.columns or answers.features)
    labels = answers.policy.space.states
    return (f"labels of type {type(labels[0]).__name__ if labels else 'str'}",)


def _short(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
