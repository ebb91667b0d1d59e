r"""Exact sums of floats: digits of base 2^32 on a grid that is the same for every sum.

A float64 is ±M·2^x with M < 2^53. Digit k of it is the part in 2^(32k) .. 2^(32k + 31): at most
three digits differ from 0, and which ones depends on the float alone, never on what else is added.
A sum keeps its digits apart, each in an int64 that only grows (fewer than 2^30 summands of less
than 2^32 each), and carries are settled when it is read (see `dprl._core.exact_moments`). So

* adding is adding integers: no rounding, and no order, chunk, thread or tree of merges can show;
* a sum keeps the digits of a *window*: the K largest, counted down from its own largest summand.
  Raising a window by a larger summand drops digits below it, and they are the digits a sum over
  everything would not have had either, so merging parts gives the bits of the whole;
* every sum has a window of its own: one huge return in one place costs no other place a digit.

Squares go the same way, M² in two halves of less than 2^54. A window is described by two numbers:
`top`, the exponent of the highest bit of any summand, and `bottom`, that of the lowest. Where
`bottom` lies inside the window, nothing was dropped.

(Carry-free binned sums: Demmel and Nguyen, *Parallel Reproducible Summation*, 2015; the grid and
the windows here are integers.)
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import bit, compiled

__all__ = [
    "COUNT", "LIMIT", "MASK", "NOTHING", "SQUARES", "SUMS", "Window", "add_float", "add_window",
    "digits_of", "lowest_bit", "top_of", "window_of",
]  # fmt: skip

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Exponents: TypeAlias = NDArray[np.int16]

COUNT = 0
"""The word that holds the count; the digits of the sum follow, then those of the squares."""
SUMS, SQUARES = 4, 5
"""The digits kept of a sum and of squares: 97 and 129 bits below the largest summand."""
LIMIT = 1 << 30
"""An accumulator must hold fewer summands than this."""
NOTHING = -20_000
"""`top` of a sum whose summands are all 0."""

MASK = (1 << 32) - 1
FRACTION = (1 << 52) - 1
HIDDEN = 1 << 52
HALF = (1 << 27) - 1


@compiled
def top_of(bits: int) -> int:  # pragma: no cover - compiled
    """The exponent of the highest bit of a float given by its bits; NOTHING for 0."""
    if bits & 0x7FFFFFFFFFFFFFFF == 0:
        return NOTHING
    exponent = (bits >> 52) & 0x7FF
    return exponent - 1023 if exponent else -1022


@compiled
def lowest_bit(bits: int) -> int:  # pragma: no cover - compiled
    """The exponent of the lowest bit of a float that is not 0."""
    exponent = (bits >> 52) & 0x7FF
    M = bits & FRACTION
    if exponent == 0:
        return -1074 + bit(np.uint64(M))
    return exponent - 1075 + bit(np.uint64(M | HIDDEN))


@compiled
def _add(
    words: Ints, cell: int, begin: int, K: int, top: int, M: int, x: int, sign: int
) -> None:  # pragma: no cover - compiled
    """Add sign·M·2^x, 0 <= M < 2^54, to the digits words[cell, begin : begin + K].

    The first of them is digit number `top`; digits below the last one are dropped.
    """
    shift = x & 31
    place = top - (x >> 5)
    rest = M >> (32 - shift)
    if 0 <= place < K:
        words[cell, begin + place] += sign * ((M << shift) & MASK)
    if 0 < place <= K:
        words[cell, begin + place - 1] += sign * (rest & MASK)
    if 1 < place <= K + 1:
        words[cell, begin + place - 2] += sign * (rest >> 32)


@compiled
def add_float(
    words: Ints, cell: int, top: int, sums: int, squares: int, bits: int
) -> None:  # pragma: no cover - compiled
    """Add a float, given by its bits, and its square to the window of words[cell].

    top: the exponent of the highest bit of any summand of this window.
    sums, squares: the number of digits kept of each; 0 squares for a sum alone.
    """
    exponent = (bits >> 52) & 0x7FF
    M = bits & FRACTION
    x = -1074
    if exponent:
        M |= HIDDEN
        x = exponent - 1075
    if M == 0:
        return
    _add(words, cell, COUNT + 1, sums, top >> 5, M, x, -1 if bits < 0 else 1)
    if squares:
        a, b = M >> 27, M & HALF
        cross = 2 * a * b
        low = b * b + ((cross & HALF) << 27)
        high = a * a + (cross >> 27) + (low >> 54)
        low &= (1 << 54) - 1
        begin, upper = COUNT + 1 + sums, (2 * top + 1) >> 5
        _add(words, cell, begin, squares, upper, low, 2 * x, 1)
        _add(words, cell, begin, squares, upper, high, 2 * x + 54, 1)


@compiled
def add_window(
    words: Ints, cell: int, top: int, sums: int, source: Ints, origin: int, below: int, sign: int
) -> None:  # pragma: no cover - compiled
    """Add source[origin], whose window begins at `below` <= top, to words[cell], or subtract it."""
    squares = words.shape[1] - 1 - sums
    words[cell, COUNT] += sign * source[origin, COUNT]
    if below == NOTHING:
        return
    moved = (top >> 5) - (below >> 5)
    for j in range(sums - moved):
        words[cell, 1 + j + moved] += sign * source[origin, 1 + j]
    moved = ((2 * top + 1) >> 5) - ((2 * below + 1) >> 5)
    for j in range(squares - moved):
        words[cell, 1 + sums + j + moved] += sign * source[origin, 1 + sums + j]


@compiled
def _fill_digits(
    bits: Ints, top: int, sums: int, squares: int, words: Ints
) -> None:  # pragma: no cover - compiled
    for i in range(len(bits)):
        add_float(words, i, top, sums, squares, bits[i])


@compiled
def _extremes(bits: Ints) -> tuple[int, int]:  # pragma: no cover - compiled
    top, bottom = NOTHING, 30_000
    for i in range(len(bits)):
        highest = top_of(bits[i])
        if highest != NOTHING:
            top, bottom = max(top, highest), min(bottom, lowest_bit(bits[i]))
    return top, bottom


class Window(NamedTuple):
    """Which digits are kept in sums that may hold any of some floats.

    Attributes:
        top: The exponent of the highest bit of any of them.
        bottom: The exponent of the lowest bit of any of them.
        sums: The number of digits kept of a sum.
        squares: The number of digits kept of a sum of squares.
    """

    top: int
    bottom: int
    sums: int
    squares: int

    @property
    def width(self) -> int:
        """The number of words of an accumulator."""
        return 1 + self.sums + self.squares


def window_of(values: Floats, most: int) -> Window:
    """The window that holds every digit of these floats: at most `most` digits, 2·most of squares.

    If that is not enough, the lowest digits are dropped; whether this matters is found when a sum
    is read.
    """
    top, bottom = _extremes(np.ascontiguousarray(values).view(np.int64))
    if top == NOTHING:
        return Window(top, bottom, 1, 1)
    sums = (top >> 5) - (bottom >> 5) + 1
    squares = ((2 * top + 1) >> 5) - ((2 * bottom) >> 5) + 1
    return Window(int(top), int(bottom), min(sums, most), min(squares, 2 * most))


def digits_of(values: Floats, window: Window) -> Ints:
    """int64 (N, sums + squares): the digits of every float and of its square."""
    words = np.zeros((len(values), window.width), np.int64)
    bits = np.ascontiguousarray(values).view(np.int64)
    _fill_digits(bits, window.top, window.sums, window.squares, words)
    return np.ascontiguousarray(words[:, 1:])
