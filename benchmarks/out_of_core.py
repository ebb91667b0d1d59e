"""Logs larger than memory: `dprl fit --out-of-core` over Parquet files made by this script.

    python benchmarks/out_of_core.py --steps 5e7 1e8 5e8 --out docs/benchmarks/out_of_core.md

Every run is a fresh process under a memory limit. Peak memory is the kernel's own mark of that
process (the most that was resident at once, files that it maps included). The data are removed
after each size.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import duckdb
import numpy as np

STATES, ACTIONS, LENGTH = 500, 4, 20
BLOCK = 250_000
"""Episodes that are made, and written as files, at a time."""
COLUMNS = ["--episode", "episode", "--time", "step", "--state", "state", "--action", "action",
           "--reward", "reward"]  # fmt: skip


def write_log(folder: Path, steps: int, order: str) -> int:
    """Episodes of 20 steps of a random MDP, as Parquet files; returns their bytes.

    order: "sorted" by episode and step; or "apart": rows by step, so that episodes are
    interleaved, with the first and the second half of each episode in different files.
    """
    chances = np.random.default_rng(0)
    to = chances.integers(0, STATES, (STATES, ACTIONS, 8))  # eight next states each
    value = chances.normal(size=(STATES, ACTIONS))
    usual = np.cumsum(chances.dirichlet(np.ones(ACTIONS), STATES), axis=1)
    episodes = steps // LENGTH
    with duckdb.connect() as con:
        for number, first in enumerate(range(0, episodes, BLOCK)):
            rng = np.random.default_rng([1, number])
            n = min(BLOCK, episodes - first)
            state = rng.integers(0, STATES, n)
            columns = {name: np.empty((n, LENGTH), dtype) for name, dtype in
                       (("state", "i4"), ("action", "i4"), ("reward", "f8"))}  # fmt: skip
            for t in range(LENGTH):
                action = (rng.random(n)[:, None] > usual[state]).sum(axis=1)
                columns["state"][:, t], columns["action"][:, t] = state, action
                columns["reward"][:, t] = value[state, action] + rng.normal(size=n)
                state = to[state, action, rng.integers(0, 8, n)]
            columns["episode"] = np.repeat(np.arange(first, first + n), LENGTH).reshape(n, LENGTH)
            columns["step"] = np.tile(np.arange(LENGTH, dtype=np.int32), (n, 1))
            halves = [slice(0, LENGTH)] if order == "sorted" else [
                slice(0, LENGTH // 2), slice(LENGTH // 2, LENGTH)]  # fmt: skip
            for half, rows in enumerate(halves):
                turned = {k: (v[:, rows] if order == "sorted" else v[:, rows].T).ravel()
                          for k, v in columns.items()}  # fmt: skip
                con.register("rows", turned)
                file = folder / f"{half}-{number:04d}.parquet"
                con.execute(f"COPY (FROM rows) TO '{file}' (FORMAT parquet, COMPRESSION zstd)")
                con.unregister("rows")
    return sum(file.stat().st_size for file in folder.glob("*.parquet"))


class Disk:
    """The most bytes a folder held while a `with` block ran, looked at twice a second."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.most, self.done = folder, 0, threading.Event()

    def look(self) -> None:
        while not self.done.wait(0.5):
            total = 0
            for path in self.folder.rglob("*"):
                try:
                    total += path.stat().st_size
                except OSError:  # it was removed in the meantime
                    continue
            self.most = max(self.most, total)

    def __enter__(self) -> Disk:
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()


def fit(files: str, folder: Path, limit: str, learner: list[str]) -> dict[str, float]:
    """Run `dprl fit` once: seconds, peak memory and peak of temporary files, in bytes."""
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "dprl", "fit", files, *COLUMNS, *learner, "--gamma", "0.99",
               "--out", str(folder / "policy.dprl"), "--json", "--out-of-core", "--memory-limit",
               limit, "--temp-folder", str(temporary)]  # fmt: skip
    started = time.perf_counter()
    with Disk(temporary) as disk, (folder / "out.json").open("wb") as out:
        child = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    if child.returncode:
        raise SystemExit(f"dprl fit ended with code {child.returncode}")
    policy = json.loads((folder / "out.json").read_text())
    kilo = 1 if sys.platform == "darwin" else 1024
    cpu = usage.ru_utime + usage.ru_stime
    return {"seconds": seconds, "cpu": cpu, "resident": usage.ru_maxrss * kilo, "disk": disk.most,
            "digest": policy["digest"]}  # fmt: skip


def table(results: list[dict], limit: str) -> str:
    """The results as a page."""
    lines = [
        f"`dprl fit --out-of-core --memory-limit {limit}` over Parquet files: episodes of "
        f"{LENGTH} steps of a random MDP with {STATES} states and {ACTIONS} actions, n_min 50, "
        "with a plan. *sorted*: by episode and step. *apart*: by step, with the two halves of each "
        "episode in different files, so that DuckDB has to sort. Resident is the most memory the "
        "process had at once, Python and its libraries included (about 0.3 GB); *of CPU* are the "
        "seconds its two threads worked; disk is the "
        "most disk space it used. The policy files of both orders are equal, byte for byte.",
        "",
        "| steps | rows | files GB | seconds | of CPU | steps a second | resident GB | disk GB |",
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r['steps']:,} | {r['order']} | {r['bytes'] / 1e9:.2f} | {r['seconds']:,.0f} | "
        f"{r['cpu']:,.0f} | "
        f"{r['steps'] / r['seconds']:,.0f} | {r['resident'] / 1e9:.2f} | {r['disk'] / 1e9:.1f} |"
        for r in results
    ]
    lines += [
        "",
        f"{datetime.date.today()} · {platform.machine()}, {os.cpu_count()} cores · Python "
        f"{platform.python_version()} · DuckDB {duckdb.__version__}. "
        "`python benchmarks/out_of_core.py --steps 5e7 1e8 5e8`",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=float, nargs="+", default=[5e6])
    parser.add_argument("--order", nargs="+", default=["sorted", "apart"])
    parser.add_argument("--memory-limit", default="2GB")
    parser.add_argument("--folder", help="where the data are made; by default a temporary folder")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = []
    for steps in map(int, given.steps):
        digests = set()
        for order in given.order:
            folder = Path(tempfile.mkdtemp(prefix="dprl-bench-", dir=given.folder))
            try:
                size = write_log(folder, steps, order)
                result = fit(str(folder / "*.parquet"), folder, given.memory_limit,
                             ["--n-min", "50"])  # fmt: skip
            finally:
                shutil.rmtree(folder)
            digests.add(result.pop("digest"))
            results.append({"steps": steps, "order": order, "bytes": size, **result})
            print(results[-1], flush=True)
        if len(digests) > 1:
            raise SystemExit("the policy depends on the order of the rows")
    page = table(results, given.memory_limit)
    print(page)
    if given.out is not None:
        given.out.write_text(page)


if __name__ == "__main__":
    main()
