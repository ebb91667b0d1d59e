"""A torch device gives the words of the engine to the last bit, whatever the data and the radius."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_neighbors import CASES, OFFSETS, SPREADS, A, hard, inside, points

import dprl
from dprl.envs import PointMass
from dprl.evidence.neighbors import Engine, Metric, Points, engine
from dprl.evidence.neighbors import device as _device
from dprl.evidence.neighbors.device import Index
from dprl.evidence.neighbors.engine import Remembering
from dprl.evidence.neighbors.metric import Sketch, ask

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed (dprl[deep])")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """torch's threads wait for each other in a loop, which is slow where other tests run."""
    if HAS_TORCH:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(before)
    else:
        yield


def build(here, monkeypatch, *, chunk=None, room=None):
    """The engine, and one that answers every question by torch."""
    monkeypatch.setattr(engine, "WORTH_A_DEVICE", 0)
    if chunk:
        monkeypatch.setattr(_device, "CHUNK", chunk)
    if room:
        monkeypatch.setattr(_device, "ROOM_CPU", room)
    return Engine.build(here, A, "tree"), Engine.build(here, A, "tree", device="cpu")


def same(tree, device, queries, radius, leave_out):
    for visits in ("first", "all"):
        for left in (None, leave_out):
            one, two = (
                built.evidence(queries, radius, visits=visits, leave_out=left, threads=1)
                for built in (tree, device)
            )
            assert np.array_equal(one.words, two.words)
            assert np.array_equal(one.span, two.span, equal_nan=True)
            assert np.array_equal(one.top, two.top)
            assert np.array_equal(one.bottom, two.bottom)
    assert np.array_equal(tree.count(queries, radius), device.count(queries, radius))


@needs_torch
@pytest.mark.parametrize("name", CASES)
def test_words_are_those_of_the_tree(name, monkeypatch):
    z, radii = CASES[name]
    rng = np.random.default_rng(1)
    near = z[rng.integers(len(z), size=25)]
    other = z.mean(axis=0) + z.std(axis=0) * rng.normal(size=(10, z.shape[1]))
    queries = np.clip(np.concatenate([near, near * (1 + 1e-9), other]), -1e18, 1e18)
    here = points(z)
    leave_out = rng.choice([-1, *here.episode], len(queries))
    tree, device = build(here, monkeypatch)
    for radius in radii:
        same(tree, device, queries, radius, leave_out)


@needs_torch
@given(st.integers(0, 2**32), st.integers(1, 8), OFFSETS, SPREADS, st.booleans())
def test_near_ties_far_from_the_origin(seed, d, offset, spread, ragged):
    rng = np.random.default_rng(seed)
    z = np.repeat(hard(rng, d, offset, spread, ragged), 4, axis=0)
    queries = z[rng.integers(len(z), size=6)]
    gap = float(np.sqrt(((z[rng.integers(len(z))] - queries[0]) ** 2).sum()))
    here = points(z, seed)
    with pytest.MonkeyPatch.context() as monkeypatch:
        tree, device = build(here, monkeypatch)
        for radius in (gap, np.nextafter(gap, 0), np.nextafter(gap, np.inf), 1e-3 * gap, 1e-200):
            same(tree, device, queries, float(radius), here.episode[:6])


@needs_torch
@given(st.integers(0, 2**32), st.integers(1, 9), OFFSETS, SPREADS, st.booleans())
def test_the_filter_is_never_sure_of_what_the_rule_denies(seed, d, offset, spread, ragged):
    """Both thresholds against the rule, pair by pair, without the recheck that would hide a slip."""
    rng = np.random.default_rng(seed)
    z = hard(rng, d, offset, spread, ragged)
    index = Index.of(z, Sketch.of(z), "cpu")
    queries = np.clip(
        np.concatenate([z[:8], z[:4] + 3 * spread * rng.normal(size=(4, d))]), -1e18, 1e18
    )
    gap = float(np.sqrt(((z[rng.integers(len(z))] - queries[0]) ** 2).sum()))
    for radius in (gap, np.nextafter(gap, 0), (1 + 1e-7) * gap, 1e-3 * gap, 1e-150, 1e200):
        asked = ask(index.sketch, queries, float(radius))
        w, slack = index._place(asked.w), index.torch.tensor(asked.slack)
        asks, sure, never = index.thresholds(w, slack, float(radius))
        for c in range(len(index.reach)):
            g = index.products(c, w, never[:, c]).numpy()
            here = index.z[index.edges[c] : index.edges[c + 1]].numpy()
            within = np.array([inside(here, q, radius) for q in queries])
            assert within[g >= sure[:, c, None].numpy()].all()
            assert not within[g < never[:, c, None].numpy()].any()
            assert not within[~asks[:, c].numpy()].any()


@needs_torch
@given(st.integers(0, 2**32), st.integers(1, 12), OFFSETS, SPREADS)
def test_the_bound_of_the_product_holds_exactly(seed, d, offset, spread):
    """g against its exact value, in fractions; and the coordinates it is made of."""
    rng = np.random.default_rng(seed)
    z = hard(rng, d, offset, spread, ragged=True)
    index = Index.of(z, Sketch.of(z), "cpu")
    asked = ask(index.sketch, z[:5], 1.0)
    w = index._place(asked.w)
    x = index.x[: index.edges[1]]
    g, U, rho = index.products(0, w, w[:, 0]).tolist(), Fraction(1, 2**24), float(index.reach[0])
    for i, Y in enumerate(((w - index.centre[0]) * index.sigma)[:, :d]):
        y, length = [Fraction(v) for v in Y.float().tolist()], Fraction(float(Y.norm()))
        sizes = Fraction(rho) * length + Fraction(rho) ** 2 / 2
        B = (d + 3) * U * sizes + U * length**2 + (d + 1) * Fraction(1, 2**120)
        for j in rng.integers(len(x), size=10):
            other = [Fraction(v) for v in x[j, :d].tolist()]
            apart = sum(((a - b) ** 2 for a, b in zip(y, other, strict=True)), Fraction(0))
            exact = (Fraction(float(Y.square().sum())) - apart) / 2
            assert abs(Fraction(g[i][j]) - exact) <= B  # half of what is allowed


@needs_torch
def test_the_error_of_search_coordinates_is_allowed_for(monkeypatch):
    """Chunks so small beside the distances between them that float32 is better than a rotation."""
    rng = np.random.default_rng(0)
    centre = np.array([[1.0], [2.0], [5.0]]) * np.array([1.1, 1.3, 1.7, 1.9])
    z = np.repeat(centre, 256, axis=0) + rng.integers(-8, 9, (768, 4)) * 2.0**-50
    tree, device = build(points(z), monkeypatch)
    index, queries = device._on_device.index, z[::40]
    assert len(index.reach) == 3
    assert index.reach.max() < 1e-13
    for gap in (2, 5, np.sqrt(17), 9):
        radius = float(gap * 2.0**-50)
        same(tree, device, queries, radius, tree.points.episode[::40])


@needs_torch
def test_little_memory_and_small_chunks_do_not_show(monkeypatch):
    z, _ = CASES["clustered"]
    here, queries = points(z), z[:100]
    tree, device = build(here, monkeypatch, chunk=100, room=40 * len(z))
    index = device._on_device.index
    assert np.diff(index.edges).max() == 100
    assert index.most_pairs == 1024
    parts = []
    whole = _device._Batch._add_sorted
    monkeypatch.setattr(
        _device._Batch,
        "_add_sorted",
        lambda self, key: parts.append(len(key)) or whole(self, key),
    )
    same(tree, device, queries, 0.1, here.episode[:100])
    assert len(parts) == 2 * 3  # twice 40, 40 and 20 queries, each sorted at once
    same(tree, device, queries, 0.8, here.episode[:100])
    assert len(parts) > 12  # read back from a table, some queries at a time
    monkeypatch.setattr(_device, "LONGEST", 2 * len(z))
    same(tree, device, queries, 0.8, here.episode[:100])
    monkeypatch.setattr(_device, "ROOM_CPU", 1)
    device = Engine.build(here, A, device="cpu")
    same(tree, device, queries[:3], 9.0, here.episode[:3])


@needs_torch
def test_the_rule_is_asked_about_few_pairs(monkeypatch):
    z, _ = CASES["clustered"]
    _, device = build(points(z), monkeypatch)
    asked = []
    rule = Index.within
    monkeypatch.setattr(
        Index,
        "within",
        lambda self, place, *rest: asked.append(len(place)) or rule(self, place, *rest),
    )
    n = device.count(z[:300], 0.8).sum()
    assert n > 10_000
    assert sum(asked) < n / 100


@needs_torch
def test_few_queries_stay_with_the_tree_and_other_returns_keep_the_points(monkeypatch):
    z, _ = CASES["uniform"]
    here = points(z)
    built = Engine.build(here, A, device="cpu")
    built.evidence(z[:1000], 0.1)
    assert built.shared == {}
    built.evidence(z[:1024], 0.1)
    assert list(built.shared) == ["index"]
    G = np.arange(len(z)) % 7.0
    other = built.with_values(G)
    assert other.device == "cpu"
    assert other._on_device.index is built._on_device.index
    plain = Engine.build(here, A).with_values(G)
    assert np.array_equal(other.evidence(z[:1100], 0.2).words, plain.evidence(z[:1100], 0.2).words)
    kept = Remembering.like(built)
    assert kept.device == "cpu"
    assert kept.shared is built.shared
    assert kept.evidence(z[:1100], 0.2) is kept.evidence(z[:1100], 0.2)
    assert repr(built).count("device='cpu'") == 1
    again = pickle.loads(pickle.dumps(built))
    assert np.array_equal(again.evidence(z[:1100], 0.2).words, built.evidence(z[:1100], 0.2).words)


@needs_torch
def test_reduced_precision_is_switched_off_and_on_again(monkeypatch):
    import torch

    z, _ = CASES["clustered"]
    tree, device = build(points(z), monkeypatch)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert np.array_equal(tree.count(z[:200], 0.8), device.count(z[:200], 0.8))
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    levels = ["high"]
    older = SimpleNamespace(  # before there was a precision for each kind of product
        backends=SimpleNamespace(
            cuda=SimpleNamespace(matmul=SimpleNamespace()), mkldnn=SimpleNamespace()
        ),
        get_float32_matmul_precision=lambda: levels[-1],
        set_float32_matmul_precision=levels.append,
        full=torch.full, float32=torch.float32,
    )  # fmt: skip
    with _device.full_precision(older, "cpu"):
        assert levels == ["high", "highest"]
    assert levels == ["high", "highest", "high"]
    real = torch.full
    rough = SimpleNamespace(
        backends=torch.backends, float32=torch.float32,
        full=lambda *args, **rest: real(*args, **rest).bfloat16().float(),
    )  # fmt: skip
    with (
        pytest.raises(dprl.DprlError, match="not in full float32"),
        _device.full_precision(rough, "cpu"),
    ):
        pass


@needs_torch
def test_a_metric_with_weights(monkeypatch):
    log = PointMass().sample(40, seed=0)
    metric = Metric(weights={"x": 15.0}).fit(log)
    here = Points.of(log, metric, 0.9)
    monkeypatch.setattr(engine, "WORTH_A_DEVICE", 0)
    tree, device = Engine.build(here), Engine.build(here, device="cpu")
    same(tree, device, here.z[::9], 1.0, here.episode[::9])


@needs_torch
def test_a_policy_does_not_show_what_counted_for_it(monkeypatch):
    monkeypatch.setattr(engine, "WORTH_A_DEVICE", 100)
    log = PointMass().sample(40, seed=0)
    plain = dprl.DPRLContinuous(n_min=5, radius=0.5, gamma=0.97, cut="drop")
    learner = replace(plain, device="cpu")
    one, two = plain.fit(log), learner.fit(log)
    assert one.digest() == two.digest()
    assert two.returns_engine.device == "cpu"
    assert list(two.returns_engine.shared) == ["index"]
    settings = [{"n_min": 3}, {"n_min": 9}]
    for a, b in zip(plain.fit_each(log, settings), learner.fit_each(log, settings), strict=True):
        assert a.digest() == b.digest()
    assert learner.settings() == plain.settings()
    with pytest.raises(dprl.ParameterError, match="got 'gpu'"):
        replace(plain, device="gpu")


def refused(message, device):
    with pytest.raises(dprl.ParameterError, match=message):
        Engine.build(points(np.zeros((5, 2))), A, device=device)


@needs_torch
def test_devices_that_cannot_be_used_are_refused():
    import torch

    refused("device must be 'cpu', 'cuda' or 'cuda:N'; got 'gpu'", "gpu")
    refused("device must be 'cpu', 'cuda' or 'cuda:N'; got 'meta'", "meta")
    refused("device must be", ["cpu"])
    n = torch.cuda.device_count()
    refused(f"'cuda:{n}' is not there.*sees {n} CUDA", f"cuda:{n}")


@needs_torch
def test_too_little_memory_is_said(monkeypatch):
    import torch

    def full(*_):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.\nMore.")

    z, _ = CASES["uniform"]
    _, device = build(points(z), monkeypatch)
    monkeypatch.setattr(Index, "of", full)
    with pytest.raises(dprl.DprlError, match=r"memory of cpu is not enough(.|\n)*first: CUDA out"):
        device.evidence(z[:9], 0.1)


def test_torch_is_asked_for_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(dprl.PackageError, match=r"needs torch(.|\n)*dprl\[deep\]"):
        Engine.build(points(np.zeros((5, 2))), A, device="cuda")
    assert Engine.build(points(np.zeros((5, 2))), A).device is None


def test_the_device_part_needs_neither_a_compiler_nor_torch_to_be_imported():
    code = (
        "import sys; sys.modules['numba'] = sys.modules['torch'] = None; "
        "import dprl.evidence.neighbors.device"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
