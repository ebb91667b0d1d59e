"""Evaluation on logs with categories and gaps: what it says against what is true."""

from __future__ import annotations

import numpy as np
import pytest

import dprl
from dprl.evaluation.values import in_numbers

WARDS = ("east", "north", "south", "west")
"""In the north the drug helps, elsewhere it does not; who got it depends on ward and lactate."""


def ward_log(seed, n=600):
    """One decision a patient; lactate is missing where nobody was worried."""
    rng = np.random.default_rng(seed)
    ward = rng.integers(4, size=n)
    worried = rng.random(n) < 0.6
    lactate = np.where(worried, rng.gamma(4, 0.5, n), np.nan)
    chance = np.where(ward == 1, 0.35, 0.6) + np.where(worried, 0.15, -0.15)
    drug = rng.random(n) < chance
    mean = 0.5 + 0.4 * (drug & (ward == 1)) - 0.3 * worried - 0.2 * (drug & (ward != 1))
    log = dprl.from_arrays(
        episode=[f"{seed}-{i}" for i in range(n)],
        state=np.array([[WARDS[w], None if np.isnan(x) else x] for w, x in zip(ward, lactate, strict=True)], object),
        action=np.where(drug, "drug", "wait"), reward=mean + rng.normal(0, 0.3, n),
        feature_names=["ward", "lactate"],
    )  # fmt: skip
    return log, 0.25 * (1 - (0.35 + 0.15 * 0.2)) * 0.4  # drug for the north: those who waited gain


def north():
    """The policy: the drug in the north."""
    rule = {
        "conditions": [{"feature": "ward", "kind": "in", "labels": ["north"]}],
        "suggested": "drug",
    }
    return dprl.RulePolicy(
        states=(), actions=("drug", "wait"), parameters={"gamma": 1.0}, provenance={},
        feature_names=("ward", "lactate"), levels=(WARDS, None), rules=(rule,),
    )  # fmt: skip


def test_labels_become_columns_and_gaps_are_marked():
    log, _ = ward_log(0, n=60)
    numbers = in_numbers(log)
    assert numbers.feature_names == (
        "0 ward=east", "1 ward=north", "2 ward=south", "3 ward=west", "4 lactate",
        "5 lactate missing",
    )  # fmt: skip
    x, gone = np.asarray(numbers.features), np.isnan(np.asarray(log.features)[:, 1])
    assert (x[:, :4].sum(axis=1) == 1).all()
    np.testing.assert_array_equal(x[:, :4].argmax(axis=1), np.asarray(log.features)[:, 0])
    np.testing.assert_array_equal(x[:, 5], gone)
    np.testing.assert_array_equal(x[gone, 4], np.median(x[~gone, 4]))
    assert not numbers.missing.any()
    assert in_numbers(numbers) is numbers
    labels = dprl.envs.care_pathway().sample(5, seed=0)
    assert in_numbers(labels) is labels


def covers(seed, estimator="DR"):
    log, truth = ward_log(seed)
    row = dprl.evaluate(north(), log, draws=100)[estimator]
    return row["difference_low"] <= truth <= row["difference_high"], row["difference"] - truth


@pytest.mark.slow
def test_intervals_cover_the_truth():
    results = [covers(seed) for seed in range(2, 8)]
    assert sum(hit for hit, _ in results) >= 4
    assert abs(np.mean([error for _, error in results])) < 0.025
