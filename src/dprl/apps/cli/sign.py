"""`dprl sign`: vouch for a policy file with a key of minisign."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from cyclopts import Parameter

from dprl.apps.cli._app import command
from dprl.apps.cli.console import show
from dprl.apps.cli.options import Json
from dprl.errors import ParameterError

__all__ = ["sign"]

PASSWORD = "DPRL_SIGN_PASSWORD"


@command
def sign(
    policy: str,
    /,
    *,
    key: Annotated[str, Parameter(help="A secret key that minisign -G made (.key).")],
    comment: Annotated[str, Parameter(help="A trusted comment; default: time and name.")] = "",
    json: Json = False,
) -> int:
    """Sign a policy file; the signature is written beside it, as POLICY.minisig.

    The format is minisign's: `minisign -V -p KEY.pub -m policy.dprl` checks it too. The password of
    the key, if it has one, is asked for, or taken from the environment variable
    DPRL_SIGN_PASSWORD.

    Example: `dprl sign policy.dprl --key ours.key`

    Args:
        policy: A policy file.
    """
    from dprl.policies._load import load
    from dprl.policies._signature import SecretKey
    from dprl.policies._signature import sign as write_signature

    load(policy)  # what cannot be used is not signed
    secret = SecretKey.read(key, _password)
    written = write_signature(policy, secret, comment)
    show({"policy": policy, "signature": str(written)} if json else f"Signed: {written}", json)
    return 0


def _password() -> str:
    given = os.environ.get(PASSWORD)
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise ParameterError(
            "the secret key has a password, and nobody can be asked for it.",
            do=f"Set {PASSWORD}, or run the command in a terminal.",
        )
    import getpass

    return getpass.getpass("Password of the key: ")
