"""`dprl gate`: keeps only what a log certifies to be an improvement."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite
from dprl.apps.cli._app import command
from dprl.apps.cli._cluster import working_on
from dprl.apps.cli.console import caution, progress, show, warned
from dprl.apps.cli.fit_sites import is_evidence
from dprl.apps.cli.log_columns import columns_for
from dprl.apps.cli.next_steps import after_vacuous
from dprl.apps.cli.options import Cluster, Json, MaybeWhole, OtherColumns, Whole
from dprl.apps.cli.out_of_core import ScanOptions
from dprl.errors import ParameterError

if TYPE_CHECKING:
    from dprl.logs.log import Label

__all__ = ["gate"]

PLAIN = ("state", "action")
"""What must be one column each where a log is read in parts."""


@command
def gate(
    policy: str,
    files: list[str],
    /,
    columns: OtherColumns | None = None,
    memory: ScanOptions | None = None,
    *,
    lowest: Annotated[
        float | None, Parameter(help="The lowest return there can be; 'proved' needs it.")
    ] = None,
    highest: Annotated[
        float | None, Parameter(help="The highest return there can be; 'proved' needs it.")
    ] = None,
    delta: Annotated[float, Parameter(help="Probability with which the claim may fail.")] = 0.05,
    margin: Annotated[float, Parameter(help="Advantage that a suggestion must exceed.")] = 0.0,
    mode: Annotated[
        str,
        Parameter(
            help="Which part of the log proposes and certifies: swap-split or in-sample; policy: "
            "one bound for the policy as a whole, on a log that it has never seen."
        ),
    ] = "swap-split",
    grade: Annotated[
        Literal["proved", "large-sample"],
        Parameter(
            help="proved: exact for samples of any size. large-sample: an approximation that "
            "needs no range, by first visits; never called proved."
        ),
    ] = "proved",
    states: Annotated[
        Path | None,
        Parameter(
            help="A text file with the states that were fixed without looking at returns, one per "
            "line, and so were gamma, n-min and the range (in-sample needs it).",
        ),
    ] = None,
    markov: Annotated[
        bool,
        Parameter(
            help="Claim that what follows a visit depends on the past through the state alone. "
            "Without it first visits count, less is claimed, and no gain.",
        ),
    ] = True,
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
    cluster: Cluster = None,
    json: Json = False,
) -> int:
    """Keep only the suggestions that a log proves to improve on usual practice.

    State --lowest and --highest from what rewards can be, never from the returns in the log. Only
    --grade large-sample does without them; what it certifies is not proved.

    Example: `dprl gate policy.dprl visits.csv --lowest 0 --highest 1`

    Args:
        policy: A policy file; usually with the log it was fitted to.
        files: CSV or Parquet files, or patterns in quotes. Or one file of what sites counted: then
            say --mode in-sample --no-markov; states and range are those of the sites' schema.
        columns: Columns of the log, where their names differ from those of the policy.
    """
    import dprl
    from dprl.policies._load import deferring, read_like, reading_like

    of_sites = len(files) == 1 and is_evidence(files[0])
    if (lowest is None) != (highest is None) or (
        lowest is None and grade == "proved" and not of_sites
    ):
        gone = "--lowest" if lowest is None else "--highest"
        raise ParameterError(
            f"{gone} is missing: a certificate needs the range of returns.",
            do="State --lowest and --highest from what rewards can be, never from the returns in "
            "the log; only --grade large-sample does without both.",
        )
    refuse_overwrite(out, policy, *files, *([] if states is None else [str(states)]))
    fitted = deferring(policy)
    named = columns_for(fitted, columns, "gate")
    fold = "" if of_sites else str(getattr(fitted.space, "fold", ""))
    options = {} if of_sites else reading_like(fitted, files, **named)
    memory = memory or ScanOptions()
    with (
        progress() as tell,
        warned() as cautions,
        contextlib.ExitStack() as open_files,
        working_on(cluster) as there,
    ):
        data: Any
        if of_sites:
            data = dprl.SiteEvidence.load(files[0])
        elif memory.in_parts(files, able=all(isinstance(options[k], str) for k in PLAIN)):
            data = open_files.enter_context(memory.scanned(files, options, tell))
        else:
            data = read_like(fitted, files, tell, **named)
        tell("certifying", 0.0)
        gated = dprl.gate(
            fitted, data, delta=delta, margin=margin, mode=mode, grade=grade,
            value_range=None if lowest is None or highest is None else (lowest, highest),
            states=None if states is None else _declared(states, data.facts.states, fold),
            markov=markov,
            horizon=horizon, seed=seed, confounding=confounding, **there,
        )  # fmt: skip
        gated.save(out)
        n_units = data.facts.n_groups
    proved = gated.certificate
    steps: list[str] = []
    if proved is not None and proved.vacuous:
        steps = after_vacuous(fitted, n_units, delta=delta, grade=grade, mode=mode)
    if json and proved is not None:
        show({**gated.summary(), "policy": str(out), "digest": gated.digest(),
              "certificate": proved.to_dict(), "warnings": cautions,
              "next_steps": [line.strip(" -") for line in steps[1:]]}, json)  # fmt: skip
        return 0
    caution(cautions)
    after = "".join(f"\n{line}" for line in ("", *steps)) if steps else ""
    show(f"before: {fitted}\nafter:  {gated}\n\n{proved}{after}\n\nSaved as {out}.", json)
    return 0


def _declared(path: Path, states: tuple[Label, ...], how: str) -> list[Label]:
    """The states named in a file, one per line, as the labels they are in the log.

    Args:
        path: The file.
        states: The states of the log.
        how: What was done to the labels of the policy's log ("trim,casefold"); '' for nothing.
    """
    from dprl.logs._text import fold

    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        raise ParameterError(
            f"the states cannot be read from {str(path)!r}.",
            do="Give a text file with one state per line.",
        ) from None
    label = {str(state): state for state in states}
    named = [fold(line.strip(), how) for line in lines if line.strip()]
    return [label.get(name, name) for name in (dict.fromkeys(named) if how else named)]
