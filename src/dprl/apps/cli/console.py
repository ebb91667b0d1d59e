"""What a command prints: results to standard output, everything else to the error stream."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from cyclopts import App, Parameter

from dprl._core import __version__
from dprl._core.table import CONTROLS, Table, harmless, to_json_value
from dprl._core.words import Named, Said, said_by
from dprl.errors import DprlError

if TYPE_CHECKING:
    from dprl.logs.reading.files import Progress

# --- What the library says, for readers of the command line: options in place of Python arguments
#
# Messages carry what they name as data (`dprl._core.words`): arguments, learners and functions.
# From Python they are shown as Python writes them; commands show them through `in_options`, which
# writes an argument as its option (``plan=False`` is ``--no-plan``), and names commands and
# learners as the command line does. An argument that no command takes as an option stays as it is.

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
    commands = [name for name in app if not name.startswith("-")]
    options: set[str] = set()
    for name in commands:
        own = app[name]
        parts = [own[n] for n in own if not n.startswith("-")]
        if own.default_command is not None:
            parts.append(own)
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


# --- The command line's `app`: a command registers here, in the module that defines it

ORDER = (
    "study", "init", "build", "check", "fit", "changes", "explain", "act", "gate", "monitor",
    "evaluate", "sensitivity", "sweep", "split", "evidence", "merge", "report", "review", "sign",
    "verify", "serve", "audit", "export", "icu", "reproduce", "bench", "demo", "doctor",
    "completion", "help",
)  # fmt: skip
"""The commands in the order of `dprl --help`: as people use them, from a log to a policy in use."""

EXIT_CODES = "Exit codes: 0 done · 1 refused (the message says why) · 2 not understood."
SEE = "Options about the log (its columns, how it is written): see `dprl help log`."
"""The last line of the help of a command that has such options."""

app = App(
    name="dprl",
    version=f"dprl {__version__}",
    help_format="markdown",
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(negative_iterable=()),
    help="""Safe policy improvement from logged decisions.

A log is a table with one decision per row. Look at it, fit a policy, read what it would change:

    dprl check visits.csv --episode patient --state stage --action drug --reward score
    dprl fit   visits.csv --episode patient --state stage --action drug --reward score
               --n-min 20 --gamma 0.99 --out policy.dprl
    dprl changes policy.dprl

Never seen it work? `dprl demo` shows the whole job on data it makes itself.
Column names and settings can be kept in `dprl.toml`: a table [log] for the columns, and one
table per command, such as [fit]. Commands that take a policy read the columns it was fitted on.
""",
    help_epilogue=EXIT_CODES,
)

Command = TypeVar("Command", bound=Any)


def command(what: Command) -> Command:
    """Register a command under its own name, at its place in `ORDER`.

    Args:
        what: A function, or a group of commands (an `App` with a name).
    """
    name = what.name[0] if isinstance(what, App) else what.__name__
    place = ORDER.index(name) if name in ORDER else len(ORDER)
    app.command(what)
    app[name].sort_key = place
    for one in (app[name], *(app[name][sub] for sub in app[name] if not sub.startswith("-"))):
        hints = " ".join(map(str, getattr(one.default_command, "__annotations__", {}).values()))
        if any(kind in hints for kind in ("LogOptions", "OtherColumns", "ProposedColumns")):
            one.help_epilogue = f"{EXIT_CODES}\n\n{SEE}"
    return what


# --- What a command prints: results to standard output, everything else to the error stream

IN_JSON = {code: f"\\u{code:04x}" for code in CONTROLS if code >= 127}
"""What a terminal would obey, as JSON writes it; JSON itself does so below 32."""


def show(what: Any, as_json: bool) -> None:
    """Print a result, for people or for machines."""
    sys.stdout.write((_dumps(what) if as_json else harmless(str(what))) + "\n")


def told(facts: Any, words: Any, json: bool, cautions: Iterable[str] = ()) -> int:
    """Show what a command did: facts to machines, words and warnings to people; its exit code."""
    if json:
        show(facts, as_json=True)
    else:
        caution(cautions)
        show(words, as_json=False)
    return 0


def _dumps(what: Any) -> str:
    return json.dumps(to_json_value(what), ensure_ascii=False).translate(IN_JSON)


def complain(line: str) -> None:
    """Print to the error stream."""
    sys.stderr.write(harmless(line) + "\n")


def caution(lines: Iterable[str]) -> None:
    """Print warnings to the error stream."""
    for line in lines:
        complain(f"warning: {line}")


def printed(result: Any, details: bool) -> str:
    """A result as a command prints it: the answer, or everything."""
    if details:
        return str(result.details())
    return "\n".join(map(in_options, result.brief()))


def head(table: Table, rows: int = 20) -> str:
    """The first rows of a long table, and how to see the rest."""
    if len(table) <= rows:
        return str(table)
    cut = {name: list(values[:rows]) for name, values in table.columns.items()}
    first = replace(table, columns=cut, caption=f"{table.caption}; the first {rows}")
    return f"{first}\nAll of them: dprl changes POLICY"


@contextlib.contextmanager
def warned() -> Iterator[list[str]]:
    """Collect warnings as plain lines, in the words of commands, instead of printing them."""
    lines: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lines
        lines += [in_options(said_by(w)) for w in caught]


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    """A progress bar on the error stream, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda stage, share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    look = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(),
        TextColumn("left:"), TimeLeft(),
    )  # fmt: skip
    with Progress(*look, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def show(stage: str, share: float) -> None:
            for name, task in tasks.items():
                if name != stage:
                    bar.update(task, completed=1.0, total=1.0)
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=1.0 if share > 0 else None)
            if share > 0:
                bar.update(tasks[stage], completed=share, total=1.0)

        yield show


def refuse(error: Exception, kind: str, as_json: bool, code: int, shown: bool = False) -> int:
    """Say what went wrong: as text on the error stream, or as JSON on standard output."""
    if isinstance(error, DprlError):
        error = error_in_options(error)
    if as_json:
        parts = {k: str(getattr(error, k, "")) for k in ("what", "where", "do")}
        what = parts["what"] or str(error)
        show({"ok": False, "error": {"kind": kind, **parts, "what": what}}, as_json=True)
    if not shown:
        complain(f"{kind}: {error}")
    return code
