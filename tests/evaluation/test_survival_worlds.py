"""Six worlds of known truth: 95 % intervals on completed outcomes hold what would have come."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dprl

WORLDS = ("independent", "features", "action", "heavy", "competing", "two")
HORIZON = 2.0
OPTIONS = {"state": "s", "action": "arm", "survival": ("days", "status"), "horizon": HORIZON,
           "episode": "id", "also": ()}  # fmt: skip


def events(x, a, rng):
    """Times to event; the drug helps where x is 2, and harms where it is 0."""
    ratio = np.exp(0.5 * (x - 1) - 0.5 * a * (x == 2) + 0.5 * a * (x == 0) - 0.1 * a)
    return 2.5 * (-np.log(rng.random(len(x))) / ratio) ** (1 / 1.3)


def actions(x, says, rng):
    own = (rng.random(len(x)) < 1 / (1 + np.exp(-0.6 * (x - 1)))).astype(int)
    wanted = np.array([says.get(k, -1) for k in x.tolist()])
    return np.where(wanted < 0, own, wanted)


def drawn(world, n, rng, says=({}, {})):
    """A table and what came of everybody; `says`: x → action of a policy, at each decision."""
    x = rng.integers(0, 3, n)
    a = actions(x, says[0], rng)
    T, cause = events(x, a, rng), np.ones(n, int)
    scale = {"features": 4 * np.exp(-0.9 * (x - 1)), "heavy": 2.4 * np.exp(-0.3 * a - 0.2 * x),
             "hardly": 1.6 * np.exp(-0.4 * a - 0.3 * x),
             "action": np.where(a == 1, 2.0, 6.0) * np.exp(-0.4 * (x - 1))}  # fmt: skip
    C = rng.exponential(scale.get(world, np.full(n, 4.0)))
    if world == "competing":
        other = rng.exponential(3.5 * np.exp(-0.4 * a))
        cause, T = np.where(other < T, 2, 1), np.minimum(T, other)
    later = np.clip(x + rng.integers(-1, 2, n) - a * (rng.random(n) < 0.3), 0, 2)
    if world == "two":
        b = actions(later, says[1], rng)
        T = np.where(T < 0.7, T, 0.7 + events(later, b, rng))
        C = np.where(C < 0.7, C, 0.7 + rng.exponential(np.where(b == 1, 1.5, 4.0)))
    table = pd.DataFrame({"id": np.arange(n), "k": 0, "s": x, "arm": a, "days": np.minimum(T, C),
                          "status": np.where(T <= C, cause, 0)})  # fmt: skip
    if world == "two":
        more = table.assign(k=1, s=10 + later, arm=b, days=table["days"] - 0.7)
        table = pd.concat([table, more[more["days"] > 0]])
    came = (T <= HORIZON) & (cause == 1) if world == "competing" else T > HORIZON
    return table, came.mean()


def read(world, table):
    options = {"target": "risk", "events": ["2"]} if world == "competing" else {}
    return dprl.from_frame(table, time="k", **OPTIONS, **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*single ones weigh much:dprl.CutWarning")
@pytest.mark.parametrize("world", WORLDS)
def test_intervals_hold_the_truth(world):
    cut = "ipcw" if world == "two" else None
    train = read(world, drawn(world, 4000, np.random.default_rng(7))[0])
    policy = dprl.DPRLDiscrete(n_min=60, gamma=1.0, plan=False, cut=cut).fit(train)
    told = dict(zip(policy.states, policy.act(list(policy.states)), strict=True))
    says = [{s - add: int(a) for s, a in told.items() if s // 10 == add // 10 and a in (0, 1)}
            for add in (0, 10)]  # fmt: skip
    assert says[0]
    value, usual = (
        drawn(world, 300_000, np.random.default_rng(seed), which)[1]
        for seed, which in ((1, says), (2, ({}, {})))
    )
    missed, apart = 0, []
    for k in range(30):
        log = read(world, drawn(world, 800, np.random.default_rng(500 + k))[0])
        result = dprl.evaluate(policy, log, draws=200, seed=k)
        row = result.rows[result.headline]
        missed += not row["difference_low"] <= value - usual <= row["difference_high"]
        apart.append(row["difference"] - (value - usual))
    assert missed <= 6  # of a level of .07 one time in 5,000
    assert abs(np.mean(apart)) < 4 * np.std(apart) / 30**0.5


def test_where_hardly_anybody_is_followed_nothing_is_said():
    with pytest.raises(dprl.LogError, match="beyond the follow-up of"):
        read("hardly", drawn("hardly", 4000, np.random.default_rng(7))[0])
