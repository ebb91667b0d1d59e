"""The policy file: a zip of one JSON document and plain npy arrays. Reading one runs no code.

``policy.json`` says what the file is, its format version, the kind of policy, everything that is
not an array, the dtype and shape of each array, and a SHA-256 over all of it. Equal content gives
equal bytes: no time stamps.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.disk import replacing
from dprl.errors import PolicyError

__all__ = ["VERSION", "document", "pack", "unpack"]

FORMAT, VERSION = "dprl-policy", 2
LARGEST = 4 << 30
"""Bytes a policy file may unpack to; more is refused before anything is unpacked."""
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
DTYPES = {"bool": "|b1", "int32": "<i4", "int64": "<i8", "float64": "<f8"}


Arrays = dict[str, NDArray[Any]]


def _digest(document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of a document (without its own digest) and its arrays."""
    words = {k: v for k, v in document.items() if k != "digest"}
    total = hashlib.sha256(json.dumps(words, sort_keys=True, ensure_ascii=True).encode())
    for name in sorted(arrays):
        total.update(name.encode())
        total.update(np.ascontiguousarray(arrays[name]).data)
    return total.hexdigest()


def document(
    kind: str, words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, Any], Arrays]:
    """What policy.json will say, its digest included, and the arrays in their portable dtypes."""
    portable = {
        name: np.ascontiguousarray(a, DTYPES[a.dtype.name]) for name, a in sorted(arrays.items())
    }
    shapes = {n: {"dtype": a.dtype.str, "shape": list(a.shape)} for n, a in portable.items()}
    head = {"format": FORMAT, "version": VERSION, "kind": kind, **words, "arrays": shapes}
    return {**head, "digest": _digest(head, portable)}, portable


def pack(
    path: str | os.PathLike[str],
    kind: str,
    words: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    """Write a policy file: wholly, or not at all."""
    head, portable = document(kind, words, arrays)
    target = Path(path)
    if not target.parent.is_dir() or target.is_dir():
        why = "it is a folder" if target.is_dir() else "its folder does not exist"
        raise PolicyError(
            f"cannot write {target.name!r}: {why}.",
            str(target),
            "Name a file in a folder that exists.",
        )
    with replacing(target) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, True, 6) as z:

        def put(name: str, data: bytes) -> None:
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(info, data)

        put("policy.json", json.dumps(head).encode())
        for name, a in portable.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, a, allow_pickle=False)
            put(f"{name}.npy", buffer.getvalue())


def unpack(
    path: str | os.PathLike[str],
) -> tuple[str, dict[str, Any], Arrays]:
    """Kind, words and arrays of a policy file, or a PolicyError that says what is wrong with it."""
    source = Path(path)
    if not source.is_file():
        raise PolicyError(f"there is no policy file {str(path)!r}.", do="Check the path.")
    try:
        with zipfile.ZipFile(source) as z:
            head = _head(z, source.name)
            arrays = {
                name: _array(z, name, spec, source.name) for name, spec in head["arrays"].items()
            }
    except PolicyError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise _broken(source.name, f"it is not a whole zip archive ({error})") from error
    if _digest(head, arrays) != head.get("digest"):
        raise _broken(source.name, "its content does not match its digest")
    words = {
        k: v for k, v in head.items() if k not in ("format", "version", "kind", "arrays", "digest")
    }
    for version in range(head["version"], VERSION):
        MIGRATIONS[version](head["kind"], words, arrays)
    return head["kind"], words, arrays


def _deviations(kind: str, words: dict[str, Any], arrays: Arrays) -> None:
    """1 to 2: deviations in place of variances; the range of the returns was not kept."""
    for side in ("took", "others"):
        if f"{side}_variance" in arrays:
            arrays[f"{side}_sd"] = np.sqrt(arrays.pop(f"{side}_variance"))
    if kind in ("tabular", "cells") and "V" in arrays:
        for end in ("lowest", "highest"):
            arrays.setdefault(end, np.full(arrays["V"].shape, np.nan))


MIGRATIONS = {1: _deviations}
"""What turns the parts of a file of each format version into those of the next, in place."""


def _broken(name: str, why: str) -> PolicyError:
    return PolicyError(
        f"{name!r} is not a usable policy file.",
        why,
        "Copy it again from where it was made, or fit the policy again.",
    )


def _head(z: zipfile.ZipFile, name: str) -> dict[str, Any]:
    members = z.namelist()
    if "policy.json" not in members:
        raise _broken(name, "it holds no policy.json")
    if len(set(members)) != len(members):
        raise _broken(name, "it holds two members of one name")
    size = sum(info.file_size for info in z.infolist())
    words = z.getinfo("policy.json")
    if size > LARGEST or words.file_size > max(1 << 20, 100 * words.compress_size):
        raise _broken(name, f"it would unpack to {size:,} bytes, which no policy does")
    if any(info.compress_type not in COMPRESSIONS for info in z.infolist()):
        raise _broken(name, "it is compressed in a way dprl does not write")
    try:
        head = json.loads(z.read("policy.json"))
    except (ValueError, RecursionError) as error:
        raise _broken(name, f"policy.json is not JSON ({error})") from error
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise _broken(name, f"policy.json does not say format {FORMAT!r}")
    version = head.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _broken(name, f"its format version is {version!r}")
    if version > VERSION:
        raise PolicyError(
            f"{name!r} was written by a newer dprl: format {version}, this one reads {VERSION}.",
            f"made by {head.get('made_by', 'an unknown version')}",
            "Upgrade dprl to use it.",
        )
    if not isinstance(head.get("kind"), str) or not isinstance(head.get("arrays"), dict):
        raise _broken(name, "policy.json names no kind or no arrays")
    expected = {"policy.json", *(f"{n}.npy" for n in head["arrays"])}
    if set(members) != expected:
        odd = sorted(set(members) ^ expected)[0]
        raise _broken(name, f"member {odd!r} is missing or does not belong there")
    return head


def _array(z: zipfile.ZipFile, array: str, spec: Any, name: str) -> NDArray[Any]:
    """One array, checked against what policy.json says before memory is taken for it."""
    try:
        plain, shape = spec["dtype"] in DTYPES.values(), tuple(spec["shape"])
    except (TypeError, KeyError):
        plain, shape = False, ()
    if not plain or not all(type(n) is int and n >= 0 for n in shape):
        raise _broken(name, f"array {array!r} has no plain dtype and shape")
    dtype = np.dtype(spec["dtype"])
    size = dtype.itemsize
    for n in shape:
        size *= n
    if not size < z.getinfo(f"{array}.npy").file_size <= size + 4096:
        raise _broken(name, f"array {array!r} has not the size its shape says")
    stream = io.BytesIO(z.read(f"{array}.npy"))
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("npy version")
        header = np.lib.format.read_array_header_1_0(stream)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise _broken(name, f"array {array!r} has a broken header") from error
    data = stream.read()
    if header != (shape, False, dtype) or len(data) != size:
        raise _broken(name, f"array {array!r} is not what policy.json says")
    return np.frombuffer(data, dtype).reshape(shape)
