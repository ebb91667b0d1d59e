"""Of one thing words are singular: commands on logs of one episode, one state, one change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import COLUMNS, options
from dprl._core.table import form, many

ONE_OF_MANY = re.compile(
    r"(?<![\d.,])\b1 (?!survives|has|is|was|as\b)"
    r"(?:(?:more|new|cut|further|held-out|proposed|certified|declared|training|decision) )?[a-z]+s\b"
)
"""A 1 and a plural; "1 survives" is a verb, and "+1 as estimated" a number."""
HEAD = "patient,day,stage,drug,score,ended"


def visits(numbers, every, cut=()):
    """Visits of one stage: the new drug for one in `every`, which is what does good."""
    return [
        f"{i},0,mild,{'old' if i % every else 'new'},{int(i % every == 0)},"
        f"{'cut' if i in cut else 'terminal'}"
        for i in numbers
    ]


def write(name, rows):
    Path(name).write_text("\n".join([HEAD, *rows]) + "\n")


def test_the_helper():
    assert many(1, "episode") == many(["a"], "episodes") == "1 episode"
    assert many(1_000, "episodes") == "1,000 episodes"
    assert [many(n, "category", "categories") for n in (0, 1)] == ["0 categories", "1 category"]
    assert (form(1, "was", "were"), form((), "was", "were")) == ("was", "were")
    assert ONE_OF_MANY.findall("1 episodes · 11 episodes, 0.1 steps; 1 cut episodes") == [
        "1 episodes", "1 cut episodes",
    ]  # fmt: skip


@pytest.mark.slow
def test_no_command_says_one_of_many(run):
    columns, ends, fit = options(COLUMNS), ["--ended", "ended"], ["--n-min", 5, "--gamma", 1]
    write("one.csv", visits([1], 3))
    write(
        "train.csv",
        [*visits(range(60), 3), "100,0,severe,old,0,terminal", "100,1,mild,old,0,terminal"],
    )
    write("cut.csv", visits(range(60), 3, cut=[7]))
    write("held.csv", [*visits(range(200, 240), 2), "300,0,severe,old,0,terminal"])
    lines = [
        ["check", "one.csv", *columns],
        ["check", "cut.csv", *columns, *ends],
        ["fit", "one.csv", *columns, "--n-min", 1, "--gamma", 1],
        ["fit", "train.csv", *columns, *fit, "--out", "p.dprl"],
        ["fit", "cut.csv", *columns, *ends, *fit, "--cut", "drop-unrelated", "--out", "drop.dprl"],
        ["fit", "cut.csv", *columns, *ends, *fit, "--cut", "terminal", "--out", "end.dprl"],
        ["changes", "p.dprl"],
        ["explain", "p.dprl", "severe"],
        ["act", "p.dprl", "one.csv", "--out", "acted.csv"],
        ["gate", "p.dprl", "train.csv", "--lowest", 0, "--highest", 1, "--out", "g.dprl"],
        ["gate", "drop.dprl", "cut.csv", "--lowest", 0, "--highest", 1, "--out", "g.dprl"],
        ["gate", "end.dprl", "cut.csv", "--lowest", 0, "--highest", 1, "--out", "g.dprl"],
        ["evaluate", "p.dprl", "held.csv", "--draws", 20],
        ["sensitivity", "p.dprl", "held.csv", "--draws", 20],
        ["report", "drop.dprl", "cut.csv", "--draws", 20, "--out", "r.html"],
        ["report", "p.dprl", "held.csv", "--draws", 20, "--standard", "target", "--out", "s.html"],
    ]
    for tokens in lines:
        code, out, err = run(*tokens)
        assert code == 0, (tokens, err)
        assert not ONE_OF_MANY.findall(out + err), (tokens, ONE_OF_MANY.findall(out + err))
    for page in ("r.html", "s.html"):
        text = re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", Path(page).read_text(), flags=re.S)
        words = " ".join(re.sub(r"<[^>]*>", " | ", text).replace("\u00a0", " ").split())
        assert not ONE_OF_MANY.findall(words), ONE_OF_MANY.findall(words)
