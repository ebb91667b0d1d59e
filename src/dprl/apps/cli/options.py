"""Options that commands share: column names, defaults from dprl.toml, NAME=VALUE pairs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from cyclopts import App, Parameter, Token
from cyclopts.config import Dict

from dprl.apps._intended_use import TABLE, check_use
from dprl.apps.cli.ranges import bins_of, words_of
from dprl.apps.cli.reading import Partitions
from dprl.errors import ParameterError
from dprl.logs._reading import OPTIONS
from dprl.logs.columns import NAMES, ROLES

__all__ = [
    "SETTINGS",
    "TREATMENTS",
    "By",
    "Cases",
    "Cluster",
    "Draws",
    "FilesOfLog",
    "Json",
    "Level",
    "LogOptions",
    "MaybeLogOptions",
    "MaybeWhole",
    "OtherColumns",
    "Partitions",
    "Seed",
    "Values",
    "Whole",
    "Wholes",
    "columns_in_settings",
    "log_options",
    "numbers",
    "settings",
    "whole",
]

SETTINGS = "dprl.toml"

OF_LOG = [
    spelt
    for name, option in OPTIONS.items()
    if option.metadata.get("kept")
    for spelt in dict.fromkeys((name, name.replace("_", "-")))
]
"""Settings of a log besides its columns, which a policy keeps too."""


OF_TABLES = {
    "act": ("partitions", "decimal", "encoding"), "split": ("files", "partitions", "encoding"),
}  # fmt: skip
"""Commands that read a table and know of no columns → what they take from [log]."""

WRITTEN = ("decimal", "encoding", "dates", "labels")
"""How the text of a log is written; left out where it is as usual."""


def whole(word: str) -> int:
    """The whole number that the text stands for; a ValueError for others, '1_0' or '１２' too."""
    if not re.fullmatch(r"[+-]?[0-9]+", word):
        raise ValueError(f"{word!r} is not a whole number.")
    return int(word)


def _whole(kind: Any, tokens: Sequence[Token]) -> Any:
    """Whole numbers only: 2.5 is refused, where cyclopts would round it to 2."""
    wholes = []
    for token in tokens:
        word = token.value.removesuffix(".0")
        try:
            wholes.append(whole(word))
        except ValueError:
            raise ValueError(f"{token.value!r} is not a whole number.") from None
    return wholes if get_origin(kind) is list else wholes[0]


Whole = Annotated[int, Parameter(converter=_whole)]
MaybeWhole = Annotated[int | None, Parameter(converter=_whole)]
"""A whole number, or nothing; `Whole | None` would lose the converter in older cyclopts."""
Wholes = Annotated[list[int], Parameter(converter=_whole)]

TREATMENTS = (
    "drop (leave them out; nothing can be claimed), drop-unrelated (leave them out, and declare "
    "that whether an episode was cut depends neither on its length nor on its outcome), terminal "
    "(as ended: values are of what came before the cut), bootstrap (put an estimate after the "
    "cut), ipcw (weigh by the chance to be followed so far; large-sample)"
)
"""The treatments of cut episodes, for the help of --cut."""

Json = Annotated[bool, Parameter(name="--json", help="Print JSON for machines.", negative="")]

Cluster = Annotated[
    str | None,
    Parameter(
        help="Work on a Dask cluster: the address of its scheduler (tcp://HOST:PORT), or local:2 "
        "for two processes on this machine. The results are the same. Needs the extra cluster."
    ),
]

FilesOfLog = Annotated[list[str], Parameter(negative="")]
"""The files of a log; `files` in the table [log] of dprl.toml."""

By = Annotated[
    list[str] | None,
    Parameter(
        help="Columns that make subgroups, such as sex,ageband: what the policy is worth in each.",
        negative="",
    ),
]
Cases = Annotated[
    bool, Parameter(help="Name training episodes, where the policy knows them.", negative="")
]
Seed = Annotated[Whole, Parameter(help="Seed of everything random.")]
Level = Annotated[float, Parameter(help="Coverage of the intervals, between 0 and 1.")]
Draws = Annotated[Whole, Parameter(help="Number of bootstrap draws.")]
Values = Annotated[
    bool, Parameter(help="Fit a model of values too (DM, DR, WDR); slow where states are features.")
]


def log_options(
    name: str,
    *,
    of_policy: bool = False,
    optional: bool = False,
    shown: bool = False,
    without: Sequence[str] = (),
) -> Any:
    """A dataclass with one option a role, the required ones first, and one per reading option.

    Args:
        name: The dataclass's name.
        of_policy: Whether a policy knows its columns, so that all of them may be left out.
        optional: Whether a command can do without a log, so that columns may be left out.
        shown: Whether all of them are in the help of a command, and not only what it needs.
        without: Reading options that the command does not have.
    """
    options: list[tuple[str, Any, Any]] = []
    for role in sorted(ROLES, key=lambda role: not role.required):
        hint: Any = list[str] if role.several else str
        needed = role.required and not of_policy and not optional
        sentence = (
            f"By default the policy's own column{'s' * role.several}." if of_policy else role.help
        )
        words = Parameter(help=sentence, show=shown or needed, negative="")
        if needed:
            options.append((role.name, Annotated[hint, words], field()))
        else:
            options.append((role.name, Annotated[hint | None, words], field(default=None)))
    for option in OPTIONS.values():
        kind = option.metadata.get("cli")
        if kind is None or option.name in without:
            continue
        hint = {"word": str | None, "words": list[str] | None, "switch": bool}[kind]
        words = Parameter(help=option.metadata["help"], show=shown, negative="")
        default = False if kind == "switch" else None
        options.append((option.name, Annotated[hint, words], field(default=default)))
    return make_dataclass(name, options, kw_only=True)


def _arguments(asked: Any, features: bool, also: Any) -> dict[str, Any]:
    """Keyword arguments of `dprl.read` for the options of a command."""
    one = len(asked.state) == 1 and not features
    one = one and asked.state[0] not in (asked.categorical or ())
    given = {k: v for k, v in vars(asked).items() if v or k not in WRITTEN}
    return {
        **given,
        "state": asked.state[0] if one else list(asked.state),
        "action": asked.action[0] if len(asked.action) == 1 else list(asked.action),
        "action_bins": bins_of(asked.action_bins),
        "missing": words_of(asked.missing) or "error",
        "also": also,
    }


@Parameter(name="*")
@dataclass(kw_only=True)
class LogOptions(log_options("_Named")):  # type: ignore[misc]
    """Which column is what."""

    def options(self, features: bool = False, compare: bool = False) -> dict[str, Any]:
        """Keyword arguments of `dprl.read`; a single state column is a label unless `features`.

        A single name with stars or brackets is a pattern only if no column has that very name.
        Columns that are not in the state are read if they are named, or are to be compared.
        """
        return _arguments(self, features, self.also if compare or self.also is not None else ())


@Parameter(name="*")
@dataclass(kw_only=True)
class MaybeLogOptions(log_options("_Maybe", optional=True, without=["also"])):  # type: ignore[misc]
    """Which column is what, for a command that can also work without a log."""

    def options(self) -> dict[str, Any]:
        """Keyword arguments of `dprl.read`, with labelled states."""
        for role in ROLES:
            if role.required and not getattr(self, role.name):
                raise ParameterError(
                    f"--{role.name} is missing: {role.help[0].lower()}{role.help[1:]}",
                    do=f"Name the columns of the log (or keep them in {SETTINGS}).",
                )
        return _arguments(self, False, ())


@Parameter(name="*")
@dataclass(kw_only=True)
class OtherColumns(log_options("_Own", of_policy=True, without=["action_bins"])):  # type: ignore[misc]
    """Which column is what, where that is not as it was for the policy."""


def numbers(pairs: list[str], how: str) -> dict[str, float]:
    """NAME=VALUE pairs as a dict."""
    by_name = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name.strip() in by_name:
            raise ParameterError(f"{name.strip()!r} is given twice.")
        try:
            by_name[name.strip()] = float(value)
        except ValueError:
            raise ParameterError(f"{how}; got {pair!r}.") from None
    return by_name


def _tables() -> dict[str, dict[str, Any]]:
    """The tables of dprl.toml in the current folder; none where there is no such file."""
    path = Path(SETTINGS)
    if not path.is_file():
        return {}
    import tomllib

    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{SETTINGS} is not TOML.", str(error), "Mend that line.") from error
    return tables


def settings(app: App) -> Dict | None:
    """Defaults from dprl.toml in the current folder: [log] for columns, one table per command.

    The columns of commands that take a policy are not among them: see `columns_in_settings`.

    Args:
        app: The command line, with its commands.
    """
    tables = _tables()
    if not tables:
        return None
    _check_tables(tables, app, ["log", TABLE])
    tables.pop(TABLE, None)  # no option of a command: `intended_use` reads it
    for table in tables.values():  # [log.missing]: a column → a word
        own = table.get("missing")
        if isinstance(own, dict):
            table["missing"] = [f"{column}={word}" for column, word in own.items()]
        elif isinstance(own, str):
            table["missing"] = [own]
    shared = tables.pop("log", {})
    files = {"files": shared.pop("files")} if "files" in shared else {}
    for name in _commands(app):
        command = app[name].default_command
        if _takes(command, LogOptions):
            tables[name] = {**files, **shared, **tables.get(name, {})}
        elif _takes(command, MaybeLogOptions):
            tables[name] = {**shared, **tables.get(name, {})}
        elif _takes(command, OtherColumns):
            merged = {**shared, **tables.get(name, {})}
            tables[name] = {k: v for k, v in merged.items() if k not in (*NAMES, *OF_LOG)}
        elif name in OF_TABLES:
            own = {k: v for k, v in {**shared, **files}.items() if k in OF_TABLES[name]}
            if own or name in tables:
                tables[name] = {**own, **tables.get(name, {})}
                if name == "act":
                    tables[name].pop("state", None)
    return Dict(tables, source=SETTINGS)


def _commands(app: App) -> list[str]:
    return sorted(name for name in app if not name.startswith("-"))


def _check_tables(tables: Any, app: App, besides: list[str], inside: str = "") -> None:
    """Refuse a table that belongs to no command and is none of `besides`."""
    permitted = besides + _commands(app)
    for name, table in tables.items():
        if name not in permitted or not isinstance(table, dict):
            raise ParameterError(
                f"{SETTINGS} has {inside + name!r}, which is no table dprl knows.",
                do=f"Tables are {', '.join(f'[{inside}{one}]' for one in permitted)}.",
            )
        if name not in besides and app[name].default_command is None:  # a group of commands
            _check_tables(table, app[name], [], f"{name}.")


def _takes(command: Any, kind: type) -> bool:
    """Whether a command has options of this kind."""
    kinds = [] if command is None else list(get_type_hints(command).values())
    return kind in [*kinds, *(part for hint in kinds for part in get_args(hint))]


def columns_in_settings(command: str) -> dict[str, Any]:
    """The column names in dprl.toml, for a command that takes a policy."""
    tables = _tables()
    merged = {**tables.get("log", {}), **tables.get(command, {})}
    parts = ("state",) if command == "act" else NAMES
    return {k: v for k, v in merged.items() if k in parts}


def intended_use() -> dict[str, str]:
    """The table [intended-use] of dprl.toml, checked; empty where there is none."""
    return check_use(_tables().get(TABLE), f"[{TABLE}] in {SETTINGS}")
