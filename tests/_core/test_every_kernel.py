"""Every compiled loop does what its Python source does.

A few small jobs run with all kernels replaced by their Python sources, which write down what they
were called with, what they returned and what they left in their arguments; also kernels that only
other kernels call. Then each kernel is called with the same. Kernels list themselves, so one that
no job reaches fails: add a job that does.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import re
import sys
import tempfile
import warnings
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dprl
from conftest import random_episodes, to_log
from dprl._core.compiled import KERNELS

SRC = Path(dprl.__file__).parent
KEPT = (0, 1, 4, 20)
"""Which calls of a kernel are kept, of all."""


def labelled(seed=0):
    episodes = random_episodes(seed)
    return to_log(episodes, [i % 3 == 0 for i in range(len(episodes))])


def measured(seed=0, episodes=12, d=2):
    rng = np.random.default_rng(seed)
    n = 4 * episodes
    return dprl.from_arrays(
        episode=np.repeat(np.arange(episodes), 4), state=rng.normal(size=(n, d)),
        action=rng.integers(2, size=n), reward=rng.normal(size=n),
    )  # fmt: skip


def learning():
    dprl.DPRLDiscrete(n_min=2, gamma=0.9, cut="bootstrap").fit(labelled(1))
    dprl.DPRLDiscrete(n_min=2, gamma=0.9, cut="terminal", visits="all").fit(labelled(1))


def being_sure():
    from dprl.planning.sure_iteration import PlanModel

    log = dprl.envs.soft().sample(4, seed=0)
    for evidence in ("model", "excursions"):
        dprl.Confident(gamma=0.9, evidence=evidence, check=False, cut="terminal").fit(log)
    from dprl.evidence.counts import count
    from dprl.planning.advantages import Noise, over_usual
    from dprl.planning.model import count_transitions

    n = count(log, 0.9)[0].pair.n
    noise = Noise.draw(*n.shape, draws=4)
    model = PlanModel(count_transitions(log), n, 0.9, n >= 2, dense=1, noise=noise)
    over_usual(model.evaluate(model.eligible.argmax(axis=1)))
    model.iterate(0.4)


def cutting_features():
    from dprl.planning.tree import Bins, best_tree

    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    X[::7, 0] = np.nan
    psi, took = rng.normal(size=(60, 2)), rng.integers(0, 2, 60).astype(np.int32)
    best_tree(Bins.of(X, 3), psi, took, depth=2, kappa=np.ones(2), least=2)
    from dprl.evidence.models import stack_weights

    stack_weights(np.random.default_rng(0).uniform(0.1, 1.0, (20, 3)))


def merging():
    from dprl.evidence import counts as tabular
    from dprl.logs.returns import span

    log = labelled()
    span(log, 0.9)
    parts = [log.take(np.arange(k, log.n_episodes, 2)) for k in range(2)]
    first, second = (tabular.evidence(part, 0.9) for part in parts)
    merged = first.merge(second)
    merged.not_worse(0.0)
    for moments in (merged.pair, merged.state, merged.took, merged.others):
        moments.mean, moments.sd  # noqa: B018 - computed when asked for


def in_parts():
    from dprl.logs.source import parts_of

    log = labelled()
    for learner in (
        dprl.DPRLDiscrete(n_min=2, gamma=0.9, cut="terminal"),
        dprl.Confident(gamma=0.9, cut="terminal", check=False, promise=False, splits=0),
    ):
        learner.fit(parts_of(log, 20))


def looking_around():
    for visits in ("first", "all"):
        learner = dprl.DPRLContinuous(n_min=2, radius=1.5, gamma=0.9, visits=visits)
        policy = learner.fit(measured(episodes=4))
        policy.act(np.zeros((3, 2)))
        dprl.compress(policy, 0.5)


def many_points():
    """A tree of several levels, boxes wholly inside the ball, and lists of neighbours."""
    from dprl.evidence.neighbors.engine import Engine, Points

    rng = np.random.default_rng(0)
    n = 300
    for d in (1, 40):
        points = Points(
            rng.normal(size=(n, d)), rng.integers(3, size=n).astype(np.int32),
            rng.normal(size=n), np.repeat(np.arange(n // 4), 4),
        )  # fmt: skip
        for method in ("tree", "brute"):
            engine = Engine.build(points, 3, method)
            for visits in ("first", "all"):
                engine.evidence(points.z[:3], 2.0, visits=visits, threads=1)
            engine.neighbors(points.z[:2], 0.7, threads=1)


def judging():
    world = dprl.envs.forest()
    log, test = world.sample(30, seed=0), world.sample(20, seed=1)
    policy = dprl.DPRLDiscrete(n_min=3, gamma=0.9, cut="terminal").fit(log)
    dprl.evaluate(policy, test, draws=3, cut="terminal", allow_seen=True)
    policy = dprl.DPRLDiscrete(n_min=2, gamma=0.9, cut="terminal").fit(labelled(1))
    dprl.evaluate(policy, labelled(1), draws=3, allow_seen=True)


def certifying():
    rows = [[("s", "ab"[i % 2], float(i % 2))] for i in range(12)]
    learner = dprl.DPRLDiscrete(n_min=2, gamma=1.0)
    log = to_log(rows)
    dprl.gate(learner, log, delta=0.2, value_range=(0, 1))
    from dprl.certificate.evalues import differences, histograms
    from dprl.certificate.gain import partings

    differences(histograms(log, 1.0, (0, 1)), [1], 0.2)
    partings(log, np.array([1], np.int32), 0.9)
    walk = dprl.DPRLContinuous(n_min=5, radius=3.0, gamma=1.0)
    dprl.gate(walk, measured(episodes=16), delta=0.2, value_range=(-20, 20))


def rivals():
    model = dprl.envs.forest().sample(30, seed=0)
    for step in ("approximate", "exact"):
        learner = dprl.baselines.SoftSPIBB(epsilon=1.0, gamma=0.9, step=step, cut="terminal")
        learner.fit(model)


def looking_back():
    dprl.markov_check(dprl.envs.delayed().sample(8, seed=0), 1.0, lags=1, permutations=99)


def giving_credit():
    from dprl.evidence.excursions import credit

    log = labelled(2).take([1, 2, 4])
    V = np.random.default_rng(0).normal(size=log.n_steps)
    for lam in (0.0, 0.9):
        credit(log, 0.9, lam, V)


def ruling():
    asked = [
        ("a", "at most", 0.5),
        ("b", "missing", None),
        ("b", "above", 0.0),
        ("a", "known", None),
    ]
    conditions = [
        {"feature": f, "kind": kind} | ({} if value is None else {"value": value})
        for f, kind, value in asked
    ]
    policy = dprl.RulePolicy(
        states=(), actions=("x", "y"), parameters={}, provenance={}, feature_names=("a", "b"),
        rules=[
            {"conditions": c, "suggested": "x"} for c in (conditions[:2], conditions[2:], conditions[1:2])
        ],
    )  # fmt: skip
    policy.act([[0.5, np.nan], [0.6, 1.0], [np.inf, 1.0], [np.nan, np.nan], [1.0, 0.0]])


def reading():
    """A file whose rows stand in no order, read as a large one is."""
    from dprl.logs.reading import columns as _row_facts

    rng = np.random.default_rng(0)
    episode = rng.permutation(np.repeat(3 * np.arange(12), 5))
    table = {
        "e": episode, "t": rng.permutation(60) / 4, "s": rng.choice(["x", "y", ""], 60),
        "a": rng.choice(["u", "v"], 60), "r": rng.normal(size=60), "g": episode // 9 * 10**12,
    }  # fmt: skip
    roles = {"episode": "e", "time": "t", "state": "s", "action": "a", "reward": "r", "group": "g"}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_row_facts, "LARGE", 0)
        path = str(Path(folder) / "visits.parquet")
        with duckdb.connect() as con:
            con.register("rows", {name: column.astype(object) if column.dtype.kind == "U" else column
                                  for name, column in table.items()})  # fmt: skip
            con.execute(f"COPY (SELECT * FROM rows) TO '{path}' (FORMAT parquet)")
        dprl.read(path, **roles, missing="drop-episodes")


def labelling():
    """Words that do not rise, sorted, as JSON, as numbers, and as marks of groups."""
    from dprl._core.labels import Labels, Words
    from dprl.logs import overlap
    from dprl.logs.checking.labels import one_number

    words = ["b", "a", "\t9", "007", "7", "x" * 130, "2.0", "10"]
    held = Labels.of(words)
    coder = Words(8)
    coder.add(held.ends, held.data, None, np.zeros(8, np.int32))
    held = coder.labels()
    held = held.at(held.order())
    assert (held.rising, held.tidied(), len(list(held.as_json()))) == (True, None, 3)
    assert one_number(held) is not None
    log = to_log([[("s", "a", 1.0)]] * 8)
    overlap.sketch(dataclasses.replace(log, groups=held, episodes=held))


JOBS = [
    reading, labelling,
    learning, being_sure, cutting_features, merging, in_parts, looking_around, many_points,
    judging, certifying, rivals, looking_back, giving_credit, ruling,
]  # fmt: skip


def kernels():
    """All kernels there are, by name: whatever module has one is imported."""
    for path in SRC.rglob("*.py"):
        if re.search(r"^@(compiled|fused)", path.read_text(), re.M):
            name = ".".join(path.relative_to(SRC.parent).with_suffix("").parts)
            importlib.import_module(name)
    return dict(KERNELS)


def copied(value, roots=None):
    """A copy in which arrays that shared memory still do: a kernel may be handed views.

    What must not be written to must not be in the copy either: it is other machine code.
    """
    roots = {} if roots is None else roots
    if isinstance(value, tuple):
        parts = [copied(part, roots) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if not isinstance(value, np.ndarray):
        return copy.deepcopy(value)
    root = value
    while isinstance(root.base, np.ndarray):
        root = root.base
    if root.flags.c_contiguous:
        new = roots.setdefault(id(root), (root, root.copy()))[1]
        offset = value.ctypes.data - root.ctypes.data
        twin = np.ndarray(value.shape, value.dtype, new, offset, value.strides)
    else:
        twin = value.copy()
    twin.flags.writeable = value.flags.writeable
    return twin


def in_single_precision(value):
    if isinstance(value, tuple):
        return any(map(in_single_precision, value))
    return getattr(value, "dtype", None) == np.float32


def written_down(kernel, calls):
    source = kernel.py_func

    def record(*args):
        count = calls["n"]
        calls["n"] = count + 1
        if count not in KEPT:
            return source(*args)
        before = copied(args)
        result = source(*args)
        calls["kept"].append((before, copied(args), copied(result)))
        return result

    return record


@pytest.fixture(scope="module")
def calls():
    """Kernel → what it was called with, and what its source made of that."""
    everything = kernels()
    seen = {name: {"n": 0, "kept": []} for name in everything}
    records = {id(k): written_down(k, seen[name]) for name, k in everything.items()}
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whole numbers of machines wrap, and say so in Python
        for module in [m for n, m in list(sys.modules.items()) if n.startswith("dprl.") and m]:
            for name, value in list(vars(module).items()):
                if id(value) in records and value in everything.values():
                    patch.setattr(module, name, records[id(value)])
        for job in JOBS:
            job()
    return seen


def agree(one, two, loose):
    if isinstance(one, tuple):
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            agree(a, b, loose)
    elif isinstance(one, np.random.Generator):
        assert one.bit_generator.state == two.bit_generator.state
    elif one is None:
        assert two is None
    elif np.asarray(one).dtype.kind == "f":
        small = np.asarray(one).dtype == np.float32
        close = {"rtol": 1e-4, "atol": 1e-5} if loose or small else {"rtol": 1e-12, "atol": 1e-14}
        np.testing.assert_allclose(one, two, **close)
    else:
        np.testing.assert_array_equal(one, two)


@pytest.mark.filterwarnings("ignore::dprl.CutWarning")
@pytest.mark.parametrize("name", sorted(kernels()))
def test_machine_code_does_what_its_source_does(name, calls):
    kernel = KERNELS[name]
    assert calls[name]["kept"], f"no job reaches {name}: add one to JOBS that does"
    for before, after, result in calls[name]["kept"]:
        loose = bool(getattr(kernel, "targetoptions", {}).get("fastmath")) or in_single_precision(
            before
        )
        args = copied(before)
        agree(kernel(*args), result, loose)
        agree(args, after, loose)
