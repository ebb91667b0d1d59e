"""The gate certifies what any learner suggests: rivals, the confident learner, one from outside."""

from __future__ import annotations

import numpy as np
import pytest

import dprl
from dprl.baselines import BC, LCB, SPIBB, Mode
from dprl.envs import care_pathway

WORLD = care_pathway()
UNIT = {"value_range": (0.0, 1.0), "avoid": False}
LARGE = {"grade": "large-sample", "mode": "policy"}


class Antibiotics:
    """A learner of somebody else's: fever calls for antibiotics; it remembers what it saw."""

    gamma = 1.0

    def __init__(self):
        self.seen = []

    def fit(self, log):
        self.seen.append(set(log.episodes))
        answers = {"fever": "antibiotics", "stable": "watch"}
        return dprl.CallablePolicy(lambda states: [answers.get(s) for s in states], log.actions)


@pytest.fixture(scope="module")
def log():
    return WORLD.sample(4_000, seed=0)


@pytest.mark.parametrize(
    "learner",
    [
        SPIBB(n_min=20, gamma=1.0),
        LCB(gamma=1.0),
        Antibiotics(),
        pytest.param(dprl.Confident(gamma=1.0), marks=pytest.mark.slow),
    ],
    ids=lambda learner: type(learner).__name__,
)
@pytest.mark.parametrize("how", [{}, {"mode": "in-sample", "states": WORLD.states}])
def test_a_part_of_what_it_suggests_is_certified(learner, how, log, tmp_path):
    gated = dprl.gate(learner, log, **UNIT, **how)
    proof = gated.certificate
    b = np.zeros((log.n_states, log.n_actions))
    np.add.at(b, (log.codes(), log.action), 1)
    pi = learner.fit(log).at(log.states).pi
    raised = np.nan_to_num(pi, nan=-1.0) - b / b.sum(axis=1, keepdims=True)
    suggested = dict(zip(log.states, np.take(log.actions, raised.argmax(axis=1)), strict=True))
    assert proof.issued["fever"] == "antibiotics"
    assert proof.issued.items() <= suggested.items()
    assert 0 < proof.gain <= WORLD.value(gated) - WORLD.value()
    assert any(f"{type(learner).__name__} proposed" in note for note in proof.notes)
    gated.save(tmp_path / "gated.dprl")
    assert dprl.load(tmp_path / "gated.dprl").digest() == gated.digest()


def test_each_half_is_proposed_for_from_its_own_groups(log):
    learner = Antibiotics()
    gated = dprl.gate(learner, log, **UNIT)
    one, other, whole = sorted(learner.seen, key=len)
    assert not one & other
    assert one | other == whole == set(log.episodes)
    assert gated.certificate.tested == (1, 1)  # that watching is better no half proposes
    assert dprl.gate(Mode(), log, **UNIT, gamma=1.0).certificate.vacuous


def test_a_policy_without_its_learner_is_certified_by_the_rule_of_counts(log):
    gated = dprl.gate(Antibiotics().fit(log), log, **UNIT, gamma=1.0)
    own = dprl.gate(dprl.DPRLDiscrete(n_min=20, gamma=1.0), log, **UNIT)
    assert gated.certificate.issued == {"fever": "antibiotics"}
    assert gated.certificate.tested == own.certificate.tested
    assert own.certificate.issued.keys() > {"fever"}


def test_as_a_whole_it_learns_from_one_half(log):
    learner = Antibiotics()
    gated = dprl.gate(learner, log, value_range=(0, 1), **LARGE)
    assert gated.certificate.issued == {"fever": "antibiotics", "stable": "watch"}
    (seen,) = learner.seen
    assert len(seen) == log.n_episodes // 2
    assert gated.certificate.groups == log.n_episodes - len(seen)
    assert 0 < gated.certificate.gain <= WORLD.value(gated) - WORLD.value()


def test_refusals(log):
    with pytest.raises(dprl.ParameterError, match="BC has no discount"):
        dprl.gate(BC(), log, **UNIT)
    with pytest.raises(dprl.ParameterError, match=r"gamma = 0\.9, and that of LCB is 1\.0"):
        dprl.gate(LCB(gamma=1.0), log, **UNIT, gamma=0.9)
    with pytest.raises(dprl.ParameterError, match="a str is neither"):
        dprl.gate("LCB", log, **UNIT)

    class Silent:
        gamma = 1.0

        def fit(self, log):
            return self

    with pytest.raises(dprl.ParameterError, match="returned a Silent, which is no policy"):
        dprl.gate(Silent(), log, **UNIT)
    features = dprl.envs.PointMass().sample(20, seed=0)
    with pytest.raises(dprl.ParameterError, match="LCB is certified over labelled states"):
        dprl.gate(LCB(gamma=1.0, cut="terminal"), features, **UNIT)
    with pytest.raises(dprl.ParameterError, match="for labelled states"):
        dprl.gate(SPIBB(n_min=20, gamma=1.0).fit(log), log, value_range=(0, 1), **LARGE)
