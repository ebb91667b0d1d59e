"""CDS Hooks 2.0: discovery, cards and feedback, compared with the shapes that the specification has.

Facts are of https://cds-hooks.hl7.org/2.0/: the tables of "Discovery", "HTTP Request", "Card
Attributes", "Source", "Suggestion", "Reasons for rejecting a card" and "Feedback". The examples
below have the shape of the specification's examples; their contents are our own.
"""

from __future__ import annotations

import json
import re
import time
import tomllib
import uuid
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

import dprl
from conftest import to_log

pytest.importorskip("starlette", reason="starlette is not installed (dprl[serve])")

from starlette.testclient import TestClient
from test_serve import numbers, ready

from dprl.apps.serve.app import serve_app
from dprl.apps.serve.audit import Audit, Records, check_audit
from dprl.apps.serve.hooks import Hooks, LackingError, Source

LOINC = "http://loinc.org"
SERVICE = {
    "id": "pressor-advice",
    "title": "Pressor advice",
    "description": "Suggests an action where the hospital's own log can speak for it.",
    "usage": "Adults in intensive care.",
    "source": {"label": "ICU quality team", "url": "https://example.org/icu"},
    "features": {
        "pressure": {"code": f"{LOINC}|8478-0", "unit": "mm[Hg]", "max_age": 2},
        "lactate": {"code": f"{LOINC}|2524-7", "unit": "mmol/L", "max_age": "any"},
    },
}
CODES = {"pressure": ("8478-0", "mm[Hg]"), "lactate": ("2524-7", "mmol/L")}
NOW = datetime.now(UTC)


def policy_of_features():
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.uniform(50, 100, 400), rng.uniform(0, 10, 400)])
    act = rng.integers(0, 3, 400) == 0  # rarely done, and better where pressure is low
    low = x[:, 0] < 75
    return dprl.DPRLContinuous(
        n_min=5, radius=8.0, gamma=1.0, metric=dprl.Metric(scale="none")
    ).fit(
        dprl.from_arrays(
            episode=np.arange(400), state=x, action=np.where(act, "pressor", "wait"),
            reward=np.where(low, act, ~act).astype(float), feature_names=["pressure", "lactate"],
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cds")
    records = Records(None, Audit(folder / "audit"))
    app = serve_app(policy_of_features(), token="t" * 20, records=records, hooks=Hooks.of(SERVICE))
    with TestClient(app, base_url="http://127.0.0.1:9") as client:
        ready(client)
        client.headers["Authorization"] = "Bearer " + "t" * 20
        yield client, folder / "audit"


def observation(name, value, when=NOW, **more):
    code, unit = CODES[name]
    return {
        "resourceType": "Observation", "status": "final",
        "code": {"coding": [{"system": LOINC, "code": code}]},
        "subject": {"reference": "Patient/1288992"},
        "effectiveDateTime": when.isoformat(),
        "valueQuantity": {"value": value, "unit": unit, "code": unit,
                          "system": "http://unitsofmeasure.org"},
        **more,
    }  # fmt: skip


def coded(name, code):
    """An observation whose value is a code."""
    resource = observation(name, 0.0, valueCodeableConcept={"coding": [{"code": code}]})
    del resource["valueQuantity"]
    return resource


def bundle(*resources):
    return {
        "resourceType": "Bundle", "type": "searchset",
        "entry": [{"resource": resource} for resource in resources],
    }  # fmt: skip


def call(pressure=60.0, lactate=2.0, **more):
    """A call of the shape that the specification's example has."""
    return {
        "hookInstance": "d1577c69-dfbe-44ad-ba6d-3e05e953b2ea",
        "fhirServer": "https://ehr.example.org/fhir",
        "hook": "patient-view",
        "fhirAuthorization": {
            "access_token": "some-opaque-token", "token_type": "Bearer", "expires_in": 300,
            "scope": "patient/Observation.read", "subject": "cds-service4",
        },
        "context": {
            "userId": "Practitioner/example", "patientId": "1288992", "encounterId": "89284",
        },
        "prefetch": {
            "pressure": bundle(observation("pressure", pressure)),
            "lactate": observation("lactate", lactate),
        },
        **more,
    }  # fmt: skip


def ask(client, body):
    return client.post(f"/cds-services/{SERVICE['id']}", json=body)


def check_card(card):
    """What the specification's table of card attributes asks for."""
    assert set(card) <= {
        "uuid", "summary", "detail", "indicator", "source", "suggestions", "selectionBehavior",
        "overrideReasons", "links",
    }  # fmt: skip
    assert 0 < len(card["summary"]) < 140
    assert card["indicator"] in ("info", "warning", "critical")
    assert card["source"]["label"]
    uuid.UUID(card["uuid"])
    if "suggestions" in card:
        assert card["selectionBehavior"] in ("at-most-one", "any")
        for suggestion in card["suggestions"]:
            assert suggestion["label"]
            uuid.UUID(suggestion["uuid"])
    for reason in card.get("overrideReasons", []):
        assert reason["code"]
        assert reason["system"]
        assert reason["display"]  # a service must say it in words
    assert nothing_empty(card)


def nothing_empty(value):
    """'JSON elements SHALL NOT be null or empty'."""
    if isinstance(value, dict):
        return bool(value) and all(nothing_empty(v) for v in value.values())
    if isinstance(value, list):
        return bool(value) and all(nothing_empty(v) for v in value)
    return value is not None and value != ""


def test_discovery_has_the_shape_of_the_specification(site):
    client, _ = site
    found = client.get("/cds-services").json()
    (service,) = found["services"]
    assert set(service) == {
        "hook", "title", "description", "id", "prefetch", "usageRequirements",
    }  # fmt: skip
    assert (service["hook"], service["id"]) == ("patient-view", "pressor-advice")
    assert service["prefetch"]["pressure"] == (
        "Observation?patient={{context.patientId}}&combo-code=http://loinc.org|8478-0"
        "&status=final,amended,corrected&_sort=-date&_count=1"
    )
    assert nothing_empty(found)
    assert client.get("/cds-services", headers={"Authorization": "no"}).status_code == 401
    assert "/cds-services" in client.get("/openapi.json").json()["paths"]


def test_a_change_is_one_card_with_one_suggestion(site):
    client, audit = site
    answer = ask(client, call())
    assert answer.status_code == 200, answer.text
    (card,) = answer.json()["cards"]
    check_card(card)
    assert card["summary"] == "Consider: pressor"
    assert card["source"] == SERVICE["source"]
    assert [s["label"] for s in card["suggestions"]] == ["pressor"]
    assert {r["code"] for r in card["overrideReasons"]} >= {"contraindicated", "other"}
    direct = client.post("/act", json={"states": [{"pressure": 60.0, "lactate": 2.0}]}).json()
    assert direct["answers"][0]["action"] == "pressor"
    entries = [json.loads(line) for line in audit.read_text().splitlines()]
    entry = next(e for e in entries if e.get("card") == card["uuid"])
    assert entry["suggestion"] == card["suggestions"][0]["uuid"]
    assert entry["hook_instance"] == call()["hookInstance"]
    assert (entry["action"], entry["policy"]) == ("pressor", direct["policy"])
    text = audit.read_text()
    assert "some-opaque-token" not in text
    assert "1288992" not in text


def test_where_it_defers_there_is_no_card(site):
    client, audit = site
    before = len(audit.read_text().splitlines())
    answer = ask(client, call(pressure=300.0))  # out of range
    assert (answer.status_code, answer.json()) == (200, {"cards": []})
    lines = audit.read_text().splitlines()
    assert len(lines) == before + 1  # and it is on record
    entry = json.loads(lines[-1])
    assert (entry["defer"], entry["hook_instance"]) == (True, call()["hookInstance"])
    assert "card" not in entry


@pytest.mark.parametrize(
    ("name", "resource", "why"),
    [
        ("pressure", bundle(), "no final value"),
        ("pressure", bundle(observation("pressure", 60.0, status="preliminary")), "no final value"),
        ("pressure", bundle(observation("pressure", 60.0, status="entered-in-error")), "no final"),
        ("pressure", observation("lactate", 60.0), "no final value"),
        ("pressure", observation("pressure", 60.0, NOW - timedelta(hours=3)), "older than 2 hours"),
        ("pressure", observation("pressure", 60.0, subject={"reference": "Patient/7"}), "another patient"),
        ("pressure", observation("pressure", 60.0, valueQuantity={"value": 8.0, "code": "kPa"}), "another unit"),
        ("pressure", observation("pressure", 60.0, valueQuantity={"value": 60.0}), "another unit"),
        ("pressure", observation("pressure", 60.0, valueQuantity={"value": 60.0, "comparator": "<", "code": "mm[Hg]"}), "only a bound"),
        ("pressure", observation("pressure", "60"), "no number"),
        ("pressure", observation("pressure", 60.0, effectiveDateTime="yesterday"), "with its time"),
        ("pressure", observation("pressure", 60.0, NOW + timedelta(hours=1)), "the value of pressure lies in the future"),
        ("lactate", observation("lactate", 2.0, NOW + timedelta(hours=2)), "the value of lactate lies in the future"),
        ("pressure", bundle(observation("pressure", 95.0), observation("pressure", 60.0, NOW + timedelta(days=400))), "lies in the future"),
        ("pressure", observation("pressure", 60.0, subject=None), "does not say whose it is"),
        ("pressure", observation("pressure", 60.0, subject={"display": "Mrs Doe"}), "does not say whose it is"),
        ("pressure", observation("pressure", 60.0, subject={"identifier": {"value": "1288992"}}), "does not say whose it is"),
        ("pressure", observation("pressure", 60.0, subject={"reference": ["Patient/1288992"]}), "does not say whose it is"),
        ("pressure", observation("pressure", 60.0, subject={"reference": "Group/1288992"}), "another patient"),
        ("pressure", observation("pressure", 60.0, subject={"reference": "1288992"}), "another patient"),
        ("pressure", observation("pressure", 60.0, subject={"reference": "#1288992"}), "another patient"),
        ("pressure", observation("pressure", 60.0, subject={"reference": "NoPatient/1288992"}), "another patient"),
        ("pressure", observation("pressure", 60.0, subject={"reference": "Patient/7/_history/1288992"}), "another patient"),
        ("pressure", bundle(observation("pressure", 60.0), observation("pressure", 60.0, subject={})), "whose it is"),
        ("pressure", observation("pressure", 60.0, effectiveDateTime=NOW.strftime("%Y-%m-%dT%H:%M:%S")), "time zone"),
        ("lactate", observation("lactate", 2.0, effectiveDateTime="2026-01-01"), "time zone"),
        ("pressure", bundle(observation("pressure", 95.0), observation("pressure", 60.0, effectiveDateTime="2026-01-01")), "time zone"),
        ("pressure", bundle(observation("pressure", 95.0), observation("pressure", 60.0, effectiveDateTime="today")), "with its time"),
        ("pressure", bundle(observation("pressure", 95.0), observation("pressure", 60.0, effectiveDateTime=None)), "with its time"),
        ("pressure", bundle(observation("pressure", 60.0), observation("pressure", 95.0)), "differ"),
        ("pressure", bundle(observation("pressure", 95.0), observation("pressure", 60.0, NOW.astimezone(timezone(timedelta(hours=2))))), "differ"),
        ("pressure", bundle(observation("pressure", 60.0), observation("pressure", "x")), "no number"),
        ("pressure", observation("pressure", 60.0, valueQuantity={"value": 60.0, "code": "mm[Hg]"}), "not one of UCUM"),
        ("pressure", observation("pressure", 60.0, valueQuantity={"value": 60.0, "code": "mm[Hg]", "system": "urn:units"}), "not one of UCUM"),
        ("pressure", observation("pressure", 60.0, valueQuantity={"value": 60.0, "unit": "mm[Hg]", "system": "http://unitsofmeasure.org"}), "another unit"),
        ("pressure", coded("pressure", "60"), "has no unit"),
        ("lactate", {"resourceType": "Patient", "id": "1288992"}, "no observation of lactate"),
    ],
)  # fmt: skip
def test_a_value_that_may_not_be_used_is_said_and_not_guessed(site, name, resource, why):
    client, _ = site
    body = call()
    body["prefetch"][name] = resource
    answer = ask(client, body)
    assert answer.status_code == 200
    (card,) = answer.json()["cards"]
    check_card(card)
    assert card["summary"].startswith("No suggestion: ")
    assert why in card["summary"]
    assert "suggestions" not in card


def test_of_several_values_the_latest_counts(site):
    client, _ = site
    body = call()
    old, new = NOW - timedelta(hours=1), NOW - timedelta(minutes=5)
    body["prefetch"]["pressure"] = bundle(
        observation("pressure", 60.0, new), observation("pressure", 95.0, old)
    )
    assert ask(client, body).json()["cards"][0]["summary"] == "Consider: pressor"
    body["prefetch"]["pressure"] = bundle(
        observation("pressure", 60.0, old), observation("pressure", 95.0, new)
    )
    cards = ask(client, body).json()["cards"]
    assert all(card["summary"] != "Consider: pressor" for card in cards)


def test_equal_values_at_the_same_time_are_one(site):
    client, _ = site
    body = call()
    twice = [observation("pressure", 60.0), observation("pressure", 60)]
    older = observation("pressure", 95.0, NOW - timedelta(minutes=5))
    body["prefetch"]["pressure"] = bundle(older, *twice)
    assert ask(client, body).json()["cards"][0]["summary"] == "Consider: pressor"


@pytest.mark.parametrize(
    "reference",
    [
        "Patient/1288992/_history/2",
        "https://ehr.example.org/fhir/Patient/1288992",
        "https://ehr.example.org/fhir/Patient/1288992/_history/2",
    ],
)
def test_a_patient_may_be_named_with_a_version_or_an_address(site, reference):
    client, _ = site
    body = call()
    body["prefetch"]["pressure"] = observation("pressure", 60.0, subject={"reference": reference})
    assert ask(client, body).json()["cards"][0]["summary"] == "Consider: pressor"


def test_a_clock_that_is_a_little_ahead_is_no_future(site):
    client, _ = site
    body = call()
    now = datetime.now(UTC)
    body["prefetch"]["pressure"] = observation("pressure", 60.0, now + timedelta(minutes=4))
    assert ask(client, body).json()["cards"][0]["summary"] == "Consider: pressor"
    body["prefetch"]["pressure"] = observation("pressure", 60.0, now + timedelta(minutes=7))
    assert "future" in ask(client, body).json()["cards"][0]["summary"]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"hook": "order-sign"}, 422), ({"hook": None}, 422), ({"hookInstance": "x"}, 422),
        ({"hookInstance": None}, 422), ({"context": None}, 422), ({"context": {}}, 422),
        ({"context": {"userId": "Practitioner/1"}}, 422),
        ({"context": {"userId": 3, "patientId": "1"}}, 422),
        ({"prefetch": None}, 412), ({"prefetch": {}}, 412), ({"prefetch": []}, 422),
        ({"prefetch": {"pressure": None, "lactate": None}}, 412),
        ({"prefetch": {"pressure": 3, "lactate": "x"}}, 200),
        ({"prefetch": {"pressure": {"resourceType": "Bundle", "entry": [None, 3, {"resource": []}]},
                       "lactate": {"resourceType": "Observation", "status": "final", "code": []}}}, 200),
    ],
)  # fmt: skip
def test_calls_that_are_none_are_refused(site, change, status):
    client, _ = site
    answer = ask(client, {**call(), **change})
    assert answer.status_code == status, answer.text
    if status != 200:
        assert answer.json()["error"]["what"]


CARD, SUGGESTION = "4e0a3a1e-3283-4575-ab82-028d55fe2719", "e56e1945-20b3-4393-8503-a1a20fd73152"
ACCEPTED = {
    "card": CARD, "outcome": "accepted", "acceptedSuggestions": [{"id": SUGGESTION}],
    "outcomeTimestamp": "2021-12-11T10:05:31Z",
}  # fmt: skip
DISMISSED = {
    "card": "f6b95768-b1c8-40dc-8385-bf3504b82ffb", "outcome": "overridden",
    "outcomeTimestamp": "2020-12-11T00:00:00Z",
}  # fmt: skip
OVERRIDDEN = {
    **DISMISSED,
    "overrideReason": {
        "reason": {"code": "contraindicated", "system": "urn:dprl:override-reasons"},
        "userComment": "Bleeding since this morning.",
    },
}  # fmt: skip


def feed(client, *given):
    return client.post(f"/cds-services/{SERVICE['id']}/feedback", json={"feedback": list(given)})


def test_feedback_of_all_three_kinds_is_stored(site):
    client, audit = site
    before = numbers(client).get('dprl_feedback_total{outcome="overridden"}', 0)
    (first,), (second,) = (ask(client, call()).json()["cards"] for _ in range(2))
    suggestion = first["suggestions"][0]["uuid"]
    good = {**ACCEPTED, "card": first["uuid"], "acceptedSuggestions": [{"id": suggestion}]}
    assert feed(client, good).json() == {"stored": 1}
    others = [{**one, "card": second["uuid"].upper()} for one in (DISMISSED, OVERRIDDEN)]
    assert feed(client, *others).json() == {"stored": 2}
    entries = [json.loads(line) for line in audit.read_text().splitlines()]
    stored = [e for e in entries if e["event"] == "feedback"][-3:]
    assert [e["given"] for e in stored] == [True] * 3
    assert stored[0]["suggestions"] == [suggestion]
    assert stored[0]["outcome_time"] == "2021-12-11T10:05:31+00:00"
    assert "override" not in stored[1]
    assert stored[2]["override"] == {
        "code": "contraindicated", "system": "urn:dprl:override-reasons",
        "comment": "Bleeding since this morning.",
    }  # fmt: skip
    assert {e["service"] for e in stored} == {"pressor-advice"}
    assert check_audit(audit)["torn"] == 0
    assert numbers(client)['dprl_feedback_total{outcome="overridden"}'] == before + 2


def test_feedback_on_what_was_never_given_is_stored_and_marked(site):
    client, audit = site
    counts = numbers(client)
    (card,) = ask(client, call()).json()["cards"]
    (lacking,) = ask(client, call(prefetch={
        "pressure": bundle(), "lactate": observation("lactate", 2.0),
    })).json()["cards"]  # fmt: skip
    other = {**ACCEPTED, "card": card["uuid"]}  # a suggestion that was not on the card
    seen = {**DISMISSED, "card": lacking["uuid"]}  # a card without a suggestion
    reply = feed(client, ACCEPTED, other, seen)
    assert reply.json() == {"stored": 3, "unknown_cards": [CARD, card["uuid"]]}
    entries = [json.loads(line) for line in audit.read_text().splitlines()]
    stored = [e for e in entries if e["event"] == "feedback"][-3:]
    assert [e["given"] for e in stored] == [False, False, True]
    after = numbers(client)

    def more(outcome):
        key = f'dprl_feedback_total{{outcome="{outcome}"}}'
        return after[key] - counts[key]

    assert [more(one) for one in ("accepted", "overridden", "unknown_card")] == [0, 1, 2]


def test_cards_are_looked_for_from_the_end_of_the_audit(tmp_path, monkeypatch):
    from dprl.apps.serve import hooks as feedback

    cards = [str(uuid.UUID(int=i)) for i in range(40)]
    entries = [{"event": "answer", "card": c, "suggestion": c[::-1], "x": "é" * 30} for c in cards]
    entries[7]["event"] = "feedback"  # which only says that somebody spoke of a card
    path = tmp_path / "audit"
    lines = [json.dumps(e, separators=(",", ":")) for e in entries]
    path.write_text("\n".join([*lines, '{"event":"answer","card":"' + cards[3] + '"']))
    monkeypatch.setattr(feedback, "BLOCK", 97)
    wanted = [cards[0], cards[3], cards[7], cards[39], str(uuid.UUID(int=99))]
    assert feedback.cards_given(path, wanted) == (
        {card: card[::-1] for card in (cards[0], cards[3], cards[39])}, True,
    )  # fmt: skip
    monkeypatch.setattr(feedback, "FAR_BACK", 1000)
    cards_near, whole = feedback.cards_given(path, wanted)
    assert (list(cards_near), whole) == ([cards[39]], False)
    entry = {"card": cards[0]}
    assert feedback.marked([entry], cards_near, whole) == [{**entry, "given": None}]
    assert feedback.marked([entry], cards_near, True) == [{**entry, "given": False}]


@pytest.mark.parametrize(
    "change",
    [
        {"acceptedSuggestions": [{"id": SUGGESTION}]},
        {"outcome": "accepted", "acceptedSuggestions": [{"id": SUGGESTION}],
         "overrideReason": {"userComment": "x"}},
        {"card": "x"}, {"card": None}, {"outcome": "ignored"}, {"outcome": None},
        {"outcome": "accepted"}, {"outcome": "accepted", "acceptedSuggestions": [{}]},
        {"outcome": "accepted", "acceptedSuggestions": []}, {"outcomeTimestamp": "now"},
        {"outcomeTimestamp": "2020-12-11"}, {"outcomeTimestamp": "2020-12-11T00:00:00"},
        {"outcomeTimestamp": "0001-01-01T00:00:00+14:00"}, {"overrideReason": 3},
        {"overrideReason": {}}, {"overrideReason": {"reason": {"code": 3}}},
        {"overrideReason": {"userComment": "x" * 4001}}, {"overrideReason": {"reason": [3]}},
    ],
)  # fmt: skip
def test_feedback_that_is_none_is_refused_as_a_whole(site, change):
    client, audit = site
    before = audit.read_bytes()
    reply = feed(client, ACCEPTED, {**DISMISSED, **change})
    assert reply.status_code == 400
    assert reply.json()["error"]["where"].startswith("feedback[1].")
    assert audit.read_bytes() == before


def test_feedback_that_is_no_list_is_refused(site):
    client, _ = site
    for body in (
        {},
        {"feedback": []},
        {"feedback": {}},
        {"feedback": [3]},
        {"feedback": [ACCEPTED] * 101},
    ):
        path = f"/cds-services/{SERVICE['id']}/feedback"
        assert client.post(path, json=body).status_code == 400


def test_feedback_that_is_not_stored_is_said_not_to_be(site, monkeypatch):
    client, audit = site

    def full(*given):
        raise OSError(28, "No space left on device")

    before = audit.read_bytes()
    with monkeypatch.context() as disk:
        disk.setattr("dprl.apps.serve.audit.os.write", full)
        answer = feed(client, ACCEPTED)
        assert answer.status_code == 503
        assert "could not be stored" in answer.json()["error"]["what"]
        assert ask(client, call()).status_code == 503
    assert audit.read_bytes() == before
    assert feed(client, ACCEPTED).status_code == 200


def test_a_label_may_come_from_the_context_or_an_observation(tmp_path):
    log = to_log([[("fever", "b" * 200, 1.0)]] * 3 + [[("fever", "a", 0.0)]] * 4)
    policy = dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(log)
    given = {
        "id": "x", "title": "T", "description": "D", "hook": "org.example.round",
        "state": {"context": "stage"},
    }  # fmt: skip
    app = serve_app(policy, token=None, hooks=Hooks.of(given))
    with TestClient(app, base_url="http://127.0.0.1:9") as client:
        ready(client)
        body = {"hook": "org.example.round", "hookInstance": str(uuid.uuid4()),
                "context": {"stage": "fever"}}  # fmt: skip
        (card,) = client.post("/cds-services/x", json=body).json()["cards"]
        check_card(card)
        assert card["summary"].endswith("…")  # a long label is cut, not sent whole
        body["context"] = {"stage": 3}
        assert client.post("/cds-services/x", json=body).status_code == 422
        body["context"] = {}
        assert (
            "No suggestion"
            in client.post("/cds-services/x", json=body).json()["cards"][0]["summary"]
        )
        assert "prefetch" not in client.get("/cds-services").json()["services"][0]


def test_labels_are_no_markup(site):
    hooks = Hooks.of(SERVICE)
    answer = {"defer": False, "action": "x", "kind": "change", "reason": "<b>[x](y)</b> *a*"}
    (card,) = hooks.cards(hooks.call(call()), answer, "d" * 64)
    assert not re.search(r"(?<!\\)[<*\[]", card["detail"].split("\n\n")[0])


def test_the_description_for_machines_has_calls_and_feedback(site):
    client, _ = site
    paths = client.get("/openapi.json").json()["paths"]
    calls = paths["/cds-services/pressor-advice"]["post"]
    assert "412" in calls["responses"]
    asked = calls["requestBody"]["content"]["application/json"]["schema"]
    assert asked["required"] == ["hook", "hookInstance", "context"]
    spoken = paths["/cds-services/pressor-advice/feedback"]["post"]
    shape = spoken["requestBody"]["content"]["application/json"]["schema"]
    entry = shape["properties"]["feedback"]["items"]
    assert entry["required"] == ["card", "outcome", "outcomeTimestamp"]
    assert entry["properties"]["outcome"] == {"enum": ["accepted", "overridden"]}
    assert {"200", "400", "415", "503"} <= set(spoken["responses"])


def test_a_card_names_the_values_with_their_units(site):
    client, _ = site
    (card,) = ask(client, call(pressure=61.5)).json()["cards"]
    assert "\n\nValues used: pressure 61.5 mm\\[Hg\\], lactate 2.0 mmol/L\n\n" in card["detail"]


def test_rules_over_labels_gaps_and_dates_are_asked_by_observations(tmp_path):
    from test_serve_rows import GONE, ICU, LATE, rules_on, stays

    plain = {"unit": "1", "max_age": "any"}
    features = {
        "pressure": {**SERVICE["features"]["pressure"], "gaps": True},
        "ward": {"context": "ward", "gaps": True},
        "fever": {"code": f"{LOINC}|45701-0", **plain},
        "admitted": {"code": f"{LOINC}|52455-3", **plain},
    }
    hooks = Hooks.of({**SERVICE, "features": features})
    app = serve_app(rules_on(stays(), ICU, GONE, LATE), token=None, hooks=hooks)

    def seen(code, **value):
        return {
            "resourceType": "Observation", "status": "final", **value,
            "code": {"coding": [{"system": LOINC, "code": code}]},
            "subject": {"reference": "Patient/1288992"}, "effectiveDateTime": NOW.isoformat(),
        }  # fmt: skip

    def body(pressure, ward, admitted="2024-05-21", fever=True):
        given = call()
        given["context"] |= {} if ward is None else {"ward": ward}
        given["prefetch"] = {
            "pressure": pressure, "fever": seen("45701-0", valueBoolean=fever),
            "admitted": bundle(seen("52455-3", valueDateTime=admitted)),
        }  # fmt: skip
        return given

    normal, old = observation("pressure", 60.0), observation("pressure", 60.0, NOW - timedelta(3))
    with TestClient(app, base_url="http://127.0.0.1:9") as client:
        ready(client)

        def cards(*given):
            reply = ask(client, body(*given))
            assert reply.status_code == 200, reply.text
            return reply.json()["cards"]

        (card,) = cards(normal, "ICU")
        assert "Values used: pressure 60.0 mm" in card["detail"]
        assert "ward ICU, fever true, admitted 2024-05-21" in card["detail"]
        assert card["summary"] == "Consider: fluids"
        assert cards(normal, "HDU") == []
        assert cards(normal, None) == []  # the ward is a gap, and no rule holds
        for nothing in (bundle(), None, old):  # nothing was measured: the second rule holds
            (card,) = cards(nothing, "HDU")
            check_card(card)
            assert "Values used: pressure missing, ward HDU" in card["detail"]
        (card,) = cards(normal, "attic", "2024-06-10T08:00:00+02:00")
        assert card["detail"].startswith("ward has a label that training did not have. Rule 3: ")
        another = observation("pressure", 60.0, subject={"reference": "Patient/2"})
        (card,) = cards(another, "HDU")  # which is no gap
        assert card["summary"].startswith("No suggestion: the value of pressure belongs to another")
        given = body(normal, "ICU")
        del given["prefetch"]["pressure"]
        assert ask(client, given).status_code == 412


def failed(severity):
    return {"resourceType": "OperationOutcome", "issue": [{"severity": severity, "code": "x"}]}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (failed("error"), "could not look up the value of lactate"),
        (failed("warning"), "could not look up the value of lactate"),  # and no observation
        (bundle(failed("fatal")), "could not look up the value of lactate"),
        (bundle({"resourceType": "OperationOutcome"}), "could not look up the value of lactate"),
        ({"resourceType": "Patient", "id": "p1"}, "no observation of lactate"),
        ({}, "no observation of lactate"),
        ("timeout", "no observation of lactate"),
        ({"resourceType": "Bundle", "type": "searchset", "total": 3}, "has none of lactate"),
        (None, ""),
        (bundle(), ""),
        ({"resourceType": "Bundle", "type": "searchset", "total": 0}, ""),
        (bundle(failed("warning")), ""),
    ],
)
def test_a_query_that_failed_is_no_gap(data, why):
    source = Source.of("lactate", {**SERVICE["features"]["lactate"], "gaps": True})
    context = {"patientId": "p1"}
    if not why:
        assert source.value(context, data, NOW) is None
        return
    with pytest.raises(LackingError, match=why):
        source.value(context, data, NOW)


def test_a_warning_beside_an_observation_does_not_matter():
    source = Source.of("lactate", SERVICE["features"]["lactate"])
    given = observation("lactate", 2.5)
    context = {"patientId": given["subject"]["reference"].partition("/")[2]}
    assert source.value(context, bundle(given, failed("warning")), NOW) == 2.5
    with pytest.raises(LackingError, match="could not look up"):
        source.value(context, bundle(given, failed("error")), NOW)


# -- observations as hospitals send them: the shapes of HL7's published examples (R4), our contents

SYSTOLIC, DIASTOLIC, PANEL, GLUCOSE, HEART = "8480-6", "8462-4", "85354-9", "15074-8", "8867-4"


def of_code(code, **more):
    return {
        "resourceType": "Observation", "status": "final",
        "code": {"coding": [{"system": LOINC, "code": code}]},
        "subject": {"reference": "Patient/p1"}, "effectiveDateTime": NOW.isoformat(), **more,
    }  # fmt: skip


def amount(value, unit):
    return {"valueQuantity": {"value": value, "unit": "as people write it", "code": unit,
                              "system": "http://unitsofmeasure.org"}}  # fmt: skip


def part(code, **more):
    local = {"system": "http://acme.example.org/codes", "code": "bp-s"}
    return {"code": {"coding": [local, {"system": LOINC, "code": code}]}, **more}


def panel(systolic, diastolic, **more):
    parts = [part(SYSTOLIC, **systolic), part(DIASTOLIC, **diastolic)]
    return of_code(PANEL, component=parts, **more)


def value_of(code, unit, data, **more):
    given = {"code": f"{LOINC}|{code}", "unit": unit, "max_age": "any", **more}
    return Source.of("x", given).value({"patientId": "p1"}, data, NOW)


NOT_DONE = {"dataAbsentReason": {"coding": [{"code": "not-performed"}]}}


def test_a_value_in_a_component_is_found():
    pressure = panel(amount(107, "mm[Hg]"), NOT_DONE)
    assert value_of(SYSTOLIC, "mm[Hg]", bundle(pressure)) == 107
    with pytest.raises(LackingError, match="no value that can be read"):
        value_of(DIASTOLIC, "mm[Hg]", pressure, gaps=True)
    hour = timedelta(hours=1)
    alone = of_code(SYSTOLIC, effectiveDateTime=(NOW - hour).isoformat(), **amount(90, "mm[Hg]"))
    assert value_of(SYSTOLIC, "mm[Hg]", bundle(alone, pressure)) == 107  # the latest, wherever
    again = {"component": [*pressure["component"], part(SYSTOLIC, **amount(111, "mm[Hg]"))]}
    with pytest.raises(LackingError, match="differ"):
        value_of(SYSTOLIC, "mm[Hg]", {**pressure, **again})
    with pytest.raises(LackingError, match="another patient"):
        value_of(SYSTOLIC, "mm[Hg]", {**pressure, "subject": {"reference": "Patient/p2"}})
    with pytest.raises(LackingError, match="no final value"):
        value_of(SYSTOLIC, "mm[Hg]", {**pressure, "status": "preliminary"})
    both = {**pressure, "code": part(SYSTOLIC)["code"]}  # the code of the whole and of a part
    assert value_of(SYSTOLIC, "mm[Hg]", both) == 107
    with pytest.raises(LackingError, match="differ"):
        value_of(SYSTOLIC, "mm[Hg]", {**both, **amount(110, "mm[Hg]")})


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"valueCodeableConcept": {"coding": [{"system": LOINC, "code": "LA6725-1"}], "text": "2. Good"}}, "LA6725-1"),
        ({"valueInteger": 2}, 2), ({"valueBoolean": False}, False), ({"valueString": "pink"}, "pink"),
    ],
)  # fmt: skip
def test_a_component_holds_codes_and_plain_values_too(value, read):
    apgar = of_code("9274-2", component=[None, 3, part("32406-1", **value)])
    assert value_of("32406-1", "1", bundle(apgar)) == read


def test_of_several_codes_of_one_value_the_one_of_a_system_counts():
    sct = "http://snomed.info/sct"
    codes = [{"system": sct, "code": "371240000"}, {"system": "urn:ward-book", "code": "red"}]
    given = of_code(PANEL, component=[part("32406-1", valueCodeableConcept={"coding": codes})])
    assert value_of("32406-1", "1", given, labels="urn:ward-book") == "red"
    assert value_of("32406-1", "1", given, labels=sct) == "371240000"
    for labels in ({}, {"labels": "urn:none"}):
        with pytest.raises(LackingError, match="no value that can be read"):
            value_of("32406-1", "1", given, **labels)


def test_a_period_counts_from_its_end_and_an_open_one_from_its_start():
    def glucose(**when):
        given = of_code(GLUCOSE, **amount(6.3, "mmol/L"))
        del given["effectiveDateTime"]
        return {**given, **when}

    def ago(hours):
        return (NOW - timedelta(hours=hours)).isoformat()

    limits = {"unit": "mmol/L", "max_age": 4}
    sampled = {"effectivePeriod": {"start": ago(30)}, "issued": ago(0)}  # issued a day later
    with pytest.raises(LackingError, match="older than 4 hours"):
        value_of(GLUCOSE, data=glucose(**sampled), **limits)
    for when in (
        {"effectivePeriod": {"start": ago(30), "end": ago(1)}}, {"effectiveInstant": ago(1)},
        {"effectivePeriod": {"start": ago(3)}}, {"issued": ago(1)},
    ):  # fmt: skip
        assert value_of(GLUCOSE, data=glucose(**when), **limits) == 6.3
    for when in (
        {"effectiveTiming": {"event": [ago(1)]}, "issued": ago(1)},
        {"effectivePeriod": {}},
    ):
        with pytest.raises(LackingError, match="does not come with its time"):
            value_of(GLUCOSE, data=glucose(**when), **limits)


@pytest.mark.parametrize(
    ("value", "unit", "wanted", "read"),
    [  # by hand, from UCUM's table: m[Hg] is 133.322 kPa, m[H2O] 9.80665 kPa, [lb_av] 453.59237 g
        (16, "kPa", "mm[Hg]", 16000 / 133.322), (120, "mm[Hg]", "kPa", 15.99864), (1, "bar", "kPa", 100),
        (10, "cm[H2O]", "Pa", 980.665), (98.6, "[degF]", "Cel", 37), (36.5, "Cel", "[degF]", 97.7),
        (310.15, "K", "Cel", 37), (37, "Cel", "K", 310.15), (0.9, "g/L", "mg/dL", 90),
        (7, "g/dL", "g/L", 70), (2.5, "mmol/L", "umol/mL", 2.5), (2, "mmol/L", "mmol/l", 2),
        (70, "kg", "g", 70000), (154, "[lb_av]", "kg", 69.85322498), (70, "[in_i]", "cm", 177.8),
        (6, "ug/kg/min", "mg/kg/h", 0.36), (72, "{beats}/min", "/min", 72), (72, "/min", "1/min", 72),
        (4, "m[iU]/L", "u[IU]/mL", 4), (250, "10*9/L", "10*3/uL", 250), (90, "s", "min", 1.5),
        (120, "mL/h", "mL/min", 2), (1, "meq/L", "eq/L", 0.001),
    ],
)  # fmt: skip
def test_units_of_the_same_quantity_are_converted(value, unit, wanted, read):
    assert value_of(HEART, wanted, of_code(HEART, **amount(value, unit))) == pytest.approx(
        read, rel=1e-14
    )


@pytest.mark.parametrize(
    ("unit", "wanted"),
    [
        ("mg/dL", "mmol/L"), ("mmol/L", "mg/dL"), ("meq/L", "mmol/L"), ("%", "1"), ("kg", "1"),
        ("ug/kg/min", "/min"), ("ug/min", "ug/kg/min"), ("U/L", "[iU]/L"), ("Cel", "kPa"),
        ("mm", "mm[Hg]"), ("mmHg", "mm[Hg]"), ("mcg", "ug"), ("ug/mL{DDU}", "ug/mL{FEU}"),
        ("{copies}/mL", "/mL"), ("mg/dL/", "mg/dL"), ("mCel", "Cel"), ("kmin", "min"), ("", "kPa"),
        (["kPa"], "mm[Hg]"), (None, "mm[Hg]"), ("KG", "kg"), ("10*3", "1"), ("1/1", "1"),
        ("/mL/10*3", "/mL"),
    ],
)  # fmt: skip
def test_other_units_are_refused_by_name(unit, wanted):
    with pytest.raises(LackingError, match=re.escape(f"has another unit than '{wanted}'")):
        value_of(HEART, wanted, of_code(HEART, **amount(5, unit)), gaps=True)


def test_moles_need_the_molar_mass():
    def read(value, unit, wanted):
        return value_of(
            GLUCOSE, wanted, of_code(GLUCOSE, **amount(value, unit)), molar_mass=180.156
        )

    assert read(180.156, "mg/dL", "mmol/L") == 10
    assert read(10, "mmol/L", "mg/dL") == 180.156
    assert read(10, "mmol/L", "umol/L") == 10_000
    with pytest.raises(LackingError, match="another unit"):
        read(10, "meq/L", "mg/dL")
    for value in (float("nan"), float("inf"), 10**400, 1e308):
        with pytest.raises(LackingError, match="no number"):
            read(value, "kmol/L", "mg/dL")


def test_what_answers_another_query_is_no_gap():
    """A system that does not know combo-code may leave it out, and send the latest of anything."""
    for data in (
        of_code(HEART, **amount(72, "/min")),
        bundle(of_code(HEART, **amount(72, "/min"))),
    ):
        with pytest.raises(LackingError, match="no final value of x in what was sent"):
            value_of(SYSTOLIC, "mm[Hg]", data, gaps=True)


def test_a_converted_value_is_short_on_the_card(site):
    client, _ = site
    (card,) = ask(client, call(prefetch={
        "pressure": observation("pressure", 8, **amount(8, "kPa")),
        "lactate": observation("lactate", 2.0),
    })).json()["cards"]  # fmt: skip
    assert "Values used: pressure 60.0051004 mm" in card["detail"]


def test_ten_thousand_resources_are_searched_in_fifty_milliseconds():
    old = panel(amount(90, "mm[Hg]"), amount(60, "mm[Hg]"))
    ago = [(NOW - timedelta(minutes=i)).isoformat() for i in range(1, 10_000)]
    entries = bundle(*({**old, "effectiveDateTime": when} for when in ago))
    entries["entry"].append({"resource": panel(amount(107, "mm[Hg]"), NOT_DONE)})
    took = []
    for _ in range(5):
        begun = time.process_time()
        assert value_of(SYSTOLIC, "mm[Hg]", entries) == 107
        took.append(time.process_time() - begun)
    assert min(took) < 0.05


def test_gaps_need_a_policy_that_takes_them():
    lactate = {**SERVICE["features"]["lactate"], "gaps": True}
    given = {**SERVICE, "features": {**SERVICE["features"], "lactate": lactate}}
    with pytest.raises(dprl.ParameterError, match="'lactate' may be missing"):
        serve_app(policy_of_features(), token=None, hooks=Hooks.of(given))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"features": {"pressure": {"context": "x", "gaps": "yes"}}}, "odd 'gaps'"),
        ({"id": ""}, "needs 'id'"), ({"id": "a/b"}, "'id' may have letters"), ({"title": 3}, "needs 'title'"),
        ({"more": 1}, "'more' means nothing"), ({"features": {}}, "one table per feature"),
        ({"features": {"pressure": 3}}, "must be a table"),
        ({"features": {"pressure": {}}}, "either 'code' or 'context'"),
        ({"features": {"pressure": {"code": "8478-0"}}}, "a code with its system"),
        ({"features": {"pressure": {"code": "a|b", "max_age": -1}}}, "odd 'max_age'"),
        ({"features": {"pressure": {"code": "a|b", "other": 1}}}, "odd 'other'"),
        ({"features": {"pressure": {"code": "a|b", "max_age": 2}}}, "[features.pressure] needs 'unit'"),
        ({"features": {"pressure": {"code": "a|b", "unit": "", "max_age": 2}}}, "[features.pressure] needs 'unit'"),
        ({"features": {"pressure": {"code": "a|b", "unit": "1"}}}, "[features.pressure] needs 'max_age'"),
        ({"features": {"pressure": {"code": "a|b", "unit": "1", "max_age": "all"}}}, "odd 'max_age'"),
        ({"features": {"pressure": {"context": "x", "unit": "kg"}}}, "'unit' means nothing with 'context'"),
        ({"features": {"pressure": {"context": "x", "max_age": 2}}}, "'max_age' means nothing with 'context'"),
        ({"features": {"pressure": {"code": "a|b", "unit": "kg", "max_age": 2, "molar_mass": 0}}}, "odd 'molar_mass'"),
        ({"features": {"pressure": {"code": "a|b", "unit": "kg", "max_age": 2, "molar_mass": True}}}, "odd 'molar_mass'"),
        ({"features": {"pressure": {"code": "a|b", "unit": "kPa", "max_age": 2, "molar_mass": 3}}}, "odd 'molar_mass'"),
        ({"features": {"pressure": {"context": "x", "molar_mass": 180}}}, "odd 'molar_mass'"),
        ({"features": {"pressure": {"context": "x", "labels": "a"}}}, "'labels' means nothing with 'context'"),
        ({"features": {"pressure": {"code": "a|b", "labels": 3}}}, "odd 'labels'"),
        ({"source": {"url": "x"}}, "'source' needs label"), ({"reasons": []}, "'reasons' must be"),
        ({"reasons": [{"code": "x"}]}, "'reasons' needs code"), ({"state": {"context": "x"}}, "one table per feature"),
    ],
)  # fmt: skip
def test_descriptions_that_are_wrong_are_refused(change, what):
    with pytest.raises(dprl.ParameterError, match=re.escape(what)):
        Hooks.of({**SERVICE, **change})


def test_values_without_a_unit_or_a_limit_of_age_are_written_so():
    source = Source.of("score", {"code": "a|b", "unit": "1", "max_age": "any"})
    assert source.max_age is None
    context = {"patientId": "p1"}

    def read(**value):
        resource = {
            "resourceType": "Observation", "status": "final", "subject": {"reference": "Patient/p1"},
            "code": {"coding": [{"system": "a", "code": "b"}]},
            "effectiveDateTime": "1999-01-01T10:00:00Z", **value,
        }  # fmt: skip
        return source.value(context, resource, NOW)

    ucum = "http://unitsofmeasure.org"
    assert read(valueInteger=7) == 7
    assert read(valueString="high") == "high"
    assert read(valueCodeableConcept={"coding": [{"code": "high"}]}) == "high"
    assert read(valueQuantity={"value": 7.0}) == 7.0
    assert read(valueQuantity={"value": 7.0, "code": "1", "system": ucum}) == 7.0
    for odd in ({"code": "1"}, {"unit": "kg"}, {"system": ucum}, {"code": "kg", "system": ucum}):
        with pytest.raises(LackingError, match="unit"):
            read(valueQuantity={"value": 7.0, **odd})


def test_the_example_in_the_documentation_is_a_description():
    page = Path(__file__).parents[3].joinpath("docs", "serving.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```text\n(id = .*?)```", page, re.DOTALL)
    assert [value.key for value in Hooks.of(tomllib.loads(example)).values] == [
        "pressure",
        "weight",
    ]
    (tables,) = re.findall(r"```text\n(\[features.ward\].*?)```", page, re.DOTALL)
    values = Hooks.of({**SERVICE, **tomllib.loads(tables)}).values
    assert [(v.key, v.gaps) for v in values] == [
        ("ward", False), ("lactate", True), ("ventilated", False), ("admitted", False),
    ]  # fmt: skip


def test_a_description_must_fit_the_policy(tmp_path):
    features = {"pressure": SERVICE["features"]["pressure"]}
    hooks = Hooks.of({**SERVICE, "features": features})
    with pytest.raises(dprl.ParameterError, match="not those of the policy"):
        serve_app(policy_of_features(), token=None, hooks=hooks)
    (tmp_path / "x.toml").write_text("id = ")
    with pytest.raises(dprl.ParameterError, match="is no TOML"):
        Hooks.read(tmp_path / "x.toml")
    with pytest.raises(dprl.ParameterError, match="cannot read"):
        Hooks.read(tmp_path / "none.toml")
