"""Examples in docstrings run in an empty folder of their own; processes of a run share kernels."""

from __future__ import annotations

import gc
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Where several processes run tests, each kernel is compiled by one of them."""
    if "PYTEST_XDIST_WORKER" in os.environ and os.name == "posix":
        run = hashlib.sha256(str(config.rootpath).encode()).hexdigest()[:12]
        folder = Path(tempfile.gettempdir()) / f"dprl-kernels-{os.getuid()}-{run}"
        folder.mkdir(mode=0o700, exist_ok=True)
        _compile_in_turn(folder)


def _compile_in_turn(locks: Path) -> None:
    """Let a kernel that another process compiles be waited for, and then be read from the disk.

    A kernel that calls others holds its lock while it waits for theirs: always in the order of the
    calls, so nobody waits in a circle. numba's own lock comes first, for the threads of a process.
    """
    import fcntl

    import numba
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import Dispatcher

    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return
    plain, held = Dispatcher.compile, set()

    def compile_in_turn(self: Any, sig: Any) -> Any:
        name = f"{self.py_func.__module__}.{self.py_func.__qualname__}"
        if name in held or not name.startswith("dprl"):
            return plain(self, sig)
        with global_compiler_lock, (locks / name).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held.add(name)
            try:
                return plain(self, sig)
            finally:
                held.discard(name)
                fcntl.flock(lock, fcntl.LOCK_UN)  # a child may have the file too

    Dispatcher.compile = compile_in_turn


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is there before the first test stays: nobody need look through it for garbage again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _example_folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        folder: Path = tmp_path_factory.mktemp("example")
        request.getfixturevalue("monkeypatch").chdir(folder)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is slow beside what is marked so: examples that run studies, and most of thin tests."""
    seen: dict[str, int] = {}
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            if "dprl_studies" in item.path.parts or item.name.startswith("dprl.apps.study."):
                item.add_marker(pytest.mark.slow)
        elif thin := item.get_closest_marker("thin"):
            test = item.nodeid.partition("[")[0]
            seen[test] = seen.get(test, 0) + 1
            if seen[test] > thin.args[0]:
                item.add_marker(pytest.mark.slow)
