"""The whole job in one call: divide, learn, certify, judge, doubt, and say what came of it.

Whole groups are divided once. One part *learns*: the learner that fits the states proposes, and
issues only what it can claim at level δ. The other part *judges* what was issued; nothing is chosen
by it, so its interval is that of one policy named beforehand.

    states are features     `dprl.Rules`: its halves propose and certify inside the learning part
    states are labels       `dprl.Confident` at δ/2, and the gate over `dprl.DPRLDiscrete`
                            (large-sample, what to avoid included) at δ/2; by the union bound
                            whichever of them issues keeps its claim at δ. Confident goes first: it
                            needs fewer episodes, and asks for more (the Markov property).

**A trial** (actions by lot, the chances of all arms known) is another job. Which arms there are was
settled before anybody saw an outcome, so all patients judge them, and nothing is kept back:
`dprl.effects` has δ/2. What subgroups add is proposed and certified by the learning part at δ/2.
"Everyone" wins unless a split earns its place: the part that judges must say that following the
rules brings more than the best arm for everyone (or usual practice, where no arm is better), by
more than one standard error.

The answer is at most eight lines. Everything behind it is on the page and in the rows.
"""

from __future__ import annotations

import datetime
import functools
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from dprl._core.checks import Cut, check_delta, check_gamma, check_number, check_seed
from dprl._core.html.catalogue import speak
from dprl._core.table import Result, Table, many, to_json_value
from dprl._core.words import option, said_by, say, sentences, worded
from dprl.apps.reports.changes import as_called, describe_changes
from dprl.apps.reports.finding import agreement, places_of, title_of, verdict, verdict_of
from dprl.errors import DprlError, LogError, ParameterError, PolicyError
from dprl.evaluation._effects import against_everyone, effects, for_everyone
from dprl.evaluation._evaluate import evaluate
from dprl.evaluation._parts import by_part, by_part_for_everyone, parts_of, told_parts
from dprl.evidence.behavior import Behavior
from dprl.logs.censoring import refuse_between
from dprl.logs.design import all_chances
from dprl.logs.encoding.encoder import filled
from dprl.logs.log import Log, check_log, deal
from dprl.policies.base import only

if TYPE_CHECKING:
    from dprl.apps.reports._report import Report
    from dprl.apps.reports.changes import Change, Claim, Described
    from dprl.evaluation._effects import Effects
    from dprl.evaluation._sensitivity import Sensitivity
    from dprl.evaluation.result import Evaluation

REPORT, POLICY, ROWS = "report.html", "policy.dprl", "rows.parquet"
"""What is left in the folder of a study."""
LINES = 3
"""Claims that the answer tells one by one."""
TELLS = 1.05
"""A recorded column whose hiding moves the odds by less than this is no yardstick."""
Verdict = str
"""What came of a study: "agrees", "not confirmed", "contradicts", "everyone" or "nothing"."""


@dataclass(frozen=True, eq=False)
class Study(Result):
    """What came of a study: the answer, and what it rests on. From `dprl.study`.

    Attributes:
        policy: What was issued; it defers everywhere where nothing could be claimed.
        evaluation: What it brings on the part that judged; None where it differs from usual
            practice nowhere.
        sensitivity: What an unrecorded cause could do to that; None where it does not apply, or
            where all actions were given by lot with known chances.
        described: What it would change, with what the judging part says of each; None where it
            changes nothing.
        facts: The learner and why it was taken, the claim's level, how the log was divided, and
            what was assumed.
        warnings: What a reader must be careful about, one sentence each.
        folder: Where the files are; None where nothing was written.
        effects: What each arm brings for everyone; None where it is no trial.

    Example:
        >>> import dprl
        >>> result = dprl.study(dprl.envs.care_pathway().sample(2000, seed=0))
        >>> result.verdict
        'agrees'
        >>> len(str(result).splitlines()) <= 8
        True
    """

    HEAD: ClassVar[str] = "Study"

    policy: Any
    evaluation: Evaluation | None
    sensitivity: Sensitivity | None
    described: Described | None
    facts: dict[str, Any]
    warnings: tuple[str, ...]
    folder: Path | None = None
    effects: Effects | None = None

    @property
    def finding(self) -> str:
        """What to do, for whom, in one sentence; the heading of the page.

        Returns:
            The sentence.

        Example:
            >>> import dprl
            >>> dprl.study(dprl.envs.care_pathway().sample(100, seed=0)).finding
            'Nothing to change is sure: usual practice stays, in every situation.'
        """
        if self.described is None and (refused := _refused(self.facts["parts"])):
            return refused
        described = None if self.described is None else as_called(self.described)
        return title_of(described, self.evaluation, self._arms)

    @property
    def _arms(self) -> Effects | None:
        """The arms of a trial, where they alone are what came of it."""
        return _alone(self.effects, self.facts["acts"]) if self.evaluation is None else None

    @property
    def _everyone(self) -> bool:
        """Whether one arm for everyone is what came of a trial."""
        return self._arms is not None and self.facts["acts"]

    @property
    def changes(self) -> tuple[Change, ...]:
        """What it would change, situation by situation.

        Returns:
            The changes, the surest first.

        Example:
            >>> import dprl
            >>> dprl.study(dprl.envs.care_pathway().sample(100, seed=0)).changes
            ()
        """
        return () if self.described is None else self.described.changes

    @property
    def always(self) -> list[tuple[str, str, float]]:
        """Where the usual action is to be taken always: where, the action, its share today.

        Returns:
            Confirmations that change what is done, the least usual first; those that change less
            than a tenth of the decisions are left out where there are changes.

        Example:
            >>> import dprl
            >>> dprl.study(dprl.envs.care_pathway().sample(100, seed=0)).always
            []
        """
        return [
            (str(places_of(claim, self.described)), str(claim.suggested), claim.share)
            for claim in self._claims if self.described is not None and claim.always
        ]  # fmt: skip

    @property
    def _claims(self) -> tuple[Claim, ...]:
        return () if self.described is None else self.described.claims

    @property
    def verdict(self) -> Verdict:
        """What came of it, in a word or two.

        Returns:
            "nothing" where nothing could be claimed; "everyone" where one arm of a trial is better
            for everyone, which all patients have judged; else what the judging part says of the
            policy: "agrees" (its interval lies above 0), "contradicts" (below) or "not confirmed".

        Example:
            >>> import dprl
            >>> dprl.study(dprl.envs.care_pathway().sample(100, seed=0)).verdict
            'nothing'
        """
        if self.evaluation is None:
            return "everyone" if self._everyone else "nothing"
        said = {"better": "agrees", "worse": "contradicts"}
        return said.get(agreement(self.evaluation), "not confirmed")

    def answer(self) -> list[str]:
        """The answer in at most eight lines, the finding first.

        Returns:
            The lines.

        Example:
            >>> import dprl
            >>> result = dprl.study(dprl.envs.care_pathway().sample(2000, seed=0))
            >>> print(result.answer()[0])
            When state = worse: fluids, not antibiotics. When state = fever: antibiotics, not watch.
        """
        f, lines = self.facts, [self.finding]
        if self.effects is not None:
            lines += self._trial()
        elif self.evaluation is not None:
            lines.append(self._judged())
            lines += self._told(LINES)
            if self.sensitivity is not None:
                lines += [_hidden(self.sensitivity)] if self.verdict == "agrees" else []
            elif self.evaluation.facts["recorded"] == 1:
                lines.append("Actions were given by lot with known chances: nobody's choice.")
        if f["learner"] == MAIN and not f["acts"]:
            lines.append(BY_LOT)
        elif f["learner"] == MAIN:
            lines.append(f"What is suggested is no better with a chance of at most "
                         f"{100 * f['level']:g} %: {f['claim']}.")  # fmt: skip
        else:
            lines.append(self._learned())
        if not f["better"]:
            lines[-1] += " Larger is assumed to be better."
        if f["single"] and self.evaluation is None and self.effects is None:
            lines.append(LOT)
        lines += told_parts(f["parts"])[bool(_refused(f["parts"])) :]
        if self.folder is not None:
            lines.append(f"Written to {self.folder}: {REPORT}, {POLICY}, {ROWS}.")
        return lines

    def _trial(self) -> list[str]:
        """What a trial says beside the finding: the arms, and what subgroups add."""
        assert self.effects is not None
        f, arms = self.facts, self.effects.rows
        n = f["learned"] + f["judged"]
        lines = [
            f"Randomised, {n:,} {f['counted']}, {many(arms, 'arm')} against "
            f"{self.effects.against}; all intervals hold at once with "
            f"{100 * (1 - self.effects.delta):g} %."
        ]
        if self.evaluation is not None:
            lines.append(self._judged())
            lines += self._told(LINES - 1)
        else:
            named = () if self._arms is None else self._arms.named
            told = [row for row in arms if row["arm"] not in named]  # the finding tells these
            lines += self.effects.told(told, LINES)
        return [*lines, f["subgroups"]]

    def _judged(self) -> str:
        """What those who judge say of the whole."""
        assert self.described is not None
        said = str(verdict_of(self.evaluation, as_called(self.described)))
        return said[:1].upper() + said[1:]

    def _told(self, most: int) -> list[str]:
        """What the judging part says of the first claims, a line each."""
        if self.described is None:
            return []
        shown = as_called(self.described)
        told = [claim for claim in shown.claims if not claim.always][:most]
        return [_of_claim(claim, shown, self.facts["counted"]) for claim in told]

    def _learned(self) -> str:
        """Who learned from how many, and what that is worth."""
        f = self.facts
        of = f"{f['learned']:,} of {f['learned'] + f['judged']:,} {f['counted']}"
        later = "" if f["gamma"] == 1 else f": what comes a step later counts {f['gamma']:g} of it"
        if self.evaluation is None:
            looked = f"{f['learner']} ({f['why']}) looked at {of} (γ = {f['gamma']:g}{later})."
            return f"{looked}{self._again()}"
        return (
            f"{f['learner']} ({f['why']}) learned from {of} (γ = {f['gamma']:g}{later}); its "
            f"claim may be false with probability {f['level']:g}.{self._again()}"
        )

    def _again(self) -> str:
        """How often other divisions say the same; "" where none were made."""
        same, n = self.facts["same"], self.facts["divisions"]
        if n is None:
            return ""
        if self.evaluation is None and same < n:
            where = f"In {n - same} of {n} other divisions something is sure"
            return f" {where}: more {self.facts['counted']} may settle it."
        if 2 * same < n:
            of_it = f"CHANGES with the division (same in {same} of {n})"
            if self.verdict == "agrees":
                return (
                    f" Which situations it names {of_it}: those who judge agree with the whole; do "
                    "not act on single situations."
                )
            return f" It {of_it}: do not act on it."
        return f" Another division says the same in {same} of {n}."

    def lines(self) -> list[str]:
        """The answer; `str` prints it alone.

        Returns:
            The lines of `answer`.

        Example:
            >>> import dprl
            >>> result = dprl.study(dprl.envs.care_pathway().sample(100, seed=0))
            >>> result.lines()[0]
            'Nothing to change is sure: usual practice stays, in every situation.'
        """
        return self.answer()

    def table(self) -> Table:
        """What would change: for whom, what, instead of what, and what the judging part says.

        Returns:
            One row per change.

        Example:
            >>> import dprl
            >>> dprl.study(dprl.envs.care_pathway().sample(2000, seed=0)).table()["do"]
            ['fluids', 'antibiotics']
        """
        rows = [
            {
                "for whom": c.situation, "do": str(c.suggested), "instead of": str(c.instead),
                "better by": c.check.advantage, "low": c.check.low, "high": c.check.high,
                "took": c.check.took, "others": c.check.others, "judged": verdict(c.check),
            }
            for c in self.changes
        ]  # fmt: skip
        rows += [
            {
                "for whom": where, "do": f"always {do}", "instead of": f"in {share:.0%}",
                "better by": None, "low": None, "high": None, "took": None, "others": None,
                "judged": "with the whole",
            }
            for where, do, share in self.always
        ]  # fmt: skip
        names = ("for whom", "do", "instead of", "better by", "low", "high", "took", "others",
                 "judged")  # fmt: skip
        columns = {name: [row[name] for row in rows] for name in names}
        return Table(columns, many(rows, "change"), "Ends are those of each row alone.")

    def to_dict(self) -> dict[str, Any]:
        """Everything as values that JSON can carry.

        Returns:
            Name → value.

        Example:
            >>> import dprl
            >>> dprl.study(dprl.envs.care_pathway().sample(100, seed=0)).to_dict()["verdict"]
            'nothing'
        """
        return {
            "verdict": self.verdict,
            "answer": self.answer(),
            "changes": to_json_value(self.table().to_dicts()),
            "evaluation": None if self.evaluation is None else self.evaluation.to_dict(),
            "sensitivity": None if self.sensitivity is None else self.sensitivity.to_dict(),
            "effects": None if self.effects is None else self.effects.to_dict(),
            "facts": to_json_value(self.facts),
            "policy": self.policy.digest(),
            "warnings": list(self.warnings),
            "folder": None if self.folder is None else str(self.folder),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Every number that is shown, one row each, in one table that does not change its columns.

        Returns:
            Rows with the keys part, item, name, value and text.

        Example:
            >>> import dprl
            >>> rows = dprl.study(dprl.envs.care_pathway().sample(100, seed=0)).rows()
            >>> rows[0]["part"], rows[0]["name"]
            ('study', 'verdict')
        """
        told = self.to_dict()
        found: list[dict[str, Any]] = []
        parts: list[tuple[str, str, Any]] = [("study", "", {"verdict": told["verdict"]})]
        parts += [("study", "", told["facts"])]
        parts += [("change", str(i), row) for i, row in enumerate(told["changes"], 1)]
        if self.evaluation is not None:
            parts += [("evaluation", name, row) for name, row in self.evaluation.rows.items()]
            parts += [("evaluation", "usual practice", self.evaluation.behavior)]
            parts += [("evaluation", "facts", self.evaluation.facts)]
        if self.effects is not None:
            parts += [("arm", str(row["arm"]), row) for row in self.effects.rows]
        if self.sensitivity is not None:
            parts += [("sensitivity", f"{r['gamma']:g}", r) for r in self.sensitivity.rows]
        for part, item, values in parts:
            for name, value in to_json_value(dict(values)).items():
                number = isinstance(value, int | float)
                found.append(
                    {
                        "part": part, "item": item, "name": name,
                        "value": float(value) if number else np.nan,
                        "text": "" if number or value is None else str(value),
                    }
                )  # fmt: skip
        return found

    def brief(self) -> list[str]:
        """What is printed of it: the answer, and what to be wary of.

        Returns:
            At most eight lines.

        Example:
            >>> import dprl
            >>> len(dprl.study(dprl.envs.care_pathway().sample(100, seed=0)).brief()) <= 8
            True
        """
        return [*self.answer(), *self._warned()][:8]


def _refused(parts: Sequence[Mapping[str, Any]]) -> str:
    """That what gains is not issued since it harms what is guarded, and by how much; '' if not."""
    told = told_parts([row for row in parts if row["refused"]])
    return f"Nothing is changed, whatever it gains. {told[0]}" if told else ""


def _hidden(doubt: Sensitivity) -> str:
    """How strong an unrecorded cause must be for the gain to be none, beside a recorded one."""
    star = doubt.gamma_star
    if star is None:
        return "Without any unrecorded cause the gain is not sure by this look (Γ = 1)."
    said = (
        "An unrecorded cause could explain all of it only if it moved the odds of a suggestion by "
        f"more than {star:.2g} times"
    )
    known = max(doubt.yardstick, key=lambda row: row["gamma"], default=None)
    if known is None or known["gamma"] < TELLS:
        return f"{said}."
    return f"{said}; hiding {known['column']!r} would be {known['gamma']:.2g} times."


def _of_claim(claim: Claim, described: Any, counted: str) -> str:
    """What the judging part says of one claim."""
    c = claim.check
    who = f"{c.took:,} {counted} took it, {c.others:,} did not"
    where = f"- {places_of(claim, described)}: {claim.suggested}"
    if c.unfair:
        return f"{where}: {who}; recorded chances differ, and not all are on record: no comparison."
    if c.advantage is None or c.low is None or c.high is None:
        return f"{where}: {who}{'' if described.weighed else '; too few to tell'}."
    return f"{where}: {c.outcome.apart(c.advantage, c.low, c.high)[1]}; {who}."


# --- The study


def study(
    log: Log,
    out: str | os.PathLike[str] | None = None,
    *,
    gamma: float | None = None,
    delta: float = 0.05,
    share: float = 0.6,
    n_min: int = 20,
    cut: Cut | None = None,
    by: str | Sequence[str] | None = None,
    draws: int = 2_000,
    seed: int = 0,
    title: str | None = None,
    date: datetime.date | None = None,
    lang: str = "en",
    progress: Callable[[str, float], None] | None = None,
) -> Study:
    """The whole job: divide, learn, certify, judge, doubt, and say what came of it.

    Args:
        log: The log, in memory.
        out: A folder for the page (report.html), the policy (policy.dprl) and every number that is
            shown (rows.parquet); it is made where it does not exist. A policy that lies there
            already is taken if it is the one that would be learned. Default None: nothing is
            written.
        gamma: Discount per step, in (0, 1]. Default None: 1 where episodes have one decision or
            their outcome comes at the end alone, else 0.99; the answer says which.
        delta: The chance that what is claimed is false, in (0, 1). Default 0.05.
        share: The share of the groups that learns, in (0, 1); the others judge. Default 0.6.
        n_min: Groups that must have taken a suggestion, and groups that must not; a whole number
            >= 2. Default 20.
        cut: What to do with cut episodes, as for the learners. Default None: as ended, with a
            warning.
        by: Columns that make subgroups, as for `dprl.evaluate`. Default None: none.
        draws: Number of bootstrap draws. Default 2,000.
        seed: Seed of everything random. The same log and settings give the same policy and rows.
            Default 0.
        title: Heading of the page. Default None: the finding.
        date: Date printed on the page. Default None: today (UTC).
        lang: Language of the page: "en" or "de". Default "en".
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The answer and what it rests on.

    Raises:
        ParameterError: A setting is outside its range.
        LogError: The log is too small to be divided, or cannot be learned from.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(2000, seed=0)
        >>> print(dprl.study(log))  # doctest: +ELLIPSIS
        When state = worse: fluids, not antibiotics. When state = fever: antibiotics, not watch.
        The others, in 11 divisions, agree: the return higher by 0.076 (0.039 to 0.114).
        ...
    """
    check_log(log)
    refuse_between(log)
    check_delta(delta)
    check_number("share", share, "(0, 1)")
    check_seed(seed)
    speak(lang)  # what is refused is refused before anything is computed
    discount = check_gamma(_discount(log) if gamma is None else gamma)
    folder = None if out is None else _folder(Path(out))
    tell = progress or (lambda stage, share: None)
    tell("dividing the log", 0.0)
    learn, judge = log.split(share, seed=seed)
    if not (learn.n_episodes and judge.n_episodes):
        raise LogError(
            f"a log of {many(log.groups, 'group')} cannot be divided in two parts.",
            do="Read more groups (or episodes).",
        )
    settings = {"gamma": discount, "cut": cut}
    features = log.features is not None
    kept = None if folder is None else folder / POLICY
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        arms, single = None, None
        if all_chances(log) is not None:
            tell("main effects of all arms", 0.0)
            arms, single = _arms(log, settings, float(delta), seed)
        tell("learning and certifying", 0.0)
        level = float(delta) if arms is None else float(delta) / 2
        policy, name, why, claim = _issued(
            learn, settings, level, n_min, seed, features, kept, progress
        )
        subgroups, by_all = "", False
        if arms is not None:
            subgroups, by_all = _split(policy, single, judge, arms, discount, cut)
            if by_all:
                if single is not None:
                    policy = for_everyone(log, arms, gamma=discount, cut=cut)
                elif policy.decisions.speaks.any():
                    policy = only(policy, ())
                name, why, claim = MAIN, "a trial", ALL_PATIENTS
            else:
                claim = f"{claim}; δ/2, as the arms have δ/2"
                rest_of_them = features and all(rule.conditions for rule in policy.rules)
                if single is not None and rest_of_them:  # the arm, wherever no rule holds
                    rest = for_everyone(learn, arms, gamma=discount, cut=cut).rules[0]
                    bare = {k: v for k, v in rest.facts.items() if k in UNCLAIMED}
                    policy = replace(policy, rules=(*policy.rules, replace(rest, facts=bare)))
            if kept is not None:
                policy.save(kept)
        acts, parts = bool(policy.decisions.speaks.any()), None
        if acts and any(parts_of(log)):
            tell("parts of the outcome", 0.0)
            parts = (
                by_part_for_everyone(log, arms.best, seed=seed)
                if by_all and arms is not None
                else by_part(policy, judge, draws=min(draws, 1_000), seed=seed)
            )
            if any(parts["refused"]):
                policy, acts = only(policy, ()), False
                if kept is not None:
                    policy.save(kept)
        again: Again | None = None
        spread: Sequence[Sequence[float]] = ()
        if not by_all and (acts or parts is None):
            tell("other divisions", 0.0)
            again = _told(folder, policy) or _again(policy, log, float(share), seed, arms is None)
            spread = () if again is None else again[2]
        judged, described, doubt = None, None, None
        rows_of_parts = [] if parts is None else parts.to_dicts()
        page = functools.partial(
            _page, policy, out=folder, by=by, draws=draws, seed=seed, title=title, date=date,
            lang=lang, progress=progress, effects=arms,
            note=sentences(subgroups, *told_parts(rows_of_parts)),
        )  # fmt: skip
        if acts and not by_all:
            judged, described, doubt = _judged(
                policy, judge, folder, by, draws, seed, page, progress, spread
            )
        elif folder is not None:
            alone = _alone(arms, acts)
            heading = title or (_refused(rows_of_parts) if alone is None else "") or None
            page(judge if alone is None else log, effects=alone, title=heading)
    facts = {
        "learner": name, "why": why, "level": float(delta), "claim": claim, "gamma": discount,
        "share": float(share), "n_min": n_min, "seed": seed,
        "better": log.outcome.better, "single": log.n_steps == log.n_episodes,
        "learned": len(learn.groups), "judged": len(judge.groups), "features": features,
        "counted": "episodes" if len(log.groups) == log.n_episodes else "groups",
        "log": log.digest(), "acts": acts, "subgroups": subgroups, "policy": policy.digest(),
        "same": None if again is None else again[0],
        "divisions": None if again is None else again[1],
        "spread": [list(one) for one in spread],
        "parts": [] if parts is None else parts.to_dicts(),
    }  # fmt: skip
    said = tuple(dict.fromkeys(said_by(w) for w in caught))
    shown = None if judged is None else described
    result = Study(policy, judged, doubt, shown, facts, said, folder, arms)
    if folder is not None:
        from dprl.logs.reading.tables import write_rows

        tell("writing the rows", 0.0)
        write_rows(result.rows(), folder / ROWS)
    return result


MAIN = "Main effects"
ALL_PATIENTS = "half of it for the arms, which all judged, half for subgroups (large-sample)"
LOT = worded(
    "If actions were given by lot, say {design}: then all judge them, and none are kept aside.",
    design=option("design", "randomised"),
)
BY_LOT = "All judged the arms; the part that learns was asked for subgroups."
UNCLAIMED = ("steps", "groups", "groups_took", "groups_others", "share_usual")
"""What is on record of the arm for everyone where rules come first: no claim by itself."""
NO_SUBGROUP = say("No subgroup is known to differ.")


def _arms(log: Log, settings: dict[str, Any], delta: float, seed: int) -> tuple[Effects, Any]:
    """What each arm brings for everyone, and the code of the one that is surely better."""
    found = effects(log, delta=delta, seed=seed, **settings)
    return found, None if found.best is None else log.actions.index(found.best)


def _split(
    policy: Any, single: int | None, judge: Log, arms: Effects, gamma: float, cut: Cut | None
) -> tuple[str, bool]:
    """What subgroups add, in a sentence, and whether they give way to what holds for everyone.

    Args:
        policy: What the learning part issued.
        single: The code of the arm that is better for everyone; None where none is.
        judge: The part that judges.
        arms: The arms.
        gamma: Discount per step.
        cut: What to do with cut episodes.
    """
    if not policy.decisions.speaks.any():
        return NO_SUBGROUP, True
    if single is None:
        worse = {row["arm"] for row in arms.rows if row["verdict"] == "worse"}
        here = policy.decisions
        named = {here.actions[a] for a in here.named[here.speaks].tolist()}
        if named <= worse and not (here.choice[here.speaks] >= 0).any():
            return NO_SUBGROUP, True  # it says less than all who judged the arms do
        words = [say("Followed by everyone, no arm is surely better; the rules are for some.")]
        if worse:  # all judged that, the rules a part
            words.insert(0, arms.finding())
        return sentences(*words), False
    found = against_everyone(policy, judge, single, gamma, cut)
    if found is None:
        return NO_SUBGROUP, True
    mean, se = found
    ends = judge.outcome.ends(mean - 2 * se, mean + 2 * se)
    more = judge.outcome.apart(judge.outcome.shown(mean), *ends)[1]
    if mean > se:
        best = arms.called.act(arms.best)
        return say(
            "Against {arm} for everyone, on the part that judges: {gain}.", arm=best, gain=more
        ), False
    return say("Different arms for subgroups add nothing that is sure: {gain}.", gain=more), True


def _discount(log: Log) -> float:
    """1 where episodes have one decision, or a reward on their last row alone; else .99."""
    last = np.zeros(log.n_steps, bool)
    last[log.starts[1:] - 1] = True
    return 1.0 if not log.reward[~last].any() else 0.99


def _folder(out: Path) -> Path:
    """The folder of a study, made where it does not exist."""
    if out.exists() and not out.is_dir():
        raise ParameterError(f"{str(out)!r} is no folder.", do="Name a folder.")
    if not out.resolve().parent.is_dir():
        raise ParameterError(f"the folder of {str(out)!r} does not exist.", do="Make it first.")
    out.mkdir(exist_ok=True)
    return out


def _issued(
    learn: Log, settings: dict[str, Any], delta: float, n_min: int, seed: int, features: bool,
    kept: Path | None, progress: Callable[[str, float], None] | None,
) -> tuple[Any, str, str, str]:  # fmt: skip
    """What can be claimed from the learning part: policy, learner, why it was taken, its claim."""
    from dprl.learners.confident import Confident
    from dprl.learners.discrete import DPRLDiscrete
    from dprl.learners.rules.learner import Rules

    if features:
        rules = Rules(**settings, delta=delta, n_min=n_min, seed=seed)
        policy = _known(kept, learn, rules) or rules.fit(learn, progress=progress)
        if kept is not None:
            policy.save(kept)
        why = "states are features"
        return policy, "Rules", why, "large-sample, for all rules and the whole at once"
    sure = Confident(**settings, risk=delta / 2, n_min=n_min, keep=KEEP, seed=seed)
    policy = _known(kept, learn, sure) or sure.fit(learn, progress=progress)
    why = "states are labels"
    name, claim = "Confident", "large-sample, for the policy as a whole; δ/2, as the gate has δ/2"
    if not policy.decisions.speaks.any():
        from dprl.certificate._gate import gate

        ended = {"cut": "terminal"} if settings["cut"] is None and len(learn.cut_episodes) else {}
        single = DPRLDiscrete(**{**settings, **ended}, n_min=n_min)  # the certificate says so
        gated = gate(single, learn, delta=delta / 2, grade="large-sample", seed=seed)
        if gated.decisions.speaks.any():
            policy, name = gated, "The gate"
            why = "states are labels; each change by itself"
            claim = "large-sample, for all changes at once; δ/2, as Confident has δ/2"
    if kept is not None:
        policy.save(kept)
    return policy, name, why, claim


KEEP = 0.9
"""Of the policies that bring this share of what the best one does, the one that changes least."""
AGAIN, FEW, FEWER, ALIKE = 10, 4, 2, 0.9
"""Other divisions of a log with labels, of a longer one or over features, over features beyond
`RULED` decisions; and the share of decisions that makes policies alike."""
RULED, MANY_STEPS = 5_000, 100_000
"""Beyond the second number of steps a log is long; over features it is then not divided anew."""
Again: TypeAlias = tuple[int, int, Sequence[Sequence[float]]]


def _again(policy: Any, log: Log, share: float, seed: int, anew: bool) -> Again | None:
    """How many of some other divisions say the same; None where the learner is not asked again.

    Also what their policies bring, judged by those who did not learn them: difference, lower and
    upper end. The log is divided anew, and the same learner asked; what is compared are the
    changes. The divisions take turns on a circle of groups, so that each group judges about equally
    often. Of a long log over features, and of a trial (whose arms hang on no division), only the
    divisions inside of the part that learned are told.
    """
    from dprl.learners.confident import Confident
    from dprl.learners.rules.learner import Rules

    own, inside = dict(policy.parameters), policy.provenance.get("rules")
    learners = {"Confident": Confident, "Rules": Rules}
    learner_of: Any = learners.get(own.pop("learner", ""))
    if inside and (anew is False or log.n_steps > MANY_STEPS):
        searched = sorted(inside["divisions"], key=lambda one: one["worth"])  # the best comes last
        told = {one["seed"]: one["same"] for one in searched if one["seed"] != inside["division"]}
        return sum(part >= ALIKE for part in told.values()), len(told), ()
    if learner_of is None:
        return None
    names = {field.name for field in fields(learner_of)}
    learner = learner_of(**{name: value for name, value in own.items() if name in names})
    if log.features is None:
        states, count = log.states, log.n_states
        weight = np.bincount(log.codes(), minlength=count)
    else:
        states, row = policy.space.of_log(filled(log))
        weight = np.bincount(row, minlength=len(states))
    here, first, same = policy.at(states), _named(policy, states), 0
    weight = weight * (here.changes if here.changes.any() else here.speaks)
    n, spread = FEW if inside or log.n_steps > MANY_STEPS else AGAIN, list[list[float]]()
    n = FEWER if inside and log.n_steps > RULED else n
    for other in range(1, n + 1):
        side = deal(len(log.groups), share, seed, other / (n + 1))[log.group]
        part, rest = (log.take(np.flatnonzero(at)) for at in (side, ~side))
        one = learner.fit(part)
        if not here.speaks.any():
            same += not one.decisions.speaks.any()
            continue
        equal = _named(one, states) == first
        same += bool((equal * weight).sum() >= ALIKE * weight.sum())
        if one.decisions.speaks.any():
            plain = inside and not len(rest.cut_episodes)  # one division into folds is enough here
            known = Behavior.fit(filled(rest), seed=seed) if plain else None
            judged = evaluate(one, rest, behavior=known, draws=100, seed=seed)
            row_of = judged.rows[judged.headline]
            spread.append([row_of[name] for name in ENDS])
    return same, n, [one for one in spread if np.isfinite(one).all()]


ENDS = ("difference", "difference_low", "difference_high")


def _told(folder: Path | None, policy: Any) -> Again | None:
    """The same, where the rows in the folder tell it of this policy; its file tells the seed."""
    from dprl.logs.reading.tables import read_rows

    if folder is None or not (folder / ROWS).is_file():
        return None
    try:
        rows = read_rows([folder / ROWS])
        kept = {
            name: (value, text)
            for part, name, value, text in zip(
                rows["part"], rows["name"], rows["value"], rows["text"], strict=True
            )
            if part == "study"
        }
        if kept["policy"][1] == policy.digest():
            spread = json.loads(kept["spread"][1])
            return int(kept["same"][0]), int(kept["divisions"][0]), spread
    except (DprlError, KeyError, ValueError):  # no rows of ours
        pass
    return None


def _named(policy: Any, states: Sequence[Any]) -> np.ndarray:
    """What a policy says in these states, as text."""
    here = policy.at(states)
    labels = np.array([*map(str, policy.actions), ""], object)
    return labels[np.where(here.speaks, here.named, -1)]


def _known(kept: Path | None, learn: Log, learner: Any) -> Any:
    """A policy that lies in the folder already, if it is what this learner makes of this log."""
    if kept is None or not kept.is_file():
        return None
    from dprl.policies.loading import load

    try:
        policy = load(kept)
    except DprlError:
        return None
    made = policy.provenance.get("log") == learn.digest()
    return policy if made and dict(policy.parameters) == learner.settings() else None


def _judged(
    policy: Any, judge: Log, folder: Path | None, by: Any, draws: int, seed: int,
    page: Callable[..., Report], progress: Callable[[str, float], None] | None,
    spread: Sequence[Sequence[float]],
) -> tuple[Evaluation | None, Described, Sensitivity | None]:  # fmt: skip
    """What the judging part says: of the whole, of each change, and of hidden causes."""
    from dprl.evaluation._sensitivity import sensitivity
    from dprl.policies.familiar import like_policy

    judged: Evaluation | None = None
    if folder is None or spread:
        judged = evaluate(policy, judge, draws=draws, seed=seed, by=by, progress=progress)
        judged = judged.amid(spread)
    if folder is None:
        described = describe_changes(policy, like_policy(policy, judge), seed=seed)
        described = described.judged(None if judged is None else judged.rules)
    else:
        written = page(judge, evaluation=judged)
        judged, described = written.evaluation, written.described
    doubt = None
    if judged is not None and judged.facts["recorded"] == 1:  # by lot: nothing is hidden
        return judged, described, doubt
    try:
        doubt = sensitivity(policy, judge, draws=min(draws, 1_000), seed=seed, progress=progress)
    except (LogError, ParameterError, PolicyError) as error:
        warnings.warn(f"no bounds for unrecorded causes: {error.what}", stacklevel=2)
    return judged, described, doubt


def _page(
    policy: Any, judge: Log, *, out: Path | None, effects: Effects | None, **said: Any
) -> Report:
    """The page."""
    from dprl.apps.reports._report import report

    assert out is not None
    written = report(policy, judge, out / REPORT, effects=effects, **said)
    alone = effects is not None and said.get("evaluation") is None  # arms, judged by all
    if policy.decisions.speaks.any() and written.evaluation is None and not alone:
        raise LogError(
            f"the part that judges cannot be told from the part that learned: {written.seen}.",
            do="Name what stays together (group), and look for rows that stand twice.",
        )
    return written


def _alone(arms: Effects | None, acts: bool) -> Effects | None:
    """The arms, but where one that is better was refused for what is guarded."""
    return arms if arms is not None and (acts or arms.best is None) else None
