"""What happened within a radius of here? Exactly, for many queries at once."""

from dprl.neighbors.engine import Engine
from dprl.neighbors.metric import FittedMetric, Metric
from dprl.neighbors.points import Points

__all__ = ["Engine", "FittedMetric", "Metric", "Points"]
