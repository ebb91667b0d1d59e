"""The gate for a policy as a whole: one bound on held-out groups, all of it issued or nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dprl
from dprl import envs
from dprl.certificate.whole_policy import FRACTIONS, lower_end

WHOLE = {"mode": "policy"}
LARGE = {"mode": "policy", "grade": "large-sample"}
UNIT = {"value_range": (0.0, 1.0)}
LEARNER = dprl.DPRLDiscrete(n_min=10, gamma=1.0)


def trial(n, seed, gap=0.08, states=33, first=0, known=True):
    """Mails of three kinds, sent by lot: in each state one of two brings `gap` more than others."""
    rng = np.random.default_rng(seed)
    state, mail = rng.integers(states, size=n), rng.integers(3, size=n)
    better = mail == 1 + state % 2
    return dprl.from_arrays(
        episode=np.arange(first, first + n), state=[f"s{s}" for s in state],
        action=np.array(["none", "mens", "womens"])[mail],
        reward=(rng.random(n) < 0.1 + gap * better).astype(float),
        **({"propensity": np.full(n, 1 / 3)} if known else {}),
    )  # fmt: skip


def test_the_lower_end_from_its_definition():
    rng = np.random.default_rng(0)
    Z = rng.exponential(1.4, 200)
    d = lower_end(Z, 0.05)

    def e(d):
        return np.mean([np.prod(1 + f * (Z / (1 + d) - 1)) for f in FRACTIONS])

    assert 0 < d < Z.mean() - 1
    assert e(d) >= 20 * (1 - 1e-9)
    assert e(d + 1e-6) < 20
    assert lower_end(np.zeros(50), 0.05) == -1
    assert lower_end(np.ones(50), 0.05) < 0


def test_lower_ends_are_rarely_too_high():
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(200):
        reward, weight = rng.random(100) < 0.3, 2.0 * (rng.random(100) < 0.5)
        wrong += lower_end(1 + weight * reward - reward, 0.1) > 0
    assert wrong <= 30  # 20 at most are expected


@pytest.fixture(scope="module")
def log():
    return trial(14_000, 0)


def test_many_small_states_are_certified_together(log):
    pairs = dprl.gate(LEARNER, log, **UNIT).certificate
    assert pairs.vacuous
    for how in ({**WHOLE, **UNIT}, LARGE):
        gated = dprl.gate(LEARNER, log, **how)
        whole = gated.certificate
        assert not whole.vacuous
        assert 0 < whole.gain < whole.whole["difference"] < 0.08
        assert whole.gain < 0.053  # the truth if every state is right: 2/3 of .08
        assert len(whole.rows) > 15
        assert "low" not in whole.rows[0]
        assert "not about any one suggestion" in whole.claim
        assert "nothing is claimed about any one row" in whole.details()
        assert whole.whole["probabilities"] == "known"
        assert not whole.markov  # nothing is claimed of what follows a state
        proved = whole.grade == "proved"
        assert whole.claim.startswith(
            "With probability at least" if proved else "Large-sample, not"
        )
        assert ("proved" in whole.details().replace("not proved", "")) == proved
        assert not any("confounding" in words for words in whole.assumptions)


def test_estimated_probabilities_say_so():
    log = trial(8_000, 0, known=False)
    whole = dprl.gate(LEARNER, log, **LARGE).certificate
    assert not whole.vacuous
    assert whole.whole["probabilities"] == "estimated"
    assert any("confounding" in words for words in whole.assumptions)
    with pytest.raises(dprl.LogError, match="do not say with which probability"):
        dprl.gate(LEARNER, log, **WHOLE, **UNIT)


def test_nothing_is_issued_where_nothing_is_gained():
    log = trial(3_000, 5, gap=0.0)
    for how in ({**WHOLE, **UNIT}, LARGE):
        gated = dprl.gate(LEARNER, log, **how)
        assert gated.certificate.vacuous
        assert gated.certificate.claim.startswith("VACUOUS")
        assert gated.act(list(log.states)) == [dprl.DEFER] * log.n_states
        assert any("Not issued" in note for note in gated.certificate.notes)


def test_losses_that_few_had_are_taken_off_and_gains_that_few_had_are_not():
    """The same means and spreads; 12 of 600 who got "new" lost 10 more than the others, or won."""
    rng = np.random.default_rng(6)
    n = 1_200
    action = np.tile(["new", "old"], n // 2)
    apart = rng.permutation(n // 2) < 12
    low, brings = {}, {}
    for side in (-1.0, 1.0):
        reward = rng.normal(0, 0.1, n)
        reward[::2] += 1.0 + side * 10.0 * (apart - 0.02)
        log = dprl.from_arrays(episode=np.arange(n), state=["s"] * n, action=action, reward=reward,
                               propensity=np.full(n, 0.5))  # fmt: skip
        other = rng.normal(0, 0.1, n) + (action == "new")
        learning = dprl.from_arrays(episode=np.arange(n, 2 * n), state=["s"] * n, action=action,
                                    reward=other)  # fmt: skip
        gated = dprl.gate(LEARNER.fit(learning), log, delta=0.05, **LARGE)
        low[side], brings[side] = gated.certificate.gain, gated.certificate.whole["difference"]
    assert brings[-1.0] == pytest.approx(brings[1.0], abs=0.01)
    leans = 10 * (1 - 2 * 0.02) * 0.5 * 2 / n  # the third moment over the second, of all groups
    assert low[1.0] - low[-1.0] == pytest.approx((1 + 2 * 1.645**2) / 6 * leans, rel=0.3)


def test_a_policy_needs_groups_it_has_never_seen(log, tmp_path):
    policy = LEARNER.fit(trial(4_000, 1, first=100_000))
    gated = dprl.gate(policy, log, **LARGE)
    assert gated.certificate.groups == 14_000
    assert gated.act(["s0", "s1"]) == policy.act(["s0", "s1"])
    gated.save(tmp_path / "whole.dprl")
    again = dprl.TablePolicy.load(tmp_path / "whole.dprl")
    assert again.digest() == gated.digest()
    public = dprl.public_copy(gated)
    assert "certified" not in public.provenance
    assert public.certificate.claim == gated.certificate.claim
    for which, words in ((log, "certified on"), (trial(4_000, 1, first=100_000), "learned from")):
        with pytest.raises(dprl.PolicyError, match=words):
            dprl.evaluate(gated, which, draws=10)
    with pytest.raises(dprl.PolicyError, match="needs groups that had no part"):
        dprl.gate(LEARNER.fit(log), log, **LARGE)
    with pytest.raises(dprl.PolicyError, match="about another log"):
        replace(gated, provenance={**gated.provenance, "certified": {"log": "x"}})


def test_a_part_of_it_carries_no_claim(log):
    gated = dprl.gate(LEARNER, log, **LARGE)
    changes = gated.situations(log)
    assert gated.limited_to(changes[:3]).certificate is None
    assert gated.certificate.restricted(["s0"]) is None


def test_difference_by_hand_and_first_episodes():
    """With known probabilities and two actions the estimate is close to a plain comparison."""
    world = envs.dense_chain()
    log = world.sample(1_500, seed=0)
    order = [world.actions.index(a) for a in log.actions]
    p = world.behavior[:, order][[world.states.index(log.states[s]) for s in log.state], log.action]
    log = replace(log, propensity=p)
    train, test = log.split(0.5, seed=1)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=world.gamma, cut="terminal").fit(train)
    whole = dprl.gate(policy, test, **LARGE).certificate
    judged = dprl.evaluate(policy, test, draws=10, cut="terminal")
    assert whole.whole["groups"] == judged.facts["episodes"]
    truth = world.value(policy) - world.value()
    assert whole.whole["difference"] == pytest.approx(truth, abs=0.35)
    assert (whole.gain or 0) <= truth


def test_confident_policies_too(log):
    gated = dprl.gate(dprl.Confident(gamma=1.0, risk=0.2), log, **LARGE)
    assert gated.certificate.mode == "policy"
    assert gated.certificate.vacuous == (not gated.may_change)


def test_refusals(log):
    for more, words in (({"horizon": 3}, "takes no horizon"),
                        ({"states": ["s0"]}, "takes no states"),
                        ({"markov": False}, "takes no markov")):  # fmt: skip
        with pytest.raises(dprl.ParameterError, match=words):
            dprl.gate(LEARNER, log, **LARGE, **more)
    with pytest.raises(dprl.ParameterError, match="takes no split"):
        dprl.gate(LEARNER.fit(log), log, **LARGE, split=[True] * log.n_episodes)
    with pytest.raises(dprl.ParameterError, match="for labelled states"):
        dprl.gate(dprl.DPRLContinuous(n_min=5, radius=1, gamma=1.0), log, **LARGE)


@pytest.mark.parametrize("grade", ["large-sample", "proved"])
def test_a_policy_whose_suggestions_nobody_meets_is_not_certified(grade):
    """It ended in an error of numpy."""
    log = trial(200, 0, states=2)
    gated = dprl.gate(replace(LEARNER, n_min=10_000), log, mode="policy", grade=grade, **UNIT)
    assert gated.certificate.vacuous


@pytest.mark.parametrize("met", [0, 1])
def test_a_suggestion_that_no_certifying_group_followed_is_no_error(met, tmp_path):
    """State `rare` is learned from 24 episodes; of those that certify `met` meet it otherwise."""

    def log(seed, first, state, action, reward):
        main = trial(6_000, seed, first=first)
        n = main.n_episodes + len(state)
        return dprl.from_arrays(
            episode=np.arange(first, first + n), propensity=np.full(n, 1 / 3),
            state=[main.states[s] for s in main.codes()] + state,
            action=[main.actions[a] for a in main.action] + action,
            reward=[*main.reward.tolist(), *reward],
        )  # fmt: skip

    learning = log(1, 100_000, ["rare"] * 24, ["none", "mens"] * 12, [0.0, 1.0] * 12)
    policy = LEARNER.fit(learning)
    assert policy.act(["rare"]) == ["mens"]
    certifying = log(0, 0, ["rare"] * met, ["none"] * met, [0.0] * met)
    gated = dprl.gate(policy, certifying, **LARGE)
    assert not gated.certificate.vacuous
    row = next(row for row in gated.certificate.rows if row["state"] == "rare")
    assert (row["n"], row["others"], row["difference"]) == (0, met, None)
    assert any("1 suggestion was followed by none" in words for words in gated.certificate.notes)
    gated.save(tmp_path / "p.dprl")
    assert dprl.load(tmp_path / "p.dprl").certificate.rows == gated.certificate.rows
