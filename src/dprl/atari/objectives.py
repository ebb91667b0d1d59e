r"""Which objective gives neighbours that agree in value?

Games are split in three: the encoder is fitted on the first part, the returns that vote come from
the second, and the third asks. For a state s of the third part, N_k(s) are its k nearest of the
second (those of the same action for Q):

    agreement = 1 - ∑ (G(s) - mean of G over N_k(s))² / ∑ (G(s) - mean of all voting G)²

1 where neighbours tell a state's return, 0 where they tell no more than the mean of all, below 0
where they mislead, NaN where all returns are equal. It does not depend on the scale of a
representation. Beside it: the radius of `dprl.atari.choose_radius`, the games that lie within it,
and the share of states that find none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.atari.collecting import Collection, Frames
from dprl.atari.controls import choose_radius, step_radius
from dprl.atari.encoding import OBJECTIVES, encode
from dprl.errors import LogError
from dprl.files import Progress
from dprl.log import Log
from dprl.returns import returns
from dprl.table import Table

__all__ = ["agreement", "compare_objectives", "parts_of_games"]

ASKED = 2_000
"""States that ask, at most."""


def parts_of_games(n: int, shares: Sequence[float], seed: int) -> list[NDArray[np.bool_]]:
    """n games in parts of these shares (the last takes the rest), bool (n,) each, none empty."""
    if n < len(shares):
        raise LogError(f"{n} games cannot be split in {len(shares)} parts.", do="Collect more.")
    order = np.random.default_rng([seed, n]).permutation(n)
    edges = [*np.rint(np.cumsum([0.0, *shares[:-1]]) * n).astype(int).tolist(), n]
    for i in range(1, len(shares)):
        edges[i] = min(max(edges[i], edges[i - 1] + 1), n - (len(shares) - i))
    parts = [np.zeros(n, bool) for _ in shares]
    for part, low, high in zip(parts, edges[:-1], edges[1:], strict=True):
        part[order[low:high]] = True
    return parts


def agreement(voting: Log, asking: Log, *, k: int, gamma: float, seed: int = 0) -> dict[str, float]:
    """How well neighbours in `voting` tell the returns of states in `asking`."""
    from scipy.spatial import cKDTree

    voters, askers = np.asarray(voting.features), np.asarray(asking.features)
    G, asked = returns(voting, gamma), returns(asking, gamma)
    rng = np.random.default_rng(seed)
    some = np.sort(rng.choice(len(askers), min(ASKED, len(askers)), replace=False))
    spread = float(((asked[some] - G.mean()) ** 2).sum())
    apart, near = cKDTree(voters).query(askers[some], min(k, len(voters)))
    told = G[near.reshape(len(some), -1)].mean(axis=1)
    wrong_pair, spread_pair = 0.0, 0.0
    for a in range(voting.n_actions):
        rows = np.flatnonzero(voting.action == a)
        own = some[asking.action[some] == a]
        if not len(rows) or not len(own):
            continue
        _, close = cKDTree(voters[rows]).query(askers[own], min(k, len(rows)))
        means = G[rows][close.reshape(len(own), -1)].mean(axis=1)
        wrong_pair += float(((asked[own] - means) ** 2).sum())
        spread_pair += float(((asked[own] - G[rows].mean()) ** 2).sum())
    radius = choose_radius(voting)
    lists = cKDTree(voters).query_ball_point(askers[some], radius)
    game = np.repeat(voting.group, voting.lengths)
    games = [len(np.unique(game[rows])) for rows in lists]
    return {
        "state": _share(float(((asked[some] - told) ** 2).sum()), spread),
        "pair": _share(wrong_pair, spread_pair),
        "kth_distance": float(np.median(apart.reshape(len(some), -1)[:, -1])),
        "step": step_radius(voting),
        "radius": radius,
        "neighbors": float(np.median([len(rows) for rows in lists])),
        "games": float(np.median(games)),
        "alone": float(np.mean([len(rows) == 0 for rows in lists])),
    }


def _share(wrong: float, spread: float) -> float:
    """What is told of a spread; NaN where there is nothing to tell."""
    return 1 - wrong / spread if spread > 0 else math.nan


def compare_objectives(
    collection: Collection,
    frames: Frames,
    *,
    objectives: Sequence[str] = OBJECTIVES,
    k: int = 10,
    gamma: float = 0.99,
    seed: int = 0,
    progress: Progress | None = None,
    **fitting: Any,
) -> Table:
    """A row an objective: whose neighbours agree in value.

    Args:
        collection: What was done, and what came of it.
        frames: Its pictures.
        objectives: Which to compare.
        k: Neighbours that vote.
        gamma: Discount of the returns.
        seed: Of the split, the encoders and the states that ask.
        progress: Called with the stage's name and the share of it that is done.
        fitting: As `encode` takes them.
    """
    thirds = parts_of_games(int(collection.games.max()) + 1, (1 / 3, 1 / 3, 1 / 3), seed)
    rows = []
    for objective in objectives:
        encoder = encode(
            collection, frames, objective=objective, games=thirds[0], gamma=gamma, seed=seed,
            progress=progress, **fitting,
        )  # fmt: skip
        points = encoder.points(frames)
        voting, asking = (collection.log(points, part) for part in thirds[1:])
        found = agreement(voting, asking, k=k, gamma=gamma, seed=seed)
        rows.append({"objective": objective, **found})
    return Table(
        {name: [row[name] for row in rows] for name in rows[0]},
        f"{collection.about['game']}: do neighbours agree in value? "
        f"{collection.samples:,} samples, {int(collection.games.max()) + 1} games, k = {k}",
        note="state, pair: share of the spread of returns told by the k nearest states (of the "
        "same action), on games neither the encoder nor the voters come from; step: median "
        "distance of consecutive states; radius: by rule; neighbors, games: within it, median; "
        "alone: none within.",
    )
