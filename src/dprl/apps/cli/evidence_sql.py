"""`dprl evidence --sql` and `--rows`: the query for a warehouse, and what came of it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from dprl._core.disk import refuse_overwrite
from dprl.apps.cli.console import show
from dprl.apps.cli.options import MaybeLogOptions
from dprl.errors import EvidenceError, ParameterError

__all__ = ["count_rows", "print_query"]


def print_query(schema: Path | None, log: MaybeLogOptions, given: dict[str, Any]) -> int:
    """Print the query that counts a table.

    Args:
        schema: The schema file.
        log: Which column is what.
        given: Table, decimals, precision and dialect, None where they were not given.
    """
    import dprl
    from dprl.evidence import sql_query

    if schema is None or given["table"] is None:
        gone = "--schema" if schema is None else "--table"
        raise ParameterError(
            f"{gone} is missing: a query needs --schema, --table and the columns.",
            do="Say the schema that all sites agreed on, and the table as after FROM.",
        )
    options = log.options()
    if options["time"] is None:
        raise ParameterError(
            "--time is missing: the rows of a table in a database have no order.",
            do="Name the column that orders the rows of an episode.",
        )
    unused = [name for name in ("available", "ended", "propensity", "events", "follow_up")
              if options.get(name)]  # fmt: skip
    if unused:
        raise ParameterError(
            f"--{unused[0].replace('_', '-')} is not for the query, which takes every episode as "
            "ended.",
            do="Leave it out, or count with dprl evidence where the rows are.",
        )
    changed = [name for name in ("labels", "action_bins") if options.get(name)]
    if changed:
        raise ParameterError(
            f"--{changed[0].replace('_', '-')} is not for the query, which takes labels as they "
            "are in the table.",
            do="Leave it out, and change the labels in the table itself.",
        )
    if not isinstance(options["state"], str):
        raise ParameterError(
            f"the query counts labelled states, and {len(options['state'])} columns are named.",
            do="Name one column with --state.",
        )
    names = ("episode", "time", "state", "action", "reward", "group")
    settings = {name: value for name, value in given.items() if value is not None}
    columns = {name: options[name] for name in names}
    show(sql_query(dprl.SiteSchema.load(schema), **columns, **settings).rstrip(), as_json=False)
    return 0


def count_rows(
    rows: Path, schema: Path | None, out: Path | None, k: int | None, site: str, json: bool
) -> int:
    """Make an evidence file of the query's result.

    Args:
        rows: A CSV file with a header: the result of the query.
        schema: The schema file.
        out: The evidence file.
        k: The fewest groups; None: as many as usual.
        site: A name for the site.
        json: Whether to print for machines.
    """
    import dprl
    from dprl.evidence import from_query

    if schema is None or out is None:
        gone = "--schema" if schema is None else "--out"
        raise ParameterError(
            f"{gone} is missing: the result of a query needs --schema and --out.",
            do="Say the schema that the query was made with, and where to save the evidence.",
        )
    refuse_overwrite(out, str(rows), str(schema))
    agreed = dprl.SiteSchema.load(schema)
    try:
        with rows.open(encoding="utf-8-sig", newline="") as stream:
            read = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise EvidenceError(
            f"no rows can be read from {str(rows)!r}.", str(error)[:80],
            "Save the result of the query as CSV, with a header.",
        ) from error  # fmt: skip
    counted = from_query(read, agreed, site=site, **({} if k is None else {"k": k}))
    counted.save(out)
    if json:
        show({"evidence": str(out), "digest": counted.digest(), **counted.sites[0]}, as_json=True)
        return 0
    show(f"{counted.explain()}\n\nSaved as {out}.", as_json=False)
    return 0
