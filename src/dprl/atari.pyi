"""For type checkers: `dprl.atari` is `dprl_studies.atari`, under a shorter name."""

from dprl_studies.atari import DQN as DQN
from dprl_studies.atari import GAMES as GAMES
from dprl_studies.atari import Collection as Collection
from dprl_studies.atari import Encoder as Encoder
from dprl_studies.atari import Frames as Frames
from dprl_studies.atari import Games as Games
from dprl_studies.atari import Judge as Judge
from dprl_studies.atari import Mixture as Mixture
from dprl_studies.atari import MostFrequent as MostFrequent
from dprl_studies.atari import QNetwork as QNetwork
from dprl_studies.atari import Represented as Represented
from dprl_studies.atari import choose_radius as choose_radius
from dprl_studies.atari import collect as collect
from dprl_studies.atari import compare_objectives as compare_objectives
from dprl_studies.atari import encode as encode
from dprl_studies.atari import play as play
from dprl_studies.atari import train_dqn as train_dqn
