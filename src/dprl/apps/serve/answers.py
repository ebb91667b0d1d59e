"""States as JSON come in, answers as plain values go out; errors name the state and the feature.

A state is a row as the log had it (`dprl.apps.serve.rows`). A served policy speaks only inside what
it was trained on. It defers, and the answer says why, for a label it never saw, for a feature below
the smallest or above the largest value of the training log, and for a state with no training state
within the radius. (`policy.act` itself looks at the neighbours only.)

A rule that does not ask for a category speaks whatever its label is, as `policy.act` has it. Where
training did not have the label, the answer says so and is not in range.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.table import to_json_value
from dprl.apps.serve.rows import Column, Rows, StateError, short_of
from dprl.errors import PolicyError
from dprl.logs._categories import TRUTH
from dprl.logs._dates import on_day
from dprl.logs._encoding import FAR
from dprl.logs._gaps import is_gone
from dprl.policies._decisions import Decisions, Kind
from dprl.policies._explain import reason
from dprl.policies._protocol import DeferringPolicy
from dprl.policies._public import public_origin

__all__ = ["Answers", "StateError"]

UNSEEN = "This state was never seen in training."
ENDS = ("min", "max")


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of a policy to states given as JSON.

    Attributes:
        policy: The policy.
        cases: Whether explanations name the most similar training episodes.
    """

    policy: DeferringPolicy
    cases: bool = False

    def __post_init__(self) -> None:
        if self.features:
            ranges: Any = self.policy.provenance.get("ranges")
            good = isinstance(ranges, list) and len(ranges) == len(self.features)
            ends = (int, float) if self.rows.plain else (int, float, type(None))
            good = good and all(
                isinstance(r, list) and len(r) == 2 and all(type(v) in ends for v in r)
                for r in ranges
            )
            if not good:
                raise PolicyError(
                    "the policy does not say on which ranges of its features it was trained.",
                    do="Fit it again with this version of dprl, then serve it.",
                )

    @functools.cached_property
    def rows(self) -> Rows:
        """How states become what the policy takes."""
        return Rows(self.policy)

    @property
    def features(self) -> tuple[str, ...]:
        """The features of a state; empty where states are labels."""
        return self.policy.space.feature_names

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns that a state is made of, as they come; {} where it is one label."""
        return self.rows.columns

    @functools.cached_property
    def _by_rules(self) -> bool:
        """Whether the policy asks for no distance: rules, which take what is missing."""
        return getattr(self.policy.space, "levels", None) is not None

    @functools.cached_property
    def _ranges(self) -> dict[str, tuple[float | None, float | None]]:
        """Feature → its smallest and its largest value in training; None where it had none."""
        ranges = self.policy.provenance["ranges"] if self.features else ()
        return {n: (low, high) for n, (low, high) in zip(self.features, ranges, strict=True)}

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the policy."""
        return self.policy.digest()

    def warm(self) -> None:
        """Do once, at the start, what takes longer the first time."""
        if self.features:
            state = {name: self._middle(column) for name, column in self.columns.items()}
            self.act([state])
            self.act([state] * 200)
            self.explain(state)
        else:
            self.act(list(self.policy.space.states[:1]))
        _ = self.digest

    def _middle(self, column: Column) -> Any:
        """A value in the middle of what was trained on, as it may be asked about."""
        if column.labels:
            return True if column.kind == "truth" else column.labels[0]
        low, high = self._ranges[column.name]
        if low is None or high is None:
            return None
        return on_day((low + high) / 2) if column.kind == "date" else (low + high) / 2

    # -- asking ----------------------------------------------------------------------------------

    def act(self, states: list[Any]) -> list[dict[str, Any]]:
        """One answer per state."""
        return self.ask(states)[0]

    def ask(self, states: list[Any]) -> tuple[list[dict[str, Any]], NDArray[np.float64] | None]:
        """One answer per state, and the features, float64 (k, d), where states have features."""
        answers, x, _ = self._asked(states)
        return answers, x

    def _asked(
        self, states: list[Any]
    ) -> tuple[list[dict[str, Any]], NDArray[np.float64] | None, list[_Place]]:
        """As `ask`, and where each state lies; [] where states are labels."""
        if not self.features:
            labels = self.rows.labels(states)
            for i, label in enumerate(labels):
                self._check_label(label, i)
            here = self.policy.at(labels)
            return [self._answer(here, i, INSIDE) for i in range(len(states))], None, []
        x = self.rows.read(states)
        asked, inside = x, [False] * len(x)
        if not self._by_rules:  # those outside are not asked about: a distance may be too large
            low, high = np.array(self.policy.provenance["ranges"], np.float64).T
            asked = np.clip(x, low, high)
            inside = (asked == x).all(axis=1).tolist()
        places = [
            INSIDE if within else self._place(state, row)
            for within, state, row in zip(inside, states, x.tolist(), strict=True)
        ]
        here = self.policy.at(asked)
        return [self._answer(here, i, place) for i, place in enumerate(places)], x, places

    def _answer(self, here: Decisions, s: int, place: _Place) -> dict[str, Any]:
        """The answer at state number s of `here`, which lies at `place`."""
        outside = place.outside
        if not outside and not here.seen[s] and not self._by_rules:
            outside = here.terms.unseen if self.features else UNSEEN
        if outside:
            return {
                "action": None,
                "defer": True,
                "kind": "defer",
                "in_range": False,
                "reason": outside,
            }
        chosen = int(here.choice[s])
        return {
            "action": here.actions[chosen] if chosen >= 0 else None,
            "defer": chosen < 0,
            "kind": Kind(here.kind[s]).word,
            "in_range": not place.strange,
            "reason": f"{place.strange} {reason(here, s)}".strip(),
        }

    def explain(self, state: Any) -> dict[str, Any]:
        """The answer at one state with the evidence for it."""
        return self.ask_why(state)[0]

    def ask_why(self, state: Any) -> tuple[dict[str, Any], NDArray[np.float64] | None]:
        """The answer at one state with the evidence for it, and the features where it has any."""
        (answer,), x, places = self._asked([state])
        outside = places[0].outside if places else ""
        if outside or (not answer["in_range"] and not self._by_rules):
            return {"state": state, "episodes": 0, "value": None, "actions": [], "similar": [],
                    **answer}, x  # fmt: skip
        facts = self.policy.explain(state, cases=self.cases).to_dict()
        facts["state"] = facts["state"] if self.rows.plain else state
        facts.pop("suggested")
        return {**facts, **answer}, x

    # -- about it --------------------------------------------------------------------------------

    def about(self) -> dict[str, Any]:
        """What the policy is, what it needs, and where it comes from; nothing identifies people."""
        policy, certificate = self.policy, self.policy.certificate
        facts: dict[str, Any] = {
            "digest": self.digest,
            "kind": policy.KIND,
            "actions": list(policy.actions),
            "parameters": dict(policy.parameters),
            "provenance": public_origin(policy.provenance),
            "certificate": None
            if certificate is None
            else {
                "claim": str(certificate.claim),
                "grade": certificate.grade,
                "delta": certificate.delta,
                "vacuous": bool(certificate.vacuous),
            },
        }
        if policy.stated:
            facts |= {"gain": policy.gain, "stated": policy.stated}
        if self.columns and not self.rows.plain:
            facts["columns"] = {
                name: list(column.labels) or None for name, column in self.columns.items()
            }
        if self.features:
            facts["features"] = [
                {"name": name, **self._extent(column, name)}
                for column in self.columns.values()
                for name in column.features
            ]
        else:
            facts["summary"] = policy.summary()
        described: dict[str, Any] = to_json_value(facts)
        return described

    def _extent(self, column: Column, feature: str) -> dict[str, Any]:
        """What training had of a feature: its labels, or the smallest and the largest value."""
        if column.labels and column.kind == "label" and feature == column.name:
            return {"labels": list(column.labels)}
        ends = self._ranges[feature]
        if column.kind == "date" and feature == column.name:
            return {k: v if v is None else on_day(v) for k, v in zip(ENDS, ends, strict=True)}
        return dict(zip(ENDS, ends, strict=True))

    # -- checking --------------------------------------------------------------------------------

    def _check_label(self, state: Any, index: int) -> None:
        """Refuse a label of another type than the policy's."""
        labels = self.policy.space.states
        kind = type(labels[0]) if labels else str
        if state is None and getattr(self.policy.space, "gone", None) is not None:
            return  # which has a label of its own
        if type(state) is not kind:
            what = {str: "text", int: "whole numbers", bool: "true or false"}[kind]
            raise StateError(
                f"this policy's states are {what}; got {short_of(state)}.",
                index,
                do=f"Its states look like {', '.join(map(repr, labels[:3]))}.",
            )

    def _place(self, state: Mapping[str, Any], x: Sequence[float]) -> _Place:
        """Where a state lies: inside what was trained on, outside of it, or strange in a label."""
        strange = ""
        ready = dict(zip(self.features, x, strict=True))
        for column in self.columns.values():
            gone = column.name in state and is_gone(state[column.name])
            for feature in column.features:
                words = self._unlike(column, feature, ready[feature], gone)
                numeric = column.kind in ("number", "date") and not gone
                if words and (numeric or not self._by_rules):
                    return _Place(words)
                strange = strange or words
        return _Place("", strange)

    def _unlike(self, column: Column, feature: str, value: float, gone: bool) -> str:
        """What training did not have of one feature of a state; '' where it had it."""
        apart = value in (FAR, np.inf)
        if gone and (self._never_missing(column.name) if value != value else apart):
            return f"{column.name} is missing, and never was in training."
        if value != value:  # which rules take as it is
            return ""
        if column.kind in ("label", "truth") and apart:
            return f"{column.name} has a label that training did not have."
        if column.kind == "label" and feature == column.name:
            return ""  # its code is the place of a label, and no number
        return self._beyond(column, feature, value)

    def _never_missing(self, name: str) -> bool:
        """Whether it is on record that training had no gap in this column."""
        encoding = getattr(self.policy.space, "encoding", None)
        fill = None if encoding is None else encoding.fills.get(name)
        return fill is not None and fill.share == 0

    def _beyond(self, column: Column, feature: str, value: float) -> str:
        """Why a value lies beyond those of training; '' where it does not."""
        low, high = self._ranges[feature]
        if low is None or high is None:
            return f"{feature} was missing everywhere in training."
        if low <= value <= high:
            return ""
        if column.kind == "truth" and feature == column.name and value in (0, 1):
            return f"{feature} never was {TRUTH[int(value)]} in training."
        side, end = ("below", low) if value < low else ("above", high)
        least = "smallest" if value < low else "largest"
        words = on_day if column.kind == "date" and feature == column.name else "{:g}".format
        value = FAR if value == np.inf else value  # as it was, before rules put it apart
        return f"{feature} = {words(value)} is {side} the {least} value in training, {words(end)}."


@dataclass(frozen=True)
class _Place:
    """Where a state lies.

    Attributes:
        outside: Why it lies outside of training, so that nothing is asked; '' where it does not.
        strange: What training did not have there, although the policy may answer; '' if nothing.
    """

    outside: str = ""
    strange: str = ""


INSIDE = _Place()
"""Inside of what was trained on."""
