"""What a learner that asks how sure it is says of its suggestions, in columns and in words."""

from __future__ import annotations

from typing import Any

from dprl._core.intervals import LEVEL
from dprl.policies._decisions import Decisions
from dprl.policies._practice_words import compared_with

__all__ = ["sure_columns", "sure_note", "sure_words"]


def sure_columns(here: Decisions, rows: Any, actions: Any) -> dict[str, list[float]]:
    """The columns of a learner that asks how sure it is; none for others."""
    if here.estimates is None:
        return {}
    low, _ = here.estimates.interval(here.n, LEVEL)
    return {
        "sure_advantage": here.estimates.advantage[rows, actions].tolist(),
        "sure_se": here.estimates.se[rows, actions].tolist(),
        "sure_low": low[rows, actions].tolist(),
    }


def sure_note(here: Decisions) -> str:
    """How to read the columns of a learner that asks how sure it is."""
    return (
        f"sure_advantage: what the action brings over usual practice here, in {here.terms.sure};\n"
        f"sure_se its standard error, sure_low the lower end of its {100 * LEVEL:.0f} % interval "
        "(this row alone,\nnot corrected for having picked it). The highest sure_low comes first."
    )


def sure_words(here: Decisions, s: int, a: int) -> str:
    """What a learner that asks how sure it is says of a suggestion."""
    assert here.estimates is not None
    low, _ = here.estimates.interval(here.n, LEVEL)
    return (
        f"{here.actions[a]} was taken in {here.n[s, a]:,} {here.terms.counted} that came here; in "
        f"{here.terms.sure} it brings {here.estimates.advantage[s, a]:+.3f} over "
        f"{compared_with(here, s)} (standard error {here.estimates.se[s, a]:.3f}, "
        f"{100 * LEVEL:.0f} % lower end {low[s, a]:+.3f})"
    )
