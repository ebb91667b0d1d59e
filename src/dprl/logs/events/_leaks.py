"""The proof that no state sees what comes after its decision; specs without one are refused.

A row enters the state of the decision at t only if it is *known* there. Known is a row

- at its time, or at the column `known` of the source, or after the day for a time without an hour;
- at its end, if it has one (an amount is known when it has run in). That it began is known when it
  begins ("count", "ever" and "age" without `valid`), and so is a rate ("dose"), of which only the
  part before t counts. With a column `known` that column alone says it;
- after `known_after` more.

The SQL of every feature compares only that moment with t: before it (`until = "before"`), or not
after it (`until = "at"`). What is left to prove is about the spec, and is proved here:

1. The delay is not negative. (Durations never are.)
2. What is done and gained after t is in no state at t. Windows begin at t, so a feature until "at"
   must not count rows that a window counts: its codes and those of actions, and of rewards that
   count rows at t, must have no code in common.
3. A row without a time is known always: a static feature must not be made of codes that begin or
   end an episode, are an action or a reward.
4. When there is a decision must not tell what is decided: a clock must not go by codes of actions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dprl.logs.events._codes import Use, may_overlap, uses
from dprl.logs.events._fields import Path, SpecError, place, refuse

if TYPE_CHECKING:
    from dprl.logs.events.spec import Spec

__all__ = ["refuse_leaks"]


def refuse_leaks(spec: Spec) -> None:
    """Refuse a spec in which a state could hold what is known only after its decision.

    Args:
        spec: The spec; its keys have been checked one by one.

    Raises:
        SpecError: With the line of the feature or of the clock, and the other place it meets.
    """
    by_role = {use.role: use for use in uses(spec)}
    for i, feature in enumerate(spec.features):
        use = by_role.get(f"f{i}")
        if use is None:
            continue
        path: Path = ("feature", i, "codes")
        if feature.until == "at":
            for other, what in _at_the_decision(spec, by_role):
                both = may_overlap(use.codes, _outer(spec, other.codes))
                if both is not None:
                    raise refuse(
                        spec.lines,
                        path,
                        f"feature {feature.name!r} would see {what} of its own decision: it counts "
                        f"rows of {both[0]!r} at the moment of the decision.",
                        f'Write until = "before" there ({place(spec.lines, other.path)}).',
                    )
        if feature.static:
            for other in _outcomes(by_role):
                both = may_overlap(use.codes, _outer(spec, other.codes))
                if both is not None:
                    raise refuse(
                        spec.lines,
                        path,
                        f"static feature {feature.name!r} would be known from the beginning, and "
                        f"{both[0]!r} is what happens later.",
                        f"Take it out of the state (see {place(spec.lines, other.path)}).",
                    )
    _refuse_telling_clock(spec, by_role)


def _outer(spec: Spec, codes: tuple[str, ...]) -> tuple[str, ...]:
    """The codes, and those of the rows from which intervals of these names are made."""
    more: list[str] = []
    for interval in spec.intervals:
        if may_overlap([interval.name], codes):
            more += [*interval.start, *interval.stop]
    return (*codes, *more)


def _at_the_decision(spec: Spec, by_role: dict[str, Use]) -> Iterator[tuple[Use, str]]:
    """The places that count rows at t itself for what comes after, and what they are."""
    for role, use in by_role.items():
        if role.startswith("a"):
            yield use, "the action"
        if role.startswith("r") and spec.rewards[int(role[1:])].side == "start":
            yield use, "the reward"


def _outcomes(by_role: dict[str, Use]) -> Iterator[Use]:
    """The places that say what happens during an episode."""
    for role, use in by_role.items():
        if role[0] in "are" or role in ("start", "on"):
            yield use


def _refuse_telling_clock(spec: Spec, by_role: dict[str, Use]) -> None:
    if "on" not in by_role:
        return
    for role, use in by_role.items():
        if not role.startswith("a"):
            continue
        both = may_overlap(by_role["on"].codes, _outer(spec, use.codes))
        if both is not None:
            raise SpecError(
                f"the clock would tell the action: there is a decision only where {both[0]!r} "
                "happens, and that is an action.",
                place(spec.lines, ("clock", "on")),
                'Let the clock go by something else, such as a visit or every = "4 h".',
            )
