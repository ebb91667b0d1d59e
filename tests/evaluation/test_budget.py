"""A budget pays for changes in the order of what they bring per amount, and says the last price."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog

import dprl
from dprl.errors import LogError, ParameterError, PolicyError
from dprl.evaluation import budget, by_part
from dprl.evaluation._budget import _bought

GAINS = {"a": 0.4, "b": 0.2, "c": 0.1, "d": -0.1}
COLUMNS = {"episode": "id", "state": "s", "action": "do"}


def made(n=3000, seed=0, sign=1):
    rng = np.random.default_rng(seed)
    s, call = rng.choice(list(GAINS), n), rng.random(n) < 0.3
    sold = rng.random(n) < 0.4 + sign * np.array([GAINS[k] for k in s]) * call
    return pd.DataFrame(
        {"id": np.arange(n) + seed * n, "s": s, "do": np.where(call, "call", "wait"),
         "sold": sold.astype(float)}
    )  # fmt: skip


@functools.cache
def learned(sign=1, **options):
    train, test = (
        dprl.from_frame(made(seed=k, sign=sign), reward="sold", **COLUMNS, **options)
        for k in (0, 1)
    )
    return dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(train), test


def test_the_best_come_first_and_the_next_has_the_price():
    policy, test = learned()
    paid = budget(policy, test, most=0.5, costs={"call": 1}, draws=50)
    rows = {row["where"]: row for row in paid.rows}
    assert [row["where"] for row in paid.rows] == ["d", "a", "b", "c"]  # to wait saves
    assert [row["kept"] for row in paid.rows] == [True, True, False, False]
    assert rows["a"]["gain"] == pytest.approx(0.25 * 0.7 * 0.4, abs=0.02)
    assert rows["a"]["spent"] == pytest.approx(0.25 * 0.7, abs=0.02)
    assert paid.price == pytest.approx(0.2, abs=0.1)
    assert paid.spent <= 0.5
    assert paid.spent == pytest.approx(paid.rows[1]["total"], abs=0.01)
    said = {str(s): str(paid.policy.act([s])[0]) for s in "abcd"}
    assert said == {"a": "call", "b": "DEFER", "c": "DEFER", "d": "wait"}
    every = budget(policy, test, most=1, costs=["call=1"], draws=50)
    assert every.price is None
    assert all(row["kept"] for row in every.rows)
    assert "larger budget brings nothing" in every.lines()[-1]


def test_rules_are_named_in_words():
    train, test = (
        dprl.from_frame(made(900, seed=k).assign(x=1.0, z=0.0), episode="id", state=["x", "z"],
                        action="do", reward="sold", also=())
        for k in (0, 1)
    )  # fmt: skip
    policy = dprl.Rules(gamma=1.0, splits=1, depth=1).fit(train)
    (row,) = budget(policy, test, most=1, costs={"call": 1}, draws=50).rows
    assert row["where"] == "everywhere"


def test_where_less_is_better_the_best_still_come_first():
    policy, test = learned(sign=-1, better="lower")
    paid = budget(policy, test, most=0.5, costs={"call": 1}, draws=50)
    assert [row["where"] for row in paid.rows] == ["d", "a", "b", "c"]
    assert paid.rows[1]["gain"] < 0
    assert paid.gain[0] < 0


def test_no_other_set_of_changes_gains_more_for_the_same_budget():
    """Also where the best per amount does not fit, and where what saves a lot loses a little."""
    assert _bought(np.array([10.0, 1.0]), np.array([0.5, 0.1]), 0.3)[0].tolist() == [False, True]
    kept, price = _bought(np.array([1.0, -0.1]), np.array([0.3, -0.2]), 0.1)
    assert kept.tolist() == [True, True]
    assert price is not None
    rng = np.random.default_rng(3)
    for _ in range(40):
        gain, spent = rng.normal(size=6), rng.normal(0.3, 0.5, 6)
        room = spent[spent < 0].sum() + rng.random()
        kept, price = _bought(gain, spent, room)
        sets = np.array(list(itertools.product((False, True), repeat=6)))
        sets = sets[sets @ spent <= room + 1e-9]
        assert gain[kept].sum() == pytest.approx((sets @ gain).max())
        assert spent[kept].sum() <= room + 1e-6
        # the price is what one unit more brings where changes can be bought in parts
        ends = [
            linprog(-gain, spent[None], [room + more], bounds=(0, 1)).fun for more in (1e-5, -1e-5)
        ]
        if room - 1e-5 > spent[spent < 0].sum():
            assert (price or 0.0) == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=0.5, abs=1e-3)


def test_what_is_censored_between_decisions_is_not_spent_or_guarded():
    """What is completed of them is the outcome: spending took it for what was spent."""
    rng, n = np.random.default_rng(0), 300
    days = rng.exponential(1.0, n)
    rows = pd.DataFrame({"id": np.arange(n), "k": 0, "s": "a", "do": rng.choice(["x", "y"], n),
                         "days": days, "dead": rng.integers(0, 2, n), "hurt": 0.0})  # fmt: skip
    later = rows[days > 0.4].assign(k=1, s="b", days=days[days > 0.4] - 0.4)
    log = dprl.from_frame(
        pd.concat([rows, later]), time="k", survival=("days", "dead"), horizon=1.0, guard=["hurt"],
        also=(), **COLUMNS,
    )  # fmt: skip
    half, other = log.split(0.5, seed=0)
    policy = dprl.DPRLDiscrete(n_min=5, gamma=1.0, plan=False, cut="ipcw").fit(half)
    for ask in (
        lambda: budget(policy, other, most=1, costs={"x": 1}, draws=50),
        lambda: by_part(policy, other, draws=50),
    ):
        with pytest.raises(LogError, match="reads single steps"):
            ask()


def test_what_cannot_be_paid_or_meant_is_refused():
    policy, test = learned()
    with pytest.raises(ParameterError, match="nothing that saves brings it down"):
        budget(policy, test, most=0.1, costs={"call": 1}, draws=50)
    with pytest.raises(LogError, match="no action is called so"):
        budget(policy, test, most=0.5, costs={"phone": 1}, draws=50)
    for most in (np.nan, np.inf, -1, "half"):
        with pytest.raises(ParameterError, match="most must be a number"):
            budget(policy, test, most=most, costs={"call": 1})
    with pytest.raises(ParameterError, match="what each action spends"):
        budget(policy, test, most=0.5, costs=None)
    with pytest.raises(PolicyError, match="one by one"):
        budget(dprl.CallablePolicy(lambda s: ["wait"] * len(s), actions=["wait"], trained_on=[]),
               test, most=0.5, costs={"call": 1}, draws=50)  # fmt: skip
