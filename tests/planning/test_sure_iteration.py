"""Policy iteration among surely better actions: against a slow oracle, laws, circles, halves."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_confident import DOUBTS, Slow, log_of, random_visits

from conftest import to_log
from dprl import envs
from dprl.errors import PlanError
from dprl.planning import sure_iteration
from dprl.planning.advantages import Gain, gain
from dprl.planning.model import count_transitions
from dprl.planning.sure_iteration import PlanModel

GAMMAS = (1.0, 0.9)


def workshop(visits, gamma, least=2, **options):
    """The model of `random_visits`, fast and slow."""
    slow = Slow(*visits, gamma)
    table = count_transitions(log_of(*visits))
    return PlanModel(table, slow.m, gamma, slow.m >= least, **options), slow


def choose(model, risk):
    """The member of the family whose own gain has the largest lower end, and what it took."""
    best, low, used = (model.usual, None, None), 0.0, np.zeros(3, int)
    for doubt in sure_iteration.DOUBTS:
        here, *work = model.iterate(doubt)
        used += work
        if (here.choice >= 0).any():
            estimate = gain(here, model.usual, model.groups)
            if estimate.low(risk) > low:
                best, low = (here, estimate, doubt), estimate.low(risk)
    rounds, solved, asked = used.tolist()
    names = dict(zip(("policy", "gain", "doubt"), best, strict=True))
    return SimpleNamespace(**names, rounds=rounds, solved=solved, asked=asked)


# -- against the oracle ----------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", GAMMAS)
def test_choices_and_gains_equal_those_of_the_oracle(gamma):
    assert DOUBTS == sure_iteration.DOUBTS
    spoke = circled = 0
    for seed in range(30):
        model, slow = workshop(random_visits(seed), gamma, least=2 + seed % 2)
        sure = choose(model, 0.1)
        circled += model.circling.any()
        policy, expected, doubt = slow.choose(0.1, slow.m >= 2 + seed % 2)
        assert np.array_equal(sure.policy.choice, policy.choice), seed
        assert sure.doubt == doubt
        assert (sure.gain is None) == (expected is None)
        if expected is not None:
            mine = (sure.gain.estimate, sure.gain.se, sure.gain.df)
            assert mine == pytest.approx(expected, rel=1e-9)
            spoke += 1
    assert spoke >= 10
    assert (circled > 0) == (gamma == 1)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_every_member_of_the_family_equals_that_of_the_oracle(gamma):
    for seed in range(100, 112):
        model, slow = workshop(random_visits(seed), gamma)
        for doubt in DOUBTS:
            here = model.iterate(doubt)[0]
            assert np.array_equal(here.choice, slow.iterate(doubt, slow.m >= 2).choice)


def test_the_lower_end_of_a_gain():
    known = Gain(2.0, 0.5, 9.0)
    assert known.low(0.05) == pytest.approx(2 - 1.8331129 * 0.5, abs=1e-6)
    assert known.low(0.05, 1.5) == pytest.approx(2 - (1.5 + 1.8331129) * 0.5, abs=1e-6)


# -- skipping, updating, drawing -------------------------------------------------------------------


@given(seed=st.integers(1_000, 10**6), gamma=st.sampled_from(GAMMAS), risk=st.floats(1e-4, 0.5))
def test_leaving_out_pairs_that_cannot_pass_changes_nothing(seed, gamma, risk):
    visits = random_visits(seed)
    fast, _ = workshop(visits, gamma)
    full, _ = workshop(visits, gamma, skip=False)
    one, other = choose(fast, risk), choose(full, risk)
    assert np.array_equal(one.policy.choice, other.policy.choice)
    assert np.array_equal(one.policy.V, other.policy.V)
    assert (one.gain, one.doubt, one.rounds) == (other.gain, other.doubt, other.rounds)
    assert other.solved == other.asked
    assert one.asked == other.asked
    assert one.solved <= one.asked


def test_leaving_out_saves_most_of_the_work_on_a_grid():
    table = count_transitions(envs.small_grid().sample(50, seed=1))
    m = table.n
    fast, full = (PlanModel(table, m, 0.99, m >= 3, skip=skip) for skip in (True, False))
    one, other = choose(fast, 0.01), choose(full, 0.01)
    assert np.array_equal(one.policy.choice, other.policy.choice)
    assert one.solved < 0.6 * other.solved


@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_settled_policy_equals_the_same_policy_computed_anew(gamma, monkeypatch):
    monkeypatch.setattr(sure_iteration, "SMALL", 0)  # the inverse is updated from round to round
    for seed in range(10):
        model, _ = workshop(random_visits(seed), gamma)
        sure = choose(model, 0.1)
        anew = model.evaluate(sure.policy.choice)
        assert np.allclose(sure.policy.V, anew.V, rtol=1e-10, atol=1e-12)
        assert np.allclose(sure.policy.M, anew.M, rtol=1e-9, atol=1e-11)


def test_draws_choose_no_more_than_the_inverse_and_their_gain_is_the_same():
    fewer = 0
    for seed in range(5):
        table = count_transitions(envs.care_pathway().sample(150, seed=seed))
        drawn, exact = (
            PlanModel(table, table.n, 1.0, table.n >= 3, dense=dense) for dense in (0, 10**6)
        )
        for doubt in (0.25, 0.05, 0.01):
            one, other = drawn.iterate(doubt)[0], exact.iterate(doubt)[0]
            fewer += (other.choice >= 0).sum() - (one.choice >= 0).sum()
        choice = exact.iterate(0.25)[0].choice
        gains = [gain(model.evaluate(choice), model.usual, table.n) for model in (drawn, exact)]
        assert gains[0].estimate == pytest.approx(gains[1].estimate, rel=1e-9)
        assert gains[0].se == pytest.approx(gains[1].se, rel=1e-9)
        assert gains[0].df == pytest.approx(gains[1].df, rel=1e-9)
        assert drawn.value(choice) == pytest.approx(exact.value(choice), rel=1e-9)
    assert fewer > 0


# -- laws ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", GAMMAS)
def test_other_names_of_states_and_actions_give_the_same_policy_with_other_names(gamma):
    for seed in range(20):
        episodes, groups, S, A = random_visits(seed)
        rng = np.random.default_rng(seed)
        s_to, a_to = rng.permutation(S), rng.permutation(A)
        renamed = [[(int(s_to[s]), int(a_to[a]), r) for s, a, r in e] for e in episodes]
        one = choose(workshop((episodes, groups, S, A), gamma)[0], 0.1)
        other = choose(workshop((renamed, groups, S, A), gamma)[0], 0.1)
        choice = one.policy.choice
        expected = np.full(S, -1)
        expected[s_to] = np.where(choice >= 0, a_to[np.maximum(choice, 0)], -1)
        assert np.array_equal(other.policy.choice, expected), seed
        assert np.allclose(other.policy.V[s_to], one.policy.V, rtol=1e-9, atol=1e-9)
        if one.gain is not None:
            assert other.gain.se == pytest.approx(one.gain.se, rel=1e-9)


@pytest.mark.parametrize("factor", [4.0, 3.7, 1e-6])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_unit_of_rewards_does_not_matter(gamma, factor):
    for seed in range(12):
        episodes, groups, S, A = random_visits(seed)
        scaled = [[(s, a, factor * r) for s, a, r in e] for e in episodes]
        one = choose(workshop((episodes, groups, S, A), gamma)[0], 0.1)
        other = choose(workshop((scaled, groups, S, A), gamma)[0], 0.1)
        assert np.array_equal(one.policy.choice, other.policy.choice)
        assert one.doubt == other.doubt
        assert np.allclose(other.policy.delta, factor * one.policy.delta, atol=1e-9 * factor)
        if one.gain is not None:
            expected = (factor * one.gain.estimate, factor * one.gain.se, one.gain.df)
            assert (other.gain.estimate, other.gain.se, other.gain.df) == pytest.approx(expected)


def test_less_doubt_never_asks_for_less():
    model, slow = workshop(random_visits(8), 0.9)
    bars = [model.kappa(doubt)[slow.m >= 2] for doubt in DOUBTS]
    assert all((one <= other).all() for one, other in itertools.pairwise(bars))
    assert np.isinf(model.kappa(0.1)[slow.m < 2]).all()
    assert (model.kappa(0.5) >= 0).all()


# -- circles without discount ----------------------------------------------------------------------

PROFIT = [[("s", "stay", 1.0), ("s", "stay", 1.0), ("s", "go", 0.0)]] * 6
LOSS = [[("s", "stay", -1.0), ("s", "stay", -1.0), ("s", "go", 0.0)]] * 6


def shop_of(episodes, gamma=1.0):
    table = count_transitions(to_log(episodes))
    return PlanModel(table, table.n, gamma, table.n >= 2)


def test_a_state_that_would_circle_at_a_profit_is_deferred():
    circles = shop_of(PROFIT)
    with pytest.raises(PlanError, match="nothing ever ends") as caught:
        circles.evaluate(np.array([1]))
    assert caught.value.stuck == [0]
    assert str(caught.value).count("\n") == 2
    assert choose(circles, 0.1).policy.choice.tolist() == [-1]
    assert circles.circling.tolist() == [True]
    # states and actions are numbered in the order of their labels: go is 0, stay is 1
    assert choose(shop_of(PROFIT, 0.9), 0.1).policy.choice.tolist() == [1]
    assert choose(shop_of(LOSS), 0.1).policy.choice.tolist() == [0]
    # only the circle is deferred
    both = shop_of([*PROFIT, *([[("t", "old", 0.0)], [("t", "new", 1.0)]] * 6)])
    t = both.table.n.shape[1]
    assert choose(both, 0.1).policy.choice.tolist() == [-1, 1 if t > 2 else 0]
    assert both.circling.tolist() == [True, False]


def test_what_a_choice_brings_where_it_circles():
    stay, go = np.array([1]), np.array([0])
    assert shop_of(PROFIT).brings(stay) is None
    assert shop_of(PROFIT).brings(go) == pytest.approx(-2, abs=1e-6)
    assert shop_of(LOSS).brings(stay) < -1e6
    nothing = [[("s", "stay", 0.0), ("s", "go", 3.0)]] * 4
    assert shop_of(nothing).brings(stay) == pytest.approx(-3, abs=1e-6)


def test_an_action_that_a_half_never_saw_counts_there_as_usual_practice():
    for reward in (-5.0, 5.0):
        table = count_transitions(to_log([[("s", "a", reward)]] * 4 + [[("t", "b", 1.0)]]))
        model = PlanModel(table, table.n, 1.0, table.n >= 2)
        assert model.brings(np.array([1, -1])) == 0


def test_suggestions_are_mixed_with_usual_practice():
    for seed in range(0, 20, 2):
        model, slow = workshop(random_visits(seed), 0.9)
        rng = np.random.default_rng(seed)
        for _ in range(4):
            choice = rng.integers(-1, slow.A, slow.S)
            for kappa in (0.0, 3.0, 10.0):
                expected = slow.brings(choice, kappa)
                assert model.brings(choice, kappa) == pytest.approx(expected, abs=1e-6)
    stays = shop_of(PROFIT)  # mixed with leaving it ends, and has a value
    assert stays.brings(np.array([1])) is None
    assert stays.brings(np.array([1]), 3.0) > 0


def test_tables_that_are_small_and_that_are_not_judge_alike(monkeypatch):
    model, slow = workshop(random_visits(3), 0.9)
    choice = np.random.default_rng(3).integers(-1, slow.A, slow.S)
    known = model.brings(choice, 3.0)
    small = choose(model, 0.25)
    monkeypatch.setattr(sure_iteration, "SMALL", 0)
    other = workshop(random_visits(3), 0.9)[0]
    assert isinstance(model.usual.A, np.ndarray)
    assert not isinstance(other.usual.A, np.ndarray)
    assert other.brings(choice, 3.0) == pytest.approx(known, abs=1e-9)
    large = choose(other, 0.25)
    assert np.array_equal(small.policy.choice, large.policy.choice)
    for name in ("V", "Q", "e", "v", "M"):
        one, another = getattr(small.policy, name), getattr(large.policy, name)
        assert np.allclose(one, another, rtol=1e-10, atol=1e-12), name


def test_with_few_states_every_policy_is_evaluated_once():
    model, slow = workshop(random_visits(4), 0.9)
    choice = np.random.default_rng(4).integers(-1, slow.A, slow.S)
    assert model.evaluate(choice.copy()) is model.evaluate(choice, errors=False)
    assert model.evaluate(choice).M is not None


def test_what_may_not_be_issued_defers():
    model = shop_of([*PROFIT, *([[("t", "old", 0.0)], [("t", "new", 1.0)]] * 3), [("u", "go", 1)]])
    states = model.table.n.shape[0]
    for action in range(model.table.n.shape[1]):
        choice = model.admitted(np.full(states, action))
        for s in np.flatnonzero(choice >= 0):
            assert model.eligible[s, action]
            assert model.table.n[s, action] < model.table.n[s].sum()
        model.evaluate(choice)  # it comes to an end
    assert model.habit.choice[2] == -1  # the only action there is


def test_from_always_the_usual_action():
    for seed in range(0, 30, 3):
        model, slow = workshop(random_visits(seed), 0.9)
        usual = model.habit.choice
        for doubt in (0.35, 0.05):
            expected = slow.iterate(doubt, slow.m >= 2, usual)
            here = model.iterate(doubt, model.habit)[0]
            assert np.array_equal(here.choice, expected.choice)
