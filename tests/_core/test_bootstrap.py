"""One bootstrap: a seed means the same everywhere, however many draws are held at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dprl
from dprl._core import bootstrap

SRC = Path(dprl.__file__).parent


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
@pytest.mark.parametrize("room", [1, 15, 1 << 24])
@pytest.mark.parametrize("at_once", [3, 300, 1 << 16])
def test_counts_are_counts_of_picks(n, room, at_once, monkeypatch):
    monkeypatch.setattr(bootstrap, "ROOM", room)
    monkeypatch.setattr(bootstrap, "AT_ONCE", at_once)
    found = np.concatenate([some.copy() for some in bootstrap.counts(n, 33, seed=5)])
    chosen = bootstrap.picks(n, 33, seed=5)
    assert found.shape == chosen.shape == (33, n)
    assert np.array_equal(found, [np.bincount(row, minlength=n) for row in chosen])


def test_the_stream_of_random_numbers():
    """Results that were published with a seed stay what they are."""
    rng = np.random.default_rng(3)
    one_by_one = [rng.integers(9, size=9) for _ in range(5)]
    assert np.array_equal(bootstrap.picks(9, 5, seed=3), one_by_one)
    assert bootstrap.picks(4, 2, seed=0).tolist() == [[3, 2, 2, 1], [1, 0, 0, 0]]


def test_strata_keep_to_themselves():
    strata = [np.array([0, 3, 4]), np.array([1, 2])]
    chosen = bootstrap.picks(5, 50, 1, strata)
    for members in strata:
        assert np.isin(chosen[:, members], members).all()
    rng = np.random.default_rng(1)
    for members in strata:
        expected = members[rng.integers(len(members), size=(50, len(members)))]
        assert np.array_equal(chosen[:, members], expected)


def test_percentiles():
    assert bootstrap.percentiles(np.arange(101.0), 0.9) == pytest.approx((5.0, 95.0))


def test_nobody_else_draws_groups():
    """Resampling with replacement is written in one module."""
    others = [
        path.name
        for folder in ("certificate", "evaluation", "policies", "apps")
        for path in (SRC / folder).rglob("*.py")
        if ".integers(" in path.read_text()
    ]
    assert not others
