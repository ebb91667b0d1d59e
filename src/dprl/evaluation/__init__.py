"""What a policy is worth, estimated from a log it has not seen.

A policy and a held-out `Log` come in. Out go estimates of the policy's value and of its difference
to usual practice, with intervals, effective sample sizes where it matters, and warnings in words.
`sensitivity` bounds them if an unrecorded cause moved who got what, and `effects` tells what the
arms of a trial bring.
Policies can be compared pair by pair (`compare`), settings side by side (`sweep`); `stats` has
the summaries that experiments use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl.evaluation._budget import Budget as Budget
    from dprl.evaluation._budget import budget as budget
    from dprl.evaluation._compare import Comparison as Comparison
    from dprl.evaluation._compare import compare as compare
    from dprl.evaluation._effects import Effects as Effects
    from dprl.evaluation._effects import effects as effects
    from dprl.evaluation._evaluate import evaluate as evaluate
    from dprl.evaluation._parts import by_part as by_part
    from dprl.evaluation._sensitivity import Sensitivity as Sensitivity
    from dprl.evaluation._sensitivity import sensitivity as sensitivity
    from dprl.evaluation._sweep import Sweep as Sweep
    from dprl.evaluation._sweep import sweep as sweep
    from dprl.evaluation.result import Evaluation as Evaluation
    from dprl.evidence.behavior import Behavior as Behavior

__getattr__, __dir__, __all__ = attach(__name__)
