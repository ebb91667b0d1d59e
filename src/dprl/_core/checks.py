"""Checks of the parameters of learners."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dprl.errors import ParameterError

__all__ = ["check_number"]


def check_number(name: str, value: object, where: str, inside: Callable[[float], bool]) -> None:
    """Refuse a value that is not a number, or not in the range that `where` describes."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (number and inside(float(value))):  # type: ignore[arg-type]
        raise ParameterError(f"{name} must lie in {where}; got {value!r}.")
