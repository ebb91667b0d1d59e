"""Sorted rows on disk: one flat file per column, read back part by part; and the log's digest.

Rows are written in the order of a `Log`, whole episodes at a time. Labels of episodes and groups
are kept as numbers, or as text with the place where each ends; no tuple of all of them is ever
made. The digest is that of `Log.digest`, computed from the files piece by piece.
"""

from __future__ import annotations

# Apart: the layout of files on disk, which outlives a process.
import hashlib
import itertools
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl.errors import LogError
from dprl.logs.log import EVENT, Label, Log
from dprl.logs.roles import ROLES, further_roles
from dprl.logs.source import Chunk

Read: TypeAlias = Callable[[str, str, int, int], NDArray[Any]]

PIECE = 1 << 20
"""Entries of a file that are read at a time."""


def stored_as(name: str) -> str:
    """How the values of a role are stored, one entry per row."""
    return next(role.stored for role in ROLES if role.name == name)


@dataclass(frozen=True, eq=False)
class Layout:
    """What all parts of a stored log share; can be pickled.

    Attributes:
        folder: Where the files are.
        states: The state labels.
        actions: The action labels.
        columns: As `Log.columns`.
        menus: As `Log.menus`.
        events: As `Log.events`.
        kinds: "episode" and, if the log has groups, "group" → "int", "bool" or "text".
        time: How the time of the first row of each episode is stored; '' if it is not needed.
        by_row: The roles that are stored with one entry per row.
    """

    folder: str
    states: tuple[Label, ...]
    actions: tuple[Label, ...]
    columns: Mapping[str, Any] = field(default_factory=dict)
    menus: NDArray[np.bool_] | None = None
    events: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    time: str = ""
    by_row: tuple[str, ...] = ("state", "action", "reward")

    def read(self, name: str, dtype: str, first: int, last: int) -> NDArray[Any]:
        """Entries first:last of a file."""
        size = np.dtype(dtype).itemsize
        path = Path(self.folder, f"{name}.bin")
        values = np.fromfile(path, dtype, count=last - first, offset=first * size)
        if len(values) < last - first:
            raise changed(str(path), f"it ends before entry {last:,}")
        return values

    def labels(self, which: str, first: int, last: int, read: Read | None = None) -> list[Label]:
        """Labels first:last of the episodes or the groups; `read` as the method of that name."""
        kind, read = self.kinds[which], read or self.read
        if kind == "text":
            ends = read(f"{which}_ends", "i8", max(first - 1, 0), last).tolist()
            begins = [0, *ends] if first == 0 else ends
            text = read(f"{which}_text", "u1", begins[0], begins[-1]).tobytes()
            shift = begins[0]
            return [
                text[a - shift : b - shift].decode("utf-8", "surrogatepass")
                for a, b in itertools.pairwise(begins)
            ]
        values = read(which, "i8", first, last).tolist()
        return [bool(v) for v in values] if kind == "bool" else values


@dataclass(frozen=True)
class StoredPart:
    """One part of a stored log: ranges of its rows, episodes and groups.

    Attributes:
        layout: What all parts share.
        rows: The first row and the one after the last.
        episodes: The same of its episodes.
        groups: The same of its groups.
        mark: CRC-32 of all that is read of the files, so that a part that changed on disk is
            refused; None while it is not known. Default None.
    """

    layout: Layout
    rows: tuple[int, int]
    episodes: tuple[int, int]
    groups: tuple[int, int]
    mark: int | None = None

    @property
    def name(self) -> str:
        """The part in words, for errors."""
        return f"rows {self.rows[0]:,} to {self.rows[1] - 1:,} in {self.layout.folder}"

    def marked(self) -> StoredPart:
        """The same part with its mark, from its files as they are now."""
        return replace(self, mark=self._read()[1])

    def log(self) -> Log:
        """The part, read from its files."""
        columns, mark = self._read()
        if self.mark is not None and mark != self.mark:
            raise changed(self.name, f"its checksum was {self.mark:08x}, and is {mark:08x}")
        own, starts = self.layout, np.concatenate(([0], np.cumsum(columns.pop("length"))))
        if own.time:  # only the order of episodes is read
            columns["time"] = np.repeat(columns.pop("begin"), np.diff(starts))
        more = {r.name: columns.pop(r.name) for r in further_roles() if r.name in columns}
        return Log(
            starts=starts,
            actions=own.actions,
            states=own.states,
            menus=own.menus,
            events=own.events,
            columns=own.columns,
            more=more,
            **columns,
        )

    def read(self) -> Chunk:
        """The part as a chunk of the whole log."""
        return Chunk(self.log(), self.groups[0], self.rows[0])

    def _read(self) -> tuple[dict[str, Any], int]:
        """The columns of the part, and the checksum of the bytes that were read."""
        own, mark = self.layout, 0

        def read(name: str, dtype: str, first: int, last: int) -> NDArray[Any]:
            nonlocal mark
            values = own.read(name, dtype, first, last)
            mark = zlib.crc32(values.data, mark)
            return values

        columns: dict[str, Any] = {"length": read("length", "i8", *self.episodes)}
        columns |= {name: read(name, stored_as(name), *self.rows) for name in own.by_row}
        if "group" in own.kinds:
            columns["group"] = read("group_code", "i4", *self.episodes) - self.groups[0]
            columns["groups"] = tuple(own.labels("group", *self.groups, read))
        if own.time:
            columns["begin"] = read("begin", own.time, *self.episodes)
        columns["episodes"] = tuple(own.labels("episode", *self.episodes, read))
        columns["ended"] = read("ended", "u1", *self.episodes)
        return columns, mark


def changed(where: str, how: str) -> LogError:
    """The error for a file of a stored log that is not as it was written."""
    return LogError(
        "a part of the log is not as it was written.",
        f"{where}: {how}",
        "Nothing was learned from it. Check the disk, and read the log again.",
    )


class Writer:
    """Writes the files of a stored log, and finds out what `LogInParts` says of it as a whole.

    Args:
        layout: What is stored.
        rows: About how many rows a part has.
    """

    def __init__(self, layout: Layout, rows: int) -> None:
        self.layout, self.rows = layout, rows
        Path(layout.folder).mkdir(exist_ok=True)
        self.streams: dict[str, Any] = {}
        self.n_steps = self.n_episodes = self.n_groups = self.longest = self.cut_steps = 0
        self.first_cut: Label | None = None
        self.ended = np.zeros(EVENT + len(layout.events), np.int64)
        n_menus = 0 if layout.menus is None else len(layout.menus)
        sizes = {"state": len(layout.states), "action": len(layout.actions), "available": n_menus}
        self.used = {name: np.zeros(size, bool) for name, size in sizes.items()}
        self.text_at = {"episode": 0, "group": 0}
        self.edges = [(0, 0, 0)]
        self.in_order = True
        self._last_group = -1

    def put(self, name: str, values: NDArray[Any], dtype: str) -> None:
        """Append values to a file."""
        if name not in self.streams:
            path = Path(self.layout.folder, f"{name}.bin")
            self.streams[name] = path.open("wb")
        self.streams[name].write(np.ascontiguousarray(values, dtype).data)

    def put_labels(self, which: str, labels: Sequence[Any]) -> None:
        """Append labels of episodes or groups."""
        if self.layout.kinds[which] != "text":
            self.put(which, np.asarray(labels, np.int64), "i8")
            return
        words = [str(word).encode("utf-8", "surrogatepass") for word in labels]
        ends = self.text_at[which] + np.cumsum([len(word) for word in words], dtype=np.int64)
        self.put(f"{which}_ends", ends, "i8")
        self.put(f"{which}_text", np.frombuffer(b"".join(words), np.uint8), "u1")
        self.text_at[which] = int(ends[-1]) if len(ends) else self.text_at[which]

    def add(self, log: Log, group: NDArray[np.int32] | None) -> None:
        """Append whole episodes, with the codes of their groups (E,) in the whole log."""
        lengths, ended = log.lengths, log.ended
        self.put_labels("episode", log.episodes)
        self.put("length", lengths, "i8")
        self.put("ended", ended, "u1")
        for name in self.layout.by_row:
            values = log.more[name] if name in log.more else getattr(log, name)
            self.put(name, values, stored_as(name))
            if name in self.used:
                self.used[name][np.unique(values)] = True
        if self.layout.time and log.time is not None:
            first = log.time[log.starts[:-1]]
            self.put(
                "begin", first.view("i8") if first.dtype.kind == "M" else first, self.layout.time
            )
        if group is None:
            number = self.n_episodes + np.arange(len(lengths))
        else:
            number = np.asarray(group, np.int64)
            if number.max(initial=0) >= 2**31:
                raise LogError(
                    "a stored log can have fewer than 2^31 groups that are named in a column.",
                    do="Leave the group column out where every episode is a group of its own.",
                )
            self.put("group_code", number, "i4")
        self._divide(lengths, number)
        cut = log.cut_episodes
        if self.first_cut is None and len(cut):
            self.first_cut = log.episodes[cut[0]]
        self.cut_steps += int(lengths[cut].sum())
        self.ended += np.bincount(ended, minlength=len(self.ended))
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        self.n_steps += int(lengths.sum())
        self.n_episodes += len(lengths)

    def _divide(self, lengths: NDArray[np.int64], group: NDArray[np.int64]) -> None:
        """Note where parts end: at the first group that begins once a part is large enough."""
        before = np.append(self._last_group, group[:-1])
        self.in_order &= bool((group >= before).all())
        starts = np.flatnonzero(group != before)
        self._last_group = int(group[-1])
        row = self.n_steps + np.cumsum(lengths) - lengths
        at = 0
        while True:
            enough = self.edges[-1][0] + self.rows
            at = max(at, int(np.searchsorted(row[starts], enough)))
            if at >= len(starts):
                break
            e = int(starts[at])
            self.edges.append((int(row[e]), self.n_episodes + e, int(group[e])))
            at += 1

    def close(self, n_groups: int) -> tuple[StoredPart, ...]:
        """Close the files; the parts."""
        for stream in self.streams.values():
            stream.close()
        self.n_groups = n_groups
        edges = [*self.edges, (self.n_steps, self.n_episodes, n_groups)]
        return tuple(
            StoredPart(self.layout, (a[0], b[0]), (a[1], b[1]), (a[2], b[2]))
            for a, b in itertools.pairwise(edges)
        )


# -- the digest -------------------------------------------------------------------------------


def _pieces(n: int) -> Iterator[tuple[int, int]]:
    return ((i, min(i + PIECE, n)) for i in range(0, n, PIECE))


def _table(used: NDArray[np.bool_], labels: Sequence[Any]) -> tuple[NDArray[np.int32], list[Any]]:
    """Codes of the sorted labels that occur, for each label; and these labels."""
    order = sorted(np.flatnonzero(used).tolist(), key=lambda i: labels[i])
    table = np.zeros(len(labels), np.int32)
    table[order] = np.arange(len(order), dtype=np.int32)
    return table, [labels[i] for i in order]


def digest_of(written: Writer) -> str:
    """`Log.digest` of the log that was written, in the order in which it was written.

    Args:
        written: A writer that was closed; its episodes are in the order of their labels.
    """
    own, total = written.layout, hashlib.sha256(b"dprl-log-1")
    N, E = written.n_steps, written.n_episodes

    def words(name: str, labels: Sequence[Any]) -> None:
        total.update(f"|{name}|{json.dumps(labels, ensure_ascii=True)}".encode())

    def stored(name: str, which: str, n: int) -> None:
        total.update(f"|{name}|[".encode())
        for first, last in _pieces(n):
            part = json.dumps(own.labels(which, first, last), ensure_ascii=True)[1:-1]
            total.update(((", " if first else "") + part).encode())
        total.update(b"]")

    def rows(name: str, dtype: str, n: int, table: NDArray[Any] | None = None) -> None:
        total.update(str((n,)).encode())
        for first, last in _pieces(n):
            values = own.read(name, dtype, first, last)
            total.update(values.data if table is None else table[values].data)

    stored("starts", "episode", E)
    total.update(str((E + 1,)).encode())
    total.update(np.zeros(1, np.int64).data)
    end = 0
    for first, last in _pieces(E):
        ends = end + np.cumsum(own.read("length", "i8", first, last))
        end = int(ends[-1])
        total.update(ends.data)
    grouped = "group" in own.kinds
    stored("group", "group" if grouped else "episode", written.n_groups if grouped else E)
    if grouped:
        rows("group_code", "i4", E)
    else:
        total.update(str((E,)).encode())
        for first, last in _pieces(E):
            total.update(np.arange(first, last, dtype="i4" if E < 2**31 else "i8").data)
    table, names = _table(written.ended[EVENT:] > 0, own.events)
    words("ended", names)
    ends_table = np.concatenate((np.arange(EVENT), table + EVENT)).astype(np.uint8)
    rows("ended", "u1", E, ends_table)
    for name, labels in (("state", own.states), ("action", own.actions)):
        if name == "action":
            words("features", ())
        table, occurring = _table(written.used[name], labels)
        words(name, occurring)
        rows(name, "i4", N, table)
    words("reward", ())
    rows("reward", "f8", N)
    if own.menus is not None:
        offers = [
            tuple(sorted(str(own.actions[a]) for a in np.flatnonzero(menu))) for menu in own.menus
        ]
        table, occurring = _table(written.used["available"], offers)
        words("available", occurring)
        rows("available", "i4", N, table)
    further = sorted(role.name for role in further_roles() if role.name in own.by_row)
    for name in ["propensity"] * ("propensity" in own.by_row) + further:
        words(name, ())
        rows(name, stored_as(name), N)
    return total.hexdigest()
