"""What a spec means where it is easy to get wrong: ties, borders, missing values, time zones, order."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dprl
from dprl.logs.events import build, explain, read_spec
from dprl.logs.events import running as _load
from dprl.logs.events.spec import find_lines
from dprl.logs.events.spec_rules import may_overlap

SPEC = """
[source]
value = "value"
[episodes]
by = "code"
start = "IN"
[[end]]
codes = "DEAD"
may_be_absent = true
ended = "died"
[[end]]
codes = "OUT"
may_be_absent = true
[clock]
every = "1 h"
[[feature]]
name = "a"
take = "last"
codes = ["A", "A2"]
may_be_absent = true
within = "2 h"
[[feature]]
name = "n"
take = "count"
codes = "A*"
may_be_absent = true
within = "1 h"
[[action.part]]
name = "drug"
codes = "DRUG*"
may_be_absent = true
[[reward]]
codes = "R"
may_be_absent = true
take = "sum"
[[reward]]
at = "end"
ended = "died"
times = -1
"""
STAY = "p,08:00,IN,\np,11:00,OUT,\np,08:15,DRUG,\np,08:15,R,0\n"


def built(tmp_path, rows, spec=SPEC, **options):
    """The rows of the log, as dicts; times of the events are of one day."""
    lines = [line.split(",") for line in rows.strip().splitlines()]
    text = "subject_id,time,code,value\n" + "".join(
        f"{who},{f'2024-03-01 {when}' if 3 < len(when) < 9 else when},{code},{value}\n"
        for who, when, code, value in lines
    )
    (tmp_path / "events.csv").write_text(text)
    (tmp_path / "spec.toml").write_text(spec)
    made = build(
        tmp_path / "events.csv", tmp_path / "spec.toml", tmp_path / "log.parquet", **options
    )
    with duckdb.connect() as con:
        result = con.execute(f"FROM '{made.path}'")
        names = [column[0] for column in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def column(rows, name):
    return [row[name] for row in rows]


def test_a_row_at_the_decision_belongs_to_its_window(tmp_path):
    rows = built(tmp_path, STAY + "p,09:00,A,5\np,09:00,A2,1\np,09:00,DRUG,\np,10:00,R,2\n")
    assert column(rows, "a") == [None, None, 5.0]
    assert column(rows, "action") == ["drug", "drug", "none"]
    assert column(rows, "reward") == [0.0, 0.0, 2.0]


def test_a_feature_until_at_knows_the_row_at_its_decision(tmp_path):
    spec = SPEC.replace('within = "2 h"', 'within = "2 h"\nuntil = "at"')
    rows = built(tmp_path, STAY + "p,09:00,A,5\n", spec)
    assert column(rows, "a") == [None, 5.0, 5.0]


def test_the_greatest_age_is_inclusive(tmp_path):
    rows = built(tmp_path, STAY + "p,08:00,A,5\n" + "p,08:30,A,7\n")
    assert column(rows, "a") == [None, 7.0, 7.0]
    rows = built(tmp_path, STAY + "p,07:00,A,5\n")
    assert column(rows, "a") == [5.0, 5.0, None]  # 2 h old at 09:00: it still counts


def test_of_rows_at_one_time_the_code_named_first_counts_then_the_lowest_value(tmp_path):
    rows = built(tmp_path, STAY + "p,08:30,A2,1\np,08:30,A,9\np,08:30,A,6\np,08:30,A,\n")
    assert rows[1]["a"] == 6.0
    assert rows[1]["n"] == 4.0  # a row without a value is counted


def test_equal_rows_count_as_often_as_they_are_there_unless_dropped(tmp_path):
    twice = STAY + "p,08:30,A,1\np,08:30,A,1\n"
    assert built(tmp_path, twice)[1]["n"] == 2.0
    spec = SPEC.replace("[source]", '[source]\nduplicates = "drop"')
    assert built(tmp_path, twice, spec)[1]["n"] == 1.0


def test_rows_before_the_first_decision_and_after_the_end(tmp_path):
    rows = built(
        tmp_path,
        STAY
        + "p,07:30,A,3\np,07:30,DRUG,\np,07:30,R,8\np,11:00,R,4\np,11:01,R,16\np,11:00,DRUG,\n",
    )
    assert column(rows, "a") == [3.0, 3.0, None]
    assert column(rows, "action") == ["drug", "none", "drug"]  # at the very end: still inside
    assert column(rows, "reward") == [0.0, 0.0, 4.0]


def test_a_last_window_that_is_cut_short_is_kept_or_dropped(tmp_path):
    rows = STAY.replace("11:00", "11:20") + "p,11:10,R,4\np,11:20,DEAD,\n"
    kept = built(tmp_path, rows)
    assert column(kept, "reward") == [0.0, 0.0, 0.0, 3.0]
    assert {row["ended"] for row in kept} == {"died"}  # of ends at one time the first of the spec
    dropped = built(
        tmp_path, rows, SPEC.replace('every = "1 h"', 'every = "1 h"\npartial = "drop"')
    )
    assert column(dropped, "reward") == [0.0, 0.0, -1.0]


def test_what_is_longer_than_the_horizon_is_cut(tmp_path):
    spec = SPEC.replace('every = "1 h"', 'every = "1 h"\nhorizon = "2 h"')
    rows = built(tmp_path, STAY + "p,10:00,R,4\n", spec)
    assert column(rows, "ended") == ["cut", "cut"]
    assert column(rows, "reward") == [0.0, 0.0]
    exact = built(tmp_path, STAY, spec.replace('"2 h"', '"3 h"'))
    assert {row["ended"] for row in exact} == {"terminal"}


def test_an_episode_without_an_end_is_cut_at_the_next_or_at_the_last_row(tmp_path):
    rows = built(tmp_path, "p,08:00,IN,\np,09:00,IN,\np,10:30,A,1\np,08:10,DRUG,\np,08:10,R,0\np,08:00,DEAD,\n"
                 "q,08:00,OUT,\n")  # fmt: skip
    assert column(rows, "episode") == ["p#1", "p#2", "p#2"]
    assert {row["ended"] for row in rows} == {
        "cut"
    }  # the end at the beginning itself does not count


def test_a_gap_makes_a_new_episode(tmp_path):
    spec = SPEC.replace('by = "code"\nstart = "IN"', 'by = "gap"\ngap = "2 h"\nended = "cut"')
    rows = built(
        tmp_path,
        "p,08:00,A,1\np,10:00,DRUG,\np,12:01,R,1\np,13:30,A,1\np,13:30,OUT,\np,03:00,DEAD,\n",
        spec,
    )
    assert [(row["episode"], row["step"], row["ended"]) for row in rows] == [
        ("p#2", 0, "cut"), ("p#2", 1, "cut"), ("p#3", 0, "terminal"), ("p#3", 1, "terminal"),
    ]  # fmt: skip


def test_a_table_says_what_an_episode_is_and_its_group(tmp_path):
    (tmp_path / "stays.csv").write_text(
        "stay,who,from,to,ward\n7,p,2024-03-01 08:00,2024-03-01 09:30,north\n8,p,2024-03-01 10:00,,south\n"
        "9,nobody,2024-03-01 10:00,2024-03-01 11:00,south\n"
    )
    table = 'by = "table"\ntable = "stays.csv"\nid = "stay"\nsubject = "who"\nbegins = "from"\nfinishes = "to"\ngroup = "ward"'
    spec = SPEC.replace('by = "code"\nstart = "IN"', table)
    rows = built(tmp_path, "p,08:30,A,5\np,10:40,A,6\np,11:30,DRUG,\np,11:30,R,1\n", spec)
    assert [(row["episode"], row["step"], row["group"], row["ended"]) for row in rows] == [
        ("9", 0, "south", "terminal"), ("7", 0, "north", "terminal"), ("7", 1, "north", "terminal"),
        ("8", 0, "south", "cut"), ("8", 1, "south", "cut"),
    ]  # fmt: skip
    assert column(rows, "a") == [None, None, 5.0, 5.0, 6.0]
    assert column(rows, "action") == ["none", "none", "none", "none", "drug"]


def test_decisions_on_an_event(tmp_path):
    spec = SPEC.replace('every = "1 h"', 'on = "VISIT"').replace(
        'within = "2 h"', 'within = "2 h"\nuntil = "at"'
    )
    rows = built(
        tmp_path,
        STAY + "p,08:30,VISIT,\np,08:30,A,2\np,10:30,VISIT,\np,11:00,VISIT,\np,10:29,R,3\n",
        spec,
    )
    assert [str(row["time"])[11:16] for row in rows] == ["08:30", "10:30"]
    assert column(rows, "a") == [2.0, 2.0]
    assert column(rows, "reward") == [3.0, 0.0]


@pytest.mark.parametrize("zone", ["+02:00", "Z"])
def test_times_with_a_zone_are_moments(tmp_path, zone):
    plain = built(tmp_path, STAY + "p,08:30,A,5\n")
    zoned = STAY + "p,08:30,A,5\n"
    for hour in ("08:00", "08:15", "08:30", "11:00"):
        zoned = zoned.replace(hour, f"2024-03-01 {hour}:00{zone}")
    rows = built(tmp_path, zoned)
    assert column(rows, "a") == column(plain, "a")
    early = 2 if zone == "+02:00" else 0
    assert rows[0]["time"].hour == 8 - early  # in UTC


def test_a_date_without_an_hour_is_known_when_the_day_is_over(tmp_path):
    spec = SPEC.replace('every = "1 h"', 'every = "12 h"').replace('"2 h"', '"48 h"')
    rows = built(
        tmp_path,
        "p,2024-03-01,IN,\np,2024-03-01,A,5\np,2024-03-03,OUT,\np,2024-03-02,DRUG,\np,2024-03-01,R,1\n",
        spec,
    )
    assert column(rows, "a") == [
        None,
        None,
        None,
        5.0,
    ]  # at noon nobody can say that it was measured
    assert column(rows, "action") == ["none", "none", "drug", "none"]


def test_static_rows_have_no_time(tmp_path):
    spec = SPEC + '[[feature]]\nname = "female"\ntake = "ever"\ncodes = "SEX//F"\nstatic = true\n'
    rows = built(tmp_path, STAY + "p,,SEX//F,\np,08:30,A,1\nq,08:00,IN,\nq,09:00,OUT,\n", spec)
    assert column(rows, "female") == [1.0, 1.0, 1.0, 0.0]


def test_the_groups_are_subjects_and_the_log_can_be_fitted(tmp_path):
    built(tmp_path, STAY + "p,08:30,A,1\np,13:00,IN,\np,15:00,DEAD,\n")
    log = dprl.from_events(tmp_path / "events.csv", tmp_path / "spec.toml")
    assert (log.n_episodes, log.groups, log.feature_names) == (2, ("p",), ("a", "n"))
    assert log.events == ("died",)
    assert np.isnan(log.features[:, 0]).sum() == 3


@pytest.mark.parametrize(
    ("how", "names"),
    [
        ('levels = ["no", "low", "high"]', ["no", "low", "high"]),
        ('levels = ["no", "low", "high"]\nunit = "mg"', ["no", "low", "high"]),
        ('unit = "mg"', ["at most 0 mg", "above 0 to 5 mg", "above 5 mg"]),
        ("", ["0", "1", "2"]),
    ],
)
def test_joint_actions_and_levels(tmp_path, how, names):
    spec = SPEC.replace(
        '[[action.part]]\nname = "drug"\ncodes = "DRUG*"\nmay_be_absent = true',
        '[action]\ncombine = "joint"\n[[action.part]]\nname = "dose"\ncodes = "DRUG"\ntake = "sum"\n'
        f'edges = [0, 5]\n{how}\n[[action.part]]\nname = "air"\n'
        'choices = [{name = "tube", codes = "TUBE"}, {name = "mask", codes = ["MASK*"]}]',
    )
    rows = built(
        tmp_path,
        STAY
        + "p,09:10,DRUG,5\np,10:10,DRUG,5.5\np,09:00,MASK1,\np,09:59,TUBE,\np,10:00,MASK2,\np,08:20,A,1\n",
        spec,
    )
    no, low, high = names
    assert column(rows, "action") == [
        f"dose {no}, air 0", f"dose {low}, air tube", f"dose {high}, air mask",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_unit_of_doses_goes_from_the_spec_to_the_act_the_page_and_the_service(tmp_path):
    pytest.importorskip("starlette", reason="starlette is not installed (dprl[serve])")
    from starlette.testclient import TestClient

    from dprl.apps.serve.app import serve_app

    rng, lines = np.random.default_rng(0), ["subject_id,time,code,value"]
    for who in range(120):
        severe, dose = who % 2, (None, 200, 400, 400.5)[rng.integers(0, 4)]
        gain = rng.normal() + 5 * (dose in (200, 400)) * (1 if severe else -1)
        rows = [
            ("08:00", "IN", ""),
            ("07:50", "A", severe),
            ("08:20", "R", gain),
            ("09:00", "OUT", ""),
        ]
        rows += [("08:10", "DRUG", dose)] * (dose is not None)
        lines += [f"p{who},2024-03-01 {when},{code},{value}" for when, code, value in rows]
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")
    spec = SPEC.replace(
        'name = "drug"\ncodes = "DRUG*"',
        'name = "drug"\ncodes = "DRUG"\ntake = "sum"\nedges = [0, 400]\nunit = "mg"',
    )
    (tmp_path / "spec.toml").write_text(spec)
    made = build(tmp_path / "events.csv", tmp_path / "spec.toml", tmp_path / "log.parquet")
    assert "levels up to 0, 400 mg" in (tmp_path / "log.dictionary.md").read_text()
    low = "drug above 0 to 400 mg"
    with duckdb.connect() as con:
        rows = con.execute(f"SELECT DISTINCT action FROM '{made.path}' ORDER BY 1").fetchall()
    assert [row[0] for row in rows] == [low, "drug above 400 mg", "none"]
    log = dprl.from_events(tmp_path / "events.csv", tmp_path / "spec.toml")
    policy = dprl.DPRLContinuous(n_min=8, radius=0.1, gamma=1.0).fit(log)
    severe = {"a": 1.0, "n": 1.0}
    assert policy.act([[1.0, 1.0]]) == [low]
    dprl.report(policy, log, tmp_path / "page.html", draws=20)
    assert low in (tmp_path / "page.html").read_text()
    with TestClient(serve_app(policy, token=None), base_url="http://127.0.0.1:9") as client:
        while client.get("/healthz").status_code != 200:
            pass
        answer = client.post("/act", json={"states": [severe]}).json()
        assert answer["answers"][0]["action"] == low


def test_intervals_run_over_windows(tmp_path):
    spec = (
        SPEC.replace(
            'name = "drug"\ncodes = "DRUG*"\nmay_be_absent = true',
            'name = "drug"\ncodes = "ON"\ntake = "dose"\nedges = [0, 4]',
        )
        + '[[interval]]\nname = "ON"\nstart = "DRUG"\nstop = "STOP"\nlongest = "2 h"\n'
    )
    rows = built(
        tmp_path,
        STAY.replace("DRUG,", "DRUG,4") + "p,09:15,STOP,\np,09:30,DRUG,10\np,08:20,A,1\n",
        spec,
    )
    assert column(rows, "action") == ["drug 1", "drug 2", "drug 2"]  # 3, 1 + 5, and 10 of a dose


# -- the same whatever the order, the threads, the parts -------------------------------------------


@pytest.mark.slow
def test_order_of_rows_threads_and_parts_change_nothing(tmp_path, monkeypatch):
    rng = random.Random(3)
    lines = []
    for who in range(16):
        start = rng.randint(0, 600)
        lines += [f"{who},{start},IN,", f"{who},{start + rng.randint(60, 600)},OUT,"]
        for _ in range(30):
            lines.append(
                f"{who},{rng.randint(0, 1200)},{rng.choice(['A', 'A2', 'DRUG', 'R'])},{rng.random() * 100}"
            )
    (tmp_path / "spec.toml").write_text(
        SPEC.replace("[source]", '[source]\ntime_unit = "min"')
        + '[[feature]]\nname = "m"\ntake = "mean"\ncodes = "A*"\nwithin = "5 h"\n'
        + '[[feature]]\nname = "s"\ntake = "slope"\ncodes = "A*"\nwithin = "5 h"\n'
        + '[[feature]]\nname = "all"\ntake = "sum"\ncodes = "A*"\nwithin = "history"\n'
    )
    seen = set()
    for threads, per_part in ((1, 10**6), (2, 10**6), (1, 200), (2, 333)):
        rng.shuffle(lines)
        (tmp_path / "e.csv").write_text("\n".join(["subject_id,time,code,value", *lines]))
        monkeypatch.setattr(_load, "PER_PART", per_part)
        made = build(
            tmp_path / "e.csv", tmp_path / "spec.toml", tmp_path / "log.parquet", threads=threads
        )
        seen.add((made.path.read_bytes(), made.path.with_name("log.flow.md").read_text()))
    assert len(seen) == 1


# -- what is written, explained and matched --------------------------------------------------------


def test_a_dictionary_the_flow_and_what_is_missing_are_written_beside_the_log(tmp_path):
    built(tmp_path, STAY + "p,08:30,A,1\nq,08:00,IN,\np,08:00,DEAD,\n")
    assert "Last value of A, A2 in [t − 2 h, t)" in (tmp_path / "log.dictionary.md").read_text()
    flow = (tmp_path / "log.flow.md").read_text()
    assert "| with an episode | 2 | 2 | – | – |" in flow
    assert "| with a decision | 1 | 1 | 3 | – |" in flow
    assert "| a | 1 | 0.333 |" in (tmp_path / "log.missing.md").read_text()


@pytest.mark.slow
def test_explain_names_the_rows_behind_a_decision(tmp_path, run):
    built(tmp_path, STAY + "p,08:30,A,5\np,08:40,A2,6\np,09:30,DRUG,\np,09:40,R,2\np,08:00,DEAD,\n")
    rows = explain(tmp_path / "events.csv", tmp_path / "spec.toml", "p", "2024-03-01 09:59")
    assert [
        (r["use"], r["of"], r["result"], (r["time"] or "")[11:16], r["code"]) for r in rows
    ] == [
        ("state", "a", 6.0, "08:40", "A2"),
        ("state", "n", 2.0, "08:30", "A"),
        ("state", "n", 2.0, "08:40", "A2"),
        ("action", "drug", "drug", "09:30", "DRUG"),
        ("reward", "term 1", 2.0, "09:40", "R"),
        ("reward", "term 2", 0.0, "", None),
    ]
    asked = (
        "build",
        tmp_path / "spec.toml",
        tmp_path / "events.csv",
        "--explain",
        "p",
        "2024-03-01 09:59",
    )
    code, out, _ = run(*asked)
    assert code == 0
    assert "decision 2 at 2024-03-01 09:00:00: action 'drug', reward 2" in out
    code, out, _ = run(*asked, "--json")
    assert '"code": "A2"' in out
    for who, when, words in (("z", "2024-03-01", "there is no subject 'z'"), ("p", "soon", "'soon' is no time"),
                             ("p", "2024-02-01", "has no decision up to")):  # fmt: skip
        code, _, err = run(*asked[:-2], who, when)
        assert (code, words in err) == (1, True), err


def test_the_command_builds_and_says_what_comes_next(tmp_path, run):
    built(tmp_path, STAY + "p,08:30,A,5\np,08:00,DEAD,\n")
    out_file = tmp_path / "new.parquet"
    code, out, _ = run("build", tmp_path / "spec.toml", tmp_path / "events.csv", "--out", out_file)
    assert code == 0
    assert "dprl check" in out
    assert "--state 'a' --state 'n' --events 'died'" in out
    code, out, _ = run(
        "build", tmp_path / "spec.toml", tmp_path / "events.csv", "--out", out_file, "--json"
    )
    assert '"decisions": 3' in out
    for more, words in (
        ((), "needs a file to write"),
        (("--out", out_file, "--explain", "p", "8"), "not both"),
    ):
        code, _, err = run("build", tmp_path / "spec.toml", tmp_path / "events.csv", *more)
        assert (code, words in err) == (1, True)


def test_what_code_patterns_have_in_common():
    assert may_overlap(["A*"], ["*B"])
    assert may_overlap(["LAB//*"], ["LAB//x"])
    assert may_overlap(["a*c*e"], ["abc*de"])
    assert may_overlap(["*"], [""])
    assert not may_overlap(["A*"], ["BA*"])
    assert not may_overlap(["a*c"], ["a*d", "b"])


def test_lines_of_keys_are_those_of_the_file():
    text = (
        'clock = {every = "1 h"}\n[source] # c\nfiles = [\n "a = 1", # [x]\n "b"]\n"time" = """\nvalue = 1\n"""\n'
        "[[feature]]\nname = 'x'\n[[feature]]\nname = 'y'\n[[action.part]]\n[[action.part]]\nname = 'z'\n"
    )
    lines = {path: number for path, (number, _) in find_lines(text).items()}
    assert lines["clock",] == 1
    assert lines["source", "files"] == 3
    assert lines["source", "time"] == 6
    assert ("source", "value") not in lines
    assert lines["feature", 1, "name"] == 12
    assert lines["action", "part", 1, "name"] == 15


def test_a_spec_in_python_is_the_one_in_toml(tmp_path):
    from dprl.events import Action, Clock, End, Episodes, Feature, Part, Reward, Source, Spec

    (tmp_path / "spec.toml").write_text(SPEC)
    assert read_spec(tmp_path / "spec.toml") == Spec(
        source=Source(value="value"), episodes=Episodes(by="code", start="IN"), clock=Clock(every="1 h"),
        ends=[End(codes="DEAD", ended="died", may_be_absent=True), End(codes="OUT", may_be_absent=True)],
        features=[Feature(name="a", take="last", codes=["A", "A2"], within="2 h", may_be_absent=True),
                  Feature(name="n", take="count", codes="A*", within="1 h", may_be_absent=True)],
        action=Action(parts=[Part(name="drug", codes="DRUG*", may_be_absent=True)]),
        rewards=[Reward(codes="R", take="sum", may_be_absent=True), Reward(at="end", ended="died", times=-1)],
    )  # fmt: skip


def test_the_builder_needs_no_optional_package(tmp_path):
    code = "import sys, dprl.events; dprl.events.Spec; assert not {'pandas', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(dprl.__file__).parents[1])
