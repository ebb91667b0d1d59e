"""The best policy that treats at most a share, or spends at most an amount.

Every change of a policy is judged alone on a log: what it gains per episode, and what it spends
more than usual practice. They are taken in the order of gain per amount until the next would spend
too much, those that save come first. The ratio of that next one is the *price of the last unit*:
what one unit more to spend would bring, per unit. What is kept is judged once more, as a whole,
since changes of several decisions need not add up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dprl._core.arrays import Floats
from dprl._core.checks import check_seed
from dprl._core.table import Result, Table
from dprl._core.words import worded
from dprl.errors import LogError, ParameterError
from dprl.evaluation._evaluate import evaluate
from dprl.logs.log import Log
from dprl.logs.outcome import UNDECLARED, Outcome
from dprl.logs.reading.sums import costs_of
from dprl.policies.base import only, single_changes
from dprl.policies.familiar import like_policy


@dataclass(frozen=True, eq=False)
class Budget(Result):
    """Which changes a budget pays for; from `dprl.evaluation.budget`.

    Attributes:
        policy: The policy with these changes alone.
        rows: One per change, in the order in which they are paid: where, suggested, gain (per
            episode, to usual practice, in the direction of the outcome) with low and high, spent
            (per episode, more than usual practice), total (what all so far spend, usual practice
            included), and kept.
        most: What may be spent per episode.
        usual: What usual practice spends per episode.
        spent: What the policy spends per episode, as estimated for all kept changes together.
        gain: What it gains per episode, with the ends of its interval.
        price: What one unit more would bring; None where all changes that gain are paid.
        outcome: What is gained.

    Example:
        >>> import dprl
        >>> from dprl.evaluation import budget
        >>> train, test = dprl.envs.care_pathway().sample(2000, seed=0).split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(train)
        >>> [row["kept"] for row in budget(policy, test, most=1, costs={"fluids": 1}).rows]
        [True, True]
    """

    HEAD: ClassVar[str] = "Budget"

    policy: Any
    rows: tuple[dict[str, Any], ...]
    most: float
    usual: float
    spent: float
    gain: tuple[float, float, float]
    price: float | None
    outcome: Outcome = UNDECLARED

    def lines(self) -> list[str]:
        """What is paid, what it brings, and the price of the last unit.

        Returns:
            Three lines.

        Example:
            >>> import dprl
            >>> dprl.evaluation.Budget(None, (), 0.3, 0.5, 0.5, (0.0, 0.0, 0.0), None).lines()[0]
            'Spends 0.5 an episode of at most 0.3; usual practice 0.5. 0 of 0 changes are kept.'
        """
        kept = sum(row["kept"] for row in self.rows)
        last = (
            "Every change that gains is paid: a larger budget brings nothing."
            if self.price is None
            else f"The price of the last unit: one more brings {self.outcome.shown(self.price):.3g}"
            f"{self.outcome.measured}."
        )
        return [
            f"Spends {self.spent:.3g} an episode of at most {self.most:.3g}; usual practice "
            f"{self.usual:.3g}. {kept} of {len(self.rows)} changes are kept.",
            f"Against usual practice: {self.outcome.apart(*self.gain)[1]}.",
            last,
        ]

    def table(self) -> Table:
        """The changes in the order in which they are paid.

        Returns:
            The columns are those of `rows`.

        Example:
            >>> import dprl
            >>> len(dprl.evaluation.Budget(None, (), 1.0, 0.0, 0.0, (0, 0, 0), None).table())
            0
        """
        names = ("where", "suggested", "gain", "low", "high", "spent", "total", "kept")
        return Table({name: [row[name] for row in self.rows] for name in names}, "Budget")

    def to_dict(self) -> dict[str, Any]:
        """All of it but the policy.

        Returns:
            Values that JSON can hold.

        Example:
            >>> import dprl
            >>> dprl.evaluation.Budget(None, (), 1.0, 0.0, 0.0, (0, 0, 0), None).to_dict()["most"]
            1.0
        """
        own = ("most", "usual", "spent", "price")
        return {name: getattr(self, name) for name in own} | {
            "gain": list(self.gain), "rows": [dict(row) for row in self.rows],
        }  # fmt: skip


def budget(
    policy: Any, log: Log, *, most: float, costs: Any, draws: int = 500, seed: int = 0
) -> Budget:
    """The best part of a policy that spends at most so much per episode.

    Args:
        policy: A policy of labelled states, or of rules.
        log: A log that it was not learned from. What is chosen by it must be judged on another.
        most: What may be spent per episode, usual practice included: an amount in the unit of
            `costs`, or, with a cost of 1 for what counts as treated, a share.
        costs: Action → what it spends; others spend nothing: ``{"drug": 1}`` for a share. Or words
            such as "drug=1".
        draws: Number of bootstrap draws of each interval. Default 500.
        seed: Seed of everything random. Default 0.

    Returns:
        The policy with the changes that are paid for, and the price of the last unit.

    Raises:
        LogError: An action of `costs` is not in the log.
        ParameterError: `most` is less than what saving changes can bring usual practice down to.
        PolicyError: The policy is of a kind whose changes cannot be taken one by one.

    Example:
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(2000, seed=0).split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(train)
        >>> paid = dprl.evaluation.budget(policy, test, most=1.0, costs={"antibiotics": 1})
        >>> paid.spent <= 1.0
        True
    """
    check_seed(seed)
    known = costs_of(costs)
    if isinstance(known, str) or not known:
        raise ParameterError(
            "a budget needs what each action spends.", repr(costs),
            worded("Say {costs}: 1 for each action that treats gives the share of treated."),
            argument="costs",
        )  # fmt: skip
    singles, log = single_changes(policy), like_policy(policy, log)
    labels = [str(label) for label in log.actions]
    unknown = sorted({*known} - {*labels})
    if unknown:
        raise LogError(
            f"costs name {unknown[0]!r}, and no action is called so.", f"actions are {labels[:8]}"
        )
    price = np.array([known.get(label, 0.0) for label in labels])
    own = {"survival", "horizon", "target", "outcome", "unit", "better", "unseen"}
    plain = {k: v for k, v in log.columns.items() if k not in own}
    better = {"better": "lower"} if log.outcome.falls else {}
    spending = replace(
        log, reward=log.outcome.shown(price[log.action]), columns={**plain, **better}
    )

    def judged(one: Any, of: Log) -> tuple[Floats, float]:
        """The difference to usual practice with its ends, and the value of usual practice."""
        result = evaluate(one, of, draws=draws, seed=seed)
        row = result.rows[result.headline]
        return np.array(
            [row["difference"], row["difference_low"], row["difference_high"]]
        ), result.behavior["value"]

    usual = judged(only(policy, ()), spending)[1]
    found: list[dict[str, Any]] = []
    places: list[int] = []
    for place, where, suggested, alone in singles:
        (gain, low, high), _ = judged(alone, log)
        (spent, _low, _high), _ = judged(alone, spending)
        places.append(place)
        found.append({"where": where, "suggested": suggested, "gain": float(gain),
                      "low": float(low), "high": float(high), "spent": float(spent)})  # fmt: skip
    ratio = [_ratio(log.outcome.shown(row["gain"]), row["spent"]) for row in found]
    total, last = usual, None
    kept: list[int] = []
    rows: list[dict[str, Any]] = []
    for k in np.argsort(-np.array(ratio), kind="stable").tolist():
        row = found[k]
        pays = ratio[k] > 0 and total + row["spent"] <= most and last is None
        if pays:
            total, kept = total + row["spent"], [*kept, k]
        elif ratio[k] > 0 and last is None:
            last = ratio[k]
        rows.append({**row, "total": total, "kept": pays})
    if total > most:
        raise ParameterError(
            f"usual practice spends {usual:.3g} an episode, and nothing that saves brings it down "
            f"to {most:.3g}.",
            do="Where the policy is silent practice goes on: learn a policy that says where not to "
            "treat, or allow more.",
            argument="most",
        )
    paid = only(policy, [places[k] for k in sorted(kept)])
    whole, _ = judged(paid, log)
    more, _ = judged(paid, spending)
    gains = (float(whole[0]), float(whole[1]), float(whole[2]))
    return Budget(
        paid, tuple(rows), float(most), usual, usual + float(more[0]), gains, last, log.outcome
    )


def _ratio(gain: float, spent: float) -> float:
    """Gain per amount: infinite of what saves and gains, below 0 of what does not gain."""
    if not gain > 0:
        return -1.0
    return np.inf if spent <= 1e-12 else gain / spent
