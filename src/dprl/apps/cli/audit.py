"""`dprl audit`: does the audit of a service hold together, and what does it tell?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dprl.apps.cli._app import command
from dprl.apps.cli.console import refuse, show
from dprl.apps.cli.options import Json
from dprl.errors import ParameterError, PolicyError

if TYPE_CHECKING:
    from dprl.apps.serve.audit_reading import AuditFacts

__all__ = ["audit"]

HEXADECIMAL = frozenset("0123456789abcdef")


@command
def audit(
    file: str,
    /,
    *,
    chain: Annotated[
        str, Parameter(help="A chain that was kept elsewhere: one of the lines must have it.")
    ] = "",
    json: Json = False,
) -> int:
    """Check the chain of an audit that `dprl serve --audit` wrote, and say what it holds.

    The exit code is 1 where a line was changed, put in, or taken out before the last. A line that a
    crash cut short is no change. Lines cut off the end show only with --chain. The service may go
    on writing meanwhile.

    Example: `dprl audit /var/lib/dprl/audit.jsonl`

    Args:
        file: The audit.
    """
    from dprl.apps.serve.audit import check_ordinary
    from dprl.apps.serve.audit_reading import read_audit

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
            f"line {facts.broken:,}: {facts.why}",
            f"The {facts.lines:,} lines before it hold. Compare the file with a copy.",
        )
    return PolicyError(
        f"no line of {file!r} has the chain {chain[:12]}…",
        f"{facts.lines:,} lines; the last one has {facts.chain[:12] or 'none'}",
        "Lines were cut off the end, or this is another audit. Compare the file with a copy.",
    )


def _in_words(facts: AuditFacts) -> str:
    lines = [
        f"{_number(facts.answers, 'answer')} in {_number(facts.lines, 'line')}"
        + (f", {facts.first} to {facts.last}" if facts.lines else ""),
    ]
    for digest, answered in facts.policies.items():
        when = f", {answered.first} to {answered.last}" if answered.answers else ""
        lines.append(f"policy {digest}: {_number(answered.answers, 'answer')}{when}")
    others = {event: n for event, n in facts.events.items() if event != "answer"}
    if others:
        lines.append("Other lines: " + ", ".join(f"{n:,} {event}" for event, n in others.items()))
    if facts.torn:
        places = ", ".join(f"{number:,}" for number in facts.torn_at)
        more = " …" if facts.torn > len(facts.torn_at) else ""
        last = ", the last of the file among them" if facts.ends_torn else ""
        lines.append(
            f"{_number(facts.torn, 'line')} cut short by a crash (line {places}{more}{last}):"
            " their answers were never given."
        )
    if facts.broken is None:
        lines.append(f"The chain holds. Last chain: {facts.chain or 'none'}")
    return "\n".join(lines)


def _number(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")
