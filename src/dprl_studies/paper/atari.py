"""The Atari study: DPRL for features and other learners, on a representation of the screen.

For each game 100,000 decisions of a mixture of two players are logged: the expert's action with
probability .5, else the medium player's. The representation is learned from a third of the games.
All learners learn from the other two thirds, with the signs of the rewards, and then play 20 games
with new seeds. Where a policy defers, the mixture acts. See `dprl_studies.atari`.

`DPRL paper` is the paper's rule: every neighbour counts, without contrast. `DPRL contrast` counts
games instead of single neighbours and asks for contrast. `DPRL gate` makes only the changes that
are certified at δ = .05, for returns within ±1/(1-γ) (from 0 in games without negative rewards).
`planned` variants plan over many decisions. `count only` uses the same neighbours and ignores their
returns: only what DPRL gains beyond it is due to the returns.

Forests have the paper's 100 trees, and 10 iterations (the default of `dprl.learners.baselines` is
50); CQL takes 10,000 steps.

N(s,a) is counted with the representation of the state, not of the pair as in the paper's table: a
policy over features has one space for all actions, and on held-out games the neighbours of pairs
explain about as much of the returns (see the docs).
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from dprl._core import plot
from dprl._core.table import Table
from dprl.errors import ParameterError
from dprl.evaluation import stats
from dprl.evidence.neighbors.metric import Metric
from dprl.learners.continuous import DPRLContinuous
from dprl.learners.rules.learner import Rules
from dprl.logs.log import Log
from dprl.logs.reading.files import Progress
from dprl.logs.reading.tables import Row, Rows
from dprl_studies.atari import collecting, encoding, playing
from dprl_studies.atari import games as arcade
from dprl_studies.atari import networks as nets
from dprl_studies.atari.collecting import Collection, collect
from dprl_studies.atari.encoding import (
    Encoder,
    MostFrequent,
    choose_radius,
    encode,
    never_speaks,
    parts_of_games,
)
from dprl_studies.atari.games import GAMES, LONGEST, Games, first_seed, optional
from dprl_studies.atari.networks import QNetwork, read_arrays, write_arrays
from dprl_studies.atari.playing import Judge, Mixture, Player, Represented, Track, silent
from dprl_studies.harness import Experiment, Setting, by

GAMMA, DELTA, TAUGHT, OBJECTIVE = 0.99, 0.05, 1 / 3, "inverse+cloning"
QUICK = {"samples": 5_000, "episodes": 2, "epochs": 3, "longest": 4_000, "trees": 10, "backups": 5,
         "steps": 1_000}  # fmt: skip
FULL = {"samples": 100_000, "episodes": 20, "epochs": 5, "longest": LONGEST, "trees": 100,
        "backups": 10, "steps": 10_000}  # fmt: skip
NEVER_LOSE = ("qbert", "freeway", "bowling", "amidar")
"""The games without negative rewards."""

LOOKED = 500
"""Number of training points at which neighbours are counted, for the table."""


# -- contestants: learners, their settings, and their names ---------------------------------------

N_MIN, PAPER_RADII = (5, 10, 30), (1e-3, 1e-4)
DPRL = tuple(f"DPRL {rule}{plan}" for rule in ("paper", "contrast", "gate")
             for plan in ("", " planned"))  # fmt: skip
"""The six variants of DPRL: the rule for decision points, with and without planning."""

COUNTS = ("count only", "count only by game")
"""Controls that count how often an action was taken nearby and ignore the returns."""

LEARNERS = (
    "behaviour", "expert", "medium", *DPRL, *COUNTS, "SPIBB", "PQI", "CQL", "BC",
    "Rules",
)  # fmt: skip


def contestants(learner: str, quick: bool, by_rule: bool = True) -> list[Setting]:
    """The settings with which a learner takes part.

    Args:
        learner: One of `LEARNERS`.
        quick: Whether to take one setting only.
        by_rule: Whether to take the settings with the radius of `dprl.atari.choose_radius` (or
            without radius). Default True; False takes those with the paper's radii.

    Returns:
        The settings, each a dict of the learner's arguments; radius "rule" is replaced by a number
        later. Empty if the learner has no settings of this kind.

    Example:
        >>> contestants("SPIBB", quick=True)
        [{'n_min': 5, 'radius': 'rule'}]
        >>> contestants("SPIBB", quick=True, by_rule=False)
        []
    """
    n_min, radii = ((5,) if quick else N_MIN), (("rule",) if by_rule else PAPER_RADII)
    if learner in DPRL or learner in COUNTS:
        return [{"n_min": n, "radius": r} for r in radii for n in n_min]
    if not by_rule:
        return []
    if learner == "SPIBB":
        return [{"n_min": n, "radius": "rule"} for n in n_min]
    if learner == "PQI":
        return [{"b": b, "radius": "rule"} for b in ((1e-3,) if quick else (1e-4, 1e-3, 1e-2))]
    if learner == "CQL":
        return [{"alpha": a} for a in ((1e-2,) if quick else (1e-4, 1e-2, 1e-1))]
    return [{}]


def label(learner: str, options: Setting) -> str:
    """The name of a contestant in tables and figures.

    Args:
        learner: One of `LEARNERS`.
        options: One of the settings of `contestants`.

    Returns:
        The learner and its settings; the radius is named only if it is the paper's.

    Example:
        >>> label("SPIBB", {"n_min": 5, "radius": "rule"})
        'SPIBB, n_min 5'
    """
    parts = [learner, *(f"{k} {options[k]:g}" for k in ("n_min", "b", "alpha") if k in options)]
    if options.get("radius", "rule") != "rule":
        parts.append(f"r {options['radius']:g}")
    return ", ".join(parts)


def family(contestant: str) -> str:
    """The learner that a label names.

    Args:
        contestant: A label that `label` made.

    Returns:
        One of `LEARNERS`.

    Example:
        >>> family("SPIBB, n_min 5")
        'SPIBB'
    """
    return contestant.partition(",")[0]


# -- prepared once per game -----------------------------------------------------------------------


def networks(game: str, experts: Path | None, quick: bool, seed: int) -> tuple[QNetwork, QNetwork]:
    """The networks of the expert and of the medium player of a game.

    They are read from the folder `experts`. Without a folder, the quick version of the study takes
    two untrained networks that follow from `seed`.
    """
    if experts is None:
        if not quick:
            raise ParameterError(
                "the Atari study needs a folder of trained networks.",
                do="Name it: --experts FOLDER, with GAME_expert.npz (or GAME_last.npz) and "
                "GAME_medium.npz; dprl_studies.atari.train_dqn makes them. --quick does without.",
            )
        games = Games(game, 1)
        games.close()
        return tuple(QNetwork.random(games.n_actions, 2 * seed + i, game=game) for i in (0, 1))  # type: ignore[return-value]
    best = next((experts / f"{game}_{n}.npz" for n in ("expert", "last")
                 if (experts / f"{game}_{n}.npz").is_file()), None)  # fmt: skip
    if best is None or not (experts / f"{game}_medium.npz").is_file():
        missing = "expert" if best is None else "medium"
        raise ParameterError(
            f"{str(experts)!r} holds no {missing} network of {game}.",
            f"{game}_{missing}.npz",
            "dprl_studies.atari.train_dqn makes both.",
        )
    pair = QNetwork.load(best), QNetwork.load(experts / f"{game}_medium.npz")
    for network, path in zip(pair, (best, experts / f"{game}_medium.npz"), strict=True):
        if network.about.get("game", game) != game:  # games may have as many actions
            raise ParameterError(
                f"{str(path)!r} is a network of another game.",
                f"{network.about['game']}, wanted {game}",
                "Name files by the game they were trained on.",
            )
    return pair


def prepare(
    game: str, folder: Path, pair: tuple[QNetwork, QNetwork], size: dict[str, int], seed: int,
    progress: Progress | None,
) -> Setting:  # fmt: skip
    """Prepare one game: play for a log, learn the representation, compute every sample's state.

    Files that an earlier call wrote into `folder` for the same question are used again. `pair` are
    the expert and the medium network, `size` the numbers of `QUICK` or `FULL`. Returns what the
    tasks of this game need: paths, a digest of the files, and how long the networks were trained.
    """
    place = folder / game
    place.mkdir(parents=True, exist_ok=True)
    played = collect(
        game, *pair, samples=size["samples"], seed=seed, path=place / "collection.npz",
        progress=progress,
    )  # fmt: skip
    # Not before: `collect` refuses networks a collection was not begun with.
    for name, network in zip(("expert", "medium"), pair, strict=True):
        path = place / f"{name}.npz"
        if not path.exists() or QNetwork.load(path).digest() != network.digest():
            network.save(path)
    collection = hashlib.sha256((place / "collection.npz").read_bytes()).hexdigest()
    teach = taught(played, seed)
    question = {"collection": collection, "objective": OBJECTIVE, "epochs": size["epochs"],
                "seed": seed, "taught": np.flatnonzero(teach).tolist(), "gamma": GAMMA,
                "code": _code(collecting, encoding, nets)}  # fmt: skip
    points = place / "points.npz"
    if not _placed(place, question):
        frames = played.frames(progress=progress)
        encoder = encode(
            played, frames, objective=OBJECTIVE, games=teach, gamma=GAMMA,
            epochs=size["epochs"], seed=seed, progress=progress,
        )  # fmt: skip
        encoder.save(place / "encoder.npz")
        write_arrays(points, {"points": encoder.points(frames, progress)},
                     {"question": question, "encoder": encoder.digest()})  # fmt: skip
    digest = hashlib.sha256(points.read_bytes() + collection.encode())
    return {
        "game": game, "folder": str(place.resolve()), "digest": digest.hexdigest(),
        "expert_steps": int(pair[0].about.get("step", 0)),
        "medium_steps": int(pair[1].about.get("step", 0)),
    }  # fmt: skip


def _placed(place: Path, question: Setting) -> bool:
    """Whether the folder holds the states for this question, and the encoder that made them."""
    if not all((place / name).exists() for name in ("points.npz", "encoder.npz")):
        return False
    about = read_arrays(place / "points.npz")[1]
    if about.get("question") != question:
        return False
    return about.get("encoder") == Encoder.load(place / "encoder.npz").digest()


def _code(*modules: ModuleType) -> str:
    """SHA-256 of the source of these modules; a file made with other code is made again."""
    parts = (Path(m.__file__ or "").read_bytes() for m in modules)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def taught(played: Collection, seed: int) -> Any:
    """bool (number of games,): the games that the representation is learned from.

    The learners learn from the other games.
    """
    shares = (TAUGHT, 1 - TAUGHT)
    return parts_of_games(int(played.games.max()) + 1, shares, seed)[0]


# -- tasks ----------------------------------------------------------------------------------------


def settings(quick: bool, seed: int, *, about: Sequence[Setting]) -> Sequence[Setting]:
    """One task per game and learner with the radius by rule, then one with the paper's radii.

    `about` holds what `prepare` returned for each game; `quick` leaves out the paper's radii.
    """
    size = QUICK if quick else FULL
    return [
        {**one, "learner": learner, "by_rule": by_rule, "quick": quick, "seed": seed, **size}
        for by_rule in ((True,) if quick else (True, False))
        for one in about
        for learner in LEARNERS
        if contestants(learner, quick, by_rule)
    ]


def run(setting: Setting) -> list[Row]:
    """The rows of one task: learn with every setting of one learner, and play with each policy."""
    place, game, name = Path(setting["folder"]), setting["game"], setting["learner"]
    optional("torch", "torch").set_num_threads(1)
    mixture = Mixture(*(QNetwork.load(place / f"{n}.npz") for n in ("expert", "medium")))
    encoder = Encoder.load(place / "encoder.npz")
    played = Collection.load(place / "collection.npz")
    x = read_arrays(place / "points.npz")[0]["points"]
    log = played.log(x, ~taught(played, setting["seed"]))
    rule = choose_radius(log)
    how = {"episodes": setting["episodes"], "seed": setting["seed"]}
    make = functools.partial(Games, longest=setting["longest"])
    policies = fitted(name, log, rule, setting)
    with Judge(mixture, game, encoder=encoder, make=make, **how) as judge:
        # Many contestants do mostly what the behaviour does: it is played once, and remembered.
        asked = {**how, "longest": setting["longest"], "digest": setting["digest"],
                 "code": _code(playing, arcade, collecting, encoding, nets)}  # fmt: skip
        usual = place / "behaviour.npz"
        if usual.exists() and read_arrays(usual)[1] == asked:
            judge.tracks.append(Track(**read_arrays(usual)[0]))
        else:
            write_arrays(usual, vars(judge.track(silent)), asked)
        return [
            row
            for options, policy in policies
            for row in _rows(setting, options, policy, judge, log, rule)
        ]


def _rows(
    setting: Setting, options: Setting, policy: Any, judge: Judge, log: Log, rule: float
) -> list[Row]:
    """Play with one policy: one row per game played.

    `options` are the learner's arguments, `rule` the radius that replaces "rule" in them.
    """
    name = setting["learner"]
    player = _player(name, policy, judge)
    played = (judge.tracks[0] if player is silent else judge.track(player)).played()
    near = _near(policy)
    return [
                {
                    "game": setting["game"], "learner": name, "contestant": label(name, options),
                    **{k: float(options.get(k, math.nan)) for k in ("n_min", "b", "alpha")},
                    "radius": _radius(options, rule) if "radius" in options else math.nan,
                    "by_rule": options.get("radius") == "rule", "near": near, "episode": i,
                    "score": float(played.score[i]), "steps": int(played.steps[i]),
                    "deferred": float(played.deferred[i] / max(1, played.steps[i])),
                    "cut": bool(played.cut[i]), "samples": log.n_steps,
                    "rewarded": int((log.reward != 0).sum()),
                    "games_learned": len(log.groups), "expert_steps": setting["expert_steps"],
                    "medium_steps": setting["medium_steps"], "quick": setting["quick"],
                    "seed": setting["seed"],
                }
        for i in range(setting["episodes"])
    ]  # fmt: skip


def _radius(options: Setting, rule: float) -> float:
    """The radius as a number: that of the rule, or the one that the options name."""
    return rule if options["radius"] == "rule" else float(options["radius"])


def fitted(name: str, log: Log, rule: float, setting: Setting) -> list[tuple[Setting, Any]]:
    """Fit a learner to the log with each of its settings.

    Returns pairs (options, policy); the policy is None for players that learn nothing.
    """
    from dprl.certificate._gate import gate
    from dprl.learners.baselines import DeepCQL, FittedPQI, FittedSPIBB, ForestBC

    grid = contestants(name, setting["quick"], setting["by_rule"])
    lowest = 0.0 if setting["game"] in NEVER_LOSE else -1.0
    bounds = (lowest / (1 - GAMMA), 1 / (1 - GAMMA))
    asked: list[dict[str, Any]] = [
        {k: _radius(options, rule) if k == "radius" else v for k, v in options.items()}
        for options in grid
    ]
    shared: dict[str, Any] = {"gamma": GAMMA, "metric": Metric(scale="none"), "cut": "terminal"}
    seed = setting["seed"]
    forest: dict[str, Any] = {
        "trees": setting["trees"],
        "iterations": setting["backups"],
        "seed": seed,
    }
    policies: list[Any]
    if name in DPRL:
        paper = name.startswith("DPRL paper")
        learner = DPRLContinuous(
            n_min=5, radius=rule, plan=name.endswith("planned"), contrast=not paper,
            visits="all" if paper else "first", **shared,
        )  # fmt: skip
        if name.startswith("DPRL gate"):
            policies = [
                gate(replace(learner, **options), log, delta=DELTA, value_range=bounds,
                     seed=seed)
                for options in asked
            ]  # fmt: skip
        else:
            policies = list(learner.fit_each(log, asked))
    elif name in COUNTS:
        visits: Any = "all" if name == "count only" else "first"
        policies = [MostFrequent(visits=visits, **options).fit(log) for options in asked]
    elif name == "SPIBB":
        policies = [FittedSPIBB(**options, **shared, **forest).fit(log) for options in asked]
    elif name == "PQI":
        policies = [FittedPQI(**options, **shared, **forest, r_min=lowest).fit(log)
                    for options in asked]  # fmt: skip
    elif name == "CQL":
        policies = [DeepCQL(**options, **shared, steps=setting["steps"], seed=seed).fit(log)
                    for options in asked]  # fmt: skip
    elif name == "BC":
        policies = [ForestBC(trees=setting["trees"], seed=seed).fit(log)]
    elif name == "Rules":
        rules = Rules(gamma=GAMMA, cut="terminal", delta=DELTA, seed=seed)
        enough = len(log.groups) >= 4 * rules.folds  # two groups a fold in either half
        policies = [rules.fit(log) if enough else None]
    else:
        policies = [None]
    return list(zip(grid, policies, strict=True))


def _player(name: str, policy: Any, judge: Judge) -> Player:
    """The player of a contestant: a network, its policy, or `silent` where it always defers."""
    if name in ("expert", "medium"):
        network: QNetwork = getattr(judge.mixture, name)
        return lambda seen, u: network.actions(seen)
    choice = getattr(policy, "choice", None)
    if getattr(policy, "rules", None) == ():
        return silent  # no rule was certified
    if policy is None or (choice is not None and (np.asarray(choice) < 0).all()):
        return silent  # nothing was issued in any cell: it is the behaviour
    near = getattr(policy, "near", policy)
    if hasattr(near, "allowed_at") and never_speaks(near):
        return silent
    assert judge.encoder is not None  # `run` gives one
    return Represented(policy, judge.encoder)


def _near(policy: Any) -> float:
    """Median number of neighbours of a training point; NaN for a policy without neighbours.

    Where the policy counts games instead of single neighbours, this is the number of games.
    """
    near = getattr(policy, "near", policy)
    if not hasattr(near, "allowed_at"):
        return math.nan
    rows = np.unique(np.linspace(0, len(near.z) - 1, LOOKED).astype(int))
    counted, _ = near.allowed_at(near.z[rows], near.episode[rows])
    return float(np.median(counted.state.n))


# -- table and figure, of rows that hold one game played each -------------------------------------

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
    played = max(len(part["score"]) for _, part in by(rows, "game", "contestant"))
    plot.caption(
        figure,
        f"Means over {played} games a point, one log; bars: 95 % bootstrap intervals over games. "
        "Hollow: the paper's radii. Dashed: the behaviour.",
    )
    return figure


# -- the experiment -------------------------------------------------------------------------------


def on_games(
    games: Sequence[str],
    experts: Path | None,
    folder: Path,
    *,
    quick: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Experiment:
    """Play for a log and learn the representation of each game; make the experiment on them.

    Args:
        games: Names of the games. If empty: the paper's five, or Pong if quick.
        experts: A folder with GAME_expert.npz (or GAME_last.npz) and GAME_medium.npz for each game,
            or None, with which `quick` plays with untrained networks.
        folder: Folder for logs and representations; what an earlier call wrote is used again.
        quick: Whether to run a small version: 5,000 decisions in the log, 2 short games per policy,
            one setting per learner. Default False.
        seed: Seed of everything random, from 0 to 131,071. Default 0.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The experiment, for `dprl_studies.harness.reproduce`.

    Raises:
        ParameterError: A network is missing or belongs to another game, or the seed is out of
            range.
        PackageError: ale-py or torch is not installed.

    Example:
        >>> study = on_games(["pong"], None, Path("study"), quick=True)  # doctest: +SKIP
        >>> len(study.settings(True, 0))  # doctest: +SKIP
        15
    """
    chosen = list(dict.fromkeys(games)) or (["pong"] if quick else list(GAMES))
    first_seed("collect", seed)  # refuses what is no seed before anything is written
    for name in ("ale_py", "torch"):
        optional(name, name.replace("_", "-"))
    pairs = [networks(game, experts, quick, seed) for game in chosen]
    size = QUICK if quick else FULL
    about = [
        prepare(game, folder, pair, size, seed, progress)
        for game, pair in zip(chosen, pairs, strict=True)
    ]
    return Experiment(
        "atari", "Does it play better than the mixture it learned from, and why?",
        functools.partial(settings, about=about), run, summary, figure, brief,
    )  # fmt: skip
