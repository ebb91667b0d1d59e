"""`dprl review`: changes described by a log, verdicts opened, a page served or an export."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprl._core.checks import check_whole
from dprl._core.disk import check_target, expand_paths
from dprl.apps._changes import Described, describe_changes
from dprl.apps.review.export import Exported, nothing_judged, write_approved
from dprl.apps.review.verdicts import Verdicts
from dprl.errors import ParameterError, PolicyError
from dprl.evaluation._evaluate import evaluate
from dprl.evaluation._subgroups import columns_by
from dprl.learners.held_out import HeldOut
from dprl.logs.log import Log
from dprl.policies._load import read_like
from dprl.policies._protocol import DeferringPolicy
from dprl.policies._rule_words import rules_of

if TYPE_CHECKING:
    from dprl.logs._files import Progress

__all__ = ["Review", "open_review"]


@dataclass(frozen=True)
class Review:
    """An open review: the changes, the verdicts so far, and where the approved policy goes.

    Attributes:
        described: The changes of the policy, described with the help of a log.
        verdicts: The reviewers' verdicts.
        out: File for the approved policy.
        needs: Number of reviewers who must agree on a change.
        half: The half of the training log that certified rules; None where rules cannot be
            narrowed.
        unread: Why they cannot, in words.
    """

    described: Described
    verdicts: Verdicts
    out: Path
    needs: int
    half: HeldOut | None = None
    unread: str = ""

    def export(self) -> Exported:
        """Write the approved policy and the audit trail."""
        return write_approved(self.described, self.verdicts, self.out, self.needs)

    def app(self, token: str, host: str, names: tuple[str, ...], cases: bool = False) -> Any:
        """The review page as an ASGI application; `cases` adds similar training episodes."""
        from dprl.apps.review.app import review_app

        return review_app(
            self.described, self.verdicts, self.out,
            token=token, needs=self.needs, host=host, names=names, cases=cases, half=self.half,
            unread=self.unread,
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
    training: list[str] | None = None,
    narrowing: bool = True,
    by: list[str] | None = None,
    exporting: bool = False,
) -> Review:
    """Open a review; everything is checked before anything is written.

    Rules can be narrowed where `training` names the log that the policy was fitted on, or `log` is
    that log; the scores are computed here, unless `narrowing` is False. `by` names columns that
    make subgroups, which need a log that the policy has not seen. With `exporting` there must be
    verdicts already.
    """
    check_whole("--needs", needs, 1)
    if not out.parent.is_dir() or out.is_dir() or out.resolve() == Path(path).resolve():
        raise ParameterError(
            f"the approved policy cannot be written to {str(out)!r}.",
            do="Name with --out a file in a folder that exists, and not the policy itself.",
        )
    file = Path(path).with_suffix(".review.sqlite") if verdicts is None else verdicts
    audit = out.with_name(out.stem + "-audit.csv")
    inputs = expand_paths(path, *log, *(training or ()))
    verdict_files = {
        file.resolve(),
        *(file.with_name(file.name + x).resolve() for x in ("-wal", "-shm")),
    }
    if {out.resolve(), audit.resolve()} & (inputs | verdict_files) or verdict_files & inputs:
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
    half, unread = None, ""
    if narrowing:
        half, unread = _half(policy, data, training, columns, progress)
    subgroups = None
    if by:
        subgroups = evaluate(policy, data, by=columns_by(by, data), progress=progress).subgroups
    progress("describing the changes", 0.0)
    described = replace(describe_changes(policy, data), subgroups=subgroups)
    keys = [c.key for c in described.changes]
    if exporting and not file.exists():
        raise nothing_judged(file)
    given = Verdicts(file, policy.digest(), keys, data.digest())
    return Review(described, given, out, needs, half, unread)


def _half(
    policy: DeferringPolicy,
    data: Log,
    training: list[str] | None,
    columns: Mapping[str, Any],
    progress: Progress,
) -> tuple[HeldOut | None, str]:
    """The half that certified rules, or why there is none to ask."""
    ruled = rules_of(policy)
    if ruled is None:
        if training:
            raise ParameterError(
                "--training is for narrowing rules, and this policy has none.", do="Leave it out."
            )
        return None, ""
    if training:
        read = read_like(policy, training, progress, **{**columns, "also": ()})
        return HeldOut.of(ruled, read, progress=progress), ""
    if policy.provenance.get("log") != data.digest():
        return None, "To narrow a rule, open this review with --training and the training log."
    try:
        return HeldOut.of(ruled, data, progress=progress), ""
    except PolicyError as error:
        return None, f"Rules cannot be narrowed here: {error.what}"
