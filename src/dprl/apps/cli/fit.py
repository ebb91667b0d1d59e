"""`dprl fit`: learns a policy from a log and saves it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite
from dprl.apps.cli._app import command
from dprl.apps.cli.console import caution, head, progress, show, warned
from dprl.apps.cli.learning import LearnerOptions
from dprl.apps.cli.options import Json, LogOptions, MaybeWhole

__all__ = ["fit"]


@command
def fit(
    files: list[str],
    /,
    log: LogOptions,
    learning: LearnerOptions,
    *,
    n_min: Annotated[
        MaybeWhole,
        Parameter(
            help="Episodes an action needs before it may be suggested; dprl needs it, confident "
            "takes 3 by default."
        ),
    ] = None,
    radius: Annotated[
        float | None,
        Parameter(help="For features: largest distance of similar states, after scaling."),
    ] = None,
    seed: Annotated[
        MaybeWhole,
        Parameter(help="confident: seed of the halves and of the check; by default 0."),
    ] = None,
    out: Annotated[Path, Parameter(help="Where to save the policy.")] = Path("policy.dprl"),
    json: Json = False,
) -> int:
    """Learn a policy from a log and save it.

    Example: `dprl fit visits.csv --episode patient --state stage --action treatment --reward score
    --n-min 20 --gamma 0.99`

    Where states are numeric features, name them and a radius:
    `dprl fit stays.parquet --state 'x_*' --radius 1.5 ...`

    Where the state tells enough, suggest only what is surely better:
    `dprl fit visits.csv --learner confident --gamma 0.99 ...`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
    """
    import dprl

    refuse_overwrite(out, *files)
    learner = learning.make(n_min, radius, seed=seed, own_seed=True)
    confident = learning.learner == "confident"
    with progress() as tell, warned() as cautions:
        data = dprl.read(files, **log.options(radius is not None), progress=tell)
        learning.check_states(data, radius)
        tell("fitting (the first run compiles for some seconds)", 0.0)
        policy = learner.fit(data, progress=tell) if confident else learner.fit(data)
        policy.save(out)
    changes = policy.changes()
    if json:
        facts: dict[str, Any] = {
            **policy.summary(), "policy": str(out), "digest": policy.digest(),
        }  # fmt: skip
        if confident:
            facts["gain"] = policy.gain
        if policy.stated:
            facts["stated"] = policy.stated
        show({**facts, "warnings": cautions, "changed": changes.to_dicts()}, as_json=True)
        return 0
    caution(cautions)
    show(f"{data!r}\n{policy}\n\n{head(changes)}\n\nSaved as {out}.", as_json=False)
    return 0
