"""Policy: what is deployed. It names an action where the log can speak, and DEFER elsewhere."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.table import Table
from dprl.errors import PolicyError
from dprl.logs.log import Label
from dprl.policies._base import Stored, is_one
from dprl.policies._explain import Explanation, change_rows, explain_state

if TYPE_CHECKING:
    from dprl.evidence._evidence import Evidence

__all__ = ["DEFER", "Answer", "Defer", "Policy"]


class Defer(enum.Enum):
    """The answer of a policy that has nothing to add: do what you would have done."""

    DEFER = "DEFER"

    def __repr__(self) -> str:
        return "DEFER"

    __str__ = __repr__


DEFER: Final = Defer.DEFER
Answer: TypeAlias = Label | Defer


@dataclass(frozen=True, eq=False)
class Policy(Stored):
    """A deferring policy over labelled states; immutable.

    Attributes:
        states: State labels, S of them.
        actions: Action labels, A of them.
        parameters: The learner and its settings.
        provenance: Digest and size of the training log, version of dprl.
        choice: int32 (S,), the chosen action's code, -1 for DEFER.
        allowed: bool (S, A), the pairs that passed the rule (Eq. 1).
        steps: int64 (S,), rows of the training log in each state.
        n: int64 (S, A), n(s,a): trajectories that contain the pair.
        m: int64 (S, A), trajectories that took a at their first visit of s.
        Q: float64 (S, A), Q̂(s,a); NaN where n = 0.
        V: float64 (S,), V̂(s); NaN where s was never visited.
        took_mean: float64 (S, A), mean return of first visits that took a.
        took_sd: float64 (S, A), sample standard deviation of these returns.
        others_mean: float64 (S, A), mean return of first visits that did otherwise.
        others_sd: float64 (S, A), sample standard deviation of these returns.
        lowest: float64 (S,), smallest return at a first visit of s; NaN where never visited.
        highest: float64 (S,), largest return at a first visit of s; NaN where never visited.
        planned: float64 (S, A), value of taking a now and following the plan after; NaN if not
            allowed. Equal to Q̂ where the learner did not plan.
    """

    KIND: ClassVar[str] = "tabular"

    choice: NDArray[np.int32]
    allowed: NDArray[np.bool_]
    steps: NDArray[np.int64]
    n: NDArray[np.int64]
    m: NDArray[np.int64]
    Q: NDArray[np.float64]
    V: NDArray[np.float64]
    took_mean: NDArray[np.float64]
    took_sd: NDArray[np.float64]
    others_mean: NDArray[np.float64]
    others_sd: NDArray[np.float64]
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]
    planned: NDArray[np.float64]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_arrays(STATES, (len(self.states),))
        self._check_arrays(PAIRS, (len(self.states), len(self.actions)))
        if any((getattr(self, name) < 0).any() for name in ("n", "m", "steps")):
            self._refuse("a count is below 0")
        if not ((self.choice >= -1) & (self.choice < max(len(self.actions), 1))).all():
            self._refuse("'choice' names actions that do not exist")
        speaks = np.flatnonzero(self.choice >= 0)
        if not self.allowed[speaks, self.choice[speaks]].all():
            self._refuse("it chooses an action that is not allowed")
        if self.certificate is not None:
            issued = {self.states[s]: self.actions[self.choice[s]] for s in speaks}
            if issued != self.certificate.issued:
                self._refuse("its certificate is about other suggestions")
            row_of = {row["state"]: row for row in self.certificate.rows}
            if (
                self.certificate.log != self.provenance.get("log")
                or self.certificate.gamma != self.parameters.get("gamma")
                or any(row_of[self.states[s]]["n"] > self.m[s, self.choice[s]] for s in speaks)
            ):
                self._refuse("its certificate is about another log")

    @classmethod
    def of(
        cls,
        known: Evidence,
        *,
        choice: NDArray[np.int32],
        allowed: NDArray[np.bool_],
        planned: NDArray[np.float64],
        steps: NDArray[np.int64],
        parameters: Mapping[str, Any],
        provenance: Mapping[str, Any],
    ) -> Policy:
        """The policy that makes these choices on this evidence."""
        return cls(
            states=known.states,
            actions=known.actions,
            parameters=parameters,
            provenance=provenance,
            choice=choice,
            allowed=allowed,
            steps=steps,
            n=known.pair.n,
            m=known.took.n,
            Q=known.pair.mean,
            V=known.state.mean,
            took_mean=known.took.mean,
            took_sd=known.took.sd,
            others_mean=known.others.mean,
            others_sd=known.others.sd,
            lowest=np.ascontiguousarray(known.span[:, 0]),
            highest=np.ascontiguousarray(known.span[:, 1]),
            planned=planned,
        )

    # -- what it answers ---------------------------------------------------------------------

    def act(self, states: Label | Iterable[Label | None] | None) -> Any:
        """The action for each state, or DEFER.

        A sequence gives a list; a single label gives a single answer. A state that was never seen
        in training, or is missing, is deferred. A label of another type than the training labels
        is refused: it would defer for ever without a word.
        """
        column: Any = [states] if is_one(states) else states
        answers = [self._answer(code) for code in self._codes(column)]
        return answers[0] if is_one(states) else answers

    def _answer(self, code: int) -> Answer:
        chosen = self.choice[code] if code >= 0 else -1
        return self.actions[chosen] if chosen >= 0 else DEFER

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

    def explain(self, state: Label, *, cases: bool = False) -> Explanation:
        """Why the policy answers as it does in one state.

        `cases` asks for past cases by name; a policy over labels knows none.
        """
        return explain_state(self, state, self._codes([state])[0])

    # -- what it would change ----------------------------------------------------------------

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

    @functools.cached_property
    def differs(self) -> NDArray[np.bool_]:
        """bool (S,): it speaks, and some trajectory of the training log did otherwise there."""
        otherwise = (self.n > 0).sum(axis=1) > (self.n[np.arange(len(self.n)), self.choice] > 0)
        return _read_only((self.choice >= 0) & otherwise)

    def changes(self, *, cases: bool = False) -> Table:
        """The decision points whose suggestion differs from the usual action, surest first.

        `cases` asks for the labels of training episodes; only a `NeighborPolicy` knows them.
        """
        table = change_rows(self, np.flatnonzero(self.kind == 2), "changes")
        confirmed = int((self.kind == 1).sum())
        if len(table) or not confirmed:
            return table
        where = f"at {confirmed:,} decision point{'s' * (confirmed != 1)}"
        said = f"It is not silent: {where} it asks for the usual action always (confirmations)."
        return replace(table, note=said)

    def confirmations(self, *, cases: bool = False) -> Table:
        """The decision points whose suggestion is the usual action already, largest first."""
        return change_rows(self, np.flatnonzero(self.kind == 1), "confirmations")

    def summary(self) -> dict[str, Any]:
        """The counts that describe it, as plain numbers.

        `steps_deferred`, `steps_confirmed` and `steps_changed` are shares of the training log's
        steps and add up to 1; `steps_spoken` is the last two together. `steps_differ` is the share
        at which it speaks and practice does not always do the same: where the usual action is done
        in 40 % of the cases, to confirm it is to do it in the other 60 % too.
        """
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
            "steps_spoken": share[1] + share[2],
            "steps_differ": float(self.steps[self.differs].sum()) / total if total else 0.0,
        }

    def _repr_html_(self) -> str:
        from dprl._core import html as pages

        return pages.snippet(
            "policy",
            text=str(self),
            steps=steps_of(self.summary()),
            changes=self._changed(),
            certificate=self.certificate,
        )

    def _changed(self) -> list[dict[str, Any]]:
        """The changes as a notebook lists them: where, steps, and the columns of `changes()`."""
        steps = dict(zip(self.states, self.steps.tolist(), strict=True))
        return [{**r, "where": r["state"], "steps": steps[r["state"]]} for r in self.changes()]

    def __str__(self) -> str:
        return in_a_line(self.summary(), "state")

    def __repr__(self) -> str:
        return f"<Policy: {self}>"


def in_a_line(s: Mapping[str, Any], what: str) -> str:
    """A summary in one line; `what` it is over: "state", "cell" or "point"."""

    def many(name: str, word: str) -> str:
        return f"{s[name]:,} {word}{'s' * (s[name] != 1)}"

    parts = [many(f"{what}s", what)]
    if what == "point":
        parts.append(many("features", "feature"))
    parts += [
        many(f"{word.replace(' ', '_')}s", word)
        for word in ("decision point", "change", "confirmation")
    ]
    acts, differs = 100 * s["steps_spoken"], 100 * s["steps_differ"]
    parts.append(f"acts on {acts:.1f} % of steps, differs from practice on {differs:.1f} %")
    return " · ".join(parts)


def steps_of(s: Mapping[str, Any]) -> dict[str, float]:
    """The shares of steps in a summary, by name."""
    return {name.removeprefix("steps_"): v for name, v in s.items() if name.startswith("steps_")}


PAIRS = {
    "allowed": "bool", "n": "int64", "m": "int64", "Q": "float64", "took_mean": "float64",
    "took_sd": "float64", "others_mean": "float64", "others_sd": "float64", "planned": "float64",
}  # fmt: skip
STATES = {"choice": "int32", "steps": "int64", "V": "float64", "lowest": "float64",
          "highest": "float64"}  # fmt: skip


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
