r"""The confident learner: it suggests only what is surely better, and says how sure (ours).

Counting trajectories says where a log may speak, not how sure it is. This learner asks how sure.

    evidence "model"       every visit, one maximum-likelihood model of all states; many candidate
                           policies, a choice between them by halves of the log, and a bound of the
                           gain of the whole policy that pays for it (`dprl.learners.family`)
    evidence "excursions"  the way back to the same state (`dprl.evidence.excursions`), one decision
                           at a time
    evidence "returns"     whole returns of first visits, as DPRL compares them, one decision at a
                           time

The last two change an action where its advantage over usual practice is above 0 at level
1 - risk / K(s), K(s) the eligible actions of the state less one; they plan nothing and state no
gain. What each of them assumes is in `dprl.policies.confident.ASSUMES`.

`veto` strikes a pair whose first-visit returns contradict it (Welch's t below -1.645 against those
who did otherwise). It protects a model against effects that the state does not show, and costs
power.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.checks import (
    Cut,
    check_choice,
    check_cut,
    check_flag,
    check_gamma,
    check_grid,
    check_n_min,
    check_number,
    check_seed,
    check_whole,
)
from dprl._core.inference import contrast
from dprl._core.optional import single_thread
from dprl._core.words import api, either, option, say, sentences, worded
from dprl.errors import LogError, ParameterError, PlanError, StateWarning
from dprl.evidence.counts import Counted, Counts, Evidence, check_table, count_source
from dprl.evidence.excursions import excursions
from dprl.evidence.propensity import warn_of_choosing
from dprl.learners.family import (
    EASIER,
    MEMBERS,
    Candidate,
    Member,
    candidates,
    check_members,
    competing,
    judge,
    name_of,
    own,
    preferred,
)
from dprl.learners.registry import Settings
from dprl.logs.censoring import outside
from dprl.logs.log import Log, deal
from dprl.logs.source import (
    Both,
    Chunk,
    LogInParts,
    Share,
    Source,
    as_source,
    check_claim,
    needs_rows,
    on_cluster,
    stage,
)
from dprl.planning.advantages import (
    DENSE,
    Advantages,
    Noise,
    borrowed,
    influence,
    over_usual,
    rare_losses,
    unseen,
)
from dprl.planning.iteration import BETTER
from dprl.planning.markov import markov_check
from dprl.planning.model import Cells, CellsOf, GroupSums
from dprl.planning.sure_iteration import DOUBTS, PlanModel
from dprl.policies.base import provenance_of
from dprl.policies.confident import SURE_IN, ConfidentPolicy

VETO = -1.645
"""Welch's t of first-visit returns below which a pair is struck."""


@dataclass(frozen=True, kw_only=True)
class Confident(Settings):
    """A learner for labelled states that suggests only what is surely better.

    Attributes:
        gamma: Discount in (0, 1].
        risk: The chance that the bound which is printed lies above the true gain, in (0, 0.5],
            where what `promise` names holds; it is large-sample, and measured. Default 0.05.
        promise: Whether a policy is issued only if that bound is above 0 and the log does not
            refute what it rests on (see `check`). Then `risk` is also the chance of a policy worse
            than usual practice, where that holds: the state tells all that matters, what drives
            both actions and outcomes is in it, and nothing happens that has not happened in the
            log. Default True. `promise=False` issues the policy that did best on halves that had
            not chosen it, if its own lower end at level 1 - 4 risk, which ignores the choice, is
            above 0, and promises nothing: for research, and for proposals that something else will
            judge. Only evidence "model" has a bound; other evidence promises nothing of the whole.
        members: Learners of your own that compete with the built-in ones: anything with fit(log)
            that returns a policy over the same labels, such as `dprl.baselines.SPIBB`. A policy
            that mixes actions enters as the action whose share it raises most. Those that plan in a
            model (every baseline over labels) also take logs in parts; others need the rows.
            Default None: none.
        n_min: The number of trajectories an action needs before it may be suggested, at least 2.
            Default 3.
        keep: Share of the best score that is enough, in (0, 1]: of the policies that keep it, the
            one that changes least is issued. Default 1: the best. With 0.9 small changes that add
            little are left out.
        evidence: What must be sure. "model" (the default) needs a state that tells all that
            matters, "excursions" needs that only where it suggests something, "returns" does not
            need it; see `dprl.learners.confident`.
        veto: Whether first-visit returns may strike a suggestion they contradict. Default False.
        splits: How many times the groups are divided in halves, to choose and for the bound. 0 does
            without both: of the iterations from usual practice the one is issued whose own lower
            end at level 1 - risk is largest and above 0. Default 6.
        worst: The lowest return there can be from a decision on (the highest, where less of the
            outcome is better), from what is known about rewards,
            never taken from the log. With it the bound allows for catastrophes that have not
            happened yet. Default None: it holds unless something happens that has not happened.
        check: Whether to test if the state tells enough for a model (`dprl.markov_check`). A
            StateWarning says where the test refutes that, and nothing is promised or issued with
            `promise=True`. Default True.
        cut: What to do with cut episodes: "drop-unrelated" (which declares that whether an episode
            was cut depends neither on its length nor on its outcome), "bootstrap" or "terminal".
            Default None: as "terminal", with a CutWarning. With "bootstrap" the model
            counts the step into the last state and leaves out what is not known.
        seed: Seed of the divisions and of the check. Default 0.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> import dprl
        >>> log = dprl.envs.rooms().sample(10, seed=0)
        >>> policy = dprl.Confident(gamma=0.99).fit(log)
        >>> round(dprl.envs.rooms().value(policy), 3)  # usual practice: 0.388
        0.716
    """

    SHARED: ClassVar[tuple[str, ...]] = (
        "risk", "promise", "n_min", "keep", "veto", "splits", "worst",
    )  # fmt: skip

    gamma: float
    risk: float = 0.05
    promise: bool = True
    n_min: float = 3
    keep: float = 1.0
    evidence: Literal["model", "excursions", "returns"] = "model"
    veto: bool = False
    splits: int = 6
    worst: float | None = None
    check: bool = True
    cut: Cut | None = None
    seed: int = 0
    members: list[Any] | tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        check_number("risk", self.risk, "(0, 0.5]")
        check_n_min(self.n_min, 2)
        check_number("keep", self.keep, "(0, 1]")
        check_choice(
            "evidence", self.evidence, tuple(SURE_IN),
            do="'model' needs the Markov property, 'excursions' needs it where it suggests "
            "something, 'returns' does not need it.",
        )  # fmt: skip
        check_flag("promise", self.promise)
        check_flag("veto", self.veto)
        if self.worst is not None:
            check_number("worst", self.worst, "(-inf, inf)")
        check_flag("check", self.check)
        check_cut(self.cut)
        put = object.__setattr__  # 3.0 is the whole number 3
        put(self, "splits", check_whole("splits", self.splits, 0))
        put(self, "seed", check_seed(self.seed))
        put(self, "members", check_members(self.members))
        if self.splits == 0 and self.promising:
            raise ParameterError(
                worded("{promise=True} needs a bound, and {splits=0} leaves it out."),
                do=worded(
                    "Say {promise=False}, which promises nothing, or divide the groups at least "
                    "once."
                ),
            )

    @property
    def promising(self) -> bool:
        """Whether a policy is issued only if its bound is above 0.

        Returns:
            True for evidence "model", where nothing else was asked for.

        Example:
            >>> import dprl
            >>> dprl.Confident(gamma=1.0).promising
            True
        """
        return self.promise and self.evidence == "model"

    def fit(
        self,
        log: Log | LogInParts,
        *,
        cluster: Any = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> ConfidentPolicy:
        """The policy that a log is sure of.

        Args:
            log: The training log; its states are labels. A log in parts (`dprl.scan`) gives the
                same policy, byte for byte; it needs check=False, since the check of the state looks
                at the whole log at once.
            cluster: Where to count, as in `DPRLDiscrete.fit`; the policy is the same, byte for
                byte, and check=False is needed. Default None: this process.
            progress: Called with the name of the stage and the share of it that is done. Default
                None.

        Returns:
            The policy: it defers wherever nothing is surely better than usual practice.

        Raises:
            LogError: If the log is empty or has features as states.
            ParameterError: If the log is in parts or on a cluster, and what is asked for needs all
                of it at once.
            ClusterError: If the cluster cannot do the work.
            PlanError: If without discount usual practice never ends in the model.

        Example:
            >>> import dprl
            >>> log = dprl.envs.risky_arms().sample(1_000, seed=0)
            >>> dprl.Confident(gamma=1.0).fit(log).act(["s0", "s-b1"])
            ['b1', DEFER]
        """
        if cluster is None:
            return next(self.fit_each(log, [{}], progress=progress))
        with on_cluster(log, cluster) as parts:
            return next(self.fit_each(parts, [{}], progress=progress))

    def fit_each(
        self,
        log: Log | LogInParts,
        settings: Sequence[Mapping[str, Any]],
        *,
        progress: Callable[[str, float], None] | None = None,
    ) -> Iterator[ConfidentPolicy]:
        """The policy of each setting, from evidence that is gathered once.

        Args:
            log: The training log; its states are labels.
            settings: Settings to try; each is a mapping that may set "risk", "promise", "n_min",
                "keep", "veto", "splits" and "worst".
            progress: Called with the name of the stage and the share of it that is done. Default
                None.

        Yields:
            The policy of each setting, in their order.

        Raises:
            ParameterError: If a setting sets anything else.

        Example:
            >>> import dprl
            >>> log = dprl.envs.risky_arms().sample(150, seed=0)
            >>> learner = dprl.Confident(gamma=1.0)
            >>> policies = learner.fit_each(log, [{"promise": False}, {"risk": 0.0001}])
            >>> [policy.act(["s0"]) for policy in policies]
            [['b1'], [DEFER]]
        """
        varied = check_grid(settings, self.SHARED)
        learners = [replace(self, **setting) for setting in varied]
        source = as_source(log)
        self._check_rows(source)
        check_table(source)
        warn_of_choosing(source)
        check_claim(self.cut, source, "the bound of a confident policy")
        gathered = Gathered.of(self, source, stage(progress, "counting"))
        origin = provenance_of(source, gathered.evidence.n_episodes, progress=progress)
        origin |= self._checked(source)
        enough = bool(origin.get("markov", {}).get("ok", True))
        for learner in learners:
            with single_thread():
                decided = learner.decide(gathered, progress, enough)
            noted = {name: decided.pop(name, None) for name in ("circles", "withheld", "left_out")}
            yield ConfidentPolicy.of(
                gathered.evidence,
                steps=gathered.counted.steps,
                parameters=learner.settings(),
                provenance=origin | {name: fact for name, fact in noted.items() if fact},
                **decided,
            )

    def settings(self) -> dict[str, Any]:
        """The learner as values JSON can hold, for the parameters of a policy.

        Returns:
            The name of the learner and its settings.

        Example:
            >>> import dprl
            >>> dprl.Confident(gamma=0.99).settings()["risk"]
            0.05
        """
        n_min = None if np.isinf(self.n_min) else int(self.n_min)
        worst = None if self.worst is None else float(self.worst)
        numbers = {"gamma": float(self.gamma), "risk": float(self.risk), "n_min": n_min,
                   "keep": float(self.keep), "worst": worst}  # fmt: skip
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        given["members"] = [name_of(learner) for learner in self.members or ()]
        return {"learner": type(self).__name__, **given, **numbers, "plan": True}

    # -- the parts of a policy ---------------------------------------------------------------

    def decide(
        self,
        gathered: Gathered,
        progress: Callable[[str, float], None] | None,
        enough: bool = True,
    ) -> dict[str, Any]:
        """Choice, allowed, planned, advantage, advantage_se and gain.

        Args:
            gathered: What was gathered of the log.
            progress: Called with the name of the stage and the share of it that is done; or None.
            enough: Whether the state may be enough: nothing is promised of a model that the log
                refutes. Default True.

        Returns:
            The parts of a `ConfidentPolicy`, by name; "circles", the number of states that are
            deferred because what looks sure never ends there; "withheld", the gain of a policy
            that is not issued because its bound is not above 0, or the state not enough; and
            "left_out", how many of how many candidates are too costly with so many states.

        Example:
            >>> import dprl
            >>> from dprl.learners.confident import Gathered
            >>> from dprl.logs.source import as_source
            >>> learner = dprl.Confident(gamma=1.0)
            >>> source = as_source(dprl.envs.risky_arms().sample(1_000, seed=0))
            >>> learner.decide(Gathered.of(learner, source), None)["choice"][:2].tolist()
            [0, -1]
        """
        eligible = gathered.eligible(self, gathered.evidence, self.n_min)
        if self.evidence != "model":
            return self._one_by_one(gathered, eligible)
        model = gathered.whole(eligible)
        members = self._members(gathered)
        total = len(MEMBERS) + len(self.members or ()) if self.splits else len(DOUBTS)

        def told(share: float) -> None:
            if progress is not None:
                progress("asking how sure", share)

        found = candidates(model, members, told)
        bounds = _Bounds(
            self, gathered, model, self._less(gathered), len({m.kind for m in members})
        )
        issued = withheld = None
        if not self.splits:
            issued = bounds.best_unjudged(found)
        elif self.promising and not (enough and bounds.hopeful(found)):
            withheld = bounds.best_unjudged(found, always=True)  # halves only take more off
        else:
            judge(bounds.hopeful(found), members, gathered.halves(self, progress))
            issued = bounds.promised(found) if self.promising else bounds.judged_best(found)
            if self.promising and issued is None and found:
                withheld = preferred(found, lambda one: one.score, 1)[0]
        policy = model.usual if issued is None else issued.policy
        if policy.M is None and policy.drawn is None:  # nobody has asked for its errors yet
            policy = model.evaluate(policy.choice)
        advantage, se = over_usual(policy)
        choice = policy.choice.astype(np.int32)
        return {
            "choice": choice,
            "allowed": _chosen(choice, eligible.shape),
            "planned": np.where(model.table.n > 0, policy.Q, np.nan),
            "advantage": advantage,
            "advantage_se": se,
            "gain": bounds.facts(issued),
            "circles": int(model.circling.sum()),
            "withheld": bounds.facts(withheld, enough),
            "left_out": [total - len(members), total] if total > len(members) else 0,
        }

    def _members(self, gathered: Gathered) -> list[Member]:
        """What competes on a log; without halves only the iterations from usual practice."""
        evidence = gathered.evidence
        if not self.splits:
            return [one for one in competing(len(evidence.states)) if one.kind == "sure"]
        if any(not hasattr(learner, "plan") for learner in self.members or ()):
            needs_rows(
                gathered.source,
                "a member that learns from rows",
                "Learners that plan in a model, as every baseline over labels, take logs in parts.",
            )
        extra = own(self.members or (), evidence.states, evidence.actions)
        return competing(len(evidence.states)) + extra

    def _less(self, gathered: Gathered) -> tuple[float, float] | None:
        """ln(1/α) and the lowest return there can be, where bounds allow for the unseen."""
        if self.worst is None:
            return None
        outcome = gathered.source.facts.outcome
        worst = float(outcome.shown(self.worst))  # with larger as the better one
        lowest = float(np.nanmin(gathered.evidence.span[:, 0]))
        if lowest < worst - 1e-9 * abs(lowest):
            raise ParameterError(
                worded(
                    "{worst} is to be the worst return there can be; the log has one of {lowest}.",
                    worst=option("worst", self.worst),
                    lowest=f"{outcome.shown(lowest):.6g}",
                ),
                do="State what is known about rewards beforehand, not what is hoped for.",
                argument="worst",
            )
        return float(np.log(2 / self.risk)), worst

    def _one_by_one(self, gathered: Gathered, eligible: Bools) -> dict[str, Any]:
        """Choices whose advantage over usual practice is surely above 0, each by itself."""
        K = np.maximum(eligible.sum(axis=1, keepdims=True) - 1, 1)
        evidence = gathered.evidence
        if self.evidence == "excursions":
            values = excursions(gathered.treated, self.gamma)
            advantage, se = values.Q - values.V[:, None], values.se
            planned = np.where(values.n > 0, values.Q, np.nan)
            with np.errstate(invalid="ignore"):  # infinitely many of no standard error
                t = stdtrit(np.maximum(evidence.pair.n - 1, 1), 1 - self.risk / K)
                low = advantage - t * se
        else:
            advantage, se, low = _by_returns(evidence, self.risk, K)
            planned = evidence.pair.mean
        advantage = np.where(np.isnan(se), np.nan, advantage)
        low = np.where(eligible & ~np.isnan(low), low, -np.inf)
        low = np.where(low > BETTER * (np.abs(planned) + np.abs(planned - advantage)), low, -np.inf)
        best = low.argmax(axis=1)
        choice = np.where(low.max(axis=1, initial=-np.inf) > 0, best, -1).astype(np.int32)
        return {
            "choice": choice,
            "allowed": _chosen(choice, eligible.shape),
            "planned": planned,
            "advantage": advantage,
            "advantage_se": se,
            "gain": None,
        }

    def _check_rows(self, source: Source) -> None:
        """Refuse what needs all rows at once where they are not here."""
        if self.check and self.evidence != "returns":
            needs_rows(
                source,
                worded("the check whether the state tells enough ({check=True})"),
                worded(
                    "Leave it out, {check=False}, and check a part of the log with "
                    "{dprl.markov_check}."
                ),
            )
        if self.evidence == "excursions":
            needs_rows(
                source,
                "evidence='excursions'",
                worded(
                    "Use {choice}, or {choice2}.",
                    choice=either("evidence='model' or 'returns'", "--evidence model or returns"),
                    choice2=either("read the log with dprl.read", "leave out --out-of-core"),
                ),
            )

    def _checked(self, source: Source) -> dict[str, Any]:
        """What is noted of the check of the state; it warns where that refutes the state."""
        if not self.check or self.evidence == "returns":
            return {}
        log = needs_rows(source, "the check of the state")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = markov_check(log, self.gamma, seed=self.seed, cut=self.cut, curtailed=True)
        words = sentences(
            *result.lines[: 1 if result.ok else 2],
            say("({v:,} visits compared in {c:,} cells.)", v=result.visits, c=result.cells),
        )
        if not result.ok:
            warnings.warn(
                worded(
                    "{words} If so, a policy planned in a model of these states may do harm. Put "
                    "what tells into the state, or use {evidence='returns'} or {learner}.",
                    words=words,
                    learner=api("DPRLDiscrete"),
                ),
                StateWarning,
                stacklevel=outside(),
            )
        return {"markov": {"ok": result.ok, "words": words}}


@dataclass(frozen=True, eq=False)
class Gathered:
    """What is gathered once for all settings."""

    source: Source
    counted: Counted
    seed: int

    @classmethod
    def of(cls, learner: Confident, source: Source, progress: Share | None = None) -> Gathered:
        """Gather what a learner needs of a log."""
        how = Counts(learner.gamma, cut=learner.cut, reads="transitions")
        return cls(source, count_source(source, how, progress), learner.seed)

    @property
    def evidence(self) -> Evidence:
        """The evidence of the log."""
        return self.counted.evidence

    @functools.cached_property
    def offered(self) -> Bools | None:
        """bool (S, A): pairs that are always available; None if the log does not say."""
        return self.counted.available(self.source)

    @property
    def treated(self) -> Log:
        """The log in memory, with its cut episodes treated."""
        return self._rows(self.counted.how)

    @functools.cached_property
    def noise(self) -> Noise | None:
        """The draws that all models share, where there are too many states for an inverse."""
        S, A = len(self.evidence.states), len(self.evidence.actions)
        return None if S <= DENSE else Noise.draw(S, A, self.seed)

    def eligible(self, learner: Confident, evidence: Evidence, n_min: float) -> Bools:
        """bool (S, A): pairs that enough trajectories stand behind, and that may be suggested."""
        eligible = evidence.pair.n >= n_min
        if self.offered is not None:
            eligible &= self.offered
        return eligible & ~_contradicted(evidence) if learner.veto else eligible

    def whole(self, eligible: Bools) -> PlanModel:
        """The model of the whole log."""
        cells = self.source.reduce(CellsOf(self.counted.how))
        return self.model(cells, self.evidence.pair.n, eligible)

    def by_group(self, policy: Advantages, usual: Advantages) -> Floats:
        """float64 (groups that are left,): what each adds to the gain of a policy."""
        sums = self.source.reduce(GroupSums(CellsOf(self.counted.how), influence(policy, usual)))
        return np.concatenate([sums[first] for first in sorted(sums)])

    def model(
        self, cells: Cells, groups: Ints, eligible: Bools, how: Counts | None = None
    ) -> PlanModel:
        """The model of what follows what; groups (S, A): trajectories that contain each pair."""
        facts, gamma = self.source.facts, self.counted.how.gamma
        table = cells.table(facts.n_states, facts.n_actions)
        return PlanModel(
            table, groups, gamma, eligible & (table.n > 0), seed=self.seed,
            noise=self.noise, rows=functools.partial(self._rows, how or self.counted.how),
        )  # fmt: skip

    def _rows(self, how: Counts) -> Log:
        """The log that was counted so, with its cut episodes treated."""
        log = how.log(Chunk(needs_rows(self.source, "a member that learns from rows")))
        assert log is not None  # it was counted
        return log

    def halves(
        self, learner: Confident, progress: Callable[[str, float], None] | None
    ) -> Iterator[tuple[PlanModel, PlanModel]]:
        """The models of the two halves of each division of the groups."""
        left = self.counted.left
        numbers = np.flatnonzero(left)
        for i in range(learner.splits):
            if progress is not None:
                progress("choosing and judging on different halves", i / learner.splits)
            if len(numbers) < 2:
                return
            first = np.zeros(len(left), bool)
            first[numbers] = deal(len(numbers), 0.5, learner.seed + i)
            try:
                yield self._half(learner, first), self._half(learner, left & ~first)
            except (LogError, PlanError):  # episodes of a half were all cut, or never end
                continue

    def _half(self, learner: Confident, groups: Bools) -> PlanModel:
        how = replace(self.counted.how, groups=groups)
        counted, cells = self.source.reduce(Both(how, CellsOf(how)))
        # As daring as the whole: half as many are enough, and each counts for two.
        eligible = self.eligible(learner, counted.evidence, np.floor(learner.n_min / 2))
        return self.model(cells, 2 * counted.evidence.pair.n, eligible, how)


@dataclass(frozen=True, eq=False)
class _Bounds:
    """Lower ends of what candidates bring, and which of them is issued."""

    learner: Confident
    gathered: Gathered
    model: PlanModel
    less: tuple[float, float] | None
    kinds: int

    @property
    def level(self) -> float:
        """The share of the risk that each kind of members has."""
        return self.learner.risk / self.kinds / (1 if self.less is None else 2)

    @functools.cached_property
    def losses(self) -> Floats:
        """float64 (A,): the rare losses of each action, wherever in the log."""
        return rare_losses(self.model.usual)

    def another(self, one: Candidate) -> float:
        """What one more of the rare losses that the log has elsewhere would cost."""
        n = self.gathered.evidence.pair.n
        return borrowed(one.policy, self.model.usual, n, self.losses)

    def unseen(self, one: Candidate) -> float:
        """What is taken off for what has not happened anywhere yet."""
        if self.less is None:
            return 0.0
        n = self.gathered.evidence.pair.n
        return self.less[0] * unseen(one.policy, self.model.usual, n, self.less[1])

    def elsewhere(self, one: Candidate) -> float:
        """What is taken off for what has happened in other states only."""
        z = float(ndtri(1 - self.learner.risk))
        return (1 + 2 * z * z) / 6 * self.another(one)

    def off(self, one: Candidate) -> float:
        """What is taken off for what has not happened yet, or not here."""
        return self.unseen(one) + self.elsewhere(one)

    def unpaid(self, one: Candidate, risk: float) -> float:
        """The lower end that ignores that it was chosen."""
        return one.gain.low(risk) - self.off(one)

    def se(self, one: Candidate) -> float:
        """Its standard error with groups in it, and one more rare loss."""
        se = one.gain.se_in_groups(self.gathered.by_group(one.policy, self.model.usual))
        return float(np.hypot(se, self.another(one)))

    def bound(self, one: Candidate) -> float | None:
        """The bound that pays for the choice; None where nobody could judge."""
        if one.paid is None:
            return None
        quantile = float(stdtrit(one.gain.df, 1 - self.level))
        return one.paid - quantile * self.se(one) - self.off(one)

    def hopeful(self, found: Sequence[Candidate]) -> list[Candidate]:
        """Those that may be issued at all, whatever the halves say: only these are judged."""
        risk = self.level if self.learner.promising else min(EASIER * self.learner.risk, 0.5)
        return [one for one in found if self.unpaid(one, risk) > 0]

    def best_unjudged(
        self, found: Sequence[Candidate], *, always: bool = False
    ) -> Candidate | None:
        """The one with the largest lower end that ignores the choice, if that is above 0."""
        risk = self.level if self.learner.promising else self.learner.risk
        low = {id(one): self.unpaid(one, risk) for one in found}
        order = preferred(found, lambda one: low[id(one)], self.learner.keep)
        return order[0] if order and (always or max(low.values()) > 0) else None

    def promised(self, found: Sequence[Candidate]) -> Candidate | None:
        """The best judged of those whose bound is above 0."""
        hopeful = [one for one in self.hopeful(found) if one.t]
        if self.learner.keep < 1:
            hopeful = [one for one in hopeful if (self.bound(one) or 0.0) > 0]
        order = preferred(hopeful, lambda one: one.score, self.learner.keep)
        return next((one for one in order if (self.bound(one) or 0.0) > 0), None)

    def judged_best(self, found: Sequence[Candidate]) -> Candidate | None:
        """The best judged of those whose own lower end is above 0 at an easier level."""
        order = preferred(self.hopeful(found), lambda one: one.score, self.learner.keep)
        return order[0] if order else None

    def facts(self, one: Candidate | None, enough: bool = True) -> dict[str, Any] | None:
        """What is stated of the gain of a candidate; its bound too, if the state is enough."""
        if one is None:
            return None
        policy, n = one.policy, self.gathered.evidence.pair.n
        speaks = np.flatnonzero(policy.choice >= 0)
        facts: dict[str, Any] = {
            "estimate": one.gain.estimate, "se": self.se(one), "se_by_visits": one.gain.se,
            "df": float(one.gain.df), "risk": float(self.learner.risk), "member": one.member.name,
            "cases": int(n[speaks, policy.choice[speaks]].min()), "optimism": one.optimism,
            "brought": float(np.mean(one.brought)) if one.brought else None, "halves": len(one.t),
            "low": None,
        }  # fmt: skip
        if self.less is not None:
            facts |= {"worst": self.less[1], "unseen": self.unseen(one)}
        if elsewhere := self.elsewhere(one):
            facts["elsewhere"] = elsewhere
        if not self.learner.splits or not enough:
            return facts
        low = self.bound(one)
        if low is None and not (self.learner.promising and one.brought):  # nothing is taken off
            low = one.gain.low(self.level, 0.0, facts["se"]) - self.off(one)
        return {**facts, "low": low}


def _chosen(choice: NDArray[np.int32], shape: tuple[int, int]) -> Bools:
    """bool (S, A): the chosen pairs."""
    allowed = np.zeros(shape, bool)
    speaks = np.flatnonzero(choice >= 0)
    allowed[speaks, choice[speaks]] = True
    return allowed


def _contradicted(evidence: Evidence) -> Bools:
    """bool (S, A): first-visit returns say that the pair is worse than doing otherwise."""
    x, y = evidence.took, evidence.others
    with np.errstate(all="ignore"):
        t = (x.mean - y.mean) / np.sqrt(x.sd**2 / x.n + y.sd**2 / y.n)
        return np.asarray((x.n >= 2) & (y.n >= 2) & (t < VETO))


def _by_returns(evidence: Evidence, risk: float, K: Ints) -> tuple[Floats, Floats, Floats]:
    """Advantage over usual practice at first visits, its standard error and its lower end."""
    x, y = evidence.took, evidence.others
    low, high = evidence.span[:, :1], evidence.span[:, 1:]
    with np.errstate(all="ignore"):
        share = y.n / (x.n + y.n)
        advantage = share * (x.mean - y.mean)
        ends = np.full(x.n.shape, -np.inf)
        for k in np.unique(K):
            level = 1 - 2 * risk / float(k)
            here = contrast(x.n, x.mean, x.sd, y.n, y.mean, y.sd, low, high, level)[0]
            ends = np.where(k == K, share * here, ends)
        ninety = contrast(x.n, x.mean, x.sd, y.n, y.mean, y.sd, low, high)
        se = share * (ninety[1] - ninety[0]) / (2 * float(ndtri(0.975)))
    return advantage, se, ends
