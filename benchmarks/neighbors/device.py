"""Neighbours on an accelerator against the tree on the processor: time, and every word compared.

    python benchmarks/neighbors/device.py --make-answers answers --points 1e6
    python benchmarks/neighbors/device.py --answers answers --out rows --points 1e6 1e7

The question is that of `run.py`: for every query the count, sum and sum of squares of the returns
of its neighbours, by action (16), without the trajectory the query comes from. Both ways of
counting. The tree answers the first of the queries only (--answered), and its time is scaled.

A machine with an accelerator often has numpy and torch and nothing else. Without numba the tree
cannot run there. Its answers are then read from files that another machine wrote: counts, and a
hash of the words of each query. Data are made anew from a seed and rounded to a grid, so that both
machines have the same; a hash of them shows it. In any case, a few queries are also counted by the
plain float64 rule. With numba, tree and device take turns.

Every case writes one JSON file of rows to --out.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import platform
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import icu  # noqa: E402
import numpy as np  # noqa: E402

from dprl.evidence.neighbors.device import DeviceCargo, Index
from dprl.evidence.neighbors.metric import Sketch, ask  # noqa: E402

try:
    from dprl.evidence.neighbors import Engine, Points
except ImportError:
    Engine = Points = None

A, STAY, PIECE, QUERIES = 16, 20, 1_000_000, 100_000
"""Actions; steps of a trajectory where data have none; points made from one seed; queries."""


def mixture(rng, n, d):
    """A hundred Gaussian clusters."""
    centre = 3 * np.random.default_rng(d).normal(size=(100, d))
    return centre[rng.integers(100, size=n)] + rng.normal(size=(n, d))


def near_duplicates(rng, n):
    """Every state was seen about twenty times, to within measurement noise."""
    centre = rng.normal(size=(max(n // 20, 1), 16))
    return centre[rng.integers(len(centre), size=n)] + 1e-4 * rng.normal(size=(n, 16))


CASES = {
    # name: (points of a generator, radius or neighbours wanted, steps of a trajectory, grid)
    "near-duplicates-16": (near_duplicates, 1e-3, STAY, 2.0**-26),
    "mixture-16": (lambda rng, n: mixture(rng, n, 16), 150, STAY, 2.0**-12),
    "mixture-29": (lambda rng, n: mixture(rng, n, 29), 150, STAY, 2.0**-12),
    "uniform-29": (lambda rng, n: rng.random((n, 29)), 150, STAY, 2.0**-16),
    "icu-29-r5": (lambda rng, n: icu.icu(rng, n)[0], 5.0, icu.HOURS, 2.0**-12),
    "icu-29-r10": (lambda rng, n: icu.icu(rng, n)[0], 10.0, icu.HOURS, 2.0**-12),
}


class Data:
    """Points, queries and a radius; the same on every machine."""

    def __init__(self, name, n, n_queries):
        make, radius, steps, grid = CASES[name]

        def piece(i):
            return np.round(make(np.random.default_rng([1, i]), min(PIECE, n - i)) / grid) * grid

        with ThreadPoolExecutor() as pool:
            self.z = np.concatenate(list(pool.map(piece, range(0, n, PIECE))))
        rng = np.random.default_rng(2)
        self.action = rng.integers(A, size=n).astype(np.int32)
        self.G = np.round(rng.normal(size=n) * 2**30) / 2**30
        self.episode = np.arange(n) // steps
        if isinstance(radius, int):  # so many neighbours, judged by some of the points
            some = self.z[: min(n, PIECE)]
            wanted = max(1, radius * len(some) // n)
            size = [
                np.partition(((some - q) ** 2).sum(axis=1), wanted)[wanted]
                for q in some[rng.integers(len(some), size=20)]
            ]
            radius = float(f"{np.median(size) ** 0.5:.2g}")
        self.radius = radius
        rows = rng.integers(n, size=max(n_queries, QUERIES))  # fewer queries are the first of them
        noise = rng.normal(size=(len(rows), self.z.shape[1])) * radius * 0.1
        noise /= np.sqrt(self.z.shape[1])
        self.queries = (np.round((self.z[rows] + noise) / grid) * grid)[:n_queries]
        self.leave_out = self.episode[rows[:n_queries]]

    def digest(self, queries):
        """A hash of everything an answer depends on, with this many queries."""
        hashed = hashlib.blake2b(repr(self.radius).encode())
        for array in (self.z, self.action, self.G, self.episode, self.queries[:queries]):
            hashed.update(np.ascontiguousarray(array).data)
        return hashed.hexdigest()


def digits(G):
    """The digits that `dprl._core.exact` keeps of values and squares, without numba.

    G: float64 (N,), at least one of them not 0.

    Returns:
        int64 (N, sums + squares).
    """
    fraction, exponent = np.frexp(np.abs(G))
    M, x = (fraction * 2.0**53).astype(np.int64), exponent.astype(np.int64) - 53
    some = M > 0
    lowest = np.frexp((M & -M).astype(float))[1] - 1 + x
    top, bottom = int((exponent[some] - 1).max()), int(lowest[some].min())
    sums = (top >> 5) - (bottom >> 5) + 1
    squares = ((2 * top + 1) >> 5) - ((2 * bottom) >> 5) + 1
    out = np.zeros((len(G), sums + squares), np.int64)

    def add(begin, count, first, part, power, sign):
        """sign · part · 2^power, digit by digit."""
        shift = power & 31
        place, rest = first - (power >> 5), part >> (32 - shift)
        for below, digit in (
            (0, (part << shift) & 0xFFFFFFFF),
            (1, rest & 0xFFFFFFFF),
            (2, rest >> 32),
        ):
            at = place - below
            rows = np.flatnonzero((at >= 0) & (at < count) & some)
            out[rows, begin + at[rows]] += sign[rows] * digit[rows]

    add(0, sums, top >> 5, M, x, np.where(G < 0, -1, 1))
    a, b = M >> 27, M & ((1 << 27) - 1)
    cross, ones = 2 * a * b, np.ones(len(G), np.int64)
    low = b * b + ((cross & ((1 << 27) - 1)) << 27)
    high = a * a + (cross >> 27) + (low >> 54)
    first = (2 * top + 1) >> 5
    add(sums, squares, first, low & ((1 << 54) - 1), 2 * x, ones)
    add(sums, squares, first, high, 2 * x + 54, ones)
    return out


def hashes(words):
    """uint64 (Q,): a hash of the words (2, Q, A, W) of each query, whatever the machine."""
    flat = np.ascontiguousarray(words.swapaxes(0, 1)).reshape(words.shape[1], -1)
    return np.array(
        [int.from_bytes(hashlib.blake2b(row, digest_size=8).digest(), "big") for row in flat],
        np.uint64,
    )


class Tree:
    """The engine on the processor."""

    def __init__(self, data, threads):
        self.data, self.threads = data, threads
        points = Points(data.z, data.action, data.G, data.episode)
        begin = time.perf_counter()
        self.engine = Engine.build(points, A)
        self.build = time.perf_counter() - begin

    def answer(self, visits, n):
        data = self.data
        evidence = self.engine.evidence(
            data.queries[:n], data.radius, visits=visits, leave_out=data.leave_out[:n],
            threads=self.threads,
        )  # fmt: skip
        return evidence.words


class Device:
    """Torch on an accelerator."""

    def __init__(self, data, device):
        self.data = data
        begin = time.perf_counter()
        self.sketch = Sketch.of(data.z)
        self.digits = digits(data.G)
        self.host = time.perf_counter() - begin
        begin = time.perf_counter()
        index = Index.of(data.z, self.sketch, device)
        self.cargo = DeviceCargo.of(index, data.action, self.digits, data.G, data.episode, A)
        self.build = time.perf_counter() - begin

    def answer(self, visits, n):
        data, Q = self.data, min(n, len(self.data.queries))
        asked = ask(self.sketch, data.queries[:n], data.radius)
        words = np.zeros((2, Q, A, 1 + self.digits.shape[1]), np.int64)
        span = np.full((Q, 2), np.nan)
        self.cargo.add(asked, visits == "first", data.leave_out[:n], words, span)
        return words

    def rule(self, q):
        """Neighbours of a query by action, by the float64 rule alone."""
        index, data = self.cargo.index, self.data
        at = index.torch.tensor(data.queries[q], device=index.device)
        total = index.torch.zeros(len(data.z), dtype=index.torch.float64, device=index.device)
        for axis in range(data.z.shape[1]):
            t = index.z[:, axis] - at[axis]
            total += t * t
        near = (total <= data.radius * data.radius) & (self.cargo.episode != int(data.leave_out[q]))
        return index.torch.bincount(self.cargo.action[near], minlength=A).cpu().numpy()


def timed(call):
    begin = time.perf_counter()
    result = call()
    return time.perf_counter() - begin, result


def whole(text):
    return int(float(text))


def make_answers(name, n, args):
    """Write what the tree counts, by query and action, and hashes of its words."""
    data = Data(name, n, args.queries)
    tree = Tree(data, args.threads)
    out = {"digest": data.digest(args.answered), "build": tree.build}
    tree.answer("all", 64), tree.answer("first", 64)  # compiled before the clock runs
    for visits in ("first", "all"):
        spent, words = timed(functools.partial(tree.answer, visits, args.answered))
        out |= {f"{visits}_seconds": spent, f"{visits}_words": hashes(words),
                f"{visits}_counts": words[..., 0].astype(np.int32)}  # fmt: skip
        print(f"{name} {n:,} {visits}: {spent:.1f} s for {args.answered:,} queries", flush=True)
    folder = Path(args.make_answers)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / f"{name}-{n}.npz", **out)


def measure(name, n, args):
    """The rows of one case, one after the other."""
    made, data = timed(lambda: Data(name, n, args.queries))
    device = Device(data, args.device)
    tree = Tree(data, args.threads) if Engine is not None and not args.no_tree else None
    path = Path(args.answers or "") / f"{name}-{n}.npz"
    stored = dict(np.load(path)) if args.answers and path.exists() else None
    if stored is not None and str(stored["digest"]) != data.digest(stored["first_words"].shape[0]):
        print(f"{name} {n:,}: the stored answers are about other data; not compared", flush=True)
        stored = None
    for visits in ("first", "all"):
        device.answer(visits, 2048)  # warm
        if tree is not None:
            tree.answer(visits, 64)
        spent = {"device": [], "tree": []}
        for _ in range(args.repeats):
            seconds, words = timed(functools.partial(device.answer, visits, args.queries))
            spent["device"].append(seconds)
            if tree is not None:
                seconds, expected = timed(functools.partial(tree.answer, visits, args.answered))
                spent["tree"].append(seconds)
        row = {
            "case": name, "points": n, "dimensions": data.z.shape[1], "radius": data.radius,
            "queries": args.queries, "visits": visits, "neighbours": None,
            "device": args.device, "device_name": device_name(device.cargo.index),
            "torch": device.cargo.index.torch.__version__, "python": platform.python_version(),
            "device_seconds": spent["device"], "device_build": device.build,
            "device_host_build": device.host, "data_seconds": made,
            "tree_seconds_scaled": None, "tree_from": None, "times": None,
            "compared": 0, "different": 0,
        }  # fmt: skip
        counts = words[..., 0].sum(axis=(0, 2))
        row["neighbours" if visits == "all" else "neighbours_counted"] = float(counts.mean())
        if stored is not None:
            n_stored = len(stored[f"{visits}_words"])
            other = hashes(words[:, :n_stored]) != stored[f"{visits}_words"]
            other |= (words[:, :n_stored, :, 0] != stored[f"{visits}_counts"]).any(axis=(0, 2))
            row["compared"], row["different"] = n_stored, int(other.sum())
            scale = args.queries / n_stored
            row["tree_seconds_scaled"] = [float(stored[f"{visits}_seconds"]) * scale]
            row["tree_from"] = "stored answers, another machine"
        if tree is not None:
            other = (words[:, : args.answered] != expected).any(axis=(0, 2, 3))
            row["compared"] = max(row["compared"], args.answered)
            row["different"] += int(other.sum())
            scale = args.queries / args.answered
            row["tree_seconds_scaled"] = [s * scale for s in spent["tree"]]
            row["tree_from"] = f"here, {args.threads or os.cpu_count()} threads, in turn"
            row |= {"tree_build": tree.build, "tree_method": tree.engine.method}
        if row["tree_seconds_scaled"]:
            row["times"] = min(row["tree_seconds_scaled"]) / min(row["device_seconds"])
        if visits == "all":
            ask_rule = range(0, args.queries, max(1, args.queries // args.rule))
            row["rule_compared"] = len(ask_rule)
            row["rule_different"] = sum(
                not np.array_equal(words[0, q, :, 0], device.rule(q)) for q in ask_rule
            )
        print(json.dumps(row), flush=True)
        yield row


def device_name(index):
    if index.device.type == "cuda":
        return index.torch.cuda.get_device_name(index.device)
    return platform.processor() or "processor"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=whole, nargs="+", default=[1_000_000])
    parser.add_argument("--queries", type=whole, default=QUERIES)
    parser.add_argument("--answered", type=whole, default=2_000, help="queries the tree answers")
    parser.add_argument("--only", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--threads", type=int, help="of the tree; default: one per core")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rule", type=int, default=50, help="queries counted by the plain rule")
    parser.add_argument("--no-tree", action="store_true", help="even if numba is there")
    parser.add_argument(
        "--make-answers", metavar="FOLDER", help="write the tree's answers; no torch"
    )
    parser.add_argument("--answers", metavar="FOLDER", help="answers to compare with")
    parser.add_argument("--out", metavar="FOLDER", default="rows", help="for the JSON rows")
    parser.add_argument("--seconds", type=float, default=500, help="begin no case after this")
    args = parser.parse_args()
    args.answered = min(args.answered, args.queries)
    begin, different = time.perf_counter(), 0
    for n in args.points:
        for name in args.only:
            if time.perf_counter() - begin > args.seconds:
                print(f"{name} {n:,}: no time left")
                continue
            if args.make_answers:
                make_answers(name, n, args)
                continue
            folder, rows = Path(args.out), []
            folder.mkdir(parents=True, exist_ok=True)
            for row in measure(name, n, args):
                rows.append(row)
                different += row["different"] + row.get("rule_different", 0)
                (folder / f"{name}-{n}.json").write_text(json.dumps(rows, indent=1) + "\n")
    if different:
        sys.exit(f"{different} queries have other words than the tree or the rule")


if __name__ == "__main__":
    main()
