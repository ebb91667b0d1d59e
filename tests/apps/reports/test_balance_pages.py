"""Balance and subgroups where people read them: report, review and the command line."""

from __future__ import annotations

import datetime
import json
import re

import pytest
from thinned import COLUMNS, trial

import dprl
from conftest import options
from dprl.apps.reports.changes import describe_changes
from dprl.apps.review.app import open_review

DAY = datetime.date(2026, 1, 31)


@pytest.fixture(scope="module")
def thinned():
    train, test = dprl.from_frame(trial(), **COLUMNS).split(0.5, seed=0)
    return dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train), train, test


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A train and a test file, and a policy, in the current folder."""
    monkeypatch.chdir(tmp_path)
    rows = trial()
    rows[::2].to_csv("train.csv", index=False)
    rows[1::2].to_csv("test.csv", index=False)
    log = dprl.read("train.csv", **COLUMNS)
    dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log).save("policy.dprl")
    return tmp_path


def rows_of(page, caption):
    """The first cells of the rows of the table with this caption."""
    table = re.search(rf"<caption>{caption}.*?</table>", page, re.DOTALL).group(0)
    return re.findall(r'<th scope="row"><bdi>(.*?)</bdi>', table)


def test_the_report_names_age_first(thinned, tmp_path):
    policy, train, test = thinned
    options = {"draws": 50, "date": DAY}
    dprl.report(policy, test, tmp_path / "r.html", by=["sex", "age"], **options)
    page = (tmp_path / "r.html").read_text()
    assert rows_of(page, "Columns that are not in the state")[0] == "age"
    assert page.index("Those who took the suggestion differ") < page.index('id="changes"')
    assert "Who took it</dt><dd>Compared with the others: <strong><bdi>a lower age" in page
    assert rows_of(page, "Difference to usual practice by sex, age")[:2] == ["sex F", "sex M"]
    dprl.report(policy, test, tmp_path / "again.html", by=["sex", "age"], **options)
    assert (tmp_path / "again.html").read_text() == page
    seen = dprl.report(policy, train, tmp_path / "seen.html", by=["sex"], **options)
    page = (tmp_path / "seen.html").read_text()
    assert seen.evaluation is None
    assert rows_of(page, "Columns that are not in the state")[0] == "age"
    assert "There are no subgroups by sex" in page
    with pytest.raises(dprl.ParameterError, match="make subgroups of"):
        dprl.report(policy, test, tmp_path / "none.html", by=["weight"], **options)
    assert not (tmp_path / "none.html").exists()


def test_hostile_labels_are_shown_as_text(tmp_path):
    rows = trial().rename(columns={"age": "<b>age"})
    rows["sex"] = rows.sex.map({"F": "<script>x</script>", "M": "m"})
    train, test = dprl.from_frame(rows, **COLUMNS).split(0.5, seed=0)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
    dprl.report(policy, test, tmp_path / "r.html", by=["sex"], draws=50, date=DAY)
    page = (tmp_path / "r.html").read_text()
    assert "<script" not in page
    assert "<b>" not in page
    assert "&lt;b&gt;age" in page


def test_the_review_shows_it(thinned, files):
    policy = dprl.load("policy.dprl")
    opened = open_review(
        policy, "policy.dprl", ["test.csv"], verdicts=None, out=files / "approved.dprl", needs=1,
        columns={}, progress=lambda stage, share: None, by=["sex,age"],
    )  # fmt: skip
    described = opened.described
    assert described.balance.rows[0].column == "age"
    assert described.subgroups.by == ("sex", "age")
    pytest.importorskip("starlette", reason="starlette is not installed (dprl[serve])")
    from starlette.testclient import TestClient

    client = TestClient(opened.app("token", "127.0.0.1", ()), base_url="http://127.0.0.1:9")
    page = client.get("/token/").text
    assert rows_of(page, "Columns that are not in the state")[0] == "age"
    assert rows_of(page, "Difference to usual practice by sex, age")[0] == "sex F"
    page = client.get(f"/token/change/{described.changes[0].key}").text
    assert "a lower age" in page


def test_a_log_without_further_columns_is_as_before(thinned):
    policy, _, test = thinned
    from dataclasses import replace

    bare = replace(test, also=None)
    assert describe_changes(policy, bare).balance is None
    evaluation = dprl.evaluate(policy, bare, draws=20)
    assert evaluation.balance is None
    assert evaluation.to_dict()["balance"] is None
    assert "not in the state" not in str(evaluation)
    assert "also" not in evaluation.settings
    assert "not in the state" not in evaluation._repr_html_()


@pytest.mark.slow
def test_the_command_line(run, files):
    code, out, err = run("evaluate", "policy.dprl", "test.csv", "--draws", 50, "--by", "sex,age",
                         "--details")  # fmt: skip
    assert (code, err) == (0, "")
    table = out[out.index("Columns that are not in the state") :].splitlines()
    assert table[2].startswith("age ")
    assert "Difference to usual practice by sex, age" in out
    assert "warning: those who took the suggestion differ" in out
    facts = json.loads(run("evaluate", "policy.dprl", "test.csv", "--draws", 50, "--json",
                           "--by", "sex")[1])  # fmt: skip
    assert facts["balance"]["rows"][0]["column"] == "age"
    assert [row["value"] for row in facts["subgroups"]["rows"]] == ["F", "M"]
    facts = json.loads(run("evaluate", "policy.dprl", "test.csv", "--draws", 50, "--json",
                           "--also", "sex", "--also", "pres*")[1])  # fmt: skip
    assert {row["column"] for row in facts["balance"]["rows"]} == {"sex M", "pressure"}
    facts = json.loads(run("evaluate", "policy.dprl", "test.csv", "--draws", 50, "--json",
                           "--also", "none")[1])  # fmt: skip
    assert facts["balance"] is None
    code, out, err = run("evaluate", "policy.dprl", "test.csv", "--also", "weight")
    assert (code, out) == (1, "")
    assert "no column 'weight' for also" in err
    code, out, err = run("evaluate", "policy.dprl", "test.csv", "--by", "weight")
    assert (code, out) == (1, "")
    assert "no column 'weight' to make subgroups of" in err
    code, out, _ = run("report", "policy.dprl", "test.csv", "--by", "sex", "--draws", 50, "--json")
    assert json.loads(out)["evaluation"]["subgroups"]["by"] == ["sex"]


@pytest.mark.slow
def test_gate_check_and_fit(run, files):
    trial(14_000).to_csv("train.csv", index=False)  # so many that the gate issues something
    ends = ["--lowest", 0, "--highest", 1]
    code, out, err = run("gate", "policy.dprl", "train.csv", *ends)
    assert code == 0
    assert "a lower age" in err
    assert "Be wary: those who took the suggestion differ" in out
    saved = dprl.load("gated.dprl").certificate
    assert any("a lower age" in note for note in saved.notes)
    facts = json.loads(run("gate", "policy.dprl", "train.csv", *ends, "--json")[1])
    assert any("a lower age" in line for line in facts["warnings"])
    out = run("check", "train.csv", *options(COLUMNS), "--details")[1]
    assert "4 further columns read beside the state: age, sex, pressure, lesion." in out
    assert run("fit", "train.csv", *options(COLUMNS), "--n-min", 20, "--gamma", 1)[0] == 0
    code, _, err = run("fit", "train.csv", *options(COLUMNS), "--n-min", 20, "--gamma", 1,
                       "--also", "weight")  # fmt: skip
    assert code == 1
    assert "for also" in err
    (files / "dprl.toml").write_text('[log]\nalso = ["sex"]\n')
    facts = json.loads(run("evaluate", "policy.dprl", "test.csv", "--draws", 50, "--json")[1])
    assert {row["column"] for row in facts["balance"]["rows"]} == {"sex M"}
