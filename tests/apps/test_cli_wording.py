"""Messages name options on the command line and arguments in Python."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import dprl
from conftest import options
from dprl.apps.cli.main import main  # noqa: F401  (every command registers)
from dprl.apps.cli.wording import in_options, place_in_options

SRC = Path(dprl.__file__).parent
PYTHON = re.compile(
    r"(?<!--)(?<![\w'\"./{=-])\b[a-z_]+=(?![=<])|\bLog\.|\bdprl\.(?!toml|dprl)[a-zA-Z_]+|"
    r"\blog\.\w+\(|\b(?:True|False)\b|\bDPRL[A-Z]\w+|\bn_min\b"
)
"""Words of Python."""
IN_PYTHON_ALONE = (
    "apps/figures", "apps/review", "apps/serve", "envs", "evidence/neighbors",
    "evidence/tabular", "evidence/_site_batches", "evidence/_site_cells", "evidence/_site_rows",
    "evidence/_site_evidence", "evidence/_nuisance_input", "evidence/decision_points",
    "evidence/excursions", "evaluation/_sweep", "learners/baselines", "learners/_variants",
    "logs/_sources", "logs/_episode_sets", "planning/markov", "planning/finite_mdp",
    "planning/transitions", "policies/callable", "policies/_protocol", "policies/fitted",
)  # fmt: skip
"""What no command reaches, or what shows its messages otherwise."""
REACHED_FROM_PYTHON = (
    "Make a log of it with dprl.read (files)", "Read it with the policy's: action_bins=",
    "Let fit(log) return one of dprl's policies", "Add them to xs=",  # states=, actions=
)  # fmt: skip


def catalogue():
    """Every message of an error, a finding or a warning that a command may show."""
    for path in sorted(SRC.rglob("*.py")):
        name = path.relative_to(SRC).as_posix()
        if name.startswith(IN_PYTHON_ALONE):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            called = isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1]
            if called in ("Finding", "warn") or (called or "").endswith("Error"):
                for part in [*node.args, *(k.value for k in node.keywords)]:
                    text = spelt(part)
                    if text and " " in text and not text.startswith(REACHED_FROM_PYTHON):
                        yield f"{name}:{node.lineno}", text


def spelt(part):
    """A string, with x in its places; '' for anything else."""
    if isinstance(part, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else "x" for v in part.values)
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else ""


def test_no_message_of_a_command_speaks_python():
    messages = list(catalogue())
    assert len(messages) > 400
    left = []
    for where, text in messages:
        worded = in_options(text)
        own = re.sub(r"--[a-z-]+ \w+=\S+|'[^']*'|\bx=x", "", worded)  # options, quotations, places
        if PYTHON.search(own):
            left.append((where, worded))
    assert not left


@pytest.mark.parametrize(
    ("python", "command"),
    [
        ("Choose cut= (--cut), or wait.", "Choose --cut, or wait."),
        ("say cut='terminal' or cut='drop' (--cut) so", "say --cut terminal or --cut drop so"),
        ("Use cut='drop' or 'terminal'.", "Use --cut drop or terminal."),
        ("for a time (follow_up=, --follow-up).", "for a time (--follow-up)."),
        ("Say plan=False, or values=True.", "Say --no-plan, or --values."),
        ("Read: state=['age', 'pressure', …].", "Read: --state age --state pressure."),
        ("n_min must be at least 1; got 0.", "--n-min must be at least 1; got 0."),
        ("gamma must be in (0, 1].", "--gamma must be in (0, 1]."),
        ("Judge it with dprl.evaluate.", "Judge it with dprl evaluate."),
        ("apart: log.split(0.5, seed=0), or dprl split.", "apart: dprl split."),
        ("or use dprl.Rules, which", "or use --learner rules, which"),
        ("such as dates='%d %b %Y'.", "such as --dates '%d %b %Y'."),
        # Nothing of these is an argument: data, a pattern, how an option is written, a file.
        ("'gamma=3' is no state.", "'gamma=3' is no state."),
        ("as in 'time=*/*.parquet'", "as in 'time=*/*.parquet'"),
        ("--missing episode=flag", "--missing episode=flag"),
        ("in dprl.toml, or policy.dprl", "in dprl.toml, or policy.dprl"),
        ("holds a policy of DPRLDiscrete.", "holds a policy of DPRLDiscrete."),
        ("x=3", "x=3"),
    ],
)
def test_words(python, command):
    assert in_options(python) == command


def test_a_place_in_data_stays_as_it_is():
    assert place_in_options("row 3 (episode=3, grade=2)") == "row 3 (episode=3, grade=2)"
    assert place_in_options("mode='in-sample', plan=True") == "--mode in-sample, --plan"


def test_errors_and_warnings_of_commands(run, visits):
    path, columns = visits
    text = Path(path).read_text()
    Path("gone.csv").write_text(text.replace("0,0,mild", "0,0,", 1).replace(",1\n", ",\n", 1))
    code, _, err = run("fit", "gone.csv", *options(columns), "--n-min", 20, "--gamma", 1)
    assert code == 1
    assert "--missing drop-episodes" in err
    assert "missing=" not in err
    code, _, err = run("fit", path, *options(columns), "--n-min", 0, "--gamma", 1)
    assert code == 1
    assert "--n-min must be" in err
    code, out, _ = run("check", "gone.csv", *options(columns), "--json")
    assert code == 1
    assert "missing=" not in out
    with pytest.raises(dprl.ParameterError, match="n_min must be"):
        dprl.DPRLDiscrete(n_min=0, gamma=1.0)
    with pytest.raises(dprl.LogError, match="missing="):
        dprl.read("gone.csv", **columns)
