"""`dprl doctor`, `dprl completion` and the demo's report."""

from __future__ import annotations

import json
import shutil
import subprocess
import webbrowser
from importlib import metadata

import pytest

import dprl
from dprl.apps.cli import machine as doctor
from dprl.apps.cli import studying


def test_doctor(run):
    code, out, _ = run("doctor")
    assert code == 0
    assert f"dprl {dprl.__version__}, Python 3." in out
    assert "numba" in out
    assert out.rstrip().endswith("No trouble.")
    facts = json.loads(run("doctor", "--json")[1])
    assert facts["kernels"]["loops"] > 100
    assert 0 <= facts["kernels"]["warm"] <= facts["kernels"]["loops"]
    assert facts["needed"]["duckdb"]
    assert facts["trouble"] == []


def test_doctor_warms(run, monkeypatch):
    done = []
    monkeypatch.setattr(doctor, "WARMING", [lambda: done.append(1), lambda: done.append(2)])
    assert run("doctor")[0] == 0
    assert done == []
    assert run("doctor", "--warm")[0] == 0
    assert done == [1, 2]


@pytest.mark.slow
def test_what_doctor_warms_runs():
    for job in doctor.WARMING:
        job()


def test_doctor_finds_what_is_wrong(run, monkeypatch):
    versions = {"duckdb": "0.9.1", "rich": None}
    true = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda p: versions[p] if p in versions else true(p))
    monkeypatch.setattr(doctor, "_writable", lambda folder: False)
    code, out, _ = run("doctor")
    assert code == 1
    needed = next(line for line in metadata.requires("dprl") or () if line.startswith("duckdb"))
    least = needed.partition(">=")[2]
    assert f"trouble   duckdb 0.9.1 is older than dprl needs ({least} or newer)" in out
    assert "trouble   rich is not installed" in out
    assert "NUMBA_CACHE_DIR" in out


@pytest.mark.thin(1)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(run, shell, tmp_path):
    code, out, _ = run("completion", shell)
    assert code == 0
    for word in ("dprl", "fit", "evaluate", "n-min"):
        assert word in out
    if shutil.which(shell) and shell != "fish":
        (tmp_path / "script").write_text(out)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True)


def test_completion_knows_three_shells(run):
    assert run("completion", "tcsh")[0] == 2


@pytest.mark.parametrize("there", [True, False])
def test_the_demo_opens_its_report(run, tmp_path, monkeypatch, there):
    asked, page = [], tmp_path / "report.html"
    monkeypatch.setattr(studying, "_shown_on", lambda folder, say: {"report": str(page)})
    monkeypatch.setattr(webbrowser, "open", lambda url: asked.append(url) or there)
    code, out, _ = run("demo", "--folder", tmp_path, "--open")
    assert code == 0
    assert asked == [page.as_uri()]
    assert ("open the file yourself" in out) == (not there)
