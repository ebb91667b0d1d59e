"""Tables like MIMIC-IV's of invented patients, and the true value of a policy among them.

The model is `dprl.studies.icu.model`: septic and dry patients, a clinician who starts too low. The
value of any policy is found by playing it; where it defers, the clinician acts.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.disk import replacing
from dprl.errors import LogError, ParameterError
from dprl.logs._files import Progress
from dprl.logs._sources import quoted
from dprl.policies._protocol import is_drawn
from dprl.studies.icu.dictionary import FEATURES, RAW
from dprl.studies.icu.model import BOLUS_ML, Floats, Ints, Played, clinician, play
from dprl.studies.icu.preparation import ACTIONS, Preparation

__all__ = ["MARK", "best_treatment", "simulate", "true_value", "usual_treatment"]

MARK = "simulated.json"
"""A file beside the tables that says they are invented, and how."""

ITEMS = {
    "map": 220052, "sbp": 220050, "dbp": 220051, "fio2": 223835, "gcs_eye": 220739,
    "gcs_verbal": 223900, "gcs_motor": 223901, "lactate": 50813, "creatinine": 50912,
    "alt": 50861, "ast": 50878, "po2": 50821, "urine": 226559,
}  # fmt: skip
LABS = ("lactate", "creatinine", "alt", "ast", "po2")
NOREPINEPHRINE, SALINE, WEIGHT = 221906, 225158, 75.0


def usual_treatment(x: Floats, stays: Ints, rng: np.random.Generator) -> Ints:
    """The clinician's draw."""
    u = rng.random((len(x), 1))
    return np.asarray((u > np.cumsum(clinician(x), axis=1)).sum(axis=1).clip(0, 15))


def best_treatment(x: Floats, stays: Ints, rng: np.random.Generator) -> Ints:
    """Treat low pressure by its cause, as the model rewards it.

    Lactate tells septic from dry. Vasopressor level 2 for septic patients while the pressure
    without it would be low; a bolus of level 1 for dry ones while the pressure is low.
    """
    pressure, lactate = x[:, FEATURES.index("map")], x[:, FEATURES.index("lactate")]
    on = x[:, FEATURES.index("last_vasopressor_2")] > 0
    septic = lactate > 2.4
    pressor = np.where(septic & (pressure - 11 * on < 68), 2, 0)
    bolus = np.where(~septic & (pressure < 66), 1, 0)
    return np.asarray(4 * bolus + pressor)


def true_value(
    policy: Any = None,
    preparation: Preparation | None = None,
    *,
    gamma: float,
    stays: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """ρ(π) among the simulated patients, by playing it, and its standard error.

    Args:
        policy: Any policy over the 29 features: one that defers (the clinician acts there), one
            with probabilities, a function like `best_treatment`, or None for the clinician.
        preparation: What fills missing features for a policy that was fitted.
        gamma: Discount.
        stays: How many to play.
        seed: Of the patients: other ones than those of tables simulated with this seed.
    """
    if stays < 2:
        raise ParameterError(f"stays must be at least 2; got {stays!r}.")
    if policy is None:
        choose = usual_treatment
    elif hasattr(policy, "probabilities"):
        if preparation is None:
            raise ParameterError(
                "a fitted policy needs the preparation its log was made with.",
                do="Pass prepare(...).preparation.",
            )
        choose = _ask(policy, preparation)
    else:
        choose = policy
    G = play(stays, seed + 1_000_003, choose).returns(gamma)
    return float(G.mean()), float(G.std() / np.sqrt(stays))


def _ask(policy: Any, preparation: Preparation) -> Any:
    """A fitted policy as something that chooses."""
    codes = np.array([ACTIONS.index(label) for label in policy.actions])
    medians = np.array([preparation.medians[name] for name in RAW])
    measured = [FEATURES.index(name) for name in RAW]

    def choose(x: Floats, stays: Ints, rng: np.random.Generator) -> Ints:
        usual = usual_treatment(x, stays, rng)
        filled = x.copy()
        filled[:, measured] = np.where(np.isnan(x[:, measured]), medians, x[:, measured])
        if not is_drawn(policy):
            choice = policy.at(filled).choice
            return np.asarray(np.where(choice >= 0, codes[choice], usual))
        pi = np.cumsum(policy.probabilities(filled), axis=1)
        drawn = (rng.random((len(x), 1)) > pi).sum(axis=1).clip(0, len(codes) - 1)
        return np.asarray(codes[drawn])

    return choose


def simulate(
    out: str | os.PathLike[str],
    *,
    stays: int = 2000,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write MIMIC-IV-shaped tables of invented patients.

    One patient in twelve comes back once. A tenth as many patients more are never hypotensive: the
    cohort leaves them out.

    Args:
        out: A folder; it gets `icu/`, `hosp/` and a file that says the patients are invented.
        stays: Hypotensive stays.
        seed: Everything random follows from it.
        progress: Called with a stage's name and the share of it that is done.
    """
    if stays < 2 or seed < 0:
        raise ParameterError(f"stays must be at least 2 and seed 0; got {stays!r} and {seed!r}.")
    folder = Path(out)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise LogError(
            f"{str(folder)!r} is not empty and holds no simulated tables.",
            do="Name a new folder: real tables are never overwritten.",
        )
    say = progress or (lambda stage, share: None)
    say("playing", 0.0)
    twins = np.arange(stays)
    twins[11::12] = twins[11::12] - 1
    sick = play(stays, seed, usual_treatment, twins=twins, keep=True)
    well = play(max(1, stays // 10), seed + 1, usual_treatment, low=False, keep=True)
    tables = _tables(sick, well, twins, np.random.default_rng([seed, 4]))
    for name, data in tables.items():
        say(f"writing {name}", 0.5)
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        _write(data, place)
    rows = {name: len(next(iter(data.values()))) for name, data in tables.items()}
    made = {"simulated": True, "stays": stays, "seed": seed, "tables": rows}
    import json

    with replacing(folder / MARK) as part:
        part.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return made


def _write(data: dict[str, NDArray[Any]], path: Path) -> None:
    import duckdb

    style = "FORMAT csv, HEADER" if path.suffix == ".csv" else "FORMAT parquet, COMPRESSION zstd"
    with replacing(path) as part, duckdb.connect() as con:
        con.register("data", data)
        con.execute(f"COPY (SELECT * FROM data) TO {quoted(str(part), chr(39))} ({style})")


def _tables(
    sick: Played, well: Played, twins: Ints, rng: np.random.Generator
) -> dict[str, dict[str, NDArray[Any]]]:
    """Table → columns."""
    n = len(sick.hours)
    total = n + len(well.hours)
    stay_id = 30_000_000 + np.arange(total)
    person = np.concatenate([twins, np.arange(n, total)])
    subject_id, hadm_id = 10_000_000 + person, 20_000_000 + np.arange(total)
    second = np.timedelta64(1, "s")
    # A patient's second stay begins a year after the first.
    year = np.where(person < np.arange(total), 1, 0) * 366 * 86_400
    start = rng.integers(0, 40 * 365 * 86_400, total)
    intime = np.datetime64("2110-01-01T00:00:00", "us") + (start[person] + year) * second
    ends = np.concatenate([sick.ends, well.ends])
    died = np.concatenate([sick.died, well.died])
    outtime = intime + np.round(ends * 3600).astype(np.int64) * second
    icustays = {
        "subject_id": subject_id, "hadm_id": hadm_id, "stay_id": stay_id,
        "intime": intime, "outtime": outtime + 1800 * died * second,
        "los": ends / 24,
    }  # fmt: skip
    nowhere = np.datetime64("NaT", "us")
    admissions = {
        "subject_id": subject_id, "hadm_id": hadm_id, "admittime": intime,
        "dischtime": icustays["outtime"], "deathtime": np.where(died, outtime, nowhere),
    }  # fmt: skip
    _, first = np.unique(subject_id, return_index=True)
    patients = {
        "subject_id": subject_id[first],
        "anchor_age": rng.integers(30, 90, len(first)),
    }
    who = {"stay_id": stay_id, "subject_id": subject_id, "hadm_id": hadm_id, "intime": intime}
    charted = [_events(p, {k: v[a:b] for k, v in who.items()}) for p, a, b in
               ((sick, 0, n), (well, n, total))]  # fmt: skip
    events = {k: np.concatenate([c[k] for c in charted]) for k in charted[0]}
    lab = np.isin(events["itemid"], [ITEMS[name] for name in LABS])
    urine = events["itemid"] == ITEMS["urine"]
    chart = {k: v[~lab & ~urine] for k, v in events.items()}
    out = {k: v[urine] for k, v in events.items()}
    out["value"] = out.pop("valuenum")
    labs = {k: v[lab] for k, v in events.items() if k != "stay_id"}
    inputs = [_inputs(p, {k: v[a:b] for k, v in who.items()}) for p, a, b in
              ((sick, 0, n), (well, n, total))]  # fmt: skip
    return {
        "icu/icustays.csv": icustays,
        "icu/chartevents.parquet": chart,
        "icu/inputevents.parquet": {k: np.concatenate([i[k] for i in inputs]) for k in inputs[0]},
        "icu/outputevents.parquet": out,
        "hosp/labevents.parquet": labs,
        "hosp/admissions.csv": admissions,
        "hosp/patients.csv": patients,
    }


def _events(played: Played, who: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Everything charted while the patient was there (from an hour before), a row a value."""
    parts: dict[str, list[NDArray[Any]]] = {}
    minute = np.timedelta64(60, "s")
    for event in played.events:
        there = ~np.isnan(event.value) & (event.hour + event.minute / 60 < played.ends)
        rows = np.flatnonzero(there)
        columns = {
            "subject_id": who["subject_id"][rows], "hadm_id": who["hadm_id"][rows],
            "stay_id": who["stay_id"][rows],
            "charttime": who["intime"][rows] + (event.hour * 60 + event.minute) * minute,
            "itemid": np.full(len(rows), ITEMS[event.concept]), "valuenum": event.value[rows],
        }  # fmt: skip
        for name, values in columns.items():
            parts.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}


def _inputs(played: Played, who: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Infusions, a row an hour; boluses, the largest in two bags, five minutes into the hour."""
    rows: list[tuple[Ints, Ints, NDArray[Any], int, int, int]] = []
    stay, hour = np.nonzero(played.rate > 0)
    rows.append((stay, hour, played.rate[stay, hour], NOREPINEPHRINE, 0, 60))
    for bag, ml in ((0, 1000.0), (1, 500.0)):
        left = np.minimum(played.ml, 1000.0) if bag == 0 else played.ml - BOLUS_ML[2]
        stay, hour = np.nonzero(left > 0)
        amount = np.minimum(left[stay, hour], ml)
        rows.append((stay, hour, amount, SALINE, 5 + 10 * bag, 35 + 10 * bag))
    parts: dict[str, list[NDArray[Any]]] = {}
    minute = np.timedelta64(60, "s")
    for stay, hour, number, item, begins, ends in rows:
        zero = who["intime"][stay] + hour * 60 * minute
        drug = item == NOREPINEPHRINE
        columns = {
            "subject_id": who["subject_id"][stay], "hadm_id": who["hadm_id"][stay],
            "stay_id": who["stay_id"][stay],
            "starttime": zero + begins * minute, "endtime": zero + ends * minute,
            "itemid": np.full(len(stay), item),
            "amount": number * 60 * WEIGHT / 1000 if drug else number,
            "amountuom": np.full(len(stay), "mg" if drug else "mL", object),
            "rate": number if drug else np.full(len(stay), np.nan),
            "rateuom": np.full(len(stay), "mcg/kg/min" if drug else None, object),
            "patientweight": np.full(len(stay), WEIGHT),
        }  # fmt: skip
        for name, values in columns.items():
            parts.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}
