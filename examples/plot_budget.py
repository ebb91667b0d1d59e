"""
Calls that cost: whom to phone where only so many can be phoned
===============================================================

A shop phones some of its customers before their contract ends. A call takes time, and annoys
some. The reward is a sum, less what a call costs; complaints are guarded; and a budget says whom to
phone first.
"""

import numpy as np
import pandas as pd

import dprl
from dprl.evaluation import budget, by_part


def customers(n, seed):
    """Customers of four kinds, some of whom were phoned."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(["new", "loyal", "leaving", "angry"], n)
    called = rng.random(n) < np.where(kind == "leaving", 0.4, 0.25)
    stays = {"new": (0.5, 0.15), "loyal": (0.85, 0.02), "leaving": (0.3, 0.3), "angry": (0.4, 0.1)}
    base, gain = (np.array([stays[k][j] for k in kind]) for j in (0, 1))
    complains = rng.random(n) < 0.02 + called * (kind == "angry") * 0.25
    return pd.DataFrame(
        {
            "customer": np.arange(n) + seed * n,
            "kind": kind,
            "done": np.where(called, "call", "leave alone"),
            "revenue": 100.0 * (rng.random(n) < base + gain * called),
            "complaint": complains.astype(float),
        }
    )


asked = {
    "episode": "customer", "state": "kind", "action": "done",
    "reward": "revenue - 20*complaint", "costs": {"call": 8}, "guard": ["complaint"],
    "outcome": "profit per customer", "unit": "€",
}  # fmt: skip
train = dprl.from_frame(customers(6000, 0), **asked)
test = dprl.from_frame(customers(6000, 1), **asked)

# %%
# What the sum is made of is told beside it, and a harm that was named refuses what would do it.

study = dprl.study(train, draws=300)
print(study)

# %%
# The same in a table, of a policy that nobody refused.

policy = dprl.DPRLDiscrete(n_min=100, gamma=1.0).fit(train)
print(by_part(policy, test, draws=300))

# %%
# At most half of the customers can be phoned. The changes are paid in the order of what they bring
# per call; the price of the last unit says what one more call would bring.

paid = budget(policy, test, most=0.5, costs={"call": 1}, draws=300)
print(paid)
print(paid.table())

# %%
# The trade-off: what each further change spends and brings.

dprl.figures.tradeoff(paid)
