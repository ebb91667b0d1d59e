"""Figures of what a policy suggests: a map, the changes as a forest plot, rules as a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core import plot
from dprl._core.checks import check_whole
from dprl._core.table import Table
from dprl.apps.figures._figure import BLUE, GREEN, GREY, Figure, colour
from dprl.errors import ParameterError
from dprl.logs.log import Log
from dprl.policies._decisions import Kind

__all__ = ["forest", "policy_map", "rule_tree"]

SHOWN = 25
"""Rows of a forest plot at most: more cannot be read."""


def forest(policy: Any, most: int = SHOWN) -> Figure:
    """What each suggestion brings, with its interval: a forest plot.

    The advantage is over usual practice; for rules, over doing otherwise.

    Changes are drawn full, confirmations hollow. Where a certificate proves a bound on the
    advantage, a mark shows it.

    Args:
        policy: A policy that lists its changes with their intervals: of `dprl.DPRLDiscrete`,
            `Confident`, `DPRLContinuous` or `Rules`, gated or not.
        most: Number of rows at most; those with the highest lower end stay. Default 25.

    Returns:
        A figure with one row per suggestion: where, kind ("change" or "confirmation"), usual,
        suggested, advantage, low, high, and proved (the bound of the certificate, in units of
        returns; None without one).

    Raises:
        ParameterError: `most` is no whole number above 0, or the policy keeps no intervals.
        PolicyError: The policy keeps no record of usual practice, so it has no changes to list.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(1000, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log)
        >>> dprl.figures.forest(policy).table["where"]
        ['fever', 'worse']
    """
    most = check_whole("most", most, 1)
    rows = [*_listed(policy, "change"), *_listed(policy, "confirmation")]
    left = max(len(rows) - most, 0)
    rows = sorted(rows, key=lambda row: -row["low"])[:most]
    names = ("where", "kind", "usual", "suggested", "advantage", "low", "high", "proved")
    table = Table({name: [row[name] for row in rows] for name in names})
    beside = "doing otherwise" if getattr(policy, "rules", ()) else "usual practice"
    words = f"What each suggestion brings over {beside}, with its interval of 95 %."
    if not rows:
        words = "The policy suggests nothing for which it keeps an interval."
    elif left:
        words += f" {left:,} more suggestions are not shown."
    return Figure("forest", table, words, lambda: _forest(rows, left, beside))


def _listed(policy: Any, kind: str) -> list[dict[str, Any]]:
    """The changes or confirmations of a policy as rows of a forest plot."""
    lister = getattr(policy, f"{kind}s", None)
    if lister is None:
        return []
    listed = lister()
    if "advantage" not in listed.columns or "low" not in listed.columns:
        raise ParameterError(
            "a forest plot needs intervals, and this policy keeps none.",
            where=f"{type(policy).__name__}.{kind}s() has {', '.join(listed.columns)}",
            do="Fit DPRLDiscrete, Confident, DPRLContinuous or Rules.",
        )
    certificate = getattr(policy, "certificate", None)
    issued = () if certificate is None else certificate.rows
    proved = {row["state"]: row.get("advantage_low") for row in issued}
    features = [n for n in policy.space.feature_names if n in listed.columns]
    rows = []
    for row in listed.to_dicts():
        where = row.get("where", row.get("state"))
        if where is None:
            where = ", ".join(f"{name} {row[name]:.3g}" for name in features)
        low, high = row["low"], row["high"]
        if low is None or not np.isfinite(low) or high is None or not np.isfinite(high):
            continue
        rows.append(
            {
                "where": str(where),
                "kind": kind,
                "usual": row.get("usual"),
                "suggested": row["suggested"],
                "advantage": row["advantage"],
                "low": low,
                "high": high,
                "proved": proved.get(row.get("state")),
            }
        )
    return rows


def _forest(rows: Sequence[dict[str, Any]], left: int, beside: str) -> Any:
    figure, axes = plot.grid(1, 1, width=6.6, height=max(1.6, 0.9 + 0.34 * len(rows)))
    axis = axes[0, 0]
    for y, row in enumerate(rows):
        full = row["kind"] == "change"
        reach = np.abs([[row["advantage"] - row["low"]], [row["high"] - row["advantage"]]])
        axis.errorbar(
            row["advantage"], -y, xerr=reach, fmt="o" if full else "s", color=BLUE, capsize=3,
            mfc=BLUE if full else "white", ms=5,
        )  # fmt: skip
        if row["proved"] is not None:
            axis.plot(row["proved"], -y, ">", color=GREEN, ms=6, mec="white")
    axis.axvline(0, color="#333333", lw=1)
    axis.set_yticks(
        [-y for y in range(len(rows))], [f"{r['where']}: {r['suggested']}" for r in rows]
    )
    axis.set(xlabel=f"advantage over {beside}", ylim=(-len(rows) + 0.4, 0.6))
    axis.grid(visible=False, axis="y")
    for kind, look in (("change", {"mfc": BLUE, "marker": "o"}),
                       ("confirmation", {"mfc": "white", "marker": "s"})):  # fmt: skip
        if any(row["kind"] == kind for row in rows):
            axis.plot([], [], color=BLUE, lw=1.5, label=f"{kind}, with 95 % interval", **look)
    if any(row["proved"] is not None for row in rows):
        axis.plot([], [], ">", color=GREEN, label="proved: more than this")
    if rows:
        figure.legend(loc="outside upper left", ncols=3, fontsize=8)
    if left:
        axis.text(1, 0, f"{left:,} more", transform=axis.transAxes, ha="right", va="bottom",
                  fontsize=8, color=GREY)  # fmt: skip
    return figure


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
        log: For features: the log whose range and medians are used. Default None: for labels.
        features: The two features to lay out, by name. Default None: the first two.
        steps: Points of the grid in each direction, from 2 to 400. Default 40.

    Returns:
        A figure with rows state, action, share (in usual practice, at first visits), kind
        ("change", "confirmation" or "defer") and suggested; or, for features, a row per point of
        the grid with the two features, kind and suggested (None where it defers).

    Raises:
        ParameterError: Features without a log, or not two features of the policy.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(1000, seed=0)
        >>> figure = dprl.figures.policy_map(dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log))
        >>> sorted(set(figure.table["kind"]))
        ['change', 'defer']
    """
    if policy.space.feature_names:
        return _over_features(policy, log, features, steps)
    states = list(policy.space.states)
    here = policy.at(states)
    rows = []
    order = np.argsort(-here.m.sum(axis=1), kind="stable")
    for s in order:
        total = max(int(here.m[s].sum()), 1)
        chosen = int(here.choice[s])
        suggested = None if chosen < 0 else here.actions[chosen]
        rows += [
            {
                "state": states[s],
                "action": action,
                "share": int(here.m[s, a]) / total,
                "kind": _word(int(here.kind[s])),
                "suggested": suggested,
            }
            for a, action in enumerate(here.actions)
        ]
    names = ("state", "action", "share", "kind", "suggested")
    table = Table({name: [row[name] for row in rows] for name in names})
    spoken = int((here.choice >= 0).sum())
    words = f"Suggestions in {spoken:,} of {len(states):,} states; the policy defers in the others."
    return Figure("policy_map", table, words, lambda: _over_labels(table, list(here.actions)))


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
        axis.barh(y, row["share"], left=left[row["state"]], height=0.7, color=colour(place),
                  alpha=1 if named else 0.32, edgecolor="white")  # fmt: skip
        left[row["state"]] += row["share"]
        if row["action"] == actions[-1]:
            silent = row["kind"] == "defer"
            words = "DEFER" if silent else f"{row['kind']}: {row['suggested']}"
            axis.text(1.02, y, words, va="center", fontsize=8.5, color=GREY if silent else "black")
    for place, action in enumerate(actions):
        axis.bar(0, 0, color=colour(place), label=str(action))
    axis.set_yticks([-y for y in range(len(states))], [str(s) for s in states])
    axis.set(xlim=(0, 1.45), xlabel="usual practice; full colour: what is suggested")
    axis.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axis.grid(visible=False)
    figure.legend(loc="outside upper left", ncols=min(len(actions), 5), fontsize=8)
    return figure


def _over_features(
    policy: Any, log: Log | None, features: Sequence[str] | None, steps: int
) -> Figure:
    steps = check_whole("steps", steps, 2, 400)
    names = policy.space.feature_names
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
    for place, labels in enumerate(space.levels or ()):
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


def rule_tree(policy: Any) -> Figure:
    """Rules as a tree of questions, or one band each where they do not come from a tree.

    Args:
        policy: A policy of rules, from `dprl.Rules`.

    Returns:
        A figure with one row per rule: rule, where, kind, suggested, advantage, low, high (None
        where nothing is stated).

    Raises:
        ParameterError: The policy has no rules.

    Example:
        >>> import dprl
        >>> policy = dprl.RulePolicy(
        ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
        ...     feature_names=("pressure",),
        ...     rules=({
        ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
        ...         "suggested": "fluids",
        ...     },),
        ... )
        >>> dprl.figures.rule_tree(policy).table["where"]
        ['pressure at most 62']
    """
    rules = getattr(policy, "rules", None)
    if not rules:
        raise ParameterError(
            "a tree needs rules, and this policy has none.",
            where=type(policy).__name__,
            do="Fit dprl.Rules; for other policies: policy_map or forest.",
        )
    rows = [
        {
            "rule": r + 1,
            "where": " and ".join(c.words for c in rule.conditions),
            "suggested": None if rule.silent else rule.suggested,
            **{name: rule.facts.get(name) for name in ("advantage", "low", "high")},
        }
        for r, rule in enumerate(rules)
    ]
    table = Table({name: [row[name] for row in rows] for name in rows[0]})
    words = " ".join(policy.sentences())
    return Figure("rule_tree", table, words, lambda: policy.draw().figure)
