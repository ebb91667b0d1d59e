"""Tables that are no files: the same log from a snapshot, a query or a stream as from a file."""

from __future__ import annotations

import duckdb
import pytest

import dprl

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
ds = pytest.importorskip("pyarrow.dataset")
pq = pytest.importorskip("pyarrow.parquet")

COLUMNS = {
    "episode": "episode", "time": "time", "state": "state", "action": "action", "reward": "reward",
}  # fmt: skip

SOURCES = {
    "lazy polars": pl.scan_parquet,
    "polars": pl.read_parquet,
    "relation": lambda f: duckdb.read_parquet(str(f)),
    "arrow table": pq.read_table,
    "arrow dataset": ds.dataset,
    "arrow stream": lambda f: ds.dataset(f).scanner(batch_size=100).to_reader(),
    "pandas": lambda f: pq.read_table(f).to_pandas(),
}


@pytest.fixture
def saved(tmp_path_factory):
    def contents(policy, name):
        path = tmp_path_factory.mktemp("saved") / name
        policy.save(path)
        return path.read_bytes()

    return contents


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("lake") / "log.parquet"
    dprl.write(dprl.envs.risky_arms().sample(300, seed=3), path)
    return path


@pytest.mark.parametrize("kind", SOURCES)
def test_a_log_in_parts_is_that_of_the_file(file, kind, tmp_path, saved):
    with dprl.scan(file, **COLUMNS, rows=200) as plain:
        expected = dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(plain)
    with dprl.scan(SOURCES[kind](file), **COLUMNS, rows=200, folder=tmp_path) as parts:
        assert len(parts) > 1
        policy = dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(parts)
        assert [p.name for p in tmp_path.iterdir()]
    assert saved(policy, "parts.dprl") == saved(expected, "plain.dprl")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", SOURCES)
def test_a_log_in_memory_is_that_of_the_file(file, kind):
    expected = dprl.read(file, **COLUMNS)
    assert dprl.from_frame(SOURCES[kind](file), **COLUMNS).digest() == expected.digest()


def test_check_reads_a_table_in_parts(file):
    report = dprl.check(pl.scan_parquet(file), **COLUMNS, memory="512MB")
    assert report.log.n_steps == 600
    report.log.close()


def test_what_breaks_on_the_way_is_said_and_leaves_nothing(file, tmp_path):
    def batches():
        yield pq.read_table(file).to_batches()[0]
        raise ValueError("the object store went away")

    schema = pq.read_schema(file)
    broken = pa.RecordBatchReader.from_batches(schema, batches())
    with pytest.raises(dprl.LogError, match="could not be read") as caught:
        dprl.scan(broken, **COLUMNS, folder=tmp_path)
    assert "went away" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_folders_are_columns_out_of_core_too(tmp_path, saved):
    log = dprl.envs.risky_arms().sample(300, seed=3)
    dprl.write(log, tmp_path / "all.parquet")
    duckdb.sql(
        f"COPY (SELECT *, episode % 3 AS ward FROM '{tmp_path / 'all.parquet'}') "
        f"TO '{tmp_path / 'lake'}' (FORMAT parquet, PARTITION_BY (ward))"
    )
    named = {**COLUMNS, "group": "ward"}
    files = str(tmp_path / "lake" / "*" / "*.parquet")
    whole = dprl.read(files, **named, partitions=True)
    with dprl.scan(files, **named, partitions=True, rows=100) as parts:
        assert parts.n_groups == len(whole.groups) == 3
        learner = dprl.DPRLDiscrete(n_min=5, gamma=1.0)
        assert saved(learner.fit(parts), "a.dprl") == saved(learner.fit(whole), "b.dprl")


def test_a_relation_over_the_files_of_a_lake_is_refused(file, tmp_path, monkeypatch):
    (tmp_path / "lake's" / "_delta_log").mkdir(parents=True)
    dprl.write(dprl.read(file, **COLUMNS), tmp_path / "lake's" / "part.parquet")
    monkeypatch.chdir(tmp_path)
    relations = (
        duckdb.read_parquet(str(tmp_path / "lake's" / "*.parquet")),
        duckdb.sql("SELECT * FROM 'lake''s/part.parquet' WHERE reward > 0"),
        duckdb.read_parquet(["lake's/part.parquet"]).filter("time < 1"),
    )
    for relation in relations:
        for take in (dprl.scan, dprl.from_frame):
            with pytest.raises(dprl.LogError, match="is a Delta Lake table"):
                take(relation, **COLUMNS)
    plain = duckdb.sql(f"SELECT *, '_delta_log' AS folder FROM '{file}'")
    assert dprl.from_frame(plain, **COLUMNS).n_steps == 600


def test_no_table_is_refused():
    with pytest.raises(dprl.LogError):
        dprl.scan("nothing-here-*.parquet", **COLUMNS)


# -- formats of lakes, each read by its own library


def delta(folder, table, later):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(folder), table)
    deltalake.write_deltalake(str(folder), later, mode="overwrite")
    snapshot = deltalake.DeltaTable(str(folder))
    return snapshot.to_pyarrow_dataset(), str(folder / "*.parquet")


def iceberg(folder, table, later):
    catalog = pytest.importorskip("pyiceberg.catalog.sql")
    folder.mkdir()
    place = catalog.SqlCatalog("own", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    place.create_namespace("ward")
    made = place.create_table("ward.log", schema=table.schema)
    made.append(table)
    made.overwrite(later)
    return made.scan().to_arrow_batch_reader(), str(folder / "**" / "*.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [delta, iceberg])
def test_a_lake_is_read_as_it_is_today(kind, file, tmp_path, saved):
    later = pq.read_table(file)
    earlier = later.slice(0, 100)
    snapshot, files = kind(tmp_path / "table", earlier, later)
    learner = dprl.DPRLDiscrete(n_min=5, gamma=1.0)
    with dprl.scan(snapshot, **COLUMNS, rows=200) as parts, dprl.scan(file, **COLUMNS) as plain:
        assert parts.n_steps == 600
        assert saved(learner.fit(parts), "a.dprl") == saved(learner.fit(plain), "b.dprl")
    with pytest.raises(dprl.LogError, match=r"dprl\.scan"):  # its files hold 700 rows
        dprl.read(files, **COLUMNS)


@pytest.mark.slow
def test_an_object_store(file, saved):
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    store.pipe("/bucket/log.parquet", file.read_bytes())
    learner = dprl.DPRLDiscrete(n_min=5, gamma=1.0)
    with (
        dprl.scan(ds.dataset("bucket/log.parquet", filesystem=store), **COLUMNS) as parts,
        dprl.scan(file, **COLUMNS) as plain,
    ):
        assert saved(learner.fit(parts), "a.dprl") == saved(learner.fit(plain), "b.dprl")


@pytest.mark.slow
def test_an_object_store_behind_a_server(file, saved):
    """Files of a bucket by HTTP, as Arrow reads S3: the log of the local file."""
    server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    fs = pytest.importorskip("pyarrow.fs")
    store = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    try:
        host, port = store.get_host_and_port()
        bucket = fs.S3FileSystem(
            access_key="x", secret_key="x", scheme="http", endpoint_override=f"{host}:{port}",
            region="us-east-1", allow_bucket_creation=True,
        )  # fmt: skip
        bucket.create_dir("ward")
        table = pq.read_table(file)
        for i in range(3):
            with bucket.open_output_stream(f"ward/log/{i}.parquet") as stream:
                pq.write_table(table.slice(200 * i, 200), stream)
        learner = dprl.DPRLDiscrete(n_min=5, gamma=1.0)
        with (
            dprl.scan(ds.dataset("ward/log", filesystem=bucket), **COLUMNS, rows=200) as parts,
            dprl.scan(file, **COLUMNS) as plain,
        ):
            assert saved(learner.fit(parts), "a.dprl") == saved(learner.fit(plain), "b.dprl")
    finally:
        store.stop()
