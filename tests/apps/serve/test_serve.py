"""The service over HTTP: what it answers, what it refuses and how, and what machines need."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import threading
from dataclasses import replace

import numpy as np
import pytest
from test_gate_cells import LEARNER, UNIT, ward

import dprl
from conftest import to_log

pytest.importorskip("starlette", reason="starlette is not installed (dprl[serve])")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (dprl[serve])")

from starlette.testclient import TestClient

from dprl.apps import web
from dprl.apps.serve import lifecycle
from dprl.apps.serve.app import serve_app

TOKEN = "a-token-nobody-guesses"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
WORLD = dprl.envs.PointMass()


@pytest.fixture(scope="module")
def care():
    policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(
        dprl.envs.care_pathway().sample(800, seed=1)
    )
    with TestClient(serve_app(policy, token=TOKEN), base_url="http://127.0.0.1:9") as client:
        ready(client)
        client.headers.update(BEARER)
        yield client, policy


@pytest.fixture(scope="module")
def walker():
    learner = dprl.DPRLContinuous(
        n_min=8, radius=0.08, gamma=0.97, metric=dprl.Metric(scale="none"), cut="terminal"
    )
    policy = learner.fit(WORLD.sample(150, seed=1))
    with TestClient(serve_app(policy, token=TOKEN), base_url="http://127.0.0.1:9") as client:
        ready(client)
        client.headers.update(BEARER)
        yield client, policy


def ready(client):
    while client.get("/healthz").status_code != 200:
        threading.Event().wait(0.01)


def act(client, *states):
    answer = client.post("/act", json={"states": list(states)})
    assert answer.status_code == 200, answer.text
    assert answer.json()["policy"] == client.get("/policy").json()["digest"]
    return answer.json()["answers"]


def refused(client, status, path="/act", **how):
    answer = client.post(path, **how)
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


def test_a_body_with_another_member_is_told_which_one_is_taken(walker):
    error = refused(walker[0], 422, json={"state": {"x": 0.3, "y": 0.5}})
    assert error["what"].endswith("'state', which means nothing here; it takes 'states' alone.")


# -- what it answers ------------------------------------------------------------------------------


def test_labels_are_answered_as_the_policy_does(care):
    client, policy = care
    answers = act(client, *policy.states)
    for state, answer in zip(policy.states, answers, strict=True):
        expected = policy.act(state)
        assert answer["action"] == (None if expected is dprl.DEFER else expected)
        assert answer["defer"] == (expected is dprl.DEFER)
        assert answer["reason"] == policy.explain(state).reason
        assert answer["kind"] == policy.explain(state).kind
        assert answer["in_range"]
    assert any(not a["defer"] for a in answers)


def test_a_label_never_seen_is_deferred_and_says_so(care):
    client, _ = care
    (answer,) = act(client, "nowhere")
    assert answer == {
        "action": None, "defer": True, "kind": "defer", "in_range": False,
        "reason": "This state was never seen in training.",
    }  # fmt: skip
    said = client.post("/explain", json={"state": "nowhere"}).json()
    assert (said["defer"], said["episodes"], said["actions"]) == (True, 0, [])


def test_features_are_answered_as_the_policy_does(walker):
    client, policy = walker
    x = WORLD.sample(40, seed=2).features[:400]
    low, high = np.array(policy.provenance["ranges"]).T
    inside = ((x >= low) & (x <= high)).all(axis=1)
    states = [dict(zip(policy.feature_names, row, strict=True)) for row in x.tolist()]
    batch = act(client, *states)
    for i in range(0, len(x), 13):
        (single,) = act(client, states[i])
        assert single == batch[i]
    expected = policy.act(x)
    for answer, action, ok in zip(batch, expected, inside, strict=True):
        speaks = ok and action is not dprl.DEFER
        assert answer["action"] == (action if speaks else None)
        assert answer["in_range"] <= ok
    assert sum(not a["defer"] for a in batch) > 20


def test_outside_the_training_range_is_deferred_even_where_the_ball_reaches(walker):
    client, policy = walker
    (low, high), _ = policy.provenance["ranges"]
    rng = np.random.default_rng(0)
    edge = [
        {"x": float(high + 1e-9 if k % 2 else low - 1e-9), "y": float(v)}
        for k, v in enumerate(rng.uniform(0, 1, 200))
    ]
    whole = policy.act([[s["x"], s["y"]] for s in edge])
    assert any(a is not dprl.DEFER for a in whole)  # the policy itself would speak
    for answer in act(client, *edge):
        assert (answer["defer"], answer["in_range"]) == (True, False)
        assert "value in training" in answer["reason"]
    (at_edge,) = act(client, {"x": high, "y": 0.5})
    assert "value in training" not in at_edge["reason"]


def test_huge_numbers_are_out_of_range_not_errors(walker):
    client, _ = walker
    for value in (1e300, -1e300, 10**40, 1.7976931348623157e308):
        (answer,) = act(client, {"x": value, "y": 0.5})
        assert answer["in_range"] is False
        assert client.post("/explain", json={"state": {"x": value, "y": 0.5}}).status_code == 200


def test_nothing_near_is_said():
    far = [[((0.0, 0.0), "a", 0.0)], [((10.0, 10.0), "a", 0.0)]]
    log = dprl.from_arrays(
        episode=[0, 1], state=np.array([e[0][0] for e in far]), action=["a", "b"], reward=[0.0, 1.0],
        feature_names=["x", "y"],
    )  # fmt: skip
    policy = dprl.DPRLContinuous(
        n_min=1, radius=1.0, gamma=1.0, metric=dprl.Metric(scale="none")
    ).fit(log)
    with TestClient(serve_app(policy, token=None), base_url="http://127.0.0.1:9") as client:
        ready(client)
        (answer,) = act(client, {"x": 5.0, "y": 5.0})
        assert answer["in_range"] is False
        assert answer["reason"] == "Nothing in the training log lies within 1 of it."


def test_explanations_are_the_policy_s(walker, care):
    client, policy = walker
    x = [0.3, 0.5]
    said = client.post("/explain", json={"state": {"x": 0.3, "y": 0.5}}).json()
    own = policy.explain(x).to_dict()
    own["action"] = own.pop("suggested")
    assert {k: said[k] for k in own} == own
    assert said["similar"] == []  # named only where the service was told to
    client, policy = care
    assert (
        client.post("/explain", json={"state": "fever"}).json()["actions"]
        == (policy.explain("fever").to_dict()["actions"])
    )


def test_whole_numbers_and_truths_as_labels():
    for states, wrong in (((3, 4), [3.0, True, "3", None]), ((False, True), [0, 1.0, "true"])):
        log = to_log([[(s, "b", 1.0) for s in states]] * 3 + [[(s, "a", 0.0) for s in states]] * 4)
        policy = dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(log)
        with TestClient(serve_app(policy, token=None), base_url="http://127.0.0.1:9") as client:
            ready(client)
            assert [a["action"] for a in act(client, *states)] == ["b", "b"]
            for state in wrong:
                assert refused(client, 422, json={"states": [state]})["state"] == 0


def test_a_policy_limited_in_review_is_served_as_such(walker):
    from dprl.apps.reports.changes import describe_changes
    from dprl.policies.table import limit_regions

    _, policy = walker
    found = describe_changes(policy, WORLD.sample(80, seed=3))
    limited = limit_regions(policy, [found.changes[0].region])
    with TestClient(serve_app(limited, token=None), base_url="http://127.0.0.1:9") as client:
        ready(client)
        one, other = (dict(c.typical) for c in found.changes[:2])
        first, second = act(client, one, other)
        assert (first["action"], second["defer"]) == (found.changes[0].suggested, True)
        assert "not among the changes that were approved" in second["reason"]
        assert "approved" in client.get("/policy").json()["provenance"]


# -- what it refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "feature", "what"),
    [
        ({"x": 0.5}, "y", "needs the feature 'y'"),
        ({"x": 0.5, "y": 0.5, "q": 1}, "q", "'q' is no feature"),
        ({"x": "0.5", "y": 0.5}, "x", "must be a number"),
        ({"x": None, "y": 0.5}, "x", "must be a number"),
        ({"x": True, "y": 0.5}, "x", "must be a number"),
        ({"x": [0.5], "y": 0.5}, "x", "must be a number"),
        ({"x": 10**400, "y": 0.5}, "x", "must be a finite number"),
        ([0.5, 0.5], None, "an object of features"),
        ("x", None, "an object of features"),
    ],
)
def test_errors_say_which_state_and_feature(walker, state, feature, what):
    client, _ = walker
    error = refused(client, 422, json={"states": [{"x": 0.1, "y": 0.1}, state]})
    assert (error["state"], error["feature"]) == (1, feature)
    assert what in error["what"]
    assert error["where"].startswith("states[1]")
    error = refused(client, 422, "/explain", json={"state": state})
    assert (error["state"], error["feature"]) == (0, feature)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400), (b"{", 400), (b'{"states": [NaN]}', 400), (b'{"states": [Infinity]}', 400),
        (b"\xff\xfe", 400), (b"[" * 5000, 400), (b'{"states": [1], "states": [2]}', 400),
        (b'{"states": [{"x": 1, "x": 2, "y": 1}]}', 400), (b'{"states": [' + b"9" * 5000 + b"]}", 400),
        (b"[]", 422), (b"null", 422), (b"{}", 422), (b'{"states": []}', 422),
        (b'{"states": "x"}', 422), (b'{"states": [1], "more": 1}', 422),
        (json.dumps({"states": [{}] * 1001}).encode(), 422),
        (b'{"states": [{"x": 1e400, "y": 0.5}]}', 422),
        (b'{"states": [{"\\ud800": 1}]}', 422),
    ],
)  # fmt: skip
def test_odd_bodies_are_refused_with_words(walker, body, status):
    client, _ = walker
    headers = {"Content-Type": "application/json"}
    assert refused(client, status, content=body, headers=headers)["what"]


def test_bodies_must_be_json_and_small(walker):
    client, _ = walker
    assert refused(client, 415, content=b"{}")["kind"] == "body"
    large = json.dumps({"states": [{"x": 0.5, "y": 0.5}], "pad": "x" * (1 << 20)}).encode()
    headers = {"Content-Type": "application/json"}
    assert "too large" in refused(client, 413, content=large, headers=headers)["what"]

    def drip():
        for _ in range(1100):
            yield b" " * 1000

    assert refused(client, 413, content=drip(), headers=headers)


def test_a_body_that_never_comes_is_not_waited_for(care, monkeypatch):
    _, policy = care
    monkeypatch.setattr("dprl.apps.web.SECONDS_A_BODY", 0.05)
    said = []

    async def never():
        await asyncio.sleep(60)

    async def send(message):
        said.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/act", "raw_path": b"/act", "query_string": b"",
        "root_path": "", "scheme": "http", "http_version": "1.1", "server": ("127.0.0.1", 9),
        "client": ("127.0.0.1", 1), "headers": [(b"host", b"127.0.0.1:9")],
    }  # fmt: skip
    asyncio.run(serve_app(policy, token=None)(scope, never, send))
    assert said[0]["status"] == 408


def test_the_token_is_asked_for(care):
    client, _ = care
    for given in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"):
        headers = {"Authorization": given.encode("utf-8")}
        for path in ("/policy", "/metrics", "/openapi.json"):
            answer = client.get(path, headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert client.post("/act", json={"states": ["fever"]}, headers=headers).status_code == 401
        assert client.post("/explain", json={"state": "fever"}, headers=headers).status_code == 401
        assert client.get("/healthz", headers=headers).status_code == 200


def test_other_names_and_other_pages_are_refused(care):
    client, _ = care
    assert client.get("/policy", headers={"Host": "evil.example"}).status_code == 421
    for origin in ("http://evil.example", "null", "http://127.0.0.1:10"):
        assert refused(client, 403, json={"states": ["fever"]}, headers={"Origin": origin})
        assert client.get("/policy", headers={"Origin": origin}).status_code == 403
    preflight = client.options("/act", headers={"Origin": "http://evil.example"})
    assert preflight.status_code == 403
    assert "access-control-allow-origin" not in preflight.headers


def test_unknown_paths_and_methods_answer_in_json(care):
    client, _ = care
    assert client.get("/nothing").json()["error"]["kind"] == "refused"
    answer = client.get("/act")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["error"]["what"] == "Method Not Allowed."


def test_an_error_of_ours_is_said_without_its_insides(monkeypatch):
    policy = dprl.DPRLDiscrete(n_min=1, gamma=1.0).fit(to_log([[("s", "a", 0.0)]] * 2))
    monkeypatch.setattr("dprl.apps.serve.answers.Answers.about", lambda self: 1 / 0)
    with TestClient(
        serve_app(policy, token=None), base_url="http://127.0.0.1:9", raise_server_exceptions=False
    ) as client:
        answer = client.get("/policy")
        assert answer.status_code == 500
        assert answer.json()["error"]["what"] == "something went wrong here."


def test_a_policy_without_ranges_is_refused(walker):
    _, policy = walker
    for ranges in (None, [], [[0.0, 1.0]], [[0.0, 1.0], [0.0]], [[0.0, "1"], [0.0, 1.0]]):
        bare = replace(policy, provenance={**policy.provenance, "ranges": ranges})
        with pytest.raises(dprl.PolicyError, match="ranges of its features"):
            serve_app(bare, token=None)


# -- what machines need ---------------------------------------------------------------------------


def test_not_ready_until_warm(monkeypatch):
    policy = dprl.DPRLDiscrete(n_min=1, gamma=1.0).fit(to_log([[("s", "a", 0.0)]] * 2))
    go = threading.Event()
    monkeypatch.setattr("dprl.apps.serve.answers.Answers.warm", lambda self: go.wait(500))
    with TestClient(serve_app(policy, token=None), base_url="http://127.0.0.1:9") as client:
        assert client.get("/healthz").status_code == 503
        assert refused(client, 503, json={"states": ["s"]})["kind"] == "starting"
        assert client.get("/livez").json() == {"status": "ok"}
        assert client.get("/readyz").status_code == 503
        assert numbers(client)["dprl_ready"] == 0
        go.set()
        ready(client)
        assert act(client, "s")
        assert client.get("/readyz").json() == {"status": "ok"}
        assert numbers(client)["dprl_ready"] == 1


def numbers(client):
    """Every sample of /metrics: its name with its labels in order → its value."""
    text, result = client.get("/metrics").text, {}
    for line in text.splitlines():
        if not line.startswith("#"):
            sample, value = line.rsplit(" ", 1)
            name, _, labels = sample.rstrip("}").partition("{")
            parts = sorted(re.findall(r'\w+="[^"]*"', labels))
            result[name + ("{" + ",".join(parts) + "}" if parts else "")] = float(value)
    return result


def test_metrics_count_what_happened():
    log = to_log([[("s", "b", 1.0)]] * 3 + [[("s", "a", 0.0)]] * 4 + [[("t", "a", 0.0)]])
    policy = dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(log)
    with TestClient(serve_app(policy, token=None), base_url="http://127.0.0.1:9") as client:
        ready(client)
        client.post("/act", json={"states": ["s", "s", "t", "nowhere"]})
        client.post("/act", json={"states": [3]})
        client.get("/nothing/at/all")
        client.get("/policy", headers={"Host": "evil.example"})
        lines = numbers(client)
    assert lines['dprl_answers_total{kind="change"}'] == 2
    assert lines['dprl_answers_total{kind="defer"}'] == 1
    assert lines['dprl_answers_total{kind="out_of_range"}'] == 1
    assert lines['dprl_requests_total{code="200",path="/act"}'] == 1
    assert lines['dprl_requests_total{code="422",path="/act"}'] == 1
    assert lines['dprl_requests_total{code="404",path="other"}'] == 1
    assert lines['dprl_requests_total{code="421",path="/policy"}'] == 1
    assert lines['dprl_request_seconds_bucket{le="+Inf",path="/act"}'] == 2
    assert lines['dprl_request_seconds_count{path="/act"}'] == 2
    assert lines[f'dprl_policy_info{{digest="{policy.digest()}"}}'] == 1


def test_the_description_names_what_there_is(walker, care):
    for client, policy in (walker, care):
        document = client.get("/openapi.json").json()
        assert set(document["paths"]) == {
            "/act", "/explain", "/policy", "/healthz", "/livez", "/readyz", "/metrics",
            "/openapi.json",
        }  # fmt: skip
        asked = document["paths"]["/act"]["post"]["requestBody"]["content"]["application/json"]
        items = asked["schema"]["properties"]["states"]["items"]
        if isinstance(policy, dprl.NeighborPolicy):
            assert items["required"] == list(policy.feature_names)
        else:
            assert items == {"type": "string"}
        about = client.get("/policy").json()
        assert about["digest"] == policy.digest()
        assert about["parameters"]["n_min"] == policy.n_min


def test_one_state_takes_no_thread(walker, monkeypatch):
    client, _ = walker
    act(client, {"x": 0.3, "y": 0.5})

    class No:
        def __init__(self, *a, **k):
            raise AssertionError("a thread pool for one state")

    monkeypatch.setattr("dprl.evidence.neighbors.engine.ThreadPoolExecutor", No)
    assert act(client, {"x": 0.3, "y": 0.5})


def test_cells_are_served_with_their_certificate():
    policy = dprl.gate(LEARNER, ward(1_500, 0), **UNIT)
    with TestClient(serve_app(policy, token=TOKEN), base_url="http://127.0.0.1:9") as client:
        ready(client)
        client.headers.update(BEARER)
        states = [{"x": x, "noise": 0.0} for x in (0.0, 10.0, 5.0, 900.0)]
        change, silent, between, far = act(client, *states)
        assert (change["action"], change["kind"]) == ("b", "change")
        assert "not certified to be better" in silent["reason"]
        assert between["reason"] == "It is farther than 1 from every cell."
        assert "x = 900 is above the largest value" in far["reason"]
        assert [a["in_range"] for a in (change, silent, between, far)] == [True, True, False, False]
        told = client.post("/explain", json={"state": states[0]}).json()
        assert (told["action"], told["in_range"]) == ("b", True)
        assert refused(client, 422, json={"states": [{"x": 1.0}]})["what"].startswith(
            "a state needs"
        )
        about = client.get("/policy").json()
        assert about["certificate"]["claim"] == policy.certificate.claim
        assert [f["name"] for f in about["features"]] == ["x", "noise"]
        items = client.get("/openapi.json").json()["paths"]["/act"]["post"]["requestBody"]
        schema = items["content"]["application/json"]["schema"]["properties"]["states"]["items"]
        assert schema["required"] == ["x", "noise"]


# -- what was once silent -----------------------------------------------------------------------


def test_half_a_request_is_no_request():
    """A body that breaks off midway reaches nobody."""
    reached = []

    async def app(scope, receive, send):
        reached.append((await receive())["body"])

    guard = web.Guard(
        app, "127.0.0.1", (), 1_000, lambda *why: None, origin=False, enter=lambda *asked: True
    )
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"host", b"127.0.0.1")]}
    first = {"type": "http.request", "body": b"agree", "more_body": True}

    def asked(then):
        messages = iter((first, then))

        async def receive():
            return next(messages)

        asyncio.run(guard(scope, receive, None))

    asked({"type": "http.disconnect"})
    assert reached == []
    asked({"type": "http.request", "body": b"!", "more_body": False})
    assert reached == [b"agree!"]


def test_a_warm_up_that_fails_ends_the_server(care, monkeypatch, capsys):
    def fails():
        raise ValueError("no room")

    ended = []
    service = serve_app(care[1], token=None).state.life
    monkeypatch.setattr(type(service.served.answers), "warm", lambda self: fails())
    monkeypatch.setattr(lifecycle.os, "kill", lambda *told: ended.append(told))
    asyncio.run(service._warm())
    assert len(ended) == 1
    assert not service.metrics.ready
    assert "no room" in capsys.readouterr().err


def test_compressed_bodies_are_refused_in_words(care):
    """Not unpacked: a few bytes could become more than any limit."""
    client, _ = care
    headers = {"Content-Type": "application/json", "Content-Encoding": "GZIP"}
    bomb = gzip.compress(b" " * 50_000_000)
    for body in (gzip.compress(b'{"states": ["fever"]}'), bomb):
        refused = client.post("/act", content=body, headers=headers)
        assert refused.status_code == 415
        error = refused.json()["error"]
        assert error["what"] == "the body is compressed, and is not unpacked here."
        assert (error["where"], refused.headers["accept-encoding"]) == (
            "content-encoding 'gzip'", "identity",
        )  # fmt: skip
    plain = {**headers, "Content-Encoding": "identity"}
    answered = client.post("/act", content=b'{"states": ["fever"]}', headers=plain)
    assert answered.status_code == 200
