"""A policy limited to some of its changes: everything else, confirmations too, becomes DEFER.

The limited policy answers, at any state, either what the policy it came from answers or DEFER. The
allowed set of the rule is not touched and only allowed actions are chosen, so whatever holds for
every policy that picks allowed actions or defers holds for it. A certificate is restated for the
changes that are left, never copied.

Labels are limited by state, and cells by cell: certified is the mean of a cell, so a cell is
kept whole or not at all. Other features are limited by region: ranges of features with the usual
and the suggested action in them (`dprl.policies._regions`), kept in the policy file, asked at
every query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from dprl.errors import ParameterError
from dprl.logs._overlap import sealed_origin
from dprl.logs.log import Label
from dprl.policies._decisions import Kind
from dprl.policies._regions import Region
from dprl.policies._spaces import LabelSpace
from dprl.policies._tabled import Tabled

if TYPE_CHECKING:
    from dprl.policies.neighbors import NeighborPolicy

__all__ = ["Approved", "limit_regions", "limit_states"]

T = TypeVar("T", bound=Tabled)


class Approved(Protocol):
    """A change that may stay: it names a state (a label, or a cell's number) or a region."""

    @property
    def state(self) -> Label | None: ...
    @property
    def region(self) -> Region | None: ...


def limit_states(policy: T, states: Sequence[Label], **noted: Any) -> T:
    """The policy with its changes in these states only; `noted` goes into its provenance."""
    codes = LabelSpace(policy.states).codes(states)
    for label, code in zip(states, codes.tolist(), strict=True):
        if code < 0 or policy.kind[code] != Kind.CHANGE:
            raise ParameterError(f"the policy changes nothing in state {label!r}.")
    choice = np.full(len(policy.choice), -1, np.int32)
    choice[codes] = policy.choice[codes]
    proved = policy.certificate
    return replace(
        policy,
        choice=choice,
        planned=np.where(policy.allowed, policy.Q, np.nan),  # the plan it was part of is no more
        provenance=_noted(policy, noted),
        certificate=None if proved is None else proved.restricted(states),
    )


def limit_regions(
    policy: NeighborPolicy, regions: Sequence[Region], **noted: Any
) -> NeighborPolicy:
    """The policy with its changes in these regions only; `noted` goes into its provenance."""
    layers = [[r.to_dict() for r in layer] for layer in (*policy.layers, regions)]
    return replace(
        policy,
        parameters={**policy.parameters, "approved": layers},
        provenance=_noted(policy, noted),
        certificate=None,  # a certificate is about labels or cells; the gate gives none here
    )


def _noted(policy: Tabled | NeighborPolicy, noted: Mapping[str, Any]) -> dict[str, Any]:
    """Where the limited policy comes from: the policy it is a part of, and why this part."""
    return {**sealed_origin(policy.provenance), "approved": {"policy": policy.digest(), **noted}}
