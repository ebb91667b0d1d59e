"""For type checkers: `dprl.baselines` is `dprl.learners.baselines`, under a shorter name."""

from dprl.learners.baselines import BC as BC
from dprl.learners.baselines import CQL as CQL
from dprl.learners.baselines import DUIPI as DUIPI
from dprl.learners.baselines import HCPI as HCPI
from dprl.learners.baselines import LCB as LCB
from dprl.learners.baselines import MBIE as MBIE
from dprl.learners.baselines import MOPO as MOPO
from dprl.learners.baselines import PQI as PQI
from dprl.learners.baselines import RL as RL
from dprl.learners.baselines import SPIBB as SPIBB
from dprl.learners.baselines import DeepCQL as DeepCQL
from dprl.learners.baselines import FittedPQI as FittedPQI
from dprl.learners.baselines import FittedSPIBB as FittedSPIBB
from dprl.learners.baselines import ForestBC as ForestBC
from dprl.learners.baselines import Mode as Mode
from dprl.learners.baselines import RaMDP as RaMDP
from dprl.learners.baselines import RMin as RMin
from dprl.learners.baselines import RobustMDP as RobustMDP
from dprl.learners.baselines import SoftSPIBB as SoftSPIBB
