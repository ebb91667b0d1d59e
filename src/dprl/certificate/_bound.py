"""Bound: a lower bound on what a policy gains, beside the bound that needs no data."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bound"]


@dataclass(frozen=True)
class Bound:
    """A lower bound on ρ(π) - ρ(b), with the bound that needs no data beside it.

    ρ(π) is the value of the policy and ρ(b) the value of usual practice (the behaviour), both in
    units of returns.

    Attributes:
        name: Name of the theorem, for example "DPRL Theorem 1".
        value: The bound, in units of returns; minus infinity where nothing is claimed.
        trivial: -(v_max - v_min), the bound that holds for any two policies.
        delta: Probability with which the bound may fail.
        note: Where the bound was published, and what it leaves open.

    Example:
        >>> bound = Bound("an example", -0.2, -1.0, 0.05, "made by hand")
        >>> bound.vacuous
        False
        >>> print(bound)
        an example: ρ(π) - ρ(b) >= -0.2 with probability 0.95 (the trivial bound is -1)
          made by hand
    """

    name: str
    value: float
    trivial: float
    delta: float
    note: str

    @property
    def vacuous(self) -> bool:
        """Whether the bound says no more than the trivial bound.

        Returns:
            True where `value` is not above `trivial`.

        Example:
            >>> Bound("an example", -1.5, -1.0, 0.05, "made by hand").vacuous
            True
        """
        return not self.value > self.trivial

    def __str__(self) -> str:
        word = "VACUOUS: " if self.vacuous else ""
        return (
            f"{self.name}: ρ(π) - ρ(b) >= {self.value:.4g} with probability "
            f"{1 - self.delta:.6g} ({word}the trivial bound is {self.trivial:.4g})\n  {self.note}"
        )
