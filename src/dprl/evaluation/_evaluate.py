r"""Off-policy evaluation: is the policy better than what we do, and how sure are we?

Whatever the policy does not say is what the log did: at a deferred step the importance ratio is 1
by definition, not by estimate, so only decisions the policy speaks about cost any certainty. See
`dprl.evaluation._estimators` for the seven estimates, `dprl.evaluation._behavior` for π_b,
`dprl.evaluation._values` for Q̂.

The usual effective sample size counts trajectories the policy never touches, and they are many, so
it is given a second time over those that reach a step at which the policy differs from practice
(`dprl.evaluation._matters` says what that is), and a third time over those that reach a change.

The intervals are percentiles of a bootstrap over groups; the ratios and Q̂ are not estimated anew in
each draw. The page *What we found* says how often they cover the truth. DM has none: its error is
the model's, which resampling trajectories does not show (an interval from it alone held the truth
in 1 to 68 of 100 logs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_number
from dprl.certificate._histograms import check_range
from dprl.errors import ParameterError, PlanError, PolicyError
from dprl.evaluation._behavior import Behavior
from dprl.evaluation._cautions import wary_of
from dprl.evaluation._decisions import Spoken, spoken
from dprl.evaluation._estimators import BEHAVIOR, ESTIMATORS, Weighted, weigh
from dprl.evaluation._matters import differs, practice, reached, sample_size
from dprl.evaluation._result import Evaluation
from dprl.evaluation._values import evaluate_q
from dprl.evidence.tabular import check_gamma
from dprl.logs._censoring import check_cut, settle
from dprl.logs._overlap import refuse_seen
from dprl.logs.log import Cut, Log, check_log
from dprl.policies._familiar import check_familiar
from dprl.policies._protocol import as_policy

__all__ = ["evaluate"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Progress = Callable[[str, float], None]

MODEL = ("DM", "DR", "WDR")


def evaluate(
    policy: Any,
    log: Log,
    *,
    gamma: float | None = None,
    behavior: Behavior | Any | None = None,
    cut: Cut | None = None,
    level: float = 0.95,
    draws: int = 2_000,
    seed: int = 0,
    clip: float = 0.01,
    values: bool = True,
    allow_seen: bool = False,
    value_range: tuple[float, float] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """What a held-out log says a policy is worth, beside what was done in it.

    Args:
        policy: Any of dprl's, or `dprl.CallablePolicy` around what predicts.
        log: Decisions the policy has not been made from.
        gamma: Discount in (0, 1]; by default the policy's own.
        behavior: How likely each action was: a `dprl.Behavior` of this log, or numbers as in
            `Behavior.given`; by default estimated from the log.
        cut: What to do with cut episodes, as for learners; by default as the policy was learned.
        level: Of the intervals.
        draws: Of the bootstrap.
        seed: Of the bootstrap, the folds and the trees. Same seed, same numbers.
        clip: An estimated probability below this is raised to it; given ones stay as they are.
        values: Fit Q̂ and give the estimates that need it (DM, DR, WDR).
        value_range: (lowest, highest) return there can be; by default what the policy's certificate
            declares, else the returns in the log. An estimate outside of it is marked.
        allow_seen: Evaluate even on a log the policy was made or chosen from, with a warning.
        progress: Called with the stage's name and the share of it that is done.
    """
    check_log(log)
    gamma, cut = _own(policy, gamma, cut)
    check_number("level", level, "(0, 1), both ends excluded", lambda v: 0 < v < 1)
    check_number("draws", draws, "the whole numbers from 1", lambda v: v >= 1 and v == int(v))
    check_number("seed", seed, "the whole numbers from 0", lambda v: v >= 0 and v == int(v))
    check_number("clip", clip, "[0, 1]", lambda v: 0 <= v <= 1)
    declared = _declared(policy, gamma, value_range)
    asked = as_policy(policy)
    said_before = (*refuse_seen(asked, log, allow_seen), *check_familiar(asked, log))
    tell = progress or (lambda stage, share: None)

    # The rows that are left keep their old numbers in `time`.
    near = asked.bootstrap_neighbors()
    settled = settle(
        replace(log, time=np.arange(log.n_steps), offset=None), gamma, cut, near
    ).gathered()
    tell("what the policy says", 0.0)
    said = spoken(asked, settled)
    tell("behaviour", 0.0)
    known = _behavior(behavior, log, seed)
    rows = np.asarray(settled.time, np.int64)

    chance = known.took()[rows]
    speaks = said.speaks[said.row]
    named = said.pi[said.row, settled.action]
    floor = clip if known.estimated else 0.0
    ratio = np.where(speaks, named / np.maximum(chance, max(floor, np.finfo(float).tiny)), 1.0)
    needed = speaks & (named > 0)
    model, trouble = None, ""
    if values and speaks.any():
        try:
            model = evaluate_q(settled, said, gamma, seed=seed, progress=tell)
        except PlanError as error:
            trouble = error.what
    zero = np.zeros(settled.n_steps)
    Q, V = (zero, zero) if model is None else (model.Q, model.V)
    weighted = weigh(settled.starts, settled.group, settled.reward, gamma, ratio, speaks, Q, V)

    usual = known.table.argmax(axis=1)[known.row][rows]
    changed = said.changes(usual)
    table, practised = practice(known, log)
    apart = differs(said, table, practised[rows])
    facts = {
        "episodes": settled.n_episodes,
        "groups": len(settled.groups),
        "steps": settled.n_steps,
        "unit": "episodes" if len(settled.groups) == settled.n_episodes else "groups",
        "spoken": float(speaks.mean()),
        "changed": float(changed.mean()),
        "confirmed": float((speaks & ~changed).mean()),
        "differs": float(apart.mean()),
        "mixed": bool(((said.pi > 0) & (said.pi < 1)).any()),
        **_where_it_matters(weighted, settled, apart, changed, speaks & (named == 0)),
        "largest_weight": float(weighted.final.max()),
        "mean_weight": float(weighted.final.mean()),
        "clipped": float((chance[needed] < floor).mean()) if needed.any() else 0.0,
        "behavior": known.how,
        "misplaced": known.misplaced,
        "log_loss": known.log_loss,
        **_suggested(known, said, rows, settled, speaks),
        "not_offered": _not_offered(said, settled, speaks),
        **_range(weighted, declared),
        "guessed": float(model.guessed[speaks].mean()) if model is not None else None,
    }
    rows_out, usual_practice, undefined = _intervals(
        weighted,
        level,
        int(draws),
        int(seed),
        model is not None or not speaks.any(),
        bool(speaks.any()),
        tell,
    )
    wary = [*said_before, *wary_of(facts, asked, log, undefined, trouble, draws, cut)]
    found = Evaluation(
        rows=rows_out,
        behavior=usual_practice,
        facts=facts,
        warnings=(),
        settings={
            "gamma": gamma, "level": float(level), "draws": int(draws), "seed": int(seed),
            "cut": cut, "clip": float(clip), "log": log.digest(), "policy": _digest(policy),
        },
    )  # fmt: skip
    return replace(found, warnings=tuple(dict.fromkeys((*wary, *found.impossible()))))


# -- what goes in -----------------------------------------------------------------------------


def _own(policy: Any, gamma: float | None, cut: Cut | None) -> tuple[float, Cut | None]:
    """gamma and cut as asked, else the policy's own."""
    settings: Mapping[str, Any] = getattr(policy, "parameters", {})
    if gamma is None:
        gamma = settings.get("gamma")
        if gamma is None:
            raise ParameterError(
                "this policy knows no gamma.", do="Say how to discount: gamma=0.99, or 1."
            )
    if cut is None:
        cut = settings.get("cut")
    check_cut(cut)
    return check_gamma(gamma), cut


def _declared(policy: Any, gamma: float, given: Any) -> tuple[float, float] | None:
    """The range of returns as declared: now, or when the policy was certified."""
    if given is not None:
        return check_range(given)
    proved = getattr(policy, "certificate", None)
    return None if proved is None or proved.gamma != gamma else proved.value_range


def _range(weighted: Weighted, declared: tuple[float, float] | None) -> dict[str, Any]:
    """Where returns can lie: as declared, else where they do in the log."""
    G = weighted.single[:, BEHAVIOR]
    low, high = declared or (float(G.min()), float(G.max()))
    return {"lowest": low, "highest": high, "range": "declared" if declared else "log"}


def _behavior(given: Any, log: Log, seed: int) -> Behavior:
    if given is None:
        return Behavior.fit(log, seed=seed)
    if not isinstance(given, Behavior):
        return Behavior.given(log, given)
    if given.log != log.digest():
        raise ParameterError(
            "this Behavior is of another log.", do="Use Behavior.fit(log) of the log evaluated on."
        )
    return given


def _digest(policy: Any) -> str | None:
    try:
        return str(policy.digest())
    except (AttributeError, PolicyError):  # it lives in memory only
        return None


# -- what comes out ---------------------------------------------------------------------------


def _where_it_matters(
    weighted: Weighted, log: Log, apart: Bools, changed: Bools, never: Bools
) -> dict[str, Any]:
    """Who reaches a step at which the policy differs, or a change; who follows; sample sizes."""
    here, here_too, ess = reached(weighted, log, apart, never)
    change, change_too, ess_change = reached(weighted, log, changed, never)
    return {
        "reached": here,
        "followers": here_too,
        "reached_change": change,
        "followers_change": change_too,
        "ess": sample_size(weighted, log, np.ones(log.n_episodes, bool)),
        "ess_differs": ess,
        "ess_change": ess_change,
    }


def _not_offered(said: Spoken, log: Log, speaks: Bools) -> float:
    """Share of the steps at which the policy speaks whose menu does not hold its suggestion."""
    if log.available is None or log.menus is None or not speaks.any():
        return 0.0
    suggested = said.suggested[said.row[speaks]]
    known = suggested < log.n_actions
    offered = log.menus[log.available[speaks], np.where(known, suggested, 0)]
    return float((~(known & offered)).mean())


def _suggested(
    known: Behavior, said: Spoken, rows: NDArray[np.int64], log: Log, speaks: Bools
) -> dict[str, float | None]:
    """How often what is suggested was expected of the behaviour, and was done."""
    at = np.flatnonzero(speaks)
    if not len(at):
        return {"suggested_expected": None, "suggested_done": None}
    suggested = said.suggested[said.row[at]]
    theirs = suggested < log.n_actions
    chance = known.table[known.row[rows[at]], np.where(theirs, suggested, 0)] * theirs
    return {
        "suggested_expected": float(chance.mean()),
        "suggested_done": float((suggested == log.action[at]).mean()),
    }


def _intervals(
    weighted: Weighted,
    level: float,
    draws: int,
    seed: int,
    model: bool,
    speaks: bool,
    tell: Progress,
) -> tuple[dict[str, dict[str, float]], dict[str, float], float]:
    """The estimates with their intervals, the behaviour's, and the share of undefined draws."""
    point = weighted.estimates()[0]
    parts, done = [], 0
    tell("bootstrap", 0.0)
    for part in weighted.draws(draws, seed):
        parts.append(part)
        done += len(part)
        tell("bootstrap", done / draws)
    drawn = np.concatenate(parts)
    tail = (1 - level) / 2
    undefined = float(np.isnan(drawn).any(axis=1).mean())

    def ends(values: Floats) -> tuple[float, float]:
        good = values[~np.isnan(values)]
        if len(values) - len(good) > tail * len(values):  # an end may be anywhere
            return np.nan, np.nan
        low, high = np.quantile(good, [tail, 1 - tail])
        return float(low), float(high)

    rows = {}
    for k, name in enumerate(ESTIMATORS):
        row: dict[str, float] = {}
        for what, off in (("difference", 1.0), ("value", 0.0)):
            exists = model or name not in MODEL
            numbers = (np.nan, np.nan, np.nan)
            if exists:
                bare = name == "DM" and speaks
                found = (np.nan, np.nan) if bare else ends(drawn[:, k] - off * drawn[:, BEHAVIOR])
                numbers = (float(point[k] - off * point[BEHAVIOR]), *found)
            row |= dict(zip((what, f"{what}_low", f"{what}_high"), numbers, strict=True))
        rows[name] = row
    low, high = ends(drawn[:, BEHAVIOR])
    return rows, {"value": float(point[BEHAVIOR]), "low": low, "high": high}, undefined
