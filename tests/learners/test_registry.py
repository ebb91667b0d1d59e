"""A learner with its own kind of policy, and a scale, that no module of dprl knows of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dprl
from conftest import options
from dprl._core.optional import PLUGINS
from dprl.evidence.neighbors.scales import SCALES, register_scale
from dprl.learners.registry import LEARNERS, find, settings_of
from dprl.policies.base import KINDS

COLUMNS = {"episode": "patient", "state": "stage", "action": "drug", "reward": "score"}


@pytest.fixture
def firm(monkeypatch):
    """The module of another package; what it declares is forgotten afterwards."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    import firm

    yield firm
    for registry, name in ((LEARNERS, "firm"), (LEARNERS, "firm:Firm"), (KINDS, "firm")):
        registry.pop(name, None)
    sys.modules.pop("firm")


@pytest.fixture
def visits(tmp_path):
    """Two files of visits: to learn from, and held out."""
    paths = []
    for seed in (0, 1):
        log = dprl.envs.care_pathway().sample(400, seed=seed)
        path = tmp_path / f"visits{seed}.parquet"
        dprl.write(log, path)
        frame = pd.read_parquet(path).rename(columns=COLUMNS)
        frame["patient"] = [f"{seed}-{p}" for p in frame["patient"]]
        frame.to_parquet(path)
        paths.append(path)
    return paths


def test_a_learner_with_its_own_kind_of_policy(firm, visits, tmp_path):
    train, held = (dprl.read(path, **COLUMNS) for path in visits)
    policy = firm.Firm(gamma=1.0, least=0.1).fit(train)
    policy.save(tmp_path / "firm.dprl")
    loaded = dprl.load(tmp_path / "firm.dprl")
    assert type(loaded) is firm.FirmPolicy
    assert loaded.digest() == policy.digest()
    assert np.array_equal(loaded.share, policy.share, equal_nan=True)
    assert loaded.act("fever") == policy.act("fever") == "antibiotics"
    assert len(loaded.changes()) == policy.summary()["changes"] == 2
    assert str(dprl.evaluate(loaded, held, draws=100)) == str(
        dprl.evaluate(policy, held, draws=100)
    )
    dprl.report(loaded, held, tmp_path / "report.html", draws=100)
    assert "antibiotics" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_its_files_are_checked_as_those_of_dprl(firm, visits, tmp_path):
    policy = firm.Firm(gamma=1.0).fit(dprl.read(visits[0], **COLUMNS))
    with pytest.raises(dprl.PolicyError, match=r"'share' is float64\(2,\), not float64"):
        replace(policy, share=np.ones(2))
    wrong = replace(policy, share=policy.share + 2)
    with pytest.raises(dprl.PolicyError, match="a share is above 1"):
        wrong.save(tmp_path / "wrong.dprl")
    policy.save(tmp_path / "firm.dprl")
    KINDS.pop("firm")
    with pytest.raises(dprl.PolicyError, match="kind 'firm', which this version cannot read"):
        dprl.load(tmp_path / "firm.dprl")


@pytest.mark.slow
def test_its_options_on_the_command_line(run, firm, visits):
    own = [visits[0], *options(COLUMNS), "--gamma", 1, "--learner", "firm"]
    code, out, err = run("fit", *own, "--least", 0.1, "--n-min", 30, "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    expected = firm.Firm(gamma=1.0, least=0.1, n_min=30).fit(dprl.read(visits[0], **COLUMNS))
    assert facts["digest"] == expected.digest()
    assert facts["stated"] == list(expected.stated)
    code, out, _ = run("fit", "--learner", "firm", "--help")
    words = " ".join(out.replace("│", " ").split())
    assert "--least FLOAT firm: Share of episodes that must have taken it, in [0, 1)." in words
    assert "--side CHOICE firm: Which side of --least counts" in words
    assert run("evaluate", "policy.dprl", visits[1], "--draws", 100)[0] == 0
    assert run("report", "policy.dprl", visits[1], "--draws", 100, "--out", "report.html")[0] == 0
    assert run("changes", "policy.dprl")[0] == 0
    swept = ["sweep", *own, "--n-min", 20, 40, "--vary", "least=0,0.1", "--draws", 100]
    assert run(*swept)[0] == 0
    code, _, err = run("fit", *own, "--depth", 2)
    assert (code, "--depth: not for the learner firm, only for rules." in err) == (1, True)
    assert run("fit", *own, "--side", "beside")[0] == 2
    code, _, err = run("fit", *own[:-2], "--n-min", 30, "--least", 0.1)
    assert (code, "--least: not for the learner dprl, only for firm." in err) == (1, True)


def test_a_class_is_named_as_python_imports_it(run, firm, visits):
    own = [visits[0], *options(COLUMNS), "--gamma", 1]
    assert run("fit", *own, "--learner", "firm:Firm", "--least", 0.1)[0] == 0
    assert dprl.load("policy.dprl").parameters["least"] == 0.1
    code, _, err = run("fit", *own, "--learner", "firm:Nobody")
    assert (code, "there is no learner 'firm:Nobody'" in err) == (1, True)
    code, _, err = run("fit", *own, "--learner", "no_such_module:Learner")
    assert (code, "No module named 'no_such_module'" in err) == (1, True)
    assert run("fit", *own, "--learner", "nobody")[0] == 2


def test_a_rival_has_no_changes_to_print(run, visits):
    own = [visits[0], *options(COLUMNS), "--gamma", 1]
    rival = "dprl.learners.baselines.plain:BC"
    code, out, _ = run("fit", *own, "--learner", rival)
    LEARNERS.pop(rival)
    assert (code, "<StochasticPolicy: BC" in out, "Saved as policy.dprl." in out) == (0, True, True)


@pytest.mark.slow  # two processes
def test_another_process_finds_it_by_the_environment(visits, tmp_path):
    env = {**os.environ, PLUGINS: "firm", "PYTHONPATH": str(Path(__file__).parent)}
    dprl_ = [sys.executable, "-m", "dprl"]
    own = [*map(str, (visits[0], *options(COLUMNS))), "--gamma", "1", "--learner", "firm"]
    subprocess.run([*dprl_, "fit", *own], env=env, cwd=tmp_path, check=True, capture_output=True)
    line = [*dprl_, "changes", "policy.dprl"]
    assert subprocess.run(line, env=env, cwd=tmp_path, check=False).returncode == 0
    del env[PLUGINS]
    assert subprocess.run(line, env=env, cwd=tmp_path, check=False).returncode == 1


def test_settings_read_from_the_source_are_those_of_the_class():
    for entry in LEARNERS.values():
        for features, where in ((False, entry.labels), (True, entry.features)):
            if isinstance(where, str):
                live = settings_of(entry.made_by(features=features))
                declared = settings_of(where)
                assert [s.name for s in declared] == [s.name for s in live]
                assert [s.words for s in declared] == [s.words for s in live]
                assert [s.default for s in declared] == [s.default for s in live]
                kinds = [s.kind for s in declared if s.name != "metric"]
                assert kinds == [s.kind for s in live if s.name != "metric"]
                assert all(s.words for s in declared)


def test_names_are_taken_once():
    with pytest.raises(dprl.ParameterError, match="there is a learner 'dprl' already"):
        dprl.learners.register("dprl", labels=dprl.Confident)
    with pytest.raises(dprl.ParameterError, match="is no learner"):
        dprl.learners.register("log", labels=dprl.Log)
    with pytest.raises(dprl.ParameterError, match="has no class"):
        dprl.learners.register("none")
    assert find("nobody") is None


def test_a_scale_of_your_own(run, tmp_path):
    register_scale("width", lambda x: np.ptp(x, axis=0))
    try:
        rng = np.random.default_rng(0)
        x = rng.normal(size=200) * 10
        frame = pd.DataFrame({
            "id": range(200), "x": x, "a": np.where(rng.random(200) < 0.5, "drug", "wait"),
            "r": rng.random(200),
        })  # fmt: skip
        frame.to_csv(tmp_path / "x.csv", index=False)
        own = ["x.csv", "--episode", "id", "--state", "x", "--action", "a", "--reward", "r"]
        settings = ["--gamma", 1, "--n-min", 10, "--radius", 0.2, "--scale", "width"]
        assert run("fit", *own, *settings)[0] == 0
        policy = dprl.load("policy.dprl")
        assert policy.parameters["metric"]["scale"] == "width"
        assert np.isclose(policy.scale[0], np.ptp(x), rtol=1e-6)
        assert run("fit", *own, *settings[:-1], "height")[0] == 2
    finally:
        SCALES.pop("width")
