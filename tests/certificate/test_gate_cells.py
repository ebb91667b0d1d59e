"""The gate over features, the approximate gain of ungated policies, and the command."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import dprl
from conftest import options, to_log
from dprl import envs
from dprl.certificate import approximate_gain
from dprl.certificate.evalues import binned, differences, kl_lower, kl_upper
from dprl.certificate.gain import estimate, nats_of_sets
from dprl.policies.cells import CellPolicy
from dprl.policies.held_out import HeldOut


def ward(n, seed, gap=0.5, groups=None, spread=0.0):
    """One decision per episode at x = 0, 10 or 20 (± .4): 'b' (.4) is better by gap at 0 only."""
    rng = np.random.default_rng(seed)
    place = rng.integers(3, size=n)
    x = 10.0 * place + rng.uniform(-0.4, 0.4, n)
    b = rng.random(n) < 0.4
    better = gap * (place == 0) * b + spread * (x - 10 * place) * (place == 0) * b
    reward = (rng.random(n) < 0.3 + better).astype(float)
    return dprl.from_arrays(
        episode=np.arange(n), state=np.stack((x, rng.normal(size=n)), axis=1),
        feature_names=["x", "noise"], action=np.where(b, "b", "a"), reward=reward,
        **({} if groups is None else {"group": groups}),
    )  # fmt: skip


LEARNER = dprl.DPRLContinuous(
    n_min=20, radius=1.0, gamma=1.0, metric=dprl.Metric(scale="none", weights={"noise": 0.0})
)
UNIT = {"value_range": (0.0, 1.0)}


def test_a_feature_called_like_a_column_keeps_its_numbers():
    plain = dprl.gate(LEARNER, ward(1_500, 0), **UNIT)
    log = replace(ward(1_500, 0), feature_names=("value", "noise"))
    (row,) = dprl.gate(LEARNER, log, **UNIT).changes().to_dicts()
    (as_x,) = plain.changes().to_dicts()
    assert row["value (feature)"] == as_x["x"]
    assert row["value"] == as_x["value"]
    words = dprl.gate(LEARNER, log, **UNIT)._changed()[0]["where"]
    assert words == plain._changed()[0]["where"].replace("x =", "value =")


def test_a_cell_is_certified(tmp_path):
    log = ward(1_500, 0)
    gated = dprl.gate(LEARNER, log, **UNIT)
    assert isinstance(gated, CellPolicy)
    assert gated.act([[0.0, 9.0], [10.0, 0.0], [20.0, 0.0], [5.0, 0.0], [900.0, 0.0]]) == [
        "b", dprl.DEFER, dprl.DEFER, dprl.DEFER, dprl.DEFER,
    ]  # fmt: skip
    certificate = gated.certificate
    assert len(certificate.rows) == 1
    assert 0 < certificate.rows[0]["low"] < 0.5
    assert certificate.cells["eps_star"] == certificate.rows[0]["low"] / 2
    assert certificate.cells["refuted"] == 0.0
    assert [r["radius"] for r in certificate.cells["sensitivity"]] == [0.5, 2.0]
    assert 0 < certificate.gain < 0.5 * 0.6 / 3  # (E x - E y) · (1 - p) · P(place 0)
    text = certificate.details()
    for word in ("eps* =", "the data prove no difference there", "with radius 0.5", "3 centres"):
        assert word in text
    gated.save(tmp_path / "cells.dprl")
    again = dprl.load(tmp_path / "cells.dprl")
    assert again.digest() == gated.digest()
    assert again.explain([0.1, 0.0]).suggested == "b"
    assert "farther than 1" in again.explain({"x": 500.0, "noise": 0.0}).reason
    assert list(again.changes().columns)[:2] == ["state", "x"]
    pi = again.probabilities([[0.0, 0.0], [900.0, 0.0]])
    assert pi[0].tolist() == [0.0, 1.0]
    assert np.isnan(pi[1]).all()


def test_cells_are_those_of_the_nearest_centre():
    gated = dprl.gate(LEARNER, ward(1_500, 0), **UNIT)
    rng = np.random.default_rng(1)
    x = np.stack((rng.uniform(-3, 23, 400), rng.normal(size=400)), axis=1)
    distance = np.abs(x[:, :1] - gated.z[:, 0])
    slow = np.where(distance.min(axis=1) <= 1.0, distance.argmin(axis=1), -1)
    assert gated.cells_of(x).tolist() == slow.tolist()


def test_where_nothing_is_better_nothing_is_said():
    gated = dprl.gate(LEARNER, ward(1_500, 0, gap=0.0), **UNIT)
    assert gated.certificate.vacuous
    assert gated.act([[0.0, 0.0]]) == [dprl.DEFER]


@pytest.mark.slow
def test_too_large_a_cell_is_found_out():
    """Within the cell the suggestion is good on one side and bad on the other: not issued."""
    gated = dprl.gate(LEARNER, ward(6_000, 0, gap=0.3, spread=0.9), **UNIT)
    assert gated.certificate.vacuous
    assert "1 more passed, but the data prove too much difference" in gated.certificate.details()
    near = dprl.gate(LEARNER, ward(6_000, 0, gap=0.6, spread=0.25), **UNIT).certificate
    assert 0 < near.cells["refuted"] < near.cells["eps_star"]
    assert "the data prove differences of" in near.details()


def test_a_mix_of_others_that_varies_within_a_cell_is_found_out():
    """Values are the same everywhere in the cell; who does what instead is not."""
    rng = np.random.default_rng(0)
    n = 6_000
    x = rng.uniform(-0.4, 0.4, n)
    action = np.where(rng.random(n) < 0.3, "b", np.where(x > 0, "a", "c"))
    worth = {"a": 0.95, "b": 0.6, "c": 0.05}
    reward = (rng.random(n) < [worth[a] for a in action]).astype(float)
    log = dprl.from_arrays(
        episode=np.arange(n), state=np.stack((x, x), axis=1), feature_names=["x", "noise"],
        action=action, reward=reward,
    )  # fmt: skip
    gated = dprl.gate(LEARNER, log, **UNIT)
    assert "b" not in gated.certificate.issued.values()


def test_the_level_over_cells_by_hand():
    """Everything a certificate over cells says, computed again from the half that certifies."""
    log, half = ward(1_500, 0), np.arange(1_500) % 2 == 0
    gated = dprl.gate(LEARNER, log, split=half, **UNIT)
    certificate, (row,) = gated.certificate, gated.certificate.rows
    (K,) = certificate.tested
    other = log.take(np.flatnonzero(~half))
    cell = gated.cells_of(other.features)
    here = cell == row["state"]
    b = other.action == other.actions.index("b")
    found = binned(
        np.where(b, 1, 0)[here], other.reward[here], (0, 1), 1.0, (0,), ("a", "b"), 9
    )  # fmt: skip
    assert row["low"] == differences(found, [1], 0.9 * 0.05 / K).low[0]
    share = b[here].mean()
    high = float(kl_upper(share, here.sum(), -math.log(0.05 * 0.05 / K)))
    assert row["advantage_low"] == pytest.approx((1 - high) * row["low"])
    nats = nats_of_sets(K, 1, 1, 0.05 * 0.05)
    parted = float((here & ~b).mean())
    expected = row["low"] * float(kl_lower(parted, len(here), nats))
    assert certificate.gain == pytest.approx(expected)
    # what certifies has no say in what is proposed
    moved = replace(log, reward=np.where(half, log.reward, 1 - log.reward))
    assert dprl.gate(LEARNER, moved, split=half, **UNIT).certificate.tested == (K,)


@pytest.mark.parametrize("learner", [
    replace(LEARNER, metric=dprl.Metric(scale=[2.0, 1.0])),
    replace(LEARNER, radius=np.int64(1)),
])  # fmt: skip
def test_policies_of_every_setting_can_be_gated(learner):
    log = ward(400, 0)
    policy = learner.fit(log)
    assert dprl.gate(policy, log, **UNIT).certificate is not None
    assert dprl.gate(dprl.compress(policy, 0.1).policy, log, **UNIT).certificate is not None


def test_groups_and_refusals_over_features():
    log = ward(300, 0, groups=np.arange(300) // 3)
    with pytest.raises(dprl.ParameterError, match="groups straddle"):
        dprl.gate(LEARNER, log, split=np.arange(300) % 3 > 0, **UNIT)
    with pytest.raises(dprl.ParameterError, match="no in-sample certificate"):
        dprl.gate(LEARNER, log, mode="in-sample", states=["s"], **UNIT)
    policy = LEARNER.fit(log)
    assert dprl.gate(policy, log, **UNIT).digest() == dprl.gate(LEARNER, log, **UNIT).digest()
    huge = replace(LEARNER, n_min=10_000)
    gated = dprl.gate(huge, log, **UNIT)
    assert gated.act([[0.0, 0.0]]) == [dprl.DEFER]
    assert gated.certificate.cells["centres"] == 0


@pytest.mark.slow
def test_a_gated_policy_over_features_is_evaluated():
    gated = dprl.gate(LEARNER, ward(1_500, 0), **UNIT)
    found = dprl.evaluate(gated, ward(3_000, 1), draws=100)
    assert found.facts["changed"] == pytest.approx(1 / 3, abs=0.03)
    row = found["WPDIS"]
    assert row["difference"] == pytest.approx(0.5 * 0.6 / 3, abs=0.03)


# -- the approximate gain of an ungated policy ---------------------------------------------------------


def test_plug_in_gain_by_hand():
    """Two decisions: V = R + D V by hand, from the held-out episodes alone."""
    train = to_log([[("s", "a", 0.0)]] * 30 + [[("s", "b", 1.0)]] * 30)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
    assert policy.act("s") == "b"
    test = to_log([
        [("o", "a", 2.0), ("s", "b", 1.0)],
        [("s", "b", 0.0)],
        [("s", "a", 0.0), ("s", "b", 1.0)],
        [("o", "a", 5.0)],
    ])  # fmt: skip
    # followed thrice: rewards 1, 0, 1, each to the end; V(s) = 2/3.
    # episodes: 2 + V, V, V, 5 against returns 3, 0, 1, 5
    found = approximate_gain(policy, test, draws=50)
    assert found.gain == pytest.approx((7 + 3 * (2 / 3) - 9) / 4)
    assert (found.points, found.unfollowed, found.groups) == (1, 0, 4)
    assert found.low <= found.gain <= found.high
    assert str(found).startswith("APPROXIMATE")
    assert approximate_gain(policy, test, draws=50) == found


def test_plug_in_gain_where_nobody_followed():
    train = to_log([[("s", "a", 0.0)]] * 30 + [[("s", "b", 1.0)]] * 30)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
    found = approximate_gain(policy, to_log([[("s", "a", 0.0)], [("s", "a", 1.0)]]), draws=20)
    assert (found.gain, found.low, found.high, found.unfollowed) == (0.0, 0.0, 0.0, 1)
    assert "Nobody followed" in str(found)


def test_plug_in_gain_refuses_the_training_log():
    log = envs.small_grid().sample(200, seed=0)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=0.95, cut="terminal").fit(log)
    with pytest.raises(dprl.PolicyError, match="the log the policy was learned from"):
        approximate_gain(policy, log, cut="terminal")
    with pytest.raises(dprl.PolicyError, match="of a sample of groups is also in the log"):
        approximate_gain(policy, log.split(0.9, seed=0)[0], cut="terminal")
    own = HeldOut.meet(policy, log, cut="terminal", allow_seen=True, reads="transitions")
    assert estimate(own, level=0.95, draws=5, seed=0).groups == 200
    with pytest.raises(dprl.ParameterError, match="labelled states"):
        approximate_gain(LEARNER.fit(ward(100, 0)), ward(100, 1))
    with pytest.raises(dprl.ParameterError, match="level"):
        approximate_gain(policy, log, level=2.0)


def test_plug_in_gain_is_about_right():
    mdp = envs.small_grid()
    train, test = mdp.sample(4_000, seed=0).split(0.5, seed=0)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=0.95, cut="terminal").fit(train)
    truth = mdp.value(policy) - mdp.value()
    found = approximate_gain(policy, test, draws=100, cut="terminal")
    assert found.gain == pytest.approx(truth, abs=0.02)


# -- the command ---------------------------------------------------------------------------------------


@pytest.fixture
def ward_csv(tmp_path):
    rng = np.random.default_rng(0)
    rows = ["patient,stage,drug,score"]
    for i in range(800):
        b = rng.random() < 0.4
        rows.append(f"{i},mild,{'new' if b else 'old'},{int(rng.random() < (0.8 if b else 0.3))}")
    path = tmp_path / "ward.csv"
    path.write_text("\n".join(rows) + "\n")
    columns = {"episode": "patient", "state": "stage", "action": "drug", "reward": "score"}
    return path, options(columns)


@pytest.mark.slow
def test_gate_command(run, ward_csv, tmp_path):
    path, columns = ward_csv
    assert run("fit", path, *columns, "--n-min", 20, "--gamma", 1)[0] == 0
    arguments = ["gate", "policy.dprl", path, *columns, "--lowest", 0, "--highest", 1]
    code, out, _ = run(*arguments)
    assert code == 0
    assert "With probability at least 95 %, the one suggestion below is a true improvement" in out
    assert "Saved as gated.dprl." in out
    own = [x for x in arguments if x not in columns]  # the policy knows its columns
    declared = tmp_path / "states.txt"
    declared.write_text("\n".join(["severe", "mild", "never seen", ""]))
    code, out, _ = run(*own, "--mode", "in-sample", "--states", declared, "--json")
    result = json.loads(out)
    assert result["certificate"]["mode"] == "in-sample"
    assert result["certificate"]["tested"] == [6]
    assert "2 of 3 declared states do not occur in this log." in result["certificate"]["notes"]
    code, out, _ = run(*own, "--no-markov", "--json")
    assert json.loads(out)["certificate"]["visits"] == "first"
    code, _, err = run(*own, "--mode", "in-sample", "--states", tmp_path / "nowhere.txt")
    assert code == 1
    assert "the states cannot be read from" in err
    code, out, _ = run(*own, "--mode", "in-sample", "--states", declared, "--json")
    result = json.loads(out)
    assert result["digest"] == dprl.load(tmp_path / "gated.dprl").digest()
    code, out, _ = run("changes", "gated.dprl", "--details")
    assert "It rests on:" in out
    code, out, _ = run("changes", "gated.dprl", "--json")
    assert json.loads(out)["certificate"]["rows"][0]["suggested"] == "new"


def test_outputs_never_take_the_place_of_inputs(run, ward_csv, tmp_path):
    path, columns = ward_csv
    run("fit", path, *columns, "--n-min", 20, "--gamma", 1)
    before = path.read_bytes(), (tmp_path / "policy.dprl").read_bytes()
    for command in (
        ["report", "policy.dprl", path, "--out", path],
        ["report", "policy.dprl", path, "--out", "policy.dprl"],
        ["review", "policy.dprl", "--log", path, "--out", path, "--export"],
        ["review", "policy.dprl", "--log", path, "--out", "policy.review.sqlite", "--export"],
    ):
        code, _, err = run(*command)
        assert code == 1, command
        assert "overwr" in err
    assert before == (path.read_bytes(), (tmp_path / "policy.dprl").read_bytes())


def test_gate_command_refused(run, ward_csv, tmp_path):
    path, columns = ward_csv
    run("fit", path, *columns, "--n-min", 20, "--gamma", 1)
    code, _, err = run(
        "gate", "policy.dprl", path, *columns, "--lowest", 0, "--highest", 0.5
    )  # fmt: skip
    assert code == 1
    assert "outside --lowest and --highest" in err
    code, _, err = run(
        "gate", "policy.dprl", path, *columns, "--lowest", 0, "--highest", 1,
        "--mode", "in-sample",
    )  # fmt: skip
    assert code == 1
    assert "name the states" in err
    assert not (tmp_path / "gated.dprl").exists()
    code, _, err = run("gate", "policy.dprl", path, *columns)  # only large-sample does without
    assert code == 1
    assert "--lowest is missing" in err
    bounds = ["--lowest", 0, "--highest", 1]
    code, _, err = run("gate", "policy.dprl", path, "--reward", "nope", *bounds)
    assert code == 1
    assert "there is no column 'nope' for reward" in err


def test_act_writes_beside_a_file_of_features(run, tmp_path):
    dprl.gate(LEARNER, ward(1_500, 0), **UNIT).save(tmp_path / "g.dprl")
    (tmp_path / "s.csv").write_text("bed,x,noise\n1,0.1,0\n2,10,0\n3,500,0\n")
    code, out, _ = run("act", str(tmp_path / "g.dprl"), str(tmp_path / "s.csv"))
    assert code == 0
    assert [line.split(",")[-1] for line in out.splitlines()[1:]] == ["b", "DEFER", "DEFER"]
