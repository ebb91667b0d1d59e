"""Figures: what they are drawn from, what is drawn, and what is written. Not their pixels."""

from __future__ import annotations

import functools

import numpy as np
import pandas
import pytest

import dprl
from dprl import figures
from dprl.evaluation import budget
from dprl.logs.reading.tables import read_rows


@functools.cache
def ward():
    log = dprl.envs.care_pathway().sample(1500, seed=0)
    return log, dprl.DPRLDiscrete(n_min=40, gamma=1.0).fit(log)


@functools.cache
def patients():
    """Two features; a drug helps where the first is low. Age is beside the state."""
    rng = np.random.default_rng(0)
    n = 500
    x = rng.random((n, 2))
    drug = rng.random(n) < 0.4
    well = (rng.random(n) < 0.4 + 0.5 * drug * (x[:, 0] < 0.5)).astype(float)
    log = dprl.from_arrays(
        episode=np.arange(n), state=x, feature_names=["pressure", "lactate"],
        action=np.where(drug, "drug", "wait"), reward=well,
    )  # fmt: skip
    learner = dprl.DPRLContinuous(
        n_min=20, radius=0.25, gamma=1.0, metric=dprl.Metric(scale="none")
    )
    return log, learner.fit(log)


def test_curves_by_action_are_those_of_the_log():
    frame = pandas.DataFrame(
        {"id": range(6), "s": "x", "arm": list("aabbab"), "days": [3, 9, 4, 9, 9, 1],
         "died": [1, 0, 1, 0, 0, 1]}
    )  # fmt: skip
    log = dprl.from_frame(
        frame, episode="id", state="s", action="arm", survival=("days", "died"), horizon=5
    )
    figure = figures.curves(log)
    assert figure.table["share"] == log.curves(figure.table["time"][:101])["share"]
    (axis,) = figure.draw().axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["a", "b"]


def test_the_tradeoff_adds_up_what_is_paid_in_its_order():
    train, test = dprl.envs.care_pathway().sample(2000, seed=0).split(0.5, seed=0)
    policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(train)
    paid = budget(policy, test, most=0.25, costs={"antibiotics": 1}, draws=50)
    figure = figures.tradeoff(paid)
    rows = figure.table.to_dicts()
    assert rows[0]["spent"] == paid.usual
    gains = [row["gain"] for row in paid.rows if row["gain"] > 0]
    assert rows[-1]["gained"] == pytest.approx(sum(gains))
    (axis,) = figure.draw().axes
    assert len(axis.texts) == len(gains)


def rule_policy():
    def rule(kind, suggested, **facts):
        return {
            "conditions": [{"feature": "pressure", "kind": kind, "value": 0.5}],
            "suggested": suggested, "facts": {"share_usual": [["wait", 0.6], ["drug", 0.4]], **facts},
        }  # fmt: skip

    return dprl.RulePolicy(
        states=(), actions=("drug", "wait"), parameters={}, provenance={},
        feature_names=("pressure", "lactate"),
        rules=(rule("at most", "drug", advantage=0.4, low=0.2, high=0.6, groups=100),),
    )  # fmt: skip


def test_a_forest_shows_each_change_at_its_advantage():
    _, policy = ward()
    figure = figures.forest(policy)
    changes = {row["state"]: row for row in policy.changes()}
    rows = [row for row in figure.table if row["kind"] == "change"]
    assert {row["where"] for row in rows} == set(changes)
    for row in rows:
        for name in ("advantage", "low", "high", "suggested"):
            assert row[name] == changes[row["where"]][name]
    assert list(figure.table["low"]) == sorted(figure.table["low"], reverse=True)
    axis = figure.draw().axes[0]
    drawn = sorted(float(line.get_xdata()[0]) for line in axis.lines if line.get_marker() in "os"
                   and len(line.get_xdata()))  # fmt: skip
    assert drawn == sorted(figure.table["advantage"])
    assert [t.get_text() for t in axis.get_yticklabels()] == [
        f"{row['where']}: {row['suggested']}" for row in figure.table
    ]


def test_a_forest_says_what_it_leaves_out():
    _, policy = patients()
    listed = len(policy.changes()) + len(policy.confirmations())
    figure = figures.forest(policy, most=5)
    assert len(figure.table) == 5
    assert f"{listed - 5:,} more" in figure.words
    with pytest.raises(dprl.ParameterError, match="most must be a whole number"):
        figures.forest(policy, most=0)


def test_a_forest_marks_what_is_proved_and_rules_speak_of_doing_otherwise():
    log = dprl.envs.care_pathway().sample(4000, seed=0)
    gated = dprl.gate(dprl.DPRLDiscrete(n_min=20, gamma=1.0), log, value_range=(0, 1))
    proved = {row["state"]: row["advantage_low"] for row in gated.certificate.rows}
    assert proved
    figure = figures.forest(gated)
    assert {row["where"]: row["proved"] for row in figure.table} == proved
    rules = figures.forest(rule_policy())
    assert rules.draw().axes[0].get_xlabel() == "advantage over doing otherwise"
    assert rules.table["where"] == ["pressure at most 0.5"]


def test_a_policy_without_intervals_has_no_forest():
    policy = dprl.DPRLDiscrete(n_min=10**6, gamma=1.0).fit(ward()[0])
    figure = figures.forest(policy)
    assert len(figure.table) == 0
    assert "suggests nothing" in figure.words
    figure.draw()
    with pytest.raises(dprl.ParameterError, match="no rows"):
        figure.save("never.png")
    rival = dprl.baselines.SPIBB(n_min=20, gamma=1.0).fit(ward()[0])
    with pytest.raises(dprl.PolicyError, match="keeps no record of usual practice"):
        figures.forest(rival)
    assert set(figures.policy_map(rival, ward()[0]).table["kind"]) == {"suggestion"}


def by_hand(log, state, action):
    """Share of episodes that took the action at their first visit of the state."""
    firsts = []
    for e in range(log.n_episodes):
        steps = range(log.starts[e], log.starts[e + 1])
        here = [i for i in steps if log.states[log.codes()[i]] == state]
        firsts += [log.actions[log.action[here[0]]]] if here else []
    return firsts.count(action) / len(firsts)


def test_a_map_of_a_rival_counts_practice_in_a_log():
    log = dprl.envs.care_pathway().sample(200, seed=0)
    rival = dprl.baselines.SPIBB(n_min=20, gamma=1.0).fit(log)
    with pytest.raises(dprl.ParameterError, match="keeps no record of it") as caught:
        figures.policy_map(rival)
    assert "policy_map(policy, log)" in str(caught.value)
    figure = figures.policy_map(rival, log)
    for state in rival.states:
        rows = [row for row in figure.table if row["state"] == state]
        assert sum(row["share"] for row in rows) == pytest.approx(1)
        assert sum(row["probability"] for row in rows) == pytest.approx(1)
    for row in list(figure.table)[:8]:
        assert row["share"] == pytest.approx(by_hand(log, row["state"], row["action"]))
        pi = rival.pi[rival.states.index(row["state"]), rival.actions.index(row["action"])]
        assert row["probability"] == pi
    assert "never defers" in figure.words
    assert "200 episodes" in figure.words
    words = [t.get_text() for t in figure.draw().axes[0].texts]
    assert any(" %, " in text for text in words)  # what it mixes, with its chances


def test_a_map_of_a_model_of_ones_own():
    log = dprl.envs.care_pathway().sample(200, seed=0)
    rule = dprl.CallablePolicy(
        lambda states: ["fluids" if s == "fever" else None for s in states],
        actions=("fluids", "antibiotics"), trained_on=[],
    )  # fmt: skip
    with pytest.raises(dprl.ParameterError, match="keeps no record of it"):
        figures.policy_map(rule)
    figure = figures.policy_map(rule, log)
    assert figure.words.startswith(f"Suggestions in 1 of {log.n_states} states")
    row = next(r for r in figure.table if r["state"] == "fever" and r["action"] == "fluids")
    assert row["share"] == pytest.approx(by_hand(log, "fever", "fluids"))
    assert (row["kind"], row["suggested"], row["probability"]) == ("suggestion", "fluids", 1.0)
    silent = next(r for r in figure.table if r["state"] == "stable")
    assert (silent["kind"], silent["probability"]) == ("defer", None)
    figure.draw()
    patients_log = patients()[0]
    over = dprl.CallablePolicy(lambda x: ["drug"] * len(x), actions=("drug", "wait"))
    figure = figures.policy_map(over, patients_log, steps=3)
    assert figure.table["suggested"] == ["drug"] * 9
    assert list(figure.table.columns)[:2] == ["pressure", "lactate"]


def test_a_map_of_labels_says_what_the_policy_says():
    _, policy = ward()
    table = figures.policy_map(policy).table
    states = list(dict.fromkeys(table["state"]))
    assert set(states) == set(policy.states)
    answers = dict(zip(states, policy.act(states), strict=True))
    for row in table:
        assert (row["suggested"] is None) == (answers[row["state"]] is dprl.DEFER)
        if row["suggested"] is not None:
            assert row["suggested"] == answers[row["state"]]
    for state in states:
        assert sum(r["share"] for r in table if r["state"] == state) == pytest.approx(1)
    words = [t.get_text() for t in figures.policy_map(policy).draw().axes[0].texts]
    assert words.count("DEFER") == sum(a is dprl.DEFER for a in answers.values())


def test_a_map_of_features_says_what_the_policy_says():
    log, policy = patients()
    figure = figures.policy_map(policy, log, steps=12)
    table = figure.table
    assert len(table) == 144
    at = np.column_stack([table["pressure"], table["lactate"]])
    for said_to_be, answer in zip(table["suggested"], policy.act(at), strict=True):
        assert said_to_be == (None if answer is dprl.DEFER else answer)
    axis = figure.draw().axes[0]
    assert sum(len(line.get_xdata()) for line in axis.lines) == 144
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("pressure", "lactate")
    turned = figures.policy_map(policy, log, features=["lactate", "pressure"], steps=3)
    assert list(turned.table.columns)[:2] == ["lactate", "pressure"]
    with pytest.raises(dprl.ParameterError, match="needs a log"):
        figures.policy_map(policy)
    with pytest.raises(dprl.ParameterError, match="two features"):
        figures.policy_map(policy, log, features=["pressure", "age"])


def test_the_tree_of_rules_has_its_rules():
    figure = figures.rule_tree(rule_policy())
    assert figure.table["suggested"] == ["drug"]
    assert "pressure at most 0.5?" in [t.get_text() for t in figure.draw().axes[0].texts]
    with pytest.raises(dprl.ParameterError, match="needs rules"):
        figures.rule_tree(ward()[1])


def test_calibration_is_that_of_the_model():
    log, _ = ward()
    behavior = dprl.Behavior.fit(log)
    rows = figures.calibration(behavior).table.to_dicts()
    for row, counted in zip(rows, behavior.calibration(), strict=True):
        assert row["happened"] * row["times"] == pytest.approx(counted["happened"])
        assert row["expected"] * row["times"] == pytest.approx(counted["expected"])
        assert 0 <= row["low"] <= row["happened"] <= row["high"] <= 1
    figures.calibration(behavior).draw()


def test_balance_is_that_of_the_evaluation():
    _, policy = ward()
    rng = np.random.default_rng(1)
    held_out = dprl.envs.care_pathway().sample(400, seed=9)
    episode = np.repeat(np.arange(held_out.n_episodes), held_out.lengths)
    age = rng.normal(70, 8, held_out.n_episodes)
    rows = {
        "patient": episode, "state": [held_out.states[s] for s in held_out.state],
        "action": [held_out.actions[a] for a in held_out.action], "reward": held_out.reward,
        "age": age[episode],
    }  # fmt: skip
    import pandas as pd

    aside = dprl.from_frame(
        pd.DataFrame(rows), episode="patient", state="state", action="action", reward="reward",
        also=["age"],
    )  # fmt: skip
    result = dprl.evaluate(policy, aside, draws=20, values=False)
    figure = figures.balance(result)
    assert "age" in figure.table["column"]
    for row, compared in zip(figure.table, result.balance.rows, strict=True):
        assert row["column"] == compared.column
        assert (row["before"], row["after"]) == (compared.before, compared.after)
    (first,) = figures.balance(result.balance, most=1).table
    assert first["before"] == result.balance.rows[0].before
    figure.draw()
    with pytest.raises(dprl.ParameterError, match="nothing to compare"):
        figures.balance(dprl.evaluate(policy, held_out, draws=20, values=False))


def test_value_against_size_where_the_truth_is_known():
    world = dprl.envs.care_pathway()
    log, _ = ward()
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    figure = figures.value_by_size(learner, log, sizes=[50, 1500], repeats=2, value=world.value)
    rows = figure.table.to_dicts()
    assert [row["size"] for row in rows] == [50, 50, 1500, 1500]
    # The whole log is the whole log, whoever is drawn first.
    assert rows[2]["value"] == rows[3]["value"] == world.value(learner.fit(log))
    again = figures.value_by_size(learner, log, sizes=[50, 1500], repeats=2, value=world.value)
    assert again.table.to_dicts() == rows
    figure.draw()
    with pytest.raises(dprl.ParameterError, match="sizes must be a whole number"):
        figures.value_by_size(learner, log, sizes=[5000], value=world.value)
    with pytest.raises(dprl.ParameterError, match="either"):
        figures.value_by_size(learner, log, sizes=[50])


def test_value_against_size_on_held_out_episodes():
    log, _ = ward()
    test = dprl.envs.care_pathway().sample(300, seed=4)
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    figure = figures.value_by_size(learner, log, test, sizes=[1500], repeats=1, estimator="WIS")
    result = dprl.evaluate(learner.fit(log), test, draws=50, seed=0)
    assert figure.table["value"] == [result["WIS"]["difference"]]
    with pytest.raises(dprl.ParameterError, match="no estimate 'XYZ'"):
        figures.value_by_size(learner, log, test, sizes=[1500], repeats=1, estimator="XYZ")


def test_a_saved_figure_has_its_rows_beside_it(tmp_path):
    figure = figures.forest(ward()[1])
    figure.save(tmp_path / "changes.svg")
    assert "<svg" in (tmp_path / "changes.svg").read_text()
    rows = read_rows([tmp_path / "changes.parquet"])
    assert rows["where"].tolist() == figure.table["where"]
    assert rows["low"].tolist() == pytest.approx(list(figure.table["low"]))
    assert list(figure.to_frame()["where"]) == figure.table["where"]


def test_a_figure_shows_itself_in_a_notebook():
    figure = figures.rule_tree(rule_policy())
    shown = figure._repr_html_()
    assert shown.startswith('<img src="data:image/svg+xml;base64,')
    assert "pressure is at most 0.5" in shown
    assert repr(figure) == "<Figure: rule_tree, 1 row>"
