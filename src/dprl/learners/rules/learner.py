r"""Rules: a few readable regions of features, proposed by one half, certified by the other.

A certificate over a thousand cells has no power; a tree of depth 2 asks few questions. Groups are
divided in two halves, A proposes and B certifies.

1. Nuisances, cross-fitted by group (`dprl.evidence.nuisances`): V̂(s), and the probabilities b̂(a|s)
   of usual practice. Rows of A see models of A alone, rows of B models of all other groups.
2. Credit e_t(λ) (`dprl.evidence.excursions`) and the scores of actions
(`dprl.learners.rules.search`):
   what doing an action brings over doing otherwise.
3. A chooses λ, depth and the size of leaves, and proposes (`dprl.learners.rules.search`).
4. B certifies (`dprl.learners.rules.search`). What passes is issued.

**Several divisions.** A division in two halves is luck: one may put the groups that tell most on
the wrong side. So several are tried, each at its part δ/S of the level, and the one whose rules
bring most over usual practice (one change at a time, less a standard error) is issued. By the union
bound the chance that some division certifies a rule that is none is at most δ, so whichever is
taken keeps the claim. (Rules of two divisions are different statements about different regions, so
their p-values cannot be averaged.)

The claim is **large-sample**, not proved: with probability about 1 - δ every issued rule's action
brought more than `margin` over doing otherwise, on average over the decisions of its region, if all
that drove decisions and outcomes is among the features; with λ < 1, if the features also tell what
comes next. Each rule is about what is met *today*: followed together, rules change which states are
met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats
from dprl._core.checks import (
    Cut,
    check_cut,
    check_delta,
    check_gamma,
    check_n_min,
    check_number,
    check_seed,
    check_weights,
    check_whole,
)
from dprl._core.words import api, joined, say, say_many, sentences, worded
from dprl.errors import LogError, ParameterError
from dprl.evidence.nuisances import Nuisances, check_propensity, fit_nuisances
from dprl.learners.continuous import feature_quantiles
from dprl.learners.rules.search import LAMBDAS, Claims, Scores, Search, certify, choose, propose
from dprl.logs.censoring import treat_cut
from dprl.logs.encoding.encoder import filled
from dprl.logs.log import Log, check_log, deal
from dprl.logs.source import check_claim
from dprl.policies.base import provenance_of
from dprl.policies.rules.policy import RulePolicy
from dprl.policies.rules.text import WHOLE

FEW = 20
"""Episodes that followed all rules, below which nothing is known of following all of them."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """A learner of a few readable rules over features, certified on patients it did not learn from.

    Attributes:
        gamma: Discount in (0, 1].
        depth: The most questions on the way to a rule, 1 to 4; how many are asked is chosen by the
            proposing half. Default 2.
        n_min: Groups that took the action in a region, and groups that did not, before it may be
            suggested there; a whole number >= 2. The proposing half may choose two or four times as
            many. Default 20.
        delta: The chance that some issued rule is no improvement, in (0, 1). Default 0.05; the
            claim is large-sample.
        margin: What a rule must bring over doing otherwise, in units of returns, to be worth a
            change. Default 0.
        lam: λ of the credit, in [0, 1]: 1 compares whole returns, 0 trusts the model of values.
            Default None: chosen by the proposing half among 1, 0.95, 0.9 and 0.8.
        splits: How many divisions in two halves are tried, at least 1; the one that brings most
            over usual practice is issued, and each has its part of `delta`. Default 3.
        cuts: The most cuts of a feature that are tried, at quantiles, 1 to 32. Default 16.
        folds: Folds of the cross-fitted models, at least 2. Default 4.
        cut: What to do with cut episodes: "drop-unrelated" (which declares that whether an episode
            was cut depends neither on its length nor on its outcome), "terminal", or, with lam=1,
            "ipcw" (weights by the chance to be followed so far). Default None: as "terminal",
            with a CutWarning.
        seed: Seed of the halves, the folds, the models and the multipliers. Default 0.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> import dprl, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(600, 2))
        >>> drug = rng.random(600) < 0.4
        >>> score = drug * np.where(x[:, 0] > 0, 1.0, -1.0) + rng.normal(size=600)
        >>> log = dprl.from_arrays(
        ...     episode=range(600), state=x, action=np.where(drug, "drug", "wait"), reward=score,
        ...     feature_names=["pressure", "lactate"],
        ... )
        >>> policy = dprl.Rules(gamma=1.0, depth=1).fit(log)
        >>> policy.act([[1.0, 0.0], [-1.0, 0.0]])
        ['drug', 'wait']
    """

    gamma: float
    depth: int = 2
    n_min: float = 20
    delta: float = 0.05
    margin: float = 0.0
    lam: float | None = None
    splits: int = 3
    cuts: int = 16
    folds: int = 4
    cut: Cut | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        check_whole("depth", self.depth, 1, 4)
        check_n_min(self.n_min, 2)
        check_delta(self.delta)
        check_number("margin", self.margin, "[0, inf)")
        if self.lam is not None:
            check_number("lam", self.lam, "[0, 1]")
        check_whole("splits", self.splits, 1)
        check_whole("cuts", self.cuts, 1, 32)
        check_whole("folds", self.folds, 2)
        check_cut(self.cut)
        if self.cut == "bootstrap":
            raise ParameterError(
                "rules take 'drop-unrelated', 'terminal' or 'ipcw' for cut episodes; got "
                "'bootstrap'.",
                "cut (--cut)",
                "Values of usual practice at features are not used to finish episodes.",
            )
        check_weights(self.cut, False, "chosen by the data" if self.lam is None else self.lam)
        check_seed(self.seed)

    def fit(
        self,
        log: Log,
        *,
        propensity: Floats | None = None,
        behavior_models: Any = None,
        value_model: Any = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> RulePolicy:
        """The rules that one half of a log proposes and the other certifies.

        Args:
            log: The training log; its states are features.
            propensity: float64 (N, A), the probabilities with which actions were taken at every row
                of the log, where they are known. Default None: what the log itself knows of them
                (`Log.propensity`), and the rest is estimated.
            behavior_models: (name, scikit-learn classifier) pairs to use instead of ours. Default
                None.
            value_model: A scikit-learn regressor of returns to use instead of ours. Default None.
            progress: Called with the name of the stage and the share of it that is done. Default
                None.

        Returns:
            The policy: an ordered list of rules; it defers wherever none applies.

        Raises:
            LogError: If the log is empty, its states are labels, or it has fewer than two groups
                for every fold.

        Example:
            >>> import dprl, numpy as np
            >>> rng = np.random.default_rng(0)
            >>> log = dprl.from_arrays(
            ...     episode=range(300), state=rng.normal(size=(300, 1)),
            ...     action=rng.choice(["a", "b"], 300), reward=rng.normal(size=300),
            ... )
            >>> len(dprl.Rules(gamma=1.0).fit(log).rules)  # nothing helps, nothing is issued
            0
        """
        check_log(log)
        log = filled(log)
        work = self.work(
            log, propensity=propensity, behavior_models=behavior_models, value_model=value_model,
            progress=progress,
        )  # fmt: skip
        return work.policy(log)

    def work(
        self,
        log: Log,
        *,
        propensity: Floats | None = None,
        behavior_models: Any = None,
        value_model: Any = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> Work:
        """The learner with a log and models, before anything is computed.

        Args:
            log: The training log; its states are features.
            propensity: As `fit` takes it. Default None.
            behavior_models: As `fit` takes them. Default None.
            value_model: As `fit` takes it. Default None.
            progress: Called with the name of the stage and the share of it that is done. Default
                None.

        Returns:
            What `fit` works with; its cut episodes are settled.

        Raises:
            LogError: If the log is empty, its states are labels, or it has fewer than two groups
                for every fold.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(9), state=[[float(i)] for i in range(9)], action=["a"] * 9,
            ...     reward=range(9),
            ... )
            >>> dprl.Rules(gamma=1.0).work(log).log.n_steps
            9
        """
        check_log(log)
        log = filled(log)
        if log.features is None:
            raise LogError(
                "rules are over features; this log's states are labels.",
                do=worded(
                    "Read the features as states (--state 'x_*'), or use {learner} for labels.",
                    learner=api("dprl.Confident"),
                ),
            )
        check_claim(self.cut, log, "the claim of rules")
        settled = treat_cut(log, self.gamma, self.cut, reads="returns").gathered()
        groups = len(settled.groups)
        if groups < 2 * self.folds:
            raise LogError(
                f"{self.folds} folds in each of two halves need at least {2 * self.folds} groups; "
                f"got {groups:,}.",
                do="Read more groups (or episodes), or lower folds (at least 2).",
            )
        if propensity is not None:
            propensity = check_propensity(log, propensity)[_rows_in(log, settled)]
        brought = {"behavior_models": behavior_models, "value_model": value_model}
        return Work(self, settled, propensity, brought, progress or (lambda stage, share: None))

    def settings(self) -> dict[str, Any]:
        """The learner as values JSON can hold, for the parameters of a policy.

        Returns:
            The name of the learner and its settings.

        Example:
            >>> import dprl
            >>> dprl.Rules(gamma=0.99).settings()["depth"]
            2
        """
        n_min = None if np.isinf(self.n_min) else int(self.n_min)
        return {
            "learner": type(self).__name__, **asdict(self), "gamma": float(self.gamma),
            "n_min": n_min,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Division:
    """One division in two halves: what was searched with, what was tried, and what came of it."""

    seed: int
    search: Search
    tried: list[dict[str, float]]
    claims: Claims

    def to_dict(self) -> dict[str, Any]:
        return {
            "seed": self.seed, "lam": self.search.lam, "depth": self.search.depth,
            "n_min": self.search.n_min, "proposed": len(self.claims.tested),
            "certified": len(self.claims.issued), "worth": self.claims.worth,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Work:
    """A learner at work on a settled log."""

    learner: Rules
    log: Log
    propensity: Floats | None
    brought: dict[str, Any]
    tell: Callable[[str, float], None]

    def policy(self, log: Log) -> RulePolicy:
        """The policy; `log` is the log before cut episodes were settled."""
        learner = self.learner
        self.tell("models of usual practice", 0.0)
        everyone = self.nuisances(None)
        divisions = [self._division(everyone, i) for i in range(learner.splits)]
        best = max(divisions, key=lambda d: (bool(d.claims.issued), d.claims.worth, -d.seed))
        facts = {
            "tested": [rule.to_dict() for rule in best.claims.tested],
            "models": everyone.losses.to_dicts(),
            "whole": best.claims.whole,
            "tried": best.tried,
            "divisions": [d.to_dict() for d in divisions],
            "division": best.seed,
        }
        return RulePolicy(
            states=(),
            actions=self.log.actions,
            parameters=learner.settings(),
            provenance=provenance_of(
                log, self.log, notes=_notes(learner, best, everyone), ranges=_ranges(self.log),
                rules=facts, probabilities=everyone.source, quantiles=feature_quantiles(self.log),
            ),
            feature_names=self.log.feature_names,
            rules=tuple(best.claims.issued),
            levels=self.log.levels,
        )  # fmt: skip

    def nuisances(self, inside: NDArray[np.bool_] | None) -> Nuisances:
        """Models of all groups, or of some of them alone: `inside` is bool (G,)."""
        log, propensity, folds = self.log, self.propensity, self.learner.folds
        if inside is not None:
            episodes = inside[log.group]
            if propensity is not None:
                propensity = propensity[np.repeat(episodes, log.lengths)]
            log = log.take(np.flatnonzero(episodes))
        return fit_nuisances(
            log, self.learner.gamma, folds=folds, seed=self.learner.seed, propensity=propensity,
            categories=True, **self.brought,
        )  # fmt: skip

    def _division(self, everyone: Nuisances, i: int) -> _Division:
        """Propose with one half and certify with the other."""
        learner, log = self.learner, self.log
        seed, done = learner.seed + i, (i + 1) / (learner.splits + 1)
        inside = deal(len(log.groups), 0.5, seed)
        self.tell("models of the proposing half", done)
        of_half = self.nuisances(inside)
        rows = np.repeat(inside[log.group], log.lengths)
        V, b = np.array(everyone.V), np.array(everyone.b)
        V[rows], b[rows] = of_half.V, of_half.b
        self.tell("searching rules", done)
        lams = LAMBDAS if learner.lam is None else (learner.lam,)
        scored = {lam: Scores.of(log, V, b, learner.gamma, lam) for lam in lams}
        first = Search(lams[0], learner.depth, learner.n_min, learner.margin, learner.cuts)
        half = {lam: scores.of_groups(inside) for lam, scores in scored.items()}
        search, tried = choose(half, first, seed=seed)
        proposals = propose(half[search.lam], search)
        self.tell("certifying", done)
        returns = scored.get(1.0) or Scores.of(log, V, b, learner.gamma, 1.0)
        claims = certify(
            proposals, half[search.lam], scored[search.lam].of_groups(~inside),
            returns.of_groups(~inside), delta=learner.delta, splits=learner.splits,
            margin=learner.margin, n_min=learner.n_min, gamma=learner.gamma, seed=seed,
        )  # fmt: skip
        return _Division(seed, search, tried, claims)


def _notes(learner: Rules, best: _Division, nuisances: Nuisances) -> list[str]:
    """What must be known about the rules, in sentences."""
    claims, search = best.claims, best.search
    notes = [
        say_many(
            "One half of the groups proposed {n:,} rule; the other half certified {k}.",
            "One half of the groups proposed {n:,} rules; the other half certified {k}.",
            claims.tested,
            k=len(claims.issued),
        )
    ]
    if learner.splits > 1:
        notes.append(
            say(
                "{n} divisions in halves were tried, each at {d:g} / {k} of the level; this is "
                "the one whose rules bring most over usual practice.",
                n=learner.splits,
                d=learner.delta,
                k=learner.splits,
            )
        )
    if search.lam < 1:
        notes.append(
            sentences(
                say(
                    "Credit with λ = {lam:g}: effects that show later than about {s} steps are "
                    "seen only as far as a model of values sees them coming in the features.",
                    lam=search.lam,
                    s=round(1 / (1 - search.lam)),
                ),
                say(
                    "The contrast from whole returns, which needs no such model, is on record "
                    "beside each rule."
                ),
            )
        )
    if claims.issued:
        w = claims.whole
        notes.append(
            sentences(
                say(
                    "{whole}, they bring {gain:+.3g} an episode over usual practice ({low:+.3g} "
                    "to {high:+.3g}, large-sample).",
                    whole=WHOLE,
                    gain=w["gain"],
                    low=w["low"],
                    high=w["high"],
                ),
                say(
                    "All of them would change {p:.0f} % of the decisions; if each brought what it "
                    "brings alone, that would be {x:+.3g}, but followed together they change "
                    "which states are met.",
                    p=100 * w["changed"],
                    x=w["sum"],
                ),
                _followed(int(w["met"]), int(w["followed"])),
            )
        )
    return [*notes, *nuisances.notes]


def _followed(met: int, followed: int) -> str:
    """Whether anybody did what all rules together say, and what follows from that."""
    who = say_many(
        "Of {n:,} episode of the certifying half that comes to a suggestion, {k:,} took every one "
        "they came to",
        "Of {n:,} episodes of the certifying half that come to a suggestion, {k:,} took every one "
        "they came to",
        met,
        k=followed,
    )
    if followed < FEW:
        return sentences(
            say(
                "{who}: too few to tell what following all rules at "
                "every step would bring, and it may be less than usual practice.",
                who=who,
            ),
            say(
                "A policy that plans ahead ({learner}), or fewer rules (a larger margin), may "
                "serve better.",
                learner=api("dprl.DPRLContinuous"),
            ),
        )
    return sentences(
        joined("", (who, ".")),
        say("Check the whole policy on a log not used here."),
    )


def _ranges(log: Log) -> list[list[float | None]]:
    """[smallest, largest] value of each feature; None where it is missing everywhere."""
    ranges: list[list[float | None]] = []
    for column in np.asarray(log.features).T:
        measured = column[~np.isnan(column)]
        ends = (measured.min(), measured.max()) if len(measured) else (None, None)
        ranges.append([None if end is None else float(end) for end in ends])
    return ranges


def _rows_in(log: Log, settled: Log) -> NDArray[np.int64]:
    """The row of `log` that each row of the settled log is; episodes are whole in both."""
    place = {label: e for e, label in enumerate(log.episodes)}
    episodes = np.array([place[label] for label in settled.episodes], np.int64)
    rows = np.repeat(log.starts[episodes] - settled.starts[:-1], settled.lengths)
    return np.asarray(rows + np.arange(settled.n_steps))
