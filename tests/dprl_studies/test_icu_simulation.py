"""The simulated ward: the model's own features against SQL's, its values, its tables."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dprl
from dprl.errors import LogError, ParameterError
from dprl_studies import icu
from dprl_studies.icu.model import clinician, play, reward_of
from dprl_studies.icu.simulation import (
    FeatureRule,
    best_constant,
    best_feature_rule,
    best_treatment,
    frugal_treatment,
    simulate,
    true_value,
    usual_treatment,
)

pytestmark = pytest.mark.slow  # whole commands, whole studies

GAMMA = 0.99


@pytest.fixture(scope="module")
def ward(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ward")
    simulate(folder / "tables", stays=120, seed=3)
    built = icu.build(folder / "tables", folder / "stays.parquet")
    stays = icu.read_stays(folder / "stays.parquet")
    return folder, built, stays


def played(stays=120, seed=3):
    twins = np.arange(stays)
    twins[11::12] -= 1
    return play(stays, seed, usual_treatment, twins=twins, keep=True)


def test_the_cohort_is_the_hypotensive_stays(ward):
    _, built, stays = ward
    assert built.flow["stays"] == [132, 132, 132, 120, 120]
    assert stays.n_stays == 120
    assert len(stays.subjects) == 110
    assert built.summary["decisions"] == int((played().hours - 1).sum())


def test_sql_finds_the_features_actions_and_rewards_the_model_played(ward):
    """Two ways to the 29 features: SQL over tables, and arrays charted hour by hour."""
    stays, what = ward[2], played()
    log = icu.Preparation.fit(stays).log(stays)
    medians = icu.Preparation.fit(stays).medians
    assert log.episodes == tuple(30_000_000 + np.arange(120))
    for i in range(120):
        n = what.hours[i] - 1
        rows = slice(log.starts[i], log.starts[i + 1])
        x = what.features[i, :n].copy()
        for name, median in medians.items():
            column = x[:, icu.FEATURES.index(name)]
            column[np.isnan(column)] = median
        np.testing.assert_allclose(log.features[rows], x, atol=1e-6)
        np.testing.assert_array_equal(log.action[rows], what.action[i, :n])
        np.testing.assert_allclose(log.reward[rows], what.reward[i, :n], atol=1e-12)
        assert np.isnan(what.reward[i, n:]).all()


def test_the_shortfall_is_the_reward_less_one(ward):
    stays = ward[2]
    a, b = (icu.Preparation.fit(stays, reward=r).log(stays) for r in ("published", "shortfall"))
    np.testing.assert_array_equal(a.reward - 1, b.reward)
    with pytest.raises(ParameterError, match="'published' or 'shortfall'"):
        icu.Preparation.fit(stays, reward="gain")


def test_costs_are_taken_from_the_reward_by_level(ward):
    stays = ward[2]
    costs = icu.Costs(bolus=0.5, vasopressor=0.01)
    free = icu.Preparation.fit(stays, reward="shortfall").log(stays)
    fitted = icu.Preparation.fit(stays, reward="shortfall", costs=costs)
    assert fitted.to_dict()["costs"] == {"bolus": 0.5, "vasopressor": 0.01}
    labels = np.array(free.actions)[free.action]
    levels = np.array([[int(part.split()[-1]) for part in label.split(",")] for label in labels])
    assert set(levels[:, 1]) == {0, 1, 2, 3}
    paid = 0.5 * levels[:, 0] + 0.01 * levels[:, 1]
    np.testing.assert_allclose(fitted.log(stays).reward, free.reward - paid, atol=1e-12)
    np.testing.assert_allclose(icu.Costs().of(np.array([[0, 3], [4, 15]])),
                               [[0, 0.09], [0.05, 0.24]])  # fmt: skip
    data = icu.prepare(stays, seed=0, costs=costs)
    assert data.preparation.costs == costs
    assert icu.prepare(stays, seed=0).preparation.to_dict()["costs"] is None


@pytest.mark.parametrize("value", [-0.01, float("nan"), float("inf"), "much", True])
def test_costs_are_numbers_from_zero(value):
    for name in ("bolus", "vasopressor"):
        with pytest.raises(ParameterError, match=rf"the cost of a {name} must be a number in \[0"):
            icu.Costs(**{name: value})


@pytest.mark.parametrize("reward", ["published", "shortfall"])
@pytest.mark.parametrize("costs", [None, icu.Costs()])
def test_the_clinicians_value_is_the_mean_return_of_the_log(ward, reward, costs):
    """The log's reward and the one that the simulation measures are the same, stay by stay."""
    stays = ward[2]
    fitted = icu.Preparation.fit(stays, reward=reward, costs=costs)
    log = fitted.log(stays)
    discount = GAMMA ** log.time.astype(float)
    G = np.add.reduceat(log.reward * discount, log.starts[:-1])
    less = 1.0 if reward == "shortfall" else 0.0
    in_model = played().returns(GAMMA, less=less, costs=costs)
    np.testing.assert_allclose(G, in_model, atol=1e-9)
    value, error = true_value(None, fitted, gamma=GAMMA, stays=2000, reward=reward)
    assert abs(G.mean() - value) < 4 * np.hypot(error, G.std() / np.sqrt(120))


def test_the_clinician_is_a_distribution_and_is_drawn_from():
    x = played().features[:, 5]
    x = x[~np.isnan(x[:, icu.FEATURES.index("map")])]
    pi = clinician(x)
    np.testing.assert_allclose(pi.sum(axis=1), 1)
    many = np.repeat(x[:1], 40_000, axis=0)
    drawn = usual_treatment(many, np.arange(40_000), np.random.default_rng(0))
    share = np.bincount(drawn, minlength=16) / 40_000
    assert np.abs(share - pi[0]).max() < 0.01


class Deferring:
    """Speaks only where told to."""

    actions = icu.ACTIONS

    def __init__(self, choice=-1):
        self.choice = choice
        self.avoid = np.full(np.shape(choice), -1)

    def probabilities(self, x):
        raise AssertionError("a deferring policy is asked at()")

    def at(self, x):
        assert np.isfinite(x).all()
        return Deferring(np.full(len(x), self.choice))


def test_a_policy_that_defers_is_the_clinician(ward):
    fitted = icu.Preparation.fit(ward[2])
    assert true_value(Deferring(), fitted, gamma=GAMMA, stays=300) == true_value(
        gamma=GAMMA, stays=300
    )


def test_a_policy_that_speaks_is_followed(ward):
    fitted = icu.Preparation.fit(ward[2])
    always = true_value(Deferring(6), fitted, gamma=GAMMA, stays=300)
    assert always == true_value(lambda x, s, r: np.full(len(x), 6), gamma=GAMMA, stays=300)


class Drawn:
    actions = icu.ACTIONS[::-1]  # labels say which action is meant, not their place

    def probabilities(self, x):
        return np.tile(np.eye(16)[15 - 6], (len(x), 1))


def test_a_policy_of_probabilities_is_drawn_from(ward):
    fitted = icu.Preparation.fit(ward[2])
    assert true_value(Drawn(), fitted, gamma=GAMMA, stays=300) == true_value(
        Deferring(6), fitted, gamma=GAMMA, stays=300
    )


def test_the_preparation_brings_its_costs_unless_others_are_given(ward):
    costs = icu.Costs(bolus=0.2, vasopressor=0.1)
    fitted = icu.Preparation.fit(ward[2], costs=costs)
    always = Deferring(6)  # bolus 1, vasopressor 2: .4 an hour
    shared = {"gamma": 1.0, "stays": 300}
    free, _ = true_value(always, icu.Preparation.fit(ward[2]), **shared)
    assert true_value(always, fitted, costs=icu.Costs(0, 0), **shared)[0] == free
    paid, _ = true_value(always, fitted, **shared)
    short, _ = true_value(always, fitted, reward="shortfall", **shared)
    assert free - paid == pytest.approx(0.4 * (paid - short))  # .4 for each decision
    assert paid == pytest.approx(true_value(lambda x, s, r: np.full(len(x), 6), costs=costs,
                                            **shared)[0])  # fmt: skip


def test_levels_that_are_other_doses_are_refused(ward):
    fitted = icu.Preparation.fit(ward[2], edges="terciles")
    with pytest.raises(ParameterError, match="edges of the vasopressor levels") as error:
        true_value(Deferring(6), fitted, gamma=GAMMA, stays=10)
    assert "edges='published'" in error.value.do
    fitted = icu.Preparation.fit(ward[2], cohort=icu.Cohort(bolus_edges=(400, 1000)))
    with pytest.raises(ParameterError, match="edges of the bolus levels"):
        true_value(Deferring(6), fitted, gamma=GAMMA, stays=10)


def test_the_best_treatment_is_best_where_treatment_is_free():
    """Usual practice is far from it; one treatment for all is not, which is why there are costs."""
    best, _ = true_value(best_treatment, gamma=GAMMA, stays=1000)
    usual, _ = true_value(gamma=GAMMA, stays=1000)
    assert best > usual + 1
    constant = best_constant(gamma=GAMMA, stays=1000)
    assert constant.text == "bolus 1, vasopressor 2"
    assert best - 1 < constant.value < best - 0.1


def test_values_where_treatment_costs():
    """The numbers that the documentation quotes: 2,000 stays of seed 0."""
    shared = {"gamma": GAMMA, "costs": icu.Costs()}
    usual, best, frugal = (
        true_value(policy, **shared)[0] for policy in (None, best_treatment, frugal_treatment)
    )
    assert (usual, best, frugal) == pytest.approx((37.71, 41.58, 42.13), abs=0.005)
    constant = best_constant(**shared)
    assert (constant.text, round(constant.value, 2)) == ("bolus 0, vasopressor 0", 38.39)
    assert constant.value - usual < 0.25 * (frugal - usual)
    assert constant.value == true_value(constant.policy, **shared)[0]


@pytest.mark.parametrize("seed", [1, 2])
def test_no_treatment_for_all_comes_a_quarter_of_the_way(seed):
    shared = {"gamma": GAMMA, "stays": 1000, "seed": seed, "costs": icu.Costs()}
    usual, frugal = (true_value(policy, **shared)[0] for policy in (None, frugal_treatment))
    assert best_constant(**shared).value - usual < 0.25 * (frugal - usual)


def two_features(x, stays, rng):
    """Lactate says which treatment, pressure says when; nothing else is looked at."""
    pressure, lactate = (x[:, icu.FEATURES.index(name)] for name in ("map", "lactate"))
    return np.where(lactate > 2.8, np.where(pressure < 68, 2, 0), np.where(pressure < 63, 4, 0))


def test_one_feature_is_not_enough_and_two_are():
    shared = {"gamma": GAMMA, "costs": icu.Costs()}
    usual, frugal = (true_value(policy, **shared)[0] for policy in (None, frugal_treatment))
    one = best_feature_rule(**shared)
    assert 0.5 < (one.value - usual) / (frugal - usual) < 0.75, one.text
    two, _ = true_value(two_features, **shared)
    assert (two - usual) / (frugal - usual) > 0.9


def test_the_search_for_one_feature_finds_what_one_feature_can_do():
    """Septic patients have liver values charted, dry ones do not: the kind is one feature."""
    shared = {"gamma": GAMMA, "stays": 300, "costs": icu.Costs()}
    one = best_feature_rule(features=["alt_ever"], search=40, **shared)
    assert one.text == ("alt_ever at most 0: bolus 1, vasopressor 0; else: bolus 0, vasopressor 2")
    assert one.value == true_value(FeatureRule("alt_ever", 0.0, 4, 2), **shared)[0]
    usual, frugal = (true_value(policy, **shared)[0] for policy in (None, frugal_treatment))
    assert usual < one.value < usual + 0.75 * (frugal - usual)
    two, _ = true_value(two_features, **shared)
    assert two > usual + 0.9 * (frugal - usual)


def test_a_rule_of_one_feature_treats_the_missing_as_above():
    x = np.full((3, 29), np.nan)
    x[:, icu.FEATURES.index("map")] = [62.0, 62.5, np.nan]
    rule = FeatureRule("map", 62.0, 6, 1)
    assert rule(x, np.arange(3), np.random.default_rng(0)).tolist() == [6, 1, 1]


def test_features_that_do_not_exist_are_refused():
    with pytest.raises(ParameterError, match="names of the 29 features") as error:
        best_feature_rule(gamma=GAMMA, features=["map", "pulse"])
    assert "'pulse'" in error.value.where
    with pytest.raises(ParameterError, match="names of the 29 features"):
        best_feature_rule(gamma=GAMMA, features=[])


def test_level_two_is_best_for_the_septic_and_one_bolus_for_the_dry():
    def mean(action, septic):
        what = play(600, 5, lambda x, s, r: np.full(len(x), action))
        return np.nanmean(what.reward[what.septic == septic][:, 1:30])

    septic = [mean(v, septic=True) for v in range(4)]
    assert int(np.argmax(septic)) == 2
    dry = [mean(4 * b, septic=False) for b in range(4)]
    assert int(np.argmax(dry)) in (1, 2)
    assert dry[3] < dry[0] < dry[1]


def test_rewards_by_hand():
    pressure = np.array([30, 47.5, 55, 55, 57.5, 62.5, 70])
    urine = np.array([50, np.nan, 30, 29, np.nan, 0, np.nan])
    expected = [0, 0.425, 1, 0.85, 0.9, 0.975, 1]
    np.testing.assert_allclose(reward_of(pressure, urine), expected, atol=1e-12)


def test_the_same_seed_gives_the_same_tables(tmp_path):
    for name in ("a", "b"):
        simulate(tmp_path / name, stays=10, seed=1)
    simulate(tmp_path / "c", stays=10, seed=2)
    for file in ("icu/chartevents.parquet", "icu/icustays.csv", "icu/inputevents.parquet"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
        assert (tmp_path / "a" / file).read_bytes() != (tmp_path / "c" / file).read_bytes()


def test_real_tables_are_never_overwritten(tmp_path):
    (tmp_path / "icu").mkdir()
    with pytest.raises(LogError, match="holds no simulated tables"):
        simulate(tmp_path, stays=10)
    simulate(tmp_path / "new", stays=10)
    simulate(tmp_path / "new", stays=12)  # its own may be made anew
    assert json.loads((tmp_path / "new" / "simulated.json").read_text())["stays"] == 12


def test_bad_settings_are_refused(ward, tmp_path):
    with pytest.raises(ParameterError, match="stays"):
        simulate(tmp_path / "x", stays=1)
    with pytest.raises(ParameterError, match="stays"):
        true_value(gamma=1.0, stays=1)
    with pytest.raises(ParameterError, match="needs the preparation"):
        true_value(Deferring(), gamma=1.0)
    with pytest.raises(ParameterError, match="gamma"):
        true_value(gamma=1.01, stays=10)
    with pytest.raises(ParameterError, match="'published' or 'shortfall'"):
        true_value(gamma=1.0, stays=10, reward="net")
    for costs in (0.05, {"bolus": 0.05}):
        with pytest.raises(ParameterError, match=r"costs must be None or dprl\.icu\.Costs"):
            true_value(gamma=1.0, stays=10, costs=costs)
        with pytest.raises(ParameterError, match=r"costs must be None or dprl\.icu\.Costs"):
            icu.prepare(ward[2], seed=0, costs=costs)


def test_a_policy_learned_from_the_tables_can_be_judged(ward):
    data = icu.prepare(ward[2], seed=0, shares=(0.6, 0.2, 0.2), reward="shortfall")
    policy = dprl.DPRLContinuous(
        n_min=5, radius=10, gamma=GAMMA, metric=icu.metric(), cut="terminal"
    ).fit(data.train)
    assert policy.summary()["decision_points"] > 0
    value, _ = true_value(policy, data.preparation, gamma=GAMMA, stays=100)
    assert 0 < value < 71


def test_the_command_makes_tables(tmp_path, capsys):
    from dprl.apps.cli.main import main

    with pytest.raises(SystemExit) as done:
        main(["icu", "simulate", "--stays", "12", "--out", str(tmp_path / "t"), "--json"])
    assert done.value.code == 0
    assert json.loads(capsys.readouterr().out)["tables"]["icu/icustays.csv"] == 13
