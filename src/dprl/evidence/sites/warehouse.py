"""The evidence query: what a site counts, as SQL that a warehouse runs, in whole numbers.

Rewards are taken as whole numbers of 10^-d (`decimals` d). With γ = 1 a return is a window sum of
them. With γ < 1 it is Σ_k r_{t+k} w_k, where w_k is γ^k in whole numbers of 10^-p, rounded once by
dprl and written into the query. From there on everything is integer arithmetic: first visits and
first occurrences by ROW_NUMBER, counts, sums and sums of squares by GROUP BY. No sum is rounded,
and no order of rows can show.

What can differ from dprl's own count of the same table: dprl computes returns in floating point,
r_t + γ G_{t+1}, rounded at each step. With whole-number rewards and γ = 1 both are exact and the
policy is the same to the last bit. Otherwise a return differs by at most Σ|r| · 10^-p / 2 and some
units in the last place of a float; a return that is a whole number of units of the histogram to
within 10^-9 of the range counts as one in both. And where two episodes of a group begin at the same
time, the database's order of episode labels decides which was first.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np

from dprl._core.arrays import Ints
from dprl._core.checks import check_choice, check_whole
from dprl._core.exact import COUNT, LIMIT, NOTHING, SQUARES, SUMS, digits_of, window_of
from dprl._core.optional import needed
from dprl._core.words import worded
from dprl.errors import EvidenceError, LogError, ParameterError
from dprl.evidence.counts import FIRST, LATER, Evidence
from dprl.evidence.sites import evidence as _site_bins
from dprl.evidence.sites.cells import USUAL_K, as_site, whole_evidence
from dprl.evidence.sites.evidence import EMPTY, REST, SLACK, UNITS, SiteEvidence, SiteSchema
from dprl.logs.log import Label
from dprl.logs.roles import by_role

# --- Evidence where the data already are: partitions of a table are counted apart, and added up
#
# `count_batches` makes a function of an iterator of Arrow record batches, as Spark's `mapInArrow`
# wants it: it reads one partition and gives back one row, with the evidence of the partition. Rows
# do not leave the executors. `from_batches` adds up these rows; the result is what
# `dprl.site_evidence` would have said of the whole table, bit for bit.
#
# Every group (every episode, where there are no groups) must be in one partition as a whole. Each
# partition also gives back hashes of its groups, and `from_batches` refuses a group that is in
# two.


def count_batches(
    schema: SiteSchema,
    *,
    episode: str,
    time: str,
    state: str,
    action: str,
    reward: str,
    group: str | None = None,
    available: str | None = None,
    ended: str | None = None,
    propensity: str | None = None,
    events: Sequence[str] | None = None,
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A function for Spark's `mapInArrow`, which counts a partition of a table.

    Args:
        schema: States, actions, discount and range, fixed beforehand.
        episode: Column naming the trajectory of a row.
        time: Column ordering an episode's rows; partitions have no order of their own.
        state: Column of state labels.
        action: Column of action labels.
        reward: Column of the reward for this row's state and action.
        group: Column of what stays together, e.g. a patient's stays. Default None.
        available: Column of the actions on offer. Default None.
        ended: Column saying terminal, cut or an event on an episode's last row. Default None.
        propensity: Column of the probability with which the action was taken; a certificate says
            on how many logs it is on record. Default None.
        events: Words in the column of endings that name a competing event. Default None.

    Returns:
        A function from record batches to record batches with the columns `evidence` and `groups`.
        Partitions must hold whole groups: repartition the table by group (or episode) before.

    Raises:
        ParameterError: `schema` is no schema.

    Example:
        >>> import dprl, pyarrow
        >>> from dprl.evidence import count_batches, from_batches
        >>> rows = {"who": [1, 1, 2], "day": [0, 1, 0], "s": ["ill", "well", "ill"],
        ...         "a": ["drug", "wait", "wait"], "r": [0, 1, 0]}
        >>> schema = dprl.SiteSchema(states=["ill", "well"], actions=["drug", "wait"], gamma=1.0)
        >>> count = count_batches(
        ...     schema, episode="who", time="day", state="s", action="a", reward="r"
        ... )
        >>> parts = list(count(pyarrow.table(rows).to_batches()))
        >>> from_batches(parts, k=1).groups
        2
    """
    columns = by_role(locals())
    if not isinstance(schema, SiteSchema):
        raise ParameterError(f"a schema is needed; got an object of type {type(schema).__name__}.")

    def count(batches: Iterable[Any]) -> Iterator[Any]:
        from dprl.logs._io import from_frame

        arrow = needed("pyarrow", "counting Arrow batches", "pyarrow")
        whole = [batch for batch in batches if batch.num_rows]
        if not whole:
            return
        log = from_frame(
            arrow.Table.from_batches(whole), **columns, events=events, follow_up=schema.follow_up,
            also=(),
        )  # fmt: skip
        counted = whole_evidence(log, schema)
        yield arrow.RecordBatch.from_pydict(
            {
                "evidence": arrow.array([counted.to_bytes()], arrow.binary()),
                "groups": arrow.array([_hashes(log.groups)], arrow.binary()),
            }
        )

    return count


def _hashes(groups: Sequence[Label]) -> bytes:
    """8 bytes for each group, to see whether it is in two partitions."""
    return b"".join(
        hashlib.blake2b(f"{type(g).__name__}|{g}".encode(), digest_size=8).digest() for g in groups
    )


def from_batches(parts: Any, *, k: int = USUAL_K, site: str = "") -> SiteEvidence:
    """The evidence of a table that was counted in partitions by `count_batches`.

    Args:
        parts: The rows that came back: an Arrow table, record batches, or rows as Spark's
            `collect` gives them.
        k: The fewest groups of anything that is given away about a state. Default 10.
        site: A name for the site. Default "".

    Returns:
        The evidence, as `dprl.site_evidence` would make it of the whole table.

    Raises:
        EvidenceError: A group is in two partitions, or a row is no evidence.
        LogError: There are fewer than k groups.

    Example:
        >>> import dprl, pyarrow
        >>> from dprl.evidence import count_batches, from_batches
        >>> log = dprl.envs.care_pathway().sample(300, seed=0)
        >>> schema = dprl.SiteSchema.of(log, gamma=1.0)
        >>> from_batches([], k=1)
        Traceback (most recent call last):
        ...
        dprl.errors.EvidenceError: no partition has a row: there is nothing to count.
    """
    k = check_whole("k", k, 1)
    rows = list(_rows(parts))
    if not rows:
        raise EvidenceError("no partition has a row: there is nothing to count.")
    hashes = np.concatenate([np.frombuffer(bytes(groups), np.uint64) for _, groups in rows])
    _, times = np.unique(hashes, return_counts=True)
    if (times > 1).any():
        raise EvidenceError(
            f"{int((times > 1).sum()):,} of {len(times):,} groups are in more than one partition, "
            "and would count more than once.",
            f"{len(rows):,} partitions",
            "Repartition the table by the group (or episode) column before counting.",
        )
    counted = [SiteEvidence.load(io.BytesIO(bytes(data))) for data, _ in rows]
    if any(part.schema != counted[0].schema for part in counted):
        raise EvidenceError("the partitions were counted with different schemas.")
    return as_site(counted, k=k, site=site)


def _rows(parts: Any) -> Iterator[tuple[Any, Any]]:
    """Evidence and hashes of every row, whatever holds the rows."""
    for part in [parts] if hasattr(parts, "to_pylist") else parts:
        for row in part.to_pylist() if hasattr(part, "to_pylist") else [part]:
            try:
                named = row if isinstance(row, Mapping) else {
                    "evidence": row[0], "groups": row[1],
                }  # fmt: skip
                yield named["evidence"], named["groups"]
            except (KeyError, IndexError, TypeError) as error:
                raise EvidenceError(
                    "a row holds no evidence of a partition.",
                    repr(row)[:80],
                    "Give what the function of dprl.evidence.count_batches gave back.",
                ) from error


# --- The evidence query: what a site counts, as SQL that a warehouse runs, in whole numbers

Dialect = Literal["standard", "duckdb", "postgres", "spark", "bigquery", "snowflake"]
WHOLE = {
    "standard": "NUMERIC(38, 0)", "duckdb": "HUGEINT", "postgres": "NUMERIC",
    "spark": "DECIMAL(38, 0)", "bigquery": "BIGNUMERIC", "snowflake": "NUMBER(38, 0)",
}  # fmt: skip
"""Dialect → its type of large whole numbers."""
BACKTICKS = ("spark", "bigquery")
"""Dialects that quote names with backticks, and call text STRING."""
COLUMNS = ("part", "state", "action", "n", "total", "squares", "lowest", "highest")
"""The columns of the result."""
DIGITS = 12
"""Decimals of γ^k, where nobody says."""
LONGEST = 100_000
"""The most powers of γ that are written into a query."""


def sql_query(
    schema: SiteSchema,
    *,
    table: str,
    episode: str,
    time: str,
    state: str,
    action: str,
    reward: str,
    group: str | None = None,
    decimals: int = 0,
    precision: int = DIGITS,
    dialect: Dialect = "standard",
) -> str:
    """The SQL query that counts the evidence of a table.

    Args:
        schema: States, actions, discount and range, fixed beforehand. Every episode counts as
            ended, so that its cut must be None or "terminal", and its follow_up None.
        table: The table or view, as it is written after FROM.
        episode: Column naming the trajectory of a row.
        time: Column ordering an episode's rows.
        state: Column of state labels.
        action: Column of action labels.
        reward: Column of the reward for this row's state and action.
        group: Column of what stays together, e.g. a patient's stays. Default None: episodes.
        decimals: How many decimals rewards have, 0 to 9. Default 0: whole numbers.
        precision: How many decimals of γ^k are kept where γ < 1, 6 to 18. Default 12. Returns in
            whole numbers of 10^-(decimals + precision), squared and added up, must fit into the
            database's numbers (38 digits in most): it says so where they do not.
        dialect: "standard" (default), "duckdb", "postgres", "spark", "bigquery" or "snowflake": how
            types are called and names quoted.

    Returns:
        The query. Its rows are for `from_query`.

    Raises:
        ParameterError: The schema asks for what the query cannot do, or a setting is not allowed.

    Example:
        >>> import dprl
        >>> from dprl.evidence import sql_query
        >>> schema = dprl.SiteSchema(states=["ill", "well"], actions=["drug", "wait"], gamma=1.0)
        >>> query = sql_query(
        ...     schema, table="visits", episode="patient", time="day", state="stage",
        ...     action="treatment", reward="score", dialect="postgres",
        ... )
        >>> print(query.splitlines()[1])
        WITH dprl_steps AS (
    """
    if not isinstance(schema, SiteSchema):
        raise ParameterError(f"a schema is needed; got an object of type {type(schema).__name__}.")
    check_choice("dialect", dialect, tuple(WHOLE))
    decimals = check_whole("decimals", decimals, 0, 9)
    precision = check_whole("precision", precision, 6, 18)
    if schema.cut not in (None, "terminal") or schema.follow_up is not None:
        raise ParameterError(
            "the query counts every episode as ended, to its last row.",
            f"cut = {schema.cut!r}, follow_up = {schema.follow_up!r}",
            "Leave them out of the schema and cut the table beforehand, or count with dprl "
            "evidence.",
        )
    whole, text = WHOLE[dialect], "STRING" if dialect in BACKTICKS else "VARCHAR"
    scale = 10**decimals
    column = {
        name: _quoted(value, "`" if dialect in BACKTICKS else '"')
        for name, value in (
            ("episode", episode), ("moment", time), ("state", state), ("action", action),
            ("reward", reward), ("grp", group or episode),
        )
    }  # fmt: skip
    exponent = decimals + (0 if schema.gamma == 1 else precision)
    lines = [
        "-- Evidence of a table, by dprl; every number is a whole number.",
        "WITH dprl_steps AS (",
        *_steps(column, table, scale, whole, text),
        "), dprl_places AS (",
        "  SELECT grp, episode, moment, state, action, r,",
        "    ROW_NUMBER() OVER (PARTITION BY episode ORDER BY moment) AS t,",
        "    MIN(moment) OVER (PARTITION BY episode) AS began",
        "  FROM dprl_steps",
        *_returns(schema.gamma, precision, whole, dialect),
        "), dprl_ranked AS (",
        "  SELECT state, action, g,",
        "    ROW_NUMBER() OVER (PARTITION BY grp, state ORDER BY began, episode, t) AS visit,",
        "    ROW_NUMBER() OVER (",
        "      PARTITION BY grp, state, action ORDER BY began, episode, t",
        "    ) AS occurrence",
        "  FROM dprl_returns",
        "), dprl_counted AS (",
        "  SELECT CASE WHEN visit = 1 THEN 'first' ELSE 'later' END AS part, state, action, g",
        "  FROM dprl_ranked WHERE occurrence = 1",
        ")",
        *_results(whole, exponent, text),
    ]
    if schema.value_range is not None:
        lines += _bins(schema.value_range, exponent, whole)
    return "\n".join(lines) + "\n"


def _quoted(name: str, mark: str) -> str:
    if not isinstance(name, str) or not name or "\x00" in name:
        raise ParameterError(f"a column must be named by text; got {name!r}.")
    if mark == "`" and set(name) & {"`", "\\"}:
        raise ParameterError(f"this dialect has no such column name: {name!r}.")
    return mark + name.replace(mark, 2 * mark) + mark


def _steps(column: dict[str, str], table: str, scale: int, whole: str, text: str) -> Iterator[str]:
    reward = column["reward"]
    missing = " OR ".join(f"{name} IS NULL" for name in dict.fromkeys(column.values()))
    yield f"  SELECT {column['grp']} AS grp, {column['episode']} AS episode,"
    yield f"    {column['moment']} AS moment,"
    yield f"    CAST({column['state']} AS {text}) AS state,"
    yield f"    CAST({column['action']} AS {text}) AS action,"
    yield f"    CAST(ROUND({reward} * {scale}) AS {whole}) AS r,"
    yield f"    CASE WHEN {missing}"
    odd = f"ABS({reward} * {scale} - ROUND({reward} * {scale}))"
    yield f"      OR {odd} > 0.000001 OR {odd} * 1e7 > ABS({reward} * {scale})"
    yield "      THEN 1 ELSE 0 END AS odd"
    yield f"  FROM {table}"


def _returns(gamma: float, precision: int, whole: str, dialect: str) -> Iterator[str]:
    if gamma == 1:
        yield "), dprl_returns AS ("
        yield "  SELECT grp, episode, began, t, state, action, SUM(r) OVER ("
        yield "    PARTITION BY episode ORDER BY t DESC"
        yield "    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        yield "  ) AS g"
        yield "  FROM dprl_places"
        return
    weights = _weights(gamma, precision)
    start, one, end = "(VALUES", "({}, {})", ") AS dprl_listed (k, w)"
    if dialect == "bigquery":
        start, one, end = "UNNEST([", "STRUCT({} AS k, {} AS w)", "])"
    yield "), dprl_powers AS ("
    yield f"  SELECT k, CAST(w AS {whole}) AS w FROM {start}"
    yield ",\n".join(f"    {one.format(k, w)}" for k, w in enumerate(weights))
    yield f"  {end}"
    yield "), dprl_returns AS ("
    yield "  SELECT a.grp, a.episode, a.began, a.t, a.state, a.action,"
    yield "    SUM(b.r * dprl_powers.w) AS g"
    yield "  FROM dprl_places a"
    yield "  JOIN dprl_places b ON b.episode = a.episode AND b.t >= a.t"
    yield f"    AND b.t < a.t + {len(weights)}"
    yield "  JOIN dprl_powers ON dprl_powers.k = b.t - a.t"
    yield "  GROUP BY a.grp, a.episode, a.began, a.t, a.state, a.action"


def _weights(gamma: float, precision: int) -> list[int]:
    """γ^k in whole numbers of 10^-precision, each rounded once, up to the last that is not 0."""
    steps = math.ceil((precision + 0.31) * math.log(10) / -math.log(gamma)) + 1
    if steps > LONGEST:
        raise ParameterError(
            f"gamma = {gamma} is so near to 1 that {steps:,} powers of it matter.",
            do="Use gamma = 1, or count with dprl evidence.",
        )
    with localcontext() as context:
        context.prec = 60
        base, power, weights = Decimal(gamma), Decimal(1), []
        for _ in range(steps):
            weights.append(int((power * 10**precision).to_integral_value(ROUND_HALF_EVEN)))
            power *= base
    while weights[-1] == 0:
        weights.pop()
    return weights


def _results(whole: str, exponent: int, text: str) -> Iterator[str]:
    def one(part: str, n: str, source: str, total: str = "", state: str = "") -> list[str]:
        none = f"CAST(NULL AS {whole})"
        label = f"CAST(NULL AS {text})"
        return [
            f"UNION ALL SELECT '{part}', {state or label}, {label}, {n}, {total or none},",
            f"  {none}, {none}, {none} {source}".rstrip(),
        ]

    yield "SELECT part, state, action, COUNT(*) AS n, SUM(g) AS total, SUM(g * g) AS squares,"
    yield "  MIN(g) AS lowest, MAX(g) AS highest"
    yield "FROM dprl_counted GROUP BY part, state, action"
    groups = f"CAST(COUNT(DISTINCT grp) AS {whole})"
    yield from one("steps", "COUNT(*)", "FROM dprl_steps GROUP BY state", state="state")
    yield from one("whole", "COUNT(DISTINCT episode)", "FROM dprl_steps", groups)
    yield from one("unit", str(exponent), "")
    yield from one("odd", "COALESCE(SUM(odd), 0)", "FROM dprl_steps")
    for part, by, more in (("twice", "episode, moment", "*"), ("torn", "episode", "DISTINCT grp")):
        yield from one(part, "COUNT(*)", "FROM (")
        yield f"  SELECT episode FROM dprl_steps GROUP BY {by} HAVING COUNT({more}) > 1"
        yield f") dprl_{part}"


def _bins(value_range: tuple[float, float], exponent: int, whole: str) -> Iterator[str]:
    """The bins of `dprl.evidence.sites.evidence`, in integer arithmetic."""
    exact = [Fraction(repr(float(end))) * 10**exponent for end in value_range]
    low, high = (int(end) for end in exact)
    width = high - low
    if [low, high] != exact:
        raise ParameterError(
            worded(
                "{value_range} {value_range2} has more decimals than the rewards.",
                value_range2=value_range,
            ),
            do=worded("Say how many decimals rewards have ({decimals=})."),
        )
    none = f"CAST(NULL AS {whole})"
    near = round(1 / (SLACK * UNITS))
    yield f"UNION ALL SELECT 'bin', state, action, COUNT(*), CAST(b AS {whole}),"
    yield f"  {none}, MIN(g), MAX(g)"
    yield "FROM ("
    yield "  SELECT state, action, g, CASE"
    yield f"    WHEN rest * {near} <= {width} THEN 2 * CAST((z - rest) / {width} AS BIGINT)"
    yield f"    WHEN ({width} - rest) * {near} <= {width}"
    yield f"      THEN 2 * CAST((z - rest) / {width} AS BIGINT) + 2"
    yield f"    ELSE 2 * CAST((z - rest) / {width} AS BIGINT) + 1 END AS b"
    yield "  FROM ("
    yield f"    SELECT state, action, g, (g - ({low})) * {UNITS} AS z,"
    yield f"      MOD((g - ({low})) * {UNITS}, CAST({width} AS {whole})) AS rest"
    yield "    FROM dprl_counted WHERE part = 'first'"
    yield "  ) scaled"
    yield ") binned GROUP BY state, action, b"


# --- The evidence of a table that a warehouse counted with `dprl.evidence.sql_query`

Row: TypeAlias = dict[str, Any]

WRONG = {
    "odd": ("rows have a missing value, or a reward with more decimals than was said", "rows"),
    "twice": ("times stand twice in one episode", "times"),
    "torn": ("episodes are in two groups", "episodes"),
}
"""Part of the result → what is wrong where its number is not 0."""


def from_query(
    rows: Iterable[Any], schema: SiteSchema, *, k: int = USUAL_K, site: str = ""
) -> SiteEvidence:
    """The evidence of a table that a warehouse counted with `sql_query`.

    Args:
        rows: The rows of the result: tuples in the order of its columns, or mappings by name.
        schema: The schema that the query was made with.
        k: The fewest groups of anything that is given away about a state. Default 10.
        site: A name for the site. Default "".

    Returns:
        The evidence, as `dprl.site_evidence` would make it of the table; what rounding may
        differ is told at the top of the module.

    Raises:
        EvidenceError: The rows are not those of the query.
        LogError: The table has missing values, labels that are not in the schema, returns outside
            the range, or fewer than k groups.

    Example:
        >>> import dprl, duckdb
        >>> from dprl.evidence import from_query, sql_query
        >>> schema = dprl.SiteSchema(states=["ill", "well"], actions=["drug", "wait"], gamma=1.0)
        >>> visits = "(VALUES (1, 0, 'ill', 'drug', 0), (1, 1, 'well', 'wait', 1)) v(p, t, s, a, r)"
        >>> query = sql_query(schema, table=visits, episode="p", time="t", state="s", action="a",
        ...                   reward="r", dialect="duckdb")
        >>> from_query(duckdb.sql(query).fetchall(), schema, k=1)
        <SiteEvidence: 1 site, 1 groups, 2 states, 2 actions; nothing suppressed>
    """
    if not isinstance(schema, SiteSchema):
        raise ParameterError(f"a schema is needed; got an object of type {type(schema).__name__}.")
    k = check_whole("k", k, 1)
    by_part: dict[str, list[Row]] = {}
    for row in rows:
        named = _named(row)
        by_part.setdefault(str(named["part"]), []).append(named)
    unit, whole = (_only(by_part, part) for part in ("unit", "whole"))
    for part, (what, noun) in WRONG.items():
        n = _only(by_part, part)["n"]
        if n:
            raise LogError(
                f"{n:,} {what}.", f"counted by the query as {part!r}",
                f"Put these {noun} right in the table, or leave their episodes out.",
            )  # fmt: skip
    evidence, steps = _sums(by_part, schema, unit["n"], whole["n"])
    facts = {
        "site": "", "part": "", "k": 1, "episodes": whole["n"], "groups": whole["total"],
        "cut_episodes": 0, "pairs": 0, "later": 0, "states": 0, "visits": 0,
        "grouped": whole["total"] != whole["n"], "timed": True,
    }  # fmt: skip
    bins = _bins_of_rows(by_part.get("bin", []), schema, unit["n"])
    try:
        counted = SiteEvidence(schema, evidence, steps, bins, None, (facts,))
    except EvidenceError as error:
        raise _not_ours(error.what) from error
    return as_site([counted], k=k, site=site)


def _not_ours(why: str) -> EvidenceError:
    return EvidenceError(
        "the rows are not those of the evidence query.",
        why,
        "Run the query of dprl.evidence.sql_query, made with this schema, and give all its rows.",
    )


def _named(row: Any) -> Row:
    """A row by name, with its numbers as whole numbers."""
    try:
        named = (
            {str(name).lower(): value for name, value in row.items()}  # Snowflake shouts
            if isinstance(row, Mapping)
            else dict(zip(COLUMNS, row, strict=True))
        )
        for name in COLUMNS[3:]:
            value = named[name]
            if value is None or value == "":
                named[name] = None
            else:
                number = Fraction(value)
                if number.denominator != 1:
                    raise ValueError(f"{name} = {value!r}")
                named[name] = int(number)
        return {name: named[name] for name in COLUMNS}
    except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise _not_ours(f"{repr(row)[:60]} ({error})") from error


def _only(by_part: Mapping[str, Sequence[Row]], part: str) -> Row:
    here = by_part.get(part, [])
    if len(here) != 1 or here[0]["n"] is None or here[0]["n"] < 0:
        raise _not_ours(f"{len(here)} rows of the part {part!r}, not one")
    return here[0]


def _codes(rows: Sequence[Row], schema: SiteSchema, name: str) -> Ints:
    """The schema's codes of the labels in a column."""
    labels: tuple[Label, ...] = schema.states if name == "state" else schema.actions
    code = {str(label): i for i, label in enumerate(labels)}
    strange = sorted({str(row[name]) for row in rows if str(row[name]) not in code})
    if strange:
        raise LogError(
            f"{len(strange):,} {name}s of the table are not in the schema.",
            f"{strange[0]!r}; the schema has {labels[0]!r}",
            "Agree on a schema with all labels before anybody counts, or leave these rows' "
            "episodes out.",
        )
    return np.array([code[str(row[name])] for row in rows], np.int64)


def _sums(
    by_part: Mapping[str, Sequence[Row]], schema: SiteSchema, exponent: int, episodes: int
) -> tuple[Evidence, Ints]:
    S, A = len(schema.states), len(schema.actions) + 1
    words = np.zeros((2, S, A, 1 + SUMS + SQUARES), np.int64)
    top, bottom = np.full((2, S, A), NOTHING, np.int16), np.full((2, S, A), EMPTY, np.int16)
    span = np.full((S, 2), np.nan)
    for which, part in ((FIRST, "first"), (LATER, "later")):
        rows = by_part.get(part, [])
        at = zip(_codes(rows, schema, "state"), _codes(rows, schema, "action"), strict=True)
        for row, (s, a) in zip(rows, at, strict=True):
            if any(row[name] is None for name in COLUMNS[3:]) or not 0 < row["n"] < LIMIT:
                raise _not_ours(f"{part} of {row['state']!r}, {row['action']!r}")
            cell = which, s, a
            if words[cell][COUNT]:
                raise _not_ours(f"{part} of {row['state']!r}, {row['action']!r} stands twice")
            words[cell], top[cell], bottom[cell] = _accumulator(row, exponent)
            if which == FIRST:
                low, high = (float(Fraction(row[x], 10**exponent)) for x in ("lowest", "highest"))
                span[s] = np.fmin(span[s, 0], low), np.fmax(span[s, 1], high)
    steps, rows = np.zeros(S, np.int64), by_part.get("steps", [])
    steps[_codes(rows, schema, "state")] = [row["n"] for row in rows]
    return Evidence(
        words, top, bottom, span, schema.states, (*schema.actions, REST), schema.gamma, "first",
        episodes,
    ), steps  # fmt: skip


def _accumulator(row: Row, exponent: int) -> tuple[Ints, int, int]:
    """The words of an exact sum (see `dprl._core.exact`), with the window they are in."""
    n, unit = row["n"], 10**exponent
    total, squares = Fraction(row["total"], unit), Fraction(row["squares"], unit**2)
    words = np.zeros(1 + SUMS + SQUARES, np.int64)
    words[COUNT] = n
    if n * squares == total**2:  # all returns are equal: so are the floats that stand for them
        value = np.array([float(total / n)])
        window = window_of(value, SUMS)._replace(sums=SUMS, squares=SQUARES)
        if window.top == NOTHING:
            return words, NOTHING, EMPTY
        words[1:] = n * digits_of(value, window)[0]
        return words, window.top, window.bottom
    largest = max(abs(row["lowest"]), abs(row["highest"]))
    top = math.frexp(float(Fraction(largest, unit)))[1] - 1
    words[1 : 1 + SUMS] = _digits(total, top >> 5, SUMS)
    words[1 + SUMS :] = _digits(squares, (2 * top + 1) >> 5, SQUARES)
    last = 32 * ((top >> 5) - SUMS + 1)
    return words, top, max(min(top, 0), last) if exponent == 0 else min(top, max(last, -40))


def _digits(value: Fraction, top: int, K: int) -> list[int]:
    """The K digits of base 2^32 of a number, from digit `top` down; what is below is cut off."""
    scaled = abs(value) * Fraction(2) ** (-32 * (top - K + 1))
    whole, sign = scaled.numerator // scaled.denominator, 1 if value >= 0 else -1
    digits = []
    for _ in range(K - 1):
        digits.append(sign * (whole & 0xFFFFFFFF))
        whole >>= 32
    return [sign * whole, *reversed(digits)]


def _bins_of_rows(rows: Sequence[Row], schema: SiteSchema, exponent: int) -> Ints | None:
    if schema.value_range is None:
        return None
    low, high = schema.value_range
    slack = 1e-9 * (high - low)
    for row in rows:
        ends = [float(Fraction(row[x] or 0, 10**exponent)) for x in ("lowest", "highest")]
        if ends[0] < low - slack or ends[1] > high + slack:
            raise LogError(
                worded(
                    "returns lie outside {value_range} ({low:g}, {high:g}).", low=low, high=high
                ),
                f"state {row['state']!r}: {ends[0]:g} to {ends[1]:g}",
                "The range must hold for every return there can be, or nothing is proved; widen "
                "it.",
            )
    if not rows:
        return np.empty((0, 4), np.int64)
    pair = _codes(rows, schema, "state") * (len(schema.actions) + 1)
    pair += _codes(rows, schema, "action")
    bins = np.array([row["total"] for row in rows], np.int64)
    return _site_bins.add_up(np.column_stack([pair, bins, bins, [row["n"] for row in rows]]))
