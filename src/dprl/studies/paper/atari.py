"""Atari: DPRL for features against its rivals, on a representation learned from logged play.

For each game 100,000 decisions of a mixture (the expert's action with probability .5, else the
medium's) are logged; a third of the games teaches the representation, everybody learns from the
other two thirds, with signs of rewards, and plays 20 games with fresh seeds. What defers is played
by the mixture. See `dprl.studies.atari`.

`DPRL paper` is the paper's rule as practised there: every neighbour counts, no contrast. `DPRL
contrast` counts games and asks for contrast; `DPRL gate` issues what is certified at δ = .05 for
returns within ±1/(1-γ) (from 0 where a game takes nothing away). `planned` looks beyond one
decision. `count only` has the neighbours of either and ignores what came of them: a win of DPRL is
due to its test only as far as it beats that.

Forests have 50 trees and 10 backups (`dprl.learners.baselines` alone would do 100 and 50), CQL
10,000 steps.
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

from dprl.errors import ParameterError
from dprl.evidence.neighbors.metric import Metric
from dprl.learners.continuous import DPRLContinuous
from dprl.logs._files import Progress
from dprl.logs.log import Log
from dprl.studies.atari import collecting, encoding, playing
from dprl.studies.atari import games as arcade
from dprl.studies.atari import networks as nets
from dprl.studies.atari.collecting import Collection, collect
from dprl.studies.atari.controls import MostFrequent, choose_radius, never_speaks
from dprl.studies.atari.encoding import Encoder, encode
from dprl.studies.atari.games import GAMES, LONGEST, Games, first_seed, optional
from dprl.studies.atari.networks import QNetwork, read_arrays, write_arrays
from dprl.studies.atari.objectives import parts_of_games
from dprl.studies.atari.playing import Judge, Mixture, Player, Represented, Track, silent
from dprl.studies.harness import Experiment, Row, Setting
from dprl.studies.paper.atari_grid import COUNTS, DPRL, LEARNERS, contestants, label
from dprl.studies.paper.atari_results import brief, figure, summary

__all__ = ["on_games"]

GAMMA, DELTA, TAUGHT, OBJECTIVE = 0.99, 0.05, 1 / 3, "inverse+cloning"
QUICK = {"samples": 5_000, "episodes": 2, "epochs": 3, "longest": 4_000, "trees": 10, "backups": 5,
         "steps": 1_000}  # fmt: skip
FULL = {"samples": 100_000, "episodes": 20, "epochs": 5, "longest": LONGEST, "trees": 50,
        "backups": 10, "steps": 10_000}  # fmt: skip
NEVER_LOSE = ("qbert", "freeway", "bowling", "amidar")
"""Games without negative rewards."""

LOOKED = 500
"""Training points at which neighbours are counted, for the table."""


# -- what is prepared once a game -----------------------------------------------------------------


def networks(game: str, experts: Path | None, quick: bool, seed: int) -> tuple[QNetwork, QNetwork]:
    """The expert and the medium player of a game."""
    if experts is None:
        if not quick:
            raise ParameterError(
                "the Atari study needs a folder of trained networks.",
                do="Name it: --experts FOLDER, with GAME_expert.npz (or GAME_last.npz) and "
                "GAME_medium.npz; dprl.studies.atari.train_dqn makes them. --quick does without.",
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
            "dprl.studies.atari.train_dqn makes both.",
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
    """Play, learn the representation, place every sample; what is there already stays."""
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
    said = hashlib.sha256((place / "collection.npz").read_bytes()).hexdigest()
    teach = taught(played, seed)
    question = {"collection": said, "objective": OBJECTIVE, "epochs": size["epochs"], "seed": seed,
                "taught": np.flatnonzero(teach).tolist(), "gamma": GAMMA,
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
    digest = hashlib.sha256(points.read_bytes() + said.encode())
    return {
        "game": game, "folder": str(place.resolve()), "digest": digest.hexdigest(),
        "expert_steps": int(pair[0].about.get("step", 0)),
        "medium_steps": int(pair[1].about.get("step", 0)),
    }  # fmt: skip


def _placed(place: Path, question: Setting) -> bool:
    """Whether the points of this question are there, and the very encoder that placed them."""
    if not all((place / name).exists() for name in ("points.npz", "encoder.npz")):
        return False
    about = read_arrays(place / "points.npz")[1]
    if about.get("question") != question:
        return False
    return about.get("encoder") == Encoder.load(place / "encoder.npz").digest()


def _code(*modules: ModuleType) -> str:
    """A digest of the source of what made a file: of other code it is made anew."""
    parts = (Path(m.__file__ or "").read_bytes() for m in modules)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def taught(played: Collection, seed: int) -> Any:
    """bool (games,): those that teach the representation; the learners get the others."""
    shares = (TAUGHT, 1 - TAUGHT)
    return parts_of_games(int(played.games.max()) + 1, shares, seed)[0]


# -- tasks ----------------------------------------------------------------------------------------


def settings(quick: bool, seed: int, *, about: Sequence[Setting]) -> Sequence[Setting]:
    """Tasks: one a game and learner with the radius by rule, then one with the paper's radii."""
    size = QUICK if quick else FULL
    return [
        {**one, "learner": learner, "by_rule": by_rule, "quick": quick, "seed": seed, **size}
        for by_rule in ((True,) if quick else (True, False))
        for one in about
        for learner in LEARNERS
        if contestants(learner, quick, by_rule)
    ]


def run(setting: Setting) -> list[Row]:
    """Learn with every setting, and play."""
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
        kept = place / "behaviour.npz"
        if kept.exists() and read_arrays(kept)[1] == asked:
            judge.tracks.append(Track(**read_arrays(kept)[0]))
        else:
            write_arrays(kept, vars(judge.track(silent)), asked)
        return [
            r for one, policy in policies for r in _rows(setting, one, policy, judge, log, rule)
        ]


def _rows(
    setting: Setting, one: Setting, policy: Any, judge: Judge, log: Log, rule: float
) -> list[Row]:
    """A row a game played."""
    name = setting["learner"]
    player = _player(name, policy, judge)
    found = (judge.tracks[0] if player is silent else judge.track(player)).played()
    near = _near(policy)
    return [
                {
                    "game": setting["game"], "learner": name, "contestant": label(name, one),
                    **{k: float(one.get(k, math.nan)) for k in ("n_min", "b", "alpha")},
                    "radius": _radius(one, rule) if "radius" in one else math.nan,
                    "by_rule": one.get("radius") == "rule", "near": near, "episode": i,
                    "score": float(found.score[i]), "steps": int(found.steps[i]),
                    "deferred": float(found.deferred[i] / max(1, found.steps[i])),
                    "cut": bool(found.cut[i]), "samples": log.n_steps,
                    "rewarded": int((log.reward != 0).sum()),
                    "games_learned": len(log.groups), "expert_steps": setting["expert_steps"],
                    "medium_steps": setting["medium_steps"], "quick": setting["quick"],
                    "seed": setting["seed"],
                }
        for i in range(setting["episodes"])
    ]  # fmt: skip


def _radius(one: Setting, rule: float) -> float:
    return rule if one["radius"] == "rule" else float(one["radius"])


def fitted(name: str, log: Log, rule: float, setting: Setting) -> list[tuple[Setting, Any]]:
    """A policy for every setting of a learner; None where there is nothing to fit."""
    from dprl.certificate._gate import gate
    from dprl.learners.baselines import DeepCQL, FittedPQI, FittedSPIBB, ForestBC

    grid = contestants(name, setting["quick"], setting["by_rule"])
    lowest = 0.0 if setting["game"] in NEVER_LOSE else -1.0
    bounds = (lowest / (1 - GAMMA), 1 / (1 - GAMMA))
    asked: list[dict[str, Any]] = [
        {k: _radius(one, rule) if k == "radius" else v for k, v in one.items()} for one in grid
    ]
    shared: dict[str, Any] = {"gamma": GAMMA, "metric": Metric(scale="none"), "cut": "terminal"}
    seed = setting["seed"]
    forest: dict[str, Any] = {
        "trees": setting["trees"],
        "iterations": setting["backups"],
        "seed": seed,
    }
    found: list[Any]
    if name in DPRL:
        paper = name.startswith("DPRL paper")
        learner = DPRLContinuous(
            n_min=5, radius=rule, plan=name.endswith("planned"), contrast=not paper,
            visits="all" if paper else "first", **shared,
        )  # fmt: skip
        if name.startswith("DPRL gate"):
            found = [
                gate(replace(learner, **one), log, delta=DELTA, value_range=bounds,
                     seed=seed)
                for one in asked
            ]  # fmt: skip
        else:
            found = list(learner.fit_each(log, asked))
    elif name in COUNTS:
        how: Any = "all" if name == "count only" else "first"
        found = [MostFrequent(visits=how, **one).fit(log) for one in asked]
    elif name == "SPIBB":
        found = [FittedSPIBB(**one, **shared, **forest).fit(log) for one in asked]
    elif name == "PQI":
        found = [FittedPQI(**one, **shared, **forest, r_min=lowest).fit(log) for one in asked]
    elif name == "CQL":
        found = [DeepCQL(**one, **shared, steps=setting["steps"], seed=seed).fit(log)
                 for one in asked]  # fmt: skip
    elif name == "BC":
        found = [ForestBC(trees=setting["trees"], seed=seed).fit(log)]
    else:
        found = [None]
    return list(zip(grid, found, strict=True))


def _player(name: str, policy: Any, judge: Judge) -> Player:
    if name in ("expert", "medium"):
        network: QNetwork = getattr(judge.mixture, name)
        return lambda seen, u: network.actions(seen)
    choice = getattr(policy, "choice", None)
    if policy is None or (choice is not None and (np.asarray(choice) < 0).all()):
        return silent  # nothing was issued in any cell: it is the behaviour
    near = getattr(policy, "near", policy)
    if hasattr(near, "allowed_at") and never_speaks(near):
        return silent
    assert judge.encoder is not None  # `run` gives one
    return Represented(policy, judge.encoder)


def _near(policy: Any) -> float:
    """Median number of neighbours (or of games, where those count) around a training point."""
    near = getattr(policy, "near", policy)
    if not hasattr(near, "allowed_at"):
        return math.nan
    rows = np.unique(np.linspace(0, len(near.z) - 1, LOOKED).astype(int))
    known, _ = near.allowed_at(near.z[rows], near.episode[rows])
    return float(np.median(known.state.n))


def on_games(
    games: Sequence[str],
    experts: Path | None,
    folder: Path,
    *,
    quick: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Experiment:
    """Play for a log and learn the representation of each game; give the experiment on them.

    Args:
        games: Their names; by default the paper's five, or Pong if quick.
        experts: A folder with GAME_expert.npz (or GAME_last.npz) and GAME_medium.npz.
        folder: Where everything is kept; what is there already stays.
        quick: 5,000 samples, 2 short games a policy, one setting a learner; without `experts`
            untrained networks play.
        seed: Everything random follows from it.
        progress: Called with the stage's name and the share of it that is done.
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
