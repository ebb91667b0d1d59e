"""How many changes luck makes over features: on noise, where actions matter, and every time alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
from null_world import null_world

import dprl
from dprl.learners.continuous import _dealt, _survive


def world(seed, effect=0.0, groups=400, steps=5):
    """Places and actions go together, and places and returns; one action may help where y > 0."""
    random = np.random.default_rng([9, seed])
    x = np.cumsum(0.5 * random.normal(size=(groups, steps, 2)), axis=1)
    likely = 0.5 / (1 + np.exp(-1.5 * x[..., 0]))
    action = (random.random((groups, steps)) < likely) + (random.random((groups, steps)) < 0.2)
    helps = effect * (action == 1) * (x[..., 1] > 0)
    reward = x[..., 0] + random.normal(size=(groups, steps)) + helps
    return dprl.from_arrays(
        episode=np.repeat(np.arange(groups), steps), state=x.reshape(-1, 2),
        feature_names=["x", "y"], action=action.ravel(), reward=reward.ravel(),
    )  # fmt: skip


def facts_of(log, radius=0.5, plan=False, **more):
    learner = dprl.DPRLContinuous(n_min=10, radius=radius, gamma=0.9, plan=plan, **more)
    return learner.fit(log).provenance["luck"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "radius", "plan"),
    [
        (world, 0.5, False),
        (world, 0.5, True),
        (lambda seed: null_world(seed, groups=150)[0], 1.5, False),
    ],
    ids=["places", "planned", "six features"],
)
def test_on_noise_luck_explains_all_and_little_survives(make, radius, plan):
    facts = [facts_of(make(seed), radius, plan) for seed in range(12)]
    changes, expected = (np.array([f[k] for f in facts]) for k in ("changes", "expected"))
    error = np.std(changes - expected, ddof=1) / math.sqrt(len(facts))
    assert changes.mean() > 60
    assert abs(changes.mean() - expected.mean()) <= 3 * error + 0.05 * changes.mean()
    assert np.mean([f["survive"] == 0 for f in facts]) >= 0.75  # 0.9 of many logs
    assert max(f["survive"] for f in facts) < 0.05 * changes.mean()


def test_what_is_true_survives_and_lies_where_it_is_true(monkeypatch):
    kept = []

    def keep(own, by_luck):
        kept.append(_survive(own, by_luck))
        return kept[-1]

    monkeypatch.setattr("dprl.learners.continuous._survive", keep)
    log = world(0, effect=2.0)
    learner = dprl.DPRLContinuous(n_min=10, radius=0.5, gamma=0.9, plan=False)
    policy = learner.fit(log)
    facts = policy.provenance["luck"]
    assert facts["survive"] == kept[0] > 50
    assert facts["changes"] > 1.2 * facts["expected"]
    rows = np.sort(np.random.default_rng(0).choice(len(policy.z), 400, replace=False))
    here = policy.at_points(rows)
    t = np.where(
        here.kind == 2,
        (here.took_mean - here.others_mean)[np.arange(400), here.choice]
        / np.hypot(here.took_sd / np.sqrt(here.m), here.others_sd / np.sqrt(
            here.m.sum(axis=1, keepdims=True) - here.m))[np.arange(400), here.choice],
        -np.inf,
    )  # fmt: skip
    best = np.argsort(-t)[: facts["survive"]]
    y = policy.space.features(policy.z)[rows[best], 1]
    right = np.array([policy.actions[a] == 1 for a in here.choice[best]]) & (y > -0.5)
    assert right.mean() >= 0.9


def test_dealt_differences():
    """Every value comes from the same number of steps before an end; all equal stays all equal."""
    episode = np.repeat([0, 1, 2, 3, 4], [3, 1, 7, 3, 2])
    to_go = np.concatenate([np.arange(n)[::-1] for n in (3, 1, 7, 3, 2)])
    random = np.random.default_rng(0)
    for _ in range(50):
        assert (_dealt(to_go * 1.0, episode, random) == to_go).all()
    whose = np.array([_dealt(episode * 1.0, episode, random)[0] for _ in range(600)])
    share = [np.mean(whose == e) for e in (0, 2, 3)]  # the others have no step with 2 to go
    assert min(share) > 0.2
    assert np.isin(whose, (0, 2, 3)).all()


def test_surviving_by_hand():
    luck = [np.array([0.1, 1.0, 2.5]), np.array([0.2, 2.9])]
    assert _survive(np.array([3.0, 4.0, 1.0]), luck) == 2
    assert _survive(np.array([2.0, 1.0]), luck) == 0
    assert _survive(np.full(10, 2.7), luck) == 10  # 1 of 10 in the second
    assert _survive(np.full(9, 2.7), luck) == 0
    assert _survive(np.array([-np.inf]), [np.array([])]) == 0


def test_the_same_every_time():
    one, two = (facts_of(world(3)) for _ in range(2))
    assert one == two
    assert facts_of(world(3), lam=1.0)["draws"] == 19
    assert "it makes none" in facts_of(world(3), radius=1e-9)["skipped"]
