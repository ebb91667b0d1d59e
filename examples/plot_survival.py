"""
Real patients: how long a remission of leukemia lasts
=====================================================

42 children whose acute leukemia was in remission got 6-MP or a placebo. The table comes with
lifelines (``load_leukemia``; Freireich and others, 1963) and has the commonest outcome of medicine,
a time and a status: weeks until a relapse, or until somebody stopped looking. The lot was drawn in
pairs, which the table does not name; it is read here as if it had been drawn for each child.
"""

from lifelines.datasets import load_leukemia

import dprl

table = load_leukemia().rename_axis("child").reset_index().rename(columns={"t": "weeks"})
table["arm"] = table.pop("Rx").map({0: "6-MP", 1: "placebo"})
asked = {
    "episode": "child", "state": ["logWBC"], "action": "arm", "design": "randomised",
    "versus": "placebo", "survival": ("weeks", "status"), "horizon": 20,
}  # fmt: skip
print(dprl.check(table, **asked))

# %%
# Kaplan-Meier curves by arm; the table beside the picture has every number of them.

log = dprl.from_frame(table, **asked)
dprl.figures.curves(log)

# %%
# In remission at 20 weeks. Who was censored before is neither counted as in remission nor left out.
# The curves differ by more: the lot gave the placebo to more children with many white cells, and
# this compares like with like. The intervals are for large samples, and 42 children are few.

print(dprl.effects(log))

# %%
# The same asked of another target: weeks in remission, of the first 20.

print(dprl.effects(dprl.from_frame(table, **asked, target="time")))
