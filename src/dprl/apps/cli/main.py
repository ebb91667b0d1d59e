"""The command line.

Exit codes: 0 done · 1 the data, a file or a setting was refused (the message says why) · 2 the
command was not understood · 130 stopped by hand.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from dprl._core.disk import refuse_overwrite
from dprl._core.limits import shortage
from dprl._core.version import __version__
from dprl.apps.cli.console import caution, complain, head, progress, refuse, show, warned
from dprl.apps.cli.evaluate import evaluate, gate, report, split, sweep
from dprl.apps.cli.export import export
from dprl.apps.cli.icu import app as icu
from dprl.apps.cli.log_columns import columns_for
from dprl.apps.cli.options import (
    Cases,
    Json,
    LearnerOptions,
    LogOptions,
    Partitions,
    Whole,
    numbers,
    settings,
    whole,
)
from dprl.apps.cli.reproduce import reproduce
from dprl.apps.cli.serve import review, serve
from dprl.errors import DprlError, ParameterError, interruptible

__all__ = ["app", "main"]

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
    help_epilogue="Exit codes: 0 done · 1 refused (the message says why) · 2 not understood.",
)


@app.command
def check(files: list[str], /, log: LogOptions, *, json: Json = False) -> int:
    """Say what is wrong, odd or worth knowing about a log. Changes nothing.

    Example: `dprl check 'logs/*.parquet' --episode stay --time hour --state s --action a
    --reward r`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
    """
    import dprl

    with progress() as tell:
        report = dprl.check(files, **log.options(), progress=tell)
    show(report.to_dict() if json else str(report), json)
    return 0 if report.ok else 1


@app.command
def fit(
    files: list[str],
    /,
    log: LogOptions,
    learning: LearnerOptions,
    *,
    n_min: Annotated[Whole, Parameter(help="Episodes an action needs before it may be suggested.")],
    radius: Annotated[
        float | None,
        Parameter(help="For features: largest distance of similar states, after scaling."),
    ] = None,
    out: Annotated[Path, Parameter(help="Where to save the policy.")] = Path("policy.dprl"),
    json: Json = False,
) -> int:
    """Learn a policy from a log and save it.

    Example: `dprl fit visits.csv --episode patient --state stage --action treatment --reward score
    --n-min 20 --gamma 0.99`

    Where states are numeric features, name them and a radius:
    `dprl fit stays.parquet --state 'x_*' --radius 1.5 ...`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
    """
    import dprl

    refuse_overwrite(out, *files)
    learner = learning.learner(n_min, radius)
    with progress() as tell, warned() as said:
        data = dprl.read(files, **log.options(radius is not None), progress=tell)
        learning.check(data, radius)
        tell("fitting (the first run compiles for some seconds)", 0.0)
        policy = learner.fit(data)
        policy.save(out)
    changes = policy.changes()
    if json:
        facts = {**policy.summary(), "policy": str(out), "digest": policy.digest()}
        show({**facts, "warnings": said, "changed": changes.to_dicts()}, as_json=True)
        return 0
    caution(said)
    show(f"{data!r}\n{policy}\n\n{head(changes)}\n\nSaved as {out}.", as_json=False)
    return 0


@app.command
def changes(
    policy: str, /, *, confirmations: bool = False, cases: Cases = False, json: Json = False
) -> int:
    """List the decisions a policy would change, the largest difference first.

    Args:
        policy: A policy file.
        confirmations: List instead the states where it suggests the usual action.
    """
    from dprl.policies._load import deferring

    fitted = deferring(policy)
    listed = fitted.confirmations if confirmations else fitted.changes
    table = listed(cases=cases)
    proved = fitted.certificate
    if json:
        facts = None if proved is None else proved.to_dict()
        show({"rows": table.to_dicts(), "certificate": facts}, json)
        return 0
    show("\n\n".join(str(x) for x in (fitted, table, proved) if x is not None), json)
    return 0


@app.command
def explain(policy: str, state: str, /, *, cases: Cases = False, json: Json = False) -> int:
    """Say why a policy answers as it does in one state.

    Args:
        policy: A policy file.
        state: A state's label; or its features, as in 'pressure=58,lactate=2.1'.
    """
    from dprl.policies._load import deferring

    fitted = deferring(policy)
    label: Any = state
    names = fitted.space.feature_names
    if names:
        label = numbers(state.split(","), "a state is written NAME=VALUE,NAME=VALUE")
        for name in label:
            if name not in names:
                raise ParameterError(
                    f"{name!r} is no feature of this policy.",
                    do=f"Features: {', '.join(names)}.",
                )
    elif fitted.states and not isinstance(fitted.states[0], str):
        known = {str(s).lower(): s for s in fitted.states}
        try:
            label = known[state.lower()] if state.lower() in known else whole(state)
        except ValueError:
            what = "true or false" if isinstance(fitted.states[0], bool) else "whole numbers"
            raise ParameterError(
                f"this policy's states are {what}; got {state!r}.",
                do=f"Its states look like {', '.join(map(str, fitted.states[:3]))}.",
            ) from None
    explanation = fitted.explain(label, cases=cases)
    show(explanation.to_dict() if json else str(explanation), json)
    return 0


@app.command
def act(
    policy: str,
    states: Annotated[str, Parameter(allow_leading_hyphen=True)] = "-",
    /,
    *,
    state: Annotated[
        str | None, Parameter(help="Column of states; by default as in the log.")
    ] = None,
    out: Annotated[
        str | None, Parameter(help="A .csv or .parquet file; default: standard output.")
    ] = None,
    column: Annotated[str, Parameter(help="Name of the column that is added.")] = "suggested",
    defer: Annotated[str, Parameter(help="What to write for DEFER; '' for nothing.")] = "DEFER",
    partitions: Partitions = False,
    json: Json = False,
) -> int:
    """Write a policy's suggestion beside every state of a table.

    Example: `echo stage-3 | (echo stage; cat) | dprl act policy.dprl`

    Args:
        policy: A policy file.
        states: A CSV or Parquet file with a column of states; '-' reads CSV with a header from
            standard input.
    """
    from dprl.apps.cli.act import answer
    from dprl.policies._decisions import DEFER
    from dprl.policies._load import deferring

    refuse_overwrite(out, policy, states)
    fitted = deferring(policy)
    if state is None and not fitted.space.feature_names:
        kept = columns_for(fitted, None, "act")["state"]
        state = kept[0] if isinstance(kept, list) and len(kept) == 1 else kept
    answered = answer(fitted, states, state, column, partitions)
    counts = answered.counts()
    if answered.guessed:
        complain(f"the only column, {answered.guessed!r}, is taken for the states.")
    if out is not None:
        answered.write(out, column, defer)
    if json:
        rows = [
            {"state": s, column: None if a is DEFER else a}
            for s, a in zip(answered.states, answered.answers, strict=True)
        ]
        show({**counts, "rows_out": rows} if out is None else {**counts, "out": out}, as_json=True)
        return 0
    if out is None:
        answered.write(None, column, defer)
    if counts["unknown"]:
        complain(
            f"{counts['unknown']:,} of {counts['rows']:,} rows hold a state the policy never saw: "
            "deferred."
        )
    if out is not None:
        complain(f"{counts['rows']:,} rows, {counts['deferred']:,} deferred. Saved as {out}.")
    return 0


@app.command
def demo(*, folder: Path | None = None, json: Json = False) -> int:
    """Show the whole job on invented patients: log → check → fit → changes → the truth.

    Args:
        folder: Folder for the log and the policy; by default a new temporary folder.
    """
    import tempfile

    from dprl.apps.cli.demo import run

    where = Path(tempfile.mkdtemp(prefix="dprl-demo-")) if folder is None else folder
    where.mkdir(parents=True, exist_ok=True)
    with progress() as tell:
        tell("warming up (the first run compiles for some seconds)", 0.0)
        lines: list[str] = []
        result = run(where, lines.append)
    show(result if json else "\n".join(lines), json)
    return 0


# Commands with a module of their own:
for command in (
    icu,
    gate,
    split,
    evaluate,
    sweep,
    report,
    reproduce,
    review,
    serve,
    export,
):
    app.command(command)


# -- around the commands -------------------------------------------------------------------------


def main(tokens: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    raise SystemExit(_run(sys.argv[1:] if tokens is None else tokens))


def _kept_json(tables: Any, tokens: list[str]) -> bool:
    """Whether the table of the command asked for says json = true; [icu.build] is inside [icu]."""
    for token in tokens:
        if not isinstance(tables.get(token), dict):
            break
        tables = tables[token]
    return bool(tables.get("json"))


def _run(tokens: list[str]) -> int:
    as_json = "--json" in tokens
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show '·' still gets text
    try:
        helping = any(flag in tokens for flag in ("--help", "-h", "--version"))
        kept = None if helping else settings(app)
        as_json = as_json or (kept is not None and _kept_json(kept.data, tokens))
        app.config = () if kept is None else (kept,)
        with interruptible():
            result = app(tokens, exit_on_error=False, result_action="return_value")
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
        said = short or (f"{getattr(error, 'strerror', '') or error}.", _place(error), "")
        return refuse(DprlError(*said), type(error).__name__, as_json, 1)


def _place(error: Exception) -> str:
    return str(getattr(error, "filename", "") or "")
