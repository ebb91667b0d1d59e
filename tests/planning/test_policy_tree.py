"""The best shallow tree: exact at depth 2, never worse when deeper, independent of threads."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dprl
from dprl.planning.tree import Bins, Leaf, Split, best_tree, leaves


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


# -- categories ------------------------------------------------------------------------------


def holds(X, step):
    """Which steps go this way, from the words of `leaves`."""
    f, cut, low = step
    x = X[:, f]
    if isinstance(cut, tuple):
        return ~np.isnan(x) & (np.isin(x, cut) == low)
    return (np.isnan(x) == low) if np.isnan(cut) else ((x <= cut) if low else (x > cut))


def total_of(tree, X, *rest):
    """The value of a tree, from the regions that its leaves describe; and that they are apart."""
    total, times = 0.0, np.zeros(len(X), int)
    for path, action in leaves(tree):
        mask = np.all([np.ones(len(X), bool), *(holds(X, step) for step in path)], axis=0)
        times += mask
        psi, took, kappa, least, margin = rest
        if action >= 0:
            alone = np.where(np.arange(psi.shape[1]) == action, psi, -1e9)
            total += worth(mask, alone, took, kappa, least, margin)
    assert times.max(initial=0) <= 1
    return total


def labelled(seed, n=300, L=6, A=2, gone=0.1):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=n), rng.integers(L, size=n).astype(float)])
    X[rng.random(X.shape) < gone] = np.nan
    effect = rng.normal(size=(L, A))
    psi = rng.normal(size=(n, A))
    psi += np.where(np.isnan(X[:, 1:]), 0.3, effect[np.nan_to_num(X[:, 1]).astype(int)])
    took = rng.integers(A, size=n).astype(np.int32)
    return X, psi, took


@pytest.mark.parametrize("seed", range(6))
def test_the_best_set_of_labels_for_one_action_is_exact(seed):
    """One action against deferring, nothing taken off: no set of labels brings more."""
    X, psi, took = labelled(seed, A=1, gone=0.0)
    X, took = X[:, 1:], np.where(np.arange(len(took)) % 2, 0, 1).astype(np.int32)
    levels, zero = (tuple("abcdef"),), np.zeros(1)
    tree = best_tree(
        Bins.of(X, 16, levels=levels, psi=psi), psi, took, depth=1, kappa=zero, least=0
    )
    brute = max(
        worth(np.isin(X[:, 0], some), psi, took, zero, 0, 0.0)
        for k in range(7)
        for some in itertools.combinations(range(6), k)
    )
    assert total_of(tree, X, psi, took, zero, 0, 0.0) == pytest.approx(brute)


@pytest.mark.parametrize("seed", range(4))
def test_two_opposite_actions_are_exact(seed):
    """Where one action is good as far as the other is bad, every division of the labels is tried."""
    X, psi, took = labelled(seed, gone=0.0)
    X, psi = X[:, 1:], np.column_stack([psi[:, 0], -psi[:, 0]])
    levels, zero = (tuple("abcdef"),), np.zeros(2)
    tree = best_tree(
        Bins.of(X, 16, levels=levels, psi=psi), psi, took, depth=1, kappa=zero, least=1
    )
    brute = max(
        worth(inside, psi, took, zero, 1, 0.0) + worth(~inside, psi, took, zero, 1, 0.0)
        for k in range(7)
        for some in itertools.combinations(range(6), k)
        for inside in [np.isin(X[:, 0], some)]
    )
    assert total_of(tree, X, psi, took, zero, 1, 0.0) == pytest.approx(brute)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("depth", [1, 2])
def test_with_labels_and_missing_values_it_is_exact_over_its_cuts(seed, depth):
    X, psi, took = labelled(seed, A=3)
    levels, kappa = (None, tuple("abcdef")), np.full(3, 1.2)
    rest = (psi, took, kappa, 5, 0.05)
    bins = Bins.of(X, 4, levels=levels, psi=psi)
    tree = best_tree(bins, psi, took, depth=depth, kappa=kappa, least=5, margin=0.05)
    whole = np.ones(len(X), bool)
    brute = brute_force(bins, *rest) if depth == 2 else max(
        worth(a, *rest) + worth(b, *rest) for a, b in sides(bins, whole)
    )  # fmt: skip
    assert total_of(tree, X, *rest) == pytest.approx(brute)
    assert {step[0] for path, _ in leaves(tree) for step in path} <= {0, 1}


def test_deeper_trees_take_labels_too():
    X, psi, took = labelled(3, n=600, A=2)
    levels, kappa = (None, tuple("abcdef")), np.ones(2)
    values = []
    for depth in (1, 2, 3):
        bins = Bins.of(X, 4, levels=levels, psi=psi)
        tree = best_tree(bins, psi, took, depth=depth, kappa=kappa, least=5)
        values.append(total_of(tree, X, psi, took, kappa, 5, 0.0))
    assert values == sorted(values)


def test_columns_of_labels_are_what_they_say():
    X, psi, _ = labelled(1, L=40, A=3)
    bins = Bins.of(X, 5, levels=(None, tuple(f"{i:02}" for i in range(40))), psi=psi)
    assert bins.source[0] == 0
    assert set(bins.source[1:]) == {1}
    for column, sets in enumerate(bins.sets):
        code, size = bins.codes[:, column], len(bins.cuts[column]) + 1
        assert (code == size).sum() == np.isnan(X[:, bins.source[column]]).sum()
        assert size <= 6
        for j, labels in enumerate(sets or ()):
            np.testing.assert_array_equal(np.isin(X[:, 1], labels), code <= j)


def test_missing_is_a_side_of_its_own_end_to_end():
    rng = np.random.default_rng(0)
    for levels in ((), (("a", "b"),)):
        X = rng.integers(2, size=(400, 1)).astype(float)
        X[:200] = np.nan
        took = np.tile(np.array([0, 1], np.int32), 200)
        psi = np.column_stack([np.r_[np.full(200, 1.0), np.full(200, -1.0)], np.zeros(400)])
        bins = Bins.of(X, levels=levels, psi=psi)
        tree = best_tree(bins, psi, took, depth=1, kappa=np.zeros(2), least=5)
        (path, action), (_, other) = leaves(tree)
        assert np.isnan(path[0][1])
        assert (path[0][2], action, other) == (True, 0, -1)


def test_one_label_alone_has_a_column():
    X = np.array([[0.0], [np.nan], [0.0]])
    bins = Bins.of(X, levels=(("a",),), psi=np.ones((3, 1)))
    assert bins.codes[:, 0].tolist() == [0, 1, 0]
    assert bins.cuts[0].size == 0


def test_labels_without_scores_are_refused():
    with pytest.raises(dprl.ParameterError, match="psi"):
        Bins.of(np.zeros((3, 1)), levels=(("a",),))
