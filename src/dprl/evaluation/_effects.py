r"""Main effects of a trial: every arm against one reference, on all patients, at once.

In a trial actions were given by lot with known chances, and which arms there are was settled before
anybody saw an outcome. So nothing is proposed, no half is kept back, and one correction for the
number of arms is all there is to pay. With G the return of an episode, b the product of the chances
of what it was given, and m_a(x) a regression of G on the arm and the features x at its first
decision, fitted to other groups,

    S_a = m_a(x) + 1{always a} / b · (G - m_a(x))        the mean of S_a is what "always a" brings

The chances are known, so this holds whatever the regression is; it only takes out the part of the
spread that features explain, and is not used where it explains nothing of other groups. S is a mean
over five ways of making folds, so that it does not hang on one of them. Against an arm r the
contrast is the mean of S_a - S_r, against usual practice (which gives arms by lot) that of S_a - G.

All arms are judged at once by max-t over groups (`dprl._core.inference`). An error is never taken
to be smaller than where all arms vary alike: ten successes of ten tell little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.checks import Cut, check_delta, check_gamma, check_seed
from dprl._core.inference import cluster_parts, max_t
from dprl._core.table import Result, Table, many, to_json_value
from dprl._core.words import N_, joined, say, word, worded
from dprl.errors import LogError
from dprl.evidence.counts import Counts, count_source
from dprl.learners.rules.whole import columns_of
from dprl.logs.called import NOBODY, Called
from dprl.logs.censoring import treat_cut
from dprl.logs.design import Design, all_chances
from dprl.logs.encoding.encoder import filled
from dprl.logs.log import Log, check_log
from dprl.logs.outcome import UNDECLARED, Outcome
from dprl.logs.returns import returns
from dprl.logs.source import as_source
from dprl.policies.base import provenance_of
from dprl.policies.familiar import like_policy
from dprl.policies.rules.policy import RulePolicy
from dprl.policies.rules.rule import Rule
from dprl.policies.table import TablePolicy

FEWEST, SEVERAL, EQUAL = 10, 100, 0.9
"""Groups that took an arm, below which nothing is said of it; and the effective sample that is
asked for where weights differ (it is below that share of the groups), as over several decisions:
what few long episodes with large weights bring most is hardly met."""
FOLDS, TIMES = 5, 5
"""Folds of the regression, and how often they are made."""
COLUMNS, LARGE = (60, 30), 200_000
"""Columns of the regression, and fewer of logs with more episodes than the second number."""
RIDGE = 0.01
"""Shrinkage of the regression, as a share of the number of rows."""
STATES = 20
"""Labels of states are put into the regression where there are at most so many."""
TOLD = 5
"""Arms that are told in a line each."""
PRACTICE = N_("usual practice")


@dataclass(frozen=True, eq=False)
class Effects(Result):
    """What each arm of a trial brings; from `dprl.effects`.

    Attributes:
        rows: One per arm, the best first: arm, groups (that took it), value, difference (to the
            reference), low, high, p (of "it is no better", adjusted for all arms) and verdict
            ("better", "worse", "unsure", or "too few"), in the direction of the outcome.
        versus: The label of the arm that the others are compared with; None for usual practice.
        delta: All intervals hold at once with probability 1 - delta.
        groups: Number of groups (patients).
        outcome: What the returns are.
        called: What people call the arms.

    Example:
        >>> import numpy as np, dprl
        >>> rng = np.random.default_rng(0)
        >>> drug = rng.random(400) < 0.5
        >>> log = dprl.from_arrays(
        ...     episode=range(400), state=["all"] * 400, action=np.where(drug, "drug", "placebo"),
        ...     reward=drug + rng.normal(size=400), propensity=np.full(400, 0.5),
        ... )
        >>> dprl.effects(log).best
        'drug'
    """

    HEAD: ClassVar[str] = "Main effects"

    rows: tuple[dict[str, Any], ...]
    versus: Any = None
    delta: float = 0.05
    groups: int = 0
    outcome: Outcome = UNDECLARED
    called: Called = NOBODY

    @property
    def reference(self) -> str:
        """What the arms are compared with, in words.

        Returns:
            The label of an arm, or "usual practice".

        Example:
            >>> import dprl
            >>> dprl.evaluation.Effects(()).reference
            'usual practice'
        """
        return PRACTICE if self.versus is None else str(self.versus)

    @property
    def against(self) -> str:
        """The same as people call it.

        Returns:
            What people call the arm, or "usual practice".

        Example:
            >>> import dprl
            >>> dprl.evaluation.Effects(()).against
            'usual practice'
        """
        return PRACTICE if self.versus is None else str(self.called.act(self.versus))

    @property
    def best(self) -> Any:
        """The arm that is surely better than the reference, and of several the surest.

        Returns:
            Its label; None where no arm is.

        Example:
            >>> import dprl
            >>> dprl.evaluation.Effects(()).best is None
            True
        """
        return next((row["arm"] for row in self.rows if row["verdict"] == "better"), None)

    @property
    def named(self) -> tuple[Any, ...]:
        """The arms whose numbers the finding tells: the best, and the worst that it warns of.

        Returns:
            Their labels; () where nothing is sure of any.

        Example:
            >>> import dprl
            >>> dprl.evaluation.Effects(()).named
            ()
        """
        best = () if self.best is None else (self.best,)
        worse = [row["arm"] for row in self.rows if row["verdict"] == "worse"]
        return (*best, *worse[-1:]) if self.versus is None or not best else best

    def table(self) -> Table:
        """The arms, one row each.

        Returns:
            The columns are those of `rows`.

        Example:
            >>> import dprl
            >>> len(dprl.evaluation.Effects(()).table())
            0
        """
        names = ("arm", "groups", "value", "difference", "low", "high", "p", "verdict")
        return Table(
            {name: [row[name] for row in self.rows] for name in names},
            f"{many(self.rows, 'arm')} against {self.against}, {many(self.groups, 'group')}",
            f"All intervals hold at once with {100 * (1 - self.delta):g} %.",
            called=self.called,
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as values that JSON can carry.

        Returns:
            Name → value.

        Example:
            >>> import dprl
            >>> dprl.evaluation.Effects(()).to_dict()["versus"]
            'usual practice'
        """
        return {
            "best": to_json_value(self.best), "versus": self.reference, "delta": self.delta,
            "groups": self.groups, "arms": to_json_value(list(self.rows)),
        }  # fmt: skip

    def finding(self) -> str:
        """The answer in one sentence.

        Returns:
            Which arm, instead of what, and by how much it is better; and against usual practice
            which ones are surely worse, with the number of the worst.

        Example:
            >>> import dprl
            >>> dprl.evaluation.Effects(()).finding()
            'No arm is surely better than usual practice.'
        """
        reference = word(PRACTICE) if self.versus is None else str(self.versus)
        worse = [row for row in self.rows if row["verdict"] == "worse"]
        words = []
        if self.best is not None:
            row = next(row for row in self.rows if row["arm"] == self.best)
            words = [say("{arm} instead of {reference}, for everyone: {gain}.", arm=self.best,
                         reference=reference, gain=self._apart(row))]  # fmt: skip
        if worse and (self.versus is None or not words):
            arms = joined(", ", [str(row["arm"]) for row in worse])
            words.append(say("Not {arm}: {gain} with {action}.", arm=arms,
                             gain=self._apart(worse[-1]), action=worse[-1]["arm"]))  # fmt: skip
        if not words:
            words = [say("No arm is surely better than {reference}.", reference=reference)]
        shown: str = self.called.said(joined(" ", words))
        return shown

    def _apart(self, row: dict[str, Any]) -> str:
        ends = (np.nan if row[n] is None else row[n] for n in ("difference", "low", "high"))
        return self.outcome.apart(*ends)[1]

    def lines(self) -> list[str]:
        """The answer in at most eight lines.

        Returns:
            The finding, then a line for each of the first arms.

        Example:
            >>> import dprl
            >>> dprl.evaluation.Effects(()).lines()[0]
            'No arm is surely better than usual practice.'
        """
        sure = f"{100 * (1 - self.delta):g} %"
        head = [self.finding(), f"Against {self.against}, all at once with {sure}:"]
        return [*head, *self.told(self.rows, TOLD)]

    def told(self, rows: Sequence[dict[str, Any]], most: int) -> list[str]:
        """Some arms, in a line each.

        Args:
            rows: The arms, of `rows`.
            most: How many are told; of the others it is said how many they are.

        Returns:
            The lines.

        Example:
            >>> import dprl
            >>> dprl.evaluation.Effects(()).told([], 3)
            []
        """
        lines = [
            f"- {self.called.act(row['arm'])}: "
            + (
                f"{self._apart(row)}; {row['groups']:,} had it."
                if row["difference"] is not None
                else f"{row['groups']:,} had it, too few to tell."
            )
            for row in rows[:most]
        ]
        more = len(rows) - len(lines)
        return (
            [*lines[:-1], f"{lines[-1]} And {many(more, 'more arm')}."] if more and lines else lines
        )

    def __str__(self) -> str:
        return "\n".join(self.lines())


def effects(
    log: Log,
    *,
    versus: Any = None,
    gamma: float = 1.0,
    delta: float = 0.05,
    cut: Cut | None = None,
    seed: int = 0,
) -> Effects:
    """What every arm of a trial brings for everyone, against one reference.

    Args:
        log: A log whose actions were given by lot with known chances: it was read with
            `design="randomised"`, or its `propensity` tells the chances of all arms. Where episodes
            have several decisions, an arm is the same action at all of them.
        versus: The label of the arm that others are compared with. Default None: the one that was
            declared when the log was read, or whose name says that it is a control (placebo, usual
            care); else usual practice, which gives arms by lot.
        gamma: Discount per step, in (0, 1]. Default 1.
        delta: All intervals hold at once with probability 1 - delta. Default 0.05.
        cut: What to do with cut episodes, as for the learners. Default None: as ended, with a
            warning.
        seed: Seed of the folds and the multipliers. Default 0.

    Returns:
        The arms with their intervals, the best first.

    Raises:
        LogError: The chances of the arms are not known.
        ParameterError: `versus` is no arm of the log, or a setting is outside its range.

    Example:
        >>> import numpy as np, dprl
        >>> rng = np.random.default_rng(0)
        >>> drug = rng.random(400) < 0.5
        >>> log = dprl.from_arrays(
        ...     episode=range(400), state=["all"] * 400, action=np.where(drug, "drug", "placebo"),
        ...     reward=drug + rng.normal(size=400), propensity=np.full(400, 0.5),
        ... )
        >>> print(dprl.effects(log).finding())
        drug instead of placebo, for everyone: the return higher by 1.09 (0.89 to 1.29).
    """
    check_log(log)
    gamma, delta, seed = check_gamma(gamma), check_delta(delta), check_seed(seed)
    design = Design.of(log.columns)
    if versus is not None:
        design = Design(design.kind, str(versus))
    reference = design.reference(log.actions)
    log = treat_cut(filled(log), gamma, cut, reads="returns").gathered()
    chances = all_chances(log)
    if chances is None:
        raise LogError(
            "the chances of all arms are not known, so main effects cannot be told.",
            f"{log.n_actions} actions on {log.n_steps:,} rows",
            worded(
                "Where actions were given by lot, say {design='randomised'} and the chances when "
                "reading."
            ),
        )
    follows, weight = _followed(log, chances)
    counts = np.array([_groups(log, follows[:, a]) for a in range(log.n_actions)])
    squares = np.maximum((weight**2).sum(axis=0), np.finfo(float).tiny)
    seen = np.minimum(weight.sum(axis=0) ** 2 / squares, counts)  # the effective sample
    single = log.n_steps == log.n_episodes
    enough = (counts >= FEWEST) & (single | (seen >= np.minimum(SEVERAL, EQUAL * counts)))
    G = returns(log, gamma)[log.starts[:-1]]
    score, spread = _scores(log, G, follows, weight, enough, seed)
    judged = [a for a in np.flatnonzero(enough).tolist() if a != reference]
    rows: list[dict[str, Any]] = []
    group = log.group.astype(np.int64)
    known = reference is None or bool(enough[reference])
    if judged and known:
        base = G if reference is None else score[:, reference]
        means, parts = [], []
        for a in judged:
            mean, own = cluster_parts(score[:, a] - base, group, len(log.groups))
            alike = spread * (
                1 / seen[a] + (-1 / len(log.groups) if reference is None else 1 / seen[reference])
            )
            se = float((own**2).sum())
            means.append(mean)
            parts.append(own * np.sqrt(max(1.0, alike / se)) if se > 0 else own)
        test = max_t(np.array(means), np.stack(parts, axis=1), level=delta / 2, seed=seed)
        for k in np.argsort(-test.t, kind="stable").tolist():
            ends = float(test.low[k]), float(test.high[k])
            sure = "better" if ends[0] > 0 else "worse" if ends[1] < 0 else "unsure"
            rows.append(_row(log, judged[k], counts, score, float(test.mean[k]), ends,
                             float(test.p[k]), sure))  # fmt: skip
    told = {row["arm"] for row in rows}
    rows += [
        _row(log, a, counts, score, np.nan, (np.nan, np.nan), 1.0, "too few")
        for a in range(log.n_actions)
        if a != reference and log.actions[a] not in told
    ]
    label = None if reference is None else log.actions[reference]
    called = Called.of(log.columns)
    return Effects(tuple(rows), label, delta, len(log.groups), log.outcome, called)


def _row(
    log: Log, a: int, counts: Ints, score: Floats, mean: float, ends: tuple[float, float],
    p: float, verdict: str,
) -> dict[str, Any]:  # fmt: skip
    """What is told of one arm, in the direction of the outcome."""
    low, high = log.outcome.ends(*ends)
    value = float(score[:, a].mean())
    numbers = {"value": log.outcome.shown(value), "difference": log.outcome.shown(mean),
               "low": low, "high": high}  # fmt: skip
    finite = {k: float(v) if np.isfinite(v) else None for k, v in numbers.items()}
    return {"arm": log.actions[a], "groups": int(counts[a]), **finite, "p": p, "verdict": verdict}


def _followed(log: Log, chances: Floats) -> tuple[Bools, Floats]:
    """(E, A): which episodes always took an action, and one over the chance of that."""
    E, A, first = log.n_episodes, log.n_actions, log.starts[:-1]
    follows, weight = np.zeros((E, A), bool), np.zeros((E, A))
    for a in range(A):
        follows[:, a] = np.logical_and.reduceat(log.action == a, first)
        with np.errstate(divide="ignore"):
            total = np.exp(np.add.reduceat(np.log(chances[:, a]), first))
        weight[:, a] = np.where(follows[:, a], 1 / np.where(total > 0, total, 1.0), 0.0)
    return follows, weight


def _groups(log: Log, episodes: Bools) -> int:
    """How many groups have one of these episodes."""
    return int((np.bincount(log.group[episodes]) > 0).sum()) if episodes.any() else 0


def _scores(
    log: Log, G: Floats, follows: Bools, weight: Floats, enough: Bools, seed: int
) -> tuple[Floats, float]:
    """S (E, A), NaN of arms with too few, and the mean square of what is left of G."""
    if not enough.any():
        return np.full(follows.shape, np.nan), 0.0
    arm = np.where(follows[:, enough].any(axis=1), follows[:, enough].argmax(axis=1), -1)
    A, used = int(enough.sum()), arm >= 0
    own = np.zeros((len(G), A))
    own[np.flatnonzero(used), arm[used]] = 1.0
    phi = _covariates(log)
    score, left = np.full(follows.shape, np.nan), 0.0
    total = np.zeros((len(G), A))
    for time in range(TIMES):
        rng = np.random.default_rng((seed, time))
        fold = (rng.permutation(len(log.groups)) % FOLDS)[log.group]
        best: tuple[float, Floats] | None = None
        for columns in (np.zeros((len(G), 0)), phi):
            m = _predicted(G, own, columns, fold, used)
            square = float(((G - (m * own).sum(axis=1))[used] ** 2).mean()) if used.any() else 0.0
            if best is None or square < best[0]:
                best = square, m
        assert best is not None
        total += best[1] + weight[:, enough] * (G[:, None] - best[1])
        left += best[0] / TIMES
    score[:, enough] = total / TIMES
    return score, left


def _covariates(log: Log) -> Floats:
    """float64 (E, p), functions of the features at the first decision."""
    first, E = log.starts[:-1], log.n_episodes
    if log.state is not None:
        codes = log.codes()[first]
        few = 1 < log.n_states <= STATES
        return np.eye(log.n_states)[codes][:, 1:] if few else np.zeros((E, 0))
    begins = Log(
        starts=np.arange(E + 1), action=log.action[first], reward=np.zeros(E),
        actions=log.actions, features=np.asarray(log.features)[first],
        feature_names=log.feature_names, levels=log.levels,
    )  # fmt: skip
    phi = columns_of(begins, COLUMNS[E > LARGE])[:, 1:]
    return phi if phi.shape[1] < E / FOLDS else np.zeros((E, 0))


def _predicted(G: Floats, own: Floats, phi: Floats, fold: Ints, used: Bools) -> Floats:
    """float64 (E, A), the return of each arm as other groups predict it."""
    A = own.shape[1]
    x = np.hstack((own, phi))
    sums = [(x[at].T @ x[at], x[at].T @ G[at]) for k in range(FOLDS) for at in [used & (fold == k)]]
    gram, right = sum(s[0] for s in sums), sum(s[1] for s in sums)
    m, overall = np.zeros((len(G), A)), float(G.mean())
    for k, (own_gram, own_right) in enumerate(sums):
        here, rest = gram - own_gram, right - own_right
        n = np.diag(here)[:A]
        shrink = np.zeros(len(here))
        shrink[A:] = RIDGE * max(float(n.sum()), 1.0)
        shrink[:A] = np.where(n > 0, 0.0, 1.0)
        beta = np.linalg.lstsq(here + np.diag(shrink), rest, rcond=None)[0]
        at = fold == k
        m[at] = np.where(n > 0, beta[:A], overall) + (phi[at] @ beta[A:])[:, None]
    return np.asarray(np.clip(m, G.min(), G.max()))


# --- The policy: one arm for everyone


def for_everyone(log: Log, result: Effects, *, gamma: float, cut: Cut | None = None) -> Any:
    """The policy that gives everybody the best arm; a `RulePolicy`, over labels a `TablePolicy`.

    Args:
        log: The log that the effects are of.
        result: The effects; one arm is the best.
        gamma: Discount per step.
        cut: As it was given to `effects`.
    """
    best = log.actions.index(result.best)
    settled = treat_cut(filled(log), gamma, cut, reads="returns").gathered()
    made = provenance_of(
        filled(log), settled, probabilities="known",
        notes=[replace(result, called=NOBODY).finding()],
        effects=result.to_dict(),
    )  # fmt: skip
    settings = {"learner": "effects", "gamma": gamma, "delta": result.delta / 2, "cut": cut}
    if log.state is not None:
        counted = count_source(as_source(log), Counts(gamma, cut=cut))
        evidence, A = counted.evidence, log.n_actions
        taken = evidence.took.n[:, best] > 0
        return TablePolicy.of(
            evidence,
            choice=np.where(taken, best, -1).astype(np.int32),
            allowed=taken[:, None] & (np.arange(A) == best),
            planned=np.full((len(evidence.states), A), np.nan),
            steps=counted.steps,
            parameters={**settings, "n_min": 1},
            provenance=made,
        )
    took = settled.action == best
    group = np.repeat(settled.group, settled.lengths)
    shares = np.bincount(settled.action, minlength=settled.n_actions) / max(settled.n_steps, 1)
    facts: dict[str, Any] = {
        "steps": settled.n_steps, "groups": len(settled.groups),
        "groups_took": len(np.unique(group[took])),
        "groups_others": len(np.unique(group[~took])),
        "share_usual": [
            [settled.actions[a], float(shares[a])]
            for a in np.argsort(-shares, kind="stable").tolist() if shares[a]
        ],
        "share": 1.0, "changed": float((~took).mean()),
    }  # fmt: skip
    if settled.n_actions == 2 and result.versus is not None:  # then doing otherwise is that arm
        row = result.rows[0]
        ends = settled.outcome.ends(row["low"], row["high"])
        facts |= {"advantage": settled.outcome.shown(row["difference"]), "p": row["p"]}
        facts |= dict(zip(("low", "high"), ends, strict=True))
    return RulePolicy(
        states=(), actions=settled.actions, parameters=settings, provenance=made,
        feature_names=settled.feature_names, rules=(Rule((), result.best, facts),),
        levels=settled.levels,
    )  # fmt: skip


def against_everyone(
    policy: Any, log: Log, arm: int, gamma: float, cut: Cut | None
) -> tuple[float, float] | None:
    """What a policy brings over one arm for everyone, on groups it has not seen, and its error.

    None where it says the same. Where the policy defers, the arm is given. By weights alone, since
    only groups at which both differ add to it.

    Args:
        policy: The policy.
        log: A log of a trial.
        arm: The code of the arm.
        gamma: Discount per step.
        cut: What to do with cut episodes.
    """
    log = treat_cut(like_policy(policy, log), gamma, cut, reads="returns").gathered()
    chances = all_chances(log)
    if chances is None:
        return None
    states, row = policy.space.of_log(log)
    place = {label: code for code, label in enumerate(log.actions)}
    here = policy.at(states)
    code = np.array([*(place.get(label, -1) for label in policy.actions), -1])
    named = code[here.choice][row]
    suggested = np.where(named >= 0, named, arm)
    if (suggested == arm).all():
        return None
    G, first = returns(log, gamma)[log.starts[:-1]], log.starts[:-1]
    weights = []
    for wanted in (suggested, np.full(log.n_steps, arm)):
        b = chances[np.arange(log.n_steps), wanted]
        with np.errstate(divide="ignore"):
            ratio = np.where(log.action == wanted, 1 / b, 0.0)
        weights.append(np.multiply.reduceat(ratio, first))
    apart = np.logical_or.reduceat(suggested != arm, first)
    middle = G[apart].mean()
    values = np.where(apart, (weights[0] - weights[1]) * (G - middle), 0.0)
    mean, parts = cluster_parts(values, log.group.astype(np.int64), len(log.groups))
    return mean, float(np.sqrt((parts**2).sum()))
