"""Random problems, drawn by one rule, and an expert who is half-way to the best policy.

S = 30 states, A = 4 actions, γ = .95. For every pair:

* three next states are drawn without replacement; their probabilities are the gaps that two uniform
  points leave in [0, 1], times .95: every step ends the episode with probability .05;
* with probability .2 the pair pays U[0, 2 μ] on every visit, μ ~ U[0, 1]; otherwise it pays 0.

The first state is the start. The behaviour is softmax(Q* / T) with the temperature T at which its
value is half-way between those of the uniform policy and of the best one, as in the random MDPs on
which SPIBB was compared (Laroche, Trichelair, Tachet des Combes, 2019); `practice` grades it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from dprl._core.checks import check_number, check_seed, check_whole
from dprl.planning.finite_mdp import FiniteMDP

STATES, ACTIONS, SUCCESSORS, GAMMA = 30, 4, 3, 0.95
END, PAID, HALFWAY = 0.05, 0.2, 0.5


def random_mdp(
    seed: int,
    *,
    states: int = STATES,
    actions: int = ACTIONS,
    practice: float = HALFWAY,
    endings: bool = False,
) -> FiniteMDP:
    """The random problem with this number.

    Args:
        seed: The number of the problem; a whole number from 0.
        states: S, at least 3. Default 30.
        actions: A, at least 2. Default 4.
        practice: How far the behaviour is on the way from the uniform policy to the best one, in
            (0, 1). Default .5.
        endings: Whether pairs end the episode with chances of their own, U[0, .2], instead of .05.
            Default False.

    Returns:
        The problem.

    Raises:
        ParameterError: If a number is outside its range.

    Example:
        >>> from dprl.envs import random_mdp
        >>> problem = random_mdp(0)
        >>> round(problem.value(), 2), len(problem.states)
        (3.0, 30)
    """
    rng = np.random.default_rng([20, check_seed(seed)])
    S, A = check_whole("states", states, SUCCESSORS), check_whole("actions", actions, 2)
    check_number("practice", practice, "(0, 1)")
    P = np.zeros((S * A, S))
    for pair in range(S * A):
        successors = rng.choice(S, SUCCESSORS, replace=False)
        points = np.sort(rng.random(SUCCESSORS - 1))
        P[pair, successors] = np.diff(np.concatenate(([0], points, [1]))) * (1 - END)
    mean = np.where(rng.random((S, A)) < PAID, rng.random((S, A)), 0.0)
    if endings:
        P *= (1 - rng.uniform(0, 4 * END, S * A))[:, None] / (1 - END)
    width = len(str(S - 1))
    problem = FiniteMDP(
        name=f"random {seed}",
        states=tuple(f"s{i:0{width}d}" for i in range(S)),
        actions=tuple("abcdefghijklmnopqrstuvwxyz"[:A]) if A <= 26 else tuple(range(A)),
        P=sparse.csr_array(P),
        low=np.zeros((S, A)),
        high=2 * mean,
        start=np.eye(S)[0],
        behavior=np.full((S, A), 1 / A),
        gamma=GAMMA,
    )
    best = problem.value(np.eye(A)[problem.optimal[1]])
    return softened(problem, problem.value() + practice * (best - problem.value()))


def softened(problem: FiniteMDP, goal: float) -> FiniteMDP:
    """The problem with the behaviour softmax(Q* / T) whose value is `goal`."""
    best = np.eye(len(problem.actions))[problem.optimal[1]]
    Q = problem.action_values(problem.state_values(best))
    cold, hot = 1e-4, 1e4
    for _ in range(60):
        T = np.sqrt(cold * hot)
        weight = np.exp((Q - Q.max(axis=1, keepdims=True)) / T)
        behavior = weight / weight.sum(axis=1, keepdims=True)
        if problem.value(behavior) > goal:
            cold = T
        else:
            hot = T
    return replace(problem, behavior=behavior)
