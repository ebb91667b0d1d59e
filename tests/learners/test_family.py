"""What competes in the confident learner: members of its own and of others, and how they judge."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from slow_confident import Slow, log_of, random_visits

import dprl
from conftest import to_log
from dprl import envs
from dprl.baselines import LCB, SPIBB, Mode
from dprl.errors import ParameterError
from dprl.learners import family
from dprl.learners.family import MEMBERS, Candidate, candidates, judge, preferred
from dprl.logs.source import parts_of
from dprl.planning.advantages import Gain
from dprl.planning.model import count_transitions
from dprl.planning.sure_iteration import PlanModel

CARE = envs.care_pathway()


def fit(log, gamma=1.0, **settings):
    return dprl.Confident(gamma=gamma, check=False, **settings).fit(log)


def model_of(episodes, gamma=1.0):
    table = count_transitions(to_log(episodes))
    return PlanModel(table, table.n, gamma, table.n >= 2)


@pytest.mark.parametrize("seed", range(0, 24, 2))
def test_every_member_equals_the_oracle(seed):
    visits = random_visits(seed)
    slow = Slow(*visits, 0.9)
    table = count_transitions(log_of(*visits))
    model = PlanModel(table, slow.m, 0.9, slow.m >= 2)
    expected = slow.family(slow.m >= 2)
    found = {one.member.name: one for one in candidates(model, list(MEMBERS.values()))}
    assert list(found) == list(expected)
    for name, policy in expected.items():
        assert np.array_equal(found[name].policy.choice, policy.choice), name
        mine = found[name].gain
        gain = policy.gain(slow.evaluate([-1] * slow.S))
        assert (mine.estimate, mine.se, mine.df) == pytest.approx(gain, rel=1e-8)


def test_what_circles_at_a_profit_is_neither_chosen_nor_judged():
    profit = [[("s", "stay", 1.0), ("s", "stay", 1.0), ("s", "go", 0.0)]] * 6
    fine = [[("s", "go", r), ("t", "go", 0.0)] for r in (0.9, 1.0, 1.1)] * 4
    fine += [[("s", "stay", r), ("t", "go", 0.0)] for r in (1.9, 2.0, 2.1)] * 4
    ends, circles = model_of(fine), model_of([*profit, [("t", "go", 0.0)]])
    members = [member for member in MEMBERS.values() if member.kind == "sure"]
    assert not candidates(circles, members)
    found = candidates(ends, members)
    assert found[0].policy.choice.tolist() == [1, -1]
    judge(found, members, iter([(ends, circles)]))
    assert found[0].t == []  # at a profit: no judgement
    assert found[0].brought == [0.0]  # the other half chose nothing
    judge(found, members, iter([(ends, ends)]))
    assert found[0].t == pytest.approx([0, 0], abs=1e-6)  # both halves are the same log


def test_a_bound_begins_half_way_down_to_what_the_other_halves_say():
    one = Candidate(MEMBERS["mode"], None, Gain(2.0, 0.5, 9.0))  # type: ignore[arg-type]
    assert one.paid is None
    assert one.score == -np.inf
    one.t, one.brought, one.mixed = [1.0, 0.0], [1.0, 2.0], [0.5, 1.5]
    assert one.paid == pytest.approx((2 - 0.25 + 1.5) / 2)
    assert one.score == pytest.approx(1 - 0.25)
    one.t, one.brought = [-3.0], [5.0]  # neither ever adds
    assert one.paid == 2.0


def test_the_preferred_one_and_those_that_change_less():
    model = model_of([[("s", "a", 1.0)], [("s", "b", 0.0)], [("t", "a", 1.0)], [("t", "b", 0.0)]])
    made = [model.evaluate(np.array(c)) for c in ([0, 0], [0, -1], [-1, 0])]
    few = [Candidate(MEMBERS["mode"], policy, Gain(1.0, 0.1, 9.0)) for policy in made]
    score = dict(zip(map(id, few), (1.0, 0.95, 0.2), strict=True))
    order = preferred(few, lambda one: score[id(one)], 1.0)
    assert [few.index(one) for one in order] == [0, 1, 2]
    order = preferred(few, lambda one: score[id(one)], 0.9)
    assert [few.index(one) for one in order] == [1, 0]


# -- learners of somebody's own --------------------------------------------------------------------


class Oracle:
    """It suggests what is best in a known world, whatever the log says; it fits on rows."""

    def __init__(self):
        self.asked = []

    def fit(self, log):
        self.asked.append(log.n_episodes)
        best = np.eye(len(CARE.actions))[CARE.optimal[1]]
        rows = [CARE.states.index(s) for s in log.states]
        columns = [CARE.actions.index(a) for a in log.actions]
        return dprl.policies.StochasticPolicy(
            states=log.states, actions=log.actions, parameters={}, provenance={},
            pi=best[np.ix_(rows, columns)],
        )  # fmt: skip


def test_a_learner_of_your_own_competes_on_the_whole_and_on_every_half():
    log = CARE.sample(100, seed=700_001)
    learner = Oracle()
    policy = fit(log, members=[learner], splits=3, promise=False)
    assert learner.asked == [100] + 6 * [50]
    assert policy.gain["member"] == "Oracle"
    best = [str(CARE.actions[a]) for a in CARE.optimal[1]]
    for s, a in zip(policy.states, policy.choice, strict=True):
        assert a < 0 or str(policy.actions[a]) == best[CARE.states.index(s)]
    assert policy.parameters["members"] == ["Oracle"]
    # a kind more shares the level: five, not four
    facts = policy.gain
    paid = facts["estimate"] - max(facts["optimism"], 0) * facts["se_by_visits"]
    begin = min(paid, (paid + facts["brought"]) / 2)
    quantile = stats.t.ppf(1 - 0.05 / 5, facts["df"])
    off = facts["elsewhere"]  # rare losses of an action in other states
    assert 0 < off < facts["se"]
    assert facts["se"] > facts["se_by_visits"]
    assert facts["low"] == pytest.approx(begin - quantile * facts["se"] - off)


def test_members_that_plan_in_a_model_take_logs_in_parts():
    log = CARE.sample(200, seed=700_002)
    members = [SPIBB(n_min=5, gamma=1.0), Mode(), LCB(gamma=1.0, c=0.3)]
    whole = fit(log, members=members, promise=False)
    assert whole.parameters["members"][1] == "Mode()"
    parts = parts_of(log, 60)
    policy = fit(parts, members=members, promise=False)
    assert np.array_equal(policy.choice, whole.choice)
    assert policy.gain == whole.gain
    with pytest.raises(ParameterError, match="a member that learns from rows needs the whole log"):
        fit(parts, members=[Oracle()])


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (Mode(), "members must be a list of learners"),
        ([Mode], "a member must be a learner with fit"),
        (["mode"], "a member must be a learner with fit"),
        ([Mode(), Mode()], "two members have the same name"),
    ],
)
def test_what_is_no_learner_is_refused(members, words):
    with pytest.raises(ParameterError, match=words) as caught:
        dprl.Confident(gamma=1.0, members=members)
    assert caught.value.argument == "members"


def test_members_of_other_settings_or_labels_are_refused():
    log = CARE.sample(100, seed=700_003)
    with pytest.raises(ParameterError, match="the model was estimated with gamma"):
        fit(log, members=[LCB(gamma=0.5)])

    class Other:
        def fit(self, log):
            return Mode().fit(envs.risky_arms().sample(20, seed=0))

    with pytest.raises(ParameterError, match="knows actions that the log does not have"):
        fit(log, members=[Other()])


# -- many states -----------------------------------------------------------------------------------


def test_with_many_states_only_cheap_members_compete_and_the_policy_says_so(monkeypatch):
    log = CARE.sample(200, seed=700_004)
    assert "left_out" not in fit(log, promise=False).provenance
    monkeypatch.setattr(family, "DENSE", 3)
    policy = fit(log, promise=False)
    assert list(policy.provenance["left_out"]) == [8, 16]
    assert sum("8 of 16 candidates were left out" in words for words in policy.stated) == 1
    assert not policy.gain["member"].startswith("mode, sure")
    assert list(fit(log, promise=False, splits=0).provenance["left_out"]) == [4, 7]
