"""The engine gives the bits of a plain float64 loop, by every method, block size and thread count."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dprl
from dprl.evidence.counts import FIRST, LATER
from dprl.evidence.decision_points import allowed
from dprl.evidence.neighbors import Engine, Metric, Points, engine, tree
from dprl.evidence.neighbors.metric import Sketch, ask
from dprl.logs.log import Log

A = 5


def points(z, seed=0, n_actions=A):
    """Points in trajectories of uneven length, gaps in their numbers."""
    rng = np.random.default_rng(seed)
    n = len(z)
    episode = np.cumsum(rng.random(n) < 0.2) * 3
    return Points(z, rng.integers(n_actions, size=n), rng.normal(5, 2, size=n), episode)


def inside(z, q, radius):
    """bool (N,): the rule, one dimension after the other."""
    total = np.zeros(len(z))
    for i in range(z.shape[1]):
        total = total + (z[:, i] - q[i]) * (z[:, i] - q[i])
    return total <= radius * radius


def counted(points, queries, radius, visits, leave_out):
    """The rows that count, [FIRST or LATER][query]: the rule, by sets of rows."""
    found = [[], []]
    for k, q in enumerate(queries):
        rows = np.flatnonzero(inside(points.z, q, radius))
        if leave_out is not None:
            rows = rows[points.episode[rows] != leave_out[k]]
        if visits == "all":
            found[FIRST].append(rows)
            found[LATER].append(rows[:0])
            continue
        episode = points.episode[rows]
        visited = np.unique(episode, return_index=True)[1]
        tried = np.unique(episode * A + points.action[rows], return_index=True)[1]
        found[FIRST].append(rows[visited])
        found[LATER].append(rows[np.setdiff1d(tried, visited)])
    return found


def whole_numbers(G):
    """Whole numbers and their common unit, a power of two: G = numbers / unit, without rounding."""
    ratios = [value.as_integer_ratio() for value in G.tolist()]
    unit = max(below for _, below in ratios)
    return np.array([above * (unit // below) for above, below in ratios], object), unit


def agree(answer, points, found, exact_span):
    """The evidence is that of these rows: counts and means to the last bit."""
    exact, unit = whole_numbers(points.G)
    every_row = [np.concatenate(rows) for rows in zip(*found, strict=True)]
    for k, rows in enumerate(found[FIRST]):
        if len(rows) and exact_span:
            every = points.G[rows]
            assert answer.span[k].tolist() == [every.min(), every.max()]
    for moments, rows_of in ((answer.took, found[FIRST]), (answer.pair, every_row)):
        size = np.zeros((len(rows_of), A), int)
        mean, sd = np.full(size.shape, np.nan), np.full(size.shape, np.nan)
        for k, rows in enumerate(rows_of):
            action = points.action[rows]
            for a in range(A):
                here = rows[action == a]
                size[k, a] = len(here)
                if len(here):
                    mean[k, a] = exact[here].sum() / (len(here) * unit)  # rounded once
                if len(here) > 1:
                    sd[k, a] = np.std(points.G[here], ddof=1)
        assert np.array_equal(moments.n, size)
        assert np.array_equal(moments.mean[size > 0], mean[size > 0])
        assert (np.abs(moments.sd - sd)[size > 1] <= 1e-12).all()


def check(z, queries, radius, seed=0):
    here = points(z, seed)
    leave_out = np.random.default_rng(seed).choice([-1, *here.episode], len(queries))
    engines = [Engine.build(here, A, method) for method in ("tree", "brute")]
    for visits in ("all", "first"):
        for left in (None, leave_out):
            answers = [
                built.evidence(queries, radius, visits=visits, leave_out=left, threads=threads)
                for built in engines
                for threads in (1, 3)
            ]
            expected = counted(here, queries, radius, visits, left)
            agree(answers[0], here, expected, visits == "first" or left is None)
            for answer in answers[1:]:
                assert np.array_equal(answer.words, answers[0].words)
                assert np.array_equal(answer.span, answers[0].span, equal_nan=True)
    fast = engines[0]
    indptr, rows = fast.neighbors(queries, radius)
    for k, q in enumerate(queries):
        assert np.array_equal(rows[indptr[k] : indptr[k + 1]], np.flatnonzero(inside(z, q, radius)))
    assert np.array_equal(fast.count(queries, radius), np.diff(indptr))


def clusters(rng, n, d, noise):
    return rng.normal(size=(20, d))[rng.integers(20, size=n)] + noise * rng.normal(size=(n, d))


RNG = np.random.default_rng(7)
CASES = {
    "uniform": (RNG.random((3000, 4)), [0.1, 0.3, 5.0]),
    "clustered": (clusters(RNG, 3000, 6, 0.3), [0.5, 1.0]),
    "near-duplicates": (clusters(RNG, 2500, 16, 2e-4), [1e-3, 1e-9, 0.0]),
    "nearer duplicates": (clusters(RNG, 2500, 3, 1e-9), [1e-9, 1e-8]),
    "identical": (np.full((700, 3), 0.1), [0.0, 1e-300, 1.0]),
    "one point": (np.array([[1.0, 2.0]]), [0.0, 1.0]),
    "one dimension": (RNG.normal(size=(1500, 1)), [0.01, 1.0]),
    "29 dimensions": (RNG.random((600, 29)), [1.8, 2.2]),
    "64 dimensions": (clusters(RNG, 600, 64, 0.2), [2.0, 2.3]),
    "lattice": (RNG.integers(-6, 7, (3000, 3)).astype(float), [1.0, np.sqrt(2), 5.0]),
    "coarse lattice": (RNG.integers(-2, 3, (3000, 8)) * 0.1, [0.1, 0.2, 0.1 * np.sqrt(3)]),
    "offset 1e6": (1e6 + clusters(RNG, 2000, 5, 0.1), [0.2, 1e-9]),
    "offset 1e12": (1e12 + RNG.integers(0, 9, (2000, 3)) / 1024, [1 / 1024, 5 / 1024]),
    "large": (1e18 * RNG.uniform(-1, 1, (1500, 3)), [1e16, 5e17, 3e18, 1e200]),
    "tiny": (1e-17 * RNG.normal(size=(1500, 3)), [1e-17, 1e-160]),
    "uneven scales": (RNG.normal(size=(2000, 5)) * 10.0 ** np.arange(-6, 9, 3), [0.1, 1e3]),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", CASES)
def test_every_answer_is_that_of_a_plain_loop(name):
    z, radii = CASES[name]
    rng = np.random.default_rng(1)
    near = z[rng.integers(len(z), size=50)]
    other = z.mean(axis=0) + z.std(axis=0) * rng.normal(size=(20, z.shape[1]))
    queries = np.clip(np.concatenate([near, near * (1 + 1e-9), other]), -1e18, 1e18)
    for radius in radii:
        check(z, queries, radius)


@given(st.data())
def test_any_data_any_radius(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n, d = data.draw(st.integers(1, 700)), data.draw(st.integers(1, 9))
    z = rng.integers(-3, 4, (n, d)).astype(float)
    z *= 10.0 ** data.draw(st.integers(-12, 12))
    z += data.draw(st.sampled_from([0.0, 0.1, -1e4])) + data.draw(
        st.sampled_from([0.0, 1e-9, 0.5])
    ) * rng.normal(size=(n, d))
    queries = np.concatenate([z[rng.integers(n, size=8)], rng.normal(size=(2, d))])
    # A radius that is the distance of two points, a hair less, or a hair more.
    radius = np.linalg.norm(z[rng.integers(n)] - queries[0])
    radius *= data.draw(st.sampled_from([1.0, 1 - 1e-16, 1 + 2e-16, 1 - 1e-7, 1 + 1e-7, 0.5]))
    check(z, queries, float(radius), seed=n)


def test_sums_are_those_of_floats():
    z, _ = CASES["uniform"]
    here = points(z)
    known = Engine.build(here, A).evidence(z[:50], 0.3, visits="all")
    for k in range(50):
        near = inside(z, z[k], 0.3)
        for a in range(A):
            G = here.G[near & (here.action == a)]
            assert known.pair.n[k, a] == len(G)
            if len(G) > 1:
                assert known.pair.mean[k, a] == pytest.approx(G.mean(), rel=1e-12)
                assert known.pair.sd[k, a] == pytest.approx(G.std(ddof=1), rel=1e-9)


@pytest.mark.parametrize("visits", ["first", "all"])
def test_company_threads_and_pilot_do_not_show(visits, monkeypatch):
    z, _ = CASES["clustered"]
    here, queries = points(z), z[::2]
    auto = Engine.build(here, A)
    assert auto.method == "auto"
    whole = auto.evidence(queries, 0.8, visits=visits).words
    assert auto.method in ("tree", "brute")
    tree = Engine.build(here, A, "tree")
    for threads in (1, 2, 5):
        again = tree.evidence(queries, 0.8, visits=visits, threads=threads)
        assert np.array_equal(again.words, whole)
    alone = tree.evidence(queries[700:701], 0.8, visits=visits)
    assert np.array_equal(alone.words[:, 0], whole[:, 700])
    monkeypatch.setattr(engine, "BITMAPS", 5 * len(z))
    assert tree._block() == 5
    few = tree.evidence(queries, 0.8, visits=visits)
    assert np.array_equal(few.words, whole)
    assert tree.evidence(queries[:0], 0.8, visits=visits).words.shape[:3] == (2, 0, A)
    assert tree.neighbors(queries[:0], 0.8)[0].tolist() == [0]


KERNELS = [
    (tree, ("_fill", "within", "_relative", "place", "_squares", "_squares4", "_any", "new_desk", "scan",
            "_cut", "_part", "_arrange", "_outward", "_enclose", "add_up_boxes", "leaf_of", "_beyond",
            "children", "farthest", "_mark", "_add", "_find", "_read", "add_all", "add_first",
            "list_rows")),
    (engine, ("add_all", "add_first", "list_rows", "add_up_boxes", "leaf_of")),
]  # fmt: skip


@pytest.mark.parametrize("method", ["tree", "brute"])
def test_python_and_machine_code_agree(method, monkeypatch):
    rng = np.random.default_rng(3)
    z = clusters(rng, 400, 5, 0.4)
    here, queries = points(z), z[:12] + 0.1

    def everything():
        built = Engine.build(here, A, method)
        indptr, rows = built.neighbors(queries, 1.0)
        return [
            *(built.evidence(queries, r, visits=m, leave_out=here.episode[:12]).words
              for r in (1.0, 2.5) for m in ("first", "all")),
            indptr, rows,
        ]  # fmt: skip

    fast = everything()
    for module, names in KERNELS:
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name).py_func)
    with np.errstate(all="ignore"):
        slow = everything()
    for a, b in zip(fast, slow, strict=True):
        assert np.array_equal(a, b)


def test_the_tree_holds_every_point_once_in_its_boxes():
    z, _ = CASES["clustered"]
    w = Sketch.of(z).transform(z)
    held, boxes = tree.grow(z, w)
    rows = held.row[held.row >= 0]
    assert sorted(rows) == list(range(len(z)))
    for f in range(len(boxes.size)):
        for c in range(boxes.size[f]):
            a, b = boxes.slots[f, c]
            here = w[held.row[a:b]]
            low, high = boxes.low[f, :, c].astype(float), boxes.high[f, :, c].astype(float)
            assert (low <= here.min(axis=0)).all()  # rounded outward, and no farther
            assert (high >= here.max(axis=0)).all()
            np.testing.assert_allclose(low, here.min(axis=0), rtol=1e-6)
            np.testing.assert_allclose(high, here.max(axis=0), rtol=1e-6)
    assert boxes.slots[-1, 0, 0] == 0
    assert boxes.slots[-1, boxes.size[-1] - 1, 1] == len(z)


def test_a_deep_tree():
    """Three levels of families and a last leaf of one point."""
    n = 128 * 16 * 17 + 1
    z = np.random.default_rng(0).random((n, 2))
    _, boxes = tree.grow(z, Sketch.of(z).transform(z))
    assert [int(s) for s in boxes.size[-3:]] == [16, 2, 2]
    queries = z[:40]
    expected = [np.count_nonzero(inside(z, q, 0.2)) for q in queries]
    assert Engine.build(points(z), A, "tree").count(queries, 0.2).tolist() == expected


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_search_coordinates_keep_distances(offset):
    rng = np.random.default_rng(0)
    apart = rng.normal(size=(500, 6)) * [1, 2, 3, 4, 5, 6] + offset
    together = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 6)) + offset
    for z, turned in ((apart, False), (together, True)):
        sketch = Sketch.of(z)
        assert (np.count_nonzero(sketch.R) > 6) == turned
        asked = ask(sketch, z, 1.0)
        w = asked.w
        assert w.shape == (500, 8)
        assert (np.diff(w.var(axis=0)) <= 1e-9).all()
        exact = np.sqrt(((z[0] - z[1:]) ** 2).sum(axis=1))
        found = np.sqrt(((w[0] - w[1:]) ** 2).sum(axis=1))
        assert (np.abs(exact - found) <= sketch.kappa * exact + asked.slack[0]).all()
        assert (asked.whole < 1.0).all()
        assert (asked.skip > 1.0).all()


def hard(rng, d, offset, spread, ragged):
    """Points far from the origin that move together, some as near to each other as floats can be.

    `ragged`: features of sizes that lie twelve orders of magnitude apart.
    """
    z = rng.normal(size=(60, 2)) @ rng.normal(size=(2, d)) + 0.1 * rng.normal(size=(60, d))
    z = (
        offset * rng.choice([-1.0, 1.0], d)
        + spread * z * (10.0 ** rng.integers(-6, 7, d)) ** ragged
    )
    z = np.clip(z, -1e18, 1e18)
    twins = np.nextafter(z[:20], rng.choice([-1e19, 1e19], (20, d)))
    return np.clip(np.concatenate([z, twins]), -1e18, 1e18)


OFFSETS = st.sampled_from([0.0, 1.0, 1e6, 1e12, 1e17, 1e18])
SPREADS = st.sampled_from([1e-17, 1e-9, 1.0, 1e9, 1e17])


@given(st.integers(0, 2**32), st.integers(1, 12), OFFSETS, SPREADS, st.booleans())
def test_the_bound_of_search_coordinates_holds_exactly(seed, d, offset, spread, ragged):
    """Distances in both coordinates by fractions and 80 digits: no rounding of the test's own."""
    rng = np.random.default_rng(seed)
    z = hard(rng, d, offset, spread, ragged)
    sketch = Sketch.of(z)
    asked = ask(sketch, z, 1.0)
    exact = [[Fraction(v) for v in row] for row in z.tolist()]
    found = [[Fraction(v) for v in row] for row in asked.w.tolist()]

    def distance(a, b):
        square = sum(((x - y) ** 2 for x, y in zip(a, b, strict=True)), Fraction(0))
        return Decimal(square.numerator).sqrt() / Decimal(square.denominator).sqrt()

    with localcontext(prec=80):
        for i in range(20):
            for j in (i + 60, int(rng.integers(len(z)))):
                true, other = distance(exact[i], exact[j]), distance(found[i], found[j])
                bound = Decimal(sketch.kappa) * true + Decimal(float(asked.slack[i]))
                assert abs(true - other) <= bound
        # And float32, for boxes.
        for i in range(20):
            rough = [Fraction(float(v)) for v in asked.p[i]]
            assert distance(found[i], rough) <= Decimal(float(np.linalg.norm(asked.w[i]))) / 2**23


@pytest.mark.slow
@given(st.integers(0, 2**32), st.integers(1, 8), OFFSETS, SPREADS, st.booleans())
def test_near_ties_far_from_the_origin(seed, d, offset, spread, ragged):
    """Radii that are a distance, or the next number below or above, or next to nothing."""
    rng = np.random.default_rng(seed)
    z = np.repeat(hard(rng, d, offset, spread, ragged), 4, axis=0)
    queries = z[rng.integers(len(z), size=6)]
    gap = float(np.sqrt(((z[rng.integers(len(z))] - queries[0]) ** 2).sum()))
    for radius in (gap, np.nextafter(gap, 0), np.nextafter(gap, np.inf), 1e-3 * gap, 1e-200):
        check(z, queries, float(radius), seed=seed % 1000)


def test_nearest_rows():
    z, _ = CASES["uniform"]
    here = Engine.build(points(z), A)
    distance = np.sqrt(((z - z[7]) ** 2).sum(axis=1))
    assert here.nearest_rows(z[7], 0.5, 6).tolist() == np.argsort(distance)[:6].tolist()
    assert len(here.nearest_rows(z[7], 0.0, 6)) == 1
    lattice = Engine.build(points(CASES["lattice"][0]), A)
    assert len(lattice.nearest_rows(np.zeros(3), 100.0, 10)) == 10


def test_many_actions():
    z = np.random.default_rng(0).random((900, 2))
    here = points(z, n_actions=300)
    for method in ("tree", "brute"):
        known = Engine.build(here, 300, method).evidence(z[:5], 0.5)
        for k in range(5):
            rows = np.flatnonzero(inside(z, z[k], 0.5))
            seen = {(here.episode[i], here.action[i]) for i in rows}
            assert known.pair.n[k].sum() == len(seen)


def log_of(features, **options):
    """A log whose states are these features (N, d), four steps an episode."""
    features = np.asarray(features, float)
    n, rng = len(features), np.random.default_rng(0)
    return Log(
        starts=np.arange(0, n + 1, 4), action=rng.integers(2, size=n), reward=rng.normal(size=n),
        actions=("old", "new"), features=features,
        feature_names=tuple("abcdefgh"[: features.shape[1]]), **options,
    )  # fmt: skip


def test_metric_is_a_weighted_distance_of_scaled_features():
    x = np.random.default_rng(0).normal(size=(40, 3)) * [1.0, 10.0, 100.0]
    log = log_of(x)
    quarter, three = np.quantile(x, [0.25, 0.75], axis=0)
    for scale, values in (
        ("none", np.ones(3)), ("std", x.std(axis=0)), ("robust", (three - quarter) / 1.349),
        ({"a": 2, "c": 3, "b": 4}, [2, 4, 3]), ([1.0, 2.0, 4.0], [1, 2, 4]),
    ):  # fmt: skip
        fitted = Metric(scale=scale, weights={"b": 4.0}).fit(log)
        z = fitted.transform(x)
        d = (((x[0] - x[1]) / np.asarray(values)) ** 2 * [1, 4, 1]).sum()
        assert ((z[0] - z[1]) ** 2).sum() == pytest.approx(d)
    assert Metric(weights={"b": 0}).fit(log).transform(x).shape == (40, 2)


def test_features_that_do_not_vary_are_noted():
    x = np.full((40, 3), 0.1)
    x[:3, 1] = 1.0
    x[:, 2] = np.arange(40)
    std, robust = (Metric(scale=s).fit(log_of(x)) for s in ("std", "robust"))
    assert std.scale[0] == robust.scale[0] == 1.0
    assert std.notes == ("'a' is constant in this log: left unscaled.",)
    assert robust.scale[1] == std.scale[1]
    assert "'b' has no interquartile range" in robust.notes[0]


def test_evidence_of_a_log_goes_on_to_decision_points():
    rng = np.random.default_rng(0)
    log = log_of(rng.normal(size=(400, 2)))
    metric = Metric().fit(log)
    here = Points.of(log, metric, 0.9)
    known = Engine.build(here).evidence(here.z[:30], 0.7, leave_out=here.episode[:30])
    assert known.actions == ("old", "new")
    assert known.visits == "first"
    assert known.gamma == 0.9
    assert known.n_episodes == 100
    pairs = allowed(known, 3)
    assert pairs.shape == (30, 2)
    assert pairs.any()
    assert not allowed(known, 101).any()
    np.testing.assert_allclose(here.G, dprl.logs.returns.returns(log, 0.9))


def test_one_state_is_the_tabular_case():
    """All places equal and a ball around them: the evidence of a log with one state."""
    from dprl.evidence import counts as tabular

    rng = np.random.default_rng(0)
    log = log_of(np.ones((400, 2)))
    here = Points.of(log, Metric(scale="none").fit(log), 0.9)
    known = Engine.build(here).evidence(here.z[:1], 0.0)
    flat = Log(
        starts=log.starts, action=log.action, reward=log.reward, actions=log.actions,
        state=np.zeros(400), states=("s",),
    )  # fmt: skip
    every = Engine.build(here).evidence(here.z[:1] + 0 * rng.random(), 0.0, visits="all")
    for near, table in (
        (known, tabular.evidence(flat, 0.9)),
        (every, tabular.evidence(flat, 0.9, visits="all")),
    ):
        assert np.array_equal(near.span, table.span)
        for name in ("took", "others", "pair", "state"):
            one, two = getattr(near, name), getattr(table, name)
            for part in ("n", "mean", "sd"):
                assert np.array_equal(getattr(one, part), getattr(two, part))


def test_one_huge_return_costs_other_balls_nothing():
    z = np.repeat([[0.0, 0.0], [5.0, 5.0]], [200, 1], axis=0)
    rng = np.random.default_rng(0)
    action, G = rng.integers(0, A, 201).astype(np.int32), np.append(rng.random(200), 1.0)
    results = []
    for size in (1.0, 1e8, 1e17, 1e60):
        G[-1] = size
        here = Points(z, action, G.copy(), np.arange(201))
        known = Engine.build(here, A).evidence(z[[0, 200]], 1.0)
        results.append((known.took.mean[0], known.took.sd[0], known.others.sd[0]))
        assert known.state.mean[1] == size
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))
    G[-1] = 1e300
    known = Engine.build(Points(z, action, G, np.arange(201)), A).evidence(z[[0, 200]], 1.0)
    with pytest.warns(dprl.PrecisionWarning, match="1 of 2 states"):
        assert np.isnan(known.state.mean[0])  # too far apart for one window: said, not 0
    assert known.state.mean[1] == 1e300


def refused(message, call, *args, **options):
    with pytest.raises(dprl.errors.DprlError, match=message):
        call(*args, **options)


def test_bad_metrics_are_refused():
    log = log_of(np.random.default_rng(0).normal(size=(8, 2)))
    labels = dprl.from_arrays(episode=[0], time=[0], state=["s"], action=["a"], reward=[1.0])
    refused("labels, not numeric features", Metric().fit, labels)
    refused("labels, not numeric", Points.of, labels, Metric().fit(log), 0.9)
    refused("scale must be 'std'", Metric, scale="var")
    refused("weight must be a number >= 0; feature 'a'", Metric, weights={"a": -1})
    refused("weight must be a number", Metric, weights={"a": np.nan})
    refused("'zz', which is no feature", Metric(weights={"zz": 1}).fit, log)
    refused("no feature has a weight", Metric(weights={"a": 0, "b": 0}).fit, log)
    refused("no scale is given for 'b'", Metric(scale={"a": 1}).fit, log)
    refused("'c', which is no feature", Metric(scale={"a": 1, "b": 1, "c": 1}).fit, log)
    refused("3 scales are given for 2", Metric(scale=[1, 2, 3]).fit, log)
    refused("scale of 'b' must be above 0", Metric(scale=[1, 0]).fit, log)
    refused("scale of 'b' must be above 0", Metric(scale={"a": 1, "b": np.inf}).fit, log)
    refused("too close to 0", Metric(scale=[1, 5e-324]).fit, log)
    refused("at least one step", Metric().fit, log_of(np.zeros((0, 2))))
    fitted = Metric(scale=[1.0, 1e-9]).fit(log)
    refused("need 2 features", fitted.transform, np.zeros((3, 3)))
    refused("'b' is not a finite number in 1 of 2", fitted.transform, [[0, 0], [1, np.nan]])
    refused("'a' is not a finite number", fitted.transform, [[np.inf, 0]])
    refused("'b' is beyond 1e18", fitted.transform, [[0, 1e10]])
    refused("other features", Points.of, log_of(np.zeros((4, 3))), fitted, 0.9)


def test_bad_points_are_refused():
    z, one = np.zeros((2, 1)), np.zeros(2, int)
    refused("a row and a coordinate", Points, np.zeros((0, 2)), [], [], [])
    refused("a row and a coordinate", Points, np.zeros((2, 0)), one, one, one)
    refused("'G' has shape", Points, z, one, np.zeros(3), one)
    refused("finite and within", Points, z + np.nan, one, one, one)
    refused("finite and within", Points, z + 1e19, one, one, one)
    refused("'G' holds", Points, z, one, one + np.inf, one)
    refused("outside the labels", Points, z, one - 1, one, one)
    refused("outside the labels", Points, z, one + 1, one, one, 1.0, ("a",))
    refused("sorted by episode", Points, z, one, one, [1, 0])
    refused("sorted by episode", Points, z, one, one, [-1, 0])


def test_bad_questions_are_refused():
    here = points(np.zeros((5, 2)))
    refused("method must be", Engine.build, here, A, "kd")
    refused("n_actions is 1", Engine.build, here, 1)
    ask = Engine.build(here, A).evidence
    for radius in (-1.0, np.nan, np.inf, "1", None, True):
        refused("radius must be", ask, here.z, radius)
    refused("2 coordinates", ask, np.zeros((3, 3)), 1.0)
    refused("2 coordinates", ask, np.zeros(2), 1.0)
    refused("1 of 2 queries", ask, [[0, 0], [0, np.nan]], 1.0)
    refused("1 of 2 queries", ask, [[0, 0], [0, np.inf]], 1.0)
    refused("1 of 2 queries", ask, [[0, 0], [0, -2e18]], 1.0)
    refused("visits must be", ask, here.z, 1.0, visits="last")
    refused("one episode number per query", ask, here.z, 1.0, leave_out=[1, 2])
    refused("one episode number per query", ask, here.z, 1.0, leave_out=np.zeros(5))
    refused("threads must be", ask, here.z, 1.0, threads=0)
