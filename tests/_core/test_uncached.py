"""Kernels where their machine code cannot be kept: compiled anew, with one line of notice."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numba
import pytest
from numba.core import caching

import dprl
from dprl._core import compiled

pytestmark = pytest.mark.skipif(
    bool(numba.config.DISABLE_JIT), reason="nothing is compiled, so nothing is kept"
)


@pytest.fixture
def double(tmp_path):
    """A function of a file that was never compiled before."""
    (tmp_path / "fresh.py").write_text("def double(x):\n    return 2 * x\n")
    spec = importlib.util.spec_from_file_location("fresh", tmp_path / "fresh.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.double


@pytest.fixture(autouse=True)
def _fresh(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))  # where nothing is kept yet
    monkeypatch.setattr(compiled, "_SAID", [])
    monkeypatch.setattr(compiled, "KERNELS", {})


def test_without_a_folder_for_machine_code(monkeypatch, caplog, double):
    monkeypatch.setattr(caching.CodeLibraryCacheImpl, "_locator_classes", [], raising=False)
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [], raising=False)
    kernels = [compiled.compiled(double) for _ in range(3)]
    assert kernels[0](4) == 8
    assert len(caplog.records) == 1
    assert "compiled code cannot be kept" in caplog.text
    assert "NUMBA_CACHE_DIR" in caplog.text


@pytest.mark.parametrize("step", ["save", "load"])
def test_with_a_disk_that_fails(monkeypatch, caplog, double, step):
    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, step, fail)
    kernel = compiled.compiled(double)
    assert (kernel(4), kernel(1.5)) == (8, 3.0)
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs another user")
def test_a_read_only_installation_without_a_home():
    """As a service without a home folder: the module may be read, and nothing may be written.

    In a folder of its own: pytest closes its own folder to other users whenever it starts.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        _run_as_another_user(Path(folder))


def _run_as_another_user(folder):
    (folder / "installed.py").write_text(
        "from dprl._core.compiled import compiled\n@compiled\ndef double(x):\n    return 2 * x\n"
    )
    program = (
        "import os, dprl._core.compiled\n"
        "dprl._core.compiled.numba.njit(lambda x: 2 * x)(1)  # numba imports much of itself then\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "import installed\n"
        "print(installed.double(4))\n"
    )
    run = subprocess.run(
        [sys.executable, "-B", "-c", program], cwd=folder, capture_output=True, text=True,
        check=False, env={"HOME": "/nonexistent", "PYTHONPATH": str(Path(dprl.__file__).parents[1])},
    )  # fmt: skip
    assert (run.stdout, len(run.stderr.splitlines())) == ("8\n", 1), run.stderr
    assert "compiled code cannot be kept" in run.stderr
