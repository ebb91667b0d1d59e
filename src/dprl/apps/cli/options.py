"""Options that commands share: columns, how a log is written, where it is read, defaults."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from cyclopts import App, Parameter, Token
from cyclopts.config import Dict

from dprl._core.database import connect
from dprl._core.table import first_few
from dprl.apps.cli.console import complain
from dprl.apps.reports.intended_use import TABLE, check_use
from dprl.errors import ParameterError
from dprl.logs.called import KEY, called_of
from dprl.logs.outcome import KEPT
from dprl.logs.reading.options import OPTIONS
from dprl.logs.roles import NAMES, ROLES

if TYPE_CHECKING:
    from dprl.logs.reading.files import Progress


# --- The cluster that a command works on


@contextlib.contextmanager
def working_on(cluster: str | None) -> Iterator[dict[str, Any]]:
    """The argument `cluster` of what is called, if one is asked for: connected before any work."""
    if cluster is None:
        yield {}
        return
    from dprl._core.cluster import connect

    with connect(cluster) as there:
        there.workers()
        yield {"cluster": there}


# --- Logs that do not fit into memory: whether a command reads its log in parts, and how

PER_ROW = 150
"""About how many bytes of memory a row takes while a log is read and learned from."""


@Parameter(name="*")
@dataclass(kw_only=True)
class ReturnRange:
    """What returns can be, from what rewards can be, never from the log.

    Attributes:
        lowest: The lowest return there can be; a proof needs both ends.
        highest: The highest return there can be.
    """

    lowest: float | None = None
    highest: float | None = None

    def both(self) -> tuple[float, float] | None:
        """Both ends; None where neither is given."""
        if self.lowest is None and self.highest is None:
            return None
        if self.lowest is None or self.highest is None:
            raise ParameterError(
                "--lowest and --highest come together.",
                do="State both from what rewards can be, or neither.",
            )
        return self.lowest, self.highest


@Parameter(name="*")
@dataclass(kw_only=True)
class ScanOptions:
    """How much memory may be used, and whether the log is read in parts.

    Attributes:
        out_of_core: Read Parquet files in parts, sorted on disk where needed: for logs larger than
            memory. The policy is the same, byte for byte. By default chosen if the log would not
            fit.
        memory_limit: About how much memory may be used, such as 2GB; by default half of what is
            free. A log that would need more is read in parts.
        temp_folder: Where a log in parts keeps its temporary files; by default the system's place
            (TMPDIR).
    """

    out_of_core: bool | None = None
    memory_limit: str | None = None
    temp_folder: str | None = None

    def in_parts(self, files: list[str], able: bool, learns: bool = True) -> bool:
        """Whether the log is to be read in parts; a line says so if nobody asked for it.

        Args:
            files: The files of the log.
            able: Whether the command can use a log in parts.
            learns: Whether the command learns a policy. Default True.
        """
        from dprl._core.disk import available_memory, size_in_words
        from dprl.logs.reading.scan import memory_of

        limit = None if self.memory_limit is None else memory_of(self.memory_limit)
        if self.out_of_core is not None:
            if self.out_of_core and not able:
                who = "only the learners dprl and confident read a log in parts, with"
                raise ParameterError(
                    f"{who if learns else 'a log in parts has'} one column of state labels and "
                    "one of actions.",
                    do="Leave --out-of-core out, or name one --state of labels, one --action, and "
                    f"no {'--radius or ' * learns}--action-bins.",
                )
            return self.out_of_core
        room = available_memory() if limit is None else limit
        rows = rows_in(files) if able and room is not None else 0
        if room is None or rows * PER_ROW <= room:
            return False
        free = "is free" if limit is None else "may be used"
        complain(
            f"note: {rows:,} rows need about {size_in_words(rows * PER_ROW)} of memory, and "
            f"{size_in_words(room)} {free}: the log is read in parts (--out-of-core)."
        )
        return True

    def arguments(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments of `dprl.scan`; what a log in parts does not have is refused."""
        from dprl.logs.reading.scan import IN_MEMORY

        given = [name for name in IN_MEMORY if options.get(name)]
        if given:
            raise ParameterError(
                f"--{given[0]} is not possible with a log in parts.",
                f"--{given[0]} {options[given[0]]}",
                "Leave it out, or leave --out-of-core out.",
            )
        own = {name: value for name, value in options.items() if name not in IN_MEMORY}
        return {**own, "memory": self.memory_limit, "folder": self.temp_folder}

    @contextlib.contextmanager
    def scanned(
        self, files: list[str], options: Mapping[str, Any], tell: Progress
    ) -> Iterator[Any]:
        """The log in parts; its temporary files are removed at the end, however it comes."""
        import dprl

        arguments = self.arguments(options)
        with ended_like_an_interrupt(), dprl.scan(files, **arguments, progress=tell) as parts:
            yield parts

    @contextlib.contextmanager
    def checked(
        self, files: list[str], options: Mapping[str, Any], tell: Progress
    ) -> Iterator[Any]:
        """What `dprl.check` finds in parts; temporary files are removed at the end."""
        import dprl

        arguments = self.arguments(options)
        with ended_like_an_interrupt(), contextlib.ExitStack() as undo:
            report = dprl.check(files, **arguments, progress=tell)
            if isinstance(report.log, dprl.LogInParts):
                undo.callback(report.log.close)
            yield report


def rows_in(files: list[str]) -> int:
    """How many rows Parquet files have, from their ends; 0 if that is not easily known."""
    import duckdb

    from dprl.errors import LogError
    from dprl.logs.reading.paths import literal, open_files

    try:
        named, kind = open_files(files)
        if kind != "parquet":
            return 0
        real = [os.path.realpath(file) for file in named]
        with connect(files=real) as con:
            sql = "SELECT sum(num_rows) FROM parquet_file_metadata(?)"
            row = con.execute(sql, [[literal(file) for file in real]]).fetchone()
            return int(row[0] or 0) if row else 0
    except (LogError, duckdb.Error):  # reading them will say what is wrong
        return 0


def check_folder(file: Path) -> None:
    """Refuse a file to be written in a folder that does not exist."""
    if not file.parent.is_dir():
        raise ParameterError(f"the folder of {str(file)!r} does not exist.", do="Make it first.")


@contextlib.contextmanager
def ended_like_an_interrupt() -> Iterator[None]:
    """Let a request to end the program (SIGTERM) clean up first, as Ctrl-C does."""

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, leave)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# --- --action-bins, --missing and --vary: what is asked of columns and settings, in words


def bins_of(given: list[str] | None) -> Any:
    """What --action-bins asks for, as `dprl.read` takes it: 4, '0,0.1' or 'COLUMN=0,0.1'."""
    if not given:
        return None
    bins: dict[str, Any] = {}
    for word in given:
        name, equals, asked = word.rpartition("=")
        if name in bins:
            whose = f" for {name!r}" if equals else ""
            raise ParameterError(f"--action-bins is given twice{whose}.", word, "Give it once.")
        bins[name] = _ranges(asked, word)
    if "" in bins and len(bins) > 1:
        raise ParameterError(
            "--action-bins names a column once, and once it does not.",
            ", ".join(given),
            "Name the column each time: --action-bins pressor=4 --action-bins bolus=0,500",
        )
    return bins.get("", bins)


def words_of(given: list[str] | None) -> Any:
    """What --missing asks for, as `dprl.read` takes it: 'flag', or 'COLUMN=flag' beside it."""
    if not given:
        return None
    words: dict[str, str] = {}
    for asked in given:
        name, equals, word = asked.rpartition("=")
        name = name if equals else "*"
        if name in words:
            whose = f" for {name!r}" if equals else ""
            raise ParameterError(f"--missing is given twice{whose}.", asked, "Give it once.")
        words[name] = word
    return words["*"] if list(words) == ["*"] else words


def _ranges(asked: str, word: str) -> Any:
    """A number of ranges, or edges."""
    try:
        if "," not in asked:
            return whole(asked.strip())
        return [float(edge) for edge in asked.split(",") if edge.strip()]
    except ValueError:
        raise ParameterError(
            "--action-bins is a number of ranges, or edges with commas between them.",
            word,
            "For example --action-bins 4, --action-bins 0,0.1,0.3 or --action-bins '5,'.",
        ) from None


def tried(pairs: Sequence[str]) -> dict[str, list[Any]]:
    """NAME=VALUE,VALUE pairs as a dict of values to try: numbers, true, false, none, or words."""
    by_name: dict[str, list[Any]] = {}
    for pair in pairs:
        name, sign, values = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not (name and sign and values.strip()):
            raise ParameterError(
                f"what to vary is written NAME=VALUE,VALUE; got {pair!r}.",
                do="--vary risk=0.01,0.05",
            )
        if name in by_name:
            raise ParameterError(f"{name!r} is given twice.")
        by_name[name] = [_value(word.strip()) for word in values.split(",")]
    return by_name


def _value(word: str) -> Any:
    """A value of a setting as it is written on the command line."""
    named = {"true": True, "false": False, "none": None}
    if word.lower() in named:
        return named[word.lower()]
    if re.fullmatch(r"[+-]?[0-9]+", word):
        return int(word)
    try:
        return float(word)
    except ValueError:
        return word


# --- Options that say how a table is written, for commands that take some of them alone

Decimal = Annotated[str | None, Parameter(help=OPTIONS["decimal"].metadata["help"])]
Letters = Annotated[str | None, Parameter(help=OPTIONS["encoding"].metadata["help"])]
Dates = Annotated[str | None, Parameter(help=OPTIONS["dates"].metadata["help"])]
Labels = Annotated[str | None, Parameter(help=OPTIONS["labels"].metadata["help"])]
Better = Annotated[str | None, Parameter(help=OPTIONS["better"].metadata["help"])]
Partitions = Annotated[bool, Parameter(help=OPTIONS["partitions"].metadata["help"], negative="")]


# --- Options that commands share: column names, defaults from dprl.toml, NAME=VALUE pairs

SETTINGS = "dprl.toml"
OUTCOME = "outcome"
"""The table of dprl.toml that says what the rewards are."""
LABELS = "labels"
"""The table of dprl.toml that says what columns and values are called."""
SURVIVAL = "survival"
"""The table of dprl.toml that says which columns are a time to event, and what is asked of it."""
COSTS = "costs"
"""The table of dprl.toml that says what actions cost: action → cost, or column = NAME."""
TIMED = ("survival", "horizon", "target")
"""Options of a log that a policy keeps, and no command changes for it."""

OF_LOG = [
    spelt
    for name, option in OPTIONS.items()
    if option.metadata.get("kept")
    for spelt in dict.fromkeys((name, name.replace("_", "-")))
]
"""Settings of a log besides its columns, which a policy keeps too."""


OF_TABLES = {
    "act": ("partitions", "decimal", "encoding"),
    "split": ("files", "group", "partitions", "encoding"),
}
"""Commands that read a table and know of no columns → what they take from [log]."""

WRITTEN = ("decimal", "encoding", "dates", "labels")
"""How the text of a log is written; left out where it is as usual."""


def whole(word: str) -> int:
    """The whole number that the text stands for; a ValueError for others, '1_0' or '１２' too."""
    if not re.fullmatch(r"[+-]?[0-9]+", word):
        raise ValueError(f"{word!r} is not a whole number.")
    return int(word)


def wholes(_: Any, tokens: Sequence[Token]) -> list[int]:
    """Whole numbers only: 2.5 is refused, where cyclopts would round it to 2."""
    return [whole(token.value.removesuffix(".0")) for token in tokens]


def _whole(kind: Any, tokens: Sequence[Token]) -> int:
    return wholes(kind, tokens)[0]


Whole = Annotated[int, Parameter(converter=_whole)]
MaybeWhole = Annotated[int | None, Parameter(converter=_whole)]
"""A whole number, or nothing; `Whole | None` would lose the converter in older cyclopts."""

TREATMENTS = (
    "drop (leave them out; nothing can be claimed), drop-unrelated (leave them out, and declare "
    "that whether an episode was cut depends neither on its length nor on its outcome), terminal "
    "(as ended: values are of what came before the cut), bootstrap (put an estimate after the "
    "cut), ipcw (weigh by the chance to be followed so far; large-sample)"
)
"""The treatments of cut episodes, for the help of --cut."""

Flag = Annotated[bool, Parameter(negative="")]
"""A switch that is off unless it is named; there is no --no-... for it."""
Details = Annotated[bool, Parameter(help="Say everything, not only the answer.", negative="")]
Json = Annotated[bool, Parameter(name="--json", help="Print JSON for machines.", negative="")]

Cluster = Annotated[
    str | None,
    Parameter(
        help="Work on a Dask cluster: the address of its scheduler (tcp://HOST:PORT), or local:2 "
        "for two processes on this machine. The results are the same. Needs the extra cluster."
    ),
]

FilesOfLog = list[str]
"""The files of a log; `files` in the table [log] of dprl.toml."""

By = Annotated[
    list[str] | None,
    Parameter(
        help="Columns that make subgroups, such as sex,ageband: what the policy is worth in each."
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
        main = role.required and not of_policy and not optional
        needed = main and role.name != "reward"  # a time and a status may stand in its place
        sentence = (
            f"By default the policy's own column{'s' * role.several}." if of_policy else role.help
        )
        words = Parameter(help=sentence, show=shown or main)
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
        "guard": asked.guard or None,
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
            timed = role.name == "reward" and self.survival
            if role.required and not getattr(self, role.name) and not timed:
                raise ParameterError(
                    f"--{role.name} is missing: {role.help[0].lower()}{role.help[1:]}",
                    do=f"Name the columns of the log (or keep them in {SETTINGS}).",
                )
        return _arguments(self, False, ())


@Parameter(name="*")
@dataclass(kw_only=True)
class ProposedColumns(log_options("_Proposed", optional=True)):  # type: ignore[misc]
    """Which column is what, for a command that proposes what was not named."""

    def options(self, features: bool) -> dict[str, Any]:
        """Keyword arguments of `dprl.read`, all roles that it needs being filled in."""
        return _arguments(self, features, self.also)


@Parameter(name="*")
@dataclass(kw_only=True)
class OtherColumns(log_options("_Own", of_policy=True, without=["action_bins", *TIMED])):  # type: ignore[misc]
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
    _check_tables(tables, app, ["log", OUTCOME, LABELS, SURVIVAL, COSTS, TABLE])
    tables.pop(TABLE, None)  # no option of a command: `intended_use` reads it
    for table in tables.values():  # [log.missing]: a column → a word
        own = table.get("missing")
        if isinstance(own, dict):
            table["missing"] = [f"{column}={word}" for column, word in own.items()]
        elif isinstance(own, str):
            table["missing"] = [own]
    shared = {**tables.pop("log", {}), **outcome_in_settings(), **survival_in_settings()}
    shared |= called_in_settings()
    if tables.get(COSTS):  # a column, or an action → its cost
        own = tables[COSTS]
        column = own.get("column") if len(own) == 1 else None
        costs = [column] if column else [f"{action}={cost}" for action, cost in own.items()]
        shared["costs"] = costs
    for name in (OUTCOME, LABELS, SURVIVAL, COSTS):
        tables.pop(name, None)
    files = {"files": shared.pop("files")} if "files" in shared else {}
    for name in _commands(app):
        command = app[name].default_command
        within = {  # `dprl evidence add` reads a log, too
            one: dict(shared) for one in _commands(app[name])
            if _takes(app[name][one].default_command, LogOptions)
        }  # fmt: skip
        if within:
            tables[name] = {**within, **tables.get(name, {})}
        if _takes(command, LogOptions) or _takes(command, ProposedColumns):
            tables[name] = {**files, **shared, **tables.get(name, {})}
        elif _takes(command, MaybeLogOptions):
            tables[name] = {**shared, **tables.get(name, {})}
        elif _takes(command, OtherColumns):
            of_gate = {k: v for k, v in tables.get(name, {}).items() if k == "horizon"}
            merged = {**shared, **tables.get(name, {})}
            kept = {k: v for k, v in merged.items() if k not in (*NAMES, *OF_LOG)}
            tables[name] = {**kept, **of_gate}
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


def outcome_in_settings() -> dict[str, str]:
    """What the table [outcome] of dprl.toml says, as the options of a log call it."""
    table = _tables().get(OUTCOME, {})
    named = {"outcome" if key == "name" else key: value for key, value in table.items()}
    for key in named:
        if key not in KEPT:
            raise ParameterError(
                f"{SETTINGS} has {OUTCOME}.{key}, which says nothing of an outcome.",
                do="[outcome] may have name, unit and better.",
            )
    return named


def called_in_settings() -> dict[str, list[str]]:
    """What the table [labels] of dprl.toml says, as the option --called says it."""
    words = [
        f"{column}{':' * bool(value)}{value}={name}"
        for column, own in called_of(_tables().get(LABELS)).items()
        for value, name in own.items()
    ]
    return {KEY: words} if words else {}


def survival_in_settings() -> dict[str, str]:
    """What the table [survival] of dprl.toml says, as the options of a log call it."""
    table = _tables().get(SURVIVAL, {})
    for key in table:
        if key not in ("time", "status", "event", "horizon", "target"):
            raise ParameterError(
                f"{SETTINGS} has {SURVIVAL}.{key}, which says nothing of a time to event.",
                do=f"[{SURVIVAL}] may have time, status, event, horizon and target.",
            )
    names = [str(table[key]) for key in ("time", "status", "event") if key in table]
    own = {key: str(table[key]) for key in TIMED if key in table}
    return {**({SURVIVAL: ",".join(names)} if names else {}), **own}


def columns_in_settings(command: str) -> dict[str, Any]:
    """The column names in dprl.toml, for a command that takes a policy."""
    tables = _tables()
    merged = {**tables.get("log", {}), **tables.get(command, {})}
    parts = ("state",) if command == "act" else NAMES
    return {k: v for k, v in merged.items() if k in parts}


def fits_features() -> bool:
    """Whether `dprl fit` reads even a single column of states as a feature here, by dprl.toml."""
    from dprl.learners.registry import LEARNERS

    own = _tables().get("fit", {})
    learner = own.get("learner")
    if not isinstance(learner, str) or learner not in LEARNERS:
        return False
    return LEARNERS[learner].reads_features(own.get("radius"))


def intended_use() -> dict[str, str]:
    """The table [intended-use] of dprl.toml, checked; empty where there is none."""
    return check_use(_tables().get(TABLE), f"[{TABLE}] in {SETTINGS}")


# --- Which columns a command reads for a policy: those given as options, or else the policy's own
#
# Column names in dprl.toml are for learning. For a policy that stores the columns it was fitted on,
# those are used instead, and one line says so where they differ; for a policy that stores none, the
# names in dprl.toml are used.


def columns_for(policy: Any, asked: OtherColumns | None, command: str) -> dict[str, Any]:
    """Columns by part, as `dprl.policies.loading.read_like` takes them; None: the policy's own."""
    from dprl.policies.loading import own_columns

    result: dict[str, Any] = dict(vars(asked or OtherColumns()))
    result["missing"] = words_of(result["missing"])
    if result.get("better") is None:  # a policy learned the other way is refused
        result["better"] = outcome_in_settings().get("better")
    in_settings = {k: v for k, v in columns_in_settings(command).items() if result.get(k) is None}
    own = own_columns(policy)
    if not own:
        return {**result, **in_settings}
    features = list(policy.space.feature_names)
    used = {**own, "state": features} if features else own
    others = [
        f"{part} = {_shown(name)}, used is {_shown(used.get(part))} (--{part} overrides)"
        for part, name in in_settings.items()
        if not _same(used.get(part), name) and not _same(own.get(part), name)  # categories, gaps
    ]
    if others:
        complain(f"{SETTINGS} differs from the policy's own columns: {'; '.join(others)}.")
    return result


def _names(name: Any) -> list[str]:
    return [] if name is None else [name] if isinstance(name, str) else [str(n) for n in name]


def _shown(name: Any) -> str:
    return first_few(map(repr, _names(name)), 3) or "none"


def _same(own: Any, in_settings: Any) -> bool:
    """Whether the names, which may be patterns such as 'x_*', mean these columns."""
    ours, patterns = _names(own), _names(in_settings)
    return all(any(fnmatch.fnmatchcase(n, p) for p in patterns) for n in ours) and all(
        any(fnmatch.fnmatchcase(n, p) for n in ours) for p in patterns
    )
