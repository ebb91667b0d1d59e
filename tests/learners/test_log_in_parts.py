"""What is learned from a log in parts is what is learned from the same log in memory."""

from __future__ import annotations

import numpy as np
import pytest

import dprl
from dprl.logs.parts import parts_of

pytestmark = pytest.mark.slow  # whole commands, whole studies


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


@pytest.mark.filterwarnings("ignore::dprl.CutWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("evidence", ["model", "returns"])
def test_a_confident_policy_is_the_same_byte_for_byte(kind, evidence, tmp_path):
    log = read(wards(episodes=60, **KINDS[kind]))
    for cut in ("drop-unrelated", "terminal") if kind == "cut" else (None,):
        learner = dprl.Confident(gamma=0.9, risk=0.4, check=False, cut=cut, evidence=evidence)
        one = bytes_of(learner.fit(log), tmp_path / "a")
        assert one == bytes_of(learner.fit(parts_of(log, 70)), tmp_path / "b")


def test_what_needs_the_whole_log_is_refused():
    parts = parts_of(read(wards(cut=True)), 50)
    for cut, plan in (("bootstrap", True), ("ipcw", False)):
        with pytest.raises(dprl.ParameterError, match=f"cut='{cut}' needs the whole log") as error:
            dprl.DPRLDiscrete(n_min=4, gamma=0.9, cut=cut, plan=plan).fit(parts)
        assert len(str(error.value).splitlines()) == 3
    with pytest.raises(dprl.ParameterError, match="needs the whole log in memory"):
        dprl.Confident(gamma=0.9, cut="terminal").fit(parts)
    with pytest.raises(dprl.ParameterError, match="needs the whole log in memory"):
        dprl.Confident(gamma=0.9, cut="terminal", check=False, evidence="excursions").fit(parts)
    with pytest.raises(dprl.ParameterError, match="needs the log in memory"):
        dprl.gate(dprl.DPRLDiscrete(n_min=4, gamma=0.9), parts, value_range=(-9, 9))
    with pytest.raises(
        dprl.LogError, match="a confident policy would be about those that are left"
    ):
        dprl.Confident(gamma=0.9, cut="drop", check=False).fit(parts)


def test_cut_episodes_are_told_of_once():
    data = wards(cut=True)
    with pytest.warns(dprl.CutWarning) as in_memory:
        dprl.DPRLDiscrete(n_min=4, gamma=0.9).fit(read(data))
    with pytest.warns(dprl.CutWarning) as in_parts:
        dprl.DPRLDiscrete(n_min=4, gamma=0.9).fit(parts_of(read(data), 50))
    assert [str(w.message) for w in in_parts] == [str(w.message) for w in in_memory]


def test_all_episodes_cut_leaves_none():
    data = wards(cut=True)
    data["ended"] = ["cut"] * len(data["reward"])
    log = read(data)
    errors = []
    for source in (log, parts_of(log, 50)):
        with pytest.raises(dprl.LogError) as error:
            dprl.DPRLDiscrete(n_min=4, gamma=0.9, cut="drop").fit(source)
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_luck_of_parts_reaches_the_plan(monkeypatch):
    from dprl.planning import luck

    calls = []
    build = luck.build_semi_mdp
    monkeypatch.setattr(luck, "build_semi_mdp", lambda *given: calls.append(given) or build(*given))
    log = read(wards(groups=True, times=True))
    learner = dprl.DPRLDiscrete(n_min=4, gamma=0.9)
    assert learner.fit(parts_of(log, 50)).provenance["luck"] == learner.fit(log).provenance["luck"]
    assert calls
