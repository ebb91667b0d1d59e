"""What must hold between the keys of a spec, whatever the data are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dprl.logs.events._codes import fold_codes
from dprl.logs.events._fields import Path, check_fields, microseconds, refuse
from dprl.logs.events._source_rules import check_source

if TYPE_CHECKING:
    from dprl.logs.events.spec import Feature, Part, Reward, Spec

__all__ = ["COLUMNS", "NEED_ROW", "check_spec"]

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

    lines = spec.lines
    for attribute, kind in (("source", kinds.Source), ("episodes", kinds.Episodes),
                            ("clock", kinds.Clock), ("action", kinds.Action)):  # fmt: skip
        table = getattr(spec, attribute)
        if not isinstance(table, kind):
            what = f"{attribute} must be a {kind.__name__}; got {type(table).__name__}."
            raise refuse(lines, (attribute,), what)
        check_fields(table, (attribute,), lines)
    several: tuple[tuple[str, str, Any, Path], ...] = (
        ("features", "feature", kinds.Feature, ("feature",)),
        ("rewards", "reward", kinds.Reward, ("reward",)),
        ("ends", "end", kinds.End, ("end",)),
        ("intervals", "interval", kinds.Interval, ("interval",)),
    )
    for attribute, word, kind, path in several:
        _check_list(getattr(spec, attribute), word, kind, path, lines)
    _check_list(spec.action.parts, "part", kinds.Part, ("action", "part"), lines)
    for attribute, word in (("features", "feature"), ("rewards", "reward")):
        if not getattr(spec, attribute):
            raise refuse(
                lines, (word,), f"a spec needs at least one {word}.", f"Add a table [[{word}]]."
            )
    if not spec.action.parts:
        raise refuse(
            lines, ("action",), "an action needs at least one part.", "Add a table [[action.part]]."
        )
    check_source(spec)
    fold_codes(spec)
    _check_episodes(spec)
    _check_clock(spec)
    for i, feature in enumerate(spec.features):
        _check_feature(feature, ("feature", i), lines)
    for i, part in enumerate(spec.action.parts):
        _check_part(part, ("action", "part", i), lines, spec)
    for i, reward in enumerate(spec.rewards):
        _check_reward(reward, ("reward", i), lines, spec)
    _check_names(spec)


def _check_list(tables: Any, word: str, kind: Any, path: Path, lines: Any) -> None:
    if not isinstance(tables, tuple):
        raise refuse(lines, path, f"{word}s must be a list; got {type(tables).__name__}.")
    for i, table in enumerate(tables):
        if not isinstance(table, kind):
            what = f"a {word} must be a {kind.__name__}; got {type(table).__name__}."
            raise refuse(lines, (*path, i), what)
        check_fields(table, (*path, i), lines)
        if kind.__name__ == "Part":
            from dprl.logs.events.spec import Choice

            _check_list(table.choices, "choice", Choice, (*path, i, "choices"), lines)


def _check_episodes(spec: Spec) -> None:
    episodes, lines = spec.episodes, spec.lines
    needs = {"code": ("start",), "table": ("table",), "gap": ("gap", "ended")}
    for key in needs[episodes.by]:
        if not getattr(episodes, key):
            do = {
                "start": 'Name the codes that begin an episode: start = ["ADMISSION"].',
                "table": 'Name its file: table = "stays.csv".',
                "gap": 'Say how far apart two events of one episode may be: gap = "24 h".',
                "ended": 'Say what the last event before a gap is: ended = "terminal", or "cut".',
            }[key]
            raise refuse(lines, ("episodes", "by"), f"episodes by {episodes.by} need {key!r}.", do)
    foreign = {"start": "code", "table": "table", "gap": "gap"}
    for key, by in foreign.items():
        if getattr(episodes, key) and episodes.by != by:
            raise refuse(
                lines,
                ("episodes", key),
                f"{key!r} belongs to episodes by {by}, and these are by {episodes.by}.",
                "Leave one of the two out.",
            )
    if episodes.ended not in ("", "terminal", "cut"):
        raise refuse(
            lines,
            ("episodes", "ended"),
            f"ended must be 'terminal' or 'cut'; got {episodes.ended!r}.",
        )
    if episodes.group not in ("subject", "episode") and episodes.by != "table":
        raise refuse(
            lines,
            ("episodes", "group"),
            f"group {episodes.group!r} must be 'subject' or 'episode': only a table has "
            "columns of its own.",
        )
    _positive(episodes.gap, "gap", ("episodes", "gap"), lines)


def _check_clock(spec: Spec) -> None:
    clock, lines = spec.clock, spec.lines
    if bool(clock.every) == bool(clock.on):
        what = "needs 'every' or 'on'" if not clock.every else "has both 'every' and 'on'"
        raise refuse(
            lines,
            ("clock", "on") if clock.on else ("clock",),
            f"the clock {what}.",
            'Write every = "4 h", or on = ["VISIT"].',
        )
    _positive(clock.every, "every", ("clock", "every"), lines)
    _positive(clock.horizon, "horizon", ("clock", "horizon"), lines)
    if clock.on and clock.partial == "drop":
        raise refuse(
            lines,
            ("clock", "partial"),
            "partial = 'drop' is of a clock with 'every': windows of 'on' have no length.",
        )


def _positive(duration: str, name: str, path: Path, lines: Any) -> None:
    if duration and microseconds(duration) == 0:
        raise refuse(lines, path, f"{name} must be longer than 0; got {duration!r}.")


def _check_feature(feature: Feature, path: Path, lines: Any) -> None:
    take = feature.take
    if take in WITHOUT_CODES:
        for key in ("codes", "within", "valid", "known_after", "static"):
            if getattr(feature, key):
                raise refuse(lines, (*path, key), f"{take!r} takes no {key}.", "Leave it out.")
        return
    if not feature.codes:
        raise refuse(
            lines,
            path,
            f"feature {feature.name!r} ({take}) has no codes.",
            'Name its events: codes = ["LAB//lactate"].',
        )
    if feature.static:
        if take not in ("last", "count", "ever"):
            raise refuse(
                lines,
                (*path, "take"),
                f"{take!r} of rows without a time makes no sense.",
                "Static features take 'last', 'count' or 'ever'.",
            )
        for key in ("within", "known_after"):
            if getattr(feature, key):
                raise refuse(
                    lines,
                    (*path, key),
                    f"a static feature takes no {key}.",
                    "Rows without a time have no age. Leave it out.",
                )
        return
    if not feature.within:
        raise refuse(
            lines,
            path,
            f"feature {feature.name!r} ({take}) does not say how far it looks back.",
            'Write within = "24 h", "episode" or "history".',
        )
    if feature.within in ("episode", "history") and take in ("slope", "dose"):
        if take == "slope" or feature.within == "history":
            raise refuse(
                lines,
                (*path, "within"),
                f"{take!r} needs a look-back of limited length.",
                'Write within = "24 h".',
            )
    elif feature.within not in ("episode", "history"):
        _positive(feature.within, "within", (*path, "within"), lines)


def _check_part(part: Part, path: Path, lines: Any, spec: Spec) -> None:
    if bool(part.codes) == bool(part.choices):
        what = "has neither codes nor choices" if not part.codes else "has both codes and choices"
        raise refuse(lines, path, f"part {part.name!r} {what}.", 'Write codes = ["DRUG//*"].')
    if part.choices:
        for key in ("edges", "levels"):
            if getattr(part, key):
                raise refuse(lines, (*path, key), f"choices have names of their own: no {key}.")
        if part.take != "any":
            raise refuse(lines, (*path, "take"), f"choices go by 'any' event; got {part.take!r}.")
        names = [choice.name for choice in part.choices]
        for name in names:
            if names.count(name) > 1:
                raise refuse(lines, (*path, "choices"), f"two choices are called {name!r}.")
    elif part.take == "any" and part.edges:
        raise refuse(
            lines,
            (*path, "edges"),
            "'any' is 0 or 1 and takes no edges.",
            "Leave them out, or take 'sum', 'dose' or another number.",
        )
    elif part.take != "any" and not part.edges:
        raise refuse(
            lines,
            (*path, "take"),
            f"{part.take!r} is a number and needs edges.",
            "Write edges = [0, 500]: 0, above 0 up to 500, above 500.",
        )
    levels = len(part.edges) + 1 if part.edges else 2
    if part.levels and len(part.levels) != levels:
        raise refuse(
            lines,
            (*path, "levels"),
            f"{len(part.levels)} names for {levels} levels of part {part.name!r}.",
            "There is one level more than edges.",
        )
    if part.levels and len(set(part.levels)) < len(part.levels):
        raise refuse(lines, (*path, "levels"), f"two levels of part {part.name!r} have one name.")
    if part.take in NEED_ROW and not part.absent:
        raise refuse(
            lines,
            path,
            f"part {part.name!r} takes {part.take!r} and does not say what it is "
            "where there is no row.",
            'Name that level: absent = "not set".',
        )
    if part.take in ("dose", "amount"):
        _needs_end(part.codes, part.take, (*path, "take"), spec)


def _needs_end(codes: Any, take: str, path: Path, spec: Spec) -> None:
    """Refuse a dose of rows that can have no end."""
    from dprl.logs.events._codes import matches

    made = [interval.name for interval in spec.intervals]
    if spec.source.end or spec.source.preset == "omop":
        return
    for code in codes:
        if not any(matches(code, name) for name in made):
            raise refuse(
                spec.lines,
                path,
                f"{take!r} needs rows with an end, and {code!r} has none.",
                "Name the column of ends in [source], or make rows with [[interval]].",
            )


def _check_reward(reward: Reward, path: Path, lines: Any, spec: Spec) -> None:
    if not reward.codes and not (reward.at == "end" and reward.ended):
        raise refuse(
            lines,
            path,
            "a reward has no codes.",
            'Name its events: codes = ["DEATH"]; or at = "end" and ended = ["died"].',
        )
    if not reward.codes and reward.take != "any":
        raise refuse(lines, (*path, "take"), f"{reward.take!r} needs codes.")
    if reward.ended and reward.at != "end":
        raise refuse(
            lines, (*path, "ended"), "'ended' belongs to a reward at the end.", 'Write at = "end".'
        )
    if reward.at == "end" and reward.side == "finish":
        raise refuse(lines, (*path, "side"), "'side' belongs to a reward of every window.")
    if reward.missing is not None and reward.take not in NEED_ROW:
        raise refuse(
            lines,
            (*path, "missing"),
            f"{reward.take!r} is never missing: without a row it is 0.",
            "Leave it out.",
        )
    words = {"terminal", "cut", *(end.ended for end in spec.ends)}
    for word in reward.ended:
        if word not in words:
            raise refuse(
                lines,
                (*path, "ended"),
                f"no episode can end with {word!r}.",
                f"The words are {', '.join(sorted(words))}.",
            )


def _check_names(spec: Spec) -> None:
    """Refuse two features of one name, and labels of two actions that would be the same."""
    taken = dict.fromkeys(COLUMNS, "a column of every log")
    for i, feature in enumerate(spec.features):
        if feature.name.lower() in taken:
            raise refuse(
                spec.lines,
                ("feature", i, "name"),
                f"the name {feature.name!r} is taken: {taken[feature.name.lower()]}.",
                "Choose another; capital letters make no difference.",
            )
        taken[feature.name.lower()] = "another feature"
        if feature.take == "dose":
            _needs_end(feature.codes, "dose", ("feature", i, "take"), spec)
    names: set[str] = set()
    for i, part in enumerate(spec.action.parts):
        if part.name in names:
            raise refuse(
                spec.lines,
                ("action", "part", i, "name"),
                f"two parts of the action are called {part.name!r}.",
            )
        names.add(part.name)
    if spec.action.combine == "first" and spec.action.none in names:
        raise refuse(
            spec.lines,
            ("action", "none"),
            f"{spec.action.none!r} is a part of the action and the word for none.",
        )
    made = [interval.name for interval in spec.intervals]
    for i, name in enumerate(made):
        if name in made[:i]:
            raise refuse(spec.lines, ("interval", i, "name"), f"two intervals are called {name!r}.")
