"""How sure: what is proved about a policy, and what the published bounds would say.

A policy or a learner and a `Log` come in. Out goes either a policy that makes only the changes the
log proves, with a `Certificate` that states the claim, its level and its assumptions (`gate`); or
numbers: the published bounds beside a sound one, and an approximate gain for policies without a
certificate.
"""

from dprl.certificate._gate import gate, register
from dprl.certificate.bounds import (
    Bound,
    count_errors,
    count_morl_theorem_2,
    dprl_theorem_1,
    dprl_theorem_2,
    pqi_corollary_2,
    published,
    sound_theorem_1,
    sound_theorem_2,
    spibb_theorem_2,
    spibb_two_successors,
    visits_needed,
)
from dprl.certificate.gain import ApproximateGain, approximate_gain
from dprl.policies.certificate import Certificate

__all__ = [
    "ApproximateGain",
    "Bound",
    "Certificate",
    "approximate_gain",
    "count_errors",
    "count_morl_theorem_2",
    "dprl_theorem_1",
    "dprl_theorem_2",
    "gate",
    "pqi_corollary_2",
    "published",
    "register",
    "sound_theorem_1",
    "sound_theorem_2",
    "spibb_theorem_2",
    "spibb_two_successors",
    "visits_needed",
]
