"""How often ``dprl init`` proposes columns rightly, on public tables that it was not written for.

The tables come with lifelines, scikit-survival and statsmodels (install those that you want to
see). What is right was written down from their descriptions: what is known before the decision, and
what only afterwards (one entry was corrected after a first look). The words that are recognised
were chosen after seeing the first sixteen tables; the last seven were tried after that. The action
and the outcome are given, as a person gives them when asked; a table without a column for its rows
gets one, `row`.

    python benchmarks/init_tables.py
"""

from __future__ import annotations

import importlib
import tempfile
import warnings
from pathlib import Path
from typing import Any

from dprl.logs.proposal import look, propose

TABLES: dict[str, tuple[str, str, str, str, str]] = {
    # name: (where it is, action, outcome, no part of the state, names of rows or places)
    "rossi": ("lifelines:load_rossi", "fin", "arrest", "week", ""),
    "lung": ("lifelines:load_lung", "ph.ecog", "status", "time", "inst"),
    "heart": ("lifelines:load_stanford_heart_transplants", "transplant", "event", "stop", "id"),
    "larynx": ("lifelines:load_larynx", "Stage_IV", "death", "time", ""),
    "leukemia": ("lifelines:load_leukemia", "Rx", "status", "t", ""),
    "kidney": ("lifelines:load_kidney_transplant", "black_male", "death", "time", ""),
    "recur": ("lifelines:load_recur", "TREAT", "EVENT", "TIME1 CENSOR", "ID"),
    "aids": ("sksurv:load_aids", "tx", "time", "censor txgrp", ""),
    "veterans": ("sksurv:load_veterans_lung_cancer", "Treatment", "Survival_in_days", "Status", ""),
    "gbsg2": ("sksurv:load_gbsg2", "horTh", "time", "cens", ""),
    "whas500": ("sksurv:load_whas500", "av3", "lenfol", "fstat los", ""),
    "flchain": ("sksurv:load_flchain", "flc.grp", "futime", "death chapter", ""),
    "spector": ("statsmodels:spector", "PSI", "GRADE", "", ""),
    "fair": ("statsmodels:fair", "occupation", "affairs", "", ""),
    "randhie": ("statsmodels:randhie", "idp", "mdvis", "", ""),
    "modechoice": ("statsmodels:modechoice", "mode", "choice", "", "individual"),
    # looked at only when the words in `dprl.logs.proposal` were final
    "psychiatric": ("lifelines:load_psychiatric_patients", "sex", "C", "T", ""),
    "waltons": ("lifelines:load_waltons", "group", "E", "T", ""),
    "regression": ("lifelines:load_regression_dataset", "var1", "E", "T", ""),
    "lymphoma": ("lifelines:load_lymphoma", "Stage_group", "Censor", "Time", ""),
    "regimes": (
        "lifelines:load_dd",
        "democracy",
        "observed",
        "duration regime ctryname cowcode2 politycode ehead leaderspellreg",
        "",
    ),
    "breast": ("sksurv:load_breast_cancer", "er", "t.tdm", "e.tdm", ""),
    "anes96": ("statsmodels:anes96", "vote", "PID", "", ""),
}


def table_of(where: str) -> Any:
    """A table of an installed package, as a dataframe; None where the package is missing."""
    import pandas as pd

    package, name = where.split(":")
    try:
        if package == "lifelines":
            return getattr(importlib.import_module("lifelines.datasets"), name)()
        if package == "sksurv":
            x, y = getattr(importlib.import_module("sksurv.datasets"), name)()
            return pd.concat([x.reset_index(drop=True), pd.DataFrame(y)], axis=1)
        return importlib.import_module(f"statsmodels.datasets.{name}").load_pandas().data
    except ImportError:
        return None


def judged(name: str, folder: Path) -> dict[str, Any] | None:
    """What was proposed of one table, beside what is right."""
    where, action, outcome, later, naming = TABLES[name]
    table = table_of(where)
    if table is None:
        return None
    if not naming:
        table = table.assign(row=range(len(table)))
    file = folder / f"{name}.csv"
    table.to_csv(file, index=False)
    given = {"action": action, "reward": outcome}
    if not naming or naming == "inst":
        table.assign(row=range(len(table))).to_csv(file, index=False)
        given["episode"] = "row"
    else:
        given["episode"] = naming
    found = propose(look([file]), given)
    state = found.columns.get("state", [])
    state = {state} if isinstance(state, str) else set(state)
    others = [c for c in table.columns if c not in (*given.values(), "row")]
    after = {*later.split(), *naming.split()}
    time = found.columns.get("time")
    wrong = [c for c in others if (c in state) == (c in after) and c != time]
    right = len(others) - len(wrong)
    return {"table": name, "columns": len(others), "right": right, "wrong": wrong}


def main() -> None:
    """Print the table of the docs."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [row for name in TABLES if (row := judged(name, Path(folder))) is not None]
    print("| table | columns besides action and outcome | proposed rightly | wrong |")
    print("|---|---|---|---|")
    for row in rows:
        wrong = ", ".join(f"`{c}`" for c in row["wrong"]) or "–"
        print(f"| {row['table']} | {row['columns']} | {row['right']} | {wrong} |")
    both = [sum(row[k] for row in rows) for k in ("columns", "right")]
    print(f"| all {len(rows)} | {both[0]} | {both[1]} | |")


if __name__ == "__main__":
    main()
