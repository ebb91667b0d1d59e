"""Events as people have them: decimal commas, other encodings, dates, zones, delimiters and labels."""

from __future__ import annotations

import datetime
from dataclasses import replace

import duckdb
import pytest

import dprl
from dprl.errors import DprlError
from dprl.logs.events import SpecError, build, explain, read_spec
from dprl.logs.events.moments import Written, moment
from dprl.logs.reading.dates import _moment
from dprl.logs.reading.text import Text

SPEC = """\
[source]
value = "value"
[episodes]
by = "code"
start = "Aufnahme"
[[end]]
codes = "Entlassung"
[clock]
every = "4 h"
[[feature]]
name = "druck"
take = "mean"
codes = "Blutdruck"
within = "24 h"
[[action.part]]
name = "noradrenalin"
codes = "Noradrenalin für Erwachsene"
[[reward]]
at = "end"
codes = "Entlassung"
"""
EVENTS = """\
subject_id,time,code,value
1,2024-02-01 08:00,Aufnahme,
1,2024-02-01 09:30,Blutdruck,58.25
1,2024-02-01 13:00,Noradrenalin für Erwachsene,0.1
1,2024-02-01 14:00,Blutdruck,61.5
1,2024-02-01 21:00,Entlassung,
"""
GERMAN = """\
subject_id;time;code;value
1;1.2.2024 08:00;Aufnahme;
1;01.02.2024 9:30;Blutdruck;58,25
1;01.02.2024, 13:00:00;Noradrenalin für Erwachsene;0,1
1;2024-02-01 14:00;Blutdruck;61,5
1;01.02.2024 21:00;Entlassung;
"""
KEYS = {"decimal": ",", "encoding": "cp1252", "dates": "day-first", "delimiter": ";"}


def made(folder, events=EVENTS, keys=None, spec=SPEC, encoding="utf-8", table=None):
    """The log of events that are written as said, and the bytes of its file."""
    folder.mkdir(exist_ok=True)
    lines = "".join(f'{key} = "{value}"\n' for key, value in (keys or {}).items())
    (folder / "events.csv").write_text(events, encoding=encoding)
    (folder / "spec.toml").write_text(
        spec.replace("[source]\n", f"[source]\n{lines}"), encoding="utf-8"
    )
    return build(folder / "events.csv", folder / "spec.toml", folder / "log.parquet")


def rows_of(made):
    with duckdb.connect() as con:
        return con.execute(f"SELECT episode, time, druck, action FROM '{made.path}'").fetchall()


def test_a_german_export_makes_the_log_of_the_plain_one(tmp_path):
    plain = made(tmp_path / "plain")
    german = made(tmp_path / "german", GERMAN, KEYS, encoding="cp1252")
    assert german.path.read_bytes() == plain.path.read_bytes()
    assert rows_of(plain)[2][2:] == (59.875, "none")
    assert rows_of(plain)[1][3] == "noradrenalin"


@pytest.mark.slow
def test_the_same_is_said_in_python(tmp_path):
    made(tmp_path / "german", GERMAN, KEYS, encoding="cp1252")
    spec = read_spec(tmp_path / "german" / "spec.toml")
    in_python = replace(spec, source=dprl.events.Source(value="value", **KEYS), lines=None)
    log = dprl.from_events(tmp_path / "german" / "events.csv", in_python)
    (tmp_path / "plain.csv").write_text(EVENTS)
    plain = replace(spec, source=dprl.events.Source(value="value"), lines=None)
    assert log.digest() == dprl.from_events(tmp_path / "plain.csv", plain).digest()


@pytest.mark.slow
def test_explain_takes_a_time_as_the_events_write_it(tmp_path):
    made(tmp_path / "german", GERMAN, KEYS, encoding="cp1252")
    rows = explain(
        tmp_path / "german" / "events.csv", tmp_path / "german" / "spec.toml", "1", "1.2.2024 12:30"
    )
    assert "Noradrenalin für Erwachsene" in rows["code"]


WRONG = {
    "decimal": ('decimal = ";"', "decimal must be '.' or ','.", "decimal = "),
    "encoding": ('encoding = "klingon"', "this encoding of text cannot be read.", "cp1252"),
    "dates": ('dates = "day first"', "dates must be 'iso', 'day-first'", "day-first"),
    "century": ('dates = "%d.%m.%y"', "a year of two digits", "four digits"),
    "format": ('dates = "%d %Q %b %Y"', "dates of the form '%d %Q %b %Y' cannot be read.", "%d %m %Y"),
    "half a format": ('dates = "%d %Y"', "this format of dates has days and no month.", "%d %b %Y"),
    "labels": ('labels = "upper"', "labels must be 'trim', 'casefold' or 'trim,casefold'.", "trim"),
    "delimiter": ('delimiter = ";;"', "delimiter must be one character.", "delimiter = "),
    "zone": ('time_zone = "Berlin"', "there is no time zone 'Berlin'.", "Europe/Berlin"),
    "zone of numbers": ('time_zone = "UTC"\ntime_unit = "h"', "numbers have no time zone", "Leave one"),
    "OMOP": ('decimal = ","\npreset = "omop"', "OMOP tables are read as the CDM writes them", "Leave it out"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_refused_with_its_line(tmp_path, kind):
    line, what, do = WRONG[kind]
    (tmp_path / "events.csv").write_text(EVENTS)
    (tmp_path / "spec.toml").write_text(
        SPEC.replace("[source]\n", f"[source]\n{line}\n"), encoding="utf-8"
    )
    with pytest.raises(SpecError) as error:
        build(tmp_path / "events.csv", tmp_path / "spec.toml", tmp_path / "log.parquet")
    assert what in error.value.what
    assert f"line 2: {line.splitlines()[0]}" in error.value.where
    assert do in error.value.do
    assert not (tmp_path / "log.parquet").exists()


UNSAID = {
    "dates": (("dates", "delimiter"), "4 of 5 rows have a time that cannot be read.", "'1.2.2024 08:00'", 'dates = "day-first"'),
    "decimal": (("decimal",), "2 of 2 rows of 'Blutdruck' have a value that is no number.", "'58,25'", 'decimal = ","'),
    "encoding": (("encoding",), "could not be read", "", 'encoding = "cp1252"'),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNSAID)
def test_what_is_not_said_is_asked_for(tmp_path, kind):
    gone, what, where, do = UNSAID[kind]
    keys = {key: value for key, value in KEYS.items() if key not in gone}
    with pytest.raises(DprlError) as error:
        made(tmp_path / "german", GERMAN, keys, encoding="cp1252")
    assert what in error.value.what
    assert where in error.value.where
    assert do in error.value.do


TEXTS = ("1.2.2024", "01.02.2024 7:05", "1/2/2024, 07:05:09", "13-02-2024 07:05:09.25", "2024-02-01 07:05",
         "2024/2/1", "1.2.24", "31.02.2024", "1.2.2024T07:05+02:00", "2024-02-01 07:05:00+02:00", "soon", "07:05",
         "2024-02-01T07:05:00Z", "1 Feb 2024 07:05", "Feb 1")  # fmt: skip


@pytest.mark.parametrize("dates", ["iso", "day-first", "month-first", "%d %b %Y %H:%M", "%d.%m.%Y"])
def test_dates_mean_what_they_mean_in_read(dates):
    """Every text is the same moment as in `dprl.read`, or no time in either."""
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        sql = moment("x", "VARCHAR", "", "", Written(Text(dates=dates)))
        for words in TEXTS:
            micros, bad, day = con.execute(
                f"SELECT {sql.micros}, {sql.bad}, {sql.day} FROM (SELECT CAST(? AS VARCHAR) AS x)",
                [words],
            ).fetchone()
            meant = _moment(words, dates)
            assert bad == (meant is None), words
            if meant is not None:
                utc = meant.replace(tzinfo=meant.tzinfo or datetime.UTC)
                assert micros == round(utc.timestamp() * 1e6), words
                assert day == (":" not in words), words


LOCAL = """\
subject_id,time,code,value
1,2024-10-27 00:30,Aufnahme,
1,2024-10-27,Blutdruck,60
1,2024-10-27 08:00,Noradrenalin für Erwachsene,1
1,2024-10-28 02:00,Entlassung,
"""


@pytest.mark.slow
def test_a_zone_turns_local_times_into_moments(tmp_path):
    """The clocks are set back that night: the stay lasts 26.5 hours, and its day has 25."""
    berlin = made(tmp_path / "berlin", LOCAL, {"time_zone": "Europe/Berlin"})
    offsets = (
        LOCAL.replace(" 00:30", " 00:30+02:00")
        .replace(" 08:00", " 08:00+01:00")
        .replace(" 02:00", " 02:00+01:00")
    )
    offsets = offsets.replace(
        "2024-10-27,B", "2024-10-28 00:00+01:00,B"
    )  # known when the day is over
    moments = made(tmp_path / "moments", offsets)
    assert rows_of(berlin)[0][1] == datetime.datetime(2024, 10, 26, 22, 30)
    assert len(rows_of(berlin)) == 7  # 26.5 hours in windows of 4
    assert rows_of(berlin) == rows_of(moments)
    assert [row[2] for row in rows_of(berlin)] == [
        None
    ] * 7  # known at 23:00 UTC, after the last decision
    some = made(
        tmp_path / "some",
        offsets.replace("2024-10-27 08:00+01:00", "2024-10-27 08:00"),
        {"time_zone": "Europe/Berlin"},
    )
    assert rows_of(some) == rows_of(moments)


@pytest.mark.slow
def test_a_date_with_slashes_is_known_when_its_day_is_over(tmp_path):
    spec = SPEC.replace('every = "4 h"', 'every = "12 h"').replace('"24 h"', '"72 h"')
    stay = "subject_id,time,code,value\n1,2024-03-01 00:00,Aufnahme,\n1,{},Blutdruck,60\n"
    stay += "1,2024-03-01 02:00,Noradrenalin für Erwachsene,1\n1,2024-03-02 13:00,Entlassung,\n"
    dashes = made(tmp_path / "dashes", stay.format("2024-03-01"), spec=spec)
    slashes = made(tmp_path / "slashes", stay.format("2024/03/01"), spec=spec)
    assert [row[2] for row in rows_of(dashes)] == [None, None, None, 60.0]
    assert rows_of(slashes) == rows_of(dashes)


@pytest.mark.slow
def test_codes_are_trimmed_and_written_small_where_that_is_asked_for(tmp_path):
    plain = made(tmp_path / "plain")
    messy = EVENTS.replace(",Blutdruck,58", ", BLUTDRUCK ,58").replace(
        ",Noradrenalin für", ",noradrenalin FÜR"
    )
    both = made(tmp_path / "both", messy, {"labels": "trim,casefold"})
    assert both.path.read_bytes() == plain.path.read_bytes()
    spec = SPEC.replace('"Blutdruck"', '" blutDRUCK"')
    assert (
        made(tmp_path / "spec", messy, {"labels": "casefold,trim"}, spec).path.read_bytes()
        == plain.path.read_bytes()
    )


@pytest.mark.slow
def test_equal_rows_in_two_spellings_are_equal_rows(tmp_path):
    spec = SPEC.replace('take = "mean"', 'take = "count"')
    twice = EVENTS + "1,2024-02-01 09:30,BLUTDRUCK,58.25\n"
    keep = made(tmp_path / "keep", twice, {"labels": "casefold"}, spec)
    drop = made(tmp_path / "drop", twice, {"labels": "casefold", "duplicates": "drop"}, spec)
    assert (rows_of(keep)[1][2], rows_of(drop)[1][2]) == (2, 1)


def test_a_leak_is_seen_in_any_spelling(tmp_path):
    spec = SPEC.replace(
        'codes = "Blutdruck"\n', 'codes = "NORADRENALIN FÜR ERWACHSENE"\nuntil = "at"\n'
    )
    with pytest.raises(SpecError, match="would see the action of its own decision"):
        made(tmp_path / "leak", keys={"labels": "casefold"}, spec=spec)


@pytest.mark.slow
def test_a_table_of_episodes_is_written_like_the_events(tmp_path):
    spec = SPEC.replace('by = "code"\nstart = "Aufnahme"', 'by = "table"\ntable = "stays.csv"')
    spec = spec.replace('[[end]]\ncodes = "Entlassung"\n', "")
    (tmp_path / "german").mkdir()
    (tmp_path / "german" / "stays.csv").write_text(
        "episode;subject_id;start;end\nFrühling;1;1.2.2024 08:00;1.2.2024 21:00\n",
        encoding="cp1252",
    )
    german = made(tmp_path / "german", GERMAN, KEYS, spec, "cp1252")
    assert [row[0] for row in rows_of(german)] == ["Frühling"] * 4
