"""How long it takes to begin: imports, help, the first (compiling) and the second fit."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "tabular"))

from run import stamp

FIT = (
    "import dprl; dprl.DPRLDiscrete(n_min=20, gamma=.99, cut='terminal')"
    ".fit(dprl.envs.rooms().sample(200, seed=0))"
)
DPRL = str(Path(sys.executable).parent / "dprl")
COMMANDS = {
    "bare python": [sys.executable, "-c", "pass"],
    "import numpy": [sys.executable, "-c", "import numpy"],
    "import dprl": [sys.executable, "-c", "import dprl"],
    "dprl --help": [DPRL, "--help"],
    "sample and fit, kernels cached": [sys.executable, "-c", FIT],
}


def seconds(command: list[str], **env: str) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **env})
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    seconds(COMMANDS["sample and fit, kernels cached"])
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(args.repeats):
        for name, command in COMMANDS.items():
            times[name].append(seconds(command))
    with tempfile.TemporaryDirectory() as folder:
        cold = seconds([sys.executable, "-c", FIT], NUMBA_CACHE_DIR=folder)
    rows = [f"| {name} | {statistics.median(t):.2f} |" for name, t in times.items()]
    rows.append(f"| sample and fit, first run ever (compiles) | {cold:.1f} |")
    head = (
        f"{stamp()} Median of {args.repeats} interleaved runs.\n\n| what | seconds |\n|---|---|\n"
    )
    text = head + "\n".join(rows) + "\n"
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
