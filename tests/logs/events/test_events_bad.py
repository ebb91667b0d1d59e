"""Bad specs and bad events: three lines that say what, where and what to do; nothing is written."""

from __future__ import annotations

import pytest

from dprl.errors import DprlError, LogError, ParameterError
from dprl.logs.events import SpecError, build, read_spec

SPEC = """\
[source]
value = "value"
[episodes]
by = "code"
start = "IN"
[[end]]
codes = "OUT"
[clock]
every = "1 h"
[[feature]]
name = "a"
take = "mean"
codes = "A"
within = "2 h"
[[action.part]]
name = "drug"
codes = "DRUG"
take = "sum"
edges = [0, 5]
[[reward]]
codes = "R"
take = "last"
"""
EVENTS = """\
subject_id,time,code,value
1,2024-03-01 08:00,IN,
1,2024-03-01 08:10,A,3
1,2024-03-01 08:30,DRUG,2
1,2024-03-01 08:40,R,1
1,2024-03-01 09:00,OUT,
"""
WITH_ENDS = EVENTS.replace("\n", ",\n").replace("value,", "value,stop")
SPECS = {
    "no TOML": ("[clock]", "[clock", "is not TOML", "line 8"),
    "unknown table": ("[clock]", "[clocks]", "there is no table 'clocks' in a spec.", "line 8: [clocks]"),
    "unknown key": ('every = "1 h"', 'evry = "1 h"', "there is no key 'evry' in a spec.", "line 9: evry"),
    "one bracket": ("[[feature]]", "[feature]", "'feature' must be a list of tables.", "line 10: [feature]"),
    "a key for a table": ("[clock]\nevery", "clock", "'clock' in a spec", ""),
    "lacking key": ('name = "a"\n', "", "[feature] lacks the key 'name'.", "line 10"),
    "lacking part": ("[[action.part]]", "[action]", "there is no key 'name' in a spec.", "line 16"),
    "number for a duration": ('every = "1 h"', "every = 4", "every must be a duration", "line 9: every = 4"),
    "no unit": ('every = "1 h"', 'every = "4"', "every must be a duration", 'line 9: every = "4"'),
    "unknown unit": ('"2 h"', '"2 moons"', "within must be a duration", "line 14"),
    "clock of length 0": ('"1 h"', '"0 h"', "every must be longer than 0; got '0 h'.", "line 9"),
    "two clocks": ('every = "1 h"', 'every = "1 h"\non = "A"', "has both 'every' and 'on'", "line 10: on"),
    "no clock": ('every = "1 h"', 'horizon = "9 h"', "the clock needs 'every' or 'on'.", "line 8: [clock]"),
    "unknown take": ('"mean"', '"median"', "take must be 'last', 'mean'", 'line 12: take = "median"'),
    "no look-back": ('within = "2 h"\n', "", "does not say how far it looks back", "line 10: [[feature]]"),
    "slope of all": ('take = "mean"\ncodes = "A"\nwithin = "2 h"', 'take = "slope"\ncodes = "A"\nwithin = "history"',
                     "'slope' needs a look-back of limited length.", "line 14"),
    "no codes": ('codes = "A"\n', "", "feature 'a' (mean) has no codes.", "line 10"),
    "empty code": ('codes = "A"', 'codes = [""]', "codes must be text, or a list of texts", "line 13"),
    "static mean": ('within = "2 h"', "static = true", "'mean' of rows without a time makes no sense.", "line 12"),
    "turned range": ('within = "2 h"', 'within = "2 h"\nvalid = [9, 1]', "valid must be two numbers", "line 15"),
    "falling edges": ("[0, 5]", "[5, 0]", "edges must be a list of rising numbers", "line 19: edges"),
    "no edges": ("edges = [0, 5]\n", "", "'sum' is a number and needs edges.", 'line 18: take = "sum"'),
    "names of levels": ("[0, 5]", '[0, 5]\nlevels = ["a", "b"]', "2 names for 3 levels of part 'drug'.", "line 20"),
    "unit without edges": ('take = "sum"\nedges = [0, 5]', 'unit = "mg"', "part 'drug' has a unit and no edges.", "line 18"),
    "dose without ends": ('take = "sum"\ne', 'take = "dose"\ne', "'dose' needs rows with an end, and 'DRUG' has none.", "line 18"),
    "reserved name": ('name = "a"', 'name = "Action"', "the name 'Action' is taken: a column of every log.", "line 11"),
    "two of one name": ("[[action.part]]", '[[feature]]\nname = "A"\ntake = "step"\n[[action.part]]',
                        "the name 'A' is taken: another feature.", "line 16"),
    "reward of nothing": ('codes = "R"\n', "", "a reward has no codes.", "line 20: [[reward]]"),
    "end of no word": ('codes = "R"', 'codes = "R"\nat = "end"\nended = "gone"', "no episode can end with 'gone'.", "line 23"),
    "missing of a sum": ('take = "last"', 'take = "sum"\nmissing = 0', "'sum' is never missing", "line 23"),
    "gap without a word": ('by = "code"\nstart = "IN"', 'by = "gap"\ngap = "3 h"', "episodes by gap need 'ended'.", "line 4"),
    "start of a gap": ('by = "code"', 'by = "gap"\ngap = "3 h"\nended = "cut"', "'start' belongs to episodes by code", "line 7"),
    "group of no table": ('start = "IN"', 'start = "IN"\ngroup = "ward"', "group 'ward' must be 'subject' or 'episode'", "line 6"),
    "unknown time unit": ('value = "value"', 'value = "value"\ntime_unit = "moon"', "time_unit must be one of", "line 3"),
}  # fmt: skip
"""Kind → (what is replaced in the spec, by what, words of the first line, of the second)."""


def refused(tmp_path, spec, events=EVENTS, out="log.parquet", **options):
    """The error of a build, after which the folder is as it was."""
    (tmp_path / "spec.toml").write_text(spec)
    (tmp_path / "events.csv").write_text(events)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DprlError) as error:
        build(tmp_path / "events.csv", tmp_path / "spec.toml", tmp_path / out, **options)
    assert sorted(tmp_path.rglob("*")) == before
    return error.value


@pytest.mark.parametrize("kind", SPECS)
def test_a_bad_spec_is_refused_with_its_line(tmp_path, kind):
    old, new, what, where = SPECS[kind]
    assert old in SPEC
    error = refused(tmp_path, SPEC.replace(old, new, 1))
    assert isinstance(error, SpecError)
    assert what in error.what
    assert where in error.where


EVENT_KINDS = {
    "no such code": ("1,2024-03-01 08:10,A,3\n", "", "no event has the code 'A'.", 'line 13: codes = "A"', "may_be_absent"),
    "no such column": ("value\n", "val\n", "there is no column 'value' for value.", "the columns are", "val"),
    "no subject": ("1,2024-03-01 08:30,D", ",2024-03-01 08:30,D", "'subject_id' is missing on 1 of 5 rows.",
                   "code DRUG", "about somebody"),
    "no code": ("DRUG", "", "'code' is missing on 1 of 5 rows.", "time 2024-03-01 08:30:00", "needs a code"),
    "no time": ("08:30,D", "25:30,D", "1 of 5 rows have a time that cannot be read.", "subject 1", "like 2024"),
    "two zones": ("08:30,D", "08:30+02:00,D", "'time' has a time zone on 1 of 5 rows.", "subject 1", "cannot be guessed"),
    "no number": (",A,3", ",A,high", "1 of 1 rows of 'A' have a value that is no number.", "line 13", "or mend the values"),
    "infinite": (",A,3", ",A,inf", "1 rows of 'A' have an infinite value.", "line 13", "valid = [0, 500]"),
    "too large": (",A,3", ",A,3e30", "'A' has a value of size 3e+30, too far from 1", "line 13", "change the unit"),
    "too small": (",A,3", ",A,3e-9", "'A' has a value of size 3e-09, too far from 1", "line 13", "change the unit"),
    "no rows": (EVENTS.split("\n", 1)[1], "", "there are no events.", "", "no rows"),
    "no decision": ("09:00,OUT", "08:00,OUT", "", "", ""),
    "no reward": ("08:40,R", "07:40,R", "the reward is missing at 1 of 1 decisions", "episode 1#1", "missing = 0.0"),
}  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in EVENT_KINDS if kind != "no decision"])
def test_bad_events_are_refused(tmp_path, kind):
    old, new, what, where, do = EVENT_KINDS[kind]
    assert old in EVENTS
    error = refused(tmp_path, SPEC, EVENTS.replace(old, new, 1))
    assert isinstance(error, LogError)
    assert what in error.what
    assert where in error.where
    assert do in error.do


INTERVAL = '[[interval]]\nname = "on"\nstart = "START"\nstop = "STOP"\n'


def test_what_is_advised_for_an_absent_code_can_be_written(tmp_path):
    error = refused(tmp_path, SPEC + INTERVAL)
    assert error.what == "no event has the code 'START'."
    assert "may_be_absent" in error.do
    (tmp_path / "spec.toml").write_text(SPEC + INTERVAL + "may_be_absent = true\n")
    (tmp_path / "events.csv").write_text(EVENTS)
    made = build(tmp_path / "events.csv", tmp_path / "spec.toml", tmp_path / "log.parquet")
    assert made.counts["decisions"] == 1
    for old, new in (('start = "IN"', 'start = "INN"'), ('every = "1 h"', 'on = "ROUND"')):
        (tmp_path / "log.parquet").unlink(missing_ok=True)
        error = refused(tmp_path, SPEC.replace(old, new))
        assert "no event has the code" in error.what
        assert error.do.endswith("Name one that the events have.")


def test_events_without_a_decision_are_refused(tmp_path):
    events = "".join(line for line in EVENTS.splitlines(True) if "08:" not in line)
    events += "1,2024-03-01 10:00,IN,\n1,2024-03-01 09:00,A,1\n1,2024-03-01 09:00,R,1\n1,2024-03-01 09:00,DRUG,1\n"
    error = refused(tmp_path, SPEC, events)
    assert error.what == "there is no decision in 1 episodes of 1 subjects."
    assert "Does an episode last longer than an instant?" in error.do


def test_an_end_far_away_is_refused(tmp_path):
    error = refused(tmp_path, SPEC, EVENTS.replace("2024-03-01 09:00,OUT", "9024-03-01 09:00,OUT"))
    assert error.what == "an episode would have 61,360,729 decisions."
    assert "horizon" in error.do


def test_rows_that_end_before_they_begin_are_refused(tmp_path):
    events = WITH_ENDS.replace(",2,\n", ",2,2024-03-01 08:20\n")
    error = refused(tmp_path, SPEC.replace("[source]", '[source]\nend = "stop"'), events)
    assert error.what == "1 of 5 rows end before they begin."


def test_zones_of_one_row_are_not_mixed(tmp_path):
    events = WITH_ENDS.replace(",2,\n", ",2,2024-03-01 08:50+01:00\n")
    error = refused(tmp_path, SPEC.replace("[source]", '[source]\nend = "stop"'), events)
    assert error.what == "1 of 5 rows have a time zone in one of their times and none in another."
    assert error.where == "subject 1, time 2024-03-01 08:30:00, code DRUG"


def test_a_dose_of_a_row_without_an_end_is_refused(tmp_path):
    spec = SPEC.replace("[source]", '[source]\nend = "stop"').replace('"sum"\ne', '"dose"\ne')
    error = refused(tmp_path, spec, WITH_ENDS)
    assert error.what == "1 rows of 'DRUG' have no end, and a dose needs one."


def test_times_that_are_numbers_need_a_unit(tmp_path):
    import duckdb

    (tmp_path / "spec.toml").write_text(SPEC)
    with duckdb.connect() as con:
        con.execute(
            f"COPY (SELECT 1 AS subject_id, 2 AS time, 'A' AS code, 3.0 AS value) TO '{tmp_path}/e.parquet'"
        )
    with pytest.raises(LogError, match="holds numbers, and their unit is not said"):
        build(tmp_path / "e.parquet", tmp_path / "spec.toml", tmp_path / "log.parquet")
    assert not (tmp_path / "log.parquet").exists()


def test_files_with_and_without_a_zone_are_not_mixed(tmp_path):
    import duckdb

    (tmp_path / "spec.toml").write_text(SPEC)
    with duckdb.connect() as con:
        for kind in ("TIMESTAMP", "TIMESTAMPTZ"):
            con.execute(f"COPY (SELECT 1 AS subject_id, {kind} '2024-03-01 08:00:00' AS time, 'A' AS code, "
                        f"3.0 AS value) TO '{tmp_path}/{kind}.parquet'")  # fmt: skip
    with pytest.raises(LogError, match="has a time zone in some files and none in others"):
        build(tmp_path / "*.parquet", tmp_path / "spec.toml", tmp_path / "log.parquet")


TABLES = {
    "column": ("episode,", "stay,", "there is no column 'episode' for id."),
    "name": ("s1,1", ",1", "1 rows of the table of episodes have no name."),
    "subject": ("s1,1", "s1,", "have no subject, or one that the events cannot have."),
    "beginning": ("08:00,", ",", "have no beginning."),
    "time": ("08:00,", "8 in the morning,", "have a time that cannot be read."),
    "end": ("09:00\n", "07:00\n", "have an end before its beginning."),
    "zone": ("08:00,", "08:00+01:00,", "are not like the events, whose times have none."),
    "twice": ("s2,", "s1,", "the episode 's1' is in the table 2 times."),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_bad_table_of_episodes_is_refused(tmp_path, kind):
    old, new, what = TABLES[kind]
    table = (
        "episode,subject_id,start,end\n"
        "s1,1,2024-03-01 08:00,2024-03-01 09:00\ns2,1,2024-03-02 08:00,\n"
    )
    assert old in table
    new_table = (
        table.replace(old, new, 1).replace("2024-03-01 ,", ",").replace("2024-03-01 8 in", "8 in")
    )
    (tmp_path / "stays.csv").write_text(new_table)
    spec = SPEC.replace('by = "code"\nstart = "IN"', 'by = "table"\ntable = "stays.csv"')
    assert what in refused(tmp_path, spec).what


def test_bad_arguments_are_refused(tmp_path):
    for options, what in (
        ({"out": "log.csv"}, "must end in .parquet"),
        ({"out": "none/log.parquet"}, "the folder of"),
        ({"memory": "much"}, "memory must be a size such as 4GB; got 'much'."),
        ({"threads": 0}, "threads"),
    ):
        assert what in refused(tmp_path, SPEC, **options).what
    (tmp_path / "log.flow.md").mkdir()
    assert "is a folder" in refused(tmp_path, SPEC).what


def test_the_events_are_not_overwritten(tmp_path):
    import duckdb

    (tmp_path / "spec.toml").write_text(SPEC)
    with duckdb.connect() as con:
        con.execute(f"COPY (SELECT 1 AS subject_id) TO '{tmp_path}/e.parquet'")
    with pytest.raises(ParameterError, match="would be overwritten, and it is read"):
        build(tmp_path / "e.parquet", tmp_path / "spec.toml", tmp_path / "e.parquet")


def test_a_build_that_fails_keeps_the_old_log(tmp_path):
    (tmp_path / "log.parquet").write_text("old")
    refused(tmp_path, SPEC, EVENTS.replace("08:40,R", "07:40,R"))
    assert (tmp_path / "log.parquet").read_text() == "old"


def test_there_is_no_spec(tmp_path):
    with pytest.raises(LogError, match="there is no file"):
        read_spec(tmp_path / "none.toml")
    (tmp_path / "spec.toml").write_text(SPEC)
    with pytest.raises(LogError, match="no file of events is named"):
        build(None, tmp_path / "spec.toml", tmp_path / "log.parquet")


def test_the_command_says_the_three_lines(tmp_path, run):
    (tmp_path / "spec.toml").write_text(SPEC.replace('"2 h"', '"-2 h"'))
    code, out, err = run(
        "build", tmp_path / "spec.toml", "--out", tmp_path / "log.parquet", "--json"
    )
    assert code == 1
    assert '"kind": "SpecError"' in out
    assert 'first: line 14: within = "-2 h"' in err
