"""What the commands that answer over HTTP share: where they listen, and what they say first."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from cyclopts import Parameter

from dprl._core.optional import needed
from dprl.apps.cli.console import complain, show
from dprl.apps.cli.options import Whole

__all__ = ["Host", "Names", "Port", "RequireSigned", "announce", "check_packages", "warn_of_others"]

Host = Annotated[str, Parameter(help="Address to listen on; warns unless it is loopback.")]
Port = Annotated[Whole, Parameter(help="Port to listen on; 0 takes any free port.")]
RequireSigned = Annotated[
    str | None,
    Parameter(help="Public key of minisign: answer only from policies signed with it."),
]
Names = Annotated[
    list[str] | None,
    Parameter(name="--allow-host", help="A further host name of this server.", negative=""),
]


def check_packages() -> None:
    """Refuse where a package that a server needs is not installed."""
    for name in ("starlette", "uvicorn"):
        needed(name, "a server", "dprl[serve]")


def announce(facts: dict[str, Any], text: str, json: bool) -> None:
    """Print at once where the server listens, before it does."""
    show(facts if json else text, json)
    sys.stdout.flush()


def warn_of_others(host: str, what: str) -> None:
    """Warn where others can reach the server, and say what they would see."""
    from dprl.apps._web import is_loopback

    if not is_loopback(host):
        complain(
            f"warning: listening on {host}, not on loopback: whoever can reach it and has the token"
            f" sees {what},\n  and the connection is not encrypted. Put TLS in front of it."
        )
