"""Commands that say how sure a policy is: gate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from dprl.console import deferring, progress, show
from dprl.options import Json, LogOptions

__all__ = ["gate"]


def gate(
    policy: str,
    files: list[str],
    /,
    log: LogOptions,
    *,
    lowest: Annotated[float, Parameter(help="The lowest return there can be.")],
    highest: Annotated[float, Parameter(help="The highest return there can be.")],
    delta: Annotated[float, Parameter(help="The claim may fail with this probability.")] = 0.05,
    margin: Annotated[float, Parameter(help="What an advantage must exceed.")] = 0.0,
    mode: Annotated[
        Literal["swap-split", "in-sample"], Parameter(help="Which returns propose and certify.")
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
        int | None, Parameter(help="No episode (or group) is longer; sharpens in-sample.")
    ] = None,
    seed: Annotated[int, Parameter(help="Of the split.")] = 0,
    out: Annotated[Path, Parameter(help="Where to save the gated policy.")] = Path("gated.dprl"),
    json: Json = False,
) -> int:
    """Keep only the suggestions that a log proves to improve on usual practice.

    State --lowest and --highest from what rewards can be, never from the returns in the log.

    Example: `dprl gate policy.dprl visits.csv --episode patient --state stage --action treatment
    --reward score --lowest 0 --highest 1`

    Args:
        policy: A policy file; usually with the log it was fitted to.
        files: CSV or Parquet files, or patterns in quotes.
    """
    import dprl

    fitted = deferring(policy)
    with progress() as tell:
        data = dprl.read(files, **log.options(hasattr(fitted, "feature_names")), progress=tell)
        tell("certifying", 0.0)
        gated = dprl.gate(
            fitted, data, delta=delta, value_range=(lowest, highest), margin=margin, mode=mode,
            states_fixed=states_fixed, horizon=horizon, seed=seed,
        )  # fmt: skip
        gated.save(out)
    proved = gated.certificate
    if json and proved is not None:
        show({**gated.summary(), "policy": str(out), "digest": gated.digest(),
              "certificate": proved.to_dict()}, json)  # fmt: skip
        return 0
    show(f"before: {fitted}\nafter:  {gated}\n\n{proved}\n\nSaved as {out}.", json)
    return 0
