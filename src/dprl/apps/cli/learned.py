"""What `dprl fit` says about rules that it learned."""

from __future__ import annotations

import json
from typing import Any

from dprl._core.table import Table

__all__ = ["facts_of_rules", "words_of_rules"]


def facts_of_rules(policy: Any) -> dict[str, Any]:
    """The rules, what is stated and noted, what they bring, and how they came about.

    Args:
        policy: A policy of `dprl.Rules`.
    """
    from dprl.policies._rule_rejected import not_issued  # which needs numpy

    record = policy.provenance["rules"]
    return {
        "rules": json.loads(policy.to_json_rules()),
        "stated": policy.stated,
        "notes": policy.provenance["notes"],
        "worth": policy.worth().to_dicts(),
        "not_issued": not_issued(policy).to_dicts(),
        "models": record["models"],
        "divisions": record["divisions"],
        "division": record["division"],
    }


def words_of_rules(policy: Any) -> str:
    """The rules as sentences with what is stated, what they bring, and the models behind them.

    Args:
        policy: A policy of `dprl.Rules`.
    """
    from dprl.policies._rule_rejected import not_issued  # which needs numpy

    models = policy.provenance["rules"]["models"]
    table = Table(
        {name: [line.get(name) for line in models] for name in models[0]},
        caption="Probabilities of actions, judged on groups that the models have not seen",
        note="log-loss in nats per row; misplaced: 0 perfect, 1 all wrong.",
    )
    apart = not_issued(policy)
    tables = "\n\n".join(map(str, (apart, table) if len(apart) else (table,)))
    if policy.rules:
        return f"{policy}\n\n{policy.worth()}\n\n{tables}"
    return "\n".join(
        ["No rule was certified: the policy defers everywhere.", *policy.provenance["notes"], "",
         tables]
    )  # fmt: skip
