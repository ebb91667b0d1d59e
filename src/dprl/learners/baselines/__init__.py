"""The methods DPRL is compared with: one learner per file, `fit(log)` returns a policy.

Those with a method in their name (Fitted, Forest, Deep) are for states of numeric features. All are
imported on first use, because some need scikit-learn or torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl.learners.baselines.cql import CQL as CQL
    from dprl.learners.baselines.deep_cql import DeepCQL as DeepCQL
    from dprl.learners.baselines.fitted import FittedPQI as FittedPQI
    from dprl.learners.baselines.fitted import FittedSPIBB as FittedSPIBB
    from dprl.learners.baselines.fitted import ForestBC as ForestBC
    from dprl.learners.baselines.hcpi import HCPI as HCPI
    from dprl.learners.baselines.lcb import LCB as LCB
    from dprl.learners.baselines.penalties import MOPO as MOPO
    from dprl.learners.baselines.penalties import RaMDP as RaMDP
    from dprl.learners.baselines.penalties import RMin as RMin
    from dprl.learners.baselines.plain import BC as BC
    from dprl.learners.baselines.plain import RL as RL
    from dprl.learners.baselines.plain import Mode as Mode
    from dprl.learners.baselines.pqi import PQI as PQI
    from dprl.learners.baselines.robust import DUIPI as DUIPI
    from dprl.learners.baselines.robust import MBIE as MBIE
    from dprl.learners.baselines.robust import RobustMDP as RobustMDP
    from dprl.learners.baselines.soft_spibb import SoftSPIBB as SoftSPIBB
    from dprl.learners.baselines.spibb import SPIBB as SPIBB

__getattr__, __dir__, __all__ = attach(__name__)
