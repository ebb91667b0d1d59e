"""A time and a status in place of a reward: curves, completed outcomes, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dprl
from dprl.errors import CutWarning, LogError, ParameterError
from dprl.logs.survival import curve_of

COLUMNS = {"episode": "id", "state": ["x"], "action": "arm"}


def made(n=600, seed=0, censored=3.0, confounded=0.0, several=False):
    """Exponential times; who is censored may depend on x; P(T > 1) is known by arm and x."""
    rng = np.random.default_rng(seed)
    x, arm = rng.normal(size=n), rng.integers(0, 2, n)
    T = rng.exponential(1 / rate(x, arm))
    C = rng.exponential(censored * np.exp(confounded * x))
    status = np.where(T <= C, 1, 0)
    if several:
        status = np.where((status == 1) & (rng.random(n) < 0.4), 2, status)
    days = np.minimum(T, C)
    return pd.DataFrame(
        {"id": np.arange(n), "x": x, "arm": np.array(["a", "b"])[arm], "days": days,
         "status": status, "T": T}
    )  # fmt: skip


def rate(x, arm):
    return np.exp(0.6 * x - 0.5 * arm)


def read(frame, **options):
    options = {"survival": ("days", "status"), "horizon": 1.0, **COLUMNS, "also": (), **options}
    return dprl.from_frame(frame, **options)


def test_without_censoring_the_outcome_is_what_was_seen():
    frame = made()
    frame["days"], frame["status"] = frame["T"], 1
    order = np.argsort(frame["id"].to_numpy())
    for target, want in {
        "event-free": frame["T"] > 1, "time": np.minimum(frame["T"], 1), "risk": -1.0 * (frame["T"] <= 1)
    }.items():  # fmt: skip
        log = read(frame, target=target)
        assert np.array_equal(log.reward, np.asarray(want, float)[order])
        assert "unseen" not in log.columns
    assert read(frame).outcome.name == "share event-free at 1 days"
    assert read(frame, target="risk").outcome.falls
    assert not read(frame, target="risk", better="higher").outcome.falls


def test_a_state_that_tells_nothing_gives_kaplan_meier_by_arm():
    """With one fold's jumps for its own rows the mean would be the curve itself; so it is near."""
    frame = made(1500).assign(x=0.0)
    log = read(frame)
    for row, label in enumerate(log.actions):
        mean = log.reward[log.action == row].mean()
        assert mean == pytest.approx(log.curves([1.0])["share"][row], abs=0.004), label


@pytest.mark.parametrize("target", ["event-free", "time", "risk"])
def test_censoring_that_depends_on_features_is_undone(target):
    """The mean of the completed outcomes is that of the whole ones, where plain curves are off."""
    frames = [made(1200, seed, censored=1.2, confounded=1.0, several=target == "risk")
              for seed in range(4)]  # fmt: skip
    apart, plain = [], []
    for frame in frames:
        log = read(frame, target=target, events=["2"])
        T, arm = frame["T"].to_numpy(), frame["arm"] == "b"
        whole = {"event-free": T > 1, "time": np.minimum(T, 1), "risk": 0.6 * (T <= 1)}[target]
        mine = log.outcome.shown(log.reward)
        apart.append(mine[arm].mean() - whole[arm].mean())
        curve = log.curves([1.0])["share"][1]
        plain.append(curve - whole[arm].mean())
        assert log.columns["unseen"]["rows"] == int(
            ((frame["status"] == 0) & (frame["days"] < 1)).sum()
        )
    assert abs(np.mean(apart)) < 0.025
    if target == "event-free":
        assert np.mean(plain) < -0.03  # who is ill is followed longer


def test_where_everybody_fares_alike_nobody_is_weighted_beyond_what_is_possible():
    frame = made(400, censored=0.5, confounded=0.5)
    late = frame["status"] == 0
    frame.loc[~late, "days"] += 5.0  # all events come after the horizon
    log = read(frame)
    assert np.allclose(log.reward, 1.0)
    assert np.allclose(read(frame, target="time").reward, 1.0)


def test_an_arm_of_few_is_completed_by_what_all_arms_say_of_features():
    """A model of its own gave single patients weights of 50, and means of -0.7 to 1.8."""
    for seed, few in ((0, 0), (1, 0), (0, 1), (2, 1)):
        frame = made(800, seed, censored=2.5, confounded=0.4)
        frame["z"] = frame["id"] % 2
        mine = frame["arm"].eq("ab"[few])
        log = read(frame[~mine | (np.cumsum(mine) <= 32)], state=["x", "z"])
        apart = log.reward[log.action == few].mean() - log.curves([1.0])["share"][few]
        assert abs(apart) < 0.15


def two_decisions(n=1500, seed=0, censored=2.0):
    """A second decision at .4 for who is there still; being censored depends on its action."""
    rng = np.random.default_rng(seed)
    x, a0, a1 = rng.normal(size=n), rng.integers(0, 2, n), rng.integers(0, 2, n)
    first = rng.exponential(1 / rate(x, a0))
    later = 0.4 + rng.exponential(1 / rate(x + 0.5, a1))
    T = np.where(first < 0.4, first, later)
    C = rng.exponential(censored, n)
    C = np.where(C < 0.4, C, 0.4 + rng.exponential(np.where(a1 == 1, censored, censored / 4)))
    days, status, rows = np.minimum(T, C), (T <= C).astype(int), []
    for i in range(n):
        rows.append((i, 0, x[i], "ab"[a0[i]], days[i], status[i]))
        if days[i] > 0.4:
            rows.append((i, 1, x[i] + 0.5, "ab"[a1[i]], days[i] - 0.4, status[i]))
    frame = pd.DataFrame(rows, columns=["id", "k", "x", "arm", "days", "status"])
    return frame, x, a1, T


def test_a_later_decision_has_a_return_of_its_own():
    frame, x, a1, _T = two_decisions(2500)
    log = read(frame, time="k")
    assert set(log.endings) == {"terminal", "cut"}
    returns = log.more["completed"]
    second = np.ones(log.n_steps, bool)
    second[log.starts[:-1]] = False
    who = np.repeat(np.asarray(log.episodes), log.lengths)[second]
    for arm in (0, 1):
        own = a1[who] == arm
        true = np.exp(-0.6 * rate(x[who] + 0.5, arm))[own].mean()
        assert returns[second][own].mean() == pytest.approx(true, abs=0.035)
    with pytest.raises(ParameterError, match="censored before the horizon"):
        dprl.DPRLContinuous(n_min=20, radius=0.5, gamma=1.0, plan=False).fit(log)
    with pytest.raises(ParameterError, match="without discount"):
        dprl.DPRLContinuous(n_min=20, radius=0.5, gamma=0.9, plan=False, cut="ipcw").fit(log)
    with pytest.raises(LogError, match="has its horizon"):
        log.followed(1)
    policy = dprl.DPRLContinuous(n_min=20, radius=0.5, gamma=1.0, plan=False, cut="ipcw").fit(log)
    assert any("not seen" in word for word in policy.conditions)
    other = read(two_decisions(300, seed=9)[0].assign(id=lambda rows: rows["id"] + 9_000), time="k")
    for ask in (
        lambda: dprl.Rules(gamma=1.0, lam=1, cut="ipcw").fit(log),
        lambda: dprl.gate(policy, other, grade="large-sample", value_range=(0, 1), seed=0),
        lambda: dprl.study(log, cut="ipcw"),
        lambda: dprl.study(log),
    ):
        with pytest.raises(LogError, match="reads single steps") as error:
            ask()
        assert "DPRLDiscrete or DPRLContinuous with plan=False, cut='ipcw'" in error.value.do


@pytest.mark.parametrize("cause", [False, True])
def test_curves_agree_with_an_independent_computation(cause):
    lifelines = pytest.importorskip("lifelines")
    frame = made(300, several=cause)
    frame["days"] = frame["days"].round(1) + 0.1  # ties
    for _arm, own in frame.groupby("arm"):
        T, status, ask = own["days"].to_numpy(), own["status"].to_numpy(), np.array([0.5, 1.0, 1.7])
        share, se = curve_of(T, status, ask, cause)
        if not cause:
            km = lifelines.KaplanMeierFitter().fit(T, status > 0, timeline=ask)
            assert share == pytest.approx(km.survival_function_.iloc[:, 0].to_numpy())
            log = read(own)
            for name, column in (("low", 0), ("high", 1)):
                want = km.confidence_interval_survival_function_.iloc[:, column].to_numpy()
                assert log.curves(ask)[name] == pytest.approx(want)
        else:
            rng = np.random.default_rng(0)
            T = T + rng.uniform(0, 1e-9, len(T))  # the other computation takes no ties
            share, se = curve_of(T, status, ask, cause)
            aj = lifelines.AalenJohansenFitter().fit(T, status, event_of_interest=1)
            want = aj.cumulative_density_.iloc[:, 0]
            assert share == pytest.approx([want[want.index <= u].iloc[-1] for u in ask])
            spread = pd.Series(np.ravel(aj.variance_), index=want.index)
            assert se**2 == pytest.approx(
                [spread[spread.index <= u].iloc[-1] for u in ask], rel=0.05
            )


def test_public_trials_agree_with_an_independent_computation():
    """Differences at the horizon and of restricted means, in a trial that is read as one."""
    pytest.importorskip("lifelines")
    from lifelines import KaplanMeierFitter
    from lifelines.datasets import load_lung
    from lifelines.utils import restricted_mean_survival_time

    lung = load_lung().reset_index().dropna(subset=["sex", "age"])
    lung["arm"], lung["one"] = lung["sex"].map({1: "m", 2: "f"}), 0.0
    asked = {"episode": "index", "state": ["one"], "action": "arm", "also": (),
             "survival": ("time", "status"), "horizon": 365}  # fmt: skip
    fits = {
        arm: KaplanMeierFitter().fit(own["time"], own["status"]) for arm, own in lung.groupby("arm")
    }
    for target, of in {
        "event-free": lambda km: float(km.predict(365)),
        "time": lambda km: restricted_mean_survival_time(km, t=365),
    }.items():
        log = dprl.from_frame(lung, target=target, **asked)
        means = [log.reward[log.action == a].mean() for a in (0, 1)]
        want = [of(fits[arm]) for arm in ("f", "m")]
        assert means == pytest.approx(want, abs=0.01 * (365 if target == "time" else 1))
        assert log.curves([365])["share"] == pytest.approx(
            [float(fits[arm].predict(365)) for arm in ("f", "m")]
        )


def test_the_check_says_who_was_censored_and_where_nobody_was_followed():
    frame = made(censored=0.8)
    words = dprl.check(frame, survival="days,status", horizon=1, **COLUMNS, also=()).details()
    assert "censored before 1 days: a " in words
    assert "event-free at 1 days by Kaplan-Meier" in words
    arm = frame["arm"].eq("b")
    frame.loc[arm, ["days", "status"]] = [0.5, 0]
    small = frame[~arm | (np.cumsum(arm) <= 9)]
    found = dprl.check(small, survival="days,status", horizon=1, **COLUMNS, also=()).findings
    assert "b 0.5" in next(f.what for f in found if f.rule == "beyond_follow_up")
    with pytest.warns(CutWarning, match=r"followed with b 0\.5"):
        read(small)


@pytest.mark.parametrize("target", ["event-free", "time", "risk"])
def test_a_horizon_to_which_nobody_was_followed_is_refused(target):
    """Of an arm, and of an arm in one state alone; there it is said by reading and by the check."""
    frame = made(400)
    frame["s"] = np.where(frame["x"] > 0, "well", "ill")
    late = frame["arm"].eq("b")
    for who, state, word in (
        (late, ["x"], "'b': "), (late & frame["s"].eq("ill"), "s", "'b' in state 'ill'")
    ):  # fmt: skip
        short = frame.copy()
        short.loc[who, "status"] = 0
        short.loc[who, "days"] = np.minimum(short.loc[who, "days"], 0.5)
        options = {"state": state, "target": target}
        with pytest.raises(LogError, match=rf"{word}.*nobody was followed beyond 0\.5"):
            read(short, **options)
        asked = {**COLUMNS, **options, "survival": "days,status", "horizon": 1, "also": ()}
        result = dprl.check(short, **asked)
        assert [f.rule for f in result.findings if f.level == "error"] == ["unseen"]
        assert result.log is None
    whole = frame.assign(status=1)  # who had the event is known, however early
    read(whole.assign(days=whole["days"].clip(upper=0.5)), state="s", target=target)


def test_features_of_whom_nobody_is_followed_are_refused():
    frame = made(500)
    late = frame["arm"].eq("b") & (frame["x"] > 0.3)
    frame.loc[late, "status"] = 0
    frame.loc[late, "days"] = np.random.default_rng(1).uniform(0.1, 0.5, late.sum())
    with pytest.raises(LogError, match=r"below 0\.05, as their features foresee it"):
        read(frame)


def test_a_small_chance_to_be_followed_is_refused_for_an_arm_and_said_for_a_few():
    with pytest.raises(LogError, match=r"the chance to be followed is 1\.\d% until then"):
        read(made(400, censored=0.25))
    with pytest.warns(CutWarning, match=r"had a chance below 0\.05"):
        read(made(400, censored=0.9, confounded=1.0))


@pytest.mark.parametrize(
    ("labels", "event", "events"),
    [
        ((1, 2), (), ()),
        ((1, 2), (), ["2"]),
        ((1, 2), ("1",), ["1x", "2", "alive"]),
        (("alive", "dead"), (), ()),
        (("alive", "dead"), ("dead",), ["alive"]),
        ((0, 1, 2), ("2",), ()),
        ((1, 2, 3), (), ["2", "3"]),
        (("relapse", "death"), ("relapse",), ()),
    ],
)
def test_a_status_that_may_be_censored_is_never_taken_for_an_event(labels, event, events):
    frame = made(90)
    frame["status"] = [labels[i % len(labels)] for i in range(90)]
    if "1x" in events:  # both are named, so that both are events
        log = read(frame, survival=("days", "status", *event), events=events)
        assert set(log.more["status"]) == {1, 3}
        return
    with pytest.raises(LogError, match="does not say which is the event") as error:
        read(frame, survival=("days", "status", *event), events=events)
    assert f"{labels[0]!r} on {90 // len(labels)} rows" in error.value.where
    assert "survival=('days', 'status', '" in error.value.do
    assert "events=[" not in error.value.do


@pytest.mark.parametrize(
    ("labels", "event"),
    [((1, 2), "2"), ((1.0, 2.0), "2"), (("alive", "dead"), "dead"), ((1, 0), "0"), ((0, 1), "1")],
)
def test_of_two_labels_the_one_that_is_not_named_is_censored(labels, event):
    frame = made(90)
    frame["status"] = [labels[i % 2] for i in range(90)]
    log = read(frame, survival=("days", "status", event))
    assert np.bincount(log.more["status"].astype(int)).tolist() == [45, 45]


@pytest.mark.parametrize("parquet", ["", "pyarrow", "pandas"])
def test_durations_are_no_numbers(parquet, tmp_path, monkeypatch):
    frame = made(60)
    frame["days"] = pd.to_timedelta(frame["days"], unit="D")
    path, asked = tmp_path / "x.parquet", {"survival": "days,status", "horizon": 1}
    if parquet:
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    if parquet == "pandas":
        monkeypatch.setattr("dprl.logs.reading.files.find_spec", lambda _name: None)
    with pytest.raises(LogError, match="'days' holds durations") as error:
        dprl.read(path, **COLUMNS, **asked) if parquet else read(frame)
    assert error.value.where.startswith("x.parquet" if parquet else "row 1: ")


def test_a_window_of_one_row_with_a_status_names_the_time_to_event():
    frame = made().assign(score=1.0)
    for follow_up in (1, 2, "730 units"):
        with pytest.raises(LogError, match="survival"):
            dprl.from_frame(frame, **COLUMNS, reward="score", ended="status", follow_up=follow_up)
    found = dprl.check(frame, **COLUMNS, reward="score", ended="status").findings
    (cut,) = [f for f in found if f.rule == "cut_episodes"]
    assert "survival" in cut.do


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"horizon": None}, "horizon"),
        ({"horizon": -1}, "horizon"),
        ({"survival": "days"}, "survival"),
        ({"survival": None}, "horizon"),
        ({"target": "median"}, "target"),
        ({"reward": "T"}, "reward"),
        ({"follow_up": 2}, "follow_up"),
        ({"costs": {"a": 0.01}}, "costs"),  # they were taken off the time, in silence
        ({"survival": None, "horizon": None}, "reward"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, word):
    with pytest.raises(ParameterError, match=word):
        read(made(60), **options)


def test_causes_are_named_or_refused():
    frame = made(several=True)
    with pytest.raises(LogError, match="2"):
        read(frame)
    frame["status"] = frame["status"].map({0: "censored", 1: "relapse", 2: "death"})
    with pytest.raises(LogError, match="does not say which is the event"):
        read(frame, survival="days,status,relapse")
    log = read(frame, survival="days,status,relapse", events=["death"], target="risk")
    assert log.events == ("death",)
    assert log.outcome.name == "risk of relapse by 1 days"
    with pytest.raises(LogError, match="nowhere"):
        read(frame, survival="days,status,relaps", events=["death"])
    gap = frame.assign(status=frame["status"].where(frame.index > 5))
    with pytest.raises(LogError, match="does not say how it ended") as error:
        read(gap, survival="days,status,relapse", events=["death"])
    assert "terminal" not in error.value.do  # which would be no status
    with pytest.raises(LogError, match="no column 'days - 1'"):
        read(frame, survival="days - 1,status,relapse", events=["death"])
    frame.loc[0, "days"] = -1.0
    with pytest.raises(LogError, match="below 0"):
        read(frame, survival="days,status,relapse", events=["death"])
    rising, *_ = two_decisions(60)
    rising.loc[rising["k"] == 1, "days"] += 9.0
    with pytest.raises(LogError, match="does not fall"):
        read(rising, time="k")


def test_a_log_is_written_as_it_was_read(tmp_path):
    frame = made(several=True)
    log = read(frame, events=["2"], target="risk")
    dprl.write(log, tmp_path / "log.parquet")
    options = {**COLUMNS, "survival": "days,status", "horizon": 1, "target": "risk", "also": ()}
    again = dprl.read(tmp_path / "log.parquet", **options, events=["2"])
    assert again.digest() == log.digest()


def test_judges_stay_inside_what_is_possible_and_nothing_is_proved():
    frame = made(800, censored=1.0, confounded=0.8)
    train, test = read(frame).split(0.5, seed=0)
    learner = dprl.DPRLContinuous(n_min=30, radius=0.5, gamma=1.0, plan=False)
    result = dprl.evaluate(learner.fit(train), test, draws=100)
    for row in result.rows.values():
        assert not row["value_high"] > 1
        assert not row["value_low"] < 0
    assert result.facts["range"] == "declared"
    assert result.facts["highest"] == 1.0
    assert any("not seen" in word for word in result.warnings)
    gated = dprl.gate(  # single completed outcomes lie outside of what there can be
        dprl.DPRLDiscrete(n_min=30, gamma=1.0), read(frame.assign(s="a"), state="s"),
        grade="large-sample", value_range=(0, 1), seed=0,
    )  # fmt: skip
    assert gated.certificate.grade == "large-sample"
    with pytest.raises(LogError, match="nothing can be proved"):
        dprl.gate(dprl.Rules(gamma=1.0), train, delta=0.1, value_range=(0, 1), seed=0)


def test_a_part_says_what_of_it_was_not_seen_and_proves_nothing():
    frame = made(400).assign(s="a")
    log = read(frame, state="s")
    half, _ = log.split(0.5, seed=0)
    some = frame[np.isin(frame["id"], half.episodes)]
    assert half.columns["unseen"]["rows"] == ((some["status"] == 0) & (some["days"] < 1)).sum()
    seen = log.take(np.flatnonzero(log.more["status"] + (log.more["duration"] > 1) > 0))
    assert seen.columns["unseen"]["rows"] == 0
    learner = dprl.DPRLDiscrete(n_min=5, gamma=1.0)
    schema = dprl.SiteSchema.of(log, gamma=1.0, value_range=(-40, 40))
    whole = read(frame.assign(days=frame["T"], status=1), state="s")
    monitor = dprl.Monitor(dprl.gate(learner, whole, value_range=(-40, 40), seed=0))
    for part in (log, seen):  # those who were seen stand for others, so these are estimates too
        for ask in (
            lambda part=part: dprl.gate(learner, part, value_range=(-40, 40), seed=0),
            lambda part=part: dprl.site_evidence(part, schema),
            lambda part=part: monitor.add(part),
        ):
            with pytest.raises(LogError, match="nothing can be proved"):
                ask()


def test_a_time_that_is_missing_is_not_weighed_for():
    """It was taken for an event, or for censored, at time 0."""
    frame = made(200)
    frame.loc[:20, "days"] = np.nan
    with pytest.raises(LogError, match="the time 'days' is missing on 21 rows"):
        read(frame, missing={"days": "weights"})
