"""`dprl verify`: check who vouches for a policy file."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from dprl._core.table import printable
from dprl.apps.cli._app import command
from dprl.apps.cli.console import show
from dprl.apps.cli.options import Json

__all__ = ["verify"]


@command
def verify(
    policy: str,
    /,
    *,
    key: Annotated[
        str, Parameter(help="A public key of minisign: a .pub file, or its line of base64.")
    ],
    json: Json = False,
) -> int:
    """Check that a policy file is signed with a key, and that it can be used.

    The signature is POLICY.minisig, by `dprl sign` or by minisign.

    Example: `dprl verify policy.dprl --key ours.pub`

    Args:
        policy: A policy file.
    """
    from dprl.policies._load import load
    from dprl.policies._signature import PublicKey
    from dprl.policies._signature import verify as check_signature

    signed = check_signature(policy, PublicKey.read(key))
    digest = load(policy).digest()
    facts = {"ok": True, "key": signed.key, "comment": signed.comment, "digest": digest}
    text = (
        f"Signed with the key {signed.key}.\n"
        f"Trusted comment: {printable(signed.comment)}\n"
        f"Policy {digest}"
    )
    show(facts if json else text, json)
    return 0
