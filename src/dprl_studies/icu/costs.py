"""What treatment costs, and the return of a stay in which it does.

Without costs, giving everybody a bolus and a vasopressor is nearly as good in the simulation as
treating each patient by the cause: what a patient does not need harms a little, and nothing else
speaks against it. `Costs` are a price for every hour of treatment, in units of the reward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_number, wrong

__all__ = ["Costs", "check_costs"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Costs:
    """What an hour of treatment costs: it is subtracted from the reward of the hour.

    The numbers are a choice, not a measurement. With the default costs an hour of the highest
    levels of both costs .24, where an hour at a pressure of 55 mmHg loses .15 of the reward.

    Attributes:
        bolus: Cost per level of bolus, in units of the reward; at least 0. Default 0.05.
        vasopressor: Cost per level of vasopressor and hour, in units of the reward; at least 0.
            Default 0.03.

    Raises:
        ParameterError: A cost is below 0 or not a number.

    Example:
        >>> costs = Costs()
        >>> costs.of(np.array([0, 6])).tolist()  # nothing; bolus 1 and vasopressor 2
        [0.0, 0.11]
    """

    bolus: float = 0.05
    vasopressor: float = 0.03

    def __post_init__(self) -> None:
        for name in ("bolus", "vasopressor"):
            value = check_number(f"the cost of a {name}", getattr(self, name), "[0, infinity)")
            object.__setattr__(self, name, value)

    def of(self, action: Ints) -> Floats:
        """The costs of treatments.

        Args:
            action: int64, any shape: codes of `ACTIONS`, 4 times the level of bolus plus the level
                of vasopressor.

        Returns:
            float64, the same shape: what each costs.

        Example:
            >>> Costs(bolus=1.0, vasopressor=10.0).of(np.array([5, 11])).tolist()
            [11.0, 32.0]
        """
        return np.asarray(self.bolus * (action // 4) + self.vasopressor * (action % 4), np.float64)

    def __str__(self) -> str:
        return (
            f"{self.bolus:g} per level of bolus and {self.vasopressor:g} per level of vasopressor "
            "and hour"
        )


def check_costs(costs: object) -> None:
    """Refuse what is neither None nor `Costs`, such as a bare number.

    Raises:
        ParameterError: It is something else.
    """
    if costs is not None and not isinstance(costs, Costs):
        raise wrong("costs", "None or dprl.icu.Costs", costs, do="Such as costs=dprl.icu.Costs().")
