"""Counts for Prometheus.

All counts are sums, so those of several processes add up: each process keeps its own in a file in
a folder that they share, and whichever is asked adds all of them. What a process counted is in its
file before the request is over, and stays there when the process is killed.
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

from dprl._core.optional import needed

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)

COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "dprl_requests": ("Requests by path and status.", ("path", "code")),
    "dprl_answers": (
        "States answered: change, confirmation, avoid (what not to do), unknown (an action where "
        "usual practice is not on record), defer, out_of_range.", ("kind",),
    ),
    "dprl_feature_states": (
        "States answered within the ranges of training, by the part of the training values that "
        "a feature's value falls in, or \"missing\"; \"unseen\" for a label that training did not "
        "have.",
        ("feature", "part", "policy"),
    ),
    "dprl_reloads": ("Policies taken over from the file while serving, or refused.", ("result",)),
    "dprl_tokens_refused": ("Files of tokens not taken over; the tokens before hold on.", ()),
    "dprl_not_stored": ("Requests refused because their answers could not be stored.", ()),
    "dprl_feedback": (
        "Feedback on cards by outcome; unknown_card: on a card or a suggestion that was not given.",
        ("outcome",),
    ),
    "dprl_worker_restarts": ("Processes that ended by themselves and were started anew.", ()),
}  # fmt: skip
BEGIN = {
    "dprl_answers": ("change", "confirmation", "avoid", "unknown", "defer", "out_of_range"),
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
        ready: Whether the start is over.
        answering: Whether /readyz says 200, as far as it depends on the audit.
        policy: Digest of the policy that is served.
        reviewed: Whether people reviewed that policy.
        training: Feature → part → the share of its values in training.
        strangers: Counts of connections without a token, where they are counted.
        lost: Gives the number of lines of the log that were lost.
        room: Gives the bytes that the audit can still grow by; None where there is no audit.
        started: When the service started, in seconds since 1970.
    """

    def __init__(self, paths: Sequence[str], policy: str, shared: str | None = None) -> None:
        self.paths, self.policy, self.ready = frozenset(paths), policy, False
        self.reviewed, self.answering = False, True
        self.training: Mapping[str, Mapping[str, float]] = {}
        self.strangers: Any = None
        self.lost: Any = lambda: 0
        self.room: Any = None
        self.started = time.time()
        self.mine = Sums()
        self.shared = None if shared is None else SharedCounts(shared)
        self._unwritten = Sums()

    def add(self, name: str, *labels: str, by: int = 1) -> None:
        """Count something; the other processes see it after `share`."""
        self.mine.counts[(name, *labels)] += by
        if self.shared is not None:
            self._unwritten.counts[(name, *labels)] += by

    def asked(self, path: str, code: int, seconds: float) -> None:
        """Count a request."""
        path = path if path in self.paths else "other"
        self.add("dprl_requests", path, str(code))
        place = bisect.bisect_left(BUCKETS, seconds)
        for sums in (self.mine, self._unwritten):
            sums.seconds[path] += seconds  # type: ignore[assignment]
            sums.below[path, place] += 1
        self.share()

    def answered(self, answers: Sequence[Mapping[str, Any]]) -> None:
        """Count answers by their kind; those that defer outside of training are "out_of_range"."""
        kinds = Counter((answer["kind"], answer["in_range"]) for answer in answers)
        for (kind, inside), n in kinds.items():
            outside = not inside and kind == "defer"
            self.add("dprl_answers", "out_of_range" if outside else kind, by=n)

    # -- several processes -------------------------------------------------------------------------

    def share(self) -> None:
        """Let the other processes see what was counted since the last time."""
        if self.shared is None:
            self._unwritten = Sums()
            return
        elsewhere = self._counted_elsewhere()
        self._unwritten.others = elsewhere - self.mine.others
        self.mine.others = elsewhere
        if self._unwritten:
            self.shared.write(self._unwritten, self.mine)
            self._unwritten = Sums()

    def _counted_elsewhere(self) -> Counter[str]:
        """Connections that were closed, and lines of the log that were lost."""
        met = {name: getattr(self.strangers, name, 0) for name in STRANGERS}
        return Counter({**met, "lost": self.lost()})

    # -- in words ----------------------------------------------------------------------------------

    def families(self) -> list[Family]:
        """Every metric, with the counts of all processes added up."""
        sums = self.mine.copy()
        sums.others = self._counted_elsewhere()
        for line in () if self.shared is None else self.shared.of_others():
            sums.add(line)
        counts = sums.counts
        for name, words_of_label in BEGIN.items():
            for word in words_of_label:
                counts.setdefault((name, word), 0)
        info = {"digest": self.policy}
        result = [
            Family("dprl_ready", "gauge", "Whether /readyz says 200.",
                   [("dprl_ready", {}, float(self.ready and self.answering))]),
            Family("dprl_start_time_seconds", "gauge", "When the service started, since 1970.",
                   [("dprl_start_time_seconds", {}, self.started)]),
            Family("dprl_policy_info", "gauge", "The policy that is served.",
                   [("dprl_policy_info", info, 1.0)]),
            Family("dprl_policy_reviewed", "gauge", "Whether people reviewed the policy.",
                   [("dprl_policy_reviewed", {}, float(self.reviewed))]),
        ]  # fmt: skip
        for name, (words, labels) in COUNTERS.items():
            rows = sorted((key[1:], n) for key, n in counts.items() if key[0] == name)
            rows = rows or ([((), 0)] if not labels else [])
            samples = [
                (f"{name}_total", dict(zip(labels, key, strict=True)), float(n)) for key, n in rows
            ]
            result.append(Family(name, "counter", words, samples))
        if self.room is not None:
            words = "Bytes that the audit can still grow by."
            name = "dprl_audit_room_bytes"
            result.append(Family(name, "gauge", words, [(name, {}, float(self.room()))]))
        share = "dprl_feature_training_share"
        result.append(
            Family(share, "gauge", "Share of each part of a feature's values in training.",
                   [(share, {"feature": name, "part": part, "policy": self.policy[:12]}, value)
                    for name, shares in self.training.items()
                    for part, value in shares.items()])
        )  # fmt: skip
        result.append(_histogram(sums.below, sums.seconds))
        for name, words in STRANGERS.items():
            full = f"dprl_connections_{name}"
            result.append(
                Family(full, "counter", words, [(f"{full}_total", {}, float(sums.others[name]))])
            )
        result.append(
            Family("dprl_log_lost", "counter", "Lines of the log that could not be written.",
                   [("dprl_log_lost_total", {}, float(sums.others["lost"]))])
        )  # fmt: skip
        return result

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics as text, and its media type."""
        families = self.families()
        client: Any = needed("prometheus_client", "a server", "dprl[serve]")
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


# -- counts of several processes, each kept in a file of its own in a folder that they share -------
#
# A process adds a line to its file whenever it has counted something, so what it counted stays
# when it is killed, and whoever adds up the files has all counts up to now. All counts are sums:
# a file holds the sum of its lines. A file that has grown long is replaced by one line.

LONG = 1 << 18
"""Bytes of a file that is replaced by one line."""
ENDING = ".counts"


@dataclass
class Sums:
    """Counts that can be added.

    Attributes:
        counts: (name, labels …) → count.
        below: (path, place among the bounds) → number of requests.
        seconds: Path → seconds of its requests together.
        others: Name → count of what is counted elsewhere: connections, lost lines of the log.
    """

    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    below: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.counts or self.below or self.seconds or self.others)

    def copy(self) -> Sums:
        """The same counts, for others to add to."""
        return Sums(self.counts.copy(), self.below.copy(), self.seconds.copy(), self.others.copy())

    def to_json(self) -> str:
        """All counts on one line."""
        return json.dumps(
            {
                "counts": [[*key, n] for key, n in self.counts.items()],
                "below": [[*key, n] for key, n in self.below.items()],
                "seconds": self.seconds,
                "others": self.others,
            },
            separators=(",", ":"),
        )

    def add(self, line: str | bytes) -> None:
        """Add the counts of a line; one that was cut short is passed over."""
        with contextlib.suppress(ValueError, TypeError, KeyError):
            facts: dict[str, Any] = json.loads(line)
            for *key, n in facts["counts"]:
                self.counts[tuple(key)] += n
            for path, place, n in facts["below"]:
                self.below[path, place] += n
            self.seconds.update(facts["seconds"])
            self.others.update(facts["others"])


class SharedCounts:
    """The file of one process, and those of the others.

    Args:
        folder: The folder that the processes share.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._path: Path | None = None
        self._handle, self._size = -1, LONG

    def write(self, new: Sums, all_of_mine: Sums) -> None:
        """Add what is new to the file of this process; all that it counted is given, too."""
        if self._size >= LONG:
            self._replace(all_of_mine)
            return
        data = new.to_json().encode() + b"\n"
        try:
            written = os.write(self._handle, data)
        except OSError:
            written = 0
        # After half a line, or none, the next one begins the file anew with all counts.
        self._size = self._size + written if written == len(data) else LONG

    def of_others(self) -> Iterator[bytes]:
        """The lines of the other processes, those that have ended among them."""
        for path in sorted(self.folder.glob(f"*{ENDING}")):
            if path != self._path:
                with contextlib.suppress(OSError):
                    yield from path.read_bytes().splitlines()

    def _replace(self, sums: Sums) -> None:
        """Begin the file anew with one line; a reader sees the old file or the new one."""
        data = sums.to_json().encode() + b"\n"
        with contextlib.suppress(OSError):
            handle, part = tempfile.mkstemp(dir=self.folder, prefix=f"{os.getpid()}-")
            if os.write(handle, data) != len(data):  # no room: the old file stays
                os.close(handle)
                os.unlink(part)
                return
            path = self._path or Path(f"{part}{ENDING}")
            Path(part).replace(path)
            if self._handle >= 0:
                os.close(self._handle)
            # A line of all counts alone may be long: then the file may grow by as much again.
            self._path, self._handle, self._size = path, handle, min(len(data), LONG // 2)
