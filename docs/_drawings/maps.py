"""Drawings with boxes and arrows: which learner when, and the layers of the code."""

from _style import arrow, bare, box

from dprl._core import plot

PALE_BLUE, PALE_GREEN, PALE_ORANGE, PALE = "#d6e8f5", "#d5efe6", "#fbe3d3", "#f1f3f5"


def which_learner():
    """A few questions lead to a learner."""
    figure, axes = plot.grid(1, 1, width=9.0, height=5.4)
    axis = axes[0, 0]
    bare(axis, 18, 11)
    box(axis, 5.4, 9.3, 7.2, 1.4, "What is a state in your log?", PALE, 10)
    arrow(axis, (7.0, 9.3), (3.6, 8.2))
    arrow(axis, (11.0, 9.3), (14.4, 8.2))
    axis.text(2.9, 8.85, "one of a few labels", fontsize=9, ha="center")
    axis.text(15.1, 8.85, "a row of measurements", fontsize=9, ha="center")
    box(
        axis, 0.3, 6.3, 6.8, 1.8, "Does the state tell all that\nmatters for what comes next?", PALE
    )
    box(axis, 10.9, 6.3, 6.8, 1.8, "Must people read and\ncheck what is suggested?", PALE)
    arrow(axis, (2.2, 6.3), (1.9, 4.5), "yes")
    arrow(axis, (5.2, 6.3), (6.3, 4.5), "no, or unsure")
    arrow(axis, (12.6, 6.3), (11.9, 4.5), "yes")
    arrow(axis, (15.9, 6.3), (16.1, 4.5), "no")
    box(axis, 0.1, 3.0, 3.9, 1.5, "Confident", PALE_BLUE, 10.5, bold=True)
    box(axis, 4.5, 3.0, 3.9, 1.5, "DPRLDiscrete", PALE_BLUE, 10.5, bold=True)
    box(axis, 9.6, 3.0, 3.9, 1.5, "Rules", PALE_BLUE, 10.5, bold=True)
    box(axis, 14.0, 3.0, 3.9, 1.5, "DPRLContinuous", PALE_BLUE, 10.5, bold=True)
    notes = (
        "finds most, states\na bound of its own",
        "compares whole\nreturns; assumes least",
        "sentences, each\ncertified by a half",
        "looks at similar\ncases, by a radius",
    )
    for x, words in zip((2.05, 6.45, 11.55, 15.95), notes, strict=True):
        axis.text(x, 2.25, words, ha="center", va="center", fontsize=8.5, linespacing=1.3)
        if x > 3:  # Confident states a bound of its own
            axis.plot([x, x], [1.62, 1.3], color="#333333", lw=1)
    axis.plot([6.45, 15.95], [1.3, 1.3], color="#333333", lw=1)
    box(axis, 6.5, 0.05, 9.4, 0.95, "to keep only what is proved: dprl.gate", PALE_GREEN, 9.5)
    arrow(axis, (11.2, 1.3), (11.2, 1.0))
    return figure


def layers():
    """The packages; each uses only those below it."""
    rows = (
        ("dprl_studies", "experiments, a package of their own", PALE_ORANGE),
        ("apps", "command line · report · review · serve", PALE_ORANGE),
        ("envs", "problems whose truth is known", PALE_ORANGE),
        ("evaluation · certificate", "what a policy is worth · what is proved", PALE_GREEN),
        ("learners", "fit(log) → policy", PALE_BLUE),
        ("policies", "what is deployed, and its file", PALE_BLUE),
        ("planning", "the best plan among allowed decisions", PALE_BLUE),
        ("evidence", "counts and mean returns, as exact sums", PALE_BLUE),
        ("logs", "tables and events → Log", PALE),
        ("_core · errors", "tools that know nothing of logs", PALE),
    )
    figure, axes = plot.grid(1, 1, width=8.2, height=5.3)
    axis = axes[0, 0]
    bare(axis, 16, 10.6)
    for i, (name, words, colour) in enumerate(rows):
        y = 9.55 - i
        box(axis, 0.3, y, 13.2, 0.84, "", colour)
        axis.text(0.7, y + 0.42, name, fontsize=10, weight="bold", va="center", zorder=3)
        axis.text(5.9, y + 0.42, words, fontsize=9, va="center", zorder=3)
    arrow(axis, (14.3, 10.3), (14.3, 0.7))
    axis.text(14.6, 5.5, "imports", rotation=270, va="center", fontsize=9)
    return figure


DRAWINGS = {"which-learner": which_learner, "layers": layers}
