r"""A small model of patients with low blood pressure, for whom the best treatment is known.

A patient is *septic* (vessels too wide, high lactate) or *dry* (too little fluid, low lactate).
The mean arterial pressure (MAP, mmHg) in hour t follows from the treatment of the hour before,
bolus level b and vasopressor level v:

    base   from hour 7 moves .02 of the way towards 84 mmHg, plus noise          (shock resolves)
    pool   .75 · pool + fluid(kind, b)                                           (fluid leaks away)
    MAP    = base + pool + pressor(kind, v) + noise

    pressor  septic 0, 3, 11, 5     dry 0, -2, -4, -6       (mmHg by level)
    fluid    septic 0, -1, -2, -4   dry 0, 4, 5, -1

So for a septic patient vasopressor level 2 is best and fluid harms; for a dry patient a bolus of
level 1 or 2 is best and vasopressors harm. The simulated clinician looks at the last charted
pressure and the last vasopressor level, and nearly always starts with too low a level. Low pressure
reduces urine and raises lactate; below 50 mmHg a patient dies with probability 2 % per hour.

All n stays are played hour by hour at the same time. The random numbers do not depend on the
treatment, so two policies meet the same patients. `Chart` holds what has been charted so far and
computes the 29 features of `dprl_studies.icu` hour by hour. It is independent of the SQL that
computes them from tables, so the two can be compared.
"""

from __future__ import annotations

# Apart: the true model of patients, kept from the tables that are made with it.
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dprl._core.arrays import Bools, Floats, Ints
from dprl_studies.icu.dictionary import FEATURES, RAW, Costs
from dprl_studies.icu.stays import Cohort

Choose: TypeAlias = Callable[[Floats, Ints, np.random.Generator], Ints]
"""A function that treats: (features, stays, random generator) → actions.

Features are float64 (k, 29), with NaN for what was never charted; stays are int64 (k,), their
numbers; actions are int64 (k,), 4 times the level of bolus plus the level of vasopressor.
"""

PRESSOR = np.array([[0.0, 3.0, 11.0, 5.0], [0.0, -2.0, -4.0, -6.0]])
FLUID = np.array([[0.0, -1.0, -2.0, -4.0], [0.0, 4.0, 5.0, -1.0]])
"""Effect on the pressure in mmHg, (2, 4): kind of patient (septic, dry), level of treatment."""

RATES = np.array([0.0, 0.08, 0.25, 0.5])
"""Norepinephrine in mcg/kg/min by level; the rate of an hour is up to 20 % more or less."""

BOLUS_ML = np.array([0.0, 500.0, 1000.0, 1500.0])
"""Volume of a bolus in mL, by level."""

MINUTES = (12, 42)
"""Minutes of an hour at which pressures are charted."""

FIRST = (3, 9, 15, 21, 27, 33, 39, 45, 51)
"""The same in the first hour: more often, so that the stay has enough low pressures."""


@dataclass(frozen=True, eq=False)
class Event:
    """One charted quantity, at the same time in many stays.

    Attributes:
        hour: Whole hours since the beginning of the stays; -1 is the hour before.
        minute: Minute of the hour.
        concept: What is charted, such as "map" or "lactate".
        value: float64 (n,), in the unit of the concept; NaN for stays in which it is not charted.
    """

    hour: int
    minute: int
    concept: str
    value: Floats


class Chart:
    """What has been charted and given so far in n stays.

    Args:
        n: Number of stays.

    Example:
        >>> chart = Chart(1)
        >>> chart.put(Event(0, 12, "map", np.array([58.0])))
        >>> chart.turn()
        >>> float(chart.features()[0, FEATURES.index("map")])
        58.0
    """

    def __init__(self, n: int) -> None:
        names = (*RAW, "gcs_eye", "gcs_verbal", "gcs_motor")
        self.last: dict[str, Floats] = {name: np.full(n, np.nan) for name in names}
        self.urine, self.fresh = np.full(n, np.nan), np.zeros(n, bool)  # of the hour being charted
        self.since = {"urine": np.zeros(n, bool), "gcs": np.zeros(n, bool)}
        self.given: list[tuple[Floats, Floats]] = []
        self.levels = (np.zeros(n, np.int64), np.zeros(n, np.int64))

    def put(self, event: Event) -> None:
        """Add what is charted now; call `turn` at the end of each hour."""
        charted = ~np.isnan(event.value)
        if event.concept == "urine":
            self.urine = np.where(charted, np.nansum([self.urine, event.value], axis=0), self.urine)
            return
        if event.concept.startswith("gcs"):
            self.fresh |= charted
        self.last[event.concept] = np.where(charted, event.value, self.last[event.concept])

    def turn(self) -> None:
        """End the hour: its urine is added up, and the next hour begins with nothing charted."""
        charted = ~np.isnan(self.urine)
        self.last["urine"] = np.where(charted, self.urine, self.last["urine"])
        self.since = {"urine": charted, "gcs": self.fresh}
        self.urine, self.fresh = np.full(len(charted), np.nan), np.zeros(len(charted), bool)

    def give(self, bolus: Ints, pressor: Ints, ml: Floats, dose: Floats) -> None:
        """Record the treatment of an hour.

        Args:
            bolus: int64 (n,), level of bolus, 0 to 3.
            pressor: int64 (n,), level of vasopressor, 0 to 3.
            ml: float64 (n,), volume of the boluses in mL.
            dose: float64 (n,), vasopressor in mcg/kg.
        """
        self.levels = (bolus, pressor)
        self.given.append((ml, dose))

    def features(self) -> Floats:
        """The features, float64 (n, 29), in the order of `FEATURES`; NaN if never charted."""
        n = len(self.fresh)
        gcs = self.last["gcs_eye"] + self.last["gcs_verbal"] + self.last["gcs_motor"]
        columns: dict[str, Any] = {**self.last, "gcs": gcs}
        for name in ("fio2", "lactate", "alt", "ast", "creatinine", "po2"):
            columns[f"{name}_ever"] = ~np.isnan(self.last[name])
        for name, flag in self.since.items():
            columns[f"{name}_since"] = flag
        for what, levels in zip(("bolus", "vasopressor"), self.levels, strict=True):
            for k in (1, 2, 3):
                columns[f"last_{what}_{k}"] = levels == k
        zero = np.zeros(n)
        for what, i in (("bolus", 0), ("vasopressor", 1)):
            columns[f"total_{what}"] = sum((g[i] for g in self.given), zero)
            columns[f"total_{what}_8h"] = sum((g[i] for g in self.given[-8:]), zero)
        return np.column_stack([np.asarray(columns[name], np.float64) for name in FEATURES])


def clinician(x: Floats) -> Floats:
    """The treatment policy of the simulated clinician.

    It depends on the last pressure and the last vasopressor level only: the clinician does not know
    whether the patient is septic or dry.

    Args:
        x: float64 (k, 29), the features, in the order of `FEATURES`.

    Returns:
        float64 (k, 16), the probability of each action.

    Example:
        >>> x = np.zeros((1, len(FEATURES)))
        >>> x[0, FEATURES.index("map")] = 58.0
        >>> pi = clinician(x)
        >>> pi.shape, round(float(pi[0, 0]), 3)  # nothing is given, though the pressure is low
        ((1, 16), 0.407)
    """
    low = x[:, FEATURES.index("map")] < 65
    levels = [x[:, FEATURES.index(f"last_vasopressor_{k}")] for k in (1, 2, 3)]
    last_level = (levels[0] + 2 * levels[1] + 3 * levels[2]).astype(np.int64)
    step = np.array([[0.55, 0.35, 0.08, 0.02], [0.10, 0.62, 0.22, 0.06],
                     [0.03, 0.17, 0.65, 0.15], [0.02, 0.08, 0.30, 0.60]])  # fmt: skip
    rest = np.array([[0.97, 0.02, 0.01, 0.00], [0.45, 0.52, 0.03, 0.00],
                     [0.15, 0.40, 0.43, 0.02], [0.05, 0.25, 0.40, 0.30]])  # fmt: skip
    pressor = np.where(low[:, None], step[last_level], rest[last_level])
    bolus = np.where(low[:, None], [0.74, 0.17, 0.07, 0.02], [0.97, 0.025, 0.005, 0.0])
    return np.asarray((bolus[:, :, None] * pressor[:, None, :]).reshape(len(x), 16))


def reward_of(pressure: Floats, urine: Floats) -> Floats:
    """The reward of an hour.

    Args:
        pressure: float64 (n,), mean arterial pressure at the end of the hour, mmHg.
        urine: float64 (n,), urine of the hour, mL; NaN if none was charted.

    Returns:
        float64 (n,), between 0 and 1: 1 for a pressure of 65 mmHg or more, less below; and 1 for a
        pressure of 55 mmHg or more with at least 30 mL of urine.

    Example:
        >>> reward_of(np.array([70.0, 57.5, 57.5]), np.array([np.nan, 10.0, 40.0])).tolist()
        [1.0, 0.9, 1.0]
    """
    line = 1 + np.interp(pressure, [40, 55, 60, 65], [-1, -0.15, -0.05, 0])
    well = (pressure >= 55) & (np.nan_to_num(urine, nan=0.0) >= 30)
    return np.asarray(np.where(well, 1.0, line))


@dataclass(frozen=True, eq=False)
class Played:
    """What happened in n simulated stays of at most T hours.

    Attributes:
        hours: int64 (n,), number of whole hours before the patient left or died, at most T.
        ends: float64 (n,), length of the stay in hours.
        died: bool (n,), whether the stay ended with death.
        septic: bool (n,), whether the patient is septic; else dry.
        action: int64 (n, T), the treatment of each hour (0 to 15), -1 after the end of the stay.
        ml: float64 (n, T), boluses of each hour, mL.
        rate: float64 (n, T), norepinephrine in each hour, mcg/kg/min.
        reward: float64 (n, T), the reward of each decision; NaN where there is no decision.
        features: float64 (n, T, 29), the features before each hour, NaN if never charted; None
            unless `play` was asked to keep them.
        events: What was charted, in order of time; empty unless `play` was asked to keep it.

    Example:
        >>> from dprl_studies.icu.simulation import usual_treatment
        >>> played = play(20, 0, usual_treatment)
        >>> played.action.shape, played.features is None
        ((20, 72), True)
    """

    hours: Ints
    ends: Floats
    died: Bools
    septic: Bools
    action: Ints
    ml: Floats
    rate: Floats
    reward: Floats
    features: Floats | None
    events: list[Event]

    def returns(self, gamma: float, *, less: float = 0.0, costs: Costs | None = None) -> Floats:
        """The discounted return of each stay.

        Args:
            gamma: Discount per hour.
            less: What is subtracted from the reward of every decision. Default 0.
            costs: What treatment costs. Default None: nothing.

        Returns:
            float64 (n,), the returns.

        Example:
            >>> from dprl_studies.icu.simulation import usual_treatment
            >>> played = play(20, 0, usual_treatment)
            >>> bool((played.returns(0.99, costs=Costs()) <= played.returns(0.99)).all())
            True
        """
        discount = gamma ** np.arange(self.reward.shape[1])
        reward = self.reward - less
        if costs is not None:
            reward = reward - costs.of(self.action)  # NaN where there is no decision
        return np.asarray((np.nan_to_num(reward, nan=0.0) * discount).sum(axis=1))


def play(
    n: int,
    seed: int,
    choose: Choose,
    *,
    twins: Ints | None = None,
    low: bool = True,
    keep: bool = False,
) -> Played:
    """Simulate n stays, treated by `choose`.

    Args:
        n: Number of stays.
        seed: Seed of the patients and of everything random in their stays.
        choose: The function that treats; it is called once per hour, for the stays that go on.
        twins: int64 (n,): the number of the stay whose patient this stay shares (kind of patient
            and creatinine are the same). Default None: every stay has a patient of its own.
        low: Whether the patients have low pressure. Default True; False simulates others, which the
            cohort leaves out.
        keep: Whether to keep features and charted events. Default False.

    Returns:
        What happened in the stays.

    Example:
        >>> from dprl_studies.icu.simulation import best_treatment, usual_treatment
        >>> usual, best = (play(50, 0, choose) for choose in (usual_treatment, best_treatment))
        >>> bool((usual.septic == best.septic).all())  # the same patients
        True
        >>> bool(usual.returns(0.99).mean() < best.returns(0.99).mean())
        True
    """
    T = Cohort().horizon
    rng, act_rng = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    person = np.arange(n) if twins is None else twins
    septic = (rng.random(n) < 0.6)[person]
    kind = np.where(septic, 0, 1)
    ventilated = rng.random(n) < 0.6
    creatinine = rng.gamma(6, 0.2, n)[person] + 0.3
    liver = rng.lognormal(3.4, 0.5, n)
    planned = np.minimum(rng.uniform(20, 130, n), 1e3)
    base = rng.normal(53, 3, n) if low else rng.normal(84, 3, n)
    lactate = np.where(septic, rng.normal(4.2, 0.8, n), rng.normal(1.5, 0.3, n)).clip(0.5, 20)
    pool = np.zeros(n)
    chart, events = Chart(n), []
    action = np.full((n, T), -1, np.int64)
    ml, rate, reward = np.zeros((n, T)), np.zeros((n, T)), np.full((n, T), np.nan)
    features = np.zeros((n, T, len(FEATURES))) if keep else None
    ends, died = planned.copy(), np.zeros(n, bool)

    def put(hour: int, minute: int, concept: str, value: Floats, digits: int = 0) -> None:
        """Chart a value, rounded to so many digits."""
        event = Event(hour, minute, concept, np.round(value, digits))
        chart.put(event)
        if keep:
            events.append(event)

    def only(mask: Any, value: Any) -> Floats:
        """The value where the mask is true, else NaN: not charted."""
        return np.where(mask, value, np.nan)

    for t in range(-1, T):
        if t >= 0:
            x = chart.features()
            if features is not None:
                features[:, t] = x
            on = ends >= t + 1  # this whole hour is theirs
            stays = np.flatnonzero(on)
            u = act_rng.random((n, 2))
            a = np.zeros(n, np.int64)
            if len(stays):
                a[stays] = choose(x[stays], stays, np.random.default_rng([seed, 3, t]))
            action[stays, t] = a[stays]
            ml[:, t] = np.where(on, BOLUS_ML[a // 4], 0)
            rate[:, t] = np.where(on, np.round(RATES[a % 4] * (0.8 + 0.4 * u[:, 0]), 4), 0)
        # What is charted in this hour: the treatment of the hour before has worked.
        before = action[:, t - 1].clip(0) if t >= 1 else np.zeros(n, np.int64)
        base = base + 0.02 * (84 - base) * (t > 6) + rng.normal(0, 1.0, n)
        pool = 0.75 * pool + FLUID[kind, before // 4]
        true = base + pool + PRESSOR[kind, before % 4]
        minutes = FIRST if t == 0 else MINUTES if t > 0 else (30,)
        for minute in minutes:
            pressure = true + rng.normal(0, 1.5, n)
            if t == 0 and low:
                pressure = np.minimum(pressure, 64)
            pressure = pressure.clip(20, 150)
            put(t, minute, "map", pressure)
            put(t, minute, "sbp", 1.35 * pressure + 6 + rng.normal(0, 3, n))
            put(t, minute, "dbp", 0.82 * pressure + rng.normal(0, 2, n))
        well = 1 / (1 + np.exp(-(true - 62) / 3))
        urine = rng.gamma(6, 1, n) * (3 + 7 * well)
        put(t, 55, "urine", only(rng.random(n) < 0.9, urine))
        lactate = lactate + 0.1 * (np.where(septic, 3.0, 1.3) + 2 * (1 - well) - lactate)
        if t % 6 == 5:
            put(t, 20, "lactate", lactate * rng.lognormal(0, 0.05, n), 1)
            put(t, 21, "po2", only(ventilated, rng.normal(95, 12, n).clip(40, 300)))
        if t % 24 == 23:
            put(t, 22, "creatinine", creatinine * rng.lognormal(0, 0.05, n), 1)
            put(t, 23, "alt", only(septic, liver * rng.lognormal(0, 0.1, n)).clip(1))
            put(t, 23, "ast", only(septic, 1.2 * liver * rng.lognormal(0, 0.1, n)).clip(1))
        if t % 4 == 3:
            awake = rng.random(n) < np.where(ventilated, 0.2, 0.85)
            put(t, 5, "gcs_eye", np.where(awake, 4.0, 3.0))
            put(t, 5, "gcs_verbal", np.where(ventilated, 1.0, np.where(awake, 5.0, 4.0)))
            put(t, 5, "gcs_motor", np.full(n, 6.0))
            put(t, 6, "fio2", only(ventilated, rng.choice([40.0, 50.0, 60.0], n)))
        if t >= 1:  # this hour is the outcome of the decision before it
            whole = ends >= t + 1
            reward[:, t - 1] = only(whole, reward_of(chart.last["map"], chart.urine))
        chart.turn()
        if t >= 0:
            levels = (a // 4, a % 4)
            chart.give(*levels, ml[:, t], rate[:, t] * 60)
            dies = (rng.random(n) < np.where(true < 50, 0.02, 0.0)) & (ends > t + 1.25) & (t > 1)
            died |= dies
            ends = np.where(dies, t + 1.25, ends)
    hours = np.minimum(np.floor(ends), T).astype(np.int64)
    return Played(hours, ends, died, septic, action, ml, rate, reward, features, events)
