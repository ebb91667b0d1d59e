r"""Which objective of the encoder gives neighbours that agree in value?

The games are split in three parts. The encoder is fitted on the first; states of the second are the
neighbours, and their returns predict the returns of states of the third. For a state s of the third
part, N(s) are the states of the second within the radius of `dprl_studies.atari.choose_radius` (for
a pair, those with the same action). As in DPRL, s counts only if N(s) has at least 5 states:

    agreement = 1 - ∑ (G(s) - mean of G over N(s))² / ∑ (G(s) - mean of G over the second part)²

For a pair, the last mean is over states with the same action. The agreement is 1 if the neighbours
predict each return exactly, 0 if they predict no better than that mean, and below 0 if they predict
worse (n neighbours that know nothing give about -1/n). It is NaN if all returns are equal. Also
measured are the share of states and pairs that have 5 neighbours, and the agreement with the k
nearest states, however far they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.table import Table
from dprl.errors import LogError
from dprl.logs._feature_input import plain_features
from dprl.logs._files import Progress
from dprl.logs.log import Log
from dprl.logs.returns import returns
from dprl_studies.atari.collecting import Collection, Frames
from dprl_studies.atari.controls import choose_radius
from dprl_studies.atari.encoding import OBJECTIVES, encode

__all__ = ["agreement", "compare_objectives", "parts_of_games"]

ASKED, ENOUGH = 2_000, 5
"""Largest number of states whose return is predicted; smallest number of neighbours for that."""


def parts_of_games(n: int, shares: Sequence[float], seed: int) -> list[NDArray[np.bool_]]:
    """Split games at random into parts, none of which is empty.

    Args:
        n: Number of games.
        shares: The share of each part; the last part takes the rest.
        seed: Seed of the split.

    Returns:
        For each part, bool (n,): whether a game belongs to it.

    Raises:
        LogError: There are fewer games than parts.

    Example:
        >>> [int(part.sum()) for part in parts_of_games(10, (0.5, 0.2, 0.3), seed=0)]
        [5, 2, 3]
    """
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
    """How well the returns of neighbours in one log predict the returns of states in another.

    Args:
        voting: The log that the neighbours come from; its states are features.
        asking: The log with the states whose returns are predicted, at most 2,000 of them.
        k: Number of nearest states for the entry "nearest".
        gamma: Discount of the returns per step.
        seed: Seed of the choice of states of `asking`. Default 0.

    Returns:
        state, pair and nearest: the agreement with the neighbours within the radius, with those of
        the same action, and with the k nearest states. radius: the radius, in the unit of the
        features. neighbors and games: the median number of neighbours within the radius, and of
        games they come from. states_with_5 and pairs_with_5: the share of states and pairs that
        have at least 5 neighbours.

    Raises:
        LogError: States are labels, or there are too few games to choose a radius.

    Example:
        >>> import dprl
        >>> x = np.arange(80.0)
        >>> voting, asking = (
        ...     dprl.from_arrays(
        ...         episode=np.arange(80), state=(x + shift)[:, None], action=["a"] * 80, reward=x
        ...     )
        ...     for shift in (0.0, 0.5)
        ... )
        >>> round(agreement(voting, asking, k=2, gamma=1.0)["nearest"], 3)
        1.0
    """
    from scipy.spatial import cKDTree

    voters, askers = plain_features(voting), plain_features(asking)
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
        "state": _explained(G, near, asked[some], np.full(len(some), G.mean())),
        "pair": _explained(G, same, asked[some], of_action[asking.action[some]]),
        "nearest": _explained(G, list(nearest.reshape(len(some), -1)), asked[some],
                              np.full(len(some), G.mean()), 1),
        "radius": radius,
        "neighbors": float(np.median([len(rows) for rows in near])),
        "games": float(np.median([len(np.unique(game[rows])) for rows in near])),
        "states_with_5": float(np.mean([len(rows) >= ENOUGH for rows in near])),
        "pairs_with_5": float(np.mean([len(rows) >= ENOUGH for rows in same])),
    }  # fmt: skip


def _explained(
    G: NDArray[np.float64], near: list[NDArray[np.int64]], asked: NDArray[np.float64],
    usual: NDArray[np.float64], least: int | None = None,
) -> float:  # fmt: skip
    """The share of the spread of returns that the neighbours' mean return explains.

    Args:
        G: float64 (N,), the returns of the log that the neighbours come from.
        near: The neighbours of each of k states, as rows of that log.
        asked: float64 (k,), the returns of these states.
        usual: float64 (k,), the predictions without neighbours, which the spread is measured from.
        least: Number of neighbours that a state needs in order to count. Default None: 5.

    Returns:
        The share; NaN if the spread is 0.
    """
    enough = [i for i, rows in enumerate(near) if len(rows) >= (least or ENOUGH)]
    votes = np.array([G[near[i]].mean() for i in enough])
    wrong = float(((asked[enough] - votes) ** 2).sum())
    return _share(wrong, float(((asked[enough] - usual[enough]) ** 2).sum()))


def _share(wrong: float, spread: float) -> float:
    """The share of a sum of squares `spread` that is not left in `wrong`; NaN if there is none."""
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
    """Compare objectives of the encoder: for which of them do neighbours agree in value?

    For each objective an encoder is fitted on a third of the games and measured on the others, as
    the docstring of the module describes. Needs torch.

    Args:
        collection: The logged play: actions, rewards and ends.
        frames: The pictures of the collection.
        objectives: The objectives to compare. Default: all of `OBJECTIVES`.
        k: Number of nearest states for the column "nearest". Default 30.
        gamma: Discount of the returns per step. Default 0.99.
        seed: Seed of the split, of the encoders and of the choice of states. Default 0.
        progress: Called with the name of the stage and the share of it that is done. Default None.
        **fitting: Further arguments of `encode`, such as epochs=2.

    Returns:
        A table with one row per objective: its name, and the numbers of `agreement`.

    Raises:
        ParameterError: There is no such objective, or `epochs` or `batch` is below 1.
        LogError: There are fewer than 3 games, or too few to choose a radius.
        PlanError: The loss of an encoder is not finite.
        PackageError: torch is not installed.

    Example:
        >>> from dprl_studies.atari import QNetwork, collect
        >>> pair = QNetwork.random(6, seed=1), QNetwork.random(6, seed=2)
        >>> played = collect("pong", *pair, samples=600, copies=6)  # doctest: +SKIP
        >>> table = compare_objectives(
        ...     played, played.frames(), objectives=("return",), epochs=1
        ... )  # doctest: +SKIP
        >>> table["objective"]  # doctest: +SKIP
        ['return']
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
