"""Waiting for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(happened: Callable[[], T], seconds: float = 500.0) -> T:
    """Ask again and again until the answer is true, and give it back.

    It ends as soon as it can; the limit is only there to name the test, for a machine may be busy.
    """
    end = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found
