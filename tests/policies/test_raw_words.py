"""Labels, gaps and dates in words as the log had them; exports stay exact."""

from __future__ import annotations

import datetime
import json
import random
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import dprl
from dprl._core.html.catalogue import speak
from dprl.logs.encoding.encoder import encoding_of, filled, with_indicators
from dprl.logs.reading.dates import days_of
from dprl.policies.regions import Range, range_words
from dprl.policies.rules.rule import Condition, Rule, day_words, days_told, with_dates
from dprl.policies.rules.tree import picture_of

duckdb = pytest.importorskip("duckdb")
CUT = 19811.0  # 2024-03-29


def world(n=300, seed=0, moment=False):
    """Stays of which the drug helps on the ICU after 2024-03-29."""
    draw, rows = random.Random(seed), []
    for i in range(n):
        ward, drug = draw.choice(["HDU", "ICU", "ward 3"]), draw.random() < 0.4
        day = datetime.datetime(2024, 1, 1) + datetime.timedelta(draw.randrange(200))
        if moment:
            day += datetime.timedelta(microseconds=draw.randrange(86_400_000_000))
        good = day > datetime.datetime(2024, 3, 29) and ward == "ICU"
        rows.append({
            "id": f"{seed}-{i}", "ward": ward, "admitted": day, "icu": draw.random() < 0.5,
            "lactate": None if draw.random() < 0.1 else round(draw.uniform(1, 5), 1),
            "a": "drug" if drug else "wait", "r": int(draw.random() < 0.2 + 0.6 * (drug == good)),
        })  # fmt: skip
    return pd.DataFrame(rows)


STATE = ["ward", "admitted", "lactate", "icu"]


def read(table, **more):
    given = {"missing": {"lactate": "flag"}, **more}
    return dprl.from_frame(
        table, episode="id", state=STATE, action="a", reward="r", also=(), **given
    )


def policy_of(log, *rules, **more):
    log = filled(log)
    return dprl.RulePolicy(
        states=(), actions=("drug", "wait"), parameters={}, feature_names=log.feature_names,
        provenance={"columns": log.columns}, levels=log.levels,
        rules=[{"conditions": list(c), "suggested": a} for c, a in rules], **more,
    )  # fmt: skip


ICU = {"feature": "ward", "kind": "in", "labels": ["ICU"]}
LATE = {"feature": "admitted", "kind": "above", "value": CUT}
EARLY = {"feature": "admitted", "kind": "at most", "value": CUT}


@pytest.fixture(scope="module")
def ruled():
    return policy_of(read(world()), ([ICU, LATE], "drug"), ([ICU, EARLY], "wait"))


def test_a_rule_over_a_date_says_a_date(ruled, tmp_path):
    assert ruled.sentences() == [
        "1. If ward is ICU and admitted after 2024-03-29: drug.",
        "2. If ward is ICU and admitted not after 2024-03-29: wait.",
        "Elsewhere: DEFER.",
    ]
    row = {"ward": "ICU", "admitted": "2024-05-05", "lactate": None, "icu": True}
    why = ruled.explain(row)
    assert why.state == "ward = ICU, admitted = 2024-05-05, lactate = missing, icu = true"
    assert why.reason == "Rule 1: ward is ICU and admitted after 2024-03-29."
    words = picture_of(ruled).words
    assert "admitted not after 2024-03-29? Yes: 2. wait" in words
    assert ruled.space.shown(np.array([1.0, 19811.25, np.nan, 0.0]), range(4)) == (
        ("ward", "ICU"), ("admitted", "2024-03-29 06:00:00"), ("lactate", "missing"),
        ("icu", "false"),
    )  # fmt: skip
    ruled.save(tmp_path / "p.dprl")
    again = dprl.load(tmp_path / "p.dprl")
    assert (again.digest(), again.sentences()) == (ruled.digest(), ruled.sentences())
    exported = json.loads(ruled.to_json_rules())["rules"][0]
    assert exported["if"] == [ICU, LATE]  # to the last digit
    assert exported["words"] == "ward is ICU and admitted after 2024-03-29"
    narrow = ruled.narrowed(1, [{**LATE, "value": CUT + 2.5}, ICU], {})
    assert "admitted after 2024-03-31 12:00:00: drug" in narrow.sentences()[0]


def test_words_of_days_tell_the_number_where_the_date_does_not():
    assert day_words(CUT) == "2024-03-29"
    between = float(np.nextafter(CUT, np.inf))
    assert day_words(between) == f"2024-03-29 (day {between!r})"
    assert day_words(-1.0) == "1969-12-31"
    assert day_words(1e300) == "day 1e+300"
    late, most = (Condition("t", kind, CUT, day=True) for kind in ("above", "at most"))
    assert Rule((late, Condition("t", "at most", CUT + 1, day=True)), "x").sentence == (
        "If t is after 2024-03-29 and not after 2024-03-30"
    )
    assert most == Condition("t", "at most", CUT)  # it is the same condition, told otherwise
    assert "day" not in most.to_dict()


def test_a_certificate_that_names_days_by_number_stays_good(ruled):
    plain = [Rule(tuple(map(Condition.from_dict, c)), "drug") for c in ([ICU, LATE], [ICU, EARLY])]
    for issued, told in (
        ({"ward is ICU and admitted above 19811": "drug"}, ()),
        ({"ward is ICU and admitted after 2024-03-29": "drug"}, ("admitted",)),
        ({}, ("admitted",)),
    ):
        certificate = SimpleNamespace(issued=issued)
        own = SimpleNamespace(encoding=ruled.encoding, certificate=certificate, rules=plain)
        assert days_told(own) == told
        assert {rule.words for rule in with_dates(own, plain)} >= set(issued)


@pytest.mark.parametrize("seed", range(3))
def test_sql_and_python_agree_with_act_to_the_microsecond(seed):
    table = world(200, seed, moment=True)
    table.loc[::17, "admitted"] = pd.NaT
    log = read(table, missing={"lactate": "median", "admitted": "flag"})
    exact = days_of(table["admitted"].to_numpy()).tolist()[seed + 1]
    policy = policy_of(
        log,
        ([{**LATE, "value": exact}, ICU], "drug"),
        ([{"feature": "admitted", "kind": "missing"}], "wait"),
        ([{"feature": "lactate", "kind": "at most", "value": 3.0}], "drug"),
    )
    acted = [None if a is dprl.DEFER else a for a in policy.act(table[STATE])]
    assert set(acted) == {None, "drug", "wait"}
    query = policy.to_sql("table")
    assert [a[0] for a in duckdb.sql(f"SELECT suggested FROM ({query})").fetchall()] == acted
    names = {}
    exec(policy.to_python(), names)
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    assert [names["suggest"](row) for row in rows] == acted


TEXTS = ["icu", " ICU\t", "Icu", "Straße 3", "STRASSE 3\u2003", "strasse 3", "\u212aur", "kur", "KUR",
         "ﬁn", "FIN", "x", "", "  ", None, "İcu", "ıcu", "ſtrasse 3", "'q'", "'Q'"]  # fmt: skip


@pytest.mark.parametrize("fold", ["", "trim", "casefold", "trim,casefold"])
def test_labels_that_are_folded_are_folded_in_every_language(fold):
    table = pd.DataFrame({"id": range(len(TEXTS)), "ward": TEXTS, "a": ["x", "y"] * 10, "r": 1.0})
    given = {"episode": "id", "state": ["ward"], "action": "a", "reward": "r", "also": ()}
    kept = filled(dprl.from_frame(table, labels=fold, categorical=["ward"], **given))
    labels = kept.levels[0]
    for asked in (
        {"kind": "in", "labels": list(labels[::2])}, {"kind": "not in", "labels": [labels[0]]},
        {"kind": "missing"}, {"kind": "known"},
    ):  # fmt: skip
        policy = dprl.RulePolicy(
            states=(), actions=("x", "y"), parameters={}, provenance={"columns": kept.columns},
            feature_names=("ward",), levels=kept.levels,
            rules=({"conditions": [{"feature": "ward", **asked}], "suggested": "x"},),
        )  # fmt: skip
        acted = [None if policy.act({"ward": t}) is dprl.DEFER else "x" for t in TEXTS]
        query = policy.to_sql("table")
        assert [a[0] for a in duckdb.sql(f"SELECT suggested FROM ({query})").fetchall()] == acted
        names = {}
        exec(policy.to_python(), names)
        assert [names["suggest"]({"ward": t}) for t in TEXTS] == acted
        exported = json.loads(policy.to_json_rules())
        assert exported.get("labels", "") == fold
        assert ("folded first" in exported["read_as"]) == bool(fold)


def test_codes_beside_gaps_are_doubles_and_stay_codes():
    codes = [1.0, 2.0, None, 3.0]
    table = pd.DataFrame({"id": range(4), "ward": codes, "a": list("xyxy"), "r": 1.0})
    policy = dprl.RulePolicy(
        states=(), actions=("x", "y"), parameters={}, provenance={}, feature_names=("ward",),
        levels=(("1", "2"),),
        rules=(
            {"conditions": [{"feature": "ward", "kind": "in", "labels": ["1"]}], "suggested": "x"},
            {"conditions": [{"feature": "ward", "kind": "missing"}], "suggested": "y"},
        ),
    )  # fmt: skip
    acted = [None if a is dprl.DEFER else a for a in policy.act(table[["ward"]])]
    assert acted == ["x", None, "y", None]
    for kind in ('"table"', "(SELECT CAST('NaN' AS DOUBLE) AS ward)"):
        query = policy.to_sql("table").replace('FROM "table"', f"FROM {kind}")
        answers = [a[0] for a in duckdb.sql(f"SELECT suggested FROM ({query})").fetchall()]
        assert answers == (["y"] if "NaN" in kind else acted)


# -- policies over distances -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def near():
    log = read(world(600))
    return dprl.DPRLContinuous(n_min=5, radius=1.2, gamma=1.0).fit(log), log


def test_changes_and_explanations_show_the_columns_of_the_log(near):
    policy, _ = near
    table = policy.changes()
    assert list(table.columns)[:4] == STATE
    assert set(table["ward"]) <= {"HDU", "ICU", "ward 3"}
    assert all(day.startswith("2024-") for day in table["admitted"])
    assert {*map(type, table["lactate"])} <= {float, str}
    row = {"ward": "ICU", "admitted": "2024-05-05", "lactate": None, "icu": True}
    words = "ward = ICU, admitted = 2024-05-05, lactate = missing, icu = true"
    assert policy.explain(row).state == words
    for one in [{**row, "ward": "attic"}, {**row, "icu": False, "lactate": 2.5}]:
        assert "ward=" not in policy.explain(one).state
    assert "ward = a label never seen" in policy.explain({**row, "ward": "attic"}).state


def test_typical_states_are_rows_as_the_log_had_them(near):
    policy, log = near
    situations = policy.situations(log)  # which takes the log as it was read
    assert situations
    for one in situations:
        assert "=ICU" not in one.words
        assert [name for name, _ in one.typical] == STATE
        row = {name: None if value == "missing" else value for name, value in one.typical}
        assert policy.act(row) is not dprl.DEFER
    joined = dprl.DPRLDiscrete(n_min=5, gamma=1.0)
    table = world(300)
    given = {"episode": "id", "state": ["ward", "icu"], "action": "a", "reward": "r", "also": ()}
    raw = dprl.from_frame(table, **given)
    assert [s.words for s in joined.fit(raw).situations(raw)] == [
        s.words for s in joined.fit(raw).situations(raw.joined())
    ]


def test_ranges_are_told_by_labels_gaps_and_dates():
    encoding = encoding_of(with_indicators(read(world())).columns)
    whole = dict.fromkeys(encoding.features, True)
    ranges = [
        Range("ward=ICU", 1, 2), Range("ward=ward 3", 0, 1), Range("lactate missing", 0, 1),
        Range("icu", 1, 2), Range("admitted", CUT, CUT + 30.5), Range("lactate", 2.5, 4),
    ]  # fmt: skip
    words = range_words(ranges, {**whole, "lactate": False}, encoding)
    assert words == (
        'ward is ICU · ward is not "ward 3" · lactate known · icu is true · '
        "admitted 2024-03-29 to under 2024-04-28 12:00:00 · lactate 2.5 to under 4"
    )
    both = range_words([Range("ward=ICU", 0, 2), Range("lactate missing", 1, 2)], whole, encoding)
    assert both == "ward is ICU or not · lactate missing"


def test_in_german_too():
    de = speak("de")
    encoding = encoding_of(with_indicators(read(world())).columns)
    ranges = [
        Range("ward=ICU", 0, 1), Range("lactate missing", 1, 2), Range("admitted", CUT, CUT + 30),
        Range("lactate", 2.5, 4),
    ]  # fmt: skip
    words = range_words(ranges, dict.fromkeys(encoding.features, False), encoding)
    assert de.part(words) == (
        "ward ist nicht ICU · lactate fehlt · admitted von 2024-03-29 bis vor 2024-04-28 · "
        "lactate 2,5 bis unter 4"
    )
    late = Condition("admitted", "above", float(CUT), day=True)
    early = Condition("admitted", "at most", CUT + 0.25, day=True)
    assert de.part(late.words) == "admitted nach 2024-03-29"
    assert de.part(early.words) == "admitted nicht nach 2024-03-29 06:00:00"


def test_the_table_of_those_who_followed_has_the_columns_of_the_log():
    from dprl.apps.reports.standard import baseline

    table = world(200)
    table.loc[::9, "ward"] = None
    raw = read(table, missing={"lactate": "flag", "ward": "flag"})
    ready = with_indicators(raw)
    assert "ward=missing" in ready.feature_names
    changed, took = np.ones(200, bool), np.arange(200) % 3 == 0
    assert baseline(ready, changed, took) == baseline(raw, changed, took)
    assert baseline(filled(raw), changed, took) == baseline(raw, changed, took)
    rows = baseline(ready, changed, took).rows
    assert {row.label for row in rows if row.column == "ward"} == {"HDU", "ICU", "ward 3"}
    lactate = next(row for row in rows if row.column == "lactate")
    assert lactate.missing_followed + lactate.missing_otherwise == table["lactate"].isna().sum()
    assert any(row.column == "admitted (days since 1970-01-01)" for row in rows)
