"""A policy that names actions nobody took in their state: no log says what follows."""

from __future__ import annotations

import numpy as np
import pytest

import dprl
from dprl.evaluation._decisions import Spoken
from dprl.evaluation._matters import unsupported
from dprl.learners.baselines import PQI


@pytest.fixture(scope="module")
def care():
    world = dprl.envs.care_pathway()
    train, rest = world.sample(4000, seed=3).split(0.5, seed=0)
    return world, train, rest.split(0.5, seed=0)[1]


def test_a_mixed_policy_over_gaps_of_the_log_has_no_interval(care):
    """PQI is uniform where nothing passes its filter: WIS said +.05 (.00 to .09), truth -.31."""
    world, train, test = care
    policy = PQI(b=0.1, gamma=1.0).fit(train)
    assert world.value(policy) - world.value() < -0.25
    result = dprl.evaluate(policy, test, draws=50)
    assert result.facts["followers"] > 0
    assert result.facts["unsupported"] > 0.2
    for row in result.rows.values():
        assert np.isnan(row["difference_low"])
        assert np.isnan(row["difference_high"])
    (words,) = [w for w in result.warnings if "nobody took in its state" in w]
    assert "WIS and WPDIS leave it out" in words
    assert "no estimate has an interval" in words


def test_what_somebody_took_keeps_its_interval(care):
    _, train, test = care
    result = dprl.evaluate(dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train), test, draws=50)
    assert result.facts["unsupported"] == 0
    assert np.isfinite(result["WIS"]["difference_low"])
    assert not [w for w in result.warnings if "nobody took" in w]


@pytest.mark.parametrize("seed", range(5))
def test_the_chance_against_its_definition(seed):
    rng = np.random.default_rng(seed)
    S, A, E = 4, 3, 12
    lengths = rng.integers(1, 6, E)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    state = rng.integers(0, S, starts[-1])
    table = rng.dirichlet(np.ones(A), S) * (rng.random((S, A)) < 0.7)
    speaks = rng.random(S) < 0.7
    pi = np.where(speaks[:, None], rng.dirichlet(np.ones(A + 1), S), 0.0)  # one action of its own
    said = Spoken(pi, speaks, None, state, tuple(range(A + 1)))
    chances = []
    for e in range(E):
        good = 1.0
        for i in range(starts[e], starts[e + 1]):
            s = state[i]
            if speaks[s]:
                good *= sum(pi[s, a] for a in range(A) if table[s, a] > 0)
        chances.append(1 - good)
    assert unsupported(said, table, state, starts) == pytest.approx(np.mean(chances))
