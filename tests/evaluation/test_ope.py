"""Off-policy evaluation: what it says, and what it refuses."""

from __future__ import annotations

import dataclasses
import itertools
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from small_world import GAMMA, small_world
from test_gate_cells import LEARNER, UNIT, ward

import dprl
from conftest import random_episodes, to_log
from dprl.errors import CutWarning, LogError, ParameterError, PolicyError
from dprl.evaluation.estimators import ESTIMATORS
from dprl.planning.finite_mdp import FiniteMDP
from dprl.policies.stochastic import StochasticPolicy

# -- a policy that changes nothing --------------------------------------------------------------


@given(st.integers(0, 10_000), st.sampled_from([0.8, 0.99, 1.0]))
def test_nothing_changed_is_the_sample_mean_exactly(seed, gamma):
    log = to_log(random_episodes(seed))
    silent = dprl.DPRLDiscrete(n_min=np.inf, gamma=gamma).fit(log)
    found = dprl.evaluate(silent, log, draws=20, allow_seen=True)
    G = [
        sum(gamma**t * r for t, r in enumerate(log.reward[a:b]))
        for a, b in itertools.pairwise(log.starts)
    ]
    assert found.behavior["value"] == pytest.approx(np.mean(G), rel=1e-12, abs=1e-12)
    for row in found.rows.values():
        assert row["value"] == found.behavior["value"]  # to the last bit
        assert (row["value_low"], row["value_high"]) == tuple(
            found.behavior[k] for k in ("low", "high")
        )
        assert row["difference"] == row["difference_low"] == row["difference_high"] == 0.0
    assert found.facts["spoken"] == 0
    assert found.facts["ess"] == pytest.approx(len(log.groups))
    assert "speaks nowhere" in found.warnings[-1]


def test_the_behaviour_itself_given_exactly():
    """π = π_b, given: every ratio is 1, and IS to WPDIS are the sample mean."""
    mdp = small_world()
    log = mdp.sample(200, seed=1)
    same = StochasticPolicy(
        states=log.states, actions=log.actions, parameters={}, provenance={}, pi=mdp.behavior
    )
    found = dprl.evaluate(same, log, gamma=GAMMA, behavior=mdp.behavior, draws=10)
    for name in ("IS", "WIS", "PDIS", "WPDIS"):
        assert found[name]["value"] == pytest.approx(found.behavior["value"], abs=1e-12)


# -- where it matters ---------------------------------------------------------------------------


def rare_crisis():
    """Nearly everybody stays well; one in twenty has a crisis, where usual practice is poor."""
    P = np.zeros((2, 2, 2))
    P[0, :, 1] = 0.05
    R = np.zeros((2, 2))
    R[0] = 1.0
    R[1] = [0.0, 1.0]
    return FiniteMDP(
        "crisis", ("well", "crisis"), ("old", "new"), sparse.csr_array(P.reshape(4, 2)), R, R,
        np.array([1.0, 0.0]), np.array([[1.0, 0.0], [0.8, 0.2]]), 1.0,
    )  # fmt: skip


def test_the_usual_ess_lies_and_ours_does_not():
    mdp = rare_crisis()
    train, log = mdp.sample(4_000, seed=0), mdp.sample(1_000, seed=1)
    policy = dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(train)
    assert policy.act(["crisis"]) == ["new"]
    found = dprl.evaluate(policy, log, draws=100)
    crises = (log.codes() == 1).sum()
    followers = ((log.codes() == 1) & (log.action == 1)).sum()
    assert found.facts["reached"] == crises
    assert found.facts["followers"] == followers
    assert found.facts["ess"] > 500
    assert found.facts["ess_change"] == pytest.approx(followers, rel=0.2)  # weights nearly equal
    assert 2 <= found.facts["ess_change"] < 20
    assert any("where it matters" in line for line in found.warnings)


def test_confirmations_are_no_changes(care):
    mdp, _, log = care
    policy = dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(mdp.sample(1_000, seed=1))
    assert policy.summary()["confirmations"] > 0
    kind = dict(zip(policy.states, policy.kind, strict=True))
    said = dict(zip(policy.states, policy.act(policy.states), strict=True))
    reached = followers = 0
    for a, b in itertools.pairwise(log.starts):
        steps = [(log.states[s], log.actions[c])
                 for s, c in zip(log.state[a:b], log.action[a:b], strict=True)]  # fmt: skip
        changes = [(s, c) for s, c in steps if kind[s] == 2]
        reached += bool(changes)
        followers += bool(changes) and all(said[s] == c for s, c in changes)
    found = dprl.evaluate(policy, log, draws=10, values=False)
    assert (found.facts["reached_change"], found.facts["followers_change"]) == (reached, followers)
    assert found.facts["reached"] > reached  # what is confirmed is not always done
    assert found.facts["spoken"] > found.facts["changed"]


def test_nobody_followed():
    episodes = [[("s", "old", 1.0)]] * 30
    log = to_log(episodes)
    policy = dprl.CallablePolicy(lambda s: ["new"] * len(s), actions=("old", "new"))
    found = dprl.evaluate(policy, log, gamma=1, draws=50)
    assert found.facts["followers"] == 0
    assert any("nobody followed" in line for line in found.warnings)
    assert found["IS"]["value"] == 0
    assert np.isnan(found["WIS"]["value"])
    assert np.isnan(found["WPDIS"]["difference_low"])
    assert found.facts["guessed"] == 1
    assert any("guess its value" in line for line in found.warnings)
    assert json.loads(found.to_json())["estimates"][1]["value"] is None


def test_groups_are_what_is_counted():
    mdp = small_world()
    log = mdp.sample(60, seed=0)
    policy = dprl.DPRLDiscrete(n_min=5, gamma=GAMMA, contrast=False).fit(mdp.sample(500, seed=1))
    alone = dprl.evaluate(policy, log, draws=50, values=False)
    twice = dprl.Log(
        starts=np.concatenate([log.starts, log.starts[-1] + log.starts[1:]]),
        action=np.tile(log.action, 2), reward=np.tile(log.reward, 2), state=np.tile(log.state, 2),
        states=log.states, actions=log.actions, group=np.tile(np.arange(60), 2),
        groups=tuple(range(60)),
    )  # fmt: skip
    both = dprl.evaluate(
        policy, twice, draws=50, values=False, behavior=dprl.Behavior.fit(log).table[
            np.tile(dprl.Behavior.fit(log).row, 2)
        ],
    )  # fmt: skip
    for name in ("reached", "followers"):
        assert both.facts[name] == alone.facts[name]
    assert both.facts["ess"] == pytest.approx(alone.facts["ess"])
    assert both.unit == "groups"
    for name in ("IS", "WIS", "PDIS", "WPDIS"):
        for key, value in alone[name].items():
            assert both[name][key] == pytest.approx(value, abs=1e-12, nan_ok=True), (name, key)


# -- the table ----------------------------------------------------------------------------------


def test_estimates_lie_near_the_truth(care):
    mdp, policy, log = care
    found = dprl.evaluate(policy, log)
    gain = mdp.value(policy) - mdp.value()
    for name in ESTIMATORS:
        row = found[name]
        assert abs(row["difference"] - gain) < 0.05, name
        if name != "DM":
            assert row["difference_low"] < row["difference"] < row["difference_high"]
    assert np.isnan(found["DM"]["value_low"])  # resampling trajectories cannot show its error
    assert not found.warnings
    given = dprl.evaluate(policy, log, behavior=mdp.behavior)
    assert given["WIS"]["value"] == pytest.approx(found["WIS"]["value"], abs=0.02)
    assert given.facts["behavior"] == "given"


def test_same_seed_same_bytes(care):
    _, policy, log = care
    one, two = (dprl.evaluate(policy, log, seed=3, draws=200).to_json() for _ in range(2))
    assert one == two
    assert dprl.evaluate(policy, log, seed=4, draws=200).to_json() != one


def test_the_order_of_episodes_leaves_no_trace_in_the_estimates(care):
    _, policy, log = care
    found = dprl.evaluate(policy, log, draws=10, behavior=dprl.envs.care_pathway().behavior)
    order = np.random.default_rng(0).permutation(log.n_episodes)
    parts = [np.arange(log.starts[e], log.starts[e + 1]) for e in order]
    rows = np.concatenate(parts)
    moved = dprl.Log(
        starts=np.concatenate(([0], np.cumsum([len(p) for p in parts]))), action=log.action[rows],
        reward=log.reward[rows], state=log.state[rows], states=log.states, actions=log.actions,
        ended=log.ended[order],
    )  # fmt: skip
    again = dprl.evaluate(policy, moved, draws=10, behavior=dprl.envs.care_pathway().behavior)
    for name in ("IS", "WIS", "PDIS", "WPDIS"):
        assert again[name]["value"] == pytest.approx(found[name]["value"], rel=1e-12)


def test_what_an_evaluation_prints(care):
    _, policy, log = care
    found = dprl.evaluate(policy, log, draws=50)
    text = found.details()
    assert text.startswith("Difference to usual practice (WDR): ")
    assert "1,000 episodes, 4,781 steps; usual practice gets 0.848" in text
    assert "where it matters" in text
    assert "<table" in found._repr_html_()
    assert found.to_frame().shape == (7, 9)
    assert list(found.to_frame()["estimator"]) == list(ESTIMATORS)
    data = json.loads(found.to_json())
    assert data["estimates"][5]["difference"] == found["DR"]["difference"]
    assert data["settings"]["log"] == log.digest()
    quick = dprl.evaluate(policy, log, draws=50, values=False)
    assert np.isnan(quick["DR"]["value"])
    assert quick["WIS"]["value"] == found["WIS"]["value"]


def test_progress_is_told(care):
    _, policy, log = care
    told = []
    dprl.evaluate(policy, log, draws=20, progress=lambda *x: told.append(x))
    assert ("bootstrap", 1.0) in told
    assert any(stage == "values" for stage, _ in told)


# -- what is refused ----------------------------------------------------------------------------


def test_the_training_log_is_refused(care):
    mdp, policy, _ = care
    train = mdp.sample(1_000, seed=1)
    with pytest.raises(PolicyError, match="the log the policy was learned from"):
        dprl.evaluate(policy, train)
    found = dprl.evaluate(policy, train, allow_seen=True, draws=10)
    assert "flatters" in found.warnings[0]


@pytest.mark.parametrize("record", [{"sample": [3]}, {"sample": ["zz"] * 9}, {"sweep": 5}])
def test_a_damaged_record_is_refused(care, record):
    _, policy, log = care
    odd = dataclasses.replace(policy, provenance={**policy.provenance, **record})
    with pytest.raises(PolicyError, match="record of the logs"):
        dprl.evaluate(odd, log, draws=10)


def test_bad_settings(care):
    _, policy, log = care
    for name, value in [
        ("level", 1.0), ("level", "x"), ("draws", 0), ("draws", 1.5), ("seed", -1), ("clip", 2),
        ("gamma", 0), ("gamma", 1.1), ("cut", "now"),
    ]:  # fmt: skip
        with pytest.raises(ParameterError, match=name):
            dprl.evaluate(policy, log, **{name: value})
    with pytest.raises(ParameterError, match="another log"):
        dprl.evaluate(policy, log, behavior=dprl.Behavior.fit(log.take(range(50))))
    with pytest.raises(PolicyError, match="no policy of dprl's"):
        dprl.evaluate(object(), log, gamma=1)
    numbers = to_log([[("fever", 1, 0.0)]] * 3)
    with pytest.raises(PolicyError, match="actions are text, the log's numbers"):
        dprl.evaluate(policy, numbers)
    with pytest.raises(PolicyError, match="no action in common"):
        dprl.evaluate(policy, to_log([[("fever", "sing", 0.0)]] * 3))
    with pytest.raises(PolicyError, match="states are text"):
        dprl.evaluate(policy, to_log([[(3, "watch", 0.0)]] * 3))
    with pytest.raises(PolicyError, match="labels, the log's are features"):
        dprl.evaluate(policy, dprl.from_arrays(
            episode=[0, 1], state=np.zeros((2, 2)), action=["watch"] * 2, reward=[0.0, 0.0]
        ))  # fmt: skip
    with pytest.raises(LogError, match="no episodes"):
        dprl.evaluate(policy, log.take([]))


def test_cut_episodes():
    rooms = dprl.envs.rooms()
    log = rooms.sample(60, seed=1)
    short = dprl.Log(
        starts=log.starts, action=log.action, reward=log.reward, actions=log.actions,
        state=log.state, states=log.states, ended=np.where(np.arange(60) < 20, 2, 1),
    )  # fmt: skip
    other = rooms.sample(60, seed=2)
    policy = dprl.DPRLDiscrete(n_min=10, gamma=0.99).fit(other)
    with pytest.warns(CutWarning, match="20 of 60 episodes"):
        dprl.evaluate(policy, short, draws=10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(LogError, match="20 of 60 episodes were cut and would be left out"):
            dprl.evaluate(policy, short, cut="drop", draws=10)
        dropped = dprl.evaluate(
            policy, short, cut="drop-unrelated", draws=10, behavior=rooms.behavior
        )
        assert any("neither on its length nor on its outcome" in w for w in dropped.warnings)
        same = dprl.evaluate(policy, short.take(range(20, 60)), draws=10, behavior=rooms.behavior)
        assert dropped.to_dict()["estimates"] == same.to_dict()["estimates"]
        boot = dprl.evaluate(policy, short, cut="bootstrap", draws=10, behavior=rooms.behavior)
    assert boot.facts["steps"] == log.n_steps - 20
    own = dprl.DPRLDiscrete(n_min=10, gamma=0.99, cut="drop-unrelated").fit(other)
    again = dprl.evaluate(own, short, draws=10, behavior=rooms.behavior)
    assert again.to_dict()["estimates"] == dropped.to_dict()["estimates"]


def test_values_that_do_not_exist_are_left_out():
    """At gamma = 1 a plan may circle for ever in what was seen; the rest is still estimated."""
    path = [("x", "go", 1.0), ("y", "back", 1.0), ("x", "go", 1.0), ("y", "out", 0.0)]
    log = to_log([path] * 20)
    policy = dprl.CallablePolicy(
        lambda s: ["go" if x == "x" else "back" for x in s], actions=("back", "go", "out")
    )
    found = dprl.evaluate(policy, log, gamma=1, draws=10)
    assert np.isnan(found["DR"]["value"])
    assert any("DM, DR and WDR are left out" in w for w in found.warnings)


def test_cells_are_evaluated_as_the_labels_they_are():
    policy, log = dprl.gate(LEARNER, ward(1_500, 0), **UNIT), ward(700, 5)
    over = dprl.TablePolicy(
        **{f.name: getattr(policy, f.name) for f in dataclasses.fields(dprl.TablePolicy)}
    )
    cells = policy.cells_of(log.features)
    labelled = dataclasses.replace(
        log,
        features=None,
        feature_names=(),
        states=tuple(range(4)),
        state=np.where(cells < 0, 3, cells),
    )
    chance = np.tile([0.6, 0.4], (log.n_steps, 1))
    one, two = (
        dprl.evaluate(p, x, behavior=chance, values=False, draws=100)
        for p, x in ((policy, log), (over, labelled))
    )
    assert one.facts["followers"] == sum(
        said == log.actions[a] for said, a in zip(policy.act(log.features), log.action, strict=True)
    )
    for name in ("IS", "WIS", "PDIS", "WPDIS"):
        assert one[name] == two[name]


# -- what was once silent ------------------------------------------------------------------------


def test_a_group_that_went_against_once_is_no_follower():
    """Each patient: one stay that followed, one that did not."""
    train = to_log([[("s", "a", 0.0)]] * 30 + [[("s", "b", 1.0)]] * 20)
    policy = dprl.DPRLDiscrete(n_min=15, gamma=1.0).fit(train)
    rows = [[("s", "b" if i % 2 else "a", 1.0)] for i in range(40)]
    log = replace(to_log(rows), group=np.arange(40, dtype=np.int32) // 2, groups=tuple(range(20)))
    facts = dprl.evaluate(policy, log, draws=10).facts
    assert (facts["reached"], facts["followers"]) == (20, 0)


@pytest.mark.slow
def test_values_reach_to_the_end_of_long_episodes():
    """70 steps of reward 1 for the suggestion: fewer backups than steps would cut values off."""
    n, T = 24, 70
    took = np.repeat(np.arange(n) % 2, T)
    log = dprl.from_arrays(
        episode=np.repeat(np.arange(n), T), state=np.tile(np.arange(T, dtype=float), n)[:, None],
        feature_names=["t"], action=np.where(took == 1, "b", "a"), reward=took.astype(float),
    )  # fmt: skip
    always = dprl.CallablePolicy(lambda x: ["b"] * len(x), actions=("a", "b"))
    found = dprl.evaluate(always, log, gamma=1.0, draws=10)
    assert found["DM"]["value"] == pytest.approx(T, rel=0.02)


def test_what_was_not_on_offer_is_said():
    train = to_log([[("s", "a", 0.0)]] * 30 + [[("s", "b", 1.0)]] * 20)
    policy = dprl.DPRLDiscrete(n_min=15, gamma=1.0).fit(train)
    log = dprl.from_arrays(
        episode=np.arange(40), state=["s"] * 40, action=["a", "b"] * 20, reward=[0.0, 1.0] * 20,
        available=[["a"], ["a", "b"]] * 20,
    )  # fmt: skip
    found = dprl.evaluate(policy, log, draws=10)
    assert found.facts["not_offered"] == 0.5
    assert any("was not on offer" in line for line in found.warnings)


def test_bootstrapped_tails_are_said_to_be_usual_practice():
    rows = [[("s", "b", 1.0), ("s", "b", 1.0)]] * 20 + [[("s", "a", 0.0)]] * 30
    policy = dprl.DPRLDiscrete(n_min=15, gamma=0.9).fit(to_log(rows))
    cut = to_log([[("s", "a", 0.5), ("s", "b", 1.0)]] * 40, cut=[i % 4 == 0 for i in range(40)])
    found = dprl.evaluate(policy, cut, cut="bootstrap", draws=10)
    assert any("is put at usual practice" in line for line in found.warnings)


def test_where_nobody_follows_no_estimate_has_an_interval():
    """Ten steps, each suggestion taken once in four: what following all brings is a guess."""
    rng = np.random.default_rng(0)
    took = rng.random((200, 10)) < 0.25
    log = dprl.from_arrays(
        episode=np.repeat(np.arange(200), 10), state=["s"] * 2_000, reward=took.ravel() * 1.0,
        action=np.where(took.ravel(), "a", "b"),
    )  # fmt: skip
    policy = dprl.CallablePolicy(lambda s: np.full(len(s), "a"), actions=("a", "b"))
    judged = dprl.evaluate(policy, log, gamma=1.0, draws=50)
    assert judged.facts["followers"] == 0
    assert judged["DR"]["value"] > 15  # at most 10 is possible: the model guesses, and badly
    ends = [row[name] for row in judged.rows.values() for name in row if name.endswith(("_low", "_high"))]  # fmt: skip
    assert np.isnan(ends).all()
    assert np.isfinite(judged.behavior["low"])
    assert any("no estimate has an interval" in warning for warning in judged.warnings)


def test_weights_without_their_tail_are_warned_of_and_reach_as_far_as_values():
    # 280 decide once, by a fair coin; 120 decide ten times, and none of them takes the drug always,
    # though a thousandth should: the others have equal weights, and the effective size looks good
    once = ["drug", "wait"] * 140
    often = (["drug", "wait"] * 5) * 120
    log = dprl.from_arrays(
        episode=[*range(280), *np.repeat(np.arange(280, 400), 10)],
        state=["ill"] * 1480,
        action=once + often,
        reward=[1.0] * 280 + ([0.0] * 9 + [1.0]) * 120,
    )
    always = dprl.CallablePolicy(lambda s: ["drug"] * len(s), ["drug", "wait"], trained_on=[])
    judged = dprl.evaluate(always, log, gamma=1.0, draws=50)
    assert judged.facts["ess_differs"] > 100
    assert judged["IS"]["value_high"] == judged[judged.headline]["value_high"] == 1.0  # the truth
    alone = dprl.evaluate(always, log, gamma=1.0, draws=50, values=False)
    assert alone["IS"]["value_high"] < 0.9
    assert any("mean weight is 0.70 where 1 is expected" in words for words in judged.warnings)


def test_a_behaviour_in_another_order_is_warned_of():
    rng = np.random.default_rng(0)
    ill = rng.random(600) < 0.7
    drug = rng.random(600) < np.where(ill, 0.8, 0.3)
    log = dprl.from_arrays(
        episode=range(600),
        state=np.where(ill, "ill", "well"),
        action=np.where(drug, "drug", "wait"),
        reward=drug.astype(float),
    )
    always = dprl.CallablePolicy(lambda s: ["drug"] * len(s), log.actions, trained_on=[])
    right = np.array([[0.8, 0.2], [0.3, 0.7]])
    warned = [
        [w for w in dprl.evaluate(always, log, gamma=1.0, behavior=b, draws=20).warnings
         if "in the order of log.states" in w]
        for b in (right, right[::-1], right[:, ::-1])
    ]  # fmt: skip
    assert [len(words) for words in warned] == [0, 1, 1]
