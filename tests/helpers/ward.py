"""Hand-made tables in MIMIC's layouts, and a slow second way from them to hourly decisions."""

from __future__ import annotations

import csv
import functools
import gzip
import math
from datetime import datetime, timedelta

import duckdb

START = datetime(2150, 1, 1, 10, 17)
MAP, CUFF, SBP, DBP, FIO2 = 220052, 220181, 220050, 220051, 223835
EYE, VERBAL, MOTOR, LACTATE, CREATININE = 220739, 223900, 223901, 50813, 50912
FOLEY, IRRIGANT = 226559, 227488
NOR, EPI, PHENYL, DOPA, VASOPRESSIN, SALINE, BLOOD = (
    221906, 221289, 221749, 221662, 222315, 225158, 225168,
)  # fmt: skip


def after(hours):
    return timedelta(microseconds=round(hours * 3.6e9))


class Ward:
    """Rows by hour of the stay; `write` makes a folder of tables."""

    def __init__(self):
        self.stays, self.charts, self.labs, self.outputs = [], [], [], []
        self.inputs, self.carevue, self.deaths = [], [], {}

    def stay(self, stay=1, hours=10.0, subject=None, start=START, low=7, dies=None):
        """A stay; `low` mean pressures of 60 in the first minutes put it in the cohort."""
        self.stays.append((stay, subject or stay, start, hours))
        if dies is not None:
            self.deaths[stay] = start + after(dies)
        for i in range(low):
            self.chart(i / 600, 60, stay=stay)
        return self

    def _start(self, stay):
        return next(s[2] for s in self.stays if s[0] == stay)

    def chart(self, hour, value, item=MAP, stay=1, error=""):
        self.charts.append((stay, self._start(stay) + after(hour), item, value, error))
        return self

    def lab(self, hour, value, item=LACTATE, stay=1):
        subject = next(s[1] for s in self.stays if s[0] == stay)
        self.labs.append((subject, self._start(stay) + after(hour), item, value))
        return self

    def urine(self, hour, value, item=FOLEY, stay=1):
        self.outputs.append((stay, self._start(stay) + after(hour), item, value))
        return self

    def drug(self, begins, ends, rate, item=NOR, unit="mcg/kg/min", weight=80, stay=1, status=""):
        zero = self._start(stay)
        row = (stay, zero + after(begins), zero + after(ends), item, 1, "mg", rate, unit, weight)
        self.inputs.append((*row, status))
        return self

    def fluid(self, begins, minutes, amount, item=SALINE, unit="ml", stay=1, status=""):
        zero = self._start(stay)
        ends = zero + after(begins) + timedelta(minutes=minutes)
        row = (stay, zero + after(begins), ends, item, amount, unit, "", "", 80)
        self.inputs.append((*row, status))
        return self

    def cv(self, hour, item, rate="", amount="", unit="", stopped="", stay=1):
        moment = self._start(stay) + after(hour)
        units = (unit, "") if amount != "" else ("", unit)
        self.carevue.append((stay, moment, item, amount, units[0], rate, units[1], stopped))
        return self

    def tables(self, layout="iv"):
        name = "stay_id" if layout == "iv" else "icustay_id"
        admissions = [(700 + s[0], self.deaths.get(s[0], "")) for s in self.stays]
        infused = (name, "starttime", "endtime", "itemid", "amount", "amountuom", "rate", "rateuom",
                   "patientweight", "statusdescription")  # fmt: skip
        found = {
            "icu/icustays": [("subject_id", "hadm_id", name, "intime", "outtime"), *(
                (sub, 700 + s, s, t, t + after(h)) for s, sub, t, h in self.stays)],
            "hosp/admissions": [("hadm_id", "deathtime"), *admissions],
            "icu/chartevents": [(name, "charttime", "itemid", "valuenum", "error"), *self.charts],
            "icu/outputevents": [(name, "charttime", "itemid", "value"), *self.outputs],
            "hosp/labevents": [("subject_id", "charttime", "itemid", "valuenum"), *self.labs],
        }  # fmt: skip
        if layout == "iv":
            return {**found, "icu/inputevents": [infused, *self.inputs]}
        found = {k.split("/")[1]: v for k, v in found.items()}
        carevue = (name, "charttime", "itemid", "amount", "amountuom", "rate", "rateuom", "stopped")
        return {**found, "inputevents_mv": [infused, *self.inputs],
                "inputevents_cv": [carevue, *self.carevue]}  # fmt: skip

    def write(self, folder, layout="iv", kind=".csv", upper=False, reverse=False):
        for name, (head, *rows) in self.tables(layout).items():
            names = [h.upper() for h in head] if upper else list(head)
            path = folder / f"{name.upper() if upper and '/' not in name else name}{kind}"
            path.parent.mkdir(parents=True, exist_ok=True)
            source = path if kind != ".parquet" else path.with_suffix(".tmp")
            opened = gzip.open if kind == ".csv.gz" else open
            with opened(source, "wt", newline="") as stream:
                csv.writer(stream).writerows([names, *(rows[::-1] if reverse else rows)])
            if kind == ".parquet":
                with duckdb.connect() as con:
                    con.execute(f"COPY (FROM read_csv('{source}', header = true)) TO '{path}'")
                source.unlink()
        return folder


# -- the slow way ------------------------------------------------------------------------------

CONCEPT = {MAP: "map", 225312: "map", CUFF: "map", SBP: "sbp", DBP: "dbp", FIO2: "fio2",
           EYE: "eye", VERBAL: "verbal", MOTOR: "motor", LACTATE: "lactate",
           CREATININE: "creatinine", 50861: "alt", 50878: "ast", 50821: "po2"}  # fmt: skip
VALID = {"map": (10, 200), "sbp": (20, 300), "dbp": (5, 225), "fio2": (20, 100), "eye": (1, 4),
         "verbal": (1, 5), "motor": (1, 6), "lactate": (0.1, 50), "creatinine": (0.1, 150),
         "alt": (1, 50000), "ast": (1, 50000), "po2": (10, 800)}  # fmt: skip
EQUIVALENT = {NOR: 1, EPI: 1, PHENYL: 0.45, DOPA: 0.01, VASOPRESSIN: 5 / 60}


def slow(ward, stay):
    """The decisions of one MIMIC-IV stay, each hour looked up from all rows."""
    _, subject, zero, hours = next(s for s in ward.stays if s[0] == stay)
    n = min(72, math.floor(min(hours, _hours(ward.deaths.get(stay), zero))))
    facts = [(_hours(t, zero), item, float(v)) for s, t, item, v, _ in ward.charts if s == stay]
    facts += [(_hours(t, zero), item, float(v)) for s, t, item, v in ward.labs if s == subject]
    seen = []
    for t, item, raw in facts:
        concept = CONCEPT.get(item)
        value = raw * 100 if concept == "fio2" and raw <= 1 else raw
        if concept and VALID[concept][0] <= value <= VALID[concept][1] and -6 <= t < 72:
            seen.append((t, -(item == CUFF), -value, concept))
    out = [(_hours(t, zero), -v if item == IRRIGANT else v)
           for s, t, item, v in ward.outputs if s == stay]  # fmt: skip

    @functools.cache
    def last(concept, before):
        found = [s for s in seen if s[3] == concept and s[0] < before]
        return -max(found)[2] if found else None

    @functools.cache
    def urine(hour):
        found = [v for t, v in out if hour <= t < hour + 1]
        return max(0.0, sum(found)) if found else None

    @functools.cache
    def dose(hour):
        total = 0.0
        for s, begins, ends, item, _, _, rate, unit, weight, status in ward.inputs:
            if s != stay or item not in EQUIVALENT or status == "Rewritten":
                continue
            minutes = 60 * (min(hour + 1, _hours(ends, zero)) - max(hour, _hours(begins, zero)))
            per_kg = rate / weight if unit == "mcg/min" else rate
            total += max(0.0, minutes) * min(3.0, per_kg * EQUIVALENT[item])
        return total

    @functools.cache
    def bolus(hour):
        return sum(
            amount for s, begins, ends, item, amount, *_, status in ward.inputs
            if s == stay and item in (SALINE, BLOOD) and status != "Rewritten" and amount >= 200
            and ends - begins <= timedelta(hours=1) and hour <= _hours(begins, zero) < hour + 1
        )  # fmt: skip

    rows = []
    for h in range(n - 1):
        parts = [last(c, h) for c in ("eye", "verbal", "motor")]
        flows = [u for k in range(-6, h) if (u := urine(k)) is not None]
        row = {c: last(c, h) for c in ("fio2", "lactate", "map", "alt", "ast", "dbp", "sbp",
                                       "creatinine", "po2")}  # fmt: skip
        row |= {
            "hour": h, "urine": flows[-1] if flows else None,
            "gcs": None if None in parts else sum(parts),
            "urine_since": int(urine(h - 1) is not None),
            "gcs_since": int(any(s[3] in ("eye", "verbal", "motor") and h - 1 <= s[0] < h
                                 for s in seen)),
            "vasopressor_dose": dose(h), "bolus_ml": bolus(h),
            "last_vasopressor_dose": dose(h - 1) if h else 0,
            "last_bolus_ml": bolus(h - 1) if h else 0,
            "total_vasopressor": sum(dose(k) for k in range(h)),
            "total_bolus": sum(bolus(k) for k in range(h)),
            "total_vasopressor_8h": sum(dose(k) for k in range(max(0, h - 8), h)),
            "total_bolus_8h": sum(bolus(k) for k in range(max(0, h - 8), h)),
            "next_map": last("map", h + 2), "next_urine": urine(h + 1),
        }  # fmt: skip
        row |= {f"{c}_ever": int(row[c] is not None)
                for c in ("fio2", "lactate", "alt", "ast", "creatinine", "po2")}  # fmt: skip
        rows.append(row)
    return rows


def _hours(moment, zero):
    return math.inf if moment is None else (moment - zero) / timedelta(hours=1)
