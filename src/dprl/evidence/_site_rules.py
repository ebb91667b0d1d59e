"""What the parts of a site's evidence must be to belong together; a file may hold anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.exact import COUNT, LIMIT, NOTHING
from dprl.errors import EvidenceError
from dprl.evidence._evidence import FIRST
from dprl.evidence._site_bins import LAST

if TYPE_CHECKING:
    from dprl.evidence._site_evidence import SiteEvidence

__all__ = ["CHANCES", "EMPTY", "FACTS", "check_parts", "check_sums", "refuse_parts"]

EMPTY = 30_000
"""`bottom` of a sum without summands."""
FACTS: dict[str, type] = {
    "site": str, "part": str, "k": int, "episodes": int, "groups": int, "cut_episodes": int,
    "pairs": int, "later": int, "states": int, "grouped": bool, "timed": bool,
}  # fmt: skip
"""What is kept about every site, and its type."""
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


def check_sums(words: NDArray[np.int64], top: NDArray[Any], bottom: NDArray[Any]) -> None:
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
        if not isinstance(site, Mapping) or set(site) - {"chances"} != {*FACTS, "visits"}:
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
        if site["k"] < 1 or site["groups"] > site["episodes"]:
            refuse_parts("more groups than episodes, or a k below 1")
    marks = [site["part"] for site in of.sites]
    if len(set(marks)) < len(marks):
        refuse_parts("one site twice")
    groups = sum(site["groups"] for site in of.sites)
    if (of.evidence.words[FIRST, ..., COUNT].sum(axis=1) > groups).any():
        refuse_parts("more first visits of a state than groups")


def _check_bins(bins: NDArray[np.int64], first: NDArray[np.int64]) -> None:
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
