"""For type checkers: `dprl.figures` is `dprl.apps.figures`, under a shorter name."""

from dprl.apps.figures import Figure as Figure
from dprl.apps.figures import balance as balance
from dprl.apps.figures import calibration as calibration
from dprl.apps.figures import curves as curves
from dprl.apps.figures import forest as forest
from dprl.apps.figures import policy_map as policy_map
from dprl.apps.figures import rule_tree as rule_tree
from dprl.apps.figures import sensitivity as sensitivity
from dprl.apps.figures import sweep as sweep
from dprl.apps.figures import tradeoff as tradeoff
from dprl.apps.figures import value_by_size as value_by_size
