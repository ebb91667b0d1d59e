"""`dprl help`: what a command does, and the options about a log that commands share."""

from __future__ import annotations

from dataclasses import dataclass

from cyclopts import App, Parameter

from dprl.apps.cli._app import app, command
from dprl.apps.cli.options import log_options
from dprl.errors import ParameterError

__all__ = ["help"]


@Parameter(name="*")
@dataclass(kw_only=True)
class AllLogOptions(log_options("_All", optional=True, shown=True)):  # type: ignore[misc]
    """The options about a log, all of them shown."""


ABOUT_LOG = """Options about the log, of all commands that read one.

They say which column is what, how the table is written, and what is done to its values. Commands
that take a policy read the columns it was fitted on; name those that are called otherwise. All can
be kept in `dprl.toml`, in the table [log].
"""


@command
def help(topic: str = "", /) -> int:  # noqa: A001  (a command has the name of its function)
    """Show what a command does, or the options about a log: `dprl help fit`, `dprl help log`.

    Args:
        topic: A command, or log.
    """
    if topic == "log":
        topics = App(name="dprl COMMAND", help=ABOUT_LOG, help_flags=(), version_flags=())
        topics.default(_log)
        topics.help_print([])
        return 0
    commands = [name for name in app if not name.startswith("-")]
    if topic and topic not in commands:
        raise ParameterError(
            f"there is no help on {topic!r}.", do=f"Ask for log, or for {', '.join(commands)}."
        )
    app.help_print([topic] if topic else [])
    return 0


def _log(*, log: AllLogOptions | None = None) -> None:
    """Only its help is used."""
