r"""HeldOut: a policy meets a log that it was not made from.

Whoever judges a policy on other episodes (evaluation, comparison, sweep, bounds, certificates,
reports) begins in the same way, and this is that beginning, once:

1. the log gets the states and labels that the policy takes (`like_policy`); the rows of a log in
   parts, on disk or on a cluster, are brought together first, as codes and numbers (`rows_of`);
2. gamma and the treatment of cut episodes are as given, or the policy's own;
3. a log that the policy was made or chosen from is refused, and so is a log of something else;
4. cut episodes are treated, the episodes of a group stand in the order in which they happened, and
   the rows that are left remember where they were;
5. the policy is asked at every step that is left (`PolicyAtSteps`);
6. what usual practice does there is as given, as the log records it, or estimated (`Behavior`).

4 to 6 are done when they are first asked for, and once.

A policy may be any of dprl's, or any model through `dprl.CallablePolicy`. Labels are matched by
name. In a state that it never saw, a policy that can defer defers. An action that the policy does
not know has probability 0 where the policy acts. An action of the policy that is not in the log
gets a column of its own, after the log's actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, is_divided
from dprl._core.checks import Cut, check_cut, check_gamma, check_range, check_seed
from dprl._core.words import either, joined, option, say, sentences, worded
from dprl.errors import ParameterError, PolicyError
from dprl.evidence.behavior import Behavior, repeats_of
from dprl.evidence.score_test import ScoreTest
from dprl.logs.censoring import Reads, treat_cut
from dprl.logs.design import all_chances
from dprl.logs.log import Label, Log, check_log
from dprl.logs.overlap import UNRECORDED, cannot_tell, seen, ungrouped
from dprl.logs.source import Chunk, Source, as_source, check_claim
from dprl.policies.familiar import check_familiar, like_policy
from dprl.policies.protocol import Policy, as_policy, without

Rows: TypeAlias = NDArray[np.int64] | slice

COLUMNS = ("state", "action", "reward", "time", "available", "propensity", "ended")
"""What is read of the rows, and of the endings, of a log in parts."""
ROW = "row of the log"
"""What remembers, in the treated log, where a row was."""
FLATTERED = (
    "the estimate would flatter it.",
    worded(
        "Evaluate on episodes it has not seen; keep some aside before learning: {command}.",
        command=either("log.split(0.5, seed=0)", "dprl split"),
    ),
)
"""Why an estimate refuses a log that the policy has seen, and what to do."""
AT_ONCE = 1 << 16
"""Number of steps that a policy is asked about at a time."""


_LAST: dict[tuple[str, tuple[int, ...]], tuple[Behavior, ...]] = {}
"""The models of practice over features of the last two logs, by log and seeds: an evaluation, a
report and bounds of one log ask for the same ones, and a budget for a log with two outcomes."""


class Chances(NamedTuple):
    """The chance of what was done at every step that is left.

    Attributes:
        taken: float64 (N,), on record, given or estimated.
        floor: What an estimated chance is raised to: a number, or float64 (N,).
        recorded: bool (N,), whether it is on record.
    """

    taken: Floats
    floor: Any
    recorded: Bools

    @property
    def raised(self) -> Floats:
        """float64 (N,), at least the floor, and above 0."""
        least = np.maximum(self.floor, np.finfo(float).tiny)
        return np.asarray(np.maximum(self.taken, least))


@dataclass(frozen=True)
class _Rows:
    """The statistic that brings rows together: the log of each chunk, by its first group.

    Attributes:
        times: Whether times are kept, which say what comes first in a group of several episodes.
    """

    times: bool

    def of(self, chunk: Chunk) -> dict[int, Log]:
        """The rows of one chunk."""
        time = chunk.log.time if self.times else None
        return {chunk.first_group: replace(chunk.log, time=time, offset=None)}

    def merge(self, one: dict[int, Log], other: dict[int, Log]) -> dict[int, Log]:
        """The rows of both."""
        return one | other


def rows_of(log: Any) -> Log:
    """A log in memory, wherever its rows are: itself, or the rows of its parts brought together.

    Estimates weigh every step of every group in every draw, so nothing much smaller than the codes
    of the rows would do: 16 bytes a row, 8 more for a recorded probability, and 8 for times where a
    group has several episodes. (Reading a file takes about 150.) Episodes come in the order of
    their labels, as in a log that is read.
    """
    if isinstance(log, Log):
        check_log(log)
        return log
    whole = rows_together(as_source(log))
    labels = whole.episodes
    order = np.array(sorted(range(len(labels)), key=labels.__getitem__), np.int64)
    return whole.in_order(order)


def rows_together(source: Source) -> Log:
    """The rows of a log, wherever they are, in the order of its chunks."""
    facts = source.facts
    by_group = source.reduce(_Rows(facts.n_groups < facts.n_episodes))
    logs = [by_group.pop(first) for first in sorted(by_group)]
    before = np.cumsum([0, *(len(part.groups) for part in logs[:-1])])
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in logs])
        for name in COLUMNS
        if getattr(logs[0], name) is not None
    }
    return Log(
        starts=np.concatenate(([0], np.cumsum(np.concatenate([part.lengths for part in logs])))),
        episodes=tuple(e for part in logs for e in part.episodes),
        group=np.concatenate([n + part.group for n, part in zip(before, logs, strict=True)]),
        groups=tuple(g for part in logs for g in part.groups),
        actions=facts.actions,
        states=facts.states,
        menus=facts.menus,
        events=facts.events,
        columns=facts.columns,
        **columns,
    )


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A log that meets a policy which was not made from it; made by `HeldOut.meet`.

    Attributes:
        policy: The policy.
        given: The log as it was given, in memory.
        log: The log with the states that the policy takes.
        gamma: Discount per step.
        cut: How cut episodes are treated.
        practice: The behaviour as given; None: as recorded, and estimated where it is not.
        seed: Seed of the folds and the models of the behaviour.
        reads: What of the treated log is read, as in `treat_cut`.
        seen: What the log shares with those behind the policy; "" where it is held out.
        unsure: Why it cannot be told what the policy has seen; "" where that is on record.
        strange: What is to be said of states that the policy does not know, one sentence each.
    """

    policy: Policy
    given: Log
    log: Log
    gamma: float
    cut: Cut | None
    practice: Any
    seed: int = 0
    reads: Reads = "rewards"
    seen: str = ""
    unsure: str = ""
    strange: tuple[str, ...] = ()

    @classmethod
    def meet(
        cls,
        policy: Any,
        log: Log | Source,
        *,
        gamma: float | None = None,
        cut: Cut | None = None,
        behavior: Behavior | Any | None = None,
        seed: int = 0,
        allow_seen: bool = False,
        claim: str = "an interval",
        discount: str = "gamma",
        reads: Reads = "rewards",
        refusal: tuple[str, str] = FLATTERED,
    ) -> HeldOut:
        """Let a policy meet a log, or say why it must not.

        Args:
            policy: Any policy of dprl, or an object with `actions` and `probabilities`.
            log: The log, in memory or in parts.
            gamma: Discount per step. Default None: the policy's own.
            cut: How cut episodes are treated. Default None: as when the policy was learned.
            behavior: The probability of each action: a `Behavior` of this log, or numbers as for
                `Behavior.given`. Default None: as recorded, and estimated where it is not.
            seed: Seed of the folds and the models. Default 0.
            allow_seen: Whether a log that the policy was made or chosen from is only warned of.
            claim: What is made of it, in words: a claim about episodes that were left out needs
                that to be declared. Default "an interval".
            discount: What the caller calls gamma. Default "gamma".
            reads: What of the treated log is read, as in `treat_cut`. Default "rewards".
            refusal: Why a log that was seen is refused, and what to do instead. Default: as for an
                estimate.

        Returns:
            The log, ready to judge the policy by.
        """
        given = rows_of(log)
        log = like_policy(policy, given)
        settings: Mapping[str, Any] = getattr(policy, "parameters", {})
        gamma = settings.get("gamma") if gamma is None else gamma
        if gamma is None:
            raise ParameterError(
                f"this policy knows no {discount}.",
                do=worded(
                    "Say how to discount: {discount}, or 1.", discount=option(discount, 0.99)
                ),
            )
        cut = settings.get("cut") if cut is None else cut
        check_cut(cut)
        gamma, seed = check_gamma(gamma), check_seed(seed)
        check_claim(cut, log, claim)
        asked = as_policy(policy)
        origin = getattr(asked, "provenance", {})
        shared = seen(origin, log)
        if shared and not allow_seen:
            why, do = refusal
            raise PolicyError(f"{shared}: {why}", f"log {log.digest()[:12]}", do)
        unsure = cannot_tell(origin) or ("" if "log" in origin else UNRECORDED)
        unsure = unsure or ungrouped(origin, log)
        strange = check_familiar(asked, log)
        return cls(asked, given, log, gamma, cut, behavior, seed, reads, shared, unsure, strange)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is to be said of this log and this policy, one sentence each."""
        if self.seen:
            return (f"{self.seen}: every estimate below flatters it.", *self.strange)
        return (*self.untold(say("If it has, every estimate below flatters it.")), *self.strange)

    def untold(self, then: str) -> tuple[str, ...]:
        """That it cannot be told what the policy has seen, where that is so, and what follows."""
        return (sentences(joined("", (self.unsure, ".")), then),) if self.unsure else ()

    @cached_property
    def _treated(self) -> tuple[Log, Rows]:
        """The log with its cut episodes treated, and the rows of `log` that are left in it."""
        more, near = self.log.more, self.policy.bootstrap_neighbors()
        numbered = replace(self.log, more={**more, ROW: np.arange(self.log.n_steps, dtype=float)})
        treated = treat_cut(numbered, self.gamma, self.cut, near, reads=self.reads).gathered()
        rows = treated.more[ROW].astype(np.int64)
        whole = len(rows) == self.log.n_steps and bool((rows[1:] > rows[:-1]).all())
        kept = {name: column for name, column in treated.more.items() if name != ROW}
        return replace(treated, more=kept), slice(None) if whole else rows

    @property
    def treated(self) -> Log:
        """The log with its cut episodes treated."""
        return self._treated[0]

    @property
    def rows(self) -> Rows:
        """The rows of `log` that are left, in order; a slice, which copies nothing, if all are."""
        return self._treated[1]

    @cached_property
    def acts(self) -> PolicyAtSteps:
        """What the policy does at the steps that are left."""
        found = acts(self.policy, self.treated)
        if found.avoid is None:
            return found
        return found.with_practice(self.behavior.table, self.behavior.row[self.rows])

    @cached_property
    def behavior(self) -> Behavior:
        """Usual practice on `log`; one of the log before it was encoded has the same rows."""
        if self.practice is None:
            known = all_chances(self.log)
            if known is not None:
                rows, log = np.arange(self.log.n_steps), self.log
                how = say("as recorded, for all actions")
                return Behavior(known, rows, log.action, how, False, log.digest())
            return Behavior.mean(self.behaviors)
        if not isinstance(self.practice, Behavior):
            return Behavior.given(self.log, self.practice)
        if self.practice.log not in (self.log.digest(), self.given.digest()):
            raise ParameterError(
                "this Behavior is of another log.",
                do="Use Behavior.fit(log) of the log given here.",
            )
        return self.practice

    @cached_property
    def behaviors(self) -> tuple[Behavior, ...]:
        """Usual practice as it is estimated, in as many ways of making folds as `repeats_of`."""
        seeds = tuple(repeats_of(self.log, self.seed))
        if len(seeds) == 1:
            return (Behavior.fit(self.log, seed=self.seed),)
        key = self.log.digest(), seeds
        fitted = _LAST.get(key)
        if fitted is None:
            fitted = tuple(Behavior.fit(self.log, seed=s) for s in seeds)
            while len(_LAST) > 1:
                del _LAST[next(iter(_LAST))]
            _LAST[key] = fitted
        return fitted

    @cached_property
    def doubt(self) -> ScoreTest | None:
        """What the record says of the model of practice, where the policy acts, too."""
        suggested = np.full(self.log.n_steps, -1, np.int64)
        suggested[self.rows] = self.acts.suggested[self.acts.row]
        group = np.repeat(self.log.group, self.log.lengths).astype(np.int64)
        return self.behavior.doubt_at(group, suggested, self.seed)

    def chances(self, clip: float) -> Chances:
        """The chances of what was done, with estimated ones raised to `clip`."""
        taken, on_record = self.behavior.took()[self.rows], self.treated.propensity
        if on_record is None or self.practice is not None:
            floor = clip if self.behavior.estimated else 0.0
            return Chances(taken, floor, np.zeros(len(taken), bool))
        recorded = ~np.isnan(on_record)
        floors = np.where(recorded, 0.0, clip)
        return Chances(np.where(recorded, on_record, taken), floors, recorded)

    def declared_range(self, given: Any) -> tuple[float, float] | None:
        """The range of returns as declared: as given, or when the policy was certified."""
        if given is not None:
            return check_range(self.log.outcome.inside(given))
        from dprl.logs.survival import possible_values

        if (possible := possible_values(self.log.columns)) is not None:
            return possible
        proved = getattr(self.policy, "certificate", None)
        return None if proved is None or proved.gamma != self.gamma else proved.value_range


@dataclass(frozen=True, eq=False)
class PolicyAtSteps:
    """What a policy does at every step of a log: distributions over actions, and where it defers.

    Attributes:
        pi: float64 (M, A'), π(a|s) where the policy acts, zeros where it defers; the log's
            actions come first, then the actions that only the policy knows.
        acts: bool (M,), false where the policy defers.
        changed: bool (M,), true where the policy itself records a change of usual practice; None
            for a policy that does not know usual practice.
        row: int64 (N,), the row of `pi`, `acts`, `changed` and `divided` that belongs to each
            step.
        actions: The A' action labels.
        divided: bool (M,), true where the policy itself records that practice is divided. Default
            None: it does not know usual practice.
        avoid: int64 (M,), the action that it warns of, where it names none to take; -1 elsewhere.
            Default None: it warns of nothing.
    """

    pi: Floats
    acts: Bools
    changed: Bools | None
    row: NDArray[np.int64]
    actions: tuple[Label, ...]
    divided: Bools | None = None
    avoid: NDArray[np.int64] | None = None

    @property
    def suggested(self) -> NDArray[np.int64]:
        """int64 (M,): the most probable action (the first, if several are), or the one it warns of.

        -1 where it defers.
        """
        likely = np.where(self.acts, self.pi.argmax(axis=1), -1)
        return likely if self.avoid is None else np.where(self.avoid >= 0, self.avoid, likely)

    @property
    def warned(self) -> Bools:
        """bool (N,): the steps at which it says what to avoid."""
        if self.avoid is None:
            return np.zeros(len(self.row), bool)
        return np.asarray(self.avoid[self.row] >= 0)

    def with_practice(self, practice: Floats, row: NDArray[np.int64]) -> PolicyAtSteps:
        """The same, π = b / (1 - b_a) where the policy warns of an action a.

        Such rows are told apart by what usual practice does there.

        Args:
            practice: float64 (M', A), what usual practice does.
            row: int64 (N,), its row at each step.
        """
        assert self.avoid is not None  # else nothing is asked of practice
        steps = np.flatnonzero(self.avoid[self.row] >= 0)
        key = self.row[steps] * len(practice) + row[steps]
        keys, place = np.unique(key, return_inverse=True)
        mine, theirs = np.divmod(keys, len(practice))
        pi = np.zeros((len(keys), self.pi.shape[1]))
        pi[:, : practice.shape[1]] = practice[theirs]
        own = self.row.copy()
        own[steps] = len(self.pi) + place
        more: dict[str, Any] = {
            name: None if given is None else np.concatenate((given, given[mine]))
            for name in ("acts", "changed", "divided", "avoid")
            for given in (getattr(self, name),)
        }
        pi = np.concatenate((self.pi, without(pi, self.avoid[mine])))
        return replace(self, pi=pi, row=own, **more)

    def changes(self, practice: Floats, row: NDArray[np.int64]) -> tuple[Bools, Bools]:
        """bool (N,), twice: where the policy changes usual practice, and where that is divided.

        For a policy that does not know usual practice, `practice` (M', A') holds the chance of each
        action, and `row` (N,) its row at each step.
        """
        if self.changed is not None and self.divided is not None:
            return np.asarray(self.changed[self.row]), np.asarray(self.divided[self.row])
        suggested = self.suggested[self.row]
        usual, divided = practice.argmax(axis=1)[row], is_divided(practice)[row]
        return np.asarray((suggested >= 0) & ((suggested != usual) | divided)), divided


def acts(policy: Policy, log: Log) -> PolicyAtSteps:
    """What `policy` does at the steps of `log`."""
    _check(policy, log)
    actions = (*log.actions, *(a for a in policy.actions if a not in set(log.actions)))
    place = {label: i for i, label in enumerate(actions)}
    columns = [place[label] for label in policy.actions]
    states, row = policy.space.of_log(log)
    parts = [_decided(policy, states[i : i + AT_ONCE]) for i in range(0, len(states), AT_ONCE)]
    pi, acting, changed, divided, avoid = (
        np.concatenate(part) for part in zip(*parts, strict=True)
    )
    wide = np.zeros((len(pi), len(actions)))
    wide[:, columns] = np.where((acting & (avoid < 0))[:, None], pi, 0.0)
    if not policy.knows_practice:
        return PolicyAtSteps(wide, acting, None, row, actions)
    warned = np.append(columns, -1)[avoid] if (avoid >= 0).any() else None
    return PolicyAtSteps(wide, acting, changed, row, actions, divided, warned)


def _decided(policy: Policy, states: Any) -> tuple[NDArray[Any], ...]:
    """π (k, A) in the policy's order; where it acts, changes practice, finds it divided, (k,).

    The last is the action it warns of, -1 where none.
    """
    here = policy.at(states)
    return here.pi, here.speaks, here.changes, here.divided, here.avoid


def _check(policy: Policy, log: Log) -> None:
    kinds = [{isinstance(a, str) for a in x} for x in (policy.actions, log.actions)]
    if kinds[0].isdisjoint(kinds[1]):
        words = ["text" if True in kind else "numbers" for kind in kinds]
        raise PolicyError(
            f"the policy's actions are {words[0]}, the log's {words[1]}.",
            f"{policy.actions[0]!r} and {log.actions[0]!r}",
            "Name actions in the log as they were named when the policy was made.",
        )
    if set(policy.actions).isdisjoint(log.actions):
        raise PolicyError(
            "the policy and the log have no action in common.",
            f"{policy.actions[0]!r} is none of {', '.join(map(repr, log.actions[:4]))}",
        )
