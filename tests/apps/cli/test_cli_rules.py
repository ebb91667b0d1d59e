"""Rules over features from the command line: categories and gaps, from a file to a query."""

from __future__ import annotations

import csv
import html
import json
import re

import duckdb
import numpy as np
import pytest

import dprl
from conftest import options
from dprl.apps.cli.learning import FitOptions, takers

pytestmark = pytest.mark.slow  # whole commands, whole studies

COLUMNS = {"episode": "patient", "action": "drug", "reward": "score"}
FEATURES = ["pressure", "lactate", "ward"]
SETTINGS = {"depth": 1, "folds": 2, "splits": 1, "lam": 1.0}
QUICK = ["--learner", "rules", "--gamma", 1, *options(SETTINGS)]


def rows(seed, n=240):
    """Visits with a text column, and cells that are empty."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        pressure, drug = float(rng.normal()), bool(rng.random() < 0.5)
        ward = str(rng.choice(["ICU", "HDU"])) if rng.random() < 0.9 else ""
        effect = (1.0 if ward == "ICU" else -1.0) * drug
        yield {
            "patient": f"{seed}-{i}", "pressure": f"{pressure:.3f}",
            "lactate": "" if rng.random() < 0.2 else f"{rng.gamma(2):.3f}", "ward": ward,
            "drug": "give" if drug else "wait", "score": f"{2 * effect + rng.normal():.3f}",
        }  # fmt: skip


def write_rows(path, seed, n=240, **more):
    table = [{**row, **more} for row in rows(seed, n)]
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A file of visits, and the policy of `dprl.Rules` on it."""
    path = write_rows(tmp_path_factory.mktemp("rules") / "visits.csv", 0)
    log = dprl.read(path, state=FEATURES, **COLUMNS)
    policy = dprl.Rules(gamma=1.0, **SETTINGS).fit(log)
    policy.save(path.with_name("policy.dprl"))
    return path, policy


def own(path):
    return [path, *options(COLUMNS), *(x for name in FEATURES for x in ("--state", name))]


def test_fit_prints_rules_what_they_bring_and_the_models(run, made):
    path, policy = made
    code, out, err = run("fit", *own(path), *QUICK)
    assert (code, err) == (0, "")
    assert dprl.load("policy.dprl").digest() == policy.digest()
    assert policy.rules
    assert "1 category" in out
    assert f"\n{policy.details()}\n" in out
    assert str(policy.worth()) in out
    for line in policy.provenance["rules"]["models"]:
        assert re.search(rf"^{line['model']} .*{line['log-loss']:.3f}", out, re.M)
    assert out.endswith("Saved as policy.dprl.\n")


def test_fit_as_json(run, made):
    path, policy = made
    code, out, err = run("fit", *own(path), *QUICK, "--json")
    facts = json.loads(out)
    assert (code, err, facts["warnings"]) == (0, "", [])
    assert facts["digest"] == policy.digest()
    assert facts["rules"] == json.loads(policy.to_json_rules())
    assert facts["stated"] == list(policy.stated)
    assert facts["notes"] == policy.provenance["notes"]
    assert facts["worth"] == policy.worth().to_dicts()
    assert facts["models"] == policy.provenance["rules"]["models"]
    assert facts["divisions"] == policy.provenance["rules"]["divisions"]
    assert facts["changed"] == policy.changes().to_dicts()


def test_no_rule_is_said_in_words_with_its_notes(run, made):
    path, _ = made
    code, out, _ = run("fit", *own(path), *QUICK, "--margin", 50)
    notes = dprl.load("policy.dprl").provenance["notes"]
    assert code == 0
    assert "No rule was certified: the policy defers everywhere." in out
    assert all(note in out for note in notes)
    assert "shares alone" in out
    code, out, _ = run("fit", *own(path), *QUICK, "--margin", 50, "--json")
    assert (json.loads(out)["stated"], json.loads(out)["notes"]) == ([], notes)


def test_settings_reach_the_learner(run, made, tmp_path, monkeypatch):
    path, policy = made
    asked = {
        "depth": 3, "delta": 0.1, "margin": 0.2, "lam": 0.5, "splits": 2, "cuts": 7, "folds": 3,
        "n-min": 5, "seed": 9, "cut": "drop",
    }  # fmt: skip
    learners = []

    def noted(self, log, *, progress):
        progress("searching rules", 0.5)
        learners.append(self)
        return policy

    monkeypatch.setattr(dprl.Rules, "fit", noted)
    flags = ["--learner", "rules", "--gamma", 0.9]
    assert run("fit", *own(path), *flags, *options(asked))[0] == 0
    expected = {name.replace("-", "_"): value for name, value in asked.items()}
    assert learners[0] == dprl.Rules(gamma=0.9, **expected)
    assert run("fit", *own(path), *flags)[0] == 0
    assert learners[1] == dprl.Rules(gamma=0.9)
    lines = [f"{name} = {value!r}" for name, value in {**expected, "learner": "rules"}.items()]
    (tmp_path / "dprl.toml").write_text("[fit]\ngamma = 0.9\n" + "\n".join(lines) + "\n")
    assert run("fit", *own(path))[0] == 0
    assert learners[2] == learners[0]


def test_defaults_in_the_help_are_those_of_the_learner(run):
    _, out, _ = run("fit", "--help")
    words = re.sub(r"[\s│]+", " ", out)
    learner = dprl.Rules(gamma=1.0)
    for name in ("depth", "delta", "margin", "cuts", "folds", "splits"):
        shown = re.search(rf"--{name} .*?rules: .*?Default ([0-9.]+)\b", words)
        assert shown is not None, name
        assert float(shown[1].rstrip(".")) == getattr(learner, name), name
    assert re.search(rf"groups that did not, .*?Default {learner.n_min}\.", words)
    assert learner.lam is None
    assert all(getattr(FitOptions(gamma=1.0), name, None) is None for name in takers())


def test_a_single_feature_is_a_feature(run, made):
    path, _ = made
    code, _, err = run("fit", path, *options(COLUMNS), "--state", "ward", *QUICK)
    assert (code, err) == (0, "")
    assert dprl.load("policy.dprl").feature_names == ("ward",)


RULES = ["--learner", "rules", "--gamma", 1]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([*RULES, "--radius", 1], "--radius: not for the learner rules, only for dprl. Rules need"),
        ([*RULES, "--plan"], "--plan: not for the learner rules, only for dprl."),
        ([*RULES, "--risk", 0.1], "--risk: not for the learner rules, only for confident."),
        ([*RULES, "--risk", 0.1, "--plan"], "--plan dprl; --risk confident"),
        (["--gamma", 1, "--n-min", 9, "--depth", 2], "--depth: not for the learner dprl, only for"),
        (["--gamma", 1, "--n-min", 9, "--splits", 2], "dprl, only for confident and rules."),
        (["--gamma", 1, "--n-min", 9, "--depth", 1, "--seed", 2], "--seed confident and rules"),
        (["--gamma", 1, "--learner", "confident", "--lam", 1], "only for dprl and rules."),
        (["--gamma", 1, "--learner", "confident", "--delta", 0.1], "only for rules."),
        ([*RULES, "--depth", 9], "depth must be"),
        ([*RULES, "--splits", 0], "splits must be"),
        ([*RULES, "--delta", 2], "delta must be"),
        ([*RULES, "--cut", "bootstrap"], "rules take 'drop-unrelated', 'terminal' or 'ipcw'"),
        ([*RULES, "--n-min", 1], "--n-min must be"),
        (["--gamma", 1, "--n-min", 9], "3 features, and no radius is given"),
        (["--gamma", 1, "--learner", "confident"], "the learner confident takes labels"),
    ],
)
def test_what_does_not_belong_is_refused(run, made, tmp_path, flags, message):
    path, _ = made
    code, out, err = run("fit", *own(path), *flags)
    assert (code, out) == (1, "")
    assert err.startswith("ParameterError: ")
    assert message in err
    assert len(err.splitlines()) == 3 or "must be" in err
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_names_the_learners_that_would_do(run, made):
    path, _ = made
    _, _, err = run("fit", *own(path), "--gamma", 1, "--n-min", 9, "--depth", 1, "--splits", 2)
    assert "Leave them out (in dprl.toml too), or say --learner rules." in err
    _, _, err = run("fit", *own(path), *RULES, "--risk", 0.1, "--plan")
    assert "--learner" not in err.splitlines()[2]


def test_a_sweep_refuses_rules(run, made, tmp_path):
    path, _ = made
    code, out, err = run("sweep", *own(path), *RULES, "--n-min", 5, 10, "--rule", "bold")
    assert (code, out, len(err.splitlines())) == (1, "", 3)
    assert "--learner rules is not for sweep" in err
    assert list(tmp_path.iterdir()) == []


def test_act_changes_and_export_agree(run, made, tmp_path):
    path, policy = made
    saved = path.with_name("policy.dprl")
    fresh = write_rows(tmp_path / "fresh.csv", 1, 60)
    log = dprl.read(fresh, state=FEATURES, **COLUMNS)
    code, out, err = run("act", saved, fresh)
    assert (code, err) == (0, "")
    answered = list(csv.DictReader(out.splitlines()))
    table = {name: [row[name] or None for row in answered] for name in ("pressure", *FEATURES[1:])}
    expected = policy.act(
        [[None if v is None else v if j == 2 else float(v) for j, v in enumerate(state)]
         for state in zip(*table.values(), strict=True)]
    )  # fmt: skip
    assert len(expected) == log.n_steps == 60
    assert [row["suggested"] for row in answered] == [str(a) for a in expected]
    assert len(set(expected)) > 1
    code, out, _ = run("changes", saved, "--json")
    assert (code, json.loads(out)["rows"]) == (0, policy.changes().to_dicts())
    assert json.loads(out)["stated"] == list(policy.stated)
    for to in ("sql", "json", "python"):
        assert run("export", saved, "--to", to, "--out", f"rules.{to}")[0] == 0
    assert json.loads((tmp_path / "rules.json").read_text()) == json.loads(policy.to_json_rules())
    names: dict = {}
    exec((tmp_path / "rules.python").read_text(), names)
    states = [{**row, "pressure": float(row["pressure"])} for row in answered]
    assert [names["suggest"](s) or "DEFER" for s in states] == [r["suggested"] for r in answered]
    run("export", saved, "--to", "sql", "--table", "fresh", "--column", "advice", "--out", "a.sql")
    with duckdb.connect() as db:
        db.execute(f"CREATE TABLE fresh AS SELECT * FROM read_csv('{fresh}', all_varchar = true)")
        query = (tmp_path / "a.sql").read_text()
        advice = dict(db.execute(f"SELECT patient, advice FROM ({query})").fetchall())
    assert [advice[r["patient"]] or "DEFER" for r in answered] == [r["suggested"] for r in answered]


def test_act_refuses_text_where_a_number_belongs(run, made):
    saved = made[0].with_name("policy.dprl")
    code, out, err = run("act", saved, stdin="pressure,lactate,ward\n1,high,ICU\n")
    assert (code, out, "'lactate' must be numbers; it holds 'high'" in err) == (1, "", True)
    code, out, err = run("act", saved, stdin="pressure,lactate\n1,2\n")
    assert (code, out, "there is no column 'ward'" in err) == (1, "", True)


def test_explain_takes_labels_and_missing_values(run, made):
    path, policy = made
    saved = path.with_name("policy.dprl")
    code, out, _ = run("explain", saved, "pressure=1, ward=ICU, lactate=")
    state = {"pressure": 1.0, "lactate": None, "ward": "ICU"}
    assert (code, out) == (0, f"{policy.explain(state)}\n")
    assert out.startswith("pressure = 1, lactate = missing, ward = ICU: suggests give")
    code, out, _ = run("explain", saved, '"ward=ICU, north",pressure=1,lactate=2', "--json")
    assert (code, json.loads(out)["state"]) == (
        0,
        "pressure = 1, lactate = 2, ward = a label never seen",
    )


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("pressure=high,lactate=,ward=ICU", "a state is written NAME=VALUE,NAME=VALUE; got"),
        ("pressure=1,lactate,ward=ICU", "a state is written NAME=VALUE,NAME=VALUE; got 'lactate'"),
        ("pressure=1,ward=ICU,ward=HDU", "'ward' is given twice"),
        ("pressure=1,ward=ICU", "a state needs the feature 'lactate'"),
        ("pressure=1,ward=ICU,lactate=,pulse=3", "'pulse' is no feature of this policy"),
    ],
)
def test_explain_refuses(run, made, state, message):
    code, out, err = run("explain", made[0].with_name("policy.dprl"), state)
    assert (code, out, message in err) == (1, "", True)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--to", "json", "--public"], "--public: not for --to, only for a policy file."),
        (["--to", "sql", "--points"], "--points: not for --to"),
        (["--to", "json", "--table", "t"], "--table: not for --to json, only for --to sql."),
        (["--column", "c"], "--column: not for a policy file, only for --to sql."),
        (["--to", "sql", "--column", "Pressure"], "two columns of the query have one name"),
        (["--to", "sql", "--column", "lactate"], "two columns of the query have one name"),
    ],
)
def test_export_refuses(run, made, tmp_path, flags, message):
    saved = made[0].with_name("policy.dprl")
    code, out, err = run("export", saved, *flags, "--out", "copy")
    assert (code, out, message in err, len(err.splitlines())) == (1, "", True, 3)
    assert list(tmp_path.iterdir()) == []


def test_export_to_another_language_is_for_rules_and_labels(run, visits, tmp_path):
    path, columns = visits
    run("fit", path, *options(columns), "--n-min", 20, "--gamma", 1)
    code, _, err = run("export", "policy.dprl", "--to", "sql", "--out", "rules.sql")
    assert (code, err) == (0, "")
    assert (tmp_path / "rules.sql").read_text() == dprl.load("policy.dprl").exports["sql"]()
    log = dprl.from_arrays(
        episode=range(60), state=[[0.0], [0.5]] * 30, action=["drug", "wait", "wait"] * 20,
        reward=[1, 0, 0] * 20,
    )  # fmt: skip
    dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log).save("points.dprl")
    code, out, err = run("export", "points.dprl", "--to", "sql", "--out", "points.sql")
    assert (code, out, len(err.splitlines())) == (1, "", 3)
    assert "--to sql is for rules and for policies over labels; 'points.dprl' holds" in err
    assert "it answers from 60 training points" in err
    assert not (tmp_path / "points.sql").exists()
    code, _, err = run("export", "policy.dprl", "--to", "sql", "--out", "nowhere/rules.sql")
    assert code == 1


def test_rules_over_labels_and_gaps_are_evaluated(run, made, tmp_path):
    path, policy = made
    saved = path.with_name("policy.dprl")
    fresh = write_rows(tmp_path / "fresh.csv", 1, 60)
    code, out, _ = run("evaluate", saved, fresh, "--draws", "50", "--json")
    assert code == 0
    rows = {row["estimator"]: row for row in json.loads(out)["estimates"]}
    log = dprl.read(fresh, state=FEATURES, **COLUMNS)
    half = np.full((log.n_steps, 2), 0.5)
    for judged in (rows, dprl.evaluate(policy, log, behavior=half, draws=50)):
        for name in ("WPDIS", "DM", "DR", "WDR"):
            assert np.isfinite(judged[name]["difference"])
    gaps = dprl.from_arrays(
        episode=range(60), state=np.where(np.arange(60) % 7, 1.0, np.nan)[:, None],
        action=["give", "wait"] * 30, reward=np.arange(60.0),
    )  # fmt: skip
    plain = dprl.RulePolicy(
        states=(), actions=("give", "wait"), parameters={}, provenance={}, feature_names=("x0",),
        rules=({"conditions": [{"feature": "x0", "kind": "missing"}], "suggested": "give"},),
    )  # fmt: skip
    assert np.isfinite(dprl.evaluate(plain, gaps, gamma=1.0, draws=50)["DR"]["difference"])


def test_known_probabilities_come_from_a_column(run, tmp_path):
    trial = write_rows(tmp_path / "trial.csv", 0, p=0.5)
    flags = [*own(trial), "--propensity", "p"]
    code, out, err = run("fit", *flags, *QUICK)
    assert (code, err) == (0, "")
    assert "Randomised: the probabilities of actions are known on all 240 rows" in out
    assert "known on 100 % of rows" in out
    log = dprl.read(trial, state=FEATURES, propensity="p", **COLUMNS)
    policy = dprl.Rules(gamma=1.0, **SETTINGS).fit(log)
    assert dprl.load("policy.dprl").digest() == policy.digest()
    assert policy.stated[0] in out
    code, out, _ = run("check", *flags, "--details")
    assert (code, "'p' is known on 240 of 240 rows" in out) == (0, True)
    wrong = write_rows(tmp_path / "wrong.csv", 0, p=1.5)
    for command in (["check", *own(wrong)], ["fit", *own(wrong), *QUICK, "--out", "no.dprl"]):
        code, out, err = run(*command, "--propensity", "p")
        assert (code, "'p' is not above 0 and at most 1 on 240 of 240 rows" in out + err) == (
            1,
            True,
        )
    assert not (tmp_path / "no.dprl").exists()


def test_another_learner_says_that_it_does_not_use_them(run, visits):
    path, columns = visits
    lines = path.read_text().splitlines()
    path.write_text("\n".join([f"{lines[0]},p", *(f"{line},0.5" for line in lines[1:])]) + "\n")
    fit = ["fit", path, *options(columns), "--n-min", 20, "--gamma", 1, "--propensity", "p"]
    code, _, err = run(*fit)
    assert (code, err) == (
        0,
        "warning: the learner dprl does not use the probabilities in 'p'; rules do.\n",
    )
    code, out, _ = run(*fit, "--json")
    assert len(json.loads(out)["warnings"]) == 1


def test_a_log_for_a_policy_needs_no_probabilities(run, tmp_path):
    """A policy learned with them is judged on files with or without them."""
    rng = np.random.default_rng(0)
    for name, n in (("train", 300), ("test", 120)):
        drug, x = rng.random(n) < 0.5, rng.normal(size=n)
        score = np.where(x > 0, 2.0, -2.0) * drug + rng.normal(size=n)
        table = list(zip([f"{name}{i}" for i in range(n)], x, np.where(drug, "give", "wait"), score,
                         [0.5] * n, strict=True))  # fmt: skip
        for end, width in (("", 5), ("-bare", 4)):
            with (tmp_path / f"{name}{end}.csv").open("w", newline="") as stream:
                writer = csv.writer(stream)
                writer.writerow(["patient", "x", "drug", "score", "p"][:width])
                writer.writerows(row[:width] for row in table)
    flags = [*options(COLUMNS), "--state", "x", "--propensity", "p", *QUICK]
    assert run("fit", "train.csv", *flags)[0] == 0
    judged = []
    for name in ("test.csv", "test-bare.csv"):
        code, out, err = run(
            "evaluate", "policy.dprl", name, "--no-values", "--draws", 50, "--json"
        )
        assert (code, err) == (0, "")
        judged.append(json.loads(out)["facts"]["recorded"])
    assert judged == [1, 0]
    for name in ("train.csv", "train-bare.csv"):
        code, _, err = run("evaluate", "policy.dprl", name, "--no-values")
        assert (code, "the log the policy was learned from" in err) == (1, True)
    code, _, err = run("evaluate", "policy.dprl", "test-bare.csv", "--propensity", "q")
    assert (code, "no column 'q' for propensity" in err) == (1, True)


def test_a_report_of_rules_says_what_is_stated_and_what_held_out_rows_say(run, made, tmp_path):
    path, policy = made
    fresh = write_rows(tmp_path / "fresh.csv", 1, 60)
    code, out, err = run("report", path.with_name("policy.dprl"), fresh, "--out", "r.html")
    assert (code, err) == (0, "")
    assert "not estimated" not in out
    page = html.unescape((tmp_path / "r.html").read_text())
    assert "rests on an effective sample of" in page
    assert "no held-out check" not in page
    for sentence in policy.stated:
        assert sentence in page, sentence
    assert "has not been through the gate" not in page
    assert "keeps only what a log proves" not in page
    assert "groups_by_action" not in page
    code, out, _ = run("report", path.with_name("policy.dprl"), fresh, "--out", "r.html", "--json")
    facts = json.loads(out)
    assert "DR" in [row["estimator"] for row in facts["evaluation"]["estimates"]]
    code, out, _ = run("report", path.with_name("policy.dprl"), path, "--out", "r.html")
    assert (code, "No held-out check" in out, "not estimated" in out) == (0, True, False)
