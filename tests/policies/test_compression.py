"""Less data, the same answers: pruning loses nothing, clusters no more than they say."""

from __future__ import annotations

import numpy as np
import pytest

import dprl
from dprl.evidence.neighbors.engine import (
    Engine,
    Points,
    core_pairs,
    core_points,
    core_volume,
    greedy_net,
    net_size,
)
from dprl.evidence.neighbors.metric import Metric
from dprl.learners.continuous import DPRLContinuous
from dprl.policies.points import compress, prune

RAW = Metric(scale="none")


def log_of(kind, n=300, seed=0):
    rng = np.random.default_rng(seed)
    length = 4
    if kind == "clusters":
        centres = rng.normal(scale=4, size=(12, 3))
        x = centres[rng.integers(12, size=n * length)] + 0.3 * rng.normal(size=(n * length, 3))
        x[:60] = rng.uniform(-40, 40, size=(60, 3))  # loners
    elif kind == "lattice":
        x = rng.integers(0, 6, size=(n * length, 3)).astype(float)
    else:
        x = rng.normal(size=(n * length, 3))
    action = rng.integers(3, size=n * length)
    return dprl.from_arrays(
        episode=np.repeat(np.arange(n), length),
        time=np.tile(np.arange(length), n),
        state=x,
        action=action,
        reward=(action == (x[:, 0] > 0)) + rng.normal(size=n * length),
    )


@pytest.mark.parametrize("visits", ["first", "all"])
@pytest.mark.parametrize("plan", [False, True])
@pytest.mark.parametrize("kind", ["clusters", "lattice", "normal"])
def test_pruning_changes_no_decision(kind, plan, visits):
    log = log_of(kind)
    policy = DPRLContinuous(
        n_min=6, radius=1.0, gamma=0.9, metric=RAW, plan=plan, visits=visits
    ).fit(log)
    result = prune(policy)
    assert result.after <= result.before
    rng = np.random.default_rng(1)
    queries = np.concatenate([log.features, rng.uniform(-8, 8, size=(800, 3))])
    one, two = policy.at(queries), result.policy.at(queries)
    assert np.array_equal(one.choice, two.choice)
    speaks = one.choice >= 0
    assert speaks.any()
    for name in ("n", "m", "allowed"):
        assert np.array_equal(getattr(one, name)[speaks], getattr(two, name)[speaks])
    for name in ("Q", "V", "planned"):
        np.testing.assert_allclose(
            getattr(one, name)[speaks], getattr(two, name)[speaks], rtol=1e-12
        )
    assert result.changed(policy, queries) == 0


def test_loners_go():
    policy = DPRLContinuous(n_min=6, radius=1.0, gamma=0.9, metric=RAW).fit(log_of("clusters"))
    result = prune(policy)
    assert result.before - 60 <= result.after <= result.before - 50
    assert result.ratio == pytest.approx(result.after / result.before, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("visits", ["first", "all"])
@pytest.mark.parametrize("tol", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("kind", ["clusters", "lattice", "normal"])
def test_clusters_answer_for_a_radius_near_by(kind, tol, visits):
    """Counts lie between those at r(1 - tol/2) and r(1 + tol/2)."""
    log = log_of(kind, n=150)
    policy = DPRLContinuous(n_min=1, radius=1.0, gamma=0.9, metric=RAW, visits=visits,
                            contrast=False).fit(log)  # fmt: skip
    small = compress(policy, tol).policy
    z = np.random.default_rng(2).normal(size=(300, 3))
    z = np.concatenate([z, log.features[:200]])
    ask = {"visits": visits}
    inner = policy.returns_engine.evidence(z, 1.0 * (1 - tol / 2) - 1e-9, **ask)
    outer = policy.returns_engine.evidence(z, 1.0 * (1 + tol / 2) + 1e-9, **ask)
    got = small.returns_engine.evidence(z, 1.0, **ask)
    assert (inner.n_pair <= got.n_pair).all()
    assert (got.n_pair <= outer.n_pair).all()
    assert (inner.state.n <= got.state.n).all()
    assert (got.state.n <= outer.state.n).all()


def test_clusters_are_smaller():
    policy = DPRLContinuous(n_min=6, radius=1.0, gamma=0.9, metric=RAW).fit(log_of("clusters"))
    result = compress(policy, 0.5)
    assert result.places < 0.75 * result.before
    assert result.ratio < 0.85
    assert result.changed(policy, log_of("clusters").features) < 0.1


def test_a_policy_that_never_speaks_keeps_one_point():
    policy = DPRLContinuous(n_min=10**6, radius=1.0, gamma=0.9).fit(log_of("normal"))
    assert prune(policy).after == 1
    assert prune(policy).policy.act([[0, 0, 0]]) == [dprl.DEFER]


def test_tol_is_checked():
    policy = DPRLContinuous(n_min=6, radius=1.0, gamma=0.9).fit(log_of("normal", n=20))
    with pytest.raises(dprl.ParameterError, match=r"tol must be a number in \[0, 1\)"):
        compress(policy, 1.5)


def brute_net(x, radius, wanted):
    centres = []
    for i in np.flatnonzero(wanted):
        if not any(((x[i] - x[c]) ** 2).sum() <= radius**2 for c in centres):
            centres.append(i)
    return centres


@pytest.mark.parametrize("kind", ["clusters", "lattice", "normal"])
@pytest.mark.parametrize("radius", [0.5, 1.0, 2.5])
def test_greedy_net_against_its_definition(kind, radius):
    log = log_of(kind, n=80)
    points = Points.of(log, RAW.fit(log), 0.9)
    engine = Engine.build(points, log.n_actions)
    wanted = np.random.default_rng(0).random(len(points)) < 0.7
    centre = greedy_net(engine, radius, wanted)
    assert np.array_equal(centre >= 0, wanted)
    assert np.unique(centre[wanted]).tolist() == brute_net(points.z, radius, wanted)
    distance = np.sqrt(((points.z[wanted] - points.z[centre[wanted]]) ** 2).sum(axis=1))
    assert distance.max() <= radius


@pytest.mark.parametrize("n_min", [1, 3, 8])
def test_net_of_core_points(n_min):
    log = log_of("clusters", n=80)
    points = Points.of(log, RAW.fit(log), 0.9)
    engine = Engine.build(points, log.n_actions)
    core = core_points(engine, 1.0, n_min)
    near = ((points.z[:, None] - points.z[None]) ** 2).sum(axis=2) <= 1.0
    expected = [
        max(len(set(points.episode[near[i] & (points.action == a)])) for a in range(3)) >= n_min
        for i in range(len(points))
    ]
    assert core.tolist() == expected
    pairs = [
        len(set(points.episode[near[i] & (points.action == points.action[i])])) >= n_min
        for i in range(len(points))
    ]
    assert core_pairs(engine, 1.0, n_min).tolist() == pairs
    nets = [brute_net(points.z, 1.0, np.array(pairs) & (points.action == a)) for a in range(3)]
    assert net_size(engine, 1.0, n_min) == sum(map(len, nets))


def test_the_volume_of_core_pairs_is_that_of_balls():
    """On a line: two balls of one action that half overlap, one apart, one of another action."""
    z, actions = np.array([0.0, 1.0, 9.0, 0.0]), [0, 0, 0, 1]
    log = dprl.from_arrays(episode=range(4), state=z[:, None], action=actions, reward=[0.0] * 4)
    engine = Engine.build(Points.of(log, RAW.fit(log), 0.9), 2)
    assert net_size(engine, 1.0, 1) == 3
    assert core_volume(engine, 1.0, 1) == pytest.approx(1.5 + 1 + 1, abs=0.05)
    assert core_volume(engine, 1.0, 2) == pytest.approx(1.5, abs=0.05)  # each has the other near
    assert core_volume(engine, 1.0, 3) == 0


def test_a_net_may_have_more_centres_than_points_over_n_min():
    """Centres are more than r apart, their balls are not disjoint."""
    n = 90
    log = dprl.from_arrays(
        episode=np.arange(n), state=np.arange(n)[:, None] / 2, action=[0] * n, reward=[0.0] * n
    )
    points = Points.of(log, RAW.fit(log), 0.9)
    assert net_size(Engine.build(points, 1), 1.0, 5) == 29
    assert n / 5 < 29
