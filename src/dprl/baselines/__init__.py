"""What DPRL is compared with: each learner in one file, `fit(log)` → a policy."""

from dprl.baselines.bc import BC

__all__ = ["BC"]
