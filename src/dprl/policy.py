"""Policy: what is deployed. It names an action where the log can speak, and DEFER elsewhere."""

from __future__ import annotations

import enum
import functools
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl import archive
from dprl.errors import PolicyError
from dprl.explanation import Explanation, change_rows, explain_state
from dprl.log import Facts, Label
from dprl.table import Table, plain

__all__ = ["DEFER", "Answer", "Defer", "Policy", "load"]


class Defer(enum.Enum):
    """The answer of a policy that has nothing to add: do what you would have done."""

    DEFER = "DEFER"

    def __repr__(self) -> str:
        return "DEFER"

    __str__ = __repr__


DEFER: Final = Defer.DEFER
Answer: TypeAlias = Label | Defer


@dataclass(frozen=True, eq=False)
class Policy:
    """A deferring policy over labelled states; immutable.

    Attributes:
        states: State labels, S of them.
        actions: Action labels, A of them.
        choice: int32 (S,), the chosen action's code, -1 for DEFER.
        allowed: bool (S, A), the pairs that passed the rule (Eq. 1).
        steps: int64 (S,), rows of the training log in each state.
        n: int64 (S, A), n(s,a): trajectories that contain the pair.
        m: int64 (S, A), trajectories that took a at their first visit of s.
        Q: float64 (S, A), Q̂(s,a); NaN where n = 0.
        V: float64 (S,), V̂(s); NaN where s was never visited.
        took_mean: float64 (S, A), mean return of first visits that took a.
        took_variance: float64 (S, A), and its sample variance.
        others_mean: float64 (S, A), mean return of first visits that did otherwise.
        others_variance: float64 (S, A), and its sample variance.
        planned: float64 (S, A), value of taking a now and following the plan after; NaN if not
            allowed. Equal to Q̂ where the learner did not plan.
        parameters: The learner and its settings.
        provenance: Digest and size of the training log, version of dprl.
    """

    states: tuple[Label, ...]
    actions: tuple[Label, ...]
    choice: NDArray[np.int32]
    allowed: NDArray[np.bool_]
    steps: NDArray[np.int64]
    n: NDArray[np.int64]
    m: NDArray[np.int64]
    Q: NDArray[np.float64]
    V: NDArray[np.float64]
    took_mean: NDArray[np.float64]
    took_variance: NDArray[np.float64]
    others_mean: NDArray[np.float64]
    others_variance: NDArray[np.float64]
    planned: NDArray[np.float64]
    parameters: Mapping[str, Any]
    provenance: Mapping[str, Any]

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value = value.view()
                value.setflags(write=False)
            elif isinstance(value, Mapping):
                value = Facts(value)
            object.__setattr__(self, field.name, value)
        _validate(self)

    # -- what it answers ---------------------------------------------------------------------

    def act(self, states: Label | Iterable[Label | None] | None) -> Any:
        """The action for each state, or DEFER.

        A sequence gives a list; a single label gives a single answer. A state that was never seen
        in training, or is missing, is deferred. A label of another type than the training labels
        is refused: it would defer for ever without a word.
        """
        if states is None or isinstance(states, str | int | float | np.generic):
            return self._answer(self._codes([states])[0])
        return [self._answer(code) for code in self._codes(states)]

    def _answer(self, code: int) -> Answer:
        chosen = self.choice[code] if code >= 0 else -1
        return self.actions[chosen] if chosen >= 0 else DEFER

    @functools.cached_property
    def _index(self) -> dict[Label, int]:
        return {label: i for i, label in enumerate(self.states)}

    def _codes(self, states: Iterable[Any]) -> list[int]:
        if isinstance(states, str | Mapping) or hasattr(states, "columns"):
            raise PolicyError(
                f"states must be a list or a column of labels; got a {type(states).__name__}.",
                do="Pass one column: table['stage'], not the table.",
            )
        return [self._code(state) for state in states]

    def _code(self, state: Any) -> int:
        """The code of one label; -1 where it is missing or was never seen."""
        if _missing(state):
            return -1
        text = bool(self.states) and isinstance(self.states[0], str)
        whole = isinstance(state, int | np.integer | np.bool_) or (
            isinstance(state, float | np.floating) and float(state).is_integer()
        )
        if self.states and not (isinstance(state, str) if text else whole):
            raise PolicyError(
                f"this policy's states are {'text' if text else 'whole numbers'}; got {state!r}.",
                f"its states look like {', '.join(map(repr, self.states[:3]))}",
                "Give one label a state, in the type it had when the policy was fitted.",
            )
        return self._index.get(state, -1)

    def probabilities(
        self,
        states: Iterable[Label] | None = None,
        *,
        behavior: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """π(a|s), float64 (k, A): 1 at the chosen action, the behaviour's where it defers.

        Args:
            states: Which states; all of the policy's, in their order, by default.
            behavior: (k, A), the behaviour at these states where it is known. By default the share
                of training trajectories that took each action at their first visit; NaN where a
                state was never seen.
        """
        codes = np.array(
            range(len(self.states)) if states is None else self._codes(states), dtype=np.int64
        )
        if behavior is None:
            with np.errstate(invalid="ignore"):
                share = self.m / self.m.sum(axis=1, keepdims=True)
            result = np.where((codes >= 0)[:, None], share[codes], np.nan)
        else:
            result = np.array(behavior, dtype=np.float64)
            if result.shape != (len(codes), len(self.actions)):
                raise PolicyError(
                    f"behavior must have shape {(len(codes), len(self.actions))}; "
                    f"got {result.shape}."
                )
        chosen = np.where(codes >= 0, self.choice[codes], -1)
        speaks = np.flatnonzero(chosen >= 0)
        result[speaks] = 0.0
        result[speaks, chosen[speaks]] = 1.0
        return result

    def explain(self, state: Label) -> Explanation:
        """Why the policy answers as it does in one state."""
        return explain_state(self, state, self._codes([state])[0])

    # -- what it would change ----------------------------------------------------------------

    @property
    def n_min(self) -> float:
        """Trajectories an action needed before it could be suggested."""
        n_min = self.parameters.get("n_min")
        return math.inf if n_min is None else float(n_min)

    @functools.cached_property
    def usual(self) -> NDArray[np.int64]:
        """int64 (S,): the most frequent action at first visits, -1 where never visited."""
        return _read_only(np.where(self.m.any(axis=1), self.m.argmax(axis=1), -1))

    @functools.cached_property
    def kind(self) -> NDArray[np.int8]:
        """int8 (S,): 0 defers, 1 confirms the usual action, 2 changes it.

        Where two actions share the first place, choosing either is a change.
        """
        shared = (self.m == self.m.max(axis=1, initial=0)[:, None]).sum(axis=1) > 1
        change = (self.choice != self.usual) | shared
        return _read_only(np.where(self.choice < 0, 0, np.where(change, 2, 1)).astype(np.int8))

    def changes(self) -> Table:
        """The decision points whose suggestion differs from the usual action, largest first."""
        return change_rows(self, np.flatnonzero(self.kind == 2), "changes")

    def confirmations(self) -> Table:
        """The decision points whose suggestion is the usual action already, largest first."""
        return change_rows(self, np.flatnonzero(self.kind == 1), "confirmations")

    def summary(self) -> dict[str, Any]:
        """The counts that describe it, as plain numbers."""
        total = int(self.steps.sum())
        share = [
            float(self.steps[self.kind == k].sum()) / total if total else 0.0 for k in range(3)
        ]
        return {
            "states": len(self.states),
            "actions": len(self.actions),
            "decision_points": int((self.kind > 0).sum()),
            "changes": int((self.kind == 2).sum()),
            "confirmations": int((self.kind == 1).sum()),
            "steps_deferred": share[0] if total else 1.0,
            "steps_confirmed": share[1],
            "steps_changed": share[2],
        }

    def __str__(self) -> str:
        s = self.summary()
        changes, points = s["changes"], s["decision_points"]
        return (
            f"{s['states']:,} states · {points:,} decision point{'s' * (points != 1)} · "
            f"{changes:,} change{'s' * (changes != 1)} · "
            f"defers on {100 * s['steps_deferred']:.1f} % of steps"
        )

    def __repr__(self) -> str:
        return f"<Policy: {self}>"

    # -- on disk -----------------------------------------------------------------------------

    def _parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        words: dict[str, Any] = {"made_by": self.provenance.get("made_by", "")}
        arrays = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                arrays[field.name] = value
            else:
                words[field.name] = plain(value)
        return words, arrays

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy file (a zip of JSON and npy; equal policies give equal bytes)."""
        archive.pack(path, KIND, *self._parts())

    def digest(self) -> str:
        """SHA-256 of everything the policy holds."""
        digest: str = archive.document(KIND, *self._parts())[0]["digest"]
        return digest

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Policy:
        """Read a policy file. Runs no code from it; anything odd is a PolicyError."""
        kind, words, arrays = archive.unpack(path)
        names = {f.name for f in fields(cls)}
        given: dict[str, Any] = {**{k: v for k, v in words.items() if k in names}, **arrays}
        odd = sorted(names ^ set(given))
        labels: list[Any] = [given.get("states"), given.get("actions")]
        good = (
            kind == KIND
            and not odd
            and all(
                isinstance(x, list) and all(isinstance(v, str | int) for v in x) for x in labels
            )
            and all(isinstance(given[k], dict) for k in ("parameters", "provenance"))
        )
        if not good:
            raise PolicyError(
                f"{os.fspath(path)!r} holds no policy this version can read.",
                f"kind {kind!r}" + (f", parts {', '.join(odd[:4])}" if odd else ""),
                "Upgrade dprl, or fit the policy again.",
            )
        given["states"], given["actions"] = (tuple(x) for x in labels)
        return cls(**given)


KIND = "tabular"
load = Policy.load
PAIRS = {
    "allowed": "bool", "n": "int64", "m": "int64", "Q": "float64", "took_mean": "float64",
    "took_variance": "float64", "others_mean": "float64", "others_variance": "float64",
    "planned": "float64",
}  # fmt: skip
STATES = {"choice": "int32", "steps": "int64", "V": "float64"}


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


def _missing(state: Any) -> bool:
    """None, NaN, NaT and pandas' NA."""
    if state is None or type(state).__name__ == "NAType":
        return True
    return isinstance(state, float | np.floating | np.datetime64) and bool(state != state)


def _validate(policy: Policy) -> None:
    S, A = len(policy.states), len(policy.actions)

    def refuse(what: str) -> None:
        raise PolicyError(f"a policy cannot be made of these parts: {what}.")

    for parts, shape in ((STATES, (S,)), (PAIRS, (S, A))):
        for name, dtype in parts.items():
            array = getattr(policy, name)
            if array.shape != shape or array.dtype != dtype:
                refuse(f"{name!r} is {array.dtype}{array.shape}, not {dtype}{shape}")
    if any((getattr(policy, name) < 0).any() for name in ("n", "m", "steps")):
        refuse("a count is below 0")
    n_min = policy.parameters.get("n_min")
    if n_min is not None and not (isinstance(n_min, int | float) and n_min >= 1):
        refuse(f"its n_min is {n_min!r}")
    if not isinstance(policy.provenance.get("columns", {}), Mapping):
        refuse("its provenance names no columns")
    for name, labels in (("states", policy.states), ("actions", policy.actions)):
        if len(set(labels)) != len(labels):
            refuse(f"{name!r} repeats a label")
        if len({isinstance(label, str) for label in labels}) > 1:
            refuse(f"{name!r} mixes text and numbers")
    if (
        policy.choice.dtype != np.int32
        or not ((policy.choice >= -1) & (policy.choice < max(A, 1))).all()
    ):
        refuse("'choice' names actions that do not exist")
    if policy.allowed.dtype != np.bool_:
        refuse("'allowed' is not true or false")
    speaks = np.flatnonzero(policy.choice >= 0)
    if not policy.allowed[speaks, policy.choice[speaks]].all():
        refuse("it chooses an action that is not allowed")
