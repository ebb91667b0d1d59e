"""Packages that only some of the work needs: without them three lines say what to install."""

from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dprl
from conftest import to_log
from dprl._core.optional import needed
from dprl._core.table import Table
from dprl.errors import PackageError

SRC = Path(__file__).parents[2] / "src"
OPTIONAL = {
    "ale_py", "gymnasium", "icu_sepsis", "matplotlib", "minari", "pandas", "polars", "pyarrow",
    "prometheus_client", "starlette", "torch", "uvicorn",
}  # fmt: skip
GUARDED = {
    "dprl/planning/finite_mdp.py": {"gymnasium"},
    "dprl_studies/paper/gridworld.py": {"matplotlib"},
    "dprl_studies/paper/contest.py": {"matplotlib"},
    "dprl/apps/connections.py": {"uvicorn"},
    "dprl/apps/review/app.py": {"starlette"},
    "dprl/apps/serve/app.py": {"starlette"},
    "dprl/apps/serve/replies.py": {"starlette"},
}
"""Files that import one outright: whatever imports or calls them has asked `needed` before."""


def refused(monkeypatch, package, work):
    """The lines of the error, where the package cannot be imported."""
    with monkeypatch.context() as without:
        for name in [m for m in sys.modules if m.split(".")[0] == package]:
            without.delitem(sys.modules, name)
        without.setitem(sys.modules, package, None)
        with pytest.raises(PackageError) as caught:
            work()
    assert isinstance(caught.value, dprl.ParameterError)
    assert isinstance(caught.value, ImportError)
    what, where, do = str(caught.value).splitlines()
    assert what.endswith(", which is not installed.")
    assert where.startswith("  first: ")
    assert do.startswith("  pip install ")
    return what, do.strip()


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_to_frame_without_the_library(monkeypatch, library):
    table = Table({"x": [1, 2]})
    what, do = refused(monkeypatch, library, lambda: table.to_frame(library))
    assert what == f"to_frame('{library}') needs {library}, which is not installed."
    assert do == f"pip install {library}"


def test_every_to_frame_goes_the_same_way(monkeypatch):
    mdp = dprl.envs.care_pathway()
    train, valid = mdp.sample(200, seed=1), mdp.sample(200, seed=2)
    learner = dprl.DPRLDiscrete(n_min=5, gamma=1.0)
    swept = dprl.sweep(learner, train, valid, n_min=[5], draws=10, values=False)
    refused(monkeypatch, "pandas", swept.to_frame)
    refused(monkeypatch, "pandas", swept.evaluations[0].to_frame)
    refused(monkeypatch, "pandas", swept.policies[0].changes().to_frame)


def test_a_library_that_to_frame_does_not_know():
    with pytest.raises(dprl.ParameterError, match=r"knows no library 'excel'\.\n  Libraries: pan"):
        Table({"x": [1]}).to_frame("excel")


def test_to_gym_without_gymnasium(monkeypatch):
    what, do = refused(monkeypatch, "gymnasium", dprl.envs.care_pathway().to_gym)
    assert (what.startswith("to_gym() needs gymnasium"), do) == (True, "pip install 'dprl[gym]'")


def test_a_figure_without_matplotlib(monkeypatch, tmp_path):
    mdp = dprl.envs.care_pathway()
    swept = dprl.sweep(
        dprl.DPRLDiscrete(n_min=5, gamma=1.0), mdp.sample(200, seed=1), mdp.sample(200, seed=2),
        n_min=[5], draws=10, values=False,
    )  # fmt: skip
    what, do = refused(monkeypatch, "matplotlib", lambda: swept.plot(tmp_path / "a.png"))
    assert (what.startswith("a figure needs matplotlib"), do) == (True, "pip install 'dprl[plot]'")
    assert not list(tmp_path.iterdir())


def test_networks_without_torch(monkeypatch):
    from dprl.learners.baselines import DeepCQL

    log = dprl.from_arrays(
        episode=[0, 1], state=np.array([[0.0], [1.0]]), action=[0, 1], reward=[0.0, 1.0]
    )
    _, do = refused(monkeypatch, "torch", lambda: DeepCQL(alpha=1.0, gamma=1.0).fit(log))
    assert do == "pip install 'dprl[deep]'"


def test_games_without_ale_py(monkeypatch):
    from dprl_studies.atari.games import Games

    what, do = refused(monkeypatch, "ale_py", lambda: Games("pong", 1))
    assert (what.startswith("the Atari study needs ale-py"), do) == (
        True,
        "pip install 'dprl[atari]'",
    )


def test_the_ward_without_icu_sepsis(monkeypatch):
    what, do = refused(monkeypatch, "icu_sepsis", dprl.envs.icu_sepsis)
    assert (what.startswith("the sepsis ward needs icu-sepsis"), do) == (
        True,
        "pip install 'dprl[bench]'",
    )


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_servers_without_the_extra(monkeypatch, package, run, tmp_path):
    policy = dprl.DPRLDiscrete(n_min=1, gamma=1.0).fit(to_log([[("s", "x", 1.0)]]))
    policy.save(tmp_path / "p.dprl")
    monkeypatch.setitem(sys.modules, package, None)
    code, _, err = run("serve", "p.dprl")
    assert (code, len(err.splitlines())) == (1, 3)
    assert f"a server needs {package}, which is not installed." in err
    assert "pip install 'dprl[serve]'" in err


def test_a_package_that_is_there_and_broken_is_told_apart(monkeypatch, tmp_path):
    (tmp_path / "halfway_there.py").write_text("import no_such_module_of_theirs\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PackageError, match="installed but cannot be imported") as caught:
        needed("halfway_there", "a test", "dprl[test]")
    assert "no_such_module_of_theirs" in caught.value.where


def test_ctrl_c_in_the_middle_of_an_import_is_no_missing_package(monkeypatch, tmp_path):
    lines = ["try:", "    raise KeyboardInterrupt", "except KeyboardInterrupt as stop:"]
    lines.append("    raise ImportError('initialization failed') from stop")
    (tmp_path / "stopped_halfway.py").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        needed("stopped_halfway", "a test", "dprl[test]")


def test_the_error_travels_between_processes():
    try:
        needed("no_such_package", "a test", "dprl[test]")
    except PackageError as error:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (PackageError, str(error))


def outright(path):
    """Optional packages a file imports by a statement, other than for type checking."""
    text = path.read_text()
    if not any(f"{word} {name}" in text for word in ("import", "from") for name in OPTIONAL):
        return
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]


def test_no_file_imports_an_optional_package_on_its_own():
    found = {
        path.relative_to(SRC).as_posix(): names
        for path in SRC.rglob("*.py")
        if (names := set(outright(path)) & OPTIONAL)
    }
    assert found == GUARDED


def test_libraries_that_are_imported_later_work_on_one_thread_too():
    """Threads of OpenMP that wait for each other took ten times what they saved."""
    code = """
from dprl._core.optional import single_thread
with single_thread():
    pass
with single_thread(None):
    from sklearn.utils._openmp_helpers import _openmp_effective_n_threads as threads
    print(threads())
"""
    asked = {**os.environ, "OMP_NUM_THREADS": "2"}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=asked
    )
    assert result.stdout.split() == ["1"]
