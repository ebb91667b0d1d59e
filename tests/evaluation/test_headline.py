"""Which estimate leads, when it has an interval, and how wide that is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dprl
from dprl.evidence import nuisances

DRUG = dprl.CallablePolicy(lambda s: ["drug"] * len(s), actions=["drug", "wait"], trained_on=[])


def one_step(n, rare=0, seed=0):
    """n patients, drug or wait by a coin; in `rare` further ones, another state, nobody got it."""
    rng = np.random.default_rng(seed)
    action = [*rng.choice(["drug", "wait"], n), *["wait"] * rare]
    return dprl.from_arrays(
        episode=np.arange(n + rare),
        state=["ill"] * n + ["frail"] * rare,
        action=action,
        reward=(rng.random(n + rare) < 0.5).astype(float),
    )


@pytest.fixture(scope="module")
def care():
    train, test = dprl.envs.care_pathway().sample(1_000, seed=0).split(0.5, seed=0)
    return dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train), test


def test_several_steps_are_led_by_wdr_one_by_dr_and_weights_alone_by_wis(care):
    policy, test = care
    found = dprl.evaluate(policy, test, draws=50)
    assert found.headline == "WDR"
    assert f"{found['WDR']['difference']:+.3f}" in found.answer()
    assert found.details().startswith(found.answer())
    assert found.brief()[0] in found._repr_html_()
    assert dprl.evaluate(policy, test, draws=50, values=False).headline == "WIS"
    assert dprl.evaluate(DRUG, one_step(200), gamma=1.0, draws=50).headline == "DR"
    assert dprl.compare([policy], test, draws=50).estimator == "WDR"
    assert dprl.compare([DRUG], one_step(200), gamma=1.0, draws=50).estimator == "DR"


def test_few_heavy_episodes_give_no_interval_to_weights_alone(care):
    policy, test = care
    found = dprl.evaluate(policy, test, draws=50)
    assert found.facts["ess_differs"] < 30
    bare = [n for n, row in found.rows.items() if np.isnan(row["difference_low"])]
    assert bare == ["IS", "WIS", "PDIS", "WPDIS", "DM"]
    assert found.ends().endswith("Without an interval: IS, WIS, PDIS, WPDIS, DM.")
    quick = dprl.evaluate(policy, test, draws=50, values=False)
    assert quick.ends() == "No estimate has an interval."
    assert quick.answer().endswith("without an interval.")
    assert any("those by weights alone have no interval" in w for w in quick.warnings)
    enough = dprl.evaluate(policy, dprl.envs.care_pathway().sample(2_000, seed=1), draws=50)
    assert enough.facts["ess_differs"] > 30
    assert np.isfinite(enough["WIS"]["difference_low"])


def test_the_footnote_names_no_estimate_that_has_an_interval(care):
    _, test = care
    silent = dprl.DPRLDiscrete(n_min=10**6, gamma=1.0).fit(
        dprl.envs.care_pathway().sample(9, seed=9)
    )
    found = dprl.evaluate(silent, test, draws=50)
    assert np.isfinite(found["DM"]["difference_low"])  # it is usual practice: nothing is modelled
    assert "DM" not in found.table().note
    assert "DM" not in found.ends()


def test_what_nobody_took_widens_every_interval_by_all_that_it_can_matter():
    log = one_step(388, rare=12)
    asked = {"gamma": 1.0, "draws": 200}
    narrow = dprl.evaluate(DRUG, log, **asked, value_range=(0, 1))
    wide = dprl.evaluate(DRUG, log, **asked, value_range=(0, 11))
    assert narrow.facts["unsupported"] == pytest.approx(0.03)
    for name in ("WIS", "DR", "WDR"):
        for end, sign in (("low", -1), ("high", 1)):
            off = wide[name][f"difference_{end}"] - narrow[name][f"difference_{end}"]
            assert off == pytest.approx(sign * 0.03 * 10)
    assert "wider by 0.03 at each end" in narrow.ends()
    beside = dprl.compare({"drug": DRUG}, log, **asked).rows[0]
    alone = dprl.evaluate(DRUG, log, **asked)["DR"]
    assert beside["low"] == pytest.approx(alone["difference_low"])
    refused = dprl.evaluate(DRUG, one_step(300, rare=30), **asked)
    assert np.isnan(refused["DR"]["difference_low"])


def test_groups_of_many_episodes_keep_their_interval():
    """Nobody follows in all of twenty episodes, and still every second episode follows."""
    log = one_step(800)
    grouped = replace(log, group=(np.arange(800) // 20).astype(np.int32), groups=tuple(range(40)))
    found = dprl.evaluate(DRUG, grouped, gamma=1.0, draws=50)
    assert found.facts["followers"] == 0
    assert np.isfinite(found["DR"]["difference_low"])
    assert not [w for w in found.warnings if "nobody followed" in w]


@pytest.mark.slow
def test_a_model_of_practice_that_the_record_refutes_gives_no_interval(monkeypatch):
    """The fit get the drug by a rule that no model sees here: all of them are lines."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1_200, 2))
    drug = rng.random(1_200) < np.where(x[:, 0] * x[:, 1] > 0, 0.8, 0.2)
    log = dprl.from_arrays(
        episode=np.arange(1_200), state=x, action=np.where(drug, "drug", "wait"),
        reward=(x[:, 0] * x[:, 1] > 0) + rng.normal(size=1_200),
    )  # fmt: skip
    everyone = dprl.CallablePolicy(
        lambda s: ["drug"] * len(s), actions=["drug", "wait"], feature_names=log.feature_names,
        trained_on=[],
    )  # fmt: skip
    lines = [nuisances.NUISANCES["logistic"]]
    monkeypatch.setattr(nuisances.Practice, "mend", lambda *_: False)
    monkeypatch.setattr(nuisances.Practice, "models", lambda self, _: [
        one.model(self.columns) for one in lines
    ])  # fmt: skip
    found = dprl.evaluate(everyone, log, gamma=1.0, draws=20)
    assert found.facts["refuted"]
    assert np.isnan([row["difference_low"] for row in found.rows.values()]).all()
    (words,) = [w for w in found.warnings if w.startswith("the record cannot tell")]
    assert "Who was treated depends on more than our model of it" in words
    known = replace(log, propensity=np.where(drug == (x[:, 0] * x[:, 1] > 0), 0.8, 0.2))
    assert not dprl.evaluate(everyone, known, gamma=1.0, draws=20).facts["refuted"]


@pytest.mark.slow
def test_the_interval_holds_where_the_effective_sample_is_large_enough():
    """The care pathway, 100 logs: percentiles of the same draws held in 89 to 94 of 100."""
    world = dprl.envs.care_pathway()
    held = []
    for seed in range(50_000, 50_100):
        policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(world.sample(1_000, seed=2 * seed))
        found = dprl.evaluate(policy, world.sample(700, seed=2 * seed + 1), draws=300)
        gain, row = world.value(policy) - world.value(), found[found.headline]
        if found.facts["ess_differs"] >= 30:
            held.append(row["difference_low"] <= gain <= row["difference_high"])
    assert len(held) > 70
    assert np.mean(held) >= 0.93 - 2 * np.sqrt(0.95 * 0.05 / len(held))
