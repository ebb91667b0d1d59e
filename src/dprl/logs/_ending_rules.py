"""How an episode ended, as a column says it: terminal, cut, or a competing event.

A competing event (death while waiting for a transplant; a move to another arm of the pathway) ends
an episode as surely as the end that was waited for: what its rewards say is its outcome, and
nothing comes after. It is not a cut, after which something came that was not seen. Whoever codes
such events as censored asks what would happen if nobody died.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import either, worded
from dprl.errors import ParameterError
from dprl.logs._columns import Columns
from dprl.logs._findings import Finding
from dprl.logs.log import CUT, EVENT, TERMINAL, UNKNOWN

__all__ = ["ENDINGS", "check_events", "ended_unknown", "ending", "meanings", "rows_after_end"]

ENDINGS: dict[Any, int] = {
    1: TERMINAL, "1": TERMINAL, "true": TERMINAL, "terminal": TERMINAL,
    "terminated": TERMINAL, "yes": TERMINAL,
    0: CUT, "0": CUT, "false": CUT, "cut": CUT, "truncated": CUT, "no": CUT, "censored": CUT,
}  # fmt: skip


def check_events(events: Any) -> tuple[str, ...]:
    """The names of competing events, sorted; a ParameterError where they cannot be that."""
    if events is None:
        return ()
    given = [events] if isinstance(events, str) else list(events)
    names = sorted({str(name).strip() for name in given})
    taken = [name for name in names if name.lower() in ENDINGS]
    if taken or "" in names or len({name.lower() for name in names}) < len(names):
        raise ParameterError(
            "events must be names of competing events, each once; got "
            f"{', '.join(map(repr, given))}.",
            f"{taken[0]!r} says already how an episode ended" if taken else "",
            worded(
                "Name what else can end an episode: {choice}.",
                choice=either("events=['death']", "--events death"),
            ),
        )
    if len(names) > 200:
        raise ParameterError(f"there can be at most 200 competing events; got {len(names):,}.")
    return tuple(names)


def ending(c: Columns) -> NDArray[np.uint8]:
    """uint8 (N,): TERMINAL, CUT, an event, or UNKNOWN (missing, or a word that means none)."""
    if c.ended is None:
        return np.zeros(c.n, np.uint8)
    return np.array([*meanings(c.ended.labels, c.events), UNKNOWN], np.uint8)[c.ended.codes]


def meanings(labels: Iterable[Any], events: Sequence[str]) -> list[int]:
    """What labels of the column of endings mean: TERMINAL, CUT, an event, or UNKNOWN for none."""
    codes = {name.lower(): EVENT + i for i, name in enumerate(events)}

    def meaning(label: Any) -> int:
        word = label.strip().lower() if isinstance(label, str) else label
        return ENDINGS.get(word, codes.get(str(word), UNKNOWN))

    return [meaning(label) for label in labels]


def ended_unknown(c: Columns) -> Finding | None:
    """The ended column holds a word that means neither terminal nor cut, nor an event."""
    if c.ended is None:
        return None
    rows = (ending(c) == UNKNOWN) & (c.ended.codes >= 0)
    if not rows.any():
        return None
    row = int(np.argmax(rows))
    word = c.ended.labels[c.ended.codes[row]]
    besides = "".join(f" nor {name}" for name in c.events)
    return Finding(
        "error",
        "ended_unknown",
        f"{c.names['ended']!r} holds {word!r}, "
        f"which is neither terminal nor cut{besides} ({rows.sum():,} of {c.n:,} rows).",
        c.place(row),
        worded(
            "Write terminal or cut (also true or false; censored means cut) on the last row of "
            "each episode. If it is an event that ends an episode, name it: {choice}.",
            choice=either(f"events=[{str(word)!r}]", f"--events {word!s}"),
        ),
    )


def rows_after_end(c: Columns, order: NDArray[Any] | None) -> Finding | None:
    """A terminal mark before the last row of an episode; `order` sorts rows by episode and time.

    Without an order the rows are sorted already.

    A mark that is repeated on every row of an episode is a property of the episode, and accepted.
    """
    if c.ended is None:
        return None
    mark, e = ending(c), c.episode.codes
    if order is not None:
        mark, e = mark[order], e[order]
    last = np.append(e[1:] != e[:-1], True)
    whole = np.ones(len(c.episode.labels), bool)
    is_end = (mark == TERMINAL) | (mark >= EVENT)
    whole[e[~is_end]] = False
    early = is_end & ~last & ~whole[e]
    unsaid = last & (mark == UNKNOWN)
    for rows, what, do in (
        (early, "rows follow a terminal mark", "Start a new episode after each end."),
        (unsaid, "the last row does not say how it ended", "Write terminal or cut there."),
    ):
        if rows.any():
            n = len(np.unique(e[rows]))
            return Finding(
                "error",
                "rows_after_end",
                f"{c.names['ended']!r}: {what} in {n:,} episode{'s' * (n != 1)}.",
                c.place(int((np.flatnonzero(rows) if order is None else order[rows]).min())),
                do,
            )
    return None
