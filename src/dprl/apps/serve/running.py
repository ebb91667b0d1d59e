"""The service run: in this process, or in several that share one socket.

With several processes this one answers nothing. It starts the others, starts one anew that ended
by itself, passes SIGHUP on to them, and ends them when it is told to end.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dprl.apps.serve.kept import Kept
from dprl.apps.serve.metrics import Metrics
from dprl.errors import DprlError, PolicyError
from dprl.policies._load import deferring
from dprl.policies._protocol import DeferringPolicy

__all__ = ["Settings", "run_service"]

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
        from dprl.apps.serve.hooks import Hooks
        from dprl.apps.serve.records import Audit, Journal, Records
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
    from dprl.apps._connections import Strangers
    from dprl.apps._web import run

    strangers = app.state.metrics.strangers = Strangers()
    run(app, sock, strangers)


def _worker(settings: Settings, sock: socket.socket) -> None:
    """One of several processes."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the application listens to it
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
        process.start()
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
