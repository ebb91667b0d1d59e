"""Which cluster: a client that is there, the address of a scheduler, or workers on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

from dprl._core.checks import wrong
from dprl._core.cluster import PATIENCE, Cluster
from dprl._core.optional import needed
from dprl.errors import ClusterError

__all__ = ["connect"]


@contextlib.contextmanager
def connect(cluster: Any, patience: float = PATIENCE) -> Iterator[Cluster]:
    """A cluster to work on, for as long as the block lasts.

    Args:
        cluster: A `distributed.Client`, which stays open; the address of a scheduler, such as
            "tcp://10.0.0.1:8786"; or "local", "local:2" or a number: so many worker processes on
            this machine (by default one per core), which end with the block.
        patience: Seconds to wait for the scheduler and for a first worker. Default 60.

    Yields:
        The cluster.

    Raises:
        PackageError: If Dask is not installed.
        ParameterError: If `cluster` is none of these.
        ClusterError: If the scheduler does not answer.
    """
    distributed = needed("distributed", "work on a cluster", "dprl[cluster]")
    if isinstance(cluster, Cluster):
        yield cluster
        return
    if isinstance(cluster, distributed.Client):
        yield Cluster(cluster, patience)
        return
    workers = _workers(cluster)
    if workers is None and not (isinstance(cluster, str) and "://" in cluster):
        raise wrong(
            "cluster", "a client, an address (tcp://HOST:PORT), 'local' or 'local:2'", cluster
        )
    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet())
        address = cluster
        if workers is not None:
            address = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, host="127.0.0.1",
                    dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
                    silence_logs=logging.CRITICAL,
                )
            )  # fmt: skip
        try:
            client = distributed.Client(address, timeout=patience, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise ClusterError(
                f"no Dask scheduler answers at {cluster}.",
                (str(error).splitlines() or [""])[0],
                "Start one (dask scheduler), or work on this machine: local:2.",
            ) from error
        stack.callback(_close, client)
        yield Cluster(client, patience)


def _workers(cluster: Any) -> int | None:
    """The number of worker processes on this machine; None where another cluster is meant."""
    if isinstance(cluster, int) and not isinstance(cluster, bool) and cluster >= 1:
        return cluster
    if cluster == "local":
        return os.cpu_count() or 1
    kind, _, number = cluster.partition(":") if isinstance(cluster, str) else ("", "", "")
    return int(number) if kind == "local" and number.isdecimal() and int(number) >= 1 else None


def _close(client: Any) -> None:
    """Close a client of ours; a scheduler that has gone does not matter now."""
    with contextlib.suppress(Exception):
        client.close(timeout=2)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the log lines of Dask: what goes wrong is told in our words."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
