"""Monitor: does what was certified still hold, while new groups come in?"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import gammaln, xlogy

from dprl._core import plot
from dprl._core.arrays import Floats, Ints
from dprl._core.checks import check_delta
from dprl._core.disk import append, check_target, one_at_a_time, replacing
from dprl._core.table import Result, Table, in_short, many, to_json_value
from dprl._core.words import worded
from dprl.certificate.eprocesses import (
    COLUMNS,
    Visits,
    advantages,
    against,
    below,
    counted,
    lower_mean,
    moments_of,
    seen_of,
    visits_of,
)
from dprl.errors import LogError, ParameterError, PolicyError
from dprl.evidence.propensity import RecordedPropensity
from dprl.logs.log import Label, Log, check_log, label_key
from dprl.logs.outcome import Outcome
from dprl.logs.overlap import TOO_MUCH, beginnings_of, in_both
from dprl.logs.reading.tables import write_rows
from dprl.logs.returns import first_visits
from dprl.logs.source import refuse_completed
from dprl.policies.held_out import HeldOut
from dprl.policies.table import TablePolicy

# --- The file of a monitor: what was seen since a policy was made, one line for every addition
#
# The first line says which policy and which settings; every further line is one addition: a mark
# for each group, counts of visits, and the claims as they stood then. Lines are only ever added.
# Each ends with a digest of itself and the line before, so a changed file is refused, and a line
# that was not written to the end (a full disk, a power cut) is recognised and left out.
#
# Marks are keyed hashes of the group's label, so that a group that comes again is not counted
# twice; keyed hashes of how episodes began tell that they come again under other labels. The key is
# in the file: who has it can test whether a known label or story is in it. It holds no labels, no
# times of patients and no rewards, but counts of small groups: keep it as private as the policy.

FORMAT = "dprl monitor 1"


def marks_of(groups: Sequence[Label], salt: str, as_stored: bool = False) -> list[str]:
    """One mark of 64 bits per group label, in the one form of labels (7 and "7" are one).

    `as_stored` gives the marks of older files, where text and numbers differ.
    """
    key = bytes.fromhex(salt)
    keys = (g if as_stored and isinstance(g, str) else label_key(g) for g in groups)
    words = (f"t{k}" if isinstance(k, str) else f"n{k}" for k in keys)
    return [
        hashlib.blake2b(word.encode("utf-8", "surrogatepass"), key=key, digest_size=8).hexdigest()
        for word in words
    ]


class Record:
    """The lines of the file of a monitor.

    Attributes:
        path: The file; None while nothing is to be written.
        head: The first line: the policy and the settings.
        additions: One entry per addition.
        torn: Whether the last line of the file was not written to the end, and was left out.
    """

    def __init__(self, path: Path | None, head: dict[str, Any]) -> None:
        self.path, self.head, self.torn = path, head, False
        self.additions: list[dict[str, Any]] = []

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read a file; refuse one that is damaged or of another kind."""
        lines = path.read_bytes().split(b"\n")
        torn = lines.pop() != b""
        entries, before = [], ""
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                check = entry.pop("check")
            except (ValueError, AttributeError, KeyError, RecursionError):
                raise _damaged(path, number) from None
            if check != _check(entry, before):
                raise _damaged(path, number)
            entries.append(entry)
            before = check
        if not entries or entries[0].get("format") != FORMAT:
            raise PolicyError(
                f"{str(path)!r} is not the file of a monitor.",
                do="Name another file (--record); it is made where there is none.",
            )
        record = cls(path, entries[0])
        record.additions, record.torn = entries[1:], torn
        return record

    def add(self, entry: dict[str, Any]) -> None:
        """Add one entry, in memory and to the file."""
        self.additions.append(entry)
        if self.path is None:
            return
        try:
            if len(self.additions) == 1 or self.torn or not self.path.exists():
                self.write(self.path)
            else:
                append(self.path, self._lines()[-1])
        except BaseException:
            self.additions.pop()  # it is not in the file
            raise

    def write(self, path: Path) -> None:
        """Write all of it to a file, which is replaced as a whole."""
        check_target(path)
        with replacing(path) as part:
            part.write_bytes(b"".join(self._lines()))
        self.path, self.torn = path, False

    def marks(self) -> set[str]:
        """The marks of all groups."""
        return {mark for entry in self.additions for mark in entry["groups"]}

    def _lines(self) -> list[bytes]:
        lines, before = [], ""
        for entry in (self.head, *self.additions):
            before = _check(entry, before)
            lines.append(json.dumps({**entry, "check": before}, ensure_ascii=True).encode() + b"\n")
        return lines


def _check(entry: dict[str, Any], before: str) -> str:
    text = before + json.dumps(entry, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _damaged(path: Path, number: int) -> PolicyError:
    return PolicyError(
        f"the file of a monitor was changed or is damaged, at line {number}.",
        str(path),
        "Take a copy from before, or begin again with another file and add all logs.",
    )


def together(one: Record, other: Record) -> Iterable[dict[str, Any]]:
    """The additions of two records of one policy, earlier ones first."""
    return sorted((*one.additions, *other.additions), key=lambda entry: str(entry["when"]))


# --- Has practice changed? An e-process of "actions are taken as often as they were"
#
# Of a state let o be how often each of A actions was taken in the log that a policy comes from, and
# n how often since then, one group one vote. If all were drawn with the same probabilities p,
# whatever they are, the likelihood is at most that of the best p, and
#
#     E = M(o) M(n) / max_p ∏ p_a^(o_a + n_a)
#
# M the probability of a sequence with such counts under a Dirichlet prior of ½ for every action
# (Krichevsky and Trofimov). M(o) M(n) / ∏ p_a^(o_a + n_a) is a martingale for the true p, so E is
# at most one: P(E ever reaches 1/α) <= α however often one looks. Nothing is taken from tables of
# the normal distribution, and p need not be known.

PRIOR = 0.5
"""What every action counts for before it was ever seen."""


def _log_mixed(counts: Floats) -> Floats:
    """Natural logarithm of M for counts (S, A), one per state."""
    A, n = counts.shape[1], counts.sum(axis=1)
    each = (gammaln(counts + PRIOR) - gammaln(PRIOR)).sum(axis=1)
    return np.asarray(each + gammaln(A * PRIOR) - gammaln(n + A * PRIOR))


def log_drift(before: Any, since: Any) -> Floats:
    """Natural logarithm of the e-value of "actions are taken as often as they were", by state.

    Args:
        before: (S, A), groups that took each action at their first visit, in the log of a policy.
        since: (S, A), the same of groups that came later.
    """
    o, n = np.asarray(before, np.float64), np.asarray(since, np.float64)
    both = o + n
    total = both.sum(axis=1, keepdims=True)
    best = xlogy(both, both / np.maximum(total, 1.0)).sum(axis=1)
    return np.asarray(_log_mixed(o) + _log_mixed(n) - best)


# --- What a monitor says of a certified policy, from groups that came after it was made
#
# Every statement below is an e-process over the new groups alone, so each kind of statement is
# false with probability at most δ *however often one looks*, and nothing is paid for looking.
#
# * *against*: of each of the k issued suggestions, with d = Q - E y what taking it brings beside
#   doing otherwise: "d is at least the lower bound that was certified", "d is at least 0" and "d is
#   at least what was estimated". d, and not the advantage (1 - p) d, because the advantage falls
#   while a suggestion is taken up, and nothing is wrong with that. With x and y of
#   `dprl.certificate.eprocesses` exchanged, "d >= c" fails where
#
#       Q >= v + c_up    and    E y <= v - c_down,      c_up + c_down = c
#
#   does for every v. For first visits any such v will do, and halves are taken; where all visits
#   count v is V, c_up = (1 - p) c and c_down = p c, with bounds of p at δ/4k each.
# * *level*: where nobody does otherwise any more, nothing is left to compare. Then the returns of
#   those who follow are held against two numbers of the time of the certificate: what doing
#   otherwise brought and the certified bound together, and what followers had. That is no
#   comparison: it also fails where patients have become others.
#   These five e-values of each suggestion decide at 10k/δ.
#   Where the recorded chances of a state differ between additions, its visits are compared within
#   those of the same chance, and these e-values, of different groups, are multiplied.
# * *more*: pairs that were not issued, although their action looked better than doing otherwise and
#   n_min trajectories took it: certified now where the e-value of "no benefit" reaches 2C/δ, C the
#   number of such pairs; as much is left for the probability of the action in the lower bound.
# * *drift*: states where the policy defers, and actions are not taken as often as they were
#   (`dprl.certificate.monitor`), at S/δ for S such states.

TEN = math.log(10)
STATUS = (
    "not tested yet", "still certified", "more is certified now", "cannot be tested any more",
    "less than was estimated", "what was promised is contradicted",
)  # fmt: skip
"""From the least to the most urgent; the last that is true is said."""
VERDICTS = {
    "cannot say": 0, "holds": 1, "cannot be tested any more": 3, "less than estimated": 4,
    "followers below the estimate": 3, "less than promised": 5, "followers below the promise": 5,
    "worse than usual": 5,
}  # fmt: skip
"""What is said of a suggestion, and the status that follows from it."""
RECENT, OTHERWISE = 50, 0.02
"""Of the newest additions with so many visits of a state, the least share that must do otherwise
for a suggestion to be tested still."""


@dataclass(frozen=True, eq=False)
class Watch(Result):
    """How the claims of a policy stand.

    Attributes:
        status: "not tested yet", "still certified", "more is certified now", "cannot be
            tested any more" (nobody does otherwise, so that nothing can be compared), "less than
            was estimated" or "what was promised is contradicted"; the most urgent that is true.
        groups: New groups behind it.
        suggestions: One row per issued suggestion: what was promised, what new visits say.
        more: One row per pair that is certified now and was not.
        drift: One row per state where the policy defers and practice has changed.
        notes: What a reader must know, in sentences.

    Example:
        >>> import dprl
        >>> world = dprl.envs.care_pathway()
        >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
        >>> policy = dprl.gate(learner, world.sample(4000, seed=0), value_range=(0, 1))
        >>> dprl.Monitor(policy).add(world.sample(500, seed=1)).status
        'still certified'
    """

    status: str
    groups: int
    suggestions: Table
    more: Table
    drift: Table
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as values that JSON can hold.

        Returns:
            Status, groups, rows of the three tables, and notes.

        Example:
            >>> import dprl
            >>> world = dprl.envs.care_pathway()
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> policy = dprl.gate(learner, world.sample(4000, seed=0), value_range=(0, 1))
            >>> dprl.Monitor(policy).look().to_dict()["groups"]
            0
        """
        return {
            "status": self.status, "groups": self.groups,
            **{name: to_json_value(getattr(self, name).to_dicts())
               for name in ("suggestions", "more", "drift")},
            "notes": list(self.notes),
        }  # fmt: skip

    def table(self) -> Table:
        """The issued suggestions, one row each."""
        return self.suggestions

    def _tables(self) -> list[Table]:
        return [self.suggestions, self.more, self.drift]

    def _said(self) -> list[str]:
        return list(self.notes)

    def _heading(self) -> str:
        return f"{self.status[0].upper()}{self.status[1:]} ({many(self.groups, 'new group')})"

    def brief(self) -> list[str]:
        """What is printed of it: the status, and a line for each suggestion."""
        lines = [self._heading()]
        rows = self.suggestions.to_dicts()
        for row in rows[:4]:
            now = row["difference"]
            seen = "not seen yet" if now is None or now != now else f"{now:+.3g} now"
            lines.append(
                f"  {row['state']}: {row['suggested']}: {row['verdict']} (promised "
                f"{row['promised']:+.3g}, estimated {row['estimated']:+.3g}, {seen})"
            )
        more, drift = many(self.more, "more pair"), many(self.drift, "state")
        lines += [
            f"  and {many(len(rows) - 4, 'more suggestion')}" if len(rows) > 4 else "",
            f"Certified now and not before: {more}." if len(self.more) else "",
            f"Practice has changed in {drift} where it defers." if len(self.drift) else "",
        ]
        return in_short(lines, "watch")

    def details(self) -> str:
        """All tables and notes, as text.

        Returns:
            The text.

        Example:
            >>> import dprl
            >>> world = dprl.envs.care_pathway()
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> policy = dprl.gate(learner, world.sample(4000, seed=0), value_range=(0, 1))
            >>> dprl.Monitor(policy).look().details().splitlines()[0]
            'Not tested yet (0 new groups)'
        """
        tables = [str(table) for table in self._tables() if len(table)]
        return "\n\n".join([self._heading(), *tables, *self.notes])


def candidates(policy: TablePolicy, n_min: float) -> Ints:
    """int64, pairs s·A + a that are not issued, looked better, and were taken n_min times."""
    m, choice = np.asarray(policy.m), np.asarray(policy.choice)
    with np.errstate(invalid="ignore"):
        better = np.asarray(policy.took_mean) > np.asarray(policy.others_mean)
    wanted = better & (np.asarray(policy.n) >= n_min) & (m > 0)
    issued = np.flatnonzero(choice >= 0)
    wanted[issued, choice[issued]] = False
    return np.flatnonzero(wanted)


def watch(
    policy: TablePolicy,
    seen: Sequence[Visits],
    since: Ints,
    recent: Ints,
    *,
    delta: float,
    n_min: float,
    strange: float,
    chosen: Sequence[int] = (),
) -> Watch:
    """How the claims of a policy stand after some visits.

    Args:
        policy: A certified policy over S labelled states with A actions.
        seen: New visits, in parts that may be compared each within itself; their actions are those
            of the policy, and one for all others.
        since: int64 (S, A + 1), new groups that took each action at their first visit.
        recent: int64 (S, A + 1), visits of the newest additions, at least `RECENT` where there are.
        delta: Level of each kind of statement.
        n_min: Trajectories that an action needed to be looked at.
        strange: Share of new steps in states that the policy does not know.
        chosen: States where recorded chances show that takers were chosen; their visits are not
            in `seen`.
    """
    assert policy.certificate is not None  # a monitor takes no other
    rows = _tested(policy, seen, recent, delta)
    more = _more(policy, seen, delta, n_min)
    apart = _apart(policy, seen)
    drift = _drifted(policy, since, delta)
    worst = max((VERDICTS[row["verdict"]] for row in rows), default=1)
    if not rows or all(row["verdict"] == "cannot say" for row in rows):
        worst = 1 if not rows else 0
    status = STATUS[max(worst, 2 if more else 0)]
    outcome = Outcome.learned(policy)
    shown = [outcome.facts(row, WATCHED) for row in rows]
    more = [outcome.facts(row) for row in more]
    return Watch(
        status, seen[0].n_groups, _suggestions(shown, delta), _table(more, "Certified now", MORE),
        _table(drift, "Practice has changed where the policy defers", DRIFT),
        _notes(policy, rows, strange, delta, chosen, apart),
    )  # fmt: skip


def _apart(policy: TablePolicy, seen: Sequence[Visits]) -> list[int]:
    """The states whose visits are in more than one part."""
    A = len(policy.actions) + 1
    met = np.zeros(len(policy.states), np.int64)
    for part in seen:
        met[np.unique(part.pair // A)] += 1
    return np.flatnonzero(met > 1).tolist()


def _tested(
    policy: TablePolicy, seen: Sequence[Visits], recent: Ints, delta: float
) -> list[dict[str, Any]]:
    """One row per suggestion: what was promised and estimated, and what new visits say of it.

    Parts are of groups that are independent, so their e-values are multiplied.
    """
    A, (lowest, highest) = len(policy.actions), seen[0].value_range
    width, state = highest - lowest, {label: s for s, label in enumerate(policy.states)}
    promised = (
        {} if policy.certificate is None else {r["state"]: r for r in policy.certificate.rows}
    )
    k = max(len(promised), 1)
    reach, rows = math.log(10 * k / delta), []
    for label, row in promised.items():
        s, avoid = state[label], "avoid" in row
        a = policy.actions.index(row["avoid"] if avoid else row["suggested"])
        pair = s * (A + 1) + a
        here = [part for part in seen if (part.pair // (A + 1) == s).any()] or [seen[0]]
        n, difference = _seen_in(here, pair)
        if avoid:  # whoever does anything else has followed
            n, difference = n[::-1], -difference
        low = max(float(row.get("low") or row["advantage_low"] or 0.0), 0.0)
        estimate = max(float(row.get("difference") or 0.0), low)
        shares = [(0.5, 0.5)] * len(here)
        if seen[0].markov:
            nats = math.log(4 * k * len(here) / delta)
            each = [seen_of(part, pair)[0][:: -1 if avoid else 1] for part in here]
            shares = [
                (lower_mean([1.0, 0.0], m, nats), max(lower_mean([0.0, 1.0], m, nats), 1e-9))
                for m in each
            ]  # of following, and of doing otherwise

        less_than = partial(_less_than, here, pair, shares, width, avoid)
        usual, took = (float(x[s, a]) for x in (policy.others_mean, policy.took_mean))
        m = float(np.asarray(policy.n)[s, a])
        if avoid:
            usual, took, m = took, usual, float(np.asarray(policy.n)[s].sum()) - m
        took = (m * took + lowest + highest) / (m + 2)  # one return at each end: luck is not all
        evidence = {
            "less": less_than(low), "worse": less_than(0.0), "estimate": less_than(estimate),
            **{name: sum(below(part, pair, min(max((v - lowest) / width, 0.0), 1.0), avoid)
                         for part in here)
               for name, v in (("level", usual + low), ("level_estimate", took))},
        }  # fmt: skip
        new = recent[s]
        otherwise = new[a] if avoid else new.sum() - new[a]
        adopted = new.sum() >= RECENT and otherwise <= OTHERWISE * new.sum()
        rows.append({
            "state": label, "suggested": row["suggested"], "promised": low, "estimated": estimate,
            "took": int(n[0]), "others": int(n[1]), "difference": difference * width,
            "at_most": _at_most(less_than, estimate, reach) if evidence["estimate"] >= reach
            else None,
            **{f"log10_e_{name}": e / TEN for name, e in evidence.items()},
            "verdict": _verdict(evidence, reach, bool(adopted), bool(n.all())),
            "holdout": _holdout(here[-1], pair, estimate / width, reach),
        })  # fmt: skip
    return rows


def _seen_in(parts: Sequence[Visits], pair: int) -> tuple[Ints, float]:
    """Visits with the action and without, and the difference: within the parts that have both."""
    each = [seen_of(part, pair) for part in parts]
    n: Ints = np.sum([one for one, _ in each], axis=0)
    if len(each) == 1:
        return n, each[0][1]
    both = [(one.sum(), difference) for one, difference in each if one.all()]
    weight, differences = np.array(both).T if both else (np.ones(1), np.full(1, np.nan))
    return n, float(weight @ differences / weight.sum())


def _less_than(
    parts: Sequence[Visits], pair: int, shares: Sequence[tuple[float, float]], width: float,
    avoid: bool, difference: float,
) -> float:  # fmt: skip
    """Natural logarithm of the e-value of "it brings at least this difference"."""
    return sum(
        against(part, pair, up / width * difference, down / up, avoid)
        for part, (down, up) in zip(parts, shares, strict=True)
    )


def _verdict(evidence: dict[str, float], reach: float, adopted: bool, compared: bool) -> str:
    """What is said of a suggestion, a key of `VERDICTS`."""
    if evidence["worse"] >= reach:
        return "worse than usual"
    if evidence["less"] >= reach:
        return "less than promised"
    if adopted and evidence["level"] >= reach:
        return "followers below the promise"
    if evidence["estimate"] >= reach:
        return "less than estimated"
    if adopted:
        below_it = evidence["level_estimate"] >= reach
        return "followers below the estimate" if below_it else "cannot be tested any more"
    return "holds" if compared else "cannot say"


def _at_most(less_than: Callable[[float], float], estimate: float, reach: float) -> float:
    """The smallest difference that new visits contradict, to a hundredth of the estimate."""
    low, high = 0.0, estimate
    for _ in range(7):
        middle = (low + high) / 2
        low, high = (low, middle) if less_than(middle) >= reach else (middle, high)
    return high


def _holdout(seen: Visits, pair: int, difference: float, reach: float) -> int | None:
    """Visits that must do otherwise, by lot, to see that the estimated benefit is gone; about.

    With a chance of .8, if one in ten does otherwise: the logarithm of an e-value grows by d²/2σ²
    with each of them, the mixture over bets costs about 6, and .84 is the quantile of .8.
    """
    n, mean, square = moments_of(seen, pair)
    spread = square - mean**2 if n > 1 else 0.25
    if difference <= 0:
        return None
    far = math.sqrt(2 * (reach + 6)) + 0.84
    return math.ceil(10 / 9 * max(spread, 0.01) * (far / difference) ** 2)


def _more(
    policy: TablePolicy, seen: Sequence[Visits], delta: float, n_min: float
) -> list[dict[str, Any]]:
    A = len(policy.actions)
    pairs = candidates(policy, n_min)
    nats = math.log(2 * max(len(pairs), 1) / delta)
    pairs = pairs[~np.isin(pairs // A, _apart(policy, seen))]
    if not len(pairs):
        return []
    proved = advantages(seen[0], pairs // A * (A + 1) + pairs % A, nats, nats)
    return [
        {"state": policy.states[int(pair) // (A + 1)],
         "suggested": policy.actions[int(pair) % (A + 1)], "advantage_low": float(low),
         "log10_e": float(e) / TEN}
        for pair, low, e in zip(proved.pairs, proved.low, proved.log_e, strict=True)
        if e >= nats
    ]  # fmt: skip


def _drifted(policy: TablePolicy, since: Ints, delta: float) -> list[dict[str, Any]]:
    before = np.column_stack((np.asarray(policy.m), np.zeros(len(policy.states), np.int64)))
    defers = ~policy.decisions.speaks
    asked = defers & (before.sum(axis=1) > 0)
    log_e = log_drift(before, since)
    names = [*policy.actions, "another"]
    rows = []
    for s in np.flatnonzero(asked & (log_e >= math.log(max(int(asked.sum()), 1) / delta))):
        then, now = before[s] / before[s].sum(), since[s] / max(since[s].sum(), 1)
        a = int(np.argmax(np.abs(now - then)))
        rows.append({"state": policy.states[s], "action": names[a], "then": float(then[a]),
                     "now": float(now[a]), "groups": int(since[s].sum()),
                     "log10_e": float(log_e[s]) / TEN})  # fmt: skip
    return sorted(rows, key=lambda row: -row["log10_e"])


WATCHED = ("promised", "estimated", "difference", "at_most")
"""Columns of suggestions that hold differences of outcomes."""
MORE = "log10_e: the evidence against 'no benefit' from new groups alone, in powers of ten."
DRIFT = "then, now: share of groups that took the action at their first visit."


def _table(rows: list[dict[str, Any]], caption: str, note: str) -> Table:
    names = list(rows[0]) if rows else []
    return Table({name: [row[name] for row in rows] for name in names}, caption, note)


def _suggestions(rows: list[dict[str, Any]], delta: float) -> Table:
    bound = "at_most: an upper bound of it, where that is below the estimate"
    if any("at_least" in row for row in rows):
        bound = "at_least: a lower bound of it, where that is above the estimate"
    note = (
        "promised: the certified bound of what taking the suggestion brings beside doing "
        "otherwise; estimated: what it was estimated at; difference: the same on new visits; "
        f"{bound}. log10_e_...: the "
        "evidence, in powers of ten, that it brings less than promised, is worse than doing "
        "otherwise, brings less than estimated, and that followers get less than was promised or "
        f"estimated (_level); they decide at {math.log10(10 * max(len(rows), 1) / delta):.2f}. "
        "holdout: visits that must do otherwise, by lot, to see that the benefit is gone."
    )
    return _table(rows, "Suggestions", note)


def _notes(
    policy: TablePolicy,
    rows: list[dict[str, Any]],
    strange: float,
    delta: float,
    chosen: Sequence[int],
    apart: Sequence[int],
) -> tuple[str, ...]:
    notes = [
        f"Each kind of statement (contradicted, certified now, practice has changed) is false with "
        f"probability at most {delta:g}, however often one looks."
    ]
    blind = [r for r in rows if r["verdict"].startswith(("cannot be", "followers"))]
    if blind:
        sizes = [row["holdout"] for row in blind if row["holdout"]]
        notes.append(
            f"At {_first(str(row['state']) for row in blind)} hardly anybody does otherwise any "
            "more: where a suggestion is always followed there is nothing left to compare it with, "
            "and whether it still helps cannot be tested. Followers are only held against what "
            "was seen when it was certified, which also moves when patients become others."
            + (
                f" Leave some to usual practice by lot, one in ten say, until about {max(sizes):,} "
                "did otherwise, and record the chance: a benefit that is gone would show."
                if sizes
                else ""
            )
        )
    if any("estimate" in row["verdict"] for row in rows):
        notes.append(
            "Less than estimated is not yet less than promised: what was estimated was partly luck."
        )
    if chosen:
        notes.append(
            f"At {_first(str(policy.states[s]) for s in chosen)} the recorded chances differ from "
            "row to row: who took the suggestion was chosen, so that these visits cannot be "
            "compared and are left out."
        )
    if apart:
        notes.append(
            f"At {_first(str(policy.states[s]) for s in apart)} the recorded chances differ "
            "between additions: only visits with the same chance are compared with each other."
        )
    if strange > 0:
        notes.append(f"{strange:.1%} of the new steps are in states that the policy does not know.")
    return tuple(notes)


def _first(names: Iterable[str]) -> str:
    """The first five names."""
    listed = list(names)
    return ", ".join(listed[:5]) + (", …" if len(listed) > 5 else "")


# --- Monitor: does what was certified still hold, while new groups come in?


class Monitor:
    """What new groups say of a certified policy; it may be asked at any time, as often as wanted.

    Groups are added as they come, and each counts once. What is kept is a small file of counts
    (`dprl.certificate.monitor`), so the logs themselves need not be kept.

    Attributes:
        policy: The policy.
        delta: How often each kind of statement may be false.
        record: What was added so far.

    Example:
        >>> import dprl
        >>> world = dprl.envs.care_pathway()
        >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
        >>> policy = dprl.gate(learner, world.sample(4000, seed=0), value_range=(0, 1))
        >>> monitor = dprl.Monitor(policy)
        >>> monitor.add(world.sample(500, seed=1)).status
        'still certified'
        >>> monitor.groups
        500
    """

    def __init__(
        self, policy: Any, path: str | os.PathLike[str] | None = None, *, delta: float | None = None
    ) -> None:
        """Begin, or go on from a file.

        Args:
            policy: A policy that went through `dprl.gate`, over labelled states.
            path: The file of the monitor. It is made at the first addition where there is none.
                Default None: nothing is written.
            delta: How often each kind of statement may be false, in (0, 1). Default None: that of
                the certificate; a file keeps the one it began with.

        Raises:
            PolicyError: The policy has no certificate over labelled states, or the file belongs to
                another policy, or is damaged.
            ParameterError: `delta` is out of range, or not the one that the file began with.
        """
        certificate = getattr(policy, "certificate", None)
        if certificate is None or getattr(policy, "changes_by", "") != "state":
            raise PolicyError(
                "a monitor needs a certificate over labelled states to hold new groups against.",
                repr(policy),
                worded("Judge suggestions over features on new episodes: {dprl.evaluate}.")
                if getattr(getattr(policy, "space", None), "feature_names", ())
                else worded("Gate the policy first: {dprl.gate}."),
            )
        if getattr(certificate, "grade", "proved") != "proved":
            raise PolicyError(
                "a monitor continues a proved certificate; this one is large-sample.",
                do=worded("Gate the policy with {grade='proved'}."),
            )
        if certificate.kind.whole:
            raise PolicyError(
                "a monitor watches single suggestions; this certificate is about the policy as a "
                "whole and claims nothing about any one of them.",
                do=worded("Gate the policy with {mode='swap-split'} or {mode='in-sample'}."),
            )
        self.policy = policy
        self.delta = check_delta(certificate.delta if delta is None else delta)
        head = {
            "format": FORMAT, "policy": policy.digest(), "delta": self.delta,
            "gamma": certificate.gamma, "range": list(certificate.value_range),
            "markov": getattr(certificate, "visits", "first") == "all",
            "salt": secrets.token_hex(16),
        }  # fmt: skip
        self._path = None if path is None else Path(path)
        self.record = Record(self._path, head)
        if self._path is not None and self._path.exists():
            self.record = Record.read(self._path)
            self._check_head(head, asked=delta)

    def _check_head(self, head: dict[str, Any], asked: float | None) -> None:
        """Refuse a file of another policy, or with another δ than asked for."""
        mine = self.record.head
        if mine.get("policy") != head["policy"]:
            raise PolicyError(
                "the file of the monitor belongs to another policy, "
                f"{str(mine.get('policy'))[:12]}; this is {head['policy'][:12]}.",
                str(self.record.path),
                "Name another file (--record): each policy has its own.",
            )
        if asked is not None and asked != mine["delta"]:
            raise ParameterError(
                f"the file of the monitor began with delta = {mine['delta']:g}; got {asked:g}.",
                str(self.record.path),
                "Leave delta out: it cannot be changed after looking.",
            )
        self.delta = float(mine["delta"])

    @property
    def groups(self) -> int:
        """The number of new groups so far."""
        return sum(len(entry["groups"]) for entry in self.record.additions)

    def add(self, log: Log, *, when: str | None = None) -> Watch:
        """Add the groups of a log that were not added before, and look.

        Args:
            log: New episodes; groups that were added before are left out.
            when: When they were added, for the history. Default None: now.

        Returns:
            How the claims stand with them.

        Raises:
            LogError: States are not labels, no group is new, a return is outside the range, or
                episodes that were added before come again under other labels.
            PolicyError: The log is one that the policy was made from.

        Example:
            >>> import dprl
            >>> world = dprl.envs.care_pathway()
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> policy = dprl.gate(learner, world.sample(4000, seed=0), value_range=(0, 1))
            >>> dprl.Monitor(policy).add(world.sample(500, seed=1)).groups
            500
        """
        check_log(log)
        refuse_completed(log, "A monitor takes groups whose outcomes were all seen.")
        with contextlib.nullcontext() if self._path is None else one_at_a_time(self._path):
            self._reload()  # another process may have added groups meanwhile
            return self._added(log, when)

    def _reload(self) -> None:
        """Take what is in the file now."""
        if self._path is not None and self._path.exists():
            head, self.record = self.record.head, Record.read(self._path)
            self._check_head(head, asked=self.delta)

    def _added(self, log: Log, when: str | None) -> Watch:
        head = self.record.head
        marks = marks_of(log.groups, head["salt"])
        before = self.record.marks()
        older = marks_of(log.groups, head["salt"], as_stored=True)
        new = np.array([before.isdisjoint(pair) for pair in zip(marks, older, strict=True)], bool)
        if not new.any():
            raise LogError(
                f"all {len(marks):,} groups of this log were added before.",
                do="Nothing was changed. Add logs of new groups.",
            )
        held = HeldOut.meet(
            self.policy, log.take(np.flatnonzero(new[log.group])), gamma=head["gamma"],
            claim="what a monitor says",
        )  # fmt: skip
        treated = held.treated.gathered()
        visits, strange = self._visits(treated)
        chosen = self._chosen(treated)
        fine = ~np.isin(visits.pair // len(visits.actions), chosen)
        entry: dict[str, Any] = {
            "when": when or datetime.now(UTC).isoformat(timespec="seconds"),
            "groups": [mark for mark, fresh in zip(marks, new, strict=True) if fresh],
            "left_out": int((~new).sum()), "steps": treated.n_steps, "strange": strange,
            "visits": {name: getattr(visits, name)[fine].tolist() for name in COLUMNS},
            "first": _sparse(self._first(treated)), "chosen": chosen.tolist(),
            **self._chances(treated), "beginnings": beginnings_of(held.log, head["salt"]),
        }  # fmt: skip
        _refuse_copies([entry], self.record.additions)
        looked = self._look([*self.record.additions, entry])
        entry["look"] = looked.to_dict()
        self.record.add(entry)
        return looked

    def look(self) -> Watch:
        """How the claims stand now.

        Returns:
            The same as the last addition returned.

        Example:
            >>> import dprl
            >>> world = dprl.envs.care_pathway()
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> policy = dprl.gate(learner, world.sample(4000, seed=0), value_range=(0, 1))
            >>> dprl.Monitor(policy).look().status
            'not tested yet'
        """
        return self._look(self.record.additions)

    def merge(self, other: Monitor) -> Monitor:
        """The additions of two monitors of one policy together, as if all had gone to one.

        Args:
            other: A monitor of the same policy that began from a copy of the same file, so that
                groups are recognised; no group may be in both.

        Returns:
            A new monitor, without a file.

        Raises:
            PolicyError: They are of different policies or did not begin from one file, or a group
                is in both.
            LogError: Episodes of one come again under other labels in the other.

        Example:
            >>> import dprl
            >>> world = dprl.envs.care_pathway()
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> policy = dprl.gate(learner, world.sample(4000, seed=0), value_range=(0, 1))
            >>> here = dprl.Monitor(policy)
            >>> here.merge(here).groups
            0
        """
        if other.record.head != self.record.head:
            raise PolicyError(
                "these monitors did not begin from the same file.",
                do="Begin one, copy its file to every site, and add there.",
            )
        both = self.record.marks() & other.record.marks()
        if both and other is not self:
            raise PolicyError(
                f"{len(both):,} groups are in both monitors.", do="Each group may count once."
            )
        if other is not self:
            _refuse_copies(other.record.additions, self.record.additions)
        merged = Monitor(self.policy, delta=self.delta)
        merged.record = Record(None, self.record.head)
        for entry in together(self.record, other.record):
            merged.record.additions.append({k: v for k, v in entry.items() if k != "look"})
            looked = merged._look(merged.record.additions)
            merged.record.additions[-1]["look"] = looked.to_dict()
        return merged

    def history(self) -> Table:
        """How the evidence grew: one row per addition and suggestion.

        Returns:
            Columns when, groups, state, suggested, difference, log10_e_less, log10_e_worse,
            verdict.

        Example:
            >>> import dprl
            >>> world = dprl.envs.care_pathway()
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> policy = dprl.gate(learner, world.sample(4000, seed=0), value_range=(0, 1))
            >>> monitor = dprl.Monitor(policy)
            >>> _ = monitor.add(world.sample(100, seed=1))
            >>> monitor.history()["groups"]
            [100, 100]
        """
        names = ("state", "suggested", "difference", "log10_e_less", "log10_e_worse", "verdict")
        columns: dict[str, list[Any]] = {name: [] for name in ("when", "groups", *names)}
        for entry in self.record.additions:
            for row in entry["look"]["suggestions"]:
                columns["when"].append(entry["when"])
                columns["groups"].append(entry["look"]["groups"])
                for name in names:
                    columns[name].append(row[name])
        return Table(columns, "Evidence against what was promised, addition by addition")

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """The evidence against each suggestion over time, with the line at which it decides.

        Args:
            path: A file to save to (.png, .svg or .pdf); the rows go beside it as .parquet. Default
                None: nothing is written.

        Returns:
            The matplotlib figure.

        Raises:
            PackageError: matplotlib is not installed.

        Example:
            >>> import dprl
            >>> world = dprl.envs.care_pathway()
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> policy = dprl.gate(learner, world.sample(4000, seed=0), value_range=(0, 1))
            >>> figure = dprl.Monitor(policy).plot()
        """
        rows = self.history().to_dicts()
        line = np.log10(10 * max(len(self.policy.certificate.rows), 1) / self.delta)
        with plot.look():
            figure, axes = plot.grid(1, 1, width=6.4, height=3.8)
            axis = axes[0, 0]
            labels = list(dict.fromkeys((r["state"], r["suggested"]) for r in rows))
            last = {}
            for state, suggested in labels:
                mine = [r for r in rows if (r["state"], r["suggested"]) == (state, suggested)]
                last[state, suggested] = mine[-1]["log10_e_less"]
            loudest = sorted(labels, key=lambda label: -last[label])[:8]
            for label in labels:
                mine = [r for r in rows if (r["state"], r["suggested"]) == label]
                x, y = [r["groups"] for r in mine], [r["log10_e_less"] for r in mine]
                words = f"{label[0]}: {label[1]}"
                loud = label in loudest
                look = {"lw": 1.6, "label": words} if loud else {"lw": 0.8, "color": "#bbbbbb"}
                axis.plot(x, y, marker="o", ms=3, **look)
            plot.reference(axis, float(line), "contradicted above this line")
            axis.set(xlabel="new groups", ylabel="evidence against the promise (powers of ten)")
            if labels:
                figure.legend(*axis.get_legend_handles_labels(), loc="outside right center",
                              fontsize=8)  # fmt: skip
            if path is not None:
                plot.save(figure, Path(path))
                write_rows(to_json_value(rows), Path(path).with_suffix(".parquet"))
        return figure

    def _visits(self, log: Log) -> tuple[Visits, float]:
        """Visits in the labels of the policy, and the share of steps in states it does not know."""
        head = self.record.head
        low, high = head["range"]
        own = visits_of(log, head["gamma"], (low, high), markov=head["markov"])
        A, state, action = len(self.policy.actions), *self._codes(log)
        s, a = state[own.pair // log.n_actions], action[own.pair % log.n_actions]
        fine = s >= 0
        columns = [c[fine] for c in (s * (A + 1) + a, own.gap, own.bin, own.count)]
        strange = float((state[log.codes()] < 0).mean()) if log.n_steps else 0.0
        return self._counted(columns, own.n_groups), strange

    def _counted(self, columns: list[Ints], groups: int) -> Visits:
        """Visits of these columns (pair, gap, bin, count); equal entries are added up."""
        head, policy = self.record.head, self.policy
        pair, gap, bins, count = counted(*columns)
        low, high = head["range"]
        return Visits(
            pair, gap, bins, count, policy.states, (*policy.actions, "another action"),
            head["gamma"], (low, high), head["markov"], groups,
        )  # fmt: skip

    def _codes(self, log: Log) -> tuple[Ints, Ints]:
        """The policy's code of each state of a log (-1: unknown), and of each action (A: other)."""
        A = len(self.policy.actions)
        states = {label: s for s, label in enumerate(self.policy.states)}
        actions = {label: a for a, label in enumerate(self.policy.actions)}
        return (
            np.array([states.get(label, -1) for label in log.states], np.int64),
            np.array([actions.get(label, A) for label in log.actions], np.int64),
        )

    def _chosen(self, log: Log) -> Ints:
        """The states in which recorded chances show that those who took an action were chosen."""
        chances = RecordedPropensity.of(log)
        if chances is None:
            return np.zeros(0, np.int64)
        allowed = float(getattr(self.policy.certificate, "confounding", 1.0) or 1.0)
        states = self._codes(log)[0][~chances.fair(allowed)]
        return np.asarray(np.unique(states[states >= 0]))

    def _chances(self, log: Log) -> dict[str, Any]:
        """What the log records of the chances of actions: its smallest and largest, by pair."""
        chances = RecordedPropensity.of(log)
        if chances is None:
            return {}
        A, S = len(self.policy.actions) + 1, len(self.policy.states)
        state, action = self._codes(log)
        s, a = np.nonzero(np.isfinite(chances.low) & (state >= 0)[:, None])
        low, high = np.full(S * A, np.inf), np.full(S * A, -np.inf)
        pair = state[s] * A + action[a]
        np.minimum.at(low, pair, chances.low[s, a])
        np.maximum.at(high, pair, chances.high[s, a])
        at = np.flatnonzero(np.isfinite(low))
        ends = {"low": low[at].tolist(), "high": high[at].tolist()}
        return {"chances": {"pair": at.tolist(), **ends}}

    def _first(self, log: Log) -> Ints:
        """int64 (S, A + 1): groups that took each action at their first visit of each state."""
        state, action = self._codes(log)
        rows = np.flatnonzero(first_visits(log))
        s, a = state[log.codes()[rows]], action[log.action[rows]]
        S, A = len(self.policy.states), len(self.policy.actions) + 1
        fine = s >= 0
        return np.bincount(s[fine] * A + a[fine], minlength=S * A).reshape(S, A)

    def _look(self, additions: list[dict[str, Any]]) -> Watch:
        groups = sum(len(e["groups"]) for e in additions)
        S, A = len(self.policy.states), len(self.policy.actions) + 1
        parts: list[list[list[Ints]]] = [[[np.zeros(0, np.int64)] * len(COLUMNS)]]
        for entry, part in zip(additions, self._parts(additions), strict=True):
            columns = [np.array(entry["visits"][c], np.int64) for c in COLUMNS]
            own = part[columns[0] // A]
            for k in np.unique(own).tolist():
                parts += [[] for _ in range(k + 1 - len(parts))]
                parts[k].append([column[own == k] for column in columns])
        seen = [
            self._counted([np.concatenate(c) for c in zip(*part, strict=True)], groups)
            for part in parts
        ]
        since = np.zeros(S * A, np.int64)
        for entry in additions:
            since[np.array(entry["first"]["pair"], np.int64)] += entry["first"]["count"]
        steps = sum(e["steps"] for e in additions)
        strange = sum(e["strange"] * e["steps"] for e in additions) / max(steps, 1)
        chosen = sorted({s for e in additions for s in e.get("chosen", ())})
        return watch(
            self.policy, seen, since.reshape(S, A),
            self._recent(additions), delta=self.delta, chosen=chosen, strange=strange,
            n_min=float(self.policy.parameters.get("n_min") or 1),
        )  # fmt: skip

    def _parts(self, additions: list[dict[str, Any]]) -> list[Ints]:
        """Of each addition the part, int64 (S,), in which visits of a state may be compared.

        A part holds the additions with the same recorded chances, or those without a record.
        """
        S, A = len(self.policy.states), len(self.policy.actions) + 1
        if not any("chances" in entry for entry in additions):
            return [np.zeros(S, np.int64)] * len(additions)
        allowed = float(getattr(self.policy.certificate, "confounding", 1.0) or 1.0)
        known: list[tuple[Ints, RecordedPropensity]] = []  # what a part holds: -1 nothing yet
        parts = []
        for entry in additions:
            ends = np.array([[np.inf], [-np.inf]]) * np.ones(S * A)
            told = entry.get("chances", {"pair": [], "low": [], "high": []})
            ends[:, np.array(told["pair"], np.int64)] = told["low"], told["high"]
            low, high = ends.reshape(2, S, A)
            own = RecordedPropensity(low, high, np.ones(S, bool))
            recorded = np.isfinite(low).any(axis=1)
            left = np.zeros(S, bool)
            left[np.array(entry["visits"]["pair"], np.int64) // A] = True
            part = np.zeros(S, np.int64)
            k = 0
            while left.any():
                if k == len(known):
                    blank = np.full((S, A), np.inf)
                    known.append((np.full(S, -1), RecordedPropensity(blank, -blank, left)))
                kind, before = known[k]
                both = own.merge(before)
                two = not np.isfinite(both.low[:, 2:]).any()
                fair = replace(both, low=both.low[:, :2], high=both.high[:, :2]) if two else both
                fits = left & ((kind < 0) | ((kind == recorded) & fair.fair(allowed)))
                here = fits[:, None]
                known[k] = (
                    np.where(fits, recorded, kind),
                    RecordedPropensity(
                        np.where(here, both.low, before.low),
                        np.where(here, both.high, before.high), np.ones(S, bool),
                    ),
                )  # fmt: skip
                part[fits] = k
                left &= ~fits
                k += 1
            parts.append(part)
        return parts

    def _recent(self, additions: list[dict[str, Any]]) -> Ints:
        """int64 (S, A + 1): visits of the newest additions, until a state has `RECENT` of them."""
        S, A = len(self.policy.states), len(self.policy.actions) + 1
        recent = np.zeros((S, A), np.int64)
        for entry in reversed(additions):
            pair, count = (np.array(entry["visits"][c], np.int64) for c in ("pair", "count"))
            newer = np.bincount(pair, weights=count, minlength=S * A).astype(np.int64)
            few = recent.sum(axis=1) < RECENT
            recent[few] += newer.reshape(S, A)[few]
        return recent


def _refuse_copies(new: Sequence[dict[str, Any]], before: Sequence[dict[str, Any]]) -> None:
    """Refuse additions in which episodes of earlier ones come again, under other labels."""
    pairs = [
        (one, other)
        for one in new
        for other in before
        if "beginnings" in one and "beginnings" in other
    ]  # older files have none
    for one, other in pairs:
        share = in_both(other["beginnings"], one["beginnings"], len(pairs))
        if share > TOO_MUCH:
            raise LogError(
                f"about {100 * share:.0f} % of a sample of episodes happened in the same way, "
                f"under other labels, in what was added on {other['when']}.",
                do="Nothing was changed. Each group may count once.",
            )


def _sparse(counts: Ints) -> dict[str, list[int]]:
    flat = counts.ravel()
    at = np.flatnonzero(flat)
    return {"pair": at.tolist(), "count": flat[at].tolist()}
