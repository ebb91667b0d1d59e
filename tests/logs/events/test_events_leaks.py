"""No state sees what comes after its decision: specs that would are refused, and events are moved."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from random_events import (
    CODES,
    HALF,
    random_events,
    random_table,
    rows_of,
    usable_spec,
    with_table,
    write_events,
)
from slow_events import HOUR, Event

from dprl.errors import LogError
from dprl.logs.events import SpecError, build, read_spec

GOOD = """
[episodes]
by = "code"
start = "IN"

[clock]
every = "1 h"

[[feature]]
name = "a"
take = "last"
codes = "A"
within = "2 h"

[[feature]]
name = "b"
take = "last"
codes = ["B", "DRUG*"]
within = "2 h"

[[action.part]]
name = "drug"
codes = "DRUG//*"

[[reward]]
codes = "SCORE"
take = "last"
missing = 0
"""


def refused(tmp_path, text):
    (tmp_path / "spec.toml").write_text(text)
    with pytest.raises(SpecError) as error:
        read_spec(tmp_path / "spec.toml")
    return error.value


def test_a_spec_that_sees_only_the_past_is_taken(tmp_path):
    (tmp_path / "spec.toml").write_text(GOOD)
    assert [f.name for f in read_spec(tmp_path / "spec.toml").features] == ["a", "b"]


def test_a_feature_must_not_count_the_action_at_its_decision(tmp_path):
    error = refused(
        tmp_path, GOOD.replace('codes = ["B", "DRUG*"]', 'codes = ["B", "DRUG*"]\nuntil = "at"')
    )
    assert "feature 'b' would see the action of its own decision" in error.what
    assert "'DRUG*'" in error.what
    assert error.where == 'line 18: codes = ["B", "DRUG*"]'
    assert error.do == 'Write until = "before" there (line 24: codes = "DRUG//*").'


def test_a_feature_must_not_count_the_reward_at_its_decision(tmp_path):
    leaky = GOOD.replace('codes = "A"', 'codes = "SC*"\nuntil = "at"')
    assert "would see the reward of its own decision" in refused(tmp_path, leaky).what
    fine = leaky.replace("missing = 0", 'missing = 0\nside = "finish"')  # rows at t are not counted
    (tmp_path / "spec.toml").write_text(fine)
    read_spec(tmp_path / "spec.toml")


def test_a_result_is_not_known_before_it_is_measured(tmp_path):
    error = refused(tmp_path, GOOD.replace('codes = "A"', 'codes = "A"\nknown_after = "-2 h"'))
    assert error.what == "known_after must be a duration, not negative, such as '4 h'; got '-2 h'."
    assert error.where == 'line 13: known_after = "-2 h"'


def test_a_look_back_does_not_look_ahead(tmp_path):
    error = refused(tmp_path, GOOD.replace('within = "2 h"', 'within = "-2 h"', 1))
    assert "within must be a duration" in error.what
    assert error.where == 'line 13: within = "-2 h"'


@pytest.mark.parametrize("code", ["SCORE", "DRUG//x", "IN", "OUT"])
def test_what_happens_later_is_not_static(tmp_path, code):
    text = GOOD.replace('codes = "A"\nwithin = "2 h"', f'codes = "{code}"\nstatic = true')
    error = refused(tmp_path, text + '[[end]]\ncodes = "OUT"\n')
    assert "would be known from the beginning" in error.what
    assert error.where == f'line 12: codes = "{code}"'


def test_the_clock_does_not_tell_the_action(tmp_path):
    error = refused(tmp_path, GOOD.replace('every = "1 h"', 'on = ["VISIT", "DRUG//x"]'))
    assert "the clock would tell the action" in error.what
    assert error.where == 'line 7: on = ["VISIT", "DRUG//x"]'


def test_rows_that_make_intervals_count_as_the_action(tmp_path):
    text = GOOD.replace('codes = "A"', 'codes = "START"\nuntil = "at"').replace('"DRUG//*"', '"ON"')
    error = refused(tmp_path, text + '[[interval]]\nname = "ON"\nstart = "START"\nstop = "STOP"\n')
    assert "would see the action of its own decision" in error.what


def disturbed(events, rng, moments, known):
    """The events, with all that is not known before t moved, changed, doubled or left out.

    Each subject has its own t (`moments`). What begins at t or later may happen at any time from t on, with any value, or not at all. What
    has begun keeps its time; what is not known yet keeps nothing else.
    """
    new = []
    for e in events:
        t = moments.get(e.subject, 0)
        later = t + rng.randint(0, 30) * HALF
        if e.time is None:
            new.append(e)
        elif e.time >= t:
            for _ in range(rng.choice([0, 1, 1, 2])):
                end = None if e.end is None else later + rng.randint(0, 6) * HALF
                shown = None if e.known is None else later + rng.randint(0, 4) * HALF
                value = rng.choice([None, 0.0, 1.5, 7.0, -3.25])
                new.append(replace(e, time=later, value=value, end=end, known=shown))
        else:
            end = e.end if e.end is None or e.end < t else later
            shown, value = e.known, e.value
            if known and (e.known is None or e.known >= t):
                shown, value = rng.choice([None, later]), rng.choice([None, 0.0, 7.0])
            new.append(replace(e, end=end, known=shown, value=value))
    rng.shuffle(new)
    return new


def check_moved(tmp_path, seed):
    rng = random.Random(seed)
    events = random_events(rng, n_subjects=3)
    present = {e.code for e in events}
    events += [Event("p0", 0, code, 1.0, 0, 0) for code in CODES if code not in present]
    spec = usable_spec(rng)
    random_table(rng, tmp_path / "stays.csv")
    if spec.episodes.by == "table":
        spec = with_table(spec, tmp_path / "stays.csv")
    spec = replace(spec, rewards=tuple(replace(r, may_be_absent=True) for r in spec.rewards))
    later = rng.choice([0, HALF])  # what happens at t itself is moved too, or is not
    names = [f.name for f in spec.features if f.until == "before" or later]
    write_events(tmp_path / "events.csv", events)
    try:
        build(tmp_path / "events.csv", spec, tmp_path / "log.parquet")
    except LogError as error:
        assert "no decision" in error.what
        return 0
    columns, rows = rows_of(tmp_path / "log.parquet")
    before = {
        (r["subject"], r["time"]): r for r in (dict(zip(columns, row, strict=True)) for row in rows)
    }
    moments = {}
    for who, hour in sorted(
        before, key=lambda _: rng.random()
    ):  # best one at which something happens
        busy = any(e.subject == who and e.time == round(hour * HOUR) for e in events)
        if who not in moments or busy:
            moments[who] = round(hour * HOUR) + later
    rest = [Event("p9", 1, code, 1.0, 1, 1) for code in CODES]  # every code is still there
    write_events(tmp_path / "events.csv", disturbed(events, rng, moments, spec.source.known) + rest)
    # decisions themselves may move: all that matters is a state that is still there
    try:
        build(tmp_path / "events.csv", spec, tmp_path / "moved.parquet")
    except LogError as error:
        assert "no decision" in error.what
        return 0
    columns, rows = rows_of(tmp_path / "moved.parquet")
    compared = 0
    for row in (dict(zip(columns, row, strict=True)) for row in rows):
        old = before.get((row["subject"], row["time"]))
        if old is None or round(row["time"] * HOUR) > moments[row["subject"]] - later:
            continue
        if row["episode"] != old["episode"]:
            continue
        assert [row[n] for n in names] == [old[n] for n in names], (
            seed,
            who,
            row["time"],
            spec.features,
        )
        compared += 1
    return compared


@pytest.mark.slow
def test_moving_what_comes_after_changes_no_state(tmp_path):
    assert (
        sum(check_moved(tmp_path, seed) for seed in (15, 29, 0, 1, 2, 3, 4)) > 20
    )  # ties at a decision


@pytest.mark.slow
def test_moving_what_comes_after_changes_no_state_often(tmp_path):
    assert sum(check_moved(tmp_path, seed) for seed in range(100, 120)) > 40
