"""Things that once went wrong, mostly without a word."""

from __future__ import annotations

import copy
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import tracemalloc
import zipfile
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import dprl
from conftest import COLUMNS, to_log
from dprl._core.arrays import doubles
from dprl.errors import interruptible
from dprl.logs.outcome import Outcome
from dprl.logs.proposal import look, propose
from dprl.logs.reading.dates import check_dates
from dprl.logs.reading.files import Files
from dprl.policies.explain import plan_beyond

C = {"episode": "e", "state": "s", "action": "a", "reward": "r"}


def frame(**columns):
    n = len(next(iter(columns.values())))
    return {"e": list(range(n)), "s": ["x"] * n, "a": [0] * n, "r": [0.0] * n, **columns}


def test_a_duckdb_relation_is_read_once():
    """Executed again for each column, its rows would come in another order each time."""
    con = duckdb.connect()
    con.execute("create table t as select range e, range % 7 s, range % 3 a, range::double r "
                "from range(50000)")  # fmt: skip
    log = dprl.from_frame(con.sql("select * from t using sample 100 rows"), **C)
    episodes = np.array(log.episodes)
    assert np.array_equal(log.reward, episodes.astype(float))
    assert np.array_equal(log.codes(), np.searchsorted(log.states, episodes % 7))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint8, np.int64, np.uint64])
def test_narrow_integers_are_not_overflown(dtype, tmp_path):
    values = [0, 100, 5] if np.dtype(dtype).kind == "u" else [-100, 100, 5]
    log = dprl.from_arrays(
        episode=[0, 1, 2], state=np.array(values, dtype), action=[0, 0, 0], reward=[0, 0, 0]
    )
    assert log.states == tuple(sorted(values))
    pl.DataFrame(frame(s=np.array(values, dtype))).write_parquet(tmp_path / "n.parquet")
    assert dprl.read(tmp_path / "n.parquet", **C).states == tuple(sorted(values))


@pytest.mark.parametrize("values", [[1e19, 2e19], [np.inf, 1.0], [2.0**53 + 2, 1.0]])
def test_floats_too_large_for_labels_are_refused(values):
    with pytest.raises(dprl.LogError, match="too large to be told from its neighbours"):
        dprl.from_arrays(episode=[0, 1], state=values, action=[0, 0], reward=[0, 0])
    with pytest.raises(dprl.LogError, match="too large"):
        dprl.from_arrays(episode=[0, 1], state=[2**70, 1], action=[0, 0], reward=[0, 0])


def test_offsets_of_times_count(tmp_path):
    path = tmp_path / "z.csv"
    path.write_text(
        "e,t,s,a,r\n1,2020-10-25T02:30:00+02:00,x,0,0\n1,2020-10-25T02:10:00+01:00,x,1,0\n"
    )
    assert dprl.read(path, **C, time="t").action.tolist() == [0, 1]


@pytest.mark.slow
def test_zoned_times_do_not_depend_on_where_we_are(tmp_path):
    moments = pd.to_datetime(["2020-10-25T00:30Z", "2020-10-25T01:10Z"], utc=True)
    pd.DataFrame(frame(e=[1, 1], t=moments, a=[0, 1])).to_parquet(tmp_path / "z.parquet")
    code = (
        "import dprl; print(dprl.read('z.parquet', episode='e', state='s', action='a', "
        "reward='r', time='t').action.tolist())"
    )
    for zone in ("Europe/Berlin", "Asia/Tokyo"):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
            env={**os.environ, "TZ": zone},
        )  # fmt: skip
        assert done.stdout.strip() == "[0, 1]"


def test_brackets_in_a_name_are_part_of_the_name(tmp_path):
    (tmp_path / "log[1].csv").write_text("e,s,a,r\n1,right,0,0\n")
    (tmp_path / "log1.csv").write_text("e,s,a,r\n1,wrong,0,0\n")
    assert dprl.read(tmp_path / "log[1].csv", **C).states == ("right",)


def test_no_row_is_skipped_as_a_comment(tmp_path):
    (tmp_path / "h.csv").write_text("e,s,a,r\n#1,x,0,0\n2,y,0,0\n\n")
    assert dprl.read(tmp_path / "h.csv", **C).episodes == ("#1", "2")


def test_a_file_named_twice_is_refused(tmp_path):
    (tmp_path / "p1.csv").write_text("e,s,a,r\n1,x,0,0\n")
    with pytest.raises(dprl.LogError, match="is named twice"):
        dprl.read([tmp_path / "p*.csv", tmp_path / "p1.csv"], **C)


def test_ids_used_again_in_another_file_are_noticed(tmp_path):
    for name in ("p1", "p2"):
        (tmp_path / f"{name}.csv").write_text("e,s,a,r\n1,x,0,0\n2,x,0,0\n")
    with pytest.raises(dprl.LogError, match="do not stand together"):
        dprl.read(tmp_path / "p*.csv", **C)


def test_the_same_labels_from_every_door(tmp_path):
    stamps = [np.datetime64("2020-01-01T10:00:00"), np.datetime64("2020-01-02T00:00:00")]
    table = pd.DataFrame(frame(e=[0, 1], s=pd.Series(stamps), a=[9, 10])).astype({"a": "uint64"})
    table.to_parquet(tmp_path / "s.parquet")
    one, two = dprl.from_frame(table, **C), dprl.read(tmp_path / "s.parquet", **C)
    assert one.states == two.states == ("2020-01-01 10:00:00", "2020-01-02 00:00:00")
    assert one.actions == two.actions == (9, 10)
    assert one.digest() == two.digest()


def test_categories_with_a_gap_keep_their_type():
    table = pd.DataFrame(frame(a=pd.Categorical([1, None, 2])))
    with pytest.warns(dprl.MissingWarning, match="1 of 3 episodes"):
        log = dprl.from_frame(table, **C, missing="drop-episodes")
    assert log.actions == (1, 2)


@pytest.mark.parametrize("label", ["1", "1.0", "NA", True])
def test_labels_csv_would_change_are_not_written_to_csv(label, tmp_path):
    log = to_log([[("s", label, 1.0)]])
    with pytest.raises(dprl.LogError, match="would not come back from a CSV file"):
        dprl.write(log, tmp_path / "x.csv")
    assert not list(tmp_path.iterdir())
    dprl.write(log, tmp_path / "x.parquet")
    names = {p: p for p in ("episode", "time", "state", "action", "reward")}
    assert dprl.read(tmp_path / "x.parquet", **names).actions == (label,)


def test_columns_of_other_lengths_are_refused():
    rows = {"episode": [0, 0, 1], "state": [0] * 3, "action": [0] * 3, "reward": [0.0] * 3}
    for extra in ({"ended": [True] * 5}, {"group": ["g", "h"]}, {"time": [1]}):
        with pytest.raises(dprl.LogError, match="different lengths"):
            dprl.from_arrays(**rows, **extra)


def test_a_mask_is_no_list_of_actions():
    with pytest.raises(dprl.LogError, match="must list the labels of available actions"):
        dprl.from_arrays(
            episode=[0], state=[0], action=[1], reward=[0], available=[[True, False, True]]
        )


def test_two_columns_of_one_name():
    table = pd.DataFrame([[0, 0, 0, 0, 0]], columns=["e", "s", "a", "r", "r"])
    with pytest.raises(dprl.LogError, match="two columns of one name"):
        dprl.from_frame(table, **C)


def test_two_csv_columns_of_one_name(tmp_path):
    (tmp_path / "d.csv").write_text("e,s,a,r,r\n1,x,0,0,0\n")
    with pytest.raises(dprl.LogError, match="has two columns 'r'"):
        dprl.read(tmp_path / "d.csv", **C)
    (tmp_path / "d.csv").write_text("e,s,a,r,R\n1,x,0,0,0\n")
    with pytest.raises(dprl.LogError, match="columns 'r' and 'R', which differ in case alone"):
        dprl.read(tmp_path / "d.csv", **C)


# -- numbers -------------------------------------------------------------------------------------


def test_ties_go_to_the_lowest_action_whatever_the_counts():
    for n_a in range(2, 12):
        for n_b in range(2, 12):
            episodes = [[("s", "a", 0.1)]] * n_a + [[("s", "b", 0.1)]] * n_b
            for plan in (True, False):
                policy = dprl.DPRLDiscrete(n_min=2, gamma=0.9, plan=plan).fit(to_log(episodes))
                assert policy.act("s") == "a"


def test_dropping_cut_episodes_does_not_make_an_action_available():
    episodes = [[("s", "a", 1.0)]] * 20 + [[("s", "b", 0.0)]] * 20 + [[("s", "b", 0.0)]]
    log = to_log(episodes, [False] * 40 + [True], available=["a|b"] * 40 + ["b"])
    for cut in ("drop", "terminal"):
        policy = dprl.DPRLDiscrete(n_min=5, gamma=0.9, cut=cut).fit(log)
        assert policy.act("s") is dprl.DEFER
        assert "not always available" in policy.explain("s").reason


def test_the_interval_belongs_to_the_advantage_beside_it():
    """Where a state is revisited, first occurrences and first visits tell different stories."""
    rng = np.random.default_rng(0)
    episodes = [
        [("s", "a" if rng.random() < 0.5 else "b", float(rng.normal())), ("s", "c", 3.0)]
        for _ in range(40)
    ] + [[("s", "c", 0.5)]] * 10
    policy = dprl.DPRLDiscrete(n_min=5, gamma=0.99).fit(to_log(episodes))
    rows = [*policy.changes(), *policy.confirmations()]
    assert len(rows) == 1
    assert rows[0]["low"] <= rows[0]["advantage"] <= rows[0]["high"]


def test_equally_usual_actions_are_both_named():
    episodes = [[("s", "a", 1.0)]] * 20 + [[("s", "b", 0.0)]] * 20
    policy = dprl.DPRLDiscrete(n_min=5, gamma=0.9).fit(to_log(episodes))
    assert policy.changes()["usual"] == ["a or b"]
    assert "usually done is a or b (50 %)" in policy.explain("s").reason


def test_counts_of_visits_are_called_visits():
    episodes = [[("s", "a", 1.0)] * 3] * 10 + [[("s", "b", 0.0)] * 3] * 10
    policy = dprl.DPRLDiscrete(n_min=5, gamma=0.9, visits="all").fit(to_log(episodes))
    assert policy.changes()["visits"] == [30]
    assert "30 visits" in policy.explain("s").reason


# -- policies ------------------------------------------------------------------------------------


@pytest.fixture
def policy():
    return dprl.DPRLDiscrete(n_min=1, gamma=0.9).fit(to_log([[(1, 0, 1.0)], [(1, 1, 0.0)]]))


def test_act_refuses_what_is_no_column_of_labels(policy):
    for table in (pd.DataFrame({"x": [1]}), pl.DataFrame({"x": [1]}), {"x": 1}, "1"):
        with pytest.raises(dprl.PolicyError):
            policy.act(table)
    for odd in ([1.5], [np.array([1])], [[1]], np.ones((2, 2))):
        with pytest.raises(dprl.PolicyError, match="whole numbers"):
            policy.act(odd)
    with pytest.raises(dprl.PolicyError, match="a list or a column"):
        policy.probabilities("1")
    assert policy.act(1.0) == 0
    assert policy.act([pd.NA, None, np.nan]) == [dprl.DEFER] * 3
    assert policy.act(pd.Series([1, 2])) == [0, dprl.DEFER]


def test_copies_and_pickles(policy):
    log = to_log([[(1, 0, 1.0)]])
    for thing in (policy, log):
        for again in (copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))):
            assert again.digest() == thing.digest()
    for array in (policy.kind, policy.usual):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def tampered(path, change):
    """The file with its words changed and its digest made to fit: what a careful forger writes."""
    from dprl.policies import base as archive

    kind, words, arrays = archive.unpack(path)
    change(words, arrays)
    archive.pack(path, kind, words, arrays)


@pytest.mark.parametrize(
    "change",
    [
        lambda w, a: w["parameters"].update(n_min="abc"),
        lambda w, a: w["parameters"].update(n_min=[1]),
        lambda w, a: w["provenance"].update(columns=[1]),
        lambda w, a: a.update(n=a["n"].astype(np.float64)),
        lambda w, a: a.update(m=-a["m"]),
        lambda w, a: a.update(V=a["V"].astype(np.int64)),
        lambda w, a: w.update(states=[None]),
        lambda w, a: w.update(states=[[1]]),
    ],
)
def test_forged_parts_are_refused_on_loading(policy, tmp_path, change):
    policy.save(tmp_path / "p.dprl")
    tampered(tmp_path / "p.dprl", change)
    with pytest.raises(dprl.PolicyError):
        dprl.load(tmp_path / "p.dprl")


def packed(path, words, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as z:
        z.writestr("policy.json", words)
    return path


@pytest.mark.parametrize("compression", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compressions_are_refused(tmp_path, compression):
    with pytest.raises(dprl.PolicyError, match="compressed in a way"):
        dprl.load(packed(tmp_path / "p.dprl", b"{}", compression))


def test_small_files_that_want_much_memory_are_refused(tmp_path):
    bomb = b'{"format": "dprl-policy", "x": [' + b"[]," * 5_000_000 + b"[]]}"
    path = packed(tmp_path / "p.dprl", bomb)
    tracemalloc.start()
    with pytest.raises(dprl.PolicyError, match="which no policy does"):
        dprl.load(path)
    assert tracemalloc.get_traced_memory()[1] < 20e6  # as JSON it would be 300
    tracemalloc.stop()


@pytest.mark.parametrize("words", [b'{"a": ' + b"9" * 5000 + b"}", b'{"format": "dprl-policy", '
                                   b'"version": 1, "kind": "x", "arrays": {"q": {"dtype": "(1,", "shape": []}}}'])  # fmt: skip
def test_odd_json_is_a_policy_error(tmp_path, words):
    with pytest.raises(dprl.PolicyError):
        dprl.load(packed(tmp_path / "p.dprl", words))


def test_saving_keeps_permissions_and_refuses_folders(policy, tmp_path):
    path = tmp_path / "p.dprl"
    policy.save(path)
    path.chmod(0o600)
    policy.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(dprl.PolicyError, match="it is a folder"):
        policy.save(tmp_path)


def test_labels_of_broken_unicode_survive(tmp_path):
    policy = dprl.DPRLDiscrete(n_min=1, gamma=0.9).fit(to_log([[("\ud800", "a", 1.0)]]))
    policy.save(tmp_path / "p.dprl")
    assert dprl.load(tmp_path / "p.dprl").states == ("\ud800",)


@pytest.mark.parametrize(
    "settings", [{"gamma": True}, {"contrast": "no"}, {"plan": 1}, {"visits": "al"}]
)
def test_settings_are_checked_when_they_are_made(settings):
    with pytest.raises(dprl.ParameterError):
        dprl.DPRLDiscrete(**{"n_min": 1, "gamma": 0.9, **settings})


# -- command line --------------------------------------------------------------------------------


def command(*tokens, cwd, **options):
    program = os.path.join(os.path.dirname(sys.executable), "dprl")
    return subprocess.run(
        [program, *map(str, tokens)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def options(columns):
    return [x for part, name in columns.items() for x in (f"--{part}", name)]


@pytest.mark.slow
def test_every_error_is_json_where_json_was_asked_for(visits, tmp_path):
    path, columns = visits
    fit = ["fit", path, *options(columns), "--n-min", 20, "--gamma", 0.9]
    for tokens, code in (
        ([*fit, "--out", tmp_path, "--json"], 1),
        ([*fit, "--gamm", 3, "--json"], 2),
        (["changes", "nowhere.dprl", "--json"], 1),
    ):
        done = command(*tokens, cwd=tmp_path)
        assert done.returncode == code
        assert json.loads(done.stdout)["ok"] is False
    (tmp_path / "dprl.toml").write_text("[changes]\njson = true\n")
    done = command("changes", "nowhere.dprl", cwd=tmp_path)
    assert json.loads(done.stdout)["error"]["kind"] == "PolicyError"


def test_help_works_beside_a_broken_settings_file(tmp_path):
    (tmp_path / "dprl.toml").write_text("[[[")
    assert command("--help", cwd=tmp_path).returncode == 0
    assert command("fit", "--help", cwd=tmp_path).returncode == 0


def test_terminals_that_know_ascii_only(visits, tmp_path):
    path, columns = visits
    done = command(
        "check", path, *options(columns), cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0
    assert "300 episodes" in done.stdout


@pytest.mark.slow
def test_act_hands_back_cells_as_they_were(visits, tmp_path):
    path, columns = visits
    command("fit", path, *options(columns), "--n-min", 20, "--gamma", 0.9, cwd=tmp_path)
    done = command("act", "policy.dprl", "-", cwd=tmp_path, input="stage,note\nmild,NA\nNA,null\n")
    assert done.stdout == "stage,note,suggested\nmild,NA,new\nNA,null,DEFER\n"
    done = command("act", "policy.dprl", "-", cwd=tmp_path, input="")
    assert (done.returncode, "is empty" in done.stderr) == (1, True)


def test_ctrl_c_inside_duckdb_is_ctrl_c():
    with pytest.raises(KeyboardInterrupt), interruptible():
        raise RuntimeError("Query interrupted")
    for other in (RuntimeError("no"), dprl.PlanError("interrupted")):
        with pytest.raises(type(other)), interruptible():
            raise other


def test_ctrl_c_during_an_import_waits_for_its_end(tmp_path):
    """Compiled modules (DuckDB's) abort the whole process when interrupted while they start."""
    (tmp_path / "module.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(.2)\nwhole = True\n"
    )
    program = """if True:
        import signal, time
        from dprl.__main__ import _stop
        signal.signal(signal.SIGINT, _stop)
        import module
        try:
            time.sleep(1000)
        except KeyboardInterrupt:
            print("stopped", module.whole)
    """
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (run.stdout, run.stderr) == ("stopped True\n", "")


@pytest.mark.slow
def test_ctrl_c_while_reading(tmp_path):
    """Whenever it comes: while it starts, reads, hands columns over, or counts."""
    rows = 4_000_000
    pl.DataFrame({
        "patient": np.arange(rows) // 10, "day": np.arange(rows) % 10,
        "stage": np.arange(rows) % 1000, "drug": np.arange(rows) % 3, "score": np.ones(rows),
    }).write_csv(tmp_path / "big.csv")  # fmt: skip
    program = os.path.join(os.path.dirname(sys.executable), "dprl")
    ends = []
    for wait in np.arange(0.5, 2.6, 0.3):
        process = subprocess.Popen(
            [program, "check", "big.csv", *options(COLUMNS)], cwd=tmp_path,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
        ends.append(process.returncode)
        if process.returncode == -signal.SIGINT and not err:
            continue  # on a busy machine Python itself had not started: nothing of ours ran yet
        if process.returncode:  # else it had finished before
            assert (process.returncode, err.splitlines()[-1]) == (130, "stopped."), err
            assert "Traceback" not in err
    assert ends.count(130) >= 3


def test_cut_warnings_point_at_the_users_line():
    log = to_log([[("s", "a", 1.0)], [("s", "b", 0.0)]], [True, False])
    for learner in (
        dprl.DPRLDiscrete(n_min=1, gamma=0.9),
        dprl.learners.baselines.RL(gamma=0.9),
        dprl.learners.baselines.SPIBB(n_min=1, gamma=0.9),
    ):
        with pytest.warns(dprl.CutWarning) as caught:
            learner.fit(log)
        assert caught[0].filename == __file__


def test_optimal_actions_end_without_discount():
    """A costless circle is as good as the way out in value, and no way out at all."""
    from scipy import sparse

    P = np.zeros((4, 2))
    P[0, 0], P[1, 1], P[2, 0] = 1.0, 1.0, 1.0  # s: stay, go to t; t: back to s, or end with 1
    reward = np.array([[0.0, 0.0], [0.0, 1.0]])
    mdp = dprl.envs.FiniteMDP(
        name="circle", states=("s", "t"), actions=("a", "b"), P=sparse.csr_array(P), low=reward,
        high=reward, start=np.array([1.0, 0.0]), behavior=np.full((2, 2), 0.5), gamma=1.0,
    )  # fmt: skip
    V, best = mdp.optimal
    assert V.tolist() == [1.0, 1.0]
    assert mdp.value(np.eye(2)[best]) == 1.0


# -- second look ---------------------------------------------------------------------------------


def test_missing_values_are_not_flattered_away():
    from dprl.evaluation import stats

    for call in (
        lambda: stats.cvar([np.nan, 1, 2, 3], 0.5),
        lambda: stats.iqm([np.nan, 1, 2, 3]),
        lambda: stats.bootstrap([1.0, 2, 3], stats.mean, seed=0, strata=[0, np.nan, 1]),
    ):
        with pytest.raises(dprl.ParameterError, match="missing"):
            call()
    assert stats.cvar([3.0, 1.0], 1e-10) == 1.0


def test_rivals_refuse_what_they_would_ignore():
    log = to_log([[("s", "a", 1.0)], [("s", "b", 0.0)]], available=["a|b", "b"])
    with pytest.raises(
        dprl.LogError, match="do not take into account which actions were available"
    ):
        dprl.learners.baselines.RL(gamma=0.9).fit(log)


def test_a_smaller_policy_says_so():
    log = dprl.from_arrays(
        episode=range(40), state=np.arange(40.0)[:, None] % 4, action=[0, 1] * 20,
        reward=[1.0, 0.0] * 20,
    )  # fmt: skip
    policy = dprl.DPRLContinuous(n_min=3, radius=0.5, gamma=1.0).fit(log)
    assert dprl.prune(policy).policy.parameters["pruned"] is True
    assert dprl.compress(policy, 0.2).policy.parameters["tol"] == 0.2
    for odd in ({"gamma": 7}, {"contrast": "no"}, {"radius": True}, {"neighbors": None}):
        with pytest.raises(dprl.PolicyError, match="its settings are"):
            replace(policy, parameters={**policy.parameters, **odd})
    with pytest.raises(dprl.PolicyError, match="names of their own"):
        replace(policy, feature_names=(1,))
    for states in ([[1.0], [1.0, 2.0]], [1 + 2j]):
        with pytest.raises(dprl.PolicyError, match="must be numbers"):
            policy.act(states)


def test_metrics_that_are_none():
    for bad in ({"scale": 2.0}, {"weights": [1.0]}):
        with pytest.raises(dprl.ParameterError):
            dprl.Metric(**bad)
    with pytest.raises(dprl.ParameterError, match=r"must be a dprl\.Metric"):
        dprl.DPRLContinuous(n_min=1, radius=1, gamma=1, metric="std")


def test_bounds_need_a_range_that_holds():
    log = to_log([[("s", "a", 1.9)]] * 3)
    policy = dprl.DPRLDiscrete(n_min=1, gamma=0.9).fit(log)
    given = {"n_min": 1, "gamma": 0.9, "delta": 0.05, "b": 0.1}
    table = dprl.certificate.published(log, policy, v_max=0.5, **given)
    assert "NOT VALID as asked: returns of this log run from 1.9 to 1.9, beyond 0..0.5" in str(
        table
    )
    assert "NOT VALID" not in str(dprl.certificate.published(log, policy, v_max=2.0, **given))


@pytest.mark.slow
def test_a_damaged_part_is_done_again(tmp_path):
    from test_experiments import TOY

    from dprl_studies.harness import reproduce

    whole = reproduce(TOY, tmp_path / "a", workers=1).summary
    part = sorted((tmp_path / "a" / "parts").iterdir())[0]
    part.write_bytes(part.read_bytes()[:40])
    assert reproduce(TOY, tmp_path / "a", workers=1).summary.columns == whole.columns
    with pytest.raises(dprl.ParameterError, match="seed must be a whole number, at least 0"):
        reproduce(TOY, tmp_path / "a", seed=-1)


def test_different_seeds_are_different_experiments():
    from dprl_studies.paper.contest import blocks, mdp_seed

    seeds = [
        {mdp_seed(t, d) for t in blocks({"n": 50}, 500, s) for d in range(t["first"], t["last"])}
        for s in (0, 1)
    ]
    assert len(seeds[0]) == 500
    assert not seeds[0] & seeds[1]


def test_a_range_of_returns_without_an_end_has_nothing_beyond_it():
    """Numbers that a damaged file may hold: no warning of numpy, and no claim."""
    here = SimpleNamespace(
        planned=np.array([[5.0], [5.0], [9.0]]), Q=np.zeros((3, 1)),
        lowest=np.array([-np.inf, np.nan, 0.0]), highest=np.array([np.inf, np.nan, 4.0]),
    )  # fmt: skip
    beyond = plan_beyond(here, np.arange(3), np.zeros(3, int))
    assert beyond.tolist() == [False, False, True]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_renamed_copies_of_few_kinds_are_recognised(seed):
    rng = np.random.default_rng(seed)

    def table(name):
        a, s, r = (rng.integers(2, size=1000) for _ in range(3))
        return pd.DataFrame(
            {"e": [f"{name}{i}" for i in range(1000)], "s": s, "a": a, "r": 1.0 * r}
        )

    once, other = table("a"), table("b")
    policy = dprl.DPRLDiscrete(n_min=10, gamma=1.0).fit(dprl.from_frame(once, **C))
    again = once.sample(frac=1, random_state=seed).assign(e=[f"z{i}" for i in range(1000)])
    with pytest.raises(dprl.PolicyError, match="under other labels"):
        dprl.evaluate(policy, dprl.from_frame(again, **C))
    dprl.evaluate(policy, dprl.from_frame(other, **C), draws=50)  # other patients are welcome


def test_subjects_of_events_in_two_forms_are_pointed_out(tmp_path):
    rows = [f"{who},2024-01-01 {hour:02}:00,{code},1" for who in ("7", "8") for hour, code in
            ((1, "map"), (2, "score"))]  # fmt: skip
    (tmp_path / "events.csv").write_text("\n".join(["subject,time,code,value", *rows,
                                                    "007,2024-01-01 03:00,drug,1"]) + "\n")  # fmt: skip
    (tmp_path / "stays.csv").write_text(
        "stay,who,begins,ends\n1,7,2024-01-01 00:00,2024-01-01 08:00\n2,8,2024-01-01 00:00,2024-01-01 08:00\n"
    )
    (tmp_path / "spec.toml").write_text(
        '[source]\nfiles = "events.csv"\nsubject = "subject"\ntime = "time"\ncode = "code"\n'
        'value = "value"\n[episodes]\nby = "table"\ntable = "stays.csv"\nid = "stay"\n'
        'subject = "who"\nbegins = "begins"\nfinishes = "ends"\n[clock]\nevery = "4 h"\n'
        '[[feature]]\nname = "map"\ntake = "last"\ncodes = "map"\nwithin = "24 h"\nfill = 0\n'
        '[[action.part]]\nname = "drug"\ncodes = "drug"\ntake = "any"\n'
        '[[reward]]\ncodes = "score"\ntake = "sum"\n'
    )
    with pytest.warns(UserWarning, match="subjects of the events are written in two ways"):
        dprl.from_events(None, tmp_path / "spec.toml")


@pytest.mark.parametrize(
    "form",
    [
        "%Y %U",
        "%Y %W",
        "%a %Y",
        "%Y %m %H",
        "%Y-%m-%d %H:%S",
        "%Y-%m-%d %S",
        "%Y %Y",
        "%Y-%m %b %m",
    ],
)
def test_formats_of_dates_that_lose_what_was_written(form):
    with pytest.raises(dprl.ParameterError, match=r"%|this format of dates|says no date"):
        check_dates(form)


@pytest.mark.parametrize("form", ["%Y-%j", "%Y %W %w", "%A %d %b %Y", "%Y-%m", "%G-W%V-%u", "%c"])
def test_formats_of_dates_that_lose_nothing(form):
    assert check_dates(form) == form


def test_an_action_that_reads_as_a_suggestion_against_another():
    table = frame(a=["drug", "not drug", "wait"], e=[0, 1, 2])
    with pytest.raises(dprl.LogError, match="only says what not to do"):
        dprl.from_frame(pd.DataFrame(table), **C)
    assert dprl.from_frame(pd.DataFrame(frame(a=["drug", "not now"], e=[0, 1])), **C).actions == (
        "drug",
        "not now",
    )


def test_floats_of_16_bits_are_the_decimals_they_were_written_as(tmp_path):
    """DuckDB reads 0.3 as 0.30004883, which is above the edge 0.3."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    half = np.resize([*np.arange(1, 10) / 10, *every[np.isfinite(every)][::97]], 700).astype("f2")
    table = frame(d=half, r=half, s=["u", "v"] * 350)
    file = tmp_path / "half[1].parquet"
    pq.write_table(pa.table(table), file)
    pq.write_table(pa.table({**table, "d": doubles(half)}), tmp_path / "wide.parquet")
    how = {**C, "action": "d", "action_bins": [0.3, 0.6]}
    right, log = dprl.from_frame(pd.DataFrame(table), **how), dprl.read(file, **how)
    assert log.actions == right.actions
    assert log.action.tolist() == right.action.tolist()
    assert log.reward.tolist() == right.reward.tolist() == doubles(half).tolist()
    with dprl.scan(file, **C) as parts:
        rewards = parts.part(0).reward
    assert rewards.tolist() == doubles(half).tolist()
    files = Files([str(file), str(tmp_path / "wide.parquet")], None)  # one file in each form
    files.load(["d"])
    assert files.number("d").tolist() == 2 * doubles(half).tolist()


def backwards(form, some=1.0, n=60, seed=0):
    """Visits of n patients, newest first for a share of them, with a column of times."""
    rng = np.random.default_rng(seed)
    rows = []
    for e in range(n):
        days = np.sort(rng.choice(300, 4, replace=False))[:: -1 if rng.random() < some else 1]
        rows += [{"e": e, "s": rng.choice(["u", "v"]), "a": rng.integers(2), "r": rng.random(),
                  "age": 50 + e % 7, "visited": pd.Timestamp(2024, 1, 1) + pd.Timedelta(d, "D")}
                 for d in days]  # fmt: skip
    table = pd.DataFrame(rows)
    if form == "counter":
        table["visited"] = np.arange(len(table), 0, -1)
    elif form != "parquet":
        table["visited"] = table["visited"].dt.strftime(form)
    return table


@pytest.mark.parametrize(
    ("form", "some"),
    [("%Y-%m-%d %H:%M", 1.0), ("%d.%m.%Y", 1.0), ("%Y-%m-%d", 0.85), ("counter", 1.0)],
)
@pytest.mark.parametrize("tie", [False, True])
def test_rows_newest_first_are_pointed_out_in_a_csv(tmp_path, form, some, tie):
    def rules(table):
        table.to_csv(tmp_path / "v.csv", index=False)
        of_file = dprl.check(tmp_path / "v.csv", **C).findings
        assert {f.rule for f in dprl.check(table, **C).findings} == {f.rule for f in of_file}
        return {f.rule for f in of_file}

    table = backwards(form, some)
    if tie:
        table.loc[1, "visited"] = table.loc[0, "visited"]
        if form == "counter":  # no longer one number a row: its name has to say it
            table = table.rename(columns={"visited": "seq"})
    assert "newest_first" in rules(table)
    assert "newest_first" not in rules(backwards(form, 1 - some) if form != "counter" else
                                       table[::-1].reset_index(drop=True))  # fmt: skip
    if form != "counter":  # in no order at all
        assert "newest_first" not in rules(table.sample(frac=1, random_state=1))


def test_german_dates_are_proposed_as_the_time(tmp_path):
    table = backwards("%d.%m.%Y").rename(columns={"visited": "datum", "e": "stay_id"})
    table.to_csv(tmp_path / "v.csv", index=False)
    proposal = propose(look(tmp_path / "v.csv"))
    assert (proposal.columns["episode"], proposal.columns["time"]) == ("stay_id", "datum")


def test_no_small_number_is_shown_as_zero():
    verdict, words = Outcome().apart(2e-9, -1e-9, 5e-9)
    assert (verdict, words) == ("unsure", "the return +2e-09 (-1e-09 to +5e-09)")
    assert Outcome().apart(2e-9, 1e-9, 3e-9)[1] == "the return higher by 2e-09 (1e-09 to 3e-09)"
    assert Outcome().apart(0.25, -0.1, 0.5)[1] == "the return +0.25 (-0.10 to +0.50)"


def test_an_evaluation_of_small_rewards_shows_them():
    log = dprl.envs.care_pathway().sample(400, seed=0)
    train, test = replace(log, reward=log.reward * 1e-9).split(0.5, seed=0)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
    result = dprl.evaluate(policy, test, draws=50)
    assert "e-10" in result.answer() or "e-11" in result.answer() or "e-09" in result.answer()
    for words in (result.answer(), str(result), str(result.table())):
        assert "0.000 " not in words


def test_a_row_at_the_end_of_a_window_is_outside_whatever_rounding_does():
    table = frame(e=[0, 0, 1, 1, 2, 2], t=[0.2, 0.3, 0.7, 0.8, 0.2, 0.29])
    log = dprl.from_frame(pd.DataFrame(table), **C, time="t", follow_up="0.1 units")
    assert log.lengths.tolist() == [1, 1, 2]


def test_no_zone_is_a_day_ahead():
    table = frame(e=[0, 0], t=["2024-01-01 10:00+25:00", "2024-01-01 11:00+25:00"])
    with pytest.raises(dprl.LogError):
        dprl.from_frame(pd.DataFrame(table), **C, time="t")
    table["t"] = [text.replace("+25:00", "+05:30") for text in table["t"]]
    assert dprl.from_frame(pd.DataFrame(table), **C, time="t").clock(0).endswith("+05:30")


def test_no_window_is_advised_where_all_episodes_have_one_row():
    table = pd.DataFrame(frame(e=range(6), d=["cut", "terminal"] * 3))
    found = {f.rule: f for f in dprl.check(table, **C, ended="d").findings}
    assert "follow_up" not in found["cut_episodes"].do
    assert "cut" in found["cut_episodes"].do
    twice = table.loc[table.index.repeat(2)].reset_index(drop=True)
    twice.loc[::2, "d"] = None
    found = {f.rule: f for f in dprl.check(twice, **C, ended="d").findings}
    assert "follow_up" in found["cut_episodes"].do


def labelled(n=400):
    """Decisions in three situations called 0, 1 and 2; doing 1 helps in 0."""
    rng = np.random.default_rng(0)
    state, action = rng.integers(0, 3, n), rng.integers(0, 2, n)
    reward = np.round(rng.normal(size=n) + np.where((state == 0) & (action == 1), 3.0, 0.0), 3)
    return pd.DataFrame({"e": np.arange(n), "s": state, "a": action, "r": reward})


def test_labels_of_a_policy_are_known_as_pandas_writes_them_beside_a_gap(tmp_path):
    """With one label of text, "0" is text: a table of "0.0" was deferred from first to last row."""
    table = labelled()
    table["s"] = table["s"].astype(str).where(table.index > 30, "other")
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(dprl.from_frame(table, **C))
    assert policy.states == ("0", "1", "2", "other")
    assert policy.act(["0.0", "other", "00", "0.5", "9.0"]) == policy.act(["0", "other", *"xxx"])
    assert policy.act("0.0") == policy.act("0") == 1
    assert policy.act("00") is dprl.DEFER


@pytest.mark.thin(1)
@pytest.mark.parametrize("own", [["0", "1", "2"], ["0", "1", "high"]])
def test_a_category_of_numbers_is_known_as_pandas_writes_it(own):
    table = labelled().assign(x=0.5)
    table["s"] = np.array(own)[table["s"]]
    columns = {**C, "state": ["s", "x"], "categorical": ["s"]}
    logged = dprl.from_frame(table, **columns)
    policy = dprl.Rules(gamma=1.0, depth=1, splits=1, lam=1.0, seed=0).fit(
        logged, behavior_models=[("logistic", LogisticRegression())], value_model=LinearRegression()
    )
    wanted = policy.act({"s": "0", "x": 0.5})
    assert wanted == 1
    assert policy.act({"s": "0.0", "x": 0.5}) == policy.act({"s": Decimal(0), "x": 0.5}) == wanted
    other = table.assign(s=table["s"].replace({"0": "0.0", "1": "1.0"}), e=table["e"] + 1_000)
    log = dprl.from_frame(other.assign(r=other["r"] + 0.5), **columns)
    assert policy.act(other[["s", "x"]]) == policy.act(table[["s", "x"]])
    options = {"allow_seen": True, "values": False, "draws": 50}
    changed = [dprl.evaluate(policy, x, **options).facts["reached"] for x in (log, logged)]
    assert changed[0] == changed[1] > 0


def test_whole_numbers_as_r_writes_them(tmp_path):
    """R writes 100000 as 1e+05 where the column is numeric, and as 100000 where it is not."""
    (tmp_path / "a.csv").write_text("e,t,s,a,r\n99999,1,x,0,1\n1e+05,1,x,0,1\n1.2e+05,1,x,0,1\n")
    (tmp_path / "b.csv").write_text("e,t,s,a,r\n99999,2,x,0,1\n100000,2,x,0,1\n120000,2,x,1,1\n")
    log = dprl.read([tmp_path / "a.csv", tmp_path / "b.csv"], time="t", **C)
    assert log.episodes == (99_999, 100_000, 120_000)


@pytest.mark.parametrize("number", ["9007199254740992.0", "1.2345678901234568e+16"])
def test_rounded_numbers_are_no_labels(tmp_path, number):
    """Beside a gap pandas makes doubles of whole numbers: from 2**53 on two patients were one."""
    path = tmp_path / "a.csv"
    path.write_text(f"e,s,a,r\n7.0,x,0,1\n{number},x,1,1\n")
    with pytest.raises(dprl.LogError, match="too large to be told from its neighbours") as error:
        dprl.read(path, **C)
    assert len(str(error.value).splitlines()) == 3
    path.write_text(f"e,s,a,r\nA7,x,0,1\n{number},x,1,1\n")  # labels of text
    assert dprl.read(path, **C).n_episodes == 2


@pytest.mark.parametrize(
    ("short", "kind"),
    [("float32", "category"), ("float32", "dictionary"), ("float16", "dictionary")],
)
def test_short_floats_in_a_dictionary_are_the_decimals_they_were_written_as(short, kind):
    """A dose of 0.1 lay above the edge 0.1."""
    pa = pytest.importorskip("pyarrow")
    doses = np.array([0.0, 0.1, 0.2, 0.3, 2.2] * 3, short)
    columns = frame(a=np.arange(15), s=["x"] * 15)
    if kind == "category":
        table = pd.DataFrame(columns).assign(a=pd.Series(doses).astype("category"))
    else:
        coded = pa.array([*range(5)] * 3, pa.int8())
        table = pa.table(
            {**columns, "a": pa.DictionaryArray.from_arrays(coded, pa.array(doses[:5]))}
        )
    log = dprl.from_frame(table, action_bins=[0.1, 0.3], **C)
    assert np.bincount(log.action).tolist() == [6, 6, 3]


def test_decimals_are_labels_where_they_are_whole():
    """Warehouses give identifiers as decimals: numbers to read, a traceback to act."""
    table = labelled()
    exact = table.assign(e=table["e"].map(Decimal), s=table["s"].map(lambda x: Decimal(f"{x}.00")))
    log = dprl.from_frame(exact, **C)
    assert log.digest() == dprl.from_frame(table, **C).digest()
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
    assert policy.act(Decimal(0)) == policy.act(0) == policy.act([Decimal(0)])[0]
    with pytest.raises(dprl.LogError, match="fractional"):
        dprl.from_frame(exact.assign(e=exact["e"] + Decimal("0.5")), **C)
    with pytest.raises(dprl.LogError, match="too large"):
        dprl.from_frame(exact.assign(e=exact["e"] + Decimal(2**63)), **C)
