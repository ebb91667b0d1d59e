"""States as JSON come in, answers as plain values go out; errors name the state and the feature.

A state is a row as the log had it (`dprl.apps.serve.answers`). A served policy speaks only inside
what it was trained on. It defers, and the answer says why, for a label it never saw, for a feature
below the smallest or above the largest value of the training log, and for a state with no training
state within the radius. (`policy.act` itself looks at the neighbours only.)

A rule that does not ask for a category speaks whatever its label is, as `policy.act` has it. Where
training did not have the label, the answer says so and is not in range.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from dprl._core.arrays import Floats
from dprl._core.table import to_json_value
from dprl.errors import DprlError, LogError, PolicyError
from dprl.logs.encoding.categories import TRUTH, Levels
from dprl.logs.encoding.encoder import FAR, Encoding
from dprl.logs.encoding.gaps import GONE, is_gone
from dprl.logs.reading.dates import on_day
from dprl.policies.base import public_origin
from dprl.policies.explain import alike, reason, silent_words
from dprl.policies.protocol import Avoid, Decisions, DeferringPolicy, Kind

# --- Rows as they come: what a state is made of, and how rows in JSON become what a policy takes
#
# A row holds numbers, labels, truth values and dates, as the log had them, and null where a value
# is missing. Where a policy says nothing about a missing value, null is refused. A label that
# training did not have is no error: it becomes what `policy.act` makes of it.

ValueKind: TypeAlias = Literal["number", "label", "truth", "date"]
DATE = "Write it as 2024-02-01."
LARGE = 10**30
"""No label that is a number is as large as this."""


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


@dataclass(frozen=True)
class Column:
    """One column of a row.

    Attributes:
        name: Its name.
        kind: What it holds: numbers, labels, truth values or dates.
        labels: The labels that training had; () for numbers and dates.
        nullable: Whether null is answered.
        features: The features that it becomes.
    """

    name: str
    kind: ValueKind
    labels: tuple[str, ...]
    nullable: bool
    features: tuple[str, ...]


def columns_of(policy: DeferringPolicy) -> tuple[Column, ...]:
    """The columns that a state of this policy is made of; () where it is one label."""
    space = policy.space
    encoding: Encoding | None = getattr(space, "encoding", None)
    levels: Levels | None = getattr(space, "levels", None)
    takes_gaps = levels is not None
    if encoding is None:
        own = levels or (None,) * len(space.feature_names)
        return tuple(
            Column(name, _kind(labels), labels or (), takes_gaps, (name,))
            for name, labels in zip(space.feature_names, own, strict=True)
        )
    columns = []
    for name, labels in encoding.columns.items():
        if labels is None:
            nullable = takes_gaps or encoding.filling(name) is not None
        else:
            nullable = encoding.flagged(name) or (takes_gaps and encoding.how == "plain")
        kind = "date" if name in encoding.days else _kind(labels)
        shown = tuple(label for label in labels or () if label != GONE or not nullable)
        made = () if encoding.how == "joined" else tuple(encoding.indicators(name))
        columns.append(Column(name, kind, shown, nullable, made))
    return tuple(columns)


def _kind(labels: tuple[str, ...] | None) -> ValueKind:
    if labels is None:
        return "number"
    return "truth" if set(TRUTH) <= set(labels) <= {*TRUTH, GONE} else "label"


class Rows:
    """The rows that a policy takes.

    Args:
        policy: The policy.

    Attributes:
        columns: Name → column; {} where a state is one label.
        features: The features that the columns become; () where they become one label.
    """

    def __init__(self, policy: DeferringPolicy) -> None:
        self.space: Any = policy.space
        self.columns = {column.name: column for column in columns_of(policy)}
        self.features: tuple[str, ...] = tuple(self.space.feature_names)
        self.encoding: Encoding | None = getattr(self.space, "encoding", None)

    @functools.cached_property
    def plain(self) -> bool:
        """Whether a row is numbers alone, none of which may be missing."""
        return self.encoding is None and getattr(self.space, "levels", None) is None

    def labels(self, states: Sequence[Any]) -> list[Any]:
        """States of a policy over labels: labels stay, and rows of columns become labels."""
        made = list(states)
        for i, state in enumerate(states):
            if self.columns and isinstance(state, Mapping):
                self._check_columns(state, i)
                made[i] = self.encoding.states(state)  # type: ignore[union-attr]
        return made

    def read(self, states: Sequence[Any]) -> Floats:
        """The features, float64 (k, d); a StateError names the first state that is wrong.

        A missing value that the policy takes as such is NaN; a label that a policy over rules does
        not have is infinite.
        """
        sound = self._sound(states)
        if sound is not None:
            with contextlib.suppress(PolicyError, LogError):
                x: Floats = self.space.read(sound)[0]
                return x
        raw = [self._is_raw(state, i) for i, state in enumerate(states)]
        for i, state in enumerate(states):
            if raw[i]:
                self._check_columns(state, i)
            else:
                self._check_features(state, i)
        if self.plain:
            names = self.features
            return np.array([[float(s[n]) for n in names] for s in states], np.float64)
        try:
            if len(set(raw)) == 1:
                return self._made(states, raw[0])
        except (PolicyError, LogError) as error:
            if len(states) == 1:
                raise StateError(error.what, 0, _named(error, self.columns), error.do) from error
        return self._one_by_one(states, raw)

    def _sound(self, states: Sequence[Any]) -> dict[str, Any] | None:
        """The columns of states of which none is wrong; None where they must be looked at singly.

        A column is looked at as a whole, which is faster; what is wrong is said by the slower way.
        """
        if not all(type(s) is dict and s.keys() == self.columns.keys() for s in states):
            return None
        columns: dict[str, Any] = {}
        for name, column in self.columns.items():
            values = [s[name] for s in states]
            kinds = set(map(type, values))
            if column.kind == "number" and kinds <= {float, int}:
                try:
                    columns[name] = np.array(values, np.float64)
                except OverflowError:
                    return None
                if not np.isfinite(columns[name]).all():
                    return None
            elif column.kind in ("label", "truth") and kinds == {str} and "" not in values:
                columns[name] = values
            else:
                return None
        return columns

    def _one_by_one(self, states: Sequence[Any], raw: Sequence[bool]) -> Floats:
        rows = []
        for i, state in enumerate(states):
            try:
                rows.append(self._made([state], raw[i]))
            except (PolicyError, LogError) as error:
                raise StateError(error.what, i, _named(error, self.columns), error.do) from error
        made: Floats = np.concatenate(rows).view(type(rows[0]))
        return made

    def _made(self, states: Sequence[Any], raw: bool) -> Floats:
        """States that are checked, as features."""
        names = self.columns if raw else self.features
        x: Floats = self.space.read({n: [s[n] for s in states] for n in names})[0]
        return x

    # -- checking --------------------------------------------------------------------------------

    def _is_raw(self, state: Any, index: int) -> bool:
        """Whether a state is made of columns as they come, not of features that are ready."""
        if not isinstance(state, Mapping):
            kind = "features" if self.encoding is None else "its columns"
            raise StateError(
                f"a state is an object of {kind}; got {short_of(state)}.", index, do=self._hint
            )
        return set(self.features) == set(self.columns) or set(state) != set(self.features)

    @property
    def _hint(self) -> str:
        head = "Features" if self.encoding is None else "Columns"
        return f"{head}: {', '.join(self.columns)}."

    def _check_columns(self, state: Mapping[str, Any], index: int) -> None:
        """Refuse a state that is not made of exactly these columns, each with a value."""
        ours, one = (
            ("no feature of this policy", "feature")
            if self.encoding is None
            else ("no column of a state", "column")
        )
        for name in state:
            if name not in self.columns:
                raise StateError(f"{name!r:.80} is {ours}.", index, name, self._hint)
        for name, column in self.columns.items():
            if name not in state:
                raise StateError(f"a state needs the {one} {name!r}.", index, name, self._hint)
            value = state[name]
            if value is None or (value == "" and not self.plain):
                if not column.nullable:
                    needed = "must be a number; it is" if column.kind == "number" else "is"
                    raise StateError(
                        f"{name!r} {needed} missing, and the policy says nothing about that.",
                        index, name,
                        f"Give its value, or ask nothing about this state. {self._hint}",
                    )  # fmt: skip
            elif column.kind == "number":
                _check_number(value, index, name)
            elif column.kind == "date":
                self._check_day(value, index, name)
            else:
                _check_label(value, index, column)

    def _check_features(self, state: Mapping[str, Any], index: int) -> None:
        """Refuse features that are ready (indicators, say) and are no numbers."""
        for name in self.features:
            _check_number(state[name], index, name)

    def _check_day(self, value: Any, index: int, name: str) -> None:
        """Refuse what is no date; dates are text, as in the log or ISO."""
        if not isinstance(value, str):
            raise StateError(
                f"{name!r} must be a date, as text; got {short_of(value)}.", index, name, DATE
            )
        try:
            self.encoding.day(value, name)  # type: ignore[union-attr]
        except LogError as error:
            raise StateError(error.what, index, name, DATE) from None


def _check_number(value: Any, index: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise StateError(f"{name!r} must be a number; got {short_of(value)}.", index, name)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise StateError(f"{name!r} must be a finite number; got {short_of(value)}.", index, name)


def _check_label(value: Any, index: int, column: Column) -> None:
    number = isinstance(value, int | float) and abs(value) < LARGE
    if not isinstance(value, str) and not (number and value == int(value)):
        seen = ", ".join(map(repr, column.labels[:5]))
        raise StateError(
            f"{column.name!r} must be a label; got {short_of(value)}.", index, column.name,
            f"Its labels in training: {seen}{', …' * (len(column.labels) > 5)}.",
        )  # fmt: skip


def _named(error: DprlError, names: Mapping[str, Any]) -> str | None:
    """The column that an error is about, where its text names one."""
    return next((name for name in names if repr(name) in error.what), None)


def short_of(value: Any) -> str:
    """A value as text for an error message, cut where it is long."""
    if isinstance(value, Mapping | list):
        return "an object" if isinstance(value, Mapping) else "an array"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGE:
        return "a number of very many digits"
    return repr(value)[:60]


# --- States as JSON come in, answers as plain values go out; errors name the state and the
# feature

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

    def ask(self, states: list[Any]) -> tuple[list[dict[str, Any]], Floats | None]:
        """One answer per state, and the features, float64 (k, d), where states have features."""
        answers, x, _ = self._asked(states)
        return answers, x

    def _asked(self, states: list[Any]) -> tuple[list[dict[str, Any]], Floats | None, list[_Place]]:
        """As `ask`, and where each state lies; [] where states are labels."""
        if not self.features:
            labels = self.rows.labels(states)
            for i, label in enumerate(labels):
                self._check_label(label, i)
            return self._answers(self.policy.at(labels), [INSIDE] * len(states)), None, []
        x = self.rows.read(states)
        low, high = np.array(self.policy.provenance["ranges"], np.float64).T
        inside = ((low <= x) & (x <= high) & (x != FAR)).all(axis=1)
        places = [INSIDE] * len(x)
        for i in np.flatnonzero(~inside).tolist():
            places[i] = self._place(states[i], x[i].tolist())
        # Those outside are not asked about, but by rules: a distance may be too large.
        here = self.policy.at(x if self._by_rules else np.clip(x, low, high))
        return self._answers(here, places), x, places

    def _answers(self, here: Decisions, places: list[_Place]) -> list[dict[str, Any]]:
        """The answers at these states; those that are alike throughout are made once."""
        made: dict[tuple[int, _Place], dict[str, Any]] = {}
        silent = silent_words(here, np.flatnonzero(~here.speaks)) if here.reasons is None else {}
        answers = []
        for s, place in zip(alike(here).tolist(), places, strict=True):
            answer = made.get((s, place))
            if answer is None:
                answer = made[s, place] = self._answer(here, s, place, silent)
            answers.append(answer)
        return answers

    def _answer(
        self, here: Decisions, s: int, place: _Place, silent: Mapping[int, str]
    ) -> dict[str, Any]:
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
        chosen, warned = int(here.choice[s]), int(here.avoid[s])
        called, named = here.terms.called, None
        if called and here.speaks[s]:
            label = here.actions[max(chosen, warned)]
            named = called.act(label if chosen >= 0 else Avoid(label))
        return {
            "action": here.actions[chosen] if chosen >= 0 else None,
            **({"avoid": here.actions[warned]} if warned >= 0 else {}),
            **({"called": str(named)} if named is not None else {}),
            "defer": not here.speaks[s],
            "kind": Kind(here.kind[s]).word,
            "in_range": not place.strange,
            "reason": f"{place.strange} {reason(here, s, silent)}".strip(),
        }

    def explain(self, state: Any) -> dict[str, Any]:
        """The answer at one state with the evidence for it."""
        return self.ask_why(state)[0]

    def ask_why(self, state: Any) -> tuple[dict[str, Any], Floats | None]:
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
            gain = getattr(policy, "gain_shown", policy.gain)
            facts |= {"gain": gain, "stated": policy.stated}
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
