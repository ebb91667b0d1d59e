r"""Decision-Point RL (Sharma, Benac, Parbhoo, Doshi-Velez, AISTATS 2025).

Algorithm 1, discrete states: evidence → allowed pairs (Eq. 1) → elevated semi-MDP (Alg. 2) →
policy iteration over it → a policy that acts at decision points and defers everywhere else.

Departures from the paper: `contrast` (see `dprl.evidence.decision_points`), the repaired segments
(see `dprl.planning.semi_mdp`), and a stated treatment of cut episodes (see `dprl.logs._censoring`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.limits import need_for_pairs
from dprl.errors import ParameterError
from dprl.evidence._evidence import Evidence, Visits
from dprl.evidence.decision_points import allowed, best_choice, check_n_min, vary
from dprl.evidence.tabular import (
    LARGEST_TABLE,
    Occurrences,
    availability,
    check_gamma,
    check_visits,
    tally,
)
from dprl.logs._censoring import check_cut, settle
from dprl.logs.log import Cut, Log, check_log
from dprl.planning.semi_mdp import elevate
from dprl.planning.semi_policy_iteration import policy_iteration
from dprl.policies._base import provenance_of
from dprl.policies.table import TablePolicy

__all__ = ["DPRLDiscrete"]


@dataclass(frozen=True, kw_only=True)
class DPRLDiscrete:
    """DPRL for labelled states.

    Attributes:
        n_min: Trajectories an action needs behind it before it may be suggested.
        gamma: Discount in (0, 1].
        contrast: Also require n_min trajectories that did otherwise; False is the paper's rule.
        plan: Plan over many decisions; False takes the best single one (argmax Q̂).
        visits: "first" counts trajectories; "all" counts visits (for comparison, no certificate).
        cut: What to do with cut episodes: "drop", "bootstrap", "terminal", or None to be warned.
    """

    n_min: float
    gamma: float
    contrast: bool = True
    plan: bool = True
    visits: Visits = "first"
    cut: Cut | None = None

    def __post_init__(self) -> None:
        check_n_min(self.n_min)
        check_gamma(self.gamma)
        check_visits(self.visits)
        check_cut(self.cut)
        for name in ("contrast", "plan"):
            if not isinstance(getattr(self, name), bool):
                raise ParameterError(f"{name} must be true or false; got {getattr(self, name)!r}.")

    def fit(self, log: Log) -> TablePolicy:
        """The policy this log supports."""
        return next(self.fit_each(log, [{}]))

    def fit_each(self, log: Log, settings: Sequence[Mapping[str, Any]]) -> Iterator[TablePolicy]:
        """The policy for each setting of n_min, from evidence gathered once."""
        learners = [replace(self, **setting) for setting in vary(settings, ("n_min",))]
        check_log(log)
        log.codes()
        if log.n_states * log.n_actions <= LARGEST_TABLE:  # else refused for that
            need_for_pairs(log.n_states, log.n_actions)
        settled = settle(log, self.gamma, self.cut).gathered()
        known, occurrences = tally(settled, self.gamma, visits=self.visits)
        offered = availability(log)
        for learner in learners:
            pairs = allowed(known, learner.n_min, contrast=self.contrast, available=offered)
            choice, planned = self.choose(settled, known, occurrences, pairs)
            yield TablePolicy.of(
                known,
                choice=choice,
                allowed=pairs,
                planned=planned,
                steps=np.bincount(settled.codes(), minlength=log.n_states),
                parameters=learner.settings(),
                provenance=provenance_of(log, settled),
            )

    def settings(self) -> dict[str, Any]:
        """The learner as it goes into a policy's parameters."""
        n_min = None if math.isinf(self.n_min) else int(self.n_min)
        settings = {**asdict(self), "n_min": n_min, "gamma": float(self.gamma)}
        return {"learner": type(self).__name__, **settings}

    def choose(
        self, log: Log, known: Evidence, occurrences: Occurrences, pairs: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The chosen action of each state (S,), -1 for DEFER, and the planned values (S, A).

        From the evidence of a settled log, which learners of one gamma can share.
        """
        choice = best_choice(known.pair.mean, pairs)
        planned = np.where(pairs, known.pair.mean, np.nan)
        if self.plan:
            semi = elevate(log, known, occurrences, pairs)
            result = policy_iteration(semi, known.pair.mean[pairs])
            choice[semi.points] = semi.action[result.rows]
            planned[pairs] = result.q
        return choice, planned
