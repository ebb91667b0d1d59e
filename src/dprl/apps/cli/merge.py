"""`dprl merge`: what several sites counted, together."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite
from dprl.apps.cli._app import command
from dprl.apps.cli.console import complain, show
from dprl.apps.cli.options import Json
from dprl.errors import ParameterError

__all__ = ["merge"]


@command
def merge(
    files: list[str],
    /,
    *,
    out: Annotated[
        Path | None,
        Parameter(help="Where to save it; by default it goes to standard output, for a pipe."),
    ] = None,
    json: Json = False,
) -> int:
    """Put together what several sites counted with one schema. The order does not matter.

    Example: `dprl merge north.evidence south.evidence --out all.evidence`

    Or through a pipe: `dprl merge north.evidence south.evidence | dprl fit - --no-plan --n-min 20`

    Args:
        files: Evidence files, one per site.
    """
    import dprl
    from dprl.planning._site_plan import load_counts

    refuse_overwrite(out, *files)
    if out is None and (json or sys.stdout.isatty()):
        raise ParameterError(
            "--out is missing: evidence is not text for a screen.",
            do="Say --out all.evidence, or send it through a pipe: | dprl fit - ...",
        )
    merged = dprl.merge_evidence(*(load_counts(file) for file in files))
    if out is None:
        complain(repr(merged))
        sys.stdout.buffer.write(merged.to_bytes())
        sys.stdout.flush()
        return 0
    merged.save(out)
    first = merged.evidence if isinstance(merged, dprl.SitePlan) else merged
    facts = {"evidence": str(out), "groups": first.groups,
             "sites": [dict(site) for site in first.sites]}  # fmt: skip
    show(facts if json else f"{merged.explain()}\n\nSaved as {out}.", json)
    return 0
