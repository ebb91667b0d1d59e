"""The command line.

Exit codes: 0 done · 1 the data, a file or a setting was refused (the message says why) · 2 the
command was not understood · 130 stopped by hand.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import sys

from cyclopts import CycloptsError

from dprl._core.limits import shortage
from dprl.apps.cli import (  # noqa: F401  (a command registers when its module is imported)
    act,
    audit,
    build,
    changes,
    check,
    completion,
    demo,
    doctor,
    evaluate,
    evidence,
    explain,
    export,
    fit,
    gate,
    help,  # noqa: A004
    init,
    merge,
    monitor,
    report,
    review,
    sensitivity,
    serve,
    sign,
    split,
    sweep,
    verify,
)
from dprl.apps.cli._app import app
from dprl.apps.cli.console import complain, refuse
from dprl.apps.cli.fit_sites import for_sites
from dprl.apps.cli.learning import offer
from dprl.apps.cli.options import settings
from dprl.apps.cli.said import defaults_of, say_defaults
from dprl.errors import DprlError, interruptible

__all__ = ["app", "main"]

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
        offer(tokens, table, {"fit": fit.fit, "sweep": sweep.sweep})
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
