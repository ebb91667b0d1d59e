"""Libraries of linear algebra on one thread.

Their sums depend on the number of threads in the last bits, and threads that wait for each other in
small products cost many times what they save.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["single_thread"]


@functools.cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


@contextmanager
def single_thread(kind: str | None = "blas") -> Iterator[None]:
    """Libraries on one thread, inside the block.

    Args:
        kind: Which libraries: "blas", "openmp", or None for both.
    """
    with _controller().limit(limits=1, user_api=kind):
        yield
