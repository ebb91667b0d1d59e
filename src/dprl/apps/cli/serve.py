"""`dprl serve`: a policy's answers over HTTP."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dprl._core.checks import check_whole
from dprl._core.disk import expand_paths
from dprl.apps.cli._app import command
from dprl.apps.cli.console import complain, progress
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

TOKEN, KEY = "DPRL_TOKEN", "DPRL_HASH_KEY"


@command
def serve(
    policy: str,
    /,
    *,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    require_signed: RequireSigned = None,
    require_approved: Annotated[
        str,
        Parameter(help="Audit trail of a review: answer only from the policy that it approved."),
    ] = "",
    allow_host: Names = None,
    token: Annotated[
        bool,
        Parameter(
            negative="--no-token", help="Ask for a token; --no-token works on loopback only."
        ),
    ] = True,
    tokens: Annotated[
        str,
        Parameter(help="Private TOML file of tokens by name: log and audit say who asked."),
    ] = "",
    body_limit: Annotated[Whole, Parameter(help="Largest size of a request, in bytes.")] = 1 << 20,
    cases: Annotated[
        bool,
        Parameter(
            help="Let /explain name similar training episodes (perhaps patients).", negative=""
        ),
    ] = False,
    workers: Annotated[Whole, Parameter(help="Number of processes that answer.")] = 1,
    reload: Annotated[
        float | None,
        Parameter(help="Look for a new policy in the file every so many seconds; else on SIGHUP."),
    ] = None,
    log: Annotated[
        str,
        Parameter(
            help="File for a log of requests and answers, JSON lines; - is stdout.",
            allow_leading_hyphen=True,
        ),
    ] = "",
    log_states: Annotated[
        bool,
        Parameter(help="Write states to log and audit as they are, not only hashed.", negative=""),
    ] = False,
    audit: Annotated[
        str, Parameter(help="File that every answer is added to before it is given.")
    ] = "",
    cds: Annotated[
        str, Parameter(help="TOML file that describes a service of CDS Hooks; needs --audit.")
    ] = "",
    json: Json = False,
) -> int:
    """Answer over HTTP: /act, /explain, /policy, /livez, /readyz, /metrics, /openapi.json.

    Requests carry `Authorization: Bearer TOKEN`; the token is one of the file --tokens, or the one
    in the environment variable DPRL_TOKEN, or else a new one: it is printed on a terminal, and
    written to a private file elsewhere. A new policy in the file takes over on SIGHUP, once it has
    been read and checked; until then the old one answers. DPRL_HASH_KEY may hold a key for the
    hashes of states in the log and the audit.

    Example: `dprl serve policy.dprl`

    Args:
        policy: A policy file.
    """
    from dprl.policies._signature import require

    require(require_signed)
    from dprl.policies._load import deferring

    check_packages()
    from dprl.apps._web import is_loopback, new_token, open_socket, url_of
    from dprl.apps.serve.approval import require_approved as check_approved
    from dprl.apps.serve.approval import review_of
    from dprl.apps.serve.records import check_audit
    from dprl.apps.serve.running import Settings, run_service
    from dprl.apps.serve.tokens import check_token, remove_token_file, token_file

    if tokens and (not token or os.environ.get(TOKEN, "").strip()):
        other = f"the environment variable {TOKEN}" if token else "--no-token"
        raise ParameterError(
            f"--tokens and {other} are both given.",
            do="Leave one of them out; a single token can have a line in the file, too.",
        )
    if not token and not is_loopback(host):
        raise ParameterError(
            f"--no-token is for loopback; {host} can be reached by others.",
            do="Leave --no-token out, or --host.",
        )
    check_whole("--body-limit", body_limit, 1)
    check_whole("--workers", workers, 1, 256)
    if reload is not None and not 0.1 <= reload <= 86_400:
        raise ParameterError(f"--reload must be 0.1 to 86,400 seconds; got {reload:g}.")
    if cds and not audit:
        raise ParameterError(
            "--cds needs --audit: feedback on cards must be stored.", do="Name a file with --audit."
        )
    for target in (log, audit):
        if target not in ("", "-") and Path(target).resolve() in expand_paths(
            policy, cds or ".", tokens or ".", require_approved or "."
        ):
            raise ParameterError(
                f"{target!r} would be overwritten, and it is read.", do="Name another file."
            )
    if workers > 1 and not hasattr(signal, "SIGHUP"):
        raise ParameterError("--workers needs a system with Unix signals.", do="Leave it out.")
    if audit and log and Path(audit).resolve() == Path(log).resolve():
        raise ParameterError("--log and --audit name the same file.", do="Name two files.")
    with progress() as tell:
        tell("reading the policy", 0.0)
        fitted = deferring(policy)
        if require_approved:
            check_approved(fitted, require_approved)
        if audit and Path(audit).exists():
            tell("checking the audit", 0.5)
            check_audit(audit)
    given = os.environ.get(TOKEN, "").strip()
    secret = (given or new_token()) if token and not tokens else None
    if secret is not None:
        check_token(secret, TOKEN)
    settings = Settings(
        policy, secret, host, tuple(allow_host or ()), body_limit, cases, reload, log, log_states,
        os.environ.get(KEY, "").encode(), audit, cds, tokens=tokens,
        approved=require_approved,
    )  # fmt: skip
    made = None if given else secret
    at_terminal = sys.stdout.isatty()  # a pipe may end in a log, where a token must not be
    with token_file(None if at_terminal else made) as written:
        sock = open_socket(host, port)
        try:
            app = settings.app(fitted)
        except BaseException:
            sock.close()
            raise
        if written is not None:
            app.state.life.at_end = lambda: remove_token_file(written)
        url = url_of(sock, host)
        shown = made if at_terminal else None
        lines = [f"Serving {policy} at {url}"]
        lines += [f"Token: {shown}"] if shown else []
        lines += [f"Token in {written}"] if written else []
        facts = {
            "url": url, "token": shown, "token_file": str(written) if written else None,
            "policy": fitted.digest(), "reviewed": review_of(fitted) is not None,
        }  # fmt: skip
        if not facts["reviewed"]:
            complain("warning: nobody has reviewed this policy; `dprl review` is for that.")
        warn_of_others(host, "answers and similar training episodes" if cases else "answers")
        announce(facts, "\n".join([*lines, "Stop with Ctrl-C."]), json)
        return run_service(app, settings, sock, workers)
