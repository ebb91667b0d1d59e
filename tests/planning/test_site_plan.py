"""The second round of sites that share no rows: the plan is that of the pooled log."""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dprl
from conftest import random_episodes, to_log
from dprl._core.exact import COUNT
from dprl.evidence.sites.evidence import ARCHIVE
from dprl.planning.semi_mdp import ENDED
from dprl.planning.sites import load_counts


def parts_of(log, n, seed):
    home = np.random.default_rng(seed).integers(0, n, len(log.groups))[log.group]
    return {str(i): log.take(np.flatnonzero(home == i)) for i in range(n) if (home == i).any()}


def two_rounds(log, n=3, seed=0, k=1, n_min=2, **schema):
    schema = dprl.SiteSchema.of(log, **{"gamma": 0.9, **schema})
    parts = parts_of(log, n, seed)
    both = dprl.merge_evidence(
        *(dprl.site_evidence(part, schema, k=k, site=name) for name, part in parts.items())
    )
    return both, [
        dprl.site_plan(part, both, n_min=n_min, k=k, site=name) for name, part in parts.items()
    ]


@settings(max_examples=15)
@given(
    st.integers(0, 10_000), st.integers(1, 5), st.sampled_from([0.9, 1.0]), st.booleans(),
    st.sampled_from(["end", "pooled"]),
)  # fmt: skip
def test_the_plan_of_the_sites_is_that_of_the_pooled_log(seed, n, gamma, grouped, rule):
    episodes = random_episodes(seed)
    group = np.repeat(np.arange(len(episodes)) // (3 if grouped else 1), list(map(len, episodes)))
    log = to_log(episodes, group=group)
    learner = dprl.DPRLDiscrete(n_min=2, gamma=gamma, segments=rule)
    pooled = learner.fit(log)
    if "circles" in pooled.provenance:  # the sites counted for decision points that have no plan
        with pytest.raises(dprl.PlanError):
            learner.fit(dprl.merge_evidence(*two_rounds(log, n, seed, gamma=gamma)[1]))
        return
    ours = learner.fit(dprl.merge_evidence(*two_rounds(log, n, seed, gamma=gamma)[1]))
    for field in fields(pooled):
        a, b = getattr(ours, field.name), getattr(pooled, field.name)
        if isinstance(b, np.ndarray):
            assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes()), field.name


def test_the_order_of_episodes_does_not_show_in_a_plan():
    """Also of a pooled log: rows of D are added up in the order of states."""
    episodes = random_episodes(7)
    learner = dprl.DPRLDiscrete(n_min=2, gamma=0.9)
    one, two = (learner.fit(to_log(e)) for e in (episodes, episodes[::-1]))
    assert one.planned.tobytes() == two.planned.tobytes()


def test_order_and_tree_of_merges_do_not_show_and_files_give_it_back():
    plans = two_rounds(to_log(random_episodes(3)), 3)[1]
    whole = dprl.merge_evidence(*plans).to_bytes()
    for order in itertools.permutations(plans):
        assert dprl.merge_evidence(*order).to_bytes() == whole
    a, b, c = plans
    assert dprl.merge_evidence(a, dprl.merge_evidence(b, c)).to_bytes() == whole
    assert dprl.SitePlan.load(io.BytesIO(whole)).to_bytes() == whole
    assert load_counts(io.BytesIO(whole)).to_bytes() == whole


def wandering(seed, states=5, chances=(0.5, 0.3, 0.2), episodes=150):
    """Episodes that go anywhere, and nowhere twice: few groups between two decision points."""
    rng = np.random.default_rng(seed)
    return to_log([
        [(int(s), "abc"[rng.choice(len(chances), p=chances)], float(rng.random()))
         for s in rng.permutation(states)[:5]]
        for _ in range(episodes)
    ])  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_no_end_of_fewer_than_k_groups_is_given_away(seed):
    k = 5
    _, plans = two_rounds(wandering(seed), 2, seed, k=k, n_min=8)
    for plan in plans:
        count, total = plan.ends[:, 2], plan.n
        assert plan.hidden
        assert (count >= k).all()
        assert ((total == 0) | (total >= k)).all()
        away = np.zeros(total.size, np.int64)
        np.add.at(away, plan.ends[:, 0], count)
        left = total.ravel() - away  # segments that end with the episode, or are not given away
        assert ((left == 0) | (left >= k)).all()
        assert plan.divided  # each of the two sums is of at least k groups, too
        assert (plan.rewards.words[ENDED, ..., COUNT].ravel() == left).all()
    policy = dprl.DPRLDiscrete(n_min=8, gamma=0.9).fit(dprl.merge_evidence(*plans))
    assert "usual practice in place of its own next suggestion" in str(policy)


def test_where_no_end_is_given_away_the_plan_is_that_of_single_decisions():
    both, plans = two_rounds(wandering(0, 12, (0.5, 0.5)), 1, k=16, n_min=10)
    assert (plans[0].hidden > 0, len(plans[0].ends)) == (True, 0)
    planned = dprl.DPRLDiscrete(n_min=10, gamma=0.9).fit(plans[0])
    single = dprl.DPRLDiscrete(n_min=10, gamma=0.9, plan=False).fit(both)
    assert (planned.choice >= 0).any()
    assert (planned.choice == single.choice).all()
    np.testing.assert_allclose(planned.planned, planned.Q * np.where(planned.allowed, 1, np.nan))


def test_a_second_count_of_an_earlier_version_plans_to_the_end():
    """It has the endings in the sums of all segments: 0.2.0 wrote it, of this log."""
    log = dprl.envs.care_pathway().sample(120, seed=21)
    plan = dprl.SitePlan.load(Path(__file__).parent / "golden" / "0.2.0.plan")
    learner = dprl.DPRLDiscrete(n_min=5, gamma=1.0, segments="end")
    assert learner.fit(plan).planned.tobytes() == learner.fit(log).planned.tobytes()
    now = two_rounds(log, 1, n_min=5, gamma=1.0)[1][0]
    assert (now.n == plan.n).all()
    assert (now.ends == plan.ends).all()
    assert (plan.divided, now.divided) == (False, True)
    with pytest.raises(dprl.ParameterError, match="counted for segments = end; got pooled"):
        dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(plan)
    copy = dprl.SitePlan.load(io.BytesIO(plan.to_bytes()))
    assert learner.fit(copy).planned.tobytes() == learner.fit(plan).planned.tobytes()


def lines(error):
    return str(error.value).splitlines()


def test_what_does_not_belong_together_is_refused():
    log = to_log(random_episodes(3))
    both, (a, b, c) = two_rounds(log, 3)
    learner = dprl.DPRLDiscrete(n_min=2, gamma=0.9)
    with pytest.raises(dprl.EvidenceError, match="1 of 3 sites have not counted") as error:
        learner.fit(dprl.merge_evidence(a, b))
    assert len(lines(error)) == 3
    with pytest.raises(dprl.EvidenceError, match="would count twice") as error:
        dprl.merge_evidence(a, b, a)
    assert len(lines(error)) == 3
    other = two_rounds(log, 3, n_min=3)[1][1]
    for stranger in (other, both):
        with pytest.raises(dprl.EvidenceError, match="different decision points") as error:
            dprl.merge_evidence(a, stranger)
        assert len(lines(error)) == 3
    whole = dprl.merge_evidence(a, b, c)
    for asked in ({"n_min": 3}, {"contrast": False}, {"plan": False}, {"gamma": 0.5}):
        with pytest.raises(dprl.ParameterError) as error:
            dprl.DPRLDiscrete(**{"n_min": 2, "gamma": 0.9, **asked}).fit(whole)
        assert len(lines(error)) == 3
    part = parts_of(log, 3, 0)["0"]
    for asked in ({"k": 2}, {"site": "elsewhere"}):
        with pytest.raises(dprl.EvidenceError, match="was not counted the first time") as error:
            dprl.site_plan(part, both, **{"n_min": 2, "k": 1, "site": "0", **asked})
        assert len(lines(error)) == 3
    with pytest.raises(dprl.ParameterError, match="evidence of sites is needed"):
        dprl.site_plan(part, log, n_min=2)


def put(name, place, value):
    def change(words, arrays):
        arrays[name] = arrays[name].copy()
        arrays[name][place] = value

    return change


HOSTILE = {
    "an end outside": put("plan_ends", (0, 1), 10**6),
    "a pair outside": put("plan_ends", (0, 0), -1),
    "too many ends": put("plan_ends", (0, 2), 10**6),
    "a discount above 1": put("plan_ends", (0, 3), 1 << 62),
    "another count": put("plan_words", (..., 0), 77),
    "a huge exponent": put("plan_top", 0, 40_000),
    "sums of one layer": lambda w, a: a.update(plan_top=a["plan_top"][:1]),
    "no plan": lambda w, a: w.pop("plan"),
    "n_min of text": lambda w, a: w["plan"].update(n_min="two"),
    "parts of numbers": lambda w, a: w["plan"].update(parts=[1]),
    "an unknown part": lambda w, a: w["plan"].update(parts=["x"]),
    "hidden below 0": lambda w, a: w["plan"].update(hidden=-1),
    "no ends": lambda w, a: a.pop("plan_ends"),
    "ends of floats": lambda w, a: a.update(plan_ends=a["plan_ends"].astype(float)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_plans(name, tmp_path):
    log = dprl.envs.care_pathway().sample(200, seed=0)
    words, arrays = two_rounds(log, 1, n_min=10, gamma=1.0)[1][0]._file_parts()
    words, arrays = json.loads(json.dumps(words)), dict(arrays)
    HOSTILE[name](words, arrays)
    ARCHIVE.pack(tmp_path / "bad.plan", "round-2", words, arrays)
    for load in (dprl.SitePlan.load, load_counts):
        with pytest.raises(dprl.EvidenceError) as error:
            load(tmp_path / "bad.plan")
        assert len(lines(error)) == 3
    ARCHIVE.pack(tmp_path / "odd.plan", "round-9", words, arrays)
    for load in (dprl.SitePlan.load, load_counts, dprl.SiteEvidence.load):
        with pytest.raises(dprl.EvidenceError):
            load(tmp_path / "odd.plan")
