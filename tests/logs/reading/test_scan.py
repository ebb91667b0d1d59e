"""Files that are read in parts give the log, and the errors, that `dprl.read` gives."""

from __future__ import annotations

import datetime
import warnings

import duckdb
import numpy as np
import pytest

import dprl
from dprl.logs.checking.labels import LABEL_RULES
from dprl.logs.checking.rows import ROW_RULES

ROLES = {"episode": "id", "time": "t", "state": "s", "action": "a", "reward": "r"}


def made(n=200, seed=0, **more):
    """The columns of a log of n rows with episodes of four rows, in the order of a log."""
    rng = np.random.default_rng(seed)
    return {
        "id": np.arange(n) // 4,
        "t": np.arange(n) % 4,
        "s": [f"ward {x}" for x in rng.integers(0, 6, n)],
        "a": rng.integers(0, 3, n),
        "r": rng.normal(size=n),
        **more,
    }


def write(folder, data, files=3, shuffle=None):
    """Write columns as some files; rows in another order if a seed is given."""
    n = len(data["id"])
    order = np.arange(n) if shuffle is None else np.random.default_rng(shuffle).permutation(n)
    with duckdb.connect() as con:
        for i, rows in enumerate(np.array_split(order, files)):
            part = {}
            for name, values in data.items():
                column = np.empty(len(values), object) if isinstance(values, list) else values
                if isinstance(values, list):
                    column[:] = values
                part[name] = column[rows]
            con.register("rows", part)
            con.execute(f"COPY (FROM rows) TO '{folder / f'{i:03d}.parquet'}' (FORMAT parquet)")
    return str(folder / "*.parquet")


def equal(files, tmp_path, rows=40, **options):
    """Whether files read in parts and in memory are one log, and give one policy file."""
    roles = {**ROLES, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log = dprl.read(files, **roles)
        learner = dprl.DPRLDiscrete(n_min=3, gamma=0.9, cut="terminal")
        learner.fit(log).save(tmp_path / "memory.dprl")
        with dprl.scan(files, **roles, rows=rows, folder=tmp_path) as parts:
            assert parts.digest() == log.digest()
            assert repr(parts).removeprefix("Log in parts") == repr(log).removeprefix("Log")
            assert dict(parts.columns) == dict(log.columns)
            assert sum(parts.part(i).n_steps for i in range(len(parts))) == log.n_steps
            groups = [g for i in range(len(parts)) for g in parts.part(i).groups]
            assert tuple(groups) == log.groups
            learner.fit(parts).save(tmp_path / "parts.dprl")
    assert (tmp_path / "memory.dprl").read_bytes() == (tmp_path / "parts.dprl").read_bytes()
    assert not list(tmp_path.glob("dprl-parts-*"))


def test_sorted_files_whose_episodes_span_files(tmp_path):
    equal(write(tmp_path, made(), files=7), tmp_path)


@pytest.mark.parametrize("rows", [1, 60, 10_000])
def test_unsorted_files(tmp_path, rows):
    equal(write(tmp_path, made(80), shuffle=1), tmp_path, rows=rows)


def test_rows_without_times_keep_their_order(tmp_path):
    data = made()
    order = np.argsort(np.random.default_rng(0).permutation(50)[data["id"]], kind="stable")
    data = {k: np.asarray(v, object if k == "s" else None)[order] for k, v in data.items()}
    equal(write(tmp_path, data), tmp_path, time=None)


@pytest.mark.parametrize("sort", ["together", "apart"])
def test_groups(tmp_path, sort):
    group = np.arange(200) // 12 if sort == "together" else np.arange(200) // 4 % 17
    data = made(g=[f"p{x:03d}" for x in group])
    data["t"] = data["t"] + 10 * np.random.default_rng(3).integers(0, 4, 50)[data["id"]]
    equal(write(tmp_path, data, shuffle=2), tmp_path, group="g")


def test_groups_that_are_the_episodes(tmp_path):
    equal(write(tmp_path, made(g=np.arange(200) // 4), shuffle=2), tmp_path, group="g")


def test_labels_of_every_kind(tmp_path):
    data = made()
    data["id"] = [f"é{x:02d}" for x in data["id"]]
    data["s"] = np.arange(200) % 5 > 2
    data["a"] = (np.arange(200) % 3).astype(np.float64)
    data["t"] = [datetime.datetime(2024, 1, 1 + int(t)) for t in data["t"]]
    equal(write(tmp_path, data, shuffle=0), tmp_path)
    equal(str(tmp_path / "*.parquet"), tmp_path, follow_up="3 days")


def test_endings_menus_and_chances(tmp_path):
    rng = np.random.default_rng(0)
    data = made()
    how = np.array(["terminal", "cut", "died"])[rng.integers(0, 3, 50)]
    data["how"] = [how[i] if t == 3 else None for i, t in zip(data["id"], data["t"], strict=True)]
    data["on"] = [
        "|".join(str(x) for x in sorted({int(a), int(b)}))
        for a, b in zip(data["a"], rng.integers(0, 4, 200), strict=True)
    ]
    data["p"] = np.where(rng.random(200) < 0.3, np.nan, 1.0)
    files = write(tmp_path, data, shuffle=5)
    roles = {"ended": "how", "available": "on", "propensity": "p", "events": ["died"]}
    equal(files, tmp_path, **roles)
    equal(files, tmp_path, **roles, follow_up=2)
    equal(files, tmp_path, **roles, states=[f"ward {x}" for x in (5, 3, 1, 0, 2, 4, 9)])


def broken(kind):
    """Columns that break a rule, and what is asked of them."""
    data, options = made(), {}
    if kind == "missing":
        data["a"] = data["a"].astype(np.float64)
        data["a"][[7, 90]] = np.nan
        data["s"][8] = None
    elif kind == "episode":
        data["id"] = data["id"].astype(np.float64)
        data["id"][11] = np.nan
    elif kind in ("infinite", "large"):
        data["r"][[30, 40]] = np.inf if kind == "infinite" else -1e200
    elif kind == "twins":
        data["t"][[41, 43, 82]] = 2
    elif kind == "group":
        data["g"] = data["id"] // 3
        data["g"][[17, 18]] = 40
        options["group"] = "g"
    elif kind == "menu":
        data["on"] = ["0|1|2"] * 200
        data["on"][5:7] = ["9", "1|9"]
        options["available"] = "on"
    elif kind == "chance":
        data["p"] = np.where(np.arange(200) % 50 == 3, 1.5, 0.5)
        options["propensity"] = "p"
    elif kind == "alone":
        data["p"] = np.full(200, 0.5)
        data["on"] = [str(a) for a in data["a"]]
        options |= {"propensity": "p", "available": "on"}
    elif kind == "ended":
        data["how"] = ["terminal" if t == 3 else None for t in data["t"]]
        data["how"][103] = "perhaps"
        options["ended"] = "how"
    elif kind == "early":
        data["how"] = ["terminal" if t in (1, 3) and i > 3 else "cut" if t == 3 else None
                       for i, t in zip(data["id"], data["t"], strict=True)]  # fmt: skip
        options["ended"] = "how"
    elif kind == "unsaid":
        data["how"] = ["terminal" if t == 3 and i % 9 else None
                       for i, t in zip(data["id"], data["t"], strict=True)]  # fmt: skip
        options["ended"] = "how"
    elif kind == "runs":
        data["id"] = data["id"] % 30
        options["time"] = None
    elif kind == "states":
        options["states"] = ["ward 1", "ward 2", "ward 3"]
    elif kind == "actions":
        options["actions"] = [0, 2]
    elif kind == "range":
        options["reward_range"] = (-1.0, 1)
    elif kind == "dose":
        data["s"] = np.arange(200) / 4
    elif kind == "group missing":
        data["g"] = (data["id"] // 3).astype(np.float64)
        data["g"][[17, 18]] = np.nan
        options["group"] = "g"
    elif kind == "time":
        data["t"] = data["t"].astype(np.float64)
        data["t"][[41, 43, 82]] = np.nan
    elif kind == "states missing":
        data["s"] = [None] * 200
    elif kind in ("rewards", "no outcome"):  # outcomes at the end alone
        data["r"] = np.where(data["t"] == 3, data["r"], np.nan)
        data["r"][[7, 91]] = np.nan
        options |= {"missing": "zero"} if kind == "no outcome" else {}
    elif kind == "labels":  # of every kind that is pointed out
        data["s"] = [x.replace("ward 1", "Ward 2") for x in data["s"]]
        data["id"] = [("e\u0301" if i == 4 else "é" if i == 5 else f"x{i}") for i in data["id"]]
        options["actions"] = [0, 2]
    elif kind == "two":
        data["t"][[41, 43]] = 2
        options["reward_range"] = (-1, 1)
    return data, options


BROKEN = [
    "missing", "episode", "infinite", "large", "twins", "group", "menu", "chance", "alone", "ended",
    "early", "unsaid", "runs", "states", "actions", "range", "dose", "two", "group missing",
    "time", "states missing", "rewards", "no outcome", "labels",
]  # fmt: skip


@pytest.fixture(params=BROKEN)
def bad(request):
    """Columns that break a rule, and what is asked of them."""
    return broken(request.param)


def errors_of(reader, files, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(dprl.LogError) as error:
            reader(files, **{**ROLES, **options})
    return str(error.value)


@pytest.mark.thin(8)
@pytest.mark.parametrize("shuffle", [None, 3])
def test_what_is_wrong_is_said_in_the_same_words(bad, shuffle, tmp_path):
    data, options = bad
    files = write(tmp_path, data, shuffle=shuffle)
    in_memory = errors_of(dprl.read, files, **options)
    assert errors_of(dprl.scan, files, **options, rows=50, folder=tmp_path) == in_memory
    assert not list(tmp_path.glob("dprl-parts-*"))


@pytest.mark.thin(8)
@pytest.mark.parametrize("shuffle", [None, 3])
def test_a_check_in_parts_finds_what_one_in_memory_finds(bad, shuffle, tmp_path):
    data, options = bad
    files = write(tmp_path, data, shuffle=shuffle)
    roles = {**ROLES, **options}
    try:
        in_memory = dprl.check(files, **roles, also=())
    except dprl.LogError as error:  # nothing to check
        assert errors_of(dprl.check, files, **options, rows=50, folder=tmp_path) == str(error)
        return
    in_parts = dprl.check(files, **roles, rows=50, folder=tmp_path)
    assert in_parts.log is None
    assert not in_parts.ok
    own = {rule.key for rule in ROW_RULES} | {rule.__name__ for rule in LABEL_RULES}
    pairs = [[f for f in report.findings if f.rule in own] for report in (in_memory, in_parts)]
    assert pairs[0] == pairs[1]
    assert not list(tmp_path.glob("dprl-parts-*"))


@pytest.mark.parametrize("shuffle", [None, 3])
def test_a_check_in_parts_says_the_same_of_a_good_log(shuffle, tmp_path):
    data = made()
    data["s"] = [x.replace("ward 1", "ward one").replace("ward 2", "ward oen") for x in data["s"]]
    how = np.array(["terminal", "cut", "died"])[np.arange(50) % 3]
    data["how"] = [how[i] if t == 3 else None for i, t in zip(data["id"], data["t"], strict=True)]
    data["on"] = ["0|1|2" if i % 7 else "0|1|2|3" for i in range(200)]
    data["p"] = np.where(np.arange(200) % 3, np.nan, 0.5)
    files = write(tmp_path, data, shuffle=shuffle)
    roles = {**ROLES, "ended": "how", "available": "on", "propensity": "p", "events": ["died"]}
    in_memory = dprl.check(files, **roles, also=())
    in_parts = dprl.check(files, **roles, rows=50, folder=tmp_path)
    assert {"near_labels", "cut_episodes", "availability_varies"} <= {
        f.rule for f in in_parts.findings
    }
    assert in_parts.findings == in_memory.findings
    assert dprl.check(in_parts.log).findings == dprl.check(in_memory.log).findings
    assert in_parts.to_dict()["log"] == in_memory.to_dict()["log"]
    in_parts.log.close()


def test_columns_may_have_any_name(tmp_path):
    data = made()
    data = {"ti": data["id"], "ep": data["t"], "ac": data["s"], "st": data["a"], "rn": data["r"],
            "rw": np.ones(200), "file_row_number": np.arange(200), "id": data["id"]}  # fmt: skip
    roles = {"episode": "ti", "time": "ep", "state": "ac", "action": "st", "reward": "rn"}
    for shuffle in (None, 1):
        equal(write(tmp_path, data, shuffle=shuffle), tmp_path, **roles)


def test_two_spellings_are_told(tmp_path):
    data = made()
    data["id"] = [("e\u0301" if i == 4 else "é" if i == 5 else f"x{i}") for i in data["id"]]
    files = write(tmp_path, data, shuffle=0)
    with pytest.warns(dprl.LabelWarning) as in_memory:
        dprl.read(files, **ROLES, also=())
    with pytest.warns(dprl.LabelWarning) as in_parts:
        dprl.scan(files, **ROLES, folder=tmp_path).close()
    assert [str(w.message) for w in in_parts] == [str(w.message) for w in in_memory]
    assert in_parts[0].filename == __file__


def test_too_many_labels_are_refused_before_they_are_held(tmp_path, monkeypatch):
    monkeypatch.setattr("dprl.logs.reading.scan.MOST_LABELS", 3)
    with pytest.raises(dprl.LogError, match="'s' has more than 3 different values"):
        dprl.scan(write(tmp_path, made()), **ROLES, folder=tmp_path)


def test_a_full_disk_is_told_in_three_lines(tmp_path, monkeypatch):
    import errno

    from dprl.logs.reading import store as _parts_store

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_parts_store.Writer, "put", full)
    with pytest.raises(dprl.LogError, match="the disk is full") as error:
        dprl.scan(write(tmp_path, made()), **ROLES, folder=tmp_path)
    assert len(str(error.value).splitlines()) == 3
    assert not list(tmp_path.glob("dprl-parts-*"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": ["s"]}, "needs one column of labels"),
        ({"memory": "10MB"}, "at least 256MB"),
    ],
)
def test_what_cannot_be_read_in_parts_is_refused(change, words, tmp_path):
    with pytest.raises(dprl.ParameterError, match=words):
        dprl.scan(write(tmp_path, made()), **{**ROLES, **change}, folder=tmp_path)
    assert not list(tmp_path.glob("dprl-parts-*"))


@pytest.mark.filterwarnings("ignore::dprl.MissingWarning")
@pytest.mark.parametrize("shuffle", [None, 4])
def test_episodes_with_missing_values_are_dropped_as_in_memory(shuffle, tmp_path):
    data, _ = broken("missing")
    data["s"][12] = "only here"
    data["r"][13] = np.nan
    files = write(tmp_path, data, shuffle=shuffle)
    equal(files, tmp_path, missing="drop-episodes")
    with pytest.warns(dprl.MissingWarning) as in_memory:
        log = dprl.read(files, **ROLES, missing="drop-episodes", also=())
    with pytest.warns(dprl.MissingWarning) as in_parts:
        parts = dprl.scan(files, **ROLES, missing="drop-episodes", folder=tmp_path)
    parts.close()
    assert [str(w.message) for w in in_parts] == [str(w.message) for w in in_memory]
    assert "only here" not in log.states
    if shuffle is None:
        equal(files, tmp_path, missing="drop-episodes", time=None)
    data["t"][[41, 43]] = 2  # another error, in rows that are numbered without the dropped ones
    files = write(tmp_path, data, shuffle=shuffle)
    errors = []
    for reader in (dprl.read, dprl.scan):
        with pytest.raises(dprl.LogError) as error:
            reader(files, **ROLES, missing="drop-episodes")
        errors.append(str(error.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("shuffle", [None, pytest.param(4, marks=pytest.mark.slow)])
def test_missing_states_are_flagged_as_in_memory(shuffle, tmp_path):
    data = made()
    data["s"][5] = data["s"][77] = None
    files = write(tmp_path, data, shuffle=shuffle)
    equal(files, tmp_path, missing="flag")
    equal(files, tmp_path, missing={"s": "flag"})
    with dprl.scan(files, **ROLES, missing="flag", folder=tmp_path) as parts:
        assert "missing" in parts.states
    data["r"][9] = np.nan  # in the episode after the first gap
    files = write(tmp_path, data, shuffle=shuffle)
    equal(files, tmp_path, missing={"*": "flag", "r": "drop-episodes"})


@pytest.mark.parametrize("kind", ["median", "taken", "numbers", "column", "word", "reward"])
def test_what_cannot_be_filled_is_refused_as_in_memory(kind, tmp_path):
    data, missing = made(), "flag"
    data["s"][5] = None
    if kind == "taken":
        data["s"][9] = "missing"
    if kind == "numbers":
        data["s"] = [None if i == 5 else i % 3 for i in range(200)]
    if kind == "reward":
        data["r"][9] = np.nan
    missing = {"median": "median", "column": {"z": "flag"}, "word": "mean"}.get(kind, "flag")
    files = write(tmp_path, data)
    errors = []
    for reader, more in ((dprl.read, {"also": ()}), (dprl.scan, {"folder": tmp_path})):
        with pytest.raises(dprl.DprlError) as error:
            reader(files, **ROLES, missing=missing, **more)
        errors.append((type(error.value), str(error.value)))
    assert errors[0] == errors[1]
    assert not list(tmp_path.glob("dprl-parts-*"))


def test_nothing_is_left_where_every_episode_misses_something(tmp_path):
    data = made(8)
    data["r"][[1, 6]] = np.nan
    files = write(tmp_path, data, files=1)
    errors = []
    for reader in (dprl.read, dprl.scan):
        with pytest.raises(dprl.LogError) as error:
            reader(files, **ROLES, missing="drop-episodes")
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_csv_files_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("id,t,s,a,r\n1,1,1,1,1\n")
    with pytest.raises(dprl.ParameterError, match="only Parquet files"):
        dprl.scan(str(tmp_path / "a.csv"), **ROLES, folder=tmp_path)


def test_a_part_can_be_read_in_another_process(tmp_path):
    import pickle

    files = write(tmp_path, made(), shuffle=1)
    with dprl.scan(files, **ROLES, rows=50, folder=tmp_path) as parts:
        source = pickle.loads(pickle.dumps(parts.sources[2]))
        assert source.log().digest() == parts.part(2).digest()
        copy = pickle.loads(pickle.dumps(parts))
        copy.close()  # only the owner removes the files
        assert copy.digest() == parts.digest()
        assert copy.part(0).n_steps == parts.part(0).n_steps
    assert not list(tmp_path.glob("dprl-parts-*"))


def test_forgotten_parts_remove_their_files(tmp_path):
    import gc

    parts = dprl.scan(write(tmp_path, made()), **ROLES, folder=tmp_path)
    assert list(tmp_path.glob("dprl-parts-*"))
    del parts
    gc.collect()
    assert not list(tmp_path.glob("dprl-parts-*"))


@pytest.mark.parametrize("how", ["a bit", "shorter", "gone"])
def test_a_part_that_changed_on_disk_is_refused_and_named(tmp_path, how):
    log = dprl.envs.care_pathway().sample(100, seed=0)
    dprl.write(log, tmp_path / "log.parquet")
    columns = {name: name for name in ("episode", "time", "state", "action", "reward")}
    with dprl.scan(tmp_path / "log.parquet", **columns, rows=100, folder=tmp_path) as parts:
        assert len(parts) > 2
        (file,) = tmp_path.glob("dprl-parts-*/*/reward.bin")
        raw, place = bytearray(file.read_bytes()), 8 * parts.sources[1].rows[0] + 3
        raw[place] ^= 1
        if how == "gone":
            file.unlink()
        else:
            file.write_bytes(raw if how == "a bit" else raw[:place])
        if how == "a bit":
            parts.part(0)
        with pytest.raises((dprl.LogError, FileNotFoundError)) as caught:
            parts.part(1)
        if how != "gone":
            assert str(caught.value).startswith("a part of the log is not as it was written.\n")
            assert str(file.parent) in str(caught.value)
