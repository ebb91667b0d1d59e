"""The code blocks of README and how-to run as they stand, in order, each chain in an empty folder."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import dprl
from dprl.apps.cli.main import main
from dprl.certificate._gate import GATES
from dprl.evidence.models import NUISANCES
from dprl.policies.certificate import KINDS

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(name):
    return BLOCK.findall((ROOT / name).read_text())


def commands(code):
    """What each line of a shell block calls: the command of dprl, or None for anything else."""
    simple = re.compile(r"dprl (\w+) [\w ./-]+")
    return [(m := simple.fullmatch(line)) and m.group(1) for line in code.splitlines()]


def in_this_process(line):
    with pytest.raises(SystemExit) as caught, contextlib.redirect_stdout(io.StringIO()) as printed:
        main(shlex.split(line)[1:])
    assert not caught.value.code, line
    return printed.getvalue()


def run(folder, code_blocks, here=frozenset()):
    """Shell blocks one by one; Python blocks one after the other in one namespace.

    Lines with nothing but these commands run in this process, the others in a shell.
    """
    names = {"__name__": "__main__", "dprl": dprl}
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    out = ""
    for language, code in code_blocks:
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, code, "exec"), names)
            out += printed.getvalue()
        elif here.issuperset(commands(code)):
            for line in code.splitlines():
                in_this_process(line)
        else:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", code],
                cwd=folder, env=env, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{code}\n{done.stderr}"
            out += done.stdout
    return out


def leave_what_the_readme_leaves(folder):
    """The files that the how-to goes on with, by the README's own commands, in this process."""
    shell = "".join(code for language, code in blocks("README.md") if language == "bash")
    settings = re.search(r"<<'TOML'\n(.*?)^TOML$", shell, re.MULTILINE | re.DOTALL)
    (folder / "dprl.toml").write_text(settings.group(1))
    for line in shell.splitlines():
        if line.startswith(("dprl demo", "dprl split", "dprl fit")):
            in_this_process(line)
    for left in ("demo/visits.parquet", "policy.dprl"):
        assert (folder / left).exists()


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def of_tables(block):
    """Whether a block of the how-to is of the study that begins with tables: a chain of its own."""
    return re.search(r"\bicu\b", block[1]) is not None


@pytest.mark.slow
def test_blocks_of_the_readme_run(empty):
    out = run(empty, blocks("README.md"))
    assert "['antibiotics', DEFER]" in out
    assert "12,fever,antibiotics\n14,stable,DEFER" in out


@pytest.mark.slow
@pytest.mark.parametrize("page", ["index", "start", "choose"])
def test_blocks_of_the_first_pages_run(empty, page):
    leave_what_the_readme_leaves(empty)
    assert run(empty, blocks(f"docs/{page}.md"))


@pytest.mark.slow
def test_blocks_of_the_howto_run(empty):
    leave_what_the_readme_leaves(empty)
    chain = [block for block in blocks("docs/howto.md") if not of_tables(block)]
    run(empty, chain, here={"check", "fit", "evaluate"})  # the README runs these as processes
    for left in ("sweep.png", "sweep.parquet", "gated.dprl", "review.html", "public.dprl"):
        assert (empty / left).exists()


@pytest.mark.slow
def test_blocks_of_write_your_own_run(empty):
    registries = GATES, KINDS, NUISANCES
    before = [dict(registry) for registry in registries]
    out = run(empty, blocks("docs/own.md"))
    assert "models weighed" in out
    assert [len(registry) for registry in registries] == [len(own) + 1 for own in before]
    for registry, own in zip(registries, before, strict=True):
        registry.clear()
        registry.update(own)


@pytest.mark.slow
def test_blocks_of_the_study_of_tables_run(empty):
    chain = [block for block in blocks("docs/howto.md") if of_tables(block)]
    assert [language for language, _ in chain] == ["bash", "python"]
    run(empty, chain)
    assert (empty / "splits" / "train.parquet").exists()


def test_what_the_readme_shows_is_what_demo_prints(tmp_path):
    printed = in_this_process(f"dprl demo --folder {tmp_path}")
    printed = printed.replace(f" → {tmp_path}/visits.parquet", "").replace(f"{tmp_path}/", "")
    shown = re.search(r"\$ make demo\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    assert printed.strip() == shown.group(1).strip()


@pytest.mark.parametrize("page", sorted(p.name for p in (ROOT / "docs").glob("*.md")))
def test_links_lead_somewhere(page):
    text = (ROOT / "docs" / page).read_text()
    for target in re.findall(r"\]\(([^)#:]+\.md)\)", text):
        assert (ROOT / "docs" / target).exists()


@pytest.mark.parametrize(
    "name", sorted(p.stem for p in (ROOT / "docs" / "_drawings").glob("[!_]*.py"))
)
def test_every_drawing_is_shown_and_every_shown_one_is_drawn(name):
    """What the pages name, from the sources alone: making them is the work of `make docs`."""
    source = (ROOT / "docs" / "_drawings" / f"{name}.py").read_text()
    made = set(re.findall(r'"([\w-]+)": \w+', source.split("DRAWINGS = ")[1]))
    pages = "".join(p.read_text() for p in (ROOT / "docs").glob("*.md"))
    shown = set(re.findall(r"^```\{drawing\} ([\w-]+)$", pages, re.MULTILINE))
    assert made
    assert made <= shown


@pytest.mark.parametrize("page", ["docs/paper.md", "README.md"])
def test_tests_named_in_a_table_exist(page):
    text = (ROOT / page).read_text()
    for file, start in re.findall(r"`(test_\w+\.py)(?:::(\w+?)…?)?`", text):
        (place,) = (ROOT / "tests").rglob(file)
        source = place.read_text()
        assert f"def {start}" in source


def test_the_gallery_knows_every_example():
    """Each has a title, and a place in the order of the gallery."""
    order = (ROOT / "docs" / "_ext" / "gallery_order.py").read_text()
    examples = sorted((ROOT / "examples").glob("plot_*.py"))
    assert len(examples) >= 10
    for example in examples:
        assert re.match(r'"""\n(.+)\n(=+)\n\n\w', example.read_text()), example.name
        assert f'"{example.stem.removeprefix("plot_")}"' in order


def test_links_of_the_readme_lead_somewhere():
    """Files and headings, as GitHub names headings."""
    text = (ROOT / "README.md").read_text()
    targets = re.findall(r"\]\(([^)#:]+)(?:#([\w-]+))?\)", text)
    assert len(targets) > 20
    for file, heading in targets:
        assert (ROOT / file).exists(), file
        if heading:
            headings = re.findall(r"^#+ (.+)$", (ROOT / file).read_text(), re.MULTILINE)
            names = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
            assert heading in names, f"{file}#{heading}"


def test_versions_agree():
    assert f"version: {dprl.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {dprl.__version__}" in (ROOT / "CHANGELOG.md").read_text()
