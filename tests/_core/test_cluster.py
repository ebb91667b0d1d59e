"""Work on a Dask cluster: the same results to the last bit, and faults that are survived or named."""

from __future__ import annotations

import operator
import sys
import time
import warnings

import numpy as np
import pytest
from dask_processes import Dies

import dprl
from dprl._core import cluster as cluster_tasks
from dprl._core.cluster import connect
from dprl.logs.source import parts_of

pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def log():
    return dprl.envs.care_pathway().sample(400, seed=3)


def rows(chunk, more=0):
    return chunk.log.n_steps + more


def warns(log):
    warnings.warn("a strange log", dprl.CutWarning, stacklevel=1)
    return 1


def test_a_job_is_applied_to_every_part_and_merged(two, log):
    parts = parts_of(log, rows=50)
    assert len(parts) > 8  # more than one level of merges
    shares = []
    total = two.reduce(parts.sources, rows, operator.add, (10,), shares.append)
    assert total == log.n_steps + 10 * len(parts)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.slow
def test_one_part_none_and_no_part(two, log):
    assert two.reduce(parts_of(log, rows=10**9).sources, rows, operator.add) == log.n_steps
    assert two.reduce([], rows, operator.add) is None


@pytest.mark.slow
def test_warnings_of_workers_arrive_once(two, log):
    with pytest.warns(dprl.CutWarning, match="a strange log") as caught:
        assert two.reduce(parts_of(log, rows=100).sources, warns, operator.add) > 1
    assert len([w for w in caught if w.category is dprl.CutWarning]) == 1


def gone(log):
    raise dprl.LogError("this part is bad.", "row 7", "Mend it.")


def strange(log):
    return {}["key"]


class Torn:
    """A part whose file is not whole."""

    name = "visits-3.parquet"

    def read(self):
        raise OSError("no magic bytes found at end of file")


@pytest.mark.slow
def test_what_a_job_refuses_is_refused_here_in_the_same_words(two, log):
    with pytest.raises(dprl.LogError) as caught:
        two.reduce(parts_of(log, rows=100).sources, gone, operator.add)
    assert str(caught.value) == "this part is bad.\n  first: row 7\n  Mend it."


@pytest.mark.slow
def test_what_a_job_breaks_at_names_the_part(two, log):
    with pytest.raises(dprl.ClusterError, match=r"part 1 of 1 failed on the cluster\.\n.*KeyError"):
        two.reduce(parts_of(log, rows=10**9).sources, strange, operator.add)


@pytest.mark.slow
def test_a_part_that_cannot_be_read_is_named(two, log):
    sources = [*parts_of(log, rows=200).sources, Torn()]
    n = len(sources)
    with pytest.raises(dprl.LogError) as caught:
        two.reduce(sources, rows, operator.add)
    first, second, third = str(caught.value).splitlines()
    assert first == f"part {n} of {n} (visits-3.parquet) cannot be read."
    assert second == "  first: OSError: no magic bytes found at end of file"
    assert third.startswith("  Is the file whole")


@pytest.mark.parametrize("stage", ["job", pytest.param("merge", marks=pytest.mark.slow)])
def test_a_worker_killed_in_the_middle_costs_time_alone(two, log, tmp_path, stage):
    parts = parts_of(log, rows=50)
    job, merge = rows, operator.add
    if stage == "job":
        job = Dies(rows, str(tmp_path))
    else:
        merge = Dies(operator.add, str(tmp_path))
    assert two.reduce(parts.sources, job, merge, (10,)) == log.n_steps + 10 * len(parts)
    assert (tmp_path / "died-0").exists()


def double(x, more):
    return 2 * x + more


@pytest.mark.slow
def test_tasks_that_need_nothing_of_each_other(two):
    assert dict(two.map(double, [1, 2, 3], (100,))) == {0: 102, 1: 104, 2: 106}
    assert dict(two.map(double, [])) == {}


@pytest.mark.slow
def test_a_worker_with_other_code_is_refused(two, log, monkeypatch):
    monkeypatch.setattr(cluster_tasks, "__version__", "0.0.1")
    with pytest.raises(
        dprl.ClusterError, match=r"a worker has dprl .*, and this process has 0\.0\.1"
    ):
        two.reduce(parts_of(log, rows=200).sources, rows, operator.add)


@pytest.mark.parametrize("which", ["here", "local:0", "local:x", 0, True, None, ""])
def test_what_is_no_cluster(which):
    with pytest.raises(dprl.ParameterError, match="cluster must be"), connect(which):
        pass


@pytest.mark.slow
def test_no_scheduler_at_the_address():
    begin = time.monotonic()
    with pytest.raises(dprl.ClusterError) as caught, connect("tcp://127.0.0.1:9", patience=0.5):
        pass
    assert str(caught.value).startswith(
        "no Dask scheduler answers at tcp://127.0.0.1:9.\n  first: "
    )
    assert time.monotonic() - begin < 50  # the usual patience is 60


def test_dask_is_told_how_large_a_result_is():
    large = cluster_tasks.join(operator.add, cluster_tasks.Answer(np.zeros(1000)))
    assert 8_000 < sys.getsizeof(large) < 9_000
    assert sys.getsizeof(cluster_tasks.join(operator.add, cluster_tasks.Answer(None))) < 300


def test_without_dask_it_is_said_how_to_install_it(monkeypatch, log):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(dprl.PackageError) as caught:
        dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(log, cluster="local:2")
    first, _, third = str(caught.value).splitlines()
    assert first == "work on a cluster needs distributed, which is not installed."
    assert third == "  pip install 'dprl[cluster]'"


@pytest.mark.slow
def test_two_clusters_at_once_do_not_disturb_each_other(two):
    with connect(1) as other:  # warnings about a port in use would be errors here
        assert other.workers() == 1
        assert other.address.startswith("tcp://127.0.0.1:")
