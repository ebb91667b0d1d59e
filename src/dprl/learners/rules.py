r"""Rules: a few readable regions of features, proposed by one half, certified by the other.

A certificate over a thousand cells has no power; a tree of depth 2 asks few questions. Groups are
divided in two halves, A proposes and B certifies.

1. Nuisances, cross-fitted by group (`dprl.evidence.nuisances`): V̂(s), and the probabilities b̂(a|s)
   of usual practice.
2. Credit e_t(λ) (`dprl.evidence.credit`), and the score of action a at step t:

       ψ_a = (1{a_t = a} - b̂_a) / (b̂_a (1 - b̂_a)) · e_t

   Its mean over a region is what doing a there brings over doing otherwise. Steps with b̂_a or
   1 - b̂_a below .02 have no overlap and a score of 0; the share of them is told.
3. On A: the tree with the largest lower ends (`dprl.planning.policy_tree`), then in each leaf the
   action with the largest mean - κ·se by groups, among those that n_min groups took and n_min did
   not.
4. On B: the studentised mean of ψ by group in each proposed leaf, all at once by step-down max-t
   (`dprl._core.max_t`). The survivors are issued. Balance of every feature between those who took
   the suggestion and those who did not, weighted by 1/b̂, is told beside each.

The claim is **large-sample**, not proved: with probability about 1 - δ every issued rule's action
brought more than `margin` over doing otherwise, on average over the decisions of its region, if all
that drove decisions and outcomes is among the features. Each rule is about what is met *today*:
followed together, rules change which states are met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import (
    Cut,
    check_cut,
    check_delta,
    check_gamma,
    check_n_min,
    check_number,
    check_seed,
    check_whole,
)
from dprl._core.max_t import MaxT, cluster_parts, max_t
from dprl.errors import LogError
from dprl.evidence.credit import credit
from dprl.evidence.nuisances import Nuisances, fit_nuisances
from dprl.logs._censoring import settle
from dprl.logs.log import Log, check_log, deal
from dprl.planning.policy_tree import Bins, best_tree, leaves
from dprl.policies._base import provenance_of
from dprl.policies._rule import Condition, Rule
from dprl.policies.rules import RulePolicy

__all__ = ["Rules"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

OVERLAP = 0.02
"""Where usual practice takes an action, or any other, more rarely than this, a score is 0."""
KAPPA = 1.0
"""Standard errors by groups that a proposal must be above 0 on the proposing half."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """A learner of a few readable rules over features, certified on patients it did not learn from.

    Attributes:
        gamma: Discount in (0, 1].
        depth: The most questions on the way to a rule, 1 to 4. Default 2.
        n_min: Groups that took the action in a region, and groups that did not, before it may be
            suggested there; a whole number >= 2. Default 20.
        delta: The chance that some issued rule is no improvement, in (0, 1). Default 0.05; the
            claim is large-sample.
        margin: What a rule must bring over doing otherwise, in units of returns, to be worth a
            change. Default 0.
        lam: λ of the credit, in [0, 1]: 1 compares whole returns, 0 trusts the model of values.
            Default 0.9.
        cuts: The most cuts of a feature that are tried, at quantiles, 1 to 32. Default 16.
        folds: Folds of the cross-fitted models, at least 2. Default 4.
        cut: What to do with cut episodes: "drop" or "terminal". Default None: as "terminal", with a
            CutWarning.
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
    lam: float = 0.9
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
        check_number("lam", self.lam, "[0, 1]")
        check_whole("cuts", self.cuts, 1, 32)
        check_whole("folds", self.folds, 2)
        check_cut(self.cut)
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
                of the log, where they are known. Default None: estimated.
            behavior_models: (name, scikit-learn classifier) pairs to use instead of ours. Default
                None.
            value_model: A scikit-learn regressor of returns to use instead of ours. Default None.
            progress: Called with the name of the stage and the share of it that is done. Default
                None.

        Returns:
            The policy: an ordered list of rules; it defers wherever none applies.

        Raises:
            LogError: If the log is empty, its states are labels, or it has too few groups.

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
        if log.features is None:
            raise LogError(
                "rules are over features; this log's states are labels.",
                do="Read the features as states (--state 'x_*'), or use dprl.Confident for labels.",
            )
        tell = progress or (lambda stage, share: None)
        settled = settle(log, self.gamma, self.cut).gathered()
        proposes = deal(len(settled.groups), 0.5, self.seed)
        tell("models of usual practice", 0.0)
        nuisances = fit_nuisances(
            settled, self.gamma, half=proposes, folds=self.folds, seed=self.seed,
            propensity=propensity, behavior_models=behavior_models, value_model=value_model,
        )  # fmt: skip
        tell("searching rules", 0.5)
        scored = _Scored.of(self, settled, nuisances, proposes)
        proposed = scored.propose(self)
        tell("certifying", 0.9)
        rules, tested = scored.certify(self, proposed)
        return RulePolicy(
            states=(),
            actions=settled.actions,
            parameters=self.settings(),
            provenance=provenance_of(
                log, settled, notes=self._notes(len(proposed), len(rules), nuisances),
                ranges=_ranges(settled), rules={"tested": tested,
                                                "models": nuisances.losses.to_dicts()},
            ),
            feature_names=settled.feature_names,
            rules=tuple(rules),
        )  # fmt: skip

    def _notes(self, proposed: int, issued: int, nuisances: Nuisances) -> list[str]:
        """What must be known about the rules, in sentences."""
        return [
            f"One half of the groups proposed {proposed} rules; the other half certified {issued}.",
            "Each rule is about what is met today: followed together, rules change which states "
            "are met.",
            *nuisances.notes,
        ]

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
class _Scored:
    """Steps with the scores of every action."""

    log: Log
    X: Floats
    b: Floats
    psi: Floats
    group: Ints
    inside: Bools

    @classmethod
    def of(cls, learner: Rules, log: Log, nuisances: Nuisances, proposes: Bools) -> _Scored:
        assert log.features is not None
        e = credit(log, learner.gamma, learner.lam, nuisances.V)
        b, taken = nuisances.b, np.zeros(nuisances.b.shape)
        taken[np.arange(log.n_steps), log.action] = 1.0
        group = log.group[np.repeat(np.arange(log.n_episodes), log.lengths)].astype(np.int64)
        inside = proposes[group]
        fine = (b >= OVERLAP) & (b <= 1 - OVERLAP)
        width = np.where(fine, b * (1 - b), 1.0)
        psi = np.where(fine, (taken - b) / width * e[:, None], 0.0)
        return cls(log, log.features, b, psi, group, inside)

    def _rows(self, conditions: tuple[Condition, ...], inside: bool) -> Ints:
        """The steps of one half in a region."""
        at = self.inside == inside
        for c in conditions:
            at &= c.holds(self.X[:, self.log.feature_names.index(c.feature)])
        return np.flatnonzero(at)

    def propose(self, learner: Rules) -> list[tuple[tuple[Condition, ...], int]]:
        """Regions and actions that look better on the proposing half."""
        rows = np.flatnonzero(self.inside)
        psi, group = self.psi[rows], self.group[rows]
        kappa = np.array([KAPPA * _design(psi[:, a], group) for a in range(psi.shape[1])])
        tree = best_tree(
            Bins.of(self.X[rows], learner.cuts), psi, self.log.action[rows], depth=learner.depth,
            kappa=kappa, least=learner.n_min, margin=learner.margin,
        )  # fmt: skip
        proposed = []
        for path, _ in leaves(tree):
            conditions = tuple(self._condition(*cut) for cut in path)
            action = self._best(learner, self._rows(conditions, True))
            if action >= 0:
                proposed.append((conditions, action))
        return proposed

    def _condition(self, feature: int, cut: float, low: bool) -> Condition:
        name = self.log.feature_names[feature]
        if np.isnan(cut):
            return Condition(name, "missing" if low else "known")
        return Condition(name, "at most" if low else "above", cut)

    def _best(self, learner: Rules, rows: Ints) -> int:
        """The action of a leaf with the largest lower end by groups; -1 where none is above."""
        best, action = 0.0, -1
        for a in range(self.psi.shape[1]):
            took, others = self._groups(rows, a)
            if min(took, others) < learner.n_min:
                continue
            mean, parts = cluster_parts(self.psi[rows, a], self.group[rows], len(self.log.groups))
            low = mean - KAPPA * float(np.sqrt((parts**2).sum())) - learner.margin
            if low > best:
                best, action = low, a
        return action

    def _groups(self, rows: Ints, a: int) -> tuple[int, int]:
        """Groups that took an action at these steps, and groups that did otherwise."""
        took = self.log.action[rows] == a
        return len(np.unique(self.group[rows[took]])), len(np.unique(self.group[rows[~took]]))

    def certify(
        self, learner: Rules, proposed: list[tuple[tuple[Condition, ...], int]]
    ) -> tuple[list[Rule], list[dict[str, Any]]]:
        """The proposals that hold on the other half, surest first, and what was found of all."""
        if not proposed:
            return [], []
        G = len(self.log.groups)
        places = [self._rows(conditions, False) for conditions, _ in proposed]
        means, parts = zip(
            *(
                cluster_parts(self.psi[rows, a], self.group[rows], G)
                for rows, (_, a) in zip(places, proposed, strict=True)
            ),
            strict=True,
        )
        test = max_t(
            np.array(means), np.stack(parts, axis=1), level=learner.delta, null=learner.margin,
            seed=learner.seed,
        )  # fmt: skip
        rules = [
            Rule(conditions, self.log.actions[a], self._facts(conditions, rows, a, test, k))
            for k, ((conditions, a), rows) in enumerate(zip(proposed, places, strict=True))
        ]
        enough = [min(self._groups(rows, a)) >= learner.n_min
                  for rows, (_, a) in zip(places, proposed, strict=True)]  # fmt: skip
        order = sorted(range(len(rules)), key=lambda k: (-test.low[k] * len(places[k]), k))
        issued = [rules[k] for k in order if test.p[k] <= learner.delta and enough[k]]
        return issued, [rules[k].to_dict() for k in order]

    def _facts(
        self, conditions: tuple[Condition, ...], rows: Ints, a: int, test: MaxT, k: int
    ) -> dict[str, Any]:
        everywhere = np.concatenate((rows, self._rows(conditions, True)))
        shares = np.bincount(self.log.action[everywhere], minlength=len(self.log.actions))
        usual = [
            [self.log.actions[o], float(shares[o] / shares.sum())]
            for o in np.argsort(-shares, kind="stable") if shares[o]
        ]  # fmt: skip
        b = self.b[rows, a]
        took, others = self._groups(rows, a)
        feature, difference = self._balance(rows, a)
        return {
            "steps": len(everywhere),
            "groups": len(np.unique(self.group[rows])),
            "groups_took": took,
            "groups_others": others,
            "groups_by_action": self._first_actions(everywhere),
            "groups_proposed": len(np.unique(self.group[self._rows(conditions, True)])),
            "advantage": float(test.mean[k]),
            "se": float(test.se[k]),
            "low": float(test.low[k]),
            "high": float(test.high[k]),
            "p": float(test.p[k]),
            "share_usual": usual,
            "overlap": float(((b >= OVERLAP) & (b <= 1 - OVERLAP)).mean()) if len(b) else 0.0,
            "balance": [feature, difference],
        }

    def _first_actions(self, rows: Ints) -> list[list[Any]]:
        """[action, groups that took it at their first step in the region], most first."""
        rows = np.sort(rows)
        first = rows[np.unique(self.group[rows], return_index=True)[1]]
        groups = np.bincount(self.log.action[first], minlength=len(self.log.actions))
        order = np.argsort(-groups, kind="stable")
        return [[self.log.actions[a], int(groups[a])] for a in order if groups[a]]

    def _balance(self, rows: Ints, a: int) -> tuple[str, float]:
        """The feature that differs most between takers and others after weighting, and by what."""
        took = self.log.action[rows] == a
        b = np.clip(self.b[rows, a], OVERLAP, 1 - OVERLAP)
        weight = np.where(took, 1 / b, 1 / (1 - b))
        worst, name = 0.0, ""
        for f, feature in enumerate(self.log.feature_names):
            x = self.X[rows, f]
            fine = ~np.isnan(x)
            sides = []
            for side in (fine & took, fine & ~took):
                if not side.any():
                    break
                w = weight[side] / weight[side].sum()
                middle = float(w @ x[side])
                sides.append((middle, float(w @ (x[side] - middle) ** 2)))
            if len(sides) < 2:
                continue
            spread = np.sqrt((sides[0][1] + sides[1][1]) / 2)
            difference = abs(sides[0][0] - sides[1][0]) / spread if spread > 0 else 0.0
            if difference > worst:
                worst, name = float(difference), feature
        return name, worst


def _design(scores: Floats, group: Ints) -> float:
    """How much larger the error of a mean is by groups than by steps; at least 1."""
    mean, parts = cluster_parts(scores, group, int(group.max(initial=0)) + 1)
    by_steps = float(np.sqrt(((scores - mean) ** 2).sum())) / max(len(scores), 1)
    return max(float(np.sqrt((parts**2).sum())) / by_steps, 1.0) if by_steps > 0 else 1.0


def _ranges(log: Log) -> list[list[float]]:
    """[smallest, largest] value of each feature."""
    assert log.features is not None
    ends = (np.nanmin(log.features, axis=0), np.nanmax(log.features, axis=0))
    return [[float(low), float(high)] for low, high in zip(*ends, strict=True)]
