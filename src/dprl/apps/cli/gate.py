"""`dprl gate`: keeps only the suggestions that a log proves to be improvements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite
from dprl.apps.cli._app import command
from dprl.apps.cli.console import caution, progress, show, warned
from dprl.apps.cli.log_columns import columns_for
from dprl.apps.cli.options import Json, MaybeWhole, OtherColumns, Whole

__all__ = ["gate"]


@command
def gate(
    policy: str,
    files: list[str],
    /,
    columns: OtherColumns | None = None,
    *,
    lowest: Annotated[float, Parameter(help="The lowest return there can be.")],
    highest: Annotated[float, Parameter(help="The highest return there can be.")],
    delta: Annotated[float, Parameter(help="Probability with which the claim may fail.")] = 0.05,
    margin: Annotated[float, Parameter(help="Advantage that a suggestion must exceed.")] = 0.0,
    mode: Annotated[
        Literal["swap-split", "in-sample"],
        Parameter(help="Which part of the log proposes and certifies."),
    ] = "swap-split",
    states_fixed: Annotated[
        bool,
        Parameter(
            help="Declare that states, gamma, n-min and the range were fixed without looking at "
            "returns (in-sample needs it).",
            negative="",
        ),
    ] = False,
    horizon: Annotated[
        MaybeWhole, Parameter(help="Most steps of an episode (group); for in-sample.")
    ] = None,
    seed: Annotated[Whole, Parameter(help="Seed of the split.")] = 0,
    confounding: Annotated[
        float,
        Parameter(
            help="Γ: issue only what remains proved although an unrecorded cause moved the odds of "
            "treatment, the state being equal, by up to this factor (1 to 20)."
        ),
    ] = 1.0,
    out: Annotated[Path, Parameter(help="Where to save the gated policy.")] = Path("gated.dprl"),
    json: Json = False,
) -> int:
    """Keep only the suggestions that a log proves to improve on usual practice.

    State --lowest and --highest from what rewards can be, never from the returns in the log.

    Example: `dprl gate policy.dprl visits.csv --lowest 0 --highest 1`

    Args:
        policy: A policy file; usually with the log it was fitted to.
        files: CSV or Parquet files, or patterns in quotes.
        columns: Columns of the log, where their names differ from those of the policy.
    """
    import dprl
    from dprl.policies._load import deferring, read_like

    refuse_overwrite(out, policy, *files)
    fitted = deferring(policy)
    named = columns_for(fitted, columns, "gate")
    with progress() as tell, warned() as cautions:
        data = read_like(fitted, files, tell, **named)
        tell("certifying", 0.0)
        gated = dprl.gate(
            fitted, data, delta=delta, value_range=(lowest, highest), margin=margin, mode=mode,
            states_fixed=states_fixed, horizon=horizon, seed=seed, confounding=confounding,
        )  # fmt: skip
        gated.save(out)
    proved = gated.certificate
    if json and proved is not None:
        show({**gated.summary(), "policy": str(out), "digest": gated.digest(),
              "certificate": proved.to_dict(), "warnings": cautions}, json)  # fmt: skip
        return 0
    caution(cautions)
    show(f"before: {fitted}\nafter:  {gated}\n\n{proved}\n\nSaved as {out}.", json)
    return 0
