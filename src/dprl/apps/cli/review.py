"""`dprl review`: a local page on which people judge a policy's changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dprl.apps.cli._app import command
from dprl.apps.cli.console import caution, progress, show, warned
from dprl.apps.cli.listening import Host, Names, Port, announce, check_packages, warn_of_others
from dprl.apps.cli.log_columns import columns_for
from dprl.apps.cli.options import By, Json, OtherColumns, Whole

__all__ = ["review"]


@command
def review(
    policy: str,
    /,
    columns: OtherColumns | None = None,
    *,
    log: Annotated[
        list[str], Parameter(help="The log to judge it by, best held out.", negative="")
    ],
    training: Annotated[
        list[str] | None,
        Parameter(help="The log that rules were fitted on: they can be narrowed.", negative=""),
    ] = None,
    out: Annotated[Path, Parameter(help="File for the approved policy.")] = Path("approved.dprl"),
    cases: Annotated[
        bool,
        Parameter(help="Also show similar *training* episodes.", negative=""),
    ] = False,
    verdicts: Annotated[
        Path | None, Parameter(help="SQLite file of verdicts; by default beside the policy.")
    ] = None,
    needs: Annotated[Whole, Parameter(help="Number of reviewers who must agree on a change.")] = 1,
    export: Annotated[
        bool, Parameter(help="Open no page: write the approved policy and stop.", negative="")
    ] = False,
    by: By = None,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    allow_host: Names = None,
    json: Json = False,
) -> int:
    """Open a local page on which people judge a policy's changes one by one.

    Verdicts are kept beside the policy, in POLICY.review.sqlite. The approved changes are written
    as a new policy, with the audit trail beside it. The page shows past cases of --log with their
    labels: it is for people who may read that log.

    Example: `dprl review policy.dprl --log test.parquet`

    Args:
        policy: A policy file.
        columns: Columns of the log, where their names differ from those of the policy.
    """
    from dprl.apps.review.command import open_review
    from dprl.policies._load import deferring

    fitted = deferring(policy)
    named = columns_for(fitted, columns, "review")
    with progress() as tell, warned() as cautions:
        opened = open_review(
            fitted, policy, log, verdicts=verdicts, out=out, needs=needs,
            columns=named, progress=tell, training=training, narrowing=not export, by=by,
            exporting=export,
        )  # fmt: skip
    caution(cautions)
    if export:
        written = opened.export()
        show(written.to_dict() if json else str(written), json)
        return 0
    check_packages()
    from dprl.apps._web import new_token, open_socket, run, url_of

    token = new_token()
    app = opened.app(token, host, tuple(allow_host or ()), cases)
    sock = open_socket(host, port)
    url = f"{url_of(sock, host)}/{token}/"
    facts: dict[str, Any] = {"url": url, "verdicts": str(opened.verdicts.path), "out": str(out)}
    warn_of_others(host, "verdicts and the log")
    announce(facts, f"Review at {url}\nVerdicts in {opened.verdicts.path}. Stop with Ctrl-C.", json)
    run(app, sock)
    return 0
