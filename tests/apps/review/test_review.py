"""The review page over HTTP: who may come in, what is shown, what goes out."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import threading
from dataclasses import replace

import pytest
from test_describe import scattered_world
from test_gate_cells import LEARNER, UNIT, ward

import dprl
from conftest import to_log
from dprl._core.html import number, percent, render, visible
from dprl.apps.reports.changes import describe_changes
from dprl.apps.review import verdicts as export
from dprl.apps.review.verdicts import Verdicts, audit, cell, write_approved
from dprl.policies.certificate import down

pytest.importorskip("starlette", reason="starlette is not installed (dprl[serve])")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (dprl[serve])")

from starlette.testclient import TestClient

from dprl.apps.review.app import review_app

TOKEN = "a-token-nobody-guesses"
HOSTILE = "<script>alert('x')</script>\"'&\u202e"


def log_of(states=("s", "t"), good="b", usual="a"):
    better = [[(s, good, 1.0) for s in states]] * 6
    return to_log(better + [[(s, usual, 0.0) for s in states]] * 9)


def site(tmp_path, log=None, needs=1, policy=None, **options):
    log = log_of() if log is None else log
    policy = dprl.DPRLDiscrete(n_min=3, gamma=1.0).fit(log) if policy is None else policy
    found = describe_changes(policy, log)
    verdicts = Verdicts(tmp_path / "v.sqlite", policy.digest(), [c.key for c in found.changes])
    app = review_app(
        found, verdicts, tmp_path / "approved.dprl", token=TOKEN, needs=needs, **options
    )
    client = TestClient(app, base_url="http://127.0.0.1:9", follow_redirects=False)
    return client, found, verdicts


def csrf_of(client):
    page = client.get(f"/{TOKEN}/").text
    return re.search(r'name="csrf" value="([^"]+)"', page).group(1)


def judge(client, key, word, who="Ann", comment="", **more):
    form = {"csrf": csrf_of(client), "change": key, "reviewer": who, "verdict": word,
            "comment": comment, **more}  # fmt: skip
    headers = {"Origin": "http://127.0.0.1:9"}
    return client.post(f"/{TOKEN}/verdict", data=form, headers=headers)


def test_a_review_from_opening_to_export(tmp_path):
    client, found, verdicts = site(tmp_path)
    one, two = (c.key for c in found.changes)
    page = client.get(f"/{TOKEN}/")
    assert page.status_code == 200
    assert "2 changes to review" in page.text
    form, headers = {"csrf": csrf_of(client)}, {"Origin": "http://127.0.0.1:9"}
    early = client.post(f"/{TOKEN}/export", data=form, headers=headers)
    assert (early.status_code, "nobody has judged a change" in early.text) == (422, True)
    assert not (tmp_path / "approved.dprl").exists()
    detail = client.get(f"/{TOKEN}/change/{one}").text
    assert "Similar past cases" in detail
    answer = judge(client, one, "agree", comment="seen it")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/{TOKEN}/change/{two}?recorded=1"
    assert judge(client, two, "disagree").headers["location"] == f"/{TOKEN}/?recorded=2"
    page = client.get(f"/{TOKEN}/?recorded=2").text
    assert "Verdict 2 is recorded." in page
    assert "you have judged <strong>2 of 2</strong>" in page
    assert "✓ approved" in page
    assert client.get(f"/{TOKEN}/approved.dprl").status_code == 404
    form, headers = {"csrf": csrf_of(client)}, {"Origin": "http://127.0.0.1:9"}
    assert client.post(f"/{TOKEN}/export", data=form, headers=headers).status_code == 303
    saved = dprl.load(tmp_path / "approved.dprl")
    approved, refused = (found[k].state for k in (one, two))
    assert (saved.act(approved), saved.act(refused)) == ("b", dprl.DEFER)
    trail = (tmp_path / "approved-audit.csv").read_bytes()
    assert client.get(f"/{TOKEN}/audit.csv").content == trail
    assert (
        client.get(f"/{TOKEN}/approved.dprl").content == (tmp_path / "approved.dprl").read_bytes()
    )
    noted = saved.provenance["approved"]
    assert noted["audit"] == hashlib.sha256(trail).hexdigest()
    assert noted["policy"] == found.policy.digest()
    assert noted["log"] == log_of().digest()
    assert (noted["changes"], noted["of"], noted["needs"]) == (1, 2, 1)
    rows = list(csv.DictReader(io.StringIO(trail.decode())))
    assert [(r["reviewer"], r["verdict"], r["approved"]) for r in rows] == [
        ("Ann", "agree", "yes"), ("Ann", "disagree", "no"),
    ]  # fmt: skip
    assert rows[0]["chain"] == verdicts.all()[0].chain


def test_what_was_written_says_when_it_is_old(tmp_path):
    client, found, _ = site(tmp_path)
    one, two = (c.key for c in found.changes)
    judge(client, one, "agree")
    form, headers = {"csrf": csrf_of(client)}, {"Origin": "http://127.0.0.1:9"}
    client.post(f"/{TOKEN}/export", data=form, headers=headers)
    assert "given since" not in client.get(f"/{TOKEN}/").text
    judge(client, two, "agree")
    assert (
        "1 verdict was given since: this file does not know of it." in client.get(f"/{TOKEN}/").text
    )
    judge(client, one, "disagree")
    assert "2 verdicts were given since" in client.get(f"/{TOKEN}/").text
    client.post(f"/{TOKEN}/export", data=form, headers=headers)
    assert "given since" not in client.get(f"/{TOKEN}/").text


def test_exports_and_verdicts_wait_for_each_other(tmp_path, monkeypatch):
    """An export that began first cannot end last with fewer verdicts."""
    _, found, verdicts = site(tmp_path)
    one, two = (c.key for c in found.changes)
    verdicts.add(one, "Ann", "agree")
    inside, go, order = threading.Event(), threading.Event(), []
    slow = export.approved_policy

    def wait(*given, **more):
        if not inside.is_set():
            inside.set()
            go.wait(500)
        return slow(*given, **more)

    monkeypatch.setattr(export, "approved_policy", wait)

    def first():
        order.append(write_approved(found, verdicts, tmp_path / "a.dprl").verdicts)

    def second():
        Verdicts(verdicts.path, found.policy.digest(), [one, two]).add(two, "Ben", "agree")
        order.append(write_approved(found, verdicts, tmp_path / "a.dprl").verdicts)

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(500)
    threads[1].start()
    threads[1].join(0.5)
    assert (threads[1].is_alive(), order) == (True, [])
    go.set()
    for thread in threads:
        thread.join()
    assert order == [1, 2]
    assert len(dprl.load(tmp_path / "a.dprl").changes()) == 2


def test_verdicts_are_for_their_owner(tmp_path):
    _, _, verdicts = site(tmp_path)
    assert verdicts.path.stat().st_mode & 0o777 == 0o600


def test_a_verdict_taken_back_stays_in_the_trail(tmp_path):
    client, found, verdicts = site(tmp_path)
    key = found.changes[0].key
    judge(client, key, "agree")
    judge(client, key, "unsure")
    rows = list(csv.DictReader(io.StringIO(audit(verdicts.all(), found, 1))))
    assert [(r["verdict"], r["latest_of_reviewer"], r["approved"]) for r in rows] == [
        ("agree", "no", "no"), ("unsure", "yes", "no"),
    ]  # fmt: skip
    assert "(taken back)" in client.get(f"/{TOKEN}/change/{key}").text


def test_two_reviewers_who_disagree_and_who_agree(tmp_path):
    client, found, verdicts = site(tmp_path, needs=2)
    one, two = (c.key for c in found.changes)
    judge(client, one, "agree", "Ann")
    assert "… waiting for a second" in client.get(f"/{TOKEN}/change/{one}").text
    judge(client, one, "agree", "Bo")
    judge(client, two, "agree", "Ann")
    judge(client, two, "disagree", "Bo")
    page = client.get(f"/{TOKEN}/change/{two}").text
    assert "Reviewers disagree." in page
    done = write_approved(found, verdicts, tmp_path / "x.dprl", 2)
    assert done.approved == (one,)
    assert "reviewers disagree: <strong>1</strong>" in client.get(f"/{TOKEN}/").text


def test_filters(tmp_path):
    client, found, _ = site(tmp_path, log_of(("fever", "cold")))
    judge(client, found.changes[0].key, "agree")
    links = lambda page: re.findall(r"/change/(\w+)\"><bdi>", page.text)  # noqa: E731
    keys = [c.key for c in found.changes]
    assert links(client.get(f"/{TOKEN}/")) == keys
    assert links(client.get(f"/{TOKEN}/?status=approved")) == keys[:1]
    assert links(client.get(f"/{TOKEN}/?status=open")) == keys[1:]
    assert links(client.get(f"/{TOKEN}/?status=mine")) == keys[1:]
    named = [c.key for c in found.changes if c.state == "fever"]
    assert links(client.get(f"/{TOKEN}/?text=FEV")) == named
    assert links(client.get(f"/{TOKEN}/?suggested=b")) == keys
    assert links(client.get(f"/{TOKEN}/?suggested=a")) == []


# -- who may come in ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "style.css", "change/x", "approved.dprl", "audit.csv"])
def test_a_wrong_token_opens_nothing(tmp_path, path):
    client, found, _ = site(tmp_path)
    answer = client.get(f"/wrong/{path}")
    assert answer.status_code == 403
    assert found.changes[0].situation not in answer.text
    assert client.get("/").status_code == 404


def test_posts_need_the_token_the_form_secret_and_our_origin(tmp_path):
    client, found, verdicts = site(tmp_path)
    form = {"csrf": csrf_of(client), "change": found.changes[0].key, "reviewer": "Ann",
            "verdict": "agree"}  # fmt: skip
    ours = {"Origin": "http://127.0.0.1:9"}
    for path, data, headers in [
        ("/wrong/verdict", form, ours),
        (f"/{TOKEN}/verdict", {**form, "csrf": "guess"}, ours),
        (f"/{TOKEN}/verdict", {k: v for k, v in form.items() if k != "csrf"}, ours),
        (f"/{TOKEN}/verdict", form, {}),
        (f"/{TOKEN}/verdict", form, {"Origin": "http://evil.example"}),
        (f"/{TOKEN}/verdict", form, {"Origin": "null"}),
        (f"/{TOKEN}/verdict", form, {"Origin": "http://127.0.0.1:10"}),
        (f"/{TOKEN}/verdict", form, {**ours, "Sec-Fetch-Site": "cross-site"}),
        (f"/{TOKEN}/verdict", form, {**ours, "Sec-Fetch-Site": "same-site"}),
        (f"/{TOKEN}/export", {"x": "y"}, ours),
    ]:
        assert client.post(path, data=data, headers=headers).status_code == 403
    assert verdicts.all() == []
    assert not (tmp_path / "approved.dprl").exists()
    assert client.post(f"/{TOKEN}/verdict", data=form, headers=ours).status_code == 303


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "a b", "192.168.0.9"]
)
def test_another_name_for_this_machine_is_refused(tmp_path, host):
    client, _, _ = site(tmp_path)
    assert client.get(f"/{TOKEN}/", headers={"Host": host}).status_code == 421


def test_names_that_are_ours(tmp_path):
    client, _, _ = site(tmp_path, host="0.0.0.0", names=("review.ward.example",))
    for host in ("10.0.0.7:8765", "localhost", "[::1]:80", "review.ward.example", "127.0.0.1"):
        assert client.get(f"/{TOKEN}/", headers={"Host": host}).status_code == 200
    assert client.get(f"/{TOKEN}/", headers={"Host": "evil.example"}).status_code == 421


def test_large_bodies_are_refused_said_or_not(tmp_path):
    client, found, verdicts = site(tmp_path)
    assert judge(client, found.changes[0].key, "agree", comment="x" * 70_000).status_code == 413

    def drip():
        for _ in range(70):
            yield b"x" * 1000

    headers = {"Origin": "http://127.0.0.1:9", "Content-Type": "application/x-www-form-urlencoded"}
    assert client.post(f"/{TOKEN}/verdict", content=drip(), headers=headers).status_code == 413
    assert verdicts.all() == []


def test_a_refused_verdict_keeps_what_was_written(tmp_path):
    client, found, verdicts = site(tmp_path)
    answer = judge(client, found.changes[0].key, "agree", who=" ", comment="my <long> thought")
    assert answer.status_code == 422
    assert "my &lt;long&gt; thought" in answer.text
    assert 'role="alert"' in answer.text
    assert judge(client, found.changes[0].key, "maybe").status_code == 422
    assert judge(client, "nothing", "agree").status_code == 404
    assert verdicts.all() == []


def test_headers_keep_the_page_to_itself(tmp_path):
    client, found, _ = site(tmp_path)
    for path in ("", "style.css", f"change/{found.changes[0].key}"):
        headers = client.get(f"/{TOKEN}/{path}").headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert "unsafe" not in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
    page = client.get(f"/{TOKEN}/change/{found.changes[0].key}").text
    assert not re.search(r"(src|href|action)=[\"']?(https?:)?//", page)
    assert " style=" not in page
    assert " on" not in re.sub(r">[^<]*<", "><", page).replace(" one", "")


# -- what is shown --------------------------------------------------------------------------------


def test_hostile_labels_show_as_text(tmp_path):
    log = log_of((HOSTILE, "=cmd()"), good=HOSTILE + "b", usual=HOSTILE + "a")
    names = tuple(f"{HOSTILE}{i:03}" for i in range(log.n_episodes))
    log = replace(log, episodes=names, group=None)
    policy = dprl.DPRLDiscrete(n_min=3, gamma=1.0).fit(log)
    policy = replace(policy, provenance={**policy.provenance, "columns": {"state": HOSTILE}})
    client, found, _ = site(tmp_path, log, policy=policy)
    for c in found.changes:
        judge(client, c.key, "agree", who="<b>Ann</b>", comment=HOSTILE)
    pages = [client.get(f"/{TOKEN}/").text, client.get(f"/{TOKEN}/?text={HOSTILE}").text]
    pages += [client.get(f"/{TOKEN}/change/{c.key}").text for c in found.changes]
    for page in pages:
        assert "<script" not in page
        assert "<b>" not in page
        assert "\u202e" not in page
        assert "&lt;script&gt;" in page
        assert "⟨U+202E⟩" in page


def test_unseen_characters_are_spelt_out():
    assert visible("a\u202eb\u200bc\x1b") == "a⟨U+202E⟩b⟨U+200B⟩c⟨U+001B⟩"
    assert visible("a\nb é 中") == "a\nb é 中"
    assert visible(3) == 3


def test_numbers_as_people_read_them():
    assert [percent(x) for x in (0, 0.001, 0.5, 0.999, 1)] == [
        "0\u00a0%", "<1\u00a0%", "50\u00a0%", ">99\u00a0%", "100\u00a0%",
    ]  # fmt: skip
    assert number(None) == number(float("nan")) == "–"
    assert (number(0.25, True), number(-0.25, True), number(0.0, True)) == (
        "+0.250", "−0.250", "0.000",
    )  # fmt: skip


def test_a_missing_value_in_a_template_is_an_error():
    with pytest.raises(Exception, match="undefined"):
        render("message.html")


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@x", "\t=1", " =1", "\r=1", "'x", "plain", ""]
)
def test_cells_are_not_formulas(text):
    told = text.replace("\r", "\n")  # a lone return would begin a row in some spreadsheets
    assert cell(text) == (told if text in ("'x", "plain", "") else f"'{told}")


def test_the_trail_escapes_formulas_everywhere(tmp_path):
    client, found, verdicts = site(tmp_path, log_of(("=cmd|calc",), good="@b", usual="-a"))
    judge(client, found.changes[0].key, "agree", who="+Ann", comment='=HYPERLINK("x")\nmore, "q"')
    (row,) = csv.DictReader(io.StringIO(audit(verdicts.all(), found, 1), newline=""))
    assert row["comment"] == '\'=HYPERLINK("x")\nmore, "q"'
    assert (row["reviewer"], row["usual"], row["suggested"]) == ("'+Ann", "'-a", "'@b")
    assert not any(v.startswith(("=", "+", "-", "@")) for v in row.values())


def gated_log():
    return dprl.envs.care_pathway().sample(8000, seed=1)


def test_a_certificate_is_shown_and_restated_on_export(tmp_path):
    policy = dprl.gate(dprl.DPRLDiscrete(n_min=50, gamma=1.0), gated_log(), value_range=(0, 1))
    client, found, _ = site(tmp_path, dprl.envs.care_pathway().sample(300, seed=2), policy=policy)
    page = client.get(f"/{TOKEN}/").text
    assert "With probability at least 95 %, all 2 suggestions below" in page
    assert "VACUOUS" not in page
    fever = next(c for c in found.changes if c.state == "fever")
    row = next(r for r in policy.certificate.rows if r["state"] == "fever")
    detail = client.get(f"/{TOKEN}/change/{fever.key}").text
    assert f"<bdi>low</bdi>: {down(row['low']):.3f}" in detail
    judge(client, fever.key, "agree")
    form, headers = {"csrf": csrf_of(client)}, {"Origin": "http://127.0.0.1:9"}
    client.post(f"/{TOKEN}/export", data=form, headers=headers)
    approved = dprl.load(tmp_path / "approved.dprl")
    assert approved.certificate.issued == {"fever": "antibiotics"}
    assert approved.certificate.gain == 0.0
    assert approved.act(["fever", "worse"]) == ["antibiotics", dprl.DEFER]


def test_a_vacuous_certificate_is_called_vacuous(tmp_path):
    policy = dprl.gate(dprl.DPRLDiscrete(n_min=3, gamma=1.0), log_of(), value_range=(-99, 99))
    client, found, _ = site(tmp_path, policy=policy)
    assert found.changes == ()
    assert "VACUOUS" in client.get(f"/{TOKEN}/").text


def test_cells_are_reviewed_whole(tmp_path):
    policy = dprl.gate(LEARNER, ward(1_500, 0), **UNIT)
    client, found, _ = site(tmp_path, ward(300, 7), policy=policy)
    (change,) = found.changes
    detail = client.get(f"/{TOKEN}/change/{change.key}").text
    assert "x -0.4 to under 0.4" in detail
    assert "<bdi>low</bdi>" in detail
    judge(client, change.key, "agree")
    form, headers = {"csrf": csrf_of(client)}, {"Origin": "http://127.0.0.1:9"}
    client.post(f"/{TOKEN}/export", data=form, headers=headers)
    approved = dprl.load(tmp_path / "approved.dprl")
    assert approved.act([[0.0, 0.0], [10.0, 0.0]]) == ["b", dprl.DEFER]
    assert approved.certificate == policy.certificate


def test_a_policy_that_changes_nothing(tmp_path):
    client, found, _ = site(tmp_path, to_log([[("s", "a", 1.0)]] * 9))
    assert found.changes == ()
    page = client.get(f"/{TOKEN}/").text
    assert "0 changes to review" in page
    assert "This policy changes nothing." in page


def test_enter_in_a_field_says_nothing(tmp_path):
    """The form's default button, the first in it, is disabled: Enter does not agree."""
    client, found, _ = site(tmp_path)
    page = client.get(f"/{TOKEN}/change/{found.changes[0].key}").text
    form = page[page.index("<form") :]
    assert form.index("<button disabled hidden>") < form.index('value="agree"')


def test_changes_that_no_region_describes_are_said_and_cannot_be_approved(tmp_path):
    log = scattered_world()
    metric = dprl.Metric(scale="none")
    policy = dprl.DPRLContinuous(n_min=2, radius=0.5, gamma=1.0, metric=metric).fit(log)
    client, described, _ = site(tmp_path, log, policy=policy)
    page = client.get(f"/{TOKEN}/").text
    assert f"{described.uncovered:,} of the {described.changed:,} changed decisions" in page
    assert "suggests no other action than the usual one" not in page
    if not described.changes:
        assert "No simple region describes a change." in page
