"""Kinds of certificates, each declared once: its name, its rows, its claim and what must hold.

A certificate says by which kind it was made (`Certificate.mode`). The kind says what its rows hold,
how its claim is told, and which numbers would contradict it, so that a file of it can be opened,
shown and checked. How a kind proposes and certifies is registered beside the gate, with
`dprl.certificate._gate.register`, which also adds the kind here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dprl._core.confounding import gamma_words
from dprl._core.words import joined, say, say_many, sentences, word
from dprl.policies._decisions import Kind

if TYPE_CHECKING:
    from dprl.policies.certificate import Certificate

__all__ = [
    "ALONE",
    "IN_SAMPLE",
    "KINDS",
    "LOWER",
    "SPLIT",
    "SWAP_SPLIT",
    "WHOLE_POLICY",
    "CertificateKind",
    "approximation_words",
    "are_cells",
    "are_numbers",
    "cell_lines",
    "down",
    "hidden_words",
    "is_approximation",
    "is_row",
    "is_whole",
    "several_words",
    "shown",
    "whole_lines",
    "wrong_certificate",
]

Row: TypeAlias = Mapping[str, Any]

KIND_WORDS: Final = tuple(kind.word for kind in (Kind.DEFER, Kind.CONFIRM, Kind.CHANGE))
ALONE: Final = ("state", "kind", "usual", "suggested", "n", "others", "difference")
"""What every row says, whatever is claimed of it."""
LOWER: Final = ("low", "advantage_low")
CLOSE = 1e-6
"""Relative differences up to this are rounding."""
VACUOUS = 1.05
"""A factor below this is next to none: nobody can exclude an unrecorded cause of that size."""
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


def shown(rows: Sequence[Row], kind: CertificateKind, grade: str) -> tuple[tuple[str, ...], str]:
    """The columns of the table of certified suggestions, and the note below it."""
    columns, note = kind.columns(grade), kind.note(grade)
    if not rows:
        return columns, ""
    if all(name in row for row in rows for name in GAMMAS):
        return (*columns, *GAMMAS), note + NOTE_GAMMA
    return columns, note


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
    labels = (row["state"], row["usual"], row["suggested"])
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
    if smallest < least:
        return say(
            "Too few to be sure of the approximation: it rests on {here}, and its error was "
            "measured from {least:,} on.",
            here=here,
            least=least,
        )
    return say(
        "The error of the approximation was measured from {least:,} on; this rests on {here}.",
        least=least,
        here=here,
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
            "{note}; low: its lower bound, for all rows at once. log10_e: the evidence\nagainst "
            "'no benefit', in powers of ten.",
            note=NOTE,
        )
    return say(
        "{note}; low: its lower bound for large samples, for all rows at once.\np: p-value of 'no "
        "benefit', adjusted for all that was tested; it was to be at most δ.",
        note=NOTE,
    )


def pair_claim(certificate: Certificate, with_words: str) -> str:
    """What is claimed of single suggestions: of rules, of first visits, or of all visits."""
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
    gained = say("Its value exceeds usual practice by at least {g:.4g}.", g=down(certificate.gain))
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
    claim = say(
        "{with_words}, the policy as a whole, with {every} followed, is worth at least {gain:.4g} "
        "more than usual practice.",
        with_words=with_words,
        every=every,
        gain=down(certificate.gain or 0.0),
    )
    return sentences(claim, alone)


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
    for row in certificate.rows:
        wrong = f"it is certified, and n = {row['n']}" if row["n"] < 1 else ""
        wrong = wrong or KINDS[certificate.mode].wrong(row, certificate)
        if wrong:
            return f"state {row['state']!r}: {wrong}"
    return ""
