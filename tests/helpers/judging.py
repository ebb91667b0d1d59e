"""Verdicts on the changes of a policy file, as a reviewer would give them on the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import dprl
from dprl._core.inference import contrast
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


def by_moments(x, y, level=0.95):
    """The interval of two samples from their moments and their range, as learners know them."""
    low, high = min(x.min(), y.min()), max(x.max(), y.max())
    if low == high:
        return np.nan, np.nan
    sides = [(v - low) / (high - low) for v in (x, y)]
    facts = [(len(v), v.mean(), v.std(ddof=1) if len(v) > 1 else np.nan) for v in sides]
    ends = contrast(*facts[0], *facts[1], 0.0, 1.0, level)
    return (high - low) * ends[0], (high - low) * ends[1]
