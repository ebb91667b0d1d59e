"""Verdicts: the reviewers' judgements, in an SQLite file. Rows are added, never changed.

Every verdict is on disk (WAL, synchronous=FULL) before `add` returns, so a crash loses none that
was confirmed; threads and processes take turns by SQLite's own locks. Triggers refuse
updates and deletes. Each row carries a SHA-256 over the row and the hash of the row before it: an
edit with other tools breaks this chain, and opening the file then fails. (A forger could compute a
new chain; it protects against accidents, and allows comparison with an audit trail exported
earlier.)

A file belongs to one policy and one list of changes; opening it with others is refused.
"""

from __future__ import annotations

# Apart: the file of verdicts outlives the page that writes it.
import contextlib
import csv
import hashlib
import io
import json
import os
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dprl._core.checks import check_whole
from dprl._core.disk import replacing, together
from dprl._core.table import many, no_formula
from dprl.apps.reports.changes import Change, Described
from dprl.apps.review.narrowing import kept_words, read_kept
from dprl.errors import DprlError, ParameterError, PolicyError
from dprl.policies.protocol import DeferringPolicy
from dprl.policies.rules.text import rules_of

# --- Verdicts: the reviewers' judgements, in an SQLite file. Rows are added, never changed

WORDS: Final = ("agree", "disagree", "unsure")
NAME, COMMENT = 100, 4000
"""Largest number of characters of a reviewer's name and of a comment."""

APPLICATION = 0x6470726C
TABLES = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE verdicts (
      id INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, reviewer TEXT NOT NULL,
      change TEXT NOT NULL, verdict TEXT NOT NULL, comment TEXT NOT NULL, chain TEXT NOT NULL,
      narrowed TEXT NOT NULL DEFAULT ''
    )""",
    *(
        f"CREATE TRIGGER no_{what}_of_{table} BEFORE {what} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'rows are never changed'); END"
        for table in ("facts", "verdicts")
        for what in ("UPDATE", "DELETE")
    ),
)


COLUMN = "narrowed TEXT NOT NULL DEFAULT ''"
"""The column that earlier versions did not have; it was then added to their files."""


def _schema(statements: Iterable[str]) -> set[str]:
    """Statements that make tables and triggers, without the spaces between their words."""
    return {"".join(sql.split()) for sql in statements}


def _is_ours(db: sqlite3.Connection) -> bool:
    """Whether a file has these tables and triggers and nothing else: no view, no other trigger."""
    found = db.execute("SELECT name, sql FROM sqlite_master")
    made = _schema(str(sql) for name, sql in found if name != "sqlite_sequence")
    before = [sql.replace(f",\n      {COLUMN}", "") for sql in TABLES]
    added = [
        sql.replace("chain TEXT NOT NULL\n", f"chain TEXT NOT NULL, {COLUMN}\n") for sql in before
    ]
    return made in (_schema(TABLES), _schema(before), _schema(added))


class NotStoredError(PolicyError):
    """A verdict could not be stored: it does not count."""


@dataclass(frozen=True)
class Verdict:
    """One reviewer's verdict on one change, at one time.

    Attributes:
        id: Rising number; the order in which verdicts were given.
        time: Time of the verdict, UTC, ISO 8601.
        reviewer: The name that the reviewer gave; it is not checked.
        change: The key of the change.
        verdict: "agree", "disagree" or "unsure".
        comment: A comment; may be empty.
        chain: SHA-256 over the chain of the row before and this row.
        narrowed: The narrower rule that the verdict is about, with the facts that were seen, as
            JSON; '' where the change was judged as it stands.
    """

    id: int
    time: str
    reviewer: str
    change: str
    verdict: str
    comment: str
    chain: str
    narrowed: str = ""

    @property
    def form(self) -> str:
        """Which form of the change it is about: the conditions of a narrower rule, or ''."""
        if not self.narrowed:
            return ""
        return json.dumps(json.loads(self.narrowed)["conditions"], sort_keys=True)


def _chain(before: str, row: Sequence[str | int]) -> str:
    text = json.dumps([before, *row], ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def tidy_name(name: str) -> str:
    """A reviewer's name with single spaces; a ParameterError where it is no name."""
    tidy = " ".join(unicodedata.normalize("NFC", name).split())
    odd = any(unicodedata.category(ch) in ("Cc", "Cf", "Cs") for ch in tidy)
    if not tidy or len(tidy) > NAME or odd:
        raise ParameterError(
            f"a reviewer's name needs 1 to {NAME} visible characters; got {name[:40]!r}.",
            do="Write the name a colleague would know you by.",
        )
    return tidy


def who(name: str) -> str:
    """The name by which a reviewer is recognised: case and width of letters do not matter."""
    return unicodedata.normalize("NFKC", name).casefold()


class Verdicts:
    """The verdicts on one policy's changes.

    Args:
        path: An SQLite file; it is made where there is none.
        policy: Digest of the policy.
        changes: The keys of the policy's changes.
    """

    def __init__(
        self, path: str | os.PathLike[str], policy: str, changes: Sequence[str], log: str = ""
    ) -> None:
        self.path, self.changes = Path(path), frozenset(changes)
        listed = hashlib.sha256("\n".join(sorted(changes)).encode()).hexdigest()
        facts = {"policy": policy, "changes": listed, "log": log}
        try:
            with contextlib.suppress(
                OSError
            ):  # names and comments: only the owner may read the file
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with self._open() as db:
                self._claim(db, facts)
            self.all()
        except sqlite3.Error as error:
            raise PolicyError(
                f"{self.path.name!r} cannot hold verdicts: {error}.",
                str(self.path),
                "Name another file with --verdicts.",
            ) from error

    @contextlib.contextmanager
    def held(self) -> Iterator[list[Verdict]]:
        """Every verdict; until the end of the block no thread or process can add one."""
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield self.all()
            finally:
                db.execute("ROLLBACK")

    @contextlib.contextmanager
    def _said_if_not_stored(self) -> Iterator[None]:
        """Turn an error of the database (a full disk, a file taken away) into three lines."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise NotStoredError(
                f"the verdict was NOT stored: {error}.",
                str(self.path),
                "Make room on the disk, or mend what is wrong with the file; then give it again.",
            ) from error

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self.path, timeout=30.0, isolation_level=None)
        try:
            db.execute("PRAGMA synchronous=FULL")
            yield db
        except UnicodeDecodeError as error:  # what SQLite says of a damaged file quotes its bytes
            raise sqlite3.DatabaseError("it is damaged") from error
        finally:
            db.close()

    def _claim(self, db: sqlite3.Connection, facts: dict[str, str]) -> None:
        """Make the tables in a new file; refuse a file of something else."""
        empty = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if not empty and db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise sqlite3.DatabaseError("it is a database of something else")
        if not empty and not _is_ours(db):
            raise self._changed("its tables and triggers are not those of verdicts")
        db.execute("PRAGMA trusted_schema=OFF")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("BEGIN IMMEDIATE")
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            for statement in TABLES:
                db.execute(statement)
            db.execute(f"PRAGMA application_id={APPLICATION}")
            db.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
        stored = dict(db.execute("SELECT name, value FROM facts"))
        if "narrowed" not in [row[1] for row in db.execute("PRAGMA table_info(verdicts)")]:
            # A file of an earlier version: rows without a narrowing keep their chain.
            db.execute("ALTER TABLE verdicts ADD COLUMN narrowed TEXT NOT NULL DEFAULT ''")
        db.execute("COMMIT")
        for name, what in (
            ("policy", "another policy"), ("changes", "another log"), ("log", "another log"),
        ):  # fmt: skip
            if stored.get(name) != facts[name]:
                raise PolicyError(
                    f"{self.path.name!r} holds verdicts on {what}.",
                    f"{name} {str(stored.get(name))[:12]}… there, {facts[name][:12]}… here",
                    "A verdict is on what was seen: name another file with --verdicts.",
                )

    def add(
        self, change: str, reviewer: str, verdict: str, comment: str = "", narrowed: str = ""
    ) -> Verdict:
        """Record a verdict; it is on disk when this returns."""
        change, reviewer, verdict, comment = self.checked(change, reviewer, verdict, comment)
        with self._said_if_not_stored(), self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            last = db.execute("SELECT id, chain FROM verdicts ORDER BY id DESC LIMIT 1").fetchone()
            number, before = (last[0] + 1, last[1]) if last else (1, "")
            time = datetime.now(UTC).isoformat(timespec="microseconds")
            row = (number, time, reviewer, change, verdict, comment)
            recorded = Verdict(*row, _chain(before, (*row, *_told(narrowed))), narrowed)
            db.execute(
                "INSERT INTO verdicts (id, time, reviewer, change, verdict, comment, chain, "
                "narrowed) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, recorded.chain, narrowed),
            )
            db.execute("COMMIT")
        return recorded

    def checked(
        self, change: str, reviewer: str, verdict: str, comment: str
    ) -> tuple[str, str, str, str]:
        """These parts of a verdict, tidied; a ParameterError where they make none."""
        reviewer = tidy_name(reviewer)
        comment = comment.replace("\r\n", "\n").strip()
        if change not in self.changes:
            raise ParameterError(f"there is no change {change[:40]!r}.")
        if verdict not in WORDS:
            raise ParameterError(f"a verdict is one of {', '.join(WORDS)}; got {verdict[:40]!r}.")
        if len(comment) > COMMENT or "\x00" in comment or not _encodable(comment):
            raise ParameterError(f"a comment has at most {COMMENT:,} characters, and is text.")
        return change, reviewer, verdict, comment

    def all(self) -> list[Verdict]:
        """Every verdict, in the order given; a PolicyError where the chain is broken."""
        with self._open() as db:
            rows = db.execute(
                "SELECT id, time, reviewer, change, verdict, comment, chain, narrowed "
                "FROM verdicts ORDER BY id"
            ).fetchall()
        before = ""
        for place, row in enumerate(rows, 1):
            *shown, chain, narrowed = row
            why = ""
            if not all(isinstance(x, str) for x in row[1:]) or row[0] != place:
                why = "it is no row of texts in its place"
            elif _chain(before, (*shown, *_told(narrowed))) != chain:
                why = "its chain does not fit"
            else:
                why = self._odd(Verdict(*row))
            if why:
                raise self._changed(f"verdict {place}: {why}")
            before = chain
        return [Verdict(*row) for row in rows]

    def _changed(self, where: str) -> PolicyError:
        return PolicyError(
            f"{self.path.name!r} was changed by other hands.",
            where,
            "Go back to a copy, or to the last audit trail.",
        )

    def _odd(self, verdict: Verdict) -> str:
        """Why this is no verdict that `add` would have stored; '' where it is one."""
        if verdict.change not in self.changes:
            return "its change is none of this policy"
        if verdict.verdict not in WORDS:
            return f"{verdict.verdict[:20]!r} is no verdict"
        if len(verdict.comment) > COMMENT:
            return "its comment is too long"
        try:
            tidy_name(verdict.reviewer)
            kept_words(verdict.narrowed)
        except DprlError as error:
            return error.what
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return "what it narrows cannot be read"
        return ""


def _told(narrowed: str) -> tuple[str, ...]:
    """What a narrowing adds to the chain; nothing where there is none, as in earlier files."""
    return (narrowed,) if narrowed else ()


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class Status:
    """The state of the review of one change.

    Attributes:
        word: "open" (nobody judged it), "approved", "waiting" (too few reviewers agree so far),
            "conflict" (some agree and some do not), "refused" (somebody disagrees, nobody agrees)
            or "unsure".
        latest: The latest verdict of each reviewer who judged it, in the order they were given.
    """

    word: str
    latest: tuple[Verdict, ...]

    @property
    def narrowed(self) -> str:
        """The narrower rule that all agreed on, as JSON; '' where the change is as it stands."""
        agreed = self.word in ("approved", "waiting") and bool(self.latest)
        return self.latest[-1].narrowed if agreed else ""

    @property
    def approved(self) -> bool:
        """Whether the change goes into the approved policy."""
        return self.word == "approved"


def statuses(
    verdicts: Sequence[Verdict], changes: Sequence[str], needs: int = 1
) -> dict[str, Status]:
    """The status of every change.

    A change is approved if the latest verdict of *every* reviewer who judged it is "agree", and
    there are at least `needs` of them. Those who agree must agree to the same: the change as it
    stands, or one and the same narrower rule.
    """
    latest: dict[str, dict[str, Verdict]] = {change: {} for change in changes}
    for verdict in verdicts:
        latest[verdict.change][who(verdict.reviewer)] = verdict
    return {change: _status(list(mine.values()), needs) for change, mine in latest.items()}


def _status(latest: list[Verdict], needs: int) -> Status:
    latest.sort(key=lambda v: v.id)
    words = [v.verdict for v in latest]
    agree = words.count("agree")
    if not words:
        word = "open"
    elif agree == len(words) and len({v.form for v in latest}) > 1:
        word = "conflict"
    elif agree == len(words):
        word = "approved" if agree >= needs else "waiting"
    elif agree:
        word = "conflict"
    else:
        word = "refused" if "disagree" in words else "unsure"
    return Status(word, tuple(latest))


# --- The outcome of a review: a policy of the approved changes alone, and the audit trail as CSV
#
# The policy's provenance names the policy it comes from, the SHA-256 of the audit trail, and how
# many reviewers each change needed. The trail holds every verdict ever given, also those changed
# later, with the chain of hashes of the verdicts' file.

COLUMNS = (
    "id", "time_utc", "reviewer", "change", "situation", "usual", "suggested", "verdict",
    "comment", "narrowed", "latest_of_reviewer", "approved", "chain",
)  # fmt: skip


@dataclass(frozen=True)
class Exported:
    """The files that an export wrote.

    Attributes:
        policy: The policy file.
        audit: The file of the audit trail.
        approved: The keys of the approved changes, which the policy makes.
        changes: Number of changes that were reviewed.
        verdicts: Number of verdicts in the audit trail.
        policy_digest: Digest of the approved policy.
        audit_digest: SHA-256 of the audit trail's bytes.
    """

    policy: Path
    audit: Path
    approved: tuple[str, ...]
    changes: int
    verdicts: int
    policy_digest: str
    audit_digest: str

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry."""
        return {
            **vars(self),
            "policy": str(self.policy),
            "audit": str(self.audit),
            "approved": list(self.approved),
        }

    def __str__(self) -> str:
        return (
            f"{len(self.approved):,} of {many(self.changes, 'change')} approved → {self.policy}\n"
            f"{many(self.verdicts, 'verdict')} → {self.audit}"
        )


def cell(value: Any) -> str:
    """The text, changed so that a spreadsheet does not take it for a formula."""
    return no_formula(str(value).replace("\r\n", "\n").replace("\r", "\n"))


# -- verdicts without a browser: a sheet that is filled in -----------------------------------------

TO_FILL = ("reviewer", "verdict", "comment")


def write_sheet(described: Described, path: Path) -> None:
    """Write the changes as CSV, with columns to fill in; a file that exists is left alone."""
    if path.exists():
        raise ParameterError(
            f"{str(path)!r} exists: what was filled in there would be lost.",
            do="Name another file with --blank, or record it with --filled.",
        )
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(("change", "situation", "usual", "suggested", *TO_FILL))
    for c in described.changes:
        writer.writerow([cell(x) for x in (c.key, c.situation, c.usual, c.suggested, "", "", "")])
    with replacing(path) as part:
        part.write_text(out.getvalue(), encoding="utf-8-sig")


def record_sheet(verdicts: Verdicts, path: Path) -> int:
    """Record what a sheet holds, all rows or none; the number of new verdicts.

    A row without a verdict says nothing, and neither does one that its reviewer gave last.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ParameterError(
            f"the sheet {str(path)!r} cannot be read: {why}.", do="Save it as CSV, in UTF-8."
        ) from error
    head = text.partition("\n")[0]
    rows = csv.DictReader(io.StringIO(text), delimiter=";" if head.count(";") >= 4 else ",")
    lacking = {"change", *TO_FILL} - {*(rows.fieldnames or ())}
    if lacking:
        raise ParameterError(
            f"the sheet {str(path)!r} has no column {sorted(lacking)[0]!r}.",
            do="Begin with the sheet that --blank writes.",
        )
    latest = {(v.change, who(v.reviewer)): (v.verdict, v.comment) for v in verdicts.all()}
    new = []
    for number, row in enumerate(rows, 2):
        parts = [(row[name] or "").strip() for name in ("change", *TO_FILL)]
        if not parts[2]:
            continue
        try:
            change, reviewer, verdict, comment = verdicts.checked(
                parts[0], parts[1], parts[2].lower(), parts[3]
            )
        except ParameterError as error:
            raise ParameterError(
                error.what, f"{path.name}, row {number}", "Nothing was recorded. Mend the sheet."
            ) from error
        if latest.get((change, who(reviewer))) != (verdict, comment):
            new.append((change, reviewer, verdict, comment))
            latest[change, who(reviewer)] = (verdict, comment)
    for each in new:
        verdicts.add(*each)
    return len(new)


def audit(verdicts: Sequence[Verdict], described: Described, needs: int) -> str:
    """The audit trail as CSV."""
    changes = {c.key: c for c in described.changes}
    state = statuses(verdicts, list(changes), needs)
    current = {v.id for s in state.values() for v in s.latest}
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(COLUMNS)
    for v in verdicts:
        c = changes[v.change]
        row = (
            v.id, v.time, v.reviewer, v.change, c.situation, c.usual, c.suggested, v.verdict,
            v.comment, v.narrowed, "yes" if v.id in current else "no",
            "yes" if state[v.change].approved else "no", v.chain,
        )  # fmt: skip
        writer.writerow([cell(x) for x in row])
    return out.getvalue()


def approved_policy(
    described: Described,
    approved: Sequence[Change],
    narrowed: Mapping[str, str] | None = None,
    **noted: Any,
) -> DeferringPolicy:
    """The policy with these changes only; `narrowed`: key of a change → its narrower rule."""
    facts = {"changes": len(approved), "of": len(described.changes), **noted}
    policy = described.policy.limited_to(approved, **facts)
    ruled = rules_of(policy)
    if ruled is None:
        return policy
    for change in approved:
        kept = read_kept((narrowed or {}).get(change.key, ""))
        if kept is not None and change.rule is not None:
            ruled = ruled.narrowed(change.rule.number, kept.conditions, kept.facts)
    return ruled


def write_approved(described: Described, verdicts: Verdicts, out: Path, needs: int = 1) -> Exported:
    """Write `out` and the audit trail beside it, both from the same verdicts.

    No verdict can be added meanwhile, and exports wait for each other, so the last one written
    holds the most verdicts.

    Raises:
        PolicyError: There is no verdict.
    """
    check_whole("needs", needs, 1)
    with verdicts.held() as recorded:
        if not recorded:
            raise nothing_judged(verdicts.path)
        return _write(recorded, described, out, needs)


def nothing_judged(path: Path) -> PolicyError:
    """The refusal to write the outcome of a review that did not take place."""
    return PolicyError(
        "nobody has judged a change of this policy, so there is nothing to write.",
        f"no verdict in {str(path)!r}",
        "Open the page with `dprl review` (without --export), and judge the changes there.",
    )


def _write(verdicts: Sequence[Verdict], described: Described, out: Path, needs: int) -> Exported:
    state = statuses(verdicts, [c.key for c in described.changes], needs)
    approved = [c for c in described.changes if state[c.key].approved]
    trail = audit(verdicts, described, needs).encode()
    digest = hashlib.sha256(trail).hexdigest()
    policy = approved_policy(
        described, approved, {c.key: state[c.key].narrowed for c in approved}, audit=digest,
        needs=needs, log=described.log_digest,
    )  # fmt: skip
    beside = out.with_name(f"{out.stem}-audit.csv")
    with together():
        with replacing(beside, private=True) as part:
            part.write_bytes(trail)
        policy.save(out)
    return Exported(
        out,
        beside,
        tuple(c.key for c in approved),
        len(described.changes),
        len(verdicts),
        policy.digest(),
        digest,
    )
