"""A limited policy says what its policy says, or nothing, everywhere."""

from __future__ import annotations

import functools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_gate_cells import LEARNER, UNIT, ward

import dprl
from conftest import random_episodes, to_log
from dprl.apps.reports.changes import describe_changes
from dprl.policies.regions import Range, Region
from dprl.policies.table import limit_regions, limit_states

RAW = dprl.Metric(scale="none")
WORLD = dprl.envs.PointMass()


@functools.cache
def walker():
    learner = dprl.DPRLContinuous(
        n_min=8, radius=0.08, gamma=0.97, metric=RAW, plan=True, cut="terminal"
    )
    return learner.fit(WORLD.sample(150, seed=1))


@functools.cache
def changes():
    return describe_changes(walker(), WORLD.sample(100, seed=2)).changes


@given(st.integers(0, 60), st.data())
def test_states(seed, data):
    policy = dprl.DPRLDiscrete(n_min=2, gamma=0.9).fit(to_log(random_episodes(seed)))
    changed = list(policy.changes().columns["state"]) if len(policy.changes()) else []
    kept = data.draw(st.lists(st.sampled_from(changed), unique=True)) if changed else []
    limited = limit_states(policy, kept, audit="x")
    for s, state in enumerate(policy.states):
        answer = limited.act(state)
        assert answer is (dprl.DEFER if state not in kept else policy.act(state))
        assert limited.kind[s] == (2 if state in kept else 0)
    assert np.array_equal(limited.allowed, policy.allowed)
    assert limited.provenance["approved"] == {"policy": policy.digest(), "audit": "x"}
    assert limited.provenance["log"] == policy.provenance["log"]


@pytest.mark.slow
def test_a_part_of_a_plan_tells_no_plan(tmp_path):
    words = "if all suggestions after it are followed too"
    rooms = dprl.envs.rooms()  # where states are met again, so that Q is no mean of first visits
    log, later = rooms.sample(200, seed=1), rooms.sample(100, seed=2)
    policy = dprl.DPRLDiscrete(n_min=10, gamma=0.9, cut="terminal").fit(log)
    alone = dprl.DPRLDiscrete(n_min=10, gamma=0.9, cut="terminal", plan=False).fit(log)
    one = limit_states(policy, policy.changes()["state"])
    for shown, told in ((policy, True), (one, False), (alone, False)):
        assert all((c.planned is not None) == told for c in describe_changes(shown, later).changes)
        dprl.report(shown, later, tmp_path / "r.html", draws=20)
        assert (words in (tmp_path / "r.html").read_text()) == told
    part = limit_regions(walker(), [c.region for c in changes()[:3]]).training
    assert not np.array_equal(walker().training.planned, part.planned, equal_nan=True)
    assert np.array_equal(part.planned[part.allowed], part.Q[part.allowed])


def places(seed=0, n=4000):
    rng = np.random.default_rng(seed)
    edges = [v for c in changes() for r in c.region.ranges for v in (r.low, r.high)]
    x = rng.uniform(-0.1, 1.1, size=(n, 2))
    on_edge = rng.choice(edges, size=(n // 4, 2))
    x[: n // 4] = np.where(rng.random((n // 4, 2)) < 0.5, on_edge, x[: n // 4])
    return np.concatenate([x, WORLD.sample(60, seed=3).features])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_regions_are_a_subset_everywhere(seed):
    rng = np.random.default_rng(seed)
    kept = [c.region for c in changes() if rng.random() < 0.5]
    limited, x = limit_regions(walker(), kept), places(seed)
    whole, part = walker().at(x), limited.at(x)
    speaks = part.choice >= 0
    assert speaks.any()
    assert (part.choice[speaks] == whole.choice[speaks]).all()
    assert (whole.kind[speaks] == 2).all()
    # And by hand, one state at a time: it speaks exactly where an approved region holds it.
    from dprl.policies.explain import usual_words

    for i in range(0, len(x), 7):
        inside = [
            r for r in kept
            if whole.kind[i] == 2
            and r.usual == usual_words(whole, i)
            and r.suggested == whole.actions[whole.choice[i]]
            and all(low <= x[i, walker().feature_names.index(f)] < high for f, low, high in r.ranges)
        ]  # fmt: skip
        assert (part.choice[i] >= 0) == bool(inside)
        assert (limited.act(x[i]) is dprl.DEFER) == (not inside)


@pytest.mark.slow
def test_a_batch_and_a_single_state_agree_and_the_file_keeps_it(tmp_path):
    limited = limit_regions(walker(), [c.region for c in changes()[::2]], audit="x")
    limited.save(tmp_path / "a.dprl")
    back, x = dprl.load(tmp_path / "a.dprl"), places(5, 300)
    assert back.digest() == limited.digest() != walker().digest()
    assert back.act(x) == [limited.act(row) for row in x]
    assert back.provenance["approved"] == {"policy": walker().digest(), "audit": "x"}


def test_nothing_approved_is_a_policy_that_defers_everywhere():
    assert set(limit_regions(walker(), []).act(places(1, 200))) == {dprl.DEFER}


def test_approving_twice_only_narrows():
    one = limit_regions(walker(), [c.region for c in changes()[:6]])
    again = limit_regions(one, [c.region for c in changes()[3:9]])
    both = limit_regions(walker(), [c.region for c in changes()[3:6]])
    x = places(2)
    assert again.act(x) == both.act(x)


def test_a_limited_policy_says_why_it_is_silent():
    policy = dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(
        to_log([[("s", "b", 1.0)]] * 5 + [[("s", "a", 0.0)]] * 6)
    )
    assert (
        "not among the changes that were approved" in limit_states(policy, []).explain("s").reason
    )


def test_a_change_that_was_refused_is_not_called_allowed():
    log = to_log([[("s", "b", 1.0)]] * 3 + [[("s", "a", 0.0)]] * 4)
    policy = dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(log)
    told = dict(zip(*(policy.explain("s").actions[n] for n in ("action", "verdict")), strict=True))
    assert told["b"] == "suggested"
    refused = limit_states(policy, [])
    why = refused.explain("s")
    told = dict(zip(why.actions["action"], why.actions["verdict"], strict=True))
    assert told["b"] == "allowed by the evidence, not approved"
    assert "allowed" not in told.values()
    from dprl.apps.serve.answers import Answers

    rows = {row["action"]: row["verdict"] for row in Answers(refused).explain("s")["actions"]}
    assert rows == told


def test_only_changes_can_be_kept():
    policy = dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(
        to_log([[("s", "b", 1.0)]] * 5 + [[("s", "a", 0.0)]] * 6 + [[("t", "a", 0.0)]])
    )
    for state in ("t", "nowhere"):
        with pytest.raises(dprl.ParameterError):
            limit_states(policy, [state])


def test_a_forged_region_is_refused(tmp_path):
    bad = [[{"usual": "up", "suggested": "down", "ranges": [["nothing", 0.0, 1.0]]}]]
    with pytest.raises(dprl.PolicyError, match="region"):
        replace(walker(), parameters={**walker().parameters, "approved": bad})


def test_a_feature_without_weight_cannot_limit():
    log = WORLD.sample(60, seed=1)
    policy = dprl.DPRLContinuous(
        n_min=5, radius=0.2, gamma=0.97, cut="terminal",
        metric=dprl.Metric(scale="none", weights={"y": 0.0}),
    ).fit(log)  # fmt: skip
    with pytest.raises(dprl.PolicyError, match="region"):
        limit_regions(policy, [Region("up", "down", (Range("y", 0.0, 1.0),))])
    assert all(
        r.feature == "x" for c in describe_changes(policy, log).changes for r in c.region.ranges
    )


@pytest.fixture(scope="module")
def gated():
    log = dprl.envs.care_pathway().sample(8000, seed=1)
    learner = dprl.DPRLDiscrete(n_min=50, gamma=1.0)
    return dprl.gate(learner, log, delta=0.05, value_range=(0, 1)), log


def test_the_certificate_is_restated_never_copied(gated, tmp_path):
    policy, _ = gated
    assert set(policy.certificate.issued) == {"fever", "worse"}
    part = limit_states(policy, ["worse"])
    assert part.certificate == policy.certificate.restricted(["worse"])
    assert part.certificate.issued == {"worse": policy.act("worse")}
    assert part.certificate.gain == 0.0
    assert "Restated for 1 of 2" in part.certificate.notes[-1]
    part.save(tmp_path / "part.dprl")
    assert dprl.load(tmp_path / "part.dprl").certificate == part.certificate
    assert limit_states(policy, ["worse", "fever"]).certificate == policy.certificate
    assert limit_states(policy, []).certificate.vacuous
    assert limit_states(replace(policy, certificate=None), ["worse"]).certificate is None
    assert "not among the changes that were approved" in part.explain("fever").reason


def test_a_cell_is_kept_whole_or_not_at_all(tmp_path):
    policy = dprl.gate(LEARNER, ward(1_500, 0), **UNIT)
    (change,) = describe_changes(policy, ward(300, 7)).changes
    x = np.stack((np.linspace(-3, 23, 400), np.zeros(400)), axis=1)
    kept, none = limit_states(policy, [change.state]), limit_states(policy, [])
    assert kept.act(x) == policy.act(x)
    assert kept.certificate == policy.certificate
    assert set(none.act(x)) == {dprl.DEFER}
    assert none.certificate.vacuous
    none.save(tmp_path / "none.dprl")
    assert dprl.load(tmp_path / "none.dprl").digest() == none.digest()


def test_regions_survive_json():
    region = changes()[0].region
    back = json.loads(json.dumps(region.to_dict()))
    assert Region.from_dict(back, walker().feature_names, walker().actions) == region
