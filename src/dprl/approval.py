"""A policy limited to some of its changes: everything else, confirmations too, becomes DEFER.

The limited policy answers, at any state, either what the policy it came from answers or DEFER. The
allowed set of the rule is not touched and only allowed actions are chosen, so whatever holds for
every policy that picks allowed actions or defers holds for it. A certificate is restated for the
changes that are left, never copied.

Labels are limited by state. Features are limited by region: ranges of features with the usual and
the suggested action in them (`dprl.region`), kept in the policy file and asked at every query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from dprl.errors import ParameterError
from dprl.log import Label
from dprl.neighbor_policy import NeighborPolicy
from dprl.policy import Policy
from dprl.region import Region

__all__ = ["certificate_of", "limit_regions", "limit_states"]

P = TypeVar("P", Policy, NeighborPolicy)


def limit_states(policy: Policy, states: Sequence[Label], **noted: Any) -> Policy:
    """The policy with its changes in these states only; `noted` goes into its provenance."""
    codes = policy._codes(states)
    for label, code in zip(states, codes, strict=True):
        if code < 0 or policy.kind[code] != 2:
            raise ParameterError(f"the policy changes nothing in state {label!r}.")
    choice = np.full(len(policy.choice), -1, np.int32)
    choice[codes] = policy.choice[codes]
    limited: Policy = replace(policy, choice=choice, provenance=_noted(policy, noted))
    return _restated(limited, policy, states)


def limit_regions(
    policy: NeighborPolicy, regions: Sequence[Region], **noted: Any
) -> NeighborPolicy:
    """The policy with its changes in these regions only; `noted` goes into its provenance."""
    layers = [[r.to_dict() for r in layer] for layer in (*policy._layers, regions)]
    limited = replace(
        policy,
        parameters={**policy.parameters, "approved": layers},
        provenance=_noted(policy, noted),
    )
    return _restated(limited, policy, regions)


def _noted(policy: Policy | NeighborPolicy, noted: Mapping[str, Any]) -> dict[str, Any]:
    """Where the limited policy comes from: the policy it is a part of, and why this part."""
    return {**policy.provenance, "approved": {"policy": policy.digest(), **noted}}


def certificate_of(policy: Any) -> Any:
    """The policy's certificate; None where it has none."""
    return getattr(policy, "certificate", None)


def _restated(limited: P, policy: P, kept: Sequence[Any]) -> P:
    """`limited` with its policy's certificate said again for the changes that are left.

    The one place that knows how: a certificate has `restricted(kept)`, with the labels of the
    states (or the regions) in which changes are left.
    """
    certificate = certificate_of(policy)
    if certificate is None:
        return limited
    more: Any = {"certificate": certificate.restricted(kept)}
    return replace(limited, **more)
