"""A fit on a Dask cluster: strong scaling, overhead against one process, bytes moved.

    python benchmarks/cluster.py --steps 1e7 --workers 1 2 4 --out docs/benchmarks/cluster.md

All workers are processes on this machine, and each is bound to one core (the second to the second
core, and so on, beginning again with the first). The log is stored once by `dprl.scan`; every run
reads the same files, and every policy is compared with that of one process, digest by digest.
"""

from __future__ import annotations

import argparse
import datetime
import os
import pickle
import platform
import shutil
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

import dprl
from dprl._core.cluster import connect
from dprl.evidence.neighbors import Engine, Points
from dprl.evidence.neighbors.engine import SpreadEngine
from dprl.logs.source import ROOM, in_turn, parts_of
from out_of_core import ACTIONS, LENGTH, STATES, write_log

COLUMNS = {"episode": "episode", "time": "step", "state": "state", "action": "action",
           "reward": "reward"}  # fmt: skip
LEARNER = dprl.DPRLDiscrete(n_min=50, gamma=0.99)
STAGES = {"count_part": "counting", "marks_of_part": "sample of groups",
          "beginnings_of_part": "sample of groups", "segments_of_part": "planning",
          "list_part": "luck"}  # fmt: skip


class Timed:
    """An executor that notes what every stage takes: seconds, bytes out and bytes back."""

    def __init__(self, executor) -> None:
        self.executor = executor
        self.seconds, self.passes = defaultdict(float), defaultdict(int)
        self.used = defaultdict(float)
        self.shared, self.result = defaultdict(int), defaultdict(int)

    def __call__(self, sources, job, merge, shared, progress):
        stage = STAGES.get(job.__name__, job.__name__)
        begin, used = time.perf_counter(), time.process_time()
        result = self.executor(sources, job, merge, shared, progress)
        self.seconds[stage] += time.perf_counter() - begin
        self.used[stage] += time.process_time() - used
        self.passes[stage] += 1
        self.shared[stage] += len(pickle.dumps(shared, 5))
        self.result[stage] += len(pickle.dumps(result, 5))
        return result


def fitted(parts, executor):
    """Seconds of a fit, its digest, what its stages took, and seconds of the processor here."""
    timed = Timed(executor)
    begin, used = time.perf_counter(), time.process_time()
    policy = LEARNER.fit(replace(parts, executor=timed))
    return time.perf_counter() - begin, policy.digest(), timed, time.process_time() - used


def bind(dask_worker=None) -> None:
    """Bind this worker to one core: the one of its number."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(dask_worker.name) % len(cores)]})


def moved(dask_worker=None) -> tuple[float, ...]:
    """Bytes this worker received from other workers and sent to anyone; seconds of processor."""
    logs = dask_worker.transfer_incoming_log, dask_worker.transfer_outgoing_log
    return (*(sum(entry["total"] for entry in log) for log in logs), time.process_time())


def away(parts, small, workers: int, repeats: int) -> dict:
    """The best of some fits on so many workers."""
    begin = time.perf_counter()
    with connect(workers) as cluster:
        cluster.client.wait_for_workers(workers)
        start = time.perf_counter() - begin
        cluster.client.run(bind)
        for _ in range(2):  # every worker loads or compiles what it needs
            LEARNER.fit(small, cluster=cluster)
        runs = []
        for _ in range(repeats):
            before = cluster.client.run(moved)
            seconds, digest, timed, here = fitted(parts, cluster.reduce)
            after = cluster.client.run(moved)
            received, sent = (max(after[w][k] - before[w][k] for w in after) for k in (0, 1))
            used = here + sum(after[w][2] - before[w][2] for w in after)
            runs.append({"used": used, "workers": workers, "start": start, "seconds": seconds,
                         "digest": digest, "received": received, "sent": sent,
                         "timed": timed})  # fmt: skip
        empty = time.perf_counter()
        for _ in range(5):
            cluster.reduce(parts.sources[:1] * len(parts), nothing, add)
        runs[0]["empty"] = (time.perf_counter() - empty) / 5
    best = min(runs, key=lambda r: r["seconds"])
    return {**best, "empty": runs[0]["empty"]}


def nothing(log) -> int:
    return 0


def add(one: int, other: int) -> int:
    return one + other


def neighbors(n: int, queries: int, workers: list[int]) -> list[tuple[str, float]]:
    """Seconds for the evidence around some places, by one engine and on clusters."""
    rng = np.random.default_rng(0)
    points = Points(
        z=rng.normal(size=(n, 6)), action=rng.integers(0, 4, n), G=rng.normal(size=n),
        episode=np.arange(n) // LENGTH, gamma=0.99,
    )  # fmt: skip
    asked = points.z[:: n // queries][:queries]
    engine = Engine.build(points, 4)
    engine.evidence(asked[:2_000], 1.0)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    begin = time.perf_counter()
    words = engine.evidence(asked, 1.0, threads=1).words
    rows = [("one engine, one core", time.perf_counter() - begin)]
    os.sched_setaffinity(0, cores)
    for k in workers:
        with connect(k) as cluster:
            cluster.client.wait_for_workers(k)
            cluster.client.run(bind)
            spread = SpreadEngine.of(engine, cluster)
            spread.evidence(asked[:2_000], 1.0)
            begin = time.perf_counter()
            same = np.array_equal(spread.evidence(asked, 1.0).words, words)
            rows.append((f"{k} worker{'s' * (k > 1)}", time.perf_counter() - begin))
        if not same:
            raise SystemExit("the words differ")
    return rows


def page(steps: int, n_parts: int, scanned: float, alone, here, results, near, asked) -> str:
    base = results[0]
    lines = [
        f"A fit of `DPRLDiscrete(n_min=50, gamma=0.99)` to {steps:,} steps ({STATES} states, "
        f"{ACTIONS} actions, episodes of {LENGTH}) in {n_parts} parts. All workers are on one "
        f"machine with {os.cpu_count()} cores, and each is bound to one core: one and two workers "
        "show how work divides; more workers than cores share them and can only show what it costs "
        "to have more. Storing the log (`dprl.scan`) took "
        f"{scanned:.1f} s and is not part of the times; nor is the start of the workers. Every "
        "policy has the digest of the one of one process.",
        "",
        "| where | seconds | steps a second | against one worker | seconds of processor | start of "
        "workers s | most bytes a worker received | most bytes a worker sent |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        f"| one process, all cores | {here[0]:.2f} | {steps / here[0]:,.0f} | "
        f"{base['seconds'] / here[0]:.2f} | {here[3]:.1f} | | | |",
        f"| one process, one core | {alone[0]:.2f} | {steps / alone[0]:,.0f} | "
        f"{base['seconds'] / alone[0]:.2f} | {alone[3]:.1f} | | | |",
    ]
    lines += [
        f"| {r['workers']} worker{'s' * (r['workers'] > 1)} | {r['seconds']:.2f} | "
        f"{steps / r['seconds']:,.0f} | {base['seconds'] / r['seconds']:.2f} | {r['used']:.1f} | "
        f"{r['start']:.1f} | "
        f"{r['received']:,} | {r['sent']:,} |"
        for r in results
    ]
    overhead = base["seconds"] / alone[0] - 1, base["used"] / alone[3] - 1
    lines += [
        "",
        f"One worker on one core, and the client beside it, take {100 * overhead[0]:.0f} % more "
        f"time than one process on one core, and {100 * overhead[1]:.0f} % more of the processor. "
        f"A pass whose jobs only read the first part, {n_parts} times, takes "
        f"{1000 * base['empty']:.0f} ms. Seconds of processor are those of "
        "all processes together; they depend less on what else the machine does.",
        "",
        "| stage | passes | ns of processor a step and pass, one process | seconds, one process "
        "on one core | "
        + " | ".join(f"{r['workers']} worker{'s' * (r['workers'] > 1)}" for r in results)
        + " | bytes to each worker | bytes of the result |",
        "|---|---:|---:|---:|" + "---:|" * (len(results) + 2),
    ]
    lines += [
        f"| {stage} | {alone[2].passes[stage]} | "
        f"{1e9 * alone[2].used[stage] / steps / alone[2].passes[stage]:.0f} | {seconds:.2f} | "
        + " | ".join(f"{r['timed'].seconds[stage]:.2f}" for r in results)
        + f" | {alone[2].shared[stage]:,} | {alone[2].result[stage]:,} |"
        for stage, seconds in alone[2].seconds.items()
    ]
    lines += [
        "",
        f"Neighbours within a radius, {asked[0]:,} points of six features, {asked[1]:,} queries, "
        "four actions, counted by trajectory; the words are equal:",
        "",
        "| where | seconds |",
        "|---|---:|",
        *(f"| {name} | {seconds:.2f} |" for name, seconds in near),
        "",
        f"{datetime.date.today()} · {platform.machine()}, {os.cpu_count()} cores · Python "
        f"{platform.python_version()} · load average at the end {os.getloadavg()[0]:.1f}. "
        f"`python benchmarks/cluster.py --steps {steps:.0e}`",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=float, default=1e7)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--points", type=float, default=1e5)
    parser.add_argument("--queries", type=float, default=2e4)
    parser.add_argument("--folder", help="where the data are made; by default a temporary folder")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    steps = int(given.steps)
    folder = Path(tempfile.mkdtemp(prefix="dprl-bench-", dir=given.folder))
    try:
        write_log(folder, steps, "sorted")
        begin = time.perf_counter()
        scanned = dprl.scan(
            str(folder / "*.parquet"), **COLUMNS, rows=steps // given.parts, folder=folder
        )
        seconds = time.perf_counter() - begin
        with scanned as stored:
            parts = replace(stored, rows=ROOM)  # as it is on a cluster: the same passes everywhere
            small = parts_of(dprl.envs.care_pathway().sample(2_000, seed=0), rows=500)
            LEARNER.fit(small)
            here = min((fitted(parts, in_turn) for _ in range(given.repeats)), key=lambda r: r[0])
            cores = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {min(cores)})
            alone = min((fitted(parts, in_turn) for _ in range(given.repeats)), key=lambda r: r[0])
            os.sched_setaffinity(0, cores)
            results = []
            for workers in given.workers:
                results.append(away(parts, small, workers, given.repeats))
                print(workers, results[-1]["seconds"], dict(results[-1]["timed"].seconds))
            n_parts = len(parts)
        if {r["digest"] for r in results} != {here[1]}:
            raise SystemExit("the policies differ")
        asked = int(given.points), int(given.queries)
        near = neighbors(*asked, given.workers)
    finally:
        shutil.rmtree(folder)
    text = page(steps, n_parts, seconds, alone, here, results, near, asked)
    print(text)
    if given.out is not None:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
