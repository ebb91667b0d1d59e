"""A reward that is a sum, with costs and guarded harms: read, judged by part, and refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dprl
from dprl.errors import LogError, ParameterError
from dprl.evaluation import by_part
from dprl.logs.reading.sums import weights_of

COLUMNS = {"episode": "id", "state": "s", "action": "arm"}


def made(n=1200, bleeding=0.3, seed=0):
    """A drug that helps, costs, and makes more bleed."""
    rng = np.random.default_rng(seed)
    drug = rng.random(n) < 0.5
    return pd.DataFrame(
        {"id": range(n), "s": rng.choice(["u", "v"], n), "arm": np.where(drug, "drug", "wait"),
         "well": drug + rng.normal(size=n), "toxicity": 0.4 * drug + 0.1 * rng.normal(size=n),
         "bleeding": (rng.random(n) < 0.05 + bleeding * drug).astype(float), "price": 3.0 * drug}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a - 0.5*b", {"a": 1.0, "b": -0.5}),
        ("-(a + b)*2 + 3*4", {"a": -2.0, "b": -2.0, "": 12.0}),
        ("2*(1 - 3)*a + a", {"a": -3.0}),
        ("`days off` + é.1 * 1e-2", {"days off": 1.0, "é.1": 0.01}),
        ("a - a", {}),
    ],
)
def test_a_weighted_sum_is_read(text, want):
    got = weights_of(text)
    assert {name: w for name, w in got.items() if w} == want


@pytest.mark.parametrize(
    "text", ["a*b", "a -", "2 + (b", "a ** 2", "__import__('os')", "a b", "(" * 99 + "a" + ")" * 99,
             "a and b", "a[0]", "lambda: a", ""],
)  # fmt: skip
def test_anything_else_is_refused(text):
    with pytest.raises(ParameterError, match=r"no weighted sum|reward"):
        weights_of(text)


@pytest.mark.parametrize("costs", [5, True, {"drug": -1}, "drug=-3", {"drug": "x"}])
def test_a_cost_is_a_number_of_at_least_0_or_a_column(costs):
    with pytest.raises(ParameterError, match=r"or the cost of each action, at least 0"):
        dprl.from_frame(made(50), costs=costs, reward="well", **COLUMNS)
    below = made(50).assign(price=-1.0)
    with pytest.raises(LogError, match="'price' are below 0 on 50 rows"):
        dprl.from_frame(below, costs="price", reward="well", **COLUMNS)


def test_one_guard_may_be_written_alone():
    asked = {"reward": "well", **COLUMNS}
    (alone, several) = (dprl.from_frame(made(50), guard=g, **asked) for g in ("price", ["price"]))
    assert alone.digest() == several.digest()
    assert alone.columns["guard"] == ["price"]


def test_sums_and_costs_make_the_reward_and_are_written_as_they_were(tmp_path):
    frame = made(50)
    asked = {"reward": "well - 0.5*toxicity", "guard": ["bleeding"], **COLUMNS}
    log = dprl.from_frame(frame, costs={"drug": 0.25}, **asked)
    drug = (frame["arm"] == "drug").to_numpy()
    want = frame["well"] - 0.5 * frame["toxicity"] - 0.25 * drug
    assert log.reward == pytest.approx(want.to_numpy())
    assert set(log.also.names) == {"price"}  # parts and guards are no columns to compare
    assert dprl.from_frame(frame, costs="price", **asked).reward == pytest.approx(
        (want - 2.75 * drug).to_numpy()
    )
    turned = dprl.from_frame(frame, costs=["drug=2"], better="lower", **COLUMNS, reward="toxicity")
    assert -turned.reward == pytest.approx((frame["toxicity"] + 2 * drug).to_numpy())
    for suffix in ("csv", "parquet"):
        dprl.write(log, tmp_path / f"x.{suffix}")
        again = dprl.read(tmp_path / f"x.{suffix}", time="time", costs={"drug": 0.25}, **asked)
        assert again.digest() == log.digest()
    with pytest.raises(LogError, match="no action is called so"):
        dprl.from_frame(frame, costs={"pill": 1}, **asked)
    with pytest.raises(LogError, match="no column 'wel'"):
        dprl.from_frame(frame, reward="wel - 0.5*toxicity", **COLUMNS)
    with pytest.raises(LogError, match="what comes of a decision"):
        dprl.from_frame(frame, reward="well - toxicity", **{**COLUMNS, "state": ["toxicity"]})


def test_each_part_is_judged_in_its_own_unit_and_they_add_up():
    frame = made()
    log = dprl.from_frame(
        frame, reward="well - 0.5*toxicity", guard=["bleeding"], costs={"drug": 0.25}, **COLUMNS
    )
    train, test = log.split(0.5, seed=0)
    policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(train)
    parts = by_part(policy, test, draws=100)
    rows = {row["part"]: row for row in parts.to_dicts()}
    assert [row["what"] for row in rows.values()] == ["benefit", "harm", "cost", "guard"]
    whole = dprl.evaluate(policy, test, draws=100)
    total = sum(row["weight"] * row["difference"] for row in rows.values())
    assert total == pytest.approx(whole.rows[whole.headline]["difference"], abs=0.02)
    assert rows["cost"]["difference"] == pytest.approx(0.125, abs=0.02)
    assert rows["bleeding"]["refused"]
    assert not rows["toxicity"]["refused"]  # nobody named it
    with pytest.raises(ParameterError, match="no parts"):
        by_part(policy, dprl.from_frame(frame, reward="well", **COLUMNS))


@pytest.mark.parametrize("design", ["", "randomised"])
def test_a_study_refuses_what_harms_a_guard_and_says_by_how_much(design, tmp_path):
    asked = {"reward": "well - 0.5*toxicity", "guard": ["bleeding"], "design": design, **COLUMNS}
    refused = dprl.study(dprl.from_frame(made(), **asked), tmp_path / "s", draws=200, seed=0)
    assert not refused.policy.decisions.speaks.any()
    assert refused.verdict == "nothing"
    said = refused.answer()[0]  # never first that it is to be done
    assert said == refused.finding
    assert "whatever it gains. Refused for what is guarded: bleeding +0." in said
    assert 0.1 < float(said.split("bleeding +")[1].split()[0]) < 0.3
    assert f"<title>{said.split(' (')[0]}" in (tmp_path / "s" / "report.html").read_text()
    assert len(refused.answer()) <= 9
    harmless = dprl.study(dprl.from_frame(made(bleeding=-0.03), **asked), draws=200, seed=0)
    assert harmless.policy.decisions.speaks.any()
    assert any(line.startswith("Its parts: well +") for line in harmless.answer())
