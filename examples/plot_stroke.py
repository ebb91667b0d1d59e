"""
Rules from a trial
==================

A trial of the shape of the International Stroke Trial: aspirin by lot, what was known before, and
who lived independently six months later. The patients are invented. Aspirin truly helps where the
pressure is above 160, and harms elsewhere. ``Rules`` finds sentences on one half of the patients
and certifies them on the other. A third part, which it never saw, judges the whole.
"""

import numpy as np
import pandas as pd

import dprl

rng = np.random.default_rng(0)
n = 6000
patients = pd.DataFrame({
    "patient": np.arange(n),
    "age": rng.normal(72, 11, n).clip(30, 99).round(),
    "drowsy": (rng.random(n) < 0.23).astype(int),
    "pressure": rng.normal(160, 27, n).clip(80, 260).round(),
    "drug": rng.choice(["aspirin", "none"], n, p=[0.4, 0.6]),
})
aspirin = patients.drug == "aspirin"
patients["chance"] = np.where(aspirin, 0.4, 0.6)
effect = np.where(patients.pressure > 160, 0.25, -0.15) * aspirin
well = 0.62 - 0.011 * (patients.age - 72) - 0.25 * patients.drowsy + effect
patients["independent"] = (rng.random(n) < well).astype(float)

log = dprl.from_frame(
    patients, episode="patient", state=["age", "drowsy", "pressure"], action="drug",
    reward="independent", propensity="chance",
)
train, test = log.split(0.6, seed=0)
policy = dprl.Rules(gamma=1.0).fit(train)

# %%
# The rules as a tree. Grey leaves defer.

tree = dprl.figures.rule_tree(policy)

# %%
# What each rule brought over doing otherwise, on the half that certified it.

changes = dprl.figures.forest(policy)

# %%
# And what the rules are worth on patients that had no part in any of this.

result = dprl.evaluate(policy, test, draws=500)
row = result["DR"]
print(f"{row['difference']:+.3f} ({row['difference_low']:+.3f} to {row['difference_high']:+.3f})")
