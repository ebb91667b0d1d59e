"""Policies made of rules that people can read: a rule, the policy, its tree, exports and words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl.policies.rules.policy import RulePolicy as RulePolicy

__getattr__, __dir__, __all__ = attach(__name__)
