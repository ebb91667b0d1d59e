"""Commands of the service: `serve`, and `audit`, which reads what it wrote down."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dprl._core.checks import check_whole
from dprl._core.disk import expand_paths
from dprl._core.optional import needed
from dprl._core.table import form, many
from dprl.apps.cli.console import command, complain, progress, refuse, show
from dprl.apps.cli.options import Flag, Json, Whole
from dprl.errors import ParameterError, PolicyError

if TYPE_CHECKING:
    from dprl.apps.serve.audit import AuditFacts


# --- `dprl audit`: does the audit of a service hold together, and what does it tell?

HEXADECIMAL = frozenset("0123456789abcdef")


@command
def audit(
    file: str,
    /,
    *,
    chain: str = "",
    json: Json = False,
) -> int:
    """Check the chain of an audit that `dprl serve --audit` wrote, and say what it holds.

    The exit code is 1 where a line was changed, put in, or taken out before the last. A line that a
    crash cut short is no change. Lines cut off the end show only with --chain. The service may go
    on writing meanwhile. Files that the audit went on from (FILE.000001, …) are read first.

    Example: `dprl audit /var/lib/dprl/audit.jsonl`

    Args:
        file: The audit.
        chain: A chain that was kept elsewhere: one of the lines must have it.
    """
    from dprl.apps.serve.audit import check_ordinary, read_audit

    if chain and (len(chain) != 64 or not set(chain) <= HEXADECIMAL):
        raise ParameterError(
            f"--chain must be the 64 characters of a line's 'chain'; got {chain[:80]!r}."
        )
    check_ordinary(file, "the audit", "Name the file that `dprl serve --audit` writes.")
    _refuse_verdicts(file)
    facts = read_audit(file, chain)
    if not json:
        show(_in_words(facts), json)
    if facts.ok:
        if json:
            show(facts.to_dict(), json)
        return 0
    error = _error(file, facts, chain)
    if json:
        parts = {"kind": "PolicyError", "what": error.what, "where": error.where, "do": error.do}
        show({**facts.to_dict(), "error": parts}, json)
    return refuse(error, "PolicyError", as_json=False, code=1)


def _refuse_verdicts(file: str) -> None:
    """Refuse the verdicts of a review: they have a chain of their own."""
    try:
        with open(file, "rb") as opened:
            first = opened.read(16)
    except OSError:  # reading it will say why not
        return
    if first.startswith(b"SQLite format 3"):
        raise ParameterError(
            "this is no audit of a service, but a database, perhaps the verdicts of a review.",
            file,
            "Open verdicts with `dprl review --verdicts FILE`, which checks their own chain.",
        )


def _error(file: str, facts: AuditFacts, chain: str) -> PolicyError:
    if facts.broken is not None:
        return PolicyError(
            f"the chain of {file!r} is broken: a line was changed, put in or taken out.",
            f"{facts.place if facts.files > 1 else f'line {facts.broken:,}'}: {facts.why}",
            f"{many(facts.lines, 'line')} before it {form(facts.lines, 'holds', 'hold')}. "
            "Compare the file with a copy.",
        )
    return PolicyError(
        f"no line of {file!r} has the chain {chain[:12]}…",
        f"{facts.lines:,} lines; the last one has {facts.chain[:12] or 'none'}",
        "Lines were cut off the end, or this is another audit. Compare the file with a copy.",
    )


def _in_words(facts: AuditFacts) -> str:
    lines = [
        f"{many(facts.answers, 'answer')} in {many(facts.lines, 'line')}"
        + (f", {facts.first} to {facts.last}" if facts.lines else ""),
    ]
    for digest, answered in facts.policies.items():
        when = f", {answered.first} to {answered.last}" if answered.answers else ""
        lines.append(f"policy {digest}: {many(answered.answers, 'answer')}{when}")
    others = {event: n for event, n in facts.events.items() if event != "answer"}
    if others:
        lines.append("Other lines: " + ", ".join(f"{n:,} {event}" for event, n in others.items()))
    if facts.torn:
        places = ", ".join(f"{number:,}" for number in facts.torn_at)
        more = " …" if facts.torn > len(facts.torn_at) else ""
        last = ", the last of the file among them" if facts.ends_torn else ""
        lines.append(
            f"{many(facts.torn, 'line')} cut short by a crash (line {places}{more}{last}):"
            " their answers were never given."
        )
    if facts.broken is None:
        lines.append(f"The chain holds. Last chain: {facts.chain or 'none'}")
    return "\n".join(lines)


# --- What the commands that answer over HTTP share: where they listen, and what they say first

Host = Annotated[str, Parameter(help="Address to listen on; warns unless it is loopback.")]
Port = Annotated[Whole, Parameter(help="Port to listen on; 0 takes any free port.")]
RequireSigned = Annotated[
    str | None,
    Parameter(help="Public key of minisign: answer only from policies signed with it."),
]
Names = Annotated[
    list[str] | None,
    Parameter(name="--allow-host", help="A further host name of this server."),
]


def check_packages(*more: str) -> None:
    """Refuse where a package that a server needs is not installed."""
    for name in ("starlette", "uvicorn", *more):
        needed(name, "a server", "dprl[serve]")


def announce(facts: dict[str, Any], text: str, json: bool) -> None:
    """Print at once where the server listens, before it does."""
    show(facts if json else text, json)
    sys.stdout.flush()


def warn_of_others(host: str, what: str) -> None:
    """Warn where others can reach the server, and say what they would see."""
    from dprl.apps.web import is_loopback

    if not is_loopback(host):
        complain(
            f"warning: listening on {host}, not on loopback: whoever can reach it and has the token"
            f" sees {what},\n  and the connection is not encrypted. Put TLS in front of it."
        )


# --- `dprl serve`: a policy's answers over HTTP

TOKEN, KEY = "DPRL_TOKEN", "DPRL_HASH_KEY"


@command
def serve(
    policy: str,
    /,
    *,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    require_signed: RequireSigned = None,
    require_approved: str = "",
    allow_host: Names = None,
    token: bool = True,
    tokens: str = "",
    body_limit: Whole = 1 << 20,
    cases: Flag = False,
    workers: Whole = 1,
    reload: float | None = None,
    log: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    log_states: Flag = False,
    audit: str = "",
    cds: str = "",
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
        require_approved: Audit trail of a review: answer only from the policy that it approved.
        token: Ask for a token; --no-token works on loopback only.
        tokens: Private TOML file of tokens by name: log and audit say who asked.
        body_limit: Largest size of a request, in bytes.
        cases: Let /explain name similar training episodes (perhaps patients).
        workers: Number of processes that answer.
        reload: Look for a new policy in the file every so many seconds; else on SIGHUP.
        log: File for a log of requests and answers, JSON lines; - is stdout.
        log_states: Write states to log and audit as they are, not only hashed.
        audit: File that every answer is added to before it is given.
        cds: TOML file that describes a service of CDS Hooks; needs --audit.
    """
    from dprl.policies.signature import require

    require(require_signed)
    from dprl.policies.loading import deferring

    check_packages("prometheus_client")
    from dprl.apps.serve.audit import CHECKED, check_audit
    from dprl.apps.serve.lifecycle import Settings, run_service
    from dprl.apps.serve.served import require_approved as check_approved
    from dprl.apps.serve.served import review_of
    from dprl.apps.serve.tokens import check_token, remove_token_file, token_file
    from dprl.apps.web import is_loopback, new_token, open_socket, url_of

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
            check_audit(audit, CHECKED)
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
