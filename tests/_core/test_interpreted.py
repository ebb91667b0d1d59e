"""With NUMBA_DISABLE_JIT=1 nothing is compiled, and every number is the same."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import dprl


def job(folder):
    """A fit, an evaluation and a gate, as text: the bytes of policies, and numbers to the last digit."""
    world = dprl.envs.care_pathway()
    log, held_out = world.sample(60, seed=1), world.sample(60, seed=2)
    learner = dprl.DPRLDiscrete(n_min=5, gamma=1.0)
    rng = np.random.default_rng(0)
    points = dprl.from_arrays(
        episode=np.repeat(np.arange(15), 2), state=rng.normal(size=(30, 2)),
        action=rng.integers(2, size=30), reward=rng.normal(size=30),
    )  # fmt: skip
    policies = [
        learner.fit(log),
        dprl.gate(learner, log, delta=0.2, value_range=(0, 100), seed=0),
        dprl.Confident(gamma=1.0, check=False, seed=0).fit(log),
        dprl.DPRLContinuous(n_min=3, radius=1.0, gamma=1.0).fit(points),
    ]
    files = [Path(folder) / f"{number}.dprl" for number in range(len(policies))]
    for policy, path in zip(policies, files, strict=True):
        policy.save(path)
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    value = dprl.evaluate(policies[0], held_out, draws=20, seed=0)
    return repr([digests, value.to_dict()])


def test_every_number_is_the_same_without_machine_code(tmp_path):
    code = "import json, sys, test_interpreted as t; json.dump(t.job(sys.argv[1]), sys.stdout)"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.path.dirname(__file__)},
    )  # fmt: skip
    assert json.loads(done.stdout) == job(tmp_path)


def test_a_kernel_is_its_source_where_nothing_is_compiled(monkeypatch):
    from dprl._core import compiled

    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    monkeypatch.setattr(compiled, "KERNELS", {})

    @compiled.compiled
    def shares(a, b):
        return a / b

    assert compiled.KERNELS[f"{__name__}.{shares.__qualname__}"] is shares
    assert shares.py_func is shares.__wrapped__
    assert shares(np.float64(1.0), np.float64(0.0)) == np.inf  # as machine code: no warning


@pytest.mark.slow
def test_doctor_says_that_nothing_is_compiled():
    done = subprocess.run(
        [sys.executable, "-m", "dprl", "doctor", "--json"], capture_output=True, text=True,
        check=False, env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    facts = json.loads(done.stdout)
    assert done.returncode == 1
    assert facts["kernels"]["warm"] == 0
    assert any("NUMBA_DISABLE_JIT" in line for line in facts["trouble"])
