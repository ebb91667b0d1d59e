"""The life of the service: it starts, takes over new policies, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dprl.apps.serve.answers import Answers
from dprl.apps.serve.audit import Records
from dprl.apps.serve.metrics import Metrics
from dprl.apps.serve.served import SIGNATURE, Kept, Served, require_approved, successor
from dprl.apps.serve.tokens import Tokens
from dprl.errors import DprlError, PolicyError
from dprl.policies.loading import deferring
from dprl.policies.protocol import DeferringPolicy

# --- The service run: in this process, or in several that share one socket
#
# With several processes this one answers nothing. It starts the others, starts one anew that ended
# by itself, passes SIGHUP on to them, and ends them when it is told to end.

SHORT_LIFE, MOST_SHORT = 10.0, 5
"""Seconds of a short life of a process, and how many of them in a row end the server."""
PATIENCE = 15.0
"""Seconds that the processes have to finish what they do."""


@dataclass(frozen=True)
class Settings:
    """How a policy is served; every process makes its application from this.

    Attributes:
        policy: The policy file.
        token: The token; None where none is asked for.
        host: Address that the server listens on.
        names: Further host names of the server.
        limit: Largest size of a body, in bytes.
        cases: Whether explanations name training episodes.
        reload: Seconds between two looks at the policy file; None where only SIGHUP counts.
        log: File of the log; "-" for standard output, "" for none.
        log_states: Whether states are written down as they are.
        key: Key of the hashes of states; may be empty.
        audit: File of the audit; "" for none.
        cds: File that describes the service of CDS Hooks; "" for none.
        shared: Folder in which several processes add up their counts; None for one process.
        started: When the service started, in seconds since 1970.
        tokens: File of tokens with names; "" for none. Then `token` is None.
        approved: Audit trail of a review that the policy must come from; "" for none.
        begun: How many times SIGHUP was followed when this process began, of several.
    """

    policy: str
    token: str | None
    host: str
    names: tuple[str, ...] = ()
    limit: int = 1 << 20
    cases: bool = False
    reload: float | None = None
    log: str = ""
    log_states: bool = False
    key: bytes = b""
    audit: str = ""
    cds: str = ""
    shared: str | None = None
    started: float = field(default_factory=time.time)
    tokens: str = ""
    approved: str = ""
    begun: int = 0

    @property
    def kept(self) -> Kept | None:
        """Where processes that start later find the policy that was taken over last."""
        return None if self.shared is None else Kept(Path(self.shared), self.begun)

    def app(self, fitted: DeferringPolicy) -> Any:
        """The application, with its files opened."""
        from dprl.apps.serve.app import serve_app
        from dprl.apps.serve.audit import Audit, Journal, Records
        from dprl.apps.serve.hooks import Hooks
        from dprl.apps.serve.tokens import Tokens

        tokens = Tokens.read(self.tokens, self.shared) if self.tokens else self.token
        new = [f for f in (self.audit, self.log) if f not in ("", "-") and not os.path.exists(f)]
        try:
            app = serve_app(
                fitted, token=tokens, host=self.host, names=self.names, limit=self.limit,
                cases=self.cases, path=self.policy, reload=self.reload, shared=self.shared,
                kept=self.kept, hooks=Hooks.read(self.cds) if self.cds else None,
                approved=self.approved,
                records=Records(
                    Journal(self.log) if self.log else None,
                    Audit(self.audit) if self.audit else None,
                    self.log_states, self.key,
                ),
            )  # fmt: skip
        except DprlError:
            for file in new:  # what is refused leaves nothing behind
                if os.path.exists(file) and os.path.getsize(file) == 0:
                    os.unlink(file)
            raise
        app.state.metrics.started = self.started
        return app


def run_service(app: Any, settings: Settings, sock: socket.socket, workers: int) -> int:
    """Serve until told to stop; the exit code. `app` answers where there is one process."""
    if workers == 1:
        _run(app, sock)
        return 0
    with tempfile.TemporaryDirectory(prefix="dprl-serve-") as shared:
        kept = Kept(Path(shared))
        copy = kept.copy(settings.policy)
        if deferring(copy).digest() != app.state.life.served.digest:
            raise PolicyError(
                "the policy file has changed since it was read.", settings.policy, "Start again."
            )
        kept.take(copy)
        kept.count()
        if settings.tokens:
            app.state.life.tokens.keep(shared)
        return _Workers(replace(settings, shared=shared), sock, workers).run()


def _run(app: Any, sock: socket.socket) -> None:
    from dprl.apps.connections import Strangers
    from dprl.apps.web import run

    strangers = app.state.metrics.strangers = Strangers()
    run(app, sock, strangers)


def _worker(settings: Settings, sock: socket.socket) -> None:
    """One of several processes."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the application listens to it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    path: str | Path = settings.policy
    kept = settings.kept
    if kept is not None:  # in this order: who takes a policy over keeps it, then counts
        settings = replace(settings, begun=kept.done)
        path = kept.current()
    _run(settings.app(deferring(path)), sock)


def _end_with_parent() -> None:
    """End when the process that started this one has gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


class _Workers:
    def __init__(self, settings: Settings, sock: socket.socket, number: int) -> None:
        self.settings, self.sock, self.number = settings, sock, number
        self.spawn = multiprocessing.get_context("spawn")
        self.processes: dict[Any, float] = {}
        self.ending = False
        self.metrics = Metrics((), "", settings.shared)

    def run(self) -> int:
        """Keep so many processes running until told to end; 0, or 1 where they do not stay."""
        for name, answer in (
            (signal.SIGTERM, self._end), (signal.SIGINT, self._end), (signal.SIGHUP, self._pass),
        ):  # fmt: skip
            signal.signal(name, answer)
        short = 0
        while not self.ending:
            while len(self.processes) < self.number:
                self._start()
            time.sleep(0.1)
            for process in [p for p in self.processes if not p.is_alive()]:
                life = time.monotonic() - self.processes.pop(process)
                short = short + 1 if life < SHORT_LIFE else 0
                if not self.ending:
                    self.metrics.add("dprl_worker_restarts")
                    self.metrics.share()
                    sys.stderr.write(
                        f"worker {process.pid} ended with {process.exitcode}; starting another\n"
                    )
                    sys.stderr.flush()
            if short >= MOST_SHORT:
                sys.stderr.write("workers end as soon as they start; giving up\n")
                self._stop()
                return 1
        self._stop()
        return 0

    def _start(self) -> None:
        process = self.spawn.Process(target=_worker, args=(self.settings, self.sock), daemon=True)
        # A process that is starting would end by SIGHUP; it learns later that there was one.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        process.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self.processes[process] = time.monotonic()

    def _end(self, *_: Any) -> None:
        self.ending = True

    def _pass(self, *_: Any) -> None:
        if self.settings.kept is not None:
            self.settings.kept.ask()
        for process in self.processes:
            if process.is_alive():
                os.kill(process.pid, signal.SIGHUP)

    def _stop(self) -> None:
        for process in self.processes:
            process.terminate()
        end = time.monotonic() + PATIENCE
        for process in self.processes:
            process.join(max(0.1, end - time.monotonic()))
            if process.is_alive():
                process.kill()


# --- The life of the service: it starts, takes over new policies, and ends

SHARED_EVERY = 0.5
"""Seconds between two looks for counts that no request has shown to the other processes."""


class Lifecycle:
    """The policy that is served now, and what happens to it.

    Args:
        served: The policy at the start.
        metrics: Counts; `ready` is set here.
        records: What is written down.
        path: The file that a new policy is taken from; None where there is none.
        every: Seconds between two looks at the file; None where only SIGHUP counts.
        tokens: The tokens that the service accepts; None where it asks for none.
        kept: Where the policy that was taken over last is kept for processes that start later; None
            where there is one process.
        check: Refuses a new policy that the service of CDS Hooks cannot use; None without one.
        approved: The audit trail of a review that a new policy must come from; "" for none.

    Attributes:
        at_end: What is done when the service ends.
    """

    def __init__(
        self,
        served: Served,
        metrics: Metrics,
        records: Records,
        *,
        path: str | None = None,
        every: float | None = None,
        tokens: Tokens | None = None,
        kept: Kept | None = None,
        check: Callable[[Answers], None] | None = None,
        approved: str = "",
    ) -> None:
        self.served, self.metrics, self.records = served, metrics, records
        self.path, self.every, self.tokens, self.check = path, every, tokens, check
        self.kept, self.approved = kept, approved
        self._show(served)
        self.at_end: Callable[[], None] = lambda: None
        self._turn = asyncio.Lock()
        self._ahead = False  # of what is kept; then who starts later must look at the file
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        """Compile and build; /readyz says meanwhile that it is starting."""
        self._start(self._warm())
        if self.path is not None:
            with contextlib.suppress(ValueError, RuntimeError, AttributeError, NotImplementedError):
                asyncio.get_running_loop().add_signal_handler(
                    signal.SIGHUP, lambda: self._start(self._hang_up())
                )
            if self.every is not None:
                self._start(self._watch())
        if self.metrics.shared is not None:
            self._start(self._share())
        yield
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.metrics.share()
        self.records.close()
        self.at_end()

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _warm(self) -> None:
        try:
            await asyncio.to_thread(self.served.answers.warm)
            await self.records.put([_about(self.served)])
            await self._record_callers()
        except Exception:
            traceback.print_exc()
            os.kill(os.getpid(), signal.SIGTERM)  # better to stop than never to be ready
            return
        gc.freeze()  # these objects stay for good: garbage collection can skip them
        self.metrics.ready = True
        if self.kept is not None and self.kept.asked > self.kept.begun:
            await self._hang_up()  # a signal came that this process was too late to hear

    async def _hang_up(self) -> None:
        """What SIGHUP asks for: the tokens and the policy that the files hold now."""
        number = 0 if self.kept is None else self.kept.asked
        await self.reload_tokens()
        await self.reload()
        if self.kept is not None and not self._ahead:
            self.kept.follow(number)

    async def reload_tokens(self) -> str:
        """Take over the tokens that the file holds now; '' or why that is refused."""
        if self.tokens is None or self.tokens.path is None:
            return ""
        before = dict(self.tokens.by_name)
        try:
            await asyncio.to_thread(self.tokens.reload)
        except DprlError as error:
            self.metrics.add("dprl_tokens_refused")
            self._say("the tokens in the file are not taken over", "tokens refused", str(error))
            return str(error)
        if before != self.tokens.by_name:
            with contextlib.suppress(OSError):  # a token that was withdrawn must not go on
                await self._record_callers()
        return ""

    async def _record_callers(self) -> None:
        if self.tokens is not None and self.tokens.names:
            await self.records.put([{"event": "callers", "callers": self.tokens.names}])

    def _say(self, what: str, event: str, why: str) -> None:
        """Write a refusal to the log and to standard error."""
        if self.records.journal is not None:
            self.records.journal.put({"event": event, "policy": self.served.digest, "why": why})
        sys.stderr.write(f"{what}: {why}\n")
        sys.stderr.flush()

    async def reload(self) -> str:
        """Take over the policy that the file holds now; '' or why that is refused."""
        async with self._turn:
            copy = None
            try:
                if self.kept is not None:
                    copy = await asyncio.to_thread(self._copied)
                new = await asyncio.to_thread(
                    successor, copy or self.path or "", self.served,
                    token=self.tokens is not None,
                )  # fmt: skip
                if new is None:
                    self._drop(copy)
                    return ""
                if self.check is not None:
                    self.check(new.answers)
                if self.approved:
                    require_approved(new.answers.policy, self.approved)
                await self.records.put([{**_about(new), "before": self.served.digest}])
            except Exception as error:
                self._drop(copy)
                why = str(error) if copy is None else str(error).replace(str(copy), str(self.path))
                if not isinstance(error, DprlError | OSError):
                    traceback.print_exc()
                self.metrics.add("dprl_reloads", "refused")
                self._say("the policy in the file is not taken over", "policy refused", why)
                return why
            if self.kept is not None:  # first, so that nobody starts with what is over
                self._ahead = True
                with contextlib.suppress(OSError):
                    if copy is not None:
                        await asyncio.to_thread(self.kept.take, copy)
                        self._ahead = False
            self.served = new
            self._show(new)
            self.metrics.add("dprl_reloads", "done")
            return ""

    def _show(self, served: Served) -> None:
        """Let the metrics say which policy is served."""
        self.metrics.policy, self.metrics.training = served.digest, served.shares
        self.metrics.reviewed = served.review is not None

    def _copied(self) -> Path | None:
        """A copy of the file; None where there is nothing to copy, which reading it will say."""
        try:
            return None if self.kept is None else self.kept.copy(self.path or "")
        except OSError:
            return None

    def _drop(self, copy: Path | None) -> None:
        if self.kept is not None and copy is not None:
            self.kept.drop(copy)

    async def _share(self) -> None:
        """Let the other processes see what no request has shown them, such as cut connections."""
        while True:
            await asyncio.sleep(SHARED_EVERY)
            self.metrics.share()

    async def _watch(self) -> None:
        seen = None  # look once in any case: the file may have changed since it was read
        while True:
            await asyncio.sleep(self.every or 1.0)
            stamp = await asyncio.to_thread(_stamp, self.path)
            if stamp not in (seen, None):  # a file that is away for a moment is being replaced
                seen = stamp
                await self.reload()


def _about(served: Served) -> dict[str, Any]:
    """The entry about a policy that begins to answer."""
    return {
        "event": "policy", "policy": served.digest, "reviewed": served.review is not None,
    }  # fmt: skip


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
