"""From a table of decisions to a `Log`.

Files, dataframes, arrays and episodes of other libraries come in; every rule of a log is checked,
and an immutable `Log` of flat columns goes out, with returns, splits by whole groups, and cut
episodes treated as the user chose. Nothing in this package learns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl.logs._io import check as check
    from dprl.logs._io import from_arrays as from_arrays
    from dprl.logs._io import from_frame as from_frame
    from dprl.logs._io import read as read
    from dprl.logs._io import write as write
    from dprl.logs.checking.findings import CheckResult as CheckResult
    from dprl.logs.log import Log as Log
    from dprl.logs.reading.episode_sets import from_d3rlpy as from_d3rlpy
    from dprl.logs.reading.episode_sets import from_minari as from_minari
    from dprl.logs.reading.scan import scan as scan
    from dprl.logs.source import LogInParts as LogInParts

__getattr__, __dir__, __all__ = attach(__name__)
