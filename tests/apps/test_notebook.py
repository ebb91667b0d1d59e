"""In a notebook every noun shows itself: as HTML, with what it is about, and every label escaped."""

from __future__ import annotations

import functools
import re

import numpy as np
import pandas as pd
import pytest

import dprl

EVIL = "<script>alert(1)</script>"


@functools.cache
def nouns():
    rng = np.random.default_rng(0)
    n = 400
    rows = pd.DataFrame({
        "patient": range(n), "state": rng.choice(["ill", EVIL], n),
        "action": rng.choice(["drug", "wait"], n, p=[0.35, 0.65]), "age": rng.normal(60, 9, n),
    })  # fmt: skip
    rows["reward"] = (rng.random(n) < 0.3 + 0.5 * (rows.action == "drug")).astype(float)
    columns = {"episode": "patient", "state": "state", "action": "action", "reward": "reward"}
    log = dprl.from_frame(rows, **columns, also=["age"])
    train, test = log.split(0.5, seed=0)
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    policy = learner.fit(train)
    evaluation = dprl.evaluate(policy, test, draws=20, values=False)
    plain = dprl.from_frame(rows, **columns, also=())
    gated = dprl.gate(learner, plain, value_range=(0, 1))
    return {
        "log": log,
        "check": dprl.check(rows, **columns),
        "policy": policy,
        "gated policy": gated,
        "certificate": gated.certificate,
        "explanation": policy.explain(EVIL),
        "changes": policy.changes(),
        "evaluation": evaluation,
        "balance": evaluation.balance,
        "behaviour": dprl.Behavior.fit(log),
        "sweep": dprl.sweep(learner, train, test, n_min=[20, 40], values=False, draws=20),
        "sensitivity": dprl.sensitivity(policy, test, gamma=[1, 2], draws=20),
        "Markov check": dprl.markov_check(log, gamma=1.0),
        "monitor": dprl.Monitor(gated).look(),
        "rival": dprl.baselines.SPIBB(n_min=20, gamma=1.0).fit(train),
        "model": dprl.CallablePolicy(lambda s: ["drug"] * len(s), actions=log.actions),
        "figure": dprl.figures.forest(policy),
    }


NAMES = (
    "log", "check", "policy", "gated policy", "certificate", "explanation", "changes", "evaluation",
    "balance", "behaviour", "sweep", "sensitivity", "Markov check", "monitor", "rival", "model",
    "figure",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_it_shows_itself(name):
    shown = nouns()[name]._repr_html_()
    assert re.match(r"\s*<", shown)
    assert len(re.sub(r"<style.*?</style>|<[^>]*>", "", shown, flags=re.DOTALL).strip()) > 10
    assert "<script" not in shown


def test_a_log_says_what_was_done():
    log = nouns()["log"]
    shown = log._repr_html_()
    assert repr(log) in shown
    counts = np.bincount(log.action)
    for action, count in zip(log.actions, counts, strict=True):
        assert f"<td>{action}</td><td>{count}</td>" in shown


def test_no_row_is_left_out_of_the_list():
    assert set(NAMES) == set(nouns())
