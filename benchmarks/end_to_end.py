"""The commands as a user runs them, on large Parquet files, beside the same job by hand.

    python benchmarks/end_to_end.py --rows 1e6 1e7 4e7 --out docs/benchmarks/end_to_end.md
    python benchmarks/end_to_end.py --quick

Every run is a process of its own, and all take turns. `read` and `check` are calls in Python: time
and memory are those of the call alone, after the imports. `dprl ...` are commands: time and memory
are those of the whole process, and bytes a row are above the same command on a file of 2,000 rows.
By hand, polars and DuckDB read the same columns, code the labels of states and actions, and for
`check` and `split` do what a careful person would write for it in a few lines; both are left out
where polars would need more memory than there is.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "tabular"))

ROLES = {name: name for name in ("episode", "time", "state", "action", "reward")}
FLAGS = [word for name in ROLES for word in (f"--{name}", name)]
DPRL = str(Path(sys.executable).parent / "dprl")
SMALL = 2_000
BY_HAND = 330
"""Bytes a row that `check` by hand takes in polars: where that is too much, it is left out."""
LABELS = ("state", "action")
SOURCE = """
    SELECT i // 20 AS episode, (i % 20)::BIGINT AS time, 's' || (hash(i) % 1000) AS state,
        'a' || (hash(i + 7) % 8) AS action, (hash(i + 13) % 100000) / 100000.0::DOUBLE AS reward
    FROM range({first}, {last}) rows(i)
"""


def make(path: Path, first: int, last: int) -> None:
    """A log of 20 rows an episode, 1,000 states and 8 actions."""
    import duckdb

    with duckdb.connect() as con:
        con.execute("SET memory_limit = '2GB'")
        con.execute(f"COPY ({SOURCE.format(first=first, last=last)}) TO '{path}' (FORMAT parquet)")


# -- calls in Python ------------------------------------------------------------------------------


def ours(job: str, path: str):
    import duckdb  # noqa: F401 - imported before the clock runs
    import numba  # noqa: F401

    import dprl

    call = {"read": dprl.read, "check": dprl.check}[job]
    call(str(Path(path).with_name("warm.parquet")), **ROLES)  # imports and compiled loops
    return lambda: call(path, **ROLES)


def by_polars(job: str, path: str):
    import polars as pl

    def read():
        frame = pl.read_parquet(path, columns=[*ROLES])
        return frame.with_columns([pl.col(name).cast(pl.Categorical) for name in LABELS])

    def check():
        frame = read()
        facts = frame.select(
            pl.all().null_count().name.prefix("missing_"),
            finite=pl.col("reward").is_finite().all(),
            twins=pl.struct("episode", "time").is_duplicated().any(),
            low=pl.col("reward").min(),
            high=pl.col("reward").max(),
        )
        return frame.sort("episode", "time"), facts

    def split():
        folder = Path(path).with_name("by-polars")
        folder.mkdir(exist_ok=True)
        frame = pl.read_parquet(path)
        episodes = frame.get_column("episode").unique().sort()
        train = episodes.sample(fraction=0.5, seed=0).implode()
        is_train = pl.col("episode").is_in(train)
        frame.filter(is_train).write_parquet(folder / "train.parquet", compression="snappy")
        frame.filter(~is_train).write_parquet(folder / "test.parquet", compression="snappy")

    return {"read": read, "check": check, "split": split}[job]


def by_duckdb(job: str, path: str):
    import duckdb
    import numpy  # noqa: F401 - imported before the clock runs

    con = duckdb.connect()
    rows = f"read_parquet('{path}')"

    def read():
        for name in LABELS:
            con.execute(f"CREATE TYPE {name}_label AS ENUM (SELECT DISTINCT {name} FROM {rows})")
        codes = ", ".join(f"enum_code({name}::{name}_label) AS {name}" for name in LABELS)
        return con.execute(f"SELECT episode, time, {codes}, reward FROM {rows}").fetchnumpy()

    def check():
        missing = ", ".join(f"count(*) - count({name})" for name in ROLES)
        facts = con.execute(
            f"SELECT {missing}, bool_and(isfinite(reward)), min(reward), max(reward) FROM {rows}"
        ).fetchall()
        twins = con.execute(
            f"SELECT count(*) - (SELECT count(*) FROM (SELECT DISTINCT episode, time FROM {rows})) "
            f"FROM {rows}"
        ).fetchall()
        return read(), facts, twins

    def split():
        folder = Path(path).with_name("by-duckdb")
        folder.mkdir(exist_ok=True)
        for side, first in (("train", 0), ("test", 1)):
            con.execute(
                f"COPY (SELECT * FROM {rows} WHERE hash(episode) % 2 = {first}) "
                f"TO '{folder / side}.parquet' (FORMAT parquet)"
            )

    return {"read": read, "check": check, "split": split}[job]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_process(who: str, job: str, path: str) -> None:
    """Run one call, and print what it took."""
    call = {"dprl": ours, "polars": by_polars, "duckdb": by_duckdb}[who](job, path)
    base, clock, cpu = resident(), time.perf_counter(), time.process_time()
    kept = call()
    took = {"seconds": time.perf_counter() - clock, "cpu": time.process_time() - cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**took, "bytes": peak - base}))
    del kept


# -- commands -------------------------------------------------------------------------------------


def command(words: list[str]) -> dict[str, float]:
    """Run a command, and tell its seconds and its highest memory."""
    clock = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - clock
    words_of_error = process.stderr.read().decode() if process.stderr else ""
    if status:
        raise SystemExit(f"{' '.join(words)}: {words_of_error[-500:]}")
    return {
        "seconds": seconds, "cpu": used.ru_utime + used.ru_stime, "bytes": used.ru_maxrss * 1024
    }  # fmt: skip


def commands(folder: Path, path: Path) -> dict[str, list[str]]:
    policy, parts = folder / "policy.dprl", folder / "parts"
    fit = [DPRL, "fit", str(path), *FLAGS, "--n-min", "20", "--gamma", "0.99", "--cut", "terminal"]
    held = path.with_name(f"held-{path.name}")
    return {
        "dprl check": [DPRL, "check", str(path), *FLAGS],
        "dprl fit": [*fit, "--out", str(policy)],
        "dprl split": [DPRL, "split", str(path), "--by", "episode", "--out", str(parts)],
        "dprl evaluate --no-values": [DPRL, "evaluate", str(policy), str(held), "--no-values"],
    }


def call_of(who: str, job: str, path: Path) -> dict[str, float]:
    words = [sys.executable, __file__, "--job", who, job, str(path)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(rows: int, repeats: int, folder: Path) -> list[str]:
    """The lines of the table of one size."""
    path, small = folder / "log.parquet", folder / "small.parquet"
    for file, n in ((path, rows), (small, SMALL)):
        make(file, 0, n)
        make(file.with_name(f"held-{file.name}"), n, 2 * n)
    make(folder / "warm.parquet", 0, 200_000)
    calls = [
        (job, who) for job in ("read", "check", "split") for who in ("dprl", "polars", "duckdb")
    ]
    calls.remove(("split", "dprl"))  # a command
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if rows * BY_HAND > memory:
        calls = [(job, who) for job, who in calls if who == "dprl" or job == "read"]
    runs: dict[tuple[str, str], list[dict[str, float]]] = {}
    base = {name: command(words)["bytes"] for name, words in commands(folder, small).items()}
    for _ in range(repeats):
        for job, who in calls:
            runs.setdefault((job, who), []).append(call_of(who, job, path))
        for name, words in commands(folder, path).items():
            took = command(words)
            took["bytes"] -= base[name]
            runs.setdefault((name, ""), []).append(took)
    middle = {
        key: {x: statistics.median(run[x] for run in some) for x in ("seconds", "cpu", "bytes")}
        for key, some in runs.items()
    }
    lines = [
        f"### {rows:,} rows", "",
        "| job | seconds | CPU seconds | times polars | bytes a row | MB |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for (job, who), took in middle.items():
        polars = middle.get((job.removeprefix("dprl ").split(" ")[0], "polars"))
        ratio = f"{took['seconds'] / polars['seconds']:.1f}" if polars else ""
        name = f"`{job}`" if not who else f"{job}, {who}"
        lines.append(
            f"| {name} | {took['seconds']:.2f} | {took['cpu']:.2f} | {ratio} | "
            f"{took['bytes'] / rows:.0f} | {took['bytes'] / 1e6:,.0f} |"
        )
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 1e7, 4e7])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one run of 200,000 rows")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", nargs=3, metavar=("WHO", "JOB", "FILE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        in_process(*args.job)
        return
    from run import stamp

    sizes, repeats = ([2e5], 1) if args.quick else (args.rows, args.repeats)
    load = f"Load of the machine at the start: {os.getloadavg()[0]:.1f}."
    lines = [f"{stamp()} Median of {repeats} interleaved runs. {load}", ""]
    for rows in sizes:
        folder = Path(tempfile.mkdtemp(prefix="end-to-end-"))
        try:
            lines += measure(int(rows), repeats, folder)
        finally:
            shutil.rmtree(folder)
        print("\n".join(lines), flush=True)
    if args.out:
        args.out.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
