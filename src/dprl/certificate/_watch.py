r"""What a monitor says of a certified policy, from groups that came after it was made.

Every statement below is an e-process over the new groups alone, so each kind of statement is false
with probability at most δ *however often one looks*, and nothing is paid for looking.

* *against*: of each of the k issued suggestions, "its advantage is at least the lower bound that
  was certified" and "it is at least 0". With x and y of `dprl.certificate._eprocess` exchanged,
  the first fails where

      Q >= V + c    and    E y <= V - c o,      o = p/(1-p)

  does, c the certified bound and p a lower bound of the probability of the action, at δ/2k for each
  suggestion. Contradicted where one of the two e-values reaches 4k/δ.
* *more*: pairs that were not issued, although their action looked better than doing otherwise and
  n_min trajectories took it: certified now where the e-value of "no benefit" reaches 2C/δ, C the
  number of such pairs; as much is left for the probability of the action in the lower bound.
* *drift*: states where the policy defers, and actions are not taken as often as they were
  (`dprl.certificate._drift`), at S/δ for S such states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.plural import many
from dprl._core.table import Table, to_json_value
from dprl.certificate._drift import log_drift
from dprl.certificate._eprocess import advantages, against, lower_mean, seen_of
from dprl.certificate._visits import Visits
from dprl.policies.table import TablePolicy

__all__ = ["Watch", "candidates", "watch"]

Ints = NDArray[np.int64]
TEN = math.log(10)
STATUS = ("still certified", "more is certified now", "what was promised is contradicted")


@dataclass(frozen=True, eq=False)
class Watch:
    """How the claims of a policy stand.

    Attributes:
        status: "still certified", "more is certified now", or "what was promised is contradicted".
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

    def _repr_html_(self) -> str:
        from dprl._core.notebook import in_notebook

        head = str(self).splitlines()[0]
        return in_notebook(head, self.notes, (self.suggestions, self.more, self.drift))

    def __str__(self) -> str:
        tables = [t for t in (self.suggestions, self.more, self.drift) if len(t)]
        head = f"{self.status[0].upper()}{self.status[1:]} ({many(self.groups, 'new group')})"
        return "\n\n".join([head, *map(str, tables), *self.notes])


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
    policy: TablePolicy, seen: Visits, since: Ints, *, delta: float, n_min: float, strange: float
) -> Watch:
    """How the claims of a policy stand after some visits.

    Args:
        policy: A certified policy over S labelled states with A actions.
        seen: New visits; its actions are those of the policy, and one for all others.
        since: int64 (S, A + 1), new groups that took each action at their first visit.
        delta: Level of each kind of statement.
        n_min: Trajectories that an action needed to be looked at.
        strange: Share of new steps in states that the policy does not know.
    """
    A = len(policy.actions)
    assert policy.certificate is not None  # a monitor takes no other
    promised = {row["state"]: row for row in policy.certificate.rows}
    state = {label: s for s, label in enumerate(policy.states)}
    rows: list[dict[str, Any]] = []
    k = max(len(promised), 1)
    reach = math.log(4 * k / delta)
    for label, row in promised.items():
        s = state[label]
        a = policy.actions.index(row["suggested"])
        pair = s * (A + 1) + a
        n, difference = seen_of(seen, pair)
        low = max(float(row["advantage_low"] or 0.0), 0.0)
        width = seen.value_range[1] - seen.value_range[0]
        p = lower_mean([1.0, 0.0], n, math.log(2 * k / delta))
        worse = against(seen, pair, 0.0, 0.0)
        less = against(seen, pair, low / width, p / max(1 - p, 1e-12)) if low else worse
        rows.append({
            "state": label, "suggested": row["suggested"], "promised": low, "took": int(n[0]),
            "others": int(n[1]), "difference": difference * width,
            "log10_e_less": less / TEN, "log10_e_worse": worse / TEN,
            "verdict": "worse than usual" if worse >= reach else "less than promised"
            if less >= reach else "holds" if n.all() else "cannot say",
        })  # fmt: skip
    more = _more(policy, seen, delta, n_min)
    drift = _drifted(policy, since, delta)
    broken = any(r["verdict"] in ("worse than usual", "less than promised") for r in rows)
    status = STATUS[2 if broken else 1 if more else 0]
    return Watch(
        status, seen.n_groups, _suggestions(rows, delta), _table(more, "Certified now", MORE),
        _table(drift, "Practice has changed where the policy defers", DRIFT),
        _notes(rows, strange, delta),
    )  # fmt: skip


def _more(policy: TablePolicy, seen: Visits, delta: float, n_min: float) -> list[dict[str, Any]]:
    A = len(policy.actions)
    pairs = candidates(policy, n_min)
    if not len(pairs):
        return []
    nats = math.log(2 * len(pairs) / delta)
    proved = advantages(seen, pairs // A * (A + 1) + pairs % A, nats, nats)
    return [
        {"state": policy.states[int(pair) // (A + 1)],
         "suggested": policy.actions[int(pair) % (A + 1)], "advantage_low": float(low),
         "log10_e": float(e) / TEN}
        for pair, low, e in zip(proved.pairs, proved.low, proved.log_e, strict=True)
        if e >= nats
    ]  # fmt: skip


def _drifted(policy: TablePolicy, since: Ints, delta: float) -> list[dict[str, Any]]:
    before = np.column_stack((np.asarray(policy.m), np.zeros(len(policy.states), np.int64)))
    defers = np.asarray(policy.choice) < 0
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


MORE = "log10_e: the evidence against 'no benefit' from new groups alone, in powers of ten."
DRIFT = "then, now: share of groups that took the action at their first visit."


def _table(rows: list[dict[str, Any]], caption: str, note: str) -> Table:
    names = list(rows[0]) if rows else []
    return Table({name: [row[name] for row in rows] for name in names}, caption, note)


def _suggestions(rows: list[dict[str, Any]], delta: float) -> Table:
    note = (
        "promised: the certified lower bound of the advantage. difference: taking the suggestion "
        "less doing otherwise, on new visits. log10_e_less and log10_e_worse: the evidence that it "
        "brings less than promised, and that it is worse than usual practice, in powers of ten; "
        f"they decide at {math.log10(4 * max(len(rows), 1) / delta):.2f}."
    )
    return _table(rows, "Suggestions", note)


def _notes(rows: list[dict[str, Any]], strange: float, delta: float) -> tuple[str, ...]:
    notes = [
        f"Each kind of statement (contradicted, certified now, practice has changed) is false with "
        f"probability at most {delta:g}, however often one looks."
    ]
    alone = [str(row["state"]) for row in rows if row["took"] and not row["others"]]
    if alone:
        notes.append(
            f"At {', '.join(alone[:5])}{', …' if len(alone) > 5 else ''} nobody did otherwise: "
            "where a suggestion is always followed there is nothing left to compare it with."
        )
    if strange > 0:
        notes.append(f"{strange:.1%} of the new steps are in states that the policy does not know.")
    return tuple(notes)
