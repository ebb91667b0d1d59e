"""A fixed time for which every episode is followed, and how an episode can end."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pytest

import dprl
from dprl.logs.censoring import treat_cut
from dprl.logs.log import CUT, EVENT, TERMINAL, UNKNOWN
from dprl.logs.returns import returns

HOURS = np.datetime64("2026-03-01T08:00") + np.arange(0, 60, 10) * np.timedelta64(1, "h")
COLUMNS = {"episode": "stay", "time": "hour", "state": "stage", "action": "drug",
           "reward": "score", "ended": "end"}  # fmt: skip


def stays(time=None, **more):
    """Four stays of 6, 6, 3 and 3 rows; the first of each length ended, the other was cut."""
    lengths = [6, 6, 3, 3]
    episode = np.repeat(["a", "b", "c", "d"], lengths)
    position = np.concatenate([np.arange(n) for n in lengths])
    if time is not None:
        more["time"] = np.asarray(time)[position]
    return dprl.from_arrays(
        episode=episode, state=position % 2, action=position % 3, reward=2.0**position,
        ended=np.repeat(["terminal", "cut", "terminal", "cut"], lengths), **more,
    )  # fmt: skip


# -- the window ------------------------------------------------------------------------------------


def test_rows_after_the_window_do_not_count():
    log = stays(follow_up=4)
    assert log.lengths.tolist() == [4, 4, 3, 3]
    assert log.ended.tolist() == [TERMINAL, TERMINAL, TERMINAL, CUT]  # only d was cut before
    assert returns(log, 1.0)[log.starts[:-1]].tolist() == [15.0, 15.0, 7.0, 7.0]
    assert log.follow_up == "4 steps"
    assert repr(log).endswith("1 episode cut · followed for 4 steps")
    assert log.digest() == stays().followed("4 steps").digest() != stays().digest()
    one, other = log.split(0.5, seed=0)
    assert one.follow_up == other.follow_up == log.gathered().follow_up == "4 steps"


def test_a_window_that_was_just_seen_is_whole():
    assert stays(follow_up=3).ended.tolist() == [TERMINAL] * 4
    assert stays(follow_up=6).ended.tolist() == [TERMINAL, TERMINAL, TERMINAL, CUT]
    assert stays(follow_up=7).ended.tolist() == [TERMINAL, CUT, TERMINAL, CUT]
    np.testing.assert_array_equal(stays(follow_up=7).reward, stays().reward)


@pytest.mark.parametrize(
    ("time", "window", "kept", "cut"),
    [
        ([0, 10, 20, 30, 40, 50], "25 units", [3, 3, 3, 3], [3]),  # d: last seen at 20
        ([0, 10, 20, 30, 40, 50], "20 units", [2, 2, 2, 2], []),
        ([0.0, 10, 20, 30, 40, 50], "50.5 units", [6, 6, 3, 3], [1, 3]),
        (HOURS, "25 hours", [3, 3, 3, 3], [3]),
        (HOURS, "1 day", [3, 3, 3, 3], [3]),
        (HOURS, "0.5 days", [2, 2, 2, 2], []),
        (HOURS, datetime.timedelta(hours=20), [2, 2, 2, 2], []),
        (HOURS, np.timedelta64(20, "h"), [2, 2, 2, 2], []),
        (HOURS, 2, [2, 2, 2, 2], []),
    ],
)
def test_windows_in_time(time, window, kept, cut):
    log = stays(time, follow_up=window)
    assert log.lengths.tolist() == kept
    assert log.cut_episodes.tolist() == cut


@pytest.mark.parametrize(
    ("time", "window", "words"),
    [
        (None, 0, "follow_up must be a whole number of steps"),
        (None, 2.5, "follow_up must be a whole number of steps"),
        (None, True, "follow_up must be"),
        (None, "soon", "follow_up must be"),
        (None, "3 lightyears", "follow_up must be"),
        (None, np.timedelta64("NaT"), "follow_up must be"),
        (None, "3 days", "follow_up is '3 days', and this log has no time column"),
        (range(6), "3 days", "follow_up is '3 days', and times are numbers"),
        (HOURS, "3 units", "follow_up is '3 units', and times are dates"),
    ],
)
def test_windows_that_are_none(time, window, words):
    with pytest.raises(dprl.DprlError, match=words):
        stays(None if time is None else list(time), follow_up=window)


@pytest.mark.parametrize("window", ["730 days", "730 units"])
def test_tables_of_one_row_each_without_times_are_told_of_a_time_and_a_status(window):
    with pytest.raises(dprl.LogError, match="no time column") as said:
        dprl.from_arrays(
            episode=range(4), state=[0] * 4, action=[0, 1] * 2, reward=[0.0, 1.0] * 2,
            follow_up=window,
        )  # fmt: skip
    assert "survival='days,status'" in said.value.do
    with pytest.raises(dprl.LogError, match="no time column") as said:
        stays(follow_up=window)  # rows in time: these are asked for their times
    assert "survival" not in said.value.do


FAR = {
    "int8": ([-100, 20, 100], "121 units"), "int16": ([-30_000, 0, 30_000], "30001 units"),
    "uint8": ([0, 100, 255], "101 units"), "int64": ([-(2**63), 1 - 2**63, 2**63 - 1], "2 units"),
    "uint64": ([0, 1, 2**64 - 1], "1.5 units"), "float16": ([0, 100, 60_000], "100.5 units"),
    "object": ([-100, 20, 100], "121 units"), "timedelta64[D]": ([0, 49, 300], "50 days"),
    "datetime64[ns]": (["1700-01-01", "1700-01-02", "2024-01-01"], "2 days"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FAR)
def test_times_of_every_type_are_far_enough_apart(kind):
    times, window = FAR[kind]
    log = dprl.from_arrays(
        episode=[1] * 3,
        state=[0] * 3,
        action=[0, 1, 0],
        reward=[1.0, 2, 3],
        time=np.array(times, kind),
    )
    assert log.followed(window).n_steps == 2


def test_durations_decimals_and_numbers_that_are_too_large():
    given = {"episode": [1] * 3, "state": [0] * 3, "action": [0, 1, 0], "reward": [1.0, 2, 3]}
    days = [datetime.timedelta(days=d) for d in (0, 49, 300)]
    assert dprl.from_arrays(**given, time=days).followed("50 days").n_steps == 2
    with pytest.raises(dprl.LogError, match="times are durations"):
        dprl.from_arrays(**given, time=days).followed("50 units")
    tenths = [decimal.Decimal(d) for d in ("0.1", "0.3", "9")]
    assert dprl.from_arrays(**given, time=tenths).followed("1 units").n_steps == 2
    with pytest.raises(dprl.LogError, match="too large for a time"):
        dprl.from_arrays(**given, time=np.array([0, 1, 2**70], object))


def test_a_window_cannot_grow():
    log = stays(follow_up=4)
    assert log.followed(3).follow_up == "3 steps"
    assert log.followed(4).digest() == log.digest()
    for longer in (5, "5 units"):
        with pytest.raises(dprl.LogError, match="followed for 4 steps already"):
            log.followed(longer)


@pytest.mark.filterwarnings("ignore:followed for 3 steps:dprl.CutWarning")
def test_policies_certificates_and_evaluations_say_the_window(tmp_path):
    log = dprl.envs.care_pathway().sample(3_000, seed=0).followed(3)
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    policy = learner.fit(log)
    words = "Values are of the first 3 steps of an episode: what comes later does not count."
    assert words in str(policy)
    policy.save(tmp_path / "p.dprl")
    assert dprl.load(tmp_path / "p.dprl").conditions == (words,)
    proved = dprl.gate(learner, log, value_range=(0, 1)).certificate
    assert "Returns are of the first 3 steps of an episode" in proved.details()
    other = dprl.envs.care_pathway().sample(500, seed=1)
    assert words in dprl.evaluate(policy, other.followed(3), draws=10).warnings
    differs = dprl.evaluate(policy, other, draws=10).warnings
    assert any("followed for 3 steps, and these are followed to their end" in w for w in differs)


def test_a_window_leaves_no_cut_to_treat():
    log = stays(follow_up=3)
    assert treat_cut(log, 1.0, None) is log


@pytest.mark.slow
def test_a_command_follows_and_a_policy_keeps_its_window(run, tmp_path):
    rows, rng = ["stay,hour,stage,drug,score,end"], np.random.default_rng(0)
    for e in range(200):
        for t in range(4):
            end = ("death" if e % 5 == 0 else "censored") if t == 3 else ""
            rows.append(f"{e},{t},s{t},{'ab'[rng.integers(2)]},{rng.random():.3f},{end}")
    (tmp_path / "stays.csv").write_text("\n".join(rows))
    names = [x for role, name in COLUMNS.items() for x in (f"--{role}", name)]
    code, out, err = run("check", "stays.csv", *names)
    assert code == 1
    assert "'death', which is neither terminal nor cut (40 of 800 rows)" in out
    assert (
        "200 episodes ended: 160 cut, 40 death."
        in run("check", "stays.csv", *names, "--events", "death", "--details")[1]
    )
    more = ["--gamma", 1, "--n-min", 5, "--out", "p.dprl"]
    window = ["--events", "death", "--follow-up", "2"]
    code, out, err = run("fit", "stays.csv", *names, *more, *window)
    assert (code, err) == (0, "")
    assert "Values are of the first 2 steps of an episode" in out
    policy = dprl.load(tmp_path / "p.dprl")
    assert policy.provenance["columns"]["follow_up"] == "2 steps"
    assert policy.provenance["columns"]["events"] == ["death"]
    assert policy.provenance["steps"] == 400
    assert policy.provenance["cut_episodes"] == 0
    (tmp_path / "dprl.toml").write_text("[log]\nevents = ['death']\nfollow_up = 3\n")
    code, out, err = run("evaluate", "p.dprl", "stays.csv", "--allow-seen", "--draws", 20)
    assert code == 0
    assert "Values are of the first 2 steps" in out  # the policy's own, not those of dprl.toml
    code, out, err = run("fit", "stays.csv", *names, *more)
    assert (code, err) == (0, "")
    assert "Values are of the first 3 steps of an episode" in out
    code, out, err = run("fit", "stays.csv", *names, *more, "--follow-up", "a while")
    assert code == 1
    assert "--follow-up must be a whole number of steps" in err


# -- how episodes end ------------------------------------------------------------------------------


def ends(words, **more):
    n = len(words)
    return dprl.from_arrays(episode=range(n), state=[0] * n, action=[0] * n, reward=range(n),
                            ended=words, **more)  # fmt: skip


def test_competing_events_are_ends():
    log = ends(
        ["terminal", "censored", "Death ", "cut", "transplant"], events=["transplant", "death"]
    )
    assert log.events == ("death", "transplant")
    assert log.ended.tolist() == [TERMINAL, CUT, EVENT, CUT, EVENT + 1]
    assert log.cut_episodes.tolist() == [1, 3]
    assert log.endings == {"terminal": 1, "cut": 2, "death": 1, "transplant": 1}
    kept = treat_cut(log, 1.0, "drop-unrelated")
    assert kept.episodes == (0, 2, 4)
    assert returns(kept, 1.0).tolist() == [0.0, 2.0, 4.0]  # what the reward says
    assert treat_cut(log, 1.0, "terminal").endings == {"terminal": 3, "death": 1, "transplant": 1}


def test_names_of_events_travel(tmp_path):
    log = ends(["terminal", "cut", "death", "cut"], events=["death", "never"])
    assert log.digest() == ends(["terminal", "cut", "death", "cut"], events=["death"]).digest()
    assert log.digest() != ends(["terminal", "cut", "terminal", "cut"]).digest()
    assert log.digest() != ends(["terminal", "cut", "fall", "cut"], events=["fall"]).digest()
    dprl.write(log, tmp_path / "log.csv")
    names = {name: name for name in ("episode", "time", "state", "action", "reward", "ended")}
    assert dprl.read(tmp_path / "log.csv", **names, events=["death"]).digest() == log.digest()
    assert log.take([2]).endings == {"death": 1}


def test_check_counts_every_way_to_end():
    report = dprl.check(ends(["terminal", "cut", "death", "cut"], events=["death"]))
    note = next(f for f in report.findings if f.rule == "endings")
    assert note.what == "4 episodes ended: 1 terminal, 2 cut, 1 death."
    assert "not a cut" in note.do
    silent = dprl.from_arrays(episode=[1], state=[0], action=[0], reward=[1])
    assert silent.ended.tolist() == [UNKNOWN]
    assert not any(f.rule == "endings" for f in dprl.check(silent).findings)


def test_words_that_are_no_end_are_refused():
    with pytest.raises(dprl.LogError) as caught:
        ends(["terminal", "death"])
    assert caught.value.what == (
        "'ended' holds 'death', which is neither terminal nor cut (1 of 2 rows)."
    )
    assert "events=['death']" in caught.value.do
    with pytest.raises(dprl.LogError, match="neither terminal nor cut nor fall"):
        ends(["terminal", "death"], events=["fall"])
    for events in (["cut"], ["Terminal"], [""], ["death", "Death"], ["censored"]):
        with pytest.raises(dprl.ParameterError, match="events must be names of competing events"):
            ends(["terminal"], events=events)


def test_rows_after_an_event_are_refused():
    with pytest.raises(dprl.LogError, match="rows follow a terminal mark in 1 episode"):
        dprl.from_arrays(
            episode=[1, 1, 1], state=[0, 0, 0], action=[0, 0, 0], reward=[0, 0, 0],
            ended=[None, "death", "terminal"], events=["death"],
        )  # fmt: skip
    log = dprl.from_arrays(
        episode=[1, 1], state=[0, 0], action=[0, 0], reward=[0, 0], ended=["death", "death"],
        events=["death"],
    )  # fmt: skip
    assert log.endings == {"death": 1}


def test_an_event_after_the_window_is_not_of_it():
    log = dprl.from_arrays(
        episode=[1, 1, 2], state=[0] * 3, action=[0] * 3, reward=[1, 1, 1],
        ended=["", "death", "death"], events=["death"], follow_up=1,
    )  # fmt: skip
    assert log.ended.tolist() == [TERMINAL, EVENT]


# -- what a window leaves out ----------------------------------------------------------------------


def with_outcomes(lengths, cost=0.0):
    """A table of episodes of these lengths, with a cost per step and an outcome on the last row."""
    rows = []
    for e, n in enumerate(lengths):
        rows += [(e, t, "s", f"a{t % 2}", 1.0 if t == n - 1 else cost) for t in range(n)]
    return pd.DataFrame(rows, columns=["stay", "hour", "stage", "drug", "score"])


ROLES = {name: column for name, column in COLUMNS.items() if name != "ended"}


@pytest.mark.parametrize("cost", [0.0, -0.1])
def test_outcomes_that_a_window_loses_are_counted(cost):
    table = with_outcomes([2, 2, 3, 5], cost)
    whole = dprl.from_frame(table, **ROLES)
    usual = f"(a reward other than {cost:g})"
    note = next(
        f for f in dprl.check(table, **ROLES, follow_up=4).findings if f.rule == "lost_outcomes"
    )
    assert note.level == "note"
    assert "rows of 1 of 4 episodes are left out" in note.what
    assert f"of 4 episodes with an outcome {usual} 1 has none left." in note.what
    warning = next(
        f for f in dprl.check(table, **ROLES, follow_up=2).findings if f.rule == "lost_outcomes"
    )
    assert warning.level == "warning"
    for follow in (
        whole.followed,
        lambda window: dprl.from_frame(table, **ROLES, follow_up=window),
    ):
        with pytest.warns(dprl.CutWarning, match="2 have none left"):
            assert follow(2).n_steps == 8
        with pytest.raises(dprl.LogError, match="4 have none left"):
            follow(1)
    report = dprl.check(table, **ROLES, follow_up="1 step")
    assert not report.ok
    assert "follow longer" in report.findings[0].do


def test_rewards_of_every_step_are_not_lost_by_a_shorter_window():
    rng = np.random.default_rng(0)
    table = with_outcomes([5] * 20).assign(score=rng.normal(size=100))
    assert dprl.from_frame(table, **ROLES, follow_up=1).n_steps == 20  # no warning: errors in tests
    nothing = dprl.from_frame(table.assign(score=0.0), **ROLES, follow_up=1)
    assert nothing.n_steps == 20


def test_a_log_in_parts_says_the_same(tmp_path):
    file = tmp_path / "stays.parquet"
    table = with_outcomes([2, 2, 3, 5] * 20, -0.1).assign(stay=lambda t: (t["hour"] == 0).cumsum())
    dprl.write(dprl.from_frame(table, **ROLES), file)
    words = []
    for reader, more in ((dprl.read, {"also": ()}), (dprl.scan, {"folder": tmp_path, "rows": 30})):
        with pytest.warns(dprl.CutWarning) as seen:
            reader(str(file), **ROLES, **more, follow_up=2)
        with pytest.raises(dprl.LogError) as error:
            reader(str(file), **ROLES, **more, follow_up=1)
        words.append(([str(w.message) for w in seen], str(error.value)))
    assert words[0] == words[1]
    assert not list(tmp_path.glob("dprl-parts-*/rows.duckdb"))
