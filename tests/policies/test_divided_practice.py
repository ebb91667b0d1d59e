"""Where no action has half of the share there is no usual practice: it is divided."""

import numpy as np
import pytest

import dprl
from dprl._core.arrays import DIVIDED, is_divided, unusual
from dprl.policies.explain import reason, usual_words


def trial(shares, seed=0, n=400):
    """One decision per episode in state 'arm'; the second action does best."""
    random = np.random.default_rng(seed)
    names = np.array(["a", "b", "c"])
    action = names[random.choice(3, size=n, p=shares)]
    reward = (random.random(n) < np.where(action == "b", 0.8, 0.3)).astype(float)
    return dprl.from_arrays(episode=range(n), state=["arm"] * n, action=action, reward=reward)


def fitted(shares, **more):
    return dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(trial(shares, **more))


def test_half_of_the_share_makes_an_action_usual():
    m = np.array([[5, 5, 0], [4, 3, 3], [0, 0, 0], [6, 2, 2], [0, 0, 9]])
    assert is_divided(m).tolist() == [False, True, False, False, False]
    assert is_divided(m[[0, 1]] / 10).tolist() == [False, True]
    assert unusual(m).tolist() == [
        [True, True, True], [True, True, True], [True, True, True], [False, True, True],
        [True, True, False],
    ]  # fmt: skip


def test_a_divided_state_has_no_usual_action():
    policy = fitted([0.4, 0.3, 0.3])
    here = policy.at(["arm"])
    assert here.divided.all()
    assert usual_words(here, 0) == DIVIDED
    row = next(iter(policy.changes()))
    assert row["usual"] == "practice is divided"
    assert row["usual_share"] < 0.5
    assert "the mixture" in policy.changes().note
    assert row["value_usual"] == pytest.approx(trial([0.4, 0.3, 0.3]).reward.mean())
    assert "practice is divided: a 36 %, c 36 %, b 28 %." in reason(here, 0)
    assert "against all that was done there together" in reason(here, 0)
    assert "1 change (1 where practice is divided)" in str(policy)
    assert policy.summary()["divided"] == 1
    assert "practice is divided, and all actions together bring" in str(policy.explain("arm"))


def test_the_most_frequent_of_divided_actions_is_a_change_not_a_confirmation():
    policy = fitted([0.3, 0.4, 0.3])  # 'b' is the most frequent, and the best
    assert policy.at(["arm"]).kind.tolist() == [dprl.Kind.CHANGE]
    assert len(policy.confirmations()) == 0
    assert policy.luck is not None  # luck counts changes by the same rule
    usual = fitted([0.2, 0.6, 0.2])
    assert usual.at(["arm"]).kind.tolist() == [dprl.Kind.CONFIRM]
    assert "divided" not in str(usual)
    assert "divided" not in usual.changes().note


def test_evaluation_says_that_practice_is_divided():
    policy, test = fitted([0.4, 0.3, 0.3]), trial([0.4, 0.3, 0.3], seed=1)
    judged = dprl.evaluate(policy, test, draws=50)
    assert judged.facts["divided"] == judged.facts["changed"] == 1.0
    assert "at 100.0 % practice is divided and it names one action" in judged.lines()[0]
    assert "to the mixture" in judged.lines()[0]
    other = dprl.CallablePolicy(lambda states: ["b"] * len(states), test.actions)
    judged = dprl.evaluate(other, test, gamma=1.0, draws=50)
    assert judged.facts["divided"] == 1.0
    clear = dprl.evaluate(fitted([0.6, 0.2, 0.2]), trial([0.6, 0.2, 0.2], seed=1), draws=50)
    assert clear.facts["divided"] == 0
    assert "divided" not in clear.lines()[0]


def test_the_report_puts_the_interval_before_the_number_of_changes(tmp_path):
    policy, test = fitted([0.4, 0.3, 0.3]), trial([0.4, 0.3, 0.3], seed=1)
    written = dprl.report(policy, test, tmp_path / "r.html", draws=50)
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    shown = text.replace("\u00a0", " ")
    assert shown.index(" it has not seen ") < shown.index("<caption>Better by")
    assert shown.index("practice is divided</bdi>") < shown.index("Practice is divided at 100 %")
    assert "Practice is divided here. Suggested:" in text
    assert "with all that is done here together" in text
    assert written.divided == 1.0
    lines = str(written).replace("\u00a0", " ").splitlines()
    assert lines[0].startswith("Practice is divided at 100 % of decisions; difference to the")
    assert "95 % interval" in lines[0]
    assert lines[1].startswith("1 change")
    clear = dprl.report(fitted([0.6, 0.2, 0.2]), trial([0.6, 0.2, 0.2], seed=1), tmp_path / "c.html",
                        draws=50)  # fmt: skip
    assert "divided" not in str(clear)
    assert "divided" not in (tmp_path / "c.html").read_text(encoding="utf-8").split("</style>")[1]


def test_rules_say_that_practice_is_divided():
    def rules(shares):
        return dprl.RulePolicy(
            states=(), actions=("a", "b", "c"), parameters={}, provenance={},
            feature_names=("x",),
            rules=({
                "conditions": [{"feature": "x", "kind": "at most", "value": 1.0}],
                "suggested": "b",
                "facts": {"share_usual": shares, "groups": 100},
            },),
        )  # fmt: skip

    split = rules([["a", 0.4], ["b", 0.35], ["c", 0.25]])
    assert "(practice is divided: a 40 %, b 35 %, c 25 %)" in str(split)
    assert split.changes()["usual"] == ["practice is divided"]
    assert "Practice is divided: a 40 %" in split.explain([0.5]).reason
    clear = rules([["a", 0.5], ["b", 0.3], ["c", 0.2]])
    assert "divided" not in str(clear)
    assert clear.changes()["usual"] == ["a"]
