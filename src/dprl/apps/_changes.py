"""What a policy would change, in words and numbers a reviewer can check against a log.

A policy over labels has one `Change` per state. A policy over cells has one per cell, described by
the feature ranges of the log's steps in it; a certificate is about whole cells, so they are neither
merged nor cut. A policy made of rules has one per rule, and what is on record about the rule takes
the place of numbers in training. A policy over other features has one per region: ranges of
features in which the policy makes this change at most of the log's steps
(`dprl.policies._region_search` finds them); changes at other steps are only counted. The counts and
values of a region are those of a typical step, the one nearest to the median of the region's steps
in the policy's own distance.

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
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.intervals import LEVEL, contrast_of
from dprl._core.words import joined, said_by, say, sentences
from dprl.apps._change import Change, Check, Sure
from dprl.apps._change_counts import after_cut, compare, outside_of, scattered, silent_steps
from dprl.apps._described import Described, first_rows, sure_words
from dprl.errors import LogError
from dprl.logs._censoring import check_claim, settle
from dprl.logs._cut_words import DROPS, UNRELATED, WEIGHED
from dprl.logs._encoding import encoded_like
from dprl.logs._overlap import cannot_tell, seen
from dprl.logs.log import Label, Log
from dprl.logs.returns import returns
from dprl.policies._decisions import Decisions, Kind
from dprl.policies._explain import change_rows, plan_beyond, window_words
from dprl.policies._familiar import check_familiar
from dprl.policies._protocol import DeferringPolicy
from dprl.policies._rule_words import record_of, rules_of
from dprl.policies._situations import Situation, in_regions
from dprl.policies._spaces import FeatureSpace
from dprl.policies.rules import RulePolicy

__all__ = ["Described", "describe_changes"]

Ints: TypeAlias = NDArray[np.int64]


def describe_changes(policy: DeferringPolicy, log: Log) -> Described:
    """The changes `policy` makes, in words, and what `log` says about each."""
    log = encoded_like(log, policy.provenance.get("columns", {}))
    shared, strange = seen(policy.provenance, log), check_familiar(policy, log)
    gamma = float(policy.parameters.get("gamma", 1.0))
    ended = dict(zip(log.episodes, log.ended.tolist(), strict=True))
    cut = policy.parameters.get("cut")
    check_claim(cut, log, "an interval")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        near = policy.bootstrap_neighbors()
        # Where cut ones are left out: the same episodes as in `evaluate`, which reads rewards.
        settled = settle(log, gamma, cut, near, reads="rewards" if cut in DROPS else "returns")
    settled = settled.gathered()  # a group's first decision is the first in time
    notes = [*strange, *(said_by(w) for w in caught)]
    if cannot_tell(policy.provenance):
        notes.append(
            sentences(
                joined(
                    "",
                    (
                        cannot_tell(policy.provenance),
                        ".",
                    ),
                ),
                say("If it has, all of this flatters it."),
            )
        )
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
    if cut == "ipcw" and len(log.cut_episodes):
        notes.append(
            say(
                "{cut_episodes:,} of {n_episodes:,} episodes were cut: {weighed}",
                cut_episodes=len(log.cut_episodes),
                n_episodes=log.n_episodes,
                weighed=WEIGHED,
            )
        )
    G = returns(settled, gamma)
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
    kinds, choice, silent = here.kind[row], here.choice[row], silent_steps(here, row)
    place = {label: i for i, label in enumerate(settled.actions)}
    names = np.array([place.get(label, -1) for label in policy.actions] + [-1], np.int64)
    done = (choice >= 0) & (names[choice] == settled.action)
    order = sorted(range(len(changes)), key=lambda i: _place(changes[i]))
    # Settling marks cut episodes as ended; people should still be told.
    marks = np.array([ended[e] for e in settled.episodes], np.uint8)
    n = max(settled.n_steps, 1)
    compared = compare(settled, changes, rows)
    alone = () if compared is None else compared.changes
    return Described(
        policy=policy,
        log=replace(settled, ended=marks),
        log_digest=log.digest(),
        cut=len(log.cut_episodes),
        left_out=left_out,
        dropped=log.dropped,
        after_cut=len(late),
        seen=shared,
        notes=tuple(notes),
        changes=tuple(changes[i] for i in order),
        steps={
            name: float((kinds == k).sum()) / n
            for k, name in (
                (Kind.DEFER, "deferred"),
                (Kind.CONFIRM, "confirmed"),
                (Kind.CHANGE, "changed"),
            )
        },
        not_done=float(((choice >= 0) & ~done).sum()) / n,
        silent=tuple((why, count / n) for why, count in silent.most_common()),
        scattered=scattered(policy, here, situations),
        balance=compared,
        compared={changes[one.number].key: one for one in alone},
        divided=float(((kinds == Kind.CHANGE) & here.divided[row]).sum()) / n,
        changed_at=kinds == Kind.CHANGE,
        took_at=done,
        _rows={changes[i].key: rows[i] for i in order},
        # Weights are for means; a single case is shown with what was seen of it.
        _G=returns(log, gamma) if cut == "ipcw" else G,
    )


def _place(change: Change) -> tuple[float, int]:
    """Sort key of a change: the highest lower end first, then the most steps; rules as asked."""
    if change.rule is not None:
        return (change.rule.number, 0)
    low = change.low if change.sure is None else change.sure.low
    return (np.inf if low is None else -low, -change.steps)


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
        check=_check(log, compared, row["suggested"], G),
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
        "beyond": bool(plan_beyond(here, s, int(here.choice[s]))),
    }


def _sure(here: Decisions, s: int, where: str) -> Sure | None:
    """How sure the learner is of what is suggested in state `s`."""
    if here.estimates is None:
        return None
    a = int(here.choice[s])
    low, high = (_number(end[s, a]) for end in here.estimates.interval(here.n, LEVEL))
    advantage, se = (float(x[s, a]) for x in (here.estimates.advantage, here.estimates.se))
    return Sure(where, advantage, se, low, high, int(here.n[s, a]))


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _key(what: Any) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]


def _check(log: Log, rows: Ints, suggested: Label, G: NDArray[np.float64]) -> Check:
    """What happened at the first step in a situation: with the suggestion, and without."""
    rows = first_rows(log, rows)
    a = log.actions.index(suggested) if suggested in log.actions else -1
    x, y = G[rows[log.action[rows] == a]], G[rows[log.action[rows] != a]]
    got, got_others = (float(v.mean()) if len(v) else None for v in (x, y))
    if got is None or got_others is None:
        return Check(len(x), len(y), got, got_others, None, None, None)
    weight = len(y) / len(rows)
    low, high = (_number(weight * end) for end in contrast_of(x, y))
    advantage = weight * (got - got_others)
    return Check(len(x), len(y), got, got_others, advantage, low, high)
