"""Where recorded chances differ within a state, those who followed stand for all by them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dprl
from dprl.apps.reports.changes import describe_changes
from dprl.certificate.gain import approximate_gain

NAMES = {name: name for name in ("episode", "state", "action", "reward")}


def clinic(n, seed, first=0):
    """The drug does nothing; the fit, who do well anyhow, get it with .8, the others with .2."""
    rng = np.random.default_rng(seed)
    fit = rng.random(n) < 0.5
    p = np.where(fit, 0.8, 0.2)
    drug = rng.random(n) < p
    return pd.DataFrame({
        "episode": np.arange(first, first + n), "state": "ill", "fit": fit.astype(float),
        "action": np.where(drug, "drug", "wait"), "p": np.where(drug, p, 1 - p),
        "reward": (rng.random(n) < np.where(fit, 0.8, 0.3)).astype(float),
    })  # fmt: skip


@pytest.fixture(scope="module")
def policy():
    return dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(dprl.from_frame(clinic(500, 0), **NAMES))


def test_the_policy_wants_the_drug(policy):
    assert policy.act(["ill"]) == ["drug"]


def test_the_gain_of_what_does_nothing_is_nothing(policy):
    frame = clinic(4_000, 1, first=10_000)
    plain = approximate_gain(policy, dprl.from_frame(frame, **NAMES), draws=200)
    weighed = approximate_gain(policy, dprl.from_frame(frame, **NAMES, propensity="p"), draws=200)
    assert plain.low > 0.1
    assert weighed.low < 0 < weighed.high
    assert weighed.gain == pytest.approx(0, abs=0.03)


def test_the_held_out_check_of_a_change_says_so_too(policy):
    frame = clinic(4_000, 1, first=10_000)
    (plain,) = describe_changes(policy, dprl.from_frame(frame, **NAMES)).changes
    (change,) = describe_changes(policy, dprl.from_frame(frame, **NAMES, propensity="p")).changes
    assert plain.check.low > 0.1
    assert change.check.low < 0 < change.check.high
    drug, p, G = frame.action == "drug", frame.p, frame.reward
    got = (G[drug] / p[drug]).sum() / (1 / p[drug]).sum()
    assert change.check.got == pytest.approx(got)
    assert change.check.advantage == pytest.approx(got - G.mean())
    # the interval is about as wide as a bootstrap says
    rng, draws = np.random.default_rng(0), []
    d, p, G = drug.to_numpy(), p.to_numpy(), G.to_numpy()
    for _ in range(400):
        i = rng.integers(0, 4_000, 4_000)
        w = d[i] / p[i]
        draws.append(w @ G[i] / w.sum() - G[i].mean())
    width = change.check.high - change.check.low
    assert width == pytest.approx(2 * 1.96 * np.std(draws), rel=0.12)


def test_where_a_chance_is_missing_nothing_goes_back_to_unweighted_in_silence(policy):
    frame = clinic(4_000, 1, first=10_000)
    frame.loc[frame.index[frame.action == "drug"][0], "p"] = np.nan
    log = dprl.from_frame(frame, **NAMES, propensity="p")
    with pytest.raises(dprl.LogError, match="differ within a state"):
        approximate_gain(policy, log, draws=20)
    described = describe_changes(policy, log)
    for check in (described.changes[0].check, described.claims[0].check):
        assert check.unfair
        assert check.advantage is None
    frame["p"] = np.where(frame.action == "drug", 0.3, 0.7)  # the same for all: nothing to weigh
    frame.loc[0, "p"] = np.nan
    log = dprl.from_frame(frame, **NAMES, propensity="p")
    assert approximate_gain(policy, log, draws=20).low > 0.1
    assert describe_changes(policy, log).changes[0].check.low > 0.1


@pytest.mark.parametrize("recorded", [False, True])
def test_balance_is_the_same_in_evaluate_and_in_a_report(policy, recorded):
    named = {**NAMES, "also": ["fit"], **({"propensity": "p"} if recorded else {})}
    log = dprl.from_frame(clinic(800, 2, first=10_000), **named)
    for seed in (0, 2):  # it decides the folds of the model of practice
        described = describe_changes(policy, log, seed=seed).balance
        judged = dprl.evaluate(policy, log, draws=20, values=False, seed=seed).balance
        assert described.rows == judged.rows
    assert (abs(judged.rows[0].after) < 0.15) == recorded


FEATURED = {**NAMES, "state": ["x", "z"], "also": ["w"]}


def measured(n, seed):
    """The drug helps where x is above 0; x, and w that is in no state, decide who gets it."""
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(2, n))
    p = 1 / (1 + np.exp(-(0.8 * x + 0.5 * w)))
    drug = rng.random(n) < p
    return pd.DataFrame({
        "episode": np.arange(n) + 10_000 * seed, "x": x, "z": rng.normal(size=n), "w": w,
        "action": np.where(drug, "drug", "wait"), "p": np.where(drug, p, 1 - p),
        "reward": 0.5 * drug * np.sign(x) + 0.3 * w + rng.normal(size=n),
    })  # fmt: skip


@pytest.fixture(scope="module")
def near():
    learner = dprl.DPRLContinuous(n_min=25, radius=1.0, gamma=1.0)
    return learner.fit(dprl.from_frame(measured(1_200, 1), **FEATURED))


@pytest.mark.parametrize("recorded", [False, True])
def test_balance_over_features_is_about_all_changes_and_not_the_regions_alone(near, recorded):
    """Regions leave changes out, and hold steps at which something else is said."""
    policy, chances = near, {"propensity": "p"} if recorded else {}
    log = dprl.from_frame(measured(500, 2), **FEATURED, **chances)
    described = describe_changes(policy, log)
    judged = dprl.evaluate(policy, log, draws=20, values=False).balance
    assert described.scattered
    assert described.balance.rows == judged.rows
    assert (described.balance.took, described.balance.others) == (judged.took, judged.others)
    impure = [one for one in described.changes if one.purity < 1]
    assert impure
    assert all(described.compared[one.key].clear == 1.0 for one in impure)  # all have a chance
