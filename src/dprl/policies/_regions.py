"""Region: a part of the feature space in words and numbers, and one change made in it.

A query x lies in a region if low <= x_i < high for every feature the region names. Ranges are half
open, so that two regions that share an edge share no point. A policy that is limited to regions
(see `dprl.policies._restrict`) keeps a suggestion only where a region holds the state *and* names
the same usual and suggested action: whatever it says, the policy it came from says too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import joined, say
from dprl.errors import PolicyError
from dprl.logs._categories import TRUTH
from dprl.logs._encoding import Encoding
from dprl.logs._raw_states import flag_of
from dprl.logs.log import Label
from dprl.policies._rule import day_words, label_words

__all__ = ["Range", "Region", "range_words", "read_layers"]


class Range(NamedTuple):
    """low <= feature < high."""

    feature: str
    low: float
    high: float


def range_words(
    ranges: Sequence[Range], whole: Mapping[str, bool], encoding: Encoding | None = None
) -> str:
    """Ranges as people say them: labels, gaps and dates as the log had them.

    Args:
        ranges: The ranges.
        whole: Feature → whether it is whole numbers.
        encoding: How the columns of the log became features. Default None: they are its columns.
    """
    sources = {} if encoding is None else _sources(encoding)

    def one(r: Range) -> str:
        if r.feature in sources:
            return sources[r.feature](r)
        if whole[r.feature] and r.high - r.low == 1:
            return say("{feature} = {x:.12g}", feature=r.feature, x=r.low)
        return say(
            "{feature} {low:.12g} to under {high:.12g}", feature=r.feature, low=r.low, high=r.high
        )

    return joined(" · ", (one(r) for r in ranges)) or say("anywhere")


def _sources(encoding: Encoding) -> dict[str, Callable[[Range], str]]:
    """Feature → how a range of it is told, for those that are not columns of the log as they are.

    An indicator, a flag or a truth value is 0 or 1, so a range holds one of them, or both.
    """

    def told(yes: str, no: str) -> Callable[[Range], str]:
        return lambda r: (
            say("{yes} or not", yes=yes)
            if r.low <= 0 and r.high > 1
            else yes
            if r.low <= 1 < r.high
            else no
        )

    ways: dict[str, Callable[[Range], str]] = {}
    for name, labels in encoding.columns.items():
        if name in encoding.days:
            ways[name] = lambda r: say(
                "{feature} {first} to under {last}",
                feature=r.feature,
                first=day_words(r.low),
                last=day_words(r.high),
            )
        if labels is None:
            ways[flag_of(name)] = told(
                say("{feature} missing", feature=name), say("{feature} known", feature=name)
            )
        elif labels == TRUTH:
            ways[name] = told(
                *(say("{feature} is {labels}", feature=name, labels=x) for x in ("true", "false"))
            )
        else:
            for label in labels:
                word = label_words(label)
                ways[f"{name}={label}"] = told(
                    say("{feature} is {labels}", feature=name, labels=word),
                    say("{feature} is not {label}", feature=name, label=word),
                )
    return ways


@dataclass(frozen=True)
class Region:
    """Where one change is made.

    Attributes:
        usual: The usual action there, in words ("a or b" where two share the first place).
        suggested: The action suggested in its place.
        ranges: What a state must satisfy; features not named may be anything.
    """

    usual: Label
    suggested: Label
    ranges: tuple[Range, ...]

    def holds(self, x: NDArray[np.float64], names: Sequence[str]) -> NDArray[np.bool_]:
        """bool (k,): which states x (k, d) lie inside."""
        inside = np.ones(len(x), bool)
        for feature, low, high in self.ranges:
            column = x[:, list(names).index(feature)]
            inside &= (column >= low) & (column < high)
        return inside

    def to_dict(self) -> dict[str, Any]:
        """As a policy file keeps it."""
        return {
            "usual": self.usual,
            "suggested": self.suggested,
            "ranges": [[r.feature, r.low, r.high] for r in self.ranges],
        }

    @classmethod
    def from_dict(cls, given: Any, features: Sequence[str], actions: Sequence[Label]) -> Region:
        """The region a policy file holds; a PolicyError if it is none."""
        try:
            ranges = tuple(
                Range(str(f), float(low), float(high)) for f, low, high in given["ranges"]
            )
            region = cls(given["usual"], given["suggested"], ranges)
        except (TypeError, KeyError, ValueError) as error:
            raise _odd(given) from error
        named = [r.feature for r in ranges]
        good = (
            isinstance(region.usual, str | int)
            and region.suggested in actions
            and len(set(named)) == len(named)
            and set(named) <= set(features)
            and all(math.isfinite(r.low) and r.low < r.high < math.inf for r in ranges)
        )
        if not good:
            raise _odd(given)
        return region


def _odd(given: Any) -> PolicyError:
    return PolicyError("a policy cannot be limited to this region.", repr(given)[:200])


def read_layers(
    given: Any, features: Sequence[str], actions: Sequence[Label]
) -> tuple[tuple[Region, ...], ...]:
    """The regions a policy is limited to: it speaks only inside some region of every layer."""
    if given is None:
        return ()
    if not isinstance(given, list | tuple) or not all(isinstance(x, list | tuple) for x in given):
        raise _odd(given)
    return tuple(tuple(Region.from_dict(r, features, actions) for r in layer) for layer in given)
