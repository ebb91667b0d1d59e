"""How sure: what is proved about a policy, and what the published bounds would say.

A policy or a learner and a `Log` come in. Out goes either a policy that makes only the changes the
log proves, with a `Certificate` that states the claim, its level and its assumptions (`gate`); or
numbers: the published bounds beside a sound one, and an approximate gain for policies without a
certificate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl.certificate._gate import gate as gate
    from dprl.certificate._gate import register as register
    from dprl.certificate.bounds import Bound as Bound
    from dprl.certificate.bounds import count_errors as count_errors
    from dprl.certificate.bounds import count_morl_theorem_2 as count_morl_theorem_2
    from dprl.certificate.bounds import dprl_theorem_1 as dprl_theorem_1
    from dprl.certificate.bounds import dprl_theorem_2 as dprl_theorem_2
    from dprl.certificate.bounds import pqi_corollary_2 as pqi_corollary_2
    from dprl.certificate.bounds import published as published
    from dprl.certificate.bounds import sound_theorem_1 as sound_theorem_1
    from dprl.certificate.bounds import sound_theorem_2 as sound_theorem_2
    from dprl.certificate.bounds import spibb_theorem_2 as spibb_theorem_2
    from dprl.certificate.bounds import spibb_two_successors as spibb_two_successors
    from dprl.certificate.bounds import visits_needed as visits_needed
    from dprl.certificate.gain import ApproximateGain as ApproximateGain
    from dprl.certificate.gain import approximate_gain as approximate_gain
    from dprl.policies.certificate import Certificate as Certificate

__getattr__, __dir__, __all__ = attach(__name__)
