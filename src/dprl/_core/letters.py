"""Hot loops over labels of text that lie one after the other: coding, sorting, numbers, hashes.

Words are bytes of UTF-8: word i is `data[ends[i] : ends[i + 1]]`. Their order by bytes is the order
of Python's text. Nothing here makes a Python object per word.
"""

# Apart: kernels, which import numba; `import dprl` does without

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Ints
from dprl._core.compiled import compiled

Bytes = NDArray[np.uint8]
Hashes = NDArray[np.uint64]

FREE = -1
"""What a slot holds that belongs to no word."""
LARGEST = np.uint64(1 << 63)


@compiled
def code_words(
    ends: NDArray[Any],
    data: Bytes,
    missing: Bools,
    codes: NDArray[np.int32],
    known: int,
    own_ends: Ints,
    own: Bytes,
    slot_hash: NDArray[np.uint32],
    slot_code: NDArray[np.int32],
) -> tuple[int, int]:
    """Code rows of text by the order in which words came first; new words are kept.

    As long as words rise from row to row, each is new or the one before, and no slot is needed.

    Args:
        ends: (n + 1,), where the word of each row begins and ends in `data`.
        data: uint8, the bytes of the rows.
        missing: bool (n,) or (0,), where a word is missing; none where it is empty.
        codes: int32 (n,), written; -1 where a word is missing or empty.
        known: The number of words that are kept already.
        own_ends: int64, where these end; written, with room for n more.
        own: uint8, their bytes; written, with room for those of `data`.
        slot_hash: uint32 (S,), the hash of the word of each slot; written.
        slot_code: int32 (S,), its code, FREE where there is none; written. S is a power of two and
            more than the words that can come; 0 as long as all words rose.

    Returns:
        The number of words that are kept now, and of rows that are done: less than n where S is 0
        and a word does not rise.
    """
    last = np.uint32(max(len(slot_code), 1) - 1)
    for i in range(len(codes)):
        first, size = np.int64(ends[i]), np.int64(ends[i + 1]) - np.int64(ends[i])
        if size == 0 or (len(missing) > 0 and missing[i]):
            codes[i] = -1
            continue
        if i > 0 and codes[i - 1] >= 0:  # as the row before, as ids mostly are
            before = own_ends[codes[i - 1]]
            if own_ends[codes[i - 1] + 1] - before == size:
                k = 0
                while k < size and own[before + k] == data[first + k]:
                    k += 1
                if k == size:
                    codes[i] = codes[i - 1]
                    continue
        code: Any = np.int32(FREE)
        if len(slot_code) == 0:
            start = own_ends[max(known - 1, 0)]
            other, k = own_ends[known] - start, 0
            while k < size and k < other and own[start + k] == data[first + k]:
                k += 1
            if k == size or (k < other and own[start + k] > data[first + k]):
                return known, i
        else:
            mixed = _hash_of(data, first, size)
            slot = mixed & last
            while slot_code[slot] != FREE:
                if slot_hash[slot] == mixed:
                    start = own_ends[slot_code[slot]]
                    if own_ends[slot_code[slot] + 1] - start == size:
                        k = 0
                        while k < size and own[start + k] == data[first + k]:
                            k += 1
                        if k == size:
                            code = slot_code[slot]
                            break
                slot = (slot + np.uint32(1)) & last
            if code == FREE:
                slot_hash[slot], slot_code[slot] = mixed, known
        if code == FREE:
            code = known
            for k in range(size):
                own[own_ends[known] + k] = data[first + k]
            own_ends[known + 1] = own_ends[known] + size
            known += 1
        codes[i] = code
    return known, len(codes)


@compiled
def _hash_of(data: Bytes, first: Any, size: Any) -> Any:
    """32 bits of a word."""
    mixed = np.uint64(size) * np.uint64(0x9E3779B97F4A7C15)
    for k in range(0, size, 8):
        word = np.uint64(0)
        for j in range(min(8, size - k)):
            word |= np.uint64(data[first + k + j]) << np.uint64(8 * j)
        mixed = (mixed ^ word) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0x94D049BB133111EB)
    return np.uint32(mixed >> np.uint64(32))


@compiled
def fill_slots(
    ends: Ints,
    data: Bytes,
    known: int,
    old_hash: NDArray[np.uint32],
    old_code: NDArray[np.int32],
    slot_hash: NDArray[np.uint32],
    slot_code: NDArray[np.int32],
) -> None:
    """Put the words that are kept into empty slots: from the old slots, where there are any."""
    last = np.uint32(len(slot_code) - 1)
    for i in range(len(old_code) if len(old_code) > 0 else known):
        if len(old_code) > 0:
            code, mixed = old_code[i], old_hash[i]
        else:
            code, mixed = np.int32(i), _hash_of(data, ends[i], ends[i + 1] - ends[i])
        if code == FREE:
            continue
        slot = mixed & last
        while slot_code[slot] != FREE:
            slot = (slot + np.uint32(1)) & last
        slot_hash[slot], slot_code[slot] = mixed, code


@compiled
def words_rise(ends: Ints, data: Bytes) -> bool:
    """Whether each word comes before the next, so that none is there twice."""
    for i in range(len(ends) - 2):
        a, b = ends[i], ends[i + 1]
        size, other = b - a, ends[i + 2] - b
        k = 0
        while k < size and k < other and data[a + k] == data[b + k]:
            k += 1
        if k == other or (k < size and data[a + k] > data[b + k]):
            return False
    return True


@compiled
def sort_keys(ends: Ints, data: Bytes, which: Ints, depth: int, keys: Hashes) -> None:
    """Write seven bytes of some words from a depth on, and how much is left of each, at most 8.

    Args:
        ends: int64 (L + 1,), where words begin and end.
        data: uint8, their bytes.
        which: int64 (k,), the words that are asked for.
        depth: The number of bytes before.
        keys: uint64 (k,), written: equal where words are, so far; 8 at the end: there is more.
    """
    for i in range(len(which)):
        first = ends[which[i]] + depth
        rest = max(ends[which[i] + 1] - first, 0)
        key = np.uint64(0)
        for j in range(7):
            key <<= np.uint64(8)
            if j < rest:
                key |= np.uint64(data[first + j])
        keys[i] = (key << np.uint64(8)) | np.uint64(min(rest, 8))


@compiled
def take_words(
    ends: Ints,
    data: Bytes,
    which: NDArray[Any],
    new_ends: Ints,
    new: Bytes,
) -> None:
    """Write some words one after the other; `new_ends` and `new` have the room they need."""
    at = np.int64(0)
    for i in range(len(which)):
        first, end = ends[which[i]], ends[which[i] + 1]
        for k in range(first, end):
            new[at] = data[k]
            at += 1
        new_ends[i + 1] = at


@compiled
def whole_numbers(
    ends: NDArray[Any],
    data: Bytes,
    missing: Bools,
    strict: bool,
    out: Ints,
) -> int:
    """Write the whole number of each word; the first word that is none, or -1.

    Args:
        ends: (n + 1,), where words begin and end.
        data: uint8, their bytes.
        missing: bool (n,) or (0,), where a word is missing: its number is 0.
        strict: Whether it must be written as programs do: no plus, no zero in front.
        out: int64 (n,), written.
    """
    for i in range(len(out)):
        out[i] = 0
        if len(missing) > 0 and missing[i]:
            continue
        first, end = np.int64(ends[i]), np.int64(ends[i + 1])
        sign: Any = first < end and (data[first] == 45 or (data[first] == 43 and not strict))
        start = first + np.int64(sign)
        if not 1 <= end - start <= 18:
            return i
        if strict and data[start] == 48 and (sign or end - start > 1):
            return i
        value = np.int64(0)
        for k in range(start, end):
            if not 48 <= data[k] <= 57:
                return i
            value = 10 * value + np.int64(data[k] - 48)
        out[i] = -value if data[first] == 45 else value
    return -1


@compiled
def pointed(ends: Ints, data: Bytes) -> bool:
    """Whether a word begins as numbers do and has a point or an exponent."""
    for i in range(len(ends) - 1):
        if ends[i] == ends[i + 1]:
            continue
        c = data[ends[i]]
        if 48 <= c <= 57 or 43 <= c <= 46:  # a comma, too
            for k in range(ends[i], ends[i + 1]):
                if data[k] == 46 or data[k] == 69 or data[k] == 101:
                    return True
    return False


@compiled
def _key_of(data: Bytes, first: Any, end: Any) -> tuple[Any, Any, Any, Any]:
    """`label_key` of a word of ASCII: what kind it is, its number, where its text begins and ends.

    The kind is 0 for text, 1 for a whole number, 2 for one that is written as no program does.
    """
    a, b = first, end
    while a < b and (9 <= data[a] <= 13 or 28 <= data[a] <= 32):
        a += 1
    while a < b and (9 <= data[b - 1] <= 13 or 28 <= data[b - 1] <= 32):
        b -= 1
    i = a
    if i < b and (data[i] == 43 or data[i] == 45):
        i += 1
    start = i
    value = np.uint64(0)
    large: Any = False
    while i < b and 48 <= data[i] <= 57:
        digit = np.uint64(data[i] - 48)
        large |= value > (LARGEST - digit) // np.uint64(10)
        value = np.uint64(10) * value + digit
        i += 1
    digits = i - start
    if i < b and data[i] == 46:
        i += 1
        while i < b and data[i] == 48:
            i += 1
    number: Any = 1 <= digits <= 40 and i == b and not large and value < LARGEST
    for k in range(first, a):  # separators of files and records are no space within numbers
        number &= not 28 <= data[k] <= 31
    for k in range(b, end):
        number &= not 28 <= data[k] <= 31
    if not number:
        return 0, np.int64(0), a, b
    odd: Any = a > first or b < end or i > start + digits or data[a] == 43
    odd |= data[start] == 48 and (digits > 1 or start > a)
    signed = -np.int64(value) if data[a] == 45 else np.int64(value)
    return (2 if odd else 1), signed, a, b


@compiled
def numbers_of(ends: Ints, data: Bytes, values: Ints, kinds: NDArray[np.uint8]) -> None:
    """Write the kind of each word and its number (`_key_of`)."""
    for i in range(len(kinds)):
        kinds[i], values[i], _, _ = _key_of(data, ends[i], ends[i + 1])


@compiled
def _scrambled(x: np.uint64) -> np.uint64:
    """The finaliser of SplitMix64."""
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def mix_in(hashes: Hashes, at: Ints, column: Hashes) -> None:  # pragma: no cover - compiled
    """Mix column (k,) into hashes[at], in place."""
    for i in range(len(at)):
        hashes[at[i]] = _scrambled(_scrambled(hashes[at[i]]) + column[i])


@compiled
def label_hashes(ends: Ints, data: Bytes, as_stored: bool, hashes: Hashes) -> None:
    """Write 64 bits per word of ASCII: whole numbers by value, other text by its letters.

    With `as_stored`, every word is text as it stands.
    """
    for i in range(len(hashes)):
        kind, value, a, b = 0, np.int64(0), ends[i], ends[i + 1]
        if not as_stored:
            kind, value, a, b = _key_of(data, ends[i], ends[i + 1])
        total = np.uint64(0)
        if kind:
            total = np.uint64(value)
        else:
            for k in range(a, b):
                if data[k]:
                    total = _scrambled(_scrambled(total) + np.uint64(data[k]))
        hashes[i] = _scrambled(total)


@compiled
def escape(ends: Ints, data: Bytes, first: int, last: int, out: Bytes) -> int:
    """Write words of ASCII as JSON does, with ", " after each; how many bytes that is.

    Args:
        ends: int64 (L + 1,), where words begin and end.
        data: uint8, their bytes.
        first: The first word that is written.
        last: The first after it that is not.
        out: uint8, written; 6 bytes for each letter and 4 for each word are enough.
    """
    at = 0
    for i in range(first, last):
        out[at] = 34
        at += 1
        for k in range(ends[i], ends[i + 1]):
            c = data[k]
            if 32 <= c <= 126:
                if c == 34 or c == 92:  # noqa: PLR1714  (a set would be made for every letter)
                    out[at] = 92
                    at += 1
                out[at] = c
                at += 1
            else:
                out[at] = 92
                short = 0
                if c == 8:
                    short = 98
                elif c == 9:
                    short = 116
                elif c == 10:
                    short = 110
                elif c == 12:
                    short = 102
                elif c == 13:
                    short = 114
                if short:
                    out[at + 1] = short
                    at += 2
                else:
                    out[at + 1], out[at + 2], out[at + 3] = 117, 48, 48
                    high, low = c >> 4, c & 15
                    out[at + 4] = 48 + high
                    out[at + 5] = 48 + low if low < 10 else 87 + low
                    at += 6
        out[at], out[at + 1], out[at + 2] = 34, 44, 32
        at += 3
    return at


# --- BLAKE2b with a key, 8 bytes long (RFC 7693): the marks by which groups are recognised

BEGINNING = np.array([
    0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
    0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
], np.uint64)  # fmt: skip
"""The vector with which BLAKE2b begins."""
ROUNDS = np.array([
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
])  # fmt: skip
"""Which word of the message comes where, in each of the twelve rounds."""


@compiled
def _mix(
    a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64, x: np.uint64, y: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """The mixing function G."""
    a = a + b + x
    d ^= a
    d = (d >> np.uint64(32)) | (d << np.uint64(32))
    c += d
    b ^= c
    b = (b >> np.uint64(24)) | (b << np.uint64(40))
    a = a + b + y
    d ^= a
    d = (d >> np.uint64(16)) | (d << np.uint64(48))
    c += d
    b ^= c
    b = (b >> np.uint64(63)) | (b << np.uint64(1))
    return a, b, c, d


@compiled
def compress(h: Hashes, m: Hashes, so_far: Any, last: bool) -> None:
    """The compression function F: `h` (8,) after the block `m` (16,) of `so_far` bytes in all."""
    p, q, r, s, t, u, v, w = h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]
    i, j, k, n = BEGINNING[0], BEGINNING[1], BEGINNING[2], BEGINNING[3]
    e, f, g, o = BEGINNING[4], BEGINNING[5], BEGINNING[6], BEGINNING[7]
    e ^= np.uint64(so_far)
    if last:
        g = ~g
    for turn in range(len(m) - 4):  # twelve, in words that let no compiler write them out
        z = ROUNDS[turn]
        p, t, i, e = _mix(p, t, i, e, m[z[0]], m[z[1]])
        q, u, j, f = _mix(q, u, j, f, m[z[2]], m[z[3]])
        r, v, k, g = _mix(r, v, k, g, m[z[4]], m[z[5]])
        s, w, n, o = _mix(s, w, n, o, m[z[6]], m[z[7]])
        p, u, k, o = _mix(p, u, k, o, m[z[8]], m[z[9]])
        q, v, n, e = _mix(q, v, n, e, m[z[10]], m[z[11]])
        r, w, i, f = _mix(r, w, i, f, m[z[12]], m[z[13]])
        s, t, j, g = _mix(s, t, j, g, m[z[14]], m[z[15]])
    h[0] ^= p ^ i
    h[1] ^= q ^ j
    h[2] ^= r ^ k
    h[3] ^= s ^ n
    h[4] ^= t ^ e
    h[5] ^= u ^ f
    h[6] ^= v ^ g
    h[7] ^= w ^ o


def keyed(key: bytes) -> Hashes:
    """uint64 (8,): what BLAKE2b of 8 bytes begins with once it has a key."""
    h = BEGINNING.copy()
    h[0] ^= np.uint64(0x01010000 ^ (len(key) << 8) ^ 8)
    compress(h, np.frombuffer(key.ljust(128, b"\0"), "<u8").astype(np.uint64), 128, False)
    return h


@compiled
def keyed_marks(
    ends: Ints,
    data: Bytes,
    numbers: Ints,
    content: Hashes,
    begun: Hashes,
    marks: Hashes,
) -> None:
    """Write BLAKE2b, of 8 bytes and keyed, of `label_key` as text, "|" and 8 bytes of content.

    Args:
        ends: int64 (G + 1,), where labels of ASCII begin and end; (1,) where they are numbers.
        data: uint8, their bytes.
        numbers: int64 (G,), the labels where they are numbers, else (0,).
        content: uint64 (G,), what stands behind them.
        begun: uint64 (8,), from `keyed`.
        marks: uint64 (G,), written; they sort as the digests do.
    """
    m, h = np.zeros(16, np.uint64), np.zeros(8, np.uint64)
    digits = np.empty(20, np.uint8)
    for i in range(len(marks)):
        kind, a, b = 1, np.int64(0), np.int64(0)
        if len(numbers) > 0:
            value = numbers[i]
        else:
            kind, value, a, b = _key_of(data, ends[i], ends[i + 1])
        start = 20
        if kind:
            rest = np.uint64(-value) if value < 0 else np.uint64(value)
            while rest > 0 or start == 20:
                start -= 1
                digits[start] = 48 + np.uint8(rest % np.uint64(10))
                rest //= np.uint64(10)
            if value < 0:
                start -= 1
                digits[start] = 45
        size = 20 - start if kind else b - a
        for k in range(8):
            h[k] = begun[k]
        for first in range(0, size + 9, 128):
            for k in range(16):
                m[k] = 0
            end = min(first + 128, size + 9)
            for k in range(first, end):
                if k == size:
                    c = np.uint64(124)
                elif k > size:
                    c = (content[i] >> np.uint64(8 * (k - size - 1))) & np.uint64(255)
                elif kind:
                    c = np.uint64(digits[start + k])
                else:
                    c = np.uint64(data[a + k])
                m[(k & 127) >> 3] |= c << np.uint64(8 * (k & 7))
            compress(h, m, np.int64(128 + end), end == size + 9)
        mark = np.uint64(0)
        for k in range(8):
            mark = (mark << np.uint64(8)) | ((h[0] >> np.uint64(8 * k)) & np.uint64(255))
        marks[i] = mark
