"""A policy that nobody reviewed says so; with --require-approved it is not served."""

from __future__ import annotations

import json

import pytest

import dprl
from conftest import to_log

pytest.importorskip("starlette", reason="starlette is not installed (dprl[serve])")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (dprl[serve])")

from starlette.testclient import TestClient
from test_serve import numbers, ready

from dprl.apps.reports.changes import describe_changes
from dprl.apps.review.verdicts import Verdicts, write_approved
from dprl.apps.serve.app import serve_app
from dprl.apps.serve.audit import Audit, Records
from dprl.apps.serve.served import require_approved, review_of


def fitted(better):
    """A policy that suggests `better` at 's', and its log."""
    usual = "a" if better == "b" else "b"
    log = to_log([[("s", better, 1.0)]] * 3 + [[("s", usual, 0.0)]] * 4)
    return dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(log), log


def reviewed(folder, better, verdict="agree"):
    """The files that the export of a review writes."""
    folder.mkdir()
    policy, log = fitted(better)
    described = describe_changes(policy, log)
    keys = [c.key for c in described.changes]
    verdicts = Verdicts(folder / "v.sqlite", policy.digest(), keys, log.digest())
    verdicts.add(keys[0], "Ann", verdict)
    done = write_approved(described, verdicts, folder / "approved.dprl")
    return done.policy, done.audit


def test_a_policy_says_whether_it_was_reviewed(tmp_path):
    path, _ = reviewed(tmp_path / "r", "b")
    for policy, expected in ((fitted("b")[0], 0), (dprl.load(path), 1)):
        records = Records(None, Audit(tmp_path / f"audit-{expected}"))
        app = serve_app(policy, token=None, records=records)
        with TestClient(app, base_url="http://127.0.0.1:9") as client:
            ready(client)
            review = client.get("/policy").json()["review"]
            assert numbers(client)["dprl_policy_reviewed"] == expected
            entry = json.loads((tmp_path / f"audit-{expected}").read_text().splitlines()[0])
            assert (entry["event"], entry["reviewed"]) == ("policy", bool(expected))
            if not expected:
                assert review is None
            else:
                assert (review["changes"], review["of"], review["needs"]) == (1, 1, 1)
                assert review["policy"] == fitted("b")[0].digest()


def test_only_the_policy_of_this_review_is_approved(tmp_path):
    path, trail = reviewed(tmp_path / "one", "b")
    other, other_trail = reviewed(tmp_path / "two", "a")
    none, none_trail = reviewed(tmp_path / "three", "b", "disagree")
    require_approved(dprl.load(path), trail)
    require_approved(dprl.load(other), other_trail)
    for given, by, why in (
        (fitted("b")[0], trail, "nobody has approved this policy"),
        (dprl.load(path), other_trail, "comes from another review"),
        (dprl.load(none), none_trail, "the review approved no change"),
        (fitted("b")[0].limited_to([]), trail, "nobody has approved this policy"),
    ):  # fmt: skip
        with pytest.raises(dprl.PolicyError, match=why) as refused:
            require_approved(given, by)
        assert len(str(refused.value).splitlines()) == 3
    trail.write_bytes(trail.read_bytes().replace(b"Ann", b"Bob"))
    with pytest.raises(dprl.PolicyError, match="comes from another review"):
        require_approved(dprl.load(path), trail)
    (tmp_path / "text").write_text("no,trail\n")
    for odd in (tmp_path / "nowhere", tmp_path, tmp_path / "text", tmp_path / "one" / "v.sqlite"):
        with pytest.raises(dprl.ParameterError):
            require_approved(dprl.load(path), odd)
    assert review_of(fitted("b")[0]) is None


def test_a_new_policy_must_be_approved_too(tmp_path, capsys):
    path, trail = reviewed(tmp_path / "one", "b")
    other, other_trail = reviewed(tmp_path / "two", "a")
    app = serve_app(dprl.load(path), token=None, path=str(path), approved=str(trail))
    with TestClient(app, base_url="http://127.0.0.1:9") as client:
        ready(client)

        def action():
            answer = client.post("/act", json={"states": ["s"]})
            return answer.json()["answers"][0]["action"]

        def reload():
            return client.portal.call(app.state.life.reload)

        fitted("a")[0].save(path)
        assert "nobody has approved this policy" in reload()
        path.write_bytes(other.read_bytes())
        assert "comes from another review" in reload()
        assert action() == "b"
        assert "is not taken over" in capsys.readouterr().err
        trail.write_bytes(other_trail.read_bytes())
        assert reload() == ""
        assert action() == "a"
