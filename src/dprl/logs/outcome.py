"""Outcome: what the rewards of a log add up to, in which unit, and whether more of it is better.

Everything is computed with "larger is better". Where a log was declared with ``better="lower"``
its rewards change their sign once, when the log is made, and whatever is shown changes it back
(`Outcome.shown`), so that people read their own numbers: an interval keeps its low end first, and a
lower bound becomes an upper one.

The declaration is kept with the names of a log's columns, so a policy knows it, and later logs are
read in the same way. A log that says nothing counts as "larger is better".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar, cast

from dprl._core.table import Table
from dprl._core.words import Said, joined, option, say, worded
from dprl.errors import ParameterError, PolicyError

Better = Literal["higher", "lower"]
T = TypeVar("T")

KEPT: Final = ("outcome", "unit", "better")
"""What is declared of an outcome, as arguments are called and as columns of a log keep it."""
LONGEST = 200
"""Largest number of characters of a name or a unit."""

OTHER_END: Final = {
    "low": "high", "high": "low", "lowest": "highest", "highest": "lowest", "min": "max",
    "max": "min", "most": "least", "least": "most",
}  # fmt: skip
"""Words in the names of ends, and what they are called where the sign changes."""


def other_end(name: str) -> str:
    """What an end is called where the sign changes: "value_low" is "value_high"; others stay."""
    return "_".join(OTHER_END.get(part, part) for part in name.split("_"))


AMOUNTS: Final = frozenset(
    end
    for name in (
        "advantage", "advantage_low", "difference", "difference_low", "difference_min", "gate_low",
        "low", "lowest", "planned", "proved_low", "rule_difference", "sure_advantage", "sure_low",
        "value", "value_low", "value_min", "value_usual",
    )
    for end in (name, other_end(name))
)  # fmt: skip
"""Names of columns and keys that hold outcomes, or differences of outcomes."""


@dataclass(frozen=True)
class Outcome:
    """What rewards add up to, and how it is shown.

    Attributes:
        name: What it is called ("CD4 count at week 20"); "" where nobody said it.
        unit: Its unit ("cells/mm³"); "" where nobody said it.
        better: "higher" or "lower"; "" where nobody said it, which counts as "higher".

    Example:
        >>> stay = Outcome("length of stay", "days", "lower")
        >>> stay.shown(-3.0), stay.ends(-4.0, -2.0)
        (3.0, (2.0, 4.0))
        >>> stay.facts({"n": 20, "low": 0.5})
        {'n': 20, 'high': -0.5}
    """

    name: str = ""
    unit: str = ""
    better: Better | Literal[""] = ""

    def __post_init__(self) -> None:
        for what in KEPT:
            value = self.name if what == "outcome" else getattr(self, what)
            if not isinstance(value, str) or len(value) > LONGEST:
                raise ParameterError(
                    worded("{what} must be text; got {got}.", what=option(what), got=repr(value)),
                    argument=what,
                )
        if self.better not in ("", "higher", "lower"):
            raise ParameterError(
                worded(
                    "{better=} must be 'higher' or 'lower'; got {value}.", value=repr(self.better)
                ),
                do=worded("Say {better='lower'} where a smaller outcome is the better one."),
                argument="better",
            )
        object.__setattr__(self, "name", _without(self.unit, self.name))

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Outcome:
        """The outcome that is declared with the columns of a log."""
        name, unit, better = (columns.get(what) or "" for what in KEPT)
        return cls(name, unit, cast("Any", better))

    @classmethod
    def learned(cls, policy: Any) -> Outcome:
        """The outcome of the log that a policy was learned from."""
        return cls.of((getattr(policy, "provenance", None) or {}).get("columns", {}))

    @property
    def declared(self) -> dict[str, str]:
        """What was declared, as columns keep it; empty where nothing was."""
        said = {"outcome": self.name, "unit": self.unit, "better": self.better}
        return {what: value for what, value in said.items() if value}

    @property
    def falls(self) -> bool:
        """Whether less of it is better, so that numbers change their sign when they are shown."""
        return self.better == "lower"

    # -- numbers ----------------------------------------------------------------------------------

    def shown(self, value: Any) -> Any:
        """An outcome or a difference in the user's own direction: a number, an array or None."""
        return value if value is None or not self.falls else 0.0 - value

    def ends(self, low: Any, high: Any) -> tuple[Any, Any]:
        """The two ends of an interval in the user's own direction, the lower one first."""
        return (self.shown(high), self.shown(low)) if self.falls else (low, high)

    def inside(self, given: Any) -> Any:
        """A range that a user gave, as it is computed with; what is no range stays as it is."""
        if not self.falls or given is None:
            return given
        try:
            low, high = given
            return self.ends(float(low), float(high))
        except (TypeError, ValueError):  # whoever checks ranges says what is wrong with it
            return given

    def facts(self, given: Mapping[str, T], amounts: Iterable[str] = AMOUNTS) -> dict[str, T]:
        """Named numbers in the user's own direction; a lower end alone becomes an upper one.

        Args:
            given: Name → number, a sequence of numbers, or anything else that stays as it is.
            amounts: The names whose numbers are outcomes. Default `AMOUNTS`.
        """
        if not self.falls:
            return dict(given)
        names = set(amounts)
        result: dict[str, Any] = {}
        for name, value in given.items():
            if name not in names:
                result[name] = value
                continue
            other = other_end(name)
            if other in given:
                result[name] = self._turned(given[other])
            else:
                result[other] = self._turned(value)
        return result

    def _turned(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(self._turned(one) for one in value)
        number = isinstance(value, int | float) or hasattr(value, "dtype")
        return self.shown(value) if number and not isinstance(value, bool) else value

    def table(self, table: Table, amounts: Iterable[str] = AMOUNTS) -> Table:
        """A table in the user's own direction."""
        return replace(table, columns=self.facts(table.columns, amounts)) if self.falls else table

    # -- words ------------------------------------------------------------------------------------

    @property
    def more(self) -> str:
        """What a better outcome is, as a word: "more" or "less"."""
        return say("less") if self.falls else say("more")

    @property
    def at_least(self) -> str:
        """What stands before the bound of a difference: "at least", or "at most" of less."""
        return say("at most") if self.falls else say("at least")

    @property
    def measured(self) -> str:
        """What numbers are in: " cells/mm³", with a space before it; '' where nobody said it."""
        return f" {self.unit}" if self.unit else ""

    def apart(self, difference: float, low: float, high: float) -> tuple[str, str]:
        """A difference that is shown: its verdict ("better"), and "lower by 3 days (1 to 5)".

        Args:
            difference: The difference to usual practice, in the direction of the outcome.
            low: The lower end of its interval; NaN where there is none.
            high: The upper end.
        """
        name = self.name or say("the return")

        def told(value: float, sign: str = "") -> str:
            return joined("", (amount(value, digits, sign), self.measured))

        if not (math.isfinite(low) and math.isfinite(high)):
            plain = not difference or not math.isfinite(difference)
            digits = 3 if plain else max(2 - math.floor(math.log10(abs(difference))), 0)
            words = say(
                "{name} {size} as estimated, without an interval", name=name,
                size=told(difference, "+"),
            )  # fmt: skip
            return "unknown", words
        digits = digits_of(high - low)
        if low <= 0 <= high:
            ends = [amount(end, digits, "+") for end in (low, high)]
            words = say("{name} {size} ({low} to {high})", name=name, size=told(difference, "+"),
                        low=ends[0], high=ends[1])  # fmt: skip
            return "unsure", words
        ends = [amount(end, digits) for end in sorted((abs(low), abs(high)))]
        size = told(abs(difference))
        if difference > 0:
            words = say("{name} higher by {size} ({low} to {high})", name=name, size=size,
                        low=ends[0], high=ends[1])  # fmt: skip
        else:
            words = say("{name} lower by {size} ({low} to {high})", name=name, size=size,
                        low=ends[0], high=ends[1])  # fmt: skip
        return ("better" if (difference < 0) == self.falls else "worse"), words

    def words(self, reward: str = "", assumed: Callable[[], str] | None = None) -> str:
        """What the outcome is, and which way is better, in a sentence.

        Args:
            reward: The column of rewards, where the outcome has no name of its own.
            assumed: What is said where nobody declared a direction. Default None: what a reader of
                a log is told.
        """
        name = self.name or _without(self.unit, reward)
        what = [part for part in (name, self.unit and f"({self.unit})") if part]
        head = say("Outcome: {name}", name=" ".join(what)) if what else say("Outcome")
        if self.better:
            way = say("lower is better.") if self.falls else say("higher is better.")
        else:
            way = assumed() if assumed is not None else ASSUMED
        return joined("; ", (head, way))


def _without(unit: str, name: str) -> str:
    """A name without the unit, which is told beside it: "cost (EUR)", in EUR, is "cost"."""
    return re.sub(rf"(?<=\S)\s*[(\[]{re.escape(unit)}[)\]]$", "", name) if unit else name


def digits_of(width: float) -> int:
    """Digits behind the point of numbers whose interval is so wide: two that tell something."""
    if not math.isfinite(width) or width <= 0:
        return 3
    return min(max(1 - math.floor(math.log10(width)), 0), 6)


def in_digits(value: float, digits: int = 3, sign: str = "") -> str:
    """A number with so many digits behind the point; with its own where nothing is left of it.

    Args:
        value: The number.
        digits: How many digits stand behind the point. Default 3.
        sign: "+" to show the sign of numbers above 0 too. Default "".

    Example:
        >>> in_digits(0.25, 2, "+"), in_digits(2.5e-9, 6), in_digits(0.0)
        ('+0.25', '2.5e-09', '0.000')
    """
    text = f"{value:{sign}.{digits}f}"
    return f"{value:{sign}.2g}" if value and not float(text) else text


def amount(value: float, digits: int = 3, sign: str = "") -> str:
    """A number as `in_digits` writes it, which pages write the way of their language.

    Example:
        >>> amount(0.25, 2, "+"), amount(2.5e-9, 6), amount(-3.0, 0)
        ('+0.25', '2.5e-09', '-3')
    """
    how = f"{sign}.{digits}f"
    lost = value and not float(format(value, how))
    return Said(f"{{x:{sign}.2g}}" if lost else f"{{x:{how}}}", "", {"x": value})


ASSUMED = worded("larger is assumed to be better (say {better='lower'} if not).")
UNDECLARED: Final = Outcome()


def check_same_direction(policy: Any, log: Any) -> None:
    """Refuse a log in which the other direction is the better one."""
    if not (getattr(policy, "provenance", None) or {}).get("columns"):
        return  # made from no log that anybody read: it says nothing of a direction
    own, theirs = Outcome.learned(policy), Outcome.of(log.columns)
    if own.falls == theirs.falls:
        return
    here, there = (("lower", "higher") if x.falls else ("higher", "lower") for x in (own, theirs))
    raise PolicyError(
        f"the policy was learned where a {here[0]} outcome is better; in this log a {there[0]} "
        "one is.",
        f"the policy: {own.words()[9:]} this log: {theirs.words()[9:]}",
        worded(
            "Read the log with {better}, or judge a policy that was learned for it.",
            better=option("better", here[0]),
        ),
    )


# --- Names of columns that sound like a harm: of those larger is hardly ever better

_HARMS = (
    # English
    "death deaths dead died mortality mort fatal fatality readmission readmissions readmitted "
    "rehospitalization rehospitalisation cost costs charges expenses los complication "
    "complications adverse bleeding bleed hemorrhage haemorrhage infection infections infected "
    "relapse relapsed relapses toxicity harm suicide sepsis "
    # German
    "tod tode todesfall todesfälle todesfaelle tot gestorben verstorben sterblichkeit "
    "letalität letalitaet mortalität mortalitaet kosten verweildauer liegedauer wiederaufnahme "
    "wiederaufnahmen komplikation komplikationen blutung blutungen infektion infektionen "
    "rückfall rueckfall rückfälle rezidiv rezidive nebenwirkung nebenwirkungen"
)
HARMS: Final = frozenset(_HARMS.split())
"""Words for what nobody wants more of."""
PARTS: Final = (
    "sterblichkeit", "verweildauer", "liegedauer", "wiederaufnahme", "komplikation",
    "mortality", "mortalität", "mortalitaet", "readmission", "lengthofstay", "nebenwirkung",
)  # fmt: skip
"""The same inside of longer words, which are long enough not to be there by chance."""
_TURNED = (
    "no not non without free averted avoided prevented saved savings saving survived survival "
    "alive reduction reduced decrease decreased negative neg minus inverse inverted benefit "
    "effectiveness control controlled cure cured resolved cleared recovery recovered effective "
    "ohne frei kein keine nicht vermieden verhindert überlebt ueberlebt gespart ersparnis to until "
    "till bis before vor"
)
TURNED: Final = frozenset(_TURNED.split())
"""Words beside them that say the opposite: "relapse_free", "days_to_death", "costs_saved"."""
WORDS_IN = re.compile(r"[A-ZÄÖÜ]+(?=[A-ZÄÖÜ][a-zäöüß])|[A-ZÄÖÜ]?[a-zäöüß]+|[A-ZÄÖÜ]+")


def sounds_like_harm(name: str) -> bool:
    """Whether the name of a column is one of which less is better, as far as a name can tell.

    Example:
        >>> sounds_like_harm("died_28d"), sounds_like_harm("costTotal"), sounds_like_harm("score")
        (True, True, False)
        >>> sounds_like_harm("days_to_death"), sounds_like_harm("relapse_free")
        (False, False)
    """
    words = [word.lower() for word in WORDS_IN.findall(name)]
    if TURNED.intersection(words) or "los angeles" in " ".join(words):
        return False
    return (
        bool(HARMS.intersection(words))
        or "length of stay" in " ".join(words)
        or any(part in word for word in words for part in PARTS)
        or any(len(word) >= 7 and word.endswith("itis") for word in words)
    )


def refuse_harm(outcome: Outcome, reward: Any) -> None:
    """Refuse a reward that sounds like a harm, until somebody says which way is better."""
    if outcome.better or not isinstance(reward, str) or not sounds_like_harm(reward):
        return
    raise ParameterError(
        f"the reward {reward!r} sounds like a harm, and nobody has said which way is better.",
        "without a word, larger counts as better",
        worded("Say {better='lower'} if less of it is better, or {better='higher'} if more is."),
        argument="better",
    )
