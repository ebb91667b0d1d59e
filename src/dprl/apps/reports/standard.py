"""A report to a standard: what the TARGET statement asks of an emulated trial, as far as known.

TARGET (Transparent Reporting of Observational Studies Emulating a Target Trial, 2025) asks for 21
items in six sections. Each `Item` here has up to two answers: what people say about their study
(`dprl.apps.reports.intended_use`), and what log, policy, evaluation and certificate hold. What
only people can say and nobody said is a blank, marked *to fill in*; nothing is made up for it. The
items carry the names of their subjects and not the statement's numbers: the statement itself is
the authority.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from dprl._core.arrays import Floats
from dprl._core.html.catalogue import Words, known, short
from dprl._core.inference import MOST
from dprl._core.table import to_json_value
from dprl._core.words import N_, duration
from dprl.apps.reports.changes import Described, first_rows
from dprl.errors import DprlError, ParameterError
from dprl.evaluation._sensitivity import Sensitivity, sensitivity
from dprl.evaluation.result import ENOUGH, Evaluation
from dprl.evidence.yardstick import yardstick_words
from dprl.logs.describing import Column, columns_at
from dprl.logs.log import Log
from dprl.logs.source import chances_words

# --- Those who followed the policy where it first would have changed something, and the others
#
# Every group (episode, where there are no groups) of a log is described at the first of its
# decisions
# at which the policy makes a change: what the state and the further columns of the table hold
# there.
# Nothing is weighted; the table of balance does that.

MOST_LABELS = 6
"""Labels of one column that have a row of their own, the most frequent first."""
MOST_ROWS = 60
"""Rows of the table at most; how many more there are is told."""


@dataclass(frozen=True)
class BaselineRow:
    """One column (or one of its labels) in those who followed and in the others.

    Attributes:
        column: The column.
        label: One of its labels, whose share is told; None where the column holds numbers.
        followed: Mean, or share, of those who followed; None where nobody has a value.
        otherwise: The same of the others.
        sd_followed: Standard deviation of those who followed; None for labels.
        sd_otherwise: The same of the others.
        missing_followed: Number of those who followed that have no value.
        missing_otherwise: The same of the others.
        difference: Difference of the two means in standard deviations; None where it is not
            defined.
    """

    column: str
    label: str | None
    followed: float | None
    otherwise: float | None
    sd_followed: float | None
    sd_otherwise: float | None
    missing_followed: int
    missing_otherwise: int
    difference: float | None


@dataclass(frozen=True)
class Baseline:
    """The table of those who followed and the others.

    Attributes:
        unit: "episodes" or "groups".
        followed: Number that took the suggestion at their first change.
        otherwise: Number that did otherwise there.
        rows: One row per column of numbers, and per label of the others.
        left: Number of rows that are left out.
    """

    unit: str
    followed: int
    otherwise: int
    rows: tuple[BaselineRow, ...]
    left: int

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry."""
        return dict(to_json_value(asdict(self)))


def baseline(log: Log, changed: NDArray[np.bool_], took: NDArray[np.bool_]) -> Baseline:
    """Describe those who followed and the others.

    Args:
        log: The log, N rows.
        changed: bool (N,), where the policy makes a change.
        took: bool (N,), where what it says was done.
    """
    first = first_rows(log, np.flatnonzero(changed))
    followed, others = first[took[first]], first[~took[first]]
    table = [row for one in columns_at(log, first) for row in _rows(one, took[first])]
    unit = "episodes" if len(log.groups) == log.n_episodes else "groups"
    return Baseline(
        unit, len(followed), len(others), tuple(table[:MOST_ROWS]), max(len(table) - MOST_ROWS, 0)
    )


def _rows(column: Column, took: NDArray[np.bool_]) -> Iterator[BaselineRow]:
    sides = column.values[took], column.values[~took]
    gone_a, gone_b = (int(np.isnan(side).sum()) for side in sides)
    a, b = (side[~np.isnan(side)] for side in sides)
    if column.labels is None:
        yield BaselineRow(
            column.name, None, _mean(a), _mean(b), _sd(a), _sd(b), gone_a, gone_b, _apart(a, b)
        )
        return
    codes = Counter(np.concatenate([a, b]).astype(np.int64).tolist())
    order = sorted(codes, key=lambda code: (-codes[code], code))
    for code in order[:MOST_LABELS]:
        x, y = (np.asarray(side == code, np.float64) for side in (a, b))
        yield BaselineRow(
            column.name,
            column.labels[code],
            _mean(x),
            _mean(y),
            None,
            None,
            gone_a,
            gone_b,
            _apart(x, y),
        )


def _mean(x: Floats) -> float | None:
    return float(x.mean()) if len(x) else None


def _sd(x: Floats) -> float | None:
    return float(x.std(ddof=1)) if len(x) > 1 else None


def _apart(x: Floats, y: Floats) -> float | None:
    """The difference of the means over the root of the mean variance."""
    if len(x) < 2 or len(y) < 2:
        return None
    spread = math.sqrt((float(x.var(ddof=1)) + float(y.var(ddof=1))) / 2)
    difference = float(x.mean() - y.mean())
    return difference / spread if spread > 0 else None if difference else 0.0


# --- The sentences that log, policy, evaluation and certificate can say to the items of a
# standard

SHOWN = 12
"""Changes that are named in the strategies, and columns in the missing values, at most."""

UNBOUNDED = {
    "seen": N_("Not computed: the policy has seen this log."),
    "silent": N_("Nothing to bound: the policy differs from practice nowhere in this log."),
    "refused": N_("Not computed: the bounds were refused for this log and policy."),
}
"""Why there are no bounds → what is said of it."""


def column_names(log: Log) -> list[str]:
    """The columns of the state, and the further ones."""
    names = list(log.feature_names) if log.state is None else ["state"]
    return names + (list(log.also.names) if log.also is not None else [])


@dataclass(frozen=True, eq=False)
class Facts:
    """The sentences that data can say to each item."""

    described: Described
    raw: Log
    judged: Evaluation | None
    t: Words
    bounds: Sensitivity | None
    why: str
    missing: tuple[tuple[str, int], ...]
    flow: Mapping[str, int]

    def of(self, name: str) -> list[Markup]:
        """The sentences to one item; none where data know nothing about it."""
        tell = getattr(self, "_" + name.replace("-", "_"), None)
        return [] if tell is None else tell()

    def _quoted(self, sentence: str) -> Markup:
        words = self.t.quote(sentence)
        return words if isinstance(words, Markup) else Markup.escape(words)

    @property
    def _gamma(self) -> str:
        return self.t.general(float(self.described.policy.parameters.get("gamma", 1.0)))

    def _identification(self) -> list[Markup]:
        return [
            self.t(
                "An observational study: a log of past decisions is used to emulate a trial. "
                "Nobody was assigned to a strategy for it."
            ),
            *self._effect(),
        ]

    def _data_sources(self) -> list[Markup]:
        d, made = self.described, self.described.policy.provenance
        lines = [
            self.t(
                "Judged by the log with digest {digest}…: {episodes} episodes; {steps} decisions "
                "are analysed.",
                digest=d.log_digest[:12],
                episodes=d.log.n_episodes + d.left_out,
                steps=d.log.n_steps,
            )
        ]
        if "episodes" in made:
            lines.append(
                self.t(
                    "Learned from the log with digest {digest}…: {episodes} episodes.",
                    digest=str(made.get("log", ""))[:12] or "–",
                    episodes=made["episodes"],
                )
            )
        lines.append(
            self.t("The policy has seen the log it is judged by: nothing here is a held-out check.")
            if d.seen
            else self.t("Whether the policy has seen the log it is judged by is not on record.")
            if d.unsure
            else self.t("As far as is on record, the policy has not seen the log it is judged by.")
        )
        return lines

    def _eligibility(self) -> list[Markup]:
        return [
            self.t(
                "Every one of the {episodes} episodes in the log counts as eligible. By which "
                "criteria they came into the log is not known to the program.",
                episodes=self.flow["given"],
            )
        ]

    def _strategies(self) -> list[Markup]:
        d = self.described
        names = d.policy.space.said
        listed = [
            self.t(
                "Where {situation}: {suggested}; whatever else, in the usual proportions.",
                situation=self.t.situation(c.situation, names, short),
                suggested=short(self.t.part(c.suggested)),
            )
            if c.avoid is not None
            else self.t(
                "Where {situation}: always {suggested}; practice is divided there.",
                situation=self.t.situation(c.situation, names, short),
                suggested=short(c.suggested),
            )
            if c.divided
            else self.t(
                "Where {situation}: {suggested} instead of {usual}.",
                situation=self.t.situation(c.situation, names, short),
                usual=short(self.t.part(c.instead)),
                suggested=short(c.suggested),
            )
            for c in d.changes[:SHOWN]
        ]
        lines = [
            self.t(
                "Follow the policy: at the decisions below do what it suggests, elsewhere as "
                "usual ({share} of the decisions are left to usual practice).",
                share=self.t.percent(d.steps["deferred"]),
            ),
            *listed,
        ]
        if len(d.changes) > SHOWN:
            lines.append(
                self.t.ngettext(
                    "And {n} more change, as listed above.",
                    "And {n} more changes, as listed above.",
                    len(d.changes) - SHOWN,
                )
            )
        if d.uncovered:
            lines.append(
                self.t.ngettext(
                    "And {n} scattered decision that no simple region describes.",
                    "And {n} scattered decisions that no simple region describes.",
                    d.uncovered,
                )
            )
        return [*lines, self.t("Against it: usual practice, as recorded in the log.")]

    def _assignment(self) -> list[Markup]:
        return [
            self._quoted(chances_words(self.described.log)),
            self.t(
                "The emulation compares as if assignment depended on nothing but the recorded "
                "state."
            ),
        ]

    def _time_zero(self) -> list[Markup]:
        follow = self.described.log.follow_up
        end = (
            self.t(
                "Every episode is followed for {time} from then on.",
                time=self.t.part(duration(str(follow))),
            )
            if follow
            else self.t("Every episode is followed to the end of its record; no common end is set.")
        )
        return [
            self.t(
                "Of the whole policy: the first decision of each episode. Of a single change: the "
                "first decision in its situation."
            ),
            end,
        ]

    def _outcome(self) -> list[Markup]:
        name = self.described.log.columns.get("reward", "reward")
        return [
            self.t(
                "The return: the sum of the column {column} from a decision on, discounted by γ = "
                "{gamma} a step. Larger counts as better.",
                column=short(name),
                gamma=self._gamma,
            )
        ]

    def _estimand(self) -> list[Markup]:
        return [
            self.t(
                "The difference of mean returns over all episodes of the log's population: if the "
                "policy were followed at every decision, against usual practice. What is followed "
                "is the policy, not a first assignment."
            )
        ]

    def _assumptions(self) -> list[Markup]:
        lines = [
            self.t(
                "Consistency: what is recorded as an action is what would be done if the policy "
                "were followed."
            ),
            self.t(
                "No unmeasured confounding: the state holds all that decisions were based on and "
                "that matters for the outcome. A log cannot show it."
            ),
            self.t(
                "Positivity: wherever the policy suggests something, it was done often enough to "
                "be compared."
            ),
            self.t("One episode (group) does not change what happens to another."),
            self.t("Where the policy is silent, practice goes on as before."),
        ]
        d = self.described
        cut = str(d.policy.parameters.get("cut") or "none")
        if d.cut or d.policy.provenance.get("cut_episodes"):
            lines.append(
                self.t(
                    "Cut episodes are treated by the setting cut = {cut}, with what that supposes.",
                    cut=cut,
                )
            )
        proved = d.policy.certificate
        if proved is not None:
            lines.append(self.t("The certificate rests besides on:"))
            lines += [self._quoted(line) for line in proved.assumptions]
        return lines

    def _analysis(self) -> list[Markup]:
        d, j = self.described, self.judged
        learner = str(d.policy.parameters.get("learner", "–"))
        lines = [
            self.t(
                "The policy was made by the learner {learner}; its parameters are under “Where it "
                "comes from”.",
                learner=learner,
            )
        ]
        if j is not None:
            lines.append(
                self.t(
                    "Estimators: {names}; {level} % intervals from {draws} bootstraps, "
                    "seed {seed}; estimated probabilities below {clip} are raised to it.",
                    names=", ".join(j.rows),
                    draws=int(j.settings["draws"]),
                    level=self.t.general(100 * j.settings["level"]),
                    seed=str(j.settings["seed"]),
                    clip=self.t.general(j.settings["clip"]),
                )
            )
        else:
            lines.append(self._no_estimate())
        return lines

    def _no_estimate(self) -> Markup:
        return self.t(
            "No estimate: the policy has seen this log, and estimates on it would flatter it."
        )

    def _flow(self) -> list[Markup]:
        return [
            self.t(
                "Who was assessed for eligibility and excluded before the log was made is not "
                "known to the program."
            ),
            self.t("From the log on: the table of the flow below."),
        ]

    def _baseline(self) -> list[Markup]:
        return [self.t("The table of those who followed and the others is below.")]

    def _follow_up(self) -> list[Markup]:
        log = self.described.log
        lengths = log.lengths.tolist()
        lines = []
        if lengths:
            lines.append(
                self.t(
                    "Decisions in an episode: {median} at the median, from {least} to {most}.",
                    median=self.t.general(statistics.median(lengths)),
                    least=min(lengths),
                    most=max(lengths),
                )
            )
        lines.append(
            self.t("Episodes whose observation was cut before the end: {n}.", n=self.described.cut)
        )
        return lines

    def _missing_data(self) -> list[Markup]:
        log = self.raw
        if not self.missing:
            return [
                self.t.ngettext(
                    "No value is missing in the one column of the state and beside it.",
                    "No value is missing in the {n} columns of the state and beside it.",
                    len(column_names(log)),
                )
            ]
        listed = ", ".join(
            f"{short(name)} ({self.t.count(rows)})" for name, rows in self.missing[:SHOWN]
        )
        lines = [
            self.t(
                "Rows (of {steps}) without a value: {columns}.", columns=listed, steps=log.n_steps
            )
        ]
        if len(self.missing) > SHOWN:
            lines.append(
                self.t.ngettext(
                    "And {n} more column with missing values.",
                    "And {n} more columns with missing values.",
                    len(self.missing) - SHOWN,
                )
            )
        return lines

    def _outcomes(self) -> list[Markup]:
        j = self.judged
        if j is None:
            return [self._no_estimate()]
        low, high = (self.t.number(j.behavior[end]) for end in ("low", "high"))
        return [
            self.t(
                "Mean return of usual practice: {value} ({low} to {high}).",
                value=self.t.number(j.behavior["value"]),
                low=low,
                high=high,
            )
        ]

    def _effect(self) -> list[Markup]:
        j = self.judged
        if j is None:
            return [self._no_estimate()]
        if not j.facts["spoken"]:
            return [self.t("The policy says nothing in this log: it is usual practice itself.")]
        name, row = j.headline, j[j.headline]
        numbers = {
            k: self.t.number(row[f"difference{end}"], True)
            for k, end in (("difference", ""), ("low", "_low"), ("high", "_high"))
        }
        if known(row["difference_low"]) is None:
            alone = numbers["difference"]
            lines = [
                self.t(
                    "Difference to usual practice ({name}): {difference}, without an interval.",
                    name=name,
                    difference=alone,
                )
            ]
        else:
            level = self.t.general(100 * j.settings["level"])
            lines = [
                self.t(
                    "Difference to usual practice ({name}): {difference}, {level} % interval "
                    "{low} to {high}.",
                    name=name,
                    level=level,
                    **numbers,
                )
            ]
        if j.facts["ess_differs"] < ENOUGH:
            lines.append(
                self.t(
                    "It rests on an effective sample of {ess}: too few to lean on.",
                    ess=self.t.fixed(j.facts["ess_differs"], 1),
                )
            )
        return lines

    def _balance(self) -> list[Markup]:
        compared = self.described.balance if self.judged is None else self.judged.balance
        if compared is None or not compared.columns:
            return [
                self.t(
                    "The log has no columns beside the state, so balance beyond the state cannot "
                    "be looked at."
                )
            ]
        worst = compared.worst()
        if worst:
            columns = short(", ".join(dict.fromkeys(row.column for row in worst)))
            return [
                self.t(
                    "Those who took the suggestion differ from the others in: {columns}.",
                    columns=columns,
                ),
                self.t("The table is under “How sure”."),
            ]
        return [
            self.t.ngettext(
                "No clear difference in the one column beside the state.",
                "No clear difference in {n} columns beside the state.",
                len(compared.columns),
            ),
            self.t("The table is under “How sure”."),
        ]

    def _sensitivity(self) -> list[Markup]:
        b = self.bounds
        if b is None:
            return [self.t(UNBOUNDED[self.why])]
        if b.gamma_star is None:
            lines = [
                self.t("There is no gain even without an unrecorded cause (Γ = 1).")
                if b.gamma_point is None
                else self.t(
                    "How sure the gain is, the log cannot say, even without an unrecorded cause "
                    "(Γ = 1)."
                )
                if b.facts["unsure"]
                else self.t(
                    "The gain is not sure even without an unrecorded cause (Γ = 1): its interval "
                    "holds 0."
                )
            ]
        elif b.gamma_star >= MOST:
            lines = [
                self.t(
                    "The gain holds, sampling error included, up to Γ = {star}, where the search "
                    "ends.",
                    star=self.t.general(MOST),
                )
            ]
        else:
            star = math.floor(100 * b.gamma_star + 1e-9) / 100  # down: never more than is known
            lines = [
                self.t(
                    "The gain could be none if an unrecorded cause moved the odds of a suggestion "
                    "by a larger factor than Γ* = {star}, sampling error included.",
                    star=self.t.fixed(star, 2),
                )
            ]
        if b.yardstick:
            lines.append(self._quoted(yardstick_words(b.yardstick)))
        if b.facts["estimator"] == "WIS":
            lines.append(
                self.t(
                    "It is computed with the estimator WIS, whose difference is the one at Γ = 1."
                )
            )
        if self.judged is not None and self.judged.facts["ess_differs"] < ENOUGH:
            ess = self.t.fixed(self.judged.facts["ess_differs"], 1)
            lines.append(
                self.t(
                    "It rests on an effective sample of {ess}: too few to lean on Γ* and the "
                    "bounds.",
                    ess=ess,
                )
            )
        return lines

    def _limitations(self) -> list[Markup]:
        return [self.t("What no log can show is under “What it cannot know”.")]


# --- A report to a standard: what the TARGET statement asks of an emulated trial, as far as known

STANDARDS = ("target",)
"""The standards that a report can follow."""

SECTIONS: Mapping[str, tuple[tuple[str, str | None], ...]] = {
    "use": (("setting", "setting"), ("users", "users"), ("not-for", "not-for"),
            ("contact", "contact")),
    "abstract": (("identification", None),),
    "introduction": (("background", "background"), ("question", "question"),
                     ("rationale", "rationale")),
    "methods": (("data-sources", "data-sources"), ("eligibility", "eligibility"),
                ("strategies", "strategies"), ("assignment", "assignment"),
                ("time-zero", "time-zero"), ("outcome", "outcome"), ("estimand", "estimand"),
                ("assumptions", "assumptions"), ("analysis", "analysis")),
    "results": (("flow", "flow"), ("baseline", None), ("follow-up", None),
                ("missing-data", "missing-data"), ("outcomes", None), ("effect", None),
                ("balance", None), ("sensitivity", None)),
    "discussion": (("interpretation", "interpretation"), ("limitations", "limitations")),
    "other": (("ethics", "ethics"), ("registration", "registration"),
              ("data-access", "data-access"), ("funding", "funding"), ("conflicts", "conflicts")),
}  # fmt: skip
"""Section → its items: (name, key of the intended use that answers it, None where data do)."""

FROM_DATA = {
    "identification", "strategies", "assignment", "estimand", "assumptions", "analysis", "baseline",
    "follow-up", "missing-data", "outcomes", "effect", "balance", "sensitivity", "limitations",
}  # fmt: skip
"""Items that data answer by themselves; people may add words, but nothing is left blank."""


def check_standard(standard: str | None) -> str | None:
    """The standard, refused where there is no such one."""
    if standard is not None and standard not in STANDARDS:
        raise ParameterError(
            f"there is no standard {standard!r} for reports.",
            f"standards are {', '.join(STANDARDS)}",
            "Say 'target' (TARGET 2025, emulated trials), or leave it out.",
        )
    return standard


@dataclass(frozen=True)
class Item:
    """One item of the standard.

    Attributes:
        section: Its section, a key of SECTIONS.
        name: Its name.
        asked: The key of the intended use that answers it; None where data answer it.
        own: What people said; None where nobody did.
        facts: What log, policy, evaluation and certificate say, a sentence each.
    """

    section: str
    name: str
    asked: str | None
    own: str | None
    facts: tuple[Markup, ...]

    @property
    def blank(self) -> bool:
        """Whether it is still to fill in."""
        return self.own is None and not (self.facts and self.name in FROM_DATA)


@dataclass(frozen=True, eq=False)
class Study:
    """The answers to a standard.

    Attributes:
        standard: The standard: "target".
        use: What people said, by key.
        items: The items, in order.
        flow: (name, number) of episodes and groups, from the log to those compared.
        baseline: Those who followed the policy where it first changes something, and the others.
        missing: (column, rows without a value) of the state and of further columns, most first;
            only columns with such rows.
        sensitivity: Bounds by the strength of an unrecorded cause; None where there are none.
        unbounded: Why there are none, as a key of the catalogue's target.unbounded; '' where there
            are.
        refusal: What was wrong, where the bounds were refused.
    """

    standard: str
    use: Mapping[str, str]
    items: tuple[Item, ...]
    flow: tuple[tuple[str, int], ...]
    baseline: Baseline
    missing: tuple[tuple[str, int], ...]
    sensitivity: Sensitivity | None
    unbounded: str
    refusal: str

    @property
    def blanks(self) -> tuple[str, ...]:
        """Names of the items that are still to fill in."""
        return tuple(item.name for item in self.items if item.blank)

    def sections(self) -> list[tuple[str, list[Item]]]:
        """The items by section, in order."""
        return [(name, [i for i in self.items if i.section == name]) for name in SECTIONS]


def study_of(
    standard: str,
    use: Mapping[str, str],
    described: Described,
    log: Log,
    judged: Evaluation | None,
    t: Words,
    *,
    draws: int,
    seed: int,
    progress: Callable[[str, float], None] | None = None,
) -> Study:
    """Everything a standard asks for that can be answered from what is at hand.

    Args:
        standard: The standard.
        use: What people said, by key, already checked.
        described: The changes of the policy.
        log: The log as it was given.
        judged: The evaluation; None where there is none.
        t: The words of the page.
        draws: Number of bootstrap draws of the bounds.
        seed: Their seed.
        progress: Called with the stage and the share of it that is done.
    """
    bounds, why, refusal = None, "", ""
    if judged is None:
        why = "seen"
    elif not judged.facts["spoken"]:
        why = "silent"
    else:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they are the evaluation's, and told there
                bounds = sensitivity(
                    described.policy, log, draws=draws, seed=seed, progress=progress
                )
            if not bounds.facts["reached"]:
                bounds, why = None, "silent"
        except DprlError as error:
            why, refusal = "refused", error.what
    raw = _as_given(log, described.log)
    missing = _missing(raw)
    compared = baseline(raw, described.changed_at, described.took_at)
    flow = _flow(described, judged, compared)
    facts = Facts(described, raw, judged, t, bounds, why, missing, dict(flow))
    items = tuple(
        Item(section, name, asked, use.get(asked) if asked else None, tuple(facts.of(name)))
        for section, names in SECTIONS.items()
        for name, asked in names
    )
    return Study(standard, use, items, flow, compared, missing, bounds, why, refusal)


def _missing(log: Log) -> tuple[tuple[str, int], ...]:
    """Columns with missing values and on how many rows, the most first."""
    counts = list(zip(log.feature_names, log.missing.tolist(), strict=True))
    if log.also is not None:
        for j, name in enumerate(log.also.names):
            counts.append((name, int(np.isnan(log.also.numbers(j)).sum())))
    return tuple(sorted(((n, c) for n, c in counts if c), key=lambda one: -one[1]))


def _as_given(log: Log, settled: Log) -> Log:
    """The settled log's rows as they were given: gaps are not filled, categories not encoded.

    Where rows of an episode were left out, the settled log itself.
    """
    kept = set(settled.episodes)
    given = log.take([i for i, label in enumerate(log.episodes) if label in kept])
    return given if np.array_equal(given.starts, settled.starts) else settled


def _flow(
    described: Described, judged: Evaluation | None, compared: Baseline
) -> tuple[tuple[str, int], ...]:
    """From the log to those who are compared."""
    log = described.log
    rows = list(described.flow)
    if len(log.groups) < log.n_episodes:
        rows.append(("groups", len(log.groups)))
    rows += [
        ("reached", compared.followed + compared.otherwise),
        ("followed", compared.followed),
        ("otherwise", compared.otherwise),
    ]
    if judged is not None and judged.facts["spoken"]:
        rows.append(("always", int(judged.facts["followers"])))
    return tuple(rows)
