"""Settings of a gate that do not go together."""

from __future__ import annotations

from typing import Any

from dprl.certificate._gate_steps import Asked
from dprl.errors import ParameterError

__all__ = ["check_confounding", "check_for_policy", "check_for_rules"]


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


def check_confounding(mode: str, asked: Asked) -> None:
    """Refuse Γ above 1 where nothing is tested at it."""
    where = "mode='policy'" if mode == "policy" else "grade='large-sample'"
    if asked.confounding > 1 and (mode == "policy" or asked.grade != "proved"):
        raise ParameterError(
            "what an unrecorded cause could do is tested by proofs of single suggestions only.",
            f"{where}, confounding={asked.confounding:g}",
            "Leave confounding out, or leave out mode='policy' and grade='large-sample'; "
            "dprl.sensitivity bounds the gain of a whole policy at each Γ.",
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
            f"mode='policy' {'of a policy ' if name == 'split' else ''}takes no {name}.",
            do="Leave it out.",
        )
