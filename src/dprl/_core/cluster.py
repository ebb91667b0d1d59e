"""Work on a Dask cluster: the same jobs as in one process, and the same results to the last bit.

A part of a log is a task, and results are merged by a tree of tasks, `FAN` at a time; values that
all parts need are sent once and then passed on from worker to worker. Merges are exact, so the tree
does not show in the result. Everything that is needed to compute a task again is kept by the
scheduler, so a worker that dies costs time alone. What cannot be mended (a part that kills every
worker, no worker left, no scheduler) ends in an error, never in an answer.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import pickle
import platform
import queue
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dprl._core import __version__
from dprl._core.checks import wrong
from dprl._core.optional import needed
from dprl.errors import ClusterError, DprlError, LogError

# --- One digest of all the code of dprl: so two processes can tell whether they run the same


@functools.cache
def source_digest() -> str:
    """SHA-256 of the source of dprl and of the studies beside it: names and contents of modules."""
    home = Path(__file__).parent.parent
    total = hashlib.sha256()
    for path in sorted([*home.rglob("*.py"), *home.parent.glob("dprl_studies/**/*.py")]):
        total.update(path.relative_to(home.parent).as_posix().encode())
        total.update(path.read_bytes())
    return total.hexdigest()


# --- What a worker of a cluster does: read a part, apply a job to it, merge results
#
# A worker works on one part at a time, whatever its number of threads: a part is as large as a
# process may hold, and a job uses several threads by itself. What a job warns about travels back
# with its result, so that it is shown where the user is.

_ONE_AT_A_TIME = threading.Lock()

Stamp = tuple[tuple[str, str], ...]
"""The versions that decide about the bits of a result, by name."""


@dataclass(frozen=True)
class Answer:
    """A result and the warnings that came with it, each once.

    Attributes:
        result: What the job returned.
        warned: Category and text of each warning, in the order of the parts.
        size: Bytes of the result: Dask asks for it to spread work and to watch its memory.
    """

    result: Any
    warned: tuple[tuple[type[Warning], str], ...] = ()
    size: int = 0

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.size


def _answer(result: Any, warned: Iterable[tuple[type[Warning], str]]) -> Answer:
    """An answer with its size; arrays are not copied to measure them."""
    outside: list[int] = []
    inside = pickle.dumps(result, 5, buffer_callback=lambda b: outside.append(b.raw().nbytes))
    return Answer(result, tuple(dict.fromkeys(warned)), len(inside) + sum(outside))


def stamp() -> Stamp:
    """The versions of this process that decide about the bits of a result."""
    import duckdb
    import numba
    import scipy

    return (
        ("dprl", __version__),
        ("source of dprl", source_digest()[:16]),
        ("numpy", np.__version__),
        ("scipy", scipy.__version__),
        ("numba", numba.__version__),
        ("duckdb", duckdb.__version__),
    )


def _check(expected: Stamp) -> None:
    """Refuse to work with other code than the process that asks: the answer could be another."""
    own = dict(stamp())
    for name, version in expected:
        if own.get(name) != version:
            raise ClusterError(
                f"a worker has {name} {own.get(name)}, and this process has {version}: results "
                "could differ.",
                f"the worker on {platform.node()}",
                "Install the same versions on all workers, and start them again.",
            )


def unpack(packed: bytes) -> Any:
    """What was pickled for the workers."""
    return pickle.loads(packed)


def _read(source: Any, name: str) -> Any:
    """The log of a part; what cannot be read is named."""
    try:
        return source.read()
    except DprlError as error:
        where = f"{name}: {error.where}" if error.where else name
        raise type(error)(error.what, where, error.do) from error
    except MemoryError:
        raise
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise LogError(
            f"{name} cannot be read.",
            f"{type(error).__name__}: {first}",
            "Is the file whole, and do all workers see the same files under the same paths?",
        ) from error


def _alone(function: Callable[[], Any]) -> Answer:
    """The result of a function and what it warned about; other threads of this worker wait."""
    with _ONE_AT_A_TIME, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function()
    return _answer(result, ((w.category, str(w.message)) for w in caught))


def apply(
    expected: Stamp, source: Any, name: str, job: Callable[..., Any], shared: tuple[Any, ...]
) -> Answer:
    """A job applied to the log of one part.

    Args:
        expected: The versions of the process that asks.
        source: Where the part comes from, pickled or as it is.
        name: The part in words, for errors.
        job: Called with the log of the part and the shared values.
        shared: Values that every call gets.
    """
    _check(expected)

    def work() -> Any:
        return job(_read(unpack(source) if isinstance(source, bytes) else source, name), *shared)

    return _alone(work)


def call(expected: Stamp, function: Callable[..., Any], task: bytes, shared: Any) -> Answer:
    """A function applied to one task of many."""
    _check(expected)
    return _alone(lambda: function(unpack(task), *shared))


def join(merge: Callable[[Any, Any], Any], *answers: Answer) -> Answer:
    """Some answers merged, in their order; a result of None has nothing to add."""
    total = None
    for answer in answers:
        if answer.result is not None:
            total = answer.result if total is None else merge(total, answer.result)
    return _answer(total, (w for answer in answers for w in answer.warned))


# --- Work on a Dask cluster: the same jobs as in one process, and the same results to the last
# bit

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
                        unpack, dumps(source), key=f"dprl-kept-{run}-{i}", pure=False
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
        run, expected = uuid.uuid4().hex, stamp()
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
                        apply, expected, part, named, job, common,
                        key=key, pure=False,
                    )
                )  # fmt: skip
            tasks = list(level)
            while len(level) > 1:
                above = []
                for i in range(0, len(level), FAN):
                    some, key = level[i : i + FAN], f"dprl-merge-{run}-{len(tasks)}"
                    names[key] = f"the merge of {len(some)} results"
                    above.append(submit(join, merge, *some, key=key, pure=False))
                    tasks.append(above[-1])
                level = above
        last, total = level[0].key, Answer(None)
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
        run, expected = uuid.uuid4().hex, stamp()
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
                        call, expected, function, dumps(task), common,
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
        return self.client.submit(unpack, _dumps()(shared), key=f"dprl-shared-{run}", pure=False)

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


# --- Which cluster: a client that is there, the address of a scheduler, or workers on this
# machine


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
