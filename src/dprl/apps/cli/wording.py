"""What the library says, for readers of the command line: options in place of Python arguments.

Messages carry what they name as data (`dprl._core.words`): arguments, learners and functions. From
Python they are shown as Python writes them; commands show them through `in_options`, which writes
an argument as its option (``plan=False`` is ``--no-plan``), and names commands and learners as the
command line does. An argument that no command takes as an option stays as it is.
"""

from __future__ import annotations

import functools
from typing import Any

from dprl._core.words import Named, Said
from dprl.errors import DprlError

NAMES = {
    "dprl.Rules": "--learner rules", "dprl.Confident": "--learner confident",
    "dprl.DPRLDiscrete": "--learner dprl", "dprl.DPRLContinuous": "--learner dprl",
    "DPRLDiscrete": "--learner dprl", "DPRLContinuous": "--learner dprl",
    "dprl.markov_check": "dprl check --markov", "dprl.merge_evidence": "dprl merge",
    "dprl.site_evidence": "dprl evidence",
}  # fmt: skip
"""What Python calls a learner or a command → what the command line calls it."""

ALIKE = {"value_range": "--lowest and --highest"}
"""Arguments that have other options than their own names."""


@functools.cache
def _known() -> tuple[frozenset[str], frozenset[str]]:
    """All options of all commands, and all commands."""
    from dprl.apps.cli.console import app

    commands = [name for name in app if not name.startswith("-")]
    options: set[str] = set()
    for name in commands:
        own = app[name]
        parts = [own[n] for n in own if not n.startswith("-")] or [own]
        for part in parts:
            options |= {n for a in part.assemble_argument_collection() for n in a.names}
    return frozenset(n for n in options if n.startswith("--")), frozenset(commands)


def in_options(text: str) -> str:
    """A message of the library as a reader of the command line needs it.

    Args:
        text: What is wrong, where, or what to do about it.

    Example:
        >>> from dprl._core.words import option, worded
        >>> in_options(worded("Choose {cut}.", cut=option("cut", "drop")))
        'Choose --cut drop.'
    """
    if isinstance(text, Named):
        return _named(text)
    if not isinstance(text, Said):
        return text
    if text.parts:
        return in_options(text.between).join(map(in_options, text.parts))
    shown = {n: in_options(v) if isinstance(v, str) else v for n, v in text.values.items()}
    chosen = text.other if text.other and text.values.get("n") != 1 else text.message
    return chosen.format(**shown) if shown else chosen


def error_in_options(error: DprlError) -> DprlError:
    """The same error, worded for the command line."""
    lines = (in_options(line) for line in (error.what, error.where, error.do))
    return type(error)(*lines, argument=error.argument)


def _option(name: str) -> str:
    """The option of an argument; '' where no command has it."""
    option = f"--{name.replace('_', '-')}"
    return ALIKE.get(name, option if option in _known()[0] else "")


def _named(text: Named) -> str:
    """What a message names, as the command line calls it."""
    if text.kind == "either":
        return str(text.value)
    if text.kind == "called":
        name = text.name.removeprefix("dprl.")
        command = f"dprl {name}" if name in _known()[1] else text.name
        return NAMES.get(text.name, command)
    option = _option(text.name)
    if not option:
        return str(text)
    return option if text.value is None or text.name in ALIKE else _valued(option, text.value)


def _valued(option: str, value: Any) -> str:
    """An option with its value."""
    if isinstance(value, bool):
        return option if value else f"--no-{option[2:]}"
    written = str(value)
    return f"{option} {repr(written) if ' ' in written else written}"
