"""What is judged on a log in parts is what is judged on the same log in memory, to the last digit."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

import dprl
from dprl.errors import ParameterError, PolicyError
from dprl.logs.source import parts_of
from dprl.policies.held_out import rows_of


def backwards(sources, job, merge, shared, progress):
    """An executor elsewhere: everything is pickled, and merged from the end."""
    results = [pickle.loads(pickle.dumps(job(s.read(), *shared))) for s in reversed(sources)]
    total = results.pop(0)
    for result in results:
        total = total if result is None else merge(total, result)
    return total


def ward(seed=0, n=600):
    """Groups of several episodes that are not in the order of their labels, chances on record."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, n)
    episode = np.repeat(np.arange(n), lengths)
    state = rng.choice(["calm", "ill", "worse"], len(episode))
    chance = np.where(state == "ill", 0.3, 0.6)
    drug = rng.random(len(episode)) < chance
    reward = 0.4 * drug * (state == "ill") + rng.normal(0, 0.5, len(episode))
    return dprl.from_arrays(
        episode=episode, state=state, action=np.where(drug, "drug", "wait"), reward=reward,
        group=(episode * 7) % 200, propensity=np.where(drug, chance, 1 - chance),
        ended=np.repeat((rng.random(n) > 0.1) | (lengths == 4), lengths),
    )  # fmt: skip


@pytest.fixture(scope="module")
def halves():
    return ward().split(0.5, seed=1)


@pytest.fixture(scope="module", params=["disk", "elsewhere"])
def held(request, halves):
    """The held-out half in parts, one after another or merged from the end in other processes."""
    parts = parts_of(halves[1], rows=97)
    return parts if request.param == "disk" else replace(parts, executor=backwards)


def learner(cut="terminal"):
    return dprl.DPRLDiscrete(n_min=20, gamma=0.9, cut=cut)


def test_the_rows_of_parts_are_the_log(halves, held):
    whole = rows_of(held)
    assert whole.digest() == halves[1].digest()
    assert (whole.episodes, whole.groups) == (halves[1].episodes, halves[1].groups)


@pytest.mark.filterwarnings("ignore:.*bootstrapped:dprl.errors.CutWarning")
@pytest.mark.parametrize("cut", ["terminal", "drop-unrelated", "bootstrap"])
def test_an_evaluation_has_the_same_numbers(cut, halves, held):
    policy = learner(cut).fit(halves[0])
    options = {"draws": 60, "by": "state"}
    inside = dprl.evaluate(policy, halves[1], **options)
    assert dprl.evaluate(policy, held, **options).to_dict() == inside.to_dict()


def test_so_have_comparison_and_bounds(halves, held):
    policies = {str(n): replace(learner(), n_min=n).fit(halves[0]) for n in (20, 60)}
    inside, outside = (dprl.compare(policies, log, draws=60) for log in (halves[1], held))
    assert inside.to_dict() == outside.to_dict()
    inside, outside = (dprl.sensitivity(policies["20"], log, draws=40) for log in (halves[1], held))
    assert inside.to_dict() == outside.to_dict()


def test_a_sweep_learns_and_judges_in_parts(halves, held):
    inside = dprl.sweep(learner(), *halves, n_min=[20, 60], draws=60)
    outside = dprl.sweep(learner(), parts_of(halves[0], rows=97), held, n_min=[20, 60], draws=60)
    assert outside.to_dict() == inside.to_dict()
    assert [p.digest() for p in outside.policies] == [p.digest() for p in inside.policies]
    assert outside.sample == inside.sample


def test_a_sweep_certifies_in_parts(halves, held):
    options = {"n_min": [20], "draws": 20, "delta": 0.1, "value_range": (-10, 10)}
    train = parts_of(halves[0], rows=97)
    inside, outside = (dprl.sweep(learner(), *logs, **options) for logs in (halves, (train, held)))
    assert inside.to_dict() == outside.to_dict()


def test_the_training_log_is_refused_in_parts(halves):
    policy = learner().fit(halves[0])
    with pytest.raises(PolicyError, match="the log the policy was learned from"):
        dprl.evaluate(policy, parts_of(halves[0], rows=97))
    with pytest.raises(ParameterError, match="100 % of train and valid"):
        dprl.sweep(learner(), *[parts_of(halves[0], rows=97)] * 2, n_min=[20])


COLUMNS = [
    x
    for name in ("episode", "group", "state", "action", "reward", "propensity", "ended")
    for x in (f"--{name}", name)
]


@pytest.fixture
def files(tmp_path, halves):
    for log, name in zip(halves, ("train", "held"), strict=True):
        dprl.write(log, tmp_path / f"{name}.parquet")
    policy = learner().fit(halves[0])
    policy.save(tmp_path / "policy.dprl")


def test_the_command_evaluate_reads_in_parts(run, files):
    command = ["evaluate", "policy.dprl", "held.parquet", *COLUMNS, "--draws", 50, "--json"]
    answers = [run(*command, *more) for more in ([], ["--out-of-core", "--memory-limit", "300MB"])]
    assert [code for code, _, _ in answers] == [0, 0], answers
    inside, outside = (json.loads(out) for _, out, _ in answers)
    for name in ("estimates", "behavior", "facts"):
        assert inside[name] == outside[name]
    assert inside["balance"]  # of the column that is not in the state, which parts do not hold
    assert outside["balance"] is None


def test_the_command_sweep_reads_in_parts(run, files):
    command = [
        "sweep", "train.parquet", "--valid", "held.parquet", *COLUMNS, "--gamma", 0.9, "--n-min",
        20, 60, "--cut", "terminal", "--draws", 50, "--json",
    ]  # fmt: skip
    answers = [run(*command, *more) for more in ([], ["--out-of-core"])]
    assert [code for code, _, _ in answers] == [0, 0], answers
    assert json.loads(answers[0][1]) == json.loads(answers[1][1])
    code, _, said = run(*command[:2], *command[4:], "--out-of-core")
    assert code == 1
    assert "--valid" in said
