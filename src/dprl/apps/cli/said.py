"""What dprl.toml sets that a user must be told: it may have been found in somebody's folder."""

from __future__ import annotations

from typing import Any

from dprl._core.table import printable
from dprl.apps.cli.console import complain
from dprl.apps.cli.options import SETTINGS

__all__ = ["defaults_of", "say_defaults"]

TO_BE_SAID = (
    "out", "record", "verdicts", "audit", "temp", "log", "cds", "host", "port", "allow_host",
    "token", "cases", "cluster", "require_signed",
)  # fmt: skip
"""Options that say where is written and who may ask: a file found in a folder sets none unsaid."""
OF_SERVE = ("log", "log_states", "cds", "reload")
"""The same of `dprl serve` alone: what `--log` names is written there, and read elsewhere."""


def defaults_of(tables: Any, tokens: list[str]) -> dict[str, Any]:
    """The defaults of the command that is asked for; [icu.build] is inside [icu]."""
    for token in tokens:
        if not isinstance(tables.get(token), dict):
            break
        tables = tables[token]
    return {name.replace("-", "_"): v for name, v in tables.items() if not isinstance(v, dict)}


def say_defaults(table: dict[str, Any], tokens: list[str]) -> None:
    """Say which paths, hosts and the like come from the settings and not from the command."""
    given = {t.partition("=")[0].removeprefix("--no-").removeprefix("--") for t in tokens}
    for name in TO_BE_SAID + (OF_SERVE if tokens[:1] == ["serve"] else ()):
        option = name.replace("_", "-")
        if name in table and option not in given and name not in given:
            complain(f"{SETTINGS} in this folder sets --{option}: {printable(table[name])}")
