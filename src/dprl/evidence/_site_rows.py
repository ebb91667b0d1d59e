"""The evidence of a table that a warehouse counted with `dprl.evidence.sql_query`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_whole
from dprl._core.exact import COUNT, LIMIT, NOTHING, SQUARES, SUMS, digits_of, window_of
from dprl._core.words import argument, worded
from dprl.errors import EvidenceError, LogError, ParameterError
from dprl.evidence import _site_bins
from dprl.evidence._evidence import FIRST, LATER, Evidence
from dprl.evidence._site_cells import USUAL_K, as_site
from dprl.evidence._site_evidence import REST, SiteEvidence
from dprl.evidence._site_query import COLUMNS
from dprl.evidence._site_rules import EMPTY
from dprl.evidence._site_schema import SiteSchema
from dprl.logs.log import Label

__all__ = ["from_query"]

Ints: TypeAlias = NDArray[np.int64]
Row: TypeAlias = dict[str, Any]

WRONG = {
    "odd": ("rows have a missing value, or a reward with more decimals than was said", "rows"),
    "twice": ("times stand twice in one episode", "times"),
    "torn": ("episodes are in two groups", "episodes"),
}
"""Part of the result → what is wrong where its number is not 0."""


def from_query(
    rows: Iterable[Any], schema: SiteSchema, *, k: int = USUAL_K, site: str = ""
) -> SiteEvidence:
    """The evidence of a table that a warehouse counted with `sql_query`.

    Args:
        rows: The rows of the result: tuples in the order of its columns, or mappings by name.
        schema: The schema that the query was made with.
        k: The fewest groups of anything that is given away about a state. Default 10.
        site: A name for the site. Default "".

    Returns:
        The evidence, as `dprl.site_evidence` would make it of the table (see the module's
        `_site_query` for what rounding may differ).

    Raises:
        EvidenceError: The rows are not those of the query.
        LogError: The table has missing values, labels that are not in the schema, returns outside
            the range, or fewer than k groups.

    Example:
        >>> import dprl, duckdb
        >>> from dprl.evidence import from_query, sql_query
        >>> schema = dprl.SiteSchema(states=["ill", "well"], actions=["drug", "wait"], gamma=1.0)
        >>> visits = "(VALUES (1, 0, 'ill', 'drug', 0), (1, 1, 'well', 'wait', 1)) v(p, t, s, a, r)"
        >>> query = sql_query(schema, table=visits, episode="p", time="t", state="s", action="a",
        ...                   reward="r", dialect="duckdb")
        >>> from_query(duckdb.sql(query).fetchall(), schema, k=1)
        <SiteEvidence: 1 site, 1 groups, 2 states, 2 actions; nothing suppressed>
    """
    if not isinstance(schema, SiteSchema):
        raise ParameterError(f"a schema is needed; got an object of type {type(schema).__name__}.")
    k = check_whole("k", k, 1)
    by_part: dict[str, list[Row]] = {}
    for row in rows:
        named = _named(row)
        by_part.setdefault(str(named["part"]), []).append(named)
    unit, whole = (_only(by_part, part) for part in ("unit", "whole"))
    for part, (what, noun) in WRONG.items():
        n = _only(by_part, part)["n"]
        if n:
            raise LogError(
                f"{n:,} {what}.", f"counted by the query as {part!r}",
                f"Put these {noun} right in the table, or leave their episodes out.",
            )  # fmt: skip
    evidence, steps = _sums(by_part, schema, unit["n"], whole["n"])
    facts = {
        "site": "", "part": "", "k": 1, "episodes": whole["n"], "groups": whole["total"],
        "cut_episodes": 0, "pairs": 0, "later": 0, "states": 0, "visits": 0,
        "grouped": whole["total"] != whole["n"], "timed": True,
    }  # fmt: skip
    bins = _bins(by_part.get("bin", []), schema, unit["n"])
    try:
        counted = SiteEvidence(schema, evidence, steps, bins, None, (facts,))
    except EvidenceError as error:
        raise _not_ours(error.what) from error
    return as_site([counted], k=k, site=site)


def _not_ours(why: str) -> EvidenceError:
    return EvidenceError(
        "the rows are not those of the evidence query.",
        why,
        "Run the query of dprl.evidence.sql_query, made with this schema, and give all its rows.",
    )


def _named(row: Any) -> Row:
    """A row by name, with its numbers as whole numbers."""
    try:
        named = dict(row) if isinstance(row, Mapping) else dict(zip(COLUMNS, row, strict=True))
        for name in COLUMNS[3:]:
            value = named[name]
            if value is None or value == "":
                named[name] = None
            else:
                number = Fraction(value)
                if number.denominator != 1:
                    raise ValueError(f"{name} = {value!r}")
                named[name] = int(number)
        return {name: named[name] for name in COLUMNS}
    except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise _not_ours(f"{repr(row)[:60]} ({error})") from error


def _only(by_part: Mapping[str, Sequence[Row]], part: str) -> Row:
    here = by_part.get(part, [])
    if len(here) != 1 or here[0]["n"] is None or here[0]["n"] < 0:
        raise _not_ours(f"{len(here)} rows of the part {part!r}, not one")
    return here[0]


def _codes(rows: Sequence[Row], schema: SiteSchema, name: str) -> Ints:
    """The schema's codes of the labels in a column."""
    labels: tuple[Label, ...] = schema.states if name == "state" else schema.actions
    code = {str(label): i for i, label in enumerate(labels)}
    strange = sorted({str(row[name]) for row in rows if str(row[name]) not in code})
    if strange:
        raise LogError(
            f"{len(strange):,} {name}s of the table are not in the schema.",
            f"{strange[0]!r}; the schema has {labels[0]!r}",
            "Agree on a schema with all labels before anybody counts, or leave these rows' "
            "episodes out.",
        )
    return np.array([code[str(row[name])] for row in rows], np.int64)


def _sums(
    by_part: Mapping[str, Sequence[Row]], schema: SiteSchema, exponent: int, episodes: int
) -> tuple[Evidence, Ints]:
    S, A = len(schema.states), len(schema.actions) + 1
    words = np.zeros((2, S, A, 1 + SUMS + SQUARES), np.int64)
    top, bottom = np.full((2, S, A), NOTHING, np.int16), np.full((2, S, A), EMPTY, np.int16)
    span = np.full((S, 2), np.nan)
    for which, part in ((FIRST, "first"), (LATER, "later")):
        rows = by_part.get(part, [])
        at = zip(_codes(rows, schema, "state"), _codes(rows, schema, "action"), strict=True)
        for row, (s, a) in zip(rows, at, strict=True):
            if any(row[name] is None for name in COLUMNS[3:]) or not 0 < row["n"] < LIMIT:
                raise _not_ours(f"{part} of {row['state']!r}, {row['action']!r}")
            cell = which, s, a
            if words[cell][COUNT]:
                raise _not_ours(f"{part} of {row['state']!r}, {row['action']!r} stands twice")
            words[cell], top[cell], bottom[cell] = _accumulator(row, exponent)
            if which == FIRST:
                low, high = (float(Fraction(row[x], 10**exponent)) for x in ("lowest", "highest"))
                span[s] = np.fmin(span[s, 0], low), np.fmax(span[s, 1], high)
    steps, rows = np.zeros(S, np.int64), by_part.get("steps", [])
    steps[_codes(rows, schema, "state")] = [row["n"] for row in rows]
    return Evidence(
        words, top, bottom, span, schema.states, (*schema.actions, REST), schema.gamma, "first",
        episodes,
    ), steps  # fmt: skip


def _accumulator(row: Row, exponent: int) -> tuple[Ints, int, int]:
    """The words of an exact sum (see `dprl._core.exact`), with the window they are in."""
    n, unit = row["n"], 10**exponent
    total, squares = Fraction(row["total"], unit), Fraction(row["squares"], unit**2)
    words = np.zeros(1 + SUMS + SQUARES, np.int64)
    words[COUNT] = n
    if n * squares == total**2:  # all returns are equal: so are the floats that stand for them
        value = np.array([float(total / n)])
        window = window_of(value, SUMS)._replace(sums=SUMS, squares=SQUARES)
        if window.top == NOTHING:
            return words, NOTHING, EMPTY
        words[1:] = n * digits_of(value, window)[0]
        return words, window.top, window.bottom
    largest = max(abs(row["lowest"]), abs(row["highest"]))
    top = math.frexp(float(Fraction(largest, unit)))[1] - 1
    words[1 : 1 + SUMS] = _digits(total, top >> 5, SUMS)
    words[1 + SUMS :] = _digits(squares, (2 * top + 1) >> 5, SQUARES)
    last = 32 * ((top >> 5) - SUMS + 1)
    return words, top, max(min(top, 0), last) if exponent == 0 else min(top, max(last, -40))


def _digits(value: Fraction, top: int, K: int) -> list[int]:
    """The K digits of base 2^32 of a number, from digit `top` down; what is below is cut off."""
    scaled = abs(value) * Fraction(2) ** (-32 * (top - K + 1))
    whole, sign = scaled.numerator // scaled.denominator, 1 if value >= 0 else -1
    digits = []
    for _ in range(K - 1):
        digits.append(sign * (whole & 0xFFFFFFFF))
        whole >>= 32
    return [sign * whole, *reversed(digits)]


def _bins(rows: Sequence[Row], schema: SiteSchema, exponent: int) -> Ints | None:
    if schema.value_range is None:
        return None
    low, high = schema.value_range
    slack = 1e-9 * (high - low)
    for row in rows:
        ends = [float(Fraction(row[x] or 0, 10**exponent)) for x in ("lowest", "highest")]
        if ends[0] < low - slack or ends[1] > high + slack:
            raise LogError(
                worded(
                    "returns lie outside {value_range} ({low:g}, {high:g}).",
                    value_range=argument("value_range"),
                    low=low,
                    high=high,
                ),
                f"state {row['state']!r}: {ends[0]:g} to {ends[1]:g}",
                "The range must hold for every return there can be, or nothing is proved; widen "
                "it.",
            )
    if not rows:
        return np.empty((0, 4), np.int64)
    pair = _codes(rows, schema, "state") * (len(schema.actions) + 1)
    pair += _codes(rows, schema, "action")
    bins = np.array([row["total"] for row in rows], np.int64)
    return _site_bins.add_up(np.column_stack([pair, bins, bins, [row["n"] for row in rows]]))
