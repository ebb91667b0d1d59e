"""Work on a Dask cluster: the same jobs as in one process, and the same results to the last bit.

A part of a log is a task, and results are merged by a tree of tasks, `FAN` at a time; values that
all parts need are sent once and then passed on from worker to worker. Merges are exact, so the tree
does not show in the result. Everything that is needed to compute a task again is kept by the
scheduler, so a worker that dies costs time alone. What cannot be mended (a part that kills every
worker, no worker left, no scheduler) ends in an error, never in an answer.
"""

from __future__ import annotations

import contextlib
import queue
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dprl._core import cluster_tasks
from dprl._core.optional import needed
from dprl.errors import ClusterError, DprlError

__all__ = ["Cluster", "Kept"]

FAN = 8
"""Results that are merged by one task."""
PATIENCE = 60.0
"""Seconds that the work waits for a first worker, or for a scheduler that does not answer."""
LOOK = 1.0
"""Seconds without news after which the scheduler is asked whether it and its workers are alive."""

Share = Callable[[float], None]


@dataclass(frozen=True)
class Kept:
    """A part that workers keep in memory between jobs.

    Attributes:
        source: Where the part came from.
        future: The part on the cluster.
    """

    source: Any
    future: Any = field(repr=False)

    def read(self) -> Any:
        """The part, in this process."""
        return self.source.read()


@dataclass(frozen=True)
class Cluster:
    """A cluster that applies jobs to parts of a log, and functions to tasks.

    Attributes:
        client: A `distributed.Client`.
        patience: Seconds to wait for a first worker, or for a scheduler that does not answer.
            Default 60.
    """

    client: Any
    patience: float = PATIENCE

    @property
    def address(self) -> str:
        """The address of the scheduler."""
        scheduler = self.client.scheduler
        return str(getattr(scheduler, "address", "")) or "an unknown address"

    def workers(self) -> int:
        """The number of workers; waits for the first one.

        Raises:
            ClusterError: If there is none after `patience` seconds, or no scheduler.
        """
        begin = time.monotonic()
        while not (workers := self._alive()):
            if time.monotonic() - begin > self.patience:
                raise _no_workers(self.address, self.patience)
            time.sleep(0.05)
        return workers

    def keep(self, sources: Sequence[Any]) -> tuple[Kept, ...]:
        """Parts that are in this process, sent to the cluster once and kept there."""
        dumps = _dumps()
        run = uuid.uuid4().hex
        with _no_size_warning():
            return tuple(
                Kept(
                    source,
                    self.client.submit(
                        cluster_tasks.unpack, dumps(source), key=f"dprl-kept-{run}-{i}", pure=False
                    ),
                )
                for i, source in enumerate(sources)
            )

    def reduce(
        self,
        sources: Sequence[Any],
        job: Callable[..., Any],
        merge: Callable[[Any, Any], Any],
        shared: tuple[Any, ...] = (),
        progress: Share | None = None,
    ) -> Any:
        """Apply a job to every part, on the workers, and merge the results in a tree.

        Args:
            sources: The parts; objects with a method `read`, which can be pickled.
            job: Called with what a part reads and the shared values; an importable function.
            merge: Called with two results; its own result is one too.
            shared: Values that every call gets.
            progress: Called with the share of the tasks that is done, 0 to 1; None for silence.

        Returns:
            The merged result; None if no part had one.

        Raises:
            ClusterError: If workers die again and again, or none or no scheduler is left.
            DprlError: As the job raises it; a part that cannot be read is named.
        """
        if not sources:
            return None
        dumps, submit = _dumps(), self.client.submit
        run, expected = uuid.uuid4().hex, cluster_tasks.stamp()
        names: dict[str, str] = {}
        self.workers()
        with _no_size_warning():
            common = self._share(run, shared)
            level: list[Any] = []
            for i, source in enumerate(sources):
                named = f"part {i + 1:,} of {len(sources):,}{_words(source)}"
                part = source.future if isinstance(source, Kept) else dumps(source)
                key = f"dprl-part-{run}-{i}"
                names[key] = named
                level.append(
                    submit(
                        cluster_tasks.apply, expected, part, named, job, common,
                        key=key, pure=False,
                    )
                )  # fmt: skip
            tasks = list(level)
            while len(level) > 1:
                above = []
                for i in range(0, len(level), FAN):
                    some, key = level[i : i + FAN], f"dprl-merge-{run}-{len(tasks)}"
                    names[key] = f"the merge of {len(some)} results"
                    above.append(submit(cluster_tasks.join, merge, *some, key=key, pure=False))
                    tasks.append(above[-1])
                level = above
        last, total = level[0].key, cluster_tasks.Answer(None)
        level = above = some = []  # what was merged is no longer needed: nobody may hold it
        for future in self._finished(tasks, names, progress):
            if future.key == last:
                total = self._gather(future, names)
        _warn(total.warned)
        return total.result

    def map(
        self,
        function: Callable[..., Any],
        tasks: Sequence[Any],
        shared: tuple[Any, ...] = (),
        names: Sequence[str] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """Apply a function to tasks that need nothing of each other, on the workers.

        Args:
            function: Called with a task and the shared values; an importable function.
            tasks: The tasks, which can be pickled.
            shared: Values that every call gets.
            names: Each task in words, for errors. Default None: by number.

        Yields:
            The number of a task and its result, as they are finished.

        Raises:
            ClusterError: As in `reduce`.
            DprlError: As the function raises it.
        """
        if not tasks:
            return
        dumps = _dumps()
        run, expected = uuid.uuid4().hex, cluster_tasks.stamp()
        self.workers()
        numbers: dict[str, int] = {}
        words: dict[str, str] = {}
        futures = []
        with _no_size_warning():
            common = self._share(run, shared)
            for i, task in enumerate(tasks):
                key = f"dprl-task-{run}-{i}"
                numbers[key] = i
                words[key] = f"task {i + 1:,} of {len(tasks):,}" if names is None else names[i]
                futures.append(
                    self.client.submit(
                        cluster_tasks.call, expected, function, dumps(task), common,
                        key=key, pure=False,
                    )
                )  # fmt: skip
        warned: dict[int, Any] = {}
        for future in self._finished(futures, words, None):
            i, answer = numbers[future.key], self._gather(future, words)
            warned[i] = answer.warned
            yield i, answer.result
        _warn(each for i in sorted(warned) for each in warned[i])

    def _share(self, run: str, shared: tuple[Any, ...]) -> Any:
        """Values for all tasks, on the cluster: one task, so that they can be made again."""
        return self.client.submit(
            cluster_tasks.unpack, _dumps()(shared), key=f"dprl-shared-{run}", pure=False
        )

    def _finished(
        self, futures: list[Any], names: dict[str, str], progress: Share | None
    ) -> Iterator[Any]:
        """Futures as they finish; empties the list, so that what was merged can be forgotten."""
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        n, alone_since = len(futures), None
        for future in futures:
            future.add_done_callback(done.put)
        waiting = {future.key: future for future in futures}
        futures.clear()
        del future
        try:
            while waiting:
                try:
                    future = done.get(timeout=LOOK)
                except queue.Empty:
                    if self._alive():
                        alone_since = None
                        continue
                    alone_since = alone_since or time.monotonic()
                    if time.monotonic() - alone_since > self.patience:
                        raise _no_workers(self.address, self.patience) from None
                    continue
                if waiting.pop(future.key, None) is None:
                    continue
                if future.status != "finished":
                    self._fail(future, names)
                yield future
                del future
                if progress is not None:
                    progress(1 - len(waiting) / n)
        finally:
            if waiting:
                with contextlib.suppress(Exception):
                    self.client.cancel(list(waiting.values()), force=True)

    def _gather(self, future: Any, names: dict[str, str]) -> Any:
        """The result of a task that is finished; it may be computed again if its worker died."""
        client = self.client
        while True:
            try:
                return future.result(timeout=LOOK)
            except TimeoutError:
                if not self._alive():
                    self.workers()
            except Exception:
                if future.status == "finished" and client.status == "running":
                    raise
                self._fail(future, names)

    def _fail(self, future: Any, names: dict[str, str]) -> None:
        """Raise what became of a task, in three lines."""
        distributed = _distributed()
        named = names.get(future.key, "a task")
        error = future.exception(timeout=self.patience) if future.status == "error" else None
        if isinstance(error, DprlError):
            raise error
        if isinstance(error, distributed.scheduler.KilledWorker):
            named = names.get(error.task, "a part that workers keep")
            raise ClusterError(
                f"{error.allowed_failures + 1} workers died while they worked on {named}.",
                f"the last one was at {error.last_worker.address}",
                "Workers that need more memory than they may use are killed: make parts smaller "
                "(--memory-limit), give workers more memory, and look into their logs.",
            ) from error
        if isinstance(error, MemoryError):
            raise ClusterError(
                f"a worker has not enough memory for {named}.",
                str(error),
                "Make parts smaller (--memory-limit), or give workers more memory.",
            ) from error
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("dprl"):
            raise ClusterError(
                "a worker cannot import dprl.",
                str(error),
                "Install the same version of dprl on the scheduler and on all workers.",
            ) from error
        if error is not None:
            first = (str(error).splitlines() or [""])[0]
            raise ClusterError(
                f"{named} failed on the cluster.",
                f"{type(error).__name__}: {first}",
                "The logs of the workers say more.",
            ) from error
        raise _no_scheduler(self.address)

    def _alive(self) -> int:
        """The number of workers, as the scheduler counts them now."""
        client = self.client
        try:
            if client.status not in ("running", "connecting"):
                raise _no_scheduler(self.address)
            return len(client.sync(client.scheduler.ncores, callback_timeout=self.patience))
        except ClusterError:
            raise
        except Exception as error:
            raise _no_scheduler(self.address) from error


@contextlib.contextmanager
def _no_size_warning() -> Iterator[None]:
    """Without Dask's warning about tasks that carry a part of a log."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        yield


def _distributed() -> Any:
    return needed("distributed", "work on a cluster", "dprl[cluster]")


def _dumps() -> Callable[[Any], bytes]:
    """How Dask pickles: by reference where a name can be imported, by value in a script."""
    dumps: Callable[[Any], bytes] = needed(
        "distributed.protocol.pickle", "work on a cluster", "dprl[cluster]"
    ).dumps
    return dumps


def _words(source: Any) -> str:
    """The name of a part, where it has one."""
    name = getattr(source, "name", "")
    return f" ({name})" if name else ""


def _warn(warned: Iterable[tuple[type[Warning], str]]) -> None:
    """Give the warnings of the workers here, each once."""
    for category, text in dict.fromkeys(warned):
        warnings.warn(text, category, stacklevel=3)


def _no_workers(address: str, seconds: float) -> ClusterError:
    return ClusterError(
        f"the cluster has had no worker for {seconds:g} seconds.",
        f"the scheduler at {address}",
        f"Start workers: dask worker {address} --nworkers 4 --nthreads 1",
    )


def _no_scheduler(address: str) -> ClusterError:
    return ClusterError(
        "the scheduler of the cluster does not answer.",
        address,
        "Start it and its workers again, then the same command: nothing was written.",
    )
