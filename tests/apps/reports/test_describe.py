"""Changes in words and numbers: against a slow reading of what each number means."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import reference
from test_gate_cells import LEARNER, UNIT, ward

import dprl
from conftest import random_episodes, to_log
from dprl.apps.reports.changes import _check, describe_changes
from dprl.evidence.neighbors.engine import Engine
from dprl.policies.explain import reason, usual_words

RAW = dprl.Metric(scale="none")


@pytest.fixture(scope="module")
def walker():
    world = dprl.envs.PointMass()
    learner = dprl.DPRLContinuous(
        n_min=8, radius=0.08, gamma=0.97, metric=RAW, plan=True, cut="terminal"
    )
    return learner.fit(world.sample(200, seed=1)), world.sample(150, seed=2)


@pytest.fixture(scope="module")
def care():
    world = dprl.envs.care_pathway()
    policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(world.sample(1000, seed=1))
    return policy, world.sample(600, seed=2)


def firsts(log, inside):
    """(action, G at gamma) of the first step inside of every group, read step by step."""
    seen = {}
    for e in range(log.n_episodes):
        for t in range(log.starts[e], log.starts[e + 1]):
            if inside[t] and log.group[e] not in seen:
                seen[log.group[e]] = (t, log.starts[e + 1])
    return list(seen.values())


def slow_check(log, inside, suggested, gamma):
    x, y = [], []
    for t, end in firsts(log, inside):
        G = sum(gamma ** (k - t) * log.reward[k] for k in range(t, end))
        (x if log.actions[log.action[t]] == suggested else y).append(G)
    if not x or not y:
        return len(x), len(y), None, None, None
    weight = len(y) / (len(x) + len(y))
    low, high = (None if end is None else weight * end for end in reference.near(x, y))
    return len(x), len(y), weight * (np.mean(x) - np.mean(y)), low, high


def agree(check, slow):
    assert (check.took, check.others) == slow[:2]
    if slow[2] is not None:
        weight = check.others / (check.took + check.others)
        assert weight * (check.got - check.got_others) == pytest.approx(slow[2], abs=1e-9)
    for mine, other in zip((check.advantage, check.low, check.high), slow[2:], strict=True):
        assert mine == (None if other is None else pytest.approx(other, abs=1e-9))


@pytest.mark.parametrize("seed", range(8))
def test_states_against_a_slow_reading(seed):
    policy = dprl.DPRLDiscrete(n_min=2, gamma=0.9).fit(to_log(random_episodes(seed)))
    log = to_log(random_episodes(seed))
    log = replace(log, group=np.arange(log.n_episodes) // 2,
                  groups=tuple(range((log.n_episodes + 1) // 2)))  # fmt: skip
    found = describe_changes(policy, log)
    rows = {r["state"]: r for r in policy.changes()}
    assert {c.state for c in found.changes} == set(rows)
    for c in found.changes:
        inside = np.array([log.states[s] == c.state for s in log.state])
        agree(c.check, slow_check(log, inside, c.suggested, 0.9))
        row, s = rows[c.state], policy.states.index(c.state)
        assert (c.steps, c.met) == (inside.sum(), len(firsts(log, inside)))
        assert (c.usual, c.suggested, c.episodes) == (
            row["usual"],
            row["suggested"],
            policy.m[s, policy.choice[s]],
        )
        assert c.value_first - c.value_usual == pytest.approx(c.advantage)
        assert c.advantage == row["advantage"]
        assert c.planned == (None if row["planned"] == row["value"] else row["planned"])
        assert dict(c.shares) == {
            policy.actions[a]: policy.m[s, a] / policy.m[s].sum()
            for a in range(len(policy.actions))
            if policy.m[s, a]
        }
        assert [v for _, v in c.shares] == sorted((v for _, v in c.shares), reverse=True)
    assert sum(found.steps.values()) == pytest.approx(1)


def test_regions_against_a_slow_reading(walker):
    policy, log = walker
    found, here = describe_changes(policy, log), policy.at(log.features)
    made = [
        (usual_words(here, i), here.actions[here.choice[i]]) if here.kind[i] == 2 else None
        for i in range(log.n_steps)
    ]
    assert found.steps["changed"] == pytest.approx((here.kind == 2).mean())
    covered = 0
    for c in found.changes:
        inside = np.ones(log.n_steps, bool)
        for name, low, high in c.region.ranges:
            column = log.features[:, log.feature_names.index(name)]
            inside &= (column >= low) & (column < high)
        mine = inside & np.array([m == (c.usual, c.suggested) for m in made])
        assert c.steps == mine.sum() > 0
        assert c.met == len(firsts(log, mine))
        assert c.purity == mine.sum() / inside.sum() >= 2 / 3
        assert c.deferred == pytest.approx((here.kind[inside] == 0).mean())
        assert c.confirmed == pytest.approx((here.kind[inside] == 1).mean())
        assert c.otherwise == pytest.approx(
            (inside & (here.kind == 2) & ~mine).sum() / inside.sum()
        )
        assert c.purity + c.deferred + c.confirmed + c.otherwise == pytest.approx(1)
        agree(c.check, slow_check(log, inside, c.suggested, 0.97))
        typical = policy.at([v for _, v in c.typical])
        assert typical.m[0, typical.choice[0]] == c.episodes
        assert typical.m[0].sum() == c.episodes + c.others
        for name, low, high in c.region.ranges:
            assert f"{name} {low:g} to under {high:g}" in c.situation
        covered += c.steps
    assert len(found.changes) <= 12
    assert found.changed == (here.kind == 2).sum() == covered + found.uncovered
    for usual, suggested, steps in found.scattered:
        held = sum(c.steps for c in found.changes if (c.usual, c.suggested) == (usual, suggested))
        assert steps + held == sum(m == (usual, suggested) for m in made)
    assert covered > 0.7 * found.changed
    low = [math.inf if c.low is None else -c.low for c in found.changes]
    assert low == sorted(low)


def test_every_step_is_asked_about_once(walker, care, monkeypatch):
    policy, log = walker
    asked = []
    evidence = Engine.evidence

    def counting(self, z, *args, **kwargs):
        asked.append(len(z))
        return evidence(self, z, *args, **kwargs)

    monkeypatch.setattr(Engine, "evidence", counting)
    described = describe_changes(policy, log)
    assert described.changes
    engines = 2  # returns, and the plan
    assert sum(asked) <= engines * log.n_steps
    assert describe_changes(*care).scattered == ()


def scattered_world(n=3000, seed=0):
    """What is done changes from place to place, without a pattern; features to spare."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 14, size=(n, 3)).astype(float)
    place = (x @ [1.0, 31.0, 7.0]).astype(int) % 4
    b = rng.random(n) < 0.35
    good = np.where(place == 0, b, ~b)
    return dprl.from_arrays(
        episode=range(n), state=x.tolist(), action=np.where(b, "b", "a").tolist(),
        reward=good.astype(float).tolist(),
    )  # fmt: skip


def test_changes_that_no_region_tells_are_counted_not_shown():
    log = scattered_world()
    policy = dprl.DPRLContinuous(n_min=2, radius=0.5, gamma=1.0, metric=RAW).fit(log)
    described = describe_changes(policy, log)
    assert described.uncovered > 50
    assert described.changed == (policy.at(log.features).kind == 2).sum()
    assert described.uncovered + sum(c.steps for c in described.changes) == described.changed
    assert described.uncovered > 0.9 * described.changed


def test_equal_input_equal_words(walker, care):
    for policy, log in (walker, care):
        assert describe_changes(policy, log).changes == describe_changes(policy, log).changes


def test_past_cases_are_first_steps_on_the_right_side(walker, care):
    for policy, log in (walker, care):
        found = describe_changes(policy, log)
        for c in found.changes[:5]:
            took, others = found.cases(c)
            assert all(case.action == c.suggested for case in took)
            assert all(case.action != c.suggested for case in others)
            assert len(took) == min(5, c.check.took)
            assert len(others) == min(5, c.check.others)
            labels = [case.episode for case in (*took, *others)]
            assert len(set(labels)) == len(labels)
            assert set(labels) <= set(log.episodes)


def test_a_case_tells_what_came_next():
    episodes = [[("s", "b", 0.0), ("t", "a", 1.0)]] * 5 + [[("s", "a", 0.0)] * 6] * 5
    policy = dprl.DPRLDiscrete(n_min=2, gamma=0.5).fit(to_log(episodes))
    found = describe_changes(policy, to_log(episodes))
    change = next(c for c in found.changes if c.state == "s")
    took, others = found.cases(change)
    assert (took[0].after, took[0].outcome) == ("t: a", 0.5)
    assert others[0].after == "s: a → s: a → s: a → … 2 more"
    assert found.trained


def test_cut_episodes_are_said():
    episodes = [[("s", "b", 1.0)]] * 5 + [[("s", "a", 0.0)]] * 6
    policy = dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(to_log(episodes))
    log = to_log(episodes, cut=[True] + [False] * 10)
    found = describe_changes(policy, log)
    assert "1 of 11 episodes" in found.notes[0]
    assert found.log_digest == log.digest()
    assert sum(case.cut for side in found.cases(found.changes[0]) for case in side) == 1
    with pytest.raises(dprl.LogError, match="1 of 11 episodes were cut and would be left out"):
        describe_changes(replace(policy, parameters={**policy.parameters, "cut": "drop"}), log)
    dropped = describe_changes(
        replace(policy, parameters={**policy.parameters, "cut": "drop-unrelated"}), log
    )
    assert dropped.notes == (
        "1 of 11 episodes were cut and are left out: every number here is of the other 10, and it "
        "is declared that whether an episode was cut depends neither on its length nor on its "
        "outcome.",
    )
    assert dropped.changes[0].check.took == 4


def test_weights_are_for_means_and_not_for_single_cases():
    """Half of those who go on are cut, so the win that is seen after that counts twice."""
    episodes = [[("s", "b", 0.0), ("t", "a", 1.0)]] * 10 + [[("s", "b", 0.0)]] * 10
    episodes += [[("s", "a", 0.5)]] * 20
    log = to_log(episodes, cut=[False] * 10 + [True] * 10 + [False] * 20)
    policy = dprl.DPRLDiscrete(n_min=2, gamma=1.0, plan=False, cut="ipcw").fit(log)
    found = describe_changes(policy, log)
    (change,) = found.changes
    assert (change.suggested, change.check.took) == ("b", 20)
    assert change.check.advantage == pytest.approx(0.25, abs=0.1)  # half of 1 - .5
    assert any("inverse-probability-of-censoring" in note for note in found.notes)
    took, _ = found.cases(change)
    assert {(case.outcome, case.cut) for case in took} <= {(1.0, False), (0.0, True)}


def test_states_and_actions_the_policy_never_saw(care):
    policy, _ = care
    log = to_log([[("fever", "prayer", 1.0), ("elsewhere", "watch", 0.0)]] * 3)
    found = describe_changes(policy, log)
    fever = next(c for c in found.changes if c.state == "fever")
    assert (fever.check.took, fever.check.others, fever.check.advantage) == (0, 3, None)
    assert found.steps["deferred"] == 0.5


def test_another_kind_of_log_is_refused(walker, care):
    with pytest.raises(dprl.LogError):
        describe_changes(walker[0], care[1])
    with pytest.raises(dprl.LogError):
        describe_changes(care[0], walker[1])


def test_keys_do_not_depend_on_the_log_for_labels(care):
    policy, log = care
    other = dprl.envs.care_pathway().sample(50, seed=9)
    keys = {c.key for c in describe_changes(policy, log).changes}
    assert keys == {c.key for c in describe_changes(policy, other).changes}
    assert len(keys) == len(policy.changes())


# -- cells, certificates, silence -----------------------------------------------------------------


@pytest.fixture(scope="module")
def cells():
    return dprl.gate(LEARNER, ward(1_500, 0), **UNIT), ward(700, 5)


def test_cells_are_changes_of_their_own(cells):
    policy, log = cells
    found = describe_changes(policy, log)
    (change,) = found.changes
    inside = policy.cells_of(log.features) == change.state
    agree(change.check, slow_check(log, inside, "b", 1.0))
    assert (change.steps, change.met, change.region) == (inside.sum(), inside.sum(), None)
    assert change.situation.startswith(f"cell {change.state}: all states nearest to x = ")
    assert change.situation.endswith("; in this log x -0.4 to under 0.4")
    assert [name for name, _ in change.typical] == ["x"]  # noise has no weight
    took, others = found.cases(change)
    assert {c.action for c in took} == {"b"}
    assert {c.action for c in others} == {"a"}
    assert found.seen == ""
    with pytest.raises(dprl.LogError):
        describe_changes(policy, dprl.envs.care_pathway().sample(10, seed=1))


def test_a_cell_the_log_never_meets_is_told_by_its_centre(cells):
    policy, log = cells
    away = log.take(np.flatnonzero(log.features[:, 0] > 5))
    (change,) = describe_changes(policy, away).changes
    assert (change.steps, change.check.took, change.check.got) == (0, 0, None)
    assert change.situation.startswith(f"cell {change.state}: all states nearest to x = ")


def slow_silence(policy, log):
    """Share of steps by reason, one step at a time."""
    counts = {}
    for row in range(log.n_steps):
        state = log.features[row] if log.state is None else log.states[log.state[row]]
        said = policy.explain(state)
        if said.kind == "defer":
            counts[said.reason] = counts.get(said.reason, 0) + 1
    return {why: n / log.n_steps for why, n in counts.items()}


@pytest.mark.slow
def test_silence_is_counted_by_reason(walker, care, cells):
    policy, log = care
    unknown = to_log([[("elsewhere", "watch", 0.0), ("fever", "watch", 1.0)]])
    for data in (log.take(np.arange(40)), unknown):
        assert dict(describe_changes(policy, data).silent) == pytest.approx(
            slow_silence(policy, data)
        )
    policy, log = walker
    few = log.take(np.arange(6))
    away = 9.0 * (np.arange(few.n_steps) % 2)[:, None]  # every second step lies elsewhere
    far = replace(few, features=few.features + away)
    for data in (few, far):
        slow = {
            why.replace(" of it.", "."): share for why, share in slow_silence(policy, data).items()
        }
        assert dict(describe_changes(policy, data).silent) == pytest.approx(slow)
    policy, log = cells
    data = replace(log, features=log.features * 1.05)
    slow = {}
    for reason_, share in slow_silence(policy, data).items():
        why = reason_.split(": ", 1)[-1].replace("It is farther", "Farther")
        slow[why] = slow.get(why, 0) + share
    found = describe_changes(policy, data)
    assert dict(found.silent) == pytest.approx(slow)
    assert len(slow) > 1
    assert sum(share for _, share in found.silent) == pytest.approx(found.steps["deferred"])


@pytest.mark.parametrize("seed", range(8))
def test_a_reason_by_the_conditions_of_the_rule_one_by_one(seed):
    log = to_log(random_episodes(seed))
    policy = dprl.DPRLDiscrete(n_min=3, gamma=0.9).fit(log)
    for s in np.flatnonzero(policy.choice < 0):
        enough = [a for a in range(len(policy.actions)) if policy.n[s, a] >= 3]
        compared = [a for a in enough if policy.m[s].sum() - policy.m[s, a] >= 3]
        word = "nothing to compare" if enough else "No action was taken"
        word = "No action with enough" if compared else word
        assert word in reason(policy.decisions, s)


def test_a_log_seen_in_part_is_said_to_be(care):
    log = dprl.envs.care_pathway().sample(600, seed=4)
    half, rest = log.split(0.5, seed=0)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(half)
    assert not describe_changes(policy, rest).trained
    assert "% of a sample of groups is also in the log" in describe_changes(policy, log).seen
    assert describe_changes(policy, half).seen == "this is the log the policy was learned from"


def test_arms_with_chances_of_their_own_are_no_choice():
    """Three arms at .5, .2 and .3 for all: whoever avoids one was not chosen by that."""
    rng = np.random.default_rng(0)
    n, chances = 600, np.array([0.5, 0.2, 0.3])
    arm = rng.choice(3, n, p=chances)
    named = {"episode": range(n), "state": ["s"] * n, "action": np.array(["a", "b", "c"])[arm]}
    log = dprl.from_arrays(**named, reward=rng.random(n), propensity=chances[arm])
    check = _check(log, np.arange(n), "a", log.reward, avoid=True)
    plain = dprl.from_arrays(**named, reward=log.reward)
    assert check == _check(plain, np.arange(n), "a", log.reward, avoid=True)
    mixed = np.where(np.arange(n) % 2, chances[arm], 0.9 * chances[arm])
    log = dprl.from_arrays(**named, reward=log.reward, propensity=mixed)
    assert _check(log, np.arange(n), "a", log.reward, avoid=True).unfair
    assert not _check(log, np.arange(n), "a", log.reward, avoid=False).unfair
