"""For type checkers: `dprl.stats` is `dprl.evaluation.stats`, under a shorter name."""

from dprl.evaluation.stats import bootstrap as bootstrap
from dprl.evaluation.stats import cvar as cvar
from dprl.evaluation.stats import interval as interval
from dprl.evaluation.stats import iqm as iqm
from dprl.evaluation.stats import mean as mean
