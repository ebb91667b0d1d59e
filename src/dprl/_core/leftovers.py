"""What a run that was killed has left in a folder: unfinished files, and sets to be completed.

The temporary name of a file says who writes it: the machine and the process. What no living
process owns is removed by the next run that writes into the folder. A set of files that was
complete when the run was killed (see `dprl._core.disk.together`) is put in its place instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import secrets
import time
from pathlib import Path

from dprl._core.steps import STEPS

__all__ = ["SET", "beside", "clean", "finish_sets"]

PART, OLD, SET = "part", "old", "set"
"""Endings: a file that is being written, the file it replaces, the list of a set."""
NAME = re.compile(r"(?:tmp_)?\..+\.([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.(part|old|set)")
"""DuckDB writes to tmp_NAME first."""
EARLIER = re.compile(r"(?:tmp_)?\..+\.[a-z0-9_]{8}\.part")
"""Names that earlier versions used; they do not say who writes."""
DAY = 86_400.0
LONGEST = 120
"""Bytes of the name of a file that its temporary name repeats."""

CLEANED: set[tuple[int, Path]] = set()
"""The folders that this process has cleaned already."""


def _host() -> str:
    """A word for this machine or container."""
    return hashlib.sha256(platform.node().encode("utf-8", "replace")).hexdigest()[:8]


def beside(target: Path, kind: str) -> Path:
    """A new name beside a file, which says what it is for and who writes it."""
    short = target.name.encode("utf-8", "surrogateescape")[:LONGEST].decode("utf-8", "ignore")
    owner = f"{_host()}-{os.getpid()}-{secrets.token_hex(4)}"
    return target.with_name(f".{short}.{owner}.{kind}")


def _alive(process: int) -> bool:
    """Whether a process of this machine is there."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it belongs to somebody else, or cannot be asked about
        return True
    return True


def _left(path: Path) -> bool:
    """Whether nobody writes this file any more."""
    named = NAME.fullmatch(path.name)
    if named is not None and named[1] == _host():
        return not _alive(int(named[2]))
    try:
        return time.time() - path.lstat().st_mtime > DAY
    except OSError:
        return False


def _names(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return [
            Path(entry.path)
            for entry in entries
            if NAME.fullmatch(entry.name) or EARLIER.fullmatch(entry.name)
        ]
    return []


def clean(folder: Path) -> None:
    """Complete the sets and remove the unfinished files that killed runs left; once a process."""
    key = (os.getpid(), folder.absolute())
    if key in CLEANED:
        return
    CLEANED.add(key)
    finish_sets(folder)
    for path in _names(folder):
        if _left(path):
            with contextlib.suppress(OSError):
                STEPS.remove(path)


def finish_sets(folder: Path) -> None:
    """Put the files of sets that were complete when their run was killed in their places."""
    for path in _names(folder):
        if path.suffix != f".{SET}" or not _left(path):
            continue
        with contextlib.suppress(OSError):
            for part, target in _listed(path):
                if part.exists():
                    STEPS.rename(part, target)
            STEPS.sync_folder(folder)
            STEPS.remove(path)


def _listed(path: Path) -> list[tuple[Path, Path]]:
    """The pairs of a set: the file, and the name it is to have. Names in the same folder alone."""
    try:
        pairs = json.loads(path.read_bytes())
        good = isinstance(pairs, list) and all(
            isinstance(pair, list)
            and len(pair) == 2
            and all(isinstance(name, str) and Path(name).name == name for name in pair)
            and NAME.fullmatch(pair[0])
            and not NAME.fullmatch(pair[1])
            for pair in pairs
        )
    except (ValueError, RecursionError):
        good = False
    return [(path.with_name(part), path.with_name(name)) for part, name in pairs] if good else []
