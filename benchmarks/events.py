"""From events to decisions: time and memory of `dprl build` as the number of events grows.

    python benchmarks/events.py --events 1e6 1e7 1e8 --out docs/benchmarks/events.md

Each build runs in a process of its own under the memory limit; the peak is that of the process. The
events are invented stays of about three days in the schema of MEDS, in shuffled shards.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

SPEC = """
[source]
preset = "meds"
files = "events/*.parquet"

[episodes]
by = "code"
start = "ICU_ADMISSION"

[[end]]
codes = "MEDS_DEATH"
ended = "died"

[[end]]
codes = "ICU_DISCHARGE"

[clock]
every = "4 h"
horizon = "72 h"

[[feature]]
name = "map"
take = "last"
codes = "VITAL//MAP"
within = "24 h"

[[feature]]
name = "map_low"
take = "min"
codes = "VITAL//MAP"
within = "4 h"

[[feature]]
name = "heart_rate"
take = "mean"
codes = "VITAL//HR"
within = "4 h"

[[feature]]
name = "lactate"
take = "last"
codes = "LAB//LACTATE"
within = "episode"

[[feature]]
name = "lactate_age"
take = "age"
codes = "LAB//LACTATE"
within = "episode"

[[feature]]
name = "urine"
take = "sum"
codes = "OUTPUT//URINE"
within = "24 h"

[[feature]]
name = "drug_before"
take = "sum"
codes = "DRUG//NOREPINEPHRINE"
within = "4 h"

[[feature]]
name = "hours"
take = "elapsed"

[[action.part]]
name = "norepinephrine"
codes = "DRUG//NOREPINEPHRINE"
take = "sum"
edges = [0, 3]

[[reward]]
codes = "VITAL//MAP"
take = "min"
valid = [0, 65]
times = 0.01
plus = -0.65
missing = 0

[[reward]]
at = "end"
ended = "died"
times = -10
"""
CODES = ("VITAL//HR", "VITAL//MAP", "VITAL//HR", "VITAL//MAP", "VITAL//SPO2", "VITAL//RR",
         "LAB//LACTATE", "LAB//SODIUM", "OUTPUT//URINE", "DRUG//NOREPINEPHRINE")  # fmt: skip
PER_STAY = 400


def make(folder: Path, n: int) -> None:
    """Write about n events of n / 400 subjects, in shards of up to 5 million rows."""
    (folder / "events").mkdir(parents=True)
    (folder / "spec.toml").write_text(SPEC)
    codes = ", ".join(f"'{code}'" for code in CODES)
    subjects = max(1, n // PER_STAY)
    per_shard = 5_000_000 // PER_STAY
    with duckdb.connect() as con:
        con.execute("SET memory_limit = '2GB'; SET threads = 2")
        for shard, first in enumerate(range(0, subjects, per_shard)):
            upto = min(subjects, first + per_shard)
            con.execute(f"""COPY (
                WITH who AS (
                    SELECT i AS subject_id, TIMESTAMP '2020-01-01' + to_minutes(CAST(
                        hash(i) % 500000 AS INTEGER)) AS start, 24 + hash(i + 7) % 96 AS stay
                    FROM range({first}, {upto}) t(i)),
                rows AS (
                    SELECT subject_id, start + to_minutes(CAST(hash(subject_id * 1000 + j) %
                        (stay * 60) AS INTEGER)) AS time, [{codes}][1 + j % {len(CODES)}] AS code,
                        CAST(round(40 + hash(subject_id * 977 + j) % 6000 / 100.0, 1) AS FLOAT)
                        AS numeric_value
                    FROM who, range({PER_STAY - 2}) t(j))
                SELECT * FROM rows
                UNION ALL SELECT subject_id, start, 'ICU_ADMISSION', NULL FROM who
                UNION ALL SELECT subject_id, start + to_hours(CAST(stay AS INTEGER)),
                    CASE WHEN subject_id % 9 = 0 THEN 'MEDS_DEATH' ELSE 'ICU_DISCHARGE' END, NULL
                FROM who
                ORDER BY hash(subject_id), hash(code || epoch_us(time))
            ) TO '{folder}/events/{shard:03}.parquet' (FORMAT parquet)""")


def one(folder: str, memory: str) -> None:
    """Build in this process, and print what it took."""
    from dprl.logs.events import build

    begin = time.perf_counter()
    built = build(None, Path(folder) / "spec.toml", Path(folder) / "log.parquet", memory=memory)
    took = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(json.dumps({**built.counts, "seconds": took, "peak": peak}))


def measure(n: int, memory: str, temp: str | None) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=temp) as folder:
        make(Path(folder) / "data", n)
        done = subprocess.run(
            [sys.executable, __file__, "--one", f"{folder}/data", "--memory", memory],
            capture_output=True, text=True, check=True, env=os.environ,
        )  # fmt: skip
        return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", nargs="+", type=float, default=[1e6, 1e7])
    parser.add_argument("--memory", default="3GB")
    parser.add_argument("--temp")
    parser.add_argument("--out")
    parser.add_argument("--one")
    options = parser.parse_args()
    if options.one:
        one(options.one, options.memory)
        return
    lines = [
        "| events | subjects | decisions | seconds | million events / s | peak memory, GB |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for n in options.events:
        row = measure(int(n), options.memory, options.temp)
        lines.append(
            f"| {row['events']:,} | {row['subjects']:,} | {row['decisions']:,} "
            f"| {row['seconds']:.1f} | {row['events'] / row['seconds'] / 1e6:.2f} "
            f"| {row['peak']:.2f} |"
        )
        print(lines[-1], flush=True)
    text = "\n".join(lines) + f"\n\nDuckDB's memory limit: {options.memory}.\n"
    if options.out:
        Path(options.out).write_text(text)
    print(text)


if __name__ == "__main__":
    main()
