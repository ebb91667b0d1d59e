"""A certificate of a log in parts is that of the same log in memory."""

from __future__ import annotations

import numpy as np
import pytest

import dprl
from dprl.logs.parts import parts_of


def trial(seed=0, episodes=400, *, groups=False, cut=False, menus=False):
    """Episodes of two decisions in which action 1 helps in state "ill"."""
    rng = np.random.default_rng(seed)
    n = 2 * episodes
    which, action = np.repeat(np.arange(episodes), 2), rng.integers(0, 2, n)
    state = np.where(rng.random(n) < 0.6, "ill", "well")
    better = 0.25 + 0.45 * ((state == "ill") & (action == 1))
    data = {
        "episode": which,
        "time": np.arange(n) % 2 + 5 * rng.integers(0, 3, episodes)[which],
        "state": state,
        "action": action,
        "reward": (rng.random(n) < better) / 2,
    }
    if groups:
        data["group"] = rng.integers(0, episodes // 2, episodes)[which]
    if cut:
        data["ended"] = np.where(rng.random(episodes) < 0.2, "cut", "terminal")[which]
    if menus:
        data["available"] = ["0|1"] * n
    return dprl.from_arrays(**data)


@pytest.mark.parametrize("kind", ["plain", "groups", "cut", "menus"])
@pytest.mark.parametrize("confounding", [1.0, 1.2])
def test_the_gated_policy_is_the_same_byte_for_byte(kind, confounding, tmp_path):
    own = {"plain": {}, "groups": {"groups": True}, "menus": {"menus": True},
           "cut": {"cut": True, "groups": True}}[kind]  # fmt: skip
    log = trial(**own)
    for cut in ("drop-unrelated", "terminal") if kind == "cut" else (None,):
        learner = dprl.DPRLDiscrete(n_min=10, gamma=0.9, cut=cut)
        files = []
        for source in (log, parts_of(log, 90)):
            gated = dprl.gate(learner, source, delta=0.2, value_range=(0, 1), markov=False, seed=3,
                              confounding=confounding)  # fmt: skip
            gated.save(tmp_path / "gated")
            files.append((tmp_path / "gated").read_bytes())
        assert files[0] == files[1]
        assert kind == "cut" or gated.certificate.rows


def test_returns_outside_the_range_are_told_in_the_same_words():
    log = trial()
    errors = []
    for source in (log, parts_of(log, 90)):
        with pytest.raises(dprl.LogError) as error:
            dprl.gate(dprl.DPRLDiscrete(n_min=10, gamma=0.9), source, delta=0.2, markov=False,
                      value_range=(0, 0.4))  # fmt: skip
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_cut_episodes_need_a_treatment():
    log = trial(cut=True)
    errors = []
    for source in (log, parts_of(log, 90)):
        with pytest.raises(dprl.LogError) as error:
            dprl.gate(dprl.DPRLDiscrete(n_min=10, gamma=0.9), source, delta=0.2, markov=False,
                      value_range=(0, 1))  # fmt: skip
        errors.append(str(error.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("more", [
    {"markov": True}, {"markov": False, "grade": "large-sample"},
    {"markov": False, "split": [True]}, {"markov": False, "mode": "in-sample", "states": ["ill"]},
])  # fmt: skip
def test_other_certificates_need_the_log_in_memory(more):
    with pytest.raises(dprl.ParameterError, match="needs the log in memory") as error:
        dprl.gate(dprl.DPRLDiscrete(n_min=10, gamma=0.9), parts_of(trial(), 90), delta=0.2,
                  value_range=(0, 1), **more)  # fmt: skip
    assert len(str(error.value).splitlines()) == 3
