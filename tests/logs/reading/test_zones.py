"""Times with a zone: the order of moments, the look of the chart, also when clocks go back."""

from __future__ import annotations

import datetime
from dataclasses import replace
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import dprl
from dprl.apps.reports._report import report
from dprl.apps.reports.changes import describe_changes
from dprl.errors import LogError

pandas = pytest.importorskip("pandas")

CHARTED = [  # one night in Berlin: 02:30 comes twice
    "2024-10-27 01:30:00+02:00", "2024-10-27 02:30:00+02:00", "2024-10-27 02:30:00+01:00",
    "2024-10-27 03:30:00+01:00",
]  # fmt: skip
COLUMNS = {"episode": "e", "time": "t", "state": "s", "action": "a", "reward": "r"}
SHUFFLED = [2, 0, 3, 1]


@pytest.fixture
def night():
    """The rows of that night, out of order; r says which comes when."""
    times = pandas.to_datetime(CHARTED, utc=True).tz_convert("Europe/Berlin")
    frame = pandas.DataFrame(
        {"e": 0, "t": times, "s": ["w", "x", "y", "z"], "a": "a", "r": [0.0, 1.0, 2.0, 3.0]}
    )
    return frame.iloc[SHUFFLED]


def as_charted(log):
    assert log.reward.tolist() == [0, 1, 2, 3]
    return [log.clock(row) for row in range(log.n_steps)]


def sources(night, folder):
    polars = pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    import duckdb

    text = night.assign(t=[CHARTED[i] for i in SHUFFLED])
    text.to_csv(folder / "space.csv", index=False)
    text.assign(t=[t.replace(" ", "T") for t in text.t]).to_csv(folder / "iso.csv", index=False)
    night.to_parquet(folder / "pandas.parquet")
    polars.from_pandas(night).write_parquet(folder / "polars.parquet")
    arrow = pyarrow.Table.from_pandas(night, preserve_index=False).replace_schema_metadata({})
    parquet.write_table(arrow, folder / "arrow.parquet")
    yield from (dprl.read(path, **COLUMNS) for path in sorted(folder.iterdir()))
    yield from (
        dprl.from_frame(frame, **COLUMNS)
        for frame in (night, night.astype({"t": object}), polars.from_pandas(night), arrow)
    )
    columns = {part: night[name] for part, name in COLUMNS.items()}
    yield dprl.from_arrays(**columns)
    yield dprl.from_arrays(**{k: v.tolist() for k, v in columns.items()})
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'Europe/Berlin'")
        yield dprl.from_frame(con.sql("SELECT * FROM night"), **COLUMNS)


def test_every_source_keeps_the_order_and_shows_what_was_charted(night, tmp_path):
    logs = list(sources(night, tmp_path))
    assert len(logs) == 5 + 4 + 2 + 1
    for log in logs:
        assert as_charted(log) == CHARTED
        assert log.time.astype("datetime64[m]").tolist() == [
            datetime.datetime(2024, 10, day, hour, 30)
            for day, hour in ((26, 23), (27, 0), (27, 1), (27, 2))
        ]
    assert len({log.digest() for log in logs}) == 1


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["2024-01-01T10:00:00Z", "2024-01-01T11:00:00Z"], "2024-01-01 10:00:00+00:00"),
        (["2024-01-01 10:00:00-0530", "2024-01-01 11:00:00-0530"], "2024-01-01 10:00:00-05:30"),
        (
            ["2024-01-01 10:00:00.25+02", "2024-01-01 11:00:00+02"],
            "2024-01-01 10:00:00.250000+02:00",
        ),
        (
            ["2024-07-01 10:00:00 Europe/Berlin", "2024-07-01 11:00:00 Europe/Berlin"],
            "2024-07-01 10:00:00+02:00",
        ),
        (["2024-01-01 10:00:00", "2024-01-01 11:00:00"], "2024-01-01 10:00:00"),
        (["2024-01-01", "2024-01-02"], "2024-01-01 00:00:00"),
        (["2024-01-01 10:00", "2024-01-01 11:00"], "2024-01-01 10:00:00"),
        (["3", "7"], "3"),
    ],
)
def test_forms_of_text(words, shown, tmp_path):
    lines = ["e,t,s,a,r", *(f"0,{t},x,a,0" for t in words)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    log = dprl.read(tmp_path / "t.csv", **COLUMNS)
    assert log.clock(0) == shown
    assert (log.offset is None) == (shown.count(":") < 3)


@pytest.mark.parametrize("text", [True, False])
def test_zones_on_some_times_only_are_refused(text, tmp_path):
    words = ["2024-01-01 10:00:00+02:00", "2024-01-01 09:00:00"]
    if text:
        (tmp_path / "t.csv").write_text("e,t,s,a,r\n" + "\n".join(f"0,{t},x,a,0" for t in words))
        with pytest.raises(LogError, match="time zone in 1 of 2 times"):
            dprl.read(tmp_path / "t.csv", **COLUMNS)
        return
    with pytest.raises(LogError, match="time zone in 1 of 2 times"):
        dprl.from_arrays(
            episode=[0, 0], time=[datetime.datetime.fromisoformat(w) for w in words],
            state=["x", "x"], action=["a", "a"], reward=[0.0, 0.0],
        )  # fmt: skip


def test_what_is_written_comes_back_as_charted(night, tmp_path):
    log = dprl.from_frame(night.assign(t=night.t.dt.as_unit("ns")), **COLUMNS)
    for name in ("t.csv", "t.parquet"):
        dprl.write(log, tmp_path / name)
        again = dprl.read(tmp_path / name, **COLUMNS)
        assert as_charted(again) == CHARTED
        assert (again.time == log.time).all()


def test_a_label_is_what_its_clock_says(night):
    moved = night.assign(stay=night.t)
    log = dprl.from_frame(moved, episode="stay", state="s", action="a", reward="r")
    assert sorted(log.episodes) == sorted(CHARTED)


def test_messages_and_pages_show_what_was_charted(tmp_path):
    berlin = ZoneInfo("Europe/Berlin")
    start = datetime.datetime(2024, 7, 1, 8, 15, tzinfo=berlin)
    took = np.arange(60) % 3 == 0

    def log(first):
        return dprl.from_arrays(
            episode=[f"p{first + i}" for i in range(60)],
            time=[start + datetime.timedelta(days=first + i) for i in range(60)],
            state=["s"] * 60, action=np.where(took, "b", "a").tolist(),
            reward=[float(x) for x in took],
        )  # fmt: skip

    policy = dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(log(0))
    other = log(100)
    found = describe_changes(policy, other)
    cases = [c for side in found.cases(found.changes[0]) for c in side]
    assert {c.time[-14:] for c in cases} <= {"08:15:00+02:00", "08:15:00+01:00"}
    report(policy, other, tmp_path / "r.html", values=False, draws=20, cases=2)
    assert "08:15:00+0" in (tmp_path / "r.html").read_text(encoding="utf-8")
    with pytest.raises(LogError, match=r"2024-07-01 08:15:00\+02:00"):
        dprl.from_arrays(
            episode=[0, 0], time=[start, start], state=["s", None], action=["a", "a"],
            reward=[0.0, 0.0],
        )  # fmt: skip
    with pytest.raises(LogError, match="offset"):
        replace(other, time=np.arange(60))


def test_parts_of_a_log_keep_their_zone(night):
    log = dprl.from_frame(pandas.concat([night, night.assign(e=1)]), **COLUMNS)
    assert [log.take([1]).clock(row) for row in range(4)] == CHARTED
    grouped = replace(log, group=np.array([1, 0]), groups=("p", "q"))
    assert [grouped.gathered().clock(row) for row in range(4)] == CHARTED


# -- what is no moment for certain ---------------------------------------------------------------


def read_times(folder, times, **options):
    rows = "".join(f"1,{t},s,a,{i}\n" for i, t in enumerate(times))
    (folder / "t.csv").write_text(f"e,t,s,a,r\n{rows}")
    return dprl.read(folder / "t.csv", **COLUMNS, **options)


@pytest.mark.parametrize("zone", ["BST", "CET", "EST", "IST", "GMT", "Cuba"])
def test_abbreviations_of_zones_are_refused(zone, tmp_path):
    """DuckDB takes BST for UTC+6 and CET in July for UTC+2."""
    with pytest.raises(LogError, match="no moment for certain"):
        read_times(tmp_path, [f"2024-07-01 10:00:00 {zone}", f"2024-07-01 11:00:00 {zone}"])


@pytest.mark.parametrize(
    "times",
    [["infinity", "2024-07-01"], ["epoch", "2024-07-01"], ["1", "infinity"], ["-inf", "3"]],
)
def test_words_are_no_times(times, tmp_path):
    with pytest.raises(LogError, match=r"no moment for certain|infinite|must be numbers or dates"):
        read_times(tmp_path, times)


def test_numbers_that_are_infinite_are_no_times(tmp_path):
    given = {"episode": [1, 1], "state": [0, 0], "action": [0, 1], "reward": [0, 1]}
    with pytest.raises(LogError, match="infinite"):
        dprl.from_arrays(**given, time=[0.0, np.inf])
    frame = pandas.DataFrame(
        {"e": [1, 1], "t": [0.0, np.inf], "s": 0, "a": [0, 1], "r": [0.0, 1.0]}
    )
    frame.to_parquet(tmp_path / "t.parquet")
    for read in (dprl.read, dprl.scan):
        with pytest.raises(LogError, match="infinite"):
            read(tmp_path / "t.parquet", **COLUMNS)
    import duckdb

    duckdb.execute(
        "COPY (SELECT 1 AS e, 0 AS s, 0 AS a, 0.0 AS r, t FROM (VALUES ('infinity'::TIMESTAMP), "
        f"('2024-01-01'::TIMESTAMP)) AS x(t)) TO '{tmp_path / 'd.parquet'}'"
    )
    for read in (dprl.read, dprl.scan):
        with pytest.raises(LogError, match="infinite"):
            read(tmp_path / "d.parquet", **COLUMNS)


@pytest.mark.parametrize("local", ["2024-10-27 02:30:00", "2024-03-31 02:30:00"])
def test_a_local_time_that_comes_twice_or_never_is_refused(local, tmp_path):
    with pytest.raises(LogError, match="comes twice or never"):
        read_times(tmp_path, [f"{local} Europe/Berlin", "2024-12-01 04:00:00 Europe/Berlin"])
    log = read_times(
        tmp_path, [f"{local[:10]} 01:30:00 Europe/Berlin", f"{local[:10]} 03:00:00 Europe/Berlin"]
    )
    assert log.reward.tolist() == [0, 1]


def test_parquet_files_with_and_without_a_zone_are_not_read_together(tmp_path):
    for name, zone in (("a", None), ("b", "Europe/Berlin")):
        times = pandas.to_datetime([f"2024-07-01 1{i}:00" for i in range(2)]).tz_localize(zone)
        pandas.DataFrame({"e": name, "t": times, "s": 0, "a": [0, 1], "r": [0.0, 1.0]}).to_parquet(
            tmp_path / f"{name}.parquet"
        )
    both = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for read in (dprl.read, dprl.scan):
        with pytest.raises(LogError, match="time zone in some files and none in others"):
            read(both, **COLUMNS)
    with pytest.raises(LogError, match="time zone in some files and none in others"):
        dprl.read(both, **{**COLUMNS, "time": None, "state": ["t", "s"]})
