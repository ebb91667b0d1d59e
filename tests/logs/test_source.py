"""A statistic of a log is the same wherever the rows are, and however they are merged."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest

import dprl
from dprl.evidence.counts import Counts, count_source
from dprl.logs.source import (
    Both,
    Chunk,
    as_source,
    check_claim,
    check_treatment,
    needs_rows,
    parts_of,
)


@dataclass(frozen=True)
class Steps:
    """The number of rows in which an action was taken; None where there is none."""

    action: int

    def of(self, chunk):
        return int((chunk.log.action == self.action).sum()) or None

    def merge(self, one, other):
        return one + other


@pytest.fixture(scope="module")
def log():
    return dprl.envs.risky_arms().sample(100, seed=0)


def backwards(sources, job, merge, shared, progress):
    """An executor elsewhere: everything is pickled, and merged from the end."""
    results = [pickle.loads(pickle.dumps((job, merge, shared))) for _ in sources]
    done = [
        job(pickle.loads(pickle.dumps(s)).read(), *own)
        for s, (job, _, own) in zip(sources, results, strict=True)
    ]
    done = [pickle.loads(pickle.dumps(result)) for result in done if result is not None]
    total = done.pop()
    while done:
        total = merge(total, done.pop())
    return total


def test_a_log_is_one_chunk(log):
    parts = parts_of(log, rows=50)
    away = replace(parts, executor=backwards)
    for action in range(log.n_actions):
        whole = log.reduce(Steps(action))
        assert whole == parts.reduce(Steps(action)) == away.reduce(Steps(action)) > 0
    assert parts.reduce(Both(Steps(0), Steps(10**6))) == (log.reduce(Steps(0)), None)
    with pytest.raises(dprl.LogError, match="none is left"):
        parts.reduce(Steps(10**6))
    with pytest.raises(dprl.LogError, match="none is left"):
        log.reduce(Steps(10**6))


def test_facts_are_those_of_the_log_in_memory(log):
    parts = parts_of(log, rows=50)
    for name, fact in vars(log.facts).items():
        assert np.array_equal(fact, getattr(parts.facts, name)) or fact == getattr(parts, name)
    assert parts.digest() == log.digest() == as_source(log).digest()
    assert (as_source(log).room, parts.room) == (None, 50)
    shares = []
    parts.reduce(Steps(0), shares.append)
    assert shares == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_chunks_say_where_they_begin(log):
    chunks = [source.read() for source in parts_of(log, rows=50).sources]
    assert [c.first_group for c in chunks] == [0, 25, 50, 75]
    assert [c.first_row for c in chunks] == [0, 50, 100, 150]
    half = np.arange(100) % 2 == 0
    some = [c.some(half, None) for c in chunks]
    assert [e for part in some for e in part.episodes] == list(range(0, 100, 2))
    assert chunks[0].some(np.arange(100) > 50, None) is None


def test_a_chunk_makes_everything_once(log):
    chunk = as_source(log)
    how = Counts(gamma=1.0)
    one, other = count_source(chunk, how), count_source(chunk, how)
    assert one.evidence is other.evidence
    assert chunk.treated(None) is log


def test_what_needs_all_rows_says_so(log):
    parts = parts_of(log, rows=50)
    assert needs_rows(log, "it") is needs_rows(Chunk(log), "it") is log
    with pytest.raises(dprl.ParameterError, match=r"it needs the whole log in memory\."):
        needs_rows(parts, "it")
    with pytest.raises(dprl.ParameterError, match="a log is needed"):
        as_source("log.csv")


def test_cut_episodes_are_treated_chunk_by_chunk():
    log = dprl.from_arrays(
        episode=[1, 1, 2, 3, 4], state=[0] * 5, action=[0, 1, 0, 1, 0], reward=[1, 2, 3, 4, 5],
        ended=["cut", "cut", "terminal", "cut", "terminal"], group=["a", "a", "a", "b", "c"],
    )  # fmt: skip
    parts = parts_of(log, rows=1)
    counted = count_source(parts, Counts(1.0, cut="drop"))
    assert counted.left.tolist() == [False, False, True]
    assert counted.evidence.n_episodes == 1
    assert (count_source(as_source(log), Counts(1.0, cut="drop")).left == counted.left).all()
    with pytest.raises(dprl.ParameterError, match="cut='ipcw' needs the whole log"):
        check_treatment(parts, "ipcw")
    check_treatment(as_source(log), "ipcw")
    with pytest.warns(dprl.CutWarning, match="2 of 4 episodes"):
        check_treatment(parts, None)
    for source in (log, parts, as_source(log)):
        check_claim("drop-unrelated", source, "it")
        with pytest.raises(dprl.LogError, match="it would be about those that are left"):
            check_claim("drop", source, "it")
