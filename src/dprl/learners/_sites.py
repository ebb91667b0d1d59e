"""A policy from what sites counted, without their rows (see `dprl.evidence._site_evidence`).

One round of counting is enough for the best single decision (plan=False): Eq. 1 and argmax Q̂ need
counts and sums alone. A plan over several decisions needs to know what lies between decision
points, and these are known only when all sites have been added up: that is a second round.

Where nothing was suppressed, every number is that of the pooled log, bit for bit. What cannot be
counted without rows is how many changes luck would make; the policy says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.version import __version__
from dprl._core.words import option, say, worded
from dprl.errors import ParameterError
from dprl.evidence._site_evidence import SiteEvidence
from dprl.evidence.decision_points import best_choice
from dprl.planning._site_plan import SitePlan, allowed_pairs
from dprl.planning.policy_iteration import policy_iteration
from dprl.policies._decisions import PAIRS, rows_of
from dprl.policies.table import TablePolicy

__all__ = ["check_agreed", "fit_sites", "policy_of", "provenance_of_sites"]

Bools = NDArray[np.bool_]
LUCK = say("the rows of the sites are not here")
"""Why luck is not counted."""


def fit_sites(
    counted: SiteEvidence | SitePlan, settings: Mapping[str, Any], *, n_min: float
) -> TablePolicy:
    """The policy of a learner's settings on what sites counted.

    Args:
        counted: What they counted, merged: once, or a second time for a plan.
        settings: The settings of `dprl.DPRLDiscrete`.
        n_min: Trajectories an action needs.

    Raises:
        ParameterError: The settings are not what the sites agreed on, or ask for a plan.
    """
    sites = counted if isinstance(counted, SiteEvidence) else counted.evidence
    check_agreed(sites, settings)
    pairs = allowed_pairs(sites, n_min, settings["contrast"])
    Q = sites.evidence.pair.mean[:, :-1]
    choice, planned = best_choice(Q, pairs), np.where(pairs, Q, np.nan)
    if isinstance(counted, SitePlan):
        ours = {"plan": True, "n_min": counted.n_min, "contrast": counted.contrast}
        for name, agreed in ours.items():
            asked = n_min if name == "n_min" else settings[name]
            if asked != agreed:
                raise ParameterError(
                    f"the sites counted for a plan with {name} = {agreed}; got {asked}.",
                    f"{counted!r}",
                    f"Say {name}={agreed}, or let the sites count a second time for another plan.",
                )
        semi = counted.semi_mdp()
        result = policy_iteration(semi, Q[pairs])
        choice[semi.points] = semi.action[result.rows]
        planned[pairs] = result.q
    elif settings["plan"]:
        raise ParameterError(
            "a plan needs to know what lies between decision points, and the sites have counted "
            "returns alone.",
            worded("{plan}, {sites:,} sites", plan=option("plan", True), sites=len(sites.sites)),
            worded(
                "Say {plan} for the best single decisions, or let the sites count a second time "
                "(dprl evidence --points).",
                plan=option("plan", False),
            ),
        )
    policy = policy_of(sites, settings, pairs, choice, planned)
    return replace(policy, provenance={**policy.provenance, "notes": list(counted.notes())})


def check_agreed(sites: SiteEvidence, settings: Mapping[str, Any]) -> None:
    """Refuse settings that the sites did not count with."""
    schema = sites.schema
    ours = {"gamma": schema.gamma, "cut": schema.cut, "visits": "first"}
    for name, agreed in ours.items():
        if settings[name] != agreed:
            raise ParameterError(
                f"the sites counted with {name} = {agreed!r}; got {settings[name]!r}.",
                f"schema {schema.digest()[:12]}",
                f"Say {name}={agreed!r}, or let all sites count again with another schema.",
            )


def policy_of(
    sites: SiteEvidence,
    settings: Mapping[str, Any],
    pairs: Bools,
    choice: NDArray[np.int32],
    planned: NDArray[np.float64],
) -> TablePolicy:
    """The policy with these choices; groups whose action is not stated count as doing otherwise."""
    rows = rows_of(sites.evidence)
    own: dict[str, Any] = {
        n: np.ascontiguousarray(a[:, :-1]) if n in PAIRS else a for n, a in rows.items()
    }
    return TablePolicy(
        states=sites.schema.states, actions=sites.schema.actions, parameters=dict(settings),
        provenance=provenance_of_sites(sites), choice=choice, allowed=pairs, planned=planned,
        steps=sites.steps, **own,
    )  # fmt: skip


def provenance_of_sites(sites: SiteEvidence) -> dict[str, Any]:
    """Where a policy comes from: no log, but what sites counted of theirs."""
    facts = [dict(site) for site in sites.sites]
    return {
        "made_by": f"dprl {__version__}",
        "log": hashlib.sha256(f"dprl-evidence|{sites.digest()}".encode()).hexdigest(),
        "episodes": sum(site["episodes"] for site in facts),
        "groups": sites.groups,
        "steps": sites.n_steps,
        "cut_episodes": sum(site["cut_episodes"] for site in facts),
        "episodes_used": sites.evidence.n_episodes,
        "columns": {"follow_up": sites.schema.follow_up} if sites.schema.follow_up else {},
        "luck": {"skipped": LUCK},
        "schema": sites.schema.digest(),
        "n_sites": len(facts),
        "sites": facts,
        "notes": list(sites.notes()),
    }
