"""Worlds that punish: where claims about policies are put to the test, one short function each.

Numbers come in (shapes, strengths); out come worlds that can be sampled as a `Log` and that know
the truth about every policy: `gain(policy)` over usual practice, and `effect(where, action)` of one
decision. They are made from what claims say, not from how learners work. `WORLDS` names one of
each with its size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dprl.envs.care import care_pathway
from dprl.envs.forest import forest
from dprl.envs.gridworld import small_grid
from dprl.envs.hard.features import (
    SHAPES,
    STRENGTHS,
    catastrophe_features,
    contraindication,
    dose_features,
    drift,
    effect,
    heavy_tails,
    hidden_cause,
    late,
    null,
    null_categories,
    surrogate,
)
from dprl.envs.hard.labels import (
    catastrophe,
    confounded_labels,
    delayed_harm,
    doses,
    drift_labels,
    habits,
    hidden_labels,
    lucky_arm,
    near_ties,
    null_chain,
    null_states,
    one_arm_worse,
    patients,
    recurring_harm,
    single_step,
    tails_labels,
    wet_chicken,
)
from dprl.envs.hard.world import MarkovWorld, Truth, World
from dprl.envs.random_mdp import random_mdp
from dprl.envs.risky_arms import risky_arms

if TYPE_CHECKING:
    from dprl.planning.finite_mdp import FiniteMDP

__all__ = [
    "SHAPES", "STRENGTHS", "WORLDS", "Listed", "MarkovWorld", "Truth", "World", "catastrophe",
    "catastrophe_features", "confounded_labels", "contraindication", "delayed_harm",
    "dose_features", "doses", "drift", "drift_labels", "effect", "habits", "heavy_tails",
    "hidden_cause", "hidden_labels", "late", "lucky_arm", "near_ties", "null", "null_categories",
    "null_chain", "null_states", "one_arm_worse", "patients", "recurring_harm", "single_step",
    "surrogate", "tails_labels", "wet_chicken",
]  # fmt: skip


class Listed(NamedTuple):
    """A world of the list, and how many groups a log of it has.

    Attributes:
        make: Makes the world.
        groups: Groups of a log.

    Example:
        >>> from dprl.envs.hard import WORLDS
        >>> WORLDS["wet chicken, 300"].groups
        300
    """

    make: Callable[[], World | MarkovWorld]
    groups: int


def _markov(
    make: Callable[[], FiniteMDP], value_range: tuple[float, float] | None = None
) -> Callable[[], MarkovWorld]:
    def made() -> MarkovWorld:
        mdp = make()
        return MarkovWorld(mdp.name, mdp, value_range)

    return made


NULL = ("linear", "product", "xor", "u", "wave", "band", "four", "checks")
WORLDS: dict[str, Listed] = {
    **{f"null {shape} {strength}, 2000 x 1": Listed(partial(null, shape, strength), 2_000)
       for shape in NULL for strength in STRENGTHS},
    **{f"null {shape} {strength}, 300 x 4": Listed(partial(null, shape, strength, steps=4), 300)
       for shape in NULL for strength in STRENGTHS},
    "null slope strong, 500 x 1": Listed(partial(null, "slope", "strong"), 500),
    "null product strong, 100 x 6": Listed(partial(null, "product", "strong", steps=6), 100),
    "null xor medium, 500 x 2": Listed(partial(null, "xor", "medium", steps=2), 500),
    "null triple strong, 1000 x 1": Listed(partial(null, "triple", "strong"), 1_000),
    "null checks medium, 1500 x 1": Listed(partial(null, "checks", "medium"), 1_500),
    "null four strong, 300 x 3": Listed(partial(null, "four", "strong", steps=3), 300),
    "null product, three arms, 800 x 2": Listed(partial(null, "product", steps=2, arms=3), 800),
    "null wave, eight features, 400 x 3": Listed(partial(null, "wave", steps=3, features=8), 400),
    **{f"null categories {strength}, 1000 x 1": Listed(partial(null_categories, strength), 1_000)
       for strength in STRENGTHS},
    "null categories strong, 200 x 5": Listed(partial(null_categories, "strong", steps=5), 200),
    "surrogate, 300 x 4": Listed(surrogate, 300),
    "contraindication, 1000": Listed(contraindication, 1_000),
    "contraindication, 400": Listed(partial(contraindication, above=2.4, loss=12.0), 400),
    "contraindication of few, 1000": Listed(
        partial(contraindication, above=3.1, loss=16.2, slope=1.0), 1_000),
    "doses, 600 x 4": Listed(dose_features, 600),
    "doses recorded, 600 x 4": Listed(partial(dose_features, shown=True), 600),
    "late harm, 500 x 4": Listed(late, 500),
    "early harm, 500 x 4": Listed(partial(late, now=0.4, later=-0.8, last=False), 500),
    "late benefit, 500 x 4": Listed(partial(late, now=-0.3, later=1.0), 500),
    "drift, 1000": Listed(drift, 1_000),
    "drift not recorded, 1000": Listed(partial(drift, recorded=False), 1_000),
    "drift of practice alone, 1000": Listed(partial(drift, recorded=False, outcome=0.0), 1_000),
    "hidden cause 2, 1000": Listed(partial(hidden_cause, 2.0), 1_000),
    "hidden cause 4, 1000": Listed(partial(hidden_cause, 4.0), 1_000),
    "heavy tails, 500": Listed(heavy_tails, 500),
    "heavy tails one side, 500": Listed(partial(heavy_tails, skewed=True), 500),
    "heavy tails effect, 1000": Listed(partial(heavy_tails, skewed=True, effect=0.8), 1_000),
    "catastrophe, 600": Listed(catastrophe_features, 600),
    "effect linear, 600": Listed(partial(effect, "linear"), 600),
    "effect interaction, 1000": Listed(partial(effect, "interaction"), 1_000),
    "effect plain by lot, 602": Listed(partial(effect, "plain", size=0.23, strength=0.0), 602),
    "effect linear by lot, 400": Listed(partial(effect, "linear", strength=0.0), 400),
    "trial one arm worse, 2100": Listed(one_arm_worse, 2_100),
    "trial nothing works, 2100": Listed(partial(one_arm_worse, 0.75, 0.75), 2_100),
    "lucky arm, 1500": Listed(lucky_arm, 1_500),
    "null states 100, 3000": Listed(null_states, 3_000),
    "near ties, 3000": Listed(near_ties, 3_000),
    "habits, 1500": Listed(habits, 1_500),
    "habits clear, 2000": Listed(partial(habits, 6, size=0.35), 2_000),
    **{f"null labels {how}, 500 x 4": Listed(partial(confounded_labels, how, steps=4), 500)
       for how in STRENGTHS},
    "null chain, 300": Listed(null_chain, 300),
    "null chain strong, 1000": Listed(partial(null_chain, 1.0), 1_000),
    "patients, 60 x 20": Listed(patients, 60),
    "patients effect, 60 x 20": Listed(partial(patients, mean=0.2), 60),
    "hidden cause labels 3, 1000": Listed(hidden_labels, 1_000),
    "drift labels, 1000": Listed(partial(drift_labels, outcome=0.0), 1_000),
    "drift labels outcome, 1000": Listed(drift_labels, 1_000),
    "heavy tails labels, 800": Listed(tails_labels, 800),
    "heavy tails labels effect, 800": Listed(partial(tails_labels, effect=0.6), 800),
    "catastrophe labels, 600": Listed(catastrophe, 600),
    "rare harm labels, 2000": Listed(
        partial(catastrophe, one_in=67, loss=10.0, helps=0.1, levels=4), 2_000),
    "rare harm worth it, 2000": Listed(
        partial(catastrophe, one_in=67, loss=10.0, helps=0.6, levels=4), 2_000),
    "rare outcomes, 2000": Listed(partial(null_states, 30, chance=(0.02, 0.02)), 2_000),
    "doses labels, 1000 x 4": Listed(doses, 1_000),
    "doses recurring, 3000 x 4": Listed(partial(doses, day_shown=False), 3_000),
    "delayed harm late, 1000": Listed(delayed_harm, 1_000),
    "delayed harm early, 1000": Listed(partial(delayed_harm, delay=1, gain=0.25, cost=0.7), 1_000),
    "recurring harm early, 500": Listed(partial(recurring_harm, delay=1, cost=0.35), 500),
    "recurring harm late, 500": Listed(partial(recurring_harm, days=7, delay=3), 500),
    "wet chicken, 300": Listed(wet_chicken, 300),
    "wet chicken, 1000": Listed(wet_chicken, 1_000),
    "care pathway, 1000": Listed(_markov(care_pathway, (0.0, 1.0)), 1_000),
    "risky arms, 500": Listed(_markov(risky_arms, (0.0, 1.0)), 500),
    "forest, 500": Listed(_markov(forest, (0.0, 1.0)), 500),
    "small grid, 500": Listed(_markov(small_grid, (0.0, 1.0)), 500),
    "random MDP, 100": Listed(_markov(partial(random_mdp, 7)), 100),
}  # fmt: skip
"""Name → the world and the size of its logs."""
