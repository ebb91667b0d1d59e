"""What a policy does to each part of an outcome: benefit, harm, cost, and guarded harms.

A reward may be a sum, "cd4_20 - 0.5*toxicity", less what actions cost. Its gain says nothing of how
it came about: CD4 higher and toxicity higher too, say. So each part is judged as an outcome of its
own, on the same log by the same estimate, in its own unit and direction. A harm that was named when
the log was read (`guard=`) refuses the policy where the log speaks for harm: where the lower end of
an interval of 80 % lies above 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from dprl._core.table import Table
from dprl._core.words import either, worded
from dprl.errors import LogError, ParameterError
from dprl.evaluation._effects import effects
from dprl.evaluation._evaluate import evaluate
from dprl.logs.censoring import refuse_between
from dprl.logs.log import Log
from dprl.logs.reading.sums import COST, OF
from dprl.logs.unseen import SEEN, completed
from dprl.policies.protocol import Policy

SPEAKS: Final = 0.80
"""The level of the interval by which a guarded harm refuses a policy."""


def by_part(
    policy: Policy, log: Log, *, draws: int = 1_000, seed: int = 0, level: float = 0.95
) -> Table:
    """What a policy brings in each part of an outcome, against usual practice.

    Args:
        policy: The policy.
        log: A log that it was not learned from, whose reward is a sum, whose actions have costs, or
            that has guarded harms.
        draws: Number of bootstrap draws. Default 1,000.
        seed: Seed of everything random. Default 0.
        level: Coverage of the intervals. Default 0.95.

    Returns:
        One row a part: its name, what it is ("benefit", "harm", "cost" or "guard"), its weight in
        the sum, the difference to usual practice in its own unit with an interval, and whether it
        refuses the policy.

    Raises:
        LogError: A part is missing somewhere.
        ParameterError: The log knows no parts.

    Example:
        >>> import numpy as np, pandas, dprl
        >>> from dprl.evaluation import by_part
        >>> rng = np.random.default_rng(0)
        >>> drug = rng.random(400) < 0.5
        >>> table = pandas.DataFrame({"id": range(400), "s": "all", "arm": np.where(drug, "d", "p"),
        ...                           "score": drug + rng.normal(size=400), "sick": drug * 0.5})
        >>> asked = {"episode": "id", "state": "s", "action": "arm", "reward": "score - 0.2*sick"}
        >>> train, test = dprl.from_frame(table, **asked).split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
        >>> parts = by_part(policy, test, draws=100)
        >>> parts["part"], parts["what"]
        (['score', 'sick'], ['benefit', 'harm'])
    """

    def judged(part: Log, at: float) -> tuple[float, float, float]:
        result = evaluate(policy, part, draws=draws, seed=seed, level=at)
        row = result.rows[result.headline]
        return row["difference"], row["difference_low"], row["difference_high"]

    return _table(log, level, judged)


def by_part_for_everyone(log: Log, arm: Any, *, level: float = 0.95, seed: int = 0) -> Table:
    """The same of one arm of a trial for everyone, by all patients; intervals hold for all arms.

    Args:
        log: The log of a trial.
        arm: The label of the arm.
        level: Coverage of the intervals. Default 0.95.
        seed: Seed of everything random. Default 0.
    """

    def judged(part: Log, at: float) -> tuple[float, float, float]:
        found = effects(part, delta=1 - at, seed=seed)
        (row,) = (row for row in found.rows if row["arm"] == arm)
        return row["difference"], row["low"], row["high"]

    return _table(log, level, judged)


def _table(
    log: Log, level: float, judged: Callable[[Log, float], tuple[float, float, float]]
) -> Table:
    """The parts of a log, each judged as an outcome of its own."""
    refuse_between(log)
    weights, guards = parts_of(log)
    if not weights and not guards:
        raise ParameterError(
            "this log knows no parts of its outcome.",
            do=worded(
                "Read it with a reward that is a sum ({reward='a - 0.5*b'}), with {costs} or with "
                "{guard}.",
                guard=either("guard=['bleeding']", "--guard bleeding"),
            ),
        )
    rows: list[dict[str, Any]] = []
    own = {k: v for k, v in log.columns.items() if k not in ("survival", "horizon", "target")}
    for name in dict.fromkeys((*weights, *guards)):
        values = log.more[OF + name]
        gone = np.isnan(values)
        if gone.any() and not (SEEN in log.more and np.isnan(log.more[SEEN])[gone].all()):
            raise LogError(
                f"{name!r} is missing on {int(gone.sum()):,} of {log.n_steps:,} rows.",
                do="Fill it, or leave such episodes out, to see what becomes of it.",
            )
        filled = log.outcome.shown(np.where(gone, 0.0, values))
        part = replace(log, reward=filled, columns={**own, "outcome": name})
        if gone.any():
            part = completed(replace(part, more={**log.more, SEEN: values}))
        difference, low, high = judged(part, level)
        refused = name in guards and judged(part, SPEAKS)[1] > 0
        harm = (weights.get(name, 0.0) < 0) != log.outcome.falls
        rows.append({
            "part": name,
            "what": "guard" if name in guards else "cost" if name == COST else
                    "harm" if harm else "benefit",
            "weight": weights.get(name, 0.0),
            "difference": difference, "low": low, "high": high, "refused": refused,
        })  # fmt: skip
    return Table({name: [row[name] for row in rows] for name in rows[0]}, "Parts of the outcome")


def parts_of(log: Log) -> tuple[dict[str, float], list[str]]:
    """The parts of a log's reward with their weights, and the harms that are guarded."""
    columns = log.columns
    weights = {name: float(w) for name, w in (columns.get("parts") or {}).items() if name}
    if OF + COST in log.more:
        if not weights:
            weights[str(columns.get("reward"))] = 1.0
        weights[COST] = 1.0 if log.outcome.falls else -1.0
    return weights, list(columns.get("guard") or ())


def told_parts(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The parts in two lines at most: what is refused and why, and every part beside the sum.

    Args:
        parts: The rows of `by_part`.
    """

    def number(row: Mapping[str, Any]) -> str:
        return f"{row['difference']:+.3g} ({row['low']:+.3g} to {row['high']:+.3g})"

    words = ", ".join(f"{row['part']} {number(row)}" for row in parts)
    refused = [f"{row['part']} {number(row)}" for row in parts if row["refused"]]
    lines = [f"Refused for what is guarded: {', '.join(refused)}."] if refused else []
    return [*lines, f"Its parts: {words}."] if parts else []
