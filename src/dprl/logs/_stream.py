"""One column of a query, batch by batch, as DuckDB computes it: nothing is held twice.

DuckDB hands over its rows through the Arrow C stream interface: a few C structures with pointers to
plain arrays. Reading them takes ctypes and numpy alone, no other package.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Batch", "StreamError", "batches"]

TYPES = {
    b"c": "i1", b"C": "u1", b"s": "i2", b"S": "u2", b"i": "i4", b"I": "u4", b"l": "i8", b"L": "u8",
    b"f": "f4", b"g": "f8", b"tsu:": "M8[us]",
}  # fmt: skip
"""Arrow's letters for the types that are read here → numpy's."""


class _Schema(ctypes.Structure):
    """What a column holds: `format` is its type."""


_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.POINTER(_Schema)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))),
    ("private_data", ctypes.c_void_p),
]


class _Array(ctypes.Structure):
    """Some rows: `buffers` of a column are the bits of present values, and the values."""


_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.POINTER(_Array)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))),
    ("private_data", ctypes.c_void_p),
]


class _Stream(ctypes.Structure):
    """Functions that give the schema, the next rows, and the words of an error."""


_Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.c_void_p)),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.c_void_p)),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(_Stream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Stream))),
    ("private_data", ctypes.c_void_p),
]


class StreamError(Exception):
    """DuckDB stopped in the middle of a query, and this is what it says."""


class Batch(NamedTuple):
    """Some rows of a column. Both arrays may be used until the next batch is asked for.

    Attributes:
        values: (k,) as DuckDB holds them; a missing value can be any number.
        missing: bool (k,), where values are missing; None where none is.
    """

    values: NDArray[Any]
    missing: NDArray[np.bool_] | None


def _stream_of(capsule: Any) -> _Stream:
    """The structure inside a capsule; it lives as long as the capsule does."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get(capsule, b"arrow_array_stream")
    return _Stream.from_address(address)


def batches(relation: Any) -> Iterator[Batch] | None:
    """The batches of a DuckDB relation of one column, in the order of its rows.

    Args:
        relation: The relation; its query runs while the batches are taken.

    Returns:
        The batches; None where the column is of a type, or DuckDB of a version, that is not read
        here.

    Raises:
        StreamError: While batches are taken, if DuckDB fails.
        MemoryError: If it fails for want of memory.
    """
    if not hasattr(relation, "__arrow_c_stream__"):
        return None
    capsule = relation.__arrow_c_stream__()
    stream = _stream_of(capsule)
    schema = _Schema()
    if stream.get_schema(ctypes.byref(stream), ctypes.addressof(schema)):
        raise _failure(stream)
    one = schema.n_children == 1
    letters = schema.children[0].contents.format if one else b""
    schema.release(ctypes.byref(schema))
    if letters not in TYPES:
        return None
    return _batches(capsule, stream, np.dtype(TYPES[letters]))


def _failure(stream: _Stream) -> Exception:
    """The error with what DuckDB says about it."""
    words = (stream.get_last_error(ctypes.byref(stream)) or b"").decode("utf-8", "replace")
    return MemoryError(words) if words.startswith("Out of Memory") else StreamError(words)


def _batches(capsule: Any, stream: _Stream, dtype: np.dtype[Any]) -> Iterator[Batch]:
    """The batches of a stream; `capsule` is kept until all are taken."""
    while True:
        rows = _Array()
        if stream.get_next(ctypes.byref(stream), ctypes.addressof(rows)):
            raise _failure(stream)
        if not rows.release:  # the end
            return
        try:
            if rows.length:
                yield _batch(rows, dtype)
        finally:
            rows.release(ctypes.byref(rows))


def _batch(rows: _Array, dtype: np.dtype[Any]) -> Batch:
    """The only column of these rows, without a copy."""
    column, n = rows.children[0].contents, rows.length
    first = rows.offset + column.offset
    values = _view(column.buffers[1], first + n, dtype)[first:]
    if column.null_count == 0 or not column.buffers[0]:
        return Batch(values, None)
    bits = _view(column.buffers[0], (first + n + 7) // 8, np.dtype(np.uint8))
    missing = np.unpackbits(bits, count=first + n, bitorder="little")[first:] == 0
    return Batch(values, missing if missing.any() else None)


def _view(address: int, n: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """`n` values of memory that belongs to DuckDB."""
    memory = (ctypes.c_char * (n * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(memory).cast("B"), dtype)
