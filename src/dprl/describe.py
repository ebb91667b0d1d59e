"""What a policy would change, in words and numbers a reviewer can check against a log.

Labelled states give one `Change` a state. Features give one a region: ranges of features, with the
log's steps in it (the rule is in `dprl.grouping`); its counts and values are those of a typical
step, the one nearest to the median of the region's steps in the policy's own distance.

The check against the log: of every episode (group) the first step in the situation; x its return
where the suggestion was taken there, y where it was not. The difference to usual practice is
A = (1 - p)(mean x - mean y), p the share that took it, with Welch's interval; the same quantity
the policy shows of its training log as *advantage*. On a log that did not train the policy, that
is a held-out check; it is still an observation, not a trial.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl.cut import settle
from dprl.errors import LogError
from dprl.explanation import change_rows, change_words, counted, welch
from dprl.grouping import group
from dprl.log import CUT, Label, Log
from dprl.neighbor_policy import NeighborPolicy
from dprl.policy import Policy
from dprl.region import Range, Region
from dprl.returns import returns

__all__ = ["Case", "Change", "Check", "Described", "describe_changes"]

Ints: TypeAlias = NDArray[np.int64]
CASES, AHEAD = 5, 3
"""Past cases shown on either side, and steps told of what came after."""


@dataclass(frozen=True)
class Check:
    """What the log says about a change.

    Attributes:
        took: Episodes (groups) whose first step in the situation took the suggestion.
        others: Those that did otherwise.
        difference: Of the mean return to usual practice; None without either.
        low: Its approximate 95 % interval; None with fewer than two on either side.
        high: And its other end.
    """

    took: int
    others: int
    difference: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Change:
    """One thing a policy would do otherwise.

    Attributes:
        key: A short name of it that depends on what it says alone.
        situation: Where, in words.
        state: The state's label; None where it is a region.
        region: The region; None where it is a state.
        usual: What is usually done there.
        suggested: What the policy suggests.
        shares: (action, share of episodes that took it there first), largest first.
        counted: What the counts count: "episodes", "groups" or "visits".
        episodes: Of the training log, that took the suggestion there.
        others: And that did otherwise.
        value: Their mean return with the suggestion.
        value_usual: And with usual practice.
        advantage: Difference to usual practice at first visits.
        low: Its approximate 95 % interval, of this change alone; None where there is none.
        high: And its other end.
        planned: What the suggestion is worth if the plan is followed from there on.
        typical: (name, value) of a typical state; empty for labels.
        steps: The log's steps at which the policy makes this change.
        met: Episodes (groups) of the log that meet it.
        purity: Share of the log's steps in the situation at which the change is made.
        check: What the log says.
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
    value: float
    value_usual: float
    advantage: float
    low: float | None
    high: float | None
    planned: float
    typical: tuple[tuple[str, float], ...]
    steps: int
    met: int
    purity: float
    check: Check


@dataclass(frozen=True)
class Case:
    """One past step in a situation.

    Attributes:
        episode: Whose.
        time: When, as the log says it.
        action: What was done.
        outcome: The return that followed.
        cut: Whether we stopped looking before its end.
        after: What was done next, in a few words.
        features: (name, value) of the state; empty for labels.
    """

    episode: Label
    time: str
    action: Label
    outcome: float
    cut: bool
    after: str
    features: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, eq=False)
class Described:
    """The changes of a policy as a log shows them.

    Attributes:
        policy: The policy.
        log: The log, its cut episodes treated as the policy's training treated them.
        log_digest: Of the log as it was given.
        trained: Whether this log trained the policy: then nothing here is a held-out check.
        notes: What a reader must know about the log.
        changes: The changes, those that meet the most steps first.
        steps: Share of the log's steps "deferred", "confirmed" and "changed".
    """

    policy: Policy | NeighborPolicy
    log: Log
    log_digest: str
    trained: bool
    notes: tuple[str, ...]
    changes: tuple[Change, ...]
    steps: Mapping[str, float]
    _rows: Mapping[str, Ints] = field(repr=False)
    _G: NDArray[np.float64] = field(repr=False)

    def __getitem__(self, key: str) -> Change:
        return next(c for c in self.changes if c.key == key)

    def __contains__(self, key: object) -> bool:
        return any(c.key == key for c in self.changes)

    def cases(self, change: Change) -> tuple[list[Case], list[Case]]:
        """Past steps in the situation: that took the suggestion, and that did not.

        The first step of each episode (group); where states are features the most typical ones,
        else evenly spaced through the log.
        """
        rows, log, policy = self._rows[change.key], self.log, self.policy
        rows = _first(log, rows)
        took = np.array([log.actions[a] == change.suggested for a in log.action[rows]], bool)
        both = []
        for side in (rows[took], rows[~took]):
            if isinstance(policy, NeighborPolicy):
                x: Any = log.features
                near = np.argsort(_from_median(policy, x[rows], x[side]), kind="stable")
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

        def said(t: int) -> str:
            did = str(log.actions[log.action[t]])
            return did if log.state is None else f"{log.states[log.state[t]]}: {did}"

        more = int(log.starts[e + 1]) - 1 - row - len(ahead)
        words = [said(t) for t in ahead] + ([f"… {more} more"] if more else [])
        features: tuple[tuple[str, float], ...] = ()
        if log.features is not None:
            features = tuple(zip(log.feature_names, log.features[row].tolist(), strict=True))
        return Case(
            log.episodes[e],
            str(row - int(log.starts[e])) if log.time is None else str(log.time[row]),
            log.actions[log.action[row]],
            float(self._G[row]),
            bool(log.ended[e] == CUT),
            " → ".join(words) or "end",
            features,
        )


def describe_changes(policy: Policy | NeighborPolicy, log: Log) -> Described:
    """The changes `policy` makes, in words, and what `log` says about each."""
    trained = log.digest() == policy.provenance.get("log")
    gamma = float(policy.parameters.get("gamma", 1.0))
    ended = dict(zip(log.episodes, log.ended.tolist(), strict=True))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        settled = settle(log, gamma, policy.parameters.get("cut"))
    notes = [str(w.message) for w in said]
    if settled.n_episodes < log.n_episodes:
        notes.append(f"{log.n_episodes - settled.n_episodes:,} cut episodes were left out.")
    G = returns(settled, gamma)
    found = _regions if isinstance(policy, NeighborPolicy) else _states
    changes, rows, kinds = found(policy, settled, G)  # type: ignore[arg-type]
    order = sorted(range(len(changes)), key=lambda i: -changes[i].steps)
    # Settling marks cut episodes as ended; people should still be told.
    marks = np.array([ended[e] for e in settled.episodes], np.uint8)
    n = max(settled.n_steps, 1)
    return Described(
        policy=policy,
        log=replace(settled, ended=marks),
        log_digest=log.digest(),
        trained=trained,
        notes=tuple(notes),
        changes=tuple(changes[i] for i in order),
        steps={
            name: float((kinds == k).sum()) / n
            for k, name in enumerate(("deferred", "confirmed", "changed"))
        },
        _rows={changes[i].key: rows[i] for i in order},
        _G=G,
    )


Found: TypeAlias = tuple[list[Change], list[Ints], NDArray[Any]]


def _states(policy: Policy, log: Log, G: NDArray[np.float64]) -> Found:
    """One change a state."""
    codes = np.array(policy._codes(log.states), np.int64)[log.codes()]
    kinds = np.where(codes >= 0, policy.kind[codes], 0)
    name = policy.provenance.get("columns", {}).get("state")
    label = name if isinstance(name, str) else "state"
    changes, rows = [], []
    points = np.flatnonzero(policy.kind == 2)
    for s, row in zip(_ordered(policy, points), change_rows(policy, points, ""), strict=True):
        here = np.flatnonzero(codes == s)
        facts = _facts(policy, int(s), row)
        rows.append(here)
        changes.append(
            Change(
                key=_key(["state", row["state"], row["usual"], row["suggested"]]),
                situation=f"{label} = {row['state']}",
                state=row["state"],
                region=None,
                typical=(),
                steps=len(here),
                met=len(_first(log, here)),
                purity=1.0,
                check=_check(log, here, row["suggested"], G),
                **facts,
            )
        )
    return changes, rows, kinds


def _regions(policy: NeighborPolicy, log: Log, G: NDArray[np.float64]) -> Found:
    """One change a region."""
    if log.features is None or log.feature_names != policy.feature_names:
        raise LogError(
            "this log has other states than the policy was fitted to.",
            f"{', '.join(log.feature_names[:4]) or 'labels'} and not "
            f"{', '.join(policy.feature_names[:4])}",
        )
    x, names = log.features, log.feature_names
    here = policy.at(x)
    usable = np.flatnonzero(policy.weight).tolist()
    whole = {names[j]: bool((x[:, j] == np.floor(x[:, j])).all()) for j in usable}
    groups = group(x, names, change_words(here), usable)
    changes, rows = [], []
    for one in groups:
        region, inside = one.region, np.flatnonzero(one.region.holds(x, names))
        typical = int(one.rows[_from_median(policy, x[one.rows], x[one.rows]).argmin()])
        row = next(iter(change_rows(here, np.array([typical]), "")))
        rows.append(inside)
        changes.append(
            Change(
                key=_key(["region", region.to_dict()]),
                situation=_words(region.ranges, whole),
                state=None,
                region=region,
                typical=tuple(zip(names, x[typical].tolist(), strict=True)),
                steps=len(one.rows),
                met=len(_first(log, one.rows)),
                purity=one.purity,
                check=_check(log, inside, region.suggested, G),
                **_facts(here, typical, row),
            )
        )
    return changes, rows, here.kind


def _ordered(policy: Policy, points: Ints) -> Ints:
    """State codes in the order `change_rows` lists them."""
    difference = policy.Q[points, policy.choice[points]] - policy.V[points]
    return np.asarray(points[np.lexsort((points, -difference))])


def _facts(policy: Policy, s: int, row: Mapping[str, Any]) -> dict[str, Any]:
    """What the training log says about state `s`, of which `row` is the row of `changes()`."""
    shares = policy.m[s] / policy.m[s].sum()
    order = [a for a in np.argsort(-shares, kind="stable") if shares[a] > 0]
    unit = counted(policy)
    return {
        "usual": row["usual"],
        "suggested": row["suggested"],
        "shares": tuple((policy.actions[a], float(shares[a])) for a in order),
        "counted": unit,
        "episodes": row[unit],
        "others": row["others"],
        "value": row["value"],
        "value_usual": row["value_usual"],
        "advantage": row["advantage"],
        "low": _number(row["low"]),
        "high": _number(row["high"]),
        "planned": row["planned"],
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _words(ranges: Sequence[Range], whole: Mapping[str, bool]) -> str:
    """Ranges as people say them."""

    def one(r: Range) -> str:
        if not whole[r.feature]:
            return f"{r.feature} {r.low:g} to under {r.high:g}"
        if r.high - r.low == 1:
            return f"{r.feature} = {r.low:g}"
        return f"{r.feature} {r.low:g} to {r.high - 1:g}"

    return " · ".join(one(r) for r in ranges) or "anywhere"


def _key(what: Any) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]


def _first(log: Log, rows: Ints) -> Ints:
    """The first of `rows` (ascending) of every episode, or group where the log has groups."""
    episode = np.searchsorted(log.starts, rows, "right") - 1
    return np.asarray(np.sort(rows[np.unique(log.group[episode], return_index=True)[1]]))


def _check(log: Log, rows: Ints, suggested: Label, G: NDArray[np.float64]) -> Check:
    """What happened at the first step in a situation: with the suggestion, and without."""
    rows = _first(log, rows)
    a = log.actions.index(suggested) if suggested in log.actions else -1
    x, y = G[rows[log.action[rows] == a]], G[rows[log.action[rows] != a]]
    if not len(x) or not len(y):
        return Check(len(x), len(y), None, None, None)
    weight = len(y) / len(rows)
    low = high = None
    if len(x) > 1 and len(y) > 1:
        parts = [
            np.asarray(v, np.float64)
            for v in (len(x), x.mean(), x.var(ddof=1), len(y), y.mean(), y.var(ddof=1))
        ]
        low, high = (weight * float(end) for end in welch(*parts))
    return Check(len(x), len(y), weight * float(x.mean() - y.mean()), low, high)


def _from_median(
    policy: NeighborPolicy, among: NDArray[np.float64], x: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Squared distance of x (k, d) from the median of `among`, as the policy measures it."""
    middle = np.median(policy._metric.transform(among), axis=0)
    return np.asarray(((policy._metric.transform(x) - middle) ** 2).sum(axis=1))
