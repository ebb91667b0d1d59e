"""
How strong must an unrecorded cause be?
=======================================

A drug does nothing. The young get it more often, and the young recover more often. Age is not in
the state, but the table has it. Three looks at the same policy: its estimated gain is wrong; the
balance table points at age; and the bounds say how strong such a cause must be to explain the gain
away.
"""

import numpy as np
import pandas as pd

import dprl

rng = np.random.default_rng(0)
n = 4000
age = rng.normal(70, 10, n)
young = 1 / (1 + np.exp((age - 70) / 5))
drug = rng.random(n) < 0.15 + 0.5 * young
patients = pd.DataFrame({
    "patient": np.arange(n), "situation": rng.choice(["mild", "severe"], n),
    "drug": np.where(drug, "drug", "none"), "age": age.round(),
    "home": (rng.random(n) < 0.25 + 0.5 * young).astype(float),
})
log = dprl.from_frame(
    patients, episode="patient", state="situation", action="drug", reward="home", also=["age"]
)
train, test = log.split(0.5, seed=0)
policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(train)
result = dprl.evaluate(policy, test, draws=500)
print(f"estimated gain {result['DR']['difference']:+.3f}; the truth is 0")

# sphinx_gallery_thumbnail_number = 2

# %%
# Those who took the suggestion were younger, and weighting cannot repair what the state does not
# hold.

who = dprl.figures.balance(result)

# %%
# The gain could be none from Γ* on. Hiding age alone would be about as strong as the right panel
# says: so this gain is not to be believed.

bounds = dprl.figures.sensitivity(
    dprl.sensitivity(policy, test, gamma=[1, 1.25, 1.5, 2, 3], draws=200)
)
