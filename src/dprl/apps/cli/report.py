"""`dprl report`: one page on a policy, for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite
from dprl.apps._intended_use import card_beside
from dprl.apps.cli._app import command
from dprl.apps.cli.console import caution, progress, show, warned
from dprl.apps.cli.log_columns import columns_for
from dprl.apps.cli.options import (
    By,
    Draws,
    Json,
    OtherColumns,
    Seed,
    Values,
    Whole,
    intended_use,
)

__all__ = ["report"]


@command
def report(
    policy: str,
    files: list[str],
    /,
    columns: OtherColumns | None = None,
    *,
    out: Annotated[Path, Parameter(help="File for the report.")] = Path("review.html"),
    title: Annotated[str | None, Parameter(help="Heading of the report.")] = None,
    cases: Annotated[
        Whole, Parameter(help="Past cases shown on each side of a change, with labels.")
    ] = 0,
    draws: Draws = 2_000,
    seed: Seed = 0,
    values: Values = True,
    by: By = None,
    standard: Annotated[
        str | None,
        Parameter(
            help='"target": add what the TARGET 2025 statement asks of an emulated trial, and '
            "write a model card. People's answers come from [intended-use] in dprl.toml; what "
            "nobody answered is marked *to fill in*."
        ),
    ] = None,
    card: Annotated[
        Path | None,
        Parameter(
            help="File for the model card. Default: beside the report and named after it, as in "
            "review.model-card.json."
        ),
    ] = None,
    lang: Annotated[str, Parameter(help='Language of the page: "en" or "de".')] = "en",
    json: Json = False,
) -> int:
    """Write a report on a policy for people: one self-contained HTML file that can be printed.

    It says what would change, what held-out episodes say about it, where the policy defers and why,
    how sure that is, what nobody can know from a log, and where the policy comes from.

    Example: `dprl report policy.dprl held-out.parquet --out review.html`

    Args:
        policy: A policy file.
        files: CSV or Parquet files, best of episodes that the policy was not learned from.
        columns: Columns of the log, where their names differ from those of the policy.
    """
    import dprl
    from dprl._core.html.catalogue import speak
    from dprl.apps._standard import check_standard
    from dprl.evaluation._subgroups import columns_by
    from dprl.policies._load import deferring, read_like

    speak(lang)  # what is refused is refused before a long log is read
    if check_standard(standard) is not None and card is None:
        card = card_beside(out)
    for target in (out, card):
        refuse_overwrite(target, policy, *files)
    use = intended_use() if standard is not None else None
    fitted = deferring(policy)
    named = columns_for(fitted, columns, "report")
    with progress() as tell, warned() as cautions:
        data = read_like(fitted, files, tell, **named)
        written = dprl.report(
            fitted, data, out, title=title, cases=cases, values=values, draws=draws, seed=seed,
            by=columns_by(by, data), standard=standard, use=use, card=card, lang=lang,
            progress=tell,
        )  # fmt: skip
    if not json:
        caution(cautions)
    show({**written.to_dict(), "warnings": cautions} if json else str(written), json)
    return 0
