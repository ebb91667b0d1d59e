"""From a log to a policy: `fit(log)`.

A learner is an immutable set of parameters. DPRL for labels (the paper's Algorithm 1) and for
features (Algorithm 3) are here, and `Confident`, which asks how sure a difference is. `baselines`
holds the methods they are compared with, which have the same method `fit`. `register` gives a
learner of your own a name on the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl.learners import baselines as baselines
    from dprl.learners.confident import Confident as Confident
    from dprl.learners.continuous import DPRLContinuous as DPRLContinuous
    from dprl.learners.discrete import DPRLDiscrete as DPRLDiscrete
    from dprl.learners.registry import Learner as Learner
    from dprl.learners.registry import Settings as Settings
    from dprl.learners.registry import register as register
    from dprl.learners.rules.held_out import HeldOut as HeldOut
    from dprl.learners.rules.learner import Rules as Rules

__getattr__, __dir__, __all__ = attach(__name__, modules=("dprl.learners.baselines",))
