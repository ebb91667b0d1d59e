"""What must hold between the keys of a spec, whatever the data are."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dprl.errors import LogError, ParameterError
from dprl.logs.events.spec import UNITS, At, Path, SpecError, check_fields, microseconds, place
from dprl.logs.reading.text import Text, check_labels, fold

if TYPE_CHECKING:
    from dprl.logs.events.spec import Feature, Part, Reward, Spec


def at_key(spec: Spec, *path: str | int) -> At:
    """A key of a spec."""
    return At(spec.lines, path)


# --- Which codes of the data a spec means: exact words, or patterns with `*`


@dataclass(frozen=True)
class Use:
    """One place of a spec that names codes.

    Attributes:
        role: Short name of the place: "f0" is the first feature.
        path: The key in the spec.
        codes: The codes and patterns.
        may_be_absent: Whether it may be that none of them is in the data.
    """

    role: str
    path: Path
    codes: tuple[str, ...]
    may_be_absent: bool = False


def uses(spec: Spec) -> Iterator[Use]:
    """Every place of a spec that names codes."""
    if spec.episodes.by == "code":
        yield Use("start", ("episodes", "start"), spec.episodes.start)
    if spec.episodes.by == "gap":
        yield Use("gap", ("episodes", "codes"), spec.episodes.codes)
    if spec.clock.on:
        yield Use("on", ("clock", "on"), spec.clock.on)
    for i, end in enumerate(spec.ends):
        yield Use(f"e{i}", ("end", i, "codes"), end.codes, end.may_be_absent)
    for i, feature in enumerate(spec.features):
        if feature.codes:
            yield Use(f"f{i}", ("feature", i, "codes"), feature.codes, feature.may_be_absent)
    for i, part in enumerate(spec.action.parts):
        path = ("action", "part", i)
        if part.codes:
            yield Use(f"a{i}", (*path, "codes"), part.codes, part.may_be_absent)
        for j, choice in enumerate(part.choices):
            yield Use(f"a{i}c{j}", (*path, "choices"), choice.codes, part.may_be_absent)
    for i, reward in enumerate(spec.rewards):
        if reward.codes:
            yield Use(f"r{i}", ("reward", i, "codes"), reward.codes, reward.may_be_absent)
    for i, interval in enumerate(spec.intervals):
        yield Use(f"i{i}start", ("interval", i, "start"), interval.start, interval.may_be_absent)
        yield Use(f"i{i}stop", ("interval", i, "stop"), interval.stop, interval.may_be_absent)


def fold_codes(spec: Spec) -> None:
    """Trim the codes of a spec, or write them small, as its source asks for."""
    how = spec.source.labels
    if not how:
        return

    def folded(table: Any, *keys: str) -> Any:
        words = {key: getattr(table, key) for key in keys}
        return replace(
            table,
            **{
                key: fold(word, how)
                if isinstance(word, str)
                else tuple(fold(each, how) for each in word)
                for key, word in words.items()
            },
        )

    def set_to(key: str, value: Any) -> None:
        object.__setattr__(spec, key, value)

    set_to("episodes", folded(spec.episodes, "start", "codes"))
    set_to("clock", folded(spec.clock, "on"))
    for key in ("features", "rewards", "ends"):
        set_to(key, tuple(folded(table, "codes") for table in getattr(spec, key)))
    set_to("intervals", tuple(folded(x, "name", "start", "stop") for x in spec.intervals))
    parts = tuple(
        replace(
            folded(part, "codes"), choices=tuple(folded(choice, "codes") for choice in part.choices)
        )
        for part in spec.action.parts
    )
    set_to("action", replace(spec.action, parts=parts))


def _regular(pattern: str) -> str:
    return ".*".join(map(re.escape, pattern.split("*")))


def matches(pattern: str, code: str) -> bool:
    """Whether a code is meant by a pattern."""
    return re.fullmatch(_regular(pattern), code, re.DOTALL) is not None


def may_overlap(one: Sequence[str], other: Sequence[str]) -> tuple[str, str] | None:
    """Two patterns, one of each list, that a single code could match; None if there are none."""
    for a in one:
        for b in other:
            if _meet(a, b):
                return a, b
    return None


def _meet(a: str, b: str) -> bool:
    """Whether some text matches both patterns."""
    # row[j]: some text matches the letters of a so far and the first j letters of b
    row = [True] + [False] * len(b)
    for j, letter in enumerate(b):
        row[j + 1] = row[j] and letter == "*"
    for x in a:
        new = [row[0] and x == "*"] + [False] * len(b)
        for j, y in enumerate(b):
            if "*" in (x, y):  # a star stands for nothing, or for one letter more
                new[j + 1] = new[j] or row[j + 1]
            else:
                new[j + 1] = row[j] and x == y
        row = new
    return row[-1]


def _closest(pattern: str, codes: Sequence[str]) -> list[str]:
    """The code that is most like another: one that differs in case and blanks alone comes first."""
    plain = " ".join(pattern.split()).casefold()
    for code in codes:
        if " ".join(code.split()).casefold() == plain:
            return [code]
    return difflib.get_close_matches(pattern, codes[:20_000], n=1, cutoff=0.5)


def resolve(spec: Spec, codes: Sequence[str]) -> list[tuple[str, str, int]]:
    """Rows (role, code, rank): the codes of the data that each place means.

    The rank is the place in the list of the first pattern that the code matches.

    Raises:
        LogError: No code of the data is meant, and none of them may be absent.
    """
    made = tuple(interval.name for interval in spec.intervals)
    for i, name in enumerate(made):
        if name in codes:
            raise LogError(
                f"the data have the code {name!r} already.",
                place(spec.lines, ("interval", i, "name")),
                "Give the interval another name.",
            )
    every = [*codes, *made]
    in_data = set(every)
    rows: list[tuple[str, str, int]] = []
    for use in uses(spec):
        ranks: dict[str, int] = {}
        for rank, pattern in enumerate(use.codes):
            if "*" in pattern:
                regular = re.compile(_regular(pattern), re.DOTALL)
                hits: Any = [code for code in every if regular.fullmatch(code)]
            else:
                hits = [pattern] if pattern in in_data else []
            if not hits and not use.may_be_absent:
                near = _closest(pattern, every)
                needed = use.path[0] in ("episodes", "clock")  # without it there is no decision
                raise LogError(
                    f"no event has the code {pattern!r}.",
                    place(spec.lines, use.path),
                    (f"Did you mean {near[0]!r}? " if near else "")
                    + (
                        "Name one that the events have."
                        if needed
                        else "Where a code may be absent, write may_be_absent = true."
                    ),
                )
            for code in hits:
                ranks.setdefault(code, rank)
        rows += [(use.role, code, rank) for code, rank in ranks.items()]
    return rows


# --- The proof that no state sees what comes after its decision; specs without one are refused
#
# A row enters the state of the decision at t only if it is *known* there. Known is a row
#
# - at its time, or at the column `known` of the source, or after the day for a time without an
#   hour;
# - at its end, if it has one (an amount is known when it has run in). That it began is known when
#   it begins ("count", "ever" and "age" without `valid`), and so is a rate ("dose"), of which only
#   the part before t counts. With a column `known` that column alone says it;
# - after `known_after` more.
#
# The SQL of every feature compares only that moment with t: before it (`until = "before"`), or not
# after it (`until = "at"`). What is left to prove is about the spec, and is proved here:
#
# 1. The delay is not negative. (Durations never are.)
# 2. What is done and gained after t is in no state at t. Windows begin at t, so a feature until
#    "at" must not count rows that a window counts: its codes and those of actions, and of rewards
#    that count rows at t, must have no code in common.
# 3. A row without a time is known always: a static feature must not be made of codes that begin or
#    end an episode, are an action or a reward.
# 4. When there is a decision must not tell what is decided: a clock must not go by codes of
#    actions.


def refuse_leaks(spec: Spec) -> None:
    """Refuse a spec in which a state could hold what is known only after its decision.

    Args:
        spec: The spec; its keys have been checked one by one.

    Raises:
        SpecError: With the line of the feature or of the clock, and the other place it meets.
    """
    by_role = {use.role: use for use in uses(spec)}
    for i, feature in enumerate(spec.features):
        use = by_role.get(f"f{i}")
        if use is None:
            continue
        at = at_key(spec, "feature", i, "codes")
        if feature.until == "at":
            for other, what in _at_the_decision(spec, by_role):
                both = may_overlap(use.codes, _outer(spec, other.codes))
                if both is not None:
                    raise at.refuse(
                        f"feature {feature.name!r} would see {what} of its own decision: it counts "
                        f"rows of {both[0]!r} at the moment of the decision.",
                        f'Write until = "before" there ({place(spec.lines, other.path)}).',
                    )
        if feature.static:
            for other in _outcomes(by_role):
                both = may_overlap(use.codes, _outer(spec, other.codes))
                if both is not None:
                    raise at.refuse(
                        f"static feature {feature.name!r} would be known from the beginning, and "
                        f"{both[0]!r} is what happens later.",
                        f"Take it out of the state (see {place(spec.lines, other.path)}).",
                    )
    _refuse_telling_clock(spec, by_role)


def _outer(spec: Spec, codes: tuple[str, ...]) -> tuple[str, ...]:
    """The codes, and those of the rows from which intervals of these names are made."""
    more: list[str] = []
    for interval in spec.intervals:
        if may_overlap([interval.name], codes):
            more += [*interval.start, *interval.stop]
    return (*codes, *more)


def _at_the_decision(spec: Spec, by_role: dict[str, Use]) -> Iterator[tuple[Use, str]]:
    """The places that count rows at t itself for what comes after, and what they are."""
    for role, use in by_role.items():
        if role.startswith("a"):
            yield use, "the action"
        if role.startswith("r") and spec.rewards[int(role[1:])].side == "start":
            yield use, "the reward"


def _outcomes(by_role: dict[str, Use]) -> Iterator[Use]:
    """The places that say what happens during an episode."""
    for role, use in by_role.items():
        if role[0] in "are" or role in ("start", "on"):
            yield use


def _refuse_telling_clock(spec: Spec, by_role: dict[str, Use]) -> None:
    if "on" not in by_role:
        return
    for role, use in by_role.items():
        if not role.startswith("a"):
            continue
        both = may_overlap(by_role["on"].codes, _outer(spec, use.codes))
        if both is not None:
            raise SpecError(
                f"the clock would tell the action: there is a decision only where {both[0]!r} "
                "happens, and that is an action.",
                place(spec.lines, ("clock", "on")),
                'Let the clock go by something else, such as a visit or every = "4 h".',
            )


# --- What must hold of the source of a spec: where the events are, and how they are written


def check_source(spec: Spec) -> None:
    """Refuse a source whose keys are not what they must be, with the line of the key."""
    source = spec.source
    if source.time_unit and source.time_unit not in UNITS:
        raise at_key(spec, "source", "time_unit").refuse(
            f"time_unit must be one of {', '.join(UNITS)}; got {source.time_unit!r}."
        )
    written = ("decimal", "encoding", "dates", "labels", "delimiter")
    for key in written:
        try:
            Text(**{key: getattr(source, key)})
        except ParameterError as error:
            raise at_key(spec, "source", key).refuse(error.what, _in_source(key)) from error
    object.__setattr__(source, "labels", check_labels(source.labels))
    if source.time_zone and source.time_unit:
        raise at_key(spec, "source", "time_zone").refuse(
            "times are numbers (time_unit), and numbers have no time zone.",
            "Leave one of the two out.",
        )
    for key in ("decimal", "encoding", "dates", "time_zone", "delimiter"):
        if source.preset == "omop" and getattr(source, key) != getattr(type(source), key):
            raise at_key(spec, "source", key).refuse(
                f"OMOP tables are read as the CDM writes them: they take no {key!r}.",
                "Leave it out, or write the tables again.",
            )
    if source.preset == "omop" and len(source.files) > 1:
        raise at_key(spec, "source", "files").refuse(
            f"OMOP tables are in one folder or one DuckDB file; got {len(source.files)}."
        )


def _in_source(key: str) -> str:
    """What to write in [source] for one key of how its text is written."""
    return {
        "decimal": 'Write decimal = "," or ".".',
        "encoding": 'Write encoding = "cp1252" (Windows), "latin-1", "utf-16" or another that '
        "Python has.",
        "dates": 'Write dates = "day-first", "month-first", or a format with a year of four digits '
        'such as "%d %b %Y".',
        "labels": 'Write labels = "trim", "casefold" or "trim,casefold".',
        "delimiter": 'Write the character between two cells: delimiter = ";".',
    }[key]


# --- What must hold between the keys of a spec, whatever the data are

COLUMNS = ("episode", "subject", "group", "step", "time", "action", "reward", "ended")
"""The columns of a log that are not features."""
NEED_ROW = ("last", "mean", "min", "max")
"""What has no result where there is no row."""
WITHOUT_CODES = ("elapsed", "step")


def check_spec(spec: Spec) -> None:
    """Refuse a spec whose keys are not what they must be or contradict each other.

    Its codes are trimmed or written small here, where the source asks for it.
    """
    from dprl.logs.events import spec as kinds

    for attribute, kind in (("source", kinds.Source), ("episodes", kinds.Episodes),
                            ("clock", kinds.Clock), ("action", kinds.Action)):  # fmt: skip
        table = getattr(spec, attribute)
        if not isinstance(table, kind):
            what = f"{attribute} must be a {kind.__name__}; got {type(table).__name__}."
            raise at_key(spec, attribute).refuse(what)
        check_fields(table, at_key(spec, attribute))
    several: dict[str, type] = {
        "feature": kinds.Feature, "reward": kinds.Reward, "end": kinds.End,
        "interval": kinds.Interval,
    }  # fmt: skip
    for word, each in several.items():
        _check_list(getattr(spec, f"{word}s"), word, each, at_key(spec, word))
    _check_list(spec.action.parts, "part", kinds.Part, at_key(spec, "action", "part"))
    for word in ("feature", "reward"):
        if not getattr(spec, f"{word}s"):
            raise at_key(spec, word).refuse(
                f"a spec needs at least one {word}.", f"Add a table [[{word}]]."
            )
    if not spec.action.parts:
        raise at_key(spec, "action").refuse(
            "an action needs at least one part.", "Add a table [[action.part]]."
        )
    check_source(spec)
    fold_codes(spec)
    _check_episodes(spec)
    _check_clock(spec)
    for i, feature in enumerate(spec.features):
        _check_feature(feature, at_key(spec, "feature", i))
    for i, part in enumerate(spec.action.parts):
        _check_part(part, at_key(spec, "action", "part", i), spec)
    for i, reward in enumerate(spec.rewards):
        _check_reward(reward, at_key(spec, "reward", i), spec)
    _check_names(spec)


def _check_list(tables: Any, word: str, kind: Any, at: At) -> None:
    if not isinstance(tables, tuple):
        raise at.refuse(f"{word}s must be a list; got {type(tables).__name__}.")
    for i, table in enumerate(tables):
        if not isinstance(table, kind):
            what = f"a {word} must be a {kind.__name__}; got {type(table).__name__}."
            raise at.key(i).refuse(what)
        check_fields(table, at.key(i))
        if kind.__name__ == "Part":
            from dprl.logs.events.spec import Choice

            _check_list(table.choices, "choice", Choice, at.key(i, "choices"))


def _check_episodes(spec: Spec) -> None:
    episodes = spec.episodes
    needs = {"code": ("start",), "table": ("table",), "gap": ("gap", "ended")}
    for key in needs[episodes.by]:
        if not getattr(episodes, key):
            do = {
                "start": 'Name the codes that begin an episode: start = ["ADMISSION"].',
                "table": 'Name its file: table = "stays.csv".',
                "gap": 'Say how far apart two events of one episode may be: gap = "24 h".',
                "ended": 'Say what the last event before a gap is: ended = "terminal", or "cut".',
            }[key]
            raise at_key(spec, "episodes", "by").refuse(
                f"episodes by {episodes.by} need {key!r}.", do
            )
    foreign = {"start": "code", "table": "table", "gap": "gap"}
    for key, by in foreign.items():
        if getattr(episodes, key) and episodes.by != by:
            raise at_key(spec, "episodes", key).refuse(
                f"{key!r} belongs to episodes by {by}, and these are by {episodes.by}.",
                "Leave one of the two out.",
            )
    if episodes.ended not in ("", "terminal", "cut"):
        raise at_key(spec, "episodes", "ended").refuse(
            f"ended must be 'terminal' or 'cut'; got {episodes.ended!r}."
        )
    if episodes.group not in ("subject", "episode") and episodes.by != "table":
        raise at_key(spec, "episodes", "group").refuse(
            f"group {episodes.group!r} must be 'subject' or 'episode': only a table has "
            "columns of its own."
        )
    _positive(episodes.gap, at_key(spec, "episodes", "gap"))


def _check_clock(spec: Spec) -> None:
    clock = spec.clock
    if bool(clock.every) == bool(clock.on):
        what = "needs 'every' or 'on'" if not clock.every else "has both 'every' and 'on'"
        raise at_key(spec, "clock", *(("on",) if clock.on else ())).refuse(
            f"the clock {what}.", 'Write every = "4 h", or on = ["VISIT"].'
        )
    _positive(clock.every, at_key(spec, "clock", "every"))
    _positive(clock.horizon, at_key(spec, "clock", "horizon"))
    if clock.on and clock.partial == "drop":
        raise at_key(spec, "clock", "partial").refuse(
            "partial = 'drop' is of a clock with 'every': windows of 'on' have no length."
        )


def _positive(duration: str, at: At) -> None:
    if duration and microseconds(duration) == 0:
        raise at.refuse(f"{at.path[-1]} must be longer than 0; got {duration!r}.")


def _check_feature(feature: Feature, at: At) -> None:
    take = feature.take
    if take in WITHOUT_CODES:
        for key in ("codes", "within", "valid", "known_after", "static"):
            if getattr(feature, key):
                raise at.key(key).refuse(f"{take!r} takes no {key}.", "Leave it out.")
        return
    if not feature.codes:
        raise at.refuse(
            f"feature {feature.name!r} ({take}) has no codes.",
            'Name its events: codes = ["LAB//lactate"].',
        )
    if feature.static:
        if take not in ("last", "count", "ever"):
            raise at.key("take").refuse(
                f"{take!r} of rows without a time makes no sense.",
                "Static features take 'last', 'count' or 'ever'.",
            )
        for key in ("within", "known_after"):
            if getattr(feature, key):
                raise at.key(key).refuse(
                    f"a static feature takes no {key}.",
                    "Rows without a time have no age. Leave it out.",
                )
        return
    if not feature.within:
        raise at.refuse(
            f"feature {feature.name!r} ({take}) does not say how far it looks back.",
            'Write within = "24 h", "episode" or "history".',
        )
    if feature.within in ("episode", "history") and take in ("slope", "dose"):
        if take == "slope" or feature.within == "history":
            raise at.key("within").refuse(
                f"{take!r} needs a look-back of limited length.", 'Write within = "24 h".'
            )
    elif feature.within not in ("episode", "history"):
        _positive(feature.within, at.key("within"))


def _check_part(part: Part, at: At, spec: Spec) -> None:
    if bool(part.codes) == bool(part.choices):
        what = "has neither codes nor choices" if not part.codes else "has both codes and choices"
        raise at.refuse(f"part {part.name!r} {what}.", 'Write codes = ["DRUG//*"].')
    if part.choices:
        for key in ("edges", "levels"):
            if getattr(part, key):
                raise at.key(key).refuse(f"choices have names of their own: no {key}.")
        if part.take != "any":
            raise at.key("take").refuse(f"choices go by 'any' event; got {part.take!r}.")
        names = [choice.name for choice in part.choices]
        for name in names:
            if names.count(name) > 1:
                raise at.key("choices").refuse(f"two choices are called {name!r}.")
    elif part.take == "any" and part.edges:
        raise at.key("edges").refuse(
            "'any' is 0 or 1 and takes no edges.",
            "Leave them out, or take 'sum', 'dose' or another number.",
        )
    elif part.take != "any" and not part.edges:
        raise at.key("take").refuse(
            f"{part.take!r} is a number and needs edges.",
            "Write edges = [0, 500]: 0, above 0 up to 500, above 500.",
        )
    if part.unit and not part.edges:
        raise at.key("unit").refuse(
            f"part {part.name!r} has a unit and no edges.",
            "Write edges = [0, 400], or leave the unit out.",
        )
    levels = len(part.edges) + 1 if part.edges else 2
    if part.levels and len(part.levels) != levels:
        raise at.key("levels").refuse(
            f"{len(part.levels)} names for {levels} levels of part {part.name!r}.",
            "There is one level more than edges.",
        )
    if part.levels and len(set(part.levels)) < len(part.levels):
        raise at.key("levels").refuse(f"two levels of part {part.name!r} have one name.")
    if part.take in NEED_ROW and not part.absent:
        raise at.refuse(
            f"part {part.name!r} takes {part.take!r} and does not say what it is "
            "where there is no row.",
            'Name that level: absent = "not set".',
        )
    if part.take in ("dose", "amount"):
        _needs_end(part.codes, part.take, at.key("take"), spec)


def _needs_end(codes: Any, take: str, at: At, spec: Spec) -> None:
    """Refuse a dose of rows that can have no end."""
    made = [interval.name for interval in spec.intervals]
    if spec.source.end or spec.source.preset == "omop":
        return
    for code in codes:
        if not any(matches(code, name) for name in made):
            raise at.refuse(
                f"{take!r} needs rows with an end, and {code!r} has none.",
                "Name the column of ends in [source], or make rows with [[interval]].",
            )


def _check_reward(reward: Reward, at: At, spec: Spec) -> None:
    if not reward.codes and not (reward.at == "end" and reward.ended):
        raise at.refuse(
            "a reward has no codes.",
            'Name its events: codes = ["DEATH"]; or at = "end" and ended = ["died"].',
        )
    if not reward.codes and reward.take != "any":
        raise at.key("take").refuse(f"{reward.take!r} needs codes.")
    if reward.ended and reward.at != "end":
        raise at.key("ended").refuse("'ended' belongs to a reward at the end.", 'Write at = "end".')
    if reward.at == "end" and reward.side == "finish":
        raise at.key("side").refuse("'side' belongs to a reward of every window.")
    if reward.missing is not None and reward.take not in NEED_ROW:
        raise at.key("missing").refuse(
            f"{reward.take!r} is never missing: without a row it is 0.", "Leave it out."
        )
    words = {"terminal", "cut", *(end.ended for end in spec.ends)}
    for word in reward.ended:
        if word not in words:
            raise at.key("ended").refuse(
                f"no episode can end with {word!r}.", f"The words are {', '.join(sorted(words))}."
            )


def _check_names(spec: Spec) -> None:
    """Refuse two features of one name, and labels of two actions that would be the same."""
    taken = dict.fromkeys(COLUMNS, "a column of every log")
    for i, feature in enumerate(spec.features):
        if feature.name.lower() in taken:
            raise at_key(spec, "feature", i, "name").refuse(
                f"the name {feature.name!r} is taken: {taken[feature.name.lower()]}.",
                "Choose another; capital letters make no difference.",
            )
        taken[feature.name.lower()] = "another feature"
        if feature.take == "dose":
            _needs_end(feature.codes, "dose", at_key(spec, "feature", i, "take"), spec)
    names: set[str] = set()
    for i, part in enumerate(spec.action.parts):
        if part.name in names:
            raise at_key(spec, "action", "part", i, "name").refuse(
                f"two parts of the action are called {part.name!r}."
            )
        names.add(part.name)
    if spec.action.combine == "first" and spec.action.none in names:
        raise at_key(spec, "action", "none").refuse(
            f"{spec.action.none!r} is a part of the action and the word for none."
        )
    made = [interval.name for interval in spec.intervals]
    for i, name in enumerate(made):
        if name in made[:i]:
            raise at_key(spec, "interval", i, "name").refuse(f"two intervals are called {name!r}.")
