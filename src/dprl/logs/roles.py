"""The roles a column of a log can have, told once.

Whoever reads, checks, takes, digests, stores or writes the columns of a log goes through this
table: `read` and its siblings take one argument a role, the command line has one option a role, a
policy file keeps which column had which. For a new role: a `Role` here, and an argument of the same
name in `dprl.logs._io`. Its values, numbers of the rows, are in `Log.more` then; a role whose
values are more than that has a field of its own in `dprl.logs.log.Log`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Role:
    """What a column can be.

    Attributes:
        name: The argument's name, and the option's.
        holds: "labels", "numbers", "times", "menus" (sets of actions), "endings" or
            "probabilities".
        help: What the column holds, in a sentence for the command line.
        doc: The same for the help of functions, after "Column that holds" or "(N,),".
        required: Whether a log cannot be without it.
        several: Whether several columns together may have this role.
        stored: How one entry per row is stored on disk, such as "f8" or "i4"; "" where rows have
            none of their own. Default "".
        further: Whether the values are in `Log.more`, since the log has no field for them.
    """

    name: str
    holds: Literal["labels", "numbers", "times", "menus", "endings", "probabilities"]
    help: str
    doc: str
    required: bool = False
    several: bool = False
    stored: str = ""
    further: bool = False

    @property
    def column(self) -> str:
        """The argument of a function that takes the name of a column."""
        return f"Column that holds {self.doc}"

    @property
    def values(self) -> str:
        """The argument of a function that takes the values themselves."""
        return f"(N,), {self.doc}"

    @property
    def is_number(self) -> bool:
        """Whether its values are numbers."""
        return self.holds in ("numbers", "probabilities")


ROLES = [
    Role(
        "episode",
        "labels",
        "Column naming the trajectory of a row.",
        "the trajectory each row belongs to.",
        required=True,
    ),
    Role(
        "time",
        "times",
        "Column ordering an episode's rows (else their own order).",
        "what orders the rows of an episode: numbers or dates. Default None: the rows are in "
        "order already.",
    ),
    Role(
        "state",
        "labels",
        "Column of state labels; for features repeat it, or give a pattern like 'x_*'.",
        "state labels; or a list of columns, or a pattern such as ``'x_*'``, whose "
        "columns together are the state: features. Columns of text or truth values are categories "
        "there.",
        required=True,
        several=True,
        stored="i4",
    ),
    Role(
        "action",
        "labels",
        "Column of action labels; repeat it where several columns together are the action.",
        "action labels; or a list of columns that together are the action: each combination is "
        'one, called "bolus=yes · pressor=no".',
        required=True,
        several=True,
        stored="i4",
    ),
    Role(
        "reward",
        "numbers",
        "Column of the reward for this row's state and action.",
        "the reward of the row's state and action, in any unit.",
        required=True,
        stored="f8",
    ),
    Role(
        "group",
        "labels",
        "Column of what stays together, e.g. a patient's stays.",
        "what must stay together in splits and counts as one trajectory, such as the patient of "
        "several stays. Default None: every episode is its own group.",
    ),
    Role(
        "available",
        "menus",
        "Column of the actions on offer: a list, or text 'a|b|c'.",
        "the actions that were available: lists, or text such as 'a|b|c'. Default None: not "
        "recorded.",
        stored="i4",
    ),
    Role(
        "ended",
        "endings",
        "Column saying terminal, cut or an event on an episode's last row.",
        "how the episode ended, read from its last row: terminal (true), cut or censored (false), "
        "or one of `events`. Default None: not recorded, treated as terminal.",
    ),
    Role(
        "propensity",
        "probabilities",
        "Column of the chance with which the action taken was taken, above 0 and at most 1; empty "
        "where it is unknown.",
        "the chance with which the action taken was taken, above 0 and at most 1, empty (NaN or "
        "None) where it is unknown: a trial, or a rule with a lottery. `dprl.Rules`, "
        "`dprl.evaluate` and `dprl.gate` use it. Default None: not recorded.",
        stored="f8",
    ),
]


class _Names(Sequence[str]):
    """The names of roles, as they are in the table now."""

    def __init__(self, required: bool) -> None:
        self.required = required

    def _now(self) -> list[str]:
        return [role.name for role in ROLES if role.required or not self.required]

    def __getitem__(self, i: Any) -> Any:
        return self._now()[i]

    def __len__(self) -> int:
        return len(self._now())


NAMES = _Names(required=False)
REQUIRED = _Names(required=True)


_MORE: ContextVar[Mapping[str, Any]] = ContextVar("columns of roles that are no argument")


def by_role(given: Mapping[str, Any]) -> dict[str, Any]:
    """Of the arguments of a call, those that name a column, in the order of the table."""
    every = {**_MORE.get({}), **given}
    return {role.name: every.get(role.name) for role in ROLES}


def takes_roles(function: F) -> F:
    """Let the function below take every role, also one that is no argument of it.

    A role that somebody added to the table can be named in a call like any other: `by_role`, called
    in the function, has it.
    """
    own = inspect.signature(function).parameters

    @functools.wraps(function)
    def taking(*args: Any, **given: Any) -> Any:
        more = {role.name for role in further_roles()} - {*own}
        token = _MORE.set({name: given.pop(name) for name in more & {*given}})
        try:
            return function(*args, **given)
        finally:
            _MORE.reset(token)

    return cast("F", taking)


def further_roles() -> Iterator[Role]:
    """The roles whose values are in `Log.more`."""
    return (role for role in ROLES if role.further)
