"""Labels: very many labels as a few arrays, so that nobody makes a Python object for each of them.

A log of ten million patients has ten million labels. As a tuple of text they take more memory than
all rows, and every look at them takes seconds. `Labels` holds them as Arrow does: whole numbers in
one array, text as bytes of UTF-8 that lie one after the other. To those who read them they are a
sequence like the tuple, and equal to it.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Ints

MANY = 100_000
"""From so many labels on, arrays and compiled loops pay for the time it takes to load them."""
AT_ONCE = 1 << 16
"""Labels that are written or decoded at a time."""


class Labels(Sequence[Any]):
    """Labels of one kind, whole numbers or text; immutable.

    Args:
        numbers: int64 (L,), the labels where they are whole numbers, else None.
        ends: int64 (L + 1,), where the bytes of each label begin and end; None for numbers.
        data: uint8, the bytes of all labels, as UTF-8; None for numbers.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        numbers: Ints | None,
        ends: Ints | None = None,
        data: NDArray[np.uint8] | None = None,
    ) -> None:
        self._numbers = numbers
        self.ends = np.zeros(1, np.int64) if ends is None else ends
        self.data = np.zeros(0, np.uint8) if data is None else data
        for array in (self._numbers, self.ends, self.data):
            if array is not None:
                array.setflags(write=False)

    @classmethod
    def of(cls, labels: Sequence[Any]) -> Labels | None:
        """The same labels as arrays; None where they are not all text, or all whole numbers."""
        if isinstance(labels, Labels):
            return labels
        kinds = set(map(type, labels))
        if kinds == {int} and min(labels) >= -(2**63) and max(labels) < 2**63:
            return cls(np.array(labels, np.int64))
        if kinds != {str}:
            return None
        words = [label.encode("utf-8", "surrogatepass") for label in labels]
        ends = np.zeros(len(words) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, words), np.int64, len(words)), out=ends[1:])
        return cls(None, ends, np.frombuffer(b"".join(words), np.uint8))

    @property
    def numbers(self) -> Ints:
        """int64 (L,), the labels where they are whole numbers, else int64 (0,)."""
        return np.zeros(0, np.int64) if self._numbers is None else self._numbers

    def __len__(self) -> int:
        return len(self.ends) - 1 if self._numbers is None else len(self._numbers)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return tuple(self.at(np.arange(len(self))[place]))
        if self._numbers is not None:
            return int(self._numbers[place])
        place = range(len(self))[place]
        word = self.data[self.ends[place] : self.ends[place + 1]]
        return word.tobytes().decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[Any]:
        for first in range(0, len(self), AT_ONCE):
            if self._numbers is not None:
                yield from self._numbers[first : first + AT_ONCE].tolist()
                continue
            ends = self.ends[first : first + AT_ONCE + 1].tolist()
            words = self.data[ends[0] : ends[-1]].tobytes()
            for a, b in itertools.pairwise(ends):
                yield words[a - ends[0] : b - ends[0]].decode("utf-8", "surrogatepass")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Labels):
            return all(
                np.array_equal(a, b)
                for a, b in (
                    (self.numbers, other.numbers), (self.ends, other.ends), (self.data, other.data),
                )
            )  # fmt: skip
        same = isinstance(other, tuple) and len(other) == len(self)
        return same and tuple(self) == other

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        plain = self.numbers if self._numbers is not None else np.array(tuple(self), object)
        return np.array(plain, dtype, copy=True if self._numbers is None else copy)

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self[:3]))}, … {len(self):,} labels)"

    def at(self, places: NDArray[Any]) -> Labels:
        """The labels at some places, in their order."""
        if self._numbers is not None:
            return Labels(self._numbers[places])
        from dprl._core.letters import take_words

        ends = np.zeros(len(places) + 1, np.int64)
        size = int((self.ends[1:][places] - self.ends[:-1][places]).sum())
        data = np.empty(size, np.uint8)
        take_words(self.ends, self.data, places, ends, data)
        return Labels(None, ends, data)

    @functools.cached_property
    def rising(self) -> bool:
        """Whether they are sorted, and none is there twice."""
        if self._numbers is not None:
            return bool((self._numbers[1:] > self._numbers[:-1]).all())
        from dprl._core.letters import words_rise

        return words_rise(self.ends, self.data)

    @property
    def is_text(self) -> bool:
        """Whether they are text."""
        return self._numbers is None

    @functools.cached_property
    def ascii(self) -> bool:
        """Whether all letters are of ASCII (also those of numbers)."""
        return not bool((self.data > 127).any())

    def tidied(self) -> Labels | None:
        """The whole numbers of labels of text if all are written as whole numbers.

        The labels themselves where none has a point or an exponent; None where one may have.
        """
        from dprl._core.letters import pointed, whole_numbers

        numbers = np.empty(len(self), np.int64)
        if whole_numbers(self.ends, self.data, np.zeros(0, bool), True, numbers) < 0:
            return Labels(numbers)
        return None if pointed(self.ends, self.data) else self

    @property
    def numbers_differ(self) -> bool:
        """Whether no two labels are text of one whole number, such as "7" and "007"."""
        kinds, values = self.meanings()
        values = np.sort(values[kinds > 0]) if (kinds == 2).any() else values[:0]
        return self.ascii and not bool((values[1:] == values[:-1]).any())

    def meanings(self) -> tuple[NDArray[np.uint8], Ints]:
        """uint8 (L,), what text of ASCII means, and int64 (L,), the number where it is one.

        0 is a word, 1 a whole number, 2 one that is not written as programs do ("007", " 7").
        """
        from dprl._core.letters import numbers_of

        kinds, values = np.zeros(len(self), np.uint8), np.zeros(len(self), np.int64)
        numbers_of(self.ends, self.data, values, kinds)
        return kinds, values

    def order(self) -> Ints:
        """int64 (L,), the places of the labels when they are sorted."""
        if self._numbers is not None:
            return np.argsort(self._numbers, kind="stable")
        from dprl._core.letters import sort_keys

        order = np.arange(len(self))
        at, run, depth = order.copy(), np.zeros(len(self), np.int64), 0
        while len(at):  # the places that are not decided yet, and which of them began alike
            keys = np.empty(len(at), np.uint64)
            sort_keys(self.ends, self.data, order[at], depth, keys)
            by_key = np.lexsort((keys, run)) if depth else np.argsort(keys, kind="stable")
            keys, run = keys[by_key], run[by_key]
            order[at] = order[at][by_key]
            new = np.r_[True, (keys[1:] != keys[:-1]) | (run[1:] != run[:-1])]
            run = np.cumsum(new)
            alike = (np.bincount(run)[run] > 1) & (keys & np.uint64(255) == 8)
            at, run, depth = at[alike], run[alike], depth + 7
        return order

    def as_json(self) -> Iterator[bytes]:
        """`json.dumps` of a list of them, part by part."""
        if self._numbers is None and self.ascii:
            from dprl._core.letters import escape

            longest = int(np.diff(self.ends[::AT_ONCE]).max(initial=0))
            longest = max(longest, int(self.ends[-1] - self.ends[(len(self) // AT_ONCE) * AT_ONCE]))
            out = np.empty(6 * longest + 4 * AT_ONCE, np.uint8)
            yield b"["
            for first in range(0, len(self), AT_ONCE):
                last = min(first + AT_ONCE, len(self))
                size = escape(self.ends, self.data, first, last, out)
                yield out[: size - 2 * (last == len(self))].tobytes()
            yield b"]"
            return
        between = b"["
        for first in range(0, len(self), AT_ONCE):
            yield between + json.dumps(self[first : first + AT_ONCE])[1:-1].encode()
            between = b", "
        yield b"]" if len(self) else b"[]"


def labels_at(labels: Sequence[Any], places: NDArray[Any]) -> Any:
    """Some of some labels, in the order of their places: arrays of arrays, a tuple of a tuple."""
    if isinstance(labels, Labels):
        return labels.at(places)
    return tuple(labels[i] for i in places.tolist())


def few_as_tuple(labels: Labels, many: bool = True) -> Any:
    """Labels as they are where they are many and there may be many, else as a tuple."""
    return labels if many and len(labels) >= MANY else tuple(labels)


class Words:
    """What codes a column of text as its rows come, by the order in which words came first."""

    def __init__(self, rows: int = 0) -> None:
        self.known = 0
        self.ends = np.zeros(rows + 1, np.int64)  # pages that nobody writes to take no memory
        self.data = np.empty(1 << 16, np.uint8)
        self.hashes, self.codes = np.zeros(0, np.uint32), np.zeros(0, np.int32)

    def add(
        self,
        ends: NDArray[Any],
        data: NDArray[np.uint8],
        missing: Bools | None,
        codes: NDArray[np.int32],
    ) -> None:
        """Code further rows: written to `codes`, -1 where a word is missing or empty."""
        from dprl._core import letters

        gone, first = np.zeros(0, bool) if missing is None else missing, 0
        while first < len(codes):
            last = min(first + AT_ONCE, len(codes))
            size = int(self.ends[self.known] + ends[last] - ends[first])
            if size > len(self.data):
                self.data.resize(size + size // 4, refcheck=False)
            most = self.known + last - first
            if most >= len(self.ends):
                self.ends.resize(most + most // 4 + 1, refcheck=False)
            if len(self.codes) and 3 * most > 2 * len(self.codes):
                self._more_slots(most)
            self.known, done = letters.code_words(
                ends[first : last + 1], data, gone[first:last], codes[first:last], self.known,
                self.ends, self.data, self.hashes, self.codes,
            )  # fmt: skip
            first += done
            if first < last:
                self._more_slots(most)

    def _more_slots(self, words: int) -> None:
        """Make room in the slots for so many words."""
        from dprl._core.letters import FREE, fill_slots

        room = 1 << max(4, (3 * words // 2).bit_length())
        hashes, codes = np.zeros(room, np.uint32), np.full(room, FREE, np.int32)
        fill_slots(self.ends, self.data, self.known, self.hashes, self.codes, hashes, codes)
        self.hashes, self.codes = hashes, codes

    def labels(self) -> Labels:
        """The words, in the order in which they came first; nothing can be added any more."""
        del self.hashes, self.codes
        ends = self.ends[: self.known + 1]
        self.data.resize(int(ends[-1]), refcheck=False)
        return Labels(None, ends.copy() if 2 * len(ends) < len(self.ends) else ends, self.data)
