"""All fuzzers in turn, for as long as is asked: `make fuzz` runs them for an hour.

In continuous integration the same functions run for seconds, with fixed seeds.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fuzz_evidence
import fuzz_kills
import fuzz_policies
import fuzz_tables

from dprl._core import __version__

Run = Callable[[int, int, Path], dict[str, Any]]
EACH: dict[str, tuple[Run, int]] = {
    "policy files, changed": (fuzz_policies.main, 300),
    "evidence files of sites, changed": (fuzz_evidence.main, 300),
    "CSV and Parquet files, changed": (fuzz_tables.main, 200),
    "writers killed": (fuzz_kills.main, 20),
}
"""What is tried → the function, and how many cases a round has."""


def serve_too() -> None:
    """Add the requests to `dprl serve`, where what that needs is installed."""
    try:
        module = importlib.import_module("fuzz_serve")
    except ImportError:
        return

    def asked(requests: int, seed: int, folder: Path) -> dict[str, Any]:
        try:
            counted = module.main(requests, seed)
        except AssertionError as error:
            return {"failures": {"request": str(error)[:300]}}
        return {"counts": {f"answers {status}": n for status, n in counted.items()}}

    EACH["requests to serve"] = (asked, 500)


def rounds(minutes: float, seed: int, out: Path | None) -> tuple[str, dict[str, str]]:
    """Rounds of all of them until the time is over; the page, written after each, and failures."""
    start = time.monotonic()
    counts: dict[str, Counter[str]] = {name: Counter() for name in EACH}
    failures: dict[str, str] = {}
    number = 0
    text = ""
    while time.monotonic() < start + 60 * minutes:
        for name, (run, cases) in EACH.items():
            begin = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                result = run(cases, seed + number, Path(folder)) or {}
            counts[name]["cases"] += cases
            counts[name]["seconds"] += round(time.monotonic() - begin)
            counts[name].update(
                {k: v for k, v in result.get("counts", {}).items() if isinstance(v, int)}
            )
            for key, words in result.get("failures", {}).items():
                failures.setdefault(f"{name}, seed {seed + number}: {key}", words)
                counts[name]["failures"] += 1
        number += 1
        text = page(counts, failures, round((time.monotonic() - start) / 60))
        if out is not None:
            out.write_text(text, encoding="utf-8")
    return text, failures


def page(counts: dict[str, Counter[str]], failures: dict[str, str], minutes: float) -> str:
    """The figures as Markdown."""
    system = f"Python {platform.python_version()}, {platform.system()}, {platform.machine()}"
    lines = [
        f"`make fuzz`, {minutes:g} minutes, dprl {__version__}, {system}. A failure is any outcome but a "
        "result or an error of dprl in three lines; for killed writers, files of two runs side by side.",
        "", "| what | cases | seconds | failures | outcomes |", "|---|---:|---:|---:|---|",
    ]  # fmt: skip
    for name, counted in counts.items():
        apart = ("cases", "seconds", "failures", "failed")
        rest = ", ".join(f"{n:,} {k}" for k, n in counted.items() if k not in apart)
        lines.append(f"| {name} | {counted['cases']:,} | {counted['seconds']:,} | {counted['failures']:,} | {rest} |")  # fmt: skip
    lines += ["", *(f"- {name}: {words}" for name, words in failures.items())]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    serve_too()
    text, wrong = rounds(asked.minutes, asked.seed, asked.out)
    print(text)
    sys.exit(bool(wrong))
