"""
A trial with a time to event: four arms, of which one is worse than the others
==============================================================================

The commonest table of medicine has a time and a status: days until the disease was worse, or until
somebody stopped looking. This one is made in the shape of a trial of four treatments for HIV, in
which more of those who dropped out early were ill, so that who is left is not like all. With
``survival`` and ``horizon`` it is read as it is; of who was censored nothing is taken for granted.
"""

import numpy as np
import pandas as pd

import dprl

rng, n = np.random.default_rng(5), 2000
arm = rng.integers(0, 4, n)
cd4 = rng.normal(350, 100, n).round()
two_years = np.array([0.70, 0.85, 0.86, 0.84])[arm]
ill = np.exp(-0.004 * (cd4 - 350))
until = rng.exponential(730 / (-np.log(two_years) * ill))
left = np.minimum(rng.exponential(3500 * np.exp(0.003 * (cd4 - 350))), rng.uniform(700, 1200, n))
table = pd.DataFrame(
    {
        "patient": range(n),
        "cd4": cd4,
        "symptoms": rng.choice(["no", "yes"], n, p=[0.8, 0.2]),
        "arm": np.array(["ZDV", "ZDV+ddI", "ZDV+ddC", "ddI"])[arm],
        "days": np.minimum(until, left).round() + 1,
        "status": (until <= left).astype(int),
    }
)
asked = {
    "episode": "patient", "state": ["cd4", "symptoms"], "action": "arm", "design": "randomised",
    "survival": ("days", "status"), "horizon": 730,
}  # fmt: skip
log = dprl.from_frame(table, **asked)
print(dprl.check(table, **asked))

# %%
# Kaplan-Meier curves by arm; the table has every number of them.

dprl.figures.curves(log)

# %%
# The study compares each arm with the lottery of all four, all intervals at once.

print(dprl.study(log, draws=500))

# %%
# Against the old treatment, the better arms are named, each with its interval.

print(dprl.effects(log, versus="ZDV"))
