"""`dprl serve`: a policy's answers over HTTP."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import Parameter

from dprl._core.checks import check_whole
from dprl.apps.cli._app import command
from dprl.apps.cli.console import progress
from dprl.apps.cli.listening import (
    Host,
    Names,
    Port,
    RequireSigned,
    announce,
    check_packages,
    warn_of_others,
)
from dprl.apps.cli.options import Json, Whole
from dprl.errors import ParameterError

__all__ = ["serve"]

TOKEN = "DPRL_TOKEN"
SHORTEST = 16


@command
def serve(
    policy: str,
    /,
    *,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    require_signed: RequireSigned = None,
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
    from dprl.policies._signature import require

    require(require_signed)
    from dprl.policies._load import deferring

    check_packages()
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
    warn_of_others(host, "answers and similar training episodes" if cases else "answers")
    announce(facts, "\n".join([*lines, "Stop with Ctrl-C."]), json)
    run(app, sock)
    return 0
