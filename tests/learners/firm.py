"""A learner with a kind of policy of its own, as another package would write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

import dprl
from dprl.learners import register


@dataclass(frozen=True, eq=False, repr=False)
class FirmPolicy(dprl.TablePolicy):
    """A policy over labels that also keeps how large the share of its suggestion was."""

    KIND: ClassVar[str] = "firm"
    ARRAYS: ClassVar[Mapping[str, str]] = {**dprl.TablePolicy.ARRAYS, "share": "float64 S"}

    share: NDArray[np.float64] = field(kw_only=True)

    @property
    def stated(self) -> tuple[str, ...]:
        """What it says of itself."""
        return (f"Its suggestions were taken in {np.nanmean(self.share):.0%} of first visits.",)

    def _contradiction(self) -> str:
        """Which of its numbers cannot be."""
        return "a share is above 1" if (self.share > 1).any() else super()._contradiction()


@dataclass(frozen=True, kw_only=True)
class Firm:
    """Suggests what DPRL suggests, where enough episodes did it.

    Attributes:
        gamma: Discount in (0, 1].
        n_min: Episodes an action needs. Default 20.
        least: Share of episodes that must have taken it, in [0, 1). Default 0.
        side: Which side of `least` counts: "above" (the default) or "below".
    """

    gamma: float
    n_min: float = 20
    least: float = 0.0
    side: Literal["above", "below"] = "above"

    def fit(self, log: dprl.Log) -> FirmPolicy:
        """The policy that a log supports."""
        plain = dprl.DPRLDiscrete(n_min=self.n_min, gamma=self.gamma).fit(log)
        parts: dict[str, Any] = {f.name: getattr(plain, f.name) for f in fields(plain)}
        rows = np.arange(len(plain.states))
        share = plain.m[rows, plain.choice] / np.maximum(plain.m.sum(axis=1), 1)
        share = np.where(plain.choice < 0, np.nan, share)
        keep = share >= self.least if self.side == "above" else share < self.least
        parts["choice"] = np.where(keep, plain.choice, -1).astype(np.int32)
        parts["parameters"] = {**plain.parameters, "learner": "Firm", "least": self.least}
        return FirmPolicy(**parts, share=share)


register("firm", labels=Firm)
