"""One whole page per language, word for word: a report on a small certified policy.

After a change of words that is meant: ``python tests/apps/reports/test_golden_pages.py`` writes the pages
anew; read what changed before it is kept.
"""

from __future__ import annotations

import datetime
import html
import re
import tempfile
from pathlib import Path

import pytest

import dprl

GOLDEN = Path(__file__).parent / "golden"
NUMBERS = re.compile(r"\d+(?:[.,]\d+)*")
"""Numbers may differ in their last digit from machine to machine; words may not."""
DIGESTS = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,64}\b")


def page(lang, folder):
    """What is read on a report: one line for each piece of text, without numbers and digests."""
    log = dprl.envs.care_pathway().sample(3000, seed=0)
    train, test = log.split(0.5, seed=0)
    policy = dprl.gate(dprl.DPRLDiscrete(n_min=20, gamma=1.0), train, value_range=(0, 1))
    path = Path(folder) / f"{lang}.html"
    dprl.report(
        policy, test, path, values=False, draws=50, lang=lang, standard="target",
        date=datetime.date(2026, 3, 31),
    )  # fmt: skip
    text = path.read_text(encoding="utf-8")
    assert '<span lang="en">' not in text  # what has no translation
    labels = re.findall(r'aria-label="([^"]*)"', text)
    text = re.sub(r"<style>.*?</style>|<svg.*?</svg>", " ", text, flags=re.DOTALL)
    text = re.sub(r"</(?:p|li|h\d|td|th|dt|dd|caption|title|a)>|<br>", "\n", text)
    lines = [" ".join(line.split()) for line in re.sub(r"<[^>]*>", " ", text).split("\n")]
    lines = [html.unescape(line) for line in (*lines, *labels) if line]
    whole = "\n".join(line for line in lines if "made_by" not in line and "dprl 0" not in line)
    return NUMBERS.sub("0", DIGESTS.sub("0", whole)) + "\n"


@pytest.mark.parametrize("lang", ["en", "de"])
def test_a_whole_page_is_as_it_was(lang, tmp_path):
    assert page(lang, tmp_path) == (GOLDEN / f"report.{lang}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    for each in ("en", "de"):
        with tempfile.TemporaryDirectory() as made:
            (GOLDEN / f"report.{each}.txt").write_text(page(each, made), encoding="utf-8")
