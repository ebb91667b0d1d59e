"""Run a spec: part after part of the subjects, from events to rows of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprl._core.limits import said_if_short
from dprl._core.words import option, worded
from dprl.errors import LogError, interruptible
from dprl.logs._sources import quoted
from dprl.logs.events._episodes import load_table, make_decisions, make_spans
from dprl.logs.events._fields import UNITS, microseconds, place
from dprl.logs.events._load import Loaded, load
from dprl.logs.events._outcome import make_action, make_reward
from dprl.logs.events._rules import NEED_ROW
from dprl.logs.events._state import make_state

if TYPE_CHECKING:
    from dprl.logs.events.spec import Spec

__all__ = ["begin", "finish_rewards", "make_part", "row_columns", "speaking", "time_of"]


NEVER = -(1 << 62)
"""Stands for the time at which a row is known that never is, where times are compared."""


@contextmanager
def speaking(doing: str, where: str) -> Iterator[None]:
    """Turn DuckDB's errors inside into errors of three lines."""
    import duckdb

    try:
        with interruptible(), said_if_short(doing, where):
            yield
    except duckdb.OutOfMemoryException as error:
        raise LogError(
            f"the memory limit is too small for {doing}.",
            str(error).splitlines()[0],
            worded("Give it more ({memory}), or fewer threads.", memory=option("memory", "8GB")),
        ) from error
    except duckdb.OutOfRangeException as error:
        raise LogError(
            "values are too large to be added.",
            str(error).splitlines()[0][:200],
            "Change their unit, or say which values count with valid = [low, high].",
        ) from error
    except duckdb.ConversionException as error:
        raise LogError("a value is not what its column must be.", str(error).splitlines()[0][:200],
                       "Mend it in the file.") from error  # fmt: skip
    except (duckdb.IOException, duckdb.InvalidInputException) as error:
        raise LogError("the events could not be read.", str(error).splitlines()[0][:200],
                       "Are the files whole?") from error  # fmt: skip


def begin(con: Any, spec: Spec, files: Sequence[str], folder: Path, only: Any = None) -> Loaded:
    """Load the events, and the table of episodes if there is one."""
    loaded = load(con, spec, files, folder, only)
    if spec.episodes.by == "table":
        load_table(con, spec)
    _refuse_points(con, spec, loaded.parts)
    return loaded


def make_part(con: Any, spec: Spec, loaded: Loaded, i: int) -> None:
    """Make the tables of one part: ev, spans, episodes, decisions, state, acted and gained."""
    con.execute(f"CREATE OR REPLACE TEMP TABLE ev AS {loaded.parts[i]}")
    _make_intervals(con, spec)
    make_spans(con, spec, f"hash(subject) % {len(loaded.parts)} = {i}")
    make_decisions(con, spec)
    make_state(con, spec)
    make_action(con, spec)
    make_reward(con, spec)


def _make_intervals(con: Any, spec: Spec) -> None:
    """Add to `ev` the rows that start and stop rows make.

    Of several starts at one time one with a value counts, then the one known last, then the code
    named first, then the lowest value.
    """
    for i, interval in enumerate(spec.intervals):
        longest = microseconds(interval.longest)
        both = f"role IN ('i{i}start', 'i{i}stop') AND t IS NOT NULL"
        con.execute(
            "INSERT INTO ev SELECT s.subject, s.t, "
            f"least(coalesce(b.t, s.t + {longest}), s.t + {longest}) AS u, "
            f"nullif(s.x.k, {NEVER}), {-i - 1} AS id, CASE WHEN s.x.h THEN -s.x.v END FROM ("
            "SELECT subject, t, max({'h': v IS NOT NULL, "
            f"'k': coalesce(k, {NEVER}), 'r': -rank, 'v': coalesce(-v, 0)}}) AS x FROM ev "
            f"JOIN roles USING (id) WHERE role = 'i{i}start' AND t IS NOT NULL GROUP BY "
            "subject, t) AS s "
            "ASOF LEFT JOIN (SELECT DISTINCT subject, t FROM ev JOIN roles USING (id) WHERE "
            f"{both}) AS b "
            "ON s.subject = b.subject AND s.t < b.t"
        )


def _refuse_points(con: Any, spec: Spec, parts: Sequence[str]) -> None:
    """Refuse a dose of rows that have no end."""
    tables = [(f"f{i}", ("feature", i), f) for i, f in enumerate(spec.features)]
    tables += [(f"a{i}", ("action", "part", i), p) for i, p in enumerate(spec.action.parts)]  # type: ignore[misc]
    for role, path, table in tables:
        if table.take != "dose":
            continue
        every = " UNION ALL ".join(
            f"SELECT id FROM ({part}) WHERE u IS NULL AND t IS NOT NULL" for part in parts
        )
        row = con.execute(
            f"SELECT code, count(*) FROM ({every}) JOIN roles USING (id) JOIN codes USING (id) "
            "WHERE role = ? GROUP BY code ORDER BY code LIMIT 1",
            [role],
        ).fetchone()
        if row is not None:
            raise LogError(
                f"{row[1]:,} rows of {row[0]!r} have no end, and a dose needs one.",
                place(spec.lines, (*path, "take")),
                "Take 'sum' or 'amount' of it, or leave these rows out.",
            )


def time_of(column: str, spec: Spec) -> str:
    """SQL of a moment as the user wrote it: a date, or a number in its unit."""
    if not spec.source.time_unit:
        return f"make_timestamp({column})"
    return f"({column} / {UNITS[spec.source.time_unit]}.0)"


def finish_rewards(con: Any, spec: Spec, table: str, n: int) -> None:
    """Refuse decisions without a reward, with the term that is missing."""
    for i, reward in enumerate(spec.rewards):
        if reward.take not in NEED_ROW or reward.missing is not None:
            continue
        count, first = con.execute(
            f"SELECT count(*), min({{'e': episode, 't': time}}) FROM {table} WHERE r{i} IS NULL"
        ).fetchone()
        if count:
            raise LogError(
                f"the reward is missing at {count:,} of {n:,} decisions: there is no row to take "
                f"{reward.take!r} of.",
                f"episode {first['e']}, time {first['t']}; {place(spec.lines, ('reward', i))}",
                "Say what it is there: missing = 0.0.",
            )


def row_columns(spec: Spec) -> str:
    """SQL of one row of the log, from the tables of a part."""
    features = "".join(f", s.{quoted(f.name)}" for f in spec.features)
    terms = [f"r{i}" for i in range(len(spec.rewards))]
    return (
        f'SELECT e.episode, CAST(e.subject AS VARCHAR) AS subject, e.grp AS "group", d.k AS step, '
        f"{time_of('d.t', spec)} AS time{features}, a.action, "
        f"{' + '.join(f'g.{t}' for t in terms)} "
        f"AS reward, e.ended, {', '.join(f'g.{t}' for t in terms)}, e.subject AS key, e.start "
        "FROM decisions AS d JOIN episodes AS e ON d.episode = e.episode "
        "JOIN state AS s ON d.episode = s.episode AND d.k = s.k "
        "JOIN acted AS a ON d.episode = a.episode AND d.k = a.k "
        "JOIN gained AS g ON d.episode = g.episode AND d.k = g.k"
    )
