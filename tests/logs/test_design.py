"""Trials: the chances of all arms, from what is on record or as declared."""

from __future__ import annotations

import numpy as np
import pytest

import dprl
from dprl.evidence.nuisances import fit_nuisances
from dprl.logs.design import Design, all_chances

ARMS = ["ddI", "ZDV", "both"]


def trial(n=300, seed=0, **more):
    """Three arms by lot at two sites, with other chances at each."""
    rng = np.random.default_rng(seed)
    site = rng.integers(2, size=n)
    p = np.array([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]])[site]
    arm = (rng.random((n, 1)) > p.cumsum(axis=1)).sum(axis=1)
    given = {
        "episode": range(n), "state": np.column_stack([site, rng.normal(size=n)]),
        "action": np.array(ARMS)[arm], "reward": rng.normal(size=n),
        "feature_names": ["site", "age"],
    }  # fmt: skip
    return dprl.from_arrays(**(given | more)), p[:, [1, 2, 0]], p[np.arange(n), arm]


def by_site():
    return {
        "ddI": {0: 0.5, 1: 0.2}, "ZDV": {0: 0.25, 1: 0.2}, "both": {0: 0.25, 1: 0.6},
    }  # fmt: skip


def test_the_chances_of_all_arms_follow_from_those_on_record():
    plain, p, taken = trial()
    assert all_chances(plain) is None  # nothing is known
    log, p, _ = trial(propensity=taken)
    assert log.actions == ("ZDV", "both", "ddI")
    assert all_chances(log) == pytest.approx(p)


def test_a_lottery_of_a_quarter_each_is_known_and_not_estimated():
    rng = np.random.default_rng(0)
    log = dprl.from_arrays(
        episode=range(200), state=rng.normal(size=(200, 2)), action=rng.choice(list("abcd"), 200),
        reward=rng.normal(size=200), propensity=np.full(200, 0.25),
    )  # fmt: skip
    nuisances = fit_nuisances(log, 1.0)
    assert nuisances.source == "known"
    assert (nuisances.b == 0.25).all()
    assert nuisances.losses["weight"][-2:] == [1.0, 0.0]
    policy = dprl.RulePolicy(
        states=(), actions=log.actions, parameters={"gamma": 1.0}, provenance={"log": None},
        feature_names=log.feature_names, rules=({"conditions": [], "suggested": "a"},),
    )  # fmt: skip
    judged = dprl.evaluate(policy, log, draws=20, values=False)
    assert judged.facts["behavior"] == "as recorded, for all actions"
    assert judged.facts["misplaced"] < 0.1


@pytest.mark.parametrize("odd", ["differs", "missing", "short"])
def test_chances_that_tell_less_are_not_taken_for_all(odd):
    _, _, taken = trial()
    if odd == "differs":
        taken = taken * np.linspace(0.9, 1.0, len(taken))
    elif odd == "missing":
        taken[3] = np.nan
    else:
        taken = taken / 2
    log, _, _ = trial(propensity=taken)
    assert all_chances(log) is None


def test_chances_declared_by_stratum_by_column_and_by_words_are_the_same():
    log, p, taken = trial(chances=by_site(), strata="site")
    assert log.propensity == pytest.approx(taken)
    assert all_chances(log) == pytest.approx(p)
    columns = {f"p_{arm}": p[:, k] for k, arm in enumerate(("ZDV", "both", "ddI"))}
    other, _, _ = trial(chances={arm: f"p_{arm}" for arm in ARMS}, also=columns)
    assert all_chances(other) == pytest.approx(p, abs=1e-6)
    assert all_chances(other.take(np.arange(10))) == pytest.approx(p[:10], abs=1e-6)
    words, _, _ = trial(chances=[f"{arm}=p_{arm}" for arm in ARMS], also=columns)
    assert words.propensity == pytest.approx(taken, abs=1e-6)


def test_without_chances_a_trial_has_the_shares_of_its_strata():
    log, p, _ = trial(design="randomised", strata="site")
    site = log.features[:, 0] == 1
    shares = [(log.action[site] == a).mean() for a in range(3)]
    assert all_chances(log)[site][0] == pytest.approx(shares)
    assert np.abs(all_chances(log) - p).max() < 0.1


def test_the_reference_is_declared_or_a_control():
    assert Design("", "b").reference(("a", "b")) == 1
    assert Design().reference(("Placebo", "drug")) == 0
    assert Design().reference(("a", "b")) is None
    log, _, _ = trial(chances=by_site(), strata="site", versus="ZDV")
    assert dict(log.columns)["versus"] == "ZDV"
    assert dprl.effects(log).reference == "ZDV"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"design": "lottery"}, "design"),
        ({"versus": "AZT"}, "arms are"),
        ({"chances": {"ddI": 0.5, "ZDV": 0.5}}, "no chance of 'both'"),
        ({"chances": {"ddI": 0.5, "ZDV": 0.5, "both": 0.5}}, "add up to 1"),
        ({"chances": {"ddI": 0.0, "ZDV": 0.5, "both": 0.5}}, "chance is 0"),
        ({"chances": {"ddI": "p", "ZDV": 0.5, "both": 0.5}}, "no such column"),
        ({"chances": by_site()}, "strata"),
        ({"chances": ["ddI"]}, "ARM=NUMBER"),
        ({"strata": "site", "propensity": 1.0}, "strata"),
        ({"chances": by_site(), "strata": "site", "propensity": 1.0}, "on record"),
    ],
)
def test_what_does_not_fit_is_refused(given, words):
    if "propensity" in given:
        given = given | {"propensity": np.full(300, given["propensity"])}
    with pytest.raises(dprl.DprlError) as error:
        trial(**given)
    assert words in str(error.value)


def test_chances_that_are_not_those_of_the_table_are_pointed_out():
    with pytest.warns(dprl.BalanceWarning, match="are these the chances"):
        trial(chances=dict.fromkeys(ARMS, 1 / 3))
