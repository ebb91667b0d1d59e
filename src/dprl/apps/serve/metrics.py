"""Metrics in Prometheus' text format."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Counting", "Metrics"]

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class Metrics:
    """Counts of requests and answers since the start.

    Args:
        paths: The paths that are counted by name; all others are counted as "other".
        policy: The policy's digest.
    """

    def __init__(self, paths: tuple[str, ...], policy: str) -> None:
        self.paths, self.policy, self.ready = frozenset(paths), policy, False
        self.requests: Counter[tuple[str, int]] = Counter()
        self.answers: Counter[str] = Counter()
        self.below: Counter[tuple[str, float]] = Counter()
        self.seconds: Counter[str] = Counter()

    def asked(self, path: str, code: int, seconds: float) -> None:
        """Count a request."""
        path = path if path in self.paths else "other"
        self.requests[path, code] += 1
        self.seconds[path] += seconds  # type: ignore[assignment]
        for bound in BUCKETS:
            if seconds <= bound:
                self.below[path, bound] += 1

    def answered(self, answers: list[dict[str, Any]]) -> None:
        """Count answers by their kind."""
        for answer in answers:
            self.answers[answer["kind"] if answer["in_range"] else "out_of_range"] += 1

    def text(self) -> str:
        """All counts, in Prometheus' text format."""
        lines = [
            "# HELP dprl_ready Whether answers are given.",
            "# TYPE dprl_ready gauge",
            f"dprl_ready {int(self.ready)}",
            "# HELP dprl_policy_info The policy that is served.",
            "# TYPE dprl_policy_info gauge",
            f'dprl_policy_info{{digest="{self.policy}"}} 1',
            "# HELP dprl_requests_total Requests by path and status.",
            "# TYPE dprl_requests_total counter",
            *(
                f'dprl_requests_total{{path="{path}",code="{code}"}} {n}'
                for (path, code), n in sorted(self.requests.items())
            ),
            "# HELP dprl_answers_total States answered: change, confirmation, defer, out_of_range.",
            "# TYPE dprl_answers_total counter",
            *(f'dprl_answers_total{{kind="{k}"}} {n}' for k, n in sorted(self.answers.items())),
            "# HELP dprl_request_seconds Time from a request's head to its answer's last byte.",
            "# TYPE dprl_request_seconds histogram",
        ]
        for path in sorted({p for p, _ in self.requests}):
            count = sum(n for (p, _), n in self.requests.items() if p == path)
            name = f'dprl_request_seconds_bucket{{path="{path}",le='
            lines += [f'{name}"{bound:g}"}} {self.below[path, bound]}' for bound in BUCKETS]
            lines += [
                f'{name}"+Inf"}} {count}',
                f'dprl_request_seconds_sum{{path="{path}"}} {self.seconds[path]:.6f}',
                f'dprl_request_seconds_count{{path="{path}"}} {count}',
            ]
        return "\n".join(lines) + "\n"


class Counting:
    """Passes requests on and counts every one, refused ones too."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count it with its status."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, code = time.perf_counter(), 500

        async def send_noting_status(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_noting_status)
        finally:
            self.metrics.asked(scope["path"], code, time.perf_counter() - begin)
