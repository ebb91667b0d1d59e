"""A fixed follow-up: every episode counts for the same time, from its first row on.

Where episodes were cut at different times, their returns are sums over different times. With a
window of h steps the return of an episode is

    G_0 = ∑ γ^t r_t,  t < h        (or over the rows less than w after the first, in units of time)

for all of them. Rows beyond the window are left out, and an episode is whole if the window was seen
to its end, or the episode ended before. So an episode that was cut later is not cut any more; one
that was cut before is still cut, and its treatment must be stated as ever. Nothing is assumed and
nothing is estimated; *what is asked* is another question (the estimand): what do the first h steps
bring? So the log, the policy, its certificate and its evaluation say the window.

**Why the window starts with the episode, and not anew with each decision.** With a window of its
own for each decision, step 5 would be judged by steps 5 to h+4 and step 9 by steps 9 to h+8. Then
no one number is the value of a policy; rewards until the next decision and the value there do not
add up to the value here, so nothing can be planned; and changes that are each better over their own
window may together be worse over any. From the start, all of that stays true word for word: the
performance difference lemma behind the gate, planning, and off-policy evaluation. The price: a late
decision is judged by what is left of the window, and decisions after it are not looked at. How much
is left is then part of what matters for what follows, and a certificate says so.

**When is a window seen to its end?** In steps: when the cut episode has h rows (the reward of a row
counts as seen with the row). In time: when it has a row at or after the end of the window; without
one nobody knows how long it was watched.
"""

from __future__ import annotations

import datetime
import re
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import is_number, wrong
from dprl._core.words import worded
from dprl.errors import CutWarning, LogError
from dprl.logs.checking.findings import Finding
from dprl.logs.log import CUT, TERMINAL, Log

# --- A fixed follow-up: every episode counts for the same time, from its first row on

SECONDS = {
    "second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800,
}  # fmt: skip
UNITS = ("step", "unit", *SECONDS)
WORDS = (
    "a whole number of steps, or text such as '10 steps', '72 units' (of a time column of numbers) "
    "or '30 days' (of dates: seconds, minutes, hours, days or weeks)"
)


@dataclass(frozen=True)
class Window:
    """For how long every episode is followed.

    Attributes:
        length: How many units, above 0; whole for steps.
        unit: "step", "unit" (of a time column of numbers), or "second" to "week" (of dates).
    """

    length: float
    unit: str

    def __str__(self) -> str:
        return f"{self.length:.17g} {self.unit}{'s' * (self.length != 1)}"


def window_of(follow_up: Any) -> Window:
    """The window that is meant; a ParameterError where none is.

    Args:
        follow_up: A whole number of steps, text with a unit, or a timedelta.
    """
    if isinstance(follow_up, np.timedelta64):
        if np.isnat(follow_up):
            raise wrong("follow_up", WORDS, follow_up)
        follow_up = datetime.timedelta(microseconds=int(follow_up / np.timedelta64(1, "us")))
    if isinstance(follow_up, datetime.timedelta):
        window = Window(follow_up.total_seconds(), "second")
    elif is_number(follow_up):
        window = Window(float(follow_up), "step")
    else:
        pattern = rf"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:({'|'.join(UNITS)})s?)?\s*"
        match = re.fullmatch(pattern, follow_up) if isinstance(follow_up, str) else None
        if match is None:
            raise wrong("follow_up", WORDS, follow_up)
        window = Window(float(match[1]), match[2] or "step")
    steps = window.unit == "step"
    if not 0 < window.length < 1e15 or (steps and window.length != int(window.length)):
        raise wrong("follow_up", WORDS, follow_up)
    return window


def follow(log: Log, follow_up: Any) -> Log:
    """The log in which every episode is followed for the same time; `log.columns` keeps the window.

    What the window leaves out is not looked at here: see `lost_by`.

    Args:
        log: A log; it may have a window already, which must not be shorter.
        follow_up: The window, as `window_of` takes it.

    Raises:
        ParameterError: The window is none.
        LogError: It is in units of time that the log has not.
    """
    window = window_of(follow_up)
    _refuse_longer(log, window)
    inside = rows_inside(log, window)
    kept = np.add.reduceat(inside, log.starts[:-1], dtype=np.int64)
    complete = kept < log.lengths
    if window.unit == "step":
        complete = log.lengths >= window.length
    # An end within the window keeps its name; one that was not seen to come is the window's.
    beyond = (kept < log.lengths) | (complete & (log.ended == CUT))
    short = keep_rows(log, inside)
    return replace(
        short,
        ended=np.where(beyond, TERMINAL, log.ended),
        columns={**log.columns, "follow_up": str(window)},
    )


def _refuse_longer(log: Log, window: Window) -> None:
    """Refuse a window that the log cannot have, because it has another one already."""
    before = log.follow_up
    if before is None:
        return
    own = window_of(before)
    if own.unit != window.unit or own.length < window.length:
        raise LogError(
            f"this log is followed for {own} already, and cannot be followed for {window}.",
            do="Read it again with the window that is meant.",
        )


def rows_inside(log: Log, window: Window) -> NDArray[np.bool_]:
    """bool (N,): the rows that lie within the window of their episode."""
    first = np.repeat(log.starts[:-1], log.lengths)
    if window.unit == "step":
        return np.asarray(np.arange(log.n_steps) - first < window.length)
    if log.time is None:
        raise LogError(
            worded(
                "{follow_up} is {window}, and this log has no time column.",
                window=repr(str(window)),
            ),
            do=worded(
                "Where the table has a time and a status, name them: {survival='days,status'} "
                "with {horizon=}. Otherwise name the column of times ({time=})."
            )
            if log.lengths.max(initial=0) == 1
            else worded("Name the column of times ({time=}), or give a number of steps."),
        )
    dates = log.time.dtype.kind in "mM"  # durations have units too
    if dates != (window.unit in SECONDS):
        unit = "'30 days' (or seconds, minutes, hours, weeks)" if dates else "'72 units'"
        raise LogError(
            worded(
                "{follow_up} is {window}, and times are {x}.",
                window=repr(str(window)),
                x={"M": "dates", "m": "durations"}.get(log.time.dtype.kind, "numbers"),
            ),
            f"{log.columns.get('time', 'time')}={log.clock(0)}",
            f"Say it as {unit}, or give a number of steps.",
        )
    time = log.time
    if dates:
        since = _apart(time.astype(f"{time.dtype.kind}8[us]").view(np.int64), first)
        return np.asarray(since < np.uint64(round(window.length * SECONDS[window.unit] * 1e6)))
    if time.dtype.kind == "f":
        wide = time.astype(np.float64, copy=False)
        rounding = 4 * np.spacing(np.maximum(np.abs(wide), window.length))  # 0.3 - 0.2 is 0.1
        return np.asarray(wide - wide[first] < window.length - rounding)
    return np.asarray(_apart(time, first) < np.uint64(np.ceil(window.length)))


def _apart(time: NDArray[Any], first: NDArray[np.int64]) -> NDArray[np.uint64]:
    """How long after its first row each row comes, of whole numbers of any size: exactly."""
    wide = time if time.dtype == np.uint64 else time.astype(np.int64, copy=False).view(np.uint64)
    return np.asarray(wide - wide[first])


def keep_rows(log: Log, keep: NDArray[np.bool_]) -> Log:
    """The log with some of its rows, at least one of every episode; labels stay as they are."""
    lengths = np.add.reduceat(keep, log.starts[:-1], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    return replace(log, starts=starts, **log.at_rows(keep))


# --- What a fixed follow-up leaves out: rows of episodes, and the outcomes that come later
#
# An outcome is a reward other than the usual one: that which half of the rows or more have (a cost
# per step, say), or 0 where there is no such reward. An episode loses its outcome if it had one,
# and within the window it has none. Where all episodes do, every return would be the same.

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
        unseen: Number of episodes that were cut at their only row.
        longest: The most rows that an episode has.
    """

    shortened: int = 0
    episodes: int = 0
    without: int = 0
    outcomes: int = 0
    usual: float = 0.0
    unseen: int = 0
    longest: int = 0

    def __add__(self, other: Lost) -> Lost:
        return Lost(
            self.shortened + other.shortened,
            self.episodes + other.episodes,
            self.without + other.without,
            self.outcomes + other.outcomes,
            other.usual,
            self.unseen + other.unseen,
            max(self.longest, other.longest),
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
        usual: The reward that is no outcome, as it is shown. Default None: found in the log.
    """
    if not log.n_episodes:
        return Lost()
    common = _usual(log) if usual is None else log.outcome.shown(usual)
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
        log.outcome.shown(common),
        int(((log.ended == CUT) & (log.lengths == 1)).sum()),
        int(log.lengths.max()),
    )


def lost_finding(lost: Lost, window: Window) -> Finding:
    """What a window leaves out, in words: an error where no outcome is left."""
    if lost.longest == 1 and lost.unseen:
        blind = nothing_seen(lost.unseen, lost.episodes)
        return Finding("error", "lost_outcomes", blind.what, do=blind.do)
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
            "Their returns say nothing of what came later: follow longer ({follow_up=}), unless "
            "only the first time is asked about."
        )
        return Finding("warning", "lost_outcomes", what, do=do)
    return Finding("note", "lost_outcomes", what)


def nothing_seen(cut: int, episodes: int, where: str = "") -> LogError:
    """The error that episodes of one row were cut: no treatment knows what came of them.

    Args:
        cut: How many were cut.
        episodes: How many there are, all of one row.
        where: The first of them.
    """
    return LogError(
        f"{cut:,} of {episodes:,} episodes were cut, and all have one row: what came of their only "
        "decision was not seen, and a window of steps would count them as if nothing had happened.",
        where,
        worded(
            "Where the table has a time and a status, name them: {survival='days,status'} with "
            "{horizon=}. Otherwise give episodes a row for every time they were seen."
        ),
    )


def refuse_blind(log: Log) -> None:
    """Refuse to follow episodes of one row for a time, where some were cut, and times to event."""
    if "survival" in log.columns:
        raise LogError(
            "a log of a time to event has its horizon, and cannot be followed for another time.",
            do=worded("Read it again with the {horizon=} that is meant."),
        )
    if log.n_episodes and log.lengths.max() == 1 and len(log.cut_episodes):
        first = log.episodes[log.cut_episodes[0]]
        raise nothing_seen(len(log.cut_episodes), log.n_episodes, f"episode {first!r}")


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
    refuse_blind(log)
    shorter, window = follow(log, follow_up), window_of(follow_up)
    say_lost(lost_by(log, window), window, stacklevel=3)
    return shorter
