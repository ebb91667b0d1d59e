"""The sentences that log, policy, evaluation and certificate can say to the items of a standard."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

from dprl._core.confounding import MOST
from dprl._core.html.catalogue import Words, known, short
from dprl._core.words import N_, duration
from dprl.apps._changes import Described
from dprl.evaluation._result import ENOUGH, Evaluation
from dprl.evaluation._sensitivity_result import Sensitivity
from dprl.logs._probability_words import chances_words
from dprl.logs.log import Log

__all__ = ["Facts", "column_names"]

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
                "Where {situation}: always {suggested}; practice is divided there.",
                situation=self.t.situation(c.situation, names, short),
                suggested=short(c.suggested),
            )
            if c.divided
            else self.t(
                "Where {situation}: {suggested} instead of {usual}.",
                situation=self.t.situation(c.situation, names, short),
                usual=short(self.t.part(c.usual)),
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
                    "Estimators: {names}; {level} % percentile intervals of {draws} bootstraps, "
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
        name = "DR" if known(j["DR"]["difference"]) is not None else "WPDIS"
        row = j[name]
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
