"""
Real people: money for released prisoners
=========================================

432 men left the prisons of Maryland in the 1970s, and half of them, by lot, got some money. Were
they arrested again within a year, and when? The table comes with lifelines (``load_rossi``; Rossi,
Berk and Lenihan, 1980) and is read as it is; ``called`` says what its columns and codes mean.
"""

from lifelines.datasets import load_rossi

import dprl

table = load_rossi().rename_axis("man").reset_index()
log = dprl.from_frame(
    table, episode="man", state=["age", "prio"], action="fin", design="randomised", versus="0",
    survival=("week", "arrest"), horizon=52,
    called={"fin": {0: "no money", 1: "money"}, "prio": "earlier convictions"},
)  # fmt: skip

# %%
# Free of an arrest, week by week; the table beside the picture has every number of it.

dprl.figures.curves(log)

# %%
# What the money brings for everyone, against none. The lot leaves nothing to doubt but luck, and
# 432 men are few: the interval reaches a little below 0.

print(dprl.effects(log))

# %%
# The whole job says the same in one line.

print(dprl.study(log, draws=500).finding)
