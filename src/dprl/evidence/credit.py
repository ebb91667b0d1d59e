r"""Credit: how much better than usual things went from a step on.

A return carries the luck of everything until the end of the episode. With values V of the states,
fitted on *other* groups, the surprise of a step and the credit of a step are

    δ_t = r_t + γ V(s_{t+1}) - V(s_t)                 V after the last row of an episode is 0
    e_t(λ) = ∑_{k >= 0} (γλ)^k δ_{t+k}                computed backwards: e_t = δ_t + γλ e_{t+1}

λ says how far the values are trusted:

* λ = 1: the sum telescopes, e_t = G_t - V(s_t), the return less a baseline. Comparisons of actions
  stay unbiased *whatever V is*, if V never saw the group and the probabilities of the actions are
  right: a baseline that does not depend on the action cancels. The variance is that of returns.
* λ = 0: e_t = δ_t. One reward is looked at, and the model is trusted for everything afterwards:
  if V is wrong at the next state, or the features do not tell all that matters for what comes
  next, the comparison is wrong too, however long the log is. The variance is smallest.
* Between: surprises k steps ahead count (γλ)^k / γ^k = λ^k of what they would in the return. An
  effect that shows within about 1 / (1 - λ) steps is seen in what happened; one that shows later
  is seen only if V sees it coming.

So λ < 1 adds an assumption, and a claim made with it has to say so. Cut episodes (observation
stopped early) must be settled before: the 0 after the last row means that nothing follows.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_gamma, check_number
from dprl._core.compiled import compiled
from dprl.errors import LogError, ParameterError
from dprl.logs.log import Log, check_log
from dprl.logs.returns import refuse_overflow

__all__ = ["check_settled", "credit"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@compiled
def _fill_credit(
    starts: Ints, reward: Floats, V: Floats, gamma: float, decay: float, e: Floats
) -> None:  # pragma: no cover - compiled
    """Fill e (N,) with the credit of every row; decay = γλ."""
    for episode in range(len(starts) - 1):
        following, tail = 0.0, 0.0
        for t in range(starts[episode + 1] - 1, starts[episode] - 1, -1):
            tail = reward[t] + gamma * following - V[t] + decay * tail
            e[t] = tail
            following = V[t]


def check_settled(log: Log) -> None:
    """Refuse a log with cut episodes: the value after their last row is not 0."""
    cut = log.cut_episodes
    if len(cut):
        raise LogError(
            f"{len(cut):,} of {log.n_episodes:,} episodes were cut: what came after their last row "
            "is not in the log.",
            f"episode {log.episodes[cut[0]]!r}",
            "Settle them first: drop them, treat them as ended, or add an estimate of the rest.",
        )


def credit(log: Log, gamma: float, lam: float, V: Any) -> Floats:
    """How much better than usual things went from every row on, e_t(λ).

    Args:
        log: The log, with N rows and without cut episodes (settle them first).
        gamma: Discount in (0, 1].
        lam: λ in [0, 1], how far into the episode surprises are counted. 1 gives the return less V
            and is unbiased whatever V is; 0 gives the surprise of one step and trusts V.
        V: float64 (N,), the value of the state of each row, in the unit of the rewards, fitted on
            other groups than the row's own (see `dprl.evidence.nuisances`).

    Returns:
        float64 (N,), in the unit of the rewards.

    Raises:
        ParameterError: If `gamma` or `lam` is out of range, or `V` is not N finite numbers.
        LogError: If episodes were cut, or rewards are so large that a credit is not finite.

    Example:
        >>> import dprl
        >>> from dprl.evidence.credit import credit
        >>> log = dprl.from_arrays(episode=[1, 1], state=[0, 1], action=[0, 0], reward=[1, 2])
        >>> credit(log, gamma=0.5, lam=1.0, V=[1.5, 1.0]).tolist()  # returns 2, 2 less V
        [0.5, 1.0]
        >>> credit(log, gamma=0.5, lam=0.0, V=[1.5, 1.0]).tolist()
        [0.0, 1.0]
    """
    check_log(log)
    check_settled(log)
    gamma, lam = check_gamma(gamma), check_number("lam", lam, "[0, 1]")
    values = _values(V, log.n_steps)
    e = np.empty(log.n_steps)
    _fill_credit(log.starts, log.reward, values, gamma, gamma * lam, e)
    if not np.isfinite(e).all():
        refuse_overflow(log, int(np.flatnonzero(~np.isfinite(e))[-1]))
    return e


def _values(V: Any, n: int) -> Floats:
    """V as float64 (n,), or an error that says what is wrong with it."""
    try:
        values = np.ascontiguousarray(V, np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (n,):
        raise ParameterError(
            f"V must be {n:,} numbers, one per row of the log; got an array of {np.shape(V)}.",
            do="Pass the values of the rows in the order of the log.",
        )
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ParameterError(
            f"V is not a finite number on {len(bad):,} of {n:,} rows.",
            f"row {bad[0]}, V = {values[bad[0]]}",
            "Every row needs a value; a constant such as 0 will do where none was fitted.",
        )
    return values
