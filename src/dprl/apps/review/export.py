"""The outcome of a review: a policy of the approved changes alone, and the audit trail as CSV.

The policy's provenance names the policy it comes from, the SHA-256 of the audit trail, and how
many reviewers each change needed. The trail holds every verdict ever given, also those changed
later, with the chain of hashes of the verdicts' file.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprl._core.checks import check_whole
from dprl._core.disk import replacing, together
from dprl._core.plural import many
from dprl._core.table import no_formula
from dprl.apps._change import Change
from dprl.apps._changes import Described
from dprl.apps.review.narrowing import read_kept
from dprl.apps.review.verdicts import Verdict, Verdicts, statuses
from dprl.errors import PolicyError
from dprl.policies._protocol import DeferringPolicy
from dprl.policies._rule_words import rules_of

__all__ = ["Exported", "approved_policy", "audit", "nothing_judged", "write_approved"]

COLUMNS = (
    "id", "time_utc", "reviewer", "change", "situation", "usual", "suggested", "verdict",
    "comment", "narrowed", "latest_of_reviewer", "approved", "chain",
)  # fmt: skip


@dataclass(frozen=True)
class Exported:
    """The files that an export wrote.

    Attributes:
        policy: The policy file.
        audit: The file of the audit trail.
        approved: The keys of the approved changes, which the policy makes.
        changes: Number of changes that were reviewed.
        verdicts: Number of verdicts in the audit trail.
        policy_digest: Digest of the approved policy.
        audit_digest: SHA-256 of the audit trail's bytes.
    """

    policy: Path
    audit: Path
    approved: tuple[str, ...]
    changes: int
    verdicts: int
    policy_digest: str
    audit_digest: str

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry."""
        return {
            **vars(self),
            "policy": str(self.policy),
            "audit": str(self.audit),
            "approved": list(self.approved),
        }

    def __str__(self) -> str:
        return (
            f"{len(self.approved):,} of {many(self.changes, 'change')} approved → {self.policy}\n"
            f"{many(self.verdicts, 'verdict')} → {self.audit}"
        )


def cell(value: Any) -> str:
    """The text, changed so that a spreadsheet does not take it for a formula."""
    return no_formula(str(value).replace("\r\n", "\n").replace("\r", "\n"))


def audit(verdicts: Sequence[Verdict], described: Described, needs: int) -> str:
    """The audit trail as CSV."""
    changes = {c.key: c for c in described.changes}
    state = statuses(verdicts, list(changes), needs)
    current = {v.id for s in state.values() for v in s.latest}
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(COLUMNS)
    for v in verdicts:
        c = changes[v.change]
        row = (
            v.id, v.time, v.reviewer, v.change, c.situation, c.usual, c.suggested, v.verdict,
            v.comment, v.narrowed, "yes" if v.id in current else "no",
            "yes" if state[v.change].approved else "no", v.chain,
        )  # fmt: skip
        writer.writerow([cell(x) for x in row])
    return out.getvalue()


def approved_policy(
    described: Described,
    approved: Sequence[Change],
    narrowed: Mapping[str, str] | None = None,
    **noted: Any,
) -> DeferringPolicy:
    """The policy with these changes only; `narrowed`: key of a change → its narrower rule."""
    facts = {"changes": len(approved), "of": len(described.changes), **noted}
    policy = described.policy.limited_to(approved, **facts)
    ruled = rules_of(policy)
    if ruled is None:
        return policy
    for change in approved:
        kept = read_kept((narrowed or {}).get(change.key, ""))
        if kept is not None and change.rule is not None:
            ruled = ruled.narrowed(change.rule.number, kept.conditions, kept.facts)
    return ruled


def write_approved(described: Described, verdicts: Verdicts, out: Path, needs: int = 1) -> Exported:
    """Write `out` and the audit trail beside it, both from the same verdicts.

    No verdict can be added meanwhile, and exports wait for each other, so the last one written
    holds the most verdicts.

    Raises:
        PolicyError: There is no verdict.
    """
    check_whole("needs", needs, 1)
    with verdicts.held() as recorded:
        if not recorded:
            raise nothing_judged(verdicts.path)
        return _write(recorded, described, out, needs)


def nothing_judged(path: Path) -> PolicyError:
    """The refusal to write the outcome of a review that did not take place."""
    return PolicyError(
        "nobody has judged a change of this policy, so there is nothing to write.",
        f"no verdict in {str(path)!r}",
        "Open the page with `dprl review` (without --export), and judge the changes there.",
    )


def _write(verdicts: Sequence[Verdict], described: Described, out: Path, needs: int) -> Exported:
    state = statuses(verdicts, [c.key for c in described.changes], needs)
    approved = [c for c in described.changes if state[c.key].approved]
    trail = audit(verdicts, described, needs).encode()
    digest = hashlib.sha256(trail).hexdigest()
    policy = approved_policy(
        described, approved, {c.key: state[c.key].narrowed for c in approved}, audit=digest,
        needs=needs, log=described.log_digest,
    )  # fmt: skip
    beside = out.with_name(f"{out.stem}-audit.csv")
    with together():
        with replacing(beside, private=True) as part:
            part.write_bytes(trail)
        policy.save(out)
    return Exported(
        out,
        beside,
        tuple(c.key for c in approved),
        len(described.changes),
        len(verdicts),
        policy.digest(),
        digest,
    )
