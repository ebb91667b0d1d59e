"""A log on a cluster: its parts are read and computed with by workers.

Parts of a log that is in files are read by the workers, which must see the same files. A log in
memory is divided and sent to the workers once; they keep their parts for as long as the work lasts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dprl._core.cluster_start import connect
from dprl.logs.log import Log, check_log
from dprl.logs.parts import LogInParts, parts_of

__all__ = ["on_cluster"]

PER_WORKER = 4
"""Parts per worker of a log that was in memory: a slow worker then delays little."""
ROOM = 4_000_000
"""Returns that this process may hold at once, about 40 MB, however small the parts are."""
LEAST = 10_000
"""Rows of the smallest part that is worth sending."""


@contextlib.contextmanager
def on_cluster(log: Log | LogInParts, cluster: Any) -> Iterator[LogInParts]:
    """A log whose parts are computed with on a cluster, for as long as the block lasts.

    Args:
        log: A log in memory or in parts.
        cluster: A `distributed.Client`, an address, "local" or "local:2", or a number of workers;
            see `dprl._core.cluster_start.connect`.

    Yields:
        The same log in parts.

    Raises:
        LogError: If the log is empty, or in memory with features as states.
        ClusterError: If the cluster does not answer.
    """
    if not isinstance(log, LogInParts):
        check_log(log)
        log.codes()
    with connect(cluster) as there:
        if isinstance(log, LogInParts):
            yield replace(log, executor=there.reduce, rows=max(log.rows, ROOM))
            return
        rows = max(LEAST, -(-log.n_steps // (PER_WORKER * there.workers())))
        parts = parts_of(log, rows)
        yield replace(
            parts, sources=there.keep(parts.sources), executor=there.reduce, rows=log.n_steps
        )
