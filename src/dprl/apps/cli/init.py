"""`dprl init`: proposes which column of a table is what, and writes dprl.toml."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dprl._core.disk import check_target, replacing
from dprl.apps.cli._app import command
from dprl.apps.cli.console import caution, complain, progress, show
from dprl.apps.cli.options import SETTINGS, FilesOfLog, Json
from dprl.apps.cli.reading import Dates, Decimal, Labels, Letters
from dprl.errors import ParameterError
from dprl.logs.columns import ROLES

if TYPE_CHECKING:
    from dprl.logs._proposal import Proposal

__all__ = ["init"]

ASKED = ("episode", "action", "reward", "state")
SHOWN = 12
"""Columns that a question or an error names at most."""
Name = Annotated[str | None, Parameter(help="Take this column, whatever is proposed.")]
Names = Annotated[
    list[str] | None,
    Parameter(help="Take this column; repeat it for several.", negative=""),
]


@command
def init(
    files: FilesOfLog,
    *,
    episode: Name = None,
    time: Name = None,
    state: Names = None,
    action: Names = None,
    reward: Name = None,
    group: Name = None,
    ended: Name = None,
    propensity: Name = None,
    decimal: Decimal = None,
    encoding: Letters = None,
    dates: Dates = None,
    labels: Labels = None,
    force: Annotated[bool, Parameter(help="Replace a dprl.toml that exists.", negative="")] = False,
    json: Json = False,
) -> int:
    """Look at a table, propose which column is what, and write dprl.toml.

    What is learned hangs on the action and the reward: they are proposed by their names alone.
    Where no name says it, you are asked; without a terminal the command says what to name.
    Afterwards `dprl check` and `dprl fit` work in this folder without options.

    Example: `dprl init visits.csv`

    Example: `dprl init visits.csv --action drug --reward score`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
    """
    from dprl.logs._proposal import look, propose
    from dprl.logs._text import Text

    target = Path(SETTINGS)
    if target.exists() and not force:
        raise ParameterError(
            f"{SETTINGS} exists here.", str(target.resolve().parent), "Say --force to replace it."
        )
    check_target(target)
    options = {"decimal": decimal, "encoding": encoding, "dates": dates, "labels": labels}
    written = {name: value for name, value in options.items() if value is not None}
    with progress() as tell:
        tell("looking at the first rows", 0.0)
        table = look(files, text=Text(**written))
    given: dict[str, Any] = {
        "episode": episode, "time": time, "state": state, "action": action, "reward": reward,
        "group": group, "ended": ended, "propensity": propensity,
    }  # fmt: skip
    given = {role: _one(value) for role, value in given.items() if value}
    _check_names(given, [c.name for c in table.columns])
    proposal = propose(table, given)
    while proposal.open and sys.stdin.isatty() and not json:
        role = next(role for role in ASKED if role in proposal.open)
        given[role] = _ask(role, proposal.open[role], [c.name for c in table.columns])
        proposal = propose(table, given)
    if proposal.open:
        _refuse(proposal)
    text = _toml(files, proposal, written)
    cautions = _cautions(proposal)
    with replacing(target) as part:
        part.write_text(text, encoding="utf-8")
    if json:
        show(
            {
                "columns": proposal.columns, "reasons": proposal.reasons,
                "left_out": proposal.left_out, "candidates": proposal.candidates,
                "rows": proposal.rows, "settings": SETTINGS, "warnings": cautions,
            },
            as_json=True,
        )  # fmt: skip
        return 0
    caution(cautions)
    show(
        f"{text}\nSaved as {SETTINGS}. It is a proposal from {proposal.rows:,} rows: read it, mend "
        "it. Then: dprl check, dprl fit",
        as_json=False,
    )
    return 0


def _one(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _check_names(given: dict[str, Any], columns: list[str]) -> None:
    for role, value in given.items():
        for name in [value] if isinstance(value, str) else value:
            if name not in columns:
                raise ParameterError(
                    f"--{role}: there is no column {name!r}.",
                    f"columns are {_listed(columns)}",
                    "Name one of them.",
                )


def _listed(columns: list[str]) -> str:
    more = f" and {len(columns) - SHOWN:,} more" if len(columns) > SHOWN else ""
    return ", ".join(map(repr, columns[:SHOWN])) + more


def _meaning(role: str) -> str:
    return next(one.help for one in ROLES if one.name == role)


def _ask(role: str, candidates: list[str], columns: list[str]) -> Any:
    """Ask on the terminal which column has a role; again until the answer is one."""
    complain(f"\nWhich column is the {role}? {_meaning(role)}")
    for number, name in enumerate(candidates[:SHOWN], 1):
        complain(f"  {number}  {name}")
    while True:
        sys.stderr.write(f"{role} (a number or a name; Ctrl-C to stop): ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
        if not answer:  # the terminal is gone
            raise KeyboardInterrupt
        word = answer.strip()
        if word in columns:
            return word
        if word.isdecimal() and 1 <= int(word) <= min(len(candidates), SHOWN):
            return candidates[int(word) - 1]
        complain(f"There is no column {word!r}.")


def _refuse(proposal: Proposal) -> None:
    role = next(role for role in ASKED if role in proposal.open)
    candidates = proposal.open[role]
    could = f"could be {_listed(candidates)}" if candidates else "no column could be it"
    raise ParameterError(
        f"no name says which column is the {' or the '.join(proposal.open)}.",
        f"{role}: {could}",
        " ".join(f"--{one} COLUMN" for one in proposal.open) + f": say it. {_meaning(role)}",
    )


def _toml(files: list[str], proposal: Proposal, written: dict[str, Any]) -> str:
    """The settings with the reasons as comments."""
    lines = [
        "# Which column is what, as proposed by dprl init. Read it and mend it: every command that",
        "# is started in this folder takes it from here.",
        "[log]",
        f"files = {_value(files)}",
    ]
    for role in ROLES:
        if role.name in proposal.columns:
            value = _value(proposal.columns[role.name])
            lines.append(f"{role.name} = {value}  # {_line(proposal.reasons[role.name])}")
        if others := proposal.candidates.get(role.name):
            more = f" and {len(others) - SHOWN:,} more" if len(others) > SHOWN else ""
            also = "also " if role.name in proposal.columns else ""
            names = ", ".join(map(_word, others[:SHOWN])) + more
            lines.append(f"# {role.name} could {also}be: {names}")
    lines += [f"{name} = {_value(value)}" for name, value in written.items()]
    if proposal.zeros:
        word = f"{proposal.columns['reward']}=zero"
        lines.append(f"missing = {_value([word])}  # an outcome on the last row; before it 0")
    lines += [f"# left out: {_word(name)}: {why}" for name, why in proposal.left_out.items()]
    features = isinstance(proposal.columns["state"], list)
    gamma, why = 0.99, "what comes a step later counts 0.99 of it now"
    if proposal.single:
        gamma, why = 1.0, "one decision each"
    elif proposal.outcome:
        gamma, why = 1.0, "one outcome at the end of short episodes: it counts whole, early or late"
    lines += ["", "[fit]", f"gamma = {gamma}  # {why}"]
    if features:
        lines.append(
            'learner = "rules"  # sentences over features, certified on half of the groups'
        )
    else:
        lines.append("n-min = 20  # episodes an action needs before it may be suggested")
    return "\n".join(lines) + "\n"


def _cautions(proposal: Proposal) -> list[str]:
    """What a user must look at before anything is learned."""
    state = proposal.columns["state"]
    kept = [state] if isinstance(state, str) else state
    return [
        f"{name!r} tells the action on {share:.1%} of rows: most likely what was given, not why. "
        + (
            "It is in the state as you said; nothing can be compared there."
            if name in kept
            else "It is left out of the state; leave it out of what is compared too (also)."
        )
        for name, share in proposal.fixing.items()
    ]


def _value(value: Any) -> str:
    return f"[{', '.join(map(_word, value))}]" if isinstance(value, list) else _word(value)


def _line(words: str) -> str:
    """Words for a comment: on one line, and without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in words)


def _word(value: Any) -> str:
    """A TOML string: JSON's is one, but for the letter DEL."""
    from json import dumps

    return dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
