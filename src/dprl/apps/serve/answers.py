"""States as JSON come in, answers as plain values go out; errors name the state and the feature.

A served policy speaks only inside what it was trained on. It defers, and the answer says why, for a
label it never saw, for a feature below the smallest or above the largest value of the training log,
and for a state with no training state within the radius. (`policy.act` itself looks at the
neighbours only.)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.table import to_json_value
from dprl.errors import LogError, PolicyError
from dprl.logs._dates import on_day
from dprl.logs._encoding import FAR
from dprl.policies._decisions import Decisions, Kind
from dprl.policies._explain import reason
from dprl.policies._protocol import DeferringPolicy
from dprl.policies._public import public_origin

__all__ = ["Answers", "StateError"]

UNSEEN = "This state was never seen in training."


class StateError(PolicyError):
    """A state that cannot be asked about.

    Attributes:
        index: Place of the state in the request, from 0.
        feature: Name of the feature that is wrong, or None.
    """

    def __init__(self, what: str, index: int, feature: str | None = None, do: str = "") -> None:
        at = f"states[{index}]" + ("" if feature is None else f".{feature}")
        super().__init__(what, at, do)
        self.index, self.feature = index, feature

    def __reduce__(self) -> Any:
        return type(self), (self.what, self.index, self.feature, self.do)


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
        if getattr(self.policy.space, "levels", None):
            raise PolicyError(
                "this policy asks for labels of categories, which the service does not take.",
                do="Use policy.to_sql(), policy.to_python() or dprl act.",
            )
        if self.features:
            ranges: Any = self.policy.provenance.get("ranges")
            good = isinstance(ranges, list) and len(ranges) == len(self.features)
            good = good and all(
                isinstance(r, list) and len(r) == 2 and all(type(v) in (int, float) for v in r)
                for r in ranges
            )
            if not good:
                raise PolicyError(
                    "the policy does not say on which ranges of its features it was trained.",
                    do="Fit it again with this version of dprl, then serve it.",
                )

    @property
    def features(self) -> tuple[str, ...]:
        """The features of a state; empty where states are labels."""
        return self.policy.space.feature_names

    @property
    def columns(self) -> Mapping[str, tuple[str, ...] | None]:
        """Columns that a state is made of before it is encoded → labels; {} where it is not."""
        encoding = getattr(self.policy.space, "encoding", None)
        return {} if encoding is None else encoding.columns

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the policy."""
        return self.policy.digest()

    def warm(self) -> None:
        """Do once, at the start, what takes longer the first time."""
        if self.features:
            state = self._middle()
            self.act([state])
            self.act([state] * 200)
            self.explain(state)
        else:
            self.act(list(self.policy.space.states[:1]))
        _ = self.digest

    def _middle(self) -> dict[str, Any]:
        """A state in the middle of what was trained on, as it may be asked about."""
        ends = zip(self.features, self.policy.provenance["ranges"], strict=True)
        state: dict[str, Any] = {name: (low + high) / 2 for name, (low, high) in ends}
        if set(self.features) == set(self.columns):  # columns as they come: no number is ready
            days = self.policy.space.encoding.days  # type: ignore[union-attr]
            state |= {name: True for name, labels in self.columns.items() if labels is not None}
            state |= {name: on_day(state[name]) for name in days}
        return state

    # -- asking ----------------------------------------------------------------------------------

    def act(self, states: list[Any]) -> list[dict[str, Any]]:
        """One answer per state."""
        return self.ask(states)[0]

    def ask(self, states: list[Any]) -> tuple[list[dict[str, Any]], NDArray[np.float64] | None]:
        """One answer per state, and the features, float64 (k, d), where states have features."""
        if self.columns:
            states = self._ready(states)
        if not self.features:
            for i, state in enumerate(states):
                self._check_label(state, i)
            here = self.policy.at(states)
            return [self._answer(here, i, "") for i in range(len(states))], None
        x = self._features(states)
        outside = [self._outside(row) for row in x]
        low, high = np.array(self.policy.provenance["ranges"], np.float64).T
        here = self.policy.at(np.clip(x, low, high))  # those outside are not asked about
        return [self._answer(here, i, why) for i, why in enumerate(outside)], x

    def _answer(self, here: Decisions, s: int, outside: str) -> dict[str, Any]:
        """The answer at state number s of `here`; `outside` says why it is out of range."""
        if not outside and not here.seen[s]:
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
            "in_range": True,
            "reason": reason(here, s),
        }

    def explain(self, state: Any) -> dict[str, Any]:
        """The answer at one state with the evidence for it."""
        return self.ask_why(state)[0]

    def ask_why(self, state: Any) -> tuple[dict[str, Any], NDArray[np.float64] | None]:
        """The answer at one state with the evidence for it, and the features where it has any."""
        (answer,), x = self.ask([state])
        if not answer["in_range"]:
            return {"state": state, "episodes": 0, "value": None, "actions": [], "similar": [],
                    **answer}, x  # fmt: skip
        facts = self.policy.explain(state, cases=self.cases).to_dict()
        facts["state"] = state if self.columns else facts["state"]
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
        if self.columns:
            facts["columns"] = {
                name: None if labels is None else list(labels)
                for name, labels in self.columns.items()
            }
        if self.features:
            ranges = policy.provenance["ranges"]
            facts["features"] = [
                {"name": name, "min": low, "max": high}
                for name, (low, high) in zip(self.features, ranges, strict=True)
            ]
        else:
            facts["summary"] = policy.summary()
        described: dict[str, Any] = to_json_value(facts)
        return described

    def _ready(self, states: list[Any]) -> list[Any]:
        """States made of columns as the policy takes them; those that are ready stay as they are.

        A StateError names the first state that is wrong.
        """
        made = []
        for i, state in enumerate(states):
            if not isinstance(state, Mapping):
                if self.features:
                    raise StateError(
                        f"a state is an object of its columns; got {_short(state)}.", i,
                        do=f"Columns: {', '.join(self.columns)}.",
                    )  # fmt: skip
                made.append(state)
                continue
            if set(state) != set(self.features) or set(self.features) == set(self.columns):
                self._check_columns(state, i)
            made.append(self.policy.space.encoding.states(state))  # type: ignore[union-attr]
        return made

    def _check_columns(self, state: Mapping[str, Any], index: int) -> None:
        """Refuse a state that is not made of the columns of the log, each with a value."""
        hint = f"Columns: {', '.join(self.columns)}."
        for name in state:
            if name not in self.columns:
                raise StateError(f"{name!r:.80} is no column of a state.", index, name, hint)
        for name, labels in self.columns.items():
            if name not in state:
                raise StateError(f"a state needs the column {name!r}.", index, name, hint)
            if state[name] is None or state[name] == "":
                if name in self.policy.space.encoding.fills:  # type: ignore[union-attr]
                    continue
                raise StateError(f"{name!r} is missing.", index, name, hint)
            if name in self.policy.space.encoding.days:  # type: ignore[union-attr]
                self._check_day(state[name], index, name)
            elif labels is None:
                _number(state[name], index, name)
            elif not isinstance(state[name], str | int | bool):
                raise StateError(
                    f"{name!r} must be a label; got {_short(state[name])}.", index, name
                )

    def _check_day(self, value: Any, index: int, name: str) -> None:
        """Refuse what is no date; dates are text, as in the log or ISO."""
        if not isinstance(value, str):
            raise StateError(
                f"{name!r} must be a date, as text; got {_short(value)}.", index, name,
                "Write it as 2024-02-01.",
            )  # fmt: skip
        try:
            self.policy.space.encoding.day(value, name)  # type: ignore[union-attr]
        except LogError as error:
            raise StateError(error.what, index, name, "Write it as 2024-02-01.") from None

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
                f"this policy's states are {what}; got {_short(state)}.",
                index,
                do=f"Its states look like {', '.join(map(repr, labels[:3]))}.",
            )

    def _features(self, states: list[Any]) -> NDArray[np.float64]:
        """The features, float64 (k, d); a StateError names the first state that is wrong."""
        names = self.features
        hint = f"Features: {', '.join(names)}."
        x = np.empty((len(states), len(names)))
        for i, state in enumerate(states):
            if not isinstance(state, Mapping):
                raise StateError(
                    f"a state is an object of features; got {_short(state)}.", i, do=hint
                )
            for name in state:
                if name not in names:
                    raise StateError(f"{name!r:.80} is no feature of this policy.", i, name, hint)
            for j, name in enumerate(names):
                if name not in state:
                    raise StateError(f"a state needs the feature {name!r}.", i, name, hint)
                x[i, j] = _number(state[name], i, name)
        return x

    def _outside(self, x: NDArray[np.float64]) -> str:
        """Why a state lies outside the training log; '' where it does not."""
        ranges = self.policy.provenance["ranges"]
        for name, value, (low, high) in zip(self.features, x.tolist(), ranges, strict=True):
            if value == FAR and self.columns.get(name, ()) is None:
                return f"{name} is missing, and never was in training."
            if value == FAR and self.columns:
                return f"{name.partition('=')[0]} has a label that training did not have."
            if not low <= value <= high:
                side, end = ("below", low) if value < low else ("above", high)
                least = "smallest" if value < low else "largest"
                here, edge = f"{value:g}", f"{end:g}"
                if self.columns and name in self.policy.space.encoding.days:  # type: ignore[union-attr]
                    here, edge = on_day(value), on_day(end)
                return f"{name} = {here} is {side} the {least} value in training, {edge}."
        return ""


def _number(value: Any, index: int, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise StateError(f"{name!r} must be a number; got {_short(value)}.", index, name)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise StateError(f"{name!r} must be a finite number; got {_short(value)}.", index, name)
    return number


def _short(value: Any) -> str:
    """A value as text for an error message, cut where it is long."""
    if isinstance(value, Mapping | list):
        return "an object" if isinstance(value, Mapping) else "an array"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**30:
        return "a number of very many digits"
    return repr(value)[:60]
