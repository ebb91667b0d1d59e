"""Exact sums of floats: digits of base 2^32 on a grid that is the same for every sum.

A float64 is ±M·2^x with M < 2^53. Digit k of it is the part in 2^(32k) .. 2^(32k + 31): at most
three digits differ from 0, and which ones depends on the float alone, never on what else is added.
A sum keeps its digits apart, each in an int64 that only grows (fewer than 2^30 summands of less
than 2^32 each), and carries are settled when it is read (see `dprl._core.exact`). So

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

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dprl._core.arrays import Bools, Exponents, Floats, Ints
from dprl._core.compiled import bit, compiled

Int: TypeAlias = Any
"""A whole number; `np.int64(1)` where a kernel calls another: for 1 it would be compiled anew."""

# --- Exact sums of floats: digits of base 2^32 on a grid that is the same for every sum

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
def top_of(bits: Int) -> Int:  # pragma: no cover - compiled
    """The exponent of the highest bit of a float given by its bits; NOTHING for 0."""
    if bits & 0x7FFFFFFFFFFFFFFF == 0:
        return NOTHING
    exponent = (bits >> 52) & 0x7FF
    return exponent - 1023 if exponent else -1022


@compiled
def lowest_bit(bits: Int) -> Int:  # pragma: no cover - compiled
    """The exponent of the lowest bit of a float that is not 0."""
    exponent = (bits >> 52) & 0x7FF
    M = bits & FRACTION
    if exponent == 0:
        return -1074 + bit(np.uint64(M))
    return exponent - 1075 + bit(np.uint64(M | HIDDEN))


@compiled
def _add(
    words: Ints, cell: Int, begin: Int, K: Int, top: Int, M: Int, x: Int, sign: Int
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
    words: Ints, cell: Int, top: Int, sums: Int, squares: Int, bits: Int
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
    sign, one = np.int64(-1 if bits < 0 else 1), np.int64(1)
    _add(words, cell, one, sums, np.int64(top >> 5), M, x, sign)
    if squares:
        a, b = M >> 27, M & HALF
        cross = 2 * a * b
        low = b * b + ((cross & HALF) << 27)
        high = a * a + (cross >> 27) + (low >> 54)
        low &= (1 << 54) - 1
        begin, upper = COUNT + 1 + sums, (2 * top + 1) >> 5
        _add(words, cell, begin, squares, upper, low, 2 * x, one)
        _add(words, cell, begin, squares, upper, high, 2 * x + 54, one)


@compiled
def raise_window(
    words: Ints, cell: Int, sums: Int, old: Int, top: Int
) -> None:  # pragma: no cover - compiled
    """Move the window of words[cell] from `old` up to `top`: digits below it are dropped."""
    if old == NOTHING:
        return
    begin, squares = np.int64(COUNT + 1), words.shape[1] - 1 - sums
    _move(words, cell, begin, sums, (top >> 5) - (old >> 5))
    _move(words, cell, begin + sums, squares, ((2 * top + 1) >> 5) - ((2 * old + 1) >> 5))


@compiled
def _move(
    words: Ints, cell: Int, begin: Int, K: Int, by: Int
) -> None:  # pragma: no cover - compiled
    if by:
        for j in range(K - 1, -1, -1):
            words[cell, begin + j] = words[cell, begin + j - by] if j >= by else 0


@compiled
def add_window(
    words: Ints, cell: Int, top: Int, sums: Int, source: Ints, origin: Int, below: Int, sign: Int
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
    bits: Ints, top: Int, sums: Int, squares: Int, words: Ints
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


# --- Reading exact sums: means, standard deviations and comparisons, rounded once
#
# Carries are settled, and n·Σx² - (Σx)² is computed with whole numbers: if no digit was dropped,
# mean and standard deviation are those of exact arithmetic. If digits were dropped, it is known how
# far off a sum can be; a mean or standard deviation that could be wrong by more than 2^-40 or 2^-30
# of itself is reported as *lost* (NaN), never as 0.


@compiled
def _settle(
    words: Ints, cell: Int, begin: Int, K: Int, out: Ints, at: Int
) -> int:  # pragma: no cover - compiled
    """Settle the carries of K digits into out[at : at + K + 1], all >= 0; returns the sign."""
    carry = np.int64(0)
    for j in range(K - 1, -1, -1):
        value = words[cell, begin + j] + carry
        out[at + 1 + j] = value & MASK
        carry = value >> 32
    out[at] = carry
    sign = 1
    if carry < 0:
        sign = -1
        borrow = np.int64(1)
        for j in range(K, 0, -1):
            value = (~out[at + j] & MASK) + borrow
            out[at + j] = value & MASK
            borrow = value >> 32
        out[at] = ~out[at] + borrow
    for j in range(K + 1):
        if out[at + j]:
            return sign
    return 0


@compiled
def _divide(
    digits: Ints, at: Int, length: Int, more: Int, by: Int
) -> int:  # pragma: no cover - compiled
    """Divide digits[at : at + length + more] by `by` < 2^31 in place; returns the remainder."""
    rest = np.int64(0)
    for j in range(at, at + length + more):
        value = (rest << 32) | (digits[j] if j < at + length else 0)
        digits[j] = value // by
        rest = value % by
    return int(rest)


@compiled
def _leading(
    digits: Ints, at: Int, length: Int, rest: Int
) -> tuple[int, int]:  # pragma: no cover - compiled
    """The number as m·2^e in units of its last digit.

    m has 62 bits; its last bit is set if anything follows.
    """
    for i in range(at, at + length):
        if digits[i]:
            break
    first = digits[i]
    size = np.int64(0)
    while first >> size:
        size += 1
    one = digits[i + 1] if i + 1 < at + length else 0
    two = digits[i + 2] if i + 2 < at + length else 0
    more = 62 - size
    if more < 32:
        m = (first << more) | (one >> (32 - more))
        odd = (one & ((np.int64(1) << (32 - more)) - 1)) | two
    else:
        last = 32 - (more - 32)
        m = (first << more) | (one << (more - 32)) | (two >> last)
        odd = two & ((np.int64(1) << last) - 1)
    odd |= rest
    for j in range(i + 3, at + length):
        odd |= digits[j]
    if odd:
        m |= 1
    return m, int(32 * (at + length - 1 - i) - more)


@compiled
def _mean(
    digits: Ints, at: Int, length: Int, unit: Int, n: Int
) -> float:  # pragma: no cover - compiled
    """digits[at : at + length] / n, rounded once; the last digit weighs 2^(32·unit).

    Three more places of `digits` must be free behind it.
    """
    rest = _divide(digits, at, length, np.int64(3), n)
    m, e = _leading(digits, at, length + 3, np.int64(rest))
    return math.ldexp(float(m), int(e + 32 * (unit - 3)))


@compiled
def _log2(digits: Ints, at: Int, length: Int, unit: Int) -> float:  # pragma: no cover - compiled
    """The binary logarithm of a number whose last digit weighs 2^(32·unit); -inf for 0."""
    for i in range(at, at + length):
        if digits[i]:
            m, e = _leading(digits, at, length, np.int64(0))
            return float(math.log2(float(m)) + e + 32 * unit)
    return -math.inf


@compiled
def _spread(
    words: Ints, cell: Int, sums: Int, unit: Int, unit_q: Int, digits: Ints, at: Int, wide: Int
) -> bool:  # pragma: no cover - compiled
    """Write n·Σx² - (Σx)² to digits[at : at + wide]; returns whether it is below 0.

    digits[: sums + 1] hold |Σx|; the last digit written weighs 2^(32·min(2·unit, unit_q)).
    """
    squares = words.shape[1] - 1 - sums
    n, low, end = words[cell, COUNT], 2 * unit if 2 * unit < unit_q else unit_q, at + wide - 1
    for j in range(at, end + 1):
        digits[j] = 0
    _settle(words, cell, 1 + sums, squares, digits, end + 1)
    k = end - (unit_q - low)
    for j in range(squares + 1):
        value = digits[end + 1 + squares - j] * n
        digits[k - j] += value & MASK
        digits[k - j - 1] += value >> 32
    k = end - (2 * unit - low)
    for i in range(sums + 1):
        for j in range(sums + 1):
            product = np.uint64(digits[sums - i]) * np.uint64(digits[sums - j])
            digits[k - i - j] -= np.int64(product & np.uint64(MASK))
            digits[k - i - j - 1] -= np.int64(product >> np.uint64(32))
    carry = np.int64(0)
    for j in range(end, at - 1, -1):
        value = digits[j] + carry
        digits[j] = value & MASK
        carry = value >> 32
    return bool(carry < 0)


@compiled
def _read(
    words: Ints, cell: Int, top: Int, bottom: Int, sums: Int, digits: Ints, out: Floats
) -> bool:  # pragma: no cover - compiled
    """Write mean and deviation of words[cell] to out[cell]; returns whether precision was lost."""
    squares = words.shape[1] - 1 - sums
    n = words[cell, COUNT]
    out[cell, 0] = out[cell, 1] = math.nan
    if n == 0:
        return False
    if top == NOTHING:
        out[cell, 0] = 0.0
        out[cell, 1] = 0.0 if n > 1 else math.nan
        return False
    zero = np.int64(0)
    unit, unit_q = (top >> 5) - sums + 1, ((2 * top + 1) >> 5) - squares + 1
    dropped, dropped_q = (bottom >> 5) < unit, ((2 * bottom) >> 5) < unit_q
    sign = _settle(words, cell, zero + 1, sums, digits, zero)
    blur, blur_q = -math.inf, -math.inf  # logarithms of what may be missing
    if dropped or dropped_q:
        log_n, size = math.log2(float(n)), _log2(digits, zero, sums + 1, unit)
        if dropped:
            blur = log_n + 32 * unit
            blur_q = 2 + log_n + (size if size > blur else blur) + 32 * unit
            if size < blur + 40:
                return True
        if dropped_q:
            other = 2 * log_n + 32 * unit_q
            blur_q = 1 + (blur_q if blur_q > other else other)
    if n > 1:
        low, at = 2 * unit if 2 * unit < unit_q else unit_q, sums + 5
        wide, other_wide = 2 * (unit + sums) + 2, unit_q + squares + 2
        wide = (wide if wide > other_wide else other_wide) - low + 1
        negative = _spread(words, cell, sums, unit, unit_q, digits, at, wide)
        size = _log2(digits, at, wide, low)
        if negative or size < blur_q + 30:
            return True
        if size == -math.inf:
            out[cell, 1] = 0.0
        else:
            m, e = _leading(digits, at, wide, zero)
            f, e = float(m), e + 32 * low
            if e & 1:
                f, e = 2 * f, e - 1
            out[cell, 1] = math.ldexp(math.sqrt(f / (float(n) * float(n - 1))), int(e >> 1))
    out[cell, 0] = sign * _mean(digits, zero, sums + 1, unit, n) if sign else 0.0
    return False


@compiled
def moments(
    words: Ints, top: Exponents, bottom: Exponents, sums: Int, out: Floats, lost: Bools
) -> None:  # pragma: no cover - compiled
    """Mean and sample standard deviation of accumulators words (cells, W): out (cells, 2).

    NaN if there is no summand, or only one for the deviation. Both are NaN and lost (cells,) is
    true if dropped digits could matter.
    """
    digits = np.zeros(8 * (words.shape[1] + 8), np.int64)
    for cell in range(len(words)):
        lost[cell] = _read(words, cell, top[cell], bottom[cell], sums, digits, out)


@compiled
def means_of_sums(words: Ints, top: Exponents, out: Floats) -> None:  # pragma: no cover - compiled
    """The means of sums without squares, words (cells, 1 + SUMS): out (cells,), rounded once.

    NaN if there is no summand, or one that is not finite (`top` above 1023).
    """
    digits = np.zeros(SUMS + 4, np.int64)
    for cell in range(len(words)):
        n = words[cell, COUNT]
        if n == 0 or top[cell] > 1023:
            out[cell] = math.nan
            continue
        out[cell] = 0.0
        if top[cell] != NOTHING:
            zero, sums = np.int64(0), np.int64(SUMS)
            sign = _settle(words, cell, zero + 1, sums, digits, zero)
            if sign:
                unit = (top[cell] >> 5) - sums + 1
                out[cell] = sign * _mean(digits, zero, sums + 1, unit, n)


@compiled
def not_below(
    words: Ints, cell: Int, top: Int, other: Ints, origin: Int, below: Int, sums: Int, room: Ints
) -> bool:  # pragma: no cover - compiled
    """Whether the mean of words[cell] is at least that of other[origin], by integers alone.

    top, below: where their windows begin. room (2, W) is working memory.
    """
    zero, highest = np.int64(0), np.int64(top if top > below else below)
    if highest == NOTHING:
        return True
    for j in range(room.shape[1]):
        room[0, j] = room[1, j] = 0
    add_window(room, zero, highest, sums, words, cell, top, zero + 1)
    add_window(room, zero + 1, highest, sums, other, origin, below, zero + 1)
    n, m = words[cell, COUNT], other[origin, COUNT]
    first, second = np.empty(sums + 1, np.int64), np.empty(sums + 1, np.int64)
    sign = _settle(room, zero, zero + 1, sums, first, zero)
    sign_2 = _settle(room, zero + 1, zero + 1, sums, second, zero)
    carry = np.int64(0)
    for j in range(sums, -1, -1):
        carry = (sign * first[j] * m - sign_2 * second[j] * n + carry) >> 32
    return bool(carry >= 0)
