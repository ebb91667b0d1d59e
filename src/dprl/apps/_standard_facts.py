"""The sentences that log, policy, evaluation and certificate can say to the items of a standard."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from dprl._core.confounding import MOST
from dprl._core.html.catalogue import Words, known, short
from dprl.apps._changes import Described
from dprl.evaluation._result import ENOUGH, Evaluation
from dprl.evaluation._sensitivity_result import Sensitivity
from dprl.logs._probability_words import chances_words
from dprl.logs.log import Log

__all__ = ["Facts", "column_names"]

SHOWN = 12
"""Changes that are named in the strategies, and columns in the missing values, at most."""


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

    def _say(self, key: str, **values: Any) -> Markup:
        return self.t(f"target.fact.{key}", **values)

    def _quoted(self, sentence: str) -> Markup:
        words = self.t.quote(sentence)
        return words if isinstance(words, Markup) else Markup.escape(words)

    @property
    def _gamma(self) -> str:
        return self.t.general(float(self.described.policy.parameters.get("gamma", 1.0)))

    def _identification(self) -> list[Markup]:
        return [self._say("identification"), *self._effect()]

    def _data_sources(self) -> list[Markup]:
        d, made = self.described, self.described.policy.provenance
        lines = [
            self._say(
                "log", digest=d.log_digest[:12], episodes=d.log.n_episodes + d.left_out,
                steps=d.log.n_steps,
            )
        ]  # fmt: skip
        if "episodes" in made:
            lines.append(
                self._say(
                    "trained",
                    digest=str(made.get("log", ""))[:12] or "–",
                    episodes=made["episodes"],
                )
            )
        lines.append(self._say("seen" if d.seen else "unsure" if d.unsure else "unseen"))
        return lines

    def _eligibility(self) -> list[Markup]:
        return [self._say("eligibility", episodes=self.flow["given"])]

    def _strategies(self) -> list[Markup]:
        d = self.described
        names = d.policy.space.said
        listed = [
            self._say(
                "divided-change" if c.divided else "change",
                situation=self.t.situation(c.situation, names, short),
                usual=short(self.t.usual(c.usual, d.policy.actions)), suggested=short(c.suggested),
            )
            for c in d.changes[:SHOWN]
        ]  # fmt: skip
        lines = [self._say("strategies", share=self.t.percent(d.steps["deferred"])), *listed]
        if len(d.changes) > SHOWN:
            lines.append(self.t.many("target.fact.more-changes", len(d.changes) - SHOWN))
        if d.uncovered:
            lines.append(self.t.many("target.fact.scattered", d.uncovered))
        return [*lines, self._say("practice")]

    def _assignment(self) -> list[Markup]:
        return [self._quoted(chances_words(self.described.log)), self._say("assignment")]

    def _time_zero(self) -> list[Markup]:
        follow = self.described.log.follow_up
        end = (
            self._say("followed-for", time=self.t.part(follow))
            if follow
            else self._say("followed-on")
        )
        return [self._say("time-zero"), end]

    def _outcome(self) -> list[Markup]:
        name = self.described.log.columns.get("reward", "reward")
        return [self._say("outcome", column=short(name), gamma=self._gamma)]

    def _estimand(self) -> list[Markup]:
        return [self._say("estimand")]

    def _assumptions(self) -> list[Markup]:
        names = ("consistency", "exchangeability", "positivity", "independence", "same-practice")
        lines = [self._say(f"assume-{name}") for name in names]
        d = self.described
        cut = str(d.policy.parameters.get("cut") or "none")
        if d.cut or d.policy.provenance.get("cut_episodes"):
            lines.append(self._say("assume-cut", cut=cut))
        proved = d.policy.certificate
        if proved is not None:
            lines.append(self._say("assume-certificate"))
            lines += [self._quoted(line) for line in proved.assumptions]
        return lines

    def _analysis(self) -> list[Markup]:
        d, j = self.described, self.judged
        learner = str(d.policy.parameters.get("learner", "–"))
        lines = [self._say("learner", learner=learner)]
        if j is not None:
            lines.append(
                self._say(
                    "estimators", names=", ".join(j.rows), draws=int(j.settings["draws"]),
                    level=self.t.general(100 * j.settings["level"]), seed=str(j.settings["seed"]),
                    clip=self.t.general(j.settings["clip"]),
                )
            )  # fmt: skip
        else:
            lines.append(self._no_estimate())
        return lines

    def _no_estimate(self) -> Markup:
        return self._say("no-check")

    def _flow(self) -> list[Markup]:
        return [self._say("flow"), self._say("see-flow")]

    def _baseline(self) -> list[Markup]:
        return [self._say("see-baseline")]

    def _follow_up(self) -> list[Markup]:
        log = self.described.log
        lengths = log.lengths.tolist()
        lines = []
        if lengths:
            lines.append(
                self._say(
                    "lengths", median=self.t.general(statistics.median(lengths)),
                    least=min(lengths), most=max(lengths),
                )
            )  # fmt: skip
        lines.append(self._say("cut-episodes", n=self.described.cut))
        return lines

    def _missing_data(self) -> list[Markup]:
        log = self.raw
        if not self.missing:
            return [self.t.many("target.fact.nothing-missing", len(column_names(log)))]
        listed = ", ".join(
            f"{short(name)} ({self.t.count(rows)})" for name, rows in self.missing[:SHOWN]
        )
        lines = [self._say("missing", columns=listed, steps=log.n_steps)]
        if len(self.missing) > SHOWN:
            lines.append(self.t.many("target.fact.more-missing", len(self.missing) - SHOWN))
        return lines

    def _outcomes(self) -> list[Markup]:
        j = self.judged
        if j is None:
            return [self._no_estimate()]
        low, high = (self.t.number(j.behavior[end]) for end in ("low", "high"))
        return [self._say("usual", value=self.t.number(j.behavior["value"]), low=low, high=high)]

    def _effect(self) -> list[Markup]:
        j = self.judged
        if j is None:
            return [self._no_estimate()]
        if not j.facts["spoken"]:
            return [self._say("silent")]
        name = "DR" if known(j["DR"]["difference"]) is not None else "WPDIS"
        row = j[name]
        numbers = {
            k: self.t.number(row[f"difference{end}"], True)
            for k, end in (("difference", ""), ("low", "_low"), ("high", "_high"))
        }
        key = "effect" if known(row["difference_low"]) is not None else "effect-alone"
        level = self.t.general(100 * j.settings["level"])
        lines = [self._say(key, name=name, level=level, **numbers)]
        if j.facts["ess_differs"] < ENOUGH:
            lines.append(self._say("few", ess=self.t.fixed(j.facts["ess_differs"], 1)))
        return lines

    def _balance(self) -> list[Markup]:
        compared = self.described.balance if self.judged is None else self.judged.balance
        if compared is None or not compared.columns:
            return [self._say("no-balance")]
        worst = compared.worst()
        if worst:
            columns = short(", ".join(dict.fromkeys(row.column for row in worst)))
            return [self._say("unbalanced", columns=columns), self._say("see-sure")]
        return [self.t.many("target.fact.balanced", len(compared.columns)), self._say("see-sure")]

    def _sensitivity(self) -> list[Markup]:
        b = self.bounds
        if b is None:
            return [self._say(f"unbounded-{self.why}")]
        if b.gamma_star is None:
            lines = [self._say("gain-none" if b.gamma_point is None else "gain-unsure")]
        elif b.gamma_star >= MOST:
            lines = [self._say("gamma-most", star=self.t.general(MOST))]
        else:
            star = math.floor(100 * b.gamma_star + 1e-9) / 100  # down: never more than is known
            lines = [self._say("gamma-star", star=self.t.fixed(star, 2))]
        if b.facts["estimator"] == "WIS":
            lines.append(self._say("bounds-of-wis"))
        if self.judged is not None and self.judged.facts["ess_differs"] < ENOUGH:
            ess = self.t.fixed(self.judged.facts["ess_differs"], 1)
            lines.append(self._say("bounds-few", ess=ess))
        return lines

    def _limitations(self) -> list[Markup]:
        return [self._say("see-unknown")]
