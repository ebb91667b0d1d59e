"""The code blocks of README and how-to run as they stand, in order, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(name):
    return BLOCK.findall((ROOT / name).read_text())


def run(folder, pages):
    """Shell blocks one by one; Python blocks as one growing program."""
    program = "import dprl\n"
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    out = ""
    for page in pages:
        for language, code in blocks(page):
            if language == "python":
                program += code
                command = [sys.executable, "-c", program]
            else:
                command = ["bash", "-euo", "pipefail", "-c", code]
            done = subprocess.run(
                command, cwd=folder, env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{page}:\n{code}\n{done.stderr}"
            out += done.stdout
    return out


def test_blocks_run(tmp_path):
    out = run(tmp_path, ["README.md", "docs/howto.md"])
    assert "['antibiotics', DEFER]" in out
    assert "12,fever,antibiotics\n14,stable,DEFER" in out


def test_what_the_readme_shows_is_what_demo_prints(tmp_path):
    done = subprocess.run(
        [Path(sys.executable).parent / "dprl", "demo", "--folder", tmp_path],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    printed = done.stdout.replace(f" → {tmp_path}/visits.parquet", "").replace(
        f" → {tmp_path}/policy.dprl", ""
    )
    shown = re.search(r"\$ make demo\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    assert printed.strip() == shown.group(1).strip()


@pytest.mark.parametrize("page", sorted(p.name for p in (ROOT / "docs").glob("*.md")))
def test_links_lead_somewhere(page):
    text = (ROOT / "docs" / page).read_text()
    for target in re.findall(r"\]\(([^)#:]+\.md)\)", text):
        assert (ROOT / "docs" / target).exists()


def test_tests_named_in_the_paper_table_exist():
    text = (ROOT / "docs" / "paper.md").read_text()
    for file, start in re.findall(r"`(test_\w+\.py)(?:::(\w+?)…?)?`", text):
        (place,) = (ROOT / "tests").rglob(file)
        source = place.read_text()
        assert f"def {start}" in source


def test_versions_agree():
    import dprl

    assert f"version: {dprl.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {dprl.__version__}" in (ROOT / "CHANGELOG.md").read_text()
