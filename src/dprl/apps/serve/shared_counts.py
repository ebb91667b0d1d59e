"""Counts of several processes, each kept in a file of its own in a folder that they share.

A process adds a line to its file whenever it has counted something, so what it counted stays when
it is killed, and whoever adds up the files has all counts up to now. All counts are sums: a file
holds the sum of its lines. A file that has grown long is replaced by one line.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["SharedCounts", "Sums"]

LONG = 1 << 18
"""Bytes of a file that is replaced by one line."""
ENDING = ".counts"


@dataclass
class Sums:
    """Counts that can be added.

    Attributes:
        counts: (name, labels …) → count.
        below: (path, place among the bounds) → number of requests.
        seconds: Path → seconds of its requests together.
        others: Name → count of what is counted elsewhere: connections, lost lines of the log.
    """

    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    below: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.counts or self.below or self.seconds or self.others)

    def copy(self) -> Sums:
        """The same counts, for others to add to."""
        return Sums(self.counts.copy(), self.below.copy(), self.seconds.copy(), self.others.copy())

    def to_json(self) -> str:
        """All counts on one line."""
        return json.dumps(
            {
                "counts": [[*key, n] for key, n in self.counts.items()],
                "below": [[*key, n] for key, n in self.below.items()],
                "seconds": self.seconds,
                "others": self.others,
            },
            separators=(",", ":"),
        )

    def add(self, line: str | bytes) -> None:
        """Add the counts of a line; one that was cut short is passed over."""
        with contextlib.suppress(ValueError, TypeError, KeyError):
            facts: dict[str, Any] = json.loads(line)
            for *key, n in facts["counts"]:
                self.counts[tuple(key)] += n
            for path, place, n in facts["below"]:
                self.below[path, place] += n
            self.seconds.update(facts["seconds"])
            self.others.update(facts["others"])


class SharedCounts:
    """The file of one process, and those of the others.

    Args:
        folder: The folder that the processes share.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._path: Path | None = None
        self._handle, self._size = -1, LONG

    def write(self, new: Sums, all_of_mine: Sums) -> None:
        """Add what is new to the file of this process; all that it counted is given, too."""
        if self._size >= LONG:
            self._replace(all_of_mine)
            return
        data = new.to_json().encode() + b"\n"
        try:
            written = os.write(self._handle, data)
        except OSError:
            written = 0
        # After half a line, or none, the next one begins the file anew with all counts.
        self._size = self._size + written if written == len(data) else LONG

    def of_others(self) -> Iterator[bytes]:
        """The lines of the other processes, those that have ended among them."""
        for path in sorted(self.folder.glob(f"*{ENDING}")):
            if path != self._path:
                with contextlib.suppress(OSError):
                    yield from path.read_bytes().splitlines()

    def _replace(self, sums: Sums) -> None:
        """Begin the file anew with one line; a reader sees the old file or the new one."""
        data = sums.to_json().encode() + b"\n"
        with contextlib.suppress(OSError):
            handle, part = tempfile.mkstemp(dir=self.folder, prefix=f"{os.getpid()}-")
            if os.write(handle, data) != len(data):  # no room: the old file stays
                os.close(handle)
                os.unlink(part)
                return
            path = self._path or Path(f"{part}{ENDING}")
            Path(part).replace(path)
            if self._handle >= 0:
                os.close(self._handle)
            # A line of all counts alone may be long: then the file may grow by as much again.
            self._path, self._handle, self._size = path, handle, min(len(data), LONG // 2)
