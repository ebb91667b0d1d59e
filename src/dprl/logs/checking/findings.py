"""Finding and CheckResult: the result of checking a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dprl._core.table import SHORT, Result, Table, in_notebook, many
from dprl._core.words import either, worded
from dprl.errors import LogError
from dprl.logs.encoding.gaps import gap_counts
from dprl.logs.log import Log

if TYPE_CHECKING:
    from dprl.logs.source import LogInParts


Level = Literal["error", "warning", "note"]
Place: TypeAlias = Callable[[int], str]
"""Number of a row of the source, from 0 → where it is, in the words of messages."""
ORDER = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing about a log.

    Attributes:
        level: "error" (the log cannot be used like this), "warning" (it can, but look at it) or
            "note".
        rule: The name of the rule that found it.
        what: What was found, with numbers.
        where: The first place where it was found; may be empty.
        do: What to do about it; may be empty.
    """

    level: Level
    rule: str
    what: str
    where: str = ""
    do: str = ""

    def error(self) -> LogError:
        """This finding as an exception that can be raised."""
        return LogError(self.what, self.where, self.do)

    def __str__(self) -> str:
        first = f"first: {self.where}" if self.where else ""
        return "\n  ".join(x for x in (f"{self.level}: {self.what}", first, self.do) if x)


def sorted_findings(findings: list[Finding]) -> tuple[Finding, ...]:
    """Errors first, then warnings, then notes."""
    return tuple(sorted(findings, key=lambda f: ORDER[f.level]))


@dataclass(frozen=True)
class Whole:
    """What findings say of the source as a whole.

    Attributes:
        n: Number of its rows.
        episodes: Number of its episodes.
        place: Says where a row is.
        outcomes: Says on which rows rewards are recorded; None where that is not known.
    """

    n: int
    episodes: int
    place: Place
    outcomes: Callable[[], Any]


@dataclass(frozen=True)
class Found:
    """Rows of a chunk that break a rule. Two of them add up to what the rule finds in both chunks.

    A chunk is whole episodes of a source, so numbers of rows and episodes are sums, and the first
    row is the smaller of two. Words are filled once all chunks were seen: {rows}, {n} (of all),
    {touched} ("3 episodes"), {touched_number}, {runs}, {episodes} (of all), {place}, and `values`.

    Attributes:
        rows: How many rows break the rule.
        first: The number of the first of them in the source, from 0.
        what: What is wrong, with numbers.
        where: The first place. Default "{place}".
        do: What to do about it.
        touched: How many episodes these rows are of.
        values: What the words name beside these numbers, of the first row.
    """

    rows: int
    first: int
    what: str
    where: str = "{place}"
    do: str = ""
    touched: int = 0
    values: Mapping[str, Any] = field(default_factory=dict)

    def __add__(self, other: Any) -> Any:
        early = self if self.first <= other.first else other
        return replace(early, rows=self.rows + other.rows, touched=self.touched + other.touched)

    def finding(self, level: Level, rule: str, whole: Whole) -> Finding:
        """The finding about all rows of the source, once all chunks were seen."""
        numbers = {
            "rows": self.rows,
            "n": whole.n,
            "touched": many(self.touched, "episode"),
            "touched_number": self.touched,
            "episodes": whole.episodes,
            "runs": self.rows + whole.episodes,
            "place": whole.place(self.first) if "{place}" in self.where else "",
        }
        words = (text.format(**numbers, **self.values) for text in (self.what, self.where, self.do))
        return Finding(level, rule, *words)


@dataclass(frozen=True)
class CheckResult(Result):
    """The result of `dprl.check`.

    Attributes:
        findings: Errors first, then warnings, then notes.
        log: The log, if one could be made (rows with errors left out), else None; in parts, if that
            was asked for.

    Example:
        >>> import dprl
        >>> result = dprl.check(dprl.envs.risky_arms().sample(50, seed=0))
        >>> result.ok, result.findings[0].level
        (True, 'note')
    """

    findings: tuple[Finding, ...]
    log: Log | LogInParts | None

    @property
    def ok(self) -> bool:
        """Whether the log can be read as it is: no finding is an error."""
        return not any(f.level == "error" for f in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The size of the log and all findings.

        Returns:
            Values that JSON can hold: "ok", "log" (None where none could be made), "findings", and
            of a time to event "curves", the rows of `Log.curves`.

        Example:
            >>> import dprl
            >>> result = dprl.check(dprl.envs.risky_arms().sample(50, seed=0))
            >>> result.to_dict()["log"]["episodes"]
            50
        """
        log, size = self.log, None
        if log is not None:
            whole = log if isinstance(log, Log) else None  # a log in parts has no features
            names = () if whole is None else whole.feature_names
            size = {
                "episodes": log.n_episodes,
                "groups": log.n_groups,
                "steps": log.n_steps,
                "states": log.n_states,
                "features": len(names),
                "actions": log.n_actions,
                "categories": {}
                if whole is None
                else {name: list(own) for name, own in whole.categories.items()},
                "missing": {}
                if whole is None
                else {
                    name: int(n) for name, n in zip(names, whole.missing.tolist(), strict=True) if n
                },
                "missing_by_action": None if whole is None else gap_counts(whole),
                "digest": log.digest(),
            }
        curves = {} if self._curves is None else {"curves": self._curves.to_dicts()}
        return {"ok": self.ok, "log": size, "findings": [vars(f) for f in self.findings], **curves}

    def table(self) -> Table:
        """The findings, one row each.

        Returns:
            A table with the columns level, rule, what, where and do.

        Example:
            >>> import dprl
            >>> dprl.check(dprl.envs.risky_arms().sample(50, seed=0)).table()["level"][0]
            'note'
        """
        names = ("level", "rule", "what", "where", "do")
        return Table({name: [getattr(f, name) for f in self.findings] for name in names})

    def _repr_html_(self) -> str:
        *head, counts = self._head().splitlines()
        return in_notebook(head[-1], [*head[:-1], counts, *map(str, self.findings)])

    @property
    def about(self) -> str:
        """What the outcome is and which way is better, in a sentence; '' without a log."""
        if self.log is None:
            return ""
        columns = self.log.facts.columns
        return self.log.facts.outcome.words(str(columns.get("reward", "")))

    def brief(self) -> list[str]:
        """What is printed of it: as many findings as fit, the worst first, each whole.

        Returns:
            The lines.

        Example:
            >>> import dprl
            >>> len(dprl.check(dprl.envs.risky_arms().sample(50, seed=0)).brief()) <= 8
            True
        """
        rest = self._head().removeprefix(self.about).split("\n")
        lines = [line for line in (self.about, *rest) if line]
        left = len(self.findings)
        for finding in self.findings:
            words = str(finding).splitlines()
            if len(lines) + len(words) > SHORT - (left > 1):
                break
            lines, left = [*lines, *words], left - 1
        if left == len(self.findings) > 0:  # the first alone is longer than that
            lines += str(self.findings[0]).splitlines()[: SHORT - len(lines) - 1]
        if not left:
            return lines
        how = either("check.details()", "--details")
        return [
            *lines,
            worded("{n} in all: {how} shows them.", n=many(self.findings, "finding"), how=how),
        ]

    def details(self) -> str:
        """All findings, as text; of a time to event also the curves by action.

        Returns:
            The text.

        Example:
            >>> import dprl
            >>> result = dprl.check(dprl.envs.risky_arms().sample(50, seed=0))
            >>> result.details().splitlines()[1]
            'Log: 50 episodes · 100 steps · 11 states · 10 actions'
        """
        curves = [] if self._curves is None else [str(self._curves)]
        return "\n".join([self._head(), *map(str, self.findings), *curves])

    @property
    def _curves(self) -> Table | None:
        """The curves of a time to event."""
        if isinstance(self.log, Log) and "duration" in self.log.more:
            return self.log.curves()
        return None

    def _head(self) -> str:
        head = f"{self.about}\n{self.log!r}" if self.log is not None else "No log could be read."
        count = {k: sum(f.level == k for f in self.findings) for k in ("error", "warning", "note")}
        counts = " · ".join(f"{n} {k}{'s' * (n != 1)}" for k, n in count.items())
        return f"{head}\n{counts}"
