"""Logs for the tests, and all ways to hold one: what is learned must not depend on the way."""

from __future__ import annotations

import contextlib
import pickle
from dataclasses import replace

import numpy as np

import dprl
from dprl.logs.source import parts_of


def wards(seed=0, episodes=120, *, groups=False, cut=False, menus=False, times=False, text=False):
    """A log of five states in which episodes have one to six steps, with what is asked for."""
    rng = np.random.default_rng(seed)
    length = rng.integers(1, 7, episodes)
    n, which = int(length.sum()), np.repeat(np.arange(episodes), length)
    step = np.concatenate([np.arange(k) for k in length])
    action = rng.integers(0, 3, n)
    state = rng.integers(0, 5, n)
    data = {
        "episode": [f"é{i:03d}" for i in which] if text else which,
        "state": [f"ward {s}" for s in state],
        "action": action,
        "reward": rng.normal(size=n) + 0.3 * (action == state % 3),
        "time": step + 10 * rng.integers(0, 9, episodes)[which] if times else step,
    }
    if groups:
        data["group"] = [f"p{g}" for g in rng.integers(0, episodes // 2, episodes)[which]]
    if cut:
        ending = np.array(["terminal", "cut", "death"])[rng.integers(0, 3, episodes)]
        data["ended"] = ending[which]
    if menus:
        others = rng.integers(0, 3, n)
        data["available"] = [
            "0|1|2" if s < 3 else "|".join(str(x) for x in sorted({a, b}))
            for s, a, b in zip(state, action, others, strict=True)
        ]
    return data


KINDS = {
    "plain": {},
    "groups": {"groups": True, "times": True},
    "cut": {"cut": True, "groups": True, "times": True},
    "menus": {"menus": True},
    "text": {"text": True, "groups": True},
}


def read(data):
    return dprl.from_arrays(**data, events=["death"] if "ended" in data else None)


def ward_log(kind, **more):
    """A log of one of the kinds above."""
    return read(wards(**KINDS[kind], **more))


def bytes_of(policy, path):
    policy.save(path)
    return path.read_bytes()


def elsewhere(sources, job, merge, shared, progress):
    """An executor like that of a cluster: all is pickled, and merged in an order by chance."""

    def sent(thing):
        return pickle.loads(pickle.dumps(thing))

    results = [sent(job)(sent(source).read(), *sent(shared)) for source in sources]
    results = [sent(result) for result in results if result is not None]
    rng = np.random.default_rng(len(sources))
    while len(results) > 1:
        i, j = rng.choice(len(results), 2, replace=False)
        one, other = results[i], results[j]
        results = [r for k, r in enumerate(results) if k not in (i, j)]
        results.append(sent(merge)(one, other))
    return results[0] if results else None


@contextlib.contextmanager
def scanned(log, folder):
    """The log as it comes from a Parquet file, read in parts."""
    path = folder / "scanned.parquet"
    dprl.write(log, path)
    with dprl.scan(path, **log.columns, rows=100, folder=folder) as parts:
        yield parts


WAYS = {
    "in memory": lambda log, _: contextlib.nullcontext(log),
    "in parts of 20 rows": lambda log, _: contextlib.nullcontext(
        replace(parts_of(log, 20), rows=250)
    ),
    "in one part": lambda log, _: contextlib.nullcontext(parts_of(log, 10**6)),
    "elsewhere": lambda log, _: contextlib.nullcontext(
        replace(parts_of(log, 60), executor=elsewhere)
    ),
    "scanned": scanned,
}
"""Every way to hold a log whose rows can be read, by name: context managers of (log, folder)."""
