"""The best shallow tree: exact at depth 2, never worse when deeper, independent of threads."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dprl.planning.policy_tree import Bins, Leaf, Split, best_tree, leaves


def worth(mask, psi, took, kappa, least, margin):
    """The value of a leaf, from its definition."""
    n = mask.sum()
    best = 0.0
    for a in range(psi.shape[1]):
        takers = (took[mask] == a).sum()
        if n == 0 or takers < least or n - takers < least:
            continue
        scores = psi[mask, a]
        spread = max((scores**2).sum() - scores.sum() ** 2 / n, 0)
        best = max(best, scores.sum() - kappa[a] * np.sqrt(spread) - margin * n)
    return best


def sides(bins, mask):
    """Every way to divide a region in two, not dividing it included."""
    yield mask, np.zeros_like(mask)
    for f, cuts in enumerate(bins.cuts):
        code, gone = bins.codes[:, f], len(cuts) + 1
        for j in range(len(cuts)):
            yield mask & (code <= j), mask & (code > j) & (code < gone)
        yield mask & (code == gone), mask & (code < gone)


def brute_force(bins, *rest):
    """The value of the best tree of depth 2, by trying all."""

    def one(mask):
        return max(worth(a, *rest) + worth(b, *rest) for a, b in sides(bins, mask))

    return max(one(a) + one(b) for a, b in sides(bins, np.ones(len(bins.codes), bool)))


def value_of(tree, X, psi, took, kappa, least, margin):
    """The value of a tree, from the regions its leaves describe."""
    total = 0.0
    for path, action in leaves(tree):
        mask = np.ones(len(X), bool)
        for f, cut, low in path:
            x = X[:, f]
            mask &= (np.isnan(x) == low) if np.isnan(cut) else ((x <= cut) if low else (x > cut))
        if action >= 0:
            only = np.full_like(psi, -np.inf)
            only[:, action] = psi[:, action]
            n, takers = mask.sum(), (took[mask] == action).sum()
            assert takers >= least
            assert n - takers >= least
            scores = psi[mask, action]
            spread = max((scores**2).sum() - scores.sum() ** 2 / n, 0)
            total += scores.sum() - kappa[action] * np.sqrt(spread) - margin * n
    return total


def example(seed, N=150, F=3, A=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, F)).round(1)
    if seed % 2:
        X[rng.random((N, F)) < 0.1] = np.nan
    gain = (np.nan_to_num(X[:, [0]]) > 0) * np.array([1, 0, -1]) * 0.5
    psi = rng.normal(size=(N, A)) + gain
    return X, psi, rng.integers(0, A, N).astype(np.int32)


@pytest.mark.parametrize("seed", range(12))
def test_depth_2_is_exact(seed):
    X, psi, took = example(seed)
    kappa, bins = np.array([0.5, 1.0, 0.3]), Bins.of(X, 4)
    tree = best_tree(bins, psi, took, depth=2, kappa=kappa, least=4, margin=0.05)
    rest = (psi, took, kappa, 4, 0.05)
    assert value_of(tree, X, *rest) == pytest.approx(brute_force(bins, *rest), abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_a_deeper_tree_is_worth_no_less(seed):
    X, psi, took = example(seed, N=300)
    kappa, bins = np.array([0.5, 1.0, 0.3]), Bins.of(X, 5)
    values = [
        value_of(
            best_tree(bins, psi, took, depth=d, kappa=kappa, least=5), X, psi, took, kappa, 5, 0.0
        )
        for d in range(5)
    ]
    assert all(b >= a - 1e-9 for a, b in itertools.pairwise(values))


def test_threads_change_nothing():
    X, psi, took = example(3, N=400, F=5)
    bins = Bins.of(X)
    one, two = (
        best_tree(bins, psi, took, depth=3, kappa=np.ones(3), least=5, threads=t) for t in (1, 3)
    )
    assert repr(one) == repr(two)


def test_a_margin_silences_what_is_worth_too_little():
    X, psi, took = example(0)
    quiet = best_tree(Bins.of(X), psi, took, depth=2, kappa=np.ones(3), least=4, margin=50.0)
    assert quiet == Leaf(-1)


def test_it_finds_the_cut_and_the_side():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(2_000, 3))
    psi = np.where(x[:, [1]] > 0.5, 1.0, -1.0) * np.array([1.0, -1.0]) + rng.normal(size=(2_000, 2))
    took = rng.integers(0, 2, 2_000).astype(np.int32)
    tree = best_tree(Bins.of(x), psi, took, depth=1, kappa=np.ones(2), least=20)
    assert isinstance(tree, Split)
    assert tree.feature == 1
    assert abs(tree.cut - 0.5) < 0.06
    assert (tree.low, tree.high) == (Leaf(1), Leaf(0))


def test_bins_keep_their_meaning():
    x = np.array([[1.0], [2.0], [2.0], [3.0], [np.nan], [10.0]])
    bins = Bins.of(x, 3)
    for code, value in zip(bins.codes[:, 0], x[:, 0], strict=True):
        cuts = bins.cuts[0]
        if np.isnan(value):
            assert code == len(cuts) + 1
        else:
            assert code == (value > cuts).sum()
    assert (bins.cuts[0] < 10.0).all()


def test_a_constant_feature_is_never_cut():
    X, psi, took = example(2)
    X[:, 0] = 7.0
    tree = best_tree(Bins.of(X), psi, took, depth=2, kappa=np.ones(3), least=4)
    assert all(f != 0 for path, _ in leaves(tree) for f, _, _ in path)
