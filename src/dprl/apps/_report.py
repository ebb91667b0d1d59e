"""The report: a policy's changes, how sure they are and what nobody can know, in one HTML file.

The file is self-contained (no script, no request; its style is the only thing its own security
policy lets in), stays under LIMIT bytes, prints on A4, and says what it leaves out. What it says
about single changes is `dprl.apps._changes`'s, what about all of them together `dprl.evaluate`'s
and the certificate's. On a log the policy comes from there is no held-out check, and the report
says so.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dprl._core import html as pages
from dprl._core.disk import replacing
from dprl._core.table import plain
from dprl._core.version import __version__
from dprl.apps._change import Change, Check
from dprl.apps._changes import Described, describe_changes
from dprl.errors import ParameterError
from dprl.evaluation._evaluate import evaluate
from dprl.evaluation._result import ENOUGH, Evaluation
from dprl.logs.log import Log, check_log
from dprl.policies._protocol import DeferringPolicy
from dprl.policies.certificate import down

__all__ = ["Report", "report"]

LIMIT = 300_000
"""Bytes a report stays under."""

WHOLE, LISTED, PROOFS = 12, 400, 40
"""Changes told in full, changes in a line each, and rows of a certificate, at most."""

LONGEST = 160
"""Characters of a label or a situation; what is longer is cut, with a mark."""

VERDICTS = {
    "agrees": "agrees: the interval lies above 0",
    "leans with it": "leans with it: better here too, but not surely",
    "leans against it": "leans against it: not better here, but not surely worse",
    "contradicts": "contradicts it: the interval lies below 0",
    "cannot say": "cannot say: too few cases on one side",
}
"""What a check says about a change, in words."""


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        path: The file.
        bytes: Its size.
        changes: How many changes the policy makes.
        whole: How many of them are told in full.
        listed: How many more have a line each.
        confirmed: Share of the log's decisions at which it suggests what is usually done.
        not_done: Share at which it suggests something, usual or not, and something else was done.
        seen: Why the log is no held-out check, in words; '' where it is one.
        evaluation: What the log says the policy is worth; None where it was seen before.
    """

    path: Path
    bytes: int
    changes: int
    whole: int
    listed: int
    confirmed: float
    not_done: float
    seen: str
    evaluation: Evaluation | None

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        judged = self.evaluation
        return {
            **vars(self),
            "path": str(self.path),
            "evaluation": None if judged is None else judged.to_dict(),
        }

    def __str__(self) -> str:
        said = f"{self.changes:,} change{'s' * (self.changes != 1)}"
        if self.whole < self.changes:
            said += f", {self.whole:,} told in full"
        if self.confirmed:
            said += (
                f"; confirms what is usually done in {pages.percent(self.confirmed)} of decisions "
                f"(something else was done than it says in {pages.percent(self.not_done)})"
            )
        lines = [f"{said} → {self.path} ({self.bytes / 1000:.0f} kB)"]
        if self.seen:
            lines.append(f"No held-out check: {self.seen}.")
        return "\n".join(lines)


def report(
    policy: DeferringPolicy,
    log: Log,
    path: str | os.PathLike[str],
    *,
    title: str = "What this policy would change",
    cases: int = 0,
    values: bool = True,
    draws: int = 2_000,
    seed: int = 0,
    date: datetime.date | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Report:
    """Write a report on a policy as one HTML file.

    Args:
        policy: A policy of DPRL's, gated or not.
        log: The log to judge it by, best one it has not seen.
        path: Where the file goes.
        title: Its heading.
        cases: Past cases shown of either side of a change, with the labels of their episodes. By
            default none: the report names no episode. (The typical state of a change over features
            is that of one decision in the log, without its label.)
        values: Fit a model of values for the estimates that need one (DM, DR, WDR).
        draws: Of the bootstrap.
        seed: Of everything random. Same policy, log, seed and date: same bytes.
        date: What the report is dated; by default today (UTC).
        progress: Called with the stage's name and the share of it that is done.
    """
    target = Path(path)
    if not getattr(policy, "knows_practice", False):
        raise ParameterError(
            f"a report is about a policy of DPRL's; got a {type(policy).__name__}.",
            do="Other policies have no changes to tell; judge them with dprl.evaluate.",
        )
    if not target.parent.is_dir() or target.is_dir():
        raise ParameterError(
            f"the report cannot be written to {str(target)!r}.",
            do="Name a file in a folder that exists.",
        )
    if not isinstance(cases, int) or cases < 0:
        raise ParameterError(f"cases must be a whole number from 0; got {cases!r}.")
    check_log(log)
    tell = progress or (lambda stage, share: None)
    tell("describing the changes", 0.0)
    described = describe_changes(policy, log)
    judged, said = None, list(described.notes)
    if not described.seen:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            judged = evaluate(policy, log, values=values, draws=draws, seed=seed, progress=progress)
        said += [str(w.message) for w in caught]
    tell("writing", 0.0)
    day = date or datetime.datetime.now(datetime.UTC).date()
    text, whole, listed = _fitted(
        _facts(described, judged, list(dict.fromkeys(said)), title, day, seed), described, cases
    )
    with replacing(target) as part:
        part.write_bytes(text)
    return Report(
        target, len(text), len(described.changes), whole, listed, described.steps["confirmed"],
        described.not_done, described.seen, judged,
    )  # fmt: skip


def _fitted(facts: Mapping[str, Any], described: Described, cases: int) -> tuple[bytes, int, int]:
    """The page with as many changes as fit, how many are whole, and how many are listed."""
    whole, listed, proofs = WHOLE, LISTED, PROOFS
    total = len(described.changes)
    told = [_told(described, c, cases) for c in described.changes[:whole]]
    while True:
        shown = min(whole, total)
        rest = described.changes[shown : shown + listed]
        page = pages.render(
            "report.html", told=told[:shown], rest=rest, left=total - shown - len(rest),
            proofs=proofs, **facts,
        )  # fmt: skip
        text = page.encode()
        if len(text) < LIMIT or not (shown or rest or proofs):
            return text, shown, len(rest)
        # A line is worth less than a change told in full: lines give way first, then all.
        if listed > 25:
            listed //= 2
        else:
            whole, listed, proofs = whole // 2, listed // 2, proofs // 2


def _told(described: Described, change: Change, cases: int) -> dict[str, Any]:
    """What a change told in full needs besides itself."""
    took, others = described.cases(change) if cases else ([], [])
    proved = described.policy.certificate
    rows = () if proved is None or change.state is None else proved.rows
    return {
        "c": change,
        "proof": next((r for r in rows if r["state"] == change.state), None),
        "cases": [*took[:cases], *others[:cases]],
    }


SPEAK = 10
"""Followers, and others, below which a check says nothing: two lucky ones have no variance."""


def verdict(check: Check) -> str:
    """What a check says, as a key of VERDICTS."""
    few = min(check.took, check.others) < SPEAK
    if few or check.advantage is None or check.low is None or check.high is None:
        return "cannot say"
    if check.low > 0:
        return "agrees"
    if check.high < 0:
        return "contradicts"
    return "leans with it" if check.advantage > 0 else "leans against it"


def _facts(
    described: Described,
    judged: Evaluation | None,
    notes: list[str],
    title: str,
    day: datetime.date,
    seed: int,
) -> dict[str, Any]:
    """Everything the page says but the changes themselves."""
    policy, changes = described.policy, described.changes
    ends = [abs(v) for c in changes for v in (c.advantage, c.low, c.high, c.check.advantage)
            if v is not None and math.isfinite(v)]  # fmt: skip
    style = pages.style()
    return {
        "style": Markup(style),  # our own, and the hash below names it byte by byte
        "style_hash": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        "title": title,
        "day": f"{day.day} {day:%B %Y}",
        "described": described,
        "certificate": policy.certificate,
        "evaluation": judged,
        "headline": _headline(judged),
        "enough": ENOUGH,
        "notes": notes,
        "extent": max(ends, default=1.0) or 1.0,
        "verdict": verdict,
        "down": down,
        "verdicts": VERDICTS,
        "tally": Counter(verdict(c.check) for c in changes),
        "regions": policy.changes_by == "region",
        "features": bool(policy.space.feature_names),
        "origin": _origin(policy, described, judged, seed),
        "short": short,
    }


def short(value: Any) -> Any:
    """Text that is not longer than LONGEST."""
    text = str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _headline(judged: Evaluation | None) -> tuple[str, Mapping[str, float]] | None:
    """The estimate told first: DR, or WPDIS where no model of values was fitted."""
    if judged is None:
        return None
    name = "DR" if math.isfinite(judged["DR"]["difference"]) else "WPDIS"
    return name, judged[name]


def _origin(
    policy: DeferringPolicy, described: Described, judged: Evaluation | None, seed: int
) -> list[tuple[str, str]]:
    """Where everything comes from, as words: name and value."""
    made = policy.provenance
    hidden = {
        "sample", "sweep", "approved", "ranges", "log", "made_by", "proposed", "public",
    }  # fmt: skip
    rows = [
        ("Policy", policy.digest()),
        ("Judged by log", described.log_digest),
        ("Trained on log", str(made.get("log", "not recorded"))),
        ("Made by", f"{made.get('made_by', 'not recorded')}; this report by dprl {__version__}"),
        ("Parameters", _words(policy.parameters, {"approved"})),
        ("Training", _words(made, hidden)),
    ]
    if "sweep" in made:
        rows.append(("Picked", _words(made["sweep"], hidden)))
    if "approved" in made:
        rows.append(("Approved", _words(made["approved"], set())))
    if judged is not None:
        rows.append(("Evaluation", _words(judged.settings, {"log", "policy"})))
    return [*rows, ("Seed", str(seed))]


def _words(facts: Mapping[str, Any], hidden: set[str]) -> str:
    """A mapping on one line."""
    parts = []
    for name, value in plain(facts).items():
        if name in hidden or value in (None, [], {}):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts.append(f"{name} = {text}")
    words = " · ".join(parts)
    return words if len(words) <= 2_000 else words[:1_999] + "…"
