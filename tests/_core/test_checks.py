"""Parameters are refused in one sentence, from one place."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import numpy as np
import pytest

import dprl
from dprl._core import checks

SRC = Path(dprl.__file__).parents[1]


@pytest.mark.parametrize(
    ("check", "good", "bad", "what"),
    [
        (checks.check_gamma, [1, 0.5, np.float32(0.5)], [0, 1.01, True, "1", None, math.nan, 1j],
         r"gamma must be a number in \(0, 1\]; got "),
        (checks.check_n_min, [1, 5.0, math.inf, np.int64(3)], [0, 2.5, math.nan, True, "5"],
         "n_min must be a whole number of episodes, at least 1 \\(or infinity\\); got "),
        (checks.check_radius, [0, 2.5], [-1, math.inf, math.nan, True], "radius must be a number in"),
        (checks.check_visits, ["first", "all"], ["last", None, ["first"]],
         "visits must be 'first' or 'all'; got "),
        (checks.check_cut, [None, "drop"], ["forget", 0, ["drop"]],
         "cut must be 'drop', 'drop-unrelated', 'bootstrap', 'terminal', 'ipcw' or None; got "),
        (checks.check_level, [0.95], [0, 1, "0.9", math.nan], r"level must be a number in \(0, 1\)"),
        (checks.check_delta, [0.05], [0, 1, True], r"delta must be a number in \(0, 1\)"),
        (checks.check_draws, [1, 10.0], [0, 1.5, math.inf, math.nan, "9", True],
         "draws must be a whole number, at least 1; got "),
        (checks.check_seed, [0, np.uint8(3)], [-1, 0.5, None], "seed must be a whole number, at least 0"),
        (checks.check_threads, [None, 2], [0, -1, 1.5], "threads must be a whole number, at least 1"),
        (checks.check_range, [(0, 1)], [(1, 0), (0, math.inf), 3, (0, 1, 2), "ab"],
         "value_range must be \\(lowest, highest\\) return, both finite; got "),
    ],
)  # fmt: skip
def test_what_parameters_may_be(check, good, bad, what):
    for value in good:
        check(value)
    for value in bad:
        with pytest.raises(dprl.ParameterError, match=what):
            check(value)


def test_whole_numbers_come_back_as_such():
    assert isinstance(checks.check_draws(10.0), int)
    with pytest.raises(dprl.ParameterError, match="copies must be a whole number, from 1 to 4,095"):
        checks.check_whole("copies", 4096, 1, 4095)


@pytest.mark.parametrize("settings", [{"draws": 2.5}, {"seed": -1}, {"level": 1.0}, {"draws": 1}])
def test_an_approximate_gain_checks_what_it_is_given(settings):
    from conftest import to_log

    log = to_log([[("s", "a", 1.0)], [("s", "b", 0.0)]])
    policy = dprl.DPRLDiscrete(n_min=1, gamma=0.9).fit(log)
    with pytest.raises(dprl.ParameterError, match="must be"):
        dprl.certificate.approximate_gain(policy, log, **settings)


def test_intervals_of_parameters_are_written_in_one_way():
    """Nobody writes the check of a number by hand: 'must lie' was the old shape of it."""
    by_hand = [
        path.name
        for path in SRC.rglob("*.py")
        if " must lie in" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "ParameterError"
        and node.args
        and any(" must lie in" in str(part) for part in [ast.unparse(node.args[0])])
    ]
    assert not by_hand
