"""Those who took a suggestion and the others: differences by hand, once per group, worst first."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from thinned import COLUMNS, trial

import dprl
from dprl.evidence.balance import ALL, LARGE, Compared, balance, changes_in

DATA = Path(os.environ.get("DPRL_DATA", Path(__file__).parents[3] / "shared" / "data"))


def small(also, action, state=None, group=None):
    n = len(action)
    return dprl.from_arrays(
        episode=range(n), state=state or ["s"] * n, action=action, reward=[0.0] * n, also=also,
        group=group,
    )  # fmt: skip


def one(log, action="a"):
    return Compared("s", np.arange(log.n_steps), log.actions.index(action))


def test_a_difference_by_hand():
    x = [1.0, 2.0, 3.0, 6.0, 4.0, 5.0]
    log = small({"x": x}, ["a", "a", "a", "b", "b", "b"])
    (row,) = balance(log, [one(log)]).rows
    assert (row.column, row.change, row.words) == ("x", ALL, "a lower x")
    assert (row.took, row.others) == (3, 3)
    assert row.before == pytest.approx((2.0 - 5.0) / np.std(x))
    error = np.sqrt(np.var([1, 2, 3], ddof=1) / 3 + np.var([6, 4, 5], ddof=1) / 3)
    assert row.error == pytest.approx(error / np.std(x))
    assert row.after == pytest.approx(row.before), "one change: nothing to weight"


def test_weighting_takes_out_what_the_chance_explains():
    """Takers are old where the chance says so; weighted by it both sides are alike."""
    old = np.repeat([1.0, 1.0, 0.0, 0.0], [80, 20, 20, 80])
    action = np.repeat(["a", "b", "a", "b"], [80, 20, 20, 80])
    log = small({"old": old}, list(action))
    chance = np.where(old == 1, 0.8, 0.2)
    (row,) = balance(log, [one(log)], chance).rows
    assert row.before == pytest.approx(0.6 / 0.5)
    assert row.after == pytest.approx(0.0, abs=1e-12)
    assert (row.mean_took, row.mean_others) == pytest.approx((0.5, 0.5))
    result = balance(log, [one(log)], chance)
    assert result.clear == 1.0
    assert result.ess[0] == pytest.approx((80 / 0.8 + 20 / 0.2) ** 2 / (80 / 0.64 + 20 / 0.04))


def test_states_are_compared_within_themselves():
    """Old patients are in the state that mostly takes it: no difference within any state."""
    state = ["i"] * 100 + ["j"] * 100
    old = [1.0, 0.0] * 50 + [1.0, 0.0, 0.0, 0.0] * 25
    action = ["a"] * 80 + ["b"] * 20 + ["a"] * 20 + ["b"] * 80
    log = small({"old": old}, action, state)
    suggested = np.full(200, log.actions.index("a"))
    changes = changes_in(log, np.arange(200), suggested, log.actions)
    assert [(c.words, len(c.rows)) for c in changes] == [("i: a", 100), ("j: a", 100)]
    result = balance(log, changes)
    assert abs(result.rows[0].before) > 0.2
    assert result.rows[0].after == pytest.approx(0.0, abs=1e-12)
    assert not result.worst()


def test_each_group_counts_once_per_change():
    ages = [70.0, 70.0, 70.0, 50.0, 60.0, 40.0]
    log = small({"age": ages}, ["a", "b", "a", "b", "a", "b"],
                group=["p", "p", "p", "q", "r", "s"])  # fmt: skip
    result = balance(log, [one(log)])
    assert (result.took, result.others, result.unit) == (2, 2, "groups")
    assert (result.rows[0].mean_took, result.rows[0].mean_others) == (65.0, 45.0)


def test_labels_and_missing_values_are_columns_of_their_own():
    sex = ["f", "m"] * 100
    kind = ["x", "y", "z", None] * 50
    log = small({"sex": sex, "kind": kind}, (["a"] * 3 + ["b"]) * 50)
    result = balance(log, [one(log)])
    assert [row.column for row in result.rows] == ["sex m"], "x, y and z are all of one side"
    assert result.copies == ("kind missing",)
    log = small({"kind": [None, "x", "y", "x"] * 50}, (["a"] * 2 + ["b"] * 3) * 40)
    rows = {row.column: row for row in balance(log, [one(log)]).rows}
    assert set(rows) == {"kind missing", "kind y"}
    assert rows["kind missing"].words.startswith("kind missing ")


def test_a_copy_of_the_action_is_named_and_not_compared():
    action = ["a", "b"] * 100
    log = small({"dose": [5.0 if a == "a" else 0.0 for a in action],
                 "age": list(range(200))}, action)  # fmt: skip
    result = balance(log, [one(log)])
    assert result.copies == ("dose",)
    assert [row.column for row in result.rows] == ["age"]
    assert any("dose (another name of the action" in line for line in result.lines())


def test_few_are_called_chance_and_many_are_sure():
    rng = np.random.default_rng(0)
    for n, mark in ((30, "large, may be chance"), (4000, "differs")):
        took = rng.random(n) < 0.5
        x = rng.normal(size=n) + 0.35 * took
        log = small({"x": x}, list(np.where(took, "a", "b")))
        result = balance(log, [one(log)])
        assert result.rows[0].size > LARGE
        assert result.mark(result.rows[0]) == mark
        words = " ".join(result.warnings())
        assert ("may be chance" in words) == (n == 30)
        assert ("a higher x" in words) == (n == 4000)


def test_pure_lots_are_seldom_called_sure():
    rng = np.random.default_rng(1)
    called = 0
    for _ in range(40):
        log = small({f"x{j}": rng.normal(size=300) for j in range(20)},
                    list(np.where(rng.random(300) < 0.5, "a", "b")))  # fmt: skip
        called += bool(balance(log, [one(log)]).worst())
    assert called <= 5


def test_nothing_to_compare():
    bare = dprl.from_arrays(episode=[1, 2], state=[0, 0], action=["a", "b"], reward=[0, 1])
    assert balance(bare, [one(bare)]) is None
    log = small({"x": [1.0, 2.0]}, ["a", "b"])
    empty = balance(log, [])
    assert (empty.rows, empty.warnings()) == ((), [])
    assert "changes nothing" in empty.lines()[0]
    assert balance(log, [one(log)]).rows == ()
    assert empty.to_dict()["columns"] == ["x"]


def fitted(frame, **columns):
    log = dprl.from_frame(frame, **{**COLUMNS, **columns})
    train, test = log.split(0.5, seed=0)
    return dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train), test, log


def test_a_thinned_trial_names_age():
    policy, test, _ = fitted(trial())
    evaluation = dprl.evaluate(policy, test, draws=50)
    assert evaluation["DR"]["difference"] > 0.02, "the log says that aspirin works"
    first = evaluation.balance.rows[0]
    assert first.column == "age"
    assert first.words == "a lower age"
    assert first.size > 0.4
    assert [row.column for row in evaluation.balance.worst()] == ["age"]
    warned = [line for line in evaluation.warnings if "the state leaves out" in line]
    assert len(warned) == 1
    assert "a lower age" in warned[0]
    assert "age" in str(evaluation)
    assert evaluation.to_dict()["balance"]["rows"][0]["column"] == "age"


def test_the_trial_itself_is_quiet():
    policy, test, _ = fitted(trial(thin=False))
    evaluation = dprl.evaluate(policy, test, draws=50)
    assert not evaluation.balance.worst()
    assert not any("the state leaves out" in line for line in evaluation.warnings)


def test_age_in_the_state_is_taken_out_by_weighting():
    frame = trial()
    frame["band"] = np.where(frame.age < 72, "young", "old")
    policy, test, _ = fitted(frame, state="band")
    evaluation = dprl.evaluate(policy, test, draws=50)
    rows = {row.column: row for row in evaluation.balance.rows}
    if "age" in rows:  # the changes may be of one band alone
        assert rows["age"].size < 0.15


@pytest.mark.parametrize("n_min", [20, 10_000])
def test_the_gate_warns_and_keeps_it(n_min):
    log = dprl.from_frame(trial(8_000), **COLUMNS)
    learner = dprl.DPRLDiscrete(n_min=n_min, gamma=1.0)
    if n_min > 1_000:
        gated = dprl.gate(learner, log, value_range=(0, 1))
        assert not gated.certificate.rows
        return
    with pytest.warns(dprl.BalanceWarning, match="a lower age") as caught:
        gated = dprl.gate(learner, log, value_range=(0, 1))
    assert Path(caught[0].filename).name == Path(__file__).name
    assert any("a lower age" in note for note in gated.certificate.notes)


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "trials" / "ist.parquet").exists(), reason="no stroke trial here")
def test_the_real_trial_thinned_names_age():
    rows = pd.read_parquet(DATA / "trials" / "ist.parquet")
    rows = rows[rows.OCCODE.between(1, 4)].reset_index(drop=True)
    rows = rows.assign(id=range(len(rows)), well=rows.OCCODE.isin([3, 4]).astype(float))
    rng = np.random.default_rng(0)
    treated, young = rows.RXASP == "Y", rows.AGE.median() > rows.AGE
    rows = rows[rng.random(len(rows)) < np.where(treated == young, 1.0, 0.45)]
    names = {"state": "RCONSC", "action": "RXASP"}
    policy, test, log = fitted(rows.reset_index(drop=True), **names)
    evaluation = dprl.evaluate(policy, test, draws=50)
    assert evaluation.balance.rows[0].column == "AGE"
    assert "a lower AGE" in " ".join(evaluation.warnings)
    with pytest.warns(dprl.BalanceWarning, match="a lower AGE"):
        dprl.gate(dprl.DPRLDiscrete(n_min=20, gamma=1.0), log, value_range=(0, 1))


def test_the_gate_compares_within_cells():
    """A column that follows the cell is no difference; one that follows the action is."""
    from test_gate_cells import LEARNER, UNIT, ward

    log = ward(1_500, 0)
    rng = np.random.default_rng(0)
    took = np.array(log.actions)[log.action] == "b"
    place = np.asarray(log.features)[:, 0]
    age = 60 + rng.normal(0, 10, log.n_steps)
    for also, differs in (({"age": age + 8 * took}, True), ({"room": place + age}, False)):
        read = dprl.from_arrays(
            episode=log.episodes, state=np.asarray(log.features), feature_names=["x", "noise"],
            action=[log.actions[a] for a in log.action], reward=log.reward, also=also,
        )  # fmt: skip
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gated = dprl.gate(LEARNER, read, **UNIT)
        assert gated.certificate.rows
        sure = [w for w in caught if "what the state leaves out" in str(w.message)]
        assert bool(sure) == differs
        assert any("a higher age" in note for note in gated.certificate.notes) == differs
