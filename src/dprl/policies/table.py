"""TablePolicy: what is deployed over labelled states.

It names an action where the log can speak, and says DEFER elsewhere.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import DIVIDED, Bools, Codes, Floats, Ints
from dprl._core.table import Table, many, printable
from dprl._core.words import joined, worded
from dprl.errors import ParameterError
from dprl.logs.called import Called
from dprl.logs.encoding.encoder import encoded_by
from dprl.logs.log import Label, Log
from dprl.logs.overlap import sealed_origin
from dprl.policies.base import Stored
from dprl.policies.certificate import CLOSE
from dprl.policies.explain import Explanation, change_rows, explain_at
from dprl.policies.protocol import PAIRS, STATES, Decisions, Kind, Terms, answers_of, pi_of, rows_of
from dprl.policies.regions import Region, Situation, at_states
from dprl.policies.spaces import LabelSpace

if TYPE_CHECKING:
    from dprl.evidence.counts import Evidence
    from dprl.policies.explain import Luck
    from dprl.policies.neighbors import NeighborPolicy


# --- What policies over labels and over cells share: one row of evidence per state, kept in a
# file

BY_COUNTS = ("DPRLDiscrete", "DPRLContinuous")
"""Learners that choose only actions that are not worse than the average there (Eq. 1)."""


@dataclass(frozen=True, eq=False)
class Tabled(Stored, ABC):
    """The choices in S states and the evidence behind them; immutable.

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
        avoid: int32 (S,), the code of the action to avoid where none is chosen, -1 elsewhere; None
            where it avoids nothing.
    """

    knows_practice: ClassVar[bool] = True
    HEAD: ClassVar[int] = 2  # lines at the top of what is printed: a verdict, and counts
    OPTIONAL: ClassVar[tuple[str, ...]] = ("avoid",)
    ARRAYS: ClassVar[Mapping[str, str]] = {
        **{name: f"{dtype} S" for name, dtype in STATES.items()},
        "choice": "int32 S",
        "avoid": "int32 S",
        "steps": "int64 S",
        **{name: f"{dtype} SA" for name, dtype in PAIRS.items()},
    }
    OLDER: ClassVar[Mapping[str, str]] = {
        f"{side}_variance": "float64 SA" for side in ("took", "others")
    }

    choice: Codes
    allowed: Bools
    steps: Ints
    n: Ints
    m: Ints
    Q: Floats
    V: Floats
    took_mean: Floats
    took_sd: Floats
    others_mean: Floats
    others_sd: Floats
    lowest: Floats
    highest: Floats
    planned: Floats
    avoid: Codes | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if any((getattr(self, name) < 0).any() for name in ("n", "m", "steps")):
            self._refuse("a count is below 0")
        named = {"choice": self.choice, **({} if self.avoid is None else {"avoid": self.avoid})}
        for name, codes in named.items():
            if not ((codes >= -1) & (codes < max(len(self.actions), 1))).all():
                self._refuse(f"{name!r} names actions that do not exist")
        speaks = np.flatnonzero(self.choice >= 0)
        if not self.allowed[speaks, self.choice[speaks]].all():
            self._refuse("it chooses an action that is not allowed")
        if self.avoid is not None and (self.avoid[speaks] >= 0).any():
            self._refuse("it names an action to take and one to avoid in the same state")
        if self.certificate is not None:
            here = self.decisions
            speaks = np.flatnonzero(here.speaks)
            followed = np.where(
                here.choice >= 0, self.m[np.arange(len(self.m)), here.choice], self.m.sum(axis=1)
            )  # trajectories that did as it says, at most
            answers = here.answers()
            issued = {self.states[s]: answers[s] for s in speaks}
            if issued != self.certificate.issued:
                self._refuse("its certificate is about other suggestions")
            row_of = {row["state"]: row for row in self.certificate.rows}
            whole = self.certificate.mode == "policy"  # other groups certified than it learned from
            origin = self.provenance.get("certified", self.provenance) if whole else self.provenance
            if (
                self.certificate.log != origin.get("log")
                or self.certificate.gamma != self.parameters.get("gamma")
                or any(row_of[self.states[s]]["n"] > followed[s] and not whole for s in speaks)
            ):
                self._refuse("its certificate is about another log")

    def _contradiction(self) -> str:
        return _wrong_choice(self)

    @classmethod
    def migrate(cls, version: int, words: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """1 to 2: deviations in place of variances; the range of the returns was not kept."""
        if version > 1:
            return
        for side in ("took", "others"):
            if f"{side}_variance" in arrays:
                arrays[f"{side}_sd"] = np.sqrt(arrays.pop(f"{side}_variance"))
        if "V" in arrays:
            for end in ("lowest", "highest"):
                arrays.setdefault(end, np.full(arrays["V"].shape, np.nan))

    @classmethod
    def of(
        cls,
        evidence: Evidence,
        *,
        choice: Codes,
        allowed: Bools,
        planned: Floats,
        steps: Ints,
        parameters: Mapping[str, Any],
        provenance: Mapping[str, Any],
        **more: Any,
    ) -> Self:
        """The policy that makes these choices on this evidence; `more` are a kind's own parts."""
        rows = {**rows_of(evidence), "allowed": allowed, "planned": planned}
        if evidence.rest:  # groups whose action is not stated count as doing otherwise
            rows |= {n: np.ascontiguousarray(a[:, :-1]) for n, a in rows.items() if n in PAIRS}
        return cls(
            states=evidence.states,
            actions=evidence.actions[: -1 if evidence.rest else None],
            parameters=parameters,
            provenance=provenance,
            choice=choice,
            steps=steps,
            **more,
            **rows,
        )

    # -- what it would change ----------------------------------------------------------------

    @property
    def terms(self) -> Terms:
        """On which terms it decides."""
        return Terms.of(self.parameters, self.provenance, self.certificate)

    @functools.cached_property
    def decisions(self) -> Decisions:
        """Its decisions in all of its S states, in their order."""
        parts: dict[str, Any] = {name: getattr(self, name) for name in (*PAIRS, *STATES)}
        return Decisions(
            states=self.states, actions=self.actions, choice=self.choice,
            pi=pi_of(self.choice, len(self.actions)), terms=self.terms,
            avoid=np.full_like(self.choice, -1) if self.avoid is None else self.avoid, **parts,
        )  # fmt: skip

    @property
    def usual(self) -> Ints:
        """int64 (S,): the most frequent action at first visits, -1 where never visited."""
        return self.decisions.usual

    @property
    def kind(self) -> NDArray[np.int8]:
        """int8 (S,): the `Kind` of each decision: 0 defers, 1 confirms, 2 changes, 4 avoids.

        Where two actions share the first place, or no action has half of the share, choosing any
        of them is a change.
        """
        return self.decisions.kind

    @property
    def differs(self) -> Bools:
        """bool (S,): it speaks, and some trajectory of the training log did otherwise there."""
        return self.decisions.differs

    @property
    def may_change(self) -> bool:  # type: ignore[override]
        """Whether it changes usual practice in some state."""
        return bool(self.decisions.changes.any())

    @property
    def luck(self) -> Luck | None:
        """How far luck explains its changes; None if that is not recorded of these changes."""
        recorded = self.provenance.get("luck", {}).get("changes")
        changes = int(self.decisions.changes.sum())
        another = recorded not in (None, changes) and "approved" not in self.provenance
        return None if another or not changes else super().luck  # another: made after the fit

    def summary(self) -> dict[str, Any]:
        """The counts that describe it, as plain numbers.

        `steps_deferred`, `steps_confirmed` and `steps_changed` are shares of the training log's
        steps and add up to 1; `steps_spoken` is the last two together. `steps_differ` is the share
        at which it speaks and practice does not always do the same: where the usual action is done
        in 40 % of the cases, to confirm it is to do it in the other 60 % too.

        Returns:
            Name → number of states, actions, decision points, changes and confirmations, and the
            shares, from 0 to 1.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.summary()["changes"]
            2
        """
        return summary_of(self.decisions, self.steps)

    def _repr_html_(self) -> str:
        from dprl._core import html as pages

        return pages.snippet(
            "policy",
            text="\n".join(str(self).splitlines()[: self.HEAD]),
            luck=self.luck,
            steps=steps_of(self.summary()),
            changes=self._changed(),
            certificate=self.certificate,
        )

    def changes(self, *, cases: bool = False) -> Table:
        """The decision points whose suggestion differs from the usual action, surest first.

        Args:
            cases: Has no effect, because this policy keeps no episode labels. Default False.

        Returns:
            A table with one line for each state that changes: the state (of a cell also the
            features of its centre), the usual and the suggested action, the counts of episodes, the
            estimated values and their intervals.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.changes()["suggested"]
            ['antibiotics', 'fluids']
        """
        return self._listed(changes_of(self.decisions))

    def confirmations(self, *, cases: bool = False) -> Table:
        """The decision points whose suggestion is the usual action already, surest first.

        Args:
            cases: Has no effect, because this policy keeps no episode labels. Default False.

        Returns:
            A table with the columns of `changes`.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> len(policy.confirmations())
            0
        """
        return self._listed(confirmations_of(self.decisions))

    def limited_to(self, approved: Sequence[Approved], **noted: Any) -> Self:
        """The policy with these of its changes alone; elsewhere it defers.

        Args:
            approved: The changes to keep, each with a `state` or a `region`, such as what
                `situations` returns. An empty list leaves a policy that makes no change.
            noted: Facts to add to the provenance, such as who approved.

        Returns:
            The limited policy; its certificate, if it has one, is restated.

        Raises:
            ParameterError: The policy changes nothing in a state that is named.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> only = policy.limited_to(policy.situations(log)[:1], by="a physician")
            >>> only.act(["fever", "worse"])
            ['antibiotics', DEFER]
        """
        return limit_states(self, [c.state for c in approved if c.state is not None], **noted)

    def _listed(self, table: Table) -> Table:
        """A table by state, as people read it."""
        return table

    @abstractmethod
    def _changed(self) -> list[dict[str, Any]]:
        """The changes as a notebook lists them: where, steps, and the columns of `changes()`."""


def _wrong_choice(policy: Tabled) -> str:
    """Which suggestion its own counts and values do not allow, in words; '' if all are."""
    need = max(1.0, policy.n_min)
    if wrong := _wrong_warning(policy, need):
        return wrong
    speaks = np.flatnonzero(policy.choice >= 0)
    if not len(speaks):
        return ""
    at = speaks, policy.choice[speaks]
    few = np.flatnonzero(policy.n[at] < need)
    if len(few):
        first = few[0]
        return worded(
            "it suggests {where} with n = {n:,}, and its {n_min} is {need:,g}",
            where=_where(policy, speaks[first]),
            n=policy.n[at][first],
            need=need,
        )
    Q, V = policy.Q[at], policy.V[speaks]
    unknown = np.flatnonzero(~np.isfinite(Q) | ~np.isfinite(V))
    if len(unknown):
        return (
            f"it suggests something in state {policy.states[speaks[unknown[0]]]!r} without a value"
        )
    if policy.parameters.get("learner") not in BY_COUNTS:
        return ""
    spread = np.nan_to_num(np.maximum(policy.took_sd[at], policy.others_sd[at]))
    worse = np.flatnonzero(V - CLOSE * (np.abs(Q) + np.abs(V) + spread) > Q)
    if len(worse):
        first = worse[0]
        return (
            f"it suggests {_where(policy, speaks[first])}, whose value {Q[first]:.4g} is below the "
            f"average {V[first]:.4g} there"
        )
    return ""


def _wrong_warning(policy: Tabled, need: float) -> str:
    """Which action it warns of although its counts and values do not show it; '' if none."""
    warns = np.flatnonzero(policy.decisions.avoid >= 0)
    at = warns, policy.decisions.avoid[warns]
    took, others = policy.m[at], policy.m[warns].sum(axis=1) - policy.m[at]
    with np.errstate(invalid="ignore"):
        fine = (np.minimum(took, others) >= need) & (policy.took_mean[at] < policy.others_mean[at])
    if fine.all():
        return ""
    first = int(np.flatnonzero(~fine)[0])
    return (
        f"it warns of {policy.actions[at[1][first]]!r} in state {policy.states[warns[first]]!r}, "
        f"which {took[first]:,} took and {others[first]:,} did not, and they do not show it"
    )


def _where(policy: Tabled, s: int) -> str:
    return f"{policy.actions[policy.choice[s]]!r} in state {policy.states[s]!r}"


def summary_of(here: Decisions, steps: Ints) -> dict[str, Any]:
    """The counts that describe decisions; steps (k,) of the training log at each of them."""
    total, kind = int(steps.sum()), here.kind
    deferred, confirmed, changed = (
        float(steps[inside].sum()) / total if total else 0.0
        for inside in (kind == Kind.DEFER, kind == Kind.CONFIRM, here.changes)
    )
    return {
        "states": len(here),
        "actions": len(here.actions),
        "decision_points": int((kind != Kind.DEFER).sum()),
        "changes": int(here.changes.sum()),
        "confirmations": int((kind == Kind.CONFIRM).sum()),
        "divided": int((here.divided & here.changes).sum()),
        "steps_deferred": deferred if total else 1.0,
        "steps_confirmed": confirmed,
        "steps_changed": changed,
        "steps_spoken": confirmed + changed,
        "steps_differ": float(steps[here.differs].sum()) / total if total else 0.0,
    }


def in_a_line(s: Mapping[str, Any], what: str) -> str:
    """A summary in one line; `what` it is over: "state", "cell" or "point"."""
    words = [what, *(["feature"] if what == "point" else [])]
    words += ["decision point", "change", "confirmation"]
    parts = [many(s[f"{word.replace(' ', '_')}s"], word) for word in words]
    if s.get("divided"):
        parts[-2] += f" ({s['divided']:,} where {DIVIDED})"
    acts, differs = 100 * s["steps_spoken"], 100 * s["steps_differ"]
    parts.append(f"acts on {acts:.1f} % of steps, differs from practice on {differs:.1f} %")
    if s["steps_confirmed"] and s["steps_differ"] > s["steps_changed"] + 1e-9:
        parts[-1] += " (a confirmation differs where practice takes the usual action not always)"
    return " · ".join(parts)


def steps_of(s: Mapping[str, Any]) -> dict[str, float]:
    """The shares of steps in a summary, by name."""
    return {name.removeprefix("steps_"): v for name, v in s.items() if name.startswith("steps_")}


def texts_in(columns: Mapping[str, Sequence[Any]]) -> frozenset[str]:
    """The columns that hold text, which tables do not write as numbers."""
    return frozenset(n for n, own in columns.items() if any(isinstance(x, str) for x in own))


# --- A policy limited to some of its changes: everything else, confirmations too, becomes DEFER
#
# The limited policy answers, at any state, either what the policy it came from answers or DEFER.
# The allowed set of the rule is not touched and only allowed actions are chosen, so whatever holds
# for every policy that picks allowed actions or defers holds for it. A certificate is restated for
# the changes that are left, never copied.
#
# Labels are limited by state, and cells by cell: certified is the mean of a cell, so a cell is kept
# whole or not at all. Other features are limited by region: ranges of features with the usual and
# the suggested action in them (`dprl.policies.regions`), kept in the policy file, asked at every
# query.

T = TypeVar("T", bound=Tabled)


def state_words(policy: Any, label: Label) -> str:
    """A state in words: "state = ill"; the label alone where it tells what it is of."""
    if policy.encoding is not None:
        return str(label)
    name = policy.provenance.get("columns", {}).get("state")
    return joined(" = ", (name if isinstance(name, str) else "state", str(label)))


FIRST = 3
"""Changes that the first line of a policy names."""


def first_line(
    policy: Any, here: Decisions, changed: Sequence[Mapping[str, Any]], left: int | None = None
) -> str:
    """What a policy would change, in a line: the first thing that is printed of it.

    Args:
        policy: The policy.
        here: What it decides, at all states that it knows.
        changed: Its changes: where, usual, suggested; the first few are told.
        left: Changes that are not in these few. Default None: the others of `changed`.
    """
    called = Called.learned(policy)
    if not here.changes.any():
        kind = "always the usual action, where it speaks" if here.speaks.any() else "it is silent"
        return f"No change of what is usual: {kind}."
    lines = []
    for row in changed[:FIRST]:
        usual = "" if row["usual"] == DIVIDED else f", not {printable(called.act(row['usual']))}"
        usual = "" if getattr(row["suggested"], "action", None) is not None else usual  # to avoid
        where = printable(called.said(row["where"]))
        lines.append(f"{where}: {printable(called.act(row['suggested']))}{usual}")
    left = max(len(changed) - FIRST, 0) if left is None else left
    if not lines:
        return f"{many(left, 'change')} here and there, in no simple region."
    return "; ".join([*lines, *([f"and {many(left, 'more change')}"] if left else [])]) + "."


def changed_labels(policy: TablePolicy) -> list[dict[str, Any]]:
    """The changes of a policy of labels, with the state in words."""
    rows = change_rows(policy.decisions, np.flatnonzero(policy.decisions.changes), "")
    return [{**row, "where": state_words(policy, row["state"])} for row in rows]


class Approved(Protocol):
    """A change that may stay: it names a state (a label, or a cell's number) or a region."""

    @property
    def state(self) -> Label | None: ...
    @property
    def region(self) -> Region | None: ...


def limit_states(policy: T, states: Sequence[Label], **noted: Any) -> T:
    """The policy with its changes in these states only; `noted` goes into its provenance."""
    codes = LabelSpace(policy.states).codes(states)
    for label, code in zip(states, codes.tolist(), strict=True):
        if code < 0 or not policy.decisions.changes[code]:
            raise ParameterError(f"the policy changes nothing in state {label!r}.")
    choice, avoid = (np.full(len(policy.choice), -1, np.int32) for _ in range(2))
    choice[codes], avoid[codes] = policy.choice[codes], policy.decisions.avoid[codes]
    proved = policy.certificate
    return replace(
        policy,
        choice=choice,
        avoid=None if policy.avoid is None else avoid,
        planned=np.where(policy.allowed, policy.Q, np.nan),  # the plan it was part of is no more
        provenance=_noted(policy, noted),
        certificate=None if proved is None else proved.restricted(states),
    )


def limit_regions(
    policy: NeighborPolicy, regions: Sequence[Region], **noted: Any
) -> NeighborPolicy:
    """The policy with its changes in these regions only; `noted` goes into its provenance."""
    layers = [[r.to_dict() for r in layer] for layer in (*policy.layers, regions)]
    return replace(
        policy,
        parameters={**policy.parameters, "approved": layers},
        provenance=_noted(policy, noted),
        certificate=None,  # a certificate is about labels or cells; the gate gives none here
    )


def _noted(policy: Tabled | NeighborPolicy, noted: Mapping[str, Any]) -> dict[str, Any]:
    """Where the limited policy comes from: the policy it is a part of, and why this part."""
    return {**sealed_origin(policy.provenance), "approved": {"policy": policy.digest(), **noted}}


# --- TablePolicy: what is deployed over labelled states


@dataclass(frozen=True, eq=False, repr=False)
class TablePolicy(Tabled):
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
        avoid: int32 (S,), the code of the action to avoid where none is chosen, -1 elsewhere; None
            where it avoids nothing. Default None.
        certificate: What is proved about it, where it went through `dprl.gate`. Default None.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
        >>> policy.act(["fever", "stable"])
        ['antibiotics', DEFER]
    """

    KIND: ClassVar[str] = "tabular"
    changes_by: ClassVar[Literal["state", "cell", "region", "rule"]] = "state"

    @functools.cached_property
    def space(self) -> LabelSpace:
        """The labels it knows."""
        return LabelSpace(self.states, self.encoding, self.gone, self.fold)

    # -- what it answers ---------------------------------------------------------------------

    def at(self, states: Label | Iterable[Label | None] | None) -> Decisions:
        """What it answers at these states, and everything it knows about them.

        Args:
            states: A label, or a list or column of k labels. A state that is missing (None), or was
                never seen in training, is deferred.

        Returns:
            The k decisions, with the evidence behind them.

        Raises:
            PolicyError: A label is of another type (text or number) than the training labels.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.at(["fever"]).answers()
            ['antibiotics']
        """
        column, _ = self.space.read(states)
        return self.decisions.at(self.space.codes(column), column)

    def act(self, states: Label | Iterable[Label | None] | None) -> Any:
        """The action for each state, what to avoid there, or DEFER.

        Args:
            states: A label, or a list or column of k labels. A state that is missing (None), or was
                never seen in training, is deferred.

        Returns:
            A list of k action labels, `dprl.Avoid` or DEFER; for a single state, a single answer.

        Raises:
            PolicyError: A label is of another type (text or number) than the training labels.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.act("fever")
            'antibiotics'
        """
        column, single = self.space.read(states)
        codes = self.space.codes(column)
        here = self.decisions
        choice, avoid = (np.append(own, np.int32(-1))[codes] for own in (here.choice, here.avoid))
        answers = answers_of(self.actions, choice, avoid)
        return answers[0] if single else answers

    def probabilities(
        self,
        states: Iterable[Label] | None = None,
        *,
        behavior: Floats | None = None,
    ) -> Floats:
        """The probability π(a|s): 1 at the chosen action, the behaviour's where it defers.

        Args:
            states: A list or column of k labels. Default None: all of the policy's states, in their
                order.
            behavior: float64 (k, A), the probabilities of usual practice at these states, used
                where the policy defers. Default None: the share of training trajectories that took
                each action at their first visit; NaN where a state was never seen.

        Returns:
            float64 (k, A), the probability of each action in the order of `actions`.

        Raises:
            PolicyError: `behavior` has another shape, or the states cannot be read.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.probabilities(["fever"]).tolist()
            [[1.0, 0.0, 0.0, 0.0]]
        """
        here = self.decisions if states is None else self.at(self.space.column(states))
        return here.probabilities(behavior=behavior)

    def explain(self, state: Label, *, cases: bool = False) -> Explanation:
        """Why the policy answers as it does in one state.

        Args:
            state: The label of the state.
            cases: Has no effect, because this policy keeps no episode labels. Default False.

        Returns:
            The answer, the reason for it in a sentence, and a table of the actions seen there.

        Raises:
            PolicyError: A label is of another type (text or number) than the training labels.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.explain("fever").suggested
            'antibiotics'
        """
        here = self.at([state])
        return explain_at(here, 0, here.states[0])

    # -- what it would change ----------------------------------------------------------------

    def situations(self, log: Log) -> list[Situation]:
        """Its changes, one per state, and the steps of a log in each.

        Args:
            log: A log with labelled states.

        Returns:
            One situation for each state that changes, with the rows of the log in it.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> [situation.words for situation in policy.situations(log)]
            ['state = fever', 'state = worse']
        """
        log = encoded_by(log, self.encoding)
        codes = self.space.codes(log.states)[log.codes()]
        return at_states(self.decisions, codes, lambda s, rows: state_words(self, self.states[s]))

    def _changed(self) -> list[dict[str, Any]]:
        steps = dict(zip(self.states, self.steps.tolist(), strict=True))
        return [{**r, "where": r["state"], "steps": steps[r["state"]]} for r in self.changes()]

    def __str__(self) -> str:
        line = in_a_line(self.summary(), "state")
        luck = () if self.luck is None else (self.luck.words,)
        return "\n".join(
            (first_line(self, self.decisions, changed_labels(self)), line, *luck, *self.conditions)
        )

    def __repr__(self) -> str:
        return f"<Policy: {in_a_line(self.summary(), 'state')}>"


def changes_of(here: Decisions) -> Table:
    """The table of changes; where there are only confirmations, its note says so."""
    table = change_rows(here, np.flatnonzero(here.changes), "changes")
    confirmed = int((here.kind == Kind.CONFIRM).sum())
    if len(table) or not confirmed:
        return table
    where = f"at {many(confirmed, 'decision point')}"
    note = f"It is not silent: {where} it asks for the usual action always (confirmations)."
    if here.differs.any():  # what is done would change, though not what is usual
        note += f"\n{confirmations_of(here)}"
    return replace(table, note=note)


def confirmations_of(here: Decisions) -> Table:
    """The table of confirmations."""
    return change_rows(here, np.flatnonzero(here.kind == Kind.CONFIRM), "confirmations")
