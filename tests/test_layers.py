"""The architecture: a package imports only from the rows above its own, and folders stay small."""

from __future__ import annotations

import ast
import collections
import functools
import importlib
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import dprl

SRC = Path(__file__).parent.parent / "src" / "dprl"
STUDIES = SRC.parent / "dprl_studies"
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
    "apps",
    "__main__",
    "__init__",
]
ROW = {name: i for i, name in enumerate(ROWS)}
PACKAGES = [name for name in ROWS if (SRC / name).is_dir()]
BELOW_ALL = {"dprl._core.lazy"}
"""What any package may use to say which names it has."""
MODULES = sorted(path for home in (SRC, STUDIES) for path in home.rglob("*.py"))

FILES_IN_A_FOLDER = 20
"""A folder with more modules than this is a list, not a place."""
A_LONG_MODULE = 800
"""A module with more lines than this may hold two ideas: a warning, not an error."""
APART = "# Apart: "
"""How a module that only one other imports says why it is a module: a comment with the reason."""
APART_FOLDERS = {
    "dprl/apps/cli": "one module per command",
    "dprl_studies/paper": "one module per experiment",
}
"""Folders whose modules need no other reason to be apart."""


@functools.cache
def imports(path):
    """The modules of dprl and of its studies that a file imports, also for type checkers alone."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dprl"):
            modules += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            modules += [a.name for a in node.names if a.name.startswith("dprl")]
    return modules


def dotted(path):
    """The name of a module."""
    parts = path.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(path):
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def test_every_name_has_a_row():
    there = {p.name.removesuffix(".py") for p in SRC.iterdir() if p.name != "__pycache__"}
    there -= {p.name for p in SRC.glob("*.pyi")}  # shorter names, for type checkers alone
    assert there - {"py.typed"} == set(ROW)


def test_no_package_imports_upward():
    upward = [
        f"{path.relative_to(SRC)} imports {module}"
        for path in SRC.rglob("*.py")
        for module in imports(path)
        if module not in BELOW_ALL
        and not module.startswith(tuple(f"{name}." for name in BELOW_ALL))
        and (used := (*module.split("."), "")[1]) in ROW
        and used != package_of(path)
        and ROW[used] >= ROW[package_of(path)]
    ]
    assert not upward


def test_dprl_does_not_import_the_studies():
    """The command line and the public names find them by name, so dprl works without them."""
    of_studies = [
        f"{dotted(path)} imports {module}"
        for path in SRC.rglob("*.py")
        for module in imports(path)
        if module.split(".")[0] == STUDIES.name
    ]
    assert not of_studies


def test_dprl_works_where_the_studies_are_not():
    code = (
        "import sys; sys.modules['dprl_studies'] = None; import dprl.apps.cli.main as line; "
        "print(sorted({'icu', 'reproduce', 'fit'} & set(line.app)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['fit']"


def test_folders_stay_small():
    files = collections.Counter(path.parent.relative_to(SRC.parent) for path in MODULES)
    large = {str(folder): n for folder, n in files.items() if n > FILES_IN_A_FOLDER}
    assert not large


def lone_modules():
    """Modules that only one other module imports, with that one; those a package names are public."""
    importers = collections.defaultdict(set)
    for path in MODULES:
        for module in imports(path):
            importers[module].add(dotted(path) + (".__init__" if path.stem == "__init__" else ""))
    for path in MODULES:
        users = importers[dotted(path)] - {dotted(path)}
        if path.stem != "__init__" and len(users) == 1:
            (user,) = users
            if not user.endswith(".__init__"):
                yield path, user


def test_a_module_that_only_one_other_imports_says_why():
    silent = [
        f"{dotted(path)} (by {user})"
        for path, user in lone_modules()
        if path.parent.relative_to(SRC.parent).as_posix() not in APART_FOLDERS
        and APART not in path.read_text()
    ]
    assert not silent


@pytest.mark.filterwarnings("default:a long module")
def test_long_modules_are_mentioned():
    for path in MODULES:
        lines = len(path.read_text().splitlines())
        if lines > A_LONG_MODULE:
            warnings.warn(f"a long module, {lines} lines: {dotted(path)}", stacklevel=1)


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
    for name, init in lazy_packages():
        tree = ast.parse(init.read_text())
        blocks = [
            n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
        ]
        seen = {
            (alias.name, f"{node.module}")
            for block in blocks
            for node in block.body
            if isinstance(node, ast.ImportFrom) and node.module != "types"
            for alias in node.names
        }
        modules = {
            node.target.id for b in blocks for node in b.body if isinstance(node, ast.AnnAssign)
        }
        module = importlib.import_module(name)
        assert sorted([*(alias for alias, _ in seen), *modules]) == sorted(module.__all__), name
        for alias, home in seen:
            assert getattr(module, alias) is getattr(importlib.import_module(home), alias)


def test_public_names_keep_working():
    for name in ("baselines", "envs", "icu", "atari", "certificate", "stats"):
        module = importlib.import_module(f"dprl.{name}")
        assert getattr(dprl, name) is module
    from dprl.baselines import BC
    from dprl.learners.baselines import BC as SAME

    assert BC is SAME
    spibb = importlib.import_module("dprl.baselines.spibb")
    assert spibb.SPIBB is dprl.baselines.SPIBB
    assert spibb.__name__ == spibb.__spec__.name == "dprl.learners.baselines.spibb"


def test_the_old_place_of_the_studies_works_with_a_warning():
    for name in ("studies", "studies.icu", "studies.harness"):
        sys.modules.pop(f"dprl.{name}", None)
        with pytest.warns(DeprecationWarning, match=f"dprl.{name} is called dprl_{name} now"):
            module = importlib.import_module(f"dprl.{name}")
        assert module is importlib.import_module(f"dprl_{name}")


def test_no_module_gives_one_name_two_values():
    """Where modules are folded together, a constant of the one must not replace the other's."""
    twice = []
    for path in MODULES:
        named = [
            name.id
            for line in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(line, ast.Assign)
            for target in line.targets
            for name in (target.elts if isinstance(target, ast.Tuple) else [target])
            if isinstance(name, ast.Name) and name.id != "_"
        ]
        twice += [(path.name, name) for name in sorted(set(named)) if named.count(name) > 1]
    assert not twice
