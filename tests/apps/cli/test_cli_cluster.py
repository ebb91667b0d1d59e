"""`dprl fit --cluster`: the same policy file, and errors in three lines."""

from __future__ import annotations

import json

import pytest

import dprl
from conftest import options

pytest.importorskip("distributed")


@pytest.fixture
def address(two):
    return two.client.scheduler.address


@pytest.mark.slow
def test_the_same_file(run, visits, address, tmp_path):
    path, columns = visits
    asked = ["--n-min", 20, "--gamma", 0.9]
    code, _, err = run("fit", path, *options(columns), *asked, "--out", "here.dprl")
    assert (code, err) == (0, "")
    there = ["--cluster", address]
    code, out, err = run("fit", path, *options(columns), *asked, *there, "--out", "there.dprl")
    assert (code, err) == (0, "")
    assert "Saved as there.dprl." in out
    here = (tmp_path / "here.dprl").read_bytes()
    assert (tmp_path / "there.dprl").read_bytes() == here


@pytest.mark.slow
def test_a_log_in_parts(run, address, tmp_path):
    dprl.write(dprl.envs.care_pathway().sample(300, seed=0), tmp_path / "log.parquet")
    names = ("episode", "time", "state", "action", "reward")
    asked = ["fit", "log.parquet", *options({n: n for n in names}), "--n-min", 20, "--gamma", 0.9]
    assert run(*asked, "--out", "here.dprl")[0] == 0
    there = ["--cluster", address, "--out-of-core", "--temp-folder", tmp_path]
    code, out, _ = run(*asked, *there, "--out", "there.dprl", "--json")
    assert code == 0
    assert json.loads(out)["policy"] == "there.dprl"
    assert (tmp_path / "there.dprl").read_bytes() == (tmp_path / "here.dprl").read_bytes()
    assert not list(tmp_path.glob("dprl-parts-*"))


def test_what_is_refused(run, visits):
    path, columns = visits
    asked = ["fit", path, *options(columns), "--gamma", 0.9]
    code, _, err = run(*asked, "--n-min", 20, "--cluster", "nowhere")
    assert code == 1
    assert err.startswith("ParameterError: --cluster must be")
    code, _, err = run(*asked, "--learner", "rules", "--cluster", "local:2")
    assert code == 1
    assert err == (
        "ParameterError: the learner rules works in one process, not on a cluster.\n"
        "  first: --cluster local:2\n  Leave --cluster out, or say --learner dprl or confident.\n"
    )
