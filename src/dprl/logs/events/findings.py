"""What a build points out: codes that look like one of the spec, and stays without an end."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dprl._core.table import first_few, many
from dprl.logs.checking.findings import Finding
from dprl.logs.checking.labels import near_words
from dprl.logs.events.spec import HOUR, UNITS, place
from dprl.logs.events.spec_rules import matches, uses
from dprl.logs.reading.text import fold

if TYPE_CHECKING:
    from dprl.logs.events.spec import Spec


SHOWN = 5
FOLDED = "trim,casefold"
SHORT = 4
"""Patterns of fewer letters are like too many codes."""


def alike(code: str) -> str:
    """A code without what people write differently: case, blanks, hyphens, forms of characters."""
    return re.sub(r"[\s_-]+", " ", unicodedata.normalize("NFKC", code)).strip().casefold()


UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "æ": "ae", "ø": "oe", "å": "aa"})


def _letters(code: str) -> str:
    """As `alike`, with no blank between two letters, and letters with dots as people replace them.

    A blank beside a digit stays: 1-2 is not 12.
    """
    return re.sub(r"(?<=[^\W\d]) (?=[^\W\d])", "", alike(code)).translate(UMLAUTS)


def code_findings(spec: Spec, rows_of: Mapping[str, int], used: Iterable[str]) -> list[Finding]:
    """Codes of the data that look like one of the spec and are none, and codes that never occur.

    Args:
        spec: The spec.
        rows_of: Code of the data → the number of its rows.
        used: The codes of the data that some place of the spec means.

    Returns:
        At most two findings, with the number of rows of each code and the place in the spec.
    """
    meant = set(used)
    unused = {code: alike(code) for code in rows_of if code not in meant and code}
    letters = {code: _letters(code) for code in unused}
    by_length: dict[int, list[str]] = {}
    for code, plain in letters.items():
        by_length.setdefault(len(plain), []).append(code)
    made = {interval.name for interval in spec.intervals}
    near: dict[str, tuple[str, str, bool]] = {}  # code → code of the spec, place, only spelling
    absent: dict[str, str] = {}
    for use in uses(spec):
        where = place(spec.lines, use.path)
        for pattern in use.codes:
            if "*" in pattern:
                form = re.compile(".*".join(map(re.escape, map(_inner, pattern.split("*")))), re.S)
                long_enough = len(pattern.replace("*", "")) >= SHORT  # A* is not like albumin
                for code, plain in unused.items():
                    if long_enough and form.fullmatch(plain):
                        near.setdefault(code, (pattern, where, True))
                hit = any(matches(pattern, code) for code in rows_of)
            else:
                plain = _letters(pattern)
                for length in (len(plain) - 1, len(plain), len(plain) + 1):
                    for code in by_length.get(length, ()):
                        if letters[code] == plain or near_words(plain, letters[code]):
                            same = fold(code, FOLDED) == fold(pattern, FOLDED)
                            near.setdefault(code, (pattern, where, same))
                hit = pattern in rows_of
            if not hit and pattern not in made:
                absent.setdefault(pattern, where)
    findings = []
    if near:
        findings.append(_near_finding(near, rows_of))
    if absent:
        first = next(iter(absent))
        findings.append(
            Finding(
                "note",
                "absent_codes",
                f"{many(len(absent), 'code')} of the spec occur{'s' * (len(absent) == 1)} in no "
                f"row: {_several([repr(code) for code in absent])}.",
                absent[first],
                "They may be absent, as the spec says; look whether they are spelled as in the "
                "data.",
            )
        )
    return findings


def _inner(piece: str) -> str:
    """A piece of a pattern as `alike` writes codes; blanks at its borders may be inside a code."""
    return re.sub(r"[\s_-]+", " ", unicodedata.normalize("NFKC", piece)).casefold()


def _near_finding(near: Mapping[str, tuple[str, str, bool]], rows_of: Mapping[str, int]) -> Finding:
    """The finding about codes that look like one of the spec, those with most rows first."""
    order = sorted(near, key=lambda code: (-rows_of[code], code))
    words = [
        f"{code!r} ({many(rows_of[code], 'row')}) is like {near[code][0]!r} "
        f"({many(rows_of.get(near[code][0], 0), 'row')})"
        if "*" not in near[code][0]
        else f"{code!r} ({many(rows_of[code], 'row')}) is like {near[code][0]!r}"
        for code in order
    ]
    total = sum(rows_of[code] for code in near)
    by_spelling = all(same for _, _, same in near.values())
    return Finding(
        "warning",
        "near_codes",
        f"{many(len(near), 'code')} of the data, with {many(total, 'row')}, "
        f"look{'s' * (len(near) == 1)} like a code of the spec and "
        f"{'is' if len(near) == 1 else 'are'} not used: {_several(words)}.",
        near[order[0]][1],
        "These rows count as nothing given and nothing measured. If they mean the same, "
        + (
            'say labels = "trim,casefold" in [source] (case and blanks do not count then), or name '
            "them in codes."
            if by_spelling
            else "name them in codes."
        ),
    )


def _several(words: Sequence[str]) -> str:
    return first_few(words, SHOWN, "; {n:,} more", "; ")


# -- stays without an end --------------------------------------------------------------------------

NEXT, LAST, HORIZON = "next", "last", "horizon"
"""An episode without an end event runs until the next one begins, to the subject's last row, or to
the horizon if that comes first."""
SILENT = "silent"
"""Those that run to the horizon, and have decisions after the last row that the spec uses."""


def open_stays(con: Any, counts: dict[str, dict[str, Any]]) -> None:
    """Add to `counts` the episodes of one part that have no end event, by where they were cut."""
    rows = con.execute(
        "SELECT open, count(*), count(DISTINCT subject), sum(n)::BIGINT, max(finish - start), "
        "min({'subject': subject, 'start': start}) FROM episodes WHERE open <> '' GROUP BY open "
        "UNION ALL "
        f"SELECT '{SILENT}', count(*), count(DISTINCT subject), sum(n)::BIGINT, max(length), "
        "min({'subject': subject, 'start': start}) FROM (SELECT e.subject, e.start, count(*) AS n, "
        "any_value(e.finish - e.row) AS length FROM (SELECT s.episode, s.subject, s.start, "
        "s.finish, max(v.t) AS row FROM episodes AS s JOIN ev AS v ON v.subject = s.subject AND "
        f"v.t >= s.start AND v.t < s.finish WHERE s.open = '{HORIZON}' GROUP BY ALL) AS e "
        "JOIN decisions AS d ON d.episode = e.episode AND d.t > e.row GROUP BY e.subject, e.start) "
        "HAVING count(*) > 0"
    ).fetchall()
    for why, episodes, subjects, decisions, longest, first in rows:
        sums = counts.setdefault(
            why, {"episodes": 0, "subjects": 0, "decisions": 0, "longest": 0, "first": first}
        )
        sums["episodes"] += int(episodes)
        sums["subjects"] += int(subjects)
        sums["decisions"] += int(decisions)
        sums["longest"] = max(sums["longest"], int(longest))
        sums["first"] = min(sums["first"], first, key=lambda one: (one["subject"], one["start"]))


def open_findings(
    spec: Spec, open_counts: Mapping[str, Mapping[str, Any]], episodes: int, decisions: int
) -> list[Finding]:
    """What to say about episodes without an end event.

    Args:
        spec: The spec.
        open_counts: As `open_stays` makes them.
        episodes: The number of all episodes with a decision.
        decisions: The number of all decisions.
    """
    findings = []
    where_to = {
        NEXT: "until the next episode of the subject begins",
        LAST: "to the last row of the subject, of whatever code",
    }
    for why, until in where_to.items():
        if why not in open_counts:
            continue
        sums = open_counts[why]
        first = sums["first"]
        begins = _time(first["start"], spec)
        findings.append(
            Finding(
                "warning" if why == NEXT else "note",
                "open_stays" if why == NEXT else "open_at_last_row",
                f"{sums['episodes']:,} of {many(episodes, 'episode')} without an end event run "
                f"on {until}: {sums['decisions']:,} of {many(decisions, 'decision')}, the "
                f"longest {sums['longest'] / HOUR:,.4g} h.",
                f"subject {first['subject']}, episode that begins at {begins}",
                "They are cut there. What lies between two stays counts as time without treatment: "
                'limit them with horizon = "14 days" in [clock], name the code that ends them in '
                '[[end]], or use episodes by = "gap".'
                if why == NEXT
                else "They are cut there. If that row may come long after the stay, limit them "
                + (
                    'with horizon = "14 days" in [clock].'
                    if spec.clock.horizon is None
                    else f"with a horizon below {spec.clock.horizon} in [clock]."
                ),
            )
        )
    if SILENT in open_counts:
        sums = open_counts[SILENT]
        findings.append(
            Finding(
                "warning",
                "open_at_horizon",
                f"{sums['episodes']:,} of {many(episodes, 'episode')} without an end event run "
                "on to the horizon after the last of their rows that the spec uses: "
                f"{sums['decisions']:,} of {many(decisions, 'decision')} come after it, the "
                f"longest run is {sums['longest'] / HOUR:,.4g} h.",
                f"subject {sums['first']['subject']}, episode that begins at "
                f"{_time(sums['first']['start'], spec)}",
                "If the stay was over by then, these decisions count as time without treatment: "
                'name the code that ends it in [[end]], or use episodes by = "gap".',
            )
        )
    return findings


def _time(micros: int, spec: Spec) -> str:
    """A moment as the user writes it."""
    import datetime

    unit = spec.source.time_unit
    if unit:
        return f"{micros / UNITS[unit]:g} {unit}"
    since = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=micros)
    return since.isoformat(" ")
