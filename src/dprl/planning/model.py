"""The maximum-likelihood MDP of a log, in which every model-based baseline plans.

    n(s,a)    visits of (s, a), all of them
    P̂(s'|s,a) = n(s,a,s') / n(s,a); the ends of episodes are missing mass
    R̂(s,a)    mean reward of (s, a)
    π̂_b(a|s)  = n(s,a) / n(s)

A pair that was never seen has R̂ = 0 and ends the episode: value 0. In a state that was never seen
π̂_b is uniform.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.checks import Cut, check_gamma
from dprl._core.words import option, worded
from dprl.errors import LogError, ParameterError
from dprl.logs._censoring import treat_cut
from dprl.logs.log import Log, check_log
from dprl.planning.finite_mdp import FiniteMDP

__all__ = ["Model", "behavior_of", "estimate"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Model:
    """The maximum-likelihood MDP of a log, and the counts behind it.

    Attributes:
        mdp: P̂, R̂ and π̂_b as a FiniteMDP (which gives exact values of any policy in it).
        n: int64 (S, A), the number of visits of each pair.

    Example:
        >>> from dprl.envs import dense_chain
        >>> from dprl.planning import estimate
        >>> model = estimate(dense_chain().sample(100, seed=0), gamma=1.0)
        >>> model.n.shape, int(model.n.sum())
        ((8, 2), 800)
    """

    mdp: FiniteMDP
    n: NDArray[np.int64]

    @property
    def seen(self) -> NDArray[np.bool_]:
        """bool (S, A): pairs that occur in the log."""
        return np.asarray(self.n > 0)

    @property
    def visited(self) -> NDArray[np.bool_]:
        """bool (S,): states that occur in the log."""
        return np.asarray(self.seen.any(axis=1))


def estimate(log: Log, gamma: float, cut: Cut | None = None) -> Model:
    """The maximum-likelihood MDP of a log.

    Args:
        log: The log; its states are labels, and it does not say which actions were available.
        gamma: Discount in (0, 1].
        cut: What to do with cut episodes: "drop", "bootstrap" or "terminal". Default None: as
            "terminal", with a CutWarning.

    Returns:
        The model.

    Raises:
        LogError: If states are features, the log is empty, or it says which actions were available.
        ParameterError: If `gamma` or `cut` is not allowed.

    Example:
        >>> from dprl.envs import dense_chain
        >>> from dprl.planning import estimate
        >>> model = estimate(dense_chain().sample(2_000, seed=0), gamma=1.0)
        >>> round(model.mdp.value(), 1)
        4.0
    """
    gamma = check_gamma(gamma)
    check_log(log)
    log.codes()
    if log.available is not None:
        raise LogError(
            "the baselines do not take into account which actions were available.",
            do=worded(
                "Read the log without {available}, and see that what they suggest can be done.",
                available=option("available"),
            ),
        )
    log = treat_cut(log, gamma, cut)
    state, S, A = log.codes().astype(np.int64), log.n_states, log.n_actions
    pair = state * A + log.action
    inside = np.ones(log.n_steps, bool)
    inside[log.starts[1:] - 1] = False
    at = np.flatnonzero(inside)
    n = np.bincount(pair, minlength=S * A)
    moves = sparse.csr_array(
        (np.ones(len(at)), (pair[at], state[at + 1])), shape=(S * A, S), dtype=np.float64
    )
    moves.sum_duplicates()
    moves.data /= np.repeat(n, np.diff(moves.indptr))  # whole counts first: 1/n adds up to over 1
    reward = np.bincount(pair, weights=log.reward, minlength=S * A) / np.maximum(n, 1)
    counts = n.reshape(S, A)
    visits = counts.sum(axis=1, keepdims=True)
    mdp = FiniteMDP(
        name="maximum likelihood",
        states=log.states,
        actions=log.actions,
        P=moves,
        low=reward.reshape(S, A),
        high=reward.reshape(S, A),
        start=np.bincount(state[log.starts[:-1]], minlength=S) / log.n_episodes,
        behavior=np.where(visits > 0, counts / np.maximum(visits, 1), 1 / A),
        gamma=gamma,
    )
    return Model(mdp, counts)


def behavior_of(model: Model, given: Floats | None) -> Floats:
    """The behaviour (S, A): `given` if it is known, else π̂_b of the model."""
    if given is None:
        return model.mdp.behavior
    given = np.asarray(given, np.float64)
    good = given.shape == model.n.shape and bool(
        (given >= 0).all() and (np.abs(given.sum(axis=1) - 1) <= 1e-9).all()
    )
    if not good:
        raise ParameterError(
            f"behavior must be {model.n.shape} of distributions, one row per state of the log; "
            f"got {given.shape}.",
            do="Rows follow log.states, columns log.actions.",
        )
    return given
