"""SQL of the state: what each feature takes from the rows that were known at its decision.

A row counts from the decision `k1` on, the first at which it is known, to `k2`, the last whose
look-back reaches it. Features that carry the last value forward, or look back without a limit, are
gathered at k1 and carried along the decisions by window functions; others are dealt to every
decision from k1 to k2. Sums are of decimals with 12 places: exact, whatever the order of the rows.

Of several rows at the latest time: the one known last, then the code named first, then the lowest
value. Rows without a value count for "count", "ever" and "age" alone (for none with `valid`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dprl.logs._sources import quoted
from dprl.logs.events._database import number, text, unsigned_zero
from dprl.logs.events._episodes import Timed, placed
from dprl.logs.events._fields import HOUR, microseconds

if TYPE_CHECKING:
    from dprl.logs.events.spec import Feature, Source

__all__ = ["DECIMAL", "StateSpec", "make_state", "state_rows"]

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


def _is_carried(feature: Feature) -> bool:
    return feature.take in CARRIED or _limit(feature) is None


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
    carried = [(i, f) for i, f in enumerate(spec.features)
               if f.codes and not f.static and f.take != "dose" and _is_carried(f)]  # fmt: skip
    dealt = [(i, f) for i, f in enumerate(spec.features)
             if f.codes and not f.static and f.take != "dose" and not _is_carried(f)]  # fmt: skip
    doses = [(i, f) for i, f in enumerate(spec.features) if f.take == "dose"]
    static = [(i, f) for i, f in enumerate(spec.features) if f.static]
    _make_carried(con, carried)
    _make_dealt(con, dealt)
    _make_doses(con, doses)
    _make_static(con, static)
    columns = [f"{_final(i, f)} AS {quoted(f.name)}" for i, f in enumerate(spec.features)]
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE state AS SELECT d.episode, d.k, {', '.join(columns)} "
        "FROM decisions AS d JOIN episodes AS e ON d.episode = e.episode "
        "LEFT JOIN carried AS c ON d.episode = c.episode AND d.k = c.k "
        "LEFT JOIN dealt AS x ON d.episode = x.episode AND d.k = x.k "
        "LEFT JOIN doses AS o ON d.episode = o.episode AND d.k = o.k "
        "LEFT JOIN static AS s ON e.subject = s.subject"
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
    if not features:
        con.execute(
            "CREATE OR REPLACE TEMP TABLE carried AS SELECT '' AS episode, 0 AS k WHERE false"
        )
        return
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
    if not features:
        con.execute(
            "CREATE OR REPLACE TEMP TABLE dealt AS SELECT '' AS episode, 0 AS k WHERE false"
        )
        return
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
    if not features:
        con.execute(
            "CREATE OR REPLACE TEMP TABLE doses AS SELECT '' AS episode, 0 AS k WHERE false"
        )
        return
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
    if not features:
        con.execute("CREATE OR REPLACE TEMP TABLE static AS SELECT subject FROM ev WHERE false")
        return
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
