"""What people use: the command line, the report, the review page and the service.

Policies, logs and evaluations come in; words, pages, verdicts and HTTP answers go out. Nothing
below knows of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl.apps._report import report as report

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "_report": ("report",),
    },
)
