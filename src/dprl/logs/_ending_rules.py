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
from dprl.logs._findings import Found
from dprl.logs.log import CUT, EVENT, TERMINAL, UNKNOWN

__all__ = ["ENDINGS", "check_events", "ending", "meanings", "rows_after_end"]

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


def rows_after_end(c: Columns, order: NDArray[Any] | None) -> tuple[Found | None, Found | None]:
    """A terminal mark before the last row of an episode, and a last row that says nothing.

    `order` sorts rows by episode and time; without one the rows are sorted already.

    A mark that is repeated on every row of an episode is a property of the episode, and accepted.
    """
    if c.ended is None:
        return None, None
    mark, e = ending(c), c.episode.codes
    if order is not None:
        mark, e = mark[order], e[order]
    last = np.append(e[1:] != e[:-1], True)
    whole = np.ones(len(c.episode.labels), bool)
    is_end = (mark == TERMINAL) | (mark >= EVENT)
    whole[e[~is_end]] = False
    early = is_end & ~last & ~whole[e]
    unsaid = last & (mark == UNKNOWN)

    def found(rows: NDArray[np.bool_], what: str, do: str) -> Found | None:
        at = np.zeros(c.n, bool)
        at[np.flatnonzero(rows) if order is None else order[rows]] = True
        return c.found(at, f"{{name!r}}: {what} in {{touched}}.", do=do, name=c.names["ended"])

    return (
        found(early, "rows follow a terminal mark", "Start a new episode after each end."),
        found(unsaid, "the last row does not say how it ended", "Write terminal or cut there."),
    )
