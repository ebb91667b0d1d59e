"""`dprl changes`: the decisions a policy would change."""

from __future__ import annotations

from typing import Any

from dprl.apps.cli._app import command
from dprl.apps.cli.console import show
from dprl.apps.cli.options import Cases, Json

__all__ = ["changes"]


@command
def changes(
    policy: str, /, *, confirmations: bool = False, cases: Cases = False, json: Json = False
) -> int:
    """List the decisions a policy would change, the largest difference first.

    Args:
        policy: A policy file.
        confirmations: List instead the states where it suggests the usual action.
    """
    from dprl.policies._load import deferring
    from dprl.policies._rule_words import not_issued, rules_of

    fitted = deferring(policy)
    listed = fitted.confirmations if confirmations else fitted.changes
    table = listed(cases=cases)
    proved, ruled = fitted.certificate, rules_of(fitted)
    apart = None if ruled is None else not_issued(ruled)
    if json:
        facts = None if proved is None else proved.to_dict()
        more: dict[str, Any] = {"stated": fitted.stated} if fitted.stated else {}
        if fitted.luck is not None:
            more["luck"] = {**fitted.provenance["luck"], "words": fitted.luck.words}
        if apart is not None:
            more["not_issued"] = apart.to_dicts()
        show({"rows": table.to_dicts(), "certificate": facts, **more}, json)
        return 0
    show("\n\n".join(str(x) for x in (fitted, table, apart or None, proved) if x is not None), json)
    return 0
