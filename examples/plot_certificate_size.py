"""
What a certificate needs
========================

The gate issues a change only where the log proves it. The figure shows how the proved gain of the
whole policy grows with the number of patients, beside the true gain of what was issued. The world
is known, so the truth is exact: the bound must lie below it.
"""

import numpy as np

import dprl
from dprl._core import plot

world = dprl.envs.care_pathway()
usual = world.value()
sizes = (250, 500, 1000, 2000, 4000, 8000, 16000)
rows = []
for size in sizes:
    for seed in range(5):
        log = world.sample(size, seed=(size, seed))
        gated = dprl.gate(dprl.DPRLDiscrete(n_min=20, gamma=1.0), log, value_range=(0, 1))
        rows.append((size, len(gated.certificate.rows), gated.certificate.gain or 0.0,
                     world.value(gated) - usual))

size, issued, proved, true = np.array(rows).T
with plot.look():
    figure, axes = plot.grid(1, 2, width=4.2, height=3.4)
    left, right = axes[0]
    for values, mark, colour, words in (
        (true, "o", "#0072b2", "true gain of what was issued"),
        (proved, "^", "#d55e00", "proved: at least this"),
    ):
        left.plot(size, values, mark, color=colour, ms=4, alpha=0.5, mew=0)
        mean = [values[size == s].mean() for s in sizes]
        left.plot(sizes, mean, color=colour, lw=1.6, marker=mark, ms=5, label=words)
    left.set(xscale="log", xlabel="patients", title="gain over usual practice")
    left.legend(fontsize=8)
    right.plot(sizes, [issued[size == s].mean() for s in sizes], "-s", color="#009e73", ms=5)
    right.set(xscale="log", xlabel="patients", title="changes issued (two are true)")
    right.set_ylim(-0.1, 2.3)
    for axis in axes[0]:
        axis.set_xticks(sizes, [f"{s:,}" if s < 1000 else f"{s // 1000}k" for s in sizes])
        axis.minorticks_off()
assert (proved <= true + 1e-12).all()
