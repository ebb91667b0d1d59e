"""Missing values: filled or flagged from the training log, and in the same way ever after."""

import csv
import json
import random

import duckdb
import numpy as np
import pytest
from slow_encoding import FAR, encoded, joined, learned

import dprl
from dprl.apps.serve.answers import Answers, StateError
from dprl.apps.serve.served import description
from dprl.logs.encoding.encoder import encoded_like, filled
from dprl.logs.encoding.gaps import median

STATE = ["lactate", "age", "ward", "icu"]
ROLES = {"episode": "id", "action": "drug", "reward": "score", "also": ()}
WORDS = {"lactate": "flag", "age": "median", "ward": "flag"}


def rows_of(seed, n=240):
    """Rows as people hand them over: None where a value is missing."""
    draw = random.Random(seed)
    rows = []
    for i in range(n):
        drug = draw.random() < 0.4
        lactate = round(draw.gauss(2, 1), 1)
        score = round(draw.gauss((1 if lactate > 2 else -1) * drug, 0.5), 3)
        rows.append({
            "id": f"{seed}-{i}",
            "lactate": None if draw.random() < (0.3 if drug else 0.1) else lactate,
            "age": None if draw.random() < 0.1 else float(draw.randint(20, 90)),
            "ward": None if draw.random() < 0.1 else "abc"[draw.randrange(3)],
            "icu": draw.random() < 0.5,
            "drug": "drug" if drug else "wait",
            "score": score,
        })  # fmt: skip
    return rows


def write_csv(path, rows, gap=""):
    with open(path, "w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(rows[0])
        for row in rows:
            lines.writerow([gap if value is None else value for value in row.values()])
    return path


def states_of(rows, names=STATE):
    return [{name: row[name] for name in names} for row in rows]


@pytest.fixture(scope="module")
def tables():
    return rows_of(0), rows_of(1)


@pytest.fixture(scope="module")
def files(tables, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gaps")
    return tuple(write_csv(folder / f"{i}.csv", rows) for i, rows in enumerate(tables))


def read(path, missing=None, state=STATE, **more):
    return dprl.read(path, state=state, missing=missing or WORDS, **{**ROLES, **more})


LEARNER = dprl.DPRLContinuous(n_min=3, radius=1.2, gamma=1.0)


@pytest.fixture(scope="module")
def near(files):
    return LEARNER.fit(read(files[0]))


SIDES = {"lactate": "median", "age": "flag", "ward": "flag"}


@pytest.fixture(scope="module")
def rules(files):
    log = filled(read(files[0], SIDES))
    return dprl.RulePolicy(
        states=(), actions=("drug", "wait"), parameters={}, provenance={"columns": log.columns},
        feature_names=log.feature_names, levels=log.levels,
        rules=(
            {"conditions": [{"feature": "age", "kind": "missing"}], "suggested": "wait"},
            {"conditions": [{"feature": "lactate", "kind": "at most", "value": 1.5}],
             "suggested": "wait"},
            {"conditions": [{"feature": "lactate", "kind": "above", "value": 1.5},
                            {"feature": "ward", "kind": "in", "labels": ["a", "b"]}],
             "suggested": "drug"},
        ),
    )  # fmt: skip


def as_slow(rows, facts):
    """Rows as numbers by the slow implementation; truth values are 0 and 1 there already."""
    return [encoded({**row, "icu": float(row["icu"])}, facts) for row in rows]


def facts_of(rows):
    return learned([{**row, "icu": float(row["icu"])} for row in states_of(rows)], WORDS)


def test_a_log_is_encoded_as_the_slow_way_does_it(tables, files, near):
    facts = facts_of(tables[0])
    for rows, file in zip(tables, files, strict=True):
        slow = as_slow(states_of(rows), facts)
        log = encoded_like(read(file), near.provenance["columns"])
        assert list(log.feature_names) == list(slow[0])
        order = [row["id"] for row in rows]
        ours = {log.episodes[e]: log.features[e].tolist() for e in range(log.n_episodes)}
        assert [ours[label] for label in order] == [list(row.values()) for row in slow]
    assert near.feature_names == (
        "lactate", "lactate missing", "age", "ward=a", "ward=b", "ward=c", "ward=missing", "icu",
    )  # fmt: skip


def test_what_fills_is_of_the_training_log_alone_and_on_record(tables, files, near, tmp_path):
    facts = facts_of(tables[0])
    fills = near.provenance["columns"]["encoding"]["fills"]
    assert fills["lactate"]["value"] == facts["lactate"]["middle"]
    assert fills["age"]["value"] == facts["age"]["middle"]
    assert fills["ward"] == {"how": "flag", "value": None, "share": facts["ward"]["gaps"] / 240}
    assert fills["lactate"]["share"] == facts["lactate"]["gaps"] / 240
    assert facts["lactate"]["middle"] != facts_of(tables[1])["lactate"]["middle"]
    train, _ = read(files[0]).split(0.5, seed=0)
    half = [row for row in tables[0] if row["id"] in train.episodes]
    own = LEARNER.fit(train).provenance["columns"]["encoding"]["fills"]
    assert own["lactate"]["value"] == facts_of(half)["lactate"]["middle"]
    near.save(tmp_path / "p.dprl")
    assert dprl.load(tmp_path / "p.dprl").encoding == near.encoding
    assert "gaps" not in near.provenance["columns"]  # counts of people are not in the file


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_order_of_rows_does_not_matter(tables, near, seed, tmp_path):
    mixed = list(tables[0])
    random.Random(seed).shuffle(mixed)
    log = read(write_csv(tmp_path / "mixed.csv", mixed))
    assert LEARNER.fit(log).digest() == near.digest()


@pytest.mark.parametrize("seed", range(40))
def test_the_median_is_that_of_plain_python(seed):
    from slow_encoding import middle

    draw = random.Random(seed)
    kinds = [lambda: draw.gauss(0, 1), lambda: draw.choice([0.0, 1.0, -0.0]), lambda: 5e307]
    values = [draw.choice(kinds)() for _ in range(draw.randint(1, 30))]
    assert median(np.array(values)) == middle(values)
    draw.shuffle(values)
    assert median(np.array(values)) == middle(values)
    assert median(np.full(4, 1.7e308)) == 1.7e308  # the sum of two would be infinite


def test_raw_rows_are_answered_as_the_log_is(tables, files, near, rules):
    for policy in (near, rules):
        for rows, file in zip(tables, files, strict=True):
            log = read(file)
            at, _ = policy.space.of_log(encoded_like(
                log, policy.provenance["columns"]))  # fmt: skip
            by_log = dict(zip(log.episodes, policy.act(at), strict=True))
            ours = policy.act(states_of(rows) if policy is near else columns_in(rows))
            assert ours == [by_log[row["id"]] for row in rows]
            assert {str(a) for a in ours} >= {"drug"}


def columns_in(rows):
    return {name: [row[name] for row in rows] for name in STATE}


@pytest.mark.parametrize("gap", [None, float("nan"), "", np.float64("nan")])
def test_every_way_to_say_nothing_is_the_same(near, gap):
    state = {"lactate": gap, "age": gap, "ward": gap, "icu": True}
    plain = {"lactate": None, "age": None, "ward": None, "icu": True}
    assert near.space.read(state)[0].tolist() == near.space.read(plain)[0].tolist()
    assert near.act([list(state.values())]) == near.act([plain])
    assert near.act(list(state.values())) == near.act(plain)
    with pytest.raises(dprl.PolicyError, match=r"a state needs the column 'lactate'"):
        near.act({"age": 50, "ward": "a", "icu": True})  # a key that is not there is a mistake


def test_the_service_says_what_act_says(tables, near):
    answers = Answers(near)
    rows = states_of(tables[1])
    served = [a["action"] if a["in_range"] else None for a in answers.act(rows)]
    acted = near.act(rows)
    inside = [a["in_range"] for a in answers.act(rows)]
    for within, ours, theirs in zip(inside, served, acted, strict=True):
        assert not within or ours == (None if theirs is dprl.DEFER else theirs)
    assert {"drug"} < {*served}
    asked = description(near, token=False)["paths"]["/explain"]["post"]["requestBody"]["content"]
    columns = asked["application/json"]["schema"]["properties"]["state"]["properties"]
    assert columns["lactate"]["type"] == ["number", "null"]
    assert columns["ward"]["anyOf"][0]["enum"] == ["a", "b", "c", None]
    assert columns["icu"]["enum"] == [True, False, "true", "false", 0, 1]
    with pytest.raises(StateError, match="'icu' is missing"):
        answers.act([{**rows[0], "icu": None}])


def test_a_gap_that_training_never_had_is_far_from_everything(files, tmp_path):
    rows = [{**row, "lactate": row["lactate"] or 1.0, "ward": row["ward"] or "a"}
            for row in rows_of(0)]  # fmt: skip
    policy = LEARNER.fit(read(write_csv(tmp_path / "full.csv", rows)))
    assert "lactate missing" not in policy.feature_names
    state = {"lactate": 2.5, "age": None, "ward": "a", "icu": True}
    assert policy.act(state) == "drug"  # the median was asked for
    assert policy.act({**state, "lactate": None}) is dprl.DEFER
    assert policy.act({**state, "ward": None}) is dprl.DEFER
    ready, _ = policy.space.read({**state, "lactate": None})
    assert ready[0, 0] == FAR
    served = Answers(policy).act([{**state, "lactate": None}, {**state, "ward": None}])
    assert served[0]["reason"] == "lactate is missing, and never was in training."
    assert served[1]["reason"] == "ward is missing, and never was in training."


def test_labels_are_joined_with_a_label_for_gaps(tables, files):
    names = ["ward", "icu"]
    log = read(files[0], "flag", names)
    policy = dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(log)
    rows = states_of(tables[0], names)
    words = [{**row, "icu": str(row["icu"]).lower()} for row in rows]
    assert sorted({joined(row) for row in words}) == list(policy.states)
    assert "ward=missing · icu=true" in policy.states
    by_label = policy.act([joined(row) for row in words])
    assert policy.act(rows) == by_label


@pytest.mark.slow
def test_joined_labels_are_judged(files):
    names = ["ward", "icu"]
    policy = dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(read(files[0], "flag", names))
    test = read(files[1], "flag", names)
    usual = dprl.Behavior.fit(test, seed=0)  # of the log as it was read
    judged = dprl.evaluate(policy, test, draws=50, values=False, behavior=usual)
    assert judged.facts["spoken"]


def test_one_column_of_labels_gets_one_label_more(tables, files, tmp_path, run):
    log = read(files[0], "flag", "ward")
    assert log.states == ("a", "b", "c", "missing")
    assert log.columns["missing"] == {"ward": "flag"}
    policy = dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(log)
    assert policy.act([None, float("nan"), ""]) == [policy.act("missing")] * 3
    assert policy.explain(None).suggested == policy.explain("missing").suggested
    assert Answers(policy).act([None]) == Answers(policy).act(["missing"])
    policy.save(tmp_path / "p.dprl")
    again = dprl.load(tmp_path / "p.dprl")
    assert again.act(None) == policy.act("missing")
    code, out, _ = run("act", tmp_path / "p.dprl", files[1], "--json")
    told = json.loads(out)
    ours = policy.act([row["ward"] for row in tables[1]])
    assert [r["suggested"] for r in told["rows_out"]] == [None if a is dprl.DEFER else a
                                                        for a in ours]  # fmt: skip
    assert (code, told["unknown"]) == (0, 0)


@pytest.mark.slow
def test_one_column_of_labels_is_judged(files, tmp_path, run):
    policy = dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(read(files[0], "flag", "ward"))
    policy.save(tmp_path / "p.dprl")
    code, _, err = run("evaluate", tmp_path / "p.dprl", files[1], "--json", "--draws", 50)
    assert code == 0, err  # the policy says what to do about gaps


def test_rules_keep_a_side_for_what_is_flagged_and_fill_what_is_not(tables, files, rules, tmp_path):
    assert rules.encoding.filling("lactate") == facts_of(tables[0])["lactate"]["middle"]
    assert rules.encoding.filling("age") is None
    ours = [None if a is dprl.DEFER else a for a in rules.act(columns_in(tables[1]))]
    for row, action in zip(tables[1], ours, strict=True):
        lactate = rules.encoding.filling("lactate") if row["lactate"] is None else row["lactate"]
        high = "drug" if row["ward"] in ("a", "b") else None
        assert action == ("wait" if row["age"] is None or lactate <= 1.5 else high)
    names = {}
    exec(rules.to_python(), names)
    assert [names["suggest"](row) for row in tables[1]] == ours
    stays = duckdb.read_csv(str(files[1]))
    assert [row[0] for row in duckdb.sql(
        f"SELECT suggested FROM ({rules.to_sql('stays')})").fetchall()] == ours  # fmt: skip
    assert stays.columns[1] == "lactate"
    exported = json.loads(rules.to_json_rules())
    assert exported["version"] == 2
    assert exported["fills"] == {"lactate": rules.encoding.filling("lactate")}
    assert exported["read_as"].startswith("First, a missing feature that is named in 'fills'")
    rules.save(tmp_path / "r.dprl")
    assert dprl.load(tmp_path / "r.dprl").act(columns_in(tables[1])) == rules.act(
        columns_in(tables[1])
    )


@pytest.mark.slow
def test_rules_are_learned_from_gaps(tables, files, tmp_path):
    rows = rows_of(5, 900)
    file = write_csv(tmp_path / "more.csv", rows)
    learner = dprl.Rules(gamma=1.0, depth=1, splits=1, lam=1.0)
    flagged, kept = learner.fit(read(file, "flag")), learner.fit(read(file, "error"))
    assert flagged.act(columns_in(tables[1])) == kept.act(columns_in(tables[1]))
    assert flagged.encoding is None  # gaps have a side of their own in both
    log = read(file, {"*": "median", "ward": "flag", "icu": "error"})
    policy = learner.fit(log)
    assert policy.encoding.filling("lactate") == facts_of(rows)["lactate"]["middle"]
    assert {c.feature for rule in policy.rules for c in rule.conditions} == {"lactate"}
    by_row = policy.act(columns_in(rows))
    at, _ = policy.space.of_log(log)
    by_log = dict(zip(log.episodes, policy.act(at), strict=True))
    assert by_row == [by_log[row["id"]] for row in rows]
    assert dprl.gate(policy, log, grade="large-sample").rules
    assert dprl.learners.HeldOut.of(policy, log).policy is policy  # the policy fills its log again
    with pytest.raises(dprl.LogError, match="filled by the median of this log"):
        dprl.gate(policy, log, value_range=(-9, 9))


def test_rules_over_indicators_do_not_speak_where_a_label_is_new(files):
    log = read(files[0], {"ward": "flag", "lactate": "median", "age": "median"}).indicators()
    policy = dprl.RulePolicy(
        states=(), actions=("drug", "wait"), parameters={}, provenance={"columns": log.columns},
        feature_names=log.feature_names,
        rules=({"conditions": [{"feature": "ward=a", "kind": "above", "value": 0.5}],
                "suggested": "drug"},),
    )  # fmt: skip
    state = {"lactate": 3.0, "age": 50, "ward": "a", "icu": True}
    assert policy.act(state) == "drug"
    assert policy.act({**state, "ward": "new"}) is dprl.DEFER
    x, _ = policy.space.read({"lactate": 3.0, "age": 50, "ward": "new", "icu": True})
    assert np.isinf(x[0][[2, 3, 4, 5]]).all()  # neither high nor low: it satisfies no condition


@pytest.mark.slow
def test_commands_take_words_by_column_and_the_policy_keeps_them(
    tables, files, near, run, tmp_path
):
    columns = ["--episode", "id", "--action", "drug", "--reward", "score"]
    for name in STATE:
        columns += ["--state", name]
    words = ["--missing", "lactate=flag", "--missing", "age=median", "--missing", "ward=flag"]
    code, _, err = run("fit", files[0], *columns, *words, "--radius", 1.2, "--n-min", 3,
                       "--gamma", 1, "--out", tmp_path / "p.dprl")  # fmt: skip
    assert code == 0, err
    policy = dprl.load(tmp_path / "p.dprl")
    assert policy.encoding == near.encoding
    code, out, _ = run("act", tmp_path / "p.dprl", write_csv(tmp_path / "na.csv", tables[1], "NA"),
                       "--json")  # fmt: skip
    ours = near.act(states_of(tables[1]))
    assert [r["suggested"] for r in json.loads(out)["rows_out"]] == [
        None if a is dprl.DEFER else a for a in ours
    ]
    code, out, _ = run("act", tmp_path / "p.dprl", tmp_path / "na.csv")
    assert ",NA," in out  # the table itself is handed back as it was
    code, out, _ = run("explain", tmp_path / "p.dprl", "lactate=,age=,ward=a,icu=true", "--json")
    assert code == 0
    (tmp_path / "dprl.toml").write_text(
        '[log]\nepisode = "id"\naction = ["drug"]\nreward = "score"\nstate = ["lactate", "age", '
        '"ward", "icu"]\n[log.missing]\nlactate = "flag"\nage = "median"\nward = "flag"\n'
    )
    code, _, err = run("fit", files[0], "--radius", 1.2, "--n-min", 3, "--gamma", 1,
                       "--out", tmp_path / "q.dprl")  # fmt: skip
    assert code == 0, err
    assert dprl.load(tmp_path / "q.dprl").encoding == near.encoding


@pytest.mark.slow
def test_the_report_shows_gaps_by_action(tables, files, near, run, tmp_path):
    near.save(tmp_path / "p.dprl")
    code, out, err = run("report", tmp_path / "p.dprl", files[1], "--out", tmp_path / "r.html",
                         "--draws", 50, "--no-values", "--json")  # fmt: skip
    assert code == 0, err
    gaps = json.loads(out)["gaps"]
    assert gaps["columns"]["lactate"] == [
        sum(row["lactate"] is None and row["drug"] == drug for row in tables[1])
        for drug in ("drug", "wait")
    ]
    page = (tmp_path / "r.html").read_text()
    assert "Share of this log's decisions on which a value is missing, by the action taken" in page
    assert "the training median, stands for it, and a feature says that it was missing" in page


def test_check_tells_where_values_are_missing_by_action(tables, files):
    result = dprl.check(files[0], state=STATE, missing=WORDS, **ROLES)
    told = next(f for f in result.findings if f.rule == "missing_by_action")
    counts = result.to_dict()["log"]["missing_by_action"]
    took = sum(row["drug"] == "drug" for row in tables[0])
    gone = sum(row["drug"] == "drug" and row["lactate"] is None for row in tables[0])
    assert counts["actions"][0] == ["drug", took]
    assert counts["columns"]["lactate"][0] == gone
    assert f"'lactate' {facts_of(tables[0])['lactate']['gaps'] / 240:.1%} of rows" in told.what
    assert f"drug {gone / took:.1%}" in told.what
    flagged = dprl.check(files[0], state="ward", missing="flag", **ROLES)
    gone = [sum(r["ward"] is None and r["drug"] == d for r in tables[0]) for d in ("drug", "wait")]
    assert flagged.to_dict()["log"]["missing_by_action"]["columns"] == {"ward": gone}


def test_the_weight_of_a_flag_is_stated(files):
    log = read(files[0]).indicators()
    metric = dprl.Metric(weights={"lactate": 4.0}).fit(log)
    assert metric.weight[:2].tolist() == [4.0, 4.0]
    assert metric.scale[1] == 1.0
    assert (
        "'lactate' is filled where it is missing, and 'lactate missing' is 1 there: a missing one "
        "is 2 apart from a known one at the median (its weight is 4)."
    ) in metric.notes
    other = dprl.Metric(weights={"lactate": 4.0, "lactate missing": 0.25}).fit(log)
    assert other.weight[:2].tolist() == [4.0, 0.25]


def test_episodes_are_left_out_for_the_columns_that_say_so(tables, files):
    words = {"*": "flag", "age": "drop-episodes"}
    with pytest.warns(
        dprl.MissingWarning, match="episodes were dropped for missing values in 'age'"
    ):
        log = read(files[0], words)
    assert log.n_episodes == sum(row["age"] is not None for row in tables[0])
    assert log.missing[0] > 0


def test_a_proof_needs_medians_of_other_rows(files, near):
    log = read(files[0])
    with pytest.raises(dprl.LogError, match=r"'lactate' is missing on .* filled by the median of "
                       r"this log, so the rows that certify help to make the states"):  # fmt: skip
        dprl.gate(LEARNER, log, value_range=(-9, 9))
    with pytest.raises(dprl.LogError, match="columns that are filled: 'lactate', 'age'"):
        dprl.gate(near, log, value_range=(-9, 9))


@pytest.mark.slow
def test_a_proof_with_medians_of_other_rows(files, near):
    gated = dprl.gate(near, read(files[1]), value_range=(-9, 9))
    assert gated.encoding == near.encoding


@pytest.mark.slow
def test_settings_are_compared_on_logs_with_gaps(files):
    swept = dprl.sweep(
        LEARNER, read(files[0]), read(files[1]), n_min=[3, 5], values=False, draws=20
    )
    assert [row["n_min"] for row in swept.rows] == [3, 5]
    labels = [read(file, "flag", ["ward", "icu"]) for file in files]
    learner = dprl.DPRLDiscrete(n_min=5, gamma=1.0)
    swept = dprl.sweep(learner, *labels, n_min=[5, 9], values=False, draws=20)
    assert "ward=missing · icu=true" in swept.policies[0].states


@pytest.mark.slow
def test_a_certificate_is_watched_on_logs_with_gaps(files):
    names = ["ward", "icu"]
    learner = dprl.DPRLDiscrete(n_min=5, gamma=1.0)
    gated = dprl.gate(learner, read(files[0], "flag", names), value_range=(-9, 9))
    assert gated.certificate.grade == "proved"  # a label of its own needs no median
    one = read(files[0], "flag", "ward")
    assert dprl.gate(learner, one, value_range=(-9, 9)).gone == "missing"


@pytest.mark.slow
def test_the_service_wakes_up_with_columns_as_they_come(files):
    log = read(files[0], {"lactate": "median", "age": "median"}, ["lactate", "age", "icu"])
    policy = LEARNER.fit(log)
    assert policy.feature_names == ("lactate", "age", "icu")
    answers = Answers(policy)
    answers.warm()
    state = {"lactate": None, "age": 50.0, "icu": True}
    assert answers.act([state])[0]["action"] == policy.act(state)
