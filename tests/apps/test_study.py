"""The whole job in one call: the answer, the folder, and what it says where nothing is sure."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest

import dprl
from dprl.apps.cli.main import main
from dprl.apps.study import POLICY, REPORT, ROWS
from dprl.logs.log import CUT, deal
from dprl.logs.reading.tables import read_rows

FILES = {POLICY, REPORT, ROWS}


def ward(n=2_400, seed=0, effect=1.0):
    """A trial over features: the drug helps the sick by `effect` and harms the well."""
    rng = np.random.default_rng(seed)
    x, drug = rng.normal(size=(n, 2)), rng.random(n) < 0.5
    score = effect * drug * np.where(x[:, 0] > 0, 1.0, -1.0) + rng.normal(size=n)
    return dprl.from_arrays(
        episode=range(n), state=x, action=np.where(drug, "drug", "wait"), reward=score,
        propensity=np.full(n, 0.5), feature_names=["pressure", "lactate"],
    )  # fmt: skip


def ran(capsys, *words):
    """The exit code, what was printed, and what was complained."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    return ended.value.code, out, err


@pytest.fixture(scope="module")
def pathway():
    return dprl.study(dprl.envs.care_pathway().sample(2_000, seed=0), draws=200)


def test_the_finding_comes_first_and_all_of_it_fits_a_screen(pathway):
    lines = str(pathway).splitlines()
    assert pathway.verdict == "agrees"
    assert "worse: fluids, not antibiotics" in lines[0]
    assert len(lines) <= 8


def test_learning_and_judging_share_no_group(pathway):
    facts, judged = pathway.facts, pathway.evaluation
    assert (facts["learned"], facts["judged"]) == (1_200, 800)
    assert judged.facts["groups"] == 800
    assert pathway.policy.provenance["groups"] == 1_200


def test_its_numbers_are_those_of_the_steps_by_hand(pathway):
    log = dprl.envs.care_pathway().sample(2_000, seed=0)
    learn, judge = log.split(0.6, seed=0)
    policy = dprl.Confident(gamma=1.0, risk=0.025, n_min=20, keep=0.9).fit(learn)
    assert pathway.policy.digest() == policy.digest()
    spread = []
    order = np.random.default_rng(0).permutation(2_000)  # each group judges in 4 or 5 of 11
    for turn in range(1, 11):
        learns = np.sort(np.roll(order, -round(turn / 11 * 2_000))[:1_200])
        part, rest = log.take(learns), log.take(np.setdiff1d(np.arange(2_000), learns))
        other = dprl.Confident(gamma=1.0, risk=0.025, n_min=20, keep=0.9).fit(part)
        judged = dprl.evaluate(other, rest, draws=100)
        row = judged.rows[judged.headline]
        spread.append([row["difference"], row["difference_low"], row["difference_high"]])
    by_hand = dprl.evaluate(policy, judge, draws=200)
    assert pathway.evaluation.rows == by_hand.amid(spread).rows
    mean = np.mean([by_hand["WDR"]["difference"], *(d for d, _, _ in spread)])
    assert pathway.evaluation["WDR"]["difference"] == pytest.approx(mean, abs=1e-14)
    assert "is the mean of 11 divisions of the log" in pathway.evaluation.ends()
    assert "The others, in 11 divisions, agree" in str(pathway)


def test_cut_episodes_count_as_ended_for_the_gate_too(monkeypatch):
    log = dprl.envs.care_pathway().sample(6_000, seed=1)
    ended = log.ended.copy()
    ended[::7] = CUT
    monkeypatch.setattr(dprl.Confident, "fit", _nothing(dprl.Confident.fit))
    result = dprl.study(dataclasses.replace(log, ended=ended), draws=50)
    assert result.facts["learner"] == "The gate"
    assert result.policy.parameters["cut"] == "terminal"


def _nothing(fit):
    return lambda self, log, **more: fit(self, log.take(np.arange(30)), **more)


def test_the_spread_of_divisions_goes_into_the_interval():
    train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
    one = dprl.evaluate(dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train), test, draws=50)
    d, low, high = (one["WDR"][f"difference{end}"] for end in ("", "_low", "_high"))
    same = one.amid([(d, low, high)] * 4)["WDR"]
    assert [same["difference_low"], same["difference_high"]] == pytest.approx([low, high])
    far = one.amid([(d + k, low + k, high + k) for k in (-2.0, -1.0, 1.0, 2.0)])["WDR"]
    assert far["difference"] == pytest.approx(d)
    assert far["difference_high"] - d == pytest.approx(np.hypot(high - d, np.sqrt(2.0)))
    assert one.amid([]) is one


@pytest.mark.slow
def test_features_are_learned_by_rules_and_the_rule_is_the_first_sentence():
    result = dprl.study(ward(), draws=200)
    assert result.facts["learner"] == "Rules"
    assert result.verdict == "agrees"
    finding = result.answer()[0]
    assert "pressure above" in finding
    assert "always drug, not only in" in finding  # half of a trial takes it: a confirmation
    assert "always drug" in result.table()["do"]
    assert result.sensitivity is None  # by lot, with known chances: nothing to doubt there
    assert "Randomised, 2,400 episodes, 2 arms against usual practice" in str(result)
    assert "no arm is surely better" in str(result)


def trial(seed=0, n=602, z=2.83, arms=("placebo", "drug"), labels=False):
    """A trial in which the drug is better by exactly z of its own standard errors."""
    rng = np.random.default_rng(seed)
    x, drug = rng.normal(size=(n, 3)), rng.permutation(np.arange(n) % 2).astype(bool)
    score = rng.normal(size=n)
    score[drug] -= score[drug].mean()
    score[~drug] -= score[~drug].mean()
    se = np.sqrt(sum(score[at].var(ddof=1) / at.sum() for at in (drug, ~drug)))
    states = {"state": ["all"] * n} if labels else {"state": x}
    return dprl.from_arrays(
        episode=range(n), action=np.where(drug, arms[1], arms[0]), reward=score + z * se * drug,
        propensity=np.full(n, 0.5), **states,
    )  # fmt: skip


@pytest.mark.parametrize("labels", [False, True])
def test_one_arm_of_a_trial_is_judged_by_all_patients(tmp_path, labels):
    result = dprl.study(trial(labels=labels), tmp_path / "s", draws=50)
    assert result.verdict == "everyone"
    assert result.answer()[0].startswith("drug instead of placebo, for everyone: the return higher")
    assert "No subgroup is known to differ" in str(result)
    assert len(str(result).splitlines()) <= 8
    policy = dprl.load(tmp_path / "s" / POLICY)
    assert policy.act(["all"] if labels else [[0.0, 0.0, 0.0]]) == ["drug"]
    rows = read_rows([tmp_path / "s" / ROWS])
    names = list(zip(rows["part"], rows["item"], rows["name"], strict=True))
    assert rows["value"][names.index(("arm", "drug", "low"))] == result.effects.rows[0]["low"]


ARMS = {
    2.83: ("drug instead of placebo, for everyone: the return higher by", "drug statt placebo, für"),
    0.5: ("No arm is surely better than placebo.", "Kein Arm ist sicher besser als placebo."),
    -3.0: ("Not drug: the return lower by", "Nicht drug: Return niedriger"),
}  # fmt: skip


@pytest.mark.parametrize(("z", "lang"), [(2.83, "en"), (2.83, "de"), (0.5, "de"), (-3.0, "en")])
def test_the_page_of_a_trial_tells_the_arms_and_nothing_else(tmp_path, z, lang):
    """One number for one thing: that of all patients, against the reference of the heading."""
    result = dprl.study(trial(z=z, labels=True), tmp_path / "s", draws=50, lang=lang)
    page = (tmp_path / "s" / REPORT).read_text(encoding="utf-8")
    title = re.findall("<h1>(.*?)</h1>", page)[0]
    assert title.startswith(ARMS[z][lang == "de"])
    assert result.answer()[0].startswith(ARMS[z][0])
    assert page.count(title) == 2  # the heading, and the name of the page
    assert page.count("<svg") == 1
    for word in ("held-out", "flatter", "usual practice", "luck", "zurückgehalten",
                 "übliche"):  # fmt: skip
        assert word not in re.sub("<style>.*?</style>|<head>.*?</head>", "", page, flags=re.S)
    row = result.effects.rows[0]
    assert {"en": f"{row['difference']:+.2f}", "de": f"{row['difference']:+.2f}".replace(".", ",")}[
        lang
    ].replace("-", "−") in page
    assert all(str(row["groups"]) in page for row in result.effects.rows)


def test_a_heading_says_where_those_who_judge_do_not_agree(pathway):
    name = pathway.evaluation.headline
    for low, high, said in ((-1.0, 1.0, "Not confirmed: When"), (-2.0, -1.0, "Contradicted, not")):
        row = {**pathway.evaluation[name], "difference_low": low, "difference_high": high}
        row["difference"] = (low + high) / 2
        judged = dataclasses.replace(
            pathway.evaluation, rows={**pathway.evaluation.rows, name: row}
        )
        assert dataclasses.replace(pathway, evaluation=judged).finding.startswith(said)
    assert pathway.finding.startswith("When")


def test_a_trial_in_which_nothing_works_changes_nothing():
    result = dprl.study(trial(z=0.5), draws=50)
    assert result.verdict == "nothing"
    assert result.answer()[0] == "No arm is surely better than placebo."
    assert "- drug: the return +" in str(result)  # what it brought all the same, with its interval


def test_everyone_wins_unless_a_split_earns_its_place(monkeypatch):
    """The drug helps everybody alike; rules that leave out a few must not be the answer."""
    log = trial(n=1_200, z=6.0)
    few = {"conditions": [{"feature": "x0", "kind": "at most", "value": 1.5}], "suggested": "drug",
           "facts": {"share_usual": [["drug", 0.5], ["placebo", 0.5]]}}  # fmt: skip

    def split(self, learn, **more):
        return dprl.RulePolicy(
            states=(), actions=learn.actions, parameters=self.settings(),
            provenance={"groups": len(learn.groups), "episodes": learn.n_episodes},
            feature_names=learn.feature_names, rules=(few,),
        )  # fmt: skip

    monkeypatch.setattr(dprl.Rules, "fit", split)
    result = dprl.study(log, draws=50)
    assert result.verdict == "everyone"
    assert [rule.conditions for rule in result.policy.rules] == [()]


@pytest.mark.parametrize("n", [60, 400])
def test_where_nothing_helps_usual_practice_stays(n):
    result = dprl.study(ward(n, effect=0.0), draws=50)
    assert result.verdict == "nothing"
    assert result.answer()[0] == "No arm is surely better than usual practice."
    assert result.evaluation is None
    assert not len(result.table())


@pytest.mark.slow
def test_a_policy_that_the_judging_part_contradicts_is_not_advised(monkeypatch):
    """One that harms, as if the learning part had been misled."""
    log = ward(800)
    harmful = dprl.Rules(gamma=1.0).fit(log).__class__
    rule = {"conditions": [], "suggested": "drug", "facts": {"share_usual": [["wait", 1.0]]}}

    def misled(self, learn, **more):
        return harmful(
            states=(), actions=learn.actions, parameters=self.settings(),
            provenance={"groups": len(learn.groups), "episodes": learn.n_episodes},
            feature_names=learn.feature_names, rules=(rule,),
        )  # fmt: skip

    worse = dprl.from_arrays(
        episode=range(800), state=log.features, action=np.asarray(log.actions)[log.action],
        reward=np.where(np.asarray(log.actions)[log.action] == "drug", -1.0, 1.0) + log.reward,
        feature_names=log.feature_names,
    )  # fmt: skip
    monkeypatch.setattr(dprl.Rules, "fit", misled)
    result = dprl.study(worse, draws=200)
    assert result.verdict == "contradicts"
    assert "do not act on it" in result.answer()[1]


def test_the_gate_speaks_where_the_state_does_not_tell_enough(monkeypatch):
    """Confident issues nothing; what each change proves by itself is issued, at its part of δ."""
    asked = {}
    silent = dprl.Confident.fit

    def none(self, log, **more):
        policy = silent(self, log.take(np.arange(30)), **more)
        asked["risk"] = self.risk
        return policy

    monkeypatch.setattr(dprl.Confident, "fit", none)
    result = dprl.study(dprl.envs.care_pathway().sample(6_000, seed=1), draws=50)
    assert result.facts["learner"] == "The gate"
    assert asked["risk"] + result.policy.certificate.delta == pytest.approx(0.05)


@pytest.mark.slow
def test_a_second_run_takes_the_policy_that_is_there_and_writes_the_same(tmp_path, monkeypatch):
    log = dprl.envs.care_pathway().sample(1_500, seed=3)
    dprl.study(log, tmp_path / "s", draws=50)
    before = {name: (tmp_path / "s" / name).read_bytes() for name in FILES}
    calls = []
    plain = dprl.Confident.fit
    monkeypatch.setattr(
        dprl.Confident, "fit", lambda self, learn, **o: calls.append(1) or plain(self, learn, **o)
    )
    dprl.study(log, tmp_path / "s", draws=50)
    assert calls == []
    assert {name: (tmp_path / "s" / name).read_bytes() for name in FILES} == before
    dprl.study(log, tmp_path / "s", draws=50, seed=1)  # another division: learned anew
    assert len(calls) == 1 + 10  # and the divisions that it is compared with


@pytest.mark.slow
def test_every_number_that_is_shown_is_in_the_rows(tmp_path):
    log = dprl.envs.care_pathway().sample(2_000, seed=0)
    result = dprl.study(log, tmp_path / "s", draws=100)
    rows = read_rows([tmp_path / "s" / ROWS])
    names = zip(rows["part"], rows["item"], rows["name"], strict=True)
    kept = dict(zip(names, rows["value"], strict=True))
    name = result.evaluation.headline
    assert kept["evaluation", name, "difference"] == result.evaluation.rows[name]["difference"]
    assert kept["change", "1", "better by"] == result.changes[0].check.advantage
    assert (
        kept["sensitivity", "1", "difference_min"] == result.sensitivity.rows[0]["difference_min"]
    )
    assert kept["study", "", "learned"] == result.facts["learned"]


def test_one_discount_where_the_outcome_comes_at_the_end():
    assert dprl.study(dprl.envs.care_pathway().sample(60, seed=0)).facts["gamma"] == 1
    rewarded = dprl.from_arrays(
        episode=np.repeat(range(60), 2), state=["s"] * 120, action=["a", "b"] * 60,
        reward=[1.0, 0.0] * 60,
    )  # fmt: skip
    assert dprl.study(rewarded).facts["gamma"] == 0.99


@pytest.mark.parametrize(
    ("bad", "argument"),
    [({"share": 1.0}, "share"), ({"delta": 0}, "delta"), ({"gamma": 2}, "gamma")],
)
def test_bad_settings_are_refused(bad, argument, tmp_path):
    with pytest.raises(dprl.ParameterError) as error:
        dprl.study(dprl.envs.care_pathway().sample(50, seed=0), tmp_path / "s", **bad)
    assert argument in str(error.value)
    assert not (tmp_path / "s").exists()


def test_the_folder_must_be_one(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(dprl.ParameterError):
        dprl.study(dprl.envs.care_pathway().sample(50, seed=0), tmp_path / "file")
    with pytest.raises(dprl.ParameterError):
        dprl.study(dprl.envs.care_pathway().sample(50, seed=0), tmp_path / "none" / "s")


@pytest.mark.slow
def test_the_command_proposes_says_what_it_assumed_and_can_be_repeated(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    dprl.write(dprl.envs.care_pathway().sample(1_200, seed=5), "visits.parquet")
    code, out, err = ran(capsys, "study", "visits.parquet", "--out", "s", "--draws", 50,
                         "--date", "2026-01-31")  # fmt: skip
    assert code == 0
    assert "assumed: episode = episode" in err
    assert len(out.splitlines()) <= 8
    assert {p.name for p in (tmp_path / "s").iterdir()} == {*FILES, "dprl.toml"}
    monkeypatch.chdir(tmp_path / "s")
    code, again, err = ran(capsys, "study", "--out", "again")
    assert (code, "assumed" in err) == (0, False)
    assert again.splitlines()[0] == out.splitlines()[0]
    for name in FILES:
        assert (tmp_path / "s" / name).read_bytes() == (tmp_path / "s/again" / name).read_bytes()


def test_the_command_says_what_it_cannot_know(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,b,c\n1,2,3\n2,3,4\n")
    code, out, err = ran(capsys, "study", "t.csv", "--out", "s")
    assert (code, out) == (1, "")
    assert "--reward COLUMN" in err
    assert "no column names them, add one that numbers the rows" in " ".join(err.split())
    assert not (tmp_path / "s").exists()
    code, out, _ = ran(capsys, "study", "t.csv", "--out", "s", "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)


def test_the_command_refuses_rows_that_dprl_check_refuses(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("episode,state,action,reward\n1,a,x,1\n1,a,x,none\n2,b,y,0\n")
    code, out, err = ran(capsys, "study", "t.csv", "--out", "s")
    assert code == 1
    assert "reward" in out + err
    assert not (tmp_path / "s").exists()


def test_it_is_said_how_often_another_division_says_the_same(pathway):
    assert pathway.facts["divisions"] == 10
    assert f"Another division says the same in {pathway.facts['same']} of 10" in str(pathway)
    assert pathway.facts["same"] >= 8


def test_a_discount_is_told_in_words(pathway):
    assert "(γ = 1)" in str(pathway)
    later = dataclasses.replace(pathway, facts={**pathway.facts, "gamma": 0.9})
    assert "(γ = 0.9: what comes a step later counts 0.9 of it)" in str(later)


@pytest.mark.slow
def test_over_features_the_log_is_divided_anew_as_well():
    """Rules are learned and judged five times; the mean is told, and a trial hangs on none."""
    rng = np.random.default_rng(5)
    x, n = rng.normal(size=(900, 2)), 900
    drug = rng.random(n) < 1 / (1 + np.exp(-0.5 * x[:, 1]))
    log = dprl.from_arrays(
        episode=range(n), state=x, action=np.where(drug, "drug", "wait"),
        reward=np.where(x[:, 0] > 0, 1.5, -1.5) * drug + rng.normal(size=n),
        feature_names=["pressure", "lactate"],
    )  # fmt: skip
    result = dprl.study(log, draws=100)
    spread, name = result.facts["spread"], result.evaluation.headline
    assert result.facts["divisions"] == 4
    assert len(spread) == 3  # one issues nothing, or has no interval
    alone = dprl.evaluate(result.policy, log.split(0.6, seed=0)[1], draws=100)
    mean = np.mean([alone[name]["difference"], *(d for d, _, _ in spread)])
    assert result.evaluation[name]["difference"] == pytest.approx(mean)
    assert "The others, in 4 divisions, agree" in str(result)


def test_all_groups_judge_equally_often():
    times = sum((~deal(100, 0.6, 3, turn / 5)).astype(int) for turn in range(5))
    assert (times == 2).all()


def test_nothing_says_where_other_divisions_find_something(pathway):
    facts = {**pathway.facts, "same": 7}
    silent = dataclasses.replace(pathway, evaluation=None, described=None, facts=facts)
    assert "In 3 of 10 other divisions something is sure: more episodes may" in str(silent)
    alike = dataclasses.replace(silent, facts={**facts, "same": 10})
    assert "Another division says the same in 10 of 10." in str(alike)
    asked = dprl.study(dprl.envs.care_pathway().sample(150, seed=4), draws=50)
    assert (asked.verdict, asked.facts["divisions"]) == ("nothing", 10)


def test_what_changes_with_the_division_is_not_advised(pathway):
    from dataclasses import replace

    torn = replace(pathway, facts={**pathway.facts, "same": 3})
    said = str(torn)
    assert "Which situations it names CHANGES with the division (same in 3 of 10)" in said
    assert "agree with the whole; do not act on single situations" in said
    assert "do not act on it" not in said  # the others agree
    name = torn.evaluation.headline
    row = {**torn.evaluation[name], "difference_low": -1.0}
    unsure = replace(torn.evaluation, rows={**torn.evaluation.rows, name: row})
    assert "It CHANGES with the division (same in 3 of 10): do not act on it" in str(
        replace(torn, evaluation=unsure)
    )


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"refuted": True}, "the record refutes the model of practice"),
        ({"unsupported": 0.07}, "in 7 % of episodes it leads to what nobody did there"),
        ({"reached": 0, "groups": 12}, "fewer than 30 followed it (effective sample)"),
    ],
)
def test_it_is_said_why_there_is_no_interval(pathway, facts, why):
    from dataclasses import replace

    name = pathway.evaluation.headline
    row = {**pathway.evaluation[name], "difference_low": np.nan, "difference_high": np.nan}
    judged = replace(
        pathway.evaluation, facts={**pathway.evaluation.facts, **facts},
        rows={**pathway.evaluation.rows, name: row},
    )  # fmt: skip
    bare = replace(pathway, evaluation=judged)
    assert f"as estimated, without an interval, because {why}." in str(bare)
    assert "because" not in str(pathway)
