"""Worlds over labels: trials, many states, near ties, patients with effects of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from scipy import sparse
from scipy.special import expit

from dprl._core.arrays import Floats
from dprl._core.checks import check_number, check_whole
from dprl.envs.delayed import PartlyObserved, delayed
from dprl.envs.hard.features import TWO, two
from dprl.envs.hard.world import MarkovWorld, Rewards, World
from dprl.planning.finite_mdp import FiniteMDP


def uniform(width: float, rng: np.random.Generator, mean: Floats) -> Floats:
    """Rewards that are uniform about their means, `width` wide."""
    return np.asarray(mean + width * (rng.random(mean.shape) - 0.5))


def binary(rng: np.random.Generator, mean: Floats) -> Floats:
    """Rewards 1 or 0."""
    return (rng.random(mean.shape) < mean).astype(np.float64)


def single_step(
    name: str,
    actions: Sequence[str],
    behavior: Floats,
    means: Floats,
    *,
    start: Floats | None = None,
    reward: Rewards = binary,
    value_range: tuple[float, float] | None = (0.0, 1.0),
    recorded: bool = False,
) -> World:
    """One decision in one of S situations: a trial, or a table of habits.

    Args:
        name: Its name.
        actions: The A action labels, sorted.
        behavior: float64 (S, A), what people do.
        means: float64 (S, A), the mean outcome of each action.
        start: float64 (S,), how often each situation is met. Default None: all alike.
        reward: How outcomes are drawn about their means. Default: 1 or 0.
        value_range: (lowest, highest) outcome there can be. Default (0, 1).
        recorded: Whether the log says with which probability each action was taken. Default False.

    Returns:
        The world; its truths are exact.

    Example:
        >>> import numpy as np
        >>> from dprl.envs.hard import single_step
        >>> coin = single_step("coin", ("a", "b"), np.array([[0.5, 0.5]]), np.array([[0.6, 0.4]]))
        >>> round(coin.value(), 6)
        0.5
    """
    S = len(means)
    chance = np.full(S, 1 / S) if start is None else start

    def draw(rng: np.random.Generator, n: int) -> Floats:
        return rng.choice(S, p=chance, size=(n, 1, 1)).astype(np.float64)

    def rows(table: Floats) -> Callable[[Floats, int, int], Floats]:
        return lambda x, t, m: table[x[:, 0].astype(np.int64)]

    return World(
        name=name,
        actions=tuple(actions),
        draw=draw,
        practice=rows(behavior),
        pay=rows(means),
        show=lambda x, t, m: x[:, 0],
        states=tuple(f"s{i:03d}" for i in range(S)),
        reward=reward,
        atlas=lambda: (np.arange(S, dtype=np.float64)[:, None, None], chance),
        recorded=recorded,
        value_range=value_range,
    )


def one_arm_worse(worse: float = 0.65, others: float = 0.79, *, arms: int = 4) -> World:
    """A trial of several arms by lot, in which one arm is worse than all others.

    Args:
        worse: The chance of a good outcome in the first arm. Default .65.
        others: The same in all others; equal to `worse` nothing works. Default .79.
        arms: Their number, at least 2. Default 4.

    Returns:
        The world, with one state.

    Example:
        >>> from dprl.envs.hard import one_arm_worse
        >>> one_arm_worse().sample(2100, seed=0)
        Log: 2,100 episodes · 2,100 steps · 1 state · 4 actions
    """
    check_whole("arms", arms, 2)
    means = np.full((1, arms), others)
    means[0, 0] = worse
    name = "trial, one arm worse" if worse != others else "trial, nothing works"
    labels = [f"arm {i + 1}" for i in range(arms)]
    return single_step(name, labels, np.full((1, arms), 1 / arms), means, recorded=True)


def lucky_arm(arms: int = 40) -> World:
    """Forty arms beside the usual one, all a little worse: the luckiest looks better.

    The usual arm has .6 and half of the patients; every other arm .57, and an equal share.

    Args:
        arms: Arms beside the usual one, at least 2. Default 40.

    Returns:
        The world.

    Example:
        >>> from dprl.envs.hard import lucky_arm
        >>> len(lucky_arm().actions)
        41
    """
    check_whole("arms", arms, 2)
    behavior = np.array([[0.5, *([0.5 / arms] * arms)]])
    means = np.array([[0.6, *([0.57] * arms)]])
    labels = ["a00 usual", *(f"a{i + 1:02d}" for i in range(arms))]
    return single_step("lucky arm", labels, behavior, means)


def null_states(states: int = 100, *, chance: tuple[float, float] = (0.2, 0.8)) -> World:
    """Many situations with three actions that do nothing, given in shares that differ.

    Args:
        states: Number of situations, at least 1. Default 100.
        chance: Between which a good outcome's chance in a situation lies. Default (.2, .8).

    Returns:
        The world; `gain` is 0 for every policy.

    Example:
        >>> from dprl.envs.hard import null_states
        >>> null_states().sample(10, seed=0).n_actions
        3
    """
    rng = np.random.default_rng(11)
    behavior = rng.dirichlet((2.0, 2.0, 2.0), check_whole("states", states, 1))
    level = rng.uniform(*chance, (states, 1))
    return single_step(
        f"null states, {states}", ("a", "b", "c"), behavior, np.repeat(level, 3, axis=1)
    )


def near_ties(states: int = 60, *, size: float = 0.012) -> World:
    """Many situations in which the actions differ by very little.

    Args:
        states: Number of situations, at least 1. Default 60.
        size: Standard deviation of the differences. Default .012.

    Returns:
        The world; outcomes are 1 or 0.

    Example:
        >>> import numpy as np
        >>> from dprl.envs.hard import near_ties
        >>> abs(near_ties().gain(np.tile([1.0, 0.0], (60, 1))).value) < 0.02
        True
    """
    rng = np.random.default_rng(13)
    level = rng.uniform(0.3, 0.7, (check_whole("states", states, 1), 1))
    means = level + check_number("size", size, "[0, 0.1]") * rng.normal(size=(states, 2))
    return single_step("near ties", TWO, two(rng.uniform(0.3, 0.7, states)), means)


def habits(states: int = 12, *, size: float = 0.2) -> World:
    """Situations in some of which the usual action is the worse one: there is something to gain.

    Args:
        states: Number of situations, at least 3. Default 12.
        size: How much better the other action is in every third. Default .2; elsewhere it is as
            much worse.

    Returns:
        The world.

    Example:
        >>> from dprl.envs.hard import habits
        >>> round(habits().value(), 3)
        0.533
    """
    check_whole("states", states, 3)
    better = np.where(np.arange(states) % 3 == 0, size, -size)
    means = np.stack((0.55 + better, np.full(states, 0.55)), axis=1)
    return single_step("habits", TWO, two(np.full(states, 0.25)), means)


def confounded_labels(strength: float | str = "medium", *, steps: int = 3) -> World:
    """A treatment that does nothing, given by the recorded state, through several steps.

    Six states, from ill to well; the worse, the more are treated. Patients move by themselves, and
    leave after the last step: with several, the state does not tell how much is still to come.

    Args:
        strength: Log odds of treatment a state is apart from the next: "weak" .25, "medium" .5,
            "strong" 1, or a number. Default "medium".
        steps: Steps of an episode, at least 1. Default 3.

    Returns:
        The world; `gain` is 0 for every policy.

    Example:
        >>> from dprl.envs.hard import confounded_labels
        >>> confounded_labels(steps=2).sample(10, seed=0).n_steps
        20
    """
    named = {"weak": 0.25, "medium": 0.5, "strong": 1.0}
    s = named[strength] if isinstance(strength, str) else float(strength)
    T, S = check_whole("steps", steps, 1), 6

    def draw(rng: np.random.Generator, n: int) -> Floats:
        x = rng.integers(S, size=(n, 1))
        walk = np.concatenate((x, rng.choice((-1, 0, 1), size=(n, T - 1))), axis=1)
        for t in range(1, T):
            walk[:, t] = np.clip(walk[:, t - 1] + walk[:, t], 0, S - 1)
        return walk[:, :, None].astype(np.float64)

    return World(
        name=f"null labels, {strength}, {T} steps",
        actions=TWO,
        draw=draw,
        practice=lambda x, t, m: two(expit(s * (2.5 - x[:, 0]))),
        pay=lambda x, t, m: np.repeat(0.1 + 0.16 * x, 2, axis=1),
        show=lambda x, t, m: x[:, 0],
        states=tuple(f"level {i}" for i in range(S)),
        reward=binary,
        value_range=(0.0, float(T)),
        breaks=("state is Markov",) if T > 1 else (),
    )


def null_chain(strength: float = 0.5, *, end: float = 0.25) -> MarkovWorld:
    """As `confounded_labels`, and Markov: an episode ends with the same chance at every step.

    Args:
        strength: Log odds of treatment a state is apart from the next. Default .5.
        end: The chance that an episode ends at a step, in (0, 1]. Default .25.

    Returns:
        The world, with γ = .9; `gain` is 0 for every policy.

    Example:
        >>> import numpy as np
        >>> from dprl.envs.hard import null_chain
        >>> abs(null_chain().gain(np.tile([1.0, 0.0], (6, 1))).value) < 1e-12
        True
    """
    check_number("end", end, "(0, 1]")
    S = 6
    moves = np.zeros((S, S))
    for s in range(S):
        for by in (-1, 0, 1):
            moves[s, min(max(s + by, 0), S - 1)] += (1 - end) / 3
    low = np.repeat(0.12 * np.arange(S)[:, None], 2, axis=1)
    mdp = FiniteMDP(
        name="null chain",
        states=tuple(f"level {i}" for i in range(S)),
        actions=TWO,
        P=sparse.csr_array(np.repeat(moves, 2, axis=0)),
        low=low,
        high=low + 0.4,
        start=np.full(S, 1 / S),
        behavior=two(expit(strength * (2.5 - np.arange(S)))),
        gamma=0.9,
    )
    return MarkovWorld("null chain", mdp, (0.0, 10.0))


def patients(
    *, mean: float = -0.02, sd: float = 0.3, episodes: int = 20, level: float = 0.15
) -> World:
    """Patients with many episodes each, in whom treatment works differently: 60 of them say little.

    Treatment brings mean + sd · u, u uniform over the patients with standard deviation 1; patients
    also differ by `level` in how they fare. Neither decides who is treated.

    Args:
        mean: What treatment brings on average. Default -.02.
        sd: How much that differs between patients. Default .3.
        episodes: Episodes of a patient. Default 20.
        level: How much outcomes differ between patients, whatever is done. Default .15.

    Returns:
        The world, whose `n` counts patients: `sample(60, ...)` has 1,200 episodes.

    Example:
        >>> from dprl.envs.hard import patients
        >>> round(patients().effect(lambda s: s == "mild", "treat").value, 6)
        -0.02
    """

    def draw(rng: np.random.Generator, n: int) -> Floats:
        own = np.sqrt(12) * (rng.random((n, 2)) - 0.5)
        X = np.repeat(own, episodes, axis=0)
        return np.column_stack((rng.integers(3, size=len(X)), X))[:, None, :]

    def pay(x: Floats, t: int, m: int) -> Floats:
        usual = np.array([0.0, 0.15, 0.3])[x[:, 0].astype(np.int64)] + level * x[:, 1]
        return np.stack((usual + mean + sd * x[:, 2], usual), axis=1)

    return World(
        name="patients" + (", effect" if mean > 0 else ""),
        actions=TWO,
        draw=draw,
        practice=lambda x, t, m: two(np.array([0.35, 0.45, 0.55])[x[:, 0].astype(np.int64)]),
        pay=pay,
        show=lambda x, t, m: x[:, 0],
        states=("mild", "severe", "well"),
        reward=functools.partial(uniform, 0.6),
        atlas=lambda: (np.array([[[i, 0.0, 0.0]] for i in range(3)]), np.full(3, 1 / 3)),
        episodes=episodes,
        value_range=(-1.5, 1.8),
    )


def hidden_labels(gamma: float = 3.0) -> World:
    """An unrecorded cause moves the odds of a treatment that does nothing, and the outcome.

    Args:
        gamma: Γ, the odds ratio of treatment, at least 1. Default 3.

    Returns:
        The world; it breaks "hidden cause", by exactly Γ.

    Example:
        >>> from dprl.envs.hard import hidden_labels
        >>> hidden_labels(2.0).name, hidden_labels(1.0).breaks
        ('hidden cause in labels, 2', ())
    """
    check_number("gamma", gamma, "[1, inf)")
    u = np.array([[[s, c]] for s in range(4) for c in (0.0, 1.0)])

    def draw(rng: np.random.Generator, n: int) -> Floats:
        return np.asarray(u[rng.integers(8, size=n)])

    def pay(x: Floats, t: int, m: int) -> Floats:
        return np.repeat((0.2 + 0.08 * x[:, 0] + 0.3 * x[:, 1])[:, None], 2, axis=1)

    return World(
        name=f"hidden cause in labels, {gamma:g}",
        actions=TWO,
        draw=draw,
        practice=lambda x, t, m: two(
            expit(0.3 * (x[:, 0] - 1.5) + np.log(gamma) * (x[:, 1] - 0.5))
        ),
        pay=pay,
        show=lambda x, t, m: x[:, 0],
        states=tuple(f"level {i}" for i in range(4)),
        reward=binary,
        atlas=lambda: (u, np.full(8, 1 / 8)),
        value_range=(0.0, 1.0),
        breaks=("hidden cause",) if gamma > 1 else (),
    )


def drift_labels(*, outcome: float = 0.4) -> World:
    """Practice moves with a calendar that is not recorded, and so may the outcome.

    Args:
        outcome: How much outcomes improve over the calendar, whatever is done. Default .4.

    Returns:
        The world; with an outcome that moves the calendar is a hidden cause.

    Example:
        >>> from dprl.envs.hard import drift_labels
        >>> drift_labels(outcome=0).breaks, drift_labels().breaks
        ((), ('hidden cause',))
    """

    def draw(rng: np.random.Generator, n: int) -> Floats:
        level = rng.integers(4, size=n).astype(np.float64)
        return np.stack((level, (np.arange(n) + 0.5) / n), axis=1)[:, None, :]

    def pay(x: Floats, t: int, m: int) -> Floats:
        level = 0.2 + 0.1 * x[:, 0] + outcome * (x[:, 1] - 0.5) / 2
        return np.stack((level, level), axis=1)

    return World(
        name="drift in labels" + ", outcomes too" * bool(outcome),
        actions=TWO,
        draw=draw,
        practice=lambda x, t, m: two(expit(3 * (x[:, 1] - 0.5))),
        pay=pay,
        show=lambda x, t, m: x[:, 0],
        states=tuple(f"level {i}" for i in range(4)),
        reward=binary,
        value_range=(0.0, 1.0),
        breaks=("hidden cause",) if outcome else (),
    )


def tails_labels(*, effect: float = 0.0) -> World:
    """Outcomes with rare large losses, whatever is done, in four situations.

    Args:
        effect: What treatment brings. Default 0.

    Returns:
        The world; its returns have no lowest value.

    Example:
        >>> from dprl.envs.hard import tails_labels
        >>> tails_labels().value_range is None
        True
    """

    def reward(rng: np.random.Generator, mean: Floats) -> Floats:
        return np.asarray(mean - 0.4 * (np.exp(1.4 * rng.normal(size=mean.shape)) - np.exp(0.98)))

    means = np.array([[i / 4 + effect, i / 4] for i in range(4)])
    behavior = two(np.array([0.2, 0.35, 0.5, 0.65]))
    return single_step(
        "heavy tails in labels" + ", effect" * bool(effect), TWO, behavior, means, reward=reward,
        value_range=None,
    )  # fmt: skip


def catastrophe(
    *, one_in: int = 300, loss: float = 40.0, helps: float = 0.08, levels: int = 3
) -> World:
    """A treatment that helps a little and, in one case in `one_in`, ruins.

    Args:
        one_in: How rare that is, at least 2. Default 300.
        loss: What it costs then. Default 40.
        helps: What it brings otherwise. Default .08.
        levels: The number of situations, 1 to 6; treatment is likelier in later ones. Default 3.

    Returns:
        The world; it breaks "catastrophes were seen" where they are rarer than one in 100.

    Example:
        >>> from dprl.envs.hard import catastrophe
        >>> round(catastrophe().effect(lambda s: s == "level 0", "treat").value, 4)
        -0.0533
    """
    check_whole("one_in", one_in, 2)
    check_whole("levels", levels, 1)

    def draw(rng: np.random.Generator, n: int) -> Floats:
        level = rng.integers(levels, size=n).astype(np.float64)
        ruined = (rng.random(n) < 1 / one_in).astype(np.float64)
        return np.stack((level, ruined), axis=1)[:, None]

    def pay(x: Floats, t: int, m: int) -> Floats:
        usual = 0.3 + 0.1 * x[:, 0]
        return np.stack((usual + helps - loss * x[:, 1], usual), axis=1)

    return World(
        name=f"catastrophe in labels, 1 in {one_in}",
        actions=TWO,
        draw=draw,
        practice=lambda x, t, m: two(0.3 + 0.1 * x[:, 0]),
        pay=pay,
        show=lambda x, t, m: x[:, 0],
        states=tuple(f"level {i}" for i in range(levels)),
        reward=functools.partial(uniform, 0.4),
        atlas=lambda: (
            np.array([[[i, 1 / one_in]] for i in range(levels)]),
            np.full(levels, 1 / levels),
        ),
        value_range=(-loss, max(1.0, 0.4 + 0.1 * levels + helps)),
        breaks=("catastrophes were seen",) if one_in > 100 else (),
    )


# --- worlds with several steps whose states depend on what was done


def doses(
    *, steps: int = 4, chance: float = 0.3, third: float = -3.2, day_shown: bool = True
) -> MarkovWorld:
    """Every dose brings 1, the third one `third`; the record does not show the doses.

    Args:
        steps: Days, at least 3. Default 4.
        chance: The probability of a dose. Default .3.
        third: What the third dose brings. Default -3.2.
        day_shown: Whether the record shows the day. Default True; otherwise there is one state,
            which is visited every day.

    Returns:
        The world: on each day a dose is worth giving, and giving all of them is not.

    Example:
        >>> from dprl.envs.hard import doses
        >>> doses().breaks
        ('state is Markov',)
    """
    T = check_whole("steps", steps, 3)
    day, given = np.divmod(np.arange(4 * T), 4)
    bring = np.where(given == 2, third, 1.0)
    later = np.stack((np.minimum(given + 1, 3), given), axis=1)
    target = (day[:, None] + 1) * 4 + later
    on = np.flatnonzero(np.repeat(day < T - 1, 2))
    noise = np.array([-0.5, 0.5])
    R = np.stack((bring, np.zeros(4 * T)), axis=1)
    full = FiniteMDP(
        name="doses",
        states=tuple(f"day {d + 1}, {k} given" for d, k in zip(day, given, strict=True)),
        actions=("dose", "wait"),
        P=sparse.csr_array(
            (np.ones(len(on)), (on, target.ravel()[on])), shape=(8 * T, 4 * T)
        ),
        low=R + noise[0],
        high=R + noise[1],
        start=np.eye(4 * T)[0],
        behavior=np.tile([chance, 1 - chance], (4 * T, 1)),
        gamma=1.0,
        max_steps=T + 1,
    )  # fmt: skip
    labels = tuple(f"day {d + 1}" for d in range(T)) if day_shown else ("ward",)
    lowest = min(third, 0.0) - 0.5 * T
    return MarkovWorld(
        "doses in labels", PartlyObserved(full, labels, day.astype(np.int64) * day_shown),
        (lowest, 1.5 * T), ("state is Markov",),
    )  # fmt: skip


def delayed_harm(
    *, days: int = 5, delay: int = 3, gain: float = 0.3, cost: float = 0.8
) -> MarkovWorld:
    """`dprl.envs.delayed` with other numbers: help at once, harm later that the state hides.

    Args:
        days: Days on which the drug does something. Default 5.
        delay: After how many days the cost comes. Default 3.
        gain: What the drug brings at once. Default .3.
        cost: What it costs later; below `gain` the drug is worth giving. Default .8.

    Returns:
        The world.

    Example:
        >>> from dprl.envs.hard import delayed_harm
        >>> round(delayed_harm().effect(lambda s: s == "day 1", "drug").value, 6)
        -0.5
    """
    problem = delayed(days=days, delay=delay, gain=gain, cost=cost)
    lowest, highest = -cost * days, (days + delay) + gain * days
    name = f"delayed harm, {delay} days" if cost > gain else "delayed, worth it"
    return MarkovWorld(name, problem, (lowest, highest), ("state is Markov",))


def recurring_harm(
    *, days: int = 6, delay: int = 2, gain: float = 0.2, cost: float = 0.5
) -> MarkovWorld:
    """Help at once and harm `delay` days later, in places that are visited again and again.

    Each day is spent in the ward or the clinic, by chance; the drug is given with probability .35
    whatever came before. What is paid until the next visit of a place holds the help, and of the
    harm as much for either action.

    Args:
        days: Days of an episode, more than `delay`. Default 6.
        delay: After how many days the cost comes, 1 to 4. Default 2.
        gain: What the drug brings at once. Default .2.
        cost: What it costs later, if the episode lasts so long. Default .5.

    Returns:
        The world.

    Example:
        >>> import numpy as np
        >>> from dprl.envs.hard import recurring_harm
        >>> always = np.tile([1.0, 0.0], (2, 1))
        >>> round(recurring_harm().gain(always).value, 6)  # .65 (6 · .2 - 4 · .5)
        -0.52
    """
    delay = check_whole("delay", delay, 1, 4)
    days = check_whole("days", days, delay + 1)
    memories = 1 << delay
    day, rest = np.divmod(np.arange(days * memories * 2), memories * 2)
    memory, place = np.divmod(rest, 2)
    drug = np.array([[1, 0]])
    low = gain * drug - cost * (memory >> (delay - 1) & 1)[:, None]
    later = ((memory << 1) % memories)[:, None] + drug
    target = ((day[:, None] + 1) * memories + later) * 2
    on = np.flatnonzero(np.repeat(day < days - 1, 2))
    n, there = len(day), target.ravel()[on]
    P = sparse.csr_array(
        (np.full(2 * len(on), 0.5), (np.tile(on, 2), np.r_[there, there + 1])), shape=(2 * n, n)
    )
    start = np.zeros(n)
    start[:2] = 0.5
    full = FiniteMDP(
        name="recurring harm",
        states=tuple(range(n)),
        actions=("drug", "wait"),
        P=P,
        low=low,
        high=low + 0.4,
        start=start,
        behavior=np.tile([0.35, 0.65], (n, 1)),
        gamma=1.0,
        max_steps=days + 1,
    )
    return MarkovWorld(
        f"recurring harm, {delay} days",
        PartlyObserved(full, ("clinic", "ward"), place.astype(np.int64)),
        (-cost * days, (0.4 + gain) * days), ("state is Markov",),
    )  # fmt: skip


FLOWS = {"drift": (0, 0), "hold": (0, -1), "left": (-1, 0), "paddle": (0, -2), "right": (1, 0)}
SIZE = 5


def wet_chicken(*, noise: float = 0.4, end: float = 0.05) -> MarkovWorld:
    """A canoe above a waterfall: the nearer, the better, and beyond it everything begins again.

    The discrete river of 5 x 5 places of Hans and Udluft (*Efficient uncertainty propagation for
    reinforcement learning with limited data*, ICANN 2009), here in our own numbers: the current
    flows faster on the right (by 3 x / 5) and is rougher on the left (3.5 less that), the place
    down the river is rounded, and every step pays the place from which it is taken. Practice: most
    often back off near the edge and drift elsewhere, and anything at all with chance `noise`.

    Args:
        noise: How often practice does anything at all, in [0, 1]. Default .4.
        end: The chance that an episode ends at a step, in (0, 1). Default .05.

    Returns:
        The world, with γ = .95; rewards are in [0, 1] (the place divided by 4).

    Example:
        >>> from dprl.envs.hard import wet_chicken
        >>> world = wet_chicken()
        >>> bool(1 < world.value() < world.mdp.optimal[0][0])
        True
    """
    check_number("noise", noise, "[0, 1]")
    check_number("end", end, "(0, 1)")
    x, y = np.divmod(np.arange(SIZE * SIZE), SIZE)
    n, A = len(x), len(FLOWS)
    P = np.zeros((n, A, n))
    for a, (side, along) in enumerate(FLOWS.values()):
        for s in range(n):
            fast = 3 * x[s] / SIZE
            rough = 3.5 - fast
            across = np.clip(x[s] + side, 0, SIZE - 1)
            middle = y[s] + along + fast
            # the place is uniform on middle ± rough, and rounded; below 0 it stays at 0
            edges = (np.arange(-1, SIZE + 1) + 0.5 - (middle - rough)) / (2 * rough)
            below = np.clip(edges, 0, 1)  # chances to end below -.5, .5, ..., SIZE - .5
            stays = np.diff(below[1:], prepend=0.0)
            P[s, a, across * SIZE : across * SIZE + SIZE] += stays[:SIZE]
            P[s, a, 0] += 1 - below[SIZE]  # over the edge, back to the start
    reward = np.repeat((y / (SIZE - 1))[:, None], A, axis=1)
    sense = np.where(y >= 3, 3, np.where(y == 2, 1, 0))
    behavior = np.full((n, A), noise / A)
    behavior[np.arange(n), sense] += 1 - noise
    mdp = FiniteMDP(
        name="wet chicken",
        states=tuple(f"x{i} y{j}" for i, j in zip(x, y, strict=True)),
        actions=tuple(FLOWS),
        P=sparse.csr_array((1 - end) * P.reshape(n * A, n)),
        low=reward,
        high=reward,
        start=np.eye(n)[0],
        behavior=behavior,
        gamma=0.95,
        max_steps=100_000,
    )
    return MarkovWorld("wet chicken", mdp, (0.0, 20.0))
