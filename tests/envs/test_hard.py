"""Worlds that punish: their logs, and their truths against simulations and closed forms."""

import numpy as np
import pytest

import dprl
from dprl.envs import hard
from dprl.envs.hard import WORLDS


def rule(world, cut=0.0):
    """Do the first action where the first feature is above a number (or east); otherwise defer."""
    where = {"feature": world.feature_names[0]}
    where |= {"kind": "in", "labels": ["east"]} if world.levels else {"kind": "above", "value": cut}
    return dprl.RulePolicy(
        states=(), actions=world.actions, parameters={}, provenance={},
        feature_names=world.feature_names, levels=world.levels,
        rules=({"conditions": [where], "suggested": world.actions[0]},),
    )  # fmt: skip


def returns(log, gamma):
    step = np.arange(log.n_steps) - np.repeat(log.starts[:-1], log.lengths)
    return np.add.reduceat(log.reward * gamma**step, log.starts[:-1])


def by_group(log, returned):
    return np.bincount(log.group, returned) / np.bincount(log.group)


@pytest.mark.parametrize("name", WORLDS)
def test_logs_have_the_value_that_is_stated(name):
    listed = WORLDS[name]
    world = listed.make()
    log = world.sample(max(listed.groups, 1_000), seed=3)
    mean = by_group(log, returns(log, world.gamma))
    error = mean.std() / np.sqrt(len(mean))
    assert abs(mean.mean() - world.value()) < 4.5 * error + 0.03 * mean.std()
    if world.value_range is not None:
        low, high = world.value_range
        returned = returns(log, world.gamma)
        assert low <= returned.min()
        assert returned.max() <= high
    again = world.sample(20, seed=5)
    assert again.digest() == world.sample(20, seed=5).digest() != world.sample(20, seed=6).digest()


@pytest.mark.parametrize("name", [n for n in WORLDS if n.startswith("null ")])
def test_where_nothing_works_nothing_is_gained(name):
    world = WORLDS[name].make()
    if world.states:
        policy = np.tile(np.eye(len(world.actions))[0], (len(world.states), 1))
    else:
        policy = rule(world)
    assert world.gain(policy).value == pytest.approx(0, abs=1e-9)
    assert world.gain(policy).error < 1e-9


def played(world, n, seed, choose):
    """Episodes one after the other, a slow simulation: choose(episode, step, shown, b, rng) → action."""
    rng = np.random.default_rng(seed)
    X = world.draw(rng, n)
    total = np.zeros(len(X))
    for e, causes in enumerate(X):
        m = 0
        for t, x in enumerate(causes):
            b, R, shown = (f(x[None], t, m)[0] for f in (world.practice, world.pay, world.show))
            a = choose(e, t, shown, b, rng)
            total[e] += world.gamma**t * R[a]
            m = 0 if world.remember is None else world.remember[m][a]
    return total


def usual(e, t, shown, b, rng):
    return int(rng.random() > b[0])


SIMULATED = {
    "doses": hard.dose_features,
    "doses recorded": lambda: hard.dose_features(shown=True, third=-2.0),
    "late": lambda: hard.late(steps=3),
    "early": lambda: hard.late(steps=3, last=False),
    "surrogate": lambda: hard.surrogate(steps=3),
    "effect": lambda: hard.effect("linear"),
}


@pytest.mark.parametrize("name", SIMULATED)
def test_gains_are_those_of_a_simulation(name):
    world = SIMULATED[name]()
    truth = world.gain(rule(world))

    def follow(e, t, shown, b, rng):
        return 0 if shown[0] > 0 else usual(e, t, shown, b, rng)

    one, other = (played(world, 2_000, 7, choose) for choose in (follow, usual))
    error = np.sqrt((one.var() + other.var()) / 2_000)
    assert abs(one.mean() - other.mean() - truth.value) < 4 * error + 3 * truth.error


@pytest.mark.parametrize("name", ["doses", "late", "early"])
def test_the_gain_of_the_first_suggestion_alone_is_that_of_a_simulation(name):
    world = SIMULATED[name]()
    truth = world.gain(rule(world), once=True)
    done = {}

    def follow(e, t, shown, b, rng):
        if shown[0] > 0 and e not in done:
            done[e] = True
            return 0
        return usual(e, t, shown, b, rng)

    one, other = (played(world, 2_000, 7, choose) for choose in (follow, usual))
    error = np.sqrt((one.var() + other.var()) / 2_000)
    assert abs(one.mean() - other.mean() - truth.value) < 4 * error + 3 * truth.error


@pytest.mark.parametrize("name", ["doses", "late", "early", "effect"])
def test_effects_are_those_of_one_forced_decision(name):
    world = SIMULATED[name]()
    truth = world.effect(lambda x: x[:, 0] > 0.2, world.actions[0])
    steps, sums = world.draw(np.random.default_rng(0), 1).shape[1], []
    for forced in (0, 1):
        met = np.zeros(3_000, bool)

        def choose(e, t, shown, b, rng, forced=forced, met=met):
            if t != e % steps or shown[0] <= 0.2:  # each episode has one step that is forced
                return usual(e, t, shown, b, rng)
            met[e] = True
            return forced

        sums.append(played(world, 3_000, 11, choose)[met])
    error = np.sqrt(sum(s.var() / len(s) for s in sums))
    assert abs(sums[0].mean() - sums[1].mean() - truth.value) < 4 * error + 3 * truth.error


def test_doses_are_worth_giving_one_by_one_and_not_together():
    for world in (hard.dose_features(chance=0.3, third=-3.2), hard.doses()):
        everywhere = lambda s: np.ones(len(s), bool)  # noqa: E731
        # the others are binomial (3, .3): 1 after 0, 1 or 3 of them, -3.2 after 2
        assert world.effect(everywhere, "dose").value == pytest.approx(0.811 - 3.2 * 0.189)
    always = np.tile([1.0, 0.0], (4, 1))
    assert hard.doses().gain(always).value == pytest.approx(-0.2 - 0.84852, abs=1e-4)
    assert hard.dose_features(chance=0.3, third=-3.2).gain(
        rule(hard.dose_features(), -99.0)
    ).value == pytest.approx(-1.0485, abs=1e-3)


def test_where_the_day_is_not_shown_doses_are_the_same_world():
    shown, hidden = hard.doses(), hard.doses(day_shown=False)
    always = np.array([[1.0, 0.0]])
    assert hidden.gain(always).value == shown.gain(always.repeat(4, axis=0)).value
    log = hidden.sample(30, seed=0)
    assert log.states == ("ward",)
    assert (log.lengths == 4).all()


def test_recurring_harm_by_hand():
    world = hard.recurring_harm(days=5, delay=3, gain=0.2, cost=0.5)
    always = np.tile([1.0, 0.0], (2, 1))
    assert world.gain(always).value == pytest.approx(0.65 * (5 * 0.2 - 2 * 0.5))
    # of five visits two cost later
    assert world.effect(lambda s: s == "ward", "drug").value == pytest.approx(0.2 - 0.5 * 2 / 5)
    log = world.sample(400, seed=0)
    assert 0.3 < (log.action == 0).mean() < 0.4


def test_tables_of_one_decision_are_means_over_hidden_causes():
    b, pays, met = hard.hidden_labels(1.0).tables()
    assert pays[2] == pytest.approx([0.2 + 0.16 + 0.15] * 2)
    assert met.tolist() == [0.25] * 4
    assert b.sum(axis=1) == pytest.approx(1)
    with pytest.raises(dprl.ParameterError, match="no table"):
        hard.null().tables()


def test_the_effect_of_a_state_of_a_markov_world_is_its_advantage_over_the_others():
    world = hard.wet_chicken()
    mdp = world.mdp
    Q = mdp.action_values(mdp.state_values())
    s, a = 7, 3
    others = [i for i in range(5) if i != a]
    rest = mdp.behavior[s, others] @ Q[s, others] / mdp.behavior[s, others].sum()
    truth = world.effect(lambda labels: labels == world.states[s], world.actions[a])
    assert truth.value == pytest.approx(Q[s, a] - rest)


def test_wet_chicken_flows_as_its_formula_says():
    mdp = hard.wet_chicken(end=0.05).mdp
    rng = np.random.default_rng(0)
    tau = rng.uniform(-1, 1, 200_000)
    for s, a, (side, along) in ((12, 0, (0, 0)), (3, 4, (1, 0)), (24, 3, (0, -2))):
        x, y = divmod(s, 5)
        place = np.rint(np.maximum(y + along + 0.6 * x + (3.5 - 0.6 * x) * tau, 0)).astype(int)
        fell = place > 4
        target = np.where(fell, 0, min(x + side, 4) * 5 + place.clip(0, 4))
        share = np.bincount(target, minlength=25) / len(tau)
        row = mdp.P[[s * 5 + a]].toarray()[0] / 0.95
        assert np.abs(row - share).max() < 0.005


def test_patients_share_their_effect():
    world = hard.patients(sd=0.5)
    log = world.sample(60, seed=0)
    assert (np.bincount(log.group) == 20).all()
    treated = log.action == 0
    means = [
        log.reward[treated & (log.group == g)].mean()
        - log.reward[~treated & (log.group == g)].mean()
        for g in range(60)
    ]
    assert 0.4 < np.std(means) < 0.7


def test_a_trial_records_its_lot_and_a_policy_of_another_shape_is_refused():
    world = hard.one_arm_worse()
    assert np.unique(world.sample(50, seed=0).propensity).tolist() == [0.25]
    with pytest.raises(dprl.ParameterError, match="shape"):
        world.gain(np.eye(3))
