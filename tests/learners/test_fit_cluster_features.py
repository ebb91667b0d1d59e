"""Neighbours counted on a cluster: the words of one engine, and the same policy file."""

from __future__ import annotations

import time

import numpy as np
import pytest
from dask_processes import Dies
from sources import bytes_of

import dprl
from dprl.evidence.neighbors import Engine, Points
from dprl.evidence.neighbors import engine as _spread_engine
from dprl.evidence.neighbors.engine import SpreadEngine

pytest.importorskip("distributed")


@pytest.fixture(autouse=True)
def asks(monkeypatch):
    """Few queries are asked of the cluster too, in several blocks."""
    monkeypatch.setattr(_spread_engine, "WORTH_ASKING", 2)
    monkeypatch.setattr(_spread_engine, "WORDS", 3_000)


def cloud(n=400, d=2, seed=0, episodes=60):
    rng = np.random.default_rng(seed)
    return Points(
        z=rng.normal(size=(n, d)), action=rng.integers(0, 3, n), G=rng.normal(size=n) * 1e3,
        episode=np.sort(rng.integers(0, episodes, n)), gamma=0.9,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("visits", "leave", "episodes"),
    [
        ("first", True, 60),
        pytest.param("all", True, 60, marks=pytest.mark.slow),
        pytest.param("first", False, 60, marks=pytest.mark.slow),
        pytest.param("first", True, 1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_the_words_are_those_of_one_engine(two, visits, leave, episodes):
    points = cloud(episodes=episodes)
    engine = Engine.build(points, 4)
    away = SpreadEngine.of(engine, two)
    assert len(away.parts) <= min(2, episodes)
    leave_out = points.episode if leave else None
    for radius in (0.0, 0.4):
        asked = {"radius": radius, "visits": visits, "leave_out": leave_out}
        one, other = engine.evidence(points.z, **asked), away.evidence(points.z, **asked)
        for name in ("words", "top", "bottom", "span"):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name
        assert (one.n_episodes, one.sums, one.gamma) == (other.n_episodes, other.sums, other.gamma)
    with pytest.raises(dprl.ParameterError, match="leave_out needs"):
        away.evidence(points.z, radius=1.0, leave_out=points.episode[1:])


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"plan": False}, {"visits": "all"}, {"lam": 1.0, "folds": 2}])
def test_the_policy_file_is_the_same_byte_for_byte(two, more, tmp_path):
    log = dprl.envs.PointMass().sample(40, seed=1)
    settings = {"n_min": 5, "radius": 0.5, "gamma": 0.97, "cut": "terminal", **more}
    learner = dprl.DPRLContinuous(**settings)
    here, away = learner.fit(log), learner.fit(log, cluster=two)
    assert "skipped" not in here.provenance["luck"]
    assert bytes_of(away, tmp_path / "away") == bytes_of(here, tmp_path / "here")
    assert type(away.returns_engine) is Engine  # it answers without the cluster
    assert away.act(log.features[:5]) == here.act(log.features[:5])


@pytest.mark.slow
def test_menus(two, tmp_path):
    rng = np.random.default_rng(0)
    n = 300
    action = rng.integers(0, 3, n)
    log = dprl.from_arrays(
        episode=np.arange(n) // 3, state=rng.normal(size=(n, 2)), action=action,
        reward=rng.normal(size=n) + (action == 1),
        available=["0|1|2" if i % 3 else f"{a}|{(a + 1) % 3}" for i, a in enumerate(action)],
    )  # fmt: skip
    learner = dprl.DPRLContinuous(n_min=3, radius=0.6, gamma=0.9)
    here = bytes_of(learner.fit(log), tmp_path / "here")
    assert bytes_of(learner.fit(log, cluster=two), tmp_path / "away") == here


@pytest.mark.slow
@pytest.mark.parametrize("what", ["_answer", "_add"])
def test_a_worker_killed_while_neighbours_are_counted(two, what, tmp_path, monkeypatch):
    while two.workers() < 2:  # one that was killed before is being started again
        time.sleep(0.1)
    points = cloud()
    engine = Engine.build(points, 4)
    away = SpreadEngine.of(engine, two)
    monkeypatch.setattr(_spread_engine, what, Dies(getattr(_spread_engine, what), str(tmp_path)))
    one, other = (e.evidence(points.z, 0.5) for e in (engine, away))
    assert one.words.tobytes() == other.words.tobytes()
    assert (tmp_path / "died-0").exists()


@pytest.mark.slow
def test_labels_are_refused_in_the_same_words(two):
    learner = dprl.DPRLContinuous(n_min=5, radius=0.5, gamma=0.97)
    log, words = dprl.envs.care_pathway().sample(5, seed=0), []
    for cluster in (None, two):
        with pytest.raises(dprl.LogError) as caught:
            learner.fit(log, cluster=cluster)
        words.append(str(caught.value))
    assert words[0] == words[1]
