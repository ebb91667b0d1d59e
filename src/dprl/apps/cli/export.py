"""The command that writes a policy for others: `dprl export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite, replacing
from dprl.apps.cli._app import command
from dprl.apps.cli.console import progress, show
from dprl.apps.cli.options import SETTINGS, Json
from dprl.errors import ParameterError

__all__ = ["export"]


@command
def export(
    policy: str,
    /,
    *,
    out: Annotated[Path, Parameter(help="File for the copy.")],
    public: Annotated[
        bool, Parameter(help="Leave out whatever names or identifies people.", negative="")
    ] = False,
    points: Annotated[
        bool,
        Parameter(
            help="With --public: keep training points or cell centres, which are measurements "
            "of single people.",
            negative="",
        ),
    ] = False,
    to: Annotated[
        Literal["sql", "json", "python"] | None,
        Parameter(
            help="Rules only: write them as a query of DuckDB, as JSON, or as a Python function, "
            "with the same answers."
        ),
    ] = None,
    table: Annotated[
        str | None,
        Parameter(help="With --to sql: the table that is asked; by default stays."),
    ] = None,
    column: Annotated[
        str | None,
        Parameter(help="With --to sql: the column of suggestions; by default suggested."),
    ] = None,
    json: Json = False,
) -> int:
    """Write a copy of a policy; with --public a copy that names nobody and answers the same.

    A public copy holds no labels of episodes, no sample of the training log and no digest of a
    log, so it cannot tell which logs it has seen. Without --public the copy holds everything that
    the policy holds, in the file format of this version.

    A policy made of rules can be written for other programs too, with --to.

    Example: `dprl export policy.dprl --public --out public.dprl`

    Example: `dprl export policy.dprl --to sql --table stays --out rules.sql`

    Args:
        policy: A policy file.
    """
    from dprl.policies._load import load
    from dprl.policies._public import public_copy

    names = {"table": table, "column": column}
    naming = {name: value for name, value in names.items() if value is not None}
    if to is not None:
        _refuse("--to", {"public": public or None, "points": points or None}, "a policy file")
    if to != "sql":
        _refuse(f"--to {to}" if to else "a policy file", naming, "--to sql")
    refuse_overwrite(out, policy)
    with progress() as tell:
        tell("writing", 0.0)
        fitted = load(policy)
        if to is not None:
            text = _text(fitted, policy, to, naming)
            _refuse_folder(out)
            with replacing(out) as part:
                part.write_text(text, encoding="utf-8")
            written = {"out": str(out), "to": to, "rules": len(getattr(fitted, "rules", ()))}
            show(written if json else f"The rules of {policy} as {to}. Saved as {out}.", json)
            return 0
        copy = public_copy(fitted, points=points) if public else fitted
        copy.save(out)
        digest = load(out).digest()
    facts = {"policy": str(out), "digest": digest, "public": public}
    kind = "A public copy" if public else "A copy"
    show(facts if json else f"{kind} of {policy}. Saved as {out}.", json)
    return 0


def _refuse(asked: str, given: dict[str, Any], only: str) -> None:
    """Refuse options that are not for what is asked."""
    others = {name: value for name, value in given.items() if value is not None}
    if others:
        first = next(iter(others))
        raise ParameterError(
            f"{', '.join(f'--{name}' for name in others)}: not for {asked}, only for {only}.",
            f"--{first}{'' if others[first] is True else f' {others[first]}'}",
            f"Leave {'it' if len(others) == 1 else 'them'} out (in {SETTINGS} too).",
        )


def _text(fitted: Any, policy: str, to: str, naming: dict[str, str]) -> str:
    """The rules of a policy in another language; refused where it is made of something else."""
    if to not in fitted.exports:
        raise ParameterError(
            f"--to {to} is for policies made of rules; {policy!r} holds a policy of "
            f"{fitted.parameters.get('learner', 'another kind')}.",
            policy,
            "Leave --to out for a copy of the policy file, or learn rules: dprl fit --learner "
            "rules.",
        )
    return str(fitted.exports[to](**naming))


def _refuse_folder(out: Path) -> None:
    if not out.parent.is_dir():
        raise ParameterError(f"the folder of {str(out)!r} does not exist.", do="Make it first.")
