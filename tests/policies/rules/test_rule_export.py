"""What is written for other languages answers as the policy does, in every state."""

from __future__ import annotations

import functools
import json
import math

import numpy as np
import pandas
import pytest

import dprl
from dprl.policies.rules.rule import Condition, Rule, Sum

duckdb = pytest.importorskip("duckdb")

NAMES = ("pressure", 'lac"tate', "it's; DROP TABLE stays --", "tiny", "'''\\\n\u2028")
ACTIONS = ("bolus 1", "it's", '"; import os #', "\\", "naïve 💊\n")
THRESHOLDS = (
    62.300000000000004,
    2.1,
    0.1 + 0.2,
    0.0,
    5e-324,
    1.7976931348623157e308,
    -1e-300,
    123456789.123456789,
)


def exception(rng):
    """A region in which a rule does not hold: conditions, or a sum of features."""
    named = rng.choice(len(NAMES), 3, replace=False)
    terms = [(NAMES[i], float(w), float(m)) for i, w, m in zip(
        named, np.round(rng.normal(size=3), 1) + 0.05, rng.choice([0.0, 0.1 + 0.2, -7.0], 3), strict=True
    )]  # fmt: skip
    border = Sum(tuple(terms), str(rng.choice(["above", "at most"])), float(rng.normal(0, 60)))
    return (border, Condition(NAMES[rng.integers(len(NAMES))], "above", 2.1))[: rng.integers(1, 3)]


def policy(seed=0, n=12, actions=ACTIONS, exceptions=0.0):
    """Rules over all kinds of conditions and thresholds, some silent, some with exceptions."""
    rng, rules, words = np.random.default_rng(seed), [], set()
    while len(rules) < n:
        conditions = []
        for _ in range(rng.integers(1, 4)):
            kind = str(rng.choice(["at most", "above", "at most", "above", "missing", "known"]))
            value = float(rng.choice(THRESHOLDS)) if kind in ("at most", "above") else math.nan
            conditions.append(Condition(NAMES[rng.integers(len(NAMES))], kind, value))
        try:
            rule = Rule(
                tuple(conditions),
                actions[rng.integers(len(actions))],
                silent=bool(rng.random() < 0.2),
                unless=[exception(rng)] * int(rng.random() < exceptions),
            )
        except dprl.PolicyError:
            continue
        if rule.words not in words:
            rules.append(rule)
            words.add(rule.words)
    return dprl.RulePolicy(
        states=(), actions=actions, parameters={}, provenance={}, feature_names=NAMES, rules=tuple(rules)
    )  # fmt: skip


def states(k, seed=1):
    """Ordinary numbers, thresholds and their neighbours, huge and tiny ones, NaN, infinities."""
    rng = np.random.default_rng(seed)
    edges = np.array([
        *THRESHOLDS, *(math.nextafter(t, -math.inf) for t in THRESHOLDS), *(math.nextafter(t, math.inf) for t in THRESHOLDS),
        -0.0, np.nan, np.nan, np.inf, -np.inf, -5e-324, -1.7976931348623157e308, 1e-310, float(2**53 + 1),
    ])  # fmt: skip
    x = rng.normal(0, 100, (k, len(NAMES)))
    return np.where(rng.random(x.shape) < 0.6, rng.choice(edges, x.shape), x)


def answers(ruled, x):
    return [None if a is dprl.DEFER else a for a in ruled.act(x)]


def from_sql(ruled, x, *, null=False):
    """One query over all states, with NULL in place of NaN where asked."""
    pa = pytest.importorskip("pyarrow")
    columns = [pa.array(x[:, j], from_pandas=null) for j in range(x.shape[1])]
    with duckdb.connect() as db:
        db.register("arrived", pa.table(columns, names=list(ruled.feature_names)))
        db.execute('CREATE TABLE "st""ays" AS SELECT * FROM arrived')
        query = ruled.to_sql('st"ays', "the; answer")
        names = [column[0] for column in db.execute(query).description]
        rows = db.execute(f'SELECT "the; answer" FROM ({query})').fetchall()
        assert db.execute('SELECT count(*) FROM "st""ays"').fetchone() == (len(x),)
    assert names == [*ruled.feature_names, "the; answer"]
    return [row[0] for row in rows]


def from_python(ruled, x):
    names = {"__builtins__": {"float": float}}
    exec(compile(ruled.to_python(), "suggest.py", "exec"), names)
    suggest = names["suggest"]
    return [suggest(dict(zip(ruled.feature_names, row, strict=True))) for row in x.tolist()]


def from_json(ruled, x):
    """A reader of its own, from what the file says about itself."""
    given = json.loads(ruled.to_json_rules())
    result = np.full(len(x), None, object)
    decided = np.zeros(len(x), bool)
    for rule in given["rules"]:
        holds, excepted = ~decided, np.zeros(len(x), bool)
        for c in rule["if"]:
            holds &= json_condition(given, c, x)
        for region in rule.get("unless", ()):
            excepted |= np.all([json_condition(given, c, x) for c in region], axis=0)
        result[holds & ~excepted] = rule["then"]
        decided |= holds
    return result.tolist()


def json_condition(given, c, x):
    if "sum" in c:
        total = np.zeros(len(x))
        for feature, weight, middle in c["sum"]:
            column = x[:, given["features"].index(feature)]
            total = total + weight * np.where(np.abs(column) <= 1e100, column, middle)
        return (total > c["value"]) == (c["kind"] == "above")
    column = x[:, given["features"].index(c["feature"])]
    finite = np.isfinite(column)
    return {
        "missing": lambda v: np.isnan(column),
        "known": lambda v: finite,
        "at most": lambda v: finite & (column <= v),
        "above": lambda v: finite & (column > v),
    }[c["kind"]](c.get("value"))


@pytest.mark.parametrize("seed", range(6))
def test_they_answer_as_the_policy_does(seed):
    ruled, x = policy(seed, exceptions=0.7 * (seed > 3)), states(5_000, seed)
    right = answers(ruled, x)
    assert len(set(right)) >= 3
    assert from_sql(ruled, x) == right
    assert from_sql(ruled, x, null=True) == right
    assert from_python(ruled, x) == right
    assert from_json(ruled, x) == right


def test_a_query_reads_several_groups_of_rows_in_their_order():
    """DuckDB reads 122,880 rows at once, in several threads; each row is decided on its own."""
    ruled, x = policy(7, 20), states(300_000, 7)
    assert from_sql(ruled, x) == answers(ruled, x)


def test_columns_of_other_types_are_read_as_doubles():
    """A whole number and a decimal are what they are as doubles, a FLOAT is what was written."""
    ruled = dprl.RulePolicy(
        states=(), actions=(1, 2), parameters={}, provenance={}, feature_names=("a", "b", "c"),
        rules=(
            Rule((Condition("a", "above", 2.5), Condition("b", "at most", 0.1)), 1),
            Rule((Condition("c", "above", 0.1),), 2),
        ),
    )  # fmt: skip
    with duckdb.connect() as db:
        db.execute("CREATE TABLE stays (a BIGINT, b DECIMAL(18, 3), c FLOAT)")
        db.execute(
            "INSERT INTO stays VALUES (3, 0.1, 0.1), (2, 0.1, 0.1), (9007199254740993, 0.1, 0), (2, 1, 0)"
        )
        rows = db.execute(ruled.to_sql()).fetchall()
    single = np.float32(0.1)
    x = [[3, 0.1, single], [2, 0.1, single], [9007199254740993, 0.1, 0], [2, 1, 0]]
    assert [row[-1] for row in rows] == answers(ruled, x) == [1, None, 1, None]


def test_no_rules_defer_in_every_language():
    ruled = dprl.RulePolicy(
        states=(), actions=ACTIONS, parameters={}, provenance={}, feature_names=NAMES, rules=()
    )
    x = states(10)
    assert from_sql(ruled, x) == from_python(ruled, x) == from_json(ruled, x) == [None] * 10
    everywhere = dprl.RulePolicy(
        states=(),
        actions=(-3, 4),
        parameters={},
        provenance={},
        feature_names=NAMES,
        rules=(Rule((), -3),),
    )
    assert (
        from_sql(everywhere, x)
        == from_python(everywhere, x)
        == from_json(everywhere, x)
        == [-3] * 10
    )


def test_labels_of_numpy_are_plain_literals():
    ruled = dprl.RulePolicy(
        states=(), actions=(np.str_("a"), np.str_("b")), parameters={}, provenance={},
        feature_names=(np.str_("x"),), rules=(Rule((Condition(np.str_("x"), "known"),), np.str_("b")),),
    )  # fmt: skip
    assert "np." not in ruled.to_python()
    assert from_python(ruled, np.array([[1.0], [np.nan]])) == ["b", None]


def test_the_source_is_ascii_and_stands_alone():
    source = policy().to_python()
    assert source.isascii()
    assert "import" not in source.replace(ascii(ACTIONS[2]), "")


def one(feature, action="a"):
    return dprl.RulePolicy(
        states=(), actions=(action,), parameters={}, provenance={}, feature_names=(feature, "other"),
        rules=(Rule((Condition(feature, "known"),), action), Rule((Condition("other", "known"),), action)),
    )  # fmt: skip


@pytest.mark.parametrize(("make", "match"), [
    (lambda: one("Other").to_sql(), "one name"),
    (lambda: one("x").to_sql(column="OTHER"), "one name"),
    (lambda: one("x\0").to_sql(), "cannot be written"),
    (lambda: one("x", "\ud800").to_sql(), "cannot be written"),
    (lambda: one("x").to_sql(""), "needs a name"),
    (lambda: one("x").to_sql(()), "needs a name"),
    (lambda: one("x").to_sql(column=""), "needs a name"),
])  # fmt: skip
def test_what_sql_cannot_say_is_refused(make, match):
    with pytest.raises(dprl.PolicyError, match=match):
        make()


def test_a_table_may_lie_in_a_schema():
    assert one("x").to_sql(("ward", "stays")).endswith('FROM "ward"."stays"')


# -- dates and categories as tables hold them ----------------------------------------------------


@functools.cache
def dated():
    """Rules over a date with a zone, and over categories of numbers and of text."""
    rng = np.random.default_rng(0)
    n = 1_500
    hours = rng.integers(0, 24 * 200, n)
    times = np.datetime64("2024-01-01T00:00", "h") + hours
    late = hours > 24 * 100 + 1
    took = rng.random(n) < 0.5
    kind, ward = rng.choice(["0", "1", "2"], n), rng.choice(["a", "b"], n)
    frame = pandas.DataFrame({
        "e": range(n), "admitted": pandas.to_datetime(times, utc=True), "kind": kind.astype(int), "ward": ward,
        "act": np.where(took, "drug", "wait"), "r": rng.normal(size=n) + 3.0 * took * np.where(late & (kind == "0"), 1, -1),
    })  # fmt: skip
    log = dprl.from_frame(
        frame,
        episode="e",
        state=["admitted", "kind", "ward"],
        action="act",
        reward="r",
        categorical=["kind"],
    )
    return dprl.Rules(gamma=1.0, depth=2, splits=1, lam=1.0, seed=0).fit(log), frame


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_sql_does_not_follow_the_zone_of_the_session(zone):
    policy, frame = dated()
    assert any(c.feature == "admitted" for rule in policy.rules for c in rule.conditions)
    wanted = [
        None if a is dprl.DEFER else a for a in policy.act(frame[["admitted", "kind", "ward"]])
    ]
    with duckdb.connect() as con:
        con.execute(f"SET TimeZone = '{zone}'")
        con.register("frame", frame)
        con.execute("CREATE TABLE zoned AS FROM frame")
        con.execute(
            "CREATE TABLE plain AS SELECT * REPLACE (timezone('UTC', admitted) AS admitted) FROM frame"
        )
        for table in ("zoned", "plain"):
            rows = con.execute(
                f"SELECT e, suggested FROM ({policy.to_sql(table)}) ORDER BY e"
            ).fetchall()
            assert [row[1] for row in rows] == wanted, (zone, table)
    assert "in UTC where those of the log have a zone" in str(policy)  # also where it is cut short


def test_numbers_without_a_sign_and_columns_of_gaps_are_read_as_act_does():
    policy, frame = dated()
    some = frame[["admitted", "kind", "ward"]].head(300)
    for changed in (
        some.assign(kind=np.where(some.kind == 0, -0.0, some.kind.astype(float))),
        some.assign(kind=np.nan),
        some.assign(ward=np.nan),
    ):
        rows = [
            {k: None if v != v else v for k, v in row.items()} for row in changed.to_dict("records")
        ]
        wanted = [None if a is dprl.DEFER else a for a in (policy.act(row) for row in rows)]
        with duckdb.connect() as con:
            con.register("changed", changed)
            got = [
                row[0]
                for row in con.execute(
                    f"SELECT suggested FROM ({policy.to_sql('changed')})"
                ).fetchall()
            ]
        assert got == wanted


def told(policy, table, expressions):
    """What SQL says of a table with some of its columns of other types, and what `act` says."""
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'Asia/Tokyo'")
        con.register("frame", table)
        changed = ", ".join(f"{sql} AS {name}" for name, sql in expressions.items())
        con.execute(f"CREATE TABLE t AS SELECT * REPLACE ({changed}) FROM frame")
        got = con.execute(f"SELECT suggested FROM ({policy.to_sql('t')})").fetchall()
        rows = con.sql("FROM t").to_arrow_table().to_pylist()
    acted = [policy.act(row) for row in rows]
    return [row[0] for row in got], [None if a is dprl.DEFER else a for a in acted]


@pytest.mark.parametrize("expression", [
    {"kind": "CAST(kind AS DECIMAL(9, 2))"},
    {"kind": "CAST(kind AS VARCHAR) || '.0'"},
    {"kind": "CAST(kind AS HUGEINT)"},
    {"admitted": "strftime(timezone('Asia/Tokyo', admitted), '%Y-%m-%d %H:%M:%S') || '+09:00'"},
    {"admitted": "strftime(timezone('America/Caracas', admitted), '%Y-%m-%dT%H:%M:%S') || '-04'"},
    {"admitted": "strftime(timezone('UTC', admitted), '%Y-%m-%dT%H:%M:%SZ')"},
    {"admitted": "strftime(timezone('UTC', admitted), '%Y-%m-%d %H:%M')"},
])  # fmt: skip
def test_sql_reads_columns_of_other_types_as_act_does(expression):
    """The offset of a time that is text was dropped: hours beside the date of a rule were wrong."""
    policy, _ = dated()
    edge = max(c.value for rule in policy.rules for c in rule.conditions if c.feature == "admitted")
    hours = pandas.to_timedelta(np.arange(-12, 13), unit="h")
    near = pandas.Timestamp(0, tz="UTC") + pandas.Timedelta(days=edge) + hours
    table = pandas.DataFrame({"admitted": near.floor("h"), "kind": 0, "ward": "a"})
    got, acted = told(policy, table, expression)
    plain = [None if a is dprl.DEFER else a for a in policy.act(table)]
    assert got == acted == plain
    assert len(set(got)) == 2


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64, np.int8, "{}.0".format])
def test_python_reads_a_category_of_other_types_as_act_does(kind):
    policy, frame = dated()
    names = {}
    exec(policy.to_python(), names)
    rows = frame[["admitted", "kind", "ward"]].head(100).to_dict("records")
    rows = [{**row, "kind": kind(row["kind"])} for row in rows]
    acted = [None if a is dprl.DEFER else a for a in map(policy.act, rows)]
    assert [names["suggest"](row) for row in rows] == acted
    assert len(set(acted)) >= 2
