"""`dprl sweep`: several settings, each judged on held-out episodes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token

from dprl._core.disk import refuse_overwrite
from dprl.apps.cli._app import command
from dprl.apps.cli.console import caution, progress, show, warned
from dprl.apps.cli.learning import LearnerOptions
from dprl.apps.cli.options import (
    Cluster,
    Draws,
    FilesOfLog,
    Json,
    Level,
    LogOptions,
    Seed,
    Values,
    whole,
)
from dprl.apps.cli.out_of_core import ScanOptions
from dprl.apps.cli.ranges import tried
from dprl.errors import ParameterError

__all__ = ["sweep"]


def _wholes(kind: Any, tokens: Sequence[Token]) -> list[int]:
    """Whole numbers only, in a list that may be left out: 2.5 is refused, and not rounded."""
    return [whole(token.value.removesuffix(".0")) for token in tokens]


@command
def sweep(
    files: FilesOfLog,
    log: LogOptions,
    learning: LearnerOptions,
    memory: ScanOptions | None = None,
    *,
    n_min: Annotated[
        list[int] | None,
        Parameter(
            help="Values to try: --n-min 10 20 50.",
            converter=_wholes,
            consume_multiple=True,
            negative="",
        ),
    ] = None,
    radius: Annotated[
        list[float] | None,
        Parameter(help="For features: values to try.", consume_multiple=True, negative=""),
    ] = None,
    vary: Annotated[
        list[str] | None,
        Parameter(
            help="Another setting of the learner and values to try: --vary risk=0.01,0.05 --vary "
            "plan=true,false; all combinations are tried.",
            negative="",
        ),
    ] = None,
    valid: Annotated[
        list[str] | None,
        Parameter(
            help="Files of held-out episodes to judge on; by default the files are split.",
            consume_multiple=True,
            negative="",
        ),
    ] = None,
    share: Annotated[
        float, Parameter(help="Without --valid: share of the groups to learn from.")
    ] = 0.5,
    estimator: Annotated[
        str | None, Parameter(help="Estimator to show; default DR, or WPDIS without values.")
    ] = None,
    rule: Annotated[
        Literal["cautious", "lower-end", "bold"] | None,
        Parameter(help="Pick a setting by this rule, and save its policy."),
    ] = None,
    out: Annotated[Path, Parameter(help="File for the picked policy.")] = Path("policy.dprl"),
    delta: Annotated[
        float | None,
        Parameter(help="Also certify every setting; all claims together may fail so often."),
    ] = None,
    lowest: Annotated[float | None, Parameter(help="With --delta: the lowest return.")] = None,
    highest: Annotated[float | None, Parameter(help="With --delta: the highest return.")] = None,
    figure: Annotated[
        Path | None, Parameter(help="Figure of the settings: .png, .svg or .pdf.")
    ] = None,
    level: Level = 0.95,
    draws: Draws = 2_000,
    seed: Seed = 0,
    values: Values = True,
    cluster: Cluster = None,
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
    """
    import dprl
    from dprl.logs._encoding import encoded_like
    from dprl.policies.held_out import rows_of

    for path in (out, figure):
        if path is not None and not path.parent.is_dir():
            raise ParameterError(
                f"the folder of {str(path)!r} does not exist.", do="Make it first."
            )
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
            value_range=None if lowest is None or highest is None else (lowest, highest),
            cluster=cluster, progress=tell,
        )  # fmt: skip
        if figure is not None:
            swept.plot(figure)
    picked: dict[str, Any] | None = None
    if not json:
        caution(dict.fromkeys(cautions))
        show(str(swept), as_json=False)
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
