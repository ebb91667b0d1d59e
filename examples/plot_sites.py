"""
Hospitals that share no rows
============================

Five hospitals of different sizes want one policy. Each counts at home and sends sums; the sums are
merged exactly, and the policy is that of the pooled log to the last bit. The figure shows what each
hospital could learn alone, and what they learn together.
"""

import dprl
from dprl._core import plot

world = dprl.envs.care_pathway()
sizes = {"north": 60, "east": 120, "south": 250, "west": 400, "centre": 700}
logs = {name: world.sample(size, seed=i) for i, (name, size) in enumerate(sizes.items())}
schema = dprl.SiteSchema.of(world.sample(2000, seed=99), gamma=1.0, value_range=(0, 1))
learner = dprl.DPRLDiscrete(n_min=30, gamma=1.0, plan=False)

counted = {name: dprl.site_evidence(log, schema, k=5, site=name) for name, log in logs.items()}
policies = {
    f"{name} alone\n({sizes[name]} patients)": learner.fit(e) for name, e in counted.items()
}
policies[f"together\n({sum(sizes.values()):,} patients)"] = learner.fit(
    dprl.merge_evidence(*counted.values())
)

with plot.look():
    figure, axes = plot.grid(1, 1, width=6.6, height=3.4)
    axis = axes[0, 0]
    for y, (_, policy) in enumerate(policies.items()):
        gain = world.value(policy) - world.value()
        last = y == len(policies) - 1
        axis.barh(-y, gain, color="#0072b2" if last else "#9ecae1", height=0.62,
                  hatch="" if last else "///", edgecolor="white")
        n = len(policy.changes())
        axis.text(max(gain, 0) + 0.001, -y, f"{n} change{'s' * (n != 1)}", va="center", fontsize=9)
    axis.axvline(0, color="#333333", lw=1)
    axis.set_yticks([-y for y in range(len(policies))], list(policies))
    axis.set(xlabel="true gain over usual practice", xlim=(min(0, axis.get_xlim()[0]), 0.1))
    axis.grid(visible=False, axis="y")
