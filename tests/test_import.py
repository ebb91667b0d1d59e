"""What importing costs, and that it stays that way."""

from __future__ import annotations

import subprocess
import sys

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
