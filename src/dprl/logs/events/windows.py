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
from dprl.logs.checking.findings import Finding
from dprl.logs.encoding.doses import range_labels
from dprl.logs.events.moments import (
    label_number,
    moment,
    number,
    scan,
    text,
    unsigned_zero,
    whole_label,
    written_of,
)
from dprl.logs.events.spec import HOUR, microseconds, place
from dprl.logs.events.spec_rules import NEED_ROW
from dprl.logs.reading.frames import no_column, quoted

if TYPE_CHECKING:
    from dprl.logs.events.spec import Clock, Feature, Part, Reward, Source, Spec


# --- SQL of episodes and decisions of one part of the events

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


def load_table(con: Any, spec: Spec) -> list[Finding]:
    """Read the table of episodes as `given`: episode, subject, start, finish, grp.

    Returns:
        What is to be said about it.

    Raises:
        LogError: It cannot be read, lacks a column, or has a row that makes no sense.
    """
    where = place(spec.lines, ("episodes", "table"))
    written = written_of(spec.source)
    with scan([spec.episodes.table], con.execute, written.text) as (rows, _, kinds):
        _make_given(con, spec, rows, kinds, where)
    _check_given(con, where)
    return _nobody(con, where)


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
    subject = whole_label(quoted(named["subject"]), kinds[named["subject"]])
    group = {"subject": "CAST(subject AS VARCHAR)", "episode": "CAST(episode AS VARCHAR)"}.get(
        table.group, "grp"
    )
    con.execute(
        f"CREATE TABLE given AS SELECT episode, subject, start, finish, {group} AS grp, odd, "
        "zoned, mixed FROM ("
        f"SELECT CAST({quoted(named['id'])} AS VARCHAR) AS episode, "
        f"TRY_CAST({subject} AS {kind}) AS subject, "
        f"{begin.micros} AS start, {finish.micros} AS finish, "
        f"({begin.bad} OR {finish.bad}) AS odd, {begin.zoned} AS zoned, "
        f"{quoted(named['finishes'])} IS NOT NULL AND {finish.zoned} <> {begin.zoned} AS mixed, "
        f"{f'CAST({quoted(table.group)} AS VARCHAR)' if 'group' in named else 'NULL'} AS grp "
        f"FROM ({rows}))"
    )
    # 007 and 7 are one, unless the events have both
    con.execute(
        "UPDATE given SET subject = s.subject FROM ("
        f"SELECT {label_number('subject')} AS name, min(subject) AS subject FROM subjects "
        "GROUP BY name HAVING count(*) = 1) AS s "
        f"WHERE {label_number('given.subject')} = s.name AND given.subject <> s.subject"
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

    n, first, other = con.execute(
        "SELECT count(*), min(a), arg_min(b, a) FROM (SELECT episode AS b, lag(episode) OVER w AS "
        "a, start, max(over) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before "
        "FROM (SELECT episode, subject, start, coalesce(finish, greatest(start, last)) AS over "
        "FROM given LEFT JOIN subjects USING (subject)) "
        "WINDOW w AS (PARTITION BY subject ORDER BY start, over, episode)) WHERE start < before"
    ).fetchone()
    if n:
        raise LogError(
            f"{n:,} rows of the table of episodes begin before another of their subject is over: "
            "events would count twice.",
            f"episodes {first} and {other}; {where}",
            "Leave one of them, or let one end where the other begins.",
        )


def _nobody(con: Any, where: str) -> list[Finding]:
    """Say how many rows of the table of episodes have a subject without events; refuse all."""
    n, gone, first = con.execute(
        "SELECT count(*), count(*) FILTER (s.subject IS NULL), min(g.subject) FILTER (s.subject IS "
        "NULL) FROM given AS g LEFT JOIN subjects AS s ON g.subject = s.subject"
    ).fetchone()
    if not gone:
        return []
    what = f"{gone:,} of {n:,} rows of the table of episodes have a subject without any event."
    if gone == n:
        some = con.execute("SELECT min(subject) FROM subjects").fetchone()[0]
        raise LogError(
            what,
            f"{first!r} in the table, {some!r} in the events; {where}",
            "Name the column whose labels are those of the events, and write them alike.",
        )
    do = "Nothing was given and nothing measured there. Look whether they are written alike."
    return [Finding("warning", "no_events", what, f"subject {first}; {where}", do)]


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
        until = "coalesce(finish, greatest(start, last), start)"
        base = (
            f"SELECT episode, subject, start, {until} AS finish, coalesce(lead(start) OVER "
            f"(PARTITION BY subject ORDER BY start, {until}) > {until}, true) AS closed, "
            f"CASE WHEN finish IS NULL THEN 'cut' ELSE {word} END AS word, grp, "
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
        "CASE WHEN e.t < b.finish THEN true ELSE b.closed END AS closed, "
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


# --- SQL of the state: what each feature takes from the rows that were known at its decision
#
# A row counts from the decision `k1` on, the first at which it is known, to `k2`, the last whose
# look-back reaches it. Features that carry the last value forward, or look back without a limit,
# are gathered at k1 and carried along the decisions by window functions; others are dealt to every
# decision from k1 to k2. Sums are of decimals with 12 places: exact, whatever the order of the
# rows.
#
# Of several rows at the latest time: the one known last, then the code named first, then the lowest
# value. Rows without a value count for "count", "ever" and "age" alone (for none with `valid`).

DECIMAL = "DECIMAL(38, 12)"
"""What values of actions and rewards are added as."""


class StateSpec(Timed, Protocol):
    """What of a spec makes a state."""

    @property
    def features(self) -> tuple[Feature, ...]:
        """The numbers of the state."""

    @property
    def source(self) -> Source:
        """Where the events are."""


COUNTED = ("count", "ever", "age")
"""What takes rows without a value too."""
CARRIED = ("last", "age", "ever")


def _limit(feature: Feature) -> int | None:
    """The look-back in microseconds; None where it has no limit of its own."""
    return None if feature.within in ("episode", "history", "") else microseconds(feature.within)


def _decimal(feature: Feature) -> str:
    """The type as which values of a feature are added: exact, whatever their order."""
    return f"DECIMAL(38, {int(feature.places)})"


def _kind(feature: Feature) -> str:
    """The table in which a feature of some codes is made."""
    if feature.static:
        return "static"
    if feature.take == "dose":
        return "doses"
    return "carried" if feature.take in CARRIED or _limit(feature) is None else "dealt"


def state_rows(spec: StateSpec) -> str:
    """SQL of the rows that features take: episode, role, rank, t, u, v, known, k1, k2.

    Doses have rows of their own here: k1 is the first decision after the beginning.
    """
    parameters = []
    for i, feature in enumerate(spec.features):
        if not feature.codes or feature.static:
            continue
        low, high = map(number, feature.valid or (None, None))
        limit = _limit(feature)
        delay = microseconds(feature.known_after) if feature.known_after else 0
        parameters.append(
            f"({text(f'f{i}')}, {delay}, {1 if feature.until == 'at' else 0}, "
            f"{'NULL' if limit is None else limit}, {feature.within == 'episode'}, "
            f"{low}, {high}, {feature.take in COUNTED}, {feature.take == 'dose'}, "
            f"{feature.take == 'dose' or (feature.take in COUNTED and feature.valid is None)})"
        )
    if not parameters:
        parameters = [
            f"('', 0, 0, NULL, false, {number(None)}, {number(None)}, false, false, false)"
        ]
    ended = "x.k" if spec.source.known else "greatest(x.k, coalesce(x.u, x.k))"
    rows = (
        "SELECT e.episode, e.start, e.n, p.role, r.rank, x.t, x.u, x.v, x.id, p.dose, "
        f"CASE WHEN p.begun THEN x.k ELSE {ended} END + p.delay AS known, "
        "known - p.also_at AS edge, "
        "CASE WHEN p.dose THEN x.u + p.delay - 1 ELSE x.t END + p.look AS reach "
        "FROM ev AS x JOIN roles AS r USING (id) "
        f"JOIN (VALUES {', '.join(parameters)}) AS p"
        "(role, delay, also_at, look, inside, low, high, counted, dose, begun) ON r.role = p.role "
        "JOIN episodes AS e ON x.subject = e.subject "
        "WHERE x.t IS NOT NULL AND (x.v IS NOT NULL OR p.counted) "
        "AND (p.low IS NULL OR x.v BETWEEN p.low AND p.high) "
        "AND (NOT p.inside OR p.dose OR x.t >= e.start) "
        "AND (NOT p.dose OR x.u > x.t) "
        "AND (p.look IS NULL OR p.dose OR x.t >= e.start - p.look) AND x.t < e.finish"
    )
    dealt = placed(rows, spec, {"k1": ("edge", "<="), "upto": ("reach", "<=")})
    return (
        "SELECT * EXCLUDE (upto, edge, reach), coalesce(upto, n) - 1 AS k2 "
        f"FROM ({dealt}) WHERE k1 < n AND k1 <= coalesce(upto, n) - 1"
    )


def make_state(con: Any, spec: StateSpec) -> None:
    """Make the table `state`: episode, k, and one column of numbers per feature."""
    con.execute(f"CREATE OR REPLACE TEMP TABLE state_rows AS {state_rows(spec)}")
    kinds: dict[str, list[tuple[int, Feature]]] = {}
    for i, feature in enumerate(spec.features):
        if feature.codes:
            kinds.setdefault(_kind(feature), []).append((i, feature))
    makers = {"carried": _make_carried, "dealt": _make_dealt, "doses": _make_doses}
    joins = []
    for name, make in makers.items():
        if name in kinds:
            make(con, kinds[name])
            joins.append(f"LEFT JOIN {name} ON d.episode = {name}.episode AND d.k = {name}.k ")
    if "static" in kinds:
        _make_static(con, kinds["static"])
        joins.append("LEFT JOIN static ON e.subject = static.subject")
    columns = [f"{_final(i, f)} AS {quoted(f.name)}" for i, f in enumerate(spec.features)]
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE state AS SELECT d.episode, d.k, {', '.join(columns)} "
        f"FROM decisions AS d JOIN episodes AS e ON d.episode = e.episode {''.join(joins)}"
    )


def _final(i: int, feature: Feature) -> str:
    """SQL of the value of a feature: its unit changed, and filled where it is missing."""
    if feature.take == "elapsed":
        value = f"(d.t - e.start) / {HOUR}.0"
    elif feature.take == "step":
        value = "CAST(d.k AS DOUBLE)"
    elif feature.static or feature.take in ("count", "ever", "sum", "dose"):
        value = f"f{i}"
        if feature.take in ("count", "ever", "sum", "dose"):
            value = f"coalesce(f{i}, 0)"
    else:
        value = f"f{i}"
    value = f"CAST({value} AS DOUBLE)"
    if feature.times != 1:
        value = f"({value} * {number(feature.times)})"
    if feature.fill is not None:
        value = f"coalesce({value}, {number(feature.fill)})"
    return value


def _gathered(i: int, feature: Feature) -> list[str]:
    """SQL of what one bucket of rows keeps of a feature that is carried along."""
    only = f"FILTER (WHERE role = 'f{i}')"
    return {
        "last": [f"max({{'t': t, 'k': known, 'r': -rank, 'v': -v}}) {only} AS f{i}s"],
        "age": [f"max(t) {only} AS f{i}t"],
        "ever": [f"max(t) {only} AS f{i}t"],
        "count": [f"count(*) {only} AS f{i}n"],
        "sum": [f"sum(CAST(v AS {_decimal(feature)})) {only} AS f{i}x"],
        "mean": [
            f"sum(CAST(v AS {_decimal(feature)})) {only} AS f{i}x",
            f"count(*) {only} AS f{i}n",
        ],
        "min": [f"min(v) {only} AS f{i}v"],
        "max": [f"max(v) {only} AS f{i}v"],
    }[feature.take]


def _make_carried(con: Any, features: list[tuple[int, Feature]]) -> None:
    """Make the table `carried`: episode, k and the features that are carried along decisions."""
    roles = ", ".join(text(f"f{i}") for i, _ in features)
    buckets = ", ".join(x for i, f in features for x in _gathered(i, f))
    first, second, last = [], [], []
    over = "OVER along"
    for i, f in features:
        limit = _limit(f)
        if f.take == "last":
            first.append(f"f{i}s, max(f{i}s.t) {over} AS f{i}m")
            second.append(
                f"last_value(CASE WHEN f{i}s.t = f{i}m THEN f{i}s END IGNORE NULLS) {over} AS f{i}l"
            )
            fresh = "true" if limit is None else f"t - f{i}l.t <= {limit}"
            value = unsigned_zero(f"(-f{i}l.v)")
            last.append(f"CASE WHEN {fresh} THEN {value} END AS f{i}")
        elif f.take in ("age", "ever"):
            first.append(f"max(f{i}t) {over} AS f{i}t")
            second.append(f"f{i}t")
            fresh = "true" if limit is None else f"t - f{i}t <= {limit}"
            result = f"(t - f{i}t) / {HOUR}.0" if f.take == "age" else "1"
            last.append(f"CASE WHEN f{i}t IS NOT NULL AND {fresh} THEN {result} END AS f{i}")
        elif f.take == "mean":
            first.append(f"sum(f{i}x) {over} AS f{i}x, sum(f{i}n) {over} AS f{i}n")
            second.append(f"f{i}x, f{i}n")
            last.append(
                f"CASE WHEN f{i}n > 0 THEN CAST(f{i}x AS DOUBLE) / CAST(f{i}n AS DOUBLE) END AS "
                f"f{i}"
            )
        else:
            name = {"count": "n", "sum": "x", "min": "v", "max": "v"}[f.take]
            how = f.take if f.take in ("min", "max") else "sum"
            first.append(f"{how}(f{i}{name}) {over} AS f{i}{name}")
            second.append(f"f{i}{name}")
            last.append(f"CAST(f{i}{name} AS DOUBLE) AS f{i}")
    along = "WINDOW along AS (PARTITION BY episode ORDER BY k ROWS UNBOUNDED PRECEDING)"
    con.execute(
        "CREATE OR REPLACE TEMP TABLE carried AS WITH buckets AS (SELECT episode, k1 AS k, "
        f"{buckets} FROM state_rows WHERE role IN ({roles}) GROUP BY episode, k1), "
        f"one AS (SELECT d.episode, d.k, d.t, {', '.join(first)} FROM decisions AS d LEFT JOIN "
        "buckets AS b ON d.episode = b.episode AND d.k = b.k "
        "WINDOW along AS (PARTITION BY d.episode ORDER BY d.k ROWS UNBOUNDED PRECEDING)), "
        f"two AS (SELECT episode, k, t, {', '.join(second)} FROM one {along}) "
        f"SELECT episode, k, {', '.join(last)} FROM two"
    )


def _make_dealt(con: Any, features: list[tuple[int, Feature]]) -> None:
    """Make the table `dealt`: episode, k and the features of a look-back with a limit."""
    roles = ", ".join(text(f"f{i}") for i, _ in features)
    columns = []
    for i, f in features:
        only = f"FILTER (WHERE role = 'f{i}')"
        total = f"CAST(sum(CAST(v AS {_decimal(f)})) {only} AS DOUBLE)"
        value = {
            "count": f"count(*) {only}",
            "sum": total,
            "mean": f"{total} / nullif(count(*) {only}, 0)",
            "min": f"min(v) {only}",
            "max": f"max(v) {only}",
            "slope": f"CASE WHEN min(t) {only} < max(t) {only} THEN "
            f"regr_slope(v, (t - start) / {HOUR}.0 ORDER BY t, v) {only} END",
        }[f.take]
        columns.append(f"{value} AS f{i}")
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE dealt AS SELECT episode, k, {', '.join(columns)} FROM ("
        "SELECT episode, start, role, t, v, unnest(range(k1, k2 + 1)) AS k FROM state_rows "
        f"WHERE role IN ({roles})) GROUP BY episode, k"
    )


def _make_doses(con: Any, features: list[tuple[int, Feature]]) -> None:
    """Make the table `doses`: episode, k and value times hours before the decision."""
    columns, ranges = [], []
    for i, f in features:
        limit = _limit(f)
        delay = microseconds(f.known_after) if f.known_after else 0
        earliest = "x.start" if limit is None else f"d.t - {limit}"
        hours = f"(least(x.u, d.t - {delay}) - greatest(x.t, {earliest}))"
        columns.append(
            f"CAST(sum(CAST(x.v * greatest({hours}, 0) / {HOUR}.0 AS {_decimal(f)})) "
            f"FILTER (WHERE role = 'f{i}') AS DOUBLE) AS f{i}"
        )
        ranges.append(text(f"f{i}"))
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE doses AS SELECT x.episode, x.k, {', '.join(columns)} FROM ("
        "SELECT *, unnest(range(k1, k2 + 1)) AS k FROM state_rows "
        f"WHERE role IN ({', '.join(ranges)})) AS x "
        "JOIN decisions AS d ON x.episode = d.episode AND x.k = d.k GROUP BY x.episode, x.k"
    )


def _make_static(con: Any, features: list[tuple[int, Feature]]) -> None:
    """Make the table `static`: subject and the features of rows without a time."""
    columns = []
    for i, f in features:
        valid = (
            ""
            if f.valid is None
            else f" AND v BETWEEN {number(f.valid[0])} AND {number(f.valid[1])}"
        )
        only = f"FILTER (WHERE role = 'f{i}'{valid})"
        value = {
            "last": unsigned_zero(
                f"(-(max({{'r': -rank, 'v': -v}}) FILTER (WHERE role = 'f{i}' "
                f"AND v IS NOT NULL{valid})).v)"
            ),
            "count": f"count(*) {only}",
            "ever": f"CASE WHEN count(*) {only} > 0 THEN 1 END",
        }[f.take]
        columns.append(f"{value} AS f{i}")
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE static AS SELECT subject, {', '.join(columns)} "
        "FROM ev JOIN roles USING (id) WHERE t IS NULL GROUP BY subject"
    )


# --- SQL of what was done and gained: the action and the reward of every window
#
# The window of a decision is from t until before t'; the last one reaches to the end of the
# episode, a row at that very moment included unless the episode was cut there.

SPREAD = ("any", "dose", "amount")
"""What takes rows with an end in every window in which they run."""
VALUED = ("sum", "mean", "min", "max", "last", "dose", "amount")
INSIDE = "(x.t < e.span OR (e.span_closed AND x.t = e.span))"


def _roles(spec: Spec) -> list[tuple[str, Part]]:
    """The roles of actions, and the part each belongs to."""
    rows = []
    for i, part in enumerate(spec.action.parts):
        rows += [(f"a{i}c{j}", part) for j in range(len(part.choices))] or [(f"a{i}", part)]
    return rows


def action_rows(spec: Spec) -> str:
    """SQL of the rows that actions take: episode, k, role, rank, t, u, v, and us of overlap."""
    parameters = []
    for role, part in _roles(spec):
        low, high = map(number, part.valid or (None, None))
        parameters.append(
            f"({text(role)}, {part.take in SPREAD}, {part.take in VALUED}, {low}, {high})"
        )
    rows = (
        "SELECT e.episode, e.start, e.n, p.role, r.rank, x.t, x.u, x.v, x.id, p.spread, "
        "CASE WHEN p.spread AND x.u > x.t THEN x.u - 1 ELSE x.t END AS stop "
        f"FROM ev AS x JOIN roles AS r USING (id) JOIN (VALUES {', '.join(parameters)}) AS p"
        "(role, spread, valued, low, high) ON r.role = p.role "
        "JOIN episodes AS e ON x.subject = e.subject "
        "WHERE (x.v IS NOT NULL OR NOT p.valued) "
        "AND (p.low IS NULL OR x.v BETWEEN p.low AND p.high) "
        f"AND {INSIDE} AND coalesce(greatest(x.u, x.t), x.t) >= e.start"
    )
    dealt = placed(rows, spec, {"begins": ("t", "<="), "stops": ("stop", "<=")})
    return (
        "SELECT y.* EXCLUDE (begins, stops, spread, stop), greatest(0, least(coalesce(y.u, "
        "y.t), d.w) - "
        "greatest(y.t, d.t)) AS us FROM (SELECT *, unnest(range("
        "CASE WHEN spread AND u > t THEN greatest(begins - 1, 0) ELSE begins - 1 END, stops)) AS k "
        f"FROM ({dealt})) AS y JOIN decisions AS d ON y.episode = d.episode AND y.k = d.k "
        "WHERE y.k >= 0"
    )


def _measure(role: str, take: str) -> str:
    """SQL of a number from the rows of one window; NULL where there are none."""
    only = f"FILTER (WHERE role = {text(role)})"
    total = f"CAST(sum(CAST(v AS {DECIMAL})) {only} AS DOUBLE)"
    hours = f"CAST(sum(CAST(v * us / {HOUR}.0 AS {DECIMAL})) {only} AS DOUBLE)"
    share = "CASE WHEN u > t THEN v * us / (u - t) ELSE v END"
    return {
        "any": f"CASE WHEN count(*) {only} > 0 THEN 1 END",
        "count": f"nullif(count(*) {only}, 0)",
        "sum": total,
        "mean": f"{total} / nullif(count(*) {only}, 0)",
        "min": f"min(v) {only}",
        "max": f"max(v) {only}",
        "last": f"-(max({{'t': t, 'r': -rank, 'v': -v}}) {only}).v",
        "dose": hours,
        "amount": f"CAST(sum(CAST({share} AS {DECIMAL})) {only} AS DOUBLE)",
    }[take]


def levels(part: Part) -> list[str]:
    """Names of the levels of a part, level 0 first; `absent` is not among them."""
    if part.choices:
        return [part.absent or "0", *(choice.name for choice in part.choices)]
    if part.unit and not part.levels:
        return [f"{words} {part.unit}" for words in range_labels(part.edges)]
    return list(part.levels) or [str(i) for i in range(len(part.edges) + 1 if part.edges else 2)]


def labels(spec: Spec) -> list[str]:
    """Every label that an action of this spec can have."""
    action = spec.action
    if action.combine == "first":
        every = [action.none]
        for part in action.parts:
            every += [_named(part, level) for level in levels(part)[1:]]
            if part.absent and part.take in NEED_ROW:
                every.append(_named(part, levels(part)[0]))
        return every
    joint = [""]
    for part in action.parts:
        names = levels(part)
        if part.absent and part.absent not in names:
            names = [part.absent, *names]
        joint = [f"{a}{', ' if a else ''}{part.name} {name}" for a in joint for name in names]
    return joint


def _named(part: Part, level: str) -> str:
    """The label of a part alone: its name, and its level if it has several."""
    if part.choices or part.edges or part.levels:
        return f"{part.name} {level}"
    return part.name


def _level(i: int, part: Part) -> str:
    """SQL of the number of the level of a part; -1 where it is absent."""
    if part.choices:
        whens = " ".join(
            f"WHEN a{i}c{j} IS NOT NULL THEN {j + 1}" for j in range(len(part.choices))
        )
        return f"CASE {whens} ELSE 0 END"
    missing = -1 if part.absent else 0
    if not part.edges:
        return f"CASE WHEN a{i} IS NULL THEN {missing} ELSE 1 END"
    whens = " ".join(f"WHEN a{i} <= {number(edge)} THEN {j}" for j, edge in enumerate(part.edges))
    return f"CASE WHEN a{i} IS NULL THEN {missing} {whens} ELSE {len(part.edges)} END"


def make_action(con: Any, spec: Spec) -> None:
    """Make the table `acted`: episode, k, action, and the measure of each part."""
    con.execute(f"CREATE OR REPLACE TEMP TABLE action_rows AS {action_rows(spec)}")
    measures = ", ".join(f"{_measure(role, part.take)} AS {role}" for role, part in _roles(spec))
    parts = spec.action.parts
    if spec.action.combine == "first":
        whens = []
        for i, part in enumerate(parts):
            lowest = -1 if part.absent and part.take in NEED_ROW else 0
            whens += [
                f"WHEN ({_level(i, part)}) = {j} THEN {text(_named(part, level))}"
                for j, level in enumerate(levels(part))
                if j > lowest
            ]
        label = f"CASE {' '.join(whens)} ELSE {text(spec.action.none)} END"
    else:
        pieces = []
        for i, part in enumerate(parts):
            whens = [
                f"WHEN {j} THEN {text(f'{part.name} {name}')}"
                for j, name in enumerate(levels(part))
            ]
            whens.append(f"WHEN -1 THEN {text(f'{part.name} {part.absent}')}")
            pieces.append(f"CASE {_level(i, part)} {' '.join(whens)} END")
        label = " || ', ' || ".join(pieces)
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE acted AS SELECT d.episode, d.k, {label} AS action FROM "
        "decisions "
        f"AS d LEFT JOIN (SELECT episode, k, {measures} FROM action_rows GROUP BY episode, k) AS a "
        "ON d.episode = a.episode AND d.k = a.k"
    )


def reward_rows(spec: Spec) -> str:
    """SQL of the rows that rewards take: episode, k, role, rank, t, v."""
    parameters = []
    for i, reward in enumerate(spec.rewards):
        if reward.codes:
            low, high = map(number, reward.valid or (None, None))
            parameters.append(
                f"({text(f'r{i}')}, {1 if reward.side == 'finish' else 0}, {reward.at == 'end'}, "
                f"{reward.take in VALUED}, {low}, {high})"
            )
    if not parameters:
        parameters = [f"('', 0, false, false, {number(None)}, {number(None)})"]
    rows = (
        "SELECT e.episode, e.start, e.n, p.role, r.rank, x.t, x.u, x.v, x.id, p.at_end, "
        "x.t - p.late AS edge FROM ev AS x JOIN roles AS r USING (id) "
        f"JOIN (VALUES {', '.join(parameters)}) AS p(role, late, at_end, valued, low, high) "
        "ON r.role = p.role JOIN episodes AS e ON x.subject = e.subject "
        "WHERE (x.v IS NOT NULL OR NOT p.valued) AND (p.low IS NULL OR x.v BETWEEN p.low AND "
        "p.high) "
        "AND x.t >= e.start AND CASE WHEN p.at_end "
        "THEN (x.t < e.finish OR (e.closed AND x.t = e.finish)) "
        f"WHEN p.late = 1 THEN x.t <= e.span ELSE {INSIDE} END"
    )
    dealt = placed(rows, spec, {"upto": ("edge", "<=")})
    return (
        "SELECT * EXCLUDE (upto, edge), upto - 1 AS k "
        f"FROM ({dealt}) WHERE upto > 0 AND (NOT at_end OR upto = n)"
    )


def make_reward(con: Any, spec: Spec) -> None:
    """Make the table `gained`: episode, k, and the terms r0, r1, … of the reward."""
    con.execute(f"CREATE OR REPLACE TEMP TABLE reward_rows AS {reward_rows(spec)}")
    measures = [
        f"{_measure(f'r{i}', reward.take)} AS x{i}"
        for i, reward in enumerate(spec.rewards)
        if reward.codes
    ]
    terms = ", ".join(f"{_term(i, reward)} AS r{i}" for i, reward in enumerate(spec.rewards))
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE gained AS SELECT d.episode, d.k, {terms} FROM decisions "
        "AS d "
        "JOIN episodes AS e ON d.episode = e.episode LEFT JOIN (SELECT "
        f"{', '.join(['episode, k', *measures])} "
        "FROM reward_rows GROUP BY episode, k) AS a ON d.episode = a.episode AND d.k = a.k"
    )


def _term(i: int, reward: Reward) -> str:
    x = f"x{i}" if reward.codes else "1"
    if reward.codes and reward.take not in NEED_ROW:
        x = f"coalesce(x{i}, 0)"
    value = f"{number(reward.times)} * CAST({x} AS DOUBLE) + {number(reward.plus)}"
    if reward.missing is not None:
        value = f"coalesce({value}, {number(reward.missing)})"
    if reward.at == "window":
        return value
    which = ""
    if reward.ended:
        which = f" AND e.ended IN ({', '.join(map(text, reward.ended))})"
    return f"CASE WHEN d.k = e.n - 1{which} THEN {value} ELSE 0.0 END"
