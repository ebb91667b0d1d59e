"""The Atari study: learn policies from logs of play, and play with them.

The name of a game comes in. `train_dqn` trains an expert and a medium player, `collect` logs how a
mixture of both plays, and `encode` learns a representation of the screen, with which the collection
becomes a `Log` of features. A policy learned from that log goes out as a player (`Represented`)
whose games `play` and `Judge` score. Games need the package ale-py and networks need torch (extra
`atari`); both are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dprl_studies.atari.collecting import Collection, Frames, collect
    from dprl_studies.atari.controls import MostFrequent, choose_radius
    from dprl_studies.atari.dqn import DQN, train_dqn
    from dprl_studies.atari.encoding import Encoder, encode
    from dprl_studies.atari.games import GAMES, Games
    from dprl_studies.atari.networks import QNetwork
    from dprl_studies.atari.objectives import compare_objectives
    from dprl_studies.atari.playing import Judge, Mixture, Represented, play

__all__ = [
    "DQN",
    "GAMES",
    "Collection",
    "Encoder",
    "Frames",
    "Games",
    "Judge",
    "Mixture",
    "MostFrequent",
    "QNetwork",
    "Represented",
    "choose_radius",
    "collect",
    "compare_objectives",
    "encode",
    "play",
    "train_dqn",
]

_HOME = {
    "collecting": ("Collection", "Frames", "collect"),
    "controls": ("MostFrequent", "choose_radius"),
    "dqn": ("DQN", "train_dqn"),
    "encoding": ("Encoder", "encode"),
    "games": ("GAMES", "Games"),
    "networks": ("QNetwork",),
    "objectives": ("compare_objectives",),
    "playing": ("Judge", "Mixture", "Represented", "play"),
}
_WHERE = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _WHERE:
        raise AttributeError(f"module 'dprl_studies.atari' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dprl_studies.atari.{_WHERE[name]}"), name)
