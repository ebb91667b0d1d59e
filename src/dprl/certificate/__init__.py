"""How sure: what is proved about a policy, and what the published bounds would say."""

from dprl.certificate.bounds import (
    Bound,
    count_errors,
    count_morl_theorem_2,
    dprl_theorem_1,
    dprl_theorem_2,
    pqi_corollary_2,
    sound_theorem_1,
    spibb_theorem_2,
)
from dprl.certificate.comparison import published
from dprl.certificate.gating import gate
from dprl.certificate.plug_in import ApproximateGain, approximate_gain
from dprl.claim import Certificate

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
    "sound_theorem_1",
    "spibb_theorem_2",
]
