"""Which column of a table is what: a proposal, with reasons, for a person to read and mend.

Roles that decide what is learned (the action, the reward) are proposed by name alone, never from
numbers: what looks like a reward may be anything. Where no name says it, the proposal leaves the
role open and lists the columns that could have it. The rest goes by names and by what the rows
show: an episode's rows lie together, times rise within it, a group holds whole episodes.
"""

from __future__ import annotations

# Apart: guesses, kept from the readers, which never guess.
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.database import of_text
from dprl.logs.checking.whole_log import telling
from dprl.logs.reading.files import Files
from dprl.logs.reading.frames import quoted
from dprl.logs.reading.text import is_unnamed
from dprl.logs.roles import NAMES

# --- Words in the names of columns that say what a column is: English, German, French and Spanish
#
# Names are compared in small letters and without accents ("Événement" is evenement, "Maß" is
# mass).

WORDS = {
    "episode": ("episode", "trajectory", "traj", "stay", "encounter", "admission", "hadm", "visit",
                "icustay", "csn", "case", "game", "run", "session",
                "fall", "aufenthalt", "aufnahme", "besuch", "fallnummer", "fallnr", "fallid",
                "sejour", "visite", "cas", "hospitalisation", "admision",
                "episodio", "estancia", "visita", "caso", "ingreso"),
    "group": ("patient", "subject", "person", "pid", "mrn", "hospital", "site", "centre", "center",
              "user", "customer", "family", "institution", "inst", "clinic", "facility", "hosp",
              "hospnum", "hospnr", "hospid",
              "patientin", "proband", "krankenhaus", "klinik", "standort", "zentrum",
              "sujet", "personne", "hopital", "paciente", "sujeto", "persona", "centro"),
    "time": ("time", "timestamp", "datetime", "date", "day", "hour", "week", "month", "step", "t",
             "charttime", "minute", "period", "seq", "order", "index", "when", "recorded",
             "start", "tstart",
             "zeit", "zeitpunkt", "datum", "uhrzeit", "wann", "tag", "stunde", "woche", "monat",
             "schritt",
             "temps", "quand", "jour", "heure", "semaine", "mois", "etape", "horodatage",
             "tiempo", "cuando", "fecha", "dia", "hora", "semana", "mes", "paso", "minuto"),
    "action": ("action", "treatment", "treat", "drug", "dose", "arm", "intervention", "therapy",
               "decision", "rx", "assigned", "allocation", "item",
               "behandlung", "medikament", "massnahme", "therapie", "arznei", "dosis", "handlung",
               "entscheidung", "gabe", "eingriff", "arzneimittel",
               "traitement", "medicament", "geste", "bras",
               "tratamiento", "medicamento", "farmaco", "accion", "brazo", "terapia"),
    "reward": ("reward", "return", "utility", "payoff", "outcome", "score", "result", "click",
               "benefit",
               "belohnung", "ergebnis", "nutzen", "punktzahl", "zielgrosse",
               "recompense", "resultat", "issue", "benefice",
               "recompensa", "resultado", "desenlace", "puntuacion", "beneficio"),
    "ended": ("ended", "end", "done", "terminal", "terminated", "censored", "finished", "ending",
              "ende", "beendet", "abgeschlossen", "zensiert", "fin", "termine", "censure",
              "terminado", "finalizado", "censurado"),
    "propensity": ("propensity", "pscore", "probability", "prob", "pi",
                   "wahrscheinlichkeit", "probabilite", "probabilidad"),
    "state": ("state", "stage", "situation", "phase", "condition",
              "zustand", "stadium", "lage", "etat", "stade", "estado", "etapa", "fase",
              "situacion"),
}  # fmt: skip
"""Role → words for it; the first is the role's own."""
PLACES = ("hospital", "site", "centre", "center", "family", "institution", "inst", "clinic",
          "facility", "hosp", "hospnum", "hospnr", "hospid", "krankenhaus", "klinik", "standort",
          "zentrum", "hopital", "centro")  # fmt: skip
"""Words of groups that are no single person: their rows are not one trajectory."""
LATER = ("dth", "yrdth", "modth", "dadth", "dod", "doddate", "deathdate",
         "outcome", "death", "died", "dead", "mortality", "survived", "survival", "discharge",
         "los", "readmission", "followup", "alive", "reward", "return", "cens", "censor",
         "censored", "censoring", "endtime", "stop", "tstop", "dropout", "dropped", "withdrawn",
         "relapse", "relapsed", "recurrence", "progression", "futime", "survtime", "osurv",
         "zensiert", "abbruch", "abgebrochen", "ruckfall", "rezidiv", "nachbeobachtung",
         "censure", "rechute", "censurado", "recaida",
         "tod", "verstorben", "gestorben", "sterblichkeit", "uberlebt", "uberleben", "entlassung",
         "entlassen", "liegedauer", "ergebnis", "belohnung",
         "mort", "deces", "decede", "mortalite", "survie", "sortie", "resultat", "recompense",
         "muerte", "fallecido", "mortalidad", "supervivencia", "alta", "resultado", "recompensa",
         "desenlace")  # fmt: skip
"""Words of columns that are often known only afterwards: never proposed as a part of the state."""
STATUS = ("status", "event", "e", "c", "ereignis", "evenement", "evento")
"""Names that say so only alone: a marital status is known beforehand."""
SINCE = ("from", "since", "before", "to", "prior", "pre", "onset", "age", "baseline", "previous",
         "seit", "vor", "bis", "depuis", "avant", "desde", "antes")  # fmt: skip
"""Words that say that a time lies before the decision: months from diagnosis."""
STARTS = ("start", "tstart")
"""Words of times at which a row begins."""
SPANS = ("time", "day", "days", "week", "weeks", "month", "months", "hours", "t", "duration",
         "zeit", "tage", "wochen", "monate", "dauer", "temps", "jours", "duree", "dias",
         "duracion", "tiempo")  # fmt: skip
"""Words of how long something took."""
BESIDES = ("id", "num", "no", "nr", "number", "key", "code", "nummer", "kennung", "schlussel",
           "numero", "cle", "codigo", "clave")  # fmt: skip
"""Words that say that a column names something, not what."""
ENDINGS = ("en", "n", "s", "nr", "id", "nummer", "ennr", "enid", "ennummer", "enkennung", "snr",
           "sid", "snummer", "sart", "art", "es", "arm", "sarm", "gruppe", "sgruppe")  # fmt: skip
"""What German puts behind a word in one piece: Patientennummer, Behandlungsart."""
LONG = 6
"""Shorter words are never taken for the beginning of a longer one."""


def words_in(name: str) -> list[str]:
    """The parts of a name, in small letters without accents: `ICUStay_ID` is icu, stay, id."""
    spaced = re.sub(r"(?<=[a-z0-9à-ÿ])(?=[A-ZÀ-Þ])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    plain = unicodedata.normalize("NFKD", spaced.casefold())
    return re.findall(r"[a-z]+|[0-9]+", "".join(c for c in plain if not unicodedata.combining(c)))


def fits(word: str, parts: set[str]) -> bool:
    """Whether a word is one of the parts of a name, or the beginning of a German compound."""
    if word in parts:
        return True
    return len(word) >= LONG and any(
        part.startswith(word) and part[len(word) :] in ENDINGS for part in parts
    )


# --- What the first rows of a table show of its columns: kinds, values, order, what goes with
# what

SAMPLE = 200_000
"""Rows that are looked at, from the first on: an episode's rows tend to lie together."""
NUMBERS = r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL.*)$"
TIMES = r"(DATE|TIMESTAMP.*)$"
MANY_TO_COUNT = 400
"""Of more columns of numbers it is not asked where their values are not 0."""


@dataclass(frozen=True)
class ColumnFacts:
    """What the sampled rows show of one column.

    Attributes:
        name: Its name.
        kind: "number", "whole" (numbers without fractions), "time", "text", "flag" or "other".
        values: How many different values it has.
        missing: Share of rows without a value.
        low: Smallest number; None for others.
        high: Largest number; None for others.
        turns: How often the value differs from that of the row before.
        comma: A value such as "27,3" of a column of text that are numbers if a comma is the decimal
            mark; "" for others.
    """

    name: str
    kind: str
    values: int
    missing: float
    low: float | None = None
    high: float | None = None
    turns: int = 0
    comma: str = ""

    @property
    def words(self) -> list[str]:
        """The parts of its name, in small letters: `ICUStay_ID` is icu, stay, id."""
        return words_in(self.name)

    def named(self, role: str) -> int:
        """How well its name fits a role: 3 it is the role's own word, 2 another, 0 none."""
        parts = {*self.words, "".join(self.words)}
        if role in ("episode", "group"):  # a name of something: its last word, besides "id"
            last = [word for word in self.words if word not in BESIDES]
            parts = {"".join(self.words), "".join(last), *last[-1:]}
        if role == "action" and self.words[:1] and self.words[0].startswith("rx"):
            parts.add("rx")
        if role == "episode" and self.values <= 2:
            parts.discard("fall")  # German for a case; English for a patient who fell
        places = [i for i, word in enumerate(WORDS[role]) if fits(word, parts)]
        return 0 if not places else 3 if places[0] == 0 else 2


@dataclass(frozen=True)
class TableFacts:
    """What the sampled rows show of a table.

    Attributes:
        rows: How many rows were looked at.
        columns: The columns, in the file's order.
        within: (column, episode column) → share of an episode's neighbouring rows at which the
            value rises, or less the share at which it falls; asked for by `look`.
        nested: (finer, coarser): every value of the first goes with one value of the second.
        at_end: (column of numbers, episode column) → share of its values other than 0 that stand on
            the last row of their episode; without an entry where it has none.
        longest: Episode column → rows of its longest episode.
        files: The files, with the rows that were looked at. Default None: there are none.
    """

    rows: int
    columns: tuple[ColumnFacts, ...]
    within: Mapping[tuple[str, str], float] = field(default_factory=dict)
    nested: frozenset[tuple[str, str]] = frozenset()
    at_end: Mapping[tuple[str, str], float] = field(default_factory=dict)
    longest: Mapping[str, int] = field(default_factory=dict)
    files: Files | None = field(default=None, repr=False, compare=False)

    def later(self, columns: list[str], reward: str, halved: bool = False) -> dict[str, str]:
        """Columns that look as if they were known only after the outcome → why.

        Where the outcome has few values: in some value of the column it is the rarer of them nearly
        always, or never where a hundred were to be expected. (The youngest may well never die, so
        ranges of numbers are asked for the first alone.)

        Args:
            columns: The columns that are asked about.
            reward: The outcome.
            halved: Whether the outcome is a number whose upper and lower half are told apart.
        """
        if self.files is None or reward not in {column.name for column in self.columns}:
            return {}
        ends = _codes(self.files, reward)
        if halved:
            length = _numbers(self.files, reward)
            ends = (length > np.nanmedian(length)).astype(np.float64)
        outcome, n = np.unique(ends, return_inverse=True, return_counts=True)[1:]
        if not 1 < len(n) <= FEW_ENDS:
            return {}
        kinds, found = {column.name: column for column in self.columns}, {}
        for name in columns:
            column = kinds[name]
            few = column.values <= FEW_VALUES
            number = column.kind in ("number", "whole") and not few
            values = _numbers(self.files, name) if number else _codes(self.files, name)
            if not few and not number:
                continue
            if number:
                edges = np.unique(np.nanquantile(values, np.linspace(0, 1, FEW_VALUES)[1:-1]))
                gone = np.isnan(values)
                values = np.where(gone, len(edges) + 1, np.searchsorted(edges, values))
            groups = np.unique(values, return_inverse=True)[1].reshape(-1)
            held = np.zeros((int(groups.max()) + 1, len(n)), np.int64)
            np.add.at(held, (groups, outcome.reshape(-1)), 1)
            size, most = held.sum(axis=1), held.max(axis=1)
            share = (n / n.sum())[held.argmax(axis=1)]
            pure = (share <= 0.5) & (size >= EACH_VALUE) & (most >= PURE * size)
            if not number:
                pure |= (most == size) & (size * (1 - share) >= EXPECTED)
            if pure.any():
                found[name] = (
                    f"on {int(size[pure].sum()):,} rows it tells {reward!r}: known afterwards?"
                )
        return found

    def fixing(self, columns: list[str], action: str) -> dict[str, float]:
        """Columns that fix the action → the share of rows on which they tell it."""
        if self.files is None:
            return {}
        taken = _codes(self.files, action).astype(np.int32)
        kinds = {column.name: column.kind for column in self.columns}
        shares = {}
        for name in columns:
            number = kinds.get(name) in ("number", "whole")
            values = _numbers(self.files, name) if number else _codes(self.files, name)
            result = telling(values, taken)
            if result is not None and result.fixes:
                shares[name] = result.right
        return shares


def look(paths: Any, **text: Any) -> TableFacts:
    """Look at the first rows of files.

    Args:
        paths: A path, a pattern, or a sequence of them.
        **text: How CSV files are written; see `dprl.logs.reading.files.Files`.
    """
    files = Files(paths, None, **text)
    files.run(
        f"CREATE TEMP TABLE looked AS SELECT * FROM ({files.scan}) LIMIT {SAMPLE}", files.values
    )
    rows = int(files.run("SELECT count(*) FROM looked").fetchall()[0][0])
    columns = tuple(_column(files, name, kind, rows) for name, kind in files.types.items())
    ids = [c.name for c in columns if may_name(c, rows)]
    times = [c.name for c in columns if c.kind in ("number", "whole", "time") and c.values > 1]
    kinds = {c.name: c.kind for c in columns}
    within = {(t, e): _rises(files, t, kinds[t], e) for e in ids for t in times if t != e}
    nested = frozenset((a, b) for a in ids for b in ids if a != b and _is_nested(files, a, b))
    at_end, longest = _ends(files, [c.name for c in columns if c.low is not None], ids)
    return TableFacts(rows, columns, within, nested, at_end, longest, files)


def _codes(files: Files, name: str) -> NDArray[np.float64]:
    """(N,): the number of each value of a column, missing ones among them."""
    rows = files.run(
        f"SELECT dense_rank() OVER (ORDER BY {quoted(name)}) - 1 AS k FROM looked ORDER BY rowid"
    ).fetchnumpy()["k"]
    return np.asarray(np.ma.getdata(rows), np.float64)


def _numbers(files: Files, name: str) -> NDArray[np.float64]:
    """(N,): a column of numbers, NaN where one is missing."""
    c = quoted(name)
    number = files.double(c) if files.types[name] == "VARCHAR" else f"CAST({c} AS DOUBLE)"
    rows = files.run(f"SELECT {number} AS x FROM looked ORDER BY rowid").fetchnumpy()["x"]
    return np.asarray(np.ma.filled(rows, np.nan), np.float64)


def _ends(
    files: Files, numbers: list[str], ids: list[str]
) -> tuple[dict[tuple[str, str], float], dict[str, int]]:
    """Where numbers that are not 0 stand in their episodes, and how long these are."""
    at_end: dict[tuple[str, str], float] = {}
    longest: dict[str, int] = {}
    for episode in ids:
        e = quoted(episode)
        rows = f"SELECT max(n) FROM (SELECT count(*) AS n FROM looked GROUP BY {e})"
        longest[episode] = int(files.run(rows).fetchall()[0][0] or 0)
        names = [name for name in numbers if name != episode]
        if not names or len(names) > MANY_TO_COUNT:
            continue
        counts = []
        for name in names:
            c = quoted(name)
            number = files.double(c) if files.types[name] == "VARCHAR" else f"CAST({c} AS DOUBLE)"
            counts += [f"count(*) FILTER ({number} <> 0)",
                       f"count(*) FILTER ({number} <> 0 AND is_last)"]  # fmt: skip
        marked = f"SELECT *, rowid = max(rowid) OVER (PARTITION BY {e}) AS is_last FROM looked"
        row = files.run(f"SELECT {', '.join(counts)} FROM ({marked})").fetchall()[0]
        for name, every, last in zip(names, row[::2], row[1::2], strict=True):
            if every:
                at_end[name, episode] = last / every
    return at_end, longest


def may_name(column: ColumnFacts, rows: int) -> bool:
    """Whether a column may name episodes or groups."""
    return (
        column.kind in ("whole", "text") and column.missing == 0 and 1 < column.values <= rows
        and bool(column.named("episode") or column.named("group") or column.words[-1:] == ["id"])
        and not (column.named("action") or column.named("time"))
    )  # fmt: skip


def _column(files: Files, name: str, kind: str, rows: int) -> ColumnFacts:
    c = quoted(name)
    number = re.match(NUMBERS, kind) is not None
    as_number = f"CAST({c} AS DOUBLE)" if number else files.double(c)
    text = kind == "VARCHAR"
    sql = (
        f"SELECT count(DISTINCT {c}), count({c}), {f'count({as_number})' if number or text else 0},"
        f"{f'count(*) FILTER ({as_number} = round({as_number}))' if number or text else 0},"
        f"{f'min({as_number})' if number or text else 'NULL'},"
        f"{f'max({as_number})' if number or text else 'NULL'},"
        f"{f'count({_moment(files, c)})' if text else 0},"
        f"{f'count({of_text(c, chr(44))})' if text else 0},"
        f"{f'min({c}) FILTER (contains({c}, chr(44)))' if text else 'NULL'} FROM looked"
    )
    values, present, numbers, wholes, low, high, times, commas, comma = files.run(sql).fetchall()[0]
    turns = files.run(
        f"SELECT count(*) FILTER ({c} IS DISTINCT FROM before) FROM "
        f"(SELECT {c}, lag({c}) OVER (ORDER BY rowid) AS before FROM looked)"
    ).fetchall()[0][0]
    word = "other"
    if kind == "BOOLEAN":
        word = "flag"
    elif re.match(TIMES, kind) or (text and present and times == present and numbers < present):
        word = "time"
    elif present and numbers == present and (number or text):
        word = "whole" if wholes == present else "number"
    elif text or kind.startswith("ENUM"):
        word = "text"
    if word not in ("whole", "number"):
        low = high = None
    missing = 1 - present / rows if rows else 0.0
    comma = comma if word == "text" and commas == present else ""
    return ColumnFacts(name, word, int(values), missing, low, high, int(turns), comma or "")


def _moment(files: Files, c: str) -> str:
    """SQL for the time that text stands for, as dates are declared; NULL where it is none."""
    dates = files.text.dates
    if dates == "iso":
        german = "['%d.%m.%Y', '%d.%m.%Y %H:%M', '%d.%m.%Y %H:%M:%S']"  # proposed, not yet declared
        return f"coalesce(TRY_CAST({c} AS TIMESTAMP), try_strptime({c}, {german}))"
    days = {"day-first": ("%d", "%m"), "month-first": ("%m", "%d")}.get(dates)
    forms = [dates] if days is None else [
        f"{days[0]}{mark}{days[1]}{mark}%Y{hours}"
        for mark in "./-" for hours in ("", " %H:%M", " %H:%M:%S")
    ]  # fmt: skip
    return f"try_strptime({c}, [{', '.join(quoted(form, chr(39)) for form in forms)}])"


def _rises(files: Files, time: str, kind: str, episode: str) -> float:
    """Share of an episode's neighbouring rows at which a number or a time rises.

    Where it never does, less the share at which it falls.
    """
    t, e = quoted(time), quoted(episode)
    if files.types[time] == "VARCHAR":
        t = _moment(files, t) if kind == "time" else files.double(t)
    pairs, rising, falling = files.run(
        f"SELECT count(before), count(*) FILTER (now > before), count(*) FILTER (now < before) "
        f"FROM (SELECT {t} AS now, "
        f"lag({t}) OVER (PARTITION BY {e} ORDER BY rowid) AS before FROM looked)"
    ).fetchall()[0]
    return (rising or -falling) / pairs if pairs else 0.0


def _is_nested(files: Files, finer: str, coarser: str) -> bool:
    a, b = quoted(finer), quoted(coarser)
    pairs, fine, coarse = files.run(
        f"SELECT count(DISTINCT ({a}, {b})), count(DISTINCT {a}), count(DISTINCT {b}) FROM looked"
    ).fetchall()[0]
    return bool(pairs == fine and coarse < fine)


# --- Which column of a table is what: a proposal, with reasons, for a person to read and mend

FEW_ENDS = 6
"""Most values of a column that says how something ended; more are a time or a measurement."""
FEW_VALUES, EACH_VALUE = 20, 30
"""Of a column that may tell the outcome: values that are looked at one by one (else ranges), and
rows that have one."""
PURE, EXPECTED = 0.99, 100
"""Nearly always, as a share; and how many were to be expected where there is none."""
FEW_ACTIONS = 60
"""Most labels of a column that can be the action."""
FEW_STATES = 200
"""Most labels of a column that can be a state by itself."""
ALONE = 0.5
"""A column of text with more labels than this share of the rows names rows; it describes none."""
FALLS = -0.5
"""A time that never rises within episodes, and falls so often, stands newest first."""
SHORT = 50
"""Episodes of at most so many rows are short: an outcome at their end is not discounted."""


@dataclass(frozen=True)
class Proposal:
    """Which column is what.

    Attributes:
        columns: Role → column, or columns for a state of features.
        reasons: Role → why, in a few words.
        open: Required roles that no column has → the columns that could have it.
        left_out: Column → why it is in no role.
        rows: How many rows were looked at.
        single: Whether every episode has one row.
        candidates: Role → the columns that could have it too, those that fit best by name first.
        outcome: Whether the reward is one outcome, on the last row of short episodes alone.
        zeros: Whether the reward is missing on the other rows, so that it must be said to be 0.
        fixing: Columns that fix the action → the share of rows on which they tell it.
    """

    columns: dict[str, str | list[str]]
    reasons: dict[str, str]
    open: dict[str, list[str]]
    left_out: dict[str, str]
    rows: int
    single: bool
    candidates: dict[str, list[str]] = field(default_factory=dict)
    outcome: bool = False
    zeros: bool = False
    fixing: dict[str, float] = field(default_factory=dict)


def propose(table: TableFacts, given: Mapping[str, Any] | None = None) -> Proposal:
    """Propose which column is what.

    Args:
        table: What is to be seen of the table.
        given: Role → column (or columns), as far as the user has said it; taken as it is.
    """
    work = _Work(table, dict(given or {}))
    work.identify()
    for role in ("ended", "propensity"):
        work.by_name(role)
    work.by_name("action", least=True)
    work.by_name("reward")
    fixing = work.describe()
    reward = work.facts.get(str(work.columns.get("reward")))
    outcome = work.is_outcome(reward)
    return Proposal(
        work.columns, work.reasons, work.open, work.left_out, table.rows, work.single(),
        work.candidates(), outcome, outcome and reward is not None and reward.missing > 0, fixing,
    )  # fmt: skip


class _Work:
    """A proposal in the making."""

    def __init__(self, table: TableFacts, given: dict[str, Any]) -> None:
        self.table = table
        self.facts = {c.name: c for c in table.columns}
        self.columns: dict[str, Any] = given
        self.reasons = dict.fromkeys(given, "as you said")
        self.open: dict[str, list[str]] = {}
        self.left_out: dict[str, str] = {}

    def free(self) -> list[ColumnFacts]:
        """The columns without a role so far."""
        taken = set()
        for value in self.columns.values():
            taken |= {value} if isinstance(value, str) else set(value)
        return [c for c in self.table.columns if c.name not in taken]

    def single(self) -> bool:
        """Whether every episode has one row."""
        episode = self.facts.get(str(self.columns.get("episode")))
        return episode is not None and episode.values == self.table.rows

    def may_be(self, role: str, c: ColumnFacts) -> bool:
        """Whether what the rows show of a column lets it have a role, whatever its name is."""
        episode = str(self.columns.get("episode"))
        if role == "episode":
            lies_together = c.turns == c.values < self.table.rows and c.kind in ("whole", "text")
            return may_name(c, self.table.rows) or (lies_together and not c.missing)
        if role == "group":
            return (episode, c.name) in self.table.nested
        if role == "time":
            share = self.table.within.get((c.name, episode), 0.0)
            return not self.single() and (c.kind == "time" or share == 1.0 or share <= FALLS)
        if role == "ended":
            blank = c.missing > 0 and not self.single()  # rows before the last say nothing
            return c.kind in ("flag", "text", "whole") and 1 < c.values + blank <= 10
        if role == "propensity":
            return c.low is not None and c.low > 0 and (c.high or 2.0) <= 1
        if role == "action":
            return 1 < c.values <= FEW_ACTIONS and c.kind != "time"
        if role == "reward":
            return c.kind in ("number", "whole") and (c.missing == 0 or self.is_outcome(c))
        return role == "state" and not self._unfit(c)

    def is_outcome(self, c: ColumnFacts | None) -> bool:
        """Whether a reward stands on the last row of short episodes alone."""
        episode = str(self.columns.get("episode"))
        if c is None or self.single():
            return False
        return (
            self.table.at_end.get((c.name, episode)) == 1.0
            and 1 < self.table.longest.get(episode, 0) <= SHORT
        )

    def candidates(self) -> dict[str, list[str]]:
        """The columns that could have a role too, for every role."""
        able: dict[str, list[str]] = {}
        for role in NAMES:
            own = self.columns.get(role, ())
            names = {own} if isinstance(own, str) else set(own)
            naming = {str(self.columns.get(one)) for one in ("episode", "group", "time")}
            among = self.free() if role == "state" else list(self.table.columns)
            if role in ("action", "reward", "ended", "propensity"):
                among = [c for c in among if c.name not in naming]
            others = [c for c in among if c.name not in names and self.may_be(role, c)]
            scores = {c.name: c.named(role) if role in WORDS else 0 for c in others}
            if others:
                able[role] = sorted(scores, key=lambda name: -scores[name])
        return able

    def put(self, role: str, column: str, why: str) -> None:
        self.columns[role], self.reasons[role] = column, why

    def identify(self) -> None:
        """Episode, group and time: what names rows, and what orders them."""
        if "episode" not in self.columns:
            names = [c for c in self.free() if may_name(c, self.table.rows)]
            names = [c for c in names if not set(c.words) & set(PLACES)] or self._counted()
            if not names:
                self.open["episode"] = [
                    c.name for c in self.free() if c.kind in ("whole", "text") and not c.missing
                ]
            else:
                # rows that lie together, then the word for it, then the finest
                best = max(names, key=lambda c: (
                    c.turns == c.values < self.table.rows, c.named("episode"), c.values,
                ))  # fmt: skip
                self.put("episode", best.name, self._of_episode(best))
        episode = self.columns.get("episode")
        if isinstance(episode, str):
            if "group" not in self.columns:
                named = {*words_in(episode)}
                person = any(fits(word, named) for word in {*WORDS["group"]} - {*PLACES})
                around = [
                    c for c in self.free()
                    if (episode, c.name) in self.table.nested
                    and not (person and set(c.words) & set(PLACES))
                    and (c.named("group") or c.words[-1:] == ["id"])
                ]  # fmt: skip
                if around:
                    best = max(around, key=lambda c: c.values)
                    why = f"each {episode} belongs to one; what it holds stays together"
                    self.put("group", best.name, why)
            self._order(episode)

    def _counted(self) -> list[ColumnFacts]:
        """The column that numbers the rows, whatever its name is; none or several are no answer."""
        one = [
            c for c in self.free() if c.kind == "whole" and c.values == self.table.rows
            and c.low is not None and c.high == c.low + self.table.rows - 1 and not c.missing
        ]  # fmt: skip
        return one if len(one) == 1 else []

    def _of_episode(self, column: ColumnFacts) -> str:
        each = self.table.rows / max(column.values, 1)
        if column.values == self.table.rows:
            return "a value of its own in every row: one decision each"
        together = ", its rows lie together" if column.turns == column.values else ""
        return f"{column.values:,} values, {each:.1f} rows each{together}"

    def _order(self, episode: str) -> None:
        if "time" in self.columns or self.single():
            return
        rising = [
            (c.named("time"), self.table.within.get((c.name, episode), 0.0), c) for c in self.free()
        ]
        good = [one for one in rising if one[0] and one[1] == 1.0]
        if good:
            # where rows have a start and an end, the start orders them: the end is not known yet
            best = max(good, key=lambda one: (
                bool(set(one[2].words) & set(STARTS)), one[0], -(one[2].low or 0.0),
            ))[2]  # fmt: skip
            self.put("time", best.name, f"rises from row to row within every {episode}")
            return
        falling = [one for one in rising if one[1] <= FALLS and (one[0] or one[2].kind == "time")]
        if falling:
            best = max(falling, key=lambda one: (one[0], -one[1]))[2]
            why = f"falls from row to row within every {episode}: the rows stand newest first"
            self.put("time", best.name, why)
            return
        dates = [c.name for score, share, c in rising if score and share > 0 and c.kind == "time"]
        if len(dates) == 1:
            self.put("time", dates[0], "by its name; the rows are not in its order")

    def by_name(self, role: str, least: bool = False) -> None:
        """The column whose name is the role's; left open, with candidates, if it is required."""
        if role in self.columns:
            return
        able = [c for c in self.free() if self.may_be(role, c)]
        named = [c for c in able if c.named(role)]
        if named:
            order = sorted(named, key=lambda c: (-c.named(role), c.values if least else 0))
            best = order[0]
            if len(order) > 1 and order[1].named(role) == best.named(role) and role in (
                "action", "reward",
            ):  # fmt: skip
                self.open[role] = [c.name for c in order]
                return
            self.put(role, best.name, f"by its name; {self._range(best)}")
        elif role in ("action", "reward"):
            self.open[role] = [c.name for c in able]

    @staticmethod
    def _range(column: ColumnFacts) -> str:
        if column.kind == "number" and column.low is not None:
            return f"from {column.low:g} to {column.high:g}"
        return f"{column.values:,} values"

    def describe(self) -> dict[str, float]:
        """The state: a column that is one by name, or all that describe a row beforehand.

        Columns that fix the action are no part of it, unless the user said so; they are returned.
        """
        free = self.free()
        if self.open:  # what is asked for first is no part of a state
            return {}
        if "state" in self.columns:
            own = self.columns["state"]
            return self._fixing([own] if isinstance(own, str) else list(own))
        labels = [
            c for c in free
            if c.named("state") and c.kind in ("text", "whole", "flag") and c.values <= FEW_STATES
            and not c.missing
        ]  # fmt: skip
        several = [c for c in labels if c.named("state") == max(x.named("state") for x in labels)]
        if len(several) == 1 or any(c.words == ["state"] for c in several):
            best = max(labels, key=lambda c: c.named("state"))
            self.put("state", best.name, f"by its name; {best.values:,} labels")
            for c in free:
                if c is not best:
                    self.left_out[c.name] = "not needed beside a state by name; it is compared"
            return self._fixing([best.name])
        features = []
        for c in free:
            why = self._unfit(c)
            if why:
                self.left_out[c.name] = why
            else:
                features.append(c.name)
        reward, ended = self.columns.get("reward"), self.columns.get("ended")
        if self.single() and isinstance(reward, str):
            later = self.table.later(features, reward)
            if isinstance(ended, str):  # a time and a status: each can be told
                length = self.facts.get(reward)
                if length is not None and length.low is not None and length.values > FEW_ENDS:
                    later |= self.table.later(features, reward, halved=True)
                later = self.table.later(features, ended) | later
            for name, why in later.items():
                features.remove(name)
                self.left_out[name] = why
        fixing = self._fixing(features)
        for name, share in fixing.items():
            features.remove(name)
            self.left_out[name] = (
                f"it tells the action on {share:.1%} of rows: what was given, not why?"
            )
        if len(features) == 1 and self.facts[features[0]].kind == "text":
            self.put("state", features[0], "the only one left: its values are labels")
        elif features:
            self.columns["state"] = features
            self.reasons["state"] = "all others: take out what is known only after the decision"
        else:
            self.open["state"] = [c.name for c in free]
        return fixing

    def _fixing(self, columns: list[str]) -> dict[str, float]:
        """Those of the columns that fix the action, where that is one column."""
        action = self.columns.get("action")
        return self.table.fixing(columns, action) if isinstance(action, str) else {}

    def _unfit(self, c: ColumnFacts) -> str:
        """Why a column is no part of a state; '' if it is one."""
        if is_unnamed(c.name):
            return "it has no name: often the number of the row"
        if set(c.words) & set(LATER):
            return "its name is one of what is known afterwards"
        if len(c.words) == 1 and c.words[0] in STATUS and c.values <= FEW_ENDS:
            return "its name is one of what is known afterwards"
        if _is_later(c.words, words_in(str(self.columns.get("reward")))):
            return "by its name measured when the outcome was, or later"
        if c.low is not None and c.values > FEW_ENDS and not set(c.words) & set(SINCE):
            span = set(c.words) & set(SPANS) - ({"t"} if len(c.words) > 1 else set())
            if self.single() and span:
                return "a time, and each episode has one row: how long it was followed?"
            episode, time = self.columns.get("episode"), self.columns.get("time")
            rises = self.table.within.get((c.name, str(episode))) == 1.0
            if time and rises and span:
                return f"it rises within every {episode}, as {time} does: a time"
        if c.values <= 1:
            return "it has one value only" if c.values else "it is empty"
        if c.kind == "other":
            return "neither numbers nor labels"
        if c.kind == "time":
            return "a date"
        if c.kind == "text" and c.values > min(FEW_STATES, ALONE * self.table.rows):
            return "free text or an identifier"
        if c.words[-1:] == ["id"] or c.named("group"):
            return "by its name an identifier"
        return ""


def _is_later(words: list[str], reward: list[str]) -> bool:
    """Whether a name ends in the time of the outcome or a later one: cd4_20 and cd4_96."""
    return (
        len(words) > 1 and len(reward) > 1 and words[0] == reward[0] and words != reward
        and words[-1].isdecimal() and reward[-1].isdecimal() and int(words[-1]) >= int(reward[-1])
    )  # fmt: skip
