"""How far simple policies come in the simulation: one treatment for all, and one feature.

A simulated study says something about a learner only if simple policies fail in it. Two of them are
measured here: the same treatment for everybody, and a rule that looks at a single feature. With
`Costs()`, the first comes 15 % of the way from usual practice to `frugal_treatment` and the second
70 %; two features, lactate and pressure, come more than 90 % of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dprl._core.checks import check_seed, check_whole
from dprl.errors import ParameterError
from dprl.logs._files import Progress
from dprl_studies.icu.costs import Costs
from dprl_studies.icu.dictionary import FEATURES
from dprl_studies.icu.model import Choose, Floats, Ints, play
from dprl_studies.icu.preparation import ACTIONS
from dprl_studies.icu.simulation import true_value, usual_treatment

__all__ = ["FeatureRule", "Yardstick", "best_constant", "best_feature_rule"]

SCREENED = (0.25, 0.5, 0.75)
"""Quantiles of a feature at which it is cut at first."""

REFINED = (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Quantiles that are tried besides, for the best features."""

TREATMENTS, KEPT = 6, 4
"""How many treatments the first search uses, and how many features the second."""


@dataclass(frozen=True)
class FeatureRule:
    """A policy that looks at one feature: one treatment up to a limit, another above it.

    Attributes:
        feature: A name of `FEATURES`.
        limit: In the feature's unit.
        below: Code of the treatment (0 to 15, see `ACTIONS`) where the feature is at most `limit`.
        above: Code of the treatment elsewhere, also where the feature was never charted.

    Example:
        >>> rule = FeatureRule("map", 62.0, 6, 0)
        >>> print(rule)
        map at most 62: bolus 1, vasopressor 2; else: bolus 0, vasopressor 0
        >>> true_value(rule, gamma=0.99, stays=50) > true_value(gamma=0.99, stays=50)
        True
    """

    feature: str
    limit: float
    below: int
    above: int

    def __call__(self, x: Floats, stays: Ints, rng: np.random.Generator) -> Ints:
        """Treat: features float64 (k, 29), stays and generator not used → codes, int64 (k,)."""
        at_most = x[:, FEATURES.index(self.feature)] <= self.limit
        return np.asarray(np.where(at_most, self.below, self.above))

    def __str__(self) -> str:
        return (
            f"{self.feature} at most {self.limit:g}: {ACTIONS[self.below]}; "
            f"else: {ACTIONS[self.above]}"
        )


@dataclass(frozen=True)
class Yardstick:
    """A simple policy and what it is worth.

    Attributes:
        text: What it does, in words.
        policy: The function that treats; `true_value` takes it.
        value: Its true value.
        error: Standard error of the value.

    Example:
        >>> best_constant(gamma=0.99, stays=50, costs=Costs()).text
        'bolus 0, vasopressor 0'
    """

    text: str
    policy: Choose
    value: float
    error: float


def _constant(action: int) -> Choose:
    """The policy that gives everybody this treatment."""

    def choose(x: Floats, stays: Ints, rng: np.random.Generator) -> Ints:
        return np.full(len(x), action)

    return choose


def _constant_values(gamma: float, costs: Costs | None, stays: int, seed: int) -> Floats:
    """The value of each of the 16 treatments, given to everybody, float64 (16,)."""
    play_it = partial(true_value, gamma=gamma, stays=stays, seed=seed, costs=costs)
    return np.array([play_it(_constant(a))[0] for a in range(len(ACTIONS))])


def best_constant(
    *, gamma: float, stays: int = 2000, seed: int = 0, costs: Costs | None = None
) -> Yardstick:
    """The best of the 16 treatments if everybody gets it every hour; all are played.

    Args:
        gamma: Discount per hour, in (0, 1].
        stays: Number of stays to play for each treatment, at least 2. Default 2,000.
        seed: Seed of the patients. Default 0.
        costs: What treatment costs. Default None: nothing.

    Returns:
        The treatment and its value, for these patients.

    Raises:
        ParameterError: A parameter is out of range.

    Example:
        >>> best_constant(gamma=0.99, stays=50).text  # where treatment costs nothing
        'bolus 1, vasopressor 2'
    """
    action = int(np.argmax(_constant_values(gamma, costs, stays, seed)))
    value, error = true_value(_constant(action), gamma=gamma, stays=stays, seed=seed, costs=costs)
    return Yardstick(ACTIONS[action], _constant(action), value, error)


def best_feature_rule(
    *,
    gamma: float,
    stays: int = 2000,
    seed: int = 0,
    costs: Costs | None = None,
    features: Sequence[str] = FEATURES,
    search: int = 600,
    progress: Progress | None = None,
) -> Yardstick:
    """The best rule found that looks at one feature and gives one of two treatments.

    Rules are searched on patients of another seed, so the value is not flattered by the search.
    First every feature is cut at its quartiles under usual practice, and the treatments of the two
    sides are improved in turn, among the six that are worth most when given to everybody. Then for
    the four best features more limits are tried, and all 16 treatments on both sides. Of these four
    rules the best one is chosen with as many stays as it is then played with. This is no proof that
    there is no better rule of this kind.

    Args:
        gamma: Discount per hour, in (0, 1].
        stays: Number of stays that the rule found is played with, at least 2. Default 2,000.
        seed: Seed of the patients; the search uses patients of `seed` + 1. Default 0.
        costs: What treatment costs. Default None: nothing.
        features: Names of `FEATURES` that are tried. Default: all 29.
        search: Number of stays that each rule is played with in the search, at least 2. Default
            600.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The rule and its value.

    Raises:
        ParameterError: A parameter is out of range, or a feature does not exist.

    Example:
        >>> best = best_feature_rule(gamma=0.99, stays=50, search=20, features=["alt_ever"])
        >>> best.text
        'alt_ever at most 0: ...; else: ...'
    """
    unknown = [name for name in features if name not in FEATURES]
    if unknown or not features:
        raise ParameterError(
            f"features must be names of the 29 features; got {list(features)!r}.",
            "" if not unknown else f"first: {unknown[0]!r}",
            do="They are in dprl.icu.FEATURES.",
        )
    seed, search = check_seed(seed), check_whole("search", search, 2)
    tried: dict[FeatureRule, float] = {}

    def value(rule: FeatureRule) -> float:
        """The value of a rule in the search; each is played once."""
        if rule not in tried:
            tried[rule] = true_value(rule, gamma=gamma, stays=search, seed=seed + 1, costs=costs)[0]
        return tried[rule]

    def improve(rule: FeatureRule, treatments: Sequence[int]) -> FeatureRule:
        """Change the treatment of one side after the other, until that brings nothing."""
        while True:
            before = value(rule)
            for side in ("above", "below"):
                fixed = {k: getattr(rule, k) for k in ("feature", "limit", "above", "below")}
                rule = max((FeatureRule(**{**fixed, side: a}) for a in treatments), key=value)
            if value(rule) <= before:
                return rule

    report = progress or (lambda stage, share: None)
    constants = np.argsort(-_constant_values(gamma, costs, search, seed + 1)).tolist()
    charted = play(search, seed + 1, usual_treatment, keep=True)
    best: list[FeatureRule] = []
    for i, name in enumerate(features):
        report("features", i / len(features))
        rules = [
            improve(FeatureRule(name, limit, constants[0], constants[0]), constants[:TREATMENTS])
            for limit in _limits(charted.features, charted.action, name, SCREENED)
        ]
        best += [max(rules, key=value)] if rules else []
    best = sorted(best, key=value, reverse=True)[:KEPT]
    for i, first in enumerate(best):
        report("limits", i / len(best))
        more = _limits(charted.features, charted.action, first.feature, REFINED)
        others = [FeatureRule(first.feature, limit, first.below, first.above) for limit in more]
        best[i] = improve(max([first, *others], key=value), range(len(ACTIONS)))
    play_it = partial(true_value, gamma=gamma, stays=stays, costs=costs)
    chosen = max(best, key=lambda rule: play_it(rule, seed=seed + 1)[0])
    worth, error = play_it(chosen, seed=seed)
    return Yardstick(str(chosen), chosen, worth, error)


def _limits(
    features: Floats | None, action: Ints, name: str, quantiles: Sequence[float]
) -> list[float]:
    """Where to cut a feature: at quantiles of its charted values, none at the largest value."""
    assert features is not None  # played with keep=True
    values = features[..., FEATURES.index(name)][action >= 0]
    values = values[~np.isnan(values)]
    if not len(values):
        return []
    cuts = np.unique(np.quantile(values, quantiles, method="lower"))
    if set(np.unique(values).tolist()) <= {0.0, 1.0}:  # yes or no
        cuts = np.array([0.0])
    return [float(cut) for cut in cuts if cut < values.max()]
