"""Probabilities that a log knows, in the models of usual practice and in rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dprl
from dprl.evidence.nuisances import fit_nuisances

QUICK = {"gamma": 1.0, "depth": 1, "folds": 2, "splits": 1, "lam": 1.0}


def trial(n=300, actions=2, seed=0, p=None, **more):
    """A trial of single decisions whose effect depends on the sign of x0."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    action = rng.integers(actions, size=n)
    reward = np.where(x[:, 0] > 0, 2.0, -2.0) * (action == 1) + rng.normal(size=n)
    return dprl.from_arrays(
        episode=range(n), state=x, action=[f"a{a}" for a in action], reward=reward, propensity=p,
        **more,
    )  # fmt: skip


def test_a_column_of_halves_gives_the_rules_of_an_array_of_halves():
    bare, marked = trial(), trial(p=np.full(300, 0.5))
    by_column = dprl.Rules(**QUICK).fit(marked)
    by_array = dprl.Rules(**QUICK).fit(bare, propensity=np.full((300, 2), 0.5))
    assert len(by_column.rules) == 2
    assert [r.to_dict() for r in by_column.rules] == [r.to_dict() for r in by_array.rules]
    assert by_column.provenance["rules"]["divisions"] == by_array.provenance["rules"]["divisions"]
    assert by_column.stated == by_array.stated
    assert "The probabilities of actions are known (randomised)" in by_column.stated[0]
    assert any(words.startswith("Randomised: ") for words in by_column.stated)
    assert "known on 100 % of rows" in [
        line["model"] for line in by_column.provenance["rules"]["models"]
    ]
    public = dprl.public_copy(by_column)
    assert public.stated == by_column.stated


def test_an_array_wins_over_the_column():
    array = np.tile([0.4, 0.6], (300, 1))
    with_column = fit_nuisances(trial(p=np.full(300, 0.5)), 1.0, folds=2, propensity=array)
    np.testing.assert_array_equal(with_column.b, array)
    assert with_column.source == "known"
    marked, bare = trial(p=np.full(300, 0.5)), trial()
    rules = [dprl.Rules(**QUICK).fit(log, propensity=array).rules for log in (marked, bare)]
    assert [r.to_dict() for r in rules[0]] == [r.to_dict() for r in rules[1]]


def test_with_two_actions_the_other_one_has_the_rest():
    rng = np.random.default_rng(1)
    p = rng.uniform(0.1, 0.9, 300)
    log = trial(p=p)
    nuisances = fit_nuisances(log, 1.0, folds=2)
    rows = np.arange(300)
    np.testing.assert_array_equal(nuisances.b[rows, log.action], p)
    np.testing.assert_array_equal(nuisances.b[rows, 1 - log.action], 1 - p)
    assert nuisances.losses["model"] == ["known on 100 % of rows", "shares alone"]
    assert nuisances.source == "known"


def test_others_share_the_rest_in_proportion_to_the_estimate():
    p = np.full(300, np.nan)
    p[:100] = np.linspace(0.05, 1.0, 100)
    log = trial(actions=3, p=p)
    mixed = fit_nuisances(log, 1.0, folds=2)
    np.testing.assert_allclose(mixed.b.sum(axis=1), 1.0)
    rows = np.arange(100)
    np.testing.assert_array_equal(mixed.b[rows, log.action[:100]], p[:100])
    assert (mixed.b[99] == np.eye(3)[log.action[99]]).all()
    assert mixed.losses["model"] == [
        "logistic", "products", "splines", "functions", "boosting", "stack", "known on 33.3 % of rows", "shares alone",
    ]  # fmt: skip
    assert mixed.source == "mixed"
    assert "known on 100 of 300 rows" in mixed.notes[0]


def test_the_shares_of_others_are_those_of_the_models():
    class Fixed:
        """A classifier that always answers .2, .3, .5."""

        def fit(self, x, y):
            self.classes_ = np.arange(3)
            return self

        def predict_proba(self, x):
            return np.tile([0.2, 0.3, 0.5], (len(x), 1))

        def get_params(self, deep=True):
            return {}

        def set_params(self, **params):
            return self

    log = trial(actions=3, p=np.full(300, 0.4))
    nuisances = fit_nuisances(log, 1.0, folds=2, behavior_models=[("fixed", Fixed())])
    expected = np.array([[0.4, 0.225, 0.375], [0.6 * 2 / 7, 0.4, 0.6 * 5 / 7], [0.24, 0.36, 0.4]])
    np.testing.assert_allclose(nuisances.b, expected[log.action], rtol=1e-3)
    assert nuisances.losses["model"] == ["fixed", "stack", "known on 100 % of rows", "shares alone"]
    assert "how the other 2 actions share the rest is estimated" in nuisances.notes[0]


def test_a_trial_inside_a_log_of_practice_does_not_blur_it():
    """Half of the rows are a trial; in the other half x0 decides."""
    rng = np.random.default_rng(3)
    n = 1_200
    x, randomised = rng.normal(size=(n, 1)), rng.random(n) < 0.5
    usual = 1 / (1 + np.exp(-4 * x[:, 0]))
    chance = np.where(randomised, 0.5, usual)
    treated = rng.random(n) < chance
    log = dprl.from_arrays(
        episode=range(n), state=x, action=np.where(treated, "b", "a"), reward=rng.normal(size=n),
        propensity=np.where(randomised, 0.5, np.nan),
    )  # fmt: skip
    marked = fit_nuisances(log, 1.0)
    blurred = fit_nuisances(replace(log, propensity=None), 1.0)
    away = [np.abs(n.b[~randomised, 1] - usual[~randomised]).mean() for n in (marked, blurred)]
    assert away[0] < 0.75 * away[1]
    np.testing.assert_array_equal(marked.b[randomised], 0.5)


def test_estimated_ones_are_called_so():
    nuisances = fit_nuisances(trial(), 1.0, folds=2)
    assert nuisances.source == "estimated"
    assert "estimated from the features" in nuisances.notes[0]
    empty = fit_nuisances(trial(p=np.full(300, np.nan)), 1.0, folds=2)
    np.testing.assert_array_equal(empty.b, nuisances.b)
    assert empty.notes == nuisances.notes


def test_a_lottery_of_four_arms_is_not_called_badly_calibrated():
    """The taken arm has .25 exactly, the others share the rest: no bin but that of .25 happens."""
    rng = np.random.default_rng(0)
    n = 400
    log = dprl.from_arrays(
        episode=np.arange(n), state=rng.normal(size=(n, 2)), action=rng.choice(list("abcd"), n),
        reward=rng.random(n), propensity=np.full(n, 0.25),
    )  # fmt: skip
    fitted = fit_nuisances(log, 1.0)
    assert not [note for note in fitted.notes if "badly calibrated" in note]
    assert fitted.losses["misplaced"][-2] == 0


def test_chances_of_one_action_instead_of_the_action_taken_are_noticed():
    rng = np.random.default_rng(0)
    treated = rng.random(500) < 0.7
    log = dprl.from_arrays(
        episode=range(500), state=rng.normal(size=(500, 1)), action=np.where(treated, "b", "a"),
        reward=rng.normal(size=500), propensity=np.full(500, 0.7),
    )  # fmt: skip
    notes = fit_nuisances(log, 1.0, folds=2).notes
    assert any("must be of the action that was taken" in note for note in notes)
    right = replace(log, propensity=np.where(treated, 0.7, 0.3))
    assert len(fit_nuisances(right, 1.0, folds=2).notes) == 1


def test_what_was_not_available_stays_impossible():
    n, rng = 300, np.random.default_rng(0)
    menus = ["a0|a1" if i % 2 else "a0|a1|a2" for i in range(n)]
    action = [str(rng.choice(menu.split("|"))) for menu in menus]
    p = [0.5 if i % 2 else 1 / 3 for i in range(n)]
    log = dprl.from_arrays(
        episode=range(n), state=rng.normal(size=(n, 1)), action=action, reward=rng.normal(size=n),
        available=menus, propensity=p,
    )  # fmt: skip
    b = fit_nuisances(log, 1.0, folds=2).b
    order = np.asarray(log.episodes) % 2 == 1
    assert (b[order, 2] == 0).all()
    np.testing.assert_allclose(b[order, :2], 0.5)
    np.testing.assert_allclose(b.sum(axis=1), 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_groups_that_lie_apart_keep_their_chances(share):
    rng = np.random.default_rng(5)
    n = 240
    p = np.where(rng.random(n) < share, np.nan, rng.uniform(0.2, 0.8, n))
    rows = {"group": rng.permutation(n) % 60, "p": p}
    log = trial(n, p=rows["p"], group=rows["group"])
    policy = dprl.Rules(**QUICK, n_min=5).fit(log)
    again = dprl.Rules(**QUICK, n_min=5).fit(log.gathered())
    assert [r.to_dict() for r in policy.rules] == [r.to_dict() for r in again.rules]
    settled = fit_nuisances(log.gathered(), 1.0, folds=2)
    places = np.flatnonzero(~np.isnan(log.gathered().propensity))
    np.testing.assert_array_equal(
        settled.b[places, log.gathered().action[places]], log.gathered().propensity[places]
    )
