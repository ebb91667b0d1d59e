"""The command that writes a policy for others: `dprl export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite
from dprl.apps.cli._app import command
from dprl.apps.cli.console import progress, show
from dprl.apps.cli.options import Json

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
    json: Json = False,
) -> int:
    """Write a copy of a policy; with --public a copy that names nobody and answers the same.

    A public copy holds no labels of episodes, no sample of the training log and no digest of a
    log, so it cannot tell which logs it has seen. Without --public the copy holds everything that
    the policy holds, in the file format of this version.

    Example: `dprl export policy.dprl --public --out public.dprl`

    Args:
        policy: A policy file.
    """
    from dprl.policies._load import load
    from dprl.policies._public import public_copy

    refuse_overwrite(out, policy)
    with progress() as tell:
        tell("writing", 0.0)
        fitted = load(policy)
        copy = public_copy(fitted, points=points) if public else fitted
        copy.save(out)
        digest = load(out).digest()
    facts = {"policy": str(out), "digest": digest, "public": public}
    kind = "A public copy" if public else "A copy"
    show(facts if json else f"{kind} of {policy}. Saved as {out}.", json)
    return 0
