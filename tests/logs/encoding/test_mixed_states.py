"""States of several columns: categories joined into labels, or indicators in a distance."""

import json

import numpy as np
import pytest

import dprl
from dprl.apps.serve.answers import Answers, StateError
from dprl.apps.serve.served import description
from dprl.logs.encoding.encoder import FAR

COLUMNS = ["--episode", "id", "--action", "drug", "--reward", "score"]


def write_stays(path, seed=0, n=800):
    """One decision per stay; the drug helps on ward a."""
    random = np.random.default_rng(seed)
    rows = ["id,sex,ward,icu,age,drug,score"]
    for i in range(n):
        sex, ward = "fm"[random.integers(2)], "abc"[random.integers(3)]
        drug = random.random() < 0.3
        score = random.random() < 0.3 + 0.5 * (drug and ward == "a")
        icu = ("false", "true")[random.integers(2)]
        rows.append(f"{seed}-{i},{sex},{ward},{icu},{random.normal(60, 10):.2f},"
                    f"{'drug' if drug else 'wait'},{score:d}")  # fmt: skip
    path.write_text("\n".join(rows))
    return path


def read(path, *state):
    return dprl.read(path, episode="id", state=list(state), action="drug", reward="score", also=())


@pytest.fixture(scope="module")
def stays(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stays")
    return tuple(write_stays(folder / f"{seed}.csv", seed) for seed in (0, 1))


@pytest.fixture(scope="module")
def joined(stays):
    return dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(read(stays[0], "sex", "ward"))


@pytest.fixture(scope="module")
def near(stays):
    learner = dprl.DPRLContinuous(n_min=8, radius=0.5, gamma=1.0)
    return learner.fit(read(stays[0], "age", "ward", "icu"))


def test_categories_are_joined_into_readable_labels(stays, joined):
    assert joined.states[0] == "sex=f · ward=a"
    assert len(joined.states) == 6
    by_hand = read(stays[0], "sex", "ward").joined()
    assert by_hand.states == joined.states
    assert by_hand.columns["encoding"]["how"] == "joined"
    assert "sex=f · ward=a" in joined.changes()["state"]
    sure = dprl.Confident(gamma=1.0, check=False).fit(read(stays[0], "sex", "ward"))
    assert sure.states == joined.states


def test_a_joined_policy_takes_rows_as_the_log_had_them(joined):
    import pandas as pd

    one = {"sex": "f", "ward": "a"}
    assert joined.act(one) == joined.act("sex=f · ward=a") == "drug"
    assert joined.act([one, {"sex": "f", "ward": "z"}]) == ["drug", dprl.DEFER]
    assert joined.act([["f", "a"], ["f", None]]) == ["drug", dprl.DEFER]
    assert joined.act(pd.DataFrame({"ward": ["a"], "sex": ["f"]})) == ["drug"]
    assert joined.explain(one).state == "sex=f · ward=a"
    with pytest.raises(dprl.PolicyError, match="a state needs the column 'ward'"):
        joined.act({"sex": "f"})


def test_a_joined_policy_is_judged_by_raw_logs(stays, joined, tmp_path):
    raw = read(stays[1], "sex", "ward")
    judged = dprl.evaluate(joined, raw, draws=50)
    assert judged.settings["log"] == raw.joined().digest()
    assert dprl.report(joined, raw, tmp_path / "r.html", draws=50).changes == len(joined.changes())
    assert "<bdi>sex=f · ward=a</bdi>" in (tmp_path / "r.html").read_text(encoding="utf-8")
    with pytest.raises(dprl.PolicyError, match="this is the log the policy was learned from"):
        dprl.evaluate(joined, read(stays[0], "sex", "ward"), draws=50)
    gated = dprl.gate(joined, read(stays[0], "sex", "ward"), value_range=(0, 1))
    assert "sex=f · ward=a" in str(gated.certificate)
    assert gated.act({"sex": "f", "ward": "a"}) == "drug"


def test_the_command_line_joins_and_takes_raw_rows(stays, run, tmp_path):
    code, out, err = run("fit", stays[0], *COLUMNS, "--state", "sex", "--state", "ward",
                         "--gamma", 1, "--n-min", 20, "--out", "p.dprl")  # fmt: skip
    assert (code, "sex=f · ward=a" in out) == (0, True), err
    assert run("evaluate", "p.dprl", stays[1], "--draws", 20)[0] == 0
    assert run("gate", "p.dprl", stays[0], "--lowest", 0, "--highest", 1)[0] == 0
    rows = "ward,sex,note\na,f,1\nb,z,2\n,f,3\n"
    code, out, _ = run("act", "p.dprl", stdin=rows)
    assert code == 0
    assert out.splitlines()[1:] == ["a,f,1,drug", "b,z,2,DEFER", ",f,3,DEFER"]
    code, out, _ = run("explain", "p.dprl", "sex=f,ward=a")
    assert (code, out.startswith("sex=f · ward=a: suggests drug (change)")) == (0, True)
    assert run("explain", "p.dprl", "sex=f · ward=a")[1] == out
    code, _, err = run("fit", stays[0], *COLUMNS, "--state", "sex", "--state", "age",
                       "--gamma", 1, "--n-min", 20, "--out", "q.dprl")  # fmt: skip
    assert code == 1
    assert "no radius is given" in err
    assert "'age' holds numbers" in err
    assert not (tmp_path / "q.dprl").exists()


def test_categories_in_a_distance_are_indicators_whose_weight_is_stated(stays, near):
    assert near.feature_names == ("age", "ward=a", "ward=b", "ward=c", "icu")
    log = read(stays[0], "age", "ward", "icu").indicators()
    metric = dprl.Metric().fit(log)
    z = metric.transform([[60, 1, 0, 0, 0], [60, 0, 1, 0, 0]])
    assert np.sum((z[0] - z[1]) ** 2) == pytest.approx(1.0)
    assert "'ward' is a category of 3 labels: two different ones are 1 apart" in str(
        near.provenance["notes"]
    )
    metric = dprl.Metric(weights={"ward": 4.0}, scale="none").fit(log)
    z = metric.transform([[60, 1, 0, 0, 0], [60, 0, 1, 0, 0]])
    assert np.sum((z[0] - z[1]) ** 2) == pytest.approx(4.0)
    assert metric.scale[0] == 1.0
    assert "are 2 apart (its weight is 4)" in metric.notes[-1]


@pytest.mark.slow
def test_a_policy_over_a_distance_takes_raw_rows(stays, near):
    one = {"age": 60.0, "ward": "a", "icu": True}
    expanded = {"age": 60.0, "ward=a": 1, "ward=b": 0, "ward=c": 0, "icu": 1}
    assert near.act(one) == near.act(expanded) == "drug"
    assert near.act([[60.0, "a", "true"]]) == ["drug"]
    assert near.act({**one, "ward": "never seen"}) is dprl.DEFER
    with pytest.raises(dprl.PolicyError, match="'ward' is missing in 1 of 1 states"):
        near.act({**one, "ward": None})
    with pytest.raises(dprl.PolicyError, match="'icu' must be true or false"):
        near.act({**one, "icu": "maybe"})
    raw = read(stays[1], "age", "ward", "icu")
    judged = dprl.evaluate(near, raw, draws=20, values=False)
    assert judged.settings["log"] == raw.indicators().digest()


@pytest.mark.slow
def test_the_command_line_over_a_distance(stays, run):
    state = ["--state", "age", "--state", "ward", "--radius", 0.5]
    code, out, err = run("fit", stays[0], *COLUMNS, *state, "--gamma", 1, "--n-min", 20)
    assert code == 0, out + err
    assert run("evaluate", "policy.dprl", stays[1], "--draws", 20, "--no-values")[0] == 0
    code, out, _ = run("act", "policy.dprl", stdin="age,ward\n60,a\n60,zzz\n")
    assert (code, out.splitlines()[1:]) == (0, ["60,a,drug", "60,zzz,DEFER"])
    assert run("explain", "policy.dprl", "age=60,ward=a")[0] == 0


def test_a_policy_file_keeps_how_states_were_made(joined, near, tmp_path):
    for policy, one in ((joined, {"sex": "f", "ward": "a"}),
                        (near, {"age": 60.0, "ward": "a", "icu": False})):  # fmt: skip
        policy.save(tmp_path / "p.dprl")
        again = dprl.load(tmp_path / "p.dprl")
        assert again.digest() == policy.digest()
        assert again.act(one) == policy.act(one)


def test_the_service_takes_raw_rows(joined, near):
    served = Answers(joined)
    assert served.act([{"sex": "f", "ward": "a"}])[0]["action"] == "drug"
    assert served.act([{"sex": "f", "ward": "z"}])[0]["in_range"] is False
    assert served.explain({"sex": "f", "ward": "a"})["action"] == "drug"
    schema = description(joined, token=False)["paths"]["/explain"]["post"]["requestBody"]
    asked = schema["content"]["application/json"]["schema"]["properties"]["state"]
    assert list(asked["properties"]) == ["sex", "ward"]
    json.dumps(served.about())
    distant = Answers(near)
    distant.warm()
    assert distant.act([{"age": 60, "ward": "a", "icu": True}])[0]["action"] == "drug"
    answer = distant.act([{"age": 60, "ward": "z", "icu": True}])[0]
    assert answer["reason"] == "ward has a label that training did not have."
    for state, what in (
        ({"sex": "f"}, "a state needs the column 'ward'"),
        ({"sex": "f", "ward": None}, "'ward' is missing"),
        ({"sex": "f", "ward": "a", "age": 3}, "'age' is no column of a state"),
        ({"sex": "f", "ward": [1]}, "'ward' must be a label"),
    ):
        with pytest.raises(StateError, match=what):
            served.act([state])
    with pytest.raises(StateError, match="a state is an object of its columns"):
        distant.act(["a"])


def test_what_cannot_be_joined_is_refused(stays):
    with pytest.raises(dprl.LogError, match="'age' holds numbers, and only categories") as caught:
        read(stays[0], "age", "ward").joined()
    assert "categorical=['age']" in caught.value.do
    base = {"episode": [1, 2], "action": ["x", "y"], "reward": [0, 1]}
    gap = dprl.from_arrays(**base, state=[["f", "a"], ["m", None]], feature_names=["sex", "ward"])
    for method in (gap.joined, gap.indicators):
        with pytest.raises(dprl.LogError, match="'ward' is missing on 1 of 2 rows"):
            method()
    odd = dprl.from_arrays(**base, state=[["x", "y · v=z · v=w"], ["x · v=y", "z · v=w"]],
                           feature_names=["u", "v"])  # fmt: skip
    with pytest.raises(dprl.LogError, match="would get the same name"):
        odd.joined()
    other = read(stays[1], "ward", "sex")
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(read(stays[0], "sex", "ward"))
    with pytest.raises(dprl.LogError, match="other states than the policy was fitted to"):
        dprl.evaluate(policy, other, draws=20)


def test_a_label_never_seen_is_far_from_everything(stays, near, tmp_path):
    path = tmp_path / "z.csv"
    path.write_text(stays[1].read_text().replace(",c,", ",z,"))
    log = dprl.logs.encoding.encoder.encoded_like(
        read(path, "age", "ward", "icu"), near.provenance["columns"]
    )
    assert (log.features[:, 1:4] == FAR).all(axis=1).any()
    here = near.at(log.features[(log.features[:, 1] == FAR)][:3])
    assert (here.choice == -1).all()
