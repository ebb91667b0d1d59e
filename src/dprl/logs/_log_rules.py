"""Rules about a finished log; each rule is one small function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from dprl._core.plural import form, many
from dprl._core.words import api, either, option, worded
from dprl.logs._action_rules import doses, many_actions
from dprl.logs._dates import SINCE
from dprl.logs._doses import called
from dprl.logs._feature_input import place_of
from dprl.logs._findings import Finding
from dprl.logs._fixed_actions import fixed_actions
from dprl.logs._gaps import gap_counts, gap_shares
from dprl.logs.log import EVENT, UNKNOWN, Log

__all__ = ["LOG_RULES"]

FILLED = ("flag", "median")
"""What can be declared about gaps that are filled when a learner takes the log."""


def _name(log: Log, part: str) -> str:
    return called(log.columns.get(part, part))


def one_row_episodes(log: Log) -> Finding | None:
    """Episodes of a single decision."""
    single = np.flatnonzero(log.lengths == 1)
    if not len(single):
        return None
    every = len(single) == log.n_episodes
    return Finding(
        "note" if every else "warning",
        "one_row_episodes",
        f"{len(single):,} of {many(log.n_episodes, 'episode')} {form(single, 'has', 'have')} one "
        "row only.",
        f"{_name(log, 'episode')}={log.episodes[single[0]]}",
        "Fine for single decisions; otherwise look whether the episode column is the right one.",
    )


def endings(log: Log) -> Finding | None:
    """How many episodes ended in which way."""
    if not (log.ended != UNKNOWN).any():
        return None
    ways = ", ".join(f"{n:,} {name}" for name, n in log.endings.items())
    return Finding(
        "note",
        "endings",
        f"{many(log.n_episodes, 'episode')} ended: {ways}.",
        do="A competing event is an end with what its rewards say, not a cut."
        if (log.ended >= EVENT).any()
        else "",
    )


def cut_episodes(log: Log) -> Finding | None:
    """Episodes whose observation stopped before they ended."""
    cut = log.cut_episodes
    if not len(cut):
        return None
    steps = int(log.lengths[cut].sum())
    return Finding(
        "warning",
        "cut_episodes",
        f"{len(cut):,} of {many(log.n_episodes, 'episode')} ({steps:,} of "
        f"{many(log.n_steps, 'step')}) {form(cut, 'was', 'were')} cut before "
        f"{form(cut, 'it', 'they')} ended.",
        f"{_name(log, 'episode')}={log.episodes[cut[0]]}",
        worded(
            "Follow all for a fixed time ({follow_up}), or say what to do with them when fitting: "
            "{cut}.",
            follow_up=option("follow_up"),
            cut=option("cut"),
        ),
    )


def ending_unsaid(log: Log) -> Finding | None:
    """Episodes for which the log does not record how they ended."""
    if not (log.ended == UNKNOWN).any():
        return None
    unsaid = int((log.ended == UNKNOWN).sum())
    return Finding(
        "note",
        "ending_unsaid",
        f"{unsaid:,} of {many(log.n_episodes, 'episode')} {form(unsaid, 'does', 'do')} not say how "
        f"{form(unsaid, 'it', 'they')} ended.",
        do="They are taken as finished; name an ended column if some were cut short.",
    )


def reward_range(log: Log) -> Finding | None:
    """The smallest and largest reward."""
    low, high = float(log.reward.min()), float(log.reward.max())
    if low < high:
        return Finding("note", "reward_range", f"rewards run from {low:g} to {high:g}.")
    lengths_are_equal = bool((log.lengths == log.lengths[0]).all()) and not len(log.cut_episodes)
    return Finding(
        "warning",
        "reward_range",
        f"rewards run from {low:g} to {high:g}: they are all the same.",
        do="Nothing can be learned from a reward that never differs."
        if low == 0 or lengths_are_equal
        else "The return of an episode says only how long it lasted; look whether that is meant.",
    )


def one_action(log: Log) -> Finding | None:
    """Only one action was ever taken."""
    taken = log.action.min()
    if taken != log.action.max():
        return None
    return Finding(
        "warning",
        "one_action",
        f"every step took the same action, {log.actions[taken]!r}.",
        do="There is nothing to compare: every policy will defer everywhere.",
    )


def availability_varies(log: Log) -> Finding | None:
    """The available actions differ between visits of one state."""
    if log.available is None or log.menus is None or log.state is None:
        return None
    seen = np.zeros((log.n_states, len(log.menus)), bool)
    seen[log.state, log.available] = True
    varied = np.flatnonzero(seen.sum(axis=1) > 1)
    if not len(varied):
        return None
    return Finding(
        "note",
        "availability_varies",
        f"what is available differs between visits in {len(varied):,} of {log.n_states:,} states.",
        f"{_name(log, 'state')}={log.states[varied[0]]}",
        "An action is suggested in a state only if it was available on every visit.",
    )


def missing_features(log: Log) -> Finding | None:
    """Features that are missing on some rows."""
    counts = log.missing
    touched = np.flatnonzero(counts)
    if log.features is None or not len(touched):
        return None
    listed = [f"{log.feature_names[j]!r} on {counts[j]:,}" for j in touched[:5].tolist()]
    more = f", {len(touched) - 5:,} more features on some" if len(touched) > 5 else ""
    row = int(np.argmax(np.isnan(log.features[:, touched[0]])))
    words = log.columns.get("missing", {})
    ready = [n for j in touched.tolist() if words.get(n := log.feature_names[j]) in FILLED]
    declared = ", ".join(f"{n!r} ({words[n]})" for n in ready[:5]) if ready else ""
    declared += f" and {len(ready) - 5:,} more" if len(ready) > 5 else ""
    return Finding(
        "note" if len(ready) == len(touched) else "warning",
        "missing_features",
        f"features are missing on some of {log.n_steps:,} rows: {', '.join(listed)}{more}.",
        place_of(log, row),
        worded(
            "{learner} gives missing values a side of their own; any other learner needs them "
            "filled when it learns ({choice}), or such episodes left out ({missing}).",
            learner=api("dprl.Rules"),
            choice=either('missing="flag" or "median"', "--missing flag"),
            missing=option("missing", "drop-episodes"),
        )
        if len(ready) < len(touched)
        else f"Filled when a learner takes the log: {declared}.",
    )


def missing_by_action(log: Log) -> Finding | None:
    """How often each column of the state is missing, by the action taken."""
    counts = gap_counts(log)
    if counts is None:
        return None
    actions = [label for label, _ in counts["actions"]]
    lines = []
    for name, share, by_action in gap_shares(counts)[:5]:
        own = [f"{a} {p:.1%}" for a, p in zip(actions, by_action, strict=True) if p is not None]
        more = f" and {len(own) - 6:,} more" if len(own) > 6 else ""
        lines.append(f"{name!r} {share:.1%} of rows ({', '.join(own[:6])}{more})")
    more = f"; {len(counts['columns']) - 5:,} more" if len(counts["columns"]) > 5 else ""
    return Finding(
        "note",
        "missing_by_action",
        f"missing, by the action taken: {'; '.join(lines)}{more}.",
        do=worded(
            "Where actions differ in it, that a value was not measured is part of why they were "
            "taken: flag it ({missing}), so that a policy can see it.",
            missing=option("missing", "flag"),
        ),
    )


def _combinations(log: Log) -> str:
    """How many combinations of labels occur, where every feature is a category; else ''."""
    if log.features is None or any(own is None for own in log.levels):
        return ""
    seen = len(np.unique(log.features, axis=0))
    possible = math.prod(len(own or ()) for own in log.levels)
    return worded(
        ", and {learner} and Confident join them into one label: {seen:,} of {possible:,} "
        "combinations occur",
        learner=api("DPRLDiscrete"),
        seen=seen,
        possible=possible,
    )


def categories(log: Log) -> Finding | None:
    """Features that are categories."""
    if not log.levels:
        return None
    listed = [
        f"{name!r} ({len(own)} label{'s' * (len(own) != 1)})"
        for name, own in log.categories.items()
    ]
    more = f", {len(listed) - 5:,} more" if len(listed) > 5 else ""
    return Finding(
        "note",
        "categories",
        f"{len(listed):,} of {len(log.levels):,} features "
        f"{'is a category' if len(listed) == 1 else 'are categories'}: "
        f"{', '.join(listed[:5])}{more}.",
        do=worded(
            "{learner} takes labels as they are, {learner2} makes a column of 0 and 1 of each "
            "label{combinations}.",
            learner=api("dprl.Rules"),
            learner2=api("DPRLContinuous"),
            combinations=_combinations(log),
        ),
    )


def dates(log: Log) -> Finding | None:
    """Features that are dates."""
    days = log.columns.get("days", {})
    dated = [name for name in log.feature_names if name in days]
    if not dated:
        return None
    return Finding(
        "note",
        "dates",
        f"{len(dated):,} of {len(log.feature_names):,} features "
        f"{'is a date' if len(dated) == 1 else 'are dates'}: {', '.join(map(repr, dated[:5]))}.",
        do=f"A date counts as days since {SINCE}. A policy takes dates as the log has them; it "
        "defers on days that training did not have.",
    )


def probabilities_known(log: Log) -> Finding | None:
    """Rows on which the chance of what was done is known."""
    if log.propensity is None:
        return None
    p = log.propensity[~np.isnan(log.propensity)]
    what = f"{_name(log, 'propensity')!r} is known on {len(p):,} of {log.n_steps:,} rows"
    if not len(p):
        return Finding(
            "warning", "probabilities_known", f"{what}.", do="Leave the column out, or fill it."
        )
    return Finding(
        "note",
        "probabilities_known",
        f"{what}, from {p.min():g} to {p.max():g}.",
        do=worded(
            "{learner}, evaluation and the gate use it; other learners do not.",
            learner=api("dprl.Rules"),
        ),
    )


def further_columns(log: Log) -> Finding | None:
    """Columns beside the state, in which takers of a suggestion are compared with others."""
    if log.also is None or not (log.also.names or log.also.left_out):
        return None
    return Finding(
        "note",
        "further_columns",
        log.also.words,
        do=worded(
            "No learner sees them; evaluate, report, review and gate compare those who took a "
            "suggestion with the others. Leave out ({also}) what was recorded after a decision.",
            also=option("also"),
        ),
    )


LOG_RULES: Sequence[Callable[[Log], Finding | None]] = (
    cut_episodes,
    endings,
    one_row_episodes,
    one_action,
    fixed_actions,
    many_actions,
    doses,
    reward_range,
    ending_unsaid,
    availability_varies,
    missing_features,
    missing_by_action,
    categories,
    dates,
    probabilities_known,
    further_columns,
)
