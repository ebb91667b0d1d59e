"""The roles a column of a log can have, told once.

`read`, `from_frame` and `from_arrays` take one argument a role, the command line one option a role,
and a policy file keeps which column had which. They all read this table. For a new role: a line
here, an argument in `dprl.logs._io`, and how its values are read in `dprl.logs._sources`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["NAMES", "REQUIRED", "ROLES", "Role", "by_role"]


@dataclass(frozen=True)
class Role:
    """What a column can be.

    Attributes:
        name: The argument's name, and the option's.
        holds: "labels", "numbers", "times", "menus" (sets of actions), "endings" or
            "probabilities".
        help: What the column holds, in a sentence for the command line.
        required: Whether a log cannot be without it.
        several: Whether several columns together may have this role.
    """

    name: str
    holds: Literal["labels", "numbers", "times", "menus", "endings", "probabilities"]
    help: str
    required: bool = False
    several: bool = False


ROLES = (
    Role("episode", "labels", "Column naming the trajectory of a row.", required=True),
    Role("time", "times", "Column ordering an episode's rows (else their own order)."),
    Role(
        "state",
        "labels",
        "Column of state labels; for features repeat it, or give a pattern like 'x_*'.",
        required=True,
        several=True,
    ),
    Role(
        "action",
        "labels",
        "Column of action labels; repeat it where several columns together are the action.",
        required=True,
        several=True,
    ),
    Role(
        "reward", "numbers", "Column of the reward for this row's state and action.", required=True
    ),
    Role("group", "labels", "Column of what stays together, e.g. a patient's stays."),
    Role("available", "menus", "Column of the actions on offer: a list, or text 'a|b|c'."),
    Role(
        "ended",
        "endings",
        "Column saying terminal, cut or an event on an episode's last row.",
    ),
    Role(
        "propensity",
        "probabilities",
        "Column of the chance with which the action taken was taken, above 0 and at most 1; empty "
        "where it is unknown.",
    ),
)

NAMES = tuple(role.name for role in ROLES)
REQUIRED = tuple(role.name for role in ROLES if role.required)


def by_role(given: Mapping[str, Any]) -> dict[str, Any]:
    """Of the arguments of a call, those that name a column, in the order of the table."""
    return {name: given[name] for name in NAMES}
