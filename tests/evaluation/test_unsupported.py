"""A policy that names actions nobody took in their state: no log says what follows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import dprl
from dprl.evaluation.divergence import supported, unsupported
from dprl.learners.baselines import PQI
from dprl.policies.held_out import PolicyAtSteps, acts
from dprl.policies.protocol import as_policy


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
    assert np.isfinite(result["WDR"]["difference_low"])
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
    said = PolicyAtSteps(pi, speaks, None, state, tuple(range(A + 1)))
    chances = []
    for e in range(E):
        good = 1.0
        for i in range(starts[e], starts[e + 1]):
            s = state[i]
            if speaks[s]:
                good *= sum(pi[s, a] for a in range(A) if table[s, a] > 0)
        chances.append(1 - good)
    assert unsupported(said, table, state, starts) == pytest.approx(np.mean(chances))


# -- features: no two steps are alike ---------------------------------------------------------


def rooms(n=1000, low=0.0, seed=0):
    """One step an episode: `b` pays 1, but -5 where x > .8; its chance is .3, and `low` there."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 2))
    above = x[:, 0] > 0.8
    b = rng.random(n) < np.where(above, low, 0.3)
    pays = np.where(b, np.where(above, -5.0, 1.0), 0.5)
    return dprl.from_arrays(
        episode=np.arange(n), state=x, action=np.where(b, "b", "a"), reward=pays,
        feature_names=["x", "y"],
    )  # fmt: skip


class Mixed:
    """`b` with this chance wherever x > the limit, else `a`."""

    actions = ("a", "b")
    feature_names = ("x", "y")

    def __init__(self, limit, chance):
        self.limit, self.chance = limit, chance

    def probabilities(self, states):
        b = np.where(np.asarray(states)[:, 0] > self.limit, self.chance, 0.0)
        return np.column_stack([1 - b, b])


@pytest.fixture(scope="module")
def gap():
    """A log with a gap, and its practice as a smooth model would have it."""
    log = rooms()
    b = np.where(log.features[:, 0] > 0.8, 0.03, 0.3)
    pi = np.column_stack([1 - b, b])
    steps = np.arange(log.n_steps)
    return log, dprl.evaluation.Behavior(pi, steps, log.action, "a model", True, log.digest())


def _judged(policy, gap):
    log, behavior = gap
    return dprl.evaluate(policy, log, gamma=1.0, draws=20, values=False, behavior=behavior)


def test_over_features_too_a_mixed_policy_over_gaps_has_no_interval(gap):
    """Half of what it says at x > .8 nobody did, and WIS leaves that half out."""
    result = _judged(Mixed(0.4, 0.5), gap)
    assert result.facts["followers"] > 30
    assert result.facts["unsupported"] == pytest.approx(0.1, abs=0.02)  # half of a fifth
    assert np.isnan(result["WIS"]["difference_low"])
    assert np.isfinite(result["WIS"]["difference"])
    (words,) = [w for w in result.warnings if "hardly anybody took" in w]
    assert "no estimate has an interval" in words


def test_over_features_a_little_of_it_is_warned_of(gap):
    result = _judged(Mixed(0.4, 0.15), gap)
    assert result.facts["unsupported"] == pytest.approx(0.03, abs=0.01)
    assert np.isfinite(result["WIS"]["difference_low"])
    (words,) = [w for w in result.warnings if "hardly anybody took" in w]
    assert "interval" not in words


@pytest.mark.parametrize("low", [0.3, 0.1])
def test_over_features_what_some_took_is_supported(low):
    log = rooms(low=low)
    assert (supported(acts(as_policy(Mixed(0.4, 0.5)), log), log, 0) == 1).all()


def test_where_nobody_at_all_took_it_the_number_of_steps_does_not_matter():
    log = rooms(60)
    said = PolicyAtSteps(
        np.column_stack([np.zeros(60), (log.features[:, 0] > 0.8).astype(float)]),
        log.features[:, 0] > 0.8, None, np.arange(60), ("a", "b"),
    )  # fmt: skip
    assert ((supported(said, log, 0)[:, 1] == 0) == (log.features[:, 0] > 0.8)).all()


def test_an_action_that_the_log_has_not():
    log = rooms(100)
    said = PolicyAtSteps(
        np.tile([0.0, 0.5, 0.5], (100, 1)), np.ones(100, bool), None, np.arange(100),
        ("a", "b", "new"),
    )  # fmt: skip
    assert (supported(said, log, 0)[:, 2] == 0).all()


def test_a_rare_action_is_not_taken_for_a_missing_one():
    rng = np.random.default_rng(1)
    b = rng.random(3000) < 0.02
    log = dprl.from_arrays(
        episode=np.arange(3000), state=rng.random((3000, 3)), action=np.where(b, "b", "a"),
        reward=np.zeros(3000),
    )  # fmt: skip
    said = PolicyAtSteps(
        np.tile([0.0, 1.0], (3000, 1)), np.ones(3000, bool), None, np.arange(3000), ("a", "b")
    )
    assert (supported(said, log, 0) == 1).all()


def test_a_behaviour_that_is_given_says_itself_what_is_never_done():
    log = dprl.from_arrays(
        episode=np.arange(90), state=["s", "s", "t"] * 30, action=["a", "b", "a"] * 30,
        reward=np.arange(90.0),
    )  # fmt: skip

    class Both:
        actions = ("a", "b")

        def probabilities(self, states):
            return np.full((len(states), 2), 0.5)

    given = [[0.5, 0.5], [1.0, 0.0]]
    result = dprl.evaluate(Both(), log, gamma=1.0, behavior=given, draws=20)
    assert result.facts["unsupported"] == pytest.approx(1 / 6)
    assert np.isnan(result["WIS"]["value_low"])
    assert [w for w in result.warnings if "no chance there in the behaviour given" in w]


def test_a_sweep_shows_what_is_unsupported(gap):
    """Table, rows and figure; not only an interval that is missing."""

    @dataclasses.dataclass(frozen=True)
    class Mixing:
        n_min: float
        gamma: float = 1.0

        def fit(self, log):
            return Mixed(0.4, self.n_min)

    settings = [0.05, 0.5]
    swept = dprl.sweep(
        Mixing(0.5),
        rooms(seed=1),
        gap[0],
        n_min=settings,
        draws=20,
        values=False,
        behavior=gap[1],
    )
    few, many = swept.table()["unsupported"]
    assert few == pytest.approx(0.01, abs=0.005)
    assert many == pytest.approx(0.1, abs=0.02)
    assert np.isnan(swept.rows[1]["difference_low"])
    assert "above 5 % there is no interval" in swept.details()
    assert swept.to_dict()["settings"][1]["unsupported"] == many
    pytest.importorskip("matplotlib")
    words = [text.get_text() for text in swept.plot().axes[0].texts]
    assert f"{100 * many:.0f} % unsupported" in words
