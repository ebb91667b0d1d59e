"""What happened within a radius of a place: exact answers, for many places at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl.evidence.neighbors.engine import Engine as Engine
    from dprl.evidence.neighbors.engine import Points as Points
    from dprl.evidence.neighbors.metric import FittedMetric as FittedMetric
    from dprl.evidence.neighbors.metric import Metric as Metric
    from dprl.evidence.neighbors.scales import register_scale as register_scale

__getattr__, __dir__, __all__ = attach(__name__)
