"""The Atari study: learn policies from logs of play, and play with them.

The name of a game comes in. `train_dqn` trains an expert and a medium player, `collect` logs how a
mixture of both plays, and `encode` learns a representation of the screen, with which the collection
becomes a `Log` of features. A policy learned from that log goes out as a player (`Represented`)
whose games `play` and `Judge` score. Games need the package ale-py and networks need torch (extra
`atari`); both are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl_studies.atari.collecting import Collection as Collection
    from dprl_studies.atari.collecting import Frames as Frames
    from dprl_studies.atari.collecting import collect as collect
    from dprl_studies.atari.dqn import DQN as DQN
    from dprl_studies.atari.dqn import train_dqn as train_dqn
    from dprl_studies.atari.encoding import Encoder as Encoder
    from dprl_studies.atari.encoding import MostFrequent as MostFrequent
    from dprl_studies.atari.encoding import choose_radius as choose_radius
    from dprl_studies.atari.encoding import compare_objectives as compare_objectives
    from dprl_studies.atari.encoding import encode as encode
    from dprl_studies.atari.games import GAMES as GAMES
    from dprl_studies.atari.games import Games as Games
    from dprl_studies.atari.networks import QNetwork as QNetwork
    from dprl_studies.atari.playing import Judge as Judge
    from dprl_studies.atari.playing import Mixture as Mixture
    from dprl_studies.atari.playing import Represented as Represented
    from dprl_studies.atari.playing import play as play

__getattr__, __dir__, __all__ = attach(__name__)
