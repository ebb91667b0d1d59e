"""Policies over labels, written as SQL, Python and JSON, answer as `act` does."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from test_rule_export import answers
from test_rule_export import policy as ruled_by
from test_rule_export import states as numbers

import dprl
from dprl.errors import PolicyError
from dprl.policies.rules.export import identifier, sql_text

duckdb = pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")

ROLES = {"episode": "episode", "action": "action", "reward": "reward"}
ODD = ["s", "it's", '"; DROP', "naïve 💊", "İstanbul", "3", "4.0", "t"]


def said(policy, states):
    answers = policy.at(states).answers()
    return [
        None if a is dprl.DEFER else str(a) if isinstance(a, dprl.Avoid) else a for a in answers
    ]


def in_duckdb(text, rows):
    with duckdb.connect() as db:
        places = pa.array(range(len(rows)))  # DuckDB's threads may mix rows
        db.register("stays", pa.Table.from_pylist(rows).append_column("place", places))
        return [row[-1] for row in sorted(db.execute(text).fetchall(), key=lambda row: row[-2])]


def in_sqlite(text, rows):
    names = list(rows[0])
    with sqlite3.connect(":memory:") as db:
        db.execute(f"CREATE TABLE stays ({', '.join(names)})")
        marks = ", ".join("?" * len(names))
        db.executemany(f"INSERT INTO stays VALUES ({marks})", [tuple(r.values()) for r in rows])
        return [row[-1] for row in db.execute(text).fetchall()]


def in_python(text, rows):
    names = {}
    exec(compile(text, "suggest.py", "exec"), names)
    return [names["suggest"](row) for row in rows]


def in_json(text, rows):
    """A reader of its own, for rules over labels."""
    rules, answers = json.loads(text)["rules"], []
    for row in rows:
        for rule in rules:
            if all(
                row[c["feature"]] is None
                if c["kind"] == "missing"
                else str(row[c["feature"]]) in c["labels"] and row[c["feature"]] is not None
                for c in rule["if"]
            ):
                answers.append(rule["then"] if "avoid" not in rule else f"not {rule['avoid']}")
                break
        else:
            answers.append(None)
    return answers


def tabled(labels, k=4000, seed=0, **how):
    rng = np.random.default_rng(seed)
    state, action = rng.integers(len(labels), size=k), rng.choice(["a", "b", "c"], k)
    reward = (state % 3 == np.searchsorted(["a", "b", "c"], action)) + rng.normal(size=k) * 0.1
    return dprl.from_arrays(
        episode=range(k), state=[labels[i] for i in state], action=action, reward=reward, **how
    )


POLICIES = {
    "text": lambda: dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(tabled(ODD)),
    "numbers": lambda: dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(tabled([-3, 0, 7, 2**40])),
    "few": lambda: dprl.DPRLDiscrete(n_min=290, gamma=1.0).fit(tabled(ODD[:2], k=1800)),
    "all": lambda: dprl.baselines.BC().fit(tabled(ODD)),
}


@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.parametrize("k", [3000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_labels_are_answered_as_the_policy_does(kind, k):
    policy = POLICIES[kind]()
    rng = np.random.default_rng(1)
    text = isinstance(policy.states[0], str)
    strange = ["nowhere", "S", "", None, "3.0"] if text else [1, None]
    labels = [*policy.states, *strange]
    states = [labels[i] for i in rng.integers(len(labels), size=k)]
    rows = [{"state": s} for s in states]
    right = said(policy, states)
    exports = policy.exports
    assert len(set(right)) >= 2
    assert in_duckdb(exports["sql"](), rows) == right
    assert in_python(exports["python"](), rows) == right
    tidy = [i for i, s in enumerate(states) if s != "3.0"]  # a label as a text of a number
    few, own = [rows[i] for i in tidy], [right[i] for i in tidy]
    for run in (in_duckdb, in_sqlite):
        assert run(exports["sql"](dialect="standard"), few) == own
    few = [{"state": None} if row["state"] == "" else row for row in few]
    assert in_json(exports["json"](), few) == own


def test_labels_of_several_columns_with_gaps_are_answered_as_the_policy_does(tmp_path):
    rng = np.random.default_rng(3)
    lines = ["episode,ward,sex,action,reward"]
    for i in range(3000):
        ward, sex, action = (
            rng.choice(["ICU", "HDU", ""]),
            rng.choice(["f", "m"]),
            rng.choice(["a", "b"]),
        )
        better = action == ("a" if ward == "ICU" else "b")
        lines.append(f"{i},{ward},{sex},{action},{better + rng.normal() * 0.1:.3f}")
    (tmp_path / "log.csv").write_text("\n".join(lines))
    how = {"state": ["ward", "sex"], "missing": {"ward": "flag"}}
    log = dprl.read(tmp_path / "log.csv", **ROLES, **how)
    policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log)
    rows = [
        {"ward": w, "sex": s} for w in ("ICU", "HDU", None, "attic") for s in ("f", "m", "x", None)
    ]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    right = said(policy, columns)
    assert set(right) == {"a", "b", None}
    exports = policy.exports
    assert in_duckdb(exports["sql"](), rows) == right
    assert in_sqlite(exports["sql"](dialect="standard"), rows) == right
    assert in_python(exports["python"](), rows) == right
    assert in_json(exports["json"](), rows) == right


def test_folded_labels_travel_and_columns_are_told_apart(tmp_path):
    rng = np.random.default_rng(2)
    lines = ["episode,ward,action,reward"]
    for i in range(2000):
        ward, action = rng.choice(["ICU ", "icu", "Stra\u00dfe"]), rng.choice(["a", "b"])
        lines.append(f"{i},{ward},{action},{(action == 'a') + rng.normal() * 0.1:.3f}")
    (tmp_path / "log.csv").write_text("\n".join(lines), encoding="utf-8")
    log = dprl.read(tmp_path / "log.csv", **ROLES, state="ward", labels="trim,casefold")
    policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log)
    states = ["Icu", " STRASSE", "ward", None]
    rows, right = [{"state": s} for s in states], said(policy, states)
    assert right == ["a", "a", None, None]
    assert in_duckdb(policy.exports["sql"](), rows) == right
    assert in_python(policy.exports["python"](), rows) == right
    with pytest.raises(PolicyError, match="standard SQL"):
        policy.exports["sql"](dialect="standard")
    with pytest.raises(PolicyError, match="one name"):
        policy.exports["sql"](column="State")


def test_numbers_in_standard_sql_are_answered_as_the_policy_does():
    for seed in (0, 4, 5):
        ruled, x = ruled_by(seed, exceptions=0.7 * (seed > 3)), numbers(20_000, seed)
        columns = {name: x[:, j] for j, name in enumerate(ruled.feature_names)}
        with duckdb.connect() as db:
            db.register("stays", pa.table(columns))
            rows = db.execute(ruled.to_sql(dialect="standard")).fetchall()
        assert [row[-1] for row in rows] == answers(ruled, x)


def test_postgres_answers_as_the_policy_does(postgres):
    """Numbers as double precision, NaN and infinities among them; labels as text."""
    ruled, x = ruled_by(4, actions=(1, 2, 3), exceptions=0.7), numbers(3000, 4)
    x[np.abs(x) < 1e-290] = 0.0  # their products are an error in PostgreSQL
    names = ", ".join(f"{identifier(name)} double precision" for name in ruled.feature_names)
    rows = ", ".join(f"({', '.join(repr(str(v)) for v in row)})" for row in x.tolist())
    query = ruled.to_sql(dialect="standard")
    text = postgres(f"CREATE TEMP TABLE stays ({names}); INSERT INTO stays VALUES {rows}; {query}")
    given = [int(row[-1]) if row[-1] else None for row in list(csv.reader(io.StringIO(text)))[1:]]
    assert (given, len(set(given))) == (answers(ruled, x), 4)
    policy = POLICIES["text"]()
    states = [*policy.states, "nowhere", ""]
    rows = ", ".join(f"({sql_text(state)})" for state in states)
    query = policy.exports["sql"](dialect="standard")
    text = postgres(
        f"CREATE TEMP TABLE stays (state text); INSERT INTO stays VALUES {rows}; {query}"
    )
    given = [row[-1] or None for row in csv.reader(io.StringIO(text))][1:]
    assert given == said(policy, states)


def test_json_has_the_shape_of_its_schema():
    rs = pytest.importorskip("jsonschema_rs")
    path = Path(dprl.__file__).parents[2] / "docs" / "_static" / "dprl-rules.schema.json"
    schema = rs.validator_for(json.loads(path.read_text()))
    texts = [POLICIES[kind]().exports["json"]() for kind in ("text", "numbers", "all")]
    texts += [ruled_by(seed, exceptions=0.7).exports["json"]() for seed in range(4)]
    for text in texts:
        schema.validate(json.loads(text))
    given = json.loads(texts[0])
    given["rules"][0]["if"][0]["kind"] = "near"
    assert not schema.is_valid(given)


def test_policies_over_numbers_say_why_they_do_not_travel():
    x = np.random.default_rng(0).normal(size=(200, 1))
    log = dprl.from_arrays(
        episode=range(200), state=x, action=["a", "b"] * 100, reward=[1.0, 0.0] * 100
    )
    policy = dprl.DPRLContinuous(n_min=5, radius=0.5, gamma=1.0).fit(log)
    assert policy.exports == {}
