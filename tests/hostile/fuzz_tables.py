"""Mutated CSV and Parquet files: they are read, or refused in three lines, and nothing else.

Each case changes bytes, lines or cells of a small file and reads it as a log. Only a DprlError may
come out, with at most three lines; a log that comes out has as many steps as the file has rows.
"""

from __future__ import annotations

import json
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import dprl
from dprl._core.database import connect

COLUMNS = {"episode": "who", "time": "day", "state": "stage", "action": "drug", "reward": "score"}
CELLS = [
    "", "NA", "nan", "-", "1", "-1", "1.0", "1e308", "1e309", "inf", "0x10", "1_000", "1,5", '"', '""',
    '"a,b"', '"a\nb"', "'", "\\", "a" * 3000, "é", "\u202e", "\x00", "\x1b[0m", "TRUE", "2020-02-30",
    "2020-01-01", "2020-01-01T10:00:00+02:00", "=1+1", "#", "\t", " x ", "9" * 400, "NULL", "None",
]  # fmt: skip


def base(rng: np.random.Generator, rows: int = 60) -> list[list[str]]:
    """Cells of a small log, with its header."""
    table = [["who", "day", "stage", "drug", "score", "age"]]
    rows_of = (
        [f"p{i // 3}", str(i % 3), str(rng.choice(["mild", "severe", "a, b"])),
         str(rng.choice(["old", "new"])), f"{rng.normal():.3f}", str(20 + i)]
        for i in range(rows)
    )  # fmt: skip
    return [*table, *rows_of]


def as_csv(table: list[list[str]], rng: np.random.Generator) -> bytes:
    """The table as text, in one of the ways people write it."""
    separator = str(rng.choice([",", ";", "\t", "|"]))
    end = str(rng.choice(["\n", "\r\n"]))

    def cell(text: str) -> str:
        risky = any(ch in text for ch in (separator, '"', "\n", "\r"))
        return '"' + text.replace('"', '""') + '"' if risky and rng.random() < 0.9 else text

    text = end.join(separator.join(map(cell, row)) for row in table) + end
    return text.encode(str(rng.choice(["utf-8", "utf-8", "utf-8-sig", "latin-1"])), "replace")


def change_cells(table: list[list[str]], rng: np.random.Generator) -> None:
    """A few cells, rows or columns changed, in place."""
    for _ in range(int(rng.integers(1, 4))):
        i, how = int(rng.integers(len(table))), rng.random()
        j = int(rng.integers(max(len(table[0]), 1)))  # the first line may have lost all
        if how < 0.6 and j < len(table[i]):
            table[i][j] = CELLS[int(rng.integers(len(CELLS)))]
        elif how < 0.7:
            table[i].append("more")
        elif how < 0.8:
            table[i] = table[i][:j]
        elif how < 0.9:
            table.insert(i, list(table[i]))
        else:
            table[i] = [""] * len(table[i])


def change_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """Some bytes flipped, cut out, doubled or cut off."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        if not changed:
            break
        place, how = int(rng.integers(len(changed))), rng.random()
        if how < 0.6:
            changed[place] = int(rng.integers(256))
        elif how < 0.75:
            del changed[place : place + int(rng.integers(1, 60))]
        elif how < 0.9:
            changed[place:place] = changed[place : place + int(rng.integers(1, 60))]
        else:
            changed = changed[:place]
    return bytes(changed)


def main(cases: int, seed: int, folder: Path) -> dict[str, Any]:
    """Try this many files; what was read, what was refused, and the first of each kind of failure.

    Args:
        cases: The number of files.
        seed: The seed of all changes.
        folder: Where the files are written; each overwrites the one before.
    """
    rng = np.random.default_rng(seed)
    counts: Counter[str] = Counter()
    failures: dict[str, str] = {}
    whole = folder / "whole.parquet"
    (folder / "whole.csv").write_bytes(as_csv(base(rng), np.random.default_rng(0)))
    with connect() as con:
        con.execute(f"COPY (SELECT * FROM read_csv('{folder / 'whole.csv'}')) TO '{whole}'")
    parquet = whole.read_bytes()
    for case in range(cases):
        if case % 4 == 3:
            path = folder / "case.parquet"
            path.write_bytes(change_bytes(parquet, rng))
        else:
            path, table = folder / "case.csv", base(rng)
            if rng.random() < 0.7:
                change_cells(table, rng)
            data = as_csv(table, rng)
            path.write_bytes(change_bytes(data, rng) if rng.random() < 0.4 else data)
        options: dict[str, Any] = {}
        if path.suffix == ".csv" and rng.random() < 0.2:
            options["encoding"] = "latin-1"
        if rng.random() < 0.3:
            options["missing"] = "drop-episodes"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", UserWarning)
                log = dprl.read(path, **COLUMNS, **options)
                str(log)
                log.digest()
            counts["read"] += 1
        except dprl.DprlError as error:
            counts["refused"] += 1
            if len(str(error).splitlines()) > 3 or len(str(error)) > 3000:
                failures.setdefault("long message", f"case {case}: {str(error)[:300]}")
        except Exception as error:
            counts["failed"] += 1
            frames = traceback.extract_tb(error.__traceback__)
            where = next((f for f in reversed(frames) if "dprl/" in f.filename), frames[-1])
            key = f"{type(error).__name__} {Path(where.filename).name}:{where.name}"
            failures.setdefault(key, f"case {case}: {str(error)[:200]}")
    return {"cases": cases, "counts": dict(counts), "failures": failures}


if __name__ == "__main__":
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), Path(place)), indent=1))
