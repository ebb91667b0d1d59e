"""`dprl review`: changes described by a log, verdicts opened, a page served or an export."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprl._core.disk import check_target, meant
from dprl.apps._changes import Described, describe_changes
from dprl.apps.review.export import Exported, write_approved
from dprl.apps.review.verdicts import Verdicts
from dprl.errors import ParameterError
from dprl.policies._load import read_like
from dprl.policies._protocol import DeferringPolicy

if TYPE_CHECKING:
    from dprl.logs._files import Progress

__all__ = ["Review", "open_review"]


@dataclass(frozen=True)
class Review:
    """A review that can go on: what is judged, what was said, where the outcome goes.

    Attributes:
        described: The changes.
        verdicts: What reviewers said.
        out: Where the approved policy goes.
        needs: Reviewers who must agree on a change.
    """

    described: Described
    verdicts: Verdicts
    out: Path
    needs: int

    def export(self) -> Exported:
        """Write the approved policy and the audit trail."""
        return write_approved(self.described, self.verdicts, self.out, self.needs)

    def app(self, token: str, host: str, names: tuple[str, ...], cases: bool = False) -> Any:
        """The page as an ASGI application; `cases` shows similar training episodes too."""
        from dprl.apps.review.app import review_app

        return review_app(
            self.described, self.verdicts, self.out,
            token=token, needs=self.needs, host=host, names=names, cases=cases,
        )  # fmt: skip


def open_review(
    policy: DeferringPolicy,
    path: str | os.PathLike[str],
    log: list[str],
    *,
    verdicts: Path | None,
    out: Path,
    needs: int,
    columns: Mapping[str, Any],
    progress: Progress,
) -> Review:
    """Everything `dprl review` needs, checked before anything is written."""
    if needs < 1:
        raise ParameterError(f"--needs must be at least 1 reviewer; got {needs}.")
    if not out.parent.is_dir() or out.is_dir() or out.resolve() == Path(path).resolve():
        raise ParameterError(
            f"the approved policy cannot be written to {str(out)!r}.",
            do="Name with --out a file in a folder that exists, and not the policy itself.",
        )
    file = Path(path).with_suffix(".review.sqlite") if verdicts is None else verdicts
    audit = out.with_name(out.stem + "-audit.csv")
    inputs = meant(path, *log)
    kept = {file.resolve(), *(file.with_name(file.name + x).resolve() for x in ("-wal", "-shm"))}
    if {out.resolve(), audit.resolve()} & (inputs | kept) or kept & inputs:
        raise ParameterError(
            "a file that is read or holds verdicts would be overwritten.",
            f"--out {str(out)!r}, its audit {audit.name!r}, --verdicts {str(file)!r}",
            "Name other files.",
        )
    check_target(out, audit)
    if file.exists() and not file.is_file():
        raise ParameterError(
            f"{str(file)!r} is no file that could hold verdicts.",
            do="Name another one with --verdicts.",
        )
    data = read_like(policy, log, progress, **columns)
    progress("describing the changes", 0.0)
    described = describe_changes(policy, data)
    keys = [c.key for c in described.changes]
    return Review(described, Verdicts(file, policy.digest(), keys, data.digest()), out, needs)
