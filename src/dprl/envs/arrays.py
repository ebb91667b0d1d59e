"""A problem of your own, from arrays or from a gymnasium environment with a table of transitions.

Arrays of the usual shapes come in, a `FiniteMDP` goes out, which samples logs and knows the exact
value of every policy.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from dprl._core.arrays import Floats
from dprl.errors import ParameterError
from dprl.logs.log import Label
from dprl.planning.finite_mdp import FiniteMDP


def from_arrays(
    P: Any,
    R: Any,
    *,
    gamma: float,
    behavior: Any = None,
    start: Any = None,
    states: Sequence[Label] | None = None,
    actions: Sequence[Label] | None = None,
    name: str = "own",
    max_steps: int = 1_000,
) -> FiniteMDP:
    """A problem from arrays.

    Args:
        P: The chances of the next state: (S, A, S), or a list of A matrices (S, S), numpy's or
            sparse, or one sparse matrix (S·A, S) with row s·A + a. What a row lacks to 1 is the
            chance that the episode ends.
        R: The mean reward, (S, A), or (S, A, S) by the next state, which is then averaged (an
            ending pays nothing).
        gamma: Discount in (0, 1].
        behavior: (S, A), how people act today. Default None: every action alike.
        start: (S,), where episodes begin; or the code of one state. Default None: the first state.
        states: The S labels. Default None: 0, 1, ….
        actions: The A labels. Default None: 0, 1, ….
        name: What it is called. Default "own".
        max_steps: Sampled episodes are cut after this many steps. Default 1,000.

    Returns:
        The problem.

    Raises:
        ParameterError: Shapes do not fit each other, or chances are none.

    Example:
        >>> import dprl
        >>> walk = dprl.envs.from_arrays(
        ...     P=[[[0.0, 0.9], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.5]]], R=[[0.0, 0.4], [1.0, 0.0]],
        ...     gamma=0.9, actions=["on", "stop"],
        ... )
        >>> round(walk.value(), 3), walk.optimal[1].tolist()
        (0.461, [0, 0])
    """
    rows, S, A = _pairs(P)
    pay = _numbers("R", R)
    if pay.shape == (S, A, S):
        pay = np.asarray((rows.multiply(pay.reshape(S * A, S))).sum(axis=1)).reshape(S, A)
    if start is None or np.ndim(start) == 0:
        start = np.eye(S)[int(start or 0)]
    given = {
        "R": (pay, (S, A), f"{(S, A)} or {(S, A, S)}"),
        "behavior": (np.full((S, A), 1 / A) if behavior is None else behavior, (S, A), ""),
        "start": (start, (S,), ""),
    }
    arrays: dict[str, Floats] = {}
    for what, (array, shape, words) in given.items():
        arrays[what] = _numbers(what, array)
        if arrays[what].shape != shape:
            raise ParameterError(
                f"{what} must have shape {words or shape}; got {np.shape(array)}.",
                f"P is of {S:,} states and {A:,} actions",
                "Axes are state, action, next state.",
            )
    for what, labels, n in (("states", states, S), ("actions", actions, A)):
        if labels is not None and len(labels) != n:
            raise ParameterError(f"P is of {n:,} {what}; got {len(labels):,} labels of {what}.")
        if labels is not None and (again := n - len(set(labels))):
            first = next(x for i, x in enumerate(labels) if x in labels[:i])
            raise ParameterError(f"{again:,} of {n:,} labels of {what} came before.", repr(first))
    _refuse_chances("P", rows, lambda i: f"state {i // A}, action {i % A}", 0.0)
    _refuse_chances("behavior", arrays["behavior"], lambda i: f"state {i}")
    _refuse_chances("start", arrays["start"][None], lambda i: "all states")
    if not (finite := np.isfinite(arrays["R"])).all():
        s, a = np.argwhere(~finite)[0]
        raise ParameterError(
            f"{int((~finite).sum()):,} of {S * A:,} mean rewards are not finite.",
            f"state {s}, action {a}",
            "A reward is a number; for what is never done put 0.",
        )
    return FiniteMDP(
        name=name,
        states=tuple(range(S)) if states is None else tuple(states),
        actions=tuple(range(A)) if actions is None else tuple(actions),
        P=rows,
        low=arrays["R"],
        high=arrays["R"],
        start=arrays["start"],
        behavior=arrays["behavior"],
        gamma=gamma,
        max_steps=max_steps,
    )


def _numbers(what: str, given: Any) -> Floats:
    """An array of numbers, or a ParameterError."""
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise ParameterError(
            f"{what} must be an array of numbers; got {reprlib.repr(given)}.",
            do="Every row has as many numbers as the others.",
        ) from None


def _refuse_chances(what: str, rows: Any, where: Callable[[int], str], least: float = 1.0) -> None:
    """Refuse rows that are no distributions; they may lack mass where `least` is below 1."""
    mass = np.asarray(rows.sum(axis=1)).ravel()
    low = rows.min(axis=1).toarray().ravel() if sparse.issparse(rows) else rows.min(axis=1)
    good = (low >= 0) & (mass <= 1 + 1e-12) & (mass >= least - 1e-12)
    if not good.all():
        i = int(np.argmin(good))
        raise ParameterError(
            f"{int((~good).sum()):,} of {len(good):,} rows of {what} are no probabilities.",
            f"{where(i)}, which adds up to {mass[i]:.12g}; its smallest is {low[i]:.6g}",
            "Each row adds up to 1 and has nothing below 0"
            + ("." if least else "; what it lacks ends the episode."),
        )


def _pairs(P: Any) -> tuple[sparse.csr_array, int, int]:
    """P as CSR (S·A, S), and S and A."""
    if sparse.issparse(P):
        shape: Any = P.shape
        if 0 < shape[1] <= shape[0] and shape[0] % shape[1] == 0:
            return sparse.csr_array(P, dtype=np.float64), shape[1], shape[0] // shape[1]
    else:
        if isinstance(P, list | tuple) and all(hasattr(matrix, "shape") for matrix in P):
            P = [m.toarray() if sparse.issparse(m) else m for m in P]  # one matrix per action
            alike = {m.shape for m in P}
            P = np.stack(P, axis=1) if len(alike) == 1 else np.zeros((len(P), *sorted(alike)[0]))
        P = _numbers("P", P)
        shape = P.shape
        if P.ndim == 3 and shape[0] == shape[2] and P.size:
            return sparse.csr_array(P.reshape(-1, shape[2])), shape[0], shape[1]
    raise ParameterError(
        f"P must have shape (states, actions, states); got {shape}.",
        do="Or pass a list with a (states, states) matrix for each action, or a sparse matrix of "
        "states x actions rows.",
    )


def from_gym(env: Any, *, gamma: float, behavior: Any = None, max_steps: int = 1_000) -> FiniteMDP:
    """A problem from a gymnasium environment that carries its table of transitions.

    The toy-text environments do (FrozenLake, CliffWalking, Taxi): `env.unwrapped.P[s][a]` lists
    (chance, next state, reward, whether the episode ends). An ending pays its reward and leads
    nowhere.

    Args:
        env: The environment.
        gamma: Discount in (0, 1].
        behavior: (S, A), how people act today. Default None: every action alike.
        max_steps: Sampled episodes are cut after this many steps. Default 1,000.

    Returns:
        The problem; states and actions are codes.

    Raises:
        ParameterError: The environment has no such table.

    Example:
        >>> import dprl
        >>> import gymnasium
        >>> lake = dprl.envs.from_gym(gymnasium.make("FrozenLake-v1"), gamma=0.95)
        >>> lake.sample(10, seed=0).n_actions
        4
    """
    own = getattr(env, "unwrapped", env)
    table = getattr(own, "P", None)
    if not hasattr(table, "keys") or not table:
        raise ParameterError(
            f"a {type(own).__name__} carries no table of transitions.",
            do="Estimate one from episodes, or give arrays to dprl.envs.from_arrays.",
        )
    S, A = len(table), len(table[0])
    P, R = sparse.lil_array((S * A, S)), np.zeros((S, A))
    for s, choices in table.items():
        for a, outcomes in choices.items():
            for chance, following, reward, ends in outcomes:
                R[s, a] += chance * reward
                if not ends:
                    P[s * A + a, following] += chance
    start = getattr(own, "initial_state_distrib", None)
    spec = getattr(env, "spec", None)
    return from_arrays(
        P.tocsr(),
        R,
        gamma=gamma,
        behavior=behavior,
        start=None if start is None else np.asarray(start) / np.sum(start),
        name=str(getattr(spec, "id", type(own).__name__)),
        max_steps=max_steps,
    )
