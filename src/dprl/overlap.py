r"""Has this log been seen before, in part? A small sample of a log's groups, kept with a policy.

A digest tells equal logs from different ones, but the usual mistake is another: a policy learned
from half of a log is judged on all of it. So a policy keeps a *bottom sketch* (Cohen & Kaplan 2007)
of its training log: every group's label is hashed to a number, and of the 256 smallest numbers each
is kept with a hash of how the group's first episode began. A log that holds the training groups
holds these; of a log that is part of the training log, the small numbers are among these.

Labels alone say little (simulated logs all count 0, 1, 2, …) and neither does content alone (short
episodes repeat themselves), so what counts is agreement beyond chance, as in Cohen's κ:

    m  share of the sample found in the other log, label and content
    c  share expected if labels meant nothing: how common the content is in the other log
    κ  (m - c) / (1 - c),  and 0 unless m is four standard errors of chance above c
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.errors import PolicyError
from dprl.log import Label, Log

__all__ = ["TOO_MUCH", "refuse_seen", "seen", "shared", "sketch"]

Hashes = NDArray[np.uint64]

KEPT, STEPS, ENOUGH = 256, 8, 8
"""Groups kept, steps of an episode looked at, and the smallest sample that says anything."""

TOO_MUCH = 0.05
"""Share of groups two logs may have in common, beyond chance."""

HALF = np.uint64(32)


def sketch(log: Log) -> list[str]:
    """The sample of a log's groups, as text: label and content of each, 16 hexadecimal digits."""
    label = _labels(log.groups)
    chosen = np.argsort(label, kind="stable")[:KEPT]
    content = _contents(log, chosen)
    return [f"{a:08x}{b:08x}" for a, b in zip(label[chosen], content, strict=True)]


def shared(kept: Sequence[str], log: Log) -> float:
    """κ of the larger of two shares: of the sampled groups in `log`, of `log`'s in the sample."""
    if not kept or not log.n_episodes:
        return 0.0
    label, content = (np.array([int(k[i : i + 8], 16) for k in kept], np.uint64) for i in (0, 8))
    # The sample holds every group of its log up to its largest number: so far both are known.
    ours = _labels(log.groups)
    near = np.flatnonzero(ours <= label.max())
    if not len(near):
        return 0.0
    here = _contents(log, near)
    one, two = (label << HALF) | content, (ours[near] << HALF) | here
    return max(_kappa(one, content, two, here), _kappa(two, here, one, content))


def seen(origin: Mapping[str, Any], log: Log) -> str:
    """What `log` shares with the logs a policy of this provenance comes from; '' if nothing."""
    try:
        sweep: Mapping[str, Any] = origin.get("sweep") or {}
        digest = log.digest()
        for known, sample, which in (
            (origin.get("log"), origin.get("sample"), "the policy was learned from"),
            (sweep.get("valid"), sweep.get("sample"),
             f"the policy was picked on, out of {sweep.get('settings')}"),
        ):  # fmt: skip
            if digest == known:
                return f"this is the log {which}"
            share = shared(sample or (), log)
            if share > TOO_MUCH:
                return f"about {100 * share:.0f} % of a sample of groups is also in the log {which}"
        before = origin.get("proposed")  # what was learned from one log and gated on another
        return "" if before is None else seen(before, log)
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise PolicyError(
            "the policy's record of the logs it comes from is damaged.", do="Fit it again."
        ) from error


def _kappa(sample: Hashes, content: Hashes, there: Hashes, content_there: Hashes) -> float:
    """Agreement beyond chance of a sample with what is there."""
    n = len(sample)
    values, counts = np.unique(content_there, return_counts=True)
    place = np.minimum(np.searchsorted(values, content), len(values) - 1)
    share = np.where(values[place] == content, counts[place] / len(content_there), 0.0)
    m, c = float(np.isin(sample, there).mean()), float(share.mean())
    error = np.sqrt(max(c * (1 - c), 1 / n) / n)
    if n < ENOUGH or c >= 1 or m <= c + 4 * error:
        return 0.0
    return (m - c) / (1 - c)


def refuse_seen(policy: Any, log: Log, allowed: bool = False) -> tuple[str, ...]:
    """Refuse a log the policy was made or chosen from; or say so, where that is allowed."""
    what = seen(getattr(policy, "provenance", {}), log)
    if not what:
        return ()
    if not allowed:
        raise PolicyError(
            f"{what}: the estimate would flatter it.",
            f"log {log.digest()[:12]}",
            "Evaluate on episodes it has not seen; keep some aside before learning: "
            "log.split(0.5, seed=0), or dprl split.",
        )
    return (f"{what}: every estimate below flatters it.",)


# -- hashing ----------------------------------------------------------------------------------


def _contents(log: Log, groups: NDArray[np.int64]) -> Hashes:
    """32 bits a group: how its first episode began, and how long it was."""
    code, first = np.unique(log.group, return_index=True)
    first = first[np.searchsorted(code, groups)]
    content = _scramble(log.lengths[first].astype(np.uint64))
    for t in range(STEPS):
        there = np.flatnonzero(log.lengths[first] > t)
        row = log.starts[first[there]] + t
        columns = [_bits(log.reward[row]), _labels(log.actions)[log.action[row]]]
        if log.state is not None:
            columns.append(_labels(log.states)[log.state[row]])
        elif log.features is not None:
            columns += [_bits(log.features[row, i]) for i in range(log.features.shape[1])]
        for column in columns:
            content[there] = _mixed(content[there], column)
    return content >> HALF


def _labels(labels: Sequence[Label]) -> Hashes:
    """32 bits a label: whole numbers by value, text by its characters."""
    if not labels or not isinstance(labels[0], str):
        return _scramble(np.array(labels, np.int64).view(np.uint64)) >> HALF
    text = np.array(labels, np.str_)
    letters = text.view(np.uint32).reshape(len(text), -1)
    total = np.zeros(len(text), np.uint64)
    for i in range(letters.shape[1]):
        column = letters[:, i].astype(np.uint64)
        total = np.where(column > 0, _mixed(total, column), total)  # not how long others are
    return _scramble(total) >> HALF


def _bits(numbers: NDArray[np.float64]) -> Hashes:
    return np.ascontiguousarray(numbers + 0.0).view(np.uint64)


def _mixed(a: Hashes, b: Hashes) -> Hashes:
    return _scramble(_scramble(a) + b)


def _scramble(x: Hashes) -> Hashes:
    """The finaliser of SplitMix64: a permutation that leaves no pattern."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))
