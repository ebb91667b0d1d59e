"""Doses cut into ranges, several action columns, and the edges that a policy keeps."""

import json
import warnings

import numpy as np
import pytest

import dprl
from dprl.logs.encoding.doses import fitted_edges, range_labels

HEAD = "id,t,stage,dose,bolus,score\n"
COLUMNS = ["--episode", "id", "--time", "t", "--state", "stage", "--reward", "score"]


def write_doses(path, n=300, seed=0, scale=10.0):
    """A table of doses: none on about 40 % of rows; doses up to 20 do better."""
    random = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        dose = 0.0 if random.random() < 0.4 else round(float(random.gamma(2, scale)), 1)
        bolus = ("no", "yes")[random.integers(2)]
        score = int(random.random() < 0.3 + 0.4 * (0 < dose <= 20))
        rows.append(f"p{seed}-{i},0,ill,{dose},{bolus},{score}\n")
    path.write_text(HEAD + "".join(rows))
    return path


def read(path, **more):
    return dprl.read(path, **{"episode": "id", "time": "t", "state": "stage", "action": "dose",
                              "reward": "score", **more})  # fmt: skip


def test_edges_make_ordered_labels(tmp_path):
    log = read(write_doses(tmp_path / "d.csv"), action_bins=[0, 5, 20])
    assert log.actions == ("at most 0", "above 0 to 5", "above 5 to 20", "above 20")
    assert log.columns["action_bins"] == {"dose": [0.0, 5.0, 20.0]}
    one = dprl.from_arrays(episode=[1, 2, 3, 4], state=["s"] * 4, action=[5.0, 5.1, 0.0, 20.0],
                           reward=[0] * 4, action_bins=[0, 5, 20])  # fmt: skip
    assert [one.actions[a] for a in one.action] == [
        "above 0 to 5", "above 5 to 20", "at most 0", "above 5 to 20",
    ]  # fmt: skip


def test_quantiles_are_doses_that_occur_and_many_equal_ones_stand_alone():
    doses = np.array([0.0] * 50 + list(range(1, 51)))
    assert fitted_edges(doses, 4, "dose") == (0.0, 25.0)
    assert fitted_edges(np.array([1.0, 2.0, 3.0, 4.0]), 4, "d") == (1.0, 2.0, 3.0)
    assert fitted_edges(np.array([1.0, 9.0, 9.0, 9.0]), 2, "d") == (1.0,)
    assert range_labels([0.1, 2.0]) == ("at most 0.1", "above 0.1 to 2", "above 2")
    assert range_labels([-0.0]) == ("at most 0", "above 0")


def test_files_frames_and_arrays_agree(tmp_path):
    import pandas as pd

    path = write_doses(tmp_path / "d.csv")
    table = pd.read_csv(path)
    table.to_parquet(tmp_path / "d.parquet")
    names = {"episode": "id", "time": "t", "state": "stage", "action": "dose", "reward": "score"}
    logs = [
        dprl.read(path, **names, action_bins=4),
        dprl.read(tmp_path / "d.parquet", **names, action_bins=4),
        dprl.from_frame(table, **names, action_bins=4),
        dprl.from_arrays(**{part: table[name].to_numpy() for part, name in names.items()},
                         action_bins=4),
    ]  # fmt: skip
    assert len({log.digest() for log in logs}) == 1
    assert {tuple(*log.columns["action_bins"].values()) for log in logs} == {
        tuple(logs[0].columns["action_bins"]["dose"])
    }


def test_two_columns_are_one_action(tmp_path):
    log = read(write_doses(tmp_path / "d.csv"), action=["dose", "bolus"], action_bins={"dose": [0]})
    assert log.actions == (
        "dose=at most 0 · bolus=no", "dose=at most 0 · bolus=yes", "dose=above 0 · bolus=no",
        "dose=above 0 · bolus=yes",
    )  # fmt: skip
    arrays = dprl.from_arrays(
        episode=[1, 2], state=["s", "s"], action={"drug": ["a", "b"], "vent": [True, False]},
        reward=[0, 1],
    )  # fmt: skip
    assert arrays.actions == ("drug=a · vent=true", "drug=b · vent=false")


@pytest.mark.slow
def test_a_policy_cuts_later_logs_at_its_own_edges(tmp_path, run):
    train = write_doses(tmp_path / "train.csv")
    other = write_doses(tmp_path / "other.csv", seed=1, scale=14.0)  # its own quartiles differ
    code, _, _ = run("fit", train, *COLUMNS, "--gamma", 1, "--n-min", 20, "--action", "dose",
                     "--action-bins", 4, "--out", "p.dprl")  # fmt: skip
    assert code == 0
    policy = dprl.load(tmp_path / "p.dprl")
    edges = read(train, action_bins=4).columns["action_bins"]
    assert policy.provenance["columns"]["action_bins"] == edges
    assert read(other, action_bins=4).columns["action_bins"] != edges
    code, out, _ = run("evaluate", "p.dprl", other, "--draws", 20, "--json")
    assert code == 0
    by_hand = dprl.evaluate(policy, read(other, action_bins=edges), draws=20)
    assert json.loads(out)["settings"]["log"] == by_hand.settings["log"]
    assert run("report", "p.dprl", other, "--out", "r.html", "--draws", 20)[0] == 0
    with pytest.raises(dprl.LogError, match="not cut where the policy's are") as caught:
        dprl.evaluate(policy, read(other, action_bins=4), draws=20)
    assert "action_bins=policy.provenance" in caught.value.do
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(other.read_text().replace("dose", "mcg", 1))
    assert run("evaluate", "p.dprl", renamed, "--action", "mcg", "--draws", 20)[0] == 0
    code, _, err = run("evaluate", "p.dprl", other, "--action", "dose", "--action", "bolus")
    assert code == 1
    assert "made of 1 columns; 2 are named" in err


def test_two_columns_on_the_command_line(tmp_path, run):
    train, other = (write_doses(tmp_path / f"{i}.csv", seed=i) for i in (0, 1))
    code, out, _ = run("fit", train, *COLUMNS, "--action", "dose", "--action", "bolus",
                       "--action-bins", "dose=0,20", "--gamma", 1, "--n-min", 10,
                       "--out", "p.dprl")  # fmt: skip
    assert code == 0
    assert "dose=above 0 to 20 · bolus=" in out
    assert run("evaluate", "p.dprl", other, "--draws", 20)[0] == 0


def test_a_sweep_cuts_both_logs_at_the_edges_of_the_first(tmp_path, run):
    train = write_doses(tmp_path / "train.csv")
    other = write_doses(tmp_path / "other.csv", seed=1, scale=14.0)
    code, _, _ = run("sweep", train, "--valid", other, *COLUMNS, "--action", "dose",
                       "--action-bins", 4, "--gamma", 1, "--n-min", 10, "--n-min", 20,
                       "--draws", 20)  # fmt: skip
    assert code == 0


def test_check_says_that_there_are_too_many_actions(tmp_path):
    path = write_doses(tmp_path / "d.csv")
    whole = tmp_path / "whole.csv"
    lines = path.read_text().splitlines()
    rows = [line.split(",") for line in lines[1:]]
    text = [",".join([*r[:3], str(round(float(r[3]) * 10)), *r[4:]]) for r in rows]
    whole.write_text("\n".join([lines[0], *text]))
    names = {"episode": "id", "time": "t", "state": "stage", "action": "dose", "reward": "score"}
    finding = next(f for f in dprl.check(whole, **names).findings if f.rule == "many_actions")
    assert finding.level == "warning"
    assert "each of them an action" in finding.what
    assert "on fewer than 10 rows" in finding.what
    assert "action_bins=4" in finding.do
    assert "Numbers that are names, of items say, can stay as they are." in finding.do
    with pytest.warns(dprl.errors.LabelWarning, match="different numbers, each of them an action"):
        dprl.read(whole, **names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cut = dprl.check(whole, **names, action_bins=4)
    assert "doses are cut into ranges, 'dose' at 0, " in cut.details()
    words = dprl.from_arrays(episode=range(40), state=["s"] * 40,
                             action=[f"d{i}" for i in range(40)], reward=[0] * 40)  # fmt: skip
    finding = next(f for f in dprl.check(words).findings if f.rule == "many_actions")
    assert "put them into fewer groups" in finding.do


@pytest.mark.parametrize(
    ("bins", "what"),
    [
        (1, "is to be cut into 1 ranges; there can be 2 to 100"),
        (2.5, "are neither a number nor edges"),
        ("4", "are neither a number nor edges"),
        (["a"], "are neither a number nor edges"),
        ([], "must be finite numbers"),
        ([0, float("nan")], "must be finite numbers"),
        ([5, 5], "do not rise"),
        ({"other": 4}, "which is no action column"),
        ({"dose": 1000}, "is to be cut into 1,000 ranges"),
        (list(range(100)), "has 100 edges"),
    ],
)
def test_bins_that_make_no_sense_are_refused(tmp_path, bins, what):
    with pytest.raises(dprl.LogError, match=what):
        read(write_doses(tmp_path / "d.csv", n=20), action_bins=bins)


def test_doses_that_cannot_be_cut_are_refused(tmp_path):
    path = write_doses(tmp_path / "d.csv", n=20)
    with pytest.raises(dprl.LogError, match="does not say which one"):
        read(path, action=["dose", "bolus"], action_bins=4)
    with pytest.raises(dprl.LogError, match="'bolus' must be numbers; it holds "):
        read(path, action="bolus", action_bins=4)
    with pytest.raises(dprl.LogError, match="fractional numbers") as caught:
        read(path)
    assert "action_bins=4" in caught.value.do
    base = {"episode": [1, 2], "state": ["s", "s"], "reward": [0, 1]}
    with pytest.raises(dprl.LogError, match="all of its rows hold 3"):
        dprl.from_arrays(**base, action=[3, 3], action_bins=2)
    with pytest.raises(dprl.LogError, match="infinite on 1 of 2 rows"):
        dprl.from_arrays(**base, action=[3, float("inf")], action_bins=2)
    with pytest.raises(dprl.LogError, match="lists doses, and the doses are cut"):
        dprl.from_arrays(**base, action=[1, 2], available=["1|2", "1|2"], action_bins=[1])
    with pytest.raises(dprl.LogError, match="is not the only column of that name"):
        dprl.from_arrays(**base, action={"state": [1, 2]})


def test_the_chance_of_a_dose_is_not_the_chance_of_a_range():
    base = {"episode": range(4), "state": ["s"] * 4, "reward": [0, 1, 0, 1]}
    with pytest.raises(dprl.LogError, match="chance of a single dose, and a range holds several"):
        dprl.from_arrays(**base, action=[1, 2, 3, 3], propensity=[0.3] * 4, action_bins=[2])
    log = dprl.from_arrays(**base, action=[1, 2, 1, 2], propensity=[0.5] * 4, action_bins=[1])
    assert log.actions == ("at most 1", "above 1")


def test_missing_doses_are_missing_actions():
    base = {"episode": range(3), "state": ["s"] * 3, "reward": [0, 1, 0]}
    with pytest.raises(dprl.LogError, match="'action' is missing on 1 of 3 rows"):
        dprl.from_arrays(**base, action=[1.0, np.nan, 3.0], action_bins=[2])
    two = {"drug": ["a", None, "b"], "vent": ["x", "y", "x"]}
    with pytest.raises(dprl.LogError, match="'drug and vent' is missing on 1 of 3 rows"):
        dprl.from_arrays(**base, action=two)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--action-bins", "four"], "is a number of ranges, or edges"),
        (["--action-bins", "0,x"], "is a number of ranges, or edges"),
        (["--action-bins", "dose=4", "--action-bins", "dose=5"], "given twice for 'dose'"),
        (["--action-bins", "dose=4", "--action-bins", "5"], "names a column once"),
    ],
)
def test_the_option_says_how_it_is_written(tmp_path, run, words, what):
    path = write_doses(tmp_path / "d.csv", n=20)
    code, _, err = run("fit", path, *COLUMNS, "--action", "dose", "--gamma", 1, "--n-min", 5,
                       *words, "--out", "p.dprl")  # fmt: skip
    assert code == 1
    assert what in err
    assert not (tmp_path / "p.dprl").exists()
