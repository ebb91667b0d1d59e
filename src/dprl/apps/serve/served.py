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
from dprl.logs._encoding import FAR
from dprl.logs._gaps import GONE
from dprl.policies._load import deferring
from dprl.policies._protocol import DeferringPolicy

__all__ = ["Served", "successor"]

FEW = 16
"""Up to so many states are counted one by one, which is faster than by arrays."""
UNSEEN = "unseen"
"""The part of labels that training did not have."""


@dataclass(frozen=True, eq=False)
class Served:
    """A policy as it is served.

    Attributes:
        answers: Its answers.
        document: Its OpenAPI description.
        edges: Edges of the parts of each feature's training values; () where not on record.
        shares: Feature → part → its share in training.
        cds: Id of the service of CDS Hooks; '' where there is none.
    """

    answers: Answers
    document: dict[str, Any]
    edges: tuple[list[float], ...]
    shares: Mapping[str, Mapping[str, float]]
    cds: str = ""

    @classmethod
    def of(cls, policy: DeferringPolicy, cases: bool, token: bool, cds: str = "") -> Served:
        """A policy made ready; `warm` is still to come."""
        answers = Answers(policy, cases)
        edges, shares = _training_parts(answers)
        return cls(answers, description(policy, token, cds), edges, shares, cds)

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
    ) -> list[tuple[str, str, int]]:
        """(feature, part, count) of the states that were answered within the training ranges.

        A part is a number, from 1, or "missing"; a label that training did not have is "unseen",
        whatever else the state holds.
        """
        if x is None:
            return []
        counted = self._unseen(x)
        if not self.edges:
            return counted
        inside = np.asarray(x)[[bool(answer["in_range"]) for answer in answers]]
        for name, edges, column in zip(self.answers.features, self.edges, inside.T, strict=True):
            values = column[~np.isnan(column)]
            if len(values) < len(column):
                counted.append((name, GONE, len(column) - len(values)))
            if len(values) <= FEW:
                parts = [str(bisect.bisect_left(edges, v) + 1) for v in values.tolist()]
                counted += [(name, part, 1) for part in parts]
            else:
                counts = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)
                counted += [(name, str(part), n) for part, n in enumerate(counts.tolist(), 1) if n]
        return counted

    def _unseen(self, x: NDArray[np.float64]) -> list[tuple[str, str, int]]:
        """(column, UNSEEN, count) of the states with a label that training did not have."""
        counted = []
        place = {name: j for j, name in enumerate(self.answers.features)}
        for column in self.answers.columns.values():
            if column.labels:
                own = np.asarray(x)[:, [place[name] for name in column.features]]
                number = int(((own == FAR) | np.isinf(own)).any(axis=1).sum())
                counted += [(column.name, UNSEEN, number)] if number else []
        return counted


def _training_parts(
    answers: Answers,
) -> tuple[tuple[list[float], ...], dict[str, dict[str, float]]]:
    """The parts of each feature's training values, if the policy has them on record."""
    given = answers.policy.provenance.get("quantiles")
    names = answers.features
    if not isinstance(given, list) or len(given) != len(names):
        return (), {}
    try:
        edges = tuple([float(v) for v in part["edges"]] for part in given)
        shares = [[float(v) for v in part["shares"]] for part in given]
        gone = [float(part.get("missing", 0.0)) for part in given]
    except (AttributeError, KeyError, TypeError, ValueError):
        return (), {}
    if any(
        len(own) != len(ends) + 1 or any(b <= a for a, b in itertools.pairwise(ends))
        for own, ends in zip(shares, edges, strict=True)
    ):
        return (), {}
    named = {}
    takes_gaps = getattr(answers.policy.space, "levels", None) is not None
    for name, own, missing in zip(names, shares, gone, strict=True):
        named[name] = {str(i): share for i, share in enumerate(own, 1)}
        if takes_gaps:  # parts that may be counted, though training had none
            named[name] |= {GONE: missing}
            named[name] |= {UNSEEN: 0.0} if answers.columns[name].labels else {}
    return edges, named


def successor(path: str | os.PathLike[str], now: Served, *, token: bool) -> Served | None:
    """The policy that the file holds now, ready to take over; None where it is the same policy.

    Raises:
        PolicyError: The file holds no policy that can be served, or one that takes other states.
    """
    policy = deferring(Path(path))
    if policy.digest() == now.digest:
        return None
    new = Served.of(policy, now.answers.cases, token, now.cds)
    _refuse_other_states(now.answers, new.answers)
    new.answers.warm()
    return new


def _refuse_other_states(now: Answers, new: Answers) -> None:
    """Refuse a policy that would refuse states which are answered now."""
    do = "Those who ask would be refused: start another server for it."
    asked, offered = _states(now), _states(new)
    if asked != offered:
        raise PolicyError(
            "the new policy takes other states than the one that is served.",
            f"{_short(asked)} now, {_short(offered)} in the file",
            do,
        )
    for name, column in now.columns.items():
        if column.nullable and not new.columns[name].nullable:
            raise PolicyError(
                f"the new policy refuses states in which {name!r} is missing.",
                "the one that is served answers them",
                do,
            )
    gone = [getattr(answers.policy.space, "gone", None) is not None for answers in (now, new)]
    if gone == [True, False]:
        raise PolicyError(
            "the new policy refuses a missing state.", "the one that is served answers it", do
        )


def _states(answers: Answers) -> tuple[str, ...]:
    """What a state is made of, as far as whoever asks must know it."""
    if answers.columns:
        kinds = {"label": " (labels)", "truth": " (true or false)", "date": " (dates)"}
        return tuple(f"{c.name}{kinds.get(c.kind, '')}" for c in answers.columns.values())
    labels = answers.policy.space.states
    return (f"labels of type {type(labels[0]).__name__ if labels else 'str'}",)


def _short(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
