"""For type checkers: `dprl.testing` is `dprl.apps.testing`, under a shorter name."""

from dprl.apps.testing import check_learner as check_learner
