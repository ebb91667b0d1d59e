"""Rules: proposed by one half of the groups, certified by the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl.learners.rules.learner import Rules as Rules

__getattr__, __dir__, __all__ = attach(__name__)
