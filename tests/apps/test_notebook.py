"""In a notebook every noun shows itself: as HTML, with what it is about, and every label escaped."""

from __future__ import annotations

import functools
import html
import re

import numpy as np
import pandas as pd
import pytest

import dprl

EVIL = "<script>alert(1)</script>"


@functools.cache
def nouns():
    rng = np.random.default_rng(0)
    n = 400
    rows = pd.DataFrame({
        "patient": range(n), "state": rng.choice(["ill", EVIL], n),
        "action": rng.choice(["drug", "wait"], n, p=[0.35, 0.65]), "age": rng.normal(60, 9, n),
    })  # fmt: skip
    rows["reward"] = (rng.random(n) < 0.3 + 0.5 * (rows.action == "drug")).astype(float)
    columns = {"episode": "patient", "state": "state", "action": "action", "reward": "reward"}
    log = dprl.from_frame(rows, **columns, also=["age"])
    train, test = log.split(0.5, seed=0)
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    policy = learner.fit(train)
    evaluation = dprl.evaluate(policy, test, draws=20, values=False)
    plain = dprl.from_frame(rows, **columns, also=())
    gated = dprl.gate(learner, plain, value_range=(0, 1))
    return {
        "log": log,
        "check": dprl.check(rows, **columns),
        "policy": policy,
        "gated policy": gated,
        "certificate": gated.certificate,
        "explanation": policy.explain(EVIL),
        "changes": policy.changes(),
        "evaluation": evaluation,
        "balance": evaluation.balance,
        "behaviour": dprl.Behavior.fit(log),
        "sweep": dprl.sweep(learner, train, test, n_min=[20, 40], values=False, draws=20),
        "sensitivity": dprl.sensitivity(policy, test, gamma=[1, 2], draws=20),
        "Markov check": dprl.markov_check(log, gamma=1.0),
        "monitor": dprl.Monitor(gated).look(),
        "rival": dprl.baselines.SPIBB(n_min=20, gamma=1.0).fit(train),
        "model": dprl.CallablePolicy(lambda s: ["drug"] * len(s), actions=log.actions),
        "figure": dprl.figures.forest(policy),
    }


NAMES = (
    "log", "check", "policy", "gated policy", "certificate", "explanation", "changes", "evaluation",
    "balance", "behaviour", "sweep", "sensitivity", "Markov check", "monitor", "rival", "model",
    "figure",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_it_shows_itself(name):
    shown = nouns()[name]._repr_html_()
    assert re.match(r"\s*<", shown)
    assert len(re.sub(r"<style.*?</style>|<[^>]*>", "", shown, flags=re.DOTALL).strip()) > 10
    assert "<script" not in shown


def test_a_log_says_what_was_done():
    log = nouns()["log"]
    shown = log._repr_html_()
    assert repr(log) in shown
    counts = np.bincount(log.action)
    for action, count in zip(log.actions, counts, strict=True):
        assert f"<td>{action}</td><td>{count}</td>" in shown


def test_no_row_is_left_out_of_the_list():
    assert set(NAMES) == set(nouns())


def test_the_short_answer_comes_first_with_a_picture_and_the_rest_is_folded():
    for name in ("evaluation", "certificate", "sweep", "sensitivity"):
        shown = nouns()[name]._repr_html_()
        first = nouns()[name].brief()[0]
        before = re.sub(r"<style.*?</style>", "", shown, flags=re.DOTALL).split("<details>")[0]
        assert first[:40] in html.unescape(before)
        assert ("<svg" in before) or ("<img" in before)
        assert len(re.sub(r"<[^>]*>", "", before).split()) < 250


def test_policy_and_evaluation_draw_themselves(tmp_path):
    nouns()["policy"].plot(tmp_path / "policy.svg")
    figure = nouns()["evaluation"].plot(tmp_path / "evaluation.png")
    assert figure.axes[0].get_yticklabels()[0].get_text().startswith("WIS: ")
    rows = pd.read_parquet(tmp_path / "policy.parquet")
    assert set(rows.suggested) <= {"drug", "wait"}
    assert len(pd.read_parquet(tmp_path / "evaluation.parquet")) == len(nouns()["evaluation"].rows)
    with pytest.raises(dprl.PolicyError, match="keeps no record"):
        nouns()["rival"].plot()


def test_table_1_is_that_of_pandas():
    log = nouns()["log"]
    table = log.describe().to_frame().set_index(["column", "what"])
    rows = pd.DataFrame({
        "age": log.also.numbers(0), "action": [log.actions[a] for a in log.action],
        "state": [log.states[s] for s in log.state],
    })  # fmt: skip
    by = rows.groupby("action").age
    for action in log.actions:
        assert table.loc[("age", "mean"), action] == pytest.approx(by.mean()[action])
        assert table.loc[("age", "sd"), action] == pytest.approx(by.std()[action])
        ill = (rows.state[rows.action == action] == "ill").mean()
        assert table.loc[("state", "share ill"), action] == pytest.approx(ill)
    apart = abs(by.mean().diff().iloc[-1]) / np.sqrt((by.std() ** 2).mean())
    assert table.loc[("age", "mean"), "difference"] == pytest.approx(apart)
    assert table.loc[("episodes", "number"), "all"] == log.n_episodes
    assert list(log.describe("state").columns)[3:5] == [EVIL, "ill"]
    with pytest.raises(dprl.ParameterError, match="no column of labels"):
        log.describe(by="age")


def test_table_1_is_about_the_first_decision_of_a_group():
    log = dprl.from_arrays(
        episode=[1, 1, 2, 3], group=["a", "a", "a", "b"], state=["x", "y", "y", "x"],
        action=["d", "w", "w", "w"], reward=[0.0, 1.0, 1.0, 0.0],
    )  # fmt: skip
    table = log.describe()
    assert (table["column"][0], table["all"][0], table["d"][0], table["w"][0]) == (
        "groups",
        2,
        1,
        1,
    )
    assert table["what"][1:] == ["share x"]
