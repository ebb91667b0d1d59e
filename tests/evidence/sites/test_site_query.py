"""The evidence query in DuckDB and in PostgreSQL counts what dprl counts."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dprl
from dprl.evidence import from_query, sql_query

ROW = st.tuples(st.integers(0, 3), st.sampled_from("ab'c"), st.integers(-50, 50))
EPISODES = st.lists(st.lists(ROW, min_size=1, max_size=6), min_size=1, max_size=15)
NAMES = {"episode": "who", "time": "t", "state": "s", "action": "a", "reward": "the r"}


def rows_of(episodes, groups=None):
    return [
        (e, (0 if groups is None else groups[e]), t + 10 * e, s, a, r)
        for e, episode in enumerate(episodes)
        for t, (s, a, r) in enumerate(episode)
    ]


def in_duckdb(query, rows, kind="INTEGER"):
    with duckdb.connect() as con:
        con.execute(f'CREATE TABLE steps (who INT, g INT, t INT, s INT, a TEXT, "the r" {kind})')
        con.executemany("INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?)", rows)
        return con.execute(query).fetchall()


def log_of(rows, group=False):
    e, g, t, s, a, r = zip(*rows, strict=True)
    more = {"group": g} if group else {}
    return dprl.from_arrays(episode=e, time=t, state=s, action=a,
                            reward=[float(x) for x in r], **more)  # fmt: skip


def assert_close(ours, reference, digits=0.0):
    """Counts and bins are equal; means and deviations are equal to `digits` of the range."""
    assert (ours.steps == reference.steps).all()
    for name in ("pair", "state", "took", "others"):
        a, b = getattr(ours.evidence, name), getattr(reference.evidence, name)
        assert (a.n == b.n).all()
        for x, y in ((a.mean, b.mean), (a.sd, b.sd)):
            assert (np.isnan(x) == np.isnan(y)).all()
            assert (np.abs(x - y)[~np.isnan(x)] <= digits).all()
    if digits == 0:
        assert ours.evidence.span.tobytes() == reference.evidence.span.tobytes()
    if reference.bins is not None:
        assert ours.bins.tolist() == reference.bins.tolist()


@settings(max_examples=8)
@given(EPISODES, st.booleans(), st.integers(0, 5))
def test_whole_numbers_are_counted_exactly_in_duckdb(episodes, grouped, seed):
    groups = np.random.default_rng(seed).integers(0, 4, len(episodes)).tolist()
    rows = rows_of(episodes, groups)
    log = log_of(rows, grouped)
    schema = dprl.SiteSchema.of(log, gamma=1.0, value_range=(-1000, 1000))
    query = sql_query(
        schema, table="steps", **NAMES, group="g" if grouped else None, dialect="duckdb"
    )
    ours = from_query(in_duckdb(query, rows), schema, k=1)
    reference = dprl.site_evidence(log, schema, k=1)
    assert_close(ours, reference)
    assert (ours.groups, ours.evidence.n_episodes) == (reference.groups, log.n_episodes)
    learner = dprl.DPRLDiscrete(n_min=1, gamma=1.0, plan=False)
    one, two = learner.fit(ours), learner.fit(reference)
    for name in ("choice", "allowed", "n", "m", "Q", "V", "took_sd", "others_sd", "lowest"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes(), name


@settings(max_examples=5)
@given(EPISODES, st.sampled_from([0.5, 0.9, 0.99]))
def test_a_discount_differs_by_its_stated_rounding_alone(episodes, gamma):
    """A return differs by at most Σ|r| 10^-12 / 2, and floats by a few units in the last place."""
    rows = [(*row[:-1], Decimal(row[-1]) / 100) for row in rows_of(episodes)]
    log = log_of(rows)
    schema = dprl.SiteSchema.of(log, gamma=gamma)
    query = sql_query(schema, table="steps", **NAMES, decimals=2, dialect="duckdb")
    ours = from_query(in_duckdb(query, rows, "DECIMAL(9, 2)"), schema, k=1)
    assert_close(ours, dprl.site_evidence(log, schema, k=1), digits=6 * 0.5e-12 + 1e-14)
    coarse = sql_query(schema, table="steps", **NAMES, decimals=2, precision=6, dialect="duckdb")
    ours = from_query(in_duckdb(coarse, rows, "DOUBLE"), schema, k=1)
    assert_close(ours, dprl.site_evidence(log, schema, k=1), digits=6 * 0.5e-6 + 1e-14)


def test_bins_with_a_discount_are_those_of_floats():
    rng = np.random.default_rng(0)
    episodes = [
        [(int(rng.integers(3)), "ab"[rng.integers(2)], int(rng.integers(2))) for _ in range(4)]
        for _ in range(200)
    ]
    rows = rows_of(episodes)
    log = log_of(rows)
    schema = dprl.SiteSchema.of(log, gamma=0.5, value_range=(0, 2))
    query = sql_query(schema, table="steps", **NAMES, dialect="duckdb")
    ours = from_query(in_duckdb(query, rows), schema, k=5, site="x")
    assert_close(ours, dprl.site_evidence(log, schema, k=5, site="x"), digits=1e-11)


@pytest.mark.parametrize("dialect", ["spark", "bigquery", "snowflake"])
@pytest.mark.parametrize(("gamma", "precision"), [(1.0, 12), (0.5, 6)])
def test_other_warehouses_understand_the_query(dialect, gamma, precision):
    """Read by sqlglot as that dialect, and run in DuckDB, the query counts the same."""
    sqlglot = pytest.importorskip("sqlglot")
    rng = np.random.default_rng(0)
    rows = rows_of([
        [(int(rng.integers(3)), "ab"[rng.integers(2)], int(rng.integers(2))) for _ in range(4)]
        for _ in range(60)
    ])  # fmt: skip
    schema = dprl.SiteSchema.of(log_of(rows), gamma=gamma, value_range=(0, 4))
    how = {"table": "steps", **NAMES, "precision": precision}
    query = sql_query(schema, **how, dialect=dialect)
    (words,) = sqlglot.transpile(query, read=dialect, write="duckdb",
                                 unsupported_level=sqlglot.ErrorLevel.RAISE)  # fmt: skip
    ours = from_query(in_duckdb(words, rows), schema, k=1)
    plain = from_query(in_duckdb(sql_query(schema, **how, dialect="duckdb"), rows), schema, k=1)
    assert ours.to_bytes() == plain.to_bytes()
    shouted = [
        dict(zip(["PART", "STATE", "ACTION", "N", "TOTAL", "SQUARES", "LOWEST", "HIGHEST"], row,
                 strict=True)) for row in in_duckdb(words, rows)
    ]  # fmt: skip
    assert from_query(shouted, schema, k=1).to_bytes() == plain.to_bytes()


def test_a_name_that_backticks_cannot_quote_is_refused():
    schema = dprl.SiteSchema(states=[0], actions=["a"], gamma=1.0)
    for name in ("a`b", "a\\b"):
        sql_query(schema, table="steps", **{**NAMES, "state": name})
        with pytest.raises(dprl.ParameterError, match="no such column name"):
            sql_query(schema, table="steps", **{**NAMES, "state": name}, dialect="bigquery")


def test_equal_returns_have_no_spread():
    rows = [(e, 0, t, 0, "a", Decimal("0.1")) for e in range(9) for t in range(3)]
    schema = dprl.SiteSchema(states=[0], actions=["a"], gamma=1.0)
    query = sql_query(schema, table="steps", **NAMES, decimals=1, dialect="duckdb")
    ours = from_query(in_duckdb(query, rows, "DECIMAL(9, 1)"), schema, k=1)
    assert ours.evidence.took.sd.tolist()[0][0] == 0
    assert ours.evidence.took.mean[0, 0] == 0.3


@pytest.mark.parametrize("kind", ["DOUBLE", "DECIMAL(18, 3)"])
def test_decimals_are_whole_numbers_of_their_last_place_in_every_type(kind):
    rows = [(e, 0, 0, 0, "a", r) for e, r in enumerate([0.001, 2.2, -77.123, 0.1, 4096.7])]
    schema = dprl.SiteSchema(states=[0], actions=["a"], gamma=1.0)
    query = sql_query(schema, table="steps", **NAMES, decimals=3, dialect="duckdb")
    ours = from_query(in_duckdb(query, rows, kind), schema, k=1)
    assert ours.evidence.took.mean[0, 0] * 5 == pytest.approx(4021.878, abs=1e-9)


SCHEMA = dprl.SiteSchema(states=[0, 1], actions=["a", "b"], gamma=1.0, value_range=(0, 10))
GOOD = [(0, 0, 0, 0, "a", 1), (0, 0, 1, 1, "b", 2), (1, 1, 0, 0, "b", 3)]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([*GOOD, (2, 2, 0, 7, "a", 1)], "1 states of the table are not in the schema"),
        ([*GOOD, (2, 2, 0, 0, "z", 1)], "1 actions of the table are not in the schema"),
        ([*GOOD, (2, 2, 0, 0, "a", None)], "1 rows have a missing value"),
        ([*GOOD, (2, 2, 0, 0, "a", 0.5)], "1 rows have a missing value, or a reward with more"),
        ([*GOOD, (2, 2, 0, 0, "a", 4e-7)], "1 rows have a missing value, or a reward with more"),
        ([*GOOD, (2, 2, 0, 0, "a", -1e-300)], "1 rows have a missing value, or a reward with more"),
        ([*GOOD, (0, 0, 0, 0, "a", 1)], "1 times stand twice"),
        ([*GOOD, (0, 5, 2, 0, "a", 1)], "1 episodes are in two groups"),
        ([*GOOD, (2, 2, 0, 0, "a", 11)], "returns lie outside value_range"),
    ],
)
def test_a_table_that_is_not_in_order_is_refused(rows, words):
    query = sql_query(SCHEMA, table="steps", **NAMES, group="g", dialect="duckdb")
    with pytest.raises(dprl.LogError, match=words) as error:
        from_query(in_duckdb(query, rows, "DOUBLE"), SCHEMA, k=1)
    assert len(str(error.value).splitlines()) == 3


def test_rows_that_are_not_of_the_query_are_refused():
    good = in_duckdb(sql_query(SCHEMA, table="steps", **NAMES, dialect="duckdb"), GOOD)
    assert from_query(good, SCHEMA, k=1).groups == 2
    part = {name: [row for row in good if row[0] == name] for name in {row[0] for row in good}}
    bad = [
        [], good[:-1], [*good, *part["first"]], [*good, *part["unit"]], [(1, 2)], [7],
        [row for row in good if row[0] != "bin"], [row for row in good if row[0] != "steps"],
        [(*row[:3], "many", *row[4:]) for row in good], [(*row[:3], 1.5, *row[4:]) for row in good],
        [(*row[:3], -1, *row[4:]) for row in good],
        [(*row[:5], None, *row[6:]) for row in good],
    ]  # fmt: skip
    for rows in bad:
        with pytest.raises(dprl.EvidenceError) as error:
            from_query(rows, SCHEMA, k=1)
        assert len(str(error.value).splitlines()) == 3


@pytest.mark.parametrize(
    "change",
    [{"dialect": "oracle"}, {"decimals": 99}, {"precision": 2}, {"state": ""}, {"schema": None}],
)
def test_settings_that_are_refused(change):
    given = {"schema": SCHEMA, "table": "steps", **NAMES, **change}
    with pytest.raises(dprl.ParameterError):
        sql_query(given.pop("schema"), **given)


@pytest.mark.parametrize(
    "schema", [{"cut": "drop"}, {"follow_up": "3 steps"}, {"gamma": 0.99999}, {"value_range": (0, 0.5)}]
)  # fmt: skip
def test_schemas_that_a_query_cannot_count(schema):
    made = dprl.SiteSchema(**{"states": [0], "actions": ["a"], "gamma": 1.0, **schema})
    with pytest.raises(dprl.ParameterError):
        sql_query(made, table="steps", **NAMES)


# -- PostgreSQL ----------------------------------------------------------------------------------


def in_postgres(postgres, query, rows, kind):
    values = ", ".join(
        f"({e}, {g}, {t}, {s}, '{a.replace(chr(39), chr(39) * 2)}', {r})"
        for e, g, t, s, a, r in rows
    )
    text = postgres(
        "DROP TABLE IF EXISTS steps; CREATE TABLE steps (who INT, g INT, t INT, s INT, a TEXT, "
        f'"the r" {kind}); INSERT INTO steps VALUES {values};\n{query};'
    )
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("dialect", ["postgres", "standard"])
def test_postgres_counts_the_same(postgres, gamma, dialect):
    rng = np.random.default_rng(1)
    episodes = [
        [(int(rng.integers(4)), "ab'"[rng.integers(3)], int(rng.integers(-3, 4)))
         for _ in range(rng.integers(1, 7))]
        for _ in range(60)
    ]  # fmt: skip
    rows = rows_of(episodes, rng.integers(0, 20, 60).tolist())
    log = log_of(rows, group=True)
    schema = dprl.SiteSchema.of(log, gamma=gamma, value_range=(-32, 32))
    query = sql_query(schema, table="steps", **NAMES, group="g", dialect=dialect)
    for kind in ("INTEGER", "DOUBLE PRECISION", "NUMERIC"):
        ours = from_query(in_postgres(postgres, query, rows, kind), schema, k=1)
        digits = 0.0 if gamma == 1 else 6 * 3 * 0.5e-12 + 1e-13
        assert_close(ours, dprl.site_evidence(log, schema, k=1), digits)
