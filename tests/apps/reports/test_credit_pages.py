"""Policies that compare credit: the command line, the report, the review and the service."""

from __future__ import annotations

import json
import re
from html import unescape

import numpy as np
import pandas as pd
import pytest
from starlette.testclient import TestClient

import dprl
from conftest import options
from dprl.apps.reports.changes import describe_changes
from dprl.apps.review.app import review_app
from dprl.apps.review.verdicts import Verdicts
from dprl.apps.serve.answers import Answers
from dprl.apps.serve.served import description

TOKEN = "a-token-nobody-guesses"
COLUMNS = {"episode": "stay", "state": "x_*", "action": "drug", "reward": "score"}


def table(seed=4, n=400):
    """Low pressure: fluids help; high pressure: they do not."""
    rng = np.random.default_rng(seed)
    pressure = rng.uniform(40, 100, n)
    drug = np.where(rng.random(n) < 0.3, "fluids", "wait")
    good = (pressure < 65) == (drug == "fluids")
    return pd.DataFrame({
        "stay": range(n), "x_pressure": pressure, "x_lactate": rng.uniform(0, 5, n), "drug": drug,
        "score": good + 0.2 * rng.normal(size=n),
    })  # fmt: skip


@pytest.fixture(scope="module")
def credited():
    learner = dprl.DPRLContinuous(n_min=5, radius=0.5, gamma=1.0, lam=1)
    return learner.fit(dprl.from_frame(table(), **COLUMNS))


@pytest.fixture(scope="module")
def held():
    return dprl.from_frame(table(seed=5), **COLUMNS)


def flat(text):
    words = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", words)))


@pytest.mark.slow
def test_the_command_line(run):
    table().to_parquet("stays.parquet")
    fit = ["fit", "stays.parquet", *options(COLUMNS), "--n-min", 5, "--gamma", 1]
    code, out, err = run(*fit, "--radius", 0.5, "--lam", 0.5)
    assert code == 0, err
    policy = dprl.load("policy.dprl")
    assert policy.parameters["lam"] == 0.5
    for sentence in policy.stated:
        assert sentence in " ".join(out.split())
    code, out, _ = run("changes", "policy.dprl", "--json")
    assert json.loads(out)["stated"] == list(policy.stated)
    code, out, _ = run(*fit, "--radius", 0.5, "--lam", 0.5, "--json")
    assert json.loads(out)["stated"] == list(policy.stated)
    code, out, _ = run(*fit, "--radius", 0.5, "--json")
    assert "stated" not in json.loads(out)
    code, _, err = run(*fit, "--radius", 0.5, "--lam", 2)
    assert (code, "lam must be a number in [0, 1]" in err) == (1, True)


def test_the_command_line_wants_features_and_the_learner_dprl(run, visits):
    path, columns = visits
    fit = ["fit", path, *options(columns), "--gamma", 0.9, "--lam", 0.5]
    code, _, err = run(*fit, "--n-min", 20)
    assert (code, "--lam is for features" in err) == (1, True)
    code, _, err = run(*fit, "--learner", "confident")
    assert (code, "--lam: not for the learner confident" in err) == (1, True)


@pytest.mark.slow
def test_a_report_and_a_review_call_values_credit(credited, held, tmp_path):
    dprl.report(credited, held, tmp_path / "r.html", draws=50, values=False)
    described = describe_changes(credited, held)
    verdicts = Verdicts(
        tmp_path / "v.sqlite", credited.digest(), [c.key for c in described.changes]
    )
    app = review_app(
        described, verdicts, tmp_path / "approved.dprl", token=TOKEN, needs=1, cases=True
    )
    client = TestClient(app, base_url="http://127.0.0.1:9", follow_redirects=False)
    key = described.changes[0].key
    report = flat((tmp_path / "r.html").read_text())
    change = flat(client.get(f"/{TOKEN}/change/{key}").text)
    for page in (report, change):
        assert "Mean credit after first visits" in page
        assert "Mean return after first visits" not in page
    assert "Credit after" in change
    for sentence in credited.stated:
        assert sentence in report
        assert sentence in flat(client.get(f"/{TOKEN}/").text)


def test_the_service_says_it(credited):
    about = Answers(credited).about()
    assert (about["stated"], about["gain"]) == (list(credited.stated), None)
    assert "sure_advantage" not in json.dumps(description(credited, False))
