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
from typing import TYPE_CHECKING, Any

from dprl._core.archive import Archive, Arrays
from dprl._core.optional import Registry
from dprl.errors import PolicyError

if TYPE_CHECKING:
    from dprl.policies.base import Stored


VERSION = 2
REQUIRED_KEYS = "DPRL_REQUIRE_SIGNED"
"""Environment variable: the public key of minisign that every policy must be signed with."""
LARGEST = 4 << 30
"""Bytes a policy file may unpack to; more is refused before anything is unpacked."""
ARCHIVE = Archive(
    "dprl-policy", VERSION, "policy", PolicyError,
    "Copy it again from where it was made, or fit the policy again.",
)  # fmt: skip

document, pack = ARCHIVE.document, ARCHIVE.pack

KINDS: Registry[type[Stored]] = Registry("dprl.policies", "kind of policy")
"""What a file calls a kind of policy → its class, which says what its file holds (`Stored`)."""


def kind_of(name: str) -> type[Stored] | None:
    """The class of a kind of policy, of dprl's or of a package; None where nobody knows it."""
    import dprl.policies.loading  # noqa: F401  (dprl's own kinds are declared when it is imported)

    return KINDS.find(name)


def fits(head: Mapping[str, Any]) -> str:
    """What is wrong with the arrays that a document announces; '' if its words can need them."""
    kind = kind_of(head["kind"])
    if kind is None:
        return f"it is of kind {head['kind']!r}, which this version cannot read"
    shapes = {name: spec.rpartition(" ")[2] for name, spec in kind.file_arrays().items()}
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
    key = os.environ.get(REQUIRED_KEYS, "").strip()
    if key:
        from dprl.policies.signature import LINE, PublicKey, verify

        if not LINE.fullmatch(key) and not os.path.isabs(key):
            raise PolicyError(
                f"{REQUIRED_KEYS} must be a key, or the whole path of its file.",
                repr(key),
                "A file in the folder in which a command runs may be anybody's.",
            )
        try:
            content = io.BytesIO(source.read_bytes())
        except OSError as error:
            raise ARCHIVE.broken(source.name, str(error)) from error
        verify(source, PublicKey.read(key), content.getvalue())
    version, kind, words, arrays = ARCHIVE.unpack(content, source.name, LARGEST, fits)
    home = kind_of(kind)
    if home is not None:
        for older in range(version, VERSION):
            home.migrate(older, words, arrays)
    return kind, words, arrays
