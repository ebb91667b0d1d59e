"""What features are divided by before distances are measured: the scales that have a name.

`register` adds one of your own, for `dprl.Metric(scale="range")` and `--scale range`:

    dprl.evidence.neighbors.register_scale("range", lambda x: x.max(axis=0) - x.min(axis=0))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dprl._core.optional import Registry

if TYPE_CHECKING:  # the command line lists the names, and needs no numpy for it
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


NORMAL_IQR = 1.349
"""Interquartile range of a normal distribution of standard deviation 1."""


@dataclass(frozen=True)
class NamedScale:
    """A scale that has a name.

    Attributes:
        of: float64 (n, d), the features of a log → float64 (d,), what each is divided by; where it
            is 0 the standard deviation is taken in its place. None: nothing is divided.
        lacks: What a feature lacks that varies and whose scale is 0, for a note.
    """

    of: Callable[[Floats], Floats] | None
    lacks: str = ""


SCALES: Registry[NamedScale] = Registry("dprl.scales", "scale")
"""Name → scale."""


def register_scale(
    name: str, of: Callable[[Floats], Floats], *, lacks: str = "has a scale of 0"
) -> None:
    """Give a scale of your own a name.

    Args:
        name: The name, for `dprl.Metric(scale=NAME)` and `--scale NAME`.
        of: Features of a log, float64 (n, d) → what each is divided by, float64 (d,).
        lacks: What is said of a feature whose scale is 0 although it varies: it is scaled by its
            standard deviation.

    Raises:
        ParameterError: The name is taken.

    Example:
        >>> import dprl
        >>> from dprl.evidence.neighbors.scales import SCALES, register_scale
        >>> register_scale("range", lambda x: x.max(axis=0) - x.min(axis=0))
        >>> log = dprl.from_arrays(
        ...     episode=[1, 1, 2], state=[[0.0], [4.0], [2.0]], action=["a", "b", "b"],
        ...     reward=[0, 1, 0],
        ... )
        >>> dprl.Metric(scale="range").fit(log).scale.tolist()
        [4.0]
        >>> del SCALES["range"]
    """
    SCALES.add(name, NamedScale(of, lacks))


def _std(x: Floats) -> Floats:
    """The standard deviation of each feature."""
    import numpy as np

    return np.asarray(np.std(x, axis=0))


def _robust(x: Floats) -> Floats:
    """The interquartile range of each feature, as that of a normal distribution would be."""
    import numpy as np

    quarter, three = np.quantile(x, [0.25, 0.75], axis=0)
    return np.asarray((three - quarter) / NORMAL_IQR)


SCALES.add("std", NamedScale(_std))
SCALES.add("robust", NamedScale(_robust, "has no interquartile range"))
SCALES.add("none", NamedScale(None))
