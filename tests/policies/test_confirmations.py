"""Always doing what is usual is a change of what is done: confirmations are never called nothing."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from test_report import flat

import dprl
from conftest import to_log
from dprl.apps.reports._report import report
from dprl.apps.reports.changes import describe_changes
from dprl.planning.finite_mdp import FiniteMDP
from dprl.policies.stochastic import StochasticPolicy

LAKE = ["SFFF", "FHFH", "FFFH", "HFFG"]

WHY = " (a confirmation differs where practice takes the usual action not always)"


def lake(best=0.58, gamma=0.99):
    """Ice of 4 x 4 with holes, where every step slips; practice takes the best action mostly."""
    cells = [(row, column) for row in range(4) for column in range(4)]
    ice = [cell for cell in cells if LAKE[cell[0]][cell[1]] in "SF"]
    place = {cell: i for i, cell in enumerate(ice)}
    ways = [(-1, 0), (0, 1), (1, 0), (0, -1)]
    S, A = len(ice), 4
    P, R = np.zeros((S, A, S)), np.zeros((S, A))
    for (row, column), a in itertools.product(ice, range(A)):
        for slip in (-1, 0, 1):
            down, right = ways[(a + slip) % 4]
            to = (min(max(row + down, 0), 3), min(max(column + right, 0), 3))
            if to in place:
                P[place[row, column], a, place[to]] += 1 / 3
            R[place[row, column], a] += (LAKE[to[0]][to[1]] == "G") / 3

    def world(behavior):
        return FiniteMDP(
            "lake", tuple(f"{r}{c}" for r, c in ice), ("up", "right", "down", "left"),
            sparse.csr_array(P.reshape(S * A, S)), R, R, np.eye(S)[place[0, 0]], behavior, gamma,
            max_steps=200,
        )  # fmt: skip

    _, wise = world(np.full((S, A), 1 / A)).optimal
    behavior = np.full((S, A), (1 - best) / (A - 1))
    behavior[np.arange(S), wise] = best
    return world(behavior), wise


@pytest.fixture(scope="module")
def confirmed():
    """The world, a policy that confirms the usual (best) action everywhere, and a held-out log."""
    mdp, wise = lake()
    log = mdp.sample(4_000, seed=1)
    policy = dprl.DPRLDiscrete(n_min=1, gamma=0.99, cut="terminal").fit(log)
    choice = np.full(len(policy.states), -1, np.int32)
    for state, a in zip(mdp.states, wise, strict=True):
        choice[policy.states.index(state)] = policy.actions.index(mdp.actions[a])
    allowed = policy.allowed.copy()
    allowed[np.arange(len(choice)), choice] = True
    return mdp, replace(policy, choice=choice, allowed=allowed), mdp.sample(600, seed=2)


def test_what_is_usual_done_always_is_worth_much(confirmed):
    mdp, policy, _ = confirmed
    assert mdp.value() < 0.1
    assert mdp.value(policy) > 0.5


def test_a_policy_of_confirmations_says_that_it_acts(confirmed):
    _, policy, _ = confirmed
    s = policy.summary()
    assert (s["changes"], s["confirmations"]) == (0, len(policy.states))
    assert s["steps_spoken"] == s["steps_differ"] == 1.0
    assert str(policy) == (
        "No change of what is usual: always the usual action, where it speaks.\n11 states · 11 decision points · 0 changes · 11 confirmations · "
        "acts on 100.0 % of steps, differs from practice on 100.0 %" + WHY
    )
    assert "changes nothing" not in policy._repr_html_()
    assert "It is not silent: at 11 decision points" in str(policy.changes())
    assert "Always doing it is a change of what is done" in flat(policy._repr_html_())


def test_evaluation_counts_where_probabilities_differ(confirmed):
    _, policy, log = confirmed
    found = dprl.evaluate(policy, log, draws=50)
    facts = found.facts
    assert facts["changed"] == facts["reached_change"] == facts["ess_change"] == 0
    assert facts["confirmed"] == facts["differs"] == facts["spoken"] == 1
    assert facts["reached"] == log.n_episodes
    said = dict(zip(policy.states, policy.act(policy.states), strict=True))
    followers = sum(
        all(
            said[log.states[s]] == log.actions[a]
            for s, a in zip(log.state[b:e], log.action[b:e], strict=True)
        )
        for b, e in itertools.pairwise(log.starts)
    )
    assert facts["followers"] == followers
    assert facts["ess_differs"] == facts["ess"] < 30
    assert any(
        "reach a step at which the policy differs from practice" in w for w in found.warnings
    )
    text = found.details()
    assert "differ from practice at 100.0 % of steps" in text
    assert "reaches a change" not in text
    assert "says nothing about" not in text
    assert json.loads(found.to_json())["facts"]["differs"] == 1


def test_pages_say_that_confirmations_act(confirmed, tmp_path):
    _, policy, log = confirmed
    written = report(policy, log, tmp_path / "r.html", draws=50, values=False)
    words = flat((tmp_path / "r.html").read_text(encoding="utf-8"))
    done = dprl.evaluate(policy, log, draws=10, values=False).facts["suggested_done"]
    for silence in ("changes nothing", "Nothing in this log", "reach a change"):
        assert silence not in words
    assert f"in {round(100 * (1 - done))} % of all decisions something else was done" in words
    assert written.confirmed == 1.0
    assert written.not_done == pytest.approx(1 - done)
    assert "0 changes" in str(written)
    assert "something else was done" in str(written)
    assert describe_changes(policy, log).not_done == written.not_done


def test_where_practice_is_that_already_nothing_differs():
    """In x everybody does a already; in y a is done in 3 of 4."""
    rows = [[("x", "a", 0.0), ("y", "a" if i % 4 else "b", float(i % 4 > 0))] for i in range(80)]
    log = to_log(rows)
    policy = dprl.DPRLDiscrete(n_min=10, gamma=1.0, contrast=False).fit(log)
    assert policy.act(["x", "y"]) == ["a", "a"]
    s = policy.summary()
    assert (s["confirmations"], s["steps_spoken"], s["steps_differ"]) == (2, 1.0, 0.5)
    assert str(policy).endswith("acts on 100.0 % of steps, differs from practice on 50.0 %" + WHY)
    facts = dprl.evaluate(policy, log, draws=10, allow_seen=True).facts
    assert (facts["spoken"], facts["differs"], facts["changed"]) == (1.0, 0.5, 0.0)
    assert (facts["reached"], facts["followers"]) == (80, 60)
    alike = dprl.CallablePolicy(lambda x: ["a"] * len(x), actions=("a", "b"))
    facts = dprl.evaluate(alike, log, gamma=1, draws=10).facts
    assert (facts["spoken"], facts["differs"], facts["reached"]) == (1.0, 0.5, 80)


def test_a_policy_that_says_what_everybody_does_differs_nowhere():
    log = to_log([[("x", "a", 1.0)]] * 30)
    policy = dprl.DPRLDiscrete(n_min=5, gamma=1.0, contrast=False).fit(
        to_log([[("x", "a", 1.0)]] * 9)
    )
    found = dprl.evaluate(policy, log, draws=10)
    assert (found.facts["spoken"], found.facts["differs"], found.facts["reached"]) == (1, 0, 0)
    assert any("practice does always already" in line for line in found.warnings)


def test_rivals_differ_where_their_probabilities_do():
    """π is practice in x, to a tolerance, and not in y, where it has the same favourite."""
    rows = [
        [("x", "a" if i % 2 else "b", 0.0), ("y", "a" if i % 5 else "b", 0.0)] for i in range(100)
    ]
    log = to_log(rows)
    for off, differs in ((0.0, 0.5), (0.009, 0.5), (0.02, 1.0)):
        rival = StochasticPolicy(
            states=("x", "y"), actions=("a", "b"), parameters={}, provenance={},
            pi=np.array([[0.5 + off, 0.5 - off], [0.6, 0.4]]),
        )  # fmt: skip
        for practice in (None, np.array([[0.5, 0.5], [0.8, 0.2]])):
            facts = dprl.evaluate(rival, log, gamma=1, draws=10, behavior=practice).facts
            assert facts["differs"] == differs
            assert facts["reached"] == facts["followers"] == 100  # nobody does what π never does
    assert "0.01" in dprl.evaluate(rival, log, gamma=1, draws=10).details()


@pytest.mark.slow
def test_cells_and_neighbours_count_them_too():
    """One cell and one ball: the usual action, done in 3 of 4, confirmed."""
    took = np.arange(80) % 4 > 0
    log = dprl.from_arrays(
        episode=np.arange(80), state=np.linspace(0, 1, 80)[:, None], feature_names=["x"],
        action=np.where(took, "a", "b"), reward=took.astype(float),
    )  # fmt: skip
    learner = dprl.DPRLContinuous(
        n_min=5, radius=2.0, gamma=1.0, metric=dprl.Metric(scale="none"), plan=False
    )
    policy = learner.fit(log)
    s = policy.summary()
    assert (s["changes"], s["steps_confirmed"], s["steps_differ"]) == (0, 1.0, 1.0)
    assert str(policy).endswith("acts on 100.0 % of steps, differs from practice on 100.0 %" + WHY)
    assert "80 confirmations" in str(policy)
    facts = dprl.evaluate(policy, log, draws=10, allow_seen=True, values=False).facts
    assert (facts["changed"], facts["differs"], facts["reached"]) == (0, 1, 80)
    gated = dprl.gate(learner, log, delta=0.2, value_range=(0, 1))
    assert gated.summary()["changes"] == 0
    assert gated.summary()["confirmations"] == 1
    facts = dprl.evaluate(gated, log, draws=10, allow_seen=True, values=False).facts
    assert facts["differs"] == facts["spoken"] > 0 == facts["changed"]


def test_a_sweep_can_pick_what_confirms():
    mdp, _ = lake(best=0.7)
    found = dprl.sweep(
        dprl.DPRLDiscrete(n_min=1, gamma=0.99, cut="terminal"), mdp.sample(3_000, seed=1),
        mdp.sample(600, seed=2), n_min=[100], draws=100,
    )  # fmt: skip
    row = found.rows[0]
    assert row["differs"] >= row["changed"]
    assert 0 < row["ess_differs"] < row["reached"]
    assert row["ess_differs"] == found.evaluations[0].facts["ess_differs"]
    assert row["reached"] == found.evaluations[0].facts["reached"]
