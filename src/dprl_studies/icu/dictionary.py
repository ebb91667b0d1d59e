"""The meaning of each column of stays.parquet, and the weight of each feature.

The weights act on squared differences after scaling (`dprl.Metric`); they are the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dprl._core.arrays import Floats, Ints
from dprl._core.checks import check_number, wrong
from dprl._core.table import Table
from dprl.evidence.neighbors.metric import Metric

# --- What treatment costs, and the return of a stay in which it does
#
# Without costs, giving everybody a bolus and a vasopressor is nearly as good in the simulation as
# treating each patient by the cause: what a patient does not need harms a little, and nothing else
# speaks against it. `Costs` are a price for every hour of treatment, in units of the reward.


@dataclass(frozen=True)
class Costs:
    """What an hour of treatment costs: it is subtracted from the reward of the hour.

    The numbers are a choice, not a measurement. With the default costs an hour of the highest
    levels of both costs .24, where an hour at a pressure of 55 mmHg loses .15 of the reward.

    Attributes:
        bolus: Cost per level of bolus, in units of the reward; at least 0. Default 0.05.
        vasopressor: Cost per level of vasopressor and hour, in units of the reward; at least 0.
            Default 0.03.

    Raises:
        ParameterError: A cost is below 0 or not a number.

    Example:
        >>> costs = Costs()
        >>> costs.of(np.array([0, 6])).tolist()  # nothing; bolus 1 and vasopressor 2
        [0.0, 0.11]
    """

    bolus: float = 0.05
    vasopressor: float = 0.03

    def __post_init__(self) -> None:
        for name in ("bolus", "vasopressor"):
            value = check_number(f"the cost of a {name}", getattr(self, name), "[0, infinity)")
            object.__setattr__(self, name, value)

    def of(self, action: Ints) -> Floats:
        """The costs of treatments.

        Args:
            action: int64, any shape: codes of `ACTIONS`, 4 times the level of bolus plus the level
                of vasopressor.

        Returns:
            float64, the same shape: what each costs.

        Example:
            >>> Costs(bolus=1.0, vasopressor=10.0).of(np.array([5, 11])).tolist()
            [11.0, 32.0]
        """
        return np.asarray(self.bolus * (action // 4) + self.vasopressor * (action % 4), np.float64)

    def __str__(self) -> str:
        return (
            f"{self.bolus:g} per level of bolus and {self.vasopressor:g} per level of vasopressor "
            "and hour"
        )


def check_costs(costs: object) -> None:
    """Refuse what is neither None nor `Costs`, such as a bare number.

    Raises:
        ParameterError: It is something else.
    """
    if costs is not None and not isinstance(costs, Costs):
        raise wrong("costs", "None or dprl.icu.Costs", costs, do="Such as costs=dprl.icu.Costs().")


# --- The meaning of each column of stays.parquet, and the weight of each feature

RAW = ("fio2", "lactate", "urine", "map", "gcs", "alt", "ast", "dbp", "sbp", "creatinine", "po2")
"""The measured features; a value never charted is missing until a `Preparation` fills it."""

_LEVELS = tuple(f"last_{what}_{k}" for what in ("vasopressor", "bolus") for k in (1, 2, 3))
WEIGHTS = {
    **dict.fromkeys(("fio2", "lactate", "urine", "map", "gcs", "fio2_ever"), 15.0),
    **dict.fromkeys(_LEVELS, 15.0),
    **dict.fromkeys(("total_vasopressor", "total_bolus"), 15.0),
    **dict.fromkeys(("total_vasopressor_8h", "total_bolus_8h"), 15.0),
    "lactate_ever": 10.0,
    **dict.fromkeys(("urine_since", "alt", "ast", "dbp", "sbp", "gcs_since"), 5.0),
    **dict.fromkeys(("alt_ever", "ast_ever"), 5.0),
    **dict.fromkeys(("creatinine", "po2", "creatinine_ever", "po2_ever"), 3.0),
}
"""Feature → weight: 11 measured features, and 18 derived from what was charted and given."""

FEATURES = tuple(WEIGHTS)
"""Names of the 29 features, in the order of a log's columns."""

COLUMNS = {
    "stay_id": ("episode", "", "The ICU stay."),
    "subject_id": ("group", "", "The patient; splits and counts go by patient."),
    "hour": ("time", "h", "Whole hours since the stay began, from 0."),
    "fio2": ("feature", "%", "Inspired oxygen, last charted (or of a blood gas)."),
    "lactate": ("feature", "mmol/L", "Last lactate."),
    "urine": ("feature", "mL", "Urine of the last hour in which any was charted."),
    "map": ("feature", "mmHg", "Last mean pressure; the line before the cuff."),
    "gcs": ("feature", "", "Glasgow coma scale: the last eye, verbal and motor score added."),
    "alt": ("feature", "IU/L", "Last alanine aminotransferase."),
    "ast": ("feature", "IU/L", "Last aspartate aminotransferase."),
    "dbp": ("feature", "mmHg", "Last diastolic pressure."),
    "sbp": ("feature", "mmHg", "Last systolic pressure."),
    "creatinine": ("feature", "mg/dL", "Last creatinine."),
    "po2": ("feature", "mmHg", "Last pO2 of a blood gas."),
    **{f"{x}_ever": ("feature", "0/1", f"Has {x} been recorded before this hour?")
       for x in ("fio2", "lactate", "alt", "ast", "creatinine", "po2")},
    "urine_since": ("feature", "0/1", "Was urine charted since the last action, an hour ago?"),
    "gcs_since": ("feature", "0/1", "Was any part of the GCS charted since then?"),
    "total_vasopressor": ("feature", "mcg/kg", "Vasopressor given since the stay began."),
    "total_bolus": ("feature", "mL", "Boluses given since the stay began."),
    "total_vasopressor_8h": ("feature", "mcg/kg", "Vasopressor given in the 8 hours before."),
    "total_bolus_8h": ("feature", "mL", "Boluses given in the 8 hours before."),
    "last_vasopressor_dose": ("made into features", "mcg/kg", "Vasopressor in the hour before."),
    "last_bolus_ml": ("made into features", "mL", "Boluses in the hour before."),
    "last_vasopressor": ("made into features", "0-3", "Level in the hour before: 3 indicators."),
    "last_bolus": ("made into features", "0-3", "Level in the hour before: 3 indicators."),
    "vasopressor_dose": ("made into the action", "mcg/kg",
                         "Norepinephrine equivalents given in this hour."),
    "bolus_ml": ("made into the action", "mL", "Boluses begun in this hour."),
    "vasopressor": ("action", "0-3", "Level of vasopressor_dose."),
    "bolus": ("action", "0-3", "Level of bolus_ml."),
    "next_map": ("outcome", "mmHg", "Last mean pressure before the end of the next hour."),
    "next_urine": ("outcome", "mL", "Urine charted in the next hour; missing: none charted."),
    "reward": ("reward", "", "Worth of the next hour, 0 to 1; missing: no pressure charted yet."),
    "ended": ("end", "", "'terminal': left the unit or died; 'cut': still there at the horizon."),
}  # fmt: skip
"""Column → (part of the log it becomes, unit, meaning), in the order of the file."""


def metric() -> Metric:
    """The metric of the study: features divided by their standard deviation, the paper's weights.

    Returns:
        A metric that is fitted to the training log.

    Example:
        >>> metric().scale
        'std'
    """
    return Metric(scale="std", weights=WEIGHTS)


def dictionary() -> Table:
    """The data dictionary of stays.parquet.

    Returns:
        A table with one row per column of the file: column, part, unit and meaning.

    Example:
        >>> dictionary()["column"][:3]
        ['stay_id', 'subject_id', 'hour']
    """
    parts, units, words = zip(*COLUMNS.values(), strict=True)
    return Table(
        {"column": list(COLUMNS), "part": list(parts), "unit": list(units), "meaning": list(words)},
        "Columns of stays.parquet, one decision a row",
        "Features hold only what was charted or given before the hour began. What was never "
        "charted is missing: medians of the training split fill it (dprl_studies.icu.Preparation).",
    )
