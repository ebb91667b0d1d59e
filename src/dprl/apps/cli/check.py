"""`dprl check`: what is wrong or odd about a log."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Annotated, Any

from cyclopts import Parameter

from dprl._core.checks import Cut
from dprl.apps.cli._app import command
from dprl.apps.cli.console import caution, progress, show, warned
from dprl.apps.cli.options import SETTINGS, FilesOfLog, Json, LogOptions, MaybeWhole
from dprl.apps.cli.out_of_core import ScanOptions
from dprl.apps.cli.wording import in_options
from dprl.errors import ParameterError

__all__ = ["check"]


@command
def check(
    files: FilesOfLog,
    log: LogOptions,
    memory: ScanOptions | None = None,
    *,
    markov: Annotated[
        bool,
        Parameter(
            help="Also ask whether the state is enough: given state and action, do the steps "
            "before still tell what comes next? Needs --gamma; states are labels.",
            negative="",
        ),
    ] = False,
    gamma: Annotated[
        float | None, Parameter(help="With --markov: discount per step, in (0, 1].")
    ] = None,
    lags: Annotated[
        MaybeWhole, Parameter(help="With --markov: how many steps back to look; by default 2.")
    ] = None,
    cut: Annotated[
        Cut | None,
        Parameter(help="With --markov: how to treat cut episodes (not ipcw); by default as ended."),
    ] = None,
    json: Json = False,
) -> int:
    """Say what is wrong, odd or worth knowing about a log. Changes nothing.

    Example: `dprl check 'logs/*.parquet' --episode stay --time hour --state s --action a
    --reward r`

    A log larger than memory, in Parquet files:
    `dprl check 'logs/*.parquet' --out-of-core --memory-limit 2GB ...`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
    """
    import dprl
    from dprl._core.checks import check_gamma, check_whole

    asked: dict[str, Any] = {"gamma": gamma, "lags": lags, "cut": cut}
    given = {name: value for name, value in asked.items() if value is not None}
    if given and not markov:
        first = next(iter(given))
        raise ParameterError(
            f"{', '.join(f'--{name}' for name in given)}: only for the check of the state.",
            f"--{first} {given[first]}",
            f"Say --markov too, or leave out what is for it (in {SETTINGS} too).",
        )
    if markov and memory is not None and memory.out_of_core:
        raise ParameterError(
            "--markov needs the log in memory.", do="Leave --out-of-core out, or --markov."
        )
    if markov and gamma is None:
        raise ParameterError(
            "--markov needs --gamma: what comes next is weighed as a policy would weigh it.",
            do="Say the discount that you learn with: --gamma 0.99",
        )
    if gamma is not None:
        check_gamma(gamma)
    if lags is not None:
        check_whole("--lags", lags, 1)
    past: Any = None
    cautions: list[str] = []
    memory = memory or ScanOptions()
    plain = len(log.state) == len(log.action) == 1 and not log.action_bins
    parts = memory.in_parts(files, able=plain and not markov, learns=False)
    with progress() as tell, contextlib.ExitStack() as stack:
        if parts:
            report = stack.enter_context(memory.checked(files, log.options(), tell))
        else:
            report = dprl.check(files, **log.options(compare=True), progress=tell)
        if markov and report.log is not None and report.ok:
            tell("looking at the past (the first run compiles for some seconds)", 0.0)
            with warned() as cautions:
                past = dprl.markov_check(report.log, **given)
    report = replace(report, findings=tuple(map(_in_options, report.findings)))
    if json:
        facts = report.to_dict()
        if markov:
            facts["markov"] = None if past is None else past.to_dict()
            facts["warnings"] = cautions
        show(facts, as_json=True)
        return 0 if report.ok else 1
    caution(cautions)
    show(str(report), as_json=False)
    if markov:
        words = past or "The state was not checked: the log has errors. Mend them first."
        show(f"\n{words}", as_json=False)
    return 0 if report.ok else 1


def _in_options(finding: Any) -> Any:
    """A finding, worded for the command line."""
    return replace(finding, what=in_options(finding.what), do=in_options(finding.do))
