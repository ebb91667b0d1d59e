"""Verdicts on the changes of a policy file, as a reviewer would give them on the page."""

from __future__ import annotations

from pathlib import Path

import dprl
from dprl.apps.reports.changes import describe_changes
from dprl.apps.review.verdicts import Verdicts
from dprl.policies.loading import read_like


def judge_first(policy, log, verdict="agree", **columns):
    """Store a verdict on the first change, where `dprl review` looks for it."""
    fitted = dprl.load(policy)
    seen = read_like(fitted, [str(log)], lambda *_: None, **columns)
    keys = [change.key for change in describe_changes(fitted, seen).changes]
    file = Path(policy).with_suffix(".review.sqlite")
    verdicts = Verdicts(file, fitted.digest(), keys, seen.digest())
    if keys:
        verdicts.add(keys[0], "Ann", verdict)
    return keys
