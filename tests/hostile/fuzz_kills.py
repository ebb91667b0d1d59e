"""Processes that are killed while they write: no set mixes two runs, and nothing is left behind."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from dprl._core import disk

WRITER = """if True:
    import sys
    from dprl._core.disk import append, replacing, together
    from pathlib import Path
    Path("record").touch()
    print("ready", flush=True)
    for i in range(10**9):
        with together():
            for name in ("train.csv", "test.csv", "facts.json"):
                with replacing(name) as part:
                    part.write_text(f"{i} " * 5000)
        append(Path("record"), f"{i}\\n".encode())
"""


def main(kills: int, seed: int, folder: Path) -> dict[str, Any]:
    """Kill a writer this many times, each at a moment of its own, and look at what is there.

    Args:
        kills: The number of processes that are started and killed.
        seed: The seed of the moments.
        folder: Where they write.
    """
    rng, failures, torn, missing = random.Random(seed), {}, 0, 0
    for kill in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER], cwd=folder, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(rng.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        disk.CLEANED.clear()
        disk.clean(folder)
        names_there = {path.name for path in folder.iterdir()}
        held = {path.read_text() for path in folder.iterdir() if path.name != "record"}
        if len(held) > 1 or any(len(set(text.split())) > 1 for text in held):
            failures[f"kill {kill}"] = f"{len(held)} different contents"
        if names_there - {"train.csv", "test.csv", "facts.json", "record"}:
            failures[f"kill {kill}"] = f"left: {sorted(names_there)}"
        missing += bool(held) and len(names_there) < 4
        if "facts.json" in names_there and len(names_there) < 4:  # what is written last comes last
            failures[f"kill {kill}"] = f"not in their order: {sorted(names_there)}"
        lines = (folder / "record").read_text().split("\n")
        torn += lines[-1] != ""
        if [line for line in lines[:-1] if not line.isdigit()]:
            failures[f"kill {kill}"] = "a line in the middle is torn"
        (folder / "record").write_text("")
    return {"cases": kills, "counts": {"sets with a file missing": missing, "last lines torn": torn},
            "failures": failures}  # fmt: skip


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), Path(place)), indent=1))
