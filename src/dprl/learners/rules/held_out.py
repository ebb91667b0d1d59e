r"""What the half that certified says of a narrower rule.

A reviewer may want a rule to hold in fewer states than it was certified for. The half that
certified can say what the suggestion brought there, with the very scores that certified the rule. A
policy file does not hold them; they are computed again from the training log, which takes the
models of one fit, and after that each question takes milliseconds.

**No longer simultaneous: chosen after looking.** The narrower region is chosen by somebody who has
seen what this half says. So its numbers are those of one region that was named beforehand: each end
at level δ by Student's t over groups, not adjusted for the other rules, the divisions or the
choice. The rule is marked as narrowed, and what is stated of all rules at once does not cover it.

**The same scores, or none.** Another log is refused by its digest. Then every rule on record is
judged again: where its numbers do not come out as they are on record (other models were brought to
`fit`, say), nothing is answered.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dprl._core.arrays import Floats
from dprl._core.words import api, say, worded
from dprl.errors import CutWarning, LogError, ParameterError, PolicyError
from dprl.evidence.nuisances import Nuisances
from dprl.learners.rules.learner import Rules
from dprl.learners.rules.search import (
    Place,
    Scores,
    code_of,
    learning,
    region_facts,
    untreated,
)
from dprl.logs.log import Log, check_log
from dprl.policies.familiar import like_policy
from dprl.policies.rules.policy import RulePolicy
from dprl.policies.rules.rule import Rule, narrower

SAME = 1e-6
"""Largest relative difference between a number on record and the same number computed again."""
JUDGED = ("advantage", "se", "groups", "groups_took", "groups_proposed", "steps")
"""What is compared."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The half of a training log that certified rules, with the scores of its steps.

    Attributes:
        policy: The policy whose rules it certified.
        certifies: Scores of the steps of that half.
        returns: The same with scores of whole returns (λ = 1).
        proposes: The steps of the other half; only who was there is asked of them.
        weaker: `certifies` and `returns` with models of half as many groups; None where practice is
            known.
        delta: Level of each end of an interval.
        margin: What a contrast must exceed.
        n_min: Groups with and without the suggestion that a rule needs.

    Example:
        >>> import dprl
        >>> policy = dprl.RulePolicy(
        ...     states=(), actions=("a",), parameters={}, provenance={}, feature_names=("x",),
        ...     rules=(),
        ... )
        >>> log = dprl.from_arrays(episode=[0], state=[[1.0]], action=["a"], reward=[0])
        >>> try:
        ...     HeldOut.of(policy, log)
        ... except dprl.PolicyError as error:
        ...     print(error.what)
        this policy does not say which half of its log certified its rules.
    """

    policy: RulePolicy
    certifies: Scores
    returns: Scores
    proposes: Scores
    weaker: tuple[Scores, Scores] | None
    delta: float
    margin: float
    n_min: float

    @classmethod
    def of(
        cls,
        policy: RulePolicy,
        log: Log,
        *,
        propensity: Floats | None = None,
        behavior_models: Any = None,
        value_model: Any = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> HeldOut:
        """Compute the scores again from the training log.

        Args:
            policy: A policy that `dprl.Rules` fitted, or a part of one.
            log: The log that it was fitted on.
            propensity: As given to `fit`. Default None.
            behavior_models: As given to `fit`. Default None.
            value_model: As given to `fit`. Default None.
            progress: Called with the name of the stage and the share of it that is done. Default
                None.

        Returns:
            The half that certified.

        Raises:
            PolicyError: The policy does not say which half certified, or the numbers on record do
                not come out again.
            LogError: It is another log.

        Example:
            >>> import dprl, numpy as np
            >>> rng = np.random.default_rng(0)
            >>> x, drug = rng.normal(size=(400, 1)), rng.random(400) < 0.5
            >>> score = drug * np.where(x[:, 0] > 0, 2.0, -2.0) + rng.normal(size=400)
            >>> log = dprl.from_arrays(
            ...     episode=range(400), state=x, action=np.where(drug, "drug", "wait"),
            ...     reward=score, feature_names=["pressure"],
            ... )
            >>> policy = dprl.Rules(gamma=1.0, depth=1, splits=1, lam=1.0).fit(log)
            >>> half = dprl.learners.HeldOut.of(policy, log)
            >>> low = {"feature": "pressure", "kind": "at most", "value": -1.0}
            >>> half.facts(1, [low])["groups"] < 60
            True
        """
        check_log(log)
        learner, seed, lam = _origin(policy)
        log = like_policy(policy, log)
        if policy.provenance.get("log") != log.digest():
            raise LogError(
                "a rule is narrowed with the log that the policy was fitted on; this is another.",
                f"log {str(policy.provenance.get('log'))[:12]}… there, {log.digest()[:12]}… here",
                "Give the training log, as it was read for the fit.",
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CutWarning)  # the fit has warned already
            work = learner.work(
                log, propensity=propensity, behavior_models=behavior_models,
                value_model=value_model, progress=progress,
            )  # fmt: skip
        work.tell(say("scores of the half that certified"), 0.0)
        everyone = work.nuisances()
        inside = work.proposing(seed)

        def both(models: Nuisances) -> tuple[Scores, Scores]:
            V, b = work.mended(models.V), models.b
            return (
                Scores.of(work.log, V, b, learner.gamma, lam),
                Scores.of(work.log, V, b, learner.gamma, 1.0).of_groups(~inside),
            )

        scores, returns = both(everyone)
        weaker = None if everyone.doubt is None else both(work.nuisances(halved=True))
        half = cls(
            policy, scores.of_groups(~inside), returns, scores.of_groups(inside),
            weaker and (weaker[0].of_groups(~inside), weaker[1]), float(learner.delta),
            float(learner.margin), float(learner.n_min),
        )  # fmt: skip
        half._check()
        return half

    def facts(self, rule: int, conditions: Iterable[Any]) -> dict[str, Any]:
        """What this half says of a narrower rule.

        Args:
            rule: The number of the rule, from 1.
            conditions: All that the narrower rule asks, each with "feature", "kind" and "value" or
                "labels", as `dprl.RulePolicy` takes them.

        Returns:
            What a policy keeps on record about a rule, of the narrower region alone. Numbers that
            nobody could know there are None.

        Raises:
            ParameterError: There is no such rule, or this is not narrower.
            PolicyError: A condition is none.

        Example:
            >>> import dprl, numpy as np
            >>> rng = np.random.default_rng(0)
            >>> x, drug = rng.normal(size=(400, 1)), rng.random(400) < 0.5
            >>> score = drug * np.where(x[:, 0] > 0, 2.0, -2.0) + rng.normal(size=400)
            >>> log = dprl.from_arrays(
            ...     episode=range(400), state=x, action=np.where(drug, "drug", "wait"),
            ...     reward=score, feature_names=["pressure"],
            ... )
            >>> policy = dprl.Rules(gamma=1.0, depth=1, splits=1, lam=1.0).fit(log)
            >>> half = dprl.learners.HeldOut.of(policy, log)
            >>> facts = half.facts(1, [{"feature": "pressure", "kind": "at most", "value": -0.5}])
            >>> facts["low"] < facts["advantage"] < facts["high"]
            True
        """
        new = narrower(self.policy, rule, conditions)
        return self._facts(new, bool(self.policy.rules[rule - 1].facts.get("late")))

    def narrow(self, rule: int, conditions: Iterable[Any]) -> RulePolicy:
        """The policy with one rule narrowed, and what this half says of it on record.

        Args:
            rule: The number of the rule, from 1.
            conditions: All that the narrower rule asks.

        Returns:
            The policy; its sentences say that the rule was narrowed after looking.

        Raises:
            ParameterError: There is no such rule, this is not narrower, or fewer than n_min groups
                took the suggestion there, or did otherwise.
            PolicyError: A condition is none.

        Example:
            >>> import dprl, numpy as np
            >>> rng = np.random.default_rng(0)
            >>> x, drug = rng.normal(size=(400, 1)), rng.random(400) < 0.5
            >>> score = drug * np.where(x[:, 0] > 0, 2.0, -2.0) + rng.normal(size=400)
            >>> log = dprl.from_arrays(
            ...     episode=range(400), state=x, action=np.where(drug, "drug", "wait"),
            ...     reward=score, feature_names=["pressure"],
            ... )
            >>> policy = dprl.Rules(gamma=1.0, depth=1, splits=1, lam=1.0).fit(log)
            >>> half = dprl.learners.HeldOut.of(policy, log)
            >>> narrow = half.narrow(1, [{"feature": "pressure", "kind": "at most", "value": -0.5}])
            >>> narrow.act([[-0.4], [-0.6]])
            [DEFER, 'wait']
        """
        conditions = tuple(conditions)
        facts = self.facts(rule, conditions)
        few = self._too_few(facts)
        if few:
            raise ParameterError(few, do="Narrow the rule less.")
        return self.policy.narrowed(rule, conditions, facts)

    def _too_few(self, facts: dict[str, Any]) -> str:
        """Why a narrower rule may not be suggested, in words; '' if nothing speaks against it."""
        took, others = facts["groups_took"], facts["groups_others"]
        if min(took, others) >= self.n_min and facts["advantage"] is not None:
            return ""
        return (
            f"too few to tell: {took} {self.policy.terms.counted} took the suggestion in the "
            f"narrower rule and {others} did otherwise; each must be {self.n_min:g} or more."
        )

    def _facts(self, rule: Rule, late: bool) -> dict[str, Any]:
        """What is on record of a region; by whole returns where these contradict the credit."""
        a = code_of(self.certifies.log, rule)
        place = Place(rule.conditions, rule.unless)
        here = (self.returns if late else self.certifies).inside(place)
        mean, parts = here.contrast(a)
        se, groups = float(np.sqrt((parts**2).sum())), len(np.unique(here.group))
        low, high, value = math.nan, math.nan, 1.0
        if groups > 1 and se > 0:
            from scipy.special import stdtr, stdtrit

            width = float(stdtrit(groups - 1, 1 - self.delta)) * se
            sure = mean - untreated(self.certifies, self.proposes, place, a)
            if self.weaker is not None:
                sure -= learning((mean, parts), self.weaker[late].inside(place).contrast(a))
            low, high = sure - width, mean + width
            value = float(stdtr(groups - 1, -(sure - self.margin) / se))
        facts = region_facts(
            here, self.proposes.inside(place), self.returns.inside(place), a,
            (mean, se, low, high), level=self.delta, steps=len(self.certifies.rows),
            margin=self.margin,
        )  # fmt: skip
        return {**facts, "p": value}

    def _check(self) -> None:
        """Refuse to answer where the numbers on record do not come out again."""
        for number, rule in enumerate(self.policy.rules, 1):
            again = self._facts(rule, bool(rule.facts.get("late")))
            for name in JUDGED:
                there, here = rule.facts.get(name), again[name]
                if there is None or here is None:
                    same = there is here or there is None
                else:
                    same = math.isclose(there, here, rel_tol=SAME, abs_tol=1e-12)
                if not same:
                    raise PolicyError(
                        "what is on record about the rules does not come out again.",
                        f"rule {number}, {name}: {there} on record, {here} now",
                        "Give the propensity and the models that were given to fit, and use the "
                        "same versions of packages.",
                    )


def narrow(
    policy: RulePolicy,
    log: Log,
    rule: int,
    conditions: Iterable[Any],
    *,
    propensity: Floats | None = None,
    behavior_models: Any = None,
    value_model: Any = None,
    progress: Callable[[str, float], None] | None = None,
) -> RulePolicy:
    """Narrow one rule, and put on record what the half that certified says of the narrower one.

    The narrower rule is no longer covered by what is stated of all rules at once: it was chosen
    after looking. Its numbers are of its region alone.

    Args:
        policy: A policy that `dprl.Rules` fitted, or a part of one.
        log: The log that it was fitted on.
        rule: The number of the rule, from 1, as sentences and tables count.
        conditions: All that the narrower rule asks, each with "feature", "kind" and "value" or
            "labels", as `dprl.RulePolicy` takes them. It must hold only where the rule held.
        propensity: As given to `fit`. Default None.
        behavior_models: As given to `fit`. Default None.
        value_model: As given to `fit`. Default None.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The policy with the narrower rule in the place of the rule.

    Raises:
        ParameterError: There is no such rule, this is not narrower, or fewer than n_min groups took
            the suggestion there, or did otherwise.
        LogError: It is another log.
        PolicyError: The policy does not say which half certified, or the numbers on record do not
            come out again from this log.

    Example:
        >>> import dprl, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> x, drug = rng.normal(size=(400, 1)), rng.random(400) < 0.5
        >>> score = drug * np.where(x[:, 0] > 0, 2.0, -2.0) + rng.normal(size=400)
        >>> log = dprl.from_arrays(
        ...     episode=range(400), state=x, action=np.where(drug, "drug", "wait"), reward=score,
        ...     feature_names=["pressure"],
        ... )
        >>> policy = dprl.Rules(gamma=1.0, depth=1, splits=1, lam=1.0).fit(log)
        >>> lower = {"feature": "pressure", "kind": "at most", "value": -0.5}
        >>> narrow(policy, log, 1, [lower]).rules[0].narrowed
        True
    """
    conditions = tuple(conditions)
    narrower(policy, rule, conditions)  # refused before anything is computed
    half = HeldOut.of(
        policy, log, propensity=propensity, behavior_models=behavior_models,
        value_model=value_model, progress=progress,
    )  # fmt: skip
    return half.narrow(rule, conditions)


def _origin(policy: RulePolicy) -> tuple[Rules, int, float]:
    """The learner of a policy, the seed of the division that certified, and λ."""
    made, given = policy.provenance.get("rules"), policy.parameters
    try:
        names = {f.name for f in fields(Rules)}
        settings = {name: value for name, value in given.items() if name in names}
        if settings["n_min"] is None:
            settings["n_min"] = np.inf
        seed = int(made["division"])  # type: ignore[index]
        division = next(d for d in made["divisions"] if d["seed"] == seed)  # type: ignore[index]
        return Rules(**settings), seed, float(division["lam"])
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise PolicyError(
            "this policy does not say which half of its log certified its rules.",
            f"learner {given.get('learner')!r}",
            worded("Only rules that {learner} fitted can be narrowed.", learner=api("dprl.Rules")),
        ) from error
