"""SQL of episodes and decisions of one part of the events.

`spans`: episode, subject, grp, start, finish, closed (whether a row at `finish` itself belongs
to it), ended, open (where it runs to without an end event: "next", "last", "horizon"; "" where it
has one).
`episodes`: those with a decision, and n (decisions), span and span_closed (the end of the last
window). `decisions`: episode, k (0, 1, …), t, w (the end of its window).

An episode ends at the first event of `ends` after its beginning (one at its beginning does not
count; of several at one time the end named first). Without one: by code it is cut where the next
one begins or at the subject's last row; by table and gap it ends with its row or its last event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dprl.errors import LogError
from dprl.logs._sources import no_column, quoted
from dprl.logs.events._database import text
from dprl.logs.events._fields import microseconds, place
from dprl.logs.events._moments import moment, written_of
from dprl.logs.events._source import scan

if TYPE_CHECKING:
    from dprl.logs.events.spec import Clock, Spec

__all__ = ["MOST_DECISIONS", "Timed", "load_table", "make_decisions", "make_spans", "placed"]

MOST_DECISIONS = 1_000_000
"""The most decisions of one episode; more are a wrong date."""


class Timed(Protocol):
    """What of a spec says when is decided."""

    @property
    def clock(self) -> Clock:
        """When decisions are taken."""

    @property
    def lines(self) -> Any:
        """Where each key stands in a TOML file."""


def load_table(con: Any, spec: Spec) -> None:
    """Read the table of episodes as `given`: episode, subject, start, finish, grp.

    Raises:
        LogError: It cannot be read, lacks a column, or has a row that makes no sense.
    """
    where = place(spec.lines, ("episodes", "table"))
    written = written_of(spec.source)
    with scan([spec.episodes.table], con.execute, written.text) as (rows, _, kinds):
        _make_given(con, spec, rows, kinds, where)
    _check_given(con, where)


def _make_given(con: Any, spec: Spec, rows: str, kinds: dict[str, str], where: str) -> None:
    """Make the table `given` from the columns that the spec names."""
    table = spec.episodes
    named = {"id": table.id, "subject": table.subject, "begins": table.begins,
             "finishes": table.finishes}  # fmt: skip
    if table.group not in ("subject", "episode"):
        named["group"] = table.group
    for part, name in named.items():
        if name not in kinds:
            wrong = no_column(name, list(kinds), part)
            raise LogError(
                wrong.what, wrong.where, f'Name the right one: {part} = "..." in [episodes].'
            )
    unit = spec.source.time_unit
    written = written_of(spec.source)
    begin, finish = (
        moment(quoted(named[part]), kinds[named[part]], unit, where, written)
        for part in ("begins", "finishes")
    )
    kind = con.execute("SELECT any_value(typeof(subject)) FROM subjects").fetchone()[0]
    group = {"subject": "CAST(subject AS VARCHAR)", "episode": "CAST(episode AS VARCHAR)"}.get(
        table.group, "grp"
    )
    con.execute(
        f"CREATE TABLE given AS SELECT episode, subject, start, finish, {group} AS grp, odd, "
        "zoned, mixed FROM ("
        f"SELECT CAST({quoted(named['id'])} AS VARCHAR) AS episode, "
        f"TRY_CAST({quoted(named['subject'])} AS {kind}) AS subject, "
        f"{begin.micros} AS start, {finish.micros} AS finish, "
        f"({begin.bad} OR {finish.bad}) AS odd, {begin.zoned} AS zoned, "
        f"{quoted(named['finishes'])} IS NOT NULL AND {finish.zoned} <> {begin.zoned} AS mixed, "
        f"{f'CAST({quoted(table.group)} AS VARCHAR)' if 'group' in named else 'NULL'} AS grp "
        f"FROM ({rows}))"
    )


def _check_given(con: Any, where: str) -> None:
    """Refuse rows of the table of episodes that make no sense."""
    _refuse_other_zone(con, where)
    for condition, what, do in (
        ("episode IS NULL", "no name", "Every row needs one."),
        ("subject IS NULL", "no subject, or one that the events cannot have",
         "Every row needs a subject of the events."),
        ("odd", "a time that cannot be read",
         'Write times like 2024-03-01 07:30:00, or say dates = "day-first" in [source].'),
        ("start IS NULL", "no beginning", "Every row needs one; an end may be missing."),
        ("finish < start", "an end before its beginning", "Mend these rows."),
        ("grp IS NULL", "no group", "Every row needs one."),
    ):  # fmt: skip
        n, first = con.execute(
            f"SELECT count(*), min(episode) FROM given WHERE {condition}"
        ).fetchone()
        if n:
            raise LogError(
                f"{n:,} rows of the table of episodes have {what}.", f"episode {first}; {where}", do
            )
    twice = con.execute(
        "SELECT episode, count(*) FROM given GROUP BY episode HAVING count(*) > 1 ORDER BY "
        "episode LIMIT 1"
    ).fetchone()
    if twice:
        raise LogError(
            f"the episode {twice[0]!r} is in the table {twice[1]} times.",
            where,
            "Every episode needs a name of its own.",
        )


def _refuse_other_zone(con: Any, where: str) -> None:
    """Refuse times with a zone in the table and none in the events, or the other way."""
    events = bool(con.execute("SELECT coalesce(sum(n_zoned), 0) > 0 FROM codes").fetchone()[0])
    n, first = con.execute(
        f"SELECT count(*), min(episode) FROM given WHERE mixed OR zoned <> {str(events).lower()}"
    ).fetchone()
    if n:
        words = "have a time zone" if events else "have none"
        raise LogError(
            f"{n:,} rows of the table of episodes are not like the events, whose times {words}.",
            f"episode {first}; {where}",
            "Write all of them the same way: which is meant cannot be guessed.",
        )


def make_spans(con: Any, spec: Spec, mine: str) -> None:
    """Make the table `spans` of the episodes of the events in the table `ev`.

    `mine` is SQL of whether a subject belongs to this part.
    """
    episodes = spec.episodes
    words = ", ".join(
        f"({text(f'e{i}')}, {i}, {text(end.ended)})" for i, end in enumerate(spec.ends)
    )
    ends = (
        "SELECT subject, t, arg_min(word, place) AS word FROM ev JOIN roles USING (id) "
        f"JOIN (VALUES {words}) AS w(role, place, word) USING (role) WHERE t IS NOT NULL "
        "GROUP BY subject, t"
        if words
        else "SELECT subject, t, '' AS word FROM ev WHERE false"
    )
    if episodes.by == "code":
        begun = (
            "SELECT *, lead(start) OVER (PARTITION BY subject ORDER BY start) AS next, "
            "row_number() OVER (PARTITION BY subject ORDER BY start) AS i FROM (SELECT DISTINCT "
            "subject, t AS start FROM ev JOIN roles USING (id) WHERE role = 'start' AND t IS "
            "NOT NULL)"
        )
        base = (
            "SELECT CAST(subject AS VARCHAR) || '#' || i AS episode, subject, start, "
            "coalesce(next, greatest(start, last)) AS finish, next IS NULL AS closed, "
            "'cut' AS word, NULL AS grp, CASE WHEN next IS NULL THEN 'last' ELSE 'next' END AS why "
            f"FROM ({begun}) JOIN subjects USING (subject)"
        )
    elif episodes.by == "table":
        word = text(episodes.ended or "terminal")
        base = (
            "SELECT episode, subject, start, coalesce(finish, greatest(start, last), start) AS "
            "finish, "
            f"true AS closed, CASE WHEN finish IS NULL THEN 'cut' ELSE {word} END AS word, grp, "
            "CASE WHEN finish IS NULL THEN 'last' ELSE '' END AS why "
            f"FROM given LEFT JOIN subjects USING (subject) WHERE {mine}"
        )
    else:
        times = (
            "SELECT DISTINCT subject, t FROM ev JOIN roles USING (id) WHERE role = 'gap' "
            "AND t IS NOT NULL"
        )
        runs = (
            f"SELECT *, sum(fresh) OVER (PARTITION BY subject ORDER BY t ROWS UNBOUNDED PRECEDING) "
            f"AS i FROM (SELECT *, CASE WHEN t - lag(t) OVER (PARTITION BY subject ORDER BY t) <= "
            f"{microseconds(episodes.gap)} THEN 0 ELSE 1 END AS fresh FROM ({times}))"
        )
        base = (
            "SELECT CAST(subject AS VARCHAR) || '#' || CAST(i AS BIGINT) AS episode, subject, "
            "min(t) "
            f"AS start, max(t) AS finish, true AS closed, {text(episodes.ended)} AS word, NULL "
            "AS grp, '' AS why "
            f"FROM ({runs}) GROUP BY subject, i"
        )
    horizon = microseconds(spec.clock.horizon) if spec.clock.horizon else None
    late = "false" if horizon is None else f"finish - start > {horizon}"
    group = "CAST(subject AS VARCHAR)" if episodes.group == "subject" else "episode"
    if episodes.by == "table":
        group = "grp"
    con.execute(
        "CREATE OR REPLACE TEMP TABLE spans AS WITH base AS ("
        f"{base}), ended AS (SELECT b.* EXCLUDE (finish, closed, word, why), "
        "CASE WHEN e.t <= b.finish THEN e.t ELSE b.finish END AS finish, "
        "CASE WHEN e.t <= b.finish THEN true ELSE b.closed END AS closed, "
        "CASE WHEN e.t <= b.finish THEN e.word ELSE b.word END AS word, "
        "CASE WHEN e.t <= b.finish THEN '' ELSE b.why END AS why "
        f"FROM base AS b ASOF LEFT JOIN ({ends}) AS e ON b.subject = e.subject AND b.start < e.t) "
        f"SELECT episode, subject, CAST({group} AS VARCHAR) AS grp, start, "
        f"CASE WHEN {late} THEN start + {horizon or 0} ELSE finish END AS finish, "
        f"closed AND NOT ({late}) AS closed, CASE WHEN {late} THEN 'cut' ELSE word END AS ended, "
        f"CASE WHEN {late} AND why <> '' THEN 'horizon' ELSE why END AS open "
        "FROM ended"
    )


def make_decisions(con: Any, spec: Timed) -> None:
    """Make the tables `decisions` and `episodes` (those with a decision) from `spans`.

    Raises:
        LogError: An episode has so many decisions that its dates must be wrong.
    """
    clock = spec.clock
    if clock.every:
        w = microseconds(clock.every)
        whole = f"(finish - start) // {w}"
        n = whole if clock.partial == "drop" else f"(finish - start + {w} - 1) // {w}"
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE episodes AS SELECT *, "
            f"least(finish, start + n * {w}) AS span, "
            f"closed AND finish <= start + n * {w} AS span_closed "
            f"FROM (SELECT *, CAST({n} AS BIGINT) AS n FROM spans) WHERE n > 0"
        )
        _refuse_endless(con, spec)
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE decisions AS SELECT episode, k, start + k * {w} AS t, "
            f"least(start + (k + 1) * {w}, span) AS w "
            "FROM (SELECT episode, start, span, unnest(range(n)) AS k FROM episodes)"
        )
        return
    con.execute(
        "CREATE OR REPLACE TEMP TABLE decisions AS SELECT episode, "
        "row_number() OVER (PARTITION BY episode ORDER BY t) - 1 AS k, t, "
        "coalesce(lead(t) OVER (PARTITION BY episode ORDER BY t), finish) AS w FROM (SELECT "
        "DISTINCT "
        "s.episode, s.finish, o.t FROM (SELECT DISTINCT subject, t FROM ev JOIN roles USING (id) "
        "WHERE role = 'on') AS o JOIN spans AS s ON o.subject = s.subject AND o.t >= s.start "
        "AND o.t < s.finish)"
    )
    con.execute(
        "CREATE OR REPLACE TEMP TABLE episodes AS SELECT s.*, d.n, s.finish AS span, "
        "s.closed AS span_closed FROM spans AS s JOIN (SELECT episode, count(*) AS n FROM "
        "decisions "
        "GROUP BY episode) AS d USING (episode)"
    )
    _refuse_endless(con, spec)


def _refuse_endless(con: Any, spec: Timed) -> None:
    row = con.execute("SELECT episode, n FROM episodes ORDER BY n DESC, episode LIMIT 1").fetchone()
    if row is not None and row[1] > MOST_DECISIONS:
        raise LogError(
            f"an episode would have {row[1]:,} decisions.",
            f"episode {row[0]}",
            f"Is its end right? Limit episodes with horizon in [clock] "
            f"({place(spec.lines, ('clock',))}).",
        )


def placed(rows: str, spec: Timed, wanted: dict[str, tuple[str, str]]) -> str:
    """SQL of rows with the number of decisions of their episode up to a moment.

    Args:
        rows: SQL with the columns episode, start and n, and the moments.
        spec: The spec.
        wanted: Name of a new column → (column of the moment in microseconds, "<=" or "<"): the
            number of decisions with t <= or < that moment.
    """
    if spec.clock.every:
        w = microseconds(spec.clock.every)
        counts = []
        for name, (column, sign) in wanted.items():
            since = f"({column} - start)"
            # floor division of a number that may be negative; DuckDB's // cuts towards 0
            shifted = f"greatest({since}, -{w})" if sign == "<=" else f"greatest({since} - 1, -{w})"
            raw = f"({shifted} + {w}) // {w}"
            counts.append(f"CASE WHEN {column} IS NOT NULL THEN least(n, {raw}) END AS {name}")
        return f"SELECT *, {', '.join(counts)} FROM ({rows})"
    sql = rows
    for name, (column, sign) in wanted.items():
        sql = (
            f"SELECT x.*, CASE WHEN x.{column} IS NOT NULL THEN coalesce(d.k + 1, 0) END AS {name} "
            f"FROM ({sql}) AS x ASOF LEFT JOIN decisions AS d ON x.episode = d.episode "
            f"AND x.{column} {'>=' if sign == '<=' else '>'} d.t"
        )
    return sql
