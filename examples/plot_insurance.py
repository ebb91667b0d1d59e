"""
Real families: who pays for a visit to the doctor?
==================================================

The RAND Health Insurance Experiment gave families plans by lot: some paid nothing, others a part of
the bill. Its table comes with statsmodels (``randhie``; 20,190 years of people). How many visits to
doctors in a year does a plan with costs save, and for whom? The table does not say which years are
of one person, so every year counts as a person of its own, and the intervals are too short.
"""

import numpy as np
from statsmodels.datasets import randhie

import dprl

table = randhie.load_pandas().data
health = {"good": table["hlthg"] == 1, "fair": table["hlthf"] == 1, "poor": table["hlthp"] == 1}
table["health"] = np.select([*health.values()], [*health], "excellent")
table["plan"] = np.where(table["lncoins"] > 0, "share of the costs", "free")
table["year"] = np.arange(len(table))
log = dprl.from_frame(
    table, episode="year", state="health", action="plan", reward="mdvis", design="randomised",
    versus="free", outcome="visits to doctors", unit="a year", better="lower", also=(),
)  # fmt: skip

# %%
# For everyone, against care that is free.

print(dprl.effects(log))

# %%
# By health: the same plan in every group, and how sure each difference is.

policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
print(policy.changes())
policy.plot()

# %%
# Fewer visits are what was asked here, and no proof that anybody was as well: what is better is
# said by whoever asks, with ``better=``.

print(log.outcome.words())
