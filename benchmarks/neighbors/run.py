"""What happened within a radius? The aggregate tree against what a user would pick instead.

    python benchmarks/neighbors/run.py [--points 100000] [--queries 10000] [--only icu]

For every query: count, sum and sum of squares of the returns of its neighbours, by action (16).
Rivals return lists of neighbours, which numpy then adds up (for a batch of queries at once, the
fastest way found). All methods answer the same 10,000 queries in turn, in one process; a method
that would take more than a few seconds answers a part of them, marked ~, and its time is scaled.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import icu  # noqa: E402
import numpy as np  # noqa: E402
from scipy.spatial import cKDTree  # noqa: E402
from sklearn.neighbors import BallTree, KDTree  # noqa: E402

from dprl.evidence.neighbors import Engine, Points  # noqa: E402

try:
    import faiss
except ImportError:
    faiss = None

A = 16


def near_duplicates(rng, n):
    """Every state was seen about twenty times, to within measurement noise."""
    centre = rng.normal(size=(max(n // 20, 1), 16))
    return centre[rng.integers(len(centre), size=n)] + 1e-4 * rng.normal(size=(n, 16)), 1e-3


def mixture(rng, n, d, wanted=150):
    """A hundred Gaussian clusters; the radius that gives about 150 neighbours."""
    centre = 3 * rng.normal(size=(100, d))
    z = centre[rng.integers(100, size=n)] + rng.normal(size=(n, d))
    return z, typical_radius(rng, z, wanted)


def uniform(rng, n, d=29):
    z = rng.random((n, d))
    return z, typical_radius(rng, z, 150)


def factors(rng, n):
    """Stays of 20 steps, 29 features; the radius that holds 2 % of the steps.

    Six latent factors (how ill, which organ) drift from a baseline of the patient and drive all
    features: 6 are fixed for the stay, 12 laboratory values are carried forward until the next
    sample (about every 8 steps), 8 vital signs are measured at every step, 3 are scores and flags.
    Laboratory values are skewed, as concentrations are. Everything in units of its spread.
    """
    steps = 20
    stays = -(-n // steps)
    mixing = rng.normal(size=(6, 29)) / np.sqrt(6)
    base = rng.normal(size=(stays, 1, 6))
    latent = base + 0.15 * np.cumsum(rng.normal(size=(stays, steps, 6)), axis=1)
    z = latent @ mixing + 0.3 * rng.normal(size=(stays, steps, 29))
    z[:, :, :6] = z[:, :1, :6]
    sampled = rng.random((stays, steps, 12)) < 1 / 8
    sampled[:, 0] = True
    last = np.maximum.accumulate(np.where(sampled, np.arange(steps)[:, None], 0), axis=1)
    z[:, :, 6:18] = np.exp(0.7 * np.take_along_axis(z[:, :, 6:18], last, axis=1))
    z[:, :, 26:28] = np.round(2 * z[:, :, 26:28])
    z[:, :, 28] = z[:, :, 28] > 0.5
    z = z.reshape(-1, 29)[:n]
    z = z / z.std(axis=0)
    return z, typical_radius(rng, z, n // 50)


def typical_radius(rng, z, wanted):
    """The radius of the ball that holds so many points, in the median over a few places."""
    some = z[rng.integers(len(z), size=100)]
    return float(
        np.median([np.partition(((z - q) ** 2).sum(axis=1), wanted)[wanted] for q in some]) ** 0.5
    )


CASES = {
    "near-duplicates 16-d": near_duplicates,
    "mixture 16-d": lambda rng, n: mixture(rng, n, 16),
    "mixture 29-d": lambda rng, n: mixture(rng, n, 29),
    "uniform 29-d": uniform,
    "factors 29-d": factors,
    "icu-like 29-d, r 5": lambda rng, n: (icu.icu(rng, n)[0], 5.0),
    "icu-like 29-d, r 10": icu.icu,
}


class Rival:
    """Lists of neighbours, added up by numpy."""

    def __init__(self, points):
        G = points.G
        self.action = points.action.astype(np.int64)
        self.columns = (None, G, G * G)

    def add_up(self, lists):
        """float64 (Q, A, 3) from one array of rows a query."""
        size = np.fromiter(map(len, lists), np.int64, len(lists))
        rows = np.concatenate(lists).astype(np.int64) if size.sum() else np.zeros(0, np.int64)
        cell = np.repeat(np.arange(len(lists)) * A, size) + self.action[rows]
        out = [
            np.bincount(cell, None if c is None else c[rows], minlength=A * len(lists))
            for c in self.columns
        ]
        return np.stack(out, axis=-1).reshape(len(lists), A, 3)


class SklearnTree(Rival):
    def __init__(self, points, kind):
        super().__init__(points)
        self.tree = kind(points.z)

    def answer(self, q, r, threads):
        return self.add_up(self.tree.query_radius(q, r))


class Scipy(Rival):
    def __init__(self, points):
        super().__init__(points)
        self.tree = cKDTree(points.z)

    def answer(self, q, r, threads):
        return self.add_up(self.tree.query_ball_point(q, r, workers=threads, return_sorted=False))


class Faiss(Rival):
    def __init__(self, points):
        super().__init__(points)
        self.index = faiss.IndexFlatL2(points.z.shape[1])
        self.index.add(points.z.astype(np.float32))

    def answer(self, q, r, threads):
        faiss.omp_set_num_threads(threads)
        ends, _, rows = self.index.range_search(q.astype(np.float32), r * r)
        return self.add_up(np.split(rows, ends[1:-1].astype(np.int64)))


class Blas(Rival):
    """||x||² + ||q||² - 2 x·q in float64, in tiles that stay in the cache."""

    def __init__(self, points):
        super().__init__(points)
        self.z, self.square = points.z, (points.z**2).sum(axis=1)

    def answer(self, q, r, threads):
        out = []
        for i in range(0, len(q), 128):
            part = q[i : i + 128]
            limit = (r * r - (part**2).sum(axis=1))[:, None]
            pairs = []
            for j in range(0, len(self.z), 2048):
                d2 = part @ (-2 * self.z[j : j + 2048].T)
                d2 += self.square[j : j + 2048]
                hit = np.flatnonzero((d2 <= limit).ravel())
                pairs.append(np.stack([hit // d2.shape[1], hit % d2.shape[1] + j]))
            k, rows = np.concatenate(pairs, axis=1)
            cell = k * A + self.action[rows]
            sums = [
                np.bincount(cell, None if c is None else c[rows], minlength=A * len(part))
                for c in self.columns
            ]
            out.append(np.stack(sums, axis=-1).reshape(len(part), A, 3))
        return np.concatenate(out)


class Ours:
    def __init__(self, points, method="auto", visits="all"):
        self.engine, self.visits = Engine.build(points, A, method), visits
        self.engine.evidence(points.z[:2], 0.0, visits=visits)

    def answer(self, q, r, threads):
        return self.engine.evidence(q, r, visits=self.visits, threads=threads).words[0]


def timed(call):
    begin = time.perf_counter()
    result = call()
    return time.perf_counter() - begin, result


def measure(methods, queries, radius, threads, budget):
    """method → (seconds for all queries, scaled?, counts of the queries it answered)."""
    sizes = {}
    for name, method in methods.items():
        pilot = timed(lambda method=method: method.answer(queries[:32], radius, threads))[0]
        fit = int(budget * 32 / pilot)
        sizes[name] = len(queries) if name == "tree" or fit >= len(queries) else max(fit, 32)
    best = {}
    for _ in range(2):
        for name, method in methods.items():
            part = queries[: sizes[name]]
            spent, out = timed(lambda m=method, part=part: m.answer(part, radius, threads))
            whole = spent * len(queries) / len(part)
            if name not in best or whole < best[name][0]:
                best[name] = (whole, len(part) < len(queries), out[..., 0].sum(axis=1))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, os.cpu_count()])
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--seconds", type=float, default=2.0, help="a rival may take for a case")
    parser.add_argument("--ours", action="store_true", help="no rivals")
    args = parser.parse_args()
    names = ["BallTree", "KDTree", "scipy", "faiss", "BLAS", "tree", "tree, first"]
    print(f"{args.points:,} points, {args.queries:,} queries, {A} actions; ms, x BallTree\n")
    print("| data | neighbours | threads |", " | ".join(names), "| build | memory |")
    print("|---" * (len(names) + 5) + "|")
    for title, make in CASES.items():
        if args.only not in title:
            continue
        rng = np.random.default_rng(0)
        z, radius = make(rng, args.points)
        n = len(z)
        points = Points(z, rng.integers(A, size=n), rng.normal(size=n), np.arange(n) // 20)
        queries = z[rng.integers(n, size=args.queries)]
        queries = queries + rng.normal(size=queries.shape) * radius * 0.1 / np.sqrt(z.shape[1])
        makers = {
            "BallTree": lambda p: SklearnTree(p, BallTree),
            "KDTree": lambda p: SklearnTree(p, KDTree),
            "scipy": Scipy,
            "faiss": Faiss,
            "BLAS": Blas,
        }
        if args.ours:
            makers = {}
        if faiss is None:
            makers.pop("faiss", None)
        makers["tree"] = Ours
        makers["tree, first"] = lambda p: Ours(p, visits="first")
        Ours(points)  # compiled before the clock runs
        built = {name: timed(functools.partial(make, points)) for name, make in makers.items()}
        methods = {name: method for name, (_, method) in built.items()}
        engine = methods["tree"].engine
        build = f"{1e3 * built['tree'][0]:.0f} ms"
        if "BallTree" in built:
            build += f" (BallTree {1e3 * built['BallTree'][0]:.0f})"
        for threads in dict.fromkeys(args.threads):
            found = measure(methods, queries, radius, threads, args.seconds)
            exact = found["tree"][2]
            cells = []
            for name in names:
                if name not in found:
                    cells.append("–")
                    continue
                ms, scaled, count = found[name]
                ratio = found["BallTree"][0] / ms if "BallTree" in found else float("nan")
                wrong = 0 if "first" in name else np.count_nonzero(count != exact[: len(count)])
                note = f", {100 * wrong / len(count):.2g} % wrong" if wrong else ""
                times = f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"
                cells.append(f"{'~' * scaled}{1e3 * ms:.0f} ({times}x{note})")
            print(
                f"| {title} ({engine.method}) | {np.mean(exact):.0f} | {threads} |",
                " | ".join(cells), f"| {build} | {engine.nbytes / z.nbytes:.2f} x |",
            )  # fmt: skip
            sys.stdout.flush()


if __name__ == "__main__":
    main()
