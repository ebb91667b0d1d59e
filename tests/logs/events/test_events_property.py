"""Random events, random specs: the builder against a slow reading in plain Python."""

from __future__ import annotations

import random

import pytest
from random_events import (
    CODES,
    random_events,
    random_table,
    rows_of,
    usable_spec,
    with_table,
    write_events,
)
from slow_events import HOUR, Event, assert_same_rows, slow_log

from dprl.logs.events import build


def compare(tmp_path, seed):
    rng = random.Random(seed)
    events = random_events(rng)
    present = {e.code for e in events}
    events += [Event("p0", 1, code, 1.0, None, 1) for code in CODES if code not in present]
    spec = usable_spec(rng)
    if spec.episodes.by == "table":
        table = random_table(rng, tmp_path / "stays.csv")
        spec = with_table(spec, tmp_path / "stays.csv")
    else:
        table = ()
    expected = sorted(slow_log(events, spec, table), key=lambda row: (row[0], row[2]))
    write_events(tmp_path / "events.csv", events)
    if not expected:
        with pytest.raises(Exception, match="there is no decision"):
            build(tmp_path / "events.csv", spec, tmp_path / "log.parquet")
        return 0
    build(tmp_path / "events.csv", spec, tmp_path / "log.parquet", threads=1)
    return assert_same_rows(
        *rows_of(tmp_path / "log.parquet"), expected, spec, lambda t: t / HOUR, seed
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_builder_agrees_with_a_slow_reading(tmp_path, seed):
    compare(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_the_builder_agrees_with_a_slow_reading_often(tmp_path, seed):
    compare(tmp_path, seed)
