"""What people use: the command line, the report, the review page and the service.

Policies, logs and evaluations come in; text, pages, reviewers' verdicts and HTTP answers go out. No
package below imports this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl.apps.reports._report import report as report

__getattr__, __dir__, __all__ = attach(__name__)
