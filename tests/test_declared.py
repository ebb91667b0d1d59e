"""What is imported is declared, and what is pinned is pinned once, with hashes."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAMES = {"sklearn": "scikit-learn", "ale_py": "ale-py", "icu_sepsis": "icu-sepsis",
         "prometheus_client": "prometheus-client"}  # fmt: skip


def package(need):
    return re.match(r"[\w-]+", need)[0].lower()


CORE = {package(need) for need in PROJECT["dependencies"]}
EXTRA = {package(need) for needs in PROJECT["optional-dependencies"].values() for need in needs}


def imported(path):
    """(package, whether it is imported as soon as the module is) of a module's imports."""
    tree = ast.parse(path.read_text())
    at_once = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        for name in names:
            top = name.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in ("dprl", "dprl_studies"):
                yield NAMES.get(top, top).lower(), id(node) in at_once


def test_everything_imported_is_declared():
    wanted = {p: set(imported(p)) for p in (ROOT / "src").rglob("*.py")}
    undeclared = {
        (p.name, name)
        for p, names in wanted.items()
        for name, _ in names
        if name not in CORE | EXTRA
    }
    assert not undeclared
    at_once = {name for names in wanted.values() for name, now in names if now}
    served = {"h11", "starlette", "uvicorn", "prometheus-client"}
    assert at_once <= CORE | {"gymnasium", "torch"} | served


def test_lower_bounds_are_known_to_work():
    """Earlier ones were tried, and fail."""
    lowest = {
        package(n): tuple(map(int, n.partition(">=")[2].split(".")))
        for n in PROJECT["dependencies"]
    }
    assert lowest["cyclopts"] >= (4, 1)
    assert lowest["duckdb"] >= (1, 3)


def test_pinned_requirements_have_hashes_and_agree_with_the_constraints():
    text = (ROOT / "requirements.txt").read_text().replace("\\\n", " ")
    entries = [
        line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")
    ]
    assert all(len(e) > 1 and all(h.startswith("--hash=sha256:") for h in e[1:]) for e in entries)
    pinned = dict(e[0].split("==") for e in entries)
    held = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines()[1:]
    )
    assert pinned == {name: held[name] for name in pinned}
    assert {*CORE, "cryptography", "starlette", "uvicorn"} <= set(pinned)
