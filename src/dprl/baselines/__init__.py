"""What DPRL is compared with: each learner in one file, `fit(log)` → a policy."""

from dprl.baselines.bc import BC
from dprl.baselines.cql import CQL
from dprl.baselines.pqi import PQI
from dprl.baselines.rl import RL
from dprl.baselines.soft_spibb import SoftSPIBB
from dprl.baselines.spibb import SPIBB

__all__ = ["BC", "CQL", "PQI", "RL", "SPIBB", "SoftSPIBB"]
