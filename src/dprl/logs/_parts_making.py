"""From a table of rows to a log in parts: sorted, checked, stored, and described as a whole."""

from __future__ import annotations

import contextlib
import shutil
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.errors import MissingWarning
from dprl.logs._files import Progress
from dprl.logs._follow_up import follow
from dprl.logs._gaps import missing_words, refuse_medians
from dprl.logs._lost_outcomes import Lost, lost_by, say_lost
from dprl.logs._parts_gaps import drop_missing, flag_missing, usual_in_parts, zero_rewards
from dprl.logs._parts_labels import Asked, Labels
from dprl.logs._parts_rules import check_rows, check_sorted, unsaid_or_early
from dprl.logs._parts_store import Layout, Writer, digest_of
from dprl.logs._parts_table import SHORT, Table
from dprl.logs._sources import quoted
from dprl.logs.log import EVENT, TERMINAL, UNKNOWN, Log
from dprl.logs.parts import LogInParts

__all__ = ["Making"]


class _UnsortedError(Exception):
    """Rows do not come in the order of a log."""


@dataclass(eq=False)
class Making:
    """Makes a log in parts from a table."""

    table: Table
    asked: Asked
    folder: Path
    progress: Progress | None
    lost: Lost = field(default_factory=Lost)
    usual: float | None = None

    def parts(self) -> LogInParts:
        table, asked = self.table, self.asked
        self.tell("checking", 0.0)
        gaps = missing_words(asked.missing, table.names)
        refuse_medians(gaps, [table.names["state"]])
        dropping = {name for name, how in gaps.items() if how == "drop-episodes"}
        if dropping and (words := drop_missing(table, dropping)):
            warnings.warn(words, MissingWarning, stacklevel=3)
        if gaps.get(table.names["state"]) == "flag":
            flag_missing(table)
        if gaps.get(table.names["reward"]) == "zero":
            zero_rewards(table)
        self.labels = Labels(table, asked, check_rows(table))
        layout = self.labels.layout()
        self.labels.warn_of_spellings()
        writer = None
        if not table.has("group") and table.in_pieces:
            try:
                writer = self.store(table.chunks(self.piece), layout, "as_read")
            except _UnsortedError:
                shutil.rmtree(self.folder / "as_read")
        n_groups = self.sort(layout) if writer is None else 0
        if writer is None:
            writer = self.store(self.sorted_chunks(), layout, "by_episode", n_groups)
        stored = writer.close(n_groups or writer.n_episodes)
        self.tell("digest", 0.0)
        content = digest_of(writer)
        if not writer.in_order:  # groups lie apart: sort once more, by group
            with self.watched("sorting by group"):
                self.run("CREATE TABLE store.grouped AS FROM store.sorted ORDER BY gc, ep, ti")
            self.run("DROP TABLE store.sorted")
            shutil.rmtree(self.folder / "by_episode")
            first = writer.first_cut
            writer = self.store(self.sorted_chunks("grouped"), layout, "by_group", n_groups)
            stored = writer.close(n_groups)
            writer.first_cut = first
        if asked.window is not None:
            say_lost(self.lost, asked.window, stacklevel=3)
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
            events=asked.events,
            columns=layout.columns,
            has_propensity=layout.propensity,
            rows=asked.rows,
        )

    def grouped(self) -> bool:
        """Whether groups are not just the episodes under the same labels."""
        columns = self.table.columns
        if not self.table.has("group") or columns["group"].kind != columns["episode"].kind:
            return self.table.has("group")
        different = f"SELECT 1 FROM ({self.table.select()}) WHERE gr <> ep LIMIT 1"
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

    def sort(self, layout: Layout) -> int:
        """Sort the rows by episode and time into a table on disk; the number of groups, or 0."""
        self.run(f"ATTACH {quoted(str(self.folder / 'rows.duckdb'), chr(39))} AS store")
        values = self.table.files.values
        source, more, n_groups = self.table.numbered, "", 0
        if self.table.has("group"):
            self.table.files.run(
                "CREATE TABLE store.groups AS SELECT gr, (row_number() OVER (ORDER BY gr) - 1)"
                f"::INTEGER AS gc FROM (SELECT DISTINCT gr FROM ({self.table.select()})) "
                "ORDER BY gr",
                values,
            )
            n_groups = int(self.run("SELECT count(*) FROM store.groups").fetchone()[0])
            source, more = f"FROM ({source}) JOIN store.groups USING (gr)", ", gc"
        order = "ti" if self.table.has("time") else "rn"
        more += "" if self.table.has("time") else ", rn AS ti"
        with self.watched("sorting"):
            self.table.files.run(
                f"CREATE TABLE store.sorted AS SELECT {self.labels.coded()}{more} FROM ({source}) "
                f"ORDER BY ep, {order}",
                values,
            )
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

    def sorted_chunks(self, name: str = "sorted") -> list[tuple[str, list[Any]]]:
        """Queries that read a sorted table piece by piece."""
        return [
            (f"FROM store.{name} WHERE rowid BETWEEN ? AND ?", [i, i + self.piece - 1])
            for i in range(0, self.labels.n, self.piece)
        ]

    def store(
        self, queries: list[tuple[str, list[Any]]], layout: Layout, name: str, n_groups: int = 0
    ) -> Writer:
        """Write the rows of some queries, which together are in the order of a log."""
        self.lost = Lost()
        writer = Writer(replace(layout, folder=str(self.folder / name)), self.asked.rows)
        if n_groups:
            for i in range(0, n_groups, self.piece):
                labels = self.run(
                    f"SELECT gr FROM store.groups WHERE rowid BETWEEN {i} AND {i + self.piece - 1}"
                ).fetchnumpy()["gr"]
                writer.put_labels("group", np.ma.getdata(labels).tolist())
        by_group = name == "by_group"
        with contextlib.ExitStack() as undo:
            undo.callback(lambda: [stream.close() for stream in writer.streams.values()])
            for block in self.blocks(queries, as_read=name == "as_read", by_group=by_group):
                self.write(writer, block)
            undo.pop_all()
        return writer

    def blocks(
        self, queries: list[tuple[str, list[Any]]], as_read: bool, by_group: bool
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """The rows of some queries, whole episodes at a time; what is not sorted is noticed."""
        rest: dict[str, NDArray[Any]] | None = None
        for i, (sql, values) in enumerate(queries):
            self.tell("reading", i / len(queries))
            coded = f"SELECT {self.labels.coded()} FROM ({sql})" if as_read else sql
            rows = self.table.fetch(coded, values)
            if rest is not None:
                rows = {k: np.concatenate([rest[k], rows[k]]) for k in rows}
            self._check_order(rows, as_read, by_group)
            ep = rows["ep"]
            last = np.flatnonzero(ep[1:] != ep[:-1])
            end = int(last[-1]) + 1 if len(last) else 0
            rest = {k: v[end:] for k, v in rows.items()}
            if end:
                yield {k: v[:end] for k, v in rows.items()}
        self.tell("reading", 1.0)
        if rest is not None and len(rest["ep"]):
            yield rest

    def _check_order(self, rows: Mapping[str, NDArray[Any]], as_read: bool, by_group: bool) -> None:
        ep, ti = rows["ep"], rows.get("ti")
        same = ep[1:] == ep[:-1]
        if as_read and bool((~same & (ep[1:] < ep[:-1])).any()):
            raise _UnsortedError
        if ti is not None and self.table.has("time"):
            if bool((same & (ti[1:] < ti[:-1])).any()):
                raise _UnsortedError
            if not by_group and bool((same & (ti[1:] == ti[:-1])).any()):
                check_sorted(self.table)
        if (
            "gc" in rows
            and not by_group
            and bool((same & (rows["gc"][1:] != rows["gc"][:-1])).any())
        ):
            check_sorted(self.table)

    def write(self, writer: Writer, block: Mapping[str, NDArray[Any]]) -> None:
        """Write some whole episodes."""
        ep, table = block["ep"], self.table
        new = np.append(True, ep[1:] != ep[:-1])
        starts = np.append(np.flatnonzero(new), len(ep))
        mark = block.get("en")
        if mark is None:
            ended = np.zeros(len(starts) - 1, np.uint8)
        else:
            ended = mark[starts[1:] - 1]
            is_end = (mark == TERMINAL) | (mark >= EVENT)
            is_end[starts[1:] - 1] = True
            lengths = np.diff(starts)
            before = np.add.reduceat(is_end.astype(np.int64), starts[:-1]) - 1
            whole = (before == lengths - 1) & ((ended == TERMINAL) | (ended >= EVENT))
            if ((before > 0) & ~whole).any() or (ended == UNKNOWN).any():
                unsaid_or_early(table, self.labels.endings)
        data: dict[str, Any] = {"reward": block["rw"] + 0.0}
        for role in ("state", "action", "available"):
            if table.has(role):
                data[role] = self.labels.coded_values(role, block[SHORT[role]])
        if table.has("propensity"):
            data["propensity"] = np.where(np.isnan(block["pr"]), np.nan, block["pr"])
        time = block.get("ti") if table.has("time") else None
        if self.asked.window is not None:
            dated = time is not None and table.columns["time"].kind == "date"
            log = Log(
                starts=starts, actions=writer.layout.actions, states=writer.layout.states,
                time=time.view("M8[us]") if dated else time, ended=ended,  # type: ignore[union-attr]
                events=writer.layout.events, menus=writer.layout.menus, columns=table.names, **data,
            )  # fmt: skip
            if self.usual is None:
                self.usual = usual_in_parts(table)
            self.lost += lost_by(log, self.asked.window, self.usual)
            log = follow(log, str(self.asked.window))
            labels_at, starts, ended = starts[:-1], log.starts, log.ended
            data = {k: getattr(log, k) for k in data}
        else:
            labels_at = starts[:-1]
        writer.add(
            ep[labels_at], np.diff(starts), ended, data,
            block["gc"][labels_at] if "gc" in block else None,
            time[labels_at] if time is not None and writer.layout.time else None,
        )  # fmt: skip
