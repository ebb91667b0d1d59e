r"""Which of several policies is better? Every pair on the same held-out log, with paired intervals.

Two policies that are judged one by one have two intervals, and these may overlap although one
policy is surely better: most of what moves one estimate from draw to draw (which patients are in
it) moves the other as well. So each bootstrap draw of groups is used for all policies, and the
interval is of the *difference* in that draw,

    d*_b = (ρ̂_i - ρ̂_j) of draw b,      low..high: from the spread of d*_1 .. d*_B

as `dprl.evaluation.bootstrap` says, with the smaller effective sample size of the two. Where two
policies answer alike it is 0 in every draw. The error of the models in them is added as in
`dprl.evaluate`, from differences again: parts of the groups and divisions are the same for all.

All rows hold at once: with m rows each interval has the level 1 - (1 - level)/m (Bonferroni), so
that the chance of a false difference anywhere in the table is about 1 - level, however they depend
on each other. The policies must have been fixed without this log. Asking for fewer rows
(`against=`) makes the intervals shorter.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dprl._core.arrays import Floats
from dprl._core.checks import Cut, check_choice, check_draws, check_level, check_number, check_seed
from dprl._core.table import Result, Table, to_json_value
from dprl._core.words import either, worded
from dprl.errors import ParameterError
from dprl.evaluation._evaluate import Models, evaluated, longer, spread_of
from dprl.evaluation.bootstrap import Estimates, ends_of
from dprl.evaluation.estimators import ESTIMATORS, RETURN, check_estimator
from dprl.evaluation.result import Evaluation, judged_by, widened
from dprl.evidence.behavior import Behavior
from dprl.logs.log import Log
from dprl.logs.source import Source
from dprl.policies.familiar import like_policy
from dprl.policies.held_out import HeldOut, rows_of

Progress = Callable[[str, float], None]

PRACTICE = "usual practice"
"""The name of usual practice among the policies that are compared."""


@dataclass(frozen=True, eq=False)
class Comparison(Result):
    """Differences between policies with paired intervals; made by `dprl.compare`.

    Attributes:
        rows: One row per pair: first and second (names), difference (value of the first minus value
            of the second, in units of returns), low and high (its interval; NaN where there is
            none) and better (the name of the better one where the interval does not hold 0, else
            "").
        evaluations: Name → the evaluation of each policy, as `dprl.evaluate` gives it.
        estimator: The estimator that was compared.
        level: Coverage of all intervals at once.
        draws: Number of bootstrap draws.

    Example:
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(2000, seed=0).split(0.5, seed=0)
        >>> policies = {n: dprl.DPRLDiscrete(n_min=n, gamma=1.0).fit(train) for n in (20, 200)}
        >>> compared = dprl.compare({f"n_min {n}": p for n, p in policies.items()}, test)
        >>> compared.rows[2]["first"], compared.rows[2]["second"]
        ('n_min 20', 'n_min 200')
    """

    rows: tuple[Mapping[str, Any], ...]
    evaluations: Mapping[str, Evaluation]
    estimator: str
    level: float
    draws: int

    def table(self) -> Table:
        """The pairs, one row each.

        Returns:
            A table with the columns first, second, difference, low, high and better.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> list(dprl.compare([policy], test, values=False).table().columns)
            ['first', 'second', 'difference', 'low', 'high', 'better']
        """
        first = next(iter(self.evaluations.values()))
        n = len(self.rows)
        each = f"; each alone has {100 * self.level_of_one:.4g} %" if n > 1 else ""
        return Table(
            {name: [row[name] for row in self.rows] for name in self.rows[0]},
            f"{len(self.evaluations)} policies on {first.facts['episodes']:,} held-out episodes, "
            f"by {self.estimator}",
            note=f"low, high: paired bootstrap over {first.unit}, {self.draws:,} draws; all {n} "
            f"intervals hold at once with {100 * self.level:g} %{each}. better: where the interval "
            f"does not hold 0. gamma {first.settings['gamma']:g}.",
        )

    @property
    def level_of_one(self) -> float:
        """Coverage of each interval alone.

        Returns:
            1 - (1 - level) / number of rows.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> dprl.compare([policy], test, values=False).level_of_one
            0.95
        """
        return _level_of_one(self.level, len(self.rows))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must be careful about, with the name of the policy in front.

        Returns:
            The warnings of all evaluations, one sentence or more each.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=10**6, gamma=1.0).fit(train)
            >>> dprl.compare({"silent": policy}, test, values=False).warnings[0]
            'silent: the policy speaks nowhere in this log: it is usual practice, exactly.'
        """
        return tuple(
            f"{name}: {words}" for name, e in self.evaluations.items() for words in e.warnings
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as values that JSON can carry; None where a number does not exist.

        Returns:
            The keys estimator, level, draws, pairs (one dict per pair) and policies (name → its
            evaluation).

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> list(dprl.compare([policy], test, values=False).to_dict())
            ['estimator', 'level', 'draws', 'pairs', 'policies']
        """
        return {
            "estimator": self.estimator,
            "level": self.level,
            "draws": self.draws,
            "pairs": to_json_value([dict(row) for row in self.rows]),
            "policies": {name: e.to_dict() for name, e in self.evaluations.items()},
        }

    def _heading(self) -> str:
        return f"Comparison of {len(self.evaluations)} policies"


def compare(
    policies: Mapping[str, Any] | Sequence[Any],
    log: Log | Source,
    *,
    against: str | None = None,
    estimator: str | None = None,
    gamma: float | None = None,
    behavior: Behavior | Any | None = None,
    cut: Cut | None = None,
    level: float = 0.95,
    draws: int = 2_000,
    seed: int = 0,
    clip: float = 0.01,
    values: bool = True,
    allow_seen: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Estimate how much policies differ in value, pair by pair, from one held-out log.

    Args:
        policies: Name → policy, or a list (then they are named after their learners). Anything
            that `dprl.evaluate` takes.
        log: A log that none of the policies was made or chosen from, in memory or in parts.
        against: Compare all with this one only: one of the names, or "usual practice". Default
            None: every pair, usual practice among them.
        estimator: The estimator to compare, any of `dprl.evaluate` but DM, which has no interval.
            Default None: "WDR" ("DR" where episodes have one step), or "WIS" without values.
        gamma: Discount per step, in (0, 1]. Default None: the policies' own, which must agree.
        behavior: The behaviour, as in `dprl.evaluate`. Default None: estimated, or as recorded.
        cut: How cut episodes are treated. Default None: as when the policies were learned, which
            must agree.
        level: Coverage of all intervals at once, in (0, 1). Default 0.95.
        draws: Number of bootstrap draws. Default 2,000.
        seed: Seed of the bootstrap, the folds and the models. Default 0.
        clip: Least value of an estimated probability, as in `dprl.evaluate`. Default 0.01.
        values: Whether to fit Q̂ for every policy, which DR and WDR need. Default True.
        allow_seen: Whether to go on, with a warning, on a log that a policy was made or chosen
            from. Default False: such a log is refused.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The differences with their intervals, and the evaluation of each policy.

    Raises:
        ParameterError: An argument is outside its range, there is no policy of the name `against`,
            or the policies do not agree on gamma or on how cut episodes are treated.
        PolicyError: A policy does not fit the log, or was made or chosen from it.
        LogError: The log has fewer than two groups.

    Example:
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(2000, seed=0).split(0.5, seed=0)
        >>> bold, shy = (dprl.DPRLDiscrete(n_min=n, gamma=1.0).fit(train) for n in (20, 200))
        >>> compared = compare({"bold": bold, "shy": shy}, test, against="shy")
        >>> [(row["first"], row["better"]) for row in compared.rows]
        [('bold', 'bold'), ('usual practice', '')]
    """
    log = rows_of(log)
    named = _named(policies)
    estimator = check_estimator(estimator, values, log, interval=True)
    check_level(level)
    check_number("clip", clip, "[0, 1]")
    pairs = _pairs([*named, PRACTICE], against)
    each = _level_of_one(level, len(pairs))
    draws, seed = check_draws(draws), check_seed(seed)
    gamma = _agreed("gamma", gamma, named)
    cut = _agreed("cut", cut, named) if cut is None and len(log.cut_episodes) else cut
    tell = progress or (lambda stage, share: None)

    evaluations: dict[str, Evaluation] = {}
    behind: dict[str, tuple[Estimates, Models]] = {}
    practices: list[Floats] = []
    fitted: dict[str, Behavior] = {}
    for i, (name, policy) in enumerate(named.items()):
        tell("policies", i / len(named))
        held = HeldOut.meet(
            policy, log, gamma=gamma, behavior=_practice_of(policy, log, behavior, seed, fitted),
            cut=cut, seed=seed, allow_seen=allow_seen,
        )  # fmt: skip
        evaluations[name], drawn, models = evaluated(
            held, level=level, draws=draws, clip=clip, values=values
        )
        behind[name] = drawn, models
        practices.append(drawn.of(RETURN))
    tell("policies", 1.0)
    _check_paired(practices, list(named))
    rows = [_row(a, b, evaluations, behind, estimator, each) for a, b in pairs]
    return Comparison(tuple(rows), evaluations, estimator, float(level), draws)


# -- what goes in ------------------------------------------------------------------------------


def _named(policies: Any) -> dict[str, Any]:
    """Name → policy; where there are no names, those of the learners, numbered if they repeat."""
    if isinstance(policies, Mapping):
        named = {str(name): policy for name, policy in policies.items()}
    elif isinstance(policies, Sequence) and not isinstance(policies, str):
        named = {}
        for policy in policies:
            name = str(getattr(policy, "parameters", {}).get("learner", type(policy).__name__))
            again = (f"{name} {k}" for k in itertools.count(2))
            named[name if name not in named else next(n for n in again if n not in named)] = policy
    else:
        raise ParameterError(
            f"policies must be a dict of names and policies, or a list; got a "
            f"{type(policies).__name__}.",
            do="Give a dict, say with the names 'ours' and 'theirs', or a list of policies.",
        )
    if not named:
        raise ParameterError("there is no policy to compare.", do="Name at least one.")
    if PRACTICE in named:
        raise ParameterError(f"no policy may be called {PRACTICE!r}: usual practice is.")
    return named


def _pairs(names: Sequence[str], against: str | None) -> list[tuple[str, str]]:
    """Pairs of names: each policy with usual practice, then with each other; or with one alone."""
    if against is not None:
        check_choice("against", against, list(names))
        return [(name, against) for name in names if name != against]
    *policies, practice = names
    return [*((name, practice) for name in policies), *itertools.combinations(policies, 2)]


def _level_of_one(level: float, rows: int) -> float:
    return float(level) if rows == 1 else 1 - (1 - float(level)) / rows


def _agreed(what: str, given: Any, named: Mapping[str, Any]) -> Any:
    """`given`, or else what all policies that have it were learned with."""
    if given is not None:
        return given
    own = {
        name: value
        for name, policy in named.items()
        if (value := getattr(policy, "parameters", {}).get(what)) is not None
    }
    if len(set(own.values())) > 1:
        (a, x), (b, y) = list({v: (n, v) for n, v in own.items()}.values())[:2]
        raise ParameterError(
            f"the policies were learned with different {what}: a comparison needs one.",
            f"{a!r}: {x!r}, {b!r}: {y!r}",
            f"Say which: {what}={x!r}.",
        )
    return next(iter(own.values()), None)


def _practice_of(
    policy: Any, log: Log, given: Any, seed: int, fitted: dict[str, Behavior]
) -> Behavior | Any | None:
    """The behaviour given; else as `evaluate` would take it, estimated once per kind of state."""
    if given is not None or log.propensity is not None:
        return given
    encoded = like_policy(policy, log)
    digest = encoded.digest()
    if digest not in fitted:
        fitted[digest] = Behavior.fit(encoded, seed=seed)
    return fitted[digest]


def _check_paired(practices: Sequence[Floats], names: Sequence[str]) -> None:
    """Refuse policies for which usual practice itself is not the same number in every draw."""
    first = practices[0]
    for name, other in zip(names, practices, strict=True):
        if not np.allclose(first, other, rtol=1e-9, atol=1e-12, equal_nan=True):
            raise ParameterError(
                "usual practice has another value for one policy than for another, so they cannot "
                "be compared draw by draw.",
                f"{names[0]!r} and {name!r}: cut episodes are filled up by what is near, and that "
                "is not the same for both",
                worded(
                    "Treat cut episodes in another way: {choice}.",
                    choice=either(
                        'cut="terminal", "drop-unrelated" or "ipcw"',
                        "--cut terminal, drop-unrelated or ipcw",
                    ),
                ),
            )


def _ends(
    middle: float, both: Sequence[tuple[Estimates, Models] | None], estimator: str, level: float,
    ess: float,
) -> tuple[float, float]:  # fmt: skip
    """The interval of a difference of two policies; None in place of usual practice."""

    def apart(of: Callable[[tuple[Estimates, Models]], Any]) -> Floats:
        first, second = (0.0 if one is None else of(one) for one in both)
        return np.asarray(first - second)

    def again(one: tuple[Estimates, Models]) -> Any:
        return 0.0 if one[1].again is None else one[1].again.gain(estimator)

    drawn = apart(lambda one: one[0].gain(estimator))
    low, high = ends_of(middle, drawn, level, ess)
    wider = 1.0
    if ESTIMATORS[estimator].values:
        wider = longer(drawn, np.atleast_1d(apart(again)))
    divided = apart(lambda one: one[1].divided.get(estimator, 0.0))
    more = spread_of(divided, level) if divided.ndim else 0.0
    low, high = (float(np.hypot(wider * (end - middle), more)) for end in (low, high))
    return middle - low, middle + high


def _row(
    a: str,
    b: str,
    evaluations: Mapping[str, Evaluation],
    behind: Mapping[str, tuple[Estimates, Models]],
    estimator: str,
    level: float,
) -> dict[str, Any]:
    """The row of one pair."""
    shown = next(iter(evaluations.values())).outcome
    computed = {n: e.turned() for n, e in evaluations.items()}  # larger is better, as in the draws
    gain = [0.0 if n == PRACTICE else computed[n][estimator]["difference"] for n in (a, b)]
    judged = [computed[n] for n in (a, b) if n != PRACTICE]
    low, high = np.nan, np.nan
    if not any(np.isnan(e[estimator]["difference_low"]) for e in judged):
        ess = min(judged_by(e.facts) for e in judged)
        wider = sum(widened(e.facts) for e in judged)
        both = [None if n == PRACTICE else behind[n] for n in (a, b)]
        low, high = _ends(gain[0] - gain[1], both, estimator, level, ess)
        lead = judged[0].headline
        if not ESTIMATORS[estimator].values and ESTIMATORS[lead].values:  # as in `evaluate`
            middle = sum(
                sign * computed[n][lead]["difference"]
                for n, sign in ((a, 1.0), (b, -1.0)) if n != PRACTICE
            )  # fmt: skip
            reach = _ends(middle, both, lead, level, ess)
            low, high = float(np.fmin(low, reach[0])), float(np.fmax(high, reach[1]))
        low, high = low - wider, high + wider
    better = a if low > 0 else b if high < 0 else ""
    ends = {"difference": gain[0] - gain[1], "low": low, "high": high}
    return {"first": a, "second": b, **shown.facts(ends), "better": better}
