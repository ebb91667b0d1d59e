"""Sweeps: what is shared, what is shown, what may be picked, and what is refused afterwards."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest

import dprl
from dprl.errors import ParameterError, PolicyError
from dprl.evaluation._sweep import RULES
from dprl.evidence.neighbors.engine import Engine, Remembering
from dprl.learners import continuous
from dprl.learners import discrete as learn
from dprl.logs.overlap import shared, sketch
from dprl.logs.reading.tables import read_rows

GRID = [5, 20, 50, 200]


@pytest.fixture(scope="module")
def care():
    mdp = dprl.envs.care_pathway()
    return mdp, mdp.sample(1_000, seed=1), mdp.sample(1_000, seed=2)


@pytest.fixture(scope="module")
def swept(care):
    _, train, valid = care
    learner = dprl.DPRLDiscrete(n_min=1, gamma=1.0)
    return dprl.sweep(learner, train, valid, n_min=GRID, draws=200)


def test_each_row_is_what_fitting_and_evaluating_gives(care, swept):
    _, train, valid = care
    for row, policy, n_min in zip(swept.rows, swept.policies, GRID, strict=True):
        alone = dprl.DPRLDiscrete(n_min=n_min, gamma=1.0).fit(train)
        assert policy.digest() == alone.digest()
        found = dprl.evaluate(alone, valid, draws=200)
        assert row["n_min"] == n_min
        assert row["changes"] == alone.summary()["changes"]
        assert row["confirmations"] == alone.summary()["confirmations"]
        for key in ("difference", "difference_low", "difference_high"):
            assert row[key] == found[found.headline][key]
        assert row["ess_differs"] == found.facts["ess_differs"]
        assert row["deferred"] == pytest.approx(1 - found.facts["spoken"])
    assert len(swept) == 4


def test_evidence_is_gathered_once(care, monkeypatch):
    _, train, valid = care
    calls = []
    count = learn.count_source
    monkeypatch.setattr(learn, "count_source", lambda *a, **k: calls.append(1) or count(*a, **k))
    dprl.sweep(
        dprl.DPRLDiscrete(n_min=1, gamma=1.0), train, valid, n_min=GRID, draws=10, values=False
    )
    assert len(calls) == 1


@pytest.fixture(scope="module")
def walks():
    world = dprl.envs.PointMass()
    return world.sample(120, seed=1), world.sample(80, seed=2)


def walker(**more):
    return dprl.DPRLContinuous(
        n_min=1, radius=0.1, gamma=0.97, metric=dprl.Metric(scale="none"), cut="terminal", **more
    )


@pytest.mark.slow
@pytest.mark.parametrize("plan", [False, True])
def test_neighbours_are_found_once_a_radius(walks, monkeypatch, plan):
    train, valid = walks
    searched, built = [], []
    search, build = Engine.evidence, Engine.build.__func__
    monkeypatch.setattr(
        Engine, "evidence",
        lambda self, z, radius, **k: searched.append((type(self), radius, len(z)))
        or search(self, z, radius, **k),
    )  # fmt: skip
    monkeypatch.setattr(
        Engine, "build", classmethod(lambda cls, *a, **k: built.append(1) or build(cls, *a, **k))
    )
    found = dprl.sweep(
        walker(plan=plan), train, valid, n_min=[5, 10, 20], radius=[0.05, 0.1], draws=10,
        values=False,
    )  # fmt: skip
    shared = [x for x in searched if x[0] is Remembering]
    assert sorted(shared) == sorted(
        (Remembering, r, n) for r in (0.05, 0.1) for n in (train.n_steps, valid.n_steps)
    )
    assert len(built) == 1
    for row, policy in zip(found.rows, found.policies, strict=True):
        alone = walker(plan=plan)
        alone = continuous.replace(alone, n_min=row["n_min"], radius=row["radius"]).fit(train)
        assert alone.digest() == policy.digest()
    assert not any(p.returns_engine._answers for p in found.policies)  # nothing is kept


def test_remembering_gives_what_the_engine_gives(walks):
    train, valid = walks
    policy = walker().fit(train)
    engine, z = policy.returns_engine, valid.features
    mind = Remembering.like(engine)
    for radius in (0.05, 0.1, 0.05):
        for visits in ("first", "all"):
            for leave_out in (None, np.zeros(len(z), np.int64)):
                ask = {"visits": visits, "leave_out": leave_out}
                fresh = engine.evidence(z, radius, **ask)
                for _ in range(2):
                    assert (mind.evidence(z.copy(), radius, **ask).words == fresh.words).all()
    mind.forget()
    assert (mind.evidence(z, 0.05).words == engine.evidence(z, 0.05).words).all()
    assert mind._answers is None


def test_availability_is_shared_too():
    log = dprl.from_arrays(
        episode=np.arange(40), state=np.repeat([[0.0], [1.0]], 20, axis=0),
        action=["a", "b"] * 20, reward=np.tile([0.0, 1.0], 20),
        available=["a|b"] * 20 + ["a|b|c"] * 20,
    )  # fmt: skip
    learner = dprl.DPRLContinuous(n_min=1, radius=0.1, gamma=1.0)
    policies = list(learner.fit_each(log, [{"n_min": 2}, {"n_min": 5}]))
    for n_min, policy in zip((2, 5), policies, strict=True):
        alone = dprl.DPRLContinuous(n_min=n_min, radius=0.1, gamma=1.0).fit(log)
        assert policy.act([[0.0], [1.0]]) == alone.act([[0.0], [1.0]]) == ["b", "b"]
        assert policy.digest() == alone.digest()


def test_only_what_can_be_shared_may_be_varied(care):
    _, train, _ = care
    with pytest.raises(ParameterError, match="'gamma' cannot be varied"):
        list(dprl.DPRLDiscrete(n_min=1, gamma=1.0).fit_each(train, [{"gamma": 0.5}]))


def test_rivals_can_be_swept(care):
    _, train, valid = care
    found = dprl.sweep(
        dprl.learners.baselines.SPIBB(n_min=1, gamma=1.0), train, valid, n_min=[5, 20], draws=20
    )
    assert found.rows[0]["changes"] is None
    assert found.rows[0]["deferred"] == 0


class Usual:
    """A learner of one's own: the commonest action of a state with n_min visits, no dataclass."""

    gamma = 1.0

    def __init__(self, n_min):
        self.n_min = n_min

    def fit(self, log):
        counts = np.zeros((log.n_states, log.n_actions))
        np.add.at(counts, (log.codes(), log.action), 1)
        usual = {
            state: log.actions[int(row.argmax())] if row.sum() >= self.n_min else dprl.DEFER
            for state, row in zip(log.states, counts, strict=True)
        }
        return dprl.CallablePolicy(
            lambda states: [usual[s] for s in np.asarray(states).tolist()], actions=log.actions
        )


@dataclass
class UsualData(Usual):
    n_min: float


class UsualHook(Usual):
    def with_settings(self, n_min):
        return UsualHook(n_min)


@pytest.mark.parametrize("kind", [UsualData, UsualHook])
def test_a_learner_of_ones_own_can_be_swept(care, kind):
    _, train, valid = care
    learner = kind(3)
    found = dprl.sweep(learner, train, valid, n_min=[1, 10**6], draws=20, values=False)
    assert [row["deferred"] for row in found.rows] == [0, 1]
    assert learner.n_min == 3
    for policy, n_min in zip(found.policies, [1, 10**6], strict=True):
        alone = dprl.evaluate(Usual(n_min).fit(train), valid, gamma=1.0, draws=20, values=False)
        swept = dprl.evaluate(policy, valid, gamma=1.0, draws=20, values=False)
        assert alone["WPDIS"] == swept["WPDIS"]
    picked = found.pick(lambda rows: 0)
    with pytest.raises(PolicyError, match="the policy was picked on"):
        dprl.evaluate(picked, valid, gamma=1.0)
    with pytest.raises(PolicyError, match="the log the policy was learned from"):
        dprl.evaluate(picked, train, gamma=1.0)
    with pytest.raises(PolicyError, match="% of a sample of groups is also in the log the policy"):
        dprl.evaluate(picked, train.split(0.5, seed=0)[0], gamma=1.0)
    assert not [w for e in found.evaluations for w in e.warnings if "cannot be told" in w]


def test_what_a_learner_of_ones_own_needs_is_said(care):
    _, train, valid = care

    class Odd(Usual):
        def with_settings(self, n_min):
            return n_min

    class Closed(Usual):
        def with_settings(self):
            return self

    @dataclass
    class Undiscounted(UsualData):
        gamma = None

    class Bare(UsualHook):
        def with_settings(self, n_min):
            return Bare(n_min)

        def fit(self, log):
            self.chosen = super().fit(log)
            return self.chosen.model

    class Own:
        """A policy that has what `evaluate` asks for, and no memory."""

        def __init__(self, actions):
            self.actions = actions

        def probabilities(self, states):
            return np.full((len(states), len(self.actions)), 1 / len(self.actions))

    class Free(UsualHook):
        def with_settings(self, n_min):
            return Free(n_min)

        def fit(self, log):
            return Own(log.actions)

    def sweep(learner):
        return dprl.sweep(learner, train, valid, n_min=[5], draws=20, values=False)

    needed = r"Usual has no n_min to vary\.\n  A learner has fit\(log\), and is a dataclass with"
    for learner, words in [
        (Usual(3), needed),
        (UsualData, r"UsualData is a class, not a learner\.\n  Make one"),
        (Odd(3), r"returned a int, which has no fit\.\n  first: n_min = 5\n  It must return"),
        (Closed(3), r"Closed cannot be given n_min = 5\.\n  first: TypeError: .*\n  A learner has"),
        (Undiscounted(3), r"says how to discount\.\n  Give the learner"),
        (object(), "object has no n_min to vary: it is no learner"),
    ]:
        with pytest.raises(ParameterError, match=words):
            sweep(learner)
    with pytest.raises(PolicyError, match="is no policy of dprl's"):
        sweep(Bare(3))
    with pytest.raises(PolicyError, match=r"a Own cannot remember .*\n  first: n_min 5\n  Let fit"):
        sweep(Free(3)).pick(lambda rows: 0)


# -- picking ------------------------------------------------------------------------------------


def test_rules_do_what_their_sentences_say(swept):
    passes = [
        i for i, r in enumerate(swept.rows) if r["difference_low"] > 0 and r["ess_differs"] >= 30
    ]
    assert 0 < len(passes) < len(GRID)
    best = {
        "cautious": max(passes, key=lambda i: swept.rows[i]["n_min"]),
        "lower-end": max(passes, key=lambda i: (swept.rows[i]["difference_low"], -i)),
        "bold": max(passes, key=lambda i: (swept.rows[i]["differs"], -i)),
    }
    for rule, place in best.items():
        picked = swept.pick(rule)
        assert picked.n_min == GRID[place]
        assert picked.provenance["sweep"]["rule"] == rule
        assert picked.provenance["sweep"]["words"] == RULES[rule][0]
        assert picked.act(["fever"]) == swept.policies[place].act(["fever"])


def test_cautious_takes_the_smallest_radius_of_equals():
    rank = RULES["cautious"][1]
    rows = [
        {
            "n_min": 5,
            "radius": r,
            "differs": 0.1,
            "difference_low": low,
            "ess": 99.0,
            "ess_differs": ess,
        }
        for r, low, ess in ((1.0, 0.1, 40), (0.5, 0.1, 40), (0.2, -0.1, 40), (0.1, 0.1, 29))
    ]
    ranks = [rank(row) for row in rows]
    assert ranks[2] is ranks[3] is None
    assert max(x for x in ranks if x) == ranks[1]
    assert rank({"n_min": 9, "difference_low": np.nan, "ess": 99, "ess_differs": 99}) is None


def test_a_rule_of_ones_own(swept):
    def second(rows):
        """The second setting"""
        return 1

    picked = swept.pick(second)
    assert picked.n_min == GRID[1]
    assert picked.provenance["sweep"]["words"] == "The second setting"
    with pytest.raises(ParameterError, match="row 9 of 4"):
        swept.pick(lambda rows: 9)


def test_nothing_passes_and_no_such_rule(care, swept):
    with pytest.raises(ParameterError, match="no rule 'best'") as caught:
        swept.pick("best")
    assert "cautious: the largest n_min" in str(caught.value)
    _, train, valid = care
    few = dprl.sweep(
        dprl.DPRLDiscrete(n_min=1, gamma=1.0), train.take(range(60)), valid.take(range(40)),
        n_min=[2, 500], draws=50,
    )  # fmt: skip
    with pytest.raises(PolicyError, match="no setting passes the rule 'cautious'") as caught:
        few.pick("cautious")
    assert "comes closest" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3


@dataclass
class Always:
    """The drug, whatever comes."""

    n_min: int = 1
    gamma: float = 1.0

    def fit(self, log):
        return dprl.CallablePolicy(lambda s: ["drug"] * len(s), log.actions, trained_on=log)


def test_weights_that_miss_their_tail_pass_no_rule():
    # All returns are -1, whatever is done. Of 120 long episodes none takes the drug always, so the
    # weights have mean .7, and by IS and WPDIS the policy is worth -.7: seemingly a gain of .3
    def log(name):
        return dprl.from_arrays(
            episode=[f"{name}{i}" for i in [*range(280), *np.repeat(np.arange(280, 400), 10)]],
            state=["ill"] * 1480,
            action=["drug", "wait"] * 740,
            reward=[-1.0] * 280 + ([0.0] * 9 + [-1.0]) * 120,
        )

    by_weight = dprl.sweep(
        Always(), log("a"), log("b"), n_min=[1], values=False, draws=50, estimator="WPDIS"
    )
    row = by_weight.rows[0]
    assert row["difference_low"] > 0.2
    assert min(row["ess"], row["ess_differs"]) > 100
    assert row["weights_off"] == "mean 0.70"
    assert "WPDIS is off by as much" in by_weight.details()
    for rule in RULES:
        with pytest.raises(PolicyError, match="whose weights have mean 1"):
            by_weight.pick(rule)
    by_values = dprl.sweep(Always(), log("a"), log("b"), n_min=[1], draws=50)
    assert by_values.rows[0]["weights_off"] == ""
    assert by_values.rows[0]["difference"] == pytest.approx(0)


def test_what_comes_closest_is_short_of_the_least(swept):
    def row(low, size):
        return {**swept.rows[0], "difference_low": low, "ess": size, "ess_differs": size}

    def closest(*rows):
        named = [{**one, "n_min": 10 * (i + 1)} for i, one in enumerate(rows)]
        with pytest.raises(PolicyError) as caught:
            replace(swept, rows=tuple(named)).pick("bold")
        return int(str(caught.value).split("n_min ")[-1].split(" ")[0])

    assert closest(row(0.3, 2.2), row(0.2, 28.0), row(-0.01, 70.0)) == 20
    assert closest(row(-0.2, 70.0), row(-0.1, 2.0), row(-0.05, 60.0), row(np.nan, 90.0)) == 30


def test_the_picked_must_be_judged_on_other_episodes(care, swept, tmp_path):
    mdp, train, valid = care
    picked = swept.pick("cautious")
    origin = picked.provenance["sweep"]
    assert (origin["train"], origin["valid"]) == (train.digest(), valid.digest())
    picked.save(tmp_path / "p.dprl")
    for policy in (picked, dprl.load(tmp_path / "p.dprl")):
        for log, words in ((train, "learned from"), (valid, "picked on, out of 4")):
            with pytest.raises(PolicyError, match=words) as caught:
                dprl.evaluate(policy, log)
            assert len(str(caught.value).splitlines()) == 3
        fresh = dprl.evaluate(policy, mdp.sample(1_000, seed=3), draws=50)
        assert not fresh.warnings
    told = dprl.evaluate(picked, valid, draws=50, allow_seen=True)
    assert "picked on, out of 4" in told.warnings[0]


def test_logs_that_share_groups_are_refused(care, swept):
    mdp, _, valid = care
    log = mdp.sample(1_000, seed=7)
    one, two = log.split(0.5, seed=0)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(one)
    dprl.evaluate(policy, two, draws=10, values=False)
    for other in (log, one.take(range(200))):
        with pytest.raises(PolicyError, match="about 100 % of a sample of groups is also in the"):
            dprl.evaluate(policy, other)
    with pytest.raises(PolicyError, match="also in the log the policy was picked on"):
        dprl.evaluate(swept.pick("cautious"), valid.take(range(500)))
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    with pytest.raises(ParameterError, match="100 % of train and valid is the same"):
        dprl.sweep(learner, log, two, n_min=[20])


@pytest.mark.parametrize(
    "env", [dprl.envs.forest(), dprl.envs.care_pathway(), dprl.envs.rooms(), dprl.envs.PointMass()]
)
def test_overlap_is_told_from_chance(env):
    """Simulated logs share all labels, and short episodes repeat; that is no overlap."""
    for seed in range(8):
        a, b = env.sample(300, seed=2 * seed), env.sample(200, seed=2 * seed + 1)
        assert shared(sketch(a), a.digest(), b) == shared(sketch(b), b.digest(), a) == 0
    log = env.sample(1_000, seed=99)
    one, two = log.split(0.5, seed=0)
    assert shared(sketch(one), one.digest(), two) == 0
    assert shared(sketch(one), one.digest(), log) == 1
    assert shared(sketch(log), log.digest(), one) == 1
    assert 0.2 < shared(sketch(one), one.digest(), log.take(range(600, 1_000))) < 1.01
    mixed = log.take(np.concatenate([np.flatnonzero(np.isin(log.episodes, one.episodes))[:100],
                                     np.flatnonzero(np.isin(log.episodes, two.episodes))[:300]]))  # fmt: skip
    assert 0.05 < shared(sketch(one), one.digest(), mixed) < 0.6


def test_overlap_does_not_hang_on_codes_or_on_how_labels_are_stored(tmp_path):
    log = dprl.envs.care_pathway().sample(100, seed=0)
    dprl.write(log, tmp_path / "log.csv")
    names = {k: k for k in ("episode", "time", "state", "action", "reward", "ended")}
    again = dprl.read(tmp_path / "log.csv", **names)
    assert again.states != log.states  # other codes
    assert sketch(again) == sketch(log)
    named = dprl.from_arrays(
        episode=np.repeat([f"p{i}" for i in range(100)], log.lengths), state=log.state,
        action=log.action, reward=log.reward,
    )  # fmt: skip
    longer = dprl.from_arrays(
        episode=np.append(np.repeat([f"p{i}" for i in range(100)], log.lengths), "p" * 40),
        state=np.append(log.state, 0), action=np.append(log.action, 0),
        reward=np.append(log.reward, 0),
    )  # fmt: skip
    assert shared(sketch(named), named.digest(), longer) > 0.98
    assert shared((), "", log) == 0
    same = dprl.from_arrays(episode=range(50), state=[0] * 50, action=[0] * 50, reward=[0.0] * 50)
    assert (
        shared(sketch(same), same.digest(), same) == 0
    )  # nothing can be told: that is for the digest


# -- showing ------------------------------------------------------------------------------------


def test_table_json_frame(swept):
    text = swept.details()
    assert text.startswith("4 settings, judged on 1,000 held-out episodes; usual practice gets")
    assert "never saw" in text
    assert swept.to_frame().shape == (4, 16)
    data = json.loads(swept.to_json())
    assert [row["n_min"] for row in data["settings"]] == GRID
    assert data["valid"] == swept.valid
    assert "picks n_min" in swept._repr_html_()
    assert "<img" in swept._repr_html_() or "<table" in swept._repr_html_()  # without matplotlib


@pytest.mark.slow
def test_plot_leaves_its_rows_beside_it(swept, tmp_path):
    swept.plot(tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").stat().st_size > 10_000
    rows = read_rows([tmp_path / "sweep.parquet"])
    assert rows["n_min"].tolist() == GRID
    assert rows["difference"] == pytest.approx([r["difference"] for r in swept.rows])
    with pytest.raises(ParameterError, match=r"cannot be written as 'sweep\.doc'"):
        swept.plot(tmp_path / "sweep.doc")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["sweep.parquet", "sweep.png"]


@pytest.mark.slow
def test_plot_over_radii(walks):
    train, valid = walks
    found = dprl.sweep(
        walker(), train, valid, n_min=[5], radius=[0.05, 0.1], draws=10, values=False
    )
    figure = found.plot()
    assert figure.axes[0].get_xlabel() == "radius"
    assert found.estimator == "WIS"


def test_certificates_and_progress(care):
    _, train, valid = care
    told = []
    found = dprl.sweep(
        dprl.DPRLDiscrete(n_min=1, gamma=1.0), train, valid, n_min=[20, 50], draws=10, values=False,
        delta=0.1, value_range=(0, 1),
        progress=lambda *x: told.append(x),
    )  # fmt: skip
    gated = [
        dprl.gate(p, train, delta=0.05, value_range=(0, 1)).certificate for p in found.policies
    ]
    assert [r["certified"] for r in found.rows] == [len(c.rows) for c in gated]
    assert [r["certified_gain"] for r in found.rows] == [c.gain or 0.0 for c in gated]
    assert told == [("settings", 0.0), ("settings", 0.5), ("settings", 1.0)]


def test_bad_settings(care):
    _, train, valid = care
    learner = dprl.DPRLDiscrete(n_min=1, gamma=1.0)
    bad = [
        ({"n_min": []}, "list of values"),
        ({"n_min": 5}, "list of values"),
        ({"n_min": "5"}, "list of values"),
        ({"n_min": [5, 5]}, "twice"),
        ({"n_min": [0]}, "n_min must be"),
        ({"n_min": [5], "radius": [1.0]}, "no radius to vary"),
        ({"n_min": [5], "estimator": "best"}, "estimator must be 'IS'"),
        ({"n_min": [5], "estimator": "DR", "values": False}, "need values"),
        ({"n_min": [5], "delta": 0.05}, "needs value_range"),
        ({"n_min": [5, 6], "delta": 1.5, "value_range": (0, 1)}, "delta must be"),
        ({"n_min": [5], "value_range": (0, 1)}, "Name a delta"),
    ]
    for options, words in bad:
        with pytest.raises(ParameterError, match=words):
            dprl.sweep(learner, train, valid, **options)
    with pytest.raises(ParameterError, match="no n_min to vary"):
        dprl.sweep(dprl.learners.baselines.BC(), train, valid, n_min=[5])
    with pytest.raises(ParameterError, match="no n_min to vary"):
        dprl.sweep("DPRL", train, valid, n_min=[5])
    with pytest.raises(ParameterError, match="100 % of train and valid is the same"):
        dprl.sweep(learner, train, train, n_min=[5])


# -- any setting of the learner ------------------------------------------------------------------


def test_any_setting_can_be_varied(care):
    _, train, valid = care
    learner = dprl.DPRLDiscrete(n_min=1, gamma=1.0)
    found = dprl.sweep(
        learner, train, valid, n_min=[20, 50], params={"contrast": [True, False]}, draws=20,
        values=False,
    )  # fmt: skip
    assert found.varied == ("contrast", "n_min")
    assert len(found) == 4
    for row, policy in zip(found.rows, found.policies, strict=True):
        alone = dprl.DPRLDiscrete(n_min=row["n_min"], contrast=row["contrast"], gamma=1.0)
        assert policy.digest() == alone.fit(train).digest()
    assert list(found.table().columns)[:2] == ["contrast", "n_min"]
    assert found.to_dict()["settings"][0]["contrast"] is True
    figure = found.plot()
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["contrast True", "contrast False"]


def test_settings_without_n_min_words_and_numbers(care):
    """Of Confident, and of rivals that have no n_min; those that share work are fitted together."""
    _, train, valid = care
    learner = dprl.Confident(gamma=1.0, promise=False, splits=0, check=False)
    found = dprl.sweep(
        learner, train, valid, params={"risk": [0.01, 0.3], "evidence": ["model", "returns"]},
        draws=20, values=False,
    )  # fmt: skip
    assert found.varied == ("evidence", "risk")
    for row, policy in zip(found.rows, found.policies, strict=True):
        alone = dprl.Confident(
            gamma=1.0, promise=False, splits=0, check=False, risk=row["risk"],
            evidence=row["evidence"],
        )  # fmt: skip
        assert policy.digest() == alone.fit(train).digest()
    found.plot()
    rivals = dprl.sweep(
        dprl.baselines.PQI(b=0.1, gamma=1.0), train, valid, params={"b": [0.001, 0.2]}, draws=20,
        values=False,
    )  # fmt: skip
    assert [row["b"] for row in rivals.rows] == [0.001, 0.2]
    assert rivals.rows[1]["unsupported"] > rivals.rows[0]["unsupported"]
    with pytest.raises(PolicyError, match="'bold'") as caught:
        rivals.pick("bold")
    assert "b 0.001 comes closest" in str(caught.value)


def test_delta_is_divided_among_all_settings(care, monkeypatch):
    from dprl.evaluation import _sweep

    _, train, valid = care
    levels = []
    gate = _sweep.gate
    monkeypatch.setattr(
        _sweep, "gate", lambda *a, delta, **k: levels.append(delta) or gate(*a, delta=delta, **k)
    )
    dprl.sweep(
        dprl.DPRLDiscrete(n_min=1, gamma=1.0), train, valid, n_min=[50, 300],
        params={"plan": [True, False]}, draws=5, values=False, delta=0.08, value_range=(0, 1),
    )  # fmt: skip
    assert levels == [0.02] * 4


def test_without_n_min_cautious_takes_the_fewest_steps():
    rank = RULES["cautious"][1]
    rows = [
        {"risk": r, "differs": d, "difference_low": 0.1, "ess": 99.0, "ess_differs": 40}
        for r, d in ((0.1, 0.3), (0.01, 0.1), (0.05, 0.2))
    ]
    assert max(rows, key=rank)["risk"] == 0.01


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "nothing to vary"),
        ({"params": ["risk"]}, "params must be a dict"),
        ({"params": {"risk": [0.1]}}, "DPRLDiscrete has no risk to vary"),
        ({"params": {"gamma": [0.9, 1.0]}}, "gamma cannot be varied"),
        ({"params": {"cut": ["drop"]}}, "cut cannot be varied"),
        ({"n_min": [5], "params": {"n_min": [5]}}, "n_min is given twice"),
        ({"params": {"n_min": [5, 5]}}, "n_min lists a value twice"),
        ({"params": {"n_min": [[5]]}}, "over numbers, words"),
        ({"params": {"n_min": [0]}}, "n_min"),
        ({"params": {"plan": "no"}}, "plan must be a list"),
    ],
)
def test_what_cannot_be_varied(care, more, words):
    _, train, valid = care
    with pytest.raises(ParameterError, match=words):
        dprl.sweep(dprl.DPRLDiscrete(n_min=1, gamma=1.0), train, valid, **more)


def test_a_setting_called_like_a_column_is_refused(care):
    _, train, valid = care

    @dataclass
    class Odd(UsualData):
        differs: float = 0.0

    with pytest.raises(ParameterError, match="cannot be called 'differs'"):
        dprl.sweep(Odd(3), train, valid, params={"differs": [1.0]})
