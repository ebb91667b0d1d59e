"""From MIMIC tables to decisions: every rule on hand-made tables, with numbers worked out by hand."""

from __future__ import annotations

import json
from datetime import timedelta

import duckdb
import numpy as np
import pytest
from ward import (
    BLOOD,
    CREATININE,
    CUFF,
    DBP,
    DOPA,
    EPI,
    EYE,
    FIO2,
    FOLEY,
    IRRIGANT,
    LACTATE,
    MAP,
    MOTOR,
    NOR,
    PHENYL,
    SALINE,
    SBP,
    START,
    VASOPRESSIN,
    VERBAL,
    Ward,
    slow,
)  # fmt: skip

import dprl
from dprl.errors import LogError, ParameterError
from dprl_studies import icu

SECOND = 1 / 3600
MICRO = 1 / 3.6e9


def rows(ward, folder, stay=1, **options):
    """The decisions of a stay, a dict an hour."""
    return list(table(ward.write(folder / "tables", **options), folder)[stay].values())


def table(tables, folder, name="stays.parquet", **options):
    """stay → hour → row."""
    icu.build(tables, folder / name, **options)
    with duckdb.connect() as con:
        got = con.execute(f"FROM '{folder / name}' ORDER BY stay_id, hour")
        names = [d[0] for d in got.description]
        found = {}
        for row in got.fetchall():
            one = dict(zip(names, row, strict=True))
            found.setdefault(one["stay_id"], {})[one["hour"]] = one
    return found


# -- cases in one ward -------------------------------------------------------------------------

LOW = [  # charted besides six low pressures; whether the stay is in the cohort
    ([], False),
    ([(1, 64.9)], True),
    ([(1, 65)], False),  # below 65, not at it
    ([(0, 60)], True),  # the beginning of the stay belongs to it
    ([(-MICRO, 60)], False),
    ([(72 - SECOND, 60)], True),
    ([(72, 60)], False),  # 72 h sharp is the 73rd hour
    ([(1, 9.9)], False),  # not a pressure
    ([(1, 10)], True),
]
LENGTHS = [  # hours of the stay, decisions, how it ended
    (2, 1, "terminal"), (2.99, 1, "terminal"), (10, 9, "terminal"), (10 - MICRO, 8, "terminal"),
    (71.99, 70, "terminal"), (72, 71, "cut"), (300, 71, "cut"),
]  # fmt: skip
DRUGS = [  # item, rate, unit, weight, dose
    (NOR, 0.1, "mcg/kg/min", 80, 6),
    (NOR, 0.1, "", 80, 6),  # no unit: the usual one
    (NOR, 8, "mcg/min", 80, 6),
    (NOR, 0.0001, "mg/kg/min", 80, 6),
    (NOR, 8, "mcg/min", "", 6),  # no weight: 80 kg
    (EPI, 0.1, "mcg/kg/min", 80, 6),
    (PHENYL, 2, "mcg/kg/min", 80, 54),
    (PHENYL, 160, "mcg/min", 80, 54),
    (DOPA, 5, "mcg/kg/min", 80, 3),
    (VASOPRESSIN, 2.4, "units/hour", 80, 12),
    (VASOPRESSIN, 0.04, "units/min", 80, 12),
    (VASOPRESSIN, 2.4, "", 80, 12),
    (NOR, 7.56, "mcg/kg/min", 80, 180),  # an outlier counts as 3
]
BOLUSES = [  # fluids, mL of the hour, level
    ([(2, 30, 199.9)], 0, 0),
    ([(2, 30, 199.96)], 200, 1),  # rounded to a tenth
    ([(2, 30, 200)], 200, 1),
    ([(2, 60, 500)], 500, 1),
    ([(2, 61, 500)], 0, 0),  # not within an hour
    ([(2, 30, 500.00002)], 500, 1),
    ([(2, 30, 500.1)], 500.1, 2),
    ([(2, 30, 500), (2.9, 50, 500)], 1000, 2),  # whole in the hour it begins
    ([(2, 30, 1000), (2.5, 20, 250, BLOOD)], 1250, 3),
    ([(2, 30, 500, 220949)], 0, 0),  # 5 % dextrose carries drugs
    ([(2, 30, 1, SALINE, "L")], 1000, 2),
    ([(2, 30, 500, SALINE, "")], 500, 1),
]
LEVELS = [(0.001, 1), (0.135, 1), (0.1351, 2), (21.58 / 60, 2), (0.36, 3)]  # rate, level
REWARDS = [  # pressure, urine, reward
    (30, None, 0), (40, None, 0), (47.5, None, 0.425), (55, None, 0.85), (57.5, None, 0.9),
    (60, None, 0.95), (62.5, None, 0.975), (65, None, 1), (90, None, 1),
    (55, 30, 1), (54.9, 30, 1 - (0.15 + 0.1 / 15 * 0.85)), (55, 29.9, 0.85), (60, 0, 0.95),
]  # fmt: skip


@pytest.fixture(scope="module")
def rows_of(tmp_path_factory):
    """One ward with a patient for each case above, built once; (topic, case) → its decisions."""
    ward, numbers = Ward(), {}

    def patient(topic, case, **options):
        number = numbers[topic, str(case)] = len(numbers) + 1
        ward.stay(number, **options)
        return number

    for case in LOW:
        stay = patient("low", case, hours=80, low=6)
        for hour, value in case[0]:
            ward.chart(hour, value, stay=stay)
    for case in LENGTHS:
        patient("length", case, hours=case[0])
    for case in DRUGS:
        item, rate, unit, weight, _ = case
        ward.drug(2, 3, rate, item, unit, weight, stay=patient("drug", case))
    for case in BOLUSES:
        stay = patient("bolus", case)
        for fluid in case[0]:
            ward.fluid(*fluid, stay=stay)
    for case in LEVELS:
        ward.drug(2, 3, case[0], stay=patient("level", case))
    for case in REWARDS:
        stay = patient("reward", case)
        ward.chart(4.5, case[0], stay=stay)
        if case[1] is not None:
            ward.urine(4.2, case[1], stay=stay)
    assert len(numbers) == sum(map(len, (LOW, LENGTHS, DRUGS, BOLUSES, LEVELS, REWARDS)))
    folder = tmp_path_factory.mktemp("cases")
    by_stay = table(ward.write(folder / "t"), folder)
    return lambda topic, case: list(by_stay.get(numbers[topic, str(case)], {}).values())


# -- who is in ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", LOW, ids=str)
def test_seven_low_pressures_make_the_cohort(rows_of, case):
    assert bool(rows_of("low", case)) == case[1]


def test_rows_marked_as_errors_do_not_count(tmp_path):
    ward = Ward().stay(1, low=6).stay(2).chart(1, 60, error="1").chart(2, 80, error="0")
    assert 1 not in table(ward.write(tmp_path / "t"), tmp_path)


@pytest.mark.parametrize("case", LENGTHS, ids=str)
def test_a_decision_is_a_whole_hour_with_a_whole_hour_after_it(rows_of, case):
    _, decisions, ended = case
    found = rows_of("length", case)
    assert [r["hour"] for r in found] == list(range(decisions))
    assert {r["ended"] for r in found} == {ended}


def test_a_stay_without_two_whole_hours_is_left_out(tmp_path):
    ward = Ward().stay(1, hours=1.99).stay(2)
    assert set(table(ward.write(tmp_path / "t"), tmp_path)) == {2}


def test_nothing_is_decided_after_death(tmp_path):
    ward = Ward().stay(1, hours=20, dies=6.5).stay(2, hours=20).stay(3, hours=20, dies=25)
    built = icu.build(ward.write(tmp_path / "t"), tmp_path / "s.parquet")
    assert built.flow["decisions"][-2:] == [19 * 3, 5 + 19 + 19]
    assert built.summary["died"] == 1
    found = table(tmp_path / "t", tmp_path)
    assert len(found[1]) == 5
    assert found[1][4]["ended"] == "terminal"


def test_the_flow_counts_what_each_condition_leaves(tmp_path):
    ward = Ward().stay(1, subject=7).stay(2, subject=7, start=START + timedelta(days=9))
    ward.stay(3, low=0).stay(4, low=6).stay(5, hours=1.5)
    built = icu.build(ward.write(tmp_path / "t"), tmp_path / "s.parquet")
    assert built.flow["stays"] == [5, 5, 4, 3, 2]
    assert built.flow["patients"] == [4, 4, 3, 2, 1]
    assert built.flow["decisions"] == [None, None, None, 18, 18]
    written = (tmp_path / "s.flow.md").read_text()
    assert "| with 7 or more below 65 mmHg | 3 | 2 | 18 |" in written
    assert "| map | feature | mmHg |" in (tmp_path / "s.dictionary.md").read_text()


# -- what is known -----------------------------------------------------------------------------


def test_a_value_on_the_hour_belongs_to_the_hour_that_begins(tmp_path):
    ward = Ward().stay().chart(3, 81).chart(5 - SECOND, 82)
    found = rows(ward, tmp_path)
    assert [r["map"] for r in found] == [None, 60, 60, 60, 81, 82, 82, 82, 82]
    # ... and the outcome of hour h is the pressure of hour h+1: charted in [h+1, h+2).
    assert [r["next_map"] for r in found] == [60, 60, 81, 82, 82, 82, 82, 82, 82]


def test_the_look_back_is_six_hours(tmp_path):
    ward = Ward().stay(1).stay(2, start=START + timedelta(days=50))
    ward.chart(-6, 90).chart(-6 - MICRO, 70, stay=2)
    ward.lab(-6, 2.5).lab(-6 - SECOND, 3.5, stay=2)
    found = table(ward.write(tmp_path / "t"), tmp_path)
    assert (found[1][0]["map"], found[1][0]["lactate"], found[1][0]["lactate_ever"]) == (90, 2.5, 1)
    assert (found[2][0]["map"], found[2][0]["lactate"], found[2][0]["lactate_ever"]) == (
        None,
        None,
        0,
    )


def test_the_line_wins_over_the_cuff_at_the_same_moment_only(tmp_path):
    ward = Ward().stay().chart(1.5, 70).chart(1.5, 90, CUFF).chart(2.2, 71).chart(2.3, 91, CUFF)
    ward.chart(3.5, 77).chart(3.5, 66, 225312).chart(3.5, 88)
    found = rows(ward, tmp_path)
    assert [found[h]["map"] for h in (2, 3, 4)] == [70, 91, 66]


def test_of_equals_at_one_moment_the_lowest_counts_in_any_order(tmp_path):
    ward = Ward().stay()
    for hour in range(8):
        for k in range(4):
            ward.chart(hour + 0.5, 70 + (hour + k) % 4).chart(hour + 0.5, 2 + (hour + k) % 4, MOTOR)
        ward.chart(hour + 0.5, 4, EYE).chart(hour + 0.5, 5, VERBAL)
    found = rows(ward, tmp_path)
    assert [r["map"] for r in found[1:]] == [70] * 8
    assert [r["gcs"] for r in found[1:]] == [11] * 8


def test_values_outside_their_range_were_not_charted(tmp_path):
    ward = Ward().stay().chart(1, 201).chart(1, 301, SBP).chart(1, 4, DBP).chart(1, 19, FIO2)
    ward.lab(1, 0).lab(1, 151, CREATININE).chart(1.5, 250, SBP).chart(2, 0.5, FIO2)
    ward.chart(3, 60, FIO2)
    found = rows(ward, tmp_path)
    assert found[3]["map"] == 60
    assert (found[3]["sbp"], found[3]["dbp"]) == (250, None)
    assert [found[h]["fio2"] for h in (2, 3, 4)] == [None, 50, 60]
    assert [found[h]["fio2_ever"] for h in (2, 3, 4)] == [0, 1, 1]
    assert (found[5]["lactate"], found[5]["creatinine"]) == (None, None)


def test_the_chart_wins_over_the_blood_gas_of_the_same_hour(tmp_path):
    ward = Ward().stay().chart(1.1, 40, FIO2).lab(1.9, 80, 50816).lab(3, 70, 50816)
    found = rows(ward, tmp_path)
    assert [found[h]["fio2"] for h in (1, 2, 3, 4)] == [None, 40, 40, 70]


def test_gcs_needs_its_three_parts(tmp_path):
    ward = Ward().stay().chart(1, 4, EYE).chart(1, 6, MOTOR).chart(2.5, 5, VERBAL).chart(4, 2, EYE)
    found = rows(ward, tmp_path)
    assert [r["gcs"] for r in found] == [None, None, None, 15, 15, 13, 13, 13, 13]
    assert [r["gcs_since"] for r in found] == [0, 0, 1, 1, 0, 1, 0, 0, 0]


def test_urine_is_the_sum_of_its_hour(tmp_path):
    ward = Ward().stay().urine(1.1, 40).urine(1.9, 60.5).urine(2, 7).urine(5, 100)
    ward.urine(5.5, 130, IRRIGANT).urine(7, 500, 226588)  # a chest tube is no urine
    found = rows(ward, tmp_path)
    assert [r["urine"] for r in found] == [None, None, 100.5, 7, 7, 7, 0, 0, 0]
    assert [r["urine_since"] for r in found] == [0, 0, 1, 1, 0, 0, 1, 0, 0]
    assert [r["next_urine"] for r in found] == [100.5, 7, None, None, 0, None, None, None, None]


def test_a_lab_belongs_to_the_stay_it_falls_into(tmp_path):
    ward = Ward().stay(1, subject=7).stay(2, subject=7, start=START + timedelta(days=3))
    ward.lab(2, 4.4, stay=1)
    found = table(ward.write(tmp_path / "t"), tmp_path)
    assert found[1][3]["lactate"] == 4.4
    assert found[2][3]["lactate"] is None
    assert {r["subject_id"] for s in found.values() for r in s.values()} == {7}


# -- what was given ----------------------------------------------------------------------------


def doses(found):
    return [round(r["vasopressor_dose"], 6) for r in found]


def test_doses_are_rate_times_overlap(tmp_path):
    ward = Ward().stay().drug(1.5, 3.25, 0.1).drug(3.25, 4, 0.2)  # the rate was changed at 3:15
    assert doses(rows(ward, tmp_path))[:6] == [0, 3, 6, 0.1 * 15 + 0.2 * 45, 0, 0]


def test_overlapping_infusions_add(tmp_path):
    ward = Ward().stay().drug(1, 2, 0.1).drug(1.5, 2, 0.1).drug(1, 1.25, 0.02, EPI)
    assert doses(rows(ward, tmp_path))[1] == 6 + 3 + 0.3


@pytest.mark.parametrize("case", DRUGS, ids=str)
def test_drugs_and_units(rows_of, case):
    assert doses(rows_of("drug", case))[1:4] == [0, case[-1], 0]


def test_an_unknown_unit_is_left_out_and_said(tmp_path):
    ward = Ward().stay().drug(2, 3, 1, NOR, "drops")
    built = icu.build(ward.write(tmp_path / "t"), tmp_path / "s.parquet")
    assert "1 rows of norepinephrine have the unit 'drops'" in built.notes[0]
    assert doses(rows(ward, tmp_path))[2] == 0


def test_rewritten_rows_do_not_count(tmp_path):
    ward = Ward().stay().drug(2, 3, 0.1, status="Rewritten").drug(3, 4, 0.1, status="Stopped")
    ward.fluid(4, 30, 500, status="Rewritten")
    found = rows(ward, tmp_path)
    assert doses(found)[2:4] == [0, 6]
    assert found[4]["bolus_ml"] == 0


def test_an_infusion_is_clipped_at_the_edges_of_the_stay(tmp_path):
    ward = Ward().stay(hours=80).drug(-5, 0.5, 0.1).drug(70.5, 90, 0.1)
    found = rows(ward, tmp_path)
    assert doses(found)[:2] == [3, 0]
    assert doses(found)[69:] == [0, 3]
    assert found[1]["total_vasopressor"] == pytest.approx(3)


def test_an_infusion_without_length_or_running_backwards_gives_nothing(tmp_path):
    ward = Ward().stay().drug(2, 2, 0.1).drug(4, 3, 0.1)
    assert sum(doses(rows(ward, tmp_path))) == 0


@pytest.mark.parametrize("case", BOLUSES, ids=str)
def test_boluses(rows_of, case):
    _, ml, level = case
    found = rows_of("bolus", case)
    assert [found[h]["bolus_ml"] for h in (1, 2, 3)] == [0, ml, 0]
    assert (found[2]["bolus"], found[3]["last_bolus"], found[3]["total_bolus"]) == (
        level,
        level,
        ml,
    )


def test_a_bolus_belongs_to_the_hour_it_begins_in(tmp_path):
    ward = Ward().stay().fluid(2 - SECOND, 30, 300).fluid(3, 30, 400).fluid(-SECOND, 30, 600)
    assert [r["bolus_ml"] for r in rows(ward, tmp_path)][:5] == [0, 300, 0, 400, 0]


def test_totals_look_at_all_and_at_eight_hours(tmp_path):
    ward = Ward().stay(hours=15).drug(0, 1, 0.1).drug(3, 4, 0.2).fluid(1, 10, 300).fluid(9, 10, 700)
    found = rows(ward, tmp_path)
    assert [round(r["total_vasopressor"], 6) for r in found] == [0, 6, 6, 6, *[18] * 10]
    eight = [0, 6, 6, 6, 18, 18, 18, 18, 18, 12, 12, 12, 0, 0]
    assert [round(r["total_vasopressor_8h"], 6) for r in found] == eight
    assert [r["total_bolus"] for r in found][8:] == [300, 300, 1000, 1000, 1000, 1000]
    assert [r["total_bolus_8h"] for r in found][8:] == [300, 300, 700, 700, 700, 700]


@pytest.mark.parametrize("case", LEVELS, ids=str)
def test_vasopressor_levels(rows_of, case):
    level, found = case[1], rows_of("level", case)
    assert [found[h]["vasopressor"] for h in (1, 2, 3)] == [0, level, 0]
    assert [found[h]["last_vasopressor"] for h in (2, 3, 4)] == [0, level, 0]


# -- what came of it ---------------------------------------------------------------------------


@pytest.mark.parametrize("case", REWARDS, ids=str)
def test_rewards(rows_of, case):
    found = rows_of("reward", case)
    assert found[3]["reward"] == pytest.approx(case[2], abs=1e-12)  # hour 4 is what follows hour 3
    assert found[2]["reward"] == pytest.approx(0.95)


def test_a_reward_without_a_pressure_waits_for_the_training_median(tmp_path):
    ward = Ward().stay(low=0).stay(2)
    for i in range(7):
        ward.chart(4 + i / 100, 60)
    ward.write(tmp_path / "t")
    found = table(tmp_path / "t", tmp_path)
    assert [found[1][h]["reward"] for h in (0, 2, 3)] == [None, None, pytest.approx(0.95)]
    stays = icu.read_stays(tmp_path / "stays.parquet")
    fitted = icu.Preparation.fit(stays)
    assert fitted.medians["map"] == 60
    assert fitted.log(stays).reward[:3] == pytest.approx([0.95, 0.95, 0.95])


def test_a_cohort_without_a_single_reward_is_built_but_not_prepared(tmp_path):
    ward = Ward().stay(hours=2.9, low=0)
    for i in range(7):
        ward.chart(2.1 + i / 100, 60)
    built = icu.build(ward.write(tmp_path / "t"), tmp_path / "s.parquet")
    assert built.summary["rewards_missing"] == built.summary["decisions"] == 1
    assert "mean reward nan" in str(built)
    with pytest.raises(LogError, match="no mean pressure is known at any of 1 training decisions"):
        icu.Preparation.fit(icu.read_stays(tmp_path / "s.parquet"))


# -- layouts -----------------------------------------------------------------------------------


def busy(seed, stays=3):
    """A ward where everything happens, on the hour and off it."""
    rng = np.random.default_rng(seed)

    def when(low=-6, high=80):
        hour = rng.uniform(low, high)
        return round(hour) if rng.random() < 0.3 else round(hour * 60) / 60

    ward = Ward()
    for stay in range(1, stays + 1):
        long = rng.random() < 0.4
        ward.stay(stay, hours=float(rng.uniform(60, 90) if long else rng.uniform(3, 40)),
                  start=START + timedelta(days=40 * stay, seconds=int(rng.integers(3600))),
                  dies=30.2 if rng.random() < 0.3 else None)  # fmt: skip
        for _ in range(120):
            item = int(rng.choice([MAP, CUFF, 225312, SBP, DBP, FIO2, EYE, VERBAL, MOTOR, 999]))
            high = {FIO2: 1.5, EYE: 5, VERBAL: 6, MOTOR: 7}.get(item, 230)
            value = float(np.round(rng.uniform(0, high), 0 if high < 9 and item != FIO2 else 1))
            ward.chart(when(), value, item, stay)
            ward.lab(when(), float(np.round(rng.uniform(0, 60), 1)),
                     int(rng.choice([LACTATE, CREATININE, 50861, 50878, 50821])), stay)  # fmt: skip
            ward.urine(when(), int(rng.integers(0, 200)), int(rng.choice([FOLEY, IRRIGANT])), stay)
        for _ in range(40):
            begins = when()
            unit = str(rng.choice(["mcg/kg/min", "mcg/min"]))
            rate = float(rng.uniform(0, 1)) * (80 if unit == "mcg/min" else 1)
            item = int(rng.choice([NOR, EPI, PHENYL, DOPA]))
            status = "Rewritten" if rng.random() < 0.1 else ""
            ward.drug(begins, begins + rng.uniform(0, 5), rate, item, unit, 70, stay, status)
            ward.fluid(when(), int(rng.integers(1, 90)), int(rng.integers(100, 900)),
                       int(rng.choice([SALINE, BLOOD, 220949])), stay=stay)  # fmt: skip
    return ward


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_sql_and_the_slow_way_agree(tmp_path, seed):
    ward = busy(seed)
    found = table(ward.write(tmp_path / "t"), tmp_path)
    assert found
    for stay, hours in found.items():
        expected = slow(ward, stay)
        assert len(hours) == len(expected)
        for row in expected:
            got = {name: hours[row["hour"]][name] for name in row}
            assert got == pytest.approx(row, abs=1e-6), (stay, row["hour"])


@pytest.mark.slow
def test_layouts_files_cases_threads_and_order_change_nothing(tmp_path):
    ward = busy(9)
    first = None
    for i, (options, threads) in enumerate([
        ({}, 1), ({"kind": ".csv.gz"}, 2), ({"kind": ".parquet"}, 2), ({"reverse": True}, 4),
        ({"upper": True}, 1), ({"layout": "iii"}, 2),
        ({"layout": "iii", "upper": True, "kind": ".csv.gz", "reverse": True}, 3),
    ]):  # fmt: skip
        found = table(ward.write(tmp_path / str(i), **options), tmp_path, threads=threads)
        first = first or found
        assert found == first


@pytest.mark.slow
def test_the_file_is_the_same_bytes_again(tmp_path):
    ward = busy(3)
    for name, reverse in (("a", False), ("b", True)):
        icu.build(ward.write(tmp_path / name, reverse=reverse), tmp_path / f"{name}.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_carevue_rates_hold_until_charted_again(tmp_path):
    ward = Ward().stay(low=0)
    for i in range(7):
        ward.chart(i / 600, 60, 52)
    ward.cv(1.5, 30120, 0.1, unit="mcgkgmin").cv(2.5, 30120, 0.2, unit="mcgkgmin")
    ward.cv(3.25, 30120, 0.3, unit="mcgkgmin", stopped="Stopped")
    ward.cv(5, 30128, 1, unit="mcgkgmin").cv(5, 30128, 2, unit="mcgkgmin")  # holds for 2 h
    ward.cv(8, 30051, 0.04, unit="Umin").cv(8.5, 30051, 0, unit="Umin")
    ward.cv(4, 30120, amount=0.2, unit="mg")  # an amount says nothing about the rate
    found = rows(ward, tmp_path, layout="iii")
    assert doses(found) == [0, 3, 3 + 6, 0.2 * 15, 0, 54, 54, 0, 6]


def test_carevue_rates_a_minute_use_the_weight(tmp_path):
    ward = Ward().stay(1).stay(2).chart(3, 50, 762).cv(4, 30047, 10, unit="mcgmin")
    ward.cv(4, 30047, 10, unit="mcgmin", stay=2)
    found = table(ward.write(tmp_path / "t", layout="iii"), tmp_path)
    assert [round(found[s][4]["vasopressor_dose"], 6) for s in (1, 2)] == [12, 7.5]


def test_carevue_fluids_count_when_charted(tmp_path):
    ward = Ward().stay().cv(2, 30018, amount=500, unit="ml").cv(3, 30013, amount=500, unit="ml")
    ward.cv(4, 30001, amount=375, unit="ml").cv(5, 30018, amount=150, unit="ml")
    found = rows(ward, tmp_path, layout="iii")
    assert [r["bolus_ml"] for r in found][1:7] == [0, 500, 0, 375, 0, 0]


# -- refusals ----------------------------------------------------------------------------------


def refused(match, folder, **options):
    with pytest.raises(LogError, match=match) as error:
        icu.build(folder, folder.parent / "s.parquet", **options)
    assert not list(folder.parent.glob("s.*"))
    return error.value


def test_missing_tables_are_named(tmp_path):
    folder = Ward().stay().write(tmp_path / "t")
    (folder / "icu" / "chartevents.csv").unlink()
    (folder / "hosp" / "labevents.csv").unlink()
    error = refused("2 of the 6 tables of MIMIC-IV are missing: chartevents, labevents", folder)
    assert "icustays" in error.where
    assert error.do
    refused("there is no folder", tmp_path / "nowhere")


def test_missing_columns_are_named(tmp_path):
    folder = Ward().stay().write(tmp_path / "t")
    file = folder / "icu" / "inputevents.csv"
    file.write_text(file.read_text().replace("endtime", "stoptime").replace(",rate,", ",speed,"))
    error = refused("inputevents lacks 2 of the columns it must have: endtime, rate", folder)
    assert "stoptime" in error.where


def test_columns_that_may_be_missing(tmp_path):
    folder = Ward().stay().drug(2, 3, 0.1, weight=70).write(tmp_path / "t")
    file = folder / "icu" / "inputevents.csv"
    text = file.read_text()
    for name in ("amountuom", "rateuom", "patientweight", "statusdescription"):
        text = text.replace(name, f"x_{name}")
    file.write_text(text)
    assert round(table(folder, tmp_path)[1][2]["vasopressor_dose"], 6) == 6


def test_a_table_that_is_there_twice(tmp_path):
    folder = Ward().stay().write(tmp_path / "t")
    Ward().stay().write(folder, kind=".parquet")
    refused("icustays is there 2 times", folder)


def test_an_empty_cohort_says_how_near_it_came(tmp_path):
    folder = Ward().stay(low=5).stay(2, low=3).write(tmp_path / "t")
    refused("none of 2 stays is in the cohort: 2 have a mean pressure charted, and the most below "
            "65 mmHg in one stay are 5 of 7", folder)  # fmt: skip


def test_a_word_where_a_number_must_be(tmp_path):
    folder = Ward().stay().chart(2, "high").write(tmp_path / "t")
    assert "high" in refused("not what its column must be", folder).where


def test_a_file_that_is_no_table(tmp_path):
    folder = Ward().stay().write(tmp_path / "t", kind=".parquet")
    (folder / "icu" / "chartevents.parquet").write_text("nothing")
    refused("the table chartevents cannot be read", folder)


@pytest.mark.parametrize(
    ("rules", "match"),
    [({"horizon": 1}, "horizon"), ({"bolus_edges": (5, 5)}, "rising"), ({"rate_cap": 0}, "rate_cap")],
)  # fmt: skip
def test_rules_are_checked(rules, match):
    with pytest.raises(ParameterError, match=match):
        icu.Cohort(**rules)


@pytest.mark.parametrize(
    ("options", "match"), [({"memory": "much"}, "memory must be a size"), ({"threads": 0}, "threads")]
)  # fmt: skip
def test_settings_are_checked(tmp_path, options, match):
    folder = Ward().stay().write(tmp_path / "t")
    with pytest.raises(ParameterError, match=match):
        icu.build(folder, tmp_path / "s.parquet", **options)
    with pytest.raises(ParameterError, match=r"end in \.parquet"):
        icu.build(folder, tmp_path / "s.csv")


@pytest.mark.slow
def test_items_of_another_hospital(tmp_path):
    ward = Ward().stay(low=0)
    for i in range(7):
        ward.chart(i / 60, 60, 4711)
    ward.drug(2, 3, 0.1, 4712)
    folder = ward.write(tmp_path / "t")
    refused("none of 1 stays", folder)
    items = tmp_path / "items.csv"
    head = "concept,source,itemid,rank,low,high,label\n"
    items.write_text(head + "map,chart,4711,1,10,200,MAP\nnorepinephrine,input,4712,1,,,NA\n")
    assert doses(list(table(folder, tmp_path, "own.parquet", items=items)[1].values()))[2] == 6
    for bad, match in (
        ("mapp,chart,1,1,,,x\n", "concept 'mapp'"),
        ("map,chart,1,1,10,200,x\nmap,chart,1,2,10,200,y\n", "listed twice"),
        ("map,chart,one,1,10,200,x\n", "cannot be read"),
    ):
        items.write_text(head + bad)
        refused(match, folder, items=items)


# -- splits ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    ward = Ward()
    for i in range(1, 25):
        ward.stay(i, subject=100 + i // 2, start=START + timedelta(days=30 * i))
        ward.chart(1.5, 50 + i, stay=i).lab(1, i / 4, stay=i).drug(2, 4, 0.01 * i, stay=i)
    icu.build(ward.write(folder / "t"), folder / "stays.parquet")
    return ward, folder


def test_patients_are_never_torn_apart(many):
    stays = icu.read_stays(many[1] / "stays.parquet")
    parts = stays.split((0.25, 0.25, 0.5), seed=1)
    assert sorted(s for part in parts for s in part.subjects) == list(stays.subjects)
    assert [len(part.subjects) for part in parts] == [3, 3, 7]
    assert sum(part.n_stays for part in parts) == 24
    assert parts == stays.split((0.25, 0.25, 0.5), seed=1)
    assert parts != stays.split((0.25, 0.25, 0.5), seed=2)


def test_medians_and_terciles_are_the_training_patients_own(many):
    stays = icu.read_stays(many[1] / "stays.parquet")
    train, _, _ = stays.split(seed=0)
    fitted = icu.Preparation.fit(train, edges="terciles")
    with duckdb.connect() as con:
        got = con.execute(
            f"SELECT lactate, map, vasopressor_dose FROM '{stays.path}' "
            f"WHERE subject_id IN {train.subjects}"
        ).fetchnumpy()
    assert fitted.medians["lactate"] == np.ma.median(got["lactate"])
    assert fitted.medians["map"] == np.ma.median(got["map"])
    dose = np.asarray(got["vasopressor_dose"])
    assert fitted.vasopressor_edges == pytest.approx(np.quantile(dose[dose > 0], [1 / 3, 2 / 3]))
    assert fitted.medians["alt"] == 0
    assert any("'alt' is known nowhere" in note for note in fitted.notes)


@pytest.mark.slow
def test_nothing_of_the_test_patients_reaches_the_training_log(many, tmp_path):
    ward, folder = many
    before = icu.prepare(icu.read_stays(folder / "stays.parquet"), seed=0, edges="terciles")
    outside = {s[0] for s in ward.stays if s[1] not in before.train.groups}
    other = Ward()
    other.__dict__.update(ward.__dict__)
    other.labs = [(s, t, i, v * (9 if s not in before.train.groups else 1))
                  for s, t, i, v in ward.labs]  # fmt: skip
    other.inputs = [(*r[:6], r[6] * (7 if r[0] in outside else 1), *r[7:]) for r in ward.inputs]
    icu.build(other.write(tmp_path / "t"), tmp_path / "stays.parquet")
    after = icu.prepare(icu.read_stays(tmp_path / "stays.parquet"), seed=0, edges="terciles")
    assert after.preparation == before.preparation
    assert after.train.digest() == before.train.digest()
    assert after.test.digest() != before.test.digest()


def test_a_log_has_29_features_16_actions_and_patients_as_groups(many):
    data = icu.prepare(icu.read_stays(many[1] / "stays.parquet"), seed=0)
    log = data.train
    assert log.feature_names == icu.FEATURES
    assert len(icu.FEATURES) == 29
    assert sorted(icu.WEIGHTS.values()) == [3.0] * 4 + [5.0] * 8 + [10.0] + [15.0] * 16
    assert log.actions[4 * 1 + 2] == "bolus 1, vasopressor 2"
    assert len(log.groups) < log.n_episodes
    assert icu.metric().fit(log).weight[log.feature_names.index("lactate_ever")] == 10
    level = log.features[:, log.feature_names.index("last_vasopressor_1")]
    begins = np.isin(np.arange(log.n_steps), log.starts[:-1])
    assert (level[1:][~begins[1:]] == (log.action[:-1] % 4 == 1)[~begins[1:]]).all()
    assert not level[begins].any()


def test_stays_read_as_a_log_have_gaps_that_distances_cannot_have(many):
    log = dprl.read(many[1] / "stays.parquet", episode="stay_id", group="subject_id", time="hour",
                    state=["map", "lactate"], action="vasopressor", reward="reward")  # fmt: skip
    assert log.missing.any()
    with pytest.raises(LogError, match="missing"):
        dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=0.9, cut="terminal").fit(log)


@pytest.mark.slow
def test_splits_can_be_written_and_fitted(many, tmp_path, monkeypatch, capsys):
    from dprl.apps.cli.main import main

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as done:
        main(["icu", "split", str(many[1] / "stays.parquet"), "--out", "splits", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert done.value.code == 0
    assert facts["train"]["patients"] == 3
    data = icu.prepare(icu.read_stays(many[1] / "stays.parquet"), seed=0)
    monkeypatch.chdir(tmp_path / "splits")
    with pytest.raises(SystemExit) as done:
        main(["fit", "train.parquet", "--json"])
    fitted = json.loads(capsys.readouterr().out)
    assert done.value.code == 0
    assert fitted["points"] == data.train.n_steps
    assert dprl.load("policy.dprl").parameters["metric"]["weights"] == icu.WEIGHTS


@pytest.mark.slow
def test_the_command_takes_costs(many, tmp_path, capsys):
    from dprl.apps.cli.main import main

    def split(*options):
        with pytest.raises(SystemExit) as done:
            main(["icu", "split", str(many[1] / "stays.parquet"), "--out", str(tmp_path / "s"),
                  "--json", *options])  # fmt: skip
        return done.value.code, json.loads(capsys.readouterr().out)

    code, facts = split("--bolus-cost", "0.05", "--vasopressor-cost", "0.03")
    assert (code, facts["costs"]) == (0, {"bolus": 0.05, "vasopressor": 0.03})
    data = icu.prepare(icu.read_stays(many[1] / "stays.parquet"), seed=0, costs=icu.Costs())
    assert facts["train"]["digest"] == data.train.digest()
    written = json.loads((tmp_path / "s" / "preparation.json").read_text())
    assert written["costs"] == facts["costs"]
    code, facts = split("--bolus-cost", "-1")
    assert code == 1
    assert "the cost of a bolus must be" in facts["error"]["what"]
    assert json.loads((tmp_path / "s" / "preparation.json").read_text()) == written
    assert split()[1]["costs"] is None


def test_bad_splits_are_refused(many, tmp_path):
    stays = icu.read_stays(many[1] / "stays.parquet")
    with pytest.raises(ParameterError, match="add up to 1"):
        stays.split((0.5, 0.6), seed=0)
    with pytest.raises(LogError, match="13 patients cannot be split"):
        stays.split((0.01, 0.99), seed=0)
    with pytest.raises(ParameterError, match="three numbers"):
        icu.prepare(stays, seed=0, shares=(0.5, 0.5))
    with pytest.raises(ParameterError, match="'published' or 'terciles'"):
        icu.Preparation.fit(stays, edges="mine")
    with pytest.raises(LogError, match="there is no file"):
        icu.read_stays(tmp_path / "x.parquet")
    (tmp_path / "x.parquet").write_text("x")
    with pytest.raises(LogError, match="no Parquet file"):
        icu.read_stays(tmp_path / "x.parquet")


def test_the_command_prints_flow_and_dictionary(tmp_path, capsys):
    from dprl.apps.cli.main import main

    folder = Ward().stay().write(tmp_path / "t")
    with pytest.raises(SystemExit) as done:
        main(["icu", "build", str(folder), "--out", str(tmp_path / "s.parquet")])
    out = capsys.readouterr().out
    assert done.value.code == 0
    assert "From ICU stays to the cohort" in out
    assert "next_urine" in out
    with pytest.raises(SystemExit):
        main(["icu", "build", str(folder), "--out", str(tmp_path / "s.parquet"), "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["flow"][-1]["decisions"] == facts["decisions"] == 9
    with pytest.raises(SystemExit) as done:
        main(["icu", "build", str(tmp_path), "--json"])
    assert done.value.code == 1
    assert "missing" in json.loads(capsys.readouterr().out)["error"]["what"]
