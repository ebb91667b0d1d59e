"""Described: the changes of a policy in words and numbers, with the log they were looked up in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.html.catalogue import Words
from dprl._core.table import Table
from dprl._core.words import joined, say
from dprl.apps._change import Case, Change
from dprl.apps._change_counts import shown_at
from dprl.evaluation._subgroups import Subgroups
from dprl.evidence.balance import Balance, ComparedChange
from dprl.logs._overlap import cannot_tell
from dprl.logs.log import CUT, Label, Log
from dprl.policies._protocol import DeferringPolicy
from dprl.policies._rule_tree import Picture, picture_of
from dprl.policies._rule_words import not_issued, rules_of
from dprl.policies._spaces import FeatureSpace
from dprl.policies.rules import RulePolicy

__all__ = ["Described", "first_rows", "sure_words"]

Ints: TypeAlias = NDArray[np.int64]
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
        changed_at: bool (N,), the log's steps at which the policy makes a change.
        took_at: bool (N,), the log's steps at which what the policy says was done.
        subgroups: What the policy is worth for whom; None where nobody asked.
        divided: Share of the log's steps at which it names an action and practice is divided: no
            action has half of the share there.
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
    _rows: Mapping[str, Ints] = field(repr=False)
    _G: NDArray[np.float64] = field(repr=False)
    changed_at: NDArray[np.bool_] = field(repr=False)
    took_at: NDArray[np.bool_] = field(repr=False)
    subgroups: Subgroups | None = None
    divided: float = 0.0
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
        """The tree of its rules in a language, ready to be drawn; None where there is no tree."""
        return None if self.rules is None or not self.rules.rules else picture_of(self.rules, t)

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

    def cases(self, change: Change) -> tuple[list[Case], list[Case]]:
        """Past steps in the situation: that took the suggestion, and that did not.

        The first step of each episode (group); where states are features the most typical ones,
        else evenly spaced through the log.
        """
        rows, log, space = self._rows[change.key], self.log, self.policy.space
        rows = first_rows(log, rows)
        took = np.array([log.actions[a] == change.suggested for a in log.action[rows]], bool)
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
