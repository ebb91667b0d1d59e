"""Dates, labels and encodings as people write them: declared, kept in the policy, never guessed."""

import csv
import datetime
import gzip
import json
import random

import duckdb
import numpy as np
import pandas as pd
import pytest

import dprl
from dprl.apps.serve.answers import Answers, StateError
from dprl.apps.serve.served import description
from dprl.logs.encoding.encoder import encoded_like, filled
from dprl.logs.reading.dates import check_dates, on_day

ROLES = {"episode": "id", "action": "drug", "reward": "score", "also": ()}
STATE = ["admitted", "age", "icu"]
LEARNER = dprl.DPRLContinuous(n_min=3, radius=1.2, gamma=1.0)
FORMS = {
    "iso": "%Y-%m-%d", "day-first": "%d.%m.%Y", "month-first": "%m/%d/%Y", "%d %b %Y": "%d %b %Y",
}  # fmt: skip


def rows_of(seed, n=200):
    draw = random.Random(seed)
    rows = []
    for i in range(n):
        drug = draw.random() < 0.4
        day = datetime.date(2024, 1, 1) + datetime.timedelta(draw.randrange(300))
        late = day > datetime.date(2024, 6, 1)
        rows.append({
            "id": f"{seed}-{i}",
            "admitted": None if draw.random() < 0.1 else day,
            "age": float(draw.randint(20, 90)),
            "icu": draw.random() < 0.5,
            "drug": "drug" if drug else "wait",
            "score": round(draw.gauss((1 if late else -1) * drug, 0.5), 3),
        })  # fmt: skip
    return rows


def write_csv(path, rows, form="%Y-%m-%d", opener=open, **how):
    def cell(value):
        if isinstance(value, datetime.date):
            return value.strftime(form)
        return "" if value is None else value

    with opener(path, "wt", newline="", **how) as stream:
        lines = csv.writer(stream)
        lines.writerow(rows[0])
        lines.writerows([map(cell, row.values()) for row in rows])
    return path


def read(path, **more):
    given = {"state": STATE, "missing": {"admitted": "flag"}, **ROLES, **more}
    return dprl.read(path, **given)


def states_of(rows):
    return [{name: row[name] for name in STATE} for row in rows]


@pytest.fixture(scope="module")
def rows():
    return rows_of(0)


@pytest.fixture(scope="module")
def log(rows, tmp_path_factory):
    return read(write_csv(tmp_path_factory.mktemp("dates") / "iso.csv", rows))


@pytest.fixture(scope="module")
def near(log):
    return LEARNER.fit(log)


def slow_days(day):
    """Days since 1970-01-01, counted one by one."""
    return float("nan") if day is None else float((day - datetime.date(1970, 1, 1)).days)


def test_dates_in_a_state_are_days(rows, log, near):
    by_id = {row["id"]: row for row in rows}
    wanted = [slow_days(by_id[label]["admitted"]) for label in log.episodes]
    assert np.array_equal(log.features[:, 0], wanted, equal_nan=True)
    assert log.columns["days"] == {"admitted": "iso"}
    encoding = near.provenance["columns"]["encoding"]
    assert encoding["days"] == {"admitted": {"since": "1970-01-01", "written": "iso"}}
    told = [f.what for f in dprl.check(log).findings if f.rule == "dates"]
    assert told == ["1 of 3 features is a date: 'admitted'."]


@pytest.mark.parametrize("dates", ["day-first", *(pytest.param(form, marks=pytest.mark.slow)
                                     for form in FORMS if form != "day-first")])  # fmt: skip
def test_however_they_are_written_they_are_the_same_days(rows, log, near, tmp_path, dates):
    other = read(write_csv(tmp_path / "other.csv", rows, FORMS[dates]), dates=dates)
    assert other.digest() == log.digest()
    policy = LEARNER.fit(other)
    written = [
        {**state, "admitted": state["admitted"] and state["admitted"].strftime(FORMS[dates])}
        for state in states_of(rows)
    ]
    assert policy.act(written) == near.act(states_of(rows))  # and dates of Python are dates
    iso = [{**s, "admitted": str(s["admitted"]) if s["admitted"] else ""} for s in states_of(rows)]
    assert policy.act(iso) == near.act(states_of(rows))


@pytest.mark.parametrize("kind", ["pandas", "objects", "text", "arrow", "zoned", "relation"])
def test_every_table_gives_the_same_days(rows, log, kind):
    table = pd.DataFrame(rows)
    if kind == "pandas":
        table["admitted"] = pd.to_datetime(table["admitted"])
    elif kind == "text":
        table["admitted"] = [None if d is None else str(d) for d in table["admitted"]]
    elif kind == "zoned":
        table["admitted"] = pd.to_datetime(table["admitted"]).dt.tz_localize("UTC")
        table["admitted"] = table["admitted"].dt.tz_convert("Asia/Tokyo")
    elif kind == "arrow":
        table = pytest.importorskip("pyarrow").Table.from_pylist(rows)
    elif kind == "relation":
        frame = table
        table = duckdb.sql("SELECT * FROM frame")
        assert len(frame) == len(rows)
    given = {"state": STATE, "missing": {"admitted": "flag"}, **ROLES}
    assert dprl.from_frame(table, **given).digest() == log.digest()


def test_parquet_and_a_log_that_is_written_again(rows, log, tmp_path):
    dprl.write(log, tmp_path / "again.parquet")
    dprl.write(log, tmp_path / "again.csv")
    for name in ("again.parquet", "again.csv"):
        assert read(tmp_path / name).digest() == log.digest()
    kinds = duckdb.read_parquet(str(tmp_path / "again.parquet"))
    assert str(dict(zip(kinds.columns, kinds.types, strict=True))["admitted"]) == "TIMESTAMP"


@pytest.mark.slow
def test_act_serve_and_explain_take_dates_as_they_are(rows, log, near, tmp_path, run):
    policy = LEARNER.fit(read(write_csv(tmp_path / "a.csv", rows, "%d.%m.%Y"), dates="day-first"))
    policy.save(tmp_path / "p.dprl")
    test = rows_of(1)
    ours = [None if a is dprl.DEFER else a for a in policy.act(states_of(test))]
    assert "drug" in ours
    for form in ("%d.%m.%Y", "%Y-%m-%d"):  # as in training, and ISO
        file = write_csv(tmp_path / "b.csv", test, form)
        code, out, err = run("act", tmp_path / "p.dprl", file, "--json")
        assert code == 0, err
        assert [r["suggested"] for r in json.loads(out)["rows_out"]] == ours
    answers = Answers(policy)
    asked = [{**s, "admitted": s["admitted"] and str(s["admitted"])} for s in states_of(test)]
    for one, action in zip(answers.act(asked), ours, strict=True):
        assert not one["in_range"] or one["action"] == action
    late = answers.act([{**asked[0], "admitted": "2031-05-01"}])[0]
    assert "admitted = 2031-05-01 is above the largest value in training, 2024-" in late["reason"]
    with pytest.raises(StateError, match="'admitted' holds 'soon', which is no date as declared"):
        answers.act([{**asked[0], "admitted": "soon"}])
    with pytest.raises(StateError, match="'admitted' must be a date, as text; got 20240101"):
        answers.act([{**asked[0], "admitted": 20240101}])
    body = description(policy, token=False)["paths"]["/explain"]["post"]["requestBody"]["content"]
    state = body["application/json"]["schema"]["properties"]["state"]
    assert state["properties"]["admitted"]["type"] == ["string", "null"]
    code, out, err = run("explain", tmp_path / "p.dprl", "admitted=24.12.2024,age=50,icu=true")
    assert code == 0, err


@pytest.mark.slow
def test_a_log_with_dates_is_evaluated(near, tmp_path, run):
    near.save(tmp_path / "p.dprl")
    code, _, err = run("evaluate", tmp_path / "p.dprl", write_csv(tmp_path / "c.csv", rows_of(1)),
                       "--no-values", "--draws", 20, "--json")  # fmt: skip
    assert code == 0, err


@pytest.mark.slow
def test_dates_and_numbers_are_not_taken_for_each_other(rows, log, near, tmp_path):
    days = [{**row, "admitted": row["admitted"] and slow_days(row["admitted"])} for row in rows]
    numbers = read(write_csv(tmp_path / "n.csv", days))
    with pytest.raises(dprl.LogError, match="'admitted' holds numbers here, and held dates in the"):
        near.space.of_log(numbers)
    with pytest.raises(dprl.LogError, match="'admitted' holds dates here, and held numbers in the"):
        LEARNER.fit(numbers).space.of_log(log)
    plain = [{**row, "admitted": row["admitted"] or 19_800.0} for row in days]
    policy = LEARNER.fit(read(write_csv(tmp_path / "p.csv", plain), missing="error"))
    with pytest.raises(dprl.LogError, match="'admitted' holds dates here, and held numbers in the"):
        policy.space.of_log(log)
    full = [{**row, "admitted": row["admitted"] or datetime.date(2024, 5, 1)} for row in rows]
    policy = LEARNER.fit(read(write_csv(tmp_path / "f.csv", full), missing="error"))
    answers = Answers(policy)
    answers.warm()
    with pytest.raises(StateError, match="'admitted' holds 'soon', which is no date as declared"):
        answers.act([{"admitted": "soon", "age": 50, "icu": True}])


def test_rules_count_days_in_every_language(rows, log):
    kept = filled(log)
    cut = slow_days(datetime.date(2024, 6, 1))
    policy = dprl.RulePolicy(
        states=(), actions=("drug", "wait"), parameters={}, provenance={"columns": kept.columns},
        feature_names=kept.feature_names, levels=kept.levels,
        rules=(
            {"conditions": [{"feature": "admitted", "kind": "missing"}], "suggested": "wait"},
            {"conditions": [{"feature": "admitted", "kind": "above", "value": cut}],
             "suggested": "drug"},
        ),
    )  # fmt: skip
    wanted = [
        "wait" if row["admitted"] is None else "drug" if slow_days(row["admitted"]) > cut else None
        for row in rows
    ]
    columns = {name: [row[name] for row in rows] for name in STATE}
    assert [None if a is dprl.DEFER else a for a in policy.act(columns)] == wanted
    at, _ = policy.space.of_log(log)
    by_log = dict(zip(log.episodes, policy.act(at), strict=True))
    assert [by_log[row["id"]] for row in rows] == policy.act(columns)
    names = {}
    exec(policy.to_python(), names)
    assert [names["suggest"](row) for row in rows] == wanted
    texts = [{**row, "admitted": row["admitted"] and str(row["admitted"])} for row in rows]
    assert [names["suggest"](row) for row in texts] == wanted
    stays = pd.DataFrame(rows)
    query = policy.to_sql("stays")
    assert [a[0] for a in duckdb.sql(f"SELECT suggested FROM ({query})").fetchall()] == wanted
    assert len(stays) == len(wanted)
    exported = json.loads(policy.to_json_rules())
    assert (exported["version"], exported["days"]) == (2, {"admitted": "1970-01-01"})


def test_times_of_day_and_zones(tmp_path):
    text = "id,t,s,a,r\n"
    for clock in ("1.2.2024 13:30", "1/2/2024 09:05:30", "01-02-2024"):
        text += f"1,{clock},x,b,0\n"
    (tmp_path / "t.csv").write_text(text)
    given = {"episode": "id", "time": "t", "state": "s", "action": "a", "reward": "r"}
    log = dprl.read(tmp_path / "t.csv", dates="day-first", **given)
    assert log.time.astype(str).tolist() == [
        "2024-02-01T00:00:00.000000", "2024-02-01T09:05:30.000000", "2024-02-01T13:30:00.000000",
    ]  # fmt: skip
    other = dprl.read(tmp_path / "t.csv", dates="month-first", **given)
    assert str(other.time[0]).startswith("2024-01-02")
    zoned = ["1.2.2024 13:30+02:00", "1.2.2024 12:00Z", "1.2.2024 13:45 +0130"]
    log = dprl.from_arrays(episode=[1] * 3, time=zoned, state=list("abc"), action=[0] * 3,
                           reward=[0] * 3, dates="day-first")  # fmt: skip
    assert [log.states[s] for s in log.state] == ["a", "b", "c"]
    assert log.time.astype("datetime64[m]").astype(str).tolist() == [
        "2024-02-01T11:30", "2024-02-01T12:00", "2024-02-01T12:15",
    ]  # fmt: skip
    assert log.clock(0) == "2024-02-01 13:30:00+02:00"
    assert on_day(19754.5) == "2024-02-01 12:00:00"


@pytest.mark.parametrize("door", ["file", "frame"])
def test_dates_beside_the_state_are_days_too(tmp_path, door):
    lines = [f"{i},s{i % 2},a{i % 3},{i},2024-01-{1 + i % 5:02},{1 + i % 5}.2.2024"
             for i in range(40)]  # fmt: skip
    (tmp_path / "t.csv").write_text("\n".join(["id,ward,drug,score,day,odd", *lines]))
    given = {**ROLES, "state": "ward", "also": None}

    def also(**more):
        if door == "file":
            return dprl.read(tmp_path / "t.csv", **given, **more).also
        return dprl.from_frame(pd.read_csv(tmp_path / "t.csv"), **given, **more).also

    plain = also()
    assert plain.names == ("day",)
    assert "nothing says whether the day or the month comes first" in plain.left_out["odd"]
    assert also(dates="day-first").names == ("day", "odd")
    assert also(dates="day-first").levels == (None, None)
    assert also(dates="day-first").values[0][0] == slow_days(datetime.date(2024, 1, 1))


# -- labels ----------------------------------------------------------------------------------------


MESSY = {"ICU": ["ICU", " icu", "Icu "], "HDU": ["HDU", "hdu"]}


def messy(seed, n=200):
    draw = random.Random(seed)
    for i in range(n):
        ward, drug = draw.choice(list(MESSY)), draw.random() < 0.5
        score = round(draw.gauss((ward == "ICU") * drug, 0.3), 3)
        yield {
            "id": f"{seed}-{i}", "ward": draw.choice(MESSY[ward]), "sex": draw.choice(["F", "f"]),
            "age": draw.randint(20, 90), "drug": draw.choice(["Drug ", "drug"] if drug else ["wait"]),
            "score": score,
        }  # fmt: skip


def test_labels_are_written_alike_only_when_asked(tmp_path, run):
    rows = list(messy(0))
    file = write_csv(tmp_path / "m.csv", rows)
    assert len(dprl.read(file, state="ward", **ROLES).states) == 5
    log = dprl.read(file, state="ward", labels="trim,casefold", **ROLES)
    assert (log.states, log.actions) == (("hdu", "icu"), ("drug", "wait"))
    assert log.columns["labels"] == "trim,casefold"
    result = dprl.check(file, state="ward", labels="casefold,trim", **ROLES)
    merged = next(f for f in result.findings if f.rule == "merged_labels")
    assert merged.what == (
        "labels were written alike, as was asked: 5 labels of 'ward' became 2, 3 labels of 'drug' "
        "became 2."
    )
    assert merged.where == "' icu', 'ICU', 'Icu ' → 'icu'"
    policy = dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(log)
    assert policy.act(["ICU ", "icu", "\tIcu"]) == ["drug"] * 3
    assert "ICU " in policy.space
    policy.save(tmp_path / "p.dprl")
    assert dprl.load(tmp_path / "p.dprl").act("ICU") == "drug"
    test = list(messy(1))
    code, out, _ = run("act", tmp_path / "p.dprl", write_csv(tmp_path / "t.csv", test), "--json")
    assert (code, json.loads(out)["unknown"]) == (0, 0)
    assert Answers(policy).act(["ICU "])[0]["action"] == "drug"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["joined", "indicators", "rules"])
def test_categories_are_written_alike_everywhere(tmp_path, how):
    rows, test = list(messy(0)), list(messy(1))
    files = [write_csv(tmp_path / f"{i}.csv", table) for i, table in enumerate((rows, test))]
    names = ["ward", "sex"] if how == "joined" else ["ward", "sex", "age"]
    log = dprl.read(files[0], state=names, labels="trim,casefold", **ROLES)
    if how == "joined":
        policy = dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(log)
        assert policy.states == ("ward=hdu · sex=f", "ward=icu · sex=f")
    elif how == "indicators":
        policy = dprl.DPRLContinuous(n_min=3, radius=1.0, gamma=1.0).fit(log)
        assert policy.feature_names == ("ward=hdu", "ward=icu", "sex=f", "age")
    else:
        kept = filled(log)
        policy = dprl.RulePolicy(
            states=(), actions=("drug", "wait"), parameters={}, feature_names=kept.feature_names,
            levels=kept.levels, provenance={"columns": kept.columns},
            rules=({"conditions": [{"feature": "ward", "kind": "in", "labels": ["icu"]}],
                    "suggested": "drug"},),
        )  # fmt: skip
    columns = {name: [row[name] for row in test] for name in names}
    by_row = policy.act(columns)
    assert {"drug"} <= {str(a) for a in by_row}
    for labels in ("trim,casefold", ""):  # a log that was read without it is written alike too
        other = dprl.read(files[1], state=names, labels=labels, **ROLES)
        at, place = policy.space.of_log(encoded_like(other, policy.provenance["columns"]))
        answers = policy.act(at)
        by_log = {e: answers[i] for e, i in zip(other.episodes, place.tolist(), strict=True)}
        assert [by_log[row["id"]] for row in test] == by_row


# -- encodings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("encoding", "packed"), [
    ("cp1252", True), ("utf-16", True),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in (
        ("utf-8", True), ("latin-1", True), ("utf-16", False), ("iso8859-15", False),
        ("cp1252", False),
    )),
])  # fmt: skip
def test_files_in_other_encodings_packed_or_not(tmp_path, encoding, packed, run):
    rows = [{**row, "ward": "Überwachung" if i % 2 else "Café"}
            for i, row in enumerate(messy(0, 60))]  # fmt: skip
    plain = dprl.read(write_csv(tmp_path / "plain.csv", rows, encoding="utf-8"), state="ward",
                      **ROLES)  # fmt: skip
    name = tmp_path / ("log.csv.gz" if packed else "log.csv")
    write_csv(name, rows, opener=gzip.open if packed else open, encoding=encoding)
    log = dprl.read(name, state="ward", encoding=encoding, **ROLES)
    assert log.digest() == plain.digest()
    if encoding == "cp1252":
        dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(plain).save(tmp_path / "p.dprl")
        code, out, _ = run("act", tmp_path / "p.dprl", name, "--json", "--encoding", encoding)
        assert (code, json.loads(out)["unknown"]) == (0, 0)


@pytest.mark.slow
def test_act_reads_decimal_commas(rows, near, tmp_path, run):
    near.save(tmp_path / "p.dprl")
    table = pd.DataFrame([{**r, "age": f"{r['age']:.1f}".replace(".", ",")} for r in rows])
    table.to_csv(tmp_path / "comma.csv", sep=";", index=False)
    code, out, err = run("act", tmp_path / "p.dprl", tmp_path / "comma.csv", "--decimal", ",",
                         "--json")  # fmt: skip
    assert code == 0, err
    ours = near.act(states_of(rows))
    assert [r["suggested"] for r in json.loads(out)["rows_out"]] == [
        None if a is dprl.DEFER else a for a in ours
    ]


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "2024-06-01T10:00:00+99:99"])
def test_a_time_that_utc_does_not_have_is_no_date(text):
    from dprl.logs.reading.dates import day_of

    for dates in ("iso", "%Y-%m-%dT%H:%M:%S%z"):
        with pytest.raises(dprl.LogError, match="is no date as declared"):
            day_of(text, dates, "seen")


@pytest.mark.parametrize(("form", "what"), [
    ("%d.%m. %H:%M", "no year"), ("%d.%m.%Y %H:%M %p", "%p is not looked at"),
    ("%d.%m.%Y %I:%M", "without %p"), ("%d.%m.%Y %H:%M %Z", "%Z"), ("%d %Y", "no month"),
    ("%d.%m.%Y %M:%S", "no hour"), ("%x", "century"), ("%d.%m.%%Y", "no year"),
])  # fmt: skip
def test_formats_that_lose_what_was_written_are_refused(form, what):
    with pytest.raises(dprl.ParameterError, match=what):
        check_dates(form)
    for fine in ("%d.%m.%Y %I:%M %p", "%d %b %Y %H:%M:%S%z", "%Y%m%d", "%Y-%m", "%j/%Y"):
        assert check_dates(fine) == fine
