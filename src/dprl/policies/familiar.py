"""Is this log about the states a policy knows at all? A log of something else is refused.

A policy defers in states it does not know, so on a log read from the wrong column, or in other
units, every estimate is "no difference, and quite sure". That is a wrong answer, not a cautious
one. Known are

* labels: the steps in states of the training log;
* features: the steps inside the training range of every feature that counts, made wider by the
  radius. Farther out there is no training point (or cell) within the radius, so the policy defers
  there for certain. A network, which has no radius, is on its own outside the range itself.

Fewer than one step in ten known is an error, fewer than half a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from dprl._core.arrays import Bools, Floats
from dprl._core.words import either, say, worded
from dprl.errors import LogError
from dprl.logs.encoding.encoder import encoded_like
from dprl.logs.log import Label, Log, label_key
from dprl.logs.outcome import check_same_direction
from dprl.logs.source import Chunk, Source

TOO_FEW, FEW = 0.1, 0.5
"""Shares of steps in known states below which a log is refused, and warned of."""


Known: TypeAlias = tuple[int, int, int, int]


def like_policy(policy: Any, log: Log, *, mixed: bool = True) -> Log:
    """The log with its states as the policy takes them, and labels as the policy calls them.

    A rare label ("4x" among 1, 2, 3) makes the labels of one file text, and those of the next are
    numbers: labels that are one number are one label (`label_key`).

    Args:
        policy: The policy.
        log: The log.
        mixed: Whether labels may then be text and numbers side by side, which no policy that is
            made of the log could have; else they stay as they are. Default True.
    """
    check_same_direction(policy, log)
    log = encoded_like(log, getattr(policy, "provenance", {}).get("columns", {}))
    own = getattr(getattr(policy, "space", None), "states", ()) if log.state is not None else ()
    labels = {
        "actions": called(log.actions, getattr(policy, "actions", ())),
        "states": called(log.states, own),
    }
    changed: dict[str, Any] = {
        name: new
        for name, new in labels.items()
        if new is not getattr(log, name)
        and (mixed or len({isinstance(label, str) for label in new}) == 1)
    }
    return replace(log, **changed) if changed else log


def called(labels: tuple[Label, ...], own: Sequence[Label]) -> tuple[Label, ...]:
    """Labels as they are called in `own`, where one there is the same number; each stays one."""
    have = set(own)
    if have.issuperset(labels):
        return labels
    known = {label_key(label): label for label in own}
    if len(known) < len(have):
        return labels
    new = tuple(x if x in have else known.get(label_key(x), x) for x in labels)
    return new if new != labels and len(set(new)) == len(new) else labels


def check_familiar(policy: Any, log: Log | Source) -> tuple[str, ...]:
    """Refuse a log nearly all of whose states are strange to the policy; warn where most are.

    Args:
        policy: The policy.
        log: The log; where its states are labels, wherever its rows are.
    """
    _refuse_other_ranges(policy, log)
    if isinstance(log, Log) and log.state is None:
        return _features(policy, log)
    return _labels(policy, log)


def _refuse_other_ranges(policy: Any, log: Log | Source) -> None:
    """Refuse doses that are cut at other places than in the log the policy was fitted to."""
    columns = getattr(policy, "provenance", {}).get("columns", {})
    facts = log if isinstance(log, Log) else log.facts
    own, theirs = (_edges(x.get("action_bins")) for x in (columns, facts.columns))
    if own == theirs or not columns or set(policy.actions) == set(facts.actions):
        return
    if own and not theirs and not set(policy.actions).isdisjoint(facts.actions):
        return  # ranges that were written to a file, and came back as labels
    raise LogError(
        "the doses of this log are not cut where the policy's are.",
        f"the policy's edges: {_shown(own)}; this log's: {_shown(theirs)}",
        either(
            'Read it with the policy\'s: action_bins=policy.provenance["columns"]["action_bins"].',
            "Leave --action-bins out: the command takes the policy's.",
        ),
    )


def _edges(bins: Any) -> list[list[float]]:
    """The edges of each column that is cut, whatever the columns are called."""
    return [[float(edge) for edge in edges] for edges in (bins or {}).values()]


def _shown(edges: list[list[float]]) -> str:
    return "; ".join(", ".join(f"{edge:g}" for edge in own) for own in edges) or "none"


def never_saw(policy: Any, share: float) -> str:
    """What is said where this share of the steps is in states a policy over labels never saw."""
    if policy.knows_practice:
        return say(
            "{p:.1f} % of steps are in states the policy never saw; it defers there.",
            p=100 * share,
        )
    return say(
        "{p:.1f} % of steps are in states the policy never saw; it is uniform there.",
        p=100 * share,
    )


@dataclass(frozen=True, eq=False)
class _KnownSteps:
    """Steps in known states, bool (S,), all steps, and row and state of the first strange one."""

    known: Bools

    def of(self, chunk: Chunk) -> Known:
        codes = chunk.log.codes()
        familiar = self.known[codes]
        first = int(np.argmin(familiar))
        row = chunk.first_row + (len(codes) if familiar.all() else first)
        return int(familiar.sum()), len(codes), row, int(codes[first])

    def merge(self, one: Known, other: Known) -> Known:
        first = min(one, other, key=lambda steps: steps[2])
        return one[0] + other[0], one[1] + other[1], first[2], first[3]


def _labels(policy: Any, log: Log | Source) -> tuple[str, ...]:
    states = policy.space.states
    theirs = called(log.facts.states, states)
    if not states or not theirs or isinstance(states[0], str) != isinstance(theirs[0], str):
        return ()  # labels of another type are refused by name, wherever they are looked up
    inside = np.array([state in policy.space for state in theirs])
    familiar, n, _, strange = log.reduce(_KnownSteps(inside))
    if familiar / n < TOO_FEW:
        raise LogError(
            f"only {familiar:,} of {n:,} steps of this log are in states "
            "the policy knows: it is a log of something else, and says nothing about the policy.",
            f"state {theirs[strange]!r} is unknown; the policy's states look like "
            f"{', '.join(map(repr, states[:3]))}",
            worded(
                "Name the column the policy's states are in ({state=}), or judge it by a log like "
                "the one it was learned from."
            ),
        )
    return (never_saw(policy, 1 - familiar / n),) if familiar / n < FEW else ()


def _features(policy: Any, log: Log) -> tuple[str, ...]:
    names = policy.space.feature_names
    ranges = _ranges(policy, len(names))
    if ranges is None or log.features is None or not set(names) <= set(log.feature_names):
        return ()  # features that are missing are named wherever they are looked up
    used = np.flatnonzero(policy.space.weight)
    x = np.asarray(policy.space.of_log(log)[0])[:, used]
    low, high = ranges[used].T
    radius = float(policy.parameters.get("radius") or 0.0)
    reach = radius * policy.space.scale[used] / np.sqrt(policy.space.weight[used])
    reach = reach + 1e-9 * np.maximum(np.abs(low), np.abs(high))
    inside = (low - reach <= x) & (x <= high + reach)
    if policy.space.levels is not None:  # which has an answer where a feature is missing
        inside |= np.isnan(x)
        for at, j in enumerate(used.tolist()):  # a label is familiar or not; it has no range
            if policy.space.levels and policy.space.levels[j] is not None:
                inside[:, at] = ~np.isinf(x[:, at])
    familiar = inside.all(axis=1)
    share = float(familiar.mean())
    if share >= FEW:
        return ()
    worst = int(inside.mean(axis=0).argmin())
    row = int(np.argmin(inside[:, worst]))
    name = names[used[worst]]
    place = say(
        "{name} = {x:g}, in training {low:g} to {high:g}",
        name=name,
        x=x[row, worst],
        low=low[worst],
        high=high[worst],
    )
    if np.isinf(x[row, worst]):
        place = say("{name} has a label there that training did not have", name=name)
    near = f"within {radius:g} of the ranges" if radius else "inside the ranges"
    if share < TOO_FEW:
        raise LogError(
            f"only {int(familiar.sum()):,} of {len(familiar):,} steps of this log lie {near} of "
            "the training log: it is a log of something else, and says nothing about the policy.",
            place,
            "See that every feature is the same measurement in the same unit as in training.",
        )
    return (
        say(
            "{share:.1f} % of steps lie outside the ranges of the training log ({place}).",
            share=100 * (1 - share),
            place=place,
        ),
    )


def _ranges(policy: Any, d: int) -> Floats | None:
    """float64 (d, 2): the smallest and largest value of each feature in training, if on record."""
    try:
        ranges = np.array(policy.provenance["ranges"], np.float64)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    good = d > 0 and ranges.shape == (d, 2) and bool(np.isfinite(ranges).all())
    return ranges if good else None
