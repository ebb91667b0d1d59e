"""A certificate over labelled states does not depend on where the rows of the log are."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from sources import WAYS as PLACES
from sources import bytes_of

import dprl
from conftest import options
from dprl.logs.source import parts_of


def trial(seed=0, episodes=200, *, groups=False, cut=False, menus=False, lots=False):
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
    "menus": {"groups": True, "menus": True},
    "lots": {"lots": True, "episodes": 250},
    "drop-unrelated": {"cut": True, "groups": True},
    "terminal": {"cut": True, "groups": True},
}
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


def learner_for(kind):
    return dprl.DPRLDiscrete(n_min=10, gamma=0.9, cut=kind if "cut" in LOGS[kind] else None)


@functools.cache
def in_memory(kind, way):
    """The gated policy of a log in memory, and its file."""
    gated = dprl.gate(learner_for(kind), trial(**LOGS[kind]), **ASKED, **WAYS[way])
    with tempfile.TemporaryDirectory() as folder:
        return gated, bytes_of(gated, Path(folder, "gated"))


@pytest.mark.parametrize("rest", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", WAYS)
def test_the_gated_policy_is_the_same_byte_for_byte(way, rest, held, request, tmp_path):
    """Every way of gating meets every log, and every place every log; slow: all three at once."""
    first = [*WAYS].index(way) + [*PLACES].index(request.node.callspec.params["held"])
    for i, (kind, own) in enumerate(LOGS.items()):
        if bool((i - first) % len(LOGS)) != rest:
            continue
        gated, file = in_memory(kind, way)
        there = dprl.gate(learner_for(kind), held(trial(**own)), **ASKED, **WAYS[way])
        assert bytes_of(there, tmp_path / "there") == file
        assert gated.certificate.rows or kind != "lots"


@pytest.mark.thin(1)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_policy_is_gated_the_same(seed, held, tmp_path):
    fitted = dprl.DPRLDiscrete(n_min=10, gamma=0.9).fit(trial(seed))
    source = held(trial())
    for way in (WAYS["all visits"], WAYS["large"]):
        files = [
            bytes_of(dprl.gate(fitted, log, **ASKED, **way), tmp_path / "gated")
            for log in (trial(), source)
        ]
        assert files[0] == files[1]


def test_all_visits_of_few_states_at_a_time(tmp_path):
    log = dprl.envs.care_pathway().sample(1_000, seed=0)
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    files = [
        bytes_of(dprl.gate(learner, source, **ASKED), tmp_path / "gated")
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
        assert bytes_of(here, tmp_path / "here") == bytes_of(there, tmp_path / "there")


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
    (dprl.DPRLDiscrete(n_min=10, gamma=0.9), {"split": [True] * 100 + [False] * 100}),
    (dprl.DPRLDiscrete(n_min=10, gamma=0.9), {"mode": "policy", "grade": "large-sample"}),
    (dprl.DPRLContinuous(n_min=10, radius=1.0, gamma=0.9), {}),
    (dprl.Rules(gamma=0.9), {}),
])  # fmt: skip
def test_what_needs_all_rows_says_so(proposal, more):
    with pytest.raises(dprl.ParameterError, match="needs the whole log in memory") as error:
        dprl.gate(proposal, parts_of(trial(), 90), **ASKED, **more)
    assert len(str(error.value).splitlines()) == 3
