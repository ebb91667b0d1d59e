"""What is learned from a log in parts is what is learned from the same log in memory."""

from __future__ import annotations

import numpy as np
import pytest

import dprl
from dprl.logs.parts import parts_of


def wards(seed=0, episodes=120, *, groups=False, cut=False, menus=False, times=False, text=False):
    """A log of five states in which episodes have one to six steps, with what is asked for."""
    rng = np.random.default_rng(seed)
    length = rng.integers(1, 7, episodes)
    n, which = int(length.sum()), np.repeat(np.arange(episodes), length)
    step = np.concatenate([np.arange(k) for k in length])
    action = rng.integers(0, 3, n)
    state = rng.integers(0, 5, n)
    data = {
        "episode": [f"é{i:03d}" for i in which] if text else which,
        "state": [f"ward {s}" for s in state],
        "action": action,
        "reward": rng.normal(size=n) + 0.3 * (action == state % 3),
        "time": step + 10 * rng.integers(0, 9, episodes)[which] if times else step,
    }
    if groups:
        data["group"] = [f"p{g}" for g in rng.integers(0, episodes // 2, episodes)[which]]
    if cut:
        ending = np.array(["terminal", "cut", "death"])[rng.integers(0, 3, episodes)]
        data["ended"] = ending[which]
    if menus:
        others = rng.integers(0, 3, n)
        data["available"] = [
            "0|1|2" if s < 3 else "|".join(str(x) for x in sorted({a, b}))
            for s, a, b in zip(state, action, others, strict=True)
        ]
    return data


def read(data):
    return dprl.from_arrays(**data, events=["death"] if "ended" in data else None)


def bytes_of(policy, path):
    policy.save(path)
    return path.read_bytes()


KINDS = {
    "plain": {},
    "groups": {"groups": True, "times": True},
    "cut": {"cut": True, "groups": True, "times": True},
    "menus": {"menus": True},
    "text": {"text": True, "groups": True},
}


@pytest.mark.parametrize("rows", [40, 150, 10_000])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plan", [True, False])
def test_the_policy_file_is_the_same_byte_for_byte(kind, rows, plan, tmp_path):
    log = read(wards(**KINDS[kind]))
    parts = parts_of(log, rows)
    assert rows == 10_000 or len(parts) > 1
    cuts = ("terminal", "drop", "drop-unrelated") if kind == "cut" else (None,)
    for cut in cuts:
        for visits in ("first", "all"):
            learner = dprl.DPRLDiscrete(n_min=4, gamma=0.9, plan=plan, cut=cut, visits=visits)
            one = learner.fit(log)
            assert one.allowed.any()
            assert bytes_of(one, tmp_path / "a") == bytes_of(learner.fit(parts), tmp_path / "b")
