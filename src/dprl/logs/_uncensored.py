r"""Inverse-probability-of-censoring weights: how likely was it that an episode was followed so far?

After row t of an episode either the episode ends (that is seen), or it goes on. If it goes on, it
is cut with chance c_t, which may depend on the step, the state (or features) and the action of row
t, but not on what would have come. The chance that row k is seen, given row t and that the episode
reaches row k, is

    K(t, k) = ∏ (1 - c_j), j = t..k-1

so with r_k counted 1/K(t, k) times, what is seen of all episodes, cut ones included, has the mean
that whole episodes would have had (Robins & Rotnitzky 1992; Horvitz & Thompson 1952):

    G*_t = ∑ γ^(k-t) r_k / K(t, k) = r_t + γ G*_{t+1} / (1 - c_t)        over the rows that are seen

Two forms of it leave a log that any code can read as finished:

* for returns to go, rewards r*_t = G*_t - γ G*_{t+1}: the return of *every* row is G*_t. (A reward
  then contains a part of what comes later, so single steps must not be read.)
* for rewards, r*_k = r_k / K(0, k): each reward has the weight of its own step.

**How c is estimated.** A logistic model of the step, the state and the action (labels: one term per
state and per pair; features: each one and its square, with a mark where it is missing), fitted to
the rows after which the episode did not end. Groups are dealt into five folds, and the chances in
a fold come from a model of the other folds: no group's weight depends on its own cut. The claim of
anything that uses these weights is *large-sample*: the chances are estimates, and a chance that is
small makes single episodes heavy (`SMALL`: then a warning says so).

What nobody was followed beyond cannot be weighted: where the longest episodes of the log were cut,
`weighted` refuses. A fixed window (`dprl.logs._follow_up`) ends the question there.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.blas import single_thread
from dprl._core.words import option, worded
from dprl.errors import CutWarning, LogError
from dprl.logs.log import CUT, TERMINAL, Log

__all__ = ["chance_of_cut", "weighted"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

FOLDS, LARGEST_CHANCE, SMALL = 5, 0.95, 0.05
"""Folds of the model, largest chance to be cut at one step, and chances to be followed so far below
which a warning is given."""

STEPS = 50
"""Steps with a term of their own in the model; later ones share the last."""


def weighted(log: Log, gamma: float, *, returns_to_go: bool) -> Log:
    """The log with weighted rewards, in which cut episodes may be read as ended.

    Args:
        log: A log with cut episodes.
        gamma: Discount in (0, 1].
        returns_to_go: Whether returns to go are read from the result; otherwise rewards are.

    Raises:
        LogError: If episodes were cut where none was followed further, or there are fewer than
            two groups.
    """
    _refuse_unseen(log)
    stay = 1 - chance_of_cut(log)
    which = np.repeat(np.arange(log.n_episodes), log.lengths)
    first = log.starts[:-1]
    total = np.concatenate(([0.0], np.cumsum(np.log(stay))))[:-1]
    so_far = np.exp(total - total[first][which])  # K(0, t), row by row
    _warn_of_small(log, so_far)
    reward = log.reward / so_far
    if returns_to_go:
        reward = _telescoped(log, gamma, stay)
    if not np.isfinite(reward).all():
        raise LogError(
            "rewards are so large that a weighted one is not a finite number.",
            do="Give rewards in a larger unit (divide them all by one number).",
        )
    return replace(log, reward=reward, ended=np.where(log.ended == CUT, TERMINAL, log.ended))


def _telescoped(log: Log, gamma: float, stay: Floats) -> Floats:
    """Rewards whose returns to go are G*: r*_t = r_t + γ G*_{t+1} (1/(1 - c_t) - 1).

    One step of all episodes at a time, from their ends backwards.
    """
    reward, later = log.reward.copy(), np.zeros(log.n_episodes)
    for back in range(int(log.lengths.max())):
        episodes = np.flatnonzero(log.lengths > back)
        rows = log.starts[1:][episodes] - 1 - back
        ahead = gamma * later[episodes]
        if back:
            reward[rows] += ahead * (1 / stay[rows] - 1)
            later[episodes] = log.reward[rows] + ahead / stay[rows]
        else:
            later[episodes] = log.reward[rows]
    return reward


def chance_of_cut(log: Log) -> Floats:
    """float64 (N,): the chance to be cut after each row if the episode does not end there.

    Args:
        log: A log of at least two groups; its states are labels or features.
    """
    if len(log.groups) < 2:
        raise LogError(
            f"chances to be cut are estimated from other groups, and there is {len(log.groups)}.",
            do="Read more groups (or episodes).",
        )
    last = log.starts[1:] - 1
    was_cut = np.zeros(log.n_steps, bool)
    was_cut[last[log.ended == CUT]] = True
    at_risk = np.ones(log.n_steps, bool)
    at_risk[last[log.ended != CUT]] = False
    x, kind = _inputs(log)
    folds = min(FOLDS, len(log.groups))
    dealt = np.random.default_rng(0).permutation(len(log.groups)) % folds
    fold = np.repeat(dealt[log.group], log.lengths)
    chance = np.zeros(log.n_steps)
    for k in range(folds):
        own, others = fold == k, (fold != k) & at_risk
        predicted = _predicted(x, kind[others & was_cut], kind[others & ~was_cut])
        chance[own] = predicted[kind[own]]
    return np.clip(chance, 0.0, LARGEST_CHANCE)


def _predicted(x: Any, cut: Ints, followed: Ints) -> Floats:
    """The chance of a cut for every row of `x`, from rows that were cut and rows that were not.

    A row that occurs often is one row with a weight: the same model, of far fewer rows.
    """
    if not len(cut) or not len(followed):
        return np.full(x.shape[0], float(len(cut) > 0))
    from sklearn.linear_model import LogisticRegression

    often = np.stack([np.bincount(rows, minlength=x.shape[0]) for rows in (followed, cut)])
    outcome, row = np.nonzero(often)
    with single_thread():
        model = LogisticRegression(C=1.0, max_iter=500).fit(x[row], outcome, often[outcome, row])
    return np.asarray(model.predict_proba(x)[:, 1], np.float64)


def _inputs(log: Log) -> tuple[sparse.csr_array, Ints]:
    """What the model knows of a row (step, state or features, action), and the place of each row.

    Over labels rows of the same step, state and action are one; over features each is its own.
    """
    step = np.arange(log.n_steps) - np.repeat(log.starts[:-1], log.lengths)
    if log.features is None:
        pair = log.codes().astype(np.int64) * log.n_actions + log.action
        size = int(pair.max()) + 1
        different, kind = np.unique(step * size + pair, return_inverse=True)
        step, pair = np.divmod(different, size)
        of_state = [_indicators(pair // log.n_actions), _indicators(pair)]
    else:
        kind = np.arange(log.n_steps)
        of_state = [_indicators(log.action), *_of_features(log)]
    of_step = [_indicators(np.minimum(step, STEPS)), sparse.csr_array((step / STEPS)[:, None])]
    return sparse.csr_array(sparse.hstack([*of_step, *of_state], format="csr")), kind


def _of_features(log: Log) -> list[Any]:
    """Features in units of their spread, and squared; marks of missing ones; labels one by one."""
    assert log.features is not None
    parts = []
    levels = log.levels or (None,) * len(log.feature_names)
    for column, labels in zip(log.features.T, levels, strict=True):
        absent = np.isnan(column)
        if labels is not None:
            parts.append(_indicators(np.where(absent, len(labels), column).astype(np.int64)))
            continue
        middle = float(np.median(column[~absent])) if not absent.all() else 0.0
        z = np.where(absent, 0.0, column - middle)
        z = np.clip(z / (z.std() or 1.0), -5.0, 5.0)
        parts.append(sparse.csr_array(np.column_stack((z, z**2, absent))))
    return parts


def _indicators(codes: NDArray[Any]) -> sparse.csr_array:
    """One column per code that occurs, 1 where a row has it."""
    used, column = np.unique(codes, return_inverse=True)
    ones, row = np.ones(len(codes)), np.arange(len(codes))
    return sparse.csr_array((ones, (row, column)), shape=(len(codes), len(used)))


def _refuse_unseen(log: Log) -> None:
    """Refuse where episodes were cut at a step beyond which none was followed."""
    most = int(log.lengths.max())
    ends = log.cut_episodes[log.lengths[log.cut_episodes] == most]
    if len(ends):
        raise LogError(
            f"{len(ends):,} episodes were cut after {most:,} step{'s' * (most != 1)}, and none was "
            "followed further: there is nothing by which what came after can be weighted.",
            f"episode {log.episodes[ends[0]]!r}",
            worded(
                "Follow all for at most {most:,} steps ({follow_up}, --follow-up {most}); values "
                "are then of these steps alone.",
                most=most,
                follow_up=option("follow_up", most),
            ),
        )


def _warn_of_small(log: Log, so_far: Floats) -> None:
    """Warn where some rows had a small chance to be seen."""
    from dprl.logs._censoring import outside

    small = so_far < SMALL
    if small.any():
        row = int(np.argmin(so_far))
        episode = int(np.searchsorted(log.starts, row, "right")) - 1
        warnings.warn(
            worded(
                "{sum:,} of {n_steps:,} steps had a chance below {small:g} to be seen (the "
                "smallest is {so_far:.2g}, episode {episodes}): single episodes weigh much. A "
                "shorter {follow_up} helps.",
                sum=small.sum(),
                n_steps=log.n_steps,
                small=SMALL,
                so_far=so_far[row],
                episodes=repr(log.episodes[episode]),
                follow_up=option("follow_up"),
            ),
            CutWarning,
            stacklevel=outside(),
        )
