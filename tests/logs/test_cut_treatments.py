"""Cut episodes: what may be claimed from a log without them, and what weights do."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special
from sklearn.linear_model import LogisticRegression

import dprl
from dprl.certificate import approximate_gain
from dprl.learners.baselines import RL
from dprl.logs.censoring import FOLDS, STEPS, chance_of_cut, treat_cut
from dprl.logs.log import CUT, TERMINAL
from dprl.logs.returns import returns

UNIT = {"delta": 0.05, "value_range": (0.0, 1.0)}


def rows_of(*episodes, **more):
    """A log of (label, group, rewards, how it ended); states are positions."""
    table = [
        (label, group, t, 0, reward, ended)
        for label, group, rewards, ended in episodes
        for t, reward in enumerate(rewards)
    ]
    names = ("episode", "group", "state", "action", "reward", "ended")
    columns = dict(zip(names, map(list, zip(*table, strict=True)), strict=True))
    return dprl.from_arrays(**columns, **more)


# -- what is left of a group -----------------------------------------------------------------------


def test_a_group_is_kept_until_its_first_cut_episode():
    log = rows_of(
        (1, "a", [1.0], "cut"), (2, "a", [2.0], "terminal"),
        (3, "b", [3.0], "terminal"), (4, "b", [4.0], "cut"), (5, "b", [5.0], "terminal"),
        (6, "c", [6.0], "terminal"), (7, "c", [7.0], "terminal"),
    )  # fmt: skip
    for cut in ("drop", "drop-unrelated"):
        assert treat_cut(log, 1.0, cut).episodes == (3, 6, 7)
        assert treat_cut(log, 1.0, cut, reads="returns").episodes == (3, 6, 7)
        assert treat_cut(log, 1.0, cut, reads="rewards").episodes == (2, 3, 5, 6, 7)


def test_the_first_episode_is_the_first_in_time():
    table = {"episode": [1, 2], "group": ["a", "a"], "state": [0, 0], "action": [0, 0],
             "reward": [1.0, 2.0], "ended": ["terminal", "cut"]}  # fmt: skip
    assert treat_cut(dprl.from_arrays(**table, time=[1, 9]), 1.0, "drop").episodes == (1,)
    with pytest.raises(dprl.LogError, match="all 2 episodes were cut, or came after a cut one"):
        treat_cut(dprl.from_arrays(**table, time=[9, 1]), 1.0, "drop")


# -- claims ----------------------------------------------------------------------------------------


def test_nothing_is_claimed_from_what_was_dropped_without_a_declaration():
    log = dprl.envs.care_pathway().sample(600, seed=0)
    cut = replace(log, ended=np.where(np.arange(600) % 10, TERMINAL, CUT).astype(np.uint8))
    train, test = cut.split(0.5, seed=0)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0, cut="drop").fit(train)
    for claim in (
        lambda: dprl.gate(policy, train, **UNIT),
        lambda: dprl.evaluate(policy, test),
        lambda: approximate_gain(policy, test, cut="drop"),
        lambda: dprl.Confident(gamma=1.0, cut="drop").fit(train),
    ):
        with pytest.raises(dprl.LogError) as caught:
            claim()
        assert "episodes were cut and would be left out" in caught.value.what
        assert "the longer an episode, the likelier it was cut" in caught.value.what
        assert caught.value.where.startswith("episode ")
        assert "neither on its length nor on its outcome" in caught.value.do
        assert "cut='drop-unrelated'" in caught.value.do
    whole = log.split(0.5, seed=0)[1]  # without cut episodes there is nothing to declare
    assert dprl.evaluate(policy, whole, draws=10).settings["cut"] == "drop"


# -- weights ---------------------------------------------------------------------------------------


def fast_and_slow(n, seed, cut_at=0.1):
    """`fast` wins at once or fails after twelve steps; `safe` wins more often. Cut at every step."""
    rng = np.random.default_rng(seed)
    episodes = []
    for _ in range(n):
        fast = bool(rng.random() < 0.5)
        won = bool(rng.random() < (0.5 if fast else 0.6))
        length = (1 if won else 12) if fast else 2
        seen = int(min(length, rng.geometric(cut_at)))
        actions = ["fast" if fast else "safe"] + ["wait"] * (seen - 1)
        rewards = [0.0] * (seen - 1) + [float(won and seen == length)]
        episodes.append((actions, rewards, "terminal" if seen == length else "cut"))
    lengths = [len(actions) for actions, _, _ in episodes]
    return dprl.from_arrays(
        episode=np.repeat(np.arange(n), lengths),
        state=[("start" if t == 0 else "later") for k in lengths for t in range(k)],
        action=[a for actions, _, _ in episodes for a in actions],
        reward=[r for _, rewards, _ in episodes for r in rewards],
        ended=np.repeat([ended for _, _, ended in episodes], lengths),
    )


def by_first_action(log):
    G, first = returns(log, 1.0)[log.starts[:-1]], log.action[log.starts[:-1]]
    return {log.actions[a]: float(G[first == a].mean()) for a in np.unique(first)}


def test_weights_repair_what_dropping_spoils():
    log = fast_and_slow(4_000, 0)
    dropped = by_first_action(treat_cut(log, 1.0, "drop"))
    assert dropped["fast"] > 0.7 > dropped["safe"]  # the truth is .5 and .6
    for reads in ("returns", "rewards"):
        weighted = by_first_action(treat_cut(log, 1.0, "ipcw", reads=reads))
        assert weighted["fast"] == pytest.approx(0.5, abs=0.03)
        assert weighted["safe"] == pytest.approx(0.6, abs=0.03)


def test_weighted_returns_by_hand():
    """G*_t = r_t + γ (V + (G*_{t+1} - V) / (1 - c_t)), whichever form the rewards have."""
    log = fast_and_slow(300, 1)
    stay, gamma = 1 - chance_of_cut(log), 0.9
    to_go = treat_cut(log, gamma, "ipcw", reads="returns")
    stepwise = treat_cut(log, gamma, "ipcw", reads="rewards")
    assert not len(to_go.cut_episodes)
    assert not len(stepwise.cut_episodes)
    G, G_0 = returns(to_go, gamma), returns(stepwise, gamma)
    dealt = np.random.default_rng(0).permutation(len(log.groups)) % FOLDS
    usually = []  # fold → what comes from a step on, in the other folds
    for fold in range(FOLDS):
        others = [o for o in range(log.n_episodes) if dealt[log.group[o]] != fold]
        V = dict.fromkeys(range(40), 0.0)
        for step in range(int(log.lengths.max()) - 1, -1, -1):
            there = [o for o in others if log.lengths[o] > step]
            over = [log.lengths[o] == step + 1 and log.ended[o] != CUT for o in there]
            rewards = [log.reward[log.starts[o] + step] for o in there]
            V[step] = np.mean(rewards) + gamma * (1 - np.mean(over)) * V[step + 1] if there else 0.0
        usually.append(V)
    for e in range(log.n_episodes):
        V = usually[dealt[log.group[e]]]
        tail = 0.0
        for t in range(log.starts[e + 1] - 1, log.starts[e] - 1, -1):
            usual = V[t - log.starts[e] + 1]
            if t < log.starts[e + 1] - 1:
                tail = log.reward[t] + gamma * (usual + (tail - usual) / stay[t])
            else:
                tail = log.reward[t] + gamma * usual * (log.ended[e] == CUT)
            assert G[t] == pytest.approx(tail, rel=1e-9)
        assert G_0[log.starts[e]] == pytest.approx(tail, rel=1e-9)


def test_a_weighted_mean_stays_where_returns_can_be():
    """Ten rewards of 1 are 10, however many episodes were cut and wherever."""
    rng = np.random.default_rng(7)
    seen = np.minimum(rng.geometric(0.1, 400), 10)
    log = rows_of(*((e, e, [1.0] * int(k), "terminal" if k == 10 else "cut") for e, k in enumerate(seen)))  # fmt: skip
    for reads in ("returns", "rewards"):
        G = returns(treat_cut(log, 1.0, "ipcw", reads=reads), 1.0)
        assert G[log.starts[:-1]] == pytest.approx(np.full(400, 10.0), rel=1e-12)
    always = dprl.CallablePolicy(
        lambda states: list(log.actions[:1]) * len(states), actions=log.actions
    )
    found = dprl.evaluate(always, log, gamma=1.0, cut="ipcw", draws=200, values=False)
    ends = [found.behavior[name] for name in ("value", "low", "high")]
    assert ends == pytest.approx([10.0] * 3, rel=1e-9)


@pytest.mark.parametrize("reads", ["returns", "rewards"])
def test_weights_are_right_on_average(reads):
    """Over many logs, whatever usually comes after other decisions: the truth is .5 and .6."""
    found = [by_first_action(treat_cut(fast_and_slow(300, s), 1.0, "ipcw", reads=reads)) for s in range(12)]  # fmt: skip
    for name, truth in (("fast", 0.5), ("safe", 0.6)):
        ours = [one[name] for one in found]
        assert np.mean(ours) == pytest.approx(truth, abs=2.5 * np.std(ours) / np.sqrt(12))


def test_chances_follow_step_state_and_features():
    rng = np.random.default_rng(0)
    n, x = 3_000, rng.normal(size=3_000)
    hazard = special.expit(-1 + x)
    cut = rng.random(n) < hazard
    log = dprl.from_arrays(
        episode=np.repeat(np.arange(n), 2 - cut), state=np.repeat(x, 2 - cut)[:, None],
        action=["a"] * int((2 - cut).sum()), reward=[0.0] * int((2 - cut).sum()),
        ended=np.repeat(np.where(cut, "cut", "terminal"), 2 - cut),
    )  # fmt: skip
    first = log.starts[:-1]
    assert np.abs(chance_of_cut(log)[first] - hazard).mean() < 0.02
    labelled = replace(
        log, features=None, feature_names=(), state=np.digitize(log.features[:, 0], [0.0]),
        states=("low", "high"),
    )  # fmt: skip
    chance = chance_of_cut(labelled)[first]
    for side in (x < 0, x >= 0):
        assert chance[side].mean() == pytest.approx(cut[side].mean(), abs=0.01)


def test_rows_that_are_alike_count_as_often_as_they_occur():
    """The model of weighted kinds of rows is that of all rows, written here row by row."""
    log = fast_and_slow(150, 3)
    step = np.concatenate([np.arange(length) for length in log.lengths])
    names = [f"{s} {a}" for s, a in zip(log.codes(), log.action, strict=True)]
    columns = [step == k for k in range(step.max() + 1)]
    columns += [step / STEPS]
    columns += [log.codes() == s for s in np.unique(log.codes())]
    columns += [np.array(names) == pair for pair in sorted(set(names))]
    x = np.column_stack(columns).astype(float)
    cut, at_risk = np.zeros(log.n_steps, bool), np.ones(log.n_steps, bool)
    for e in range(log.n_episodes):
        last = log.starts[e + 1] - 1
        cut[last], at_risk[last] = log.ended[e] == CUT, log.ended[e] == CUT
    dealt = np.random.default_rng(0).permutation(len(log.groups)) % FOLDS
    fold = np.repeat(dealt[log.group], log.lengths)
    for k in range(FOLDS):
        others = (fold != k) & at_risk
        model = LogisticRegression(C=1.0, tol=1e-10, max_iter=5_000).fit(x[others], cut[others])
        wanted = model.predict_proba(x[fold == k])[:, 1]
        np.testing.assert_allclose(chance_of_cut(log)[fold == k], wanted, atol=1e-3)


def test_a_group_never_sets_its_own_weight():
    log = fast_and_slow(200, 2)
    one = int(log.cut_episodes[0])
    ended = log.ended.copy()
    ended[one] = TERMINAL
    rows = slice(log.starts[one], log.starts[one + 1])
    other = replace(log, ended=ended)
    np.testing.assert_array_equal(chance_of_cut(log)[rows], chance_of_cut(other)[rows])


def test_what_nobody_was_followed_beyond_is_refused():
    log = rows_of(*((e, e, [1.0] * 3, "cut" if e % 2 else "terminal") for e in range(20)))
    with pytest.raises(
        dprl.LogError, match="10 episodes were cut after 3 steps, and none"
    ) as caught:
        treat_cut(log, 1.0, "ipcw", reads="returns")
    assert "follow_up=3, --follow-up 3" in caught.value.do
    once = rows_of(*((e, e, [1.0], "cut" if e % 2 else "terminal") for e in range(20)))
    for treat in (
        lambda: treat_cut(once, 1.0, "ipcw", reads="rewards"),
        lambda: once.followed(1),
        lambda: once.followed(2),
    ):
        with pytest.raises(dprl.LogError, match="10 of 20 episodes were cut, and all have") as said:
            treat()
        assert "follow_up" not in str(said.value)
    alone = rows_of((0, 0, [1.0, 1.0], "terminal"), (1, 0, [1.0], "cut"))
    with pytest.raises(dprl.LogError, match="estimated from other groups, and there is 1"):
        treat_cut(alone, 1.0, "ipcw", reads="returns")


def test_a_small_chance_to_be_seen_is_said():
    rng = np.random.default_rng(0)
    seen = np.minimum(rng.geometric(0.4, 400), 9)
    log = rows_of(*(
        (e, e, [1.0] * int(k), "terminal" if k == 9 else "cut") for e, k in enumerate(seen)
    ))  # fmt: skip
    with pytest.warns(dprl.CutWarning, match="had a chance below 0.05 to be seen"):
        treat_cut(log, 1.0, "ipcw", reads="returns")


def test_weights_where_they_are_right_and_nowhere_else():
    log = fast_and_slow(600, 3)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0, plan=False, cut="ipcw").fit(log)
    assert policy.act(["start"]) == ["safe"]
    assert dprl.DPRLDiscrete(n_min=20, gamma=1.0, cut="drop").fit(log).act(["start"]) == ["fast"]
    with pytest.raises(dprl.ParameterError, match="a plan reads what lies between decisions"):
        dprl.DPRLDiscrete(n_min=20, gamma=1.0, cut="ipcw")
    near = {"n_min": 5, "radius": 1.0, "gamma": 1.0, "cut": "ipcw"}
    with pytest.raises(dprl.ParameterError, match="got plan=True"):
        dprl.DPRLContinuous(**near)
    with pytest.raises(dprl.ParameterError, match=r"got lam = 0.5"):
        dprl.DPRLContinuous(**near, plan=False, lam=0.5)
    with pytest.raises(dprl.ParameterError, match="got lam = chosen by the data"):
        dprl.Rules(gamma=1.0, cut="ipcw")
    for learner in (dprl.Confident(gamma=1.0, cut="ipcw"), RL(gamma=1.0, cut="ipcw")):
        with pytest.raises(dprl.ParameterError, match="what was asked for reads single steps"):
            learner.fit(log)


@pytest.mark.parametrize("values", [True, False])
def test_evaluate_with_weights(values):
    log = fast_and_slow(3_000, 4)
    policy = dprl.CallablePolicy(
        lambda states: ["fast" if s == "start" else "wait" for s in states], actions=log.actions
    )
    found = dprl.evaluate(policy, log, gamma=1.0, cut="ipcw", draws=200, values=values)
    for name in ("IS", "WIS", "PDIS", "WPDIS", *(("DR", "WDR") if values else ())):
        assert found[name]["value"] == pytest.approx(0.5, abs=0.05)
        assert found[name]["difference"] == pytest.approx(-0.05, abs=0.05)
    assert np.isnan(found["DM"]["value"])
    assert found.behavior["value"] == pytest.approx(0.55, abs=0.04)
    assert any("cross-fitted by group" in w and "large samples" in w for w in found.warnings)
    wrong = dprl.evaluate(policy, log, gamma=1.0, cut="drop-unrelated", draws=50, values=False)
    assert wrong["WIS"]["difference_low"] > 0  # what a false declaration leads to
