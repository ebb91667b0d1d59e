"""Candidates that were not certified: listed apart with their estimates, and they never act."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dprl
from dprl.policies.rules.rule import Condition, Rule
from dprl.policies.rules.text import facts_of_rules, not_issued, words_of_rules

LOW = (Condition("pressure", "at most", 62.0),)
HIGH = (Condition("pressure", "above", 62.0), Condition("age", "above", 70.0))
MIDDLE = (Condition("pressure", "above", 62.0), Condition("age", "at most", 70.0))


def facts(**own):
    return {
        "steps": 120, "groups": 118, "groups_took": 40, "groups_others": 78, "advantage": 0.31,
        "se": 0.05, "low": 0.1, "high": 0.52, "p": 0.003, "gain": 0.2, "share": 0.4,
        "changed": 0.3, "share_usual": [["wait", 0.7], ["fluids", 0.3]], **own,
    }  # fmt: skip


def made(*rules, tested, **more):
    return dprl.RulePolicy(
        states=(), actions=("fluids", "wait"), feature_names=("pressure", "age"), rules=rules,
        parameters={"delta": 0.05, "gamma": 1.0, "n_min": 20, "learner": "Rules"},
        provenance={
            "steps": 600, "groups": 300, "episodes": 400, "made_by": "dprl", "notes": [],
            "rules": {"tested": tested, "models": [{"model": "a", "log-loss": 0.5}],
                      "divisions": [], "division": 0},
        },
        **more,
    )  # fmt: skip


ISSUED = Rule(LOW, "fluids", facts())
UNSURE = Rule(HIGH, "fluids", facts(advantage=0.02, low=-0.2, high=0.24, p=0.8))
FEW = Rule(MIDDLE, "fluids", facts(groups_took=3, low=0.01))


@pytest.fixture(scope="module")
def policy():
    return made(ISSUED, tested=[r.to_dict() for r in (UNSURE, ISSUED, FEW)])


def test_they_are_listed_apart_with_estimate_and_interval(policy):
    table = not_issued(policy)
    assert table["where"] == [FEW.words, UNSURE.words]  # the highest lower end first
    assert [table[k][1] for k in ("advantage", "low", "high", "p")] == [0.02, -0.2, 0.24, 0.8]
    assert table["why"] == [
        "too few groups with it, or without it", "not surely better than doing otherwise",
    ]  # fmt: skip
    assert "Not issued" in str(table)
    assert len(policy.rules) == 1
    x = np.array([[60.0, 50.0], [70.0, 80.0], [70.0, 50.0]])
    assert policy.at(x).choice.tolist() == [0, -1, -1]  # they never act


@pytest.mark.slow
def test_fit_and_report_show_them(policy, tmp_path):
    assert "Not issued: candidates that were not certified" in words_of_rules(policy)
    assert [row["suggested"] for row in facts_of_rules(policy)["not_issued"]] == ["fluids"] * 2
    rng = np.random.default_rng(0)
    log = dprl.from_arrays(
        episode=range(80), state=rng.normal(65, 8, (80, 2)), reward=rng.normal(size=80),
        action=rng.choice(["fluids", "wait"], 80), feature_names=["pressure", "age"],
    )  # fmt: skip
    for lang, heading, why in (
        ("en", "Candidates that were not issued", "not surely better than doing otherwise"),
        ("de", "Kandidaten, die nicht ausgegeben wurden", "nicht sicher besser als anderes"),
    ):
        dprl.report(policy, log, tmp_path / "r.html", values=False, draws=20, lang=lang)
        page = (tmp_path / "r.html").read_text(encoding="utf-8")
        assert heading in page
        assert why in page
        assert 'lang="en"' not in page.partition("<body")[2] or lang == "en"


def test_changes_lists_them(policy, run, tmp_path):
    policy.save(tmp_path / "p.dprl")
    code, out, _ = run("changes", "p.dprl", "--json")
    assert (code, len(json.loads(out)["not_issued"])) == (0, 2)
    assert "Not issued" in run("changes", "p.dprl")[1]


def test_without_a_record_there_are_none(policy):
    assert len(not_issued(made(ISSUED, tested="damaged"))) == 0
    assert len(not_issued(made(ISSUED, tested=[{"conditions": "odd"}]))) == 0
    narrow = Rule(LOW, "fluids", facts(narrowed=True, narrowed_from=FEW.words))
    assert not_issued(made(narrow, tested=[FEW.to_dict()]))["where"] == []
