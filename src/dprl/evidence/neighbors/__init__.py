"""What happened within a radius of a place: exact answers, for many places at once."""

from dprl.evidence.neighbors.engine import Engine
from dprl.evidence.neighbors.metric import FittedMetric, Metric
from dprl.evidence.neighbors.samples import Points

__all__ = ["Engine", "FittedMetric", "Metric", "Points"]
