"""How long `dprl.Confident` takes, and how much memory, as states and steps grow.

    python benchmarks/confident.py --out table.md
    python benchmarks/confident.py --large --out table.md       50,000 states and 10 million steps
    python benchmarks/confident.py --against plain.py  with another fit_best(log, gamma, risk=)

Every size is a fresh process, which first fits a small log (imports, compilation). One fit tells
the time of the choice and, from its first report of a half on, that of the bound; the check of the
state is timed by itself. CPU seconds are those of both threads: they say more than wall seconds
where other programs want the same cores. Peak memory is that of the whole process with its log.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import warnings
from datetime import date
from pathlib import Path

GAMMA = 0.99
SIZES = [(1_000, 10**6, 3), (3_000, 10**6, 0), (10_000, 10**6, 0)]
LARGE = [
    (1_000, 10**7, 0),
    (3_000, 10**7, 0),
    (10_000, 10**7, 0),
    (50_000, 10**6, 0),
    (50_000, 10**7, 0),
]


def measure(log, splits: int, check: bool) -> dict:
    """Seconds of the choice, of the bound and of the check; what was chosen."""
    import dprl

    marks: dict[str, tuple[float, float]] = {}

    def now() -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    def between(first: tuple[float, float], last: tuple[float, float]) -> tuple[float, float]:
        return last[0] - first[0], last[1] - first[1]

    def progress(stage: str, share: float) -> None:
        marks.setdefault(stage, now())

    begin = now()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = dprl.Confident(gamma=GAMMA, promise=splits > 0, splits=splits, check=False)
        policy = learner.fit(log, progress=progress)
        end = now()
        halves = marks.get("choosing and judging on different halves", end)
        seconds = {"choice": between(begin, halves)}
        seconds["bound"] = between(halves, end) if splits else None
        begin = now()
        if check:
            dprl.markov_check(log, GAMMA)
    seconds["check"] = between(begin, now()) if check else None
    return {**seconds, "spoken": int((policy.choice >= 0).sum()), "steps": log.n_steps}


def peak() -> float:
    """The most memory that this process ever held, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def one_size(S: int, steps: int, splits: int, check: bool) -> dict:
    """One row: in this process, which must be a fresh one."""
    from walks import walks

    for states in (200, 3_100):
        measure(walks(states, 5_000), 0, check)
    log = walks(S, steps)
    return {"states": S, **measure(log, splits, check), "peak": peak()}


def in_a_fresh_process(*row: int) -> dict:
    command = [sys.executable, __file__, "--one", *map(str, row)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def icu_sepsis(repeats: int, against: Path | None) -> str:
    """ICU-Sepsis, the parts of a fit one by one, interleaved with another implementation."""
    import dprl

    log = dprl.envs.icu_sepsis().sample(20_000, seed=0)
    measure(dprl.envs.icu_sepsis().sample(200, seed=0), 1, True)
    rival = None
    if against is not None:
        spec = importlib.util.spec_from_file_location("rival", against)
        rival = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(rival)
    ours, theirs = [], []
    for i in range(repeats):
        ours.append(measure(log, 3, True))
        if rival is not None and i < 2:
            begin = time.process_time()
            rival.fit_best(log, GAMMA, risk=0.01)
            theirs.append(time.process_time() - begin)
    rows = []
    words = {
        "choice": "the choice (`splits=0, check=False`)",
        "bound": "more for the bound (`splits=3`)",
        "check": "more for the check of the state (`check=True`)",
    }
    for part, name in words.items():
        wall, used = zip(*(run[part] for run in ours), strict=True)
        rows.append(f"| {name} | {statistics.median(used):.2f} | {min(wall):.2f} |")
    text = (
        f"ICU-Sepsis: {log.n_states} states, {log.n_actions} actions, {log.n_episodes:,} episodes, "
        f"{log.n_steps:,} steps; {repeats} repeats.\n\n"
    )
    text += "| what | CPU s (median) | wall s (best) |\n|---|---|---|\n"
    text += "\n".join(rows) + "\n"
    if theirs:
        name = "the choice, written plainly with dense (S, A, S) arrays"
        text += f"| {name} | {statistics.median(theirs):.1f} | |\n"
        ratio = statistics.median(theirs) / statistics.median(run["choice"][1] for run in ours)
        text += f"\nThe plain version, in turns with ours, takes {ratio:.0f} times the CPU time.\n"
    return text


def seconds(value: tuple[float, float] | None) -> str:
    return "" if value is None else f"{value[1]:.1f} ({value[0]:.1f})"


def growth(rows: list[dict]) -> str:
    """The table of sizes."""
    lines = [
        "CPU seconds of all threads; wall seconds in brackets.\n",
        "| states | steps | errors by | choice | bound | check | peak GB | states changed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        how = "inverse" if row["states"] <= 3_000 else "draws"
        times = " | ".join(seconds(row[part]) for part in ("choice", "bound", "check"))
        lines.append(
            f"| {row['states']:,} | {row['steps']:,} | {how} | {times} | {row['peak']:.2f} "
            f"| {row['spoken']:,} |"
        )
    return "\n".join(lines) + "\n"


def stamp() -> str:
    """When and on what."""
    import numba
    import numpy
    import scipy

    versions = ", ".join(f"{m.__name__} {m.__version__}" for m in (numpy, scipy, numba))
    load = os.getloadavg()[0]
    return (
        f"{date.today()}, {os.cpu_count()} cores (shared; load average {load:.1f} at the end), "
        f"Python {platform.python_version()}, {versions}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="fits of ICU-Sepsis; default 5")
    parser.add_argument("--large", action="store_true", help="10 million steps, 50,000 states too")
    parser.add_argument("--against", type=Path, help="a file with fit_best(log, gamma, risk=)")
    parser.add_argument("--rows", type=Path, help="keep measured rows here, and do not repeat them")
    parser.add_argument("--one", type=int, nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one_size(*args.one[:3], check=bool(args.one[3]))))
        return
    kept = {}
    if args.rows and args.rows.exists():
        kept = json.loads(args.rows.read_text())
    rows = []
    for S, steps, splits in SIZES + (LARGE if args.large else []):
        key = f"{S} {steps} {splits}"
        if key not in kept:
            kept[key] = in_a_fresh_process(S, steps, splits, 1)
            if args.rows:
                args.rows.write_text(json.dumps(kept))
        rows.append(kept[key])
        print(key, rows[-1], flush=True)
    text = icu_sepsis(args.repeats, args.against) + "\n" + growth(rows)
    text = f"{stamp()}\n\n{text}"
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
