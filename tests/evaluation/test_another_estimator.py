"""An estimator that is added from here is shown, resampled, written and chosen like the others."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import dprl
from dprl.errors import ParameterError
from dprl.evaluation.bootstrap import Bootstrap
from dprl.evaluation.estimators import ESTIMATORS, Estimator, names_of, register


def largest_fifty(weighted):
    """Importance sampling with weights of at most 50, a number of each trajectory."""
    return np.minimum(weighted.final, 50.0) * weighted.returns


def halfway(totals):
    """Between WIS and usual practice: a function of the sums."""
    return (totals.alone["IS"] / totals.final + totals.alone["return"] / totals.n) / 2


@pytest.fixture
def added():
    """Two more estimators, for as long as a test runs: a mean over trajectories, and one of sums."""
    register(Estimator("CIS", "weights of at most 50", alone=largest_fifty))
    register(Estimator("HALF", "half of the way to WIS", halfway, normalised=True))
    yield
    del ESTIMATORS["CIS"], ESTIMATORS["HALF"]


@pytest.fixture(scope="module")
def halves():
    return dprl.envs.care_pathway().sample(1_600, seed=0).split(0.5, seed=0)


@pytest.fixture(scope="module")
def policy(halves):
    return dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(halves[0])


@pytest.fixture(scope="module")
def plain(policy, halves):
    """The evaluation without them."""
    return dprl.evaluate(policy, halves[1], draws=300)


def test_it_has_a_value_and_an_interval_and_moves_no_other_number(plain, policy, halves, added):
    result = dprl.evaluate(policy, halves[1], draws=300)
    assert list(result.rows) == [*plain.rows, "CIS", "HALF"]
    assert all(result[name] == plain[name] for name in plain.rows)  # to the last digit
    assert (result.behavior, result.facts) == (plain.behavior, plain.facts)
    row = result["CIS"]
    assert row["value_low"] < row["value"] < row["value_high"]
    # no weight of this log is as large as 50
    assert row["value"] == pytest.approx(plain["IS"]["value"], rel=1e-12)
    assert row["difference_low"] == pytest.approx(plain["IS"]["difference_low"], rel=1e-9)
    half = (plain["WIS"]["value"] + plain.behavior["value"]) / 2
    assert result["HALF"]["value"] == pytest.approx(half, rel=1e-12)


def test_it_is_in_the_table_in_json_in_html_and_in_a_report(policy, halves, added, tmp_path):
    result = dprl.evaluate(policy, halves[1], draws=50)
    assert result.table()["estimator"][-2:] == ["CIS", "HALF"]
    assert result.to_frame("pyarrow").num_rows == 9
    assert json.loads(result.to_json())["estimates"][-1]["estimator"] == "HALF"
    assert "weights of at most 50" in result._repr_html_()
    for lang in ("en", "de"):
        dprl.report(policy, halves[1], tmp_path / "report.html", draws=50, lang=lang)
        assert "half of the way to WIS" in (tmp_path / "report.html").read_text()


def test_policies_and_settings_are_compared_by_it(policy, halves, added):
    train, test = halves
    rows = dprl.compare([policy], test, estimator="HALF", draws=50).rows
    assert rows[0]["difference"] == dprl.evaluate(policy, test, draws=50)["HALF"]["difference"]
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    swept = dprl.sweep(learner, train, test, n_min=[20, 40], estimator="CIS", draws=50)
    assert swept.estimator == "CIS"
    assert np.isfinite(swept.rows[0]["difference_low"])


def test_it_is_on_the_command_line(policy, halves, added, run, tmp_path):
    policy.save(tmp_path / "policy.dprl")
    for log, name in zip(halves, ("train.csv", "held.csv"), strict=True):
        dprl.write(log, tmp_path / name)
    columns = [x for name in ("episode", "state", "action", "reward") for x in (f"--{name}", name)]
    code, out, said = run("evaluate", "policy.dprl", "held.csv", *columns, "--draws", 50, "--json")
    assert code == 0, said
    assert [row["estimator"] for row in json.loads(out)["estimates"]][-2:] == ["CIS", "HALF"]
    code, out, said = run(
        "sweep", "train.csv", "--valid", "held.csv", *columns, "--gamma", 1, "--n-min", 20, 40,
        "--estimator", "HALF", "--draws", 50, "--json",
    )  # fmt: skip
    assert code == 0, said
    assert json.loads(out)["estimator"] == "HALF"


def test_a_name_is_taken_once(added):
    with pytest.raises(ParameterError, match="'CIS' already"):
        register(Estimator("CIS", "again"))
    with pytest.raises(ParameterError, match="'return' already"):
        register(Estimator("return", "what was got"))


def test_what_each_needs_is_told_once():
    assert names_of(values=True) == ["DM", "DR", "WDR"]
    assert names_of(normalised=True) == ["WIS", "WPDIS", "WDR"]
    assert names_of(model_alone=True) == ["DM"]


def test_draws_can_be_of_some_estimators_alone(policy, halves):
    from dprl.evaluation.estimators import importance_weights

    log = halves[1]
    N = log.n_steps
    weighted = importance_weights(
        log.starts, log.group, log.reward, 1.0, np.ones(N), np.zeros(N, bool), *np.zeros((2, N))
    )
    some = Bootstrap(weighted, (ESTIMATORS["WIS"],)).estimates()
    assert some.names == ("WIS", "return")
    assert some.of("WIS") == some.of("return")


def test_one_can_be_asked_for_without_being_registered(plain, policy, halves):
    capped = Estimator("CIS", "weights of at most 50", alone=largest_fifty)
    result = dprl.evaluate(policy, halves[1], draws=300, estimators=[capped, "MAGIC", "MIS"])
    assert list(result.rows) == [*plain.rows, "CIS", "MAGIC", "MIS"]
    assert result["MIS"]["value_low"] < result["MIS"]["value"] < result["MIS"]["value_high"]
    assert all(result[name] == plain[name] for name in plain.rows)
    assert result["CIS"]["value"] == pytest.approx(plain["IS"]["value"], rel=1e-12)
    assert result.how["MAGIC"] == "between the model and WDR"
    assert "CIS" not in ESTIMATORS
    with pytest.raises(ParameterError, match="no estimator 'XYZ'"):
        dprl.evaluate(policy, halves[1], estimators=["XYZ"])
    with pytest.raises(ParameterError, match="'IS' already"):
        dprl.evaluate(policy, halves[1], estimators=[Estimator("IS", "mine")])


def slow_lengths(weighted):
    """The g_j of every length, (T + 1,), read off the definition."""
    starts, lengths = weighted.starts[:-1], np.diff(weighted.starts)
    E, T = len(lengths), int(lengths.max())
    w = np.array([
        [weighted.w[s + min(t, n - 1)] for t in range(T)]
        for s, n in zip(starts, lengths, strict=True)
    ])  # fmt: skip
    u = np.column_stack([np.ones(E), w * E / w.sum(axis=0)])  # u[:, t] is u_{t-1}
    g = []
    for j in range(T + 1):
        total = 0.0
        for e in range(E):
            for t in range(min(j, lengths[e])):
                i = starts[e] + t
                total += weighted.gamma**t * (
                    u[e, t + 1] * (weighted.reward[i] - weighted.Q[i]) + u[e, t] * weighted.V[i]
                )
            if j < lengths[e]:
                total += weighted.gamma**j * u[e, j] * weighted.V[starts[e] + j]
        g.append(total / E)
    return np.array(g)


def test_magic_lies_among_the_lengths_that_it_weighs():
    from dprl.evaluation.estimators import ASKED, importance_weights

    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 6, 40)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    N = starts[-1]
    reward, Q, V = rng.random((3, N))
    acts, ratio = np.ones(N, bool), rng.choice([0.5, 1.5], N)
    group = np.arange(40, dtype=np.int32)
    weighted = importance_weights(starts, group, reward, 0.9, ratio, acts, Q, V)
    numbers = ASKED["MAGIC"].alone(weighted)
    g = slow_lengths(weighted)
    wdr = Bootstrap(weighted, (ESTIMATORS["WDR"],)).estimates().of("WDR")[0]
    assert g[-1] == pytest.approx(wdr, rel=1e-12)
    assert g.min() - 1e-12 <= numbers.mean() <= g.max() + 1e-12
    # where model and weights agree step by step, every length says the same, and so does MAGIC
    exact = importance_weights(starts, group, 0 * reward, 0.9, ratio, acts, 0 * Q, 0 * V)
    assert ASKED["MAGIC"].alone(exact).mean() == 0


def slow_mis(starts, state, reward, ratio, gamma):
    """By the distribution of states at every step, (T, S), as the paper has it."""
    lengths = np.diff(starts)
    E, T, S = len(lengths), int(lengths.max()), int(state.max()) + 1
    d = np.bincount(state[starts[:-1]], minlength=S) / E
    total = 0.0
    for t in range(T):
        following = np.zeros(S)
        for s in range(S):
            here = [starts[e] + t for e in range(E) if lengths[e] > t and state[starts[e] + t] == s]
            if not here:
                continue
            total += gamma**t * d[s] * np.mean([ratio[i] * reward[i] for i in here])
            for i in here:
                if i + 1 not in starts:
                    following[state[i + 1]] += d[s] * ratio[i] / len(here)
        d = following
    return total


def test_mis_is_its_definition():
    from dprl.evaluation.estimators import ASKED, importance_weights

    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 6, 60)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    N = starts[-1]
    state, reward = rng.integers(0, 4, N).astype(np.int32), rng.random(N)
    acts, ratio, zero = np.ones(N, bool), rng.choice([0.5, 1.5], N), np.zeros(N)
    group = np.arange(60, dtype=np.int32)
    weighted = importance_weights(starts, group, reward, 0.9, ratio, acts, zero, zero)
    with pytest.raises(ParameterError, match="labelled states"):
        ASKED["MIS"].alone(weighted)
    told = replace(weighted, ratio=ratio, state=state)
    mine = ASKED["MIS"].alone(told).mean()
    assert mine == pytest.approx(slow_mis(starts, state, reward, ratio, 0.9), rel=1e-12)
    same = replace(told, ratio=np.ones(N))
    assert ASKED["MIS"].alone(same) == pytest.approx(told.returns)


def test_a_model_of_values_can_be_given(policy, halves):
    world, log = dprl.envs.care_pathway(), halves[1]
    table = world.action_values(world.state_values(policy))
    place = {label: i for i, label in enumerate(world.states)}
    order = [world.actions.index(label) for label in log.actions]

    def truth(states):
        return table[[place[s] for s in states]][:, order]

    exact = dprl.evaluate(policy, log, values=truth, draws=300, estimators=["MIS", "MAGIC"])
    value = world.value(policy)
    assert exact["DM"]["value"] == pytest.approx(value, abs=0.02)
    for name in ("DR", "WDR", "MAGIC", "MIS"):
        assert exact[name]["value"] == pytest.approx(value, abs=0.05)
        assert exact[name]["value_low"] < value < exact[name]["value_high"]
    with pytest.raises(ParameterError, match="values gives an array"):
        dprl.evaluate(policy, log, values=lambda states: np.zeros(3), draws=10)
