"""A disk on which any one step fails, or is the last before the machine stops.

`every_point(work)` runs a piece of work once for each step it takes and each way in which that
step can go wrong, as SQLite's tests do: an error before it, an error after it, half of what was
written, a stop before it, a stop after it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dprl._core import disk
from dprl._core.disk import STEPS, Steps

NAMES = ("create", "written", "append", "sync", "mode", "rename", "sync_folder", "remove")
WAYS = ("fails", "fails late", "stops before", "stops after")


class Stopped(BaseException):
    """The machine stopped here: nothing that comes later is done."""


class Faults:
    """Counts steps, and lets the one numbered `at` go wrong in one way."""

    def __init__(self, at: int = -1, way: str = "", code: int = errno.EIO) -> None:
        self.at, self.way, self.code = at, way, code
        self.taken: list[str] = []
        self.stopped = False

    def step(self, name: str, do: Callable[..., Any], *args: Any) -> Any:
        if self.stopped:
            raise Stopped
        number = len(self.taken)
        self.taken.append(name)
        if number != self.at:
            return do(*args)
        self.stopped = self.way.startswith("stops")
        if self.way in ("fails late", "stops after"):
            if name == "append":  # half of a line
                args[0].write(args[1][: len(args[1]) // 2])
            elif name != "written":
                do(*args)
        if name == "written" and self.way != "stops before":  # half of a file
            data = Path(args[0]).read_bytes()
            Path(args[0]).write_bytes(data[: len(data) // 2])
        if self.stopped:
            raise Stopped
        raise OSError(self.code, "injected")


@contextmanager
def faults(at: int = -1, way: str = "", code: int = errno.EIO) -> Iterator[Faults]:
    """Steps go through a `Faults` inside."""
    faulty = Faults(at, way, code)
    for name in NAMES:
        real = getattr(Steps, name).__get__(STEPS)
        setattr(STEPS, name, lambda *args, n=name, do=real: faulty.step(n, do, *args))
    try:
        yield faulty
    finally:
        for name in NAMES:
            delattr(STEPS, name)


def next_run(folder: Path, monkeypatch: Any) -> None:
    """What a new process does first in a folder: the one before is gone."""
    monkeypatch.setattr(disk, "_alive", lambda process: False)
    disk.CLEANED.clear()
    disk.clean(folder)
    monkeypatch.undo()
    disk.CLEANED.clear()


def every_point(
    start: Callable[[], Any], work: Callable[[], Any]
) -> Iterator[tuple[str, Exception | Stopped]]:
    """Each step and way, with what came out of the work; `start` makes the disk as it was before.

    Args:
        start: Makes the disk as it is before the work.
        work: What writes.
    """
    start()
    with faults() as counted:
        work()
    for at, name in enumerate(counted.taken):
        for way in WAYS:
            for code in (errno.EIO, errno.ENOSPC) if way.startswith("fails") else (0,):
                start()
                with faults(at, way, code):
                    try:
                        work()
                    except (Exception, Stopped) as error:
                        outcome: Any = error
                    else:
                        outcome = None
                yield f"{name} {at} {way} {code}", outcome
