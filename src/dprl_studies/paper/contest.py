"""Compare many learners on many logs of one problem, by the exact values of their policies.

A contestant is a learner with its settings, as data: {"learner": name, setting: value, ...}. For
each log, what contestants can share is computed once: the evidence for DPRL, and the
maximum-likelihood MDP for the other learners. `contest` makes an experiment of problems and
contestants.
"""

from __future__ import annotations

import functools
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
from dprl.learners.baselines import BC, CQL, PQI, RL, SPIBB
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
        0 for learners that never defer). Notes of DPRL also hold `pairs`, bool (S, A), the allowed
        pairs, and `choice`, int64 (S,), the chosen action or -1.

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
            case "SPIBB":
                if options.pop("behavior", None) == "true":
                    options["behavior"] = mdp.behavior
                pi = SPIBB(cut=CUT, **options).plan(model)
            case "PQI":
                pi = PQI(cut=CUT, **options).plan(model)
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
        The rows: problem, n, data set, contestant, the exact value of its policy and of usual
        practice, and the numbers of decision points and changes.

    Example:
        >>> from dprl.envs import forest
        >>> rows = rows_of(forest(), {"n": 50, "first": 0, "last": 2}, [{"learner": "BC"}])
        >>> [(row["dataset"], row["contestant"]) for row in rows]
        [(0, 'BC'), (1, 'BC')]
    """
    behavior, rows = mdp.value(), []
    for dataset in range(setting["first"], setting["last"]):
        log = treat_cut(mdp.sample(setting["n"], seed=mdp_seed(setting, dataset)), mdp.gamma, CUT)
        for contestant, (pi, notes) in zip(
            contestants, compete(mdp, log, contestants), strict=True
        ):
            rows.append({
                "problem": mdp.name, "n": setting["n"], "dataset": dataset,
                "learner": str(contestant["learner"]), "contestant": label(contestant),
                "n_min": float(contestant.get("n_min", np.nan)),
                "value": mdp.value(pi), "behavior": behavior,
                "points": notes["points"], "changes": notes["changes"], **also(mdp, notes),
            })  # fmt: skip
    return rows


def summarise(rows: Rows, caption: str, seed: int = 0) -> Table:
    """Mean and CVaR 5 % of the exact value over the data sets, beside usual practice.

    Args:
        rows: Rows that `rows_of` made, as columns.
        caption: Caption of the table.
        seed: Seed of the bootstrap for the standard errors. Default 0.

    Returns:
        A table with one row per problem, number n of episodes and contestant.

    Example:
        >>> rows = {"problem": np.array(["forest"] * 2), "n": np.array([50, 50]),
        ...         "contestant": np.array(["BC", "BC"]), "value": np.array([0.4, 0.5]),
        ...         "behavior": np.array([0.45, 0.45])}
        >>> table = summarise(rows, "Forest")
        >>> table["mean"], table["cvar"], table["below"]
        ([0.45], [0.4], [0.5])
    """
    lines = []
    for (problem, n, contestant), part in by(rows, "problem", "n", "contestant"):
        values, behavior = part["value"], float(part["behavior"][0])
        lines.append({
            "problem": problem, "n": n, "contestant": contestant,
            "datasets": len(values), "mean": float(stats.mean(values)),
            "mean_se": float(stats.bootstrap(values, stats.mean, seed=seed, repeats=400).std()),
            "cvar": float(stats.cvar(values)),
            "cvar_se": float(stats.bootstrap(values, stats.cvar, seed=seed, repeats=400).std()),
            "behavior": behavior, "below": float((values < behavior - 1e-9).mean()),
        })  # fmt: skip
    return table_of(
        lines,
        caption,
        "mean and CVaR 5 % (mean of the lowest ceil(.05 N) values) of the exact value over "
        "datasets, with bootstrap standard errors; behavior: the exact value of usual practice; "
        "below: share of datasets whose policy is worse than that.",
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
        ...         "behavior": np.array([0.45, 0.45])}
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
    usual = ", ".join(f"{p} {v:.3f}" for p, v in behavior.items())
    return Table(
        columns,
        table.caption,
        f"mean / CVaR 5 % of the exact value over {min(table['datasets'])} datasets; "
        f"usual practice: {usual}",
    )


def draw(axis: Any, table: Table, problem: str, column: str, names: Sequence[str]) -> None:
    """Draw one panel: a column of the summary against n, one line per contestant.

    Args:
        axis: The matplotlib axis to draw on; the number n of episodes is on a log scale.
        table: A summary that `summarise` made.
        problem: The problem whose rows are drawn.
        column: "mean" or "cvar"; the standard errors of the same column are drawn as bands. A
            dashed line shows the value of usual practice.
        names: Labels of the contestants to draw, in the order of the legend.

    Example:
        >>> rows = {"problem": np.array(["forest"] * 2), "n": np.array([50, 50]),
        ...         "contestant": np.array(["BC", "BC"]), "value": np.array([0.4, 0.5]),
        ...         "behavior": np.array([0.5, 0.5])}
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
            x, y = [r["n"] for r in mine], [r[column] for r in mine]
            plot.curve(axis, x, y, [r[f"{column}_se"] for r in mine], name, looks[name])
    plot.reference(axis, rows[0]["behavior"], "behaviour")
    axis.set_xscale("log")
    ticks = sorted({row["n"] for row in rows})
    axis.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axis.xaxis.set_minor_locator(_none())
    axis.set_xlabel("episodes in the log")


def _none() -> Any:
    """A locator that places no ticks."""
    from matplotlib.ticker import NullLocator

    return NullLocator()


def against_n(rows: Rows, summary: Callable[[Rows], Table], titles: Mapping[str, str]) -> Any:
    """A figure with a row of two panels per problem: CVaR 5 % and mean against the log's size.

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
        ...         "behavior": np.array([0.5, 0.5])}
        >>> summary = functools.partial(summarise, caption="Forest")
        >>> figure = against_n(rows, summary, {"forest": "Forest"})
        >>> [axis.get_title() for axis in figure.axes]
        ['Forest: CVaR 5 % of the value', 'Forest: mean of the value']
    """
    table = summary(rows)
    names = list(dict.fromkeys(table["contestant"]))
    shown = [problem for problem in titles if problem in table["problem"]]
    figure, axes = plot.grid(len(shown), 2, width=4.4, height=3.6)
    for line, problem in zip(axes, shown, strict=True):
        for axis, column, words in zip(line, ("cvar", "mean"), ("CVaR 5 %", "mean"), strict=True):
            draw(axis, table, problem, column, names)
            axis.set_title(f"{titles[problem]}: {words} of the value")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center", fontsize=7.5)
    return figure


def _tasks(
    quick: bool, seed: int, *, grids: Sequence[str], sizes: Sequence[Sequence[int]],
    datasets: Sequence[int], block: int,
) -> list[Setting]:  # fmt: skip
    """One task per problem, log size and block of data sets."""
    bases: list[Setting] = [{"grid": grid} for grid in grids] if len(grids) > 1 else [{}]
    return [
        task
        for base in bases
        for n in sizes[quick]
        for task in blocks({**base, "n": n}, datasets[quick], seed, block)
    ]


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
    return Experiment(name=name, question=question, summary=summary, brief=pivot, **(asked | other))
