"""The cluster that a command works on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from dprl.errors import ParameterError

__all__ = ["check_cluster", "working_on"]


def check_cluster(cluster: str | None, learner: str) -> None:
    """Refuse a cluster for a learner that works in one process only."""
    if cluster is not None and learner == "rules":
        raise ParameterError(
            f"the learner {learner} works in one process, not on a cluster.",
            f"--cluster {cluster}",
            "Leave --cluster out, or say --learner dprl or confident.",
        )


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
