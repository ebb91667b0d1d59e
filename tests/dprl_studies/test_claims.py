"""Claims in worlds that punish: what is counted, what is flagged, and a sample that guards them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats
from test_experiments import TOY

import dprl
from dprl.envs import hard
from dprl_studies.harness import reproduce
from dprl_studies.paper import claims


def rows_of(lines):
    base = {"groups": 9, "claimed": np.nan, "truth": np.nan, "kept": np.nan, "width": np.nan,
            "ess": np.nan, "best": np.nan, "words": "", "apart": "", "made": True}  # fmt: skip
    full = [{**base, "dataset": i, **line} for i, line in enumerate(lines)]
    return {name: np.array([line[name] for line in full]) for name in full[0]}


def test_cells_above_their_level_are_flagged_and_the_others_are_not():
    one = {"claim": "rules: every rule", "world": "wet chicken, 300"}
    fine = [{**one, "false": i < 8} for i in range(100)]  # .05 + 2 se = .0936
    table = claims.summary(rows_of(fine))
    assert table["flag"] == [""]
    assert claims.summary(rows_of(fine + [{**one, "false": True}] * 4))["flag"] == ["FALSE"]
    broken = [{**line, "apart": "hidden cause", "words": "It assumes."} for line in fine]
    assert claims.summary(rows_of(broken))["flag"] == ["apart"]
    facts = {"seed": 7, "dprl": "1", "code": "abc"}
    text = claims.page(rows_of(broken), facts)
    assert "It says there: It assumes." in text
    assert "| 8/100 | 0.152 |" in text
    assert "--seed 7" in text
    text = claims.page(rows_of(fine + [{**one, "false": True}] * 4), facts)
    assert "| **12/104** | 0.193 |" in text
    assert "rules: every rule, wet chicken, 300: 12 of 104 (0.061 to 0.193)." in text


def test_worlds_that_differ_in_strength_share_a_row_of_the_page():
    lines = [
        {"claim": claim, "world": f"null xor {how}, 300 x 4", "false": i < k, "made": i < 60}
        for claim, k in (("evaluate: headline", 2), ("sensitivity: bounds", 1))
        for how in ("weak", "strong")
        for i in range(100)
    ]
    text = claims.page(rows_of(lines), {"seed": 7, "dprl": "1", "code": "abc"})
    assert "| null xor, 300 x 4 | 4/120 | 2/120 | 0.083 | 0.60 |" in text
    assert "Above" not in text


def test_refused_intervals_do_not_count_as_right():
    one = {"claim": "evaluate: DR", "world": "wet chicken, 300"}
    rows = [{**one, "false": i < 5, "made": i < 20, "width": 1.0} for i in range(100)]
    (line,) = claims.summary(rows_of(rows))
    assert (line["share"], line["made"], line["flag"]) == (0.25, 20, "FALSE")
    one = {"claim": "rules: every rule", "world": "wet chicken, 300"}
    (line,) = claims.summary(rows_of([{**r, **one} for r in rows]))
    assert (line["share"], line["flag"]) == (0.05, "")


def test_power_is_the_share_of_the_best_gain():
    one = {"claim": "confident: bound", "world": "wet chicken, 300", "false": False, "best": 2.0}
    rows = [
        {**one, "claimed": 1.0},
        {**one, "claimed": -3.0},
        {**one, "claimed": 9.0, "made": False},
    ]
    (line,) = claims.summary(rows_of(rows))
    assert line["power"] == pytest.approx(1 / 3 / 2)


@pytest.mark.parametrize(("k", "n"), [(0, 20), (3, 20), (20, 20), (57, 400)])
def test_clopper_pearson_inverts_the_binomial(k, n):
    low, high = claims.clopper_pearson(k, n, 0.9)
    if k:
        assert stats.binom.sf(k - 1, n, low) == pytest.approx(0.05)
    if k < n:
        assert stats.binom.cdf(k, n, high) == pytest.approx(0.05)
    assert 0 <= low <= k / n <= high <= 1


def test_tasks_are_chosen_by_name_and_first_blocks_come_first():
    tasks = claims.settings(False, 5, logs=25, worlds=["wet chicken"], claims=["gate", "confident"])
    assert [(t["first"], t["last"]) for t in tasks] == [(0, 10)] * 4 + [(10, 20)] * 4 + [
        (20, 25)
    ] * 4
    assert {t["seed"] for t in tasks} == {5}
    assert not claims.settings(False, 0, worlds=["wet chicken"], claims=["rules"])
    with pytest.raises(dprl.ParameterError, match="no world"):
        claims.settings(False, 0, worlds=["wett"])
    with pytest.raises(dprl.ParameterError, match="claims"):
        claims.settings(False, 0, claims=["gates"])


def test_claims_know_what_they_assume():
    hidden, rare, memory = hard.hidden_labels(), hard.catastrophe(), hard.doses()
    assert claims.apart("confident: bound", hidden) == claims.HIDDEN
    assert claims.apart("gate proved, all visits: gain", rare) == ""  # the range is known
    assert claims.apart("gate large-sample: gain", rare) == claims.UNSEEN
    assert claims.apart("confident: bound", memory) == ""  # it asks first, and promises nothing
    assert claims.apart("check: state refuted", memory) == claims.MARKOV
    assert claims.apart("gate proved, all visits: gain", memory) == ""  # the gate asks for it
    assert claims.apart("sensitivity: bounds", hidden) == ""
    assert claims.apart("sensitivity: bounds", hard.drift_labels()) == claims.HIDDEN
    assert claims.apart("confident: bound", hard.catastrophe(one_in=67, loss=10.0)) == ""


def test_the_monitor_is_asked_before_and_after_the_benefit_goes():
    name = "habits clear, 2000"
    setting = {"world": name, "family": "monitor", "first": 0, "last": 1, "seed": 0}
    rows = {row["claim"]: row for row in claims.run(setting)}
    assert set(rows) == {
        f"monitor: {w}" for w in ("nothing changed", "benefit gone", "everybody follows")
    }
    assert all(row["made"] for row in rows.values())
    assert not rows["monitor: nothing changed"]["false"]


@pytest.mark.parametrize("family", ["gate", "confident", "intervals"])
def test_a_family_tells_rows_that_json_could_carry(family):
    setting = {"world": "habits, 1500", "family": family, "first": 0, "last": 1, "seed": 0}
    rows = claims.run(setting)
    assert rows
    assert not any(row["false"] for row in rows)
    assert json.loads(json.dumps(rows)) is not None
    subjects = {"confident": {"confident", "check"}, "intervals": {"evaluate", "sensitivity"}}
    begin = {row["claim"].split(":")[0].split()[0] for row in rows}
    assert begin == subjects.get(family, {family})
    assert len({row["claim"] for row in rows}) == len(rows)


def told(family, world, log):
    return {one.claim: one for one in claims.FAMILIES[family].told(world, log, 0)}


@pytest.mark.slow
def test_what_is_true_of_one_world_is_false_of_its_opposite():
    """The same log, and the truth of a world in which everything is the other way round."""
    world, opposite = (hard.habits(6, size=size) for size in (0.4, -0.4))
    log = world.sample(900, seed=1)
    for family, names in {
        "gate": ("proved, first visits: suggestions", "proved, all visits: gain",
                 "proved, in-sample: lower ends", "large-sample: suggestions"),
        "confident": ("confident: not below practice", "confident: bound"),
        "intervals": ("evaluate: headline", "sensitivity: bounds"),
    }.items():  # fmt: skip
        right, wrong = (told(family, one, log) for one in (world, opposite))
        for name in names:
            claim = f"gate {name}" if family == "gate" else name
            assert right[claim].made, claim
            assert not right[claim].false, claim
            assert wrong[claim].false, claim


@pytest.mark.slow
def test_rules_of_one_world_are_false_of_its_opposite():
    log = hard.effect("linear", size=1.5).sample(800, seed=1)
    right, wrong = (told("rules", hard.effect("linear", size=size), log) for size in (1.5, -1.5))
    assert all(one.made for one in right.values())
    assert not any(right[f"rules: {name}"].false for name in ("every rule", "not below practice"))
    assert all(one.false for one in wrong.values())
    assert right["rules: every rule"].kept > 0.3


@pytest.mark.slow
def test_a_run_stops_after_some_minutes_and_continues(tmp_path):
    some = reproduce(TOY, tmp_path / "some", workers=1, minutes=1e-9)
    assert some.rows == 4  # one task
    facts = json.loads((tmp_path / "some" / "settings.json").read_text())
    assert len(facts["tasks"]) == 1
    again = reproduce(TOY, tmp_path / "some", workers=1)
    whole = reproduce(TOY, tmp_path / "whole", workers=1)
    read = [(tmp_path / name / "rows.parquet").read_bytes() for name in ("some", "whole")]
    assert read[0] == read[1]
    assert again.rows == whole.rows == 24
    with pytest.raises(dprl.ParameterError, match="minutes"):
        reproduce(TOY, tmp_path / "no", minutes=0)


SAMPLE = {
    "rules": (("null product medium, 300 x 4", 4), ("null categories strong, 200 x 5", 4)),
    "confident": (
        ("lucky arm, 1500", 8), ("null states 100, 3000", 8), ("patients, 60 x 20", 8),
        ("near ties, 3000", 8), ("wet chicken, 300", 4), ("delayed harm late, 1000", 4),
        ("rare harm labels, 2000", 20), ("rare harm worth it, 2000", 8),
    ),
    "gate": (
        ("delayed harm late, 1000", 3), ("null labels strong, 500 x 4", 3),
        ("lucky arm, 1500", 5), ("patients, 60 x 20", 5), ("rare harm worth it, 2000", 8),
    ),
    "intervals": (
        ("null labels medium, 500 x 4", 10), ("patients effect, 60 x 20", 10),
        ("wet chicken, 300", 10),
    ),
}  # fmt: skip
"""Family → worlds and logs that are tried."""


@pytest.mark.slow
@pytest.mark.parametrize("family", SAMPLE)
def test_claims_hold_in_a_sample_of_worlds(family):
    """More false logs than chance gives once in ten thousand: then a claim is broken."""
    counts = {}
    for world, logs in SAMPLE[family]:
        setting = {"world": world, "family": family, "first": 0, "last": logs, "seed": 9}
        for row in claims.run(setting):
            if not row["apart"] and not row["claim"].startswith(("evaluate: W", "evaluate: P")):
                for where in (world, "all of them"):
                    counts.setdefault((row["claim"], where), []).append(row["false"])
    many = {
        cell: f"{sum(false)} of {len(false)}"
        for cell, false in counts.items()
        if sum(false) > stats.binom.ppf(1 - 1e-4, len(false), claims.LEVEL)
    }
    assert counts
    assert not many
