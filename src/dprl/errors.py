"""Errors in three lines: what is wrong, the first place, what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = [
    "BalanceWarning", "ClusterError", "CutWarning", "DprlError", "EvidenceError", "LabelWarning",
    "LogError", "MissingWarning", "PackageError", "ParameterError", "PlanError", "PolicyError",
    "PrecisionWarning", "StateWarning", "interruptible",
]  # fmt: skip


class DprlError(Exception):
    """Base class of every error that this package raises on purpose.

    Attributes:
        what: What is wrong, with numbers.
        where: The first place where it was seen, or an empty string.
        do: What the user can do about it, or an empty string.
        key: The message without its values, by which a program can tell errors apart; '' where the
            error has none.
        argument: The parameter that was refused, as Python names it; '' where it is none.
        values: The values in the message by name.

    Example:
        >>> import dprl
        >>> try:
        ...     dprl.DPRLDiscrete(n_min=0, gamma=1.0)
        ... except dprl.DprlError as error:
        ...     print(error.what)
        n_min must be a whole number of episodes, at least 1 (or infinity); got 0.
    """

    def __init__(self, what: str, where: str = "", do: str = "", *, argument: str = "") -> None:
        self.what, self.where, self.do, self.argument = what, where, do, argument
        self.key: str = getattr(what, "message", "")
        self.values: Mapping[str, Any] = getattr(what, "values", {})
        lines = [what, f"first: {where}" if where else "", do]
        super().__init__("\n  ".join(_one_line(line) for line in lines if line))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.where, self.do), {"argument": self.argument}


def _one_line(text: str) -> str:
    """A text on one line of reasonable length, whatever labels and names it quotes."""
    if not text.isprintable():
        text = "".join(
            ch if ch.isprintable() else ch.encode("unicode_escape").decode() for ch in text
        )
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


LONGEST = 1000
"""The most characters of a line of a message."""


class LogError(DprlError, ValueError):
    """The logged data cannot be used as they are."""


class PolicyError(DprlError, ValueError):
    """A policy, or the file that should hold one, cannot be used as it is."""


class EvidenceError(DprlError, ValueError):
    """Evidence of a site, or the file that should hold it, cannot be used as it is."""


class ParameterError(DprlError, ValueError):
    """A parameter is outside what it may be."""


class PackageError(ParameterError, ImportError):
    """What was asked for needs a package that is not installed."""


class PlanError(DprlError, RuntimeError):
    """A planner did not come to an end, or its equations have no solution.

    Attributes:
        stuck: Numbers of the places from which nothing ever ends; empty where it is not that.
    """

    stuck: Sequence[int] = ()

    def at(self, stuck: Sequence[int]) -> PlanError:
        """The same error, with the numbers of the places from which nothing ever ends."""
        self.stuck = stuck
        return self


class ClusterError(DprlError, RuntimeError):
    """A cluster cannot do the work: workers die, none is there, or its scheduler has gone."""


class BalanceWarning(UserWarning):
    """Those who took suggestions differ from the others in what the state leaves out."""


class CutWarning(UserWarning):
    """Some episodes were cut (observation stopped early) and had to be treated somehow."""


class LabelWarning(UserWarning):
    """Labels that look the same are written differently, and count as different labels."""


class MissingWarning(UserWarning):
    """Some episodes were left out because of missing values, as requested."""


class StateWarning(UserWarning):
    """A test refutes that the state tells all that matters for what comes next (models need it)."""


class PrecisionWarning(UserWarning):
    """Returns of one place differ so much in size that digits are lost; its numbers are NaN."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn DuckDB's RuntimeError after Ctrl-C, wherever it is raised, into a KeyboardInterrupt."""
    try:
        yield
    except RuntimeError as error:
        if type(error) is not RuntimeError or "interrupted" not in str(error):
            raise
        raise KeyboardInterrupt from error
