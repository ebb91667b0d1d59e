"""Mutated policy files: a loader may refuse a file, and may do nothing else.

Each case takes a policy file, changes its words or its arrays, writes the digest anew (what a
careful forger does) or flips bytes of the file, and opens it. What opens is then used as a user
would: printed, explained, asked, saved. Only a PolicyError may come out of any of it.
"""

from __future__ import annotations

import copy
import json
import traceback
import warnings
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import dprl
from dprl._core.archive import Archive, _digest
from dprl.policies import base as _file

GOLDEN = Path(__file__).parents[1] / "policies" / "golden" / "0.1.0"
LEAVES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 10**18, 2**63, -(2**63) - 1, 10**400, 0.0, -0.0, 0.5, 1e308,
    -1e308, 1e-308, 5e-324, float("nan"), float("inf"), float("-inf"), "", "a", "1", "é", "\x1b[31m",
    "\ud800", "x\ny", "None", "{0}", [], {}, [None], [1], ["a"], [[]], {"a": 1}, {"": None},
    [1e308, -1e308], [0, 1], "large-sample", "proved", "joined", [["a", 1, 2]], "a" * 5000,
]  # fmt: skip


def seeds(fresh: bool = True) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Kind, words and arrays of small policies of every kind, with some that are made anew."""
    files = [_file.unpack(path) for path in sorted(GOLDEN.glob("*.dprl"))]
    if not fresh:
        return files
    log = dprl.envs.care_pathway().sample(4000, seed=0)
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    policies: list[Any] = [
        dprl.gate(learner, log, delta=0.05, value_range=(0, 1)),
        dprl.gate(learner, log, mode="policy", grade="large-sample"),
        dprl.Confident(gamma=1.0).fit(log),
    ]
    for policy in policies:
        words, arrays = policy._parts()
        words = json.loads(json.dumps(words))
        files.append((policy.KIND, words, {k: np.array(v) for k, v in arrays.items()}))
    return files


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inside = [at] if at else []
    steps = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, child in list(steps)[:60] if len(at) < 30 else ():
        inside += places(child, (*at, key))
    return inside


def deep(rng: np.random.Generator) -> Any:
    """A value with many levels."""
    value: Any = 1
    for _ in range(int(rng.choice([5, 60, 600, 900]))):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def change_words(words: Any, rng: np.random.Generator) -> None:
    """One change somewhere in the words, in place."""
    every = places(words)
    at = every[rng.integers(len(every))]
    home = words
    for key in at[:-1]:
        home = home[key]
    key = at[-1]
    how = rng.random()
    if how < 0.1:
        del home[key]
    elif how < 0.2 and isinstance(home, list):
        home.append(home[key])
    elif how < 0.25:
        home[key] = deep(rng)
    elif how < 0.35:
        other = every[rng.integers(len(every))]
        value = words
        for step in other:
            value = value[step]
        try:
            home[key] = copy.deepcopy(value)  # a copy: two changes must not make a circle
        except RecursionError:  # it is one of the very deep ones
            home[key] = None
    elif how < 0.45 and isinstance(home[key], int | float) and not abs(home[key]) > 1e300:
        home[key] = home[key] * float(rng.choice([-1.0, 0.0, 1e300, 1e-300, 0.999]))
    else:
        home[key] = LEAVES[rng.integers(len(LEAVES))]


def change_arrays(arrays: dict[str, Any], rng: np.random.Generator) -> None:
    """One change in one array, in place."""
    if not arrays:
        return
    name = sorted(arrays)[rng.integers(len(arrays))]
    a = np.array(arrays[name])
    how = rng.random()
    if how < 0.1:
        del arrays[name]
        return
    if how < 0.25:
        with np.errstate(invalid="ignore"):
            a = a.astype(rng.choice(["bool", "int32", "int64", "float64"]))
    elif how < 0.35:
        a = a[:0] if rng.random() < 0.5 else np.concatenate([a, a])
    elif how < 0.4:
        a = a.reshape(-1)
    elif a.size:
        wild: list[Any] = {"f": [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 0.0, -1.0, 1e9],
                           "i": [0, 1, -1, -2, 5, 2**31 - 1, -(2**31)], "b": [True, False]}[a.dtype.kind]  # fmt: skip
        flat = a.reshape(-1)
        some = slice(None) if rng.random() < 0.3 else rng.integers(a.size, size=1 + a.size // 7)
        flat[some] = wild[rng.integers(len(wild))]
    arrays[name] = np.ascontiguousarray(a)


def forged(
    path: Path, kind: str, words: Any, arrays: Any, rng: np.random.Generator,
    archive: Archive = _file.ARCHIVE,
) -> None:  # fmt: skip
    """A file of these parts, with a digest that fits (mostly) and any version."""
    portable = {k: np.ascontiguousarray(a) for k, a in sorted(arrays.items())}
    shapes: Any = {n: {"dtype": a.dtype.str, "shape": list(a.shape)} for n, a in portable.items()}
    head: Any = {
        "format": archive.format,
        "version": archive.version,
        "kind": kind,
        **words,
        "arrays": shapes,
    }
    if rng.random() < 0.05:
        head["version"] = LEAVES[rng.integers(len(LEAVES))]
    if rng.random() < 0.03 and shapes:
        shapes[sorted(shapes)[0]]["shape"] = LEAVES[rng.integers(len(LEAVES))]
    try:
        head["digest"] = _digest(head, portable)
    except (ValueError, TypeError):
        head["digest"] = LEAVES[rng.integers(len(LEAVES))]
    if rng.random() < 0.05:
        head["digest"] = LEAVES[rng.integers(len(LEAVES))]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr(archive.member, json.dumps(head))
        for name, a in portable.items():
            with z.open(f"{name}.npy", "w") as stream:
                np.lib.format.write_array(stream, a, allow_pickle=False)


def damaged(path: Path, rng: np.random.Generator) -> None:
    """The file with some bytes flipped, cut out, doubled or cut off."""
    data = bytearray(path.read_bytes())
    for _ in range(int(rng.integers(1, 5))):
        place, how = int(rng.integers(len(data))), rng.random()
        if how < 0.7:
            data[place] = int(rng.integers(256))
        elif how < 0.8:
            del data[place : place + int(rng.integers(1, 40))]
        elif how < 0.9:
            data[place:place] = data[place : place + int(rng.integers(1, 40))]
        else:
            data = data[: max(place, 1)]
    path.write_bytes(bytes(data))


def use(path: Path) -> Any:
    """Open the file and do with the policy what a user does."""
    policy: Any = dprl.load(path)
    policy.digest()
    str(policy), repr(policy), policy.statements, policy.conditions, policy.luck, policy.n_min
    names = policy.space.feature_names
    ask: Any = [[0.0] * len(names)] if names else list(policy.states[:3])
    if not ask:
        return policy
    if policy.encoding is None:
        policy.act(ask), policy.at(ask), policy.probabilities(ask)
    if policy.knows_practice:
        policy.summary()
        str(policy.changes()), str(policy.confirmations())
        policy._repr_html_()
        if policy.encoding is None:
            str(policy.explain(ask[0]))
    if policy.certificate is not None:
        str(policy.certificate), policy.certificate.to_dict(), policy.certificate._repr_html_()
    policy.save(path.with_suffix(".again"))
    dprl.load(path.with_suffix(".again"))
    return policy


def main(cases: int, seed: int, folder: Path, fresh: bool = True) -> dict[str, Any]:
    """Try this many files; what opened, what was refused, and the first of each kind of failure.

    Args:
        cases: The number of files.
        seed: The seed of all changes.
        folder: Where the files are written; each overwrites the one before.
        fresh: Whether policies that are fitted anew are among those that are changed.
    """
    rng, kinds = np.random.default_rng(seed), seeds(fresh)
    counts: Counter[str] = Counter()
    failures: dict[str, str] = {}
    path = folder / "case.dprl"
    for case in range(cases):
        kind, words, arrays = kinds[case % len(kinds)]
        words, arrays = json.loads(json.dumps(words)), {k: a.copy() for k, a in arrays.items()}
        how = rng.random()
        for _ in range(int(rng.integers(1, 3)) if how < 0.85 else 0):
            if rng.random() < 0.65:
                change_words(words, rng)
            else:
                change_arrays(arrays, rng)
        try:
            forged(path, kind, words, arrays, rng)
        except (RecursionError, ValueError):  # words that JSON cannot hold
            counts["could not be written"] += 1
            continue
        if how >= 0.85:
            damaged(path, rng)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", dprl.PrecisionWarning)  # which says what is lost
                use(path)
            counts["opened"] += 1
        except dprl.PolicyError as error:
            lines = str(error).splitlines()
            if len(lines) > 3:
                failures.setdefault(f"{len(lines)} lines", str(error)[:300])
            counts["refused"] += 1
        except Exception as error:
            counts["failed"] += 1
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = next(
                (f for f in reversed(traceback.extract_tb(error.__traceback__)) if "dprl/" in f.filename), last
            )  # fmt: skip
            key = f"{type(error).__name__} {Path(where.filename).name}:{where.name}"
            failures.setdefault(key, f"case {case}: {kind}: {str(error)[:150]} line {where.lineno}")
            counts[key] += 1
    return {"cases": cases, "counts": dict(counts), "failures": failures}


if __name__ == "__main__":
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        result = main(int(sys.argv[1]), int(sys.argv[2]), Path(folder))
    print(json.dumps(result, indent=1))
