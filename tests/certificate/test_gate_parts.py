"""A certificate over labelled states does not depend on where the rows of the log are."""

from __future__ import annotations

import numpy as np
import pytest

import dprl
from conftest import options
from dprl.logs.parts import parts_of


def trial(seed=0, episodes=400, *, groups=False, cut=False, menus=False, lots=False):
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
    if lots:
        data["propensity"] = np.where((state == "well") & (rng.random(n) < 0.5), 0.4, 0.5)
    return dprl.from_arrays(**data)


LOGS = {
    "plain": {}, "groups": {"groups": True}, "menus": {"menus": True}, "lots": {"lots": True},
    "cut": {"cut": True, "groups": True, "episodes": 800},
}  # fmt: skip
WAYS = {
    "all visits": {},
    "first visits": {"markov": False},
    "margin": {"margin": 0.01},
    "hidden cause": {"confounding": 1.2},
    "first visits, hidden cause": {"markov": False, "confounding": 1.2},
    "declared": {"mode": "in-sample", "states": ["ill", "well", "never"]},
    "declared, horizon": {"mode": "in-sample", "states": ["ill"], "horizon": 40},
    "declared, first visits": {"mode": "in-sample", "states": ["ill"], "markov": False},
    "large": {"grade": "large-sample"},
    "large, first visits": {"grade": "large-sample", "markov": False},
}
ASKED = {"delta": 0.2, "value_range": (0, 1), "seed": 3}


def saved(policy, path):
    policy.save(path)
    return path.read_bytes()


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("way", WAYS)
def test_the_gated_policy_is_the_same_byte_for_byte(kind, way, tmp_path):
    log = trial(**LOGS[kind])
    for cut in ("drop-unrelated", "terminal") if kind == "cut" else (None,):
        learner = dprl.DPRLDiscrete(n_min=10, gamma=0.9, cut=cut)
        here, there = (
            dprl.gate(learner, source, **ASKED, **WAYS[way]) for source in (log, parts_of(log, 90))
        )
        assert saved(here, tmp_path / "here") == saved(there, tmp_path / "there")
        assert here.certificate.rows or (kind, way) == ("cut", "margin") or cut


@pytest.mark.parametrize("seed", [0, 1])
def test_a_policy_is_gated_the_same(seed, tmp_path):
    fitted = dprl.DPRLDiscrete(n_min=10, gamma=0.9).fit(trial(seed))
    for way in (WAYS["all visits"], WAYS["large"]):
        files = [
            saved(dprl.gate(fitted, source, **ASKED, **way), tmp_path / "gated")
            for source in (trial(), parts_of(trial(), 90))
        ]
        assert files[0] == files[1]


def test_all_visits_of_few_states_at_a_time(tmp_path):
    log = dprl.envs.care_pathway().sample(1_000, seed=0)
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    files = [
        saved(dprl.gate(learner, source, **ASKED), tmp_path / "gated")
        for source in (log, parts_of(log, 300))
    ]
    assert files[0] == files[1]


@pytest.mark.slow
def test_a_cluster_gives_the_same_certificate(two, tmp_path):
    log = trial(groups=True, lots=True)
    learner = dprl.DPRLDiscrete(n_min=10, gamma=0.9)
    for way in WAYS.values():
        here = dprl.gate(learner, log, **ASKED, **way)
        there = dprl.gate(learner, log, **ASKED, **way, cluster=two.client)
        assert saved(here, tmp_path / "here") == saved(there, tmp_path / "there")


def test_the_command_line_reads_the_log_in_parts(run, tmp_path):
    dprl.write(dprl.envs.care_pathway().sample(2_000, seed=0), tmp_path / "log.parquet")
    names = ("episode", "time", "state", "action", "reward")
    fit = ["fit", "log.parquet", *options({n: n for n in names}), "--n-min", 20, "--gamma", 1]
    assert run(*fit, "--out", "p.dprl")[0] == 0
    gate = ["gate", "p.dprl", "log.parquet", "--lowest", 0, "--highest", 1]
    assert run(*gate, "--out", "here.dprl")[0] == 0
    code, _, err = run(*gate, "--out-of-core", "--out", "there.dprl")
    assert (code, err) == (0, "")
    here, there = (dprl.load(tmp_path / f"{name}.dprl").certificate for name in ("here", "there"))
    assert here.rows == there.rows
    assert here.gain == there.gain
    # Columns beside the state are compared in memory alone.
    assert there.notes == tuple(note for note in here.notes if not note.startswith("Be wary"))


@pytest.mark.parametrize("way", [{"value_range": (0, 0.4)}, {"markov": False}, {"grade": "x"}])
@pytest.mark.parametrize("cut", [False, True])
def test_refusals_are_told_in_the_same_words(way, cut):
    if way == {"markov": False} and not cut:
        pytest.skip("nothing is wrong with it")
    log, errors = trial(cut=cut), []
    for source in (log, parts_of(log, 90)):
        with pytest.raises(dprl.DprlError) as error:
            dprl.gate(dprl.DPRLDiscrete(n_min=10, gamma=0.9), source, **{**ASKED, **way})
        errors.append(str(error.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize(("proposal", "more"), [
    (dprl.DPRLDiscrete(n_min=10, gamma=0.9), {"split": [True] * 200 + [False] * 200}),
    (dprl.DPRLDiscrete(n_min=10, gamma=0.9), {"mode": "policy", "grade": "large-sample"}),
    (dprl.DPRLContinuous(n_min=10, radius=1.0, gamma=0.9), {}),
    (dprl.Rules(gamma=0.9), {}),
])  # fmt: skip
def test_what_needs_all_rows_says_so(proposal, more):
    with pytest.raises(dprl.ParameterError, match="needs the whole log in memory") as error:
        dprl.gate(proposal, parts_of(trial(), 90), **ASKED, **more)
    assert len(str(error.value).splitlines()) == 3
