"""What to do after a gate that certified nothing: how far the log is from it, and what to try."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from dprl._core.plural import form, many

__all__ = ["after_vacuous"]

ROUNDED = 2
"""Digits of a number of episodes that is only an order of magnitude."""


def after_vacuous(policy: Any, n_units: int, *, delta: float, grade: str, mode: str) -> list[str]:
    """What is said after a certificate that holds nothing, in lines.

    How many episodes it would take comes from the change that is surest in training: if its
    advantage and spread stay as they were seen, an interval shrinks with the root of the number of
    episodes, and has to leave out 0 with room for all changes that are tested (by the normal
    distribution). A split log certifies with half of its episodes. What is proved for samples of
    any size needs more, so the number is a least one.

    Args:
        policy: The policy that was gated.
        n_units: Number of groups (episodes) of the log.
        delta: Probability with which the claim may fail.
        grade: "proved" or "large-sample".
        mode: How the log was divided.
    """
    from dprl.policies._certificate_kinds import KINDS

    kind, lines = KINDS[mode], ["Next steps:"]
    table = policy.changes()
    rows = [row for row in table if _ends(row) is not None]
    if not len(table):
        lines.append("  - The policy changes nothing, so there is nothing to certify.")
        return lines
    hopeful = [row for row in rows if row["advantage"] > 0]
    if not kind.whole and rows and not hopeful:
        lines.append(
            "  - At first visits no change did better than usual practice in training: more "
            "episodes of this kind are not likely to certify one."
        )
    elif not kind.whole and hopeful:
        halves = 2 if kind.shared_level else 1
        need, best = min(
            ((_factor(row, len(table), delta), i) for i, row in enumerate(hopeful)),
            key=lambda pair: pair[0],
        )
        row = hopeful[best]
        needed = _rounded(need * halves * n_units)
        lines.append(_more(row, len(table), needed, n_units, grade))
    if grade == "proved":
        lines.append(
            "  - A narrower range of returns (--lowest, --highest), if rewards allow it; or "
            "--grade large-sample, which needs fewer episodes and is an approximation."
        )
    if len(table) > 1:
        lines.append(
            f"  - Fewer comparisons: {many(table, 'change')} share δ = {delta:g}. Merge states "
            "that are alike, or raise --n-min when fitting, without looking at returns."
        )
    lines.append(
        "  - Do not gate this log again with other settings until something passes: then δ does "
        "not hold. Choose the settings now, and gate episodes that are new."
    )
    return lines


def _more(row: Any, n_changes: int, needed: int, n_units: int, grade: str) -> str:
    """How many episodes the change of `row`, the surest of `n_changes`, would need."""
    where = row.get("state", row.get("where", "")) or "one of its regions"
    one = "its one change" if n_changes == 1 else "the surest change"
    if needed <= n_units:
        reason = (
            "its bounds hold for samples of any size, and first decisions alone are compared"
            if grade == "proved"
            else "it compares first decisions alone, and does not weigh them"
        )
        return (
            f"  - More episodes than the {n_units:,} of this log for {one} ({where}: "
            f"{row['suggested']}). How many cannot be told: its interval in training asks for "
            f"about {needed:,}, but the gate asks for more ({reason})."
        )
    at_least = "at least " if grade == "proved" else ""
    others = form(n_changes - 1, "change takes", "changes take") if n_changes > 1 else ""
    return (
        f"  - More episodes: for {one} ({where}: {row['suggested']}) it takes {at_least}about "
        f"{needed:,}, if what it brought stays as it was seen; this log has {n_units:,}."
        + (f" The other {others} more." if others else "")
    )


def _ends(row: Any) -> tuple[float, float] | None:
    """The ends of the interval of a change's advantage; None where there are none."""
    low, high = row.get("low"), row.get("high")
    if row.get("advantage") is None or low is None or high is None:
        return None
    return (low, high) if math.isfinite(low) and math.isfinite(high) and high > low else None


def _factor(row: Any, n_tested: int, delta: float) -> float:
    """How many times as many episodes it takes to tell the advantage of a change from 0."""
    from dprl._core.intervals import LEVEL  # which needs numpy

    low, high = _ends(row) or (0.0, 0.0)
    error = (high - low) / (2 * NormalDist().inv_cdf((1 + LEVEL) / 2))
    needed = NormalDist().inv_cdf(1 - delta / n_tested)
    return float((needed * error / row["advantage"]) ** 2)


def _rounded(n: float) -> int:
    """A number of episodes, rounded up to so many digits."""
    size = 10.0 ** max(math.floor(math.log10(max(n, 1.0))) + 1 - ROUNDED, 0)
    return math.ceil(n / size) * round(size)
