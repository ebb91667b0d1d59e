"""A policy fitted on a cluster is the policy of one process, byte for byte, whatever dies."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from dask_processes import Dies, processes
from sources import KINDS, bytes_of, read, wards

import dprl
from dprl._core.cluster import connect
from dprl.logs.source import parts_of

pytest.importorskip("distributed")


LEARNER = dprl.DPRLDiscrete(n_min=4, gamma=0.9, cut="terminal")


QUICK = ("cut",)
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if kind not in QUICK]


@pytest.mark.parametrize("kind", [*QUICK, *SLOW])
def test_the_policy_file_is_the_same_byte_for_byte(two, kind, tmp_path):
    log = read(wards(**KINDS[kind]))
    here = bytes_of(LEARNER.fit(log), tmp_path / "here")
    parts = parts_of(log, rows=60)
    assert len(parts) > 1
    stages = []
    away = LEARNER.fit(parts, cluster=two, progress=lambda stage, share: stages.append(stage))
    assert bytes_of(away, tmp_path / "away") == here
    assert {"counting", "planning"} <= set(stages)


@pytest.mark.slow
def test_the_confident_learner(two, tmp_path):
    learner = dprl.Confident(gamma=0.9, check=False, splits=2, cut="terminal")
    log = read(wards(groups=True, times=True))
    here = bytes_of(learner.fit(log), tmp_path / "here")
    away = learner.fit(parts_of(log, rows=60), cluster=two)
    assert bytes_of(away, tmp_path / "away") == here


@pytest.mark.slow
def test_a_log_in_memory_is_sent_to_the_workers(two, tmp_path, monkeypatch):
    monkeypatch.setattr("dprl.logs.source.LEAST", 50)
    log = read(wards(groups=True))
    here = bytes_of(LEARNER.fit(log), tmp_path / "here")
    assert bytes_of(LEARNER.fit(log, cluster=two), tmp_path / "there") == here
    assert bytes_of(LEARNER.fit(log, cluster=two.client), tmp_path / "there") == here
    address = two.client.scheduler.address
    assert bytes_of(LEARNER.fit(log, cluster=address), tmp_path / "there") == here


@pytest.mark.slow
def test_what_is_refused_in_memory_is_refused_in_the_same_words(two):
    features = dprl.envs.PointMass().sample(5, seed=0)
    for log in (features, read(wards()).take([])):
        words = []
        for cluster in (None, two):
            with pytest.raises(dprl.LogError) as caught:
                LEARNER.fit(log, cluster=cluster)
            words.append(str(caught.value))
        assert words[0] == words[1]


@pytest.mark.slow
def test_warnings_are_those_of_one_process(two):
    log, words = read(wards(cut=True)), []
    for cluster in (None, two):
        with pytest.warns(dprl.CutWarning) as caught:
            replace(LEARNER, cut=None).fit(log, cluster=cluster)
        words.append([str(w.message) for w in caught])
    assert words[0] == words[1]


@pytest.mark.slow
def test_a_part_that_changed_on_disk_is_named(two, tmp_path):
    dprl.write(dprl.envs.care_pathway().sample(200, seed=0), tmp_path / "log.parquet")
    columns = {name: name for name in ("episode", "time", "state", "action", "reward")}
    with dprl.scan(tmp_path / "log.parquet", **columns, rows=200, folder=tmp_path) as parts:
        (file,) = tmp_path.glob("dprl-parts-*/*/action.bin")
        raw, row = bytearray(file.read_bytes()), parts.sources[1].rows[0]
        raw[4 * row] ^= 1  # another action: it would be another answer
        file.write_bytes(raw)
        with pytest.raises(dprl.LogError) as caught:
            LEARNER.fit(parts, cluster=two)
        first, second, _ = str(caught.value).splitlines()
        assert first == "a part of the log is not as it was written."
        assert second.startswith(f"  first: part 2 of {len(parts)} (rows {row} to ")


class Deadly:
    """An executor that kills a worker in one stage, in a job or in a merge."""

    def __init__(self, cluster, folder, stage, what):
        self.cluster, self.folder, self.stage, self.what, self.stages = (
            cluster, str(folder), stage, what, 0,
        )  # fmt: skip

    def __call__(self, sources, job, merge, shared, progress):
        if self.stages == self.stage:
            job = Dies(job, self.folder) if self.what == "job" else job
            merge = Dies(merge, self.folder) if self.what == "merge" else merge
        self.stages += 1
        return self.cluster.reduce(sources, job, merge, shared, progress)


def survive(cluster, folder, stage, what):
    """The number of stages; a worker is killed in one of them, and the file must be the same."""
    parts = parts_of(read(wards(groups=True, times=True)), rows=60)
    deadly = Deadly(cluster, folder, stage, what)
    here = bytes_of(LEARNER.fit(parts), folder / "here")
    away = bytes_of(LEARNER.fit(replace(parts, executor=deadly)), folder / "away")
    assert away == here
    assert (folder / "died-0").exists() == (0 <= stage < deadly.stages)
    return deadly.stages


@pytest.mark.slow
def test_a_worker_killed_while_counting(two, tmp_path):
    assert survive(two, tmp_path, 0, "job") > 2


@pytest.mark.slow
@pytest.mark.parametrize("what", ["job", "merge"])
def test_a_worker_killed_in_each_stage(tmp_path, what):
    """In turn: in a job of one stage, in a merge of the next."""
    with processes(tmp_path, 2) as cluster, connect(cluster.address, patience=300) as client:
        stages = survive(client, tmp_path, -1, what)
        assert stages > 4
        for stage in range(what == "merge", stages, 2):
            while client.workers() < 2:
                time.sleep(0.1)
            folder = tmp_path / str(stage)
            folder.mkdir()
            assert survive(client, folder, stage, what) == stages
            cluster.add_worker()  # no nanny starts another one


@pytest.mark.slow
def test_local_workers_start_and_end_with_the_fit(tmp_path):
    log = read(wards(groups=True))
    here = bytes_of(LEARNER.fit(log), tmp_path / "here")
    assert bytes_of(LEARNER.fit(log, cluster="local:2"), tmp_path / "there") == here
