"""A report to a standard: what the TARGET statement asks of an emulated trial, as far as known.

TARGET (Transparent Reporting of Observational Studies Emulating a Target Trial, 2025) asks for 21
items in six sections. Each `Item` here has up to two answers: what people say about their study
(`dprl.apps._intended_use`), and what log, policy, evaluation and certificate hold. What only people
can say and nobody said is a blank, marked *to fill in*; nothing is made up for it. The items carry
the names of their subjects and not the statement's numbers: the statement itself is the authority.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from dprl._core.html.catalogue import Words
from dprl.apps._baseline import Baseline, baseline
from dprl.apps._changes import Described
from dprl.apps._standard_facts import Facts
from dprl.errors import DprlError, ParameterError
from dprl.evaluation._result import Evaluation
from dprl.evaluation._sensitivity import sensitivity
from dprl.evaluation._sensitivity_result import Sensitivity
from dprl.logs.log import Log

__all__ = ["STANDARDS", "Item", "Study", "check_standard", "study_of"]

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
