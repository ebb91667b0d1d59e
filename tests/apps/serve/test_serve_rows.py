"""Rows as the log had them: the service, `dprl act` and `policy.act` answer them alike."""

import csv
import datetime
import json
import random

import numpy as np
import pytest

import dprl
from dprl.apps.cli.policies import answer
from dprl.apps.serve.answers import Answers, StateError
from dprl.apps.serve.served import Served, description
from dprl.logs.encoding.encoder import filled

pytestmark = pytest.mark.filterwarnings("ignore::dprl.MissingWarning")
FORMS = {"iso": "%Y-%m-%d", "day-first": "%d/%m/%Y", "%d %b %Y": "%d %b %Y"}
LABELS = {"category": ["A", "b ", "c", "no"], "code": [1, 2, 7], "truth": [True, False]}
STRANGE = {"category": "never", "code": 9, "truth": "perhaps"}


def value_of(draw, kind, form, strange=0.0):
    odd = draw.random() < strange
    if odd and kind in STRANGE:
        return STRANGE[kind]
    spread = 3 if odd else 1
    if kind == "number":
        return round(draw.uniform(-2, 2) * spread, 1)
    if kind == "date":
        day = datetime.date(2024, 6, 1) + datetime.timedelta(draw.randrange(-20, 20) * spread)
        return day.strftime(form)
    return draw.choice(LABELS[kind])


def rows_of(draw, kinds, n, form, gap, strange=0.0):
    return [
        {name: None if draw.random() < gap else value_of(draw, kind, form, strange)
         for name, kind in kinds.items()}
        for _ in range(n)
    ]  # fmt: skip


def write(path, rows, more=()):
    with open(path, "w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow([*rows[0], *(name for name, _ in more)])
        for i, row in enumerate(rows):
            cells = ["" if v is None else str(v).lower() if v is True or v is False else v
                     for v in row.values()]  # fmt: skip
            lines.writerow([*cells, *(column[i] for _, column in more)])
    return path


def ruled(draw, log):
    """Rules over some columns of a log, as `dprl.Rules` would hold them."""
    log = filled(log)
    x, levels = np.asarray(log.features), log.levels or (None,) * len(log.feature_names)
    rules = []
    for _ in range(4):
        j = draw.randrange(x.shape[1])
        kind = draw.choice(["missing", "known", "cut"])
        asked = {"feature": log.feature_names[j], "kind": kind}
        if kind == "cut" and levels[j] is not None:
            asked |= {"kind": draw.choice(["in", "not in"]), "labels": [levels[j][0]]}
        elif kind == "cut":
            middle = float(np.nanmedian(x[:, j]))
            asked |= {"kind": draw.choice(["at most", "above"]), "value": middle}
        if asked not in [rule["conditions"][0] for rule in rules]:
            rules.append({"conditions": [asked], "suggested": draw.choice("xy")})
    ends = [[float(np.nanmin(c)), float(np.nanmax(c))] for c in x.T]
    return dprl.RulePolicy(
        states=(), actions=("x", "y"), parameters={}, feature_names=log.feature_names,
        levels=log.levels, rules=rules,
        provenance={"columns": log.columns, "ranges": ends},
    )  # fmt: skip


def fitted(draw, learner, log):
    if learner == "rules":
        return ruled(draw, log)
    if learner == "joined":
        return dprl.DPRLDiscrete(n_min=3, gamma=1.0).fit(log)
    if learner == "confident":
        return dprl.Confident(gamma=1.0, check=False, n_min=3).fit(log)
    return dprl.DPRLContinuous(n_min=3, radius=1.5, gamma=1.0).fit(log)


def compare(seed, folder, learner):
    """One random training table; its policy asked in three ways about rows it has not seen."""
    draw = random.Random(seed)
    names = draw.sample(["lactate", "age", "ward", "icu", "day", "x y"], draw.randint(2, 4))
    labels = learner in ("joined", "confident")
    possible = list(LABELS) if labels else ["number", "date", *LABELS]
    kinds = {name: draw.choice(possible) for name in names}
    free = ["drop-episodes", "error"] if learner == "rules" else ["drop-episodes"]
    words = {
        name: draw.choice(["flag", *([] if kind in LABELS else ["median"]), *free])
        for name, kind in kinds.items()
    }
    dates = draw.choice(list(FORMS))
    train = rows_of(draw, kinds, 120, FORMS[dates], draw.choice([0, 0.1]))
    taken = [draw.choice("xy") for _ in train]
    more = [("id", range(len(train))), ("a", taken),
            ("r", [round(draw.gauss(a == "x", 1), 2) for a in taken])]  # fmt: skip
    log = dprl.read(
        write(folder / "train.csv", train, more), episode="id", state=names, action="a", reward="r",
        missing=words, dates=dates, also=(), labels=draw.choice(["", "trim,casefold"]),
        categorical=[n for n, kind in kinds.items() if kind in ("code", "category")],
    )  # fmt: skip
    policy = fitted(draw, learner, log)
    served = Answers(policy)
    served.warm()
    rows = rows_of(draw, kinds, 25, FORMS[dates], 0.15, strange=0.15)
    answered, by_policy, kept = [], [], []
    for row in json.loads(json.dumps(rows)):
        try:
            in_python = policy.act(row)
        except dprl.DprlError:
            in_python = None
        try:
            (here,) = served.act([row])
        except StateError as error:
            assert error.feature in names
            assert in_python is None or in_python is dprl.DEFER, (row, in_python)
            assert in_python is None or None in row.values()
            continue
        assert in_python is not None, row
        why = served.explain(row)
        assert {k: why[k] for k in here} == here
        answered.append(here)
        by_policy.append(in_python)
        kept.append(row)
    assert len(kept) > 5 or not labels
    assert served.act(kept) == answered
    if kept:
        table = answer(policy, str(write(folder / "rows.csv", kept)), None, "suggested")
        assert table.answers == by_policy
    for row, here, in_python in zip(kept, answered, by_policy, strict=True):
        action = dprl.DEFER if here["defer"] else here["action"]
        if action != in_python:  # only outside of what was trained on
            assert here["in_range"] is False
            assert " value in training, " in here["reason"], (row, here)
        strange = [n for n, kind in kinds.items() if row[n] == STRANGE.get(kind, "")]
        if strange and not labels:
            assert here["in_range"] is False, (row, here)
    document = description(policy, token=False)
    asked = document["paths"]["/explain"]["post"]["requestBody"]["content"]["application/json"]
    shapes = asked["schema"]["properties"]["state"]["properties"]
    assert list(shapes) == names
    json.dumps(document), json.dumps(served.about())
    return answered


@pytest.mark.parametrize("learner", ["rules", "joined", "near"])
@pytest.mark.parametrize("seed", range(2))
def test_all_three_ways_answer_alike(seed, learner, tmp_path):
    compare(seed, tmp_path, learner)


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["rules", "joined", "near", "confident"])
def test_all_three_ways_answer_alike_in_many_tables(learner, tmp_path):
    answered = [one for seed in range(100, 108) for one in compare(seed, tmp_path, learner)]
    assert {one["defer"] for one in answered} == {True, False}


# -- one policy over HTTP ---------------------------------------------------------------------------

ROW = {"pressure": 60.0, "ward": "ICU", "fever": True, "admitted": "01/06/2024"}


def stays(**columns):
    """A log of 40 stays over a number with gaps, a category, a truth value and a date."""
    n = 40
    days = [datetime.date(2024, 5, 20) + datetime.timedelta(i) for i in range(n)]
    rows = [
        [None if i % 4 == 0 else 50.0 + i, ("HDU", "ICU", "ward 3")[i % 3], i % 2 == 0, days[i]]
        for i in range(n)
    ]
    return dprl.from_arrays(
        episode=range(n), state=rows, action=["wait", "fluids"] * 20, reward=[0, 1] * 20,
        feature_names=list(ROW), dates="day-first", **columns,
    )  # fmt: skip


def rules_on(log, *conditions, name="fluids", **provenance):
    from dprl.learners.continuous import feature_quantiles

    log = filled(log)
    x = np.asarray(log.features)
    ends = np.stack([np.nanmin(x, axis=0), np.nanmax(x, axis=0)], axis=1).tolist()
    rules = [{"conditions": [c], "suggested": name, "facts": {"groups": 9}} for c in conditions]
    kept = {"columns": log.columns, "ranges": ends, "quantiles": feature_quantiles(log)}
    return dprl.RulePolicy(
        states=(), actions=("fluids", "wait"), parameters={}, feature_names=log.feature_names,
        levels=log.levels, rules=rules, provenance={**kept, **provenance},
    )  # fmt: skip


ICU = {"feature": "ward", "kind": "in", "labels": ["ICU"]}
GONE = {"feature": "pressure", "kind": "missing"}
LATE = {"feature": "admitted", "kind": "above", "value": 19870.5}


@pytest.fixture
def site(tmp_path):
    """A service of rules over every kind of column, with an audit of whole states, and a file."""
    pytest.importorskip("starlette", reason="starlette is not installed (dprl[serve])")
    from starlette.testclient import TestClient
    from test_serve import ready

    from dprl.apps.serve.app import serve_app
    from dprl.apps.serve.audit import Audit, Records

    policy = rules_on(stays(), ICU, GONE, LATE)
    policy.save(tmp_path / "p.dprl")
    app = serve_app(
        policy, token=None, path=str(tmp_path / "p.dprl"),
        records=Records(None, Audit(tmp_path / "audit"), True),
    )  # fmt: skip
    with TestClient(app, base_url="http://127.0.0.1:9") as client:
        ready(client)
        yield client, policy, app.state.life


def ask(client, *states):
    reply = client.post("/act", json={"states": list(states)})
    assert reply.status_code == 200, reply.text
    return reply.json()["answers"]


def test_rules_answer_rows_with_labels_gaps_truths_and_dates(site, tmp_path):
    from test_serve import numbers

    from dprl.apps.serve.audit import input_hash

    client, policy, _ = site
    elsewhere = {**ROW, "ward": "HDU", "admitted": "2024-05-21"}
    asked = [
        ROW, elsewhere, {**elsewhere, "pressure": None},
        {**ROW, "ward": "attic"}, {**elsewhere, "ward": "attic"}, {**ROW, "ward": None},
        {**ROW, "fever": "TRUE"}, {**ROW, "fever": 0},
    ]  # fmt: skip
    answers = ask(client, *asked)
    assert [dprl.DEFER if a["defer"] else a["action"] for a in answers] == [
        policy.act(one) for one in asked
    ]
    assert [a["action"] for a in answers] == [
        "fluids", None, "fluids", "fluids", None, "fluids", "fluids", "fluids",
    ]  # fmt: skip
    assert [a["in_range"] for a in answers] == [True] * 3 + [False] * 2 + [True] * 3
    assert answers[1]["reason"] == "No rule holds in this state."
    strange = "ward has a label that training did not have."
    assert answers[3]["reason"].startswith(f"{strange} Rule 3: ")
    assert answers[4]["reason"] == f"{strange} No rule holds in this state."
    lines = numbers(client)
    assert lines['dprl_answers_total{kind="out_of_range"}'] == 1
    short = policy.digest()[:12]
    for part, count in (("unseen", 2), ("2", 3)):
        key = f'dprl_feature_states_total{{feature="ward",part="{part}",policy="{short}"}}'
        assert lines[key] == count
    share = f'dprl_feature_training_share{{feature="pressure",part="missing",policy="{short}"}}'
    assert lines[share] == 0.25
    stored = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    stored = [entry for entry in stored if entry["event"] == "answer"]
    assert [entry["features"] for entry in stored] == asked
    assert [entry["input"] for entry in stored] == [input_hash(one) for one in asked]
    why = client.post("/explain", json={"state": asked[3]}).json()
    assert (why["action"], why["in_range"], why["state"]) == ("fluids", False, asked[3])
    assert why["reason"] == answers[3]["reason"]


@pytest.mark.parametrize(
    ("change", "feature", "what"),
    [
        ({"pressure": "60"}, "pressure", "must be a number"),
        ({"pressure": True}, "pressure", "must be a number"),
        ({"pressure": ""}, "pressure", "must be a number"),
        ({"ward": 3.5}, "ward", "must be a label"),
        ({"ward": 3}, "ward", "is a category; got '3', which is no label"),
        ({"ward": 10**400}, "ward", "must be a label"),
        ({"ward": ["ICU"]}, "ward", "must be a label"),
        ({"fever": {}}, "fever", "must be a label"),
        ({"admitted": 19880}, "admitted", "must be a date, as text"),
        ({"admitted": "06/31/2024"}, "admitted", "which is no date as declared"),
        ({"more": 1}, "more", "no column of a state"),
    ],
)
def test_odd_rows_are_refused_with_the_state_and_the_column(site, change, feature, what):
    client, _, _ = site
    reply = client.post("/act", json={"states": [ROW, {**ROW, **change}]})
    assert reply.status_code == 422
    error = reply.json()["error"]
    assert (error["state"], error["feature"]) == (1, feature)
    assert what in error["what"]


def test_the_description_names_labels_types_and_gaps(site):
    client, _, _ = site
    document = client.get("/openapi.json").json()
    asked = document["paths"]["/act"]["post"]["requestBody"]["content"]["application/json"]
    shapes = asked["schema"]["properties"]["states"]["items"]["properties"]
    assert shapes["pressure"]["type"] == ["number", "null"]
    assert shapes["ward"]["anyOf"][0] == {"enum": ["HDU", "ICU", "ward 3", None]}
    assert "training did not have" in shapes["ward"]["anyOf"][1]["description"]
    assert shapes["fever"]["enum"][:2] == [True, False]
    assert shapes["admitted"]["type"] == ["string", "null"]
    assert "in training 2024-05-20 to 2024-06-28" in shapes["admitted"]["description"]
    about = client.get("/policy").json()
    assert about["columns"]["ward"] == ["HDU", "ICU", "ward 3"]
    assert about["features"][1] == {"name": "ward", "labels": ["HDU", "ICU", "ward 3"]}
    assert about["features"][3] == {"name": "admitted", "min": "2024-05-20", "max": "2024-06-28"}


def test_a_date_or_a_number_outside_of_training_defers(site):
    client, _, _ = site
    for change, why in (
        ({"admitted": "2030-01-01"}, "admitted = 2030-01-01 is above the largest value in training, "
         "2024-06-28."),
        ({"pressure": 500}, "pressure = 500 is above the largest value in training, 89."),
        ({"pressure": 1e9}, "pressure = 1e+09 is above the largest value in training, 89."),
    ):  # fmt: skip
        (answer,) = ask(client, {**ROW, **change})
        assert (answer["defer"], answer["in_range"], answer["reason"]) == (True, False, why)


def test_a_new_policy_may_not_take_other_rows(site, tmp_path):
    client, _, life = site
    rules_on(stays(), ICU, name="wait").save(tmp_path / "p.dprl")
    assert client.portal.call(life.reload) == ""
    assert ask(client, ROW)[0]["action"] == "wait"
    numeric = stays(categorical=["pressure"], missing={"pressure": "flag"})
    rules_on(numeric, ICU).save(tmp_path / "p.dprl")
    why = client.portal.call(life.reload)
    assert "takes other states" in why
    assert "pressure (labels)" in why
    near = dprl.DPRLContinuous(n_min=1, radius=1.0, gamma=1.0)
    near.fit(stays(missing={"pressure": "median"})).save(tmp_path / "p.dprl")
    why = client.portal.call(life.reload)
    assert "the new policy refuses states in which 'ward' is missing." in why
    assert ask(client, {**ROW, "ward": None})[0]["defer"]


def test_a_flag_where_training_had_no_gap_is_said():
    policy = rules_on(stays(missing={"ward": "flag", "pressure": "median"}), GONE, LATE)
    (answer,) = Answers(policy).act([{**ROW, "ward": None}])
    assert (answer["action"], answer["in_range"]) == ("fluids", False)
    assert answer["reason"].startswith("ward is missing, and never was in training. Rule 2: ")
    (answer,) = Answers(policy).act([{**ROW, "pressure": None, "admitted": "2024-05-21"}])
    assert (answer["action"], answer["in_range"]) == (None, True)  # filled: no rule sees a gap


def test_parts_of_labels_and_gaps_are_of_the_training_log():
    from dprl.learners.continuous import feature_quantiles

    pressure, ward, fever, _ = feature_quantiles(stays())
    assert pressure["missing"] == 0.25
    assert sum(pressure["shares"]) == pytest.approx(0.75)
    assert (ward["edges"], ward["shares"]) == ([0.5, 1.5], [0.35, 0.325, 0.325])
    assert fever["shares"][:2] == [0.5, 0.5]
    served = Served.of(rules_on(stays(), ICU), False, False)
    assert served.shares["ward"] == {
        "1": 0.35, "2": 0.325, "3": 0.325, "missing": 0.0, "unseen": 0.0,
    }  # fmt: skip


ODD = (
    None, True, False, 0, 1, -1, 3, 1.5, 1e308, -1e308, 10**400, "", " ", "x", "ICU", "true", "TRUE", "0",
    "NaN", "inf", "\ud800", "\x00", "é" * 300, [], {}, [None], "9" * 500, 2**63, -0.0, 5e-324,
    "2024-13-99", "2024-02-30", "9999-12-31", "0001-01-01", "10000-01-01", "31/12/2024", "1/2/24",
    "2024-06-01T10:00:00+14:00", "2024-06-01T24:00:00Z", "0001-01-01T00:00:00+14:00",
    "2024-06-01T10:00:00+99:99", "9999-12-31T23:59:59-14:00",
    "2024-06-01 10:00:00.1234567", "1e9", 1e9, "missing",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["rules", "near", "joined"])
def test_whatever_a_column_holds_it_is_answered_or_refused(kind):
    if kind == "rules":
        policy = rules_on(stays(missing={"ward": "flag"}), ICU, GONE, LATE)
    elif kind == "near":
        learner = dprl.DPRLContinuous(n_min=1, radius=1.0, gamma=1.0)
        policy = learner.fit(stays(missing={"pressure": "flag"}))
    else:
        policy = dprl.DPRLDiscrete(n_min=1, gamma=1.0).fit(
            dprl.from_arrays(
                episode=range(4), state=[["ICU", True], ["HDU", False]] * 2, action=["a", "b"] * 2,
                reward=[0, 1] * 2, feature_names=["ward", "fever"],
            )
        )  # fmt: skip
    served = Answers(policy)
    row = {name: value for name, value in ROW.items() if name in served.columns}
    given = [{**row, name: value} for name in row for value in ODD]
    for one in [*given, *ODD]:
        try:
            (here,) = served.act([one])
            why = served.explain(one)
        except StateError as error:
            assert (error.index, error.do) >= (0, "")
            with pytest.raises(StateError) as caught:  # the same in a request of many
                served.act([row, one])
            assert caught.value.index == 1
            continue
        assert why["action"] == here["action"]
        json.dumps([here, why])
        try:
            acted = policy.act(one)
        except dprl.LogError:  # too large for a distance
            assert (here["defer"], here["in_range"]) == (True, False)
            continue
        assert here["defer"] or here["action"] == acted
        assert here["in_range"] is False or acted == (here["action"] or dprl.DEFER)


def test_dprl_act_names_states_by_their_dates(run, tmp_path):
    rules_on(stays(), ICU, LATE).save(tmp_path / "p.dprl")
    rows = "pressure,ward,fever,admitted\n,ICU,true,01/06/2024\n60,HDU,false,\n"
    code, out, _ = run("act", "p.dprl", "--json", stdin=rows)
    assert code == 0
    first, second = json.loads(out)["rows_out"]
    assert first["state"]["admitted"] == "2024-06-01"
    assert (first["suggested"], second["state"]["admitted"]) == ("fluids", None)


def test_answers_to_many_are_those_to_each():
    """Columns are looked at whole and answers made once; both as state by state."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(400, 2)).round(1)
    log = dprl.from_arrays(
        episode=range(400), state=x, action=rng.choice(["a", "b"], 400), reward=x[:, 0],
        feature_names=["p", "q"],
    )  # fmt: skip
    policy = dprl.DPRLContinuous(n_min=10, radius=0.5, gamma=1.0).fit(log)
    answers = Answers(policy)
    states = [{"p": float(p), "q": float(q)} for p, q in rng.normal(size=(300, 2)).round(1) * 1.5]
    together = answers.act(states)
    assert together == [answers.act([state])[0] for state in states]
    assert {a["kind"] for a in together} >= {"defer", "change"}
    assert len({a["reason"] for a in together}) > 50
    for wrong in ({"p": True, "q": 1.0}, {"p": 1.0}, {"p": 1.0, "q": float("inf")}, ["p", "q"]):
        with pytest.raises(StateError, match=r"states\[300\]"):
            answers.act([*states, wrong])
