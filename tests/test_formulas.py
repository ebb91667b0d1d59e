"""The pages of formulas and citations: what they print is what the functions give."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import dprl
from dprl import certificate

ROOT = Path(__file__).parent.parent


def page(name):
    return (ROOT / "docs" / f"{name}.md").read_text()


def test_every_formula_is_what_its_function_computes():
    (block,) = re.findall(r"^```python\n(.*?)^```$", page("formulas"), re.MULTILINE | re.DOTALL)
    names = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(block, "formulas", "exec"), names)
    pairs = names["by_formula_and_function"]
    assert len(pairs) == 9
    for name, (formula, bound) in pairs.items():
        assert bound.value == pytest.approx(formula, rel=1e-12), name
    assert printed.getvalue().count("vacuous") >= 6


def test_every_bound_has_its_formula():
    """With its assumptions, and a link to the function."""
    text = page("formulas")
    linked = set(re.findall(r"\{py:(?:func|class)\}`([\w.]+)`", text))
    for name in certificate.__all__:
        if name not in ("ApproximateGain", "Certificate", "approximate_gain", "gate", "register"):
            assert f"dprl.certificate.{name}" in linked, name
    for name in linked:
        owner = dprl
        for part in name.split(".")[1:]:
            owner = getattr(owner, part)
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    stated = [s for s in sections if "*Computed by*" in s]
    assert len(stated) == 9
    assert all("ssumes" in s or "Not valid as stated" in s for s in stated)
    assert all("$$" in s for s in stated)


def test_the_paper_is_cited_as_the_citation_file_says():
    text, facts = page("cite"), (ROOT / "CITATION.cff").read_text()
    paper = facts.split("preferred-citation:")[1]
    entry = text.split("@inproceedings{sharma2025decision")[1].split("\n}")[0]
    names = re.findall(r"family-names: (.+)\n\s+given-names: (.+)\n", paper)
    assert len(names) == 4
    assert " and ".join(f"{family}, {given}" for family, given in names) in entry
    assert re.search(r"title: (.+)\n", paper).group(1) in entry
    assert f"{{{re.search(r'year: (.+)', paper).group(1)}}}" in entry
    assert re.search(r'^title: "(.+)"$', facts, re.MULTILINE).group(1) in text


def test_every_rival_can_be_cited():
    text = page("cite")
    for name in dprl.baselines.__all__:
        if name not in ("BC", "RL", "Mode", "ForestBC"):  # nobody's in particular
            assert re.search(rf"\b{name}\b", text), name
    entries = re.findall(r"^@\w+\{(\w+),", text, re.MULTILINE)
    assert len(entries) == len(set(entries)) == 14
    for entry in re.split(r"^@", text, flags=re.MULTILINE)[1:]:
        body = entry.split("\n}")[0]
        assert body.count("{") == body.count("}") + 1  # the last brace is cut off
        assert "title" in body
        assert "author" in body
