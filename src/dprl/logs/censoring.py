"""Cut episodes, whose observation stopped early: dropped, weighted, or completed.

A cut episode is never silently treated as terminal. `treat_cut` returns a log in which every
episode may be read as finished, so no code after it has to know about cuts:

* ``"drop"``: cut episodes are left out. What is left is not like what is lost wherever long or bad
  episodes are the ones cut, even if at every step all are cut with the same chance: the longer an
  episode, the likelier it was cut. So nothing can be claimed from it (`check_claim`).
* ``"drop-unrelated"``: the same, and the user declares that *whether an episode was cut depends
  neither on its length nor on its outcome*. Claims made from such a log state the declaration.
  Where a group has several episodes, those after its first cut one are left out too: the first
  visit of a state in what would remain need not be the group's first visit. (`reads="rewards"`
  asks nothing about first visits, and leaves out the cut episodes alone.)
* ``"ipcw"``: inverse-probability-of-censoring weights. What is seen of a cut episode counts, and a
  reward that is seen k steps later counts 1/P(followed for k steps); see `dprl.logs.censoring`.
  The chances are estimated: what is claimed from it is claimed for large samples.
* ``"bootstrap"``: the last row of a cut episode only says *where it was last seen*. This row is
  removed and γ V̂(s_last) is added to the reward before it, so that G_t includes γ^k V̂ of the last
  state. V̂ is self-consistent: it solves V(s) = mean, over first visits of s, of the returns that
  include these values; a sparse linear system. An episode whose last state has no such value (no
  finished episode follows from it) is dropped. Where states are features, V̂ belongs to the place
  where the episode was last seen: the mean over the neighbours a learner would use there (`near`),
  without those of its own trajectory; one equation per cut episode.
* ``"terminal"``: treated as ended, with no further reward. Biased towards zero.
* ``None`` (the default of every learner): as "terminal", with a CutWarning that says how many.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.arrays import Floats, Ints
from dprl._core.checks import Cut, check_cut
from dprl._core.linear import solve
from dprl._core.optional import single_thread
from dprl._core.words import api, either, option, say, sentences, worded
from dprl.errors import CutWarning, LogError, ParameterError
from dprl.logs.follow_up import keep_rows, nothing_seen
from dprl.logs.log import CUT, TERMINAL, Log, in_group_order
from dprl.logs.returns import first_of, powers, returns
from dprl.logs.source import DROPS

# --- Inverse-probability-of-censoring weights: how likely was it that an episode was followed so
# far?
#
# After row t of an episode either the episode ends (that is seen), or it goes on. If it goes on, it
# is cut with chance c_t, which may depend on the step, the state (or features) and the action of
# row t, but not on what would have come. The chance that row k is seen, given row t and that the
# episode reaches row k, is
#
#     K(t, k) = ∏ (1 - c_j), j = t..k-1
#
# so with r_k counted 1/K(t, k) times, what is seen of all episodes, cut ones included, has the mean
# that whole episodes would have had (Robins & Rotnitzky 1992; Horvitz & Thompson 1952):
#
#     G*_t = ∑ γ^(k-t) r_k / K(t, k) = r_t + γ G*_{t+1} / (1 - c_t)        over the rows that are
#     seen
#
# Alone it can leave the range of returns: of ten rewards of 1 the weighted mean may be 10.3. So
# what is weighted is not what comes, but by how much it differs from what usually comes, V_{t+1}
# (the mean return from that step on, in the other folds): where the episode did not end with row t,
#
#     G*_t = r_t + γ (V_{t+1} + (G*_{t+1} - V_{t+1}) / (1 - c_t)),
#
# and r_t + γ V_{t+1} where it was cut.
#
# The mean is the same whatever V is (both parts that were added have mean 0), and nothing is left
# to weigh where all fare alike (augmented weights: Robins, Rotnitzky & Zhao 1994).
#
# Two forms of it leave a log that any code can read as finished:
#
# * for returns to go, rewards r*_t = G*_t - γ G*_{t+1}: the return of *every* row is G*_t. (A
#   reward then contains a part of what comes later, so single steps must not be read.)
# * for rewards, r*_k = (r_k + γ V_{k+1} (1 - [followed] / (1 - c_k))) / K(0, k), the second part
#   where the episode did not end with row k: each reward has the weight of its own step.
#
# **How c is estimated.** A logistic model of the step, the state and the action (labels: one term
# per state and per pair; features: each one and its square, with a mark where it is missing),
# fitted to the rows after which the episode did not end. Groups are dealt into five folds, and the
# chances in a fold come from a model of the other folds: no group's weight depends on its own cut.
# The claim of anything that uses these weights is *large-sample*: the chances are estimates, and a
# chance that is small makes single episodes heavy (`SMALL`: then a warning says so).
#
# What nobody was followed beyond cannot be weighted: where the longest episodes of the log were
# cut, `weighted` refuses. A fixed window (`dprl.logs.follow_up`) ends the question there.

FOLDS, LARGEST_CHANCE, SMALL = 5, 0.95, 0.05
"""Folds of the model, largest chance to be cut at one step, and chances to be followed so far below
which a warning is given."""

AT_ONCE, STAY = "at once", "chance to stay"
"""Columns of a log weighted for returns to go (`Log.more`), for who reads it step by step: the
numerator of r*_k, and the chance 1 - c_k to see the next row (1 after an end, 0 at a cut)."""

STEPS = 50
"""Steps with a term of their own in the model; later ones share the last."""


def weighted(log: Log, gamma: float, *, returns_to_go: bool) -> Log:
    """The log with weighted rewards, in which cut episodes may be read as ended.

    Args:
        log: A log with cut episodes.
        gamma: Discount in (0, 1].
        returns_to_go: Whether returns to go are read from the result, which then has what reads
            steps beside it (`AT_ONCE`, `STAY`); otherwise rewards are.

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
    ahead = _usually_ahead(log, gamma)
    at_once = log.reward + ahead * (1 - _followed(log) / stay)
    reward = _telescoped(log, gamma, stay, ahead) if returns_to_go else at_once / so_far
    if not np.isfinite(reward).all():
        raise LogError(
            "rewards are so large that a weighted one is not a finite number.",
            do="Give rewards in a larger unit (divide them all by one number).",
        )
    known = np.where(_followed(log), stay, 1.0)
    known[log.starts[1:][log.cut_episodes] - 1] = 0.0
    more = {**log.more, AT_ONCE: at_once, STAY: known}
    ended = np.where(log.ended == CUT, TERMINAL, log.ended)
    return replace(log, reward=reward, ended=ended, more=more if returns_to_go else log.more)


def _followed(log: Log) -> NDArray[np.bool_]:
    """bool (N,): the rows after which another row of the episode is seen."""
    followed = np.ones(log.n_steps, bool)
    followed[log.starts[1:] - 1] = False
    return followed


def _usually_ahead(log: Log, gamma: float) -> Floats:
    """float64 (N,): γ V of the next step, from the other folds; 0 where the episode ended."""
    step = np.arange(log.n_steps) - np.repeat(log.starts[:-1], log.lengths)
    most = int(log.lengths.max())
    ends = np.zeros(log.n_steps, bool)
    ends[log.starts[1:][log.ended != CUT] - 1] = True
    fold, ahead = folds_of(log), np.zeros(log.n_steps)
    for k in range(int(fold.max()) + 1):
        others = fold != k
        n, over = (np.bincount(step[rows], minlength=most) for rows in (others, others & ends))
        mean = np.bincount(step[others], log.reward[others], most) / np.maximum(n, 1)
        goes_on = 1 - over / np.maximum(n, 1)
        V = np.zeros(most + 1)
        for t in range(most - 1, -1, -1):
            V[t] = mean[t] + gamma * goes_on[t] * V[t + 1]
        rows = (fold == k) & ~ends
        ahead[rows] = gamma * V[step[rows] + 1]
    return ahead


def folds_of(log: Log) -> NDArray[np.int64]:
    """int64 (N,): the fold of each row's group."""
    dealt = np.random.default_rng(0).permutation(len(log.groups)) % min(FOLDS, len(log.groups))
    return np.repeat(dealt[log.group], log.lengths)


def _telescoped(log: Log, gamma: float, stay: Floats, ahead: Floats) -> Floats:
    """Rewards whose returns to go are G*: r*_t = G*_t - γ G*_{t+1}.

    One step of all episodes at a time, from their ends backwards.
    """
    reward, later = log.reward.copy(), np.zeros(log.n_episodes)
    for back in range(int(log.lengths.max())):
        episodes = np.flatnonzero(log.lengths > back)
        rows = log.starts[1:][episodes] - 1 - back
        next_one = gamma * later[episodes]
        more = ahead[rows] + (next_one - ahead[rows]) / stay[rows] if back else ahead[rows]
        later[episodes] = log.reward[rows] + more
        reward[rows] += more - next_one
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
    fold = folds_of(log)
    chance = np.zeros(log.n_steps)
    for k in range(int(fold.max()) + 1):
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
        of_state = [indicators(pair // log.n_actions), indicators(pair)]
    else:
        kind = np.arange(log.n_steps)
        of_state = [indicators(log.action), *of_features(log)]
    of_step = [indicators(np.minimum(step, STEPS)), sparse.csr_array((step / STEPS)[:, None])]
    return sparse.csr_array(sparse.hstack([*of_step, *of_state], format="csr")), kind


def of_features(log: Log) -> list[Any]:
    """Features in units of their spread, and squared; marks of missing ones; labels one by one."""
    assert log.features is not None
    parts = []
    levels = log.levels or (None,) * len(log.feature_names)
    for column, labels in zip(log.features.T, levels, strict=True):
        absent = np.isnan(column)
        if labels is not None:
            parts.append(indicators(np.where(absent, len(labels), column).astype(np.int64)))
            continue
        middle = float(np.median(column[~absent])) if not absent.all() else 0.0
        z = np.where(absent, 0.0, column - middle)
        z = np.clip(z / (z.std() or 1.0), -5.0, 5.0)
        parts.append(sparse.csr_array(np.column_stack((z, z**2, absent))))
    return parts


def indicators(codes: NDArray[Any]) -> sparse.csr_array:
    """One column per code that occurs, 1 where a row has it."""
    used, column = np.unique(codes, return_inverse=True)
    ones, row = np.ones(len(codes)), np.arange(len(codes))
    return sparse.csr_array((ones, (row, column)), shape=(len(codes), len(used)))


def _refuse_unseen(log: Log) -> None:
    """Refuse where episodes were cut at a step beyond which none was followed."""
    most = int(log.lengths.max())
    ends = log.cut_episodes[log.lengths[log.cut_episodes] == most]
    if not len(ends):
        return
    if most == 1:
        raise nothing_seen(len(ends), log.n_episodes, f"episode {log.episodes[ends[0]]!r}")
    raise LogError(
        f"{len(ends):,} episodes were cut after {most:,} steps, and none was followed further: "
        "there is nothing by which what came after can be weighted.",
        f"episode {log.episodes[ends[0]]!r}",
        worded(
            "Follow all for at most {most:,} steps ({follow_up}, --follow-up {most}); values are "
            "then of these steps alone.",
            most=most,
            follow_up=option("follow_up", most),
        ),
    )


def _warn_of_small(log: Log, so_far: Floats) -> None:
    """Warn where some rows had a small chance to be seen."""
    small = so_far < SMALL
    if small.any():
        row = int(np.argmin(so_far))
        episode = int(np.searchsorted(log.starts, row, "right")) - 1
        warnings.warn(
            worded(
                "{sum:,} of {n_steps:,} steps had a chance below {small:g} to be seen (the "
                "smallest is {so_far:.2g}, episode {episodes}): single episodes weigh much. A "
                "shorter {follow_up=} helps.",
                sum=small.sum(),
                n_steps=log.n_steps,
                small=SMALL,
                so_far=so_far[row],
                episodes=repr(log.episodes[episode]),
            ),
            CutWarning,
            stacklevel=outside(),
        )


# --- Cut episodes, whose observation stopped early: dropped, weighted, or completed

Reads: TypeAlias = Literal["transitions", "returns", "rewards"]
"""What is read of a treated log; weights are possible for returns and for rewards."""

Visits: TypeAlias = tuple[NDArray[Any], NDArray[np.int64]]
"""Numbers of places, and the rows of a log that visit them: two arrays of equal length."""

Near: TypeAlias = Callable[[Log, NDArray[np.float64], NDArray[Any]], Visits]
"""A function of a gathered log, places (k, d) and the group (k,) that asks at each of them.

It returns the rows of the log that count as near each place."""


def treat_cut(
    log: Log,
    gamma: float,
    cut: Cut | None,
    near: Near | None = None,
    *,
    reads: Reads = "transitions",
) -> Log:
    """The log with its cut episodes treated as requested; the log itself if no episode was cut.

    Args:
        log: A log whose states are labels or features.
        gamma: Discount in (0, 1].
        cut: The treatment, or None for "terminal" with a warning.
        near: Only to bootstrap over features: a function that says what is near a place (see
            `dprl.evidence.neighbors.engine`). Default None.
        reads: What the caller reads of the result. "transitions" (the default): rewards and next
            states, for which there are no weights, so "ipcw" is refused. "returns": returns to go
            alone. "rewards": every episode by itself, from its first step on.
    """
    check_cut(cut)
    episodes = log.cut_episodes
    if not len(episodes):
        return log
    timed = "completed" in log.more
    if timed and (cut != "ipcw" or gamma != 1):
        raise ParameterError(
            worded(
                "{episodes:,} of {n_episodes:,} episodes were censored before the horizon; what is "
                "completed of them is whole returns, without discount.",
                episodes=len(episodes),
                n_episodes=log.n_episodes,
            ),
            f"episode {log.episodes[episodes[0]]!r}",
            timed_advice(),
        )
    if cut in DROPS:
        return _without(log, episodes if reads == "rewards" else from_cut_on(log))
    if cut == "ipcw":
        if reads == "transitions":
            refuse_between(log)
        if reads == "transitions":
            raise ParameterError(
                worded(
                    "{episodes:,} of {n_episodes:,} episodes were cut, and {cut='ipcw'} weighs "
                    "returns; what was asked for reads single steps.",
                    episodes=len(episodes),
                    n_episodes=log.n_episodes,
                ),
                f"episode {log.episodes[episodes[0]]!r}",
                worded(
                    "Use {cut='bootstrap'} here, or another learner: {learner} with {plan=False}, "
                    "or {learner2}with {lam=1}, take {cut='ipcw'}.",
                    learner=either("DPRLDiscrete or DPRLContinuous", "--learner dprl"),
                    learner2=either("Rules ", "--learner rules "),
                ),
            )
        if timed:
            return _timed(log, returns_to_go=reads == "returns")
        return weighted(log, gamma, returns_to_go=reads == "returns")
    if cut == "bootstrap":
        if log.features is not None and near is None:
            raise ParameterError(
                worded(
                    "{cut='bootstrap'} needs labelled states, or a policy that knows what is near."
                ),
                do=worded(
                    "Use {choice}.",
                    choice=either("cut='drop' or 'terminal'", "--cut drop or terminal"),
                ),
            )
        return _bootstrapped(log, gamma, near if log.features is not None else None)
    if cut is None:
        steps = int(log.lengths[episodes].sum())
        warn_as_terminal(len(episodes), log.n_episodes, steps, log.n_steps)
    return replace(log, ended=np.where(log.ended == CUT, TERMINAL, log.ended))


def refuse_between(log: Log) -> None:
    """Refuse a time to event with censoring between decisions, where single steps are read."""
    if "completed" in log.more and len(log.cut_episodes):
        raise LogError(
            f"{len(log.cut_episodes):,} of {log.n_episodes:,} episodes were censored between "
            "decisions, and what was asked for reads single steps.",
            f"episode {log.episodes[log.cut_episodes[0]]!r}",
            timed_advice(),
        )


def timed_advice() -> str:
    """What takes a time to event of several decisions of which some were censored."""
    return worded(
        "{learner} with {plan}, {cut} and {gamma} takes it, and so does {evaluate}; or read first "
        "decisions alone.",
        learner=either("DPRLDiscrete or DPRLContinuous", "--learner dprl"),
        plan=option("plan", False), cut=option("cut", "ipcw"), gamma=option("gamma", 1),
        evaluate=api("dprl.evaluate"),
    )  # fmt: skip


def _timed(log: Log, *, returns_to_go: bool) -> Log:
    """The log of a time to event in which censored episodes may be read as ended.

    The reward of last rows is the completed outcome of the whole episode. A return to go is that of
    its own decision (`dprl.logs.survival`).
    """
    reward = log.reward
    if returns_to_go:
        own = log.more["completed"]
        later = np.append(own[1:], 0.0)
        later[log.starts[1:] - 1] = 0.0
        reward = own - later
    return replace(log, reward=reward, ended=np.where(log.ended == CUT, TERMINAL, log.ended))


def warn_as_terminal(n_cut: int, n_episodes: int, cut_steps: int, n_steps: int) -> None:
    """Warn that cut episodes are read as ended because no treatment was chosen."""
    warnings.warn(
        sentences(
            say(
                "{k:,} of {n:,} episodes ({a:,} of {b:,} steps) were cut, and are treated as if "
                "nothing came after: their returns are too small in size.",
                k=n_cut,
                n=n_episodes,
                a=cut_steps,
                b=n_steps,
            ),
            say(
                "Choose {cut}, or a time for which all are followed ({follow_up}).",
                cut=option("cut"),
                follow_up=option("follow_up"),
            )
            if n_steps > n_episodes
            else say(
                "Where the table has a time and a status, read it with {survival}.",
                survival=option("survival"),
            ),
        ),
        CutWarning,
        stacklevel=outside(),
    )


def outside() -> int:
    """The stack level of the user's own line of code, as `warnings.warn` counts from its caller."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("dprl."):
        level, frame = level + 1, frame.f_back
    return level


def from_cut_on(log: Log) -> NDArray[np.int64]:
    """The cut episodes, and all that come after a cut one in their group."""
    order = in_group_order(log)
    group, is_cut = log.group[order], log.ended[order] == CUT
    before = np.cumsum(is_cut) - is_cut  # cut episodes before this one, in any group
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    own = before - np.repeat(before[first], np.diff(np.append(first, len(group))))
    return np.sort(order[is_cut | (own > 0)])


def _without(log: Log, episodes: NDArray[np.int64]) -> Log:
    """The log without these episodes; an error if none would be left."""
    keep = np.setdiff1d(np.arange(log.n_episodes), episodes)
    if not len(keep):
        raise none_is_left(log.n_episodes)
    return log.take(keep)


def none_is_left(n_episodes: int) -> LogError:
    """The error that no episode is left once cut ones are left out."""
    return LogError(
        f"all {n_episodes:,} episodes were cut, or came after a cut one: none is left.",
        do="Choose another treatment of cut episodes, or read episodes to their end.",
    )


def _shortened(log: Log) -> tuple[Log, NDArray[np.int64]]:
    """The log without the last row of each cut episode, and those rows (numbers in `log`)."""
    at = log.starts[1:][log.ended == CUT] - 1
    keep = np.ones(log.n_steps, bool)
    keep[at] = False
    return keep_rows(log, keep), at


def _grounded(
    place: NDArray[Any], tail: NDArray[np.int64], n_places: int, gamma: float
) -> NDArray[np.bool_]:
    """bool (n_places,): places that have a value.

    A place has one if it was visited; without discount, also some finished episode must follow from
    it. `place` and `tail` hold, for each visit, the place and where its episode was last seen (-1
    if it finished).
    """
    grounded = np.zeros(n_places, bool)
    if gamma < 1:
        grounded[place] = True
        return grounded
    grounded[place[tail < 0]] = True
    while True:
        more = place[(tail >= 0) & grounded[tail]]
        if grounded[more].all():
            return grounded
        grounded[more] = True


def _bootstrapped(log: Log, gamma: float, near: Near | None) -> Log:
    """The log with the value of the last state added to the end of each cut episode."""
    before = log.n_episodes
    log = log if near is None else log.gathered()
    lost = np.flatnonzero((log.ended == CUT) & (log.lengths == 1))
    while True:
        if len(lost):
            log = _without(log, lost)
        short, at = _shortened(log)
        was_cut = log.ended == CUT
        last = np.full(log.n_episodes, -1, np.int64)
        if near is None or log.features is None:
            n_places, last[was_cut] = log.n_states, log.codes()[at]
            row = np.flatnonzero(first_of(short, short.codes(), short.n_states, by_episode=True))
            place = short.codes()[row]
        else:
            n_places, last[was_cut] = len(at), np.arange(len(at))
            place, row = near(short, log.features[at], log.group[was_cut])
        episode = np.repeat(np.arange(short.n_episodes), short.lengths)[row]
        tail, ahead = last[episode], short.starts[1:][episode] - row
        grounded = _grounded(place, tail, n_places, gamma)
        lost = np.flatnonzero(was_cut)[~grounded[last[was_cut]]]
        if not len(lost):
            break
    if log.n_episodes < before:
        warnings.warn(
            say(
                "{n:,} of the cut episodes could not be bootstrapped and were left out: one row "
                "only, or a last state that no other episode says anything about.",
                n=before - log.n_episodes,
            ),
            CutWarning,
            stacklevel=outside(),
        )
    visits = np.maximum(np.bincount(place, minlength=n_places), 1)
    weight = powers(gamma, int(short.lengths.max()))[ahead] / visits[place]
    on = tail >= 0
    B = sparse.csr_array((weight[on], (place[on], tail[on])), shape=(n_places, n_places))
    G = returns(short, gamma)[row]
    V = solve(B, np.bincount(place, weights=G, minlength=n_places) / visits)
    reward = short.reward.copy()
    reward[short.starts[1:][was_cut] - 1] += gamma * V[last[was_cut]]
    return replace(short, reward=reward, ended=np.where(was_cut, TERMINAL, short.ended))
