"""The rivals over features: against their tables, on problems with a known answer, and as users meet them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from test_baselines import problem

import dprl
from conftest import to_log
from dprl.evidence.neighbors.metric import Metric
from dprl.learners.baselines import (
    PQI,
    SPIBB,
    DeepCQL,
    FittedPQI,
    FittedSPIBB,
    ForestBC,
    fitted,
)
from dprl.learners.baselines import fitted as forests
from dprl.learners.baselines.base import transitions
from dprl.learners.baselines.fitted import Behavior, Counts, keep_rare
from dprl.planning.iteration import best_choices
from dprl.planning.model import estimate
from dprl.policies.stochastic import ForestPolicy, NetworkPolicy

RAW = Metric(scale="none")
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed (dprl[deep])")


def feature_log(rows, names=("x", "y"), **options):
    """A log of rows (episode, time, features, action, reward)."""
    episode, time, state, action, reward = map(list, zip(*rows, strict=True))
    return dprl.from_arrays(
        episode=episode, time=time, state=np.array(state, float), action=action, reward=reward,
        feature_names=list(names), **options,
    )  # fmt: skip


def bandit(n=600, seed=0, usual=0.5):
    """One decision: 'right' pays where x > 0, 'left' elsewhere; 'never' is hardly tried."""
    rng = np.random.default_rng(seed)
    rows = []
    for e in range(n):
        x = rng.uniform(-1, 1, 2)
        a = "left" if rng.random() < usual else "right"
        good = (x[0] > 0) == (a == "right")
        rows.append((e, 0, x, a, float(good) + 0.1 * rng.normal()))
    rows.append((n, 0, (0.5, 0.5), "never", 5.0))
    return feature_log(rows)


def chain(n=500, seed=0):
    """Two decisions: 'b' costs a little at once and leads to where much can be earned."""
    rng = np.random.default_rng(seed)
    rows = []
    for e in range(n):
        first, second = rng.choice(["a", "b"], 2)
        rows.append((e, 0, (rng.uniform(), 0.0), first, 0.3 if first == "a" else 0.0))
        there = 5.0 if first == "b" else 2.0
        good = second == "a" and first == "b"
        rows.append((e, 1, (rng.uniform(), there), second, 1.0 if good else 0.0))
    return feature_log(rows)


def wandering(seed=0):
    """Long walks in the plane."""
    rng = np.random.default_rng(seed)
    return feature_log(
        [
            (e, t, x, "ab"[int(rng.integers(2))], float(np.sin(3 * x[0]) + 0.1 * rng.normal()))
            for e in range(20)
            for t, x in enumerate(np.cumsum(rng.normal(size=(20, 2)) * 0.3, axis=0))
        ]
    )


SPOTS = np.array([(-0.6, 0.1), (-0.4, -0.5), (0.5, 0.4), (0.7, -0.3)])
BEST = ["left", "left", "right", "right"]


# -- against the tables ----------------------------------------------------------------------


def doubled(seed, gamma=0.8, n=300):
    """A log of a random MDP with labels, and the same with features."""
    truth, _ = problem(seed, gamma)
    labelled = truth.sample(n, seed=seed)
    place = np.random.default_rng(seed).normal(size=(labelled.n_states, 2)) * 100
    log = replace(
        labelled, state=None, states=(), features=place[labelled.codes()], feature_names=("x", "y")
    )
    return labelled, log, place


def threshold(n, lengths):
    """A count in the widest gap between pairs' counts, and whether leaving out keeps sides."""
    steps = np.unique(np.append(n[n > 0], 1))
    if len(steps) < 2:
        return 1, True
    i = int(np.argmax(np.diff(steps)))
    middle = (steps[i] + steps[i + 1]) // 2 + 1
    return int(middle), steps[i + 1] - middle > lengths.max()


@pytest.mark.parametrize("seed", range(6))
def test_pqi_is_the_table_where_states_repeat(seed):
    labelled, log, place = doubled(seed)
    model = estimate(labelled, 0.8)
    enough, clear = threshold(model.n, labelled.lengths)
    assert clear
    b = enough / model.n.sum()
    policy = FittedPQI(
        b=b, radius=1e-3, gamma=0.8, metric=RAW, iterations=400, trees=7, r_min=-1.0, seed=seed
    ).fit(log)
    table = PQI(b=b, gamma=0.8, r_min=-1.0)
    assert np.array_equal(policy.probabilities(place), table.plan(model))
    supported = model.n / model.n.sum() >= b
    _, _, Q = best_choices(model.mdp, supported, table.floor)
    seen = model.n > 0
    ours = policy.rule.Q.values(place, seen)
    np.testing.assert_allclose(ours[seen], Q[seen], atol=1e-6)
    assert np.isnan(ours[~seen]).all()
    assert policy.provenance["backups"] < 400
    assert policy.provenance["last_change"] < 1e-7


@pytest.mark.parametrize("seed", range(6))
def test_spibb_is_the_table_where_states_repeat(seed):
    labelled, log, place = doubled(seed)
    model = estimate(labelled, 0.8)
    n_min, clear = threshold(model.n, labelled.lengths)
    assert clear
    learner = FittedSPIBB(
        n_min=n_min, radius=1e-3, gamma=0.8, metric=RAW, iterations=400, trees=7, seed=seed
    )
    data = transitions(log, RAW, 0.8, None)
    free, code = model.n >= n_min, labelled.codes()
    assert np.array_equal(Counts.of(data, 1e-3).training() >= n_min, free[code])
    Q = learner._improved(data, free[code], model.mdp.behavior[code])
    pi = SPIBB(n_min=n_min, gamma=0.8).plan(model)
    expected = model.mdp.action_values(model.mdp.state_values(pi))
    seen = model.n > 0
    ours = Q.values(place, seen)
    np.testing.assert_allclose(ours[seen], expected[seen], atol=1e-6)
    kept = keep_rare(np.where(seen, ours, -np.inf), free, model.mdp.behavior, Q.slack)
    np.testing.assert_allclose(kept, pi, atol=1e-9)


def test_counts_leave_out_the_own_trajectory_at_training_points_only():
    log = feature_log([(e, t, (t, 0), "a", 1.0) for e in range(3) for t in (0, 0.1)])
    counts = Counts.of(transitions(log, RAW, 1.0, None), 0.5)
    assert counts.training().tolist() == [[4]] * 6
    assert counts.at(np.array([[0.0, 0.0]])).tolist() == [[6]]


# -- known answers ---------------------------------------------------------------------------


def learners(gamma=1.0):
    yield FittedPQI(b=0.01, radius=0.3, gamma=gamma, metric=RAW, trees=30, iterations=10)
    yield FittedSPIBB(n_min=5, radius=0.3, gamma=gamma, metric=RAW, trees=30, iterations=10)


@pytest.mark.parametrize("i", range(2))
def test_the_best_action_of_one_decision_is_found(i):
    policy = list(learners())[i].fit(bandit())
    assert policy.act(SPOTS) == BEST
    assert isinstance(policy, ForestPolicy)


@pytest.mark.parametrize("i", range(2))
def test_the_best_first_step_of_two_is_found(i):
    policy = list(learners(gamma=0.9))[i].fit(chain())
    assert policy.act([(0.5, 0.0), (0.5, 5.0)]) == ["b", "a"]
    Q = policy.rule.Q.values(np.array([[0.5, 0.0]]), np.ones((1, 2), bool))
    if i == 0:
        np.testing.assert_allclose(Q, [[0.3, 0.9]], atol=0.02)
    nearsighted = list(learners(gamma=0.2))[i].fit(chain())
    assert nearsighted.act([0.5, 0.0]) == "a"


def test_pqi_is_uniform_where_nothing_is_supported_and_fears_it():
    far = {"x": [50.0], "y": [50.0]}
    policy = next(learners()).fit(bandit())
    assert policy.probabilities(far).tolist() == [[1 / 3] * 3]
    # 'go' pays now and leads to places nobody else has been to.
    rng = np.random.default_rng(0)
    rows = []
    for e in range(60):
        go = e % 2 == 0
        rows.append((e, 0, (0.0, 0.0), "go" if go else "stay", 0.5 if go else 0.0))
        if go:
            rows.append((e, 1, rng.uniform(100, 1000, 2), "stay", 0.0))
    log = feature_log(rows)
    settings = {"b": 0.1, "radius": 1e-3, "gamma": 0.9, "metric": RAW, "trees": 5, "iterations": 5}
    calm, afraid = FittedPQI(**settings).fit(log), FittedPQI(r_min=-1, **settings).fit(log)
    here, both = np.zeros((1, 2)), np.ones((1, 2), bool)
    np.testing.assert_allclose(calm.rule.Q.values(here, both), [[0.5, 0.0]], atol=1e-12)
    np.testing.assert_allclose(afraid.rule.Q.values(here, both), [[0.5 - 9.0, 0.0]], atol=1e-12)
    assert (calm.act((0, 0)), afraid.act((0, 0))) == ("go", "stay")


def test_spibb_keeps_rare_mass_and_moves_the_rest_to_the_best():
    log = bandit(usual=0.9)
    learner = FittedSPIBB(n_min=8, radius=0.25, gamma=1.0, metric=RAW, trees=30, iterations=5)
    policy = learner.fit(log)
    x = np.random.default_rng(1).uniform(-1, 1, (200, 2))
    pi, pi_b = policy.probabilities(x), policy.rule.behavior.probabilities(x)
    free = policy.rule.counts.at(x) >= 8
    assert np.array_equal(pi[~free], pi_b[~free])
    Q = policy.rule.Q.values(x, free)
    some = free.any(axis=1)
    assert 0 < free[:, policy.actions.index("right")].mean() < 1
    best = np.nanargmax(np.where(free, Q, -np.inf), axis=1)
    rows = np.arange(len(x))[some]
    spare = np.where(free, pi_b, 0).sum(axis=1)[some]
    np.testing.assert_allclose(pi[rows, best[some]], spare, atol=1e-15)
    np.testing.assert_allclose(pi.sum(axis=1), 1, atol=1e-12)
    only_behaviour = replace(learner, n_min=np.inf).fit(log)
    cloned = ForestBC(trees=30).fit(log)
    np.testing.assert_allclose(only_behaviour.probabilities(x), cloned.probabilities(x), atol=1e-12)
    assert only_behaviour.parameters["n_min"] is None


def test_the_cloned_behaviour_is_the_behaviour():
    log = bandit(2000, usual=0.8)
    policy = ForestBC(seed=3).fit(log)
    pi = policy.probabilities(np.random.default_rng(0).uniform(-1, 1, (500, 2)))
    assert pi.shape == (500, 3)
    assert pi[:, 0].mean() == pytest.approx(0.8, abs=0.05)
    assert pi.sum(axis=1) == pytest.approx(1)
    # an action of the labels that nobody took
    unseen = replace(log, actions=(*log.actions, "unheard"))
    assert (ForestBC(trees=5).fit(unseen).probabilities(SPOTS)[:, 3] == 0).all()


def test_points_do_not_vote_for_themselves_in_the_behaviour():
    rng = np.random.default_rng(0)
    z, action = rng.uniform(size=(800, 2)), rng.integers(2, size=800)
    forest = Behavior.grow(z, action, z.mean(axis=0), 2, 100, 0)
    rows = np.arange(800)
    assert forest.probabilities(z)[rows, action].mean() > 0.8
    assert forest.out_of_bag(z)[rows, action].mean() == pytest.approx(0.5, abs=0.05)
    few = Behavior.grow(z, action, z.mean(axis=0), 2, 1, 0)
    assert few.out_of_bag(z).sum(axis=1) == pytest.approx(1)
    # as scikit-learn has it
    x = np.asarray(z - z.mean(axis=0), np.float32)
    np.testing.assert_allclose(forest.probabilities(z), forest.forest.predict_proba(x), atol=1e-12)


def test_values_are_those_of_scikit_learn_and_new_targets_move_the_leaves():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)).round(1).astype(np.float32)
    y, elsewhere = rng.normal(size=200), rng.normal(size=(40, 3)).astype(np.float32)
    grown = forests.Regression.grow(x, y, 20, 0)
    leaves = grown.leaves(elsewhere)
    np.testing.assert_allclose(grown.at(leaves), grown.forest.predict(elsewhere), atol=1e-12)
    np.testing.assert_allclose(
        grown.with_targets(2 * y + 1).at(leaves), 2 * grown.at(leaves) + 1, atol=1e-12
    )


# -- seeds, threads, offsets -----------------------------------------------------------------


@pytest.mark.parametrize("i", range(2))
def test_a_seed_is_an_answer_whatever_the_threads(i, monkeypatch):
    log, x = bandit(300), np.random.default_rng(5).uniform(-1, 1, (50, 2))
    learner = list(learners())[i]

    def answers(learner):
        rule = learner.fit(log).rule
        return rule.Q.values(x, np.ones((50, 3), bool)), rule.probabilities(x)

    first = answers(learner)
    monkeypatch.setattr(forests, "JOBS", 1)
    again = answers(learner)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    monkeypatch.setattr(forests, "CHUNK", 7)
    assert np.array_equal(first[0], answers(learner)[0])
    assert not np.array_equal(first[0], answers(replace(learner, seed=1))[0])


def test_company_does_not_change_an_answer():
    policy = list(learners())[1].fit(bandit(300))
    x = np.random.default_rng(5).uniform(-1, 1, (30, 2))
    alone = np.concatenate([policy.probabilities(row) for row in x])
    assert np.array_equal(policy.probabilities(x), alone)


def test_offsets_do_not_drown_the_features():
    log = bandit(400)
    moved = replace(log, features=log.features + 2.0**30)
    for learner in learners():
        assert learner.fit(moved).act(SPOTS + 2.0**30) == BEST


def test_fewer_iterations_are_obeyed_and_said(monkeypatch):
    log = wandering()
    grown = []
    grow = fitted.Regression.grow
    monkeypatch.setattr(
        fitted.Regression, "grow", lambda *args, **shape: grown.append(1) or grow(*args, **shape)
    )
    changes = {}
    for iterations in (1, 6, 26, 40):
        grown.clear()
        policy = FittedPQI(
            b=0.01, radius=0.4, gamma=0.9, metric=RAW, trees=5, iterations=iterations
        ).fit(log)
        assert policy.provenance["backups"] == policy.parameters["iterations"] == iterations
        assert len(grown) == min(5, -(-iterations // 5))
        changes[iterations] = policy.provenance["last_change"]
    # the trees are kept from backup 21 on: a contraction
    assert 0 < changes[40] <= 0.9**14 * changes[26]


# -- as users meet them ----------------------------------------------------------------------


def test_states_are_arrays_tables_or_mappings():
    policy = ForestBC(trees=5).fit(bandit(200))
    pi = policy.probabilities(SPOTS)
    frame = {"y": SPOTS[:, 1], "x": SPOTS[:, 0], "other": np.zeros(4)}
    for states in (SPOTS.tolist(), frame, pd.DataFrame(frame), pl.DataFrame(frame)):
        assert np.array_equal(policy.probabilities(states, behavior=None), pi)
    one = policy.act({"x": -0.6, "y": 0.1})
    assert one == policy.act(SPOTS[0]) == policy.act(SPOTS)[0]
    with pytest.raises(dprl.PolicyError, match="needs the feature 'y'"):
        policy.act({"x": 1.0})
    with pytest.raises(dprl.PolicyError, match="must be numbers"):
        policy.act([["high", "low"]])
    with pytest.raises(dprl.ParameterError, match="2 features"):
        policy.act([1.0, 2.0, 3.0])
    with pytest.raises(dprl.LogError, match="not a finite number"):
        policy.act([np.nan, 0.0])
    assert repr(policy) == "<ForestPolicy: ForestBC · 2 features>"


def test_forests_are_not_saved(tmp_path):
    policy = ForestBC(trees=5).fit(bandit(50))
    with pytest.raises(dprl.PolicyError, match="cannot be saved without pickle"):
        policy.save(tmp_path / "p.dprl")
    with pytest.raises(dprl.PolicyError, match="without pickle"):
        policy.digest()
    with pytest.raises(dprl.PolicyError, match="not saved"):
        ForestPolicy.load(tmp_path / "p.dprl")
    assert not list(tmp_path.iterdir())


GOOD = {
    FittedPQI: {"b": 0.1, "radius": 1.0, "gamma": 0.9},
    FittedSPIBB: {"n_min": 3, "radius": 1.0, "gamma": 0.9},
    DeepCQL: {"alpha": 1.0, "gamma": 0.9},
    ForestBC: {},
}


@pytest.mark.parametrize(
    ("learner", "bad"),
    [
        (FittedPQI, {"b": 0}), (FittedPQI, {"b": 1.5}), (FittedPQI, {"radius": -1}),
        (FittedPQI, {"radius": np.inf}), (FittedPQI, {"gamma": 0}), (FittedPQI, {"trees": 0}),
        (FittedPQI, {"iterations": 2.5}), (FittedPQI, {"gamma": 1.0, "r_min": -1}),
        (FittedPQI, {"seed": -1}), (FittedPQI, {"cut": "bootstrap"}), (FittedPQI, {"cut": "no"}),
        (FittedPQI, {"metric": "std"}), (FittedSPIBB, {"n_min": 0}),
        (FittedSPIBB, {"radius": "1"}), (FittedSPIBB, {"iterations": 0}),
        (FittedSPIBB, {"trees": True}), (ForestBC, {"trees": 0}), (ForestBC, {"seed": 0.5}),
        (DeepCQL, {"alpha": -1}), (DeepCQL, {"steps": 0}), (DeepCQL, {"batch": 0.5}),
        (DeepCQL, {"learning_rate": 0}), (DeepCQL, {"cut": "bootstrap"}), (DeepCQL, {"seed": -1}),
    ],
)  # fmt: skip
def test_settings_are_checked(learner, bad):
    with pytest.raises(dprl.ParameterError):
        learner(**{**GOOD[learner], **bad})


@pytest.mark.parametrize("learner", [FittedPQI, FittedSPIBB, ForestBC])
def test_logs_that_cannot_be_used_are_refused(learner):
    learner = learner(**GOOD[learner])
    with pytest.raises(dprl.LogError, match="labels, not numeric features"):
        learner.fit(to_log([[("s", "a", 1.0)]]))
    with pytest.raises(dprl.LogError, match="no episodes"):
        learner.fit(bandit(20).take([]))
    log = bandit(20)
    menus = replace(log, available=np.zeros(log.n_steps, np.int32), menus=np.ones((1, 3), bool))
    with pytest.raises(dprl.LogError, match="which actions were available"):
        learner.fit(menus)


def test_cut_episodes_are_warned_of_and_dropped():
    rows = [(e, t, (t, e), "a", 1.0) for e in range(6) for t in range(2)]
    log = feature_log(rows, ended=[e % 2 == 0 for e in range(6) for _ in range(2)])
    learner = FittedPQI(**GOOD[FittedPQI], trees=2, iterations=2)
    with pytest.warns(dprl.CutWarning, match="3 of 6"):
        learner.fit(log)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy = replace(learner, cut="drop").fit(log)
        ForestBC(trees=2).fit(log)
    assert policy.provenance["steps_used"] == 6
    assert policy.provenance["cut_episodes"] == 3


def test_importing_the_baselines_loads_neither_sklearn_nor_torch():
    code = (
        "import sys, dprl.learners.baselines as b; assert 'ForestBC' in dir(b);"
        "assert not {'sklearn', 'torch'} & set(sys.modules);"
        "b.FittedPQI, b.DeepCQL; assert not {'sklearn', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="nothing"):
        dprl.learners.baselines.nothing  # noqa: B018


# -- the network -----------------------------------------------------------------------------


def test_without_torch_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(dprl.ParameterError) as caught:
        DeepCQL(alpha=1.0, gamma=1.0).fit(bandit(10))
    assert caught.value.do == "pip install 'dprl[deep]'"
    assert len(str(caught.value).splitlines()) == 3


def deep(**settings):
    return DeepCQL(
        **{"alpha": 0.05, "gamma": 0.9, "steps": 1500, "batch": 128, "learning_rate": 1e-2}
        | settings
    )


@needs_torch
def test_the_network_learns_one_decision_and_two():
    log = bandit().take(range(600))  # without the 'never' that paid 5
    assert deep().fit(log).act(SPOTS) == BEST
    assert deep(metric=RAW).fit(chain()).act([(0.5, 0.0), (0.5, 5.0)]) == ["b", "a"]
    assert deep(gamma=0.2).fit(chain()).act([0.5, 0.0]) == "a"


@needs_torch
def test_more_alpha_is_nearer_to_the_usual():
    log = bandit(usual=0.9).take(range(600))
    x = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    usual = [
        np.mean([a == "left" for a in deep(alpha=alpha).fit(log).act(x)])
        for alpha in (0.0, 0.5, 20.0)
    ]
    assert usual[0] == pytest.approx(0.5, abs=0.1)
    assert usual[0] <= usual[1] <= usual[2]
    assert usual[2] > 0.95


@needs_torch
def test_the_network_is_its_seed_and_leaves_torch_alone():
    import torch

    log = bandit(100)
    before = torch.get_num_threads(), torch.random.get_rng_state()
    one, two, other = (deep(steps=50, seed=s).fit(log) for s in (0, 0, 1))
    assert one.digest() == two.digest() != other.digest()
    assert torch.get_num_threads() == before[0]
    assert torch.equal(torch.random.get_rng_state(), before[1])


@needs_torch
def test_the_network_is_kept_in_a_file_and_answers_without_torch(tmp_path, monkeypatch):
    policy = deep(steps=50).fit(bandit(100))
    policy.save(tmp_path / "p.dprl")
    monkeypatch.setitem(sys.modules, "torch", None)
    again = NetworkPolicy.load(tmp_path / "p.dprl")
    assert again.digest() == policy.digest()
    assert np.array_equal(again.values(SPOTS), policy.values(SPOTS))
    alone = np.concatenate([again.values(row) for row in SPOTS])
    assert np.array_equal(alone, again.values(SPOTS))
    assert again.act(SPOTS[0]) == policy.act(SPOTS)[0]


def network(**parts):
    given = {
        "states": (), "actions": ("a", "b"), "parameters": {}, "provenance": {},
        "feature_names": ("x",), "scale": np.ones(1), "weight": np.ones(1),
        "centre": np.zeros(1), "W1": np.ones((1, 2)), "b1": np.zeros(2),
        "W2": np.eye(2), "b2": np.array([0.0, 1.0]),
    }  # fmt: skip
    return NetworkPolicy(**given | parts)


def test_a_network_by_hand():
    policy = network()
    assert policy.values([[3.0], [-1.0]]).tolist() == [[3.0, 4.0], [0.0, 1.0]]
    assert policy.act([3.0]) == "b"


@pytest.mark.parametrize(
    "bad",
    [
        {"W1": np.ones((2, 2))}, {"b2": np.zeros(3)}, {"b1": np.array([0.0, np.nan])},
        {"scale": np.zeros(1)}, {"weight": np.zeros(1)}, {"W2": np.eye(2, dtype=np.float32)},
    ],
)  # fmt: skip
def test_a_network_of_odd_parts_is_refused(bad):
    with pytest.raises(dprl.PolicyError, match="cannot be made of these parts"):
        network(**bad)


@needs_torch
def test_a_network_that_runs_off_is_refused():
    log = feature_log([(e, t, (t, e), "a", 1.0) for e in range(4) for t in range(3)])
    with pytest.raises(dprl.PlanError, match="infinity"):
        deep(steps=20, learning_rate=1e300).fit(log)


def test_groups_in_any_order():
    """Episodes of a group need not stand together in the log for its density to be counted."""
    rng = np.random.default_rng(0)
    n = 40
    log = dprl.from_arrays(
        episode=range(n), state=rng.normal(size=(n, 2)), action=rng.integers(2, size=n),
        reward=rng.normal(size=n), group=[f"p{i % 5}" for i in range(n)],
    )  # fmt: skip
    policy = dprl.learners.baselines.FittedPQI(
        b=0.01, radius=1.0, gamma=0.9, iterations=2, trees=5
    ).fit(log)
    assert policy.probabilities(log.features).sum(axis=1) == pytest.approx(1)
