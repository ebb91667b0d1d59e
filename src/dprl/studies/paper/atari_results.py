"""The Atari study's table and figure."""

from __future__ import annotations

from typing import Any

import numpy as np

from dprl._core import plot
from dprl._core.table import Table
from dprl.evaluation import stats
from dprl.studies.harness import Row, Rows
from dprl.studies.paper.atari_grid import LEARNERS, family

__all__ = ["brief", "figure", "summary"]

FEW = 30
"""Rewarded decisions below which a log is called poor."""


def summary(rows: Rows) -> Table:
    """A row a contestant: score, difference to the behaviour game by game, how often it defers."""
    found: list[Row] = []
    behavior = {
        g: rows["score"][(rows["game"] == g) & (rows["learner"] == "behaviour")]
        for g in dict.fromkeys(rows["game"].tolist())
    }
    for game, usual in behavior.items():
        here = rows["game"] == game
        for name in dict.fromkeys(rows["contestant"][here].tolist()):
            some = here & (rows["contestant"] == name)
            score = rows["score"][some]
            low, high = stats.interval(score, stats.mean, seed=0)
            apart = score - usual
            apart_low, apart_high = stats.interval(apart, stats.mean, seed=0)
            found.append({
                "game": game, "contestant": name, "score": float(score.mean()), "low": low,
                "high": high, "difference": float(apart.mean()), "difference_low": apart_low,
                "difference_high": apart_high, "deferred": _share(rows, some),
                "near": float(rows["near"][some][0]), "cut": int(rows["cut"][some].sum()),
                "episodes": int(some.sum()),
            })  # fmt: skip
    return Table({k: [r[k] for r in found] for k in found[0]}, "Atari: score of a game",
                 "\n".join(_notes(rows)))  # fmt: skip


def _share(rows: Rows, some: Any) -> float:
    """The share of all steps that were left to the behaviour."""
    steps = rows["steps"][some].astype(float)
    return float((rows["deferred"][some] * steps).sum() / steps.sum())


def _notes(rows: Rows) -> list[str]:
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
            said = "NO REWARD" if not rewarded else f"REWARDS: {rewarded}"
            notes.append(
                f"{game}: {said} IN THE LOG: returns tell next to nothing, and whoever seems to "
                "learn from them goes by counts and ties."
            )
    if bool(rows["quick"][0]):
        notes.append("QUICK VERSION: few decisions, short games; no conclusion may rest on it.")
    return notes


def brief(table: Table) -> Table:
    """What fits a screen."""
    names = ("game", "contestant", "score", "low", "high", "difference_low", "difference_high",
             "deferred", "near")  # fmt: skip
    return Table({n: table[n] for n in names}, table.caption, table.note)


def figure(rows: Rows) -> Any:
    """A panel a game: a line a learner, its settings beside each other, the behaviour dashed.

    Hollow dots: the paper's radii.
    """
    table = summary(rows)
    games = list(dict.fromkeys(table["game"]))
    figure, axes = plot.grid(1, len(games), width=3.4, height=0.6 + 0.4 * len(LEARNERS))
    looks = plot.style(LEARNERS)
    for axis, game in zip(axes[0], games, strict=True):
        for y, learner in enumerate(reversed(LEARNERS)):
            some = [r for r in table if r["game"] == game and family(r["contestant"]) == learner]
            for k, r in enumerate(some):
                at = y + 0.6 * ((k + 0.5) / len(some) - 0.5)
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
