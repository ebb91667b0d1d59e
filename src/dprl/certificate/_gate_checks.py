"""Settings of a gate that do not go together, and the pairs of a policy that it keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import api, option, worded
from dprl.certificate._gate_steps import Asked
from dprl.errors import LogError, ParameterError
from dprl.logs._encoding import encoding_of, filled
from dprl.logs.log import Log
from dprl.policies._protocol import Policy

__all__ = [
    "check_confounding", "check_for_policy", "check_for_rules", "refuse_own_medians", "same_pairs",
]  # fmt: skip

Bools = NDArray[np.bool_]


def check_for_rules(mode: str, states: Any, markov: bool, split: Any, horizon: Any) -> None:
    """Refuse settings that rules have no use for."""
    if mode == "in-sample" or states is not None:
        raise ParameterError(
            "rules are made from the data: there is no in-sample certificate.",
            do="Leave out mode and states.",
        )
    taken = {"markov": not markov, "split": split is not None, "horizon": horizon is not None}
    for name, given in taken.items():
        if given:
            raise ParameterError(
                f"a gate over rules takes no {name}.",
                do="Rules keep the halves they were made in, and count first visits; leave it out.",
            )


def refuse_own_medians(proposal: Any, log: Any) -> None:
    """Refuse a proof on a log whose own medians fill its gaps: they depend on what certifies.

    Args:
        proposal: A learner, or a policy.
        log: The log to certify with, encoded as the proposal takes it.
    """
    if not isinstance(log, Log):
        return
    learns = hasattr(proposal, "fit")
    if not learns and getattr(proposal, "provenance", {}).get("log") != log.digest():
        return
    encoding = encoding_of((filled(log) if learns else log).columns)
    fills = {} if encoding is None else encoding.fills
    own = [name for name, fill in fills.items() if fill.value is not None and fill.share > 0]
    if own:
        raise LogError(
            f"{own[0]!r} is missing on {fills[own[0]].share:.1%} of the rows and filled by the "
            "median of this log, so the rows that certify help to make the states.",
            f"columns that are filled: {', '.join(map(repr, own[:8]))}",
            worded(
                "Gate a policy that was fitted to another log (it brings its own medians), or say "
                "{grade}.",
                grade=option("grade", "large-sample"),
            ),
        )


def check_confounding(mode: str, asked: Asked) -> None:
    """Refuse Γ above 1 where nothing is tested at it."""
    where = "mode='policy'" if mode == "policy" else "grade='large-sample'"
    if asked.confounding > 1 and (mode == "policy" or asked.grade != "proved"):
        raise ParameterError(
            "what an unrecorded cause could do is tested by proofs of single suggestions only.",
            worded(
                "{where}, {confounding}{confounding2:g}",
                where=where,
                confounding=option("confounding"),
                confounding2=asked.confounding,
            ),
            worded(
                "Leave confounding out, or leave out {mode} and {grade}; {command} bounds the "
                "gain of a whole policy at each Γ.",
                mode=option("mode", "policy"),
                grade=option("grade", "large-sample"),
                command=api("dprl.sensitivity"),
            ),
        )


def check_for_policy(
    proposal: Any, states: Any, markov: bool, split: Any, horizon: int | None
) -> None:
    """Refuse settings that a gate for the whole policy has no use for."""
    learner = hasattr(proposal, "fit")
    unused = {
        "states": states is not None, "markov": not markov, "horizon": horizon is not None,
        "split": split is not None and not learner,
    }  # fmt: skip
    for name in (name for name, given in unused.items() if given):
        raise ParameterError(
            worded(
                "{mode} {x}takes no {name}.",
                mode=option("mode", "policy"),
                x="of a policy " if name == "split" else "",
                name=name,
            ),
            do="Leave it out.",
        )


def same_pairs(policy: Policy, log: Log) -> Bools:
    """bool (S, A): the policy's allowed pairs, in the order of the log's states and actions."""
    both = {
        "states": (policy.space.states, log.states), "actions": (policy.actions, log.actions),
    }  # fmt: skip
    for name, (ours, theirs) in both.items():
        if set(ours).isdisjoint(theirs):
            raise LogError(
                f"the log and the policy have no {name} in common.",
                f"{ours[0]!r} and {theirs[0]!r}",
                "Read the log as the training log was read.",
            )
    column = {label: i for i, label in enumerate(policy.actions)}
    shared = [j for j, label in enumerate(log.actions) if label in column]
    result = np.zeros((log.n_states, log.n_actions), bool)
    result[:, shared] = policy.at(log.states).allowed[:, [column[log.actions[j]] for j in shared]]
    return result
