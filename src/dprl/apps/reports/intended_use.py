"""What people say about the use of a policy: the question, for whom, by whom, what for and not.

No log holds it. `dprl report` reads it from the table [intended-use] of dprl.toml; a report to a
standard shows it, and marks as *to fill in* what nobody said.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from dprl.errors import ParameterError

TABLE = "intended-use"
"""Name of the table in dprl.toml."""

ASKED = (
    "setting", "users", "not-for", "contact",
    "background", "question", "rationale",
    "data-sources", "eligibility", "strategies", "assignment", "time-zero", "outcome", "estimand",
    "assumptions", "analysis",
    "flow", "missing-data", "interpretation", "limitations",
    "ethics", "registration", "data-access", "funding", "conflicts",
)  # fmt: skip
"""The keys of the table: first those about the use, then those of the study, in their order."""

CARD = ".model-card.json"
"""How the name of the model card ends, where no other is given: review.model-card.json."""

LONGEST, MOST = 4_000, 20_000
"""Largest number of characters of one answer, and of all of them."""


def check_use(use: Mapping[str, str] | None, where: str = "") -> dict[str, str]:
    """The answers that were given, by key; refused where a key is unknown or an answer is no text.

    Args:
        use: Key → answer; None for none. An empty answer counts as not given.
        where: Where they were written, for the message. Default: the argument `use`.

    Raises:
        ParameterError: A key is none of ASKED, or an answer is not text.
    """
    if use is None:
        return {}
    place = where or "use="
    if not isinstance(use, Mapping):
        raise ParameterError(
            f"{place} must name each answer; got {type(use).__name__}.",
            do="Write it as key and text, such as question = 'Should drug A be given first?'.",
        )
    answers = {}
    for key, text in use.items():
        if key not in ASKED:
            near = difflib.get_close_matches(str(key), ASKED, 1, 0.5)
            raise ParameterError(
                f"{place} has {key!r}, which is no key of the intended use.",
                f"keys are {', '.join(ASKED)}",
                f"Write {near[0]!r} if that is meant, or leave it out."
                if near
                else "Use one of them, or leave it out.",
            )
        if not isinstance(text, str) or len(text) > LONGEST:
            got = f"{len(text):,} characters" if isinstance(text, str) else type(text).__name__
            raise ParameterError(
                f"{key!r} must be a text of at most {LONGEST:,} characters; got {got}.",
                place,
                "Write it in a few sentences, in quotes.",
            )
        if text.strip():
            answers[key] = text.strip()
    total = sum(map(len, answers.values()))
    if total > MOST:
        longest = max(answers, key=lambda key: len(answers[key]))
        raise ParameterError(
            f"the answers have {total:,} characters; at most {MOST:,} fit on a report.",
            f"{longest!r} has {len(answers[longest]):,}",
            "Write them shorter, and refer to a protocol for the rest.",
        )
    return answers


def card_beside(report: Path) -> Path:
    """The file of the model card beside a report; each report has a card of its own."""
    return report.with_name(report.stem + CARD)
