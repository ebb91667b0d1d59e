"""Returns that come seldom: none of those who followed had one, and resampling shows no spread."""

from __future__ import annotations

import numpy as np
import pytest

import dprl


def clicks(seed, n, chance):
    """Two items at random; a click comes with a chance that depends on the item."""
    rng = np.random.default_rng(seed)
    item = np.array(["left", "right"])[rng.integers(2, size=n)]
    click = rng.random(n) < np.where(item == "left", chance[0], chance[1])
    return dprl.from_arrays(
        episode=[f"{seed}-{i}" for i in range(n)], state=["page"] * n, action=item,
        reward=click.astype(float),
    )  # fmt: skip


def test_equal_returns_of_all_who_followed_are_said():
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(clicks(0, 400, (0.2, 0.05)))
    log = clicks(1, 600, (0.0, 0.05))
    assert policy.act(["page"]) == ["left"]
    n = int((np.array([log.actions[a] for a in log.action]) == "left").sum())
    result = dprl.evaluate(policy, log, draws=50)
    assert result["IS"]["value_low"] == result["IS"]["value_high"] == 0.0
    (words,) = [line for line in result.warnings if "followed the policy had the return" in line]
    most = 1 - 0.05 ** (1 / n)
    assert words.startswith(f"all {n} episodes that followed the policy had the return 0:")
    assert f"up to {100 * most:.2g} % of such episodes (with 95 % confidence)" in words


@pytest.mark.parametrize("chance", [(0.2, 0.05), (0.0, 0.0)])
def test_nothing_is_said_where_returns_differ_or_there_is_only_one(chance):
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(clicks(0, 400, (0.2, 0.05)))
    result = dprl.evaluate(policy, clicks(2, 600, chance), draws=50)
    assert not [line for line in result.warnings if "no spread" in line]
