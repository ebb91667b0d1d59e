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
from dprl._core.plural import form, many
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
NOTE = (
    "difference (to doing otherwise): what taking the suggestion brought less what doing otherwise "
    "did, as estimated\non the part of the log that certified it"
)
WHOLE: Final = ("estimator", "probabilities", "difference", "groups", "reached", "followers")
"""What is on record of a bound on a whole policy."""
TEXTS = ("estimator", "probabilities")


NOTE_GAMMA = (
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
        f" It holds although an unrecorded cause moved the odds of a suggestion by a factor of up "
        f"to Γ = {confounding:g}, the state being equal."
        if confounding > 1
        else ""
    )
    least = min(row["gamma_star"] for row in rows)
    what, which = ("it", "") if len(rows) == 1 else ("one of them", " (the least of all rows)")
    return (
        f"{held} An unrecorded cause that moves the odds of a suggestion, the state being equal, "
        f"by a larger factor than Γ* = {gamma_words(least)}{which} could make {what} false"
        + ("; that is next to nothing." if least < VACUOUS else ".")
    )


def several_words(least: float, most: int) -> str:
    """What Γ* says of the policy as a whole, where an episode meets up to `most` suggestions."""
    whole = least ** (1 / most)
    words = (
        "Each Γ* is about one decision, with usual practice before and after. One unrecorded cause "
        f"may last through an episode; its factors multiply then. Up to {most:,} suggestions are "
        f"met in one episode here: for all of them together it takes only a factor of "
        f"{gamma_words(whole)} at each."
    )
    if whole < VACUOUS:
        words += " So Γ* says nothing about the policy as a whole: it is vacuous there."
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
        f"{smallest:,} followers of the policy and as many others at least"
        if whole
        else f"{smallest:,} on the smaller side of a comparison"
    )
    if smallest < least:
        return (
            f" Too few to be sure of the approximation: it rests on {here}, and its error was "
            f"measured from {least:,} on."
        )
    return f" The error of the approximation was measured from {least:,} on; this rests on {here}."


def whole_lines(whole: Mapping[str, Any]) -> list[str]:
    """The sentences of `Certificate.whole_lines`."""
    return [
        f"Held-out difference to usual practice by {whole['estimator']} (probabilities of actions "
        f"{whole['probabilities']}): {whole['difference']:.4g}, from "
        f"{many(whole['groups'], 'group')}; "
        f"{whole['reached']:,} reached a suggestion and {whole['followers']:,} of them followed "
        "every one they met."
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
    prove = "prove" if grade == "proved" else "show (large-sample)"
    if "rules" in cells:
        return [
            f"{many(cells['rules'], 'proposed rule')} {form(cells['rules'], 'was', 'were')} "
            "tested. Nothing is claimed about parts of the "
            "region of a rule, about later decisions there, or about all rules followed together."
        ]
    lines = [
        f"States are cells of radius {cells['radius']:g} around "
        f"{many(cells['centres'], 'centre')}; "
        "farther from all of them it defers.",
    ]
    if cells.get("eps_star") is not None:
        shown = (
            f"the data {prove} differences of {down(cells['refuted']):.4g} (at a level δ of its "
            "own)"
            if cells.get("refuted")
            else f"the data {prove} no difference there"
        )
        lines.append(
            "Suggestions improve everywhere in their cells while E x and E y differ within a cell "
            f"by less than eps* = {down(cells['eps_star']):.4g}; {shown}. The gain is for no "
            "difference at all."
        )
    for row in cells.get("sensitivity", ()):
        gain = "–" if row["gain"] is None else f"{down(row['gain']):.4g}"
        lines.append(
            f"  with radius {row['radius']:g}: "
            f"{many(row['suggestions'], 'suggestion')}, gain >= {gain}"
        )
    if cells.get("sensitivity"):
        lines.append("  (each at its own δ: not to choose the radius by)")
    return lines


# -- the kinds -------------------------------------------------------------------------------------


def pair_columns(grade: str) -> tuple[str, ...]:
    """The columns of rows that have a bound each, in the order in which they are printed."""
    return (*ALONE, *LOWER, "log10_e" if grade == "proved" else "p")


def pair_note(grade: str) -> str:
    """The note below rows that have a bound each."""
    if grade == "proved":
        return (
            f"{NOTE}; low: its lower bound, for all rows at once. log10_e: the evidence\nagainst "
            "'no benefit', in powers of ten."
        )
    return (
        f"{NOTE}; low: its lower bound for large samples, for all rows at once.\np: p-value of "
        "'no benefit', adjusted for all that was tested; it was to be at most δ."
    )


def pair_claim(certificate: Certificate, with_words: str) -> str:
    """What is claimed of single suggestions: of rules, of first visits, or of all visits."""
    n = len(certificate.rows)
    better = f" by more than {certificate.margin:g} each" if certificate.margin > 0 else ""
    if "rules" in certificate.cells:
        every = "the one certified rule is" if n == 1 else f"each of the {n:,} certified rules is"
        return (
            f"{with_words}, {every} a true improvement on doing otherwise{better}: "
            "at a trajectory's first decision where the rule holds, to follow it and go on as "
            "usual is worth more, on average over these decisions."
        )
    if not certificate.markov:
        every = (
            "the one suggestion below is" if n == 1 else f"each of the {n:,} suggestions below is"
        )
        return (
            f"{with_words}, {every} a true improvement on usual practice{better} at a "
            "trajectory's first visit of the state: to follow it there and go on as usual is worth "
            "more. Nothing is claimed about later visits, or about all suggestions followed "
            "together."
        )
    every = "the one suggestion below is a" if n == 1 else f"all {n:,} suggestions below are"
    words = (
        f"{with_words}, {every} true improvement{'s' * (n != 1)} "
        f"on usual practice{better}, so the policy as a whole is no worse than it."
    )
    if certificate.gain:
        words += f" Its value exceeds usual practice by at least {down(certificate.gain):.4g}."
    return words


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
    every = "its one suggestion" if n == 1 else f"all of its {n:,} suggestions"
    alone = "" if n == 1 else " That is about the whole policy, not about any one suggestion."
    return (
        f"{with_words}, the policy as a whole, with {every} followed, is worth at least "
        f"{down(certificate.gain or 0.0):.4g} more than usual practice.{alone}"
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
    note=lambda grade: f"{NOTE}. It is for reading only: nothing is claimed about any one row.",
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
