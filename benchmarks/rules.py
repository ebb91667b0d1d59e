"""How long `dprl.Rules` takes, and its search of trees beside a greedy one on the same scores.

    python benchmarks/rules.py --out table.md
    python benchmarks/rules.py --econml PYTHON   a Python that has EconML; default: this one

100,000 steps of 30 features and 16 actions, in episodes of ten steps. Every fit is a fresh process,
which first fits a small log (imports, compilation). CPU seconds are those of all threads: they say
more than wall seconds where other programs want the same cores.

The trees are compared without errors to take off and without least counts: all that counts is the
sum of the scores, so an exact search over the same cuts cannot be worth less than a greedy one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np

STEPS, FEATURES, ACTIONS, LENGTH = 100_000, 30, 16, 10
GAMMA = 0.95
CUTS = 16


def practice(rng: np.random.Generator, steps: int) -> tuple:
    """Features, probabilities of actions, and actions."""
    x = rng.normal(size=(steps, FEATURES))
    p = np.exp(x @ rng.normal(scale=0.15, size=(FEATURES, ACTIONS)))
    p /= p.sum(axis=1, keepdims=True)
    action = (rng.random(steps)[:, None] > np.cumsum(p, axis=1)).sum(axis=1)
    return x, p, np.minimum(action, ACTIONS - 1)


def best_action(x: np.ndarray, world: str) -> np.ndarray:
    """The action that helps: a tree of two questions, or two features of which neither tells."""
    if world == "tree":
        high = np.where(x[:, 1] > 0, 3, 5)
        return np.where(x[:, 0] > 0.3, high, np.where(x[:, 2] > 0, 7, 11))
    return np.where((x[:, 0] > 0) == (x[:, 1] > 0), 3, 7)


def ward(steps: int):
    """The log."""
    import dprl

    rng = np.random.default_rng(0)
    x, _, action = practice(rng, steps)
    reward = 0.5 * (action == best_action(x, "tree")) + 0.3 * x[:, 3] + rng.normal(size=steps)
    return dprl.from_arrays(
        episode=np.arange(steps) // LENGTH, state=x, action=action, reward=reward
    )


def one_fit(depth: int) -> dict:
    """Seconds (wall, CPU) of a fit by stage: in this process, which must be a fresh one."""
    import dprl
    from dprl.learners.rules import learner as rules

    spent: dict[str, list[float]] = {}
    last = ["", 0.0, 0.0]

    def now(stage: str) -> None:
        wall, used = time.perf_counter(), time.process_time()
        if last[0]:
            so_far = spent.setdefault(last[0], [0.0, 0.0])
            so_far[0] += wall - last[1]
            so_far[1] += used - last[2]
        last[:] = [stage, wall, used]

    def progress(stage: str, share: float) -> None:
        now("models" if stage.startswith("models") else stage)

    plain = rules.choose_lam

    def choose(*given, **more):
        now("choice of λ")
        result = plain(*given, **more)
        now("search")
        return result

    small, log = ward(3_000), ward(STEPS)
    dprl.gate(dprl.Rules(gamma=GAMMA, splits=1, depth=depth), small, value_range=(-99, 99))
    rules.choose_lam = choose
    now("scores")
    policy = dprl.Rules(gamma=GAMMA, depth=depth).fit(log, progress=progress)
    now("the exact gate")
    gated = dprl.gate(policy, log, value_range=(-20.0, 20.0))
    now("")
    more = spent.pop("searching rules")
    spent["scores"] = [spent["scores"][i] + more[i] for i in (0, 1)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    struck = sum("Not issued" in note for note in gated.certificate.notes)
    return {
        "depth": depth, "spent": spent, "peak": peak, "rules": len(policy.rules),
        "proved": len(gated.rules), "struck": struck,
    }  # fmt: skip


def scores(world: str, rows: int) -> tuple:
    """Features, scores with the true probabilities, actions, and the bins of the features."""
    from dprl.planning.tree import Bins

    rng = np.random.default_rng(1)
    x, p, action = practice(rng, rows)
    e = 0.5 * (action == best_action(x, world)) + rng.normal(size=rows)
    taken = np.arange(ACTIONS) == action[:, None]
    fine = (p >= 0.02) & (p <= 0.98)
    psi = np.where(fine, (taken - p) / np.where(fine, p * (1 - p), 1.0) * e[:, None], 0.0)
    return x, psi, action.astype(np.int32), Bins.of(x, CUTS)


def our_trees(world: str, rows: int, folder: Path) -> list[dict]:
    """Seconds and values of the search; the scores are left in a file."""
    from dprl.planning.tree import best_tree, leaves

    x, psi, took, bins = scores(world, rows)
    np.savez(folder / f"{world}.npz", x=x, codes=bins.codes.astype(np.float64), psi=psi)
    settings = {"kappa": np.zeros(ACTIONS), "least": 0}
    best_tree(first_rows(bins, 1_000), psi[:1_000], took[:1_000], depth=2, **settings)
    rows_of = []
    for depth in (2, 3):
        wall, used = time.perf_counter(), time.process_time()
        tree = best_tree(bins, psi, took, depth=depth, **settings)
        wall, used = time.perf_counter() - wall, time.process_time() - used
        total = 0.0
        for path, action in leaves(tree):
            inside = np.ones(rows, bool)
            for feature, cut, low in path:
                inside &= (x[:, feature] <= cut) == low
            total += psi[inside, action].sum() if action >= 0 else 0.0
        rows_of.append(
            {"world": world, "depth": depth, "who": "dprl", "wall": wall, "cpu": used,
             "value": total / rows}
        )  # fmt: skip
    return rows_of


def first_rows(bins, rows: int):
    from dataclasses import replace

    return replace(bins, codes=bins.codes[:rows])


def greedy(path: Path) -> list[dict]:
    """EconML's trees on the same scores, with "defer" as one more action; needs EconML alone."""
    from econml.policy import PolicyTree

    data = np.load(path)
    y = np.concatenate((np.zeros((len(data["psi"]), 1)), data["psi"]), axis=1)
    rows_of = []
    for what in ("codes", "x"):
        for depth in (2, 3):
            tree = PolicyTree(max_depth=depth, honest=False, min_balancedness_tol=0.5,
                              min_samples_leaf=1, min_samples_split=2, random_state=0)  # fmt: skip
            wall, used = time.perf_counter(), time.process_time()
            tree.fit(data[what], y)
            wall, used = time.perf_counter() - wall, time.process_time() - used
            chosen = np.asarray(tree.predict(data[what]), np.int64)
            rows_of.append({
                "world": path.stem, "depth": depth, "wall": wall, "cpu": used,
                "who": f"EconML PolicyTree, {'the same cuts' if what == 'codes' else 'all cuts'}",
                "value": float(y[np.arange(len(y)), chosen].mean()),
            })  # fmt: skip
    return rows_of


def in_a_process(python: str, *command: str) -> list | dict:
    done = subprocess.run([python, __file__, *command], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def trees(python: str, rows: int) -> str:
    """The table of trees."""
    all_rows: list[dict] = []
    skipped = ""
    with tempfile.TemporaryDirectory() as name:
        for world in ("tree", "pair"):
            all_rows += our_trees(world, rows, Path(name))
            try:
                all_rows += in_a_process(python, "--greedy", str(Path(name, f"{world}.npz")))
            except subprocess.CalledProcessError:
                skipped = "EconML is not installed in that Python: its rows are left out.\n"
    text = (
        f"{rows:,} steps, {FEATURES} features, {ACTIONS} actions and deferring; the same scores. "
        'value: mean score of what\na tree suggests. In the world "tree" two questions tell the '
        'best action; in "pair" two features tell it together, and neither alone.\n\n'
        "| world | depth | search | CPU s (wall) | value |\n|---|---|---|---|---|\n"
    )
    for row in sorted(all_rows, key=lambda r: (r["world"] != "tree", r["depth"])):
        text += (
            f"| {row['world']} | {row['depth']} | {row['who']} | {row['cpu']:.2f} "
            f"({row['wall']:.2f}) | {row['value']:.4f} |\n"
        )
    for world in ("tree", "pair"):
        value = {r["who"]: r["value"] for r in all_rows if r["world"] == world and r["depth"] == 2}
        rival = value.get("EconML PolicyTree, the same cuts")
        if rival is not None and value["dprl"] < rival - 1e-9:
            raise SystemExit(f"the exact tree is worth less than the greedy one: {value}")
    return text + skipped


def fits(depths: list[int]) -> str:
    """The table of fits."""
    rows = []
    for depth in depths:
        rows.append(in_a_process(sys.executable, "--one", str(depth)))
        print(rows[-1], flush=True)
    names = ("models", "scores", "choice of λ", "search", "certifying", "the exact gate")
    lines = [
        f"{STEPS:,} steps, {FEATURES} features, {ACTIONS} actions, {STEPS // LENGTH:,} episodes; "
        "three divisions. CPU seconds of all\nthreads; wall seconds in brackets. The gate is not "
        "part of the fit.\n",
        f"| depth | fit | {' | '.join(names)} | peak GB | rules | proved | struck |",
        "|---" * (len(names) + 6) + "|",
    ]
    for row in rows:
        spent = row["spent"]
        whole = [sum(spent[n][i] for n in names if n in spent and n != names[-1]) for i in (0, 1)]
        cells = [whole, *(spent.get(n, [0.0, 0.0]) for n in names)]
        times = " | ".join(f"{used:.1f} ({wall:.1f})" for wall, used in cells)
        lines.append(
            f"| {row['depth']} | {times} | {row['peak']:.2f} | {row['rules']} | {row['proved']} | "
            f"{row['struck']} |"
        )
    return "\n".join(lines) + "\n"


def stamp() -> str:
    """When and on what."""
    import numba
    import sklearn

    versions = ", ".join(f"{m.__name__} {m.__version__}" for m in (np, numba, sklearn))
    load = os.getloadavg()
    idle = "idle" if load[2] < 0.3 else "NOT idle: other programs ran, so look at CPU seconds"
    return (
        f"{date.today()}, {os.cpu_count()} cores, {idle} (load average {load[0]:.1f} at the end, "
        f"{load[2]:.1f} over 15 minutes), Python {platform.python_version()}, {versions}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--econml", default=sys.executable, help="a Python that has EconML")
    parser.add_argument("--rows", type=int, default=STEPS // 2, help="steps for the trees alone")
    parser.add_argument("--depths", type=int, nargs="*", default=[2, 3], help="of the fits")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--greedy", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one_fit(args.one)))
        return
    if args.greedy:
        print(json.dumps(greedy(args.greedy)))
        return
    text = trees(args.econml, args.rows)
    print(text, flush=True)
    if args.depths:
        text += "\n" + fits(args.depths)
    text = f"{stamp()}\n\n{text}"
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
