"""Too little memory or disk space: reported in three lines, and before the work where possible."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from dprl.errors import DprlError, LogError

__all__ = [
    "available_memory",
    "need_for_neighbors",
    "need_for_pairs",
    "need_memory",
    "said_if_short",
    "shortage",
    "size_in_words",
]

PER_PAIR = 232
"""The least bytes of memory a fit needs for each pair of state and action.

Exact sums take 160 of them; counts, means and deviations take the rest."""
PER_BALL = 64
"""The same for each training point and action, for a plan over features."""
SPARE = 64 << 20
"""Needs of fewer bytes than this are not checked."""
MEMINFO = Path("/proc/meminfo")
GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


def shortage(error: BaseException, doing: str, where: str = "") -> tuple[str, str, str] | None:
    """Three lines for an error that says memory or disk ran out; None for any other error."""
    lines = str(error).splitlines() or [""]
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryException":
        free = available_memory()
        left = "memory ran out" if free is None else f"{size_in_words(free)} are free now"
        return (
            f"there is not enough memory for {doing}.",
            "; ".join(x for x in (where or lines[0][:200], left) if x),
            "Close other programs, use a machine with more memory, or take fewer rows or columns.",
        )
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    foreign = type(error).__module__.lstrip("_").startswith(("duckdb", "sqlite3"))
    words = str(error).lower()
    signs = ("no space left", "disk quota", "disk is full", "not enough disk space")
    if full or (foreign and any(sign in words for sign in signs)):
        return (
            f"the disk is full: no room for {doing}.",
            where or lines[0][:200],
            "Make room on it, or name a place on another disk. Nothing was changed.",
        )
    return None


@contextlib.contextmanager
def said_if_short(doing: str, where: str = "", kind: type[DprlError] = LogError) -> Iterator[None]:
    """Turn an error inside, if memory or disk ran out, into one with three lines."""
    try:
        yield
    except DprlError:
        raise
    except Exception as error:
        lines = shortage(error, doing, where)
        if lines is None:
            raise
        raise kind(*lines) from error


def need_memory(need: float, doing: str, where: str, do: str) -> None:
    """Refuse work that needs more memory than is free; `need` is its least need in bytes."""
    free = available_memory() if need > SPARE else None
    if free is not None and need > free:
        raise LogError(
            f"{doing} needs at least {size_in_words(need)} of memory, and {size_in_words(free)} "
            "are free.",
            where,
            do,
        )


def need_for_pairs(states: int, actions: int, per_pair: int = PER_PAIR) -> None:
    """Refuse tables over all states and actions that do not fit into memory."""
    need_memory(
        float(states) * actions * per_pair,
        f"a table of {states:,} states x {actions:,} actions",
        f"{states * actions:,} pairs, {per_pair} bytes each",
        "Merge states that are never told apart in practice, or use a machine with more memory.",
    )


def need_for_neighbors(rows: int, features: int, actions: int, plan: bool) -> None:
    """Refuse points of features that do not fit into memory; a plan needs more per point."""
    each = 8 * features + (PER_BALL * actions if plan else 0)
    need_memory(
        float(rows) * each,
        f"fitting {rows:,} rows of {features:,} features" + (" with a plan" if plan else ""),
        f"{rows:,} rows, {each:,} bytes each",
        "Leave plan out (--no-plan), take fewer episodes, or use a machine with more memory."
        if plan
        else "Take fewer episodes or features, or use a machine with more memory.",
    )


def available_memory() -> float | None:
    """Bytes a process can still get, swap included; None if the system does not say.

    It is the least of what the machine and the container (cgroup) allow. Cached files count as
    free, since the system drops them when memory is needed.
    """
    limits = [x for x in (_of_machine(), *_of_groups()) if x is not None]
    return min(limits, default=None)


def _of_machine() -> float | None:
    """Bytes that are free on the whole machine; None if it does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        facts = {}
        for line in MEMINFO.read_text().splitlines():
            name, _, value = line.partition(":")
            facts[name] = float(value.split()[0]) * 1024
        if "MemAvailable" in facts:
            return facts["MemAvailable"] + facts.get("SwapFree", 0.0)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return None


def _of_groups() -> Iterator[float]:
    """Bytes that each limit on the container of this process, or on an outer one, leaves."""
    for place, limit, used, swap in (
        ("", "memory.max", "memory.current", "memory.swap.max"),  # version 2 of cgroups
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", ""),  # version 1
    ):
        for group in _groups_around(GROUPS / place, place):
            with contextlib.suppress(OSError, ValueError):
                most = float((group / limit).read_text())  # "max" is no limit, and no number
                taken = float((group / used).read_text())
                if most < 1 << 60:
                    yield most - taken + _freeable(group) + _swap(group / swap if swap else None)


def _groups_around(root: Path, controller: str) -> list[Path]:
    """The folders that may limit this process: that of its own group, and those above it."""
    with contextlib.suppress(OSError):
        for line in OWN_GROUP.read_text().splitlines():
            _, controllers, path = (*line.split(":", 2), "", "")[:3]
            if controller in controllers.split(",") and ".." not in path:
                own = root / path.lstrip("/")
                return [own, *(p for p in own.parents if p.is_relative_to(root))]
    return [root]


def _freeable(group: Path) -> float:
    """Bytes of cached files, which the system drops when memory is needed."""
    with contextlib.suppress(OSError, ValueError):
        for line in (group / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name in ("file", "total_cache", "cache"):
                return float(value)
    return 0.0


def _swap(limit: Path | None) -> float:
    """Swap the container may use: all of the machine's if it has no limit of its own."""
    if limit is not None:
        with contextlib.suppress(OSError, ValueError):
            return float(limit.read_text())
    with contextlib.suppress(OSError, ValueError, StopIteration, IndexError):
        lines = MEMINFO.read_text().splitlines()
        return float(next(x for x in lines if x.startswith("SwapFree")).split()[1]) * 1024
    return 0.0


def size_in_words(count: float) -> str:
    """A number of bytes for people: 1.5 GB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e3:,.1f} kB"
