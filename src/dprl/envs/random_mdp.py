"""Random problems, drawn by one rule, and an expert who is half-way to the best policy.

S = 30 states, A = 4 actions, γ = .95. For every pair:

* three next states are drawn without replacement; their probabilities are the gaps that two uniform
  points leave in [0, 1], times .95: every step ends the episode with probability .05;
* with probability .2 the pair pays U[0, 2 μ] on every visit, μ ~ U[0, 1]; otherwise it pays 0.

The first state is the start. The behaviour is softmax(Q* / T) with the temperature T at which its
value is half-way between those of the uniform policy and of the best one, as in the random MDPs on
which SPIBB was compared (Laroche, Trichelair, Tachet des Combes, 2019).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.checks import check_seed
from dprl.planning.finite_mdp import FiniteMDP

STATES, ACTIONS, SUCCESSORS, GAMMA = 30, 4, 3, 0.95
END, PAID, HALFWAY = 0.05, 0.2, 0.5


def random_mdp(seed: int) -> FiniteMDP:
    """The random problem with this number.

    Args:
        seed: The number of the problem; a whole number from 0.

    Returns:
        The problem, with 30 states and 4 actions.

    Raises:
        ParameterError: If the seed is no such number.

    Example:
        >>> from dprl.envs import random_mdp
        >>> problem = random_mdp(0)
        >>> round(problem.value(), 2), len(problem.states)
        (3.0, 30)
    """
    rng = np.random.default_rng([20, check_seed(seed)])
    S, A = STATES, ACTIONS
    P = np.zeros((S * A, S))
    for pair in range(S * A):
        successors = rng.choice(S, SUCCESSORS, replace=False)
        points = np.sort(rng.random(SUCCESSORS - 1))
        P[pair, successors] = np.diff(np.concatenate(([0], points, [1]))) * (1 - END)
    mean = np.where(rng.random((S, A)) < PAID, rng.random((S, A)), 0.0)

    def problem(behavior: NDArray[np.float64]) -> FiniteMDP:
        return FiniteMDP(
            name=f"random {seed}",
            states=tuple(f"s{i:02d}" for i in range(S)),
            actions=tuple("abcd"),
            P=sparse.csr_array(P),
            low=np.zeros((S, A)),
            high=2 * mean,
            start=np.eye(S)[0],
            behavior=behavior,
            gamma=GAMMA,
        )

    uniform = problem(np.full((S, A), 1 / A))
    best = np.eye(A)[uniform.optimal[1]]
    Q = uniform.action_values(uniform.state_values(best))
    goal = uniform.value() + HALFWAY * (uniform.value(best) - uniform.value())
    cold, hot = 1e-4, 1e4
    for _ in range(60):
        T = np.sqrt(cold * hot)
        weight = np.exp((Q - Q.max(axis=1, keepdims=True)) / T)
        behavior = weight / weight.sum(axis=1, keepdims=True)
        if uniform.value(behavior) > goal:
            cold = T
        else:
            hot = T
    return problem(behavior)
