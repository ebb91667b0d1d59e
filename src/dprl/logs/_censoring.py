r"""Cut episodes, whose observation stopped early: dropped, weighted, or completed.

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
  reward that is seen k steps later counts 1/P(followed for k steps); see `dprl.logs._uncensored`.
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

from dprl._core.checks import Cut, check_cut
from dprl._core.linear import solve
from dprl._core.words import either, option, say, sentences, worded
from dprl.errors import CutWarning, LogError, ParameterError
from dprl.logs._cut_words import DROPS
from dprl.logs._follow_up import keep_rows
from dprl.logs.log import CUT, TERMINAL, Log, in_group_order
from dprl.logs.returns import powers, returns
from dprl.logs.visits import first_of

__all__ = [
    "Near", "Reads", "check_claim", "from_cut_on", "none_is_left", "outside", "settle",
    "treat_cut", "warn_as_terminal",
]  # fmt: skip

Reads: TypeAlias = Literal["transitions", "returns", "rewards"]
"""What is read of a treated log; weights are possible for returns and for rewards."""

Visits: TypeAlias = tuple[NDArray[Any], NDArray[np.int64]]
"""Numbers of places, and the rows of a log that visit them: two arrays of equal length."""

Near: TypeAlias = Callable[[Log, NDArray[np.float64], NDArray[Any]], Visits]
"""A function of a gathered log, places (k, d) and the group (k,) that asks at each of them.

It returns the rows of the log that count as near each place."""


def check_claim(cut: Cut | str | None, log: Any, what: str) -> None:
    """`dprl.logs.source.check_claim`, which refuses claims from a log whose cuts are dropped."""
    from dprl.logs import source

    source.check_claim(cut, log, what)


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
            `dprl.evidence.neighbors._bootstrap_neighbors`). Default None.
        reads: What the caller reads of the result. "transitions" (the default): rewards and next
            states, for which there are no weights, so "ipcw" is refused. "returns": returns to go
            alone. "rewards": every episode by itself, from its first step on.
    """
    check_cut(cut)
    episodes = log.cut_episodes
    if not len(episodes):
        return log
    if cut in DROPS:
        return _without(log, episodes if reads == "rewards" else from_cut_on(log))
    if cut == "ipcw":
        from dprl.logs._uncensored import weighted

        if reads == "transitions":
            raise ParameterError(
                worded(
                    "{episodes:,} of {n_episodes:,} episodes were cut, and {cut} weighs returns; "
                    "what was asked for reads single steps.",
                    episodes=len(episodes),
                    n_episodes=log.n_episodes,
                    cut=option("cut", "ipcw"),
                ),
                f"episode {log.episodes[episodes[0]]!r}",
                worded(
                    "Use {cut} here, or another learner: {learner} with {plan}, or {learner2}with "
                    "{lam}, take {cut2}.",
                    cut=option("cut", "bootstrap"),
                    learner=either("DPRLDiscrete or DPRLContinuous", "--learner dprl"),
                    plan=option("plan", False),
                    learner2=either("Rules ", "--learner rules "),
                    lam=option("lam", 1),
                    cut2=option("cut", "ipcw"),
                ),
            )
        return weighted(log, gamma, returns_to_go=reads == "returns")
    if cut == "bootstrap":
        if log.features is not None and near is None:
            raise ParameterError(
                worded(
                    "{cut} needs labelled states, or a policy that knows what is near.",
                    cut=option("cut", "bootstrap"),
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


settle = treat_cut


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
