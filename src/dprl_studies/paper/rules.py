"""Rules over features: how often they are false, what they bring, and where they fail.

Parts of the experiment, each with its own logs:

* *nothing works*: worlds in which actions do nothing (`SHAPES`), so every
  rule that is issued is false;
* *intensive care*: simulated patients whose treatment costs something; a quarter of the stays
  to learn from, and the true value of every policy by playing it, beside the other learners;
* *point mass*: a truth that no small tree holds (a pit to walk around);
* *stroke*: a randomised trial, thinned so that age decides who is treated; with age among the
  features and without it. Needs `--trials`.
* *tables*: intensive-care tables of the user (`--tables`), to see whether there is enough in them.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core import plot
from dprl._core.database import connect
from dprl._core.inference import newcombe
from dprl._core.table import Table
from dprl.certificate._gate import gate
from dprl.envs.point_mass import PointMass
from dprl.errors import PackageError
from dprl.learners.continuous import DPRLContinuous
from dprl.learners.rules.learner import Rules
from dprl.logs._io import from_arrays
from dprl.logs.log import Log
from dprl.logs.reading.tables import Row, Rows
from dprl.policies.protocol import Kind, is_drawn
from dprl.policies.rules.rule import Rule
from dprl_studies import icu
from dprl_studies.harness import Experiment, Setting, by, table_of
from dprl_studies.icu.simulation import best_constant, frugal_treatment
from dprl_studies.paper.claims import clopper_pearson
from dprl_studies.paper.hypotension import learner as rival
from dprl_studies.paper.wards import ward

SHAPES = ("linear", "steps", "waves", "drift", "surrogate")
"""The worlds in which actions do nothing, by how actions depend on the features.

Six features move by themselves; which of four actions is taken depends on them; rewards depend on
features and not on actions. So every rule that is certified is false.

    linear      probabilities by a linear score of the features
    steps       probabilities jump where two features cross thresholds: no smooth model fits
    waves       probabilities go up and down with a feature: no straight line fits
    drift       one action grows likelier during the episode, and so do the rewards
    surrogate   an action moves a feature that goes with the outcome, and does not move the outcome

The last is a trap for credit with λ < 1: the model of values sees the feature improve and expects a
better outcome that never comes.
"""
GAMMA = 0.99
DELTA = 0.05
STAYS = {2_000: 10, 5_000: 10, 20_000: 3}
"""Simulated stays, of which a quarter is learned from → data sets."""
MASSES = (200, 1_000)
"""Episodes of the point mass."""
EMPTY: Row = {
    "study": "", "n": 0, "dataset": 0, "method": "", "issued": 0, "proposed": 0, "false": 0,
    "value": math.nan, "usual": math.nan, "best": math.nan, "spoken": math.nan, "lam": math.nan,
    "covered": math.nan, "stated": math.nan, "stated_low": math.nan, "words": "",
}  # fmt: skip


def settings(
    quick: bool, seed: int, *, tables: Path | None = None, trials: Path | None = None
) -> Sequence[Setting]:
    """One task per block of null worlds, per ward, per point mass; `quick` takes few of each."""
    tasks: list[Setting] = []
    logs, block = (1, 1) if quick else (400, 20)
    for shape in SHAPES[:2] if quick else SHAPES:
        tasks += [
            {"part": "nothing works", "shape": shape, "first": first, "last": first + block,
             "groups": 100 if quick else 300, "seed": seed}
            for first in range(0, logs, block)
        ]  # fmt: skip
    for stays, datasets in ({120: 1} if quick else STAYS).items():
        tasks += [
            {"part": "intensive care", "stays": stays, "dataset": d, "who": who, "seed": seed,
             "quick": quick}
            for d in range(datasets) for who in ("rules", "others")
        ]  # fmt: skip
    for n in (60,) if quick else MASSES:
        tasks += [{"part": "point mass", "n": n, "dataset": d, "seed": seed}
                  for d in range(1 if quick else 10)]  # fmt: skip
    if trials is not None:
        tasks += [{"part": "stroke", "file": str(trials), "dataset": d, "seed": seed}
                  for d in range(2 if quick else 20)]  # fmt: skip
    if tables is not None:
        tasks.append({"part": "tables", "folder": str(tables), "seed": seed})
    return tasks


def run(setting: Setting) -> list[Row]:
    """The rows of one task."""
    parts: dict[str, Callable[[Setting], list[Row]]] = {
        "nothing works": _nothing_works, "intensive care": _intensive_care,
        "point mass": _point_mass, "stroke": _stroke, "tables": _tables,
    }  # fmt: skip
    return [{**EMPTY, **row} for row in parts[setting["part"]](setting)]


def _told(policy: Any) -> Row:
    """What a policy of rules says of itself, as part of a row."""
    facts = policy.provenance["rules"]
    chosen = next(d for d in facts["divisions"] if d["seed"] == facts["division"])
    return {
        "issued": len(policy.rules), "proposed": len(facts["tested"]), "lam": chosen["lam"],
        **{name: math.nan if facts["whole"][of] is None else facts["whole"][of]
           for name, of in (("stated", "gain"), ("stated_low", "low"))},
        "words": " | ".join(f"{rule.words}: {rule.suggested}" for rule in policy.rules),
    }  # fmt: skip


def _nothing_works(setting: Setting) -> list[Row]:
    rows = []
    for dataset in range(setting["first"], setting["last"]):
        log = null_log(setting["shape"], [setting["seed"], dataset], setting["groups"])
        policy = Rules(gamma=GAMMA, delta=DELTA).fit(log)
        row = {"study": f"nothing works: {setting['shape']}", "n": len(log.groups),
               "dataset": dataset, "method": "Rules", **_told(policy)}  # fmt: skip
        rows.append({**row, "false": int(bool(policy.rules))})
    return rows


def _intensive_care(setting: Setting) -> list[Row]:
    seed, costs = setting["seed"] + setting["dataset"], icu.Costs()
    data = ward(setting["stays"], seed, reward="shortfall")
    played = 200 if setting["quick"] else 2_000
    worth = partial(icu.true_value, gamma=GAMMA, stays=played, seed=seed, costs=costs)
    usual, best = worth()[0], worth(frugal_treatment)[0]
    about: Row = {"study": "intensive care", "n": setting["stays"], "dataset": setting["dataset"],
                  "usual": usual, "best": best}  # fmt: skip
    rows: list[Row] = []
    if setting["who"] == "others":
        constant = best_constant(gamma=GAMMA, stays=played, seed=seed, costs=costs)
        constant_row = {"method": "best constant treatment", "value": constant.value, "spoken": 1.0}
        rows.append({**about, **constant_row})
    for name, make in _contestants(data.train, setting, seed).items():
        try:
            policy = make()
        except PackageError:
            continue  # torch is not installed
        row = {**about, "method": name, "value": worth(policy, data.preparation)[0],
               "spoken": _spoken(policy, data.test)}  # fmt: skip
        rows.append({**row, **(_told(policy) if name.startswith("Rules") else {})})
    return rows


def _contestants(train: Any, setting: Setting, seed: int) -> dict[str, Callable[[], Any]]:
    """Name → what learns from a training log of simulated stays."""
    shared: dict[str, Any] = {"gamma": GAMMA, "cut": "terminal"}
    near = partial(DPRLContinuous, n_min=10, radius=10.0, metric=icu.metric(), **shared)
    T = 72

    def learned(name: str, **options: float) -> Callable[[], Any]:
        made = partial(rival, {"learner": name, **options}, train.n_steps, quick, seed)
        return lambda: made().fit(train)

    few, quick = setting["stays"] <= 2_000, setting["quick"]
    if setting["who"] == "rules":
        made: dict[str, Callable[[], Any]] = {
            "Rules": lambda: Rules(**shared, delta=DELTA).fit(train)
        }
        if few and not quick:
            made["Rules, one division"] = lambda: Rules(**shared, delta=DELTA, splits=1).fit(train)
        return made
    made = {
        "DPRL-C": lambda: near(plan=False).fit(train),
        "DPRL-C planned": lambda: near(plan=True).fit(train),
        "BC": learned("BC"),
    }
    if not few:
        return made
    low = -T * (1 + 3 * icu.Costs().bolus + 3 * icu.Costs().vasopressor)
    if not quick:
        made["Rules, depth 3"] = lambda: Rules(**shared, delta=DELTA, depth=3).fit(train)
    return {
        **made,
        "gate over cells": lambda: gate(
            near(plan=False), train, delta=DELTA, value_range=(low, 0.0), seed=seed
        ),
        "SPIBB": learned("SPIBB", n_min=10),
        "PQI": learned("PQI", n_min=10),
        "CQL": learned("CQL", alpha=0.1),
    }


def _spoken(policy: Any, log: Any) -> float:
    """The share of steps at which a policy does not defer."""
    return 1.0 if is_drawn(policy) else float((policy.at(log.features).kind != Kind.DEFER).mean())


def _point_mass(setting: Setting) -> list[Row]:
    world, seed = PointMass(), 1_000 * setting["seed"] + setting["dataset"]
    log, held_out = world.sample(setting["n"], seed=seed), world.sample(200, seed=seed + 500)
    shared: dict[str, Any] = {"gamma": world.gamma, "cut": "terminal"}
    contestants: dict[str, Any] = {
        "Rules": Rules(**shared, delta=DELTA),
        "Rules, depth 4": Rules(**shared, delta=DELTA, depth=4),
        "DPRL-C planned": DPRLContinuous(n_min=10, radius=0.05, metric=_plain(), **shared),
    }
    usual, careful = world.value()[0], PointMass(carelessness=0.0).value()[0]
    rows = []
    for name, learner in contestants.items():
        policy = learner.fit(log)
        row = {"study": "point mass", "n": setting["n"], "dataset": setting["dataset"],
               "method": name, "value": world.value(policy)[0], "usual": usual, "best": careful,
               "spoken": _spoken(policy, held_out)}  # fmt: skip
        rows.append({**row, **(_told(policy) if name.startswith("Rules") else {})})
    return rows


def _plain() -> Any:
    from dprl.evidence.neighbors.metric import Metric

    return Metric(scale="none")


def _stroke(setting: Setting) -> list[Row]:
    return stroke_rows(Path(setting["file"]), seed=setting["seed"] + setting["dataset"])


def _tables(setting: Setting) -> list[Row]:
    """Rules on intensive-care tables of the user."""
    with tempfile.TemporaryDirectory() as folder:
        built = icu.build(Path(setting["folder"]), Path(folder) / "stays.parquet")
        data = icu.prepare(icu.read_stays(built.path), seed=setting["seed"], reward="shortfall",
                           shares=(0.8, 0.1, 0.1))  # fmt: skip
    policy = Rules(gamma=GAMMA, cut="terminal", delta=DELTA).fit(data.train)
    return [{"study": "tables", "n": len(data.train.groups), "method": "Rules", **_told(policy),
             "spoken": _spoken(policy, data.test)}]  # fmt: skip


# -- worlds in which actions do nothing -----------------------------------------------------------

ACTIONS, MOVING = 4, 6
WEIGHTS = 0.8 * np.array([
    [1, -1, 0, 0, 0.5, 0], [0, 1, 1, 0, 0, -0.5], [-1, 0, 0, 0.5, 0, 0.5], [0, 0, -1, 1, 0, 0],
])  # fmt: skip
"""Linear scores of the four actions."""


def _scores(shape: str, x: NDArray[np.float64], step: int) -> NDArray[np.float64]:
    """What makes each action likely, (n, 4): the exponents of its odds."""
    if shape == "steps":
        jump = np.where(x[:, [0]] > 0.3, 1.5, 0.0) * np.array([1, 0, 0, -1])
        both = np.where((x[:, [1]] > 0) & (x[:, [2]] < 0.5), 1.2, 0.0) * np.array([0, 1, -1, 0])
        return np.asarray(jump + both)
    if shape == "waves":
        return np.asarray(np.sin(2 * x[:, :4]) * 1.2 + 0.6 * (x[:, [4]] ** 2 - 1) * [1, 0, -1, 0])
    drift = 0.25 * step if shape == "drift" else 0.0
    return np.asarray(x @ WEIGHTS.T + drift * np.array([1, 0, 0, 0]))


def null_log(shape: str, seed: int | Sequence[int], groups: int = 300, steps: int = 6) -> Log:
    """A log in which no action changes any outcome.

    Args:
        shape: One of `SHAPES`.
        seed: Seed of everything random, a whole number or several.
        groups: Number of groups, each with one episode. Default 300.
        steps: Steps per episode. Default 6.

    Returns:
        The log, with six features and four actions.

    Example:
        >>> null_log("linear", seed=0, groups=3)
        Log: 3 episodes · 18 steps · 6 features · 4 actions
    """
    rng = np.random.default_rng([SHAPES.index(shape), *np.atleast_1d(seed).tolist()])
    x = rng.normal(size=(groups, MOVING))
    states, actions, rewards = [], [], []
    for step in range(steps):
        odds = np.exp(_scores(shape, x, step))
        likely = np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1)
        action = (rng.random((groups, 1)) > likely).sum(axis=1).clip(0, ACTIONS - 1)
        pay = np.tanh(x[:, 0] * x[:, 1]) + 0.5 * x[:, 2] + rng.normal(0, 0.3, groups)
        if shape == "drift":
            pay = pay + 0.3 * step
        states.append(x)
        actions.append(action)
        rewards.append(pay)
        x = 0.9 * x + 0.44 * rng.normal(size=x.shape)
        if shape == "surrogate":  # feature 5 follows the outcome, and what is done
            x[:, 5] = 0.7 * x[:, 2] + 0.7 * (action == 0) + 0.4 * rng.normal(size=groups)
    return from_arrays(
        episode=np.repeat(np.arange(groups), steps),
        state=np.stack(states, axis=1).reshape(-1, MOVING),
        action=np.stack(actions, axis=1).ravel(),
        reward=np.stack(rewards, axis=1).ravel(),
    )


# -- the stroke trial -----------------------------------------------------------------------------
# The International Stroke Trial (IST Collaborative Group, 1997; doi 10.7488/ds/104) gave aspirin by
# lot. A patient is kept with a chance that depends on treatment and age: the old seldom if treated,
# the young seldom if not. In what is left aspirin seems to help a lot, because the young recover
# more often. The whole trial says what is true in any region.

FEATURES = ("age", "pressure", "delay", "drowsy", "male")


def stroke_trial(file: Path) -> Log:
    """The trial as a log: one decision a patient, reward 1 if not dead or dependent at 6 months.

    Args:
        file: The Parquet file, with the columns AGE, RSBP, RDELAY, RCONSC, SEX, RXASP and OCCODE.
            Patients whose outcome is unknown (OCCODE other than 1 to 4) are left out.

    Returns:
        The log, with five features and the actions "aspirin" and "none".

    Example:
        >>> stroke_trial(Path("ist.parquet"))  # doctest: +SKIP
        Log: 19,285 episodes · 19,285 steps · 5 features · 2 actions
    """
    with connect(files=[file.resolve()]) as con:
        rows = con.execute(
            "SELECT AGE::DOUBLE AS age, RSBP::DOUBLE AS pressure, RDELAY::DOUBLE AS delay, "
            "(RCONSC <> 'F')::INT::DOUBLE AS drowsy, (SEX = 'M')::INT::DOUBLE AS male, "
            "RXASP = 'Y' AS aspirin, OCCODE IN (3, 4) AS well FROM read_parquet(?) "
            "WHERE OCCODE BETWEEN 1 AND 4 AND AGE IS NOT NULL AND RSBP IS NOT NULL "
            "AND RDELAY IS NOT NULL AND RCONSC IS NOT NULL AND SEX IS NOT NULL",
            [str(file.resolve())],
        ).fetchnumpy()
    return from_arrays(
        episode=np.arange(len(rows["age"])),
        state=np.column_stack([np.asarray(rows[name]) for name in FEATURES]),
        action=np.where(np.asarray(rows["aspirin"]), "aspirin", "none"),
        reward=np.asarray(rows["well"], np.float64),
        feature_names=FEATURES,
    )


def thinned(trial: Log, seed: int) -> NDArray[np.int64]:
    """The patients that are kept: the treated mostly young, the others mostly old.

    Args:
        trial: The log of `stroke_trial`.
        seed: Seed of who is kept.

    Returns:
        Positions of their episodes.

    Example:
        >>> from dprl.logs._io import from_arrays
        >>> trial = from_arrays(
        ...     episode=range(4), state=np.array([[40.0], [90.0]] * 2), reward=[0, 0, 0, 0],
        ...     action=["aspirin", "aspirin", "none", "none"], feature_names=["age"],
        ... )
        >>> thinned(trial, seed=0).tolist()
        [0, 2, 3]
    """
    age = np.asarray(trial.features)[:, trial.feature_names.index("age")]
    old = 1 / (1 + np.exp(-(age - 72) / 6))
    keep = np.where(trial.action == trial.actions.index("aspirin"), 1 - old, old)
    return np.flatnonzero(np.random.default_rng(seed).random(len(age)) < 0.1 + 0.8 * keep)


def in_trial(rule: Rule, trial: Log) -> tuple[float, float, float]:
    """What a rule's action brought in its region in the whole trial: difference and 95 % interval.

    Args:
        rule: The rule.
        trial: The log of `stroke_trial`.
    """
    X, at = np.asarray(trial.features), np.ones(trial.n_steps, bool)
    for condition in rule.conditions:
        at &= condition.holds(X[:, trial.feature_names.index(condition.feature)])
    took = at & ((trial.action == trial.actions.index(rule.action)) != rule.avoids)
    others = at & ~took
    p, q = float(trial.reward[took].mean()), float(trial.reward[others].mean())
    low, high = newcombe(took.sum(), p, others.sum(), q)
    return p - q, float(low), float(high)


def stroke_rows(file: Path, seed: int) -> list[Row]:
    """Rules from one thinned trial, with age among the features and without.

    A rule is called false if it was issued and its interval and the interval of the whole trial do
    not meet. "covered" is the share of all tested rules whose interval holds the trial's contrast.

    Args:
        file: The file of the trial.
        seed: Seed of who is kept.

    Returns:
        Two rows of the experiment `rules`.

    Example:
        >>> len(stroke_rows(Path("ist.parquet"), seed=0))  # doctest: +SKIP
        2
    """
    trial = stroke_trial(file)
    log = trial.take(thinned(trial, seed))
    rows: list[Row] = []
    for name, hidden in (("with age", ()), ("age hidden", ("age",))):
        policy = Rules(gamma=1.0).fit(_without(log, hidden))
        facts = policy.provenance["rules"]
        issued = {(rule.words, rule.suggested) for rule in policy.rules}
        false, covered = 0, []
        for rule in map(Rule.from_dict, facts["tested"]):
            truth, low, high = in_trial(rule, trial)
            covered.append(rule.facts["low"] <= truth <= rule.facts["high"])
            apart = rule.facts["low"] > high or rule.facts["high"] < low
            false += apart and (rule.words, rule.suggested) in issued
        rows.append({
            "study": f"stroke, {name}", "n": len(trial.groups), "dataset": seed, "method": "Rules",
            "issued": len(policy.rules), "proposed": len(facts["tested"]), "false": int(false > 0),
            "covered": float(np.mean(covered)) if covered else math.nan,
            "words": " | ".join(f"{r.words}: {r.suggested}" for r in policy.rules),
        })  # fmt: skip
    return rows


def _without(log: Log, hidden: tuple[str, ...]) -> Log:
    """The log without some of its features."""
    kept = [f for f, name in enumerate(log.feature_names) if name not in hidden]
    names: tuple[Any, ...] = tuple(log.feature_names[f] for f in kept)
    return replace(log, features=np.asarray(log.features)[:, kept], feature_names=names)


# -- table and figure -----------------------------------------------------------------------------


def summary(rows: Rows) -> Table:
    """One row per study, size and method: how often rules were false, and what they brought."""
    lines = []
    for (study, n, method), part in by(rows, "study", "n", "method"):
        value, usual, best, low = (
            np.asarray(part[name], np.float64) for name in ("value", "usual", "best", "stated_low")
        )
        share = (value - usual) / (best - usual)
        measured = np.isfinite(value) & np.isfinite(low)
        lines.append({
            "study": study, "n": n, "method": method, "logs": len(value),
            "issued": float(np.mean(np.asarray(part["issued"]) > 0)),
            "false": float(np.mean(part["false"])),
            "value": float(value.mean()), "usual": float(usual.mean()), "best": float(best.mean()),
            "gained": float(share.mean()), "worst": float(share.min()),
            "below usual": int((value < usual).sum()),
            "spoken": float(np.mean(part["spoken"])),
            "covered": _mean(part["covered"]),
            "stated above": float(np.mean((low > value - usual)[measured]))
            if measured.any() else math.nan,
        })  # fmt: skip
    return table_of(
        lines,
        f"Rules over features, δ = {DELTA:g}",
        "issued: share of logs with at least one rule; false: share of logs with a rule that "
        "is no improvement; gained: mean share of the way from usual practice to the best policy; "
        "worst: the smallest; below usual: logs whose policy is worth less than usual practice; "
        "spoken: share of decisions with a suggestion; covered: share of tested rules whose "
        "interval holds what the whole trial says; stated above: share of logs in which the "
        "lower end of what following all rules at every decision brings is above the true gain.",
    )


def _mean(values: Any) -> float:
    """The mean of the numbers that there are; NaN where there are none."""
    numbers = np.asarray(values, np.float64)
    numbers = numbers[np.isfinite(numbers)]
    return float(numbers.mean()) if len(numbers) else math.nan


def figure(rows: Rows) -> Any:
    """Left: how often something is certified where nothing works. Right: what is gained."""
    table = list(summary(rows))
    null = [r for r in table if r["study"].startswith("nothing works")]
    care = [r for r in table if r["study"] == "intensive care"]
    canvas, axes = plot.grid(1, 2, width=5.2, height=max(2.6, 0.5 + 0.24 * len(care)))
    left, right = axes[0]
    at = np.arange(len(null))
    shares = np.array([r["false"] for r in null])
    ends = [clopper_pearson(round(r["false"] * r["logs"]), r["logs"]) for r in null]
    errors = np.abs(np.array(ends).reshape(-1, 2).T - shares)
    left.barh(at, shares, 0.6, xerr=errors, color="#0072b2")
    left.axvline(DELTA, color="black", lw=1, ls="--")
    left.set(yticks=at, yticklabels=[r["study"].removeprefix("nothing works: ") for r in null],
             title="logs with a false rule", xlim=(0, 0.2))  # fmt: skip
    left.invert_yaxis()
    place = np.arange(len(care))
    names = [f"{r['method']}, {r['n']:,} stays" for r in care]
    colours = ["#d55e00" if r["method"].startswith("Rules") else "#999999" for r in care]
    right.barh(place, [r["gained"] for r in care], 0.6, color=colours)
    for y, r in zip(place, care, strict=True):
        right.plot(r["worst"], y, "|", color="black", markersize=9)
    right.axvline(0, color="black", lw=1)
    right.set(yticks=place, yticklabels=names, xlim=(-0.6, 1.05),
              title="share of what there is to gain: mean, worst (|)")  # fmt: skip
    right.invert_yaxis()
    logs = max((r["logs"] for r in null), default=0)
    wards = ", ".join(
        f"{min(r['logs'] for r in care if r['n'] == n)} of {n:,}"
        for n in sorted({r["n"] for r in care})
    )
    plot.caption(
        canvas,
        f"{logs:,} logs of each shape, whiskers: 95 % Clopper-Pearson. Wards, at least: {wards} "
        "stays; 0 is usual practice, 1 the best treatment that is known.",
    )
    return canvas


def on_data(tables: Path | None = None, trials: Path | None = None) -> Experiment:
    """The experiment, with the parts that need data of the user.

    Args:
        tables: A folder of intensive-care tables in the layout of MIMIC. Default None: without
            them.
        trials: The file of the International Stroke Trial (Parquet). Default None: without it.

    Returns:
        The experiment.

    Example:
        >>> on_data().question
        'Are rules true, and what do they bring?'
    """
    return Experiment(
        "rules", "Are rules true, and what do they bring?",
        partial(settings, tables=tables, trials=trials), run, summary, figure,
    )  # fmt: skip
