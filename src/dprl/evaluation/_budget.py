"""The best policy that treats at most a share, or spends at most an amount.

Every change of a policy is judged alone on a log: what it gains per episode, g, and what it spends
more than usual practice, c. Of all sets of whole changes, x in {0, 1}, the one is kept that gains
most and spends at most what is left of the budget, b (a knapsack, solved exactly):

    max Σ g x    with    Σ c x <= b.

Where changes could be bought in parts (x in [0, 1]) one unit more of b would bring the *price of
the last unit*, the shadow price of the budget (Dantzig 1957). What is kept is judged once more as a
whole, since changes of several decisions need not add up; where that spends too much, b is less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dprl._core.arrays import Bools, Floats
from dprl._core.checks import check_number, check_seed
from dprl._core.table import Result, Table
from dprl._core.words import worded
from dprl.errors import LogError, ParameterError
from dprl.evaluation._evaluate import evaluate
from dprl.logs.censoring import refuse_between
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
    check_number("most", most, "[0, inf)")
    known = costs_of(costs)
    if isinstance(known, str) or not known:
        raise ParameterError(
            "a budget needs what each action spends.", repr(costs),
            worded("Say {costs}: 1 for each action that treats gives the share of treated."),
            argument="costs",
        )  # fmt: skip
    singles, log = single_changes(policy), like_policy(policy, log)
    refuse_between(log)
    labels = [str(label) for label in log.actions]
    unknown = sorted({*known} - {*labels})
    if unknown:
        raise LogError(
            f"costs name {unknown[0]!r}, and no action is called so.", f"actions are {labels[:8]}"
        )
    cost = np.array([known.get(label, 0.0) for label in labels])
    own = {"survival", "horizon", "target", "outcome", "unit", "better", "unseen"}
    plain = {k: v for k, v in log.columns.items() if k not in own}
    better = {"better": "lower"} if log.outcome.falls else {}
    spending = replace(log, reward=log.outcome.shown(cost[log.action]), columns={**plain, **better})

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
    gain = np.array([log.outcome.shown(row["gain"]) for row in found])
    spent = np.array([row["spent"] for row in found])
    room, paid, more = most - usual, policy, np.inf
    for _ in range(len(found) + 1):
        if spent[spent < 0].sum() > room + TINY:
            raise _too_little(usual, most)
        kept, price = _bought(gain, spent, room)
        paid = only(policy, [place for place, own in zip(places, kept, strict=True) if own])
        more = judged(paid, spending)[0][0]
        if usual + more <= most + TINY:
            break
        room -= usual + more - most
    else:
        raise _too_little(usual, most)
    whole, _ = judged(paid, log)
    gains = (float(whole[0]), float(whole[1]), float(whole[2]))
    total, rows = usual, []
    ratio = np.array([_ratio(*each) for each in zip(gain, spent, strict=True)])
    for k in np.lexsort((-ratio, spent > 0, ~kept)).tolist():
        total += spent[k] if kept[k] else 0.0
        rows.append({**found[k], "total": float(total), "kept": bool(kept[k])})
    return Budget(
        paid, tuple(rows), float(most), usual, usual + float(more), gains, price, log.outcome
    )


TINY = 1e-9
"""Of an amount: what rounding may add."""


def _bought(gain: Floats, spent: Floats, room: float) -> tuple[Bools, float | None]:
    """The changes that gain most for what may be spent; and what one unit more would bring."""
    from scipy.optimize import LinearConstraint, linprog, milp

    worth = (gain > 0) | (spent < 0)
    if not worth.any():
        return worth, None
    room = max(room, spent[spent < 0].sum()) + TINY
    top = worth.astype(float)
    whole = milp(
        -gain, integrality=np.ones(len(gain)), bounds=(0, top),
        constraints=LinearConstraint(spent[None, :], ub=room), options={"mip_rel_gap": 0.0},
    )  # fmt: skip
    parts = linprog(-gain, spent[None, :], [room], bounds=np.column_stack((0 * top, top)))
    price = -float(parts.ineqlin.marginals[0])
    return np.asarray(whole.x > 0.5), price if price > TINY else None


def _too_little(usual: float, most: float) -> ParameterError:
    return ParameterError(
        f"usual practice spends {usual:.3g} an episode, and nothing that saves brings it down "
        f"to {most:.3g}.",
        do="Where the policy is silent practice goes on: learn a policy that says where not to "
        "treat, or allow more.",
        argument="most",
    )


def _ratio(gain: float, spent: float) -> float:
    """Gain per amount: infinite of what saves and gains, below 0 of what does not gain."""
    if not gain > 0:
        return -1.0
    return np.inf if spent <= 1e-12 else gain / spent
