"""Subgroups: who is in which, what each is worth, intervals for all at once, and who may lose."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from thinned import COLUMNS, trial

import dprl
from dprl.evaluation.subgroups import MOST, _members, columns_by

NAMES = {"episode": "id", "state": "stage", "action": "drug", "reward": "score"}


def patients(n=2_000, seed=0, harm=-0.3, gain=0.3, women=0.5):
    """One decision a patient: the drug helps men and harms women, and sex is not in the state."""
    rng = np.random.default_rng(seed)
    woman = rng.random(n) < women
    drug = rng.random(n) < 0.5
    effect = np.where(woman, harm, gain)
    return pd.DataFrame({
        "id": range(n), "stage": "ill", "drug": np.where(drug, "new", "old"),
        "score": rng.normal(0, 0.5, n) + drug * effect, "sex": np.where(woman, "f", "m"),
        "age": rng.integers(20, 90, n), "ward": np.where(rng.random(n) < 0.5, "a", None),
    })  # fmt: skip


NEW = dprl.CallablePolicy(lambda states: ["new"] * len(states), actions=("new", "old"))
"""A policy that gives everybody the new drug."""


def judged(frame, by, **more):
    log = dprl.from_frame(frame, **NAMES)
    return dprl.evaluate(NEW, log, gamma=1, by=by, draws=500, **more)


def test_who_is_in_which_subgroup():
    log = dprl.from_arrays(
        episode=[0, 0, 1, 2, 3, 4, 5, 6, 7], state=[[float(i)] for i in range(9)],
        action=["a"] * 9, reward=[0.0] * 9, feature_names=["x"],
        also={"age": [1, 9, 2, 3, 4, 5, 6, 7, 8], "n": [1, 1, 1, 2, 2, 2, 2, 2, 2],
              "sex": ["f", "m", "m", "f", "f", "f", "f", "f", None]},
    )  # fmt: skip
    first = {word: np.flatnonzero(rows).tolist() for word, rows in _members(log, "age")}
    assert first == {"up to 2": [0, 1], "above 2 to 4": [2, 3], "above 4 to 6": [4, 5],
                     "above 6": [6, 7]}  # fmt: skip
    assert [word for word, _ in _members(log, "n")] == ["1", "2"]
    assert {w: int(r.sum()) for w, r in _members(log, "sex")} == {"f": 6, "m": 1, "missing": 1}
    assert sum(int(rows.sum()) for _, rows in _members(log, "x")) == 8


def test_the_harmed_are_named():
    evaluation = judged(patients(), ["sex", "ward"])
    rows = {(row.column, row.value): row for row in evaluation.subgroups.rows}
    woman, man = rows["sex", "f"], rows["sex", "m"]
    assert (woman.verdict, man.verdict) == ("loses", "gains")
    assert woman.difference == pytest.approx(-0.15, abs=0.05), "half of them had it already"
    assert man.difference == pytest.approx(0.15, abs=0.05)
    assert woman.low < woman.difference < woman.high < 0
    assert woman.episodes + man.episodes == woman.groups + man.groups == 2_000
    assert woman.changed in (0.0, 1.0)
    assert rows["ward", "missing"].episodes > 900
    assert any("worse than usual practice for sex f" in line for line in evaluation.warnings)
    assert "sex     f" in evaluation.details()
    facts = json.loads(evaluation.to_json())["subgroups"]
    assert [row["value"] for row in facts["rows"][:2]] == ["f", "m"]
    assert facts["warnings"]
    assert "For whom" in evaluation._repr_html_()


def test_a_subgroup_is_its_own_evaluation():
    """The estimate of a subgroup is what an evaluation of these episodes alone says."""
    frame = patients(1_000)
    log = dprl.from_frame(frame, **NAMES)
    chance = np.full((log.n_steps, 2), 0.5)
    whole = dprl.evaluate(NEW, log, gamma=1, behavior=chance, by="sex", draws=200, values=False)
    for row in whole.subgroups.rows:
        part = log.take(np.flatnonzero(frame.sex == row.value))
        alone = dprl.evaluate(
            NEW, part, gamma=1, behavior=chance[: part.n_steps], draws=2, values=False
        )
        assert row.difference == pytest.approx(alone["WIS"]["difference"], abs=1e-12)
    assert whole.subgroups.estimator == "WIS"


def test_what_the_state_leaves_out_is_no_gain_of_a_subgroup():
    """Aspirin does nothing: it seems to help on the whole, and in no band of age."""
    frame = trial(12_000)
    log = dprl.from_frame(frame, **COLUMNS)
    train, test = log.split(0.5, seed=0)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
    evaluation = dprl.evaluate(policy, test, by="age", draws=300)
    assert evaluation["DR"]["difference_low"] > 0
    assert all(abs(row.difference) < 0.03 for row in evaluation.subgroups.rows)
    assert not any(row.verdict == "gains" for row in evaluation.subgroups.rows)
    weights = [row.weight for row in evaluation.subgroups.rows]
    assert weights[0] > 1.15
    assert weights[-1] < 0.85


def test_few_cannot_say_and_where_nothing_changes_nothing_is_claimed():
    frame = patients(400, women=0.06)
    evaluation = judged(frame, "sex")
    rows = {row.value: row for row in evaluation.subgroups.rows}
    assert rows["f"].verdict == "cannot say"
    assert rows["m"].verdict == "gains"
    assert any(line.startswith("this log cannot say") and "sex f" in line
               for line in evaluation.warnings)  # fmt: skip
    log = dprl.from_frame(frame, **NAMES)
    silent = dprl.DPRLDiscrete(n_min=10_000, gamma=1.0).fit(log)
    told = dprl.evaluate(silent, log, by="sex", draws=50, allow_seen=True).subgroups
    assert {row.verdict for row in told.rows} == {"not changed"}
    assert {row.difference for row in told.rows} == {0.0}


def test_where_nothing_is_sure_of_all_nothing_is_said_of_some():
    """One in ten meets a stage in which nobody got the drug: what it would do there is a guess."""
    frame = patients(800, harm=0.3)
    never = np.arange(800) % 10 == 0
    frame = frame.assign(
        stage=np.where(never, "late", "ill"), drug=np.where(never, "old", frame.drug)
    )
    evaluation = judged(frame, "sex")
    assert np.isnan(evaluation["DR"]["difference_low"])
    assert {row.verdict for row in evaluation.subgroups.rows} == {"cannot say"}


def test_softly_where_it_is_not_sure():
    evaluation = judged(patients(600, 1, harm=0.0), "sex")
    row = next(row for row in evaluation.subgroups.rows if row.value == "f")
    assert row.verdict == "leans down"
    assert any(line.startswith("worse than usual practice, but not surely: sex f")
               for line in evaluation.warnings)  # fmt: skip


def test_columns_of_the_state_may_be_asked_too():
    frame = patients(300)
    log = dprl.from_frame(frame, **{**NAMES, "state": "sex"})
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
    by = dprl.evaluate(policy, log, by="sex", draws=20, allow_seen=True).subgroups
    assert [row.value for row in by.rows] == ["f", "m"]


def test_groups_are_drawn_as_a_whole():
    """Four copies of every patient say no more than one."""
    frame = patients(400)
    four = pd.concat([frame.assign(id=frame.id + 1_000 * k, patient=frame.id) for k in range(4)])
    log = dprl.from_frame(four, **NAMES, group="patient")
    chance = np.full((log.n_steps, 2), 0.5)
    whole = dprl.evaluate(NEW, log, gamma=1, behavior=chance, by="sex", draws=400, values=False)
    alone = judged(frame, "sex", behavior=chance[:400], values=False)
    for row, other in zip(whole.subgroups.rows, alone.subgroups.rows, strict=True):
        assert (row.episodes, row.groups) == (4 * other.episodes, other.episodes)
        assert row.high - row.low == pytest.approx(other.high - other.low, rel=0.2)
    assert "groups" in whole.subgroups.table().columns


def test_the_same_seed_gives_the_same_numbers():
    frame = patients(300)
    one, two = (judged(frame, ["sex"], seed=3).subgroups for _ in range(2))
    assert one == two


def test_bad_columns_are_refused():
    log = dprl.from_frame(patients(100), **NAMES)
    for by, words in (("sax", "Did you mean 'sex'"), ("weight", "also=\\['weight'\\]")):
        with pytest.raises(dprl.ParameterError, match="make subgroups of") as refused:
            dprl.evaluate(NEW, log, gamma=1, by=by)
        assert refused.match(words)
    many = patients(600).assign(ward=[f"w{i % (MOST + 1)}" for i in range(600)])
    log = dprl.from_frame(many, **NAMES, also=["ward"])
    with pytest.raises(dprl.ParameterError, match=f"at most {MOST}"):
        dprl.evaluate(NEW, log, gamma=1, by="ward", draws=10, values=False)
    assert columns_by(["sex, age", "ward"], dprl.from_frame(patients(40), **NAMES)) == [
        "sex", "age", "ward",
    ]  # fmt: skip


def coverage(logs, draws):
    """How often all intervals hold at once, where nothing is different in any subgroup."""
    held = 0
    for seed in range(logs):
        frame = patients(600, seed, harm=0.0, gain=0.0)
        log = dprl.from_frame(frame, **NAMES)
        by = dprl.evaluate(
            NEW, log, gamma=1, behavior=np.full((600, 2), 0.5), by=["sex", "age", "ward"],
            draws=draws, values=False, seed=seed,
        ).subgroups  # fmt: skip
        held += all(row.low <= 0 <= row.high for row in by.rows)
    return held


@pytest.mark.slow
def test_the_intervals_hold_for_all_at_once():
    """Where only 78 % of logs had all of them hold, this would see it 99 times in 100."""
    assert 88 <= coverage(100, 300) < 100
