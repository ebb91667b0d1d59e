"""Evidence that is kept in a folder, and grows a little every day.

A day's log is counted once, over the labels of a `SiteSchema`, and the count is kept; what was
counted before is not read again. Counts of days that share no group add up to those of all days
together, bit for bit. A group that comes again does not: its first visit of a state may have been
on an earlier day. So groups are recognised, by marks under a key of the folder. They are refused,
or *reopened* where the folder keeps rows: each earlier day that had them is counted again without
them, and all their rows, old and new, are counted with the new day.

    key               a random key: whoever has it can test whether a label was counted
    schema.json       the labels, the discount and the range
    days/             what was counted, one file each, called by its own SHA-256
    rows/             the rows of each file, where they are kept
    history/          000001.json, …: which files count from then on, and which do not any more
    total.evidence    the sum of all that counts, to be read at once; it is made again if it is gone

Files are only ever added, but for the total. A file in `history` is written last: it is what makes
an addition count, so that one that was stopped half-way did not happen.
"""

# Apart: rows and files over time, which what sites send to each other knows nothing of.

from __future__ import annotations

import hashlib
import json
import os
import secrets
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools
from dprl._core.checks import check_whole
from dprl._core.disk import one_at_a_time, replacing, together
from dprl._core.table import many
from dprl._core.words import either, option, worded
from dprl.errors import EvidenceError, LogError, ParameterError
from dprl.evidence.sites.cells import USUAL_K, added, as_site, in_schema, whole_evidence
from dprl.evidence.sites.evidence import ARCHIVE, LARGEST, SiteEvidence, SiteSchema, from_parts
from dprl.logs._io import column_of, from_arrays, read, write, written_columns
from dprl.logs.log import CUT, Label, Log, check_log
from dprl.logs.overlap import Hashes, keyed_marks, log_mark

SCHEMA, KEY, DAYS, ROWS, HISTORY, TOTAL = (
    "schema.json", "key", "days", "rows", "history", "total.evidence",
)  # fmt: skip
AGAIN = worded("Make the folder again from the logs, or take it from a backup.")


@dataclass(frozen=True)
class _Day:
    """What is counted together: a day, or what is left of it.

    Attributes:
        part: What was counted, with nothing suppressed.
        marks: uint64, sorted: one for each group, and one for each episode that is in a group.
        rows: Digest of the kept rows that hold its groups (perhaps more); "" where none are kept.
        roles: The columns of the kept rows, which are called by their roles.
        events: The competing events of the kept rows.
    """

    part: SiteEvidence
    marks: Hashes
    rows: str = ""
    roles: tuple[str, ...] = ()
    events: tuple[str, ...] = ()

    def file(self) -> tuple[str, dict[str, Any], dict[str, NDArray[Any]]]:
        """What its file holds."""
        words, arrays = self.part.parts
        own = {"rows": self.rows, "roles": list(self.roles), "events": list(self.events)}
        return "day", {**words, **own}, {**arrays, "marks": self.marks.view(np.int64)}


@dataclass(frozen=True)
class _Total:
    """The sum of all that counts.

    Attributes:
        part: The sum; None before the first day.
        marks: uint64, sorted, of all days.
        owner: int32, the place of each mark's day among the digests that count, which are sorted.
    """

    part: SiteEvidence | None
    marks: Hashes
    owner: NDArray[np.int32]


@dataclass(frozen=True)
class EvidenceFolder:
    """Evidence that is kept in a folder, to which a little is added every day.

    Groups (patients; episodes, where a log names no groups) are counted once, whatever the number
    of days on which they come: see `add`. The folder is yours alone: it holds evidence with nothing
    suppressed, a key that recognises groups, and the rows if they are kept. What `evidence` makes
    with a k of 10 can be given away.

    Attributes:
        path: The folder.
        schema: States, actions, discount and range, fixed at the beginning.
        keep_rows: Whether rows are kept, so that groups that come again can be reopened.

    Example:
        >>> import dprl
        >>> from dprl.evidence import EvidenceFolder
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> monday, tuesday = log.split(0.5, seed=0)
        >>> schema = dprl.SiteSchema.of(log, gamma=1.0)
        >>> counted = EvidenceFolder.create("counted", schema)
        >>> for day in (monday, tuesday):
        ...     _ = counted.add(day)
        >>> whole = dprl.site_evidence(log, schema, k=1)
        >>> EvidenceFolder.open("counted").evidence(k=1).digest() == whole.digest()
        True
    """

    path: Path
    schema: SiteSchema
    keep_rows: bool

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], schema: SiteSchema, *, keep_rows: bool = False
    ) -> EvidenceFolder:
        """Make an empty folder.

        Args:
            path: The folder; it must not exist, or be empty.
            schema: States, actions, discount and range that all days are counted with.
            keep_rows: Keep the rows of every day too, so that groups that come again can be
                reopened. Default False.

        Returns:
            The folder.

        Raises:
            EvidenceError: There is something at this path.

        Example:
            >>> import dprl
            >>> from dprl.evidence import EvidenceFolder
            >>> schema = dprl.SiteSchema(states=["ill"], actions=["drug"], gamma=1.0)
            >>> EvidenceFolder.create("days", schema).days
            0
        """
        if not isinstance(schema, SiteSchema):
            raise ParameterError(
                f"a schema is needed; got an object of type {type(schema).__name__}."
            )
        folder = Path(path)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise EvidenceError(
                f"there is something at {str(path)!r} already.", do="Name a new folder."
            )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (DAYS, HISTORY, *([ROWS] if keep_rows else [])):
            (folder / name).mkdir(mode=0o700)
        with together():
            with replacing(folder / KEY, private=True) as part:
                part.write_text(secrets.token_hex(32))
            schema.save(folder / SCHEMA)
        return cls.open(folder)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> EvidenceFolder:
        """Open a folder that `create` made.

        Args:
            path: The folder.

        Returns:
            The folder.

        Raises:
            EvidenceError: It is no such folder.

        Example:
            >>> import dprl
            >>> from dprl.evidence import EvidenceFolder
            >>> schema = dprl.SiteSchema(states=["ill"], actions=["drug"], gamma=1.0)
            >>> _ = EvidenceFolder.create("days", schema, keep_rows=True)
            >>> EvidenceFolder.open("days").keep_rows
            True
        """
        folder = Path(path)
        if not all((folder / name).exists() for name in (SCHEMA, KEY, DAYS, HISTORY)):
            raise EvidenceError(
                f"{str(path)!r} is no folder of evidence.",
                do=worded(
                    "Make one with {command}.",
                    command=either(
                        "EvidenceFolder.create(path, schema)",
                        "dprl evidence add --folder counted --schema schema.json",
                    ),
                ),
            )
        return cls(folder, SiteSchema.load(folder / SCHEMA), (folder / ROWS).is_dir())

    @property
    def days(self) -> int:
        """How many times something was added."""
        return sum(1 for _ in self._steps())

    def add(self, log: Log, *, name: str = "", reopen: bool = False) -> int:
        """Count a day's log and keep what was counted.

        Args:
            log: The log of the day: whole episodes, read without `follow_up` where rows are kept
                (that of the schema is used).
            name: What messages call it, such as the date. Default "".
            reopen: What to do about groups that were counted before: False (default) refuses them;
                True takes out what they contributed, and counts their rows of all days together.
                Needs `keep_rows`. An episode that goes on is put together too. Each earlier day
                that had such a group is read and counted again.

        Returns:
            How many groups were reopened.

        Raises:
            LogError: The log has labels that are not in the schema, or returns outside the range.
            EvidenceError: Groups were counted before; an episode was counted in another group; or
                the folder is damaged. Nothing is changed then.

        Example:
            >>> import dprl
            >>> from dprl.evidence import EvidenceFolder
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> schema = dprl.SiteSchema.of(log, gamma=1.0)
            >>> counted = EvidenceFolder.create("kept", schema, keep_rows=True)
            >>> counted.add(log.take(range(300)))
            0
            >>> counted.add(log.take(range(200, 500)))
            Traceback (most recent call last):
            ...
            dprl.errors.EvidenceError: 100 of 300 groups were counted before...
        """
        check_log(log)
        grouped = bool(log.columns.get("group"))
        if self.keep_rows:
            _refuse_unkept(log)
        part = whole_evidence(log, self.schema)
        with one_at_a_time(self.path / KEY):
            steps = list(self._steps())
            stamp = hashlib.sha256(f"{self._key()}|{log.digest()}".encode()).hexdigest()
            _refuse_again(steps, stamp, grouped)
            live, total = self._total(steps)
            known = self._marks(log.groups, "group")
            place, seen = _found(total, known)
            owners = total.owner[place[seen]]
            if seen.any() and not (reopen and self.keep_rows):
                raise self._recurring(log, seen, live[int(owners[0])], steps)
            taken = [live[i] for i in np.unique(owners)]
            left, earlier = self._divided(taken, known[seen], grouped)
            if grouped:
                self._refuse_torn(log, total, earlier)
            whole = _joined([*earlier, log], grouped) if earlier or self.keep_rows else log
            counted = whole_evidence(whole, self.schema) if earlier else part
            with together():
                new = self._new(counted, whole, grouped)
                days = {self._save(day): day for day in (*left, new)}
                step = {
                    "adds": list(days), "takes": taken, "name": str(name)[:200], "log": stamp,
                    "grouped": grouped, "reopened": int(seen.sum()),
                }  # fmt: skip
                self._sum([*steps, step], days, None if taken else total)
                with replacing(self.path / HISTORY / f"{len(steps) + 1:06d}.json") as path:
                    path.write_text(json.dumps(step, indent=1) + "\n", "utf-8")
        return int(seen.sum())

    def evidence(self, *, k: int = USUAL_K, site: str = "") -> SiteEvidence:
        """The evidence of all days together, as `dprl.site_evidence` makes it of one log of them.

        Args:
            k: The fewest groups of anything that is given away about a state. Default 10; 1
                suppresses nothing, for a policy of your own.
            site: A name for the site. Default "".

        Returns:
            The evidence.

        Raises:
            EvidenceError: Nothing was added yet, or the folder is damaged.
            LogError: There are fewer than k groups.

        Example:
            >>> import dprl
            >>> from dprl.evidence import EvidenceFolder
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = EvidenceFolder.create("all", dprl.SiteSchema.of(log, gamma=1.0))
            >>> _ = counted.add(log)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0, plan=False)
            >>> learner.fit(counted.evidence(k=1)).act(["fever"])
            ['antibiotics']
        """
        k = check_whole("k", k, 1)
        with one_at_a_time(self.path / KEY):
            total = self._total(list(self._steps()))[1].part
        if total is None:
            raise EvidenceError(
                f"nothing was added to {self.path.name!r} yet.",
                do=worded("Add a log: {how}.", how=either(".add(log)", "dprl evidence add")),
            )
        return as_site([total], k=k, site=site)

    # -- what is on the disk --------------------------------------------------------------------

    def _key(self) -> str:
        return (self.path / KEY).read_text().strip()

    def _steps(self) -> Iterator[dict[str, Any]]:
        """What happened, in order."""
        names = sorted(path.name for path in (self.path / HISTORY).glob("*.json"))
        for number, name in enumerate(names, 1):
            try:
                if name != f"{number:06d}.json":
                    raise ValueError(f"{number:06d}.json is not there")
                step = json.loads((self.path / HISTORY / name).read_text("utf-8"))
                if {"adds", "takes", "name", "log", "grouped"} - set(step):
                    raise ValueError("something is missing in it")
                yield step
            except (OSError, ValueError, TypeError, RecursionError) as error:
                raise self._damaged(f"{HISTORY}/{name}", str(error)) from error

    def _damaged(self, name: str, why: str) -> EvidenceError:
        return EvidenceError(
            f"the folder of evidence {self.path.name!r} is damaged.", f"{name}: {why}"[:200], AGAIN
        )

    def _unpacked(self, path: Path, kind: str) -> tuple[SiteEvidence, dict[str, Any], Any]:
        _, found, words, arrays = ARCHIVE.unpack(path, path.name, LARGEST)
        if found != kind or not {"marks", "owner"} & set(arrays):
            raise self._damaged(path.name, f"it holds {found!r}, not {kind!r}")
        others = {name: arrays.pop(name) for name in ("marks", "owner") if name in arrays}
        part = from_parts(path.name, words, arrays)
        if part.schema != self.schema:
            raise self._damaged(path.name, "it was counted with another schema")
        return part, words, others

    def _day(self, digest: str) -> _Day:
        path = self.path / DAYS / f"{digest}.evidence"
        if not path.is_file():
            raise self._damaged(f"{DAYS}/{digest[:12]}…", "it is not there")
        part, words, others = self._unpacked(path, "day")
        day = _Day(
            part, others["marks"].view(np.uint64), words["rows"],
            tuple(words["roles"]), tuple(words["events"]),
        )  # fmt: skip
        if ARCHIVE.document(*day.file())[0]["digest"] != digest:
            raise self._damaged(f"{DAYS}/{digest[:12]}…", "its content is that of another file")
        return day

    def _save(self, day: _Day) -> str:
        """Write the file of a day; its name."""
        digest: str = ARCHIVE.document(*day.file())[0]["digest"]
        ARCHIVE.pack(self.path / DAYS / f"{digest}.evidence", *day.file())
        return digest

    def _total(self, steps: Sequence[dict[str, Any]]) -> tuple[list[str], _Total]:
        """The digests that count, sorted, and their sum: as it is kept, or made again."""
        live, state = _live(steps)
        if not live:
            return live, _Total(None, np.empty(0, np.uint64), np.empty(0, np.int32))
        path = self.path / TOTAL
        try:
            part, words, others = self._unpacked(path, "total")
            if words["of"] == state:
                return live, _Total(part, others["marks"].view(np.uint64), others["owner"])
        except (EvidenceError, KeyError, OSError):
            pass  # a copy of what the days say: it is made again
        return live, self._sum(steps)

    def _sum(
        self,
        steps: Sequence[dict[str, Any]],
        new: Mapping[str, _Day] = MappingProxyType({}),
        before: _Total | None = None,
    ) -> _Total:
        """Add up all that counts, and keep the sum.

        Args:
            steps: What happened.
            new: The days that are not on the disk yet, by digest.
            before: The sum of all but these. Default None: all days are added up.
        """
        live, state = _live(steps)
        if before is not None and before.part is not None:
            ((digest, day),) = new.items()
            at = live.index(digest)
            part = added([before.part, day.part])
            marks = np.concatenate([before.marks, day.marks])
            owner = np.append(before.owner + (before.owner >= at), np.full(len(day.marks), at))
        else:
            parts: list[Hashes] = []
            for digest in live:
                day = new[digest] if digest in new else self._day(digest)
                part = added([part, day.part]) if parts else day.part
                parts.append(day.marks)
            marks = np.concatenate(parts)
            owner = np.repeat(np.arange(len(live)), [len(one) for one in parts])
        order = np.argsort(marks, kind="stable")
        marks, owner = marks[order], owner[order].astype(np.int32)
        if (marks[1:] == marks[:-1]).any():
            raise self._damaged(DAYS, "a group is in two of its files, and would count twice")
        words, arrays = part.parts
        sums = {**arrays, "marks": marks.view(np.int64), "owner": owner}
        ARCHIVE.pack(self.path / TOTAL, "total", {**words, "of": state}, sums)
        return _Total(part, marks, owner)

    # -- who was counted ------------------------------------------------------------------------

    def _marks(self, labels: Sequence[Label], what: str) -> Hashes:
        """uint64 for each group, or each episode, under the folder's key."""
        return keyed_marks(labels, np.zeros(len(labels), np.uint64), f"{what} {self._key()}")

    def _all_marks(self, log: Log, grouped: bool) -> Hashes:
        marks = [self._marks(log.groups, "group")]
        if grouped:
            marks.append(self._marks(log.episodes, "episode"))
        together = np.sort(np.concatenate(marks))
        twice = int((together[1:] == together[:-1]).sum())
        if twice:
            raise EvidenceError(
                f"{twice:,} of {len(together):,} groups or episodes are written in two ways, such "
                "as 7 and 007, and would count twice.",
                do="Write each in one way, on all days.",
            )
        return together

    def _recurring(
        self, log: Log, seen: Bools, digest: str, steps: Sequence[dict[str, Any]]
    ) -> EvidenceError:
        """The error that groups were counted before; nothing was changed."""
        first = log.groups[int(np.flatnonzero(seen)[0])]
        when = next(step for step in steps if digest in step["adds"])
        return EvidenceError(
            f"{int(seen.sum()):,} of {many(len(seen), 'group')} were counted before, and would "
            "count twice.",
            f"{first!r}, added with {when['name'] or f'day {steps.index(when) + 1}'!r}",
            worded(
                "Say {reopen} to count their rows of all days together.",
                reopen=option("reopen", True),
            )
            if self.keep_rows
            else worded(
                "Leave their rows out, or begin a folder that keeps rows ({keep}) and reopen them.",
                keep=option("keep_rows", True),
            ),
        )

    def _refuse_torn(self, log: Log, total: _Total, earlier: Sequence[Log]) -> None:
        """Refuse episodes that were counted in another group: no log may have such."""
        marks = self._marks(log.episodes, "episode")
        _, seen = _found(total, marks)
        for one in earlier:
            seen &= ~np.isin(marks, self._marks(one.episodes, "episode"))
        if seen.any():
            raise EvidenceError(
                f"{int(seen.sum()):,} of {many(len(seen), 'episode')} were counted before, in "
                "other groups.",
                f"episode {log.episodes[int(np.flatnonzero(seen)[0])]!r}",
                "Give every episode a label of its own, and one group.",
            )

    # -- rows that are kept ---------------------------------------------------------------------

    def _new(self, part: SiteEvidence, log: Log, grouped: bool) -> _Day:
        """A day that is counted, with its rows on the disk if they are kept."""
        marks = self._all_marks(log, grouped)
        if not self.keep_rows:
            return _Day(part, marks)
        if not self._is_of(log, part):
            raise EvidenceError(
                "the rows of this log would not come back from a file as they are.",
                do="Keep this day in a folder without rows, or change its labels to plain text.",
            )
        digest = log.digest()
        write(log, self.path / ROWS / f"{digest}.parquet")
        return _Day(part, marks, digest, tuple(_roles(log)), log.events)

    def _is_of(self, log: Log, part: SiteEvidence) -> bool:
        """Whether this log was counted."""
        mark: str = part.sites[0]["log"]
        return f"{log_mark(in_schema(log, self.schema)):016x}" == mark

    def _divided(
        self, digests: Sequence[str], taken: Hashes, grouped: bool
    ) -> tuple[list[_Day], list[Log]]:
        """Days without some groups, counted again, and the rows of these groups."""
        left, out = [], []
        for digest in digests:
            day = self._day(digest)
            path = self.path / ROWS / f"{day.rows}.parquet"
            columns: Any = {role: role for role in day.roles}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they were told when the day was added
                try:
                    log = read(path, **columns, events=day.events or None, also=())
                    log = log.take(np.flatnonzero(np.isin(self._of(log), day.marks)))
                    if not self._is_of(log, day.part):
                        raise LogError("its rows are not those that were counted")
                except LogError as error:
                    name = f"{ROWS}/{path.name[:12]}….parquet"
                    raise self._damaged(name, error.what) from error
                gone = np.isin(self._of(log), taken)
                out.append(log.take(np.flatnonzero(gone)))
                if not gone.all():
                    rest = log.take(np.flatnonzero(~gone))
                    part, marks = whole_evidence(rest, self.schema), self._all_marks(rest, grouped)
                    left.append(replace(day, part=part, marks=marks))
        return left, out

    def _of(self, log: Log) -> Hashes:
        """The mark of the group of each episode."""
        return self._marks(log.groups, "group")[log.group]


def _live(steps: Sequence[dict[str, Any]]) -> tuple[list[str], str]:
    """The digests of the files that count, sorted, and a digest of these."""
    taken = {digest for step in steps for digest in step["takes"]}
    live = sorted({digest for step in steps for digest in step["adds"]} - taken)
    return live, hashlib.sha256("|".join(live).encode()).hexdigest()


def _found(total: _Total, marks: Hashes) -> tuple[NDArray[np.int64], Bools]:
    """The place of each mark in the total, and whether it is there."""
    if not len(total.marks):
        return np.zeros(len(marks), np.int64), np.zeros(len(marks), bool)
    place = np.minimum(np.searchsorted(total.marks, marks), len(total.marks) - 1)
    return place, np.asarray(total.marks[place] == marks)


def _refuse_again(steps: Sequence[dict[str, Any]], stamp: str, grouped: bool) -> None:
    """Refuse a log that was added before, and one with groups beside others without."""
    for i, step in enumerate(steps, 1):
        if step["log"] == stamp:
            raise EvidenceError(
                "this log was added before.",
                f"as {step['name'] or f'day {i}'!r}, {i} of {many(len(steps), 'addition')}",
                "Add each day once.",
            )
        if step["grouped"] != grouped:
            raise EvidenceError(
                worded("some days name groups ({group=}), and others do not."),
                f"day {i} {'does' if step['grouped'] else 'does not'}, this one "
                f"{'does' if grouped else 'does not'}",
                "Name the column on all days or on none: else nobody is recognised.",
            )


def _refuse_unkept(log: Log) -> None:
    """Refuse to keep rows that a file does not hold as they were read."""
    if log.follow_up is not None or log.more:
        what = f"follow_up = {log.follow_up!r}" if log.follow_up else f"{next(iter(log.more))!r}"
        raise ParameterError(
            "the rows of this log cannot be kept as they were before reading.",
            what,
            "Read it without follow_up (the schema has one) and without costs or sums.",
        )


def _roles(log: Log) -> list[str]:
    """The columns of the rows that are kept of a log; each is called by its role."""
    has = {
        "group": log.groups != log.episodes, "time": log.time is not None,
        "available": log.available is not None, "ended": bool(log.ended.any()),
        "propensity": log.propensity is not None,
    }  # fmt: skip
    return ["episode", "state", "action", "reward", *(name for name in has if has[name])]


def _joined(logs: Sequence[Log], grouped: bool) -> Log:
    """The rows of several logs as one, in their order, with columns that are called by role.

    An episode that was cut in one and goes on in a later one ended as it did there.
    """
    named = [set(_roles(log)) - {"group"} for log in logs]
    odd = {role for roles in named for role in roles ^ named[0]}
    if odd:
        raise EvidenceError(
            "the days of a group cannot be put together: they have different columns.",
            f"{min(odd)!r} is not on all of them",
            "Read all days with the same columns.",
        )
    arrays: dict[str, list[Any]] = {}
    endings: dict[Label, Any] = {}
    for log in reversed(logs):
        columns = written_columns(log)
        by_role = {role: columns[column_of(log, role)] for role in _roles(log)}
        if grouped:
            by_role.setdefault("group", by_role["episode"])
        if "ended" in by_role and len(logs) > 1:
            own = by_role["ended"][log.starts[:-1]]
            for i, label in enumerate(log.episodes):
                if log.ended[i] == CUT and label in endings:
                    own[i] = endings[label]
            endings |= dict(zip(log.episodes, own, strict=True))
            by_role["ended"] = np.repeat(own, log.lengths)
        for role, values in by_role.items():
            arrays.setdefault(role, []).insert(0, values)
    for role, parts in arrays.items():
        kinds = {part.dtype.kind.replace("U", "O") for part in parts}
        if len(kinds) > 1:
            raise EvidenceError(
                "the days of a group cannot be put together: a column has another type.",
                f"{role}: {' and '.join(sorted({part.dtype.name for part in parts}))}",
                "Write the column in the same way on all days.",
            )
    joined: Any = {role: np.concatenate(parts) for role, parts in arrays.items()}
    events = dict.fromkeys(event for log in logs for event in log.events)
    return from_arrays(**joined, events=list(events) or None)
