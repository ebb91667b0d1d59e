"""Bad input: three lines that say what, where and what to do; and nothing on disk changes."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import dprl
from conftest import COLUMNS, to_log

GOOD = {
    "patient": ["p", "p", "q", "q"],
    "day": [1, 2, 1, 2],
    "stage": ["a", "b", "a", "b"],
    "drug": ["x", "y", "y", "x"],
    "score": [0.0, 1.0, 0.5, 0.0],
}


def put(column, row, value):
    """GOOD with one cell changed."""
    rows = {k: list(v) for k, v in GOOD.items()}
    rows[column][row] = value
    return rows


def csv(rows):
    return pd.DataFrame(rows).to_csv(index=False)


# name: (CSV text or columns, options of read, the message as a pattern)
CASES = {
    "reward missing": (
        csv(put("score", 1, None)), {},
        r"'score' is missing on 1 of 4 rows.\n  first: row 2 \(patient=p, day=2\); 1 episode touched"
        r".\n  Weigh those that were measured \(missing={'score': 'weights'}\), or fill it. To leave "
        r"such episodes out \(missing='drop-episodes'\) compares those who stayed."),
    "reward NA": (csv(put("score", 1, "NA")), {}, r"'score' is missing on 1 of 4 rows"),
    "state missing": (csv(put("stage", 2, "")), {}, r"'stage' is missing on 1 of 4 rows.\n  first: row 3"),
    "action missing": (csv(put("drug", 0, None)), {}, r"'drug' is missing on 1 of 4 rows"),
    "time missing": (csv(put("day", 3, None)), {}, r"'day' is missing on 1 of 4 rows.\n  first: row 4"),
    "episode missing": (
        csv(put("patient", 0, None)), {}, r"'patient' is missing on 1 of 4 rows.\n.*\n.*belongs nowhere"),
    "episode missing, dropping": (
        csv(put("patient", 0, None)), {"missing": "drop-episodes"}, r"'patient' is missing on 1"),
    "group missing": (
        csv({**GOOD, "ward": ["w", None, "w", "w"]}), {"group": "ward"}, r"'ward' is missing on 1"),
    "all episodes dropped": (
        csv(put("score", 1, None) | {"patient": ["p"] * 4, "day": [1, 2, 3, 4]}),
        {"missing": "drop-episodes"}, r"1 of 1 episodes were dropped.*\n.*\n  None is left"),
    "infinite reward": (
        csv(put("score", 2, "inf")), {}, r"'score' is infinite on 1 of 4 rows.\n  first: row 3 \(patient=q"),
    "enormous reward": (
        csv(put("score", 2, 1e150)), {}, r"'score' is beyond ±1e\+100 .*\n.*1e\+150\n.*code for 'missing'"),
    "reward is text": (
        csv(put("score", 2, "good")), {}, r"'score' must be numbers; it holds 'good'.\n  first: row 3"),
    "decimal comma": (
        "patient,day,stage,drug,score\np,1,a,x,\"1,5\"\n", {}, r"it holds '1,5'.\n.*\n.*1.5, not 1,5"),
    "duplicate times": (
        csv(put("day", 1, 1)), {},
        r"1 rows share 'patient' and 'day' with another.\n  first: row 2 \(.*\), same as row 1; 1 "
        r"episode touched.\n  There can be one decision per time"),
    "time is text": (
        csv(put("day", 1, "later")), {}, r"'day' must be numbers or dates; it holds text.\n.*\n.*'10' before '9'"),
    "fractional states": (
        pd.DataFrame(GOOD | {"stage": [0.5, 1.0, 2.0, 3.0]}), {},
        r"'stage' holds fractional numbers, which are not labels.\n  first: 0.5\n.*as features"),
    "mixed labels": (
        pd.DataFrame(GOOD | {"stage": ["a", 1, "a", 1]}), {}, r"'stage' mixes text and numbers.\n  first: 'a' and 1"),
    "labels of a strange type": (
        pd.DataFrame(GOOD | {"stage": [{"a": 1}, {"a": 2}, {"a": 1}, {"a": 1}]}), {},
        r"'stage' holds a dict, which is not a label"),
    "group changes": (
        csv({**GOOD, "ward": ["w", "v", "w", "w"]}), {"group": "ward"},
        r"'ward' changes within 1 episode.\n.*\n  A group is one or more whole episodes"),
    "unavailable action taken": (
        csv({**GOOD, "offer": ["x|y", "x", "x|y", "x"]}), {"available": "offer"},
        r"an action not in 'offer' was taken on 1 of 4 rows.\n  first: row 2 .*took 'y', available x"),
    "available is a number": (
        pd.DataFrame({**GOOD, "offer": [1, 2, 3, 4]}), {"available": "offer"},
        r"'offer' must hold lists of actions, or text such as 'a\|b\|c'; got 1"),
    "rows after the end": (
        csv({**GOOD, "done": [1, 0, 0, 1]}), {"ended": "done"},
        r"'done': rows follow a terminal mark in 1 episode.\n  first: row 1"),
    "strange word for an end": (
        csv({**GOOD, "done": ["", "perhaps", "", "cut"]}), {"ended": "done"},
        r"'done' holds 'perhaps', which is neither terminal nor cut \(1 of 4 rows\)"),
    "end not said": (
        csv({**GOOD, "done": ["", "cut", "", ""]}), {"ended": "done"},
        r"'done': the last row does not say how it ended in 1 episode"),
    "unknown action": (
        csv(GOOD), {"actions": ["x"]},
        r"'drug' holds 1 labels that were not declared \(2 of 4 rows\).\n  first: row 2 .*: 'y'\n  Add them to actions="),
    "unknown state": (csv(GOOD), {"states": ["b"]}, r"'stage' holds 1 labels that were not declared"),
    "reward outside its range": (
        csv(GOOD), {"reward_range": (0, 0.75)},
        r"'score' leaves the declared range 0..0.75 on 1 of 4 rows.\n  first: row 2 .*: 1"),
    "no such column": (
        csv(GOOD), {"state": "stagee"}, r"there is no column 'stagee' for state.\n.*\n  Did you mean 'stage'\?"),
    "no column for a pattern": (csv(GOOD), {"state": "x_*"}, r"there is no column 'x_\*' for state"),
    "one column for two parts": (csv(GOOD), {"state": "drug"}, r"column 'drug' is used for state and action"),
    "only a header": ("patient,day,stage,drug,score\n", {}, r"the source holds no rows"),
    "empty file": ("", {}, r"'log.csv' is empty"),
    "ragged rows": ("patient,day,stage,drug,score\np,1,a,x,0\np,2,a\nq,1,a,x,1,9,9\n", {}, r"could not be read as CSV"),
    "missing is no such word": (csv(GOOD), {"missing": "drop"}, r"missing must be one of 'error', 'drop-episodes', 'flag', 'median', 'weights', 'zero', or a mapping.*got 'drop'"),
    "not a dataframe": (42, {}, r"a int is not a dataframe"),
    "feature holds one text": (
        csv({**GOOD, "x": [1, "high", 3, 4]}), {"state": ["x"]},
        r"'x' must be numbers; it holds 'high'.\n  first: row 2\n.*categorical=\['x'\]"),
    "feature has decimal commas": (
        csv({**GOOD, "x": ["1,5", "2,5", "3,5", "4,5"]}), {"state": ["x"]},
        r"'x' must be numbers; it holds '1,5'"),
    "categorical names no feature": (
        csv(GOOD), {"categorical": ["stage"]}, r"'stage' was declared a category and is no feature"),
    "feature infinite": (
        csv({**GOOD, "x": [1, 2, "inf", 4]}), {"state": ["x"]}, r"'x' is infinite on 1 of 4 rows"),
}  # fmt: skip


def listing(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", CASES)
def test_refused_with_a_reason(name, tmp_path):
    source, options, message = CASES[name]
    columns = {**COLUMNS, **options}
    if isinstance(source, str):
        path = tmp_path / "log.csv"
        path.write_text(source)
        before = listing(tmp_path)
        with pytest.raises(dprl.DprlError, match=message) as caught:
            dprl.read(path, **columns)
        assert listing(tmp_path) == before
    else:
        with pytest.raises(dprl.DprlError, match=message) as caught:
            dprl.from_frame(source, **columns)
    assert 1 <= len(str(caught.value).splitlines()) <= 3


def test_enough_kinds_were_tried():
    assert len(CASES) >= 25


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if isinstance(c[0], str)])
def test_check_reports_the_same_without_raising_where_it_can(name, tmp_path):
    source, options, message = CASES[name]
    path = tmp_path / "log.csv"
    path.write_text(source)
    try:
        report = dprl.check(path, **{**COLUMNS, **options})
    except dprl.DprlError as error:  # a file or column that is not there leaves nothing to check
        assert re.search(message, str(error))
        return
    assert not report.ok
    assert any(re.search(message, str(f.error())) for f in report.findings if f.level == "error")


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ("nowhere.csv", "there is no file 'nowhere.csv'"),
        ("nowhere-*.csv", "there is no file"),
        (".", "is a folder.\n  Name its files"),
        ([], "no file was named"),
        ("log.xlsx", "neither CSV nor Parquet by its name"),
        (["log.csv", "log.parquet"], "CSV and Parquet files cannot be read together"),
        ("broken.parquet", "could not be read as PARQUET"),
    ],
)
def test_files_that_cannot_be_read(paths, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.xlsx").write_text("x")
    (tmp_path / "log.csv").write_text(csv(GOOD))
    pd.DataFrame(GOOD).to_parquet("log.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(dprl.LogError, match=message):
        dprl.read(paths, **COLUMNS)


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ("_delta_log/0.json", "Delta Lake"),
        ("metadata/00001-a.metadata.json", "Iceberg"),
        (".hoodie/hoodie.properties", "Hudi"),
    ],
)
def test_tables_whose_files_hold_rows_they_no_longer_have_are_refused(record, kind, tmp_path):
    folder = tmp_path / "visits"
    part = folder / "data" / "ward=3"
    part.mkdir(parents=True)
    pd.DataFrame(GOOD).to_parquet(part / "old.parquet")
    pd.DataFrame(GOOD).to_parquet(tmp_path / "beside.parquet")
    (tmp_path / "log.csv").write_text(csv(GOOD))
    assert dprl.read(part / "old.parquet", **COLUMNS).n_steps == len(GOOD["day"])
    (folder / record).parent.mkdir()
    (folder / record).write_text("{}")
    link = tmp_path / "link.parquet"
    link.symlink_to(part / "old.parquet")
    for paths in (folder, part / "old.parquet", str(folder / "**" / "*.parquet"), link):
        for read in (dprl.read, dprl.scan):
            with pytest.raises(dprl.LogError, match=f"{kind} table") as error:
                read(paths, **COLUMNS)
            assert len(str(error.value).splitlines()) == 3
    assert dprl.read(tmp_path / "beside.parquet", **COLUMNS).n_steps == len(GOOD["day"])
    (folder / "log.csv").write_text(csv(GOOD))  # no file of such a table
    assert dprl.read(folder / "log.csv", **COLUMNS).n_steps == len(GOOD["day"])


def test_arrays_of_different_lengths():
    with pytest.raises(dprl.LogError, match="different lengths: 2, 3 rows"):
        dprl.from_arrays(episode=[1, 1], state=[1, 2, 3], action=[1, 1], reward=[1, 1])
    with pytest.raises(dprl.LogError, match="1 feature names for 2 features"):
        dprl.from_arrays(
            episode=[1], state=np.ones((1, 2)), action=[1], reward=[1], feature_names=["x"]
        )


def test_episodes_of_other_libraries():
    with pytest.raises(dprl.LogError, match="holds no episodes"):
        dprl.from_d3rlpy([])
    continuous = SimpleNamespace(
        observations=np.ones((2, 1)), actions=np.ones((2, 3)), rewards=np.ones(2), terminated=True
    )
    with pytest.raises(dprl.LogError, match="6 action numbers"):
        dprl.from_d3rlpy([continuous])
    nested = SimpleNamespace(
        id=0, observations={"a": 1}, actions=np.ones(2), rewards=np.ones(2), terminations=[True]
    )
    with pytest.raises(dprl.LogError, match="no plain array of observations"):
        dprl.from_minari([nested])


LOG = to_log([[("s", "a", 1.0)]] * 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_min": 0}, "n_min must be a whole number of episodes, at least 1"),
        ({"n_min": 2.5}, "got 2.5"),
        ({"n_min": "many"}, "got 'many'"),
        ({"n_min": True}, "got True"),
        ({"n_min": float("nan")}, "got nan"),
        ({"gamma": 0.0}, r"gamma must be a number in \(0, 1\]; got 0.0"),
        ({"gamma": 1.01}, "got 1.01"),
        ({"gamma": float("nan")}, "got nan"),
        (
            {"cut": "forget"},
            "cut must be 'drop', 'drop-unrelated', 'bootstrap', 'terminal', 'ipcw' or None; got 'forget'",
        ),
        ({"visits": "some"}, "visits must be 'first' or 'all'; got 'some'"),
    ],
)
def test_settings_of_the_learner(settings, message):
    with pytest.raises(dprl.ParameterError, match=message):
        dprl.DPRLDiscrete(**{"n_min": 1, "gamma": 0.9, **settings}).fit(LOG)


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 7])
def test_split_of_no_sense(fraction):
    with pytest.raises(dprl.ParameterError, match=r"fraction must be a number in \(0, 1\)"):
        LOG.split(fraction, seed=0)
    with pytest.raises(dprl.LogError, match="cannot be split"):
        LOG.take([0]).split(0.5, seed=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"starts": [0, 1]}, "`starts` must run from 0"),
        ({"starts": [0, 0, 3]}, "at least one row"),
        ({"reward": [1.0]}, "'reward' has 1 rows, 'action' 3"),
        ({"reward": [1.0, np.nan, 2.0]}, "not finite"),
        ({"action": [0, 0, 5]}, "'action' has codes outside 0..0"),
        ({"actions": ("a", "a")}, "'actions' repeats a label"),
        ({"features": np.ones((3, 1))}, "either labels or features"),
        ({"menus": np.ones((1, 1), bool)}, "come together"),
        ({"episodes": (1, 2)}, "one entry per episode"),
    ],
)
def test_a_log_that_contradicts_itself(changes, message):
    from dataclasses import replace

    with pytest.raises(dprl.LogError, match=message):
        replace(LOG, **{k: np.array(v) if isinstance(v, list) else v for k, v in changes.items()})


def test_findings_that_are_no_errors():
    rows = {
        "patient": ["p", "q", "q"], "day": [1, 2, 1], "stage": ["a", "a ", "A"],
        "drug": ["x", "x", "x"], "score": [1.0, 1.0, 1.0], "done": ["cut", "cut", None],
    }  # fmt: skip
    report = dprl.check(pd.DataFrame(rows), **COLUMNS, ended="done")
    assert report.ok
    found = {f.rule: f for f in report.findings}
    assert set(found) == {
        "order_of_rows", "look_alikes", "cut_episodes", "one_row_episodes", "one_action",
        "reward_range", "endings",
    }  # fmt: skip
    assert found["endings"].what == "2 episodes ended: 2 cut."
    assert found["order_of_rows"].level == "note"
    assert found["cut_episodes"].what.startswith("2 of 2 episodes (3 of 3 steps) were cut")
    assert found["reward_range"].what == "rewards run from 1 to 1: they are all the same."
    assert "errors" in str(report)
    assert dprl.check(report.log).ok
    assert report.to_dict()["log"]["digest"] == report.log.digest()


@pytest.mark.parametrize(
    ("reward", "lengths", "ended", "learnable"),
    [
        (-1.0, (1, 3), "terminal", True),
        (-1.0, (2, 2), "terminal", False),
        (-1.0, (2, 2), "cut", True),  # how long they would have lasted is not known
        (0.0, (1, 3), "terminal", False),
        (-0.0, (1, 3), "cut", False),
    ],
)
def test_one_reward_for_all_steps(reward, lengths, ended, learnable):
    log = dprl.from_arrays(
        episode=np.repeat([0, 1], lengths), state=[0] * 4, action=[0, 1, 0, 1],
        reward=[reward] * 4, ended=[ended] * 4,
    )  # fmt: skip
    finding = next(f for f in dprl.check(log).findings if f.rule == "reward_range")
    assert finding.level == "warning"
    assert ("Nothing can be learned" in finding.do) is not learnable
    assert ("only how long it lasted" in finding.do) is learnable


def test_rows_apart_without_a_time_are_refused():
    rows = {k: v for k, v in GOOD.items() if k != "day"}
    rows["patient"] = ["p", "q", "p", "q"]
    columns = {k: v for k, v in COLUMNS.items() if k != "time"}
    message = (
        r"do not stand together \(4 runs of rows, 2 episodes\).*\n  first: row 3 \(patient=p\)"
    )
    with pytest.raises(dprl.LogError, match=message):
        dprl.from_frame(pd.DataFrame(rows), **columns)


def test_drop_episodes_drops_whole_episodes():
    table = pd.DataFrame(put("score", 1, None))
    with pytest.warns(dprl.MissingWarning, match="1 of 2 episodes were dropped .* in 'score'"):
        log = dprl.from_frame(table, **COLUMNS, missing="drop-episodes")
    assert log.episodes == ("q",)
    assert log.n_steps == 2
    report = dprl.check(pd.DataFrame(put("score", 1, None)), **COLUMNS, missing="drop-episodes")
    assert report.ok
    assert "1 of 2 episodes were dropped" in str(report)


def test_every_column_with_a_gap_is_named():
    rows = put("score", 3, None)
    rows["stage"][1] = rows["score"][0] = None
    report = dprl.check(pd.DataFrame(rows), **COLUMNS)
    finding = next(f for f in report.findings if f.level == "error")
    assert finding.what == "'stage' is missing on 1 of 4 rows, 'score' on 2."
    assert finding.where == "row 2 (patient=p, day=2); 2 episodes touched."  # the stage


def test_rows_out_of_order_are_counted_within_their_episode():
    rng = np.random.default_rng(2)
    table = pd.DataFrame(
        {"patient": np.repeat(np.arange(40), 6), "day": np.tile(np.arange(6), 40), "stage": "a",
         "drug": rng.choice(["x", "y"], 240), "score": rng.random(240)}
    ).iloc[rng.permutation(240)]  # fmt: skip
    late, last, first = 0, {}, None
    for row, (patient, day) in enumerate(zip(table.patient, table.day, strict=True), 1):
        if day < last.get(patient, -1):
            late += 1
            first = first or row
        last[patient] = day
    assert late > 50
    found = {f.rule: f for f in dprl.check(table, **COLUMNS).findings}["order_of_rows"]
    assert found.what == f"{late} of 240 rows are not in the order of 'day'."
    assert found.where.startswith(f"row {first} ")
    aside = pd.DataFrame(GOOD).iloc[[0, 2, 1, 3]]  # two episodes side by side, each in order
    assert "order_of_rows" not in {f.rule for f in dprl.check(aside, **COLUMNS).findings}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_without_a_column_that_others_have_is_named(tmp_path, kind):
    tables = {"one": pd.DataFrame(GOOD), "two": pd.DataFrame(GOOD).rename(columns={"score": "x"})}
    tables["two"]["patient"] += "2"
    for name, table in tables.items():
        path = tmp_path / f"{name}.{kind}"
        table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
    for missing in ("error", "drop-episodes"):
        with pytest.raises(dprl.LogError, match=f"'two.{kind}' has no column 'score'"):
            dprl.read(str(tmp_path / f"*.{kind}"), **COLUMNS, missing=missing)


def test_one_check_shows_all_there_is():
    rows = put("score", 1, None)
    rows["drug"] = ["x"] * 4
    report = dprl.check(pd.DataFrame(rows), **COLUMNS)
    assert not report.ok
    assert {"missing", "one_action"} <= {f.rule for f in report.findings}


def test_too_many_pairs_for_a_table():
    from dprl.evidence import counts as tabular

    labels = tuple(range(20_000))
    log = dprl.Log(
        starts=np.array([0, 1]), action=np.zeros(1), reward=np.zeros(1), state=np.zeros(1),
        states=labels, actions=labels,
    )  # fmt: skip
    with pytest.raises(dprl.LogError, match="20,000 states x 20,000 actions are too many"):
        tabular.evidence(log, 0.9)


def test_errors_survive_a_process_boundary():
    import pickle

    error = dprl.LogError("what", "where", "do")
    again = pickle.loads(pickle.dumps(error))
    assert (again.what, again.where, again.do) == ("what", "where", "do")
    assert str(again) == "what\n  first: where\n  do"


@pytest.mark.parametrize("given", [pd.DataFrame({"state": [1], "action": [0]}), None, "log.csv"])
def test_what_is_no_log_is_said(given, tmp_path):
    """The commonest slip: a dataframe where a log is needed."""
    log = to_log([[(0, 0, 1.0)], [(0, 1, 0.0)]])
    labelled = dprl.DPRLDiscrete(n_min=1, gamma=0.9)
    policy = labelled.fit(log)
    calls = [
        lambda: labelled.fit(given),
        lambda: dprl.DPRLContinuous(n_min=1, radius=1.0, gamma=0.9).fit(given),
        lambda: dprl.learners.baselines.SPIBB(n_min=1, gamma=0.9).fit(given),
        lambda: dprl.learners.baselines.FittedPQI(b=0.1, radius=1.0, gamma=0.9).fit(given),
        lambda: dprl.learners.baselines.ForestBC().fit(given),
        lambda: dprl.evaluate(policy, given),
        lambda: dprl.gate(labelled, given, value_range=(0, 1)),
        lambda: dprl.sweep(labelled, given, log, n_min=[1]),
        lambda: dprl.sweep(labelled, log, given, n_min=[1]),
        lambda: dprl.report(policy, given, tmp_path / "r.html"),
        lambda: dprl.Behavior.fit(given),
    ]
    for call in calls:
        with pytest.raises(
            dprl.ParameterError, match="a log is needed; got an object of type"
        ) as e:
            call()
        assert "dprl.from_frame" in str(e.value)


def test_what_check_returns_has_a_name_of_its_own():
    found = dprl.check(to_log([[("s", "a", 1.0)]]))
    assert type(found) is dprl.CheckResult
    assert "CheckResult" in (Path(__file__).parents[3] / "docs" / "api.md").read_text()
    classes = [
        path.name
        for path in (Path(dprl.__file__).parent).rglob("*.py")
        if "class CheckResult" in path.read_text() or "class Report" in path.read_text()
    ]
    assert sorted(classes) == ["_report.py", "findings.py"]
