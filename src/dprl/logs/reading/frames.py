"""Named columns of a dataframe, or of any source that can hand over a column by its name."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import is_short
from dprl.errors import LogError
from dprl.logs.encoding.categories import Levels, check_declared, feature_columns, folded
from dprl.logs.encoding.doses import actions_of, checked_bins
from dprl.logs.reading.also import AlsoNames, also_names, collect
from dprl.logs.reading.columns import Coded, Columns, encode, encode_menus, numbers, tidy_labels
from dprl.logs.reading.dates import text_times
from dprl.logs.reading.lake import gathered, refuse_files_of_lake
from dprl.logs.reading.options import Reading
from dprl.logs.reading.sums import costs_of, is_sum, part_columns, summed, weights_of
from dprl.logs.reading.text import Text, fold
from dprl.logs.reading.times import Zoned, times
from dprl.logs.roles import NAMES, ROLES, further_roles

Raw: TypeAlias = tuple[Any, NDArray[np.bool_] | None]


def choose(
    parts: Mapping[str, str | Sequence[str] | None], columns: Sequence[str]
) -> dict[str, Any]:
    """The source's column for every part: part → column name; for features → a list of names.

    Features are given as a list, or as a pattern such as 'x_*'. A name that a column has is taken
    as that column, even if it contains stars or brackets.
    """
    chosen: dict[str, Any] = {}
    for part, name in parts.items():
        if name is None:
            continue
        if not isinstance(name, str):
            names = [match for pattern in name for match in _matching(pattern, columns, part)]
            several = list(dict.fromkeys(names))
            chosen[part] = several[0] if part == "action" and len(several) == 1 else several
        elif part == "state" and name not in columns and any(ch in name for ch in "*?["):
            chosen[part] = _matching(name, columns, part)
        else:
            chosen[part] = one_column(name, columns, part)
    flat = [n for v in chosen.values() for n in (v if isinstance(v, list) else [v])]
    for name in flat:
        if flat.count(name) > 1:
            parts_of = [p for p, v in chosen.items() if name == v or name in v]
            raise LogError(f"column {name!r} is used for {' and '.join(parts_of)}.")
    return chosen


def chosen_names(reading: Reading, columns: Sequence[str]) -> dict[str, Any]:
    """The source's column for every part, with those that sums, costs and guards are made of."""
    asked, reward = dict(reading.columns), reading.columns.get("reward")
    parts = None
    timed = reading.time_to_event is not None
    if isinstance(reward, str) and reward not in columns and is_sum(reward) and not timed:
        parts = weights_of(asked.pop("reward"))
    names = choose(asked, columns)
    taken = {n: k for k, v in names.items() for n in (v if isinstance(v, list) else [v])}
    if parts is not None:
        names |= {"reward": reward, "parts": parts}
    if reading.costs:
        names["costs"] = costs_of(reading.costs)
    if reading.guard:
        names["guard"] = list(dict.fromkeys(reading.guard))
    for name in part_columns(names):
        one_column(name, columns, "reward")
        if name in taken:
            raise LogError(
                f"column {name!r} is used for {taken[name]} and for what comes of a decision.",
                do="An outcome is not known when it is decided: leave it out of the other.",
            )
    return names


def one_column(name: str, columns: Sequence[str], part: str) -> str:
    """The column of this name, or the only column that matches this pattern."""
    matches = _matching(name, columns, part)
    if len(matches) > 1:
        raise LogError(
            f"{name!r} stands for {len(matches)} columns, and {part} must be one.",
            ", ".join(map(repr, matches[:12])),
            "Name one of them.",
        )
    return matches[0]


def refuse_twins(names: Sequence[str], whose: str) -> None:
    """Refuse two columns of one name, since it cannot be known which one the user wants.

    Names that differ only in case count as one: DuckDB does not tell 'R' from 'r'.
    """
    alike: dict[str, str] = {}
    for name in names:
        if name.lower() in alike:
            two = f"two columns {name!r}"
            if name != alike[name.lower()]:
                two = f"columns {alike[name.lower()]!r} and {name!r}, which differ in case alone"
            raise LogError(f"{whose} has {two}.", do="Rename one of them.")
        alike[name.lower()] = name


def _matching(name: str, columns: Sequence[str], part: str) -> list[str]:
    """The columns a name or a pattern stands for; a LogError if there is none."""
    if name in columns:
        return [name]
    matches = fnmatch.filter(columns, name) if any(ch in name for ch in "*?[") else []
    if not matches:
        raise no_column(name, columns, part)
    return matches


def no_column(name: str, columns: Sequence[str], part: str) -> LogError:
    """The error that says a column does not exist."""
    near = difflib.get_close_matches(name, columns, n=1)
    return LogError(
        f"there is no column {name!r} for {part}.",
        f"the columns are {', '.join(map(repr, columns[:12]))}",
        f"Did you mean {near[0]!r}?" if near else f"Name the right one: {part}= (--{part}).",
    )


def columns_of(
    names: Mapping[str, Any],
    get: Callable[[str], Raw],
    reading: Reading,
    also: AlsoNames | None = None,
    *,
    text: Text | None = None,
    fresh: bool = False,
) -> Columns:
    """Columns from a function that gives (values, where missing) for a column name.

    `also` says which columns are kept beside those that have a role; `fresh` says that nobody else
    holds the arrays that `get` gives, so they need not be copied; `text` says how text is written,
    where that is not as the reading says.
    """
    written = text or reading.text
    cuts = checked_bins(reading.action_bins, names["action"])
    categorical = reading.categorical or ()
    declared = check_declared(categorical, names["state"], also.names if also else ())

    merged: list[tuple[str, int, int, str]] = []

    def as_read(name: str) -> Coded:
        values, gone = get(name)
        return values if isinstance(values, Coded) else encode(values, name, gone)

    def labels_of(name: str) -> Coded:
        column, merges = folded(as_read(name), written.labels, name)
        merged.extend(merges)
        return column

    def coded(part: str) -> Coded | None:
        return as_read(str(names[part])) if part in names else None

    features, state = None, None
    feature_names: tuple[str, ...] = ()
    levels: Levels = ()
    if isinstance(names["state"], list):
        feature_names = tuple(names["state"])
        features, levels, dated = feature_columns(
            ((n, *get(n)) for n in feature_names), declared, written, merged
        )
        if dated:
            names = {**names, "days": dict.fromkeys(dated, written.dates)}
    else:
        state = labels_of(str(names["state"]))
    by_row = {
        role.name: numbers(*_named(get, names[role.name]), copy=not fresh)
        for role in ROLES
        if role.is_number
        and role.name in names
        and not (role.name == "reward" and "parts" in names)
    }
    time, time_missing, offset = None, None, None
    if "time" in names:
        values, gone = get(names["time"])
        dates = text_times(values, gone, written.dates, str(names["time"]))
        values, gone = (values, gone) if dates is None else (dates, None)
        time, time_missing, offset = times(values, str(names["time"]), gone)
    episode = coded("episode")
    if episode is None or "action" not in names:
        raise LogError("a log needs an episode and an action column.")
    action, edges, pooled = actions_of(
        names["action"], cuts, labels_of, lambda name: numbers(*_named(get, name))
    )
    if written.dates != "iso":
        names = {**names, "dates": written.dates}
    if written.labels:
        names = {**names, "labels": written.labels}
    if edges:
        _refuse_beside_ranges(names, pooled)
        names = {**names, "action_bins": edges}
    available = None
    if "available" in names:
        values, gone = get(names["available"])
        menus = encode_menus(values, str(names["available"]), gone)
        if written.labels:
            offers = (
                tuple(dict.fromkeys(fold(x, written.labels) for x in m)) for m in menus.labels
            )
            menus = Coded(menus.codes, tuple(tuple(sorted(m)) for m in offers))
        available = in_words_of(action, menus)
    lengths = {len(episode.codes), len(action.codes), *map(len, by_row.values())}
    lengths |= {len(x) for x in (features, time) if x is not None}
    group, ended = coded("group"), coded("ended")
    lengths |= {len(x.codes) for x in (state, available, group, ended) if x is not None}
    further = None
    if also is not None:
        units = [unit.codes for unit in (episode, group) if unit is not None]
        further = collect(also, get, declared, units, len(action.codes), Text(dates=written.dates))
        lengths.add(len(further))
    if len(lengths) > 1:
        raise LogError(
            f"the columns have different lengths: {', '.join(map(str, sorted(lengths)))} rows."
        )
    more = {role.name: by_row.pop(role.name) for role in further_roles() if role.name in by_row}
    reward, parts_of_reward = summed(
        names,
        lambda name: numbers(*_named(get, name)),
        action.labels,
        action.codes,
        reading.declared_outcome.falls,
    )
    by_row, more = (
        {**by_row, **({} if reward is None else {"reward": reward})},
        more | parts_of_reward,
    )
    own: dict[str, Any] = {**by_row, "more": more}
    return Columns(
        names, episode, action, **own,
        state=state, features=features, time=time, time_missing=time_missing,
        offset=offset,
        group=group, available=available, ended=ended,
        feature_names=feature_names, levels=levels, also=further, fresh=fresh, merged=tuple(merged),
    )  # fmt: skip


def _refuse_beside_ranges(names: Mapping[str, Any], pooled: bool) -> None:
    """Refuse columns about single doses where doses are cut into ranges."""
    if "available" in names:
        raise LogError(
            f"{names['available']!r} lists doses, and the doses are cut into ranges.",
            do="Leave the available column out, or cut the doses before reading.",
        )
    if "propensity" in names and pooled:
        raise LogError(
            f"{names['propensity']!r} is the chance of a single dose, and a range holds several.",
            do="Leave it out, give the chance of the range, or cut so that each range holds one "
            "dose of the trial.",
        )


def _named(get: Callable[[str], Raw], name: str) -> tuple[Any, str, NDArray[np.bool_] | None]:
    """The values of a column, its name, and where it is missing."""
    values, gone = get(name)
    return values, name, gone


def in_words_of(action: Coded, menus: Coded) -> Coded:
    """Menus read as text, with whole numbers where the action labels are whole numbers."""
    if not action.labels or isinstance(action.labels[0], str):
        return Coded(menus.codes, tuple(tuple(map(str, menu)) for menu in menus.labels))
    tidy = tidy_labels([x for menu in menus.labels for x in menu if isinstance(x, str)])
    return Coded(menus.codes, tuple(tuple(tidy.get(x, x) for x in menu) for menu in menus.labels))


def quoted(word: str, mark: str = '"') -> str:
    """A word in quotation marks, as SQL needs it."""
    return mark + word.replace(mark, mark * 2) + mark


def roles_of(names: Mapping[str, Any]) -> dict[str, str]:
    """Column → its role; what sums, costs and guards are made of is numbers, as rewards are."""
    own = {
        k: v for k, v in names.items() if k in NAMES and not (k == "reward" and "parts" in names)
    }
    roles = {n: k for k, v in own.items() for n in (v if isinstance(v, list) else [v])}
    return {**dict.fromkeys(part_columns(names), "reward"), **roles}


def _flat(names: Mapping[str, Any]) -> list[str]:
    """The columns that have a role."""
    return list(roles_of(names))


def _objects(series: Any) -> NDArray[Any]:
    values = np.empty(len(series), object)
    values[:] = series.to_list()
    return values


WALL = "what the clock on the wall said"
"""Name of the helper column with local times."""


def _zoned(relation: Any, names: Mapping[str, Any]) -> list[str]:
    """The time column of a DuckDB relation, if it has a time zone."""
    kinds = dict(zip(relation.columns, map(str, relation.types), strict=True))
    time = names.get("time")
    return [time] if time is not None and kinds[time] == "TIMESTAMP WITH TIME ZONE" else []


def _apart(moment: Any, wall: Any) -> Zoned:
    """Times with a zone, from moments in UTC and the local time of the same moments."""
    ahead = np.ma.getdata(wall) - np.ma.getdata(moment)
    return Zoned(moment, np.where(np.isnat(ahead), 0, ahead.astype("timedelta64[s]").astype(int)))


def short_labels(series: Any) -> NDArray[Any] | None:
    """Labels of pandas or Arrow that are floats of fewer than 64 bits, as such; None of others."""
    kind: Any = getattr(series, "type", None)
    if hasattr(kind, "index_type"):
        values = series.cast(kind.value_type).to_numpy()
        return values if is_short(values) else None
    own: Any = getattr(getattr(series, "cat", None), "categories", None)
    return series.astype(own.dtype).to_numpy() if is_short(own) else None


# -- dataframes ---------------------------------------------------------------------------------


def frame_columns(
    frame: Any,
    reading: Reading,
) -> Columns:
    """The columns of a pandas, polars, Arrow, DuckDB or other table that narwhals supports."""
    refuse_files_of_lake(frame)
    if hasattr(frame, "fetchnumpy") and hasattr(frame, "project"):  # a DuckDB relation
        refuse_twins(frame.columns, "the table")
        names = chosen_names(reading, frame.columns)
        used = _flat(names)
        further = also_names(reading.also, frame.columns, used, lambda: len(frame))
        wanted = [*used, *further.names]
        zoned = _zoned(frame, names)  # as the session of the relation shows it
        more = [
            f"timezone(current_setting('TimeZone'), {quoted(n)}) AS {quoted(WALL)}" for n in zoned
        ]
        rows = frame.project(", ".join([*map(quoted, wanted), *more])).fetchnumpy()  # rows agree

        def from_relation(name: str) -> Raw:
            values = rows[name]
            if name in zoned:
                return _apart(values, rows[WALL]), None
            if isinstance(values, np.ma.MaskedArray):
                return values.data, np.ma.getmaskarray(values)
            return values, None

        return columns_of(names, from_relation, reading, further)
    import narwhals as nw

    try:
        table = nw.from_native(gathered(frame))
        columns = table.collect_schema().names()
    except nw.exceptions.DuplicateError as error:
        raise LogError(
            "the table has two columns of one name.", str(error)[:200], "Rename one of them."
        ) from error
    except TypeError as error:
        raise LogError(
            f"a {type(frame).__name__} is not a dataframe.",
            do="Pass a pandas, polars, Arrow or DuckDB table, or use dprl.from_arrays.",
        ) from error
    if isinstance(table, nw.LazyFrame):
        table = table.collect()
    names = chosen_names(reading, columns)
    further = also_names(reading.also, columns, _flat(names), lambda: len(table))
    features = [*(names["state"] if isinstance(names["state"], list) else []), *further.names]

    def from_frame(name: str) -> Raw:
        series = table.get_column(name)
        gone = series.is_null().to_numpy().astype(bool)
        if isinstance(series.dtype, nw.Date) and name in further.names:
            return series.cast(nw.Datetime("us")).to_numpy(), gone
        if isinstance(series.dtype, nw.Datetime) and series.dtype.time_zone:
            if name in further.names:
                series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
                return series.to_numpy(), gone
            if name != names.get("time"):  # a label is what its clock says, zone and all
                return _objects(series), gone
            wall = series.dt.replace_time_zone(None).to_numpy()
            series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
            return _apart(series.to_numpy(), wall), gone
        if series.dtype.is_numeric() and not isinstance(series.dtype, nw.Decimal):
            if gone.any() and series.dtype.is_integer():
                series = series.fill_null(0)
            return series.to_numpy(), gone
        if isinstance(series.dtype, nw.Categorical):
            short = short_labels(series.to_native())
            if short is not None:  # a list would hold doubles that are no decimals any more
                return short, gone
        if isinstance(series.dtype, nw.Categorical | nw.Enum) and name in features:
            return encode(_objects(series), name, gone), None
        if isinstance(series.dtype, nw.Datetime | nw.Duration):
            return series.to_numpy(), gone
        return _objects(series), gone

    return columns_of(names, from_frame, reading, further)
