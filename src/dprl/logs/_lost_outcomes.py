"""What a fixed follow-up leaves out: rows of episodes, and the outcomes that come later.

An outcome is a reward other than the usual one: that which half of the rows or more have (a cost
per step, say), or 0 where there is no such reward. An episode loses its outcome if it had one, and
within the window it has none. Where all episodes do, every return would be the same.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from dprl._core.words import option, worded
from dprl.errors import CutWarning
from dprl.logs._findings import Finding
from dprl.logs._follow_up import Window, follow, rows_inside, window_of
from dprl.logs.log import Log

__all__ = ["Lost", "followed", "lost_by", "lost_finding", "say_lost"]

MANY = 0.25
"""With a larger share of the outcomes lost, a window is warned of."""


@dataclass(frozen=True)
class Lost:
    """What a window leaves out; two of them can be added.

    Attributes:
        shortened: Number of episodes of which rows are left out.
        episodes: Number of episodes.
        without: Number of episodes that had an outcome and have none left.
        outcomes: Number of episodes that had an outcome.
        usual: The reward that is no outcome.
    """

    shortened: int = 0
    episodes: int = 0
    without: int = 0
    outcomes: int = 0
    usual: float = 0.0

    def __add__(self, other: Lost) -> Lost:
        return Lost(
            self.shortened + other.shortened,
            self.episodes + other.episodes,
            self.without + other.without,
            self.outcomes + other.outcomes,
            other.usual,
        )


def _usual(log: Log) -> float:
    """The reward that half of the rows or more have; 0 where there is none."""
    if 2 * int((log.reward == 0).sum()) >= log.n_steps:
        return 0.0
    values, rows = np.unique(log.reward, return_counts=True)
    best = int(np.argmax(rows))
    return float(values[best]) if 2 * int(rows[best]) >= log.n_steps else 0.0


def lost_by(log: Log, window: Window, usual: float | None = None) -> Lost:
    """What a window leaves out of a log.

    Args:
        log: The log, before the window is applied.
        window: The window; the log has times for it.
        usual: The reward that is no outcome. Default None: found in the log.
    """
    if not log.n_episodes:
        return Lost()
    common = _usual(log) if usual is None else usual
    inside = rows_inside(log, window)
    outcome = log.reward != common
    starts = log.starts[:-1]
    before = np.logical_or.reduceat(outcome, starts)
    after = np.logical_or.reduceat(outcome & inside, starts)
    shortened = ~np.logical_and.reduceat(inside, starts)
    return Lost(
        int(shortened.sum()),
        log.n_episodes,
        int((before & ~after).sum()),
        int(before.sum()),
        common,
    )


def lost_finding(lost: Lost, window: Window) -> Finding:
    """What a window leaves out, in words: an error where no outcome is left."""
    outcome = f"a reward other than {lost.usual:g}"
    what = (
        f"followed for {window}: rows of {lost.shortened:,} of {lost.episodes:,} episodes are left "
        "out"
    )
    if not lost.outcomes:
        return Finding("note", "lost_outcomes", f"{what}; none had an outcome ({outcome}).")
    what += (
        f"; of {lost.outcomes:,} episodes with an outcome ({outcome}) {lost.without:,} "
        f"{'has' if lost.without == 1 else 'have'} none left."
    )
    if lost.without == lost.outcomes:
        do = "Nothing can be learned from it: follow longer, or leave follow_up (--follow-up) out."
        return Finding("error", "lost_outcomes", what, do=do)
    if lost.without > MANY * lost.outcomes:
        do = worded(
            "Their returns say nothing of what came later: follow longer ({follow_up}), unless "
            "only the first time is asked about.",
            follow_up=option("follow_up"),
        )
        return Finding("warning", "lost_outcomes", what, do=do)
    return Finding("note", "lost_outcomes", what)


def say_lost(lost: Lost, window: Window, stacklevel: int) -> None:
    """Raise a LogError where no outcome is left, and warn where many are not.

    Args:
        lost: What the window leaves out.
        window: The window.
        stacklevel: As `warnings.warn` takes it, counted from the caller.
    """
    finding = lost_finding(lost, window)
    if finding.level == "error":
        raise finding.error()
    if finding.level == "warning":
        warnings.warn(f"{finding.what} {finding.do}", CutWarning, stacklevel=stacklevel + 1)


def followed(log: Log, follow_up: Any) -> Log:
    """The log in which every episode is followed for the same time; what is lost is said."""
    shorter, window = follow(log, follow_up), window_of(follow_up)
    say_lost(lost_by(log, window), window, stacklevel=3)
    return shorter
