"""Cut episodes over features: what comes after is what came after near the place last seen."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dprl
from dprl import DPRLContinuous, Metric
from dprl.apps.reports.changes import describe_changes
from dprl.errors import CutWarning, ParameterError
from dprl.evidence.neighbors import engine as near_module
from dprl.evidence.neighbors.engine import near
from dprl.logs.censoring import treat_cut
from dprl.logs.log import CUT, TERMINAL


def random_log(seed, episodes=14, groups=None, places=6, d=2):
    """Steps on a few places of a line (ties abound), some episodes cut."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, episodes)
    n = int(lengths.sum())
    x = np.zeros((n, d))
    x[:, 0] = rng.integers(0, places, n)
    return dprl.Log(
        starts=np.concatenate(([0], np.cumsum(lengths))),
        action=rng.integers(0, 2, n).astype(np.int32),
        reward=rng.integers(-2, 3, n).astype(float),
        actions=("a", "b"),
        features=x,
        feature_names=tuple("xyz"[:d]),
        ended=np.where(rng.random(episodes) < 0.4, CUT, TERMINAL).astype(np.uint8),
        **({} if groups is None else {
            "group": np.arange(episodes) % groups, "groups": tuple(range(groups))}),
    )  # fmt: skip


def rows_of(log, e):
    return list(range(log.starts[e], log.starts[e + 1]))


def slow(log, gamma, radius, first):
    """Rewards of the episodes that remain, by the definition: loops, and values by iteration."""
    episodes = [e for e in range(log.n_episodes) if log.ended[e] != CUT or len(rows_of(log, e)) > 1]
    while True:
        kept = {e: rows_of(log, e)[: -1 if log.ended[e] == CUT else None] for e in episodes}
        asks = {}
        for e in episodes:
            if log.ended[e] != CUT:
                continue
            here, found, seen = log.features[log.starts[e + 1] - 1], [], set()
            for f in sorted(episodes, key=lambda f: (log.group[f], f)):
                for t in kept[f]:
                    if np.sum((log.features[t] - here) ** 2) > radius**2:
                        continue
                    if log.group[f] == log.group[e] or (first and log.group[f] in seen):
                        continue
                    seen.add(log.group[f])
                    found.append((f, t))
            asks[e] = found
        good = {e for e in asks if asks[e]}
        if gamma == 1:
            good = set()
            while True:
                more = {e for e in asks if any(f not in asks or f in good for f, _ in asks[e])}
                if more == good:
                    break
                good = more
        if good == set(asks):
            break
        episodes = [e for e in episodes if e not in asks or e in good]
    worth = dict.fromkeys(asks, 0.0)
    for _ in range(4000 if gamma == 1 else 300):
        new = {}
        for e, found in asks.items():
            total = 0.0
            for f, t in found:
                ahead = [s for s in kept[f] if s >= t]
                total += sum(gamma**k * log.reward[s] for k, s in enumerate(ahead))
                total += gamma ** len(ahead) * worth[f] if f in asks else 0.0
            new[e] = total / len(found)
        worth = new
    out = {}
    for e in episodes:
        r = [float(log.reward[t]) for t in kept[e]]
        if e in asks:
            r[-1] += gamma * worth[e]
        out[log.episodes[e]] = r
    return out


def quick(log, gamma, radius, first):
    fitted = Metric(scale="none").fit(log)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CutWarning)
        found = treat_cut(log, gamma, "bootstrap", near(fitted, radius, first=first))
    return {
        name: found.reward[found.starts[e] : found.starts[e + 1]].tolist()
        for e, name in enumerate(found.episodes)
    }


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6), gamma=st.sampled_from([0.5, 0.9, 1.0]), first=st.booleans(),
    radius=st.sampled_from([0.0, 1.0, 2.5]), groups=st.sampled_from([None, 5]),
)  # fmt: skip
def test_against_the_definition(seed, gamma, first, radius, groups):
    log = random_log(seed, groups=groups)
    if gamma == 1:  # iteration needs an end within reach; the finished third of the log is one
        log = replace(log, ended=np.where(np.arange(14) % 3 == 0, TERMINAL, log.ended))
    wanted = slow(log, gamma, radius, first)
    if not wanted:
        with pytest.raises(dprl.LogError, match="none is left"):
            quick(log, gamma, radius, first)
        return
    found = quick(log, gamma, radius, first)
    assert set(found) == set(wanted)
    for name, rewards in wanted.items():
        np.testing.assert_allclose(found[name], rewards, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), gamma=st.sampled_from([0.7, 1.0]))
def test_radius_zero_is_the_labelled_bootstrap(seed, gamma):
    """Where no trajectory came by the place it was last seen in before: own visits do not count."""
    log = random_log(seed)
    own = [
        e for e in log.cut_episodes
        if log.features[log.starts[e + 1] - 1, 0] in log.features[rows_of(log, e)[:-1], 0]
    ]  # fmt: skip
    ended = log.ended.copy()
    ended[own] = TERMINAL
    log = replace(log, ended=ended)
    labelled = replace(
        log, features=None, feature_names=(), state=log.features[:, 0].astype(np.int32),
        states=tuple(range(6)),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CutWarning)
        try:
            wanted = treat_cut(labelled, gamma, "bootstrap")
        except dprl.LogError:
            return
    found = quick(log, gamma, 0.0, True)
    assert list(found) == list(wanted.episodes)
    np.testing.assert_allclose(np.concatenate(list(found.values())), wanted.reward, atol=1e-12)


@pytest.mark.parametrize("first", [True, False])
def test_places_asked_a_few_at_a_time(first, monkeypatch):
    log = random_log(5, episodes=40)
    whole = quick(log, 0.9, 1.0, first)
    monkeypatch.setattr(near_module, "CHUNK", 3)
    assert quick(log, 0.9, 1.0, first) == whole
    assert len(log.cut_episodes) > 9


def two_kinds(n=60, seed=0):
    """From x near 0, b leads to x near 5 and then to 1, a to nothing; half is cut at 5."""
    rng = np.random.default_rng(seed)
    starts, x, action, reward, ended = [0], [], [], [], []
    for e in range(n):
        b = e % 2
        x += [rng.normal(0, 0.1), rng.normal(5, 0.1)] if b else [rng.normal(0, 0.1)]
        action += [1, 0] if b else [0]
        cut = b and e % 4 == 3
        reward += [0.0, 0.0 if cut else 1.0] if b else [0.2]
        ended.append(CUT if cut else TERMINAL)
        starts.append(len(x))
    return dprl.Log(
        starts=np.array(starts), action=np.array(action, np.int32), reward=np.array(reward),
        actions=("a", "b"), features=np.array(x)[:, None], feature_names=("x",),
        ended=np.array(ended, np.uint8),
    )  # fmt: skip


def test_what_was_cut_counts_as_it_went_on_elsewhere():
    log, gamma = two_kinds(), 0.9
    asked = {"n_min": 5, "radius": 1.0, "gamma": gamma, "metric": Metric(scale="none")}
    policy = DPRLContinuous(cut="bootstrap", **asked).fit(log)
    q = policy.at([[0.0]]).Q[0]
    np.testing.assert_allclose(q, [0.2, 0.9], atol=1e-12)  # 15 finished and 15 cut, worth the same
    biased = DPRLContinuous(cut="terminal", **asked).fit(log).at([[0.0]]).Q[0]
    np.testing.assert_allclose(biased, [0.2, 0.45], atol=1e-12)


def test_every_radius_has_tails_of_its_own():
    log = two_kinds()
    learner = DPRLContinuous(n_min=5, radius=1.0, gamma=0.9, cut="bootstrap", plan=True)
    each = [{"radius": r, "n_min": n} for r in (0.5, 3.0) for n in (5, 10)]
    together = list(learner.fit_each(log, each))
    alone = [replace(learner, **setting).fit(log) for setting in each]
    assert [p.digest() for p in together] == [p.digest() for p in alone]
    assert len({p.digest() for p in together}) == 4


@pytest.mark.slow
def test_judging_and_describing_take_the_policy_as_it_looks():
    log, held_out = two_kinds(), two_kinds(seed=1)
    policy = DPRLContinuous(n_min=5, radius=1.0, gamma=0.9, cut="bootstrap").fit(log)
    found = dprl.evaluate(policy, held_out, draws=20)
    assert found.behavior["value"] == pytest.approx((0.2 + 0.9) / 2)
    swapped = replace(
        held_out, feature_names=("w", "x"),
        features=np.column_stack((np.arange(held_out.n_steps), held_out.features)),
    )  # fmt: skip
    again = dprl.evaluate(policy, swapped, draws=20)
    assert again.behavior["value"] == pytest.approx((0.2 + 0.9) / 2)
    spoken = describe_changes(policy, log)
    assert spoken.changes
    with pytest.raises(ParameterError, match="a policy that knows what is near"):
        dprl.evaluate(
            dprl.CallablePolicy(lambda x: np.zeros(len(x), int), actions=("a", "b")), held_out,
            gamma=0.9, cut="bootstrap", draws=20,
        )  # fmt: skip
    with pytest.raises(dprl.LogError, match="cut and bootstrapped"):
        dprl.gate(
            DPRLContinuous(n_min=5, radius=1.0, gamma=0.9, cut="bootstrap"), log,
            value_range=(0, 1), delta=0.05,
        )  # fmt: skip
