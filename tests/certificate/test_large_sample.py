"""The large-sample grade of the gate: the test, its words, and where it may not be called proved."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_ind

import dprl
from dprl.certificate.pair_tests import compare, compare_pairs, normal_scale, student_scale

LARGE = {"grade": "large-sample"}


def judged(*samples, level=0.05, group=None):
    """The comparison of pairs (x, y), one after the other, with groups of their own."""
    which, is_x, value = [], [], []
    for k, (x, y) in enumerate(samples):
        which += [k] * (len(x) + len(y))
        is_x += [True] * len(x) + [False] * len(y)
        value += [*x, *y]
    group = np.arange(len(value)) if group is None else group
    return compare(
        np.array(which, np.int64), np.array(is_x, bool), np.array(value, float),
        np.asarray(group), len(samples),
        level=level, ends=level,
    )  # fmt: skip


def coins(n, ones):
    return np.arange(n) < ones


def test_one_comparison_is_a_t_test():
    rng = np.random.default_rng(0)
    x, y = rng.normal(0.25, 1, 80), rng.normal(0, 1, 120)
    result = judged((x, y))
    assert result.difference[0] == pytest.approx(x.mean() - y.mean())
    theirs = ttest_ind(x, y, equal_var=False, alternative="greater")
    assert result.p[0] == pytest.approx(theirs.pvalue, abs=0.01)
    ends = theirs.confidence_interval(0.95)
    assert result.low[0] == pytest.approx(ends.low, abs=0.02)


def test_scales_are_each_others_inverse():
    df = np.array([5.0, 40.0, 1e6])
    assert student_scale(2.0, df)[2] == pytest.approx(2.0, abs=1e-4)
    assert normal_scale(student_scale(2.0, df), df) == pytest.approx([2.0] * 3)


def test_a_side_that_happened_not_to_vary_is_not_sure():
    assert judged((coins(100, 100), coins(1_000, 980))).p[0] > 0.05
    assert judged((coins(100, 100), coins(1_000, 500))).p[0] < 0.001


def test_harm_in_other_states_counts_where_it_has_not_happened_yet():
    """Ten cases in 600 lost 10, none of them in "a"; one more there costs 10 / 200 in the mean."""
    rng = np.random.default_rng(5)
    n, states, actions = 200, np.repeat(["a", "b", "c"], 400), np.tile(["new", "old"], 600)
    reward = rng.normal(0, 0.1, 1_200) + 0.1 * (actions == "new")
    safe = dprl.from_arrays(episode=range(1_200), time=np.zeros(1_200), state=states,
                            action=actions, reward=reward)  # fmt: skip
    lost = np.flatnonzero((states != "a") & (actions == "new"))[:: 2 * n // 10]
    burnt = replace(safe, reward=reward - 10.0 * np.isin(np.arange(1_200), lost))
    wanted = np.zeros((3, 2), bool)
    wanted[0, 0] = True
    fine, less = (compare_pairs(log, 1.0, wanted, level=0.05, ends=0.05) for log in (safe, burnt))
    assert fine.p[0] < 0.001
    assert fine.low[0] > 0.05
    assert less.difference == fine.difference
    assert less.p[0] > 0.05
    one = 10 / n * np.sqrt(1 - 10 / 600 / 0.1)  # the losses are as rare as 10 in 600
    expected = fine.difference[0] - (1.645 + (1 + 2 * 1.645**2) / 6) * one
    assert less.low[0] == pytest.approx(expected, abs=0.01)


def test_small_sides_are_left_out_and_cost_the_others_nothing():
    rng = np.random.default_rng(1)
    x, y = rng.normal(0.4, 1, 100), rng.normal(0, 1, 100)
    small = (np.full(4, 9.0), rng.normal(0, 1, 100))
    alone, beside = judged((x, y)), judged((x, y), small)
    assert beside.p[1] == 1
    assert beside.low[1] == -np.inf
    assert beside.p[0] == pytest.approx(alone.p[0], abs=0.005)
    assert judged(((1.0,) * 20, (1.0,) * 20)).p[0] == 1  # nothing varies
    nothing = judged()
    assert len(nothing.p) == 0


def test_more_comparisons_cost_and_a_shared_group_costs_less():
    rng = np.random.default_rng(2)
    x, y = rng.normal(0.35, 1, 60), rng.normal(0, 1, 60)
    others = [(rng.normal(0, 1, 60), rng.normal(0, 1, 60)) for _ in range(9)]
    alone = judged((x, y))
    many = judged((x, y), *others)
    twins = judged(*[(x, y)] * 10, group=np.tile(np.arange(120), 10))
    assert alone.p[0] < many.p[0]
    assert twins.p[0] == pytest.approx(alone.p[0], abs=0.002)
    assert many.low[0] < alone.low[0]


def test_claims_hold_where_nothing_differs():
    rng, wrong = np.random.default_rng(3), 0
    for _ in range(60):
        result = judged(*[(rng.random(20) < 0.9, rng.random(60) < 0.9) for _ in range(4)])
        wrong += bool((result.p <= 0.05).any() or (result.low > 0).any())
    assert wrong <= 7  # 3 are expected at most


# -- the gate -------------------------------------------------------------------------------------


def bandit(n, gap, seed, states=1):
    """One decision per episode: b (.4) is better than a by `gap`."""
    rng = np.random.default_rng(seed)
    b = rng.random(n) < 0.4
    reward = (rng.random(n) < 0.4 + gap * b).astype(float)
    return dprl.from_arrays(
        episode=np.arange(n), state=[f"s{i % states}" for i in range(n)],
        action=np.where(b, "b", "a"), reward=reward,
    )  # fmt: skip


LEARNER = dprl.DPRLDiscrete(n_min=10, gamma=1.0)


@pytest.fixture(scope="module")
def gated():
    return dprl.gate(LEARNER, bandit(600, 0.25, 0), **LARGE)


def test_it_needs_no_range_and_is_never_called_proved(gated, tmp_path):
    certificate = gated.certificate
    assert gated.act("s0") == "b"
    assert certificate.grade == "large-sample"
    assert certificate.value_range is None
    assert certificate.trivial == -np.inf
    assert certificate.claim.startswith("Large-sample, not proved: with confidence of about 95 %")
    assert "was measured from 20 on" in certificate.claim
    (row,) = certificate.rows
    assert row["p"] <= 0.05
    assert 0 < row["advantage_low"] < row["low"] < 0.25
    assert "log10_e" not in row
    assert 0 < certificate.gain < 0.15
    words = certificate.details()
    assert words.startswith("Certificate (large-sample, swap-split, δ = 0.05)")
    assert "proved" not in words.replace("not proved", "")
    assert "large-sample" in repr(certificate)
    gated.save(tmp_path / "gated.dprl")
    again = dprl.TablePolicy.load(tmp_path / "gated.dprl")
    assert again.digest() == gated.digest()
    assert again.certificate.claim == certificate.claim
    facts = json.loads(json.dumps(certificate.to_dict(), allow_nan=False))
    assert (facts["grade"], facts["trivial"]) == ("large-sample", None)
    assert dprl.public_copy(gated).certificate.grade == "large-sample"


def test_pages_say_which_grade_it_is(gated, tmp_path):
    held = bandit(200, 0.25, 9)
    held = dprl.from_arrays(
        episode=[f"h{e}" for e in held.episodes], state=[held.states[s] for s in held.state],
        action=[held.actions[a] for a in held.action], reward=held.reward,
    )  # fmt: skip
    dprl.report(gated, held, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "What is proved" not in page
    assert "What is certified for large samples, and not proved" in page
    assert "<strong>Grade: large-sample.</strong>" in page
    assert "p-value of no benefit" in page
    assert "e-value" not in page


def test_small_samples_are_said_to_be_too_few():
    log = bandit(110, 0.55, 4)
    certificate = dprl.gate(dprl.DPRLDiscrete(n_min=5, gamma=1.0), log, **LARGE).certificate
    assert not certificate.vacuous
    assert min(certificate.rows[0]["n"], certificate.rows[0]["others"]) < 40
    facts = {**certificate.to_dict(), "approximation": {"measured_from": 20, "smallest": 12}}
    assert "Too few to be sure of the approximation" in dprl.Certificate.from_dict(facts).claim
    facts["approximation"] = {}
    with pytest.raises(dprl.PolicyError):
        dprl.Certificate.from_dict(facts)
    with pytest.raises(dprl.PolicyError):
        dprl.Certificate.from_dict({**certificate.to_dict(), "grade": "proved"})


def test_it_has_more_power_than_a_proof():
    log = bandit(900, 0.15, 5)
    assert dprl.gate(LEARNER, log, value_range=(0, 1)).certificate.vacuous
    assert not dprl.gate(LEARNER, log, **LARGE).certificate.vacuous
    assert dprl.gate(LEARNER, log, **LARGE, margin=0.1).certificate.vacuous
    assert dprl.gate(LEARNER, bandit(900, 0.0, 6), **LARGE).certificate.vacuous


def test_part_of_it_is_restated(gated):
    left = gated.certificate.restricted([])
    assert left.vacuous
    assert left.claim.startswith("VACUOUS (large-sample)")


def test_over_cells():
    rng = np.random.default_rng(0)
    n = 900
    place = rng.integers(2, size=n)
    b = rng.random(n) < 0.4
    log = dprl.from_arrays(
        episode=np.arange(n), state=(10.0 * place + rng.uniform(-0.4, 0.4, n))[:, None],
        feature_names=["x"], action=np.where(b, "b", "a"),
        reward=(rng.random(n) < 0.3 + 0.35 * (place == 0) * b).astype(float),
    )  # fmt: skip
    metric = dprl.Metric(scale="none")
    learner = dprl.DPRLContinuous(n_min=20, radius=1.0, gamma=1.0, metric=metric)
    gated = dprl.gate(learner, log, **LARGE)
    assert gated.act([[0.0], [10.0]]) == ["b", dprl.DEFER]
    words = gated.certificate.details()
    assert "the data show (large-sample)" in words
    assert "proved" not in words.replace("not proved", "")
    assert gated.certificate.cells["eps_star"] > 0


def two_arms(z, seed=0, n=602, arms=2):
    """A trial in which the last arm is better than the first by z of their standard errors."""
    rng = np.random.default_rng(seed)
    arm = rng.permutation(np.arange(n) % arms)
    y = rng.normal(size=n)
    for a in range(arms):
        y[arm == a] -= y[arm == a].mean()
    last, first = arm == arms - 1, arm == 0
    se = np.sqrt(sum(y[at].var(ddof=1) / at.sum() for at in (last, first)))
    return dprl.from_arrays(
        episode=range(n), state=["all"] * n, action=[f"arm{a}" for a in arm],
        reward=y + z * se * last,
    )  # fmt: skip


NAMED = {"mode": "in-sample", "states": ["all"], **LARGE}


@pytest.mark.parametrize("seed", range(3))
def test_pairs_that_were_fixed_beforehand_have_a_plain_corrected_test(seed):
    """Two arms and z = 2.83 (two-sided p .005): the whole log tests, and nothing is halved."""
    gated = dprl.gate(LEARNER, two_arms(2.83, seed), **NAMED)
    assert gated.act(["all"]) == ["arm1"]
    (row,) = gated.certificate.rows
    assert 0.001 < row["p"] <= 0.05
    assert gated.certificate.tested == (2,)  # arm1 and arm0: both were there to be tested
    assert not dprl.gate(LEARNER, two_arms(1.5, seed), **NAMED).certificate.rows


def test_what_is_tested_does_not_depend_on_returns():
    """All arms count, also those that look worse; else the correction would be for too few."""
    four = dprl.gate(LEARNER, two_arms(4.0, arms=4), avoid=False, **NAMED)
    assert four.certificate.tested == (4,)
    assert four.act(["all"]) == ["arm3"]


def test_refusals():
    log = bandit(100, 0.2, 0)
    with pytest.raises(dprl.ParameterError, match="certifies with the returns that proposed"):
        dprl.gate(LEARNER, log, mode="in-sample", **LARGE)
    with pytest.raises(dprl.ParameterError, match="'proved' or 'large-sample'"):
        dprl.gate(LEARNER, log, grade="sure")
    with pytest.raises(dprl.ParameterError, match="needs value_range"):
        dprl.gate(LEARNER, log)
    with pytest.raises(dprl.LogError, match="outside value_range"):
        dprl.gate(LEARNER, log, value_range=(0, 0.5), **LARGE)


def test_an_unrecorded_cause_is_for_proofs_of_suggestions():
    log = bandit(100, 0.2, 0)
    for how in (LARGE, {**LARGE, "mode": "policy"}, {"mode": "policy", "value_range": (0, 1)}):
        with pytest.raises(dprl.ParameterError, match="by proofs of single suggestions only") as e:
            dprl.gate(LEARNER, log, confounding=1.5, **how)
        assert "confounding=1.5" in str(e.value)
        assert "dprl.sensitivity" in str(e.value)


def test_no_strength_of_an_unrecorded_cause_is_stated(gated):
    certificate = gated.certificate
    assert "gamma_star" not in certificate.rows[0]
    assert "Γ" not in certificate.details()
    for wrong in ({"confounding": 2.0}, {"visits": "all"}):
        with pytest.raises(dprl.PolicyError):
            dprl.Certificate.from_dict({**certificate.to_dict(), **wrong})


def returning(n, seed):
    """Two visits of one state in each episode, or so: b is better than a, by .4 a visit."""
    rng = np.random.default_rng(seed)
    episode = np.repeat(np.arange(n), rng.geometric(0.5, n))
    N = len(episode)
    b = rng.random(N) < 0.4
    return dprl.from_arrays(
        episode=episode, state=["s0"] * N, action=np.where(b, "b", "a"),
        reward=(rng.random(N) < 0.3 + 0.4 * b).astype(float),
    )  # fmt: skip


def test_first_visits_count_with_and_without_the_markov_property():
    log = returning(1_200, 0)
    claimed = dprl.gate(LEARNER, log, **LARGE).certificate
    assert (claimed.visits, claimed.markov) == ("first", True)
    assert claimed.gain > 0
    assert any("for large samples a group's first visit" in words for words in claimed.assumptions)
    assert not any("All visits of an episode count" in words for words in claimed.assumptions)
    assert claimed.rows[0]["n"] + claimed.rows[0]["others"] <= 600  # a half, each of them once
    modest = dprl.gate(LEARNER, log, markov=False, **LARGE).certificate
    assert (modest.visits, modest.markov, modest.gain) == ("first", False, None)
    assert modest.rows == claimed.rows
    assert modest.claim.startswith("Large-sample, not proved: with confidence of about 95 %")
    assert "first visit of the state" in modest.claim
    assert "as a whole" not in modest.claim
    assert dprl.Certificate.from_dict(modest.to_dict()).claim == modest.claim


@pytest.mark.parametrize("how", [LARGE, {**LARGE, "mode": "policy"}])
def test_cut_episodes_need_a_declared_treatment(how):
    log = bandit(600, 0.25, 0)
    ended = np.where(np.arange(600) % 10 == 3, "cut", "terminal")
    cut = dprl.from_arrays(
        episode=np.arange(600), state=["s0"] * 600, action=[log.actions[a] for a in log.action],
        reward=log.reward, ended=ended,
    )  # fmt: skip
    for treatment, words in (
        (None, "no treatment is stated"), ("drop", "would be about those that are left"),
        ("ipcw", "weighted"), ("bootstrap", "bootstrapped"),
    ):  # fmt: skip
        learner = dprl.DPRLDiscrete(n_min=10, gamma=1.0, plan=False, cut=treatment)
        with pytest.raises(dprl.LogError, match=words):
            dprl.gate(learner, cut, **how)
    learner = dprl.DPRLDiscrete(n_min=10, gamma=1.0, cut="drop-unrelated")
    gated = dprl.gate(learner, cut, **how)
    words = " ".join(gated.certificate.assumptions)
    assert "neither on its length nor on its outcome (declared by the user)" in words


def test_the_command(run, tmp_path):
    log = bandit(600, 0.25, 0)
    path = tmp_path / "log.csv"
    rows = zip(log.episodes, log.state, log.action, log.reward, strict=True)
    lines = [f"{e},0,{log.states[s]},{log.actions[a]},{r}" for e, s, a, r in rows]
    path.write_text("\n".join(["episode,time,state,action,reward", *lines]))
    policy, out = tmp_path / "p.dprl", tmp_path / "g.dprl"
    columns = {name: name for name in ("episode", "time", "state", "action", "reward")}
    LEARNER.fit(dprl.read(path, **columns)).save(policy)
    code, _, err = run("gate", policy, path, "--out", out)
    assert code != 0
    assert "--lowest" in err
    assert not out.exists()
    code, shown, err = run("gate", policy, path, "--grade", "large-sample", "--out", out, "--json")
    assert code == 0, err
    assert json.loads(shown)["certificate"]["grade"] == "large-sample"
    assert "not proved" in run("changes", out)[1]
