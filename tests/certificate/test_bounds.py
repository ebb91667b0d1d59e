"""The published bounds: by hand, by law, and on logs whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dprl
from conftest import to_log
from dprl import envs
from dprl.certificate import (
    Bound,
    count_errors,
    count_morl_theorem_2,
    dprl_theorem_1,
    dprl_theorem_2,
    pqi_corollary_2,
    published,
    sound_theorem_1,
    sound_theorem_2,
    spibb_theorem_2,
    spibb_two_successors,
    visits_needed,
)
from dprl.learners.baselines import BC

HALF = {"gamma": 0.5, "v_max": 2.0, "delta": 0.1}
FOREST = {"n_min": 20, "gamma": 0.99, "v_max": 1.0, "delta": 0.05, "b": 0.02}


def morl(n_min, *, gamma, v_max, delta, v_min=0.0, size=4):
    """Count-MORL with n_min visits of every pair."""
    error = float(count_errors([n_min], size, 1, delta)[0])
    return count_morl_theorem_2(error, gamma=gamma, v_max=v_max, delta=delta, v_min=v_min)


EVERY = {  # of (size of the problem, n_min)
    "dprl 1": dprl_theorem_1,
    "dprl 2": lambda size, n, **g: dprl_theorem_2(size, n, 0.01, **g),
    "spibb": lambda size, n, **g: spibb_theorem_2(size, 4, n, 0.1, **g),
    "two successors": lambda size, n, **g: spibb_two_successors(size, 4, n, 0.1, **g),
    "beta": lambda size, n, **g: spibb_two_successors(size, 4, n, 0.1, beta=True, **g),
    "pqi": lambda size, n, **g: pqi_corollary_2(size, 4, n, b=0.02, **g),
    "count-morl": lambda size, n, **g: morl(n, size=size, **g),
    "sound": lambda size, n, **g: sound_theorem_1(size, 4, 10**9, 50, n, **g),
    "contrast": lambda size, n, **g: sound_theorem_1(size, 4, 10**9, 50, n, contrast=True, **g),
    "sound 2": lambda size, n, **g: sound_theorem_2(size, n, 1e-3, 50, **g),
}
bounds = pytest.mark.parametrize("name", EVERY)


# -- by hand ---------------------------------------------------------------------------------


def test_dprl_theorem_1_by_hand():
    """C = 4, δ = .1: ln 40 = 3.688879; over n_min = 9, .640215; times 2 / .5 = 4."""
    assert dprl_theorem_1(4, 9, **HALF).value == pytest.approx(-2.560861, abs=1e-6)


def test_dprl_theorem_2_by_hand():
    """Half the variance term of Theorem 1, and 3 ε_r."""
    value = dprl_theorem_2(4, 9, 0.2, **HALF).value
    assert value == pytest.approx(-2.560861 / math.sqrt(2) - 0.6, abs=1e-6)
    assert "NOT VALID" in str(dprl_theorem_2(4, 9, 0.2, **HALF))


def test_sound_theorem_2_by_hand():
    """M = 4, δ = .1: 2 ln 80 / 9, its root .986805; D = 2; and 3 ε_r = .6, both at 1 + ½ + ¼ steps."""
    value = sound_theorem_2(4, 9, 0.2, 3, **HALF).value
    assert value == pytest.approx(-1.75 * (2 * 0.986805 + 0.6), abs=1e-5)
    assert sound_theorem_2(4, 9, 0.2, **HALF).value == pytest.approx(value * 2 / 1.75)
    assert sound_theorem_2(0, 9, 0.2, **HALF).value == 0


def test_spibb_theorem_2_by_hand():
    """|S| = 3, |A| = 2: ln 120 + 3 ln 2 = ln 960; n_min = 2; 4 V / (1-γ) = 16; gain .25."""
    value = spibb_theorem_2(3, 2, 2, 0.25, **HALF).value
    assert value == pytest.approx(0.25 - 16 * math.sqrt(6.866933), abs=1e-5)


def test_two_successors_by_hand():
    """|S| = 3, |A| = 2: ln(8 · 36 / .1) = ln 2880; n_min = 2; 4 V / (1-γ) = 16; gain .25."""
    value = spibb_two_successors(3, 2, 2, 0.25, **HALF).value
    assert value == pytest.approx(0.25 - 16 * math.sqrt(math.log(2880)), abs=1e-9)


def test_two_successors_with_beta_by_hand():
    """n_min = 0 would be the uniform distribution on [0, 1]; two visits are Beta(2, 2).

    Its distribution function is 3x² - 2x³. At x = .1 it is .028, so a level of .028 gives
    1 - 2 · .1 = .8. The level is δ / (2 |S|² |A|²) = .056 / 2 with one state and one action.
    """
    given = {"gamma": 0.5, "v_max": 2.0, "delta": 0.056}
    assert spibb_two_successors(1, 1, 2, 0.25, beta=True, **given).value == pytest.approx(
        0.25 - 16 * 0.8
    )


def _fails(n, delta, beta):
    """How often the share of one of two outcomes, learned from n visits, is further off than stated."""
    from scipy.stats import binom

    given = {"gamma": 0.5, "v_max": 0.125, "delta": delta}  # 4 V / (1-γ) = 1
    error = -spibb_two_successors(1, 1, n, 0.0, beta=beta, **given).value
    k, shares = np.arange(n + 1), np.linspace(0, 1, 201)
    return np.array([binom.pmf(k, n, p)[2 * np.abs(k / n - p) > error].sum() for p in shares])


@pytest.mark.parametrize(("n", "missed"), [(4, 0.307), (11, 0.129), (60, 0.070), (1_000, 0.054)])
def test_two_successors_hold_for_every_share_and_beta_does_not(n, missed):
    """The interval of beta, as printed, misses the true share more often than δ with few visits."""
    assert _fails(n, 0.05, beta=False).max() <= 0.05
    assert _fails(n, 0.05, beta=True).max() == pytest.approx(missed, abs=1e-3)
    assert "NOT VALID for few visits" in spibb_two_successors(2, 2, n, 0.0, beta=True, **HALF).note


@pytest.mark.parametrize(("states", "actions"), [(25, 4), (25, 5), (376, 4)])
def test_two_successors_promise_the_same_from_fewer_visits(states, actions):
    given = {"gamma": 0.95, "v_max": 1.0, "delta": 0.1}
    visits = [
        visits_needed(1.0, states, actions, interval=interval, **given)
        for interval in ("weissman", "two successors", "beta")
    ]
    assert visits == sorted(visits, reverse=True)
    ratio = math.log(8 * (states * actions) ** 2 / 0.1) / (
        math.log(2 * states * actions / 0.1) + states * math.log(2)
    )
    assert visits[1] / visits[0] == pytest.approx(ratio, rel=1e-4)
    spibb = [
        spibb_theorem_2(states, actions, visits[0], 0.0, **given),
        spibb_two_successors(states, actions, visits[1], 0.0, **given),
        spibb_two_successors(states, actions, visits[2], 0.0, beta=True, **given),
    ]
    assert all(-1.0 <= bound.value <= -0.999 for bound in spibb)
    assert spibb_theorem_2(states, actions, visits[0] - 1, 0.0, **given).value < -1
    with pytest.raises(dprl.ParameterError, match="interval"):
        visits_needed(1.0, states, actions, interval="normal", **given)


def test_pqi_corollary_2_by_hand():
    """|S||A|/n = 6/24 = 1/4, plus its root 1/2: .75; V / (b (1-γ)³) = 2 / (.1 / 8) = 160."""
    assert pqi_corollary_2(3, 2, 24, b=0.1, **HALF).value == pytest.approx(-120.0)


def test_count_morl_theorem_2_by_hand():
    """ln 60 = 4.094345: n = 2 and n = 0 are worth 1, n = 100 is worth √.08188689 = .286159."""
    errors = count_errors([[2, 0], [100, 0]], 3, 2, 0.1)
    assert errors.ravel() == pytest.approx([1, 1, 0.286159, 1], abs=1e-6)
    assert count_morl_theorem_2(0.25, **HALF).value == pytest.approx(-0.5 * 2 * 4 * 0.25)


def test_sound_theorem_1_by_hand():
    """W = 1 + .5 + .25 = 1.75, D = 3, C̄ = min(6, ⌊5·3/4⌋) = 3."""
    given = {**HALF, "v_min": -1.0}
    value = sound_theorem_1(3, 2, 5, 3, 4, **given).value
    assert value == pytest.approx(-1.75 * 3 * math.sqrt(2 * math.log(60) / 4))
    value = sound_theorem_1(3, 2, 5, 3, 4, contrast=True, **given).value
    assert value == pytest.approx(-1.75 * 3 * math.sqrt(math.log(30) / 4))
    few = sound_theorem_1(1, 2, 5, 3, 4, **given).value
    assert few == pytest.approx(-1.75 * 3 * math.sqrt(2 * math.log(40) / 4))


def test_sound_theorem_1_without_discount_and_without_horizon():
    one = {**HALF, "gamma": 1.0}
    value = sound_theorem_1(3, 2, 5, 3, 4, contrast=True, **one).value
    assert value == pytest.approx(-3 * 2 * math.sqrt(math.log(30) / 4))
    near = sound_theorem_1(3, 2, 5, 3, 4, contrast=True, **{**one, "gamma": 1 - 1e-12}).value
    assert near == pytest.approx(value, rel=1e-9)
    endless = sound_theorem_1(3, 2, 5, math.inf, 4, contrast=True, **HALF).value
    assert endless == pytest.approx(-2 * 2 * math.sqrt(math.log(60) / 4))
    assert sound_theorem_1(3, 2, 5, math.inf, 4, **one).value == -math.inf


# -- by law ----------------------------------------------------------------------------------


@bounds
@given(
    size=st.integers(1, 10**6), n=st.integers(1, 10**6), more=st.integers(1, 10**6),
    gamma=st.floats(0.01, 0.9999), delta=st.floats(1e-12, 0.5),
)  # fmt: skip
def test_more_data_is_tighter_and_less_doubt_looser(name, size, n, more, gamma, delta):
    given = {"gamma": gamma, "v_max": 1.0}
    bound = EVERY[name](size, n, delta=delta, **given)
    assert math.isfinite(bound.value)
    assert bound.value <= EVERY[name](size, n + more, delta=delta, **given).value
    assert EVERY[name](size, n, delta=delta / 2, **given).value <= bound.value
    assert EVERY[name](size + more, n, delta=delta, **given).value <= bound.value
    assert bound.vacuous == (bound.value <= bound.trivial == -1)
    assert ("VACUOUS" in str(bound)) == bound.vacuous


@pytest.mark.parametrize(
    "name", sorted(set(EVERY) - {"dprl 2", "sound 2", "spibb", "two successors", "beta"})
)  # ε_r, gain stay put
@given(scale=st.floats(1e-6, 1e6))
def test_bounds_scale_with_the_reward(name, scale):
    one = EVERY[name](40, 30, gamma=0.9, v_max=1.0, delta=0.05)
    many = EVERY[name](40, 30, gamma=0.9, v_max=scale, delta=0.05)
    assert many.value == pytest.approx(scale * one.value, rel=1e-9)
    assert many.vacuous == one.vacuous


@pytest.mark.parametrize("states", [10_000, 10**6])
@bounds
def test_large_problems_do_not_overflow(name, states):
    bound = EVERY[name](states, 10, gamma=0.99, v_max=1.0, delta=1e-300)
    assert math.isfinite(bound.value)
    assert bound.vacuous


def test_spibb_grows_with_the_root_of_the_states():
    small, large = (
        spibb_theorem_2(S, 25, 10, 0.0, gamma=0.9, v_max=1.0, delta=0.05).value
        for S in (10_000, 10**6)
    )
    assert large / small == pytest.approx(10, rel=1e-2)


def test_nothing_to_change_costs_nothing():
    for gamma in (0.5, 1.0):
        for bound in (
            dprl_theorem_1(0, 5, gamma=gamma, v_max=1, delta=0.1),
            dprl_theorem_2(0, 5, 0.3, gamma=gamma, v_max=1, delta=0.1),
            sound_theorem_1(3, 2, 2, 3, 50, gamma=gamma, v_max=1, delta=0.1),
            sound_theorem_1(3, 2, 2, 3, math.inf, gamma=gamma, v_max=1, delta=0.1),
        ):
            assert bound.value == 0
            assert math.copysign(1, bound.value) == 1
            assert not bound.vacuous


@bounds
def test_without_discount_published_bounds_claim_nothing(name):
    bound = EVERY[name](10, 10**8, gamma=1.0, v_max=1.0, delta=0.05)
    if name in ("sound", "contrast", "sound 2"):
        assert -1 < bound.value < 0
    else:
        assert bound.value == -math.inf
        assert "VACUOUS" in str(bound)


def test_vacuous_is_said():
    bound = Bound("mine", -0.3, -1.0, 0.05, "by hand")
    assert not bound.vacuous
    assert str(bound) == (
        "mine: ρ(π) - ρ(b) >= -0.3 with probability 0.95 (the trivial bound is -1)\n  by hand"
    )
    assert Bound("mine", -1.0, -1.0, 0.05, "by hand").vacuous
    assert "(VACUOUS: the trivial bound is -1)" in str(Bound("mine", -2.0, -1.0, 0.05, ""))
    assert Bound("mine", math.nan, -1.0, 0.05, "").vacuous


def test_the_trivial_bound_is_the_width_of_the_range():
    bound = dprl_theorem_1(4, 9, gamma=0.5, v_max=1.0, v_min=-3.0, delta=0.1)
    assert bound.trivial == -4
    assert bound.value == dprl_theorem_1(4, 9, gamma=0.5, v_max=3.0, delta=0.1).value


# -- of a log and a policy -------------------------------------------------------------------


def occupancy(log, pi, gamma):
    """η̂ by power iteration on dense counts, and n(s,a)."""
    S, A = pi.shape
    s, a = log.codes(), log.action
    n, moves, start = np.zeros((S, A)), np.zeros((S, A, S)), np.zeros(S)
    for first, last in zip(log.starts[:-1], log.starts[1:], strict=True):
        start[s[first]] += 1 / log.n_episodes
        for t in range(first, last):
            n[s[t], a[t]] += 1
            if t + 1 < last:
                moves[s[t], a[t], s[t + 1]] += 1
    moves /= np.maximum(n, 1)[..., None]
    now, total = start[:, None] * pi, np.zeros((S, A))
    for _ in range(3000):
        total += now
        now = gamma * np.einsum("sa,sat->t", now, moves)[:, None] * pi
    return (1 - gamma) * total, n, total  # the rest of the mass is past the end, known exactly


@pytest.mark.parametrize(("name", "n"), [("forest", 300), ("rooms", 100)])
def test_published_on_logs(name, n):
    env = getattr(envs, name)()
    log = env.sample(n, seed=2)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=0.99, cut="terminal").fit(log)
    table = published(log, policy, **FOREST, cut="terminal")
    names = ["DPRL Theorem 1", "SPIBB Theorem 2", "SPIBB, two successors",
             "SPIBB, two successors, beta", "PQI Corollary 2", "Count-MORL Theorem 2"]  # fmt: skip
    assert table["bound"] == names
    assert table["trivial"] == [-1.0] * 6
    S, A = log.n_states, log.n_actions
    b = BC().fit(log).pi
    pi = policy.probabilities(log.states, behavior=b)
    eta, visits, _ = occupancy(log, pi, 0.99)
    pairs = [
        {(s, a) for s, a in zip(*rows, strict=True)}
        for rows in (
            (log.codes()[i:j].tolist(), log.action[i:j].tolist())
            for i, j in zip(log.starts[:-1], log.starts[1:], strict=True)
        )
    ]
    seen = [pair for episode in pairs for pair in episode]
    C = sum(seen.count(pair) >= 20 for pair in set(seen))
    error = (eta * np.minimum(1, np.sqrt(2 / np.maximum(visits, 1) * np.log(S * A / 0.05)))).sum()
    assert table["value"][0] == pytest.approx(-100 * math.sqrt(math.log(C / 0.05) / 20))
    assert table["value"][4] == pytest.approx(
        -1e6 / 0.02 * (S * A / log.n_steps + math.sqrt(S * A / log.n_steps))
    )
    assert table["value"][5] == pytest.approx(-0.99e4 * error, rel=1e-6)
    mean = np.bincount(log.codes() * A + log.action, log.reward, S * A) / np.maximum(
        visits.ravel(), 1
    )
    gain = (mean * (occupancy(log, pi, 0.99)[2] - occupancy(log, b, 0.99)[2]).ravel()).sum()
    given = {"gamma": 0.99, "v_max": 1.0, "delta": 0.05}
    assert table["value"][1] == pytest.approx(
        spibb_theorem_2(S, A, 20, gain, **given).value, abs=1e-6
    )
    assert f"{C:,} pairs have n(s,a) >= n_min = 20." in str(table)
    assert all(table["vacuous"])


def test_every_kind_of_policy():
    log = envs.forest().sample(200, seed=0)
    behavior = BC().fit(log)
    never = dprl.DPRLDiscrete(n_min=math.inf, gamma=0.99).fit(log)
    tables = [published(log, p, **FOREST) for p in (behavior, behavior.pi, never)]
    for table in tables:
        assert table["value"] == pytest.approx(tables[0]["value"], rel=1e-9)
        assert "maximum-likelihood MDP: +0.0000" in str(table).replace("-0.0000", "+0.0000")
    nobody = published(log, never, **{**FOREST, "n_min": math.inf})
    assert nobody["value"][0] == 0
    assert nobody["vacuous"] == [False, False, False, False, True, True]


def test_a_policy_with_its_actions_in_another_order():
    forth = to_log([[("s", "a", 0.0)], [("s", "b", 1.0)], [("s", "c", 0.0)]] * 20)
    back = to_log([[("s", "b", 1.0)], [("s", "a", 0.0)]] * 20)
    policy = dprl.DPRLDiscrete(n_min=5, gamma=0.9).fit(back)
    given = {**FOREST, "gamma": 0.9}
    table = published(forth, policy, **given)
    array = published(forth, np.array([[0.0, 1.0, 0.0]]), **given)
    assert table["value"] == pytest.approx(array["value"])
    assert "+0.6667" in str(table)


def test_enough_data_on_a_small_problem_is_not_vacuous():
    log = to_log([[("s", "a", 0.0)], [("s", "b", 1.0)]] * 2000)
    policy = dprl.DPRLDiscrete(n_min=2000, gamma=0.1).fit(log)
    table = published(log, policy, n_min=2000, gamma=0.1, v_max=1.0, delta=0.05, b=0.4)
    assert table["vacuous"] == [False] * 6
    assert table["value"][1] > 0  # SPIBB sees the gain of .5 and keeps some of it


def test_without_discount_nothing_is_claimed_and_nothing_raised():
    log = envs.care_pathway().sample(300, seed=0)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
    table = published(log, policy, **{**FOREST, "gamma": 1.0})
    assert table["value"] == [-math.inf] * 6
    assert table["vacuous"] == [True] * 6
    assert "at γ = 1 these bounds claim nothing" in str(table)


def test_cut_episodes_are_treated_as_asked():
    rows = [[("s", "a", 1.0)], [("s", "b", 0.0), ("s", "b", 0.0)]] * 10
    log = to_log(rows, cut=[False, True] * 10)
    pi = np.array([[0.5, 0.5]])
    with pytest.warns(dprl.CutWarning, match="10 of 20 episodes"):
        table = published(log, pi, **FOREST)
    assert table["value"] == published(log, pi, **FOREST, cut="terminal")["value"]
    with pytest.raises(
        dprl.LogError, match="10 of 20 episodes were cut and would be left out: a bo"
    ):
        published(log, pi, **FOREST, cut="drop")
    dropped = published(log, pi, **FOREST, cut="drop-unrelated")
    assert dropped["value"][4] == pytest.approx(-1e6 / 0.02 * (0.2 + math.sqrt(0.2)))


# -- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 0}, r"delta must be a number in \(0, 1\)"),
        ({"delta": 1.0}, r"delta must be a number in \(0, 1\)"),
        ({"delta": math.nan}, r"delta must be a number in \(0, 1\)"),
        ({"gamma": 0}, "gamma must be a number in"),
        ({"gamma": 1.01}, "gamma must be a number in"),
        ({"v_max": 0.0}, "v_min must be below v_max"),
        ({"v_max": math.inf}, "v_min must be below v_max"),
        ({"v_min": 2.0}, "v_min must be below v_max"),
    ],
)
@bounds
def test_bad_parameters(name, change, message):
    for size in (1, 10):
        with pytest.raises(dprl.ParameterError, match=message):
            EVERY[name](size, 5, **{"gamma": 0.9, "v_max": 1.0, "delta": 0.05, **change})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dprl_theorem_1(-1, 5, **HALF), "pairs must be a whole number, at least 0"),
        (lambda: dprl_theorem_1(0, 5, **{**HALF, "gamma": 2}), "gamma must be a number in"),
        (lambda: dprl_theorem_1(0, 5, **{**HALF, "delta": 2}), "delta must be a number in"),
        (lambda: dprl_theorem_1(2.5, 5, **HALF), "pairs must be a whole number"),
        (lambda: dprl_theorem_1(True, 5, **HALF), "pairs must be a whole number"),
        (lambda: dprl_theorem_1(2, 0, **HALF), "n_min must be a whole number"),
        (lambda: dprl_theorem_2(2, 5, -0.1, **HALF), r"eps_r must be a number in \[0, infinity\)"),
        (lambda: spibb_theorem_2(0, 2, 5, 0.0, **HALF), "states must be a whole number"),
        (lambda: spibb_theorem_2(3, 2, 5, math.nan, **HALF), "gain must be a number in"),
        (lambda: pqi_corollary_2(3, 2, 0, b=0.1, **HALF), "transitions must be a whole number"),
        (lambda: pqi_corollary_2(3, 2, 10, b=0, **HALF), r"b must be a number in \(0, 1\]"),
        (lambda: count_morl_theorem_2(1.5, **HALF), r"error must be a number in \[0, 1\]"),
        (lambda: count_errors([-1], 3, 2, 0.1), "visits must be counts"),
        (lambda: sound_theorem_1(3, 2, 5, 0, 4, **HALF), "horizon must be a whole number"),
        (lambda: sound_theorem_1(3, 2, 0, 3, 4, **HALF), "episodes must be a whole number"),
    ],
)
def test_bad_numbers(call, message):
    with pytest.raises(dprl.ParameterError, match=message):
        call()


@pytest.mark.parametrize(
    "policy", [np.ones((2, 2)), np.array([[0.9, 0.9]]), np.array([[1.5, -0.5]]), "a", None]
)
def test_bad_policies(policy):
    log = to_log([[("s", "a", 1.0)], [("s", "b", 0.0)]])
    with pytest.raises(dprl.ParameterError, match="array \\(1, 2\\) of distributions"):
        published(log, policy, **FOREST)
