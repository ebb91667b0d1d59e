"""A log whose features are numbers alone, for the models of values: trees over columns.

A category becomes a column of 0 and 1 per label. Where a feature is missing somewhere, the gap is
filled with the median of what is there and one more column of 0 and 1 says where that was, so that
trees can tell the two apart. Nothing here looks at actions or rewards.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dprl.logs._categories import TRUTH
from dprl.logs._feature_input import without_numbers
from dprl.logs.log import Log

__all__ = ["in_numbers"]


def in_numbers(log: Log) -> Log:
    """The log with numbers alone; the log itself where its states are labels or numbers already."""
    if not without_numbers(log):
        return log
    names: list[str] = []
    columns = []
    levels = log.levels or (None,) * len(log.feature_names)
    for j, (name, labels) in enumerate(zip(log.feature_names, levels, strict=True)):
        x = np.asarray(log.features)[:, j]
        gone = np.isnan(x)
        if labels is not None and labels != TRUTH:
            names += [f"{name}={label}" for label in labels]
            columns += [(x == code).astype(np.float64) for code in range(len(labels))]
        else:
            names.append(name)
            middle = float(np.median(x[~gone])) if not gone.all() else 0.0
            columns.append(np.where(gone, middle, x))
        if gone.any():
            names.append(f"{name} missing")
            columns.append(gone.astype(np.float64))
    numbered = [f"{i} {name}" for i, name in enumerate(names)]  # a label may be any text
    return replace(log, features=np.column_stack(columns), feature_names=tuple(numbered), levels=())
