"""What a policy would change, in words and numbers a reviewer can check against a log.

A policy over labels has one `Change` per state. A policy over cells has one per cell, described by
the feature ranges of the log's steps in it; a certificate is about whole cells, so they are neither
merged nor cut. A policy made of rules has one per rule, and what is on record about the rule takes
the place of numbers in training. A policy over other features has one per region: ranges of
features in which the policy makes this change at most of the log's steps
(`dprl.policies.regions` finds them); changes at other steps are only counted. The counts and
values of a region are those of a typical step, the one nearest to the median of the region's steps
in the policy's own distance.

The check against the log takes from every episode (group) its first step in the situation; x are
the returns where the suggestion was taken there, y where it was not. The advantage over usual
practice is A = (1 - p)(mean x - mean y), where p is the share that took it, with the interval of
`dprl._core.inference`; the policy shows the same quantity for its training log as *advantage*. On a
log that did not train the policy, that is a held-out check; it is still an observation, not a
trial.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dprl._core.arrays import DIVIDED, Bools, Ints
from dprl._core.html.catalogue import Words
from dprl._core.inference import LEVEL, contrast_of
from dprl._core.table import Table
from dprl._core.words import joined, said_by, say
from dprl.errors import LogError
from dprl.evaluation.divergence import weighed
from dprl.evaluation.subgroups import Subgroups
from dprl.evidence.balance import Balance, Compared, ComparedChange, changes_in, comparable
from dprl.evidence.decision_points import TOLERANCE
from dprl.evidence.propensity import EQUAL
from dprl.logs.called import Called
from dprl.logs.censoring import Reads, from_cut_on
from dprl.logs.log import CUT, Label, Log
from dprl.logs.outcome import UNDECLARED, Outcome
from dprl.logs.overlap import cannot_tell
from dprl.logs.returns import returns
from dprl.logs.source import DROPS, UNRELATED, WEIGHED, unseen_words
from dprl.policies.explain import (
    change_rows,
    change_words,
    plan_beyond,
    silences,
    why_silent,
    window_words,
)
from dprl.policies.held_out import HeldOut
from dprl.policies.protocol import Decisions, DeferringPolicy, Kind
from dprl.policies.regions import Region, Situation, in_regions
from dprl.policies.rules.policy import RulePolicy
from dprl.policies.rules.text import RuleRecord, not_issued, record_of, rules_of, where
from dprl.policies.rules.tree import Picture, picture_of
from dprl.policies.spaces import FeatureSpace
from dprl.policies.table import state_words

# --- Change: one thing that a policy would do differently, with its evidence and past cases


@dataclass(frozen=True)
class Check:
    """What a log says about one change.

    Attributes:
        took: Number of episodes (groups, where the log has them) that took the suggestion at their
            first step in the situation.
        others: Number of episodes (groups) that did otherwise there.
        got: Mean return of those that took it; None where nobody did.
        got_others: Mean return of the others; None where there are none.
        advantage: Mean return of those that took it minus the mean return of all; None where nobody
            took it or nobody did otherwise.
        low: Lower end of the approximate 95 % interval of the advantage; None where a side has only
            one return, or all returns are equal.
        high: Upper end of the same interval.
        outcome: What the returns are; numbers are in its direction.
        unfair: Whether recorded chances of one action differ, so that those who took it were
            chosen, and cannot weigh them: one is missing, or there are several actions to take
            instead of one to avoid. Then nothing is compared.
    """

    took: int
    others: int
    got: float | None
    got_others: float | None
    advantage: float | None
    low: float | None
    high: float | None
    outcome: Outcome = UNDECLARED
    unfair: bool = False


@dataclass(frozen=True)
class Sure:
    """How sure a learner is of one change, where it asks that.

    Attributes:
        where: In what it had to be better, in short words: "the model", say.
        advantage: What the change brings over usual practice there, in units of returns.
        se: The standard error of the advantage.
        low: Lower end of its 95 % interval, for this change alone; None where there is none.
        high: Upper end of the same interval.
        episodes: Number of trajectories that contain the suggestion in this situation.
        falls: Whether less of the outcome is better.
    """

    where: str
    advantage: float
    se: float
    low: float | None
    high: float | None
    episodes: int
    falls: bool = False

    @property
    def sure(self) -> bool:
        """Whether the interval lies on the better side of 0."""
        if self.low is None or self.high is None:
            return False
        return self.high < 0 if self.falls else self.low > 0


@dataclass(frozen=True)
class Change:
    """One thing that a policy would do differently.

    Attributes:
        key: A short name of the change, computed only from what the change says.
        situation: Where the change applies, in words.
        state: The label of the state; None where the situation is a region.
        region: The region of features; None where the situation is a state.
        usual: The action that is usually taken there; "practice is divided" where none has half of
            the share.
        suggested: The action that the policy suggests; "not" an action where it says what to avoid.
        shares: (action, share of episodes that took it at their first visit), largest share first.
        counted: What the counts count: "episodes", "groups" or "visits".
        episodes: Number in the training log that took the suggestion at their first visit.
        others: Number in the training log that did otherwise at their first visit.
        value_first: Mean return of those that took the suggestion at their first visit.
        value_usual: Mean return of usual practice, from the first visit.
        rule_difference: The difference that the learner's rule compared: the mean return of all
            that ever took the suggestion there, from the first time they did, minus value_usual.
        rule_episodes: Number of episodes behind rule_difference.
        advantage: The difference to usual practice at first visits, value_first - value_usual. It
            is not the same quantity as rule_difference, and may even differ from it in sign.
        low: Lower end of the approximate 95 % interval of the advantage, for this change alone;
            None where there is no interval.
        high: Upper end of the same interval.
        planned: Value of the suggestion if the plan is followed afterwards; None where there is no
            plan.
        beyond: Whether `planned` lies beyond every return that was seen from there.
        typical: (name, value) of each feature of a typical state; empty for labels.
        steps: Number of steps of the log at which the policy makes this change.
        met: Number of episodes (groups) of the log that meet such a step.
        purity: Share of the log's steps in the situation at which the change is made.
        confirmed: Share of them at which the policy confirms the usual action.
        deferred: Share of them at which it is silent.
        check: What the log says about the change.
        sure: How sure the learner is of it; None for learners that do not ask. Where there is one,
            the learner decided by it, and the differences of returns are another look.
        rule: What is on record about the rule that makes the change; None where no rule does. It
            takes the place of the numbers in training.
        avoid: The label of the action to avoid, where that is what it suggests; else None.
        falls: Whether less of the outcome is better.
    """

    key: str
    situation: str
    state: Label | None
    region: Region | None
    usual: Label
    suggested: Label
    shares: tuple[tuple[Label, float], ...]
    counted: str
    episodes: int
    others: int
    value_first: float
    value_usual: float
    rule_difference: float
    rule_episodes: int
    advantage: float
    low: float | None
    high: float | None
    planned: float | None
    typical: tuple[tuple[str, float | str], ...]
    steps: int
    met: int
    purity: float
    check: Check
    sure: Sure | None = None
    rule: RuleRecord | None = None
    confirmed: float = 0.0
    deferred: float = 0.0
    beyond: bool = False
    avoid: Label | None = None
    falls: bool = False

    def took(self, log: Log, rows: Ints) -> NDArray[np.bool_]:
        """bool: whether the steps `rows` of a log did as it suggests."""
        own = {label: i for i, label in enumerate(log.actions)}
        named = self.suggested if self.avoid is None else self.avoid
        return np.asarray((log.action[rows] == own.get(named, -1)) == (self.avoid is None))

    @property
    def divided(self) -> bool:
        """Whether practice is divided there: no action has half of the share."""
        return self.usual == DIVIDED

    @property
    def instead(self) -> Label:
        """The usual action without what is suggested: of two with half each, the other one."""
        named = self.suggested if self.avoid is None else self.avoid
        halves = getattr(self.usual, "parts", ())
        others = [half for half in halves if (half == str(named)) == (self.avoid is not None)]
        return others[0] if len(others) == 1 else self.usual

    @property
    def drawn(self) -> tuple[float | None, ...]:
        """The differences that pages draw of it, besides those of a check."""
        if self.rule is not None:
            rule = self.rule
            return (rule.advantage, rule.low, rule.high, *(rule.returns or ()))
        sure = () if self.sure is None else (self.sure.advantage,)
        return (self.advantage, self.low, self.high, *sure)

    @property
    def otherwise(self) -> float:
        """Share of the log's steps in the situation at which the policy makes another change."""
        return max(1.0 - self.purity - self.confirmed - self.deferred, 0.0)

    @property
    def below(self) -> bool:
        """Whether the plan's value of the suggestion is worse than usual practice."""
        if self.planned is None:
            return False
        size = max(abs(self.planned), abs(self.value_usual))
        short = self.value_usual - self.planned
        return (-short if self.falls else short) > TOLERANCE * size

    @property
    def contradicted(self) -> bool:
        """Whether the interval at first visits lies on the worse side of 0."""
        if self.low is None or self.high is None:
            return False
        return self.low > 0 if self.falls else self.high < 0


@dataclass(frozen=True)
class Claim:
    """All situations in which a policy suggests one action, taken together.

    Attributes:
        situations: Where, in words, the surest first.
        suggested: What is suggested: an action, or "not" an action.
        usual: What is usually done there instead, never what is suggested; several where situations
            differ in it.
        changes: Keys of the changes; empty where the usual action is to be taken always.
        share: Share of the log's decisions there at which it is done already.
        check: What the log says of all of them together, situation by situation.
        compared: Number of situations that have cases on both sides, which the check is about.
    """

    situations: tuple[str, ...]
    suggested: Label
    usual: tuple[Label, ...]
    changes: tuple[str, ...]
    share: float
    check: Check
    compared: int

    @property
    def always(self) -> bool:
        """Whether it is what is usually done, to be done always."""
        return not self.changes


@dataclass(frozen=True)
class Case:
    """One past step in a situation.

    Attributes:
        episode: Label of the episode.
        time: Time of the step, as in the log.
        action: The action that was taken.
        outcome: The return from this step on.
        cut: Whether the episode was cut (recording stopped before its end).
        after: The actions that followed, in a few words.
        features: (name, value) of each feature of the state; empty for labels.
    """

    episode: Label
    time: str
    action: Label
    outcome: float
    cut: bool
    after: str
    features: tuple[tuple[str, float | str], ...] = ()


# --- Counts of a log: steps changed outside of all regions or silent and why, episodes after a
# cut


def after_cut(log: Log, settled: Log) -> Ints:
    """Positions of the episodes in `settled` that came after a cut one of their group in `log`."""
    late = {log.episodes[e] for e in from_cut_on(log)}
    return np.array([i for i, e in enumerate(settled.episodes) if e in late], np.int64)


def outside_of(log: Log, episodes: Ints, rows: Ints) -> Ints:
    """Those of `rows` that lie in none of these episodes."""
    if not len(episodes):
        return rows
    return rows[~np.isin(np.searchsorted(log.starts, rows, "right") - 1, episodes)]


def scattered(
    policy: DeferringPolicy, here: Decisions, situations: list[Situation]
) -> tuple[tuple[Label, Label, int], ...]:
    """The changes `here` at the log's steps that no region holds, the most steps first."""
    if policy.changes_by != "region":
        return ()
    covered = np.zeros(len(here.kind), bool)
    for one in situations:
        covered[one.made] = True
    words = change_words(here)
    steps = Counter(
        change for change, held in zip(words, covered, strict=True) if change and not held
    )
    order = sorted(steps, key=lambda c: (-steps[c], str(c[0]), str(c[1])))
    return tuple((*change, steps[change]) for change in order)


def silent_steps(here: Decisions, row: Ints) -> Counter[str]:
    """How many of the log's steps are silent why; row (N,): the decision at each step."""
    states, counts = np.unique(row[here.kind[row] == Kind.DEFER], return_counts=True)
    words, steps_by_reason = silences(here), Counter[str]()
    for why, count in zip(why_silent(here, states).tolist(), counts.tolist(), strict=True):
        steps_by_reason[words[why]] += count
    return steps_by_reason


def compare(
    held: HeldOut, changes: Sequence[Change], rows: Sequence[Ints], suggested: Ints, changed: Bools
) -> Balance | None:
    """Those who took the suggestions and the others, weighed as in `dprl.evaluate`.

    Args:
        held: The policy and the log.
        changes: The changes of a policy.
        rows: The log's steps of each change.
        suggested: int64 (N,), what the policy names at each step, as a code of the log; -1: none.
        changed: bool (N,), the steps that it changes.
    """
    log = held.treated
    if not comparable(log):
        return None
    code = {label: i for i, label in enumerate(log.actions)}
    table, row = held.behavior.table, held.behavior.row[held.rows]
    compared = []
    for change, at in zip(changes, rows, strict=True):
        a = code.get(change.suggested if change.avoid is None else change.avoid, -1)
        own = None
        if (
            getattr(held.policy, "changes_by", "") == "region"
        ):  # which holds steps at which it says something else
            own = table[row[at], a] if a >= 0 else np.zeros(len(at))
        compared.append(Compared(f"{change.situation}: {change.suggested}", at, a, own))
    chance = np.where(suggested >= 0, table[row, suggested], 0.0)
    recorded = np.zeros(log.n_steps, bool) if log.propensity is None else ~np.isnan(log.propensity)
    # Regions need not hold all of it; what is compared together does.
    every = changes_in(
        log, np.flatnonzero(changed), held.acts.suggested[held.acts.row], held.acts.actions
    )
    return weighed(log, compared, suggested, chance, changed, recorded, every)


def shown_at(log: Log, row: int) -> tuple[tuple[str, float | str], ...]:
    """Name and value of every feature at a row: numbers, labels, or "missing"; () for labels."""
    if log.features is None:
        return ()
    shown: list[tuple[str, float | str]] = []
    for j, (name, value) in enumerate(
        zip(log.feature_names, log.features[row].tolist(), strict=True)
    ):
        labels = log.levels[j] if log.levels else None
        if np.isnan(value):
            shown.append((name, "missing"))
        else:
            shown.append((name, value if labels is None else labels[int(value)]))
    return tuple(shown)


# --- Described: the changes of a policy in words and numbers, with the log they were looked up in

CASES, AHEAD = 5, 3
"""Number of past cases shown on either side, and of the steps after each that are listed."""

SHORT = {
    "model": "the model",
    "excursions": say("returns to the same state"),
    "returns": say("returns of first visits"),
}
"""Evidence of a learner that asks how sure it is → what to call it in few words."""


@dataclass(frozen=True, eq=False)
class Described:
    """The changes of a policy, described with the help of a log.

    Attributes:
        policy: The policy.
        log: The log, with its cut episodes treated as in the policy's training. Its episodes are
            those that `dprl.evaluate` judges, too.
        log_digest: Digest of the log as it was given.
        cut: Number of its episodes that were cut.
        left_out: Number of cut episodes that are left out of `log`.
        dropped: Number of episodes that were left out for missing values when the log was read.
        after_cut: Number of episodes in `log` that came after a cut one of their group, which was
            left out. They count everywhere except where first decisions are compared: the first
            one that is seen need not be the first.
        seen: What the log has in common with the logs that the policy comes from, in words; '' if
            nothing. Where there is something, nothing here is a held-out check.
        notes: What a reader must know about the log.
        changes: The changes, the highest lower end of the interval first (of the learner's own
            where it asks how sure it is), then the most steps; rules in the order they are asked.
        steps: "deferred", "confirmed" and "changed" → share of the log's steps.
        not_done: Share of the log's steps at which the policy speaks and something else was done.
        silent: (reason, share of the log's steps) where the policy defers, largest share first.
        scattered: (usual, suggested, number of the log's steps) of the changes at steps that no
            region holds, the most steps first; empty where changes are not told by region.
        balance: Whether those who took the suggestions differ from the others in columns that are
            not in the state; None where the log has no such columns.
        compared: Key of a change → the same for this change alone.
        claims: The same changes by what they suggest, and what is to be done always; the surest
            first.
        changed_at: bool (N,), the log's steps at which the policy makes a change.
        took_at: bool (N,), the log's steps at which what the policy says was done.
        subgroups: What the policy is worth for whom; None where nobody asked.
        divided: Share of the log's steps at which it names an action and practice is divided: no
            action has half of the share there.
        weighed: Whether the checks are weighed as an evaluation is (`judged`).
    """

    policy: DeferringPolicy
    log: Log
    log_digest: str
    cut: int
    left_out: int
    seen: str
    notes: tuple[str, ...]
    changes: tuple[Change, ...]
    steps: Mapping[str, float]
    not_done: float
    silent: tuple[tuple[str, float], ...]
    scattered: tuple[tuple[Label, Label, int], ...]
    balance: Balance | None
    compared: Mapping[str, ComparedChange]
    claims: tuple[Claim, ...]
    _rows: Mapping[str, Ints] = field(repr=False)
    _G: NDArray[np.float64] = field(repr=False)
    changed_at: NDArray[np.bool_] = field(repr=False)
    took_at: NDArray[np.bool_] = field(repr=False)
    subgroups: Subgroups | None = None
    divided: float = 0.0
    weighed: bool = False
    after_cut: int = 0
    dropped: int = 0

    @property
    def flow(self) -> tuple[tuple[str, int], ...]:
        """(name, number of episodes) from the log as it was given to what is counted here."""
        kept = self.log.n_episodes
        given = kept + self.left_out
        rows = [("given", given), ("cut", self.cut), ("left-out", self.left_out)]
        if self.dropped:
            rows = [("source", given + self.dropped), ("dropped", self.dropped), *rows]
        rows = [(name, n) for name, n in rows if n or name == "given"]
        rows.append(("analysed", kept))
        return (*rows, ("after-cut", self.after_cut)) if self.after_cut else tuple(rows)

    @property
    def unsure(self) -> str:
        """Why it is not known whether the policy has seen this log; '' where it is on record."""
        return cannot_tell(self.policy.provenance)

    @property
    def changed(self) -> int:
        """Number of the log's steps at which the policy makes a change."""
        return round(self.steps["changed"] * self.log.n_steps)

    @property
    def uncovered(self) -> int:
        """Number of these steps that no region holds; `scattered` tells which changes they are."""
        return sum(steps for _, _, steps in self.scattered)

    @property
    def trained(self) -> bool:
        """Whether this log, or part of it, made the policy."""
        return bool(self.seen)

    @property
    def rules(self) -> RulePolicy | None:
        """The policy, where it is made of rules; else None."""
        return rules_of(self.policy)

    def tree(self, t: Words) -> Picture | None:
        """The tree of its rules in a language, without numbers; None where there is no tree."""
        if self.rules is None or not self.rules.rules:
            return None
        return picture_of(self.rules, t, numbers=False)

    @property
    def not_issued(self) -> Table | None:
        """The candidates of rules that were not certified; None where there are none."""
        table = None if self.rules is None else not_issued(self.rules)
        return table or None

    @property
    def sure_in(self) -> str:
        """In what changes had to be surely better, in few words; '' where nobody asked that."""
        return sure_words(self.policy)

    def __getitem__(self, key: str) -> Change:
        return next(c for c in self.changes if c.key == key)

    def __contains__(self, key: object) -> bool:
        return any(c.key == key for c in self.changes)

    def judged(self, by_rule: Subgroups | None) -> Described:
        """With what an evaluation says of each rule in the place of plain means.

        Over features those who took a suggestion are not like the others: plain means are no
        estimate of what it brings. `dprl.evaluate` weighs them as it weighs the whole.

        Args:
            by_rule: `Evaluation.rules`; None leaves everything as it is.
        """
        if by_rule is None:
            return self
        told = {(row.column, row.value): row for row in by_rule.rows}

        def weighed(check: Check, *place: str) -> Check:
            row = told.get((place[0], place[1]))
            ends = (None,) * 3 if row is None else (row.difference, row.low, row.high)
            return replace(check, advantage=ends[0], low=ends[1], high=ends[2], unfair=False)

        ruled = self.rules
        number = (
            {} if ruled is None else {where(ruled, r): str(r + 1) for r in range(len(ruled.rules))}
        )
        changes = tuple(
            c if c.rule is None else replace(c, check=weighed(c.check, "rule", str(c.rule.number)))
            for c in self.changes
        )
        alike = Counter(str(claim.suggested) for claim in self.claims)

        def claimed(claim: Claim) -> Claim:
            place = ("suggested", str(claim.suggested))
            if len(claim.situations) == 1:
                place = ("rule", number.get(claim.situations[0], ""))
            elif alike[str(claim.suggested)] > 1:
                place = ("rule", "")  # others confirm it elsewhere: no row is of these alone
            return replace(claim, check=weighed(claim.check, *place))

        return replace(self, changes=changes, claims=tuple(map(claimed, self.claims)), weighed=True)

    def cases(self, change: Change) -> tuple[list[Case], list[Case]]:
        """Past steps in the situation: that took the suggestion, and that did not.

        The first step of each episode (group); where states are features the most typical ones,
        else evenly spaced through the log.
        """
        rows, log, space = self._rows[change.key], self.log, self.policy.space
        rows = first_rows(log, rows)
        took = change.took(log, rows)
        both = []
        for side in (rows[took], rows[~took]):
            if isinstance(space, FeatureSpace):
                x = np.asarray(space.of_log(log)[0])
                near = np.argsort(space.from_median(x[rows], x[side]), kind="stable")
                chosen = side[near[:CASES]]
            else:
                n = min(CASES, len(side))
                chosen = side[np.linspace(0, max(len(side) - 1, 0), n).astype(np.int64)]
            both.append([self._case(int(row)) for row in chosen])
        return both[0], both[1]

    def _case(self, row: int) -> Case:
        log = self.log
        e = int(np.searchsorted(log.starts, row, "right")) - 1
        ahead = range(row + 1, min(row + 1 + AHEAD, int(log.starts[e + 1])))

        def step_words(t: int) -> str:
            did = str(log.actions[log.action[t]])
            return did if log.state is None else joined("", (log.states[log.state[t]], ": ", did))

        more = int(log.starts[e + 1]) - 1 - row - len(ahead)
        words = [step_words(t) for t in ahead] + ([say("… {n} more", n=more)] if more else [])
        features = shown_at(log, row)
        return Case(
            log.episodes[e],
            log.clock(row),
            log.actions[log.action[row]],
            float(self._G[row]),
            bool(log.ended[e] == CUT),
            joined(" → ", words) or say("end"),
            features,
        )


def sure_words(policy: DeferringPolicy) -> str:
    """In what the changes of a policy had to be surely better; '' where nobody asked that."""
    return SHORT.get(str(policy.parameters.get("evidence")), "")


def first_rows(log: Log, rows: Ints) -> Ints:
    """The first of `rows` (ascending) in each episode, or in each group of a gathered log."""
    episode = np.searchsorted(log.starts, rows, "right") - 1
    return np.asarray(np.sort(rows[np.unique(log.group[episode], return_index=True)[1]]))


def as_called(described: Described) -> Described:
    """The same as people call columns and actions, to be shown; keys and numbers stay."""
    called = Called.learned(described.policy) or Called.of(described.log.columns)
    if not called:
        return described

    def rule(r: RuleRecord) -> RuleRecord:
        of = None if r.imbalance is None else (called.column(r.imbalance[0]), r.imbalance[1])
        sentence, warning = map(called.said, (r.sentence, r.warning))
        return replace(r, sentence=sentence, warning=warning, imbalance=of)

    def change(c: Change) -> Change:
        return replace(
            c,
            situation=called.said(c.situation),
            usual=called.act(c.usual),
            suggested=called.act(c.suggested),
            avoid=None if c.avoid is None else called.act(c.avoid),
            shares=tuple((called.act(action), share) for action, share in c.shares),
            rule=None if c.rule is None else rule(c.rule),
            typical=tuple((called.column(n), called.value(n, v)) for n, v in c.typical),
        )

    def claim(c: Claim) -> Claim:
        return replace(
            c,
            situations=tuple(map(called.said, c.situations)),
            suggested=called.act(c.suggested),
            usual=tuple(map(called.act, c.usual)),
        )

    return replace(
        described,
        changes=tuple(map(change, described.changes)),
        claims=tuple(map(claim, described.claims)),
        scattered=tuple((called.act(u), called.act(s), n) for u, s, n in described.scattered),
    )


# --- What a policy would change, in words and numbers a reviewer can check against a log


def describe_changes(policy: DeferringPolicy, log: Log, *, seed: int = 0) -> Described:
    """The changes `policy` makes, in words, and what `log` says about each.

    `seed` is that of the model of usual practice, as for `dprl.evaluate`.
    """
    own = policy.parameters
    # Where cut ones are left out: the same episodes as in `evaluate`, which reads rewards.
    reads: Reads = "rewards" if own.get("cut") in DROPS else "returns"
    held = HeldOut.meet(
        policy, log, gamma=own.get("gamma", 1.0), seed=seed, allow_seen=True, reads=reads
    )
    log, gamma, cut = held.log, held.gamma, held.cut
    ended = dict(zip(log.episodes, log.ended.tolist(), strict=True))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        settled = held.treated
    notes = [*held.strange, *(said_by(w) for w in caught)]
    notes += held.untold(say("If it has, all of this flatters it."))
    if policy.terms.credit is not None:
        notes += policy.stated
    notes += [words] if (words := window_words(log.follow_up)) else []
    left_out = log.n_episodes - settled.n_episodes
    late = after_cut(log, settled) if left_out and cut in DROPS else np.zeros(0, np.int64)
    if left_out and cut in DROPS:
        notes.append(
            say(
                "{left_out:,} of {n_episodes:,} episodes were cut and are left out: every number "
                "here is of the other {n_episodes2:,}, and it is declared that {unrelated}.",
                left_out=left_out,
                n_episodes=log.n_episodes,
                n_episodes2=settled.n_episodes,
                unrelated=UNRELATED,
            )
        )
    if len(late):
        notes.append(
            say(
                "{k:,} of these {n:,} came after a cut one of their group: they are left out of "
                "comparisons of first decisions alone, because the first that is seen need not be "
                "the first.",
                k=len(late),
                n=settled.n_episodes,
            )
        )
    if unseen := unseen_words(log.columns):
        notes.append(unseen)
    elif cut == "ipcw" and len(log.cut_episodes):
        notes.append(
            say(
                "{cut_episodes:,} of {n_episodes:,} episodes were cut: {weighed}",
                cut_episodes=len(log.cut_episodes),
                n_episodes=log.n_episodes,
                weighed=WEIGHED,
            )
        )
    G = log.outcome.shown(returns(settled, gamma))
    states, row = _states(policy, settled)
    here = policy.at(states)
    situations = _situations(policy, settled, here)
    sure_in = sure_words(policy)
    ruled = rules_of(policy)
    rows = [outside_of(settled, late, one.rows) for one in situations]
    changes = [
        _change(one, settled, G, sure_in, ruled, at)
        for one, at in zip(situations, rows, strict=True)
    ]
    kinds, speaks, silent = here.kind[row], here.speaks[row], silent_steps(here, row)
    place = {label: i for i, label in enumerate(settled.actions)}
    names = np.array([*(place.get(label, -1) for label in policy.actions), -1], np.int64)
    named = names[here.named[row]]
    took = named == settled.action
    done = speaks & (took == (here.choice[row] >= 0))
    changed = here.changes[row]
    order = sorted(range(len(changes)), key=lambda i: _place(changes[i]))
    # Settling marks cut episodes as ended; people should still be told.
    marks = np.array([ended[e] for e in settled.episodes], np.uint8)
    n = max(settled.n_steps, 1)
    compared = compare(held, changes, rows, named, changed)
    alone = () if compared is None else compared.changes
    told = _always(policy, settled, here, row, ruled)
    told = [one for one in told if one[3] < (1.0 - HARDLY if changes else 1.0)]
    places = [(changes[i].situation, changes[i], rows[i]) for i in order]
    return Described(
        policy=policy,
        log=replace(settled, ended=marks),
        log_digest=log.digest(),
        cut=len(log.cut_episodes),
        left_out=left_out,
        dropped=log.dropped,
        after_cut=len(late),
        seen=held.seen,
        notes=tuple(notes),
        changes=tuple(changes[i] for i in order),
        steps={
            "deferred": float((kinds == Kind.DEFER).sum()) / n,
            "confirmed": float((kinds == Kind.CONFIRM).sum()) / n,
            "changed": float(changed.sum()) / n,
        },
        not_done=float((speaks & ~done).sum()) / n,
        silent=tuple((why, count / n) for why, count in silent.most_common()),
        scattered=scattered(policy, here, situations),
        balance=compared,
        compared={changes[one.number].key: one for one in alone},
        claims=(
            *_together(settled, places, G),
            *(
                _claim(settled, [words], action, [outside_of(settled, late, at)], G, share)
                for words, action, at, share in told
            ),
        ),
        divided=float((changed & here.divided[row]).sum()) / n,
        changed_at=changed,
        took_at=done,
        _rows={changes[i].key: rows[i] for i in order},
        # Weights are for means; a single case is shown with what was seen of it.
        _G=log.outcome.shown(returns(log, gamma)) if cut == "ipcw" else G,
    )


HARDLY = 0.1
"""A usual action that would be done in fewer more of the decisions is not told beside changes."""


def _together(
    log: Log, places: Sequence[tuple[str, Change, Ints]], G: NDArray[np.float64]
) -> list[Claim]:
    """The changes (words, change, steps) by what they suggest, in the order of the first."""
    grouped: dict[Label, list[tuple[str, Change, Ints]]] = {}
    for place in places:
        grouped.setdefault(place[1].suggested, []).append(place)
    claims = []
    for suggested, own in grouped.items():
        first = own[0][1]
        one = _claim(
            log,
            [words for words, _, _ in own],
            suggested if first.avoid is None else first.avoid,
            [rows for _, _, rows in own],
            G,
            avoid=first.avoid is not None,
        )
        usual = tuple(dict.fromkeys(change.instead for _, change, _ in own))
        keys = tuple(change.key for _, change, _ in own)
        check = first.check if len(own) == 1 else one.check
        claims.append(replace(one, suggested=suggested, usual=usual, changes=keys, check=check))
    return claims


def _claim(
    log: Log, words: Sequence[str], action: Label, places: Sequence[Ints],
    G: NDArray[np.float64], share: float = 0.0, avoid: bool = False,
) -> Claim:  # fmt: skip
    """An action in some situations, and what a log says of all of them together."""
    stratum = np.full(log.n_steps, -1)
    for k, rows in enumerate(places):
        stratum[rows] = k
    check, compared = pooled_check(log, stratum, action, G, avoid)
    return Claim(tuple(words), action, (), (), share, replace(check, outcome=log.outcome), compared)


def pooled_check(
    log: Log, stratum: Ints, named: Label, G: NDArray[np.float64], avoid: bool = False
) -> tuple[Check, int]:
    """What happened with one suggestion in several situations: one claim, not one for each.

    From every episode (group) its first step in any of them. Those who followed are compared with
    those who did not in the same situation, and the differences are added by how often it is met:
    A = ∑_k (n_k / n) A_k. Its interval is made of theirs (MOVER; Zou and Donner, 2008): no group is
    in two of them, so the squares of their half-lengths add up. A situation with cases on one side
    alone, or in which all returns are equal, says nothing and is left out.

    Args:
        log: The log.
        stratum: int (N,), the number of the situation that each step is in; -1: in none.
        named: The action.
        G: float64 (N,), the return from each step on.
        avoid: Whether it is to be avoided. Default False.

    Returns:
        The check, and the number of situations that it is about.
    """
    every = first_rows(log, np.flatnonzero(stratum >= 0))
    code = log.actions.index(named) if named in log.actions else -1
    took = (log.action[every] == code) != avoid
    if _chosen(log, every[took]):
        check, strata = _check(log, every, named, G, avoid), stratum[every]
        within = (_chosen(log, every[took & (strata == k)]) for k in np.unique(strata))
        if not check.unfair or any(within):
            return check, len(set(strata.tolist()))
    parts: list[tuple[float, ...]] = []
    counts, sums = np.zeros(2, np.int64), np.zeros(2)
    for k in np.unique(stratum[every]):
        here = stratum[every] == k
        x, y = G[every[here & took]], G[every[here & ~took]]
        ends = contrast_of(x, y)
        if not np.isfinite(ends).all():
            continue
        met = len(x) + len(y)
        parts.append((met, *(len(y) / met * v for v in (float(x.mean() - y.mean()), *ends))))
        counts += (len(x), len(y))
        sums += (met * x.mean(), met * y.mean())  # both sides as if they had met all of them
    if not parts:
        return _check(log, every, named, G, avoid), 0
    n, d, low, high = np.array(parts).T
    weight = n / n.sum()
    middle = float(weight @ d)
    down, up = (float(np.sqrt(((weight * (d - end)) ** 2).sum())) for end in (low, high))
    got, got_others = (float(v) for v in sums / n.sum())
    took_, others = (int(v) for v in counts)
    return Check(took_, others, got, got_others, middle, middle - down, middle + up), len(parts)


def _always(
    policy: DeferringPolicy, log: Log, here: Decisions, row: Ints, ruled: RulePolicy | None
) -> list[tuple[str, Label, Ints, float]]:
    """Where the usual action is to be taken always: words, action, the log's steps, its share.

    The least usual first. Policies that answer from the points around a state have no such places.
    """
    if ruled is not None:
        own, at = ruled.decisions, ruled.rule_of(ruled.space.of_log(log)[0])
        words = [where(ruled, r) for r in range(len(ruled.rules))]
    elif not policy.space.feature_names:
        own, at = here, row
        words = [state_words(policy, label) for label in here.states]
    else:
        return []
    found = []
    for s in np.flatnonzero(own.kind == Kind.CONFIRM).tolist():
        rows = np.flatnonzero(at == s)
        action = own.actions[own.choice[s]]
        if len(rows) and action in log.actions:
            share = float((log.action[rows] == log.actions.index(action)).mean())
            found.append((words[s], action, rows, share))
    return sorted(found, key=lambda one: one[3])


def _place(change: Change) -> tuple[float, int]:
    """Sort key of a change: the highest lower end first, then the most steps; rules as asked."""
    if change.rule is not None:
        return (change.rule.number, 0)
    ends = change if change.sure is None else change.sure
    if ends.low is None or ends.high is None:
        return (np.inf, -change.steps)
    return (ends.high if change.falls else -ends.low, -change.steps)


def _states(policy: DeferringPolicy, log: Log) -> tuple[Any, Ints]:
    """The states of a log as the policy takes them, and which of them each step is in."""
    names = policy.space.feature_names
    if not names:
        log.codes()  # a log of features is refused here
    elif log.features is None or log.feature_names != names:
        raise LogError(
            "this log has other states than the policy was fitted to.",
            f"{', '.join(log.feature_names[:4]) or 'labels'} and not {', '.join(names[:4])}",
        )
    return policy.space.of_log(log)


def _situations(policy: DeferringPolicy, log: Log, here: Decisions) -> list[Situation]:
    """Where the policy changes what; regions come from the answers `here` at the log's steps."""
    if policy.changes_by == "region" and isinstance(policy.space, FeatureSpace):
        return in_regions(here, policy.space, policy.space.of_log(log)[0])
    return policy.situations(log)


def _change(
    one: Situation,
    log: Log,
    G: NDArray[np.float64],
    sure_in: str,
    ruled: RulePolicy | None,
    compared: Ints,
) -> Change:
    """What is told of one situation; `compared`: its rows among which first ones are first."""
    row = next(iter(change_rows(one.here, np.array([one.s]), "")))
    here, named = one.here, one.here.actions[one.here.named[one.s]]
    avoid = named if here.choice[one.s] < 0 else None
    name: list[Any] = ["state", one.state, row["usual"], row["suggested"]]
    if one.region is not None:
        name = ["region", one.region.to_dict()]
    return Change(
        key=_key(name),
        situation=one.words,
        state=one.state,
        region=one.region,
        typical=one.typical,
        steps=len(one.made),
        met=len(first_rows(log, one.made)),
        purity=one.purity,
        confirmed=one.confirmed,
        deferred=one.deferred,
        check=replace(_check(log, compared, named, G, avoid is not None), outcome=log.outcome),
        falls=log.outcome.falls,
        avoid=avoid,
        sure=_sure(one.here, one.s, sure_in),
        rule=None if ruled is None else record_of(ruled, one.s),
        **_facts(one.here, one.s, row),
    )


def _facts(here: Decisions, s: int, row: Mapping[str, Any]) -> dict[str, Any]:
    """What the training log says about state `s`, of which `row` is the row of `changes()`."""
    shares = here.m[s] / here.m[s].sum()
    order = [a for a in np.argsort(-shares, kind="stable") if shares[a] > 0]
    unit = here.terms.counted
    return {
        "usual": row["usual"],
        "suggested": row["suggested"],
        "shares": tuple((here.actions[a], float(shares[a])) for a in order),
        "counted": unit,
        "episodes": int(here.m[s].sum()) - row["others"],
        "others": row["others"],
        "value_first": row["value_usual"] + row["advantage"],
        "value_usual": row["value_usual"],
        "rule_difference": row["rule_difference"],
        "rule_episodes": row[unit],
        "advantage": row["advantage"],
        "low": _number(row["low"]),
        "high": _number(row["high"]),
        "planned": None if row["planned"] == row["value"] else _number(row["planned"]),
        "beyond": bool(here.choice[s] >= 0 and plan_beyond(here, s, int(here.choice[s]))),
    }


def _sure(here: Decisions, s: int, where: str) -> Sure | None:
    """How sure the learner is of what is suggested in state `s`."""
    if here.estimates is None:
        return None
    a = int(here.choice[s])
    low, high = (_number(end[s, a]) for end in here.estimates.interval(here.n, LEVEL))
    advantage, se = (float(x[s, a]) for x in (here.estimates.advantage, here.estimates.se))
    outcome = here.terms.measured
    ends = outcome.ends(low, high)
    return Sure(where, outcome.shown(advantage), se, *ends, int(here.n[s, a]), outcome.falls)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _key(what: Any) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]


def _check(log: Log, rows: Ints, named: Label, G: NDArray[np.float64], avoid: bool) -> Check:
    """What happened at the first step in a situation: with the suggestion, and without.

    Where recorded chances differ from row to row, those who followed stand for all by one over
    their chance. Where one is missing, or of several other actions to take, they cannot, and
    nothing is compared.
    """
    rows = first_rows(log, rows)
    a = log.actions.index(named) if named in log.actions else -1
    took = (log.action[rows] == a) != avoid
    x, y = G[rows[took]], G[rows[~took]]
    got, got_others = (float(v.mean()) if len(v) else None for v in (x, y))
    if got is None or got_others is None:
        return Check(len(x), len(y), got, got_others, None, None, None)
    if _chosen(log, rows[took]):
        p: NDArray[np.float64] = np.asarray(log.propensity)[rows]
        if np.isnan(p[took]).any() or (avoid and log.n_actions > 2):
            return Check(len(x), len(y), got, got_others, None, None, None, unfair=True)
        return _weighed_check(G[rows], took, p, got_others)
    weight = len(y) / len(rows)
    low, high = (_number(weight * end) for end in contrast_of(x, y))
    advantage = weight * (got - got_others)
    return Check(len(x), len(y), got, got_others, advantage, low, high)


def _chosen(log: Log, rows: Ints) -> bool:
    """Whether those at `rows` were chosen: recorded chances of one action that differ."""
    if log.propensity is None:
        return False
    rows = rows[~np.isnan(log.propensity[rows])]
    action, p = log.action[rows], log.propensity[rows]
    return any(np.ptp(p[action == a]) > EQUAL for a in np.unique(action))


def _weighed_check(
    G: NDArray[np.float64], took: Bools, p: NDArray[np.float64], got_others: float
) -> Check:
    """As `_check`, with returns (n,) of those who followed weighed by one over their chance."""
    w = np.where(took, 1 / p, 0.0)
    got, n = float(w @ G / w.sum()), len(G)
    advantage = got - float(G.mean())
    spread = w / w.mean() * (G - got) - (G - G.mean())
    ess = float(w.sum() ** 2 / (w @ w))
    half = np.inf if ess < 2 else stdtrit(ess - 1, (1 + LEVEL) / 2) * spread.std(ddof=1) / n**0.5
    low, high = _number(advantage - half), _number(advantage + half)
    return Check(int(took.sum()), int((~took).sum()), got, got_others, advantage, low, high)
