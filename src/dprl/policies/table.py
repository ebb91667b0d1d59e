"""TablePolicy: what is deployed over labelled states.

It names an action where the log can speak, and says DEFER elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dprl._core.plural import many
from dprl._core.table import Table
from dprl.logs._encoding import encoded_by
from dprl.logs.log import Label, Log
from dprl.policies._decisions import DEFER, Answer, Decisions, Defer, Kind
from dprl.policies._explain import Explanation, change_rows, explain_at
from dprl.policies._restrict import Approved, limit_states
from dprl.policies._situations import Situation, at_states
from dprl.policies._spaces import LabelSpace
from dprl.policies._tabled import Tabled, in_a_line

__all__ = ["DEFER", "Answer", "Defer", "TablePolicy"]


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
        """The action for each state, or DEFER.

        Args:
            states: A label, or a list or column of k labels. A state that is missing (None), or was
                never seen in training, is deferred.

        Returns:
            A list of k action labels or DEFER; for a single state, a single answer.

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
        choice = np.append(self.choice, np.int32(-1))[self.space.codes(column)]
        answers = [self.actions[a] if a >= 0 else DEFER for a in choice.tolist()]
        return answers[0] if single else answers

    def probabilities(
        self,
        states: Iterable[Label] | None = None,
        *,
        behavior: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
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

    def changes(self, *, cases: bool = False) -> Table:
        """The decision points whose suggestion differs from the usual action, surest first.

        Args:
            cases: Has no effect, because this policy keeps no episode labels. Default False.

        Returns:
            A table with one line for each state that changes: the state, the usual and the
            suggested action, the counts of episodes, the estimated values and their intervals.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.changes()["suggested"]
            ['antibiotics', 'fluids']
        """
        return changes_of(self.decisions)

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
        return confirmations_of(self.decisions)

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
        name = self.provenance.get("columns", {}).get("state")
        label = name if isinstance(name, str) else "state"
        head = "" if self.encoding is not None else f"{label} = "  # its names are in the label
        log = encoded_by(log, self.encoding)
        codes = self.space.codes(log.states)[log.codes()]
        return at_states(self.decisions, codes, lambda s, rows: f"{head}{self.states[s]}")

    def limited_to(self, approved: Sequence[Approved], **noted: Any) -> TablePolicy:
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

    def _changed(self) -> list[dict[str, Any]]:
        steps = dict(zip(self.states, self.steps.tolist(), strict=True))
        return [{**r, "where": r["state"], "steps": steps[r["state"]]} for r in self.changes()]

    def __str__(self) -> str:
        line = in_a_line(self.summary(), "state")
        luck = () if self.luck is None else (self.luck.words,)
        return "\n".join((line, *luck, *self.conditions))

    def __repr__(self) -> str:
        return f"<Policy: {in_a_line(self.summary(), 'state')}>"


def changes_of(here: Decisions) -> Table:
    """The table of changes; where there are only confirmations, its note says so."""
    table = change_rows(here, np.flatnonzero(here.kind == Kind.CHANGE), "changes")
    confirmed = int((here.kind == Kind.CONFIRM).sum())
    if len(table) or not confirmed:
        return table
    where = f"at {many(confirmed, 'decision point')}"
    note = f"It is not silent: {where} it asks for the usual action always (confirmations)."
    return replace(table, note=note)


def confirmations_of(here: Decisions) -> Table:
    """The table of confirmations."""
    return change_rows(here, np.flatnonzero(here.kind == Kind.CONFIRM), "confirmations")
