"""Hours in intensive care, made up: 29 features with the habits of real ones.

Each habit below was measured on the open MIMIC-IV demo (61 stays with hypotension, 3,550 hours; a
rough hourly table of the 29 features, last value carried forward, then the median; features over
their standard deviation, weights on the squared difference). "Share": of the hours of *other* stays
within r = 10 of an hour. The generator imitates the habits of the features one by one; shares and
distances are not tuned, they come out. Made: 60 stays, four seeds.

    habit                                            measured           made
    hours in a stay                                  58                 58
    most frequent value: FiO2, ALT, GCS              .62 .44 .42        .54 .43 .52
    as an hour ago: FiO2, lactate, creatinine        .96 .93 .93        .96 .92 .95
    "ever recorded", mean: FiO2, lactate, ALT        .68 .94 .58        .71 .93 .58
    last vasopressor of level 1, 2, 3                .13 .10 .12        .11 .10 .13
    last bolus of level 1, 2, 3                      .043 .024 .008     .04 .02 .01
    total vasopressor 0, total bolus 0               .40 .20            .51 .23
    skewness: urine, ALT, AST, pO2                   8.3 5.5 8.2 2.3    8.5 5.4 7.9 7.0
    share within r = 10, mean                        .031               .021 to .033
      quartiles                                      .0003 .013 .054    .0003 .005 .033 to .051
      90 %, largest                                  .096 .19           .068 to .115, .13 to .21
    share of the hours of the own stay               .39                .32 to .36
    distance of two hours: 5 %, 50 %, 95 %           11.0 21.8 39.8     10.9 to 11.9, 22, 37 to 40
    variance in the first 4, 8, 16 principal axes    .40 .62 .90        .35 .57 .88

What matters to a search: half of the features are flags or drug doses that are mostly zero. A flag
that is rarely set has a small standard deviation, so with a weight of 15 two hours that differ in
"last action was a bolus of level 2" are farther apart than r, whatever else they share. Values are
carried forward, rounded, and skewed.
"""

from __future__ import annotations

import numpy as np

HOURS = 58
WEIGHT = np.array([15, 15, 15, 15, 15, 5, 5, 5, 5, 3, 3, 15, 10, 5, 5, 3, 3] + [15] * 10 + [5, 5])
"""FiO2, lactate, urine, mean pressure, GCS, ALT, AST, diastolic, systolic, creatinine, pO2; ever
recorded: FiO2, lactate, ALT, AST, creatinine, pO2; last vasopressor 1, 2, 3; last bolus 1, 2, 3;
total vasopressor, bolus, in the last 8 hours each; urine, GCS recorded since the last action."""


def drift(rng, stays, between, keep):
    """(stays, HOURS), standard normal: a level of the stay, and a drift of the given memory."""
    level, noise = rng.normal(size=(stays, 1)), rng.normal(size=(stays, HOURS))
    for h in range(1, HOURS):
        noise[:, h] = keep * noise[:, h - 1] + np.sqrt(1 - keep * keep) * noise[:, h]
    return np.sqrt(between) * level + np.sqrt(1 - between) * noise


def recorded(rng, stays, ever, late, every):
    """bool (stays, HOURS): hours with a new value; first ones late on average by so many hours."""
    first = np.where(rng.random(stays) < ever, rng.exponential(late, stays) - late / 2, np.inf)
    hour = np.arange(HOURS)
    new = (rng.random((stays, HOURS)) < 1 / every) & (hour > first[:, None])
    begins = np.clip(np.ceil(first), 0, HOURS)
    new[begins < HOURS, begins[begins < HOURS].astype(int)] = True
    return new


def carried(value, new, before):
    """The last recorded value, and `before` where there is none yet."""
    last = np.maximum.accumulate(np.where(new, np.arange(HOURS), -1), axis=1)
    return np.where(last >= 0, np.take_along_axis(value, np.maximum(last, 0), axis=1), before)


def in_last(amount, hours):
    """(stays, HOURS): what was given before every hour, in so many hours."""
    total = np.cumsum(amount, axis=1) - amount
    return total - np.pad(total, ((0, 0), (hours, 0)))[:, :HOURS] if hours < HOURS else total


def icu(rng, n):
    """States (n, 29) and r = 10; rows of a stay, HOURS each, follow each other."""
    S, hour = -(-n // HOURS), np.arange(HOURS)
    ill = rng.normal(size=(S, 1))

    def latent(between, keep, load):
        return load * ill + np.sqrt(1 - load * load) * drift(rng, S, between, keep)

    def skewed(x, middle, spread, tail):
        return np.exp(middle + spread * x + tail * np.maximum(x, 0) ** 2)

    # Vasopressors: 6 of 10 stays, on for long; a dose that drifts.
    may = ill + rng.normal(size=(S, 1)) > -0.36
    on = np.zeros((S, HOURS), bool)
    start, stop = rng.random((S, HOURS)), rng.random((S, HOURS))
    begins = rng.random(S) < 0.35
    for h in range(HOURS):
        before = on[:, h - 1] if h else begins
        on[:, h] = may[:, 0] & np.where(before, stop[:, h] > 0.030, start[:, h] < 0.040)
    dose = np.where(on, np.minimum(np.exp(2.4 + 1.15 * latent(0.4, 0.95, 0.4)), 105), 0.0)
    level = np.digitize(dose, [1e-9, 8.1, 21.58])
    # Boluses: round amounts, mostly in the first hours.
    rate = (0.036 + 0.2 * np.exp(-hour / 10)) * rng.gamma(1.2, 1 / 1.2, (S, 1))
    given = rng.random((S, HOURS)) < rate
    bolus = given * rng.choice([250, 350, 500, 700, 1000, 1500, 2000], (S, HOURS),
                               p=[.17, .06, .34, .06, .26, .07, .04])  # fmt: skip
    size = np.digitize(bolus, [1, 501, 1001])

    new = {
        "fio2": recorded(rng, S, 0.8, 8, 9),
        "lactate": recorded(rng, S, 0.955, 1.5, 12),
        "urine": recorded(rng, S, 1.0, 1, 1.7),
        "gcs": recorded(rng, S, 1.0, 1, 4),
        "vital": recorded(rng, S, 1.0, 0.5, 1.07),
        "liver": recorded(rng, S, 0.63, 3, 20),
        "creatinine": recorded(rng, S, 1.0, 2, 11),
        "po2": recorded(rng, S, 0.92, 4, 10),
    }
    pressure = latent(0.15, 0.4, -0.2)
    mean = 71 + 11.4 * pressure
    lower = 57 + 11.6 * (0.87 * pressure + 0.49 * latent(0.3, 0.3, 0.0))
    upper = 109 + 17 * (0.61 * pressure + 0.79 * latent(0.3, 0.4, 0.0))
    liver = latent(0.9, 0.98, 0.3)
    liver2 = 0.9 * liver + 0.44 * latent(0.9, 0.98, 0.0)
    air = np.array([30, 40, 40, 40, 50, 50, 60, 70, 80, 100])
    place = np.clip((4.5 + 2.3 * latent(0.5, 0.9, 0.4)).astype(int), 0, 9)
    coma = np.clip(np.round(15.4 - 6.8 * np.maximum(latent(0.7, 0.9, 0.4) + 0.2, 0)), 3, 15)
    value = [
        carried(air[place], new["fio2"], 40),
        carried(np.round(skewed(latent(0.5, 0.95, 0.5), 0.5, 0.5, 0.15), 1), new["lactate"], 1.7),
        carried(5 * np.round(skewed(latent(0.3, 0.5, -0.3), 4.2, 1.1, 0.15) / 5), new["urine"], 70),
        carried(np.round(mean), new["vital"], 70),
        carried(coma, new["gcs"], 14),
        carried(np.round(skewed(liver, 3.3, 1.0, 0.35)), new["liver"], 31),
        carried(np.round(skewed(liver2, 3.7, 1.0, 0.42)), new["liver"], 41),
        carried(np.round(lower), new["vital"], 56),
        carried(np.round(upper), new["vital"], 107),
        carried(np.round(np.exp(0.08 + 0.68 * latent(0.95, 0.98, 0.4)), 1), new["creatinine"], 0.9),
        carried(np.round(skewed(latent(0.5, 0.8, 0.0), 4.4, 0.5, 0.08)), new["po2"], 89),
    ]
    names = ("fio2", "lactate", "liver", "liver", "creatinine", "po2")
    value += [np.maximum.accumulate(new[name], axis=1) for name in names]
    for given_level in (level, size):
        last = np.pad(given_level, ((0, 0), (1, 0)))[:, :HOURS]
        value += [last == k for k in (1, 2, 3)]
    value += [in_last(dose, HOURS), in_last(bolus, HOURS), in_last(dose, 8), in_last(bolus, 8)]
    acted = np.pad((level > 0) | (size > 0), ((0, 0), (1, 0)))[:, :HOURS]
    last = np.maximum.accumulate(np.where(acted, hour - 1, -1), axis=1)
    for name in ("urine", "gcs"):
        seen = np.maximum.accumulate(np.where(new[name], hour, -2), axis=1)
        value.append(seen > last)
    x = np.stack(value, axis=-1).reshape(-1, 29)[:n].astype(float)
    return x / x.std(axis=0) * np.sqrt(WEIGHT), 10.0
