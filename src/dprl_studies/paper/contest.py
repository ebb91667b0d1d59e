"""Compare many learners on many logs of one problem, by the exact values of their policies.

A contestant is a learner with its settings, as data: {"learner": name, setting: value, ...}. For
each log, what contestants can share is computed once: the evidence for DPRL, and the
maximum-likelihood MDP for the other learners. `contest` makes an experiment of problems and
contestants.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dprl._core import plot
from dprl._core.table import Table
from dprl.certificate._gate import gate
from dprl.evaluation import stats
from dprl.evidence.counts import Counted, Counts, count_source
from dprl.evidence.decision_points import allowed
from dprl.learners.baselines import BC, CQL, PQI, RL, SPIBB, SoftSPIBB
from dprl.learners.confident import Confident
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs.censoring import treat_cut
from dprl.logs.log import Log
from dprl.logs.reading.tables import Row, Rows
from dprl.logs.source import as_source
from dprl.planning.finite_mdp import FiniteMDP
from dprl.planning.model import Model, estimate
from dprl_studies.harness import Experiment, Setting, by, table_of

BLOCK = 25
"""Number of data sets per task: small, so that an interrupted run loses little."""

CUT: Final = "terminal"
"""How episodes that reach the step limit are treated: as if they had ended there.

At gamma .99 little reward is lost after 500 steps.
"""

SURE: Final[tuple[dict[str, Any], ...]] = tuple(
    {"learner": "Confident", "risk": risk} for risk in (0.01, 0.002)
)
"""The confident learner, as every experiment enters it."""

VALUES: Final = {
    "forest": (0.0, 1.0),
    "risky_arms": (0.0, 1.0),
    "small grid": (0.0, 1.0),
    "dense chain": (-0.8, 8.8),
}
"""Problem → (lowest, highest) return that its rules allow."""


def label(contestant: Setting) -> str:
    """The name of a contestant in tables and figures.

    Args:
        contestant: A learner with its settings.

    Returns:
        The learner, its rule (for DPRL) and its settings, separated by commas.

    Example:
        >>> label({"learner": "DPRL", "n_min": 20, "contrast": False})
        'DPRL paper, n_min 20'
    """
    options = {k: v for k, v in contestant.items() if k != "learner"}
    name = str(contestant["learner"])
    if name == "gate":
        name = "DPRL gate"
    if name == "DPRL":
        rule = "contrast" if options.pop("contrast") else "paper"
        name = f"DPRL {rule}"
    return name + "".join(f", {k} {v}" for k, v in options.items())


def blocks(base: Setting, datasets: int, seed: int, block: int = BLOCK) -> list[Setting]:
    """Divide the data sets of a setting into tasks of at most `block` data sets.

    Args:
        base: What all tasks share, such as {"n": 50}, the number of episodes in a log.
        datasets: Number of data sets.
        seed: Seed of the experiment, kept in every task.
        block: Number of data sets per task. Default 25.

    Returns:
        The tasks; each has `first` and `last`, the numbers of its data sets, `last` excluded.

    Example:
        >>> [(task["first"], task["last"]) for task in blocks({"n": 50}, 40, seed=0)]
        [(0, 25), (25, 40)]
    """
    return [
        {**base, "seed": seed, "first": i, "last": min(i + block, datasets)}
        for i in range(0, datasets, block)
    ]


def mdp_seed(setting: Setting, dataset: int) -> int:
    """The seed of one data set.

    It differs between data sets, log sizes and seeds of the experiment; all contestants share it.
    """
    entropy = [dataset, int(setting["n"]), int(setting.get("seed", 0))]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def compete(
    mdp: FiniteMDP, log: Log, contestants: Sequence[Setting]
) -> list[tuple[NDArray[np.float64], dict[str, Any]]]:
    """Learn a policy with each contestant from one log.

    A contestant plans with the problem's gamma unless its settings name another.

    Args:
        mdp: The problem with S states and A actions. Where a policy defers, its true behaviour
            policy acts.
        log: A log of the problem, without cut episodes.
        contestants: The learners with their settings.

    Returns:
        For each contestant π, float64 (S, A), and notes: `points` is the number of states in which
        the policy names an action, `changes` how many of these differ from the usual action (both
        0 for learners that never defer). Notes of DPRL, and of PQI with a threshold n_min on its
        counts, also hold `pairs`, bool (S, A), the allowed pairs, and `choice`, int64 (S,), the
        chosen action or -1.

    Raises:
        ValueError: A contestant names an unknown learner.

    Example:
        >>> from dprl.envs import risky_arms
        >>> mdp = risky_arms()
        >>> log = mdp.sample(1_000, seed=0)
        >>> contestant = {"learner": "DPRL", "n_min": 92, "contrast": True}
        >>> [(pi, notes)] = compete(mdp, log, [contestant])
        >>> notes["points"], mdp.value(pi) > mdp.value()
        (1, True)
    """
    source = as_source(log)

    @functools.cache
    def shared(gamma: float) -> tuple[Counted, Model]:
        return count_source(source, Counts(gamma)), estimate(log, gamma, CUT)

    answers = []
    for contestant in contestants:
        options = {k: v for k, v in contestant.items() if k != "learner"}
        options.setdefault("gamma", mdp.gamma)
        summed, model = shared(options["gamma"])
        counted = summed.evidence
        notes: dict[str, Any] = {"points": 0, "changes": 0}
        match contestant["learner"]:
            case "DPRL":
                learner = DPRLDiscrete(cut=CUT, **options)
                pairs = allowed(counted, learner.n_min, contrast=learner.contrast)
                choice, _ = learner.choose(source, summed, pairs)
                speaks = np.flatnonzero(choice >= 0)
                pi = mdp.behavior.copy()
                pi[speaks] = np.eye(log.n_actions)[choice[speaks]]
                usual = counted.took.n[speaks].argmax(axis=1)
                notes = {"points": len(speaks), "changes": int((choice[speaks] != usual).sum())}
                notes["pairs"], notes["choice"] = pairs, choice
            case "gate":
                learner = DPRLDiscrete(cut=CUT, n_min=options["n_min"], gamma=options["gamma"])
                gated = gate(
                    learner, log, value_range=VALUES[mdp.name], mode=options["mode"],
                    states=mdp.states if options["mode"] == "in-sample" else None,
                )  # fmt: skip
                pi = mdp._matrix(gated)
                notes = {"points": int((gated.decisions.kind > 0).sum()),
                         "changes": int((gated.decisions.kind == 2).sum())}  # fmt: skip
            case "Confident":
                options |= {"promise": False, "splits": 0, "check": False}
                sure = Confident(cut=CUT, **options).fit(log)
                pi = mdp._matrix(sure)
                notes = {"points": int((sure.kind > 0).sum()),
                         "changes": int((sure.kind == 2).sum())}  # fmt: skip
            case "BC":
                pi = BC().plan(model)
            case "RL":
                pi = RL(cut=CUT, **options).plan(model)
            case "SPIBB" | "Soft-SPIBB" as name:
                if options.pop("behavior", None) == "true":
                    options["behavior"] = mdp.behavior
                rival = SPIBB if name == "SPIBB" else SoftSPIBB
                pi = rival(cut=CUT, **options).plan(model)
            case "PQI":
                passes = None
                if "n_min" in options:  # the filter n / |D| >= b with b = n_min / |D|
                    passes = model.n >= options["n_min"]
                    options["b"] = min(1.0, options.pop("n_min") / max(int(model.n.sum()), 1))
                pi = PQI(cut=CUT, **options).plan(model)
                if passes is not None:
                    choice = np.where(passes.any(axis=1), pi.argmax(axis=1), -1)
                    notes |= {"pairs": passes, "choice": choice}
            case "CQL":
                pi = CQL(cut=CUT, **options).plan(model)
            case other:
                raise ValueError(f"no contestant is called {other!r}")
        answers.append((pi, notes))
    return answers


def _nothing_more(mdp: FiniteMDP, notes: dict[str, Any]) -> Row:
    """The default of `rows_of`: no more columns."""
    return {}


def rows_of(
    mdp: FiniteMDP,
    setting: Setting,
    contestants: Sequence[Setting],
    also: Callable[[FiniteMDP, dict[str, Any]], Row] = _nothing_more,
) -> list[Row]:
    """The rows of one task: one per data set of its block and contestant.

    Args:
        mdp: The problem.
        setting: The task, with `n` (episodes in a log), `first` and `last` (numbers of the data
            sets, `last` excluded) and `seed`.
        contestants: The learners with their settings.
        also: A function (problem, notes of a contestant) → more columns. Default: no more columns.

    Returns:
        The rows: problem, n, data set, seed, contestant, the exact value of its policy, of usual
        practice and of the best policy, and the numbers of decision points and changes.

    Example:
        >>> from dprl.envs import forest
        >>> rows = rows_of(forest(), {"n": 50, "first": 0, "last": 2}, [{"learner": "BC"}])
        >>> [(row["dataset"], row["contestant"]) for row in rows]
        [(0, 'BC'), (1, 'BC')]
    """
    behavior, rows = mdp.value(), []
    best = mdp.value(np.eye(len(mdp.actions))[mdp.optimal[1]])
    for dataset in range(setting["first"], setting["last"]):
        log = treat_cut(mdp.sample(setting["n"], seed=mdp_seed(setting, dataset)), mdp.gamma, CUT)
        for contestant, (pi, notes) in zip(
            contestants, compete(mdp, log, contestants), strict=True
        ):
            rows.append({
                "problem": mdp.name, "n": setting["n"], "dataset": dataset,
                "seed": int(setting.get("seed", 0)),
                "learner": str(contestant["learner"]), "contestant": label(contestant),
                "n_min": float(contestant.get("n_min", np.nan)),
                "value": mdp.value(pi), "behavior": behavior, "best": best,
                "points": notes["points"], "changes": notes["changes"], **also(mdp, notes),
            })  # fmt: skip
    return rows


def summarise(rows: Rows, caption: str, seed: int = 0, repeats: int = 400) -> Table:
    """Mean and CVaR 5 % of the exact value over the data sets, beside usual practice and the best.

    Args:
        rows: Rows that `rows_of` made, as columns.
        caption: Caption of the table.
        seed: Seed of the bootstrap for the intervals. Default 0.
        repeats: Draws of the bootstrap; 0: the intervals are NaN. Default 400.

    Returns:
        A table with one row per problem, number n of episodes and contestant.

    Example:
        >>> rows = {"problem": np.array(["forest"] * 2), "n": np.array([50, 50]),
        ...         "contestant": np.array(["BC", "BC"]), "value": np.array([0.4, 0.5]),
        ...         "behavior": np.array([0.45, 0.45]), "best": np.array([0.6, 0.6]),
        ...         "seed": np.array([0, 0])}
        >>> table = summarise(rows, "Forest")
        >>> table["mean"], table["cvar"], table["below"]
        ([0.45], [0.4], [0.5])
    """
    lines = []
    for (problem, n, contestant), part in by(rows, "problem", "n", "contestant"):
        values, behavior = part["value"], float(part["behavior"][0])
        ends = {
            name: stats.interval(values, statistic, seed=seed, repeats=repeats)
            if repeats
            else (np.nan, np.nan)
            for name, statistic in (("mean", stats.mean), ("cvar", stats.cvar))
        }
        lines.append({
            "problem": problem, "n": n, "contestant": contestant,
            "datasets": len(values), "mean": float(stats.mean(values)),
            "mean_low": ends["mean"][0], "mean_high": ends["mean"][1],
            "cvar": float(stats.cvar(values)),
            "cvar_low": ends["cvar"][0], "cvar_high": ends["cvar"][1],
            "behavior": behavior, "best": float(part["best"][0]),
            "below": float((values < behavior - 1e-9).mean()),
        })  # fmt: skip
    return table_of(
        lines,
        caption,
        f"mean and CVaR 5 % of the exact value over datasets, low..high: {made_of(rows)} "
        "behavior: the exact value of usual practice; best: that of the best policy; below: share "
        "of datasets whose policy is worse than usual practice.",
    )


def pivot(table: Table) -> Table:
    """The summary as a table that fits on a screen.

    Args:
        table: A table that `summarise` made.

    Returns:
        A table with one row per problem and contestant, and one column per number of episodes that
        holds "mean / CVaR 5 %".

    Example:
        >>> rows = {"problem": np.array(["forest"] * 2), "n": np.array([50, 50]),
        ...         "contestant": np.array(["BC", "BC"]), "value": np.array([0.4, 0.5]),
        ...         "behavior": np.array([0.45, 0.45]), "best": np.array([0.6, 0.6]),
        ...         "seed": np.array([0, 0])}
        >>> pivot(summarise(rows, "Forest"))["n = 50"]
        ['0.450 / 0.400']
    """
    sizes = sorted(set(table["n"]))
    cells = {(r["problem"], r["contestant"], r["n"]): r for r in table}
    lines = list(dict.fromkeys((r["problem"], r["contestant"]) for r in table))
    behavior = {r["problem"]: r["behavior"] for r in table}
    columns: dict[str, list[Any]] = {
        "problem": [p for p, _ in lines],
        "contestant": [c for _, c in lines],
    }
    for n in sizes:
        column = [cells.get((*line, n)) for line in lines]
        columns[f"n = {n:,}"] = [
            "" if r is None else f"{r['mean']:.3f} / {r['cvar']:.3f}" for r in column
        ]
    usual, least = ", ".join(f"{p} {v:.3f}" for p, v in behavior.items()), min(table["datasets"])
    return Table(
        columns,
        table.caption,
        f"mean / CVaR 5 % of the exact value over {least} datasets, CVaR: the mean of the lowest "
        f"{math.ceil(0.05 * least)}; usual practice: {usual}",
    )


FEW = 5
"""With so few logs in a CVaR, captions say that it is hardly more than the worst log."""

MOST = 8
"""The most lines of contestants in one panel."""

ACROSS = 5
"""Small panels side by side."""


def made_of(rows: Rows) -> str:
    """What the numbers of a contest are made of: logs, seeds and intervals, in words.

    Args:
        rows: Rows that `rows_of` made, as columns.

    Returns:
        A sentence or two, for captions.

    Example:
        >>> rows = {"problem": np.array(["forest"] * 3), "n": np.array([50] * 3),
        ...         "contestant": np.array(["BC"] * 3), "seed": np.array([7] * 3)}
        >>> made_of(rows)[:63]
        '95 % percentile intervals (bootstrap) over 3 logs a point, seed'
    """
    sizes = [len(part["n"]) for _, part in by(rows, "problem", "n", "contestant")]
    low, high = min(sizes), max(sizes)
    worst, most = math.ceil(0.05 * low), math.ceil(0.05 * high)
    logs, tail = (
        f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in ((low, high), (worst, most))
    )
    seeds = ", ".join(map(str, sorted(set(rows["seed"].tolist()))))
    few = " A quick look: so few logs say little about a tail." if worst <= FEW else ""
    return (
        f"95 % percentile intervals (bootstrap) over {logs} logs a point, seed {seeds}. CVaR 5 %: "
        f"the mean of the worst {tail} log{'s' * (most != 1)}.{few}"
    )


def draw(axis: Any, table: Table, problem: str, column: str, names: Sequence[str]) -> None:
    """Draw one panel: a column of the summary against n, one line per contestant.

    Args:
        axis: The matplotlib axis to draw on; the number n of episodes is on a log scale.
        table: A summary that `summarise` made.
        problem: The problem whose rows are drawn.
        column: "mean" or "cvar"; the intervals of the same column are drawn as bands. Lines across
            show the values of usual practice and of the best policy.
        names: Labels of the contestants to draw, in the order of the legend.

    Example:
        >>> rows = {"problem": np.array(["forest"] * 2), "n": np.array([50, 50]),
        ...         "contestant": np.array(["BC", "BC"]), "value": np.array([0.4, 0.5]),
        ...         "behavior": np.array([0.5, 0.5]), "best": np.array([0.6, 0.6]),
        ...         "seed": np.array([0, 0])}
        >>> figure, axes = plot.grid(1, 1)
        >>> draw(axes[0, 0], summarise(rows, "Forest"), "forest", "mean", ["BC"])
        >>> axes[0, 0].get_xlabel()
        'episodes in the log'
    """
    rows = [row for row in table if row["problem"] == problem]
    looks = plot.style(names)
    for name in names:
        mine = sorted((row for row in rows if row["contestant"] == name), key=lambda r: r["n"])
        if mine:
            x, y, low, high = (
                [r[key] for r in mine] for key in ("n", column, f"{column}_low", f"{column}_high")
            )
            plot.curve(axis, x, y, low, high, name, looks[name])
    plot.reference(axis, rows[0]["behavior"], "usual practice")
    plot.reference(axis, rows[0]["best"], "best policy")
    axis.set_xscale("log")
    ticks = sorted({row["n"] for row in rows})
    axis.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axis.xaxis.set_minor_locator(_none())
    axis.set_xlabel("episodes in the log")


def _none() -> Any:
    """A locator that places no ticks."""
    from matplotlib.ticker import NullLocator

    return NullLocator()


def leading(table: Table) -> list[str]:
    """At most `MOST` contestants for the large panels, one of each family in turn.

    Args:
        table: A summary that `summarise` made.

    Returns:
        Their labels, in the order of the table: n_min 20 of families that have it, of others the
        setting with the best mean over all cells. Variants of a family come last.

    Example:
        >>> names = ["SPIBB, n_min 5", "SPIBB, n_min 20", "CQL, alpha 1", "CQL, alpha 2"]
        >>> means = [0.9, 0.8, 0.4, 0.5]
        >>> leading(Table({"contestant": names, "mean": means}))
        ['SPIBB, n_min 20', 'CQL, alpha 2']
    """
    means: dict[str, list[float]] = {}
    for row in table:
        means.setdefault(row["contestant"], []).append(row["mean"])
    groups = sorted(
        families(list(means)).items(),
        key=lambda group: any(word in group[0] for word in ("true", "segments")),
    )
    first = [
        max(group, key=lambda name: ("n_min 20" in name, sum(means[name]) / len(means[name])))
        for _, group in groups
    ]
    return [name for name in means if name in first[:MOST]]


CHOSEN = "Large panels: n_min 20, of families without n_min the setting with the best mean."
"""What `leading` chose, in words for captions."""


def families(names: Sequence[str]) -> dict[str, list[str]]:
    """Contestants that differ in one number only, by what they have in common.

    Args:
        names: Labels of contestants.

    Returns:
        Family → its contestants, in the order given.

    Example:
        >>> families(["SPIBB, n_min 5", "SPIBB, n_min 5, behavior true", "PQI, b 0.02"])
        {'SPIBB': ['SPIBB, n_min 5'], 'SPIBB, behavior true': ['SPIBB, n_min 5, behavior true'],
         'PQI, b': ['PQI, b 0.02']}
    """
    found: dict[str, list[str]] = {}
    for name in names:
        words = []
        for part in name.split(", "):
            setting, _, value = part.rpartition(" ")
            number = value.replace(".", "").isdigit()
            words += [setting] * (setting not in ("n_min", "risk")) if number else [part]
        found.setdefault(", ".join(words), []).append(name)
    return found


def multiples(figure: Any, table: Table, problem: str, columns: int = ACROSS) -> None:
    """Small panels of CVaR 5 % against the log's size: every contestant, one panel per family.

    Args:
        figure: A (part of a) matplotlib figure, which gets the panels.
        table: A summary that `summarise` made.
        problem: The problem whose rows are drawn.
        columns: Panels side by side. Default 5.

    Example:
        >>> rows = {"problem": np.array(["forest"] * 2), "n": np.array([50, 50]),
        ...         "contestant": np.array(["CQL, alpha 1", "CQL, alpha 2"]),
        ...         "value": np.array([0.4, 0.5]), "behavior": np.array([0.5, 0.5]),
        ...         "best": np.array([0.6, 0.6]), "seed": np.array([0, 0])}
        >>> figure = plot.blank(4, 4)
        >>> multiples(figure, summarise(rows, "Forest"), "forest")
        >>> figure.axes[0].get_title().split()
        ['CQL', 'alpha']
    """
    groups = families(list(dict.fromkeys(table["contestant"])))
    single = [name for names in groups.values() if len(names) == 1 for name in names]
    groups = {family: names for family, names in groups.items() if len(names) > 1}
    if single:
        groups["others"] = single
    panels = figure.subplots(math.ceil(len(groups) / columns), columns, sharey=True, squeeze=False)
    for axis in panels.flat[len(groups) :]:
        axis.set_visible(False)
    for axis, (family, names) in zip(panels.flat, groups.items(), strict=False):
        draw(axis, table, problem, "cvar", names)
        axis.set_title(family.replace(", ", "\n"), fontsize=8)
        axis.set_xlabel("")
        axis.tick_params(labelsize=6)
        lines = axis.get_lines()[: len(names)]
        said = [", ".join(p for p in n.split(", ") if p not in family.split(", ")) for n in names]
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 2}
        axis.legend(lines, said, fontsize=5.5, labelspacing=0.2, handlelength=3, **below)
    figure.suptitle("CVaR 5 % of all contestants, by family", fontsize=8.5)


def against_n(rows: Rows, summary: Callable[[Rows], Table], titles: Mapping[str, str]) -> Any:
    """Two panels per problem, CVaR 5 % and mean against the log's size, and small multiples below.

    The panels show the contestants of `leading`, the small multiples all of one family each.

    Args:
        rows: Rows that `rows_of` made, as columns.
        summary: A function rows → the table of `summarise`.
        titles: Problem → its name in the titles of the panels, in their order. Problems without
            rows are left out.

    Returns:
        The matplotlib figure.

    Example:
        >>> rows = {"problem": np.array(["forest"] * 2), "n": np.array([50, 50]),
        ...         "contestant": np.array(["BC", "BC"]), "value": np.array([0.4, 0.5]),
        ...         "behavior": np.array([0.5, 0.5]), "best": np.array([0.6, 0.6]),
        ...         "seed": np.array([0, 0])}
        >>> summary = functools.partial(summarise, caption="Forest")
        >>> figure = against_n(rows, summary, {"forest": "Forest"})
        >>> [axis.get_title() for axis in figure.axes[:2]]
        ['Forest: CVaR 5 % of the value', 'Forest: mean of the value']
    """
    table = summary(rows)
    names = leading(table)
    shown = [problem for problem in titles if problem in table["problem"]]
    groups = families(list(dict.fromkeys(table["contestant"]))).values()
    panels = sum(len(group) > 1 for group in groups) + any(len(group) == 1 for group in groups)
    heights = [3.8, 0.4 + 2.2 * math.ceil(panels / ACROSS)] * len(shown)
    figure = plot.blank(12, sum(heights))
    plot.caption(figure, f"{CHOSEN} Bands: {made_of(rows)}")
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)
    for i, problem in enumerate(shown):
        axes = parts[2 * i, 0].subplots(1, 2)
        for axis, column, words in zip(axes, ("cvar", "mean"), ("CVaR 5 %", "mean"), strict=True):
            draw(axis, table, problem, column, names)
            axis.set_title(f"{titles[problem]}: {words} of the value")
        parts[2 * i, 0].legend(
            *axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=7.5
        )
        multiples(parts[2 * i + 1, 0], table, problem)
    return figure


def _tasks(
    quick: bool, seed: int, *, grids: Sequence[str], sizes: Sequence[Sequence[int]],
    datasets: Sequence[int], block: int,
) -> list[Setting]:  # fmt: skip
    """One task per problem, log size and block of data sets; a part of them is of all sizes.

    `quick` takes the first problem alone: a table that fits on a screen.
    """
    bases: list[Setting] = [{"grid": grid} for grid in grids] if len(grids) > 1 else [{}]
    tasks = [
        task
        for base in (bases[:1] if quick else bases)
        for n in sizes[quick]
        for task in blocks({**base, "n": n}, datasets[quick], seed, block)
    ]
    return sorted(tasks, key=lambda task: int(task["first"]))


def _run(
    setting: Setting,
    problems: Mapping[str, Callable[[], FiniteMDP]],
    contestants: Sequence[Setting],
    also: Callable[[FiniteMDP, dict[str, Any]], Row] = _nothing_more,
) -> list[Row]:
    """The rows of one task: every contestant on every data set of the block."""
    make = problems[setting.get("grid", next(iter(problems)))]
    return rows_of(make(), setting, contestants, also)


def contest(
    name: str,
    question: str,
    caption: str,
    problems: Mapping[str, Callable[[], FiniteMDP]],
    contestants: Sequence[Setting],
    *,
    sizes: tuple[Sequence[int], Sequence[int]] = ((), ()),
    datasets: tuple[int, int] = (0, 0),
    block: int = BLOCK,
    also: Callable[[FiniteMDP, dict[str, Any]], Row] = _nothing_more,
    title: str = "",
    **other: Any,
) -> Experiment:
    """An experiment that compares contestants on problems whose true values are known.

    Args:
        name: Its name on the command line.
        question: The question it answers, in one sentence.
        caption: The caption of its table.
        problems: Name of a problem → the function that makes it. With several of them a task names
            its own as `grid`.
        contestants: The learners with their settings.
        sizes: Numbers of episodes in a log: in full, and in the quick version.
        datasets: Number of data sets per problem and size: in full, and in the quick version.
        block: Number of data sets per task. Default 25.
        also: A function (problem, notes of a contestant) → more columns. Default: no more columns.
        title: Name of a single problem in its figure. Default: the name of the problem.
        **other: What this experiment does in a way of its own: `settings`, `run`, `figure`.

    Returns:
        The experiment; its table is `summarise` and its figure `against_n`.

    Example:
        >>> from dprl.envs import forest
        >>> made = contest("forest", "Who?", "Forest", {"forest": forest}, [{"learner": "BC"}],
        ...                sizes=((50, 100), (50,)), datasets=(100, 50))
        >>> [task["first"] for task in made.settings(True, 0)]
        [0, 25]
    """
    summary = functools.partial(summarise, caption=caption)
    asked: dict[str, Any] = {
        "settings": functools.partial(
            _tasks, grids=tuple(problems), sizes=sizes, datasets=datasets, block=block
        ),
        "run": functools.partial(_run, problems=problems, contestants=contestants, also=also),
        "figure": functools.partial(
            against_n, summary=summary, titles={problem: title or problem for problem in problems}
        ),
    }

    def told(rows: Rows, facts: dict[str, Any]) -> str:
        from dprl_studies.paper.told import page  # it imports this module

        return page(rows, facts, title or caption, functools.partial(summary, repeats=0))

    return Experiment(
        name=name, question=question, summary=summary, brief=pivot, page=told, **(asked | other)
    )
