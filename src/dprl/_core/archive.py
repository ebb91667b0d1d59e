"""A file of one JSON document and plain npy arrays in a zip. Reading one runs no code.

The document says what the file is, its format version, the kind of its content, everything that is
not an array, the dtype and shape of each array, and a SHA-256 over all of it. Equal content gives
equal bytes: no time stamps. Policies (`dprl.policies.base`) and evidence
(`dprl.evidence.sites.evidence`) are kept in such files.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats
from dprl._core.disk import replacing, shortage
from dprl._core.words import said_in, with_said
from dprl.errors import DprlError

LARGEST = 4 << 30
"""Bytes a file may unpack to; more is refused before anything is unpacked."""
SMALL = 64 << 20
"""Bytes of memory that any file may need, however small it is."""
RATIO = 250
"""A file may need this many times its own size, where that is more than SMALL."""
STORED_FROM = 50
"""Members that shrink more than this are stored as they are, if the file would break the rule."""
PER_VALUE = 64
"""About the bytes of memory that one value in the document takes when it is read."""
HUGE = 1e150
"""No number in a file may be larger: sums and squares of it would not be numbers any more."""
DEEPEST = 40
"""Levels of lists and mappings that the document may have."""
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
DTYPES = {"bool": "|b1", "int32": "<i4", "int64": "<i8", "float64": "<f8"}
RESERVED = ("format", "version", "kind", "arrays", "digest")
"""Words of the document that say what the file is, and not what it holds."""

Arrays = dict[str, NDArray[Any]]


def _digest(document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of a document (without its own digest) and its arrays."""
    words = {k: v for k, v in document.items() if k != "digest"}
    total = hashlib.sha256(json.dumps(words, sort_keys=True, ensure_ascii=True).encode())
    for name in sorted(arrays):
        total.update(name.encode())
        total.update(np.ascontiguousarray(arrays[name]).data)
    return total.hexdigest()


def need_of(text: bytes) -> int:
    """About the bytes of memory that a JSON document takes when it is read."""
    return len(text) + PER_VALUE * sum(text.count(sign) for sign in (b",", b"[", b"{"))


def strange(document: Any) -> str:
    """What no file of ours holds, in words: deep nesting, numbers beyond 64 bits; '' if nothing."""
    level = [document]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for value in level:
            inside = list(value.values()) if isinstance(value, dict) else value
            kinds = set(map(type, inside)) if isinstance(inside, list) else {type(value)}
            inside = inside if isinstance(inside, list) else [value]
            if int in kinds:
                whole = [n for n in inside if type(n) is int]
                if max(whole) >= 1 << 63 or min(whole) < -(1 << 63):
                    return "holds a whole number beyond 64 bits"
            if float in kinds and not all(abs(x) <= HUGE for x in inside if type(x) is float):
                return f"holds a number beyond {HUGE:g}"
            if list in kinds or dict in kinds:
                below += [x for x in inside if type(x) in (list, dict)]
        if not below:
            return ""
        level = below
    return f"is nested more than {DEEPEST} levels deep"


def _within(values: Floats) -> bool:
    """Whether all finite numbers are at most HUGE; NaN and infinities are the caller's to judge."""
    low, high = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
    if low >= -HUGE and high <= HUGE:
        return True
    finite = values[np.isfinite(values)]
    return not finite.size or bool(np.abs(finite).max() <= HUGE)


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def _length(z: zipfile.ZipFile) -> int:
    """Bytes of the archive itself, whatever its members say."""
    assert z.fp is not None
    place = z.fp.tell()
    end = z.fp.seek(0, os.SEEK_END)
    z.fp.seek(place)
    return end


@dataclass(frozen=True)
class Archive:
    """A format of files.

    Attributes:
        format: What the document calls the format.
        version: The newest version of the format; older ones are the caller's to migrate.
        noun: What the file holds, for messages: "policy".
        error: The class of errors about such files.
        again: What to do about a broken file, for messages.
    """

    format: str
    version: int
    noun: str
    error: type[DprlError]
    again: str

    @property
    def member(self) -> str:
        """The name of the JSON document in the zip."""
        return f"{self.noun}.json"

    def document(
        self, kind: str, words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> tuple[dict[str, Any], Arrays]:
        """The document with its digest, and the arrays in their portable dtypes."""
        portable = {
            name: np.ascontiguousarray(a, DTYPES[a.dtype.name])
            for name, a in sorted(arrays.items())
        }
        shapes = {n: {"dtype": a.dtype.str, "shape": list(a.shape)} for n, a in portable.items()}
        if sentence_data := said_in(
            words
        ):  # what its sentences know, so that pages can translate them
            words = {**words, "said": sentence_data}
        head = {"format": self.format, "version": self.version, "kind": kind, **words,
                "arrays": shapes}  # fmt: skip
        return {**head, "digest": _digest(head, portable)}, portable

    def pack(
        self,
        path: str | os.PathLike[str],
        kind: str,
        words: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
    ) -> None:
        """Write a file: wholly, or not at all."""
        head, portable = self.document(kind, words, arrays)
        target = Path(path)
        if not target.parent.is_dir() or target.is_dir():
            why = "it is a folder" if target.is_dir() else "its folder does not exist"
            raise self.error(
                f"cannot write {target.name!r}: {why}.",
                str(target),
                "Name a file in a folder that exists.",
            )
        with replacing(target) as part:
            self._write(part, head, portable)

    def to_bytes(
        self, kind: str, words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> bytes:
        """The bytes of the file, for a pipe."""
        buffer = io.BytesIO()
        self._write(buffer, *self.document(kind, words, arrays))
        return buffer.getvalue()

    def _write(self, target: Path | IO[bytes], head: dict[str, Any], portable: Arrays) -> None:
        """Write the zip. Where it would shrink so much that it looks like a bomb, shrink less."""
        text = json.dumps(head).encode()
        members = self._zip(target, text, portable, frozenset())
        need = need_of(text) + sum(info.file_size for info in members[1:])
        size = sum(info.compress_size for info in members)
        if need > max(SMALL, RATIO * size):
            if not isinstance(target, Path):
                target.seek(0)
                target.truncate()
            dense = (i.filename for i in members if i.file_size > STORED_FROM * i.compress_size)
            self._zip(target, text, portable, frozenset(dense))

    def _zip(
        self, target: Path | IO[bytes], text: bytes, portable: Arrays, stored: frozenset[str]
    ) -> list[zipfile.ZipInfo]:
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, True, 6) as z:

            def put(name: str, data: bytes) -> None:
                info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
                info.compress_type = zipfile.ZIP_STORED if name in stored else zipfile.ZIP_DEFLATED
                z.writestr(info, data)

            put(self.member, text)
            for name, a in portable.items():
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, a, allow_pickle=False)
                put(f"{name}.npy", buffer.getvalue())
            return z.infolist()

    def unpack(
        self,
        source: str | os.PathLike[str] | IO[bytes],
        name: str,
        largest: int = LARGEST,
        fits: Callable[[Mapping[str, Any]], str] = lambda head: "",
    ) -> tuple[int, str, dict[str, Any], Arrays]:
        """Version, kind, words and arrays of a file, or an error that says what is wrong with it.

        Whatever the bytes are, there is no other error than `self.error`.

        Args:
            source: The path, or an open stream that can seek.
            name: What messages call it.
            largest: Bytes that it may unpack to.
            fits: Says what is wrong with the arrays that a document announces, before any of them
                is read; '' if nothing is. Default: nothing is wrong.
        """
        try:
            with zipfile.ZipFile(source) as z:
                head = self._head(z, name, largest)
                wrong = fits(head)
                if wrong:
                    raise self.broken(name, wrong)
                arrays = {
                    array: self._array(z, array, spec, name)
                    for array, spec in head["arrays"].items()
                }
            digest = _digest(head, arrays)
        except DprlError:
            raise
        except MemoryError as error:
            lines = shortage(error, f"reading {name!r}")
            raise self.error(*(lines or ("there is not enough memory.",))) from error
        except Exception as error:  # zipfile and zlib raise whatever broken bytes lead them to
            why = next(iter(str(error).splitlines()), type(error).__name__)[:200]
            raise self.broken(name, f"it is not a whole zip archive ({why})") from error
        if digest != head.get("digest"):
            raise self.broken(name, "its content does not match its digest")
        words = {k: v for k, v in head.items() if k not in RESERVED}
        words = with_said(words, words.pop("said", None))
        return head["version"], head["kind"], words, arrays

    def broken(self, name: str, why: str) -> DprlError:
        """The error that a file cannot be used."""
        return self.error(f"{name!r} is not a usable {self.noun} file.", why, self.again)

    def _head(self, z: zipfile.ZipFile, name: str, largest: int) -> dict[str, Any]:
        members = z.namelist()
        if self.member not in members:
            raise self.broken(name, f"it holds no {self.member}")
        if len(set(members)) != len(members):
            raise self.broken(name, "it holds two members of one name")
        size = sum(info.file_size for info in z.infolist())
        words = z.getinfo(self.member)
        if size > largest or words.file_size > max(1 << 20, 100 * words.compress_size):
            raise self.broken(name, f"it would unpack to {size:,} bytes, which no {self.noun} does")
        if any(info.compress_type not in COMPRESSIONS for info in z.infolist()):
            raise self.broken(name, "it is compressed in a way dprl does not write")
        length = _length(z)
        if size > max(SMALL, RATIO * length):
            raise self.broken(
                name, f"{length:,} bytes would unpack to {size:,}, which no {self.noun} does"
            )
        text = z.read(self.member)
        need = need_of(text) + size - words.file_size
        if need > max(SMALL, RATIO * length):
            raise self.broken(
                name, f"{length:,} bytes would take {need:,} of memory, which no {self.noun} does"
            )
        try:
            head = json.loads(text, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise self.broken(name, f"{self.member} is not JSON ({error})") from error
        odd = strange(head)
        if odd:
            raise self.broken(name, f"{self.member} {odd}")
        if not isinstance(head, dict) or head.get("format") != self.format:
            raise self.broken(name, f"{self.member} does not say format {self.format!r}")
        version = head.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise self.broken(name, f"its format version is {version!r}")
        if version > self.version:
            raise self.error(
                f"{name!r} was written by a newer dprl: format {version}, this one reads "
                f"{self.version}.",
                f"made by {head.get('made_by', 'an unknown version')}",
                "Upgrade dprl to use it.",
            )
        if not isinstance(head.get("kind"), str) or not isinstance(head.get("arrays"), dict):
            raise self.broken(name, f"{self.member} names no kind or no arrays")
        expected = {self.member, *(f"{n}.npy" for n in head["arrays"])}
        if set(members) != expected:
            first = sorted(set(members) ^ expected)[0]
            raise self.broken(name, f"member {first!r} is missing or does not belong there")
        return head

    def _array(self, z: zipfile.ZipFile, array: str, spec: Any, name: str) -> NDArray[Any]:
        """One array, checked against what the document says before memory is taken for it."""
        try:
            plain, shape = spec["dtype"] in DTYPES.values(), tuple(spec["shape"])
        except (TypeError, KeyError):
            plain, shape = False, ()
        if not plain or not all(type(n) is int and n >= 0 for n in shape):
            raise self.broken(name, f"array {array!r} has no plain dtype and shape")
        dtype = np.dtype(spec["dtype"])
        size = dtype.itemsize
        for n in shape:
            size *= n
        if not size < z.getinfo(f"{array}.npy").file_size <= size + 4096:
            raise self.broken(name, f"array {array!r} has not the size its shape says")
        stream = io.BytesIO(z.read(f"{array}.npy"))
        try:
            if np.lib.format.read_magic(stream) != (1, 0):
                raise ValueError("npy version")
            header = np.lib.format.read_array_header_1_0(stream)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            raise self.broken(name, f"array {array!r} has a broken header") from error
        data = stream.read()
        if header != (shape, False, dtype) or len(data) != size:
            raise self.broken(name, f"array {array!r} is not what {self.member} says")
        values = np.frombuffer(data, dtype).reshape(shape)
        if dtype.kind == "f" and len(data) and not _within(values):
            raise self.broken(name, f"array {array!r} holds a number beyond {HUGE:g}")
        return values
