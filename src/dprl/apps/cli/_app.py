"""The command line's `app`: a command registers here, in the module that defines it."""

from __future__ import annotations

from typing import Any, TypeVar

from cyclopts import App

from dprl._core.version import __version__

__all__ = ["ORDER", "app", "command"]

ORDER = (
    "init", "build", "check", "fit", "changes", "explain", "act", "gate", "monitor", "evaluate",
    "sensitivity", "sweep", "split", "evidence", "merge", "report", "review", "sign", "verify",
    "serve", "audit", "export", "icu", "reproduce", "demo", "doctor", "completion",
    "help",
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
    place = ORDER.index(name)
    app.command(what)
    app[name].sort_key = place
    hints = " ".join(map(str, getattr(what, "__annotations__", {}).values()))
    if "LogOptions" in hints or "OtherColumns" in hints:
        app[name].help_epilogue = f"{EXIT_CODES}\n\n{SEE}"
    return what
