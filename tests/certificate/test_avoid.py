""" "not a" as a suggestion: what is tested, what comes out of a trial, and that null trials say nothing.

Then the Markov property, which is asked for before all visits count.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sources import bytes_of

import dprl
from conftest import to_log
from dprl.certificate import states
from dprl.certificate.eprocesses import advantages, against, seen_of, visits_of
from dprl.certificate.gain import legs_of, partings
from dprl.certificate.pair_tests import avoidable, of_one_kind
from dprl.envs import hard
from dprl.evidence import counts
from dprl.policies.protocol import without

ARMS = ("ZDV", "ZDV+ddC", "ZDV+ddI", "ddI")
LEARNER = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
UNIT = {"value_range": (0.0, 1.0)}
WAYS = {
    "all visits": {},
    "first visits": {"markov": False},
    "declared": {"mode": "in-sample", "states": ["start"]},
    "declared, first visits": {"mode": "in-sample", "states": ["start"], "markov": False},
    "large": {"grade": "large-sample"},
    "large, first visits": {"grade": "large-sample", "markov": False},
}


def trial(seed, good=(0.66, 0.788, 0.788, 0.788), n=530):
    """One decision by lot among four arms; a success is worth 1."""
    rng = np.random.default_rng(seed)
    arm = rng.permutation(np.repeat(np.arange(4), n))
    return dprl.from_arrays(
        episode=np.arange(4 * n), state=["start"] * (4 * n), action=[ARMS[a] for a in arm],
        reward=(rng.random(4 * n) < np.array(good)[arm]).astype(float),
    )  # fmt: skip


def wander(seed, n=600, worse=0.7):
    """Episodes of several visits among two states and four actions; "d" is worse in "ill"."""
    rng, rows = np.random.default_rng(seed), []
    for _ in range(n):
        rows.append([])
        while not rows[-1] or (rng.random() < 0.5 and len(rows[-1]) < 10):
            state, action = ("ill", "well")[rng.integers(2)], "abcd"[rng.integers(4)]
            bad = worse * (action == "d" and state == "ill")
            rows[-1].append((state, action, 0.1 * (rng.random() < 0.8 - bad)))
    return to_log(rows)


# -- what is tested -------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_with_two_actions_not_a_is_b(seed):
    """The e-process with the sides exchanged is that of the other action, to the last bit."""
    rng = np.random.default_rng(seed)
    rows = [
        [("s", "ab"[rng.integers(2)], rng.integers(0, 3) / 10) for _ in range(rng.integers(1, 4))]
        for _ in range(40)
    ]
    seen = visits_of(to_log(rows), 0.9, (0.0, 0.6), markov=bool(seed % 2))
    other, mine = (advantages(seen, [k], 1.0, 3.0, exact=True, avoid=not k) for k in (1, 0))
    for name in ("log_e", "low", "p_low", "p_high", "difference"):
        assert getattr(mine, name)[0] == pytest.approx(getattr(other, name)[0], abs=1e-12), name
    for c, odds in ((0.0, 0.0), (0.05, 0.5)):
        assert against(seen, 0, c, odds, avoid=True) == pytest.approx(against(seen, 1, c, odds))
    took, others = seen_of(seen, 0)[0]
    assert took + others == sum(len(r) for r in rows if r) or seed % 2 == 0


def test_the_bound_by_hand():
    """b_a (E y - E x) is V's distance from what the others get; the bound stays below it."""
    p, x, y = 0.25, 0.2, 0.8
    V = p * x + (1 - p) * y
    assert y - V == pytest.approx(p * (y - x))
    log = trial(0, (x, y, y, y), 2_000)
    seen = visits_of(log, 1.0, (0.0, 1.0), markov=False)
    found = advantages(seen, [log.actions.index("ZDV")], 3.0, 5.0, avoid=True)
    assert found.p_low[0] < 1 - p < found.p_high[0]
    assert found.difference[0] == pytest.approx(y - x, abs=0.05)
    assert 0.1 < found.low[0] < p * (y - x)
    assert found.low[0] / (1 - found.p_low[0]) < y - x


def slow_avoidable(evidence, n_min, available):
    result = np.zeros(evidence.took.n.shape, bool)
    for s, row in enumerate(evidence.took.n.tolist()):
        for a, n in enumerate(row):
            rest = [k for b, k in enumerate(row) if b != a]
            fine = n >= n_min and sum(rest) >= n_min and max(rest) <= 0.8 * sum(rest)
            fine = fine and evidence.took.mean[s, a] < evidence.others.mean[s, a]
            if available is not None:
                others = [b for b in range(len(row)) if b != a and available[s, b]]
                fine = fine and bool(available[s, a]) and bool(others)
            result[s, a] = fine
    return result


@pytest.mark.parametrize("seed", range(6))
def test_what_may_be_avoided_against_its_definition(seed):
    rng = np.random.default_rng(seed)
    n, A = 300, int(rng.integers(1, 6))
    log = dprl.from_arrays(
        episode=np.arange(n), state=rng.integers(0, 3, n),
        action=np.minimum(rng.geometric(0.4, n) - 1, A - 1), reward=rng.random(n),
    )  # fmt: skip
    evidence = counts.evidence(log, gamma=1.0)
    for available in (None, rng.random(evidence.took.n.shape) < 0.7):
        found = avoidable(evidence, 10, available)
        assert (found == slow_avoidable(evidence, 10, available)).all()


def test_a_half_proposes_one_kind_in_a_state():
    pairs = np.array([[1, 1, 0, 1, 0, 1], [0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 1, 1]], bool)
    low = np.array([[3, 2, 9, 1, 9, 2], [0, 0, 1, 0, 0, 2], [9, 9, 9, 9, 1, 2]], float)
    assert of_one_kind(pairs, low, 3).astype(int).tolist() == [
        [1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 1],
    ]  # fmt: skip
    assert of_one_kind(pairs[:, :3], low[:, :3], 3) is not None


def test_partings_and_legs_of_what_is_avoided():
    log = to_log([
        [("s", "a", 0), ("s", "c", 0)], [("s", "b", 0), ("t", "a", 0), ("s", "a", 0)],
        [("t", "c", 0)],
    ])  # fmt: skip
    answer = np.array([3 + log.actions.index("a"), -1], np.int32)  # not a, in s
    where, weight = partings(log, answer, 0.5)
    assert where.tolist() == [0, 0, -1]
    assert weight.tolist() == [1.0, 0.25, 0.0]
    legs = legs_of(log, answer, 0.5)
    assert legs.table.tolist() == [
        [0, 0, 0, 0, 2], [0, 0, 1, 0, 1],  # two begin there, one never comes
        [1, 0, 0, 2, 1], [1, 0, 1, 0, 1], [2, 0, 0, 1, 1], [2, 0, 1, 0, 1],
    ]  # fmt: skip


# -- what comes out -------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_one_arm_is_worse_than_all_others(way):
    """Nothing stands out but the one arm, and that is what comes out."""
    gated = dprl.gate(LEARNER, trial(1, n=1_000), **UNIT, **WAYS[way])
    assert gated.act("start") == dprl.Avoid("ZDV")
    (row,) = gated.certificate.rows
    assert (row["kind"], row["suggested"], row["avoid"]) == ("avoid", "not ZDV", "ZDV")
    assert row["n"] > 2.5 * row["others"]
    truth = 0.25 * (0.788 - 0.66)
    assert 0 < row["advantage_low"] < truth
    assert row["low"] < 0.788 - 0.66
    assert "“not” an action means anything else" in gated.certificate.claim
    if gated.certificate.markov:
        assert 0 < gated.certificate.gain < truth
    silent = dprl.gate(LEARNER, trial(1, n=1_000), avoid=False, **UNIT, **WAYS[way])
    assert not isinstance(silent.act("start"), dprl.Avoid)
    assert silent.avoid is None


@pytest.mark.parametrize("way", WAYS)
def test_a_null_trial_says_nothing(way):
    for seed in range(4):
        gated = dprl.gate(LEARNER, trial(seed, (0.75,) * 4, 200), **UNIT, **WAYS[way])
        assert gated.certificate.vacuous, seed


def test_one_arm_is_better_than_all_others():
    gated = dprl.gate(LEARNER, trial(2, (0.5, 0.5, 0.8, 0.5), 400), **UNIT)
    assert gated.act("start") == "ZDV+ddI"


def test_where_one_other_action_is_nearly_all_that_is_left_it_is_named():
    rng = np.random.default_rng(0)
    arm = rng.choice(3, 1_500, p=(0.6, 0.38, 0.02))
    log = dprl.from_arrays(
        episode=np.arange(1_500), state=["s"] * 1_500,
        action=np.array(["old", "new", "odd"])[arm],
        reward=(rng.random(1_500) < np.array([0.4, 0.8, 0.8])[arm]).astype(float),
    )  # fmt: skip
    assert dprl.gate(LEARNER, log, **UNIT).act("s") == "new"


def test_the_level_is_shared():
    """In-sample every pair is tested both ways; with two actions "not a" is b and costs nothing."""
    log = trial(0, n=100)
    declared = {"mode": "in-sample", "states": ["start"], "markov": False, **UNIT}
    assert dprl.gate(LEARNER, log, **declared).certificate.tested == (8,)
    assert dprl.gate(LEARNER, log, avoid=False, **declared).certificate.tested == (4,)
    two = to_log([[("start", "ab"[i % 2], 1.0)] for i in range(100)])
    assert dprl.gate(LEARNER, two, **declared).certificate.tested == (2,)


@pytest.mark.thin(1)
@pytest.mark.parametrize("way", ["all visits", "declared"])
def test_it_is_the_same_wherever_the_rows_are(way, held, tmp_path):
    log = wander(3, 500)
    asked = {**WAYS[way], **({"states": ["ill", "well"]} if way == "declared" else {})}
    asked |= UNIT
    here = dprl.gate(replace(LEARNER, n_min=10), log, **asked)
    there = dprl.gate(replace(LEARNER, n_min=10), held(log), **asked)
    assert bytes_of(here, tmp_path / "one") == bytes_of(there, tmp_path / "two")
    assert here.act(["ill", "well"]) == [dprl.Avoid("d"), dprl.DEFER]


@pytest.mark.slow
def test_sites_that_share_no_rows_say_it():
    """Single bins: the certificate of the pooled log. Wider ones, and hidden actions: no more."""
    rng = np.random.default_rng(0)
    arm = rng.choice(5, 3_000, p=(0.25, 0.25, 0.25, 0.247, 0.003))
    log = dprl.from_arrays(
        episode=np.arange(3_000), state=["start"] * 3_000, action=arm,
        reward=np.clip(rng.normal(np.where(arm == 0, 0.4, 0.6), 0.15), 0, 1),
    )  # fmt: skip
    learner, asked = replace(LEARNER, plan=False), {"mode": "in-sample", "markov": False}
    pooled = dprl.gate(learner, log, states=["start"], **asked, **UNIT)
    assert pooled.act("start") == dprl.Avoid(0)
    schema = dprl.SiteSchema.of(log, gamma=1.0, value_range=(0, 1))
    parts = [log.take(np.arange(first, 3_000, 2)) for first in (0, 1)]
    for k in (1, 6):
        sites = [dprl.site_evidence(part, schema, k=k, site=f"{i}") for i, part in enumerate(parts)]
        merged = dprl.merge_evidence(*sites)
        ours = dprl.gate(learner, merged, **asked)
        assert ours.act("start") == dprl.Avoid(0)
        (mine,), (whole,) = ours.certificate.rows, pooled.certificate.rows
        if k == 1:
            assert {**mine, "gamma_point": 0} == {**whole, "gamma_point": 0}
        else:
            assert merged.suppressed
            assert mine["log10_e"] < whole["log10_e"]
            assert mine["advantage_low"] < whole["advantage_low"]
            assert mine["gamma_star"] <= whole["gamma_star"]


def test_over_many_visits_the_claim_stays_below_the_truth():
    gated = dprl.gate(LEARNER, wander(5, 1_500), **UNIT)
    row = gated.certificate.rows[0]
    assert gated.certificate.visits == "all"
    assert (row["state"], row["avoid"]) == ("ill", "d")
    assert 0 < row["advantage_low"] < 0.25 * 0.07
    visits = 1 / (1 - 0.5) / 2
    assert 0 < gated.certificate.gain < visits * 0.25 * 0.07


# -- what a policy makes of it --------------------------------------------------------------------


@pytest.fixture(scope="module")
def warned():
    return dprl.gate(LEARNER, trial(1, n=1_000), **UNIT)


def test_decisions_carry_it(warned, tmp_path):
    here = warned.at(["start", "never"])
    assert here.answers() == [dprl.Avoid("ZDV"), dprl.DEFER]
    assert [dprl.Kind(k).word for k in here.kind] == ["avoid", "defer"]
    assert here.speaks.tolist() == here.changes.tolist() == here.differs.tolist() == [True, False]
    zdv = warned.actions.index("ZDV")
    assert here.followed(np.array([zdv, zdv])).tolist() == [False, True]
    assert here.followed(np.array([zdv + 1, 0])).tolist() == [True, True]
    pi = here.probabilities()[0]
    assert pi[zdv] == 0
    assert np.delete(pi, zdv) == pytest.approx([1 / 3] * 3)
    b = np.array([[0.1, 0.2, 0.3, 0.4], [0.25] * 4])
    given_b = here.probabilities(behavior=b)
    assert given_b[0, zdv] == 0
    assert np.delete(given_b[0], zdv) == pytest.approx(np.delete(b[0], zdv) / (1 - b[0, zdv]))
    assert given_b[1] == pytest.approx(b[1])
    only = without(np.array([[1.0, 0.0]]), np.array([0]))  # nothing else is ever done
    assert only.tolist() == [[1.0, 0.0]]
    assert repr(dprl.Avoid("x")) == "Avoid('x')"
    warned.save(tmp_path / "p.dprl")
    again = dprl.load(tmp_path / "p.dprl")
    assert again.digest() == warned.digest()
    assert again.act("start") == dprl.Avoid("ZDV")
    assert again.certificate.issued == {"start": dprl.Avoid("ZDV")}


def test_it_is_listed_and_explained(warned):
    (row,) = warned.changes()
    assert (row["state"], row["suggested"], row["episodes"]) == ("start", "not ZDV", 3_000)
    assert row["others"] == 1_000
    assert row["low"] < row["advantage"] < row["high"]
    assert row["advantage"] == pytest.approx(0.25 * (0.788 - 0.66), abs=0.02)
    assert "not an action: anything else" in warned.changes().note
    told = warned.explain("start")
    assert (told.kind, told.suggested) == ("avoid", "not ZDV")
    assert told.reason.startswith("ZDV was taken by 1,000 of 4,000 episodes")
    verdicts = dict(zip(told.actions["action"], told.actions["verdict"], strict=True))
    assert verdicts["ZDV"] == "to be avoided"
    assert warned.summary()["changes"] == 1
    assert "1 change" in str(warned)


def test_it_can_be_approved_or_not(warned):
    log = trial(1, n=1_000)
    (one,) = warned.situations(log)
    kept = warned.limited_to([one], by="a physician")
    assert kept.act("start") == dprl.Avoid("ZDV")
    assert kept.certificate.issued == warned.certificate.issued
    assert warned.limited_to([]).act("start") is dprl.DEFER
    again = dprl.gate(kept, log, **UNIT)  # what was approved is not added to
    assert not isinstance(again.act("start"), dprl.Avoid)


def test_a_file_that_contradicts_itself_is_refused(warned, tmp_path):
    zdv = warned.actions.index("ZDV")
    for avoid, words in (
        (np.array([7], np.int32), "names actions that do not exist"),
        (np.array([zdv], np.int64), "'avoid' is int64"),
    ):
        with pytest.raises(dprl.PolicyError, match=words):
            replace(warned, certificate=None, avoid=avoid)
    with pytest.raises(dprl.PolicyError, match="its certificate is about other suggestions"):
        replace(warned, avoid=None)
    better = replace(warned, certificate=None, avoid=np.array([zdv + 1], np.int32))
    with pytest.raises(dprl.PolicyError, match="they do not show it"):
        better.save(tmp_path / "p.dprl")
    named = replace(
        warned, certificate=None, choice=np.array([zdv], np.int32), avoid=None,
        allowed=np.ones((1, 4), bool),
    )  # fmt: skip
    with pytest.raises(dprl.PolicyError, match="one to avoid in the same state"):
        replace(named, avoid=np.array([zdv], np.int32))


def test_the_whole_of_it_is_not_bounded(warned):
    with pytest.raises(dprl.ParameterError, match="says what to avoid"):
        dprl.gate(warned, trial(9), mode="policy", grade="large-sample")


def test_it_is_evaluated_with_its_weights(warned):
    """π/b is 0 for the arm and 1/(1 - b_a) for all others, whatever was done."""
    log = trial(3, n=400)
    found = dprl.evaluate(warned, log, draws=200)
    good = log.reward[log.action != log.actions.index("ZDV")].mean()
    for name in ("WIS", "IS"):
        assert found[name]["value"] == pytest.approx(good, abs=0.01), name
    assert found.facts["suggested_done"] == pytest.approx(0.75)
    assert found.facts["changed"] == 1.0
    known = dprl.evaluate(warned, log, draws=200, behavior=np.full((1, 4), 0.25))
    assert known["IS"]["value"] == pytest.approx(good, abs=1e-9)


def test_its_gain_is_estimated(warned):
    """Of one decision, the plug-in gain is the mean of those who did otherwise less that of all."""
    log = trial(6, n=300)
    found = dprl.certificate.approximate_gain(warned, log, draws=50)
    rest = log.reward[log.action != log.actions.index("ZDV")].mean()
    assert found.gain == pytest.approx(rest - log.reward.mean())
    assert (found.points, found.unfollowed) == (1, 0)


def test_it_is_monitored(warned):
    monitor = dprl.Monitor(warned)
    look = monitor.add(trial(4, n=400))
    assert look.status == "still certified"
    (row,) = look.suggestions
    assert (row["suggested"], row["took"], row["others"]) == ("not ZDV", 1_200, 400)
    assert row["difference"] > 0
    turned = dprl.Monitor(warned).add(trial(5, (0.9, 0.6, 0.6, 0.6), 600))
    assert turned.status == "what was promised is contradicted"


# -- the Markov property is asked for -------------------------------------------------------------


def rushed(seed, n=500):
    """ "rush" pays a little each time, and at the first visit it spoils what comes at the end.

    How long an episode lasts is drawn anew at every visit. The way back to the state shows the
    little; what follows the last visit depends on what was done at the first.
    """
    rng, rows = np.random.default_rng(seed), []
    for _ in range(n):
        rush = rng.random(rng.geometric(0.12) + 1) < 0.2
        steps = [("s", "rush" if r else "care", 0.1 * r) for r in rush[:30]]
        steps[-1] = (*steps[-1][:2], steps[-1][2] + (0.0 if rush[0] else 0.8))
        rows.append(steps)
    return to_log(rows)


@pytest.mark.slow
def test_the_gate_asks_whether_the_state_is_enough(monkeypatch):
    asked = {"value_range": (0.0, 3.8)}
    for seed in range(3):
        log = rushed(seed)
        gated = dprl.gate(LEARNER, log, **asked)
        assert gated.act("s") != "rush"
        certificate = gated.certificate
        assert (certificate.markov, certificate.visits, certificate.gain) == (False, "first", None)
        assert any(
            "A test speaks against the Markov property" in note for note in certificate.notes
        )
        assert any("The Markov property is not claimed" in line for line in certificate.assumptions)
        plain = dprl.gate(LEARNER, log, markov=False, **asked)
        assert plain.certificate.issued == certificate.issued
        in_sample = dprl.gate(LEARNER, log, mode="in-sample", states=["s"], **asked)
        assert in_sample.act("s") != "rush"
        assert not in_sample.certificate.markov
    monkeypatch.setattr(states, "refutation", lambda *given: "")
    monkeypatch.setattr(states, "contradicted", lambda evidence, width: np.zeros((1, width), bool))
    assert dprl.gate(LEARNER, log, **asked).act("s") == "rush"  # as it was before: harm


def test_what_first_visits_contradict_is_left_out(monkeypatch):
    monkeypatch.setattr(states, "refutation", lambda *given: "")
    gated = dprl.gate(LEARNER, rushed(0), value_range=(0.0, 3.8))
    assert gated.act("s") != "rush"
    assert any("first visits say the opposite" in note for note in gated.certificate.notes)


def test_a_markov_log_is_not_refuted():
    kept = [dprl.gate(LEARNER, wander(seed, 300), **UNIT) for seed in range(10)]
    assert sum(gated.certificate.markov for gated in kept) >= 9


def test_one_half_alone_refutes(monkeypatch):
    """What was to be tested by all visits is not used; what was to be tested by first visits is."""
    answers = iter(["it tells.", ""])
    monkeypatch.setattr(states, "refutation", lambda *given: next(answers))
    log = wander(5, 1_500)
    gated = dprl.gate(LEARNER, log, **UNIT)
    assert gated.certificate.visits == "first"
    assert gated.certificate.tested[1] <= 1
    assert "it tells." in " ".join(gated.certificate.notes)


def test_many_rows_are_asked_by_a_sample(monkeypatch):
    seen = []
    check = states.markov_check
    monkeypatch.setattr(
        states, "markov_check", lambda log, *rest, **more: seen.append(log) or check(log, *rest, **more)
    )  # fmt: skip
    monkeypatch.setattr(states, "ASKED", 500)
    dprl.gate(LEARNER, wander(0, 600), **UNIT)
    assert len(seen) == 2
    assert all(300 < log.n_steps < 800 for log in seen)
    assert set(seen[0].groups).isdisjoint(seen[1].groups)


def test_the_level_is_shared_where_the_same_rows_are_asked():
    """In-sample the log answers both: .75 δ for all visits, where it is not refuted."""
    log = wander(5, 1_500)
    declared = {"mode": "in-sample", "states": ["ill"], **UNIT}
    certificate = dprl.gate(LEARNER, log, **declared).certificate
    need = math.log10(certificate.tested[0] / (0.75 * 0.7 * 0.05))
    assert all(row["log10_e"] >= need for row in certificate.rows)
    assert certificate.delta == 0.05


def test_the_truth_about_it_is_known_in_worlds_that_punish():
    world = hard.one_arm_worse()
    where = lambda labels: np.ones(len(labels), bool)  # noqa: E731
    arm = world.actions[0]
    take, avoid = (world.effect(where, one).value for one in (arm, dprl.Avoid(arm)))
    assert avoid == -take
    gated = dprl.gate(LEARNER, world.sample(4_000, seed=0), value_range=world.value_range)
    (row,) = gated.certificate.rows
    truth = world.effect(where, dprl.Avoid(row["avoid"])).value
    assert 0 < row["low"] < truth
    assert 0 < gated.certificate.gain < world.gain(gated).value
