"""After a gate that proves nothing, states in a file, states as NAME=VALUE pairs."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import dprl
from conftest import COLUMNS, options, to_log
from dprl.apps.cli.certifying import after_vacuous
from dprl.apps.cli.policies import _pairs

COLUMNS_OF = options(COLUMNS)


def test_how_many_episodes_it_would_take_follows_from_the_surest_change():
    rng = np.random.default_rng(1)
    rows = [
        (s, a, float(rng.random() < (0.75 if a == "new" else 0.5)))
        for s, a in zip(rng.choice(["x", "y"], 120), rng.choice(["new", "old"], 120), strict=True)
    ]
    policy = dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(to_log([[row] for row in rows]))
    lines = after_vacuous(policy, 120, delta=1e-6, grade="large-sample", mode="in-sample")
    table = policy.changes()
    need = min(
        (row["high"] - row["low"]) / 2 / 1.959964 / row["advantage"]
        for row in table
        if row["advantage"] > 0
    )
    z = {1: 4.753424, 2: 4.891638}[len(table)]
    expected = 120 * (z * need) ** 2
    size = 10 ** (math.floor(math.log10(expected)) - 1)
    assert f"about {math.ceil(expected / size) * size:,}, if" in lines[1]
    for size in (40, 4_000):  # of the log that was gated, which says nothing about the interval
        other = after_vacuous(policy, size, delta=1e-12, grade="large-sample", mode="in-sample")
        same = after_vacuous(policy, 120, delta=1e-12, grade="large-sample", mode="in-sample")
        number = re.search(r"about ([0-9,]+), if", same[1])[1]
        assert f"about {number}," in other[1]
    split = after_vacuous(policy, 120, delta=1e-6, grade="proved", mode="swap-split")
    assert "at least about" in split[1]
    assert "--grade large-sample" in split[2]
    assert "δ does not hold" in lines[-1]
    nothing = dprl.DPRLDiscrete(n_min=500, gamma=1.0).fit(to_log([[row] for row in rows]))
    assert (
        "changes nothing"
        in after_vacuous(nothing, 120, delta=0.05, grade="proved", mode="policy")[1]
    )


@pytest.mark.parametrize("grade", ["proved", "large-sample"])
def test_a_log_that_proves_nothing_is_not_said_to_be_large_enough(grade):
    class Sure:
        def changes(self):
            row = {"where": "x above 1", "suggested": "new", "advantage": 0.13}
            return [{**row, "low": 0.06, "high": 0.2}]

    line = after_vacuous(Sure(), 1500, delta=0.05, grade=grade, mode="swap-split")[1]
    assert line.startswith("  - More episodes than the 1,500 of this log for its one change")
    assert "(x above 1: new)" in line
    assert "How many cannot be told" in line
    few = after_vacuous(Sure(), 1500, delta=1e-12, grade=grade, mode="swap-split")[1]
    assert "it takes " in few
    assert few.endswith("this log has 1,500.")


def test_the_gate_says_what_to_try(run, tmp_path):
    lines = ["patient,day,stage,drug,score"]
    lines += [f"{i},0,mild,{'old' if i % 3 else 'new'},{int(i % 6 < 2)}" for i in range(30)]
    Path("few.csv").write_text("\n".join(lines) + "\n")
    assert run("fit", "few.csv", *COLUMNS_OF, "--n-min", 2, "--gamma", 1, "--out", "p.dprl")[0] == 0
    gate = ["gate", "p.dprl", "few.csv", "--lowest", 0, "--highest", 1]
    code, out, _ = run(*gate)
    assert code == 0
    assert "VACUOUS" in out
    assert "Next steps, for episodes that are new:\n  - " in out
    code, out, _ = run(*gate, "--json")
    assert json.loads(out)["next_steps"][-1].startswith("Do not gate this log again")


def test_states_in_a_file_and_in_words_are_folded_as_the_policy_folds(run, visits):
    path, _ = visits
    fold = ["--labels", "trim,casefold", "--n-min", 20, "--gamma", 1, "--out", "p.dprl"]
    assert run("fit", path, *COLUMNS_OF, *fold)[0] == 0
    Path("states.txt").write_text(" Mild \nSEVERE\nmild\n")
    gate = ["gate", "p.dprl", path, "--lowest", 0, "--highest", 3, "--mode", "in-sample"]
    code, out, err = run(*gate, "--states", "states.txt", "--horizon", 3, "--details")
    assert code == 0, err
    assert "The list of 2 states" in out
    for words in (["mild"], ["stage=mild"], ["stage=", "MILD"]):
        code, out, err = run("explain", "p.dprl", *words)
        assert code == 0, err
        assert "came here" in out


@pytest.mark.parametrize(
    ("words", "pairs"),
    [
        (["a=1,b=2"], ["a=1", "b=2"]),
        (["a=1", "b=2"], ["a=1", "b=2"]),
        (["a=1,", "b=2"], ["a=1", "b=2"]),
        (["ward=ICU, north", "b=2,c="], ["ward=ICU, north", "b=2", "c="]),
        (['"ward=ICU, north",b=2'], ["ward=ICU, north", "b=2"]),
    ],
)
def test_pairs(words, pairs):
    assert _pairs(words) == pairs


def test_columns_that_became_several_features_do_not_differ_from_the_settings(run):
    lines = ["e,ward,age,drug,score"]
    lines += [f"{i},{'ab'[i % 2]},{i % 7},{'xy'[i % 3 % 2]},{i % 2}" for i in range(60)]
    Path("mixed.csv").write_text("\n".join(lines) + "\n")
    Path("dprl.toml").write_text(
        '[log]\nepisode = "e"\nstate = ["ward", "age"]\naction = "drug"\nreward = "score"\n'
    )
    fit = ["fit", "mixed.csv", "--n-min", 3, "--radius", 2, "--gamma", 1, "--out", "p.dprl"]
    assert run(*fit)[0] == 0
    code, _, err = run("gate", "p.dprl", "mixed.csv", "--lowest", 0, "--highest", 1)
    assert code == 0, err
    assert "differs from the policy's own columns" not in err
    Path("dprl.toml").write_text(Path("dprl.toml").read_text().replace('"age"', '"score"'))
    assert (
        "differs from the policy's own columns"
        in run("gate", "p.dprl", "mixed.csv", "--lowest", 0, "--highest", 1)[2]
    )
