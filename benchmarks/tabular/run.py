"""Side by side: returns to go, first-visit evidence, decision points and semi-MDP counts.

    python tabular.py --steps 1e6 1e7 --repeats 3 --out table.md

Every run is a fresh process: it loads the log, warms up on a small one (imports, compilation,
thread pools, allocator), then runs once. Peak memory is what the run adds to that process.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import gc
import importlib
import importlib.util
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from synthetic import checksums, make_log

OURS = {"dprl": "ours:run"}
RIVALS = {
    "numpy": "rival_numpy:run",
    "numpy_tuned": "rival_numpy_tuned:run",
    "polars": "rival_polars:run",
    "pandas": "rival_pandas:run",
    "duckdb": "rival_duckdb:run",
    "duckdb_sql": "rival_duckdb:run_sql",
}
METHODS = OURS | RIVALS
ARRAYS = ("state", "action", "reward", "starts")
GAMMA = 0.99
N_MIN = 20
WARM_UP_STEPS = 200_000


def resident() -> int:
    """Bytes of memory resident now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Peak:
    """Highest resident memory inside a `with`: the kernel's own mark, else a sampling thread."""

    def __enter__(self):
        gc.collect()
        if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
            libc.malloc_trim(0)
        self.base = self.high = resident()
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self.thread = None
        except OSError:
            self.stop = threading.Event()
            self.thread = threading.Thread(target=self.sample, daemon=True)
            self.thread.start()
        return self

    def sample(self):
        while not self.stop.wait(0.005):
            self.high = max(self.high, resident())

    def __exit__(self, *_):
        if self.thread is None:
            status = Path("/proc/self/status").read_text()
            line = next(x for x in status.splitlines() if x.startswith("VmHWM"))
            self.high = int(line.split()[1]) * 1024
        else:
            self.stop.set()
            self.thread.join()
        self.high = max(self.high, resident())

    @property
    def added_mb(self) -> float:
        return (self.high - self.base) / 1e6


def load(folder: Path) -> dict:
    """A log from a folder, in memory (not mapped)."""
    sizes = json.loads((folder / "sizes.json").read_text())
    return {name: np.load(folder / f"{name}.npy") for name in ARRAYS} | sizes


def save(data: dict, folder: Path) -> None:
    """Write a log for the workers."""
    folder.mkdir()
    for name in ARRAYS:
        np.save(folder / f"{name}.npy", data[name])
    sizes = {name: data[name] for name in ("n_states", "n_actions")}
    (folder / "sizes.json").write_text(json.dumps(sizes))


def work(method: str, folder: str) -> None:
    """One run in this process; prints its numbers as JSON."""
    module, _, function = METHODS[method].partition(":")
    home = importlib.import_module(module)
    run, prepare = getattr(home, function), getattr(home, "prepare", dict)
    sizes = load(Path(folder))
    data = prepare(sizes)
    small = prepare(make_log(WARM_UP_STEPS, sizes["n_states"], sizes["n_actions"], seed=1))
    run(small, GAMMA, N_MIN)
    run(small, GAMMA, 2)
    del small
    with Peak() as peak:
        wall, cpu = time.perf_counter(), time.process_time()
        result = run(data, GAMMA, N_MIN)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    out = {"wall": wall, "cpu": cpu, "peak": peak.added_mb, "sums": checksums(result)}
    print(json.dumps(out))


def measure(method: str, folder: Path) -> dict:
    """One run in a fresh process."""
    command = [sys.executable, __file__, "--worker", method, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{method} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def check(sums: dict, reference: dict, method: str) -> None:
    """Stop if a method computes something else."""
    for name, value in reference.items():
        if not math.isclose(sums[name], value, rel_tol=1e-9, abs_tol=1e-9):
            raise SystemExit(f"{method} disagrees: {name} = {sums[name]!r}, expected {value!r}")


def present() -> list[str]:
    """The methods whose module is here; `dprl` needs an `ours.py` with the same `run`."""
    spec = importlib.util.find_spec
    return [name for name, target in METHODS.items() if spec(target.partition(":")[0])]


def cpu_model() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown processor"


def versions(methods) -> str:
    """Versions of what was measured."""
    from importlib.metadata import PackageNotFoundError, version

    names = ["numpy", "scipy"] + sorted({x.split("_")[0] for x in methods} - {"numpy"})
    out = [f"Python {platform.python_version()}"]
    for name in names:
        try:
            out.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(out)


def stamp() -> str:
    """When and on what."""
    return f"{datetime.date.today()}, {cpu_model()}, {os.cpu_count()} cores."


def table(steps: int, runs: dict, sums: dict) -> str:
    """The table of one size, fastest first by CPU seconds."""
    middle = {
        method: {x: statistics.median(r[x] for r in rows) for x in ("wall", "cpu", "peak")}
        for method, rows in runs.items()
    }
    ours = middle.get("dprl")
    lines = [
        f"### {steps:,} steps: {sums['decision_points']:,} decision points, "
        f"{sums['pairs']:,} allowed pairs, {sums['D_nnz']:,} entries in D",
        "",
        "| method | wall s | CPU s | peak MB | wall / dprl | CPU / dprl | peak / dprl |",
        "|---|---|---|---|---|---|---|",
    ]
    for method in sorted(middle, key=lambda x: middle[x]["cpu"]):
        row = middle[method]
        cells = [f"{row['wall']:.2f}", f"{row['cpu']:.2f}", f"{row['peak']:.0f}"]
        cells += [f"{row[x] / ours[x]:.1f}" if ours else "" for x in ("wall", "cpu", "peak")]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure the methods in turn, check that they agree, write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", nargs="+", type=lambda x: int(float(x)), default=[10**6, 10**7])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=present())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    parser.add_argument("--worker", nargs=2, metavar=("METHOD", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return work(*args.worker)
    parts = [
        f"{stamp()} {versions(args.methods)}."
        f" Median of {args.repeats} interleaved runs, each in a fresh process; CPU seconds count"
        " all threads; peak MB is what the run adds to a process that holds the log."
    ]
    with tempfile.TemporaryDirectory() as temporary:
        for steps in args.steps:
            folder = Path(temporary) / str(steps)
            save(make_log(steps), folder)
            runs = {method: [] for method in args.methods}
            reference = None
            for repeat in range(args.repeats):
                for method in args.methods:
                    row = measure(method, folder)
                    reference = reference or row["sums"]
                    check(row["sums"], reference, method)
                    runs[method].append(row)
                    print(
                        f"{steps:.0e} {method:12s} {repeat} wall {row['wall']:.3f} "
                        f"cpu {row['cpu']:.3f} peak {row['peak']:.0f} MB",
                        file=sys.stderr,
                        flush=True,
                    )
            parts.append(table(steps, runs, reference))
            for file in folder.iterdir():
                file.unlink()
    text = "\n\n".join(parts) + "\n"
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
