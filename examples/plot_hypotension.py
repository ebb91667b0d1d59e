"""
Low pressure by its cause
=========================

Treating low pressure by its cause: what DPRL finds in simulated intensive-care tables.

Septic patients need vasopressors, and dry patients (who lack fluid) need fluid. Lactate tells which
is which, but the simulated clinician looks at the pressure alone and starts too low. The tables of
1,600 stays look like those of a hospital. DPRL learns on a quarter of the patients. The left panel
shows what DPRL suggests at low pressure, at the steps where it makes a suggestion. The right panel
shows the true values of the policies.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import dprl
from dprl._core import plot
from dprl_studies import icu

GAMMA, SEED, STAYS = 0.99, 0, 1600
KINDS = ("dry (lactate ≤ 2.4)", "septic (lactate > 2.4)")
TREATMENTS = ("nothing", "vasopressor 1", "vasopressor 2", "vasopressor 3", "bolus", "both")


def treatment(action):
    """Actions by what they do: an index into TREATMENTS."""
    bolus, pressor = action // 4, action % 4
    return np.where(bolus == 0, pressor, np.where(pressor == 0, 4, 5))


def shares(actions):
    """The share of each treatment."""
    return np.bincount(treatment(actions), minlength=len(TREATMENTS)) / len(actions)


with tempfile.TemporaryDirectory() as place:
    folder = Path(place)
    icu.simulate(folder / "tables", stays=STAYS, seed=SEED)
    icu.build(folder / "tables", folder / "stays.parquet")
    stays = icu.read_stays(folder / "stays.parquet")
    data = icu.prepare(stays, seed=SEED, reward="shortfall")

policies = {}
for name, plan in (("DPRL, one step", False), ("DPRL, planned", True)):
    learner = dprl.DPRLContinuous(
        n_min=10, radius=10, gamma=GAMMA, metric=icu.metric(), plan=plan, cut="terminal"
    )
    policies[name] = learner.fit(data.train)

test = data.test
choice = policies["DPRL, planned"].at(test.features).choice
low = test.features[:, test.feature_names.index("map")] < 65
septic = test.features[:, test.feature_names.index("lactate")] > 2.4

with plot.look():
    figure, axes = plot.grid(1, 2, width=5.2, height=3.6)
    left, right = axes[0]
    for i, who in enumerate((~septic, septic)):
        spoken = low & who & (choice >= 0)
        for j, (label, actions) in enumerate(
            (("usual", test.action[spoken]), ("DPRL", choice[spoken]))
        ):
            at = 3 * i + j
            start = 0.0
            for k, share in enumerate(shares(actions)):
                colour = ("#dddddd", "#9ecae1", "#0072b2", "#08306b", "#009e73", "#d55e00")[k]
                name = TREATMENTS[k] if at == 0 else None
                left.bar(at, share, bottom=start, color=colour, label=name, width=0.8)
                start += share
            left.text(at, 1.01, label, ha="center", va="bottom", fontsize=8)
    left.set_xticks([0.5, 3.5], KINDS)
    left.set_ylim(0, 1.08)
    left.set_title("pressure below 65, where it suggests something", pad=10)
    left.legend(fontsize=7, loc="upper right", bbox_to_anchor=(1.36, 1))

    rows = {"usual practice": None, **policies, "treat the cause": icu.best_treatment}
    for i, (name, policy) in enumerate(rows.items()):
        fitted = data.preparation if name in policies else None
        value, error = icu.true_value(policy, fitted, gamma=GAMMA, stays=1500)
        print(name, f"{value:.2f} ± {2 * error:.2f}")
        right.plot(value, -i, "o", color="#0072b2" if name in policies else "#777777")
        right.text(value, -i, f"   {value:.2f}", va="center", fontsize=8)
    right.set_yticks(-np.arange(len(rows)), list(rows))
    right.margins(x=0.2)
    right.set_title("true value of 72 hours")
