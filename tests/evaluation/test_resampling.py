"""The bootstrap of the estimates: the numbers it always gave, whatever shares a pass or a thread."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from test_estimators import random_problem

import dprl
from dprl._core import bootstrap
from dprl.envs.hard import WORLDS as HARD
from dprl.evaluation import _evaluate
from dprl.evaluation import bootstrap as resampling
from dprl.evaluation.bootstrap import LANES, Bootstrap, ends_of
from dprl.evaluation.estimators import ESTIMATORS, RETURN, importance_weights
from dprl_studies.paper.claims import target

WORLDS = {"care": dprl.envs.care_pathway, "rooms": dprl.envs.rooms}

# value, and the ends of the interval of the difference, as added up draw by draw and step by step;
# in rooms nobody follows every suggestion, so there is no interval; on the pathway the effective
# sample is too small for one by weights alone
NUMBERS = [
    ("care", "WIS", 0.9552483474449458, np.nan, np.nan),
    ("care", "WPDIS", 1.0490886904875554, np.nan, np.nan),
    ("care", "DR", 0.955522010220348, 0.03311619213470737, 0.15699759574784938),
    ("care", "WDR", 0.9543098255906535, 0.03534457310517324, 0.1523448455179942),
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


def test_an_interval_is_students_at_the_effective_sample_size():
    draws = np.random.default_rng(0).normal(size=400)
    low, high = ends_of(2.0, np.append(draws, np.nan), 0.9, 12.5)
    half = stats.t(11.5).ppf(0.95) * draws.std() * np.sqrt(12.5 / 11.5)
    assert (low, high) == pytest.approx((2 - half, 2 + half))
    assert np.isnan(ends_of(2.0, draws, 0.9, 1.9)).all()  # of less than two nothing is known
    assert np.isnan(ends_of(2.0, draws[:1], 0.9, 50.0)).all()
    assert np.isnan(ends_of(2.0, np.append(draws, [np.nan] * 40), 0.9, 50.0)).all()


def numbers(weighted, counts):
    """The estimates and the mean return under these counts, (B, 8)."""
    return Bootstrap(weighted).estimates(counts).numbers


@pytest.mark.parametrize("seed", range(4))
def test_a_draw_does_not_depend_on_what_shares_its_pass(seed, monkeypatch):
    weighted = importance_weights(*random_problem(seed))
    counts = np.random.default_rng(seed).integers(0, 3, (3 * LANES + 5, weighted.n_groups))
    counts = counts.astype(float)
    counts[:, 0] = 1
    together = numbers(weighted, counts)
    alone = np.concatenate([numbers(weighted, counts[i : i + 1]) for i in range(len(counts))])
    assert np.array_equal(together, alone, equal_nan=True)
    monkeypatch.setattr(
        resampling, "in_parts", lambda function, ranges: [function(*r) for r in ranges[::-1]]
    )
    assert np.array_equal(together, numbers(weighted, counts), equal_nan=True)


def draw_by_draw(weighted, counts):
    """The estimates of each draw, added up group by group and step by step."""
    starts, group, gamma = weighted.starts, weighted.group, weighted.gamma
    longest = int(np.diff(starts).max())
    rows = []
    for c in counts:
        n, W, A, B, C = 0.0, *np.zeros((4, longest))
        sums = dict.fromkeys(weighted.alone, 0.0)
        for e in range(len(starts) - 1):
            weight, before = float(c[group[e]]), 1.0
            n += weight
            sums = {name: x + weight * weighted.alone[name][e] for name, x in sums.items()}
            for t in range(longest):
                i = min(starts[e] + t, starts[e + 1] - 1)
                W[t] += weight * weighted.w[i]
                if starts[e] + t < starts[e + 1]:
                    w, r, Q, V = (getattr(weighted, x)[i] for x in ("w", "reward", "Q", "V"))
                    A[t] += weight * gamma**t * w * r
                    B[t] += weight * gamma**t * w * (r - Q)
                    C[t] += weight * gamma**t * before * V
                    before = w
        row = {name: x / n for name, x in sums.items()}
        wdr = sum(b / x for b, x in zip(B, W, strict=True) if x > 0)
        wdr += sum(v / x for v, x in zip(C, [n, *W[:-1]], strict=True) if x > 0)
        row["WIS"] = sums["IS"] / W[-1] if W[-1] else np.nan
        row["WPDIS"] = sum(a / x for a, x in zip(A, W, strict=True) if x > 0) if W[-1] else np.nan
        row["WDR"] = wdr if W[-1] else np.nan
        rows.append([row[name] for name in (*ESTIMATORS, RETURN)])
    return np.array(rows)


@pytest.mark.parametrize("seed", range(6))
def test_a_product_of_matrices_is_what_adding_up_draw_by_draw_gives(seed):
    weighted = importance_weights(*random_problem(seed))
    counts = np.random.default_rng(seed).integers(0, 3, (LANES + 3, weighted.n_groups))
    counts[:, 0] = 1
    slow = draw_by_draw(weighted, counts)
    for kind in (np.float64, np.uint16):
        assert numbers(weighted, counts.astype(kind)) == pytest.approx(slow, rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("room", [1, 50])
def test_groups_of_all_lengths_and_tables_of_all_sizes(room, monkeypatch):
    """Long and short groups in any order, and tables of a single group."""
    rng = np.random.default_rng(3)
    lengths = np.concatenate([rng.integers(1, 60, 40), [300, 1, 1]])
    starts = np.concatenate(([0], np.cumsum(lengths)))
    n, group = int(starts[-1]), rng.permutation(np.repeat(np.arange(22), 2)[:43]).astype(np.int32)
    speaks = rng.random(n) < 0.3
    ratio = np.where(speaks, rng.uniform(0, 2, n), 1.0)
    Q = rng.normal(size=n)
    V = np.where(speaks, rng.normal(size=n), Q)
    monkeypatch.setattr(resampling, "ROOM", room)
    weighted = importance_weights(starts, group, rng.normal(size=n), 0.9, ratio, speaks, Q, V)
    counts = rng.integers(0, 3, (4, 22)).astype(float)
    slow = draw_by_draw(weighted, counts)
    assert numbers(weighted, counts) == pytest.approx(slow, rel=1e-11, abs=1e-12)


def test_a_policy_that_never_speaks_is_worth_the_mean_return_to_the_last_bit():
    rng = np.random.default_rng(0)
    starts = np.concatenate(([0], np.cumsum(rng.integers(1, 30, 50))))
    n = int(starts[-1])
    silent, Q = np.zeros(n, bool), rng.normal(size=n)
    weighted = importance_weights(
        starts, np.arange(50, dtype=np.int32), rng.normal(size=n), 0.97, np.ones(n), silent, Q, Q
    )
    for part in Bootstrap(weighted).draws(70, 0):
        assert (part.numbers == part.of(RETURN)[:, None]).all()


def test_counts_are_the_same_in_any_type_and_number_at_a_time():
    for n in (2, 7, 1000):
        plain = np.concatenate([*bootstrap.counts(n, 50, 3)])
        small = np.concatenate([*bootstrap.counts(n, 50, 3, kind=np.uint16, together=64)])
        picked = bootstrap.picks(n, 50, 3)
        assert small.dtype == np.uint16
        assert np.array_equal(plain, small)
        assert np.array_equal(plain, [np.bincount(row, minlength=n) for row in picked])


def test_the_log_is_added_up_once(care, monkeypatch):
    """However many draws there are, steps are looked at one by one only before the first."""
    _, policy, log = care
    calls = []
    add_up = resampling.sums_by_group
    monkeypatch.setattr(
        resampling, "sums_by_group", lambda of: calls.append(of.n_groups) or add_up(of)
    )
    dprl.evaluate(policy, log, draws=300)
    assert calls.count(len(log.groups)) == 1  # and parts of it once each


def test_intervals_show_the_error_of_the_models_in_them(monkeypatch):
    """Four decisions, counts, few followers: in 200 logs each .88 and .92 of them held the truth."""
    wider = []
    for seed in range(4):
        world = HARD["null labels strong, 500 x 4"].make()
        log, policy = world.sample(500, seed=seed), target(world)
        shown = []
        for most in (0, 50_000):
            monkeypatch.setattr(_evaluate, "MOST_STEPS", most)
            rows = dprl.evaluate(policy, log, draws=100, seed=seed).rows
            shown.append({n: r["difference_high"] - r["difference_low"] for n, r in rows.items()})
        without, widths = shown
        assert widths["WPDIS"] >= without["WPDIS"]  # it holds the interval of WDR
        assert widths["WDR"] >= without["WDR"]
        wider.append(widths["WDR"] / without["WDR"])
    assert np.mean(wider) > 1.05
