"""The representation: sixteen numbers for what is on the screen.

    (picture - mean picture) / deviation → the convolutions of a Q-network → dense 512, rectified
        → dense 16·|A| → layer norm → tanh:   φ(s, a) in (-1, 1)^16,   φ(s) = mean over a of φ(s, a)

Without centring and scaling the pictures, an encoder may learn nothing at all. The paper does not
say for which objective the encoder is trained; there are three to choose from:

    return             φ(s, a) → G, the return that followed                       (squared error)
    return+dynamics    the same, and φ(s, a) → φ(s')           (+ squared error to a fixed target)
    inverse+cloning    φ(s), φ(s') → a, and φ(s) → a                          (two cross entropies)

G is standardised to mean 0 and deviation 1. Each arrow is an affine layer; that from φ(s), φ(s') to
a has 64 rectified units in between. `dprl_studies.atari.compare_objectives` measures for which
objective neighbours agree in value. The games on which an encoder is fitted to returns must not be
those from which a policy is learned: fit the encoder on some games and learn from the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.checks import check_whole
from dprl._core.table import Table
from dprl.errors import LogError, ParameterError, PlanError, PolicyError
from dprl.evidence.neighbors.metric import Metric
from dprl.learners.continuous import DPRLContinuous
from dprl.logs.encoding.features import plain_features
from dprl.logs.log import Log
from dprl.logs.reading.files import Progress
from dprl.logs.returns import returns
from dprl.policies.neighbors import NeighborPolicy
from dprl_studies.atari.collecting import Collection, Frames
from dprl_studies.atari.games import optional
from dprl_studies.atari.networks import (
    CHUNK,
    Arrays,
    Network,
    convolved,
    dense,
    first_weights,
    shapes,
)

# --- The representation: sixteen numbers for what is on the screen

SIZE, HIDDEN = 16, 64
"""Length of φ(s, a), and number of units of the hidden layer between φ(s), φ(s') and a."""

OBJECTIVES = ("return", "return+dynamics", "inverse+cloning")
"""The objectives that an encoder can be trained for."""


def embedded(torch: Any, w: Mapping[str, Any], seen: Any, n_actions: int) -> Any:
    """The representation φ(s, a).

    Args:
        torch: The module torch.
        w: Weights by name, as tensors.
        seen: Tensor (k, 4, 84, 84), the pictures, from 0 to 255.
        n_actions: Number of actions A.

    Returns:
        Tensor (k, A, 16), numbers between -1 and 1.
    """
    x = (seen.float() - w["mean"]) / w["deviation"]
    x = torch.relu(dense(torch, w, "e1", convolved(torch, w, x)))
    x = dense(torch, w, "e2", x)
    x = torch.nn.functional.layer_norm(x, x.shape[1:], w["norm.weight"], w["norm.bias"])
    return torch.tanh(x).reshape(-1, n_actions, SIZE)


@dataclass(frozen=True, eq=False)
class Encoder(Network):
    """A network that turns a picture into a state of 16 features; immutable.

    Attributes:
        weights: Name of a weight → float32 array; those of the layers, `norm.weight` and
            `norm.bias` (16·A,), `mean` (84, 84) and `deviation` ().
        about: Facts by name: the objective, the settings of `encode`, the first and the last loss.

    Raises:
        PolicyError: A weight is missing, has the wrong shape or is not finite.

    Example:
        >>> weights = first_weights(np.random.default_rng(0), {"e1": 512, "e2": 32})
        >>> one, mean = np.ones(32, np.float32), np.zeros((84, 84), np.float32)
        >>> weights |= {"norm.weight": one, "norm.bias": 0 * one}
        >>> weights |= {"mean": mean, "deviation": one[0]}
        >>> encoder = Encoder(weights, {"objective": "return"})
        >>> encoder.n_actions
        2
    """

    def __post_init__(self) -> None:
        A = len(np.asarray(self.weights.get("norm.bias", ()))) // SIZE
        wanted = {
            **shapes({"e1": 512, "e2": SIZE * A}), "norm.weight": (SIZE * A,),
            "norm.bias": (SIZE * A,), "mean": (84, 84), "deviation": (),
        }  # fmt: skip
        for name, shape in wanted.items():
            w = self.weights.get(name)
            if w is None or np.shape(w) != shape or not A or not np.isfinite(w).all():
                raise PolicyError(f"this is no encoder: {name!r} is missing or not {shape}.")

    @property
    def n_actions(self) -> int:
        """Number of actions A."""
        return len(self.weights["norm.bias"]) // SIZE

    def pairs(self, seen: NDArray[np.uint8]) -> Floats:
        """The representation φ(s, a) of pictures, with each action; needs torch.

        Args:
            seen: uint8 (k, 4, 84, 84), the pictures.

        Returns:
            float64 (k, A, 16), numbers between -1 and 1.

        Example:
            >>> weights = first_weights(np.random.default_rng(0), {"e1": 512, "e2": 32})
            >>> one, mean = np.ones(32, np.float32), np.zeros((84, 84), np.float32)
            >>> weights |= {"norm.weight": one, "norm.bias": 0 * one}
            >>> weights |= {"mean": mean, "deviation": one[0]}
            >>> encoder = Encoder(weights, {"objective": "return"})
            >>> encoder.pairs(np.zeros((3, 4, 84, 84), np.uint8)).shape  # doctest: +SKIP
            (3, 2, 16)
        """
        torch, w = self.ready
        phi = np.empty((len(seen), self.n_actions, SIZE))
        return self.through(seen, phi, lambda x: embedded(torch, w, x, self.n_actions))

    def states(self, seen: NDArray[np.uint8]) -> Floats:
        """The representation φ(s) of pictures, in which neighbours are searched; needs torch.

        Args:
            seen: uint8 (k, 4, 84, 84), the pictures.

        Returns:
            float64 (k, 16), numbers between -1 and 1.

        Example:
            >>> weights = first_weights(np.random.default_rng(0), {"e1": 512, "e2": 32})
            >>> one, mean = np.ones(32, np.float32), np.zeros((84, 84), np.float32)
            >>> weights |= {"norm.weight": one, "norm.bias": 0 * one}
            >>> weights |= {"mean": mean, "deviation": one[0]}
            >>> encoder = Encoder(weights, {"objective": "return"})
            >>> encoder.states(np.zeros((3, 4, 84, 84), np.uint8)).shape  # doctest: +SKIP
            (3, 16)
        """
        return np.asarray(self.pairs(seen).mean(axis=1))

    def points(self, frames: Frames, progress: Progress | None = None) -> Floats:
        """The representation φ(s) of every sample of a collection; needs torch.

        Args:
            frames: The pictures of the collection, N samples.
            progress: Called with the name of the stage and the share of it that is done. Default
                None.

        Returns:
            float64 (N, 16), numbers between -1 and 1.

        Example:
            >>> from dprl_studies.atari import QNetwork, collect
            >>> pair = QNetwork.random(6, seed=1), QNetwork.random(6, seed=2)
            >>> played = collect("pong", *pair, samples=64, copies=2)  # doctest: +SKIP
            >>> frames = played.frames()  # doctest: +SKIP
            >>> encoder = encode(played, frames, epochs=1, batch=32)  # doctest: +SKIP
            >>> encoder.points(frames).shape  # doctest: +SKIP
            (64, 16)
        """
        phi = np.empty((len(frames), SIZE))
        for i in range(0, len(frames), CHUNK):
            some = np.arange(i, min(i + CHUNK, len(frames)))
            phi[some] = self.states(frames.stacks(some))
            if progress is not None:
                progress("encoding", (i + len(some)) / len(frames))
        return phi


def encode(
    collection: Collection,
    frames: Frames,
    *,
    objective: str = "inverse+cloning",
    games: Bools | None = None,
    gamma: float = 0.99,
    epochs: int = 5,
    batch: int = 128,
    learning_rate: float = 3e-4,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Encoder:
    """Train an encoder on logged play; needs torch.

    Args:
        collection: The logged play: actions, rewards and ends.
        frames: The pictures of the collection.
        objective: What the encoder is trained for, one of `OBJECTIVES`. Default "inverse+cloning".
        games: bool (number of games,), which games to learn from. Default None: all.
        gamma: Discount of the returns per step. Default 0.99.
        epochs: Number of samples that are drawn, with replacement, as a multiple of the number of
            samples there are; at least 1. Default 5.
        batch: Number of samples per step of Adam, at least 1. Default 128.
        learning_rate: Learning rate of Adam. Default 3e-4.
        seed: Seed of the first weights and of the batches. Default 0.
        device: Where the encoder learns: "cpu" (default) or "cuda".
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The encoder.

    Raises:
        ParameterError: There is no such objective, or `epochs` or `batch` is below 1.
        PlanError: The loss is not finite.
        PackageError: torch is not installed.

    Example:
        >>> from dprl_studies.atari import QNetwork, collect
        >>> pair = QNetwork.random(6, seed=1), QNetwork.random(6, seed=2)
        >>> played = collect("pong", *pair, samples=64, copies=2)  # doctest: +SKIP
        >>> frames = played.frames()  # doctest: +SKIP
        >>> encoder = encode(played, frames, epochs=1, batch=32)  # doctest: +SKIP
        >>> encoder.n_actions, encoder.about["samples"]  # doctest: +SKIP
        (6, 64)
    """
    if objective not in OBJECTIVES:
        raise ParameterError(
            f"there is no objective {objective!r}.", do=f"Objectives: {', '.join(OBJECTIVES)}."
        )
    epochs, batch = check_whole("epochs", epochs, 1), check_whole("batch", batch, 1)
    torch = optional("torch", "torch")
    torch.set_num_threads(1)
    A, rng = int(collection.about["n_actions"]), np.random.default_rng(seed)
    keep = np.ones(len(frames), bool) if games is None else games[collection.games]
    rows = np.flatnonzero(keep)
    G = returns(collection.log(np.zeros((len(frames), 1))), gamma)
    G = (G - G[rows].mean()) / max(float(G[rows].std()), 1e-6)
    action = collection.column("action").astype(np.int64)
    fixed = _scaling(frames, rows, rng)
    first = {**first_weights(rng, {"e1": 512, "e2": SIZE * A}), **_heads(rng, A)}
    first["norm.weight"] = np.ones(SIZE * A, np.float32)
    first["norm.bias"] = np.zeros(SIZE * A, np.float32)
    w = {k: torch.tensor(v, device=device, requires_grad=True) for k, v in first.items()}
    still = {k: torch.tensor(v, device=device) for k, v in fixed.items()}
    adam = torch.optim.Adam(list(w.values()), lr=learning_rate)
    steps, losses = max(1, epochs * len(rows) // batch), []
    for step in range(steps):
        i = rng.choice(rows, batch)
        pictures = [  # channels last: a third faster on processors
            torch.from_numpy(frames.stacks(i, k)).to(device, memory_format=torch.channels_last)
            for k in (0, 1)
        ]
        rest = [torch.from_numpy(x).to(device) for x in (action[i], G[i].astype(np.float32))]
        loss = _loss(torch, {**w, **still}, objective, A, *pictures, *rest)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(float(loss.detach()))
        if progress is not None:
            progress(f"fitting {objective}", (step + 1) / steps)
    if not np.isfinite(losses).all():
        raise PlanError(
            f"the encoder's loss was not finite after {steps:,} steps.",
            do="Use a smaller learning_rate.",
        )
    few = max(1, min(20, steps // 4))
    trained = {k: v.detach().cpu().numpy().copy() for k, v in w.items() if not k.startswith("head")}
    about = {
        "objective": objective, "gamma": gamma, "epochs": epochs, "batch": batch, "seed": seed,
        "learning_rate": learning_rate, "samples": len(rows), "game": collection.about["game"],
        "first_loss": float(np.mean(losses[:few])), "last_loss": float(np.mean(losses[-few:])),
    }  # fmt: skip
    return Encoder({**trained, **fixed}, about)


def _scaling(frames: Frames, rows: Ints, rng: np.random.Generator) -> Arrays:
    """The mean (84, 84) of up to 4,000 pictures, and their deviation from it, at least 1."""
    some = rng.choice(rows, min(len(rows), 4_000), replace=False)
    pictures = frames.pixels[frames.copy[some], frames.step[some]].astype(np.float32)
    mean = pictures.mean(axis=0)
    return {"mean": mean, "deviation": np.float32(max(1.0, float((pictures - mean).std())))}


def _heads(rng: np.random.Generator, A: int) -> Arrays:
    """First weights of the layers that the objectives add; they are not part of the encoder."""
    sizes = {
        "return": (1, SIZE), "next": (SIZE, SIZE), "clone": (A, SIZE),
        "pair": (HIDDEN, 2 * SIZE), "inverse": (A, HIDDEN),
    }  # fmt: skip
    heads: Arrays = {}
    for name, (out, inputs) in sizes.items():
        bound = 1 / np.sqrt(inputs)
        heads[f"head-{name}.weight"] = rng.uniform(-bound, bound, (out, inputs)).astype(np.float32)
        heads[f"head-{name}.bias"] = np.zeros(out, np.float32)
    return heads


def _loss(
    torch: Any, w: Mapping[str, Any], objective: str, A: int, seen: Any, ahead: Any, a: Any, G: Any
) -> Any:
    """The loss of a batch of k samples.

    Args:
        torch: The module torch.
        w: Weights of the encoder and of the layers that the objectives add, as tensors by name.
        objective: One of `OBJECTIVES`.
        A: Number of actions.
        seen: Tensor (k, 4, 84, 84), the pictures before the action.
        ahead: Tensor (k, 4, 84, 84), the pictures after it.
        a: Tensor (k,), the actions.
        G: Tensor (k,), the standardised returns.

    Returns:
        The loss, a tensor of one number.
    """
    f = torch.nn.functional
    here = embedded(torch, w, seen, A)
    if objective == "inverse+cloning":
        both = torch.cat([here.mean(1), embedded(torch, w, ahead, A).mean(1)], dim=1)
        inverse = dense(torch, w, "head-inverse", torch.relu(dense(torch, w, "head-pair", both)))
        clone = dense(torch, w, "head-clone", here.mean(1))
        return f.cross_entropy(inverse, a) + f.cross_entropy(clone, a)
    taken = here[torch.arange(len(a), device=a.device), a]
    loss = f.mse_loss(dense(torch, w, "head-return", taken)[:, 0], G)
    if objective == "return+dynamics":
        with torch.no_grad():
            there = embedded(torch, w, ahead, A).mean(1)
        loss = loss + f.mse_loss(dense(torch, w, "head-next", taken), there)
    return loss


# --- Which objective of the encoder gives neighbours that agree in value?
#
# The games are split in three parts. The encoder is fitted on the first; states of the second are
# the neighbours, and their returns predict the returns of states of the third. For a state s of the
# third part, N(s) are the states of the second within the radius of
# `dprl_studies.atari.choose_radius` (for a pair, those with the same action). As in DPRL, s counts
# only if N(s) has at least 5 states:
#
#     agreement = 1 - ∑ (G(s) - mean of G over N(s))² / ∑ (G(s) - mean of G over the second part)²
#
# For a pair, the last mean is over states with the same action. The agreement is 1 if the
# neighbours predict each return exactly, 0 if they predict no better than that mean, and below 0 if
# they predict worse (n neighbours that know nothing give about -1/n). It is NaN if all returns are
# equal. Also measured are the share of states and pairs that have 5 neighbours, and the agreement
# with the k nearest states, however far they are.

ASKED, ENOUGH = 2_000, 5
"""Largest number of states whose return is predicted; smallest number of neighbours for that."""


def parts_of_games(n: int, shares: Sequence[float], seed: int) -> list[Bools]:
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
    G: Floats, near: list[Ints], asked: Floats,
    usual: Floats, least: int | None = None,
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


# --- The rule for the radius, and a control that shows how much of a gain is due to counting alone
#
# The radius is chosen from the learners' log, without looking at returns:
#
#     radius = median over states of the distance to the 30th nearest state of other games
#
# So half of the states have 30 neighbours, five for each of six actions. The study also reports
# the paper's radii, 1e-4 and 1e-3.
#
# `MostFrequent` has the same neighbours and threshold as DPRL and ignores the returns: it takes
# the most frequent action of the neighbours if at least n_min of them took it, else it defers.
# What DPRL gains beyond it is due to the comparison of returns; the rest is due to the majority
# vote among the actions of the mixture of players.

WANTED, LOOKED = 30, 500
"""Number of neighbours wanted, and number of states at which they are counted."""


def choose_radius(log: Log, enough: int = WANTED) -> float:
    """The median distance of a state to the `enough`-th nearest state of other games.

    Args:
        log: A log whose states are features and whose groups are games.
        enough: Number of neighbours that half of the states shall have, at least 1. Default 30.

    Returns:
        The radius, in the unit of the features.

    Raises:
        LogError: States are labels, or no state has so many states of other games.
        ParameterError: `enough` is below 1.

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(
        ...     episode=[0, 0, 1, 1], time=[0, 1, 0, 1], state=[[0.0], [1.0], [3.0], [4.0]],
        ...     action=["a", "b", "a", "b"], reward=[0, 1, 0, 1],
        ... )
        >>> choose_radius(log, enough=1)
        2.5
    """
    check_whole("enough", enough, 1)
    x, game = _states(log), np.repeat(log.group, log.lengths)
    reach = []
    for i in np.unique(np.linspace(0, len(x) - 1, LOOKED).astype(int)):
        apart = ((x[game != game[i]] - x[i]) ** 2).sum(axis=1)
        if len(apart) >= enough:
            reach.append(float(np.sqrt(np.partition(apart, enough - 1)[enough - 1])))
    if not reach:
        raise LogError(f"no state has {enough:,} states of other games: there is no radius.",
                       do="Collect more games.")  # fmt: skip
    return float(np.median(reach))


def _states(log: Log) -> Floats:
    """The features of a log, (N, d); refuses a log of labels."""
    if log.features is None:
        raise LogError("a radius needs states of features.")
    return plain_features(log)


def never_speaks(policy: NeighborPolicy) -> bool:
    """Whether a policy defers everywhere, since no state can have n_min neighbours of one action.

    If a state has n_min such neighbours within radius r, each of them has all of them within radius
    2r. So it is enough to count neighbours within 2r of the training points.

    Args:
        policy: A policy that `DPRLContinuous` learned.

    Returns:
        True if the policy defers at every possible state; False if that is not certain.

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(
        ...     episode=[0, 0, 1, 1], time=[0, 1, 0, 1], state=[[0.0], [1.0], [3.0], [4.0]],
        ...     action=["a", "b", "a", "b"], reward=[0, 1, 0, 1],
        ... )
        >>> never_speaks(dprl.DPRLContinuous(n_min=3, radius=0.1, gamma=1.0).fit(log))
        True
    """
    around = 2 * float(policy.parameters["radius"]) * (1 + 1e-9)
    counted = policy.returns_engine.evidence(policy.z, around, visits=policy.visits)
    return bool(counted.n_pair.max() < policy.n_min)


@dataclass(frozen=True, kw_only=True)
class MostFrequent:
    """A learner that counts the actions of neighbours and ignores their returns.

    Attributes:
        n_min: Number of neighbours that must have taken an action.
        radius: Largest distance of a neighbour, in the unit of the features.
        visits: "all" (default) counts every neighbour; "first" counts groups (games).

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(
        ...     episode=[0, 1, 2], time=[0, 0, 0], state=[[0.0], [0.1], [5.0]],
        ...     action=["a", "a", "b"], reward=[0, 1, 0],
        ... )
        >>> MostFrequent(n_min=2, radius=1.0).fit(log).choices(np.array([[0.0], [5.0]]))
        array([ 0, -1])
    """

    n_min: float
    radius: float
    visits: Literal["first", "all"] = "all"

    def fit(self, log: Log) -> Majority:
        """Prepare the neighbours of a log.

        Args:
            log: The training log; its states are features.

        Returns:
            The policy.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=[0, 1, 2], time=[0, 0, 0], state=[[0.0], [0.1], [5.0]],
            ...     action=["a", "a", "b"], reward=[0, 1, 0],
            ... )
            >>> MostFrequent(n_min=1, radius=1.0).fit(log).choices(np.array([[5.0]]))
            array([1])
        """
        near = DPRLContinuous(
            n_min=self.n_min, radius=self.radius, gamma=1.0, metric=Metric(scale="none"),
            visits=self.visits, contrast=False, plan=False, cut="terminal",
        )  # fmt: skip
        return Majority(near.fit(log))


@dataclass(frozen=True, eq=False)
class Majority:
    """The policy of `MostFrequent`: the most frequent action among the neighbours.

    Attributes:
        near: The policy whose neighbours and n_min are used; its returns are not.

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(
        ...     episode=[0, 1, 2], time=[0, 0, 0], state=[[0.0], [0.1], [5.0]],
        ...     action=["a", "a", "b"], reward=[0, 1, 0],
        ... )
        >>> MostFrequent(n_min=2, radius=1.0).fit(log).near.n_min
        2.0
    """

    near: NeighborPolicy

    def choices(self, x: Floats) -> Ints:
        """The most frequent action near each state.

        Args:
            x: float64 (k, d), the states.

        Returns:
            int64 (k,), the action (the lowest among equals), or -1 for DEFER.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=[0, 1, 2], time=[0, 0, 0], state=[[0.0], [0.1], [5.0]],
            ...     action=["a", "a", "b"], reward=[0, 1, 0],
            ... )
            >>> MostFrequent(n_min=2, radius=1.0).fit(log).choices(np.array([[0.0]]))
            array([0])
        """
        counted, _ = self.near.allowed_at(np.asarray(x, np.float64), None)
        n = counted.n_pair
        return np.where(n.max(axis=1) >= self.near.n_min, n.argmax(axis=1), -1)
