"""Every door into a Log gives the same Log."""

from __future__ import annotations

import datetime
import gzip
from types import SimpleNamespace

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dprl
from conftest import COLUMNS, to_log

ROWS = {
    "patient": ["p2", "p1", "p1", "p2", "p3"],
    "day": [1, 2, 1, 2, 1],
    "stage": ["b", "b", "a", "a", "a"],
    "drug": [1, 0, 1, 1, 0],
    "score": [0.5, 1.0, 0.0, -1.0, 2.0],
}


@pytest.fixture(scope="module")
def log():
    return dprl.from_frame(pd.DataFrame(ROWS), **COLUMNS)


def test_what_was_read(log):
    assert log.episodes == ("p1", "p2", "p3")
    assert log.starts.tolist() == [0, 2, 4, 5]
    assert [log.states[s] for s in log.codes()] == ["a", "b", "b", "a", "a"]
    assert log.action.tolist() == [1, 0, 1, 1, 0]
    assert log.reward.tolist() == [0.0, 1.0, 0.5, -1.0, 2.0]
    assert log.time.tolist() == [1, 2, 1, 2, 1]
    assert repr(log) == "Log: 3 episodes · 5 steps · 2 states · 2 actions"


FRAMES = {
    "pandas": lambda: pd.DataFrame(ROWS),
    "pandas nullable": lambda: pd.DataFrame(ROWS).convert_dtypes(),
    "pandas category": lambda: pd.DataFrame(ROWS).astype({"stage": "category", "drug": "category"}),
    "pandas float labels": lambda: pd.DataFrame(ROWS).astype({"drug": float}),
    "polars": lambda: pl.DataFrame(ROWS),
    "polars lazy": lambda: pl.DataFrame(ROWS).lazy(),
    "polars categorical": lambda: pl.DataFrame(ROWS).with_columns(pl.col("stage").cast(pl.Categorical)),
    "arrow": lambda: pa.table(ROWS),
    "arrow dictionary": lambda: pa.table({**ROWS, "stage": pa.array(ROWS["stage"]).dictionary_encode()}),
    "duckdb": lambda: duckdb.from_arrow(pa.table(ROWS)),
}  # fmt: skip


@pytest.mark.parametrize("kind", FRAMES)
def test_frames(kind, log):
    assert dprl.from_frame(FRAMES[kind](), **COLUMNS).digest() == log.digest()


def test_arrays(log):
    names = {COLUMNS[part]: part for part in COLUMNS}
    arrays = {names[k]: v for k, v in ROWS.items()}
    assert dprl.from_arrays(**arrays).digest() == log.digest()
    arrays = {k: np.array(v) for k, v in arrays.items()}
    assert dprl.from_arrays(**arrays).digest() == log.digest()


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.parquet"])
def test_files(name, log, tmp_path):
    path, frame = tmp_path / name, pd.DataFrame(ROWS)
    if name.endswith(".parquet"):
        frame.to_parquet(path)
    elif name.endswith(".gz"):
        with gzip.open(path, "wt") as stream:
            frame.to_csv(stream, index=False)
    else:
        frame.to_csv(path, index=False, sep="\t" if name.endswith(".tsv") else ",")
    assert dprl.read(path, **COLUMNS).digest() == log.digest()
    assert dprl.read(str(path), **COLUMNS).digest() == log.digest()


def test_several_files_and_patterns(log, tmp_path):
    frame = pd.DataFrame(ROWS)
    frame.iloc[:2].to_csv(tmp_path / "part-1.csv", index=False)
    frame.iloc[2:][["score", "drug", "day", "stage", "patient"]].to_csv(
        tmp_path / "part-2.csv", index=False
    )
    for paths in (tmp_path / "part-*.csv", [tmp_path / "part-2.csv", tmp_path / "part-1.csv"]):
        assert dprl.read(paths, **COLUMNS).digest() == log.digest()


@pytest.mark.parametrize("name", ["out.parquet", "out.csv"])
def test_write_and_read_again(name, tmp_path):
    grid = dprl.envs.rooms()
    log = grid.sample(30, seed=3)
    dprl.write(log, tmp_path / name)
    names = {p: p for p in ("episode", "time", "state", "action", "reward", "ended")}
    again = dprl.read(tmp_path / name, **names)
    assert again.digest() == log.digest()
    train, _ = log.split(0.5, seed=1)
    dprl.write(train, tmp_path / name)
    assert dprl.read(tmp_path / name, **names).digest() == train.digest()


def test_write_everything_a_log_can_hold(tmp_path):
    log = dprl.from_arrays(
        episode=[1, 1, 2], state=["x", "y", "x"], action=[0, 1, 0], reward=[1.5, 2, 3],
        group=["g", "g", "h"], available=["0|1", "1", "0"], ended=["", "cut", "terminal"],
    )  # fmt: skip
    dprl.write(log, tmp_path / "all.parquet")
    names = ("episode", "time", "state", "action", "reward", "group", "available", "ended")
    again = dprl.read(tmp_path / "all.parquet", **{n: n for n in names})
    assert again.digest() == log.digest()
    assert again.groups == ("g", "h")
    assert [again.menus[m].tolist() for m in again.available] == [
        [True, True], [False, True], [True, False],
    ]  # fmt: skip


def test_leading_zeros_are_part_of_a_name(tmp_path):
    path = tmp_path / "z.csv"
    path.write_text("p,s,a,r\n007,01,1,1\n7,1,2,0\n")
    with pytest.warns(dprl.LabelWarning, match="the number of another label"):
        log = dprl.read(path, episode="p", state="s", action="a", reward="r")
    assert log.episodes == ("007", "7")
    assert log.states == ("01", "1")
    assert log.actions == (1, 2)


def test_numbers_written_as_floats_are_whole_numbers(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("p,s,a,r\n1.0,3.0,1,1\n2.0,4.0,2,0\n")
    log = dprl.read(path, episode="p", state="s", action="a", reward="r")
    assert log.episodes == (1, 2)
    assert log.states == (3, 4)


@pytest.mark.parametrize(
    ("column", "order"),
    [
        (["9", "10", "11"], [0, 1, 2]),
        (["2020-01-31", "2020-01-02", "2020-02-01"], [1, 0, 2]),
        (["2020-01-01 10:00:00", "2020-01-01 09:30:00", "2020-01-02"], [1, 0, 2]),
        (["1.5", "-0.5", "1e3"], [1, 0, 2]),
    ],
)
def test_times_sort_by_value_not_by_letter(column, order, tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"p,{t},s,{i},0" for i, t in enumerate(column)]
    path.write_text("\n".join(["p,t,s,a,r", *rows]))
    log = dprl.read(path, episode="p", time="t", state="s", action="a", reward="r")
    assert log.action.tolist() == order


def test_times_as_python_dates_and_with_zones():
    days = [datetime.date(2020, 2, 1), datetime.date(2020, 1, 31)]
    log = dprl.from_arrays(episode=[0, 0], time=days, state=[0, 1], action=[0, 0], reward=[1, 2])
    assert log.reward.tolist() == [2.0, 1.0]
    frame = pd.DataFrame({
        "patient": [0, 0], "stage": [0, 1], "drug": [0, 0], "score": [1.0, 2.0],
        "day": pd.to_datetime(["2020-01-01 10:00+00:00", "2020-01-01 10:30+02:00"], utc=True),
    })  # fmt: skip
    assert dprl.from_frame(frame, **COLUMNS).reward.tolist() == [2.0, 1.0]


def test_features_by_list_and_by_pattern(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("p,x_1,x_2,a,r\n1,0.5,3,u,1\n1,0.25,4,v,0\n")
    by_list = dprl.read(path, episode="p", state=["x_1", "x_2"], action="a", reward="r")
    by_pattern = dprl.read(path, episode="p", state="x_*", action="a", reward="r")
    assert by_list.digest() == by_pattern.digest()
    assert by_list.features.tolist() == [[0.5, 3.0], [0.25, 4.0]]
    assert by_list.feature_names == ("x_1", "x_2")
    with pytest.raises(dprl.LogError, match="2 numeric features, not labels"):
        dprl.DPRLDiscrete(n_min=1, gamma=0.9).fit(by_list)
    arrays = dprl.from_arrays(
        episode=[1, 1], state=by_list.features, action=["u", "v"], reward=[1, 0],
        feature_names=["x_1", "x_2"],
    )  # fmt: skip
    assert arrays.digest() == by_list.digest()
    dprl.write(by_list, tmp_path / "again.parquet")
    assert dprl.read(
        tmp_path / "again.parquet", episode="p", time="time", state="x_*", action="a", reward="r"
    ).digest() == by_list.digest()  # fmt: skip


def test_availability_as_lists(tmp_path):
    rows = {**ROWS, "offer": [[0, 1], [0], [1], [0, 1], [0, 1, 2]]}
    log = dprl.from_frame(pl.DataFrame(rows), **COLUMNS, available="offer")
    assert log.actions == (0, 1, 2)
    pl.DataFrame(rows).write_parquet(tmp_path / "o.parquet")
    again = dprl.read(tmp_path / "o.parquet", **COLUMNS, available="offer")
    assert again.digest() == log.digest()
    text = {**rows, "offer": ["0|1", "0", "1", "1|0", "2;1;0"]}
    assert (
        dprl.from_frame(pd.DataFrame(text), **COLUMNS, available="offer").digest() == log.digest()
    )


MINARI = [
    SimpleNamespace(id=4, observations=np.array([0, 1, 2]), actions=np.array([1, 0]),
                    rewards=np.array([0.0, 1.0]), terminations=np.array([False, True]),
                    truncations=np.array([False, False])),
    SimpleNamespace(id=9, observations=np.array([1, 1]), actions=np.array([1]),
                    rewards=np.array([0.5]), terminations=np.array([False]),
                    truncations=np.array([True])),
]  # fmt: skip


@pytest.mark.parametrize(
    "dataset", [MINARI, SimpleNamespace(iterate_episodes=lambda: iter(MINARI))]
)
def test_minari_episodes(dataset):
    log = dprl.from_minari(dataset)
    assert log.episodes == (4, 9)
    assert [log.states[s] for s in log.codes()] == [0, 1, 1]
    assert log.ended.tolist() == [1, 2]


def test_minari_features():
    episode = SimpleNamespace(
        id=0, observations=np.zeros((3, 2)), actions=np.array([0, 1]), rewards=np.ones(2),
        terminations=np.array([False, True]), truncations=np.array([False, False]),
    )  # fmt: skip
    assert dprl.from_minari([episode]).features.shape == (2, 2)


def test_d3rlpy_episodes():
    episode = SimpleNamespace(
        observations=np.array([[3], [4]]), actions=np.array([[1], [0]]),
        rewards=np.array([[0.5], [1.0]]), terminated=False,
    )  # fmt: skip
    log = dprl.from_d3rlpy(SimpleNamespace(episodes=[episode]))
    assert log.states == (3, 4)
    assert log.reward.tolist() == [0.5, 1.0]
    assert log.ended.tolist() == [2]


def test_split_keeps_groups_whole():
    n = 60
    log = dprl.from_arrays(
        episode=range(n), state=[0] * n, action=[0] * n, reward=[0.0] * n,
        group=[f"g{i // 3}" for i in range(n)],
    )  # fmt: skip
    one, two = log.split(0.25, seed=4)
    assert (len(one.groups), len(two.groups)) == (5, 15)
    assert not set(one.groups) & set(two.groups)
    assert sorted(one.episodes + two.episodes) == list(range(n))
    assert all((one.episodes[i] // 3) == int(one.groups[g][1:]) for i, g in enumerate(one.group))
    assert log.split(0.25, seed=4)[0].digest() == one.digest()
    assert log.split(0.25, seed=5)[0].digest() != one.digest()


def test_digest_tells_logs_apart():
    base = [[(0, 0, 1.0), (1, 1, 2.0)], [(1, 0, 0.5)]]
    log = to_log(base)
    assert to_log(base).digest() == log.digest()
    for other in (
        [[(0, 0, 1.0), (1, 1, 2.5)], [(1, 0, 0.5)]],
        [[(0, 0, 1.0), (1, 0, 2.0)], [(1, 0, 0.5)]],
        [[(0, 0, 1.0), (2, 1, 2.0)], [(1, 0, 0.5)]],
        [[(0, 0, 1.0)], [(1, 1, 2.0), (1, 0, 0.5)]],
    ):
        assert to_log(other).digest() != log.digest()
    assert to_log(base, [True, False]).digest() != to_log(base, [False, False]).digest()


def test_declared_labels_come_in_their_order():
    log = dprl.from_arrays(
        episode=[0, 1], state=["b", "a"], action=["y", "x"], reward=[0, 1],
        states=["b", "a", "c"], actions=["y", "x"],
    )  # fmt: skip
    assert log.states == ("b", "a", "c")
    assert log.actions == ("y", "x")
    assert log.action.tolist() == [0, 1]


def test_a_log_cannot_be_changed(log):
    with pytest.raises(ValueError, match="read-only"):
        log.reward[0] = 5
    with pytest.raises(AttributeError):
        log.reward = None
    with pytest.raises(TypeError):
        log.columns["state"] = "x"


def test_progress_is_told(visits):
    path, columns = visits
    seen = []
    dprl.read(path, **columns, progress=lambda stage, share: seen.append((stage, share)))
    assert seen[-1] == ("reading", 1.0)
