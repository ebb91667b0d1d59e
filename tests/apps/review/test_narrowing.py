"""Narrowing a rule on the review page: what is shown, what is recorded, what goes out."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from html import unescape

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import dprl
from dprl.apps.reports.changes import describe_changes
from dprl.apps.review import verdicts as kept
from dprl.apps.review.app import open_review
from dprl.apps.review.verdicts import Verdicts, statuses, write_approved
from dprl.learners import HeldOut

pytest.importorskip("starlette", reason="starlette is not installed (dprl[serve])")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (dprl[serve])")

from starlette.testclient import TestClient

from dprl.apps.review.app import review_app

TOKEN, ORIGIN = "a-token-nobody-guesses", {"Origin": "http://127.0.0.1:9"}
UNITS = np.array(["HDU", "ICU", "<b>ward"])
COLUMNS = {"episode": "stay", "state": ["pressure", "unit"], "action": "drug", "reward": "score"}


def frame(seed, n=500):
    rng = np.random.default_rng(seed)
    pressure, drug = 70 + 10 * rng.normal(size=n), rng.random(n) < 0.4
    gain = drug * np.where(pressure > 70, 1.0 + (pressure > 78), -1.0)
    return pd.DataFrame({
        "stay": np.arange(n), "pressure": pressure.round(1), "unit": UNITS[rng.integers(0, 3, n)],
        "drug": np.where(drug, "drug", "wait"), "score": gain + rng.normal(size=n),
    })  # fmt: skip


@pytest.fixture(scope="module")
def world():
    log = dprl.from_frame(frame(0), **COLUMNS)
    given = {"propensity": np.tile([0.4, 0.6], (500, 1)), "value_model": LinearRegression()}
    policy = dprl.Rules(gamma=1.0, depth=1, splits=1, lam=1.0).fit(log, **given)
    return policy, describe_changes(policy, log), HeldOut.of(policy, log, **given)


@pytest.fixture
def site(world, tmp_path):
    policy, described, half = world
    keys = [c.key for c in described.changes]
    verdicts = Verdicts(tmp_path / "v.sqlite", policy.digest(), keys)
    app = review_app(described, verdicts, tmp_path / "approved.dprl", token=TOKEN, half=half)
    client = TestClient(app, base_url="http://127.0.0.1:9", follow_redirects=False)
    change = next(c for c in described.changes if c.suggested == "drug")
    return client, change, verdicts, tmp_path


def words(page):
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page.text)).split())


def ask(client, change, **fields):
    return client.get(f"/{TOKEN}/change/{change.key}", params={"narrow": "1", **fields})


def judge(client, change, who="Ann", verdict="agree", **more):
    csrf = re.search(r'name="csrf" value="([^"]+)"', client.get(f"/{TOKEN}/").text).group(1)
    form = {"csrf": csrf, "change": change.key, "reviewer": who, "verdict": verdict, **more}
    return client.post(f"/{TOKEN}/verdict", data=form, headers=ORIGIN)


def sent(page):
    """The conditions in the form of the verdict."""
    return unescape(re.search(r'name="conditions" value="([^"]*)"', page.text).group(1))


def test_it_shows_what_the_half_says(site, world):
    client, change, _, _ = site
    _, _, half = world
    page = client.get(f"/{TOKEN}/change/{change.key}")
    cut = re.search(r'name="above-0" value="([^"]+)"', page.text).group(1)
    assert f"pressure above {cut}" in change.situation
    assert 'name="conditions"' not in page.text
    page = ask(client, change, **{"above-0": "74", "label-1": ["HDU", "ICU"]})
    assert page.status_code == 200
    text = words(page)
    facts = half.facts(
        change.rule.number,
        [{"feature": "pressure", "kind": "above", "value": 74.0},
         {"feature": "unit", "kind": "in", "labels": ["HDU", "ICU"]}],
    )  # fmt: skip
    assert "The narrower rule: pressure above 74 and unit is HDU or ICU" in text
    assert "No longer simultaneous: chosen after looking" in text
    assert f"{facts['groups']} episodes came here, {facts['groups_took']} of which took it" in text
    assert f"+{facts['advantage']:.3f} (+{facts['low']:.3f} to +{facts['high']:.3f})" in text
    assert "this rule alone, narrowed after looking" in text
    assert "On the narrower rule: pressure above 74" in text
    assert 'value="74"' in page.text
    assert "<b>ward" not in page.text


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"above-0": "1"}, "this is not narrower"),
        ({"above-0": ""}, "this is not narrower"),
        ({"above-0": "7,5"}, "'7,5' is no number"),
        ({"above-0": "nan"}, "is no number"),
        ({"above-0": "1e999"}, "is no number"),
        ({"above-0": "80", "most-0": "80"}, "no state can satisfy"),
        ({"conditions": "[["}, "cannot be read"),
        ({"conditions": "{}"}, "cannot be read"),
        ({"conditions": "[" * 15_000}, "cannot be read"),
        ({"conditions": '[{"feature": [], "kind": "above", "value": 3}]'}, "no rule"),
        ({"conditions": '[{"feature": "x", "kind": "known"}]'}, "no feature"),
    ],
)
def test_what_is_wrong_is_told(site, fields, wrong):
    client, change, verdicts, _ = site
    page = client.get(f"/{TOKEN}/change/{change.key}", params={"narrow": "1", **fields})
    assert page.status_code == 422
    assert wrong in words(page)
    assert 'name="conditions"' not in page.text
    if "conditions" in fields:
        assert judge(client, change, **fields).status_code == 422
    assert verdicts.all() == []


def test_too_few_can_be_seen_and_not_approved(site):
    client, change, verdicts, _ = site
    page = ask(client, change, **{"above-0": "92"})
    assert "It cannot be approved: too few to tell" in words(page)
    assert 'name="conditions"' not in page.text
    asked = json.dumps([{"feature": "pressure", "kind": "above", "value": 92.0}])
    assert judge(client, change, conditions=asked).status_code == 422
    assert verdicts.all() == []


def test_the_approved_policy_holds_the_narrower_rule(site, world):
    client, change, verdicts, folder = site
    _, described, half = world
    conditions = sent(ask(client, change, **{"above-0": "75"}))
    assert judge(client, change, conditions=conditions, comment="only these").status_code == 303
    assert "narrowed to pressure above 75" in words(client.get(f"/{TOKEN}/"))
    assert "agree, narrowed to pressure above 75" in words(
        client.get(f"/{TOKEN}/change/{change.key}")
    )
    # written without the training log: the verdict keeps what was seen
    write_approved(described, verdicts, folder / "approved.dprl")
    approved = dprl.load(folder / "approved.dprl")
    number = change.rule.number
    rule = approved.rules[number - 1]
    assert rule.words == "pressure above 75"
    seen = half.facts(number, json.loads(conditions))
    assert {name: rule.facts[name] for name in seen} == seen
    assert rule.narrowed
    assert all(r.silent for r in approved.rules if r is not rule)
    assert approved.claim == ""
    assert "narrowed after looking" in approved.stated[0]
    say = [approved.act({"pressure": x, "unit": "ICU"}) for x in (74.0, 76.0)]
    assert say == [dprl.DEFER, "drug"]
    (row,) = csv.DictReader((folder / "approved-audit.csv").read_text().splitlines())
    assert json.loads(row["narrowed"])["conditions"] == json.loads(conditions)
    assert row["chain"] == verdicts.all()[0].chain
    # and the approved policy can be looked at again
    again = words_of_report(approved, folder)
    assert "No longer simultaneous: chosen after looking" in again
    assert "Nothing is stated about all rules at once: they were narrowed after looking" in again


def words_of_report(policy, folder):
    log = dprl.from_frame(frame(0), **COLUMNS)  # the training log: nothing is evaluated
    dprl.report(policy, log, folder / "r.html")
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", (folder / "r.html").read_text())).split())


def test_all_must_agree_on_the_same_rule(site):
    client, change, verdicts, _ = site

    def status(needs=1):
        return statuses(verdicts.all(), [change.key, *verdicts.changes], needs)[change.key]

    narrow = sent(ask(client, change, **{"above-0": "75"}))
    judge(client, change, "Ann", conditions=narrow)
    assert (status().word, bool(status().narrowed)) == ("approved", True)
    assert status(2).word == "waiting"
    judge(client, change, "Bo")
    assert (status().word, status().narrowed) == ("conflict", "")
    judge(client, change, "Bo", conditions=sent(ask(client, change, **{"above-0": "76"})))
    assert status().word == "conflict"
    judge(client, change, "Bo", conditions=narrow)
    assert status(2).word == "approved"
    judge(client, change, "Bo", verdict="disagree", conditions=narrow)
    assert (status().word, status().narrowed) == ("conflict", "")


def test_a_narrowing_is_part_of_the_chain(site):
    client, change, verdicts, _ = site
    judge(client, change, conditions=sent(ask(client, change, **{"above-0": "75"})))
    verdicts.all()
    with sqlite3.connect(verdicts.path) as db:
        db.execute("DROP TRIGGER no_UPDATE_of_verdicts")
        db.execute("UPDATE verdicts SET narrowed = replace(narrowed, '75.0', '71.0')")
    with pytest.raises(dprl.PolicyError, match="changed by other hands"):
        verdicts.all()


def test_a_file_of_before_is_taken(tmp_path, monkeypatch):
    """A file without narrowings keeps its verdicts and its chain, and takes narrowings."""
    old = [t.replace(",\n      narrowed TEXT NOT NULL DEFAULT ''", "") for t in kept.TABLES]
    assert old != list(kept.TABLES)
    row = (1, "2026-01-01T00:00:00+00:00", "Ann", "k", "agree", "")
    with sqlite3.connect(tmp_path / "v.sqlite") as db:
        for table in old:
            db.execute(table)
        db.execute(f"PRAGMA application_id={kept.APPLICATION}")
        facts = {"policy": "p", "log": "", "changes": kept.hashlib.sha256(b"k").hexdigest()}
        db.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
        db.execute(
            "INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, kept._chain("", row))
        )
    verdicts = Verdicts(tmp_path / "v.sqlite", "p", ["k"])
    assert [v.narrowed for v in verdicts.all()] == [""]
    verdicts.add("k", "Bo", "agree", narrowed='{"conditions": [], "facts": {}}')
    assert len(Verdicts(tmp_path / "v.sqlite", "p", ["k"]).all()) == 2


@pytest.mark.slow
def test_it_needs_the_training_log(world, tmp_path):
    policy, _, _ = world
    frame(0).to_csv(tmp_path / "train.csv", index=False)
    frame(1).to_csv(tmp_path / "test.csv", index=False)
    policy.save(tmp_path / "p.dprl")

    def opened(log, **more):
        return open_review(
            policy, tmp_path / "p.dprl", [str(tmp_path / log)], verdicts=tmp_path / f"{log}.v",
            out=tmp_path / "a.dprl", needs=1, columns=COLUMNS, progress=lambda *a: None, **more,
        )  # fmt: skip

    other = opened("test.csv")
    assert other.half is None
    assert "--training" in other.unread
    # fitted with probabilities that were given: our own models do not give the same numbers
    same = opened("train.csv")
    assert same.half is None
    assert "does not come out again" in same.unread
    with pytest.raises(dprl.LogError, match="this is another"):
        opened("test.csv", training=[str(tmp_path / "test.csv")])
    with pytest.raises(dprl.PolicyError, match="does not come out again"):
        opened("test.csv", training=[str(tmp_path / "train.csv")])
    assert opened("test.csv", narrowing=False).half is None


def test_a_page_without_the_log_says_how(world, tmp_path):
    policy, described, _ = world
    verdicts = Verdicts(tmp_path / "v", policy.digest(), [c.key for c in described.changes])
    app = review_app(described, verdicts, tmp_path / "a.dprl", token=TOKEN, unread="Open it so.")
    client = TestClient(app, base_url="http://127.0.0.1:9", follow_redirects=False)
    change = described.changes[0]
    page = client.get(f"/{TOKEN}/change/{change.key}")
    assert "Open it so." in page.text
    assert "Narrow this rule" not in page.text
    assert ask(client, change, **{"above-0": "75"}).status_code == 422


def test_a_rule_over_a_date_is_narrowed_by_dates(tmp_path):
    table = frame(0)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(table["pressure"].rank() // 2, unit="D")
    table["seen"] = days.dt.strftime("%d.%m.%Y")
    columns = {**COLUMNS, "state": ["seen", "unit"], "dates": "day-first"}
    log = dprl.from_frame(table, **columns, also=())
    given = {"propensity": np.tile([0.4, 0.6], (500, 1)), "value_model": LinearRegression()}
    policy = dprl.Rules(gamma=1.0, depth=1, splits=1, lam=1.0).fit(log, **given)
    described, half = describe_changes(policy, log), HeldOut.of(policy, log, **given)
    verdicts = Verdicts(tmp_path / "v.sqlite", policy.digest(), [c.key for c in described.changes])
    app = review_app(described, verdicts, tmp_path / "approved.dprl", token=TOKEN, half=half)
    client = TestClient(app, base_url="http://127.0.0.1:9", follow_redirects=False)
    change = next(c for c in described.changes if c.suggested == "drug")
    assert re.fullmatch(r"seen after 2024-\d\d-\d\d", change.situation)
    page = client.get(f"/{TOKEN}/change/{change.key}")
    text = words(page)
    assert "A typical state seen 2024-" in text
    assert re.search(r"\(2024-01-01 to 2024-\d\d-\d\d in training\)", text)
    assert not re.search(r"\b197\d\d\b|\b198\d\d\b", text)  # days since 1970
    cut = re.search(r'name="above-0" value="([^"]+)"', page.text).group(1)
    assert change.situation == f"seen after {cut}"
    page = ask(client, change, **{"above-0": cut})
    assert "this is not narrower" in words(page)
    page = ask(client, change, **{"above-0": "soon"})
    assert "seen: 'soon' is no date." in words(page)
    for written in ("2024-07-20", "20.07.2024"):
        page = ask(client, change, **{"above-0": written})
        assert "The narrower rule: seen after 2024-07-20" in words(page)
        assert {"feature": "seen", "kind": "above", "value": 19924.0} in json.loads(sent(page))
    judge(client, change, conditions=sent(page))
    assert "narrowed to seen after 2024-07-20" in words(client.get(f"/{TOKEN}/"))
