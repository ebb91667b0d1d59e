"""The table and the figure of the Atari study, from rows that hold one game played each."""

from __future__ import annotations

from typing import Any

import numpy as np

from dprl._core import plot
from dprl._core.table import Table
from dprl.evaluation import stats
from dprl_studies.harness import Row, Rows
from dprl_studies.paper.atari_grid import LEARNERS, family

__all__ = ["brief", "figure", "summary"]

FEW = 30
"""With fewer rewarded decisions in the log than this, the note of the table warns."""


def summary(rows: Rows) -> Table:
    """One row per game and contestant: mean score, and how often it defers.

    The difference to the behaviour compares games that were played with the same seeds. All
    intervals are 95 % bootstrap intervals.

    Args:
        rows: The rows of all tasks of the study, one per game played, as columns.

    Returns:
        The table, with a note on each game's networks and log.

    Example:
        >>> same = {"game": "pong", "learner": "behaviour", "contestant": "behaviour", "near": 0,
        ...         "cut": 0, "by_rule": 1, "radius": 0.5, "expert_steps": 9, "medium_steps": 5,
        ...         "samples": 100, "games_learned": 3, "rewarded": 40, "quick": 0}
        >>> rows = {name: np.array([value, value]) for name, value in same.items()}
        >>> rows |= {"score": np.array([2.0, 4.0]), "deferred": np.ones(2),
        ...          "steps": np.array([10, 30])}
        >>> table = summary(rows)
        >>> table["score"], table["difference"], table["deferred"]
        ([3.0], [0.0], [1.0])
    """
    lines: list[Row] = []
    behavior = {
        g: rows["score"][(rows["game"] == g) & (rows["learner"] == "behaviour")]
        for g in dict.fromkeys(rows["game"].tolist())
    }
    for game, usual in behavior.items():
        here = rows["game"] == game
        for name in dict.fromkeys(rows["contestant"][here].tolist()):
            games = here & (rows["contestant"] == name)
            score = rows["score"][games]
            low, high = stats.interval(score, stats.mean, seed=0)
            apart = score - usual
            apart_low, apart_high = stats.interval(apart, stats.mean, seed=0)
            lines.append({
                "game": game, "contestant": name, "score": float(score.mean()), "low": low,
                "high": high, "difference": float(apart.mean()), "difference_low": apart_low,
                "difference_high": apart_high, "deferred": _share(rows, games),
                "near": float(rows["near"][games][0]), "cut": int(rows["cut"][games].sum()),
                "episodes": int(games.sum()),
            })  # fmt: skip
    return Table({k: [r[k] for r in lines] for k in lines[0]}, "Atari: score of a game",
                 "\n".join(_notes(rows)))  # fmt: skip


def _share(rows: Rows, games: Any) -> float:
    """The share of all steps of these rows (a boolean mask) at which the policy deferred."""
    steps = rows["steps"][games].astype(float)
    return float((rows["deferred"][games] * steps).sum() / steps.sum())


def _notes(rows: Rows) -> list[str]:
    """The note of the table: its columns, and for each game the networks, the log and warnings."""
    notes = [
        "score: mean of whole games with fresh seeds, 95 % bootstrap; difference: to the behaviour "
        "with the same seeds; near: neighbours of a training point (games, where those count), "
        "median; cut: games stopped for their length."
    ]
    for game in dict.fromkeys(rows["game"].tolist()):
        here = np.flatnonzero(rows["game"] == game)
        first, ruled = here[0], here[rows["by_rule"][here].astype(bool)]
        steps = [int(rows[k][first]) for k in ("expert_steps", "medium_steps")]
        players = (
            f"expert trained for {steps[0]:,} steps, medium for {steps[1]:,}" if all(steps)
            else "UNTRAINED NETWORKS play both parts: this shows that the study runs, nothing else"
        )  # fmt: skip
        notes.append(
            f"{game}: {players}; learned from {int(rows['samples'][first]):,} decisions of "
            f"{int(rows['games_learned'][first])} games; radius by rule "
            f"{rows['radius'][ruled[0]]:.3g}."
        )
        rewarded = int(rows["rewarded"][first])
        if rewarded < FEW:
            warning = "NO REWARD" if not rewarded else f"REWARDS: {rewarded}"
            notes.append(
                f"{game}: {warning} IN THE LOG: returns tell next to nothing, and whoever seems to "
                "learn from them goes by counts and ties."
            )
    if bool(rows["quick"][0]):
        notes.append("QUICK VERSION: few decisions, short games; no conclusion may rest on it.")
    return notes


def brief(table: Table) -> Table:
    """The columns that fit on a screen.

    Args:
        table: A table that `summary` made.

    Returns:
        The same rows with fewer columns.

    Example:
        >>> names = ("game", "contestant", "score", "low", "high", "difference", "difference_low",
        ...          "difference_high", "deferred", "near")
        >>> "difference" in brief(Table({name: [0] for name in names})).columns
        False
    """
    names = ("game", "contestant", "score", "low", "high", "difference_low", "difference_high",
             "deferred", "near")  # fmt: skip
    return Table({n: table[n] for n in names}, table.caption, table.note)


def figure(rows: Rows) -> Any:
    """One panel per game: the mean scores of all contestants, with their intervals.

    Each learner has a line, on which its settings are side by side; hollow dots have the paper's
    radii. The dashed line is the score of the behaviour.

    Args:
        rows: The rows of all tasks of the study, one per game played, as columns.

    Returns:
        The matplotlib figure.

    Example:
        >>> same = {"game": "pong", "learner": "behaviour", "contestant": "behaviour", "near": 0,
        ...         "cut": 0, "by_rule": 1, "radius": 0.5, "expert_steps": 9, "medium_steps": 5,
        ...         "samples": 100, "games_learned": 3, "rewarded": 40, "quick": 0}
        >>> rows = {name: np.array([value, value]) for name, value in same.items()}
        >>> rows |= {"score": np.array([2.0, 4.0]), "deferred": np.ones(2),
        ...          "steps": np.array([10, 30])}
        >>> figure(rows).axes[0].get_title()
        'pong'
    """
    table = summary(rows)
    games = list(dict.fromkeys(table["game"]))
    figure, axes = plot.grid(1, len(games), width=3.4, height=0.6 + 0.4 * len(LEARNERS))
    looks = plot.style(LEARNERS)
    for axis, game in zip(axes[0], games, strict=True):
        for y, learner in enumerate(reversed(LEARNERS)):
            line = [r for r in table if r["game"] == game and family(r["contestant"]) == learner]
            for k, r in enumerate(line):
                at = y + 0.6 * ((k + 0.5) / len(line) - 0.5)
                colour = looks[learner]["color"]
                inside = "white" if ", r " in r["contestant"] else colour
                axis.plot([r["low"], r["high"]], [at, at], color=colour, linewidth=1)
                axis.plot(r["score"], at, "o", color=colour, markersize=3.5, mfc=inside)
        usual = [r for r in table if r["game"] == game and r["contestant"] == "behaviour"]
        axis.axvline(usual[0]["score"], color="#333333", lw=1, ls=(0, (4, 3)), zorder=1)
        axis.set_yticks(range(len(LEARNERS)), LEARNERS[::-1] if axis is axes[0, 0] else [])
        axis.set_ylim(-0.6, len(LEARNERS) - 0.4)  # the same lines in every panel
        axis.set_title(game)
        axis.set_xlabel("score")
    return figure
