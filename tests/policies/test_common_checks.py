"""What every policy keeps to, whoever made it: one interface, one set of answers."""

from __future__ import annotations

import ast
import copy
import functools
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

import dprl
from dprl.baselines import BC, CQL, PQI, RL, SPIBB, FittedPQI, FittedSPIBB, ForestBC, SoftSPIBB
from dprl.policies.base import KINDS, provenance_of
from dprl.policies.loading import deferring
from dprl.policies.protocol import DeferringPolicy, as_policy
from dprl.policies.spaces import FeatureSpace, LabelSpace
from dprl.policies.stochastic import FeaturePolicy, NetworkPolicy
from dprl.policies.table import Tabled

FEATURES = ("pressure", "lactate")
CELLS = dprl.DPRLContinuous(
    n_min=20, radius=1.0, gamma=1.0, metric=dprl.Metric(scale="none", weights={"lactate": 0.0})
)


@functools.cache
def labelled():
    """Patients whose states are labels; 'new' helps where it is mild."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 6, 400)
    n = int(lengths.sum())
    state = rng.choice(["mild", "severe", "rare"], n, p=[0.5, 0.49, 0.01])
    drug = rng.choice(["new", "old", "none"], n, p=[0.4, 0.5, 0.1])
    good = rng.random(n) < np.where((drug == "new") == (state == "mild"), 0.8, 0.3)
    return dprl.from_arrays(
        episode=np.repeat(np.arange(400), lengths), state=state, action=drug, reward=good * 1.0
    )


@functools.cache
def measured():
    """The same over features."""
    rng = np.random.default_rng(0)
    x = np.round(rng.uniform(0, 10, (600, 2)), 3)
    drug = rng.choice(["fluids", "wait"], 600, p=[0.4, 0.6])
    reward = np.round(((x[:, 0] < 5) == (drug == "fluids")) * 0.6 + 0.2 * rng.random(600), 3)
    return dprl.from_arrays(
        episode=np.repeat(np.arange(300), 2), state=x, action=drug, reward=reward,
        feature_names=list(FEATURES),
    )  # fmt: skip


@functools.cache
def clustered(first="pressure"):
    """One decision each near three values of the first feature; 'fluids' helps near 1."""
    rng = np.random.default_rng(0)
    place = rng.integers(3, size=1_500)
    x = np.stack((1.0 + 4 * place + rng.uniform(-0.2, 0.2, 1_500), rng.normal(size=1_500)), axis=1)
    drug = rng.choice(["fluids", "wait"], 1_500, p=[0.4, 0.6])
    good = rng.random(1_500) < 0.3 + 0.5 * (place == 0) * (drug == "fluids")
    return dprl.from_arrays(
        episode=np.arange(1_500), state=x, action=drug, reward=good * 1.0,
        feature_names=[first, "lactate"],
    )  # fmt: skip


@functools.cache
def practice():
    """The behaviour in `measured`, as `dprl.evaluate` estimates it: it asks no policy."""
    return dprl.Behavior.fit(measured(), seed=0)


def network():
    log, rng = measured(), np.random.default_rng(0)
    return NetworkPolicy(
        states=(), actions=log.actions, parameters={"learner": "DeepCQL", "gamma": 1.0},
        provenance=provenance_of(log, ranges=[[0.0, 10.0]] * 2),
        feature_names=log.feature_names, scale=np.ones(2), weight=np.ones(2),
        centre=np.full(2, 5.0), W1=rng.normal(size=(2, 4)), b1=rng.normal(size=4),
        W2=rng.normal(size=(4, 2)), b2=rng.normal(size=2),
    )  # fmt: skip


def ruled():
    """Rules over `measured`, written by hand: a change, a missing side, and a confirmation."""
    log = measured()
    usual = [["wait", 0.6], ["fluids", 0.4]]
    facts = {
        "steps": 300, "groups": 110, "groups_took": 60, "groups_proposed": 105, "advantage": 0.6,
        "se": 0.02, "low": 0.55, "high": 0.65, "p": 0.001, "share_usual": usual, "overlap": 1.0,
        "balance": ["lactate", 0.04],
    }  # fmt: skip

    def condition(feature, kind, **value):
        return {"feature": feature, "kind": kind, **value}

    below = [condition("pressure", "at most", value=5.0), condition("lactate", "above", value=0.0)]
    unmeasured = [condition("lactate", "missing"), condition("pressure", "known")]
    above = [
        condition("pressure", "above", value=5.0),
        condition("pressure", "at most", value=10.0),
    ]
    return dprl.RulePolicy(
        states=(), actions=log.actions, feature_names=log.feature_names,
        parameters={"learner": "Rules", "gamma": 1.0, "delta": 0.05},
        provenance=provenance_of(log, ranges=[[0.0, 10.0]] * 2),
        rules=(
            {"conditions": below, "suggested": "fluids", "facts": facts},
            {"conditions": unmeasured, "suggested": "fluids", "facts": {**facts, "steps": 0}},
            {"conditions": above, "suggested": "wait", "facts": {**facts, "steps": 250}},
        ),
    )  # fmt: skip


def by_label(states):
    return ["new" if s == "mild" else None for s in states]


def by_feature(x):
    return ["fluids" if row[0] < 5 else dprl.DEFER for row in x]


def approved(policy, log):
    return policy.limited_to(policy.situations(log)[:1])


NEAR = dprl.DPRLContinuous(n_min=5, radius=0.6, gamma=1.0)
MADE = {
    "table": lambda: dprl.DPRLDiscrete(n_min=20, gamma=0.9).fit(labelled()),
    "table planned": lambda: dprl.DPRLDiscrete(n_min=20, gamma=0.9, plan=True).fit(labelled()),
    "table gated": lambda: dprl.gate(
        dprl.DPRLDiscrete(n_min=20, gamma=1.0), labelled(), value_range=(0.0, 5.0)
    ),
    "confident": lambda: dprl.Confident(gamma=0.9, check=False).fit(labelled()),
    "confident by excursions": lambda: dprl.Confident(
        gamma=0.9, evidence="excursions", check=False
    ).fit(labelled()),
    "confident approved": lambda: approved(policy_of("confident"), labelled()),
    "confident public": lambda: dprl.public_copy(policy_of("confident")),
    "table approved": lambda: approved(policy_of("table"), labelled()),
    "table public": lambda: dprl.public_copy(policy_of("table")),
    "BC": lambda: BC().fit(labelled()),
    "RL": lambda: RL(gamma=0.9).fit(labelled()),
    "SPIBB": lambda: SPIBB(n_min=20, gamma=0.9).fit(labelled()),
    "SoftSPIBB": lambda: SoftSPIBB(epsilon=0.7, gamma=0.9).fit(labelled()),
    "PQI": lambda: PQI(b=0.02, gamma=0.9).fit(labelled()),
    "CQL": lambda: CQL(alpha=0.2, gamma=0.9).fit(labelled()),
    "called on labels": lambda: dprl.CallablePolicy(by_label, actions=("none", "new", "old")),
    "neighbors": lambda: NEAR.fit(measured()),
    "neighbors planned": lambda: dprl.DPRLContinuous(n_min=5, radius=0.6, gamma=0.9, plan=True).fit(
        measured()
    ),
    "neighbors approved": lambda: approved(policy_of("neighbors"), measured()),
    "neighbors pruned": lambda: dprl.prune(policy_of("neighbors")).policy,
    "neighbors compressed": lambda: dprl.compress(policy_of("neighbors"), 0.3).policy,
    "neighbors public": lambda: dprl.public_copy(policy_of("neighbors"), points=True),
    "cells": lambda: dprl.gate(CELLS, clustered(), value_range=(0.0, 1.0)),
    "cells approved": lambda: approved(policy_of("cells"), clustered()),
    "rules": ruled,
    "rules approved": lambda: approved(policy_of("rules"), measured()),
    "rules public": lambda: dprl.public_copy(policy_of("rules")),
    "network": network,
    "forest BC": lambda: ForestBC(trees=5).fit(measured()),
    "forest PQI": lambda: FittedPQI(b=0.02, gamma=0.9, radius=0.6, trees=5).fit(measured()),
    "forest SPIBB": lambda: FittedSPIBB(n_min=5, gamma=0.9, radius=0.6, trees=5).fit(measured()),
    "called on features": lambda: dprl.CallablePolicy(
        by_feature, actions=("fluids", "wait"), feature_names=FEATURES
    ),
}
IN_MEMORY = {
    "called on labels", "called on features", "forest BC", "forest PQI", "forest SPIBB",
}  # fmt: skip
DEFERRING = {
    n for n in MADE if n.split()[0] in ("table", "confident", "neighbors", "cells", "rules")
}
every = pytest.mark.parametrize("name", MADE)
kept = pytest.mark.parametrize("name", [n for n in MADE if n not in IN_MEMORY])


@functools.cache
def policy_of(name):
    return MADE[name]()


def over_labels(policy):
    return not policy.space.feature_names


def states_of(policy):
    """Some states, known and not."""
    if over_labels(policy):
        return ["mild", "severe", "rare", "never met", "mild"]
    return np.array([[1.0, 2.0], [7.5, 5.0], [4.9, 9.9], [1e6, -1e6], [1.0, 2.0]])


def same(one, two):
    """Whether two Decisions say the same."""
    names = ("choice", "pi", "kind", "allowed", "n", "m", "Q", "V", "planned", "lowest", "highest")
    return all(
        np.array_equal(getattr(one, n), getattr(two, n), equal_nan=n not in ("choice", "allowed"))
        for n in names
    )


@every
def test_it_has_the_interface(name):
    policy = policy_of(name)
    assert isinstance(policy, dprl.Policy)
    assert as_policy(policy) is policy
    assert policy.knows_practice == isinstance(policy, DeferringPolicy) == (name in DEFERRING)
    assert isinstance(policy.actions, tuple)
    assert repr(policy).startswith("<")
    assert "object at" not in repr(policy)
    assert repr(policy) == repr(policy)


@every
def test_one_answer_each_way_of_asking(name):
    policy = policy_of(name)
    states = states_of(policy)
    here, answers, pi = policy.at(states), policy.act(states), policy.probabilities(states)
    assert len(here) == len(answers) == len(pi) == len(states)
    assert here.actions == policy.actions
    assert here.answers() == answers
    assert [policy.act(s) for s in states] == answers
    assert all(policy.at([s]).choice[0] == c for s, c in zip(states, here.choice, strict=True))
    speaks = here.choice >= 0
    assert np.array_equal(here.choice[speaks], here.pi[speaks].argmax(axis=1))
    assert np.array_equal(here.pi[speaks], pi[speaks])
    assert np.allclose(here.pi[speaks].sum(axis=1), 1)
    assert np.isnan(here.pi[~speaks]).all()
    assert [a is dprl.DEFER for a in answers] == (~speaks).tolist()
    assert answers[0] == answers[-1]


@every
def test_kinds_say_what_is_known(name):
    policy = policy_of(name)
    here = policy.at(states_of(policy))
    assert ((here.kind == dprl.Kind.DEFER) == (here.choice < 0)).all()
    if policy.knows_practice:
        assert not (here.kind == dprl.Kind.UNKNOWN).any()
        change = here.kind == dprl.Kind.CHANGE
        other = here.choice[change] != here.usual[change]
        assert (other | here.divided[change]).all()
        spoken = np.flatnonzero(here.choice >= 0)
        assert here.allowed[spoken, here.choice[spoken]].all()
    else:
        assert not here.seen.any()
        assert set(here.kind.tolist()) <= {dprl.Kind.DEFER, dprl.Kind.UNKNOWN}


@pytest.mark.parametrize("name", sorted(DEFERRING))
def test_what_it_does_not_know_it_defers(name):
    policy = policy_of(name)
    states = states_of(policy)
    assert policy.act(states)[3] is dprl.DEFER
    assert not policy.at(states).seen[3]
    assert np.isnan(policy.probabilities(states)[3]).all()
    usual = np.full((5, len(policy.actions)), 1 / len(policy.actions))
    assert np.array_equal(policy.probabilities(states, behavior=usual)[3], usual[3])
    why = policy.explain(states[3])
    assert (why.kind, why.suggested, why.episodes) == ("defer", None, 0)
    assert policy.act(states)[0] is not dprl.DEFER or name == "neighbors approved"


@every
def test_behavior_of_another_shape_is_refused_or_not_needed(name):
    policy = policy_of(name)
    states = states_of(policy)
    if (policy.at(states).choice >= 0).all():
        return
    with pytest.raises(dprl.PolicyError, match="behavior must have shape"):
        policy.probabilities(states, behavior=np.ones((1, 7)))


@every
def test_it_explains_what_it_answers(name):
    policy = policy_of(name)
    states = states_of(policy)
    for state, answer in zip(states, policy.act(states), strict=True):
        why = policy.explain(state)
        assert (dprl.DEFER if why.suggested is None else why.suggested) == answer
        assert why.kind == dprl.Kind(policy.at([state]).kind[0]).word
        assert str(why)
        assert why.to_dict()["reason"]


@every
def test_it_lists_changes_or_says_why_not(name):
    policy = policy_of(name)
    if not policy.knows_practice:
        with pytest.raises(dprl.PolicyError, match="keeps no record of usual practice"):
            policy.changes()
        return
    assert len(policy.changes()) == policy.summary()["changes"]
    assert len(policy.confirmations()) == policy.summary()["confirmations"]
    assert policy.may_change or not len(policy.changes())
    log = labelled() if over_labels(policy) else measured()
    for one in policy.situations(log):
        assert set(one.made) <= set(one.rows)
        assert one.here.kind[one.s] == dprl.Kind.CHANGE
        assert (one.state is None) == (policy.changes_by == "region")


@kept
def test_a_file_gives_it_back(name, tmp_path):
    policy, path = policy_of(name), tmp_path / "policy.dprl"
    policy.save(path)
    again = dprl.load(path)
    assert type(again) is type(policy)
    assert again.digest() == policy.digest()
    assert same(policy.at(states_of(policy)), again.at(states_of(policy)))
    assert repr(again) == repr(policy)
    again.save(tmp_path / "again.dprl")
    assert (tmp_path / "again.dprl").read_bytes() == path.read_bytes()
    with zipfile.ZipFile(path) as z:
        held = {"json"} if name.startswith("rules") else {"json", "npy"}  # rules hold no array
        assert {n.rpartition(".")[2] for n in z.namelist()} == held


@pytest.mark.parametrize("name", sorted(IN_MEMORY))
def test_what_lives_in_memory_says_so(name, tmp_path):
    policy = policy_of(name)
    for verb in (lambda: policy.save(tmp_path / "policy.dprl"), policy.digest):
        with pytest.raises(dprl.PolicyError, match=r"without pickle|lives in memory only"):
            verb()
    assert not list(tmp_path.iterdir())


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("code from a file was run",)


def test_a_pickle_is_no_policy_file(tmp_path):
    """Loading runs no code, whatever a file holds."""
    path = tmp_path / "policy.dprl"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(dprl.PolicyError, match="not a usable policy file"):
        dprl.load(path)


@every
def test_copies_answer_the_same(name):
    """Also a pickle, which only processes that trust each other hand around."""
    policy = policy_of(name)
    states = states_of(policy)
    copies = [copy.deepcopy(policy), copy.copy(policy), pickle.loads(pickle.dumps(policy))]
    for other in copies:
        assert same(policy.at(states), other.at(states))
        assert repr(other) == repr(policy)


@every
def test_made_again_it_is_the_same(name):
    policy, again = policy_of(name), MADE[name]()
    assert same(policy.at(states_of(policy)), again.at(states_of(policy)))
    if name not in IN_MEMORY:
        assert policy.digest() == again.digest()


@every
def test_a_log_is_read_as_states_are(name):
    """The space turns a log into states; each step gets the answer its state gets."""
    policy = policy_of(name)
    log = labelled() if over_labels(policy) else measured()
    states, row = policy.space.of_log(log)
    asked = policy.act([log.states[s] for s in log.codes()] if over_labels(policy) else states)
    assert [policy.at(states).answers()[r] for r in row[:50]] == asked[:50]
    other = measured() if over_labels(policy) else labelled()
    if isinstance(policy.space, LabelSpace | FeatureSpace):
        with pytest.raises(dprl.PolicyError, match="the policy's states are"):
            policy.space.of_log(other)


@pytest.mark.parametrize("learner", [
    dprl.DPRLDiscrete(n_min=20, gamma=0.9), dprl.DPRLDiscrete(n_min=20, gamma=0.9, plan=True),
    BC(), RL(gamma=0.9), SPIBB(n_min=20, gamma=0.9), SoftSPIBB(epsilon=0.7, gamma=0.9),
    PQI(b=0.02, gamma=0.9), CQL(alpha=0.2, gamma=0.9),
], ids=lambda x: type(x).__name__)  # fmt: skip
def test_names_do_not_matter(learner):
    """Other names of states and actions, in the same order, give the same answers by name."""
    log = labelled()
    policy = learner.fit(log)
    renamed = learner.fit(dprl.from_arrays(
        episode=np.repeat(np.arange(log.n_episodes), log.lengths),
        state=[f"state {log.states[s]}" for s in log.codes()],
        action=[f"do {log.actions[a]}" for a in log.action], reward=log.reward,
    ))  # fmt: skip
    known = list(log.states)
    answers = [a if a is dprl.DEFER else f"do {a}" for a in policy.act(known)]
    assert renamed.act([f"state {s}" for s in known]) == answers


@pytest.mark.thin(5)
@every
def test_evaluate_asks_through_the_interface_alone(name):
    """Whatever has the interface is evaluated; nothing asks for a class or a private part."""
    policy = policy_of(name)

    class Other:
        """The same members under another class."""

    public = [
        "space", "actions", "parameters", "provenance", "certificate", "knows_practice",
        "may_change", "at", "act", "probabilities", "explain", "changes", "bootstrap_neighbors",
        "save", "digest",
    ]  # fmt: skip
    other = Other()
    for member in public:
        setattr(other, member, getattr(policy, member))
    assert isinstance(other, dprl.Policy)
    log = labelled() if over_labels(policy) else measured()
    asked = {"gamma": 0.9, "draws": 10, "values": False, "allow_seen": True}
    if not over_labels(policy) and name != "neighbors":  # one of them estimates it itself
        asked["behavior"] = practice()
    one, two = dprl.evaluate(policy, log, **asked), dprl.evaluate(other, log, **asked)
    assert repr(one.to_dict()) == repr(two.to_dict())


SRC = Path(dprl.__file__).parent
HOLDS_ONE = {"policy", "gated", "proposal", "fitted", "near", "here"}


def asked_for(path):
    """Where a module asks for a policy's class, or reads a private part of one."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            names = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
            if any(n.endswith("Policy") for n in names):
                yield f"{path.relative_to(SRC)}:{node.lineno} asks for {names}"
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            owner = getattr(node.value, "id", getattr(node.value, "attr", ""))
            if owner in HOLDS_ONE and not node.attr.startswith("__"):
                yield f"{path.relative_to(SRC)}:{node.lineno} reads {owner}.{node.attr}"


def test_nothing_outside_asks_which_class_a_policy_is():
    outside = [p for p in SRC.rglob("*.py") if SRC / "policies" not in p.parents]
    outside.append(SRC / "policies" / "loading.py")  # it knows all of them, and needs none
    assert not [place for path in outside for place in asked_for(path)]


@kept
def test_a_file_is_taken_for_deferring_by_what_the_policy_says(name, tmp_path):
    policy, path = policy_of(name), tmp_path / "policy.dprl"
    policy.save(path)
    if policy.knows_practice:
        assert deferring(path).digest() == policy.digest()
        return
    with pytest.raises(dprl.PolicyError, match="holds a policy of") as error:
        deferring(path)
    assert error.value.do == "Only DPRL's policies defer, explain and list changes."


def test_a_new_kind_without_practice_is_no_deferring_policy(monkeypatch, tmp_path):
    """Whoever adds a kind of policy says so with `knows_practice`, and nowhere else."""

    class Silent(dprl.TablePolicy):
        knows_practice = False

    policy_of("table").save(tmp_path / "policy.dprl")
    monkeypatch.setitem(KINDS, dprl.TablePolicy.KIND, Silent)
    with pytest.raises(dprl.PolicyError, match="holds a policy of"):
        deferring(tmp_path / "policy.dprl")


@pytest.mark.parametrize(("base", "missing"), [(Tabled, "_changed"), (FeaturePolicy, "_pi")])
def test_a_policy_that_lacks_a_part_cannot_be_made(base, missing):
    """It is refused when it is made, not when it is asked."""

    class Incomplete(base):
        """All but the missing method."""

    with pytest.raises(TypeError, match=rf"abstract method '?{missing}"):
        Incomplete()


def test_a_cell_named_like_a_column_is_told_by_its_own_numbers():
    """A feature may be called 'value': a report must show the cell's centre, not a mean return."""
    from dprl.apps.reports.changes import describe_changes

    log = clustered("value")
    policy = dprl.gate(CELLS, log, value_range=(0.0, 1.0))
    changes = describe_changes(policy, log).changes
    assert changes
    for change in changes:
        row = next(r for r in policy.changes() if r["state"] == change.state)
        assert dict(change.typical)["value"] == row["value (feature)"] != row["value"]


def test_engines_over_other_points_are_refused():
    from dataclasses import replace

    from dprl.policies.points import Engines

    policy, other = policy_of("neighbors"), policy_of("neighbors pruned")
    assert same(
        policy.at([[1.0, 2.0]]), replace(policy, engines=Engines.of(policy)).at([[1.0, 2.0]])
    )
    with pytest.raises(dprl.PolicyError, match="engines are over other points"):
        replace(policy, engines=Engines.of(other))
