"""What is refused about gaps, dates, labels and encodings: three lines, and nothing is written."""

import numpy as np
import pandas as pd
import pytest

import dprl
from dprl.logs.encoding.encoder import encoding_of

HEAD = "id,t,lactate,ward,icu,day,drug,score\n"
ROWS = (
    "1,1,1.5,a,true,2024-01-05,x,0\n"
    "1,2,,b,false,2024-01-06,y,1\n"
    "2,1,2.5,,true,2024-02-05,x,1\n"
    "2,2,3.0,a,true,,y,0\n"
)
GOOD = HEAD + ROWS
COLUMNS = {
    "episode": "id", "time": "t", "state": ["lactate", "ward", "icu"], "action": "drug",
    "reward": "score", "also": (),
}  # fmt: skip

READING = {
    "no such word": (GOOD, {"missing": "mean"}, r"missing must be one of 'error', .*; got 'mean'"),
    "no such word for a column": (
        GOOD, {"missing": {"lactate": "mode"}}, r"missing must be one of .*; got 'mode'"),
    "neither a word nor a mapping": (GOOD, {"missing": 3}, r"a mapping from columns .*; got 3"),
    "a list of words": (GOOD, {"missing": ["flag"]}, r"a mapping from columns .*; got \['flag'\]"),
    "no such column": (
        GOOD, {"missing": {"lactat": "flag"}},
        r"missing says what to do about 'lactat', which is no column of this log\.\n.*\n"
        r".*Did you mean 'lactate'\?"),
    "no column of that pattern": (
        GOOD, {"missing": {"lab_*": "flag"}}, r"about 'lab_\*', which is no column"),
    "the reward is filled": (
        GOOD, {"missing": {"score": "median"}},
        r"'score' is the log's reward, which cannot be filled: 'median' is for columns of the "),
    "the action is flagged": (
        GOOD, {"missing": {"drug": "flag"}}, r"'drug' is the log's action, which cannot be filled"),
    "the episode is flagged": (
        GOOD, {"missing": {"id": "flag"}}, r"'id' is the log's episode, which cannot be filled"),
    "the time is filled": (
        GOOD, {"missing": {"t": "median"}},
        r"'t' is the log's time, .*\n.*missing t=median\n.*missing={\"t\": \"drop-episodes\"}"),
    "a category has no median": (
        GOOD, {"missing": "median"},
        r"'ward' holds labels, which have no median\.\n.*'ward', 'icu'\n.*\"ward\": \"flag\""),
    "true and false have no median": (
        GOOD, {"missing": {"icu": "median"}}, r"'icu' holds labels, which have no median"),
    "one column of labels has no median": (
        GOOD, {"state": "ward", "missing": "median"}, r"'ward' holds labels, which have no median"),
    "a label for gaps that is there already": (
        GOOD.replace(",b,", ",missing,"), {"state": "ward", "missing": "flag"},
        r"'ward' has a label 'missing' and 1 gaps, which would get the same label"),
    "a label for gaps among whole numbers": (
        GOOD.replace(",a,", ",1,").replace(",b,", ",2,"), {"state": "ward", "missing": "flag"},
        r"'ward' holds whole numbers, and its 1 gaps would get a label that is text\.\n"
        r".*row 3 .*\n.*categorical=\['ward'\]"),
    "no such form of dates": (
        GOOD, {"dates": "european"},
        r"dates must be 'iso', 'day-first', 'month-first' or a format with %"),
    "a format without a century": (
        GOOD, {"dates": "%d.%m.%y"}, r"a year of two digits \(%y\) does not say its century"),
    "a time whose day may be its month": (
        GOOD.replace("2024-01-05", "05/01/2024"), {"time": "day"},
        r"'day' holds dates such as '05/01/2024', and nothing says whether the day or the month "
        r"comes first\.\n.*row 1\n.*dates='day-first'"),
    "a time with a year of two digits": (
        GOOD.replace("2024-0", "24-0"), {"time": "day"},
        r"'day' holds dates such as '24-01-05', and nothing says whether"),
    "a time with a year of two digits, declared": (
        GOOD.replace("2024-01-05", "05/01/24"), {"time": "day", "dates": "day-first"},
        r"'day' holds '05/01/24', which is no date as declared\.\n.*\n.*four digits"),
    "a date in the state whose day may be its month": (
        GOOD.replace("2024-01-05", "5.1.2024"), {"state": ["lactate", "day"]},
        r"'day' holds dates such as '5\.1\.2024', and nothing says"),
    "a date that is none": (
        GOOD.replace("2024-01-05", "12/25/2024"),
        {"state": ["lactate", "day"], "dates": "day-first"},
        r"'day' holds '12/25/2024', which is no date as declared\.\n.*dates='day-first'"),
    "a word among dates": (
        GOOD.replace("2024-01-05", "soon"), {"state": ["lactate", "day"]},
        r"'day' holds 'soon', which is no date as declared"),
    "the 30th of February": (
        GOOD.replace("2024-01-05", "2024-02-30"), {"state": ["lactate", "day"]},
        r"'day' holds '2024-02-30', which is no date"),
    "dates with and without a zone": (
        GOOD.replace("2024-01-05", "5.1.2024 10:00+01:00").replace("2024-01-06", "6.1.2024 10:00"),
        {"state": ["lactate", "day"], "dates": "day-first"},
        r"'day' has a time zone in 1 of 3 times, and none in the others"),
    "labels in capitals": (
        GOOD, {"labels": "upper"}, r"labels must be 'trim', 'casefold' or 'trim,casefold'\.\n.*'upper'"),
    "labels that are no words": (GOOD, {"labels": [1]}, r"labels must be 'trim', 'casefold'"),
    "an encoding that is no text": (
        GOOD, {"encoding": "base64"}, r"this encoding of text cannot be read\.\n.*'base64'"),
    "an encoding that is another": (
        GOOD.replace(",a,", ",é,"), {"encoding": "ascii"},
        r"'log\.csv' is not text in ascii\.\n.*ordinal not in range.*\n.*encoding="),
    "folders as columns in another encoding": (
        GOOD, {"encoding": "cp1252", "partitions": True},
        r"folders become columns of files in UTF-8 only, not in cp1252"),
}  # fmt: skip


@pytest.mark.parametrize("name", READING)
def test_a_log_is_refused(name, tmp_path):
    text, options, message = READING[name]
    given = {**COLUMNS, **options}
    path = tmp_path / "log.csv"
    path.write_text(text, encoding="utf-8")
    about_files = given["time"] == "day" or "encoding" in options
    source = path if about_files else pd.read_csv(path)  # which is faster
    door = dprl.read if about_files else dprl.from_frame
    with pytest.raises(dprl.DprlError, match=message) as caught:
        door(source, **given)
    assert len(str(caught.value).splitlines()) <= 3
    assert [file.name for file in tmp_path.iterdir()] == ["log.csv"]


@pytest.mark.slow
@pytest.mark.parametrize("name", READING)
def test_a_file_is_refused(name, tmp_path):
    text, options, message = READING[name]
    (tmp_path / "log.csv").write_text(text, encoding="utf-8")
    with pytest.raises(dprl.DprlError, match=message):
        dprl.read(tmp_path / "log.csv", **{**COLUMNS, **options})


def arrays(**more):
    given = {
        "episode": [1, 1, 2, 2], "action": list("xyxy"), "reward": [0, 1, 1, 0],
        "feature_names": ["lactate", "ward"],
        "state": [[1.0, "a"], [None, "b"], [2.0, None], [3.0, "a"]], **more,
    }  # fmt: skip
    return dprl.from_arrays(**given)


LEARNING = {
    "a label for gaps that is there already": (
        {"missing": "flag", "state": [[1.0, "a"], [2.0, "missing"], [2.0, None], [3.0, "a"]]},
        r"'ward' has a label 'missing' and gaps, which would get the same label"),
    "a number that is known nowhere": (
        {"missing": {"lactate": "median"}, "feature_names": ["lactate", "age"],
         "state": [[np.nan, 1.0]] * 4},
        r"'lactate' is missing on all 4 rows of the training log, so it has no median"),
    "a feature that is called like a flag": (
        {"missing": {"lactate": "flag"}, "feature_names": ["lactate", "lactate missing"],
         "state": [[1.0, 0.0], [np.nan, 1.0], [2.0, 0.0], [3.0, 0.0]]},
        r"'lactate' is flagged by a feature 'lactate missing', and the log has one already"),
    "a category with gaps and no word about them": (
        {"missing": {"lactate": "median"}},
        r"feature 'ward' is missing on 1 of 4 rows\.\n.*episode=2, step=0\n.*missing='flag'"),
    "a number with gaps and no word about them": (
        {"missing": {"ward": "flag"}}, r"feature 'lactate' is missing on 1 of 4 rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEARNING)
def test_a_learner_refuses(name):
    options, message = LEARNING[name]
    learner = dprl.DPRLContinuous(n_min=1, radius=1.0, gamma=1.0)
    with pytest.raises(dprl.LogError, match=message):
        learner.fit(arrays(**options))


WORDS = {"lactate": "median", "ward": "flag"}


@pytest.fixture(scope="module")
def policy():
    return dprl.DPRLContinuous(n_min=1, radius=1.0, gamma=1.0).fit(arrays(missing=WORDS))


def test_a_log_filled_by_its_own_numbers_is_refused(policy):
    other = arrays(missing=WORDS, episode=[5, 5, 6, 6],
                   state=[[9.0, "a"], [None, "b"], [8.0, None], [7.0, "a"]])  # fmt: skip
    message = (
        r"the gaps of this log are filled by its own numbers, not by those of the policy\.\n"
        r".*'lactate': 8\.0 here, 2\.0 in the policy\n.*Hand over the log as it was read"
    )
    for ask in (lambda log: dprl.evaluate(policy, log), policy.space.of_log):
        with pytest.raises(dprl.LogError, match=message):
            ask(other.indicators())
    assert policy.space.of_log(other)[0][1, 0] == 2.0


DAMAGED = [
    {"lactate": {"how": "median", "value": float("nan"), "share": 0.1}},
    {"lactate": {"how": "median", "value": None, "share": 0.1}},
    {"lactate": {"how": "mean", "value": 1.0, "share": 0.1}},
    {"lactate": {"how": "median", "value": 1.0}},
    {"ward": {"how": "flag", "value": 1.0, "share": 0.1}},
    {"other": {"how": "median", "value": 1.0, "share": 0.1}},
    {"lactate": 2.0},
    [2.0],
]


@pytest.mark.parametrize("fills", DAMAGED)
def test_damaged_fills_are_refused(policy, fills):
    facts = {**policy.provenance["columns"]["encoding"], "fills": fills}
    with pytest.raises(dprl.PolicyError, match="how missing values are filled is on record, and "):
        encoding_of({"encoding": facts})
    with pytest.raises(dprl.PolicyError, match="how dates became numbers is on record, and damag"):
        encoding_of({"encoding": {**facts, "fills": {}, "days": {"lactate": "2000-01-01"}}})


def test_commands_refuse(tmp_path, run):
    (tmp_path / "log.csv").write_text(GOOD)
    columns = ["--episode", "id", "--time", "t", "--state", "lactate", "--state", "ward",
               "--action", "drug", "--reward", "score"]  # fmt: skip
    fit = ["fit", "log.csv", *columns, "--radius", 1, "--n-min", 1, "--gamma", 1, "--out", "p.dprl"]
    cases = {
        ("--missing", "flag", "--missing", "median"): "--missing is given twice.",
        ("--missing", "ward=flag", "--missing", "ward=flag"): "--missing is given twice for 'ward'",
        ("--missing", "ward="): "missing must be one of",
        ("--missing", "drug=flag"): "'drug' is the log's action, which cannot be filled",
        ("--dates", "soon"): "dates must be 'iso', 'day-first', 'month-first' or a format with %",
        ("--labels", "small"): "labels must be 'trim', 'casefold' or 'trim,casefold'",
        ("--encoding", "rot13"): "this encoding of text cannot be read",
    }
    for words, message in cases.items():
        code, out, err = run(*fit, *words)
        assert code in (1, 2), words
        assert message in err, words
        assert out == ""
    (tmp_path / "dprl.toml").write_text('[log.missing]\nward = "never"\n')
    code, _, err = run(*fit)
    assert code in (1, 2)
    assert "missing must be one of" in err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dprl.toml", "log.csv"]


WRONG_WORDS = {
    "fill": "missing must be one of",
    "median": "'state' holds labels, which have no median.",
    "column": "missing says what to do about 's', which is no column of this log.",
}


@pytest.mark.parametrize("kind", WRONG_WORDS)
def test_a_log_in_parts_refuses_what_cannot_be_filled(tmp_path, kind):
    log = dprl.envs.risky_arms().sample(5, seed=0)
    dprl.write(log, tmp_path / "a.parquet")
    given = {"episode": "episode", "state": "state", "action": "action", "reward": "reward"}
    missing = {"s": "drop-episodes"} if kind == "column" else kind
    with pytest.raises(dprl.DprlError, match=WRONG_WORDS[kind]):
        dprl.scan(tmp_path / "a.parquet", missing=missing, folder=tmp_path, **given)
    assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]


def test_a_gap_stays_a_gap_when_other_episodes_are_dropped():
    """The only row with the last label is dropped: the gap must not get that label."""
    data = {"e": [1, 2, 3], "s": ["a", "z", None], "a": [0, 1, 0], "r": [0.0, None, 1.0]}
    given = {"episode": "e", "state": "s", "action": "a", "reward": "r"}
    with pytest.warns(dprl.MissingWarning):
        log = dprl.from_frame(
            pd.DataFrame(data), **given, missing={"s": "flag", "r": "drop-episodes"}
        )
    assert [log.states[code] for code in log.codes()] == ["a", "missing"]
