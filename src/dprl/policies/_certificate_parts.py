"""The parts of a certificate: its rows, its facts about cells, and how a bound is printed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dprl._core.confounding import gamma_words
from dprl._core.words import joined, say, say_many, sentences, word
from dprl.policies._decisions import Kind

__all__ = [
    "KINDS",
    "LOWER",
    "approximation_words",
    "are_cells",
    "are_numbers",
    "cell_lines",
    "down",
    "first_visit_claim",
    "hidden_words",
    "is_approximation",
    "is_row",
    "is_whole",
    "note_of",
    "order_of",
    "rule_claim",
    "several_words",
    "shown",
    "whole_claim",
    "whole_lines",
]

KINDS: Final = tuple(kind.word for kind in (Kind.DEFER, Kind.CONFIRM, Kind.CHANGE))
ALONE = ("state", "kind", "usual", "suggested", "n", "others", "difference")
LOWER = ("low", "advantage_low")
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


def order_of(mode: str, grade: str) -> tuple[str, ...]:
    """The keys of a certificate's rows, in the order in which they are printed."""
    if mode == "policy":
        return ALONE
    return (*ALONE, *LOWER, "log10_e" if grade == "proved" else "p")


def note_of(mode: str, grade: str) -> str:
    """The note below a certificate's rows."""
    if mode == "policy":
        return sentences(
            joined("", (NOTE, ".")),
            say("It is for reading only: nothing is claimed about any one row."),
        )
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


NOTE_GAMMA = say(
    "\ngamma_star (Γ*): the row stays proved while no unrecorded cause moves the odds of the "
    "suggestion, the state being\nequal, by a larger factor; for all rows at once. gamma_point: "
    "the same as estimated, without allowance for chance."
)


def shown(rows: Sequence[Mapping[str, Any]], mode: str, grade: str) -> tuple[tuple[str, ...], str]:
    """The columns of the table of certified suggestions, and the note below it."""
    order, note = order_of(mode, grade), note_of(mode, grade)
    if not rows:
        return order, ""
    if all(name in row for row in rows for name in GAMMAS):
        return (*order, *GAMMAS), note + NOTE_GAMMA
    return order, note


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


def is_row(row: Any, order: Sequence[str]) -> bool:
    """Whether `row` describes one suggestion of a certificate, with these keys."""
    if not (isinstance(row, Mapping) and set(row) >= set(order) and row["kind"] in KINDS):
        return False
    labels = (row["state"], row["usual"], row["suggested"])
    counts = (row["n"], row["others"])
    return (
        all(isinstance(label, str | int) for label in labels)
        and all(isinstance(n, int) and n >= 0 for n in counts)
        and (order == ALONE or are_numbers(*(row[name] for name in order[6:])))
        and all(are_numbers(row[name]) and row[name] >= 1 for name in GAMMAS if name in row)
    )


def is_approximation(facts: Any, grade: str) -> bool:
    """Whether `facts` say how large the samples of a large-sample claim are; empty for a proof."""
    if not isinstance(facts, Mapping) or grade == "proved":
        return bool(facts == {})
    return set(facts) == {"measured_from", "smallest"} and are_numbers(*facts.values())


def is_whole(facts: Any, mode: str) -> bool:
    """Whether `facts` say how a whole policy was bounded; empty where that is not claimed."""
    if not isinstance(facts, Mapping) or mode != "policy":
        return bool(facts == {})
    if set(facts) != set(WHOLE) or not all(isinstance(facts[k], str) for k in TEXTS):
        return False
    return are_numbers(*(facts[name] for name in WHOLE if name not in TEXTS))


def approximation_words(facts: Mapping[str, Any], mode: str) -> str:
    """Beside a large-sample claim: from which samples on it was measured; '' for a proof."""
    if not facts:
        return ""
    least, smallest = facts["measured_from"], facts["smallest"]
    here = (
        say("{smallest:,} followers of the policy and as many others at least", smallest=smallest)
        if mode == "policy"
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


def whole_claim(n: int, with_words: str, gain: float) -> str:
    """The claim of a certificate of a whole policy with n suggestions."""
    every = say("its one suggestion") if n == 1 else say("all of its {n:,} suggestions", n=n)
    alone = "" if n == 1 else say("That is about the whole policy, not about any one suggestion.")
    claim = say(
        "{with_words}, the policy as a whole, with {every} followed, is worth at least {gain:.4g} "
        "more than usual practice.",
        with_words=with_words,
        every=every,
        gain=down(gain),
    )
    return sentences(claim, alone)


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


def rule_claim(n: int, with_words: str, better: str) -> str:
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


def first_visit_claim(n: int, with_words: str, better: str) -> str:
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
