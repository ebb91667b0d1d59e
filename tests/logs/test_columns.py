"""The roles of a log's columns are told once, and everybody who takes columns takes these."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import pytest

import dprl
from dprl.apps.cli.options import TIMED, LogOptions, OtherColumns
from dprl.logs.reading.columns import Columns
from dprl.logs.roles import NAMES, REQUIRED, ROLES

SRC = Path(dprl.__file__).parents[1]


@pytest.mark.parametrize("door", [dprl.read, dprl.from_frame, dprl.from_arrays])
def test_every_door_takes_every_role(door):
    parameters = inspect.signature(door).parameters
    assert set(NAMES) <= set(parameters)
    for role in ROLES:
        needed = role.required and (role.name != "reward" or door is dprl.from_arrays)
        assert (parameters[role.name].default is inspect.Parameter.empty) == needed


def test_every_role_is_an_option_and_a_column():
    options = {f.name: f for f in dataclasses.fields(LogOptions)}
    assert set(options) == {
        *NAMES, "missing", "partitions", "categorical", "events", "follow_up", "also",
        "action_bins", "decimal", "encoding", "dates", "labels", "outcome", "unit",
        "better", "called", "design", "versus", "chances", "strata", "survival", "horizon", "target",
        "guard", "costs",
    }  # fmt: skip
    for name in NAMES:
        needed = name in REQUIRED and name != "reward"  # a time and a status stand in its place
        assert (options[name].default is dataclasses.MISSING) == needed
    others = {f.name: f.default for f in dataclasses.fields(OtherColumns)}
    assert set(others) == set(options) - {"action_bins", *TIMED}  # which are the policy's own
    assert all(others[name] is None for name in NAMES)
    assert set(NAMES) <= {f.name for f in dataclasses.fields(Columns)}


def test_the_list_is_not_written_out_again():
    """A list of the roles is any line or two that name the last ones after one another."""
    copies = [
        path.name
        for path in SRC.rglob("*.py")
        if '"group", "available", "ended"' in path.read_text()
        or '"available": available, "ended": ended' in path.read_text()
    ]
    assert not copies
