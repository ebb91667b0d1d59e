"""Evidence in a folder, a little every day: that of all days together, whoever comes again."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dprl
from dprl.evidence import EvidenceFolder
from dprl.evidence.sites import folder as module

COLUMNS = {"episode": "stay", "time": "t", "state": "s", "action": "a", "reward": "r"}


def table(seed, patients=40, days=5, group=True, text=True):
    """Rows of stays of patients, some of whom come on several days; stays go on overnight."""
    rng = np.random.default_rng(seed)
    rows = []
    for stay in range(2 * patients):
        patient = int(rng.integers(patients))
        t = int(rng.integers(0, 10 * days))
        n = int(rng.integers(1, 8))
        for t_row in range(t, t + n):
            s, a = rng.integers(4), rng.integers(3)
            r = rng.normal() * 10.0 ** rng.integers(-3, 3)
            rows.append((f"p{patient}" if text else patient, stay, t_row, f"s{s}", "abc"[a], r))
    names = ["patient", "stay", "t", "s", "a", "r"]
    columns = {name: np.array(c) for name, c in zip(names, zip(*rows, strict=True), strict=True)}
    return columns if group else {k: v for k, v in columns.items() if k != "patient"}


def log_of(columns, at=None, **options):
    at = np.ones(len(columns["t"]), bool) if at is None else at
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({name: values[at] for name, values in columns.items()})
    group = {"group": "patient"} if "patient" in columns else {}
    return dprl.from_frame(frame, **COLUMNS, **group, **options)


def schema_of(log, **settings):
    return dprl.SiteSchema.of(log, **{"gamma": 0.9, "value_range": (-1e6, 1e6), **settings})


def on_disk(path):
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 99), st.booleans(), st.booleans(), st.permutations(range(5)))
def test_who_comes_again_is_counted_as_in_the_whole_log(tmp_path_factory, seed, group, text, order):
    path = tmp_path_factory.mktemp("folder") / "counted"
    columns = table(seed, group=group, text=text)
    whole = log_of(columns)
    schema = schema_of(whole)
    counted = EvidenceFolder.create(path, schema, keep_rows=True)
    seen = np.zeros(len(columns["t"]), bool)
    reopened = 0
    for day in order:
        at = columns["t"] // 10 == day if day < 4 else columns["t"] // 10 >= 4
        if not at.any():
            continue
        reopened += counted.add(log_of(columns, at), name=f"day {day}", reopen=True)
        seen |= at
        so_far = dprl.site_evidence(log_of(columns, seen), schema, k=1, site="here")
        assert counted.evidence(k=1, site="here").to_bytes() == so_far.to_bytes()
    assert reopened
    assert counted.evidence(k=3).to_bytes() == dprl.site_evidence(whole, schema, k=3).to_bytes()
    learner = dprl.DPRLDiscrete(n_min=3, gamma=0.9, plan=False)
    assert learner.fit(counted.evidence(k=1)).act(whole.states) == learner.fit(whole).act(
        whole.states
    )
    (path / "total.evidence").unlink()  # it is only a copy
    assert EvidenceFolder.open(path).evidence(k=3).to_bytes() == counted.evidence(k=3).to_bytes()


def test_days_without_anybody_in_common_need_no_rows(tmp_path):
    log = dprl.envs.care_pathway().sample(600, seed=0)
    schema = dprl.SiteSchema.of(log, gamma=1.0, value_range=(0, 1))
    counted = EvidenceFolder.create(tmp_path / "counted", schema)
    days = [log.take(range(i, i + 100)) for i in range(0, 600, 100)]
    for i in (3, 0, 5, 1, 4, 2):
        assert counted.add(days[i]) == 0
    assert counted.days == 6
    assert counted.evidence(k=7).to_bytes() == dprl.site_evidence(log, schema, k=7).to_bytes()


def test_endings_offers_and_chances_come_back_from_kept_rows(tmp_path):
    columns = table(3)
    n = len(columns["t"])
    columns["p"] = np.random.default_rng(1).uniform(0.1, 1, n)
    columns["offer"] = np.array(["a|b|c"] * n, object)

    def ending(at):
        """Every stay ends or is cut, and is cut where a day's table ends before it does."""
        how = np.array(["terminal" if stay % 3 else "cut" for stay in columns["stay"]], object)
        for stay in np.unique(columns["stay"]):
            if columns["t"][columns["stay"] == stay].max() > columns["t"][at].max():
                how[columns["stay"] == stay] = "cut"
        return {**columns, "how": how}

    options = {"available": "offer", "ended": "how", "propensity": "p"}
    days = columns["t"] < 20, columns["t"] >= 20
    whole = log_of(ending(np.ones(n, bool)), **options)
    assert 0 < len(whole.cut_episodes) < whole.n_episodes
    schema = schema_of(whole, cut="drop-unrelated")
    counted = EvidenceFolder.create(tmp_path / "counted", schema, keep_rows=True)
    for at in days:
        counted.add(log_of(ending(at), at, **options), reopen=True)
    assert counted.evidence(k=1).to_bytes() == dprl.site_evidence(whole, schema, k=1).to_bytes()


def test_who_was_counted_is_refused_and_nothing_changes(tmp_path):
    columns = table(0)
    early = columns["t"] < 20
    for keep in (False, True):
        counted = EvidenceFolder.create(tmp_path / f"{keep}", schema_of(log_of(columns)),
                                        keep_rows=keep)  # fmt: skip
        counted.add(log_of(columns, early), name="monday")
        before = on_disk(counted.path)
        both = set(columns["patient"][early]) & set(columns["patient"][~early])
        with pytest.raises(dprl.EvidenceError, match=f"{len(both)} of .* were counted before") as e:
            counted.add(log_of(columns, ~early), reopen=not keep)
        assert "monday" in str(e.value)
        assert ("reopen=True" in str(e.value)) == keep
        with pytest.raises(dprl.EvidenceError, match="this log was added before"):
            counted.add(log_of(columns, early), reopen=True)
        with pytest.raises(dprl.EvidenceError, match="some days name groups"):
            counted.add(log_of({k: v for k, v in columns.items() if k != "patient"}, ~early))
        other = {**columns, "patient": np.array([f"new {p}" for p in columns["patient"]])}
        torn = set(columns["stay"][early]) & set(columns["stay"][~early])
        with pytest.raises(dprl.EvidenceError, match=f"{len(torn)} of .* in other groups"):
            counted.add(log_of(other, ~early))
        strange = {**columns, "s": np.array(["never heard of"] * len(early))}
        with pytest.raises(dprl.LogError, match="not in the schema"):
            counted.add(log_of(strange, ~early))
        assert on_disk(counted.path) == before


@pytest.mark.filterwarnings("ignore::dprl.errors.LabelWarning")
def test_labels_are_recognised_whatever_their_type(tmp_path):
    columns = table(0, text=False)
    schema = schema_of(log_of(columns))
    early = columns["t"] < 20
    counted = EvidenceFolder.create(tmp_path / "counted", schema)
    counted.add(log_of(columns, early))
    zeros = {**columns, "patient": np.array([f"0{p}" for p in columns["patient"]])}
    zeros["stay"] = columns["stay"] + 1000
    with pytest.raises(dprl.EvidenceError, match="were counted before"):
        counted.add(log_of(zeros, ~early))
    # Rows of one group under two labels are two groups, of which no log may be made in silence.
    text = {**columns, "patient": np.array([f"{p}" for p in columns["patient"]])}
    for first, match in ((columns, "a column has another type"), (text, "written in two ways")):
        kept = EvidenceFolder.create(tmp_path / match, schema, keep_rows=True)
        kept.add(log_of(first, early))
        before = on_disk(kept.path)
        with pytest.raises(dprl.EvidenceError, match=match):
            kept.add(log_of(zeros, ~early), reopen=True)
        assert on_disk(kept.path) == before
    dated = {**text, "t": np.array(text["t"], "M8[D]")}
    with pytest.raises(dprl.EvidenceError, match="time: datetime64"):
        kept.add(log_of(dated, ~early), reopen=True)


@pytest.mark.parametrize("step", ["_save", "_sum"])
def test_an_addition_that_was_stopped_did_not_happen(tmp_path, monkeypatch, step):
    columns = table(0)
    schema = schema_of(log_of(columns))
    counted = EvidenceFolder.create(tmp_path / "counted", schema, keep_rows=True)
    early = columns["t"] < 20
    counted.add(log_of(columns, early))
    before = on_disk(counted.path)

    def stop(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EvidenceFolder, step, stop)
        with pytest.raises(KeyboardInterrupt):
            counted.add(log_of(columns, ~early), reopen=True)
    assert on_disk(counted.path) == before
    counted.add(log_of(columns, ~early), reopen=True)
    # What a killed process may leave: everything but the line of history.
    (counted.path / "history" / "000002.json").unlink()
    first = dprl.site_evidence(log_of(columns, early), schema, k=1)
    assert counted.evidence(k=1).to_bytes() == first.to_bytes()
    counted.add(log_of(columns, ~early), reopen=True)
    whole = dprl.site_evidence(log_of(columns), schema, k=1)
    assert counted.evidence(k=1).to_bytes() == whole.to_bytes()


def test_what_is_damaged_is_refused(tmp_path):
    columns = table(0)
    counted = EvidenceFolder.create(tmp_path / "counted", schema_of(log_of(columns)),
                                    keep_rows=True)  # fmt: skip
    early = columns["t"] < 20
    with pytest.raises(dprl.EvidenceError, match="nothing was added"):
        counted.evidence()
    counted.add(log_of(columns, early))
    (day,) = (counted.path / "days").iterdir()
    (rows,) = (counted.path / "rows").iterdir()
    (total, step) = (counted.path / "total.evidence", counted.path / "history" / "000001.json")
    kept = {path: path.read_bytes() for path in (day, rows, step)}

    def refused(match, what=lambda: counted.evidence(k=1)):
        total.unlink(missing_ok=True)
        with pytest.raises(dprl.EvidenceError, match=match) as error:
            what()
        assert len(str(error.value).splitlines()) == 3
        for path, data in kept.items():
            path.write_bytes(data)

    day.unlink()
    refused("is damaged")
    day.write_bytes(kept[day][:-100])
    refused("not a usable evidence file")
    step.write_text(json.dumps({"adds": []}))
    refused("is damaged")
    step.rename(step.with_name("000002.json"))
    refused("is damaged")
    step.with_name("000002.json").unlink()
    again = lambda: counted.add(log_of(columns, ~early), reopen=True)  # noqa: E731
    rows.unlink()
    refused("is damaged", again)
    dprl.write(log_of(columns, columns["t"] < 19), rows)
    refused("there is no column 'episode'", again)
    named = {name: name for name in ("episode", "group", "time", "state", "action", "reward")}
    ours = dprl.read(rows, **named)
    dprl.write(replace(ours, reward=ours.reward + (np.arange(ours.n_steps) == 0)), rows)
    refused("not those that were counted", again)
    assert again() > 0
    # The same groups in two files: nobody may count twice, however the files came there.
    other = EvidenceFolder.create(tmp_path / "other", counted.schema)
    (other.path / "key").write_bytes((counted.path / "key").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_found", lambda total, marks: (marks, np.zeros(len(marks), bool)))
        other.add(log_of(columns, early))
        with pytest.raises(dprl.EvidenceError, match="a group is in two"):
            other.add(log_of(columns, ~early))


def test_two_who_add_at_once_wait_for_each_other(tmp_path):
    log = dprl.envs.care_pathway().sample(400, seed=0)
    schema = dprl.SiteSchema.of(log, gamma=1.0)
    counted = EvidenceFolder.create(tmp_path / "counted", schema)
    parts = [log.take(range(i, i + 100)) for i in range(0, 400, 100)]
    threads = [threading.Thread(target=counted.add, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted.days == 4
    assert counted.evidence(k=1).to_bytes() == dprl.site_evidence(log, schema, k=1).to_bytes()


def test_a_folder_is_not_made_over_something(tmp_path):
    log = dprl.envs.care_pathway().sample(50, seed=0)
    schema = dprl.SiteSchema.of(log, gamma=1.0)
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(dprl.EvidenceError, match="there is something"):
            EvidenceFolder.create(path, schema)
        with pytest.raises(dprl.EvidenceError, match="is no folder of evidence"):
            EvidenceFolder.open(path)
    with pytest.raises(dprl.ParameterError, match="a schema is needed"):
        EvidenceFolder.create(tmp_path / "new", {})
    counted = EvidenceFolder.create(tmp_path / "new", schema, keep_rows=True)
    with pytest.raises(dprl.ParameterError, match="cannot be kept"):
        counted.add(log.followed("9 steps"))
    assert counted.days == 0
    if hasattr(module.os, "getuid"):
        assert (counted.path / "key").stat().st_mode & 0o077 == 0
