"""What importing costs, and that it stays that way."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dprl


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_import_loads_nothing_heavy():
    heavy = "['numba', 'scipy', 'duckdb', 'narwhals', 'pandas', 'polars', 'sklearn', 'cyclopts']"
    code = f"import sys, dprl; print([m for m in {heavy} if m in sys.modules])"
    assert python(code).strip() == "[]"


def test_acting_needs_no_compiler():
    code = "import sys; from dprl.policies.loading import load; print('numba' in sys.modules)"
    assert python(code).strip() == "False"


def test_help_needs_nothing_heavy():
    code = (
        "import sys, dprl.apps.cli.main; print([m for m in ['numba', 'scipy', 'duckdb', 'numpy'] "
        "if m in sys.modules])"
    )
    assert python(code).strip() == "[]"


def test_public_names_exist():
    for name in dprl.__all__:
        assert getattr(dprl, name) is not None
    assert set(dir(dprl)) == set(dprl.__all__)


def test_unknown_names_are_attribute_errors():
    assert not hasattr(dprl, "no_such_thing")


HOME = Path(dprl.__file__).parent
SHORTER = ("atari", "baselines", "events", "figures", "icu", "stats")
"""Modules that are reached under a shorter name; stubs tell type checkers."""

TYPED = """
import dprl.icu, dprl.stats
from dprl.atari import QNetwork
from dprl.baselines import SPIBB, DeepCQL
from dprl.events import Spec
from dprl.figures import Figure, policy_map

dprl.baselines.SPIBB(n_min="5", gamma=0.9)
dprl.stats.cvar([1.0], "x")
dprl.icu.Costs(bolus="x")
policy_map()
Spec(no="x")
QNetwork()
"""


@pytest.mark.parametrize("name", SHORTER)
def test_stubs_name_what_there_is(name):
    stub = (HOME / f"{name}.pyi").read_text()
    home = re.search(r"^from (\S+) import", stub, re.MULTILINE)[1]
    assert getattr(dprl, name) is importlib.import_module(home)
    named = re.findall(r"^from \S+ import (\w+) as \1$", stub, re.MULTILINE)
    assert sorted(named) == sorted(getattr(dprl, name).__all__)


@pytest.mark.slow
def test_type_checkers_find_modules_under_their_shorter_names(tmp_path):
    """Each of the last six lines is wrong, and the checker must know the types to see it."""
    (tmp_path / "snippet.py").write_text(TYPED)
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", tmp_path / "snippet.py"],
        cwd=HOME.parent.parent, capture_output=True, text=True, check=False,
        env={**os.environ, "MYPYPATH": "src"},
    )  # fmt: skip
    wrong = [int(line) for line in re.findall(r"snippet\.py:(\d+): error", found.stdout)]
    lines = TYPED.count("\n")
    assert sorted(set(wrong)) == list(range(lines - 5, lines + 1)), found.stdout
