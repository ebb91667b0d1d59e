"""A Dask cluster of real processes on this machine, which tests can kill; and jobs that kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from waiting import until

ENV = {
    **os.environ,
    "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
    "PYTHONPATH": os.pathsep.join([p for p in sys.path if p]),
}


@dataclass
class Processes:
    """A scheduler and its workers, each a process of its own.

    Attributes:
        address: The address of the scheduler.
        scheduler: Its process.
        workers: The processes of the workers (of their nannies, where they have one).
    """

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add_worker(self, *more: str) -> subprocess.Popen[bytes]:
        """Start one more worker with one thread."""
        command = [
            sys.executable, "-m", "distributed.cli.dask_worker", self.address, "--nthreads", "1",
            "--host", "127.0.0.1", "--no-dashboard", *(more or ("--no-nanny",)),
        ]  # fmt: skip
        self.workers.append(subprocess.Popen(command, env=ENV, stderr=subprocess.DEVNULL))
        return self.workers[-1]

    def end(self) -> None:
        """End every process."""
        for process in [*self.workers, self.scheduler]:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in [*self.workers, self.scheduler]:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def processes(folder: Path, workers: int = 1, *more: str) -> Iterator[Processes]:
    """A cluster with so many workers, for as long as the block lasts."""
    file = folder / "scheduler.json"
    scheduler = subprocess.Popen(
        [
            sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1",
            "--port", "0", "--no-dashboard", "--scheduler-file", str(file),
        ],
        env=ENV,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    here = Processes("", scheduler)
    try:

        def address():
            with contextlib.suppress(OSError, ValueError):
                return json.loads(file.read_text())["address"]

        here.address = until(address)
        for _ in range(workers):
            here.add_worker(*more)
        yield here
    finally:
        here.end()


def kill_me() -> None:
    """What the system does to a process that must end at once."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Dies:
    """A function whose process is killed the first `times` times it is called.

    Attributes:
        function: What it does otherwise.
        folder: A folder in which every death is noted.
        times: Number of deaths.
        name: Name of the notes.
    """

    function: Any
    folder: str
    times: int = 1
    name: str = "died"

    def __call__(self, *args: Any) -> Any:
        for i in range(self.times):
            with contextlib.suppress(FileExistsError):
                Path(self.folder, f"{self.name}-{i}").touch(exist_ok=False)
                kill_me()
        return self.function(*args)
