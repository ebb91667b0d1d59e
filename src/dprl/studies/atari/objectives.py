r"""Which objective gives neighbours that agree in value?

Games are split in three: the encoder is fitted on the first part, the returns that vote come from
the second, and the third asks. For a state s of the third part, N(s) are the states of the second
within the radius of `dprl.studies.atari.choose_radius`, taken where there are 5 of them (of the
same action for a pair), as DPRL would:

    agreement = 1 - ∑ (G(s) - mean of G over N(s))² / ∑ (G(s) - mean of all voting G)²

1 where neighbours tell a state's return, 0 where they tell no more than the mean of all, below 0
where they mislead (n neighbours that tell nothing give about -1/n), NaN where all returns are
equal. Beside it: the share of states and pairs that had enough, and the same with the k nearest
states however far they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.table import Table
from dprl.errors import LogError
from dprl.logs._files import Progress
from dprl.logs.log import Log
from dprl.logs.returns import returns
from dprl.studies.atari.collecting import Collection, Frames
from dprl.studies.atari.controls import choose_radius
from dprl.studies.atari.encoding import OBJECTIVES, encode

__all__ = ["agreement", "compare_objectives", "parts_of_games"]

ASKED, ENOUGH = 2_000, 5
"""States that ask, at most; neighbours that may answer, at least."""


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
    radius, game = choose_radius(voting), np.repeat(voting.group, voting.lengths)
    tree = cKDTree(voters)
    _, nearest = tree.query(askers[some], min(k, len(voters)))
    near = [np.asarray(rows, np.int64) for rows in tree.query_ball_point(askers[some], radius)]
    same = [
        rows[voting.action[rows] == asking.action[i]] for rows, i in zip(near, some, strict=True)
    ]
    of_action = np.array([G[voting.action == a].mean() if (voting.action == a).any() else math.nan
                          for a in range(voting.n_actions)])  # fmt: skip
    return {
        "state": _told(G, near, asked[some], np.full(len(some), G.mean())),
        "pair": _told(G, same, asked[some], of_action[asking.action[some]]),
        "nearest": _told(G, list(nearest.reshape(len(some), -1)), asked[some],
                         np.full(len(some), G.mean()), 1),
        "radius": radius,
        "neighbors": float(np.median([len(rows) for rows in near])),
        "games": float(np.median([len(np.unique(game[rows])) for rows in near])),
        "states_with_5": float(np.mean([len(rows) >= ENOUGH for rows in near])),
        "pairs_with_5": float(np.mean([len(rows) >= ENOUGH for rows in same])),
    }  # fmt: skip


def _told(
    G: NDArray[np.float64], near: list[NDArray[np.int64]], asked: NDArray[np.float64],
    usual: NDArray[np.float64], least: int | None = None,
) -> float:  # fmt: skip
    """What the neighbours' mean return tells of the returns asked, where there are enough."""
    enough = [i for i, rows in enumerate(near) if len(rows) >= (least or ENOUGH)]
    votes = np.array([G[near[i]].mean() for i in enough])
    wrong = float(((asked[enough] - votes) ** 2).sum())
    return _share(wrong, float(((asked[enough] - usual[enough]) ** 2).sum()))


def _share(wrong: float, spread: float) -> float:
    """What is told of a spread; NaN where there is nothing to tell."""
    return 1 - wrong / spread if spread > 0 else math.nan


def compare_objectives(
    collection: Collection,
    frames: Frames,
    *,
    objectives: Sequence[str] = OBJECTIVES,
    k: int = 30,
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
        k: Neighbours that vote, however far.
        gamma: Discount of the returns.
        seed: Seed of the split, the encoders and the states that ask.
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
        numbers = agreement(voting, asking, k=k, gamma=gamma, seed=seed)
        rows.append({"objective": objective, **numbers})
    return Table(
        {name: [row[name] for row in rows] for name in rows[0]},
        f"{collection.about['game']}: do neighbours agree in value? "
        f"{collection.samples:,} samples, {int(collection.games.max()) + 1} games, k = {k}",
        note="state, pair: share of the spread of returns told by the neighbours within the radius "
        "(of the same action), where there are 5, on games neither the encoder nor the voters come "
        "from; nearest: by the k nearest states; "
        "neighbors, games: within the radius, median; *_with_5: share that had 5.",
    )
