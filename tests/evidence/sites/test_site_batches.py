"""Evidence of partitions, as Spark's mapInArrow counts them, is that of the whole table."""

from __future__ import annotations

import runpy
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import dprl
from conftest import random_episodes, to_log
from dprl.evidence import count_batches, from_batches

pa = pytest.importorskip("pyarrow")
COLUMNS = {"episode": "who", "time": "t", "state": "s", "action": "a", "reward": "r"}
EXAMPLE = Path(__file__).parents[3] / "examples" / "spark_evidence.py"


def table_of(log, seed=0, group=False):
    """The log's rows in any order."""
    rows = {
        "who": np.repeat(np.array(log.episodes), log.lengths),
        "t": np.concatenate([np.arange(n) for n in log.lengths]),
        "s": np.array(log.states)[log.state], "a": np.array(log.actions)[log.action],
        "r": np.array(log.reward),
    }  # fmt: skip
    if group:
        rows["g"] = np.array(log.groups)[np.repeat(log.group, log.lengths)]
    order = np.random.default_rng(seed).permutation(log.n_steps)
    return pa.table({name: column[order] for name, column in rows.items()})


def partitions(table, by, n):
    home = np.array([hash(x) % n for x in table[by].to_pylist()])
    return [table.filter(pa.array(home == i)).to_batches(max_chunksize=7) for i in range(n)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [1, 3])
def test_partitions_add_up_to_the_table(seed, k):
    log = to_log(random_episodes(seed))
    schema = dprl.SiteSchema.of(log, gamma=0.9, value_range=(-1000, 1000))
    count = count_batches(schema, **COLUMNS)
    whole = dprl.site_evidence(log, schema, k=k, site="north").to_bytes()
    for n in (1, 2, 5):
        parts = [row for part in partitions(table_of(log, seed), "who", n) for row in count(part)]
        assert from_batches(parts, k=k, site="north").to_bytes() == whole
        assert from_batches(parts[::-1], k=k, site="north").to_bytes() == whole
        together = pa.Table.from_batches(parts)
        assert from_batches(together, k=k, site="north").to_bytes() == whole
        rows = [tuple(row.values()) for row in together.to_pylist()]
        assert from_batches(rows, k=k, site="north").to_bytes() == whole
    assert list(count([])) == []


def test_groups_are_counted_as_in_the_table():
    episodes = random_episodes(4)
    group = [f"g{e // 3}" for e, episode in enumerate(episodes) for _ in episode]
    log = to_log(episodes, group=group)
    schema = dprl.SiteSchema.of(log, gamma=0.9)
    count = count_batches(schema, **COLUMNS, group="g")
    parts = [
        row for part in partitions(table_of(log, 1, True), "g", 3) for row in count(part)
    ]  # fmt: skip
    assert from_batches(parts, k=2).to_bytes() == dprl.site_evidence(log, schema, k=2).to_bytes()


def test_a_group_in_two_partitions_is_refused():
    table = pa.table({"who": [1, 1, 2], "t": [0, 1, 0], "s": ["x"] * 3, "a": ["y"] * 3,
                      "r": [1.0, 2.0, 3.0]})  # fmt: skip
    schema = dprl.SiteSchema(states=["x"], actions=["y"], gamma=1.0)
    count = count_batches(schema, **COLUMNS)
    parts = [row for part in (table[:1], table[1:]) for row in count(part.to_batches())]
    with pytest.raises(dprl.EvidenceError, match="1 of 2 groups are in more than one") as error:
        from_batches(parts, k=1)
    assert len(str(error.value).splitlines()) == 3
    for wrong in ([()], [{"other": 1}], [7]):
        with pytest.raises(dprl.EvidenceError, match="holds no evidence"):
            from_batches(wrong, k=1)
    with pytest.raises(dprl.EvidenceError, match="not a usable evidence file"):
        from_batches([(b"junk", b"")], k=1)
    with pytest.raises(dprl.ParameterError, match="a schema is needed"):
        count_batches({}, **COLUMNS)
    other = dprl.SiteSchema(states=["x", "z"], actions=["y"], gamma=1.0)
    mixed = [*count(table[:2].to_batches()),
             *count_batches(other, **COLUMNS)(table[2:].to_batches())]  # fmt: skip
    with pytest.raises(dprl.EvidenceError, match="different schemas"):
        from_batches(mixed, k=1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_real_spark_counts_the_same(monkeypatch):
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    if shutil.which("java") is None:
        pytest.skip("there is no Java runtime")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    table = table_of(dprl.envs.care_pathway().sample(300, seed=0))
    log = dprl.from_frame(table, **COLUMNS)
    schema = dprl.SiteSchema.of(log, gamma=0.99, value_range=(0, 1))
    evidence_of = runpy.run_path(str(EXAMPLE))["evidence_of"]
    spark = (
        sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4").config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )  # fmt: skip
    try:
        frame = spark.createDataFrame(table.to_pylist())
        ours = evidence_of(frame, schema, COLUMNS, k=5, site="lake")
    finally:
        spark.stop()
    assert ours.to_bytes() == dprl.site_evidence(log, schema, k=5, site="lake").to_bytes()
