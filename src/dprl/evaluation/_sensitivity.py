"""`dprl.sensitivity`: what is left of a policy's gain if an unrecorded cause moved treatment.

`dprl.evaluation._sensitivity_bounds` has the bounds, `dprl.evaluation._yardstick` what hiding a
recorded column would be, for comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut, check_draws, check_flag, check_level, check_number, is_number
from dprl._core.confounding import GAMMAS, MOST
from dprl._core.words import argument, option, say, worded
from dprl.errors import ParameterError
from dprl.evaluation._result import ENOUGH
from dprl.evaluation._sensitivity_bounds import Bounds, OneDecision, Several, resampled
from dprl.evaluation._sensitivity_log import one_decision, several_decisions
from dprl.evaluation._sensitivity_result import Sensitivity
from dprl.evaluation._yardstick import yardstick as hidden_columns
from dprl.evaluation.divergence import differs, practice
from dprl.evidence.behavior import Behavior, folds_of
from dprl.logs.log import Log
from dprl.logs.returns import returns
from dprl.logs.source import Source
from dprl.policies.held_out import HeldOut

__all__ = ["sensitivity"]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Progress = Callable[[str, float], None]

STRENGTHS = (1.0, 1.5, 2.0, 3.0)
VACUOUS = 0.9
"""Bounds that are, with sampling error, wider than this share of the range say next to nothing."""


def sensitivity(
    policy: Any,
    log: Log | Source,
    *,
    gamma: float | Sequence[float] = STRENGTHS,
    discount: float | None = None,
    behavior: Behavior | Any | None = None,
    cut: Cut | None = None,
    level: float = 0.95,
    draws: int = 1_000,
    seed: int = 0,
    clip: float = 0.01,
    value_range: tuple[float, float] | None = None,
    allow_seen: bool = False,
    yardstick: bool = True,
    progress: Progress | None = None,
) -> Sensitivity:
    """Bounds on the value of a policy if an unrecorded cause moved who got what.

    The marginal sensitivity model: the state being equal, an unrecorded cause moves the odds of an
    action by a factor between 1/Γ and Γ. At Γ = 1 there is none, and the bounds are one estimate:
    WIS of `dprl.evaluate` where an episode has several decisions at which the policy differs from
    practice; else the mean of those who took the suggestion, weighted to stand for all. Neither
    uses a model of values, so both may differ from DR, which reports show first.

    Args:
        policy: Any policy of dprl, or a `dprl.CallablePolicy` around a model that predicts actions.
        log: A log that the policy was not made from, in memory or in parts.
        gamma: The values of Γ, each from 1 to 20. Default 1, 1.5, 2 and 3. (The discount is called
            `discount` here.)
        discount: Discount per step, in (0, 1]. Default None: the policy's own.
        behavior: The probability of each action, as for `dprl.evaluate`. Default None: that of the
            action taken as the log records it (`propensity`), and estimated where it does not.
        cut: How cut episodes are treated: "drop-unrelated", "terminal" or "bootstrap". Default
            None: as when the policy was learned.
        level: Coverage of the intervals, in (0, 1). Default 0.95.
        draws: Number of bootstrap draws, a whole number from 1. Default 1,000.
        seed: Seed of the bootstrap, the folds and the models, a whole number from 0. Default 0.
        clip: An estimated probability below this is raised to it, in [0, 1]. Default 0.01.
        value_range: (lowest, highest) return there can be, for what nobody did and for telling
            whether bounds are vacuous. Default None: the range in the policy's certificate, else
            that of the log's returns.
        allow_seen: Whether to go on, with a warning, even on a log that the policy was made or
            chosen from. Default False: such a log is refused.
        yardstick: Whether to measure what hiding each recorded column would be. Default True.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The bounds at each Γ, Γ* of the gain, and the yardstick.

    Raises:
        ParameterError: An argument is outside its range, or no discount is known.
        PolicyError: The policy does not fit the log, or was made or chosen from it.
        LogError: The log has fewer than two groups.

    Example:
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
        >>> result = sensitivity(policy, test, gamma=[1, 2], draws=100)
        >>> [row["gamma"] for row in result.rows]
        [1.0, 2.0]
        >>> result.rows[1]["difference_min"] < result.rows[0]["difference_min"]
        True
    """
    strengths = _strengths(gamma)
    check_level(level)
    draws = check_draws(draws)
    check_number("clip", clip, "[0, 1]")
    check_flag("yardstick", yardstick)
    held = HeldOut.meet(
        policy, log, gamma=discount, cut=cut, behavior=behavior, seed=seed, allow_seen=allow_seen,
        claim="a bound", discount="discount",
    )  # fmt: skip
    log, discount, cut, seed = held.log, held.gamma, held.cut, held.seed
    _refuse_weights(cut, log)
    declared = held.declared_range(value_range)
    tell = progress or (lambda stage, share: None)
    folds_of(log, 2, seed)  # refuses a log of one group

    treated = held.treated
    tell("what the policy says", 0.0)
    decisions = held.acts
    tell("behaviour", 0.0)
    model = held.behavior
    table, row = practice(model, log)
    apart = differs(decisions, table, row[held.rows])
    counts = np.add.reduceat(apart.astype(np.int64), treated.starts[:-1])
    chances = held.chances(clip)
    b, recorded = chances.raised, chances.recorded
    G = returns(treated, discount)
    ends = declared or (float(G.min()), float(G.max()))
    most = int(counts.max())
    if most <= 1:
        bounds: OneDecision | Several = one_decision(
            treated, decisions, apart, G, discount, b, ends, seed,
            by_state=model.estimated and not recorded[apart].any(),
        )  # fmt: skip
    else:
        bounds = several_decisions(treated, decisions, apart, G, b)
    usual = float(G[treated.starts[:-1]].mean())
    result = _rows(bounds, strengths, treated, G, level, draws, seed, ends, tell)
    star, point = _breakdown(bounds, level, draws, seed, tell) if apart.any() else (None, None)
    measured: list[dict[str, Any]] = []
    if yardstick and apart.any():
        at = np.flatnonzero(apart)
        suggested = decisions.suggested[decisions.row[at]]
        measured = hidden_columns(treated, at, suggested, seed, tell)
    facts = {
        "episodes": treated.n_episodes,
        "groups": len(treated.groups),
        "differs": float(apart.mean()),
        "reached": int((counts > 0).sum()),
        "decisions": most,
        "estimator": "means" if isinstance(bounds, OneDecision) else "WIS",
        "sharp": most <= 1
        and treated.state is not None
        and model.estimated
        and not recorded[apart].any(),
        "untaken": bounds.untaken if isinstance(bounds, OneDecision) else 0.0,
        "ess": bounds.sample_size if apart.any() else None,
        "behavior": "the record" if recorded.any() and recorded[apart].all() else model.how,
        "usual": usual,
        "lowest": ends[0],
        "highest": ends[1],
        "range": "declared" if declared else "log",
    }
    return Sensitivity(
        rows=tuple(result),
        gamma_star=star,
        gamma_point=point,
        yardstick=tuple(measured),
        facts=facts,
        warnings=tuple(dict.fromkeys([*held.warnings, *_warnings(facts)])),
        settings={
            "discount": discount, "level": float(level), "draws": draws, "seed": seed, "cut": cut,
            "clip": float(clip), "log": log.digest(),
        },
    )  # fmt: skip


# -- what goes in -----------------------------------------------------------------------------


def _strengths(gamma: Any) -> list[float]:
    given = [gamma] if is_number(gamma) else gamma
    try:
        numbers = list(given)
    except TypeError:
        numbers = []
    if not numbers or isinstance(given, str):
        raise ParameterError(
            worded(
                "{gamma} must be one or more numbers from 1 to 20; got {gamma2}.",
                gamma=argument("gamma"),
                gamma2=repr(gamma),
            )
        )
    for number in numbers:
        if not is_number(number) or not 1 <= number <= MOST:
            raise ParameterError(
                worded(
                    "{gamma} must be numbers from 1 to {most:g}; got {number}.",
                    gamma=argument("gamma"),
                    most=MOST,
                    number=repr(number),
                ),
                do="Here gamma is Γ, the strength of an unrecorded cause (1: none). The discount "
                "is called discount.",
            )
    return sorted({float(number) for number in numbers})


def _refuse_weights(cut: Cut | None, log: Log) -> None:
    """Refuse weights for cut episodes: bounds take none."""
    if cut == "ipcw" and len(log.cut_episodes):
        raise ParameterError(
            worded(
                "{cut_episodes:,} of {n_episodes:,} episodes were cut, and bounds take no weights "
                "for them ({cut}).",
                cut_episodes=len(log.cut_episodes),
                n_episodes=log.n_episodes,
                cut=option("cut", "ipcw"),
            ),
            f"episode {log.episodes[log.cut_episodes[0]]!r}",
            worded(
                "Follow every episode for a fixed time ({follow_up}), or say another {cut}.",
                follow_up=option("follow_up"),
                cut=option("cut"),
            ),
        )


# -- the bounds -------------------------------------------------------------------------------


def _rows(
    bounds: Bounds, strengths: Sequence[float], log: Log, G: Floats, level: float, draws: int,
    seed: int, ends: tuple[float, float], tell: Progress,
) -> list[dict[str, Any]]:  # fmt: skip
    """The bounds at each Γ, as estimated and with sampling error."""
    tail = (1 - level) / 2
    G = G[log.starts[:-1]]
    group = log.group.astype(np.int64)
    drawn_usual = _usual(G, group, bounds.n_groups, draws, seed)
    result = []
    for i, gamma in enumerate(strengths):
        tell("bootstrap", i / len(strengths))
        low, high = bounds.at(gamma, np.ones((1, bounds.n_groups)))[0]
        drawn = resampled(bounds, gamma, draws, seed)
        row: dict[str, Any] = {"gamma": gamma}
        for what, mean, off in (("difference", 0.0, 0.0), ("value", G.mean(), drawn_usual)):
            row[f"{what}_min"], row[f"{what}_max"] = float(low + mean), float(high + mean)
            row[f"{what}_low"] = _quantile(drawn[:, 0] + off, tail)
            row[f"{what}_high"] = _quantile(drawn[:, 1] + off, 1 - tail)
        width = row["difference_high"] - row["difference_low"]
        row["vacuous"] = bool(not width < VACUOUS * (ends[1] - ends[0]))
        result.append(row)
    return result


def _usual(G: Floats, group: Ints, n_groups: int, draws: int, seed: int) -> Floats:
    """float64 (draws,): mean returns of the same draws."""
    from dprl._core.bootstrap import counts

    total = np.bincount(group, weights=G, minlength=n_groups)
    number = np.bincount(group, minlength=n_groups)
    return np.concatenate([(c @ total) / (c @ number) for c in counts(n_groups, draws, seed)])


def _quantile(drawn: Floats, share: float) -> float:
    good = drawn[np.isfinite(drawn)]
    return float(np.quantile(good, share)) if len(good) == len(drawn) else float("nan")


def _breakdown(
    bounds: Bounds, level: float, draws: int, seed: int, tell: Progress
) -> tuple[float | None, float | None]:
    """Γ* of the gain with sampling error, and as estimated; None without a gain at Γ = 1."""
    whole = np.ones((1, bounds.n_groups))

    def last(gains: Callable[[float], float]) -> float | None:
        """The last of `GAMMAS` with a gain above 0, by halving."""
        if not gains(1.0) > 0:
            return None
        low, high = 0, len(GAMMAS)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if gains(float(GAMMAS[middle])) > 0 else (low, middle)
        return float(GAMMAS[low])

    tell("breakdown", 0.0)
    point = last(lambda gamma: float(bounds.at(gamma, whole)[0, 0]))
    if point is None:
        return None, None
    tail = (1 - level) / 2
    star = last(lambda gamma: _quantile(resampled(bounds, gamma, draws, seed)[:, 0], tail))
    return star, point


def _warnings(facts: dict[str, Any]) -> list[str]:
    result = []
    if facts["decisions"] > 1:
        result.append(
            f"an episode has up to {facts['decisions']:,} decisions at which the policy differs "
            "from practice: the factors of its decisions multiply, so the bounds are valid but "
            "wide, not sharp, and Γ is what each single decision may be moved by."
        )
    if facts["ess"] is not None and facts["ess"] < ENOUGH:
        result.append(
            say(
                "the effective number of those who did as the policy says is {ess:.1f}, below "
                "{enough}: the bounds rest on few, and intervals are too short.",
                ess=facts["ess"],
                enough=ENOUGH,
            )
        )
    if facts["untaken"] > 0:
        where = "declared" if facts["range"] == "declared" else "of this log's returns"
        result.append(
            f"for {100 * facts['untaken']:.1f} % of those who did otherwise nobody in the same "
            f"state took the suggestion: there the bounds are the ends of the range ({where})."
        )
    return result
