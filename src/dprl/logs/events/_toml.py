"""`read_spec`: a spec from a TOML file; every error names the line."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path as File
from typing import Any

from dprl.errors import LogError
from dprl.logs.events._fields import Path, SpecError, refuse
from dprl.logs.events.spec import (
    Action,
    Choice,
    Clock,
    End,
    Episodes,
    Feature,
    Interval,
    Part,
    Reward,
    Source,
    Spec,
)

__all__ = ["read_spec"]

TABLES = {"source": Source, "episodes": Episodes, "clock": Clock, "action": Action}
LISTS = {"feature": Feature, "reward": Reward, "end": End, "interval": Interval}
NESTED = {(Action, "part"): ("parts", Part), (Part, "choices"): ("choices", Choice)}
"""(class, key of the TOML) → (its field, the class of each item)."""


def read_spec(path: str | os.PathLike[str]) -> Spec:
    r"""Read a spec from a TOML file.

    The tables are [source], [episodes], [clock], [action] and, as often as needed, [[feature]],
    [[action.part]], [[reward]], [[end]] and [[interval]]. Files that it names are relative to it.

    Args:
        path: The TOML file.

    Returns:
        The spec.

    Raises:
        SpecError: It is no TOML, or a key or value is not what it must be; the line is named.
        LogError: There is no such file.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("spec.toml").write_text('''
        ... [episodes]
        ... by = "code"
        ... start = "ADMISSION"
        ... [clock]
        ... every = "4 h"
        ... [[feature]]
        ... name = "map"
        ... take = "last"
        ... codes = "MAP"
        ... within = "24 h"
        ... [[action.part]]
        ... name = "drug"
        ... codes = "DRUG"
        ... [[reward]]
        ... codes = "DEATH"
        ... times = -1
        ... ''')
        >>> read_spec("spec.toml").features[0].within
        '24 h'
    """
    import tomllib

    file = File(path)
    if not file.is_file():
        raise LogError(f"there is no file {str(file)!r}.", do="Name the TOML file of the spec.")
    try:
        text = file.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{file.name!r} is not TOML.", str(error), "Mend that line.") from error
    lines = find_lines(text)
    parts: dict[str, Any] = {}
    for name, table in content.items():
        if name in TABLES:
            parts[name] = _make(TABLES[name], table, (name,), lines)
        elif name in LISTS:
            if not isinstance(table, list):
                raise refuse(
                    lines,
                    (name,),
                    f"{name!r} must be a list of tables.",
                    f"Write [[{name}]], with two brackets.",
                )
            made = [_make(LISTS[name], t, (name, i), lines) for i, t in enumerate(table)]
            parts[f"{name}s"] = tuple(made)
        else:
            raise _unknown(name, [*TABLES, *LISTS], (name,), lines, "table")
    for name in ("episodes", "clock", "action"):
        if name not in parts:
            raise refuse(lines, (name,), f"{file.name!r} has no table [{name}].", "Add it.")
    parts.setdefault("features", ())
    parts.setdefault("rewards", ())
    spec = Spec(**parts, lines=lines)
    return _beside(spec, file.parent)


def _unknown(name: str, names: list[str], path: Path, lines: Any, what: str) -> SpecError:
    near = difflib.get_close_matches(name, names, n=1)
    do = f"Did you mean {near[0]!r}? " if near else ""
    return refuse(
        lines,
        path,
        f"there is no {what} {name!r} in a spec.",
        f"{do}It may have {', '.join(names)}.",
    )


def _make(kind: Any, table: Any, path: Path, lines: Any) -> Any:
    """One table of the file as an object of its class."""
    if not isinstance(table, Mapping):
        what = f"{path[0]!r} must be a table; got {table!r}."
        raise refuse(lines, path, what, f"Write [{path[0]}] above its keys.")
    own = {each.name: each for each in fields(kind)}
    nested = {key: target for (owner, key), target in NESTED.items() if owner is kind}
    keys = [name for name in own if name not in {field for field, _ in nested.values()}]
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in nested:
            name, inner = nested[key]
            items = value if isinstance(value, list) else [value]
            values[name] = tuple(
                _make(inner, item, (*path, key, i), lines) for i, item in enumerate(items)
            )
        elif key in keys:
            values[key] = value
        else:
            raise _unknown(key, [*keys, *nested], (*path, key), lines, "key")
    for name, each in own.items():
        if name not in values and each.default is MISSING and each.default_factory is MISSING:
            asked = next((key for key, (field, _) in nested.items() if field == name), name)
            raise refuse(
                lines,
                path,
                f"[{'.'.join(str(p) for p in path if isinstance(p, str))}] "
                f"lacks the key {asked!r}.",
                "Add it.",
            )
    return kind(**values)


def _beside(spec: Spec, folder: File) -> Spec:
    """The spec with its files relative to the folder of the TOML file."""
    from dataclasses import replace

    files = tuple(str(folder / name) for name in spec.source.files)
    table = str(folder / spec.episodes.table) if spec.episodes.table else ""
    return replace(
        spec,
        source=replace(spec.source, files=files),
        episodes=replace(spec.episodes, table=table),
    )


# -- where each key stands -------------------------------------------------------------------------

HEADER = re.compile(r"\s*(\[\[?)([^\[\]]+)\]\]?\s*(?:#.*)?$")
KEY = re.compile(
    r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*="
)


def find_lines(text: str) -> dict[Path, tuple[int, str]]:
    """Path of each table and key → the number of its line, and the line.

    The text must be valid TOML. Keys inside inline tables have the line of the outer key.
    """
    places: dict[Path, tuple[int, str]] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    depth, closing = 0, ""  # open brackets of a list; the end of a text over several lines
    for number, line in enumerate(text.splitlines(), 1):
        if depth == 0 and not closing:
            if header := HEADER.match(line):
                names = _names(header[2])
                table = _inside(names, counts, new=header[1] == "[[")
                for length in range(1, len(table) + 1):
                    places.setdefault(table[:length], (number, line))
                continue
            if key := KEY.match(line):
                for length in range(1, len(names := _names(key[1])) + 1):
                    places.setdefault((*table, *names[:length]), (number, line))
        depth, closing = _left_open(line, depth, closing)
    return places


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _inside(names: tuple[str, ...], counts: dict[Path, int], new: bool) -> Path:
    """The path of a table: each list of tables on the way stands for its last item."""
    path: Path = ()
    for i, name in enumerate(names):
        path = (*path, name)
        if new and i == len(names) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _left_open(line: str, depth: int, closing: str) -> tuple[int, str]:
    """Open brackets, and the mark that ends an open text, after a line."""
    i = 0
    while i < len(line):
        if closing:
            if closing == '"""' and line[i] == "\\":
                i += 2
            elif line.startswith(closing, i):
                i, closing = i + 3, ""
            else:
                i += 1
            continue
        mark = line[i]
        if mark == "#":
            break
        if line.startswith(('"""', "'''"), i):
            closing, i = line[i : i + 3], i + 3
        elif mark in "\"'":
            i += 1
            while i < len(line) and line[i] != mark:
                i += 2 if mark == '"' and line[i] == "\\" else 1
            i += 1
        else:
            depth += (mark in "[{") - (mark in "]}")
            i += 1
    return depth, closing
