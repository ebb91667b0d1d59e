"""What a policy would change, in words and numbers a reviewer can check against a log.

A policy over labels has one `Change` per state. A policy over cells has one per cell, described by
the feature ranges of the log's steps in it; a certificate is about whole cells, so they are neither
merged nor cut. A policy over other features has one per region: ranges of features that contain
steps of the log (`dprl.policies._region_search` finds them). The counts and values of a region are
those of a typical step, the one nearest to the median of the region's steps in the policy's own
distance.

The check against the log takes from every episode (group) its first step in the situation; x are
the returns where the suggestion was taken there, y where it was not. The advantage over usual
practice is A = (1 - p)(mean x - mean y), where p is the share that took it, with the interval of
`dprl._core.intervals`; the policy shows the same quantity for its training log as *advantage*. On a
log that did not train the policy, that is a held-out check; it is still an observation, not a
trial.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.intervals import contrast_of
from dprl.apps._change import Case, Change, Check
from dprl.errors import LogError
from dprl.logs._censoring import settle
from dprl.logs._overlap import cannot_tell, seen
from dprl.logs.log import CUT, Label, Log
from dprl.logs.returns import returns
from dprl.policies._explain import (
    change_rows,
    change_words,
    counted,
    silences,
    surest_first,
    why_silent,
)
from dprl.policies._familiar import check_familiar
from dprl.policies._region_search import group, ranges_of
from dprl.policies._regions import range_words
from dprl.policies.cells import CellPolicy
from dprl.policies.neighbors import NeighborPolicy
from dprl.policies.table import Policy

__all__ = ["Described", "describe_changes"]

Ints: TypeAlias = NDArray[np.int64]
CASES, AHEAD = 5, 3
"""Number of past cases shown on either side, and of the steps after each that are listed."""


@dataclass(frozen=True, eq=False)
class Described:
    """The changes of a policy, described with the help of a log.

    Attributes:
        policy: The policy.
        log: The log, with its cut episodes treated as in the policy's training.
        log_digest: Digest of the log as it was given.
        cut: Number of its episodes that were cut.
        left_out: Number of cut episodes that are left out of `log`.
        seen: What the log has in common with the logs that the policy comes from, in words; '' if
            nothing. Where there is something, nothing here is a held-out check.
        notes: What a reader must know about the log.
        changes: The changes, the highest lower end of the interval first, then the most steps.
        steps: "deferred", "confirmed" and "changed" → share of the log's steps.
        not_done: Share of the log's steps at which the policy speaks and something else was done.
        silent: (reason, share of the log's steps) where the policy defers, largest share first.
    """

    policy: Policy | NeighborPolicy
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
    _rows: Mapping[str, Ints] = field(repr=False)
    _G: NDArray[np.float64] = field(repr=False)

    @property
    def unsure(self) -> str:
        """Why it is not known whether the policy has seen this log; '' where it is on record."""
        return cannot_tell(self.policy.provenance)

    @property
    def trained(self) -> bool:
        """Whether this log, or part of it, made the policy."""
        return bool(self.seen)

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
            if isinstance(policy, NeighborPolicy | CellPolicy):
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
            log.clock(row),
            log.actions[log.action[row]],
            float(self._G[row]),
            bool(log.ended[e] == CUT),
            " → ".join(words) or "end",
            features,
        )


def describe_changes(policy: Policy | NeighborPolicy, log: Log) -> Described:
    """The changes `policy` makes, in words, and what `log` says about each."""
    known, strange = seen(policy.provenance, log), check_familiar(policy, log)
    gamma = float(policy.parameters.get("gamma", 1.0))
    ended = dict(zip(log.episodes, log.ended.tolist(), strict=True))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        near = policy.near() if isinstance(policy, NeighborPolicy) else None
        settled = settle(log, gamma, policy.parameters.get("cut"), near)
    notes = [*strange, *(str(w.message) for w in said)]
    if cannot_tell(policy.provenance):
        notes.append(f"{cannot_tell(policy.provenance)}. If it has, all of this flatters it.")
    left_out = log.n_episodes - settled.n_episodes
    if left_out and policy.parameters.get("cut") == "drop":
        notes.append(
            f"{left_out:,} of {log.n_episodes:,} episodes were cut and are left out: every number "
            f"here is of the other {settled.n_episodes:,}."
        )
    G = returns(settled, gamma)
    if isinstance(policy, NeighborPolicy):
        changes, rows, kinds, silent, choice = _regions(policy, settled, G)
    else:
        changes, rows, kinds, silent, choice = _states(policy, settled, G)
    place = {label: i for i, label in enumerate(settled.actions)}
    names = np.array([place.get(label, -1) for label in policy.actions] + [-1], np.int64)
    order = sorted(range(len(changes)), key=lambda i: _place(changes[i]))
    # Settling marks cut episodes as ended; people should still be told.
    marks = np.array([ended[e] for e in settled.episodes], np.uint8)
    n = max(settled.n_steps, 1)
    return Described(
        policy=policy,
        log=replace(settled, ended=marks),
        log_digest=log.digest(),
        cut=len(log.cut_episodes),
        left_out=left_out,
        seen=known,
        notes=tuple(notes),
        changes=tuple(changes[i] for i in order),
        steps={
            name: float((kinds == k).sum()) / n
            for k, name in enumerate(("deferred", "confirmed", "changed"))
        },
        not_done=float(((choice >= 0) & (names[choice] != settled.action)).sum()) / n,
        silent=tuple((why, count / n) for why, count in silent.most_common()),
        _rows={changes[i].key: rows[i] for i in order},
        _G=G,
    )


def _place(change: Change) -> tuple[float, int]:
    """Sort key of a change: the highest lower end first, then the most steps."""
    return (np.inf if change.low is None else -change.low, -change.steps)


Found: TypeAlias = tuple[list[Change], list[Ints], NDArray[Any], Counter[str], NDArray[Any]]
"""The changes, their rows, the kind of each step, why steps are deferred, the choice at each."""


def _states(policy: Policy, log: Log, G: NDArray[np.float64]) -> Found:
    """One change per state or cell."""
    cells = isinstance(policy, CellPolicy)
    if isinstance(policy, CellPolicy):
        codes = policy.cells_of(_features(policy, log))
    else:
        codes = np.array(policy._codes(log.states), np.int64)[log.codes()]
    kinds = np.where(codes >= 0, policy.kind[codes], 0) if len(policy.states) else codes * 0
    name = policy.provenance.get("columns", {}).get("state")
    label = name if isinstance(name, str) else "state"
    centres = {row["state"]: row for row in policy.changes()}
    changes, rows = [], []
    points = np.flatnonzero(policy.kind == 2)
    for s, row in zip(surest_first(policy, points), change_rows(policy, points, ""), strict=True):
        here = np.flatnonzero(codes == s)
        centre = tuple(
            (n, centres[row["state"]][n]) for n in getattr(policy, "feature_names", ())
            if n in centres[row["state"]]
        )  # fmt: skip
        rows.append(here)
        changes.append(
            Change(
                key=_key(["state", row["state"], row["usual"], row["suggested"]]),
                situation=_cell(log, here, centre, s) if cells else f"{label} = {row['state']}",
                state=row["state"],
                region=None,
                typical=centre,
                steps=len(here),
                met=len(_first(log, here)),
                purity=1.0,
                check=_check(log, here, row["suggested"], G),
                **_facts(policy, int(s), row),
            )
        )
    choice = np.where(codes >= 0, policy.choice[codes], -1) if len(policy.states) else codes * 0 - 1
    return changes, rows, kinds, _silent(policy, codes[kinds == 0]), choice


def _cell(log: Log, here: Ints, centre: tuple[tuple[str, float], ...], s: int) -> str:
    """A cell in words: ranges of the log's steps in it, or its centre where there are none."""
    names, x = log.feature_names, np.asarray(log.features)
    used = [names.index(n) for n, _ in centre]
    if not len(here):
        return f"cell {s}: all states nearest to " + ", ".join(f"{n} = {v:.4g}" for n, v in centre)
    words = range_words(ranges_of(x, names, here, used), _whole(log, used))
    middle = ", ".join(f"{n} = {v:.4g}" for n, v in centre)
    return f"cell {s}: all states nearest to {middle}; in this log {words}"


def _whole(log: Log, used: list[int]) -> dict[str, bool]:
    """Which features are whole numbers."""
    x = np.asarray(log.features)
    return {log.feature_names[j]: bool((x[:, j] == np.floor(x[:, j])).all()) for j in used}


def _silent(policy: Policy, codes: Ints, nowhere: str = "") -> Counter[str]:
    """Reason → number of deferred steps, for steps in the states `codes` (-1: not the policy's)."""
    words = silences(policy)
    if isinstance(policy, CellPolicy):
        nowhere = f"Farther than {policy.parameters['radius']:g} from every cell."
    states, counts = np.unique(codes, return_counts=True)
    why = np.where(states < 0, 0, why_silent(policy, states)) if len(policy.states) else states * 0
    found: Counter[str] = Counter()
    for w, count in zip(why.tolist(), counts.tolist(), strict=True):
        found[(nowhere or words[0]) if w == 0 else words[w]] += count
    return found


def _features(policy: NeighborPolicy | CellPolicy, log: Log) -> NDArray[np.float64]:
    if log.features is None or log.feature_names != policy.feature_names:
        raise LogError(
            "this log has other states than the policy was fitted to.",
            f"{', '.join(log.feature_names[:4]) or 'labels'} and not "
            f"{', '.join(policy.feature_names[:4])}",
        )
    return log.features


def _regions(policy: NeighborPolicy, log: Log, G: NDArray[np.float64]) -> Found:
    """One change per region."""
    x, names = _features(policy, log), log.feature_names
    here = policy.at(x)
    usable = np.flatnonzero(policy.weight).tolist()
    whole = _whole(log, usable)
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
                situation=range_words(region.ranges, whole),
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
    nowhere = f"Nothing in the training log lies within {policy.parameters['radius']:g}."
    silent = _silent(here, np.flatnonzero(here.kind == 0), nowhere)
    return changes, rows, here.kind, silent, here.choice


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
        "episodes": int(policy.m[s].sum()) - row["others"],
        "others": row["others"],
        "value_first": row["value_usual"] + row["advantage"],
        "value_usual": row["value_usual"],
        "rule_difference": row["rule_difference"],
        "rule_episodes": row[unit],
        "advantage": row["advantage"],
        "low": _number(row["low"]),
        "high": _number(row["high"]),
        "planned": None if row["planned"] == row["value"] else row["planned"],
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _key(what: Any) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]


def _first(log: Log, rows: Ints) -> Ints:
    """The first of `rows` (ascending) in each episode, or in each group where there are groups."""
    episode = np.searchsorted(log.starts, rows, "right") - 1
    return np.asarray(np.sort(rows[np.unique(log.group[episode], return_index=True)[1]]))


def _check(log: Log, rows: Ints, suggested: Label, G: NDArray[np.float64]) -> Check:
    """What happened at the first step in a situation: with the suggestion, and without."""
    rows = _first(log, rows)
    a = log.actions.index(suggested) if suggested in log.actions else -1
    x, y = G[rows[log.action[rows] == a]], G[rows[log.action[rows] != a]]
    got, got_others = (float(v.mean()) if len(v) else None for v in (x, y))
    if got is None or got_others is None:
        return Check(len(x), len(y), got, got_others, None, None, None)
    weight = len(y) / len(rows)
    low, high = (_number(weight * end) for end in contrast_of(x, y))
    advantage = weight * (got - got_others)
    return Check(len(x), len(y), got, got_others, advantage, low, high)


def _from_median(
    policy: NeighborPolicy | CellPolicy, among: NDArray[np.float64], x: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Squared distance of x (k, d) from the median of `among`, as the policy measures it."""
    middle = np.median(policy._metric.transform(among), axis=0)
    return np.asarray(((policy._metric.transform(x) - middle) ** 2).sum(axis=1))
