"""How the command line is put together: commands by subject, registered where they are defined."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import dprl.apps.cli
from dprl.apps.cli.console import ORDER, app

FOLDER = Path(dprl.apps.cli.__file__).parent


def commands_in(path: Path) -> list[str]:
    """The commands that a module registers: functions under `@command`, and `command(group)`."""
    tree = ast.parse(path.read_text())
    groups = {
        ast.unparse(target): keyword.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        for keyword in node.value.keywords
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant)
    }
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and "command" in {ast.unparse(decorator) for decorator in node.decorator_list}
    ] + [
        groups[ast.unparse(node.value.args[0])]
        for node in tree.body
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "command"
    ]


DEFINED = {path.stem: commands_in(path) for path in FOLDER.glob("*.py")}
OF_STUDIES = commands_in(FOLDER.parents[2] / "dprl_studies" / "commands.py")


def test_a_command_is_defined_once():
    defined = [name for names in DEFINED.values() for name in names]
    assert sorted(defined) == sorted(name for name in ORDER if name not in OF_STUDIES)
    assert sorted(OF_STUDIES) == ["bench", "icu", "reproduce"]


def test_every_command_that_is_defined_is_registered():
    registered = [name for name in app if not name.startswith("-")]
    defined = [name for names in DEFINED.values() for name in names]
    assert sorted(registered) == sorted([*defined, *OF_STUDIES])


def test_a_fresh_process_has_every_command_from_main_alone():
    code = "from dprl.apps.cli.main import app; print(*[n for n in app if n[0] != '-'])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(out.stdout.split()) == sorted(ORDER)


def test_help_lists_commands_in_the_order_people_use_them(run):
    code, out, _ = run("--help")
    rows = re.findall(r"^│ ([a-z]+)  ", out, re.MULTILINE)
    assert (code, rows) == (
        0,
        [
            "study", "init", "build", "check", "fit", "changes", "explain", "act", "gate", "monitor", "evaluate",
            "sensitivity",
            "sweep", "split", "evidence", "merge", "report", "review", "sign", "verify", "serve", "audit", "export",
            "icu",
            "reproduce", "bench", "demo", "doctor", "completion", "help",
        ],
    )  # fmt: skip


def test_main_only_runs():
    tree = ast.parse((FOLDER / "main.py").read_text())
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert functions[-3:] == ["main", "_run", "_place"]
    assert DEFINED["main"] == []
