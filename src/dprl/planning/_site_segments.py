"""Segments between decision points as sums that sites can give away (see `_site_plan`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.exact import COUNT, NOTHING, SQUARES, SUMS, digits_of, window_of
from dprl.evidence._evidence import FIRST, Evidence
from dprl.evidence._site_evidence import SiteEvidence
from dprl.evidence._site_rules import EMPTY
from dprl.evidence._site_schema import SiteSchema
from dprl.planning.semi_mdp import discounts

__all__ = ["add_ends", "bits_of", "hidden_ends", "no_rewards", "summed"]

Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


def bits_of(evidence: SiteEvidence, pairs: Bools) -> int:
    """How fine γ^k can be counted, so that no sum of all sites is too large."""
    return discounts(1.0, 0, evidence.evidence.n_pair[:, :-1][pairs])[1]


def hidden_ends(row: Ints, end: Ints, n_rows: int, k: int) -> Bools:
    """Which segments must not say where they end; row and end (n,), -1 for END."""
    hidden = np.zeros(len(row), bool)
    order = np.argsort(row, kind="stable")
    begin = np.searchsorted(row[order], np.arange(n_rows + 1))
    for r in range(n_rows):
        at = order[begin[r] : begin[r + 1]]
        ends, place, n = np.unique(end[at], return_inverse=True, return_counts=True)
        out = ends < 0
        away = int(n[out].sum())
        for i in np.argsort(n, kind="stable"):
            if not out[i] and (n[i] < k or 0 < away < k):
                out[i] = True
                away += int(n[i])
        hidden[at] = out[place] & (end[at] >= 0)
    return hidden


def summed(schema: SiteSchema, code: Ints, begin: Ints, rewards: Floats, episodes: int) -> Evidence:
    """The exact sums of rewards (n,), those of begin[i]:begin[i + 1] to the pair code[i]."""
    sums = no_rewards(schema)
    A = len(schema.actions)
    words, top, bottom = sums.words.copy(), sums.top.copy(), sums.bottom.copy()
    for i, pair in enumerate(code.tolist()):
        values = rewards[begin[i] : begin[i + 1]]
        at = (FIRST, pair // A, pair % A)
        words[at][COUNT] = len(values)
        window = window_of(values, SUMS)._replace(sums=SUMS, squares=SQUARES)
        if window.top != NOTHING:
            words[at][1:] = digits_of(values, window).sum(axis=0)
            top[at], bottom[at] = window.top, window.bottom
    return replace(sums, words=words, top=top, bottom=bottom, n_episodes=episodes)


def no_rewards(schema: SiteSchema) -> Evidence:
    """Empty sums over the schema's pairs."""
    shape = (2, len(schema.states), len(schema.actions))
    return Evidence(
        np.zeros((*shape, 1 + SUMS + SQUARES), np.int64), np.full(shape, NOTHING, np.int16),
        np.full(shape, EMPTY, np.int16), np.full((shape[1], 2), np.nan), schema.states,
        schema.actions, schema.gamma, "first", 0,
    )  # fmt: skip


def add_ends(rows: Ints) -> Ints:
    """Rows of ends (n, 4), sorted, with equal pairs and ends added up."""
    keys, place = np.unique(rows[:, :2], axis=0, return_inverse=True)
    total = np.zeros((len(keys), 2), np.int64)
    np.add.at(total, place.ravel(), rows[:, 2:])
    return np.column_stack([keys, total]).reshape(-1, 4).astype(np.int64)
