"""A parameter that has a new name: the old one works for one more release, with a warning."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from dprl.errors import ParameterError

__all__ = ["renamed"]

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
