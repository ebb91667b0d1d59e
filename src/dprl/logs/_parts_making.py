"""From a table of rows to a log in parts: sorted, judged chunk by chunk, and stored.

Rows are read piece by piece, whole episodes at a time. Each chunk becomes `Columns`, as a source in
memory does, and the same rules judge it: what they find adds up. Once a rule is broken nothing more
is stored, and the other chunks are read for the numbers of the message alone.
"""

from __future__ import annotations

import contextlib
import functools
import json
import operator
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.logs._assemble import declared_columns, declared_labels, dropped_finding, log_of
from dprl.logs._columns import Coded, Columns, encode_menus
from dprl.logs._ending_rules import rows_after_end
from dprl.logs._files import Progress
from dprl.logs._findings import Finding, Found, Level, Whole
from dprl.logs._follow_up import follow
from dprl.logs._gaps import GONE, label_taken, refuse_medians, whole_numbers
from dprl.logs._label_rules import LABEL_RULES, LabelSet, Vocabulary
from dprl.logs._lost_outcomes import Lost, lost_by, lost_finding
from dprl.logs._parts_store import Layout, Writer, digest_of
from dprl.logs._parts_table import EP, GROUP, TIME, Table, sql_name
from dprl.logs._reading import Reading
from dprl.logs._reward_gaps import with_zeros
from dprl.logs._rules import NO_ROWS, RowFindings
from dprl.logs._sources import in_words_of, quoted
from dprl.logs.columns import ROLES, further_roles
from dprl.logs.parts import LogInParts

__all__ = ["Making", "ScanSettings"]

Rows = dict[str, NDArray[Any]]
Queries = list[tuple[str, list[Any]]]


@dataclass(frozen=True, eq=False)
class ScanSettings:
    """What was asked of `scan`.

    Attributes:
        reading: How the log is read.
        rows: About how many rows a part has.
        levels: The levels of the rules about rows that are asked.
    """

    reading: Reading
    rows: int
    levels: tuple[Level, ...] = ("error", "warning")


class _UnsortedError(Exception):
    """Rows do not come in the order of a log."""


def _joined(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Two pieces of a column; masked where either has a missing value."""
    if not (np.ma.isMaskedArray(one) or np.ma.isMaskedArray(other)):
        return np.concatenate([one, other])
    return np.ma.concatenate([one, other])  # type: ignore[no-untyped-call, no-any-return]


@dataclass(eq=False)
class Making:
    """Makes a log in parts from a table.

    Attributes:
        findings: What was found, once the parts were made or refused.
    """

    table: Table
    asked: ScanSettings
    folder: Path
    progress: Progress | None
    findings: list[Finding] = field(default_factory=list)
    lost: Lost = field(default_factory=Lost)
    usual: float | None = None
    labels: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def parts(self) -> LogInParts | None:
        """The log in parts; None where an error was found."""
        table, reading = self.table, self.asked.reading
        self.tell("checking", 0.0)
        self.n = int(table.one(f"SELECT count(*) FROM ({table.scan})")[0])
        if not self.n:
            self.findings.append(NO_ROWS)
            return None
        self.about = replace(self.nothing(), names=table.names)
        self.about, self.words = declared_columns(self.about, reading)
        if not self.fill_gaps():
            return None
        self.enumerate()
        writer, n_groups = None, 0
        if not table.has("group") and table.in_pieces:
            with contextlib.suppress(_UnsortedError):
                writer = self.store(table.chunks(self.piece), "as_read")
            if writer is None:
                shutil.rmtree(self.folder / "as_read")
        if writer is None:
            n_groups = self.sort()
            writer = self.store(self.sorted_chunks(), "by_episode", n_groups)
        if not self.judged():
            writer.close(0)
            return None
        stored = writer.close(n_groups or writer.n_episodes)
        self.tell("digest", 0.0)
        content = digest_of(writer)
        if not writer.in_order:  # groups lie apart: sort once more, by group
            with self.watched("sorting by group"):
                self.run(
                    f"CREATE TABLE store.grouped AS FROM store.sorted ORDER BY gc, {EP}, "
                    f"{TIME if table.has('time') else 'rn'}"
                )
            self.run("DROP TABLE store.sorted")
            shutil.rmtree(self.folder / "by_episode")
            first = writer.first_cut
            writer = self.store(self.sorted_chunks("grouped"), "by_group", n_groups)
            stored = writer.close(n_groups)
            writer.first_cut = first
        layout = writer.layout
        return LogInParts(
            sources=tuple(part.marked() for part in stored),
            actions=layout.actions,
            states=layout.states,
            n_episodes=writer.n_episodes,
            n_groups=writer.n_groups,
            n_steps=writer.n_steps,
            longest=writer.longest,
            ended=writer.ended,
            content=content,
            cut_steps=writer.cut_steps,
            first_cut=writer.first_cut,
            grouped=self.grouped(),
            menus=layout.menus,
            events=layout.events,
            columns=layout.columns,
            has_propensity=table.has("propensity"),
            rows=self.asked.rows,
        )

    # -- before rows are read -----------------------------------------------------------------

    def nothing(self) -> Columns:
        """The columns of no rows."""
        none = Coded(np.zeros(0, np.int32), ())
        return Columns({}, none, none, np.zeros(0), state=none)

    def fill_gaps(self) -> bool:
        """Leave out episodes and label states that miss a value, as asked; False if none is left.

        Raises:
            LogError: States have the label of a missing one already, or are no text.
        """
        table, words = self.table, self.words
        refuse_medians(words, [table.names["state"]])
        required = [r.name for r in ROLES if r.holds in ("labels", "menus") and table.has(r.name)]
        required += ["reward", *(["time"] if table.has("time") else [])]
        dropping = {name for name, how in words.items() if how == "drop-episodes"}
        roles = [r for r in required if table.names[r] in dropping and table.gaps([r])[0]]
        if roles and not table.gaps(["episode"])[0]:  # a row without an episode is an error
            place = table.place(table.gaps(roles)[1])
            names = [str(table.names[role]) for role in roles]
            self.findings.append(dropped_finding(*table.drop(roles), names, place))
            if self.findings[-1].level == "error":
                return False
        name = table.names["state"]
        gaps, first = table.gaps(["state"]) if words.get(name) == "flag" else (0, 0)
        if gaps:
            if table.columns["state"].kind != "text":
                raise whole_numbers(name, gaps, table.place(first))
            if GONE in table.labels("state"):
                raise label_taken(name, gaps, table.place(first))
            table.with_label("state", GONE)
        return True

    def enumerate(self) -> None:
        """Find the labels of all columns but episodes and groups, which are not held."""
        table = self.table
        for role in ("state", "action", "ended", "available"):
            if table.has(role):
                self.labels[role] = table.columns[role].labels(table.enumerate(role))
        if table.has("available"):
            name, raw = table.names["available"], list(self.labels["available"])
            if table.files.types[name].endswith("]"):
                raw = [json.loads(v) for v in raw]
            action = Coded(np.empty(0, np.int32), self.labels["action"])
            self.menus = in_words_of(action, encode_menus(raw, name))

    def grouped(self) -> bool:
        """Whether groups are not just the episodes under the same labels."""
        columns = self.table.columns
        if not self.table.has("group") or columns["group"].kind != columns["episode"].kind:
            return self.table.has("group")
        different = f"SELECT 1 FROM ({self.table.select()}) WHERE {GROUP} <> {EP} LIMIT 1"
        return self.table.one(different) is not None

    @property
    def piece(self) -> int:
        """How many rows are read at a time."""
        return max(min(self.asked.rows // 2, 1_000_000), 1_000)

    def tell(self, stage: str, share: float) -> None:
        if self.progress is not None:
            self.progress(stage, share)

    def run(self, sql: str) -> Any:
        return self.table.files.run(sql)

    # -- rows ---------------------------------------------------------------------------------

    def sort(self) -> int:
        """Sort the rows by episode and time into a table on disk; the number of groups, or 0."""
        self.run(f"ATTACH {quoted(str(self.folder / 'rows.duckdb'), chr(39))} AS store")
        table, values = self.table, self.table.files.values
        rn = "rn::INTEGER AS rn" if self.n < 2**31 else "rn"  # less to sort
        source, more, n_groups = table.numbered, f", {rn}", 0
        if table.has("group"):
            table.files.run(
                f"CREATE TABLE store.groups AS SELECT {GROUP}, (row_number() OVER (ORDER BY "
                f"{GROUP}) - 1)::INTEGER AS gc FROM (SELECT DISTINCT {GROUP} FROM "
                f"({table.select()}) WHERE {GROUP} IS NOT NULL) ORDER BY {GROUP}",
                values,
            )
            n_groups = int(self.run("SELECT count(*) FROM store.groups").fetchone()[0])
            source, more = f"FROM ({source}) LEFT JOIN store.groups USING ({GROUP})", f", {rn}, gc"
        order = TIME if table.has("time") else "rn"
        with self.watched("sorting"):
            table.files.run(
                f"CREATE TABLE store.sorted AS SELECT {table.coded()}{more} FROM ({source}) "
                f"ORDER BY {EP}, {order}",
                values,
            )
        self.n = int(self.run("SELECT count(*) FROM store.sorted").fetchone()[0])
        return n_groups

    @contextlib.contextmanager
    def watched(self, stage: str) -> Iterator[None]:
        """Tell how far the query inside is, a few times a second."""
        self.tell(stage, 0.0)
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.3):
                self.tell(stage, max(0.0, self.table.files.con.query_progress()) / 100)

        watcher = threading.Thread(target=watch, daemon=True)
        if self.progress is not None:
            watcher.start()
        try:
            yield
        finally:
            done.set()
            if self.progress is not None:
                watcher.join()

    def sorted_chunks(self, name: str = "sorted") -> Queries:
        """Queries that read a sorted table piece by piece."""
        return [
            (f"FROM store.{name} WHERE rowid BETWEEN ? AND ?", [i, i + self.piece - 1])
            for i in range(0, self.n, self.piece)
        ]

    def store(self, queries: Queries, name: str, n_groups: int = 0) -> Writer:
        """Judge and write the rows of some queries, which together are in the order of a log."""
        self.lost = Lost()
        judge = name != "by_group"  # those were judged before
        if judge:
            self.found, self.late = (
                RowFindings(self.asked.levels),
                list[tuple[Found | None, Found | None]](),
            )
            self.counts = {role: np.zeros(len(own), np.int64) for role, own in self.labels.items()}
        writer = Writer(self.layout(str(self.folder / name)), self.asked.rows)
        with contextlib.ExitStack() as undo:
            undo.callback(lambda: [stream.close() for stream in writer.streams.values()])
            for i in range(0, n_groups, self.piece):
                labels = self.run(
                    f"SELECT {GROUP} FROM store.groups WHERE rowid BETWEEN {i} AND "
                    f"{i + self.piece - 1}"
                ).fetchnumpy()[GROUP]
                writer.put_labels("group", np.ma.getdata(labels).tolist())
            for rows in self.blocks(queries, as_read=name == "as_read"):
                c = with_zeros(self.columns(rows), self.words)
                if judge:
                    self.judge(c)
                if not (self.found.failed or self.late):
                    self.write(writer, c)
            undo.pop_all()
        return writer

    def blocks(self, queries: Queries, as_read: bool) -> Iterator[Rows]:
        """The rows of some queries, whole episodes at a time; what is not sorted is noticed."""
        rest: Rows | None = None
        read = 0
        for i, (sql, values) in enumerate(queries):
            self.tell("reading", i / len(queries))
            coded = f"SELECT {self.table.coded()} FROM ({sql})" if as_read else sql
            rows = self.table.fetch(coded, values)
            n = len(rows[EP])
            if as_read:
                rows["rn"] = np.arange(read, read + n)
                read += n
            if rest is not None:
                rows = {k: _joined(rest[k], v) for k, v in rows.items()}
            begins = self.begins(rows, as_read)
            end = int(begins[-1]) if len(begins) else 0
            rest = {k: v[end:] for k, v in rows.items()}
            if end:
                yield {k: v[:end] for k, v in rows.items()}
        self.tell("reading", 1.0)
        if rest is not None and len(rest[EP]):
            yield rest

    def begins(self, rows: Rows, as_read: bool) -> NDArray[np.int64]:
        """The rows with which an episode begins; as they are read, they must be in order."""
        ep, gone = np.ma.getdata(rows[EP]), np.ma.getmaskarray(rows[EP])
        same = (ep[1:] == ep[:-1]) & ~gone[1:] & ~gone[:-1] | gone[1:] & gone[:-1]
        if as_read:
            if gone.any() or bool((~same & (ep[1:] < ep[:-1])).any()):
                raise _UnsortedError
            if self.table.has("time"):
                time = np.ma.getdata(rows[TIME])
                if np.ma.is_masked(rows[TIME]) or bool((same & (time[1:] < time[:-1])).any()):
                    raise _UnsortedError
        return np.flatnonzero(~same) + 1

    def columns(self, rows: Rows) -> Columns:
        """Some whole episodes, as a source in memory has them."""
        table = self.table
        begins = np.append(0, self.begins(rows, False))
        gone = np.ma.getmaskarray(rows[EP])
        codes = np.zeros(len(gone), np.int32)
        codes[begins[1:]] = 1
        codes = np.cumsum(codes, dtype=np.int32)
        codes[gone] = -1
        names = np.ma.getdata(rows[EP])[begins[~gone[begins]]].tolist()

        def coded(role: str) -> Coded | None:
            own = table.has(role)
            return (
                Coded(table.codes(role, rows[sql_name(role)]), self.labels[role]) if own else None
            )

        def number(role: str) -> NDArray[np.float64]:
            return np.asarray(np.ma.filled(rows[sql_name(role)], np.nan), np.float64)

        time, available, action = None, None, coded("action")
        if table.has("time"):
            time = np.ma.getdata(rows[TIME])
            time = time.view("M8[us]") if table.columns["time"].kind == "date" else time
        if table.has("available"):
            own = np.append(self.menus.codes, np.int32(-1))
            codes_of_menus = own[table.codes("available", rows[sql_name("available")])]
            available = Coded(codes_of_menus, self.menus.labels)
        assert action is not None
        return replace(
            self.about,
            episode=Coded(codes, table.columns["episode"].labels(names)),
            action=action,
            reward=number("reward"),
            state=coded("state"),
            time=time,
            time_missing=None if time is None else np.ma.getmaskarray(rows[TIME]),
            group=Coded(np.ma.filled(rows["gc"], -1), ()) if "gc" in rows else None,
            available=available,
            ended=coded("ended"),
            propensity=number("propensity") if table.has("propensity") else None,
            more={r.name: number(r.name) for r in further_roles() if table.has(r.name)},
            number=np.asarray(rows["rn"], np.int64),
            fresh=True,
        )

    # -- what is found ------------------------------------------------------------------------

    def judge(self, c: Columns) -> None:
        """Ask the rules about a chunk."""
        self.found.add(c)
        for role, own in (("action", c.action), ("state", c.state)):
            if own is not None:
                used = own.codes[own.codes >= 0] if own.codes.min() < 0 else own.codes
                self.counts[role] += np.bincount(used, minlength=len(own.labels))
        if not self.found.failed and any(late := rows_after_end(c, None)):
            self.late.append(late)

    def judged(self) -> bool:
        """Note the findings about all chunks; whether none is an error."""
        table = self.table
        self.findings += self.found.findings(table.place)
        sets = []
        for role in ("episode", "group", "action", "state"):
            if table.has(role) and table.columns[role].kind == "text":
                held = role in self.labels
                labels = self.labels[role] if held else table.twins(role)
                counts = self.counts[role] if held else np.zeros(len(labels), np.int64)
                sets.append(LabelSet(role, str(table.names[role]), labels, lambda n=counts: n))  # type: ignore[misc]
        self.findings += [f for rule in LABEL_RULES if (f := rule(Vocabulary(sets))) is not None]
        if any(f.level == "error" for f in self.findings):
            return False
        if self.late:
            early = [one for one, _ in self.late if one is not None]
            unsaid = [two for _, two in self.late if two is not None]
            total: Found = functools.reduce(operator.add, early or unsaid)
            whole = Whole(self.found.n, self.found.episodes, table.place, lambda: None)
            self.findings.append(total.finding("error", "rows_after_end", whole))
            return False
        if self.asked.reading.window is not None:
            self.findings.append(lost_finding(self.lost, self.asked.reading.window))
        return not any(f.level == "error" for f in self.findings)

    # -- what is stored -----------------------------------------------------------------------

    def layout(self, folder: str) -> Layout:
        """What all parts share."""
        table, reading = self.table, self.asked.reading
        none = replace(
            self.about,
            action=Coded(np.zeros(0, np.int32), self.labels["action"]),
            state=Coded(np.zeros(0, np.int32), self.labels["state"]),
            available=Coded(np.zeros(0, np.int32), self.menus.labels)
            if table.has("available") else None,
        )  # fmt: skip
        columns = dict(none.names)
        if reading.window is not None:
            columns["follow_up"] = str(reading.window)
        state, action, menus = declared_labels(none)
        assert state is not None
        time = table.columns["time"].kind if table.has("time") else ""
        return Layout(
            folder=folder,
            states=state.labels,
            actions=action.labels,
            columns=columns,
            menus=menus,
            events=none.events,
            kinds={r: table.columns[r].kind for r in ("episode", "group") if table.has(r)},
            time={"int": "i8", "number": "f8", "date": "i8"}[time]
            if time and table.has("group") else "",
            by_row=tuple(r.name for r in ROLES if r.stored and table.has(r.name)),
        )  # fmt: skip

    def write(self, writer: Writer, c: Columns) -> None:
        """Write some whole episodes."""
        log, window = log_of(replace(c, group=None), None), self.asked.reading.window
        if window is not None:
            if self.usual is None:
                self.usual = self.table.usual_reward()
            self.lost += lost_by(log, window, self.usual)
            log = follow(log, str(window))
        first = np.flatnonzero(np.append(True, c.episode.codes[1:] != c.episode.codes[:-1]))
        writer.add(log, None if c.group is None else c.group.codes[first])
