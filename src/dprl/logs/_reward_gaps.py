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
from dprl.errors import LogError
from dprl.logs._columns import Columns

__all__ = [
    "AtTheEnd",
    "at_the_end",
    "no_outcome",
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
    order = np.argsort(e, kind="stable") if c.time is None else np.lexsort((c.time, e))
    last = np.zeros(c.n, bool)
    last[order[np.append(e[order][1:] != e[order][:-1], True)]] = True
    return last


def at_the_end(c: Columns) -> AtTheEnd | None:
    """Where the rewards are; None where none is missing, or the order of rows is not known."""
    if not np.isnan(c.reward_span).any():
        return None
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


def no_outcome(name: str, without: int, episodes: int, where: str) -> LogError:
    """The error that episodes have no reward at all, where missing ones are to be 0."""
    return LogError(
        f"{name!r} is missing on every row of {without:,} of {episodes:,} episodes: their outcome "
        "is not known.",
        where,
        "Unknown is not 0. Leave these episodes out of the file, or write their outcome (0 where "
        "it is 0).",
    )


def with_zeros(c: Columns, words: Mapping[str, str]) -> Columns:
    """The columns in which a missing reward is 0, where that was asked for.

    Raises:
        LogError: An episode has no reward at all.
    """
    name = str(c.names["reward"])
    if words.get(name) != "zero" or not c.n or not np.isnan(c.reward_span).any():
        return c
    gone = np.isnan(c.reward)
    e = c.episode.codes
    some = np.zeros(len(c.episode.labels) + 1, bool)  # the last is of rows without an episode
    some[e[~gone]] = True
    some[-1] = True
    unknown = ~some[e]
    if unknown.any():
        without = len(np.unique(e[unknown]))
        place = c.place(int(np.argmax(unknown)))
        raise no_outcome(name, without, len(c.episode.labels), place)
    return replace(c, reward=np.where(gone, 0.0, c.reward))


def zeros_before_the_end(c: Columns) -> Columns:
    """The columns in which rewards before the last row are 0, where rewards are outcomes."""
    where = at_the_end(c)
    last = _last_rows(c)
    if where is None or last is None or not where.is_outcome:
        return c
    return replace(c, reward=np.where(np.isnan(c.reward) & ~last, 0.0, c.reward))
