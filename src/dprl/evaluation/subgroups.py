r"""Subgroups: is a policy good for everybody, or does somebody pay for the others?

An episode belongs to a subgroup by the value of a column at its first step. The difference that the
policy makes in a subgroup is that of its episodes alone:

    WDR - mean return        (without a model of values: WIS - mean return)

These estimates divide by the sum of the weights (`dprl.evaluation.estimators`), which matters
here: where practice depends on a column that is not in the state, the weights of a subgroup do not
have mean 1, and an estimate that supposes it would call that a gain or a loss.

Intervals hold for all subgroups at once (max-t): mean ± c · se. Groups of the log are drawn with
replacement, the same draw for all subgroups; se_k is the standard deviation of the estimate of
subgroup k over the draws, and c the quantile, at the level, of max_k |draw_k - estimate_k| / se_k.
Numbers are cut into bands at their quartiles. They are as many times longer for the error of the
models as that of all together (`dprl.evaluation._evaluate`), and there are none where that has
none.

Where the effective sample size of those who reach a step at which the policy differs is below
`ENOUGH`, the log cannot say.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dprl._core.arrays import Bools, Floats
from dprl._core.bootstrap import counts
from dprl._core.table import Result, Table, to_json_value
from dprl._core.words import either, joined, say, say_many, sentences, worded
from dprl.errors import ParameterError
from dprl.evaluation.bootstrap import Bootstrap
from dprl.evaluation.divergence import reached
from dprl.evaluation.estimators import ESTIMATORS, Weighted, headline
from dprl.evaluation.result import ENOUGH
from dprl.logs.log import Log
from dprl.logs.outcome import UNDECLARED, Outcome

FEW_VALUES = 5
"""Numbers with at most so many different values are subgroups of their own, without bands."""
MOST = 50
"""Subgroups at most, over all columns."""
LEANS = {"leans up": "leans down", "leans down": "leans up"}
"""Which way a difference leans where its sign changes."""
NAMED = 5
"""Subgroups that one warning names."""


@dataclass(frozen=True)
class Subgroup:
    """What a policy does to some of the episodes.

    Attributes:
        column: The column.
        value: The label, the band of numbers in words, or "missing".
        episodes: Number of episodes.
        groups: Number of groups of the log they belong to.
        changed: Share of their steps at which the policy changes the usual action.
        reached: Number of groups that reach a step at which the policy differs from practice.
        ess: Effective sample size of these.
        weight: Mean importance weight of its episodes; 1 is expected.
        difference: Estimated difference to usual practice, in units of returns.
        low: Lower end of its interval, which holds for all subgroups at once; None without one.
        high: Upper end of the same interval.
        verdict: "gains" or "loses" (the interval lies above or below 0), "leans up" or
            "leans down", "cannot say" (too few), or "not changed".
    """

    column: str
    value: str
    episodes: int
    groups: int
    changed: float
    reached: int
    ess: float
    weight: float
    difference: float
    low: float | None
    high: float | None
    verdict: str

    @property
    def words(self) -> str:
        """The subgroup with its numbers, for a sentence."""
        ends = say("{difference:+.3g}", difference=self.difference)
        if self.low is not None:
            ends = say(
                "{difference:+.3g}, {low:+.3g} to {high:+.3g}",
                difference=self.difference,
                low=self.low,
                high=self.high,
            )
        count = say_many("{n:,} episode", "{n:,} episodes", self.episodes)
        return joined("", (self.column, " ", self.value, " (", ends, "; ", count, ")"))


@dataclass(frozen=True)
class Subgroups(Result):
    """The difference that a policy makes in subgroups of a log; from `dprl.evaluate(by=...)`.

    Attributes:
        rows: The subgroups, by column in the order asked for.
        by: The columns.
        estimator: "WDR", or "WIS" where there is no model of values.
        level: Probability with which all intervals hold at once, in large samples.
        outcome: What the returns are; differences are in its direction.
    """

    rows: tuple[Subgroup, ...]
    by: tuple[str, ...]
    estimator: str
    level: float
    outcome: Outcome = UNDECLARED

    def shown(self, outcome: Outcome) -> Subgroups:
        """The same in the direction of an outcome; what is a gain stays one."""
        if not outcome.falls:
            return self
        rows = []
        for row in self.rows:
            facts = outcome.facts(asdict(row))
            facts["verdict"] = LEANS.get(row.verdict, row.verdict)
            rows.append(Subgroup(**facts))
        return replace(self, rows=tuple(rows), outcome=outcome)

    @property
    def loses(self) -> bool:
        """Whether the policy is surely worse than usual practice in some subgroup."""
        return any(row.verdict == "loses" for row in self.rows)

    @property
    def grouped(self) -> bool:
        """Whether the log has groups of several episodes."""
        return any(row.groups < row.episodes for row in self.rows)

    def table(self) -> Table:
        """One row per subgroup."""
        names = ("column", "value", "episodes", "groups", "changed", "ess", "weight",
                 "difference", "low", "high", "verdict")  # fmt: skip
        columns: dict[str, Sequence[Any]] = {
            name: [getattr(row, name) for row in self.rows] for name in names
        }
        if not self.grouped:
            del columns["groups"]
        return Table(
            columns,
            f"Difference to usual practice by {', '.join(self.by)} ({self.estimator})",
            note=f"changed: share of the steps that would change; ess: effective sample size where "
            f"the policy differs from practice, below {ENOUGH} this log cannot say; low, high: "
            f"{100 * self.level:g} % intervals of all subgroups at once (max-t over bootstraps, "
            "large samples); weight: mean weight, far from 1 where practice depends on the column "
            "beyond the state.",
        )

    def warnings(self) -> list[str]:
        """Who may lose, one sentence each."""
        sure = [row for row in self.rows if row.verdict == "loses"]
        worse = LEANS["leans down"] if self.outcome.falls else "leans down"
        lean = [row for row in self.rows if row.verdict == worse]
        dark = [row for row in self.rows if row.verdict == "cannot say" and self._worse(row)]
        cautions = []
        if sure:
            cautions.append(
                say(
                    "the policy is worse than usual practice for {list}: do not use it there.",
                    list=_listed(sure),
                )
            )
        if lean:
            cautions.append(
                sentences(
                    say(
                        "worse than usual practice, but not surely: {list}.",
                        list=_listed(lean),
                    ),
                    say("Look at these subgroups before use."),
                )
                if len(lean) > 1
                else sentences(
                    say(
                        "worse than usual practice, but not surely: {list}.",
                        list=_listed(lean),
                    ),
                    say("Look at this subgroup before use."),
                )
            )
        if dark:
            cautions.append(
                say(
                    "this log cannot say, and the estimate is worse than usual practice: {list}.",
                    list=_listed(dark),
                )
            )
        return cautions

    def _worse(self, row: Subgroup) -> bool:
        return bool(self.outcome.shown(row.difference) < 0)

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry."""
        facts = asdict(self)
        del facts["outcome"]
        return dict(to_json_value({**facts, "warnings": self.warnings()}))


def _listed(rows: Sequence[Subgroup]) -> str:
    named = joined("; ", (row.words for row in rows[:NAMED]))
    if len(rows) <= NAMED:
        return named
    return say("{names} and {n} more", names=named, n=len(rows) - NAMED)


def check_by(by: str | Sequence[str] | None, log: Log) -> tuple[str, ...]:
    """The columns that subgroups are made of; refused where one is not in the log."""
    if by is None:
        return ()
    names = (by,) if isinstance(by, str) else tuple(by)
    there = [*(log.also.names if log.also is not None else ()), *log.feature_names]
    if log.state is not None:
        there.append(_state_name(log))
    for name in names:
        if name not in there:
            near = difflib.get_close_matches(str(name), there, n=1)
            left_out = log.also.left_out if log.also is not None else {}
            raise ParameterError(
                f"there is no column {name!r} to make subgroups of.",
                f"left out when reading: {left_out[name]}"
                if name in left_out
                else f"the columns are {', '.join(map(repr, there[:12]))}",
                f"Did you mean {near[0]!r}?"
                if near
                else worded(
                    "Read the log with it: {choice}.",
                    choice=either(f"also=[{name!r}]", f"--also {name}"),
                ),
            )
    return tuple(dict.fromkeys(names))


def columns_by(by: Sequence[str] | None, log: Log) -> list[str] | None:
    """Names with commas between them, as the command line takes them, one by one.

    A column that has a comma in its name is taken as it is.
    """
    if by is None:
        return None
    there = {*log.feature_names, *(log.also.names if log.also is not None else ())}
    words = [[word] if word in there else word.split(",") for word in by]
    return [name.strip() for names in words for name in names if name.strip()]


def _state_name(log: Log) -> str:
    name = log.columns.get("state", "state")
    return name if isinstance(name, str) else "state"


def _values(log: Log, name: str) -> tuple[Floats, Sequence[Any] | None]:
    """float64 (E,): the column at the first step of every episode, and its labels if it has any."""
    first = log.starts[:-1]
    if log.also is not None and name in log.also.names:
        j = log.also.names.index(name)
        return log.also.numbers(j, first), log.also.levels[j]
    if name in log.feature_names:
        j = log.feature_names.index(name)
        return np.asarray(log.features)[first, j], log.levels[j] if log.levels else None
    return log.codes()[first].astype(np.float64), log.states


def _members(log: Log, name: str) -> list[tuple[str, Bools]]:
    """(value in words, bool (E,)) of every subgroup of one column; missing comes last."""
    x, labels = _values(log, name)
    gone = np.isnan(x)
    values = np.unique(x[~gone])
    if labels is not None:
        members = [(str(labels[int(v)]), x == v) for v in values]
    elif len(values) <= FEW_VALUES:
        members = [(f"{v:g}", x == v) for v in values]
    else:
        cuts = np.unique(np.quantile(x[~gone], [0.25, 0.5, 0.75], method="inverted_cdf"))
        cuts = cuts[cuts < values[-1]]  # a band holds its upper end
        band = np.searchsorted(cuts, x, side="left")
        between = [say("above {a:.4g} to {b:.4g}", a=a, b=b) for a, b in itertools.pairwise(cuts)]
        words = [
            say("up to {x:.4g}", x=cuts[0]),
            *between,
            say("above {x:.4g}", x=cuts[-1]),
        ]
        members = [(word, ~gone & (band == k)) for k, word in enumerate(words)]
    if gone.any():
        members.append((say("missing"), gone))
    return [(word, rows) for word, rows in members if rows.any()]


def subgroups(
    by: tuple[str, ...],
    log: Log,
    weighted: Weighted,
    changed: Bools,
    apart: Bools,
    never: Bools,
    *,
    model: bool,
    level: float,
    draws: int,
    seed: int,
    wider: float,
    members: Sequence[tuple[str, str, Bools]] | None = None,
) -> Subgroups:
    """The difference that the policy makes in every subgroup.

    Args:
        by: The columns.
        log: The settled log.
        weighted: Its trajectories with their weights.
        changed: bool (N,), steps at which the policy changes the usual action.
        apart: bool (N,), steps at which it differs from practice.
        never: bool (N,), steps at which something was done that the policy never does.
        model: Whether there is a model of values.
        level: Probability with which all intervals hold at once.
        draws: Number of bootstrap draws.
        seed: Seed of the draws.
        wider: How many times as long intervals are for the error of the models; NaN where there is
            none, for all together neither.
        members: What it is a subgroup of, its name and its episodes, bool (E,), where these are not
            values of columns. Default None: they are.
    """
    if members is None:
        members = [(name, word, rows) for name in by for word, rows in _members(log, name)]
    if len(members) > MOST:
        raise ParameterError(
            f"{', '.join(by)} make {len(members)} subgroups; at most {MOST} can be compared.",
            do="Put labels into fewer groups.",
        )
    by_name = headline(model, several=True)
    parts = [m[2] for m in members]
    estimate, half = _intervals(log, weighted, by_name, parts, level, draws, seed)
    low, high = estimate - wider * half, estimate + wider * half
    lines = []
    for k, (name, word, rows) in enumerate(members):
        steps = np.repeat(rows, log.lengths)
        here, _, ess = reached(weighted, log, apart & steps, never)
        exists = bool(np.isfinite([low[k], high[k]]).all())
        lines.append(
            Subgroup(
                name, word, int(rows.sum()), len(np.unique(log.group[rows])),
                float(changed[steps].mean()), here, ess, float(weighted.final[rows].mean()),
                float(estimate[k]), float(low[k]) if exists else None,
                float(high[k]) if exists else None, _verdict(here, ess, *map(float, (
                    estimate[k], low[k], high[k]))),
            )
        )  # fmt: skip
    return Subgroups(tuple(lines), by, by_name, float(level)).shown(log.outcome)


def _intervals(
    log: Log,
    weighted: Weighted,
    name: str,
    members: Sequence[Bools],
    level: float,
    draws: int,
    seed: int,
) -> tuple[Floats, Floats]:
    """Estimates (K,) of subgroups of episodes, and half of their simultaneous intervals."""
    parts = [
        (Bootstrap(part, (ESTIMATORS[name],)), groups)
        for part, groups in map(weighted.of_episodes, members)
    ]
    estimate = np.array([_difference(part, np.ones((1, len(used))))[0] for part, used in parts])
    drawn = np.empty((draws, len(parts)))
    done = 0
    for some in counts(len(log.groups), draws, seed):
        for k, (part, used) in enumerate(parts):
            drawn[done : done + len(some), k] = _difference(part, some[:, used])
        done += len(some)
    tail = (1 - level) / 2
    lost = np.isnan(drawn).mean(axis=0) > tail
    se = np.full(len(parts), np.nan)
    se[~lost] = np.nanstd(drawn[:, ~lost], axis=0)
    fine = np.isfinite(estimate) & (se > 0)
    c = 0.0
    if fine.any():
        t = np.abs(drawn[:, fine] - estimate[fine]) / se[fine]
        c = float(np.quantile(np.nanmax(t, axis=1), level, method="higher"))
    return estimate, c * se


def _difference(part: Bootstrap, weights: Floats) -> Floats:
    """Estimate minus mean return in each draw (B,); NaN where no group of the part was drawn."""
    empty = weights.sum(axis=1) == 0
    estimates = part.estimates(np.where(empty[:, None], 1.0, weights))
    return np.where(empty, np.nan, estimates.gain(part.names[0]))


def _verdict(here: int, ess: float, mean: float, low: float, high: float) -> str:
    """What the numbers of a subgroup say, as in `Subgroup.verdict`."""
    if not here:
        return "not changed"
    if ess < ENOUGH or not np.isfinite(low):
        return "cannot say"
    if low > 0:
        return "gains"
    if high < 0:
        return "loses"
    return "leans up" if mean > 0 else "leans down"
