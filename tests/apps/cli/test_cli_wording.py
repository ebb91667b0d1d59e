"""Messages name options on the command line and arguments in Python."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest

import dprl
from conftest import options
from dprl._core.checks import MUST_BE
from dprl._core.words import api, argument, either, option, worded
from dprl.apps.cli.console import error_in_options, in_options
from dprl.apps.cli.main import main  # noqa: F401  (every command registers)

SRC = Path(dprl.__file__).parent
PYTHON = re.compile(
    r"(?<!--)(?<![\w'\"./{=-])\b[a-z_]+=(?![=<])|\bLog\.|\bdprl\.(?!toml|dprl)[a-zA-Z_]+|"
    r"\blog\.\w+\(|\b(?:True|False)\b|\bDPRL[A-Z]\w+|\bn_min\b"
)
"""Words of Python."""
IN_PYTHON_ALONE = (
    "apps/contest", "apps/figures", "apps/review", "apps/serve", "apps/testing", "envs", "evidence/neighbors", "evidence/counts",
    "evidence/sites", "evidence/nuisances", "evidence/decision_points", "evidence/excursions",
    "evaluation/_sweep", "learners/baselines", "logs/reading/frames", "logs/reading/episode_sets",
    "planning/markov", "planning/finite_mdp", "planning/model", "policies/callable",
    "policies/protocol", "policies/stochastic",
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
            function = node.func if isinstance(node, ast.Call) else None
            called = getattr(function, "attr", None) or getattr(function, "id", "")
            if called in ("Finding", "warn") or called.endswith("Error"):
                for part in [*node.args, *(k.value for k in node.keywords)]:
                    text = spelt(part)
                    if text and " " in text and not text.startswith(REACHED_FROM_PYTHON):
                        yield f"{name}:{node.lineno}", text


def spelt(part):
    """A string, with x in its places; '' for anything else. What `worded` names is data."""
    if isinstance(part, ast.Call) and ast.unparse(part.func) == "worded":
        return re.sub(r"\{[^}]*\}", "x", spelt(part.args[0]))
    if isinstance(part, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else "x" for v in part.values)
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else ""


def test_no_message_of_a_command_speaks_python():
    messages = list(catalogue())
    assert len(messages) > 400
    left = []
    for where, text in messages:
        own = re.sub(r"--[a-z-]+ \w+=\S+|'[^']*'|\bx=x", "", text)  # options, quotations, places
        if PYTHON.search(own):
            left.append((where, text))
    assert not left


@pytest.mark.parametrize(
    ("text", "python", "command"),
    [
        (option("cut"), "cut=", "--cut"),
        (option("cut", "terminal"), "cut='terminal'", "--cut terminal"),
        (option("plan", False), "plan=False", "--no-plan"),
        (option("values", True), "values=True", "--values"),
        (option("dates", "%d %b %Y"), "dates='%d %b %Y'", "--dates '%d %b %Y'"),
        (option("value_range", (0, 1)), "value_range=(0, 1)", "--lowest and --highest"),
        (option("no_such_thing", 3), "no_such_thing=3", "no_such_thing=3"),
        (argument("n_min"), "n_min", "--n-min"),
        (api("dprl.evaluate"), "dprl.evaluate", "dprl evaluate"),
        (api("dprl.Rules"), "dprl.Rules", "--learner rules"),
        (api("dprl.CallablePolicy"), "dprl.CallablePolicy", "dprl.CallablePolicy"),
        (either("log.split(0.5)", "dprl split"), "log.split(0.5)", "dprl split"),
        ("'gamma=3' is no state.", "'gamma=3' is no state.", "'gamma=3' is no state."),
    ],
)
def test_names(text, python, command):
    assert text == python
    assert in_options(text) == command
    sentence = "So: " + worded("say {it} or {n:,}.", it=text, n=1200)
    assert sentence == f"So: say {python} or 1,200."
    assert in_options(pickle.loads(pickle.dumps(sentence))) == f"So: say {command} or 1,200."


def test_errors_carry_data():
    with pytest.raises(dprl.ParameterError) as caught:
        dprl.DPRLDiscrete(n_min=0, gamma=1.0)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.key, error.argument, error.values["got"]) == (MUST_BE, "n_min", "0")
    assert str(error) == str(caught.value)
    assert error_in_options(error).what.startswith("--n-min must be")
    assert dprl.LogError("a text").key == ""


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
