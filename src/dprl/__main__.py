"""`dprl` and `python -m dprl`: the command line."""

import atexit
import os
import signal
import sys
from contextlib import suppress
from threading import Timer
from types import FrameType

STOPPED = 130
"""The exit code of a program that Ctrl-C ended."""
RETRY = 0.05
"""Seconds after which a Ctrl-C that came during an import is sent again."""


def main() -> None:
    """Run the command line; Ctrl-C ends it in words, also while it is still being imported."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _stop)
        from dprl.apps.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("stopped.\n")
    except SystemExit as end:
        if end.code != STOPPED:
            raise
    _leave()


def _leave() -> None:
    """End a process that was stopped without taking the interpreter down.

    What was interrupted inside a compiled module is never given back, and DuckDB prints pages about
    it while the interpreter ends; "stopped." is to be the last word.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # its reader has gone, or it was closed
            stream.flush()
    os._exit(STOPPED)


def _stop(number: int, frame: FrameType | None) -> None:
    """Stop, but let an import end first: some compiled modules abort the process otherwise."""
    if _importing(frame):
        again = Timer(RETRY, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()
    else:
        signal.default_int_handler(number, frame)


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported at this place of the program."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    main()
