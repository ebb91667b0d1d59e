"""Policy files written by earlier versions open, and answer as they did."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import dprl

FOLDER = Path(__file__).parent / "golden"
CASES = [
    (version.name, name, facts)
    for version in sorted(FOLDER.iterdir())
    for name, facts in json.loads((version / "expected.json").read_text()).items()
]


@pytest.mark.parametrize(
    ("version", "name", "facts"), CASES, ids=lambda x: x if isinstance(x, str) else ""
)
def test_a_file_of_an_earlier_version(version, name, facts, tmp_path):
    policy = dprl.load(FOLDER / version / f"{name}.dprl")
    assert [str(a) for a in policy.act(facts["states"])] == facts["act"]
    if policy.knows_practice:
        assert len(policy.changes()) >= 1
        assert str(policy.explain(facts["states"][0]))
    policy.save(tmp_path / "again.dprl")
    again = dprl.load(tmp_path / "again.dprl")
    assert again.act(facts["states"]) == policy.act(facts["states"])
    again.save(tmp_path / "once_more.dprl")  # the first copy is of this version already
    assert (tmp_path / "once_more.dprl").read_bytes() == (tmp_path / "again.dprl").read_bytes()


def test_every_kind_is_there():
    assert {facts["kind"] for _, _, facts in CASES} == {
        "CellPolicy", "ConfidentPolicy", "NeighborPolicy", "NetworkPolicy", "Policy", "RulePolicy",
        "StochasticPolicy", "TablePolicy",
    }  # fmt: skip


def test_an_old_plan_is_learned_again_with_segments_to_the_end():
    old = dprl.load(FOLDER / "0.2.0" / "tabular.dprl")
    log = dprl.envs.care_pathway().sample(3000, seed=7)
    now = dprl.DPRLDiscrete(n_min=10, gamma=0.95, segments="end").fit(log)
    for name in ("choice", "allowed", "n", "Q", "V"):
        assert getattr(now, name).tobytes() == getattr(old, name).tobytes(), name
    np.testing.assert_allclose(now.planned, old.planned, rtol=1e-15)  # sums were ordered otherwise
    pooled = dprl.DPRLDiscrete(n_min=10, gamma=0.95).fit(log)
    assert np.nanmax(np.abs(pooled.planned - old.planned)) > 1e-9
    assert "segments" not in old.parameters
    gated = dprl.gate(old, log, value_range=(0.0, 1.0), mode="in-sample", states=log.states)
    assert gated.parameters["segments"] == "end"


def test_what_an_old_file_did_not_keep_is_not_made_up():
    """Version 1 kept no range of returns: an interval exists only where both sides vary."""
    policy = dprl.load(FOLDER / "0.1.0" / "tabular.dprl")
    assert np.isnan(policy.lowest).all()
    assert np.isnan(policy.highest).all()
    rows = policy.changes().to_dicts()
    assert all(row["low"] < row["advantage"] < row["high"] for row in rows)
