"""One of a thing, or several: the form of a word that its number asks for."""

from __future__ import annotations

from collections.abc import Sized

__all__ = ["form", "many"]


def form(n: int | Sized, one: str, other: str) -> str:
    """The word for one thing, or the word for another number of them.

    Args:
        n: The number, or the things themselves.
        one: The word for one: "was".
        other: The word for any other number: "were".

    Example:
        >>> form(1, "was", "were"), form(0, "was", "were"), form(["a", "b"], "was", "were")
        ('was', 'were', 'were')
    """
    return one if (len(n) if isinstance(n, Sized) else n) == 1 else other


def many(n: int | Sized, one: str, other: str = "") -> str:
    """A number and what it counts: "1 episode", "2,000 episodes".

    Args:
        n: The number, or the things themselves.
        one: What one of them is called; a plural that ends in s will do ("episodes").
        other: What several are called. Default "": the same with an s.

    Example:
        >>> many(1, "episode"), many(2000, "episodes"), many(0, "category", "categories")
        ('1 episode', '2,000 episodes', '0 categories')
    """
    n = len(n) if isinstance(n, Sized) else n
    one = one if other else one.removesuffix("s")
    return f"{n:,} {form(n, one, other or f'{one}s')}"
