"""Whether people have reviewed a policy, and whether they approved it.

`dprl review --export` writes the approved policy and, beside it, the audit trail: every verdict
ever given, as CSV. The policy's provenance names the SHA-256 of that trail, and how many changes
were approved. So a trail belongs to one policy, and a policy to one trail. Whoever can write a
policy file could write this, too: who it comes from says its signature (`--require-signed`).
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprl.apps.serve.audit import check_ordinary
from dprl.errors import ParameterError, PolicyError
from dprl.policies._protocol import DeferringPolicy

__all__ = ["require_approved", "review_of"]

HOW = (
    "Name with --require-approved the audit trail that `dprl review --export` wrote beside the "
    "approved policy, such as approved-audit.csv."
)
LARGEST = 1 << 28


def review_of(policy: DeferringPolicy) -> dict[str, Any] | None:
    """What is on record of the review that a policy comes from; None where nobody reviewed it.

    Args:
        policy: A policy.

    Returns:
        `policy`, the digest of the policy that was reviewed, `changes` that were approved, `of` how
        many, `needs`, the number of reviewers who had to agree, and `audit`, the SHA-256 of the
        audit trail.
    """
    noted = policy.provenance.get("approved")
    if not isinstance(noted, Mapping) or not isinstance(noted.get("audit"), str):
        return None
    return {name: noted.get(name) for name in ("policy", "changes", "of", "needs", "audit")}


def require_approved(policy: DeferringPolicy, trail: str | os.PathLike[str]) -> None:
    """Refuse a policy that is not the outcome of a review with this audit trail.

    Args:
        policy: The policy.
        trail: The audit trail that was written beside it.

    Raises:
        ParameterError: The trail cannot be read, or is none.
        PolicyError: The policy was not reviewed, comes from another review, or nothing in it was
            approved.
    """
    digest = policy.digest()
    review = review_of(policy)
    if review is None:
        raise PolicyError(
            "nobody has approved this policy.",
            f"policy {digest[:12]}…: its provenance names no review",
            "Review it with `dprl review`, and serve the policy that its export writes.",
        )
    data = _trail(Path(trail))
    seen = hashlib.sha256(data).hexdigest()
    if seen != review["audit"]:
        raise PolicyError(
            "this policy comes from another review than the one that is required.",
            f"policy {digest[:12]}… names the audit trail {review['audit'][:12]}…, and "
            f"{str(trail)!r} has {seen[:12]}…",
            "Put the policy and the audit trail of the same export in place.",
        )
    rows = csv.DictReader(io.StringIO(data.decode(), newline=""))
    approved = {row.get("change") for row in rows if row.get("approved") == "yes"}
    if not approved or len(approved) != review["changes"]:
        raise PolicyError(
            f"the review approved {len(approved):,} changes, and this policy makes "
            f"{review['changes']}." if approved else "the review approved no change.",
            f"policy {digest[:12]}…, audit trail {str(trail)!r}",
            "Serve a policy of which reviewers approved something, as the export wrote it.",
        )  # fmt: skip


def _trail(path: Path) -> bytes:
    check_ordinary(path, "the audit trail", HOW)
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        lines = data.decode().splitlines()
    except OSError as error:
        raise ParameterError(
            f"the audit trail {str(path)!r} cannot be read: {error.strerror}.", do=HOW
        ) from error
    except UnicodeDecodeError:
        lines = []
    columns = next(csv.reader(lines[:1]), []) if lines and len(data) <= LARGEST else []
    if not {"change", "verdict", "approved", "chain"} <= set(columns):
        raise ParameterError(f"{str(path)!r} is no audit trail of a review.", do=HOW)
    return data
