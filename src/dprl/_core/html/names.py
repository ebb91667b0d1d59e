"""What pages call things that a program chooses: sections, columns, verdicts, items.

English names by kind and key, collected for translation by `N_`. A name has one form, or two: for
one thing, and for any other number.
"""

from __future__ import annotations

from collections.abc import Mapping

from dprl._core.words import N_, NN_

__all__ = ["NAMES"]


NAMES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "month": {
        "1": (N_("January"),),
        "2": (N_("February"),),
        "3": (N_("March"),),
        "4": (N_("April"),),
        "5": (N_("May"),),
        "6": (N_("June"),),
        "7": (N_("July"),),
        "8": (N_("August"),),
        "9": (N_("September"),),
        "10": (N_("October"),),
        "11": (N_("November"),),
        "12": (N_("December"),),
    },
    "target.section": {
        "use": (N_("Intended use"),),
        "abstract": (N_("Abstract"),),
        "introduction": (N_("Introduction"),),
        "methods": (N_("Methods: the target trial, and how it was emulated"),),
        "results": (N_("Results"),),
        "discussion": (N_("Discussion"),),
        "other": (N_("Other information"),),
    },
    "target.item": {
        "setting": (N_("Where it is to be used"),),
        "users": (N_("Who is to use it"),),
        "not-for": (N_("What it must not be used for"),),
        "contact": (N_("Whom to ask"),),
        "identification": (N_("Identification and finding"),),
        "background": (N_("Background"),),
        "question": (N_("Causal question"),),
        "rationale": (N_("Why a trial is emulated"),),
        "data-sources": (N_("Data sources"),),
        "eligibility": (N_("Eligibility"),),
        "strategies": (N_("Strategies that are compared"),),
        "assignment": (N_("Assignment"),),
        "time-zero": (N_("Time zero and follow-up"),),
        "outcome": (N_("Outcome"),),
        "estimand": (N_("Estimand (causal contrast)"),),
        "assumptions": (N_("Assumptions"),),
        "analysis": (N_("Analysis"),),
        "flow": (N_("Selection and flow"),),
        "baseline": (N_("Baseline"),),
        "follow-up": (N_("Follow-up"),),
        "missing-data": (N_("Missing values"),),
        "outcomes": (N_("Outcome under usual practice"),),
        "effect": (N_("Estimated effect"),),
        "balance": (N_("Balance"),),
        "sensitivity": (N_("Sensitivity and further analyses"),),
        "interpretation": (N_("Interpretation"),),
        "limitations": (N_("Limitations"),),
        "ethics": (N_("Ethics"),),
        "registration": (N_("Registration and protocol"),),
        "data-access": (N_("Access to data and code"),),
        "funding": (N_("Funding"),),
        "conflicts": (N_("Conflicts of interest"),),
    },
    "target.flow": {
        "source": (N_("Episodes in the data"),),
        "dropped": (N_("of these: left out, because a value is missing"),),
        "given": (N_("Episodes in the log"),),
        "cut": (N_("of these: observation was cut before the end"),),
        "left-out": (N_("of these: left out, because what came after the cut is not known"),),
        "analysed": (N_("Episodes analysed"),),
        "after-cut": (
            N_(
                "of these: came after a cut one of their group; left out of comparisons of first "
                "decisions alone"
            ),
        ),
        "groups": (N_("Groups of these episodes, such as patients, which count as one"),),
        "reached": (N_("Reach a decision that the policy would change"),),
        "followed": (N_("Followed it at their first such decision"),),
        "otherwise": (N_("Did otherwise there"),),
        "always": (
            N_("Took the suggestion at every decision at which the policy differs from practice"),
        ),
    },
    "sure.in": {
        "training": (N_("training"),),
        "the model": (N_("the model"),),
        "returns to the same state": (N_("returns to the same state"),),
        "returns of first visits": (N_("returns of first visits"),),
    },
    "finding.estimated": {
        "usual": (
            N_(
                "Estimated difference to usual practice ({name}): {difference}, {level} % "
                "interval {low} to {high}"
            ),
        ),
        "mixture": (
            N_(
                "Estimated difference to what is done now, all actions together ({name}): "
                "{difference}, {level} % interval {low} to {high}"
            ),
        ),
    },
    "finding.estimated-alone": {
        "usual": (
            N_(
                "Estimated difference to usual practice ({name}): {difference}, without an interval"
            ),
        ),
        "mixture": (
            N_(
                "Estimated difference to what is done now, all actions together ({name}): "
                "{difference}, without an interval"
            ),
        ),
    },
    "nav": {
        "finding": (N_("The finding"),),
        "changes": (N_("What would change"),),
        "silent": (N_("Where it stays silent"),),
        "sure": (N_("How sure"),),
        "unknown": (N_("What it cannot know"),),
        "standard": (N_("After TARGET"),),
        "origin": (N_("Where it comes from"),),
    },
    "count": {
        "episode": NN_("{n} episode", "{n} episodes"),
        "group": NN_("{n} group", "{n} groups"),
        "region": NN_("{n} region", "{n} regions"),
        "rule": NN_("{n} rule", "{n} rules"),
        "cell": NN_("{n} cell", "{n} cells"),
        "situation": NN_("{n} situation", "{n} situations"),
    },
    "unit": {
        "episodes": (N_("episodes"),),
        "groups": (N_("groups"),),
        "visits": (N_("visits"),),
    },
    "unit.each": {
        "episode": (N_("each episode's"),),
        "group": (N_("each group's"),),
    },
    "changes.mean": {
        "return": (N_("Mean return after first visits"),),
        "credit": (N_("Mean credit after first visits"),),
    },
    "verdict.long": {
        "agrees": (N_("agrees: the interval lies above 0"),),
        "leans with it": (N_("leans with it: better here too, but not surely"),),
        "leans against it": (N_("leans against it: not better here, but not surely worse"),),
        "contradicts": (N_("contradicts it: the interval lies below 0"),),
        "cannot say": (N_("cannot say: too few cases on one side"),),
    },
    "rest": {
        "region": (N_("Region"),),
        "rule": (N_("Rule"),),
        "cell": (N_("Cell"),),
        "situation": (N_("Situation"),),
    },
    "verdict": {
        "agrees": (N_("agrees"),),
        "leans with it": (N_("leans with it"),),
        "leans against it": (N_("leans against it"),),
        "contradicts": (N_("contradicts"),),
        "cannot say": (N_("cannot say"),),
    },
    "kinds": {
        "region": (N_("regions"),),
        "rule": (N_("rules"),),
        "cell": (N_("cells"),),
        "situation": (N_("situations"),),
    },
    "origin": {
        "policy": (N_("Policy"),),
        "judged": (N_("Judged by log"),),
        "trained": (N_("Trained on log"),),
        "made": (N_("Made by"),),
        "parameters": (N_("Parameters"),),
        "training": (N_("Training"),),
        "picked": (N_("Picked"),),
        "approved": (N_("Approved"),),
        "evaluation": (N_("Evaluation"),),
        "seed": (N_("Seed"),),
    },
    "eval.how": {
        "IS": (N_("importance weights"),),
        "WIS": (N_("importance weights, normalised"),),
        "PDIS": (N_("weights decision by decision"),),
        "WPDIS": (N_("weights decision by decision, normalised"),),
        "DM": (N_("a model of values alone"),),
        "DR": (N_("the model, corrected by weights"),),
        "WDR": (N_("the model, corrected by normalised weights"),),
    },
    "whom": {
        "gains": (N_("gains"),),
        "leans up": (N_("leans up"),),
        "leans down": (N_("leans down"),),
        "not changed": (N_("not changed"),),
    },
    "proof.grade": {
        "proved": (N_("Grade: proved."),),
        "large-sample": (N_("Grade: large-sample."),),
    },
    "column": {
        "state": (N_("state"),),
        "kind": (N_("kind"),),
        "usual": (N_("usual"),),
        "suggested": (N_("suggested"),),
        "n": (N_("took it"),),
        "others": (N_("did otherwise"),),
        "difference": (N_("difference to doing otherwise"),),
        "low": (N_("low"),),
        "advantage_low": (N_("advantage, at least"),),
        "log10_e": (N_("e-value, log 10"),),
        "p": (N_("p"),),
        "gamma_star": (N_("Γ*"),),
        "gamma_point": (N_("Γ* as estimated"),),
        "rule": (N_("rule"),),
        "where": (N_("where"),),
        "share": (N_("share"),),
        "changes": (N_("changes"),),
        "per change": (N_("per change"),),
        "changes in all": (N_("changes in all"),),
        "brings in all": (N_("brings in all"),),
        "advantage": (N_("as estimated"),),
        "high": (N_("high"),),
        "groups": (N_("groups"),),
        "groups_took": (N_("took it there"),),
        "why": (N_("why not"),),
    },
    "cell": {
        "change": (N_("change"),),
        "confirmation": (N_("confirmation"),),
    },
}
"""Kind → key → its name."""
