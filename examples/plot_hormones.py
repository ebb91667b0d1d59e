"""
Real patients: hormones after breast cancer
===========================================

686 women of the German Breast Cancer Study Group, of whom some got hormones: not by lot, older
women more often. The table comes with lifelines (``load_gbsg2``; Schumacher and others, 1994).
Whoever was not followed for three years is not counted as free of the disease.
"""

from lifelines.datasets import load_gbsg2

import dprl

table = load_gbsg2().rename_axis("woman").reset_index()
log = dprl.from_frame(
    table, episode="woman", state=["age", "menostat", "tsize", "pnodes", "progrec"],
    action="horTh", survival=("time", "cens"), horizon=3 * 365, also=("tgrade", "estrec"),
    called={
        "horTh": {"": "treatment", "no": "no hormones", "yes": "hormones"}, "tsize": "size in mm",
        "pnodes": "positive nodes", "progrec": "progesterone receptor", "menostat": "menopause",
    },
)  # fmt: skip

# %%
# Those who got hormones and those who did not differ before anything was given.

print(log.describe(by="action"))

# %%
# The curves are those of two groups that nobody made alike.

dprl.figures.curves(log)

# %%
# The whole job looks at everybody beside others like them, and says what it can claim.

result = dprl.study(log, draws=500)
print(result)
