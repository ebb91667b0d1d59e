"""DPRLContinuous with credit in place of returns."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.dummy import DummyRegressor
from test_continuous import RAW, place, random_log, slow_worth, with_features

import dprl
from dprl.learners.continuous import DPRLContinuous, usual_values
from test_paper import true_value, two_states

NOTHING = DummyRegressor(strategy="constant", constant=0.0)
"""A model that expects nothing: values are 0 everywhere."""


class Formula(RegressorMixin, BaseEstimator):
    """A model that knows its answer and learns nothing: value(features with the step)."""

    def __init__(self, value=None):
        self.value = value

    def fit(self, x, y):
        return self

    def predict(self, x):
        return np.apply_along_axis(self.value, 1, x)


def wavy(row):
    x, y, step = row
    return np.sin(3 * x) + 0.4 * y - 0.2 * step


def slow_surprise(log, gamma, V):
    delta = []
    for start, end in zip(log.starts[:-1], log.starts[1:], strict=True):
        for t in range(start, end):
            after = V[t + 1] if t + 1 < end else 0.0
            delta.append(log.reward[t] + gamma * after - V[t])
    return np.array(delta)


def steps(log):
    return np.concatenate([np.arange(n) for n in log.lengths])


# -- what is computed ------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [False, True])
@pytest.mark.parametrize("visits", ["first", "all"])
@pytest.mark.parametrize("seed", range(3))
def test_whole_credit_of_a_model_that_expects_nothing_is_the_return(seed, visits, plan):
    """λ = 1 and V = 0: the same numbers, to the last bit."""
    log = random_log(seed)
    learner = DPRLContinuous(
        n_min=2, radius=0.7, gamma=0.8, metric=RAW, visits=visits, plan=plan, contrast=False
    )
    plain = learner.fit(log)
    whole = dataclasses.replace(learner, lam=1).fit(log, value_model=NOTHING)
    assert plain.training.allowed.any()
    for name in ("G", "worth", "z", "action", "episode"):
        assert np.array_equal(getattr(plain, name), getattr(whole, name))
    assert plain.act(log.features) == whole.act(log.features)


@pytest.mark.slow
def test_so_it_is_where_episodes_were_cut():
    """What is added for the rest of a cut episode is part of its credit too."""
    log = dprl.envs.PointMass().sample(60, seed=0)
    assert len(log.cut_episodes)
    for cut in ("drop", "terminal", "bootstrap"):
        learner = DPRLContinuous(n_min=5, radius=0.5, gamma=0.97, cut=cut)
        whole = dataclasses.replace(learner, lam=1).fit(log, value_model=NOTHING)
        plain = learner.fit(log)
        assert np.array_equal(plain.G, whole.G)
        assert np.array_equal(plain.worth, whole.worth)


@pytest.mark.slow
@pytest.mark.parametrize("lam", [1.0, 0.9, 0.5, 0.0])
@pytest.mark.parametrize(("seed", "visits"), [(0, "first"), (1, "all"), (2, "first"), (3, "all")])
def test_against_the_definition(seed, visits, lam):
    log, gamma = random_log(seed), 0.8
    V = np.array([wavy(row) for row in np.column_stack([log.features, steps(log)])])
    surprise = slow_surprise(log, gamma, V)
    settings = {"n_min": 2 + seed % 2, "contrast": seed % 2 == 1}
    policy = DPRLContinuous(
        radius=0.7, gamma=gamma, metric=RAW, visits=visits, lam=lam, **settings
    ).fit(log, value_model=Formula(wavy))
    worth, ok = slow_worth(
        log, gamma, 0.7, first=visits == "first", surprise=surprise, lam=lam, **settings
    )
    assert ok.any()
    assert np.array_equal(policy.training.allowed, ok)
    np.testing.assert_allclose(policy.worth, worth, atol=1e-9)
    if lam == 1:  # telescopes
        plain = DPRLContinuous(n_min=2, radius=0.7, gamma=gamma, metric=RAW, plan=False).fit(log)
        np.testing.assert_allclose(policy.G, plain.G - V, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("lam", [1.0, 0.6, 0.0])
@pytest.mark.parametrize(("r1", "r2", "value"), [(0.9, 0.6, 0.9), (0.5, 1, 0.95), (0.8, 0.7, 0.8)])
def test_a_plan_with_credit_pays_where_it_must(r1, r2, value, lam):
    """The acceptance examples: planned values are those of the plan less usual practice."""
    gamma = 0.95
    later = 0.5 * r2
    now = 0.2 * gamma * later + 0.2 * r1
    log = with_features(two_states(r1, r2), place)
    policy = DPRLContinuous(n_min=20, radius=0.1, gamma=gamma, metric=RAW, lam=lam).fit(
        log, value_model=Formula(lambda row: now if row[0] == 0 else later)
    )
    here = policy.at([place("s0"), place("s1")])
    a0, a1 = (policy.actions.index(name) for name in (0, 1))
    if here.allowed[0, a0]:
        assert here.planned[0, a0] == pytest.approx(gamma * r2 - now)
    if here.allowed[0, a1]:
        assert here.planned[0, a1] == pytest.approx(r1 - now)
    assert here.planned[1, a0] == pytest.approx(r2 - later)

    class Renamed:
        def probabilities(self, states, behavior):
            return here.probabilities(behavior=behavior)

    assert true_value(Renamed(), r1, r2) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("lam", [1.0, 0.9, 0.5, 0.0])
@pytest.mark.parametrize("error", [0.0, 0.3])
def test_what_a_wrong_model_costs_a_plan(lam, error):
    """s0 → way → s1: a value wrong by η on the way moves the plan by γη(1 - λ), and none at λ = 1.

    At s1 `win` earns 1 and `lose` nothing; usual practice does either half of the time.
    """
    gamma, episodes = 0.9, []
    for i in range(80):
        end = [("s1", ("win", "lose")[i % 2], float(i % 2 == 0))]
        went = i % 4 < 2
        way = [("s0", "go", 0.0), ("way", "on", 0.0), *end]
        episodes.append(way if went else [("s0", "stop", 0.1)])
    where = {"s0": (0.0, 0.0), "way": (5.0, 0.0), "s1": (9.0, 0.0)}
    log = with_features(episodes, where.get)
    now = 0.5 * gamma**2 * 0.5 + 0.5 * 0.1
    values = {0.0: now, 5.0: gamma * 0.5 + error, 9.0: 0.5}
    policy = DPRLContinuous(n_min=10, radius=0.5, gamma=gamma, metric=RAW, lam=lam).fit(
        log, value_model=Formula(lambda row: values[row[0]])
    )
    here = policy.at(list(where.values()))
    go = policy.actions.index("go")
    assert policy.act(list(where.values())) == ["go", dprl.DEFER, "win"]
    expected = gamma**2 * 1.0 - now + gamma * error * (1 - lam)
    assert here.planned[0, go] == pytest.approx(expected)


def noisy_log(n=240, seed=0):
    """Half of what follows is told by the first feature already, and no action can change it."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    action = rng.integers(2, size=n)
    reward = 3 * x[:, 0] + 0.5 * action + rng.normal(size=n)
    return dprl.from_arrays(
        episode=np.arange(n), group=np.arange(n) // 2, state=x, action=action, reward=reward,
    )  # fmt: skip


def test_credit_removes_what_the_state_foretells():
    log = noisy_log(n=800)
    learner = DPRLContinuous(n_min=10, radius=0.5, gamma=1.0)
    plain, credited = learner.fit(log), dataclasses.replace(learner, lam=1).fit(log)
    assert credited.G.std() < 0.7 * plain.G.std()
    assert abs(credited.G.mean()) < 0.3
    wrong = [(np.array(p.act(log.features), object) == 0).mean() for p in (plain, credited)]
    assert wrong[1] < wrong[0]


def test_values_never_come_from_the_own_group():
    log = noisy_log()
    V, _ = usual_values(log, 1.0, seed=3)
    own = log.group == 7
    rows = np.repeat(own, log.lengths)
    other = dataclasses.replace(log, reward=np.where(rows, 1000.0, log.reward))
    V_other, _ = usual_values(other, 1.0, seed=3)
    assert rows.sum() == 2
    assert np.array_equal(V[rows], V_other[rows])
    assert not np.array_equal(V[~rows], V_other[~rows])


@pytest.mark.slow
def test_the_seed_decides_everything():
    log = noisy_log()
    learner = DPRLContinuous(n_min=10, radius=1.0, gamma=1.0, lam=0.5)
    assert learner.fit(log).digest() == learner.fit(log).digest()
    other = dataclasses.replace(learner, seed=1).fit(log)
    assert not np.array_equal(other.G, learner.fit(log).G)
    one, two = (usual_values(log, 1.0, threads=n)[0] for n in (1, 2))
    assert np.array_equal(one, two)


def test_settings_tried_together_are_those_tried_alone():
    log = noisy_log()
    learner = DPRLContinuous(n_min=10, radius=1.0, gamma=1.0, lam=0.5)
    settings = [{"n_min": 5}, {"radius": 2.0}]
    for setting, policy in zip(settings, learner.fit_each(log, settings), strict=True):
        assert policy.digest() == dataclasses.replace(learner, **setting).fit(log).digest()


# -- what is refused -------------------------------------------------------------------------------


def test_too_few_groups_for_the_folds():
    log = noisy_log(n=6)
    with pytest.raises(dprl.LogError, match="4 folds need at least 4 groups; got 3") as refused:
        DPRLContinuous(n_min=1, radius=1.0, gamma=1.0, lam=1).fit(log)
    assert "leave lam out" in str(refused.value)
    assert DPRLContinuous(n_min=1, radius=1.0, gamma=1.0, lam=1, folds=3).fit(log)


def test_a_model_needs_a_lam_and_must_be_one():
    log = noisy_log(n=20)
    learner = DPRLContinuous(n_min=1, radius=1.0, gamma=1.0)
    with pytest.raises(dprl.ParameterError, match="lam is not given"):
        learner.fit(log, value_model=NOTHING)
    with pytest.raises(dprl.ParameterError, match="value_model must be a regressor"):
        dataclasses.replace(learner, lam=1).fit(log, value_model="trees")


@pytest.mark.parametrize("lam", [2.0, -1, "0.5", True])
def test_a_policy_with_a_lam_that_is_none(lam):
    policy = DPRLContinuous(n_min=1, radius=1.0, gamma=1.0).fit(noisy_log(n=20))
    with pytest.raises(dprl.PolicyError, match="its λ is"):
        dataclasses.replace(policy, parameters={**policy.parameters, "lam": lam})


# -- what is kept and said -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def credited():
    return DPRLContinuous(n_min=10, radius=1.0, gamma=1.0, lam=0.9).fit(noisy_log())


def test_round_trip(credited, tmp_path):
    credited.save(tmp_path / "p.dprl")
    again = dprl.load(tmp_path / "p.dprl")
    assert (again.digest(), again.lam, again.stated) == (credited.digest(), 0.9, credited.stated)
    kept = {k: again.parameters[k] for k in ("lam", "folds", "seed")}
    assert kept == {"lam": 0.9, "folds": 4, "seed": 0}
    assert dprl.prune(credited).policy.stated == credited.stated


def test_policies_of_returns_say_what_they_always_said():
    policy = DPRLContinuous(n_min=10, radius=1.0, gamma=1.0, seed=5).fit(noisy_log())
    assert not {"lam", "folds", "seed"} & set(policy.parameters)
    assert (policy.lam, policy.stated, policy.terms.outcome) == (None, (), "return")
    assert "credit" not in str(policy) + str(policy.changes()) + str(policy.explain([0.0, 0.0]))


def test_its_words_say_that_values_are_no_returns(credited):
    first, assumes = credited.stated
    assert "credit (λ = 0.9), not returns" in first
    assert "features tell all that matters" in assumes
    assert "about 10 steps" in assumes
    assert str(credited).endswith(assumes)
    assert first in credited._repr_html_()
    assert "planned are credits (λ = 0.9), not returns" in credited.changes().details()
    why = credited.explain([0.0, 0.0], cases=True)
    assert why.suggested == 1
    assert "against usual practice in credit (λ = 0.9)" in why.reason
    assert "in credit" in why.actions.caption
    assert "are credits (λ = 0.9), not returns" in str(why)
    assert list(why.similar.columns)[-1] == "credit"
    assert "what was done and the credit" in credited.single_states


@pytest.mark.parametrize(
    ("lam", "words"),
    [
        (1, "assumes no more than returns do"),
        (0, "counts the reward of one step and trusts the model"),
        (0.5, "about 2 steps"),
    ],
)
def test_each_lam_says_what_it_assumes(lam, words):
    policy = DPRLContinuous(n_min=10, radius=1.0, gamma=1.0, lam=lam).fit(noisy_log(n=40))
    assert words in policy.stated[1]
    assert ("Markov" in policy.stated[1]) is (lam < 1)


def test_a_gate_compares_returns_and_says_so():
    log = noisy_log(n=400)
    learner = DPRLContinuous(n_min=10, radius=1.0, gamma=1.0)
    options = {"value_range": (-20, 20), "seed": 0}
    plain = dprl.gate(learner, log, **options)
    proposal = dataclasses.replace(learner, lam=0.9)
    for gated in (
        dprl.gate(proposal, log, **options),
        dprl.gate(proposal.fit(log), log, **options),
    ):
        assert gated.certificate.rows == plain.certificate.rows
        assert "lam" not in gated.parameters
        assert any("(λ = 0.9) is not used" in note for note in gated.certificate.notes)


def test_a_sweep_takes_it():
    log = noisy_log()
    train, valid = log.split(0.5, seed=0)
    learner = DPRLContinuous(n_min=10, radius=1.0, gamma=1.0, lam=0.5)
    swept = dprl.sweep(learner, train, valid, n_min=[5, 10])
    assert len(swept.table()) == 2
