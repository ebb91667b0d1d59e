"""The Atari study: games, networks, logged play, a learned representation (extra `atari`)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dprl.studies.atari.collecting import Collection, Frames, collect
    from dprl.studies.atari.controls import MostFrequent, choose_radius
    from dprl.studies.atari.dqn import DQN, train_dqn
    from dprl.studies.atari.encoding import Encoder, encode
    from dprl.studies.atari.games import GAMES, Games
    from dprl.studies.atari.networks import QNetwork
    from dprl.studies.atari.objectives import compare_objectives
    from dprl.studies.atari.playing import Judge, Mixture, Represented, play

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
    """Import on first use: neither torch nor the emulator is loaded before."""
    if name not in _WHERE:
        raise AttributeError(f"module 'dprl.studies.atari' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dprl.studies.atari.{_WHERE[name]}"), name)
