"""Numbers of 32 bits stand for the decimals they were written as, wherever they come in."""

from __future__ import annotations

import numpy as np
import pytest

import dprl
from dprl._core.arrays import doubles, one_double
from dprl._core.database import connect, of_float
from dprl.policies.rules.rule import Condition, Rule

ROLES = {"episode": "e", "time": "t", "state": "s", "action": "dose", "reward": "r"}


def slow(x):
    """The same in words of Python: six or seven digits, where they are the number."""
    if not np.isfinite(x) or float(x).is_integer():
        return float(x)
    words = [f"{float(x):.{digits}g}" for digits in (6, 7)]
    return next((float(word) for word in words if np.float32(word) == x), float(x))


def samples(kind):
    rng = np.random.default_rng(3)
    if kind == "bits":
        some = rng.integers(0, 1 << 32, 20_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
        tiny = np.array([1e-45, -1e-30, 3e38, 0.0, -0.0, np.inf, -np.inf], np.float32)
        return np.concatenate([some[np.isfinite(some)], tiny])
    if kind == "decimals":
        return np.round(rng.lognormal(0, 3, 20_000), rng.integers(0, 5)).astype(np.float32)
    return rng.normal(size=20_000).astype(np.float32)


@pytest.mark.parametrize("kind", ["bits", "decimals", "normal"])
def test_numpy_sql_and_python_read_the_same_decimals(kind):
    x = samples(kind)
    wanted = [slow(one) for one in x]
    assert doubles(x).tolist() == wanted
    with connect() as con:
        con.register("t", {"x": x})
        rows = con.execute(f"SELECT {of_float('x')} AS y FROM t").fetchnumpy()["y"]
    assert np.asarray(rows).tolist() == wanted
    assert (doubles(x).astype(np.float32) == x).all()


def test_decimals_of_six_digits_come_back_as_they_were():
    rng = np.random.default_rng(4)
    written = [float(f"{v:.6g}") for v in rng.lognormal(-4, 4, 20_000)]
    assert max(written) < 1 << 24  # beyond, whole numbers stay what they are
    assert doubles(np.array(written, np.float32)).tolist() == written
    assert doubles(np.array([0.1, 2.2, 5.5], np.float16)).tolist() == [0.1, 2.2, 5.5]
    assert one_double(np.float32(2.2)) == 2.2
    assert one_double("2.2") == "2.2"
    assert np.isnan(doubles(np.array([np.nan], np.float32))).all()


def rows(n=400):
    rng = np.random.default_rng(0)
    return {
        "e": np.arange(n), "t": np.zeros(n, int), "s": np.array(["ill"] * n, object),
        "dose": rng.choice([0.0, 0.1, 0.2, 0.3, 0.7], n), "r": rng.choice([0.1, 0.3], n),
        "x": rng.choice([2.1, 2.2, 2.3], n),
    }  # fmt: skip


def short(table):
    return {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in table.items()}


def held(kind, table, folder):
    """The same rows, read from somewhere."""
    options = {**ROLES, "action_bins": [0.1, 0.2]}
    if kind == "arrays":
        return dprl.from_arrays(
            **{role: table[name] for role, name in ROLES.items()}, action_bins=[0.1, 0.2],
            also={"x": table["x"]},
        )  # fmt: skip
    if kind == "objects":
        table = {k: np.array([*v], object) if k in ("dose", "r") else v for k, v in table.items()}
        return held("arrays", table, folder)
    if kind == "pandas":
        return dprl.from_frame(pytest.importorskip("pandas").DataFrame(table), **options, also="x")
    if kind == "polars":
        return dprl.from_frame(pytest.importorskip("polars").DataFrame(table), **options, also="x")
    if kind == "duckdb":
        with connect() as con:
            con.register("t", table)
            return dprl.from_frame(con.sql("SELECT * FROM t"), **options, also="x")
    path = folder / f"{table['r'].dtype}.parquet"
    with connect() as con:
        con.register("t", table)
        con.execute(f"COPY (SELECT * FROM t) TO '{path}' (FORMAT parquet)")
    return dprl.read(path, **options, also="x")


@pytest.mark.parametrize("kind", ["arrays", "objects", "pandas", "polars", "duckdb", "parquet"])
def test_a_dose_of_32_bits_falls_on_the_same_side_of_an_edge(kind, tmp_path):
    wide = held(kind, rows(), tmp_path)
    thin = held(kind, short(rows()), tmp_path)
    assert thin.actions == wide.actions == ("at most 0.1", "above 0.1 to 0.2", "above 0.2")
    assert (thin.action == wide.action).all()
    assert thin.reward.tolist() == wide.reward.tolist()
    assert set(thin.also.numbers(0)) == set(wide.also.numbers(0)) == {2.1, 2.2, 2.3}


def test_a_log_in_parts_reads_32_bits_as_a_log_in_memory(tmp_path):
    table = short(rows())
    table["dose"] = np.array([f"d{x:.1f}" for x in table["dose"]], object)
    table["t"] = np.full(len(table["t"]), 0.1, np.float32)
    path = tmp_path / "short.parquet"
    with connect() as con:
        con.register("t", table)
        con.execute(f"COPY (SELECT * FROM t) TO '{path}' (FORMAT parquet)")
    log = dprl.read(path, **ROLES)
    with dprl.scan(path, **ROLES) as parts:
        learner = dprl.DPRLDiscrete(n_min=5, gamma=1.0)
        assert learner.fit(parts).digest() == learner.fit(log).digest()
    assert set(log.reward) == {0.1, 0.3}


def ruled(**options):
    rules = (
        Rule((Condition("x", "at most", 2.2),), "low"),
        Rule((Condition("x", "above", 2.2),), "high"),
    )
    return dprl.RulePolicy(states=(), actions=("high", "low"), parameters={}, provenance={},
                           feature_names=("x", "y"), rules=rules, **options)  # fmt: skip


X = np.array([[2.1, 0], [2.2, 0], [2.3, 0]], np.float32)


@pytest.mark.parametrize(
    "states",
    [
        X,
        [list(row) for row in X],
        [[X[0, 0], 0.0], [X[1, 0], 0.0], [X[2, 0], 0.0]],
        {"x": X[:, 0], "y": [0.0, 0.0, 0.0]},
        {"x": [*X[:, 0]], "y": [0.0, 0.0, 0.0]},
    ],
)
def test_rules_take_32_bits_as_written(states):
    assert ruled().act(states) == ["low", "low", "high"]
    assert ruled().act({"x": X[1, 0], "y": 0.0}) == "low"


def test_rules_over_categories_take_32_bits_as_written():
    policy = ruled(levels=(None, ("a", "b")))
    assert policy.act({"x": X[:, 0], "y": ["a", "b", "a"]}) == ["low", "low", "high"]
    assert policy.act([[X[1, 0], "a"]]) == ["low"]
    assert policy.act({"x": X[1, 0], "y": "a"}) == "low"


def test_frames_of_32_bits_are_answered_as_frames_of_64():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    table = {"x": X[:, 0], "y": X[:, 1]}
    for frame in (pandas.DataFrame(table), polars.DataFrame(table)):
        assert ruled().act(frame) == ["low", "low", "high"]


@pytest.mark.parametrize(
    "limit", [2.2, 0.1, 0.3, 1 / 3, 7.0, 16777217.0, 1e300, -2.3, 0.7000000029]
)
def test_rules_in_sql_and_python_say_of_32_bits_what_the_policy_says(limit):
    rule = Rule((Condition("x", "at most", limit),), "low")
    policy = dprl.RulePolicy(states=(), actions=("high", "low"), parameters={}, provenance={},
                             feature_names=("x",), rules=(rule,))  # fmt: skip
    with np.errstate(over="ignore"):
        near = np.array([limit]).astype(np.float32)
        for _ in range(3):
            near = np.unique(
                [*near, *np.nextafter(near, np.float32(9e9)), *np.nextafter(near, np.float32(-9e9))]
            )
    near = np.concatenate([near[np.isfinite(near)], np.array([0.1, 2.2, 5.0], np.float32)])
    wanted = [None if a is dprl.DEFER else a for a in policy.act(near[:, None])]
    with connect() as con:
        con.register("t", {"x": near})
        con.execute("CREATE TABLE stays AS SELECT * FROM t")
        got = con.execute(
            f"SELECT suggestion FROM ({policy.to_sql('stays', 'suggestion')})"
        ).fetchall()
    assert [row[0] for row in got] == wanted
    space = {}
    exec(policy.to_python(), space)
    assert [space["suggest"]({"x": x}) for x in near] == wanted
