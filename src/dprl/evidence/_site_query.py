r"""The evidence query: what a site counts, as SQL that a warehouse runs, in whole numbers.

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

import math
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from typing import Literal

from dprl._core.checks import check_choice, check_whole
from dprl._core.words import argument, option, worded
from dprl.errors import ParameterError
from dprl.evidence._site_bins import SLACK, UNITS
from dprl.evidence._site_schema import SiteSchema

__all__ = ["COLUMNS", "Dialect", "sql_query"]

Dialect = Literal["standard", "duckdb", "postgres"]
WHOLE = {"standard": "NUMERIC(38, 0)", "duckdb": "HUGEINT", "postgres": "NUMERIC"}
"""Dialect → its type of large whole numbers."""
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
        dialect: "standard" (default), "duckdb" or "postgres": the name of the type of large whole
            numbers.

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
    whole = WHOLE[dialect]
    scale = 10**decimals
    column = {
        name: _quoted(value)
        for name, value in (
            ("episode", episode), ("moment", time), ("state", state), ("action", action),
            ("reward", reward), ("grp", group or episode),
        )
    }  # fmt: skip
    exponent = decimals + (0 if schema.gamma == 1 else precision)
    lines = [
        "-- Evidence of a table, by dprl; every number is a whole number.",
        "WITH dprl_steps AS (",
        *_steps(column, table, scale, whole),
        "), dprl_places AS (",
        "  SELECT grp, episode, moment, state, action, r,",
        "    ROW_NUMBER() OVER (PARTITION BY episode ORDER BY moment) AS t,",
        "    MIN(moment) OVER (PARTITION BY episode) AS began",
        "  FROM dprl_steps",
        *_returns(schema.gamma, precision, whole),
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
        *_results(whole, exponent),
    ]
    if schema.value_range is not None:
        lines += _bins(schema.value_range, exponent, whole)
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    if not isinstance(name, str) or not name or "\x00" in name:
        raise ParameterError(f"a column must be named by text; got {name!r}.")
    return '"' + name.replace('"', '""') + '"'


def _steps(column: dict[str, str], table: str, scale: int, whole: str) -> Iterator[str]:
    reward = column["reward"]
    missing = " OR ".join(f"{name} IS NULL" for name in dict.fromkeys(column.values()))
    yield f"  SELECT {column['grp']} AS grp, {column['episode']} AS episode,"
    yield f"    {column['moment']} AS moment,"
    yield f"    CAST({column['state']} AS VARCHAR) AS state,"
    yield f"    CAST({column['action']} AS VARCHAR) AS action,"
    yield f"    CAST(ROUND({reward} * {scale}) AS {whole}) AS r,"
    yield f"    CASE WHEN {missing}"
    yield f"      OR ABS({reward} * {scale} - ROUND({reward} * {scale})) > 0.000001"
    yield "      THEN 1 ELSE 0 END AS odd"
    yield f"  FROM {table}"


def _returns(gamma: float, precision: int, whole: str) -> Iterator[str]:
    if gamma == 1:
        yield "), dprl_returns AS ("
        yield "  SELECT grp, episode, began, t, state, action, SUM(r) OVER ("
        yield "    PARTITION BY episode ORDER BY t DESC"
        yield "    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        yield "  ) AS g"
        yield "  FROM dprl_places"
        return
    weights = _weights(gamma, precision)
    yield "), dprl_powers (k, w) AS ("
    yield "  VALUES"
    for k, w in enumerate(weights):
        yield f"    ({k}, CAST({w} AS {whole})){',' if k + 1 < len(weights) else ''}"
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


def _results(whole: str, exponent: int) -> Iterator[str]:
    def one(part: str, n: str, source: str, total: str = "", state: str = "") -> list[str]:
        none = f"CAST(NULL AS {whole})"
        label = "CAST(NULL AS VARCHAR)"
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
    """The bins of `dprl.evidence._site_bins`, in integer arithmetic."""
    exact = [Fraction(repr(float(end))) * 10**exponent for end in value_range]
    low, high = (int(end) for end in exact)
    width = high - low
    if [low, high] != exact:
        raise ParameterError(
            worded(
                "{value_range} {value_range2} has more decimals than the rewards.",
                value_range=argument("value_range"),
                value_range2=value_range,
            ),
            do=worded(
                "Say how many decimals rewards have ({decimals}).", decimals=option("decimals")
            ),
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
