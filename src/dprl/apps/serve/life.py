"""The life of the service: it starts, takes over new policies, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from dprl.apps.serve.answers import Answers
from dprl.apps.serve.kept import SIGNATURE, Kept
from dprl.apps.serve.metrics import Metrics
from dprl.apps.serve.records import Records
from dprl.apps.serve.served import Served, successor
from dprl.errors import DprlError

__all__ = ["Life"]


class Life:
    """The policy that is served now, and what happens to it.

    Args:
        served: The policy at the start.
        metrics: Counts; `ready` is set here.
        records: What is written down.
        path: The file that a new policy is taken from; None where there is none.
        every: Seconds between two looks at the file; None where only SIGHUP counts.
        token: Whether the service asks for a token.
        kept: Where the policy that was taken over last is kept for processes that start later; None
            where there is one process.
        check: Refuses a new policy that the service of CDS Hooks cannot use; None without one.
    """

    def __init__(
        self,
        served: Served,
        metrics: Metrics,
        records: Records,
        *,
        path: str | None = None,
        every: float | None = None,
        token: bool = True,
        kept: Kept | None = None,
        check: Callable[[Answers], None] | None = None,
    ) -> None:
        self.served, self.metrics, self.records = served, metrics, records
        self.path, self.every, self.token, self.check = path, every, token, check
        self.kept = kept
        self.metrics.training = served.shares
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        """Compile and build; /readyz says meanwhile that it is starting."""
        self._start(self._warm())
        if self.path is not None:
            with contextlib.suppress(ValueError, RuntimeError, AttributeError, NotImplementedError):
                asyncio.get_running_loop().add_signal_handler(
                    signal.SIGHUP, lambda: self._start(self.reload())
                )
            if self.every is not None:
                self._start(self._watch())
        yield
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.metrics.share(at_once=True)
        self.records.close()

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _warm(self) -> None:
        try:
            await asyncio.to_thread(self.served.answers.warm)
            await self.records.put([{"event": "policy", "policy": self.served.digest}])
        except Exception:
            traceback.print_exc()
            os.kill(os.getpid(), signal.SIGTERM)  # better to stop than never to be ready
            return
        gc.freeze()  # these objects stay for good: garbage collection can skip them
        self.metrics.ready = True
        if self.kept is not None:  # a process that starts later may have missed a signal
            await self.reload()

    async def reload(self) -> str:
        """Take over the policy that the file holds now; '' or why that is refused."""
        async with self._turn:
            copy = None
            try:
                if self.kept is not None:
                    copy = await asyncio.to_thread(self._copied)
                new = await asyncio.to_thread(
                    successor, copy or self.path or "", self.served, token=self.token
                )
                if new is None:
                    self._drop(copy)
                    return ""
                if self.check is not None:
                    self.check(new.answers)
                await self.records.put(
                    [{"event": "policy", "policy": new.digest, "before": self.served.digest}]
                )
            except Exception as error:
                self._drop(copy)
                why = str(error) if copy is None else str(error).replace(str(copy), str(self.path))
                if not isinstance(error, DprlError | OSError):
                    traceback.print_exc()
                self.metrics.add("dprl_reloads", "refused")
                refusal = {"event": "policy refused", "policy": self.served.digest, "why": why}
                if self.records.journal is not None:
                    self.records.journal.put(refusal)
                sys.stderr.write(f"the policy in the file is not taken over: {why}\n")
                sys.stderr.flush()
                return why
            self.served = new
            self.metrics.policy, self.metrics.training = new.digest, new.shares
            self.metrics.add("dprl_reloads", "done")
            if self.kept is not None and copy is not None:
                with contextlib.suppress(OSError):  # who starts later looks at the file, too
                    await asyncio.to_thread(self.kept.take, copy)
            return ""

    def _copied(self) -> Path | None:
        """A copy of the file; None where there is nothing to copy, which reading it will say."""
        try:
            return None if self.kept is None else self.kept.copy(self.path or "")
        except OSError:
            return None

    def _drop(self, copy: Path | None) -> None:
        if self.kept is not None and copy is not None:
            self.kept.drop(copy)

    async def _watch(self) -> None:
        seen = None  # look once in any case: the file may have changed since it was read
        while True:
            await asyncio.sleep(self.every or 1.0)
            stamp = await asyncio.to_thread(_stamp, self.path)
            if stamp not in (seen, None):  # a file that is away for a moment is being replaced
                seen = stamp
                await self.reload()


def _stamp(path: str | None) -> tuple[tuple[int, ...] | None, ...] | None:
    """What changes when a file or its signature does; None where there is no file."""
    stamps: list[tuple[int, ...] | None] = []
    for name in (path or "", f"{path}{SIGNATURE}"):
        try:
            facts = os.stat(name)
            stamps.append((facts.st_mtime_ns, facts.st_size, facts.st_ino))
        except OSError:
            stamps.append(None)
    return None if stamps[0] is None else tuple(stamps)
