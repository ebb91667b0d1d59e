"""For type checkers: `dprl.icu` is `dprl_studies.icu`, under a shorter name."""

from dprl_studies.icu import ACTIONS as ACTIONS
from dprl_studies.icu import FEATURES as FEATURES
from dprl_studies.icu import WEIGHTS as WEIGHTS
from dprl_studies.icu import Built as Built
from dprl_studies.icu import Cohort as Cohort
from dprl_studies.icu import Costs as Costs
from dprl_studies.icu import Preparation as Preparation
from dprl_studies.icu import Prepared as Prepared
from dprl_studies.icu import Stays as Stays
from dprl_studies.icu import best_treatment as best_treatment
from dprl_studies.icu import build as build
from dprl_studies.icu import dictionary as dictionary
from dprl_studies.icu import frugal_treatment as frugal_treatment
from dprl_studies.icu import metric as metric
from dprl_studies.icu import prepare as prepare
from dprl_studies.icu import read_stays as read_stays
from dprl_studies.icu import simulate as simulate
from dprl_studies.icu import true_value as true_value
