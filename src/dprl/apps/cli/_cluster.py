"""The cluster that a command works on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["working_on"]


@contextlib.contextmanager
def working_on(cluster: str | None) -> Iterator[dict[str, Any]]:
    """The argument `cluster` of what is called, if one is asked for: connected before any work."""
    if cluster is None:
        yield {}
        return
    from dprl._core.cluster_start import connect

    with connect(cluster) as there:
        there.workers()
        yield {"cluster": there}
