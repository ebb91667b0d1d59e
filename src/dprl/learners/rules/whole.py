r"""What following rules at every decision brings over usual practice: the whole policy π.

Each rule may be true by itself, with usual practice before and after, and all together do harm: a
first dose helps, a third one kills. So what counts is ρ(π) - ρ(b), from groups that followed π now
and then. With V̂ of usual practice, δ_t = r_t + γV̂(s_{t+1}) - V̂(s_t) adds up to G - V̂(s_0)
whatever V̂ is, so ρ(π) = E V̂(s_0) + E_π ∑ γ^t δ_t, and with any function D of what is known at t

    score = D_0 + ∑_t w_t f_t (δ_t + γ D_{t+1} - D_t) - ∑_t γ^t δ_t        f_t: π was followed at t
          = ∑_t (w_t f_t - γ^t)(δ_t + γ D_{t+1} - D_t)

has mean ρ(π) - ρ(b) where D is what π still brings from t on, or the weights w are right. Both
come from other groups than the one that is scored.

* **Exact weights**: w_t = γ^t ∏_{k <= t} 1/b̂_k over the suggestions met so far. Nothing is assumed
  of what follows. Used where, of those that come to a suggestion, enough followed to the end
  (`ENOUGH` effective groups) and the error is not much larger than otherwise.
* **Otherwise** D = φθ and w = φν solve A θ = ∑ φ g δ and Aᵀν = E φ_0, with g_t = f_t/b̂_t and
  A = ∑ φ_t g_t (φ_t - γφ_{t+1})ᵀ: the least-squares solution of D = δ + γ E_π D', and the weights
  for which its error is what the score corrects. It supposes that what follows depends on φ:
  features, the step, what is suggested, and *how often the suggested actions were taken before*, so
  that harm which adds up is seen although the features do not tell it. (Without 1/b̂, and without
  what is suggested in φ, the few who follow where hardly anybody does have no voice: on 72 steps
  of simulated intensive care such estimates were up to 14 of their errors too low.) D is kept
  inside the returns that there were. Both are shrunk (`SHRUNK`), the less the more groups there
  are: some hundred stays of 70 correlated steps are few for some hundred columns. What is stated is
  too low rather than too high then. Where suggestions are such that hardly anybody takes them, or A
  says nothing (its symmetric part is far from positive), the whole cannot be judged.

Where episodes were cut and are weighted, what is seen of step t counts 1/K_t, the chance to be
followed so far: V̂, D and φ at t+1 count K_t/K_{t+1}, γ^t and w_t count 1/K_t, and r_t is the reward
at once (`dprl.logs.censoring`). (A reward that holds weighted parts of what comes later must not be
read step by step: what a later suggestion does would count only as far as it was seen.)

The scores are averaged over groups; their error by groups includes that of θ and ν to first order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dprl._core.arrays import Bools, Floats, Ints
from dprl.evidence.nuisances import OVERLAP
from dprl.logs.censoring import AT_ONCE, STAY
from dprl.logs.log import Log
from dprl.logs.returns import returns

ENOUGH = 30.0
"""Effective groups that follow a policy to the end, from which on weights alone are enough."""
WIDER = 1.5
"""How much wider than otherwise the error by weights alone may be."""
FLOOR = 0.05
"""The least probability that a weight is divided by."""
RIDGE, RIDGE_OF_PAST = 1e-2, 1e-3
"""The least shrinkage of the columns of φ, in mean squares; of what was done and is said less."""
SHRUNK = 0.75
"""Shrinkage of either kind of columns for each column of it a group; it fades as logs grow."""
LARGEST = 20.0
"""The largest weight of a step, beside the discount."""
UNSEEN = 0.1
"""The largest share of suggestions that are below `OVERLAP` for a whole to be judged."""
FAR = -2.0
"""The least eigenvalue of the symmetric part of A, in mean squares of a column, to be judged."""
FOLDS = 4
ROWS_A_COLUMN = 50
"""φ has at most one column for so many rows."""
KNOTS, FEW_KNOTS = (7, 5, 3, 1), (3, 1, 0)
"""Hinges of a feature that are tried, with products of all of them and without."""
MOST_COLUMNS = 250
FIVE = 5.0
"""Standard deviations at which a feature is cut off, so that no step decides alone."""


@dataclass(frozen=True, eq=False)
class Judged:
    """What a whole policy brings, episode by episode.

    Attributes:
        score: float64 (E,), the mean of which is ρ(π) - ρ(b); NaN for episodes that only taught.
        exact: Whether weights alone were enough, so that nothing is supposed of what follows.
        effective: Effective number of groups behind the weights.
        sound: Whether the whole can be judged at all.
    """

    score: Floats
    exact: bool
    effective: float
    sound: bool


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps of a log that are judged, with what models say of usual practice there.

    Attributes:
        log: The log, without cut episodes, or with weights for them.
        V: float64 (N,), values of usual practice, from other groups.
        b: float64 (N, A), probabilities of usual practice, from other groups.
        gamma: Discount in (0, 1].
    """

    log: Log
    V: Floats
    b: Floats
    gamma: float

    @functools.cached_property
    def columns(self) -> Floats:
        """float64 (N, p), 1 and functions of the features and the step, of mean square 1."""
        return columns_of(self.log)

    def of_groups(self, chosen: Bools) -> Steps:
        """The same of some groups alone; `chosen` is bool (G,), and their order stays."""
        episodes = chosen[self.log.group]
        rows = np.repeat(episodes, self.log.lengths)
        log = self.log.take(np.flatnonzero(episodes))
        return Steps(log, self.V[rows], self.b[rows], self.gamma)

    def judged(self, suggested: Ints, fold: Ints) -> Judged:
        """What following suggestions at every step brings over usual practice.

        Args:
            suggested: int64 (N,), the suggested action at every step, A more than one to avoid, -1
                where there is none.
            fold: int64 (G,), the fold of each group; -1 for groups that only teach.
        """
        log, gamma, E = self.log, self.gamma, self.log.n_episodes
        step, episode = _step(log), np.repeat(np.arange(E), log.lengths)
        speaks = suggested >= 0
        avoid, named = np.divmod(np.maximum(suggested, 0), log.n_actions)
        b = self.b[np.arange(log.n_steps), named]
        b = np.where(speaks, np.where(avoid > 0, 1 - b, b), 1.0)
        follows = ~speaks | ((log.action == named) != (avoid > 0))
        ratio = np.where(follows, 1 / np.maximum(b, FLOOR), 0.0)
        said = [(suggested == a).astype(np.float64) for a in np.unique(suggested[speaks])]
        before = _past(log, np.unique(named[speaks]))
        past = np.column_stack([np.zeros((log.n_steps, 0)), *before, *said])
        phi = np.column_stack((self.columns, _scaled(past)))
        features, each = self.columns.shape[1], SHRUNK / len(log.groups)
        ridge = np.full(phi.shape[1], max(RIDGE, each * features))
        ridge[0], ridge[features:] = 0.0, max(RIDGE_OF_PAST, each * (phi.shape[1] - features))
        chance = chance_seen(log)

        def ahead(values: Floats) -> Floats:
            """γ times the values at the next step, by the chance that it was seen."""
            each = chance if values.ndim == 1 else chance[:, None]
            return np.asarray(gamma * each * _next(log, values / each))

        delta = log.more.get(AT_ONCE, log.reward) + ahead(self.V) - self.V
        moved = phi - ahead(phi)
        of_row = fold[np.repeat(log.group, log.lengths)]
        of_episode = fold[log.group]
        first = log.starts[:-1]

        def sums(rows: Bools, episodes: Bools) -> tuple[Floats, ...]:
            taken = phi[rows] * ratio[rows, None]
            return (
                taken.T @ moved[rows], taken.T @ delta[rows], (taken * phi[rows]).sum(axis=0),
                phi[first[episodes]].sum(axis=0),
            )  # fmt: skip

        parts = {k: sums(of_row == k, of_episode == k) for k in np.unique(fold).tolist()}
        discount = gamma**step / chance
        cumulative = discount * _cumulative(log, ratio)
        D, w, free = np.zeros((3, log.n_steps))
        one = np.ones(log.n_steps)
        G = returns(log, gamma)
        worst, best = G.min() - self.V, G.max() - self.V
        sound = not speaks.any() or float((b[speaks] < OVERLAP).mean()) <= UNSEEN
        for k in (k for k in parts if k >= 0):
            A, r, squares, s0 = (
                np.asarray(sum(part[i] for other, part in parts.items() if other != k))
                for i in range(4)
            )
            held = of_row == k
            theta, low = _solve(A, squares, ridge, r)
            nu, _ = _solve(A.T, squares, ridge, s0)
            sound &= low > FAR
            D[held] = np.clip(phi[held] @ theta, worst[held], best[held])
            free[held] = (phi[held] @ nu) * ratio[held]
            w[held] = np.clip(free[held], 0.0, LARGEST * discount[held])
        judged = of_episode >= 0
        group = log.group[judged].astype(np.int64)
        surprise = delta + ahead(D) - D

        def scores(weight: Floats) -> Floats:
            each = np.where(of_row >= 0, (weight - discount) * surprise, 0.0)
            return np.asarray(np.bincount(episode, weights=each, minlength=E)[judged], np.float64)

        score, own = np.full(E, np.nan), scores(w)
        total = np.bincount(episode, weights=w, minlength=E)[judged].astype(np.float64)
        ends = log.starts[1:] - 1
        last = cumulative[ends] / gamma ** step[ends] * (log.more.get(STAY, one)[ends] > 0)
        met = np.bincount(episode, weights=speaks, minlength=E)[judged] > 0
        effective = _effective(np.where(met, last[judged], 0.0), group) if met.any() else np.inf
        by_weights = scores(cumulative)
        exact = effective >= ENOUGH and _error(by_weights, group) <= WIDER * _error(own, group)
        if not exact:  # the error of θ is that of weights as they were solved for, not cut off
            error, whole = _error(own, group), _error(scores(free), group)
            mean = own.mean()
            own = mean + (own - mean) * (max(whole / error, 1.0) if error > 0 else 1.0)
        score[judged] = by_weights if exact else own
        return Judged(
            score, exact, _effective(last[judged] if exact else total, group),
            exact or bool(sound),
        )  # fmt: skip


def folds_of(groups: int, teach: Bools | None, seed: int) -> Ints:
    """int64 (G,), a fold for each group by lot; -1 for groups that only teach."""
    fold = np.random.default_rng(seed).permutation(np.arange(groups) % FOLDS)
    return np.asarray(fold if teach is None else np.where(teach, -1, fold), np.int64)


def with_past(log: Log, V: Floats, gamma: float, seed: int) -> Floats:
    """V̂, mended by what was done before where other groups say that it tells more of what follows.

    What was done before is no feature: where it goes on to matter, credit with λ < 1 would miss it.
    The rest G - V̂ is regressed on the features, the step and how often every action was taken
    before, and the regression of other groups is added if the mean square falls.

    Args:
        log: The log, with N rows.
        V: float64 (N,), values of usual practice, from other groups.
        gamma: Discount in (0, 1].
        seed: Seed of the folds.
    """
    past = list(_past(log, np.arange(log.n_actions)))
    if not past:
        return V
    rest = returns(log, gamma) - V
    columns = columns_of(log)
    phi = np.column_stack((columns, _scaled(np.column_stack(past))))
    fold = folds_of(len(log.groups), None, seed)[np.repeat(log.group, log.lengths)]
    ridge = np.full(phi.shape[1], RIDGE)
    ridge[0] = 0.0
    parts = [(phi[fold == k], rest[fold == k]) for k in range(FOLDS)]
    squares, products = [x.T @ x for x, _ in parts], [x.T @ y for x, y in parts]
    more = np.zeros(log.n_steps)
    for k in range(FOLDS):
        gram, right = sum(squares) - squares[k], sum(products) - products[k]
        beta, _ = _solve(np.asarray(gram), np.diag(gram), ridge, np.asarray(right))
        more[fold == k] = parts[k][0] @ beta
    better = float((rest**2).mean()) > float(((rest - more) ** 2).mean())
    return V + more if better else V


def _solve(A: Floats, squares: Floats, ridge: Floats, right: Floats) -> tuple[Floats, float]:
    """The solution with shrinkage, and the least eigenvalue of the symmetric part of A, scaled."""
    scale = max(float(squares.mean()), 1e-300)
    low = float(np.linalg.eigvalsh((A + A.T) / (2 * scale))[0])
    shrunk = A + np.diag((ridge + 1e-9) * scale)
    return np.asarray(np.linalg.lstsq(shrunk, right, rcond=None)[0]), low


def _effective(weight: Floats, group: Ints) -> float:
    """The effective number of groups behind weights of episodes."""
    total = np.bincount(group, weights=weight)
    return float(total.sum() ** 2 / max((total**2).sum(), 1e-300))


def _error(values: Floats, group: Ints) -> float:
    """The standard error of a mean of episodes, by groups."""
    return float(np.sqrt((np.bincount(group, weights=values - values.mean()) ** 2).sum()))


def _step(log: Log) -> Ints:
    return np.asarray(np.arange(log.n_steps) - np.repeat(log.starts[:-1], log.lengths))


def _next(log: Log, values: Floats) -> Floats:
    """The values at the next step of the episode, 0 after its last."""
    following = np.zeros_like(values)
    following[:-1] = values[1:]
    following[log.starts[1:] - 1] = 0.0
    return following


def _cumulative(log: Log, ratio: Floats) -> Floats:
    """The product of the ratios of an episode up to each step."""
    product = np.array(ratio)
    for t in range(1, int(log.lengths.max(initial=1))):
        rows = log.starts[:-1][log.lengths > t] + t
        product[rows] = np.minimum(product[rows] * product[rows - 1], 1e100)
    return product


def chance_seen(log: Log) -> Floats:
    """float64 (N,), the chance that each step was seen, 1 where cut episodes are not weighted."""
    chance = np.ones(log.n_steps)
    if STAY in log.more:
        chance[1:] = log.more[STAY][:-1]
        chance[log.starts[:-1]] = 1.0
    return _cumulative(log, chance)


def _past(log: Log, actions: Ints) -> Iterator[Floats]:
    """How often each of these actions was taken before, and whether so often, early or late."""
    late = _step(log) / max(int(log.lengths.max(initial=1)) - 1, 1)
    for a in actions.tolist():
        took = log.action == a
        so_far = np.cumsum(took) - took
        before = so_far - np.repeat(so_far[log.starts[:-1]], log.lengths)
        most = int(before.max(initial=0))
        if most > 0:
            yield before.astype(np.float64)
        for times in range(1, min(most, 4)):
            yield (before >= times).astype(np.float64)
            yield (before >= times) * late


def _scaled(columns: Floats) -> Floats:
    spread = np.sqrt((columns**2).mean(axis=0))
    return columns / np.where(spread > 0, spread, 1.0)


def columns_of(log: Log, most: int = MOST_COLUMNS) -> Floats:
    """1, the features and the step with hinges at quantiles, and products if there is room.

    Args:
        log: A log over features.
        most: How many columns there is room for at most. Default `MOST_COLUMNS`.
    """
    room = min(most, max(log.n_steps // ROWS_A_COLUMN, len(log.feature_names) + 2))
    one = np.ones((log.n_steps, 1))
    for number in KNOTS:
        plain = list(_of_features(log, number))
        widths = [part.shape[1] for part in plain]
        total = sum(widths)
        if (total**2 - sum(w * w for w in widths)) / 2 + total < room:
            pairs = [
                (x[:, :, None] * y[:, None, :]).reshape(len(x), -1)
                for i, x in enumerate(plain) for y in plain[:i]
            ]  # fmt: skip
            return _scaled(np.column_stack([one, *plain, *pairs]))
    for number in FEW_KNOTS:
        plain = list(_of_features(log, number))
        if sum(part.shape[1] for part in plain) < room:
            break
    return _scaled(np.column_stack([one, *plain]))


def _of_features(log: Log, knots: int) -> Iterator[Floats]:
    """The columns of each feature that varies, and of the step."""
    X = np.asarray(log.features)
    for f in range(X.shape[1] + 1):
        x = X[:, f] if f < X.shape[1] else _step(log).astype(np.float64)
        gone = np.isnan(x)
        own = [gone.astype(np.float64)] if gone.any() else []
        if f < X.shape[1] and log.levels and log.levels[f] is not None:
            own += [(x == code).astype(np.float64) for code in np.unique(x[~gone])[1:]]
        elif not gone.all() and (spread := float(x[~gone].std())) > 0:
            z = np.where(gone, 0.0, np.clip((x - x[~gone].mean()) / spread, -FIVE, FIVE))
            cuts = np.unique(np.quantile(z[~gone], np.arange(1, knots + 1) / (knots + 1)))
            inner = cuts[(cuts > z[~gone].min()) & (cuts < z[~gone].max())]
            own += [z, *(np.where(gone, 0.0, np.maximum(z - cut, 0.0)) for cut in inner)]
        if own:
            yield np.column_stack(own)
