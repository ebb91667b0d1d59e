"""Rules about a finished log; each rule is one small function, registered where it stands.

Rules look at `LogSums`: numbers that add up over the parts of a log, so that the same functions
judge a log in memory and one in parts. What needs all rows at once looks at `sums.log`, which a log
in parts does not have. For a new rule: one function with `log_rule` above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dprl._core.arrays import Bools, Codes, Floats, Ints
from dprl._core.table import first_few, form, many
from dprl._core.words import api, either, option, worded
from dprl.logs.checking.findings import Finding
from dprl.logs.encoding.doses import column_label
from dprl.logs.encoding.features import place_of
from dprl.logs.encoding.gaps import gap_counts, gap_shares
from dprl.logs.log import EVENT, UNKNOWN, Label, Log, named_endings
from dprl.logs.reading.also import falls_in
from dprl.logs.reading.columns import blocks
from dprl.logs.reading.dates import SINCE
from dprl.logs.source import LogFacts
from dprl.logs.survival import survival_findings
from dprl.logs.unseen import weights_finding

if TYPE_CHECKING:
    from dprl.logs.source import Chunk, LogInParts


# --- Columns that fix the action: the dose that was given, left among what is known beforehand
#
# Where a column tells the action, nothing can be compared: at one value of it everybody did the
# same. A column tells the action if, of the errors that one makes by naming the most frequent
# action always, nearly none is left by naming the most frequent action at each value of the column.

NEARLY = 0.95
"""A column that takes away this share of the errors fixes the action."""
ROWS = 200_000
"""The most rows that are looked at, spread over the log."""
EACH = 20
"""Rows that a value, or a range of values, has on average at least."""
RANGES = 256
"""The most ranges into which numbers are cut."""
SHOWN = 4
MORE = ", {n:,} more"


class Telling(NamedTuple):
    """How well a column tells the action.

    Attributes:
        right: Share of rows with the most frequent action of their value.
        usual: Share of rows with the most frequent action of all.
        values: Number of values, or of ranges of values.
    """

    right: float
    usual: float
    values: int

    @property
    def fixes(self) -> bool:
        """Whether the column fixes the action, completely or nearly."""
        return self.usual < 1 and 1 - self.right <= (1 - NEARLY) * (1 - self.usual)


def telling(column: Floats, action: Codes) -> Telling | None:
    """How well a column tells the action; None where its values are too many to say so.

    Args:
        column: (N,), numbers or codes of labels; NaN where missing, which is a value of its own.
        action: (N,), codes of the actions.
    """
    n = len(column)
    most = min(RANGES, n // EACH)
    if most < 2:
        return None
    values, groups = np.unique(column, return_inverse=True)
    groups = groups.reshape(-1)
    if len(values) > most:
        edges = np.unique(np.nanquantile(column, np.linspace(0, 1, most)[1:-1]))
        groups = np.where(np.isnan(column), len(edges) + 1, np.searchsorted(edges, column))
    n_actions = int(action.max()) + 1
    cells, rows = np.unique(groups.astype(np.int64) * n_actions + action, return_counts=True)
    best = np.zeros(int(groups.max()) + 1, np.int64)
    np.maximum.at(best, cells // n_actions, rows)
    usual = int(np.bincount(action).max())
    return Telling(int(best.sum()) / n, usual / n, int((best > 0).sum()))


def _columns(log: Log, rows: slice) -> Iterator[tuple[str, str, Floats]]:
    """Where a column stands ("state" or "also"), its name, and its values."""
    if log.features is not None:
        for j, name in enumerate(log.feature_names):
            yield "state", name, log.features[rows, j]
    else:
        yield (
            "state",
            column_label(log.columns.get("state", "state")),
            log.codes()[rows].astype(float),
        )
    if log.also is not None:
        for j, name in enumerate(log.also.names):
            yield "also", name, log.also.numbers(j, rows)


def fixed_actions(log: Log) -> Finding | None:
    """Columns of the state, or beside it, that fix the action completely or nearly."""
    rows = slice(None, None, max(1, log.n_steps // ROWS))
    action = log.action[rows]
    telling_columns: dict[str, list[tuple[str, Telling]]] = {"state": [], "also": []}
    for where, name, column in _columns(log, rows):
        result = telling(column, action)
        if result is not None and result.fixes:
            telling_columns[where].append((name, result))
    of_state, beside = telling_columns["state"], telling_columns["also"]
    if not (of_state or beside):
        return None
    several = [*of_state, *beside]
    listed = [f"{name!r} ({result.right:.1%} of rows)" for name, result in several]
    taken = column_label(log.columns.get("action", "action"))
    usual = several[0][1].usual
    one = len(several) == 1
    advice = []
    if of_state:
        advice.append(
            f"Where it is what was given, or follows from it, take {_names(of_state)} out of the "
            "state: at one value of it nearly all did the same, and nothing can be compared."
        )
    if beside:
        advice.append(
            worded(
                "Leave {names} out of what is compared ({also=}): it tells the action itself, not "
                "why it was taken.",
                names=_names(beside),
            )
        )
    return Finding(
        "warning",
        "fixed_actions",
        f"{'a column fixes' if one else f'{len(several):,} columns fix'} the action {taken!r}: "
        f"{first_few(listed, SHOWN, MORE)} have the action that is usual at that value; the most "
        f"frequent action alone has {usual:.1%}.",
        do=" ".join(advice),
    )


def _names(columns: list[tuple[str, Telling]]) -> str:
    return first_few((repr(name) for name, _ in columns), SHOWN)


# --- Rules about a finished log; each rule is one small function, registered where it stands

MANY = 30
"""The most actions that anyone could compare; more look like doses, or like free text."""
FEW = 10
"""Rows below which hardly anything is known of an action."""
FILLED = ("flag", "median")
"""What can be declared about gaps that are filled when a learner takes the log."""


@dataclass(frozen=True, eq=False)
class LogSums:
    """What the rules ask of a log as a whole; those of two parts add up.

    Attributes:
        facts: What the log says about itself; of the whole log once all parts are added.
        single: Number of episodes of one row, and the first of them.
        shortest: Rows of the shortest episode.
        rewards: The smallest and the largest reward.
        taken: int64 (A,), rows on which each action was taken.
        offered: bool (S, M), whether a menu was offered in a state; None without menus or labels.
        chances: Rows on which the chance of the action is known, its smallest and largest value.
        gaps: As `gap_counts` gives them.
        log: The log itself, where all its rows are here.
    """

    facts: LogFacts
    single: tuple[int, Label | None]
    shortest: int
    rewards: tuple[float, float]
    taken: Ints
    offered: Bools | None
    chances: tuple[int, float, float]
    gaps: dict[str, Any] | None
    log: Log | None = None

    @classmethod
    def of(cls, log: Log) -> LogSums:
        """The sums of a log with at least one episode."""
        single = np.flatnonzero(log.lengths == 1)
        offered = None
        if log.available is not None and log.menus is not None and log.state is not None:
            offered = np.zeros((log.n_states, len(log.menus)), bool)
            offered[log.state, log.available] = True
        p = np.zeros(0) if log.propensity is None else log.propensity
        p = p[~np.isnan(p)]
        return cls(
            log.facts,
            (len(single), log.episodes[single[0]] if len(single) else None),
            int(log.lengths.min()),
            (float(log.reward.min()), float(log.reward.max())),
            _counts(log.action, log.n_actions),
            offered,
            (len(p), float(p.min(initial=np.inf)), float(p.max(initial=-np.inf))),
            gap_counts(log),
            log,
        )

    def __add__(self, other: LogSums) -> LogSums:
        n, low, high = other.chances
        both = [x for x in (self.single[1], other.single[1]) if x is not None]
        offered = self.offered
        if offered is not None and other.offered is not None:
            offered = offered | other.offered
        return replace(
            self,
            single=(self.single[0] + other.single[0], min(both, default=None)),
            shortest=min(self.shortest, other.shortest),
            rewards=(
                min(self.rewards[0], other.rewards[0]),
                max(self.rewards[1], other.rewards[1]),
            ),
            taken=self.taken + other.taken,
            offered=offered,
            chances=(self.chances[0] + n, min(self.chances[1], low), max(self.chances[2], high)),
            gaps=_sum_of_gaps(self, other),
            log=None,
        )

    def name(self, part: str) -> str:
        """The name of the column that plays a part."""
        return column_label(self.facts.columns.get(part, part))


def _counts(codes: Codes, size: int) -> Ints:
    """How many rows have each code; some rows at a time, since each is made 8 bytes for it."""
    counts = np.zeros(size, np.int64)
    for a, b in blocks(len(codes)):
        counts += np.bincount(codes[a:b], minlength=size)
    return counts


def _sum_of_gaps(one: LogSums, two: LogSums) -> dict[str, Any] | None:
    """The gaps of two parts together."""
    if one.gaps is None and two.gaps is None:
        return None
    taken, columns = one.taken + two.taken, dict[str, list[int]]()
    for gaps in (one.gaps, two.gaps):
        for name, rows in (gaps or {"columns": {}})["columns"].items():
            before = columns.get(name, [0] * len(rows))
            columns[name] = [a + b for a, b in zip(before, rows, strict=True)]
    return {
        "rows": int(taken.sum()),
        "actions": [[label, n] for label, n in zip(one.facts.actions, taken.tolist(), strict=True)],
        "columns": columns,
    }


LOG_RULES: list[Callable[[LogSums], Finding | None]] = []
"""All rules about a finished log."""


def log_rule(ask: Callable[[LogSums], Finding | None]) -> Any:
    """Register the function below as a rule about a finished log."""
    LOG_RULES.append(ask)
    return ask


@dataclass(frozen=True)
class SumsOf:
    """The statistic of a source that the rules about a log as a whole are asked of."""

    def of(self, chunk: Chunk) -> LogSums:
        """The sums of a chunk, without its rows."""
        return replace(LogSums.of(chunk.log), log=None)

    def merge(self, one: LogSums, other: LogSums) -> LogSums:
        """The sums of two chunks together."""
        return one + other


def log_findings(log: Log | LogInParts) -> list[Finding]:
    """What the rules find in a log, in memory or in parts."""
    sums = LogSums.of(log) if isinstance(log, Log) else replace(log.reduce(SumsOf()), facts=log)
    found = [f for rule in LOG_RULES if (f := rule(sums)) is not None]
    if isinstance(log, Log):
        weighed = weights_finding(log)
        found += [*survival_findings(log), *([] if weighed is None else [weighed])]
    return found


def _combinations(log: Log) -> str:
    """How many combinations of labels occur, where every feature is a category; else ''."""
    if log.features is None or any(own is None for own in log.levels):
        return ""
    codes = np.where(np.isnan(log.features), -1, log.features)  # a gap is a label too
    seen = len(np.unique(codes, axis=0))
    labels = [len(own or ()) + int((codes[:, j] < 0).any()) for j, own in enumerate(log.levels)]
    possible = math.prod(labels)
    return worded(
        ", and {learner} and Confident join them into one label: {seen:,} of {possible:,} "
        "combinations occur",
        learner=api("DPRLDiscrete"),
        seen=seen,
        possible=possible,
    )


@log_rule
def cut_episodes(sums: LogSums) -> Finding | None:
    """Episodes whose observation stopped before they ended."""
    cut, steps, first = sums.facts.n_cut, sums.facts.cut_steps, sums.facts.first_cut
    if not cut or "survival" in sums.facts.columns:
        return None
    return Finding(
        "warning",
        "cut_episodes",
        f"{cut:,} of {many(sums.facts.n_episodes, 'episode')} ({steps:,} of "
        f"{many(sums.facts.n_steps, 'step')}) {form(cut, 'was', 'were')} cut before "
        f"{form(cut, 'it', 'they')} ended.",
        f"{sums.name('episode')}={first}",
        worded(
            "Where the table has a time and a status, name them ({survival='days,status'}); "
            "otherwise say what to do with them when fitting: {cut=}."
        )
        if sums.facts.n_steps == sums.facts.n_episodes  # a window would hide what was not seen
        else worded(
            "Follow all for a fixed time ({follow_up=}), or say what to do with them when fitting: "
            "{cut=}."
        ),
    )


OFTEN = 0.5
"""A number that may be a time by its name stands newest first where it falls so often."""


@log_rule
def newest_first(sums: LogSums) -> Finding | None:
    """Rows whose order is taken for the time, beside a column of times that says the reverse."""
    log = sums.log
    if log is None or log.time is not None or log.n_steps == log.n_episodes:
        return None
    from dprl.logs.proposal import ColumnFacts  # the words for times

    falling = dict(log.also.falling) if log.also is not None else {}
    if log.features is not None:
        episode = np.repeat(np.arange(log.n_episodes, dtype=np.int32), log.lengths)
        columns = zip(log.feature_names, log.features.T, strict=True)
        falling |= {name: falls_in(values, episode) for name, values in columns}
    apart = log.also.left_out if log.also is not None else {}  # dates as text, or counters
    for name, falls in falling.items():
        named = ColumnFacts(name, "number", 0, 0.0).named("time") and falls > OFTEN
        if falls and (named or name in apart):
            return Finding(
                "warning",
                "newest_first",
                f"{name!r} falls from row to row within an episode at {falls:.0%} of rows, and "
                "rises at fewer; no time is named, so the first row of an episode counts as its "
                "beginning.",
                do=worded(
                    "If it is a time, the rows stand newest first: name it ({time}).",
                    time=option("time", name),
                ),
            )
    return None


@log_rule
def endings(sums: LogSums) -> Finding | None:
    """How many episodes ended in which way; of a time to event `survival_findings` tells it."""
    if sums.facts.ended[UNKNOWN] == sums.facts.n_episodes or "survival" in sums.facts.columns:
        return None
    ended = named_endings(sums.facts.ended, sums.facts.events)
    ways = ", ".join(f"{n:,} {name}" for name, n in ended.items())
    return Finding(
        "note",
        "endings",
        f"{many(sums.facts.n_episodes, 'episode')} ended: {ways}.",
        do="A competing event is an end with what its rewards say, not a cut."
        if sums.facts.ended[EVENT:].any()
        else "",
    )


@log_rule
def one_row_episodes(sums: LogSums) -> Finding | None:
    """Episodes of a single decision."""
    single, first = sums.single
    if not single:
        return None
    every = single == sums.facts.n_episodes
    return Finding(
        "note" if every else "warning",
        "one_row_episodes",
        f"{single:,} of {many(sums.facts.n_episodes, 'episode')} {form(single, 'has', 'have')} one "
        "row only.",
        f"{sums.name('episode')}={first}",
        "Fine for single decisions; otherwise look whether the episode column is the right one.",
    )


@log_rule
def one_action(sums: LogSums) -> Finding | None:
    """Only one action was ever taken."""
    taken = np.flatnonzero(sums.taken)
    if len(taken) != 1:
        return None
    return Finding(
        "warning",
        "one_action",
        f"every step took the same action, {sums.facts.actions[taken[0]]!r}.",
        do="There is nothing to compare: every policy will defer everywhere.",
    )


@log_rule
def fixing_columns(sums: LogSums) -> Finding | None:
    """Columns that fix the action, which needs all rows."""
    return None if sums.log is None else fixed_actions(sums.log)


@log_rule
def many_actions(sums: LogSums) -> Finding | None:
    """More actions than anyone could compare: doses, or labels that nobody put in order."""
    if len(sums.facts.actions) <= MANY:
        return None
    rare = int((sums.taken < FEW).sum())
    name = sums.name("action")
    numbers = all(not isinstance(label, str) for label in sums.facts.actions)
    shown = ", ".join(map(repr, sums.facts.actions[:4]))
    what = (
        f"{name!r} holds {len(sums.facts.actions):,} different "
        f"{'numbers' if numbers else 'labels'}, each of them an action; {rare:,} were taken on "
        f"fewer than {FEW} rows."
    )
    if numbers:
        do = worded(
            "These look like doses: cut them into ranges ({action_bins=4}), or say where "
            "({choice}). Numbers that are names, of items say, can stay as they are.",
            choice=either("action_bins=[0, 10, 50]", "--action-bins 0,10,50"),
        )
    else:
        do = f"Nobody can compare so many: put them into fewer groups, at most about {MANY}."
    return Finding("warning", "many_actions", what, f"{shown}, …", do)


@log_rule
def doses(sums: LogSums) -> Finding | None:
    """Doses that were cut into ranges, with the rows in each."""
    edges = sums.facts.columns.get("action_bins")
    if not edges:
        return None
    listed = [f"{x} ({n:,} rows)" for x, n in zip(sums.facts.actions, sums.taken, strict=True)]
    at = {name: ", ".join(f"{edge:g}" for edge in own) for name, own in edges.items()}
    cut = " and ".join(f"{name!r} at {where}" for name, where in at.items())
    return Finding(
        "note",
        "doses",
        f"doses are cut into ranges, {cut}: {first_few(listed, 8, MORE)}.",
        do="A policy keeps these edges, and later logs are cut at the same places.",
    )


@log_rule
def reward_range(sums: LogSums) -> Finding | None:
    """The smallest and largest reward; single completed ones tell nothing."""
    low, high = sums.facts.outcome.ends(*sums.rewards)
    if low < high and "unseen" in sums.facts.columns:
        return None
    if low < high:
        return Finding("note", "reward_range", f"rewards run from {low:g} to {high:g}.")
    lengths_are_equal = sums.shortest == sums.facts.longest and not sums.facts.n_cut
    return Finding(
        "warning",
        "reward_range",
        f"rewards run from {low:g} to {high:g}: they are all the same.",
        do="Nothing can be learned from a reward that never differs."
        if low == 0 or lengths_are_equal
        else "The return of an episode says only how long it lasted; look whether that is meant.",
    )


@log_rule
def ending_unsaid(sums: LogSums) -> Finding | None:
    """Episodes for which the log does not record how they ended."""
    unsaid = int(sums.facts.ended[UNKNOWN])
    if not unsaid:
        return None
    return Finding(
        "note",
        "ending_unsaid",
        f"{unsaid:,} of {many(sums.facts.n_episodes, 'episode')} {form(unsaid, 'does', 'do')} not "
        f"say how {form(unsaid, 'it', 'they')} ended.",
        do="They are taken as finished; name an ended column if some were cut short.",
    )


@log_rule
def availability_varies(sums: LogSums) -> Finding | None:
    """The available actions differ between visits of one state."""
    if sums.offered is None:
        return None
    varied = np.flatnonzero(sums.offered.sum(axis=1) > 1)
    if not len(varied):
        return None
    return Finding(
        "note",
        "availability_varies",
        f"what is available differs between visits in {len(varied):,} of "
        f"{len(sums.facts.states):,} states.",
        f"{sums.name('state')}={sums.facts.states[varied[0]]}",
        "An action is suggested in a state only if it was available on every visit.",
    )


@log_rule
def missing_features(sums: LogSums) -> Finding | None:
    """Features that are missing on some rows."""
    log = sums.log
    if log is None or log.features is None or not log.missing.any():
        return None
    counts = log.missing
    touched = np.flatnonzero(counts)
    listed = [f"{log.feature_names[j]!r} on {counts[j]:,}" for j in touched.tolist()]
    shown = first_few(listed, 5, ", {n:,} more features on some")
    row = int(np.argmax(np.isnan(log.features[:, touched[0]])))
    words = log.columns.get("missing", {})
    ready = [n for j in touched.tolist() if words.get(n := log.feature_names[j]) in FILLED]
    declared = first_few((f"{n!r} ({words[n]})" for n in ready), 5)
    return Finding(
        "note" if len(ready) == len(touched) else "warning",
        "missing_features",
        f"features are missing on some of {log.n_steps:,} rows: {shown}.",
        place_of(log, row),
        worded(
            "{dprl.Rules} gives missing values a side of their own; any other learner needs them "
            "filled when it learns ({choice}), or such episodes left out "
            "({missing='drop-episodes'}).",
            choice=either('missing="flag" or "median"', "--missing flag"),
        )
        if len(ready) < len(touched)
        else f"Filled when a learner takes the log: {declared}.",
    )


@log_rule
def missing_by_action(sums: LogSums) -> Finding | None:
    """How often each column of the state is missing, by the action taken."""
    counts = sums.gaps
    if counts is None:
        return None
    actions = [label for label, _ in counts["actions"]]
    lines = []
    for name, share, by_action in gap_shares(counts)[:5]:
        own = [f"{a} {p:.1%}" for a, p in zip(actions, by_action, strict=True) if p is not None]
        lines.append(f"{name!r} {share:.1%} of rows ({first_few(own, 6)})")
    more = f"; {len(counts['columns']) - 5:,} more" if len(counts["columns"]) > 5 else ""
    return Finding(
        "note",
        "missing_by_action",
        f"missing, by the action taken: {'; '.join(lines)}{more}.",
        do=worded(
            "Where actions differ in it, that a value was not measured is part of why they were "
            "taken: flag it ({missing='flag'}), so that a policy can see it."
        ),
    )


@log_rule
def categories(sums: LogSums) -> Finding | None:
    """Features that are categories."""
    log = sums.log
    if log is None or not log.levels:
        return None
    listed = [
        f"{name!r} ({len(own)} label{'s' * (len(own) != 1)})"
        for name, own in log.categories.items()
    ]
    return Finding(
        "note",
        "categories",
        f"{len(listed):,} of {len(log.levels):,} features "
        f"{'is a category' if len(listed) == 1 else 'are categories'}: "
        f"{first_few(listed, 5, MORE)}.",
        do=worded(
            "{dprl.Rules} takes labels as they are, {learner2} makes a column of 0 and 1 of each "
            "label{combinations}.",
            learner2=api("DPRLContinuous"),
            combinations=_combinations(log),
        ),
    )


@log_rule
def dates(sums: LogSums) -> Finding | None:
    """Features that are dates."""
    log = sums.log
    days = sums.facts.columns.get("days", {})
    dated = [] if log is None else [name for name in log.feature_names if name in days]
    if log is None or not dated:
        return None
    return Finding(
        "note",
        "dates",
        f"{len(dated):,} of {len(log.feature_names):,} features "
        f"{'is a date' if len(dated) == 1 else 'are dates'}: {', '.join(map(repr, dated[:5]))}.",
        do=f"A date counts as days since {SINCE}. A policy takes dates as the log has them; it "
        "defers on days that training did not have.",
    )


@log_rule
def probabilities_known(sums: LogSums) -> Finding | None:
    """Rows on which the chance of what was done is known."""
    if not sums.facts.has_propensity:
        return None
    rows, low, high = sums.chances
    what = f"{sums.name('propensity')!r} is known on {rows:,} of {sums.facts.n_steps:,} rows"
    if not rows:
        return Finding(
            "warning", "probabilities_known", f"{what}.", do="Leave the column out, or fill it."
        )
    return Finding(
        "note",
        "probabilities_known",
        f"{what}, from {low:g} to {high:g}.",
        do=worded("{dprl.Rules}, evaluation and the gate use it; other learners do not."),
    )


@log_rule
def further_columns(sums: LogSums) -> Finding | None:
    """Columns beside the state, in which takers of a suggestion are compared with others."""
    also = None if sums.log is None else sums.log.also
    if also is None or not (also.names or also.left_out):
        return None
    return Finding(
        "note",
        "further_columns",
        also.words,
        do=worded(
            "No learner sees them; evaluate, report, review and gate compare those who took a "
            "suggestion with the others. Leave out ({also=}) what was recorded after a decision."
        ),
    )
