"""The bootstrap of the estimates: the numbers it always gave, whatever shares a pass or a thread."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from test_estimators import random_problem

import dprl
from dprl.evaluation import _estimators
from dprl.evaluation._estimators import importance_weights
from dprl.evaluation._resampling import LANES

WORLDS = {"care": dprl.envs.care_pathway, "rooms": dprl.envs.rooms}

# value, and the ends of the interval of the difference, as added up draw by draw and step by step;
# in rooms nobody follows every suggestion, so there is no interval
NUMBERS = [
    ("care", "WIS", 0.9552483474449458, 0.05079286729022293, 0.13506007773566048),
    ("care", "WPDIS", 1.0490886904875554, 0.06544354276948543, 0.2753655191134265),
    ("care", "DR", 0.955522010220348, 0.046529673272999415, 0.13409406775278063),
    ("care", "WDR", 0.9543098255906535, 0.04587944531616725, 0.13375716196237117),
    ("rooms", "WIS", np.nan, np.nan, np.nan),
    ("rooms", "WPDIS", np.nan, np.nan, np.nan),
    ("rooms", "DR", 0.7159565245886038, np.nan, np.nan),
    ("rooms", "WDR", np.nan, np.nan, np.nan),
]


@functools.cache
def evaluation(world):
    mdp = WORLDS[world]()
    train, test = mdp.sample(800, seed=0), mdp.sample(301, seed=1)
    test = replace(test, group=(np.arange(301) // 3).astype(np.int32), groups=tuple(range(101)))
    policy = dprl.DPRLDiscrete(n_min=20, gamma=mdp.gamma, cut="terminal").fit(train)
    return dprl.evaluate(policy, test, draws=100)


@pytest.mark.parametrize(("world", "name", "value", "low", "high"), NUMBERS)
def test_numbers_of_labels_stay(world, name, value, low, high):
    row = evaluation(world)[name]
    got = [row["value"], row["difference_low"], row["difference_high"]]
    assert got == pytest.approx([value, low, high], rel=1e-11, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("seed", range(4))
def test_a_draw_does_not_depend_on_what_shares_its_pass(seed, monkeypatch):
    weighted = importance_weights(*random_problem(seed))
    counts = np.random.default_rng(seed).integers(0, 3, (3 * LANES + 5, weighted.n_groups))
    counts = counts.astype(float)
    counts[:, 0] = 1
    together = weighted.estimates(counts)
    alone = np.concatenate([weighted.estimates(counts[i : i + 1]) for i in range(len(counts))])
    assert np.array_equal(together, alone, equal_nan=True)
    monkeypatch.setattr(
        _estimators, "in_parts", lambda function, ranges: [function(*r) for r in ranges[::-1]]
    )
    assert np.array_equal(together, weighted.estimates(counts), equal_nan=True)


def test_the_log_is_added_up_once(care, monkeypatch):
    """However many draws there are, steps are looked at one by one only before the first."""
    _, policy, log = care
    calls = []
    add_up = _estimators.sums_by_group
    monkeypatch.setattr(
        _estimators, "sums_by_group", lambda *args: calls.append(1) or add_up(*args)
    )
    dprl.evaluate(policy, log, draws=300)
    assert len(calls) == 1
