"""The report: a policy's changes, how sure they are and what nobody can know, in one HTML file.

The file is self-contained: it has no script and loads nothing (its own content security policy
allows only its style). It stays under LIMIT bytes, prints on A4, and says what it leaves out.
`dprl.apps._changes` describes single changes; `dprl.evaluate` and the certificate describe all of
them together. On a log that the policy comes from there is no held-out check, and the report says
so.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dprl._core import html as pages
from dprl._core.checks import check_whole
from dprl._core.disk import replacing
from dprl._core.table import to_json_value
from dprl._core.version import __version__
from dprl.apps._change import Change, Check
from dprl.apps._changes import Described, describe_changes
from dprl.errors import ParameterError
from dprl.evaluation._evaluate import evaluate
from dprl.evaluation._result import ENOUGH, Evaluation
from dprl.evaluation._subgroups import check_by
from dprl.logs._encoding import encoded_like, encoding_of
from dprl.logs._gaps import gap_counts, gap_shares
from dprl.logs._probability_words import chances_words
from dprl.logs.log import Log, check_log
from dprl.policies._protocol import DeferringPolicy
from dprl.policies.certificate import down

__all__ = ["Report", "report"]

LIMIT = 300_000
"""Largest size of a report, in bytes."""

WHOLE, LISTED, PROOFS = 12, 400, 40
"""Largest numbers of changes told in full, of changes in one line each, of certificate rows."""

KINDS = 10
"""Largest number of changes that no region tells and that are counted in a line each."""

GAPS, GAP_ACTIONS = 30, 8
"""Largest numbers of columns and of actions in the table of missing values."""

LONGEST = 160
"""Largest number of characters of a label or a situation; a longer text is cut and marked."""

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
    """A report that was written; returned by `dprl.report`.

    Attributes:
        path: The file.
        bytes: Size of the file, in bytes.
        changes: Number of changes that the policy makes.
        whole: Number of changes that are told in full.
        listed: Number of further changes that have one line each.
        confirmed: Share of the log's decisions at which the policy suggests the usual action.
        not_done: Share of the log's decisions at which the policy suggests an action (usual or not)
            and another was taken.
        seen: Why the log is not a held-out check, in words; '' where it is one.
        evaluation: The evaluation of the policy on the log; None where the policy has seen the log.
        scattered: Number of the log's decisions that the policy changes, but that lie in no region
            simple enough to tell; they are counted by change, not described.
        divided: Share of the log's decisions at which the policy names an action and practice is
            divided: no action has half of the share there.
        gaps: On how many rows of the log each column of the state is missing, by the action taken
            ("rows", "actions", "columns"); None where nothing is missing.
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
    scattered: int = 0
    divided: float = 0.0
    gaps: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry."""
        judged = self.evaluation
        return {
            **vars(self),
            "path": str(self.path),
            "evaluation": None if judged is None else judged.to_dict(),
        }

    def __str__(self) -> str:
        summary = f"{self.changes:,} change{'s' * (self.changes != 1)}"
        if self.whole < self.changes:
            summary += f", {self.whole:,} told in full"
        if self.scattered:
            summary += (
                f" told by region; {self.scattered:,} further decisions change in no simple region"
            )
        if self.confirmed:
            summary += (
                f"; confirms what is usually done in {pages.percent(self.confirmed)} of decisions "
                f"(something else was done than it says in {pages.percent(self.not_done)})"
            )
        lines = [f"{summary} → {self.path} ({self.bytes / 1000:.0f} kB)"]
        if self.divided:
            lines.insert(0, self._split())
        if self.seen:
            lines.append(f"No held-out check: {self.seen}.")
        return "\n".join(lines)

    def _split(self) -> str:
        """That practice is divided, and what held-out episodes say against the mixture."""
        words = f"Practice is divided at {pages.percent(self.divided)} of decisions"
        headline = _headline(self.evaluation)
        if headline is None or self.evaluation is None:
            return f"{words}: what is suggested is compared with the mixture of all that is done."
        name, row = headline
        ends = "without an interval"
        if math.isfinite(row["difference_low"]):
            ends = (
                f"{100 * self.evaluation.settings['level']:g} % interval "
                f"{row['difference_low']:+.3g} to {row['difference_high']:+.3g}"
            )
        difference = f"{row['difference']:+.3g}, {ends}."
        return f"{words}; difference to the mixture of all that is done ({name}): {difference}"


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
    by: str | Sequence[str] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Report:
    """Write a report on a policy as one HTML file.

    Args:
        policy: A policy of DPRL, with or without a certificate.
        log: The log to judge it by; best one that the policy has not seen.
        path: The HTML file to write; an existing file is replaced.
        title: Heading of the report.
        cases: Number of past cases shown on either side of each change, with the labels of their
            episodes. Default 0: the report names no episode. (The typical state of a change over
            features is that of one decision in the log, without its label.)
        values: Whether to fit a model of values, which DM, DR and WDR need. Default True.
        draws: Number of bootstrap draws. Default 2,000.
        seed: Seed of everything random. The same policy, log, seed and date give the same bytes.
            Default 0.
        date: Date printed on the report. Default None: today (UTC).
        by: Columns that make subgroups, as for `dprl.evaluate`. Default None: none.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        What was written: the file, its size, and the main numbers.

    Raises:
        ParameterError: An argument is outside its range, or the policy is not of DPRL.
        LogError: The log does not fit the policy.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     written = report(policy, test, Path(folder) / "review.html", draws=100)
        >>> written.changes, written.bytes < 300_000
        (2, True)
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
    cases = check_whole("cases", cases, 0)
    check_log(log)
    gaps = gap_counts(log)
    log = encoded_like(log, policy.provenance.get("columns", {}))
    columns = check_by(by, log)
    tell = progress or (lambda stage, share: None)
    tell("describing the changes", 0.0)
    described = describe_changes(policy, log)
    judged, notes = None, list(described.notes)
    if not described.seen:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            judged = evaluate(
                policy, log, values=values, draws=draws, seed=seed, by=columns, progress=progress
            )
        notes += [str(w.message) for w in caught]
    if columns and judged is None:
        notes.append(f"There are no subgroups by {', '.join(columns)}: {described.seen}.")
    tell("writing", 0.0)
    day = date or datetime.datetime.now(datetime.UTC).date()
    text, whole, listed = _fitted(
        _facts(described, judged, list(dict.fromkeys(notes)), title, day, seed)
        | _gap_facts(policy, gaps),
        described, cases,
    )  # fmt: skip
    with replacing(target) as part:
        part.write_bytes(text)
    return Report(
        target, len(text), len(described.changes), whole, listed, described.steps["confirmed"],
        described.not_done, described.seen, judged, described.uncovered, described.divided, gaps,
    )  # fmt: skip


def _gap_facts(policy: DeferringPolicy, gaps: Mapping[str, Any] | None) -> dict[str, Any]:
    """Where values are missing, by the action taken, and what the policy does about them."""
    fills = getattr(encoding_of(policy.provenance.get("columns", {})), "fills", {})
    rows = [] if gaps is None else gap_shares(gaps)
    return {
        "gaps": rows[:GAPS],
        "gaps_left": max(0, len(rows) - GAPS),
        "gap_actions": [] if gaps is None else gaps["actions"][:GAP_ACTIONS],
        "gap_actions_left": 0 if gaps is None else max(0, len(gaps["actions"]) - GAP_ACTIONS),
        "fills": fills,
    }


def _fitted(facts: Mapping[str, Any], described: Described, cases: int) -> tuple[bytes, int, int]:
    """The page with as many changes as fit, how many are told in full, and how many are listed."""
    whole, listed, proofs = WHOLE, LISTED, PROOFS
    total = len(described.changes)
    in_full = [_told(described, c, cases) for c in described.changes[:whole]]
    while True:
        shown = min(whole, total)
        rest = described.changes[shown : shown + listed]
        page = pages.render(
            "report.html", told=in_full[:shown], rest=rest, left=total - shown - len(rest),
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
    """What the page needs to tell a change in full, besides the change itself."""
    took, others = described.cases(change) if cases else ([], [])
    proved = described.policy.certificate
    rows = () if proved is None or change.state is None else proved.rows
    return {
        "c": change,
        "compared": described.compared.get(change.key),
        "proof": next((r for r in rows if r["state"] == change.state), None),
        "cases": [*took[:cases], *others[:cases]],
    }


SPEAK = 10
"""Least number on each side of a check; with fewer it says nothing."""


def verdict(check: Check) -> str:
    """The result of a check, as a key of VERDICTS."""
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
    """Everything on the page except the changes themselves."""
    policy, changes = described.policy, described.changes
    drawn = changes[:WHOLE]
    ends = [v for c in drawn for v in (*c.drawn, c.check.advantage, c.check.low, c.check.high)]
    style = pages.style()
    return {
        "style": Markup(style),  # our own, and the hash below names it byte by byte
        "style_hash": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        "title": title,
        "day": f"{day.day} {day:%B %Y}",
        "described": described,
        "certificate": policy.certificate,
        "evaluation": judged,
        "balance": described.balance if judged is None else judged.balance,
        "headline": _headline(judged),
        "enough": ENOUGH,
        "chances": chances_words(described.log),
        "notes": notes,
        "extent": pages.scale(ends),
        "verdict": verdict,
        "down": down,
        "verdicts": VERDICTS,
        "tally": Counter(verdict(c.check) for c in changes),
        "regions": policy.changes_by == "region",
        "features": bool(policy.space.feature_names),
        "kept": KINDS,
        "origin": _origin(policy, described, judged, seed),
        "short": short,
    }


def short(value: Any) -> Any:
    """The text, cut to at most LONGEST characters."""
    text = str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _headline(judged: Evaluation | None) -> tuple[str, Mapping[str, float]] | None:
    """The estimate that is shown first: DR, or WPDIS where no model of values was fitted."""
    if judged is None:
        return None
    name = "DR" if math.isfinite(judged["DR"]["difference"]) else "WPDIS"
    return name, judged[name]


def _origin(
    policy: DeferringPolicy, described: Described, judged: Evaluation | None, seed: int
) -> list[tuple[str, str]]:
    """Where the policy, the log and the report come from: (name, value) pairs of text."""
    made = policy.provenance
    hidden = {
        "sample", "sweep", "approved", "ranges", "log", "made_by", "proposed", "public", "markov",
        "luck", "quantiles",
        *(("rules", "notes") if described.rules is not None else ()),
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
    """A mapping as one line of text."""
    parts = []
    for name, value in to_json_value(facts).items():
        if name in hidden or value in (None, [], {}):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts.append(f"{name} = {text}")
    words = " · ".join(parts)
    return words if len(words) <= 2_000 else words[:1_999] + "…"
