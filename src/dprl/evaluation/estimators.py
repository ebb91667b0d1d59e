r"""Estimators of the value of a policy, from trajectories of another policy.

Trajectory e has steps (s_t, a_t, r_t), t = 0..T-1, ratios ρ_t = π(a_t|s_t) / π_b(a_t|s_t), and
ρ_t = 1 exactly where the policy defers; w_t = ρ_0 ⋯ ρ_t, w_{-1} = 1. Q̂ and V̂ are a model's values
of π; at a deferred step V̂(s_t) = Q̂(s_t, a_t), since a_t is what the policy itself would have done.
With n trajectories and u_t = n w_t / ∑_e w_t:

    IS      mean of  w_{T-1} ∑_t γ^t r_t
    WIS     ∑_e w_{T-1} G / ∑_e w_{T-1}
    PDIS    mean of  ∑_t γ^t w_t r_t
    WPDIS   mean of  ∑_t γ^t u_t r_t
    DM      mean of  the rewards before the first step at which the policy acts, then V̂ of it
    DR      mean of  v_0,   v_t = V̂(s_t) + ρ_t (r_t + γ v_{t+1} - Q̂(s_t, a_t))     (Jiang & Li 2016)
    WDR     mean of  ∑_t γ^t (u_t r_t + u_{t-1} V̂(s_t) - u_t Q̂(s_t, a_t))  (Thomas & Brunskill 2016)
    MAGIC   ∑_j x_j g_j,  g_j = WDR up to step j, then γ^(j+1) u_j V̂(s_{j+1})       (the same paper)
    MIS     mean of  ∑_t γ^t ω_t(s_t) ρ_t r_t,  ω_t(s) = mean of ω_{t-1}(s_{t-1}) ρ_{t-1} over the
            trajectories that are in s at t, ω_0 = 1          (Xie, Ma & Wang 2019, tabular states)

The last two are for those who ask for them (`dprl.evaluate(estimators=["MAGIC", "MIS"])`). MIS
needs states that tell all that matters, and does not multiply ratios. MAGIC weighs at most 16
lengths j so that x'(Ω + b b')x is least, x >= 0, ∑ x = 1: Ω is the covariance of the g_j, and b_j
how far g_j lies outside the interval that holds WDR half of the time.

In the sum ∑_e w_t of WPDIS and WDR a finished trajectory keeps its last weight: its return is
known, and leaving it out would give its share of the average to longer trajectories. At a deferred
step the recursion of DR is v_t = r_t + γ v_{t+1}, and that of DM is the same. For a policy that
never acts all seven estimates are the mean return, to the last bit.

Resampling: a bootstrap draw takes groups with replacement, which gives every group a count, and
every mean and sum above is taken with these counts (`dprl.evaluation.bootstrap`). The ratios and
the model stay as they are.

**Another estimator** is one `Estimator`, given to `register`: a name, a few words, and either a
number of each trajectory alone, whose mean is the estimate, or a function of the sums over all
trajectories in a draw (`Totals`). Tables, JSON, reports, `compare`, `sweep` and the command line
take it from there, and the numbers of the others stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats
from dprl._core.checks import check_choice
from dprl._core.compiled import compiled
from dprl._core.optional import Registry
from dprl._core.words import N_
from dprl.errors import ParameterError
from dprl.logs.log import Log

RETURN = "return"
"""The name of the mean return, the value of usual practice, among the estimates."""

LARGEST = 1e100
"""Largest weight (and largest value in the recursion of DR): its square must be finite."""


class Totals(NamedTuple):
    """Sums over the trajectories, each counted as often as its group is drawn, in B draws.

    Attributes:
        n: float64 (B,), the number of trajectories.
        W: float64 (B, T), ∑ w_t at each step; a finished trajectory keeps its last weight.
        A: float64 (B, T), ∑ γ^t w_t r_t.
        B: float64 (B, T), ∑ γ^t w_t (r_t - Q̂_t); None where there is no model of values.
        C: float64 (B, T), ∑ γ^t w_{t-1} V̂_t; None where there is no model of values.
        alone: Name → float64 (B,), the sum of a number that each trajectory has alone: those of the
            estimators that are means of one, and the return.
    """

    n: Floats
    W: Floats
    A: Floats
    B: Floats | None
    C: Floats | None
    alone: Mapping[str, Floats]

    @property
    def final(self) -> Floats:
        """float64 (B,), the sum of the weights of whole trajectories."""
        return self.W[:, -1]


@dataclass(frozen=True)
class Estimator:
    """One way to estimate the value of a policy.

    Attributes:
        name: What it is called in tables, in JSON and on the command line.
        words: How it works, in a few words.
        of: From the sums of B draws to the estimates (B,). Default None: the mean of its number of
            each trajectory.
        alone: From the trajectories to one number each, float64 (E,), which `of` finds added up in
            `Totals.alone`. Default None: it has none, or one of those that all have (IS, PDIS, DM
            and DR).
        values: Whether it needs a model of values (Q̂ and V̂).
        model_alone: Whether it rests on that model alone: its error is the model's, which
            resampling does not show, so it has no interval.
        normalised: Whether it divides by the sum of the weights: it does not exist where that is 0,
            and is the mean return, to the last bit, where every weight is 1.
        moves_with_weight: Whether it is off by as much as the mean weight is off 1.
    """

    name: str
    words: str
    of: Callable[[Totals], Floats] | None = None
    alone: Callable[[Weighted], Floats] | None = None
    values: bool = False
    model_alone: bool = False
    normalised: bool = False
    moves_with_weight: bool = False

    def __call__(self, totals: Totals) -> Floats:
        """float64 (B,), the estimates from the sums of B draws."""
        if self.of is None:
            return totals.alone[self.name] / totals.n
        return self.of(totals)


ESTIMATORS: dict[str, Estimator] = {}
"""Name → estimator, in the order in which tables show them."""

ASKED: Registry[Estimator] = Registry("dprl.estimators", "estimator")
"""Name → estimator that is shown where it is asked for; packages announce theirs."""


def register(estimator: Estimator) -> Estimator:
    """Add an estimator to those that every evaluation shows; a name is taken once."""
    if estimator.name in ESTIMATORS or estimator.name == RETURN:
        raise ParameterError(f"there is an estimator {estimator.name!r} already.")
    ESTIMATORS[estimator.name] = estimator
    return estimator


def chosen(more: Sequence[str | Estimator]) -> list[Estimator]:
    """The estimators that every evaluation shows, and then those that are asked for."""
    asked = []
    for one in more:
        found = one if isinstance(one, Estimator) else ESTIMATORS.get(one) or ASKED.find(one)
        if found is None:
            known = _listed([*ESTIMATORS, *ASKED])
            raise ParameterError(f"there is no estimator {one!r}.", do=f"There are {known}.")
        if found.name == RETURN or ESTIMATORS.get(found.name, found) is not found:
            raise ParameterError(f"there is an estimator {found.name!r} already.")
        asked.append(found)
    return list({one.name: one for one in (*ESTIMATORS.values(), *asked)}.values())


def names_of(values: bool | None = None, **flags: bool) -> list[str]:
    """The names of the estimators whose attributes are as given: `names_of(normalised=True)`."""
    flags = flags if values is None else {"values": values, **flags}
    return [
        name
        for name, one in ESTIMATORS.items()
        if all(getattr(one, flag) == value for flag, value in flags.items())
    ]


def headline(values: bool, several: bool) -> str:
    """The estimator that leads: WDR for several steps, DR for one, WIS without values.

    Chosen by how often the intervals hold the truth (`dprl reproduce intervals`).

    Args:
        values: Whether there is a model of values.
        several: Whether episodes have more than one step.
    """
    return ("WDR" if several else "DR") if values else "WIS"


def check_estimator(name: str | None, values: bool, log: Log, *, interval: bool) -> str:
    """The name of an estimator that can be shown; the one that leads where none is given.

    Args:
        name: The name as given.
        values: Whether there is a model of values.
        log: The log that judges.
        interval: Whether it must have an interval.
    """
    name = name or headline(values, log.n_steps > log.n_episodes)
    usable = [
        one.name
        for one in ESTIMATORS.values()
        if (values or not one.values) and not (interval and one.model_alone)
    ]
    why = "" if values else f"{_listed(names_of(values=True))} need values=True."
    if interval:
        with_model = names_of(values=True, model_alone=False)
        bare = _listed(names_of(model_alone=True))
        why = f"{bare} has no interval; {_listed(with_model)} need values."
    check_choice("estimator", name, usable, do=why)
    return name


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


# -- the seven -------------------------------------------------------------------------------------


def _wis(totals: Totals) -> Floats:
    return totals.alone["IS"] / totals.final


def _wpdis(totals: Totals) -> Floats:
    W = totals.W
    return np.asarray(np.where(W > 0, totals.A / W, 0.0).sum(axis=1))


def _wdr(totals: Totals) -> Floats:
    n, W, _, B, C, _ = totals
    if B is None or C is None:
        return _wpdis(totals)
    before = np.column_stack([n, W[:, :-1]])
    terms = np.where(before > 0, C / before, 0.0) + np.where(W > 0, B / W, 0.0)
    return np.asarray(terms.sum(axis=1))


register(Estimator("IS", N_("importance weights"), moves_with_weight=True))
register(Estimator("WIS", N_("importance weights, normalised"), _wis, normalised=True))
register(Estimator("PDIS", N_("weights decision by decision"), moves_with_weight=True))
register(
    Estimator(
        "WPDIS",
        N_("weights decision by decision, normalised"),
        _wpdis,
        normalised=True,
        moves_with_weight=True,
    )
)
register(Estimator("DM", N_("a model of values alone"), values=True, model_alone=True))
register(Estimator("DR", N_("the model, corrected by weights"), values=True))
register(
    Estimator(
        "WDR", N_("the model, corrected by normalised weights"), _wdr, values=True, normalised=True
    )
)


LENGTHS = 16
"""Lengths that MAGIC weighs."""


def _magic(weighted: Weighted) -> Floats:
    """float64 (E,): numbers whose mean is MAGIC, with the weights x of the whole log."""
    from scipy.optimize import nnls

    starts, lengths = weighted.starts[:-1], np.diff(weighted.starts)
    E, T = len(lengths), int(lengths.max())
    t = np.arange(len(weighted.w)) - np.repeat(starts, lengths)
    final = np.bincount(lengths, weights=weighted.final, minlength=T + 1)
    total = np.bincount(t, weights=weighted.w, minlength=T) + np.cumsum(final)[:T]
    u = weighted.w * E / np.where(total > 0, total, 1.0)[t]
    before = np.where(t > 0, np.roll(u, 1), 1.0)
    reach = weighted.gamma**t
    tail = reach * before * weighted.V
    done = np.concatenate(([0.0], np.cumsum(reach * u * (weighted.reward - weighted.Q) + tail)))
    g = []
    for steps in np.unique(np.linspace(0, T, LENGTHS).astype(np.int64)):
        last = starts + np.minimum(steps, lengths)
        more = np.where(steps < lengths, tail[np.minimum(last, len(tail) - 1)], 0.0)
        g.append(done[last] - done[starts] + more)
    by_length = np.array(g)
    middle = by_length.mean(axis=1)
    half = by_length[-1].std() / np.sqrt(E) * 0.6745  # the interval that holds it half of the time
    b = np.sign(middle - middle[-1]) * np.maximum(np.abs(middle - middle[-1]) - half, 0)
    errors = np.atleast_2d(np.cov(by_length)) / E + np.outer(b, b)
    size = np.sqrt(np.trace(errors)) or 1.0
    root = np.linalg.cholesky(errors / size**2 + 1e-9 * np.eye(len(g)))
    x, _ = nnls(np.vstack((root.T, np.full(len(g), 1e3))), np.append(np.zeros(len(g)), 1e3))
    return np.asarray(x / x.sum() @ by_length)


def _mis(weighted: Weighted) -> Floats:
    """float64 (E,): numbers whose mean is MIS, with the weights ω of the whole log."""
    if weighted.state is None or weighted.ratio is None:
        raise ParameterError("MIS is for labelled states.", do="Leave it out.")
    starts, lengths = weighted.starts[:-1], np.diff(weighted.starts)
    S = int(weighted.state.max()) + 1
    numbers, omega = np.zeros(len(lengths)), np.ones(S)
    for t in range(int(lengths.max())):
        live = np.flatnonzero(lengths > t)
        row = starts[live] + t
        carried = np.minimum(omega[weighted.state[row]] * weighted.ratio[row], LARGEST)
        numbers[live] += weighted.gamma**t * carried * weighted.reward[row]
        on = lengths[live] > t + 1
        after = weighted.state[row[on] + 1]
        there = np.bincount(after, minlength=S)
        omega = np.bincount(after, carried[on], S) / np.maximum(there, 1)
    return numbers


ASKED.add("MIS", Estimator("MIS", "weights of states instead of histories", alone=_mis))
ASKED.add("MAGIC", Estimator("MAGIC", "between the model and WDR", alone=_magic, values=True))


# -- trajectories ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Weighted:
    """Trajectories with their importance weights; made by `importance_weights`.

    Attributes:
        starts: int64 (E + 1,), the first row of each trajectory, and N at the end.
        group: int32 (E,), group of each trajectory, codes 0..G-1.
        reward: float64 (N,), reward of each step.
        gamma: Discount per step.
        Q: float64 (N,), Q̂(s_t, a_t).
        V: float64 (N,), V̂(s_t).
        w: float64 (N,), cumulative weights w_t.
        alone: Name → float64 (E,), the estimates from each trajectory alone: IS, PDIS, DM and DR,
            and its return.
        ratio: float64 (N,), the ratio of each step. Default None: not kept.
        state: (N,), codes of the states where they are labels. Default None: they are not.
    """

    starts: NDArray[np.int64]
    group: NDArray[np.int32]
    reward: Floats
    gamma: float
    Q: Floats
    V: Floats
    w: Floats
    alone: Mapping[str, Floats]
    ratio: Floats | None = None
    state: NDArray[np.int32] | None = None

    @property
    def n_groups(self) -> int:
        """G, the number of groups."""
        return int(self.group.max()) + 1

    @property
    def final(self) -> Floats:
        """float64 (E,): the weight of each whole trajectory, w at its last step."""
        return self.w[self.starts[1:] - 1]

    @property
    def returns(self) -> Floats:
        """float64 (E,): the return of each trajectory."""
        return self.alone[RETURN]

    def of_episodes(self, use: NDArray[np.bool_]) -> tuple[Weighted, NDArray[np.int64]]:
        """The trajectories where `use` (E,) is true, and the groups they belong to."""
        lengths = np.diff(self.starts)
        steps = np.repeat(use, lengths)
        groups, group = np.unique(self.group[use], return_inverse=True)
        part = Weighted(
            np.concatenate(([0], np.cumsum(lengths[use]))), group.astype(np.int32),
            self.reward[steps], self.gamma, self.Q[steps], self.V[steps], self.w[steps],
            {name: numbers[use] for name, numbers in self.alone.items()},
            None if self.ratio is None else self.ratio[steps],
            None if self.state is None else self.state[steps],
        )  # fmt: skip
        return part, groups.astype(np.int64)


@compiled
def _weigh(
    starts: NDArray[np.int64],
    reward: Floats,
    gamma: float,
    ratio: Floats,
    acts: NDArray[np.bool_],
    Q: Floats,
    V: Floats,
    w: Floats,
    IS: Floats,
    PDIS: Floats,
    DM: Floats,
    DR: Floats,
    returns: Floats,
) -> None:  # pragma: no cover - compiled
    """Fill w (N,), and (E,) the estimates from each trajectory alone and its return."""
    for e in range(len(starts) - 1):
        begin, end = starts[e], starts[e + 1]
        weight = 1.0
        for i in range(begin, end):
            weight = min(weight * ratio[i], LARGEST)
            w[i] = weight
        G, pdis, dm, dr = 0.0, 0.0, 0.0, 0.0
        for i in range(end - 1, begin - 1, -1):
            G = reward[i] + gamma * G
            pdis = w[i] * reward[i] + gamma * pdis
            if acts[i]:
                dm = V[i]
                dr = V[i] + ratio[i] * (reward[i] + gamma * dr - Q[i])
                dr = min(max(dr, -LARGEST), LARGEST)
            else:
                dm = reward[i] + gamma * dm
                dr = reward[i] + gamma * dr
        IS[e], PDIS[e], DM[e], DR[e], returns[e] = weight * G, pdis, dm, dr, G


def importance_weights(
    starts: NDArray[np.int64],
    group: NDArray[np.int32],
    reward: Floats,
    gamma: float,
    ratio: Floats,
    acts: NDArray[np.bool_],
    Q: Floats,
    V: Floats,
) -> Weighted:
    """Give every trajectory its importance weights.

    Args:
        starts: int64 (E + 1,), the first row of each trajectory, and N at the end.
        group: int32 (E,), codes 0..G-1; the trajectories of a group are resampled together.
        reward: float64 (N,), reward of each step.
        gamma: Discount per step, in (0, 1].
        ratio: float64 (N,), π / π_b of the action that was taken; 1 where the policy defers.
        acts: bool (N,), false where the policy defers.
        Q: float64 (N,), Q̂ of the state and the action that was taken.
        V: float64 (N,), V̂ of the state; equal to Q where the policy defers.

    Returns:
        The trajectories with their weights.
    """
    w = np.empty(len(reward))
    alone = {name: np.empty(len(starts) - 1) for name in ("IS", "PDIS", "DM", "DR", RETURN)}
    _weigh(starts, reward, float(gamma), ratio, acts, Q, V, w, *alone.values())
    return Weighted(starts, group, reward, float(gamma), Q, V, w, alone)
