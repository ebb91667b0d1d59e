"""DPRL over features: against labels, against a slow reading of the definition, and as users meet it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dprl
from conftest import random_episodes, to_log
from dprl.evidence.decision_points import allowed
from dprl.evidence.neighbors.engine import Engine, Points
from dprl.evidence.neighbors.metric import Metric
from dprl.learners.continuous import DPRLContinuous
from dprl.planning.iteration import policy_iteration
from dprl.planning.neighbor_semi_mdp import elevate_neighbors, segments
from test_paper import true_value, two_states

RAW = Metric(scale="none")


def with_features(episodes, place, cut=None):
    """The same episodes with place(state) as features."""
    rows = [(e, t, *row) for e, ep in enumerate(episodes) for t, row in enumerate(ep)]
    return dprl.from_arrays(
        episode=[r[0] for r in rows],
        time=[r[1] for r in rows],
        state=np.array([place(r[2]) for r in rows], float),
        action=[r[3] for r in rows],
        reward=[r[4] for r in rows],
        feature_names=["x", "y"],
    )


@pytest.mark.parametrize("visits", ["first", "all"])
@pytest.mark.parametrize("seed", range(15))
def test_radius_zero_is_the_labelled_case(seed, visits):
    episodes = random_episodes(seed)
    log = with_features(episodes, lambda s: (s, -2 * s))
    labelled = to_log(episodes)
    settings = {"n_min": 1 + seed % 3, "gamma": 0.9, "contrast": seed % 2 == 0, "plan": False}
    one = DPRLContinuous(radius=0.0, metric=RAW, visits=visits, **settings).fit(log)
    two = dprl.DPRLDiscrete(visits=visits, **settings).fit(labelled)
    here = one.at([(s, -2 * s) for s in labelled.states])
    for name in ("choice", "n", "m", "allowed"):
        assert np.array_equal(getattr(here, name), getattr(two, name))
    for name in ("Q", "V", "took_mean", "others_mean", "took_sd", "lowest", "highest"):
        np.testing.assert_allclose(getattr(here, name), getattr(two, name), atol=1e-10)


def random_log(seed, n=25):
    rng = np.random.default_rng(seed)
    episodes = [
        [
            (tuple(np.round(rng.normal(size=2), 1)), f"a{rng.integers(3)}", float(rng.normal()))
            for _ in range(rng.integers(1, 8))
        ]
        for _ in range(n)
    ]
    return with_features(episodes, lambda s: s)


def within(d, radius):
    return d[0] * d[0] + d[1] * d[1] <= radius * radius


def slow_worth(log, gamma, radius, n_min, contrast, first, surprise=None, lam=1.0):
    """Planned worth of every training point, straight from the definition.

    With credit, `surprise` takes the place of rewards, and one a step later counts γλ.
    """
    gain, decay = log.reward if surprise is None else surprise, gamma * lam
    x, a = log.features, log.action
    episode = np.repeat(np.arange(log.n_episodes), log.lengths)
    N, A = len(x), log.n_actions
    G = np.zeros(N)
    for i in reversed(range(N)):
        last = i + 1 == N or episode[i + 1] != episode[i]
        G[i] = gain[i] + (0 if last else decay * G[i + 1])
    used, ok = {}, np.zeros((N, A), bool)
    for i in range(N):
        near = [
            j for j in range(N)
            if episode[j] != episode[i] and within(x[i] - x[j], radius)
        ]  # fmt: skip
        seen_ball, seen_pair, V, took, Q = set(), set(), [], [], {k: [] for k in range(A)}
        members = {k: [] for k in range(A)}
        for j in near:
            e = episode[j]
            if not first or e not in seen_ball:
                V.append(G[j])
                took.append(a[j])
            if not first or (e, a[j]) not in seen_pair:
                Q[a[j]].append(G[j])
                members[a[j]].append(j)
            seen_ball.add(e)
            seen_pair.add((e, a[j]))
        for k in range(A):
            enough = len(Q[k]) >= n_min
            others = len(V) - took.count(k) >= n_min or not contrast
            if enough and others and np.mean(Q[k]) >= np.mean(V) - 1e-9:
                ok[i, k] = True
                used[i, k] = members[k]
    points = set(np.flatnonzero(ok.any(axis=1)).tolist())
    ahead = {}
    for i in range(N):
        reward, discount, weight, j = gain[i], gamma, decay, i + 1
        while j < N and episode[j] == episode[i] and j not in points:
            reward += weight * gain[j]
            discount *= gamma
            weight *= decay
            j += 1
        inside = j < N and episode[j] == episode[i]
        ahead[i] = (reward, discount if inside else 0.0, j if inside else None)
    v = dict.fromkeys(points, 0.0)

    def worth(j):
        reward, discount, follow = ahead[j]
        return reward + (discount * v[follow] if follow is not None else 0.0)

    for _ in range(3000):
        new = {
            i: max(np.mean([worth(j) for j in used[i, k]]) for k in range(A) if ok[i, k])
            for i in points
        }
        change = max((abs(new[i] - v[i]) for i in points), default=0)
        v = new
        if change < 1e-13:
            break
    return np.array([worth(j) for j in range(N)]), ok


@pytest.mark.parametrize("visits", ["first", "all"])
@pytest.mark.parametrize("seed", range(8))
def test_planning_against_the_definition(seed, visits):
    log = random_log(seed)
    settings = {"n_min": 2 + seed % 2, "contrast": seed % 2 == 1}
    policy = DPRLContinuous(
        radius=0.7, gamma=0.8, metric=RAW, visits=visits, plan=True, **settings
    ).fit(log)
    worth, ok = slow_worth(log, 0.8, 0.7, first=visits == "first", **settings)
    assert ok.any()
    assert np.array_equal(policy.training.allowed, ok)
    np.testing.assert_allclose(policy.worth, worth, atol=1e-9)


def place(state):
    return (0.0, 0.0) if state == "s0" else (1.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(("r1", "r2", "value"), [(0.9, 0.6, 0.9), (0.5, 1, 0.95), (0.8, 0.7, 0.8)])
def test_planning_pays_where_it_must(r1, r2, value):
    """The acceptance examples of the labelled case, as two places in the plane."""
    log = with_features(two_states(r1, r2), place)
    policy = DPRLContinuous(n_min=20, radius=0.1, gamma=0.95, metric=RAW, plan=True).fit(log)
    here = policy.at([place("s0"), place("s1")])

    class Renamed:
        def probabilities(self, states, behavior):
            return here.probabilities(behavior=behavior)

    assert true_value(Renamed(), r1, r2) == pytest.approx(value, abs=1e-12)


def test_one_step_misses_it():
    log = with_features(two_states(0.5, 1.0), place)
    policy = DPRLContinuous(n_min=20, radius=0.1, gamma=0.95, metric=RAW, plan=False).fit(log)
    assert policy.act([place("s0")]) == [1]


def test_planning_single_decisions_changes_nothing():
    rng = np.random.default_rng(0)
    episodes = [
        [(tuple(rng.normal(size=2)), f"a{rng.integers(2)}", float(rng.normal()))] for _ in range(80)
    ]
    log = with_features(episodes, lambda s: s)
    settings = {"n_min": 3, "radius": 1.0, "gamma": 0.9}
    one = DPRLContinuous(plan=False, **settings).fit(log)
    two = DPRLContinuous(plan=True, **settings).fit(log)
    np.testing.assert_allclose(two.worth, one.worth, atol=1e-13)
    assert one.training.choice.tolist() == two.training.choice.tolist()
    points = Points.of(log, Metric().fit(log), 0.9)
    pairs = one.training.allowed
    ahead = segments(log, 0.9, np.flatnonzero(pairs.any(axis=1)))
    semi = elevate_neighbors(one.returns_engine, points, ahead, pairs, 1.0, True)
    assert len(semi.R) > 10
    plan = policy_iteration(semi, semi.R)
    assert two.worth.tobytes() == ahead.planned(plan.V).tobytes()


def test_nothing_is_listed_where_no_decision_leads_to_another(monkeypatch):
    def listed(*args, **options):
        raise AssertionError("neighbours were listed for a plan of single decisions")

    monkeypatch.setattr(Engine, "neighbors", listed)
    log = with_features([[((0.0, 0.0), "ab"[i % 2], float(i))] for i in range(40)], lambda s: s)
    policy = DPRLContinuous(n_min=3, radius=1.0, gamma=0.9, metric=RAW, plan=True).fit(log)
    assert policy.act([[0.0, 0.0]]) == ["b"]


def test_the_plan_is_a_contraction_by_gamma():
    log = random_log(3, n=60)
    metric = RAW.fit(log)
    points = Points.of(log, metric, 0.9)
    engine = Engine.build(points, log.n_actions)
    known = engine.evidence(points.z, 0.8, visits="first", leave_out=points.episode)
    pairs = allowed(known, 2)
    ahead = segments(log, 0.9, np.flatnonzero(pairs.any(axis=1)))
    semi = elevate_neighbors(engine, points, ahead, pairs, 0.8, True)
    assert semi.D.sum(axis=1).max() <= 0.9 + 1e-12
    assert np.array_equal(semi.n, known.pair.n[pairs])
    np.testing.assert_allclose(  # segments telescope: reward + what follows at its own return is G
        ahead.planned(points.G[ahead.points]), points.G, atol=1e-12
    )
    plan = policy_iteration(semi, known.pair.mean[pairs])
    rng = np.random.default_rng(0)
    one, two = plan.V, plan.V + rng.normal(size=len(plan.V))
    for _ in range(4):
        sweep = [np.maximum.reduceat(semi.R + semi.D @ v, semi.first[:-1]) for v in (one, two)]
        assert np.abs(sweep[1] - sweep[0]).max() <= 0.9 * np.abs(two - one).max() + 1e-12
        one, two = sweep


# -- as users meet it ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ward():
    """Low pressure: fluids help; high pressure: they do not."""
    rng = np.random.default_rng(4)
    n = 600
    pressure, lactate = rng.uniform(40, 100, n), rng.uniform(0, 5, n)
    action = np.where(rng.random(n) < 0.3, "fluids", "wait")
    good = (pressure < 65) == (action == "fluids")
    return dprl.from_arrays(
        episode=[f"p{i}" for i in range(n)],
        state=np.column_stack([pressure, lactate]),
        action=action,
        reward=good + rng.normal(size=n) * 0.2,
        feature_names=["pressure", "lactate"],
    )


@pytest.fixture(scope="module")
def policy(ward):
    return DPRLContinuous(n_min=5, radius=0.5, gamma=0.9).fit(ward)


def test_it_finds_where_to_speak(policy):
    assert policy.act([[50, 2], [90, 2], [500, 2]]) == ["fluids", "wait", dprl.DEFER]
    assert policy.act({"pressure": 50, "lactate": 2}) == "fluids"
    assert policy.act([50, 2]) == "fluids"
    frame = {"lactate": [2, 2], "id": [1, 2], "pressure": [50, 90]}
    for table in (frame, pd.DataFrame(frame), pl.DataFrame(frame)):
        assert policy.act(table) == ["fluids", "wait"]
    pi = policy.probabilities([[50, 2], [500, 2]])
    assert pi[0].tolist() == [1, 0]
    assert np.isnan(pi[1]).all()


def test_changes_name_the_features(policy):
    table = policy.changes(cases=True)
    assert len(table) > 30
    assert list(policy.changes().columns)[:3] == ["pressure", "lactate", "usual"]
    assert list(table.columns)[:4] == ["episode", "pressure", "lactate", "usual"]
    rows = table.to_dicts()
    low = [row["low"] for row in rows]
    assert low == sorted(low, reverse=True)
    sure = [row for row in rows if row["low"] > 0.2]
    assert len(sure) > 20
    right = [row["suggested"] == ("fluids" if row["pressure"] < 65 else "wait") for row in sure]
    assert np.mean(right) > 0.9
    assert "training points would change" in str(table)
    assert "600 points · 2 features" in str(policy)


def test_points_of_groups_carry_the_names_of_groups():
    rng = np.random.default_rng(0)
    log = dprl.from_arrays(
        episode=np.arange(60), group=[f"g{i // 2}" for i in range(60)], state=rng.random((60, 2)),
        action=rng.choice(["a", "b"], 60), reward=rng.random(60),
    )  # fmt: skip
    policy = dprl.DPRLContinuous(n_min=2, radius=3.0, gamma=1.0).fit(log)
    said = policy.explain([0.5, 0.5], cases=True)
    assert "The most similar groups" in str(said)
    assert set(said.similar["group"]) <= set(log.groups)
    listed = [
        *policy.changes(cases=True).to_dicts(), *policy.confirmations(cases=True).to_dicts(),
    ]  # fmt: skip
    assert listed
    assert all(row["group"] in log.groups and "episode" not in row for row in listed)


def test_a_feature_called_like_a_column_keeps_its_numbers():
    rng = np.random.default_rng(0)
    x, action = rng.random((200, 3)), rng.choice(["a", "b"], 200)
    log = dprl.from_arrays(
        episode=np.arange(200), state=x, action=action, reward=x[:, 0] * (action == "a"),
        feature_names=["value", "low", "z"],
    )  # fmt: skip
    policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
    rows = policy.changes(cases=True).to_dicts()
    assert rows
    for row in rows:
        told = [row["value (feature)"], row["low (feature)"], row["z"]]
        assert told == pytest.approx(x[row["episode"]])
        assert row["value"] - row["value_usual"] == pytest.approx(row["rule_difference"])


def test_explanations_name_similar_episodes(policy, ward):
    text = str(policy.explain([50, 2], cases=True))
    assert text.startswith("pressure = 50, lactate = 2: suggests fluids (change)")
    assert "The most similar episodes" in text
    similar = policy.explain([50, 2], cases=True).similar
    assert similar["distance"] == sorted(similar["distance"])
    assert all(e in ward.episodes for e in similar["episode"])
    far = policy.explain({"pressure": 500, "lactate": 2})
    assert far.kind == "defer"
    assert "Nothing in the training log lies within 0.5" in far.reason
    assert far.to_dict()["similar"] == []


def test_round_trip(policy, tmp_path):
    policy.save(tmp_path / "p.dprl")
    again = dprl.load(tmp_path / "p.dprl")
    assert again.digest() == policy.digest()
    assert again.act([[50, 2]]) == ["fluids"]
    assert again.feature_names == ("pressure", "lactate")


@pytest.mark.parametrize(
    ("states", "error", "message"),
    [
        ({"pressure": 50}, dprl.PolicyError, "a state needs the feature 'lactate'"),
        ([[50, np.nan]], dprl.LogError, "feature 'lactate' is not a finite number"),
        ([[50, 2, 3]], dprl.ParameterError, "2 features in columns"),
        (["low", "high"], dprl.PolicyError, "states must be numbers"),
    ],
)
def test_states_that_are_none(policy, states, error, message):
    with pytest.raises(error, match=message):
        policy.act(states)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"radius": -1}, r"radius must be a number in \[0, infinity\)"),
        ({"radius": float("nan")}, "radius must be"),
        ({"visits": "some"}, "visits must be 'first' or 'all'"),
        ({"cut": "forget"}, "cut must be"),
        ({"plan": "yes"}, "plan must be true or false"),
        ({"n_min": 0}, "n_min must be"),
        ({"lam": 1.5}, r"lam must be a number in \[0, 1\]"),
        ({"lam": -0.1}, "lam must be"),
        ({"lam": float("nan")}, "lam must be"),
        ({"lam": True}, "lam must be"),
        ({"lam": "high"}, "lam must be"),
        ({"lam": 1, "folds": 1}, "folds must be"),
        ({"lam": 1, "seed": -1}, "seed must be"),
    ],
)
def test_settings(settings, message):
    with pytest.raises(dprl.ParameterError, match=message):
        DPRLContinuous(**{"n_min": 5, "radius": 1.0, "gamma": 0.9, **settings})


def test_labelled_logs_are_refused():
    with pytest.raises(dprl.LogError, match="labels, not numeric features"):
        DPRLContinuous(n_min=5, radius=1.0, gamma=0.9).fit(to_log([[("s", "a", 1.0)]]))


@pytest.mark.parametrize("plan", [False, True])
def test_what_is_not_always_on_offer_near_by_is_never_suggested(plan):
    rng = np.random.default_rng(0)
    n = 200
    x = rng.uniform(0, 10, n)
    action = np.where(rng.random(n) < 0.5, "a", "b")
    offer = np.where((x > 6) & (action == "b"), "b", "a|b")
    log = dprl.from_arrays(
        episode=np.arange(n), state=x[:, None], action=action, reward=(action == "a") * 1.0,
        available=offer.tolist(),
    )  # fmt: skip
    policy = DPRLContinuous(n_min=3, radius=0.5, gamma=1.0, metric=RAW, plan=plan).fit(log)
    assert policy.act([[3.0], [8.0]]) == ["a", dprl.DEFER]
    assert "not always available" in policy.explain([8.0]).reason
    assert dprl.prune(policy).policy.act([[3.0], [8.0]]) == ["a", dprl.DEFER]
    assert dprl.compress(policy, 0.2).policy.act([[8.0]]) == [dprl.DEFER]


def test_learners_have_the_same_defaults_as_the_command_line():
    """A setting of one name has one default, at every door."""
    from dprl.apps.cli.learning import LearnerOptions

    doors = [
        {f.name: f.default for f in dataclasses.fields(door)}
        for door in (dprl.DPRLDiscrete, DPRLContinuous)
    ]
    asked = LearnerOptions(gamma=0.9)  # nothing else is said on the command line
    for radius in (None, 1.0):
        made = asked.make(5, radius, seed=None, own_seed=True)
        doors.append(
            {"gamma": dataclasses.MISSING} | {k: v for k, v in vars(made).items() if k != "gamma"}
        )
    shared = set(doors[0]) & set(doors[1]) & {f.name for f in dataclasses.fields(LearnerOptions)}
    assert shared == {"gamma", "contrast", "plan", "visits", "cut"}
    for name in shared:
        assert len({repr(door[name]) for door in doors}) == 1, name
    assert doors[0]["plan"] is True


def test_the_old_name_of_visits(ward):
    """`neighbors` works for one more release, warns, and cannot contradict `visits`."""
    settings = {"n_min": 5, "radius": 0.5, "gamma": 0.9, "plan": False}
    with pytest.warns(DeprecationWarning, match="neighbors of DPRLContinuous is called visits"):
        old = DPRLContinuous(neighbors="all", **settings)
    assert old == DPRLContinuous(visits="all", **settings)
    with pytest.warns(DeprecationWarning, match="is called visits"):
        assert old.neighbors == "all"
    with pytest.raises(dprl.ParameterError, match="old name of visits, and both are given"):
        dataclasses.replace(old, neighbors="first")
    assert dataclasses.replace(old, n_min=6).visits == "all"
    policy = old.fit(ward)
    assert (policy.visits, "neighbors" in policy.parameters) == ("all", False)


@pytest.mark.parametrize("visits", ["first", "all"])
def test_policies_that_say_neighbors_are_read(ward, visits, tmp_path):
    """Files name it `neighbors` alone, or both; what they are gated with is what they say."""
    from dprl.certificate._gate import learner_of

    settings = {"n_min": 5, "radius": 0.5, "gamma": 0.9, "plan": False}
    policy = DPRLContinuous(visits=visits, **settings).fit(ward)
    words = {k: v for k, v in policy.parameters.items() if k != "visits"}
    for named in ({"neighbors": visits}, {"neighbors": visits, "visits": visits}):
        dataclasses.replace(policy, parameters={**words, **named}).save(tmp_path / "old.dprl")
        old = dprl.load(tmp_path / "old.dprl")
        assert old.act(ward.features[:20]) == policy.act(ward.features[:20])
        assert learner_of(old).visits == visits
    other = {"first": "all", "all": "first"}[visits]
    for wrong in ({}, {"neighbors": None}, {"neighbors": visits, "visits": other}):
        with pytest.raises(dprl.PolicyError, match="its settings are"):
            dataclasses.replace(policy, parameters={**words, **wrong})
