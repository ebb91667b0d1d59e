"""Problems with exactly known values, on which the methods are compared.

Numbers come in (sizes, probabilities). Out come problems that can be sampled as a `Log` and that
give the true value of any policy. They know nothing of learners.
"""

from dprl.envs.arrays import from_arrays, from_gym
from dprl.envs.care import care_pathway
from dprl.envs.chain import dense_chain
from dprl.envs.delayed import PartlyObserved, delayed
from dprl.envs.forest import forest
from dprl.envs.gridworld import open_grid, rooms, small_grid, soft
from dprl.envs.icu_sepsis import icu_sepsis
from dprl.envs.point_mass import PointMass
from dprl.envs.published import maze, river
from dprl.envs.random_mdp import random_mdp
from dprl.envs.risky_arms import risky_arms
from dprl.planning.finite_mdp import FiniteMDP

__all__ = [
    "FiniteMDP",
    "PartlyObserved",
    "PointMass",
    "care_pathway",
    "delayed",
    "dense_chain",
    "forest",
    "from_arrays",
    "from_gym",
    "icu_sepsis",
    "maze",
    "open_grid",
    "random_mdp",
    "risky_arms",
    "river",
    "rooms",
    "small_grid",
    "soft",
]
