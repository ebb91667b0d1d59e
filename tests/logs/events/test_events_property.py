"""Random events, random specs: the builder against a slow reading in plain Python."""

from __future__ import annotations

import math
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
from slow_events import HOUR, Event, slow_log

from dprl.logs.events import build


def same(a, b):
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


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
    names, rows = rows_of(tmp_path / "log.parquet")
    got = [dict(zip(names, row, strict=True)) for row in rows]
    assert [(r["episode"], r["step"]) for r in got] == [(e[0], e[2]) for e in expected], seed
    for row, (name, who, k, t, state, action, reward, ended) in zip(got, expected, strict=True):
        where = (seed, name, k)
        assert (row["subject"], row["time"], row["ended"]) == (who, t / HOUR, ended), where
        for feature, value in zip(spec.features, state, strict=True):
            assert same(row[feature.name], value), (*where, feature, row[feature.name], value)
        assert row["action"] == action, (*where, spec.action)
        assert same(row["reward"], reward), (*where, spec.rewards)
    return len(got)


@pytest.mark.parametrize("seed", range(5))
def test_the_builder_agrees_with_a_slow_reading(tmp_path, seed):
    compare(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_the_builder_agrees_with_a_slow_reading_often(tmp_path, seed):
    compare(tmp_path, seed)
