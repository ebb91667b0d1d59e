"""The command line: check, fit, changes, explain, act, demo.

Exit codes: 0 done · 1 the data, a file or a setting was refused, and why was said · 2 the command
was not understood · 130 stopped by hand.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter
from cyclopts.config import Dict

from dprl.errors import DprlError, ParameterError
from dprl.table import Table, plain
from dprl.version import __version__

if TYPE_CHECKING:
    from dprl.files import Progress

__all__ = ["app", "main"]

SETTINGS = "dprl.toml"

app = App(
    name="dprl",
    version=f"dprl {__version__}",
    help_format="markdown",
    suppress_keyboard_interrupt=False,
    help="""Safe policy improvement from logged decisions.

A log is a table with one decision a row. Look at it, fit a policy, read what it would change:

    dprl check visits.csv --episode patient --state stage --action drug --reward score
    dprl fit   visits.csv --episode patient --state stage --action drug --reward score
               --n-min 20 --gamma 0.99 --out policy.dprl
    dprl changes policy.dprl

Never seen it work? `dprl demo` shows the whole job on data it makes itself.
Column names and settings can be kept in `dprl.toml`: a table [log] for the columns, and one
table a command, such as [fit].
""",
    help_epilogue="Exit codes: 0 done · 1 refused, and why was said · 2 not understood.",
)

Json = Annotated[bool, Parameter(name="--json", help="Print JSON for machines.", negative="")]


@Parameter(name="*")
@dataclass(kw_only=True)
class LogOptions:
    """Which column is what."""

    episode: Annotated[str, Parameter(help="Column naming the trajectory of a row.")]
    state: Annotated[
        list[str],
        Parameter(
            help="Column of state labels; give several, or a pattern like 'x_*', for features.",
            negative="",
        ),
    ]
    action: Annotated[str, Parameter(help="Column of action labels.")]
    reward: Annotated[str, Parameter(help="Column of the reward for this row's state and action.")]
    time: Annotated[
        str | None, Parameter(help="Column ordering an episode's rows (else their own order).")
    ] = None
    group: Annotated[
        str | None, Parameter(help="Column of what stays together, e.g. a patient's stays.")
    ] = None
    available: Annotated[
        str | None, Parameter(help="Column of the actions on offer: a list, or text 'a|b|c'.")
    ] = None
    ended: Annotated[
        str | None, Parameter(help="Column saying terminal or cut on an episode's last row.")
    ] = None
    missing: Annotated[
        Literal["error", "drop-episodes"], Parameter(help="What to do about missing values.")
    ] = "error"

    def options(self) -> dict[str, Any]:
        """Keyword arguments of `dprl.read`."""
        one = len(self.state) == 1 and not any(ch in self.state[0] for ch in "*?[")
        return {**vars(self), "state": self.state[0] if one else list(self.state)}


@app.command
def check(files: list[str], /, log: LogOptions, *, json: Json = False) -> int:
    """Say what is wrong, odd or worth knowing about a log. Changes nothing.

    Example: `dprl check 'logs/*.parquet' --episode stay --time hour --state s --action a
    --reward r`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
    """
    import dprl

    with _progress() as progress:
        report = dprl.check(files, **log.options(), progress=progress)
    _print(report.to_dict() if json else str(report), json)
    return 0 if report.ok else 1


@app.command
def fit(
    files: list[str],
    /,
    log: LogOptions,
    *,
    n_min: Annotated[int, Parameter(help="Episodes an action needs before it may be suggested.")],
    gamma: Annotated[float, Parameter(help="Discount per step, in (0, 1].")],
    contrast: Annotated[
        bool, Parameter(help="Also require n-min episodes that did otherwise (our rule).")
    ] = True,
    plan: Annotated[bool, Parameter(help="Plan over many decisions, not one at a time.")] = True,
    visits: Annotated[
        Literal["first", "all"], Parameter(help="Count episodes, or every visit (no certificate).")
    ] = "first",
    cut: Annotated[
        Literal["drop", "bootstrap", "terminal"] | None,
        Parameter(help="What to do with episodes that were cut; by default warn."),
    ] = None,
    out: Annotated[Path, Parameter(help="Where to save the policy.")] = Path("policy.dprl"),
    json: Json = False,
) -> int:
    """Learn a policy from a log and save it.

    Example: `dprl fit visits.csv --episode patient --state stage --action treatment --reward score
    --n-min 20 --gamma 0.99`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
    """
    import dprl

    learner = dprl.DPRLDiscrete(
        n_min=n_min, gamma=gamma, contrast=contrast, plan=plan, visits=visits, cut=cut
    )
    with _progress() as progress, _warnings() as said:
        data = dprl.read(files, **log.options(), progress=progress)
        progress("fitting (the first run compiles for some seconds)", 0.0)
        policy = learner.fit(data)
        policy.save(out)
    changes = policy.changes()
    if json:
        facts = {**policy.summary(), "policy": str(out), "digest": policy.digest()}
        _print({**facts, "warnings": said, "changed": changes.to_dicts()}, json=True)
        return 0
    for line in said:
        _complain(f"warning: {line}")
    _print(f"{data!r}\n{policy}\n\n{_head(changes)}\n\nSaved as {out}.", json=False)
    return 0


@app.command
def changes(policy: str, /, *, confirmations: bool = False, json: Json = False) -> int:
    """List the decisions a policy would change, the largest difference first.

    Args:
        policy: A policy file.
        confirmations: List instead where it suggests what is usually done already.
    """
    from dprl.policy import Policy

    fitted = Policy.load(policy)
    table = fitted.confirmations() if confirmations else fitted.changes()
    _print(table.to_dicts() if json else f"{fitted}\n\n{table}", json)
    return 0


@app.command
def explain(policy: str, state: str, /, *, json: Json = False) -> int:
    """Say why a policy answers as it does in one state.

    Args:
        policy: A policy file.
        state: A state's label.
    """
    from dprl.policy import Policy

    fitted = Policy.load(policy)
    label: str | int = state
    if fitted.states and not isinstance(fitted.states[0], str):
        try:
            label = int(state)
        except ValueError:
            raise ParameterError(
                f"this policy's states are whole numbers; got {state!r}.",
                do=f"Its states look like {', '.join(map(str, fitted.states[:3]))}.",
            ) from None
    explanation = fitted.explain(label)
    _print(explanation.to_dict() if json else str(explanation), json)
    return 0


@app.command
def act(
    policy: str,
    states: Annotated[str, Parameter(allow_leading_hyphen=True)] = "-",
    /,
    *,
    state: Annotated[str | None, Parameter(help="Column of states; by default the log's.")] = None,
    out: Annotated[
        str | None, Parameter(help="A .csv or .parquet file; else to the screen.")
    ] = None,
    column: Annotated[str, Parameter(help="Name of the column that is added.")] = "suggested",
    defer: Annotated[str, Parameter(help="What to write for DEFER; '' for nothing.")] = "DEFER",
    json: Json = False,
) -> int:
    """Write a policy's suggestion beside every state of a table.

    Example: `echo stage-3 | (echo stage; cat) | dprl act policy.dprl`

    Args:
        policy: A policy file.
        states: A CSV or Parquet file with a column of states; '-' reads CSV with a header from
            standard input.
    """
    from dprl.answers import answer
    from dprl.policy import DEFER, Policy

    fitted = Policy.load(policy)
    answered = answer(fitted, states, state, column)
    counts = answered.counts(fitted)
    if out is not None:
        answered.write(out, column, defer)
    if json:
        rows = [
            {"state": s, column: None if a is DEFER else a}
            for s, a in zip(answered.states, answered.answers, strict=True)
        ]
        _print({**counts, "rows_out": rows} if out is None else {**counts, "out": out}, json=True)
        return 0
    if out is None:
        answered.write(None, column, defer)
    if counts["unknown"]:
        _complain(
            f"{counts['unknown']:,} of {counts['rows']:,} rows hold a state the policy never saw: "
            "deferred."
        )
    if out is not None:
        _complain(f"{counts['rows']:,} rows, {counts['deferred']:,} deferred. Saved as {out}.")
    return 0


@app.command
def demo(*, folder: Path | None = None, json: Json = False) -> int:
    """Show the whole job on invented patients: log → check → fit → changes → the truth.

    Args:
        folder: Where to leave the log and the policy; by default a new temporary folder.
    """
    import tempfile

    from dprl.demo import run

    where = Path(tempfile.mkdtemp(prefix="dprl-demo-")) if folder is None else folder
    where.mkdir(parents=True, exist_ok=True)
    with _progress() as progress:
        progress("warming up (the first run compiles for some seconds)", 0.0)
        lines: list[str] = []
        result = run(where, lines.append)
    _print(result if json else "\n".join(lines), json)
    return 0


# -- around the commands -------------------------------------------------------------------------


def _print(what: Any, json: bool) -> None:
    sys.stdout.write((_dumps(what) if json else str(what)) + "\n")


def _dumps(what: Any) -> str:
    return json.dumps(plain(what), ensure_ascii=False)


def _complain(line: str) -> None:
    sys.stderr.write(line + "\n")


def _head(table: Table, rows: int = 20) -> str:
    """The first rows of a long table, and how to see the rest."""
    if len(table) <= rows:
        return str(table)
    cut = {name: list(values[:rows]) for name, values in table.columns.items()}
    first = Table(cut, f"{table.caption}; the first {rows}", table.note, table.identifiers)
    return f"{first}\nAll of them: dprl changes POLICY"


@contextlib.contextmanager
def _warnings() -> Iterator[list[str]]:
    """Collect what would be warned about, as plain lines."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield said
        said += [str(w.message) for w in caught]


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on the error stream, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda stage, share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    look = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
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


def _settings() -> Dict | None:
    """Defaults from dprl.toml in the current folder: [log] for the columns, one table a command."""
    path = Path(SETTINGS)
    if not path.is_file():
        return None
    import tomllib

    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{SETTINGS} is not TOML.", str(error), "Mend that line.") from error
    commands = {"check", "fit", "changes", "explain", "act", "demo"}
    for name, table in tables.items():
        if name not in commands | {"log"} or not isinstance(table, dict):
            raise ParameterError(
                f"{SETTINGS} has {name!r}, which is no table dprl knows.",
                do=f"Tables are [log] and {', '.join(f'[{c}]' for c in sorted(commands))}.",
            )
    shared = tables.pop("log", {})
    for command in ("check", "fit"):
        tables[command] = {**shared, **tables.get(command, {})}
    return Dict(tables, source=SETTINGS)


def main(tokens: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    raise SystemExit(_run(sys.argv[1:] if tokens is None else tokens))


def _run(tokens: list[str]) -> int:
    as_json = "--json" in tokens
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no '·' still gets words
    try:
        helping = any(flag in tokens for flag in ("--help", "-h", "--version"))
        settings = None if helping else _settings()
        if settings is not None and tokens:
            as_json = as_json or bool(settings.data.get(tokens[0], {}).get("json"))
        app.config = () if settings is None else (settings,)
        result = app(tokens, exit_on_error=False, result_action="return_value")
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except CycloptsError as error:  # already shown to people
        return _refuse(error, "usage", as_json, 2, shown=True)
    except DprlError as error:
        return _refuse(error, type(error).__name__, as_json, 1)
    except KeyboardInterrupt:
        _complain("stopped.")
        return 130
    except BrokenPipeError:  # whoever read us has gone; there is nobody to tell
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        return 0
    except OSError as error:
        reason = DprlError(f"{error.strerror or error}.", str(error.filename or ""))
        return _refuse(reason, type(error).__name__, as_json, 1)


def _refuse(error: Exception, kind: str, as_json: bool, code: int, shown: bool = False) -> int:
    """Say what went wrong: to people on the error stream, to machines on the other."""
    if as_json:
        parts = {k: str(getattr(error, k, "")) for k in ("what", "where", "do")}
        what = parts["what"] or str(error)
        _print({"ok": False, "error": {"kind": kind, **parts, "what": what}}, json=True)
    if not shown:
        _complain(f"{kind}: {error}")
    return code
