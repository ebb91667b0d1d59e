"""Rewards that are missing: outcomes that are recorded at the end of an episode alone.

`missing={"score": "zero"}` says that a missing reward is 0. An episode without any reward is
refused all the same: that its outcome is unknown does not make it 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import either, worded
from dprl.logs._columns import Columns

__all__ = [
    "AtTheEnd",
    "at_the_end",
    "outcome_advice",
    "with_zeros",
    "zeros_before_the_end",
]

ELSEWHERE = 0.01
"""At most this share of the other rows may have a reward where outcomes are at the end."""


class AtTheEnd(NamedTuple):
    """Where the rewards of a log are.

    Attributes:
        last: Number of episodes with a reward on their last row.
        episodes: Number of episodes.
        elsewhere: Number of rows with a reward that are not the last of their episode.
        others: Number of rows that are not the last of their episode.
    """

    last: int
    episodes: int
    elsewhere: int
    others: int

    def plus(self, other: AtTheEnd) -> AtTheEnd:
        """Where the rewards of two chunks of a log are."""
        return AtTheEnd(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def is_outcome(self) -> bool:
        """Whether the rewards are outcomes: on last rows, and (nearly) nowhere else."""
        return self.last > 0 and self.others > 0 and self.elsewhere <= ELSEWHERE * self.others


def _last_rows(c: Columns) -> NDArray[np.bool_] | None:
    """bool (N,): the last row of each episode; None where that is not known."""
    if not c.n or (c.episode.codes < 0).any():
        return None
    if c.time_missing is not None and c.time_missing.any():
        return None
    e = c.episode.codes
    if c.in_order:
        return np.append(e[1:] != e[:-1], True)
    order = np.argsort(e, kind="stable") if c.time is None else np.lexsort((c.time, e))
    last = np.zeros(c.n, bool)
    last[order[np.append(e[order][1:] != e[order][:-1], True)]] = True
    return last


def at_the_end(c: Columns) -> AtTheEnd | None:
    """Where the rewards are; None where the order of rows is not known."""
    last = _last_rows(c)
    if last is None:
        return None
    recorded = ~np.isnan(c.reward)
    return AtTheEnd(
        int((recorded & last).sum()),
        int(last.sum()),
        int((recorded & ~last).sum()),
        int((~last).sum()),
    )


def outcome_advice(where: AtTheEnd | None, name: str) -> str:
    """What to do about rewards that are recorded at the end alone; '' where they are not."""
    if where is None or not where.is_outcome:
        return ""
    without = where.episodes - where.last
    lost = (
        f" {without:,} episode{'s' * (without != 1)} without an outcome: leave them out of the "
        "file, or write it."
        if without
        else ""
    )
    return worded(
        "It is there on the last row of {last:,} of {episodes:,} episodes, and on {elsewhere:,} "
        "of {others:,} other rows: an outcome. If the reward before it is 0, say so: "
        "{choice}.{lost}",
        last=where.last,
        episodes=where.episodes,
        elsewhere=where.elsewhere,
        others=where.others,
        choice=either(f'missing={{"{name}": "zero"}}', f"--missing {name}=zero"),
        lost=lost,
    )


def with_zeros(c: Columns, words: Mapping[str, str]) -> Columns:
    """The columns in which a missing reward is 0, where that was asked for.

    Rows of episodes that have no reward at all are in `no_outcome`, and refused by a rule.
    """
    if words.get(str(c.names["reward"])) != "zero" or not np.isnan(c.reward_span).any():
        return c
    gone = np.isnan(c.reward)
    e = c.episode.codes
    some = np.zeros(len(c.episode.labels) + 1, bool)
    some[e[~gone]] = True
    some[-1] = True  # of rows without an episode
    return replace(c, reward=np.where(gone, 0.0, c.reward), no_outcome=~some[e])


def zeros_before_the_end(c: Columns) -> Columns:
    """The columns in which rewards before the last row are 0, where rewards are outcomes."""
    if not np.isnan(c.reward_span).any():
        return c
    where, last = at_the_end(c), _last_rows(c)
    if where is None or last is None or not where.is_outcome:
        return c
    return replace(c, reward=np.where(np.isnan(c.reward) & ~last, 0.0, c.reward))
