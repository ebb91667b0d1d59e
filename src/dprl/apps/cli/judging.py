"""Commands that judge a policy on held-out episodes: `evaluate`, `sweep`, `sensitivity`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from dprl._core.checks import Cut
from dprl._core.disk import refuse_overwrite
from dprl.apps.cli.console import caution, command, printed, progress, show, told, warned
from dprl.apps.cli.learning import LearnerOptions
from dprl.apps.cli.options import (
    TREATMENTS,
    By,
    Cluster,
    Details,
    Draws,
    FilesOfLog,
    Flag,
    Json,
    Level,
    LogOptions,
    OtherColumns,
    ReturnRange,
    ScanOptions,
    Seed,
    Values,
    check_folder,
    columns_for,
    tried,
    wholes,
)
from dprl.errors import ParameterError

if TYPE_CHECKING:
    from dprl.logs.log import Log
    from dprl.logs.reading.files import Progress


# --- `dprl evaluate`: what held-out episodes say a policy is worth


def read_held_out(
    policy: Any, files: list[str], memory: ScanOptions | None, tell: Progress, **named: Any
) -> Log:
    """The log that a policy is judged by: read at once, or in parts, which take less memory.

    Args:
        policy: The policy.
        files: The files of the log.
        memory: How much memory may be used, and whether the log is read in parts.
        tell: Called with the name of the stage and the share of it that is done.
        named: Columns where their names differ from those of the policy.
    """
    from dprl.policies.held_out import rows_of
    from dprl.policies.loading import read_like, reading_like

    memory = memory or ScanOptions()
    columns = policy.provenance.get("columns", {})
    able = not (policy.space.feature_names or columns.get("encoding") or columns.get("action_bins"))
    if memory.out_of_core and not able:
        raise ParameterError(
            "a log in parts has one column of state labels and one of actions, and this policy's "
            "states or actions are made of several columns or of numbers.",
            do="Leave --out-of-core out.",
        )
    if not memory.in_parts(files, able=able):
        return read_like(policy, files, tell, **named)
    with memory.scanned(files, reading_like(policy, files, **named), tell) as parts:
        return rows_of(parts)


def show_judged(policy: Any, result: Any, cautions: list[str], json: bool, details: bool) -> int:
    """Show how a policy was judged, and what was warned of on the way; the exit code."""
    facts = result.to_dict()
    facts["warnings"] = [*cautions, *facts["warnings"]]
    return told(facts, f"{policy!r}\n{printed(result, details)}", json, cautions)


@command
def evaluate(
    policy: str,
    files: list[str],
    /,
    columns: OtherColumns | None = None,
    memory: ScanOptions | None = None,
    *,
    gamma: float | None = None,
    cut: Annotated[
        Cut | None,
        Parameter(
            help=f"How to treat cut episodes: {TREATMENTS}; drop is refused. By default as in the "
            "policy's training."
        ),
    ] = None,
    level: Level = 0.95,
    draws: Draws = 2_000,
    seed: Seed = 0,
    values: Values = True,
    by: By = None,
    ends: ReturnRange | None = None,
    allow_seen: Flag = False,
    cluster: Cluster = None,
    details: Details = False,
    json: Json = False,
) -> int:
    """Estimate from held-out episodes what a policy is worth, beside usual practice.

    Example: `dprl evaluate policy.dprl held-out.parquet`

    A log that is too large to be read at once, in Parquet files:
    `dprl evaluate policy.dprl 'held-out/*.parquet' --out-of-core --memory-limit 4GB`

    Args:
        policy: A policy file.
        files: CSV or Parquet files the policy was not learned from, or patterns in quotes.
        columns: Columns of the log, where their names differ from those of the policy.
        gamma: Discount per step; by default the policy's own.
        allow_seen: Evaluate even on a log the policy was made from.
    """
    import dprl
    from dprl.evaluation.subgroups import columns_by

    value_range = (ends or ReturnRange()).both()
    fitted = dprl.load(policy)
    named = columns_for(fitted, columns, "evaluate")
    with progress() as tell, warned() as cautions:
        data = read_held_out(fitted, files, memory, tell, **named)
        evaluation = dprl.evaluate(
            fitted, data, gamma=gamma, cut=cut, level=level, draws=draws, seed=seed, values=values,
            by=columns_by(by, data),
            allow_seen=allow_seen, cluster=cluster, progress=tell,
            value_range=value_range,
        )  # fmt: skip
    return show_judged(fitted, evaluation, cautions, json, details)


# --- `dprl sensitivity`: what is left of a policy's gain if an unrecorded cause moved treatment


@command
def sensitivity(
    policy: str,
    files: list[str],
    /,
    columns: OtherColumns | None = None,
    memory: ScanOptions | None = None,
    *,
    gamma: Annotated[list[float] | None, Parameter(consume_multiple=True)] = None,
    discount: float | None = None,
    cut: Literal["drop-unrelated", "bootstrap", "terminal"] | None = None,
    level: Level = 0.95,
    draws: Draws = 1_000,
    seed: Seed = 0,
    ends: ReturnRange | None = None,
    yardstick: bool = True,
    figure: Path | None = None,
    allow_seen: Flag = False,
    details: Details = False,
    json: Json = False,
) -> int:
    """Bound what a policy is worth if an unrecorded cause moved who got what.

    Γ is the factor by which that cause may move the odds of an action, the state being equal;
    Γ = 1 is none. Γ* is the strength at which nothing may be left of the gain. The yardstick says
    what hiding each recorded column would be, for comparison.

    Example: `dprl sensitivity policy.dprl held-out.parquet --gamma 1 1.5 2`

    Args:
        policy: A policy file.
        files: CSV or Parquet files the policy was not learned from, or patterns in quotes.
        columns: Columns of the log, where their names differ from those of the policy.
        gamma: Γ, strengths of an unrecorded cause, each from 1 to 20; by default 1 1.5 2 3.
        discount: Discount per step; by default the policy's own.
        cut: How to treat cut episodes; by default as in the policy's training.
        yardstick: Measure what hiding each recorded column would be.
        figure: Figure of the bounds: .png, .svg or .pdf; its data beside it as .parquet.
        allow_seen: Go on even with a log the policy was made from.
    """
    import dprl
    from dprl._core import plot
    from dprl.evaluation._sensitivity import STRENGTHS

    value_range = (ends or ReturnRange()).both()
    if figure is not None:
        check_folder(figure)
        plot.ready()
        for path in (figure, figure.with_suffix(".parquet")):
            refuse_overwrite(path, policy, *files)
    fitted = dprl.load(policy)
    named = columns_for(fitted, columns, "sensitivity")
    with progress() as tell, warned() as cautions:
        data = read_held_out(fitted, files, memory, tell, **named)
        result = dprl.sensitivity(
            fitted, data, gamma=gamma or STRENGTHS, discount=discount, cut=cut, level=level,
            draws=draws, seed=seed, allow_seen=allow_seen, yardstick=yardstick, progress=tell,
            value_range=value_range,
        )  # fmt: skip
        if figure is not None:
            result.plot(figure)
    return show_judged(fitted, result, cautions, json, details)


# --- `dprl sweep`: several settings, each judged on held-out episodes


@command
def sweep(
    files: FilesOfLog,
    log: LogOptions,
    learning: LearnerOptions,
    memory: ScanOptions | None = None,
    *,
    n_min: Annotated[list[int] | None, Parameter(converter=wholes, consume_multiple=True)] = None,
    radius: Annotated[list[float] | None, Parameter(consume_multiple=True)] = None,
    vary: list[str] | None = None,
    valid: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    share: float = 0.5,
    estimator: str | None = None,
    rule: Literal["cautious", "lower-end", "bold"] | None = None,
    out: Path = Path("policy.dprl"),
    delta: float | None = None,
    ends: ReturnRange | None = None,
    figure: Path | None = None,
    level: Level = 0.95,
    draws: Draws = 2_000,
    seed: Seed = 0,
    values: Values = True,
    cluster: Cluster = None,
    details: Details = False,
    json: Json = False,
) -> int:
    """Try several settings (n_min, radius, any other), and judge each policy on held-out episodes.

    Rules: **cautious** the largest n_min (without one the fewest steps at which it differs from
    practice), **lower-end** the largest lower end, **bold** the most steps at which it differs;
    each only among settings whose interval lies above 0 and whose effective sample size where it
    matters is at least 30. What is picked must be judged on other episodes again: `dprl evaluate`
    refuses those used here.

    Example: `dprl sweep train.csv --valid valid.csv --episode patient --state stage --action drug
    --reward score --gamma 0.99 --n-min 10 20 50 --rule cautious`

    Args:
        files: CSV or Parquet files to learn from, or patterns in quotes.
        n_min: Values to try: --n-min 10 20 50.
        radius: For features: values to try.
        vary: Another setting of the learner and values to try: --vary risk=0.01,0.05 --vary
            plan=true,false; all combinations are tried.
        valid: Files of held-out episodes to judge on; by default the files are split.
        share: Without --valid: share of the groups to learn from.
        estimator: Estimator to show; default WDR (DR for one step), WIS without values.
        rule: Pick a setting by this rule, and save its policy.
        out: File for the picked policy.
        delta: Also certify every setting; all claims together may fail so often.
        figure: Figure of the settings: .png, .svg or .pdf.
    """
    import dprl
    from dprl.logs.encoding.encoder import encoded_like
    from dprl.policies.held_out import rows_of

    for path in (out, figure):
        if path is not None:
            check_folder(path)
    for path in (out if rule else None, figure, figure and figure.with_suffix(".parquet")):
        refuse_overwrite(path, *files, *(valid or ()))
    learning.check_sweep()
    if delta is not None and learning.learner == "confident":
        raise ParameterError(
            "--delta certifies policies of the learner dprl; the learner confident has none.",
            f"--delta {delta:g}",
            "Leave --delta out, or say --learner dprl.",
        )
    others = tried(vary or [])
    if n_min is None and not others:
        raise ParameterError(
            "there is nothing to vary.", do="Say --n-min 10 20 50, or --vary risk=0.01,0.05."
        )
    if "radius" in others or "n_min" in others:
        raise ParameterError(
            "--n-min and --radius are options of their own.", do="Say --n-min 10 20, --radius 1 2."
        )
    learner = learning.make(
        n_min[0] if n_min else None, radius[0] if radius else None, seed=seed, own_seed=False
    )
    columns: dict[str, Any] = log.options(radius is not None)
    memory = memory or ScanOptions()
    plain = len(log.state) == len(log.action) == 1 and not log.action_bins
    parts = memory.in_parts(files, able=radius is None and plain)
    if parts and valid is None:
        raise ParameterError(
            "a log in parts is not split here.",
            do="Split the files first (dprl split), and name both parts: --valid FILES.",
        )
    with progress() as tell, warned() as cautions, contextlib.ExitStack() as stack:
        train: Any
        if parts and valid is not None:
            train = stack.enter_context(memory.scanned(files, columns, tell))
            with memory.scanned(valid, columns, tell) as judging:
                held = rows_of(judging)
        else:
            data = dprl.read(files, **columns, progress=tell)
            data = learning.with_states(data, radius)
            if valid is None:
                train, held = data.split(share, seed=seed)
            else:
                like_train = {**columns, "action_bins": data.columns.get("action_bins")}
                train, held = data, dprl.read(valid, **like_train, progress=tell)
                held = encoded_like(held, data.columns)
        swept = dprl.sweep(
            learner, train, held, n_min=n_min, radius=radius, params=others, estimator=estimator,
            level=level, draws=draws, seed=seed, values=values, delta=delta,
            value_range=(ends or ReturnRange()).both(),
            cluster=cluster, progress=tell,
        )  # fmt: skip
        if figure is not None:
            swept.plot(figure)
    picked: dict[str, Any] | None = None
    if not json:
        caution(dict.fromkeys(cautions))
        show(printed(swept, details), as_json=False)
    if rule is not None:
        policy = swept.pick(rule)
        policy.save(out)
        chosen = {k: v for k, v in policy.provenance["sweep"].items() if k != "sample"}
        picked = {"policy": str(out), "digest": policy.digest(), **chosen}
    if json:
        facts = {**swept.to_dict(), "picked": picked, "warnings": list(dict.fromkeys(cautions))}
        show(facts, as_json=True)
    elif picked is not None:
        show(f"\nPicked {picked['rule']}: {picked['words']}.\n{policy}\nSaved as {out}.", False)
    return 0
