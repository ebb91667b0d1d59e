"""The command line.

Exit codes: 0 done · 1 the data, a file or a setting was refused (the message says why) · 2 the
command was not understood · 130 stopped by hand.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import pkgutil
import sys
from typing import Any

from cyclopts import CycloptsError

from dprl._core.disk import shortage
from dprl._core.table import printable
from dprl.apps import cli
from dprl.apps.cli.console import app, complain, refuse
from dprl.apps.cli.fitting import fit, for_sites
from dprl.apps.cli.judging import sweep
from dprl.apps.cli.learning import offer
from dprl.apps.cli.options import SETTINGS, settings
from dprl.errors import DprlError, interruptible

# --- What dprl.toml sets that a user must be told: it may have been found in somebody's folder

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


# --- The command line

for module in pkgutil.iter_modules(cli.__path__, f"{cli.__name__}."):
    importlib.import_module(module.name)  # a command registers when its module is imported
if importlib.util.find_spec("dprl_studies"):  # by name: nothing in dprl depends on the studies
    importlib.import_module("dprl_studies.commands")


def main(tokens: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    raise SystemExit(_run(sys.argv[1:] if tokens is None else tokens))


def _run(tokens: list[str]) -> int:
    as_json = "--json" in tokens
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show '·' still gets text
    try:
        helping = any(flag in tokens for flag in ("--help", "-h", "--version"))
        defaults = None if helping else settings(app)
        table = {} if defaults is None else defaults_of(defaults.data, tokens)
        as_json = as_json or bool(table.get("json"))
        say_defaults(table, tokens)
        offer(tokens, table, {"fit": fit, "sweep": sweep})
        app.config = () if defaults is None else (defaults,)
        with interruptible():
            asked, line = for_sites(tokens) or (app, tokens)
            result = asked(line, exit_on_error=False, result_action="return_value")
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except CycloptsError as error:  # already shown to people
        return refuse(error, "usage", as_json, 2, shown=True)
    except DprlError as error:
        return refuse(error, type(error).__name__, as_json, 1)
    except KeyboardInterrupt:
        complain("stopped.")
        return 130
    except BrokenPipeError:  # the reader of our output has gone: nothing more to print
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        return 0
    except Exception as error:
        short = shortage(error, "this command")
        if short is None and not isinstance(error, OSError):
            raise
        lines = short or (f"{getattr(error, 'strerror', '') or error}.", _place(error), "")
        return refuse(DprlError(*lines), type(error).__name__, as_json, 1)


def _place(error: Exception) -> str:
    return str(getattr(error, "filename", "") or "")
