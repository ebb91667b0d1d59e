"""Planning in continuous states against the number of points, and what compression keeps."""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import dprl

sys.path.insert(0, str(Path(__file__).parent / "tabular"))

from run import stamp

RAW = dprl.Metric(scale="none")
LENGTH = 20


def log_of(x: np.ndarray, seed: int = 0) -> dprl.Log:
    """Episodes of 20 steps over places x, four actions, noisy rewards."""
    rng = np.random.default_rng(seed)
    n = len(x) // LENGTH
    action = rng.integers(4, size=n * LENGTH)
    return dprl.from_arrays(
        episode=np.repeat(np.arange(n), LENGTH),
        time=np.tile(np.arange(LENGTH), n),
        state=x[: n * LENGTH],
        action=action,
        reward=rng.normal(size=n * LENGTH) + 0.3 * (action == (x[: n * LENGTH, 0] > 0)),
    )


def mixture(n: int, d: int = 16, per_cluster: int = 170) -> np.ndarray:
    rng = np.random.default_rng(1)
    clusters = max(1, n // per_cluster)
    centres = 3 * rng.normal(size=(clusters, d))
    return centres[rng.integers(clusters, size=n)] + 0.5 * rng.normal(size=(n, d))


def near_duplicates(n: int) -> np.ndarray:
    rng = np.random.default_rng(2)
    places = rng.normal(size=(n // 40, 16))
    return places[rng.integers(len(places), size=n)] + 1e-5 * rng.normal(size=(n, 16))


def crowd_and_loners(n: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    x = mixture(n, d=8, per_cluster=400)
    alone = rng.random(n) < 0.3
    x[alone] = 25 * rng.normal(size=(alone.sum(), 8))
    return x


def plan(n: int) -> None:
    """One planned fit in this process; prints a table row."""
    log = log_of(mixture(n))
    small = log_of(mixture(2_000))
    settings = {"n_min": 5, "radius": 3.0, "gamma": 0.99, "metric": RAW}
    dprl.DPRLContinuous(plan=True, **settings).fit(small)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    one = dprl.DPRLContinuous(plan=False, **settings).fit(log)
    points = one.summary()["decision_points"]
    single = time.perf_counter() - start
    start = time.perf_counter()
    policy = dprl.DPRLContinuous(plan=True, **settings).fit(log)
    planned = time.perf_counter() - start
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6
    near = policy.returns_engine.count(policy.z[:2000], 3.0).mean()
    print(f"| {n:,} | {near:.0f} | {points:,} | {single:.1f} | {planned:.1f} | {peak:.2f} |")


def compression() -> list[str]:
    world = dprl.envs.PointMass()
    cases = {
        "near-duplicates, 16-d, r 1e-3": (log_of(near_duplicates(20_000)), 1e-3, 10),
        "crowds and 30 % loners, 8-d, r 2": (log_of(crowd_and_loners(20_000)), 2.0, 10),
        "point mass, 400 walks, 2-d, r .06": (world.sample(400, seed=1), 0.06, 10),
    }
    rows = []
    for name, (log, radius, n_min) in cases.items():
        policy = dprl.DPRLContinuous(
            n_min=n_min, radius=radius, gamma=0.97, metric=RAW, plan=False, cut="terminal"
        ).fit(log)
        for label, result in (
            ("pruned", dprl.prune(policy)),
            ("tol .1", dprl.compress(policy, 0.1)),
            ("tol .3", dprl.compress(policy, 0.3)),
        ):
            changed = result.changed(policy, log.features)
            rows.append(
                f"| {name} | {label} | {result.before:,} | {result.after:,} | {result.places:,} | "
                f"{result.ratio:.2f} | {100 * changed:.2f} % |"
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", nargs="+", type=int, default=[10_000, 30_000, 100_000])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return plan(args.worker)
    lines = [
        f"{stamp()} Gaussian mixture in 16 dimensions; each size in a process of its own.", "",
        "| points | neighbours | decision points | one step s | planned s | peak GB |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for n in args.points:
        command = [sys.executable, __file__, "--worker", str(n)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        lines.append(done.stdout.strip())
    lines += [
        "", "Compression; *changed*: answers at the training states that differ.", "",
        "| log | how | points | kept | places | numbers kept | changed |",
        "|---|---|---|---|---|---|---|",
        *compression(),
    ]  # fmt: skip
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
