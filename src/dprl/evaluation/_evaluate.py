r"""Off-policy evaluation: is the policy better than what we do, and how sure are we?

Where the policy defers, it does what the log did: the importance ratio is 1 by definition, not by
estimate, so only the steps at which the policy speaks add uncertainty. See
`dprl.evaluation._estimators` for the seven estimates, `dprl.evaluation._behavior` for π_b, and
`dprl.evaluation._values` for Q̂.

The usual effective sample size counts many trajectories that the policy does not change. So it is
given a second time for those that reach a step at which the policy differs from practice
(`dprl.evaluation._matters` says what that means), and a third time for those that reach a change.

The intervals are percentiles of a bootstrap over groups; the ratios and Q̂ are not estimated again
in each draw. The page *What we found* says how often the intervals cover the truth. DM has no
interval: its error is the model's, which resampling trajectories does not show (an interval from
resampling alone held the truth in 1 to 68 of 100 logs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import (
    Cut,
    check_cut,
    check_draws,
    check_gamma,
    check_level,
    check_number,
    check_range,
    check_seed,
)
from dprl._core.words import option, worded
from dprl.errors import ParameterError, PlanError, PolicyError
from dprl.evaluation._behavior import Behavior
from dprl.evaluation._cautions import no_spread, wary_of
from dprl.evaluation._decisions import spoken
from dprl.evaluation._draws import estimated
from dprl.evaluation._estimators import BEHAVIOR, Weighted, importance_weights
from dprl.evaluation._matters import (
    differs,
    only_return,
    practice,
    reached,
    sample_size,
)
from dprl.evaluation._result import BLIND, Evaluation
from dprl.evaluation._subgroups import check_by, subgroups
from dprl.evaluation._suggestions import Rows, compared, not_offered, suggested
from dprl.evaluation._support import unsupported_chance
from dprl.evaluation._values import evaluate_q
from dprl.logs._censoring import check_claim, settle
from dprl.logs._encoding import encoded_like
from dprl.logs._overlap import refuse_seen
from dprl.logs.log import Log, check_log
from dprl.policies._familiar import check_familiar
from dprl.policies._protocol import as_policy

__all__ = ["evaluate", "evaluated"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Progress = Callable[[str, float], None]


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
    by: str | Sequence[str] | None = None,
    cluster: Any = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Estimate the value of a policy from a held-out log, beside the value of usual practice.

    Args:
        policy: Any policy of dprl, or a `dprl.CallablePolicy` around a model that predicts actions.
        log: A log that the policy was not made from.
        gamma: Discount per step, in (0, 1]. Default None: the policy's own.
        behavior: The probability of each action: a `dprl.Behavior` of this log, or numbers as for
            `Behavior.given`. Default None: that of the action taken as the log records it
            (`propensity`), and estimated from the log where it does not.
        cut: How cut episodes are treated, as for learners: "drop-unrelated", "terminal",
            "bootstrap" or "ipcw". Default None: as when the policy was learned.
        level: Coverage of the intervals, in (0, 1). Default 0.95.
        draws: Number of bootstrap draws, a whole number from 1. Default 2,000.
        seed: Seed of the bootstrap, the folds and the models, a whole number from 0. The same seed
            gives the same numbers. Default 0.
        clip: An estimated probability below this is raised to it; known ones stay as they are. In
            [0, 1]. Default 0.01.
        values: Whether to fit Q̂, which the estimates DM, DR and WDR need. Default True.
        allow_seen: Whether to evaluate, with a warning, even on a log that the policy was made or
            chosen from. Default False: such a log is refused.
        value_range: (lowest, highest) return there can be; an estimate outside of it is marked.
            Default None: the range in the policy's certificate, else that of the log's returns.
        by: Columns that make subgroups, in each of which the difference is estimated: columns in
            `log.also`, features, or the column of state labels; by their value at the first step
            of an episode, numbers in bands at their quartiles. Default None: none.
        cluster: Where the bootstrap draws are made: a `distributed.Client`, the address of a Dask
            scheduler, "local" or "local:2"; the numbers are the same. Default None: here.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The estimates with their intervals, facts and warnings.

    Raises:
        ParameterError: An argument is outside its range, no gamma is known, or the log has no
            column of `by`.
        PolicyError: The policy does not fit the log, or was made or chosen from it.
        LogError: The log has fewer than two groups.
        ClusterError: The cluster cannot do the work.

    Example:
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
        >>> evaluation = evaluate(policy, test, draws=200)
        >>> round(evaluation["DR"]["difference"], 3)
        0.108
        >>> evaluation["DR"]["difference_low"] > 0
        True
    """
    return evaluated(
        policy, log, gamma=gamma, behavior=behavior, cut=cut, level=level, draws=draws, seed=seed,
        clip=clip, values=values, allow_seen=allow_seen, value_range=value_range, by=by,
        cluster=cluster, progress=progress,
    )[0]  # fmt: skip


def evaluated(
    policy: Any,
    log: Log,
    *,
    gamma: float | None,
    behavior: Behavior | Any | None,
    cut: Cut | None,
    level: float,
    draws: int,
    seed: int,
    clip: float,
    values: bool,
    allow_seen: bool,
    value_range: tuple[float, float] | None = None,
    by: str | Sequence[str] | None = None,
    cluster: Any = None,
    progress: Progress | None = None,
) -> tuple[Evaluation, Floats]:
    """As `evaluate`; and the bootstrap draws (draws, 8) behind the intervals.

    Their columns are the estimates and the mean return of usual practice. Of one log and one seed,
    a row is the same draw of groups for every policy.
    """
    check_log(log)
    raw, log = log, encoded_like(log, getattr(policy, "provenance", {}).get("columns", {}))
    gamma, cut = _own(policy, gamma, cut)
    check_claim(cut, log, "an interval")
    check_level(level)
    draws, seed = check_draws(draws), check_seed(seed)
    check_number("clip", clip, "[0, 1]")
    declared = _declared(policy, gamma, value_range)
    columns = check_by(by, log)
    asked = as_policy(policy)
    first_warnings = (*refuse_seen(asked, log, allow_seen), *check_familiar(asked, log))
    tell = progress or (lambda stage, share: None)

    # `time` keeps the original row numbers, for finding the rows that are left.
    near = asked.bootstrap_neighbors()
    settled = settle(
        replace(log, time=np.arange(log.n_steps), offset=None), gamma, cut, near, reads="rewards"
    ).gathered()
    tell("what the policy says", 0.0)
    decisions = spoken(asked, settled)
    tell("behaviour", 0.0)
    behavior_model = _behavior(behavior, log, seed, raw)
    rows = _rows(settled, log)

    chance = behavior_model.took()[rows]
    recorded = np.zeros(0, bool)
    floor: Any = clip if behavior_model.estimated else 0.0
    if settled.propensity is not None and behavior is None:
        recorded = ~np.isnan(settled.propensity)
        chance = np.where(recorded, settled.propensity, chance)
        floor = np.where(recorded, 0.0, clip)
    speaks = decisions.speaks[decisions.row]
    named = decisions.pi[decisions.row, settled.action]
    least = np.maximum(floor, np.finfo(float).tiny)
    ratio = np.where(speaks, named / np.maximum(chance, least), 1.0)
    needed = speaks & (named > 0)
    model, trouble = None, ""
    if values and speaks.any():
        try:
            model = evaluate_q(settled, decisions, gamma, seed=seed, progress=tell)
        except PlanError as error:
            trouble = error.what
    zero = np.zeros(settled.n_steps)
    Q, V = (zero, zero) if model is None else (model.Q, model.V)
    weighted = importance_weights(
        settled.starts, settled.group, settled.reward, gamma, ratio, speaks, Q, V
    )

    changed, divided = decisions.changes(behavior_model.table, behavior_model.row[rows])
    table, practised = practice(behavior_model, log)
    apart = differs(decisions, table, practised[rows])
    never = speaks & (named == 0)
    blind = unsupported_chance(decisions, behavior_model, table, practised[rows], settled, seed)
    facts = {
        "episodes": settled.n_episodes,
        "groups": len(settled.groups),
        "steps": settled.n_steps,
        "unit": "episodes" if len(settled.groups) == settled.n_episodes else "groups",
        "spoken": float(speaks.mean()),
        "changed": float(changed.mean()),
        "confirmed": float((speaks & ~changed).mean()),
        "divided": float((changed & divided).mean()),
        "differs": float(apart.mean()),
        "mixed": bool(((decisions.pi > 0) & (decisions.pi < 1)).any()),
        **_where_it_matters(weighted, settled, apart, changed, never),
        "largest_weight": float(weighted.final.max()),
        "mean_weight": float(weighted.final.mean()),
        "clipped": float((chance < floor)[needed].mean()) if needed.any() else 0.0,
        "unsupported": blind,
        "recorded": float(recorded.mean()) if len(recorded) else 0.0,
        "behavior": behavior_model.how,
        "misplaced": behavior_model.misplaced,
        "log_loss": behavior_model.log_loss,
        **suggested(behavior_model, decisions, rows, settled, speaks),
        "not_offered": not_offered(decisions, settled, speaks),
        **_range(weighted, declared),
        "guessed": float(model.guessed[speaks].mean()) if model is not None else None,
    }
    rows_out, usual_practice, undefined, drawn = estimated(
        weighted,
        level,
        int(draws),
        int(seed),
        model is not None or not speaks.any(),
        bool(speaks.any()),
        cluster,
        tell,
    )
    if cut == "ipcw" and len(log.cut_episodes):  # a model of values would need weights of its own
        rows_out["DM"] = dict.fromkeys(rows_out["DM"], np.nan)
    nobody = facts["reached"] and not facts["followers"]
    if nobody or blind > BLIND:  # resampling shows no error of a guess
        for row in rows_out.values():
            row |= {name: np.nan for name in row if name.endswith(("_low", "_high"))}
    wary = [*first_warnings, *wary_of(facts, asked, log, undefined, trouble, draws, cut)]
    wary += no_spread(only_return(weighted, settled, apart, never), level)
    balanced = compared(behavior_model, decisions, rows, settled, changed, recorded)
    groups = None
    if columns:
        groups = subgroups(
            columns, settled, weighted, changed, apart, never, model=model is not None,
            level=float(level), draws=draws, seed=seed,
        )  # fmt: skip
    wary += [] if groups is None else groups.warnings()
    wary += [] if balanced is None else balanced.warnings()
    evaluation = Evaluation(
        rows=rows_out,
        behavior=usual_practice,
        facts=facts,
        warnings=(),
        settings={
            "gamma": gamma, "level": float(level), "draws": int(draws), "seed": int(seed),
            "cut": cut, "clip": float(clip), "log": log.digest(), "policy": _digest(policy),
            **({} if log.also is None else {"also": log.also.digest()}),
        },
        balance=balanced,
        subgroups=groups,
    )  # fmt: skip
    warned = tuple(dict.fromkeys((*wary, *evaluation.impossible())))
    return replace(evaluation, warnings=warned), drawn


# -- what goes in -----------------------------------------------------------------------------


def _own(policy: Any, gamma: float | None, cut: Cut | None) -> tuple[float, Cut | None]:
    """gamma and cut as given, or else the policy's own."""
    settings: Mapping[str, Any] = getattr(policy, "parameters", {})
    if gamma is None:
        gamma = settings.get("gamma")
        if gamma is None:
            raise ParameterError(
                "this policy knows no gamma.",
                do=worded("Say how to discount: {gamma}, or 1.", gamma=option("gamma", 0.99)),
            )
    if cut is None:
        cut = settings.get("cut")
    check_cut(cut)
    return check_gamma(gamma), cut


def _declared(policy: Any, gamma: float, given: Any) -> tuple[float, float] | None:
    """The range of returns as declared: in this call, or when the policy was certified."""
    if given is not None:
        return check_range(given)
    proved = getattr(policy, "certificate", None)
    return None if proved is None or proved.gamma != gamma else proved.value_range


def _range(weighted: Weighted, declared: tuple[float, float] | None) -> dict[str, Any]:
    """The range of returns: as declared, or else from the smallest to the largest in the log."""
    G = weighted.single[:, BEHAVIOR]
    low, high = declared or (float(G.min()), float(G.max()))
    return {"lowest": low, "highest": high, "range": "declared" if declared else "log"}


def _behavior(given: Any, log: Log, seed: int, raw: Log) -> Behavior:
    """Usual practice on a log; a model of the `raw` log, before it was encoded, has its rows."""
    if given is None:
        return Behavior.fit(log, seed=seed)
    if not isinstance(given, Behavior):
        return Behavior.given(log, given)
    if given.log not in (log.digest(), raw.digest()):
        raise ParameterError(
            "this Behavior is of another log.", do="Use Behavior.fit(log) of the log evaluated on."
        )
    return given


def _rows(settled: Log, log: Log) -> Rows:
    """The rows of `log` that are left, in order; a slice, which copies nothing, if all are."""
    rows = np.asarray(settled.time, np.int64)
    whole = len(rows) == log.n_steps and bool((rows[1:] > rows[:-1]).all())
    return slice(None) if whole else rows


def _digest(policy: Any) -> str | None:
    try:
        return str(policy.digest())
    except (AttributeError, PolicyError):  # a policy that cannot be saved has no digest
        return None


# -- what comes out ---------------------------------------------------------------------------


def _where_it_matters(
    weighted: Weighted, log: Log, apart: Bools, changed: Bools, never: Bools
) -> dict[str, Any]:
    """How many groups reach a step at which the policy differs, and a change, and how many follow.

    The effective sample sizes over all groups and over these go with them.
    """
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
