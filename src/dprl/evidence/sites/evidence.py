"""Evidence of sites that share no rows: what they counted, to be added up and fitted elsewhere.

A hospital counts its own log over the labels of a `SiteSchema` and gives away sums: for every state
and action how many groups, the exact sum of their returns and of the squares (see
`dprl.evidence.counts`), and how many groups had a return in which bin
(`dprl.evidence.sites.evidence`). Sums of several sites add up to those of the pooled log, bit for
bit, in any order.

**k.** Nothing that a site gives away about a state rests on fewer than k groups. In a state with
cells of fewer than k groups these cells, and the next larger ones until the cells are at least two
and their groups at least k, are put together as the *rest*: first visits that took one of several
actions, nobody says which. So what is known of a whole state less what is given away of its
actions is the rest again. A state with fewer than k groups is left out. A pair is given away whole
or not at all: also a pair that some groups, and fewer than k, took later is in the rest, since its
value without them would be about other people. `dprl.evidence.sites.cells` does this.

The rest counts in V̂(s), which is that of the union. A pair in the rest is not counted at this
site: n(s,a) becomes smaller, and Q̂(s,a) is that of the other sites. The rest does not count as
having done otherwise where n_min of these are asked for (`contrast`), since some may have taken the
very action. A certificate stays valid (`dprl.certificate.states` says why).
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dprl._core import __version__
from dprl._core.archive import Archive, Arrays
from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.checks import Cut, check_choice, check_gamma, check_range
from dprl._core.disk import replacing
from dprl._core.exact import COUNT, LIMIT, NOTHING, SQUARES, SUMS
from dprl._core.table import first_few, many
from dprl._core.words import api, either, say, worded
from dprl.errors import DprlError, EvidenceError, ParameterError
from dprl.evidence.counts import FIRST, LARGEST_TABLE, LATER, Counted, Counts, Evidence
from dprl.logs.follow_up import window_of
from dprl.logs.log import DEFERRAL, Label, Log, check_log
from dprl.logs.source import LogFacts, Share, Statistic

# --- What is in the evidence of sites, in words: for a hospital that asks what leaves it

NOT_PROTECTED = (
    "What is not protected: this is suppression of small cells, not differential privacy. Sums are "
    "exact, and who knows all groups of a cell but one can work out the return of that one.",
    "Two files of one site from before and after a patient was added differ by that patient. Count "
    "once, or after many patients.",
    "Where states follow each other in a fixed way, what is known of one state tells something "
    "about the next: a state that is left out can sometimes be worked out from those around it.",
    "A patient who was at two sites counts at both; without rows nobody can see that.",
)
"""What suppression does not do."""


def described(of: SiteEvidence) -> str:
    """What is in it, line by line."""
    schema, n = of.schema, of.evidence.words[..., COUNT]
    sites = len(of.sites)
    lines = [
        f"Evidence of {many(sites, 'site')}: {of.groups:,} groups, "
        f"{sum(site['episodes'] for site in of.sites):,} episodes.",
        "",
        "What was fixed beforehand, by the schema:",
        f"  states         {len(schema.states):,} labels: {first_few(schema.states, 6, ', …')}",
        f"  actions        {len(schema.actions):,} labels: {first_few(schema.actions, 6, ', …')}",
        f"  gamma          {schema.gamma:g}",
        f"  value_range    {_range(schema.value_range)}",
        f"  cut            {schema.cut or 'not said (cut episodes count as ended)'}",
        f"  follow_up      {schema.follow_up or 'none'}",
        "",
        "What each site says about itself:",
        *(f"  {_site(site)}" for site in of.sites),
        "",
        "What was counted (every number is of at least k groups of a site, or 0):",
        f"  first visits   {int((n[FIRST, :, :-1] > 0).sum()):,} pairs of a state and an action: "
        "how many groups took the action at their first visit of the state, the exact sum of their "
        "returns and of the squares, and the powers of two that their digits lie between",
        f"  later          {int((n[LATER] > 0).sum()):,} pairs: the same of groups that took the "
        "action for the first time at a later visit",
        f"  several        {int((n[FIRST, :, -1] > 0).sum()):,} states: the same of first visits "
        "with one of several rare actions, and not which one",
        f"  steps          {int((of.steps > 0).sum()):,} states: the number of rows",
        f"  span           {int((~np.isnan(of.evidence.span[:, 0])).sum()):,} states: "
        + (
            "the smallest and the largest return, each of which is one group's (k = 1)"
            if any(site["k"] == 1 for site in of.sites)
            else "the outer ends of the bins below"
        ),
    ]
    if of.bins is not None:
        lines.append(
            f"  bins           {len(of.bins):,} intervals of 1/4000 of the range or more: how many "
            "groups of a pair had a return in it at their first visit"
        )
    if of.available is not None:
        lines.append(
            f"  available      {int((~of.available).sum()):,} pairs that were not on offer at some "
            "visit (of one group or more: an action that may be missing must not be suggested)"
        )
    lines += [
        "",
        "No row, no label of a patient, no date, and no link between states of one patient is in "
        "it.",
        *NOT_PROTECTED,
    ]
    return "\n".join(lines)


def notes_of(of: SiteEvidence) -> tuple[str, ...]:
    """Sentences for a policy that is made of it."""
    n = len(of.sites)
    names = ", ".join(repr(site["site"]) for site in of.sites if site["site"])
    notes = [
        f"Learned from counts of {many(n, 'site')}{f' ({names})' if names else ''} that "
        "shared no rows. A group that was at two sites counts twice; nobody can see that."
    ]
    k = sorted({site["k"] for site in of.sites})
    words = f"k = {k[0]}" if len(k) == 1 else f"k from {k[0]} to {k[-1]}"
    if not of.suppressed:
        notes.append(f"Nothing was suppressed ({words}): the policy is that of the pooled log.")
        return (*notes, *_ends(of, k[-1]))
    pairs, later, states = (
        sum(site[name] for site in of.sites) for name in ("pairs", "later", "states")
    )
    visits = [site["visits"] for site in of.sites]
    first = "an unstated number of" if None in visits else f"{sum(visits):,}"
    notes.append(
        f"Cells of fewer than k groups were suppressed ({words}), counted by site: {pairs:,} pairs "
        f"at first visits ({first} first visits), {states:,} states as a whole, and {later:,} "
        "pairs that were taken at later visits only; a pair that fewer than k groups took at later "
        "visits was suppressed whole. These pairs have fewer episodes here than in a pooled log, "
        "and values of the other sites alone, so that the policy may differ from that of the "
        "pooled log, mostly by deferring; which action is usual may differ, too."
    )
    return (*notes, *_ends(of, k[-1]))


def chances_of(of: SiteEvidence) -> str:
    """What the sites' logs record of the probabilities of actions; "" where none has a column."""
    said_by = [site.get("chances") for site in of.sites]
    if not any(said_by):
        return ""
    n = len(said_by)
    whole = said_by.count("all")
    if whole == n:
        who = (
            say("the log of the site records")
            if n == 1
            else say("the logs of all {n:,} sites record", n=n)
        )
        return say(
            "Randomised: {who} on all rows with which probability the action was taken.", who=who
        )
    if not whole and "some" not in said_by:
        return say(
            "Not randomised as far as the sites say: their logs do not record with which "
            "probabilities actions were taken."
        )
    partly = said_by.count("some")
    return say(
        "Mixed: the probability of the action taken is on record on all rows of {a:,} of {n:,} "
        "sites, on some rows of {b:,}, and on none of {c:,}.",
        a=whole,
        n=n,
        b=partly,
        c=n - whole - partly,
    )


def _ends(of: SiteEvidence, k: int) -> list[str]:
    """What k does to single returns: the ends of their range, and the bins of a certificate."""
    if k == 1:
        return []
    if of.bins is None:
        return ["The smallest and the largest return of a state are not given away."]
    return [
        "Returns were put into bins of at least k groups: a certificate has less power than that "
        "of a pooled log, and the smallest and largest return of a state are ends of bins."
    ]


def _range(ends: tuple[float, float] | None) -> str:
    return "none (no bins, no certificate)" if ends is None else f"{ends[0]:g} to {ends[1]:g}"


def _site(site: Mapping[str, Any]) -> str:
    visits = "a number not stated of" if site["visits"] is None else f"{site['visits']:,}"
    lost = (
        f"suppressed {site['pairs']:,} pairs ({visits} first visits), {site['states']:,} states, "
        f"{site['later']:,} pairs at later visits"
        if site["pairs"] or site["later"]
        else "nothing suppressed"
    )
    name = repr(site["site"]) if site["site"] else "(no name)"
    chances = f"; probabilities of actions on {site['chances']} rows" if "chances" in site else ""
    return (
        f"{name}: k = {site['k']}, {site['groups']:,} groups, "
        f"{site['episodes']:,} episodes, {site['cut_episodes']:,} of them cut; {lost}{chances}; "
        f"mark {site['part'][:12]}"
    )


# --- Returns at first visits in bins of a fixed grid, none with fewer than k groups in it
#
# The range (g_lo, g_hi) of returns, known beforehand, has 4000 units. A return is either a whole
# number i of units or lies between i and i + 1, and each of these cases has a bin, as in
# `dprl.certificate.eprocesses`:
#
#     bin 2i      x = i units                    bin 2i + 1  i < x < i + 1 units
#
# so that it can be rounded down or up. Where k is above 1, bins are put together in pairs, pairs in
# fours and so on, along a tree that is the same for every site and every log. A part of the tree is
# divided if each half of it holds no group, or at least k groups. If one half holds fewer, so many
# groups of the other half join them that they are k, and are said to lie somewhere in the part; the
# other half goes on without these, if it still has k. So what is given away is how many groups, at
# least k, fell in an interval that was fixed beforehand. Rounding down or up to the ends of a wider
# interval costs a certificate power and keeps it valid.

UNITS = 4_000
"""Number of units in the range of returns."""
SLACK = 1e-9
"""How far, in parts of the range, a value may be from a whole number of units and count as one."""
LAST = 2 * UNITS
"""The number of the last bin."""
ROOT = 1 << LAST.bit_length()
"""The width of the whole tree, in bins."""


def unit_bins(values: Floats) -> Ints:
    """int64 (n,): the bin of each value (n,), where the range is 0 to 1."""
    z = values * UNITS
    whole = np.rint(z)
    exact = np.abs(z - whole) <= SLACK * UNITS
    return np.asarray(np.where(exact, 2 * whole, 2 * np.floor(z) + 1).astype(np.int64))


def coarse(rows: Ints, k: int) -> Ints:
    """Bins of which none has fewer than k groups, in place of single ones.

    Args:
        rows: int64 (n, 4): pair, bin, bin again, number of groups.
        k: The fewest groups of a bin; no pair may have fewer.

    Returns:
        int64 (rows, 4), sorted: pair, first bin, last bin (with it), number of groups.
    """
    of_pair, leaf, _, count = add_up(rows).T
    small = np.isin(of_pair, of_pair[count < k])
    parts = [np.stack([of_pair, leaf, leaf, count], axis=1)[~small]]
    for one in np.unique(of_pair[small]):
        here = of_pair == one
        own: list[tuple[int, int, int]] = []
        _divide(leaf[here], count[here], 0, ROOT, k, own)
        parts.append(np.array([(one, *row) for row in own], np.int64))
    return add_up(np.concatenate(parts))


def _divide(
    leaf: Ints, count: Ints, begin: int, width: int, k: int, rows: list[tuple[int, int, int]]
) -> None:
    """Append the bins (first, last, count) of one part of the tree, which has at least k groups."""
    whole = (begin, min(begin + width - 1, LAST), int(count.sum()))
    if width == 1:
        rows.append(whole)
        return
    half = width // 2
    sides = leaf < begin + half, leaf >= begin + half
    n = [int(count[side].sum()) for side in sides]
    if 0 in n or min(n) >= k:
        for i, side in enumerate(sides):
            if n[i]:
                _divide(leaf[side], count[side], begin + i * half, half, k, rows)
        return
    larger = int(n[1] > n[0])
    need = k - n[1 - larger]
    if n[larger] - need < k:
        rows.append(whole)
        return
    left = count[sides[larger]].copy()
    for at in np.argsort(-left, kind="stable"):
        taken = min(need, int(left[at]))
        left[at] -= taken
        need -= taken
    rows.append((*whole[:2], k))
    _divide(leaf[sides[larger]], left, begin + larger * half, half, k, rows)


def add_up(rows: Ints) -> Ints:
    """The rows (n, 4) sorted, with the counts of equal bins of a pair added up."""
    order = np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))
    rows = rows[order]
    new = np.ones(len(rows), bool)
    new[1:] = (np.diff(rows[:, :3], axis=0) != 0).any(axis=1)
    at = np.flatnonzero(new)
    if not len(at):
        return np.empty((0, 4), np.int64)
    total = np.add.reduceat(rows[:, 3], at)
    return np.column_stack([rows[at, :3], total])


# --- What the parts of a site's evidence must be to belong together; a file may hold anything

EMPTY = 30_000
"""`bottom` of a sum without summands."""
FACTS: dict[str, type] = {
    "site": str, "part": str, "k": int, "episodes": int, "groups": int, "cut_episodes": int,
    "pairs": int, "later": int, "states": int, "grouped": bool, "timed": bool,
}  # fmt: skip
"""What is kept about every site, and its type."""
MAYBE = ("chances", "log")
"""What may be kept about a site besides: probabilities on record, and a mark of its log."""
CHANCES = ("all", "some", "none")
"""On which rows a log says with which probability the action was taken; not kept without a column
for it."""


def refuse_parts(what: str) -> None:
    """Raise the error that parts do not belong together."""
    raise EvidenceError(f"these are no parts of one evidence: {what}.")


def check_parts(of: SiteEvidence) -> None:
    """Refuse arrays and facts that contradict each other.

    Sums are checked as far as the loops over them need it: windows within the range of floats, and
    digits no larger than so many summands can make them.
    """
    schema, evidence = of.schema, of.evidence
    S, A = len(schema.states), len(schema.actions) + 1
    _shape("words", evidence.words, (2, S, A, evidence.words.shape[-1]), np.int64)
    for name in ("top", "bottom"):
        _shape(name, getattr(evidence, name), (2, S, A), np.int16)
    _shape("span", evidence.span, (S, 2), np.float64)
    _shape("steps", of.steps, (S,), np.int64)
    check_sums(evidence.words, evidence.top, evidence.bottom)
    n = evidence.words[..., COUNT]
    if evidence.n_episodes < 0 or evidence.n_episodes >= LIMIT:
        refuse_parts(f"{evidence.n_episodes:,} episodes")
    if n[1 - FIRST, :, A - 1].any():
        refuse_parts("later occurrences of several actions together")
    if (of.steps < n[FIRST].sum(axis=1)).any():
        refuse_parts("fewer rows than groups in a state")
    span = evidence.span
    if np.isinf(span).any() or (span[:, 0] > span[:, 1]).any():
        refuse_parts("a smallest return above the largest")
    if of.available is not None:
        _shape("available", of.available, (S, A - 1), np.bool_)
    _check_sites(of)
    if (of.bins is None) != (schema.value_range is None):
        refuse_parts("bins without a range of returns, or a range without bins")
    if of.bins is not None:
        _check_bins(of.bins, n[FIRST])


def _shape(name: str, array: Any, shape: tuple[int, ...], dtype: Any) -> None:
    if array.shape != shape or array.dtype != dtype:
        refuse_parts(f"{name!r} is {array.dtype}{array.shape}, not {np.dtype(dtype)}{shape}")


def check_sums(words: Ints, top: NDArray[Any], bottom: NDArray[Any]) -> None:
    """Refuse accumulators that no returns can have made."""
    n = words[..., COUNT]
    if (n < 0).any() or (n >= LIMIT).any() or (n.sum(axis=(0, 2)) >= LIMIT).any():
        refuse_parts("a count below 0, or too large")
    digits = words[..., 1:]
    # Every summand adds less than 2^34 to a digit, so a digit is less than n·2^34 in size.
    if (digits >> 34 >= np.maximum(n, 1)[..., None]).any() or (
        digits >> 34 < -np.maximum(n, 1)[..., None]
    ).any():
        refuse_parts("a sum that is larger than its count can make it")
    nothing = top == NOTHING
    if digits[nothing].any() or (bottom[nothing] != EMPTY).any():
        refuse_parts("a sum without summands that is not 0")
    some = ~nothing
    if (n[some] == 0).any():
        refuse_parts("a sum without a count")
    high, low = top[some], bottom[some]
    if ((high < -1074) | (high > 1023) | (low < -1074) | (low > high)).any():
        refuse_parts("a sum of numbers that no computer has")


def _check_sites(of: SiteEvidence) -> None:
    if not of.sites:
        refuse_parts("no site")
    for site in of.sites:
        if not isinstance(site, Mapping) or set(site) - {*MAYBE} != {*FACTS, "visits"}:
            refuse_parts("facts of a site that are missing or do not belong there")
        for name, kind in FACTS.items():
            value: Any = site[name]
            small = kind is not int or (isinstance(value, int) and 0 <= value < 1 << 53)
            if type(value) is not kind or not small:
                refuse_parts(f"{name!r} of a site is {value!r}")
        if site["visits"] is not None and type(site["visits"]) is not int:
            refuse_parts(f"'visits' of a site is {site['visits']!r}")
        if site.get("chances", "all") not in CHANCES:
            refuse_parts(f"'chances' of a site is {site['chances']!r}")
        if not isinstance(site.get("log", ""), str):
            refuse_parts(f"'log' of a site is {site['log']!r}")
        if site["k"] < 1 or site["groups"] > site["episodes"]:
            refuse_parts("more groups than episodes, or a k below 1")
    for name in ("part", "log"):
        marks = [site[name] for site in of.sites if name in site]
        if len(set(marks)) < len(marks):
            refuse_parts("one site twice")
    groups = sum(site["groups"] for site in of.sites)
    if (of.evidence.words[FIRST, ..., COUNT].sum(axis=1) > groups).any():
        refuse_parts("more first visits of a state than groups")


def _check_bins(bins: Ints, first: Ints) -> None:
    if bins.ndim != 2 or bins.shape[1] != 4 or bins.dtype != np.int64:
        refuse_parts(f"'bins' is {bins.dtype}{bins.shape}")
    pair, begin, end, count = bins.T
    right = (pair >= 0) & (pair < first.size) & (begin >= 0) & (begin <= end) & (end <= LAST)
    if not (right & (count > 0) & (count < LIMIT)).all():
        refuse_parts("a bin that does not exist, or without a group")
    order = np.lexsort((end, begin, pair))
    if (order != np.arange(len(bins))).any():
        refuse_parts("bins that are not sorted")
    total = np.zeros(first.size, np.int64)
    np.add.at(total, pair, count)
    if (total != first.ravel()).any():
        refuse_parts("bins that do not add up to the first visits of their pair")


# --- What several sites agree on before any of them counts: the schema of their evidence
#
# States, actions, the discount and the range of returns are fixed beforehand, so that what the
# sites count can be added up, and so that a certificate may treat the list of states as declared. A
# schema holds no count and no row; it is a JSON file that people can read and edit.

FORMAT, VERSION = "dprl-schema", 1
LARGEST_FILE = 256 << 20
"""Bytes a schema file may have."""
TREATMENTS = ("drop", "drop-unrelated", "terminal")
"""Treatments of cut episodes that a site can carry out alone."""


@dataclass(frozen=True, kw_only=True)
class SiteSchema:
    """What sites agree on before they count; immutable.

    Attributes:
        states: All state labels that may occur, in any order; the order breaks no tie.
        actions: All action labels. Where two actions are equally good, the earlier label wins, so
            keep them sorted to get what a pooled log gives.
        gamma: Discount per step, in (0, 1].
        value_range: (lowest, highest) return there can be, known beforehand. Default None: no
            histograms are counted, and no certificate can be made.
        cut: Treatment of cut episodes: "drop", "drop-unrelated" or "terminal" (see
            `dprl.DPRLDiscrete`). Default None: as "terminal", with a CutWarning.
        follow_up: The time for which every episode is followed, such as "30 days". Default None.

    Raises:
        ParameterError: A part is not what it must be.

    Example:
        >>> import dprl
        >>> schema = dprl.SiteSchema(states=["ill", "well"], actions=["drug", "wait"], gamma=1.0)
        >>> schema
        <SiteSchema: 2 states, 2 actions, gamma 1, no range of returns>
    """

    states: tuple[Label, ...]
    actions: tuple[Label, ...]
    gamma: float
    value_range: tuple[float, float] | None = None
    cut: Cut | None = None
    follow_up: str | None = None

    def __post_init__(self) -> None:
        for name in ("states", "actions"):
            object.__setattr__(self, name, _labels(name, getattr(self, name)))
        pairs = len(self.states) * len(self.actions)
        if pairs > LARGEST_TABLE:
            raise ParameterError(
                f"{len(self.states):,} states x {len(self.actions):,} actions are too many for one "
                "table.",
                do="Merge states that are never told apart in practice.",
            )
        object.__setattr__(self, "gamma", check_gamma(self.gamma))
        if self.value_range is not None:
            object.__setattr__(self, "value_range", check_range(self.value_range))
        if self.cut is not None:
            check_choice(
                "cut", self.cut, TREATMENTS,
                "Other treatments estimate from all rows together, which no site has.",
            )  # fmt: skip
        if self.follow_up is not None:
            window_of(self.follow_up)

    def __repr__(self) -> str:
        values = "no range of returns"
        if self.value_range is not None:
            values = f"returns {self.value_range[0]:g} to {self.value_range[1]:g}"
        return (
            f"<SiteSchema: {len(self.states):,} states, {len(self.actions):,} actions, gamma "
            f"{self.gamma:g}, {values}>"
        )

    @classmethod
    def of(
        cls,
        log: Log,
        *,
        gamma: float,
        value_range: tuple[float, float] | None = None,
        cut: Cut | None = None,
    ) -> SiteSchema:
        """The schema with the labels of a log, and no count of it.

        Args:
            log: A log with labelled states. Its labels go into the schema, rare ones too: read
                them before you pass the schema on.
            gamma: Discount per step, in (0, 1].
            value_range: (lowest, highest) return there can be, never taken from the log. Default
                None.
            cut: Treatment of cut episodes. Default None.

        Returns:
            The schema; its follow_up is that of the log.

        Raises:
            LogError: The states of the log are features.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(50, seed=0)
            >>> dprl.SiteSchema.of(log, gamma=1.0).actions
            ('antibiotics', 'discharge', 'fluids', 'watch')
        """
        check_log(log)
        log.codes()
        return cls(
            states=log.states, actions=log.actions, gamma=gamma, value_range=value_range, cut=cut,
            follow_up=log.follow_up,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The schema as values JSON can hold.

        Returns:
            Name → value; lists in place of tuples.

        Example:
            >>> import dprl
            >>> dprl.SiteSchema(states=[1, 2], actions=["a"], gamma=0.9).to_dict()["states"]
            [1, 2]
        """
        ends = self.value_range
        return {
            "states": list(self.states), "actions": list(self.actions), "gamma": self.gamma,
            "value_range": None if ends is None else list(ends), "cut": self.cut,
            "follow_up": self.follow_up,
        }  # fmt: skip

    def digest(self) -> str:
        """SHA-256 of the schema.

        Returns:
            64 hexadecimal digits; equal schemas have equal digests.

        Example:
            >>> import dprl
            >>> len(dprl.SiteSchema(states=[1], actions=["a"], gamma=0.9).digest())
            64
        """
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schema to a JSON file: wholly, or not at all.

        Args:
            path: The file.

        Example:
            >>> import dprl, pathlib, tempfile
            >>> schema = dprl.SiteSchema(states=["ill"], actions=["drug"], gamma=1.0)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     schema.save(pathlib.Path(folder, "schema.json"))
            ...     dprl.SiteSchema.load(pathlib.Path(folder, "schema.json")) == schema
            True
        """
        words = {"format": FORMAT, "version": VERSION, **self.to_dict()}
        with replacing(path) as part:
            part.write_text(json.dumps(words, indent=1, ensure_ascii=False) + "\n", "utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SiteSchema:
        """Read a schema from a JSON file.

        Args:
            path: The file that `save` wrote, or that somebody wrote in its form.

        Returns:
            The schema.

        Raises:
            EvidenceError: There is no such file, or it holds no schema.

        Example:
            >>> import dprl, pathlib, tempfile
            >>> schema = dprl.SiteSchema(states=["ill"], actions=["drug"], gamma=1.0)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     schema.save(pathlib.Path(folder, "schema.json"))
            ...     dprl.SiteSchema.load(pathlib.Path(folder, "schema.json"))
            <SiteSchema: 1 states, 1 actions, gamma 1, no range of returns>
        """
        source = Path(path)
        if not source.is_file():
            raise EvidenceError(f"there is no schema file {str(path)!r}.", do="Check the path.")
        try:
            if source.stat().st_size > LARGEST_FILE:
                raise ValueError(f"it has {source.stat().st_size:,} bytes")
            words = json.loads(source.read_text("utf-8-sig"))
            if not isinstance(words, dict) or words.pop("format", None) != FORMAT:
                raise ValueError(f"it does not say format {FORMAT!r}")
            if words.pop("version", None) != VERSION:
                raise ValueError(f"this dprl reads version {VERSION}")
        except (ValueError, RecursionError) as error:
            raise _no_schema(source.name, str(error)) from error
        return cls.from_dict(words, source.name)

    @classmethod
    def from_dict(cls, words: Any, name: str = "schema") -> SiteSchema:
        """The schema of what `to_dict` gave.

        Args:
            words: Name → value.
            name: What messages call it. Default "schema".

        Returns:
            The schema.

        Raises:
            EvidenceError: The values are not those of a schema.

        Example:
            >>> import dprl
            >>> schema = dprl.SiteSchema(states=[1], actions=["a"], gamma=0.9)
            >>> dprl.SiteSchema.from_dict(schema.to_dict()) == schema
            True
        """
        own = set(cls.__dataclass_fields__)
        if not isinstance(words, dict) or set(words) != own:
            odd = sorted(set(words) ^ own)[:1] if isinstance(words, dict) else ["everything"]
            raise _no_schema(name, f"{odd[0]!r} is missing or does not belong there")
        ends = words["value_range"]
        try:
            return cls(**{**words, "value_range": None if ends is None else tuple(ends)})
        except (DprlError, TypeError) as error:
            raise _no_schema(name, str(getattr(error, "what", error))) from error


def _no_schema(name: str, why: str) -> EvidenceError:
    return EvidenceError(
        f"{name!r} is no schema of evidence.",
        why,
        worded(
            "Make one with {command}.",
            command=either("dprl.SiteSchema(...).save(path)", "dprl evidence --make-schema"),
        ),
    )


def _labels(name: str, given: Sequence[Label]) -> tuple[Label, ...]:
    """The labels as a tuple, if they are labels of one type and all different."""
    listed = isinstance(given, list | tuple)
    labels = tuple(given) if listed else ()
    kinds = {isinstance(label, str) for label in labels}
    if not labels or not all(isinstance(x, str | int) for x in labels) or len(kinds) > 1:
        raise ParameterError(
            f"{name} must be a list of labels, all text or all whole numbers.",
            f"got {given!r}"[:80],
            "Name them as the logs do.",
        )
    if name == "actions" and DEFERRAL in labels:
        raise ParameterError(
            f"no action can be called {DEFERRAL!r}: a policy says so where it names none.",
            do="Give the action another name, such as 'wait'.",
        )
    if len(set(labels)) < len(labels):
        twice = Counter(labels).most_common(1)[0][0]
        raise ParameterError(
            f"{len(labels) - len(set(labels)):,} of {len(labels):,} {name} are named more than "
            "once.",
            repr(twice),
            "Name each once.",
        )
    return labels


# --- Evidence of sites that share no rows: what they counted, to be added up and fitted elsewhere

Summed = TypeVar("Summed")
"""What can be merged: evidence, or second counts."""
T = TypeVar("T")

ARCHIVE = Archive(
    "dprl-evidence", 1, "evidence", EvidenceError,
    "Copy it again from where it was made, or ask the site to count again.",
)  # fmt: skip
LARGEST = 4 << 30
"""Bytes an evidence file may unpack to."""
REST = "(several actions)"
"""What stands in the place of an action for groups of which nobody says which action they took."""


@dataclass(frozen=True, eq=False, repr=False)
class SiteEvidence:
    """What one site or several counted; immutable. `dprl.site_evidence` makes it.

    Attributes:
        schema: States (S of them), actions (A), discount and range that were fixed beforehand.
        evidence: Exact sums over S states and A + 1 actions. The last one is the rest: first visits
            of groups of which it is not said which action they took.
        steps: int64 (S,), rows in each state.
        bins: int64 (n, 4): s·(A + 1) + a, first bin, last bin, number of groups; the returns at
            first visits in units of 1/4000 of the range. None without a range.
        available: bool (S, A), actions that were available on every visit; None where the logs do
            not say.
        sites: For each site its facts: name, k, numbers of episodes and groups, and how much was
            suppressed.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> schema = dprl.SiteSchema.of(log, gamma=1.0)
        >>> one = dprl.site_evidence(log.take(range(200)), schema, k=1, site="north")
        >>> two = dprl.site_evidence(log.take(range(200, 500)), schema, k=1, site="south")
        >>> both = dprl.merge_evidence(one, two)
        >>> both
        <SiteEvidence: 2 sites, 500 groups, 8 states, 4 actions; nothing suppressed>
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0, plan=False).fit(both)
        >>> policy.act(["fever", "stable"])
        ['antibiotics', DEFER]
    """

    schema: SiteSchema
    evidence: Evidence
    steps: Ints
    bins: Ints | None
    available: Bools | None
    sites: tuple[Mapping[str, Any], ...]

    def __post_init__(self) -> None:
        check_parts(self)
        object.__setattr__(self, "evidence", replace(self.evidence, rest=True))

    # -- as a source (`dprl.logs.source`) -----------------------------------------------------

    @functools.cached_property
    def facts(self) -> LogFacts:
        """What the sites' logs say about themselves together, as far as it was given away."""
        n_episodes, n_cut = (
            sum(site[name] for site in self.sites) for name in ("episodes", "cut_episodes")
        )
        follow_up = self.schema.follow_up
        return LogFacts(
            actions=self.schema.actions,
            states=self.schema.states,
            n_episodes=n_episodes,
            n_groups=self.groups,
            n_steps=self.n_steps,
            longest=0,
            ended=np.array([n_episodes - n_cut, 0, n_cut]),
            grouped=any(site["grouped"] for site in self.sites),
            columns={"follow_up": follow_up} if follow_up else {},
        )

    @property
    def room(self) -> int | None:
        """Nothing of a row may be held: None, since there is nothing to hold."""
        return None

    @property
    def sealed(self) -> str:
        """Why rows cannot be looked at again."""
        return say("the rows of the sites are not here")

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Refuse settings of a learner that the sites did not count with.

        Args:
            settings: The settings of `dprl.DPRLDiscrete`.

        Raises:
            ParameterError: The settings are not what the sites agreed on.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0))
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0, plan=False)
            >>> counted.check_settings(learner.settings())
        """
        ours = {"gamma": self.schema.gamma, "cut": self.schema.cut, "visits": "first"}
        for name, agreed in ours.items():
            asked = settings.get(name, agreed)
            if asked != agreed:
                raise ParameterError(
                    f"the sites counted with {name} = {agreed!r}; got {asked!r}.",
                    f"schema {self.schema.digest()[:12]}",
                    f"Say {name}={agreed!r}, or let all sites count again with another schema.",
                )
        if settings.get("plan"):
            raise ParameterError(
                "a plan needs to know what lies between decision points, and the sites have "
                "counted returns alone.",
                worded("{plan=True}, {sites:,} sites", sites=len(self.sites)),
                worded(
                    "Say {plan=False} for the best single decisions, or let the sites count a "
                    "second time (dprl evidence --points)."
                ),
            )

    def reduce(self, statistic: Statistic[T], progress: Share | None = None) -> T:
        """What the sites counted, if that is what is asked for.

        Args:
            statistic: What is asked for: `dprl.evidence.counts.Counts` of all groups.
            progress: Not used: it is counted already.

        Returns:
            What was counted.

        Raises:
            ParameterError: If the sites did not count it.

        Example:
            >>> import dprl
            >>> from dprl.evidence.counts import Counts
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> sites = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0))
            >>> sites.reduce(Counts(gamma=1.0)).evidence is sites.evidence
            True
        """
        if isinstance(statistic, Counts) and statistic.groups is None:
            how: Counts = statistic
            self.check_settings({"gamma": how.gamma, "cut": how.cut, "visits": how.visits})
            counted: Any = Counted(
                how, self.evidence, self.steps, 0, {}, None, offered=self.available
            )
            return cast("T", counted)
        raise ParameterError(
            f"what was asked for cannot be told from what sites counted: {self.sealed}.",
            repr(self),
            worded(
                "{learner} can be fitted to it; anything else needs a log.",
                learner=api("DPRLDiscrete"),
            ),
        )

    def origin(self) -> dict[str, Any]:
        """Where a policy comes from that is made of it: no log, but what sites counted of theirs.

        Returns:
            The provenance of the policy.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0)).origin()["n_sites"]
            1
        """
        facts = self.facts
        return {
            "made_by": f"dprl {__version__}",
            "log": hashlib.sha256(f"dprl-evidence|{self.digest()}".encode()).hexdigest(),
            "episodes": facts.n_episodes,
            "groups": facts.n_groups,
            "steps": facts.n_steps,
            "cut_episodes": facts.n_cut,
            "episodes_used": self.evidence.n_episodes,
            "columns": dict(facts.columns),
            "luck": {"skipped": self.sealed},
            "schema": self.schema.digest(),
            "n_sites": len(self.sites),
            "sites": [dict(site) for site in self.sites],
            "notes": list(self.notes()),
        }

    @property
    def groups(self) -> int:
        """Number of groups (episodes, where no group was given) at all sites together."""
        return sum(site["groups"] for site in self.sites)

    @property
    def suppressed(self) -> int:
        """Number of pairs that some site did not give away: in the rest, or in small states."""
        return sum(site["pairs"] + site["later"] for site in self.sites)

    @property
    def n_steps(self) -> int:
        """Number of rows that were given away."""
        return int(self.steps.sum())

    @functools.cached_property
    def parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file holds: words, and arrays by name."""
        words = {
            "made_by": f"dprl {__version__}",
            "schema": self.schema.to_dict(),
            "episodes": self.evidence.n_episodes,
            "sites": [dict(site) for site in self.sites],
        }
        arrays: dict[str, NDArray[Any]] = {
            "words": self.evidence.words, "top": self.evidence.top.astype(np.int32),
            "bottom": self.evidence.bottom.astype(np.int32), "span": self.evidence.span,
            "steps": self.steps,
        }  # fmt: skip
        if self.bins is not None:
            arrays["bins"] = self.bins
        if self.available is not None:
            arrays["available"] = self.available
        return words, arrays

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file: wholly, or not at all. Equal evidence gives equal bytes.

        Args:
            path: The file.

        Raises:
            EvidenceError: The folder does not exist.

        Example:
            >>> import dprl, pathlib, tempfile
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     counted.save(pathlib.Path(folder, "north.evidence"))
            ...     dprl.SiteEvidence.load(pathlib.Path(folder, "north.evidence")).groups
            500
        """
        ARCHIVE.pack(path, "round-1", *self.parts)

    def to_bytes(self) -> bytes:
        """The bytes of the file, for a pipe.

        Returns:
            The bytes that `save` would write.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0)).to_bytes()[:2]
            b'PK'
        """
        return ARCHIVE.to_bytes("round-1", *self.parts)

    def digest(self) -> str:
        """SHA-256 of everything that it holds.

        Returns:
            64 hexadecimal digits; equal evidence has equal digests.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> len(dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0)).digest())
            64
        """
        digest: str = ARCHIVE.document("round-1", *self.parts)[0]["digest"]
        return digest

    @classmethod
    def load(cls, source: str | os.PathLike[str] | IO[bytes]) -> SiteEvidence:
        """Read it from a file. No code from the file is run.

        Args:
            source: The path of a file, or of an `dprl.evidence.EvidenceFolder`, of which nothing is
                suppressed; "-" for standard input, or a stream of bytes.

        Returns:
            The evidence.

        Raises:
            EvidenceError: There is no such file, it is damaged, or its parts contradict each other.

        Example:
            >>> import dprl, io
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0))
            >>> dprl.SiteEvidence.load(io.BytesIO(counted.to_bytes())).digest() == counted.digest()
            True
        """
        name, _, words, arrays = unpacked(source, "round-1")
        return from_parts(name, words, arrays)

    def explain(self) -> str:
        """What is in it, line by line: all that leaves a site with the file.

        Returns:
            The text.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0))
            >>> print(counted.explain().splitlines()[0])
            Evidence of 1 site: 500 groups, 500 episodes.
        """
        return described(self)

    def notes(self) -> tuple[str, ...]:
        """Sentences on where it comes from, for a policy that is made of it.

        Returns:
            The sentences.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0), k=1).notes()[-1]
            'Nothing was suppressed (k = 1): the policy is that of the pooled log.'
        """
        return notes_of(self)

    def __repr__(self) -> str:
        n = len(self.sites)
        lost = f"{self.suppressed:,} pairs suppressed" if self.suppressed else "nothing suppressed"
        return (
            f"<SiteEvidence: {many(n, 'site')}, {self.groups:,} groups, "
            f"{len(self.schema.states):,} states, {len(self.schema.actions):,} actions; {lost}>"
        )


def merge_evidence(*parts: Summed) -> Summed:
    """The evidence of several sites together, whatever the order.

    Args:
        *parts: Evidence with one schema, or second counts for a plan (`dprl.site_plan`); each site
            counts once. A group (a patient) that was at two
            sites counts at both: nobody can see that without rows.

    Returns:
        The merged evidence. Where nothing was suppressed it is that of the pooled log, bit for bit.

    Raises:
        ParameterError: There is nothing to merge.
        EvidenceError: The schemas differ, or the evidence of one site is there twice.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> schema = dprl.SiteSchema.of(log, gamma=1.0)
        >>> parts = [dprl.site_evidence(half, schema) for half in log.split(0.5, seed=0)]
        >>> dprl.merge_evidence(*parts).groups
        500
    """
    together = getattr(parts[0], "together", None) if parts else None
    if together is not None:  # second counts
        merged: Summed = together(parts[1:])
        return merged
    if not parts or not all(isinstance(part, SiteEvidence) for part in parts):
        raise ParameterError(
            "merge_evidence takes evidence of sites, at least one.",
            do=worded("Make it with {dprl.site_evidence}, or dprl.SiteEvidence.load(path)."),
        )
    return cast("Summed", _merged(cast("Sequence[SiteEvidence]", parts)))


def _merged(parts: Sequence[SiteEvidence]) -> SiteEvidence:
    _refuse_mixed(parts)
    return add_parts(parts, in_order([site for part in parts for site in part.sites]))


def add_parts(parts: Sequence[SiteEvidence], sites: Sequence[Mapping[str, Any]]) -> SiteEvidence:
    """The sums of parts with one schema; `sites` are the facts of their sites."""
    first = parts[0]
    evidence, bins, available = first.evidence, first.bins, first.available
    for other in parts[1:]:
        evidence = evidence.merge(other.evidence)
        if available is not None and other.available is not None:
            available = available & other.available
    if bins is not None:
        bins = add_up(np.concatenate([p.bins for p in parts if p.bins is not None]))
    steps = np.sum([part.steps for part in parts], axis=0)
    return SiteEvidence(first.schema, evidence, steps, bins, available, tuple(sites))


def in_order(sites: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """The facts of sites in an order that does not depend on how they came together."""
    return tuple(
        sorted(sites, key=lambda one: (one["site"], json.dumps(dict(one), sort_keys=True)))
    )


def _refuse_mixed(parts: Sequence[SiteEvidence]) -> None:
    """Refuse parts that cannot be added up, or that hold one site twice."""
    first = parts[0]
    for i, part in enumerate(parts):
        for name, ours in first.schema.to_dict().items():
            theirs = part.schema.to_dict()[name]
            if ours != theirs:
                raise EvidenceError(
                    f"evidence with different {name} cannot be merged.",
                    f"{_names(first)} and {_names(part)} (part {i + 1} of {len(parts)}): "
                    f"{str(ours)[:40]} and {str(theirs)[:40]}",
                    "All sites must count with one schema file, fixed beforehand.",
                )
        if (part.available is None) != (first.available is None):
            raise EvidenceError(
                "some sites say which actions were available, and others do not.",
                f"{_names(first)} and {_names(part)}",
                worded("Name the column ({available=}) at all sites or at none."),
            )
    seen: dict[str, Mapping[str, Any]] = {}
    for site in (site for part in parts for site in part.sites):
        for mark in (f"part {site['part']}", f"log {site['log']}" if "log" in site else ""):
            if mark and mark in seen:
                _refuse_twice(seen[mark], site)
            seen[mark] = site
        name = f"name {site['site']}"
        if site["site"] and name in seen:
            raise EvidenceError(
                f"two files are of one site, {site['site']!r}: who is in both would count twice.",
                f"{seen[name]['groups']:,} and {site['groups']:,} groups",
                worded(
                    "Count a site once. Its days can be kept in a folder, which knows who comes "
                    "again: {how}.",
                    how=either("dprl.evidence.EvidenceFolder", "dprl evidence add"),
                ),
            )
        seen[name] = site
    single = [part for part in parts if len(part.sites) == 1]
    for one, other in itertools.combinations(single, 2):
        if _same_counts(one, other):
            _refuse_twice(one.sites[0], other.sites[0])


def _refuse_twice(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    raise EvidenceError(
        "the evidence of one site is there twice, and would count twice.",
        f"{one['site']!r} with k = {one['k']} and {other['site']!r} with k = {other['k']}",
        "Merge each site's file once, whatever its name and k.",
    )


def _same_counts(one: SiteEvidence, other: SiteEvidence) -> bool:
    """Whether two sites have as many groups and episodes, and every cell alike that both give.

    And chance would do that less than once in a million: small sites may well have a cell alike.
    """
    if any(one.sites[0][name] != other.sites[0][name] for name in ("groups", "episodes")):
        return False
    a, b = (part.evidence.words[FIRST, :, :-1] for part in (one, other))
    whole, theirs = one.evidence.n_first, other.evidence.n_first
    both, seen = (a[..., COUNT] > 0) & (b[..., COUNT] > 0), (whole > 0) & (theirs > 0)
    alike = (a[both] == b[both]).all() and (whole == theirs)[seen].all()
    if not both.any() or not alike:
        return False
    # A number of n is met again in one of about √(4π n) sites. What is left of a whole is not free.
    n, sd = one.evidence.took.n[:, :-1], one.evidence.took.sd[:, :-1]
    with np.errstate(over="ignore", invalid="ignore"):
        unit = np.exp2(one.evidence.bottom[FIRST, :, :-1].astype(float))
        sums = np.nan_to_num(n * sd**2 / unit**2, nan=0.0)[both]
    free = np.sort(whole[seen & (whole < one.groups)])[:-1]
    within = np.sort(np.where(both, n, 0), axis=1)[:, :-1].ravel()
    met = 4 * np.pi * np.concatenate([free, within, np.minimum(sums, 1e300)])
    return bool(np.log(np.maximum(met, 1.0)).sum() / 2 > np.log(1e6))


def _names(part: SiteEvidence) -> str:
    return " and ".join(repr(site["site"]) for site in part.sites[:3])


def sealed(part: SiteEvidence) -> SiteEvidence:
    """The evidence of one site with a mark of what was counted: it cannot be merged twice.

    Whether probabilities of actions were read beside it does not matter for that.
    """
    words, arrays = part.parts
    counted = [{k: v for k, v in site.items() if k not in MAYBE} for site in words["sites"]]
    total = hashlib.sha256(json.dumps(counted, sort_keys=True).encode())
    for name in sorted(arrays):
        total.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    facts = {**part.sites[0], "part": total.hexdigest()}
    return replace(part, sites=(facts,))


def unpacked(
    source: str | os.PathLike[str] | IO[bytes], *kinds: str
) -> tuple[str, str, dict[str, Any], Arrays]:
    """What messages call a file, its kind, and its parts; it must be of one of these kinds."""
    stream, name = _opened(source)
    _, kind, words, arrays = ARCHIVE.unpack(stream, name, LARGEST)
    if kind not in kinds:
        needed = " or ".join(map(repr, kinds))
        raise ARCHIVE.broken(name, f"it holds {kind!r}, and {needed} is needed")
    return name, kind, words, arrays


def _opened(source: str | os.PathLike[str] | IO[bytes]) -> tuple[Path | IO[bytes], str]:
    """A file or a stream that can seek, and what messages call it; "-" is standard input."""
    if isinstance(source, str) and source == "-":
        data = sys.stdin.buffer.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ARCHIVE.broken("standard input", f"it has more than {LARGEST:,} bytes")
        return io.BytesIO(data), "standard input"
    if not isinstance(source, str | os.PathLike):
        return io.BytesIO(source.read(LARGEST + 1)), "the stream"
    path = Path(source)
    if path.is_dir():
        from dprl.evidence.sites.folder import EvidenceFolder

        return io.BytesIO(EvidenceFolder.open(path).evidence(k=1).to_bytes()), path.name
    if not path.is_file():
        raise EvidenceError(f"there is no evidence file {str(path)!r}.", do="Check the path.")
    return path, path.name


def from_parts(
    name: str, words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> SiteEvidence:
    """The evidence of a file's parts, or an EvidenceError."""
    needed = {"words", "top", "bottom", "span", "steps"}
    odd = (needed - set(arrays)) | (set(arrays) - needed - {"bins", "available"})
    sites, episodes = words.get("sites"), words.get("episodes")
    if odd or not isinstance(sites, list) or type(episodes) is not int:
        raise ARCHIVE.broken(name, f"{(*sorted(odd), 'sites')[0]!r} is missing or not as it was")
    schema = SiteSchema.from_dict(words.get("schema"), name)
    shape = (2, len(schema.states), len(schema.actions) + 1)
    shapes = {"words": (*shape, 1 + SUMS + SQUARES), "top": shape, "bottom": shape}
    for part, right in shapes.items():
        if arrays[part].shape != right:
            raise ARCHIVE.broken(name, f"{part!r} has shape {arrays[part].shape}, not {right}")
    exponents = {}
    for part in ("top", "bottom"):
        with np.errstate(invalid="ignore"):  # what is no number is no exponent: told below
            exponents[part] = arrays[part].astype(np.int16)
        if (exponents[part] != arrays[part]).any():
            raise ARCHIVE.broken(name, f"{part!r} holds numbers that are no exponents")
    evidence = Evidence(
        arrays["words"], exponents["top"], exponents["bottom"], arrays["span"], schema.states,
        (*schema.actions, REST), schema.gamma, "first", episodes,
    )  # fmt: skip
    try:
        return SiteEvidence(
            schema, evidence, arrays["steps"], arrays.get("bins"), arrays.get("available"),
            tuple(sites),
        )  # fmt: skip
    except EvidenceError as error:
        raise ARCHIVE.broken(name, error.what) from error
