r"""Rules: a few readable regions of features, proposed by one half, certified by the other.

A certificate over a thousand cells has no power; a tree of depth 2 asks few questions. Groups are
divided in two halves, A proposes and B certifies.

1. Nuisances, cross-fitted by group (`dprl.evidence.nuisances`): V̂(s), and the probabilities b̂(a|s)
   of usual practice. b̂ is fitted once, to all other groups: it sees features and what was done, no
   outcome. V̂ at rows of A sees A alone, at rows of B all other groups.
2. Credit e_t(λ) (`dprl.evidence.excursions`) and the scores of actions
(`dprl.learners.rules.search`):
   what doing an action brings over doing otherwise.
3. A chooses λ, and proposes with several depths and sizes of leaves
   (`dprl.learners.rules.search`).
4. b̂ is tested in every proposed region (`dprl.evidence.score_test`). Where it is refuted the record
   cannot tell what the action brought, and nothing is claimed. It sees no outcomes.
5. B certifies (`dprl.learners.rules.search`). What passes is issued.

**The whole is what is issued.** Rules that are true one by one, with usual practice before and
after, can do harm together. So a set of rules is issued only where following all of it at every
decision is surely better than usual practice (`dprl.learners.rules.whole`), on the certifying half
and at once with the tests of the rules; proposals that name the same action are one claim first.

**λ < 1 is an assumption, and is tested.** V̂ knows what was done before where that tells more of
what follows; λ is the one of least variance on the proposing half that whole returns do not refute
there; where they refute it on the certifying half, the rule is not claimed by itself. The whole
does not rest on λ.

**Several divisions and searches.** A division in two halves is luck: one may put the groups that
tell most on the wrong side. So several are tried, each with a few depths and sizes of leaves; and,
with all groups and λ = 1, the same action for everyone, which needs no half that proposes. The
level is divided equally among the divisions and "everyone", so that a plain main effect is still
found, and the share of a division equally among its searches. The one whose whole brings most is
issued; of rules for some a standard error is taken off, so that "everyone" wins unless they earn
their place. By the union bound the chance that some search certifies a rule that is none is at most
δ, so whichever is taken keeps the claim. (Rules of two divisions are different statements about
different regions, so their p-values cannot be averaged.)

The claim is **large-sample**, not proved: with probability about 1 - δ following the issued rules
at every decision brings more than usual practice, and every rule that is claimed by itself brought
more than `margin` over doing otherwise (one decision, usual practice otherwise; rules of one action
together), on average over the decisions of its region, if all that drove decisions and outcomes is
among the features. A rule's own claim with λ < 1 supposes that what follows depends on the features
and on what was done before, and so does that of the whole where few followed it to the end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
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
from dprl.evidence.nuisances import (
    Nuisances,
    check_propensity,
    fit_nuisances,
    usual_values,
)
from dprl.evidence.score_test import LEVEL
from dprl.evidence.support import ETA
from dprl.learners.continuous import feature_quantiles
from dprl.learners.registry import Settings
from dprl.learners.rules.search import (
    LAMBDAS,
    Claims,
    Proposal,
    Scores,
    Search,
    bare_regions,
    certify,
    choose_lam,
    proposal_of,
    propose,
    rule_of,
    several_left,
    suggestions,
)
from dprl.learners.rules.whole import Steps, with_past
from dprl.logs.censoring import refuse_between, treat_cut
from dprl.logs.encoding.encoder import filled
from dprl.logs.log import Log, check_log, deal
from dprl.logs.outcome import Outcome
from dprl.logs.source import check_claim
from dprl.policies.base import provenance_of
from dprl.policies.rules.policy import RulePolicy
from dprl.policies.rules.rule import Region, Rule, inside
from dprl.policies.rules.text import told_low

EVERYONE = -1
"""Stands for the seed of a division where there is none: all groups certify."""
MOSTLY = 0.9
"""The share of steps at which an action must be comparable to be looked at for everyone."""


@dataclass(frozen=True, kw_only=True)
class Rules(Settings):
    """A learner of a few readable rules over features, certified on patients it did not learn from.

    Attributes:
        gamma: Discount in (0, 1].
        depth: The most questions on the way to a rule, 1 to 4; fewer, or none (the same for
            everyone), are tried as well. Default 2.
        n_min: Groups that took the action in a region, and groups that did not, before it may be
            suggested there; a whole number >= 2. Twice as many are tried as well. Default 20.
        delta: The chance that what is claimed of the rules, by themselves or followed at every
            decision, is false, in (0, 1). Default 0.05; the claim is large-sample.
        margin: What a rule must bring over doing otherwise, in units of returns, to be worth a
            change. Default 0.
        lam: λ of the credit, in [0, 1]: 1 compares whole returns, 0 trusts the model of values.
            Default None: the one of least variance on the proposing half among 1, 0.95, 0.9 and
            0.8 that whole returns do not refute there.
        splits: How many divisions in two halves are tried, at least 1; the one that brings most
            over usual practice, less a standard error, is issued, or the same action for everyone,
            and each search of each has its part of `delta`. Default 3.
        cuts: The most cuts of a feature that are tried, at quantiles, 1 to 32. Default 16.
        folds: Folds of the cross-fitted models, at least 2. Default 4.
        cut: What to do with cut episodes: "drop-unrelated" (which declares that whether an episode
            was cut depends neither on its length nor on its outcome), "terminal", or, with `lam=1`,
            "ipcw" (weights by the chance to be followed so far). Default None: as "terminal",
            with a CutWarning.
        seed: Seed of the halves, the folds, the models and the multipliers. Default 0.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> import dprl, numpy as np
        >>> rng = np.random.default_rng(1)
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
        refuse_between(log)
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
    """One division in two halves: what was searched with, what was tried, and what came of it.

    Of `EVERYONE` all groups certify, and `alternatives` is how many proposals it had.
    """

    seed: int
    search: Search
    tried: list[dict[str, float]]
    claims: Claims
    doubted: list[Rule]
    alternatives: int = 1

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
        everyone = self.nuisances()
        divisions = [one for i in range(learner.splits) for one in self._division(everyone, i)]
        divisions.append(self._for_everyone(everyone))
        best = max(divisions, key=lambda d: (bool(d.claims.issued), d.claims.worth, d.seed >= 0))
        says = [self._says(division.claims.issued) for division in divisions]
        same = [float((one == self._says(best.claims.issued)).mean()) for one in says]
        facts = {
            "tested": [rule.to_dict() for rule in (*best.claims.tested, *best.doubted)],
            "models": everyone.losses.to_dicts(),
            "whole": best.claims.whole,
            "tried": best.tried,
            "divisions": [
                {**d.to_dict(), "same": share} for d, share in zip(divisions, same, strict=True)
            ],
            "division": best.seed,
            "alternatives": best.alternatives,
            "eta": ETA,
        }
        return RulePolicy(
            states=(),
            actions=self.log.actions,
            parameters=learner.settings(),
            provenance=provenance_of(
                log, self.log, notes=_notes(learner, best, everyone, log),
                ranges=_ranges(self.log), rules=facts, probabilities=everyone.source,
                quantiles=feature_quantiles(self.log),
            ),
            feature_names=self.log.feature_names,
            rules=tuple(best.claims.issued),
            levels=self.log.levels,
        )  # fmt: skip

    def _says(self, rules: Sequence[Rule]) -> NDArray[np.int64]:
        """int64 (N,), what rules suggest at every step; -1 where they do not speak."""
        return suggestions(self.log, [proposal_of(self.log, rule) for rule in rules])

    def proposing(self, seed: int) -> NDArray[np.bool_]:
        """bool (G,), the groups that propose in the division of a seed; none of `EVERYONE`."""
        groups = len(self.log.groups)
        return np.zeros(groups, bool) if seed == EVERYONE else deal(groups, 0.5, seed)

    def nuisances(self, halved: bool = False) -> Nuisances:
        """Models of all groups, or of half as many, to tell what models still learn."""
        return fit_nuisances(
            self.log, self.learner.gamma, folds=self.learner.folds, seed=self.learner.seed,
            propensity=self.propensity, categories=True, more=self._borders(), halved=halved,
            **self.brought,
        )  # fmt: skip

    def weaker(
        self, everyone: Nuisances, lam: float, inside: NDArray[np.bool_]
    ) -> Callable[[], Scores] | None:
        """Scores of the groups not inside, with models of half as many; None if b is known."""
        if everyone.doubt is None:
            return None
        return lambda: self.scores(
            self.mended(self._halved.V), self._halved.b, lam
        ).of_groups(~inside)  # fmt: skip

    @functools.cached_property
    def _halved(self) -> Nuisances:
        return self.nuisances(halved=True)

    @functools.cached_property
    def bare(self) -> tuple[tuple[Region, ...], ...]:
        """For every action the regions in which hardly anybody took it, or did otherwise."""
        return bare_regions(self.log, self.learner.seed)

    def _borders(self) -> Floats | None:
        """float64 (N, k): whether a step is in each of these regions; None where there is none."""
        log, regions = self.log, dict.fromkeys(region for own in self.bare for region in own)
        at = [inside(r, np.asarray(log.features), log.feature_names, log.levels) for r in regions]
        real = [one.astype(np.float64) for one in at if one.any() and not one.all()]
        return np.column_stack(real) if real else None

    def scores(self, V: Floats, b: Floats, lam: float) -> Scores:
        """The scores of all steps, but where hardly anybody took an action or did otherwise."""
        return Scores.of(self.log, V, b, self.learner.gamma, lam, self.bare)

    def mended(self, V: Floats, inside: NDArray[np.bool_] | None = None) -> Floats:
        """Values of all groups, or of those inside, that know what was done before: a copy."""
        log = self.log
        if inside is not None:
            log = log.take(np.flatnonzero(inside[log.group]))
        return np.array(with_past(log, V, self.learner.gamma, self.learner.seed))

    def _division(self, everyone: Nuisances, i: int) -> list[_Division]:
        """Propose with one half, by several searches, and certify with the other."""
        learner, log = self.learner, self.log
        seed, done = learner.seed + i, (i + 1) / (learner.splits + 1)
        inside = self.proposing(seed)
        self.tell("models of the proposing half", done)
        b, V, mended = everyone.b, np.array(everyone.V), self.mended(everyone.V)
        episodes = inside[log.group]
        rows = np.repeat(episodes, log.lengths)
        V[rows] = usual_values(
            log.take(np.flatnonzero(episodes)), learner.gamma, folds=learner.folds,
            seed=learner.seed, value_model=self.brought["value_model"],
            more=None if everyone.more is None else everyone.more[rows],
        )[0]  # fmt: skip
        mended[rows] = self.mended(V[rows], inside)
        self.tell("searching rules", done)
        steps = Steps(log, V, b, learner.gamma)
        lams = LAMBDAS if learner.lam is None else (learner.lam,)
        scored = {lam: self.scores(mended, b, lam) for lam in lams}
        first = self.first
        half = {lam: scores.of_groups(inside) for lam, scores in scored.items()}
        lam, tried = choose_lam(half, first, seed=seed)
        scores, returns = scored[lam], scored.get(1.0) or self.scores(mended, b, 1.0)
        other, other_returns = scores.of_groups(~inside), returns.of_groups(~inside)
        found: dict[tuple[Proposal, ...], tuple[Claims, list[Rule]]] = {}
        divisions = []
        for search in replace(first, lam=lam).searches():
            proposed = tuple(propose(half[lam], search))
            if proposed not in found:
                self.tell("certifying", done)
                proposals, doubted = self._told(everyone, scores, proposed)
                claims = certify(
                    proposals, half[lam], other, other_returns, steps, delta=learner.delta,
                    splits=self.parts * len(first.searches()), margin=learner.margin,
                    n_min=learner.n_min,
                    gamma=learner.gamma, seed=seed, weaker=self.weaker(everyone, lam, inside),
                )  # fmt: skip
                found[proposed] = claims, doubted
            divisions.append(_Division(seed, search, tried, *found[proposed]))
        return divisions

    @property
    def first(self) -> Search:
        """The settings as asked for."""
        one = self.learner
        return Search(1.0, one.depth, one.n_min, one.margin, one.cuts)

    @property
    def parts(self) -> int:
        """How many parts the level has: one for each division, one for everyone."""
        return self.learner.splits + 1

    def _told(
        self, everyone: Nuisances, scores: Scores, proposals: Sequence[Proposal]
    ) -> tuple[list[Proposal], list[Rule]]:
        """Proposals where the model of practice is not refuted, and the others, as rules."""
        told, doubted = [], []
        for place, a in proposals:
            rows, named = scores.inside(place).rows, a % self.log.n_actions
            doubt = everyone.doubt_at(rows, named, LEVEL / len(proposals))
            if doubt is None or not doubt.refuted:
                told.append((place, a))
                continue
            facts = {"doubt": [doubt.statistic, doubt.quantile]}
            doubted.append(rule_of(self.log, (place, a), facts))
        return told, doubted

    def _for_everyone(self, everyone: Nuisances) -> _Division:
        """The same action for everyone needs no half that proposes: all groups certify."""
        learner, log = self.learner, self.log
        b = everyone.b
        scores = self.scores(self.mended(everyone.V), b, 1.0)
        places = [scores.place((), a) for a in range(scores.psi.shape[1])]
        here = [scores.inside(place) for place in places]
        proposals: list[Proposal] = [
            (place, a)
            for a, place in enumerate(places)
            if min(here[a].groups_with(a)) >= learner.n_min
            and here[a].overlap(a) >= MOSTLY
            and (a < log.n_actions or several_left(here[a], a))
        ]
        proposals, doubted = self._told(everyone, scores, proposals)
        steps = Steps(log, everyone.V, b, learner.gamma)
        claims = certify(
            proposals, scores.at(np.zeros(0, np.int64)), scores, scores, steps,
            delta=learner.delta, splits=self.parts, margin=learner.margin,
            n_min=learner.n_min, gamma=learner.gamma, seed=learner.seed, one_of=True,
            weaker=self.weaker(everyone, 1.0, self.proposing(EVERYONE)),
        )  # fmt: skip
        return _Division(
            EVERYONE, replace(self.first, depth=0), [], claims, doubted, len(proposals)
        )


def _notes(learner: Rules, best: _Division, nuisances: Nuisances, log: Log) -> list[str]:
    """What must be known about the rules, in sentences."""
    outcome = log.outcome
    claims, search = best.claims, best.search
    notes = [
        say("The same action for everyone needs no proposal: all groups certified it.")
        if best.seed == EVERYONE
        else say_many(
            "One half of the groups proposed {n:,} rule; the other half certified {k}.",
            "One half of the groups proposed {n:,} rules; the other half certified {k}.",
            claims.tested,
            k=len(claims.issued),
        ),
        say_many(
            "{n} division in halves was searched in several ways, and the same action for everyone "
            "tried, each at {d:g} / {k}; this brings most over usual practice, less a standard "
            "error.",
            "{n} divisions in halves were searched in several ways, and the same action for "
            "everyone tried, each at {d:g} / {k}; this brings most over usual practice, less a "
            "standard error.",
            learner.splits,
            d=learner.delta,
            k=learner.splits + 1,
        ),
    ]
    if best.doubted:
        notes.append(
            say_many(
                "Of {n:,} more proposed rule the record cannot tell: who was treated depends on "
                "more than our model of it ({where}).",
                "Of {n:,} more proposed rules the record cannot tell: who was treated depends on "
                "more than our model of it ({where}).",
                best.doubted,
                where=joined("; ", (f"{rule.words}: {rule.suggested}" for rule in best.doubted)),
            )
        )
    if search.lam < 1:
        notes.append(
            sentences(
                say(
                    "Credit with λ = {lam:g}: effects of one decision that show later than about "
                    "{s} steps are seen only as far as a model of values sees them coming, in the "
                    "features and in what was done before.",
                    lam=search.lam,
                    s=round(1 / (1 - search.lam)),
                ),
                say(
                    "The contrast from whole returns, which needs no such model, is on record "
                    "beside each rule; where it contradicts the credit, nothing is claimed of the "
                    "rule by itself."
                ),
            )
        )
    if claims.issued:
        notes.append(_followed(claims.whole, outcome, log.n_steps > log.n_episodes))
    elif claims.passed:
        notes.append(_only_alone(claims, outcome))
    return [*notes, *nuisances.notes]


def _followed(whole: dict[str, Any], outcome: Outcome, several: bool) -> str:
    """How much would change, and whether anybody did what all rules together say.

    Args:
        whole: What is on record of the rules together.
        outcome: What is measured.
        several: Whether an episode may have several decisions.
    """
    if not several:
        return say("The rules would change {p:.0f} % of the decisions.", p=100 * whole["changed"])
    return sentences(
        say(
            "The rules would change {p:.0f} % of the decisions; if each change brought what it "
            "brings alone, that would be {x:+.3g} an episode, but followed together they change "
            "which states are met.",
            p=100 * whole["changed"],
            x=outcome.shown(whole["sum"]),
        ),
        say_many(
            "Of {n:,} episode of the certifying groups that meets a suggestion, {k:,} took every "
            "one they came to.",
            "Of {n:,} episodes of the certifying groups that meet a suggestion, {k:,} took every "
            "one they came to.",
            int(whole["met"]),
            k=int(whole["followed"]),
        ),
    )


def _only_alone(claims: Claims, outcome: Outcome) -> str:
    """Why rules that pass by themselves are not issued."""
    whole = claims.whole
    passed = say_many(
        "{n:,} rule passed by itself: one decision, usual practice otherwise.",
        "{n:,} rules passed by themselves: one decision, usual practice otherwise.",
        claims.passed,
    )
    if whole["sound"] and whole["low"] is not None:
        low, high = outcome.ends(whole["low"], whole["high"])
        return sentences(
            passed,
            say(
                "None is issued: followed at every decision they bring {gain:+.3g} an episode over "
                "usual practice ({low:+.3g} to {high:+.3g}), which is not surely {more}.",
                gain=outcome.shown(whole["gain"]),
                low=low,
                high=high,
                more=say("below 0") if outcome.falls else say("above 0"),
            ),
            "" if whole["exact"] else told_low(),
        )
    return sentences(
        passed,
        say(
            "None is issued: too few episodes follow them for long enough to tell what following "
            "them at every decision brings."
        ),
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
