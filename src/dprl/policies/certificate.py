"""Certificate: what is proved about a policy, in words and numbers; it travels with the policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self, TypeAlias

from markupsafe import Markup

from dprl._core import plot
from dprl._core.inference import gamma_words
from dprl._core.table import Result, Table, in_short, many, to_json_value
from dprl._core.words import Said, joined, say, say_many, sentences, word
from dprl.errors import PolicyError
from dprl.logs.log import Facts, Label
from dprl.logs.outcome import UNDECLARED, Outcome
from dprl.policies.protocol import Avoid, Kind

# --- Kinds of certificates, each declared once: its name, its rows, its claim and what must hold
#
# A certificate says by which kind it was made (`Certificate.mode`). The kind says what its rows
# hold, how its claim is told, and which numbers would contradict it, so that a file of it can be
# opened, shown and checked. How a kind proposes and certifies is registered beside the gate, with
# `dprl.certificate._gate.register`, which also adds the kind here.

Row: TypeAlias = Mapping[str, Any]

KIND_WORDS: Final = tuple(k.word for k in (Kind.DEFER, Kind.CONFIRM, Kind.CHANGE, Kind.AVOID))
ALONE: Final = ("state", "kind", "usual", "suggested", "n", "others", "difference")
"""What every row says, whatever is claimed of it."""
LOWER: Final = ("low", "advantage_low")
CLOSE = 1e-6
"""Relative differences up to this are rounding."""
VACUOUS = 1.05
"""A factor below this is next to none: nobody can exclude an unrecorded cause of that size."""
DRAWN = 12
"""Certified suggestions that a picture shows."""
GAMMAS = ("gamma_star", "gamma_point")
"""Of rows that say how strong an unrecorded cause must be; files of earlier versions do not."""
NOTE = say(
    "difference (to doing otherwise): what taking the suggestion brought less what doing "
    "otherwise did, as estimated\non the part of the log that certified it"
)
WHOLE: Final = ("estimator", "probabilities", "difference", "groups", "reached", "followers")
"""What is on record of a bound on a whole policy."""
TEXTS = ("estimator", "probabilities")


NOTE_GAMMA = say(
    "\ngamma_star (Γ*): the row stays proved while no unrecorded cause moves the odds of the "
    "suggestion, the state being\nequal, by a larger factor; for all rows at once. gamma_point: "
    "the same as estimated, without allowance for chance."
)


def shown(
    rows: Sequence[Row], kind: CertificateKind, grade: str, falls: bool = False
) -> tuple[tuple[str, ...], str]:
    """The columns of the table of certified suggestions, and the note below it."""
    columns, note = kind.columns(grade), kind.note(grade)
    if falls and isinstance(note, Said) and "bound" in note.values:
        note = Said(note.message, note.other, {**note.values, "bound": UPPER})
    if not rows:
        return columns, ""
    if all(name in row for row in rows for name in GAMMAS):
        return (*columns, *GAMMAS), note + NOTE_GAMMA
    return columns, note


BOUND, UPPER = say("low: its lower bound"), say("high: its upper bound")


def hidden_words(rows: Sequence[Mapping[str, Any]], confounding: float) -> str:
    """How strong an unrecorded cause must be to undo the claim; '' where it is not on record."""
    if not rows or not all("gamma_star" in row for row in rows):
        return ""
    held = (
        say(
            "It holds although an unrecorded cause moved the odds of a suggestion by a factor of "
            "up to Γ = {g:g}, the state being equal.",
            g=confounding,
        )
        if confounding > 1
        else ""
    )
    least = min(row["gamma_star"] for row in rows)
    if len(rows) == 1:
        cause = say(
            "An unrecorded cause that moves the odds of a suggestion, the state being equal, by a "
            "larger factor than Γ* = {gamma} could make it false",
            gamma=gamma_words(least),
        )
    else:
        cause = say(
            "An unrecorded cause that moves the odds of a suggestion, the state being equal, by a "
            "larger factor than Γ* = {gamma} (the least of all rows) could make one of them false",
            gamma=gamma_words(least),
        )
    nothing = say("; that is next to nothing.") if least < VACUOUS else "."
    return sentences(held, joined("", (cause, nothing)))


def several_words(least: float, most: int) -> str:
    """What Γ* says of the policy as a whole, where an episode meets up to `most` suggestions."""
    whole = least ** (1 / most)
    words = sentences(
        say("Each Γ* is about one decision, with usual practice before and after."),
        say("One unrecorded cause may last through an episode; its factors multiply then."),
        say(
            "Up to {n:,} suggestions are met in one episode here: for all of them together it "
            "takes only a factor of {w} at each.",
            n=most,
            w=gamma_words(whole),
        ),
    )
    if whole < VACUOUS:
        words = sentences(
            words, say("So Γ* says nothing about the policy as a whole: it is vacuous there.")
        )
    return words


def down(value: float) -> float:
    """A lower bound as it is printed: rounded down, to thousandths, or to four digits if tiny."""
    if not value:
        return 0.0
    digits: int = 3 if abs(value) >= 1e-3 else 3 - math.floor(math.log10(abs(value)))
    return float(math.floor(value * 10.0**digits + 1e-9) / 10.0**digits)


def are_numbers(*values: Any) -> bool:
    """Whether all values are finite numbers."""
    return all(
        isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values
    )


def is_row(row: Any, columns: Sequence[str]) -> bool:
    """Whether `row` describes one suggestion of a certificate, with these columns."""
    if not (
        isinstance(row, Mapping) and set(row) >= {*ALONE, *columns} and row["kind"] in KIND_WORDS
    ):
        return False
    labels = (row["state"], row["usual"], row["suggested"], row.get("avoid", ""))
    if ("avoid" in row) != (row["kind"] == Kind.AVOID.word):
        return False
    counts = (row["n"], row["others"])
    bounds = [name for name in columns if name not in ALONE]
    return (
        all(isinstance(label, str | int) for label in labels)
        and all(isinstance(n, int) and n >= 0 for n in counts)
        and (not bounds or are_numbers(row["difference"], *(row[name] for name in bounds)))
        and all(are_numbers(row[name]) and row[name] >= 1 for name in GAMMAS if name in row)
    )


def is_approximation(facts: Any, grade: str) -> bool:
    """Whether `facts` say how large the samples of a large-sample claim are; empty for a proof."""
    if not isinstance(facts, Mapping) or grade == "proved":
        return bool(facts == {})
    return set(facts) == {"measured_from", "smallest"} and are_numbers(*facts.values())


def is_whole(facts: Any, whole: bool) -> bool:
    """Whether `facts` say how a whole policy was bounded; empty where that is not claimed."""
    if not isinstance(facts, Mapping) or not whole:
        return bool(facts == {})
    if set(facts) != set(WHOLE) or not all(isinstance(facts[k], str) for k in TEXTS):
        return False
    return are_numbers(*(facts[name] for name in WHOLE if name not in TEXTS))


def approximation_words(facts: Mapping[str, Any], whole: bool) -> str:
    """Beside a large-sample claim: from which samples on it was measured; '' for a proof."""
    if not facts:
        return ""
    least, smallest = facts["measured_from"], facts["smallest"]
    here = (
        say("{smallest:,} followers of the policy and as many others at least", smallest=smallest)
        if whole
        else say("{smallest:,} on the smaller side of a comparison", smallest=smallest)
    )
    unless = say(
        "It holds unless something that has not happened in {n:,} cases happens.", n=smallest
    )
    if smallest < least:
        return sentences(
            unless,
            say(
                "Too few to be sure of the approximation: it rests on {here}, and its error was "
                "measured from {least:,} on.",
                here=here,
                least=least,
            ),
        )
    return sentences(
        unless,
        say(
            "The error of the approximation was measured from {least:,} on; this rests on {here}.",
            least=least,
            here=here,
        ),
    )


def whole_lines(whole: Mapping[str, Any]) -> list[str]:
    """The sentences of `Certificate.whole_lines`."""
    return [
        say_many(
            "Held-out difference to usual practice by {e} (probabilities of actions {p}): "
            "{d:.4g}, from {n:,} group; {r:,} reached a suggestion and {f:,} of them followed "
            "every one they met.",
            "Held-out difference to usual practice by {e} (probabilities of actions {p}): "
            "{d:.4g}, from {n:,} groups; {r:,} reached a suggestion and {f:,} of them followed "
            "every one they met.",
            whole["groups"],
            e=word(whole["estimator"]),
            p=word(whole["probabilities"]),
            d=whole["difference"],
            r=whole["reached"],
            f=whole["followers"],
        )
    ]


def are_cells(cells: Any) -> bool:
    """Whether `cells` describes cells of features, or how many rules were tested, or is empty."""
    if not isinstance(cells, Mapping):
        return False
    if not cells:
        return True
    if "rules" in cells:
        return set(cells) == {"rules"} and isinstance(cells["rules"], int)
    more = cells.get("sensitivity", ())
    return (
        are_numbers(*(cells.get(k, -1) for k in ("radius", "centres", "eps_star", "refuted")))
        and isinstance(more, list | tuple)
        and all(
            isinstance(m, Mapping)
            and are_numbers(m.get("radius"), m.get("suggestions"))
            and (m.get("gain") is None or are_numbers(m.get("gain")))
            for m in more
        )
    )


def cell_lines(cells: Mapping[str, Any], grade: str) -> list[str]:
    """The sentences of `Certificate.cell_lines`."""
    prove = say("prove") if grade == "proved" else say("show (large-sample)")
    if "rules" in cells:
        return [
            sentences(
                say_many(
                    "{n:,} proposed rule was tested.",
                    "{n:,} proposed rules were tested.",
                    cells["rules"],
                ),
                say(
                    "Nothing is claimed about parts of the region of a rule, about later "
                    "decisions there, or about all rules followed together."
                ),
            )
        ]
    lines = [
        say_many(
            "States are cells of radius {r:g} around {n:,} centre; farther from all of them it "
            "defers.",
            "States are cells of radius {r:g} around {n:,} centres; farther from all of them it "
            "defers.",
            cells["centres"],
            r=cells["radius"],
        ),
    ]
    if cells.get("eps_star") is not None:
        shown = (
            say(
                "the data {prove} differences of {down:.4g} (at a level δ of its own)",
                prove=prove,
                down=down(cells["refuted"]),
            )
            if cells.get("refuted")
            else say("the data {prove} no difference there", prove=prove)
        )
        lines.append(
            sentences(
                say(
                    "Suggestions improve everywhere in their cells while E x and E y differ "
                    "within a cell by less than eps* = {down:.4g}; {shown}.",
                    down=down(cells["eps_star"]),
                    shown=shown,
                ),
                say("The gain is for no difference at all."),
            )
        )
    for row in cells.get("sensitivity", ()):
        gain = "–" if row["gain"] is None else say("{gain:.4g}", gain=down(row["gain"]))
        lines.append(
            say_many(
                "  with radius {r:g}: {n:,} suggestion, gain >= {gain}",
                "  with radius {r:g}: {n:,} suggestions, gain >= {gain}",
                row["suggestions"],
                r=row["radius"],
                gain=gain,
            )
        )
    if cells.get("sensitivity"):
        lines.append(say("  (each at its own δ: not to choose the radius by)"))
    return lines


# -- the kinds -------------------------------------------------------------------------------------


def pair_columns(grade: str) -> tuple[str, ...]:
    """The columns of rows that have a bound each, in the order in which they are printed."""
    return (*ALONE, *LOWER, "log10_e" if grade == "proved" else "p")


def pair_note(grade: str) -> str:
    """The note below rows that have a bound each."""
    if grade == "proved":
        return say(
            "{note}; {bound}, for all rows at once. log10_e: the evidence\nagainst "
            "'no benefit', in powers of ten.",
            note=NOTE,
            bound=BOUND,
        )
    return say(
        "{note}; {bound} for large samples, for all rows at once.\np: p-value of 'no "
        "benefit', adjusted for all that was tested; it was to be at most δ.",
        note=NOTE,
        bound=BOUND,
    )


def pair_claim(certificate: Certificate, with_words: str) -> str:
    """What is claimed of single suggestions: of rules, of first visits, or of all visits."""
    warns = any("avoid" in row for row in certificate.rows)
    return sentences(_pair_claim(certificate, with_words), AVOIDING if warns else "")


AVOIDING = say(
    "“not” an action means anything else: whoever would have taken it takes one of the others, in "
    "the proportions in which usual practice does."
)


def _pair_claim(certificate: Certificate, with_words: str) -> str:
    n, margin = len(certificate.rows), certificate.margin
    better = say(" by more than {margin:g} each", margin=margin) if margin > 0 else ""
    if "rules" in certificate.cells:
        return _rule_claim(n, with_words, better)
    if not certificate.markov:
        return _first_visit_claim(n, with_words, better)
    every = (
        say("the one suggestion below is a")
        if n == 1
        else say("all {n:,} suggestions below are", n=n)
    )
    words = say_many(
        "{with_words}, {every} true improvement on usual practice{better}, so the policy as a "
        "whole is no worse than it.",
        "{with_words}, {every} true improvements on usual practice{better}, so the policy as "
        "a whole is no worse than it.",
        n,
        with_words=with_words,
        every=every,
        better=better,
    )
    if not certificate.gain:
        return words
    gain = down(certificate.gain)
    if certificate.outcome.falls:
        gained = say("Its value is below usual practice by at least {g:.4g}.", g=gain)
    else:
        gained = say("Its value exceeds usual practice by at least {g:.4g}.", g=gain)
    return sentences(words, gained)


def _rule_claim(n: int, with_words: str, better: str) -> str:
    """The claim of a certificate of n rules, with `better` by how much; nothing of all together."""
    every = (
        say("the one certified rule is")
        if n == 1
        else say("each of the {n:,} certified rules is", n=n)
    )
    return say(
        "{with_words}, {every} a true improvement on doing otherwise{better}: at a trajectory's "
        "first decision where the rule holds, to follow it and go on as usual is worth more, on "
        "average over these decisions.",
        with_words=with_words,
        every=every,
        better=better,
    )


def _first_visit_claim(n: int, with_words: str, better: str) -> str:
    """The claim about n suggestions where the Markov property is not claimed."""
    every = (
        say("the one suggestion below is")
        if n == 1
        else say("each of the {n:,} suggestions below is", n=n)
    )
    return sentences(
        say(
            "{with_words}, {every} a true improvement on usual practice{better} at a trajectory's "
            "first visit of the state: to follow it there and go on as usual is worth more.",
            with_words=with_words,
            every=every,
            better=better,
        ),
        say("Nothing is claimed about later visits, or about all suggestions followed together."),
    )


def wrong_pair(row: Row, certificate: Certificate) -> str:
    """What of a row with a bound does not follow from its numbers, in words; '' if all does."""
    delta, margin = certificate.delta, certificate.margin
    if certificate.grade == "proved":
        # The level is shared by the parts that certify, and by the pairs that each part tests.
        parts = len(certificate.tested) if KINDS[certificate.mode].shared_level else 1
        pairs = max(1, min(certificate.tested, default=1))
        need = math.log10(max(1, parts) * pairs / delta)
        if row["log10_e"] < need - CLOSE:
            return f"log10_e = {row['log10_e']:.4g}, and δ = {delta:g} needs at least {need:.4g}"
    elif row["p"] > delta * (1 + CLOSE):
        return f"p = {row['p']:.4g}, and δ = {delta:g}"
    width = -certificate.trivial
    scale = CLOSE * (width if math.isfinite(width) else abs(row["low"]) + abs(row["difference"]))
    if row["low"] < -scale or row["low"] > width + scale or abs(row["difference"]) > width + scale:
        return f"low = {row['low']:.4g}, difference = {row['difference']:.4g}, range {width:.4g}"
    if row["advantage_low"] > row["low"] + scale or row["advantage_low"] < margin - scale:
        return (
            f"advantage_low = {row['advantage_low']:.4g}, low = {row['low']:.4g}, margin {margin:g}"
        )
    return ""


@dataclass(frozen=True, kw_only=True)
class CertificateKind:
    """One kind of certificate.

    Attributes:
        name: What a file calls it, `dprl.gate(mode=...)` and `dprl gate --mode`.
        whole: Whether the claim is about the policy as a whole, and its rows claim nothing.
        shared_level: Whether the parts of a log that certify share the level δ.
        columns: Grade → the columns of its rows, in the order in which they are printed.
        note: Grade → the note below its rows.
        claim: The certificate and how sure it is, in words → the claim of its rows.
        wrong: A row and its certificate → what does not follow from its numbers; '' if all does.
    """

    name: str
    whole: bool = False
    shared_level: bool = False
    columns: Callable[[str], tuple[str, ...]] = pair_columns
    note: Callable[[str], str] = pair_note
    claim: Callable[[Certificate, str], str] = pair_claim
    wrong: Callable[[Row, Certificate], str] = wrong_pair


def _whole_claim(certificate: Certificate, with_words: str) -> str:
    n = len(certificate.rows)
    every = say("its one suggestion") if n == 1 else say("all of its {n:,} suggestions", n=n)
    alone = "" if n == 1 else say("That is about the whole policy, not about any one suggestion.")
    numbers = {"with_words": with_words, "every": every, "gain": down(certificate.gain or 0.0)}
    if certificate.outcome.falls:
        claim = say(
            "{with_words}, the policy as a whole, with {every} followed, lowers the outcome by at "
            "least {gain:.4g} against usual practice.",
            **numbers,
        )
    else:
        claim = say(
            "{with_words}, the policy as a whole, with {every} followed, is worth at least "
            "{gain:.4g} more than usual practice.",
            **numbers,
        )
    return sentences(claim, alone)


NOTHING: Final = {
    (True, False): say("VACUOUS: no suggestion is certified, so none is made."),
    (True, True): say("VACUOUS: the policy as a whole is not certified, so no suggestion is made."),
    (False, False): say("VACUOUS (large-sample): no suggestion is certified, so none is made."),
    (False, True): say(
        "VACUOUS (large-sample): the policy as a whole is not certified, so no suggestion is made."
    ),
}
"""Whether it would be proved, and about a whole policy → the claim that nothing is certified."""


def _whole_note(grade: str) -> str:
    return sentences(
        joined("", (NOTE, ".")),
        say("It is for reading only: nothing is claimed about any one row."),
    )


SWAP_SPLIT: Final = CertificateKind(name="swap-split", shared_level=True)
"""Each half of the groups proposes, and the other half certifies."""
SPLIT: Final = CertificateKind(name="split")
"""One half proposes, the other certifies: over cells of features, and over rules."""
IN_SAMPLE: Final = CertificateKind(name="in-sample")
"""The whole log proposes and certifies, among states that were fixed beforehand."""
WHOLE_POLICY: Final = CertificateKind(
    name="policy",
    whole=True,
    columns=lambda grade: ALONE,
    note=_whole_note,
    claim=_whole_claim,
    wrong=lambda row, certificate: "",
)
"""One bound for the policy as a whole."""

KINDS: Final = {kind.name: kind for kind in (SWAP_SPLIT, SPLIT, IN_SAMPLE, WHOLE_POLICY)}
"""Name → kind, of all kinds that files can hold."""


def wrong_certificate(certificate: Certificate) -> str:
    """Which claim does not follow from the numbers stored with it, in words; '' if all do."""
    least = 0 if certificate.kind.whole else 1  # of a whole, a row claims nothing by itself
    for row in certificate.rows:
        wrong = f"it is certified, and n = {row['n']}" if row["n"] < least else ""
        wrong = wrong or KINDS[certificate.mode].wrong(row, certificate)
        if wrong:
            return f"state {row['state']!r}: {wrong}"
    return ""


# --- Certificate: what is proved about a policy, in words and numbers; it travels with the policy


def _in_direction(facts: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    """The attributes of a certificate in the direction of the outcome, or back from it."""
    turned = dict(facts)
    if outcome.falls:
        turned["rows"] = tuple(outcome.facts(row) for row in facts["rows"])
        turned["whole"] = outcome.facts(facts["whole"])
        if facts["value_range"] is not None:
            turned["value_range"] = outcome.ends(*facts["value_range"])
    return turned


@dataclass(frozen=True, kw_only=True)
class Certificate(Result):
    """A claim about every suggestion of a policy, its assumptions, and what the policy gains.

    `dprl.gate` makes it, and it is saved with the policy.

    Attributes:
        mode: "swap-split", "split" or "in-sample": which part of the log proposed suggestions and
            which part certified them; "policy": the claim is about the policy as a whole, and
            nothing is claimed about any one suggestion.
        delta: Probability with which the claim may fail, in (0, 1).
        margin: The advantage that each suggestion had to exceed, in units of returns; in mode
            "policy", what the gain of the whole had to exceed.
        value_range: (lowest, highest) return there can be, stated beforehand; None where the grade
            is "large-sample" and nobody stated it.
        gamma: Discount of the returns, per step.
        groups: Number of independent groups (episodes, where no group was given) in the log.
        tested: Number of pairs that the level was divided among, for each part that certified.
        rows: One row per issued suggestion, with the keys state, kind ("change", "confirmation" or
            "avoid"), usual, suggested, n and others (trajectories of the certifying part that took
            the suggestion at their first visit, and that did not), difference (E x - E y
            as estimated there), low (its lower bound), advantage_low (lower bound of the
            advantage), log10_e (logarithm, base 10, of the e-value of "no benefit"), gamma_star
            (Γ*: up to this factor an unrecorded cause may move the odds of the suggestion, the
            state being equal, and the row is still proved) and gamma_point (the same as estimated,
            without allowance for chance); both from 1 to 20, and 20 means "or more". For large
            samples p, the adjusted p-value, in place of log10_e, and no Γ. In mode "policy" only
            the first seven: a row has no bound of its own. A row that says what to avoid suggests
            "not" the action, and has its label in avoid: those who took the suggestion did anything
            else.
        gain: Certified lower bound on ρ(π) - ρ(b), in units of returns; None where it was not
            computed.
        bounds: What other bounds would say: name → lower bound (None: minus infinity).
        assumptions: The assumptions of the claim, one sentence each.
        log: Digest of the log.
        notes: Further sentences that a reader must know.
        cells: For numeric features: radius, centres, eps_star, refuted, sensitivity; for rules
            "rules", how many were tested; empty for labelled states.
        visits: Which visits of a state counted as evidence: "all" of an episode, or a group's
            "first".
        markov: Whether the claim rests on the Markov property: what follows a visit depends on the
            past through the state alone. Without it, the claim is about first visits, and nothing
            is claimed of the policy as a whole. (Only mode "policy" claims that without it.)
        confounding: Γ, at least 1: only what remains proved at this strength of an unrecorded cause
            was issued; low, advantage_low and log10_e are for this Γ. Default 1.
        grade: "proved" (exact for samples of any size) or "large-sample" (an approximation).
            Default "proved".
        approximation: For large samples: measured_from, the sample from which on the error of the
            approximation was measured, and smallest, the smallest sample behind this claim. Empty
            for what is proved.
        whole: In mode "policy": how the whole policy was bounded, as name → number or words. Empty
            otherwise.
        outcome: What the returns are. Numbers here count with larger as the better one; whatever is
            printed, and `to_dict`, is in the direction of the outcome. Default: not declared.

    Raises:
        PolicyError: The parts do not make a certificate.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
        >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
        >>> certificate = dprl.gate(learner, log, delta=0.05, value_range=(0, 1)).certificate
        >>> certificate.issued
        {'fever': 'antibiotics', 'worse': 'fluids'}
    """

    mode: str
    delta: float
    margin: float
    value_range: tuple[float, float] | None
    gamma: float
    groups: int
    tested: tuple[int, ...]
    rows: tuple[Mapping[str, Any], ...]
    gain: float | None
    bounds: Mapping[str, float | None]
    assumptions: tuple[str, ...]
    log: str
    notes: tuple[str, ...] = ()
    cells: Mapping[str, Any] = field(default_factory=dict)
    visits: str = "first"
    markov: bool = True
    confounding: float = 1.0
    grade: str = "proved"
    approximation: Mapping[str, Any] = field(default_factory=dict)
    whole: Mapping[str, Any] = field(default_factory=dict)
    outcome: Outcome = UNDECLARED

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        ends = () if self.value_range is None else self.value_range
        ok = (
            self.mode in KINDS
            and self.grade in ("proved", "large-sample")
            and are_numbers(self.delta, self.margin, self.gamma, *ends)
            and 0 < self.delta < 1
            and self.margin >= 0
            and 0 < self.gamma <= 1
            and (len(ends) == 2 and ends[0] < ends[1] if ends else self.grade != "proved")
            and are_numbers(self.groups, *self.tested)
            and all(is_row(row, self.kind.columns(self.grade)) for row in self.rows)
            and is_approximation(self.approximation, self.grade)
            and is_whole(self.whole, self.kind.whole)
            and (not self.kind.whole or not self.rows or self.gain is not None)
            and len({row["state"] for row in self.rows}) == len(self.rows)
            and (self.gain is None or (are_numbers(self.gain) and 0 <= self.gain <= -self.trivial))
            and all(v is None or are_numbers(v) for v in self.bounds.values())
            and all(isinstance(x, tuple) for x in (self.rows, self.assumptions, self.notes))
            and bool(self.assumptions)
            and all(isinstance(w, str) for w in (*self.assumptions, *self.notes, self.log))
            and are_cells(self.cells)
            and self.visits in ("all", "first")
            and isinstance(self.markov, bool)
            and (self.markov or self.visits == "first")
            and (self.markov or self.gain is None or self.kind.whole)
            and (self.grade == "proved" or self.visits == "first")
            and (self.grade == "proved" or self.confounding == 1)
            and (not self.kind.whole or self.confounding == 1)
            and are_numbers(self.confounding)
            and self.confounding >= 1
        )
        if not ok:
            raise PolicyError("a certificate cannot be made of these parts.")
        if wrong := wrong_certificate(self):
            raise PolicyError(
                "a certificate does not follow from the numbers stored with it.",
                wrong,
                "Gate the policy again: nothing is proved by this one.",
            )
        put("rows", tuple(Facts(row) for row in self.rows))
        put("bounds", Facts(self.bounds))
        put("cells", Facts(self.cells))
        put("approximation", Facts(self.approximation))
        put("whole", Facts(self.whole))

    @property
    def kind(self) -> CertificateKind:
        """The kind of certificate it is.

        Returns:
            What the kind declares: the columns of its rows, and how its claim is told.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.kind.columns("proved")[-3:]
            ('low', 'advantage_low', 'log10_e')
        """
        return KINDS[self.mode]

    @property
    def trivial(self) -> float:
        """The bound that needs no data: no policy is worse than another by more than this.

        Returns:
            lowest - highest return, a number below 0; minus infinity where no range was stated.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.trivial
            -1.0
        """
        return -math.inf if self.value_range is None else self.value_range[0] - self.value_range[1]

    @property
    def vacuous(self) -> bool:
        """Whether nothing is claimed, because no suggestion could be certified.

        Returns:
            True where the certificate has no rows.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.vacuous
            False
        """
        return not self.rows

    @property
    def issued(self) -> dict[Label, Label | Avoid]:
        """The certified suggestions.

        Returns:
            State → suggested action, or `Avoid` where it says what not to do.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.issued["fever"]
            'antibiotics'
        """
        return {
            row["state"]: Avoid(row["avoid"]) if "avoid" in row else row["suggested"]
            for row in self.rows
        }

    @property
    def claim(self) -> str:
        """The claim in one or two sentences.

        Returns:
            English text; it begins with VACUOUS where nothing is claimed.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> print(certificate.claim)  # doctest: +ELLIPSIS
            With probability at least 95 %, all 2 suggestions below are true improvements on ...
        """
        whole = self.kind.whole
        if self.vacuous:
            nothing = NOTHING[self.grade == "proved", whole]
            return sentences(nothing, say("The policy is usual practice itself."))
        with_words = say("With probability at least {sure}", sure=self.sure)
        if self.grade != "proved":
            with_words = say(
                "Large-sample, not proved: with confidence of about {sure}", sure=self.sure
            )
        about = approximation_words(self.approximation, whole)
        hidden = "" if whole else hidden_words(self.rows, self.confounding)
        return sentences(self.kind.claim(self, with_words), about, hidden)

    @property
    def sure(self) -> str:
        """The probability 1 - δ as text, rounded down.

        Returns:
            A percentage such as "95 %", or "1 - δ" for a very small δ.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.sure
            '95 %'
        """
        if self.delta < 1e-4:
            return say("1 - {delta:g}", delta=self.delta)
        return say("{p:g} %", p=math.floor(1e6 * (1 - self.delta) + 1e-6) / 1e4)

    def restricted(self, states: Iterable[Label]) -> Certificate | None:
        """The certificate of the policy that keeps only its suggestions in these states.

        The claim holds for all suggestions at once, so it holds for fewer of them. The gain was
        certified for all of them together; for fewer it is only known to be at least 0. A claim
        about the whole policy (mode "policy") says nothing of a part of it.

        Args:
            states: The state labels (or cell numbers) to keep; others that it has are left out.

        Returns:
            The restricted certificate; the same object where nothing is left out; None where the
            claim is about the whole policy and something is left out.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.restricted(["fever"]).issued
            {'fever': 'antibiotics'}
        """
        keep = set(states)
        rows = tuple(row for row in self.rows if row["state"] in keep)
        if len(rows) == len(self.rows):
            return self
        if self.kind.whole:
            return None
        k, n = len(rows), len(self.rows)
        note = say("Restated for {k:,} of {n:,} certified suggestions.", k=k, n=n)
        if self.gain is not None:
            note = say(
                "Restated for {k:,} of {n:,} certified suggestions; the gain of fewer is at least "
                "0, and was not bounded again.",
                k=k,
                n=n,
            )
        gone = {"sensitivity"} if rows else {"sensitivity", "eps_star", "refuted"}
        return replace(
            self,
            rows=rows,
            gain=0.0 if rows and self.gain is not None else None,
            notes=(*self.notes, note),
            bounds={},  # they were about all suggestions together
            cells={k: v for k, v in self.cells.items() if k not in gone},
        )

    # -- for people and files ------------------------------------------------------------------

    def table(self) -> Table:
        """The certified suggestions, those with the largest lower bound first.

        Returns:
            A table with one row per suggestion; its columns are the keys of `rows`.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.table()["suggested"]
            ['fluids', 'antibiotics']
        """
        whole = self.kind.whole
        first = "low" if "low" in self.kind.columns(self.grade) else "difference"
        rows = sorted(self.rows, key=lambda r: -(r[first] or 0.0))
        columns, note = shown(rows, self.kind, self.grade, self.outcome.falls)
        table = Table(
            {n: [down(row[n]) if n in LOWER else row[n] for row in rows] for n in columns},
            caption=(
                say_many(
                    "{n:,} suggestion, certified only together",
                    "{n:,} suggestions, certified only together",
                    rows,
                )
                if whole
                else say_many("{n:,} certified suggestion", "{n:,} certified suggestions", rows)
            ),
            note=note,
            identifiers=frozenset({"state", "usual", "suggested"}),
        )
        return self.outcome.table(table)

    def comparison(self) -> Table:
        """The certified gain beside the values of other bounds.

        Returns:
            A table with the columns bound, value (in units of returns) and vacuous.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.comparison()["bound"]
            ['this certificate', 'Theorem 1, as published', 'Theorem 1, sound']
        """
        names, values = [word(name) for name in self.bounds], list(self.bounds.values())
        if self.gain is not None:
            names, values = [say("this certificate"), *names], [self.gain, *values]
        return Table(
            {
                "bound": names,
                "value": [None if v is None else down(v) for v in values],
                "vacuous": [v is None or v <= self.trivial for v in values],
            },
            caption=say("Lower bounds on what the policy gains, ρ(b) - ρ(π)")
            if self.outcome.falls
            else say("Lower bounds on what the policy gains, ρ(π) - ρ(b)"),
            note=(
                ""
                if self.value_range is None
                else say("The trivial bound, which needs no data, is {b:g}.", b=self.trivial)
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry; `from_dict` reads them back.

        Returns:
            Attribute name → value, and the claim, vacuous and trivial.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> Certificate.from_dict(certificate.to_dict()).issued == certificate.issued
            True
        """
        facts = {f.name: getattr(self, f.name) for f in fields(self)}
        facts = _in_direction(facts, self.outcome)
        if self.outcome.declared:
            facts["outcome"] = self.outcome.declared
        else:
            del facts["outcome"]
        result: dict[str, Any] = to_json_value(facts)
        trivial = self.trivial if math.isfinite(self.trivial) else None
        return {**result, "claim": self.claim, "vacuous": self.vacuous, "trivial": trivial}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """A certificate from the result of `to_dict`.

        Args:
            facts: Attribute name → value; other names are ignored.

        Returns:
            The certificate.

        Raises:
            PolicyError: The values do not make a certificate.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> Certificate.from_dict(certificate.to_dict()).delta
            0.05
        """
        names = {f.name for f in fields(cls)}
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in facts.items() if k in names
        }
        try:
            outcome = Outcome.of(given.get("outcome", {}))
            return cls(**{**_in_direction(given, outcome), "outcome": outcome})
        except PolicyError:
            raise
        except (TypeError, AttributeError, KeyError, ValueError, OverflowError):
            raise PolicyError("a certificate cannot be made of these parts.") from None

    def cell_lines(self) -> list[str]:
        """Sentences that only a certificate over cells of numeric features, or over rules, has.

        Returns:
            The sentences; an empty list for labelled states.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.cell_lines()
            []
        """
        return cell_lines(self.cells, self.grade) if self.cells else []

    def whole_lines(self) -> list[str]:
        """Sentences that only a certificate of a whole policy has: how it was bounded.

        Returns:
            The sentences; an empty list where suggestions were certified one by one.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> gated = dprl.gate(learner, log, mode="policy", grade="large-sample")
            >>> len(gated.certificate.whole_lines())
            1
        """
        return whole_lines(self.outcome.facts(self.whole)) if self.whole else []

    def _repr_html_(self) -> str:
        from dprl._core import html as pages

        shown = [
            {
                "words": f"{row.get('state', row.get('where'))}: {row['suggested']}",
                "kind": "low", "proved": None, "advantage": end, "low": end, "high": end,
            }
            for row in self.table().to_dicts()[:DRAWN]
            if (end := row.get("advantage_low", row.get("advantage_high"))) is not None
        ]  # fmt: skip
        kinds = {"low": f"{self.outcome.at_least}: the advantage that is certified"}
        figure = "" if not shown else plot.embedded(
            lambda: plot.forest(shown, "advantage over usual practice", kinds), "What is certified."
        )  # fmt: skip
        return pages.snippet(
            "certificate", certificate=self, brief=self.brief(), figure=Markup(figure)
        )

    def brief(self) -> list[str]:
        """What is printed of it: the claim, its suggestions, and what to be wary of.

        Returns:
            The lines.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> gated = dprl.gate(learner, log, delta=0.05, value_range=(0, 1))
            >>> len(gated.certificate.brief()) <= 8
            True
        """
        rows = sorted(self.rows, key=lambda r: -(r.get("low") or r["difference"] or 0.0))
        lines = [self.claim]
        for row in rows[:3]:
            estimated = self.outcome.shown(row["difference"])
            better = ""
            if "low" in row:
                better = f", better by at least {down(row['low']):g}{self.outcome.measured}"
            about = "" if estimated is None else f" ({estimated:+.3g} as estimated)"
            lines.append(
                f"  {row['state']}: {row['suggested']}{better}{about}; "
                f" {row['n']:,} took it, {row['others']:,} did otherwise"
            )
        if len(rows) > 3:
            lines.append(f"  and {many(len(rows) - 3, 'more suggestion')}")
        lines.append(
            f"Grade: {self.grade}, {self.mode}, δ = {self.delta:g}; it rests on "
            f"{many(self.assumptions, 'assumption')}."
        )
        wary = [note for note in self.notes if note.startswith("Be wary")]
        return in_short([*lines, *wary[:1]], "certificate")

    def details(self) -> str:
        """The claim, all rows and bounds, what it rests on, and every note, as text.

        Returns:
            The text.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> "It rests on:" in certificate.details()
            True
        """
        lines = [f"Certificate ({self.grade}, {self.mode}, δ = {self.delta:g})", self.claim]
        if self.rows:
            lines += ["", str(self.table())]
        if "rules" not in self.cells and (self.bounds or self.gain is not None):
            lines += ["", str(self.comparison())]
        if self.whole:
            lines += ["", *self.whole_lines()]
        if self.cells:
            lines += ["", *self.cell_lines()]
        lines += ["", "It rests on:", *(joined("", ("  - ", a)) for a in self.assumptions)]
        lines += [f"Note: {note}" for note in self.notes]
        return joined("\n", lines)

    def __repr__(self) -> str:
        grade = "" if self.grade == "proved" else ", large-sample"
        together = " together" if self.kind.whole else ""
        return (
            f"<Certificate: {many(self.rows, 'suggestion')}{together}, δ = {self.delta:g}{grade}>"
        )
