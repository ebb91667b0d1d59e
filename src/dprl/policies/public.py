"""A copy of a policy that may leave the house: it answers the same, and names nobody.

What a policy file holds about people, and what becomes of it in a public copy:

* the digest of the training log, the sample of its groups and the digests beside other logs and
  the audit trail (`provenance`, `certificate`): left out. They let one test who was in the log.
* labels of training episodes (`NeighborPolicy.episodes`): replaced by numbers. The numbers follow
  the points' own values, so they say nothing about the labels or the order of the log.
* training points (`NeighborPolicy`) and cell centres (`CellPolicy`, each the state of one training
  step): the policy cannot answer without them. They go along only where that is asked for.
* labels of states and actions, counts, means and variances of returns, the smallest and largest
  value of each feature, the weights of a network, names of columns, settings: stay. They are what
  the policy knows. A count may be 1, and then the mean beside it is one person's return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from dprl._core.words import option, worded
from dprl.errors import PolicyError
from dprl.logs.overlap import WITHHELD
from dprl.policies.base import Stored

Kept = TypeVar("Kept", bound=Stored)

FACTS = (
    "made_by", "episodes", "groups", "steps", "cut_episodes", "episodes_used", "steps_used",
    "columns", "notes", "ranges", "quantiles", "backups", "luck", "markov",
    "probabilities", "n_sites",
)  # fmt: skip
PARTS = {
    "sweep": ("settings", "rule", "words", "estimator"),
    "approved": ("changes", "of", "needs"),
    "rules": ("whole",),
}
"""What of a provenance names nobody. Whatever is not listed here is left out."""


def public_origin(origin: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a provenance by which nobody can be found in the training log."""
    result: dict[str, Any] = {name: origin[name] for name in FACTS if name in origin}
    for part, names in PARTS.items():
        facts = origin.get(part)
        if isinstance(facts, Mapping):
            result[part] = {name: facts[name] for name in names if name in facts}
    return result


def public_copy(policy: Kept, *, points: bool = False) -> Kept:
    """A copy of a policy without what names people; it answers the same at every state.

    The copy cannot tell which logs it has seen: `dprl.evaluate` warns of that. What stays in it is
    said in `dprl.policies.public`.

    Args:
        policy: A policy that can be saved.
        points: Let training points (or the centres of cells) go along, where the policy answers
            from them. They are states of single people as they were measured; without this, such a
            policy is refused.

    Returns:
        The copy, of the same class.

    Raises:
        PolicyError: The policy lives in memory only, or it answers from states of single people
            and `points` is False.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
        >>> dprl.public_copy(policy).provenance["log"]
        'withheld'
    """
    policy.digest()  # a policy that lives in memory only is refused here
    if policy.single_states and not points:
        raise PolicyError(
            f"this policy answers from {policy.single_states}.",
            ", ".join(getattr(policy, "feature_names", ())[:4]),
            worded(
                "If they may be public, say so: {points}. Labels are left out anyhow.",
                points=option("points", True),
            ),
        )
    origin = {**public_origin(policy.provenance), "log": WITHHELD, "public": True}
    proved = policy.certificate
    changed: dict[str, Any] = {
        "provenance": origin,
        "certificate": None if proved is None else replace(proved, log=WITHHELD),
    }
    return replace(policy, **changed, **policy.unnamed())
