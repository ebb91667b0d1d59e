"""What people call columns and values is what they see; machines and digests see the table's own."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

import dprl
from dprl._core.words import joined, say
from dprl.apps.cli.main import main
from dprl.apps.reports.changes import describe_changes
from dprl.apps.review.app import review_app
from dprl.apps.review.verdicts import Verdicts
from dprl.logs.called import Called, called_of

NAMES = {
    "arm": {"": "treatment", 0: "ZDV alone", 1: "ZDV with ddI"},
    "sex": {0: "female", 1: "male"},
    "cd40": "CD4 count at the start",
}
COLUMNS = {"episode": "patient", "action": "arm", "reward": "cd420", "better": "higher", "also": ()}


def patients(n=1600, seed=0):
    rng = np.random.default_rng(seed)
    cd40, arm = rng.normal(350, 100, n).round(), rng.integers(0, 2, n)
    gain = 90 * arm * np.where(cd40 < 350, 1, -1)
    return pd.DataFrame({
        "patient": np.arange(n), "sex": rng.integers(0, 2, n), "cd40": cd40, "arm": arm,
        "cd420": cd40 + gain + rng.normal(0, 30, n), "half": np.where(cd40 < 350, "low", "high"),
    })  # fmt: skip


def labelled(called=None, **more):
    names = (
        None
        if called is None
        else {**called, "half": {"": "half of the counts", "low": "below 350"}}
    )
    return dprl.from_frame(patients(), **{**COLUMNS, "state": "half", **more}, called=names)


def ruled(called=None):
    rule = {
        "conditions": [{"feature": "cd40", "kind": "at most", "value": 350.0},
                       {"feature": "sex", "kind": "at most", "value": 0.0}],
        "suggested": 1, "facts": {"share_usual": [[0, 0.7], [1, 0.3]], "groups": 90, "groups_took": 30},
    }  # fmt: skip
    kept = {} if called is None else {"called": called_of(called)}
    return dprl.RulePolicy(
        states=(), actions=(0, 1), parameters={}, feature_names=("sex", "cd40"), rules=(rule,),
        provenance={"log": "x", "columns": {"action": "arm", **kept}},
    )  # fmt: skip


def test_a_label_is_found_by_its_place_in_a_sentence():
    called = Called.of({"action": "arm", "state": "sex", "called": called_of(NAMES)})
    said = say(
        "{where}: {action}, not {usual}.", where=joined(" = ", ("sex", "1")), action="1", usual="0"
    )
    assert called.said(said) == "sex = male: ZDV with ddI, not ZDV alone."
    assert called.said("1") == "1"  # of nothing that is known
    assert called.act(dprl.Avoid(0)) == "not ZDV alone"
    limit = joined(" ", ("sex", say("at most {x}", x=0)))
    assert called.said(limit) == "sex is female"
    assert not Called.of({})


@pytest.mark.parametrize(
    "bad",
    [{"arm": {0: ""}}, {"arm": 3}, ["arm"], ["arm:=x"], {"a": "x" * 300}, {"arm": {0: "DEFER"}}],
)
def test_names_that_are_none_are_refused(bad):
    with pytest.raises(dprl.ParameterError, match="called"):
        called_of(bad)


def test_two_actions_are_not_called_the_same():
    columns = {"episode": range(4), "state": ["s"] * 4, "reward": [0.0] * 4}
    frame = pd.DataFrame({**columns, "arm": ["a", "b"] * 2})
    with pytest.raises(dprl.ParameterError, match="two actions are called 'drug'"):
        dprl.from_frame(
            frame, episode="episode", state="state", action="arm", reward="reward",
            called={"arm": {"a": "drug", "b": "drug"}},
        )  # fmt: skip


def test_words_and_mappings_say_the_same():
    words = ["arm=treatment", "arm:0=ZDV alone", "arm:1=ZDV with ddI", "sex:0=female", "sex:1=male",
             "cd40=CD4 count at the start"]  # fmt: skip
    assert called_of(words) == called_of(NAMES)


def test_prints_show_names_and_machines_get_labels(tmp_path):
    plain, named = labelled(), labelled(NAMES)
    old, new = (dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log) for log in (plain, named))
    shown = str(new.changes())
    assert "ZDV alone" in shown
    assert new.changes().to_dicts() == old.changes().to_dicts()
    assert new.explain("low").to_dict()["actions"] == old.explain("low").to_dict()["actions"]
    assert str(new.explain("low")).startswith("below 350: suggests ZDV with ddI")
    assert new.act(["low", "high"]) == old.act(["low", "high"]) == [1, 0]
    assert (old.digest(), plain.digest()) == (new.digest(), named.digest())
    new.save(tmp_path / "p.dprl")
    again = dprl.load(tmp_path / "p.dprl")
    assert again.digest() == new.digest()
    assert str(again.changes()) == shown


def test_rules_show_names_and_export_labels():
    old, new = ruled(), ruled(NAMES)
    (sentence,) = new.sentences()[:1]
    assert "CD4 count at the start is at most 350 and sex is female: ZDV with ddI" in sentence
    assert "usually ZDV alone, 70 %" in sentence
    assert new.digest() == old.digest()
    for export in ("to_sql", "to_python", "to_json_rules"):
        assert getattr(new, export)() == getattr(old, export)()


def test_review_shows_names_and_keeps_keys(tmp_path):
    from starlette.testclient import TestClient

    keys = []
    for called in (None, NAMES):
        log = labelled(called)
        policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
        described = describe_changes(policy, log)
        keys.append([c.key for c in described.changes])
    assert keys[0] == keys[1]
    verdicts = Verdicts(tmp_path / "v.sqlite", policy.digest(), keys[1])
    site = review_app(described, verdicts, tmp_path / "approved.dprl", token="t")
    page = TestClient(site, base_url="http://127.0.0.1:9").get(f"/t/change/{keys[1][0]}").text
    assert "ZDV alone" in page


@pytest.mark.slow
def test_labels_of_dprl_toml_reach_everything_that_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    patients().to_csv("t.csv", index=False)
    (tmp_path / "dprl.toml").write_text(
        '[log]\nepisode = "patient"\nstate = ["sex", "cd40"]\naction = "arm"\nreward = "cd420"\n'
        'design = "randomised"\nversus = "0"\nalso = ["none"]\n[outcome]\nname = "CD4 count at week 20"\nbetter = "higher"\n'
        '[labels]\ncd40 = "CD4 count at the start"\n[labels.arm]\n0 = "ZDV alone"\n1 = "ZDV with ddI"\n'
    )  # fmt: skip

    def ran(*words):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert not ended.value.code, err
        return out

    said = ran("study", "t.csv", "--out", "s", "--draws", 50)
    assert "CD4 count at the start at most 34" in said
    assert "ZDV with ddI, not ZDV alone" in said
    assert not re.search(r"\bcd40\b|\barm =", said)
    page = (tmp_path / "s" / "report.html").read_text()
    body = re.sub(r"<[^>]*>", " ", page[page.index("<h1>") : page.index('id="origin"')])
    assert "ZDV with ddI" in body
    assert not re.search(r"\bcd40\b|\barm = ", body)
    assert "ZDV alone" in ran("changes", "s/policy.dprl")
    (tmp_path / "new.csv").write_text("sex,cd40\n0,200\n")
    assert ran("act", "s/policy.dprl", "new.csv").splitlines() == [
        "sex,cd40,suggested,suggested_called", "0,200,1,ZDV with ddI"
    ]  # fmt: skip
    assert (
        json.loads(ran("act", "s/policy.dprl", "new.csv", "--json"))["rows_out"][0]["suggested"]
        == 1
    )
    again = ran("study", "s/../t.csv", "--out", "s2", "--draws", 50)
    assert again.splitlines()[0] == said.splitlines()[0]
    assert 'called = ["cd40=CD4 count at the start"' in (tmp_path / "s" / "dprl.toml").read_text()
