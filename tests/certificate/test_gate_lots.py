"""Recorded probabilities in the gate: where they differ within a state nothing is compared."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import dprl
from dprl.evidence.propensity import RecordedPropensity
from dprl.logs.source import parts_of

UNIT = {"value_range": (0, 1)}
LEARNER = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
WAYS = [
    UNIT, UNIT | {"markov": False}, {"grade": "large-sample"},
    UNIT | {"mode": "in-sample", "states": ["s"]},
]  # fmt: skip


def ward(seed, n=1_500, *, ill=0.2, well=0.8, effect=-0.05, features=False):
    """A state that hides who is ill; `new` is given by lot, to the ill with another probability."""
    rng = np.random.default_rng(seed)
    is_ill = rng.random(n) < 0.5
    p = np.where(is_ill, ill, well)
    new = rng.random(n) < p
    reward = (rng.random(n) < np.where(is_ill, 0.3, 0.75) + effect * new).astype(float)
    state = rng.normal(size=(n, 1)) * 0.01 if features else ["s"] * n
    return dprl.from_arrays(
        episode=[f"{seed}-{i}" for i in range(n)], state=state, reward=reward,
        action=np.where(new, "new", "old"),
        propensity=np.where(new, p, 1 - p),
    )  # fmt: skip


def sentence(policy):
    return next(line for line in policy.certificate.assumptions if line.startswith("Randomised"))


@pytest.mark.parametrize("way", WAYS)
def test_harm_is_not_certified_where_the_record_shows_that_takers_were_chosen(way):
    log = ward(1)
    blind = dprl.gate(LEARNER, replace(log, propensity=None), **way)
    assert blind.act(["s"]) == ["new"]  # as far as such a log says, it helps
    gated = dprl.gate(LEARNER, log, **way)
    assert gated.act(["s"]) == [dprl.DEFER]
    assert "In 1 state they differ from row to row" in sentence(gated)
    assert "mode='policy'" in sentence(gated)
    assert "confounding=" not in sentence(gated)  # a factor of 16 is beyond what is worth asking


def test_cells_too():
    log = ward(2, features=True)
    near = dprl.DPRLContinuous(n_min=20, radius=5.0, gamma=1.0, plan=False)
    assert not dprl.gate(near, replace(log, propensity=None), **UNIT).certificate.vacuous
    gated = dprl.gate(near, log, **UNIT)
    assert gated.certificate.vacuous
    assert "In 1 cell they differ" in sentence(gated)


def test_rules_too():
    """The proposing half may go by other probabilities; the half that certifies must show one."""
    quick = {
        "behavior_models": [("logistic", LogisticRegression())], "value_model": LinearRegression(),
    }  # fmt: skip
    rules = dprl.Rules(gamma=1.0, depth=1, splits=1, n_min=20)
    even = ward(5, n=800, ill=0.5, well=0.5, effect=0.4, features=True)
    policy = rules.fit(even, **quick)
    assert not dprl.gate(policy, even, **UNIT).certificate.vacuous
    for other, proved in ((ward(6, n=800, ill=0.5, well=0.5, effect=0.4, features=True), True),
                          (ward(6, n=800, effect=0.4, features=True), False)):  # fmt: skip
        gated = dprl.gate(policy, other, **UNIT)
        assert gated.certificate.vacuous is not proved
        if not proved:
            assert "regions of a rule" in sentence(gated) or "region of a rule" in sentence(gated)


@pytest.mark.parametrize("way", WAYS)
def test_the_same_for_all_is_known_and_sharpens_the_bound(way):
    log = ward(3, ill=0.5, well=0.5, effect=0.2)
    blind, gated = (dprl.gate(LEARNER, x, **way) for x in (replace(log, propensity=None), log))
    assert gated.act(["s"]) == blind.act(["s"]) == ["new"]
    (mine,), (theirs,) = gated.certificate.rows, blind.certificate.rows
    assert mine["advantage_low"] > theirs["advantage_low"]
    assert mine["advantage_low"] < 0.1  # the truth is (1 - p) 0.2
    assert "the same for all" in sentence(gated)


def test_a_small_difference_may_be_allowed_for():
    log = ward(4, n=3_000, ill=0.5, well=0.54, effect=0.25)
    refused, allowed = (
        dprl.gate(LEARNER, log, confounding=strength, **UNIT) for strength in (1.0, 1.2)
    )
    assert refused.certificate.vacuous
    assert "confounding=1.18 or more" in sentence(refused)
    assert allowed.act(["s"]) == ["new"]
    assert "by at most a factor of 1.17 in the odds; the claim allows for 1.2" in sentence(allowed)


@pytest.mark.parametrize("log", [ward(1, n=400), ward(3, n=400, ill=0.5, well=0.5, effect=0.3)])
def test_a_log_in_parts_gives_the_same_bytes(log, tmp_path):
    files = []
    for source in (log, parts_of(log, 90)):
        dprl.gate(LEARNER, source, markov=False, **UNIT).save(tmp_path / "p.dprl")
        files.append((tmp_path / "p.dprl").read_bytes())
    assert files[0] == files[1]


@pytest.mark.parametrize("seed", range(6))
def test_chances_row_by_row(seed):
    rng = np.random.default_rng(seed)
    n, A = 60, int(rng.integers(2, 4))
    table = rng.choice([0.2, 0.5], size=(4, A))
    state, action = rng.integers(4, size=n), rng.integers(A, size=n)
    p = np.where(rng.random(n) < 0.05 * (seed % 3), np.nan, table[state, action])
    p = np.where(rng.random(n) < 0.02, 0.4, p)
    log = dprl.from_arrays(
        episode=np.arange(n), state=state, action=action, reward=np.zeros(n), propensity=p
    )
    chances = RecordedPropensity.of(log)
    halves = [RecordedPropensity.of(log.take(np.arange(k, n, 2))) for k in (0, 1)]
    merged = halves[0].merge(halves[1])
    for s, label in enumerate(log.states):
        here = state == label
        by_action = [p[here & (action == a) & ~np.isnan(p)] for a in log.actions]
        same = all(len(set(v)) <= 1 for v in by_action)
        complete = not np.isnan(p[here]).any()
        assert chances.same[s] == merged.same[s] == same
        for a, values in enumerate(by_action):
            wanted = values[0] if same and complete and len(values) else np.nan
            np.testing.assert_equal(chances.p[s, a], wanted)
            np.testing.assert_equal(merged.p[s, a], wanted)
        if A == 2 and complete and not same:
            of_first = np.concatenate([by_action[0], 1 - by_action[1]])
            odds = of_first / (1 - of_first)
            assert chances.odds_ratio[s] == pytest.approx(odds.max() / odds.min())
        else:
            assert chances.odds_ratio[s] == (1.0 if same else np.inf)


@pytest.mark.parametrize("learner", [LEARNER, dprl.Confident(gamma=1.0, check=False)])
def test_learners_that_pass_over_them_say_so(learner, recwarn):
    with pytest.warns(dprl.BalanceWarning, match="in 1 of 1 states, 's' first, the recorded"):
        learner.fit(ward(1))
    learner.fit(ward(3, n=300, ill=0.5, well=0.5))
    learner.fit(replace(ward(1), propensity=None))
    assert not [w for w in recwarn if w.category is dprl.BalanceWarning]


def test_a_log_without_probabilities_has_none():
    assert RecordedPropensity.of(replace(ward(0, n=50), propensity=None)) is None
