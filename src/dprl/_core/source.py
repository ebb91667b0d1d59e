"""One digest of all the code of dprl: so two processes can tell whether they run the same."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

__all__ = ["source_digest"]


@functools.cache
def source_digest() -> str:
    """SHA-256 of the source of dprl and of the studies beside it: names and contents of modules."""
    home = Path(__file__).parent.parent
    total = hashlib.sha256()
    for path in sorted([*home.rglob("*.py"), *home.parent.glob("dprl_studies/**/*.py")]):
        total.update(path.relative_to(home.parent).as_posix().encode())
        total.update(path.read_bytes())
    return total.hexdigest()
