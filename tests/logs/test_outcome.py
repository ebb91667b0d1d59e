"""What the outcome of a log is: its name, its unit, and which way is better."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dprl
from dprl.logs.outcome import Outcome, sounds_like_harm

ROLES = {"episode": "who", "time": "day", "state": "s", "action": "a"}
STAY = {"outcome": "length of stay", "unit": "days", "better": "lower"}


def frame(reward: str = "stay", values: tuple[float, ...] = (3.0, 5.0, 2.0, 7.0)):
    import pyarrow as pa

    return pa.table({
        "who": [1, 1, 2, 3], "day": [0, 1, 0, 0], "s": ["ill", "well", "ill", "ill"],
        "a": ["drug", "wait", "wait", "drug"], reward: list(values),
    })  # fmt: skip


def test_the_sign_is_turned_once_at_the_door(tmp_path) -> None:
    from pyarrow import parquet

    log = dprl.from_frame(frame(), reward="stay", **ROLES, **STAY)
    assert log.reward.tolist() == [-3.0, -5.0, -2.0, -7.0]
    assert log.outcome == Outcome("length of stay", "days", "lower")
    parquet.write_table(frame(), tmp_path / "log.parquet")
    read = dprl.read(tmp_path / "log.parquet", reward="stay", **ROLES, **STAY)
    with dprl.scan(tmp_path / "log.parquet", reward="stay", **ROLES, **STAY) as parts:
        assert read.digest() == log.digest() == parts.digest()
        assert parts.outcome == read.outcome == log.outcome
    dprl.write(log, tmp_path / "back.parquet")
    assert parquet.read_table(tmp_path / "back.parquet")["stay"].to_pylist() == [3.0, 5.0, 2.0, 7.0]


def test_undeclared_logs_and_policies_are_as_they_were() -> None:
    plain = dprl.from_frame(frame("score"), reward="score", **ROLES)
    said = dprl.from_frame(frame("score"), reward="score", better="higher", **ROLES)
    assert plain.digest() == said.digest()
    assert plain.outcome.declared == {}
    policy = dprl.DPRLDiscrete(n_min=1, gamma=1.0).fit(plain)
    assert {"outcome", "unit", "better"}.isdisjoint(policy.provenance["columns"])


def test_a_policy_remembers_and_refuses_the_other_direction(tmp_path) -> None:
    world = dprl.envs.care_pathway()
    table = {"n": 300}

    def log(seed: int, better: str) -> dprl.Log:
        made = world.sample(table["n"], seed=seed)
        which = np.repeat(np.arange(made.n_episodes), made.lengths) + 1000 * seed
        return dprl.from_arrays(
            episode=which, state=np.array(made.states)[made.codes()],
            action=np.array(made.actions)[made.action], reward=made.reward,
            better=better, unit="points",
        )  # fmt: skip

    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log(0, "lower"))
    policy.save(tmp_path / "p.dprl")
    again = dprl.load(tmp_path / "p.dprl")
    assert Outcome.learned(again) == Outcome("", "points", "lower")
    for judge in (dprl.evaluate, dprl.sensitivity):
        with pytest.raises(dprl.PolicyError, match="where a lower outcome is better"):
            judge(again, log(1, "higher"), draws=10)
    with pytest.raises(dprl.PolicyError, match="better"):
        dprl.gate(again, log(1, "higher"), value_range=(0, 1))
    with pytest.raises(dprl.PolicyError) as error:
        dprl.evaluate(again, log(1, ""), draws=10)
    assert len(str(error.value).splitlines()) == 3
    dprl.evaluate(again, log(1, "lower"), draws=10)


def test_ranges_are_given_in_the_direction_of_the_table() -> None:
    log = dprl.from_frame(frame(), reward="stay", reward_range=(0, 10), **ROLES, **STAY)
    assert log.n_steps == 4
    with pytest.raises(dprl.LogError, match=r"-1\.\.4"):
        dprl.from_frame(frame(), reward="stay", reward_range=(-1, 4), **ROLES, **STAY)
    learner = dprl.DPRLDiscrete(n_min=1, gamma=1.0)
    with pytest.raises(dprl.LogError, match=r"outside value_range \(0, 6\)") as error:
        dprl.gate(learner, log, value_range=(0, 6))
    assert "return 8" in str(error.value) or "return 7" in str(error.value)


HARMS = """
death died Died28d in_hospital_mortality mort30 readmission Readmitted30 cost total_cost costTotal
LOS los_icu length_of_stay LengthOfStay complications adverse_event bleeding major_bleed infection
relapse pancreatitis hepatitis_b Tod verstorben Krankenhaussterblichkeit Kosten Gesamt_Kosten
Verweildauer wiederaufnahme30 Komplikationen
"""
FINE = """
score reward outcome well cd4_20 survival alive28 days_to_death relapse_free costs_saved no_death
discharge gain shortfall r home click net benefit cost_benefit bed Punkte glossary loss_of_consciousness_score
deadline costa modelling satisfaction return utility result y Wohlbefinden lebensqualitaet kostbar
mortgage_paid closeness losange death_free_survival infection_control
"""


@pytest.mark.parametrize("name", HARMS.split())
def test_a_harm_is_refused_until_somebody_says_which_way_is_better(name: str) -> None:
    assert sounds_like_harm(name)
    with pytest.raises(dprl.ParameterError, match="sounds like a harm") as error:
        dprl.from_frame(frame(name), reward=name, **ROLES)
    assert len(str(error.value).splitlines()) == 3
    binary = (0.0, 1.0, 0.0, 1.0)
    for better, sign in (("lower", -1), ("higher", 1)):
        log = dprl.from_frame(frame(name, binary), reward=name, better=better, **ROLES)
        assert (log.reward == sign * np.array(binary)).all()


@pytest.mark.parametrize("name", FINE.split())
def test_ordinary_names_are_not_refused(name: str) -> None:
    assert not sounds_like_harm(name)


def test_names_in_the_project_are_not_refused() -> None:
    import re

    root = Path(dprl.__file__).parents[2]
    texts = [*root.glob("docs/*.md"), *root.glob("examples/*.py"), *root.glob("src/**/*.py")]
    names = {
        name for path in texts
        for name in re.findall(r'reward\s*=\s*"(\w+)"|--reward (\w+)', path.read_text())
        for name in name if name
    }  # fmt: skip
    assert len(names) > 5
    declared = {"stay", "deaths"}
    assert not [name for name in names - declared if sounds_like_harm(name)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"better": "less"}, "'higher' or 'lower'"),
        ({"unit": 3}, "must be text"),
        ({"outcome": "x" * 300}, "text"),
    ],
)
def test_what_is_no_outcome_is_refused(given, words) -> None:
    with pytest.raises(dprl.ParameterError, match=words):
        dprl.from_frame(frame(), reward="stay", **ROLES, **given)


def test_the_first_line_of_a_check_says_which_way_is_better() -> None:
    first = str(dprl.check(frame("score"), reward="score", **ROLES)).splitlines()[0]
    assert first == "Outcome: score; larger is assumed to be better (say better='lower' if not)."
    first = str(dprl.check(frame(), reward="stay", **ROLES, **STAY)).splitlines()[0]
    assert first == "Outcome: length of stay (days); lower is better."
    assert "from 2 to 7" in str(dprl.check(frame(), reward="stay", **ROLES, **STAY))


def test_sites_refuse_what_they_cannot_turn() -> None:
    log = dprl.from_frame(frame(), reward="stay", **ROLES, **STAY)
    schema = dprl.SiteSchema(states=["ill", "well"], actions=["drug", "wait"], gamma=1.0)
    with pytest.raises(dprl.ParameterError, match="less is"):
        dprl.site_evidence(log, schema)


def test_a_unit_that_the_name_holds_is_told_once() -> None:
    cost = Outcome("Kosten (EUR)", "EUR", "lower")
    assert (cost.name, cost.words()) == ("Kosten", "Outcome: Kosten (EUR); lower is better.")
    assert cost.apart(-3.0, -5.0, -1.0)[1] == "Kosten lower by 3.0 EUR (1.0 to 5.0)"
    assert Outcome(unit="EUR").words("Kosten [EUR]").startswith("Outcome: Kosten (EUR);")
    assert Outcome("Kosten (TEUR)", "EUR").name == "Kosten (TEUR)"
    assert Outcome("(EUR)", "EUR").name == "(EUR)"
    assert Outcome("Kosten (EUR)").name == "Kosten (EUR)"  # nobody said a unit
