"""Drawings of the page *What can go wrong*: each from a small simulation with a known truth."""

from itertools import pairwise

import numpy as np
from _style import BLUE, GREEN, GREY, LIGHT, ORANGE

from dprl._core import plot


def confounding():
    """The young get the drug and recover anyway: together it looks good, at equal age it is not."""
    rng = np.random.default_rng(0)
    n = 60_000
    age = rng.normal(70, 10, n)
    young = 1 / (1 + np.exp((age - 70) / 5))
    drug = rng.random(n) < 0.1 + 0.8 * young
    well = rng.random(n) < 0.25 + 0.5 * young
    figure, axes = plot.grid(1, 2, width=4.0, height=3.2)
    left, right = axes[0]
    edges = np.arange(48, 94, 4)
    middle = edges[:-1] + 2
    cells = [(age >= a) & (age < b) for a, b in pairwise(edges)]
    left.plot(middle, [drug[c].mean() for c in cells], "-o", ms=4, color=BLUE, label="get the drug")
    left.plot(middle, [well[c].mean() for c in cells], "--s", ms=4, color=ORANGE, label="go home")
    left.set(xlabel="age (not recorded)", ylim=(0, 1), title="age moves both")
    left.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    left.legend()
    groups = [("all ages", np.ones(n, bool))]
    groups += [(f"aged {a} and {a + 1}", (age >= a) & (age < a + 2)) for a in (60, 70, 80)]
    for row, (_, at) in enumerate(groups):
        a, b = well[at & drug], well[at & ~drug]
        d, se = a.mean() - b.mean(), np.sqrt(a.var() / len(a) + b.var() / len(b))
        right.errorbar(d, -row, xerr=2 * se, fmt="o", capsize=3, lw=1.8,
                       color=ORANGE if row == 0 else BLUE)  # fmt: skip
    right.axvline(0, color="#333333", lw=1)
    right.set_yticks([0, -1, -2, -3], [name for name, _ in groups])
    right.set(xlabel="go home: drug less no drug", title="the drug does nothing", ylim=(-3.6, 0.6))
    return figure


def cut():
    """Failures take long, and long episodes are cut: those that are left are the wins."""
    rng = np.random.default_rng(6)
    figure, axes = plot.grid(1, 2, width=4.0, height=3.2)
    left, right = axes[0]
    y = 0
    for chance, steps in ((0.5, 15), (0.6, 2)):
        for _ in range(9):
            win = rng.random() < chance
            length = 1 if win else steps
            stop = rng.geometric(0.1)
            cut_off = stop < length
            end = min(stop, length)
            left.plot([0, end], [y, y], color=LIGHT if cut_off else GREY, lw=3,
                      solid_capstyle="butt")  # fmt: skip
            look = ("x", "#999999") if cut_off else (("o", BLUE) if win else ("s", ORANGE))
            left.plot(end, y, look[0], color=look[1], ms=6)
            y -= 1
        y -= 1
    for mark, colour, words in (("o", BLUE, "win"), ("s", ORANGE, "failure"),
                                ("x", "#999999", "cut: not seen")):  # fmt: skip
        left.plot([], [], mark, color=colour, label=words)
    left.set_yticks([-4, -14], ["treatment A", "treatment B"])
    left.set(xlabel="steps", xlim=(-0.3, 16), title="what the log shows")
    left.legend(fontsize=8, loc="center right")
    left.grid(visible=False)
    n = 20_000
    for x, (chance, steps) in enumerate(((0.5, 15), (0.6, 2))):
        win = rng.random(n) < chance
        seen = rng.geometric(0.1, n) >= np.where(win, 1, steps)
        for k, (value, colour, hatch, words) in enumerate((
            (win.mean(), BLUE, "", "the truth"),
            (win[seen].mean(), ORANGE, "///", "cut episodes left out"),
        )):  # fmt: skip
            right.bar(x + 0.36 * k - 0.18, value, 0.34, color=colour, hatch=hatch,
                      edgecolor="white", label=words if x == 0 else None)  # fmt: skip
            right.text(x + 0.36 * k - 0.18, value + 0.015, f"{100 * value:.0f} %", ha="center",
                       fontsize=8.5)  # fmt: skip
    right.set_xticks([0, 1], ["treatment A", "treatment B"])
    right.set(ylim=(0, 1.15), title="wins", yticks=[])
    right.legend(fontsize=8, loc="upper right")
    right.grid(visible=False)
    return figure


def drift():
    """A suggestion that was good in the log becomes bad later; what a monitor sees."""
    rng = np.random.default_rng(3)
    months = np.arange(36)
    truth = np.where(months < 20, 0.15, 0.15 - 0.03 * (months - 20)).clip(-0.15)
    seen = truth + rng.normal(0, 0.035, 36)
    figure, axes = plot.grid(1, 1, width=6.8, height=3.2)
    axis = axes[0, 0]
    axis.axvspan(-0.5, 11.5, color=LIGHT, alpha=0.6, lw=0)
    axis.text(5.5, 0.27, "the log", ha="center", fontsize=9)
    axis.text(23.5, 0.27, "the policy in use", ha="center", fontsize=9)
    axis.plot(months, seen, "o", ms=4, color=GREY, label="each month, as estimated")
    axis.plot(months, truth, color=BLUE, lw=2, label="true gain of the suggestion")
    axis.plot([-0.5, 35.5], [truth[:12].mean()] * 2, color=GREEN, lw=1.4, ls=(0, (4, 3)),
              label="what the log says for ever")  # fmt: skip
    axis.axhline(0, color="#333333", lw=1)
    axis.set(xlabel="month", xlim=(-0.5, 35.5), ylim=(-0.25, 0.31))
    axis.set_ylabel("gain over usual practice")
    axis.legend(fontsize=8.5, loc="lower left")
    return figure


def unstable_practice():
    """Practice changed within the log: 'usual' is a mixture that nobody follows any more."""
    rng = np.random.default_rng(4)
    months = np.arange(24)
    share = np.where(months < 14, 0.2, 0.85) + rng.normal(0, 0.025, 24)
    figure, axes = plot.grid(1, 2, width=4.0, height=3.2)
    left, right = axes[0]
    left.plot(months, share, "-o", ms=4, color=BLUE)
    left.axhline(share.mean(), color=ORANGE, lw=1.6, ls=(0, (4, 3)))
    left.text(0, share.mean() + 0.025, "“usual practice” of the log", color=ORANGE, fontsize=9)
    left.annotate("a new guideline", (13.6, 0.55), (3.0, 0.78), fontsize=9,
                  arrowprops={"arrowstyle": "-|>", "color": "#333333"})  # fmt: skip
    left.set(xlabel="month", ylim=(0, 1), title="share that gets the drug")
    left.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    benefit = 0.2
    rows = (("against the log's mixture", benefit * (1 - share.mean()), ORANGE),
            ("against today's practice", benefit * (1 - 0.85), BLUE))  # fmt: skip
    for y, (_, value, colour) in enumerate(rows):
        right.barh(-y, value, color=colour, height=0.5)
        right.text(value + 0.002, -y, f"+{value:.2f}", va="center", fontsize=9)
    right.set_yticks([0, -1], ["against the\nlog's mixture", "against\ntoday's practice"])
    right.set(xlim=(0, 0.14), ylim=(-1.6, 0.6), title="what “always the drug” gains")
    right.grid(visible=False, axis="y")
    return figure


def feedback():
    """When everybody follows, nobody is left to compare with."""
    years = np.arange(7)
    follow = np.array([0.24, 0.45, 0.7, 0.85, 0.93, 0.97, 0.985])
    others = 600 * (1 - follow)
    kept = 600 * np.maximum(1 - follow, 0.1)
    figure, axes = plot.grid(1, 1, width=6.8, height=3.2)
    axis = axes[0, 0]
    axis.plot(years, others, "-o", color=ORANGE, ms=5, label="those who still do otherwise")
    axis.plot(years, kept, "--s", color=BLUE, ms=5, label="if one in ten is left to chance")
    axis.axhline(30, color="#333333", lw=1, ls=(0, (4, 3)))
    axis.text(0, 42, "30: fewer are too few to compare with", fontsize=8.5)
    axis.set(xlabel="years after the policy was introduced", ylim=(0, 500))
    axis.set_ylabel("patients a year")
    axis.legend(fontsize=9)
    return figure


DRAWINGS = {
    "confounding": confounding,
    "cut": cut,
    "drift": drift,
    "unstable-practice": unstable_practice,
    "feedback": feedback,
}
