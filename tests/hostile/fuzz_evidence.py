"""Mutated evidence files of sites: a loader may refuse a file, and may do nothing else.

Each case takes what a site counted the first or the second time, changes its words or its arrays,
writes the digest anew (what a careful forger does) or flips bytes of the file, and opens it. What
opens is then used as the one who merges would: printed, explained, merged, fitted, saved. Only an
EvidenceError may come out of opening it, and only an error of dprl out of using it.
"""

from __future__ import annotations

import io
import json
import traceback
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_policies import change_arrays, change_words, damaged, forged

import dprl
from dprl.evidence.sites.evidence import ARCHIVE, unpacked
from dprl.planning.sites import load_counts


@cache
def seeds() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Kind, words and arrays of files of both rounds: of one site and of two, with much left out."""
    log = dprl.envs.care_pathway().sample(400, seed=0)
    made: list[Any] = []
    for value_range, k in (((0, 1), 1), (None, 10)):
        schema = dprl.SiteSchema.of(log, gamma=1.0, value_range=value_range)
        halves = log.take(range(200)), log.take(range(200, 400))
        counted = [
            dprl.site_evidence(half, schema, k=k, site=site)
            for half, site in zip(halves, ("north", "south"), strict=True)
        ]
        merged = dprl.merge_evidence(*counted)
        made += [counted[0], merged, dprl.site_plan(halves[0], merged, n_min=20, k=k, site="north")]
    return [_parts(part.to_bytes()) for part in made]


def _parts(data: bytes) -> tuple[str, dict[str, Any], dict[str, Any]]:
    _, kind, words, arrays = unpacked(io.BytesIO(data), "round-1", "round-2")
    return kind, words, arrays


def use(part: Any, path: Path) -> None:
    """Do with evidence what the one who merges does."""
    repr(part), part.explain(), part.to_bytes()
    dprl.merge_evidence(part)
    part.save(path)
    again = load_counts(path)
    assert again.to_bytes() == part.to_bytes()
    evidence = getattr(part, "evidence", None) if isinstance(part, dprl.SitePlan) else part
    evidence.notes(), evidence.digest(), evidence.groups, evidence.suppressed, evidence.n_steps
    learner = dprl.DPRLDiscrete(n_min=20, gamma=evidence.schema.gamma, plan=False)
    policy = learner.fit(evidence)
    str(policy), str(policy.changes())
    if isinstance(part, dprl.SitePlan) and part.complete:
        str(dprl.DPRLDiscrete(n_min=part.n_min, gamma=evidence.schema.gamma).fit(part))
    if evidence.bins is not None:
        how = {"mode": "in-sample", "markov": False}
        str(dprl.gate(learner, evidence, value_range=evidence.schema.value_range, **how))


def main(cases: int, seed: int, folder: Path) -> dict[str, Any]:
    """Try this many files; what opened, what was refused, and the first of each kind of failure.

    Args:
        cases: The number of files.
        seed: The seed of all changes.
        folder: Where the files are written; each overwrites the one before.
    """
    rng, files = np.random.default_rng(seed), seeds()
    counts: Counter[str] = Counter()
    failures: dict[str, str] = {}
    path = folder / "case.evidence"
    for case in range(cases):
        kind, words, arrays = files[case % len(files)]
        words, arrays = json.loads(json.dumps(words)), {k: a.copy() for k, a in arrays.items()}
        how = rng.random()
        for _ in range(int(rng.integers(1, 3)) if how < 0.85 else 0):
            if rng.random() < 0.6:
                change_words(words, rng)
            else:
                change_arrays(arrays, rng)
        try:
            forged(path, kind, words, arrays, rng, ARCHIVE)
        except (RecursionError, ValueError):  # words that JSON cannot hold
            counts["could not be written"] += 1
            continue
        if how >= 0.85:
            damaged(path, rng)
        step = "opened"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", dprl.PrecisionWarning)  # which says what is lost
                warnings.simplefilter("ignore", dprl.CutWarning)  # a file may have cut ones
                part = load_counts(path)
                whole = dprl.SiteEvidence.load if kind == "round-1" else dprl.SitePlan.load
                assert repr(whole(path)) == repr(part)
                step = "used"
                use(part, folder / "again.evidence")
            counts["used"] += 1
        except dprl.DprlError as error:
            lines = str(error).splitlines()
            if len(lines) > 3 or (step == "opened" and not isinstance(error, dprl.EvidenceError)):
                failures.setdefault(f"{type(error).__name__}, {len(lines)} lines", str(error)[:300])
            counts["refused" if step == "opened" else "opened, not used"] += 1
        except Exception as error:
            counts["failed"] += 1
            frames = traceback.extract_tb(error.__traceback__)
            where = next((f for f in reversed(frames) if "dprl/" in f.filename), frames[-1])
            key = f"{type(error).__name__} {Path(where.filename).name}:{where.name}"
            failures.setdefault(
                key, f"case {case}, {step}: {kind}: {str(error)[:150]} line {where.lineno}"
            )
            counts[key] += 1
    return {"cases": cases, "counts": dict(counts), "failures": failures}


if __name__ == "__main__":
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        result = main(int(sys.argv[1]), int(sys.argv[2]), Path(folder))
    print(json.dumps(result, indent=1))
