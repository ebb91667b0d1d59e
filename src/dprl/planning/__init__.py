"""From allowed decisions to the best plan among them.

Evidence and allowed pairs come in. Out come the elevated semi-MDP (the paper's Algorithm 2), finite
MDPs with exact values, the maximum-likelihood model of a log and a check of what such a model
needs, and policy iteration over them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl.planning.finite_mdp import FiniteMDP as FiniteMDP
    from dprl.planning.markov import MarkovCheck as MarkovCheck
    from dprl.planning.markov import markov_check as markov_check
    from dprl.planning.model import Model as Model
    from dprl.planning.model import estimate as estimate
    from dprl.planning.semi_mdp import SemiMDP as SemiMDP
    from dprl.planning.semi_mdp import build_semi_mdp as build_semi_mdp

__getattr__, __dir__, __all__ = attach(__name__)
