"""ICU-Sepsis: the package's numbers come out, and what happens without the package."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

import dprl
from dprl import envs
from dprl.logs.returns import returns

ICU = sys.modules["dprl.envs.icu_sepsis"]
needs_package = pytest.mark.skipif(
    find_spec("icu_sepsis") is None,
    reason="icu-sepsis is not installed (pip install 'dprl[bench]')",
)


@pytest.fixture(scope="module")
def ward():
    return envs.icu_sepsis()


@needs_package
def test_shape(ward):
    assert ward.states == tuple(range(716))
    assert ward.actions == tuple(range(25))
    assert ward.gamma == 1
    ends = np.flatnonzero(ward.P.sum(axis=1).reshape(716, 25).max(axis=1) == 0)
    assert ends.tolist() == [713, 714, 715]
    assert ward.P.tocsc()[:, [715]].nnz == 0
    assert np.flatnonzero(ward.R.any(axis=1)).tolist() == [ward.notes["survival"]]
    assert ward.start[713:].sum() == 0


@needs_package
def test_constants(ward):
    assert ward.value() == pytest.approx(0.7818, abs=5e-5)
    assert ward.value(np.full((716, 25), 1 / 25)) == pytest.approx(0.7801, abs=5e-5)
    assert ward.start @ ward.optimal[0] == pytest.approx(0.8751, abs=5e-5)


@needs_package
def test_lengths_are_the_published_ones_and_the_outcome(ward):
    """9.22, 9.45 and 10.99 steps in the package's own table, from simulation."""
    one = np.ones((716, 25))
    steps = replace(ward, low=one, high=one)
    best = np.eye(25)[ward.optimal[1]]
    for policy, published in ((None, 9.22), (one / 25, 9.45), (best, 10.99)):
        assert steps.value(policy) - 1 == pytest.approx(published, abs=0.03)


@needs_package
def test_samples_have_the_exact_value(ward):
    log = ward.sample(2000, seed=1)
    G = returns(log, 1.0)[log.starts[:-1]]
    assert set(G) == {0.0, 1.0}
    assert not len(log.cut_episodes)
    last = log.codes()[log.starts[1:] - 1]
    assert ((last == 714) == (G == 1)).all()
    assert set(last) == {713, 714}
    assert G.mean() == pytest.approx(ward.value(), abs=4 * G.std() / np.sqrt(len(G)))


@needs_package
def test_outcomes_are_no_decisions(ward):
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(ward.sample(2000, seed=1))
    assert policy.act([713, 714, 715]) == [dprl.DEFER] * 3


@needs_package
def test_the_package_itself_is_not_imported(ward):
    assert "icu_sepsis" not in sys.modules
    assert "gym" not in sys.modules


def test_without_the_package(monkeypatch):
    monkeypatch.setattr(ICU, "find_spec", lambda name: None)
    with pytest.raises(dprl.ParameterError) as caught:
        envs.icu_sepsis()
    what, where, do = str(caught.value).splitlines()
    assert "which is not installed" in what
    assert "dynamics.npz" in where
    assert "pip install 'dprl[bench]'" in do


def test_a_package_with_other_numbers(monkeypatch, tmp_path):
    arrays = {"tx_mat": np.zeros((2, 1, 2)), "r_mat": np.zeros((2, 1, 2)), "d_0": np.array([1.0, 0]),
              "expert_policy": np.ones((2, 1))}  # fmt: skip
    path = tmp_path / "dynamics.npz"
    np.savez(path, **arrays)
    monkeypatch.setattr(ICU, "_data_file", lambda: path)
    with pytest.raises(dprl.ParameterError, match="icu-sepsis holds 2 states"):
        envs.icu_sepsis()
