"""What not to do, in everything that people use: command line, report, review page, service."""

from __future__ import annotations

import json
import uuid

import pytest
from test_avoid import LEARNER, UNIT, trial

import dprl
from dprl.apps.reports.changes import describe_changes


@pytest.fixture(scope="module")
def warned():
    return dprl.gate(LEARNER, trial(1, n=1_000), **UNIT)


def test_the_command_line_says_it(run, tmp_path):
    dprl.write(trial(1, n=1_000), tmp_path / "log.csv")
    columns = [x for name in ("episode", "state", "action", "reward") for x in (f"--{name}", name)]
    assert run("fit", "log.csv", *columns, "--n-min", 20, "--gamma", 1)[0] == 0
    asked = ("gate", "policy.dprl", "log.csv", "--lowest", 0, "--highest", 1)
    code, out, _ = run(*asked)
    assert code == 0
    assert "not ZDV" in out
    (tmp_path / "new.csv").write_text("state\nstart\nnever\n")
    code, out, _ = run("act", "gated.dprl", "new.csv")
    assert out.splitlines() == ["state,suggested", "start,not ZDV", "never,DEFER"]
    code, out, _ = run("act", "gated.dprl", "new.csv", "--json")
    assert json.loads(out)["rows_out"] == [
        {"state": "start", "suggested": None, "avoid": "ZDV"},
        {"state": "never", "suggested": None},
    ]
    assert json.loads(out)["deferred"] == 1
    code, out, _ = run("changes", "gated.dprl")
    assert "not ZDV" in out
    code, out, _ = run(*asked, "--no-avoid", "--json")
    assert "avoid" not in {row["kind"] for row in json.loads(out)["certificate"]["rows"]}


def test_a_report_describes_it(warned, tmp_path):
    held = trial(7, n=300)
    (change,) = describe_changes(warned, held).changes
    assert (change.suggested, change.avoid) == ("not ZDV", "ZDV")
    assert (change.check.took, change.check.others) == (900, 300)
    assert change.check.advantage > 0
    found = describe_changes(warned, held)
    assert found.steps == {"deferred": 0.0, "confirmed": 0.0, "changed": 1.0}
    assert found.not_done == pytest.approx(0.25)
    took, others = found.cases(change)
    assert {c.action for c in others} == {"ZDV"}
    assert "ZDV" not in {c.action for c in took}
    for lang, words in (("en", "not ZDV"), ("de", "nicht ZDV")):
        dprl.report(
            warned, held, tmp_path / f"{lang}.html", draws=100, lang=lang, standard="target"
        )
        page = (tmp_path / f"{lang}.html").read_text()
        assert words in page
    assert "zu vermeiden" in page


def test_the_review_page_shows_it(warned, tmp_path):
    pytest.importorskip("starlette")
    from test_review import TOKEN, site

    client, found, _ = site(tmp_path, trial(1, n=1_000), policy=warned)
    page = client.get(f"/{TOKEN}/change/{found.changes[0].key}").text
    assert "Whatever else is done stays in its usual proportions" in page
    assert "to be avoided" in page


def test_the_service_says_it(warned):
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    from starlette.testclient import TestClient
    from test_serve import ready

    from dprl.apps.serve.app import serve_app
    from dprl.apps.serve.hooks import Hooks

    service = {
        "id": "x", "title": "T", "description": "D", "hook": "org.example.round",
        "state": {"context": "arm"},
    }  # fmt: skip
    app = serve_app(warned, token=None, hooks=Hooks.of(service))
    with TestClient(app, base_url="http://127.0.0.1:9") as client:
        ready(client)
        one, other = client.post("/act", json={"states": ["start", "never"]}).json()["answers"]
        assert (one["action"], one["avoid"], one["kind"], one["defer"]) == (
            None, "ZDV", "avoid", False,
        )  # fmt: skip
        assert "avoid" not in other
        assert other["defer"]
        why = client.post("/explain", json={"state": "start"}).json()
        assert (why["avoid"], why["kind"]) == ("ZDV", "avoid")
        shapes = client.get("/openapi.json").json()
        answer = shapes["paths"]["/act"]["post"]["responses"]["200"]["content"]
        items = answer["application/json"]["schema"]["properties"]["answers"]["items"]
        assert "avoid" in items["properties"]
        assert "avoid" not in items["required"]
        body = {"hook": "org.example.round", "hookInstance": str(uuid.uuid4()),
                "context": {"arm": "start"}}  # fmt: skip
        (card,) = client.post("/cds-services/x", json=body).json()["cards"]
        assert card["summary"] == "Consider: not ZDV"
        assert 'kind="avoid"} 3' in client.get("/metrics").text


def test_figures_draw_it(warned):
    table = dprl.figures.policy_map(warned).table
    assert set(table["suggested"]) == {"not ZDV"}
    chance = dict(zip(table["action"], table["probability"], strict=True))
    assert chance["ZDV"] == 0
    assert dprl.figures.forest(warned).table["suggested"] == ["not ZDV"]
