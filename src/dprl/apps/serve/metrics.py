"""Counts for Prometheus.

All counts are sums, so those of several processes add up: each process writes its own to a file in
a folder that they share, and whichever is asked adds all of them.
"""

from __future__ import annotations

import bisect
import contextlib
import importlib
import json
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Metrics"]

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
WRITTEN_EVERY = 1.0
"""Seconds between two writings of the counts for the other processes."""

COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "dprl_requests": ("Requests by path and status.", ("path", "code")),
    "dprl_answers": (
        "States answered: change, confirmation, unknown (an action where usual practice is not on "
        "record), defer, out_of_range.", ("kind",),
    ),
    "dprl_feature_states": (
        "States answered within the ranges of training, by the part of the training values that "
        "a feature's value falls in, or \"missing\"; \"unseen\" for a label that training did not "
        "have.",
        ("feature", "part", "policy"),
    ),
    "dprl_reloads": ("Policies taken over from the file while serving, or refused.", ("result",)),
    "dprl_not_stored": ("Requests refused because their answers could not be stored.", ()),
    "dprl_feedback": (
        "Feedback on cards by outcome; unknown_card: on a card or a suggestion that was not given.",
        ("outcome",),
    ),
}  # fmt: skip
BEGIN = {
    "dprl_answers": ("change", "confirmation", "unknown", "defer", "out_of_range"),
    "dprl_reloads": ("done", "refused"),
    "dprl_feedback": ("accepted", "overridden", "unknown_card"),
}
"""Counts that are given as 0 from the start: else the first one would show as no increase."""
STRANGERS = {
    "cut": "Connections without a token cut off to make room.",
    "late": "Connections closed because a request's head did not come in time.",
    "garbled": "Connections closed because what came was not HTTP.",
}


@dataclass
class Family:
    """One metric: its name, what it is, and its samples (name, labels, value)."""

    name: str
    kind: str
    words: str
    samples: list[tuple[str, dict[str, str], float]] = field(default_factory=list)


class Metrics:
    """Counts of requests and answers since the start.

    Args:
        paths: The paths that are counted by name; all others are counted as "other".
        shared: A folder that the processes of one server share; None where there is one process.

    Attributes:
        ready: Whether answers are given.
        policy: Digest of the policy that is served.
        training: Feature → part → the share of its values in training.
        strangers: Counts of connections without a token, where they are counted.
        lost: Gives the number of lines of the log that were lost.
    """

    def __init__(self, paths: Sequence[str], policy: str, shared: str | None = None) -> None:
        self.paths, self.policy, self.ready = frozenset(paths), policy, False
        self.training: Mapping[str, Mapping[str, float]] = {}
        self.strangers: Any = None
        self.lost: Any = lambda: 0
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.below: Counter[tuple[str, int]] = Counter()
        self.seconds: dict[str, float] = {}
        self.shared = None if shared is None else Path(shared)
        self._own = f"{os.getpid()}-{time.monotonic_ns()}.json"
        self._due = 0.0

    def add(self, name: str, *labels: str, by: int = 1) -> None:
        """Count something."""
        self.counts[(name, *labels)] += by

    def asked(self, path: str, code: int, seconds: float) -> None:
        """Count a request."""
        path = path if path in self.paths else "other"
        self.add("dprl_requests", path, str(code))
        self.seconds[path] = self.seconds.get(path, 0.0) + seconds
        self.below[path, bisect.bisect_left(BUCKETS, seconds)] += 1
        self.share()

    def answered(self, answers: Sequence[Mapping[str, Any]]) -> None:
        """Count answers by their kind; those that defer outside of training are "out_of_range"."""
        for answer in answers:
            outside = not answer["in_range"] and answer["kind"] == "defer"
            self.add("dprl_answers", "out_of_range" if outside else answer["kind"])

    # -- several processes -------------------------------------------------------------------------

    def share(self, at_once: bool = False) -> None:
        """Write the counts for the other processes, once a second at most unless `at_once`."""
        if self.shared is None or (time.monotonic() < self._due and not at_once):
            return
        self._due = time.monotonic() + WRITTEN_EVERY
        facts = {
            "counts": [[*key, n] for key, n in self.counts.items()],
            "below": [[*key, n] for key, n in self.below.items()],
            "seconds": self.seconds,
            "strangers": self._of_strangers(),
            "lost": self.lost(),
        }
        with contextlib.suppress(OSError):
            handle, part = tempfile.mkstemp(dir=self.shared, suffix=".part")
            with os.fdopen(handle, "w") as file:
                json.dump(facts, file)
            Path(part).replace(self.shared / self._own)

    def _of_strangers(self) -> dict[str, int]:
        return {name: getattr(self.strangers, name, 0) for name in STRANGERS}

    def _of_others(self) -> Iterator[dict[str, Any]]:
        for path in [] if self.shared is None else sorted(self.shared.glob("*.json")):
            if path.name != self._own:
                with contextlib.suppress(OSError, ValueError):
                    yield json.loads(path.read_text())

    # -- in words ----------------------------------------------------------------------------------

    def families(self) -> list[Family]:
        """Every metric, with the counts of all processes added up."""
        counts, below, seconds = self.counts.copy(), self.below.copy(), dict(self.seconds)
        met, lost = Counter(self._of_strangers()), self.lost()
        for other in self._of_others():
            for *key, n in other["counts"]:
                counts[tuple(key)] += n
            for path, place, n in other["below"]:
                below[path, place] += n
            for path, total in other["seconds"].items():
                seconds[path] = seconds.get(path, 0.0) + total
            met.update(other["strangers"])
            lost += other["lost"]
        for name, words_of_label in BEGIN.items():
            for word in words_of_label:
                counts.setdefault((name, word), 0)
        info = {"digest": self.policy}
        result = [
            Family("dprl_ready", "gauge", "Whether answers are given.",
                   [("dprl_ready", {}, float(self.ready))]),
            Family("dprl_policy_info", "gauge", "The policy that is served.",
                   [("dprl_policy_info", info, 1.0)]),
        ]  # fmt: skip
        for name, (words, labels) in COUNTERS.items():
            rows = sorted((key[1:], n) for key, n in counts.items() if key[0] == name)
            rows = rows or ([((), 0)] if not labels else [])
            samples = [
                (f"{name}_total", dict(zip(labels, key, strict=True)), float(n)) for key, n in rows
            ]
            result.append(Family(name, "counter", words, samples))
        share = "dprl_feature_training_share"
        result.append(
            Family(share, "gauge", "Share of each part of a feature's values in training.",
                   [(share, {"feature": name, "part": part, "policy": self.policy[:12]}, value)
                    for name, shares in self.training.items()
                    for part, value in shares.items()])
        )  # fmt: skip
        result.append(_histogram(below, seconds))
        for name, words in STRANGERS.items():
            full = f"dprl_connections_{name}"
            result.append(Family(full, "counter", words, [(f"{full}_total", {}, float(met[name]))]))
        result.append(
            Family("dprl_log_lost", "counter", "Lines of the log that could not be written.",
                   [("dprl_log_lost_total", {}, float(lost))])
        )  # fmt: skip
        return result

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics as text, and its media type; by prometheus-client where it is installed."""
        try:
            return _by_client(self.families(), accept)
        except ImportError:
            return _by_hand(self.families()), "text/plain; version=0.0.4; charset=utf-8"


def _histogram(below: Counter[tuple[str, int]], seconds: Mapping[str, float]) -> Family:
    name = "dprl_request_seconds"
    words = "Time from a request's head to its answer's last byte."
    samples: list[tuple[str, dict[str, str], float]] = []
    for path in sorted(seconds):
        total = 0
        for place, bound in enumerate((*BUCKETS, math.inf)):
            total += below[path, place]
            end = "+Inf" if math.isinf(bound) else f"{bound:g}"
            samples.append((f"{name}_bucket", {"path": path, "le": end}, float(total)))
        samples.append((f"{name}_sum", {"path": path}, seconds[path]))
        samples.append((f"{name}_count", {"path": path}, float(total)))
    return Family(name, "histogram", words, samples)


def _by_client(families: list[Family], accept: str) -> tuple[bytes, str]:
    client: Any = importlib.import_module("prometheus_client")
    core: Any = importlib.import_module("prometheus_client.metrics_core")
    exposition: Any = importlib.import_module("prometheus_client.exposition")

    class All:
        def collect(self) -> Iterator[Any]:
            for family in families:
                metric = core.Metric(family.name, family.words, family.kind)
                for name, labels, value in family.samples:
                    metric.add_sample(name, labels, value)
                yield metric

    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(All())
    encode, media = exposition.choose_encoder(accept)
    return encode(registry), media


def _by_hand(families: list[Family]) -> bytes:
    """The text format of Prometheus, version 0.0.4."""
    lines = []
    for family in families:
        name = family.name + ("_total" if family.kind == "counter" else "")
        lines += [f"# HELP {name} {_escaped(family.words)}", f"# TYPE {name} {family.kind}"]
        for sample, labels, value in family.samples:
            inside = ",".join(
                f'{key}="{_escaped(word)}"'.replace("\n", "\\n") for key, word in labels.items()
            )
            lines.append(f"{sample}{{{inside}}} {value}" if inside else f"{sample} {value}")
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
