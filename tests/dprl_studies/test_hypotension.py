"""The hypotension study, small: its rows, what it says beside them, and what it refuses."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import duckdb
import numpy as np
import pytest

from dprl.errors import LogError, ParameterError
from dprl.evidence.behavior import Behavior
from dprl_studies import icu
from dprl_studies.harness import reproduce
from dprl_studies.icu.simulation import MARK, simulate, true_value
from dprl_studies.paper import hypotension as study

pytestmark = pytest.mark.slow  # whole commands, whole studies

SHORT = ({"learner": "behaviour"}, {"learner": "DPRL", "n_min": 5},
         {"learner": "DPRL planned", "n_min": 2, "reward": "shortfall"}, {"learner": "BC"})  # fmt: skip


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    simulate(folder / "tables", stays=36, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "CONTESTANTS", SHORT)
        small = SimpleNamespace(fit=partial(Behavior.fit, folds=2))
        patch.setattr(study, "Behavior", small)
        study._data.cache_clear()
        one = study.on_tables(folder / "tables", folder / "out")

        def settings(quick, seed):
            found = one.settings(False, seed)
            return [{**s, "quick": quick} for s in found]

        result = reproduce(replace(one, settings=settings), folder / "out", quick=True, workers=1)
    study._data.cache_clear()
    return folder, result


def test_rows_tables_and_figure_are_written(ran):
    folder, result = ran
    names = {p.name for p in (folder / "out").iterdir()}
    assert {"rows.parquet", "summary.csv", "figure.png", "figure.svg", "stays.parquet",
            "stays.flow.md", "stays.dictionary.md", "settings.json", "tables.json"} <= names  # fmt: skip
    table = result.summary
    assert table["contestant"] == [
        "behaviour", "DPRL, n_min 5", "DPRL planned, n_min 2, shortfall", "BC", "best treatment",
    ]  # fmt: skip
    assert table["deferred"][0] == 1
    assert table["deferred"][3] == 0
    assert 0 < table["deferred"][2] < 1


def test_the_truth_stands_beside(ran):
    table = ran[1].summary
    truth = true_value(gamma=study.GAMMA, stays=500, seed=0, costs=icu.Costs())
    assert (table["true_value"][0], table["true_se"][0]) == truth
    assert (
        max(table["true_value"]) == table["true_value"][-1]
    )  # the rule the simulation was built around
    assert "Invented patients" in table.note
    best = true_value(icu.frugal_treatment, gamma=study.GAMMA, stays=500, costs=icu.Costs())
    assert table["true_value"][-1] == best[0]


def test_treatment_costs_where_patients_are_invented_and_the_table_says_so(ran):
    folder, result = ran
    assert (
        "Treatment costs 0.05 per level of bolus and 0.03 per level of vasopressor and hour"
        in result.summary.note
    )
    facts = json.loads((folder / "out" / "settings.json").read_text())
    assert all(t["costs"] == {"bolus": 0.05, "vasopressor": 0.03} for t in facts["tasks"])
    stays = icu.read_stays(folder / "out" / "stays.parquet")
    data = icu.prepare(stays, seed=0, costs=icu.Costs())
    with duckdb.connect() as con:
        rows = con.execute(
            f"SELECT DISTINCT usual, bolus_cost FROM '{folder / 'out' / 'rows.parquet'}'"
        ).fetchall()
    assert rows == [(pytest.approx(study._mean_return(data.test)), 0.05)]
    policy, test = study.reviewed(folder / "out", seed=0)
    assert test.digest() == data.test.digest()
    contestant = {"learner": "DPRL", "n_min": study.REVIEWED}
    again = study.learner(contestant, data.train.n_steps, False, 0).fit(data.train)
    assert policy.digest() == again.digest()


def test_real_tables_keep_the_published_reward(ran, tmp_path):
    tables = shutil.copytree(ran[0] / "tables", tmp_path / "tables")
    (tables / MARK).unlink()  # without its mark, a folder is taken for a hospital's
    one = study.on_tables(tables, tmp_path / "out")
    tasks = one.settings(True, 0)
    assert {t["costs"] for t in tasks} == {None}
    assert "best treatment" not in {t["contestant"]["learner"] for t in tasks}
    _, test = study.reviewed(tmp_path / "out", seed=0)
    published = icu.prepare(icu.read_stays(tmp_path / "out" / "stays.parquet"), seed=0).test
    assert test.digest() == published.digest()
    assert "costs" not in str(study.summary(rows_without_costs()).note)
    (tmp_path / "out" / "tables.json").unlink()
    with pytest.raises(LogError, match="does not say what treatment costs"):
        study.reviewed(tmp_path / "out", seed=0)


def rows_without_costs():
    """The rows of a study of real tables, one contestant."""
    numbers = ("deferred", "changes", "DR", "DR_low", "DR_high", "difference", "difference_low",
               "difference_high", "ess_change", "followers", "true_value", "true_se",
               "train_patients", "test_patients", "usual", "bolus_cost",
               "vasopressor_cost")  # fmt: skip
    rows = {name: np.array([0.0]) for name in numbers}
    names = np.array(["behaviour"])
    return {**rows, "contestant": names, "learner": names, "simulated": np.array([False])}


def test_few_patients_are_said_to_show_nothing(ran):
    assert "TOO SMALL FOR CONCLUSIONS: 17 test patients" in ran[1].summary.note


def test_splits_are_a_quarter_a_quarter_and_a_half(ran):
    facts = json.loads((ran[0] / "out" / "settings.json").read_text())
    assert facts["tasks"][0]["simulated"] is True
    stays = icu.read_stays(ran[0] / "out" / "stays.parquet")
    assert [len(p.subjects) for p in stays.split(seed=0)] == [8, 8, 17]
    data = icu.prepare(stays, seed=0)
    step = np.arange(data.test.n_steps) - np.repeat(data.test.starts[:-1], data.test.lengths)
    G = np.add.reduceat(data.test.reward * study.GAMMA**step, data.test.starts[:-1])
    assert study._mean_return(data.test) == pytest.approx(G.mean())


def test_the_papers_own_rule_is_a_contestant_with_the_papers_settings():
    mine = [c for c in study.CONTESTANTS if c["learner"] == "DPRL paper"]
    made = [study.learner(c, 1000, False, 0) for c in mine]
    assert [(m.n_min, m.radius, m.contrast, m.visits, m.plan) for m in made] == [
        (n, 10.0, False, "all", False) for n in (10, 30, 50)
    ]
    ours = study.learner({"learner": "DPRL", "n_min": 10}, 1000, False, 0)
    assert (ours.contrast, ours.visits) == (True, "first")


def test_without_torch_the_study_goes_on_without_cql_and_says_so(monkeypatch):
    about = {"stays": "x", "digest": "x", "simulated": False, "costs": None}
    whole = [t["contestant"]["learner"] for t in study.settings(False, 0, **about)]
    monkeypatch.setattr(study, "find_spec", lambda name: None)
    left = [t["contestant"]["learner"] for t in study.settings(False, 0, **about)]
    assert [name for name in whole if name != "CQL"] == left
    assert "CQL was left out: it needs torch" in study.summary(rows_without_costs()).note


def test_every_contestant_can_be_made():
    for one in study.CONTESTANTS:
        if one["learner"] not in study.SILENT:
            made = study.learner(one, 1000, True, 0)
            if "n_min" in one:
                asked = getattr(made, "n_min", None) or made.b * 1000
                assert asked == pytest.approx(one["n_min"])
                assert made.radius == 10
    names = [study.label(c) for c in study.CONTESTANTS]
    assert len(set(names)) == len(names)


def test_estimates_come_from_evaluate(monkeypatch):
    class Found:
        facts: ClassVar = {"ess": 5.0, "ess_change": 2.0, "reached_change": 4,
                           "followers_change": 3,
                           "changed": 0.25, "more": "x"}  # fmt: skip
        behavior: ClassVar = {"value": 1.0, "low": 0.5, "high": 1.5}

        def __getitem__(self, name):
            assert name == "DR"
            return {"value": 2.0, "value_low": 1.0, "value_high": 3.0, "difference": 1.0,
                    "difference_low": 0.0, "difference_high": 2.0}  # fmt: skip

    def evaluate(policy, test, *, gamma, cut, behavior, seed):
        assert (policy, test, gamma, cut, seed) == ("policy", "log", 0.99, "terminal", 7)
        assert behavior == "known"
        return Found()

    monkeypatch.setattr(study, "evaluate", evaluate)
    row = study.judge("policy", "log", "known", 7)
    assert tuple(row) == study.ESTIMATES
    assert (row["DR"], row["behavior"], row["ess_change"], row["followers"]) == (2, 1, 2, 3)
    assert all(math.isnan(v) for v in study.judge(None, "log", "known", 7).values())


def test_tables_are_needed(tmp_path, capsys):
    with pytest.raises(ParameterError, match="needs a folder of MIMIC tables"):
        study.on_tables(None, tmp_path)
    from dprl.apps.cli.main import main

    with pytest.raises(SystemExit) as done:
        main(["reproduce", "hypotension", "--out", str(tmp_path / "o"), "--json"])
    assert done.value.code == 1
    assert "dprl icu simulate" in json.loads(capsys.readouterr().out)["error"]["do"]
