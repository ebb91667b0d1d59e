"""Worlds over features: what drives treatment is recorded, in shapes that a model may miss.

Features are standard normal and move from step to step by x' = .8 x + .6 e. Practice and outcome
are given for every cause, so each function is a few lines of formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit

from dprl._core.arrays import Floats
from dprl._core.checks import check_choice, check_number, check_whole
from dprl.envs.hard.world import Drawn, World

TWO = ("treat", "wait")
STRENGTHS = {"weak": 0.5, "medium": 1.0, "strong": 2.0}
"""How much the log-odds of treatment move for one standard deviation of what drives them."""

SHAPES: dict[str, Callable[[Floats], Floats]] = {
    "linear": lambda x: (x[:, 0] + x[:, 1]) / np.sqrt(2),
    "slope": lambda x: x[:, 0],
    "product": lambda x: x[:, 0] * x[:, 1],
    "xor": lambda x: np.sign(x[:, 0]) * np.sign(x[:, 1]),
    "u": lambda x: (x[:, 0] ** 2 - 1) / np.sqrt(2),
    "wave": lambda x: 1.4 * np.sin(2.6 * x[:, 0]),
    "band": lambda x: np.where(np.abs(x[:, 0] - 0.3) < 0.7, 1.15, -0.85),
    "triple": lambda x: np.sign(x[:, 0] * x[:, 1] * x[:, 2]),
    "four": lambda x: np.sign(np.prod(x[:, :4], axis=1)),
    "checks": lambda x: np.sign(np.sin(2.2 * x[:, 0]) * np.sin(2.2 * x[:, 1])),
}
"""What drives both treatment and outcome, about 0 on average and 1 in standard deviation."""


def moving(rng: np.random.Generator, n: int, steps: int, k: int) -> Floats:
    """Standard normal causes that move: (n, steps, k), x' = .8 x + .6 e."""
    X = rng.normal(size=(n, steps, k))
    for t in range(1, steps):
        X[:, t] = 0.8 * X[:, t - 1] + 0.6 * X[:, t]
    return X


def two(p: Floats) -> Floats:
    """(n, 2) of the probability of the first of two actions."""
    return np.stack((p, 1 - p), axis=1)


def alike(pay: Floats, actions: int = 2) -> Floats:
    """(n, A): the same reward whatever is done."""
    return np.repeat(pay[:, None], actions, axis=1)


def named(d: int) -> tuple[str, ...]:
    """The names of d features."""
    return tuple("abcdefgh"[:d])


def null(
    shape: str = "linear",
    strength: float | str = "medium",
    *,
    steps: int = 1,
    features: int = 4,
    arms: int = 2,
) -> World:
    """A treatment that does nothing, given by features that also tell the outcome.

    log odds of treatment = strength · f(x) - .2; reward = 1.2 f(x) + .4 c + noise, whatever is
    done. All that drives treatment is recorded, so every claim of an effect is false. With three
    arms the third is given by -f.

    Args:
        shape: f, one of `SHAPES`. Default "linear".
        strength: A number, or "weak" (.5), "medium" (1) or "strong" (2). Default "medium".
        steps: Steps of an episode, at least 1. Default 1.
        features: Recorded features, 3 to 8. Default 4.
        arms: Actions, 2 or 3. Default 2.

    Returns:
        The world; `gain` is 0 for every policy.

    Raises:
        ParameterError: If an argument is outside its range.

    Example:
        >>> from dprl.envs.hard import null
        >>> null("xor", "strong", steps=4).sample(300, seed=0)
        Log: 300 episodes · 1,200 steps · 4 features · 2 actions
    """
    check_choice("shape", shape, tuple(SHAPES))
    f, s = SHAPES[shape], STRENGTHS[strength] if isinstance(strength, str) else float(strength)
    check_number("strength", s, "[0, inf)")
    check_whole("steps", steps, 1)
    check_whole("features", features, 3, 8)
    check_whole("arms", arms, 2, 3)

    def practice(x: Floats, t: int, m: int) -> Floats:
        if arms == 2:
            return two(expit(s * f(x) - 0.2))
        odds = np.exp(np.stack((s * f(x), -s * f(x), np.full(len(x), 0.3)), axis=1))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    return World(
        name=f"null, {shape}, {strength}",
        actions=TWO if arms == 2 else ("more", "other", "wait"),
        draw=lambda rng, n: moving(rng, n, steps, features),
        practice=practice,
        pay=lambda x, t, m: alike(1.2 * f(x) + 0.4 * x[:, 2], arms),
        show=lambda x, t, m: x,
        feature_names=named(features),
    )


WARDS = ("east", "north", "south", "west")
STAGES = ("I", "II", "III")


def null_categories(strength: float | str = "medium", *, steps: int = 1) -> World:
    """A treatment that does nothing, given by an exclusive or of two categories.

    In the wards east and south stage II is treated most, in the others all stages but II; the
    outcome goes with the same. Two numbers beside them, of which one tells the outcome.

    Args:
        strength: As of `null`. Default "medium".
        steps: Steps of an episode; ward and stage stay. Default 1.

    Returns:
        The world; `gain` is 0 for every policy.

    Example:
        >>> from dprl.envs.hard import null_categories
        >>> null_categories().sample(5, seed=0).levels[0]
        ('east', 'north', 'south', 'west')
    """
    s = STRENGTHS[strength] if isinstance(strength, str) else float(strength)

    def draw(rng: np.random.Generator, n: int) -> Floats:
        X = moving(rng, n, steps, 4)
        X[:, :, 0] = rng.integers(4, size=(n, 1))
        X[:, :, 1] = rng.choice(3, p=(0.3, 0.4, 0.3), size=(n, 1))
        return X

    def f(x: Floats) -> Floats:
        return np.where((x[:, 0] % 2 == 0) == (x[:, 1] == 1), 1.0, -1.0)

    return World(
        name=f"null, categories, {strength}",
        actions=TWO,
        draw=draw,
        practice=lambda x, t, m: two(expit(s * f(x))),
        pay=lambda x, t, m: alike(f(x) + 0.5 * x[:, 2]),
        show=lambda x, t, m: x,
        feature_names=("ward", "stage", "age", "weight"),
        levels=(WARDS, STAGES, None, None),
    )


def surrogate(*, steps: int = 4) -> World:
    """A treatment that moves a recorded marker of the outcome, and not the outcome.

    The marker is .8 of what tells the rewards plus noise, and 1 higher after a treatment. A model
    of values sees the marker improve and expects what never comes.

    Args:
        steps: Steps of an episode, at least 2. Default 4.

    Returns:
        The world; `gain` is 0 for every policy.

    Example:
        >>> from dprl.envs.hard import surrogate
        >>> surrogate().sample(5, seed=0).feature_names
        ('marker', 'age')
    """
    check_whole("steps", steps, 2)
    return World(
        name="null, surrogate",
        actions=TWO,
        draw=lambda rng, n: moving(rng, n, steps, 3),
        practice=lambda x, t, m: two(expit(0.8 * x[:, 1] - 0.3)),
        pay=lambda x, t, m: alike(x[:, 0] + 0.3 * x[:, 1]),
        show=lambda x, t, m: np.stack((0.8 * x[:, 0] + 0.5 * x[:, 2] + m, x[:, 1]), axis=1),
        feature_names=("marker", "age"),
        remember=np.array([[1, 0], [1, 0]]),
    )


def contraindication(
    *, above: float = 1.9, loss: float = 8.0, chance: float = 0.005, helps: float = 0.6,
    slope: float = 0.0,
) -> World:  # fmt: skip
    """A treatment that helps most and ruins those who are hardly ever given it.

    Where a + b + c > `above` (14 % of patients with the default) people treat with probability
    `chance`, elsewhere with .5 or as `slope` says. Treatment brings `helps`, and costs `loss` in
    that group.

    Args:
        above: The threshold. Default 1.9.
        loss: What treatment costs there, at least 0. Default 8.
        chance: The probability of treatment there. Default .005.
        helps: What it brings elsewhere. Default .6.
        slope: By how much the log odds of treatment elsewhere go with d. Default 0.

    Returns:
        The world: treating everybody is harmful, and the log hardly shows it.

    Example:
        >>> from dprl.envs.hard import contraindication
        >>> truth = contraindication().effect(lambda x: x[:, 0] < 9, "treat")
        >>> -0.7 < truth.value < -0.45
        True
    """

    def ruined(x: Floats) -> Any:
        return x[:, 0] + x[:, 1] + x[:, 2] > above

    def pay(x: Floats, t: int, m: int) -> Floats:
        usual = 0.3 * x[:, 3]
        return np.stack((usual + np.where(ruined(x), -loss, helps), usual), axis=1)

    return World(
        name="contraindication",
        actions=TWO,
        draw=lambda rng, n: moving(rng, n, 1, 4),
        practice=lambda x, t, m: two(np.where(ruined(x), chance, expit(slope * x[:, 3]))),
        pay=pay,
        show=lambda x, t, m: x,
        feature_names=named(4),
    )


def dose_features(
    *, steps: int = 4, chance: float = 0.28, third: float = -3.4, shown: bool = False
) -> World:
    """Every dose brings 1, the third one `third`: each dose is worth giving, and all together not.

    Args:
        steps: Steps of an episode, at least 3. Default 4.
        chance: The probability of a dose. Default .28.
        third: What the third dose brings. Default -3.4.
        shown: Whether the doses so far are recorded. Default False.

    Returns:
        The world.

    Example:
        >>> from dprl.envs.hard import dose_features
        >>> world = dose_features()
        >>> round(world.effect(lambda x: x[:, 0] < 9, "dose").value, 3)
        0.255
    """
    check_whole("steps", steps, 3)

    def pay(x: Floats, t: int, m: int) -> Floats:
        given = third if m == 2 else 1.0
        return np.stack((0.3 * x[:, 0] + given, 0.3 * x[:, 0]), axis=1)

    def show(x: Floats, t: int, m: int) -> Floats:
        return np.column_stack((x, np.full(len(x), float(m)))) if shown else x

    memory = np.stack((np.minimum(np.arange(4) + 1, 3), np.arange(4)), axis=1)
    return World(
        name="doses" + ", recorded" * shown,
        actions=("dose", "wait"),
        draw=lambda rng, n: moving(rng, n, steps, 3),
        practice=lambda x, t, m: two(np.full(len(x), chance)),
        pay=pay,
        show=show,
        feature_names=(*named(3), *("doses",) * shown),
        remember=memory,
        breaks=() if shown else ("features tell the future",),
    )


def late(*, steps: int = 4, now: float = 0.5, later: float = -1.1, last: bool = True) -> World:
    """A treatment with an effect at once and another one later, which no feature tells.

    Args:
        steps: Steps of an episode, at least 2. Default 4.
        now: What a treatment brings at once. Default .5.
        later: What each brings later. Default -1.1: all together they harm.
        last: Whether that comes at the last step, or at the next one. Default True.

    Returns:
        The world; at the last step treatment brings `now` alone.

    Example:
        >>> from dprl.envs.hard import late
        >>> round(late().effect(lambda x: x[:, 0] < 9, "treat").value, 4)
        -0.325
    """
    check_whole("steps", steps, 2)

    def pay(x: Floats, t: int, m: int) -> Floats:
        due = later * m if not last or t == steps - 1 else 0.0
        return np.stack((0.4 * x[:, 0] + now + due, 0.4 * x[:, 0] + due), axis=1)

    before = np.arange(steps + 1)
    memory = np.stack((np.minimum(before + 1, steps), before), axis=1)
    return World(
        name=f"hidden effect, {'late' if last else 'early'}, {now + later:+.1f}",
        actions=TWO,
        draw=lambda rng, n: moving(rng, n, steps, 3),
        practice=lambda x, t, m: two(expit(0.7 * x[:, 0] - 0.5)),
        pay=pay,
        show=lambda x, t, m: x,
        feature_names=named(3),
        remember=memory if last else np.array([[1, 0], [1, 0]]),
        breaks=("features tell the future",),
    )


def drift(*, recorded: bool = True, outcome: float = 1.2, effect: float = 0.0) -> World:
    """Practice moves with the calendar (treatment from 15 to 85 %), and so may the outcome.

    Args:
        recorded: Whether the calendar is among the features. Default True.
        outcome: How much the outcome improves over the calendar, whatever is done. Default 1.2.
        effect: What treatment brings. Default 0.

    Returns:
        The world. Where the calendar is not recorded and the outcome moves with it, it is a hidden
        cause.

    Example:
        >>> from dprl.envs.hard import drift
        >>> drift(recorded=False).breaks
        ('hidden cause',)
    """

    def draw(rng: np.random.Generator, n: int) -> Floats:
        X = moving(rng, n, 1, 4)
        X[:, :, 0] = (np.arange(n)[:, None] + 0.5) / n
        return X

    def pay(x: Floats, t: int, m: int) -> Floats:
        usual = outcome * x[:, 0] + 0.5 * x[:, 1]
        return np.stack((usual + effect, usual), axis=1)

    return World(
        name="drift" + (", not recorded" if not recorded else "") + ", effect" * bool(effect),
        actions=TWO,
        draw=draw,
        practice=lambda x, t, m: two(expit(3.5 * (x[:, 0] - 0.5) + 0.3 * x[:, 1])),
        pay=pay,
        show=lambda x, t, m: x if recorded else x[:, 1:],
        feature_names=("calendar", *named(3)) if recorded else named(3),
        breaks=() if recorded or not outcome else ("hidden cause",),
    )


def hidden_cause(gamma: float = 3.0, *, effect: float = 0.0, outcome: float = 1.0) -> World:
    """An unrecorded cause u (half of the patients) moves the odds of treatment and the outcome.

    Args:
        gamma: Γ, the odds ratio of treatment between u = 1 and u = 0, at least 1. Default 3.
        effect: What treatment brings. Default 0.
        outcome: How much better the outcome is with u = 1. Default 1.

    Returns:
        The world; it breaks "hidden cause", by exactly Γ.

    Example:
        >>> from dprl.envs.hard import hidden_cause
        >>> hidden_cause(2.0).name
        'hidden cause, 2'
    """
    check_number("gamma", gamma, "[1, inf)")

    def draw(rng: np.random.Generator, n: int) -> Floats:
        X = moving(rng, n, 1, 4)
        X[:, :, 3] = rng.random((n, 1)) < 0.5
        return X

    def pay(x: Floats, t: int, m: int) -> Floats:
        usual = 0.5 * x[:, 0] + outcome * x[:, 3]
        return np.stack((usual + effect, usual), axis=1)

    return World(
        name=f"hidden cause, {gamma:g}",
        actions=TWO,
        draw=draw,
        practice=lambda x, t, m: two(expit(0.4 * x[:, 0] + np.log(gamma) * (x[:, 3] - 0.5))),
        pay=pay,
        show=lambda x, t, m: x[:, :3],
        feature_names=named(3),
        breaks=("hidden cause",) if gamma > 1 else (),
    )


def heavy_tails(*, skewed: bool = False, effect: float = 0.0) -> World:
    """Outcomes with heavy tails (Student's t with 2.2 degrees, or a lognormal less its mean).

    Args:
        skewed: Whether the tail is on one side: rare large losses. Default False.
        effect: What treatment brings. Default 0.

    Returns:
        The world; treatment goes with a recorded feature, which tells the outcome.

    Example:
        >>> from dprl.envs.hard import heavy_tails
        >>> heavy_tails().sample(50, seed=0).n_steps
        50
    """

    def reward(rng: np.random.Generator, mean: Floats) -> Floats:
        if skewed:
            tail = np.exp(1.4 * rng.normal(size=mean.shape)) - np.exp(0.98)
            return np.asarray(mean - 0.5 * tail)
        return np.asarray(mean + 0.6 * rng.standard_t(2.2, size=mean.shape))

    def pay(x: Floats, t: int, m: int) -> Floats:
        return np.stack((0.7 * x[:, 0] + effect, 0.7 * x[:, 0]), axis=1)

    return World(
        name="heavy tails" + ", one side" * skewed + ", effect" * bool(effect),
        actions=TWO,
        draw=lambda rng, n: moving(rng, n, 1, 3),
        practice=lambda x, t, m: two(expit(0.9 * x[:, 0])),
        pay=pay,
        show=lambda x, t, m: x,
        feature_names=named(3),
        reward=reward,
    )


def catastrophe_features(*, one_in: int = 300, loss: float = 60.0, helps: float = 0.15) -> World:
    """A treatment that helps a little and ruins one patient in `one_in`, whom nothing tells.

    Args:
        one_in: How rare they are, at least 2. Default 300.
        loss: What treatment costs them. Default 60.
        helps: What it brings all others. Default .15.

    Returns:
        The world; it breaks "catastrophes were seen" where the log is small.

    Example:
        >>> from dprl.envs.hard import catastrophe_features
        >>> round(catastrophe_features().effect(lambda x: x[:, 0] < 9, "treat").value, 2)
        -0.05
    """
    check_whole("one_in", one_in, 2)

    def causes(ruined: Callable[[np.random.Generator, int], Any]) -> Drawn:
        def draw(rng: np.random.Generator, n: int) -> Floats:
            X = moving(rng, n, 1, 4)
            X[:, 0, 3] = ruined(rng, n)
            return X

        return draw

    def pay(x: Floats, t: int, m: int) -> Floats:
        usual = 0.4 * x[:, 0]
        return np.stack((usual + helps - loss * x[:, 3], usual), axis=1)

    return World(
        name=f"catastrophe, 1 in {one_in}",
        actions=TWO,
        draw=causes(lambda rng, n: rng.random(n) < 1 / one_in),
        deck=causes(lambda rng, n: 1 / one_in),
        practice=lambda x, t, m: two(expit(0.3 * x[:, 0] - 0.4)),
        pay=pay,
        show=lambda x, t, m: x[:, :3],
        feature_names=named(3),
        reward=lambda rng, mean: mean + 0.5 * rng.normal(size=mean.shape),
        breaks=("catastrophes were seen",),
    )


def effect(kind: str = "linear", *, size: float = 0.8, strength: float | str = "weak") -> World:
    """A treatment with a true effect, so that power can be measured.

    linear: brings `size` times the feature a: good for half of the patients, bad for the others.
    interaction: `size` where a and b have the same sign, -`size` elsewhere. plain: `size` for
    everybody. Treatment is by lot with strength 0, else its log odds go with a and b.

    Args:
        kind: "linear", "interaction" or "plain". Default "linear".
        size: How large it is; the noise has standard deviation 1. Default .8.
        strength: As of `null`. Default "weak".

    Returns:
        The world. With strength 0 the log says that treatment was by lot.

    Example:
        >>> from dprl.envs.hard import effect
        >>> truth = effect("interaction").effect(lambda x: x[:, 0] * x[:, 1] > 0, "treat")
        >>> round(truth.value, 6), truth.error < 1e-9
        (0.8, True)
    """
    check_choice("kind", kind, ("linear", "interaction", "plain"))
    s = STRENGTHS[strength] if isinstance(strength, str) else float(strength)

    def brings(x: Floats) -> Floats:
        if kind == "linear":
            return size * x[:, 0]
        return size * (np.sign(x[:, 0] * x[:, 1]) if kind == "interaction" else np.ones(len(x)))

    def pay(x: Floats, t: int, m: int) -> Floats:
        usual = 0.5 * x[:, 1] + 0.3 * x[:, 2]
        return np.stack((usual + brings(x), usual), axis=1)

    return World(
        name=f"effect, {kind}" + ", by lot" * (s == 0),
        actions=TWO,
        draw=lambda rng, n: moving(rng, n, 1, 4),
        practice=lambda x, t, m: two(expit(s * (x[:, 0] + x[:, 1]) / np.sqrt(2))),
        pay=pay,
        show=lambda x, t, m: x,
        feature_names=named(4),
        recorded=s == 0,
    )
