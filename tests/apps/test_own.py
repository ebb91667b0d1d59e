"""What other people write: learners are checked in words, cloned, compared, and compete."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from sklearn.base import clone

import dprl
from dprl.apps.contest import log_seed
from dprl.baselines import BC, HCPI, LCB, RL, SPIBB, FittedSPIBB, Mode, SoftSPIBB
from dprl.envs import care_pathway, random_mdp, risky_arms
from dprl.testing import check_learner

LEARNERS = [
    LCB(gamma=0.95),
    SPIBB(n_min=5, gamma=0.95, behavior=None),
    SoftSPIBB(epsilon=0.5, gamma=0.95),
    HCPI(gamma=0.95),
    dprl.DPRLDiscrete(n_min=5, gamma=0.95),
    BC(),
]


def a_policy(log, pi, **more):
    return dprl.StochasticPolicy(
        states=log.states, actions=log.actions, parameters={}, provenance={}, pi=pi, **more
    )


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
def test_our_own_keep_the_rules_and_can_be_cloned(learner):
    check_learner(learner)
    other = clone(learner)
    assert other is not learner
    assert other.get_params() == learner.get_params()
    assert (other, hash(other)) == (learner, hash(learner))
    assert other != (learner.set_params(gamma=0.5) if hasattr(learner, "gamma") else RL(gamma=1))
    log = risky_arms().sample(300, seed=0)
    assert clone(learner).fit(log) == learner.fit(log)


def test_settings_of_learners_over_features_too():
    learner = FittedSPIBB(n_min=5, gamma=0.95, radius=1.0)
    assert clone(learner).get_params() == learner.get_params()
    assert learner.set_params(n_min=7) == replace(learner, n_min=7)
    assert learner.n_min == 5


def test_learners_with_a_known_behaviour_are_compared_by_its_numbers():
    one, same, other = (SPIBB(n_min=5, gamma=0.9, behavior=np.full((2, 2), p)) for p in (1, 1, 2))
    assert clone(one) == one == same
    assert one != other
    assert one != SPIBB(n_min=5, gamma=0.9)
    assert len({one, same, other}) == 2


def test_a_setting_that_is_not_there_is_named():
    with pytest.raises(dprl.ParameterError, match="SPIBB has no setting 'nmin'") as caught:
        SPIBB(n_min=5, gamma=0.9).set_params(nmin=3)
    assert caught.value.do == "Did you mean 'n_min'?"
    with pytest.raises(dprl.ParameterError, match="It has gamma, "):
        LCB(gamma=0.9).set_params(zzz=3)


class Random:
    """Answers by the clock, and cannot be read."""

    def fit(self, log):
        pi = np.random.default_rng().random((log.n_states, log.n_actions))
        return a_policy(log, pi / pi.sum(axis=1, keepdims=True))


class ByRow:
    """Listens to the first episode alone, and changes the log."""

    def get_params(self, deep=True):
        return {}

    def fit(self, log):
        pi = np.zeros((log.n_states, log.n_actions))
        pi[:, log.action[0]] = 1.0
        log.reward.setflags(write=True)
        log.reward[0] += 1.0
        return a_policy(log, pi)


class Silent:
    def fit(self, log):
        return None


class Alphabet:
    """What it says depends on what a state is called."""

    def get_params(self, deep=True):
        return {}

    def fit(self, log):
        odd = [len(str(label)) % log.n_actions for label in log.states]
        return a_policy(log, np.eye(log.n_actions)[odd])


@pytest.mark.parametrize(
    ("learner", "broken", "kept"),
    [
        (Random(), ["repeats", "settings"], ["answers", "untouched"]),
        (ByRow(), ["order", "untouched"], ["repeats", "settings"]),
        (Silent(), ["answers: fit(log) returns a NoneType"], ["repeats"]),
        (Alphabet(), ["labels"], ["repeats", "order"]),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_is_broken_is_named(learner, broken, kept):
    with pytest.raises(dprl.ParameterError) as caught:
        check_learner(learner)
    said = str(caught.value)
    assert all(rule in said for rule in broken)
    assert not any(f"{rule}:" in said for rule in kept)


def test_what_is_no_learner_is_refused_and_rules_can_be_left_out():
    with pytest.raises(dprl.ParameterError, match="int is no learner"):
        check_learner(3)
    with pytest.raises(dprl.ParameterError, match="BC is a class"):
        check_learner(BC)
    check_learner(Alphabet(), but=("labels",))


def test_equal_policies_are_equal():
    log, other = (random_mdp(0).sample(50, seed=seed) for seed in (0, 1))
    learner = LCB(gamma=0.95)
    assert learner.fit(log) == learner.fit(log)
    assert len({learner.fit(log), learner.fit(log), learner.fit(other)}) == 2
    assert learner.fit(log) != dprl.DPRLDiscrete(n_min=5, gamma=0.95).fit(log)
    assert learner.fit(log) != learner.set_params(c=0.2).fit(log)
    assert learner.fit(log) != "LCB"


def test_a_log_has_a_length_its_episodes_and_a_frame(tmp_path):
    log = care_pathway().sample(20, seed=0)
    assert len(log) == log.n_episodes == 20
    assert log
    parts = list(log)
    assert [len(part) for part in parts] == [1] * 20
    assert [part.n_steps for part in parts] == log.lengths.tolist()
    frame = log.to_frame("pyarrow")
    dprl.write(log, tmp_path / "log.parquet")
    assert frame.column_names[:3] == ["episode", "time", "state"]
    names = {name: name for name in frame.column_names}
    assert (
        dprl.from_frame(frame, **names).digest()
        == dprl.read(tmp_path / "log.parquet", **names).digest()
    )


# -- the contest -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fails:
    gamma: float = 1.0

    def fit(self, log):
        raise ValueError("not today")


def test_a_contest_is_what_a_loop_would_find():
    world = random_mdp(1)
    found = dprl.contest(
        {"random": world},
        {"LCB": lambda world: LCB(gamma=world.gamma), "usual": BC(), "fails": Fails()},
        sizes=[30], datasets=3, seed=5,
        metrics={"least": lambda rows: min(row["value"] for row in rows)},
    )  # fmt: skip
    values = []
    for dataset in range(3):
        log = world.sample(30, seed=log_seed(5, 30, dataset))
        values.append(world.value(LCB(gamma=0.95).fit(log)))
    mine = [row for row in found.rows if row["learner"] == "LCB"]
    assert [row["value"] for row in mine] == values
    best = float(world.start @ world.optimal[0])
    line = found.table().to_dicts()[0]
    shares = [(value - world.value()) / (best - world.value()) for value in values]
    assert line["mean"] == pytest.approx(np.mean(shares))
    assert line["cvar 5 %"] == pytest.approx(min(shares))
    assert line["least"] == min(values)
    assert line["below"] == np.mean(np.array(values) < world.value())
    usual, fails = ([r for r in found.rows if r["learner"] == k] for k in ("usual", "fails"))
    assert all(row["changed"] == 0 and not row["failed"] for row in usual)
    assert all(row["value"] == row["practice"] for row in fails)
    assert fails[0]["failed"] == "ValueError: not today"


def test_logs_are_shared_and_a_part_of_a_contest_is_the_same():
    both = {"mode": Mode(), "RL": RL(gamma=1.0)}
    whole = dprl.contest({"arms": risky_arms}, both, sizes=[50, 80], datasets=3)
    part = dprl.contest({"arms": risky_arms}, {"RL": both["RL"]}, sizes=[80], datasets=[2])
    (row,) = part.rows
    (same,) = [r for r in whole.rows if (r["n"], r["dataset"], r["learner"]) == (80, 2, "RL")]
    assert {**row, "seconds": 0} == {**same, "seconds": 0}
    assert len({r["log_seed"] for r in whole.rows}) == 6


class Gated:
    def fit(self, log):
        return dprl.gate(LCB(gamma=1.0), log, grade="large-sample")


def test_promises_are_held_against_the_truth():
    found = dprl.contest({"care": care_pathway()}, {"sure": Gated()}, sizes=[1_500], datasets=1)
    (row,) = found.rows
    log = care_pathway().sample(1_500, seed=row["log_seed"])
    assert row["promised"] == Gated().fit(log).certificate.gain > 0
    assert found.table()["promised"] == [1.0]
    assert found.table()["broken"] == [0.0]
    lies = ({**row, "promised": 1.0},)
    assert replace(found, rows=lies).table()["broken"] == [1.0]


class Three:
    """Its fit returns a number."""

    def fit(self, log):
        return 3


def test_what_cannot_compete_is_refused():
    with pytest.raises(dprl.ParameterError, match="'x' is no problem"):
        dprl.contest({"x": object()}, {"usual": BC()})
    with pytest.raises(dprl.ParameterError, match="'y' is no learner"):
        dprl.contest({"arms": risky_arms()}, {"y": lambda world: 3})
    with pytest.raises(dprl.ParameterError, match="datasets must"):
        dprl.contest({"arms": risky_arms()}, {"usual": BC()}, datasets=0)
    for worlds, learners, words in (
        ([risky_arms()], {"usual": BC()}, "worlds must be named"),
        ({"arms": risky_arms()}, {}, "learners must be named, and at least one; got {}"),
        ({"arms": risky_arms()}, {"three": Three()}, "returned a int, which is no policy"),
    ):
        with pytest.raises(dprl.ParameterError, match=words):
            dprl.contest(worlds, learners, sizes=20, datasets=1)
    with pytest.raises(dprl.ParameterError, match="returned a int, which is no policy"):
        dprl.Confident(gamma=1.0, members=[Three()]).fit(risky_arms().sample(20, seed=0))
