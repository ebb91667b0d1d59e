"""Simulated tables in the layout of MIMIC-IV, and the true value of a policy in the simulation.

The model is `dprl_studies.icu.model`: septic and dry patients, and a clinician whose first
doses are too low. The value of a policy is found by playing it; where it defers, the clinician
acts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats, Ints
from dprl._core.checks import check_choice, check_gamma, check_seed, check_whole
from dprl._core.database import connect
from dprl._core.disk import replacing
from dprl.errors import LogError, ParameterError
from dprl.logs.reading.files import Progress
from dprl.logs.reading.frames import quoted
from dprl.policies.protocol import is_drawn
from dprl_studies.icu.dictionary import FEATURES, RAW, Costs, check_costs
from dprl_studies.icu.model import BOLUS_ML, RATES, Choose, Played, clinician, play
from dprl_studies.icu.preparation import ACTIONS, Preparation, Reward

# --- Simulated tables in the layout of MIMIC-IV, and the true value of a policy in the simulation

MARK = "simulated.json"
"""A file beside the tables that says that they are invented, and with which settings."""

ITEMS = {
    "map": 220052, "sbp": 220050, "dbp": 220051, "fio2": 223835, "gcs_eye": 220739,
    "gcs_verbal": 223900, "gcs_motor": 223901, "lactate": 50813, "creatinine": 50912,
    "alt": 50861, "ast": 50878, "po2": 50821, "urine": 226559,
}  # fmt: skip
"""What is charted → its item code in MIMIC-IV."""

LABS = ("lactate", "creatinine", "alt", "ast", "po2")
NOREPINEPHRINE, SALINE, WEIGHT = 221906, 225158, 75.0
ASKED_AGAIN = 100
"""How often the simulated clinician is asked for another treatment than one to avoid."""


def usual_treatment(x: Floats, stays: Ints, rng: np.random.Generator) -> Ints:
    """The treatment of the simulated clinician, drawn at random.

    Args:
        x: float64 (k, 29), the features, in the order of `FEATURES`.
        stays: int64 (k,), numbers of the stays; not used.
        rng: The random generator.

    Returns:
        int64 (k,), codes of `ACTIONS`.

    Example:
        >>> x = np.zeros((3, len(FEATURES)))
        >>> x[:, FEATURES.index("map")] = 80.0
        >>> actions = usual_treatment(x, np.arange(3), np.random.default_rng(0))
        >>> [ACTIONS[a] for a in actions]
        ['bolus 0, vasopressor 0', 'bolus 0, vasopressor 0', 'bolus 0, vasopressor 0']
    """
    u = rng.random((len(x), 1))
    return np.asarray((u > np.cumsum(clinician(x), axis=1)).sum(axis=1).clip(0, 15))


def best_treatment(x: Floats, stays: Ints, rng: np.random.Generator) -> Ints:
    """The best treatment in the model where treatment costs nothing: treat the cause.

    Lactate tells septic from dry patients. Septic patients get vasopressor level 2 while their
    pressure without it would be low; dry patients get a bolus of level 1 while their pressure is
    low.

    Args:
        x: float64 (k, 29), the features, in the order of `FEATURES`.
        stays: int64 (k,), numbers of the stays; not used.
        rng: A random generator; not used.

    Returns:
        int64 (k,), codes of `ACTIONS`.

    Example:
        >>> x = np.zeros((1, len(FEATURES)))
        >>> x[0, FEATURES.index("map")], x[0, FEATURES.index("lactate")] = 55.0, 4.0
        >>> ACTIONS[best_treatment(x, np.array([0]), np.random.default_rng(0))[0]]
        'bolus 0, vasopressor 2'
    """
    return _by_cause(x, lactate=2.4, septic_below=68.0, dry_below=66.0)


def frugal_treatment(x: Floats, stays: Ints, rng: np.random.Generator) -> Ints:
    """A nearly best treatment where treatment has the costs of `Costs()`: the cause, if it pays.

    As `best_treatment`, but a patient counts as septic above a lactate of 2.8; septic patients get
    vasopressor level 2 only while their pressure without it would be below 59 mmHg, and dry
    patients get a bolus only below 63 mmHg. The three limits are the best of those tried, one
    after the other, on 1,500 simulated stays of seed 11. Other seeds and costs have other limits.

    Args:
        x: float64 (k, 29), the features, in the order of `FEATURES`.
        stays: int64 (k,), numbers of the stays; not used.
        rng: A random generator; not used.

    Returns:
        int64 (k,), codes of `ACTIONS`.

    Example:
        >>> x = np.zeros((1, len(FEATURES)))
        >>> x[0, FEATURES.index("map")], x[0, FEATURES.index("lactate")] = 61.0, 4.0
        >>> choices = [f(x, np.array([0]), np.random.default_rng(0))[0]
        ...            for f in (best_treatment, frugal_treatment)]
        >>> [ACTIONS[a] for a in choices]
        ['bolus 0, vasopressor 2', 'bolus 0, vasopressor 0']
    """
    return _by_cause(x, lactate=2.8, septic_below=59.0, dry_below=63.0)


def _by_cause(x: Floats, *, lactate: float, septic_below: float, dry_below: float) -> Ints:
    """Septic patients get vasopressor level 2, dry ones a bolus of level 1, at low pressure.

    Above `lactate` a patient counts as septic. The pressure of septic patients is compared after
    taking away the 11 mmHg that vasopressor level 2 adds. A lactate never charted counts as low.
    """
    pressure = x[:, FEATURES.index("map")]
    on = x[:, FEATURES.index("last_vasopressor_2")] > 0
    septic = x[:, FEATURES.index("lactate")] > lactate
    pressor = np.where(septic & (pressure - 11 * on < septic_below), 2, 0)
    bolus = np.where(~septic & (pressure < dry_below), 1, 0)
    return np.asarray(4 * bolus + pressor)


def true_value(
    policy: Any = None,
    preparation: Preparation | None = None,
    *,
    gamma: float,
    stays: int = 2000,
    seed: int = 0,
    reward: Reward = "published",
    costs: Costs | None = None,
) -> tuple[float, float]:
    """The value ρ(π) of a policy for simulated patients, found by playing it.

    To compare policies, give all calls the same costs: those that the preparation does not bring
    are given as `costs`.

    Args:
        policy: Any policy over the 29 features: one that defers (the clinician acts there), one
            with probabilities, a function like `best_treatment`, or None (default) for the
            clinician.
        preparation: The preparation that the policy's log was made with; a fitted policy needs it.
            Default None.
        gamma: Discount per hour, in (0, 1].
        stays: Number of stays to play, at least 2. Default 2,000.
        seed: Seed of the patients; they differ from those of tables simulated with the same seed.
            Default 0.
        reward: "published" (default), in which a stay that ends early loses hours, whatever the
            policy learned from; or "shortfall", the same minus 1 for every decision, to which an
            early end is no loss.
        costs: What treatment costs; subtracted from the reward. Default None: the costs of the
            preparation, and nothing where there is no preparation. `Costs(0, 0)`: nothing.

    Returns:
        The mean return and its standard error.

    Raises:
        ParameterError: There are fewer than 2 stays, `gamma` is not in (0, 1], `reward` or `costs`
            is none of these, or a fitted policy comes without preparation, or with one whose levels
            of treatment are not those of the simulation.

    Example:
        >>> usual, _ = true_value(gamma=0.99, stays=50)
        >>> best, _ = true_value(best_treatment, gamma=0.99, stays=50)
        >>> usual < best
        True
        >>> usual, _ = true_value(gamma=0.99, stays=50, costs=Costs())
        >>> frugal, _ = true_value(frugal_treatment, gamma=0.99, stays=50, costs=Costs())
        >>> usual < frugal < best
        True
    """
    stays, gamma, seed = check_whole("stays", stays, 2), check_gamma(gamma), check_seed(seed)
    check_choice("reward", reward, get_args(Reward))
    check_costs(costs)
    if costs is None and preparation is not None:
        costs = preparation.costs
    if policy is None:
        choose = usual_treatment
    elif hasattr(policy, "probabilities"):
        if preparation is None:
            raise ParameterError(
                "a fitted policy needs the preparation its log was made with.",
                do="Pass prepare(...).preparation.",
            )
        _check_levels(preparation)
        choose = _ask(policy, preparation)
    else:
        choose = policy
    less = 1.0 if reward == "shortfall" else 0.0
    G = play(stays, seed + 1_000_003, choose).returns(gamma, less=less, costs=costs)
    return float(G.mean()), float(G.std() / np.sqrt(stays))


def _check_levels(preparation: Preparation) -> None:
    """Refuse a preparation in which a level is another dose than in the simulation.

    A policy learned with such levels would be played with doses that it did not mean.
    """
    doses = 60 * RATES[1:, None] * [0.8, 1.2]  # (3, 2), mcg/kg in an hour: lowest and highest
    for what, given, edges in (
        ("vasopressor", doses, preparation.vasopressor_edges),
        ("bolus", BOLUS_ML[1:, None], preparation.bolus_edges),
    ):
        level = 1 + np.searchsorted(edges, given)  # an edge belongs to the level below it
        if (level != np.array([[1], [2], [3]])).any():
            raise ParameterError(
                f"the edges of the {what} levels, {edges}, are not those of the simulation.",
                do="Prepare with edges='published' and the published cohort.",
            )


def _ask(policy: Any, preparation: Preparation) -> Any:
    """A fitted policy as a function that treats, for `play`; missing features become medians."""
    codes = np.array([ACTIONS.index(label) for label in policy.actions])
    medians = np.array([preparation.medians[name] for name in RAW])
    measured = [FEATURES.index(name) for name in RAW]

    def choose(x: Floats, stays: Ints, rng: np.random.Generator) -> Ints:
        usual = usual_treatment(x, stays, rng)
        filled = x.copy()
        filled[:, measured] = np.where(np.isnan(x[:, measured]), medians, x[:, measured])
        if not is_drawn(policy):
            said = policy.at(filled)
            for _ in range(ASKED_AGAIN):
                again = (said.avoid >= 0) & (usual == codes[said.avoid])
                if not again.any():
                    break
                usual = np.where(again, usual_treatment(x, stays, rng), usual)
            return np.asarray(np.where(said.choice >= 0, codes[said.choice], usual))
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
    """Write tables in the layout of MIMIC-IV, of invented patients.

    One stay in twelve is the second stay of a patient. The tables also hold a tenth as many stays
    without low pressure, which the cohort leaves out.

    Args:
        out: A new folder, or one of earlier simulated tables; it gets `icu/`, `hosp/` and a file
            that says that the patients are invented.
        stays: Number of stays with low pressure, at least 2. Default 2,000.
        seed: Seed of everything random, at least 0. Default 0.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The settings, and the number of rows of each table.

    Raises:
        ParameterError: `stays` or `seed` is too small.
        LogError: The folder holds other files: real tables are never overwritten.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     made = simulate(folder, stays=12, seed=0)
        >>> made["stays"], made["tables"]["icu/icustays.csv"]
        (12, 13)
    """
    stays, seed = check_whole("stays", stays, 2), check_seed(seed)
    folder = Path(out)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise LogError(
            f"{str(folder)!r} is not empty and holds no simulated tables.",
            do="Name a new folder: real tables are never overwritten.",
        )
    report = progress or (lambda stage, share: None)
    report("playing", 0.0)
    twins = np.arange(stays)
    twins[11::12] = twins[11::12] - 1
    sick = play(stays, seed, usual_treatment, twins=twins, keep=True)
    well = play(max(1, stays // 10), seed + 1, usual_treatment, low=False, keep=True)
    tables = _tables(sick, well, twins, np.random.default_rng([seed, 4]))
    for name, data in tables.items():
        report(f"writing {name}", 0.5)
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        _write(data, place)
    rows = {name: len(next(iter(data.values()))) for name, data in tables.items()}
    facts = {"simulated": True, "stays": stays, "seed": seed, "tables": rows}
    import json

    with replacing(folder / MARK) as part:
        part.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


def _write(data: dict[str, NDArray[Any]], path: Path) -> None:
    """Write a table (column → values) as CSV or Parquet, by the ending of the path."""
    style = "FORMAT csv, HEADER" if path.suffix == ".csv" else "FORMAT parquet, COMPRESSION zstd"
    with replacing(path) as part, connect(folders=[part.parent]) as con:
        con.register("data", data)
        con.execute(f"COPY (SELECT * FROM data) TO {quoted(str(part), chr(39))} ({style})")


def _tables(
    sick: Played, well: Played, twins: Ints, rng: np.random.Generator
) -> dict[str, dict[str, NDArray[Any]]]:
    """All tables: file name → column name → values.

    Args:
        sick: The stays with low pressure.
        well: The stays without.
        twins: int64, for each stay of `sick` the number of the stay whose patient it shares.
        rng: The random generator for dates and ages.

    Returns:
        The tables.
    """
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
    """Everything charted during the stay and in the hour before it, one row per value.

    `who` holds the columns stay_id, subject_id, hadm_id and intime of the stays.
    """
    parts: dict[str, list[NDArray[Any]]] = {}
    minute = np.timedelta64(60, "s")
    for event in played.events:
        charted = ~np.isnan(event.value) & (event.hour + event.minute / 60 < played.ends)
        rows = np.flatnonzero(charted)
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
    """The infusions, one row per hour, and the boluses; `who` is as for `_events`.

    A bolus begins five minutes after the hour; the largest is given in two bags.
    """
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


# --- How far simple policies come in the simulation: one treatment for all, and one feature
#
# A simulated study says something about a learner only if simple policies fail in it. Two of them
# are measured here: the same treatment for everybody, and a rule that looks at a single feature.
# With `Costs()`, the first comes 15 % of the way from usual practice to `frugal_treatment` and the
# second 70 %; two features, lactate and pressure, come more than 90 % of it.

SCREENED = (0.25, 0.5, 0.75)
"""Quantiles of a feature at which it is cut at first."""

REFINED = (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Quantiles that are tried besides, for the best features."""

TREATMENTS, KEPT = 6, 4
"""How many treatments the first search uses, and how many features the second."""


@dataclass(frozen=True)
class FeatureRule:
    """A policy that looks at one feature: one treatment up to a limit, another above it.

    Attributes:
        feature: A name of `FEATURES`.
        limit: In the feature's unit.
        below: Code of the treatment (0 to 15, see `ACTIONS`) where the feature is at most `limit`.
        above: Code of the treatment elsewhere, also where the feature was never charted.

    Example:
        >>> rule = FeatureRule("map", 62.0, 6, 0)
        >>> print(rule)
        map at most 62: bolus 1, vasopressor 2; else: bolus 0, vasopressor 0
        >>> true_value(rule, gamma=0.99, stays=50) > true_value(gamma=0.99, stays=50)
        True
    """

    feature: str
    limit: float
    below: int
    above: int

    def __call__(self, x: Floats, stays: Ints, rng: np.random.Generator) -> Ints:
        """Treat: features float64 (k, 29), stays and generator not used → codes, int64 (k,)."""
        at_most = x[:, FEATURES.index(self.feature)] <= self.limit
        return np.asarray(np.where(at_most, self.below, self.above))

    def __str__(self) -> str:
        return (
            f"{self.feature} at most {self.limit:g}: {ACTIONS[self.below]}; "
            f"else: {ACTIONS[self.above]}"
        )


@dataclass(frozen=True)
class Yardstick:
    """A simple policy and what it is worth.

    Attributes:
        text: What it does, in words.
        policy: The function that treats; `true_value` takes it.
        value: Its true value.
        error: Standard error of the value.

    Example:
        >>> best_constant(gamma=0.99, stays=50, costs=Costs()).text
        'bolus 0, vasopressor 0'
    """

    text: str
    policy: Choose
    value: float
    error: float


def _constant(action: int) -> Choose:
    """The policy that gives everybody this treatment."""

    def choose(x: Floats, stays: Ints, rng: np.random.Generator) -> Ints:
        return np.full(len(x), action)

    return choose


def _constant_values(gamma: float, costs: Costs | None, stays: int, seed: int) -> Floats:
    """The value of each of the 16 treatments, given to everybody, float64 (16,)."""
    play_it = partial(true_value, gamma=gamma, stays=stays, seed=seed, costs=costs)
    return np.array([play_it(_constant(a))[0] for a in range(len(ACTIONS))])


def best_constant(
    *, gamma: float, stays: int = 2000, seed: int = 0, costs: Costs | None = None
) -> Yardstick:
    """The best of the 16 treatments if everybody gets it every hour; all are played.

    Args:
        gamma: Discount per hour, in (0, 1].
        stays: Number of stays to play for each treatment, at least 2. Default 2,000.
        seed: Seed of the patients. Default 0.
        costs: What treatment costs. Default None: nothing.

    Returns:
        The treatment and its value, for these patients.

    Raises:
        ParameterError: A parameter is out of range.

    Example:
        >>> best_constant(gamma=0.99, stays=50).text  # where treatment costs nothing
        'bolus 1, vasopressor 2'
    """
    action = int(np.argmax(_constant_values(gamma, costs, stays, seed)))
    value, error = true_value(_constant(action), gamma=gamma, stays=stays, seed=seed, costs=costs)
    return Yardstick(ACTIONS[action], _constant(action), value, error)


def best_feature_rule(
    *,
    gamma: float,
    stays: int = 2000,
    seed: int = 0,
    costs: Costs | None = None,
    features: Sequence[str] = FEATURES,
    search: int = 600,
    progress: Progress | None = None,
) -> Yardstick:
    """The best rule found that looks at one feature and gives one of two treatments.

    Rules are searched on patients of another seed, so the value is not flattered by the search.
    First every feature is cut at its quartiles under usual practice, and the treatments of the two
    sides are improved in turn, among the six that are worth most when given to everybody. Then for
    the four best features more limits are tried, and all 16 treatments on both sides. Of these four
    rules the best one is chosen with as many stays as it is then played with. This is no proof that
    there is no better rule of this kind.

    Args:
        gamma: Discount per hour, in (0, 1].
        stays: Number of stays that the rule found is played with, at least 2. Default 2,000.
        seed: Seed of the patients; the search uses patients of `seed` + 1. Default 0.
        costs: What treatment costs. Default None: nothing.
        features: Names of `FEATURES` that are tried. Default: all 29.
        search: Number of stays that each rule is played with in the search, at least 2. Default
            600.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The rule and its value.

    Raises:
        ParameterError: A parameter is out of range, or a feature does not exist.

    Example:
        >>> best = best_feature_rule(gamma=0.99, stays=50, search=20, features=["alt_ever"])
        >>> best.text
        'alt_ever at most 0: ...; else: ...'
    """
    unknown = [name for name in features if name not in FEATURES]
    if unknown or not features:
        raise ParameterError(
            f"features must be names of the 29 features; got {list(features)!r}.",
            "" if not unknown else f"first: {unknown[0]!r}",
            do="They are in dprl.icu.FEATURES.",
        )
    seed, search = check_seed(seed), check_whole("search", search, 2)
    tried: dict[FeatureRule, float] = {}

    def value(rule: FeatureRule) -> float:
        """The value of a rule in the search; each is played once."""
        if rule not in tried:
            tried[rule] = true_value(rule, gamma=gamma, stays=search, seed=seed + 1, costs=costs)[0]
        return tried[rule]

    def improve(rule: FeatureRule, treatments: Sequence[int]) -> FeatureRule:
        """Change the treatment of one side after the other, until that brings nothing."""
        while True:
            before = value(rule)
            for side in ("above", "below"):
                fixed = {k: getattr(rule, k) for k in ("feature", "limit", "above", "below")}
                rule = max((FeatureRule(**{**fixed, side: a}) for a in treatments), key=value)
            if value(rule) <= before:
                return rule

    report = progress or (lambda stage, share: None)
    constants = np.argsort(-_constant_values(gamma, costs, search, seed + 1)).tolist()
    charted = play(search, seed + 1, usual_treatment, keep=True)
    best: list[FeatureRule] = []
    for i, name in enumerate(features):
        report("features", i / len(features))
        rules = [
            improve(FeatureRule(name, limit, constants[0], constants[0]), constants[:TREATMENTS])
            for limit in _limits(charted.features, charted.action, name, SCREENED)
        ]
        best += [max(rules, key=value)] if rules else []
    best = sorted(best, key=value, reverse=True)[:KEPT]
    for i, first in enumerate(best):
        report("limits", i / len(best))
        more = _limits(charted.features, charted.action, first.feature, REFINED)
        others = [FeatureRule(first.feature, limit, first.below, first.above) for limit in more]
        best[i] = improve(max([first, *others], key=value), range(len(ACTIONS)))
    play_it = partial(true_value, gamma=gamma, stays=stays, costs=costs)
    chosen = max(best, key=lambda rule: play_it(rule, seed=seed + 1)[0])
    worth, error = play_it(chosen, seed=seed)
    return Yardstick(str(chosen), chosen, worth, error)


def _limits(
    features: Floats | None, action: Ints, name: str, quantiles: Sequence[float]
) -> list[float]:
    """Where to cut a feature: at quantiles of its charted values, none at the largest value."""
    assert features is not None  # played with keep=True
    values = features[..., FEATURES.index(name)][action >= 0]
    values = values[~np.isnan(values)]
    if not len(values):
        return []
    cuts = np.unique(np.quantile(values, quantiles, method="lower"))
    if set(np.unique(values).tolist()) <= {0.0, 1.0}:  # yes or no
        cuts = np.array([0.0])
    return [float(cut) for cut in cuts if cut < values.max()]
