"""Figures of what a policy suggests: the changes as a forest plot, rules as a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dprl._core import plot
from dprl._core.checks import check_whole
from dprl._core.table import Table
from dprl.apps.figures._figure import BLUE, GREEN, GREY, Figure
from dprl.errors import ParameterError

__all__ = ["forest", "rule_tree"]

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
