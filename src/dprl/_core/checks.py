"""Every check of a parameter, with one sentence for what is refused.

    NAME must be WHAT; got VALUE.

The first half checks a kind of value (a number in a range, a whole number, one of some words, true
or false); the second half checks the parameters that several learners and functions share, so that
`gamma` means the same at every door.
"""

from __future__ import annotations

import functools
import math
import numbers
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from dprl._core.words import argument, either, worded
from dprl.errors import ParameterError

# --- A parameter that has a new name: the old one works for one more release, with a warning

T = TypeVar("T")


def renamed(old: str, new: str) -> Callable[[type[T]], type[T]]:
    """Let a class be made with, and asked for, `old` where `new` is meant.

    A class decorator. Both names at once are refused, so that a setting cannot say two things.
    """

    def wrap(cls: type[T]) -> type[T]:
        plain: Any = vars(cls)["__init__"]

        @functools.wraps(plain)
        def init(self: Any, *args: Any, **settings: Any) -> None:
            if old in settings:
                if new in settings:
                    raise ParameterError(
                        f"{old} is the old name of {new}, and both are given: "
                        f"{settings[old]!r} and {settings[new]!r}.",
                        do=f"Say {new} alone.",
                    )
                _warn(cls, old, new)
                settings[new] = settings.pop(old)
            plain(self, *args, **settings)

        def value(self: Any) -> Any:
            _warn(cls, old, new)
            return getattr(self, new)

        setattr(cls, "__init__", init)  # noqa: B010 - as a class of any kind
        setattr(cls, old, property(value, doc=f"The old name of `{new}`."))
        return cls

    return wrap


def _warn(cls: type, old: str, new: str) -> None:
    warnings.warn(
        f"{old} of {cls.__name__} is called {new} now; the old name goes with the next release.",
        DeprecationWarning,
        stacklevel=3,
    )


# --- Every check of a parameter, with one sentence for what is refused

Visits: TypeAlias = Literal["first", "all"]
SegmentRule: TypeAlias = Literal["end", "pooled", "text", "printed"]
Cut: TypeAlias = Literal["drop", "drop-unrelated", "bootstrap", "terminal", "ipcw"]
"""Treatments of cut episodes; `dprl.logs.censoring` says what each does and assumes."""


def wrong(name: str, need: str, value: object, do: str = "") -> ParameterError:
    """The error for a parameter that is not what it needs to be."""
    what = worded(MUST_BE, argument=argument(name), need=need, got=repr(value))
    return ParameterError(what, do=do, argument=name)


MUST_BE = "{argument} must be {need}; got {got}."
"""The sentence for every parameter that is refused."""


MOST = (1 << 31) - 1
"""The largest number of trees or steps, and the largest seed, of learners that are fitted."""


# -- kinds of values ---------------------------------------------------------------------------


def is_number(value: object) -> bool:
    """Whether it is one real number; true and false are none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_number(name: str, value: Any, within: str) -> float:
    """The value as a float, if it is a number within an interval, else a ParameterError.

    Args:
        name: The parameter's name.
        value: What was given.
        within: An interval as it is written: "(0, 1]" leaves 0 out and has 1 in it.
    """
    low, high = (float(end) for end in within[1:-1].split(","))
    inside = (
        is_number(value)
        and (value >= low if within[0] == "[" else value > low)
        and (value <= high if within[-1] == "]" else value < high)
    )
    if not inside:
        raise wrong(name, f"a number in {within}", value)
    return float(value)


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """The value as an int, if it is a whole number in least..most, else a ParameterError.

    Args:
        name: The parameter's name.
        value: What was given; 5.0 is the whole number 5.
        least: The smallest value it may have.
        most: The largest value it may have; by default there is none.
    """
    whole = is_number(value) and math.isfinite(value) and value == int(value)
    if not whole or value < least or (most is not None and value > most):
        where = f"at least {least:,}" if most is None else f"from {least:,} to {most:,}"
        raise wrong(name, f"a whole number, {where}", value)
    return int(value)


def check_choice(name: str, value: Any, choices: Sequence[str], do: str = "") -> None:
    """Refuse what is not one of these words."""
    if not (isinstance(value, str) and value in choices):
        *first, last = map(repr, choices)
        raise wrong(name, f"{', '.join(first)} or {last}", value, do)


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither true nor false."""
    if not isinstance(value, bool):
        raise wrong(name, "true or false", value)


# -- parameters that many share ----------------------------------------------------------------


def check_gamma(gamma: Any) -> float:
    """The discount as a float in (0, 1]."""
    return check_number("gamma", gamma, "(0, 1]")


def check_n_min(n_min: Any, least: int = 1) -> float:
    """The least number of episodes as a float: a whole number from `least`, or infinity."""
    if not (is_number(n_min) and n_min >= least and (math.isinf(n_min) or n_min == int(n_min))):
        raise wrong("n_min", f"a whole number of episodes, at least {least} (or infinity)", n_min)
    return float(n_min)


def check_radius(radius: Any) -> float:
    """How far neighbours may be, as a float."""
    return check_number("radius", radius, "[0, infinity)")


def check_visits(visits: Any) -> None:
    """Refuse a way of counting that does not exist."""
    check_choice("visits", visits, get_args(Visits))


def check_segments(segments: Any, visits: Visits) -> None:
    """Refuse a reading of Algorithm 2 that does not exist, or that contradicts how visits count."""
    check_choice("segments", segments, get_args(SegmentRule))
    if segments in ("text", "printed") and visits != "first":
        needed = "'end' or 'pooled' with visits='all'"
        raise wrong("segments", needed, segments, "It reads first visits only.")


def check_cut(cut: Any) -> None:
    """Refuse a treatment of cut episodes that does not exist."""
    if cut is not None and not (isinstance(cut, str) and cut in get_args(Cut)):
        words = f"{', '.join(map(repr, get_args(Cut)))} or None"
        raise wrong("cut", words, cut, "None treats cut episodes as terminal and warns.")


def check_weights(cut: Cut | None, plan: bool, lam: float | str | None) -> None:
    """Refuse to read single steps (a plan, or credit) where returns are weighted for cuts."""
    if cut == "ipcw" and lam is not None and lam != 1:
        raise ParameterError(
            worded(
                "{cut='ipcw'} weighs whole returns, and credit below λ = 1 puts a model's values "
                "in their place; got lam = {lam}.",
                lam=lam,
            ),
            "lam (--lam)",
            worded("Say {lam=1}, or treat cut episodes in another way."),
        )
    if cut == "ipcw" and plan:
        raise ParameterError(
            worded(
                "{cut='ipcw'} weighs whole returns, and a plan reads what lies between decisions; "
                "got {plan=True}."
            ),
            "plan (--plan)",
            worded("Say {plan=False} too, or treat cut episodes in another way."),
        )


def check_level(level: Any) -> float:
    """The coverage of an interval, as a float in (0, 1)."""
    return check_number("level", level, "(0, 1)")


def check_delta(delta: Any) -> float:
    """The chance of error of a certificate, as a float in (0, 1)."""
    return check_number("delta", delta, "(0, 1)")


def check_draws(draws: Any, least: int = 1) -> int:
    """How many resamples are drawn."""
    return check_whole("draws", draws, least)


def check_seed(seed: Any, most: int | None = None) -> int:
    """The seed of random numbers."""
    return check_whole("seed", seed, 0, most)


def check_threads(threads: Any) -> int | None:
    """How many threads; None for as many as there are cores."""
    return None if threads is None else check_whole("threads", threads, 1)


def check_range(value_range: Any) -> tuple[float, float]:
    """(lowest, highest) return as floats, or a ParameterError that says why it is needed."""
    if value_range is None:
        raise ParameterError(
            worded(
                "a certificate needs {choice}: the range of returns.",
                choice=either("value_range=(lowest, highest)", "--lowest and --highest"),
            ),
            do="State it from what rewards can be, never from the returns in the log.",
        )
    try:
        low, high = (float(x) for x in value_range)
    except (TypeError, ValueError):
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        raise wrong("value_range", "(lowest, highest) return, both finite", value_range)
    return low, high


def check_grid(
    settings: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> Sequence[Mapping[str, Any]]:
    """The settings, if they set no more than these names; what they share need not be redone."""
    for setting in settings:
        for name in setting:
            if name not in names:
                raise ParameterError(
                    f"{name!r} cannot be varied without gathering the evidence anew.",
                    do=f"Vary {' and '.join(names)}, or fit a learner of its own.",
                )
    return settings
