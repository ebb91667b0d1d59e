"""Names for the types of arrays: what is in them; shapes stand in docstrings.

And what two kinds of arrays mean: short floats stand for decimals, and the counts (or shares) of
actions in a state for what is usually done there.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import say

Bools: TypeAlias = NDArray[np.bool_]
Codes: TypeAlias = NDArray[np.int32]
Exponents: TypeAlias = NDArray[np.int16]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Singles: TypeAlias = NDArray[np.float32]

# --- Numbers of 32 bits stand for decimals: 2.2 is not 2.2000000476837158, and is "at most 2.2"

DIGITS = {2: 4, 4: 7}
"""Bytes of a float → the digits of the decimals that it may stand for."""
TENS = 10.0 ** np.arange(23)
"""The powers of ten that a double holds exactly."""


def is_short(values: Any) -> bool:
    """Whether values are of a type of floats that is shorter than a double."""
    kind = getattr(values, "dtype", None)
    return isinstance(kind, np.dtype) and kind.kind == "f" and kind.itemsize in DIGITS


def doubles(values: Any, *, copy: bool = True) -> Floats:
    """Numbers as float64; shorter floats as the decimals that they were written as.

    A float of 32 bits becomes the decimal of six digits that it stands for, or else the one of
    seven; it stays what it is where there is none, and where it is a whole number.

    Args:
        values: Numbers of any shape.
        copy: Whether the result is always a new array. Default True.

    Example:
        >>> import numpy as np
        >>> doubles(np.array([2.2, 0.1, 3.0], np.float32)).tolist()
        [2.2, 0.1, 3.0]
    """
    array = np.asarray(values)
    wide: Floats = array.astype(np.float64, copy=copy)
    if not is_short(array):
        return wide
    with np.errstate(all="ignore"):
        part = np.isfinite(wide) & (wide != np.rint(wide))
        before = np.floor(np.log10(np.where(part, np.abs(wide), 1.0)))  # the point
        result = wide
        for digits in (DIGITS[array.dtype.itemsize], DIGITS[array.dtype.itemsize] - 1):
            places = np.maximum(digits - 1 - before, 0)
            ten = TENS[np.minimum(places, len(TENS) - 1).astype(np.int64)]
            short = np.where(part, np.rint(wide * ten) / ten, wide)
            for at in map(tuple, np.argwhere(places >= len(TENS))):
                short[at] = float(f"{wide[at]:.{digits}g}")
            result = np.where(short.astype(array.dtype) == array, short, result)
    return result


def one_double(value: Any) -> Any:
    """A float that is shorter than a double as the decimal it stands for; others as they are."""
    return float(doubles(value)) if is_short(value) else value


# --- What is usually done in a state: the action with at least half of the share, if there is one
#
# Where no action has half of the share there is no usual practice: *practice is divided*. What is
# suggested there is compared with all that was done there together, each action by its share (the
# mixture), and naming any action is a change, the most frequent one too.

DIVIDED = say("practice is divided")
"""What stands in the place of the usual action where there is none."""

ROUNDING = 1e-9


def is_divided(m: NDArray[Any]) -> NDArray[np.bool_]:
    """bool (k,): no action has half of the share; m (k, A) are counts, or shares.

    False where nothing was ever done.
    """
    total, most = m.sum(axis=1), m.max(axis=1, initial=0)
    return np.asarray((total > 0) & (2 * most < total * (1 - ROUNDING)))


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view of an array; the original array stays writable for its owner.

    Kernels are compiled for what may be written to and for what may not, so what they only read
    comes to them in one way.
    """
    view = array.view()
    view.setflags(write=False)
    return view


def unusual(m: NDArray[Any]) -> NDArray[np.bool_]:
    """bool (k, A): choosing the action would be a change; m (k, A) are counts, or shares.

    It is one unless the action is the single most frequent one and has half of the share.
    """
    most = m.max(axis=1, initial=0)[:, None]
    alone = ((m == most).sum(axis=1) == 1) & ~is_divided(m)
    return np.asarray((m < most) | ~alone[:, None])


def roundest(low: float, high: float) -> float:
    """The number with the fewest digits in [low, high), which a reader need not read twice."""
    for digits in range(1, 17):
        for at in (low, (low + high) / 2):
            rounded = float(f"{at:.{digits}g}")
            if low <= rounded < high:
                return rounded
    return float(low)
