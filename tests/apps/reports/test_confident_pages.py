"""Policies that say how sure they are: the report, the review, the notebook and the service."""

from __future__ import annotations

import contextlib
import re
import time
import warnings
from dataclasses import replace
from html import unescape

import pytest
from starlette.testclient import TestClient

import dprl
from dprl.apps.reports.changes import describe_changes
from dprl.apps.review.app import review_app
from dprl.apps.review.verdicts import Verdicts
from dprl.apps.serve.app import serve_app

CARE, HIDDEN = dprl.envs.care_pathway(), dprl.envs.delayed()
TOKEN = "a-token-nobody-guesses"


@pytest.fixture(scope="module")
def held():
    return CARE.sample(400, seed=2)


@pytest.fixture(scope="module")
def sure():
    """A policy of states that are enough."""
    return dprl.Confident(gamma=1.0).fit(CARE.sample(500, seed=0))


@pytest.fixture(scope="module")
def fooled():
    """A policy of states that are not enough, and a log to judge it by."""
    with pytest.warns(dprl.StateWarning):
        policy = dprl.Confident(gamma=1.0, promise=False).fit(HIDDEN.sample(200, seed=0))
    return policy, HIDDEN.sample(200, seed=1)


def flat(text):
    """The words of a page without its pictures, each white space one blank."""
    words = re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", words))).replace("\u00a0", " ")


def written(policy, log, folder, **options):
    dprl.report(policy, log, folder / "r.html", draws=50, values=False, **options)
    return (folder / "r.html").read_text()


def notices(text):
    """(words, whether it is a warning) of each notice of a page."""
    rows = re.findall(r'<p class="notice( warning)?">(.*?)</p>', text, re.DOTALL)
    return {flat(words).strip(): bool(warning) for warning, words in rows}


def shown(value, sign=False):
    """A number as pages write it, with three decimals."""
    return f"{value:{'+' if sign else ''}.3f}".replace("-", "\u2212")


def words_of(change):
    """What pages say of a change that the learner is sure of."""
    sure = change.sure
    return (
        f"{shown(sure.advantage, True)} (standard error {shown(sure.se)}, "
        f"at least {shown(sure.low, True)}) {sure.episodes:,} episodes did it here."
    )


def test_changes_carry_how_sure_they_are_and_the_surest_come_first(sure, held):
    described = describe_changes(sure, held)
    rows = sure.changes().to_dicts()
    assert described.sure_in == "the model"
    assert [c.state for c in described.changes] == [row["state"] for row in rows]
    for change, row in zip(described.changes, rows, strict=True):
        numbers = (change.sure.advantage, change.sure.se, change.sure.low, change.sure.episodes)
        assert numbers == (
            row["sure_advantage"], row["sure_se"], row["sure_low"], row["episodes"]
        )  # fmt: skip
        middle = (change.sure.low + change.sure.high) / 2
        assert middle == pytest.approx(change.sure.advantage)
    lows = [c.sure.low for c in described.changes]
    by_returns = sorted(described.changes, key=lambda c: -c.low)
    assert lows == sorted(lows, reverse=True)
    assert [c.key for c in by_returns] != [c.key for c in described.changes]
    counted = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(CARE.sample(500, seed=0))
    assert describe_changes(counted, held).sure_in == ""
    assert {c.sure for c in describe_changes(counted, held).changes} == {None}


def test_a_report_says_what_the_policy_states(sure, held, tmp_path):
    text = written(sure, held, tmp_path)
    for sentence in sure.stated:
        assert notices(text)[sentence] is False
        assert text.index(flat(sentence)[:40]) > text.index('id="sure"')
    page = flat(text)
    changes = describe_changes(sure, held).changes
    for change in changes:
        assert f"In the model {words_of(change)}" in page
    assert "What the rule saw" not in page
    assert "what the rule looked at" not in page
    assert page.count("Returns, an independent look") == len(changes)
    assert "by the lower end of the interval in the model" in page
    assert "if all suggestions after it are followed too" not in page
    assert "dprl gate keeps only what a log proves" not in page
    assert page.count("Not sure by itself:") == sum(c.sure.low <= 0 for c in changes) == 1
    assert "markov =" not in page
    counted = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(CARE.sample(500, seed=0))
    page = flat(written(counted, held, tmp_path))
    assert "What the rule saw" in page
    assert "an independent look" not in page
    assert "In the model" not in page


def test_a_state_that_is_not_enough_is_warned_of_everywhere(fooled, tmp_path):
    policy, log = fooled
    text = written(policy, log, tmp_path)
    gain, _, assumed, checked = policy.stated
    assert notices(text)[f"Be wary: {gain}"] is True
    assert notices(text)[checked] is True
    assert text.index("The state does not seem to be enough") < text.index('id="changes"')
    assert notices(text)[assumed] is False
    changes = describe_changes(policy, log).changes
    against = sum(c.high < 0 for c in changes)
    assert against > 0
    assert flat(text).count("These returns contradict the change:") == against
    client, described = site(policy, log, tmp_path)
    assert notices(client.get(f"/{TOKEN}/").text)[f"Be wary: {checked}"] is True
    page = client.get(f"/{TOKEN}/change/{described.changes[0].key}").text
    assert any("a test speaks against the state being enough" in words for words in notices(page))
    assert notices(policy._repr_html_())[f"Be wary: {checked}"] is True


@pytest.mark.parametrize(
    ("change", "warned"),
    [({"low": 0.02}, False), ({"low": 0.0}, True), ({"low": -0.02}, True), ({"low": None}, True)],
)
def test_a_bound_that_is_not_above_0_is_a_warning(sure, held, tmp_path, change, warned):
    policy = replace(sure, gain={**sure.gain, **change})
    lead = "Be wary: " if warned else ""
    for text in (written(policy, held, tmp_path), policy._repr_html_()):
        assert notices(text)[lead + policy.stated[0]] is warned


def test_a_state_that_was_not_checked_is_said_to_be(held, tmp_path):
    log = CARE.sample(300, seed=0)
    unchecked = "Be wary: Whether the state tells enough was not checked."
    policy = dprl.Confident(gamma=1.0, promise=False, check=False, splits=0).fit(log)
    assert notices(written(policy, held, tmp_path))[unchecked] is True
    returns = dprl.Confident(gamma=1.0, evidence="returns").fit(log)
    assert unchecked not in notices(written(returns, held, tmp_path))


def test_returns_that_decided_are_no_independent_look(held, tmp_path):
    policy = dprl.Confident(gamma=1.0, evidence="returns", risk=0.01).fit(CARE.sample(2000, seed=0))
    page = flat(written(policy, held, tmp_path))
    assert len(policy.changes()) == 1
    assert "In returns of first visits" in page
    assert "an independent look" not in page
    assert "What the rule saw" not in page
    assert "the rest of the policy being followed" not in page


def test_excursions_have_their_own_name(held, tmp_path):
    policy = dprl.Confident(gamma=1.0, evidence="excursions").fit(CARE.sample(2000, seed=0))
    assert len(policy.changes()) > 0
    page = flat(written(policy, held, tmp_path))
    assert "In returns to the same state" in page
    assert "an independent look" in page


def test_a_veto_is_not_said_to_decide_nothing(sure, held, tmp_path):
    policy = dprl.Confident(gamma=1.0, veto=True).fit(CARE.sample(500, seed=0))
    assert "independent look: they decided nothing, and" in flat(written(sure, held, tmp_path))
    page = flat(written(policy, held, tmp_path))
    assert "independent look: they could only strike a suggestion (the veto), and" in page
    assert "decided nothing" not in page


def test_changes_in_a_line_each_carry_it_too(tmp_path, monkeypatch, sure, held):
    monkeypatch.setattr("dprl.apps.reports._report.WHOLE", 1)
    page = flat(written(sure, held, tmp_path))
    second = describe_changes(sure, held).changes[1].sure
    assert "In the model (standard error, at least)" in page
    numbers = f"({shown(second.se)}, {shown(second.low, True)})"
    assert f"{shown(second.advantage, True)} {numbers}" in page


def site(policy, log, folder):
    described = describe_changes(policy, log)
    file = folder / "v.sqlite"
    verdicts = Verdicts(file, policy.digest(), [c.key for c in described.changes])
    app = review_app(described, verdicts, folder / "approved.dprl", token=TOKEN, needs=1)
    return TestClient(app, base_url="http://127.0.0.1:9", follow_redirects=False), described


def test_a_review_shows_it_and_exports_without_the_gain(sure, held, tmp_path):
    client, described = site(sure, held, tmp_path)
    text = client.get(f"/{TOKEN}/").text
    for sentence in sure.stated:
        assert notices(text)[sentence] is False
    page = flat(text)
    assert "Advantage over usual practice in the model" in page
    for change in described.changes:
        numbers = words_of(change).partition(")")[0]
        assert numbers in page
        own = flat(client.get(f"/{TOKEN}/change/{change.key}").text)
        assert f"In the model {words_of(change)}" in own
        assert "What the rule saw" not in own
        assert "Returns, an independent look" in own
    csrf = re.search(r'name="csrf" value="([^"]+)"', text).group(1)
    form = {"csrf": csrf, "change": described.changes[0].key, "reviewer": "Ann",
            "verdict": "agree", "comment": ""}  # fmt: skip
    origin = {"Origin": "http://127.0.0.1:9"}
    assert client.post(f"/{TOKEN}/verdict", data=form, headers=origin).status_code == 303
    assert client.post(f"/{TOKEN}/export", data={"csrf": csrf}, headers=origin).status_code == 303
    approved = dprl.load(tmp_path / "approved.dprl")
    assert approved.gain is None
    assert len(approved.changes()) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = written(approved, held, tmp_path)
    assert any("its gain was that of all" in words for words in notices(text))
    assert "brings +" not in flat(text)


def test_a_policy_that_is_sure_of_nothing(held, tmp_path):
    policy = dprl.Confident(gamma=1.0).fit(CARE.sample(15, seed=0))
    assert (len(policy.changes()), policy.gain) == (0, None)
    text = written(policy, held, tmp_path)
    assert "Nothing to change is sure: usual practice stays" in flat(text)
    for sentence in policy.stated:
        assert notices(text)[sentence] is False
        assert notices(policy._repr_html_())[sentence] is False
    client, _ = site(policy, held, tmp_path)
    assert "This policy changes nothing." in flat(client.get(f"/{TOKEN}/").text)


def test_what_is_hostile_is_text(sure, held, tmp_path):
    words = "In '<script>alert(1)</script>\u202e' with 'x', the past tells."
    noted = {**sure.provenance, "markov": {"ok": False, "words": words}}
    policy = replace(sure, provenance=noted)
    client, _ = site(policy, held, tmp_path)
    pages = (written(policy, held, tmp_path), policy._repr_html_(), client.get(f"/{TOKEN}/").text)
    for text in pages:
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;⟨U+202E⟩" in text


def test_a_notebook_says_it_once(sure):
    text = sure._repr_html_()
    page = flat(text)
    for sentence in sure.stated:
        assert page.count(sentence) == 1
        assert notices(text)[sentence] is False
    first = sure.changes().to_dicts()[0]
    assert f"{shown(first['sure_advantage'], True)} (standard error" in page
    assert "the rule looked at" not in page


@contextlib.contextmanager
def served(policy):
    with TestClient(serve_app(policy, token=None), base_url="http://127.0.0.1:9") as client:
        while client.get("/healthz").status_code == 503:
            time.sleep(0.02)
        yield client


def test_the_service_carries_it(sure, fooled):
    with served(sure) as client:
        about = client.get("/policy").json()
        answer = client.post("/explain", json={"state": "worse"}).json()
        spoken = client.post("/act", json={"states": ["worse"]}).json()["answers"][0]
        described = client.get("/openapi.json").json()
    assert about["stated"] == list(sure.stated)
    assert about["gain"] == dict(sure.gain)
    row = next(r for r in answer["actions"] if r["action"] == "fluids")
    expected = next(r for r in sure.changes().to_dicts() if r["state"] == "worse")
    for name in ("sure_advantage", "sure_se", "sure_low"):
        assert row[name] == expected[name]
    assert f"{row['sure_advantage']:+.3f} over usual practice (standard error" in spoken["reason"]
    explained = described["paths"]["/explain"]["post"]["responses"]["200"]
    properties = explained["content"]["application/json"]["schema"]["properties"]
    meant = properties["actions"]["items"]["properties"]
    assert set(meant) == {"sure_advantage", "sure_se", "sure_low"}
    assert "maximum-likelihood model" in meant["sure_advantage"]["description"]
    shape = described["paths"]["/policy"]["get"]["responses"]["200"]["content"]
    assert {"gain", "stated"} <= set(shape["application/json"]["schema"]["properties"])
    with served(fooled[0]) as client:
        assert (
            client.get("/policy")
            .json()["stated"][-1]
            .startswith("The state does not seem to be enough")
        )
