"""`dprl.sensitivity`: what is left of a policy's gain if an unrecorded cause moved treatment.

`dprl.evidence.yardstick` says what hiding a recorded column would be, for comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from dprl._core import plot
from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.bootstrap import counts
from dprl._core.checks import Cut, check_draws, check_flag, check_level, check_number, is_number
from dprl._core.inference import GAMMAS, MOST, gamma_words, threshold, worst_case
from dprl._core.table import Result, Table, in_notebook, in_short, many, to_json_value
from dprl._core.words import say, worded
from dprl.errors import ParameterError
from dprl.evaluation._evaluate import evaluated
from dprl.evaluation.divergence import differs, practice, unsupported_chance
from dprl.evaluation.result import BLIND, ENOUGH, FEW_BLIND
from dprl.evidence.behavior import Behavior, folds_of
from dprl.evidence.models import Fit, Inputs, blended, usual_value_models
from dprl.evidence.nuisances import doubt_notes
from dprl.evidence.yardstick import LEAST, SHARE, hidden_columns, yardstick_words
from dprl.logs.log import Log
from dprl.logs.outcome import UNDECLARED, Outcome, digits_of, in_digits
from dprl.logs.reading.tables import write_rows
from dprl.logs.returns import returns
from dprl.logs.source import Source, unseen_words
from dprl.policies.held_out import HeldOut, PolicyAtSteps

# --- Sensitivity: bounds on a policy's worth by the strength of an unrecorded cause, and a figure


@dataclass(frozen=True, eq=False)
class Sensitivity(Result):
    """What is left of a policy's gain at each strength Γ of an unrecorded cause.

    From `dprl.sensitivity`.

    Attributes:
        rows: One row per Γ: gamma; difference_min and difference_max, the bounds on the difference
            to usual practice as estimated; difference_low and difference_high, the same with
            sampling error (the lower end of the lower bound, the upper end of the upper bound; NaN
            where `facts` say why there is none: unsure); value_min, value_max, value_low and
            value_high of the policy's value; and vacuous, true where the bounds say next to
            nothing. In units of returns.
        gamma_star: Γ* of the gain with sampling error: up to this Γ difference_low is above 0. From
            1 to 20, which means "or more"; None where there is no gain even at Γ = 1.
        gamma_point: Γ* of the gain as estimated: up to this Γ difference_min is above 0.
        yardstick: What hiding each recorded column would be, one dict each: column, where ("state",
            or "table" for one that is not in the state), gamma, per_sd (for one standard deviation
            of the column; None for labels) and chance (the gamma of the same column, shuffled).
        facts: episodes, groups, the share of steps at which the policy differs from practice
            (differs), episodes that reach one (reached), the most such steps in an episode
            (decisions), the estimate at Γ = 1 (estimator: "WIS", or "means" where no episode has
            more than one such step), whether the bounds are the sharp ones of the sample (sharp:
            labelled states, one decision), the effective number of those who did as the policy says
            (ess), the share of those who did otherwise in a state in which nobody took the
            suggestion (untaken), the value of usual practice (usual), the range of returns (lowest,
            highest, range), the chance that whoever follows meets an action that nobody took there
            (unsupported), and why there is no sampling error (unsure: '', "few" where ess is below
            30, "refuted" where the record refutes the model of practice, "unsupported" where that
            chance is above 1 in 20; else that chance times the range is added at both ends).
        warnings: What a reader must be careful about, one sentence each.
        settings: discount, level, draws, seed, cut, clip, and the digest of the log.
        outcome: What the returns are; all numbers are in its direction. Where less of it is better,
            a gain is a difference below 0, and Γ* is of difference_high and difference_max.

    Example:
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
        >>> result = dprl.sensitivity(policy, test, gamma=[1, 2], draws=100)
        >>> len(result.rows)
        2
    """

    HEAD: ClassVar[str] = "Unrecorded causes"

    rows: tuple[Mapping[str, Any], ...]
    gamma_star: float | None
    gamma_point: float | None
    yardstick: tuple[Mapping[str, Any], ...]
    facts: Mapping[str, Any]
    warnings: tuple[str, ...]
    settings: Mapping[str, Any]
    outcome: Outcome = UNDECLARED

    def table(self) -> Table:
        """The bounds, one row per Γ.

        Returns:
            A table with the keys of `rows` as columns.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> dprl.sensitivity(policy, test, gamma=[1, 2], draws=100).table()["gamma"]
            [1.0, 2.0]
        """
        f, s = self.facts, self.settings
        kind = "one decision" if f["decisions"] <= 1 else "several decisions"
        kind = f"{'sharp ' * f['sharp']}bounds for {kind}"
        return Table(
            {name: [row[name] for row in self.rows] for name in self.rows[0]},
            caption=f"{many(f['episodes'], 'episode')}; usual practice gets "
            f"{in_digits(f['usual'])}; {kind}",
            note="gamma (Γ): the factor by which an unrecorded cause may move the odds of an "
            "action, the state being equal.\n_min, _max: bounds as estimated. _low, _high: with "
            f"sampling error, {100 * s['level']:g} % percentiles of {s['draws']:,} bootstraps over "
            f"groups\n(probabilities are those of: {f['behavior']}). {self._start()}",
        )

    def _start(self) -> str:
        """Which estimate the bounds begin with, in a sentence."""
        if self.facts["estimator"] == "WIS":
            which = worded("the estimate WIS of {dprl.evaluate}")
        else:
            which = "the mean of those who took the suggestion, weighted to stand for all"
        return f"At Γ = 1 they are {which}; it uses\nno model of values, so it may differ from DR."

    def lines(self) -> list[str]:
        """What the bounds say, in sentences.

        Returns:
            The sentences: Γ* of the gain, vacuous bounds, and the yardstick.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(3000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> result = dprl.sensitivity(policy, test, gamma=[1, 2], draws=100)
            >>> result.lines()[0].startswith("The gain could be none")
            True
        """
        return [*_star_lines(self), *_vacuous_lines(self), *_yardstick_lines(self)]

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry.

        Returns:
            Attribute name → value, and the sentences as "lines".

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> result = dprl.sensitivity(policy, test, gamma=[1, 2], draws=100)
            >>> sorted(result.to_dict())[:3]
            ['facts', 'gamma_point', 'gamma_star']
        """
        names = ("rows", "gamma_star", "gamma_point", "yardstick", "facts", "warnings", "settings")
        result: dict[str, Any] = to_json_value({name: getattr(self, name) for name in names})
        return {**result, "lines": self.lines()}

    def _repr_html_(self) -> str:
        figure = plot.embedded(self.plot, "Bounds on the difference to usual practice by Γ.")
        first, *others = self.brief()
        return in_notebook(first, others) + (figure or self.table()._repr_html_())

    def plot(self, path: str | Path | None = None) -> Any:
        """The bounds as a matplotlib figure (needs the extra `plot`).

        The left panel has the difference to usual practice by Γ: the bounds, and around them the
        sampling error. The right panel has the yardstick, where there is one.

        Args:
            path: File to write the figure to, .png, .svg or .pdf; the rows are written beside it as
                .parquet. Default None: nothing is written.

        Returns:
            The figure.

        Raises:
            PackageError: matplotlib is not installed.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> len(dprl.sensitivity(policy, test, gamma=[1, 2], draws=100).plot().axes)
            2
        """
        with plot.look():
            figure = _figure(self)
            if path is not None:
                plot.save(figure, Path(path))
                write_rows(to_json_value(list(self.rows)), Path(path).with_suffix(".parquet"))
        return figure

    def brief(self) -> list[str]:
        """What is printed of it: Γ* of the gain, its bounds, and one column to compare with.

        Returns:
            The lines.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> len(dprl.sensitivity(policy, test, gamma=[1, 2], draws=100).brief()) <= 8
            True
        """
        rows = [row for row in self.rows if not row["vacuous"]][:2]
        bounds = []
        for row in rows:
            low, high = row["difference_low"], row["difference_high"]
            digits = digits_of(high - low)
            bounds.append(
                f"Γ = {row['gamma']:g}: difference to usual practice between "
                f"{in_digits(low, digits, '+')} and {in_digits(high, digits, '+')}"
                f"{self.outcome.measured}, sampling error included."
            )
        lines = [*_star_lines(self), *_vacuous_lines(self), *bounds, *_yardstick_lines(self)[:1]]
        return in_short([*lines, *(f"warning: {w}" for w in self.warnings)], "sensitivity")

    def __repr__(self) -> str:
        star = "none" if self.gamma_star is None else gamma_words(self.gamma_star)
        return f"<Sensitivity: {len(self.rows)} values of Γ, Γ* {star}>"


def _star_lines(result: Sensitivity) -> list[str]:
    """Γ* of the gain, in a sentence."""
    if not result.facts["reached"]:
        return ["The policy differs from practice nowhere in this log: there is nothing to bound."]
    if result.gamma_point is None:
        return ["There is no gain even without an unrecorded cause (Γ = 1)."]
    point = gamma_words(result.gamma_point)
    level = f"{100 * result.settings['level']:g} %"
    if result.facts["unsure"]:
        return [
            "How sure the gain is, the log cannot say, even without an unrecorded cause (Γ = 1). "
            f"As estimated, it could be none from Γ = {point} on."
        ]
    if result.gamma_star is None:
        return [
            "The gain is not sure even without an unrecorded cause: its interval holds 0. As "
            f"estimated, it could be none from Γ = {point} on."
        ]
    return [
        "The gain could be none if an unrecorded cause moved the odds of a suggestion, the state "
        f"being equal, by a larger factor than Γ* = {gamma_words(result.gamma_star)} (with "
        f"sampling error, {level}), or than {point} as estimated."
    ]


def _vacuous_lines(result: Sensitivity) -> list[str]:
    strengths = [f"{row['gamma']:g}" for row in result.rows if row["vacuous"]]
    if not strengths:
        return []
    return [f"VACUOUS at Γ = {', '.join(strengths)}: the bounds there say next to nothing."]


def _yardstick_lines(result: Sensitivity) -> list[str]:
    """What hiding the strongest columns would be, in sentences."""
    lines = [words for row in result.yardstick[:3] if (words := yardstick_words([row]))]
    if not lines:
        return []
    return [
        *lines,
        f"(At {100 * SHARE:.0f} % of the decisions it moves the odds of the suggestion by no more. "
        "By chance: the same column, shuffled.)",
    ]


def _figure(result: Sensitivity) -> Any:
    columns = result.yardstick[:12]
    figure, axes = plot.grid(1, 2, width=4.2, height=3.2)
    axis, right = axes[0]
    x = np.array([row["gamma"] for row in result.rows])
    low, bottom, top, high = (
        np.array([row[f"difference_{name}"] for row in result.rows], float)
        for name in ("low", "min", "max", "high")
    )
    axis.fill_between(x, low, high, color="#0072b2", alpha=0.12, linewidth=0)
    axis.plot(x, bottom, color="#0072b2", marker="o", ms=4, lw=1.4, label="bounds, as estimated")
    axis.plot(x, top, color="#0072b2", marker="o", ms=4, lw=1.4)
    axis.plot(x, low, color="#0072b2", lw=0.8, ls="--", label="with sampling error")
    axis.plot(x, high, color="#0072b2", lw=0.8, ls="--")
    plot.reference(axis, 0.0, "usual practice")
    axis.set_xlabel("Γ, strength of an unrecorded cause")
    axis.set_title("difference to usual practice")
    axis.legend(fontsize=7.5)
    names = [str(row["column"]) for row in columns][::-1]
    gammas = [row["gamma"] for row in columns][::-1]
    right.barh(range(len(names)), [g - 1 for g in gammas], left=1, color="#e69f00", height=0.6)
    chance = [row["chance"] for row in columns][::-1]
    right.plot(chance, range(len(names)), "|", color="#333333", ms=12, label="by chance")
    right.set_yticks(range(len(names)), names)
    right.set_title("what hiding a column would be, as Γ")
    right.set_xlim(left=1)
    return figure


# --- Bounds on what a policy is worth when an unrecorded cause moved treatment by up to Γ
#
# `dprl._core.inference` explains Γ and φ. There are two ways, both with sampling error from a
# bootstrap over groups: percentiles of the lower bound for the lower end, of the upper bound for
# the upper end (Zhao, Small and Bhattacharya, JRSS-B 2019). Both rest on weights alone, which hide
# their error where few rows carry much of it. So the ends are further out by as much as the
# interval of `dprl.evaluate` is at Γ = 1.
#
# **One decision** (`OneDecision`): no episode has more than one step at which the policy differs
# from practice. Let b be the probability of the suggested action there and Y the (discounted)
# return from there on. Those who took the suggestion keep what they got; what the others would have
# got is E[r Y] over those who took it, so
#
#     difference to usual practice = 1/N ∑ over those who did otherwise of (E[r Y | state] - Y)
#
# and E[r Y | state] is at least the mean of φ(Y) of those who took the suggestion, each weighted by
# (1 - b)/b. For labels the counts, the mean and θ (a quantile) are those of each state, so this is
# the sharp bound of the sample. For features θ is one quantile of Y, or a model of Y and a quantile
# of its errors, or a quantile of Y in each of five parts by that model, whichever bounds better:
# every θ gives a valid bound, and the nearer it is to the quantile given the state, the nearer the
# bound is to the sharp one (Dorn and Guo, JASA 2022). Upper bounds are lower bounds of -Y, with the
# sign changed. θ, and b for features, are not estimated again in each draw; the counts of states
# are.
#
# **Several decisions** (`Several`): the weight of an episode is a product of 1 + (1/b - 1) r over
# its steps at which the policy differs, so it lies between two products. Of all weights in between,
# those with the lowest weighted mean return give the large weight to low returns and the small
# weight to high ones; the turning point is found by trying all. It is valid, but not sharp, and
# with many decisions it soon says nothing.

ROOM = 4_000_000
"""Numbers (draws times episodes or states) held at a time."""
BINS = 5
"""Parts of about equal size, by a model of the outcome, that have a θ of their own."""


class Bounds(Protocol):
    """Bounds of a difference at any Γ, for the log and for draws of its groups."""

    @property
    def n_groups(self) -> int:
        """The number of groups."""
        ...

    @property
    def width(self) -> int:
        """Numbers that one draw needs at a time."""
        ...

    def at(self, gamma: float, weight: Floats) -> Floats:
        """float64 (B, 2), the lowest and the highest difference; weight (B, groups) are counts."""
        ...


def resampled(bounds: Bounds, gamma: float, draws: int, seed: int) -> Floats:
    """float64 (draws, 2): the bounds at Γ in draws of whole groups."""
    return np.concatenate([bounds.at(gamma, some) for some in _blocks(bounds, draws, seed)])


def _blocks(bounds: Bounds, draws: int, seed: int) -> Iterator[Floats]:
    """Counts (some, groups) of the draws, a few at a time."""
    at_once = max(1, ROOM // max(bounds.width, 1))
    for block in counts(bounds.n_groups, draws, seed):
        for first in range(0, len(block), at_once):
            yield block[first : first + at_once]


@dataclass(frozen=True, eq=False)
class OneDecision:
    """Episodes with at most one step at which the policy differs from practice.

    A *pair* is a state and an action that the policy may take there; for features there is one pair
    for all. E is the number of episodes, K of those that took an action of the policy at their
    differing step, J of pairs, M of entries in `mass`.

    Attributes:
        group: int64 (E,), the group of each episode.
        n_groups: The number of groups.
        returns: float64 (E,), the return of each episode.
        lost: float64 (E,), what of Y the policy does not keep: Y for those who did otherwise, 0 for
            those who followed, (1 - π) Y in between, 0 where it differs nowhere.
        Y: float64 (K,), the outcomes of those who took it.
        took: int64 (K,), their episodes.
        pair: int64 (K,), their pairs.
        weight: float64 (K,), their weights within the pair.
        mass: (episode, pair, number) int64, int64, float64 (M,): those who did otherwise.
        n_pairs: J.
        guess: float64 (K,), a model of Y; None for labels.
        ends: (lowest, highest) outcome, for a pair that nobody took.
    """

    group: Ints
    n_groups: int
    returns: Floats
    lost: Floats
    Y: Floats
    took: Ints
    pair: Ints
    weight: Floats
    mass: tuple[Ints, Ints, Floats]
    n_pairs: int
    guess: Floats | None
    ends: tuple[float, float]

    @property
    def width(self) -> int:
        """Numbers that one draw needs at a time."""
        return max(self.n_groups, self.n_pairs)

    @property
    def sample_size(self) -> float:
        """The effective number of those who took the suggestion."""
        total = float(self.weight.sum())
        return total**2 / float((self.weight**2).sum()) if total > 0 else 0.0

    @property
    def untaken(self) -> float:
        """The share of those who did otherwise for whom nobody took the suggestion."""
        _, pair, number = self.mass
        there = np.bincount(self.pair, minlength=self.n_pairs) > 0
        total = float(number.sum())
        return float(number[~there[pair]].sum()) / total if total else 0.0

    def at(self, gamma: float, weight: Floats) -> Floats:
        """The lowest and the highest difference at Γ, float64 (B, 2), for counts (B, groups)."""
        episodes = weight @ np.bincount(self.group, minlength=self.n_groups)
        lost = weight @ np.bincount(self.group, weights=self.lost, minlength=self.n_groups)
        where, pair, number = self.mass
        mass = weight @ self._by_group(where, pair, number)
        size = weight @ self._by_group(self.took, self.pair, self.weight)
        ends = []
        for sign, end in ((1.0, self.ends[0]), (-1.0, self.ends[1])):
            worst = sign * self._worst(sign * self.Y, sign, gamma)
            total = weight @ self._by_group(self.took, self.pair, self.weight * worst)
            with np.errstate(divide="ignore", invalid="ignore"):
                mean = np.where(size > 0, total / size, end)
            ends.append(((mass * mean).sum(axis=1) - lost) / episodes)
        return np.column_stack(ends)

    def _by_group(self, episode: Ints, pair: Ints, number: Floats) -> Any:
        """Numbers added up, (groups, pairs): sparse where there are many pairs."""
        from scipy.sparse import coo_array

        shape = (self.n_groups, self.n_pairs)
        sums = coo_array((number, (self.group[episode], pair)), shape=shape).tocsr()
        return sums.toarray() if self.n_groups * self.n_pairs <= ROOM else sums

    def _worst(self, x: Floats, sign: float, gamma: float) -> Floats:
        """float64 (K,): φ(x), with θ from x."""
        if gamma == 1 or not len(x):
            return x
        if self.guess is not None:
            guess = sign * self.guess
            by_size = np.searchsorted(np.quantile(guess, np.arange(1, BINS) / BINS), guess)
            tried = (
                worst_case(x, threshold(x, gamma, self.weight), gamma),
                worst_case(x, guess + threshold(x - guess, gamma, self.weight), gamma),
                worst_case(x, self._thresholds(x, by_size, gamma), gamma),
            )
            return max(tried, key=lambda worst: float(worst @ self.weight))
        return worst_case(x, self._thresholds(x, self.pair, gamma), gamma)

    def _thresholds(self, x: Floats, part: Ints, gamma: float) -> Floats:
        """float64 (K,): θ of each part of the outcomes x, from the outcomes in it."""
        theta = np.zeros(len(x))
        order = np.argsort(part, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(part[order])) + 1):
            theta[rows] = threshold(x[rows], gamma, self.weight[rows])
        return theta


@dataclass(frozen=True, eq=False)
class Several:
    """Episodes with several steps at which the policy differs from practice.

    Attributes:
        group: int64 (E,), the group of each episode.
        n_groups: The number of groups.
        returns: float64 (E,), the return of each episode.
        starts: int64 (E + 1,), where the differing steps of each episode begin in `share`, `odds`.
        share: float64 (n,), π of the action taken at each of these steps; 0: not followed.
        odds: float64 (n,), (1 - b)/b of the action taken.
    """

    group: Ints
    n_groups: int
    returns: Floats
    starts: Ints
    share: Floats
    odds: Floats

    @property
    def width(self) -> int:
        """Numbers that one draw needs at a time."""
        return len(self.returns)

    def at(self, gamma: float, weight: Floats) -> Floats:
        """The lowest and the highest difference at Γ, float64 (B, 2), for counts (B, groups)."""
        order = np.argsort(self.returns, kind="stable")
        low, high = (self._products(r)[order] for r in (1 / gamma, gamma))
        G = self.returns[order]
        times = weight[:, self.group[order]]
        usual = (times @ G) / times.sum(axis=1)
        lowest = np.fmin.reduce(_turning(times * high, times * low, G), axis=1)
        highest = np.fmax.reduce(_turning(times * low, times * high, G), axis=1)
        return np.asarray(np.column_stack((lowest, highest)) - usual[:, None])

    @property
    def sample_size(self) -> float:
        """The effective number of episodes, of those that reach a differing step, at Γ = 1."""
        weight = self._products(1.0)[np.diff(self.starts) > 0]
        total = float(weight.sum())
        return total**2 / float((weight**2).sum()) if total > 0 else 0.0

    def _products(self, r: float) -> Floats:
        """float64 (E,): the weights of the episodes if the cause does the same at all steps."""
        factors = self.share * (1 + self.odds * r)
        result = np.ones(len(self.returns))
        some = np.flatnonzero(np.diff(self.starts))
        if len(some):
            result[some] = np.multiply.reduceat(factors, self.starts[some])
        return result


def _turning(first: Floats, then: Floats, G: Floats) -> Floats:
    """float64 (B, E + 1): weighted means, weights `first` up to a point and `then` after it."""

    def sums(values: Floats) -> Floats:
        return np.concatenate((np.zeros((len(values), 1)), np.cumsum(values, axis=1)), axis=1)

    a, b = sums(first), sums(then)
    x, y = sums(first * G), sums(then * G)
    below = a + b[:, -1:] - b
    with np.errstate(divide="ignore", invalid="ignore"):
        means = (x + y[:, -1:] - y) / below
    return np.asarray(np.where(below > 0, means, np.nan))


# --- From a log and a policy to the bounds of `dprl.evaluation._sensitivity`


def one_decision(
    log: Log, decisions: PolicyAtSteps, apart: Bools, G: Floats, discount: float, b: Floats,
    ends: tuple[float, float], seed: int, *, by_state: bool,
) -> OneDecision:  # fmt: skip
    """The bounds where no episode has more than one differing step.

    `b` (N,) is the probability of the action taken. `by_state` compares within each labelled state,
    where all have the same chance, and needs no `b`.
    """
    at = np.flatnonzero(apart)
    episode = np.searchsorted(log.starts, at, "right") - 1
    factor = discount ** (at - log.starts[episode])
    Y, pi = factor * G[at], decisions.pi[decisions.row[at]]
    share = pi[np.arange(len(at)), log.action[at]]
    lost = np.zeros(log.n_episodes)
    lost[episode] = (1 - share) * Y
    took = np.flatnonzero(share > 0)
    guess: Floats | None = None
    if log.state is not None and by_state:
        place, A = log.codes()[at].astype(np.int64), pi.shape[1]
        where, action = np.nonzero(pi > 0)
        otherwise = action != log.action[at][where]
        where, action = where[otherwise], action[otherwise]
        mass = episode[where], place[where] * A + action, pi[where, action]
        weight = np.ones(len(took))
        both = np.concatenate((place[took] * A + log.action[at][took], mass[1]))
        codes, own = np.unique(both, return_inverse=True)
        pair, n_pairs = own[: len(took)], max(len(codes), 1)
        mass = mass[0], own[len(took) :], mass[2]
    else:
        chance = b[at[took]]
        mass = episode, np.zeros(len(at), np.int64), 1 - share
        pair, n_pairs = np.zeros(len(took), np.int64), 1
        weight = share[took] * (1 - chance) / chance
        guess = _guess(log, at[took], Y[took], seed)
    shortest = float(factor.min(initial=1.0))
    low, high = min(ends[0], ends[0] * shortest), max(ends[1], ends[1] * shortest)
    return OneDecision(
        group=log.group.astype(np.int64), n_groups=len(log.groups), returns=G[log.starts[:-1]],
        lost=lost, Y=Y[took], took=episode[took], pair=pair.astype(np.int64), weight=weight,
        mass=(mass[0], mass[1].astype(np.int64), np.asarray(mass[2], np.float64)),
        n_pairs=n_pairs, guess=guess, ends=(low, high),
    )  # fmt: skip


def _guess(log: Log, at: Ints, Y: Floats, seed: int) -> Floats | None:
    """float64 (n,): a model of Y at these steps, each half from the other half of the groups."""
    group = np.repeat(log.group, log.lengths)[at].astype(np.int64)
    codes, own = np.unique(group, return_inverse=True)
    if log.features is None or len(at) < LEAST or len(codes) < LEAST:
        return None
    order = np.random.default_rng(seed).permutation(len(codes))
    halves = order[: len(codes) // 2], order[len(codes) // 2 :]
    x = np.asarray(log.features)[at]
    labels = tuple(0 if level is None else len(level) for level in log.levels)
    kinds = Inputs(bool(np.isnan(x).any()), labels or (0,) * x.shape[1])
    fits = [Fit(np.flatnonzero(np.isin(own, one)), other, own.astype(np.int64), seed)
            for one, other in (halves, halves[::-1])]  # fmt: skip
    return blended(usual_value_models(kinds), x, Y, fits)


def several_decisions(
    log: Log, decisions: PolicyAtSteps, apart: Bools, G: Floats, b: Floats
) -> Several:
    """The bounds where an episode has several differing steps; `b` (N,) is of the action taken."""
    at = np.flatnonzero(apart)
    share = decisions.pi[decisions.row[at], log.action[at]]
    chance = b[at]
    starts = np.concatenate(([0], np.cumsum(np.add.reduceat(
        apart.astype(np.int64), log.starts[:-1]))))  # fmt: skip
    return Several(
        group=log.group.astype(np.int64), n_groups=len(log.groups), returns=G[log.starts[:-1]],
        starts=starts, share=share, odds=(1 - chance) / chance,
    )  # fmt: skip


# --- `dprl.sensitivity`: what is left of a policy's gain if an unrecorded cause moved treatment

Progress = Callable[[str, float], None]

Wider: TypeAlias = dict[str, tuple[float, float]]
"""By how much intervals of the difference and of the value are wider at the lower and upper end."""

STRENGTHS = (1.0, 1.5, 2.0, 3.0)
VACUOUS = 0.9
"""Bounds that are, with sampling error, wider than this share of the range say next to nothing."""


def sensitivity(
    policy: Any,
    log: Log | Source,
    *,
    gamma: float | Sequence[float] = STRENGTHS,
    discount: float | None = None,
    behavior: Behavior | Any | None = None,
    cut: Cut | None = None,
    level: float = 0.95,
    draws: int = 1_000,
    seed: int = 0,
    clip: float = 0.01,
    value_range: tuple[float, float] | None = None,
    allow_seen: bool = False,
    yardstick: bool = True,
    progress: Progress | None = None,
) -> Sensitivity:
    """Bounds on the value of a policy if an unrecorded cause moved who got what.

    The marginal sensitivity model: the state being equal, an unrecorded cause moves the odds of an
    action by a factor between 1/Γ and Γ. At Γ = 1 there is none, and the bounds are one estimate:
    WIS of `dprl.evaluate` where an episode has several decisions at which the policy differs from
    practice; else the mean of those who took the suggestion, weighted to stand for all. Neither
    uses a model of values, so both may differ from the estimate that `dprl.evaluate` shows first;
    with sampling error the bounds at Γ = 1 hold its interval, and all are wider by as much.

    Args:
        policy: Any policy of dprl, or a `dprl.CallablePolicy` around a model that predicts actions.
        log: A log that the policy was not made from, in memory or in parts.
        gamma: The values of Γ, each from 1 to 20. Default 1, 1.5, 2 and 3. (The discount is called
            `discount` here.)
        discount: Discount per step, in (0, 1]. Default None: the policy's own.
        behavior: The probability of each action, as for `dprl.evaluate`. Default None: that of the
            action taken as the log records it (`propensity`), and estimated where it does not.
        cut: How cut episodes are treated: "drop-unrelated", "terminal" or "bootstrap". Default
            None: as when the policy was learned.
        level: Coverage of the intervals, in (0, 1). Default 0.95.
        draws: Number of bootstrap draws, a whole number from 1. Default 1,000.
        seed: Seed of the bootstrap, the folds and the models, a whole number from 0. Default 0.
        clip: An estimated probability below this is raised to it, in [0, 1]. Default 0.01.
        value_range: (lowest, highest) return there can be, for what nobody did and for telling
            whether bounds are vacuous. Default None: the range in the policy's certificate, else
            that of the log's returns.
        allow_seen: Whether to go on, with a warning, even on a log that the policy was made or
            chosen from. Default False: such a log is refused.
        yardstick: Whether to measure what hiding each recorded column would be. Default True.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The bounds at each Γ, Γ* of the gain, and the yardstick.

    Raises:
        ParameterError: An argument is outside its range, or no discount is known.
        PolicyError: The policy does not fit the log, or was made or chosen from it.
        LogError: The log has fewer than two groups.

    Example:
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
        >>> result = sensitivity(policy, test, gamma=[1, 2], draws=100)
        >>> [row["gamma"] for row in result.rows]
        [1.0, 2.0]
        >>> result.rows[1]["difference_min"] < result.rows[0]["difference_min"]
        True
    """
    strengths = _strengths(gamma)
    check_level(level)
    draws = check_draws(draws)
    check_number("clip", clip, "[0, 1]")
    check_flag("yardstick", yardstick)
    held = HeldOut.meet(
        policy, log, gamma=discount, cut=cut, behavior=behavior, seed=seed, allow_seen=allow_seen,
        claim="a bound", discount="discount",
    )  # fmt: skip
    log, discount, cut, seed = held.log, held.gamma, held.cut, held.seed
    _refuse_weights(cut, log)
    declared = held.declared_range(value_range)
    tell = progress or (lambda stage, share: None)
    folds_of(log, 2, seed)  # refuses a log of one group

    treated = held.treated
    tell("what the policy says", 0.0)
    decisions = held.acts
    tell("behaviour", 0.0)
    model = held.behavior
    table, row = practice(model, log)
    apart = differs(decisions, table, row[held.rows])
    counts = np.add.reduceat(apart.astype(np.int64), treated.starts[:-1])
    chances = held.chances(clip)
    b, recorded = chances.raised, chances.recorded
    G = returns(treated, discount)
    ends = declared or (float(G.min()), float(G.max()))
    most = int(counts.max())
    if most <= 1:
        bounds: OneDecision | Several = one_decision(
            treated, decisions, apart, G, discount, b, ends, seed,
            by_state=model.estimated and not recorded[apart].any(),
        )  # fmt: skip
    else:
        bounds = several_decisions(treated, decisions, apart, G, b)
    usual = float(G[treated.starts[:-1]].mean())
    blind, by_state = 0.0, treated.state is not None and isinstance(bounds, OneDecision)
    if not by_state:  # there the ends of the range stand for what nobody took
        blind = unsupported_chance(decisions, model, table, row[held.rows], treated, seed)
    refuted = held.doubt is not None and held.doubt.refuted and not recorded[apart].all()
    unsure = "" if not apart.any() else (
        "few" if bounds.sample_size < ENOUGH else "refuted" if refuted
        else "unsupported" if blind > BLIND else ""
    )  # fmt: skip
    off: Wider = dict.fromkeys(("difference", "value"), (np.nan if unsure else 0.0,) * 2)
    if not unsure and apart.any():
        judged = evaluated(
            held, level=level, draws=draws, clip=clip, values=True, value_range=value_range,
            progress=tell,
        )[0].turned()  # fmt: skip
        headline = judged.rows[judged.headline]
        wide = dict.fromkeys(off, (blind * (ends[1] - ends[0]),) * 2)
        (alone,) = _rows(bounds, [1.0], treated, G, level, draws, seed, ends, wide, tell)
        off = {what: _reaching(alone, headline, what, wide[what]) for what in off}
    result = _rows(bounds, strengths, treated, G, level, draws, seed, ends, off, tell)
    star, point = (
        _breakdown(bounds, level, draws, seed, off["difference"][0], tell)
        if apart.any()
        else (None, None)
    )
    measured: list[dict[str, Any]] = []
    if yardstick and apart.any():
        at = np.flatnonzero(apart)
        suggested = decisions.suggested[decisions.row[at]]
        measured = hidden_columns(treated, at, suggested, seed, tell)
    facts = {
        "episodes": treated.n_episodes,
        "groups": len(treated.groups),
        "differs": float(apart.mean()),
        "reached": int((counts > 0).sum()),
        "decisions": most,
        "estimator": "means" if isinstance(bounds, OneDecision) else "WIS",
        "sharp": most <= 1
        and treated.state is not None
        and model.estimated
        and not recorded[apart].any(),
        "untaken": bounds.untaken if isinstance(bounds, OneDecision) else 0.0,
        "ess": bounds.sample_size if apart.any() else None,
        "behavior": "the record" if recorded.any() and recorded[apart].all() else model.how,
        "usual": usual,
        "lowest": ends[0],
        "highest": ends[1],
        "range": "declared" if declared else "log",
        "unsupported": blind,
        "unsure": unsure,
    }
    doubted = doubt_notes(treated, held.doubt) if unsure == "refuted" else []
    shown = log.outcome.facts
    return Sensitivity(
        rows=tuple(map(shown, result)),
        gamma_star=star,
        gamma_point=point,
        yardstick=tuple(measured),
        facts=shown({**facts, "usual": log.outcome.shown(usual)}),
        warnings=tuple(dict.fromkeys([*held.warnings, *_warnings(facts), *doubted])),
        outcome=log.outcome,
        settings={
            "discount": discount, "level": float(level), "draws": draws, "seed": seed, "cut": cut,
            "clip": float(clip), "log": log.digest(),
        },
    )  # fmt: skip


# -- what goes in -----------------------------------------------------------------------------


def _strengths(gamma: Any) -> list[float]:
    given = [gamma] if is_number(gamma) else gamma
    try:
        numbers = list(given)
    except TypeError:
        numbers = []
    if not numbers or isinstance(given, str):
        raise ParameterError(
            worded(
                "{gamma} must be one or more numbers from 1 to 20; got {gamma2}.",
                gamma2=repr(gamma),
            )
        )
    for number in numbers:
        if not is_number(number) or not 1 <= number <= MOST:
            raise ParameterError(
                worded(
                    "{gamma} must be numbers from 1 to {most:g}; got {number}.",
                    most=MOST,
                    number=repr(number),
                ),
                do="Here gamma is Γ, the strength of an unrecorded cause (1: none). The discount "
                "is called discount.",
            )
    return sorted({float(number) for number in numbers})


def _refuse_weights(cut: Cut | None, log: Log) -> None:
    """Refuse weights for cut episodes: bounds take none."""
    if cut == "ipcw" and len(log.cut_episodes):
        raise ParameterError(
            worded(
                "{cut_episodes:,} of {n_episodes:,} episodes were cut, and bounds take no weights "
                "for them ({cut='ipcw'}).",
                cut_episodes=len(log.cut_episodes),
                n_episodes=log.n_episodes,
            ),
            f"episode {log.episodes[log.cut_episodes[0]]!r}",
            worded("Follow every episode for a fixed time ({follow_up=}), or say another {cut=}.")
            if not unseen_words(log.columns)
            else "With several decisions there are no bounds for a time to event yet.",
        )


# -- the bounds -------------------------------------------------------------------------------


def _rows(
    bounds: Bounds, strengths: Sequence[float], log: Log, G: Floats, level: float, draws: int,
    seed: int, ends: tuple[float, float], off: Wider, tell: Progress,
) -> list[dict[str, Any]]:  # fmt: skip
    """The bounds at each Γ, as estimated and with sampling error, wider by `off`."""
    tail = (1 - level) / 2
    G = G[log.starts[:-1]]
    group = log.group.astype(np.int64)
    drawn_usual = _usual(G, group, bounds.n_groups, draws, seed)
    result = []
    for i, gamma in enumerate(strengths):
        tell("bootstrap", i / len(strengths))
        low, high = bounds.at(gamma, np.ones((1, bounds.n_groups)))[0]
        drawn = resampled(bounds, gamma, draws, seed)
        row: dict[str, Any] = {"gamma": gamma}
        for what, mean, base in (("difference", 0.0, 0.0), ("value", G.mean(), drawn_usual)):
            row[f"{what}_min"], row[f"{what}_max"] = float(low + mean), float(high + mean)
            row[f"{what}_low"] = _quantile(drawn[:, 0] + base, tail) - off[what][0]
            row[f"{what}_high"] = _quantile(drawn[:, 1] + base, 1 - tail) + off[what][1]
        width = row["difference_high"] - row["difference_low"]
        row["vacuous"] = bool(not width < VACUOUS * (ends[1] - ends[0]))
        result.append(row)
    return result


def _reaching(
    alone: Mapping[str, float], headline: Mapping[str, float], what: str, wide: tuple[float, float]
) -> tuple[float, float]:
    """`wide`, and by how much the interval of `dprl.evaluate` goes beyond that of the bounds.

    Weights alone hide their error where few rows carry much of it: the log that has not met such a
    row has both an estimate and a spread that are too small.
    """
    down = alone[f"{what}_low"] - headline[f"{what}_low"]
    up = headline[f"{what}_high"] - alone[f"{what}_high"]
    return float(wide[0] + np.fmax(down, 0.0)), float(wide[1] + np.fmax(up, 0.0))


def _usual(G: Floats, group: Ints, n_groups: int, draws: int, seed: int) -> Floats:
    """float64 (draws,): mean returns of the same draws."""
    total = np.bincount(group, weights=G, minlength=n_groups)
    number = np.bincount(group, minlength=n_groups)
    return np.concatenate([(c @ total) / (c @ number) for c in counts(n_groups, draws, seed)])


def _quantile(drawn: Floats, share: float) -> float:
    good = drawn[np.isfinite(drawn)]
    return float(np.quantile(good, share)) if len(good) == len(drawn) else float("nan")


def _breakdown(
    bounds: Bounds, level: float, draws: int, seed: int, off: float, tell: Progress
) -> tuple[float | None, float | None]:
    """Γ* of the gain with sampling error, and as estimated; None without a gain at Γ = 1.

    The lower ends are wider by `off`, NaN where there is no sampling error.
    """
    whole = np.ones((1, bounds.n_groups))

    def last(gains: Callable[[float], float]) -> float | None:
        """The last of `GAMMAS` with a gain above 0, by halving."""
        if not gains(1.0) > 0:
            return None
        low, high = 0, len(GAMMAS)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if gains(float(GAMMAS[middle])) > 0 else (low, middle)
        return float(GAMMAS[low])

    tell("breakdown", 0.0)
    point = last(lambda gamma: float(bounds.at(gamma, whole)[0, 0]))
    if point is None:
        return None, None
    if np.isnan(off):
        return None, point
    tail = (1 - level) / 2
    star = last(lambda gamma: _quantile(resampled(bounds, gamma, draws, seed)[:, 0], tail) - off)
    return star, point


def _warnings(facts: dict[str, Any]) -> list[str]:
    result = []
    if facts["decisions"] > 1:
        result.append(
            f"an episode has up to {facts['decisions']:,} decisions at which the policy differs "
            "from practice: the factors of its decisions multiply, so the bounds are valid but "
            "wide, not sharp, and Γ is what each single decision may be moved by."
        )
    if facts["ess"] is not None and facts["ess"] < ENOUGH:
        result.append(
            say(
                "the effective number of those who did as the policy says is {ess:.1f}, below "
                "{enough}: the bounds rest on few, and no sampling error is given.",
                ess=facts["ess"],
                enough=ENOUGH,
            )
        )
    if facts["unsure"] == "refuted":
        result.append(say("the record cannot tell: no sampling error is given."))
    if facts["unsupported"] > FEW_BLIND:
        result.append(
            say(
                "whoever follows the policy meets, in {unsupported:.1f} % of episodes, an action "
                "that nobody, or hardly anybody, took there: no row tells what comes then.",
                unsupported=100 * facts["unsupported"],
            )
        )
    if facts["untaken"] > 0:
        where = "declared" if facts["range"] == "declared" else "of this log's returns"
        result.append(
            f"for {100 * facts['untaken']:.1f} % of those who did otherwise nobody in the same "
            f"state took the suggestion: there the bounds are the ends of the range ({where})."
        )
    return result
