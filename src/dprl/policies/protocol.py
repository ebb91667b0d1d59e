"""Policy: the one interface that evaluation, the gate, reports, reviews and the service use.

Whatever has these members is a policy; there is no class to inherit from. Over labels and over
features it is the same interface: what a state is, is told by the `space` that a policy holds.
"""

from __future__ import annotations

import enum
import functools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Literal,
    Protocol,
    Self,
    TypeAlias,
    runtime_checkable,
)

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Codes, Floats, Ints, is_divided, unusual
from dprl._core.words import either, say, worded
from dprl.errors import ParameterError, PolicyError
from dprl.logs.called import NOBODY, Called
from dprl.logs.log import DEFERRAL, Label, Log
from dprl.logs.outcome import UNDECLARED, Outcome
from dprl.policies.spaces import FeatureSpace, LabelSpace, Space

if TYPE_CHECKING:
    from dprl._core.table import Table
    from dprl.evidence.counts import Evidence
    from dprl.logs.censoring import Near
    from dprl.policies.certificate import Certificate
    from dprl.policies.explain import Explanation, Luck
    from dprl.policies.regions import Situation
    from dprl.policies.table import Approved


def check_learned(
    policy: Any, learner: str, needs: Sequence[str] = ("actions", "probabilities")
) -> Any:
    """What fit(log) of somebody's learner returned, if it is a policy, else a ParameterError."""
    if not all(hasattr(policy, name) for name in needs):
        raise ParameterError(
            f"{learner}.fit(log) returned a {type(policy).__name__}, which is no policy.",
            do=worded(
                "Return a policy of dprl's: {dprl.StochasticPolicy} of probabilities, or "
                "{dprl.CallablePolicy}."
            ),
        )
    return policy


# --- Decisions: what a policy answers at some states, and what it knows about each of them
#
# This is the one thing that evaluation, the gate, reports, reviews and the service read. It says
# for k states and A actions which action is chosen (or that the policy defers), with which
# probability each action is taken, and what the training log knows about the state. Policies that
# keep no evidence (a network, a classifier) give counts of 0 and values of NaN.


class Defer(enum.Enum):
    """The answer of a policy that has nothing to add: do what you would have done."""

    DEFER = DEFERRAL

    def __repr__(self) -> str:
        return DEFERRAL

    __str__ = __repr__


DEFER: Final = Defer.DEFER


@dataclass(frozen=True)
class Avoid:
    """The answer of a policy that warns of one action: anything but this.

    The policy that it stands for is b / (1 - b_a): whoever would have done it does something else,
    in the proportions in which usual practice does the rest.

    Attributes:
        action: The label of the action.

    Example:
        >>> import dprl
        >>> print(dprl.Avoid("wait"))
        not wait
    """

    action: Label

    def __str__(self) -> str:
        return say("not {action}", action=str(self.action))

    def __repr__(self) -> str:
        return f"Avoid({self.action!r})"


Answer: TypeAlias = Label | Defer | Avoid


class Kind(enum.IntEnum):
    """What a decision is, compared with usual practice.

    DEFER: no action is named. CONFIRM: the usual action is named. CHANGE: another one is. UNKNOWN:
    an action is named, and the policy keeps no record of what is usually done there. AVOID: an
    action is named that is not to be taken.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
        >>> dprl.Kind(policy.at("fever").kind[0]).word
        'change'
    """

    DEFER = 0
    CONFIRM = 1
    CHANGE = 2
    UNKNOWN = 3
    AVOID = 4

    @property
    def word(self) -> str:
        """As people, files and JSON say it."""
        return ("defer", "confirmation", "change", "unknown", "avoid")[self]


def unit_of(provenance: Mapping[str, Any]) -> str:
    """Whose labels training points carry: an episode's, or its group's where it has one."""
    return "episode" if provenance.get("groups") == provenance.get("episodes") else "group"


@dataclass(frozen=True)
class Terms:
    """On which terms a policy decides, as far as explanations need it.

    Attributes:
        counted: What the counts are counts of: "episodes", "groups" or "visits".
        n_min: Trajectories an action needs before it can be suggested.
        contrast: Whether as many must have done otherwise.
        approved: Whether the policy was limited to changes that people approved.
        delta: The claim of its certificate fails with at most this probability; None without one.
        unseen: A sentence about one state of which the training log knows nothing.
        elsewhere: The same about many states.
        sure: What a suggestion had to be surely better in ("the model of the log", say); '' where
            counts alone decided.
        credit: λ where it compares credit in place of returns; None where it compares returns.
        measured: What returns are, and which way is better: numbers are shown in its direction.
        called: What people call columns and values, where something is shown.
    """

    counted: str = "episodes"
    n_min: float = math.inf
    contrast: bool = False
    approved: bool = False
    delta: float | None = None
    unseen: str = say("This state was never seen in the training log.")
    elsewhere: str = say("This state was never seen in the training log.")
    sure: str = ""
    credit: float | None = None
    measured: Outcome = UNDECLARED
    called: Called = NOBODY

    @property
    def outcome(self) -> str:
        """What is compared, in one word: "return" or "credit"."""
        return "return" if self.credit is None else "credit"

    @classmethod
    def of(
        cls,
        parameters: Mapping[str, Any],
        provenance: Mapping[str, Any],
        certificate: Certificate | None = None,
        **words: Any,
    ) -> Self:
        """The terms of a policy with these parameters, this provenance and this certificate."""
        n_min = parameters.get("n_min")
        visits = parameters.get("visits") == "all"
        return cls(
            counted="visits" if visits else f"{unit_of(provenance)}s",
            n_min=math.inf if n_min is None else float(n_min),
            contrast=bool(parameters.get("contrast")),
            approved=bool(provenance.get("approved")),
            delta=None if certificate is None else certificate.delta,
            measured=Outcome.of(provenance.get("columns") or {}),
            called=Called.of(provenance.get("columns") or {}),
            **words,
        )


@dataclass(frozen=True, eq=False)
class Estimates:
    """What a learner that asks how sure a difference is estimated of k states and A actions.

    Attributes:
        advantage: float64 (k, A), what the action brings over usual practice in the state, the rest
            of the policy being followed; in units of returns, NaN where it was never seen.
        se: float64 (k, A), its standard error.
    """

    advantage: Floats
    se: Floats

    def at(self, rows: Ints) -> Estimates:
        """The estimates of some states; NaN where a row is -1."""

        def taken(array: Floats) -> Floats:
            return np.where(rows[:, None] >= 0, array[np.maximum(rows, 0)], np.nan)

        return Estimates(taken(self.advantage), taken(self.se))

    def interval(self, groups: Ints, level: float) -> tuple[Floats, Floats]:
        """float64 (k, A), twice: the ends of the interval of each advantage.

        groups: int64 (k, A), trajectories that contain each pair.
        """
        from scipy.special import stdtrit

        half = stdtrit(np.maximum(groups - 1, 1), (1 + level) / 2) * self.se
        return self.advantage - half, self.advantage + half


@dataclass(frozen=True, eq=False)
class Decisions:
    """What a policy answers at k states, and what it knows about them.

    Attributes:
        states: The k states: labels as they were asked about, or numbers 0 to k - 1.
        actions: Action labels, A of them.
        choice: int32 (k,), the code of the action it names; -1 where it names none.
        pi: float64 (k, A), the probability of each action; NaN where it names none.
        terms: On which terms it decides.
        allowed: bool (k, A), the pairs that passed the rule (Eq. 1).
        n: int64 (k, A), trajectories that contain the pair.
        m: int64 (k, A), trajectories that took the action at their first visit of the state.
        Q: float64 (k, A), Q̂(s,a); NaN where n = 0.
        V: float64 (k,), V̂(s); NaN where the state was never visited.
        took_mean: float64 (k, A), mean return of first visits that took the action.
        took_sd: float64 (k, A), sample standard deviation of these returns.
        others_mean: float64 (k, A), mean return of first visits that did otherwise.
        others_sd: float64 (k, A), sample standard deviation of these returns.
        lowest: float64 (k,), smallest return at a first visit.
        highest: float64 (k,), largest return at a first visit.
        planned: float64 (k, A), value of taking the action now and following the plan after; NaN
            where it is not allowed.
        estimates: Advantages with their standard errors, of a learner that asks how sure they are.
            Default None.
        reasons: Texts (k,), why it answers so, of a policy that says it in words of its own.
            Default None: the evidence says it.
        avoid: int32 (k,), the code of the action it warns of, where it names none to take; -1
            elsewhere. Default empty: -1 everywhere.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
        >>> here = policy.at(["fever", "stable"])
        >>> here.answers()
        ['antibiotics', DEFER]
        >>> here.m[0].tolist()
        [54, 0, 2, 193]
    """

    states: Sequence[Any]
    actions: tuple[Label, ...]
    choice: Codes
    pi: Floats
    terms: Terms
    allowed: Bools
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
    estimates: Estimates | None = None
    reasons: NDArray[Any] | None = None
    avoid: Codes = field(default_factory=lambda: np.empty(0, np.int32))

    def __post_init__(self) -> None:
        if len(self.avoid) != len(self.choice):
            object.__setattr__(self, "avoid", np.full(len(self.choice), -1, np.int32))

    @classmethod
    def of(
        cls,
        evidence: Evidence,
        *,
        choice: Codes,
        allowed: Bools,
        planned: Floats,
        terms: Terms,
    ) -> Self:
        """The decisions that make these choices on this evidence.

        Args:
            evidence: The evidence at k states with A actions.
            choice: int32 (k,), the code of the action named; -1 where it defers.
            allowed: bool (k, A), the pairs that passed the rule.
            planned: float64 (k, A), value of taking the action now and following the plan after, in
                units of returns; NaN where it is not allowed.
            terms: On which terms the policy decides.

        Returns:
            The decisions; the probability of an action is 1 where it is named.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> known, pairs = policy.allowed_at(policy.z[:1], None)
            >>> choice = pairs.argmax(axis=1).astype("int32")
            >>> here = Decisions.of(
            ...     known, choice=choice, allowed=pairs, planned=known.pair.mean, terms=Terms()
            ... )
            >>> here.answers()
            ['drug']
        """
        return cls(
            states=evidence.states, actions=evidence.actions, choice=choice,
            pi=pi_of(choice, len(evidence.actions)), terms=terms, allowed=allowed, planned=planned,
            **rows_of(evidence),
        )  # fmt: skip

    @classmethod
    def without_evidence(
        cls,
        states: Sequence[Any],
        actions: tuple[Label, ...],
        pi: Floats,
        terms: Terms,
        choice: Ints | None = None,
    ) -> Self:
        """The decisions of a policy that keeps no evidence.

        Args:
            states: The k states, as they were asked about.
            actions: Action labels, A of them.
            pi: float64 (k, A), the probability of each action; NaN in rows that defer.
            terms: On which terms the policy decides.
            choice: int64 (k,), the code of the action named; -1 where it defers. Default None: the
                most probable action, the first of equals.

        Returns:
            The decisions, with counts of 0 and values of NaN.

        Example:
            >>> pi = np.array([[0.2, 0.8]])
            >>> Decisions.without_evidence(["ill"], ("drug", "wait"), pi, Terms()).answers()
            ['wait']
        """
        rows = pi.argmax(axis=1) if choice is None else choice
        nothing: dict[str, Any] = {
            name: np.broadcast_to(np.array(empty(name)), pi.shape if name in PAIRS else len(pi))
            for name in (*PAIRS, *STATES)
        }
        return cls(states=states, actions=actions, choice=rows.astype(np.int32), pi=pi,
                   terms=terms, **nothing)  # fmt: skip

    def __len__(self) -> int:
        return len(self.choice)

    @functools.cached_property
    def seen(self) -> Bools:
        """bool (k,): the training log knows something about the state."""
        return _read_only(np.asarray(self.m.any(axis=1)))

    @functools.cached_property
    def usual(self) -> Ints:
        """int64 (k,): the most frequent action at first visits, -1 where never visited."""
        return _read_only(np.where(self.seen, self.m.argmax(axis=1), -1))

    @functools.cached_property
    def divided(self) -> Bools:
        """bool (k,): no action has half of the share at first visits; there is no usual one."""
        return _read_only(is_divided(self.m))

    @functools.cached_property
    def kind(self) -> NDArray[np.int8]:
        """int8 (k,): the `Kind` of each decision.

        Where two actions share the first place, or no action has half of the share, choosing any
        of them is a change.
        """
        change = unusual(self.m)[np.arange(len(self.choice)), self.choice]
        kind = np.where(change, Kind.CHANGE, Kind.CONFIRM)
        kind = np.where(self.seen, kind, Kind.UNKNOWN)
        kind = np.where(self.choice < 0, Kind.DEFER, kind)
        return _read_only(np.where(self.avoid >= 0, Kind.AVOID, kind).astype(np.int8))

    @functools.cached_property
    def changes(self) -> Bools:
        """bool (k,): it changes usual practice, by what to take or by what to avoid."""
        return _read_only(np.isin(self.kind, (Kind.CHANGE, Kind.AVOID)))

    @functools.cached_property
    def speaks(self) -> Bools:
        """bool (k,): it names an action, to take or to avoid."""
        return _read_only((self.choice >= 0) | (self.avoid >= 0))

    @functools.cached_property
    def differs(self) -> Bools:
        """bool (k,): it speaks, and some trajectory of the training log did otherwise there."""
        rows = np.arange(len(self.n))
        otherwise = (self.n > 0).sum(axis=1) > (self.n[rows, self.choice] > 0)
        warned = self.n[rows, self.avoid] > 0
        return _read_only(np.where(self.choice >= 0, otherwise, (self.avoid >= 0) & warned))

    @functools.cached_property
    def named(self) -> Codes:
        """int32 (k,): the code of the action it names, to take or to avoid; -1 where none."""
        return _read_only(np.where(self.choice >= 0, self.choice, self.avoid))

    def followed(self, action: Ints) -> Bools:
        """bool (k,): whether these actions (codes) do what it says; true where it says nothing.

        Args:
            action: int (k,), the code of what was done at each state.

        Returns:
            True for the action that it names, and for any but the one it warns of.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.at(["fever", "stable"]).followed(np.array([3, 3])).tolist()
            [False, True]
        """
        took = np.asarray(action) == self.named
        return np.asarray(np.where(self.choice >= 0, took, (self.avoid < 0) | ~took))

    def answers(self) -> list[Answer]:
        """The action it names at each state, what to avoid there, or DEFER.

        Returns:
            A list of k action labels, `Avoid` or DEFER, in the order of `states`.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.at(["fever", "stable"]).answers()
            ['antibiotics', DEFER]
        """
        return answers_of(self.actions, self.choice, self.avoid)

    def probabilities(self, *, behavior: Floats | None = None) -> Floats:
        """The probability π(a|s) of each action; where it defers, what usual practice does.

        Where it warns of an action, the others have the shares that usual practice gives them.

        Args:
            behavior: float64 (k, A), the probabilities of usual practice at these states, used
                where the policy names no action. Default None: the share of training trajectories
                that took each action at their first visit; NaN where a state was never seen.

        Returns:
            float64 (k, A); each row sums to 1, or is NaN.

        Raises:
            PolicyError: `behavior` has another shape.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.at(["fever"]).probabilities().tolist()
            [[1.0, 0.0, 0.0, 0.0]]
        """
        if behavior is None:
            with np.errstate(invalid="ignore"):
                result = self.m / self.m.sum(axis=1, keepdims=True)
        else:
            result = np.array(behavior, dtype=np.float64)
            if result.shape != self.pi.shape:
                raise PolicyError(f"behavior must have shape {self.pi.shape}; got {result.shape}.")
        speaks, warns = self.choice >= 0, np.flatnonzero(self.avoid >= 0)
        result[speaks] = self.pi[speaks]
        result[warns] = without(result[warns], self.avoid[warns])
        return np.asarray(result)

    def at(self, rows: Ints, states: Sequence[Any]) -> Decisions:
        """Some of the decisions, under other names.

        Args:
            rows: int64 (j,), the numbers of the decisions to take, from 0; -1 stands for a state of
                which nothing is known.
            states: What to call the j states.

        Returns:
            The j decisions, in the order of `rows`.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> here = policy.at(["fever", "stable"])
            >>> here.at(np.array([1, 0, -1]), ["second", "first", "unknown"]).answers()
            [DEFER, 'antibiotics', DEFER]
        """
        inside = rows >= 0

        def taken(name: str) -> NDArray[Any]:
            array: NDArray[Any] = getattr(self, name)
            result = np.full((len(rows), *array.shape[1:]), empty(name), array.dtype)
            result[inside] = array[rows[inside]]
            return result

        names = ("choice", "avoid", "pi", *PAIRS, *STATES)
        parts: dict[str, Any] = {name: taken(name) for name in names}
        if self.estimates is not None:
            parts["estimates"] = self.estimates.at(np.asarray(rows))
        if self.reasons is not None:
            parts["reasons"] = np.append(self.reasons, self.terms.unseen)[np.asarray(rows)]
        return replace(self, states=states, **parts)


PAIRS = {
    "allowed": "bool", "n": "int64", "m": "int64", "Q": "float64", "took_mean": "float64",
    "took_sd": "float64", "others_mean": "float64", "others_sd": "float64", "planned": "float64",
}  # fmt: skip
"""What is known of each state and action, (k, A), and its dtype."""
STATES = {"V": "float64", "lowest": "float64", "highest": "float64"}
"""What is known of each state, (k,), and its dtype."""


def empty(name: str) -> Any:
    """What stands in an array of `Decisions` where nothing is known."""
    return {"choice": -1, "avoid": -1, "allowed": False, "n": 0, "m": 0}.get(name, np.nan)


def answers_of(actions: Sequence[Label], choice: NDArray[Any], avoid: NDArray[Any]) -> list[Answer]:
    """Codes of actions to take (k,), and to avoid, as answers."""
    return [
        actions[a] if a >= 0 else Avoid(actions[b]) if b >= 0 else DEFER
        for a, b in zip(choice.tolist(), avoid.tolist(), strict=True)
    ]


def without(practice: Floats, avoid: NDArray[Any]) -> Floats:
    """b / (1 - b_a), float64 (k, A): the shares of the other actions where one (k,) is avoided.

    Where practice does nothing else there are no shares to go by, and it stays as it is.
    """
    rest = practice.copy()
    rest[np.arange(len(rest)), avoid] = 0.0
    total = rest.sum(axis=1, keepdims=True)
    return np.where(total == 0, practice, rest / np.where(total == 0, 1.0, total))


def pi_of(choice: NDArray[Any], n_actions: int) -> Floats:
    """float64 (k, A): 1 at the chosen action, NaN in rows that choose none."""
    pi = np.zeros((len(choice), n_actions))
    pi[choice < 0] = np.nan
    speaks = np.flatnonzero(choice >= 0)
    pi[speaks, choice[speaks]] = 1.0
    return pi


def rows_of(evidence: Evidence) -> dict[str, Any]:
    """Evidence as the arrays that policies and decisions keep, by name."""
    return {
        "n": evidence.pair.n,
        "m": evidence.took.n,
        "Q": evidence.pair.mean,
        "V": evidence.state.mean,
        "took_mean": evidence.took.mean,
        "took_sd": evidence.took.sd,
        "others_mean": evidence.others.mean,
        "others_sd": evidence.others.sd,
        "lowest": np.ascontiguousarray(evidence.span[:, 0]),
        "highest": np.ascontiguousarray(evidence.span[:, 1]),
    }


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


# --- Policy: the one interface that evaluation, the gate, reports, reviews and the service use


@runtime_checkable
class Policy(Protocol):
    """What names an action in a state, or says DEFER.

    Attributes:
        space: What a state is, and how raw input and logs become states.
        actions: Action labels, A of them.
        parameters: The learner and its settings.
        provenance: Where it comes from: digest and size of the training log, version of dprl.
        certificate: What is proved about it, where it went through `dprl.gate`; else None.
        knows_practice: Whether it keeps what was usually done in its states. Only then can it say
            what it changes.
        may_change: Whether it may change usual practice somewhere, and knows it.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
        >>> isinstance(policy, dprl.Policy)
        True
    """

    @property
    def space(self) -> Space: ...
    @property
    def actions(self) -> tuple[Label, ...]: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def provenance(self) -> Mapping[str, Any]: ...
    @property
    def certificate(self) -> Certificate | None: ...
    @property
    def knows_practice(self) -> bool: ...
    @property
    def may_change(self) -> bool: ...

    def at(self, states: Any) -> Decisions:
        """What it answers at these states, and everything it knows about them.

        Args:
            states: The states, as the policy's `space` takes them: k labels, or (k, d) features; or
                a single one.

        Returns:
            The k decisions, with the evidence behind them.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.at(["fever", "stable"]).answers()
            ['antibiotics', DEFER]
        """

    def act(self, states: Any) -> Any:
        """The action for each state, what to avoid there, or DEFER.

        Args:
            states: The states, as the policy's `space` takes them: k labels, or (k, d) features; or
                a single one.

        Returns:
            A list of k action labels, `Avoid` or DEFER; for a single state, a single answer.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.act("fever")
            'antibiotics'
        """

    def probabilities(self, states: Any, *, behavior: Floats | None = None) -> Floats:
        """The probability π(a|s) of each action; where it defers, what usual practice does.

        Args:
            states: The states, as the policy's `space` takes them: k labels, or (k, d) features; or
                a single one.
            behavior: float64 (k, A), the probabilities of usual practice at these states, used
                where the policy defers. Default None: what the policy knows of usual practice, NaN
                where it knows nothing.

        Returns:
            float64 (k, A), the probability of each action in the order of `actions`.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.probabilities(["fever"]).tolist()
            [[1.0, 0.0, 0.0, 0.0]]
        """

    def explain(self, state: Any, *, cases: bool = False) -> Explanation:
        """Why it answers as it does in one state.

        Args:
            state: A single state, as the policy's `space` takes it.
            cases: Name similar training episodes too, where the policy knows them. Their labels may
                be patients'. Default False.

        Returns:
            The answer, the reason for it in a sentence, and a table of the actions seen there.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.explain("fever").kind
            'change'
        """

    def changes(self, *, cases: bool = False) -> Table:
        """Where its suggestion is not what is usually done.

        Args:
            cases: Name the training episodes too, where the policy knows them. Default False.

        Returns:
            A table of the changes: the state, the usual and the suggested action, and counts.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.changes()["state"]
            ['fever', 'worse']
        """

    def bootstrap_neighbors(self) -> Near | None:
        """What counts near a place, for returns that were cut short.

        Returns:
            A function that finds the rows near a place; None over labels.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.bootstrap_neighbors() is None
            True
        """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy file.

        Args:
            path: Where to write it; a file that is there is replaced.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> import pathlib, tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = pathlib.Path(folder, "care.policy")
            ...     policy.save(path)
            ...     dprl.load(path).act("fever")
            'antibiotics'
        """

    def digest(self) -> str:
        """SHA-256 of everything it holds.

        Returns:
            The digest as hexadecimal text.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.digest() == policy.digest()
            True
        """


@runtime_checkable
class DeferringPolicy(Policy, Protocol):
    """A policy that knows usual practice: it can be reported, reviewed and served.

    Attributes:
        KIND: What its file calls this kind of policy.
        changes_by: What one change is about.
        terms: On which terms it decides.
        stated: What its learner states about the whole policy, in sentences; empty for most.
        conditions: What its values are of: the time that counts, and how cut episodes were treated.
        gain: The gain over usual practice that it states, in numbers; None for most.
        luck: How far luck explains its changes, in words; None where that is not recorded.
    """

    KIND: ClassVar[str]
    changes_by: ClassVar[Literal["state", "cell", "region", "rule"]]

    @property
    def terms(self) -> Terms: ...
    @property
    def stated(self) -> tuple[str, ...]: ...
    @property
    def conditions(self) -> tuple[str, ...]: ...
    @property
    def gain(self) -> Mapping[str, Any] | None: ...
    @property
    def luck(self) -> Luck | None: ...

    def confirmations(self, *, cases: bool = False) -> Table:
        """Where its suggestion is what is usually done already."""

    def summary(self) -> dict[str, Any]:
        """The counts that describe it, as plain numbers."""

    def situations(self, log: Log) -> list[Situation]:
        """Its changes, and the steps of a log that each is about."""

    def limited_to(self, approved: Sequence[Approved], **noted: Any) -> DeferringPolicy:
        """The policy with these of its changes alone; `noted` goes into its provenance."""


@dataclass(frozen=True, eq=False)
class _Asked:
    """Something of a user's own that has `actions` and `probabilities`, asked as a policy."""

    own: Any

    certificate = None
    knows_practice = may_change = False

    @functools.cached_property
    def space(self) -> Space:
        names = tuple(getattr(self.own, "feature_names", ()))
        even = np.ones(len(names))
        return FeatureSpace(names, even, even) if names else LabelSpace(())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    @property
    def parameters(self) -> Mapping[str, Any]:
        return getattr(self.own, "parameters", {})

    @property
    def provenance(self) -> Mapping[str, Any]:
        return getattr(self.own, "provenance", {})

    def at(self, states: Any) -> Decisions:
        pi = np.asarray(self.own.probabilities(states), np.float64)
        return Decisions.without_evidence(range(len(pi)), tuple(self.own.actions), pi, Terms())

    def bootstrap_neighbors(self) -> None:
        return None


def as_policy(given: Any) -> Policy:
    """`given` itself where it is a policy; an object with `actions` and `probabilities` as one."""
    if isinstance(given, Policy):
        return given
    if not (hasattr(given, "probabilities") and hasattr(given, "actions")):
        raise PolicyError(
            f"a {type(given).__name__} is no policy of dprl's.",
            do=worded(
                "Wrap what predicts: dprl.CallablePolicy(model, {choice}).",
                choice=either("actions=log.actions", "--actions log.actions"),
            ),
        )
    return _Asked(given)


def is_drawn(policy: Any) -> bool:
    """Whether play draws its actions from `probabilities`; else it takes `at(states).choice`."""
    return not getattr(policy, "knows_practice", hasattr(policy, "at"))
