"""A made trial in the layout of a stroke trial, thinned into an observational log.

The treatment does nothing, it was given by lot, and the young do better. Then a patient is kept
with a chance that depends on treatment and age: the old seldom if treated, the young seldom if not.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

COLUMNS = {"episode": "id", "state": "awake", "action": "aspirin", "reward": "well"}


def trial(n=4_000, seed=0, thin=True):
    """One row a patient; `awake` is the state, and age is in the table but not in the state."""
    rng = np.random.default_rng(seed)
    age = np.clip(np.rint(rng.normal(72, 11, n)), 30, 99).astype(int)
    aspirin = rng.random(n) < 0.5
    awake = np.where(rng.random(n) < 0.75, "full", "drowsy")
    chance = np.clip(0.75 - 0.015 * (age - 50) - 0.2 * (awake == "drowsy"), 0.02, 0.98)
    rows = pd.DataFrame({
        "id": np.arange(n), "awake": awake, "aspirin": np.where(aspirin, "Y", "N"),
        "well": (rng.random(n) < chance).astype(float), "age": age,
        "sex": np.where(rng.random(n) < 0.5, "F", "M"),
        "pressure": np.rint(rng.normal(160, 27, n)),
        "lesion": np.where(rng.random(n) < 0.2, None, np.where(rng.random(n) < 0.4, "yes", "no")),
    })  # fmt: skip
    keep = rng.random(n) < np.where(aspirin == (age < 72), 1.0, 0.45)
    return rows[keep].reset_index(drop=True) if thin else rows
