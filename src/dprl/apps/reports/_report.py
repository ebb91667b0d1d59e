"""The report: a policy's changes, how sure they are and what nobody can know, in one HTML file.

The file is self-contained: it has no script and loads nothing (its own content security policy
allows only its style). It stays under LIMIT bytes, prints on A4, and says what it leaves out.
`dprl.apps.reports.changes` describes single changes; `dprl.evaluate` and the certificate describe
all of them together. On a log that the policy comes from there is no held-out check, and the
report says so.
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dprl._core import __version__
from dprl._core import html as pages
from dprl._core.checks import check_whole
from dprl._core.disk import replacing
from dprl._core.html.catalogue import Words, short, speak
from dprl._core.table import Result, form, many, to_json_value
from dprl._core.words import api, joined, option, said_by, say, sentences, word, worded
from dprl.apps.reports.changes import Change, Described, as_called, describe_changes
from dprl.apps.reports.finding import (
    cautions_of,
    grade_of,
    grade_of_arms,
    places_of,
    proof_of,
    randomised,
    title_of,
    trial_of,
    verdict,
    verdict_of,
)
from dprl.apps.reports.intended_use import ASKED, card_beside, check_use
from dprl.apps.reports.standard import Study, check_standard, study_of
from dprl.errors import ParameterError
from dprl.evaluation._effects import Effects
from dprl.evaluation._evaluate import evaluate
from dprl.evaluation.result import ENOUGH, Evaluation
from dprl.evaluation.subgroups import check_by
from dprl.logs.called import Called
from dprl.logs.encoding.encoder import encoding_of
from dprl.logs.encoding.gaps import gap_counts, gap_shares
from dprl.logs.log import Log, check_log
from dprl.logs.source import chances_words
from dprl.policies.certificate import down
from dprl.policies.familiar import like_policy
from dprl.policies.protocol import DeferringPolicy

# --- The model card: what a report says about a policy, for machines that keep records of models
#
# The sections are those of a model card: details, intended use, factors, metrics, data, analyses,
# ethics, caveats. What nobody said is null, and named under "to_fill_in".

SCHEMA = "dprl-model-card-1"


def card_of(
    title: str,
    day: datetime.date,
    lang: str,
    report: Path,
    page: bytes,
    described: Described,
    judged: Evaluation | None,
    study: Study,
    notes: list[str],
) -> bytes:
    """The card as JSON text; the same arguments give the same bytes.

    Args:
        title: Heading of the report.
        day: Date of the report.
        lang: Language of the report; sentences in "items" are in it.
        report: The file of the report.
        page: Its bytes.
        described: The changes of the policy.
        judged: The evaluation; None where there is none.
        study: The answers to the standard.
        notes: What a reader must be careful about.
    """
    policy, made = described.policy, described.policy.provenance
    proved = policy.certificate
    stated: dict[str, str | None] = {key: study.use.get(key) for key in ASKED}
    card = {
        "schema": SCHEMA,
        "standard": study.standard,
        "language": lang,
        "date": day.isoformat(),
        "report": {"file": report.name, "sha256": hashlib.sha256(page).hexdigest()},
        "model_details": {
            "name": title,
            "digest": policy.digest(),
            "made_by": made.get("made_by"),
            "card_by": f"dprl {__version__}",
            "parameters": dict(policy.parameters),
            "actions": list(policy.actions),
            "features": list(policy.space.feature_names) or None,
            "contact": stated["contact"],
        },
        "intended_use": {
            key.replace("-", "_"): stated[key]
            for key in ("question", "setting", "users", "not-for")
        },
        "factors": {
            "compared": study.baseline.to_dict(),
            "balance": None if described.balance is None else described.balance.to_dict(),
            "subgroups": None
            if judged is None or judged.subgroups is None
            else judged.subgroups.to_dict(),
        },
        "metrics": {
            "shares_of_decisions": dict(described.steps),
            "practice_divided": described.divided,
            "changes": len(described.changes),
        },
        "evaluation_data": {
            "log": described.log_digest,
            "episodes": described.log.n_episodes,
            "groups": len(described.log.groups),
            "decisions": described.log.n_steps,
            "cut_episodes": described.cut,
            "left_out_episodes": described.left_out,
            "held_out": not described.seen and not described.unsure,
            "missing": dict(study.missing),
            "flow": dict(study.flow),
        },
        "training_data": {
            key: made.get(key)
            for key in ("log", "episodes", "episodes_used", "groups", "steps", "cut_episodes")
        },
        "quantitative_analyses": {
            "evaluation": None if judged is None else judged.to_dict(),
            "not_evaluated": described.seen or None,
            "certificate": None if proved is None else proved.to_dict(),
            "sensitivity": None if study.sensitivity is None else study.sensitivity.to_dict(),
            "not_bounded": study.refusal or study.unbounded or None,
        },
        "ethical_considerations": stated["ethics"],
        "caveats_and_recommendations": notes,
        "items": [
            {
                "section": item.section,
                "item": item.name,
                "stated": item.own,
                "from_data": [line.striptags() for line in item.facts],
                "to_fill_in": item.blank,
            }
            for item in study.items
        ],
        "to_fill_in": list(study.blanks),
    }
    text = json.dumps(to_json_value(card), ensure_ascii=False, indent=2, allow_nan=False)
    return f"{text}\n".encode()


def card_path(
    target: Path, card: str | os.PathLike[str] | None, standard: str | None
) -> Path | None:
    """Where the model card goes; None without a standard.

    Args:
        target: The file of the report.
        card: The file that was asked for; None for one beside the report.
        standard: The standard that was asked for; None for none.

    Raises:
        ParameterError: A card was asked for without a standard, or it cannot be written there.
    """
    if standard is None:
        if card is not None:
            raise ParameterError(
                "a model card is written with a report to a standard, and none was asked for.",
                do=worded(
                    "Say {standard}, or leave the card out.", standard=option("standard", "target")
                ),
            )
        return None
    path = card_beside(target) if card is None else Path(card)
    if not path.parent.is_dir() or path.is_dir() or path.resolve() == target.resolve():
        raise ParameterError(
            f"the model card cannot be written to {str(path)!r}.",
            do="Name a file of its own in a folder that exists.",
        )
    return path


# --- Report: what was written, and the main numbers of it


def headline_of(judged: Evaluation | None) -> tuple[str, Mapping[str, float]] | None:
    """The estimate that is shown first."""
    return None if judged is None else (judged.headline, judged[judged.headline])


@dataclass(frozen=True)
class Report(Result):
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
        card: The model card beside the report; None where there is none.
        to_fill_in: Items of the standard that are still to fill in; empty without a standard.
        described: The changes that are on the page, in words and numbers.
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
    card: Path | None = None
    to_fill_in: tuple[str, ...] = ()
    described: Any = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry."""
        judged = self.evaluation
        return {
            **{name: value for name, value in vars(self).items() if name != "described"},
            "path": str(self.path),
            "card": None if self.card is None else str(self.card),
            "to_fill_in": list(self.to_fill_in),
            "evaluation": None if judged is None else judged.to_dict(),
        }

    def details(self) -> str:
        """What was written, what it says in short, and what to be wary of, as text."""
        summary = many(self.changes, "change")
        if self.whole < self.changes:
            summary += f", {self.whole:,} told in full"
        if self.scattered:
            summary += (
                f" told by region; {many(self.scattered, 'further decision')} "
                f"{form(self.scattered, 'changes', 'change')} in no simple region"
            )
        if self.confirmed:
            summary += (
                f"; confirms what is usually done in {pages.percent(self.confirmed)} of decisions "
                f"(something else was done than it says in {pages.percent(self.not_done)})"
            )
        lines = [f"{summary} → {self.path} ({self.bytes / 1000:.0f} kB)"]
        if self.divided:
            lines.insert(0, self._split())
        if self.card is not None:
            blank = len(self.to_fill_in)
            lines.append(
                f"Model card → {self.card}; "
                + (f"{many(blank, 'item')} of the standard to fill in: "
                   f"{', '.join(self.to_fill_in)}." if blank else "no item left to fill in.")
            )  # fmt: skip
        lines += self._careful()
        if self.seen:
            lines.append(f"No held-out check: {self.seen}.")
        return "\n".join(lines)

    def _careful(self) -> list[str]:
        """That held-out episodes say little about the policy, where that is so."""
        facts: Mapping[str, Any] = {} if self.evaluation is None else self.evaluation.facts
        if not facts.get("reached") or facts["ess_differs"] >= ENOUGH:
            return []
        return [
            sentences(
                say(
                    "The held-out estimate rests on few: the effective sample size where it "
                    "matters is {ess_differs:.1f} of {many}, below {enough}.",
                    ess_differs=facts["ess_differs"],
                    many=many(facts["reached"], facts["unit"]),
                    enough=ENOUGH,
                ),
                say("Do not rely on it."),
            )
        ]

    def _split(self) -> str:
        """That practice is divided, and what held-out episodes say against the mixture."""
        words = f"Practice is divided at {pages.percent(self.divided)} of decisions"
        headline = headline_of(self.evaluation)
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


# --- The report: a policy's changes, how sure they are and what nobody can know, in one HTML file

LIMIT = 300_000
"""Largest size of a report, in bytes."""

WHOLE, LISTED, PROOFS = 12, 400, 40
"""Largest numbers of changes told in full, of changes in one line each, of certificate rows."""

KINDS = 10
"""Largest number of changes that no region tells and that are counted in a line each."""

GAPS, GAP_ACTIONS = 30, 8
"""Largest numbers of columns and of actions in the table of missing values."""


def report(
    policy: DeferringPolicy,
    log: Log,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    cases: int = 0,
    values: bool = True,
    draws: int = 2_000,
    seed: int = 0,
    date: datetime.date | None = None,
    by: str | Sequence[str] | None = None,
    standard: str | None = None,
    use: Mapping[str, str] | None = None,
    card: str | os.PathLike[str] | None = None,
    lang: str = "en",
    evaluation: Evaluation | None = None,
    effects: Effects | None = None,
    note: str = "",
    progress: Callable[[str, float], None] | None = None,
) -> Report:
    """Write a report on a policy as one HTML file.

    Args:
        policy: A policy of DPRL, with or without a certificate.
        log: The log to judge it by; best one that the policy has not seen.
        path: The HTML file to write; an existing file is replaced.
        title: Heading of the report. Default None: the finding, in a sentence.
        cases: Number of past cases shown on either side of each change, with the labels of their
            episodes. Default 0: the report names no episode. (The typical state of a change over
            features is that of one decision in the log, without its label.)
        values: Whether to fit a model of values, which DM, DR and WDR need. Default True.
        draws: Number of bootstrap draws. Default 2,000.
        seed: Seed of everything random. The same policy, log, seed and date give the same bytes.
            Default 0.
        date: Date printed on the report. Default None: today (UTC).
        by: Columns that make subgroups, as for `dprl.evaluate`. Default None: none.
        standard: "target": add what the TARGET 2025 statement asks of an emulated trial, with
            blanks marked *to fill in*, and write a model card. Default None: neither.
        use: What only people can say, for the standard: key → text, such as {"question": "…"}.
            Keys are those of the table [intended-use] of dprl.toml. Default None: nothing.
        card: The JSON file for the model card. Default None: beside the report and named after
            it, review.model-card.json for review.html.
        lang: Language of the page: "en" or "de". Labels from data stay as they are. Default "en".
        evaluation: What `dprl.evaluate` said of this policy and this log already. Default None: it
            is asked.
        effects: What `dprl.effects` said of the arms of a trial; where the policy gives one of
            them to everybody, or none, the page is about them, and all of the log judges them.
            Default None: the log is no trial, or nobody asked.
        note: What stands below the first sentence. Default "": nothing.
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
    t, standard = speak(lang), check_standard(standard)
    answers = check_use(use)
    beside = card_path(target, card, standard)
    if not getattr(policy, "knows_practice", False):
        raise ParameterError(
            f"a report is about a policy of DPRL's; got a {type(policy).__name__}.",
            do=worded(
                "Other policies have no changes to tell; judge them with {command}.",
                command=api("dprl.evaluate"),
            ),
        )
    if not target.parent.is_dir() or target.is_dir():
        raise ParameterError(
            f"the report cannot be written to {str(target)!r}.",
            do="Name a file in a folder that exists.",
        )
    cases = check_whole("cases", cases, 0)
    check_log(log)
    given, gaps = log, gap_counts(log)
    log = like_policy(policy, log)
    columns = check_by(by, log)
    tell = progress or (lambda stage, share: None)
    tell("describing the changes", 0.0)
    described = describe_changes(policy, log, seed=seed)
    judged, notes = None, list(described.notes)
    if not described.seen:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            judged = evaluation or evaluate(
                policy, log, values=values, draws=draws, seed=seed, by=columns, progress=progress
            )
        notes += [said_by(w) for w in caught]
        described = described.judged(judged.rules)
    if columns and judged is None:
        notes.append(
            say(
                "There are no subgroups by {by}: {seen}.",
                by=joined(", ", columns),
                seen=word(described.seen),
            )
        )
    study = None
    if standard is not None:
        study = study_of(
            standard,
            answers,
            described,
            given,
            judged,
            t,
            draws=draws,
            seed=seed,
            progress=progress,
        )
    tell("writing", 0.0)
    day = date or datetime.datetime.now(datetime.UTC).date()
    shown, notes = as_called(described), list(dict.fromkeys(notes))
    arms = effects if judged is None else None
    title = title or str(t.part(title_of(shown, judged, arms)))
    facts = _facts(shown, judged, notes, title, day, seed, t, study, arms)
    facts |= {"effects": effects, "note": note}
    facts |= _gap_facts(policy, gaps)
    text, whole, listed = _fitted(facts, described, cases, lang)
    if study is None or beside is None:
        with replacing(target) as part:
            part.write_bytes(text)
    else:
        kept = card_of(
            title, day, lang, target, text, described, judged, study, notes
        )  # both are whole on the disk before either takes its place
        with replacing(target) as part, replacing(beside) as card_part:
            _write(part, text)
            _write(card_part, kept)
    return Report(
        target, len(text), len(described.changes), whole, listed, described.steps["confirmed"],
        described.not_done, described.seen, judged, described.uncovered,
        described.divided, gaps, beside, () if study is None else study.blanks, described,
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


def _write(part: Path, data: bytes) -> None:
    """Write a file and have it whole on the disk."""
    with part.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _fitted(
    facts: Mapping[str, Any], described: Described, cases: int, lang: str
) -> tuple[bytes, int, int]:
    """The page with as many changes as fit, how many are told in full, and how many are listed."""
    whole, listed, proofs = WHOLE, LISTED, PROOFS
    total, changes = len(described.changes), facts["described"].changes
    in_full = [
        {**_told(described, c, cases), "c": shown}
        for c, shown in zip(described.changes[:whole], changes, strict=False)
    ]
    while True:
        shown = min(whole, total)
        rest = changes[shown : shown + listed]
        page = pages.render(
            "report.html", lang, told=in_full[:shown], rest=rest, left=total - shown - len(rest),
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
    called = Called.learned(described.policy)
    both = described.cases(change) if cases else ([], [])
    took, others = ([replace(x, action=called.act(x.action)) for x in side] for side in both)
    proved = described.policy.certificate
    rows = () if proved is None or change.state is None else proved.rows
    return {
        "c": change,
        "compared": described.compared.get(change.key),
        "proof": next((r for r in rows if r["state"] == change.state), None),
        "cases": [*took[:cases], *others[:cases]],
    }


def _facts(
    described: Described,
    judged: Evaluation | None,
    notes: list[str],
    title: str,
    day: datetime.date,
    seed: int,
    t: Words,
    study: Study | None,
    arms: Effects | None,
) -> dict[str, Any]:
    """Everything on the page except the changes themselves."""
    policy, changes = described.policy, described.changes
    drawn = changes[:WHOLE]
    ends = [v for c in drawn for v in (*c.drawn, c.check.advantage, c.check.low, c.check.high)]
    checks = [claim.check for claim in described.claims[:KINDS]]
    ends += [end for check in checks for end in (check.advantage, check.low, check.high)]
    style = pages.style()
    return {
        "style": Markup(style),  # our own, and the hash below names it byte by byte
        "style_hash": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        "title": title,
        "day": t.date(day),
        "study": study,
        "described": described,
        "certificate": policy.certificate,
        "evaluation": judged,
        "balance": described.balance if judged is None else judged.balance,
        "arms": arms,
        "sentence": verdict_of(judged, described) if arms is None else trial_of(arms, described),
        "claims": [
            {"claim": c, "where": places_of(c, described), "grade": grade_of(c, described)}
            for c in described.claims
        ],
        "cautions": cautions_of(judged, described, notes, arms),
        "proof": proof_of(described) if arms is None else grade_of_arms(arms),
        "by_lot": randomised(described),
        "chances": chances_words(described.log),
        "extent": pages.scale(ends),
        "verdict": verdict,
        "down": down,
        "tally": Counter(verdict(c.check) for c in changes),
        "regions": policy.changes_by == "region",
        "features": bool(policy.space.feature_names),
        "kept": KINDS,
        "origin": _origin(policy, described, judged, seed, t),
        "short": short,
    }


def _origin(
    policy: DeferringPolicy, described: Described, judged: Evaluation | None, seed: int, t: Words
) -> list[tuple[str, str]]:
    """Where the policy, the log and the report come from: (key of its name, value)."""
    made = policy.provenance
    hidden = {
        "sample", "sweep", "approved", "ranges", "log", "made_by", "proposed", "public", "markov",
        "luck", "quantiles",
        *(("rules", "notes") if described.rules is not None else ()),
        *(("effects", "notes") if "effects" in made else ()),
    }  # fmt: skip
    unknown = t("not recorded")
    rows = [
        ("policy", policy.digest()),
        ("judged", described.log_digest),
        ("trained", str(made.get("log", unknown))),
        ("made", t(
            "{made}; this report by dprl {version}", made=made.get("made_by", unknown),
            version=__version__,
        )),
        ("parameters", _words(policy.parameters, {"approved"})),
        ("training", _words(made, hidden)),
    ]  # fmt: skip
    if "sweep" in made:
        rows.append(("picked", _words(made["sweep"], hidden)))
    if "approved" in made:
        rows.append(("approved", _words(made["approved"], set())))
    if judged is not None:
        rows.append(("evaluation", _words(judged.settings, {"log", "policy"})))
    return [*rows, ("seed", str(seed))]


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
