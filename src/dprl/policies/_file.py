"""The policy file: a zip of one JSON document and plain npy arrays. Reading one runs no code.

``policy.json`` says what the file is, its format version, the kind of policy, everything that is
not an array, the dtype and shape of each array, and a SHA-256 over all of it. Equal content gives
equal bytes: no time stamps (see `dprl._core.archive`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.archive import Archive, Arrays
from dprl.errors import PolicyError

__all__ = ["VERSION", "document", "pack", "unpack"]

VERSION = 2
LARGEST = 4 << 30
"""Bytes a policy file may unpack to; more is refused before anything is unpacked."""
ARCHIVE = Archive(
    "dprl-policy", VERSION, "policy", PolicyError,
    "Copy it again from where it was made, or fit the policy again.",
)  # fmt: skip

document, pack = ARCHIVE.document, ARCHIVE.pack


def unpack(
    path: str | os.PathLike[str],
) -> tuple[str, dict[str, Any], Arrays]:
    """Kind, words and arrays of a policy file, or a PolicyError that says what is wrong with it."""
    source = Path(path)
    if not source.is_file():
        raise PolicyError(f"there is no policy file {str(path)!r}.", do="Check the path.")
    version, kind, words, arrays = ARCHIVE.unpack(source, source.name, LARGEST)
    for older in range(version, VERSION):
        MIGRATIONS[older](kind, words, arrays)
    return kind, words, arrays


def _deviations(kind: str, words: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """1 to 2: deviations in place of variances; the range of the returns was not kept."""
    for side in ("took", "others"):
        if f"{side}_variance" in arrays:
            arrays[f"{side}_sd"] = np.sqrt(arrays.pop(f"{side}_variance"))
    if kind in ("tabular", "cells") and "V" in arrays:
        for end in ("lowest", "highest"):
            arrays.setdefault(end, np.full(arrays["V"].shape, np.nan))


MIGRATIONS = {1: _deviations}
"""What turns the parts of a file of each format version into those of the next, in place."""
