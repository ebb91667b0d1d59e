"""Drawings of the page *Ideas*; all numbers come from dprl on small simulated logs."""

from functools import cache

import numpy as np
from _style import BLUE, GREEN, GREY, ORANGE

import dprl
from dprl._core import plot


def deferring():
    """Each situation of a small ward: who did what, and what the policy says of it."""
    log = dprl.envs.care_pathway().sample(2000, seed=0)
    policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log)
    states = list(policy.states)
    figure, axes = plot.grid(1, 1, width=8.2, height=3.5)
    axis = axes[0, 0]
    here = policy.at(states)
    shades = ("#5b6770", "#9aa5ae", "#c4ccd3", "#e3e7ea")
    order = np.argsort([-int((log.codes() == log.states.index(s)).sum()) for s in states])
    for row, i in enumerate(order):
        rows = log.codes() == log.states.index(states[i])
        counts = np.bincount(log.action[rows], minlength=log.n_actions)
        left = 0
        for k, a in enumerate(np.argsort(-counts)):
            share = counts[a] / counts.sum()
            chosen = int(here.choice[i]) == int(a)
            axis.barh(-row, share, left=left, height=0.66, edgecolor="white",
                      color=BLUE if chosen else shades[k % 4])  # fmt: skip
            if share > 0.1:
                axis.text(left + share / 2, -row, log.actions[a], ha="center", va="center",
                          fontsize=8, color="white" if chosen or k == 0 else "black")  # fmt: skip
            left += share
        spoken = int(here.choice[i]) >= 0
        words = f"suggest {policy.actions[here.choice[i]]}" if spoken else "DEFER"
        axis.text(1.02, -row, words, va="center", fontsize=9, color=BLUE if spoken else "#555555",
                  weight="bold" if spoken else "normal")  # fmt: skip
    axis.set_yticks(-np.arange(len(states)), [states[i] for i in order])
    axis.set(xlim=(0, 1.28), xlabel="share of the decisions in each situation")
    axis.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    axis.grid(visible=False)
    return figure


STATES = 100


@cache
def noisy_log(seed):
    """A log of many situations; in 85 of 100 the rarer drug truly does a little harm."""
    rng = np.random.default_rng(seed)
    patients = 40_000
    state = rng.integers(STATES, size=patients)
    effect = np.where(np.arange(STATES) < 15, 0.35, -0.03)
    drug = rng.random(patients) < 0.35
    well = rng.random(patients) < 0.5 + effect[state] * drug
    log = dprl.from_arrays(
        episode=np.arange(patients), state=state.astype(str),
        action=np.where(drug, "drug", "usual"), reward=well.astype(float),
    )  # fmt: skip
    return log, effect


def n_min_is_not_enough():
    """How many suggestions of a plain count are harmful, and how many of the gate's."""
    log, effect = noisy_log(0)
    bars = []
    for n_min in (20, 50, 100, 130):
        policy = dprl.DPRLDiscrete(n_min=n_min, gamma=1.0).fit(log)
        bars.append((f"n_min\n{n_min}", *_harm(policy, effect)))
    gated = dprl.gate(dprl.DPRLDiscrete(n_min=20, gamma=1.0), log, value_range=(0, 1))
    bars.append(("n_min 20\nand the gate", *_harm(gated, effect)))
    figure, axes = plot.grid(1, 1, width=6.4, height=3.4)
    axis = axes[0, 0]
    for x, (_, good, bad) in enumerate(bars):
        axis.bar(x, good, color=BLUE, width=0.62, label="truly better" if x == 0 else None)
        axis.bar(x, bad, bottom=good, color=ORANGE, hatch="///", edgecolor="white", width=0.62,
                 label="truly worse" if x == 0 else None)  # fmt: skip
        axis.text(x, good + bad + 0.7, f"{bad} of {good + bad}", ha="center", fontsize=8.5)
    axis.set_xticks(range(len(bars)), [name for name, *_ in bars])
    axis.set(ylabel="situations that get the drug", ylim=(0, 1.22 * max(g + b for _, g, b in bars)))
    axis.set_title("of 100 situations, the drug helps in 15")
    axis.set_xlabel("(above the bars: how many are truly worse)")
    axis.legend(loc="upper right", ncols=2)
    axis.grid(visible=False, axis="x")
    return figure


def _harm(policy, effect):
    choice = policy.at(list(policy.states)).choice
    drug = np.array([policy.actions[c] == "drug" if c >= 0 else False for c in choice])
    truth = effect[[int(s) for s in policy.states]]
    return int((drug & (truth > 0)).sum()), int((drug & (truth < 0)).sum())


def certificate():
    """One change, three ways to say how sure it is, at three sizes of the log."""
    from dprl.learners.discrete import DPRLDiscrete

    world = dprl.envs.care_pathway()
    figure, axes = plot.grid(1, 1, width=7.2, height=3.1)
    axis = axes[0, 0]
    for row, size in enumerate((500, 2000, 8000)):
        log = world.sample(size, seed=4)
        policy = DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
        change = next(r for r in policy.changes().to_dicts() if r["state"] == "worse")
        learner = DPRLDiscrete(n_min=20, gamma=1.0)
        gated = dprl.gate(learner, log, value_range=(0, 1), markov=False)
        proved = [r for r in gated.certificate.table().to_dicts() if r["state"] == "worse"]
        y = -row
        axis.plot([change["low"], change["high"]], [y, y], color=BLUE, lw=2,
                  label="its interval (this row alone)" if row == 0 else None)  # fmt: skip
        axis.plot(change["advantage"], y, "o", color=BLUE, ms=7,
                  label="estimate" if row == 0 else None)  # fmt: skip
        bound = proved[0]["advantage_low"] if proved else None
        if bound is not None and bound > 0:
            axis.plot([bound, 0.3], [y - 0.28] * 2, color=GREEN, lw=2)
            axis.plot(bound, y - 0.28, ">", color=GREEN, ms=8,
                      label="proved: more than this" if row == 2 else None)  # fmt: skip
        else:
            axis.text(0.003, y - 0.3, "nothing proved: not issued", color=GREY, fontsize=8.5)
    axis.axvline(0, color="#333333", lw=1)
    truth = (world.action_values(V := world.state_values()) - V[:, None])[
        world.states.index("worse"), world.actions.index("fluids")
    ]
    axis.axvline(truth, color=ORANGE, lw=1.4, ls=(0, (4, 3)), label="the truth")
    axis.set_yticks([0, -1, -2], ["500\npatients", "2,000\npatients", "8,000\npatients"])
    axis.set(xlim=(-0.03, 0.3), ylim=(-2.6, 0.5), xlabel="gain of the change over usual practice")
    figure.legend(loc="outside upper left", ncols=4, fontsize=8.5)
    return figure


def rules():
    """Three panels: the log; one half proposes a cut; the other half certifies it."""
    rng = np.random.default_rng(2)
    n = 700
    pressure, age = rng.normal(66, 9, n), rng.normal(70, 10, n)
    drug = rng.random(n) < 0.5
    good = rng.random(n) < 0.45 + drug * np.where(pressure < 62, 0.3, -0.08)
    half = rng.random(n) < 0.5
    figure, axes = plot.grid(1, 3, width=3.0, height=3.1)
    first, second, third = axes[0]
    for took, mark, words in ((True, "^", "got the drug"), (False, "o", "did not")):
        at = drug == took
        colours = np.where(good[at], BLUE, ORANGE)
        first.scatter(pressure[at], age[at], s=12, c=colours, marker=mark, lw=0)
        first.plot([], [], mark, ms=4, color="#555555", label=words)
    first.set(xlabel="pressure", ylabel="age", title="1 · the log; blue: went well")
    first.set_ylim(25, 108)
    first.legend(fontsize=8, loc="lower right", ncols=2)
    cuts = np.arange(52, 80)
    gain = []
    for cut in cuts:
        at = half & (pressure <= cut)
        gain.append((good[at & drug].mean() - good[at & ~drug].mean()) * at.sum() / half.sum())
    best = cuts[int(np.argmax(gain))]
    second.plot(cuts, gain, color=BLUE, lw=1.6)
    second.axvline(best, color="#333333", lw=1, ls=(0, (4, 3)))
    second.text(best + 0.8, min(gain), f"the best cut: {best}", fontsize=8.5)
    second.set(xlabel="give it up to this pressure", title="2 · one half proposes")
    second.set_ylabel("gain of the rule")
    for x, at in enumerate((pressure <= best, pressure > best)):
        a, b = good[at & drug & ~half], good[at & ~drug & ~half]
        d = a.mean() - b.mean()
        se = np.sqrt(a.var() / len(a) + b.var() / len(b))
        colour = BLUE if d - 2.2 * se > 0 else GREY
        third.errorbar(x, d, yerr=2.2 * se, fmt="o", color=colour, capsize=4, lw=1.8)
        words = "rule issued" if d - 2.2 * se > 0 else "DEFER"
        third.text(x, d + 2.2 * se + 0.02, words, ha="center", fontsize=9, color=colour)
    third.axhline(0, color="#333333", lw=1)
    third.set_xticks([0, 1], ["pressure\nup to the cut", "above it"])
    third.set(xlim=(-0.6, 1.6), title="3 · the other half certifies", ylim=(-0.3, 0.6))
    third.set_ylabel("drug less no drug")
    return figure


DRAWINGS = {
    "deferring": deferring,
    "n-min": n_min_is_not_enough,
    "certificate": certificate,
    "rules": rules,
}
