"""Compiled loops do not feel threads, odd shapes or sizes."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numba
import numpy as np
import pytest

import dprl
from conftest import to_log
from dprl._core import compiled
from dprl._core.compiled import bit, in_parts, parts
from dprl.evidence import counts as tabular


@pytest.mark.filterwarnings("ignore::dprl.errors.LabelWarning")
@pytest.mark.parametrize("n_actions", [1, 31, 32, 33, 64, 65, 130])
def test_any_number_of_actions(n_actions):
    """Actions are remembered as bits, 32 to a word; compare with sets."""
    rng = np.random.default_rng(n_actions)
    episodes = [
        [(int(rng.integers(3)), int(rng.integers(n_actions)), 1.0) for _ in range(40)]
        for _ in range(30)
    ]
    log = to_log(episodes, actions=list(range(n_actions)), states=[0, 1, 2])
    known = tabular.evidence(log, 1.0)
    n, m = np.zeros((3, n_actions), int), np.zeros((3, n_actions), int)
    for episode in episodes:
        for s, a in {(s, a) for s, a, _ in episode}:
            n[s, a] += 1
        for s in {s for s, _, _ in episode}:
            m[s, next(a for t, a, _ in episode if t == s)] += 1
    assert np.array_equal(known.pair.n, n)
    assert np.array_equal(known.took.n, m)


def test_parts_cover_everything_once():
    starts = np.array([0, 5, 6, 100, 101, 102, 500])
    for threads in (1, 2, 3, 7, 50):
        ranges = parts(starts, threads)
        assert [a for a, _ in ranges] == [0, *(b for _, b in ranges[:-1])]
        assert ranges[-1][1] == 6
        assert all(a < b for a, b in ranges)
        assert in_parts(lambda a, b: b - a, ranges) == [b - a for a, b in ranges]
    assert parts(np.array([0]), 4) == [(0, 0)]
    assert len(parts(np.array([0, 10, 20]))) == 1  # too little to be worth a thread


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e-9, 1.0, 1e9, 1e90, 1e300])
def test_returns_of_any_size_keep_their_digits(size):
    rng = np.random.default_rng(0)
    values = rng.normal(size=200)
    log = to_log([[(0, i % 2, 0.0)] for i in range(200)])
    known = tabular.evidence(dataclasses.replace(log, reward=size * values), 0.9)
    assert known.state.mean[0] == pytest.approx(size * values.mean(), rel=1e-9)
    assert known.pair.mean[0] == pytest.approx(
        [size * values[::2].mean(), size * values[1::2].mean()], rel=1e-9
    )
    assert known.state.sd[0] == pytest.approx(size * values.std(ddof=1), rel=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e8, -1e12])
def test_returns_far_from_zero_keep_their_variance(offset):
    values = np.array([-2.0, 1.0, 0.5, 2.0, -0.25, 3.0]) + offset
    log = to_log([[(0, i % 2, v)] for i, v in enumerate(values)])
    known = tabular.evidence(log, 0.9)
    assert known.state.sd[0] == pytest.approx(values.std(ddof=1), rel=1e-9)
    halves = [tabular.evidence(log.take(part), 0.9) for part in ([0, 1, 2], [3, 4, 5])]
    merged = halves[0].merge(halves[1])
    assert merged.state.sd[0] == pytest.approx(values.std(ddof=1), rel=1e-9)


def test_many_small_parts_merge_without_overflow():
    log = to_log([[(0, 0, 0.999999)]] * 40)
    total = tabular.evidence(log.take([0]), 0.9)
    for i in range(1, 40):
        total = total.merge(tabular.evidence(log.take([i]), 0.9))
    assert total.state.n[0] == 40
    assert total.state.mean[0] == pytest.approx(0.999999, rel=1e-12)


def test_different_things_are_not_merged():
    one = tabular.evidence(to_log([[(0, 0, 1.0)]]), 0.9)
    two = tabular.evidence(to_log([[(1, 0, 1.0)]]), 0.9)
    three = tabular.evidence(to_log([[(0, 0, 1.0)]]), 0.8)
    four = tabular.evidence(to_log([[(0, 0, 1.0)]]), 0.9, visits="all")
    for other, name in ((two, "states"), (three, "gamma"), (four, "visits")):
        with pytest.raises(dprl.LogError, match=f"different {name} cannot be merged"):
            one.merge(other)


def test_the_lowest_bit():
    @numba.njit
    def machine(word):
        return bit(word)

    rng = np.random.default_rng(0)
    for place in range(64):
        above = int(rng.integers(0, 1 << 62)) << (place + 1)
        word = np.uint64((above | 1 << place) & (1 << 64) - 1)
        assert bit(word) == machine(word) == place


def test_few_rows_are_one_part_and_the_cores_are_not_counted(monkeypatch):
    """Each answer to a single state asks several times for its parts: that must cost nothing."""
    monkeypatch.setattr(compiled.os, "cpu_count", lambda: pytest.fail("the cores were counted"))
    for starts in ([0], [0, 1], [0, 2, 2, 7]):
        assert compiled.parts(np.array(starts)) == [(0, len(starts) - 1)]
        assert compiled.parts(np.array(starts), 1) == [(0, len(starts) - 1)]


def test_many_rows_are_a_part_for_each_core(monkeypatch):
    monkeypatch.setattr(compiled.os, "cpu_count", lambda: 3)
    starts = np.arange(13) * compiled.WORTH_A_THREAD
    assert compiled.parts(starts) == [(0, 4), (4, 8), (8, 12)]
    assert compiled.parts(starts[:3]) == [(0, 1), (1, 2)]


@pytest.mark.slow
def test_a_first_fit_compiles_each_kernel_once():
    """What is only read comes to kernels as read-only, and numbers as int64: one machine code."""
    code = (
        "import numpy as np, dprl\n"
        "from dprl._core.compiled import KERNELS\n"
        "dprl.DPRLDiscrete(n_min=5, gamma=.9, cut='terminal').fit(dprl.envs.forest().sample(30, seed=0))\n"
        "rng = np.random.default_rng(0)\n"
        "log = dprl.from_arrays(episode=np.repeat(np.arange(300), 4), state=rng.normal(size=(1200, 3)),\n"
        "    action=rng.integers(0, 2, 1200), reward=rng.normal(size=1200))\n"
        "dprl.DPRLContinuous(n_min=5, radius=1., gamma=.9).fit(log)\n"
        "twice = [name for name, k in KERNELS.items() if len(getattr(k, 'signatures', ())) > 1]\n"
        "print(' '.join(twice))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    several = {"add_float", "_add", "_settle", "within", "_leading", "_log2"}  # small ones
    assert {name.rpartition(".")[2] for name in done.stdout.split()} <= several
