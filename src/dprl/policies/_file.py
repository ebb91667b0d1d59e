"""The policy file: a zip of one JSON document and plain npy arrays. Reading one runs no code.

``policy.json`` says what the file is, its format version, the kind of policy, everything that is
not an array, the dtype and shape of each array, and a SHA-256 over all of it. Equal content gives
equal bytes: no time stamps (see `dprl._core.archive`).
"""

from __future__ import annotations

import io
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
REQUIRED = "DPRL_REQUIRE_SIGNED"
"""Environment variable: the public key of minisign that every policy must be signed with."""
LARGEST = 4 << 30
"""Bytes a policy file may unpack to; more is refused before anything is unpacked."""
ARCHIVE = Archive(
    "dprl-policy", VERSION, "policy", PolicyError,
    "Copy it again from where it was made, or fit the policy again.",
)  # fmt: skip

document, pack = ARCHIVE.document, ARCHIVE.pack

PAIR = ("allowed", "n", "m", "Q", "took_mean", "took_sd", "took_variance", "others_mean",
        "others_sd", "others_variance", "planned")  # fmt: skip
ROW = ("choice", "steps", "V", "lowest", "highest")
TABLE = dict.fromkeys(PAIR, "SA") | dict.fromkeys(ROW, "S")
METRIC = {"scale": "d", "weight": "d"}
SHAPES: Mapping[str, Mapping[str, str]] = {
    "tabular": TABLE,
    "confident": {**TABLE, "advantage": "SA", "advantage_se": "SA"},
    "cells": {**TABLE, **METRIC, "z": "Sw"},
    "stochastic": {"pi": "SA"},
    "neighbors": {
        **METRIC, **dict.fromkeys(("action", "G", "worth", "episode", "menu"), "N"), "z": "Nw",
        "menus": "MA",
    },
    "network": {**METRIC, "centre": "w", "W1": "wH", "b1": "H", "W2": "HA", "b2": "A"},
    "rules": {},
}  # fmt: skip
"""The shape of each array of a kind of policy. S, A and d count states, actions and features in
the document; w is at most d and M at most N (but at least 1); equal letters are equal numbers."""


def fits(head: Mapping[str, Any]) -> str:
    """What is wrong with the arrays that a document announces; '' if its words can need them."""
    shapes = SHAPES.get(head["kind"])
    if shapes is None:
        return f"it is of kind {head['kind']!r}, which this version cannot read"
    size = {
        letter: len(head[name])
        for letter, name in (("S", "states"), ("A", "actions"), ("d", "feature_names"))
        if isinstance(head.get(name), list)
    }
    for name, spec in head["arrays"].items():
        shape = spec.get("shape") if isinstance(spec, Mapping) else None
        letters = shapes.get(name)
        if letters is None:
            return f"array {name!r} does not belong to a policy of kind {head['kind']!r}"
        if not isinstance(shape, list) or len(shape) != len(letters):
            return f"array {name!r} has another number of dimensions than it needs"
        for letter, n in zip(letters, shape, strict=True):
            if size.setdefault(letter, n) != n:
                return f"array {name!r} is {shape}, and its words need {letter} = {size[letter]!r}"
    for small, large in (("w", "d"), ("M", "N")):
        if size.get(small, 0) > max(size.get(large, 0), 1):
            return f"its arrays are larger than what it says can need ({small} > {large})"
    return ""


def unpack(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any], Arrays]:
    """Kind, words and arrays of a policy file, or a PolicyError that says what is wrong with it.

    Where the environment variable DPRL_REQUIRE_SIGNED holds a key, what is unpacked is exactly what
    was found to be signed with it.
    """
    source = Path(path)
    if not source.is_file():
        raise PolicyError(f"there is no policy file {str(path)!r}.", do="Check the path.")
    content: Path | io.BytesIO = source
    key = os.environ.get(REQUIRED, "").strip()
    if key:
        from dprl.policies._signature import PublicKey, verify

        try:
            content = io.BytesIO(source.read_bytes())
        except OSError as error:
            raise ARCHIVE.broken(source.name, str(error)) from error
        verify(source, PublicKey.read(key), content.getvalue())
    version, kind, words, arrays = ARCHIVE.unpack(content, source.name, LARGEST, fits)
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
