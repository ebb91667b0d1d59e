"""
The forest: how much does a larger log bring?
=============================================

One choice at the root is followed by long chains with few visits each. A learner that plans in a
model of the log has to learn every chain; DPRL compares whole returns at the root, and needs few
episodes. ``value_by_size`` fits the same learner on parts of a log. The world is known, so the
values are exact.
"""

import dprl

world = dprl.envs.forest()
log = world.sample(2000, seed=0)
sizes = [50, 100, 200, 500, 1000, 2000]

# %%
# DPRL: the value rises as soon as there are enough episodes to compare.

dprl_curve = dprl.figures.value_by_size(
    dprl.DPRLDiscrete(n_min=10, gamma=world.gamma), log, sizes=sizes, repeats=8, value=world.value
)

# %%
# The plain model of the log, for comparison: it answers everywhere, and is often wrong.

model_curve = dprl.figures.value_by_size(
    dprl.baselines.RL(gamma=world.gamma), log, sizes=sizes, repeats=8, value=world.value
)
print(f"usual practice {world.value():.3f}")
