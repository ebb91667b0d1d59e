"""Rules about categories: what they say, where they hold, what is refused, in every language."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import dprl
from dprl.policies.rules.matching import FlatRules
from dprl.policies.rules.rule import Condition, Rule

duckdb = pytest.importorskip("duckdb")

WARDS = ("HDU", "ICU", "general 'ward'", 'é"💊')
NAMES, LEVELS = ("pressure", "ward", "fever"), (None, WARDS, ("false", "true"))


def policy(rules, levels=LEVELS, names=NAMES):
    return dprl.RulePolicy(
        states=(), actions=("fluids", "wait"), parameters={}, provenance={}, feature_names=names,
        rules=tuple(rules), levels=levels,
    )  # fmt: skip


def on(*conditions, action="fluids", **more):
    return Rule(tuple(conditions), action, **more)


ICU = Condition("ward", "in", labels=("ICU", "HDU"))


def test_words():
    assert ICU.words == "ward is HDU or ICU"
    assert Condition("ward", "not in", labels=("ICU",)).words == "ward is not ICU"
    assert Condition("ward", "not in", labels=("ICU", "HDU")).words == "ward is neither HDU nor ICU"
    assert (
        Condition("ward", "in", labels=("general ward", "or")).words
        == 'ward is "general ward" or "or"'
    )
    low = Condition("pressure", "at most", 62)
    assert on(ICU, low).words == "ward is HDU or ICU and pressure at most 62"
    assert on(ICU, low).sentence == "If ward is HDU or ICU and pressure at most 62"
    assert on(low, ICU).sentence == "If pressure is at most 62 and ward is HDU or ICU"


def test_conditions_on_one_feature_are_said_once():
    rule = on(ICU, Condition("ward", "not in", labels=("HDU",)), Condition("ward", "known"))
    assert rule.words == "ward is ICU"
    both = on(
        Condition("ward", "not in", labels=("HDU",)), Condition("ward", "not in", labels=("ICU",))
    )
    assert both.words == "ward is neither HDU nor ICU"
    assert not on(ICU).meets(on(Condition("ward", "missing")))
    assert not on(ICU).meets(on(Condition("ward", "not in", labels=("ICU", "HDU"))))
    assert on(ICU).meets(on(Condition("ward", "not in", labels=("ICU",))))
    with pytest.raises(dprl.PolicyError, match="no state can satisfy"):
        on(ICU, Condition("ward", "in", labels=("another",)))


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "in"},
        {"kind": "in", "labels": []},
        {"kind": "in", "labels": ["a", "a"]},
        {"kind": "in", "labels": [1]},
        {"kind": "in", "labels": "ab"},
        {"kind": "in", "labels": ["a"], "value": 3},
        {"kind": "known", "labels": ["a"]},
        {"kind": "at most", "value": 3, "labels": ["a"]},
    ],
)
def test_odd_conditions_are_refused(bad):
    with pytest.raises(dprl.PolicyError):
        Condition.from_dict({"feature": "ward", **bad})


def test_a_condition_is_kept_as_it_is():
    for c in (ICU, Condition("ward", "not in", labels=WARDS[:2])):
        assert Condition.from_dict(json.loads(json.dumps(c.to_dict()))) == c


@pytest.mark.parametrize(
    ("rule", "match"),
    [
        (on(Condition("ward", "at most", 1.0)), "a number of 'ward', a category"),
        (on(Condition("pressure", "in", labels=("ICU",))), "no label of 'pressure'"),
        (on(Condition("ward", "in", labels=("IMC",))), "'IMC', no label of 'ward'"),
        (on(Condition("ward", "not in", labels=WARDS)), "no label of 'ward' satisfies"),
    ],
)
def test_rules_that_do_not_fit_the_features_are_refused(rule, match):
    with pytest.raises(dprl.PolicyError, match=match):
        policy([rule])


def test_codes_of_labels_are_no_numbers():
    with pytest.raises(dprl.PolicyError, match="labels of categories"):
        ICU.holds(np.array([0.0, 1.0]))
    with pytest.raises(dprl.PolicyError, match="labels of categories"):
        Condition("ward", "at most", 1.0).holds(np.array([0.0, 1.0]), WARDS)


def test_it_acts_on_labels_in_every_form():
    ruled = policy(
        [
            on(ICU, Condition("pressure", "at most", 62)),
            on(Condition("fever", "in", labels=("true",))),
        ]
    )
    assert ruled.act({"pressure": 60, "ward": "ICU", "fever": False}) == "fluids"
    assert ruled.act([60.0, "ICU", False]) == "fluids"
    rows = [
        [60.0, "ICU", False],
        [60.0, "unheard of", False],
        [60.0, None, True],
        [None, "ICU", None],
    ]
    right = ["fluids", dprl.DEFER, "fluids", dprl.DEFER]
    assert ruled.act(rows) == right
    table = pd.DataFrame(rows, columns=list(NAMES))
    assert ruled.act(table) == right
    assert ruled.act(table.astype({"ward": "category"})) == right
    assert ruled.act(np.array(rows, object)) == right
    assert ruled.act({name: table[name] for name in NAMES}) == right
    assert [int(k) for k in ruled.at(rows).choice] == [0, -1, 0, -1]
    assert ruled.explain(rows[0]).state == "pressure = 60, ward = ICU, fever = false"
    assert "ward = a label never seen" in ruled.explain(rows[1]).state
    assert ruled.act([]) == []


def test_an_unseen_label_satisfies_nothing():
    for kind, labels in (("known", ()), ("not in", ("ICU",)), ("missing", ())):
        ruled = policy([on(Condition("ward", kind, labels=labels))])
        assert ruled.act([60, "unheard of", True]) is dprl.DEFER


@pytest.mark.parametrize("value", [0, 1.0, 2.5, [1], b"ICU"])
def test_a_number_is_no_label(value):
    ruled = policy([on(ICU)])
    with pytest.raises((dprl.PolicyError, dprl.ParameterError)):
        ruled.act({"pressure": 60, "ward": value, "fever": True})


def test_wrong_shapes_are_refused():
    ruled = policy([on(ICU)])
    for wrong in ([60.0, "ICU"], [[60.0, "ICU"]], "ICU", {"ward": "ICU"}, [["a", "ICU", True]]):
        with pytest.raises(dprl.DprlError):
            ruled.act(wrong)


def test_labels_that_are_digits_may_be_whole_numbers():
    ruled = policy([on(Condition("ward", "in", labels=("3",)))], (("12", "3"),), ("ward",))
    assert ruled.act([["3"], [3], [3.0], [12], [7]]) == ["fluids"] * 3 + [dprl.DEFER] * 2


def log(wards, fever=True, pressure=60.0):
    n = len(wards)
    return dprl.from_arrays(
        episode=range(n), state=[[pressure, ward, fever] for ward in wards], action=["wait", "fluids"] * (n // 2),
        reward=range(n), feature_names=NAMES,
    )  # fmt: skip


def test_labels_of_a_log_are_matched_by_name():
    ruled = policy([on(ICU)])
    seen = log(["ICU", "a ward", "HDU", None])  # its codes differ from the policy's
    x, _ = ruled.space.of_log(seen)
    assert ruled.act(x) == ["fluids", dprl.DEFER, "fluids", dprl.DEFER]
    assert ruled.act(x[:1]) == ["fluids"]
    numbers = dprl.from_arrays(
        episode=range(2), state=[[60.0, 1.0, 1.0], [60.0, 2.0, 1.0]], action=["wait", "fluids"], reward=[0, 1],
        feature_names=NAMES,
    )  # fmt: skip
    with pytest.raises(
        dprl.LogError, match="'ward' is a category to the policy, and a number in this log"
    ):
        ruled.space.of_log(numbers)
    plain = policy([on(Condition("pressure", "at most", 62))], (), ("pressure",))
    labelled = dprl.from_arrays(
        episode=range(2), state=[["a"], ["b"]], action=["wait", "fluids"], reward=[0, 1],
        feature_names=["pressure"],
    )  # fmt: skip
    with pytest.raises(dprl.LogError, match="'pressure' is a number to the policy, and a category"):
        plain.space.of_log(labelled)


def test_a_typical_state_is_told_by_its_label():
    rule = on(ICU, facts={"share_usual": [["wait", 0.9], ["fluids", 0.1]], "groups": 90})
    (one,) = policy([rule]).situations(log(["ICU", "ICU", "HDU", "a"]))
    assert one.typical == (("ward", "ICU"),)
    assert one.rows.tolist() == [0, 1, 2]


def test_it_is_saved_and_loaded(tmp_path):
    ruled = policy([on(ICU)])
    ruled.save(tmp_path / "a.policy")
    again = dprl.load(tmp_path / "a.policy")
    assert again.levels == LEVELS
    assert again.digest() == ruled.digest()
    assert again.act([60, "ICU", True]) == "fluids"
    plain = policy([on(Condition("pressure", "at most", 62))], ())
    assert "levels" not in plain._parts()[0]  # files of numbers are what they were


@pytest.mark.parametrize(
    "levels",
    [
        (("b", "a"), None, None),
        ((), None, None),
        (None, None),
        ("ab", None, None),
        (("a", "a"), None, None),
    ],
)
def test_odd_levels_are_refused(levels):
    with pytest.raises(dprl.PolicyError):
        policy([], levels)


# -- other languages -------------------------------------------------------------------------


def random_policy(seed, n=12):
    rng, rules, words = np.random.default_rng(seed), [], set()
    while len(rules) < n:
        conditions = []
        for _ in range(rng.integers(1, 4)):
            j = int(rng.integers(3))
            kind = str(rng.choice(["missing", "known", "in", "not in", "in", "not in"]))
            if j and kind in ("in", "not in"):
                size = rng.integers(1, len(LEVELS[j]))
                labels = tuple(map(str, rng.choice(LEVELS[j], size, replace=False)))
                conditions.append(Condition(NAMES[j], kind, labels=labels))
            elif kind in ("in", "not in"):
                conditions.append(
                    Condition(
                        NAMES[j], "above" if kind == "in" else "at most", float(rng.integers(3))
                    )
                )
            else:
                conditions.append(Condition(NAMES[j], kind))
        try:
            rule = Rule(
                tuple(conditions),
                str(rng.choice(["fluids", "wait"])),
                silent=bool(rng.random() < 0.2),
            )
            policy([rule])
        except dprl.PolicyError:
            continue
        if rule.words not in words:
            rules.append(rule)
            words.add(rule.words)
    return policy(rules)


def random_states(k, seed):
    rng = np.random.default_rng(seed)
    pressure = rng.choice(np.array([0.0, 1.0, 1.5, 2.0, 3.0, np.nan, np.inf]), k)
    ward = rng.choice(np.array([*WARDS, "unheard of", "icu", "", None], object), k)
    fever = rng.choice(
        np.array(["true", "false", "True", "FALSE", "1", "0", None, "perhaps"], object), k
    )
    return {"pressure": pressure, "ward": ward, "fever": fever}


def answers(ruled, states):
    return [None if a is dprl.DEFER else a for a in ruled.act(states)]


def from_sql(ruled, states):
    with duckdb.connect() as db:
        db.register("stays", {**states, "place": np.arange(len(states["ward"]))})
        rows = db.execute(f"SELECT suggested FROM ({ruled.to_sql()}) ORDER BY place").fetchall()
    return [row[0] for row in rows]


def from_python(ruled, states):
    names = {}
    exec(compile(ruled.to_python(), "suggest.py", "exec"), names)
    rows = zip(*(states[name].tolist() for name in NAMES), strict=True)
    return [names["suggest"](dict(zip(NAMES, row, strict=True))) for row in rows]


def from_json(ruled, states):
    given = json.loads(ruled.to_json_rules())
    result = np.full(len(states["ward"]), None, object)
    decided = np.zeros(len(result), bool)
    for rule in given["rules"]:
        holds = ~decided
        for c in rule["if"]:
            column = states[c["feature"]]
            if c["feature"] == "fever":
                words = {"1": "true", "0": "false"}
                small = [x if x is None else words.get(x, x.lower()) for x in column.tolist()]
                column = np.array(small, object)
            if c["feature"] in given["levels"]:
                labels = given["levels"][c["feature"]]
                good = {"known": labels, "in": c.get("labels"), "missing": [None, ""],
                        "not in": [x for x in labels if x not in c.get("labels", ())]}[c["kind"]]  # fmt: skip
                holds &= np.isin(column.astype(object), np.array(good, object)) if None not in good else np.array(
                    [x in good for x in column.tolist()], bool)  # fmt: skip
            else:
                finite = np.isfinite(column)
                holds &= {"missing": np.isnan(column), "known": finite, "at most": finite & (column <= c.get("value", 0)),
                          "above": finite & (column > c.get("value", 0))}[c["kind"]]  # fmt: skip
        result[holds] = rule["then"]
        decided |= holds
    return result.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_they_answer_as_the_policy_does(seed):
    ruled, states = random_policy(seed), random_states(20_000, seed)
    right = answers(ruled, states)
    assert len(set(right)) == 3
    assert from_sql(ruled, states) == right
    assert from_python(ruled, states) == right
    assert from_json(ruled, states) == right


@pytest.mark.parametrize("n", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_million_states(n):
    ruled, states = random_policy(7, 20), random_states(n, 7)
    right = answers(ruled, states)
    assert from_sql(ruled, states) == right
    assert from_python(ruled, states) == right


def test_the_loop_and_the_conditions_agree():
    ruled = random_policy(3)
    x, _ = ruled.space.read(random_states(2_000, 3))
    first = FlatRules.of(ruled.rules, NAMES, LEVELS).first(x)
    holds = np.array([rule.matches(x, NAMES, LEVELS) for rule in ruled.rules])
    np.testing.assert_array_equal(first, np.where(holds.any(axis=0), holds.argmax(axis=0), -1))


def test_it_is_drawn():
    pytest.importorskip("matplotlib")
    boxes = [text.get_text() for text in policy([on(ICU)]).draw().texts]
    assert any("ward is HDU or ICU?" in " ".join(text.split()) for text in boxes)


def test_truth_values_are_written_in_many_ways():
    ruled = policy([on(Condition("fever", "in", labels=("true",)))])
    yes = [True, "true", "True", "TRUE", "1", 1, 1.0, np.bool_(True), np.int64(1)]
    assert ruled.act([[60, "ICU", x] for x in yes]) == ["fluids"] * len(yes)
    no = [False, "False", "0", 0, None, "perhaps"]
    assert ruled.act([[60, "ICU", x] for x in no]) == [dprl.DEFER] * len(no)
    for words in (["True", "False"], ["1", "0"], [1, 0], [True, False]):
        seen = dprl.from_arrays(
            episode=range(2), state=[[60.0, "ICU", x] for x in words], action=["wait", "fluids"], reward=[0, 1],
            feature_names=NAMES, categorical=["fever"],
        )  # fmt: skip
        assert ruled.act(ruled.space.of_log(seen)[0]) == ["fluids", dprl.DEFER]


def test_a_file_is_answered_row_by_row(tmp_path):
    from dprl.apps.cli.policies import answer

    ruled = policy(
        [on(ICU, Condition("fever", "in", labels=("true",))), on(Condition("pressure", "missing"))]
    )
    (tmp_path / "stays.csv").write_text(
        "pressure,ward,fever\n60,ICU,True\n60,ICU,\n,gen,False\n60,gen,True\n"
    )
    answered = answer(ruled, str(tmp_path / "stays.csv"), None, "suggested")
    assert answered.answers == ["fluids", dprl.DEFER, "fluids", dprl.DEFER]
    assert answered.states[2] == {"pressure": None, "ward": "gen", "fever": "False"}
