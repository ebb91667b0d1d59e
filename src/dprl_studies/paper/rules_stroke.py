"""A randomised trial made observational, for the experiment `rules`.

The International Stroke Trial (IST Collaborative Group, 1997; doi 10.7488/ds/104) gave aspirin by
lot. A patient is kept with a chance that depends on treatment and age: the old seldom if treated,
the young seldom if not. In what is left aspirin seems to help a lot, because the young recover more
often. The whole trial says what is true in any region.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.database import connect
from dprl._core.intervals import newcombe
from dprl.learners.rules import Rules
from dprl.logs._io import from_arrays
from dprl.logs.log import Log
from dprl.policies._rule import Rule
from dprl_studies.harness import Row

__all__ = ["stroke_rows", "stroke_trial", "thinned"]

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
    took = at & (trial.action == trial.actions.index(rule.suggested))
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
    from dataclasses import replace

    kept = [f for f, name in enumerate(log.feature_names) if name not in hidden]
    names: tuple[Any, ...] = tuple(log.feature_names[f] for f in kept)
    return replace(log, features=np.asarray(log.features)[:, kept], feature_names=names)
