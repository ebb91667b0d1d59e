"""The commands that serve: `dprl review` and `dprl serve`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dprl._core.checks import check_whole
from dprl._core.optional import needed
from dprl.apps.cli.console import caution, complain, progress, show, warned
from dprl.apps.cli.log_columns import columns_for
from dprl.apps.cli.options import Json, OtherColumns, Whole
from dprl.errors import ParameterError

__all__ = ["review", "serve"]

Host = Annotated[str, Parameter(help="Address to listen on; warns unless it is loopback.")]
Port = Annotated[Whole, Parameter(help="Port to listen on; 0 takes any free port.")]
Names = Annotated[
    list[str] | None,
    Parameter(name="--allow-host", help="A further host name of this server.", negative=""),
]
TOKEN = "DPRL_TOKEN"
SHORTEST = 16


def review(
    policy: str,
    /,
    columns: OtherColumns | None = None,
    *,
    log: Annotated[
        list[str], Parameter(help="The log to judge it by, best held out.", negative="")
    ],
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
    with progress() as tell, warned() as said:
        found = open_review(
            fitted, policy, log, verdicts=verdicts, out=out, needs=needs,
            columns=named, progress=tell,
        )  # fmt: skip
    caution(said)
    if export:
        written = found.export()
        show(written.to_dict() if json else str(written), json)
        return 0
    _needs_extra()
    from dprl.apps._web import new_token, open_socket, run, url_of

    token = new_token()
    app = found.app(token, host, tuple(allow_host or ()), cases)
    sock = open_socket(host, port)
    url = f"{url_of(sock, host)}/{token}/"
    facts: dict[str, Any] = {"url": url, "verdicts": str(found.verdicts.path), "out": str(out)}
    _warn(host, "verdicts and the log")
    _announce(facts, f"Review at {url}\nVerdicts in {found.verdicts.path}. Stop with Ctrl-C.", json)
    run(app, sock)
    return 0


def serve(
    policy: str,
    /,
    *,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    allow_host: Names = None,
    token: Annotated[
        bool,
        Parameter(
            negative="--no-token", help="Ask for a token; --no-token works on loopback only."
        ),
    ] = True,
    body_limit: Annotated[Whole, Parameter(help="Largest size of a request, in bytes.")] = 1 << 20,
    cases: Annotated[
        bool,
        Parameter(
            help="Let /explain name similar training episodes (perhaps patients).", negative=""
        ),
    ] = False,
    json: Json = False,
) -> int:
    """Answer over HTTP: POST /act and /explain, GET /policy, /healthz, /metrics, /openapi.json.

    Requests carry `Authorization: Bearer TOKEN`; the token is the one in the environment variable
    DPRL_TOKEN, or else a new one that is printed.

    Example: `dprl serve policy.dprl`

    Args:
        policy: A policy file.
    """
    from dprl.policies._load import deferring

    _needs_extra()
    from dprl.apps._web import is_loopback, new_token, open_socket, run, url_of
    from dprl.apps.serve.app import serve_app

    if not token and not is_loopback(host):
        raise ParameterError(
            f"--no-token is for loopback; {host} can be reached by others.",
            do="Leave --no-token out, or --host.",
        )
    check_whole("--body-limit", body_limit, 1)
    with progress() as tell:
        tell("reading the policy", 0.0)
        fitted = deferring(policy)
    given = os.environ.get(TOKEN, "").strip()
    secret = (given or new_token()) if token else None
    if secret is not None and (len(secret) < SHORTEST or not secret.isascii() or " " in secret):
        raise ParameterError(
            f"{TOKEN} must have at least {SHORTEST} characters, plain ones without blanks."
        )
    app = serve_app(
        fitted, token=secret, host=host, names=tuple(allow_host or ()), limit=body_limit,
        cases=cases,
    )  # fmt: skip
    sock = open_socket(host, port)
    url = url_of(sock, host)
    shown = None if given else secret
    lines = [f"Serving {policy} at {url}"]
    lines += [f"Token: {shown}"] if shown else []
    facts = {"url": url, "token": shown, "policy": fitted.digest()}
    _warn(host, "answers and similar training episodes" if cases else "answers")
    _announce(facts, "\n".join([*lines, "Stop with Ctrl-C."]), json)
    run(app, sock)
    return 0


def _announce(facts: dict[str, Any], text: str, json: bool) -> None:
    show(facts if json else text, json)
    sys.stdout.flush()


def _warn(host: str, what: str) -> None:
    from dprl.apps._web import is_loopback

    if not is_loopback(host):
        complain(
            f"warning: listening on {host}, not on loopback: whoever can reach it and has the token"
            f" sees {what},\n  and the connection is not encrypted. Put TLS in front of it."
        )


def _needs_extra() -> None:
    for name in ("starlette", "uvicorn"):
        needed(name, "a server", "dprl[serve]")
