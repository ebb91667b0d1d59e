"""A report to a standard: what data know is filled in, the rest is marked, and there is a card."""

from __future__ import annotations

import datetime
import hashlib
import json
import re

import numpy as np
import pandas as pd
import pytest
from test_report import flat

import dprl
from conftest import to_log
from dprl.apps.reports._report import LIMIT
from dprl.apps.reports.intended_use import ASKED, check_use
from dprl.apps.reports.standard import SECTIONS, baseline

DAY = datetime.date(2026, 1, 31)
USE = {"question": "Should <b>drug A</b> be given first?", "users": "Nurses of ward 7"}
WORLD = dprl.envs.care_pathway()


@pytest.fixture(scope="module")
def parts():
    return WORLD.sample(1_000, seed=0).split(0.5, seed=0)


@pytest.fixture(scope="module")
def policy(parts):
    return dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(parts[0])


@pytest.fixture(scope="module")
def written(policy, parts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("standard")
    result = dprl.report(
        policy, parts[1], folder / "r.html", values=False, draws=100, date=DAY, standard="target",
        use=USE,
    )  # fmt: skip
    text = (folder / "r.html").read_text(encoding="utf-8")
    return result, text, json.loads((folder / "r.model-card.json").read_text(encoding="utf-8"))


def test_every_item_is_there_and_blanks_are_marked(written):
    result, text, _ = written
    blank = set(result.to_fill_in)
    assert text.count('<mark class="fill">to fill in</mark>') == len(blank)
    assert f"{len(blank)} items are still to fill in" in text
    assert {"eligibility", "background", "ethics", "funding", "not-for", "flow"} <= blank
    assert not {"question", "users", "strategies", "effect", "sensitivity", "baseline"} & blank
    words = flat(text)
    for name in ("Causal question", "Eligibility", "Time zero", "Estimand", "Assumptions", "Flow"):
        assert name in words
    assert 'href="#standard"' in text


def test_what_people_say_is_text(written):
    _, text, card = written
    assert "Should &lt;b&gt;drug A&lt;/b&gt; be given first?" in text
    assert card["intended_use"]["question"] == USE["question"]
    assert card["intended_use"]["setting"] is None


def test_the_card_has_the_numbers_of_the_parts(written, policy, parts):
    result, text, card = written
    judged = dprl.evaluate(policy, parts[1], values=False, draws=100)
    assert card["quantitative_analyses"]["evaluation"] == judged.to_dict()
    bounds = dprl.sensitivity(policy, parts[1], draws=100)
    assert card["quantitative_analyses"]["sensitivity"]["rows"] == bounds.to_dict()["rows"]
    assert card["report"]["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert card["report"]["file"] == "r.html"
    assert card["model_details"]["digest"] == policy.digest()
    assert card["to_fill_in"] == list(result.to_fill_in)
    assert card["date"] == "2026-01-31"
    assert card["evaluation_data"]["held_out"] is True
    assert [item["item"] for item in card["items"]] == [
        name for names in SECTIONS.values() for name, _ in names
    ]
    flow = card["evaluation_data"]["flow"]
    assert flow["followed"] + flow["otherwise"] == flow["reached"] == judged.facts["reached"]
    assert flow["always"] == judged.facts["followers"]


def test_the_same_again_gives_the_same_bytes(written, policy, parts, tmp_path):
    dprl.report(
        policy, parts[1], tmp_path / "r.html", values=False, draws=100, date=DAY, standard="target",
        use=USE, card=tmp_path / "c.json",
    )  # fmt: skip
    result = written[0]
    assert (tmp_path / "c.json").read_bytes() == result.card.read_bytes()
    assert (tmp_path / "r.html").read_bytes() == result.path.read_bytes()


def test_those_who_followed_and_the_others():
    log = dprl.from_arrays(
        episode=[1, 1, 2, 3, 4], time=[0, 1, 0, 0, 0], state=[[1.0], [9.0], [3.0], [5.0], [np.nan]],
        action=["a", "b", "a", "b", "b"], reward=[0.0] * 5, feature_names=["x"],
        also={"sex": ["f", "f", "f", "m", "f"]},
    )  # fmt: skip
    changed, took = np.array([True] * 4 + [True]), log.action == log.actions.index("a")
    table = baseline(log, changed, took)
    assert (table.followed, table.otherwise, table.unit) == (2, 2, "episodes")
    x, f, m = table.rows
    assert (x.column, x.followed, x.otherwise) == ("x", 2.0, 5.0)
    assert (x.missing_followed, x.missing_otherwise) == (0, 1)
    assert x.sd_followed == pytest.approx(np.sqrt(2))
    assert (f.column, f.label, f.followed, f.otherwise) == ("sex", "f", 1.0, 0.5)
    assert (m.label, m.followed, m.otherwise) == ("m", 0.0, 0.5)
    only = np.array([False, True, False, False, False])
    late = baseline(log, only, took)
    assert (late.followed, late.otherwise, late.rows[0].otherwise) == (0, 1, 9.0)


def test_on_the_training_log_nothing_is_claimed(policy, parts, tmp_path):
    result = dprl.report(
        policy, parts[0], tmp_path / "r.html", values=False, draws=50, standard="target"
    )
    words = flat((tmp_path / "r.html").read_text())
    assert "No estimate: the policy has seen this log" in words
    card = json.loads(result.card.read_text())
    assert card["quantitative_analyses"]["evaluation"] is None
    assert card["quantitative_analyses"]["sensitivity"] is None
    assert card["evaluation_data"]["held_out"] is False
    assert "identification" not in result.to_fill_in


def test_a_silent_policy(tmp_path):
    log = to_log([[("s", "a", 1.0)]] * 9)
    silent = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
    other = to_log([[("s", "a", 1.0)]] * 5 + [[("s", "a", 0.0)]] * 5)
    dprl.report(silent, other, tmp_path / "r.html", values=False, draws=50, standard="target")
    words = flat((tmp_path / "r.html").read_text())
    assert "nobody to compare" in words


def test_refusals_change_nothing(policy, parts, tmp_path):
    old = tmp_path / "r.html"
    old.write_text("old")
    for options, words in (
        ({"standard": "strobe"}, "there is no standard 'strobe'"),
        ({"card": tmp_path / "c.json"}, "none was asked for"),
        ({"standard": "target", "card": old}, "cannot be written"),
        ({"standard": "target", "card": tmp_path / "no" / "c.json"}, "cannot be written"),
        ({"standard": "target", "use": {"qestion": "x"}}, "'qestion', which is no key"),
        ({"standard": "target", "use": {"question": 3}}, "must be a text"),
        ({"lang": "tlh"}, "there is no language 'tlh'"),
    ):
        with pytest.raises(dprl.ParameterError, match=re.escape(words)):
            dprl.report(policy, parts[1], old, values=False, draws=20, **options)
    assert old.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


def test_a_card_that_cannot_be_written_leaves_the_report(policy, parts, tmp_path):
    (tmp_path / "c.json").symlink_to(tmp_path / "elsewhere.json")
    (tmp_path / "r.html").write_text("old")
    with pytest.raises(dprl.ParameterError):
        dprl.report(
            policy, parts[1], tmp_path / "r.html", values=False, draws=20, standard="target",
            card=tmp_path / "c.json",
        )  # fmt: skip
    assert (tmp_path / "r.html").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.json", "r.html"]


def test_an_unknown_key_is_told_in_three_lines():
    with pytest.raises(dprl.ParameterError) as wrong:
        check_use({"eligibilty": "x"}, "[intended-use] in dprl.toml")
    what, where, do = str(wrong.value).split("\n")
    assert "[intended-use] in dprl.toml has 'eligibilty'" in what
    assert ", ".join(ASKED) in where
    assert "'eligibility'" in do
    assert check_use({"question": "  "}) == {}
    with pytest.raises(dprl.ParameterError, match=r"24,000 characters; at most 20,000"):
        check_use(dict.fromkeys(ASKED[:6], "x" * 4_000))


def test_long_labels_are_cut_and_the_file_stays_small(tmp_path):
    states = [f"{i}" + "x" * 3_000 for i in range(20)]
    log = to_log([[(s, "b", 1.0) for s in states]] * 3 + [[(s, "a", 0.0) for s in states]] * 4)
    policy = dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(log)
    use = dict.fromkeys(ASKED[:5], "<&'\"" * 1_000)
    result = dprl.report(
        policy, log, tmp_path / "r.html", values=False, draws=20, standard="target", use=use,
        lang="de",
    )  # fmt: skip
    assert result.bytes < LIMIT
    assert "x" * 200 not in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_the_command_reads_the_intended_use(run, visits, tmp_path, monkeypatch):
    path, columns = visits
    train, test = dprl.read(path, **columns).split(0.5, seed=0)
    monkeypatch.chdir(tmp_path)
    dprl.write(test, "test.parquet")
    dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train).save("p.dprl")
    (tmp_path / "dprl.toml").write_text('[intended-use]\nquestion = "Which drug first?"\n')
    asked = ("report", "p.dprl", "test.parquet", "--draws", "50", "--no-values")
    code, said, _ = run(*asked, "--standard", "target")
    assert code == 0
    assert "Model card → review.model-card.json" in said
    assert "to fill in" in said
    assert "Which drug first?" in (tmp_path / "review.html").read_text()
    card = json.loads((tmp_path / "review.model-card.json").read_text())
    assert card["intended_use"]["question"] == "Which drug first?"
    code, _, said = run(*asked, "--lang", "fr")
    assert code == 1
    assert said.splitlines()[0].endswith("there is no language 'fr'.")
    assert len(said.strip().splitlines()) == 3
    code, _, _ = run(*asked, "--lang", "de", "--out", "de.html")
    assert code == 0
    assert '<html lang="de">' in (tmp_path / "de.html").read_text(encoding="utf-8")
    (tmp_path / "dprl.toml").write_text('[intended-use]\nwhy = "?"\n')
    before = (tmp_path / "review.html").read_bytes()
    code, _, said = run(*asked, "--standard", "target")
    assert code == 1
    assert "[intended-use] in dprl.toml has 'why'" in said
    assert (tmp_path / "review.html").read_bytes() == before
    code, _, said = run(*asked, "--standard", "target", "--card", "test.parquet")
    assert code == 1
    assert "would be overwritten" in said


@pytest.mark.slow
@pytest.mark.parametrize("lang", ["en", "de"])
def test_values_that_the_policy_fills_count_as_missing(lang, tmp_path):
    def log(seed, n=300):
        rng = np.random.default_rng(seed)
        x, drug = rng.normal(size=n).round(2), rng.random(n) < 0.3
        table = {
            "id": [f"{seed}-{i}" for i in range(n)],
            "lactate": [None if i % 10 == 0 else v for i, v in enumerate(x.tolist())],
            "drug": np.where(drug, "drug", "wait").tolist(),
            "score": (drug * np.where(x > -0.7, 3.0, -3.0) + rng.normal(size=n)).tolist(),
        }
        return dprl.from_frame(
            pd.DataFrame(table), episode="id", state=["lactate"], action="drug", reward="score",
            missing={"lactate": "median"},
        )  # fmt: skip

    learner = dprl.DPRLContinuous(n_min=10, radius=0.4, gamma=1.0, metric=dprl.Metric(scale="none"))
    policy = learner.fit(log(0))
    result = dprl.report(
        policy, log(1), tmp_path / "r.html", values=False, draws=40, standard="target", lang=lang
    )
    card = json.loads(result.card.read_text(encoding="utf-8"))
    assert card["evaluation_data"]["missing"] == {"lactate": 30}
    row = card["factors"]["compared"]["rows"][0]
    assert row["column"] == "lactate"
    assert row["missing_followed"] + row["missing_otherwise"] > 0
    words = flat((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert {"en": "Rows (of 300) without a value: lactate (30)",
            "de": "Zeilen (von 300) ohne Wert: lactate (30)"}[lang] in words  # fmt: skip
    assert {"en": "Where values are missing", "de": "Wo Werte fehlen"}[lang] in words


def test_the_next_report_leaves_the_card_of_another_alone(policy, parts, tmp_path):
    asked = {"values": False, "draws": 20, "date": DAY, "standard": "target", "use": USE}
    first = dprl.report(policy, parts[1], tmp_path / "a.html", **asked)
    card = first.card.read_bytes()
    second = dprl.report(policy, parts[1], tmp_path / "b.v2.html", **asked, title="Another")
    assert (first.card.name, second.card.name) == ("a.model-card.json", "b.v2.model-card.json")
    assert first.card.read_bytes() == card
    assert json.loads(card)["report"]["file"] == "a.html"


def test_bounds_that_rest_on_few_say_so(policy, parts, tmp_path):
    few = {"en": "too few to lean on Γ*", "de": "zu wenig, um sich auf Γ*"}
    small, large = parts[1].take(range(40)), WORLD.sample(1_500, seed=5)
    for log, lang, n in ((small, "de", 1), (large, "en", 0)):
        result = dprl.report(
            policy, log, tmp_path / "r.html", values=False, draws=50, date=DAY, standard="target",
            lang=lang,
        )  # fmt: skip
        assert (result.evaluation.facts["ess_differs"] < 30) == bool(n)
        assert flat((tmp_path / "r.html").read_text(encoding="utf-8")).count(few[lang]) == n
