"""What a build points out: codes that look like one of the spec, absent codes, stays without an end."""

from __future__ import annotations

import json

import pytest

import dprl
from dprl.errors import CutWarning, LabelWarning, LogError
from dprl.logs.events import build, read_spec
from dprl.logs.events.findings import code_findings

SPEC = """\
[source]
value = "value"
[episodes]
by = "code"
start = "ADMISSION"
[[end]]
codes = ["DISCHARGE", "TRANSFER"]
may_be_absent = true
[clock]
every = "12 h"
[[feature]]
name = "map"
take = "last"
codes = "LAB//MAP*"
within = "24 h"
[[action.part]]
name = "noradrenaline"
codes = "Noradrenalin"
[[reward]]
codes = "R"
may_be_absent = true
"""
EVENTS = """\
subject_id,time,code,value
1,2024-03-01 08:00,ADMISSION,
1,2024-03-01 09:00,LAB//MAP,60
1,2024-03-01 10:00,Noradrenalin,1
1,2024-03-01 22:00,DISCHARGE,
2,2024-03-01 08:00,ADMISSION,
2,2024-03-01 09:00,lab//map arterial,60
2,2024-03-01 10:00,noradrenaline ,1
2,2024-03-01 11:00,noradrenaline ,1
2,2024-03-01 11:00,noradrenalin,1
2,2024-03-01 12:00,Adrenalin,1
2,2024-03-05 08:00,ADMISSION,
2,2024-03-05 20:00,DISCHARGE,
3,2024-03-01 08:00,ADMISSION,
3,2024-03-02 08:00,Adrenalin,1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("events")
    (place / "events.csv").write_text(EVENTS)
    (place / "spec.toml").write_text(SPEC)
    return place


@pytest.fixture(scope="module")
def built(folder):
    return build(folder / "events.csv", folder / "spec.toml", folder / "log.parquet")


def test_codes_that_look_like_one_of_the_spec_are_pointed_out(built):
    finding = next(one for one in built.findings if one.rule == "near_codes")
    assert finding.level == "warning"
    assert "3 codes of the data, with 4 rows, look like a code of the spec" in finding.what
    assert "'noradrenaline ' (2 rows) is like 'Noradrenalin' (1 row)" in finding.what
    assert "'noradrenalin' (1 row)" in finding.what
    assert "'lab//map arterial' (1 row) is like 'LAB//MAP*'" in finding.what
    assert "Adrenalin'" not in finding.what
    assert 'line 18: codes = "Noradrenalin"' in finding.where
    assert "nothing given" in finding.do
    assert "name them in codes" in finding.do


def test_codes_that_never_occur_are_listed(built):
    finding = next(one for one in built.findings if one.rule == "absent_codes")
    assert "2 codes of the spec occur in no row: 'TRANSFER'; 'R'." in finding.what
    assert "line 7" in finding.where


def test_stays_that_run_on_are_pointed_out(built):
    finding = next(one for one in built.findings if one.rule == "open_stays")
    assert finding.level == "warning"
    assert "1 of 4 episodes without an end event run on until the next episode" in finding.what
    assert "8 of 13 decisions, the longest 96 h." in finding.what
    assert "subject 2, episode that begins at 2024-03-01 08:00:00" in finding.where
    assert "horizon" in finding.do
    last = next(one for one in built.findings if one.rule == "open_at_last_row")
    assert "1 of 4 episodes without an end event run on to the last row" in last.what
    assert "subject 3" in last.where


def test_the_flow_the_dictionary_and_the_words_say_it(built):
    by_step = {row["step"]: row for row in built.flow.to_dicts()}
    assert by_step["no end event, until the next begins"]["decisions"] == 8
    assert by_step["no end event, to the last row"]["subjects"] == 1
    flow = built.path.with_name("log.flow.md").read_text()
    assert "no end event, until the next begins" in flow
    assert "'noradrenaline ' (2 rows)" in flow
    assert "'noradrenaline ' (2 rows)" in built.path.with_name("log.dictionary.md").read_text()
    assert str(built).count("'noradrenaline ' (2 rows)") == 1
    rules = [finding["rule"] for finding in json.loads(json.dumps(built.to_dict()))["findings"]]
    assert rules == ["near_codes", "absent_codes", "open_stays", "open_at_last_row"]


@pytest.mark.slow
def test_the_log_in_memory_warns(folder):
    with (
        pytest.warns(LabelWarning, match="noradrenaline"),
        pytest.warns(CutWarning, match="horizon"),
    ):
        dprl.from_events(folder / "events.csv", folder / "spec.toml")


@pytest.mark.slow
def test_a_horizon_and_an_end_are_no_reason_to_warn(folder):
    spec = SPEC.replace('every = "12 h"', 'every = "12 h"\nhorizon = "12 h"')
    (folder / "limited.toml").write_text(spec)
    limited = build(folder / "events.csv", folder / "limited.toml", folder / "limited.parquet")
    assert not [one for one in limited.findings if one.rule.startswith("open")]


def test_decisions_after_the_last_row_of_a_stay_without_an_end_are_pointed_out(folder):
    """Subject 2 has no row that the spec uses between two admissions, which are days apart."""
    spec = SPEC.replace('every = "12 h"', 'every = "12 h"\nhorizon = "48 h"')
    (folder / "two_days.toml").write_text(spec)
    limited = build(folder / "events.csv", folder / "two_days.toml", folder / "two_days.parquet")
    finding = next(one for one in limited.findings if one.rule == "open_at_horizon")
    assert finding.level == "warning"
    assert "1 of 4 episodes without an end event run on to the horizon" in finding.what
    assert "3 of 9 decisions come after it, the longest run is 48 h." in finding.what
    assert "subject 2, episode that begins at 2024-03-01 08:00:00" in finding.where
    by_step = {row["step"]: row for row in limited.flow.to_dicts()}
    assert by_step["no end event, to the horizon"]["episodes"] == 1
    assert by_step["no end event, to the horizon"]["decisions"] == 4
    last = next(one for one in limited.findings if one.rule == "open_at_last_row")
    assert "with a horizon below 48 h in [clock]" in last.do


def test_only_spelling_needs_only_labels(folder):
    spec = read_spec(folder / "spec.toml")
    finding = code_findings(
        spec, {"Noradrenalin": 3, "NORADRENALIN ": 2, "R": 1}, ["Noradrenalin", "R"]
    )[0]
    assert 'labels = "trim,casefold"' in finding.do
    assert (
        code_findings(spec, {"Noradrenalin": 3, "Amiodaron": 2}, ["Noradrenalin"])[0].rule
        == "absent_codes"
    )


@pytest.mark.parametrize(
    ("written", "like"),
    [
        ("Nor-Adrenalin", "Noradrenalin"),
        ("nor adrenaline", "Noradrenalin"),
        ("Vollelektrolytloesung", "Vollelektrolytlösung"),
        ("vollelektrolyt-loesungen", None),
        ("LAB 12", None),  # 1-2 is not 12
        ("lab-1 2", "LAB 1-2"),
    ],
)
def test_hyphens_and_replaced_umlauts_are_pointed_out(folder, written, like):
    both = '["Noradrenalin", "Vollelektrolytlösung", "LAB 1-2"]'
    (folder / "german.toml").write_text(SPEC.replace('"Noradrenalin"', both), encoding="utf-8")
    spec = read_spec(folder / "german.toml")
    meant = {"Noradrenalin": 3, "Vollelektrolytlösung": 2, "LAB 1-2": 1}
    near = [
        one for one in code_findings(spec, {**meant, written: 7}, meant) if one.rule == "near_codes"
    ]
    assert len(near) == (like is not None)
    if like is not None:
        assert f"{written!r} (7 rows) is like {like!r}" in near[0].what
        assert "trim,casefold" not in near[0].do  # which would not help


def test_a_code_in_another_case_is_the_one_that_was_meant(folder):
    (folder / "other.toml").write_text(SPEC.replace('"Noradrenalin"', '"ADRENALIN"'))
    with pytest.raises(LogError, match="Did you mean 'Adrenalin'"):
        build(folder / "events.csv", folder / "other.toml", folder / "other.parquet")


def test_the_command_says_it(folder, run):
    code, out, _ = run(
        "build", folder / "spec.toml", folder / "events.csv", "--out", folder / "said.parquet"
    )
    assert code == 0
    assert "warning: 3 codes of the data, with 4 rows" in out
    assert "warning: 1 of 4 episodes without an end event" in out
