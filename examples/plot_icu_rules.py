"""
Intensive care by rules
=======================

An invented ward: 1,500 patients with low pressure, each decided about three times. Septic patients
(high lactate) need a vasopressor, dry ones need fluid. The clinicians look mostly at the pressure.
``Rules`` proposes sentences on one half of the patients, and issues those that hold on the other
half. Patients are groups: all decisions about one are in the same half, and count together.
"""

import numpy as np

import dprl

rng = np.random.default_rng(3)
patients = 1500
patient = np.repeat(np.arange(patients), 3)
septic = np.repeat(rng.random(patients) < 0.45, 3)
lactate = np.where(septic, rng.gamma(9, 0.42, len(patient)), rng.gamma(6, 0.26, len(patient)))
pressure = rng.normal(58, 6, len(patient))
urine = rng.gamma(3, 12, len(patient))
age = np.repeat(rng.normal(66, 13, patients), 3)

# What clinicians do: the lower the pressure, the more often a vasopressor.
odds = np.stack([np.full(len(patient), 0.6), np.full(len(patient), 0.2),
                 (62 - pressure) / 12 - 0.4], axis=1)
chance = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
action = (chance.cumsum(axis=1) > rng.random((len(patient), 1))).argmax(axis=1)
names = np.array(["fluid", "watch", "vasopressor"])

# What comes of it: hours with a good pressure until the next decision.
helps = np.where(septic, (action == 2) * 1.6 - (action == 0) * 0.3, (action == 0) * 1.2)
hours = 2.5 + helps + 0.04 * (pressure - 58) - 0.25 * (lactate - 2) + rng.normal(0, 1, len(patient))

log = dprl.from_arrays(
    episode=patient, state=np.stack([pressure, lactate, urine, age], axis=1), action=names[action],
    reward=hours, feature_names=["pressure", "lactate", "urine", "age"],
)
policy = dprl.Rules(gamma=1.0, depth=1, folds=3, splits=1, lam=0.0).fit(log)

# sphinx_gallery_thumbnail_number = 2

# %%
# The rules as a tree: the cut on lactate is found, and the sides want different treatments.

tree = dprl.figures.rule_tree(policy)

# %%
# The same as a map over two features.

where = dprl.figures.policy_map(policy, log, features=["lactate", "pressure"], steps=26)

# %%
# And as sentences.

print("\n".join(policy.sentences()))
