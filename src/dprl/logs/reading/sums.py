"""A reward that is a weighted sum of columns: "cd4_20 - 0.5*toxicity", less what actions cost.

What is written has names of columns, numbers, ``+``, ``-``, ``*`` and parentheses, and nothing
else; a name with other characters stands in backquotes. It is read here and never run. Products of
two columns are refused, so that the sum has parts: each column with its weight. The parts are kept
(`Log.more`, as "of NAME"), so that judges can tell benefit, harm and cost apart (`dprl.evaluation`,
`by_part`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dprl._core.arrays import Floats
from dprl._core.table import first_few, many
from dprl._core.words import option, worded
from dprl.errors import LogError, ParameterError

TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[^\W\d][\w.]*|`[^`]+`)|(?P<mark>[-+*()]))"
)
DEEPEST: Final = 50
"""The most parentheses inside each other."""
OF: Final = "of "
"""What stands before the name of a part in `Log.more`."""
COST: Final = "cost"
"""The part that is what actions cost."""

Sum = dict[str, float]
"""Column → its weight; "" → a constant."""


def weights_of(text: str) -> Sum:
    """The columns of a weighted sum with their weights; "" has the constant.

    Args:
        text: The sum as it is written.

    Raises:
        ParameterError: It is no weighted sum.

    Example:
        >>> weights_of("cd4_20 - 0.5*(toxicity + `days off`)")
        {'cd4_20': 1.0, 'toxicity': -0.5, 'days off': -0.5}
    """
    tokens, at = [], 0
    body = text.rstrip()
    while at < len(body):
        match = TOKEN.match(body, at)
        if match is None:
            raise _no_sum(text, body[at:].strip()[:20])
        tokens.append((str(match.lastgroup), match[match.lastgroup or 0]))
        at = match.end()
    found, rest = _sum(tokens, 0, text, 0)
    if rest < len(tokens):
        raise _no_sum(text, tokens[rest][1])
    return {name: weight for name, weight in found.items() if weight or name}


def _no_sum(text: str, where: str) -> ParameterError:
    return ParameterError(
        worded("{reward} is no column and no weighted sum of columns.",
               reward=option("reward", text)),
        f"at {where!r}" if where else "it ends too early",
        "Names of columns, numbers, + - * and parentheses make a sum, as in 'a - 0.5*b'; a name "
        "with other characters stands in backquotes.",
        argument="reward",
    )  # fmt: skip


def _sum(tokens: list[tuple[str, str]], at: int, text: str, deep: int) -> tuple[Sum, int]:
    """A sum of products, from a token on; and the token after it."""
    total: Sum = {}
    sign = 1.0
    if at < len(tokens) and tokens[at][1] in "+-":
        sign, at = (-1.0 if tokens[at][1] == "-" else 1.0), at + 1
    while True:
        term, at = _product(tokens, at, text, deep)
        for name, weight in term.items():
            total[name] = total.get(name, 0.0) + sign * weight
        if at >= len(tokens) or tokens[at][1] not in ("+", "-"):
            return total, at
        sign, at = (-1.0 if tokens[at][1] == "-" else 1.0), at + 1


def _product(tokens: list[tuple[str, str]], at: int, text: str, deep: int) -> tuple[Sum, int]:
    """A product of which at most one part has columns."""
    result, at = _one(tokens, at, text, deep)
    while at < len(tokens) and tokens[at][1] == "*":
        other, at = _one(tokens, at + 1, text, deep)
        if not {*result} <= {""}:
            result, other = other, result
        if not {*result} <= {""}:
            raise _no_sum(text, "a product of two columns")
        factor = result.get("", 0.0)
        result = {name: factor * weight for name, weight in other.items()}
    return result, at


def _one(tokens: list[tuple[str, str]], at: int, text: str, deep: int) -> tuple[Sum, int]:
    """A number, a column, or a sum in parentheses."""
    kind, word = tokens[at] if at < len(tokens) else ("", "")
    if kind == "number":
        return {"": float(word)}, at + 1
    if kind == "name":
        return {word.strip("`"): 1.0}, at + 1
    if word == "(" and deep < DEEPEST:
        inside, at = _sum(tokens, at + 1, text, deep + 1)
        if at < len(tokens) and tokens[at][1] == ")":
            return inside, at + 1
        raise _no_sum(text, tokens[at][1] if at < len(tokens) else "")
    raise _no_sum(text, word)


# --- What else of outcomes is declared: costs of actions, and harms that are guarded


def costs_of(costs: Any) -> dict[str, float] | str:
    """What actions cost, as declared: a column, or action → cost; {} where nothing was.

    Args:
        costs: A column, a mapping, or words such as "drug=12.5".
    """
    if not costs:
        return {}
    if isinstance(costs, str) and "=" not in costs:
        return costs
    given = costs
    if not isinstance(costs, Mapping):
        words = list(costs) if isinstance(costs, list | tuple) else [costs]
        if len(words) == 1 and isinstance(words[0], str) and "=" not in words[0]:
            return words[0]
        given = dict(str(one).rpartition("=")[::2] for one in words)
    try:
        known = {str(action): float(cost) for action, cost in given.items()}
    except (TypeError, ValueError):
        known = {"": np.nan}
    if not all(action and 0 <= cost < np.inf for action, cost in known.items()):
        raise ParameterError(
            worded("{costs} must be a column, or the cost of each action, at least 0.",
                   costs=option("costs", costs)),
            do="For example: 'drug=12.5'. An action that is not named costs nothing.",
            argument="costs",
        )  # fmt: skip
    return known


def is_sum(reward: str) -> bool:
    """Whether a reward that is no column looks like a sum rather than a name with a slip."""
    return re.search(r"[-+*()`]", reward) is not None


def part_columns(names: Mapping[str, Any]) -> list[str]:
    """The columns of parts, guards and costs, each once."""
    parts, cost = [name for name in names.get("parts", ()) if name], names.get("costs")
    own = [cost] if isinstance(cost, str) else []
    return list(dict.fromkeys((*parts, *names.get("guard", ()), *own)))


def summed(
    names: Mapping[str, Any],
    number: Callable[[str], Floats],
    action: Sequence[Any],
    codes: Any,
    falls: bool,
) -> tuple[Floats | None, dict[str, Floats]]:
    """The reward of every row where it is made of parts, and the parts; None where it is not.

    Args:
        names: The names of a log's columns, as `sources_of` has them.
        number: Gives a column of numbers by its name.
        action: The labels of actions.
        codes: (N,), the action of each row.
        falls: Whether less of the outcome is better.
    """
    parts, cost = names.get("parts"), names.get("costs")
    more = {OF + name: number(name) for name in (*(parts or ()), *names.get("guard", ())) if name}
    if not parts and not cost:
        return None, more
    whole = parts or {str(names["reward"]): 1.0}
    more |= {OF + name: number(name) for name in whole if name}
    reward = np.full(len(codes), whole.get("", 0.0))
    for name, weight in whole.items():
        if name:
            reward = reward + weight * more[OF + name]
    if cost:
        if isinstance(cost, str):
            spent = number(cost)
            if (spent < 0).any():
                raise LogError(
                    f"the costs in {cost!r} are below 0 on {many(int((spent < 0).sum()), 'row')}.",
                    f"row {(row := int(np.argmax(spent < 0))) + 1:,}: {spent[row]:g}",
                    "A cost is taken off the outcome: write it as a number of at least 0.",
                )
        else:
            unknown = sorted({*cost} - {str(label) for label in action})
            if unknown:
                raise LogError(
                    f"costs name {first_few(map(repr, unknown), 4)}, and no action is called so.",
                    f"actions are {first_few(map(repr, action), 8)}",
                    "Name actions as the table does.",
                )
            table = np.array([cost.get(str(label), 0.0) for label in action] + [np.nan])
            spent = table[codes]
        more[OF + COST] = spent
        reward = reward + spent if falls else reward - spent
    return reward, more
