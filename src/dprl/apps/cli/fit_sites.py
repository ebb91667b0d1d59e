"""`dprl fit` of an evidence file: the same command, with the options that are left to choose.

Columns, the discount and the treatment of cut episodes were fixed by the schema that the sites
counted with, so this form of the command has none of them.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from dprl._core.disk import refuse_overwrite
from dprl.apps.cli.console import caution, head, show, warned
from dprl.apps.cli.options import Json, MaybeWhole
from dprl.errors import ParameterError

__all__ = ["for_sites", "is_evidence"]

sites = App(name="dprl fit", help_format="markdown", suppress_keyboard_interrupt=False)


def for_sites(tokens: list[str]) -> tuple[App, list[str]] | None:
    """The command for evidence and its tokens, if `fit` is asked for a file of evidence."""
    if tokens[:1] != ["fit"]:
        return None
    rest = iter(tokens[1:])
    for token in rest:
        if token in ("--n-min", "--out"):
            next(rest, None)  # its value is no file of evidence to read
        elif not token.startswith("--"):
            return (sites, tokens[1:]) if is_evidence(token) else None
    return None


def is_evidence(token: str) -> bool:
    """Whether it is "-", or a file that says it holds evidence."""
    if token == "-":
        return True
    try:
        if token.startswith("-") or not Path(token).is_file() or not zipfile.is_zipfile(token):
            return False
        with zipfile.ZipFile(token) as z:
            return "evidence.json" in z.namelist()
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


@sites.default
def fit(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    n_min: Annotated[
        MaybeWhole, Parameter(help="Episodes an action needs before it may be suggested.")
    ] = None,
    contrast: Annotated[
        bool, Parameter(help="Also require n-min episodes that did otherwise.")
    ] = True,
    plan: Annotated[
        bool, Parameter(help="Plan over all decisions together; needs a second round of counting.")
    ] = True,
    out: Annotated[Path, Parameter(help="Where to save the policy.")] = Path("policy.dprl"),
    json: Json = False,
) -> int:
    """Learn a policy from what sites counted, without their rows, and save it.

    Gamma and the treatment of cut episodes are those of the sites' schema.

    Example: `dprl fit all.evidence --n-min 20 --no-plan --out policy.dprl`

    Args:
        file: An evidence file, or - for standard input.
    """
    import dprl
    from dprl.planning._site_plan import load_counts

    if file != "-":
        refuse_overwrite(out, file)
    if n_min is None:
        raise ParameterError(
            "--n-min is missing: how many episodes must have taken an action before it may be "
            "suggested.",
            do="Choose it before looking at results (--n-min 20).",
        )
    counted = load_counts(file)
    schema = (counted.evidence if isinstance(counted, dprl.SitePlan) else counted).schema
    learner = dprl.DPRLDiscrete(
        n_min=n_min, gamma=schema.gamma, contrast=contrast, plan=plan, cut=schema.cut
    )
    with warned() as cautions:
        policy = learner.fit(counted)
        policy.save(out)
    changes = policy.changes()
    if json:
        facts: dict[str, Any] = {**policy.summary(), "policy": str(out), "digest": policy.digest(),
                                 "notes": list(counted.notes())}  # fmt: skip
        show({**facts, "warnings": cautions, "changed": changes.to_dicts()}, as_json=True)
        return 0
    caution(cautions)
    show(f"{counted!r}\n{policy}\n\n{head(changes)}\n\nSaved as {out}.", as_json=False)
    return 0
