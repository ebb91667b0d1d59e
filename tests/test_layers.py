"""The architecture: a package imports only from the rows above its own."""

from __future__ import annotations

import ast
from pathlib import Path

import dprl

SRC = Path(__file__).parent.parent / "src" / "dprl"
ROWS = [
    "errors",
    "_core",
    "logs",
    "evidence",
    "planning",
    "policies",
    "learners",
    "certificate",
    "evaluation",
    "envs",
    "studies",
    "apps",
    "__main__",
    "__init__",
]
ROW = {name: i for i, name in enumerate(ROWS)}
PACKAGES = [name for name in ROWS if (SRC / name).is_dir()]
BELOW_ALL = {"dprl._core.lazy", "dprl._core.version"}
"""What any package may use to say which names it has."""
VAGUE = {"found", "known", "said", "told"}
"""Names of local variables that do not say what the variable holds."""


def imports(path):
    """The modules of dprl that a file imports, also where only type checkers look."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dprl":
            if node.module == "dprl":
                yield from (f"dprl.{alias.name}" for alias in node.names)
            else:
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("dprl."))


def package_of(path):
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def test_every_name_has_a_row():
    there = {p.name.removesuffix(".py") for p in SRC.iterdir() if p.name != "__pycache__"}
    assert there - {"py.typed"} == set(ROW)
    assert len(there) <= 15


def test_no_package_imports_upward():
    found = [
        f"{path.relative_to(SRC)} imports {module}"
        for path in SRC.rglob("*.py")
        for module in imports(path)
        if module not in BELOW_ALL
        and (used := module.split(".")[1]) in ROW
        and used != package_of(path)
        and ROW[used] >= ROW[package_of(path)]
    ]
    assert not found


def local_names(path):
    """(line, name) of every parameter of a function and every variable set inside one."""
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.arg):
                yield node.lineno, node.arg
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.lineno, node.id
            elif isinstance(node, ast.ExceptHandler) and node.name:
                yield node.lineno, node.name


def test_local_names_say_what_they_hold():
    vague = {
        f"{path.relative_to(SRC)}:{line} {name}"
        for path in SRC.rglob("*.py")
        for line, name in local_names(path)
        if name in VAGUE
    }
    assert not vague


def test_each_package_says_what_it_is_for():
    for name in PACKAGES:
        init = SRC / name / "__init__.py"
        words = ast.get_docstring(ast.parse(init.read_text())) or ""
        assert len(words.split("\n\n")) >= 2, f"{name} needs a paragraph"


def lazy_packages():
    for init in [SRC / "__init__.py", *(SRC / name / "__init__.py" for name in PACKAGES)]:
        if "attach(" in init.read_text():
            relative = init.parent.relative_to(SRC.parent)
            yield ".".join(relative.parts), init


def test_names_imported_on_first_use_are_those_type_checkers_see():
    import importlib

    for name, init in lazy_packages():
        tree = ast.parse(init.read_text())
        blocks = [
            n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
        ]
        seen = {
            (alias.name, f"{node.module}")
            for block in blocks
            for node in block.body
            for alias in node.names
        }
        module = importlib.import_module(name)
        assert sorted(alias for alias, _ in seen) == sorted(module.__all__), name
        for alias, home in seen:
            assert getattr(module, alias) is getattr(importlib.import_module(home), alias)
        if name != "dprl":
            assert len(module.__all__) <= 11


def test_public_names_keep_working():
    import importlib

    for name in ("baselines", "envs", "icu", "atari", "certificate", "stats"):
        module = importlib.import_module(f"dprl.{name}")
        assert getattr(dprl, name) is module
    from dprl.baselines import BC

    from dprl.learners.baselines import BC as SAME

    assert BC is SAME
    spibb = importlib.import_module("dprl.baselines.spibb")
    assert spibb.SPIBB is dprl.baselines.SPIBB
    assert spibb.__name__ == spibb.__spec__.name == "dprl.learners.baselines.spibb"
