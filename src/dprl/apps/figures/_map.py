"""A map of a policy: where it makes suggestions, beside usual practice, and where it defers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core import plot
from dprl._core.checks import check_whole
from dprl._core.table import Table
from dprl.apps.figures._figure import GREY, Figure, colour
from dprl.errors import ParameterError
from dprl.logs.log import Log
from dprl.policies._decisions import Kind
from dprl.policies._protocol import Policy, as_policy

__all__ = ["policy_map"]

SHOWN = 25
"""States of a map at most: more cannot be read."""


def policy_map(
    policy: Any,
    log: Log | None = None,
    *,
    features: Sequence[str] | None = None,
    steps: int = 40,
) -> Figure:
    """Where a policy makes suggestions, and where it defers.

    For labels: one row of the picture per state, with the share of each action in usual practice
    and the suggestion. For features: a grid over two of them; the others are held at their median
    in the log (their most frequent value, where they are categories).

    Args:
        policy: A policy with the usual interface (`dprl.Policy`).
        log: For features: the log whose range and medians are used. For labels: the log in which
            usual practice is counted, for a policy that keeps no record of it (the rivals,
            `dprl.CallablePolicy`); others show their training log's. Default None: no log.
        features: The two features to lay out, by name. Default None: the first two.
        steps: Points of the grid in each direction, from 2 to 400. Default 40.

    Returns:
        A figure with rows state, action, share (in usual practice, at first visits; None in a state
        that nobody visited), probability (the policy's, of the action; None where it defers), kind
        ("change", "confirmation" or "defer"; "suggestion" for a policy that keeps no record of
        usual practice) and suggested (its most probable action); or, for features, a row per point
        of the grid with the two features, kind and suggested (None where it defers).

    Raises:
        ParameterError: There is no log where one is needed, or it has features in place of labels
            or the other way; or not two features of the policy.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(1000, seed=0)
        >>> figure = dprl.figures.policy_map(dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log))
        >>> sorted(set(figure.table["kind"]))
        ['change', 'defer']
    """
    policy = as_policy(policy)
    if policy.space.feature_names or _open_to_features(policy, log):
        return _over_features(policy, log, features, steps)
    states, visits, episodes = _practice(policy, log)
    here = policy.at(states)
    rows = []
    order = np.argsort(-visits.sum(axis=1), kind="stable")
    for s in order:
        total = int(visits[s].sum())
        chosen = int(here.choice[s])
        suggested = None if chosen < 0 else here.actions[chosen]
        rows += [
            {
                "state": states[s],
                "action": action,
                "share": int(visits[s, a]) / total if total else None,
                "probability": None if chosen < 0 else float(here.pi[s, a]),
                "kind": _word(int(here.kind[s])),
                "suggested": suggested,
            }
            for a, action in enumerate(here.actions)
        ]
    names = ("state", "action", "share", "probability", "kind", "suggested")
    table = Table({name: [row[name] for row in rows] for name in names})
    spoken = int((here.choice >= 0).sum())
    words = f"Suggestions in {spoken:,} of {len(states):,} states; the policy defers in the others."
    if spoken == len(states):
        words = f"Suggestions in all {spoken:,} states: the policy never defers."
    if episodes:
        words += f" Usual practice is counted in the log given ({episodes:,} episodes)."
    return Figure("policy_map", table, words, lambda: _over_labels(table, list(here.actions)))


def _open_to_features(policy: Any, log: Log | None) -> bool:
    """Whether the policy takes whatever a log holds, and this log holds features."""
    return not policy.space.states and log is not None and log.state is None


def _practice(policy: Policy, log: Log | None) -> tuple[list[Any], NDArray[np.int64], int]:
    """The states of a map and first visits (S, A + 1) that took each action, or one it has not.

    The last number is that of the log's episodes where they were counted in it, 0 where the policy
    keeps them itself.
    """
    states = list(policy.space.states)
    if policy.knows_practice:
        taken = policy.at(states).m
        return states, np.column_stack([taken, np.zeros(len(taken), np.int64)]), 0
    if log is None:
        raise ParameterError(
            "a map shows usual practice, and this policy keeps no record of it.",
            where=str(policy.parameters.get("learner", type(policy).__name__)),
            do="Pass a log to count it in: dprl.figures.policy_map(policy, log).",
        )
    in_log, codes = policy.space.of_log(log)
    states = states or list(in_log)
    episode = np.repeat(np.arange(log.n_episodes), log.lengths)
    first = np.unique(episode * len(in_log) + codes, return_index=True)[1]
    place = {label: i for i, label in enumerate(states)}
    column = {label: i for i, label in enumerate(policy.actions)}
    s = np.array([place.get(label, -1) for label in in_log], np.int64)[codes[first]]
    a = np.array([column.get(label, len(column)) for label in log.actions], np.int64)
    visits = np.zeros((len(states), len(column) + 1), np.int64)
    np.add.at(visits, (s[s >= 0], a[log.action[first]][s >= 0]), 1)
    return states, visits, log.n_episodes


def _word(kind: int) -> str:
    return {Kind.CHANGE: "change", Kind.CONFIRM: "confirmation", Kind.DEFER: "defer"}.get(
        Kind(kind), "suggestion"
    )


def _over_labels(table: Table, actions: Sequence[Any]) -> Any:
    rows = table.to_dicts()
    states = list(dict.fromkeys(row["state"] for row in rows))[:SHOWN]
    figure, axes = plot.grid(1, 1, width=7.0, height=max(1.8, 1.0 + 0.34 * len(states)))
    axis = axes[0, 0]
    left = dict.fromkeys(states, 0.0)
    for row in rows:
        if row["state"] not in left:
            continue
        y, place = -states.index(row["state"]), list(actions).index(row["action"])
        named = row["suggested"] == row["action"] and row["kind"] != "defer"
        share = row["share"] or 0.0
        axis.barh(y, share, left=left[row["state"]], height=0.7, color=colour(place),
                  alpha=1 if named else 0.32, edgecolor="white")  # fmt: skip
        left[row["state"]] += share
        if row["action"] == actions[-1]:
            silent = row["kind"] == "defer"
            words = "DEFER" if silent else f"{row['kind']}: {_named(rows, row)}"
            axis.text(1.02, y, words, va="center", fontsize=8.5, color=GREY if silent else "black")
    for place, action in enumerate(actions):
        axis.bar(0, 0, color=colour(place), label=str(action))
    axis.set_yticks([-y for y in range(len(states))], [str(s) for s in states])
    axis.set(xlim=(0, 1.45), xlabel="usual practice; full colour: what is suggested")
    axis.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axis.grid(visible=False)
    figure.legend(loc="outside upper left", ncols=min(len(actions), 5), fontsize=8)
    return figure


def _named(rows: Sequence[dict[str, Any]], row: dict[str, Any]) -> str:
    """The suggestion of a state, with the chances of all that a policy mixes there."""
    chances = [
        (r["probability"], r["action"])
        for r in rows
        if r["state"] == row["state"] and (r["probability"] or 0) >= 0.005
    ]
    if len(chances) < 2:
        return str(row["suggested"])
    largest = sorted(chances, key=lambda pair: -pair[0])
    return ", ".join(f"{action} {100 * p:.0f} %" for p, action in largest[:3]) + (
        ", …" if len(largest) > 3 else ""
    )


def _over_features(
    policy: Any, log: Log | None, features: Sequence[str] | None, steps: int
) -> Figure:
    steps = check_whole("steps", steps, 2, 400)
    names = policy.space.feature_names or (() if log is None else log.feature_names)
    if log is None:
        raise ParameterError(
            "a map over features needs a log: its range and its medians.",
            do="dprl.figures.policy_map(policy, log)",
        )
    chosen = tuple(names[:2] if features is None else features)
    if len(chosen) != 2 or not set(chosen) <= set(names):
        raise ParameterError(
            f"a map needs two features of the policy; got {', '.join(map(str, chosen))}.",
            do=f"features=[...], two of: {', '.join(names)}.",
        )
    X = np.asarray(policy.space.of_log(log)[0], np.float64)
    i, j = (list(names).index(name) for name in chosen)
    ends = np.nanquantile(X[:, [i, j]], (0.005, 0.995), axis=0)
    x, y = (np.linspace(ends[0, k], ends[1, k], steps) for k in (0, 1))
    at = np.tile(_typical(X, policy.space), (steps * steps, 1))
    at[:, i], at[:, j] = (v.ravel() for v in np.meshgrid(x, y))
    here = policy.at(at)
    table = Table(
        {
            chosen[0]: at[:, i].tolist(), chosen[1]: at[:, j].tolist(),
            "kind": [_word(int(k)) for k in here.kind],
            "suggested": [None if c < 0 else here.actions[int(c)] for c in here.choice],
        }
    )  # fmt: skip
    share = float((here.choice >= 0).mean())
    places = " and ".join(chosen)
    words = f"What is suggested over {places}; on {100 * share:.0f} % of the map."
    if len(names) > 2:
        words += " The other features are held at their median."
    return Figure("policy_map", table, words, lambda: _drawn_map(table, chosen, here.actions))


def _typical(X: NDArray[np.float64], space: Any) -> NDArray[np.float64]:
    """float64 (d,): the median of each feature, the most frequent code of a category."""
    typical = np.nanmedian(X, axis=0)
    for place, labels in enumerate(getattr(space, "levels", None) or ()):
        if labels:
            codes = X[:, place]
            codes = codes[np.isfinite(codes)].astype(np.int64)
            typical[place] = np.bincount(codes[codes >= 0]).argmax() if len(codes) else np.nan
    return typical


def _drawn_map(table: Table, chosen: tuple[str, ...], actions: Sequence[Any]) -> Any:
    figure, axes = plot.grid(1, 1, width=5.6, height=4.4)
    axis = axes[0, 0]
    x, y = (np.asarray(table[name], np.float64) for name in chosen)
    kind, suggested = np.array(table["kind"]), table["suggested"]
    silent = kind == "defer"
    axis.plot(x[silent], y[silent], ".", ms=1.6, color="#bbbbbb", label="DEFER")
    for place, action in enumerate(actions):
        mine = np.array([s == action for s in suggested])
        for word, full in (("change", True), ("confirmation", False), ("suggestion", True)):
            at = mine & (kind == word)
            if at.any():
                axis.plot(
                    x[at], y[at], plot.MARKERS[place % len(plot.MARKERS)], ms=4,
                    color=colour(place), mfc=colour(place) if full else "white", mew=0.7,
                    label=f"{action} ({word})",
                )  # fmt: skip
    axis.set(xlabel=chosen[0], ylabel=chosen[1])
    axis.grid(visible=False)
    figure.legend(loc="outside right upper", fontsize=8)
    return figure
