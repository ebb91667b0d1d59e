"""A cluster of real processes whose parts are killed: the same answer, or an error in three lines."""

from __future__ import annotations

import operator
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from dask_processes import ENV, Dies, processes

import dprl
from dprl._core.cluster import connect
from dprl.logs.source import parts_of

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def log():
    return dprl.envs.care_pathway().sample(200, seed=3)


def rows(chunk):
    return chunk.log.n_steps


def slow_rows(chunk, seconds=0.3):
    time.sleep(seconds)
    return chunk.log.n_steps


def too_large(log):
    """More memory than a worker may use, little by little: a nanny needs time to look."""
    held = []
    for _ in range(400):
        held.append(b"x" * 4_000_000)
        time.sleep(0.005)
    time.sleep(500)
    return len(held)


def three_lines(caught):
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("  first: ")
    return lines


def test_the_only_worker_killed_and_another_one_comes(tmp_path, log):
    parts = parts_of(log, rows=100)
    with processes(tmp_path, 1) as cluster, connect(cluster.address, patience=300) as client:
        dies = Dies(rows, str(tmp_path))
        client.workers()
        cluster.add_worker()
        assert client.reduce(parts.sources, dies, operator.add) == log.n_steps
        assert (tmp_path / "died-0").exists()
        assert sum(worker.poll() is None for worker in cluster.workers) == 1


def test_the_only_worker_killed_and_none_comes(tmp_path, log):
    with processes(tmp_path, 1) as cluster, connect(cluster.address, patience=300) as client:
        client.workers()
        impatient, dies = replace(client, patience=5), Dies(rows, str(tmp_path))
        with pytest.raises(dprl.ClusterError) as caught:
            impatient.reduce(parts_of(log, rows=100).sources, dies, operator.add)
    lines = three_lines(caught)
    assert lines[0] == "the cluster has had no worker for 5 seconds."
    assert lines[2] == f"  Start workers: dask worker {cluster.address} --nworkers 4 --nthreads 1"


def test_a_part_that_kills_every_worker_is_named(tmp_path, log):
    whole, dies = parts_of(log, rows=10**9), Dies(rows, str(tmp_path), times=100)
    with connect(2, patience=300) as client, pytest.raises(dprl.ClusterError) as caught:
        client.reduce(whole.sources, dies, operator.add)
    lines = three_lines(caught)
    assert lines[0] == "4 workers died while they worked on part 1 of 1."
    assert lines[1].startswith("  first: the last one was at tcp://127.0.0.1:")
    assert "memory" in lines[2]


def test_a_worker_that_needs_too_much_memory(tmp_path, log):
    nanny = ("--nanny", "--memory-limit", "500MB")
    with (
        processes(tmp_path, 1, *nanny) as cluster,
        connect(cluster.address, patience=300) as client,
        pytest.raises(dprl.ClusterError) as caught,
    ):
        client.reduce(parts_of(log, rows=10**9).sources, too_large, operator.add)
    assert three_lines(caught)[0] == "4 workers died while they worked on part 1 of 1."


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_scheduler_goes(tmp_path, log, how):
    with processes(tmp_path, 1) as cluster, connect(cluster.address, patience=300) as client:
        client.workers()
        impatient, begin = replace(client, patience=4), time.monotonic()

        def go(share):
            cluster.scheduler.send_signal(how)

        with pytest.raises(dprl.ClusterError) as caught:
            impatient.reduce(parts_of(log, rows=50).sources, slow_rows, operator.add, (), go)
        lines = three_lines(caught)
        assert lines[0] == "the scheduler of the cluster does not answer."
        assert lines[1] == f"  first: {cluster.address}"
        assert time.monotonic() - begin < 50  # the usual patience is 60


def test_a_worker_that_stops_without_a_word(tmp_path, log, monkeypatch):
    """Its machine hangs: the scheduler gives it up after a while, and another one does its work."""
    monkeypatch.setitem(ENV, "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL", "15s")
    with processes(tmp_path, 2) as cluster, connect(cluster.address, patience=300) as client:
        while client.workers() < 2:
            time.sleep(0.1)
        parts, stopped = parts_of(log, rows=50), []

        def stop(share):
            if not stopped:
                stopped.append(cluster.workers[0].send_signal(signal.SIGSTOP))

        assert client.reduce(parts.sources, slow_rows, operator.add, (), stop) == log.n_steps
        assert stopped


CLIENT = """
import sys, dprl
from test_cluster_faults import slow_rows
from dprl.logs.source import parts_of
from dprl._core.cluster import connect
import operator
log = dprl.envs.care_pathway().sample(200, seed=3)
with connect(sys.argv[1]) as cluster:
    tell = lambda share: print(f"{share:.3f}", flush=True)
    print("total", cluster.reduce(parts_of(log, rows=50).sources, slow_rows, operator.add, (), tell))
"""


def test_a_client_killed_and_started_again(tmp_path, log):
    env = {**ENV, "PYTHONPATH": f"{Path(__file__).parent}:{ENV['PYTHONPATH']}"}
    with processes(tmp_path, 2) as cluster:
        command = [sys.executable, "-c", CLIENT, cluster.address]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        assert 0 < float(first.stdout.readline()) < 1
        first.kill()
        first.wait()
        first.stdout.close()
        second = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
        assert second.stdout.splitlines()[-1] == f"total {log.n_steps}"
        with connect(cluster.address, patience=300) as client:  # nothing of the first one is left
            tasks = client.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
            assert tasks == 0
